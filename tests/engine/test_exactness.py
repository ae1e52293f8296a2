"""Never different: the same request gives the same bits, whatever happens around it.

Every test compares token ids and the log probabilities of each emitted token, which are a function
of all logits of its row, for equality, and asserts that what it is about has happened.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from slipstream.engine.engine import Engine
from slipstream.engine.messages import Submit
from slipstream.engine.params import SamplingParams, Speculation, TreeShape
from slipstream.speculation.drafter import NO_DRAFT, Draft, Drafter, DraftTask
from tests import kernel_sets
from tests.engine.driving import FreeRows, assert_as_alone, drive, greedy, sampled, start_engine

SHAPES = (
    TreeShape(num_steps=1, topk=1, num_draft_tokens=2),
    TreeShape(num_steps=3, topk=1, num_draft_tokens=4),
    TreeShape(num_steps=4, topk=4, num_draft_tokens=16),
    TreeShape(num_steps=8, topk=2, num_draft_tokens=40),
)


def prompt(seed: int, length: int) -> list[int]:
    """Text with repetitions, as prompt lookup needs: pieces of a few sources, reordered."""
    generator = np.random.default_rng(seed)
    pieces = [generator.integers(3, 340, size=9).tolist() for _ in range(3)]
    tokens: list[int] = []
    while len(tokens) < length:
        tokens += pieces[generator.integers(3)]
    return tokens[:length]


def requests(count: int, max_tokens: int = 24) -> list[Submit]:
    """Requests of mixed lengths, greedy and sampled in turn."""
    return [
        Submit(
            id,
            prompt(id % 5, 3 + 17 * (id % 7)),
            greedy(max_tokens) if id % 2 else sampled(max_tokens, seed=id, temperature=0.7),
        )
        for id in range(count)
    ]


Start = partial[Engine]


# Kernels, type of keys and values, and drafter.
SETUPS = [
    (kernel_sets.BEST, "auto", "ngram"),
    *((name, "auto", "eagle3") for name in kernel_sets.EVERY_KIND),
    (kernel_sets.BEST, "int8", "eagle3"),
]


@pytest.fixture(
    scope="module",
    params=[kernel_sets.param(setup[0], setup) for setup in SETUPS],
    ids="-".join,
)
def start(request: pytest.FixtureRequest, tiny_llama: Path, tiny_drafter: Path) -> Start:
    """Starts engines that differ only in what is not about kernels, by ``start_engine``'s names."""
    kernel_set, kv_dtype, drafter = request.param
    return partial(
        start_engine,
        tiny_llama,
        kernel_set=kernel_set,
        kv_dtype=kv_dtype,
        drafter=tiny_drafter if drafter == "eagle3" else None,
    )


@pytest.fixture(scope="module")
def plain(start: Start) -> Engine:
    """The reference: nothing shared, nothing cached, nothing speculated."""
    return start()


def test_batched_with_others(plain: Engine, start: Start) -> None:
    submits = requests(20)
    engine = start()
    outputs = drive(engine, submits, arrivals={s.id: s.id // 3 for s in submits})
    stats = engine.stats()
    assert stats.rows_total > 2 * stats.steps_total  # they did share steps
    assert_as_alone(plain, submits, outputs)


@pytest.mark.parametrize("rows", [1, 3, 7, 16, 31, 32, 33, 100])
def test_any_chunk_size(plain: Engine, start: Start, rows: int) -> None:
    submits = [Submit(id, prompt(id, 101), greedy(8)) for id in range(3)]
    engine = start(max_step_rows=rows)
    outputs = drive(engine, submits)
    assert engine.stats().steps_total >= 303 // rows
    assert_as_alone(plain, submits, outputs)


def test_prefix_cache_cold_and_warm(plain: Engine, start: Start) -> None:
    submits = [Submit(id, prompt(1, 90 + id), sampled(40, seed=id)) for id in range(4)]
    engine = start(prefix_cache=True)
    cold = drive(engine, submits[:1]) | drive(engine, submits[1:])
    warm = drive(engine, submits)
    assert cold[0].cached_tokens == 0
    assert all(output.cached_tokens >= 64 for output in warm.values())
    assert_as_alone(plain, submits, cold)
    assert_as_alone(plain, submits, warm)


def test_prefix_cache_evicted(plain: Engine, start: Start) -> None:
    submits = [Submit(id, prompt(id, 100), greedy(10)) for id in range(6)]
    engine = start(pages=9, prefix_cache=True)
    for _ in range(2):
        for submit in submits:
            assert_as_alone(plain, [submit], drive(engine, [submit]))
    assert engine.stats().evicted_pages_total > 6


def test_equal_prefixes_computed_side_by_side_are_merged(plain: Engine, start: Start) -> None:
    submits = [Submit(id, prompt(2, 96), sampled(30, seed=id)) for id in range(4)]
    engine = start(prefix_cache=True)
    assert_as_alone(plain, submits, drive(engine, submits))
    stats = engine.stats()
    assert stats.pages_free + stats.pages_cached == stats.pages
    assert stats.pages_cached < 4 * 3  # three prompt pages, not one copy for each request


@pytest.mark.parametrize("prefix_cache", [False, True])
@pytest.mark.parametrize("shape", [None, SHAPES[2]])
def test_preempted(
    plain: Engine, start: Start, prefix_cache: bool, shape: TreeShape | None
) -> None:
    submits = [Submit(id, prompt(id, 30), sampled(70, seed=id)) for id in range(6)]
    engine = start(pages=9, prefix_cache=prefix_cache, speculation=shape)
    outputs = drive(engine, submits)
    assert engine.stats().preemptions_total > 2
    assert_as_alone(plain, submits, outputs)


@pytest.mark.parametrize("shape", SHAPES)
def test_speculation(plain: Engine, start: Start, shape: TreeShape) -> None:
    submits = requests(12, max_tokens=48)
    engine = start(speculation=shape)
    outputs = drive(engine, submits, arrivals={s.id: s.id for s in submits})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert_as_alone(plain, submits, outputs)


def test_speculation_off_and_of_several_shapes_in_one_batch(plain: Engine, start: Start) -> None:
    modes = [Speculation("off"), *(Speculation("fixed", shape) for shape in SHAPES)]
    submits = [
        Submit(id, prompt(id % 4, 40 + id), greedy(40, speculation=modes[id % len(modes)]))
        for id in range(15)
    ]
    engine = start()
    outputs = drive(engine, submits, arrivals={s.id: s.id // 2 for s in submits})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert_as_alone(plain, submits, outputs)


def test_adaptive_speculation_beside_fixed_and_none(plain: Engine, start: Start) -> None:
    """Trees of the drafter, of prompt lookup, and of both, pruned anew in every step."""
    modes = [Speculation("adaptive")] * 3 + [Speculation("fixed", SHAPES[2]), Speculation("off")]
    submits = [
        replace(submit, params=replace(submit.params, speculation=modes[submit.id % len(modes)]))
        for submit in requests(20, max_tokens=60)
    ]
    engine = start(costs=FreeRows(), pages=40)
    outputs = drive(engine, submits, arrivals={s.id: s.id for s in submits})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert stats.draft_nodes_total < stats.drafted_nodes_total, "none was pruned"
    assert_as_alone(plain, submits, outputs)


@pytest.mark.parametrize("rows", [24, 60])
def test_requests_share_few_draft_rows_and_rings(plain: Engine, start: Start, rows: int) -> None:
    submits = requests(12, max_tokens=40)
    engine = start(speculation=SHAPES[2], max_draft_rows=rows, rings=3)
    outputs = drive(engine, submits)
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total <= rows * stats.steps_total
    assert_as_alone(plain, submits, outputs)


class Flickering:
    """Drafts deep trees for some requests of a step and none for others, at random."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._random = Random(0)

    def draft(self, tasks: Sequence[DraftTask]) -> list[Draft]:
        drafts = [NO_DRAFT] * len(tasks)
        # Whole runs of steps without drafts, too.
        share = self._random.choice([0.0, 0.0, 0.5, 1.0])
        chosen = [i for i in range(len(tasks)) if self._random.random() < share]
        found = self._drafter.draft([tasks[i] for i in chosen]) if chosen else []
        for i, draft in zip(chosen, found, strict=True):
            drafts[i] = draft
        return drafts

    def lag(self, request_id: int, committed: int) -> int:
        return self._drafter.lag(request_id, committed)

    def forget(self, request_id: int) -> None:
        self._drafter.forget(request_id)


@pytest.mark.parametrize("pages", [20, 256])
def test_switching_between_none_and_deep_at_every_step(
    plain: Engine, start: Start, pages: int
) -> None:
    submits = requests(12, max_tokens=60)
    engine = start(pages=pages, prefix_cache=True, speculation=SHAPES[3])
    speculator = engine._speculator
    speculator._drafter = Flickering(speculator._drafter)
    outputs = drive(engine, submits, arrivals={s.id: s.id for s in submits})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert (stats.preemptions_total > 0) == (pages == 20)
    assert_as_alone(plain, submits, outputs)


WAYS: list[dict[str, object]] = [
    {"temperature": 0.9, "top_k": 20},
    {"temperature": 0.9, "top_p": 0.8, "min_p": 0.01},
    {"temperature": 0.0, "repetition_penalty": 2.0},
    {"temperature": 0.3, "repetition_penalty": 1.1, "top_k": 50},
    {"temperature": 0.5, "frequency_penalty": 0.4, "presence_penalty": 0.7},
    {"temperature": 0.0, "logit_bias": {5: 3.0, 6: 3.0, 7: 2.0}},
    {"temperature": 1.0, "logprobs": None},
    {"temperature": 0.2, "logprobs": 20},
]


def test_every_way_to_sample(plain: Engine, start: Start) -> None:
    submits = [
        Submit(
            id,
            prompt(id % 3, 50 + id),
            SamplingParams(**{"max_tokens": 40, "seed": id, "logprobs": 3, **WAYS[id % len(WAYS)]}),  # type: ignore[arg-type]
        )
        for id in range(2 * len(WAYS))
    ]
    engine = start(prefix_cache=True, speculation=SHAPES[2])
    outputs = drive(engine, submits, arrivals={s.id: s.id // 4 for s in submits})
    stats = engine.stats()
    assert 0 < stats.accepted_nodes_total < stats.draft_nodes_total
    assert_as_alone(plain, submits, outputs)
    for submit in submits:
        likeliest = drive(plain, [Submit(0, submit.token_ids, greedy(40))])[0]
        assert outputs[submit.id].tokens != likeliest.tokens
        wanted = submit.params.logprobs
        assert {len(each.top) for each in outputs[submit.id].logprobs} == (
            set() if wanted is None else {wanted}
        )


def test_drafts_are_dropped_before_anything_is_evicted_or_preempted(
    plain: Engine, start: Start
) -> None:
    # One request that fills the pool: near its end there is no free page left for draft nodes.
    submit = Submit(0, prompt(0, 60), greedy(60))
    engine = start(pages=4, speculation=SHAPES[3])
    outputs = drive(engine, [submit])
    stats = engine.stats()
    assert stats.preemptions_total == 0
    assert stats.draft_nodes_total < 39 * stats.steps_total
    assert_as_alone(plain, [submit], outputs)


def test_cancellation_frees_pages_at_once(start: Start) -> None:
    submits = [Submit(id, prompt(id, 50), greedy(30)) for id in range(4)]
    engine = start(speculation=SHAPES[2])
    for submit in submits:
        engine.submit(submit)
    engine.step()
    before = engine.stats().pages_free
    engine.cancel(1)
    engine.cancel(99)
    assert engine.stats().pages_free >= before + 2
    for id in (0, 2, 3):
        engine.cancel(id)
    assert not engine.busy
    assert engine.stats().pages_free == engine.stats().pages


def test_cancelling_others_changes_nothing(plain: Engine, start: Start) -> None:
    submits = requests(9)
    engine = start(pages=24, prefix_cache=True, speculation=SHAPES[2])
    outputs = drive(engine, submits, cancels={1: 2, 4: 5, 7: 0})
    assert len(outputs[1].tokens) < 24
    assert_as_alone(plain, [s for s in submits if s.id not in (1, 4, 7)], outputs)


def hypothesis_params(key: tuple[float, int, float]) -> SamplingParams:
    temperature, seed, penalty = key
    return SamplingParams(
        max_tokens=20,
        temperature=temperature,
        seed=seed,
        top_p=0.95,
        repetition_penalty=penalty,
        frequency_penalty=penalty - 1,
        logprobs=1,
    )


def test_any_schedule(plain: Engine, start: Start) -> None:
    # Torch takes six times as long, for steps so small.
    examples = 10 if start.keywords["kernel_set"] == kernel_sets.TORCH else 40
    settings(max_examples=examples)(given(data=st.data())(check_schedule))(plain, start)


def check_schedule(plain: Engine, start: Start, data: st.DataObject) -> None:
    engine = start(
        pages=data.draw(st.integers(5, 30), label="pages"),
        max_running_requests=data.draw(st.integers(1, 8), label="running"),
        max_step_rows=data.draw(st.integers(1, 80), label="rows"),
        prefix_cache=data.draw(st.booleans(), label="prefix cache"),
        speculation=data.draw(st.sampled_from([None, *SHAPES]), label="shape"),
    )
    count = data.draw(st.integers(1, 8), label="requests")
    drawn = [
        data.draw(
            st.tuples(
                st.integers(1, 110),
                st.integers(0, 2),
                st.tuples(
                    st.sampled_from([0.0, 0.8, 1.5]),
                    st.integers(0, 3),
                    st.sampled_from([1.0, 1.3]),
                ),
            )
        )
        for _ in range(count)
    ]
    submits = [
        Submit(id, prompt(source, length), hypothesis_params(key))
        for id, (length, source, key) in enumerate(drawn)
    ]
    arrivals = {id: data.draw(st.integers(0, 12)) for id in range(count)}
    assert_as_alone(plain, submits, drive(engine, submits, arrivals))
    stats = engine.stats()
    assert stats.pages_free + stats.pages_cached == stats.pages
