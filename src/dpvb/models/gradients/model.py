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
g_n; Σ g_n      e_step's rows; s.read("gradient")
E[-∇² log p]    regression.curvature; K, with the guess Σ_n g_n² (Gauss-Newton, as in Khan et al. 2018)
v               variance of the noise in the averaged gradient: regression.noise_part · sd²
Σ               inverse of the prior's curvature plus K(K + v)⁻¹K: what noisy gradients tell of θ
==============  ==============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Covariance, Symmetric
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models.gradients import forms, tuned
from dpvb.models.gradients.curvature import Regression
from dpvb.models.gradients.density import Density
from dpvb.models.gradients.gradients import Gradients
from dpvb.models.gradients.optimizer import Adam
from dpvb.models.gradients.rows import SingleRows

GUIDES = ("mean_field", "full_rank", "point")
# Floor that keeps precisions positive; and parameters of a full-rank guide at most, whose matrices have their square.
_LEAST, _MOST_FULL = 1e-6, 2000


@dataclass(frozen=True)
class Iterate:
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
    regression: Regression
    seed: int
    step: int = 0


@dataclass(frozen=True)
class Variational:
    """The model; every field is public.

    Attributes:
        density: log p(row | θ) and log p(θ).
        guide: "mean_field", "full_rank" or "point" (no covariance).
        num_steps: T, number of gradients.
        clip: bound on the norm of a row's gradient.
        learning_rate: Adam's first rate; it falls fivefold. None: 40/T, at most 1/2.
        start_scale: standard deviation of the guide at the start.
        row_by_row: see `Gradients`.

    Raises:
        ParameterError: for a field outside its range.
    """

    density: Density
    guide: str = "mean_field"
    num_steps: int = 200
    clip: float = 1.0
    learning_rate: float | None = None
    start_scale: float = 0.1
    row_by_row: bool | None = None

    def __post_init__(self) -> None:
        check_choice("guide", self.guide, GUIDES)
        check_integer("num_steps", self.num_steps, low=1, high=10**7)
        check_number("clip", self.clip, low=1e-9, high=1e9)
        check_number("learning_rate", 1.0 if self.learning_rate is None else self.learning_rate, low=1e-9, high=1e9)
        check_number("start_scale", self.start_scale, low=1e-6, high=1e6)
        if self.guide == "full_rank":
            hint = "Use guide='mean_field' for more."
            check_integer(
                "parameters of a full_rank guide", self.density.num_parameters, low=1, high=_MOST_FULL, hint=hint
            )

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was compiled is compiled anew."""
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
        blocks = {"gradient": Block(shape, self.clip, average=False)}
        if self.guide != "point":
            blocks["squares"] = Block(shape, tuned.SQUARE_BOUND * self.clip**2, "nonnegative", "last")
        return blocks

    def init(self, rng: np.random.Generator) -> Iterate:
        """The start that the density declares; only the seed of the draws is random."""
        start_p, seed, full = self.density.start.astype(np.float64), int(rng.integers(2**62)), self.guide == "full_rank"
        variance_p = np.full(len(start_p), self.start_scale**2 if self.guide != "point" else 0.0)
        precision_p = np.full(len(start_p), self.start_scale**-2)
        covariance, precision = (np.diag(p) if full else p for p in (variance_p, precision_p))
        adam, regression = Adam.start(len(start_p)), Regression.start(len(start_p), full=full)
        return self._drawn(Iterate(start_p, precision, start_p, start_p, start_p, covariance, adam, regression, seed))

    def e_step(self, q: Iterate, batch: tuple[NDArray[Any], ...], blocks: Mapping[str, Block]) -> Contributions:
        """Gradient of every row of (x, y) or (x,), or its squares.

        A row that holds NaN contributes nothing, even if the density returns a number for it.
        """
        with np.errstate(over="ignore", under="ignore"):
            gradient_np, faulty_n = self.gradients(q.point_p, batch), ~np.isfinite(batch[0][:, 0])
            if "squares" in blocks:
                return {"squares": SingleRows(np.square(gradient_np), faulty_n=faulty_n)}
        return {"gradient": SingleRows(gradient_np, faulty_n=faulty_n)}

    def m_step(self, s: Estimate, q: Iterate) -> Iterate:
        """A step of Adam after a gradient; the covariance after the squares."""
        if "squares" in s.names:
            return self._finished(s, q)
        t, sd = q.step + 1, s.noise_std("gradient")
        score_p, prior_p = s.read("gradient"), self.density.prior_gradient(q.point_p)
        # At θ the gradient of a quadratic differs from that at μ by this product, whose mean is zero: subtract it.
        gradient_p = score_p + prior_p + forms.times(q.precision, q.point_p - q.mean_p)
        adam = q.adam.after(gradient_p)
        mean_p = q.mean_p + self._rate(t) * adam.step
        late = t - math.floor(tuned.AVERAGE_START * self.num_steps)
        average_p = q.average_p + (mean_p - q.average_p) / max(late, 1)
        moved = replace(q, mean_p=mean_p, average_p=average_p, adam=adam, step=t)
        if self.guide == "point":
            return self._drawn(moved)
        regression = q.regression.joined(q.point_p, score_p, prior_p, 1.0 / (late if late > 0 else t))
        guess_p = np.full(len(mean_p), self.start_scale**-2)
        curvature, error_p = regression.curvature(guess_p, guess_p, sd)
        # Where the curvature is uncertain, assume more of it: draws then stay near the mean, which costs little, while
        # drawing too widely costs accuracy.
        precision = forms.bounded(forms.plus(curvature, error_p)) + regression.prior_curvature(guess_p)
        return self._drawn(replace(moved, regression=regression, precision=forms.bounded(precision, _LEAST)))

    def _drawn(self, q: Iterate) -> Iterate:
        """The state with the point of the next gradient, by draws in opposite pairs; the last point is the average."""
        if q.step == self.num_steps or self.guide == "point":
            return replace(q, point_p=q.average_p if q.step == self.num_steps else q.mean_p)
        draw_p = np.random.default_rng([q.seed, q.step // 2]).standard_normal(len(q.mean_p)) * (-1) ** q.step
        return replace(q, draw_p=draw_p, point_p=q.mean_p + forms.spread(q.precision, draw_p))

    def _rate(self, t: int) -> float:
        """Adam's rate at step t."""
        default = min(tuned.RATE_REACH / self.num_steps, tuned.LARGEST_RATE)
        first = default if self.learning_rate is None else self.learning_rate
        return float(first * tuned.RATE_FALL ** (-t / self.num_steps))

    def _finished(self, s: Estimate, q: Iterate) -> Iterate:
        """The covariance at the average; it counts the noise in the gradients that led there."""
        sd, error = s.noise_std("gradient"), s.noise_std("squares")
        guess_p = np.maximum(s.read("squares"), max(error, _LEAST))
        curvature, _ = q.regression.curvature(guess_p, np.hypot(tuned.GUESS_DOUBT * guess_p, error), sd)
        noise, prior = q.regression.noise_part * sd**2, q.regression.prior_curvature(guess_p)
        precision = forms.information_through_noise(forms.bounded(curvature), noise, _LEAST) + prior
        covariance, at = forms.inverse(forms.bounded(precision, _LEAST)), q.regression
        if noise > 0 or self.guide == "mean_field":
            return replace(q, covariance=covariance)
        # Without noise the regression has its own maximum, exact for a quadratic.
        mean_p = at.point_p + covariance @ (at.score_p + at.prior_p)
        return replace(q, covariance=covariance, average_p=mean_p, point_p=mean_p)
