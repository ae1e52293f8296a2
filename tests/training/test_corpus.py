from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from slipstream.errors import UserError
from slipstream.training.corpus import (
    FEATURES,
    HELD_OUT_EVERY,
    PROMPTS_PER_SHARD,
    Corpus,
    ShardWriter,
    held_out,
    missing_shards,
)
from slipstream.training.vocabulary import choose_vocabulary, coverage

HIDDEN = 6


def write(folder: Path, shard: int, prompts: list[int]) -> dict[int, tuple[list[int], np.ndarray]]:
    rng = np.random.default_rng(shard)
    writer = ShardWriter(folder, shard, len(prompts))
    written = {}
    for prompt in prompts:
        assert not writer.full
        tokens = rng.integers(0, 40, int(rng.integers(5, 9))).astype(np.int32)
        features = rng.standard_normal((len(tokens), FEATURES * HIDDEN)).astype(np.float32)
        writer.add(tokens, 3, prompt, features)
        written[prompt] = (tokens.tolist(), features)
    assert writer.full
    assert writer.conversations == len(prompts)
    writer.close()
    return written


def test_conversations_come_back_as_they_were_written(tmp_path: Path) -> None:
    written = write(tmp_path, 0, [2, 0, 1]) | write(tmp_path, 1, [64, 66, 65])
    corpus = Corpus(tmp_path)
    assert corpus.hidden_size == HIDDEN
    assert [c.prompt for c in corpus.training] == [1, 2, 64, 65, 66]
    assert [c.prompt for c in corpus.held_out] == [0]
    for conversation in corpus.training + corpus.held_out:
        tokens, features = written[conversation.prompt]
        assert conversation.tokens.tolist() == tokens
        assert conversation.prompt_length == 3
        rounded = torch.from_numpy(features).bfloat16()
        bits = torch.from_numpy(conversation.features()).view(torch.bfloat16)
        assert torch.equal(bits, rounded)


def test_missing_shards_are_those_not_written(tmp_path: Path) -> None:
    prompts: list[list[int]] = [[0]] * (3 * PROMPTS_PER_SHARD + 1)
    assert missing_shards(tmp_path, prompts) == [0, 1, 2, 3]
    written = write(tmp_path, 1, [*range(PROMPTS_PER_SHARD, 2 * PROMPTS_PER_SHARD)])
    for number, (tokens, _) in written.items():
        prompts[number] = tokens[:3]
    assert missing_shards(tmp_path, prompts) == [0, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["shard-00001.safetensors"]


def test_a_last_shard_of_fewer_prompts_is_missing_once_there_are_more(tmp_path: Path) -> None:
    written = write(tmp_path, 0, [0, 1])
    prompts = [tokens[:3] for tokens, _ in written.values()]
    assert missing_shards(tmp_path, prompts) == []
    assert missing_shards(tmp_path, prompts[:1]) == []
    assert missing_shards(tmp_path, [*prompts, [7]]) == [0]


def test_answers_to_other_prompts_are_refused(tmp_path: Path) -> None:
    write(tmp_path, 0, [0, 1])
    with pytest.raises(UserError, match="answers other prompts"):
        missing_shards(tmp_path, [[41], [42]])


def test_a_shard_that_cannot_be_written_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(tensors: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr("slipstream.training.corpus.save_file", full)
    with pytest.raises(UserError, match="No space left"):
        write(tmp_path, 0, [0])
    assert not list(tmp_path.iterdir())


def test_an_unfinished_shard_is_not_there(tmp_path: Path) -> None:
    ShardWriter(tmp_path / "new", 0, 2).add(
        np.zeros(4, np.int32), 2, 0, np.zeros((4, FEATURES * HIDDEN), np.float32)
    )
    assert missing_shards(tmp_path / "new", [[1]]) == [0]


def test_held_out_prompts_are_few_and_regular() -> None:
    assert [prompt for prompt in range(101) if held_out(prompt)] == [0, 50, 100]
    assert HELD_OUT_EVERY == 50


def test_no_corpus_is_an_error_for_people(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no shard"):
        Corpus(tmp_path)


def test_a_broken_shard_is_an_error_for_people(tmp_path: Path) -> None:
    write(tmp_path, 0, [0, 1])
    path = tmp_path / "shard-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        Corpus(tmp_path)


def test_the_vocabulary_holds_the_most_frequent_tokens_of_answers(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path, 0, 1)
    tokens = np.array([9, 9, 9, 7, 7, 8, 4, 4, 4], np.int32)
    writer.add(tokens, 3, 1, np.zeros((9, FEATURES * HIDDEN), np.float32))
    writer.close()
    conversations = Corpus(tmp_path).training
    chosen = choose_vocabulary(conversations, 3, 20)
    assert chosen.dtype == np.int32
    assert chosen.tolist() == [4, 7, 8]
    assert coverage(conversations, chosen) == 1.0
    assert choose_vocabulary(conversations, 3, 20, always=[15]).tolist() == [4, 7, 15]
    assert coverage(conversations, np.array([4])) == pytest.approx(0.5)
    assert choose_vocabulary(conversations, 6, 20).tolist() == [0, 1, 4, 7, 8, 9]
