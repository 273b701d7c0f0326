"""Fits with too few steps: the warning, the head of the table, and the coverage that both are about."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from scipy.stats import binom

import dpvb
from dpvb.errors import NotSettledWarning
from dpvb.models.regression.descent import FALSE_ALARM, Average, farthest, steady_variance

TRUTH = np.array([2.0, -2.0, 1.0, -1.0])
REPEATS, SAID = 8, "The fit had too few steps"


def fitted(seed: int, rows: int = 20_000, **options: Any) -> tuple[Any, int, bool]:
    """A fit to simulated rows, how many of its intervals contain the truth, and whether it warned."""
    rng = np.random.default_rng(seed)
    x_nd = rng.uniform(-1, 1, (rows, len(TRUTH)))
    linear, options = options.get("linear", False), {k: v for k, v in options.items() if k != "linear"}
    shared = {"low": -1, "high": 1, "epsilon": 1.0, "delta": 1e-6, "random_state": seed, **options}
    if linear:
        y_n = x_nd @ TRUTH + rng.standard_normal(len(x_nd))
        model: Any = dpvb.LinearRegression(y_range=(-10, 10), **shared)
    else:
        y_n = rng.random(len(x_nd)) < 1 / (1 + np.exp(-x_nd @ TRUTH))
        model = dpvb.LogisticRegression(**shared)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model.fit(x_nd, y_n)
    low, high = model.credible_interval()
    return model, int(((low <= TRUTH) & (high >= TRUTH)).sum()), any(w.category is NotSettledWarning for w in seen)


@pytest.mark.parametrize(
    "options", [{"n_steps": 2}, {"n_steps": 8, "covariance": "diagonal"}], ids=["full", "diagonal"]
)
def test_intervals_after_too_few_steps_are_too_narrow_and_the_fit_says_so(options: dict[str, Any]) -> None:
    fits = [fitted(seed, **options) for seed in range(REPEATS)]
    assert sum(hits for _, hits, _ in fits) < 0.5 * REPEATS * len(TRUTH)
    assert all(warned for *_, warned in fits)
    assert all(SAID in str(model.coefficients()) for model, *_ in fits)


@pytest.mark.parametrize(
    "options",
    [
        {},
        pytest.param({"n_steps": 32, "covariance": "diagonal"}, marks=pytest.mark.slow),
        {"n_steps": 1, "linear": True},
    ],
    ids=str,
)
def test_intervals_of_a_fit_that_does_not_warn_cover_the_truth(options: dict[str, Any]) -> None:
    # The score of a linear regression is linear: one step is enough.
    fits = [fitted(seed, **options) for seed in range(REPEATS)]
    assert not any(warned for *_, warned in fits)
    assert not any(SAID in str(model.coefficients()) for model, *_ in fits)
    # At a coverage of at least 90 %, false with probability 1e-6; seeds 0 to 7.
    number = REPEATS * len(TRUTH)
    assert number - sum(hits for _, hits, _ in fits) <= binom.isf(1e-6, number, 0.1)


def test_a_saved_model_says_that_it_had_too_few_steps(tmp_path: Path) -> None:
    model, _, _ = fitted(0, n_steps=4)
    model.save(tmp_path / "short.dpvb")
    assert SAID in str(dpvb.load(tmp_path / "short.dpvb").coefficients())


@pytest.mark.parametrize("options", [{}, {"covariance": "diagonal", "n_steps": 16}], ids=["full", "diagonal"])
def test_noise_alone_makes_few_fits_warn(options: dict[str, Any]) -> None:
    # If each of 60 fits warns with probability 1e-3, six or more warn with probability 5e-11; seeds 0 to 59.
    rng = np.random.default_rng(0)
    sizes = zip(rng.integers(50, 500, 60), rng.uniform(0.1, 1.0, 60), strict=True)
    warned = [fitted(seed, int(n), epsilon=float(eps), **options)[2] for seed, (n, eps) in enumerate(sizes)]
    assert sum(warned) <= binom.isf(1e-6, 60, FALSE_ALARM)


def test_scores_of_early_steps_do_not_narrow_intervals_of_precise_fits() -> None:
    # Eight steps at this noise: with equal weights of early scores 65 % of intervals contained the truth.
    fits = [fitted(seed, n_steps=8) for seed in range(16)]
    assert not any(warned for *_, warned in fits)
    # At a coverage of at least 90 %, false with probability 1e-6; seeds 0 to 15.
    assert 64 - sum(hits for _, hits, _ in fits) <= binom.isf(1e-6, 64, 0.1)


def test_the_steady_variance_is_that_of_the_path() -> None:
    """The covariance of an autoregression of order 2 solves a linear equation."""
    rng = np.random.default_rng(0)
    for slope, noise, momentum in rng.uniform(0.05, 0.95, (20, 3)):
        # (x, x before) after a step from u = (1 + β) x - β x before, bound 1.
        step = np.array([[(1 + momentum) * (1 - slope), -momentum * (1 - slope)], [1.0, 0.0]])
        covariance = solve_discrete_lyapunov(step, np.diag([noise, 0.0]))
        to_point = np.array([1 + momentum, -momentum])
        found = steady_variance(np.array([slope]), np.ones(1), np.array([noise]), momentum)
        np.testing.assert_allclose(found, to_point @ covariance @ to_point)


def test_the_farthest_that_noise_leads_has_the_stated_rate() -> None:
    # Equal means: exactly chi squared. Unequal ones: at most twice the rate. Within 5 standard errors: 6e-7; seed 1.
    rng, number = np.random.default_rng(1), 400_000
    for mean_e, most in ((np.full(5, 2.0), 1.0), (np.array([1.0, 0.5, 0.25]), 2.0), (np.array([3.0, 0.1]), 2.0)):
        rate = np.mean(rng.standard_normal((number, len(mean_e))) ** 2 @ mean_e > farthest(mean_e))
        assert rate <= most * FALSE_ALARM + 5.0 * np.sqrt(most * FALSE_ALARM / number)
    assert farthest(np.zeros(3)) == 0.0


def test_a_score_far_from_linear_loses_its_weight() -> None:
    average = Average(np.zeros(2), np.zeros(2), 1.0)
    assert average.share(1.0) == 0.5
    assert average.share(1.0, error=2.0) == 0.75
    assert average.share(1.0, own=2.0) == 0.25
    assert average.share(0.0, own=2.0) == 1.0
    # Two independent scores of noise 1 and weights 3/4 and 1/4.
    assert average.joined(np.ones(2), np.ones(2), 1.0, 0.75).noise == pytest.approx(10 / 16)
