"""Token trees grown in one native call, without the interpreter's lock."""

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.growth import GrownTree, TreeGrowth
from slipstream.kernels.native import _native
from slipstream.kernels.native.program import RecordedProgram


class NativeGrower:
    """A drafter's recorded passes, and all there is to do between them; see `TreeGrower`."""

    def __init__(
        self,
        machine: _native.Machine,
        first: RecordedProgram,
        deeper: RecordedProgram,
        ids: NDArray[np.int32],
    ) -> None:
        self._machine = machine
        self._kept = first, deeper
        self._grower = _native.Grower(
            machine, first.program, first.output, deeper.program, deeper.output, ids
        )

    def __call__(self, growth: TreeGrowth) -> list[GrownTree]:
        rings, sampling = growth.rings, growth.sampling
        return self._grower.grow(
            self._machine,
            growth.tokens,
            growth.sources,
            rings.first_pages,
            rings.pages,
            rings.starts,
            growth.entered,
            growth.roots,
            growth.levels,
            growth.topk,
            growth.nodes,
            growth.least_scores,
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
            sampling.top_k,
            sampling.seed,
            sampling.position,
        )
