"""Numeric columns in units of their own spread: two cheap releases make a range that is far too wide cost little.

A numeric column has a public range; u = (x - low) / (high - low) is in [0, 1]. Before anything else are released

    means     Σ (1, u)          û = Σu / Σ1
    spread    Σ √|u - û|        σ̂ = (Σ√|u - û| / (Σ1 · E√|z|))²,    z standard normal

The square root makes small spreads legible: a spread of 1/300 of the range gives 0.05 a row. From then on a model has
the rows x̂ = κ (u - û) / σ̂, other columns as they are, and its posterior goes back to x by a public linear map. A column
that is a product is taken about the means of its factors first (`declared`). All of this is public or released; what is
made of it costs no privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.core.forms import MeasuredRows, turned
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives
from dpvb.models.regression import products, tuned
from dpvb.models.regression.declared import Declared
from dpvb.models.regression.products import ROOT_NORMAL
from dpvb.models.regression.slants import Slants


@dataclass(frozen=True)
class Scaling:
    """The map from rows x to x̂ = (x - S x - centre) · factor; public.

    S has the slants of products, which are made of mean_d. Vectors are (d,), in the units of x unless it is said.

    Attributes:
        mean_d: û in the units of x; 0 where a column is neither numeric nor the factor of one that is.
        error: standard deviation of û, as a part of the range.
        number: number of rows.
        centre_d, factor_d: the map.
        doubt_d: standard deviation of the centre, in x̂.
        width_d: standard deviation of the prior of each weight of x̂, at τ = 1.
        wide_d: the same with spread or unit at the low end of what it may be.
        part_d: part of the std of each column of x̂, as it is read, that is certain.
        unseen_d: 1 for a column whose spread may be less than half of what was read, else 0.
        room: rows x̂ of norm up to this count in full. Without noise more is no loss.
    """

    mean_d: Floats
    error: float
    number: Positive
    centre_d: Floats
    doubt_d: Nonnegatives
    factor_d: Positives
    width_d: Positives
    wide_d: Positives
    part_d: Positives
    unseen_d: Nonnegatives
    room: Positive = 1.0

    @classmethod
    def start(cls, declared: Declared) -> Scaling:
        """Rows as they are; one unit moves the log odds by about 2τ (Gelman et al. 2008)."""
        zero_d, width_d = np.zeros(len(declared.unit_d)), tuned.UNIT_EFFECT / declared.unit_d
        wide_d = width_d * (1.0 if declared.known else tuned.UNKNOWN_UNIT)
        return cls(
            zero_d, 0.0, 1.0, zero_d, zero_d, np.ones(len(zero_d)), width_d, wide_d, np.ones(len(zero_d)), zero_d
        )

    def read(self, declared: Declared, s: Estimate, constant: float) -> Scaling:
        """The map after the newest of the two releases."""
        if "spread" in s.names:
            return self._scaled(declared, s.read("spread"), s.noise_std("spread"), constant)
        return self._centred(declared, s.read("means"), s.noise_std("means"))

    def _centred(self, declared: Declared, total_r: Floats, sd: float) -> Scaling:
        """With û from noisy Σ (1, u), (1 + r,), of noise std sd."""
        read_r = declared.read_r
        number, mean_d = max(float(total_r[0]), tuned.LEAST_ROWS_STD * sd, 1.0), self.mean_d.copy()
        mean_d[read_r] = declared.low_d[read_r] + declared.reach_d[read_r] * np.clip(total_r[1:] / number, 0.0, 1.0)
        return replace(self, mean_d=mean_d, error=sd / number, number=number)

    def _scaled(self, declared: Declared, total_j: Floats, sd: float, constant: float) -> Scaling:
        """With σ̂ from noisy Σ √|u - û|, (j,), of noise std sd; without a constant nothing is centred."""
        numeric_j = declared.numeric_j
        range_j = (declared.high_d - declared.low_d)[numeric_j]
        root_j = np.maximum(total_j / self.number, 0.0)
        least = max(tuned.LEAST_SPREAD, tuned.SPREAD_ERRORS * self.error)
        spread_j = np.clip((root_j / ROOT_NORMAL) ** 2, least, tuned.LARGEST_SPREAD)
        # The number of rows has the same noise as Σu.
        sd_j = np.hypot(sd / self.number, self.error * root_j)
        lowest_j = (np.maximum(root_j - tuned.LOW_STD * sd_j, 0.0) / ROOT_NORMAL) ** 4
        # A centre that is off by δ alone makes a root mean of √δ.
        lowest_j = lowest_j - (tuned.CENTRE_STD * self.error) ** 2 / ROOT_NORMAL**4
        least_j = np.minimum(tuned.UNSEEN_SPREAD, spread_j)
        low_j = np.clip(np.sqrt(np.maximum(lowest_j, 0.0)), least_j, spread_j)
        centre_d, error_d = declared.offsets(self.mean_d), np.full(len(self.mean_d), self.error)
        if len(declared.products_p3):
            read = products.Means(declared, self.mean_d, self.error)
            spread_j, low_j = products.spreads(read, root_j, sd_j, spread_j, low_j)
            centre_d, error_d = products.centres(read, spread_j)
        typical_j = range_j * spread_j
        if constant == 0:
            typical_j = np.hypot(typical_j, self.mean_d[numeric_j])
        factor_d, width_d, wide_d = self.factor_d.copy(), self.width_d.copy(), self.wide_d.copy()
        factor_d[numeric_j] = declared.size(constant) / typical_j
        width_d[numeric_j] = 1.0 / (range_j * spread_j) / factor_d[numeric_j]
        wide_d[numeric_j] = width_d[numeric_j] * spread_j / low_j
        centre_d = centre_d if constant > 0 else self.centre_d
        doubt_d = error_d * (declared.high_d - declared.low_d) * factor_d
        room = tuned.NOISELESS_ROOM if sd == 0 else 1.0
        scaled = replace(self, centre_d=centre_d, doubt_d=doubt_d, factor_d=factor_d)
        unseen_d = np.where(declared.high_d > declared.low_d, wide_d > 2 * width_d, 0.0)
        return replace(scaled, width_d=width_d, wide_d=wide_d, unseen_d=unseen_d, room=room)

    def recentred(self, declared: Declared, noisy_dd: Floats, sd: float, constant: float) -> tuple[Scaling, Floats]:
        """Numeric columns centred again by what their second moments say: the map, and moments of the new rows.

        Args:
            declared: the columns.
            noisy_dd: noisy Σ x̂ x̂ᵀ, (d, d), of noise std sd on its diagonal.
            sd: that std.
            constant: value of column 0.
        """
        number = _number(noisy_dd, sd, constant)
        before_d = self.doubt_d**2
        gain_d = before_d / (before_d + 0.5 * (sd / constant / number) ** 2 + 1e-300)
        moved_d = gain_d * noisy_dd[0] / constant / number
        forth_dd = np.eye(len(moved_d))
        forth_dd[:, 0] -= moved_d / constant
        return replace(self, centre_d=self.centre_d + moved_d / self.factor_d), forth_dd @ noisy_dd @ forth_dd.T

    def certain(self, declared: Declared, noisy_dd: Floats, read_dd: Floats, sd: float, constant: float) -> Scaling:
        """With what second moments say for certain of the spreads of numeric columns.

        Args:
            declared: the columns.
            noisy_dd: noisy Σ x̂ x̂ᵀ, (d, d), of noise std sd on its diagonal.
            read_dd: the same as it was read.
            sd: that std.
            constant: value of column 0.
        """
        numeric_j, number = declared.numeric_j, _number(noisy_dd, sd, constant)
        noisy_j, read_j = ((np.diag(m) - (m[0] / constant) ** 2 / number)[numeric_j] for m in (noisy_dd, read_dd))
        sd_j = sd * np.hypot(1.0, math.sqrt(2) * noisy_dd[0, numeric_j] / constant**2 / number)
        # κ²n, the variance of a column whose spread is the one that was read.
        full, low_j = number * declared.size(constant) ** 2, (self.width_d / self.wide_d)[numeric_j]
        certain_j = np.maximum(noisy_j - tuned.LOW_STD * sd_j, full * low_j**2)
        # A compromise: the root of what is certain widens little, and leaves hardly a lie.
        part_j = np.clip(certain_j / np.maximum(read_j, 1e-300), tuned.LEAST_CERTAIN, 1.0) ** 0.25
        part_d, wide_d, unseen_d = self.part_d.copy(), self.wide_d.copy(), self.unseen_d.copy()
        seen_j = noisy_j > tuned.CERTAIN_STD * sd_j
        part_d[numeric_j], unseen_d[numeric_j[seen_j]] = np.where(seen_j, 1.0, part_j), 0.0
        wide_d[numeric_j] = self.width_d[numeric_j] * np.sqrt(np.maximum(full / certain_j, 1.0))
        return replace(self, part_d=part_d, wide_d=wide_d, unseen_d=unseen_d)

    def forth(self, declared: Declared) -> Floats:
        """The map as a matrix, (d + 2, d): S, the centre, and the factor."""
        return np.vstack([declared.slants(self.mean_d).dense(len(self.mean_d)), self.centre_d, self.factor_d])

    def back(self, declared: Declared, constant: float) -> Floats:
        """The matrix B, (d, d), with m = B m̂: weights of x from those of x̂, the intercept's constant first."""
        back_dd = np.diag(self.factor_d) - declared.slants(self.mean_d).dense(len(self.factor_d)).T * self.factor_d
        if constant > 0:
            back_dd[0] -= self.factor_d * self.centre_d / constant
        return back_dd


def mapped(x_nd: Floats, forth: Floats) -> Floats:
    """x̂ of rows x, (n, d), each entry by itself; `forth` is the map as `Scaling.forth` has it."""
    slanted_nd = Slants.of(forth[:-2]).off(x_nd, np.arange(x_nd.shape[1]))
    return np.asarray((slanted_nd - forth[-2]) * forth[-1])


def measured(x_nd: Floats, matrix_de: Floats) -> MeasuredRows:
    """Rows x̂ in the coordinates of a score, measured; the map to x̂ is the matrix's first rows."""
    return turned(mapped(x_nd, matrix_de[: x_nd.shape[1] + 2]), matrix_de[x_nd.shape[1] + 2 :])


def _number(noisy_dd: Floats, sd: float, constant: float) -> float:
    """Number of rows, from the constant's entry of their noisy second moments."""
    return max(float(noisy_dd[0, 0]) / constant**2, sd, 1.0)
