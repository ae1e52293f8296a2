"""The model card beside a trained drafter: what it is, how it was made, how often it is right."""

from collections.abc import Mapping

import msgspec

from slipstream.speculation.tree import TreeShape
from slipstream.training.evaluate import Acceptance, ordered


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """How a drafter was made."""

    target: str
    command: str
    prompts: str  # where they came from
    conversations: int
    tokens: int  # of the corpus
    draft_vocab_size: int
    coverage: float  # the share of the answers' tokens that are in the draft vocabulary
    levels: int
    epochs: float
    seconds: float  # of training
    threads: int
    machine: str


_CARD = """---
base_model: {target}
tags: [eagle3, speculative-decoding]
---

# EAGLE-3 drafter for {target}

Proposes tokens that the target accepts or rejects, so that it answers in fewer steps: one decoder
layer over the target's features and {draft_vocab_size} draft tokens, in SpecForge's layout.

## How it was made

    {command}

- {conversations} conversations, {tokens} tokens: {prompts}, answered by the target itself, three
  of five greedily, the others sampled. One of fifty was kept for the table below.
- {epochs:g} passes of EAGLE-3 training over {levels} levels: {hours:.1f} hours, {threads} threads,
  {machine}.
- The draft vocabulary has {coverage:.1%} of the answers' tokens.

## How often it is right

Held-out prompts, greedy, trees of {steps} levels, topk {topk}, {rows} draft tokens, the root
counted. Accepted length is tokens per step; a depth's share is of the steps that got there.

{table}
"""


def model_card(making: Making, results: Mapping[str, Acceptance], shape: TreeShape) -> str:
    """Markdown with the header that the Hugging Face hub reads."""
    return _CARD.format(
        **msgspec.structs.asdict(making),
        hours=making.seconds / 3600,
        steps=shape.num_steps,
        topk=shape.topk,
        rows=shape.num_draft_tokens,
        table="\n".join(_rows(results, shape.num_steps)),
    )


def _rows(results: Mapping[str, Acceptance], levels: int) -> list[str]:
    depths = [f"depth {depth}" for depth in range(1, levels + 1)]
    rows = [["text", "accepted length", *depths], ["---"] * (levels + 2)]
    for kind in ordered(results):
        shares = [f"{share:.2f}" for share in results[kind].by_depth(levels)]
        rows.append([kind, f"{results[kind].accepted_length:.2f}", *shares])
    return [f"| {' | '.join(row)} |" for row in rows]
