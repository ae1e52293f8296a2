"""One step as ragged rows: what the kernels need to know of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]

BLOCK = 32  # logical positions that attention treats together; position p is in lane p mod 32


@dataclass(frozen=True, slots=True)
class StepTrees:
    """The token trees of R requests, of which a step computes every node.

    Node i of a tree is stored in the request's slot number ``committed + i``. The nodes up to the
    root are known tokens, each below the one before it; of draft nodes ``parents`` tells. Logits
    are wanted of the root and of draft nodes, if the request ``emits``.
    """

    tokens: list[Int32]  # [nodes] each
    parents: list[Int32]  # [nodes] each, an index; -1 for the first node
    roots: list[int]
    committed: list[int]  # tokens whose K and V are stored
    pages: list[list[int]]  # with room for the nodes
    emits: list[bool]


@dataclass(frozen=True, slots=True)
class StepBatch:
    """T rows of R requests, the rows of each request's token tree laid end to end.

    A row attends to the committed slots of its request in logical order, then to its own tail:
    the slots of itself and its ancestors. The tail starts at the first attention block that is
    not wholly committed, so that every block is complete and in logical order.
    """

    tokens: Int32  # [T] token ids
    positions: Int32  # [T] logical positions
    slots: Int32  # [T] where the row's K and V are written
    requests: Int32  # [T] index of the row's request, not decreasing
    follows: NDArray[np.bool_]  # [T] the row's parent is the row before it
    page_tables: Int32  # [R, P] pages of the wholly committed blocks, then zeros
    tail_starts: Int32  # [R] first position of the tail, a multiple of the page size
    tail_slots: Int32  # [T, W] slots of positions tail_start.. up to the row's own or later
    logit_rows: Int32  # [L] rows whose logits are wanted
    sources: Int32 | None = None  # [T] slots from which kept rows are gathered; None: `slots`
    rotary_positions: Int32 | None = None  # [T] if they are not the logical ones
