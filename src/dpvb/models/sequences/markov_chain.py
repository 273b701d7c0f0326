"""Markov chains of order 1 and 2 over public symbols: one release of windows, then post-processing.

    x_1 ~ P(a),   x_2 ~ P(b | a),   x_t ~ P(x_t | x_t-1) or P(x_t | x_t-2, x_t-1)        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
V, L                n_symbols; max_length: the first L symbols of each sequence count
M                   windows of order + 1 symbols in all sequences of a person
block "first"       Σ e_{x_1} / m over a person's m sequences; norm ≤ 1, never clipped
block "pairs"       M^(p-1) Σ e_{x_t} ⊗ e_{x_t+1}; norm ≤ M^p, attained by a constant sequence
block "windows"     the same of three symbols, for order 2; the pairs are its margins
p, C                power, clip_norm
T_abc, T_ab         counts_w: the block as it is denoised
P(c | a, b)         (T_abc + α P(c | b)) / (Σ_c T_abc + α), P(b | a) = (T_ab + α P(b)) / (Σ_b T_ab + α)
α                   prior_weight
estimate            "posterior": these means; "map": the mode of each row's Dirichlet, less 1 in each count
==================  =============================================================================

Standard errors are by the delta method (equation 2 of docs/theory/markov-chains.md), of the sample and of the privacy
noise. A row of counts T_b with total R gives P_b = (T_b + α m_b) / (R + α). The noise, of std σ on each of V counts,
adds

    Var P_b = σ² (1 - 2 P_b + V P_b²) / (R + α)²,

and the sample adds P_b (1 - P_b) w / (R + α), with w = Σ M^(2p-1) / Σ M^p over persons of M windows each, as each
window counts M^(p-1). Σ M^p is the block's total S. Σ M^(2p-1) is N (S/N)^((2p-1)/p), N the released number of persons:
exact for p = 1/2 and p = 1, and where all persons have the same M; otherwise too much. Lengths are assumed independent
of symbols, and no person to be clipped.

If many people are clipped, the clip leaves κ_b of a window on average: T_b / κ_b replaces T_b, σ / κ_b replaces σ, and
the sample varies like people who are drawn from the chain and clipped (`dynamics`).

Before a fit, `expected_deviation` gives the standard error of a transition probability from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import NamedTuple

import numpy as np

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.sequences import dynamics
from dpvb.models.sequences.dynamics import DrawnPeople, draw_people
from dpvb.models.sequences.windows import (
    WindowCounts,
    WindowModel,
    Windows,
    denoised_pairs,
    denoised_totals,
    denoised_triples,
)
from dpvb.rows import SequenceRows

# Most symbols of a chain of each order: a block has V^(order + 1) entries.
_MOST_SYMBOLS = {1: 1000, 2: 40}
# Weights of the blocks in the noise: few numbers say where sequences begin.
_FIRST, _WINDOWS = 0.3, 0.95
# How often people are drawn and the counts are corrected.
_DRAWN = 3
# Least share of a change that is taken to be seen through the clip.
_LEAST_SEEN = 0.2


@dataclass(frozen=True)
class Chain:
    """q: what was released, as it is read.

    Attributes:
        first_v: weight of the sequences that begin with each symbol.
        pairs_vv: weight of the pairs.
        windows: weight of the windows: the pairs again, or (V, V, V).
        first_std, windows_std: noise std of a number in the blocks; 0 before the release.
    """

    first_v: Positives
    pairs_vv: Nonnegatives
    windows: Nonnegatives
    first_std: Nonnegative = 0.0
    windows_std: Nonnegative = 0.0


@dataclass(frozen=True)
class MarkovChainModel(WindowModel, Model[Chain, SequenceRows]):
    """The model; every field is public. `WindowModel` describes the other fields.

    Attributes:
        n_symbols: V.
        order: number of symbols on which the next one depends, 1 or 2.
        prior_weight: α, weight of the chain of lower order; 0: none.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_symbols: int
    order: int = 1
    _: KW_ONLY
    power: float = 0.5
    clip_norm: float | None = 1.5
    prior_weight: float = 10.0

    def __post_init__(self) -> None:
        check_integer("order", self.order, low=1, high=2)
        most = _MOST_SYMBOLS[self.order]
        if check_integer("n_symbols", self.n_symbols, low=2) > most:
            way_out = "; order=1 takes up to 1,000" if self.order == 2 else ""
            raise ParameterError(
                f"symbols must be at most {most} for a chain of order {self.order}, got {self.n_symbols}: its block "
                f"has a number for each window. Join symbols that are alike{way_out}."
            )
        check_number("prior_weight", self.prior_weight, low=0, high=1e9)
        super().__post_init__()

    @property
    def length(self) -> int:
        """Return the number of symbols of a window."""
        return self.order + 1

    @property
    def blocks(self) -> Mapping[str, Block]:
        """First symbols, and windows of order + 1 of them; both are released once."""
        v, name = self.n_symbols, "pairs" if self.order == 1 else "windows"
        first = Block((v,), 1.0, "nonnegative", phase="first", weight=_FIRST)
        return {
            "first": first,
            name: Block((v,) * self.length, self.bound, "nonnegative", phase="first", weight=_WINDOWS),
        }

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> Chain:
        """All symbols alike; nothing is drawn."""
        v = self.n_symbols
        return Chain(np.ones(v), np.zeros((v, v)), np.zeros((v,) * self.length))

    def e_step(self, q: Chain, batch: SequenceRows, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of windows, whatever q is."""
        counts = {
            "first": WindowCounts(batch, 1, self.n_symbols, 1, 0.0),
            "": WindowCounts(batch, self.length, self.n_symbols, self.max_length, self.power),
        }
        return {name: counts["first" if name == "first" else ""] for name in blocks}

    def started(self, s: Estimate, q: Chain) -> Chain:
        """The releases, denoised once."""
        name = "pairs" if self.order == 1 else "windows"
        first_v, counts = s.noisy("first"), s.noisy(name)
        first_std, std = s.noise_std("first"), s.noise_std(name)
        first_v, pairs = denoised_totals(first_v, first_std), None
        if self.order == 1:
            return Chain(first_v, pairs := denoised_pairs(counts, std), pairs, first_std, std)
        return Chain(first_v, *denoised_triples(counts, std), first_std, std)

    def initial(self, q: Chain) -> Floats:
        """P(a), (V,)."""
        return np.asarray(q.first_v / q.first_v.sum())

    def law(self, q: Chain, order: int | None = None) -> Floats:
        """P(b | a), (V, V), or P(c | a, b), (V, V, V); rows sum to 1.

        Args:
            order: 1 for only the pairs of a chain of order 2; None: the chain's own.
        """
        symbol_v = q.pairs_vv.sum(axis=0) + q.pairs_vv.sum(axis=1) + 1e-9 * q.first_v
        pair_vv = self._mixed(q.pairs_vv, symbol_v / symbol_v.sum())
        return pair_vv if 1 in (self.order, order) else self._mixed(q.windows, pair_vv)

    def released(self, q: Chain) -> Windows:
        """First symbols and windows, for whatever else is fitted to them."""
        # The windows show a sequence's second symbol: here each ends with its first one.
        return Windows(np.hstack([np.zeros_like(q.pairs_vv), q.first_v[:, None]]), q.windows)

    def score(self, q: Chain, rows: SequenceRows) -> Floats:
        """Log-probability of the symbols of each sequence, (n,), in nats; NaN for a sequence with a gap."""
        pair_vv, law = np.log(self.law(q, 1)), np.log(self.law(q))
        row_t = np.repeat(np.arange(len(rows.indptr) - 1), np.diff(rows.indptr))
        code_t, place_t = rows.code.astype(np.int64), np.arange(len(row_t)) - rows.indptr[row_t]
        before_t = np.roll(code_t, 1)
        found_t = np.where(place_t == 0, np.log(self.initial(q))[code_t], pair_vv[before_t, code_t])
        if self.order == 2:
            found_t = np.where(place_t < 2, found_t, law[np.roll(code_t, 2), before_t, code_t])
        found_t[code_t < 0] = np.nan
        # Added in order: the bits of a sequence are its own.
        return np.asarray(np.bincount(row_t, weights=found_t, minlength=len(rows.indptr) - 1), dtype=np.float64)

    def bias_corrected(self, q: Chain, rng: np.random.Generator, clipped: float | None = None) -> Corrected:
        """Correct each window for the clipping bias.

        Args:
            q: as fitted.
            rng: public randomness.
            clipped: share of people who were clipped, as it was released; None: it is not used.
        """
        shape, persons, corrected = q.windows.shape, max(float(q.first_v.sum()), 1.0), q
        for _ in range(_DRAWN):
            people = self._people(corrected, float(q.windows.sum()) / persons, rng, clipped)
            left = people.kept(q.windows.size).reshape(shape)
            windows = q.windows / left
            pairs_vv = windows if self.order == 1 else (windows.sum(axis=2) + windows.sum(axis=0)) / 2
            corrected = replace(q, windows=windows, pairs_vv=pairs_vv)
        return Corrected(corrected, left, people)

    def corrected_deviations(
        self, q: Chain, rng: np.random.Generator, noise_std: float, clipped: float | None = None
    ) -> Floats:
        """Standard deviations of the distribution of a chain without clipping bias.

        Args:
            q: as fitted.
            rng: public randomness.
            noise_std: σ; 0 leaves the noise out of account.
            clipped: as in `bias_corrected`.
        """
        corrected, left, people = self.bias_corrected(q, rng, clipped)
        persons = max(float(q.first_v.sum()), 1.0)
        law, total = self.law(corrected), corrected.windows.sum(axis=-1, keepdims=True) + self.prior_weight
        noise = (noise_std / left) ** 2
        noise = noise * (1 - 2 * law) + law**2 * noise.sum(axis=-1, keepdims=True)
        one_nm = people.weight_nm / left.ravel()[people.place_nm]
        sample = persons * _covariance(people, law, one_nm, one_nm)
        # A larger probability is clipped more: so much of its change is seen.
        seen = _covariance(people, law, one_nm, np.sign(one_nm)) * persons / np.maximum(law * (1 - law) * total, 1e-150)
        std = np.sqrt(np.maximum(noise + sample, 0.0)) / np.maximum(total, 1e-150)
        return np.asarray(std / np.clip(seen, _LEAST_SEEN, 1.0))

    def _people(self, q: Chain, weight: float, rng: np.random.Generator, clipped: float | None) -> DrawnPeople:
        """People of the chain, whose windows weigh so much on average."""
        laws = [self.law(q, order) for order in range(1, self.order + 1)]

        def people(number: int, length: int) -> Ints:
            return dynamics.drawn(self.initial(q), laws, number, length, rng)

        return draw_people(people, self.sizes(self.n_symbols), self.max_length, weight, rng, clipped)

    def _mixed(self, counts: Floats, lower: Floats) -> Floats:
        """Conditional probabilities from counts and a chain of lower order, which has so much weight."""
        weight = max(self.prior_weight, 1e-9 * float(counts.max(initial=0.0)), 1e-250)
        alpha = counts + weight * lower
        if self.estimate == "map":
            # Nothing is impossible, so that there is one long run; a row of counts below 1 keeps its mean.
            alpha = np.maximum(alpha - 1.0, 1e-9 * alpha)
        return np.asarray(alpha / alpha.sum(axis=-1, keepdims=True))


def window_weight(total: float, persons: float, power: float) -> float:
    """The w of the head of this file."""
    total, persons = max(total, 1e-200), max(persons, 1e-200)
    return float((total / persons) ** ((2 * power - 1) / power) * persons / total)


def deviations(law: Floats, counts: Floats, prior_weight: float, weight: float, noise_std: float) -> Floats:
    """Standard deviation of each probability of a distribution, of its shape.

    Args:
        law: conditional probabilities, (..., V).
        counts: as they were read, of the same shape.
        prior_weight: α.
        weight: w.
        noise_std: σ; 0 leaves the noise out.
    """
    total = counts.sum(axis=-1, keepdims=True) + prior_weight
    total = np.maximum(total, 1e-150)
    noise = (noise_std / total) ** 2 * (1 - 2 * law + law.shape[-1] * law**2)
    return np.asarray(np.sqrt(np.maximum(noise + law * (1 - law) * weight / total, 0.0)))


class Corrected(NamedTuple):
    """A chain without clipping bias, the share of each window after clipping, and the people who were drawn for it."""

    chain: Chain
    left: Floats
    people: DrawnPeople


def _covariance(people: DrawnPeople, law: Floats, x_nm: Floats, y_nm: Floats) -> Floats:
    """Mean product of what two weights of people's windows have above the distribution times those of their row."""
    row_nm = people.place_nm // law.shape[-1]
    like_nmm = row_nm[:, :, None] == row_nm[:, None, :]
    beside = (np.einsum("nmk,nk->nm", like_nmm, one_nm) for one_nm in (x_nm, y_nm))
    added = [
        people.same_nm * x_nm * y_nm,
        *(one_nm * of_row for one_nm, of_row in zip((y_nm, x_nm), beside, strict=True)),
    ]
    both, x_row, y_row = (people.summed(one_nm, law.size).reshape(law.shape) for one_nm in added)
    product = both - law * (x_row + y_row) + law**2 * x_row.sum(axis=-1, keepdims=True)
    return np.asarray(np.maximum(product, 0.0) / len(people.place_nm))


# Benchmark `forecasts` shows what these do. Windows of a typical person, over those of the longest sequence; share of a
# typical symbol, over that of even ones; how much harder states are to tell than symbols are.
_USUAL, _SHARE, _HIDDEN = 0.2, 0.7, 0.5


def expected_weight(n: float, longest: int, width: int, k: int, power: float, bound: float) -> float:
    """Expected weight of all windows of n persons.

    Args:
        n: number of persons.
        longest: windows of the longest sequence that counts.
        width, k: number of symbols, and how many a window has.
        power, bound: how much persons with many windows weigh, and the bound on what one adds.
    """
    m = max(_USUAL * longest, 1.0)
    length = m ** (power - 1) * math.sqrt(m + m * m / float(width) ** k)
    return float(n * m**power * min(1.0, bound / length))


def expected_deviation(
    symbols: int, order: int, weight: float, n: float, power: float, prior: float, noise: float
) -> float:
    """Standard deviation of a transition probability where all symbols are as likely.

    Args:
        symbols, order: of a chain.
        weight: of all windows.
        n: number of persons.
        power, prior: as in `MarkovChainModel`.
        noise: std of a window's weight.
    """
    law = np.full((1, symbols), 1 / symbols)
    each = window_weight(weight, n, power)
    return float(deviations(law, _SHARE * law * weight / symbols**order, prior, each, noise)[0, 0])


def expected_hidden_deviation(
    states: int, symbols: int, length: int, weight: float, n: float, power: float, noise: float
) -> float:
    """The same of states behind symbols, each of which stands for its part of them.

    Args:
        states, symbols, length: K, V, and symbols of a window.
        weight, n, power, noise: as in `expected_deviation`.
    """
    cells = symbols**length / states**2
    return _HIDDEN * expected_deviation(states, 1, weight, n, power, 0.0, noise * math.sqrt(cells))
