"""Drawing tokens from rows of logits, in numpy."""

import numpy as np
from numpy.typing import NDArray

from slipstream.kernels.noise import NOISE_RANGE, gumbel
from slipstream.kernels.sampling_rows import SamplingRows


def sample(logits: NDArray[np.float32], rows: SamplingRows) -> NDArray[np.int32]:
    """The token ``[L]`` that each row of ``[L, vocabulary]`` gives; `SamplingRows` defines it."""
    tokens: NDArray[np.int32] = np.argmax(logits, axis=1).astype(np.int32)
    for row in np.flatnonzero(rows.temperature):
        tokens[row] = _draw(logits[row], rows, int(row))
    return tokens


def _draw(logits: NDArray[np.float32], rows: SamplingRows, row: int) -> int:
    scaled = logits.astype(np.float64) / rows.temperature[row]
    scaled -= scaled.max()
    candidates = _truncate(
        scaled, int(rows.top_k[row]), float(rows.top_p[row]), float(rows.min_p[row])
    )
    noise = gumbel(int(rows.seed[row]), int(rows.position[row]), candidates)
    return int(candidates[np.argmax(scaled[candidates] + noise)])


def _truncate(
    scaled: NDArray[np.float64], top_k: int, top_p: float, min_p: float
) -> NDArray[np.int64]:
    """Ids that may win, ascending. ``scaled`` has its maximum at 0."""
    candidates = np.flatnonzero(scaled >= -NOISE_RANGE)
    if top_k or top_p < 1:
        ranked = candidates[np.argsort(-scaled[candidates], kind="stable")]
        if top_k:
            ranked = ranked[:top_k]
        if top_p < 1:
            weights = np.exp(scaled[ranked])
            total = weights.sum() if top_k else np.exp(scaled).sum()
            before = np.cumsum(weights) - weights
            ranked = ranked[: max(1, int(np.count_nonzero(before < top_p * total)))]
        candidates = np.sort(ranked)
    if min_p > 0:
        candidates = candidates[scaled[candidates] >= np.log(min_p)]
    return candidates


def rank(
    logits: NDArray[np.float32], rows: SamplingRows, ids: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Tokens and log probabilities ``[L, count]``; see `Kernels.rank`."""
    tokens = np.full((len(logits), count), -1, dtype=np.int32)
    logprobs = np.full((len(logits), count), -np.inf, dtype=np.float32)
    for row, values in enumerate(logits.astype(np.float64)):
        temperature = float(rows.temperature[row]) or 1.0
        scaled = (values - values.max()) / temperature
        candidates, noisy = np.arange(len(values)), scaled
        if rows.temperature[row]:
            candidates = _truncate(
                scaled, int(rows.top_k[row]), float(rows.top_p[row]), float(rows.min_p[row])
            )
            noise = gumbel(
                int(rows.seed[row]), int(rows.position[row]), ids[candidates].astype(np.int64)
            )
            noisy = scaled.copy()
            noisy[candidates] += noise
        best = candidates[np.argsort(-noisy[candidates], kind="stable")[:count]]
        weights = np.exp(noisy[best] * temperature)
        total = np.exp(scaled * temperature)
        total = total.sum() - total[best].sum() + weights.sum()
        tokens[row, : len(best)] = ids[best]
        logprobs[row, : len(best)] = np.minimum(0.0, np.log(weights / total))
    return tokens, logprobs
