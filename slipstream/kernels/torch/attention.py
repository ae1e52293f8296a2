"""The one attention routine: prompts, decodes and token trees alike.

Rows are grouped into tiles of a fixed height, the context into blocks of 32 logical positions, and
every product is one (tile, block, head) of a fixed shape. A row's softmax is taken over its whole
context: the maximum is exact in any order, and the sums over blocks are added in logical order.
Masked keys have probability exactly zero, so blocks beyond a row's own position change no bits.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from slipstream.kernels.step_batch import BLOCK, StepBatch

TILE = 4  # rows; no fewer, since libraries treat products of one to three rows differently
MOST_BLOCKS = 1024  # (tile, block) pairs at a time, which bounds temporary memory


@dataclass(frozen=True, slots=True)
class TileGroup:
    """Tiles of similar context length, padded to the longest of them."""

    rows: torch.Tensor  # [tiles * blocks * TILE] row of the step; empty places repeat a row
    slots: torch.Tensor  # [tiles * blocks * BLOCK]
    mask: torch.Tensor  # [products, height, BLOCK] -inf where the key is beyond the row's position
    tiles: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Tiling:
    """All rows of a step in tiles, made once for all layers."""

    groups: list[TileGroup]
    places: torch.Tensor  # [padded] where each row stands among the places of all tiles

    @classmethod
    def of(cls, batch: StepBatch, padded: int, heads: int, kv_heads: int) -> "Tiling":
        """Tiles of a step; rows that are only padding read the first place."""
        tiles = list(_tiles(batch))
        lengths = np.array([batch.positions[last] // BLOCK + 1 for _, last in tiles])
        order = np.argsort(-lengths, kind="stable")
        places = np.zeros(padded, dtype=np.int64)
        for number, tile in enumerate(order):
            first, last = tiles[tile]
            places[first : last + 1] = number * TILE + np.arange(last + 1 - first)
        groups = [
            _group(batch, [tiles[tile] for tile in part], int(lengths[part[0]]), heads, kv_heads)
            for part in _parts(order, lengths)
        ]
        return cls(groups, torch.from_numpy(places))


def _tiles(batch: StepBatch) -> Iterator[tuple[int, int]]:
    """(first, last) rows of each tile: up to TILE rows, each following the one before it."""
    first = 0
    rows = len(batch.tokens)
    for row in range(1, rows + 1):
        if row == rows or not batch.follows[row] or row - first == TILE:
            yield first, row - 1
            first = row


def _parts(order: NDArray[np.int64], lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut tiles, longest context first, where memory or wasted padding would grow too much."""
    start = 0
    for end in range(1, len(order) + 1):
        blocks = lengths[order[start]]
        if (
            end == len(order)
            or (end + 1 - start) * blocks > MOST_BLOCKS
            or 2 * lengths[order[end]] < blocks
        ):
            yield order[start:end]
            start = end


def _group(
    batch: StepBatch, tiles: list[tuple[int, int]], blocks: int, heads: int, kv_heads: int
) -> TileGroup:
    rows = np.array([[min(first + place, last) for place in range(TILE)] for first, last in tiles])
    slots = np.zeros((len(tiles), blocks * BLOCK), dtype=np.int64)
    for tile, (_, last) in enumerate(tiles):
        _context_slots(batch, last, slots[tile])
    keys = np.arange(blocks * BLOCK).reshape(blocks, 1, 1, BLOCK)
    masked = keys > batch.positions[rows][:, None, :, None, None]  # [tiles, blocks, TILE, 1, BLOCK]
    by_product = (kv_heads, len(tiles), blocks, TILE, heads // kv_heads, BLOCK)
    mask = np.broadcast_to(np.where(masked, np.float32(-np.inf), np.float32(0)), by_product)
    return TileGroup(
        rows=torch.from_numpy(np.repeat(rows[:, None], blocks, axis=1).reshape(-1)),
        slots=torch.from_numpy(slots.reshape(-1)),
        mask=torch.from_numpy(mask.reshape(-1, TILE * heads // kv_heads, BLOCK)),
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

    ``queries`` is ``[rows, heads, head_dim]``; ``cache`` is
    ``[2 * kv_heads, slots, head_dim]``, keys first. Returns ``[padded, heads * head_dim]``.
    """
    share = queries.shape[1] * 2 // cache.shape[0]  # query heads per key head
    by_key_head = queries.unflatten(1, (-1, share)).transpose(0, 1)
    outputs = [_attend_group(by_key_head, cache, group) for group in tiling.groups]
    return (outputs[0] if len(outputs) == 1 else torch.cat(outputs)).index_select(0, tiling.places)


def _attend_group(queries: torch.Tensor, cache: torch.Tensor, group: TileGroup) -> torch.Tensor:
    """``queries`` is ``[kv_heads, rows, share, head_dim]``; ``[places, heads * head_dim]``."""
    kv_heads, _, share, head_dim = queries.shape
    tiles, blocks, height = group.tiles, group.blocks, TILE * share
    products = kv_heads * tiles * blocks
    query = queries.index_select(1, group.rows).view(products, height, head_dim)
    key, value = cache.index_select(1, group.slots).view(2, products, BLOCK, head_dim).unbind()
    scores = torch.baddbmm(group.mask, query, key.transpose(1, 2), alpha=head_dim**-0.5)
    by_block = scores.view(kv_heads, tiles, blocks, height, BLOCK)
    probabilities = by_block.sub_(by_block.amax(dim=(2, 4), keepdim=True)).exp_()
    weighted = torch.bmm(scores, value).view(kv_heads, tiles, blocks, height, head_dim)
    sums = probabilities.sum(-1, keepdim=True)
    output, total = weighted[:, :, 0], sums[:, :, 0]
    for block in range(1, blocks):
        output = output + weighted[:, :, block]
        total = total + sums[:, :, block]
    return (
        (output / total)
        .view(kv_heads, tiles * TILE, share, head_dim)
        .transpose(0, 1)
        .reshape(tiles * TILE, kv_heads * share * head_dim)
    )
