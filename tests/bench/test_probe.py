"""Asking a server what it serves and which fields it takes."""

from dataclasses import replace

import pytest

from slipstream.bench.client import Target
from slipstream.bench.probe import prepare
from slipstream.errors import UserError

from .fake_server import FakeServer, serving


def nameless(fake: FakeServer, **form: object) -> Target:
    target = fake.target(**form)
    return replace(target, form=replace(target.form, model=""))


async def test_a_server_that_takes_everything() -> None:
    async with serving() as fake:
        wanted = nameless(fake, ignore_eos=True, seed=3, temperature=0.5)
        target, notes = await prepare(wanted)
    assert target == replace(wanted, form=replace(wanted.form, model="fake"))
    assert notes == []
    assert len(fake.bodies) == 1


@pytest.mark.parametrize(
    ("refuses", "changes"),
    [
        (["continuous_usage_stats"], {"usage": "final"}),
        (["stream_options"], {"usage": "none"}),
        (["ignore_eos"], {"ignore_eos": False}),
        (["max_tokens"], {"length_field": "max_completion_tokens"}),
        (["seed", "ignore_eos"], {"seed": None, "ignore_eos": False}),
        (
            ["stream_options", "max_tokens", "ignore_eos", "seed"],
            {
                "usage": "none",
                "length_field": "max_completion_tokens",
                "ignore_eos": False,
                "seed": None,
            },
        ),
    ],
)
async def test_only_what_the_server_refuses_is_left_out(
    refuses: list[str], changes: dict[str, object]
) -> None:
    async with serving(refuses=tuple(refuses)) as fake:
        wanted = fake.target(ignore_eos=True, seed=3)
        target, _ = await prepare(wanted)
    assert target.form == replace(wanted.form, **changes)


@pytest.mark.parametrize(
    ("behaviour", "note"),
    [
        ({"usage": "final"}, "no usage while streaming"),
        ({"usage": "none"}, "no usage at all"),
        ({"streams": False}, "the server does not stream"),
        ({"refuses": ("ignore_eos",)}, "the server does not take ignore_eos"),
        ({"refuses": ("seed",)}, "the server does not take a seed"),
    ],
)
async def test_what_the_user_should_know(behaviour: dict[str, object], note: str) -> None:
    async with serving(chunk_seconds=0.01, **behaviour) as fake:
        _, notes = await prepare(fake.target(ignore_eos=True, seed=3))
    assert len(notes) == 1
    assert notes[0].startswith(note)


async def test_a_server_that_is_down() -> None:
    async with serving() as fake:
        pass
    with pytest.raises(UserError, match=r"no server answers at http://127.*connection refused"):
        await prepare(nameless(fake))
    with pytest.raises(UserError, match="connection refused"):
        await prepare(fake.target())


async def test_a_refusal_is_told_in_the_servers_words() -> None:
    async with serving(refuses=("messages",)) as fake:
        with pytest.raises(UserError, match="HTTP 400: unknown field messages"):
            await prepare(fake.target())
    async with serving(status=lambda _: 404) as fake:
        with pytest.raises(UserError, match="HTTP 404: told to fail"):
            await prepare(fake.target())
    assert len(fake.bodies) == 1


async def test_a_busy_server_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(_: float) -> None: ...

    monkeypatch.setattr("slipstream.bench.probe.asyncio.sleep", at_once)
    async with serving(status=lambda number: 429 if number < 2 else 200) as fake:
        await prepare(fake.target())
    assert len(fake.bodies) == 3


@pytest.mark.parametrize("models", [(), ("a", "b")])
async def test_the_model_must_be_clear(models: tuple[str, ...]) -> None:
    async with serving(models=models) as fake:
        with pytest.raises(UserError, match=f"serves {len(models)} models: choose with --model"):
            await prepare(nameless(fake))


async def test_a_server_of_another_kind() -> None:
    async with serving() as fake:
        fake.url += "/other"
        with pytest.raises(UserError, match=r"/other/models answers HTTP 404"):
            await prepare(nameless(fake))
