"""Which token the target emits: a pure function of one logits row and the tokens before it.

It does not know about batches, speculation or time, so these cannot change what is emitted. Rows
whose token does not depend on the tokens before it are drawn all at once, by the kernels; penalties
and bias are applied here, row by row, along the path that is walked.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.messages import TokenLogprobs
from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels.sampling_rows import SamplingRows
from slipstream.kernels.step_batch import StepBatch

Logits = NDArray[np.float32]  # [vocabulary]
Tokens = NDArray[np.int32]
Sample = Callable[[NDArray[np.float32], SamplingRows], Tokens]  # of the kernels


def sampling_rows(requests: Sequence[Request], batch: StepBatch) -> SamplingRows:
    """How the batch's logit rows are drawn from.

    Those of requests that adjust logits are left to `emit`; argmax is the cheapest to ask for.
    """
    params = [request.params for request in requests]
    temperatures = [
        0.0 if request.adjusts_logits else request.params.temperature for request in requests
    ]
    if not any(temperatures):
        return SamplingRows.greedy(len(batch.logit_rows))
    shares = [temperatures, [each.top_p for each in params], [each.min_p for each in params]]
    owners = batch.requests[batch.logit_rows]
    temperature, top_p, min_p = np.array(shares, dtype=np.float64).take(owners, axis=1)
    return SamplingRows(
        temperature=temperature,
        top_p=top_p,
        min_p=min_p,
        top_k=np.array([each.top_k for each in params], dtype=np.int32)[owners],
        seed=np.array([each.seed for each in params], dtype=np.uint64)[owners],
        position=batch.positions[batch.logit_rows] + 1,
    )


def emit(
    sample: Sample, logits: Logits, params: SamplingParams, tokens: Tokens, prompt_length: int
) -> int:
    """The token emitted after ``tokens``, the prompt and the output so far on this row's path.

    Penalties and bias, then what `SamplingRows` says.
    """
    row = SamplingRows(
        temperature=np.array([params.temperature], dtype=np.float64),
        top_p=np.array([params.top_p], dtype=np.float64),
        min_p=np.array([params.min_p], dtype=np.float64),
        top_k=np.array([params.top_k], dtype=np.int32),
        seed=np.array([params.seed], dtype=np.uint64),
        position=np.array([len(tokens)], dtype=np.int32),
    )
    return int(sample(_adjust(logits, params, tokens, prompt_length)[None], row)[0])


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
    logits = logits.copy()
    if params.repetition_penalty != 1:
        seen = np.unique(tokens)
        before = logits[seen]
        factor = np.float32(params.repetition_penalty)
        logits[seen] = np.where(before > 0, before / factor, before * factor)
    if params.presence_penalty != 0 or params.frequency_penalty != 0:
        seen, counts = np.unique(tokens[prompt_length:], return_counts=True)
        penalty = params.presence_penalty + params.frequency_penalty * counts
        logits[seen] -= penalty.astype(np.float32)
    for token, bias in params.logit_bias.items():
        logits[token] += np.float32(bias)
    return logits
