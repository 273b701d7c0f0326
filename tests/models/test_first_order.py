"""First-order regression: the posterior without noise, its uncertainty with noise, and every block by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy.special import expit, log_expit, logit
from scipy.stats import multivariate_normal, ortho_group
from sklearn.linear_model import LogisticRegression

from dpvb.core import loop
from dpvb.core.model import constant
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import calibrated, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import Design
from dpvb.data.tables.response import Response
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.clipped_counts import ClippedCounts
from dpvb.models.regression.descent import Average
from dpvb.models.regression.first_order import FirstOrder, FirstOrderState
from dpvb.models.regression.likelihood import Likelihood, log_odds
from dpvb.models.regression.moments import Tracked, read_moments, read_positive, with_fixed_signs
from dpvb.models.regression.ridge import WeightPosterior
from dpvb.rows import DesignRows

COLUMN = 0.4
LIKELIHOODS = {
    "logistic": Likelihood(),
    "binomial": Likelihood("binomial", max_trials=5.0),
    "negative_binomial": Likelihood("negative_binomial", dispersion=1.5, max_count=200.0),
    "poisson": Likelihood("poisson", max_count=200.0),
}


def features(seed: int, n: int, d: int) -> Floats:
    """Normal features, inside the norm that leaves room for the constant column."""
    x_nd = 0.25 * np.random.default_rng(seed).standard_normal((n, d))
    return np.asarray(x_nd * np.minimum(1.0, 0.9 / np.linalg.norm(x_nd, axis=1))[:, None])


def with_column(x_nd: Floats) -> Floats:
    return np.hstack([np.full((len(x_nd), 1), COLUMN), x_nd])


def responses(seed: int, kind: str, psi_n: Floats) -> tuple[Floats, Floats]:
    """Draws of (y, trials)."""
    rng, likelihood = np.random.default_rng(seed + 10**6), LIKELIHOODS[kind]
    trials_n = np.ones(len(psi_n))
    if kind == "logistic":
        return (rng.random(len(psi_n)) < expit(psi_n)).astype(np.float64), trials_n
    if kind == "binomial":
        trials_n = rng.integers(1, 6, len(psi_n)).astype(np.float64)
        return rng.binomial(trials_n.astype(int), expit(psi_n)).astype(np.float64), trials_n
    mean_n = np.exp(psi_n) * (1.0 if kind == "poisson" else rng.gamma(likelihood.r, 1 / likelihood.r, len(psi_n)))
    return np.minimum(rng.poisson(mean_n), likelihood.max_count).astype(np.float64), trials_n


def fitted(
    model: FirstOrder, x_nd: Floats, y_n: Floats, trials_n: Floats | None = None, *, epsilon: float, seed: int = 0
) -> tuple[FirstOrderState, WeightPosterior]:
    likelihood = model.likelihood
    response = Response(likelihood.kind, max_trials=int(likelihood.max_trials), max_count=int(likelihood.max_count))
    trials = trials_n if likelihood.kind == "binomial" else None
    source = Design(x_nd, y_n, trials, response=response, intercept=model.intercept)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    plan = calibrated(plan, epsilon=epsilon, delta=1e-5)
    wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(seed))
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
    return q, model.weights(q)


def newton(kind: str, x_nd: Floats, y_n: Floats, b_n: Floats, start_d: Floats) -> tuple[Floats, Floats]:
    """Mode of the log likelihood - ‖m - m_0‖²/2, and inverse of its expected Hessian, written without the library."""
    mean_d = start_d.copy()
    for _ in range(50):
        psi_n = x_nd @ mean_d
        residual_n, information_n = y_n - b_n * expit(psi_n), b_n * expit(psi_n) * expit(-psi_n)
        if kind in ("negative_binomial", "poisson"):
            excess_n = 1 + np.exp(psi_n) / 1.5 if kind == "negative_binomial" else np.ones(len(psi_n))
            residual_n, information_n = (y_n - np.exp(psi_n)) / excess_n, np.exp(psi_n) / excess_n
        hessian_dd = (x_nd * information_n[:, None]).T @ x_nd + np.eye(len(mean_d))
        mean_d = mean_d + np.linalg.solve(hessian_dd, x_nd.T @ residual_n - (mean_d - start_d))
    return mean_d, np.linalg.inv(hessian_dd)


# --- without noise ------------------------------------------------------------------------------------------


def test_without_noise_the_mean_is_the_ridge_optimum_of_scikit_learn() -> None:
    x_nd = features(1, 3000, 6)
    y_n, _ = responses(1, "logistic", x_nd @ np.arange(-3.0, 3.0))
    model = FirstOrder(6, alpha=2.0, n_steps=60)
    _, weights = fitted(model, x_nd, y_n, epsilon=math.inf)
    peer = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10, max_iter=1000).fit(x_nd, y_n)
    np.testing.assert_allclose(weights.mean_d, peer.coef_[0], atol=1e-4)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_without_noise_mean_and_covariance_are_those_of_the_posterior(kind: str) -> None:
    likelihood, x_nd = LIKELIHOODS[kind], features(2, 2000, 4)
    full_nd = with_column(x_nd)
    y_n, trials_n = responses(2, kind, full_nd @ np.array([-1.0, 2.0, -2.0, 1.0, 0.5]))
    model = FirstOrder(5, likelihood=likelihood, intercept=COLUMN, alpha=1.0, n_steps=60)
    q, weights = fitted(model, x_nd, y_n, trials_n, epsilon=math.inf)
    start_d = q.moments.basis_de @ q.start_e
    rate = y_n.sum() / trials_n.sum()
    # The mean of counts is read from bins.
    near = {"abs": 0.1} if likelihood.is_count else {"abs": 1e-3}
    assert COLUMN * start_d[0] == pytest.approx(math.log(rate) if likelihood.is_count else logit(rate), **near)
    np.testing.assert_allclose(start_d[1:], 0.0, atol=1e-9)
    mean_d, covariance = newton(kind, full_nd, y_n, trials_n, start_d)
    np.testing.assert_allclose(weights.mean_d, mean_d, atol=2e-4)
    np.testing.assert_allclose(weights.covariance, covariance, atol=1e-3 * covariance.max())
    np.testing.assert_allclose(weights.naive_covariance, weights.covariance, rtol=1e-9)


def test_a_rotation_of_the_features_rotates_the_posterior() -> None:
    x_nd = features(3, 1500, 5)
    y_n, _ = responses(3, "logistic", with_column(x_nd) @ np.array([1.0, 3.0, -2.0, 0.0, 1.0, 2.0]))
    turn_dd = ortho_group.rvs(5, random_state=3)
    model = FirstOrder(6, intercept=COLUMN, n_steps=30)
    _, one = fitted(model, x_nd, y_n, epsilon=math.inf)
    _, other = fitted(model, x_nd @ turn_dd, y_n, epsilon=math.inf)
    whole_dd = np.eye(6)
    whole_dd[1:, 1:] = turn_dd
    np.testing.assert_allclose(other.mean_d, whole_dd.T @ one.mean_d, atol=1e-4)
    np.testing.assert_allclose(other.covariance, whole_dd.T @ one.covariance @ whole_dd, atol=1e-4)


def test_a_column_of_ones_among_the_features_is_found_and_the_start_is_along_it() -> None:
    """With a prior that allows nothing else, every row has the base rate; without such a column, one half."""
    x_nd = features(4, 4000, 3)
    y_n = (np.random.default_rng(4).random(4000) < 0.1).astype(np.float64)
    own_nd = np.hstack([x_nd, np.full((4000, 1), 0.3)])
    for epsilon in (math.inf, 4.0):
        _, weights = fitted(FirstOrder(4, alpha=1e5), own_nd, y_n, epsilon=epsilon)
        assert expit(own_nd @ weights.mean_d).mean() == pytest.approx(0.1, abs=0.02)
        _, weights = fitted(FirstOrder(3, alpha=1e5), x_nd, y_n, epsilon=epsilon)
        np.testing.assert_allclose(expit(x_nd @ weights.mean_d), 0.5, atol=0.01)


# --- with noise ---------------------------------------------------------------------------------------------


def test_the_noise_aware_covariance_is_that_of_repeated_fits() -> None:
    """Mean squared Mahalanobis distance to the truth is d within 6 standard errors; naively it is far larger."""
    d, repeats = 5, 40
    model = FirstOrder(d, intercept=COLUMN, n_steps=12)
    aware, naive = [], []
    for seed in range(repeats):
        x_nd = features(100 + seed, 4000, d - 1)
        truth_d = np.random.default_rng(seed).standard_normal(d) * 1.5
        y_n, _ = responses(100 + seed, "logistic", with_column(x_nd) @ truth_d)
        _, weights = fitted(model, x_nd, y_n, epsilon=0.5, seed=seed)
        away_d = weights.mean_d - truth_d
        aware.append(away_d @ np.linalg.solve(weights.covariance, away_d))
        naive.append(away_d @ np.linalg.solve(weights.naive_covariance, away_d))
    assert np.mean(aware) == pytest.approx(d, abs=6 * math.sqrt(2 * d / repeats))
    assert np.mean(naive) > 1.5 * np.mean(aware)


@pytest.mark.parametrize("epsilon", [math.inf, 1.0])
@pytest.mark.parametrize("intercept", [0.0, COLUMN])
def test_constant_labels_no_rows_and_faulty_rows_are_ordinary(epsilon: float, intercept: float) -> None:
    x_nd = features(6, 300, 3)
    model = FirstOrder(3 + (intercept > 0), intercept=intercept)
    nothing = (np.full((50, 3), np.nan), np.zeros(50))
    for x, y in [
        (x_nd, np.ones(300)),
        (x_nd, np.zeros(300)),
        (x_nd[:0], np.zeros(0)),
        nothing,
        (0 * x_nd, np.ones(300)),
    ]:
        _, weights = fitted(model, x, y, epsilon=epsilon)
        assert np.isfinite(weights.mean_d).all()
        for covariance in (weights.covariance, weights.naive_covariance):
            assert np.linalg.eigvalsh(covariance).min() > 0


def test_a_tracked_number_is_that_of_a_filter() -> None:
    """The first reading stands alone, then the posterior mean of a random walk; values stay within their limits."""
    rng, noise_t, drift = np.random.default_rng(5), np.array([0.4, 0.2, 0.7, 0.1]), tuned.RATIO_DRIFT
    reading_t, tracked = rng.uniform(2.0, 9.0, size=4), Tracked()
    for reading, noise in zip(reading_t, noise_t, strict=True):
        tracked = tracked.seen(float(reading), float(noise), 99.0)
    # By weighted least squares: readings differ from the newest value by their noise and the steps since.
    later_tt = np.maximum.outer(np.arange(4), np.arange(4))
    covariance_tt = np.diag(noise_t) + drift**2 * (3 - later_tt)
    weight_t = np.linalg.solve(covariance_tt, np.ones(4))
    assert tracked.value == pytest.approx(weight_t @ reading_t / weight_t.sum())
    assert tracked.variance == pytest.approx(1 / weight_t.sum())
    assert (Tracked().seen(2.0, 0.1, 1.0).value, Tracked().seen(-1.0, 0.1, 1.0).value) == (1.0, tuned.LEAST_RATIO)


def test_before_any_release_the_posterior_is_the_prior() -> None:
    model = FirstOrder(3, alpha=4.0)
    weights = model.weights(model.init(np.random.default_rng(0)))
    np.testing.assert_allclose(weights.mean_d, 0.0)
    np.testing.assert_allclose(weights.covariance, np.eye(3) / 4)


def test_the_budget_is_split_as_declared() -> None:
    """Σμ² of the releases in the declared shares, μ_t² ∝ t, and the scalar a tenth of the score."""
    model = FirstOrder(4, intercept=COLUMN)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    spent = np.array([release.mechanism.noise_multiplier**-2 for release in plan])
    np.testing.assert_allclose(spent[[0, -1]] / spent.sum(), [0.17, 0.05])
    np.testing.assert_allclose(spent[1:-1] / spent[1], np.arange(1, 17))
    step = plan.releases[1]
    assert step.noise_std("score") == pytest.approx(0.1 * step.noise_std("variance"))


# --- blocks -------------------------------------------------------------------------------------------------


def somewhere(kind: str) -> tuple[FirstOrder, FirstOrderState, DesignRows]:
    """A model, a point that a noisy fit leads to, and rows."""
    likelihood, x_nd = LIKELIHOODS[kind], features(7, 400, 4)
    psi_n = with_column(x_nd) @ np.array([-1.0, 2.0, -2.0, 1.0, 0.5])
    y_n, trials_n = responses(7, kind, psi_n)
    model = FirstOrder(5, likelihood=likelihood, intercept=COLUMN)
    q, _ = fitted(model, x_nd, y_n, trials_n, epsilon=1.0)
    return model, q, DesignRows(with_column(x_nd), y_n, trials_n)


def loglik(likelihood: Likelihood, psi_n: Floats, rows: DesignRows) -> Floats:
    """Log likelihoods from the distributions themselves, up to what does not depend on ψ."""
    y_n, yes_n, no_n = rows.y_n, log_expit(psi_n), log_expit(-psi_n)
    if likelihood.kind == "negative_binomial":
        r = likelihood.r
        return np.asarray(y_n * log_expit(psi_n - math.log(r)) + r * log_expit(math.log(r) - psi_n))
    if likelihood.kind == "poisson":
        return np.asarray(y_n * psi_n - np.exp(psi_n))
    return np.asarray(y_n * yes_n + (rows.trials_n - y_n) * no_n)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_score_is_the_weighted_gradient_and_the_curvature_its_derivative(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, q, rows = somewhere(kind)
    monkeypatch.setattr(tuned, "LAST_NORM", most := 1.3)  # Some rows are longer, and some of the others beyond norm 1.
    monkeypatch.setattr(tuned, "LAST_EDGE", 1e6)
    # No count is clipped here.
    q, steepest, unit = replace(q, clip=200.0, typical=0.0), 0.25, 1.0
    if model.likelihood.is_count:
        scores = ClippedCounts(model.likelihood.r, 200.0)
        steepest, unit = scores.steepest, scores.unit
    moments, step = q.moments, 1e-5
    x_ne = rows.x_nd @ moments.basis_de / moments.scale_e
    length_n = np.linalg.norm(x_ne, axis=1)
    weight_n = np.minimum(1.0, 1.0 / length_n)
    assert 1.0 < np.quantile(length_n, 0.9) < most < length_n.max()
    blocks = {name: block for name, block in model.blocks.items() if block.phase == "step"}
    last = {name: block for name, block in model.blocks.items() if block.phase == "last"}

    # Counts have the curvature in expectation, which the mean's own has.
    middle_e = q.mean.point_d
    mean_n = model.likelihood.expected(rows.x_nd @ (moments.basis_de @ middle_e))
    expected = replace(rows, y_n=mean_n) if model.likelihood.is_count else rows

    def score(point_e: Floats, rows: DesignRows = rows) -> Floats:
        made: Any = model.e_step(replace(q, point_e=point_e), rows, blocks)["score"]
        return np.asarray(made.rows.x_nd * unit * made.scale_n[:, None])

    score_ne = score(middle_e)
    gram: Any = model.e_step(q, rows, last)["curvature_at_mean"]
    for e in range(5):
        shift_e = np.zeros(5)
        shift_e[e] = step / moments.scale_e[e]
        up_n, down_n = (
            loglik(model.likelihood, rows.x_nd @ (moments.basis_de @ (middle_e + sign * shift_e)), rows)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(score_ne[:, e], weight_n * (up_n - down_n) / (2 * step), atol=1e-6)
        up_ne, down_ne = (score(middle_e + sign * shift_e, expected) for sign in (1, -1))
        bend_ne = -(up_ne - down_ne) / (2 * step)
        expected_ne = 4 * steepest * most * gram.scale_n[:, None] * gram.x_nd * gram.x_nd[:, [e]]
        # The slope of the score itself, which has the weight w; longer rows have less of it.
        part_n = np.minimum(1.0, most / (weight_n * length_n**2))
        np.testing.assert_allclose(expected_ne, part_n[:, None] * bend_ne, atol=0.01)


@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_the_whole_slope_of_long_rows_is_as_far_as_noise_permits(kind: str) -> None:
    """At Λ the edge of the noise is a tenth of a usual direction; Λ is within [1, 4], and 1 without noise.

    Averages weigh scores by more than their noise, so that they have a little more of it than the model assumes here.
    """
    model, q, _ = somewhere(kind)
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
    noise = sum(calibrated(plan, epsilon=1.0, delta=1e-5).noise_stds("curvature_at_mean"))
    edge = math.sqrt(2 * 5) * 4 * model._scores(q).steepest * noise
    for usual, expected in ((1e-9, 1.0), (20 * edge, 2.0), (1e9, tuned.LAST_NORM)):
        whole = model._whole(replace(q, curvature_ee=usual * np.eye(5)))
        assert whole == pytest.approx(expected, rel=0.05)
    assert model._whole(replace(q, mean=replace(q.mean, noise=0.0))) == 1.0


@kills("norms", "the slope of long rows in full")
@edit(
    "models/regression/first_order.py",
    "np.minimum(weight_n, most / np.maximum(rows.length_n, 1.0) ** 2)",
    "weight_n",
)
@pytest.mark.parametrize("kind", LIKELIHOODS)
def test_no_row_exceeds_the_bounds(kind: str) -> None:
    """The clip is never active on admissible rows: the equations hold as they stand."""
    model, q, _ = somewhere(kind)
    rng, largest = np.random.default_rng(8), model.likelihood.max_y
    x_nd = rng.standard_normal((500, 4))
    x_nd *= math.sqrt(1 - COLUMN**2) / np.linalg.norm(x_nd, axis=1)[:, None]
    trials_n = np.full(500, float(model.likelihood.max_trials))
    hostile = DesignRows(with_column(x_nd), rng.choice([0.0, largest], 500), trials_n)
    for scale in (1.0, 50.0):
        mean = replace(q.mean, point_d=scale * q.mean.point_d)
        far = replace(q, point_e=scale * q.point_e, last_e=scale * q.last_e, mean=mean)
        far = replace(far, moments=q.moments.divided(0.1))  # Rows ten times as long.
        for phase in ("first", "step", "last"):
            blocks = {name: block for name, block in model.blocks.items() if block.phase == phase}
            for name, contribution in model.e_step(far, hostile, blocks).items():
                assert contribution.norms().max() <= blocks[name].bound * (1 + 1e-4), name


def test_parameters_are_checked() -> None:
    for wrong in (
        {"n_features": 0},
        {"n_features": 2, "intercept": 1.0},
        {"n_features": 2, "n_steps": 0},
        {"n_features": 2, "alpha": 0.0},
    ):
        with pytest.raises(ParameterError):
            FirstOrder(**wrong)  # type: ignore[arg-type]


# --- readings -----------------------------------------------------------------------------------------------


def test_without_noise_moments_are_read_as_they_are() -> None:
    x_nd = features(9, 500, 4)
    full_nd = with_column(x_nd)
    moments = read_moments(full_nd.T @ full_nd, 0.0, COLUMN, inner=False)
    np.testing.assert_allclose((moments.basis_de * moments.eigenvalue_e) @ moments.basis_de.T, full_nd.T @ full_nd)
    np.testing.assert_allclose(full_nd @ (moments.basis_de @ moments.constant_e), 1.0)
    assert moments.number == pytest.approx(500)
    within_nd = np.hstack([np.full((500, 1), COLUMN), math.sqrt(1 - COLUMN**2) * x_nd])
    moments = read_moments(within_nd.T @ within_nd, 0.0, COLUMN, inner=True)
    np.testing.assert_allclose((moments.basis_de * moments.eigenvalue_e) @ moments.basis_de.T, x_nd.T @ x_nd, atol=1e-9)


def test_the_signs_of_eigenvectors_are_a_function_of_the_matrix_alone() -> None:
    """Rounding of the last bits turns no vector around, and whatever sign LAPACK returns is replaced."""
    rng = np.random.default_rng(12)
    matrix_dd = rng.standard_normal((30, 30))
    matrix_dd = matrix_dd @ matrix_dd.T
    basis_de = read_moments(matrix_dd, 1.0, COLUMN, inner=False).basis_de
    for _ in range(20):
        noise_dd = 1e-12 * rng.standard_normal((30, 30))
        other_de = read_moments(matrix_dd + noise_dd + noise_dd.T, 1.0, COLUMN, inner=False).basis_de
        np.testing.assert_allclose(other_de, basis_de, atol=1e-8)
        np.testing.assert_array_equal(with_fixed_signs(basis_de * rng.choice([-1.0, 1.0], 30)), basis_de)


def test_noise_alone_is_read_as_nothing_and_a_large_eigenvalue_is_debiased() -> None:
    """Eigenvalue θ of low rank shows at θ + edge²/4θ and is read as √(shown² - edge²) = θ - edge²/4θ."""
    d, sd, theta = 200, 1.0, 60.0
    rng = np.random.default_rng(10)
    noise_dd = rng.standard_normal((d, d)) * sd
    noise_dd = np.triu(noise_dd, 1) * math.sqrt(0.5) + np.diag(np.diag(noise_dd))
    noise_dd += np.triu(noise_dd, 1).T
    edge = math.sqrt(2 * d) * sd
    read_dd = read_positive(noise_dd, np.zeros((d, d)), sd, 0.0)
    assert np.linalg.eigvalsh(read_dd).max() < 0.6 * edge
    vector_d = np.ones(d) / math.sqrt(d)
    read_dd = read_positive(noise_dd + theta * np.outer(vector_d, vector_d), np.zeros((d, d)), sd, 0.0)
    assert np.linalg.eigvalsh(read_dd).max() == pytest.approx(theta - edge**2 / (4 * theta), abs=4.0)


def test_the_posterior_averages_over_tau_by_its_evidence() -> None:
    """Against the normal distribution of the Newton point, with the prior covariance written out."""
    rng = np.random.default_rng(11)
    root_ee, slope_ee, fixed_ee = rng.standard_normal((3, 4, 4))
    variance_ee, steep, noise = root_ee @ root_ee.T, 1.3, 2.0
    score_e, offset_e = rng.standard_normal((2, 4))
    score = ridge.NoisyScore(score_e, offset_e, variance_ee, steep, noise)
    prior = ridge.WeightPrior(slope_ee, fixed_ee, ridge.grid())
    slope_ee = steep * variance_ee
    error_ee = np.linalg.inv(slope_ee) @ (variance_ee + noise * np.eye(4)) @ np.linalg.inv(slope_ee)
    newton_e = offset_e + np.linalg.solve(slope_ee, score_e)
    logs, means, covariances = [], [], []
    for tau in prior.taus:
        prior_ee = tau**2 * prior.slopes_ef @ prior.slopes_ef.T + fixed_ee @ fixed_ee.T
        gain_ee = prior_ee @ np.linalg.inv(prior_ee + error_ee)
        mean_e, covariance_ee = ridge.posterior(score, replace(prior, taus=(tau,)))
        np.testing.assert_allclose(mean_e, gain_ee @ newton_e, rtol=1e-7)
        np.testing.assert_allclose(covariance_ee, prior_ee - gain_ee @ prior_ee, rtol=1e-6, atol=1e-9)
        logs.append(multivariate_normal(cov=prior_ee + error_ee).logpdf(newton_e) - 0.5 * math.log(tau / 0.35) ** 2)
        means.append(mean_e)
        covariances.append(covariance_ee)
    weight_a = np.exp(np.array(logs) - max(logs))
    weight_a /= weight_a.sum()
    mean_e, covariance_ee = ridge.posterior(score, prior)
    np.testing.assert_allclose(mean_e, weight_a @ np.array(means), rtol=1e-7)
    second_ee = sum(w * (c + np.outer(m, m)) for w, m, c in zip(weight_a, means, covariances, strict=True))
    np.testing.assert_allclose(covariance_ee, second_ee - np.outer(mean_e, mean_e), rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, 0.7, np.array([0.2, 0.5, 3.0])])
def test_independent_directions_have_the_posterior_of_their_matrix(noise: Any) -> None:
    rng = np.random.default_rng(13)
    score_e, offset_e = rng.standard_normal((2, 3))
    variance_e = rng.uniform(0.5, 2.0, 3)
    prior = ridge.WeightPrior(rng.standard_normal((3, 3)), rng.standard_normal((3, 1)), ridge.grid())
    beside = ridge.NormalLikelihood(np.eye(3) + 0.2, rng.standard_normal(3))
    for others in ((), (beside,)):
        vector, matrix = (
            ridge.NoisyScore(score_e, offset_e, variance, 1.2, noise, others)
            for variance in (variance_e, np.diag(variance_e))
        )
        np.testing.assert_allclose(
            ridge.mean_of(vector.information(), prior), ridge.posterior(matrix, prior)[0], rtol=1e-12
        )
        np.testing.assert_allclose(vector.slope(score_e), matrix.slope(score_e), rtol=1e-14)


def test_the_best_scale_is_that_of_the_density_of_the_estimates() -> None:
    rng = np.random.default_rng(14)
    for _ in range(20):
        point_e, variance_e = rng.standard_normal(5), rng.uniform(0.01, 1.0, 5)
        prior = ridge.WeightPrior(rng.standard_normal((5, 5)), rng.standard_normal((5, 2)), ridge.grid())
        logs = [
            multivariate_normal(cov=prior.covariance(tau) + np.diag(variance_e)).logpdf(point_e)
            - 0.5 * (math.log(tau / tuned.TAU_MEDIAN) / tuned.TAU_SPREAD) ** 2
            for tau in prior.taus
        ]
        assert ridge.best_scale(point_e, variance_e, prior) == prior.taus[int(np.argmax(logs))]


def test_a_prior_without_width_in_some_directions_needs_no_inverse() -> None:
    """Where the prior has no width the mean and the variance are 0, and elsewhere those of the rest by itself."""
    prior = ridge.WeightPrior(np.diag([1.0, 0.0, 2.0]), np.zeros((3, 0)), ridge.grid())
    likelihood = ridge.NormalLikelihood(np.diag([3.0, 5.0, 0.5]), np.array([1.0, 9.0, -2.0]))
    rest = ridge.WeightPrior(np.diag([1.0, 2.0]), np.zeros((2, 0)), ridge.grid())
    own = ridge.NormalLikelihood(np.diag([3.0, 0.5]), np.array([1.0, -2.0]))
    np.testing.assert_allclose(ridge.mean_of(likelihood, prior)[[0, 2]], ridge.mean_of(own, rest), rtol=1e-12)
    covariance_ee = ridge.covariance_of(likelihood, prior)
    np.testing.assert_allclose(covariance_ee[np.ix_([0, 2], [0, 2])], ridge.covariance_of(own, rest), atol=1e-12)
    assert not covariance_ee[1].any()


def test_collinear_directions_beyond_all_digits_have_a_posterior() -> None:
    """P is indefinite in float64; the sum of the weights is known, and their difference is not."""
    ones_ee, way_e = np.ones((4, 4)) * (1 + 1e-15 * np.arange(4)), np.array([1.0, -1.0, 0.0, 0.0])
    likelihood = ridge.NormalLikelihood(1e18 * (ones_ee + ones_ee.T), np.full(4, 2e18))
    prior = ridge.WeightPrior(np.eye(4), np.zeros((4, 0)), (1.0,))
    covariance_ee = ridge.covariance_of(likelihood, prior)
    assert np.isfinite(ridge.mean_of(likelihood, prior)).all()
    assert np.ones(4) @ covariance_ee @ np.ones(4) < 1e-3
    assert 0 < way_e @ covariance_ee @ way_e < 2.1


def test_averaged_scores_weigh_by_inverse_variance() -> None:
    rng = np.random.default_rng(12)
    points, scores, noises = rng.standard_normal((5, 3)), rng.standard_normal((5, 3)), rng.uniform(1, 9, 5)
    average = Average(np.zeros(3), np.zeros(3))
    for point_e, score_e, noise in zip(points, scores, noises, strict=True):
        average = average.joined(point_e, score_e, float(noise))
    np.testing.assert_allclose(average.point_d, np.average(points, axis=0, weights=1 / noises))
    np.testing.assert_allclose(average.score_d, np.average(scores, axis=0, weights=1 / noises))
    assert average.noise == pytest.approx(1 / np.sum(1 / noises))


def test_log_odds_stay_finite_and_know_their_noise() -> None:
    base, spread = log_odds(300.0, 10.0, 1000.0)
    assert base == pytest.approx(logit(301 / 1002))
    assert spread == pytest.approx(10 / 1002 / (301 / 1002 * 701 / 1002))
    for count, sd, number in [(-50.0, 10.0, 100.0), (0.0, 0.0, 0.0), (1e9, 1.0, 10.0), (0.0, 1e6, 1.0)]:
        base, spread = log_odds(count, sd, number)
        assert math.isfinite(base)
        assert math.isfinite(spread)
