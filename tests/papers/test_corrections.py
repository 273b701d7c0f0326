"""Errors of the papers that a number shows; the list is docs/papers.md, "Corrections to the papers"."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpvb import accounting
from dpvb.papers.binomial_likelihoods import VIPSRegression
from dpvb.papers.partitioned import NormalFactor, global_free_energy
from dpvb.rows import DesignRows


def divergence(q: NormalFactor, p: NormalFactor) -> float:
    """KL(q‖p) of normal distributions."""
    sigma_dd, shift_d = np.linalg.inv(q.P), p.mean - q.mean
    logs = np.linalg.slogdet(q.P)[1] - np.linalg.slogdet(p.P)[1]
    return 0.5 * float(np.vdot(p.P, sigma_dd) + shift_d @ p.P @ shift_d - len(shift_d) + logs)


def test_the_local_free_energy_is_a_constant_less_the_divergence_from_the_tilted_distribution() -> None:
    """Thesis, Eq. 2.23: the maximum of (2.20) is the minimum of the divergence, not its maximum."""
    rng = np.random.default_rng(0)
    tilted = NormalFactor(np.array([1.0, -2.0]), np.array([[3.0, 1.0], [1.0, 2.0]]))
    no_rows = np.zeros((0, 2)), np.zeros(0)
    sums = []
    for _ in range(20):
        root_dd = rng.standard_normal((2, 2))
        q = NormalFactor(rng.standard_normal(2), root_dd @ root_dd.T + np.eye(2))
        sums.append(global_free_energy(q, tilted, *no_rows) + divergence(q, tilted))
    np.testing.assert_allclose(sums, 0.0, atol=1e-10)  # The tilted distribution is a density: its constant is 0.


def exact_delta(sigma: float, epsilon: float) -> float:
    """δ of one Gaussian release of sensitivity 1 (Balle & Wang 2018)."""
    upper, lower = norm.logcdf(0.5 / sigma - epsilon * sigma), epsilon + norm.logcdf(-0.5 / sigma - epsilon * sigma)
    return float(math.exp(upper) - math.exp(lower))


@pytest.mark.parametrize(("epsilon", "holds"), [(0.5, True), (0.99, True), (20.0, False)])
def test_the_classical_gaussian_theorem_needs_a_small_epsilon(epsilon: float, holds: bool) -> None:
    """Thesis, Theorem 2.1.4 has no condition; Dwork & Roth, Theorem 3.22, asks for ε < 1."""
    delta = 1e-5
    sigma = math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    assert (exact_delta(sigma, epsilon) <= delta) == holds


def statistics(model: VIPSRegression, x_nd: np.ndarray, y_n: np.ndarray, mm_dd: np.ndarray) -> dict[str, np.ndarray]:
    """Sums of the statistics of rows, at a second moment of the weights."""
    batch = DesignRows(x_nd, y_n, np.ones(len(y_n)))
    forms = model.statistics({"m": np.zeros(x_nd.shape[1]), "mm": mm_dd}, batch)
    xi_n = forms["xi_xx"].scale_n
    return {"kappa_x": forms["kappa_x"].values.sum(axis=0), "xi_xx": (x_nd * xi_n[:, None]).T @ x_nd}


def test_with_1_over_n_twice_the_posterior_would_not_learn_from_more_rows() -> None:
    """JAIR, Eq. 43: N s̄ is then the mean over rows, and the same rows twice add nothing."""
    rng = np.random.default_rng(1)
    x_nd, y_n = rng.uniform(-0.5, 0.5, (200, 3)), (rng.random(200) < 0.5).astype(float)
    model = VIPSRegression(3, n_rows=200.0)
    once = statistics(model, x_nd, y_n, np.eye(3))
    twice = statistics(model, np.r_[x_nd, x_nd], np.r_[y_n, y_n], np.eye(3))
    for name, sums in once.items():
        np.testing.assert_allclose(twice[name], 2 * sums, rtol=1e-12)
        np.testing.assert_allclose(twice[name] / 400, sums / 200, rtol=1e-12)


def test_the_next_e_step_needs_more_than_the_mean_of_the_weights() -> None:
    """JAIR, Algorithms 1, 2 and 4 to 6 output ⟨m⟩; two posteriors of one mean have different E-steps."""
    rng = np.random.default_rng(2)
    x_nd, y_n = rng.uniform(-0.5, 0.5, (50, 3)), np.zeros(50)
    model = VIPSRegression(3, n_rows=50.0)
    narrow, wide = (statistics(model, x_nd, y_n, scale * np.eye(3))["xi_xx"] for scale in (0.1, 10.0))
    assert np.trace(wide) < 0.9 * np.trace(narrow)


def test_the_sensitivities_of_appendix_b_hold_without_the_factor_of_the_equation_that_they_cite() -> None:
    """JAIR, Eq. 68 to 73: not by Eq. 16, whose factor is 2, but as entries in [0, c] lie within a box's diagonal."""
    rng = np.random.default_rng(3)
    for c, entries in ((1.0, 12), (0.25, 7)):
        one, other = c * rng.random((2, 10_000, entries))
        assert np.linalg.norm(one - other, axis=1).max() <= c * math.sqrt(entries)
        corner = c * (rng.random(entries) < 0.5)
        assert np.linalg.norm(corner - (c - corner)) == pytest.approx(c * math.sqrt(entries))


def test_strong_composition_spends_the_whole_delta_of_its_steps() -> None:
    """The early code subtracts half of J q δ' from δ for the slack δ'', so that δ'' + J q δ' is more than δ."""
    delta, step_delta, rate, n_steps, sigma = 1e-4, 1e-6, 0.05, 20, 4.0
    spent = n_steps * rate * step_delta
    step = math.log1p(rate * math.expm1(math.sqrt(2 * math.log(1.25 / step_delta)) / sigma))

    def by_slack(slack: float) -> float:
        return n_steps * step * math.expm1(step) + math.sqrt(-2 * n_steps * math.log(slack)) * step

    plan = [accounting.Event("poisson", rate, sigma, n_steps=n_steps)]
    claimed = accounting.answer(
        plan, delta=delta, neighboring_relation="add_or_remove_one", method="strong", step_delta=step_delta
    )
    assert claimed.epsilon == pytest.approx(by_slack(delta - spent), rel=1e-9)
    assert by_slack(delta - spent / 2) < claimed.epsilon
    assert (delta - spent / 2) + spent > delta
