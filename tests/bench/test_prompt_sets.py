"""The packaged prompt sets: well formed, large enough, and genuinely distinct."""

import json
import re
from collections import Counter
from importlib import resources
from typing import NamedTuple

import pytest

MIN_PROMPTS = 320
MIN_CATEGORIES = 12
# Distinct openings keep a prefix cache from flattering the measured server.
OPENING_CHARS = 40
OPENING_WORDS = 3
MAX_SHARED_OPENING = 4


class Entry(NamedTuple):
    id: str
    category: str
    prompt: str

    @property
    def folded(self) -> str:
        """The prompt in lower case with whitespace runs folded to one blank."""
        return " ".join(self.prompt.lower().split())


def read(name: str) -> list[Entry]:
    path = resources.files("slipstream.bench") / "prompts" / f"{name}.jsonl"
    return [Entry(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]


def repeated(values: list[str], allowed: int = 1) -> dict[str, int]:
    return {value: n for value, n in Counter(values).items() if n > allowed}


@pytest.fixture(params=["coding", "encyclopedic"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def entries(name: str) -> list[Entry]:
    return read(name)


def test_set_is_large_and_varied(entries: list[Entry]) -> None:
    assert len(entries) >= MIN_PROMPTS
    assert len({entry.category for entry in entries}) >= MIN_CATEGORIES
    words = sorted(len(entry.prompt.split()) for entry in entries)
    assert words[0] >= 5
    assert words[-1] <= 250
    assert words[-1] >= 4 * words[len(words) // 2]


def test_fields_are_clean_text(entries: list[Entry]) -> None:
    for entry in entries:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.category), entry
        assert entry.prompt == entry.prompt.strip(), entry
        assert "\r" not in entry.prompt and "\ufffd" not in entry.prompt, entry


def test_ids_count_up_from_one(name: str, entries: list[Entry]) -> None:
    expected = [f"{name}-{i:03d}" for i in range(1, len(entries) + 1)]
    assert [entry.id for entry in entries] == expected


def test_prompts_are_distinct_from_their_first_words_on(entries: list[Entry]) -> None:
    folded = [entry.folded for entry in entries]
    assert not repeated(folded)
    assert not repeated([prompt[:OPENING_CHARS] for prompt in folded])
    openings = [" ".join(prompt.split()[:OPENING_WORDS]) for prompt in folded]
    assert not repeated(openings, allowed=MAX_SHARED_OPENING)


def test_code_fences_are_closed(entries: list[Entry]) -> None:
    for entry in entries:
        assert entry.prompt.count("```") % 2 == 0, entry


def test_a_third_of_the_coding_prompts_show_code() -> None:
    entries = read("coding")
    with_code = sum("```" in entry.prompt for entry in entries)
    assert 3 * with_code >= len(entries)


def test_the_two_sets_share_no_prompt() -> None:
    assert not repeated([entry.folded for entry in read("coding") + read("encyclopedic")])
