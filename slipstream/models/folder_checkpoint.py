"""A Hugging Face folder: config.json, safetensors and tokenizer.json."""

from collections.abc import Collection
from pathlib import Path

from slipstream.errors import UserError
from slipstream.kernels.weight import Weight
from slipstream.models.config import ModelConfig
from slipstream.models.folder_tokenizer import tokenizer_parts_from_folder
from slipstream.models.json_file import read_json_object, read_optional_json_object
from slipstream.models.safetensors_file import SafetensorsFile
from slipstream.models.tokenizer_parts import TokenizerParts

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"


class FolderCheckpoint:
    """One folder. See ``Checkpoint`` for the members.

    Raises ``UserError`` for a folder that lacks a file or holds a broken one.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        if not (folder / "config.json").exists():
            raise UserError(
                f"{folder} has no config.json, so it is not a model folder{_hint(folder)}"
            )
        try:
            self.config = ModelConfig.from_hf(
                read_json_object(folder / "config.json"),
                read_optional_json_object(folder / "generation_config.json"),
            )
        except UserError as error:
            raise UserError(f"{folder}: {error}") from None
        self._file_of = {tensor: file for file in weight_files(folder) for tensor in file.shapes}
        self.shapes = {tensor: file.shapes[tensor] for tensor, file in self._file_of.items()}

    def weight(self, name: str) -> Weight:
        """The tensor as it is stored, a view of its file."""
        return self._file_of[name].weight(name)

    def tokenizer_parts(self) -> TokenizerParts:
        """The tokenizer in tokenizer.json and tokenizer_config.json."""
        return tokenizer_parts_from_folder(self._folder)


def weight_files(folder: Path, others: Collection[str] = ()) -> list[SafetensorsFile]:
    """The safetensors of a folder, one or several; for ``others`` see ``SafetensorsFile``."""
    index = folder / _INDEX
    if not index.exists():
        if not (folder / _SINGLE).exists():
            raise UserError(f"{folder} has no {_SINGLE}{_hint(folder)}")
        return [SafetensorsFile(folder / _SINGLE, others)]
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise UserError(f"{index} has no weight_map from tensor names to files")
    names = sorted({str(name) for name in weight_map.values()})
    if strange := [name for name in names if Path(name).name != name]:
        raise UserError(f"{index} names the file {strange[0]!r}; it should lie in the same folder")
    return [SafetensorsFile(folder / name, others) for name in names]


def _hint(folder: Path) -> str:
    """What the user may have meant by a folder without the usual files."""
    if found := sorted(folder.glob("*.gguf")):
        return f"; to serve {found[0].name}, give the path of the file itself"
    if any(folder.glob("*.bin")) or any(folder.glob("*.pth")):
        return (
            "; its pickled weights can run code and are never opened, convert them to safetensors"
        )
    return ""
