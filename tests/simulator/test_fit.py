"""The machine that others measured: fitted on three figures, it predicts the other three."""

import pytest

from slipstream.simulator.fit import MEASUREMENTS, PARAMETERS, fit, predicted, values_of
from slipstream.simulator.machine import EIGHT_PCIE_GPUS


def test_only_three_figures_are_fitted() -> None:
    fitted = [each.name for each in MEASUREMENTS if each.fitted]
    assert fitted == ["off at C=1", "EAGLE-3 at C=1", "EAGLE-3 at C=2"]


def test_the_built_in_machine_is_the_fitted_one() -> None:
    found, built_in = values_of(fit(EIGHT_PCIE_GPUS)), values_of(EIGHT_PCIE_GPUS)
    assert found == pytest.approx(built_in, rel=0.01)
    for parameter, value in zip(PARAMETERS, found, strict=True):
        assert parameter.least < value < parameter.most


@pytest.mark.parametrize("measurement", MEASUREMENTS, ids=lambda each: each.name)
def test_figures(measurement: object) -> None:
    each = next(one for one in MEASUREMENTS if one is measurement)
    error = predicted(EIGHT_PCIE_GPUS, each) / each.rate - 1
    assert abs(error) < (0.02 if each.fitted else 0.20)
