"""The step loop: plan, draft, compute, then walk each tree, emitting; commit."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.counters import Counters
from slipstream.engine.emission import emit, log_probabilities, sampling_rows
from slipstream.engine.messages import Delta, EngineStats, Submit, TokenLogprobs
from slipstream.engine.request import Request
from slipstream.engine.scheduler import Scheduler, Work
from slipstream.engine.speculator import Speculator
from slipstream.memory.memory import Memory
from slipstream.memory.pool import slots_of
from slipstream.models.transformer import Transformer
from slipstream.speculation.acceptance import accept
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.drafter import Drafter
from slipstream.speculation.policy.adaptive import AdaptivePolicy
from slipstream.speculation.policy.cost_model import CostModel, Machine
from slipstream.speculation.policy.settings import OFF, Speculation
from slipstream.speculation.tree import TokenTree

MOST_DRAFT_ROWS = 4096  # of one step

# Told of a request that ends, before its pages are given back: its id, its committed tokens and
# the slots where their K, V and features are.
OnFinish = Callable[[int, NDArray[np.int32], NDArray[np.int32]], None]


class Engine:
    """Runs requests on one model. Not thread-safe: one caller submits, cancels and steps."""

    def __init__(
        self,
        model: Transformer,
        drafter: Drafter,
        *,
        pages: int,
        max_running_requests: int,
        max_step_rows: int,
        max_draft_rows: int = MOST_DRAFT_ROWS,
        prefix_cache: bool = True,
        speculation: Speculation = OFF,
        policy: AdaptivePolicy | None = None,
        lookup: Drafter | None = None,
        on_finish: OnFinish | None = None,
    ) -> None:
        self._model = model
        self._speculation = speculation
        policy = policy or AdaptivePolicy(CostModel(Machine()), max_draft_rows)
        self._speculator = Speculator(drafter, policy, max_draft_rows, lookup)
        self._on_finish = on_finish
        self._memory = Memory(pages, prefix_cache)
        self._scheduler = Scheduler(self._memory, max_running_requests, max_step_rows)
        self._requests: dict[int, Request] = {}
        self._counters = Counters()

    @property
    def busy(self) -> bool:
        """There is a request to step."""
        return bool(self._requests)

    def submit(self, submit: Submit) -> None:
        """Queue a request.

        Raises ``ValueError`` unless there is a prompt, a token to emit, and room for both together.
        """
        tokens, longest = len(submit.token_ids), self._model.max_model_len
        if not (tokens > 0 and 0 < submit.params.max_tokens <= longest - tokens):
            raise ValueError(
                f"request {submit.id} has {tokens} prompt tokens and max_tokens "
                f"{submit.params.max_tokens}; both must be at least 1, together at most {longest}"
            )
        request = Request.start(submit.id, submit.token_ids, submit.params)
        request.speculation = submit.params.speculation or self._speculation
        self._requests[submit.id] = request
        self._scheduler.add(request)

    def cancel(self, id: int) -> None:
        """Drop a request and free its pages; an unknown or ended one is ignored."""
        request = self._requests.pop(id, None)
        if request is not None:
            self._scheduler.remove(request)
            self._speculator.forget(id)

    def step(self) -> list[Delta]:
        """One pass of the target over every planned request; what each of them emitted."""
        started = time.perf_counter()
        works = self._scheduler.plan()
        trees = self._speculator.grow(works, self._scheduler)
        requests = [work.request for work in works]
        batch = build_step_batch(requests, trees, [work.reaches_end for work in works])
        logits = self._model.forward(batch)
        tokens = self._model.sample(logits, sampling_rows(requests, batch))
        deltas, accepted = self._walk(works, trees, logits, tokens.tolist())
        self._commit(works, trees, accepted, batch.slots)
        seconds = time.perf_counter() - started
        self._speculator.observe(works, batch, deltas, seconds)
        self._counters.count(works, len(batch.tokens), deltas, seconds)
        for delta in deltas:
            if delta.finish:
                self._finish(self._requests[delta.id])
        if not self._requests:
            self._speculator.sum_up()
        return deltas

    def _finish(self, request: Request) -> None:
        if self._on_finish is not None:
            tokens = request.tokens[: request.committed]
            self._on_finish(request.id, tokens, slots_of(request.pages, len(tokens)))
        self.cancel(request.id)

    def stats(self) -> EngineStats:
        """Counters since the start and gauges of the moment."""
        return self._counters.stats(self._scheduler, self._memory, self._speculator.totals)

    def _walk(
        self,
        works: Sequence[Work],
        trees: Sequence[TokenTree],
        logits: NDArray[np.float32],
        tokens: list[int],
    ) -> tuple[list[Delta], list[list[int]]]:
        """Walk all trees, emitting; deltas of those that emit, accepted nodes of all."""
        deltas: list[Delta] = []
        accepted: list[list[int]] = []
        row = 0  # of the logits
        for work, tree in zip(works, trees, strict=True):
            if not work.reaches_end:
                accepted.append([])
                continue
            delta, nodes = self._advance(work.request, tree, row - tree.root, logits, tokens)
            deltas.append(delta)
            accepted.append(nodes)
            row += len(tree.tokens) - tree.root
        return deltas, accepted

    def _advance(
        self,
        request: Request,
        tree: TokenTree,
        first: int,
        logits: NDArray[np.float32],
        tokens: list[int],
    ) -> tuple[Delta, list[int]]:
        """Walk one tree, whose node i has row ``first + i`` of ``logits`` and ``tokens``."""
        params = request.params
        emitted: list[int] = []
        logprobs: list[TokenLogprobs] | None = None if params.logprobs is None else []
        finish: str | None = None

        def emit_after(node: int) -> int | None:
            nonlocal finish
            row = first + node
            token = tokens[row]
            if request.adjusts_logits:
                token = emit(
                    self._model.sample, logits[row], params, request.tokens, request.prompt_length
                )
            if logprobs is not None:
                logprobs.append(log_probabilities(logits[row], token, params.logprobs or 0))
            emitted.append(token)
            finish = request.append(token)
            return None if finish else token

        accepted = accept(tree, emit_after)
        delta = Delta(
            id=request.id,
            token_ids=emitted,
            finish=finish,
            logprobs=logprobs,
            cached_tokens=request.cached_tokens or 0,
            proposed=tree.draft_nodes,
        )
        return delta, accepted

    def _commit(
        self,
        works: Sequence[Work],
        trees: Sequence[TokenTree],
        accepted: Sequence[list[int]],
        slots: NDArray[np.int32],
    ) -> None:
        """Bring accepted nodes' K and V to their logical slots and give back the other slots."""
        sources: list[int] = []  # rows of the batch
        targets: list[int] = []
        first = 0
        for work, tree, nodes in zip(works, trees, accepted, strict=True):
            for target, node in enumerate(nodes, start=work.count):
                if target != node:
                    sources.append(first + node)
                    targets.append(first + target)
            first += len(tree.tokens)
            self._scheduler.commit(work.request, work.count + len(nodes))
        if sources:
            self._model.move_slots(slots[sources].tolist(), slots[targets].tolist())
