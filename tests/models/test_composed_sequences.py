"""The worked examples of sequences, as their pages have them: against enumeration, dense algebra and derivatives."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import dpvb
from benchmarks import composed_sequences
from dpvb.audit import Matrix
from dpvb.models.sequences import Windows, fit_windows, log_likelihood, most_probable
from dpvb.testing import Case, check_model

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def devices() -> Any:
    return composed_sequences.page("factorial-hidden-markov")[1]


@pytest.fixture(scope="module")
def switching() -> Any:
    return composed_sequences.page("switching-dynamics")[1]


def two_devices(devices: Any) -> Any:
    """Two devices of made-up laws behind five levels."""
    shown = devices.Sum(np.array(list(product([0.0, 1.0], repeat=2))), np.array([1.0, 2.5]), 0.3, 0.6, 5)
    return devices.Factorial(*(RNG.uniform(1, 9, shape) for shape in ((2, 2), (2, 2), (2, 2, 2))), shown)


def test_devices_are_summed_over_all_their_paths(devices: Any) -> None:
    chain, level_t = two_devices(devices), np.array([0, 3, 2, 4])
    start_m2, step_m22 = (each / each.sum(axis=-1, keepdims=True) for each in (chain.start_m2, chain.step_m22))
    shown_v4 = np.exp(chain.emissions.log_likelihood(np.arange(5), expected=False))
    np.testing.assert_allclose(shown_v4.sum(axis=0), 1.0)
    found = {}
    for path in product(product([0, 1], repeat=2), repeat=4):
        law = 1.0
        for m in range(2):
            law *= start_m2[m, path[0][m]]
            law *= np.prod([step_m22[m, a[m], b[m]] for a, b in pairwise(path)])
        found[path] = law * np.prod([shown_v4[v, 2 * a + b] for v, (a, b) in zip(level_t, path, strict=True)])
    bounds = np.array([0, 4])
    np.testing.assert_allclose(log_likelihood(chain, bounds, level_t), np.log(sum(found.values())))
    best = max(found, key=found.__getitem__)
    np.testing.assert_array_equal(most_probable(chain, bounds, level_t), [2 * a + b for a, b in best])


def test_the_windows_of_known_devices_give_them_back(devices: Any) -> None:
    """Expected counts of pairs, from the laws themselves: nothing is drawn, and no noise is added."""
    data, _ = composed_sequences.page("factorial-hidden-markov")
    true = composed_sequences.factorial_truth(data, devices)
    start_k, _, step_kk = true.laws(expected=False)
    shown_vk = np.exp(true.emissions.log_likelihood(np.arange(data.LEVELS), expected=False))
    first_v, ends_vv = 1e6 * shown_vk @ start_k, np.zeros((data.LEVELS, data.LEVELS))
    windows = Windows(np.hstack([ends_vv, first_v[:, None]]), 1e7 * (shown_vk * start_k) @ step_kk @ shown_vk.T)
    found = devices.fitted(windows, 3, data.LEVELS, np.random.default_rng(1), starts=5)
    order = np.argsort(found.emissions.size_m)
    step_m22 = found.step_m22[order] / found.step_m22[order].sum(axis=2, keepdims=True)
    np.testing.assert_allclose(found.emissions.size_m[order], data.SIZES, atol=0.02)
    np.testing.assert_allclose(step_m22[:, 0, 0], data.STAYS_OFF, atol=0.003)
    np.testing.assert_allclose(step_m22[:, 1, 1], data.STAYS_ON, atol=0.003)


def test_a_fit_of_devices_never_loses_likelihood(devices: Any) -> None:
    """The prior of one count each is drowned; without it each round of EM is at least as likely as the last."""
    windows = Windows(1e6 * RNG.random((5, 6)), 1e6 * RNG.random((5, 5)))
    chain, logs = two_devices(devices), []
    for _ in range(6):
        chain, log = fit_windows(windows, chain, np.arange(5), rounds=1, expected=False)
        logs.append(log)
    assert np.all(np.diff(logs) > -1e-3)


def motions(switching: Any, k: int = 2) -> Any:
    switch_kk = RNG.uniform(0.2, 1, (k, k))
    return switching.Motions(
        RNG.uniform(0.3, 0.9, k),
        RNG.uniform(-0.3, 0.3, k),
        RNG.uniform(0.01, 0.1, k),
        switch_kk / switch_kk.sum(axis=1, keepdims=True),
        np.full(k, 1 / k),
        RNG.uniform(-0.5, 0.5, k),
        0.01,
    )


def noises(switching: Any, q: Any, length: int) -> Any:
    """Variance of what each step misses, (T, K)."""
    return np.vstack([np.full_like(q.noise_k, switching.FIRST)[None], np.tile(q.noise_k, (length - 1, 1))])


def test_regimes_are_summed_over_all_their_paths(switching: Any) -> None:
    q, square_tk = motions(switching), RNG.uniform(0, 0.3, (4, 2))
    noise_tk = noises(switching, q, 4)
    log_tk = -0.5 * (np.log(noise_tk) + square_tk / noise_tk)
    paths = np.array(list(product([0, 1], repeat=4)))
    log_p = np.log(q.start_k)[paths[:, 0]] + log_tk[np.arange(4), paths].sum(axis=1)
    log_p += np.log(q.switch_kk)[paths[:, :-1], paths[:, 1:]].sum(axis=1)
    law_p = np.exp(log_p - logsumexp(log_p))
    share_tnk, pairs_nkk = switching.regimes(q, square_tk[:, None, :])
    np.testing.assert_allclose(share_tnk[:, 0, 1], law_p @ paths)
    pairs = [[law_p @ ((paths[:, :-1] == i) & (paths[:, 1:] == j)).sum(axis=1) for j in (0, 1)] for i in (0, 1)]
    np.testing.assert_allclose(pairs_nkk[0], pairs)


def test_levels_are_the_normal_law_of_a_dense_precision(switching: Any) -> None:
    q, y_t, share_tk = motions(switching), RNG.uniform(-1, 1, 5), RNG.dirichlet([1, 1], 5)
    precision, pull = np.eye(5) / q.error, y_t / q.error
    for t, weight_k in enumerate(share_tk / noises(switching, q, 5)):
        for k in range(2):
            direction = np.eye(5)[t] - (q.slope_k[k] * np.eye(5)[t - 1] if t else 0.0)
            precision += weight_k[k] * np.outer(direction, direction)
            pull += weight_k[k] * direction * (q.shift_k[k] if t else q.first_k[k])
    covariance = np.linalg.inv(precision)
    mean_tn, variance_tn, beside_tn = switching.levels(q, y_t[:, None], share_tk[:, None, :])
    np.testing.assert_allclose(mean_tn[:, 0], covariance @ pull)
    np.testing.assert_allclose(variance_tn[:, 0], covariance.diagonal())
    np.testing.assert_allclose(beside_tn[:, 0], covariance.diagonal(1))


def test_what_is_missed_is_the_slope_of_the_squares(switching: Any) -> None:
    """∂/∂shift and ∂/∂slope of a person's expected squares, by differences, levels and regimes held."""
    q, model = motions(switching), switching.Switching(2, 5)
    batch = RNG.uniform(-1, 1, (3, 5)) / np.sqrt(5)
    made = {name: form.values for name, form in model.e_step(q, batch, model.blocks).items()}
    share_tnk, _, found = switching.explained(q, batch.T * np.sqrt(5))

    def squares(moved: Any) -> Any:
        return (share_tnk * moved.missed(*found)[1])[1:].sum(axis=0) / 4

    np.testing.assert_allclose(made["squares"].reshape(3, 2), squares(q))
    for place, name in enumerate(("shift_k", "slope_k")):
        high, low = (squares(replace(q, **{name: getattr(q, name) + step})) for step in (1e-4, -1e-4))
        misses_nk2 = made["misses"].reshape(3, 2, 2)
        np.testing.assert_allclose(misses_nk2[:, :, place], -(high - low) / 4e-4, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_motion_that_switches_keeps_every_law(switching: Any) -> None:
    def ordinary(rng: np.random.Generator, n: int) -> Any:
        return rng.uniform(-1, 1, (n, 5))

    worst = np.array([np.ones(5), -np.ones(5), np.zeros(5), np.full(5, 1e300), np.full(5, 1e-300), [1, -1, 1, -1, 1]])
    check_model(Case("switching", switching.Switching(2, 5), Matrix, records=ordinary, hostile=worst))


def test_a_chain_of_symbols_hands_its_windows_on() -> None:
    """Without noise they are the counts of pairs, and of first symbols."""
    x = np.random.default_rng(3).integers(0, 3, (200, 6))
    windows = dpvb.MarkovChain(3, power=1.0, clip_norm=None, max_length=6, epsilon=np.inf, delta=1e-6).fit(x).windows_
    counts = np.zeros((3, 3))
    np.add.at(counts, (x[:, :-1].ravel(), x[:, 1:].ravel()), 1.0)
    np.testing.assert_allclose(windows.pooled, counts)
    np.testing.assert_allclose(windows.start_vw[:, 3], np.bincount(x[:, 0], minlength=3), rtol=1e-5)
    assert not windows.start_vw[:, :3].any()
