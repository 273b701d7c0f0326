"""Numeric columns in units of their own spread: with two cheap releases, a range that is far too wide costs little.

A numeric column has a public range; ζ = (x - low) / (high - low) is in [0, 1]. Before anything else are released

    means     Σ (1, ζ)          ζ̂ = Σζ / Σ1
    spread    Σ √|ζ - ζ̂|        σ̂ = (Σ√|ζ - ζ̂| / (Σ1 · E√|z|))²,    z standard normal

The square root makes small spreads legible: a spread of 1/300 of the range gives 0.05 per row. From then on the model
reads rows x̂ = size (ζ - ζ̂) / σ̂, other columns as they are, and its posterior goes back to x by a public linear map.

A column that is the product ζζ′ of two others is centred as (ζ - ζ̂)(ζ′ - ζ̂′), which is within ±1, too: its spread, and
the prior of its weight, then depend on no range. That product is far smaller than the columns, and harder to see.
For independent factors the mean roots multiply, and the mean, a covariance, is 0. Both are guesses, which the releases
correct by as much as they are more precise.

Everything here is public or released. Calculations from it cost no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import MeasuredRows, Rows, turned
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positive, Positives
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.models.regression import tuned

# convention: least spread of a column, as a part of its range; less is rounding.
_LEAST_SPREAD = 1e-6
#: No column is a product of others.
NO_PRODUCTS = np.empty((0, 3), dtype=np.intp)


class Slants(NamedTuple):
    """A sparse matrix S: x - S x has products about the means of their factors.

    Attributes:
        product_k, factor_k: row and column of each entry, (k,).
        share_k: the entries.
    """

    product_k: NDArray[np.intp]
    factor_k: NDArray[np.intp]
    share_k: Floats

    def off(self, x_nr: Floats, read_r: NDArray[np.intp]) -> Floats:
        """X - S x of rows x, (n, r), each entry by itself; read_r, increasing, has the columns that they hold."""
        slanted_nr = x_nr.copy()
        places = np.searchsorted(read_r, self.product_k), np.searchsorted(read_r, self.factor_k)
        for product, factor, share in zip(*places, self.share_k, strict=True):
            slanted_nr[:, product] -= share * x_nr[:, factor]
        return slanted_nr

    @classmethod
    def of(cls, slant_dd: Floats) -> Slants:
        """The matrix S from its dense form, (d, d)."""
        product_k, factor_k = np.nonzero(slant_dd)
        return cls(product_k, factor_k, slant_dd[product_k, factor_k])

    def dense(self, width: int) -> Floats:
        """S, (d, d)."""
        slant_dd = np.zeros((width, width))
        slant_dd[self.product_k, self.factor_k] = self.share_k
        return slant_dd


@dataclass(frozen=True)
class Declared:
    """Public facts about the columns of rows of norm 1; vectors (d,), in the units of these rows.

    Attributes:
        low_d, high_d: range of each numeric column; equal ends where a column is not numeric.
        unit_d: the value of a column that is not numeric which is one unit; for an indicator, its value.
        has_units: whether these units are those of the columns, and not a guess.
        products_p3: numeric columns that are products of two others in places ζ, and these two, (p, 3); rows then have
            a constant in column 0.

    Raises:
        ParameterError: for vectors of different lengths, ends out of order, units that are not positive, or products of
            other values.
    """

    low_d: Floats
    high_d: Floats
    unit_d: Positives
    has_units: bool = True
    products_p3: NDArray[np.intp] = field(default_factory=lambda: NO_PRODUCTS)

    def __post_init__(self) -> None:
        same = self.low_d.shape == self.high_d.shape == self.unit_d.shape
        if not (same and np.all(self.low_d <= self.high_d) and np.all(self.unit_d > 0)):
            raise ParameterError("declared must hold ranges low ≤ high and positive units, one of each per column.")
        places = self.products_p3.ravel()
        inside = self.products_p3.shape[1:] == (3,) and np.all((places > 0) & (places < len(self.unit_d)))
        if not inside or self.low_d[places].any() or (self.high_d > self.unit_d)[places].any():
            raise ParameterError(
                "products must hold the places of columns and their two factors, (p, 3), at least 1; all of these are "
                "indicators or numbers from 0 to their unit."
            )

    @classmethod
    def plain(cls, width: int) -> Declared:
        """No numeric column, and nothing known of units: 1 is a guess."""
        return cls(np.zeros(width), np.zeros(width), np.ones(width), has_units=False)

    @property
    def numeric_j(self) -> NDArray[np.intp]:
        """The numeric columns."""
        return np.flatnonzero(self.high_d > self.low_d)

    @property
    def read_r(self) -> NDArray[np.intp]:
        """The columns that are read for the numeric ones: these, and the factors of products."""
        return np.unique(np.append(self.numeric_j, self.products_p3))

    @property
    def _numeric_r(self) -> NDArray[np.intp]:
        """The places of the numeric columns among those that are read."""
        return np.searchsorted(self.read_r, self.numeric_j)

    @property
    def reach_d(self) -> Floats:
        """Length of the range of each column, of one that is not numeric its unit, (d,)."""
        return np.where(self.high_d > self.low_d, self.high_d - self.low_d, self.unit_d)

    def places(self, x_nr: Floats) -> Floats:
        """Places ζ of the columns that are read, (n, r), each entry by itself."""
        return np.clip((x_nr - self.low_d[self.read_r]) / self.reach_d[self.read_r], 0.0, 1.0)

    def slants(self, mean_d: Floats) -> Slants:
        """Shift of each product that makes it one about the means of its factors, but for a constant.

        (ζ - ζ̂)(ζ′ - ζ̂′) = ζζ′ - ζ̂′ζ - ζ̂ζ′ + ζ̂ζ̂′.

        Args:
            mean_d: ζ̂ of the columns that are read in the units of x, 0 for others, (d,).
        """
        product_p, first_p, second_p = self.products_p3.T
        share_d, size_p = mean_d / self.unit_d, self.unit_d[product_p]
        shares = (share_d[second_p] * size_p / self.unit_d[first_p], share_d[first_p] * size_p / self.unit_d[second_p])
        return Slants(np.tile(product_p, 2), np.append(first_p, second_p), np.concatenate(shares))

    def offsets(self, mean_d: Floats) -> Floats:
        """Shift of numeric columns after `slants`, in the units of x, (d,): ζ̂, or that of a product."""
        product_p, first_p, second_p = self.products_p3.T
        offset_d, share_d = np.where(self.high_d > self.low_d, mean_d, 0.0), mean_d / self.unit_d
        offset_d[product_p] = -self.unit_d[product_p] * share_d[first_p] * share_d[second_p]
        return offset_d

    def roots(self, x_nr: Floats, mean_d: Floats) -> Floats:
        """√|ζ - ζ̂| of the numeric columns, (n, j), of a product √|(ζ - ζ̂)(ζ′ - ζ̂′)|.

        Args:
            x_nr: the columns that are read for them, (n, r).
            mean_d: ζ̂ in the units of x.
        """
        numeric_j, low_r = self.numeric_j, self.low_d[self.read_r]
        inside_nr = np.clip(x_nr, low_r, low_r + self.reach_d[self.read_r])
        away_nj = self.slants(mean_d).off(inside_nr, self.read_r)[:, self._numeric_r] - self.offsets(mean_d)[numeric_j]
        return np.sqrt(np.minimum(np.abs(away_nj) / self.reach_d[numeric_j], 1.0))

    @property
    def blocks(self) -> dict[str, Block]:
        """The two releases; none without a numeric column."""
        wide, read = len(self.numeric_j), len(self.read_r)
        means = Block((1 + read,), math.sqrt(1 + read), "nonnegative", "first")
        return {"means": means, "spread": Block((wide,), math.sqrt(wide), "nonnegative", "second")} if wide else {}

    def budget(self, then: float) -> dict[str, float]:
        """Parts of the budget for both and for the release after them, which has the part `then`."""
        if not self.blocks:
            return {"first": then}
        return {"first": tuned.SUM_BUDGET, "second": tuned.SUM_BUDGET, "third": then}

    def contributions(
        self, x_nr: Floats, sound_n: Floats, mean_d: Floats, blocks: Mapping[str, Block]
    ) -> Contributions:
        """Contribution of rows to the releases by the columns; a row whose response is NaN adds nothing."""
        if "means" in blocks:
            return {"means": self.means(x_nr, sound_n)}
        return {"spread": Rows(self.roots(x_nr, mean_d) * np.where(np.isnan(sound_n), np.nan, 1.0)[:, None])}

    def means(self, x_nr: Floats, sound_n: Floats) -> Rows:
        """Contribution of rows to the first of the releases."""
        sound_n1 = np.where(np.isnan(sound_n), np.nan, 1.0)[:, None]
        return Rows(np.hstack([sound_n1, self.places(x_nr) * sound_n1]))

    def size(self, constant: float) -> float:
        """Std of a numeric column in x̂: a typical row stays inside norm 1, the intercept's constant included."""
        room = (1 - constant**2) / max(len(self.numeric_j), 1)
        return min(tuned.NUMERIC_SIZE * constant, math.sqrt(room)) if constant > 0 else math.sqrt(room)


def check_fields(
    n_features: int, n_steps: int, intercept: float, alpha: float | None, declared: Declared | None
) -> None:
    """Check what the first-order models have in common.

    Raises:
        ParameterError: for a field outside its range.
    """
    check_integer("n_features", n_features, low=1, high=10**7)
    check_integer("n_steps", n_steps, low=1, high=10**7)
    check_number("intercept", intercept, low=0, high=1, closed="left")
    check_number("alpha", 1.0 if alpha is None else alpha, low=1e-6, high=1e6)
    if declared is not None and len(declared.unit_d) != n_features:
        raise ParameterError(f"declared must speak of {n_features} columns, got {len(declared.unit_d)}.")


#: E√|z| of a standard normal z.
ROOT_NORMAL = 2**0.25 * math.gamma(0.75) / math.sqrt(math.pi)


class ReleasedMeans(NamedTuple):
    """Estimates from the first release: the columns, ζ̂ in the units of x, (d,), and its std as a part of the range."""

    declared: Declared
    mean_d: Floats
    error: float


def product_spreads(
    means: ReleasedMeans, root_j: Floats, sd_j: Floats, spread_j: Floats, low_j: Floats
) -> tuple[Floats, Floats]:
    """Spreads of numeric columns and their low ends, (j,) each, with those of products.

    Args:
        means: the first release.
        root_j, sd_j: mean roots of numeric columns, and std of their noise.
        spread_j, low_j: spreads and their low ends as of columns that are not products.
    """
    numeric_j, (product_p, first_p, second_p) = means.declared.numeric_j, means.declared.products_p3.T
    root_d, low_d = _roots_of_indicators(means)
    root_d[numeric_j], low_d[numeric_j] = (ROOT_NORMAL * np.sqrt(end_j) for end_j in (spread_j, low_j))
    guess_p, least_p = root_d[first_p] * root_d[second_p], low_d[first_p] * low_d[second_p]
    place_p = np.searchsorted(numeric_j, product_p)
    doubt_p = np.hypot(tuned.PRODUCT_DOUBT * guess_p, (guess_p - least_p) / tuned.LOW_STD)
    gain_p = doubt_p**2 / (doubt_p**2 + sd_j[place_p] ** 2 + 1e-300)
    read_p = guess_p + gain_p * (root_j[place_p] - guess_p)
    lowest_p = np.maximum(read_p - tuned.LOW_STD * np.sqrt(gain_p) * sd_j[place_p], np.minimum(least_p, read_p))
    spread_j, low_j = spread_j.copy(), low_j.copy()
    for part_j, part_p in ((spread_j, read_p), (low_j, lowest_p)):
        part_j[place_p] = np.maximum((part_p / ROOT_NORMAL) ** 2, _LEAST_SPREAD)
    return spread_j, low_j


def _roots_of_indicators(means: ReleasedMeans) -> tuple[Floats, Floats]:
    """Mean root √|ζ - p| of columns that are 0 or 1, whose mean is p, and its low end, (d,)."""
    error = min(means.error, 0.5)
    share_d = np.clip(means.mean_d / means.declared.unit_d, error, 1.0 - error)
    root_d = share_d * np.sqrt(1.0 - share_d) + (1.0 - share_d) * np.sqrt(share_d)
    sd_d = 0.5 * error / np.sqrt(share_d * (1.0 - share_d) + 1e-300)
    return root_d, np.maximum(root_d - tuned.LOW_STD * sd_d, 0.0)


def product_centres(means: ReleasedMeans, spread_j: Floats) -> tuple[Floats, Floats]:
    """Centres of numeric columns in the units of x, products among them, and their stds as a part of the range, (d,).

    Args:
        means: the first release.
        spread_j: spreads of numeric columns; that of a product bounds its covariance.
    """
    declared, (product_p, first_p, second_p) = means.declared, means.declared.products_p3.T
    share_d, centre_d = means.mean_d / declared.unit_d, declared.offsets(means.mean_d)
    spread_p = spread_j[np.searchsorted(declared.numeric_j, product_p)]
    noise_p = means.error * np.sqrt(1.0 + share_d[first_p] ** 2 + share_d[second_p] ** 2)
    gain_p = spread_p**2 / (spread_p**2 + noise_p**2 + 1e-300)
    covariance_p = share_d[product_p] - share_d[first_p] * share_d[second_p]
    centre_d[product_p] += gain_p * covariance_p * declared.unit_d[product_p]
    error_d = np.full(len(centre_d), means.error)
    error_d[product_p] = np.sqrt(gain_p) * noise_p
    return centre_d, error_d


@dataclass(frozen=True)
class Scaling:
    """The map from rows x to x̂ = (x - S x - centre) · factor; public.

    S has the slants of products, which are made of mean_d. Vectors are (d,), in the units of x unless it is said.

    Attributes:
        mean_d: ζ̂ in the units of x; 0 if a column is neither numeric nor the factor of one that is.
        error: standard deviation of ζ̂, as a part of the range.
        number: number of rows.
        centre_d, factor_d: the map.
        doubt_d: standard deviation of the centre, in x̂.
        width_d: standard deviation of the prior of each weight of x̂, at τ = 1.
        wide_d: the same with spread or unit at the low end of what it may be.
        part_d: part of the std of each column of x̂, as it is read, that is certain.
        unknown_scale_d: 1 for a column whose spread may be less than half of the estimate, else 0.
        room: rows x̂ of norm up to this are included in full. Without noise a larger norm is not a loss.
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
    unknown_scale_d: Nonnegatives
    room: Positive = 1.0

    @classmethod
    def start(cls, declared: Declared) -> Scaling:
        """Rows as they are; one unit moves the log odds by about 2τ (Gelman et al. 2008)."""
        zero_d, width_d = np.zeros(len(declared.unit_d)), tuned.UNIT_EFFECT / declared.unit_d
        wide_d = width_d * (1.0 if declared.has_units else tuned.UNKNOWN_UNIT)
        return cls(
            zero_d, 0.0, 1.0, zero_d, zero_d, np.ones(len(zero_d)), width_d, wide_d, np.ones(len(zero_d)), zero_d
        )

    def read(self, declared: Declared, s: Estimate, constant: float) -> Scaling:
        """The map after the newest of the two releases."""
        if s.phase == "second":
            return self._scaled(declared, s.noisy("spread"), s.noise_std("spread"), constant)
        return self._centred(declared, s.noisy("means"), s.noise_std("means"))

    def _centred(self, declared: Declared, total_r: Floats, sd: float) -> Scaling:
        """With ζ̂ from noisy Σ (1, ζ), (1 + r,), of noise std sd."""
        read_r = declared.read_r
        number, mean_d = max(float(total_r[0]), sd, 1.0), self.mean_d.copy()
        # Most rows of a column may be at an end of its range. With ζ̂ at that end their roots would be 0, and the spread
        # would be many times too small: ζ̂ is at least its standard deviation away.
        error = sd / number
        end = min(error, 0.5)
        mean_d[read_r] = declared.low_d[read_r] + declared.reach_d[read_r] * np.clip(total_r[1:] / number, end, 1 - end)
        return replace(self, mean_d=mean_d, error=error, number=number)

    def _scaled(self, declared: Declared, total_j: Floats, sd: float, constant: float) -> Scaling:
        """With σ̂ from noisy Σ √|ζ - ζ̂|, (j,), of noise std sd; without a constant nothing is centred."""
        numeric_j = declared.numeric_j
        range_j = (declared.high_d - declared.low_d)[numeric_j]
        root_j = np.maximum(total_j / self.number, 0.0)
        least = max(_LEAST_SPREAD, tuned.SPREAD_ERRORS * self.error)
        spread_j = np.clip((root_j / ROOT_NORMAL) ** 2, least, 0.5)  # No variable in [0, 1] has more.
        # The number of rows has the same noise as Σu.
        sd_j = np.hypot(sd / self.number, self.error * root_j)
        lowest_j = (np.maximum(root_j - tuned.LOW_STD * sd_j, 0.0) / ROOT_NORMAL) ** 4
        # A centre that is wrong by δ makes a root mean of √δ.
        lowest_j = lowest_j - (tuned.CENTRE_STD * self.error) ** 2 / ROOT_NORMAL**4
        least_j = np.minimum(tuned.UNSEEN_SPREAD, spread_j)
        low_j = np.clip(np.sqrt(np.maximum(lowest_j, 0.0)), least_j, spread_j)
        centre_d, error_d = declared.offsets(self.mean_d), np.full(len(self.mean_d), self.error)
        if len(declared.products_p3):
            read = ReleasedMeans(declared, self.mean_d, self.error)
            spread_j, low_j = product_spreads(read, root_j, sd_j, spread_j, low_j)
            centre_d, error_d = product_centres(read, spread_j)
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
        unknown_scale_d = np.where(declared.high_d > declared.low_d, wide_d > 2 * width_d, 0.0)
        return replace(scaled, width_d=width_d, wide_d=wide_d, unknown_scale_d=unknown_scale_d, room=room)

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
        # n times the squared size, the variance of a column whose spread is the one that was read.
        full, low_j = number * declared.size(constant) ** 2, (self.width_d / self.wide_d)[numeric_j]
        certain_j = np.maximum(noisy_j - tuned.LOW_STD * sd_j, full * low_j**2)
        # A compromise: the root of what is certain widens little, and leaves hardly a lie.
        part_j = np.clip(certain_j / np.maximum(read_j, 1e-300), 1e-4, 1.0) ** 0.25
        part_d, wide_d, unknown_scale_d = self.part_d.copy(), self.wide_d.copy(), self.unknown_scale_d.copy()
        seen_j = noisy_j > tuned.SEEN_STD * sd_j
        part_d[numeric_j], unknown_scale_d[numeric_j[seen_j]] = np.where(seen_j, 1.0, part_j), 0.0
        wide_d[numeric_j] = self.width_d[numeric_j] * np.sqrt(np.maximum(full / certain_j, 1.0))
        return replace(self, part_d=part_d, wide_d=wide_d, unknown_scale_d=unknown_scale_d)

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
