"""Columns of a mixture, and what is learned of its components; all of it is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Final, Literal

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Domain, Nonnegative, Nonnegatives, Positives
from dpvb.guards.errors import check_choice, check_number
from dpvb.models.mixtures import categorical, gaussian, tuned
from dpvb.models.mixtures.gaussian import GaussianShape

# Draws from which the constants are found, over their entries, and entries of h that are formed at a time (8 MB): the
# fastest of 2^18 to 2^22.
_DRAWS, _ENTRIES = 2**20, 2**20


@dataclass(frozen=True)
class Clip:
    """How scores are scaled and clipped; public.

    Attributes:
        shape: of the Gaussian columns.
        counts: number of Poisson columns.
        clip: c; a row of its component has the root mean square 1/c before it is clipped to 1.
    """

    shape: GaussianShape
    counts: int
    clip: float

    @property
    def first(self) -> int:
        """Number of entries of z."""
        return self.shape.width + self.counts

    @property
    def size(self) -> int:
        """Number of entries of both."""
        return self.first + self.shape.size

    @property
    def scales(self) -> tuple[float, float]:
        """a1 and a2."""
        share = tuned.FIRST if self.shape.size else 1.0
        second = ((1 - tuned.FIRST) / max(self.shape.size, 1)) ** 0.5
        return (share / max(self.first, 1)) ** 0.5 / self.clip, second / self.clip

    @property
    def constants(self) -> tuple[float, float, float]:
        """For rows of N(0, I): the mean of the diagonal entries of h after clipping, and the rest of z and h."""
        return _constants(self)[:3]

    @property
    def inefficiency(self) -> float:
        """Variance of a mean of clipped rows, over that of a mean of rows."""
        return _constants(self)[3]


@cache
def _constants(clip: Clip) -> tuple[float, float, float, float]:
    """From draws of a fixed seed; exact where nothing is clipped."""
    d, (a1, a2) = clip.shape.width, clip.scales
    z_nf = np.random.default_rng(0).standard_normal((max(_DRAWS // max(clip.first, 1), 2**14), clip.first))
    square_n = np.square(z_nf).sum(axis=1)
    # Two rows at least: NumPy adds a lone row's entries in another order.
    pieces = np.split(z_nf[:, :d], range(2, len(z_nf) - 1, max(2, _ENTRIES // max(clip.shape.size, 1))))
    second_n = np.concatenate([np.square(clip.shape.second(z_nd)).sum(axis=1) for z_nd in pieces])
    lost_n = 1.0 - 1.0 / np.maximum(np.sqrt(a1**2 * square_n + a2**2 * second_n), 1.0)
    offset = -float(np.mean(lost_n * (np.square(z_nf[:, :d]) - 1).sum(axis=1))) / (max(d, 1) * 2**0.5)
    first = 1.0 - float(np.mean(lost_n * square_n)) / max(clip.first, 1)
    squared = 1.0 - float(np.mean((1.0 - (1.0 - lost_n) ** 2) * square_n)) / max(clip.first, 1)
    return offset, first, 1.0 - float(np.mean(lost_n * second_n)) / max(clip.shape.size, 1), squared / first**2


@dataclass(frozen=True)
class MixedColumns:
    """The columns.

    Attributes:
        numbers, gaps: number of Gaussian columns, and places of those that may be missing.
        max_counts: the largest of each count.
        sizes: categories of each categorical column.
        covariance: "full" or "diagonal".
        clip_factor: c of `scores`; large: nothing is clipped.

    Raises:
        ParameterError: for a field outside its range.
    """

    numbers: int = 0
    gaps: tuple[int, ...] = ()
    max_counts: tuple[float, ...] = ()
    sizes: tuple[int, ...] = ()
    covariance: Literal["full", "diagonal"] = "full"
    clip_factor: float = tuned.CLIP

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, ("full", "diagonal"))
        check_number("clip_scale", self.clip_factor, low=1e-2, high=1e9)

    @property
    def shape(self) -> GaussianShape:
        """Which numbers go together."""
        return GaussianShape(self.numbers, self.covariance == "full", self.gaps)

    @property
    def clip(self) -> Clip:
        """How scores are clipped."""
        return Clip(self.shape, len(self.max_counts), self.clip_factor)

    @property
    def kind(self) -> int:
        """0: only numbers, 1: both, 2: only categories; the constants of `tuned` are in this order."""
        return 0 if not self.sizes else 1 if self.clip.size else 2

    @property
    def weights(self) -> tuple[float, float, float]:
        """How counts, categories and scores share a release."""
        return (tuned.NUMERIC, tuned.MIXED, tuned.CATEGORICAL)[self.kind]

    @property
    def most_p(self) -> Floats:
        """The largest rates."""
        return np.array(self.max_counts)


# State of a mixture: its components, and the running sums from which they are estimated; all of it is public.


_SOME: Final = Domain("0 or more, and not all 0", lambda values: bool((values >= 0).all() and (values > 0).any()))


@dataclass(frozen=True)
class Components:
    """The components.

    Attributes:
        number_k: rows of each, (K,); 0: the component is left out.
        mean_kd, root_kdd: means and Cholesky factors of the covariances of numbers in [-1, 1].
        rate_kp: rates of counts.
        expected_kv: expected counts of categories, the prior's among them.
        wander_k: variance that noise leaves in each mean, in variances of the component.
    """

    number_k: Annotated[Floats, _SOME]
    mean_kd: Floats
    root_kdd: Floats
    rate_kp: Positives
    expected_kv: Positives
    wander_k: Nonnegatives

    @classmethod
    def public(cls, numbers: int, most_p: Floats, sizes: Sequence[int]) -> Components:
        """One component in the middle of the ranges, with a deviation of a quarter of them; categories alike."""
        uniform_v = np.repeat([1.0 / size for size in sizes], [*sizes])
        root_kdd, rate_kp = 0.5 * np.eye(numbers)[None], np.sqrt(most_p)[None]
        return cls(np.ones(1), np.zeros((1, numbers)), root_kdd, rate_kp, uniform_v[None], np.zeros(1))

    def taken(self, places: Ints) -> Components:
        """The components at these places."""
        return Components(*(array[places] for array in vars(self).values()))

    @property
    def used(self) -> tuple[int, ...]:
        """Places of those that are not left out."""
        return tuple(np.flatnonzero(self.number_k).tolist())

    def drawn(self, of: ComponentVariances, columns: MixedColumns, rng: np.random.Generator) -> Components:
        """Components drawn around the fitted ones, as far as these are uncertain."""
        k, d = self.mean_kd.shape
        weight_k = self.number_k / self.number_k.sum()
        number_k = self.number_k.sum() * np.maximum(weight_k + np.sqrt(of.size_k) * rng.standard_normal(k), 1e-9)
        std_k = np.sqrt(of.mean_k)
        mean_kd = self.mean_kd + std_k[:, None] * np.einsum("kij,kj->ki", self.root_kdd, rng.standard_normal((k, d)))
        rate_kp = self.rate_kp + std_k[:, None] * np.sqrt(self.rate_kp) * rng.standard_normal(self.rate_kp.shape)
        # A covariance is as sure as that many rows would make it (Bartlett 1933).
        freedom_k = 1 / of.mean_k + d
        bartlett_kdd = np.tril(rng.standard_normal((k, d, d)), -1)
        square_kd = rng.chisquare(np.maximum(freedom_k[:, None] - np.arange(d), 1.0))
        bartlett_kdd[:, np.arange(d), np.arange(d)] = np.sqrt(square_kd)
        bartlett_kdd *= columns.shape.together * freedom_k[:, None, None] ** -0.5
        probability_kv = categorical.normalised(self.expected_kv, columns.sizes)
        rows_kv = np.maximum(probability_kv * (1 - probability_kv) / np.maximum(of.probability_kv, 1e-300) - 1, 1e-3)
        expected_kv = np.maximum(rng.gamma(np.maximum(rows_kv * probability_kv, 1e-6)), 1e-300)
        return replace(
            self,
            number_k=number_k,
            mean_kd=mean_kd,
            root_kdd=self.root_kdd @ bartlett_kdd,
            rate_kp=np.clip(rate_kp, tuned.LEAST_RATE * np.minimum(columns.most_p, 1.0), columns.most_p),
            expected_kv=expected_kv,
        )

    def sample(self, columns: MixedColumns, number: int, rng: np.random.Generator) -> tuple[Floats, Floats, Ints, Ints]:
        """Draw rows: numbers and counts in their public ranges, places of categories, and the component of each."""
        k_n = rng.choice(len(self.number_k), size=number, p=self.number_k / self.number_k.sum())
        normal_nd = rng.standard_normal((number, columns.numbers))
        x_nd = self.mean_kd[k_n] + np.einsum("nij,nj->ni", self.root_kdd[k_n], normal_nd)
        count_np = np.minimum(rng.poisson(self.rate_kp[k_n]), columns.most_p)
        probability_kv = categorical.normalised(self.expected_kv, columns.sizes)
        code_nj = categorical.drawn_codes(probability_kv, k_n, columns.sizes, rng)
        return np.clip(x_nd, -1, 1), count_np, code_nj, k_n

    def as_earlier(self, of: ComponentVariances, columns: MixedColumns, weight: float) -> EarlierGroups:
        """Components as the prior of another fit.

        Args:
            of: how sure the components are.
            columns: what is declared of both fits.
            weight: how many rows each of theirs counts as.
        """
        weight_k = self.number_k / self.number_k.sum()
        # A Dirichlet distribution has one number of rows: that of its least sure weight.
        rows = 1.0
        if len(weight_k) > 1:
            rows = float(np.min(weight_k * (1 - weight_k) / np.maximum(of.weight_k, 1e-300) - 1))
        probability_kv = categorical.normalised(self.expected_kv, columns.sizes)
        least_kv = categorical.totals(probability_kv * (1 - probability_kv), columns.sizes)
        row_kv = least_kv / np.maximum(categorical.totals(of.probability_kv, columns.sizes), 1e-300) - 1
        return EarlierGroups(
            self,
            weight * max(rows, 1.0) * weight_k,
            weight * columns.clip.inefficiency / np.maximum(of.mean_k, 1e-250),
            weight * np.maximum(row_kv, 1.0) * probability_kv,
        )


@dataclass(frozen=True)
class ReleasedSums:
    """Noisy sums of one release and their noise; empty ones where there is no such block."""

    count_k: Floats
    cell_kv: Floats
    score_ku: Floats
    count_std: float
    cell_std: float
    score_std: float


@dataclass(frozen=True)
class RunningCounts:
    """Noisy counts, averaged over releases; linear, so that their noise is known.

    Attributes:
        count_k, cell_kv: of components, and of categories in each.
        count_std, cell_std: their noise.
        share: sum of the squared weights of the releases in them.
        releases: how many there are.
    """

    count_k: Floats
    cell_kv: Floats
    count_std: Nonnegative = 0.0
    cell_std: Nonnegative = 0.0
    share: Nonnegative = 0.0
    releases: Nonnegative = 0.0

    def averaged(self, new: ReleasedSums, rho: float) -> RunningCounts:
        """Return the running means after one more release, which has weight rho."""
        count_k = (1 - rho) * self.count_k + rho * new.count_k
        cell_kv = (1 - rho) * self.cell_kv + rho * new.cell_kv
        share = (1 - rho) ** 2 * self.share + rho**2
        return RunningCounts(count_k, cell_kv, new.count_std, new.cell_std, share, self.releases + 1)

    def rows(self, sizes: Sequence[int]) -> tuple[Floats, float]:
        """Return the rows of each component, and their noise: counts and sums of columns by their precisions."""
        if self.count_std == 0:
            return self.count_k, 0.0
        total_k, precision = self.count_k / self.count_std**2, 1 / self.count_std**2
        for places, size in zip(categorical.starts(sizes), sizes, strict=True):
            total_k = total_k + self.cell_kv[:, places].sum(axis=1) / (size * self.cell_std**2)
            precision += 1 / (size * self.cell_std**2)
        return total_k / precision, math.sqrt(self.share / precision)


@dataclass(frozen=True)
class MixturePosterior:
    """Components, the one that came first, the sums behind both, the public directions of the start, and the check.

    The check is the released cells of `pairs.Pairs` and their noise; there are none without it.
    """

    now: Components
    home: Components
    sums: RunningCounts
    home_sums: RunningCounts
    direction_kd: Floats
    tilt_kv: Floats
    tilt_kp: Floats
    cell_c: Floats
    cell_std: Nonnegative = 0.0


# Groups of an earlier model as the prior of a fit: each of their parameters counts as rows that make it as sure.


@dataclass(frozen=True)
class EarlierGroups:
    """Earlier groups; public.

    Attributes:
        groups: the components.
        share_k: rows that their weights count as.
        row_k: rows that their means, rates and covariances count as.
        cell_kv: rows that their probabilities count as, in each category.
    """

    groups: Components
    share_k: Floats
    row_k: Floats
    cell_kv: Floats

    def start(self, number: float, sizes: tuple[int, ...]) -> Components:
        """The groups, of so many rows together."""
        now = self.groups
        number_k = number * now.number_k / now.number_k.sum()
        expected_kv = np.maximum(number_k, 1.0)[:, None] * categorical.normalised(now.expected_kv, sizes)
        return replace(now, number_k=number_k, expected_kv=expected_kv, wander_k=np.zeros(len(number_k)))

    def joined(self, old: Components, new: Components, number_k: Floats, rho: float, inefficiency: float) -> Components:
        """Components after a step of rho towards what the rows say and what was known, each by its precision.

        Args:
            old, new: before and after the step from only the rows.
            number_k: their rows.
            inefficiency: variance of a mean of clipped rows over that of a mean of rows.
        """
        seen_k = inefficiency / (inefficiency / np.maximum(number_k, 1.0) + new.wander_k)
        to_k = self.row_k / (self.row_k + seen_k)

        def between(before: Floats, after: Floats, earlier: Floats) -> Floats:
            to = to_k.reshape(-1, *(1,) * (before.ndim - 1))
            return np.asarray((1 - to) * after + to * (before + rho * (earlier - before)))

        covariances = (root_kdd @ np.swapaxes(root_kdd, 1, 2) for root_kdd in
                       (old.root_kdd, new.root_kdd, self.groups.root_kdd))  # fmt: skip
        return replace(
            new,
            mean_kd=between(old.mean_kd, new.mean_kd, self.groups.mean_kd),
            root_kdd=gaussian.root(between(*covariances)),
            rate_kp=between(old.rate_kp, new.rate_kp, self.groups.rate_kp),
        )


@dataclass(frozen=True)
class ComponentVariances:
    """Variances of the parameters of components; `naive` ones leave the privacy noise out.

    Attributes:
        size_k: of the rows of each, over the square of all rows; weights are these over their sum.
        weight_k, naive_weight_k: of the weights.
        mean_k, naive_mean_k: of a mean or a rate, in variances of a row of the component.
        probability_kv, naive_probability_kv: of the probabilities of categories.
    """

    size_k: Nonnegatives
    weight_k: Nonnegatives
    naive_weight_k: Nonnegatives
    mean_k: Nonnegatives
    naive_mean_k: Nonnegatives
    probability_kv: Nonnegatives
    naive_probability_kv: Nonnegatives

    def taken(self, places: Ints) -> ComponentVariances:
        """Those of the components at these places."""
        return ComponentVariances(*(array[places] for array in vars(self).values()))


@dataclass(frozen=True)
class Marginals:
    """Released values, and the standard deviations of their noise.

    Attributes:
        number_1: of rows, at least 1.
        mean_d, mean_std_d: means of the numbers, in [-1, 1].
        rate_p, rate_std_p: means of the counts.
        share_v, share_std_v: of categories.
        cell_c, cell_std_1: rows in each cell of the tables of `pairs.Pairs`; empty without a check.
    """

    number_1: Positives
    mean_d: Floats
    mean_std_d: Nonnegatives
    rate_p: Positives
    rate_std_p: Nonnegatives
    share_v: Floats
    share_std_v: Nonnegatives
    cell_c: Floats
    cell_std_1: Nonnegatives
