"""The corpus on disk: conversations of the target, with the features that a drafter learns from.

A folder of shards. Shard k holds the answers to prompts ``k * PROMPTS_PER_SHARD`` and following.
It appears whole or not at all, so whoever fills a corpus goes on with the shards that are missing.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from slipstream.errors import UserError

PROMPTS_PER_SHARD = 64
FEATURES = 4  # three for the drafter's input, then what leaves the target's last layer
HELD_OUT_EVERY = 50

_TENSORS = ("tokens", "lengths", "prompt_lengths", "prompts", "features")

Int32 = NDArray[np.int32]


def held_out(prompt: int) -> bool:
    """Whether the answer to this prompt is kept for evaluation, never trained on."""
    return prompt % HELD_OUT_EVERY == 0


def missing_shards(folder: Path, prompts: Sequence[Sequence[int]]) -> list[int]:
    """Numbers of the shards that do not answer all they should of these prompts (token ids, of a
    prompt that the target goes on writing those of its beginning).

    Raises ``UserError`` for a shard that answers other prompts.
    """
    missing = []
    for shard, first in enumerate(range(0, len(prompts), PROMPTS_PER_SHARD)):
        path = _shard_path(folder, shard)
        wanted = prompts[first : first + PROMPTS_PER_SHARD]
        held = _read_shard(path) if path.exists() else []
        for answer, prompt in zip(held, wanted, strict=False):
            # Of a prompt that the target went on writing only the beginning is known.
            if answer.tokens[: len(prompt)].tolist() != list(prompt):
                raise UserError(
                    f"{path} answers other prompts than these; name another folder, or delete "
                    f"{folder} to answer these"
                )
        if len(held) < len(wanted):  # the last one, when there were fewer prompts
            missing.append(shard)
    return missing


class ShardWriter:
    """Collects the conversations of one shard, ``total`` of them, in any order.

    Raises ``UserError`` if the shard cannot be written.
    """

    def __init__(self, folder: Path, shard: int, total: int) -> None:
        self._path = _shard_path(folder, shard)
        self._total = total
        self._parts: list[tuple[int, int, Int32, NDArray[np.uint16]]] = []

    @property
    def conversations(self) -> int:
        """How many were added."""
        return len(self._parts)

    @property
    def full(self) -> bool:
        """Whether all are there."""
        return len(self._parts) == self._total

    def add(
        self, tokens: Int32, prompt_length: int, prompt: int, features: NDArray[np.float32]
    ) -> None:
        """Add the answer to one prompt: tokens ``[N]``, of which the first ``prompt_length`` are
        the prompt's, and float32 features ``[N, FEATURES * hidden]``."""
        self._parts.append((prompt, prompt_length, tokens, _bfloat16_bits(features)))

    def close(self) -> None:
        """Write the shard, in the order of its prompts."""
        parts = sorted(self._parts, key=lambda part: part[0])
        tensors: dict[str, NDArray[Any]] = {
            "tokens": np.concatenate([part[2] for part in parts]).astype(np.int32),
            "lengths": np.array([len(part[2]) for part in parts], dtype=np.int32),
            "prompt_lengths": np.array([part[1] for part in parts], dtype=np.int32),
            "prompts": np.array([part[0] for part in parts], dtype=np.int32),
            "features": np.concatenate([part[3] for part in parts]),
        }
        self._parts.clear()
        unfinished = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, unfinished)
            unfinished.replace(self._path)
        except (OSError, SafetensorError) as error:
            unfinished.unlink(missing_ok=True)
            raise UserError(f"cannot write {self._path}: {error}") from None


@dataclass(frozen=True, slots=True, eq=False)
class Conversation:
    """Tokens of one conversation, and where its features are."""

    prompt: int
    prompt_length: int
    tokens: Int32
    path: Path
    offset: int  # in bytes
    width: int  # of one token's features

    def features(self) -> NDArray[np.uint16]:
        """Bits of bfloat16 values ``[N, FEATURES * hidden]``, read from disk."""
        count = len(self.tokens) * self.width
        values: NDArray[np.uint16] = np.fromfile(self.path, "<u2", count, offset=self.offset)
        return values.reshape(-1, self.width)


class Corpus:
    """All conversations of a folder, by prompt. Features stay on disk until they are asked for.

    Raises ``UserError`` if there is none, or a shard is broken.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        paths = sorted(folder.glob("shard-*.safetensors"))
        if not paths:
            raise UserError(f"{folder} holds no shard of a corpus; generate one first")
        conversations = [conversation for path in paths for conversation in _read_shard(path)]
        widths = {conversation.width for conversation in conversations}
        if len(widths) > 1:
            raise UserError(
                f"the shards in {folder} hold features of {sorted(widths)} values, so they are "
                "of several targets; generate the corpus again in an empty folder"
            )
        self.hidden_size = widths.pop() // FEATURES
        self.training = [c for c in conversations if not held_out(c.prompt)]
        self.held_out = [c for c in conversations if held_out(c.prompt)]


def _shard_path(folder: Path, shard: int) -> Path:
    return folder / f"shard-{shard:05d}.safetensors"


def _read_shard(path: Path) -> list[Conversation]:
    shapes, offsets = _layout(path)

    def read(name: str) -> Int32:
        return np.fromfile(path, "<i4", shapes[name][0], offset=offsets[name])

    tokens, lengths = read("tokens"), read("lengths")
    if lengths.sum() != len(tokens) or shapes["features"][0] != len(tokens):
        raise UserError(f"{path} is inconsistent: its lengths do not add up; generate it again")
    ends = np.cumsum(lengths)
    width = shapes["features"][1]
    return [
        Conversation(
            prompt=int(prompt),
            prompt_length=int(prompt_length),
            tokens=tokens[end - length : end],
            path=path,
            offset=offsets["features"] + int(end - length) * 2 * width,
            width=width,
        )
        for prompt, prompt_length, length, end in zip(
            read("prompts"), read("prompt_lengths"), lengths, ends, strict=True
        )
    ]


def _layout(path: Path) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    """Shape of each tensor, and at which byte of the file it begins."""
    try:
        with safe_open(path, "numpy"), path.open("rb") as file:  # the library checks every bound
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(
            f"{path} is not a whole safetensors file ({error}); generate it again"
        ) from None
    if missing := [name for name in _TENSORS if name not in header]:
        raise UserError(f"{path} lacks {missing[0]}, so it is no shard of a corpus")
    for name in _TENSORS:
        kind = "U16" if name == "features" else "I32"
        if header[name]["dtype"] != kind:
            raise UserError(f"{path} stores {name} as {header[name]['dtype']}; it should be {kind}")
    return (
        {name: tuple(header[name]["shape"]) for name in _TENSORS},
        {name: 8 + size + header[name]["data_offsets"][0] for name in _TENSORS},
    )


def _bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Finite values rounded to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits + (0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
