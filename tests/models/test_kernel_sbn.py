"""The sigmoid belief network's kernel against enumeration, exact integers and its own promises of purity."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from oracles import network_kernel
from planted import edit, kills
from scipy.special import expit

from dpvb.models.belief_network import kernel

ENGINES = (network_kernel, kernel)


def network(seed, *, hidden=5, visible=19, scale=1.0):
    """Weights, offsets and log odds."""
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(hidden, visible)), rng.normal(size=visible), rng.normal(size=hidden)


def images(seed, n=12, visible=19):
    return (np.random.default_rng(seed).random((n, visible)) < 0.4).astype(float)


def factors(seed, dtype, n=30, **shape):
    """Residuals and hidden probabilities as the E-step gives them."""
    w_kj, c_j, b_k = network(seed, **shape)
    y_nj = images(seed, n, w_kj.shape[1])
    pi_nk, xi_nj, psi_nj = kernel.local_step(y_nj, w_kj, c_j, b_k, dtype=dtype)
    r_nj = y_nj.astype(dtype) - dtype(0.5) - xi_nj * psi_nj
    return r_nj, xi_nj, pi_nk - pi_nk.mean(axis=0), pi_nk * (1 - pi_nk), w_kj.astype(dtype)


def bound_at(y_nj, pi_nk, psi_nj, second_nj, b_k, at_nj):
    """The bound where ξ is held at g² = at_nj."""
    held_n = (kernel.xi_of(at_nj) * (second_nj - at_nj)).sum(axis=1)
    return kernel.example_bound(y_nj, pi_nk, psi_nj, at_nj, b_k) - 0.5 * held_n


def test_xi_is_the_mean_of_a_polya_gamma_variable():
    """Its series: Σ_i 1 / (2π² ((i - ½)² + g²/4π²)), cut at 10⁶ terms with the tail's integral added."""
    i = np.arange(1, 10**6 + 1)
    for g in (0.0, 1e-9, 0.0999, 0.1001, 1.0, 7.0, 60.0):
        series = (1 / (2 * np.pi**2) / ((i - 0.5) ** 2 + (g / (2 * np.pi)) ** 2)).sum() + 1 / (2 * np.pi**2 * 10**6)
        assert float(kernel.xi_of(np.array(g * g))) == pytest.approx(series, rel=1e-9)


def test_second_moments_are_those_of_enumeration():
    w_kj, c_j, _ = network(1, hidden=4, visible=5)
    pi_nk = np.random.default_rng(2).random((3, 4))
    first = np.zeros((3, 5))
    second = np.zeros((3, 5))
    for z in itertools.product([0.0, 1.0], repeat=4):
        z_k = np.array(z)
        probability = np.prod(np.where(z_k, pi_nk, 1 - pi_nk), axis=1)[:, None]
        mean_j = z_k @ w_kj + c_j
        first += probability * mean_j
        second += probability * mean_j**2
    found = kernel.second_moments(w_kj, c_j, pi_nk)
    np.testing.assert_allclose(found[0], first, rtol=1e-13)
    np.testing.assert_allclose(found[1], second, rtol=1e-13)


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("hidden", [1, 4, 5])
def test_the_limit_is_a_stationary_point_of_the_bound(engine, hidden):
    """Central differences of the bound in each logit, ξ held at the result, vanish; step 1e-4, so about 1e-8."""
    w_kj, c_j, b_k = network(3, hidden=hidden)
    y_nj = images(4, n=4)
    sweeps = 300 if engine is network_kernel else 3000
    pi_nk, xi_nj, psi_nj = engine.local_step(y_nj, w_kj, c_j, b_k, sweeps=sweeps, dtype=np.float64)
    first_nj, at_nj = kernel.second_moments(w_kj, c_j, pi_nk)
    np.testing.assert_allclose(psi_nj, first_nj, atol=1e-11)
    np.testing.assert_allclose(xi_nj, kernel.xi_of(at_nj), rtol=1e-10)

    def bound(probability_nk):
        psi_nj, second_nj = kernel.second_moments(w_kj, c_j, probability_nk)
        return bound_at(y_nj, probability_nk, psi_nj, second_nj, b_k, at_nj)

    logit_nk = np.log(pi_nk) - np.log1p(-pi_nk)
    for k in range(hidden):
        step_k = np.zeros(hidden)
        step_k[k] = 1e-4
        slope = (bound(expit(logit_nk + step_k)) - bound(expit(logit_nk - step_k))) / 2e-4
        assert np.abs(slope).max() < 1e-7


@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
def test_every_sweep_raises_every_examples_bound(engine):
    w_kj, c_j, b_k = network(5, hidden=6, scale=2.0)
    y_nj = images(6, n=40)
    before = np.full(40, -np.inf)
    for sweeps in range(8):
        pi_nk, *_ = engine.local_step(y_nj, w_kj, c_j, b_k, sweeps=sweeps, dtype=np.float64)
        after = kernel.example_bound(y_nj, pi_nk, *kernel.second_moments(w_kj, c_j, pi_nk), b_k)
        assert (after >= before - 1e-10).all()
        assert (after > before + 1e-3).any() or sweeps > 3
        before = after


def test_the_bound_lies_below_the_log_likelihood_and_meets_it_without_weights():
    w_kj, c_j, b_k = network(7, hidden=6, visible=8)
    y_nj = images(8, n=20, visible=8)
    for scale in (0.0, 0.3, 2.0):
        w = scale * w_kj
        likelihood = np.zeros(20)
        for z in itertools.product([0.0, 1.0], repeat=6):
            z_k = np.array(z)
            psi_j = z_k @ w + c_j
            row = (y_nj * psi_j - np.logaddexp(0, psi_j)).sum(axis=1)
            likelihood += np.exp(row + (z_k * b_k - np.logaddexp(0, b_k)).sum())
        pi_nk, *_ = kernel.local_step(y_nj, w, c_j, b_k, sweeps=50, dtype=np.float64)
        bound = kernel.example_bound(y_nj, pi_nk, *kernel.second_moments(w, c_j, pi_nk), b_k)
        assert (bound <= np.log(likelihood) + 1e-12).all()
        if scale == 0:
            np.testing.assert_allclose(bound, np.log(likelihood), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("hidden", [1, 6, 7])
def test_compiled_and_plain_steps_agree(dtype, hidden):
    w_kj, c_j, b_k = network(9, hidden=hidden)
    y_nj = images(10)
    plain = network_kernel.local_step(y_nj, w_kj, c_j, b_k)
    compiled = kernel.local_step(y_nj, w_kj, c_j, b_k, dtype=dtype)
    for one, other in zip(plain, compiled, strict=True):
        assert other.dtype == dtype
        np.testing.assert_allclose(other, one, atol=2e-5 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_does_not_depend_on_its_batch(threads):
    """To the bit: rows alone, in other places and in other company."""
    w_kj, c_j, b_k = network(11, hidden=7)
    y_nj = images(12, n=150).astype(np.float32)
    whole = kernel.local_step(y_nj, w_kj, c_j, b_k, threads=threads)
    order = np.random.default_rng(0).permutation(150)[:77]
    for one, other in zip(whole, kernel.local_step(y_nj[order], w_kj, c_j, b_k, threads=1), strict=True):
        assert one[order].tobytes() == other.tobytes()
    for n in (0, 3, 149):
        for one, other in zip(whole, kernel.local_step(y_nj[n : n + 1], w_kj, c_j, b_k), strict=True):
            assert one[n].tobytes() == other[0].tobytes()


@kills("norms", "gradients of a belief network declared too short")
@edit(
    "models/belief_network/kernel.py",
    "np.maximum(square_n, 0.0) + slack_n",
    "0.99 * np.maximum(square_n, 0.0) + slack_n",
)
@pytest.mark.parametrize("engine", ENGINES, ids=["numpy", "numba"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("hidden", [1, 5])
def test_norms_bound_the_very_numbers_that_are_summed(engine, dtype, hidden):
    """Exact squares of the integers of one example at a time against the bound, and the bound's excess."""
    parts = factors(13, dtype, hidden=hidden)
    norm_n = engine.score_norms(*parts)
    r_nj, xi_nj, p_nk, a_nk, w_kj = (part.astype(np.float64) for part in parts)
    for n, norm in enumerate(norm_n):
        out_kj = np.zeros(w_kj.shape, np.int64)
        weight_n = np.zeros(len(norm_n))
        weight_n[n] = 1.0
        engine.add_scores(*parts, weight_n, 2.0**-40, out_kj)
        assert sum(int(v) ** 2 for v in out_kj.ravel()) <= (norm * 2.0**40) ** 2
        s_kj = p_nk[n][:, None] * r_nj[n] - w_kj * xi_nj[n] * a_nk[n][:, None]
        np.testing.assert_allclose(out_kj * 2.0**-40, s_kj, atol=1e-6)
        assert norm <= np.linalg.norm(s_kj) * (1 + 1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_exact_and_the_same_in_both_forms_in_any_order_and_on_any_threads(dtype):
    parts = factors(14, dtype, n=200, hidden=7)
    weight_n = np.random.default_rng(15).random(200)
    weight_n[::5] = 0.0
    grid = 2.0**-27
    sums = []
    for engine, threads in ((network_kernel, None), (kernel, 1), (kernel, 3)):
        out_kj = np.zeros((7, 19), np.int64)
        engine.add_scores(*parts, weight_n, grid, out_kj, threads=threads)
        sums.append(out_kj)
    parted = np.zeros((7, 19), np.int64)
    order = np.random.default_rng(16).permutation(200)
    for some in (order[:63], order[63:]):
        rows = [part[some] for part in parts[:4]]
        kernel.add_scores(*rows, parts[4], weight_n[some], grid, parted)
    for other in (*sums[1:], parted):
        np.testing.assert_array_equal(sums[0], other)
    assert np.abs(sums[0]).min() > 0


def test_a_faulty_row_has_no_finite_norm_and_is_not_read_at_weight_zero():
    r_nj, xi_nj, p_nk, a_nk, w_kj = factors(17, np.float32)
    y_nj = images(17, n=3)
    y_nj[1, 4] = np.nan
    pi_nk, *_ = kernel.local_step(y_nj, *network(17))
    assert np.isnan(pi_nk[1]).all()
    assert np.isfinite(pi_nk[[0, 2]]).all()
    r_nj[1], p_nk[2] = np.nan, np.inf
    assert not np.isfinite(kernel.score_norms(r_nj, xi_nj, p_nk, a_nk, w_kj)[1:3]).any()
    weight_n = np.ones(30)
    weight_n[1:3] = 0.0
    kept = np.flatnonzero(weight_n)
    one, other = np.zeros((2, *w_kj.shape), np.int64)
    kernel.add_scores(r_nj, xi_nj, p_nk, a_nk, w_kj, weight_n, 2.0**-20, one)
    kernel.add_scores(r_nj[kept], xi_nj[kept], p_nk[kept], a_nk[kept], w_kj, np.ones(28), 2.0**-20, other)
    np.testing.assert_array_equal(one, other)


def test_empty_batches():
    w_kj, c_j, b_k = network(18)
    for engine in ENGINES:
        pi_nk, xi_nj, psi_nj = engine.local_step(np.empty((0, 19)), w_kj, c_j, b_k)
        assert pi_nk.shape == (0, 5)
        assert xi_nj.shape == psi_nj.shape == (0, 19)
        assert engine.score_norms(psi_nj, xi_nj, pi_nk, pi_nk, w_kj.astype(pi_nk.dtype)).shape == (0,)
