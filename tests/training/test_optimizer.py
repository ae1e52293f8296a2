import pytest
import torch

from slipstream.training.optimizer import Muon, learning_rate_at, new_optimizers, orthogonalized


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


def test_every_weight_has_one_optimizer() -> None:
    weights = {
        "fc.weight": torch.zeros(2, 6),
        "midlayer.mlp.up_proj.weight": torch.zeros(4, 2),
        "norm.weight": torch.zeros(2),
        "lm_head.weight": torch.zeros(5, 2),
    }
    optimizers = new_optimizers(weights, 1e-3)
    held = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    assert sorted(map(id, held)) == sorted(map(id, weights.values()))
    assert [tuple(p.shape) for p in optimizers[0].param_groups[0]["params"]] == [(2, 6), (4, 2)]


def test_the_learning_rate_rises_briefly_and_falls_to_zero() -> None:
    rates = [learning_rate_at(share / 1000) for share in range(1, 1001)]
    peak = rates.index(max(rates))
    assert max(rates) == pytest.approx(1)
    assert peak < 50
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert rates[-1] == 0
