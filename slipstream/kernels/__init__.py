"""The arithmetic: one interface, chosen at start. Every kernel keeps the row contract:

the bits of an output row depend only on that row's own inputs and, in attention, on the keys and
values of its own context in logical order. See docs/architecture.md.
"""

from slipstream.kernels.interface import Kernels, StepContext
from slipstream.kernels.step_batch import StepBatch


def choose_kernels(threads: int | None) -> Kernels:
    """The best kernels this machine can run; ``threads`` None means one per core."""
    from slipstream.kernels.torch.kernels import TorchKernels

    return TorchKernels(threads)


__all__ = ["Kernels", "StepBatch", "StepContext", "choose_kernels"]
