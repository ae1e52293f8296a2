"""From a target to a drafter: the corpus, the training, the measuring. Each part resumes."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
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
from slipstream.speculation.eagle3.checkpoint import write_drafter
from slipstream.speculation.eagle3.config import Eagle3Config
from slipstream.training import trainer
from slipstream.training.corpus import Corpus, held_out
from slipstream.training.evaluate import acceptance_table, evaluate, plot_acceptance
from slipstream.training.generate import CorpusGenerator, Generated
from slipstream.training.model_card import Making, model_card
from slipstream.training.prompts import TrainingPrompt, written_prompts
from slipstream.training.target import TargetTensors
from slipstream.training.trainer import TrainingOptions
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
    conversations: int
    answer_tokens: int
    disk_bytes: int
    draft_vocab_size: int
    training: TrainingOptions


class Pipeline:
    """The parts, in the order in which they are run. Raises ``UserError`` for what cannot be."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._console = Console()
        self._corpus = plan.folder / "corpus"
        self._drafter = plan.folder / "drafter"

    @cached_property
    def _checkpoint(self) -> Checkpoint:
        return open_checkpoint(self._plan.model)

    @cached_property
    def _prompts(self) -> list[TrainingPrompt]:
        if not self._plan.prompts:
            return written_prompts()[: self._plan.conversations]
        read = [
            TrainingPrompt(file.stem, prompt)
            for file in self._plan.prompts
            for prompt in load_prompts(str(file))
        ]
        return read[: self._plan.conversations]

    def generate(self) -> None:
        """Have the target answer the prompts, where that has not been done."""
        layers = self._config(self._plan.draft_vocab_size).layers_for(
            self._checkpoint.config.num_layers
        )
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

            messages = [prompt.messages for prompt in self._prompts]
            generator.run(messages, self._plan.disk_bytes, report)

    def train(self) -> None:
        """Train on the corpus and write the drafter."""
        import torch

        corpus, target = Corpus(self._corpus), TargetTensors.of(self._checkpoint)
        config = self._config(self._plan.draft_vocab_size)
        ends = load_tokenizer(self._checkpoint).eos_token_ids
        vocabulary = choose_vocabulary(
            corpus.training, config.draft_vocab_size, config.vocab_size, ends
        )
        seconds = 0.0
        with self._bar("training") as bar:
            task = bar.add_task("", total=None, text="")

            def report(progress: trainer.Progress) -> None:
                nonlocal seconds
                seconds = progress.seconds
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
            )
        if seconds:  # else it was trained before
            shutil.rmtree(self._drafter, ignore_errors=True)
            tensors = {name: weight.numpy() for name, weight in weights.items()}
            write_drafter(self._drafter, config, tensors, vocabulary)
            making = self._making(corpus, coverage(corpus.held_out, vocabulary), seconds)
            (self._plan.folder / _MAKING).write_bytes(msgspec.json.encode(making))

    def evaluate(self) -> None:
        """Measure acceptance on held-out prompts; the drafter's model card gets the figures."""
        if not self._drafter.exists():
            raise UserError(f"there is no drafter in {self._drafter} yet; train it first")
        prompts = [p for i, p in enumerate(self._prompts) if held_out(i)]
        engine, _ = load_engine(self._options(str(self._drafter)))
        with self._bar("held-out prompts") as bar:
            task = bar.add_task("", total=len(prompts), text="")
            results = evaluate(
                engine,
                load_tokenizer(self._checkpoint),
                [(prompt.kind, prompt.messages) for prompt in prompts],
                EVALUATED_TREE,
                self._plan.answer_tokens,
                lambda kind: bar.advance(task),
            )
        self._console.print(acceptance_table(results, EVALUATED_TREE.num_steps))
        plot_acceptance(results, EVALUATED_TREE.num_steps, self._plan.folder / "acceptance.svg")
        making = msgspec.json.decode((self._plan.folder / _MAKING).read_bytes(), type=Making)
        card = model_card(making, results, EVALUATED_TREE)
        (self._drafter / "README.md").write_text(card, encoding="utf-8")
        self._console.print(f"The drafter is in {self._drafter}, the plot in {self._plan.folder}.")

    def _making(self, corpus: Corpus, covered: float, seconds: float) -> Making:
        plan, conversations = self._plan, [*corpus.training, *corpus.held_out]
        files = " ".join(f"--prompts {file}" for file in plan.prompts)
        command = f"slipstream train {plan.model} --out DIR --conversations {plan.conversations}"
        return Making(
            target=self._checkpoint.name,
            command=f"{command} --epochs {plan.training.epochs:g} {files}".strip(),
            prompts="prompts of their own" if plan.prompts else "prompts written for this",
            conversations=len(conversations),
            tokens=sum(len(c.tokens) for c in conversations),
            draft_vocab_size=plan.draft_vocab_size,
            coverage=covered,
            levels=plan.training.levels,
            epochs=plan.training.epochs,
            seconds=seconds,
            threads=plan.training.threads or cores(),
            machine=cpu_model(),
        )

    def _config(self, draft_vocab_size: int) -> Eagle3Config:
        return Eagle3Config.for_target(self._checkpoint.config, draft_vocab_size)

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
