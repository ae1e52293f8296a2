"""The commands that templates make."""

import json

import pytest

from slipstream.errors import UserError
from slipstream.verdict.templates import EXAMPLES, Ingredients, recipe

GIVEN = Ingredients("M", "D", arguments=["--more", "1"])


@pytest.mark.parametrize(
    ("text", "draft_tokens", "command"),
    [
        ("self:off", 0, "slipstream serve --port {port} --model M --drafter D --speculation off"),
        (
            "self:fixed",
            15,
            "slipstream serve --port {port} --model M --drafter D --speculation fixed",
        ),
        (
            "self:fixed:2,1,3",
            2,
            "slipstream serve --port {port} --model M --drafter D --speculation fixed"
            " --speculative-num-steps 2 --speculative-eagle-topk 1"
            " --speculative-num-draft-tokens 3",
        ),
        (
            "sglang:3",
            3,
            "python -m sglang.launch_server --model-path M --host 127.0.0.1 --port {port}"
            " --speculative-algorithm EAGLE3 --speculative-draft-model-path D"
            " --speculative-num-steps 3 --speculative-eagle-topk 1"
            " --speculative-num-draft-tokens 4",
        ),
        ("vllm:off", 0, "vllm serve M --host 127.0.0.1 --port {port}"),
        ("llama-server:off", 0, "llama-server --model M --host 127.0.0.1 --port {port}"),
        (
            "llama-server:5",
            5,
            "llama-server --model M --host 127.0.0.1 --port {port} --spec-type draft-eagle3"
            " --model-draft D --spec-draft-n-max 5",
        ),
    ],
)
def test_commands(text: str, draft_tokens: int, command: str) -> None:
    made = recipe(text, GIVEN)
    assert made.command == (*command.split(" "), "--more", "1")
    assert made.draft_tokens == draft_tokens


def test_a_tree_of_sglang_has_a_root() -> None:
    assert recipe("sglang:4,4,16", GIVEN).draft_tokens == 15


def test_vllm_takes_json() -> None:
    *command, settings = recipe("vllm:3", Ingredients("M", "D")).command
    assert command[-1] == "--speculative-config"
    assert json.loads(settings) == {"method": "eagle3", "num_speculative_tokens": 3, "model": "D"}
    lookup = recipe("vllm:5", Ingredients("M", None, "ngram")).command[-1]
    assert json.loads(lookup) == {"method": "ngram", "num_speculative_tokens": 5}


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_work(text: str) -> None:
    assert recipe(text, GIVEN).command


def test_what_lacks() -> None:
    with pytest.raises(UserError, match="vllm:3 needs a drafter"):
        recipe("vllm:3", Ingredients("M"))
    with pytest.raises(UserError, match="'tgi:3' is no template; there are self:off"):
        recipe("tgi:3", GIVEN)
