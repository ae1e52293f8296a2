"""The optimizers and their learning rate."""

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

Mapper = Callable[..., Iterable[Any]]

BETAS = (0.9, 0.95)
MOMENTUM = 0.95
ADAMW_SHARE = 0.1  # of the learning rate
CLIP_NORM = 1.0
WEIGHT_DECAY = 0.01
WARMUP = 0.02  # of the run

# A quintic that pushes singular values towards 1 (K. Jordan, "Muon", 2024), and how often it runs.
_QUINTIC = (3.4445, -4.7750, 2.0315)
_ROUNDS = 5
_BLOCK = 192  # whole matrices would cost three times as much, a third of all training
_UPDATE_SIZE = 0.2  # root mean square of AdamW's updates (Liu et al., "Muon is Scalable", 2025)


class Optimizers:
    """Muon for the layer's matrices; AdamW, at a tenth of the rate, for the head, which the target
    has trained well, and for the norms, which do not decay.

    ``in_parallel`` maps a function over Muon's matrices.
    """

    def __init__(self, weights: Mapping[str, Tensor], in_parallel: Mapper = map) -> None:
        self._weights = list(weights.values())
        matrices = [w for name, w in weights.items() if w.dim() > 1 and name != "lm_head.weight"]
        norms = [w for w in self._weights if w.dim() == 1]
        others = [
            {"params": [weights["lm_head.weight"]], "weight_decay": WEIGHT_DECAY},
            {"params": norms, "weight_decay": 0.0},
        ]
        self._muon = Muon(matrices, 0.0, in_parallel)
        self._adamw = torch.optim.AdamW(others, lr=0.0, betas=BETAS, fused=True)

    def step(self, rate: float) -> None:
        """Follow the gradients and clear them; clips them to a norm of 1 before."""
        torch.nn.utils.clip_grad_norm_(self._weights, CLIP_NORM)
        for optimizer, share in ((self._muon, 1.0), (self._adamw, ADAMW_SHARE)):
            for group in optimizer.param_groups:
                group["lr"] = rate * share
            optimizer.step()
            optimizer.zero_grad()

    def state(self) -> list[dict[str, Any]]:
        """What `load` takes back."""
        return [self._muon.state_dict(), self._adamw.state_dict()]

    def load(self, state: list[dict[str, Any]]) -> None:
        """Go on as the optimizers did whose state this is."""
        for optimizer, saved in zip((self._muon, self._adamw), state, strict=True):
            optimizer.load_state_dict(saved)


def learning_rate_at(share: float) -> float:
    """The learning rate as a part of its peak, when this share of the run is done: a short
    warm-up, then a straight line to zero."""
    if share < WARMUP:
        return share / WARMUP
    return max(1 - share, 0.0) / (1 - WARMUP)


class Muon(torch.optim.Optimizer):
    """Momentum whose every update is made nearly orthogonal, so that no direction of a matrix is
    left behind. Its updates are as large as AdamW's."""

    def __init__(self, matrices: Iterable[Tensor], lr: float, in_parallel: Mapper = map) -> None:
        self._in_parallel = in_parallel
        super().__init__(matrices, {"lr": lr})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every matrix that has a gradient."""
        for group in self.param_groups:
            rates = repeat(group["lr"])
            for _ in self._in_parallel(self._update, group["params"], rates):
                pass

    @torch.no_grad()
    def _update(self, matrix: Tensor, rate: float) -> None:
        gradient = matrix.grad
        if gradient is None:
            return
        state: dict[str, Any] = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
        update = orthogonalized(torch.lerp(gradient, momentum, MOMENTUM))
        size = _UPDATE_SIZE * max(matrix.shape) ** 0.5
        matrix.mul_(1 - rate * WEIGHT_DECAY).add_(update, alpha=-rate * size)


def orthogonalized(matrix: Tensor) -> Tensor:
    """The matrix with its singular values brought near 1, by Newton-Schulz rounds on blocks of at
    most ``_BLOCK`` lines of its shorter side."""
    if len(matrix) > matrix.shape[1]:
        return orthogonalized(matrix.T).T
    return torch.cat([_newton_schulz(block) for block in matrix.split(_BLOCK)])


def _newton_schulz(x: Tensor) -> Tensor:
    a, b, c = _QUINTIC
    x = x / (x.norm() + 1e-7)
    for _ in range(_ROUNDS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x
