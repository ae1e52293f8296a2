"""The one attention routine: prompts, decodes and token trees alike.

The context is cut into blocks of 32 logical positions, and every product is one (row, block, key
head) of one shape, whatever else is computed. A row's softmax is taken over its whole context: the
maximum is exact in any order, and the sums over blocks are added in logical order. Masked keys
have probability exactly zero, so blocks beyond a row's own position change no bits.

Rows that follow each other form a tile, which gathers its keys and values once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.kernels.step_batch import BLOCK, StepBatch

Tile = tuple[int, int]  # first and last row

TILE = 8  # rows at most
MOST_BLOCKS = 1024  # (tile, block) pairs at a time, which bounds temporary memory


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of equal height and similar context length, padded to the longest of them."""

    rows: list[torch.Tensor]  # for each place in a tile: [tiles * blocks] row of the step
    masks: list[torch.Tensor]  # likewise: [tiles, blocks, 1, BLOCK], -inf beyond the row's position
    slots: torch.Tensor  # [tiles * blocks * BLOCK]
    tiles: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """All rows of a step in tiles, made once for all layers."""

    groups: list[TileGroup]
    places: torch.Tensor  # [padded] where each row stands in the outputs of all groups

    @classmethod
    def of(cls, batch: StepBatch, padded: int) -> "Tiling":
        """Tiles of a step; rows that are only padding read the first place."""
        lone = [tile for tile in _tiles(batch) if tile[0] == tile[1]]
        tall = [tile for tile in _tiles(batch) if tile[0] != tile[1]]
        places = np.zeros(padded, dtype=np.int64)
        groups: list[TileGroup] = []
        filled = 0
        for tiles, height in ((lone, 1), (tall, TILE)):
            for part in _parts(batch, tiles):
                groups.append(_group(batch, part, height))
                # A group's outputs are laid place by place, and in each place tile by tile.
                for number, (first, last) in enumerate(part):
                    of_tile = filled + number + len(part) * np.arange(last + 1 - first)
                    places[first : last + 1] = of_tile
                filled += height * len(part)
        return cls(groups, torch.from_numpy(places))


def _tiles(batch: StepBatch) -> Iterator[Tile]:
    """Up to TILE rows, each following the one before it."""
    first = 0
    rows = len(batch.tokens)
    for row in range(1, rows + 1):
        if row == rows or not batch.follows[row] or row - first == TILE:
            yield first, row - 1
            first = row


def _blocks(batch: StepBatch, tile: Tile) -> int:
    """Blocks of the context of a tile's last row."""
    return int(batch.positions[tile[1]]) // BLOCK + 1


def _parts(batch: StepBatch, tiles: list[Tile]) -> Iterator[list[Tile]]:
    """Cut tiles, longest context first, where memory or wasted padding would grow too much."""
    tiles = sorted(tiles, key=lambda tile: -_blocks(batch, tile))
    start = 0
    for end in range(1, len(tiles) + 1):
        blocks = _blocks(batch, tiles[start])
        if (
            end == len(tiles)
            or (end + 1 - start) * blocks > MOST_BLOCKS
            or 2 * _blocks(batch, tiles[end]) < blocks
        ):
            yield tiles[start:end]
            start = end


def _group(batch: StepBatch, tiles: list[Tile], height: int) -> TileGroup:
    blocks = _blocks(batch, tiles[0])
    # A place that a tile leaves empty repeats its last row.
    rows = np.array(
        [[min(first + place, last) for first, last in tiles] for place in range(height)]
    )
    slots = np.zeros((len(tiles), blocks * BLOCK), dtype=np.int64)
    for tile, (_, last) in enumerate(tiles):
        _context_slots(batch, last, slots[tile])
    keys = np.arange(blocks * BLOCK).reshape(blocks, 1, BLOCK)
    masked = keys > batch.positions[rows][:, :, None, None, None]
    masks = np.where(masked, np.float32(-np.inf), np.float32(0))
    return TileGroup(
        rows=list(torch.from_numpy(np.repeat(rows, blocks, axis=1))),
        masks=list(torch.from_numpy(masks)),
        slots=torch.from_numpy(slots.reshape(-1)),
        tiles=len(tiles),
        blocks=blocks,
    )


def _context_slots(batch: StepBatch, row: int, out: NDArray[np.int64]) -> None:
    """Slots of positions 0 to the row's own, in logical order; the rest of ``out`` stays."""
    request = batch.requests[row]
    start = int(batch.tail_starts[request])
    pages = batch.page_tables[request, : start // BLOCK].astype(np.int64)
    out[:start] = (pages[:, None] * BLOCK + np.arange(BLOCK)).reshape(-1)
    tail = int(batch.positions[row]) + 1 - start
    out[start : start + tail] = batch.tail_slots[row, :tail]


def attend(queries: torch.Tensor, cache: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """Attention of all rows.

    ``queries`` is ``[rows, heads, head_dim]``, already scaled; ``cache`` is
    ``[2 * kv_heads, slots, head_dim]``, keys first. Returns ``[padded, heads * head_dim]``.
    """
    share = queries.shape[1] * 2 // cache.shape[0]  # query heads per key head
    by_key_head = queries.unflatten(1, (-1, share)).transpose(0, 1)
    outputs: list[torch.Tensor] = []
    for group in tiling.groups:
        keys, values = cache.index_select(1, group.slots).unflatten(1, (-1, BLOCK)).chunk(2)
        for rows, mask in zip(group.rows, group.masks, strict=True):
            query = by_key_head.index_select(1, rows)
            outputs.append(_attend_rows(query, keys, values, mask))
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).index_select(0, tiling.places)


def _attend_rows(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """One row of each tile.

    ``query`` is ``[kv_heads, tiles * blocks, share, head_dim]``; ``keys`` and ``values`` are
    ``[kv_heads, tiles * blocks, BLOCK, head_dim]``. Returns ``[tiles, heads * head_dim]``.
    """
    kv_heads, _, share, head_dim = query.shape
    tiles, blocks = mask.shape[:2]
    scores = torch.bmm(query.flatten(0, 1), keys.flatten(0, 1).transpose(1, 2))
    by_block = scores.view(kv_heads, tiles, blocks, share, BLOCK).add_(mask)
    by_block.sub_(by_block.amax(dim=(2, 4), keepdim=True)).exp_()
    weighted = torch.bmm(scores, values.flatten(0, 1))
    weighted = weighted.view(kv_heads, tiles, blocks, share, head_dim)
    sums = by_block.sum(-1, keepdim=True)
    output, total = weighted[:, :, 0], sums[:, :, 0]
    for block in range(1, blocks):
        output = output + weighted[:, :, block]
        total = total + sums[:, :, block]
    return (output / total).transpose(0, 1).reshape(tiles, kv_heads * share * head_dim)
