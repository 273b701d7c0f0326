"""Costs of analyses that are not fits of dpvb, by what is declared of their mechanism.

Laplace noise of scale b on sums of L1 sensitivity Δ has, with x = Δ/b, the Rényi divergence (Mironov 2017, Table II)

    R_α = log(α/(2α-1) e^{(α-1)x} + (α-1)/(2α-1) e^{-αx}) / (α-1),       δ(ε) = 1 - e^{(ε-x)/2} for 0 ≤ ε ≤ x.

If a mechanism only states (ε, δ), the worst one is charged (Kairouz, Oh, Viswanath 2015, Theorem 3.4): with
probability δ it shows everything, and otherwise it is randomised response, with the odds e^ε of the true answer. δ is
what the release adds to delta, as `Event.added_delta`; randomised response has a Rényi curve. Every other mechanism
with that guarantee is a function of this one, also an interactive one (Lyu 2022), so that its costs add up as those of
other releases.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, final

import numpy as np

from dpvb.accounting.costs import Composition, from_renyi
from dpvb.accounting.events import (
    MAX_NOISE_MULTIPLIER,
    MAX_STEPS,
    MIN_NOISE_MULTIPLIER,
    Event,
    NeighboringRelation,
    check_relation,
)
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_delta, check_integer, check_number

# Above this epsilon e^epsilon is not a number.
_MOST_EPSILON = 700.0
# One unit in which a ledger counts.
_LEAST_EPSILON = 1e-9


def gaussian_noise(
    noise_multiplier: float, neighboring_relation: NeighboringRelation, num_releases: int = 1
) -> Composition:
    """Return the cost of sums over all units with Gaussian noise.

    Args:
        noise_multiplier: standard deviation of the noise over the L2 sensitivity of the sums, which is their largest
            distance between neighbouring data sets; in [1e-9, 1e12]. Noise of a discrete normal distribution is charged
            with `normal=False`.
        neighboring_relation: for which the sensitivity holds: "add_or_remove_one" or "replace_one".
        num_releases: number of releases with such noise.

    Raises:
        ParameterError: for a value outside its range.
    """
    noise = check_number("noise_multiplier", noise_multiplier, low=MIN_NOISE_MULTIPLIER, high=MAX_NOISE_MULTIPLIER)
    return Composition([Event("full_batch", 1.0, noise, num_releases, swap_ratio=1.0)], neighboring_relation)


@final
@dataclass(frozen=True)
class LaplaceNoise:
    """The cost of sums over all units with Laplace noise.

    Args:
        noise_multiplier: scale of the noise over the L1 sensitivity of the sums, which is their largest L1 distance
            between neighbouring data sets; in [1/700, 1e12]. One release is (1/noise_multiplier, 0)-differentially
            private.
        neighboring_relation: for which the sensitivity holds: "add_or_remove_one" or "replace_one".
        num_releases: number of releases with such noise.

    Raises:
        ParameterError: for a value outside its range.

    Examples:
        >>> from dpvb.accounting import LaplaceNoise
        >>> LaplaceNoise(noise_multiplier=5.0, neighboring_relation="add_or_remove_one").added_delta
        0.0
    """

    noise_multiplier: float
    neighboring_relation: NeighboringRelation
    num_releases: int = 1

    def __post_init__(self) -> None:
        check_relation(self.neighboring_relation)
        check_number("noise_multiplier", self.noise_multiplier, low=1 / _MOST_EPSILON, high=MAX_NOISE_MULTIPLIER)
        check_integer("num_releases", self.num_releases, low=1, high=MAX_STEPS)

    @property
    def added_delta(self) -> float:
        """Laplace noise adds nothing to delta."""
        return 0.0

    @property
    def noise(self) -> LaplaceNoise:
        """The cost itself."""
        return self

    def renyi(self, orders: Floats) -> Floats:
        """The exact divergence of the releases, the same in both directions."""
        x, lam = 1 / self.noise_multiplier, orders - 1
        # log of (α e^{λx} + λ e^{-αx}) / (α + λ); of small x the sum is 1 up to its second order.
        excess = orders * np.expm1(np.minimum(lam * x, 1.0)) + lam * np.expm1(-orders * x)
        near = np.log1p(np.maximum(excess, 0.0) / (orders + lam))
        far = lam * x + np.log(orders / (orders + lam)) + np.log1p(lam / orders * np.exp(-(orders + lam) * x))
        one = np.where(lam * x < 1, near, far) / lam
        return np.asarray(self.num_releases * np.minimum(one, x) * (1 + 1e-12))

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        """Exact for one release; else the least of basic composition and the curve."""
        delta, x = check_delta(delta), 1 / self.noise_multiplier
        if self.num_releases == 1:
            return max(0.0, x + 2 * math.log1p(-delta)) * (1 + 1e-12)
        return min(self.num_releases * x * (1 + 1e-12), from_renyi(self.renyi, delta))

    def scaled(self, scale: float) -> LaplaceNoise:
        """The same with all noise multiplied."""
        return replace(self, noise_multiplier=scale * self.noise_multiplier)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"form": "laplace", **asdict(self)}


@final
@dataclass(frozen=True)
class StatedGuarantee:
    """The cost of an analysis that states (epsilon, delta) and no mechanism.

    Args:
        stated_epsilon: its epsilon, in [1e-9, 700].
        stated_delta: its delta, in [0, 1). It counts whole against the delta of the cap: of a data set in a file, all
            that plans add may reach 0.1 of that delta. Name the mechanism instead where you know it.
        neighboring_relation: for which it holds: "add_or_remove_one" or "replace_one".

    Raises:
        ParameterError: for a value outside its range.

    Examples:
        >>> from dpvb.accounting import StatedGuarantee
        >>> StatedGuarantee(0.1, 1e-9, "add_or_remove_one").added_delta
        1e-09
    """

    stated_epsilon: float
    stated_delta: float
    neighboring_relation: NeighboringRelation

    def __post_init__(self) -> None:
        check_relation(self.neighboring_relation)
        check_number("stated_epsilon", self.stated_epsilon, low=_LEAST_EPSILON, high=_MOST_EPSILON)
        check_number("stated_delta", self.stated_delta, low=0, high=1, closed="left")

    @property
    def added_delta(self) -> float:
        """The stated delta."""
        return float(self.stated_delta)

    @property
    def noise(self) -> StatedGuarantee:
        """Randomised response with the stated epsilon."""
        return replace(self, stated_delta=0.0)

    def renyi(self, orders: Floats) -> Floats:
        """The divergence of randomised response, the same in both directions; inf where it adds to delta."""
        if self.stated_delta:
            return np.full(orders.shape, math.inf)
        epsilon, lam = float(self.stated_epsilon), orders - 1
        # log of (e^{αε} + e^{-λε}) / (1 + e^ε); of small λε the terms are alike, and the sum is near 1.
        excess = (np.expm1(np.minimum(lam * epsilon, 1.0)) + math.exp(-epsilon) * np.expm1(-lam * epsilon)) / (
            1 + math.exp(-epsilon)
        )
        near = np.log1p(np.maximum(excess, 0.0))
        far = lam * epsilon + np.log1p(np.exp(-(orders + lam) * epsilon)) - math.log1p(math.exp(-epsilon))
        return np.asarray(np.minimum(np.where(lam * epsilon < 1, near, far) / lam, epsilon) * (1 + 1e-12))

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        """Exact: delta at epsilon' is the stated one, and beyond it what randomised response leaves; else inf."""
        delta, epsilon, stated = check_delta(delta), float(self.stated_epsilon), float(self.stated_delta)
        if delta < stated:
            return math.inf
        # (e^ε - e^{ε'}) / (1 + e^ε) = (δ' - δ) / (1 - δ)
        rest = 1 - (delta - stated) / (1 - stated) * (1 + math.exp(-epsilon))
        return max(0.0, epsilon + math.log(rest)) * (1 + 1e-12) if rest > 0 else 0.0

    def scaled(self, scale: float) -> StatedGuarantee:
        """The same with a scale as much smaller epsilon, as noise of the Laplace distribution gives."""
        return replace(self, stated_epsilon=self.stated_epsilon / scale)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"form": "stated", **asdict(self)}
