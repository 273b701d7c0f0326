"""The E-step of a hidden Markov model over whole sequences, as textbooks have it: the sums of the compiled passes."""

from __future__ import annotations

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import passes
from dpvb.models.sequences.emissions import Values
from dpvb.models.sequences.hidden_chain import StateChain, Sums


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
    log_s, _ = passes._forward(chain, bounds_s, value_t, expected=expected)
    gamma_tk, step_kk = passes._passed(chain, bounds_s, value_t, weight_s, expected=expected)
    value_r, row_t = passes.distinct(chain.emissions, value_t)
    state_rk = np.zeros((len(value_r), chain.emissions.n_states))
    for k, gamma_t in enumerate(gamma_tk.T):
        state_rk[:, k] = np.bincount(row_t, gamma_t, len(value_r))
    first_k = gamma_tk[bounds_s[:-1][np.diff(bounds_s) > 0]].sum(axis=0)
    possible_s = np.isfinite(log_s)
    return Sums(first_k, first_k, step_kk, state_rk), value_r, float(weight_s[possible_s] @ log_s[possible_s])
