"""Mixtures of products of Gaussian, Poisson and categorical columns (Park, Foulds, Chaudhuri & Welling 2017).

    k ~ π,   numbers ~ N(m_k, V_k),   counts_p ~ Poisson(λ_kp),   categories_j ~ p_kj        unit: a row

==================  =============================================================================
paper               code
==================  =============================================================================
r_k                 r_nk: responsibilities, r_k ∝ π_k N(x; m_k, V_k) Π_p Poisson(c_p; λ_kp) Π_j p_kj(x_j)
m_k, L_k            mean_kd, root_kdd: V_k = L_k L_kᵀ, numbers in [-1, 1]
λ_kp, p_kv          rate_kp, expected_kv over its sums in each column
z_k, h_k            see `gaussian`; scores (c - λ)/√λ of counts are next to z
block "count"       Σ r, norm 1
block "categories"  Σ r ⊗ onehot, norm √D
block "pairs"       one cell of each pair of columns, norm √(J(J - 1)/2), once at the end: see `pairs`
block "scores"      Σ r_k clip(a1 z_k, a2 h_k), norm 1 for every number of components
n̄, S̄                sums.count_k, sums.cell_kv: running means; n̂ is their weighted mean, `RunningCounts.rows`
==================  =============================================================================

The blocks of phases "first" to "third" are the same with one component, r = 1: where the mass is. From there the
components start in public random directions. How many there are follows from the released number of rows.

A row adds r_k clip(a1 z_k, a2 h_k) to the scores, each component clipped by itself. For every k the clipped vector has
a norm of at most 1, so that ‖(r_k u_k)_k‖² = Σ r_k² ‖u_k‖² ≤ Σ r_k² ≤ 1, for any number of components. Rows of the
component itself are clipped, too; `Clip` has what that takes from their moments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, logsumexp

from dpvb.core.blocks import Block, Contributions, Grid, check_shape, floats
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows
from dpvb.core.model import ESTIMATES, Model, PosteriorOrMAP, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models.mixtures import categorical, gaussian, tuned
from dpvb.models.mixtures.components import (
    Clip,
    Components,
    ComponentVariances,
    EarlierGroups,
    Marginals,
    MixedColumns,
    MixturePosterior,
    ReleasedSums,
    RunningCounts,
)
from dpvb.models.mixtures.pairs import Pairs
from dpvb.rows import MixedRows

# Room in a norm for the rounding of its squares, and of the entries that are summed.
_ROOM = 1.0 + 2.0**-40


@dataclass(frozen=True)
class Coordinates:
    """Rows in the own coordinates of some components, which are formed anew wherever they are needed.

    Attributes:
        clip: public.
        x_nd, count_np: numbers and counts.
        mean_kd, inverse_kdd, rate_kp: of the components; L⁻¹ in the place of V = L Lᵀ.
        square_kn: Σ z² over the numbers.
        length_kn: squared norms of (a1 z, a2 h).
    """

    clip: Clip
    x_nd: Floats
    count_np: Floats
    mean_kd: Floats
    inverse_kdd: Floats
    rate_kp: Floats
    square_kn: Floats
    length_kn: Floats

    @classmethod
    def of(cls, clip: Clip, now: Components, rows: MixedRows) -> Coordinates:
        """Those of rows in the components in use."""
        from dpvb.models.mixtures import scores_numba

        used = list(now.used)
        inverse_kdd = gaussian.inverse(now.root_kdd[used])
        rows_and_components = (
            floats(rows.x_nd),
            floats(rows.count_np),
            floats(now.mean_kd[used]),
            inverse_kdd,
            floats(now.rate_kp[used]),
        )
        square_kn, length_kn = np.empty((2, len(used), len(rows.sound_n)))
        scores_numba.lengths(*rows_and_components, clip.shape.alone, *clip.scales, square_kn, length_kn)
        return cls(clip, *rows_and_components, square_kn, length_kn)


@dataclass(frozen=True)
class ComponentScores:
    """Clipped scores of all rows and components, formed some rows at a time.

    Attributes:
        at: the rows in own coordinates.
        r_kn: responsibilities; a faulty row's are NaN.
        used: places of the components in the block.
    """

    at: Coordinates
    r_kn: Floats
    used: tuple[int, ...]

    def of_block(self, block: Block, num_rows: int) -> ComponentScores:
        """Itself, of the block's components."""
        check_shape((self.r_kn.shape[1], self.at.clip.size), num_rows, block.shape[-1])
        check_shape(self.at.length_kn.T.shape, num_rows, len(self.used))
        if max(self.used) >= block.shape[0]:
            raise ValueError("components are places of the block.")
        return self

    @cached_property
    def _clipped(self) -> tuple[Floats, Floats]:
        """Factors of the scores of each row and component, and upper bounds on norms after that."""
        with np.errstate(all="ignore"):
            norm_kn = np.sqrt(self.at.length_kn)
            norm_kn *= _ROOM
            factor_kn = np.maximum(norm_kn, 1.0)
            np.divide(self.r_kn, factor_kn, out=factor_kn)
            norm_kn *= factor_kn
            return factor_kn, norm_kn

    def norms(self) -> Floats:
        """Upper bounds on the rows' norms; squares are added in the components' order, whatever else is there."""
        square_n = np.zeros(self.r_kn.shape[1])
        with np.errstate(all="ignore"):
            for norm_n in self._clipped[1]:
                square_n += norm_n * norm_n
            # The addend covers squares that underflow.
            return np.asarray(np.sqrt(square_n) * _ROOM + len(self.used) * 2.0**-530)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add."""
        from dpvb.models.mixtures import scores_numba

        at = self.at
        rows: Any = slice(None) if weights.all() else np.flatnonzero(weights)
        factor_kn = self._clipped[0][:, rows] * (weights[rows] * (1.0 / grid.step))
        scores_numba.add(
            at.x_nd[rows],
            at.count_np[rows],
            at.mean_kd,
            at.inverse_kdd,
            at.rate_kp,
            np.stack(at.clip.shape.pairs, axis=1),
            factor_kn,
            *at.clip.scales,
            # No entry is larger than the bound: so many stay below 2⁵³ together.
            max(1, int(2.0**52 * grid.step / grid.bound)),
            np.array(self.used),
            out,
        )


_HOME = ("first", "second", "third")


@dataclass(frozen=True)
class MixtureModel(Model[MixturePosterior, MixedRows]):
    """The model; every field is public.

    Attributes:
        n_components: K, the largest number of components.
        columns: what is declared of the columns.
        prune: whether fewer components are kept where the released number of rows is small.
        estimate: "posterior" (variational Bayes) or "map" (private EM).
        prior: weight of the priors; 0: none.
        n_steps: J; None: planned.
        earlier: groups that the components start from, and are shrunk towards; as many as there are components.
        check: share of the budget for tables of all pairs of columns; 0: none are released.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    columns: MixedColumns
    prune: bool = True
    estimate: PosteriorOrMAP = "posterior"
    prior: float = 1.0
    n_steps: int | None = None
    earlier: EarlierGroups | None = None
    check: float = 0.0

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1, high=10**4)
        check_choice("estimate", self.estimate, ESTIMATES)
        check_number("prior", self.prior, low=0, high=1e9)
        if self.n_steps is not None:
            check_integer("n_steps", self.n_steps, low=1, high=10**6)
        if check_number("fidelity_share", self.check, low=0, high=0.5) and not self.pairs.places:
            raise ParameterError("fidelity_share must be 0 for a table of one column: it pays for tables of two.")

    @property
    def steps(self) -> int:
        """J."""
        return tuned.NUM_STEPS[self.columns.kind] if self.n_steps is None else self.n_steps

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Counts, categories and scores: of one component in the first phases, of K at every step."""
        count, cells, scores = self.columns.weights
        blocks: dict[str, Block] = {}
        for k, end, phase in [*((1, f"_{phase}", phase) for phase in _HOME), (self.n_components, "", "step")]:
            options: dict[str, Any] = {"phase": phase, "average": False}
            blocks[f"count{end}"] = Block((k,), 1.0, "nonnegative", weight=count, **options)
            if self.columns.sizes:
                bound, shape = math.sqrt(len(self.columns.sizes)), (k, sum(self.columns.sizes))
                blocks[f"categories{end}"] = Block(shape, bound, "nonnegative", weight=cells, **options)
            if self.columns.clip.size:
                blocks[f"scores{end}"] = Block((k, self.columns.clip.size), 1.0, weight=scores, **options)
        if self.check:
            blocks["pairs"] = Block((self.pairs.length,), self.pairs.bound, "nonnegative", "last")
        return blocks

    @property
    def pairs(self) -> Pairs:
        """Tables of two columns."""
        return Pairs(self.columns)

    @property
    def schedule(self) -> Schedule:
        """A tenth of the mixture's budget for the one component, equal noise at every step; averages are kept in q."""
        home = (1 - self.check) * tuned.HOME / len(_HOME)
        return Schedule((1.0,) * self.steps, {**dict.fromkeys(_HOME, home), "last": self.check})

    def init(self, rng: np.random.Generator) -> MixturePosterior:
        """One component in the middle of the ranges, and directions that no data have touched."""
        k, d, v, p = self.n_components, self.columns.numbers, sum(self.columns.sizes), len(self.columns.max_counts)
        direction_kd, tilt_kv, tilt_kp = (rng.standard_normal((k, width)) for width in (d, v, p))
        home = Components.public(d, self.columns.most_p, self.columns.sizes)
        sums, home_sums = (RunningCounts(np.zeros(n), np.zeros((n, v))) for n in (k, 1))
        cell_c = np.zeros(self.pairs.length if self.check else 0)
        return MixturePosterior(home, home, sums, home_sums, direction_kd, tilt_kv, tilt_kp, cell_c)

    def e_step(self, q: MixturePosterior, batch: MixedRows, blocks: Mapping[str, Block]) -> Contributions:
        """Responsibilities, categories, and scores of every row by itself; or its cells."""
        if "pairs" in blocks:
            return {"pairs": self.pairs.cells(batch)}
        name = next(name for name in blocks if name.startswith("count"))
        is_home = name != "count"
        now = q.home if is_home else q.now
        with np.errstate(all="ignore"):
            at = Coordinates.of(self.columns.clip, now, batch)
            if is_home:
                r_kn = np.ones((1, len(batch.sound_n)))
            else:
                log_kn = self._log_joint(now, batch, at, expected=self.estimate == "posterior")
                log_kn -= log_kn.max(axis=0)
                r_kn = np.exp(log_kn, out=log_kn)
                r_kn /= sum(r_kn)  # one after the other: a row's own order, whatever else is there
            r_kn *= batch.sound_n
            whole_nk = np.ascontiguousarray(r_kn.T)
            if len(r_kn) < blocks[name].shape[0]:
                whole_nk = np.zeros((len(batch.sound_n), *blocks[name].shape))
                whole_nk[:, list(now.used)] = r_kn.T
            parts: dict[str, Any] = {"count": Rows(whole_nk), "scores": ComponentScores(at, r_kn, now.used)}
            if self.columns.sizes:
                parts["categories"] = Kron(whole_nk, categorical.one_hot(batch.code_nj, self.columns.sizes))
        return {name: parts[name.split("_")[0]] for name in blocks}

    def log_joint(self, now: Components, rows: MixedRows, *, expected: bool = False) -> Floats:
        """Log-density of every row with every component in use, (n, k), in nats.

        Args:
            expected: whether logarithms of parameters are expected ones under their posterior, or those of means.
        """
        at = Coordinates.of(self.columns.clip, now, rows)
        return np.ascontiguousarray(self._log_joint(now, rows, at, expected=expected).T)

    def _log_joint(self, now: Components, rows: MixedRows, at: Coordinates, *, expected: bool) -> Floats:
        used, d = list(now.used), self.columns.numbers
        number_k, expected_kv = now.number_k[used], now.expected_kv[used]
        log_kn = gaussian.log_density(rows.x_nd, at.square_kn, now.root_kdd[used], self.columns.gaps)
        log_kn += poisson_log_density(rows.count_np, now.rate_kp[used]).T if self.columns.max_counts else 0.0
        log_kv = np.log(categorical.normalised(expected_kv, self.columns.sizes))
        log_k = np.log(number_k / number_k.sum())
        if expected:
            log_kv = digamma(expected_kv) - digamma(categorical.totals(expected_kv, self.columns.sizes))
            log_k = digamma(number_k) - digamma(number_k.sum()) + gaussian.expected_correction(number_k, d)
        log_kn += categorical.log_density(rows.code_nj, log_kv, self.columns.sizes).T if self.columns.sizes else 0.0
        log_kn += log_k[:, None]
        return log_kn

    def score(self, q: MixturePosterior, rows: MixedRows) -> Floats:
        """Log-density of each row, (n,), in nats, of numbers in [-1, 1]; NaN for a faulty one."""
        return np.asarray(logsumexp(self.log_joint(q.now, rows), axis=1) * rows.sound_n)

    def started(self, s: Estimate, q: MixturePosterior) -> MixturePosterior:
        """A step of the one component; after the last of them, all components, whose number follows from it."""
        q = self.home_step(q, self._released(s, f"_{s.phase}"))
        if s.phase != _HOME[-1]:
            return q
        if self.earlier is not None:
            return replace(q, now=self.earlier.start(float(q.home.number_k[0]), self.columns.sizes))
        mu = self.run_precision(s.noise_std(f"count_{s.phase}"))
        rows_k, _ = q.home_sums.rows(self.columns.sizes)
        number = self.kept(float(rows_k[0]), mu) if self.prune else self.n_components
        return replace(q, now=self.split(q, number))

    def m_step(self, s: Estimate, q: MixturePosterior) -> MixturePosterior:
        """A step of all components."""
        released = self._released(s, "")
        return self.component_step(q, released, self.step_size(q, released))

    def finished(self, s: Estimate, q: MixturePosterior) -> MixturePosterior:
        """Tables of two columns in addition to the components."""
        return replace(q, cell_c=s.noisy("pairs"), cell_std=s.noise_std("pairs"))

    def home_step(self, q: MixturePosterior, new: ReleasedSums) -> MixturePosterior:
        """Return the one component after a release of its own: the mean of its counts, and a step of its scores."""
        columns = self.columns
        sums = q.home_sums.averaged(new, 1 / (q.home_sums.releases + 1))
        number_k, std = sums.rows(columns.sizes)
        row_k, cell_std = np.maximum(number_k, 1.0), math.sqrt(sums.share) * sums.cell_std
        table_v = categorical.marginals(sums.cell_kv[0], cell_std, columns.sizes)
        public = Components.public(columns.numbers, columns.most_p, columns.sizes)
        home = self._moved(q.home, public, new, number_k, max(2 * std, 1.0), 1.0, self.prior)
        home = replace(home, number_k=row_k, expected_kv=row_k[:, None] * table_v)
        return replace(q, home=home, now=home, home_sums=sums)

    def step_size(self, q: MixturePosterior, new: ReleasedSums) -> float:
        """Return the weight of a release: 1 at first, and for some of the steps where noise is small; then it falls."""
        columns = self.columns
        t, k = q.sums.releases + 1, len(q.now.used)
        noise = k * new.score_std * math.sqrt(columns.shape.size) / columns.clip.scales[1] / q.home.number_k[0]
        early = columns.shape.size > 0 and any(noise < calm and t <= part * self.steps for calm, part in tuned.CALM)
        return 1.0 if t == 1 or early else float((t + 1) ** -tuned.DECAY[columns.kind])

    def component_step(self, q: MixturePosterior, new: ReleasedSums, rho: float) -> MixturePosterior:
        """Return all components after a release: equations 3 to 5 of docs/theory/mixtures.md."""
        columns, prior, earlier = self.columns, self.prior, self.earlier
        used = list(q.now.used)
        sums = q.sums.averaged(new, rho)
        number_k, std = sums.rows(columns.sizes)
        k, all_rows = len(used), q.home.number_k[0]
        towards = replace(q.home, root_kdd=relative_std(k) * q.home.root_kdd)
        least = max(2 * std, all_rows / (20 * k), 1.0)
        weight = prior if earlier is None else 0.0
        now = self._moved(q.now, towards, new, number_k, least, rho, weight)
        if earlier is not None:
            now = earlier.joined(q.now, now, number_k, rho, columns.clip.inefficiency)
        base_v = self._base(q)
        cell_std, row_k = math.sqrt(sums.share) * sums.cell_std, np.maximum(number_k, tuned.LEAST_ROWS * std)
        expected_kv = categorical.read(sums.cell_kv, row_k, base_v, cell_std, columns.sizes)
        weight_k = np.zeros(len(number_k))
        weight_k[used] = row_k[used] + max(prior, 1e-9) / k
        if earlier is not None:
            weight_k, expected_kv = weight_k + earlier.share_k, expected_kv + earlier.cell_kv
        return replace(q, now=replace(now, number_k=weight_k, expected_kv=expected_kv), sums=sums)

    def _base(self, q: MixturePosterior) -> Floats:
        """Return the probabilities that noisy counts are shrunk towards: of all rows, or of each earlier group."""
        expected_kv = q.home.expected_kv if self.earlier is None else self.earlier.groups.expected_kv
        base_kv = categorical.normalised(expected_kv, self.columns.sizes)
        return base_kv[0] if self.earlier is None else base_kv

    def _moved(
        self,
        now: Components,
        towards: Components,
        new: ReleasedSums,
        number_k: Floats,
        least: float,
        rho: float,
        prior: float,
    ) -> Components:
        """Components after a step along their noisy scores.

        Args:
            now: where the scores were taken.
            towards: the one component towards which the prior shrinks.
            new: noisy scores, and their noise.
            number_k, least: rows of each component, and the fewest that a score is divided by.
            rho: size of the step without noise.
            prior: weight of the prior.
        """
        columns, score_ku, std = self.columns, new.score_ku, new.score_std
        clip = columns.clip
        (a1, a2), (offset, g1, g2), d = clip.scales, clip.constants, columns.numbers
        row_k = np.maximum(number_k, least)
        shift_kf = score_ku[:, : clip.first] / (a1 * g1 * row_k[:, None])
        second_ke = score_ku[:, clip.first :] / a2
        second_ke[:, :d] -= number_k[:, None] * offset
        second_ke /= (g2 * row_k)[:, None]
        noise1_k, noise2_k = std / (a1 * g1 * row_k), std / (a2 * g2 * row_k)
        with np.errstate(divide="ignore"):
            rho1_k = rho * np.minimum(1.0, tuned.MEAN_NOISE / (noise1_k * math.sqrt(max(clip.first, 1))))
            rho2_k = rho * np.minimum(1.0, tuned.COVARIANCE_NOISE / (noise2_k * math.sqrt(max(clip.shape.size, 1))))
        length_k = np.linalg.norm(shift_kf, axis=1)
        if std > 0:
            shift_kf *= np.minimum(1.0, tuned.LONGEST / np.maximum(length_k, 1e-300))[:, None]
        shift_kf *= rho1_k[:, None]
        stretch_kdd = clip.shape.matrix(rho2_k[:, None] * second_ke)
        rate_kp = moved_rates(now.rate_kp, shift_kf[:, d:], columns.most_p)
        # Part of the spread that the mean explains, but for its noise.
        taken_kdd = shift_kf[:, :d, None] * shift_kf[:, None, :d] * clip.shape.together
        taken_kdd -= (rho1_k * noise1_k)[:, None, None] ** 2 * np.eye(d)
        limits = tuned.FACTORS if std > 0 else (0.0, math.inf)
        mean_kd, covariance_kdd = gaussian.moved(
            now.mean_kd, now.root_kdd, shift_kf[:, :d], stretch_kdd - taken_kdd, limits
        )
        to_mean_k = prior * rho * tuned.PRIOR_ROWS / (prior * tuned.PRIOR_ROWS + row_k)
        to_spread_k = (prior * rho * tuned.FREEDOM / (prior * tuned.FREEDOM + row_k))[:, None, None]
        mean_kd += to_mean_k[:, None] * (towards.mean_kd - mean_kd)
        rate_kp += to_mean_k[:, None] * (towards.rate_kp - rate_kp)
        covariance_kdd += to_spread_k * (towards.root_kdd @ np.swapaxes(towards.root_kdd, 1, 2) - covariance_kdd)
        wander_k = (1 - rho1_k) ** 2 * now.wander_k + (rho1_k * noise1_k) ** 2
        return replace(now, mean_kd=mean_kd, root_kdd=gaussian.root(covariance_kdd), rate_kp=rate_kp, wander_k=wander_k)

    def run_precision(self, std: float) -> float:
        """Root of Σ 1/σ² of a whole run but for its check, as its noise is laid out.

        Args:
            std: noise of the number of rows in one of the first releases.
        """
        noise = std * self.columns.weights[0] / math.hypot(*self.columns.weights)
        return math.sqrt(len(_HOME) / tuned.HOME) / noise if noise > 0 else math.inf

    def allowed(self, number: float, mu: float) -> float:
        """How many components so many rows allow; mu: root of the budget Σ 1/σ²."""
        columns = self.columns
        size = max(
            columns.shape.size, len(columns.max_counts), (sum(columns.sizes) - len(columns.sizes)) / tuned.CELLS, 1
        )
        return min(max(number, 0.0) * min(mu, 1e100) / (tuned.NOISES * size), number / tuned.ROWS)

    def kept(self, number: float, mu: float) -> int:
        """Return how many components the released number of rows allows, at most K; mu: root of the budget Σ 1/σ²."""
        allowed = min(float(self.n_components), self.allowed(number, mu))
        return min(self.n_components, max(2, math.floor(allowed))) if allowed >= 1 else 1

    def split(self, q: MixturePosterior, number: int) -> Components:
        """The start of so many components: public random directions around the one that came first."""
        columns = self.columns
        home, used = q.home, np.arange(len(q.direction_kd)) < number
        direction_kd, several = q.direction_kd - q.direction_kd[used].mean(axis=0), float(number > 1)
        if number == 2 and columns.numbers > 1:  # More directions never all miss it.
            direction_kd = _along(direction_kd, home.root_kdd[0])
        # As far apart as rows are, however few directions there are.
        direction_kd *= math.sqrt(number * columns.numbers / max(float(np.square(direction_kd[used]).sum()), 1e-300))
        number_k = np.where(used, home.number_k[0] / number, 0.0)
        tilted_kv = home.expected_kv * np.exp(several * tuned.TILT * q.tilt_kv)
        return Components(
            number_k,
            home.mean_kd + direction_kd @ home.root_kdd[0].T * several,
            np.repeat(relative_std(number) * home.root_kdd, len(used), axis=0),
            np.clip(home.rate_kp * np.exp(several * tuned.RATE_TILT * q.tilt_kp), 1e-3, columns.most_p),
            np.maximum(number_k, 1.0)[:, None] * categorical.normalised(tilted_kv, columns.sizes),
            np.repeat(home.wander_k, len(used)),
        )

    def variances(self, q: MixturePosterior) -> tuple[Components, ComponentVariances]:
        """Return the components that are in use, and how sure they are."""
        columns, earlier = self.columns, self.earlier
        used = np.array(q.now.used)
        now = q.now.taken(used)
        all_rows = float(now.number_k.sum())
        weight_k = now.number_k / all_rows
        std = q.sums.rows(columns.sizes)[1] if q.sums.releases else 0.0
        # Noise of a share of the noisy counts, each with noise of its own.
        noise_k = (std / all_rows) ** 2 * ((1 - weight_k) ** 2 + (len(used) - 1) * weight_k**2)
        naive_weight_k = weight_k * (1 - weight_k) / (all_rows + 1)
        inefficiency, row_k, more_k = columns.clip.inefficiency, now.number_k + tuned.PRIOR_ROWS, np.zeros(len(used))
        if earlier is not None:
            row_k, more_k = row_k - earlier.share_k, earlier.row_k
        seen_k = inefficiency / (inefficiency / row_k + now.wander_k)
        naive_mean_k = inefficiency / (row_k + more_k)
        probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
        total_kv = categorical.totals(now.expected_kv, columns.sizes)
        naive_kv = probability_kv * (1 - probability_kv) / (total_kv + 1)
        cell_std = math.sqrt(q.sums.share) * q.sums.cell_std
        base_v, number_k = self._base(q), now.number_k - (0.0 if earlier is None else earlier.share_k)
        share_kv = categorical.shares(q.sums.cell_kv[used], number_k, base_v, cell_std, columns.sizes)
        noise_kv = share_kv * (cell_std / np.maximum(total_kv, 1.0)) ** 2
        variances = ComponentVariances(
            weight_k / (all_rows + 1) + (std / all_rows) ** 2,
            naive_weight_k + noise_k,
            naive_weight_k,
            inefficiency / (seen_k + more_k),
            naive_mean_k,
            np.minimum(naive_kv + noise_kv, 0.25),
            naive_kv,
        )
        return now, variances

    def marginals(self, q: MixturePosterior) -> Marginals:
        """Return what was released of each column by the one component, and of the pairs."""
        home, sums = q.home, q.home_sums
        number_1 = np.maximum(sums.rows(self.columns.sizes)[0], 1.0)
        std_d = np.sqrt(np.square(home.root_kdd[0]).sum(axis=1))
        wander = math.sqrt(home.wander_k[0])
        share_v = sums.cell_kv[0] / number_1
        return Marginals(
            number_1,
            home.mean_kd[0],
            std_d * wander,
            home.rate_kp[0],
            np.sqrt(home.rate_kp[0]) * wander,
            share_v,
            np.full(len(share_v), math.sqrt(sums.share) * sums.cell_std / number_1[0]),
            q.cell_c,
            np.array([q.cell_std]),
        )

    def _released(self, s: Estimate, end: str) -> ReleasedSums:
        """Return what was released last, of blocks whose names have this end."""
        columns = self.columns
        count_k = s.noisy(f"count{end}")
        none, widths = np.zeros((len(count_k), 0)), {"categories": sum(columns.sizes), "scores": columns.clip.size}
        cell_kv, score_ku = (s.noisy(f"{name}{end}") if width else none for name, width in widths.items())
        cell_std, score_std = (s.noise_std(f"{name}{end}") if width else 0.0 for name, width in widths.items())
        return ReleasedSums(count_k, cell_kv, score_ku, s.noise_std(f"count{end}"), cell_std, score_std)


def _along(direction_kd: Floats, root_dd: Floats) -> Floats:
    """Directions turned towards the axis along which rows spread most, where they would miss it."""
    value_d, vector_dd = np.linalg.eigh(root_dd @ root_dd.T)
    axis_d = np.linalg.solve(root_dd, vector_dd[:, -1]) * math.sqrt(value_d[-1])
    part_k = direction_kd @ axis_d
    least_k = tuned.ALONG * np.linalg.norm(direction_kd, axis=1)
    return direction_kd + np.outer(np.copysign(np.maximum(np.abs(part_k), least_k), part_k) - part_k, axis_d)


def relative_std(number: int) -> float:
    """Standard deviations of one of several components, over those of all rows."""
    return math.sqrt(0.5) if number > 1 else 1.0


# Counts of a mixture: Poisson columns, their scores (x - λ_k)/√λ_k, and updates.


def poisson_log_density(count_np: Floats, rate_kp: Floats) -> Floats:
    """Log-probability of every row under every component, (n, K), in nats."""
    # Row by row in memory: sums over an array's last axis follow its layout, and one row has another than many.
    count_np = np.ascontiguousarray(count_np)
    each_nkp = count_np[:, None, :] * np.log(rate_kp) - rate_kp - gammaln(count_np + 1)[:, None, :]
    return np.asarray(np.add.reduce(each_nkp, axis=2))


def moved_rates(rate_kp: Floats, shift_kp: Floats, most_p: Floats) -> Floats:
    """Rates after a step of so many standard deviations, within public limits."""
    return np.clip(rate_kp + np.sqrt(rate_kp) * shift_kp, tuned.LEAST_RATE * np.minimum(most_p, 1.0), most_p)
