"""Our logits against transformers', both in float32.

Tolerances: the two add the same numbers in different orders, so logits differ by rounding only. A
sum of n float32 products has a relative error of about sqrt(n) * 2**-24; through the layers of the
tiny models this stays below 1e-5 of logits of size 4 (seen: 5e-6), through the 30 layers of the
default model below 1e-3 of logits of size 40 (seen: 1.3e-4). A wrong norm, rotation or head mapping
is off by more than 0.1.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from slipstream.engine.batch import build_step_batch
from slipstream.engine.params import SamplingParams
from slipstream.engine.request import Request
from slipstream.kernels import choose_kernels
from slipstream.memory.pool import PAGE_SIZE, pages_for
from slipstream.models.checkpoint import Checkpoint, open_checkpoint
from slipstream.models.tokenizer import load_tokenizer
from slipstream.models.transformer import Transformer, Weights
from slipstream.speculation.tree import TokenTree
from tests.models.tiny import ARCHITECTURES, make_tiny


def all_logits(checkpoint: Checkpoint, tokens: list[int], chunk: int) -> NDArray[np.float32]:
    """Logits after every token, float32 ``[tokens, vocabulary]``, computed chunk by chunk."""
    kernels = choose_kernels(None)
    pages = pages_for(len(tokens))
    model = Transformer(
        checkpoint.config,
        Weights.load(checkpoint, kernels),
        kernels,
        pages=pages,
        max_model_len=pages * PAGE_SIZE,
    )
    request = Request.start(0, tokens, SamplingParams(max_tokens=1))
    request.pages = list(reversed(range(pages)))
    rows = []
    for start in range(0, len(tokens), chunk):
        part = TokenTree.chain(request.tokens[start : start + chunk])
        # A root at the first token of the chunk asks for the logits of all of it.
        rooted = TokenTree(part.tokens, part.parents, root=0)
        rows.append(model.forward(build_step_batch([request], [rooted], [True])))
        request.committed += len(part.tokens)
    return np.concatenate(rows)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiny_models(architecture: str, tmp_path: Path) -> None:
    reference = make_tiny(architecture, tmp_path / "model")
    tokens = np.random.default_rng(0).integers(0, 350, size=150).tolist()
    expected = reference(torch.tensor([tokens])).logits[0].detach().numpy()
    found = all_logits(open_checkpoint(str(tmp_path / "model")), tokens, chunk=64)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


def test_default_model_on_real_text() -> None:
    checkpoint = open_checkpoint("default")
    text = (Path(__file__).parents[2] / "LICENSE").read_text()
    tokens = load_tokenizer(checkpoint).encode(text)[:400]
    found = all_logits(checkpoint, tokens, chunk=256)
    expected = transformers_logits(checkpoint, tokens)
    assert np.abs(expected).max() > 10
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=0)
    # The text is likely, and the most likely next token is the same nearly everywhere.
    chosen = np.take_along_axis(expected, np.array([*tokens[1:], 0])[:, None], 1)[:-1, 0]
    loss = (torch.from_numpy(expected).logsumexp(-1)[:-1].numpy() - chosen).mean()
    assert loss < 3
    assert (found.argmax(-1) == expected.argmax(-1)).mean() > 0.99


def transformers_logits(checkpoint: Checkpoint, tokens: list[int]) -> NDArray[np.float32]:
    """The same weights in transformers' own model."""
    config = checkpoint.config
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.num_layers,
            num_attention_heads=config.num_heads,
            num_key_value_heads=config.num_kv_heads,
            rms_norm_eps=config.rms_norm_eps,
            rope_theta=config.rope_theta,
            max_position_embeddings=config.max_position_embeddings,
            tie_word_embeddings=config.tie_word_embeddings,
        )
    )
    weights = {
        name: torch.from_numpy(checkpoint.weight(name).float32()) for name in checkpoint.shapes
    }
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], [])
    model.tie_weights()
    return model.eval()(torch.tensor([tokens])).logits[0].detach().numpy()
