"""What speculation did for a while, for people."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Summary:
    """Sums over steps."""

    steps: int = 0
    drafted: int = 0  # nodes
    kept: int = 0
    accepted: int = 0
    emitted: int = 0
    expected_tokens: float = 0.0
    expected_seconds: float = 0.0  # of steps, without drafting
    seconds: float = 0.0
    draft_seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)  # steps by why they drafted or not

    def add(
        self,
        why: str,
        *,
        drafted: int,
        kept: int,
        accepted: int,
        emitted: int,
        expected_tokens: float,
        expected_seconds: float,
        seconds: float,
        draft_seconds: float,
    ) -> None:
        """Add one step."""
        self.steps += 1
        self.drafted += drafted
        self.kept += kept
        self.accepted += accepted
        self.emitted += emitted
        self.expected_tokens += expected_tokens
        self.expected_seconds += expected_seconds
        self.seconds += seconds
        self.draft_seconds += draft_seconds
        self.reasons[why] += 1

    @property
    def why(self) -> str:
        """Why speculation was on or off in most steps."""
        return max(self.reasons, key=self.reasons.__getitem__, default="idle")
