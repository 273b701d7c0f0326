"""Linear dynamical systems against dense Gaussians, and fits from windows against whole sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman, linear_moments
from dpvb.models.sequences.kalman import LinearSystem
from dpvb.models.sequences.linear_moments import Grams

K, D = 2, 3


def square(rng: np.random.Generator, k: int) -> Floats:
    root = rng.standard_normal((k, k + 2))
    return np.asarray(root @ root.T / k)


def system(rng: np.random.Generator, k: int = K, d: int = D) -> LinearSystem:
    return LinearSystem(
        step_kk=0.6 * rng.standard_normal((k, k)),
        step_noise_kk=square(rng, k),
        shown_dk=rng.standard_normal((d, k)),
        shown_d=rng.standard_normal(d),
        noise_d=0.2 + rng.random(d),
        start_k=rng.standard_normal(k),
        start_kk=square(rng, k),
        pooled_k=rng.standard_normal(k),
        pooled_kk=square(rng, k),
    )


def drawn(found: LinearSystem, rng: np.random.Generator, n: int, length: int) -> Floats:
    k = len(found.start_k)
    state_nk = found.start_k + rng.standard_normal((n, k)) @ np.linalg.cholesky(found.start_kk).T
    x_ntd = np.empty((n, length, len(found.shown_d)))
    for t in range(length):
        noise_nd = np.sqrt(found.noise_d) * rng.standard_normal((n, len(found.shown_d)))
        x_ntd[:, t] = state_nk @ found.shown_dk.T + found.shown_d + noise_nd
        root_kk = np.linalg.cholesky(found.step_noise_kk)
        state_nk = state_nk @ found.step_kk.T + rng.standard_normal((n, k)) @ root_kk.T
    return x_ntd


def joint(found: LinearSystem, length: int) -> tuple[Floats, Floats]:
    """Mean and covariance of all states and of all that is seen, as one linear map of independent noise."""
    k = len(found.start_k)
    ways = np.zeros((length, length, k, k))  # how the noise of step s reaches state t
    for t in range(length):
        for s in range(t + 1):
            ways[t, s] = np.linalg.matrix_power(found.step_kk, t - s)
    way = ways.transpose(0, 2, 1, 3).reshape(length * k, length * k)
    noise = np.zeros((length * k, length * k))
    for s in range(length):
        noise[s * k : (s + 1) * k, s * k : (s + 1) * k] = found.step_noise_kk if s else found.start_kk
    mean_z = way[:, :k] @ found.start_k
    shown = np.kron(np.eye(length), found.shown_dk)
    both = np.vstack([np.eye(length * k), shown])
    cov = both @ way @ noise @ way.T @ both.T
    cov[length * k :, length * k :] += np.diag(np.tile(found.noise_d, length))
    return np.concatenate([mean_z, shown @ mean_z + np.tile(found.shown_d, length)]), cov


def test_filter_and_smoother_equal_conditioning_of_the_dense_joint_law() -> None:
    """Cross-covariances too, with numbers missing here and there, and one sequence shorter than the other."""
    rng = np.random.default_rng(1)
    found, length = system(rng), 5
    x_ntd = drawn(found, rng, 3, length)
    x_ntd[0, 1, 2] = x_ntd[0, 3] = x_ntd[1, 3:] = np.nan
    filtered, smoothed = kalman.filtered(found, x_ntd), kalman.smoothed(found, x_ntd)
    mean, cov = joint(found, length)
    states = length * K
    for n, x_td in enumerate(x_ntd):
        for t in range(length):
            seen_td = ~np.isnan(x_td)
            seen_td[t + 1 :] = False
            place = states + np.flatnonzero(seen_td.ravel())
            gain = np.linalg.solve(cov[np.ix_(place, place)], cov[place]).T
            given = mean + gain @ (x_td.ravel()[place - states] - mean[place])
            left, own = cov - gain @ cov[place], slice(t * K, (t + 1) * K)
            np.testing.assert_allclose(filtered.mean_ntk[n, t], given[own], rtol=1e-9, atol=1e-11)
            np.testing.assert_allclose(filtered.cov_ntkk[n, t], left[own, own], rtol=1e-9, atol=1e-11)
        # What is left after the last position is given all of the sequence.
        density = multivariate_normal(mean[place], cov[np.ix_(place, place)])
        assert smoothed.log_n[n] == pytest.approx(density.logpdf(x_td.ravel()[place - states]), rel=1e-10)
        np.testing.assert_allclose(smoothed.mean_ntk[n].ravel(), given[:states], rtol=1e-9, atol=1e-11)
        for t in range(length):
            own, after = slice(t * K, (t + 1) * K), slice((t + 1) * K, (t + 2) * K)
            np.testing.assert_allclose(smoothed.cov_ntkk[n, t], left[own, own], rtol=1e-8, atol=1e-10)
            if t < length - 1:
                np.testing.assert_allclose(smoothed.cross_ntkk[n, t], left[after, own], rtol=1e-8, atol=1e-10)


def test_a_forecast_is_the_filter_of_what_is_missing() -> None:
    rng = np.random.default_rng(2)
    found = system(rng)
    x_ntd = drawn(found, rng, 4, 6)
    seen = kalman.filtered(found, x_ntd)
    mean_ntd, variance_ntd = kalman.forecast(found, seen.mean_ntk[:, -1], seen.cov_ntkk[:, -1], 3)
    longer = np.concatenate([x_ntd, np.full((4, 3, D), np.nan)], axis=1)
    states = kalman.filtered(found, longer)
    shown = states.mean_ntk[:, 6:] @ found.shown_dk.T + found.shown_d
    np.testing.assert_allclose(mean_ntd, shown, rtol=1e-10)
    spread = found.shown_dk @ states.cov_ntkk[:, 6:] @ found.shown_dk.T
    np.testing.assert_allclose(variance_ntd, np.diagonal(spread, axis1=2, axis2=3) + found.noise_d, rtol=1e-10)


def gram(x_ntd: Floats, length: int) -> Floats:
    """Second moments of all windows, weighted alike."""
    n, total, d = x_ntd.shape
    made = np.zeros((length * d + 1, length * d + 1))
    for start in range(total - length + 1):
        y = np.column_stack([x_ntd[:, start : start + length].reshape(n, -1), np.ones(n)])
        made += y.T @ y
    return made


def whole(found: LinearSystem, x_ntd: Floats) -> tuple[LinearSystem, float]:
    """One step of EM on whole sequences, by the smoother."""
    states = kalman.smoothed(found, x_ntd)
    n, length, k = states.mean_ntk.shape
    z, v = states.mean_ntk, states.cov_ntkk
    zz = np.einsum("nti,ntj->ntij", z, z) + v
    cross = np.einsum("nti,ntj->ntij", z[:, 1:], z[:, :-1]) + states.cross_ntkk
    one = np.concatenate([z, np.ones((n, length, 1))], axis=2)
    left = np.einsum("nti,ntj->ij", one, one)
    left[:k, :k] += v.sum(axis=(0, 1))
    right = np.einsum("ntd,nti->di", x_ntd, one)
    shown = right @ np.linalg.inv(left)
    step_kk = cross.sum(axis=(0, 1)) @ np.linalg.inv(zz[:, :-1].sum(axis=(0, 1)))
    noise_kk = (zz[:, 1:].sum(axis=(0, 1)) - step_kk @ cross.sum(axis=(0, 1)).T) / (n * (length - 1))
    first_k = z[:, 0].mean(axis=0)
    first_kk = zz[:, 0].mean(axis=0) - np.outer(first_k, first_k)
    noise_d = (np.square(x_ntd).sum(axis=(0, 1)) - (shown * right).sum(axis=1)) / (n * length)
    laws = first_k, first_kk, first_k, first_kk
    return LinearSystem(step_kk, noise_kk, shown[:, :k], shown[:, k], noise_d, *laws), float(states.log_n.sum())


def test_a_step_on_windows_as_long_as_the_sequences_is_a_step_on_them() -> None:
    """So the linear map H S Hᵀ + n V is the sum over people."""
    rng = np.random.default_rng(3)
    found = system(rng)
    found = replace(found, pooled_k=found.start_k, pooled_kk=found.start_kk)
    x_ntd = drawn(found, rng, 40, 4)
    new, log = whole(found, x_ntd)
    for grams in (Grams(gram(x_ntd, 4)), Grams(0.3 * gram(x_ntd, 4), 0.7 * gram(x_ntd, 4))):
        made = linear_moments.em_step(grams, found)
        assert made.log * 40 == pytest.approx(log, rel=1e-10)
        for name, values in vars(new).items():
            np.testing.assert_allclose(getattr(made.system, name), values, rtol=1e-8, atol=1e-10)


def test_no_iteration_lowers_the_likelihood_and_the_basis_of_states_is_a_name() -> None:
    rng = np.random.default_rng(4)
    true = system(rng)
    x_ntd = drawn(true, rng, 200, 7)
    grams = Grams(gram(x_ntd, 3), gram(x_ntd[:, :3], 3))
    found = linear_moments.from_directions(grams, K, D)
    moved, before = found.in_basis(np.array([[2.0, 1.0], [-0.5, 1.5]])), -np.inf
    for _ in range(25):
        new, other = linear_moments.em_step(grams, found), linear_moments.em_step(grams, moved)
        assert new.log >= before - 1e-9 * abs(before)
        assert other.log == pytest.approx(new.log, rel=1e-8)
        before, found, moved = new.log, new.system, other.system
    np.testing.assert_allclose(kalman.filtered(moved, x_ntd).log_n, kalman.filtered(found, x_ntd).log_n, rtol=1e-6)


def test_windows_of_long_sequences_give_the_system_that_made_them() -> None:
    """A turning state seen through noise: by its windows the fit comes as near to new sequences as the truth."""
    rng = np.random.default_rng(5)
    angle = 0.4
    turn = 0.97 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    true = replace(
        system(rng),
        step_kk=turn,
        step_noise_kk=0.05 * np.eye(2),
        shown_d=np.zeros(D),
        noise_d=np.full(D, 0.2),
        start_k=np.zeros(2),
        start_kk=0.8 * np.eye(2),
    )
    x_ntd, new_ntd = drawn(true, rng, 2000, 30), drawn(true, rng, 500, 30)
    grams = Grams(gram(x_ntd, 5), gram(x_ntd[:, :5], 5))
    found = linear_moments.fit(grams, linear_moments.from_directions(grams, 2, D), rounds=150).system
    lost_n = kalman.filtered(true, new_ntd).log_n - kalman.filtered(found, new_ntd).log_n
    assert lost_n.mean() / 30 < 2e-3
    eigenvalues = np.linalg.eigvals(found.step_kk)
    np.testing.assert_allclose(np.sort(np.abs(np.angle(eigenvalues))), [angle, angle], atol=0.02)
    np.testing.assert_allclose(np.abs(eigenvalues), 0.97, atol=0.02)


def test_a_system_without_memory_is_factor_analysis_of_single_points() -> None:
    rng = np.random.default_rng(6)
    one = replace(system(rng), step_kk=np.zeros((2, 2)), start_k=np.zeros(2), start_kk=np.eye(2))
    one = replace(one, step_noise_kk=np.eye(2))
    x_ntd = rng.standard_normal((5, 4, D))
    law = multivariate_normal(one.shown_d, one.shown_dk @ one.shown_dk.T + np.diag(one.noise_d))
    np.testing.assert_allclose(kalman.filtered(one, x_ntd).log_n, law.logpdf(x_ntd).sum(axis=1), rtol=1e-11)


def test_states_that_are_seen_exactly_are_a_vector_autoregression() -> None:
    rng = np.random.default_rng(7)
    one = replace(system(rng, k=2, d=2), shown_dk=np.eye(2), shown_d=np.zeros(2), noise_d=np.full(2, 1e-12))
    x_ntd = rng.standard_normal((3, 6, 2))
    first = multivariate_normal(one.start_k, one.start_kk).logpdf(x_ntd[:, 0])
    steps = multivariate_normal(np.zeros(2), one.step_noise_kk).logpdf(x_ntd[:, 1:] - x_ntd[:, :-1] @ one.step_kk.T)
    np.testing.assert_allclose(kalman.filtered(one, x_ntd).log_n, first + steps.sum(axis=1), rtol=1e-8)


def test_a_noisy_matrix_is_read_as_moments_of_something() -> None:
    rng = np.random.default_rng(8)
    noise = rng.standard_normal((7, 7))
    found = linear_moments.floored_moments(100 * np.eye(7) + 200 * (noise + noise.T), 0.1)
    assert np.linalg.eigvalsh(found).min() > 0
    np.testing.assert_allclose(linear_moments.floored_moments(100 * np.eye(7), 1e-3), 100 * np.eye(7), rtol=1e-12)
    made = linear_moments.fit(Grams(found), linear_moments.from_directions(Grams(found), 2, 2), rounds=20).system
    assert all(np.isfinite(values).all() for values in vars(made).values())
