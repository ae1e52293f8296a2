"""A checkpoint's forward pass, without an engine."""

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels import Kernels, KVDtype
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.transformer import Transformer, Weights
from slipstream.speculation.batch import build_step_batch
from slipstream.speculation.tree import TokenTree


def all_logits(
    checkpoint: Checkpoint,
    tokens: list[int],
    kernels: Kernels,
    kv_dtype: KVDtype = "auto",
    chunk: int = 64,
) -> NDArray[np.float32]:
    """Logits after every token, float32 ``[tokens, vocabulary]``, computed chunk by chunk."""
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
    request.pages = list(reversed(range(pages)))
    rows = []
    for start in range(0, len(tokens), chunk):
        part = TokenTree.chain(request.tokens[start : start + chunk])
        # A root at the first token of the chunk asks for the logits of all of it.
        rooted = TokenTree(part.tokens, part.parents, root=0)
        rows.append(model.forward(build_step_batch([request], [rooted], [True])).copy())
        request.committed += len(part.tokens)
    return np.concatenate(rows)


def as_stored(model: PreTrainedModel, checkpoint: Checkpoint) -> PreTrainedModel:
    """transformers' ``model`` with the values that ``checkpoint`` has."""
    weights = {
        name: torch.from_numpy(checkpoint.weight(name).float32()) for name in checkpoint.shapes
    }
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = ["lm_head.weight"] if checkpoint.config.tie_word_embeddings else []
    assert (missing, unexpected) == (tied, [])
    model.tie_weights()
    return model.eval()
