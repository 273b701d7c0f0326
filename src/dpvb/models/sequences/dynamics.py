"""What a chain does in the long run; all of it is public.

A law is P(b | a), (V, V), or P(c | a, b), (V, V, V). Its state is the law of the last symbols, (V,) or (V, V).
"""

from __future__ import annotations

import numpy as np

from dpvb.guards.arrays import Floats, Ints


def advanced(state: Floats, law: Floats) -> Floats:
    """The state one step later."""
    return np.asarray((state[..., None] * law).sum(axis=0) if law.ndim > 2 else state @ law)


def stationary(law: Floats) -> Floats:
    """The state that a step does not change, from π(I - P) = 0 and Σ π = 1."""
    v, order = len(law), law.ndim - 1
    size = v**order
    step = law if order == 1 else (np.eye(v)[None, :, :, None] * law[:, :, None, :]).reshape(size, size)
    state = np.linalg.solve((np.eye(size) - step).T + 1.0 / size, np.full(size, 1.0 / size))
    state = np.maximum(state, 0.0)
    return np.asarray((state / state.sum()).reshape((v,) * order))


def symbol_shares(law: Floats) -> Floats:
    """Shares of the symbols in the long run, (V,)."""
    state = stationary(law)
    return np.asarray(state.reshape(len(state), -1).sum(axis=1))


def durations(law: Floats) -> Floats:
    """Expected number of times that a symbol comes in a row, (V,): its share over the share of its arrivals."""
    state = stationary(law)
    pairs_vv = state if law.ndim > 2 else state[:, None] * law
    shares_v = pairs_vv.sum(axis=0)
    arrivals_v = shares_v - np.diagonal(pairs_vv)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(shares_v > 0, shares_v / np.maximum(arrivals_v, 0.0), 0.0))


def shown(state_nt: Ints, shown_kv: Floats, rng: np.random.Generator) -> Ints:
    """What hidden states show, as codes, (n, length); laws of the states in rows."""
    upto_kv, code_nt = np.cumsum(shown_kv, axis=1), np.empty_like(state_nt)
    for k, upto_v in enumerate(upto_kv):
        own = state_nt == k
        code_nt[own] = np.searchsorted(upto_v / upto_v[-1], rng.random(np.count_nonzero(own)), side="right")
    return code_nt


def drawn(initial_v: Floats, laws: list[Floats], n: int, length: int, rng: np.random.Generator) -> Ints:
    """Sequences of nobody as codes, (n, length).

    Args:
        initial_v: law of the first symbol.
        laws: that of the second, of the third and all that follow, as far as the chain's order goes.
    """
    code_nt = np.empty((n, length), dtype=np.int64)
    for t in range(length):
        law = initial_v if t == 0 else laws[min(t, len(laws)) - 1]
        ends = np.cumsum(law, axis=-1)
        own = ends[tuple(code_nt[:, t - back] for back in range(law.ndim - 1, 0, -1))]
        code_nt[:, t] = np.minimum((rng.random(n)[:, None] >= own).sum(axis=-1), len(law) - 1)
    return code_nt
