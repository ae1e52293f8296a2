"""From a target to a drafter: the corpus, the training, the measuring. Each part resumes."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from slipstream.bench.prompt_sets import load_prompts
from slipstream.engine.load import load_engine
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import TreeShape
from slipstream.errors import UserError
from slipstream.machine import cores, cpu_model
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.tokenizer import load_tokenizer
from slipstream.speculation.eagle3.checkpoint import (
    Eagle3Checkpoint,
    open_drafter,
    write_drafter,
)
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training import trainer
from slipstream.training.corpus import Corpus
from slipstream.training.evaluate import acceptance_table, evaluate, plot_acceptance
from slipstream.training.generate import CorpusGenerator, Generated
from slipstream.training.model_card import Making, model_card
from slipstream.training.options import TrainingOptions
from slipstream.training.prompts import TrainingPrompt, begun_prompts, written_prompts
from slipstream.training.target import TargetTensors
from slipstream.training.vocabulary import choose_vocabulary, coverage

EVALUATED_TREE = TreeShape(num_steps=4, topk=4, num_draft_tokens=16)
MOST_RUNNING = 96
_MAKING = "making.json"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is asked for."""

    model: str
    folder: Path
    prompts: Sequence[Path]
    conversations: int  # answers to prompts that are given
    self_written: int  # conversations whose prompt the target writes, too
    answer_tokens: int
    disk_bytes: int
    draft_vocab_size: int
    training: TrainingOptions
    corpus: Path | None = None  # else in the folder
    start: str | None = None  # a drafter to go on from


class Pipeline:
    """The parts, in the order in which they are run. Raises ``UserError`` for what cannot be."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._console = Console()
        self._corpus = plan.corpus or plan.folder / "corpus"
        self._drafter = plan.folder / "drafter"

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return open_checkpoint(self._plan.model)

    @cached_property
    def _prompts(self) -> list[TrainingPrompt]:
        given = [
            TrainingPrompt(file.stem, prompt)
            for file in self._plan.prompts
            for prompt in load_prompts(str(file))
        ]
        asked = given or written_prompts()
        return asked[: self._plan.conversations] + begun_prompts(self._plan.self_written)

    def generate(self) -> None:
        """Have the target answer the prompts, where that has not been done."""
        self._check_start()
        target_layers = self._checkpoint.config.num_layers
        layers = self._config.layers_for(target_layers)
        if min(layers) < 0 or max(layers) > target_layers:
            raise UserError(
                f"a drafter reads what enters the layers {', '.join(map(str, layers))} of a model "
                f"with {target_layers} layers; models of 3 or more layers can have one"
            )
        self._make_folder()
        generator = CorpusGenerator(
            self._checkpoint, self._options("ngram"), layers, self._corpus, self._plan.answer_tokens
        )
        with self._bar("answers") as bar:
            task = bar.add_task("", total=None, text="")

            def report(generated: Generated) -> None:
                speed = generated.tokens / max(generated.seconds, 1e-9)
                bar.update(
                    task,
                    completed=generated.conversations,
                    total=generated.total,
                    text=f"{generated.conversations} of {generated.total}, {speed:.0f} tok/s",
                )

            generator.run(self._prompts, self._plan.disk_bytes, report)

    def train(self) -> None:
        """Train on the corpus and write the drafter."""
        import torch

        corpus, target = Corpus(self._corpus), TargetTensors.of(self._checkpoint)
        config, weights = self._config, None
        if start := self._start:
            vocabulary = start.target_ids
            weights = {n: torch.from_numpy(start.weight(n).float32()) for n in start.shapes}
        else:
            ends = load_tokenizer(self._checkpoint).eos_token_ids
            vocabulary = choose_vocabulary(
                corpus.training, config.draft_vocab_size, config.vocab_size, ends
            )
        # Kernels of torch turn gradients off in the whole process.
        with self._bar("training") as bar:
            task = bar.add_task("", total=None, text="")

            def report(progress: trainer.Progress) -> None:
                bar.update(task, completed=progress.tokens, total=progress.total)
                bar.update(task, text=_progress_text(progress))

            weights = trainer.train(
                corpus,
                target,
                config,
                torch.from_numpy(vocabulary).long(),
                self._plan.training,
                self._plan.folder,
                report,
                weights,
            )
        state = torch.load(self._plan.folder / trainer.STATE_FILE, weights_only=True, mmap=True)
        making = self._making(corpus, coverage(corpus.held_out, vocabulary), state["seconds"])
        # Also if there was nothing left to train: the run that did may have been killed here.
        unfinished = self._drafter.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        tensors = {name: weight.numpy() for name, weight in weights.items()}
        write_drafter(unfinished, config, tensors, vocabulary)
        shutil.rmtree(self._drafter, ignore_errors=True)
        (self._plan.folder / _MAKING).write_bytes(msgspec.json.encode(making))
        unfinished.replace(self._drafter)

    def evaluate(self) -> None:
        """Measure acceptance on held-out prompts; the drafter's model card gets the figures."""
        if not (self._drafter.exists() and (self._plan.folder / _MAKING).exists()):
            raise UserError(f"there is no drafter in {self._drafter} yet; train it first")
        answer_tokens = self._plan.answer_tokens
        prompts = [
            (self._prompts[c.prompt].kind, c.tokens[: c.prompt_length].tolist())
            for c in Corpus(self._corpus).held_out
            if c.prompt < len(self._prompts)
        ]
        engine, _ = load_engine(self._options(str(self._drafter)))
        with self._bar("held-out prompts") as bar:
            task = bar.add_task("", total=len(prompts), text="")
            results = evaluate(
                engine,
                prompts,
                EVALUATED_TREE,
                answer_tokens,
                load_tokenizer(self._checkpoint).eos_token_ids,
                lambda kind: bar.advance(task),
            )
        self._console.print(acceptance_table(results, EVALUATED_TREE.num_steps))
        plot_acceptance(results, EVALUATED_TREE.num_steps, self._plan.folder / "acceptance.svg")
        making = msgspec.json.decode((self._plan.folder / _MAKING).read_bytes(), type=Making)
        card = model_card(making, results, EVALUATED_TREE)
        (self._drafter / "README.md").write_text(card, encoding="utf-8")
        self._console.print(f"The drafter is in {self._drafter}, the plot in {self._plan.folder}.")

    def _check_start(self) -> None:
        """Raises ``UserError`` if there is no going on from the drafter."""
        if not self._start:
            return
        config, ours = asdict(self._start.config), asdict(self._config)
        unlike = [
            f"{name} {config[name]}, not {ours[name]}"
            for name in ours
            if config[name] != ours[name]
        ]
        if unlike or "embed_tokens.weight" in self._start.shapes:
            what = "; ".join(unlike) or "an embedding of its own"
            raise UserError(
                f"cannot go on from {self._start.name}: it has {what}; give a drafter that this "
                "command made for this model"
            )

    def _make_folder(self) -> None:
        try:
            self._plan.folder.mkdir(parents=True, exist_ok=True)
            self._corpus.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"cannot write into {self._plan.folder}: {error.strerror}") from None

    def _making(self, corpus: Corpus, covered: float, seconds: float) -> Making:
        plan, conversations = self._plan, [*corpus.training, *corpus.held_out]
        files = " ".join(f"--prompts {file}" for file in plan.prompts)
        numbers = {
            "conversations": plan.conversations,
            "self-written": plan.self_written,
            "answer-tokens": plan.answer_tokens,
            "draft-vocabulary": plan.draft_vocab_size,
            "levels": plan.training.levels,
            "epochs": plan.training.epochs,
            "learning-rate": plan.training.learning_rate,
            "batch-tokens": plan.training.batch_tokens,
            "seed": plan.training.seed,
        }
        options = " ".join(f"--{name} {number}" for name, number in numbers.items())
        start = f"--start {plan.start}" if plan.start else ""
        command = " ".join(
            f"slipstream train {plan.model} --out DIR {options} {start} {files}".split()
        )
        return Making(
            target=self._checkpoint.name,
            command=command,
            prompts=_prompts_text(plan),
            conversations=len(conversations),
            tokens=sum(len(c.tokens) for c in conversations),
            draft_vocab_size=self._config.draft_vocab_size,
            coverage=covered,
            levels=plan.training.levels,
            epochs=plan.training.epochs,
            seconds=seconds,
            threads=plan.training.threads or cores(),
            machine=cpu_model(),
        )

    @cached_property
    def _start(self) -> Eagle3Checkpoint | None:
        return open_drafter(self._plan.start) if self._plan.start else None

    @cached_property
    def _config(self) -> Eagle3Config:
        start = self._start
        size = start.config.draft_vocab_size if start else self._plan.draft_vocab_size
        return Eagle3Config.for_target(self._checkpoint.config, size)

    def _options(self, drafter: str) -> EngineOptions:
        return EngineOptions(
            model=self._plan.model,
            drafter=drafter,
            max_running_requests=MOST_RUNNING,
            threads=self._plan.training.threads,
        )

    def _bar(self, what: str) -> Progress:
        return Progress(
            TextColumn(what),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}"),
            console=self._console,
        )


def _progress_text(progress: trainer.Progress) -> str:
    shares = " ".join(f"{share:.2f}" for share in progress.top1)
    return (
        f"loss {progress.loss:.3f}, right by level {shares}, "
        f"{progress.seconds_left / 60:.0f} min left"
    )


def _prompts_text(plan: Plan) -> str:
    asked = "prompts of their own" if plan.prompts else "prompts written for this"
    if not plan.self_written:
        return asked
    return f"{asked} and {plan.self_written} that the target wrote itself"
