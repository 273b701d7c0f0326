"""Differentially private gradient descent, Algorithm 1 of the thesis draft (Sharma; Abadi et al. 2016).

    1  initialise θ_0
    2  for t = 1, ..., T:
    3      L_t: each example with probability q = L/N                        `sampling_prob` of `PrivateModel`
    5      g_t(x_i) = ∇_θ L(θ, x_i)                                          gradient
    6      g̃_t(x_i) = g_t(x_i) / max(‖g_t(x_i)‖/c_t, 1)                      e_step divides by c_t; the wall clips to 1
    8      g̃_t = (1/L) [Σ_i g̃_t(x_i) + N(0, σ_t² c_t² I)]                    the wall adds the noise; m_step
    9      θ_t = θ_{t-1} - η_t g̃_t                                          m_step
    11 output θ_T

Corrected: as printed, line 8 adds the *unclipped* gradients, of which no noise hides one; the clipped ones are added.

==================  ===============================================================================================
paper               code
==================  ===============================================================================================
η_t, c_t, σ_t       learning_rates, clips, noise: one number per step; σ_t is relative, and `PrivateModel` scales it to
ε L                   sampling_prob · n_rows
==================  ===============================================================================================
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from dpvb import Block, Estimate, Model, Rows, Schedule
from dpvb.core.blocks import Contributions
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.kernels.linear import product


@dataclass(frozen=True)
class GradientState:
    """θ_t and t; public."""

    t: Nonnegative
    theta: Floats


@dataclass(frozen=True)
class DPSGD(Model):
    """Algorithm 1 for a loss whose gradient a subclass gives.

    Attributes:
        size: number of parameters.
        n_rows: N, public.
        learning_rates, clips, noise: η_t, c_t and σ_t, all of T numbers.

    Examples:
        >>> from dpvb.papers.dp_sgd import DPSGD, DPSGDLogistic
        >>> model = DPSGDLogistic(1, 1000.0, learning_rates=(1.0, 1.0), clips=(0.5, 0.5), noise=(2.0, 2.0))
        >>> isinstance(model, DPSGD), len(model.noise)
        (True, 2)
    """

    size: int
    n_rows: float
    learning_rates: tuple[float, ...]
    clips: tuple[float, ...]
    noise: tuple[float, ...]

    def __post_init__(self) -> None:
        check_integer("size", self.size, low=1)
        check_number("n_rows", self.n_rows, low=1, high=1e15)
        for name in ("learning_rates", "clips", "noise"):
            for value in getattr(self, name):
                check_number(name, value, low=1e-9, high=1e9)
        if not len(self.learning_rates) == len(self.clips) == len(self.noise) >= 1:
            raise ParameterError("learning_rates, clips and noise must have one number for each step, at least one.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        """g̃_t(x_i)/c_t, of norm 1 at most; every release stands for itself."""
        return {"gradient": Block((self.size,), 1.0, average=False)}

    @property
    def schedule(self) -> Schedule:
        """σ_t, relative to each other."""
        return Schedule(self.noise)

    @abstractmethod
    def gradient(self, theta: Floats, batch: Any) -> Floats:
        """∇_θ L(θ, x_i) of every row, (rows, size), each only from its own row, bit for bit."""

    def place(self, q: GradientState) -> int:
        """The place of the next step in the schedules; the last one's beyond their end."""
        return min(int(q.t), len(self.clips) - 1)

    def init(self, rng: np.random.Generator) -> GradientState:
        """θ_0 ~ N(0, 0.01² I)."""
        return GradientState(0.0, 0.01 * rng.standard_normal(self.size))

    def e_step(self, q: GradientState, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Lines 5 and 6; the wall clips what is longer than 1."""
        return {"gradient": Rows(self.gradient(q.theta, batch) / self.clips[self.place(q)])}

    def m_step(self, s: Estimate, q: GradientState) -> GradientState:
        """Lines 8 and 9: s.noisy is the noisy sum over q = L/N, so that dividing by N divides by L."""
        t = self.place(q)
        mean = self.clips[t] * s.noisy("gradient") / self.n_rows
        return GradientState(q.t + 1, q.theta - self.learning_rates[t] * mean)


@dataclass(frozen=True)
class DPSGDLogistic(DPSGD):
    """Logistic regression by Algorithm 1; rows hold the features and, in the last column, the label 0 or 1.

    Attributes:
        max_row_norm: what `dpvb.PrivateModel` divides rows by.

    Examples:
        >>> import dpvb
        >>> import numpy as np
        >>> from dpvb.papers.dp_sgd import DPSGDLogistic
        >>> rows = np.repeat([[1.0, 1.0], [-1.0, 0.0]], 500, axis=0) * [0.5, 1.0]
        >>> loss = DPSGDLogistic(1, 1000.0, (4.0,) * 3, (0.5,) * 3, (2.0,) * 3, max_row_norm=2.0)
        >>> model = dpvb.PrivateModel(loss, max_row_norm=2.0, epsilon=1.0, delta=1e-6).fit(rows)
        >>> bool(model.q_.theta > 0)
        True
    """

    max_row_norm: float = 1.0

    def gradient(self, theta: Floats, batch: Floats) -> Floats:
        """(σ(θᵀx) - y) x."""
        x_nd, y_n = self.max_row_norm * batch[:, :-1], self.max_row_norm * batch[:, -1]
        return np.asarray(x_nd * (expit(product(x_nd, theta[:, None])[:, 0]) - y_n)[:, None])
