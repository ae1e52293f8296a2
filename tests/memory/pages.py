"""Pages of tokens, each page named by one number."""

import numpy as np
from numpy.typing import NDArray

from slipstream.memory.pool import PAGE_SIZE


def text(*pages: int) -> NDArray[np.int32]:
    """Tokens that fill one page per number, ``[len(pages) * PAGE_SIZE]``."""
    return np.repeat(np.array(pages, dtype=np.int32), PAGE_SIZE)
