"""Counts that are clipped at a released point: expectations by enumeration, scores without bias, and the choice."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from scipy import stats

import dpvb
from dpvb.guards.arrays import Floats
from dpvb.models.regression import tuned
from dpvb.models.regression.clipped_counts import (
    ClippedCounts,
    CountHistogram,
    clipped,
    clipped_variance,
    lower_ends,
    one_hot,
)
from dpvb.models.regression.likelihood import LEAST_RATE

COUNT_K = np.arange(4_000.0)
DISPERSIONS = st.sampled_from([0.4, 1.0, 7.0, 1e6, math.inf])
MEANS, CLIPS = st.floats(-4, 4), st.integers(1, 60)


def probabilities(mean: float, r: float) -> Floats:
    """Of all counts up to 4,000."""
    law = stats.poisson(mean) if math.isinf(r) else stats.nbinom(r, r / (r + mean))
    return np.asarray(law.pmf(COUNT_K))


@given(log_mean=st.floats(-4, 3), r=DISPERSIONS, clip=CLIPS)
def test_moments_of_clipped_counts_are_those_of_enumeration(log_mean: float, r: float, clip: int) -> None:
    mean, clipped_k = math.exp(log_mean), np.minimum(COUNT_K, clip)
    expected_n, slope_n = clipped(np.array([mean]), r, float(clip))
    variance_n = clipped_variance(np.array([mean]), r, float(clip))
    p_k = probabilities(mean, r)
    np.testing.assert_allclose(expected_n[0], p_k @ clipped_k, rtol=1e-6)
    np.testing.assert_allclose(variance_n[0], p_k @ clipped_k**2 - (p_k @ clipped_k) ** 2, rtol=1e-5, atol=1e-8)
    up, down = (probabilities(mean * math.exp(step), r) @ clipped_k for step in (1e-4, -1e-4))
    np.testing.assert_allclose(slope_n[0], (up - down) / 2e-4, rtol=1e-4, atol=1e-7)


@given(log_mean=st.floats(-4, 3), r=DISPERSIONS, clip=CLIPS, typical=st.floats(0, 30))
def test_a_score_has_expectation_0_at_the_truth_and_the_stated_slope_and_variance(
    log_mean: float, r: float, clip: int, typical: float
) -> None:
    scores, psi_k = ClippedCounts(r, float(clip), typical), np.full(len(COUNT_K), log_mean)
    p_k, (share_k, residual_k) = probabilities(math.exp(log_mean), r), scores.rows(psi_k, COUNT_K)
    residual_k = scores.unit * residual_k
    assert p_k @ residual_k == pytest.approx(0.0, abs=1e-6 * scores.unit)
    # Other means of the counts, at this ψ.
    up, down = (probabilities(math.exp(log_mean + step), r) @ residual_k for step in (1e-4, -1e-4))
    np.testing.assert_allclose(scores.steepest * share_k[0], (up - down) / 2e-4, rtol=1e-3, atol=1e-6)
    spread = scores.spread(np.array([log_mean]), np.ones(1))
    np.testing.assert_allclose(spread, p_k @ residual_k**2 / ((up - down) / 2e-4), rtol=1e-2, atol=1e-4)


@given(psi=st.floats(-1e300, 1e300), small=MEANS, r=DISPERSIONS, clip=CLIPS, typical=st.floats(0, 100))
@kills("norms", "residuals of counts that exceed their bound")
@edit(
    "models/regression/clipped_counts.py",
    "np.minimum(gain_n, self.unit / np.maximum(expected_n, self.clip - expected_n))",
    "gain_n",
)
def test_no_score_exceeds_its_bounds_and_its_variance_not_its_slope(
    psi: float, small: float, r: float, clip: int, typical: float
) -> None:
    """Lemmas of docs/theory/regressions.md, at every ψ and for every count."""
    scores, y_n = ClippedCounts(r, float(clip), typical), np.append(np.arange(2.0 * clip), 1e9)
    for point in (psi, small):
        share_n, residual_n = scores.rows(np.full(len(y_n), point), y_n)
        assert np.abs(residual_n).max() <= 1 + 1e-9
        assert ((share_n >= 0) & (share_n <= 1)).all()
    if math.exp(small) <= clip:
        # Beyond C the weight is that of the clipped mean, and a bound for all ψ is not claimed.
        assert scores.spread(np.array([small]), np.ones(1)) <= (1 + math.exp(small) / r) / (
            1 + clipped(np.array([math.exp(small)]), r, float(clip))[0][0] / r
        ) * (1 + 1e-6)


@kills("records", "counts are clipped at a point that depends on the counts of other rows")
@edit("models/regression/clipped_counts.py", "np.minimum(y_n, self.clip)", "np.minimum(y_n, y_n.mean())")
@given(seed=st.integers(0, 2**32 - 1), r=DISPERSIONS, clip=CLIPS)
def test_the_score_of_a_row_depends_on_that_row(seed: int, r: float, clip: int) -> None:
    rng = np.random.default_rng(seed)
    scores, psi_n = ClippedCounts(r, float(clip), 2.0), rng.normal(0, 2, 9)
    y_n = np.append(1.0 + rng.poisson(3.0), np.zeros(8))
    whole, alone = scores.rows(psi_n, y_n), scores.rows(psi_n[:1], y_n[:1])
    for part_n, one in zip(whole, alone, strict=True):
        np.testing.assert_array_equal(part_n[:1], one)


@given(r=DISPERSIONS, clip=CLIPS, typical=st.floats(0, 100))
def test_the_largest_curvature_is_that_of_a_fine_grid(r: float, clip: int, typical: float) -> None:
    scores = ClippedCounts(r, float(clip), typical)
    fine = max(scores.usual(psi) for psi in np.linspace(-6, math.log(8 * clip), 1_000))
    assert fine <= scores.steepest <= fine * 1.02 + 1e-12


def test_bins_hold_each_count_once() -> None:
    for most in (1, 2, 20, 60, 10**9):
        lower_k, y_n = lower_ends(most), np.array([0.0, 1.0, 0.5 * most, most])
        bins_nk = one_hot(y_n, lower_k)
        np.testing.assert_array_equal(bins_nk.sum(axis=1), 1.0)
        assert (bins_nk @ lower_k <= y_n).all()
        assert lower_k[0] == 0
        assert lower_k[-1] <= most
    assert np.isnan(one_hot(np.array([math.nan]), lower_ends(5))).any()


def read(mean: float, r: float, sd: float, most: float, number: float = 20_000.0) -> CountHistogram:
    """From the expected histogram."""
    lower_k, p_k = lower_ends(most), probabilities(mean, r)
    total_k = number * p_k @ one_hot(COUNT_K, lower_k)
    return CountHistogram.read(total_k, sd, number, lower_k, LEAST_RATE)


@pytest.mark.parametrize(("mean", "r"), [(0.23, math.inf), (3.0, 1.0), (8.0, 3.0)])
def test_mean_and_dispersion_are_read_from_the_histogram(mean: float, r: float) -> None:
    """Within the distance of two points of the grid; without noise and with that of ε = 1."""
    for sd in (0.0, 30.0):
        log_mean, std = (marginal := read(mean, r, sd, 60)).log_mean()
        assert abs(log_mean - math.log(mean)) < 0.1
        assert std < 0.1
        if math.isfinite(r):
            assert abs(marginal.log_r() - math.log(r)) < 0.3


def test_the_clip_grows_with_the_budget_and_is_far_below_a_bound_that_is_far_too_large() -> None:
    marginal, unit = read(3.0, 1.0, 30.0, 1_000), lambda clip: ClippedCounts(1.0, clip, 3.0).unit
    clips = [marginal.best_clip(1_000, bias, unit) for bias in (1.0, 1e2, 1e4, 1e6)]
    assert clips == sorted(clips)
    assert clips[1] < 40
    assert clips[-1] > clips[1]
    # Few counts lie beyond the clip, and they weigh less than the noise.
    assert 1e4 * marginal.excess(clips[2]) < unit(clips[2])


def test_counts_that_are_seen_far_out_are_not_clipped_for_a_distribution_that_lacks_them() -> None:
    lower_k = lower_ends(200)
    total_k = 20_000 * probabilities(0.5, math.inf) @ one_hot(COUNT_K, lower_k)
    total_k[np.searchsorted(lower_k, 100.0)] += 400
    marginal = CountHistogram.read(total_k, 30.0, 20_400.0, lower_k, LEAST_RATE)
    assert marginal.excess(10.0) > 0.9 * 400 / 20_400 * (lower_k[np.searchsorted(lower_k, 100.0)] - 10)


GIVEN: dict[str, Any] = {"delta": 1e-6, "low": [18, -4], "high": [90, 4]}


def test_a_bound_that_is_far_too_large_costs_little() -> None:
    """At ε = 1: stds with a bound of 2,000 are at most 1.3 times those with 40."""
    rng = np.random.default_rng(11)
    X = np.column_stack([rng.uniform(18, 90, 20_000), rng.normal(0, 1, 20_000).clip(-4, 4)])
    y = rng.poisson(np.exp(0.2 + 0.01 * X[:, 0] + 0.3 * X[:, 1]))
    near, far = (dpvb.PoissonRegression(**GIVEN, epsilon=1.0, max_count=most).fit(X, y) for most in (40, 2_000))
    assert near.coef_std_ is not None
    assert far.coef_std_ is not None
    assert (far.coef_std_ < 1.3 * near.coef_std_).all()


def test_a_dispersion_is_learned_only_if_its_interval_is() -> None:
    """*learned* needs one half of the prior variance removed: of 60 rows at ε = 0.1 nothing is."""
    rng = np.random.default_rng(12)
    X = np.column_stack([rng.uniform(18, 90, 20_000), rng.normal(0, 1, 20_000).clip(-4, 4)])
    y = rng.poisson(rng.gamma(1.0, 1.0, 20_000) * np.exp(0.2 + 0.01 * X[:, 0]))
    for n, epsilon, word in ((20_000, 1.0, "learned"), (60, 0.1, "mostly its prior")):
        model = dpvb.NegativeBinomialRegression(**GIVEN, epsilon=epsilon, max_count=60).fit(X[:n], y[:n])
        low, high = map(math.log, model.dispersion_interval())
        assert (((high - low) / 2 / 1.959964 / tuned.DISPERSION_STD) ** 2 <= 0.5) == (word == "learned")
        assert f"], {word}" in model.summary()
