from copy import deepcopy

import pytest
import torch

from slipstream.training.optimizer import Muon, Optimizers, learning_rate_at, orthogonalized


@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (20, 20)])
def test_orthogonalized_keeps_directions_and_evens_out_their_sizes(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    result = orthogonalized(matrix)
    assert result.shape == shape
    sizes = torch.linalg.svdvals(result)
    assert 0.5 < sizes.min() <= sizes.max() < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    rotated = left.T @ result @ right.T
    torch.testing.assert_close(rotated, torch.diag(rotated.diag()), rtol=0, atol=1e-4)


def test_muon_finds_a_matrix() -> None:
    generator = torch.Generator().manual_seed(0)
    wanted = torch.randn(6, 9, generator=generator)
    matrix = torch.zeros(6, 9, requires_grad=True)
    optimizer = Muon([matrix], 0.1)
    for step in range(200):
        optimizer.param_groups[0]["lr"] = 0.3 * (1 - step / 200)
        (matrix - wanted).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(matrix.detach(), wanted, rtol=0, atol=0.05)


def test_every_weight_is_trained_and_goes_on_after_loading() -> None:
    def new_weights() -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        return {
            name: torch.randn(shape, generator=generator).requires_grad_()
            for name, shape in {
                "fc.weight": (2, 6),
                "midlayer.mlp.up_proj.weight": (4, 2),
                "norm.weight": (2,),
                "lm_head.weight": (5, 2),
            }.items()
        }

    def step(weights: dict[str, torch.Tensor], optimizers: Optimizers) -> None:
        sum(weight.square().sum() for weight in weights.values()).backward()
        optimizers.step(0.1)
        assert not any(weight.grad is not None for weight in weights.values())

    weights, copies = new_weights(), new_weights()
    optimizers, other = Optimizers(weights), Optimizers(copies)
    step(weights, optimizers)
    for name, begun in new_weights().items():
        assert not torch.equal(weights[name], begun), name
    with torch.no_grad():
        for name, weight in copies.items():
            weight.copy_(weights[name])
    other.load(deepcopy(optimizers.state()))
    step(weights, optimizers)
    step(copies, other)
    assert all(torch.equal(weights[name], copies[name]) for name in weights)


def test_the_learning_rate_rises_briefly_and_falls_to_zero() -> None:
    rates = [learning_rate_at(share / 1000) for share in range(1, 1001)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(1)
    assert peak < 50
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == 0
