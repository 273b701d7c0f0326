"""Linear regression: the posterior without noise, its uncertainty with noise, its bounds, and what clips residuals."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import statsmodels.api as sm
from planted import edit, kills
from scipy.stats import binom
from sklearn.linear_model import BayesianRidge

from dpvb.core import loop
from dpvb.core.blocks import Contributions
from dpvb.core.model import constant
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design
from dpvb.data.tables.response import Response
from dpvb.guards.arrays import Floats
from dpvb.models.regression import moments, tuned
from dpvb.models.regression.linear import Linear, LinearState, Residuals, one_hot
from dpvb.models.regression.moments import RowMoments, denoised, read_collinear, read_moments
from dpvb.models.regression.ridge import WeightPosterior
from dpvb.models.regression.scaling import Declared
from dpvb.rows import DesignRows

READINGS = (denoised, read_collinear)
COLUMN, RANGE = 0.4, Response("numeric", low=-1.0, high=1.0)


def rows(seed: int, n: int, d: int, *, sigma: float = 0.1, size: float = 0.25) -> tuple[Floats, Floats, Floats]:
    """Features inside the norm beside the constant, responses well inside [-1, 1], and the weights of (1, x)."""
    rng = np.random.default_rng(seed)
    x_nd = size * rng.standard_normal((n, d))
    x_nd *= np.minimum(1.0, 0.9 / np.linalg.norm(x_nd, axis=1))[:, None]
    weights_d = np.append(0.1, rng.normal(0, 0.3, d))
    y_n = weights_d[0] + x_nd @ weights_d[1:] + sigma * rng.standard_normal(n)
    return x_nd, np.clip(y_n, -1.0, 1.0), weights_d


def fitted(model: Any, x_nd: Floats, y_n: Floats, *, epsilon: float, seed: int = 0) -> Any:
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    plan = calibrated(plan, epsilon=epsilon, delta=1e-5)
    wall: Wall[Any] = Wall(
        Design(x_nd, y_n, response=RANGE, intercept=model.intercept), plan, noise=InsecureNoise(seed)
    )
    return loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))[0]


def shown(model: Any, q: Any) -> tuple[Floats, Floats]:
    """Means and stds of the table, of (1, x)."""
    read: WeightPosterior = model.table(q)
    scale_d = np.append(model.intercept or 1.0, np.ones(model.n_features - 1))
    if model.intercept == 0:
        scale_d = np.ones(model.n_features)
    return scale_d * read.mean_d, scale_d * np.sqrt(np.diag(read.covariance))


def test_without_noise_and_with_a_weak_prior_it_is_least_squares_of_statsmodels() -> None:
    x_nd, y_n, _ = rows(0, 3_000, 4)
    model = Linear(5, intercept=COLUMN, alpha=1e-6)
    q = fitted(model, x_nd, y_n, epsilon=math.inf)
    known = sm.OLS(y_n, sm.add_constant(x_nd)).fit()
    mean_d, std_d = shown(model, q)
    np.testing.assert_allclose(mean_d, known.params, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(std_d, known.bse, rtol=2e-3)  # One divides by n, the other by n - d.
    variance, error = model.scale(q)
    assert variance == pytest.approx(known.mse_resid, rel=3e-3)
    assert error == pytest.approx(variance * math.sqrt(2 / 3_000), rel=0.5)


def test_without_noise_and_with_its_precision_it_is_bayesian_ridge_of_scikit_learn() -> None:
    x_nd, y_n, _ = rows(1, 400, 6, sigma=0.3)
    known = BayesianRidge(fit_intercept=False, tol=1e-10).fit(x_nd, y_n)
    model = Linear(6, alpha=float(known.lambda_))
    mean_d, std_d = shown(model, fitted(model, x_nd, y_n, epsilon=math.inf))
    assert (np.abs(mean_d - known.coef_) < 0.03 * std_d).all()
    np.testing.assert_allclose(std_d, np.sqrt(np.diag(known.sigma_)), rtol=0.02)


def test_one_column_has_the_posterior_in_closed_form() -> None:
    """y ~ N(m c, σ²), m ~ N(0, 1/α): precision Σ c²/σ² + α."""
    rng, n, alpha = np.random.default_rng(2), 500, 50.0
    x_nd, y_n = np.full((n, 1), 0.7), np.clip(0.2 + 0.3 * rng.standard_normal(n), -1, 1)
    model = Linear(1, alpha=alpha)
    q = fitted(model, x_nd, y_n, epsilon=math.inf)
    (mean,), (std,) = shown(model, q)
    variance = float(np.mean((y_n - y_n.mean()) ** 2))
    precision = 0.49 * n / variance + alpha
    assert std == pytest.approx(precision**-0.5, rel=1e-3)
    start = float(q.start_e[0])
    assert mean == pytest.approx(start + (0.7 * (y_n.sum() - 0.7 * n * start) / variance) / precision, rel=1e-4)


def test_order_signs_and_places_of_columns_change_nothing() -> None:
    x_nd, y_n, _ = rows(3, 800, 3)
    model = Linear(4, intercept=COLUMN)
    mean_d, std_d = shown(model, fitted(model, x_nd, y_n, epsilon=math.inf))
    turned = fitted(model, x_nd[::-1], y_n[::-1], epsilon=math.inf)
    assert np.array_equal(shown(model, turned)[0], mean_d)
    other_d, other_std_d = shown(model, fitted(model, x_nd[:, ::-1] * [1, -1, 1], -y_n, epsilon=math.inf))
    np.testing.assert_allclose(other_d, -mean_d[[0, 3, 2, 1]] * [1, 1, -1, 1], rtol=1e-6)
    np.testing.assert_allclose(other_std_d, std_d[[0, 3, 2, 1]], rtol=1e-6)


def test_a_rotation_of_the_features_rotates_the_posterior() -> None:
    x_nd, y_n, _ = rows(4, 800, 3)
    turn_dd = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    model = Linear(4, intercept=COLUMN)
    one, other = (model.table(fitted(model, x, y_n, epsilon=math.inf)) for x in (x_nd, x_nd @ turn_dd))
    np.testing.assert_allclose(turn_dd @ other.mean_d[1:], one.mean_d[1:], rtol=1e-6)
    turned_dd = turn_dd @ other.covariance[1:, 1:] @ turn_dd.T
    np.testing.assert_allclose(turned_dd, one.covariance[1:, 1:], rtol=2e-5)


def asked(model: Any, q: Any, x_nd: Floats, y_n: Floats, phase: str) -> Contributions:
    blocks = {name: block for name, block in model.blocks.items() if block.phase == phase}
    return model.e_step(q, DesignRows(x_nd, y_n, np.ones(len(y_n))), blocks)


def norms(model: Any, q: Any, x_nd: Floats, y_n: Floats, phase: str) -> dict[str, Floats]:
    found = asked(model, q, x_nd, y_n, phase)
    return {name: found[name].of_block(model.blocks[name], len(y_n)).norms() for name in found}


def strained(d: int, length: float = 100.0, **changed: Any) -> LinearState:
    """A query at which rows of norm 1 have norm `length` in the coordinates of scores."""
    q = Linear(d).init(np.random.default_rng(0))
    moments = replace(q.moments, scale_e=np.full(d, 1.0 / length))
    return replace(q, moments=moments, **changed)


@pytest.mark.guarantees("linear rows")
@kills("norms", "squares of residuals left unclipped")
@edit(
    "models/regression/linear.py",
    "np.minimum(np.abs(residual_n) / q.reach, 1.0) ** 2",
    "(np.abs(residual_n) / q.reach) ** 2",
)
@kills("norms", "the excess of long rows left unclipped")
@edit("models/regression/linear.py", "np.clip(rows.length_n - 1.0, 0.0, 1.0)", "np.maximum(rows.length_n - 1.0, 0.0)")
@kills("norms", "residuals of a linear regression left unclipped")
@edit("models/regression/linear.py", "np.clip(residual_n / q.clip, -1.0, 1.0)", "residual_n / q.clip")
def test_no_row_exceeds_a_bound_at_any_query_and_some_rows_reach_each() -> None:
    rng, d = np.random.default_rng(5), 6
    x_nd = rng.standard_normal((4_000, d)) * 10.0 ** rng.uniform(-9, 0, (4_000, 1))
    x_nd = np.vstack([x_nd / np.maximum(np.linalg.norm(x_nd, axis=1), 1.0)[:, None] * (1 - 1e-12), np.eye(d)])
    y_n = rng.choice([-1.0, 1.0, 0.0, 0.3], len(x_nd))
    model = Linear(d)
    largest: dict[str, float] = {}
    for length in (1e-3, 1.0, 1.7, 100.0, 1e6):
        for point in (0.0, 3.0, 1e150):
            for clip in (1e-6, 1.0, 64.0):
                q = strained(d, length, point_e=point * rng.standard_normal(d), clip=clip, reach=clip)
                for phase in ("step", "last"):
                    for name, norm_n in norms(model, q, x_nd, y_n, phase).items():
                        assert (norm_n <= model.blocks[name].bound * (1 + 1e-5)).all(), name
                        largest[name] = max(largest.get(name, 0.0), float(norm_n.max()) / model.blocks[name].bound)
    assert min(largest.values()) > 1 - 1e-6
    assert set(largest) == {"score", "residual", "curvature_at_mean", "excess", "square"}


@pytest.mark.guarantees("linear rows")
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, 1e300])
def test_a_row_that_is_no_number_adds_nothing_and_a_huge_one_what_its_bound_allows(odd: float) -> None:
    model, x_nd = Linear(3), np.full((1, 3), 0.4)
    source = Design(x_nd, np.array([odd]), response=RANGE)
    (chunk,) = source.chunks()
    assert np.isnan(chunk.rows.x_nd).all() == (not math.isfinite(odd))
    for phase in ("first", "step", "last"):
        found = norms(model, strained(3), chunk.rows.x_nd, chunk.rows.y_n, phase)
        if math.isfinite(odd):
            assert all(norm <= model.blocks[name].bound * (1 + 1e-5) for name, (norm,) in found.items())
        else:  # One such block is enough for the wall to drop the row.
            assert not all(math.isfinite(norm) for (norm,) in found.values())


def test_the_sum_of_scores_vanishes_at_the_estimate_of_huber() -> None:
    """The same clip: `RLM` of statsmodels, whose scale is its first one."""
    rng = np.random.default_rng(6)
    x_nd = 0.3 * rng.standard_normal((2_000, 3))
    x_nd *= np.minimum(1.0, 0.99 / np.linalg.norm(x_nd, axis=1))[:, None]
    y_n = np.clip(x_nd @ [0.5, -0.2, 0.1] + 0.1 * rng.standard_t(2, 2_000), -1, 1)
    huber = sm.robust.norms.HuberT(t=1.3)
    known = sm.RLM(y_n, x_nd, M=huber).fit(update_scale=False, tol=1e-12, maxiter=500)
    clip = 1.3 * known.scale
    q = strained(3, 1.0, point_e=np.asarray(known.params), clip=clip)
    found = asked(Linear(3), q, x_nd, y_n, "step")["score"]
    total_d = found.rows.x_nd.T @ found.scale_n  # type: ignore[attr-defined]
    assert np.abs(total_d).max() < 1e-4
    away_d = asked(Linear(3), strained(3, 1.0, point_e=known.params + 0.05, clip=clip), x_nd, y_n, "step")["score"]
    assert np.abs(away_d.rows.x_nd.T @ away_d.scale_n).max() > 1.0  # type: ignore[attr-defined]


def test_excess_is_what_the_squared_weights_miss_of_the_slope() -> None:
    x_nd, y_n = np.array([[0.012, 0.009], [0.001, 0.0], [0.6, 0.8]]), np.zeros(3)
    found = asked(Linear(2), strained(2), x_nd, y_n, "last")["excess"].values[:, 0]  # type: ignore[attr-defined]
    np.testing.assert_allclose(found, [0.5, 0.0, 1.0])  # Norms 1.5, 0.1 and 100: the last is cut.


def test_the_histogram_knows_sizes_beyond_its_thresholds() -> None:
    rng = np.random.default_rng(7)
    r_n = 0.1 * rng.standard_normal(20_000)
    r_n[:200] = 1.1
    counts_k = one_hot(r_n).sum(axis=0)
    assert counts_k.sum() == 20_000
    noisy = Residuals.start().joined(counts_k + 20 * rng.standard_normal(len(counts_k)), 400.0)
    sizes = noisy.read(20_000.0, tuned.SEEN_STD)
    assert sizes is not None
    assert sizes.typical() == pytest.approx(0.1, rel=0.1)
    assert sizes.clipped(2.0) == pytest.approx(np.mean(r_n**2), rel=0.15)
    assert sizes.within(0.5) == pytest.approx(0.99, abs=0.005)
    # Dear noise clips near the typical residual, cheap noise beyond the outliers.
    assert 0.1 < sizes.best_clip(0.1) < 0.3 < 1.0 < sizes.best_clip(1e-7)
    assert Residuals.start().joined(20 * rng.standard_normal(17), 400.0).read(20_000.0, tuned.SEEN_STD) is None


def test_the_reach_of_sigma_is_not_read_from_a_chance_count() -> None:
    """The noise of σ² grows with the square of its reach: one far bin, 3.8 std of chance, made σ twice too large.

    Three bins end beyond 0.8. Of 20,000 histograms 0.02 are expected to believe one at 5 std; four do so with a
    probability below 1e-7. At 3.5 std, 14 are expected.
    """
    rng, number, sd = np.random.default_rng(8), 4_000, 25.0
    counts_k = one_hot(0.075 * rng.standard_normal(number)).sum(axis=0)
    far, chance = 0, 0
    for _ in range(20_000):
        noisy = Residuals(counts_k + sd * rng.standard_normal(len(counts_k)), sd**2)
        far += noisy.read(number, tuned.CERTAIN_BIN).largest() > 0.8
        chance += noisy.read(number, 2.0).largest() > 0.8
    assert far < 4 < chance


@pytest.mark.guarantees("linear clipping")
def test_the_clip_and_all_else_are_functions_of_what_was_released() -> None:
    """Other rows, of nobody, the same noise: the same releases, and the same path to the bit."""
    x_nd, y_n, _ = rows(8, 1_000, 3)
    model = Linear(4, intercept=COLUMN)
    one = fitted(model, x_nd, y_n, epsilon=1.0)
    x_nd, y_n = np.vstack([x_nd, np.full((7, 3), math.nan)]), np.append(y_n, np.full(7, 0.9))
    other = fitted(model, x_nd, y_n, epsilon=1.0)
    assert one.clip == other.clip < 1.0
    assert np.array_equal(model.table(one).mean_d, model.table(other).mean_d)


@pytest.mark.parametrize("intercept", [0.0, COLUMN])
@pytest.mark.parametrize("epsilon", [0.1, 4.0, math.inf])
def test_no_rows_end_at_the_prior_without_warnings(intercept: float, epsilon: float) -> None:
    d = 4
    declared = Declared(np.zeros(d), np.append(0.0, np.full(d - 1, 0.4)), np.append(1.0, np.full(d - 1, 0.4)))
    model = Linear(d, intercept=intercept, declared=declared if intercept else None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        q = fitted(model, np.zeros((0, d - (intercept > 0))), np.zeros(0), epsilon=epsilon)
        read, (variance, error) = model.table(q), model.scale(q)
    assert np.isfinite(read.mean_d).all()
    assert 0 < variance <= 1
    assert math.isfinite(error)
    std_d = np.sqrt(np.diag(read.covariance))
    assert (std_d <= np.sqrt(np.diag(read.prior)) * (1 + 1e-6)).all()
    free = slice(int(intercept > 0), None)
    assert (np.abs(read.mean_d[free]) < 5 * std_d[free]).all()  # The prior's mean, 0, is well inside.


@pytest.mark.parametrize(
    ("epsilon", "outliers"),
    [
        pytest.param(1.0, False, marks=pytest.mark.slow),
        (1.0, True),
        pytest.param(4.0, True, marks=pytest.mark.slow),
    ],
)
def test_intervals_of_weights_and_of_sigma_cover(epsilon: float, outliers: bool) -> None:
    """Binomial limits for a coverage of .93 of weights, .85 of σ: false alarms below 1e-6; seeds 0 to 29.

    A residual counts in σ up to the reach of the fit; without outliers that is all of it.
    """
    d, tables, n = 6, 30, 4_000
    model, inside, kept, wide = Linear(d, intercept=COLUMN), 0, 0, []
    for seed in range(tables):
        x_nd, y_n, weights_d = rows(100 + seed, n, d - 1)
        if outliers:
            y_n = y_n.copy()
            y_n[::100] = np.where(np.arange(n)[::100] % 200 == 0, 1.0, -1.0)
        q = fitted(model, x_nd, y_n, epsilon=epsilon, seed=seed)
        mean_d, std_d = shown(model, q)
        inside += int((np.abs(mean_d - weights_d) < 1.96 * std_d).sum())
        variance, error = model.scale(q)
        residual_n = np.minimum(np.abs(y_n - weights_d[0] - x_nd @ weights_d[1:]), model.reach(q))
        truth = float(np.mean(residual_n**2))
        assert outliers or model.reach(q) > 0.35  # σ is 0.1.
        kept += abs(variance - truth) < 1.96 * error
        wide.append(float(np.median(std_d[1:])))
    assert inside >= binom.ppf(1e-6, d * tables, 0.93)
    assert kept >= binom.ppf(1e-6, tables, 0.85)
    assert float(np.median(wide)) < 0.05  # No wider than they need be: 0.1/0.25/√4000 without privacy is .006.


def test_outliers_move_an_estimate_less_than_least_squares() -> None:
    """One row in a hundred at the end of the range, ε = 0.5, five seeds: most clips fall below a sixth of the range."""
    x_nd, y_n, weights_d = rows(9, 4_000, 3, sigma=0.05)
    y_n = y_n.copy()
    y_n[:40] = 1.0
    model = Linear(4, intercept=COLUMN)
    found = [fitted(model, x_nd, y_n, epsilon=0.5, seed=seed) for seed in range(5)]
    least, *_ = np.linalg.lstsq(sm.add_constant(x_nd), y_n, rcond=None)
    errors = [float(np.linalg.norm(shown(model, q)[0] - weights_d)) for q in found]
    assert np.median([q.clip for q in found]) < 0.3
    assert np.median(errors) < 0.7 * np.linalg.norm(least - weights_d)


def both_readings(noisy_dd: Floats, sd: float, constant: float) -> list[RowMoments]:
    """Second moments by eigenpairs alone, and as the model reads them."""
    read = []
    for reading in READINGS:
        with patch.object(moments, "read_collinear", reading):
            read.append(read_moments(noisy_dd, sd, constant, inner=False))
    return read


def test_collinear_columns_are_seen_to_be_and_their_small_eigenvalues_are_not_over_read() -> None:
    """Twelve columns of correlation 0.97: the reading that keeps the diagonal is taken, and is nearer."""
    rng, n, sd = np.random.default_rng(10), 5_000, 8.0
    x_nd = 0.2 * (math.sqrt(0.97) * rng.standard_normal((n, 1)) + math.sqrt(0.03) * rng.standard_normal((n, 12)))
    x_nd = np.hstack([np.full((n, 1), COLUMN), x_nd])
    noise_dd = np.triu(rng.standard_normal((13, 13)), 1) * sd / math.sqrt(2)
    noisy_dd = x_nd.T @ x_nd + noise_dd + noise_dd.T + sd * np.diag(rng.standard_normal(13))
    known_e = np.linalg.eigvalsh(x_nd.T @ x_nd)[:11]
    plain, kept = both_readings(noisy_dd, sd, COLUMN)
    misses = [float(np.median(np.abs(np.sort(m.eigenvalue_e)[:11] - known_e))) for m in (plain, kept)]
    assert misses[1] < 0.8 * misses[0]
    apart_dd = np.diag(np.diag(noisy_dd)) + noise_dd + noise_dd.T
    same = both_readings(apart_dd, sd, COLUMN)
    assert np.array_equal(same[0].eigenvalue_e, same[1].eigenvalue_e)


def test_what_tells_a_number_from_its_square_is_read_among_a_hundred_columns() -> None:
    """Correlation 0.98: the edge of all columns' noise hides the small eigenvalue, which was read as 30 for 5."""
    rng, n, sd = np.random.default_rng(11), 13_000, 7.5
    x_nd = rng.uniform(size=(n, 113)) < 0.1
    x_nd = 0.3 * np.hstack([np.ones((n, 1)), x_nd[:, 3:], np.zeros((n, 2))])
    first_n = rng.standard_normal(n)
    x_nd[:, -2:] = 0.143 * np.column_stack([first_n, 0.98 * first_n + 0.2 * rng.standard_normal(n)])
    moment_dd = x_nd.T @ x_nd
    true, read = float(np.linalg.eigvalsh(moment_dd[-2:, -2:])[0]), []
    for _ in range(5):
        noise_dd = np.triu(rng.standard_normal(moment_dd.shape), 1) * sd / math.sqrt(2)
        noisy_dd = moment_dd + noise_dd + noise_dd.T + sd * np.diag(rng.standard_normal(len(moment_dd)))
        parts = (one.matrix_dd for one in both_readings(noisy_dd, sd, 0.3))
        read.append([float(np.linalg.eigvalsh(part_dd[-2:, -2:])[0]) for part_dd in parts])
    plain, kept = np.mean(read, axis=0)
    assert abs(kept - true) < 3 * sd < plain - true


@kills("factor", "the histogram of residuals left out of a step's joint norm")
@edit(
    "core/plan.py",
    "length = math.sqrt(math.fsum(block.weight**2 for block in self.blocks.values()))",
    "length = math.sqrt(math.fsum(b.weight**2 for n, b in self.blocks.items() if n != 'residual'))",
)
@edit("core/plan.py", "> 1.0 + 1e-12:", "> 1e9:")
def test_all_blocks_of_a_release_share_one_unit_of_noise() -> None:
    """Bounds over noise add up in squares to 1/σ², the histogram, the excess and the counts of units included."""
    model = Linear(4, intercept=COLUMN)
    for release in phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget).releases:
        parts = [block.bound / release.noise_std(name) for name, block in release.blocks.items()]
        assert math.fsum(part**2 for part in parts) == pytest.approx(release.mechanism.noise_multiplier**-2)


def test_the_budget_is_split_as_declared() -> None:
    model = Linear(4, intercept=COLUMN, n_steps=5)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    cost = np.array([release.mechanism.noise_multiplier**-2 for release in plan.releases])
    cost /= cost.sum()
    steps = 1 - tuned.LINEAR_CURVATURE - tuned.LINEAR_LAST
    later = (1 - tuned.SUM_BUDGET) * np.arange(2, 6) / 14
    known = [tuned.LINEAR_CURVATURE, *(steps * np.append(tuned.SUM_BUDGET, later)), tuned.LINEAR_LAST]
    np.testing.assert_allclose(cost, known)
    assert len(Linear(4, n_steps=1).schedule.noise) == 1
