"""Training an EAGLE-3 drafter from a corpus. Stopped at any time, it goes on where it was."""

import contextlib
import math
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slipstream.errors import UserError
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training.corpus import Conversation, Corpus
from slipstream.training.gradients import GradientWorkers, Sampling, group
from slipstream.training.network import initial_weights
from slipstream.training.objective import Objective, Score
from slipstream.training.optimizer import Optimizers, learning_rate_at
from slipstream.training.options import TrainingOptions
from slipstream.training.target import TargetTensors

STATE_FILE = "training-state.pt"
SAVE_SECONDS = 180.0
MEMORY = 0.97  # how much of the shown averages is kept from step to step


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far training is. Loss and shares are running averages over recent steps."""

    tokens: int
    total: int
    loss: float
    top1: tuple[float, ...]  # by level
    top4: tuple[float, ...]
    learning_rate: float
    seconds: float  # spent so far, earlier runs included
    tokens_per_second: float  # of this run

    @property
    def seconds_left(self) -> float:
        """At the speed of this run."""
        return (self.total - self.tokens) / max(self.tokens_per_second, 1e-9)


def train(
    corpus: Corpus,
    target: TargetTensors,
    config: Eagle3Config,
    vocabulary: Tensor,
    options: TrainingOptions,
    folder: Path,
    report: Callable[[Progress], None],
    start: Mapping[str, Tensor] | None = None,
) -> dict[str, Tensor]:
    """Train, and return the weights by SpecForge's names.

    ``vocabulary`` is int64 ``[D]``, the target ids of the draft vocabulary. ``start`` is a trained
    drafter's weights to begin with, of the same vocabulary; else they come from the target, see
    `initial_weights`. ``folder`` keeps the state: training goes on from there if it holds one, and
    saves it every few minutes and when the process is interrupted or terminated, which raises
    ``KeyboardInterrupt`` after the step. Raises ``UserError`` if the state belongs to another
    corpus, other options, or another start.
    """
    with _worker_threads(options.threads) as pool, _stop_signals() as stopped:
        if start is None:
            generator = torch.Generator().manual_seed(options.seed)
            start = initial_weights(config, target, vocabulary, generator)
        run = _Run(corpus, target, config, vocabulary, options, folder, pool, start)
        saved = time.monotonic()
        for progress in run.steps():
            report(progress)
            if stopped.is_set():
                run.save()
                raise KeyboardInterrupt
            if time.monotonic() - saved > SAVE_SECONDS:
                run.save()
                saved = time.monotonic()
        run.save()
    return {name: weight.detach() for name, weight in run.weights.items()}


class _Run:
    def __init__(
        self,
        corpus: Corpus,
        target: TargetTensors,
        config: Eagle3Config,
        vocabulary: Tensor,
        options: TrainingOptions,
        folder: Path,
        pool: ThreadPoolExecutor,
        start: Mapping[str, Tensor],
    ) -> None:
        self._options = options
        self._path = folder / STATE_FILE
        self._batches = plan_batches(corpus.training, options)
        self._start = _digest(start)
        self._vocabulary = vocabulary
        self.weights = {
            name: weight.detach().clone().requires_grad_() for name, weight in start.items()
        }
        objective = Objective(target, vocabulary, options.level_decay)
        self._workers = GradientWorkers(config, target, objective, pool)
        self._optimizers = Optimizers(self.weights, pool.map)
        self._score = Score(options.levels)
        self._step = 0
        self._seconds = 0.0
        if self._path.exists():
            self._load()

    def steps(self) -> Iterator[Progress]:
        lengths = [sum(len(c.tokens) for c in batch) for batch in self._batches]
        total, done = sum(lengths), sum(lengths[: self._step])
        at_start, seconds_at_start = done, self._seconds
        started = time.monotonic()
        while self._step < len(self._batches):
            rate = self._train_step()
            done += lengths[self._step]
            self._step += 1
            elapsed = time.monotonic() - started
            self._seconds = seconds_at_start + elapsed
            yield Progress(
                tokens=done,
                total=total,
                loss=self._score.mean_loss,
                top1=self._score.top1,
                top4=self._score.top4,
                learning_rate=rate,
                seconds=self._seconds,
                tokens_per_second=(done - at_start) / elapsed,
            )

    def _train_step(self) -> float:
        options = self._options
        rate = options.learning_rate * learning_rate_at((self._step + 1) / len(self._batches))
        # Seeded by the step, so that it does not matter whether the run was interrupted.
        seed = (options.seed, self._step)
        score = self._workers.add(self.weights, self._batches[self._step], self._sampling(), seed)
        self._score.scale(MEMORY)
        self._score.merge(score)
        self._optimizers.step(rate)
        return rate

    def _sampling(self) -> Sampling:
        options = self._options
        return Sampling(
            levels=options.levels,
            prompt_share=options.prompt_share,
            deep_share=options.deep_share,
            columns=options.columns,
        )

    def save(self) -> None:
        """Write the state, whole or not at all."""
        state = {
            "of": self._identity(),
            "step": self._step,
            "seconds": self._seconds,
            "weights": {name: weight.detach() for name, weight in self.weights.items()},
            "optimizers": self._optimizers.state(),
            "score": asdict(self._score),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in self._path.parent.glob(f"{self._path.stem}.*.tmp"):
            abandoned.unlink()
        unfinished = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            torch.save(state, unfinished)
        except (OSError, RuntimeError) as error:  # a full disk is either
            unfinished.unlink(missing_ok=True)
            raise UserError(f"cannot write {self._path} ({error}); is the disk full?") from None
        unfinished.replace(self._path)

    def _load(self) -> None:
        try:
            state = torch.load(self._path, weights_only=True)
            identity = state["of"]
        except Exception as error:  # whatever pickle and zip make of a foreign file
            raise UserError(
                f"{self._path} is not a training state ({error}); move it away to start afresh"
            ) from None
        if identity != self._identity():
            raise UserError(
                f"{self._path} is the state of a training with another corpus, other options or "
                "another start; choose another folder, or delete it to start afresh"
            )
        with torch.no_grad():
            for name, weight in self.weights.items():
                weight.copy_(state["weights"][name])
        self._optimizers.load(state["optimizers"])
        self._score = Score(**state["score"])
        self._step, self._seconds = state["step"], state["seconds"]

    def _identity(self) -> dict[str, Any]:
        """What a state fits. The number of threads may change."""
        options = asdict(self._options)
        del options["threads"]
        tokens = sum(len(c.tokens) for batch in self._batches for c in batch)
        vocabulary = (len(self._vocabulary), int(self._vocabulary.sum()))
        return {
            "options": options,
            "tokens": tokens,
            "vocabulary": vocabulary,
            "start": self._start,
        }


def _digest(weights: Mapping[str, Tensor]) -> int:
    digest = 0
    for name in sorted(weights):
        digest = zlib.crc32(weights[name].contiguous().numpy().data, digest)
    return digest


def plan_batches(
    conversations: Sequence[Conversation], options: TrainingOptions
) -> list[list[Conversation]]:
    """All batches of a run, in order: every epoch in another order, the last perhaps in part."""
    usable = [c for c in conversations if len(c.tokens) > max(c.prompt_length, 1)]
    if not usable:
        raise UserError("the corpus holds no conversation with an answer, so nothing to learn from")
    rng = np.random.default_rng(options.seed)
    batches: list[list[Conversation]] = []
    for epoch in range(math.ceil(options.epochs)):
        order = rng.permutation(len(usable))
        share = min(options.epochs - epoch, 1.0)
        chosen = [usable[i] for i in order[: math.ceil(share * len(usable))]]
        batches += group(chosen, options.batch_tokens)
    return batches


@contextlib.contextmanager
def _worker_threads(count: int | None) -> Iterator[ThreadPoolExecutor]:
    """Threads each of whose operations are single-threaded; see `gradients`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(
            count or before, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            yield pool
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that a step is finished and the state saved."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    signals = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stopped.set()) for number in signals]
    try:
        yield stopped
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
