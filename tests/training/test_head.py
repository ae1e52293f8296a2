import numpy as np
import pytest
import torch

from slipstream.training.head import CHUNK, Columns, SoftCrossEntropy

ROWS, HIDDEN, TOKENS, VOCABULARY = CHUNK + 7, 16, 40, 60


@pytest.fixture
def case() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    return {
        "x": randn(ROWS, HIDDEN).requires_grad_(),
        "weight": (randn(VOCABULARY, HIDDEN)).requires_grad_(),
        "bias": randn(VOCABULARY),
        "targets": torch.softmax(3 * randn(TOKENS, VOCABULARY), 1),
        "places": torch.randint(TOKENS, (ROWS,), generator=generator),
        "row_weights": torch.rand(ROWS, generator=generator),
    }


def plain_loss(case: dict[str, torch.Tensor]) -> torch.Tensor:
    logs = torch.log_softmax(case["x"] @ case["weight"].T + case["bias"], 1)
    losses = -(case["targets"][case["places"]] * logs).sum(1)
    return (losses * case["row_weights"]).sum()


def test_loss_and_gradients_equal_autograds(case: dict[str, torch.Tensor]) -> None:
    ranks = torch.empty(ROWS, dtype=torch.int64)
    loss = SoftCrossEntropy.apply(*case.values(), ranks)
    (loss * 0.5).backward()
    ours = case["x"].grad, case["weight"].grad
    case["x"].grad = case["weight"].grad = None
    expected = plain_loss(case)
    (expected * 0.5).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(ours, (case["x"].grad, case["weight"].grad), rtol=1e-4, atol=1e-5)


def test_ranks_count_the_tokens_before_the_targets_favourite(
    case: dict[str, torch.Tensor],
) -> None:
    ranks = torch.empty(ROWS, dtype=torch.int64)
    SoftCrossEntropy.apply(*case.values(), ranks)
    logits = (case["x"] @ case["weight"].T + case["bias"]).detach()
    order = logits.argsort(1, descending=True)
    favourites = case["targets"][case["places"]].argmax(1, keepdim=True)
    assert torch.equal(ranks, (order == favourites).int().argmax(1))
    assert 0 < ranks.float().mean() < VOCABULARY


def test_drawn_columns_stand_for_all(case: dict[str, torch.Tensor]) -> None:
    """Over many draws the softmax's denominator and the targets sum up to the whole vocabulary."""
    rng = np.random.default_rng(0)
    targets, logits = case["targets"], (case["x"] @ case["weight"].T).detach()[:TOKENS]
    denominators, shares = [], []
    for _ in range(400):
        columns = Columns.draw(targets, 20, 10, rng)
        assert len(columns.ids) == len(columns.ids.unique()) == 30
        denominators.append((logits[:, columns.ids] + columns.bias).exp().sum(1))
        shares.append(columns.of(targets).sum(1))
    exact = logits.exp().sum(1)
    torch.testing.assert_close(torch.stack(denominators).mean(0), exact, rtol=0.2, atol=0)
    torch.testing.assert_close(torch.stack(shares).mean(0), torch.ones(TOKENS), rtol=0.1, atol=0)


def test_the_columns_with_most_probability_are_always_there(
    case: dict[str, torch.Tensor],
) -> None:
    best = set(case["targets"].sum(0).argsort(descending=True)[:20].tolist())
    columns = Columns.draw(case["targets"], 20, 10, np.random.default_rng(0))
    assert set(columns.ids[:20].tolist()) == best
    assert not columns.bias[:20].any()
    assert columns.bias[20:].unique().numel() == 1


def test_a_small_vocabulary_is_taken_whole(case: dict[str, torch.Tensor]) -> None:
    columns = Columns.draw(case["targets"], 30, 30, np.random.default_rng(0))
    assert torch.equal(columns.of(case["targets"]), case["targets"])


def test_products_in_bfloat16_stay_close(case: dict[str, torch.Tensor]) -> None:
    ranks = torch.empty(ROWS, dtype=torch.int64)
    with torch.autocast("cpu", torch.bfloat16):
        loss = SoftCrossEntropy.apply(*case.values(), ranks)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain_loss(case), rtol=0.02, atol=0)
