"""What is written is the library's file, and what is read is a view of it."""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from slipstream.models.safetensors_file import SafetensorsFile, write_bfloat16


def write(path: Path, values: dict[str, np.ndarray]) -> None:
    shapes = {name: array.shape for name, array in values.items()}
    write_bfloat16(path, shapes, lambda name: values[name])


def test_the_same_file_as_the_library_writes(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    values = {
        "model.z.weight": draw.standard_normal((7, 5), dtype=np.float32),
        "model.é.bias": draw.standard_normal(3, dtype=np.float32) * 1e30,
        'a "quoted" name': np.zeros((1, 1, 2), dtype=np.float32),
    }
    write(tmp_path / "ours", values)
    theirs = {name: torch.from_numpy(array).bfloat16() for name, array in values.items()}
    save_file(theirs, tmp_path / "theirs", {"format": "pt"})
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_rounding_to_bfloat16(tmp_path: Path) -> None:
    """Around every bfloat16: ties, and what lies just beside them, of both signs."""
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], dtype=np.uint32)
    values = (upper | lower).view(np.float32)
    write(tmp_path / "file", {"weight": values})
    found = SafetensorsFile(tmp_path / "file").weight("weight").float32()
    nan = np.isnan(values)
    assert np.isnan(found[nan]).all()
    expected = torch.from_numpy(values[~nan]).bfloat16().float().numpy()
    np.testing.assert_array_equal(found[~nan].view(np.uint32), expected.view(np.uint32))


def test_weights_are_views_of_the_file(tmp_path: Path) -> None:
    save_file(
        {
            "matrix": torch.arange(6.0).reshape(3, 2),
            "vector": torch.arange(5.0, dtype=torch.float16),
        },
        tmp_path / "file",
    )
    file = SafetensorsFile(tmp_path / "file")
    matrix, vector = file.weight("matrix"), file.weight("vector")
    assert (matrix.kind, matrix.shape, matrix.data.shape) == ("float32", (3, 2), (3, 8))
    assert (vector.kind, vector.shape, vector.data.shape) == ("float16", (5,), (1, 10))
    assert not matrix.data.flags.owndata and not matrix.data.flags.writeable
    np.testing.assert_array_equal(matrix.float32(), np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(vector.float32(), np.arange(5.0))
