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
p, C                power, clip
T_abc, T_ab         counts_w: the block as it is read from noise
P(c | a, b)         (T_abc + α P(c | b)) / (Σ_c T_abc + α), P(b | a) = (T_ab + α P(b)) / (Σ_b T_ab + α)
α                   prior_weight
estimate            "posterior": these means; "mode": where the Dirichlet of each row is highest, less 1 in each count
==================  =============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.sequences import reading, settings
from dpvb.models.sequences.counts import SequenceRows, WindowCounts
from dpvb.models.sequences.window_fit import Windows

# Most symbols of a chain of each order: a block has V^(order + 1) entries.
_MOST_SYMBOLS = {1: 1000, 2: 40}
# Weights of the blocks in the noise: few numbers say where sequences begin.
_FIRST, _WINDOWS = 0.3, 0.95


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
class MarkovChain:
    """The model; every field is public.

    Attributes:
        n_symbols: V.
        order: symbols on which the next one depends, 1 or 2.
        power: p in [0.5, 1], how much persons with many windows weigh: each window of a person counts M^(p-1).
        clip: C; None: what one sequence of max_length symbols can reach, so that no such person is shortened.
        max_length: L.
        prior_weight: α, weight of the chain of lower order; 0: none.
        estimate: "posterior" or "mode".

    Raises:
        ParameterError: for a field outside its range.
    """

    n_symbols: int
    order: int = 1
    power: float = 0.5
    clip: float | None = 1.5
    max_length: int = 20
    prior_weight: float = 10.0
    estimate: str = "posterior"

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
        settings.check_windows(self, self.order + 1)

    @property
    def bound(self) -> float:
        """C."""
        return settings.bound(self, self.order + 1)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """First symbols, and windows of order + 1 of them; both are released once."""
        v, name = self.n_symbols, "pairs" if self.order == 1 else "windows"
        first = Block((v,), 1.0, "nonnegative", phase="first", weight=_FIRST)
        return {
            "first": first,
            name: Block((v,) * (self.order + 1), self.bound, "nonnegative", phase="first", weight=_WINDOWS),
        }

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> Chain:
        """All symbols alike; nothing is drawn."""
        v = self.n_symbols
        return Chain(np.ones(v), np.zeros((v, v)), np.zeros((v,) * (self.order + 1)))

    def e_step(self, q: Chain, batch: SequenceRows, blocks: Mapping[str, Block]) -> Contributions:
        """Counts of windows, whatever q is."""
        made = {
            "first": WindowCounts(batch, 1, self.n_symbols, 1, 0.0),
            "": WindowCounts(batch, self.order + 1, self.n_symbols, self.max_length, self.power),
        }
        return {name: made["first" if name == "first" else ""] for name in blocks}

    def m_step(self, s: Estimate, q: Chain) -> Chain:
        """What was released, read once."""
        name = "pairs" if self.order == 1 else "windows"
        first_v, counts = s.read("first"), s.read(name)
        first_std, std = s.noise_std("first"), s.noise_std(name)
        first_v, pairs = reading.totals(first_v, first_std), None
        if self.order == 1:
            return Chain(first_v, pairs := reading.pairs(counts, std), pairs, first_std, std)
        return Chain(first_v, *reading.windows(counts, std), first_std, std)

    def initial(self, q: Chain) -> Floats:
        """P(a), (V,)."""
        return np.asarray(q.first_v / q.first_v.sum())

    def law(self, q: Chain, order: int | None = None) -> Floats:
        """P(b | a), (V, V), or P(c | a, b), (V, V, V); rows sum to 1.

        Args:
            order: 1 for the pairs alone of a chain of order 2; None: the chain's own.
        """
        symbol_v = q.pairs_vv.sum(axis=0) + q.pairs_vv.sum(axis=1) + 1e-9 * q.first_v
        pair_vv = self._mixed(q.pairs_vv, symbol_v / symbol_v.sum())
        return pair_vv if 1 in (self.order, order) else self._mixed(q.windows, pair_vv)

    def released(self, q: Chain) -> Windows:
        """First symbols and windows, for whatever else is fitted to them."""
        # Of a sequence's second symbol the windows tell: here each ends with its first one.
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

    def _mixed(self, counts: Floats, lower: Floats) -> Floats:
        """Conditional probabilities from counts and a chain of lower order, which has so much weight."""
        weight = max(self.prior_weight, 1e-9 * float(counts.max(initial=0.0)), 1e-250)
        alpha = counts + weight * lower
        if self.estimate == "mode":
            # Nothing is impossible, so that there is one long run; a row of counts below 1 keeps its mean.
            alpha = np.maximum(alpha - 1.0, 1e-9 * alpha)
        return np.asarray(alpha / alpha.sum(axis=-1, keepdims=True))
