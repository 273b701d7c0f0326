"""Linear regression from one release of all second moments, its noise in the posterior; unit: a row.

    z_n = (x_n, a y_n),   S = Σ z zᵀ in blocks A = Σ x xᵀ, b = Σ x y, c = Σ y²,   h = b - A m_0 = A(m - m_0) + errors

==================  =============================================================================
paper               code
==================  =============================================================================
S                   block "moments", of norm ‖z‖² ≤ 1 + a²; released once
s_A, s_b            moment_std, and over √2·a: noise stds of a diagonal entry of A and of b
V                   noise_ee: σ²A + s_b² I + (s_A²/2)(‖m‖² I + m mᵀ), the variance of h by the delta method
==================  =============================================================================

For comparison with `linear`: where there are many columns, the noise of A is far larger than that of scores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Symmetric
from dpvb.models.regression import ridge, tuned
from dpvb.models.regression.moments import RowMoments, read_moments
from dpvb.models.regression.ridge import Weights
from dpvb.models.regression.scaling import Declared, Scaling, check_fields
from dpvb.rows.regression import DesignRows


@dataclass(frozen=True)
class SecondMoments:
    """What was released; public.

    Attributes:
        moment_dd: noisy Σ z zᵀ, (d + 1, d + 1), and one more row where a constant was added.
        moment_std: noise std of a diagonal entry.
    """

    moment_dd: Symmetric
    moment_std: Nonnegative


@dataclass(frozen=True)
class _Reading:
    """A posterior of the weights in the eigenbasis, and σ² with the std of its error."""

    mean_e: Floats
    covariance_ee: Floats
    naive_ee: Floats
    variance: float
    variance_std: float


@dataclass(frozen=True)
class OneRelease:
    """The model; every field is public, and as in `linear.Linear`."""

    n_features: int
    intercept: float = 0.0
    alpha: float | None = None
    declared: Declared | None = None

    def __post_init__(self) -> None:
        check_fields(self.n_features, 1, self.intercept, self.alpha, self.declared)

    @property
    def _columns(self) -> Declared:
        return self.declared or Declared.plain(self.n_features)

    @property
    def _width(self) -> int:
        return self.n_features + (self.intercept == 0) + 1

    @property
    def blocks(self) -> Mapping[str, Block]:
        """All second moments."""
        return {"moments": Block((self._width, self._width), 1.0 + tuned.RESPONSE_SIZE**2, "gram", "last")}

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> SecondMoments:
        """No row."""
        return SecondMoments(np.zeros((self._width, self._width)), 1.0)

    def e_step(self, q: SecondMoments, batch: DesignRows, blocks: Mapping[str, Block]) -> Contributions:
        """Every row's z zᵀ."""
        x_nd, y_n1 = batch.x_nd, tuned.RESPONSE_SIZE * batch.y_n[:, None]
        if self.intercept == 0:
            added_n1 = np.full((len(x_nd), 1), tuned.ADDED_CONSTANT)
            x_nd = np.hstack([added_n1, math.sqrt(1 - tuned.ADDED_CONSTANT**2) * x_nd])
        return {"moments": Gram(np.hstack([x_nd, y_n1]), np.ones(len(x_nd)))}

    def m_step(self, s: Estimate, q: SecondMoments) -> SecondMoments:
        """The release itself: all else is a reading of it."""
        return SecondMoments(s.read("moments"), s.noise_std("moments"))

    def _moments(self, q: SecondMoments) -> RowMoments:
        column, inner = (self.intercept, False) if self.intercept > 0 else (tuned.ADDED_CONSTANT, True)
        return read_moments(q.moment_dd[:-1, :-1], q.moment_std, column, inner=inner)

    def _scaling(self, q: SecondMoments, moments: RowMoments) -> Scaling:
        """The prior's widths, by the spreads of numeric columns as second moments show them; rows stay as they are."""
        scaling, numeric_j = Scaling.start(self._columns), self._columns.numeric_j
        mean_d, number = moments.basis_de @ moments.mean_e, max(moments.number, 1.0)
        square_j = (np.diag(moments.matrix_dd) / number - mean_d**2)[numeric_j]
        range_j = self._columns.reach_d[numeric_j]
        seen_j = np.clip(square_j, (tuned.UNSEEN_SPREAD * range_j) ** 2, (tuned.LARGEST_SPREAD * range_j) ** 2)
        least_j = np.minimum((tuned.UNSEEN_SPREAD * range_j) ** 2, seen_j)
        low_j = np.clip(seen_j - tuned.LOW_STD * q.moment_std / number, least_j, seen_j)
        width_d, wide_d, unseen_d = scaling.width_d.copy(), scaling.wide_d.copy(), scaling.unseen_d.copy()
        width_d[numeric_j], wide_d[numeric_j] = 1.0 / np.sqrt(seen_j), 1.0 / np.sqrt(low_j)
        unseen_d[numeric_j] = low_j < seen_j / 4.0
        return replace(scaling, width_d=width_d, wide_d=wide_d, unseen_d=unseen_d)

    def _prior(
        self, scaling: Scaling, moments: RowMoments, width_d: Floats, taus: tuple[float, ...], size: float
    ) -> ridge.Prior:
        """The prior of m - m_0 in the eigenbasis, for a y of so large a standard deviation."""
        columns = (self._columns, size * width_d, taus, self.intercept, self.alpha, tuned.INTERCEPT_STD * size)
        return ridge.of_columns(scaling, moments, np.zeros(self.n_features), *columns)

    def _read(self, q: SecondMoments, moments: RowMoments, scaling: Scaling, *, table: bool) -> tuple[_Reading, Floats]:
        """The posterior by three passes over its own variance, and its prior covariance in the eigenbasis."""
        first, a = int(self.intercept == 0), tuned.RESPONSE_SIZE
        room = math.sqrt(1 - tuned.ADDED_CONSTANT**2) if first else 1.0
        sd, value_e = q.moment_std / room**2, moments.eigenvalue_e
        score_e = moments.basis_de.T @ q.moment_dd[first:-1, -1] / a / room
        response_sd, number = q.moment_std / math.sqrt(2) / a / room, max(moments.number, 1.0)
        total, total_sd = float(q.moment_dd[-1, -1]) / a**2, q.moment_std / a**2
        start_e = float(np.clip(moments.constant_e @ score_e / number, -1.0, 1.0)) * moments.constant_e
        mean_e, variance = start_e, float(np.clip(total / number, 1e-9, 1.0))
        widths = (scaling.wide_d, (tuned.TABLE_TAU,)) if table else (scaling.width_d, ridge.TAUS)
        for _ in range(tuned.DELTA_ROUNDS):
            size = math.sqrt(min(max(total / number, variance), 1.0))
            prior = self._prior(scaling, moments, *widths, size)
            length2 = float(mean_e @ mean_e)
            noise_ee = 0.5 * sd**2 * np.outer(mean_e, mean_e)
            noise_ee.flat[:: len(mean_e) + 1] += response_sd**2 + 0.5 * sd**2 * length2
            score = ridge.NoisyScore(
                score_e - value_e * start_e,
                np.zeros(len(mean_e)),
                variance * np.diag(value_e),
                np.full(len(mean_e), 1.0 / variance),
                noise_ee,
            )
            moved_e, covariance_ee = ridge.posterior(score, prior)
            mean_e = start_e + moved_e
            least = max(1e-12, tuned.LEAST_VARIANCE_STD * total_sd / number)
            variance = float(np.clip((total - 2 * mean_e @ score_e + value_e @ mean_e**2) / number, least, 1.0))
        _, naive_ee = ridge.posterior(replace(score, noise=0.0), prior)
        errors = total_sd**2 + 4 * length2 * response_sd**2 + length2**2 * sd**2
        std = math.sqrt(2 * variance**2 / number + errors / number**2)
        return _Reading(mean_e, covariance_ee, naive_ee, variance, std), prior.covariance(prior.taus[0])

    def scale(self, q: SecondMoments) -> tuple[float, float]:
        """σ², and the standard deviation of its error."""
        moments = self._moments(q)
        read, _ = self._read(q, moments, self._scaling(q, moments), table=False)
        return read.variance, read.variance_std

    def reach(self, q: SecondMoments) -> float:
        """The most that a residual counts in σ²: the length of the range of y."""
        return 2.0

    def weights(self, q: SecondMoments) -> Weights:
        """Posterior of the weights for predictions, in the coordinates of x."""
        return self._weights(q, table=False)

    def table(self, q: SecondMoments) -> Weights:
        """Posterior of the weights for intervals, in the coordinates of x."""
        return self._weights(q, table=True)

    def _weights(self, q: SecondMoments, *, table: bool) -> Weights:
        moments = self._moments(q)
        scaling, basis_de = self._scaling(q, moments), moments.basis_de
        read, prior_ee = self._read(q, moments, scaling, table=table)
        covariance, naive, prior = (
            basis_de @ part @ basis_de.T for part in (read.covariance_ee, read.naive_ee, prior_ee)
        )
        found = Weights.alone(basis_de @ read.mean_e, covariance, naive)
        return replace(found, prior=prior, unseen_d=scaling.unseen_d) if table else found
