"""Linear dynamical systems of numbers: scales, then second moments of windows, each released once; then the posterior.

    z_1 ~ N(m_0, P_0),   z_t+1 = A z_t + N(0, Q),   x_t = C z_t + d + N(0, diag R)        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
D, K, W, L          n_features, n_states, window; max_length: the first L points of each sequence count
block "points"      mean of p pᵀ over a person's points, p = (x, c_0): norm ≤ 1 + c_0², as ‖x‖ ≤ 1
block "cells"       mean over a person's numbers of the cell each is in, by column; norm ≤ 1/√D, if none is missing
block "lengths"     mean over a person's sequences of the power of two that its number of windows is in; norm ≤ 1
m, s                q.mean_d, q.scale_d: mean and standard deviation of each number, see `numeric_scales`
y                   W points (x - m)/s in a row, over √(D W), and c behind them: ‖y‖² is 1 + c² on average
block "windows"     mean of y yᵀ over a person's windows; norm ≤ max ‖y‖², clipped to C
block "starts"      the same of first windows, for L > W; with L = W all windows are first ones
C                   clip; c_0, c: _POINT, _WINDOW
A, Q, C, d, R       q.system, see `kalman`, for (x - m)/s; q.drawn_sp: systems of its posterior, see `gram_posterior`
==================  =============================================================================

For L = W the moments are all that data say; for longer sequences a window's first state has a law of its own. Steps of
EM on private data make a good fit worse. A window with a number missing counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models.sequences import drawn_windows, gram_fit, kalman, numeric_scales
from dpvb.models.sequences.counts import Coded, WindowCounts
from dpvb.models.sequences.gram_fit import Grams
from dpvb.models.sequences.gram_weights import Moments, Shape
from dpvb.models.sequences.grams import WindowGrams
from dpvb.models.sequences.linear_posterior import LinearPosterior
from dpvb.models.sequences.numeric_scales import Scales
from dpvb.models.sequences.rows import NumberRows
from dpvb.models.sequences.unclipped import unclipped_posterior

# Constants behind a point and behind a window: a larger one is a better mean, and more noise elsewhere.
_POINT, _WINDOW = 0.6, 0.3
# Part of the budget for the scales, and weights of the blocks of the first release and of the second one.
_SCALES, _POINTS, _CELLS, _LENGTHS = 0.1, 0.5, 0.6, 0.1
_STARTS, _WINDOWS = 0.55, 0.84
# Eigenvalues of moments are read as at least so much of the noise.
_LEAST_NOISE = 0.5
# Iterations of EM, and the largest number of columns of a matrix of moments.
_ROUNDS, _MOST = 300, 513
# Systems that are drawn from the posterior; entries that the derivatives of all moments may have.
_DRAWS, _ENTRIES = 200, 2**25


@dataclass(frozen=True)
class LinearDynamical:
    """The model; every field is public.

    Attributes:
        n_features, n_states: D and K.
        window: W.
        clip: C, in units of what windows of average length add.
        max_length: L.
        reach: norm of a point in the units of the reader.
        estimate: "posterior", or "mode" (EM), the most likely system alone.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    n_states: int
    window: int = 6
    clip: float = 0.75
    max_length: int = 50
    reach: float = 1.0
    estimate: str = "posterior"

    def __post_init__(self) -> None:
        d, k = check_integer("n_features", self.n_features, low=1), check_integer("n_states", self.n_states, low=1)
        check_integer("window", self.window, low=2, high=10**4)
        if self.width > _MOST:
            raise ParameterError(
                f"window must be at most {(_MOST - 1) // d} with {d} columns, got {self.window}: the square of their "
                "product is released. Take shorter windows, or fewer columns."
            )
        if k > (most := (self.window - 1) * d):
            raise ParameterError(f"n_states must be at most {most} with window={self.window}, got {k}.")
        check_integer("max_length", self.max_length, low=self.window, high=10**6)
        check_number("clip", self.clip, low=1e-3, high=1e9)
        check_choice("estimate", self.estimate, ("posterior", "mode"))
        if self.estimate == "posterior" and self.shape.size * self.width**2 > _ENTRIES:
            raise ParameterError(
                f"estimate must be 'mode' with {d} columns, window={self.window} and n_states={k}: a posterior of "
                f"{self.shape.size} numbers given {self.width**2} moments needs too much memory. Or shorten the window."
            )

    @property
    def _starts(self) -> bool:
        """Whether first windows are others than those from everywhere."""
        return self.max_length > self.window

    @property
    def shape(self) -> Shape:
        """Sizes of the system and of its windows."""
        unit_e = np.append(np.full(self.width - 1, math.sqrt(self.width - 1)), 1.0 / _WINDOW)
        return Shape(self.n_states, self.n_features, self.window, self.max_length, self._starts, unit_e)

    @property
    def width(self) -> int:
        """Numbers of a window, and one."""
        return self.window * self.n_features + 1

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Points, and windows from everywhere and from starts."""
        d, bound = self.n_features, self.clip * (1.0 + _WINDOW**2)
        first = {
            "points": Block((d + 1, d + 1), 1.0 + _POINT**2, "psd", phase="first", weight=_POINTS),
            "cells": Block((d * numeric_scales.CELLS,), d**-0.5, "nonnegative", phase="first", weight=_CELLS),
            "lengths": Block((self._lengths,), 1.0, "nonnegative", phase="first", weight=_LENGTHS),
        }
        windows = Block((self.width, self.width), bound, "psd", phase="second", weight=_WINDOWS)
        return {**first, "windows": windows} | ({"starts": replace(windows, weight=_STARTS)} if self._starts else {})

    @property
    def _lengths(self) -> int:
        return drawn_windows.num_places(self.window, self.max_length)

    @property
    def schedule(self) -> Schedule:
        """No steps; parts of what is spent at all are relative to each other."""
        return Schedule((), {"first": _SCALES / 2, "second": (1.0 - _SCALES) / 2})

    def init(self, rng: np.random.Generator) -> LinearPosterior:
        """Nothing is known, and nothing is drawn."""
        zero_ee, grams = np.zeros((self.width, self.width)), Grams(np.eye(self.width))
        system = gram_fit.from_directions(grams, self.n_states, self.n_features)
        drawn_sp = np.zeros((_DRAWS if self.estimate == "posterior" else 0, self.shape.size))
        law, share_l = (np.zeros(self.n_features), np.ones(self.n_features)), np.zeros(self._lengths)
        return LinearPosterior(*law, system, zero_ee, zero_ee, share_l, drawn_sp)

    def e_step(self, q: LinearPosterior, batch: NumberRows, blocks: Mapping[str, Block]) -> Contributions:
        """Moments of points and where they are, or moments of windows in the scales that were released."""
        d, x_td = self.n_features, np.ascontiguousarray(batch.value_td / self.reach)
        if "points" in blocks:
            cells = Coded(batch.indptr * d, numeric_scales.codes(batch.value_td))
            every = np.arange(len(batch.indptr), dtype=batch.indptr.dtype)
            lengths = Coded(every, drawn_windows.places(np.diff(batch.indptr), self.window, self.max_length))
            return {
                "points": WindowGrams(batch.indptr, x_td, 1, self.max_length, _POINT),
                "cells": WindowCounts(cells, 1, d * numeric_scales.CELLS, self.max_length * d, 0.0),
                "lengths": WindowCounts(lengths, 1, self._lengths, 1, 0.0),
            }
        with np.errstate(over="ignore", invalid="ignore"):
            x_td = (x_td - q.mean_d) / (q.scale_d * math.sqrt(self.width - 1))
        made = WindowGrams(batch.indptr, x_td, self.window, self.max_length, _WINDOW)
        return {name: replace(made, starts=name == "starts") for name in blocks}

    def m_step(self, s: Estimate, q: LinearPosterior) -> LinearPosterior:
        """The scales; then the moments, and the systems that they speak for."""
        if "windows" not in s.names:
            return self._scales(s, q)
        pooled, pooled_std, start, start_std = s.read("windows"), s.noise_std("windows"), q.start, 0.0
        if self._starts:
            start, start_std = s.read("starts"), s.noise_std("starts")
        q = replace(q, pooled=pooled, start=start, pooled_std=pooled_std, start_std=start_std)
        found = gram_fit.best(self.grams(q), self.n_states, self.n_features, rounds=_ROUNDS)
        q = replace(q, system=kalman.in_order(found.system))
        if self.estimate == "mode":
            return q
        blocks = [Moments("pooled", q.pooled, pooled_std), Moments("start", start, start_std)][: 1 + self._starts]
        given = q.share_l, self.blocks["windows"].bound, len(q.drawn_sp)
        return replace(q, **unclipped_posterior(blocks, self.shape, q.system, *given))

    def _scales(self, s: Estimate, q: LinearPosterior) -> LinearPosterior:
        """Scales from moments and cells, and the shares of the lengths."""
        gram, sd, d = s.read("points"), s.noise_std("points"), self.n_features
        count = max(float(gram[-1, -1]), sd, 1e-9) / _POINT**2
        moments = Scales.of(gram, count, sd, _POINT)
        cells = Scales.of_cells(d * s.read("cells").reshape(d, -1), d * s.noise_std("cells")).over(self.reach)
        mean_d, scale_d = moments.beside(cells)
        share_l = drawn_windows.shares(s.read("lengths"), s.noise_std("lengths"))
        return replace(q, mean_d=mean_d, scale_d=scale_d, count=count, share_l=share_l)

    def grams(self, q: LinearPosterior) -> Grams:
        """The released moments, of (x - m)/s and of one, as they are read from noise."""
        read = partial(gram_fit.in_units, unit_e=self.shape.unit_e, least=_LEAST_NOISE)
        return Grams(read(q.pooled, q.pooled_std), read(q.start, q.start_std) if self._starts else None)

    def score(self, q: LinearPosterior, rows: NumberRows) -> Floats:
        """Log-density of each sequence in the units of the reader, (n,), in nats, each by itself."""
        log_n = np.zeros(len(rows.indptr) - 1)
        scale_d = q.scale_d * self.reach
        x_td = (rows.value_td - q.mean_d * self.reach) / scale_d
        for own, x_ntd in kalman.in_blocks(rows.indptr, x_td):
            seen_nd = np.count_nonzero(~np.isnan(x_ntd), axis=1)
            log_n[own] = kalman.filtered(q.system, x_ntd).log_n - np.add.reduce(seen_nd * np.log(scale_d), axis=1)
        return log_n
