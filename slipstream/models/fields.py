"""Checked access to what a stranger wrote into a configuration."""

import math
from collections.abc import Mapping
from typing import Any

from slipstream.errors import UserError


class Fields:
    """Checked access to a mapping that a stranger wrote. ``origin`` names it in errors."""

    def __init__(self, values: Mapping[str, Any], origin: str) -> None:
        self.values = values
        self.origin = origin

    def error(self, key: str, wanted: str) -> UserError:
        """The error for a field whose value is not what is ``wanted``."""
        if self.values.get(key) is None:
            return UserError(f"{self.origin} has no field {key!r}; it should be {wanted}")
        found = repr(self.values[key])
        short = found if len(found) <= 60 else found[:57] + "..."
        return UserError(f"{self.origin} has {key} = {short}; it should be {wanted}")

    def count(self, key: str, default: int | None = None) -> int:
        """A positive integer; ``default`` where the field is absent or null."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
            raise self.error(key, "a positive integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive, finite number; ``default`` where the field is absent or null."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return float(value)
        raise self.error(key, "a positive number")

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false; ``default`` where the field is absent or null."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        """A string; ``default`` where the field is absent or null."""
        value = self.values.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.error(key, "a string")
        return value

    def token_ids(self, key: str) -> tuple[int, ...]:
        """One token id, a list of them, or none."""
        value = self.values.get(key)
        ids = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
            raise self.error(key, "a token id or a list of them")
        return tuple(ids)
