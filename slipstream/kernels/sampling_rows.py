"""How each row of a step's logits becomes a token: what the kernels need to know of it."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SamplingRows:
    """L rows of logits, each drawn from by its own rules.

    Temperature 0 is argmax. Otherwise logits are divided by the temperature; top-k, then top-p,
    then min-p keep the most probable tokens; of those the one wins whose scaled logit plus noise,
    keyed by (seed, position, token id), is largest: an exact draw. Ties go to the lowest id.
    """

    temperature: NDArray[np.float64]  # [L]
    top_p: NDArray[np.float64]  # [L] keeps the best tokens that reach this mass; 1 keeps all
    min_p: NDArray[np.float64]  # [L] keeps tokens this probable relative to the best; 0 keeps all
    top_k: NDArray[np.int32]  # [L] keeps so many; 0 keeps all
    seed: NDArray[np.uint64]  # [L]
    position: NDArray[np.int32]  # [L] where the token would stand

    @classmethod
    def greedy(cls, count: int) -> Self:
        """So many rows of which all are argmax; then nothing else is looked at."""
        numbers = np.zeros(count)
        whole = np.zeros(count, dtype=np.int32)
        return cls(numbers, numbers, numbers, whole, numbers.view(np.uint64), whole)
