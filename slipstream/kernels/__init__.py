"""The arithmetic: one interface, chosen at start. Every kernel keeps the row contract:

the bits of an output row depend only on that row's own inputs and, in attention, on the keys and
values of its own context in logical order. See docs/architecture.md.
"""

import logging
import os

# OpenMP threads that wait by spinning take the processor from the very thread they wait for as soon
# as another process wants a core: a step then lasts ten times as long. A short spin, then sleep.
# Read when PyTorch loads the OpenMP library, so this stands before the first import of torch.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from slipstream.kernels.choice import choose
from slipstream.kernels.interface import Kernels, KVDtype
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch
from slipstream.kernels.weight import Weight

_log = logging.getLogger(__name__)


def choose_kernels(threads: int | None) -> Kernels:
    """The best kernels this machine can run; ``threads`` None means one per core.

    Raises ``UserError`` if the environment asks for kernels that do not run here; see ``choose``.
    """
    choice = choose(os.environ)
    if choice.isa is None:
        _log.warning("the kernels are PyTorch's, which are slow: %s", choice.why)
        from slipstream.kernels.torch.kernels import TorchKernels

        return TorchKernels(threads)
    from slipstream.kernels.native.kernels import NativeKernels

    return NativeKernels(choice.isa, threads)


__all__ = ["KVDtype", "Kernels", "SamplingRows", "StepBatch", "Weight", "choose_kernels"]
