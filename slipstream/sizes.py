"""Sizes as people write them."""

import re

from slipstream.errors import UserError

_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(option: str, text: str) -> int:
    """Bytes of a size such as ``2GiB``, ``512M`` (both powers of 1024) or ``1.5GB`` (of 1000).

    Raises ``UserError`` for anything else; ``option`` says what the size was given for.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?B)?", text.strip(), re.ASCII | re.I)
    if match is None:
        raise UserError(f"{option} {text!r} is not a size; it should be like 2GiB or 512MiB")
    number, unit, suffix = match.groups()
    base = 1000 if (suffix or "").upper() == "B" else 1024
    size = int(float(number) * base ** _UNITS[unit.upper()])
    if not 0 < size < 2**63:
        raise UserError(f"{option} {text!r} is not a size that a machine has")
    return size
