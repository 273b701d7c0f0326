"""The shift for saturation: on rows with normal log odds, its symmetries, and after a step from little spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from dpvb.guards.arrays import Floats
from dpvb.models.regression import curvature_then_scores
from dpvb.models.regression.curvature_then_scores import saturation_shift
from dpvb.models.regression.descent import Average
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.moments import RowMoments, read_moments

COLUMN, NUMBER = 0.4, 20_000
LARGE = 1e3  # A change of probability that no linear model expects: then spread alone decides.


def rows(seed: int = 0) -> Floats:
    """Normal features of three different spreads beside a constant."""
    x_nd = 0.25 * np.random.default_rng(seed).standard_normal((NUMBER, 3)) * (1.0, 0.7, 0.4) + (0.1, 0.0, 0.0)
    return np.hstack([np.full((NUMBER, 1), COLUMN), x_nd])


def moments(x_nd: Floats) -> RowMoments:
    return read_moments(x_nd.T @ x_nd, 0.0, COLUMN, inner=False)


def shifted(before_d: Floats, after_d: Floats, expected: float) -> float:
    found = moments(rows())
    return saturation_shift(found, found.basis_de.T @ before_d, found.basis_de.T @ after_d, expected)


def weights(constant: float, *others: float) -> Floats:
    return np.array([constant / COLUMN, *(others or (0.0, 0.0, 0.0))])


@pytest.mark.parametrize("constant", [-4.0, -1.5, -0.5, 0.7, 3.0])
@pytest.mark.parametrize("size", [2.0, 6.0, 12.0])
def test_spread_alone_does_not_move_the_mean_probability(constant: float, size: float) -> None:
    """By the rows themselves, which are normal: within 0.02 of the value without spread, and nearer than unshifted."""
    start = constant + 0.1 * size  # the mean of the first feature is 0.1
    after_d, away, kept = weights(constant, size, size, -size), -np.sign(start) * LARGE, expit(start)
    psi_n = rows() @ after_d
    found = float(np.mean(expit(psi_n + shifted(weights(start), after_d, -away))))
    assert abs(found - kept) < 0.02
    assert abs(found - kept) <= abs(np.mean(expit(psi_n)) - kept) + 1e-3
    assert shifted(weights(start), after_d, away) == 0.0  # The linear model expects the mean to move the other way.


@given(st.tuples(*[st.floats(-8, 8)] * 8), st.floats(-1, 1))
def test_symmetries(values: tuple[float, ...], expected: float) -> None:
    """Zeros for ones changes the sign; less spread, or no step, needs nothing; the linear model bounds it."""
    before_d, after_d = np.array(values[:4]), np.array(values[4:])
    found = shifted(before_d, after_d, expected)
    assert np.isfinite(found)
    assert shifted(-before_d, -after_d, -expected) == pytest.approx(-found, abs=1e-9)
    assert shifted(before_d, before_d, 0.0) == pytest.approx(0.0, abs=1e-9)
    assert shifted(after_d, weights(before_d[0]), expected) == 0.0
    bounds = [abs(shifted(before_d, after_d, sign * LARGE)) for sign in (1, -1)]
    assert abs(found) <= max(bounds) + 1e-9


def test_without_a_constant_among_the_columns_nothing_is_moved() -> None:
    found = replace(moments(rows()), constant_e=np.zeros(4))
    assert saturation_shift(found, np.zeros(4), 5.0 * np.ones(4), -LARGE) == 0.0


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_newton_step_from_little_spread_predicts_as_many_ones_as_there_are(
    sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact score and curvature at the base rate: the step's own mean probability is off by more than 0.05."""
    x_nd = rows(1)
    p_n = expit(sign * (x_nd @ weights(-4.0, 14.0, 10.0, 0.0)))
    y_n = (np.random.default_rng(2).random(NUMBER) < p_n).astype(np.float64)
    found, base = moments(x_nd), float(y_n.mean())
    model = FirstOrder(4, intercept=COLUMN, alpha=1e-3)
    start_e = np.log(base / (1 - base)) * found.constant_e
    score_e = found.basis_de.T @ (x_nd.T @ (y_n - base))
    path = replace(
        model.init(np.random.default_rng(0)),
        moments=found,
        start_e=start_e,
        mean=Average(start_e, score_e, 0.0),
        curvature_ee=np.diag(base * (1 - base) * found.eigenvalue_e / found.scale_e**2),
    )
    after = float(np.mean(expit(x_nd @ model.weights(path).mean_d)))
    monkeypatch.setattr(curvature_then_scores, "saturation_shift", lambda *given: 0.0)
    without = float(np.mean(expit(x_nd @ model.weights(path).mean_d)))
    assert sign * (base - without) < -0.05
    assert abs(after - base) < 0.02
