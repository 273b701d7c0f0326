"""Variational lower bounds from released values: against bounds of each row, quadrature and closed-form evidence."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln
from scipy.stats import multivariate_normal

import dpvb
from dpvb.data import Categorical, Schema, Table
from dpvb.errors import ParameterError
from dpvb.federated import simulate
from dpvb.guards.arrays import Floats
from dpvb.models.factors import posterior
from dpvb.papers.conjugate_exponential import BetaBernoulli

_EXACT: Any = {"epsilon": math.inf, "delta": 1e-6}


def rows(n: int = 400, d: int = 6, k: int = 2) -> Floats:
    rng = np.random.default_rng(0)
    x_nd = rng.standard_normal((n, k)) @ rng.standard_normal((k, d)) + 0.7 * rng.standard_normal((n, d))
    return np.asarray(0.04 * x_nd)


def moments(x_nd: Floats) -> Floats:
    centred_nd = x_nd - x_nd.mean(axis=0)
    return centred_nd.T @ centred_nd / len(x_nd)


def bound_row_by_row(x_nd: Floats, w_dk: Floats, psi_d: Floats, c_kk: Floats) -> float:
    """Expected log joint plus entropies of every row's q(h) and of q(W), term by term."""
    x_nd = x_nd - x_nd.mean(axis=0)
    d, k = w_dk.shape
    precision_kk = np.eye(k) + sum(np.outer(w_dk[j], w_dk[j]) / psi_d[j] + c_kk for j in range(d))
    m_kk = np.linalg.inv(precision_kk)
    alpha_k = d / np.diagonal(precision_kk - np.eye(k))
    total = 0.0
    for x_d in x_nd:
        h_k = m_kk @ (w_dk / psi_d[:, None]).T @ x_d
        second_kk = m_kk + np.outer(h_k, h_k)
        for j in range(d):
            square = x_d[j] ** 2 - 2 * x_d[j] * w_dk[j] @ h_k
            square += np.vdot(np.outer(w_dk[j], w_dk[j]) + psi_d[j] * c_kk, second_kk)
            total += -0.5 * math.log(2 * math.pi * psi_d[j]) - 0.5 * square / psi_d[j]
        total += -0.5 * k * math.log(2 * math.pi) - 0.5 * np.trace(second_kk)
        total += 0.5 * (k * (1 + math.log(2 * math.pi)) + np.linalg.slogdet(m_kk)[1])
    for j in range(d):
        variance_k = psi_d[j] / alpha_k
        second_k = w_dk[j] ** 2 + psi_d[j] * np.diagonal(c_kk)
        total += (-0.5 * np.log(2 * math.pi * variance_k) - 0.5 * second_k / variance_k).sum()
        total += 0.5 * (k * (1 + math.log(2 * math.pi)) + np.linalg.slogdet(psi_d[j] * c_kk)[1])
    return float(total)


def test_the_bound_of_a_factor_model_is_that_of_every_row_term_by_term() -> None:
    x_nd, rng = rows(n=60), np.random.default_rng(1)
    root_kk = rng.standard_normal((2, 2))
    q = 0.05 * rng.standard_normal((6, 2)), 0.001 * (1 + rng.random(6)), 0.01 * (np.eye(2) + root_kk @ root_kk.T)
    found = posterior.lower_bound(moments(x_nd), float(len(x_nd)), *q)
    assert found == pytest.approx(bound_row_by_row(x_nd, *q), rel=1e-10)


def test_no_round_lowers_the_bound() -> None:
    x_nd = rows()
    second_dd, n = moments(x_nd), float(len(x_nd))
    for isotropic in (False, True):
        start_dk = 0.02 * np.random.default_rng(2).standard_normal((6, 3))
        states = posterior.ascent(second_dd, n, start_dk, np.diagonal(second_dd), 1e-12, isotropic=isotropic)
        bounds = [posterior.lower_bound(second_dd, n, *state) for state in states]
        assert len(bounds) > 10
        assert np.diff(bounds).min() >= -1e-9 * abs(bounds[-1])
        assert bounds[-1] > bounds[0] + 1


def test_the_bound_lies_below_the_evidence_and_near_it() -> None:
    """log ∫ Π N(x_n; 0, wwᵀ + Ψ) N(w; 0, Ψ/α) dw of one factor in two columns, on a grid; rows have no mean."""
    x_nd = rows(n=200, d=2, k=1)
    x_nd -= x_nd.mean(axis=0)
    second_dd = moments(x_nd)
    *_, (w_dk, psi_d, c_kk) = posterior.ascent(
        second_dd, 200.0, np.full((2, 1), 0.03), 0.5 * np.diagonal(second_dd), 1e-12, isotropic=False
    )
    bound = posterior.lower_bound(second_dd, 200.0, w_dk, psi_d, c_kk)
    alpha = 2 / float((w_dk[:, 0] ** 2 / psi_d).sum() + 2 * c_kk[0, 0])
    grid = np.linspace(-0.25, 0.25, 161)
    w_gd = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    row_gdd = w_gd[:, :, None] * w_gd[:, None, :] + np.diag(psi_d)
    squares_g = np.trace(np.linalg.solve(row_gdd, x_nd.T @ x_nd), axis1=1, axis2=2)
    logs = -100 * (2 * math.log(2 * math.pi) + np.linalg.slogdet(row_gdd)[1]) - squares_g / 2
    logs += multivariate_normal(np.zeros(2), np.diag(psi_d) / alpha).logpdf(w_gd)
    peak = logs.max()
    evidence = peak + math.log(np.exp(logs - peak).sum() * (grid[1] - grid[0]) ** 2)
    # q has one of two modes, ±w, which costs log 2; rows and weights that are dependent in the posterior cost the rest.
    assert evidence - 4 < bound < evidence - math.log(2) + 1e-3


@pytest.mark.parametrize("kind", [dpvb.FactorAnalysis, dpvb.PCA])
def test_the_bound_of_a_fit_is_in_the_units_of_the_rows(kind: Any) -> None:
    """Rows that are multiplied by 10 have a density that is 10^-d of what it was; and it is below the likelihood."""
    x_nd = rows(n=2_000)
    bounds = []
    for scale in (1.0, 10.0):
        model = kind(2, low=-scale, high=scale, **_EXACT).fit(scale * x_nd)
        bounds.append(model.lower_bound())
        assert bounds[-1] < 2_000 * model.score(scale * x_nd, public=True)
    assert bounds[1] - bounds[0] == pytest.approx(-2_000 * 6 * math.log(10), rel=1e-5)


def test_the_bound_of_a_fit_without_noise_is_that_of_its_rows_and_prefers_the_true_number_of_factors() -> None:
    x_nd = rows(n=2_000)
    models = [dpvb.FactorAnalysis(k, low=-1.0, high=1.0, **_EXACT).fit(x_nd) for k in (1, 2, 3, 4)]
    bounds = [model.lower_bound() for model in models]
    assert int(np.argmax(bounds)) == 1
    model = models[1]
    found, psi_d = model.loadings_.T, model.noise_variance_
    errors_kk = np.diag(model._found.error_k)
    assert bounds[1] == pytest.approx(bound_row_by_row(x_nd, found, psi_d, errors_kk), rel=1e-5)


def test_a_bound_of_noisy_moments_is_near_that_of_the_rows_and_a_point_has_none() -> None:
    """Of 20,000 rows at ε = 4 the error is below 0.3 nats a row; seed of the rows 0, the noise is fresh.

    The standard deviation of the error was 0.02 in six fits, so that 0.3 is 15 of them: a false alarm has a probability
    far below 1e-6. A wrong unit of the columns would move the bound by several nats a row.
    """
    x_nd = rows(n=20_000)
    exact = dpvb.FactorAnalysis(2, low=-1.0, high=1.0, **_EXACT).fit(x_nd)
    noisy = dpvb.FactorAnalysis(2, low=-1.0, high=1.0, epsilon=4.0, delta=1e-6).fit(x_nd)
    assert abs(noisy.lower_bound() - exact.lower_bound()) < 0.3 * 20_000
    point = dpvb.FactorAnalysis(2, low=-1.0, high=1.0, estimate="map", **_EXACT).fit(x_nd)
    with pytest.raises(ParameterError, match="estimate must be 'posterior'"):
        point.lower_bound()


def test_naive_bayes_has_the_evidence_of_rows_that_are_predicted_one_after_the_other() -> None:
    rng = np.random.default_rng(0)
    sizes, n = {"label": 3, "first": 2, "second": 4}, 80
    code = {name: rng.integers(size, size=n) for name, size in sizes.items()}
    schema = Schema(tuple(Categorical(name, tuple(map(str, range(size)))) for name, size in sizes.items()))
    table = Table({name: [str(one) for one in codes] for name, codes in code.items()}, schema)
    model = dpvb.NaiveBayes(response="label", alpha=0.7, **_EXACT).fit(table)
    # Each column has two categories more: another value, and a missing one.
    seen = {name: np.full((3, size + 2), 0.7) for name, size in sizes.items() if name != "label"}
    labels, log = np.full(3, 0.7), 0.0
    for row in range(n):
        label = code["label"][row]
        log += math.log(labels[label] / labels.sum())
        labels[label] += 1
        for name, counts in seen.items():
            log += math.log(counts[label, code[name][row]] / counts[label].sum())
            counts[label, code[name][row]] += 1
    assert model.lower_bound() == pytest.approx(log, rel=1e-5)


def test_naive_bayes_of_gaussian_numbers_says_why_it_has_no_bound() -> None:
    schema = Schema((Categorical("label", ("a", "b")), dpvb.data.Numeric("age", low=0, high=100)))
    table = Table({"label": ["a", "b"], "age": [20.0, 40.0]}, schema)
    model = dpvb.NaiveBayes(response="label", numbers="gaussian", epsilon=1.0, delta=1e-6).fit(table)
    with pytest.raises(ParameterError, match="prior that is read from the rows"):
        model.lower_bound()


def test_a_conjugate_model_of_ones_own_has_its_closed_form_evidence() -> None:
    x_n1 = (np.random.default_rng(0).random((300, 1)) < 0.3).astype(np.float64)
    algorithm = BetaBernoulli(2.0, 3.0, n_steps=1, learning_decay=0.0)
    model = dpvb.PrivateModel(algorithm, max_row_norm=1.0, **_EXACT).fit(x_n1)
    ones = float(x_n1.sum())
    assert model.lower_bound() == pytest.approx(betaln(2.0 + ones, 3.0 + 300 - ones) - betaln(2.0, 3.0), rel=1e-5)


def test_a_model_without_a_bound_is_named() -> None:
    from dpvb.papers.dp_sgd import DPSGDLogistic

    model = dpvb.PrivateModel(DPSGDLogistic(2, 9.0, (1.0,), (1.0,), (1.0,)), max_row_norm=1.0, epsilon=1.0, delta=1e-6)
    with pytest.raises(ParameterError, match=r"model must define lower_bound.*DPSGDLogistic does not"):
        model.fit(np.zeros((9, 3))).lower_bound()


def test_a_federation_of_a_conjugate_model_has_the_evidence_of_all_rows() -> None:
    """Partitioned inference whose factors are exact likelihoods: local free energies are 0, and F = log Z."""
    rng = np.random.default_rng(0)
    columns = {"label": rng.choice(["a", "b"], 90).tolist(), "colour": rng.choice(["red", "blue"], 90).tolist()}
    schema = Schema((Categorical("label", ("a", "b")), Categorical("colour", ("red", "blue"))))
    whole = dpvb.NaiveBayes(response="label", **_EXACT).fit(Table(columns, schema))
    parts = [slice(0, 40), slice(40, 50), slice(50, 90)]
    shards = [Table({name: values[part] for name, values in columns.items()}, schema) for part in parts]
    model = simulate(dpvb.NaiveBayes(response="label", **_EXACT), shards)
    assert model.lower_bound() == pytest.approx(whole.lower_bound(), rel=1e-6)
