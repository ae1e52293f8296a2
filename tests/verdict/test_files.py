"""Documents that are written and read again, and where a verdict's answers go."""

import errno
import io
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from slipstream.errors import UserError
from slipstream.verdict.analysis import answers
from slipstream.verdict.outputs import Outputs
from slipstream.verdict.results import read, write
from tests.verdict.test_reports import QUESTIONS, whole


def test_a_document_must_make_sense(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    whole_text = msgspec.json.encode(whole()).decode()
    for old, new in (
        ('"configurations":[{', '"configurations":[],"more":[{'),
        ('"concurrency":1,', '"concurrency":null,'),
        ('"confidence":0.95', '"confidence":1.5'),
    ):
        assert old in whole_text
        path.write_text(whole_text.replace(old, new))
        with pytest.raises(UserError, match=r"v\.json is no verdict's JSON: "):
            read(path)


def test_writing_follows_links_and_leaves_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("there.json")
    write(tmp_path / "link", whole())
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "there.json").complete
    os.mkfifo(tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        reader = pool.submit((tmp_path / "pipe").read_bytes)
        write(tmp_path / "pipe", whole())
        assert reader.result(20).startswith(b"{")
    assert (tmp_path / "pipe").is_fifo()


def test_a_file_that_cannot_be_written_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = Outputs(None, tmp_path, tmp_path / "v.md", tmp_path / "LOG.md")
    with pytest.raises(UserError, match="cannot write "):
        outputs.render(whole(), QUESTIONS, None)
    assert "Does speculation pay?" in capsys.readouterr().out
    assert (tmp_path / "v.md").exists()
    assert (tmp_path / "LOG.md").exists()


def test_a_terminal_that_takes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("sys.stdout", Full())
    with pytest.raises(UserError, match="standard output: No space"):
        Outputs(None, tmp_path / "v.html", None, None).render(whole(), QUESTIONS, None)
    assert (tmp_path / "v.html").exists()


def test_a_terminal_without_all_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    found = whole()
    found.notes = ["\N{SNOWMAN} on the line"]
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="latin-1"))
    Outputs(None, None, None, None).render(found, QUESTIONS, None)
    assert b"? on the line" in written.getvalue()


def test_answers_of_a_document_that_was_written_and_read(tmp_path: Path) -> None:
    write(tmp_path / "v.json", whole())
    assert answers(read(tmp_path / "v.json")) == answers(whole())
