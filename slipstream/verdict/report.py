"""A report as plain data, which the terminal, Markdown and HTML show in their own ways."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Items:
    items: tuple[str, ...]
    warning: bool = False


@dataclass(frozen=True)
class Table:
    """Cells are text; the first ``names`` columns are names, the others numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 2


@dataclass(frozen=True)
class Code:
    """To be copied, or the lines of a log."""

    title: str
    text: str


@dataclass(frozen=True)
class Point:
    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line; those with the same ``number`` share a colour."""

    name: str
    number: int
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """Lines over the load, whose axis is logarithmic; HTML alone shows it.

    ``scale`` is that of the values: linear and from zero, linear, or logarithmic.
    """

    title: str
    x_label: str
    series: tuple[Series, ...]
    reference: float | None = None  # a horizontal line, which is always in view
    scale: Literal["zero", "linear", "log"] = "zero"


Part = Text | Items | Table | Code | Chart


@dataclass(frozen=True)
class Section:
    title: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Report:
    title: str
    subtitle: str
    sections: tuple[Section, ...]
