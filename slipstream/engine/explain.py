"""What the policy did, in a line for people who turned debug logging on."""

from slipstream.speculation.policy.summary import Summary


def explain(summary: Summary) -> str:
    """Nodes, and what was predicted against what came, of some steps, at least one."""
    steps = summary.steps
    drafting = summary.draft_seconds
    predicted = summary.expected_tokens / max(summary.expected_seconds + drafting, 1e-9)
    real = summary.emitted / max(summary.seconds + drafting, 1e-9)
    return (
        f"{steps} steps; nodes: {summary.drafted} proposed, {summary.kept} kept, "
        f"{summary.accepted} accepted; step: {1e3 * summary.expected_seconds / steps:.2f} ms "
        f"predicted, {1e3 * summary.seconds / steps:.2f} ms real, and "
        f"{1e3 * drafting / steps:.2f} ms of drafting; goodput: {predicted:.1f} tok/s predicted, "
        f"{real:.1f} real"
    )
