"""What the torch kernels take, and what they refuse."""

import numpy as np
import pytest
import torch

from slipstream.errors import UserError
from slipstream.kernels.interface import KVDtype
from slipstream.kernels.torch.kernels import TorchKernels
from slipstream.kernels.weight import Weight
from slipstream.models.quantize import quantize


@pytest.mark.parametrize("kind", ["q8_0", "q4_1"])
def test_quantised_weights_are_expanded(kind: str) -> None:
    values = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    weight = quantize(Weight.of(values), kind)
    kernels = TorchKernels()
    table = kernels.pack_embedding(weight)
    np.testing.assert_array_equal(table.numpy(), weight.float32())
    rows = torch.randn(16, 96, generator=torch.Generator().manual_seed(0))
    expected = kernels.pack_linear([Weight.of(weight.float32())], None).apply(rows)
    assert torch.equal(kernels.pack_linear([weight], None).apply(rows), expected)


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_other_types_of_keys_and_values_are_refused(dtype: KVDtype) -> None:
    kernels = TorchKernels()
    for refuse in (
        lambda: kernels.new_kv_cache(1, 2, 64, 32, dtype),
        lambda: kernels.slot_bytes(1, 2, 64, dtype),
    ):
        with pytest.raises(UserError, match=f"float32, not {dtype}; leave --kv-dtype at auto"):
            refuse()
    assert kernels.slot_bytes(1, 2, 64, "auto") == 1024
