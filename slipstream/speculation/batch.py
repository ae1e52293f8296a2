"""From planned work and token trees to the ragged rows of one step."""

from collections.abc import Sequence
from typing import Protocol

from slipstream.kernels.step_batch import StepBatch, StepTrees
from slipstream.speculation.tree import TokenTree

try:
    from slipstream.kernels.native.layout import lay_rows
except ImportError:  # not built
    from slipstream.kernels.torch.layout import lay_rows


class Context(Protocol):
    """What a tree stands on: so many tokens committed, in these pages, which have room for it."""

    @property
    def committed(self) -> int: ...
    @property
    def pages(self) -> list[int]: ...


def build_step_batch(
    requests: Sequence[Context], trees: Sequence[TokenTree], emits: Sequence[bool]
) -> StepBatch:
    """The rows of all trees, end to end.

    Node i of a tree is stored in the request's slot number ``committed + i``. For known tokens that
    is their logical slot; draft nodes move there when they are accepted. ``emits`` tells which
    requests want logits: those of the root and of all draft nodes.
    """
    return lay_rows(
        StepTrees(
            tokens=[tree.tokens for tree in trees],
            parents=[tree.parents for tree in trees],
            roots=[tree.root for tree in trees],
            committed=[request.committed for request in requests],
            pages=[request.pages for request in requests],
            emits=list(emits),
        )
    )
