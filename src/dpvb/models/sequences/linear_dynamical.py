"""Linear dynamical systems of numbers: scales, then second moments of windows, each released once; then the posterior.

    z_1 ~ N(m_0, P_0),   z_t+1 = A z_t + N(0, Q),   x_t = C z_t + d + N(0, diag R)        unit: a person

==================  =============================================================================
paper               code
==================  =============================================================================
D, K, W, L          n_features, n_states, window; max_length: the first L points of each sequence count
block "points"      mean of p pᵀ over a person's points, p = (x, c_0): norm ≤ 1 + c_0², as ‖x‖ ≤ 1
block "cells"       mean over a person's numbers of the cell each is in, by column; norm ≤ 1/√D, if none is missing
block "lengths"     mean over a person's sequences of the power of two that its number of windows is in; norm ≤ 1
m, s                q.mean_d, q.scale_d: mean and standard deviation of each number, see `Scales`
y                   W points (x - m)/s in a row, over √(D W), and c behind them: ‖y‖² is 1 + c² on average
block "windows"     mean of y yᵀ over a person's windows; norm ≤ max ‖y‖², clipped to C
block "starts"      the same of first windows, for L > W; with L = W all windows are first ones
C                   clip_scale; c_0, c: _POINT, _WINDOW
A, Q, C, d, R       q.system, see `kalman`, for (x - m)/s; q.drawn_sp: systems of its posterior, `linear_posterior`
==================  =============================================================================

For L = W the moments are all that data say; for longer sequences a window's first state has a distribution of its own.
Steps of EM on private data make a good fit worse. A window with a number missing is ignored.

Scales. Moments are exact where noise is small. If a public range is much too wide, they are lost in the noise, which is
that of the range. Counts of cells of the range are not, as a person adds one to the cell where the points are, wherever
that is. A normal distribution is fitted to the counts h of a column:

    log p(h | m, s) = -|h - n φ(m, s)|² / 2σ² + const,   log s ~ N(log s_0, τ²),   m even over the range

with φ the shares of the cells. Both estimates are combined by their variances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from scipy.special import ndtr

from dpvb.core.blocks import Block, Contributions, Grid, check_shape
from dpvb.core.estimate import Estimate
from dpvb.core.model import Model, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positive, Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.sequences import kalman, linear_moments, passes_numba
from dpvb.models.sequences.kalman import LinearSystem
from dpvb.models.sequences.linear_moments import Grams
from dpvb.models.sequences.linear_posterior import (
    ReleasedMoments,
    SystemShape,
    unclipped_posterior,
)
from dpvb.models.sequences.windows import Units, WindowCounts, by_unit, each
from dpvb.rows import NumberRows, SequenceRows

# Counts below this number of noise deviations are taken to be 0.
_SEEN = 2.0
#: Cells of a column, of one width, from -1 to 1.
CELLS: Final = 128
# Deviations that are tried, in units of half the range, and the distribution of their logarithm.
_TRIED = np.geomspace(1 / 400, 1.0, 40)
_USUAL, _WIDE = 0.2, 1.0
# Least distance from a normal distribution for all columns, as a part of its deviation.
_SHAPE = 0.25
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


def length_places(length_n: Ints, window: int, longest: int) -> Ints:
    """Place of each sequence in the histogram, by how many windows it has; -1 for none."""
    number_n = np.minimum(length_n, longest) - window + 1
    return np.where(number_n < 1, -1, np.log2(np.maximum(number_n, 1)).astype(np.int64))


def num_lengths(window: int, longest: int) -> int:
    """How many lengths are told apart."""
    return int(length_places(np.array([longest]), window, longest)[0]) + 1


def length_shares(counts_l: Floats, std: float) -> Floats:
    """Shares of the lengths, from noisy counts; the shortest where noise leaves nothing."""
    seen_l = np.where(counts_l > _SEEN * std, counts_l, 0.0)
    if not seen_l.sum() > 0:
        seen_l[0] = 1.0
    return np.asarray(seen_l / seen_l.sum())


class Scales(NamedTuple):
    """Means and variances of the columns, and the noise std of both, each (D,)."""

    mean_d: Floats
    variance_d: Floats
    mean_std_d: Floats
    variance_std_d: Floats

    @classmethod
    def of(cls, gram: Floats, count: float, std: float, constant: float) -> Scales:
        """From noisy second moments of so many points with a constant behind them, within a ball of radius 1."""
        mean_d, std = gram[:-1, -1] / (constant * count), std / count
        mean_std_d = np.full(len(mean_d), std / (math.sqrt(2.0) * constant))
        variance_d = np.diagonal(gram)[:-1] / count - mean_d**2
        return cls(mean_d, variance_d, mean_std_d, np.hypot(std, 2 * np.abs(mean_d) * mean_std_d))

    def over(self, unit: float) -> Scales:
        """The same in units that are so many times as large."""
        return Scales(
            self.mean_d / unit, self.variance_d / unit**2, self.mean_std_d / unit, self.variance_std_d / unit**2
        )

    @classmethod
    def of_cells(cls, counts_dc: Floats, std: float) -> Scales:
        """The scales of columns in units of half the range.

        Args:
            counts_dc: people in each cell, (D, cells), with noise.
            std: of the noise.
        """
        ends_c = np.linspace(-1.0, 1.0, CELLS + 1)
        mean_m, log_s = np.linspace(-1.0, 1.0, 2 * CELLS + 1), np.log(_TRIED)
        upto_smc = ndtr((ends_c - mean_m[:, None]) / _TRIED[:, None, None])
        upto_smc[..., 0], upto_smc[..., -1] = 0.0, 1.0  # what is beyond the range counts in its end cells
        share_smc = np.diff(upto_smc, axis=2)
        square_sm = np.sum(share_smc**2, axis=2)
        scales = []
        for counts_c in counts_dc:
            number = max(float(counts_c.sum()), math.sqrt(CELLS) * std, 1e-9)
            log_sm = (number * (share_smc @ counts_c) - 0.5 * number**2 * square_sm) / max(std, 1e-3 * number) ** 2
            log_sm -= 0.5 * (np.log(_TRIED / _USUAL) / _WIDE)[:, None] ** 2
            share_sm = np.exp(log_sm - log_sm.max())
            share_sm /= share_sm.sum()
            share_s, share_m = share_sm.sum(axis=1), share_sm.sum(axis=0)
            mean, level = float(share_m @ mean_m), float(share_s @ log_s)
            spread = math.sqrt(float(share_s @ (log_s - level) ** 2))
            s = math.exp(level)
            mean_std = math.hypot(math.sqrt(float(share_m @ (mean_m - mean) ** 2)), _SHAPE * s)
            scales.append((mean, s * s, mean_std, 2 * s * s * math.hypot(spread, _SHAPE)))
        return cls(*np.array(scales).T)

    def beside(self, other: Scales) -> tuple[Floats, Floats]:
        """Means and deviations from two readings, of which this one is taken where it has no noise."""

        def share(one_std_d: Floats, other_std_d: Floats) -> Floats:
            return np.asarray(one_std_d**2 / np.maximum(one_std_d**2 + other_std_d**2, 1e-300))

        of_mean_d = share(self.mean_std_d, other.mean_std_d)
        of_variance_d = share(self.variance_std_d, other.variance_std_d)
        mean_d = self.mean_d + of_mean_d * (other.mean_d - self.mean_d)
        variance_d = self.variance_d + of_variance_d * (other.variance_d - self.variance_d)
        # Noise may bring a variance below zero: half of what the other reading has a part in is left.
        variance_d = np.maximum(variance_d, of_variance_d * other.variance_d / 2)
        return mean_d / max(1.0, float(np.linalg.norm(mean_d))), np.clip(np.sqrt(variance_d), 1e-12, 1.0)


def cell_codes(x_td: Floats) -> Ints:
    """Cells of all numbers of points, one column's behind another's, (points · D,); -1 for a missing number."""
    cell_td = np.clip(np.floor((np.nan_to_num(x_td) + 1.0) * (CELLS / 2)), 0, CELLS - 1).astype(np.int32)
    cell_td += np.arange(x_td.shape[1], dtype=np.int32) * CELLS
    return np.where(np.isnan(x_td), np.int32(-1), cell_td).ravel()


@dataclass(frozen=True)
class WindowGrams:
    """Statistics s_n = (1/M) Σ y yᵀ over the M windows of a unit; y is W points and a constant.

    Its terms have the norms ‖y‖², so that ‖s_n‖ ≤ max ‖y‖², which a constant sequence attains.

    Attributes:
        indptr: first point of each sequence, and the number of all.
        value_td: the points, (points, D); what is not finite is in no window.
        length: W.
        longest: points of a sequence that count.
        constant: the number behind those of a window.
        starts: whether only first windows count.
        units: order of the sequences by unit, and the first of each unit, (units + 1,); None: each is a unit.
    """

    indptr: Ints
    value_td: Floats
    length: int
    longest: int
    constant: float
    starts: bool = False
    units: Units | None = None

    def of_block(self, block: Block, num_rows: int) -> WindowGrams:
        """Itself, of the block's windows."""
        width = self.length * self.value_td.shape[1] + 1
        check_shape((len(self.indptr) - 1, width, width), num_rows, *block.shape)
        return self

    def grouped(self, unit_of_row: Ints, num_units: int) -> WindowGrams:
        """The same sequences as those of persons."""
        return replace(self, units=by_unit(unit_of_row, num_units))

    def norms(self) -> Floats:
        """Norms of the very numbers that are added; the factor covers the rounding of squares and their sum."""
        arguments = self._given
        out_u = np.empty(len(arguments[3]) - 1)
        passes_numba.gram_norms(*arguments, out_u)
        entries = (self.length * self.value_td.shape[1] + 1) ** 2
        return np.asarray(out_u * (1.0 + (entries + 16) * 2.0**-52))

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        passes_numba.add_grams(*self._given, weights, grid.step, out)

    @property
    def _given(self) -> tuple[Ints, Floats, Ints, Ints, int, int, bool, float]:
        order, first = self.units or each(self.indptr)
        return self.indptr, self.value_td, order, first, self.length, self.longest, self.starts, self.constant


@dataclass(frozen=True)
class LinearPosterior:
    """q: the system, and what was released, as it came.

    Attributes:
        mean_d, scale_d: m and s, in units of the reader over `reach`.
        system: of numbers (x - m)/s.
        pooled, start: noisy moments of windows in the model's units, and how many people they are of; linear.
        pooled_std, start_std: noise std of the diagonals; 0 before the release.
        count: noisy number of people.
        share_l: shares of the lengths of sequences, see `drawn_windows`.
        drawn_sp: systems drawn from the posterior, as `system_vector` has them; none of a mode.
    """

    mean_d: Floats
    scale_d: Positives
    system: LinearSystem
    pooled: Floats
    start: Floats
    share_l: Nonnegatives
    drawn_sp: Floats
    pooled_std: Nonnegative = 0.0
    start_std: Nonnegative = 0.0
    count: Positive = 1.0


@dataclass(frozen=True)
class LinearDynamical(Model[LinearPosterior, NumberRows]):
    """The model; every field is public.

    Attributes:
        n_features, n_states: D and K.
        window: W.
        clip_scale: C, in units of what windows of average length add.
        max_length: L.
        reach: norm of a point in the units of the reader.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_features: int
    n_states: int
    window: int = 6
    clip_scale: float = 0.75
    max_length: int = 50
    reach: float = 1.0

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
        check_number("clip_scale", self.clip_scale, low=1e-3, high=1e9)
        if self.shape.size * self.width**2 > _ENTRIES:
            raise ParameterError(
                f"window must be shorter, or n_states smaller, with {d} columns, window={self.window} and "
                f"n_states={k}: a posterior of {self.shape.size} numbers given {self.width**2} moments needs too much "
                "memory."
            )

    @property
    def _starts(self) -> bool:
        """Whether first windows are others than those from everywhere."""
        return self.max_length > self.window

    @property
    def shape(self) -> SystemShape:
        """Sizes of the system and of its windows."""
        unit_e = np.append(np.full(self.width - 1, math.sqrt(self.width - 1)), 1.0 / _WINDOW)
        return SystemShape(self.n_states, self.n_features, self.window, self.max_length, self._starts, unit_e)

    @property
    def width(self) -> int:
        """Numbers of a window, and one."""
        return self.window * self.n_features + 1

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Points, and windows from everywhere and from starts."""
        d, bound = self.n_features, self.clip_scale * (1.0 + _WINDOW**2)
        first = {
            "points": Block((d + 1, d + 1), 1.0 + _POINT**2, "psd", phase="first", weight=_POINTS),
            "cells": Block((d * CELLS,), d**-0.5, "nonnegative", phase="first", weight=_CELLS),
            "lengths": Block((self._lengths,), 1.0, "nonnegative", phase="first", weight=_LENGTHS),
        }
        windows = Block((self.width, self.width), bound, "psd", phase="second", weight=_WINDOWS)
        return {**first, "windows": windows} | ({"starts": replace(windows, weight=_STARTS)} if self._starts else {})

    @property
    def _lengths(self) -> int:
        return num_lengths(self.window, self.max_length)

    @property
    def schedule(self) -> Schedule:
        """No steps; parts of what is spent at all are relative to each other."""
        return Schedule((), {"first": _SCALES / 2, "second": (1.0 - _SCALES) / 2})

    def init(self, rng: np.random.Generator) -> LinearPosterior:
        """Nothing is known, and nothing is drawn."""
        zero_ee, grams = np.zeros((self.width, self.width)), Grams(np.eye(self.width))
        system = linear_moments.from_directions(grams, self.n_states, self.n_features)
        drawn_sp = np.zeros((_DRAWS, self.shape.size))
        law, share_l = (np.zeros(self.n_features), np.ones(self.n_features)), np.zeros(self._lengths)
        return LinearPosterior(*law, system, zero_ee, zero_ee, share_l, drawn_sp)

    def e_step(self, q: LinearPosterior, batch: NumberRows, blocks: Mapping[str, Block]) -> Contributions:
        """Moments of points and where they are, or moments of windows in the scales that were released."""
        d, x_td = self.n_features, np.ascontiguousarray(batch.value_td / self.reach)
        if "points" in blocks:
            cells = SequenceRows(batch.indptr * d, cell_codes(batch.value_td))
            every = np.arange(len(batch.indptr), dtype=batch.indptr.dtype)
            lengths = SequenceRows(every, length_places(np.diff(batch.indptr), self.window, self.max_length))
            return {
                "points": WindowGrams(batch.indptr, x_td, 1, self.max_length, _POINT),
                "cells": WindowCounts(cells, 1, d * CELLS, self.max_length * d, 0.0),
                "lengths": WindowCounts(lengths, 1, self._lengths, 1, 0.0),
            }
        with np.errstate(over="ignore", invalid="ignore"):
            x_td = (x_td - q.mean_d) / (q.scale_d * math.sqrt(self.width - 1))
        windows = WindowGrams(batch.indptr, x_td, self.window, self.max_length, _WINDOW)
        return {name: replace(windows, starts=name == "starts") for name in blocks}

    def started(self, s: Estimate, q: LinearPosterior) -> LinearPosterior:
        """The scales; then the moments, and the systems that they speak for."""
        if s.phase == "first":
            return self._scales(s, q)
        pooled, pooled_std, start, start_std = s.noisy("windows"), s.noise_std("windows"), q.start, 0.0
        if self._starts:
            start, start_std = s.noisy("starts"), s.noise_std("starts")
        q = replace(q, pooled=pooled, start=start, pooled_std=pooled_std, start_std=start_std)
        fit = linear_moments.best(self.grams(q), self.n_states, self.n_features, rounds=_ROUNDS)
        q = replace(q, system=kalman.in_order(fit.system))
        blocks = [ReleasedMoments("pooled", q.pooled, pooled_std), ReleasedMoments("start", start, start_std)][
            : 1 + self._starts
        ]
        sizes = q.share_l, self.blocks["windows"].bound, len(q.drawn_sp)
        return replace(q, **unclipped_posterior(blocks, self.shape, q.system, *sizes))

    def _scales(self, s: Estimate, q: LinearPosterior) -> LinearPosterior:
        """Scales from moments and cells, and the shares of the lengths."""
        gram, sd, d = s.noisy("points"), s.noise_std("points"), self.n_features
        count = max(float(gram[-1, -1]), sd, 1e-9) / _POINT**2
        moments = Scales.of(gram, count, sd, _POINT)
        cells = Scales.of_cells(d * s.noisy("cells").reshape(d, -1), d * s.noise_std("cells")).over(self.reach)
        mean_d, scale_d = moments.beside(cells)
        share_l = length_shares(s.noisy("lengths"), s.noise_std("lengths"))
        return replace(q, mean_d=mean_d, scale_d=scale_d, count=count, share_l=share_l)

    def grams(self, q: LinearPosterior) -> Grams:
        """The released moments, of (x - m)/s and of one, denoised."""
        read = partial(linear_moments.in_units, unit_e=self.shape.unit_e, least=_LEAST_NOISE)
        return Grams(read(q.pooled, q.pooled_std), read(q.start, q.start_std) if self._starts else None)

    def score(self, q: LinearPosterior, rows: NumberRows) -> Floats:
        """Log-density of each sequence in the units of the reader, (n,), in nats, each by itself."""
        log_n = np.zeros(len(rows.indptr) - 1)
        scale_d = q.scale_d * self.reach
        x_td = (rows.value_td - q.mean_d * self.reach) / scale_d
        for row_n, x_ntd in kalman.in_blocks(rows.indptr, x_td):
            seen_nd = np.count_nonzero(~np.isnan(x_ntd), axis=1)
            log_n[row_n] = kalman.filtered(q.system, x_ntd).log_n - np.add.reduce(seen_nd * np.log(scale_d), axis=1)
        return log_n
