"""Checking how much to speculate, for the command line and for requests alike."""

from slipstream.engine.params import TreeShape

_MAX = 256  # levels, children, rows: far beyond what pays


def tree_shape(
    num_steps: int | None, topk: int | None, num_draft_tokens: int | None, max_rows: int
) -> TreeShape:
    """A shape from the given numbers, the missing ones filled in.

    Raises ValueError with one line that says which number is wrong and what would be right.
    ``max_rows`` is what one step can hold.
    """
    steps = 4 if num_steps is None else num_steps
    width = 4 if topk is None else topk
    if not 1 <= steps <= _MAX:
        raise ValueError(f"num_steps must be from 1 to {_MAX}, not {steps}")
    if not 1 <= width <= _MAX:
        raise ValueError(f"topk must be from 1 to {_MAX}, not {width}")
    chain = steps + 1  # the root and one node per level
    if num_draft_tokens is None:
        num_draft_tokens = chain if width == 1 else min(16, max_rows)
    if width == 1 and num_draft_tokens != chain:
        raise ValueError(
            f"topk 1 drafts a chain of num_steps nodes below the root, so num_draft_tokens must be "
            f"{chain} (num_steps + 1), not {num_draft_tokens}"
        )
    if not 2 <= num_draft_tokens <= max_rows:
        raise ValueError(
            f"num_draft_tokens must be from 2 to {max_rows} (the rows of one step), "
            f"not {num_draft_tokens}"
        )
    return TreeShape(num_steps=steps, topk=width, num_draft_tokens=num_draft_tokens)
