"""What the symbols of windows stand for: themselves, counts, or patterns of bits; all of it is public but sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import ParameterError
from dpvb.models.sequences.counts import Coded, SequenceRows
from dpvb.models.sequences.discrete_emissions import Bernoulli, Categorical
from dpvb.models.sequences.emissions import Emissions, Values
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.numeric_emissions import Poisson

KINDS: Final = ("categorical", "poisson", "bernoulli")


@dataclass(frozen=True)
class Alphabet:
    """V symbols.

    Attributes:
        kind: "categorical"; "poisson", the counts 0 to V - 1, the last one or more; "bernoulli", the patterns of bits.
        n_symbols: V; 2^D for bits.

    Raises:
        ParameterError: for patterns of another number.
    """

    kind: str
    n_symbols: int

    def __post_init__(self) -> None:
        if self.kind == "bernoulli" and self.n_symbols & (self.n_symbols - 1):
            raise ParameterError(f"n_symbols must be a power of 2 for bits, got {self.n_symbols}.")

    @property
    def value_v(self) -> Values:
        """What each symbol stands for."""
        return self.meant(np.arange(self.n_symbols))

    def meant(self, code_t: Ints) -> Values:
        """What codes stand for, those below 0 for gaps as the emissions have them."""
        if self.kind == "categorical":
            return code_t
        value_td = code_t[:, None].astype(np.float64)
        if self.kind == "bernoulli":
            value_td = ((code_t[:, None] >> np.arange(self.n_symbols.bit_length() - 1)[::-1]) & 1).astype(np.float64)
        return np.where(code_t[:, None] < 0, np.nan, value_td)

    def values(self, rows: Any) -> Values:
        """What private or public sequences show."""
        if self.kind == "bernoulli":
            return _bits(rows.value_td)
        code_t = rows.code.astype(np.int64)
        return self.meant(np.where((code_t >= 0) & (code_t < self.n_symbols), code_t, -1))

    def coded(self, rows: Any) -> SequenceRows:
        """Sequences of symbols; a point that lacks a bit is a gap."""
        if self.kind != "bernoulli":
            return rows  # type: ignore[no-any-return]
        bit_td = _bits(rows.value_td)
        code_t = np.nan_to_num(bit_td).astype(np.int64) @ (1 << np.arange(bit_td.shape[1])[::-1])
        return Coded(rows.indptr, np.where(np.isnan(bit_td).any(axis=1), -1, code_t))

    def started(self, chain: HiddenChain) -> Emissions:
        """The emissions of a start, from those of symbols."""
        assert isinstance(chain.emissions, Categorical)
        if self.kind == "categorical":
            return chain.emissions
        one_dk = np.ones((self.value_v.shape[1], len(chain.start_k)))
        bernoulli = self.kind == "bernoulli"
        like: Emissions = Bernoulli(one_dk, one_dk) if bernoulli else Poisson(one_dk, one_dk, self.n_symbols - 1)
        return like.updated(self.value_v, chain.emissions.count_vk)


def _bits(value_td: Floats) -> Floats:
    """Points of bits, with NaN for what is neither 0 nor 1."""
    return np.where((value_td == 0) | (value_td == 1), value_td, np.nan)
