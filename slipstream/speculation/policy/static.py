"""Speculation that does not adapt: off, the same tree at any load, or by the number of requests."""

from slipstream.speculation.policy.settings import Speculation
from slipstream.speculation.tree import TreeShape


def static_shape(speculation: Speculation, decoding: int, remaining: int) -> TreeShape | None:
    """The tree of a request that may still emit ``remaining`` tokens while ``decoding`` requests
    decode; None to draft nothing."""
    shape = speculation.shape
    if speculation.mode == "schedule":
        rows = next(
            (step.rows for step in speculation.schedule if step.low <= decoding <= step.high), 1
        )
        shape = TreeShape(shape.num_steps, shape.topk, rows)
    elif speculation.mode != "fixed":
        return None
    # The last token needs no draft: the step that emits it emits it at its root.
    levels = min(shape.num_steps, remaining - 1)
    if levels < 1 or shape.num_draft_tokens < 2:
        return None
    return TreeShape(levels, shape.topk, shape.num_draft_tokens)
