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

    rows: torch.Tensor  # [tiles * TILE] row of the step; places left empty repeat the first
    slots: torch.Tensor  # [tiles * blocks * BLOCK]
    masked: torch.Tensor  # [1, tiles, blocks, TILE, 1, BLOCK] key is beyond the row's position
    outputs: torch.Tensor  # [filled places] rows of the step, once each
    places: torch.Tensor  # [filled places] where in `rows` they stand
    tiles: int
    blocks: int


def tile_groups(batch: StepBatch) -> list[TileGroup]:
    """Group the rows of a step once, for all its layers."""
    tiles = list(_tiles(batch))
    lengths = np.array([batch.positions[last] // BLOCK + 1 for _, last in tiles])
    order = np.argsort(-lengths, kind="stable")
    groups: list[TileGroup] = []
    start = 0
    while start < len(order):
        blocks = int(lengths[order[start]])
        end = start + 1
        while (
            end < len(order)
            and (end + 1 - start) * blocks <= MOST_BLOCKS
            and 2 * lengths[order[end]] >= blocks
        ):
            end += 1
        groups.append(_group(batch, [tiles[index] for index in order[start:end]], blocks))
        start = end
    return groups


def _tiles(batch: StepBatch) -> Iterator[tuple[int, int]]:
    """(first, last) rows of each tile: up to TILE rows, each following the one before it."""
    first = 0
    rows = len(batch.tokens)
    for row in range(1, rows + 1):
        if row == rows or not batch.follows[row] or row - first == TILE:
            yield first, row - 1
            first = row


def _group(batch: StepBatch, tiles: list[tuple[int, int]], blocks: int) -> TileGroup:
    rows = np.array([[min(first + place, last) for place in range(TILE)] for first, last in tiles])
    filled = np.array([[first + place <= last for place in range(TILE)] for first, last in tiles])
    slots = np.zeros((len(tiles), blocks * BLOCK), dtype=np.int64)
    for tile, (_, last) in enumerate(tiles):
        _context_slots(batch, last, slots[tile])
    keys = np.arange(blocks * BLOCK).reshape(blocks, 1, 1, BLOCK)
    masked = keys > batch.positions[rows][:, None, :, None, None]
    places = np.flatnonzero(filled.reshape(-1))
    flat = rows.reshape(-1).astype(np.int64)
    return TileGroup(
        rows=torch.from_numpy(flat),
        slots=torch.from_numpy(slots.reshape(-1)),
        masked=torch.from_numpy(masked)[None],
        outputs=torch.from_numpy(flat[places]),
        places=torch.from_numpy(places),
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


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, group: TileGroup
) -> torch.Tensor:
    """Attention of one group of tiles.

    ``queries`` is ``[rows, heads, head_dim]``, already scaled; ``keys`` and ``values`` are
    ``[kv_heads, slots, head_dim]``. Returns ``[filled places, heads * head_dim]``.
    """
    kv_heads, _, head_dim = keys.shape
    tiles, blocks = group.tiles, group.blocks
    share = queries.shape[1] // kv_heads  # query heads per key head
    height = TILE * share
    products = kv_heads * tiles * blocks
    query = (
        queries[group.rows]
        .view(tiles, TILE, kv_heads, share, head_dim)
        .permute(2, 0, 1, 3, 4)
        .reshape(kv_heads, tiles, 1, height, head_dim)
        .expand(kv_heads, tiles, blocks, height, head_dim)
        .reshape(products, height, head_dim)
    )
    key = keys.index_select(1, group.slots).view(products, BLOCK, head_dim)
    value = values.index_select(1, group.slots).view(products, BLOCK, head_dim)
    scores = torch.bmm(query, key.transpose(1, 2))
    scores.view(kv_heads, tiles, blocks, TILE, share, BLOCK).masked_fill_(group.masked, -torch.inf)
    by_block = scores.view(kv_heads, tiles, blocks, height, BLOCK)
    highest = by_block.amax(dim=(2, 4), keepdim=True)
    probabilities = torch.exp(by_block - highest).view(products, height, BLOCK)
    weighted = torch.bmm(probabilities, value).view(kv_heads, tiles, blocks, height, head_dim)
    sums = probabilities.sum(-1).view(kv_heads, tiles, blocks, height, 1)
    output, total = weighted[:, :, 0], sums[:, :, 0]
    for block in range(1, blocks):
        output = output + weighted[:, :, block]
        total = total + sums[:, :, block]
    return (
        (output / total)
        .view(kv_heads, tiles, TILE, share, head_dim)
        .permute(1, 2, 0, 3, 4)
        .reshape(tiles * TILE, kv_heads * share * head_dim)[group.places]
    )
