"""The step loop: plan, draft, compute, then walk each tree, emitting; commit."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.batch import build_step_batch, storage_slots
from slipstream.engine.counters import Counters
from slipstream.engine.emission import emit, log_probabilities
from slipstream.engine.messages import Delta, EngineStats, Submit, TokenLogprobs
from slipstream.engine.params import Speculation
from slipstream.engine.request import Request
from slipstream.engine.scheduler import Scheduler, Work
from slipstream.memory.memory import Memory
from slipstream.models.transformer import Transformer
from slipstream.speculation.acceptance import accept
from slipstream.speculation.drafter import Draft, Drafter, DraftTask
from slipstream.speculation.tree import TokenTree, TreeShape

OFF = Speculation(mode="off")


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
        prefix_cache: bool = True,
        speculation: Speculation = OFF,
    ) -> None:
        self._model = model
        self._drafter = drafter
        self._speculation = speculation
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
        self._requests[submit.id] = request
        self._scheduler.add(request)

    def cancel(self, id: int) -> None:
        """Drop a request and free its pages; an unknown or ended one is ignored."""
        request = self._requests.pop(id, None)
        if request is not None:
            self._scheduler.remove(request)
            self._drafter.forget(id)

    def step(self) -> list[Delta]:
        """One pass of the target over every planned request; what each of them emitted."""
        started = time.perf_counter()
        works = self._scheduler.plan()
        trees = self._draft(works)
        batch = build_step_batch(
            [work.request for work in works], trees, [work.reaches_end for work in works]
        )
        logits = self._model.forward(batch)
        deltas: list[Delta] = []
        accepted = [
            self._advance(work, tree, rows, deltas)
            for work, tree, rows in zip(works, trees, _rows_of(works, trees, logits), strict=True)
        ]
        self._commit(works, trees, accepted)
        for delta in deltas:
            if delta.finish:
                self.cancel(delta.id)
        self._counters.count(works, trees, deltas, time.perf_counter() - started)
        return deltas

    def stats(self) -> EngineStats:
        """Counters since the start and gauges of the moment."""
        return self._counters.stats(self._scheduler, self._memory)

    def _draft(self, works: Sequence[Work]) -> list[TokenTree]:
        """Each request's known tokens with the drafter's nodes below, as far as slots are free."""
        shapes = [self._shape(work) for work in works]
        tasks = [
            DraftTask(work.request.id, work.request.tokens, shape)
            for work, shape in zip(works, shapes, strict=True)
            if shape
        ]
        drafts = iter(self._drafter.draft(tasks) if tasks else [])
        trees = []
        for work, shape in zip(works, shapes, strict=True):
            request = work.request
            known = request.tokens[request.committed : request.committed + work.count]
            tree = TokenTree.chain(known)
            if shape:
                draft: Draft = next(drafts)
                tree = tree.graft(draft.tokens, draft.parents)
                room = self._scheduler.lend_slots(work, tree.draft_nodes)
                tree = tree.trim(work.count + room)
            trees.append(tree)
        return trees

    def _shape(self, work: Work) -> TreeShape | None:
        """How large a tree this request may have in this step, if any."""
        speculation = work.request.params.speculation or self._speculation
        # The last token needs no draft: the step that emits it emits it at its root.
        levels = min(speculation.shape.num_steps, work.request.remaining - 1)
        if speculation.mode == "off" or not work.reaches_end or levels < 1:
            return None
        return TreeShape(levels, speculation.shape.topk, speculation.shape.num_draft_tokens)

    def _advance(
        self, work: Work, tree: TokenTree, rows: NDArray[np.float32], deltas: list[Delta]
    ) -> list[int]:
        """Walk one tree, emitting; the accepted nodes. ``rows`` are logits from the root on."""
        if not work.reaches_end:
            return []
        request, params = work.request, work.request.params
        tokens: list[int] = []
        logprobs: list[TokenLogprobs] = []
        finish: str | None = None

        def emit_after(node: int) -> int | None:
            nonlocal finish
            logits = rows[node - tree.root]
            token = emit(logits, params, request.tokens, request.prompt_length)
            tokens.append(token)
            if params.logprobs is not None:
                logprobs.append(log_probabilities(logits, token, params.logprobs))
            finish = request.append(token)
            return None if finish else token

        accepted = accept(tree, emit_after)
        deltas.append(
            Delta(
                id=request.id,
                token_ids=tokens,
                finish=finish,
                logprobs=logprobs if params.logprobs is not None else None,
                cached_tokens=request.cached_tokens or 0,
                proposed=tree.draft_nodes,
            )
        )
        return accepted

    def _commit(
        self, works: Sequence[Work], trees: Sequence[TokenTree], accepted: Sequence[list[int]]
    ) -> None:
        """Bring accepted nodes' K and V to their logical slots and give back the other slots."""
        sources: list[int] = []
        targets: list[int] = []
        for work, tree, nodes in zip(works, trees, accepted, strict=True):
            start = work.request.committed
            if nodes:
                slots = storage_slots(work.request, start, start + len(tree.tokens)).tolist()
                for target, node in enumerate(nodes, start=work.count):
                    if target != node:
                        sources.append(slots[node])
                        targets.append(slots[target])
            self._scheduler.commit(work.request, work.count + len(nodes))
        if sources:
            self._model.move_slots(sources, targets)


def _rows_of(
    works: Sequence[Work], trees: Sequence[TokenTree], logits: NDArray[np.float32]
) -> list[NDArray[np.float32]]:
    """Each work's rows of the step's logits, none where the request does not emit yet."""
    counts = [
        1 + tree.draft_nodes if work.reaches_end else 0
        for work, tree in zip(works, trees, strict=True)
    ]
    return np.split(logits, np.cumsum(counts)[:-1])
