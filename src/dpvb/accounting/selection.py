"""The price of choosing: the best of a random number of private runs, of which the others are never shown.

K is drawn from a truncated negative binomial distribution that does not depend on the data, a base mechanism runs K
times, and
only the best of its outputs is released, "best" by any order of outputs. If the base has Rényi divergence at most
ε(a) between neighbours, in both directions, the choice has at most

    ε'(a) = ε(a) + log E[K]/(a - 1) + (1 + η) min_â {(1 - 1/â) ε(â) + log(1/γ)/â},      a > 1, â ≥ 1

(Papernot & Steinke 2022, Theorem 2; Liu & Talwar 2019 for pure privacy). A base that may act in several ways, chosen by
a coin that owes nothing to the unit in question, costs at most the largest ε(a) among them: Rényi divergence is
quasi-convex. A candidate drawn at random is such a coin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Self

import numpy as np

from dpvb.accounting.calibration import least_scale_and_slope
from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.events import NeighboringRelation
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_delta, check_number

#: ε(a) of a mechanism at orders a ≥ 1, (A,) to (A,).
Curve = Callable[[Floats], Floats]

# Orders minus one that are tried, and how many around the best one, twice more: any order gives a bound.
_LAMBDAS = np.geomspace(1e-3, 1e5, 25)
_FINER = 9
# Digits of the distribution of K from which it is drawn: the words of a draw limit its accuracy to 2⁻¹²⁸.
_DIGITS = 60
_MOST_RUNS = 1e6
_TIGHT_ENOUGH = 0.999


@dataclass(frozen=True)
class NumberOfRuns:
    """Truncated negative binomial distribution of the number K ≥ 1 of runs; public.

    P[K = k] ∝ (1 - γ)^k Π_{l<k} (l + η)/(l + 1): geometric for η = 1, logarithmic for η = 0.

    Attributes:
        eta: η > -1; lower ones cost less and waver more.
        gamma: γ in (0, 1]; 1: always one run.

    Raises:
        ParameterError: for a field outside its range.
    """

    eta: float
    gamma: float

    def __post_init__(self) -> None:
        check_number("eta", self.eta, low=-1, high=100, closed="right")
        check_number("gamma", self.gamma, low=1e-30, high=1)

    @classmethod
    def expecting(cls, mean: float, eta: float) -> Self:
        """Return the distribution of this η with E[K] = mean, to the last digits.

        Raises:
            ParameterError: unless 1 ≤ mean ≤ 10⁶, or if η is too low for so large a mean.
        """
        mean = check_number("expected_runs", mean, low=1, high=_MOST_RUNS)
        low, high = -69.0, 0.0  # of log γ, in which E[K] falls
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if cls(eta, math.exp(middle)).mean > mean else (low, middle)
        law = cls(eta, 1.0 if mean == 1 else math.exp(high))
        if abs(law.mean - mean) > 1e-6 * mean:
            raise ParameterError(f"expected_runs must be within reach of eta = {eta:g}, got {mean:g}.")
        return law

    @property
    def mean(self) -> float:
        """E[K]."""
        fall = -math.log(self.gamma)  # log 1/γ
        if fall == 0:
            return 1.0
        per_fall = math.expm1(fall) / fall
        return per_fall if self.eta == 0 else per_fall * fall * self.eta / -math.expm1(-self.eta * fall)

    def draw(self, word: Callable[[], int]) -> int:
        """Draw K by inversion from two uniform 64-bit words: each probability is met to 2⁻¹²⁷."""
        with localcontext(prec=_DIGITS):
            left = (Decimal((word() << 64) | word()) + Decimal("0.5")) / 2**128
            k, p = 1, self._first()
            while left >= p:
                left -= p
                p *= self._ratio(k)
                k += 1
            return k

    def _first(self) -> Decimal:
        """P[K = 1]."""
        gamma, eta = Decimal(self.gamma), Decimal(self.eta)
        if gamma == 1:
            return Decimal(1)
        if eta == 0:
            return (1 - gamma) / -gamma.ln()
        return eta * (1 - gamma) / (gamma**-eta - 1)

    def _ratio(self, k: int) -> Decimal:
        """P[K = k + 1] / P[K = k]."""
        return (1 - Decimal(self.gamma)) * (k + Decimal(self.eta)) / (k + 1)


def best_of(base: Curve, law: NumberOfRuns) -> Curve:
    """Rényi curve of the best of K runs of a mechanism with this curve."""
    rest = -math.log(law.gamma)  # log 1/γ: the price at order 1, where the divergence has no weight
    price = _least(lambda hat: (1.0 - 1.0 / hat) * base(hat) + rest / hat)
    choice = (1.0 + law.eta) * min(price, rest)
    return lambda orders: base(orders) + choice + math.log(law.mean) / (orders - 1.0)


def _least(bound: Curve) -> float:
    """Least value of a bound over orders above 1."""
    lam, least = _LAMBDAS, math.inf
    for _ in range(3):
        value = bound(1.0 + lam)
        i = int(np.argmin(np.where(np.isnan(value), np.inf, value)))
        least = min(least, float(value[i]))
        lam = np.geomspace(lam[max(i - 1, 0)], lam[min(i + 1, len(lam) - 1)], _FINER)
    return least


@dataclass(frozen=True)
class Selection(Cost):
    """The cost of the best of K runs, each of which acts in one of several ways.

    Runs that add to delta have no Renyi curve, so that no selection of them has a cost.

    Attributes:
        alternatives: what a run may cost; which of them it is, a coin decides that owes nothing to the unit.
        runs: distribution of K.

    Raises:
        ParameterError: without alternatives, or if their neighbouring relations differ.
    """

    alternatives: Sequence[Composition]
    runs: NumberOfRuns

    def __post_init__(self) -> None:
        plans = tuple(sorted(set(self.alternatives), key=repr))
        if len({plan.neighboring_relation for plan in plans}) != 1:
            raise ParameterError("A selection needs alternatives, all with the same neighboring_relation.")
        object.__setattr__(self, "alternatives", plans)

    @property
    def neighboring_relation(self) -> NeighboringRelation:
        """How neighbouring data sets differ."""
        return self.alternatives[0].neighboring_relation

    def renyi(self, orders: Floats) -> Floats:
        """Upper bounds on the Rényi divergence at orders above 1, in both directions; inf where there is none."""
        return best_of(self._base, self.runs)(np.asarray(orders, dtype=np.float64))

    def epsilon(self, delta: float, expected: float | None = None) -> float:
        """Upper bound on ε at δ (Canonne, Kamath & Steinke 2020, Proposition 12); `expected` is not needed."""
        curve, target = best_of(self._base, self.runs), math.log(check_delta(delta))
        least = _least(lambda a: curve(a) - (target + np.log(a)) / (a - 1.0) + np.log1p(-1.0 / a))
        return max(0.0, least) * (1 + 1e-12)

    def scaled(self, scale: float) -> Selection:
        """The same with all noise multiplied."""
        return Selection([plan.scaled(scale) for plan in self.alternatives], self.runs)

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {
            "form": "selection",
            "alternatives": [plan.to_dict() for plan in self.alternatives],
            "eta": self.runs.eta,
            "gamma": self.runs.gamma,
        }

    @staticmethod
    def of(*, alternatives: Sequence[Mapping[str, Any]], eta: float, gamma: float) -> Selection:
        """The cost whose parts `to_dict` wrote."""
        plans = [Composition.of(**{name: plan[name] for name in plan if name != "form"}) for plan in alternatives]
        return Selection(plans, NumberOfRuns(eta, gamma))

    def _base(self, orders: Floats) -> Floats:
        """The dearest alternative at each order."""
        return np.asarray(np.max([plan.renyi(orders) for plan in self.alternatives], axis=0))


def selection_scale(selection: Selection, *, epsilon: float, delta: float) -> float:
    """Return the least noise scale with which the selection meets (ε, δ), within 0.1 %.

    Args:
        selection: its noise multipliers are relative.
        epsilon: target in (0, inf]; inf gives 0.
        delta: in (0, 1).

    Raises:
        ParameterError: for a value outside its range, or if no noise meets the target.
    """
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="right")
    check_delta(delta)
    if math.isinf(epsilon):
        return 0.0
    return least_scale_and_slope(lambda scale: selection.scaled(scale).epsilon(delta), epsilon, 1.0, _TIGHT_ENOUGH)[0]
