"""Safetensors files: the library checks every bound, and never runs code."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from slipstream.errors import UserError

if TYPE_CHECKING:
    import torch

_FLOATS = ("F64", "F32", "F16", "BF16")


class SafetensorsFile:
    """One file, mapped into memory: ``shapes`` by tensor name.

    Raises ``UserError`` for a file that is foreign, cut off, corrupt, or not made of floats.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._torch_handle: Any = None
        # The numpy flavour reads headers without importing torch.
        header = self._open("numpy")
        slices = {name: header.get_slice(name) for name in header.keys()}  # noqa: SIM118
        self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
        for name, part in slices.items():
            if (kind := part.get_dtype()) not in _FLOATS:
                raise UserError(
                    f"{path} stores {name} as {kind}; supported are {', '.join(_FLOATS)}, "
                    "so take the model's unquantised or GGUF version"
                )

    def tensor(self, name: str) -> "torch.Tensor":
        """The tensor, float32 and contiguous."""
        import torch

        if self._torch_handle is None:
            self._torch_handle = self._open("pt")
        tensor: torch.Tensor = self._torch_handle.get_tensor(name)
        return tensor.to(torch.float32).contiguous()

    def _open(self, framework: str) -> Any:
        try:
            return safe_open(self.path, framework)
        except FileNotFoundError:
            raise UserError(f"{self.path} is missing") from None
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(
                f"{self.path} is not a whole safetensors file ({error}); fetch it again"
            ) from None
