"""The target answers the training prompts, some of which it writes itself, and what a drafter
learns from is kept.

Tokens and features come from the engine's own steps, so a drafter is trained on exactly what it
will see when it serves: the same kernels, the same rounding.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.engine import Engine
from slipstream.engine.load import kv_memory_of, load_target
from slipstream.engine.messages import Submit
from slipstream.engine.options import EngineOptions
from slipstream.engine.params import SamplingParams
from slipstream.errors import UserError
from slipstream.kernels import choose_kernels
from slipstream.models.chat_template import ChatTemplateError
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.tokenizer import Tokenizer, load_tokenizer
from slipstream.speculation.ngram import NgramDrafter
from slipstream.training.corpus import FEATURES, PROMPTS_PER_SHARD, ShardWriter, missing_shards
from slipstream.training.prompts import TrainingPrompt

Messages = Sequence[dict[str, str]]

_OPEN_END = "\u2042"  # what a template leaves as it is, and nobody writes

IN_FLIGHT = 96  # conversations; enough to keep the products busy
TEMPERATURES = (0.0, 0.0, 0.6, 0.0, 0.9)  # of the answers, in turns
WRITTEN_TOKENS = 192  # at most, of what the target adds to a prompt
WRITING_TEMPERATURES = (0.8, 1.0, 0.9)


@dataclass(frozen=True, slots=True)
class Generated:
    """How far the corpus is."""

    conversations: int
    total: int
    tokens: int  # of this run, prompts included
    seconds: float  # of this run


def prompt_tokens(tokenizer: Tokenizer, messages: Messages, room: int) -> list[int]:
    """Token ids of a prompt, by the chat template if there is one; what is longer than ``room``
    loses its beginning. Raises ``UserError`` if there is no room, or for what is no message."""
    if room < 1:
        raise UserError(
            "such long answers leave this model no room for prompts; allow fewer tokens"
        )
    try:
        if tokenizer.has_chat_template:
            tokens = tokenizer.apply_chat_template(messages)
        else:
            tokens = tokenizer.encode("\n\n".join(message["content"] for message in messages))
    except (ChatTemplateError, KeyError, TypeError) as error:
        raise UserError(f"the prompt {str(messages)[:100]} cannot be asked: {error}") from None
    return tokens[-room:]


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """Token ids of a chat around the place where its last message goes on."""

    before: list[int]
    after: list[int]

    @classmethod
    def of(cls, tokenizer: Tokenizer, messages: Messages, room: int) -> "OpenPrompt":
        """Raises ``UserError`` if both do not fit into ``room``, or for what cannot be asked."""
        if tokenizer.has_chat_template:
            last = {**messages[-1], "content": messages[-1]["content"] + _OPEN_END}
            try:
                text = tokenizer.render_chat([*messages[:-1], last])
            except ChatTemplateError as error:
                raise UserError(f"this model cannot write prompts itself: {error}") from None
            before, _, after = text.partition(_OPEN_END)
            prompt = cls(
                tokenizer.encode(before, add_special_tokens=False),
                tokenizer.encode(after, add_special_tokens=False),
            )
        else:
            # Without any word to begin with there is at least what begins every text.
            text = "\n\n".join(message["content"] for message in messages)
            prompt = cls(tokenizer.encode(text) or tokenizer.encode("\n"), [])
        if len(prompt.before) + len(prompt.after) > room:
            raise UserError(
                "this model has no room for prompts that it writes itself and such long answers; "
                "give --self-written 0, or allow fewer tokens"
            )
        return prompt


class CorpusGenerator:
    """Fills the shards that a corpus lacks. Killed at any time it goes on with the next one."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: EngineOptions,
        feature_layers: Sequence[int],
        folder: Path,
        answer_tokens: int,
    ) -> None:
        layers = (*feature_layers, checkpoint.config.num_layers)
        kernels = choose_kernels(options.threads)
        model, pages = load_target(options, checkpoint, kernels, kv_memory_of(options), layers)
        self._tokenizer = load_tokenizer(checkpoint)
        self._folder = folder
        self._answer_tokens = answer_tokens
        self._bytes_per_token = 4 + 2 * FEATURES * checkpoint.config.hidden_size
        self._model = model
        self._shards: dict[int, ShardWriter] = {}
        self._prompt_lengths: dict[int, int] = {}  # of those that are answered
        self._begun: dict[int, Messages] = {}  # those that are written
        self._to_answer: list[tuple[int, list[int]]] = []
        self._tokens = 0
        self._engine = Engine(
            model,
            NgramDrafter(),
            pages=pages,
            max_running_requests=options.max_running_requests,
            max_step_rows=options.max_step_rows,
            on_finish=self._finished,
        )

    def run(
        self,
        prompts: Sequence[TrainingPrompt],
        disk_bytes: int,
        report: Callable[[Generated], None],
    ) -> None:
        """Answer the prompts whose shard is not there, as many as ``disk_bytes`` hold for sure.

        ``report`` is called at the start and after every shard. Raises ``UserError`` if there is
        room for none, or the folder has answers to others.
        """
        started = time.perf_counter()
        tokens = self._tokenize(prompts, disk_bytes)
        done = len(tokens)
        waiting: list[int] = []
        for shard in reversed(missing_shards(self._folder, tokens)):
            first = shard * PROMPTS_PER_SHARD
            members = range(first, min(first + PROMPTS_PER_SHARD, len(tokens)))
            done -= len(members)
            waiting += reversed(members)
            self._shards[shard] = ShardWriter(self._folder, shard, len(members))
        report(Generated(done, len(tokens), 0, 0.0))
        while waiting or self._to_answer or self._engine.busy:
            while self._to_answer:
                self._answer(*self._to_answer.pop())
            while waiting and len(self._prompt_lengths) + len(self._begun) < IN_FLIGHT:
                index = waiting.pop()
                if prompts[index].begun:
                    self._write(index, prompts[index].messages, tokens[index])
                else:
                    self._answer(index, tokens[index])
            self._engine.step()
            for shard in [shard for shard, writer in self._shards.items() if writer.full]:
                writer = self._shards.pop(shard)
                done += writer.conversations
                writer.close()
                seconds = time.perf_counter() - started
                report(Generated(done, len(tokens), self._tokens, seconds))

    def _tokenize(self, prompts: Sequence[TrainingPrompt], disk_bytes: int) -> list[list[int]]:
        """Token ids of the prompts that fit the disk if every answer is as long as it may be."""
        tokenized: list[list[int]] = []
        for prompt in prompts:
            if prompt.begun:
                tokens = self._open(prompt.messages).before
            else:
                tokens = prompt_tokens(self._tokenizer, prompt.messages, self._room)
            added = self._answer_tokens + WRITTEN_TOKENS * prompt.begun
            disk_bytes -= (len(tokens) + added) * self._bytes_per_token
            if disk_bytes < 0:
                break
            tokenized.append(tokens)
        if not tokenized:
            raise UserError(
                f"the disk space given holds not even one answer of {self._answer_tokens} tokens; "
                "give --disk more"
            )
        return tokenized

    @property
    def _room(self) -> int:
        return self._model.max_model_len - self._answer_tokens

    def _open(self, messages: Messages) -> OpenPrompt:
        return OpenPrompt.of(self._tokenizer, messages, self._room - WRITTEN_TOKENS)

    def _write(self, index: int, messages: Messages, tokens: list[int]) -> None:
        self._begun[index] = messages
        temperature = WRITING_TEMPERATURES[index % len(WRITING_TEMPERATURES)]
        self._submit(index, tokens, temperature, WRITTEN_TOKENS)

    def _answer(self, index: int, tokens: list[int]) -> None:
        self._prompt_lengths[index] = len(tokens)
        temperature = TEMPERATURES[index % len(TEMPERATURES)]
        self._submit(index, tokens, temperature, self._answer_tokens)

    def _submit(self, index: int, tokens: list[int], temperature: float, max_tokens: int) -> None:
        params = SamplingParams(
            max_tokens=max_tokens,
            temperature=temperature,
            seed=index,
            stop_token_ids=self._tokenizer.eos_token_ids,
        )
        self._engine.submit(Submit(index, tokens, params))

    def _finished(self, index: int, tokens: NDArray[np.int32], slots: NDArray[np.int32]) -> None:
        if index in self._begun:
            # As tokens, not as text: joined text might begin with other tokens.
            after = self._open(self._begun.pop(index)).after
            self._to_answer.append((index, tokens.tolist() + after))
            return
        features = self._model.read_features(slots)
        self._tokens += len(tokens)
        self._shards[index // PROMPTS_PER_SHARD].add(
            tokens, self._prompt_lengths.pop(index), index, features.reshape(len(tokens), -1)
        )
