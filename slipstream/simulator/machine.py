"""A machine, the model on it and its drafter, as a few physical numbers."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from slipstream.errors import UserError
from slipstream.speculation.policy import cost_model

Float64 = NDArray[np.float64]


def _negative(value: float | tuple[float, ...]) -> bool:
    return min(value, default=0.0) < 0 if isinstance(value, tuple) else value < 0


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where several devices share each layer, bytes and rates are those of all together.

    Units are bytes, operations and seconds. Reading and computing overlap, the rest adds up.
    """

    # The target.
    weight_bytes: float  # read by every step
    expert_bytes: float = 0.0  # of all experts; a step reads those that its rows choose
    experts: int = 1
    experts_per_token: int = 1
    # Rows of one tree are alike: n of them choose experts as n to this power unlike rows do.
    tree_diversity: float = 1.0
    row_operations: float  # of one row
    context_bytes: float = 0.0  # read by a row for each token of its context
    # The machine.
    memory_rate: float  # bytes per second
    compute_rate: float  # operations per second
    tile: int = 1  # rows are computed in whole tiles
    step_seconds: float = 0.0  # of any step: launches, tensor-parallel rounds, the host
    row_seconds: float = 0.0  # of any row: what devices exchange
    request_seconds: float = 0.0  # of any request that emits: sampling, streaming
    jitter: float = 0.02  # standard deviation of the logarithm of a step's seconds
    # The drafter.
    draft_seconds: float = 0.0  # of any step that drafts: trees, lost overlap with the host
    level_seconds: float = 0.0  # of any level
    level_bytes: float = 0.0  # read by a level
    level_operations: float = 0.0  # of one of a level's rows
    entry_operations: float = 0.0  # of one position that the drafter catches up with
    # The text: how often the drafter's best guess is right, level by level, where those above are.
    acceptance: tuple[float, ...] = (0.6, 0.58, 0.56, 0.54)
    certainty: float = 1.5  # of a guess: a Beta distribution around that with such a + b
    between_requests: float = 0.4  # standard deviation of requests' log odds
    runners_up: tuple[float, ...] = (0.3, 0.15, 0.08)  # chance of later guesses if the best fails
    truth: float = 1.0  # share of what the drafter promises that comes true; 0 is random noise
    sampled_truth: float = 0.8  # the same beside that, of requests that are not greedy

    def __post_init__(self) -> None:
        for name in ("weight_bytes", "row_operations", "memory_rate", "compute_rate", "certainty"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0")
        for name, value in msgspec.structs.asdict(self).items():
            if _negative(value):
                raise ValueError(f"{name} must not be below 0")
        if min(self.experts, self.experts_per_token, self.tile) < 1:
            raise ValueError("experts, experts_per_token and tile must be at least 1")
        if not self.acceptance or max(self.acceptance) >= 1 or min(self.acceptance) <= 0:
            raise ValueError("acceptance must be chances between 0 and 1, one for each level")
        if sum(self.runners_up) > 1:
            raise ValueError("runners_up must be chances that sum up to at most 1")

    def step(self, rows: Float64, contexts: Float64, emitting: int) -> float:
        """Seconds of a step with so many ``rows`` ``[R]`` of each request, whose ``contexts``
        ``[R]`` are so many tokens, of which ``emitting`` requests emit."""
        total = float(rows.sum())
        unlike = float((rows**self.tree_diversity).sum())
        untouched: float = (1 - self.experts_per_token / self.experts) ** unlike
        read = self.weight_bytes + self.expert_bytes * (1 - untouched)
        tiles = -(-total // self.tile) * self.tile
        passing = max(read / self.memory_rate, tiles * self.row_operations / self.compute_rate)
        attending = float(rows @ contexts) * self.context_bytes / self.memory_rate
        others = self.row_seconds * total + self.request_seconds * emitting
        return self.step_seconds + passing + attending + others

    def draft(self, levels: list[float], entered: float) -> float:
        """Seconds of drafting: rows of each level, and positions entered before the first."""
        if not levels:
            return 0.0
        reading = self.level_bytes / self.memory_rate
        passes = sum(
            max(reading, rows * self.level_operations / self.compute_rate) for rows in levels
        )
        entering = entered * self.entry_operations / self.compute_rate
        return self.draft_seconds + len(levels) * self.level_seconds + passes + entering

    def truth_of(self, sampled: bool) -> float:
        """The share of what the drafter promises a request that comes true."""
        return self.truth * (self.sampled_truth if sampled else 1.0)

    def first_guess(self, factor: float = 1.0, row_factor: float = 1.0) -> cost_model.Machine:
        """What a policy would expect that knows these numbers, but nothing of tiles, experts or
        texts; wrong by a ``factor``, and in what a row costs by a ``row_factor`` more."""
        chosen = self.expert_bytes * self.experts_per_token / self.experts
        exchanged = (self.row_seconds + self.request_seconds) * self.compute_rate
        return cost_model.Machine(
            target_bytes=self.weight_bytes + chosen,
            target_operations=(self.row_operations + exchanged) * row_factor,
            drafter_bytes=self.level_bytes + self.level_seconds * self.memory_rate,
            drafter_operations=max(self.level_operations, self.entry_operations),
            context_operations=self.context_bytes * self.compute_rate / self.memory_rate,
            bytes_per_second=self.memory_rate / factor,
            operations_per_second=self.compute_rate / factor,
            seconds_per_pass=self.step_seconds * factor,
            seconds_per_draft=(self.draft_seconds + 1e-4) * factor,
        )


# Measured on two cores with AMX: a 135M model in 4 bits takes 7 ms for 1 to 16 rows, 8 for 32, 16
# for 64, 56 for 256; its EAGLE-3 head is a layer and a head of a few thousand tokens.
TWO_AMX_CORES = Machine(
    weight_bytes=96e6,
    row_operations=2.7e8,
    context_bytes=5e3,
    memory_rate=15e9,
    compute_rate=1.25e12,
    tile=16,
    step_seconds=4e-4,
    request_seconds=2e-5,
    level_seconds=1.5e-4,
    level_bytes=8e6,
    level_operations=3e7,
    entry_operations=8e6,
    acceptance=(0.6, 0.56, 0.54, 0.5),
)

# Eight Blackwell cards of 96 GB on PCIe, each at 85% of its 1.79 TB/s; 744 billion parameters of
# which 40 work on a token, 8 of 256 experts in each layer, experts in NVFP4 (4.5 bits), the rest
# in more; EAGLE-3. Latencies, the price of a row and the acceptance are what `fit.py` finds.
EIGHT_PCIE_GPUS = Machine(
    weight_bytes=28e9,
    expert_bytes=408e9,
    experts=256,
    experts_per_token=8,
    row_operations=8e10,
    context_bytes=9e4,
    memory_rate=12.2e12,
    compute_rate=4e15,
    step_seconds=7.02e-3,
    row_seconds=2.489e-4,
    tree_diversity=0.508,
    draft_seconds=9.84e-3,
    acceptance=(0.6472, 0.6213, 0.5965, 0.5726),
    request_seconds=1e-4,
    level_seconds=1e-3,
    level_bytes=2.5e9,
    level_operations=3e9,
    entry_operations=2e9,
    between_requests=0.3,
)

BUILT_IN = {"two-amx-cores": TWO_AMX_CORES, "eight-pcie-gpus": EIGHT_PCIE_GPUS}


def load_machine(source: str, changes: list[str]) -> Machine:
    """A built-in machine or one from a JSON file, with ``changes`` like ``tile=16``.

    Raises UserError for what is no such machine.
    """
    if source in BUILT_IN:
        fields: Any = msgspec.to_builtins(BUILT_IN[source])
    else:
        fields = _read(Path(source))
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or name not in Machine.__struct_fields__:
            known = ", ".join(Machine.__struct_fields__)
            raise UserError(f"--set {change}: write NAME=VALUE, with one of {known}")
        try:
            fields[name] = msgspec.json.decode(f"[{value}]" if "," in value else value)
        except msgspec.DecodeError:
            raise UserError(f"--set {change}: {value!r} is not a number, or numbers") from None
    try:
        return msgspec.convert(fields, Machine)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserError(f"the machine {source}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(file.read_bytes())
    except OSError:
        names = ", ".join(BUILT_IN)
        raise UserError(f"--machine {file}: no such file, and not one of {names}") from None
    except msgspec.DecodeError as error:
        raise UserError(f"--machine {file}: {error}") from None
    if not isinstance(fields, dict):
        raise UserError(f"--machine {file}: give an object of a machine's numbers")
    return fields
