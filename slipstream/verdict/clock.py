"""How long the rest will take."""

from collections.abc import Sequence
from statistics import fmean

Part = tuple[str, str]
"""A configuration and a load's label; without a label: its start."""


class Clock:
    """Learns how long each part takes."""

    def __init__(self) -> None:
        self._seconds: dict[Part, list[float]] = {}

    def note(self, part: Part, seconds: float) -> None:
        """It took so long."""
        self._seconds.setdefault(part, []).append(seconds)

    def left(self, parts: Sequence[Part]) -> float | None:
        """Seconds for these loads and, each time the configuration changes, its start.

        What was not seen yet takes as long as others at this load, or as anything. None as long
        as nothing was seen.
        """
        if not any(label for _, label in self._seconds):
            return None
        total, previous = 0.0, None
        for name, label in parts:
            if name != previous:
                total += self._expected((name, ""))
            total += self._expected((name, label))
            previous = name
        return total

    def _expected(self, part: Part) -> float:
        if part in self._seconds:
            return fmean(self._seconds[part])
        label = part[1]
        seen = [seconds for key, seconds in self._seconds.items() if key[1] == label]
        if label and not seen:
            seen = [seconds for key, seconds in self._seconds.items() if key[1]]
        return fmean(fmean(seconds) for seconds in seen) if seen else 0.0
