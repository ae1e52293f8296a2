"""How much the K/V memory holds, and what cannot be served."""

import re
from pathlib import Path

import pytest

from slipstream.engine.load import load_engine
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.errors import UserError
from slipstream.machine import available_memory, machine_memory
from slipstream.memory.pool import PAGE_SIZE
from slipstream.models.transformer import page_bytes
from slipstream.speculation.eagle3.checkpoint import open_drafter
from slipstream.speculation.eagle3.drafter import Eagle3Drafter
from slipstream.speculation.eagle3.network import ring_slot_bytes
from tests.engine.driving import drive, greedy, load_weights
from tests.models.tiny import make_tiny

LIMIT = 2048  # of the tiny model


@pytest.fixture(scope="module")
def page(tiny_llama: Path) -> int:
    """Bytes of a page."""
    config, _, kernels = load_weights(str(tiny_llama))
    assert config.max_position_embeddings == LIMIT
    return page_bytes(config, kernels)


def load(folder: Path, **fields: object) -> tuple[int, int]:
    """The longest request and the pages that an engine so started has."""
    options = EngineOptions(model=str(folder), threads=1, **fields)  # type: ignore[arg-type]
    engine, ready = load_engine(options)
    assert ready.max_running_requests == options.max_running_requests
    return ready.max_model_len, engine.stats().pages


def test_the_models_own_limit(tiny_llama: Path, page: int) -> None:
    assert load(tiny_llama, kv_memory=100 * page) == (LIMIT, 100)


def test_less_memory_than_the_model_could_use(tiny_llama: Path, page: int) -> None:
    assert load(tiny_llama, kv_memory=3 * page + page - 1) == (3 * PAGE_SIZE, 3)
    assert load(tiny_llama, kv_memory=page) == (PAGE_SIZE, 1)


def test_a_length_that_was_asked_for(tiny_llama: Path, page: int) -> None:
    assert load(tiny_llama, kv_memory=3 * page, max_model_len=3 * PAGE_SIZE) == (96, 3)
    assert load(tiny_llama, kv_memory=90 * page, max_model_len=50) == (50, 90)


def test_no_more_pages_than_requests_can_fill(tiny_llama: Path, page: int) -> None:
    fields = {"max_model_len": 33, "max_running_requests": 2}
    assert load(tiny_llama, kv_memory=1000 * page, **fields) == (33, 2 * (2 + 1))


def test_the_drafters_rings_are_part_of_the_memory(
    tiny_llama: Path, tiny_drafter: Path, page: int
) -> None:
    memory = 3000 * page
    options = EngineOptions(
        model=str(tiny_llama), drafter=str(tiny_drafter), threads=1, kv_memory=memory
    )
    engine, _ = load_engine(options)
    drafter = engine._speculator._drafter
    assert isinstance(drafter, Eagle3Drafter)
    assert 1 < drafter._rings.count < options.max_running_requests
    config, _, kernels = load_weights(str(tiny_llama))
    rings = drafter._rings.slots * ring_slot_bytes(open_drafter(str(tiny_drafter)).config, kernels)
    assert 0 < rings <= memory // 8
    with_features = page_bytes(config, kernels, features=3)
    assert with_features > page
    assert engine.stats().pages == (memory - rings) // with_features


def refusal(folder: Path, **fields: object) -> str:
    with pytest.raises(UserError) as caught:
        load(folder, **fields)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_memory_for_not_even_a_page(tiny_llama: Path, page: int) -> None:
    message = refusal(tiny_llama, kv_memory=page - 1)
    assert re.findall(r"\d+", message) == [str(page - 1), str(PAGE_SIZE), str(page)]


def test_a_length_beyond_the_models(tiny_llama: Path, page: int) -> None:
    message = refusal(tiny_llama, kv_memory=100 * page, max_model_len=LIMIT + 1)
    assert str(LIMIT + 1) in message and f"{LIMIT} tokens" in message


def test_a_length_beyond_the_memory(tiny_llama: Path, page: int) -> None:
    message = refusal(tiny_llama, kv_memory=3 * page, max_model_len=97)
    assert re.findall(r"\d+", message) == ["97", str(3 * page), "96", str(4 * page)]


def test_more_memory_than_the_machine_has(tiny_llama: Path, page: int) -> None:
    message = refusal(tiny_llama, kv_memory=1 << 60, max_running_requests=1 << 40)
    assert str(machine_memory()) in message and "this machine" in message
    # Asked for, but never needed.
    assert load(tiny_llama, kv_memory=1 << 60, max_running_requests=1) == (LIMIT, 65)


def test_by_default_a_quarter_of_what_is_available(
    tiny_llama: Path, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.engine.load.available_memory", lambda: 13 * page)
    assert load(tiny_llama) == (3 * PAGE_SIZE, 3)


def test_available_memory() -> None:
    assert 0 < available_memory() <= machine_memory()


def test_quantisation_reaches_the_model(tiny_llama: Path) -> None:
    logprobs = []
    for quantization in ("none", "int8", "int4"):
        engine, _ = load_engine(
            EngineOptions(
                model=str(tiny_llama), threads=1, kv_memory=8 << 20, quantization=quantization
            )
        )
        output = drive(engine, [Submit(0, [1, 2, 3], greedy(1))])[0]
        logprobs.append(output.logprobs[0].logprob)
    assert len(set(logprobs)) == 3
    assert max(logprobs) - min(logprobs) < 1


def test_a_model_that_cannot_be_quantised(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path, num_hidden_layers=1, intermediate_size=80)
    assert load(tmp_path, kv_memory=8 << 20)
    message = refusal(tmp_path, kv_memory=8 << 20, quantization="int8")
    assert "mlp.down_proj" in message and "80 inputs" in message and "multiple of 32" in message


def test_a_missing_model(tmp_path: Path) -> None:
    assert "nowhere" in refusal(tmp_path / "nowhere")
