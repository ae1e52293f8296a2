import os
import signal
from pathlib import Path

import pytest
import torch

from slipstream.errors import UserError
from slipstream.training.corpus import Corpus
from slipstream.training.network import Weights
from slipstream.training.options import TrainingOptions
from slipstream.training.trainer import Progress, plan_batches, train
from slipstream.training.validation import validate
from tests.training.tiny import (
    VOCABULARY,
    tiny_config,
    tiny_target,
    write_counting_corpus,
)

OPTIONS = TrainingOptions(
    levels=3, epochs=1.5, batch_tokens=60, learning_rate=1e-2, prompt_share=0.5, columns=24
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    write_counting_corpus(folder, tiny_target())
    return Corpus(folder)


def run(
    corpus: Corpus,
    folder: Path,
    options: TrainingOptions = OPTIONS,
    stop_after: int | None = None,
    signal_number: int = signal.SIGTERM,
    start: Weights | None = None,
) -> tuple[Weights, list[Progress]]:
    seen: list[Progress] = []

    def report(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == stop_after:
            os.kill(os.getpid(), signal_number)

    vocabulary = torch.arange(VOCABULARY)
    config = tiny_config(VOCABULARY)
    weights = train(corpus, tiny_target(), config, vocabulary, options, folder, report, start=start)
    return weights, seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_bit_for_bit_like_another(
    corpus: Corpus, tmp_path: Path, number: int
) -> None:
    whole, seen = run(corpus, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(corpus, tmp_path / "parts", stop_after=7, signal_number=number)
    parts, rest = run(corpus, tmp_path / "parts")
    assert len(rest) == len(seen) - 7
    assert rest[-1].loss == seen[-1].loss
    assert rest[-1].top1 == seen[-1].top1
    assert rest[-1].tokens == seen[-1].tokens == seen[-1].total
    assert rest[0].seconds > seen[0].seconds / 2
    assert parts.keys() == whole.keys()
    for name, weight in whole.items():
        assert torch.equal(weight, parts[name]), name


def test_a_finished_run_is_not_repeated(corpus: Corpus, tmp_path: Path) -> None:
    first, _ = run(corpus, tmp_path)
    again, seen = run(corpus, tmp_path)
    assert not seen
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_a_predictable_target_is_learnt(corpus: Corpus, tmp_path: Path) -> None:
    options = TrainingOptions(
        levels=3,
        epochs=25,
        batch_tokens=100,
        learning_rate=2e-2,
        deep_share=1.0,
        columns=VOCABULARY,
    )
    weights, seen = run(corpus, tmp_path, options)
    assert seen[-1].loss < seen[0].loss / 2
    config, vocabulary = tiny_config(VOCABULARY), torch.arange(VOCABULARY)
    score = validate(corpus.held_out, tiny_target(), config, vocabulary, weights, levels=3)
    assert min(score.top1) > 0.9
    assert min(score.accepted) > 0.8
    assert all(near >= first for first, near in zip(score.top1, score.top4, strict=True))


def test_a_trained_drafter_can_be_trained_further(corpus: Corpus, tmp_path: Path) -> None:
    first, seen = run(corpus, tmp_path / "first")
    before = {name: weight.clone() for name, weight in first.items()}
    more, seen_then = run(corpus, tmp_path / "more", start=first)
    assert seen_then[0].loss < seen[0].loss
    assert all(torch.equal(before[name], first[name]) for name in before)
    assert not torch.equal(more["fc.weight"], first["fc.weight"])


def test_what_cannot_be_guessed_counts_as_wrong(corpus: Corpus, tmp_path: Path) -> None:
    weights, _ = run(corpus, tmp_path)
    few = torch.arange(10)
    weights = weights | {"lm_head.weight": weights["lm_head.weight"][few]}
    score = validate(corpus.held_out, tiny_target(), tiny_config(10), few, weights, levels=2)
    assert score.top4[0] < 0.5


def test_state_of_other_options_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    run(corpus, tmp_path)
    with pytest.raises(UserError, match="other options"):
        run(corpus, tmp_path, TrainingOptions(levels=2))


def test_a_foreign_state_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "training-state.pt").write_bytes(b"not a state")
    with pytest.raises(UserError, match="is not a training state"):
        run(corpus, tmp_path)


def test_epochs_differ_in_order_and_hold_everything_once(corpus: Corpus) -> None:
    batches = plan_batches(corpus.training, TrainingOptions(epochs=2, batch_tokens=60))
    prompts = [c.prompt for batch in batches for c in batch]
    half = len(corpus.training)
    assert sorted(prompts[:half]) == sorted(prompts[half:]) == [c.prompt for c in corpus.training]
    assert prompts[:half] != prompts[half:]
    sizes = [sum(len(c.tokens) for c in batch) for batch in batches[:-1]]
    assert sum(60 <= size < 80 for size in sizes) >= len(sizes) - 1
