"""How far each kernel set's distributions are from those of float32, on a text.

    python benchmarks/accuracy.py --text LICENSE --tokens 400

The reference is the torch kernels, which compute with the same weights in float32. Per kernel set
and type of keys and values: the mean and largest Kullback-Leibler divergence from the reference,
the share of places with the same most likely token, and the loss on the text itself.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels import Kernels, KVDtype
from slipstream.kernels.native import _native
from slipstream.kernels.native.isa import ISAS
from slipstream.kernels.native.kernels import NativeKernels
from slipstream.kernels.torch.kernels import TorchKernels
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.tokenizer import load_tokenizer
from slipstream.models.transformer import Transformer, Weights
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree

LogProbabilities = NDArray[np.float64]  # [tokens, vocabulary]


def compute(
    checkpoint: Checkpoint, kernels: Kernels, tokens: list[int], kv_dtype: KVDtype
) -> LogProbabilities:
    """Log probabilities after every token, all in one step."""
    pages = pages_for(len(tokens))
    model = Transformer(
        checkpoint.config,
        Weights.load(checkpoint, kernels),
        kernels,
        pages=pages,
        max_model_len=pages * PAGE_SIZE,
        kv_dtype=kv_dtype,
    )
    request = Request.start(0, tokens, SamplingParams(max_tokens=1))
    request.pages = list(range(pages))
    chain = TokenTree.chain(request.tokens[: len(tokens)])
    rooted = TokenTree(chain.tokens, chain.parents, root=0)  # logits of all tokens
    logits = model.forward(build_step_batch([request], [rooted], [True])).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--text", type=Path, default=Path("LICENSE"))
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--model", default="default")
    arguments = parser.parse_args()
    checkpoint = open_checkpoint(arguments.model)
    text = arguments.text.read_text()
    tokens = load_tokenizer(checkpoint).encode(text)[: arguments.tokens]
    following = np.array(tokens[1:])

    def loss(found: LogProbabilities) -> float:
        return float(-np.take_along_axis(found[:-1], following[:, None], axis=1).mean())

    reference = compute(checkpoint, TorchKernels(), tokens, "auto")
    print(f"{'torch float32':24} | loss {loss(reference):.4f}")
    for isa in filter(_native.supports, ISAS):
        kv_dtypes: tuple[KVDtype, ...] = ("bf16", "int8")
        for kv_dtype in kv_dtypes:
            found = compute(checkpoint, NativeKernels(isa), tokens, kv_dtype)
            divergence = (np.exp(reference) * (reference - found)).sum(axis=1)
            same = (found.argmax(axis=1) == reference.argmax(axis=1)).mean()
            print(
                f"native {isa:8} K/V {kv_dtype:4} | loss {loss(found):.4f} | "
                f"divergence mean {divergence.mean():.5f}, largest {divergence.max():.4f} | "
                f"same argmax {same:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
