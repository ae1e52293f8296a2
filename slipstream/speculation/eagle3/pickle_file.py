"""pytorch_model.bin, in which many EAGLE-3 drafters are published and nowhere else."""

from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight

_KINDS = ("float64", "float32", "float16", "bfloat16")
_INTEGERS = ("int64", "int32")


class PickleFile:
    """One file of tensors, as in ``SafetensorsFile``.

    It is read by PyTorch's unpickler for weights, which builds tensors and runs nothing else.
    Raises ``UserError`` for a file that holds anything but named tensors, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        import torch

        self.path = path
        try:
            tensors = torch.load(path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            raise UserError(f"{path} is missing") from None
        except Exception:  # a damaged pickle can fail in any way
            raise UserError(
                f"{path} is damaged, or holds more than tensors; convert it to safetensors, "
                "or fetch it again"
            ) from None
        if not isinstance(tensors, dict) or not all(
            isinstance(name, str)
            and isinstance(tensor, torch.Tensor)
            and tensor.layout == torch.strided
            and not tensor.is_quantized
            and tensor.device.type == "cpu"  # tensors on "meta" have no values
            for name, tensor in tensors.items()
        ):
            raise UserError(f"{path} should hold tensors by name, and nothing else")
        self._tensors: dict[str, torch.Tensor] = {n: t.detach() for n, t in tensors.items()}
        self.shapes = {name: tuple(tensor.shape) for name, tensor in self._tensors.items()}

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored. Raises ``UserError`` if it is not made of floats."""
        import torch

        tensor, shape = self._tensors[name], self.shapes[name]
        data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
        return Weight(shape, self._kind(name, _KINDS), data.reshape(prod(shape[:-1]), -1))

    def integers(self, name: str) -> NDArray[np.int64]:
        """A tensor of integers. Raises ``UserError`` for others."""
        self._kind(name, _INTEGERS)
        values: NDArray[np.int64] = self._tensors[name].long().numpy()
        return values

    def _kind(self, name: str, wanted: tuple[str, ...]) -> str:
        kind = str(self._tensors[name].dtype).removeprefix("torch.")
        if kind not in wanted:
            raise UserError(f"{self.path} stores {name} as {kind}; supported are {wanted}")
        return kind
