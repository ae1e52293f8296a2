"""Sizes as people write them."""

import pytest

from slipstream.errors import UserError
from slipstream.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("2GiB", 2 * 2**30),
        ("512MiB", 512 * 2**20),
        ("512m", 512 * 2**20),
        ("1.5 GB", 1_500_000_000),
        ("123456", 123456),
        ("100B", 100),
        ("64KiB", 65536),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size("--kv-memory", text) == size


@pytest.mark.parametrize(
    "text", ["", "GiB", "2 gigs", "-1GiB", "0", "1e9", "9999999999TiB", "٣GiB"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match=r"--kv-memory .* size"):
        parse_size("--kv-memory", text)
