"""Configurations from YAML files and from words, and what is said about wrong ones."""

import sys
from pathlib import Path

import pytest

from slipstream.errors import UserError
from slipstream.verdict.configuration import READY_S, Candidate, candidates_of, from_word
from slipstream.verdict.templates import Ingredients

NOTHING = Ingredients()
MODELS = Ingredients("target", "drafter")

FILE = """\
model: some/target
drafter: some/drafter
baseline: plain
configurations:
  - self:adaptive
  - name: plain
    launch: python server.py --port {port} --text 'two words'
    env: {THREADS: 2, DEBUG: off}
    directory: DIRECTORY
    ready: http://127.0.0.1:{port}/health?deep=1
    ready_s: 12.5
    model: its-name
    engine: vllm
    draft_tokens: 0
  - name: remote
    url: https://host/v1
  - template: vllm:3
    name: three
    method: eagle
    args: [--dtype, bfloat16]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "it.yaml"
    path.write_text(text.replace("DIRECTORY", str(folder)))
    return str(path)


def test_a_file(tmp_path: Path) -> None:
    found = candidates_of([write(tmp_path, FILE)], NOTHING)
    assert [candidate.name for candidate in found] == ["plain", "self:adaptive", "remote", "three"]
    plain, adaptive, remote, three = found
    assert plain == Candidate(
        name="plain",
        url="http://127.0.0.1:{port}",
        command=("python", "server.py", "--port", "{port}", "--text", "two words"),
        environment={"THREADS": "2", "DEBUG": "off"},
        directory=tmp_path,
        ready_url="http://127.0.0.1:{port}/health?deep=1",
        ready_s=12.5,
        model="its-name",
        engine="vllm",
        draft_tokens=0,
    )
    assert adaptive.command is not None
    assert adaptive.command[:6] == (
        "slipstream", "serve", "--port", "{port}", "--model", "some/target",
    )  # fmt: skip
    assert (adaptive.engine, adaptive.draft_tokens) == ("slipstream", None)
    assert (remote.url, remote.command, remote.needs_port) == ("https://host/v1", None, False)
    assert three.command is not None
    assert three.command[-2:] == ("--dtype", "bfloat16")
    assert '"method": "eagle"' in three.command[-3]
    assert (three.draft_tokens, three.ready_s, three.model) == (3, READY_S, "")


def test_merge_keys_fill_in_what_is_not_given(tmp_path: Path) -> None:
    text = """\
configurations:
  - &off
    name: off
    template: vllm:off
    args: [--dtype, float32]
    env: &env {THREADS: 2, DEBUG: 1}
  - {<<: *off, name: three, template: "vllm:3", env: {DEBUG: 0, <<: *env}}
  - {name: five, template: "vllm:5", <<: [{method: eagle}, {method: other, ready_s: 1}, *off]}
"""
    off, three, five = candidates_of([write(tmp_path, text)], MODELS)
    assert off.command and three.command and five.command
    assert (three.name, three.draft_tokens) == ("three", 3)
    assert three.command[-2:] == off.command[-2:] == ("--dtype", "float32")
    assert (off.environment["DEBUG"], three.environment) == ("1", {"THREADS": "2", "DEBUG": "0"})
    assert "eagle" in " ".join(five.command)
    assert (five.ready_s, five.environment) == (1.0, off.environment)


def test_ports_and_our_own_command() -> None:
    told = from_word("mine=slipstream serve --port {port}", NOTHING).at(4711)
    assert (told.url, told.command) == (
        "http://127.0.0.1:4711",
        ("slipstream", "serve", "--port", "4711"),
    )
    launch = told.launch()
    assert launch.command[:3] == (sys.executable, "-m", "slipstream")
    assert told.described().command == ["slipstream", "serve", "--port", "4711"]


def test_words() -> None:
    found = candidates_of(
        ["http://a:1", "b=http://b:2/v1", "c=run it {port}", "self:schedule:1-8=16,9-=4",
         "d=vllm:off"],
        MODELS,
        "c",
    )  # fmt: skip
    assert [candidate.name for candidate in found] == [
        "c", "http://a:1", "b", "self:schedule:1-8=16,9-=4", "d",
    ]  # fmt: skip
    assert found[3].command is not None
    assert found[3].command[-1] == "schedule:1-8=16,9-=4"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    env:", "    enviroment:", "line 8: unknown key enviroment; there are name, template"),
        ("baseline:", "base:", "line 3: unknown key base; there are model, drafter, baseline"),
        ("ready_s: 12.5", "ready_s: soon", "line 11: ready_s should be a number from 0 on, not so"),
        ("draft_tokens: 0", "draft_tokens: 2.5", "line 14: draft_tokens should be a whole number"),
        ("engine: vllm", "engine: gguf", "line 6: engine should be one of slipstream, vllm"),
        ("vllm:3", "vllm:x", "line 17: vllm:x: after the colon give off, or a number"),
        ("- self:adaptive", "- self:best", "line 5: self:best: give self:off"),
        ("- self:adaptive", "- hurry", "line 5: 'hurry' is no configuration; give a YAML file"),
        ("{port} --text", "8000 --text", "line 6: launch needs {port} where its port goes, or url"),
        ("two words'", "two words", "line 7: launch: no closing quotation"),
        ("    name: three", "    url: http://x", "line 17: template goes without launch and url"),
        ("    name: three", "    template: self:off", "line 18: template is given twice"),
        ("    url: https://host/v1", "    url: ftp://host", "line 15: 'ftp://host' is not a serv"),
        ("    url: https://host/v1", "    draft_tokens: 3", "line 15: a configuration needs laun"),
        (
            "    url: https://host/v1",
            "    url: http://h\n    env: {A: 1}",
            "line 15: env, directory",
        ),
        ("  - name: remote\n", "  - engine: vllm\n", "line 15: a configuration needs a name"),
        ("env: {THREADS: 2, DEBUG: off}", "env: [1]", "line 8: env should be a mapping"),
        ("{THREADS: 2, DEBUG: off}", "{A: 1, A: 2}", "line 8: A is given twice"),
        ("ready_s: 12.5", "<<: [a]", "line 11: << should be a mapping, or a list of mappings"),
        ("    name: three", "    <<: &it {<<: *it, speed: 1}", "line 18: unknown key speed"),
        ("directory: DIRECTORY", "directory: /no/such", "line 6: no folder /no/such"),
        ("model: some/target", "model: [a]", "line 1: model should be one value"),
        ("model: some/target", "model: 'a", "no YAML"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert FILE.count(old) == 1
    with pytest.raises(UserError) as error:
        candidates_of([write(tmp_path, FILE.replace(old, new))], NOTHING)
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "it.yaml"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a", "should be a mapping with the key configurations"),
        ("configurations: 3", "line 1: configurations should be a list"),
        ("", "should be a mapping"),
        ("\x01", "no YAML"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        candidates_of([write(tmp_path, text)], NOTHING)
    with pytest.raises(UserError, match=r"cannot read no/such.yaml: no such file"):
        candidates_of(["no/such.yaml"], NOTHING)


@pytest.mark.parametrize(
    ("words", "baseline", "message"),
    [
        (["self:off"], None, "at least two configurations"),
        (["self:off", "self:off"], None, "two configurations are called self:off"),
        (["self:off", "self:adaptive"], "off", "the baseline off is none of self:off, self:adap"),
        (["self:off", "vllm:3"], None, "vllm:3 needs a model: give --model"),
        (["self:off", "self:fixed:4,1,16"], None, "self:fixed:4,1,16: topk 1 drafts a chain"),
        (["self:off", "self:fixed:4"], None, "self:fixed:4: after the colon give off, or a tree"),
        (["self:off", "self:schedule:1=x"], None, "self:schedule:1=x: '1=x' is not of the form"),
        (["self:off", "x\ay=http://h"], None, "'x\\x07y' is no name"),
        (["self:off", "x=http://"], None, "'http://' is not a server's address"),
    ],
)
def test_mistakes_in_words(words: list[str], baseline: str | None, message: str) -> None:
    with pytest.raises(UserError) as error:
        candidates_of(words, NOTHING, baseline)
    assert message in str(error.value)
