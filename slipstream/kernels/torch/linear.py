"""Matrix products whose rows never influence each other.

A library picks its code by the shape of the product, so the number of rows can change the order in
which a row's sum is taken, and with it the bits. Here rows are computed in blocks of a few fixed
heights, and a height is used only after it gave, on this machine and for this shape of weights,
the same bits as the first one, in every place of the block.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

HEIGHTS = (16, 1, 2, 4, 8, 24, 32, 48, 64, 80, 96, 112, 128, 192, 256)  # the first is the reference


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """``apply`` maps float32 ``[rows, K]`` to ``[rows, N]``."""

    apply: Callable[[torch.Tensor], torch.Tensor]
    inputs: int  # K
    outputs: int  # N


def pack(weight: torch.Tensor, bias: torch.Tensor | None) -> PackedLinear:
    """Pack float32 ``[N, K]`` for oneDNN where this build of PyTorch has it."""
    outputs, inputs = weight.shape
    if not torch.backends.mkldnn.is_available():
        return PackedLinear(
            lambda rows: torch.nn.functional.linear(rows, weight, bias), inputs, outputs
        )
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, HEIGHTS[0])
    product = torch.ops.mkldnn._linear_pointwise
    return PackedLinear(lambda rows: product(rows, packed, bias, "none", [], ""), inputs, outputs)


def equal_heights(linear: PackedLinear) -> frozenset[int]:
    """The heights at which every row has the bits that it has at the reference height.

    If places within the reference block already differ, only single rows are left: slow, but the
    same product of the same shape every time.
    """
    generator = torch.Generator().manual_seed(linear.inputs)
    rows = torch.randn(HEIGHTS[0], linear.inputs, generator=generator)
    reference = linear.apply(rows)

    def agrees(height: int) -> bool:
        """The same rows, again and again, none in the place where the reference has it."""
        order = (torch.arange(height) + 5) % HEIGHTS[0]
        return torch.equal(linear.apply(rows[order]), reference[order])

    if not agrees(HEIGHTS[0]):
        return frozenset({1})
    return frozenset(height for height in HEIGHTS if agrees(height))


def blocks(rows: int, heights: frozenset[int]) -> list[int]:
    """Heights that cover ``rows`` rows: the tallest as often as it fits, then one that holds the
    rest."""
    tallest = max(heights)
    whole, rest = divmod(rows, tallest)
    covering = [tallest] * whole
    if rest:
        covering.append(min(height for height in heights if height >= rest))
    return covering
