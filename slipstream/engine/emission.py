"""Which token the target emits: a pure function of one logits row and the tokens before it.

It does not know about batches, speculation or time, so these cannot change what is emitted.
"""

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.messages import TokenLogprobs
from slipstream.engine.noise import NOISE_RANGE, gumbel
from slipstream.engine.params import SamplingParams

Logits = NDArray[np.float32]  # [vocabulary]
Tokens = NDArray[np.int32]


def emit(logits: Logits, params: SamplingParams, tokens: Tokens, prompt_length: int) -> int:
    """The token emitted after ``tokens``, the prompt and the output so far on this row's path.

    Temperature 0 is argmax. Otherwise penalties and bias, temperature, top-k, top-p and min-p, then
    the argmax of what is left plus noise keyed by (seed, position, token id). Ties go to the
    lowest id.
    """
    logits = _adjust(logits, params, tokens, prompt_length)
    if params.temperature == 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / params.temperature
    scaled -= scaled.max()
    candidates = _truncate(scaled, params)
    noise = gumbel(params.seed, len(tokens), candidates)
    return int(candidates[np.argmax(scaled[candidates] + noise)])


def log_probabilities(logits: Logits, token: int, top: int) -> TokenLogprobs:
    """Log probabilities of ``token`` and of the ``top`` best, from the model's own logits.

    Ties go to the lowest id; a vocabulary smaller than ``top`` is given whole.
    """
    shifted = logits.astype(np.float64) - logits.max()
    shifted -= np.log(np.exp(shifted).sum())
    best = _largest(logits, min(top, len(logits)))
    return TokenLogprobs(float(shifted[token]), [(int(t), float(shifted[t])) for t in best])


def _largest(values: Logits, count: int) -> NDArray[np.int64]:
    """Ids of the ``count`` largest values, best first, ties to the lowest id."""
    least = np.partition(values, -count)[-count] if count else np.inf
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")][:count]


def _adjust(logits: Logits, params: SamplingParams, tokens: Tokens, prompt_length: int) -> Logits:
    """Logits after penalties and bias; the array given is left as it was.

    Repetition divides positive and multiplies negative logits (Keskar et al., "CTRL", 2019);
    presence and frequency subtract, as OpenAI documents.
    """
    penalised = params.presence_penalty != 0 or params.frequency_penalty != 0
    if params.repetition_penalty == 1 and not penalised and not params.logit_bias:
        return logits
    logits = logits.copy()
    if params.repetition_penalty != 1:
        seen = np.unique(tokens)
        before = logits[seen]
        factor = np.float32(params.repetition_penalty)
        logits[seen] = np.where(before > 0, before / factor, before * factor)
    if penalised:
        seen, counts = np.unique(tokens[prompt_length:], return_counts=True)
        penalty = params.presence_penalty + params.frequency_penalty * counts
        logits[seen] -= penalty.astype(np.float32)
    for token, bias in params.logit_bias.items():
        logits[token] += np.float32(bias)
    return logits


def _truncate(scaled: NDArray[np.float64], params: SamplingParams) -> NDArray[np.int64]:
    """Ids that may win, ascending. ``scaled`` has its maximum at 0."""
    candidates = np.flatnonzero(scaled >= -NOISE_RANGE)
    if params.top_k or params.top_p < 1:
        ranked = candidates[np.argsort(-scaled[candidates], kind="stable")]
        if params.top_k:
            ranked = ranked[: params.top_k]
        if params.top_p < 1:
            weights = np.exp(scaled[ranked])
            total = weights.sum() if params.top_k else np.exp(scaled).sum()
            before = np.cumsum(weights) - weights
            ranked = ranked[: max(1, int(np.count_nonzero(before < params.top_p * total)))]
        candidates = np.sort(ranked)
    if params.min_p > 0:
        candidates = candidates[scaled[candidates] >= np.log(params.min_p)]
    return candidates
