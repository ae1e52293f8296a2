"""JSON files written by others."""

import json
from pathlib import Path
from typing import Any

from slipstream.errors import UserError


def read_json_object(path: Path) -> dict[str, Any]:
    """The object in ``path``. Raises ``UserError`` if it is not there or not a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path} is missing") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is not valid JSON; it may be damaged or cut off") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} should hold a JSON object, not a {type(value).__name__}")
    return value


def read_optional_json_object(path: Path) -> dict[str, Any]:
    """Like ``read_json_object``, but a file that is not there counts as empty."""
    return read_json_object(path) if path.exists() else {}
