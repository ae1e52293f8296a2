"""Seconds of a pass as a function of its rows, learned from the passes that are made anyway."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

# Cost is a staircase of the kernels' tiles, so there are places on both sides of each edge.
KNOTS = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 17, 20, 24, 28, 32, 33, 40, 48, 49, 56, 64, 65, 80),
    *(96, 112, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024, 2048, 4096),
)
MOST_EVIDENCE = 100.0  # of one place; beyond it old passes are forgotten
LEAST_EVIDENCE = 3.0  # with less a place has hardly been measured
REACH = 1.0  # how far a pass teaches, in doublings of rows
DRIFT_RATE = 0.15  # of the drift, per pass, once a place is known


class RowCosts:
    """A table over rows, and one drift by which the whole machine is slower at the moment.

    The table learns slowly once it has evidence; the drift follows within a dozen passes. What was
    never measured is shifted with what was measured nearby.
    """

    def __init__(self, prior: Callable[[float], float]) -> None:
        """``prior`` gives the seconds expected of so many rows before anything was measured."""
        self._rows = np.log2(np.array(KNOTS, dtype=np.float64))
        self._logs = np.log([prior(rows) for rows in KNOTS])
        self._evidence = np.zeros(len(KNOTS))  # passes of about so many rows
        self._nearness = np.exp(-4.0 * np.square((self._rows[:, None] - self._rows) / REACH))
        self._drift = 0.0
        self._dense: Float64 = np.zeros(0)

    @property
    def drift(self) -> float:
        """How many times as long as by the table passes take now."""
        return float(np.exp(self._drift))

    def up_to(self, rows: int) -> Float64:
        """Seconds of passes of 0, 1, ... ``rows`` rows; 0 rows cost what 1 does. Never falls."""
        if len(self._dense) <= rows:
            places = np.maximum(np.arange(max(64, 2 * rows) + 1), 1)
            self._dense = np.interp(places, KNOTS, np.exp(self._rising() + self._drift))
        return self._dense[: rows + 1]

    def at(self, rows: int) -> float:
        """Seconds of one pass of so many rows."""
        return float(self.up_to(rows)[rows])

    def unknown(self, first: int, last: int) -> int | None:
        """The first of the places from ``first`` to ``last`` rows that was hardly ever measured."""
        for rows, evidence in zip(KNOTS, self._evidence.tolist(), strict=True):
            if first <= rows <= last and evidence < LEAST_EVIDENCE:
                return rows
        return None

    def learn(self, rows: float, surprise: float, passes: int = 1) -> None:
        """So many passes took ``exp(surprise)`` times what was expected, in the middle."""
        own = _shares(rows)
        known = float(own @ self._evidence)
        followed = 1.0 - (1.0 - DRIFT_RATE * known / (known + 10.0)) ** passes
        self._drift += followed * surprise
        # Where a place is not believed, it is the place that errs, and not by the surprise.
        errors = surprise + self._rising() - self._logs
        self._evidence += passes * own
        gains = passes * own / np.maximum(self._evidence, 1e-9)
        # Passes nearby tell little of a place that was measured itself: an edge may be between.
        distance = (self._rows - np.log2(max(rows, 1.0))) / REACH
        near = np.exp(-4.0 * distance * distance)
        seen = self._nearness @ self._evidence
        nearby = np.where(seen > 1e-6, passes * near / (seen + 1e-9), 0.0) / (1.0 + self._evidence)
        steps = np.where(gains >= nearby, gains * errors, nearby * surprise)
        self._logs += (1.0 - followed) * steps
        np.minimum(self._evidence, MOST_EVIDENCE, out=self._evidence)
        self._dense = self._dense[:0]

    def _rising(self) -> Float64:
        """The table's logarithms, made to rise: no place costs more than a larger one that was
        measured. What a slow moment made too dear would never be tried again, and stay so."""
        measured = np.where(self._evidence < LEAST_EVIDENCE, np.inf, self._logs)
        most = np.minimum.accumulate(measured[::-1])[::-1]
        rising: Float64 = np.maximum.accumulate(np.minimum(self._logs, most))
        return rising

    def table(self) -> list[tuple[int, float, float]]:
        """Rows, seconds without the drift, and evidence, of each place."""
        seconds = np.exp(self._logs)
        return list(zip(KNOTS, seconds.tolist(), self._evidence.tolist(), strict=True))

    def restore(self, table: Sequence[tuple[int, float, float]]) -> None:
        """Go on from what `table` gave. Raises ``ValueError`` for anything else."""
        rows = tuple(int(entry[0]) for entry in table)
        seconds = np.array([entry[1] for entry in table], dtype=np.float64)
        evidence = np.array([entry[2] for entry in table], dtype=np.float64)
        sound = rows == KNOTS and bool(np.isfinite(seconds).all() and (seconds > 0).all())
        if not (sound and bool((evidence >= 0).all())):
            raise ValueError("not a table of costs over rows")
        self._logs, self._evidence = np.log(seconds), np.minimum(evidence, MOST_EVIDENCE)
        self._dense = self._dense[:0]


def _shares(rows: float) -> Float64:
    """How far a pass of so many rows belongs to each place, ``[len(KNOTS)]``: to the two beside."""
    places = np.arange(len(KNOTS))
    shares: Float64 = 1.0 - np.abs(places - float(np.interp(rows, KNOTS, places)))
    return np.maximum(shares, 0.0, out=shares)
