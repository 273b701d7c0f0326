"""The papers' algorithms without noise, against a few lines of NumPy each that follow the print."""

from __future__ import annotations

import ast
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import digamma, expit, log_expit
from scipy.stats import norm

import dpvb
from dpvb.core.blocks import pack_symmetric
from dpvb.core.forms import Gram, Kron, Rows
from dpvb.data import BagOfWords, Design
from dpvb.data.tables.design import BinaryMatrix
from dpvb.data.tables.response import Response
from dpvb.guards.errors import ParameterError
from dpvb.models.topics.kernel import Factored
from dpvb.models.topics.lda import to_length
from dpvb.papers.belief_network import VIPSNetwork
from dpvb.papers.binomial_likelihoods import VIPSRegression
from dpvb.papers.conjugate_exponential import BetaBernoulli
from dpvb.papers.dp_sgd import DPSGDLogistic
from dpvb.papers.lda import VIPSTopics
from dpvb.papers.logistic_regression import VIPSLogistic
from dpvb.papers.partitioned import (
    LocalFreeEnergy,
    NormalFactor,
    global_free_energy,
    local_free_energy,
    log_constant,
    partitioned,
)

STEPS = {"n_steps": 6, "learning_offset": 1.0, "learning_decay": 0.7}


def total(form: Any, bound: float) -> np.ndarray:
    """The sum of a form's statistics over rows, in floating point; those of documents are clipped to the bound."""
    if isinstance(form, Factored):
        sums = np.zeros(form.beta.shape)
        for n, theta_k in enumerate(form.theta):
            words = slice(form.indptr[n], form.indptr[n + 1])
            index_j = form.indices[words]
            s_jk = theta_k * form.beta[index_j] * form.ratio[words, None]
            sums[index_j] += s_jk * min(1.0, bound / max(float(np.linalg.norm(s_jk)), 1e-300))
        return sums
    if isinstance(form, Rows):
        return np.asarray(form.values.sum(axis=0))
    if isinstance(form, Kron):
        return np.asarray(form.left.T @ form.right)
    if isinstance(form, Gram):
        return pack_symmetric((form.x_nd * form.scale_n[:, None]).T @ form.x_nd)
    zz_nkk = form.pi_nk[:, :, None] * form.pi_nk[:, None, :]
    diagonal = range(form.pi_nk.shape[1])
    zz_nkk[:, diagonal, diagonal] = form.pi_nk
    return pack_symmetric(np.einsum("nj,nkl->jkl", form.xi_nj, zz_nkk))


def learned(model: Any, source: Any, how: str, **params: Any) -> tuple[Any, float]:
    """Q and how near it must be: by exact sums, or from `dpvb.PrivateModel`, whose wall rounds the weights of rows."""
    if how == "private":
        fitted = dpvb.PrivateModel(model, epsilon=math.inf, delta=1e-6, random_state=3, **params).fit(source)
        return fitted.q_, 1e-4
    q = model.init(np.random.default_rng(3))
    rows = source if isinstance(source, np.ndarray) else next(iter(source.chunks())).rows
    for _ in range(model.n_steps):
        blocks = model.blocks
        forms = model.e_step(q, rows, blocks)
        sums = {name: total(forms[name], block.bound) for name, block in blocks.items()}
        assert {name: value.shape for name, value in sums.items()} == {name: b.shape for name, b in blocks.items()}
        q = model.m_step(SimpleNamespace(noisy=sums.__getitem__), q)
    return q, 1e-8


BOTH = pytest.mark.parametrize("how", ["exact", "private"])


def rho(t: int) -> float:
    return float((1.0 + t) ** -0.7)


@BOTH
def test_beta_bernoulli_is_the_average_of_the_same_posterior(how: str) -> None:
    """Without latent variables every step finds Beta(a + ones, b + zeros)."""
    x_n = np.r_[np.ones(30), np.zeros(12)]
    params = {"max_row_norm": 1.0} if how == "private" else {}
    q, rtol = learned(BetaBernoulli(a=2.0, b=0.5, **STEPS), x_n[:, None], how, **params)
    nu = np.array([2.0, 0.5])
    for t in range(1, 7):
        nu = (1 - rho(t)) * nu + rho(t) * np.array([32.0, 12.5])
    np.testing.assert_allclose(q.nu["counts"], nu, rtol=rtol)
    np.testing.assert_allclose(q.n_bar["counts"], digamma(nu) - digamma(nu.sum()), rtol=rtol)


@BOTH
def test_topics_are_those_of_the_printed_loops(how: str) -> None:
    rng = np.random.default_rng(1)
    words_dv, k, length, a, alpha, eta = rng.poisson(0.7, (25, 12)).astype(float), 3, 20.0, 0.4, 0.3, 0.2
    model = VIPSTopics(
        k,
        12,
        clip_scale=a,
        document_length=length,
        doc_topic_prior=alpha,
        topic_word_prior=eta,
        local_iterations=7,
        **STEPS,
    )
    source = BagOfWords(words_dv, vocabulary=[f"w{v}" for v in range(12)])
    q, rtol = learned(model, source, how)
    # The draws with replacement of Algorithm 3 are each document's own: they are read off the model.
    (chunk,) = source.chunks()
    counts_dv = np.zeros((25, 12))
    batch = chunk.rows
    counts_dv[np.repeat(np.arange(25), np.diff(batch.indptr)), batch.indices] = to_length(batch, length, "resample")
    assert set(counts_dv.sum(axis=1)) <= {0.0, length}
    lambda_vk = model.init(dpvb_random(3)).nu["counts"]
    for t in range(1, 7):
        log_beta_vk = digamma(lambda_vk) - digamma(lambda_vk.sum(axis=0))
        total_vk = np.zeros((12, k))
        for c_v in counts_dv:
            gamma_k = np.ones(k)
            for _ in range(7):
                phi_vk = np.exp(log_beta_vk + digamma(gamma_k) - digamma(gamma_k.sum()))
                phi_vk /= phi_vk.sum(axis=1, keepdims=True)
                gamma_k = alpha + c_v @ phi_vk
            phi_vk = np.exp(log_beta_vk + digamma(gamma_k) - digamma(gamma_k.sum()))
            s_vk = c_v[:, None] * phi_vk / phi_vk.sum(axis=1, keepdims=True)
            total_vk += s_vk * min(1.0, a * length / max(float(np.linalg.norm(s_vk)), 1e-300))
        lambda_vk = (1 - rho(t)) * lambda_vk + rho(t) * (eta + total_vk)
    np.testing.assert_allclose(q.nu["counts"], lambda_vk, rtol=rtol)


def dpvb_random(seed: int) -> np.random.Generator:
    """The generator of the start that `random_state` gives."""
    return np.random.default_rng(seed)


def rows(seed: int = 0, n: int = 400, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x_nd = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return x_nd, (rng.random(n) < expit(3 * x_nd[:, 0] - x_nd[:, 1])).astype(float)


@BOTH
@pytest.mark.parametrize("kind", ["logistic", "binomial", "negative_binomial"])
def test_binomial_likelihoods_follow_the_print(kind: Any, how: str) -> None:
    x_nd, y_n = rows()
    rng = np.random.default_rng(5)
    trials_n = rng.integers(1, 5, len(y_n)).astype(float)
    kinds: dict[str, Any] = {"logistic": {}, "binomial": {"max_trials": 4.0}}
    fields = kinds.get(kind, {"dispersion": 1.5, "max_count": 9.0})
    if kind == "binomial":
        y_n = rng.binomial(trials_n.astype(int), 0.4).astype(float)
    if kind == "negative_binomial":
        y_n = np.minimum(rng.poisson(2.0, len(y_n)), 9).astype(float)
    caps = {name: value for name, value in fields.items() if name != "dispersion"}
    response_kind = "poisson" if kind == "negative_binomial" else kind
    source = Design(x_nd, y_n, trials_n if kind == "binomial" else None, response=Response(response_kind, **caps))
    model = VIPSRegression(4, n_rows=400.0, kind=kind, alpha=0.7, **fields, **STEPS)
    q, rtol = learned(model, source, how)
    b_n = {"logistic": np.ones(400), "binomial": trials_n, "negative_binomial": y_n + 1.5}[kind]
    nu1_d, nu2_dd = np.zeros(4), 0.7 * np.eye(4)
    for t in range(1, 7):
        sigma_dd = np.linalg.inv(nu2_dd)
        mu_d = sigma_dd @ nu1_d
        c_n = np.sqrt(np.einsum("nd,de,ne->n", x_nd, sigma_dd + np.outer(mu_d, mu_d), x_nd))
        xi_n = b_n / (2 * c_n) * np.tanh(c_n / 2)
        nu1_d = (1 - rho(t)) * nu1_d + rho(t) * (x_nd.T @ (y_n - b_n / 2))
        nu2_dd = (1 - rho(t)) * nu2_dd + rho(t) * (0.7 * np.eye(4) + (x_nd * xi_n[:, None]).T @ x_nd)
    np.testing.assert_allclose(q.nu["kappa_x"], nu1_d, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(q.n_bar["m"], np.linalg.solve(nu2_dd, nu1_d), rtol=rtol, atol=rtol)


@BOTH
def test_logistic_regression_learns_alpha_as_printed(how: str) -> None:
    x_nd, y_n = rows()
    q, rtol = learned(VIPSLogistic(4, n_rows=400.0, a0=2.0, b0=3.0, **STEPS), Design(x_nd, y_n), how)
    alpha, nu1_d = 2.0 / 3.0, np.zeros(4)
    nu2_dd, xi_n = alpha * np.eye(4), np.zeros(400)
    for t in range(0, 7):
        if t:
            nu1_d = (1 - rho(t)) * nu1_d + rho(t) * (x_nd.T @ (y_n - 0.5))
            nu2_dd = (1 - rho(t)) * nu2_dd + rho(t) * (alpha * np.eye(4) + (x_nd * xi_n[:, None]).T @ x_nd)
        sigma_dd = np.linalg.inv(nu2_dd)
        mu_d = sigma_dd @ nu1_d
        alpha = (2.0 + 2.0) / (3.0 + 0.5 * (mu_d @ mu_d + np.trace(sigma_dd)))
        c_n = np.sqrt(np.einsum("nd,de,ne->n", x_nd, sigma_dd + np.outer(mu_d, mu_d), x_nd))
        xi_n = np.tanh(c_n / 2) / (2 * c_n)
    np.testing.assert_allclose(q.n_bar["m"], mu_d, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(q.n_bar["alpha"], alpha, rtol=rtol)


def test_eigenvalues_are_lifted_in_the_mean_of_each_release() -> None:
    model = VIPSRegression(2, n_rows=1e4, least_eigenvalue=1e-3)
    lifted_dd = model.project("xi_xx", np.array([-5.0, 3.0, 40.0]))  # entries 11, 22, 12, off the diagonal times √2
    assert np.linalg.eigvalsh(lifted_dd).min() == pytest.approx(10.0)
    np.testing.assert_array_equal(model.project("kappa_x", np.array([-1.0, 2.0])), [-1.0, 2.0])


@BOTH
def test_belief_network_follows_the_print(how: str) -> None:
    rng = np.random.default_rng(2)
    y_nj, k, j = (rng.random((60, 6)) < 0.4).astype(float), 3, 6
    model = VIPSNetwork(k, j, n_rows=60.0, sweeps=2, prior_variance=4.0, init_std=0.5, **STEPS)
    q, rtol = learned(model, BinaryMatrix(y_nj), how)
    n_bar = dict(model.init(dpvb_random(3)).n_bar)
    nu = {name: np.array(value) for name, value in model.prior(n_bar).items()}
    for t in range(1, 7):
        w_jk, ww_jkk, c_j, scales = n_bar["w"], n_bar["ww"], n_bar["c"], n_bar["scales"]
        sums = {name: np.zeros_like(value) for name, value in nu.items()}
        for y_j in y_nj:
            pi_k = expit(n_bar["b"])
            for _ in range(2):
                zz_kk = np.outer(pi_k, pi_k) - np.diag(pi_k**2) + np.diag(pi_k)
                square_j = np.einsum("jkl,kl->j", ww_jkk, zz_kk) + 2 * c_j * (w_jk @ pi_k) + n_bar["cc"]
                g_j = np.sqrt(square_j)
                xi_j = np.tanh(g_j / 2) / (2 * g_j)
                for one in range(k):
                    others_j = np.einsum("jk,k->j", ww_jkk[:, one], pi_k) - ww_jkk[:, one, one] * pi_k[one]
                    psi_w_j = others_j + c_j * w_jk[:, one]
                    d = n_bar["b"][one] + w_jk[:, one] @ y_j
                    d -= 0.5 * (w_jk[:, one] + xi_j * (2 * psi_w_j + ww_jkk[:, one, one])).sum()
                    pi_k[one] = expit(d)
            zz_kk = np.outer(pi_k, pi_k) - np.diag(pi_k**2) + np.diag(pi_k)
            g_k = np.sqrt(n_bar["bb"])
            xi_b_k = np.where(g_k > 0, np.tanh(g_k / 2) / np.where(g_k > 0, 2 * g_k, 1.0), 0.25)
            terms = {"z": pi_k - 0.5, "xi_b": xi_b_k, "y": y_j - 0.5, "xi": xi_j, "xi_z": np.outer(xi_j, pi_k)}
            terms |= {"y_z": np.outer(y_j - 0.5, pi_k), "xi_zz": xi_j[:, None, None] * zz_kk}
            sums = {name: sums[name] + terms[name] for name in sums}
        prior: dict[str, Any] = {"xi_b": 0.25, "xi": 0.25, "xi_zz": scales.precision_kj.T[:, :, None] * np.eye(k)}
        nu = {name: (1 - rho(t)) * nu[name] + rho(t) * (prior.get(name, 0.0) + sums[name]) for name in nu}
        sigma_jkk = np.linalg.inv(nu["xi_zz"])
        pull_jk = nu["y_z"] - c_j[:, None] * nu["xi_z"]
        w_jk = np.einsum("jkl,jl->jk", sigma_jkk, pull_jk)
        c_j, b_k = (nu["y"] - (nu["xi_z"] * w_jk).sum(axis=1)) / nu["xi"], nu["z"] / nu["xi_b"]
        ww_jkk = sigma_jkk + w_jk[:, :, None] * w_jk[:, None, :]
        n_bar = {
            "w": w_jk,
            "ww": ww_jkk,
            "c": c_j,
            "cc": c_j**2 + 1 / nu["xi"],
            "b": b_k,
            "bb": b_k**2 + 1 / nu["xi_b"],
            "scales": scales.update(np.einsum("jkk->kj", ww_jkk)),
        }
    for name in ("w", "c", "b"):
        np.testing.assert_allclose(q.n_bar[name], n_bar[name], rtol=10 * rtol, atol=10 * rtol, err_msg=name)


def test_gradient_descent_clips_and_steps_as_printed() -> None:
    x_nd, y_n = rows()
    rates, clips, noise = (2.0, 1.0, 0.5), (0.2, 0.1, 0.3), (1.0, 1.0, 2.0)
    max_row_norm = 2.0
    model = DPSGDLogistic(4, 400.0, rates, clips, noise, max_row_norm=max_row_norm)
    q, _ = learned(model, np.c_[x_nd, y_n], "private", max_row_norm=max_row_norm)
    theta_d = 0.01 * dpvb_random(3).standard_normal(4)
    for rate, clip in zip(rates, clips, strict=True):
        g_nd = (expit(x_nd @ theta_d) - y_n)[:, None] * x_nd
        g_nd /= np.maximum(np.linalg.norm(g_nd, axis=1, keepdims=True) / clip, 1.0)
        theta_d = theta_d - rate * g_nd.sum(axis=0) / 400
    np.testing.assert_allclose(q.theta, theta_d, rtol=1e-5)


def maximised(model: LocalFreeEnergy, source: Any) -> NormalFactor:
    q: NormalFactor = learned(model, source, "private")[0].natural
    return q


def test_partitioned_inference_finds_the_optimum_of_the_global_free_energy() -> None:
    x_nd, y_n = rows(n=300)
    prior = NormalFactor(np.zeros(4), 0.5 * np.eye(4))
    parts = [slice(0, 100), slice(100, 180), slice(180, 300)]
    clients = [Design(x_nd[part], y_n[part]) for part in parts]
    seen: list[NormalFactor] = []

    def watched(model: LocalFreeEnergy, source: Any) -> NormalFactor:
        seen.append(maximised(model, source))
        return seen[-1]

    q, factors = partitioned(prior, clients, watched, [0, 1, 2] * 6)
    whole, _ = partitioned(prior, [Design(x_nd, y_n)], maximised, [0, 0, 0])
    np.testing.assert_allclose(q.mean, whole.mean, rtol=1e-5)
    np.testing.assert_allclose(q.P, whole.P, rtol=1e-5)
    # At the optimum no direction of μ or Λ raises the free energy.
    best, rng = global_free_energy(whole, prior, x_nd, y_n), np.random.default_rng(0)
    for _ in range(20):
        shift_dd = 1e-3 * rng.standard_normal((4, 4))
        near = NormalFactor(whole.h + 1e-3 * rng.standard_normal(4), whole.P + shift_dd + shift_dd.T)
        assert global_free_energy(near, prior, x_nd, y_n) < best

    # Theorem 2.2.3 with factors that are natural parameters alone: the sum is off by log Z.
    local = [local_free_energy(q, q, t, x_nd[part], y_n[part]) for part, t in zip(parts, factors, strict=True)]
    log_z = log_constant(prior, factors)
    assert abs(log_z) > 1.0
    assert sum(local) == pytest.approx(global_free_energy(q, prior, x_nd, y_n) - log_z, rel=1e-12)
    # With the constants of (2.21), where q⁽ⁱ⁾ and q⁽ⁱ⁻¹⁾ are densities, the theorem holds as printed.
    constant_m, before = np.zeros(3), prior
    for client, after in zip([0, 1, 2] * 6, seen, strict=True):
        constant_m[client] += before.log_normaliser - after.log_normaliser
        before = after
    with_constants = [one - constant for one, constant in zip(local, constant_m, strict=True)]
    assert sum(with_constants) == pytest.approx(global_free_energy(q, prior, x_nd, y_n), rel=1e-9)


def test_the_free_energies_are_those_of_quadrature_in_one_dimension() -> None:
    """∫ q ln [...] dθ on a grid; and the global one lies below the log evidence, by KL(q ‖ posterior)."""
    x_n1, y_n = np.random.default_rng(0).uniform(-1, 1, (30, 1)), np.arange(30) % 3 > 0
    one = np.ones((1, 1))
    q, prior = NormalFactor(np.array([4.0]), 9.0 * one), NormalFactor(np.array([0.5]), 2.0 * one)
    factor = NormalFactor(np.array([0.3]), 1.1 * one)
    theta = np.linspace(-6, 6, 20_001)

    def log_density(factor: NormalFactor) -> Any:
        return norm.logpdf(theta, factor.mean[0], factor.P[0, 0] ** -0.5)

    def integral(values: Any) -> float:
        return float(np.trapezoid(values, theta))

    log_q, psi_tn = log_density(q), theta[:, None] * x_n1.T
    log_rows = log_expit(np.where(y_n, psi_tn, -psi_tn)).sum(axis=1)
    whole = integral(np.exp(log_q) * (log_density(prior) + log_rows - log_q))
    assert global_free_energy(q, prior, x_n1, y_n) == pytest.approx(whole, rel=1e-7)
    log_t = factor.h[0] * theta - 0.5 * factor.P[0, 0] * theta**2
    part = integral(np.exp(log_q) * (log_density(prior) + log_rows - log_q - log_t))
    assert local_free_energy(q, prior, factor, x_n1, y_n) == pytest.approx(part, rel=1e-7)
    log_evidence = math.log(integral(np.exp(log_density(prior) + log_rows)))
    log_posterior = log_density(prior) + log_rows - log_evidence
    divergence = integral(np.exp(log_q) * (log_q - log_posterior))
    assert global_free_energy(q, prior, x_n1, y_n) == pytest.approx(log_evidence - divergence, rel=1e-7)
    log_z = math.log(integral(np.exp(log_density(prior) + log_t)))
    assert log_constant(prior, [factor]) == pytest.approx(log_z, rel=1e-7)


def test_a_visit_raises_the_local_free_energy_with_every_iteration() -> None:
    x_nd, y_n = rows(n=200)
    prior, flat = NormalFactor(np.zeros(4), np.eye(4)), NormalFactor(np.zeros(4), np.zeros((4, 4)))
    reached = [
        local_free_energy(maximised(model, Design(x_nd, y_n)), prior, flat, x_nd, y_n)
        for steps in range(1, 8)
        for model in [LocalFreeEnergy((0.0,) * 4, _identity(), ((0.0,) * 4, _identity()), n_steps=steps)]
    ]
    assert np.diff(reached).min() > -1e-6
    assert reached[0] > local_free_energy(prior, prior, flat, x_nd, y_n)


def _identity() -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in np.eye(4).tolist())


def test_a_visit_to_nobody_is_refused() -> None:
    with pytest.raises(ParameterError, match="from 0 to 0, got 1"):
        partitioned(NormalFactor(np.zeros(1), np.eye(1)), [None], maximised, [1])


@pytest.mark.parametrize("fields", [{"n_steps": 0}, {"learning_offset": -1.0}, {"learning_decay": 2.0}])
def test_settings_outside_their_range_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(fields))):
        BetaBernoulli(**fields)


def test_the_package_imports_none_of_them() -> None:
    """What within the package imports them is a law of the architecture: `test_nothing_imports_the_papers`."""
    code = "import dpvb, sys; print([name for name in sys.modules if name.startswith('dpvb.papers')])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


#: What the page of models of one's own names, and the types of arrays and checks of numbers.
PUBLIC = {"dpvb", "dpvb.kernels.linear", "dpvb.core.contributions", "dpvb.guards.domains"}
CHECKS = {"dpvb.guards.arrays", "dpvb.guards.errors"}
#: Parts that our own methods have in common with the print: packed matrices, ⟨ξ⟩, documents, the prior of weights.
SHARED = {
    "binomial_likelihoods": {"dpvb.core.blocks", "dpvb.models.expfam"},
    "belief_network": {"dpvb.core.blocks", "dpvb.models.expfam", "dpvb.models.belief_network.beta_normal"},
    "lda": {"dpvb.models.topics.lda"},
}


def test_the_algorithms_are_models_of_ones_own() -> None:
    for path in Path(dpvb.__file__).parent.joinpath("papers").glob("[!_]*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        homes = {node.module for node in nodes if (node.module or "").split(".")[0] == "dpvb"}
        own = {home for home in homes if home and home.startswith("dpvb.papers.")}
        assert homes - own - PUBLIC - CHECKS == SHARED.get(path.stem, set()), path
