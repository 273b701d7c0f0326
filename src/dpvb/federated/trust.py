"""Trust models of a federated run: how much noise each client adds, what it costs, and what the server learns.

===================  =======================  ==================================  ===================
trust                to the server            noise of each client                noise of the sum
===================  =======================  ==================================  ===================
none                 every noisy sum          σ                                   √M σ
secure_aggregation   the sum over clients     (1 + s) σ/√n                        from σ to √(M/n) σ
trusted_server       every sum, un-noised     none; the server adds σ             σ
===================  =======================  ==================================  ===================

Under secure aggregation two things take noise away, and a server may do both at once. F of the M clients may be
missing, even if it chooses which; and C of those who are asked may work against the others: tell it their keys,
add no noise, or subtract what they added from the model's noise. A client answers only where M - F are asked, so that
n = M - F - C shares at least are unknown to all of these, and those have all of the noise. M - F is 2 at least: one
client's sum hides nothing. n is 1 at least, and then every client adds all of the noise itself. C is 1 unless told
otherwise: a client knows its own noise, so that one that is curious is already one that colludes. A client that is
asked and does not answer leaves the masks in the sum, which then tells nothing.

**Why integer shares may be added.** A share is an exactly rounded normal number of deviation τ, at least 2²⁰ grid
steps. docs/proofs.md, "Shares of noise", proves that M shares of d numbers change a Rényi divergence by at most A (2a -
1)/(a - 1), A = 191 M d/τ², which the additional noise s pays for at every order a ≥ 1.01 if A ≤ 0.01 s ρ, ρ a the
divergence for noise σ. The accountant's orders, near √(log(1/δ)/ρ) + 1, are above 1.01 for ρ up to 10⁴ and δ up to 0.1,
and no more is granted. The ledger's orders are above 1.01, too.
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
#: Largest number of clients of a federation.
MOST_CLIENTS = 10**5
# s: what is added to the noise for its being whole numbers. Largest |log P(R = k)/P(D = k)| τ².
_MORE = 1e-3
_RATIO = 191.0
# Largest total ρ, and largest delta, under secure aggregation.
_MOST_COST, _MOST_DELTA = 1e4, 0.1


def colluding(trust: str, max_colluding: int | None) -> int:
    """The number of clients that may work against the others; None: see `Trust`."""
    return int(trust == "secure_aggregation") if max_colluding is None else max_colluding


@dataclass(frozen=True)
class Trust:
    """A trust model with its public numbers.

    Attributes:
        name: one of TRUST.
        num_clients: M.
        max_missing: F, number of clients that may be missing. Under secure aggregation, the others add enough noise.
        max_colluding: C, number of further clients that may work against the others: reveal keys, add no noise, or use
            their own noise. None: 1 under secure aggregation; 0 otherwise, where no other number is allowed.

    Raises:
        ParameterError: for a value outside its range.
    """

    name: str
    num_clients: int
    max_missing: int = 0
    max_colluding: int | None = None

    def __post_init__(self) -> None:
        check_choice("trust", self.name, TRUST)
        check_integer("num_clients", self.num_clients, low=1, high=MOST_CLIENTS)
        if self.secure and self.num_clients < 2:
            raise ParameterError(
                "num_clients must be at least 2 for secure aggregation: one client's sum hides nothing."
            )
        check_integer("max_missing", self.max_missing, low=0, high=self.num_clients - 1)
        if self.secure and self.least < 2:
            raise ParameterError(
                f"max_missing must be at most {self.num_clients - 2} of {self.num_clients} clients under secure "
                f"aggregation, got {self.max_missing}: a single client's sum hides nothing. "
                "trust='none' needs no others."
            )
        object.__setattr__(self, "max_colluding", colluding(self.name, self.max_colluding))
        check_integer("max_colluding", self.max_colluding, low=0, high=self.num_clients - 1)
        if self.max_colluding and not self.secure:
            raise ParameterError(
                f"max_colluding must be 0 with trust={self.name!r}, got {self.max_colluding}: no client counts on "
                "another's noise there."
            )
        if self.secure and self._honest < 1:
            raise ParameterError(
                f"max_colluding must be at most {self.least - 1} where {self.least} of {self.num_clients} clients may "
                f"be all that take part, got {self.max_colluding}: the sum needs the noise of one client that the "
                "others do not know. Take fewer, or trust='none', under which each client adds all of its noise."
            )

    @property
    def secure(self) -> bool:
        """Whether the server gets only the sum over clients."""
        return self.name == "secure_aggregation"

    @property
    def party(self) -> Party:
        """The place of a client's wall."""
        if self.secure:
            return Party(self.num_clients, (1.0 + _MORE) / math.sqrt(self._honest))
        return Party(1) if self.name == "none" else Party(self.num_clients, 0.0)

    @property
    def noise_of_sum(self) -> float:
        """Standard deviation of the noise in the sum over all clients, relative to that of a plan's releases."""
        return math.sqrt(self.num_clients) * self.party.noise_share if self.name != "trusted_server" else 1.0

    @property
    def least(self) -> int:
        """The fewest clients that take part in a release."""
        return self.num_clients - self.max_missing

    @property
    def method(self) -> str:
        """The accountant's method that this trust allows."""
        return "renyi" if self.secure else "pld"

    def planned(
        self, plan: Plan, *, epsilon: float, delta: float, n_units: int | None = None, method: str = "pld"
    ) -> Plan:
        """Calibrate a plan with relative noise, such that each client meets (epsilon, delta).

        Args:
            plan: of one client.
            epsilon, delta: the budget of each client; infinite epsilon: no noise.
            n_units: public number of units of each client, if there is one.
            method: of the accountant, unless the trust model prescribes it.

        Raises:
            ParameterError: for a sampled plan under secure aggregation, or noise that is too fine for integers.
        """
        self._check_plan(plan, delta)
        calibrated_plan = calibrated(plan, epsilon=epsilon, delta=delta, accountant="renyi" if self.secure else method)
        return self._checked(calibrated_plan, n_units)

    def adopted(
        self, plan: Plan, multipliers: Sequence[float], *, epsilon: float, delta: float, n_units: int | None = None
    ) -> Plan:
        """The plan with noise multipliers that another party proposes, one for each release.

        Raises:
            ParameterError: if they do not fit the plan.
            PrivacyError: if they break the budget.
        """
        self._check_plan(plan, delta)
        if len(multipliers) != len(plan):
            raise ParameterError(f"The plan has {len(plan)} releases, but {len(multipliers)} noise multipliers came.")
        for multiplier in multipliers:
            check_number("noise_multiplier", multiplier, low=0, high=1e12)
        release_of = {
            (id(release), multiplier): replace(
                release, mechanism=replace(release.mechanism, noise_multiplier=multiplier)
            )
            for release, multiplier in zip(plan, multipliers, strict=True)
        }
        releases = [release_of[id(release), multiplier] for release, multiplier in zip(plan, multipliers, strict=True)]
        checked = self._checked(replace(plan, releases=releases), n_units)
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
        """Against whom a client's guarantee holds, in words."""
        if self.name == "none":
            return "all parties, including the server and the other clients: this client adds all of its noise itself."
        if not self.secure:
            return (
                "all parties except the server, which gets this client's sums without noise and adds the noise for all "
                f"{self.num_clients} clients."
            )
        missing, turned = (
            f"at most {number}" if number else "none" for number in (self.max_missing, self.max_colluding)
        )
        return (
            f"all parties, including the server, which gets only sums over at least {self.least} of "
            f"{self.num_clients} clients: each adds a part of the noise, std 1/sqrt({self._honest}) of the whole, and "
            f"their masks cancel only in the sum. {missing.capitalize()} of the clients may be missing, whichever they "
            f"are, and {turned} of the others may collude: reveal their keys, add no noise, or use what they know of "
            "their own."
        )

    @property
    def _honest(self) -> int:
        """n: the fewest shares of noise in a sum that the server does not know."""
        assert self.max_colluding is not None  # It was resolved.
        return self.num_clients - self.max_missing - self.max_colluding

    def _check_plan(self, plan: Plan, delta: float) -> None:
        if self.secure:
            check_number("delta", check_delta(delta), high=_MOST_DELTA)
        if self.secure and any(release.mechanism.sampler.name != "full_batch" for release in plan):
            raise ParameterError(
                "sampling_prob and batch_size must be None under secure aggregation: no amplification by sampling is "
                "proven for sums of integer noise."
            )

    def _checked(self, plan: Plan, n_units: int | None) -> Plan:
        """The plan, if integer shares are fine enough for it on the grids that it will have."""
        total = 0.0
        for release in plan:
            noise = release.mechanism.noise_multiplier
            if not self.secure or noise == 0:
                continue
            grids = grids_of(release, n_units, self.party)
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
