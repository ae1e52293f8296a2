"""What a model's own numbers let expect, and whose costs they are."""

from pathlib import Path

import pytest

from slipstream.engine.costs import cost_key, machine_of
from slipstream.engine.load import open_drafter_for, open_target
from slipstream.engine.options import EngineOptions
from slipstream.kernels import choose_kernels
from slipstream.models.quantize import Quantization
from slipstream.speculation.policy.cost_model import Machine


def expected(quantization: Quantization = "none", model: str = "default") -> Machine:
    options = EngineOptions(model=model, quantization=quantization, threads=1)
    target = open_target(options)
    return machine_of(target, open_drafter_for(options, target), choose_kernels(1), options)


def test_the_default_models_numbers() -> None:
    machine = expected()
    # The file has 98 MB, all of which a step reads, but for its header and tokenizer.
    assert machine.target_bytes == pytest.approx(96.4e6, rel=0.01)
    assert machine.target_operations == pytest.approx(2 * 134.5e6, rel=0.01)
    # Keys and values of 30 layers and 3 heads of 64, two bytes each, or four in float32.
    assert machine.context_bytes in (23040, 46080)
    assert 5e6 < machine.drafter_bytes < 25e6
    assert machine.drafter_operations > machine.drafter_bytes


def test_fewer_bits_are_fewer_bytes(tiny_llama: Path) -> None:
    whole, int8, int4 = (expected(bits, str(tiny_llama)) for bits in ("none", "int8", "int4"))
    assert whole.target_bytes == pytest.approx(int8.target_bytes * 64 / 34)
    assert int8.target_bytes > int4.target_bytes > int8.target_bytes / 2
    assert whole.target_operations == int4.target_operations == whole.target_bytes
    assert whole.drafter_bytes == whole.drafter_operations == 0


def test_every_option_that_matters_is_in_the_key(tiny_llama: Path, tiny_drafter: Path) -> None:
    variants: list[dict[str, object]] = [
        {},
        {"quantization": "int8"},
        {"threads": 2},
        {"drafter": str(tiny_drafter)},
        {"kv_dtype": "int8"},
    ]
    keys = []
    for fields in variants:
        options = EngineOptions(**{"model": str(tiny_llama), "threads": 1, **fields})  # type: ignore[arg-type]
        target = open_target(options)
        drafter = open_drafter_for(options, target)
        keys.append(cost_key(target, drafter, choose_kernels(options.threads), options))
    assert len(set(keys)) == len(variants)
    same = EngineOptions(model=str(tiny_llama), threads=1, max_running_requests=3)
    target = open_target(same)
    assert cost_key(target, None, choose_kernels(1), same) == keys[0]
