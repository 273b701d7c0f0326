"""Numeric columns in units of their spread: sensitivities, readings from noise, and what intervals then cover."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from benchmarks import coverage_ranges
from dpvb.core import loop
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.regression import ridge
from dpvb.models.regression.diagonal import FirstOrderDiagonal, numbers_first
from dpvb.models.regression.first_order import FirstOrder, FirstOrderState
from dpvb.models.regression.moments import read_at_mean
from dpvb.models.regression.scaling import Declared, Scaling, mapped
from dpvb.rows import DesignRows, SparseDesignRows

COLUMN = 0.4
#: The constant, two numbers, an indicator, one more number.
DECLARED = Declared(
    np.array([0.0, 0.0, -0.2, 0.0, 0.1]), np.array([0.0, 0.4, 0.8, 0.0, 0.3]), np.array([1.0, 1.0, 1.0, 0.3, 1.0])
)


def fitted(model: Any, x_nd: Floats, y_n: Floats, epsilon: float, seed: int = 0) -> Any:
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    plan = calibrated(plan, epsilon=epsilon, delta=1e-5)
    source = Design(x_nd, y_n, intercept=model.intercept, sparse_rows=isinstance(model, FirstOrderDiagonal))
    wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(seed))
    return loop.fit(model, wall, plan, rho=model.schedule.rho, rng=np.random.default_rng(0))[0]


def somewhere(rng: np.random.Generator) -> tuple[FirstOrder, FirstOrderState]:
    model = FirstOrder(5, intercept=COLUMN, declared=DECLARED)
    x_nd = rng.uniform(0, 0.3, (400, 4))
    return model, fitted(model, x_nd, (rng.random(400) < 0.4).astype(float), 1.0)


def test_rows_at_the_ends_of_a_range_stay_within_the_bounds_of_means_and_spread() -> None:
    rng = np.random.default_rng(1)
    model, q = somewhere(rng)
    ends = np.stack([DECLARED.low_d, DECLARED.high_d, q.scaling.mean_d], axis=1)
    x_nd = np.stack([rng.choice(end, 500) for end in ends], axis=1)
    x_nd[:10] *= 1e6
    x_nd[:, 0] = COLUMN
    rows = DesignRows(x_nd, np.ones(500), np.ones(500))
    for name in ("means", "spread"):
        block = model.blocks[name]
        assert model.e_step(q, rows, {name: block})[name].norms().max() <= block.bound * (1 + 1e-12)
    assert model.blocks["means"].bound == pytest.approx(2.0)
    assert model.blocks["spread"].bound == pytest.approx(math.sqrt(3))


@pytest.mark.parametrize("intercept", [0.0, COLUMN])
def test_rows_of_any_length_stay_within_the_bound_of_the_curvature(intercept: float) -> None:
    rng = np.random.default_rng(2)
    model, q = somewhere(rng)
    model = FirstOrder(5, intercept=intercept, declared=DECLARED)
    x_nd = rng.standard_normal((500, 5)) * 10.0 ** rng.uniform(-3, 6, (500, 1))
    rows = DesignRows(x_nd, np.ones(500), np.ones(500))
    blocks = {name: model.blocks[name] for name in ("count", "curvature")}
    for name, made in model.e_step(q, rows, blocks).items():
        assert made.norms().max() <= blocks[name].bound * (1 + 1e-4), name


def test_spreads_are_read_as_they_are_without_noise_and_from_below_with_it() -> None:
    """Normal columns: σ̂ is σ to 2 % of 40,000 rows (5 standard errors); the low end lies below, and grows with rows."""
    rng = np.random.default_rng(3)
    x_nd = np.hstack([np.full((40_000, 1), COLUMN), 0.2 + 0.02 * rng.standard_normal((40_000, 4))])
    roots_j = DECLARED.roots(x_nd[:, [1, 2, 4]], x_nd.mean(axis=0)).sum(axis=0)
    means_j = np.append(len(x_nd), DECLARED.places(x_nd[:, [1, 2, 4]]).sum(axis=0))
    widths = []
    for sd in (0.0, 100.0, 400.0):
        scaling = Scaling.start(DECLARED)._centred(DECLARED, means_j, sd)._scaled(DECLARED, roots_j, sd, COLUMN)
        spread_j = DECLARED.size(COLUMN) / scaling.factor_d[[1, 2, 4]]
        np.testing.assert_allclose(spread_j, 0.02, rtol=0.02)
        widths.append(scaling.wide_d[[1, 2, 4]] / scaling.width_d[[1, 2, 4]])
    np.testing.assert_allclose(widths[0], 1.0)
    assert (widths[1] > 1.0).all()
    assert (widths[2] > widths[1]).all()


def test_a_centre_at_a_spike_does_not_hide_the_spread() -> None:
    """90 % of rows at the end of a range: noise takes the mean to that end, where most roots are 0."""
    rng = np.random.default_rng(6)
    u_n = np.where(rng.random(40_000) < 0.9, 0.0, rng.uniform(0.0, 0.1, 40_000))
    declared = Declared(np.zeros(2), np.array([0.0, 1.0]), np.ones(2))
    sd = 0.004 * len(u_n)
    for total in (-sd, 0.0, float(u_n.sum())):
        centred = Scaling.start(declared)._centred(declared, np.array([len(u_n), total]), sd)
        assert 0.004 <= centred.mean_d[1] <= 0.02
        roots_j = declared.roots(u_n[:, None], centred.mean_d).sum(axis=0)
        scaling = centred._scaled(declared, roots_j, sd, COLUMN)
        spread = declared.size(COLUMN) / scaling.factor_d[1]
        # With û = 0 it would be .0007.
        assert 0.2 < spread / u_n.std() < 1.0


def test_the_map_goes_back() -> None:
    rng = np.random.default_rng(4)
    _, q = somewhere(rng)
    x_nd, weights_d = rng.uniform(0, 0.3, (50, 5)), rng.standard_normal(5)
    x_nd[:, 0] = COLUMN
    np.testing.assert_allclose(
        mapped(x_nd, q.scaling.forth(DECLARED)) @ weights_d, x_nd @ (q.scaling.back(DECLARED, COLUMN) @ weights_d)
    )


def test_sparse_rows_with_numbers_first_are_the_same_rows() -> None:
    rng = np.random.default_rng(5)
    _, q = somewhere(rng)
    x_nd = rng.uniform(0, 0.3, (40, 5)) * (rng.random((40, 5)) < 0.5)
    x_nd[:, 0] = COLUMN
    indptr = np.append(0, np.cumsum((x_nd != 0).sum(axis=1))).astype(np.int64)
    indices = np.nonzero(x_nd)[1].astype(np.int32)
    batch = SparseDesignRows(indptr, indices, x_nd[x_nd != 0], np.ones(40), np.ones(40))
    made = numbers_first(q.scaling, DECLARED, batch, COLUMN)
    found = np.zeros_like(x_nd)
    found[np.repeat(np.arange(40), np.diff(made.indptr)), made.indices] = made.values
    np.testing.assert_allclose(found, mapped(x_nd, q.scaling.forth(DECLARED))[:, [0, 1, 2, 4, 3]])
    inside = np.diff(made.indices)[np.diff(np.repeat(np.arange(40), np.diff(made.indptr))) == 0]
    assert (inside > 0).all()


def test_the_diagonal_of_a_curvature_is_the_guess_where_noise_hides_it_and_else_the_release() -> None:
    rng = np.random.default_rng(6)
    truth_ee, guess_ee = np.diag(rng.uniform(5, 50, 8)), 20.0 * np.eye(8)

    def read(noisy_ee: Floats, hidden: float, sd: float) -> Floats:
        return np.diag(read_at_mean(noisy_ee, guess_ee, np.full(8, hidden), sd)[0])

    np.testing.assert_allclose(read(truth_ee, 1e-6, 0.0), np.diag(truth_ee))
    np.testing.assert_allclose(read(truth_ee, 1e-6, 1e-3), np.diag(truth_ee), rtol=1e-2)
    np.testing.assert_allclose(read(truth_ee, 1e-6, 1e6), 20.0, rtol=1e-2)
    # A guess that may have been hidden by noise is believed less.
    assert (read(0 * truth_ee, 0.9, 20.0) < 10.0).all()


def test_the_error_of_a_curvature_is_nothing_without_noise_and_grows_with_it() -> None:
    truth_ee, guess_ee, hidden_e = np.diag(np.linspace(20, 60, 8)), 40.0 * np.eye(8), np.full(8, 0.1)
    errors = [read_at_mean(truth_ee, guess_ee, hidden_e, sd)[1] for sd in (0.0, 0.1, 1.0, 10.0)]
    assert not errors[0].any()
    for less, more in pairwise(errors):
        assert (more >= less).all()
        assert more.max() > less.max()


def test_an_error_of_the_curvature_widens_the_posterior_by_what_it_adds_to_the_score() -> None:
    """One dimension, by the fixed point written out: V = v + E((z - z_0)² + Var z) + D(z - z_0)²."""
    score = ridge.NoisyScore(np.array([3.0]), np.array([0.5]), np.array([[2.0]]), 1.0, 0.7)
    prior = ridge.WeightPrior(np.array([[2.0]]), np.zeros((1, 0)), (1.0,))
    mean_e, variance_ee = ridge.posterior(ridge.honest(score, prior, np.array([[0.3]]), np.array([0.2])), prior)
    noise = 0.7 + 0.3 * float(variance_ee[0, 0]) + 0.5 * float(mean_e[0] - 0.5) ** 2
    information = 4.0 / (2.0 + noise)
    assert variance_ee[0, 0] == pytest.approx(1 / (0.25 + information), rel=0.01)
    assert mean_e[0] == pytest.approx(information * (0.5 + 1.5) / (0.25 + information), rel=0.01)


def test_the_prior_of_the_mean_log_odds_is_apart_from_the_columns() -> None:
    """Covariance of (mean log odds, other weights): blocks, by a change of variables written out."""
    width_d, mean_d = np.array([0.0, 2.0, 3.0]), np.array([COLUMN, 0.3, -0.2])
    prior = ridge.WeightPrior.of(np.eye(3), width_d, mean_d, np.array([1 / COLUMN, 0.0, 0.0]), 3.0, (1.0,))
    new_dd = np.vstack([mean_d, np.eye(3)[1:]])
    np.testing.assert_allclose(new_dd @ prior.covariance(1.0) @ new_dd.T, np.diag([9.0, 4.0, 9.0]), atol=1e-9)


def test_without_noise_and_without_an_intercept_rows_are_counted_as_they_are() -> None:
    """Second moments and their number of rows are those of the rows, and the fit is the posterior's mode."""
    rng = np.random.default_rng(11)
    x_nd = np.stack([rng.uniform(0.1, 0.4, 3_000), rng.uniform(0.0, 0.4, 3_000)], axis=1)
    y_n = (rng.random(3_000) < expit(x_nd @ (-9.0, 4.0))).astype(float)
    declared = Declared(np.zeros(2), np.array([0.4, 0.4]), np.ones(2))
    model = FirstOrder(2, declared=declared, n_steps=40)
    q = fitted(model, x_nd, y_n, math.inf)
    assert q.moments.number == pytest.approx(3_000, rel=1e-4)
    hat_nd = x_nd * q.scaling.factor_d
    np.testing.assert_allclose(q.moments.matrix_dd, hat_nd.T @ hat_nd, rtol=1e-4)
    p_n = expit(x_nd @ model.table(q).mean_d)
    hessian_dd = (x_nd.T * p_n * (1 - p_n)) @ x_nd
    step_d = np.linalg.solve(hessian_dd, x_nd.T @ (y_n - p_n))
    assert (np.abs(step_d) < 0.5 * np.sqrt(np.linalg.inv(hessian_dd).diagonal())).all()


def test_a_column_that_noise_hides_has_the_interval_of_the_prior_and_says_so() -> None:
    """Nine fits, seeds 0 to 8: in one of about thirty, noise makes a hidden column look certain."""
    rng, reads = np.random.default_rng(8), []
    x_nd = np.full((300, 4), 0.1)
    x_nd[:, 0] += 1e-4 * rng.standard_normal(300)
    model = FirstOrder(5, intercept=COLUMN, declared=DECLARED)
    y_n = (rng.random(300) < 0.5).astype(float)
    for seed in range(9):
        read = model.table(fitted(model, x_nd, y_n, 0.5, seed))
        reads.append((read.unknown_scale_d, read.prior.diagonal(), (read.covariance / read.prior).diagonal()))
    unknown_scale_d, prior_d, share_d = np.median(reads, axis=0)
    assert unknown_scale_d.tolist() == [0, 1, 1, 0, 1]
    assert (share_d > 0.5)[[1, 2, 4]].all()
    # One std of a hidden column, 0.002 of its range at least, moves the log odds by 1.
    np.testing.assert_allclose(np.sqrt(prior_d[[1, 2, 4]]) * 0.002 * np.array([0.4, 1.0, 0.2]), 1.0, rtol=0.02)


def test_declarations_are_checked() -> None:
    one = np.ones(2)
    with pytest.raises(ParameterError, match="low ≤ high"):
        Declared(one, 0 * one, one)
    with pytest.raises(ParameterError, match="declared must speak of 3 columns, got 2"):
        FirstOrder(3, declared=Declared(0 * one, one, one))


def test_intervals_cover_whatever_range_was_declared() -> None:
    """Four tables of 20,000 rows at ε = 1: no estimate is 6 stds off, and 85 % of 76 slopes are inside 95 % intervals.

    Under a true coverage of 95 % fewer than 65 of 76 are inside with probability 2e-5 by the binomial; seeds are fixed.
    """
    z = np.concatenate([coverage_ranges.measured(seed, 20_000, 20, 1.0)["z"][1:] for seed in range(2_000, 2_004)])
    assert np.abs(z).max() < 6
    assert np.mean(np.abs(z) < 1.96) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 2.0, math.inf])
def test_coverage_at_twenty_columns(epsilon: float) -> None:
    """Forty tables, seeds from 3,000 on: at least 92 % over columns, a lie in 1.5 % of them at most."""
    tables = [coverage_ranges.measured(seed, 20_000, 20, epsilon) for seed in range(3_000, 3_040)]
    z = np.concatenate([table["z"][1:] for table in tables])
    assert np.mean(np.abs(z) < 1.96) >= 0.92
    assert np.mean(np.abs(z) > 4) <= 0.015


def test_without_numeric_columns_nothing_more_is_released() -> None:
    names = set(FirstOrder(3, intercept=COLUMN).blocks)
    assert names.isdisjoint({"means", "spread"})
    assert set(FirstOrder(5, intercept=COLUMN, declared=DECLARED).blocks) - names == {"means", "spread"}


def test_the_noiseless_optimum_is_reached_whatever_the_scale() -> None:
    """The gradient of the log posterior at the mean, without the library's curvature: 0 beside that at the start."""
    rng = np.random.default_rng(9)
    x_nd = np.stack([0.15 + 0.0005 * rng.standard_normal(5_000), 0.2 + 0.05 * rng.standard_normal(5_000)], axis=1)
    y_n = (rng.random(5_000) < expit(1_000 * (x_nd[:, 0] - 0.15) - 4 * (x_nd[:, 1] - 0.2))).astype(float)
    declared = Declared(np.zeros(3), np.array([0.0, 0.4, 0.4]), np.ones(3))
    for model in (
        FirstOrder(3, intercept=COLUMN, declared=declared, n_steps=40),
        FirstOrderDiagonal(3, intercept=COLUMN, declared=declared, n_steps=200),
    ):
        read: Any = model
        weights = read.table(fitted(model, x_nd, y_n, math.inf))
        full_nd = np.hstack([np.full((5_000, 1), COLUMN), x_nd])
        hessian_dd = (full_nd.T * (p := expit(full_nd @ weights.mean_d)) * (1 - p)) @ full_nd
        step_d = np.linalg.solve(hessian_dd, full_nd.T @ (y_n - p))
        assert (np.abs(step_d) < 0.5 * np.sqrt(np.linalg.inv(hessian_dd).diagonal())).all()
