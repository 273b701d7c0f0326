"""Pólya-Gamma regression: independent variational Bayes, the L2 optimum, counts, exact products, cost of noise."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, gammaln
from sklearn.linear_model import LogisticRegression

import dpvb
from dpvb.core import loop
from dpvb.core.blocks import pack_symmetric
from dpvb.core.forms import Gram, Rows
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.design import Design
from dpvb.data.tables.response import Response
from dpvb.errors import ParameterError
from dpvb.papers.polya_gamma import (
    PolyaGamma,
    PolyaGammaState,
    Precision,
    SecondMoment,
    inverse_root,
    squared,
    squared_norm,
)
from dpvb.results import metrics
from dpvb.rows.regression import DesignRows

INTERCEPT = 0.4


def logistic_rows(seed: int, n: int, d: int, size: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of norm at most 1 (the intercept's constant beside them), labels, and the true weights."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x *= math.sqrt(1 - INTERCEPT**2) / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)
    m = size * rng.standard_normal(d + 1)
    psi = INTERCEPT * m[0] + x @ m[1:]
    return x, (rng.random(n) < 1 / (1 + np.exp(-psi))).astype(float), m


def batch(x: np.ndarray, y: np.ndarray, trials: np.ndarray | None = None) -> DesignRows:
    full = np.hstack([np.full((len(x), 1), INTERCEPT), x])
    return DesignRows(full, y, np.ones(len(y)) if trials is None else trials)


def fit(model: PolyaGamma, source: Any, noise: float = 0.0, seed: int = 1) -> PolyaGammaState:
    plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget).scaled(noise)
    wall = Wall(source, plan, noise=InsecureNoise(seed))
    return loop.fit(model, wall, plan, rho=model.step_size, rng=np.random.default_rng(0))[0]


def design(x: np.ndarray, y: np.ndarray, trials: np.ndarray | None = None, **response: Any) -> Design:
    return Design(x, y, trials, response=Response(**response), intercept=INTERCEPT)


def independent(
    x: np.ndarray, kappa: np.ndarray, b: np.ndarray, alpha: float | None, steps: int = 1000
) -> tuple[np.ndarray, np.ndarray, float]:
    """Jaakkola & Jordan's iteration in its own words, plain float64, with q(α) = Gam(1 + d/2, ·)."""
    d = x.shape[1]
    expected = 1.0 if alpha is None else alpha
    curvature = x.T @ (0.25 * b[:, None] * x)
    for _ in range(steps):
        covariance = np.linalg.inv(expected * np.eye(d) + curvature)
        mean = covariance @ (kappa @ x)
        if alpha is None:
            expected = (1 + d / 2) / (1 + (mean @ mean + np.trace(covariance)) / 2)
        c = np.sqrt(np.einsum("nd,de,ne->n", x, covariance + np.outer(mean, mean), x))
        curvature = x.T @ ((b * np.tanh(c / 2) / (2 * c))[:, None] * x)
    return mean, covariance, expected


class Sums:
    """Released sums without a grid: the model's own equations in float64."""

    names = frozenset({"kappa_x", "xi_xx"})

    def __init__(self, model: PolyaGamma, q: PolyaGammaState, rows: DesignRows) -> None:
        self.of = model.e_step(q, rows, model.blocks)
        self.packed = model.variant == "paper"

    def read(self, name: str) -> np.ndarray:
        form = self.of[name]
        if isinstance(form, Gram):
            summed = form.x_nd.T @ (form.scale_n[:, None] * form.x_nd)
            return pack_symmetric(summed) if self.packed else summed
        assert isinstance(form, Rows)
        return form.values.sum(axis=0)

    def noise_std(self, name: str) -> float:
        return 0.0


def iterate(model: PolyaGamma, rows: DesignRows, steps: int = 400) -> PolyaGammaState:
    q = model.init(np.random.default_rng(0))
    for _ in range(steps):
        q = model.m_step(Sums(model, q, rows), q)  # type: ignore[arg-type]
    return q


# --- exactness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [None, 0.3])
@pytest.mark.parametrize("d", [3, 20])
def test_equals_independent_variational_bayes(alpha: float | None, d: int) -> None:
    x, y, _ = logistic_rows(1, 600, d)
    model = PolyaGamma(d + 1, intercept=INTERCEPT, num_steps=100, alpha=alpha)
    rows = batch(x, y)
    mean, covariance, expected = independent(rows.x_nd, y - 0.5, np.ones(600), alpha)
    own = iterate(model, rows)
    np.testing.assert_allclose(own.mean_d, mean, rtol=0, atol=1e-8 * np.linalg.norm(mean))
    walled = fit(model, design(x, y))
    assert np.linalg.norm(walled.mean_d - mean) <= 1e-5 * np.linalg.norm(mean)
    assert walled.alpha == pytest.approx(expected, rel=1e-5)
    total = walled.precision.curvature_dd + walled.alpha * np.eye(d + 1)
    np.testing.assert_allclose(np.linalg.inv(total), covariance, rtol=0, atol=1e-5 * np.linalg.norm(covariance))


def test_the_mode_is_the_l2_optimum() -> None:
    """With c = |xᵀμ| and α held, a fixed point has Σ (y - σ(ψ)) x = α μ: scikit-learn's optimum at C = 1/α."""
    x, y, _ = logistic_rows(2, 500, 6)
    rows, alpha = batch(x, y), 0.7
    mode = iterate(PolyaGamma(7, intercept=INTERCEPT, alpha=alpha, mode=True), rows)
    peer = LogisticRegression(C=1 / alpha, fit_intercept=False, tol=1e-12, max_iter=10_000).fit(rows.x_nd, y)
    np.testing.assert_allclose(mode.mean_d, peer.coef_[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["binomial", "negative_binomial"])
def test_counts_equal_independent_variational_bayes(kind: str) -> None:
    x, _, m = logistic_rows(3, 400, 4, size=1.0)
    rng = np.random.default_rng(4)
    odds = np.exp(INTERCEPT * m[0] + x @ m[1:])
    if kind == "binomial":
        trials = rng.integers(1, 9, 400).astype(float)
        y, likelihood, b = (
            rng.binomial(trials.astype(int), odds / (1 + odds)).astype(float),
            {"max_trials": 8.0},
            trials,
        )
        source = design(x, y, trials, kind=kind, max_trials=8)
    else:
        y = np.minimum(rng.poisson(rng.gamma(2.0, odds)), 40).astype(float)
        trials, likelihood, b = np.ones(400), {"dispersion": 2.0, "max_count": 40.0}, y + 2.0
        source = design(x, y, kind=kind, max_count=40)
    mean, _, _ = independent(batch(x, y).x_nd, y - b / 2, b, None)
    model = PolyaGamma(5, kind, **likelihood, intercept=INTERCEPT, num_steps=100)
    np.testing.assert_allclose(iterate(model, batch(x, y, trials)).mean_d, mean, atol=1e-8 * np.linalg.norm(mean))
    # Rows far below the bound of a count have fewer bits.
    assert np.linalg.norm(fit(model, source).mean_d - mean) <= 3e-5 * np.linalg.norm(mean)


def test_negative_binomial_means_agree_with_a_generalised_linear_model() -> None:
    """Flat prior, dispersion given: the mode is the maximum of the likelihood, mean = r exp ψ."""
    import statsmodels.api as sm

    x, _, m = logistic_rows(5, 800, 3, size=1.0)
    rng = np.random.default_rng(6)
    y = rng.poisson(rng.gamma(1.5, np.exp(INTERCEPT * m[0] + x @ m[1:]))).astype(float)
    rows = batch(x, y)
    model = PolyaGamma(4, "negative_binomial", dispersion=1.5, max_count=1000, alpha=1e-9, mode=True)
    q = iterate(model, rows, 2000)
    peer = sm.GLM(y, rows.x_nd, family=sm.families.NegativeBinomial(alpha=1 / 1.5)).fit(tol=1e-12)
    np.testing.assert_allclose(1.5 * np.exp(rows.x_nd @ q.mean_d), peer.mu, rtol=1e-5)


def test_the_evidence_bound_rises_and_its_rows_are_the_closed_form() -> None:
    x, y, _ = logistic_rows(7, 200, 3)
    model, rows = PolyaGamma(4, intercept=INTERCEPT, variant="paper"), batch(x, y)
    q, bounds = model.init(np.random.default_rng(0)), []
    for _ in range(12):
        old, q = q, model.m_step(Sums(model, q, rows), q)  # type: ignore[arg-type]
        covariance = np.linalg.inv(q.precision.curvature_dd + old.alpha * np.eye(4))
        square = q.mean_d @ q.mean_d + np.trace(covariance)
        shape, rate = 1 + 2, (1 + 2) / q.alpha
        log_alpha = digamma(shape) - math.log(rate)
        prior = 0.5 * 4 * log_alpha - 0.5 * q.alpha * square + 0.5 * np.linalg.slogdet(covariance)[1] + 2
        prior += -q.alpha - (shape - 1) * log_alpha + shape + gammaln(shape) - shape * math.log(rate)
        bounds.append(model.bound(q, rows).sum() + prior)
    assert (np.diff(bounds) > -1e-9).all()
    psi = rows.x_nd @ q.mean_d
    c = np.sqrt(psi**2 + np.einsum("nd,de,ne->n", rows.x_nd, covariance, rows.x_nd))
    np.testing.assert_allclose(model.bound(q, rows), (y - 0.5) * psi - np.log(2 * np.cosh(c / 2)), atol=1e-6)
    # below the expected log likelihood, by quadrature
    node, weight = np.polynomial.hermite_e.hermegauss(60)
    spread = np.sqrt(c**2 - psi**2)
    at = psi[:, None] + spread[:, None] * node
    expected = (y[:, None] * at - np.logaddexp(0, at)) @ weight / weight.sum()
    assert (model.bound(q, rows) <= expected + 1e-9).all()


# --- exact products -----------------------------------------------------------------------------------------


def test_second_moments_are_right_and_pure() -> None:
    rng = np.random.default_rng(8)
    for d in (1, 2, 33, 130):
        matrix = rng.standard_normal((d, d))
        root = inverse_root(matrix @ matrix.T, 0.5)
        assert root is not None
        covariance, mean = np.linalg.inv(matrix @ matrix.T + 0.5 * np.eye(d)), rng.standard_normal(d)
        np.testing.assert_allclose(squared(root), covariance, rtol=1e-9, atol=1e-12)
        assert squared_norm(root) == pytest.approx(np.sum(covariance**2), rel=1e-9)
        x = rng.standard_normal((1500, d)) * 10.0 ** rng.uniform(-3, 0, (1500, 1))
        moment = SecondMoment.of(root, mean)
        own = moment(x)
        np.testing.assert_allclose(own, np.einsum("nd,de,ne->n", x, covariance + np.outer(mean, mean), x), rtol=1e-5)
        assert np.array_equal(np.array([moment(x[[n]])[0] for n in range(40)]), own[:40])
        assert np.array_equal(moment(x[::-1])[::-1], own)
        x[3], x[4, 0] = math.inf, math.nan
        spoilt = moment(x)
        assert np.isnan(spoilt[3:5]).all()
        assert np.array_equal(np.delete(spoilt, [3, 4]), np.delete(own, [3, 4]))
    assert inverse_root(-np.eye(2), 0.5) is None


# --- noise --------------------------------------------------------------------------------------------------


def test_the_split_over_steps_costs_nothing() -> None:
    """The average of J releases has the noise of one that takes their whole budget."""
    for steps in (1, 2, 10, 40):
        model = PolyaGamma(3, num_steps=steps)
        plan = phased(model.blocks, FullBatch(), model.schedule.noise, shares=model.schedule.budget)
        weight, variance = 0.0, 0.0
        for t, release in enumerate(plan, start=1):
            if "xi_xx" in release.blocks:
                rho = model.step_size(t)
                weight = rho + (1 - rho) * weight
                variance = rho**2 * release.noise_std("xi_xx") ** 2 + (1 - rho) ** 2 * variance
        budget = sum(release.noise_std("xi_xx") ** -2 for release in plan if "xi_xx" in release.blocks)
        assert variance / weight**2 * budget == pytest.approx(1.0, rel=1e-3)


def test_the_covariance_is_the_spread_of_the_mean() -> None:
    """A linear model with known C, α and noise: errors of μ over 4,000 draws have the covariance that is claimed.

    Every variance is a χ² over 4,000: within 12 % with a false alarm of 1e-6 for all; seed 9.
    """
    rng = np.random.default_rng(9)
    d, alpha, noise, draws = 4, 0.5, 30.0, 4000
    turned = np.linalg.qr(rng.standard_normal((d, d)))[0]
    curvature = turned @ np.diag([400.0, 300.0, 200.0, 100.0]) @ turned.T
    for lift in (np.zeros((0, 0)), turned @ np.diag([0.0, 0.0, 20.0, 50.0]) @ turned.T):
        precision = Precision(curvature, lift, alpha if lift.size else 40.0, alpha, noise, 0.0)
        errors = np.empty((draws, d))
        for i in range(draws):
            m = rng.standard_normal(d) / math.sqrt(alpha)
            linear = curvature @ m + np.linalg.cholesky(curvature) @ rng.standard_normal(d)
            errors[i] = precision.solve(linear + math.sqrt(noise) * rng.standard_normal(d))[2] - m
        claimed, _ = precision.covariances(np.zeros(d), 1.0)
        ratio = np.diag(turned.T @ (errors.T @ errors / draws) @ turned) / np.diag(turned.T @ claimed @ turned)
        assert (np.abs(ratio - 1) < 0.12).all()


def test_the_precision_of_the_prior_is_found_under_noise() -> None:
    """d = 200 weights: ⟨mᵀm⟩ has a relative deviation of √(2/200) = 10 %, α is found within 5 of them; seed 10."""
    rng = np.random.default_rng(10)
    d, alpha, noise = 200, 0.25, 2000.0
    curvature = np.diag(rng.uniform(100, 1000, d))
    m = rng.standard_normal(d) / math.sqrt(alpha)
    linear = curvature @ m + np.sqrt(np.diag(curvature) + noise) * rng.standard_normal(d)
    found = 1.0
    for ridge in (0.0, 100.0):
        for _ in range(60):
            precision = Precision(curvature, np.zeros((0, 0)), found + ridge, found, noise, 0.0)
            precision, root, mean = precision.solve(linear)
            found = d / (mean @ mean + precision.spread(root, mean))
        assert found == pytest.approx(alpha, rel=0.5)


def test_noise_in_the_curvature_reaches_the_covariance() -> None:
    """First order: errors of μ over draws of E_2 have covariance Σ Var(E_2 μ) Σ; χ² over 3,000, 14 %; seed 11."""
    rng = np.random.default_rng(11)
    d, sd, draws = 3, 2.0, 3000
    curvature, linear = np.diag([500.0, 400.0, 300.0]), np.array([900.0, -300.0, 200.0])
    exact = Precision(curvature, np.zeros((0, 0)), 1.0, 1.0, 0.0, 0.0)
    mean = exact.solve(linear)[2]
    errors = np.empty((draws, d))
    for i in range(draws):
        e = rng.standard_normal((d, d)) * sd / math.sqrt(2)
        e = np.triu(e, 1) + np.triu(e, 1).T + np.diag(np.diag(e)) * math.sqrt(2)
        errors[i] = replace(exact, curvature_dd=curvature + e).solve(linear)[2] - mean
    noisy, _ = replace(exact, curvature_noise=sd**2).covariances(mean, 1.0)
    plain, _ = exact.covariances(mean, 1.0)
    ratio = np.diag(errors.T @ errors / draws) / np.diag(noisy - plain)
    assert (np.abs(ratio - 1) < 0.14).all()


@pytest.mark.parametrize("d", [5, 1030])
def test_reading_pure_noise_is_harmless(d: int) -> None:
    """Statistics that are noise alone: a positive precision, a mean shorter than the prior's, and the prior's width."""
    rng = np.random.default_rng(12)
    e = rng.standard_normal((d, d)) * 10.0 / math.sqrt(2)
    e = np.triu(e, 1) + np.triu(e, 1).T + np.diag(np.diag(e)) * math.sqrt(2)
    precision, root, mean = Precision.read(e, 1.0, 400.0, 100.0).solve(20.0 * rng.standard_normal(d))
    assert np.linalg.norm(mean) < math.sqrt(d)
    aware, _ = precision.covariances(mean, 1.0)
    assert 0.5 < np.trace(aware) / d < 20
    assert np.linalg.eigvalsh(aware).min() > 0
    assert math.isfinite(precision.spread(root, mean))


def test_the_curvature_at_the_mean_is_close_to_p_times_1_minus_p() -> None:
    """One factor for all directions: within 20 % of the ratio of traces, where ⟨ξ⟩ is up to twice as large."""
    for seed, shift in ((13, 0.0), (14, -5.0)):
        x, _, m = logistic_rows(seed, 4000, 5)
        m[0] += shift
        rows = batch(x, np.zeros(4000))
        psi = rows.x_nd @ m
        y = (np.random.default_rng(seed).random(4000) < 1 / (1 + np.exp(-psi))).astype(float)
        model = PolyaGamma(6, intercept=INTERCEPT)
        q = iterate(model, batch(x, y), 100)
        psi = rows.x_nd @ q.mean_d
        p = 1 / (1 + np.exp(-psi))
        exact = rows.x_nd.T @ ((p * (1 - p))[:, None] * rows.x_nd)
        assert np.trace(q.precision.curvature_dd) > 1.05 * np.trace(exact)
        naive = np.linalg.inv(model.weights(q).naive_covariance)
        assert np.trace(naive) == pytest.approx(np.trace(exact), rel=0.2)


def test_the_papers_variant_without_noise_is_the_same_posterior() -> None:
    x, y, _ = logistic_rows(15, 600, 3)
    rows = batch(x, y)
    mean, covariance, _ = independent(rows.x_nd, y - 0.5, np.ones(600), 0.5)
    model = PolyaGamma(4, intercept=INTERCEPT, num_steps=120, alpha=0.5, variant="paper")
    q = fit(model, design(x, y))
    assert np.linalg.norm(q.mean_d - mean) <= 1e-5 * np.linalg.norm(mean)
    np.testing.assert_allclose(model.weights(q).covariance, covariance, atol=1e-5 * np.linalg.norm(covariance))


def test_corrected_beats_the_papers_variant_under_noise() -> None:
    """Same data and budget, 20 columns of 3,000 rows: squared error of the weights, over 5 seeds of noise."""
    x, y, m = logistic_rows(16, 3000, 20)
    error = {}
    for variant in ("corrected", "paper"):
        model = PolyaGamma(21, intercept=INTERCEPT, variant=variant)
        error[variant] = np.mean(
            [np.sum((fit(model, design(x, y), noise=4.0, seed=seed).mean_d - m) ** 2) for seed in range(5)]
        )
    assert error["corrected"] < 0.5 * error["paper"]


# --- bad input ----------------------------------------------------------------------------------------------


def test_faulty_rows_add_nothing_and_ordinary_extremes_pass() -> None:
    x, y, _ = logistic_rows(17, 60, 3)
    model = PolyaGamma(4, intercept=INTERCEPT, num_steps=20)
    spoilt_x, spoilt_y = np.vstack([x, x[:2]]), np.append(y, [7.0, 1.0])
    spoilt_x[-1] = math.nan
    np.testing.assert_array_equal(fit(model, design(spoilt_x, spoilt_y)).mean_d, fit(model, design(x, y)).mean_d)
    for labels in (np.zeros(60), np.ones(60)):
        assert np.isfinite(fit(model, design(x, labels)).mean_d).all()
    empty = fit(model, design(x[:0], y[:0]))
    assert np.array_equal(empty.mean_d, np.zeros(4))
    np.testing.assert_allclose(model.weights(empty).covariance, np.eye(4) / empty.precision.alpha, rtol=1e-9)


def test_a_row_of_weight_four_is_the_row_four_times() -> None:
    x, y, _ = logistic_rows(18, 200, 3)
    weight = np.where(np.arange(200) % 2, 4.0, 0.0)
    for variant in ("corrected", "paper"):
        model = PolyaGamma(4, max_weight=4.0, intercept=INTERCEPT, variant=variant, num_steps=5)
        rows = Design(x, y, response=Response(max_weight=4.0), intercept=INTERCEPT, beside={"weights": weight})
        four = np.repeat(np.flatnonzero(weight), 4)
        plain = replace(model, max_weight=None)
        repeated = fit(plain, design(x[four], y[four])).mean_d
        np.testing.assert_allclose(fit(model, rows).mean_d, repeated, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("variant", ["corrected", "paper"])
def test_private_fits_saves_and_opens_it(variant: str, tmp_path: Any) -> None:
    """At ε = 8 and 6,000 rows an AUC above 0.7, whose own is 0.8: nearly without noise, so that no alarm is false."""
    x, y, _ = logistic_rows(21, 6_000, 3)
    model = PolyaGamma(4, intercept=INTERCEPT, variant=variant, num_steps=5)
    fitted = dpvb.Private(model, epsilon=8.0, delta=1e-5).fit(design(x, y))
    fitted.save(tmp_path / "m.dpvb")
    again = dpvb.load(tmp_path / "m.dpvb")
    assert np.array_equal(again.q_.mean_d, fitted.q_.mean_d)
    read = model.weights(again.q_)
    assert metrics.auc(y, batch(x, y).x_nd @ read.mean_d) > 0.7
    assert (np.diag(read.covariance) > 0).all()


def test_norms_never_exceed_the_declared_bounds() -> None:
    x, y, _ = logistic_rows(19, 200, 3)
    x *= math.sqrt(1 - INTERCEPT**2) / np.linalg.norm(x, axis=1, keepdims=True)
    for likelihood, counts in (
        ({}, y),
        ({"kind": "negative_binomial", "dispersion": 3.0, "max_count": 9}, np.round(9 * y)),
    ):
        model = PolyaGamma(4, **likelihood, intercept=INTERCEPT)
        made = model.e_step(model.init(np.random.default_rng(0)), batch(x, counts), model.blocks)
        for name, block in model.blocks.items():
            norms = made[name].norms()
            assert norms.max() <= block.bound * (1 + 1e-5)
            assert norms.max() > 0.99 * block.bound


@pytest.mark.parametrize(
    "fields",
    [{"n_features": 0}, {"num_steps": 0}, {"alpha": 0.0}, {"variant": "other"}, {"intercept": 1.0}, {"a0": -1}],
)
def test_parameters_out_of_range(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        partial(PolyaGamma, **{"n_features": 3, **fields})()
