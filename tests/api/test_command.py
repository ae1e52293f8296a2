"""What the command line says, before anything is loaded."""

import pytest

from slipstream.api.command import parse_speculation
from slipstream.engine.params import Speculation, TreeShape
from slipstream.errors import UserError


def test_speculation_is_counted_as_sglang_does() -> None:
    assert parse_speculation("off", None, None, None, max_step_rows=256).mode == "off"
    assert parse_speculation("fixed", None, None, None, max_step_rows=256) == Speculation(
        "fixed", TreeShape(4, 4, 16)
    )
    assert parse_speculation("fixed", 5, 1, None, max_step_rows=256).shape == TreeShape(5, 1, 6)


@pytest.mark.parametrize(
    ("mode", "shape", "words"),
    [
        ("off", (2, None, None), "--speculation fixed"),
        ("fixed", (5, 1, 5), r"must be 6 \(num_steps \+ 1\), not 5"),
        ("fixed", (0, None, None), "num_steps must be from 1"),
        ("fixed", (None, 0, None), "topk must be from 1"),
        ("fixed", (None, None, 1), "num_draft_tokens must be from 2"),
        ("fixed", (None, None, 65), "64"),
    ],
)
def test_numbers_that_do_not_fit(
    mode: str, shape: tuple[int | None, int | None, int | None], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        parse_speculation(mode, *shape, max_step_rows=64)
