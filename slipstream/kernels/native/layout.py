"""From token trees to the ragged rows of a step, in one native call."""

from slipstream.kernels.native import _native
from slipstream.kernels.step_batch import StepBatch, StepTrees


def lay_rows(trees: StepTrees) -> StepBatch:
    """Lay the rows of all trees end to end."""
    rows = _native.lay_step(
        trees.tokens, trees.parents, trees.roots, trees.committed, trees.pages, trees.emits
    )
    return StepBatch(*rows)
