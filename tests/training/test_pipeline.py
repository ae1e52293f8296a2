"""The whole of ``slipstream train`` on a tiny model, stopped and resumed."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from slipstream.cli import main
from slipstream.speculation.eagle3.checkpoint import open_drafter
from slipstream.training import pipeline
from slipstream.training.corpus import Corpus
from slipstream.training.generate import CorpusGenerator
from tests.models.tiny import make_tiny

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "while",
    "seven",
    "old",
    "wizards",
    "brew",
    "tea",
]
CONVERSATIONS = 150
SELF_WRITTEN = 60


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = [
        json.dumps({"prompt": " ".join(WORDS[i % 7 : i % 7 + 3 + i % 5]) + f" {i}"})
        for i in range(CONVERSATIONS)
    ]
    file = tmp_path_factory.mktemp("prompts") / "mine.jsonl"
    file.write_text("\n".join(lines))
    return file


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["slipstream", "train", *map(str, arguments)])
    main()


def options(target: Path, out: Path, prompts: Path) -> list[object]:
    numbers = {
        "--conversations": CONVERSATIONS,
        "--self-written": 0,
        "--answer-tokens": 12,
        "--draft-vocabulary": 64,
        "--epochs": 1,
        "--batch-tokens": 512,
        "--threads": 1,
    }
    pairs = [part for pair in numbers.items() for part in pair]
    return [target, "--out", out, "--prompts", prompts, *pairs]


def test_from_nothing_to_a_model_card(
    tiny_llama: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*options(tiny_llama, tmp_path, prompts), "--self-written", SELF_WRITTEN]
    keep = CorpusGenerator._finished
    count = 0

    def stop_after_a_hundred(self: CorpusGenerator, *of_request: object) -> None:
        nonlocal count
        count += 1
        if count == 100:
            raise KeyboardInterrupt
        keep(self, *of_request)  # type: ignore[arg-type]

    monkeypatch.setattr(CorpusGenerator, "_finished", stop_after_a_hundred)
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, *arguments)
    assert stopped.value.code == 130
    assert "goes on" in capsys.readouterr().out
    (first,) = (tmp_path / "corpus").glob("shard-*")
    written = first.stat().st_mtime_ns

    monkeypatch.setattr(CorpusGenerator, "_finished", keep)
    with pytest.raises(SystemExit) as done:
        run(monkeypatch, *arguments)
    assert not done.value.code
    assert first.stat().st_mtime_ns == written, "what was there was not made again"
    corpus = Corpus(tmp_path / "corpus")
    conversations = corpus.training + corpus.held_out
    assert len(conversations) == CONVERSATIONS + SELF_WRITTEN
    its_own = [c for c in conversations if c.prompt >= CONVERSATIONS]
    assert len({tuple(c.tokens[: c.prompt_length]) for c in its_own}) > SELF_WRITTEN / 2

    drafter = open_drafter(str(tmp_path / "drafter"))
    assert drafter.config.draft_vocab_size == 64
    card = (tmp_path / "drafter" / "README.md").read_text()
    assert f"{CONVERSATIONS + SELF_WRITTEN} conversations" in card
    assert f"{SELF_WRITTEN} that the target wrote itself" in card
    assert "| mine |" in card and "| its own |" in card and "| all |" in card
    assert (tmp_path / "acceptance.svg").stat().st_size > 1000

    # Also what the target wrote is found to be there, down to its tokens.
    shards = {file: file.stat().st_mtime_ns for file in (tmp_path / "corpus").iterdir()}
    with pytest.raises(SystemExit) as again:
        run(monkeypatch, *arguments)
    assert not again.value.code
    assert shards == {file: file.stat().st_mtime_ns for file in (tmp_path / "corpus").iterdir()}

    capsys.readouterr()
    before = (tmp_path / "drafter" / "model.safetensors").stat().st_mtime_ns
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments, "--evaluate")
    assert "accepted length" in capsys.readouterr().out
    assert (tmp_path / "drafter" / "model.safetensors").stat().st_mtime_ns == before


def test_what_the_disk_cannot_hold_is_left_out(
    tiny_llama: Path, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = options(tiny_llama, tmp_path, prompts)
    with pytest.raises(SystemExit):
        run(monkeypatch, *arguments, "--disk", "1MiB")
    size = sum(file.stat().st_size for file in (tmp_path / "corpus").iterdir())
    assert size < 2**20
    assert 0 < len(Corpus(tmp_path / "corpus").training) < CONVERSATIONS


def test_there_is_nothing_to_evaluate(
    tiny_llama: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as refused:
        run(monkeypatch, *options(tiny_llama, tmp_path, prompts), "--evaluate")
    assert refused.value.code == 2
    assert "train it first" in capsys.readouterr().err


def test_killed_before_the_drafter_is_written(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On torch's kernels, without a chat template, and with a prompt too long for the model."""
    target, prompts, out = tmp_path / "target", tmp_path / "few.jsonl", tmp_path / "out"
    shutil.copytree(tiny_llama, target)
    (target / "chat_template.jinja").unlink()
    prompts.write_text("\n".join(json.dumps("fox " * n) for n in (3000, 1, 2)))
    monkeypatch.setenv("SLIPSTREAM_KERNELS", "torch")

    def killed(*of_drafter: object) -> None:
        raise KeyboardInterrupt

    write = pipeline.write_drafter
    monkeypatch.setattr(pipeline, "write_drafter", killed)
    arguments = [*options(target, out, prompts), "--self-written", 5]
    with pytest.raises(SystemExit) as stopped:
        run(monkeypatch, *arguments)
    assert stopped.value.code == 130
    monkeypatch.setattr(pipeline, "write_drafter", write)
    with pytest.raises(SystemExit) as done:
        run(monkeypatch, *arguments)
    assert not done.value.code
    assert open_drafter(str(out / "drafter")).config.draft_vocab_size == 64
    command = (out / "drafter" / "README.md").read_text()
    assert "--answer-tokens 12 --draft-vocabulary 64" in command


@pytest.mark.parametrize(
    ("layers", "out", "line", "more", "message"),
    [
        (2, "new", '"fox"', [], "models of 3 or more layers"),
        (3, "file/below", '"fox"', [], "cannot write into"),
        (3, "new", '{"messages": [{"text": "fox"}]}', [], "cannot be asked"),
        (3, "new", '"fox"', ["--answer-tokens", 4096], "no room for prompts"),
        (3, "new", '"fox"', ["--disk", "1KiB"], "give --disk more"),
    ],
)
def test_what_cannot_be_is_a_line_before_anything_is_done(
    layers: int,
    out: str,
    line: str,
    more: list[object],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_tiny("llama", tmp_path / "target", num_hidden_layers=layers)
    capsys.readouterr()  # its progress
    (tmp_path / "file").touch()
    (tmp_path / "one.jsonl").write_text(line)
    arguments = options(tmp_path / "target", tmp_path / out, tmp_path / "one.jsonl")
    with pytest.raises(SystemExit) as refused:
        run(monkeypatch, *arguments, *more)
    assert refused.value.code == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_going_on_from_a_drafter_with_the_same_answers(
    tiny_llama: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    with pytest.raises(SystemExit):
        run(monkeypatch, *options(tiny_llama, first, prompts), "--conversations", 40)
    before = open_drafter(str(first / "drafter"))
    shards = sorted(file.stat().st_mtime_ns for file in (first / "corpus").iterdir())

    more = ["--corpus", first / "corpus", "--seed", 1, "--draft-vocabulary", 99]
    arguments = [*options(tiny_llama, second, prompts), "--conversations", 40, *more]
    with pytest.raises(SystemExit) as done:
        run(monkeypatch, *arguments, "--start", first / "drafter")
    assert not done.value.code
    after = open_drafter(str(second / "drafter"))
    assert after.target_ids.tolist() == before.target_ids.tolist()
    assert not (second / "corpus").exists()
    assert shards == sorted(file.stat().st_mtime_ns for file in (first / "corpus").iterdir())
    weights = [each.weight("fc.weight").float32() for each in (before, after)]
    assert 0 < abs(weights[0] - weights[1]).max() < 0.5
    assert "--start" in (second / "drafter" / "README.md").read_text()

    capsys.readouterr()
    with pytest.raises(SystemExit) as refused:
        run(monkeypatch, *arguments, "--start", second / "drafter")
    assert refused.value.code == 2
    assert "another start" in capsys.readouterr().err


def test_a_drafter_of_another_model_is_no_start(
    tiny_llama: Path,
    tiny_drafter: Path,
    prompts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_tiny("llama", tmp_path / "target", hidden_size=96)
    with pytest.raises(SystemExit) as refused:
        run(
            monkeypatch,
            *options(tmp_path / "target", tmp_path / "out", prompts),
            *("--start", tiny_drafter),
        )
    assert refused.value.code == 2
    assert "not 96" in capsys.readouterr().err
