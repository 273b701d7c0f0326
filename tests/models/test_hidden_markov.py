"""Hidden Markov chains against sums over all paths, against each other where two must agree, and at the edges."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from oracles.state_sums import expected_counts
from planted import edit, kills
from scipy import stats
from scipy.special import betaln, gammaln

from dpvb.core import loop
from dpvb.core.model import constant
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.sequences.content import Sequences
from dpvb.errors import ParameterError
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import outside
from dpvb.models.expfam import dirichlet_logz
from dpvb.models.sequences import passes, passes_numba
from dpvb.models.sequences.emissions import (
    BernoulliEmissions,
    CategoricalEmissions,
    Emissions,
    GaussianEmissions,
    PoissonEmissions,
    Values,
)
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior
from dpvb.models.sequences.windows import Windows, em_step, fit_windows, start_from_chain, start_tilts
from dpvb.rows import SequenceRows

KINDS = ("categorical", "bernoulli", "poisson", "gaussian")
#: So small a prior that counts of 0 have probability 0 as far as anybody can tell.
NO_PRIOR = 1e-200


def shown(kind: str, rng: np.random.Generator, k: int = 3, d: int = 2) -> Emissions:
    """A posterior of what states show, somewhere."""
    one, two = 0.5 + 3 * rng.random((2, d, k))
    if kind == "categorical":
        return CategoricalEmissions(0.2 + 5 * rng.random((4, k)))
    if kind == "bernoulli":
        return BernoulliEmissions(one, two)
    if kind == "poisson":
        return PoissonEmissions(one, two)
    return GaussianEmissions(rng.standard_normal((d, k)), 1 + one, 2 + two, one)


def chain(kind: str, rng: np.random.Generator, k: int = 3) -> HiddenChain:
    start_k, pooled_k = 0.5 + rng.random((2, k))
    return HiddenChain(start_k, pooled_k, 0.5 + 3 * rng.random((k, k)), shown(kind, rng, k))


def drawn(kind: str, rng: np.random.Generator, n: int) -> Values:
    if kind == "categorical":
        return rng.integers(0, 4, n)
    if kind == "gaussian":
        return rng.standard_normal((n, 2))
    return rng.integers(0, 2 if kind == "bernoulli" else 6, (n, 2)).astype(np.float64)


def missing(kind: str, value_t: Values, places: list[int]) -> Values:
    made = value_t.copy()
    made[places] = -1 if kind == "categorical" else np.nan
    return made


def bounds(*lengths: int) -> Ints:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def density(emissions: Any, value: Any, k: int) -> float:
    """What a state shows a value with, at the means, by SciPy."""
    if isinstance(emissions, CategoricalEmissions):
        return 1.0 if value < 0 else float(emissions.mean_vk[value, k])
    found = 1.0
    for d, x in enumerate(value):
        if np.isnan(x):
            continue
        if isinstance(emissions, BernoulliEmissions):
            law: Any = stats.bernoulli(emissions.on_dk[d, k] / (emissions.on_dk[d, k] + emissions.off_dk[d, k])).pmf
        elif isinstance(emissions, PoissonEmissions):
            law = stats.poisson(emissions.mean_dk[d, k]).pmf
        else:
            law = stats.norm(emissions.mean_dk[d, k], np.sqrt(emissions.variance_dk[d, k])).pdf
        found *= float(law(x))
    return found


def paths(found: HiddenChain, value_t: Values) -> dict[tuple[int, ...], float]:
    """The joint probability of the values with every path."""
    start_k, _, step_kk = found.laws(expected=False)
    shown_tk = np.array([[density(found.emissions, x, k) for k in range(len(start_k))] for x in value_t])
    table = {}
    for path in itertools.product(range(len(start_k)), repeat=len(value_t)):
        p = start_k[path[0]] * np.prod([step_kk[i, j] for i, j in itertools.pairwise(path)])
        table[path] = float(p * np.prod(shown_tk[range(len(path)), path]))
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_all_passes_equal_sums_over_all_paths(kind: str) -> None:
    rng = np.random.default_rng(1)
    found, lengths = chain(kind, rng), (5, 1, 3)
    value_t = missing(kind, drawn(kind, rng, 9), [2])
    at, weight_s = bounds(*lengths), np.array([2.0, 1.0, 0.5])
    log_s = passes.log_likelihood(found, at, value_t)
    gamma_tk = passes.smoothed(found, at, value_t)
    last_sk = passes.last_states(found, at, value_t)
    state_t = passes.most_probable(found, at, value_t)
    sums, value_r, log = expected_counts(found, at, value_t, weight_s, expected=False)
    first_k, step_kk, shown_tk = np.zeros(3), np.zeros((3, 3)), np.zeros((9, 3))
    for s, weight in enumerate(weight_s):
        own = slice(at[s], at[s + 1])
        table = paths(found, value_t[own])
        total = sum(table.values())
        assert log_s[s] == pytest.approx(np.log(total), rel=1e-12)
        assert tuple(state_t[own]) == max(table, key=lambda path: table[path])
        for path, p in table.items():
            first_k[path[0]] += weight * p / total
            for i, j in itertools.pairwise(path):
                step_kk[i, j] += weight * p / total
            shown_tk[range(own.start, own.stop), path] += p / total
        np.testing.assert_allclose(last_sk[s], shown_tk[own.stop - 1], rtol=1e-11)
    np.testing.assert_allclose(gamma_tk, shown_tk, rtol=1e-11)
    np.testing.assert_allclose(sums.start_k, first_k, rtol=1e-11)
    np.testing.assert_allclose(sums.step_kk, step_kk, rtol=1e-11)
    assert log == pytest.approx(weight_s @ log_s, rel=1e-12)
    weight_t = np.repeat(weight_s, lengths)[:, None]
    if kind == "categorical":
        shown_rk = np.array([(weight_t * shown_tk)[value_t == value].sum(axis=0) for value in value_r])
        np.testing.assert_allclose(sums.state_rk, shown_rk, rtol=1e-11)
    else:
        np.testing.assert_allclose(sums.state_rk, weight_t * shown_tk, rtol=1e-11)


def log_prior(found: HiddenChain) -> float:
    """Logarithm of the prior's density at the means, up to a constant, of whose posterior the mean is the mode."""
    laws = found.laws(expected=False)
    total = sum(found.prior * float(np.log(law).sum()) for law in laws)
    shown: Any = found.emissions
    if isinstance(shown, CategoricalEmissions):
        return total + shown.prior * float(np.log(shown.mean_vk).sum())
    if isinstance(shown, BernoulliEmissions):
        theta_dk = shown.on_dk / (shown.on_dk + shown.off_dk)
        return total + shown.prior * float(np.log(theta_dk).sum() + np.log(1 - theta_dk).sum())
    if isinstance(shown, PoissonEmissions):
        return total + shown.prior * float((np.log(shown.mean_dk) - shown.mean_dk / shown.unit).sum())
    tau_dk = shown.shape_dk / shown.rate_dk
    away_dk = shown.prior_weight * (shown.mean_dk - shown.prior_mean) ** 2
    return total + float((shown.prior_shape * np.log(tau_dk) - tau_dk * (shown.prior_rate + 0.5 * away_dk)).sum())


def divergence(found: HiddenChain) -> float:
    """Kullback-Leibler divergence of the posterior from the prior."""
    total = sum(dirichlet(counts, found.prior) for counts in (found.start_k, found.pooled_k, *found.step_kk))
    shown: Any = found.emissions
    if isinstance(shown, CategoricalEmissions):
        return total + sum(dirichlet(counts, shown.prior) for counts in shown.count_vk.T)
    if isinstance(shown, BernoulliEmissions):
        both_dk2 = np.stack([shown.on_dk, shown.off_dk], axis=-1)
        return total + sum(dirichlet(counts, shown.prior) for counts in both_dk2.reshape(-1, 2))
    if isinstance(shown, PoissonEmissions):
        rate = shown.prior / shown.unit
        return total + float(gamma(shown.shape_dk, shown.rate_dk, shown.prior, rate).sum())
    total += float(gamma(shown.shape_dk, shown.rate_dk, shown.prior_shape, shown.prior_rate).sum())
    ratio_dk = shown.prior_weight / shown.weight_dk
    away_dk = shown.prior_weight * (shown.mean_dk - shown.prior_mean) ** 2 * shown.shape_dk / shown.rate_dk
    return total + float(0.5 * (ratio_dk - 1 - np.log(ratio_dk) + away_dk).sum())


def dirichlet(counts: Floats, prior: float) -> float:
    from scipy.special import digamma

    before = np.full_like(counts, prior)
    expected = digamma(counts) - digamma(counts.sum())
    return float((counts - before) @ expected - dirichlet_logz(counts) + dirichlet_logz(before))


def gamma(shape: Floats, rate: Floats, prior_shape: float, prior_rate: float) -> Floats:
    from scipy.special import digamma

    found = (shape - prior_shape) * digamma(shape) - gammaln(shape) + gammaln(prior_shape)
    return np.asarray(found + prior_shape * np.log(rate / prior_rate) + shape * (prior_rate - rate) / rate)


def test_the_divergence_of_a_beta_law_is_that_of_a_dirichlet_law_of_two() -> None:
    """So that what the bounds below subtract is checked by a formula of its own."""
    grid = (np.arange(200_000) + 0.5) / 200_000
    log_q, log_p = stats.beta(3.0, 1.5).logpdf(grid), -betaln(0.5, 0.5) - 0.5 * np.log(grid * (1 - grid))
    assert dirichlet(np.array([3.0, 1.5]), 0.5) == pytest.approx(np.mean(np.exp(log_q) * (log_q - log_p)), rel=1e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("expected", [False, True])
def test_no_iteration_over_sequences_lowers_the_bound(kind: str, expected: bool) -> None:
    rng = np.random.default_rng(2)
    lengths = rng.integers(1, 8, 30)
    at, value_t, found = bounds(*lengths), drawn(kind, rng, int(lengths.sum())), chain(kind, rng)
    value_t, before = missing(kind, value_t, [3, 4]), -np.inf
    for _ in range(15):
        sums, value_r, log = expected_counts(found, at, value_t, np.ones(30), expected=expected)
        bound = log - divergence(found) if expected else log + log_prior(found)
        assert bound >= before - 1e-9 * abs(bound)
        before, found = bound, found.updated(sums._replace(pooled_k=np.zeros(3)), value_r)


@pytest.mark.parametrize("expected", [False, True])
@pytest.mark.parametrize("order", [2, 3])
def test_no_iteration_over_windows_lowers_the_bound(expected: bool, order: int) -> None:
    rng = np.random.default_rng(3)
    windows = Windows(30 * rng.random((4, 5)), 30 * rng.random((4,) * order))
    found, before = chain("categorical", rng), -np.inf
    for _ in range(20):
        new = em_step(windows, found, np.arange(4), expected=expected)
        bound = new.log * windows.total + (-divergence(found) if expected else log_prior(found))
        assert bound >= before - 1e-9 * abs(bound)
        found, before = new.chain, bound


@pytest.mark.parametrize("kind", ["categorical", "poisson"])
@pytest.mark.parametrize("expected", [False, True])
def test_windows_of_sequences_of_three_symbols_are_the_whole_of_them(kind: str, expected: bool) -> None:
    """A step on windows equals one on sequences, where both laws of first states are the same."""
    rng = np.random.default_rng(4)
    symbol_t, found = rng.integers(0, 4, 3 * 50), chain(kind, rng)
    found = replace(found, pooled_k=found.start_k)
    value_v: Values = np.arange(4) if kind == "categorical" else np.stack([np.arange(4.0), np.arange(4) % 2], axis=1)
    triples = np.zeros((4, 4, 4))
    np.add.at(triples, tuple(symbol_t.reshape(-1, 3).T), 1.0)
    new = em_step(Windows(np.zeros((4, 5)), triples), found, value_v, expected=expected)
    at = 3 * np.arange(51)
    sums, value_r, log = expected_counts(found, at, value_v[symbol_t], np.ones(50), expected=expected)
    whole = found.updated(sums, value_r)
    assert new.log * 50 == pytest.approx(log, rel=1e-12)
    np.testing.assert_allclose(new.chain.pooled_k, whole.pooled_k, rtol=1e-11)
    np.testing.assert_allclose(new.chain.step_kk, whole.step_kk, rtol=1e-11)
    for name, values in vars(whole.emissions).items():
        np.testing.assert_allclose(getattr(new.chain.emissions, name), values, rtol=1e-11)


def test_windows_from_starts_are_sequences_of_one_and_two_symbols() -> None:
    rng = np.random.default_rng(5)
    found, start_vw = chain("categorical", rng), rng.integers(0, 5, (4, 5)).astype(np.float64)
    new = em_step(Windows(start_vw, np.zeros((4, 4))), found, np.arange(4), expected=False)
    places = [(a, b) for a in range(4) for b in range(5)]
    value_t = np.concatenate([[a] if b == 4 else [a, b] for a, b in places])
    at = bounds(*(1 if b == 4 else 2 for _, b in places))
    sums, value_r, log = expected_counts(found, at, value_t, start_vw.ravel(), expected=False)
    whole = found.updated(sums, value_r)
    assert new.log * start_vw.sum() == pytest.approx(log, rel=1e-12)
    np.testing.assert_allclose(new.chain.start_k, whole.start_k, rtol=1e-11)
    np.testing.assert_allclose(new.chain.step_kk, whole.step_kk, rtol=1e-11)
    np.testing.assert_allclose(new.chain.emissions.count_vk, whole.emissions.count_vk, rtol=1e-11)  # type: ignore[attr-defined]


def test_one_state_is_independent_draws() -> None:
    rng = np.random.default_rng(6)
    found, value_t = chain("categorical", rng, k=1), rng.integers(0, 4, 12)
    log_v = np.log(found.emissions.mean_vk[:, 0])  # type: ignore[attr-defined]
    log_s = passes.log_likelihood(found, bounds(5, 7), value_t)
    np.testing.assert_allclose(log_s, [log_v[value_t[:5]].sum(), log_v[value_t[5:]].sum()], rtol=1e-12)


def test_states_that_show_one_symbol_each_are_the_markov_chain() -> None:
    """Then a fit is counting, with symbols as states."""
    rng = np.random.default_rng(7)
    symbol_t = rng.integers(0, 3, 3 * 60)
    triples = np.zeros((3, 3, 3))
    np.add.at(triples, tuple(symbol_t.reshape(-1, 3).T), 1.0)
    windows = Windows(np.zeros((3, 4)), triples)
    emissions = CategoricalEmissions(np.eye(3) + NO_PRIOR, NO_PRIOR)
    found = HiddenChain(np.ones(3), np.ones(3), 1 + rng.random((3, 3)), emissions)
    found = replace(found, prior=NO_PRIOR)
    new = fit_windows(windows, found, np.arange(3), rounds=3, expected=False).chain
    pairs = triples.sum(axis=2) + triples.sum(axis=0)
    np.testing.assert_allclose(new.laws(expected=False).step_kk, pairs / pairs.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(passes.most_probable(new, bounds(3), np.array([2, 0, 1])), [2, 0, 1])


def test_a_chain_read_backwards_has_the_same_likelihood_and_transposed_pairs() -> None:
    rng = np.random.default_rng(8)
    found, value_t = chain("categorical", rng), rng.integers(0, 4, 40)
    _, _, step_kk = found.laws(expected=False)
    value, vector = np.linalg.eig(step_kk.T)
    law_k = np.real(vector[:, np.argmax(np.real(value))])
    law_k = law_k / law_k.sum()
    back_kk = (law_k[:, None] * step_kk).T / law_k[:, None]
    forth, back = (HiddenChain(law_k, law_k, kk, found.emissions) for kk in (step_kk, back_kk))
    one, _, log = expected_counts(forth, bounds(40), value_t, np.ones(1), expected=False)
    two, _, log_back = expected_counts(back, bounds(40), value_t[::-1], np.ones(1), expected=False)
    assert log_back == pytest.approx(log, rel=1e-12)
    np.testing.assert_allclose(two.step_kk, one.step_kk.T, rtol=1e-9)
    np.testing.assert_allclose(two.state_rk, one.state_rk, rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_states_is_a_name(kind: str) -> None:
    rng = np.random.default_rng(9)
    found, order, value_t, at = chain(kind, rng), np.array([2, 0, 1]), drawn(kind, rng, 20), bounds(8, 12)
    moved = found.permuted(order)
    for of in (passes.smoothed, passes.last_states):
        np.testing.assert_allclose(of(moved, at, value_t), of(found, at, value_t)[:, order], rtol=1e-10)
    found_t = passes.most_probable(found, at, value_t)
    np.testing.assert_array_equal(order[passes.most_probable(moved, at, value_t)], found_t)
    one, value_r, _ = expected_counts(found, at, value_t, np.ones(2), expected=True)
    two, _, _ = expected_counts(moved, at, value_t, np.ones(2), expected=True)
    np.testing.assert_allclose(
        moved.updated(two, value_r).step_kk, found.updated(one, value_r).permuted(order).step_kk, rtol=1e-10
    )


def test_a_long_sequence_of_many_states_stays_finite() -> None:
    rng = np.random.default_rng(10)
    found, value_t = chain("categorical", rng, k=100), rng.integers(0, 4, 10_000)
    at = bounds(10_000)
    gamma_tk = passes.smoothed(found, at, value_t)
    np.testing.assert_allclose(gamma_tk.sum(axis=1), 1.0, rtol=1e-9)
    assert np.isfinite(passes.log_likelihood(found, at, value_t)).all()
    assert (passes.most_probable(found, at, value_t) >= 0).all()


def test_numbers_far_from_every_state_stay_finite() -> None:
    """Where every density is 0 in floating point, their ratios count."""
    rng = np.random.default_rng(11)
    found, value_t = chain("gaussian", rng), 1e6 + rng.standard_normal((20, 2))
    at = bounds(20)
    assert np.isfinite(passes.log_likelihood(found, at, value_t)).all()
    np.testing.assert_allclose(passes.smoothed(found, at, value_t).sum(axis=1), 1.0, rtol=1e-9)


def test_an_impossible_sequence_adds_nothing_and_touches_no_other() -> None:
    zero_rk = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # no state shows the third symbol
    at, value_t = bounds(3, 0, 2), np.array([0, 2, 1, 0, 1])
    half_k, half_kk, order_s = np.full(2, 0.5), np.full((2, 2), 0.5), passes_numba.longest_first(at, np.full(3, True))
    assert order_s.tolist() == [0, 2]
    log_s, last_sk = np.zeros(3), np.zeros((3, 2))
    passes_numba.forward(order_s, at, value_t, zero_rk, half_k, half_kk, log_s, last_sk)
    assert log_s.tolist() == [-np.inf, 0.0, pytest.approx(np.log(0.25))]
    np.testing.assert_allclose(last_sk, [[0.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    gamma_tk, pair_ukk, possible_s = np.zeros((5, 2)), np.zeros((3, 2, 2)), np.full(3, False)
    given = half_k, half_kk, half_kk, np.ones(3), np.arange(3)
    passes_numba.passes(order_s, at, value_t, zero_rk, *given, gamma_tk, pair_ukk, possible_s)
    assert possible_s.tolist() == [False, False, True]
    np.testing.assert_allclose(gamma_tk, [[0.0, 0.0]] * 3 + [[1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(pair_ukk, [np.zeros((2, 2)), np.zeros((2, 2)), [[0.0, 1.0], [0.0, 0.0]]])
    windows = Windows(np.zeros((3, 4)), np.ones((3, 3, 3)))
    found = HiddenChain(np.ones(2), np.ones(2), np.ones((2, 2)), CategoricalEmissions(zero_rk + 1e-300))
    new = em_step(windows, found, np.arange(3), expected=False)
    assert np.isfinite(new.log)
    assert np.isfinite(new.chain.step_kk).all()


@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_a_sequence_do_not_depend_on_the_others(kind: str) -> None:
    rng = np.random.default_rng(18)
    lengths = rng.integers(0, 9, 40)
    found, at, value_t = chain(kind, rng, 5), bounds(*lengths), drawn(kind, rng, int(lengths.sum()))
    log_s = passes.log_likelihood(found, at, value_t)
    alone = [passes.log_likelihood(found, bounds(b - a), value_t[a:b])[0] for a, b in itertools.pairwise(at)]
    assert log_s.tolist() == alone


def test_an_empty_sequence_and_one_symbol() -> None:
    rng = np.random.default_rng(12)
    found = chain("categorical", rng)
    laws, at = found.laws(expected=False), bounds(0, 1, 0)
    log_s = passes.log_likelihood(found, at, np.array([2]))
    shown_k = found.emissions.mean_vk[2]  # type: ignore[attr-defined]
    np.testing.assert_allclose(log_s, [0.0, np.log(laws.start_k @ shown_k), 0.0], rtol=1e-12)
    np.testing.assert_allclose(passes.last_states(found, at, np.array([2]))[0], laws.start_k)
    assert passes.most_probable(found, bounds(0), np.array([], np.int64)).size == 0


def test_a_count_of_the_cap_stands_for_all_above_it() -> None:
    """The probabilities of 0 to Y sum to 1, and a fit of capped counts finds the rates that made them."""
    rng = np.random.default_rng(13)
    emissions = PoissonEmissions(np.array([[2.0, 9.0]]), np.ones((1, 2)), most=6)
    values = np.arange(7.0)[:, None]
    np.testing.assert_allclose(np.exp(emissions.log_likelihood(values, expected=False)).sum(axis=0), 1.0, rtol=1e-12)
    count_n = np.minimum(rng.poisson(9.0, 20_000), 6)
    weight_r1 = np.bincount(count_n, minlength=7)[:, None].astype(np.float64)
    found = PoissonEmissions(np.ones((1, 1)), np.ones((1, 1)), most=6, prior=1e-9)
    for _ in range(300):
        found = found.updated(values, weight_r1)
    ends = (
        np.exp(PoissonEmissions(np.array([[rate]]), np.ones((1, 1)), most=6).log_likelihood(values, expected=False))
        for rate in (8.99, 9.01)
    )
    low_r, high_r = (np.ravel(p) for p in ends)
    information = 20_000 * np.sum(((high_r - low_r) / 0.02) ** 2 / (0.5 * (low_r + high_r)))
    # Five deviations: one false alarm in two million.
    assert abs(found.mean_dk[0, 0] - 9.0) < 5 / np.sqrt(information)


def simulated(rng: np.random.Generator, n: int, length: int, laws: tuple[Floats, Floats, Floats]) -> Ints:
    """Symbols (n, length) of a chain: first states, steps, symbols of states."""
    start_k, step_kk, shown_kv = (np.cumsum(law, axis=-1) for law in laws)
    state_n = np.argmax(rng.random((n, 1)) < start_k, axis=1)
    made = np.empty((n, length), np.int64)
    for t in range(length):
        made[:, t] = np.argmax(rng.random((n, 1)) < shown_kv[state_n], axis=1)
        state_n = np.argmax(rng.random((n, 1)) < step_kk[state_n], axis=1)
    return made


def test_windows_of_long_sequences_give_the_chain_that_made_them() -> None:
    """Two states that blur three symbols: a fit of pooled triples, from the chain, finds steps and symbols of both."""
    rng = np.random.default_rng(14)
    step_kk, shown_kv = np.array([[0.9, 0.1], [0.25, 0.75]]), np.array([[0.8, 0.1, 0.1], [0.1, 0.15, 0.75]])
    symbols = simulated(rng, 4000, 60, (np.array([0.5, 0.5]), step_kk, shown_kv))
    triples, start_vw = np.zeros((3, 3, 3)), np.zeros((3, 4))
    for t in range(58):
        np.add.at(triples, tuple(symbols[:, t : t + 3].T), 1.0)
    np.add.at(start_vw, tuple(symbols[:, :2].T), 1.0)
    windows = Windows(start_vw, triples)
    start = start_from_chain(windows, np.ones((2, 3)), 0.1)
    found = fit_windows(windows, start, np.arange(3), rounds=400, expected=False).chain
    found = found.permuted(np.argsort(-found.emissions.mean_vk[0]))  # type: ignore[attr-defined]
    # 232,000 triples: entries are known to about .004, and .03 is seven deviations.
    np.testing.assert_allclose(found.laws(expected=False).step_kk, step_kk, atol=0.03)
    np.testing.assert_allclose(found.emissions.mean_vk.T, shown_kv, atol=0.03)  # type: ignore[attr-defined]


@pytest.mark.parametrize("n_states", [2, 4, 9])
def test_a_start_has_the_frequent_symbols_as_its_states(n_states: int) -> None:
    rng = np.random.default_rng(15)
    seen_v = np.array([10.0, 1.0, 50.0, 5.0])
    windows = Windows(np.zeros((4, 5)), seen_v[:, None, None] * seen_v[:, None] * seen_v)
    found = start_from_chain(windows, start_tilts(rng, 1, n_states)[0], 0.1)
    symbols = np.argmax(found.emissions.count_vk / seen_v[:, None], axis=0)  # type: ignore[attr-defined]
    copies = np.bincount(symbols, minlength=4)
    assert copies.sum() == n_states
    assert copies[2] == max(copies)
    assert (copies > 0).sum() == min(n_states, 4)


def rows(*sequences: list[int]) -> SequenceRows:
    code = np.array([symbol for one in sequences for symbol in one], np.int32)
    return SequenceRows(bounds(*map(len, sequences)), code)


def released(model: HiddenMarkov, data: SequenceRows, group: Any = None) -> HiddenMarkovPosterior:
    """What a fit without noise ends with."""
    plan = phased(model.blocks, FullBatch(), (), shares=model.schedule.budget).scaled(0.0)
    wall: Wall[Any] = Wall(Sequences(data, group), plan)
    return loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))[0]


def test_starts_and_windows_are_what_is_released() -> None:
    """First symbols with second ones or the end, and windows of three, of the first L symbols; a gap ends a window."""
    data = rows([0, 1, 1, 0, 2], [2], [], [1, -1, 0], [-1, 1, 2], [0, 0])
    q = released(HiddenMarkov(3, 2, clip_norm=100.0, max_length=4), data)
    start_vw, pooled = np.zeros((3, 4)), np.zeros((3, 3, 3))
    start_vw[0, 1] = start_vw[2, 3] = start_vw[0, 0] = 1
    pooled[0, 1, 1] = pooled[1, 1, 0] = 1
    np.testing.assert_allclose(q.start_ww[:3], start_vw, atol=1e-6)
    np.testing.assert_allclose(q.pooled, pooled, atol=1e-6)
    wide = released(HiddenMarkov(41, 2, clip_norm=100.0), data)
    pairs = np.zeros((41, 41))
    pairs[0, 1] = pairs[1, 1] = pairs[1, 0] = pairs[0, 2] = pairs[1, 2] = pairs[0, 0] = 1
    np.testing.assert_allclose(wide.pooled, pairs, atol=1e-6)


@pytest.mark.guarantees("sequence counts")
@kills("rows", "each of a person's sequences begins with the weight of one")
@edit("models/sequences/hidden_markov.py", "self.n_symbols + 1, 2, 0.0)", "self.n_symbols + 1, 2, 1.0)")
def test_sequences_of_a_person_are_one_unit() -> None:
    """Starts are a mean over the person's sequences, and windows count together under one clip."""
    data = rows([0, 0, 0, 0], [1, 0], [2])
    q = released(HiddenMarkov(3, 2, clip_norm=1.5), data, ["one", "one", "one"])
    assert q.start_ww.sum() == pytest.approx(1.0, rel=1e-6)
    assert q.pooled[0, 0, 0] == pytest.approx(1.5, rel=1e-5)


@kills("errors", "a symbol beyond the public ones counted as the end of a sequence")
@edit(
    "models/sequences/hidden_markov.py",
    "np.where((rows.code >= 0) & (rows.code < n_symbols), rows.code, -1)",
    "rows.code",
)
def test_a_symbol_as_large_as_the_end_of_a_sequence_is_a_gap() -> None:
    """Whoever makes rows without a reader cannot write where ends are counted."""
    assert released(HiddenMarkov(3, 2), rows([0, 3], [3])).start_ww.sum() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("estimate", ["posterior", "map"])
@pytest.mark.parametrize("emissions", ["categorical", "poisson"])
def test_a_fit_without_noise_finds_the_states(emissions: str, estimate: str) -> None:
    rng = np.random.default_rng(17)
    step_kk = np.array([[0.9, 0.1], [0.2, 0.8]])
    rate_k = np.array([1.0, 6.0])
    shown_kv = np.array([[0.8, 0.1, 0.1], [0.1, 0.2, 0.7]])
    if emissions == "poisson":
        shown_kv = stats.poisson(rate_k[:, None]).pmf(np.arange(13))
        shown_kv[:, -1] += 1 - shown_kv.sum(axis=1)
    symbols = simulated(rng, 3000, 20, (np.array([0.7, 0.3]), step_kk, shown_kv))
    q = released(
        HiddenMarkov(shown_kv.shape[1], 2, emissions, estimate=estimate, clip_norm=1e4), rows(*symbols.tolist())
    )
    order = np.argsort(q.chain.laws(expected=False).start_k)[::-1]
    found = q.chain.permuted(order)
    # 54,000 windows: probabilities and a tenth of the rates are known to about .006, and .05 is eight deviations.
    np.testing.assert_allclose(found.laws(expected=False).start_k, [0.7, 0.3], atol=0.06)
    np.testing.assert_allclose(found.laws(expected=False).step_kk, step_kk, atol=0.05)
    shown: Any = found.emissions
    if emissions == "poisson":
        np.testing.assert_allclose(shown.mean_dk[0], rate_k, rtol=0.05)
    else:
        np.testing.assert_allclose(shown.mean_vk.T, shown_kv, atol=0.05)


def test_noise_alone_gives_a_finite_model() -> None:
    data = rows([0, 1, 2])
    for v in (3, 41):
        model = HiddenMarkov(v, 4)
        plan = phased(model.blocks, FullBatch(), (), shares=model.schedule.budget).scaled(50.0)
        wall: Wall[Any] = Wall(Sequences(data), plan, noise=InsecureNoise(3))
        q = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))[0]
        assert np.isfinite(model.score(q, data)).all()
        assert outside(q) is None


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"n_symbols": 1001}, "symbols"),
        ({"n_states": 0}, "n_states"),
        ({"emissions": "gauss"}, "emissions"),
        ({"power": 0.2}, "power"),
        ({"max_length": 2}, "max_length"),
        ({"n_init": 0}, "n_init"),
    ],
)
def test_a_parameter_outside_its_range_is_refused(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(ParameterError, match=names):
        HiddenMarkov(**{"n_symbols": 3, "n_states": 2, **wrong})
