"""Options that take several values after one flag."""

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from slipstream.several_values import SeveralValuesCommand, spread


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--n 1 2 5", "--n 1 --n 2 --n 5"),
        ("--n=1 2 --url u 3", "--n=1 --n 2 --url u 3"),
        ("a --n 1 --n 2 3 -x b", "a --n 1 --n 2 --n 3 -x b"),
        ("--n -1 2", "--n -1 2"),
        ("--n", "--n"),
        ("--url u", "--url u"),
    ],
)
def test_spread(line: str, expected: str) -> None:
    assert spread(line.split(), {"--n"}) == expected.split()


@pytest.mark.parametrize(
    "line", ["--n 1 2 5 --url u", "--url u --n 1 --n 2 5", "--n=1 2 --url u --n 5"]
)
def test_a_command_takes_them(line: str) -> None:
    app = typer.Typer()

    @app.command(cls=SeveralValuesCommand)
    def command(
        url: Annotated[str, typer.Option()], n: Annotated[list[int], typer.Option()]
    ) -> None:
        print(url, n)

    result = CliRunner().invoke(app, line.split())
    assert result.output == "u [1, 2, 5]\n"
