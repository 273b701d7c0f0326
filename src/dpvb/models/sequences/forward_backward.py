"""Passes over whole sequences: likelihood, laws of states, most probable states, expected counts.

===========  ====================================================================================
paper        code
===========  ====================================================================================
α_t, c_t     `alpha_tk`, `scale_t` of the compiled loops: α_t sums to 1, c_t is what it summed to
β_t          `beta_k` there, over Π c
γ_t, ξ_t     laws of z_t and of (z_t, z_t+1): Σ_t ξ_t = A ∘ Σ α_tᵀ w_t+1, w_t = B_x_t ∘ β_t / c_t
===========  ====================================================================================

Sequence s is `value_t[bounds_s[s] : bounds_s[s + 1]]`. What is found of a sequence depends on nothing else.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import kernel_numba
from dpvb.models.sequences.discrete_emissions import Categorical
from dpvb.models.sequences.emissions import Emissions, Values
from dpvb.models.sequences.hidden_chain import StateChain, Sums

IMPOSSIBLE: Final = -1  #: the state of a sequence that no states explain


def log_likelihood(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Log-likelihood of every sequence, (S,), in nats, at the posterior means; -inf: impossible."""
    return _forward(chain, bounds_s, value_t)[0]


def last_states(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Law of the last state of every sequence, (S, K): π where it is empty, 0 where it is impossible."""
    return _forward(chain, bounds_s, value_t)[1]


def smoothed(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Law of the state at every position, given all of its sequence, (T, K): γ; 0 where the sequence is impossible."""
    found_tk = np.zeros((len(value_t), chain.emissions.n_states))
    _expected(chain, bounds_s, value_t, np.ones(len(bounds_s) - 1), np.arange(len(value_t)), found_tk, expected=False)
    return found_tk


def most_probable(chain: StateChain, bounds_s: Ints, value_t: Values) -> Ints:
    """The most probable states of every sequence together, (T,) (Viterbi 1967); `IMPOSSIBLE` where there are none."""
    laws, (value_r, row_t) = chain.laws(expected=False), rows(chain.emissions, value_t)
    log_rk = chain.emissions.log_likelihood(value_r, expected=False)
    state_t = np.full(len(value_t), IMPOSSIBLE, np.int64)
    from_tk = np.empty((_longest(bounds_s), chain.emissions.n_states), np.int64)
    with np.errstate(divide="ignore"):
        log_start_k, log_back_kk = np.log(laws.start_k), np.log(np.ascontiguousarray(laws.step_kk.T))
    kernel_numba.best_path(bounds_s, row_t, log_rk, log_start_k, log_back_kk, from_tk, state_t)
    return state_t


def expected_counts(
    chain: StateChain, bounds_s: Ints, value_t: Values, weight_s: Floats, *, expected: bool
) -> tuple[Sums, Values, float]:
    """The E-step: weighted expected counts, the values that they are of, and the weighted log-likelihood.

    Args:
        chain: the posterior.
        bounds_s, value_t: sequences, as above.
        weight_s: how often each counts.
        expected: whether parameters are met as exp⟨log ·⟩ or at their means.
    """
    value_r, row_t = rows(chain.emissions, value_t)
    state_rk = np.zeros((len(value_r), chain.emissions.n_states))
    first_k, step_kk, log_s = _expected(chain, bounds_s, value_t, weight_s, row_t, state_rk, expected=expected)
    possible_s = np.isfinite(log_s)
    return Sums(first_k, first_k, step_kk, state_rk), value_r, float(weight_s[possible_s] @ log_s[possible_s])


def rows(emissions: Emissions, value_t: Values) -> tuple[Values, Ints]:
    """Distinct values, and the place of every position among them: of numbers, each position has its own."""
    if isinstance(emissions, Categorical):
        return np.arange(-1, len(emissions.count_vk)), np.maximum(value_t.astype(np.int64), -1) + 1
    return value_t, np.arange(len(value_t))


def table(emissions: Emissions, value_r: Values, *, expected: bool) -> tuple[Floats, Floats]:
    """Likelihoods of values under every state, (R, K), with 1 for the largest, and what was taken off their logs."""
    log_rk = emissions.log_likelihood(value_r, expected=expected)
    most_r = log_rk.max(axis=1, initial=-1e300)
    return np.exp(log_rk - most_r[:, None]), most_r


def _forward(chain: StateChain, bounds_s: Ints, value_t: Values) -> tuple[Floats, Floats]:
    laws, (value_r, row_t) = chain.laws(expected=False), rows(chain.emissions, value_t)
    likelihood_rk, log_r = table(chain.emissions, value_r, expected=False)
    num, k, longest = len(bounds_s) - 1, chain.emissions.n_states, _longest(bounds_s)
    log_s, last_sk = np.empty(num), np.empty((num, k))
    scratch = np.empty((longest, k)), np.empty(longest)
    step_kk = np.ascontiguousarray(laws.step_kk)
    kernel_numba.forward(bounds_s, row_t, likelihood_rk, laws.start_k, step_kk, *scratch, log_s, last_sk)
    return log_s + _added(log_r[row_t], bounds_s), last_sk


def _expected(
    chain: StateChain,
    bounds_s: Ints,
    value_t: Values,
    weight_s: Floats,
    place_t: Ints,
    state_rk: Floats,
    *,
    expected: bool,
) -> tuple[Floats, Floats, Floats]:
    """First states, pairs and log-likelihoods; γ is added to `state_rk` at `place_t`."""
    laws, (value_r, row_t) = chain.laws(expected=expected), rows(chain.emissions, value_t)
    likelihood_rk, log_r = table(chain.emissions, value_r, expected=expected)
    k, longest, log_s = chain.emissions.n_states, _longest(bounds_s), np.empty(len(bounds_s) - 1)
    first_k, pair_kk = np.zeros(k), np.zeros((k, k))
    forth_kk, back_kk = np.ascontiguousarray(laws.step_kk), np.ascontiguousarray(laws.step_kk.T)
    given = laws.start_k, forth_kk, back_kk, weight_s, place_t
    scratch = np.empty((longest, k)), np.empty(longest)
    kernel_numba.expected(bounds_s, row_t, likelihood_rk, *given, *scratch, log_s, first_k, pair_kk, state_rk)
    return first_k, laws.step_kk * pair_kk, log_s + _added(log_r[row_t], bounds_s)


def _longest(bounds_s: Ints) -> int:
    return int(np.diff(bounds_s).max(initial=0))


def _added(log_t: Floats, bounds_s: Ints) -> Floats:
    """Sums over the positions of each sequence, each by itself."""
    return np.asarray(np.bincount(np.repeat(np.arange(len(bounds_s) - 1), np.diff(bounds_s)), log_t, len(bounds_s) - 1))
