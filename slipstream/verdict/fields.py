"""Reading a YAML file key by key, so that every complaint names the file and the line.

Values are taken as they are written: ``name: off`` is the text "off", not false.
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from slipstream.errors import UserError

T = TypeVar("T")

_MERGE = "tag:yaml.org,2002:merge"


class LocatedError(UserError):
    """It says already in which file and line the mistake is."""


def read_file(path: Path) -> "Fields":
    """The mapping that the file holds. Raises ``UserError`` if it holds something else."""
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UserError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no text in UTF-8: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}{line}: no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UserError(f"{path}: no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{path}: should be a mapping with the key configurations")
    return Fields(path, node)


class Fields:
    """A mapping. Each method takes one key out of it; ``finish`` refuses what is left."""

    def __init__(self, path: Path, node: yaml.MappingNode) -> None:
        self._path = path
        self._known: list[str] = []
        self._left = self._entries(node)

    def text(self, key: str) -> str | None:
        """A scalar."""
        value = self._take(key)
        return None if value is None else self._text(value, key)

    def number(self, key: str) -> float | None:
        """A number, not negative."""
        value = self._take(key)
        if value is None:
            return None
        text = self._text(value, key)
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 <= number < float("inf"):
            raise self._error(value, f"{key} should be a number from 0 on, not {text}")
        return number

    def whole(self, key: str) -> int | None:
        """A whole number, not negative."""
        value = self._take(key)
        if value is None:
            return None
        text = self._text(value, key)
        if not text.isdecimal():
            raise self._error(value, f"{key} should be a whole number from 0 on, not {text}")
        return int(text)

    def words(self, key: str) -> list[str]:
        """A list of scalars, or one that is split as a shell would; empty where there is none."""
        value = self._take(key)
        if value is None:
            return []
        if isinstance(value, yaml.SequenceNode):
            return [self._text(item, f"an item of {key}") for item in value.value]
        try:
            return shlex.split(self._text(value, key))
        except ValueError as error:
            raise self._error(value, f"{key}: {str(error).lower()}") from error

    def texts(self, key: str) -> dict[str, str]:
        """A mapping from scalars to scalars; empty where there is none."""
        value = self._take(key)
        if value is None:
            return {}
        if not isinstance(value, yaml.MappingNode):
            raise self._error(value, f"{key} should be a mapping")
        return {name: self._text(item, key) for name, (_, item) in self._entries(value).items()}

    def items(
        self, key: str, of_text: Callable[[str], T], of_fields: "Callable[[Fields], T]"
    ) -> list[T]:
        """A list of scalars and mappings, each read by one of the functions; empty without one.

        What these complain about is given the line of the item.
        """
        value = self._take(key)
        if value is None:
            return []
        if not isinstance(value, yaml.SequenceNode):
            raise self._error(value, f"{key} should be a list")
        made = []
        for item in value.value:
            try:
                if isinstance(item, yaml.MappingNode):
                    made.append(of_fields(Fields(self._path, item)))
                else:
                    made.append(of_text(self._text(item, f"an item of {key}")))
            except LocatedError:
                raise
            except UserError as error:
                raise self._error(item, str(error)) from error
        return made

    def finish(self) -> None:
        """Refuse keys that nobody has asked for."""
        for name, (key, _) in self._left.items():
            raise self._error(key, f"unknown key {name}; there are {', '.join(self._known)}")

    def _entries(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Keys and values by name; a merge key, ``<<: *other``, fills in what is not given."""
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        inherited: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        sources: list[yaml.Node] = []
        for key, value in node.value:
            if key.tag == _MERGE:
                sources += value.value if isinstance(value, yaml.SequenceNode) else [value]
                continue
            name = self._text(key, "a key")
            if name in own:
                raise self._error(key, f"{name} is given twice")
            own[name] = (key, value)
        node.value = list(own.values())  # so that a mapping that merges itself comes to an end
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                raise self._error(source, "<< should be a mapping, or a list of mappings")
            for name, entry in self._entries(source).items():
                inherited.setdefault(name, entry)
        node.value = list((inherited | own).values())
        return inherited | own

    def _take(self, key: str) -> yaml.Node | None:
        self._known.append(key)
        return self._left.pop(key, (None, None))[1]

    def _text(self, node: yaml.Node, what: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"{what} should be one value")
        return str(node.value)

    def _error(self, node: yaml.Node, message: str) -> "LocatedError":
        return LocatedError(f"{self._path}, line {node.start_mark.line + 1}: {message}")
