"""Fits with too few steps: the warning, the head of the table, and the coverage that both are about."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import dpvb
from dpvb.errors import NotSettledWarning

TRUTH = np.array([2.0, -2.0, 1.0, -1.0])
REPEATS, SAID = 8, "The fit had too few steps"


def fitted(seed: int, **options: Any) -> tuple[Any, int, bool]:
    """A fit to simulated rows, how many of its intervals contain the truth, and whether it warned."""
    rng = np.random.default_rng(seed)
    x_nd = rng.uniform(-1, 1, (20_000, len(TRUTH)))
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
