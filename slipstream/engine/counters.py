"""What the engine counts, for /metrics and for the tests that ask whether a thing happened."""

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.engine.messages import Delta, EngineStats
from slipstream.engine.scheduler import Scheduler, Work
from slipstream.engine.speculator import Totals
from slipstream.memory.memory import Memory


@dataclass(slots=True)
class Counters:
    """Totals since the engine started."""

    steps: int = 0
    rows: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    draft_nodes: int = 0
    accepted_nodes: int = 0
    seconds: float = 0.0

    def count(
        self,
        works: Sequence[Work],
        rows: int,
        deltas: Sequence[Delta],
        seconds: float,
    ) -> None:
        """Add one step of so many rows."""
        self.steps += 1
        self.seconds += seconds
        self.rows += rows
        self.prompt_tokens += sum([work.prompt_rows for work in works])
        self.draft_nodes += sum([delta.proposed for delta in deltas])
        emitted = sum([len(delta.token_ids) for delta in deltas])
        self.generated_tokens += emitted
        self.accepted_nodes += emitted - len(deltas)

    def stats(self, scheduler: Scheduler, memory: Memory, speculated: Totals) -> EngineStats:
        """The totals with the gauges of the moment."""
        return EngineStats(
            steps_total=self.steps,
            rows_total=self.rows,
            prompt_tokens_total=self.prompt_tokens,
            cached_tokens_total=scheduler.cached_tokens,
            generated_tokens_total=self.generated_tokens,
            draft_nodes_total=self.draft_nodes,
            accepted_nodes_total=self.accepted_nodes,
            preemptions_total=scheduler.preemptions,
            evicted_pages_total=memory.evicted_pages,
            step_seconds_total=self.seconds,
            drafted_nodes_total=speculated.drafted_nodes,
            draft_seconds_total=speculated.draft_seconds,
            expected_step_seconds_total=speculated.expected_step_seconds,
            expected_tokens_total=speculated.expected_tokens,
            running=len(scheduler.running),
            waiting=len(scheduler.waiting),
            pages=memory.pool.pages,
            pages_free=memory.pool.free,
            pages_cached=memory.pool.evictable,
            speculation=speculated.why if scheduler.running else "idle",
        )
