"""Tiny random drafters for the tiny models."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.models.checkpoint import open_checkpoint
from slipstream.speculation.eagle3.checkpoint import expected_tensors, write_drafter
from slipstream.speculation.eagle3.config import Eagle3Config

DRAFT_VOCABULARY = 120


def make_tiny_drafter(
    target: Path, folder: Path, *, switches: Mapping[str, Any] | None = None, seed: int = 0
) -> Path:
    """Write a drafter for the model in ``target``; returns ``folder``.

    ``switches`` are fields of its configuration that are not the default.
    """
    checkpoint = open_checkpoint(str(target))
    fields = vars(Eagle3Config.for_target(checkpoint.config, DRAFT_VOCABULARY))
    config = Eagle3Config(**{**fields, **(switches or {})})
    generator = np.random.default_rng(seed)
    tensors = {
        name: (
            generator.uniform(0.5, 1.5, shape)
            if len(shape) == 1
            else generator.normal(scale=shape[1] ** -0.5, size=shape)
        ).astype(np.float32)
        for name, shape in expected_tensors(config)
    }
    ids = generator.choice(checkpoint.config.vocab_size, DRAFT_VOCABULARY, replace=False)
    write_drafter(folder, config, tensors, np.sort(ids).astype(np.int32))
    return folder
