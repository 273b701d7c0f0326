"""Variational inference by private gradients (Jälkö, Dikmen & Honkela 2017); unit: a row.

    q(θ) = N(μ, LLᵀ),   θ_t = μ_t + L_t ε_t,   Σ_n clip(∇_θ log p(x_n | θ_t)) + noise       released at each step

All rows share the draw ε_t, which is public. So one vector of P numbers is all that is released at a step: the
gradients of the ELBO by μ and by L are linear images of it, computed outside the wall, where the gradient of the prior
is added without noise. ε = 0 is noisy gradient descent for a point (Abadi et al. 2016). Adam moves μ. The covariance is
read from the same releases by the regression of Salimans & Knowles (2013); the more noise they have, the more it is
shrunk to the last release, Σ_n g_n².

==============  ==============================================================================
paper           code
==============  ==============================================================================
μ; (LLᵀ)⁻¹      mean_p, which Adam moves; precision: diagonal (P,), or (P, P)
ε; θ            draw_p; point_p
g_n; Σ g_n      e_step's rows; s.noisy("gradient")
E[-∇² log p]    regression.curvature; K, with the guess Σ_n g_n² (Gauss-Newton, as in Khan et al. 2018)
v               variance of the noise in the averaged gradient: regression.noise_part · sd²
Σ               inverse of the prior's curvature plus K(K + v)⁻¹K: what noisy gradients tell of θ
==============  ==============================================================================

The gradients of all rows of a batch are compiled once, and each row's bits do not depend on the batch that it is in.
`jax.vmap` computes rows together, and a compiler may treat a row by its place in the batch: the last few rows of a
vectorised loop, or the edge of a matrix product. So rows go in batches of one fixed shape, and before any data are seen
the compiled program is tried: with the same row at every place, and with mixtures of rows, at several θ. The program
has no branch on data (vmap turns them into selections), so that a place with other roundings shows on ordinary numbers.
If there is such a place, rows are computed one after the other by one loop body, which cannot know a row's place; that
is slower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block, Contribution, Contributions, Grid, check_shape, positive_semidefinite
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.model import Model
from dpvb.guards.arrays import Bools, Floats, Ints
from dpvb.guards.domains import Covariance, Symmetric
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models.gradients import tuned
from dpvb.models.gradients.density import Density, optional

Singles = NDArray[np.float32]
# Sizes of the rows that are tried at all places, and number of mixtures of them.
_SCALES = (0.0, 1.0, 1e-3, 1e3, 1e-30)
_MIXTURES = 4


class Gradients:
    """∇_θ of a function of θ (P,) and a row's parts, for all rows -> (n, P); float32, on the CPU.

    Args:
        function: (θ, *parts) -> scalar in JAX; pure.
        num_parameters, shapes: P and the shape of each part of a row; public.
        row_by_row: True computes one row after the other without trying the faster way; None tries.

    Attributes:
        batch_size: number of rows that are computed together; public. Others are padded to a multiple of it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        num_parameters: int,
        shapes: Sequence[tuple[int, ...]],
        *,
        row_by_row: bool | None = None,
    ) -> None:
        jax = optional("jax")
        self._device = jax.devices("cpu")[0]
        self._default_device = jax.default_device
        self.batch_size, self._num_parameters, self._shapes = _batch_size(num_parameters), num_parameters, shapes
        gradient = jax.grad(function)
        self._compiled = jax.jit(jax.vmap(gradient, in_axes=(None, *(0 for _ in shapes))))
        self.row_by_row = not self._is_even() if row_by_row is None else row_by_row
        if self.row_by_row:
            self._compiled = jax.jit(lambda theta_p, *rows: jax.lax.map(lambda row: gradient(theta_p, *row), rows))

    def __call__(self, theta_p: NDArray[Any], rows: Sequence[NDArray[Any]]) -> Singles:
        """Gradients at θ of rows: each of their parts with n first."""
        size = self.batch_size
        with np.errstate(over="ignore"), self._default_device(self._device):
            theta = np.asarray(theta_p, dtype=np.float32)
            singles = [np.asarray(part, dtype=np.float32) for part in rows]
            batches = [
                self._batch(theta, [part[start : start + size] for part in singles])
                for start in range(0, len(singles[0]), size)
            ]
        if len(batches) == 1:
            return batches[0]
        return np.concatenate([np.empty((0, self._num_parameters), dtype=np.float32), *batches])

    def _batch(self, theta: Singles, rows: Sequence[Singles]) -> Singles:
        number = len(rows[0])
        if number < self.batch_size:
            rows = [self._padded(part) for part in rows]
        return np.asarray(self._compiled(theta, *rows), dtype=np.float32)[:number]

    def _padded(self, part: Singles) -> Singles:
        padded = np.zeros((self.batch_size, *part.shape[1:]), dtype=np.float32)
        padded[: len(part)] = part
        return padded

    def _is_even(self) -> bool:
        """Whether all places of a batch give the same bits for the same row, on public rows."""
        draw = np.random.default_rng(0)
        size, width = self.batch_size, sum(math.prod(shape) for shape in self._shapes)
        kinds = [scale * draw.standard_normal((2, width)) for scale in _SCALES]
        rows = np.vstack(
            [*kinds, draw.integers(0, 2, (2, width)), draw.integers(0, 9, (1, width)), np.ones((1, width))]
        )
        for theta_p in (np.zeros(self._num_parameters), draw.standard_normal(self._num_parameters)):
            alone = []
            for row in rows:
                bits = self(theta_p, _split(np.tile(row, (size, 1)), self._shapes)).view(np.int32)
                if (bits != bits[0]).any():
                    return False
                alone.append(bits[0])
            for _ in range(_MIXTURES):
                kind = draw.integers(0, len(rows), size)
                mixed = self(theta_p, _split(rows[kind], self._shapes))
                if (mixed.view(np.int32) != np.asarray(alone)[kind]).any():
                    return False
        return True


def _split(matrix: NDArray[Any], shapes: Sequence[tuple[int, ...]]) -> tuple[NDArray[Any], ...]:
    """Columns of rows (n, width) as parts of these shapes, with n first."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    columns = np.split(matrix, ends[:-1], axis=1)
    return tuple(part.reshape(len(matrix), *shape) for part, shape in zip(columns, shapes, strict=True))


def _batch_size(num_parameters: int) -> int:
    """Rows of a batch, a power of two."""
    size = tuned.MOST_ROWS
    while size > tuned.LEAST_ROWS and size * num_parameters > tuned.BATCH_NUMBERS:
        size //= 2
    return size


# Single-precision gradients, and their squares, as contributions.


@dataclass(frozen=True)
class SingleRows(Rows):
    """Dense float32 rows (n, P): as `Rows`, in compiled loops that read them once a pass.

    Squares of float32 numbers neither overflow nor underflow in float64, so that a sum of P of them errs by
    (P + 2)·2⁻⁵² relatively at most, in any order.

    Attributes:
        values: (n, P).
        faulty_n: rows that count as none, whatever their values; None: no such rows.
    """

    values: NDArray[np.float32]  # type: ignore[assignment]
    symmetric: bool = False
    faulty_n: Bools | None = None

    def of_block(self, block: Block, num_rows: int) -> Contribution:
        """Itself: its loops read single precision."""
        check_shape(self.values.shape, num_rows, *block.shape)
        return self

    def norms(self) -> Floats:
        """Upper bounds on the rows' norms; NaN or infinity where a row holds one, and the wall drops it."""
        from dpvb.models.gradients import rows_numba

        square_n = np.empty(len(self.values))
        rows_numba.squares(self.values, square_n)
        norm_n = np.sqrt(square_n) * (1.0 + (self.values.shape[1] + 8) * 2.0**-52)
        return norm_n if self.faulty_n is None else np.where(self.faulty_n, np.inf, norm_n)

    def accumulate(self, weights: Floats, grid: Grid, out: Ints) -> None:
        """Truncate every weighted entry and add; the grid is a power of two, so that dividing by it is exact."""
        from dpvb.models.gradients import rows_numba

        rows_numba.add(self.values, weights / grid.step, out)


Guide = Literal["mean_field", "full_rank", "point"]
GUIDES: tuple[Guide, ...] = get_args(Guide)
# Floor that keeps precisions positive.
_LEAST = 1e-6
# Parameters of a full-rank guide at most: its matrices have their square.
_MOST_FULL = 2000


@dataclass(frozen=True)
class VariationalState:
    """State of the fit; all public. Matrices are (P, P) for a full-rank guide, else diagonals (P,).

    Attributes:
        point_p: θ, where the next gradient is asked for; at the end the posterior mean.
        average_p: average of mean_p over the later steps.
        seed: seed of the public draws.
    """

    mean_p: Floats
    precision: Symmetric
    draw_p: Floats
    point_p: Floats
    average_p: Floats
    covariance: Covariance
    adam: Adam
    regression: CurvatureRegression
    seed: int
    step: int = 0


@dataclass(frozen=True)
class Variational(Model[VariationalState, tuple[NDArray[Any], ...]]):
    """The model; every field is public.

    Attributes:
        density: log p(row | θ) and log p(θ).
        guide: "mean_field", "full_rank" or "point" (no covariance).
        n_steps: T, number of gradients.
        clip_norm: bound on the norm of a row's gradient.
        learning_rate: Adam's first rate; it falls fivefold. None: 40/T, at most 1/2.
        init_scale: standard deviation of the guide at the start.
        row_by_row: see `Gradients`.

    Raises:
        ParameterError: for a field outside its range.
    """

    density: Density
    guide: Guide = "mean_field"
    n_steps: int = 200
    clip_norm: float = 1.0
    learning_rate: float | None = None
    init_scale: float = 0.1
    row_by_row: bool | None = None

    def __post_init__(self) -> None:
        check_choice("guide", self.guide, GUIDES)
        check_integer("n_steps", self.n_steps, low=1, high=10**7)
        check_number("clip_norm", self.clip_norm, low=1e-9, high=1e9)
        check_number("learning_rate", 1.0 if self.learning_rate is None else self.learning_rate, low=1e-9, high=1e9)
        check_number("init_scale", self.init_scale, low=1e-6, high=1e6)
        if self.guide == "full_rank":
            hint = "Use guide='mean_field' for more."
            check_integer(
                "parameters of a full_rank guide", self.density.num_parameters, low=1, high=_MOST_FULL, hint=hint
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields: compiled functions are compiled anew."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: its E-step writes nowhere, and what was compiled serves all releases."""
        return self

    @cached_property
    def gradients(self) -> Gradients:
        """The compiled gradient of a row."""
        density = self.density
        return Gradients(density.likelihood, density.num_parameters, density.shapes, row_by_row=self.row_by_row)

    @property
    def blocks(self) -> Mapping[str, Block]:
        """A gradient at each step; squared gradients of the rows at the end, unless the guide is a point."""
        shape = (self.density.num_parameters,)
        blocks = {"gradient": Block(shape, self.clip_norm, average=False)}
        if self.guide != "point":
            blocks["squares"] = Block(shape, tuned.SQUARE_BOUND * self.clip_norm**2, "nonnegative", "last")
        return blocks

    def init(self, rng: np.random.Generator) -> VariationalState:
        """The start that the density declares; only the seed of the draws is random."""
        start_p, seed, full = self.density.start.astype(np.float64), int(rng.integers(2**62)), self.guide == "full_rank"
        variance_p = np.full(len(start_p), self.init_scale**2 if self.guide != "point" else 0.0)
        precision_p = np.full(len(start_p), self.init_scale**-2)
        covariance, precision = (np.diag(p) if full else p for p in (variance_p, precision_p))
        adam, regression = Adam.start(len(start_p)), CurvatureRegression.start(len(start_p), full=full)
        return self._drawn(
            VariationalState(start_p, precision, start_p, start_p, start_p, covariance, adam, regression, seed)
        )

    def e_step(
        self, q: VariationalState, batch: tuple[NDArray[Any], ...], blocks: Mapping[str, Block]
    ) -> Contributions:
        """Gradient of every row of (x, y) or (x,), or its squares.

        A row that holds NaN contributes nothing, even if the density returns a number for it.
        """
        with np.errstate(over="ignore", under="ignore"):
            gradient_np, faulty_n = self.gradients(q.point_p, batch), ~np.isfinite(batch[0][:, 0])
            if "squares" in blocks:
                return {"squares": SingleRows(np.square(gradient_np), faulty_n=faulty_n)}
        return {"gradient": SingleRows(gradient_np, faulty_n=faulty_n)}

    def m_step(self, s: Estimate, q: VariationalState) -> VariationalState:
        """A step of Adam after a gradient."""
        t, sd = q.step + 1, s.noise_std("gradient")
        score_p, prior_p = s.noisy("gradient"), self.density.prior_gradient(q.point_p)
        # At θ the gradient of a quadratic differs from that at μ by this product, whose mean is zero: subtract it.
        gradient_p = score_p + prior_p + times(q.precision, q.point_p - q.mean_p)
        adam = q.adam.after(gradient_p)
        mean_p = q.mean_p + self._rate(t) * adam.step
        late = t - math.floor(tuned.AVERAGE_START * self.n_steps)
        average_p = q.average_p + (mean_p - q.average_p) / max(late, 1)
        moved = replace(q, mean_p=mean_p, average_p=average_p, adam=adam, step=t)
        if self.guide == "point":
            return self._drawn(moved)
        regression = q.regression.joined(q.point_p, score_p, prior_p, 1.0 / (late if late > 0 else t))
        guess_p = np.full(len(mean_p), self.init_scale**-2)
        curvature, error_p = regression.curvature(guess_p, guess_p, sd)
        # Where the curvature is uncertain, assume more of it: draws then stay near the mean, which costs little, while
        # drawing too widely costs accuracy.
        precision = bounded(plus(curvature, error_p)) + regression.prior_curvature(guess_p)
        return self._drawn(replace(moved, regression=regression, precision=bounded(precision, _LEAST)))

    def _drawn(self, q: VariationalState) -> VariationalState:
        """The state with the point of the next gradient, by draws in opposite pairs; the last point is the average."""
        if q.step == self.n_steps or self.guide == "point":
            return replace(q, point_p=q.average_p if q.step == self.n_steps else q.mean_p)
        draw_p = np.random.default_rng([q.seed, q.step // 2]).standard_normal(len(q.mean_p)) * (-1) ** q.step
        return replace(q, draw_p=draw_p, point_p=q.mean_p + spread(q.precision, draw_p))

    def _rate(self, t: int) -> float:
        """Adam's rate at step t."""
        default = min(tuned.RATE_REACH / self.n_steps, tuned.LARGEST_RATE)
        first = default if self.learning_rate is None else self.learning_rate
        return float(first * tuned.RATE_FALL ** (-t / self.n_steps))

    def finished(self, s: Estimate, q: VariationalState) -> VariationalState:
        """The covariance at the average; it counts the noise in the gradients that led there."""
        sd, error = s.noise_std("gradient"), s.noise_std("squares")
        guess_p = np.maximum(s.noisy("squares"), max(error, _LEAST))
        curvature, _ = q.regression.curvature(guess_p, np.hypot(tuned.GUESS_DOUBT * guess_p, error), sd)
        noise, prior = q.regression.noise_part * sd**2, q.regression.prior_curvature(guess_p)
        precision = information_through_noise(bounded(curvature), noise, _LEAST) + prior
        covariance, at = inverse(bounded(precision, _LEAST)), q.regression
        if noise > 0 or self.guide == "mean_field":
            return replace(q, covariance=covariance)
        # Without noise the regression has its own maximum, exact for a quadratic.
        mean_p = at.point_p + covariance @ (at.score_p + at.prior_p)
        return replace(q, covariance=covariance, average_p=mean_p, point_p=mean_p)


# Curvature by regression of noisy gradients on the points where they were taken (Salimans & Knowles 2013).
#
# For θ ~ N(μ, Σ), the coefficient of the regression of ∇ log p(θ) on θ is E[∇² log p] (Stein's identity). A Gaussian
# guide needs nothing else for its covariance. For a quadratic log p the coefficient is exact after enough points. The
# noise in the gradients has a known size, hence the coefficient has a known error, by which it is shrunk to a guess.


# Ridge, relative to the curvature, that keeps divisors positive.
_TINY = 1e-12


@dataclass(frozen=True)
class CurvatureRegression:
    """Weighted means and products of points, gradients of the likelihood, and of the prior.

    Attributes:
        point_p, score_p, prior_p: means, (P,).
        spread: covariance of the points: (P, P), or its diagonal (P,).
        with_score, with_prior: covariance of either gradient (first axis) with the points; as `spread`.
        score_variance_p: variance of the score, (P,).
        noise_part: noise variance of the mean score, over that of one score: the sum of the squared weights.
    """

    point_p: Floats
    score_p: Floats
    prior_p: Floats
    spread: Floats
    with_score: Floats
    with_prior: Floats
    score_variance_p: Floats
    noise_part: float = 1.0

    @classmethod
    def start(cls, num_parameters: int, *, full: bool) -> CurvatureRegression:
        """The start without any point; give the first point weight 1."""
        zero_p, zero = np.zeros(num_parameters), np.zeros((num_parameters,) * (2 if full else 1))
        return cls(zero_p, zero_p, zero_p, zero, zero, zero, zero_p)

    def joined(self, point_p: Floats, score_p: Floats, prior_p: Floats, weight: float) -> CurvatureRegression:
        """The regression with one more point, of a weight in (0, 1]; the others share the rest."""
        rest, d_p, e_p, f_p = 1.0 - weight, point_p - self.point_p, score_p - self.score_p, prior_p - self.prior_p
        product = np.outer if self.spread.ndim == 2 else np.multiply
        return CurvatureRegression(
            self.point_p + weight * d_p,
            self.score_p + weight * e_p,
            self.prior_p + weight * f_p,
            rest * (self.spread + weight * product(d_p, d_p)),
            rest * (self.with_score + weight * product(e_p, d_p)),
            rest * (self.with_prior + weight * product(f_p, d_p)),
            rest * (self.score_variance_p + weight * e_p**2),
            rest**2 * self.noise_part + weight**2,
        )

    def curvature(self, guess_p: Floats, doubt_p: Floats, noise: float) -> tuple[Floats, Floats]:
        """Curvature of the log-likelihood, (P, P) or its diagonal (P,), and the error of its diagonal, (P,).

        Args:
            guess_p: guess of the diagonal, positive; off the diagonal the guess is 0.
            doubt_p: standard deviation of that guess; that of an entry off the diagonal is in proportion.
            noise: standard deviation of the noise in a score.
        """
        solve = _full if self.spread.ndim == 2 else _diagonal
        # First with only the known noise. The residual may be larger, from small batches or if log p is not a
        # quadratic: then it is the noise.
        first, _ = solve(self, self.with_score, guess_p, doubt_p, guess_p, np.full(len(guess_p), noise**2))
        return solve(self, self.with_score, guess_p, doubt_p, guess_p, self._residual(first, noise**2))

    def prior_curvature(self, guess_p: Floats) -> Floats:
        """Curvature of the log-prior, in the form of `curvature`; gradients have no noise; guess_p sets the scale."""
        spread_p = self.spread if self.spread.ndim == 1 else np.diagonal(self.spread)
        slope_p = self.with_prior if self.spread.ndim == 1 else np.diagonal(self.with_prior)
        curvature_p = -slope_p / np.where(spread_p > 0, spread_p, 1.0)
        if self.spread.ndim == 1:
            return np.asarray(curvature_p)
        return _full(self, self.with_prior, curvature_p, guess_p, guess_p, np.zeros(len(guess_p)))[0]

    def _residual(self, curvature: Floats, noise: float) -> Floats:
        """Variance of the score about the regression, (P,), at least that of the noise."""
        if curvature.ndim == 2:
            explained_p = ((curvature @ self.spread) * curvature).sum(axis=1) + 2 * (curvature * self.with_score).sum(
                axis=1
            )
        else:
            explained_p = curvature**2 * self.spread + 2 * curvature * self.with_score
        unknowns = 1 + (len(curvature) if curvature.ndim == 2 else 1)
        freedom = 1.0 - unknowns * self.noise_part
        enough = freedom > tuned.LEAST_FREEDOM
        residual_p = (self.score_variance_p + explained_p) / freedom if enough else np.zeros(len(curvature))
        # A residual at the level of rounding is treated as none.
        residual_p = np.where(residual_p > 1e-9 * self.score_variance_p, residual_p, 0.0)
        return np.asarray(np.maximum(residual_p, noise))


def _diagonal(
    moments: CurvatureRegression, product_p: Floats, guess_p: Floats, doubt_p: Floats, scale_p: Floats, noise_p: Floats
) -> tuple[Floats, Floats]:
    """Each parameter is a ridge regression by itself."""
    ridge_p = moments.noise_part * noise_p / doubt_p**2
    total_p = moments.spread + ridge_p + _TINY / scale_p
    return (ridge_p * guess_p + _TINY * guess_p / scale_p - product_p) / total_p, doubt_p * np.sqrt(ridge_p / total_p)


def _full(
    moments: CurvatureRegression, product_pp: Floats, guess_p: Floats, doubt_p: Floats, scale_p: Floats, noise_p: Floats
) -> tuple[Floats, Floats]:
    """Each row is a ridge regression with a ridge of its own, in coordinates √scale·θ."""
    root_p = np.sqrt(scale_p)
    spread_e, basis_pe = np.linalg.eigh(moments.spread * np.outer(root_p, root_p))
    spread_e = np.maximum(spread_e, 0.0)
    ridge_p = moments.noise_part * noise_p / scale_p * (scale_p / doubt_p) ** 2
    ridge_p = ridge_p + 1e-9 * max(float(spread_e.max()), _TINY)
    right_pp = np.diag(ridge_p * guess_p / scale_p) - product_pp / root_p[:, None] * root_p
    rows_pp = (right_pp @ basis_pe) / (spread_e + ridge_p[:, None]) @ basis_pe.T
    error_p = doubt_p * np.sqrt(((ridge_p[:, None] / (spread_e + ridge_p[:, None])) * basis_pe**2).sum(axis=1))
    return 0.5 * (rows_pp + rows_pp.T) * np.outer(root_p, root_p), error_p


# Adam on noisy gradients (Kingma & Ba 2015); post-processing of releases.
#
# Noise has one size in all coordinates. If it hides the gradient, Adam's second moments are equal in all coordinates as
# well, so that noise does not drive coordinates of little curvature. A step that divides by curvature would let it.


# Keeps a divisor positive.
_LEAST_DIVISOR = 1e-12


@dataclass(frozen=True)
class Adam:
    """Decayed averages of gradients and of their squares, (P,), and how many there were."""

    first_p: Floats
    second_p: Floats
    count: int = 0

    @classmethod
    def start(cls, num_parameters: int) -> Adam:
        """The start, before any gradient."""
        return cls(np.zeros(num_parameters), np.zeros(num_parameters))

    def after(self, gradient_p: Floats) -> Adam:
        """Averages after one more gradient."""
        first_p = tuned.GRADIENT_DECAY * self.first_p + (1 - tuned.GRADIENT_DECAY) * gradient_p
        second_p = tuned.SQUARE_DECAY * self.second_p + (1 - tuned.SQUARE_DECAY) * gradient_p**2
        return Adam(first_p, second_p, self.count + 1)

    @property
    def step(self) -> Floats:
        """A step uphill, of size about 1 in each coordinate whose gradient keeps its sign."""
        first_p = self.first_p / (1 - tuned.GRADIENT_DECAY**self.count)
        second_p = self.second_p / (1 - tuned.SQUARE_DECAY**self.count)
        return np.asarray(first_p / (np.sqrt(second_p) + _LEAST_DIVISOR))


# Precisions of a guide: matrices (P, P) of a full-rank one, diagonals (P,) of a mean field.


def plus(matrix: Floats, diagonal_p: Floats) -> Floats:
    """A matrix of either form plus a diagonal."""
    return np.asarray(matrix + (np.diag(diagonal_p) if matrix.ndim == 2 else diagonal_p))


def times(matrix: Floats, vector_p: Floats) -> Floats:
    """A matrix of either form times a vector."""
    return np.asarray(matrix @ vector_p if matrix.ndim == 2 else matrix * vector_p)


def bounded(matrix: Floats, least: float = 0.0) -> Floats:
    """The nearest matrix of the same form whose eigenvalues are at least `least`."""
    if matrix.ndim == 1:
        return np.maximum(matrix, least)
    floor = least * np.eye(len(matrix))
    return np.asarray(positive_semidefinite(0.5 * (matrix + matrix.T) - floor) + floor)


def inverse(matrix: Floats) -> Floats:
    """Inverse of a positive matrix of either form."""
    return np.asarray(np.linalg.inv(matrix) if matrix.ndim == 2 else 1.0 / matrix)


def spread(precision: Floats, draw_p: Floats) -> Floats:
    """A draw from N(0, I) turned into one from N(0, precision⁻¹)."""
    if precision.ndim == 1:
        return np.asarray(draw_p / np.sqrt(precision))
    return np.asarray(np.linalg.solve(np.linalg.cholesky(precision).T, draw_p))


def information_through_noise(curvature: Floats, noise: float, least: float) -> Floats:
    """Precision K(K + v)⁻¹K that gradients of a nonnegative curvature K give of θ, with noise of variance v in them."""
    if curvature.ndim == 1:
        return np.asarray(curvature**2 / np.maximum(curvature + noise, least))
    shifted = curvature + (noise + least) * np.eye(len(curvature))
    return np.asarray(curvature @ np.linalg.solve(shifted, curvature))
