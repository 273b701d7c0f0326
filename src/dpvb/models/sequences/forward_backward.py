"""Passes over whole sequences: likelihood, laws of states, most probable states, expected counts.

===========  ====================================================================================
paper        code
===========  ====================================================================================
α_t, c_t     `alpha_tkn`, 1 / `scale_tn` of the compiled loops: α_t sums to 1, c_t is what it summed to
β_t          `beta_kn` there, over Π c
γ_t, ξ_t     laws of z_t and of (z_t, z_t+1): Σ_t ξ_t = A ∘ Σ α_tᵀ w_t+1, w_t = B_x_t ∘ β_t / c_t, `ahead_2kn`
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
from dpvb.models.sequences.hidden_chain import Laws, StateChain, Sums

IMPOSSIBLE: Final = -1  #: the state of a sequence that no states explain


def log_likelihood(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Log-likelihood of every sequence, (S,), in nats, at the posterior means; -inf: impossible."""
    return _forward(chain, bounds_s, value_t, expected=False)[0]


def last_states(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Law of the last state of every sequence, (S, K): π where it is empty, 0 where it is impossible."""
    return _forward(chain, bounds_s, value_t, expected=False)[1]


def smoothed(chain: StateChain, bounds_s: Ints, value_t: Values) -> Floats:
    """Law of the state at every position, given all of its sequence, (T, K): γ; 0 where the sequence is impossible."""
    return _passed(chain, bounds_s, value_t, np.ones(len(bounds_s) - 1), expected=False)[0]


def most_probable(chain: StateChain, bounds_s: Ints, value_t: Values) -> Ints:
    """The most probable states of every sequence together, (T,) (Viterbi 1967); `IMPOSSIBLE` where there are none."""
    laws, (value_r, row_t) = chain.laws(expected=False), rows(chain.emissions, value_t)
    log_rk = chain.emissions.log_likelihood(value_r, expected=False)
    state_t = np.full(len(value_t), IMPOSSIBLE, np.int64)
    from_tk = np.empty((int(np.diff(bounds_s).max(initial=0)), chain.emissions.n_states), np.int64)
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
    log_s, _ = _forward(chain, bounds_s, value_t, expected=expected)
    gamma_tk, step_kk = _passed(chain, bounds_s, value_t, weight_s, expected=expected)
    value_r, row_t = rows(chain.emissions, value_t)
    state_rk = np.zeros((len(value_r), chain.emissions.n_states))
    for k, gamma_t in enumerate(gamma_tk.T):
        state_rk[:, k] = np.bincount(row_t, gamma_t, len(value_r))
    first_k = gamma_tk[bounds_s[:-1][np.diff(bounds_s) > 0]].sum(axis=0)
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


def _forward(chain: StateChain, bounds_s: Ints, value_t: Values, *, expected: bool) -> tuple[Floats, Floats]:
    """Log-likelihoods, and laws of last states."""
    laws, given, log_t = _met(chain, bounds_s, value_t, expected=expected)
    log_s, last_sk = np.zeros(len(bounds_s) - 1), np.tile(laws.start_k, (len(bounds_s) - 1, 1))
    kernel_numba.forward(*given, laws.start_k, np.ascontiguousarray(laws.step_kk.T), log_s, last_sk)
    return log_s + _added(log_t, bounds_s), last_sk


def _passed(
    chain: StateChain, bounds_s: Ints, value_t: Values, weight_s: Floats, *, expected: bool
) -> tuple[Floats, Floats]:
    """Weighted laws of the state at every position, (T, K), and the sum of those of pairs, (K, K)."""
    laws, given, _ = _met(chain, bounds_s, value_t, expected=expected)
    k, num, step_kk = chain.emissions.n_states, len(bounds_s) - 1, np.ascontiguousarray(laws.step_kk)
    gamma_tk, pair_ukk = np.zeros((len(value_t), k)), np.zeros((1, k, k))
    each = weight_s, np.zeros(num, np.int64), gamma_tk, pair_ukk, np.zeros(num, np.bool_)
    kernel_numba.passes(*given, laws.start_k, step_kk, np.ascontiguousarray(step_kk.T), *each)
    return gamma_tk, pair_ukk[0]


def _met(
    chain: StateChain, bounds_s: Ints, value_t: Values, *, expected: bool
) -> tuple[Laws, tuple[Ints, Ints, Ints, Floats], Floats]:
    """Laws, what the compiled loops are given of sequences, and what was taken off the logarithms at every position."""
    value_r, row_t = rows(chain.emissions, value_t)
    likelihood_rk, log_r = table(chain.emissions, value_r, expected=expected)
    order_s = kernel_numba.longest_first(bounds_s, np.ones(len(bounds_s) - 1, np.bool_))
    return chain.laws(expected=expected), (order_s, bounds_s, row_t, likelihood_rk), log_r[row_t]


def _added(log_t: Floats, bounds_s: Ints) -> Floats:
    """Sums over the positions of each sequence, each by itself."""
    return np.asarray(np.bincount(np.repeat(np.arange(len(bounds_s) - 1), np.diff(bounds_s)), log_t, len(bounds_s) - 1))
