"""Factor models: the proven norms, the readings against closed forms, and variational Bayes from second moments."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from planted import edit, kills
from sklearn import decomposition as plainly

import dpvb
from dpvb.models.factors import denoising, posterior
from dpvb.models.factors.three_releases import (
    SecondMoments,
    ThreeReleases,
    chosen_radius,
    length_edges,
    lengths_in_bins,
)
from dpvb.rows import DesignRows

D = 6


def rows(x_nd: np.ndarray) -> DesignRows:
    return DesignRows(x_nd, np.zeros(len(x_nd)), np.ones(len(x_nd)))


def table(n: int, seed: int, d: int = D, k: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    loading_kd, std_d = rng.normal(0, 0.4, (k, d)), rng.uniform(0.3, 0.6, d)
    return np.asarray(rng.normal(size=(n, k)) @ loading_kd + rng.normal(size=(n, d)) * std_d)


ADVERSARIAL = np.vstack([np.eye(D), -np.eye(D), np.full((1, D), D**-0.5), np.zeros((1, D)), np.eye(D) * 1e-200])


@kills("norms", "second moments are in other scales than the radius")
@edit(
    "models/factors/three_releases.py",
    "np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)\n            length_n = upper_norms(z_nd)",
    "np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)\n            length_n = upper_norms(y_nd)",
)
@kills("norms", "the constant beside a row leaves no room for it")
@edit("models/factors/three_releases.py", "_beside(_C, _REST * y_nd)", "_beside(_C, y_nd)")
@kills("norms", "rows of a factor model are not shortened to the radius")
@edit(
    "models/factors/three_releases.py",
    "z_nd *= (1.0 / np.maximum(length_n, q.radius))[:, None]",
    "z_nd *= 1.0 / q.radius",
)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_every_block_reaches_its_bound_and_never_passes_it(seed: int, gamma: float) -> None:
    rng = np.random.default_rng(seed)
    random = rng.standard_normal((500, D))
    x_nd = np.vstack([ADVERSARIAL, random / np.linalg.norm(random, axis=1)[:, None] * rng.uniform(0, 1, (500, 1))])
    model = ThreeReleases(D, gamma)
    scale_d = np.exp(rng.normal(size=D))
    q = SecondMoments(rng.normal(size=D), scale_d, 0.5, 0.0, np.zeros((D, D)), 1.0, 1.0)
    largest = {}
    for phase in ("first", "second", "last"):
        asked = {name: block for name, block in model.blocks.items() if block.phase == phase}
        found = model.e_step(q, rows(x_nd), asked)
        for name, block in asked.items():
            largest[name] = float(found[name].of_block(block, len(x_nd)).norms().max())
    for name, norm in largest.items():
        assert 1 - 1e-6 <= norm <= 1 + 2.0**-15, name


def test_a_faulty_row_adds_nothing_to_any_block() -> None:
    model = ThreeReleases(D)
    x_nd = np.full((2, D), math.nan)
    for phase in ("first", "second", "last"):
        asked = {name: block for name, block in model.blocks.items() if block.phase == phase}
        found = model.e_step(model.init(np.random.default_rng(0)), rows(x_nd), asked)
        for name, block in asked.items():
            assert not np.isfinite(found[name].of_block(block, 2).norms()).any(), name


def test_an_outlier_of_a_million_is_as_long_as_the_norm() -> None:
    x_nd = table(2_000, 0)
    quiet = dpvb.FactorAnalysis(2, max_row_norm=4.0, epsilon=math.inf, delta=1e-6).fit(x_nd)
    moved = dpvb.FactorAnalysis(2, max_row_norm=4.0, epsilon=math.inf, delta=1e-6).fit(
        np.vstack([x_nd, np.full(D, 1e6)])
    )
    assert np.abs(quiet.get_covariance() - moved.get_covariance()).max() <= 4.0**2 / 2_000


def test_every_length_has_one_bin_and_the_largest_the_last() -> None:
    edge_b = length_edges(np.full(D, 0.1), np.ones(D))
    length_n = np.append(np.geomspace(1e-9, 1e9, 500), [0.0, math.nan, math.inf])
    binned = lengths_in_bins(length_n, edge_b)
    assert (binned[:501].sum(axis=1) == 1).all()
    assert np.isnan(binned[501:]).all()
    assert (np.diff(binned[:500].argmax(axis=1)) >= 0).all()
    assert (binned[499, -1], binned[500, 0]) == (1, 1)


def test_without_noise_the_radius_holds_every_row() -> None:
    found = np.zeros(64)
    found[[40, 50, 55]] = [1000, 10, 1]
    radius = chosen_radius(found, 0.0, np.zeros(D), np.ones(D), 0.0)
    assert radius.lost == 0
    assert radius.radius >= length_edges(np.zeros(D), np.ones(D))[55]


def test_more_noise_never_lengthens_the_radius() -> None:
    found = np.random.default_rng(0).uniform(100, 1000, 64)
    radii = [chosen_radius(found, 1.0, np.zeros(D), np.ones(D), noise).radius for noise in np.geomspace(1e-6, 1, 30)]
    assert (np.diff(radii) <= 0).all()
    assert radii[-1] < radii[0]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_without_noise_the_mode_is_scikit_learns(k: int) -> None:
    """Log-likelihoods of factor analysis and PCA within 1e-3, the same subspace."""
    train, test = table(2_000, 1, 8, 3), table(1_000, 1, 8, 3)
    given = {"max_row_norm": 20.0, "epsilon": math.inf, "delta": 1e-6, "estimate": "map"}
    own, other = (
        dpvb.FactorAnalysis(k, **given).fit(train),
        plainly.FactorAnalysis(k, tol=1e-3, max_iter=500, svd_method="lapack").fit(train),
    )
    assert own.score(test, public=True) == pytest.approx(other.score(test), abs=1e-3)
    own, other = dpvb.PCA(k, **given).fit(train), plainly.PCA(k).fit(train)
    assert own.score(test, public=True) == pytest.approx(other.score(test), abs=1e-3)
    overlap = np.linalg.svd(own.components_ @ other.components_.T, compute_uv=False)
    assert overlap.min() > 1 - 1e-6
    np.testing.assert_allclose(own.explained_variance_, other.explained_variance_, rtol=1e-3)
    np.testing.assert_allclose(own.explained_variance_ratio_, other.explained_variance_ratio_, rtol=1e-3)
    np.testing.assert_allclose(np.abs(own.transform(test)), np.abs(other.transform(test)), atol=2e-3)


def test_the_mode_of_principal_components_is_the_closed_form() -> None:
    """Tipping & Bishop 1999: σ² is the mean of the eigenvalues left out, W = U (Λ - σ²)^½."""
    value_e = np.array([5.0, 3.0, 1.0, 0.5, 0.3])
    basis_de = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    found = posterior.components(value_e, basis_de, 1000.0, 2, is_point=True)
    assert found.unique_d == pytest.approx(np.full(5, 0.6))
    covariance = (basis_de * np.array([5.0, 3.0, 0.6, 0.6, 0.6])) @ basis_de.T
    np.testing.assert_allclose(found.covariance_dd, covariance, atol=1e-12)


def from_rows(x_nd: np.ndarray, loading_dk: np.ndarray, unique_d: np.ndarray, rounds: int) -> np.ndarray:
    """Variational Bayes as it is usually written, a factor vector for each row; the covariance at the end."""
    (n, d), k = x_nd.shape, loading_dk.shape[1]
    precision_k = d / (loading_dk**2 / unique_d[:, None]).sum(axis=0)
    shared_kk = np.zeros((k, k))
    for _ in range(rounds):
        m_kk = np.linalg.inv(np.eye(k) + (loading_dk.T / unique_d) @ loading_dk + d * shared_kk)
        h_nk = x_nd / unique_d @ loading_dk @ m_kk
        second_kk = n * m_kk + h_nk.T @ h_nk
        shared_kk = np.linalg.inv(second_kk + np.diag(precision_k))
        loading_dk = x_nd.T @ h_nk @ shared_kk
        unique_d = (np.square(x_nd).sum(axis=0) - (loading_dk * (x_nd.T @ h_nk)).sum(axis=1)) / n
        precision_k = d / ((loading_dk**2 / unique_d[:, None]).sum(axis=0) + d * np.diag(shared_kk))
    return np.asarray(loading_dk @ loading_dk.T + np.diag(unique_d))


def test_variational_bayes_from_moments_is_that_from_rows() -> None:
    x_nd = table(300, 3)
    x_nd -= x_nd.mean(axis=0)
    read = denoising.Split(x_nd.T @ x_nd / 300, np.zeros(D), D)
    start = posterior.factors(read, 300.0, 2, np.ones(D), is_point=True)
    found = posterior.factors(read, 300.0, 2, np.ones(D), is_point=False)
    expected = from_rows(x_nd, start.loading_dk, start.unique_d, 200)
    np.testing.assert_allclose(found.covariance_dd, expected, rtol=1e-3, atol=1e-4)


def test_the_precisions_switch_off_factors_that_are_not_there() -> None:
    x_nd = table(5_000, 4, 10, 2)
    found = dpvb.FactorAnalysis(6, max_row_norm=10.0, epsilon=math.inf, delta=1e-6).fit(x_nd)
    strength_k = np.square(found.loadings_ / np.sqrt(found.noise_variance_)).sum(axis=1)
    assert strength_k[:2].min() > 30 * strength_k[2:].max()


@pytest.mark.parametrize("d", [5, 40])
def test_eigenvalues_within_the_noise_are_read_as_noise(d: int) -> None:
    """Noise alone: its largest eigenvalue lies beyond 1.25 times the edge with a probability below 1e-6 at d = 40."""
    rng = np.random.default_rng(5)
    noise = rng.standard_normal((d, d)) * math.sqrt(0.5)
    noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.standard_normal(d))
    edge = math.sqrt(2 * d)
    value_e, _ = posterior.spectrum(noise, 1.0, 1e6, 1.0)
    assert value_e.max() - value_e.min() <= 1.25 * edge
    assert denoising.shrunk(np.array([edge - 1e-9, -5 * edge]), 1.0, d).tolist() == [0.0, 0.0]
    spike = 3 * edge
    seen = spike + d / (2 * spike)
    assert denoising.unbiased(np.array([seen]), 1.0, d)[0] == pytest.approx(spike)


def test_variances_of_columns_are_read_between_noise_and_prior() -> None:
    rng = np.random.default_rng(6)
    true_d = np.repeat([0.01, 1.0], 200)
    found_d = denoising.variances(true_d + 0.1 * rng.standard_normal(400), 0.1)
    assert (found_d > 0).all()
    assert (
        np.abs(found_d - true_d).mean() < np.abs(np.maximum(true_d + 0.1 * rng.standard_normal(400), 0) - true_d).mean()
    )
    assert denoising.with_prior(np.array([7.0]), np.array([1e18]), np.array([2.0]))[0] == pytest.approx(2.0)


@pytest.mark.parametrize("kind", [dpvb.FactorAnalysis, dpvb.PCA])
def test_what_must_not_matter_does_not(kind: type) -> None:
    """Order of rows, order and sign of columns; of factor analysis the ranges, too."""
    x_nd = table(1_000, 7)
    order = np.random.default_rng(0).permutation(D)
    given = {"epsilon": math.inf, "delta": 1e-6, "low": -5.0, "high": 5.0}
    plain = kind(2, **given).fit(x_nd).get_covariance()
    np.testing.assert_allclose(kind(2, **given).fit(x_nd[::-1]).get_covariance(), plain, atol=1e-6)
    np.testing.assert_allclose(
        kind(2, **given).fit(-x_nd[:, order]).get_covariance(), plain[np.ix_(order, order)], atol=1e-6
    )
    if kind is dpvb.FactorAnalysis:
        wide = kind(2, **{**given, "low": np.linspace(-50, -5, D), "high": 30.0}).fit(x_nd).get_covariance()
        np.testing.assert_allclose(wide, plain, atol=1e-3)


def test_a_rotation_of_the_rows_rotates_principal_components() -> None:
    x_nd = table(1_000, 8)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((D, D)))[0]
    given = {"epsilon": math.inf, "delta": 1e-6, "max_row_norm": 6.0}
    plain, turned = (dpvb.PCA(2, **given).fit(rows_nd).get_covariance() for rows_nd in (x_nd, x_nd @ turn))
    np.testing.assert_allclose(turn @ turned @ turn.T, plain, atol=1e-5)


BAD = {
    "no rows": np.empty((0, 4)),
    "one row": np.ones((1, 4)),
    "constant columns": np.full((500, 4), 0.3),
    "duplicate columns": np.tile(np.random.default_rng(0).uniform(-1, 1, (500, 1)), 4),
    "more columns than rows": np.random.default_rng(0).uniform(-1, 1, (5, 30)),
    "one column": np.random.default_rng(0).uniform(-1, 1, (500, 1)),
    "outliers": np.vstack([np.random.default_rng(0).uniform(-1, 1, (500, 4)), np.full((20, 4), 1e6)]),
    "faulty": np.full((50, 4), np.nan),
}


@pytest.mark.parametrize("epsilon", [0.1, math.inf])
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("kind", [dpvb.FactorAnalysis, dpvb.PCA])
def test_bad_input_ends_in_finite_numbers_without_a_word(kind: type, name: str, epsilon: float) -> None:
    x_nd = BAD[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "This fit is not recorded")
        warnings.simplefilter("ignore", dpvb.guards.errors.DpvbWarning)
        for k in (None, 50):
            found = kind(k, low=-1.0, high=1.0, epsilon=epsilon, delta=1e-6).fit(x_nd)
            parts = [
                found.mean_,
                found.loadings_,
                found.get_covariance(),
                found.sample(3),
                found.transform(np.zeros((2, x_nd.shape[1]))),
            ]
            parts += [*found.covariance_interval(), *found.loadings_interval()]
            parts += [found.score_samples(np.zeros((2, x_nd.shape[1])), public=True)]
            assert all(np.isfinite(part).all() for part in parts)
            assert (np.linalg.eigvalsh(found.get_covariance()) >= 0).all()


def test_noise_alone_ends_at_the_prior() -> None:
    """No rows: the variances of numbers that are uniform in their ranges, within a factor of 2; few factors by chance.

    The noise is private and has no seed. Bins of lengths look as if they held rows in less than 1e-7 of all fits; the
    noise std of a second moment is then hundreds of prior variances, so that the prior is what is left.
    """
    for seed in range(3):
        found = dpvb.FactorAnalysis(low=-1.0, high=1.0, epsilon=1.0, delta=1e-6, random_state=seed).fit(
            np.empty((0, 12))
        )
        assert found.n_components_ <= 2
        assert (found.noise_variance_ > 1 / 6).all()
        assert (found.noise_variance_ < 2 / 3).all()


def test_more_budget_is_never_worse_on_average() -> None:
    """Six seeds each, at budgets ten times apart; the means would be that far off by chance with less than 1e-6."""
    train, test = table(3_000, 9), table(2_000, 9)
    means = [
        np.mean(
            [
                dpvb.FactorAnalysis(max_row_norm=4.0, epsilon=epsilon, delta=1e-6).fit(train).score(test, public=True)
                for _ in range(6)
            ]
        )
        for epsilon in (0.1, 1.0, 10.0)
    ]
    assert means[0] < means[1] < means[2] + 0.02
