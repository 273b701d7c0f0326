"""A hidden Markov chain from windows: EM, or variational Bayes, on released counts of short runs of symbols.

A window of three symbols from anywhere in a sequence has the law of the chain with first state ρ. So the E-step of all
windows is a linear function of their counts, and iterations and restarts cost neither privacy nor data. Windows from
starts have the first state π, and end where a sequence does.

===================  ==============================================================================
method, M10          code
===================  ==============================================================================
n_a·, n_ab           `Windows.start_vw`: first symbols by second ones, the last column: no second one
n_abc                `Windows.pooled`, (V, V, V), or pairs (V, V)
F_ab(j)              `front`: Σ_i ρ_i B_ai A_ij B_bj
G_c(j)               `ahead_vk`: Σ_k A_jk B_ck, so that p_abc = Σ_j F_ab(j) G_c(j)
R_abc                n_abc / p_abc; 0 where p_abc = 0
===================  ==============================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import forward_backward
from dpvb.models.sequences.discrete_emissions import Categorical
from dpvb.models.sequences.emissions import Values
from dpvb.models.sequences.hidden_chain import HiddenChain, StateChain, Sums

# Below this a sum is no probability: its inverse would overflow.
_LEAST = 1e-290
# An iteration that changes the log-likelihood of a window by less is the last.
_STILL = 1e-9
# Tuned by hand on visits of pages.
_KEPT = 0.9  # of a state's first probability, on the symbol that the state is of; the rest is as all symbols are
_SPREAD = 0.3  # relative std of random factors where several states start from one symbol


@dataclass(frozen=True)
class Windows:
    """Counts of windows, nonnegative, of V values.

    Attributes:
        start_vw: first values by second ones or the end, (V, V + 1).
        pooled: pairs, (V, V), or triples, (V, V, V), from everywhere.
    """

    start_vw: Floats
    pooled: Floats

    @property
    def total(self) -> float:
        """How many windows there are."""
        return float(self.start_vw.sum() + self.pooled.sum())


Chain = TypeVar("Chain", bound=StateChain)


class Fit(NamedTuple, Generic[Chain]):
    """A posterior, and the log-likelihood of the windows, in nats a window, before its last step."""

    chain: Chain
    log: float


def from_chain(windows: Windows, tilt_kw: Floats, prior: float) -> HiddenChain:
    """A start: one state a symbol, and the chain of the windows; the states are the symbols that are seen most.

    Args:
        windows: read counts.
        tilt_kw: positive factors of the first states and of the steps from each state, (K, 1 + K), all 1 or at random.
            More states than symbols: the most frequent symbols have several, which nothing else tells apart.
        prior: of every count.
    """
    n_states, pairs_vv = len(tilt_kw), windows.pooled if windows.pooled.ndim == 2 else windows.pooled.sum(axis=2)
    seen_v = pairs_vv.sum(axis=0) + windows.start_vw.sum(axis=1) + 1e-9
    symbol_k = np.argsort(-seen_v, kind="stable")[:n_states]
    while len(symbol_k) < n_states:
        symbol_k = np.append(symbol_k, np.argmax(seen_v / np.bincount(symbol_k, minlength=len(seen_v))))
    share_k = 1.0 / np.bincount(symbol_k, minlength=len(seen_v))[symbol_k]
    number_k = seen_v[symbol_k] * share_k
    start_k = windows.start_vw.sum(axis=1)[symbol_k] * share_k * tilt_kw[:, 0]
    step_kk = pairs_vv[np.ix_(symbol_k, symbol_k)] * np.outer(share_k, share_k) * tilt_kw[:, 1:]
    shown_vk = _KEPT * (np.arange(len(seen_v))[:, None] == symbol_k) + (1 - _KEPT) * (seen_v / seen_v.sum())[:, None]
    emissions = Categorical(prior + shown_vk * number_k, prior)
    return HiddenChain(prior + start_k, prior + number_k, prior + step_kk, emissions, prior)


def tilts(rng: np.random.Generator, number: int, n_states: int) -> Floats:
    """Random factors of mean 1 for several starts, (number, K, 1 + K)."""
    return rng.gamma(_SPREAD**-2, _SPREAD**2, (number, n_states, 1 + n_states))


def step(windows: Windows, chain: Chain, value_v: Values, *, expected: bool) -> Fit[Chain]:
    """One iteration, and the windows' log-likelihood before it.

    Args:
        windows: read counts.
        chain: the posterior.
        value_v: what the V places stand for: symbols, counts, middles of cells, one after another.
        expected: whether parameters are met as exp⟨log ·⟩ (variational Bayes) or at their means (EM).
    """
    start_k, pooled_k, step_kk = chain.laws(expected=expected)
    shown_vk, log_v = forward_backward.table(chain.emissions, value_v, expected=expected)
    v = len(shown_vk)
    first, log_first = _pairs(start_k, step_kk, shown_vk, windows.start_vw)
    if windows.pooled.ndim == 2:
        rest, log_rest = _pairs(pooled_k, step_kk, shown_vk, windows.pooled)
    else:
        rest, log_rest = _triples(pooled_k, step_kk, shown_vk, windows.pooled)
    sums = Sums(
        first.first_vk.sum(axis=0),
        rest.first_vk.sum(axis=0),
        step_kk * (first.pair_kk + rest.pair_kk),
        first.shown_vk + rest.shown_vk,
    )
    seen_v = windows.start_vw.sum(axis=1) + windows.start_vw[:, :v].sum(axis=0)
    for axis in range(windows.pooled.ndim):
        seen_v = seen_v + windows.pooled.sum(axis=tuple(other for other in range(windows.pooled.ndim) if other != axis))
    log = log_first + log_rest + float(seen_v @ log_v)
    return Fit(chain.updated(sums, value_v), log / max(windows.total, 1e-300))


def fit(windows: Windows, chain: Chain, value_v: Values, *, rounds: int, expected: bool) -> Fit[Chain]:
    """The posterior after so many iterations, or fewer where they bring nothing any more."""
    found = Fit(chain, -np.inf)
    for _ in range(rounds):
        before, found = found.log, step(windows, found.chain, value_v, expected=expected)
        if abs(found.log - before) < _STILL:
            break
    return found


class _Found(NamedTuple):
    """Expected counts: of first states and their values, of pairs over A, of all states and their values."""

    first_vk: Floats
    pair_kk: Floats
    shown_vk: Floats


def _pairs(first_k: Floats, step_kk: Floats, shown_vk: Floats, number_vw: Floats) -> tuple[_Found, float]:
    v = len(shown_vk)
    front_vk, ahead_vk = first_k * shown_vk, shown_vk @ step_kk.T
    ratio_vw, log = _ratio(number_vw[:, :v], front_vk @ ahead_vk.T)
    back_vk = ratio_vw @ ahead_vk
    if number_vw.shape[1] > v:
        ratio_v1, log_end = _ratio(number_vw[:, v:], front_vk.sum(axis=1, keepdims=True))
        back_vk, log = back_vk + ratio_v1, log + log_end
    to_vk = ratio_vw.T @ front_vk
    first_vk = front_vk * back_vk
    return _Found(first_vk, to_vk.T @ shown_vk, first_vk + shown_vk * (to_vk @ step_kk)), log


def _triples(first_k: Floats, step_kk: Floats, shown_vk: Floats, number_abc: Floats) -> tuple[_Found, float]:
    v, k = shown_vk.shape
    first_vk, ahead_vk = first_k * shown_vk, shown_vk @ step_kk.T
    front_abk = (first_vk @ step_kk)[:, None, :] * shown_vk
    flat_pk = front_abk.reshape(v * v, k)
    ratio_pc, log = _ratio(number_abc.reshape(v * v, v), flat_pk @ ahead_vk.T)
    back_abk = (ratio_pc @ ahead_vk).reshape(v, v, k)
    to_vk = ratio_pc.T @ flat_pk
    middle_vk = np.einsum("abk,bk->ak", back_abk, shown_vk)
    begin_vk = first_vk * (middle_vk @ step_kk.T)
    seen_vk = begin_vk + np.einsum("abk,abk->bk", front_abk, back_abk) + shown_vk * (to_vk @ step_kk)
    return _Found(begin_vk, first_vk.T @ middle_vk + to_vk.T @ shown_vk, seen_vk), log


def _ratio(number: Floats, probability: Floats) -> tuple[Floats, float]:
    """n/p, 0 where a window is impossible, and Σ n log p over the others."""
    possible = probability > _LEAST
    log = np.log(probability, out=np.zeros_like(probability), where=possible)
    return np.divide(number, probability, out=np.zeros_like(probability), where=possible), float((number * log).sum())
