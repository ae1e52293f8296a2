"""Loading prompts, the user's and the packaged ones, and dealing them."""

from pathlib import Path

import pytest

from slipstream.bench.prompt_sets import PromptDeck, load_prompts
from slipstream.errors import UserError


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize("name", ["coding", "encyclopedic"])
def test_packaged_sets(name: str) -> None:
    prompts = load_prompts(name)
    assert len(prompts) >= 300
    assert all(prompt[0]["role"] == "user" and prompt[0]["content"] for prompt in prompts)


def test_a_file_may_mix_forms(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(
        '\ufeff"Plain text"\n\n{"prompt": "With id", "id": 4}\r\n'
        '{"messages": [{"role": "system", "content": "Be brief."}, '
        '{"role": "user", "content": "é"}]}\n'
        '"Plain text"\n',
        encoding="utf-8",
    )
    assert load_prompts(str(path)) == [
        user("Plain text"),
        user("With id"),
        [{"role": "system", "content": "Be brief."}, *user("é")],
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{not json",
        "7",
        "{}",
        '{"prompt": 7}',
        '{"prompt": " "}',
        '""',
        '{"messages": []}',
        '{"messages": "hello"}',
        '{"prompt": "a", "messages": [{"role": "user", "content": "b"}]}',
        '["a"]',
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'"good"\n{line}\n')
    with pytest.raises(UserError, match=r"mine\.jsonl, line 2: ") as caught:
        load_prompts(str(path))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(b'"good"\n"\xff\xfe"\n')
    with pytest.raises(UserError, match="line 2"):
        load_prompts(str(path))


def test_missing_empty_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no prompt set or file 'codign'"):
        load_prompts("codign")
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UserError, match="holds no prompts"):
        load_prompts(str(tmp_path / "empty"))
    with pytest.raises(UserError, match="cannot read the prompts"):
        load_prompts(str(tmp_path))


def test_a_deck_deals_all_before_any_again() -> None:
    prompts = [user(str(number)) for number in range(20)]
    deck = PromptDeck(prompts, seed=1)
    first = [deck.deal() for _ in range(20)]
    assert first != prompts
    assert sorted(map(str, first)) == sorted(map(str, prompts))
    assert not deck.repeats
    second = [deck.deal() for _ in range(20)]
    assert deck.repeats
    assert sorted(map(str, second)) == sorted(map(str, prompts))


def test_a_seed_fixes_the_order() -> None:
    prompts = [user(str(number)) for number in range(20)]
    orders = []
    for seed in (1, 1, 2):
        deck = PromptDeck(prompts, seed)
        orders.append([deck.deal() for _ in range(30)])
    assert orders[0] == orders[1] != orders[2]
