"""Noise that depends on nothing but (seed, position, token id).

Philox-4x32-10, a counter-based generator (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), turned into Gumbel noise: the argmax of logits plus Gumbel noise is an exact draw
from their softmax (Gumbel, 1954).
"""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)

# Uniforms are (n + 0.5) / 2**32, so noise lies between -log(33 log 2) and 33 log 2: a token whose
# scaled logit is further than the sum of both below the best cannot win.
NOISE_RANGE = 33 * np.log(2) + np.log(33 * np.log(2))


def philox(counter: tuple[NDArray[np.uint64], int, int, int], key: int) -> NDArray[np.uint64]:
    """The first 32-bit word of Philox-4x32-10 for each value of the counter's first word.

    ``counter`` holds four 32-bit words, ``key`` 64 bits; the result is ``[n]``, below 2**32.
    """
    first = counter[0]
    c0, c1, c2, c3 = first, *(np.full_like(first, word) for word in counter[1:])
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ np.uint64(k0),
            product1 & _LOW,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(k1),
            product0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0


def gumbel(seed: int, position: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Gumbel noise ``[n]`` of the given tokens at the position they would stand at."""
    words = philox((token_ids.astype(np.uint64), position, 0, 0), seed)
    uniforms = (words.astype(np.float64) + 0.5) * 2.0**-32
    return -np.log(-np.log(uniforms))
