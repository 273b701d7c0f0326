"""Who may see what in a federated run: how much noise each client adds, what it costs, and what it is told.

===================  =======================  ==================================  ===================
trust                the server sees          noise of each client                noise of the sum
===================  =======================  ==================================  ===================
none                 every noisy sum          σ                                   √M σ
secure_aggregation   the sum over clients     (1 + s) σ/√n                        from σ to √(M/n) σ
trusted_server       every sum, un-noised     none; the server adds σ             σ
===================  =======================  ==================================  ===================

Under secure aggregation two things take noise away, and a server may do both at once. F of the M clients may be
missing, whomever it chooses not to ask; and C of those who are asked may work against the others: tell it their keys,
add no noise, or subtract what they added from what the model says. A client answers only where M - F are asked, so that
n = M - F - C shares at least are unknown to all of these, and those have all of the noise. M - F is 2 at least: one
client's sum hides nothing. n is 1 at least, and then every client adds all of the noise itself. C is 1 unless told
otherwise: a client knows its own noise, so that one that is curious already counts as one that colludes. Whoever is
asked and does not answer leaves the masks in the sum, which then tells nothing.

**Why integer shares add up.** A share is an exactly rounded normal number R of deviation τ, at least 2²⁰ grid steps.
Let D be the discrete normal of the same τ, P(D = k) ∝ exp(-k²/2τ²) =: φ(k). By P(R = k) ∝ ∫ exp(-(k+t)²/2τ²) dt over
|t| ≤ 1/2, which is φ(k) ∫ cosh(kt/τ²) exp(-t²/2τ²) dt, the ratio P(R = k)/φ(k) lies between exp(-1/8τ²) and
cosh(k/2τ²) ≤ exp(k²/8τ⁴), and no draw has |k| > 39 τ + 1: so log P(R = k) and log P(D = k) differ by at most 191/τ².
(Σ φ(k) is √(2π) τ up to a factor 1 ± 3 exp(-2π²τ²); what is cut off has a probability below 10⁻³³⁰.) The shares that
the server does not know are m, between n and M; those that it knows it subtracts. Over m clients and d numbers the
joint laws differ by a factor of exp(±191 m d/τ²), so by exp(±A) at most, A = 191 M d/τ². A sum of discrete normals is
as private as a normal of the same variance, here m τ² ≥ (1 + s)² σ², up to a term below exp(-9τ²) (Kairouz, Liu &
Steinke 2021, Theorem 1). With Rényi divergence ρ a at order a for noise σ, the release has, whoever takes part, at most

    ρ a/(1 + s)² + A (2a - 1)/(a - 1)  ≤  ρ a   at every order a ≥ 1.01,   if A ≤ 0.01 s ρ,

since (2a - 1)/(a - 1) ≤ 102 a there, and 1 - (1 + s)⁻² ≥ 1.99 s for s = 0.001. So the thousandth that is added to
the noise pays for the integers, and what the accountant finds at its Rényi orders for σ itself holds: they are near
√(log(1/δ)/ρ) + 1, above 1.01 for a ρ up to 10⁴ and a δ up to 0.1, and no more is granted. A ledger's are above it, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpvb import accounting
from dpvb.core.grids import Party, grids_of
from dpvb.core.plan import Plan, calibrated, check_budget
from dpvb.guards.errors import ParameterError, PrivacyError, check_choice, check_delta, check_integer, check_number

TRUST = ("none", "secure_aggregation", "trusted_server")
# s: what is added to the noise for its being whole numbers. Largest |log P(R = k)/P(D = k)| τ².
_MORE = 1e-3
_RATIO = 191.0
# Largest total ρ, and largest delta, under secure aggregation.
_MOST_COST, _MOST_DELTA = 1e4, 0.1


def colluding(trust: str, colluders: int | None) -> int:
    """The number of clients that may work against the others; None: see `Trust`."""
    return int(trust == "secure_aggregation") if colluders is None else colluders


@dataclass(frozen=True)
class Trust:
    """A trust model with its public numbers.

    Attributes:
        name: one of TRUST.
        num_clients: M.
        tolerated: F, clients that may be missing; under secure aggregation their noise is not counted on.
        colluders: C, clients that may, besides, work against the others (tell the server their keys, add no noise, or
            use what they know of their own noise). None: 1 under secure aggregation, for a single curious client is
            one of them; 0 otherwise, where no other number is allowed.

    Raises:
        ParameterError: for a value outside its range.
    """

    name: str
    num_clients: int
    tolerated: int = 0
    colluders: int | None = None

    def __post_init__(self) -> None:
        check_choice("trust", self.name, TRUST)
        check_integer("num_clients", self.num_clients, low=1, high=10**5)
        if self.secure and self.num_clients < 2:
            raise ParameterError(
                "num_clients must be at least 2 for secure aggregation: one client's sum hides nothing."
            )
        check_integer("tolerated", self.tolerated, low=0, high=self.num_clients - 1)
        if self.secure and self.least < 2:
            raise ParameterError(
                f"tolerated must be at most {self.num_clients - 2} of {self.num_clients} clients under secure "
                f"aggregation, got {self.tolerated}: a single client's sum hides nothing. trust='none' needs no others."
            )
        object.__setattr__(self, "colluders", colluding(self.name, self.colluders))
        check_integer("colluders", self.colluders, low=0, high=self.num_clients - 1)
        if self.colluders and not self.secure:
            raise ParameterError(
                f"colluders must be 0 with trust={self.name!r}, got {self.colluders}: no client counts on another's "
                "noise there."
            )
        if self.secure and self._honest < 1:
            raise ParameterError(
                f"colluders must be at most {self.least - 1} where {self.least} of {self.num_clients} clients may be "
                f"all that take part, got {self.colluders}: the sum needs the noise of one client that "
                "the others do not know. "
                "Take fewer, or trust='none', under which each client adds all of its noise."
            )

    @property
    def secure(self) -> bool:
        """Whether the server sees the sum over clients alone."""
        return self.name == "secure_aggregation"

    @property
    def party(self) -> Party:
        """The place of a client's wall."""
        if self.secure:
            return Party(self.num_clients, (1.0 + _MORE) / math.sqrt(self._honest))
        return Party(1) if self.name == "none" else Party(self.num_clients, 0.0)

    @property
    def least(self) -> int:
        """The fewest clients that take part in a release."""
        return self.num_clients - self.tolerated

    @property
    def method(self) -> str:
        """The accountant's method that this trust allows."""
        return "renyi" if self.secure else "pld"

    def planned(
        self, plan: Plan, *, epsilon: float, delta: float, num_examples: int | None = None, method: str = "pld"
    ) -> Plan:
        """Calibrate a plan with relative noise, such that each client meets (epsilon, delta).

        Args:
            plan: of one client.
            epsilon, delta: the budget of each client; infinite epsilon: no noise.
            num_examples: public number of units of each client, if there is one.
            method: of the accountant, unless the trust model prescribes it.

        Raises:
            ParameterError: for a sampled plan under secure aggregation, or noise that is too fine for integers.
        """
        self._check_plan(plan, delta)
        calibrated_plan = calibrated(plan, epsilon=epsilon, delta=delta, accountant="renyi" if self.secure else method)
        return self._checked(calibrated_plan, num_examples)

    def adopted(
        self, plan: Plan, multipliers: Sequence[float], *, epsilon: float, delta: float, num_examples: int | None = None
    ) -> Plan:
        """The plan with noise multipliers that somebody else proposes, one for each release.

        Raises:
            ParameterError: if they do not fit the plan.
            PrivacyError: if they break the budget.
        """
        self._check_plan(plan, delta)
        if len(multipliers) != len(plan):
            raise ParameterError(f"the plan has {len(plan)} releases, but {len(multipliers)} noise multipliers came.")
        for multiplier in multipliers:
            check_number("noise_multiplier", multiplier, low=0, high=1e12)
        release_of = {
            (id(release), multiplier): replace(
                release, mechanism=replace(release.mechanism, noise_multiplier=multiplier)
            )
            for release, multiplier in zip(plan, multipliers, strict=True)
        }
        releases = [release_of[id(release), multiplier] for release, multiplier in zip(plan, multipliers, strict=True)]
        checked = self._checked(replace(plan, releases=releases), num_examples)
        if not self.secure:
            return check_budget(checked, epsilon=epsilon, delta=delta)
        check_number("epsilon", epsilon, low=0, closed="right")
        relation = checked.neighboring_relation
        spent = accounting.epsilon_of(checked.events(), delta=delta, neighboring_relation=relation, method="renyi")
        if spent > epsilon * (1 + 1e-9):
            raise PrivacyError(
                f"epsilon = {epsilon:g} is not met: the noise that is proposed gives "
                f"{accounting.rounded_up(spent)} at delta = {delta:g}."
            )
        return checked

    def against(self) -> str:
        """Against whom a client's promise holds, in words."""
        if self.name == "none":
            return "everybody, the server and the other clients included: this client adds all of its noise itself."
        if not self.secure:
            return (
                "everybody but the server, which sees this client's sums without noise and adds the noise for all "
                f"{self.num_clients} clients."
            )
        missing, turned = (f"at most {number}" if number else "none" for number in (self.tolerated, self.colluders))
        return (
            f"everybody, the server included, which sees nothing but sums over at least {self.least} of "
            f"{self.num_clients} clients: each adds a part of the noise, std 1/sqrt({self._honest}) of the whole, and "
            f"their masks cancel in the sum alone. Of the clients {missing} may be missing, whoever chooses which; "
            f"and, besides, {turned} may work against the others: tell the server their keys, add no noise, or use "
            "what they know of their own."
        )

    @property
    def _honest(self) -> int:
        """n: the fewest shares of noise in a sum that the server does not know."""
        assert self.colluders is not None  # It was resolved.
        return self.num_clients - self.tolerated - self.colluders

    def _check_plan(self, plan: Plan, delta: float) -> None:
        if self.secure:
            check_number("delta", check_delta(delta), high=_MOST_DELTA)
        if self.secure and any(release.mechanism.sampler.name != "full_batch" for release in plan):
            raise ParameterError(
                "sampling_prob and batch_size must be None under secure aggregation: no amplification by sampling is "
                "proven for sums of integer noise."
            )

    def _checked(self, plan: Plan, num_examples: int | None) -> Plan:
        """The plan, if integer shares are fine enough for it on the grids that it will have."""
        total = 0.0
        for release in plan:
            noise = release.mechanism.noise_multiplier
            if not self.secure or noise == 0:
                continue
            grids = grids_of(release, num_examples, self.party)
            numbers = sum(math.prod(block.packed_shape) for block in release.blocks.values())
            fine = min(self.party.noise_share * release.noise_std(name) / grids[name].step for name in grids) ** 2 / 2
            cost = release.event().sensitivity(plan.neighboring_relation) ** 2 / (2 * noise**2)
            total += cost
            if _RATIO * self.num_clients * numbers / fine > 0.01 * _MORE * cost:
                raise ParameterError(
                    f"{self.num_clients} clients and {numbers} numbers a release are too many for integer noise at "
                    f"noise multiplier {noise:g}: take a larger epsilon, fewer clients, or a smaller model."
                )
        if total > _MOST_COST:
            raise ParameterError("epsilon must be smaller under secure aggregation, or infinite: this is hardly noise.")
        return plan
