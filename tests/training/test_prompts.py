"""The written prompts: how many, how mixed, always the same, and examples that are true."""

import ast
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from slipstream.training.prompts import COUNTS, TrainingPrompt, begun_prompts, written_prompts
from slipstream.training.prompts.combine import Dice
from slipstream.training.prompts.stubs import REFERENCES, Stub, write_from_tests

FINGERPRINT = (
    "import hashlib, msgspec\n"
    "from slipstream.training.prompts import written_prompts\n"
    "print(hashlib.sha256(msgspec.json.encode(written_prompts())).hexdigest())\n"
)


@pytest.fixture(scope="module")
def prompts() -> list[TrainingPrompt]:
    return written_prompts()


def test_there_are_enough_and_no_two_are_alike(prompts: list[TrainingPrompt]) -> None:
    assert len(prompts) >= 16_000
    assert len({msgspec.json.encode(prompt.messages) for prompt in prompts}) == len(prompts)


def test_every_prefix_has_the_mixture_of_the_whole(prompts: list[TrainingPrompt]) -> None:
    shares = {kind: count / sum(COUNTS.values()) for kind, count in COUNTS.items()}
    seen: Counter[str] = Counter()
    for length, prompt in enumerate(prompts, 1):
        seen[prompt.kind] += 1
        assert all(abs(seen[kind] - share * length) <= 2 for kind, share in shares.items())
    assert 0.5 <= shares["code"] <= 0.6
    assert set(seen) == set(COUNTS)


def test_they_are_the_same_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", FINGERPRINT],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_every_chat_ends_with_the_user_and_says_something(prompts: list[TrainingPrompt]) -> None:
    for prompt in prompts:
        assert all(message["content"].strip() for message in prompt.messages)
        roles = [message["role"] for message in prompt.messages]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"]


def test_begun_prompts_are_the_same_however_many_there_are() -> None:
    begun = begun_prompts(2000)
    assert begun[:500] == begun_prompts(500)
    assert all(prompt.begun for prompt in begun)
    texts = [prompt.messages[-1]["content"] for prompt in begun]
    assert 0.2 < sum(not text for text in texts) / len(texts) < 0.4
    assert len(set(texts)) > 200
    assert not any(text.endswith(" ") or "{sentence}" in text for text in texts)


def test_no_template_is_left_unfilled(prompts: list[TrainingPrompt]) -> None:
    for prompt in prompts:
        if prompt.kind != "code":  # where braces are braces
            assert not any(set("{}|") & set(message["content"]) for message in prompt.messages)


def test_examples_are_what_the_functions_return() -> None:
    dice = Dice("examples")
    for reference in REFERENCES:
        names: dict[str, object] = dict.fromkeys(reference.names, reference.function)
        for call, output in Stub(reference, dice).calls:
            assert eval(call, names) == ast.literal_eval(output)


def test_assertions_in_prompts_hold() -> None:
    dice = Dice("assertions")
    names = {name: reference.function for reference in REFERENCES for name in reference.names}
    assertions = [
        line
        for _ in range(300)
        for line in write_from_tests(dice).splitlines()
        if line.startswith("assert ")
    ]
    assert len(assertions) > 300
    for line in assertions:
        exec(line, dict(names))
