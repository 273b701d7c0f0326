"""Plans: all releases of a run, fixed before it starts, and how its noise is calibrated.

A mechanism is one frozen object that draws the batch, states the sensitivity and emits the accounting event.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from dpvb import accounting
from dpvb.accounting.events import RELATIONS, Event, NeighboringRelation
from dpvb.core.blocks import PHASES, Block, Phase, swap_ratio
from dpvb.core.counting import COUNTS, with_counts
from dpvb.core.model import MIDWAY, SHARES, StepSize
from dpvb.core.sampling import FullBatch, Sampler
from dpvb.guards.errors import ParameterError, PrivacyError, check_choice, check_delta, check_number


@dataclass(frozen=True)
class Mechanism:
    """A sampler with its Gaussian noise: one private release.

    Attributes:
        sampler: how the batch is drawn.
        noise_multiplier: noise std over the clip norm C; 0 means no noise and no privacy.
    """

    sampler: Sampler
    noise_multiplier: float

    def __post_init__(self) -> None:
        check_number("noise_multiplier", self.noise_multiplier, low=0, high=1e12)

    def sensitivity(self, neighboring_relation: NeighboringRelation, ratio: float) -> float:
        """Largest distance over C of the sums that one unit makes possible; `ratio` is Δ/C, the swap ratio.

        See `Event.sensitivity`: a unit that can be absent counts with its whole contribution.
        """
        return self.event(ratio).sensitivity(neighboring_relation)

    def event(self, ratio: float) -> Event:
        """The event that the accountant composes."""
        return Event(
            sampler=self.sampler.name,
            sampling_prob=self.sampler.sampling_prob,
            noise_multiplier=self.noise_multiplier,
            swap_ratio=ratio,
        )


@dataclass(frozen=True)
class Release:
    """One call of the wall: which blocks, by which mechanism, and how they share its noise.

    Attributes:
        blocks: the blocks released together; one subsample and one event covers them all.
        mechanism: sampler and noise.
        weights: share w_b of each block, Σ w_b² = 1, by default in proportion to the blocks' own weights; a block's
            noise std is noise_multiplier·bound/w_b.
        clipping: "block" clips every block to its own bound; "joint" the scaled concatenation to norm 1.
    """

    blocks: Mapping[str, Block]
    mechanism: Mechanism
    weights: Mapping[str, float] = field(default_factory=dict)
    clipping: Literal["block", "joint"] = "block"

    def __post_init__(self) -> None:
        check_choice("clipping", self.clipping, ("block", "joint"))
        if not self.blocks:
            raise ParameterError("A release needs at least one block.")
        if not self.weights:
            length = math.sqrt(math.fsum(block.weight**2 for block in self.blocks.values()))
            object.__setattr__(self, "weights", {name: block.weight / length for name, block in self.blocks.items()})
        if set(self.weights) != set(self.blocks):
            raise ParameterError(f"weights must name the blocks {sorted(self.blocks)}, got {sorted(self.weights)}.")
        for name, weight in self.weights.items():
            check_number(f"weights[{name!r}]", weight, low=0, high=1, closed="right")
        if math.fsum(w * w for w in self.weights.values()) > 1.0 + 1e-12:
            raise ParameterError("The squares of weights must sum to at most 1: they share one unit of sensitivity.")

    @property
    def asked(self) -> dict[str, Block]:
        """The blocks that the model computes: all but the counts, which the wall computes itself."""
        return {name: block for name, block in self.blocks.items() if name not in COUNTS}

    def noise_std(self, name: str) -> float:
        """Noise std of a block's scaled coordinate, in the block's units."""
        return self.mechanism.noise_multiplier * self.blocks[name].bound / self.weights[name]

    def event(self) -> Event:
        """The events that the accountant composes."""
        return self.mechanism.event(swap_ratio(self.blocks))


@dataclass(frozen=True)
class Plan:
    """All releases of a run, fixed before it starts, and the guarantee of their composition.

    Attributes:
        releases: in order.
        neighboring_relation: what neighbouring data sets differ in.
        unit: whose presence is protected, in words: "document", "row", "person".
    """

    releases: Sequence[Release]
    neighboring_relation: NeighboringRelation = "add_or_remove_one"
    unit: str = "document"

    def __post_init__(self) -> None:
        check_choice("neighboring_relation", self.neighboring_relation, RELATIONS)
        object.__setattr__(self, "releases", tuple(self.releases))
        if not self.releases:
            raise ParameterError("A plan needs at least one release.")

    def __len__(self) -> int:
        return len(self.releases)

    def __iter__(self) -> Iterator[Release]:
        return iter(self.releases)

    def events(self) -> list[Event]:
        """The events of all releases, equal ones counted together (composition does not depend on order)."""
        counts = Counter(release.event() for release in self.releases)
        return [replace(event, n_steps=count) for event, count in counts.items()]

    def noise_stds(self, name: str) -> list[float]:
        """Noise std of the full-data sum of a block, for each of its releases in order."""
        return [
            release.noise_std(name) / release.mechanism.sampler.sampling_prob
            for release in self.releases
            if name in release.blocks
        ]

    def noise_std_of_mean(self, name: str, start: int = 0) -> float:
        """Noise std of the mean of a block's releases from number `start` on, each weighted by its precision."""
        stds = self.noise_stds(name)[start:]
        return 0.0 if min(stds) == 0 else math.fsum(std**-2 for std in stds) ** -0.5

    def noise_std_at_end(self, name: str, rho: StepSize) -> float:
        """Noise std of a block's full-data sum in the last `core.estimate.Estimate` of a run with these step sizes."""
        variance = mass = 0.0
        for t, release in enumerate(self.releases, start=1):
            if name in release.blocks:
                fresh = release.noise_std(name) / release.mechanism.sampler.sampling_prob
                step = rho(t) if release.blocks[name].average else 1.0
                variance = step**2 * fresh**2 + (1 - step) ** 2 * variance
                mass = step + (1 - step) * mass
        return math.sqrt(variance) / mass

    def scaled(self, scale: float) -> Plan:
        """The same plan with all noise multipliers scaled."""
        counts_of_phase = {
            id(release): replace(
                release,
                mechanism=replace(release.mechanism, noise_multiplier=scale * release.mechanism.noise_multiplier),
            )
            for release in self.releases
        }
        return replace(self, releases=[counts_of_phase[id(release)] for release in self.releases])

    def epsilon(self, delta: float, method: str = "pld") -> float:
        """ε at a public δ, an upper bound."""
        return accounting.epsilon_of(
            self.events(), delta=delta, neighboring_relation=self.neighboring_relation, method=method
        )

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of everything public that the plan fixes."""
        facts = {
            "relation": self.neighboring_relation,
            "unit": self.unit,
            "releases": [
                {
                    "blocks": {name: vars(block) for name, block in release.blocks.items()},
                    "weights": dict(release.weights),
                    "clip": release.clipping,
                    "sampler": {
                        # Runs on record were begun under this spelling.
                        {"n_units": "num_examples"}.get(name, name): value
                        for name, value in vars(release.mechanism.sampler).items()
                    },
                    "event": release.event().to_dict(),
                }
                for release in self.releases
            ],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()


def phased(
    blocks: Mapping[str, Block],
    sampler: Sampler,
    schedule: Sequence[float],
    *,
    shares: Mapping[str, float] = SHARES,
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    unit: str = "document",
    clipping: Literal["block", "joint"] = "block",
) -> Plan:
    """Lay out a model's releases by phase: step blocks at every step, those of each other phase once, in order.

    Blocks of phase "midway" are released after the share `MIDWAY` of the steps.

    Every release counts its units as well.

    Args:
        blocks: the model's declaration.
        sampler: how the step batches are drawn; all others take the full batch.
        schedule: noise multiplier of each step, shape (n_steps,); meant relatively if the plan is calibrated. Without
            step blocks there are no steps.
        shares: part of the budget Σ p²/σ², which orders the cost of releases when noise is large, that the release of
            each phase other than the steps takes where there is one.
        neighboring_relation, unit, clipping: as in Plan and Release.
    """
    in_phase = {phase: {name: block for name, block in blocks.items() if block.phase == phase} for phase in PHASES}
    in_phase = {phase: with_counts(releases) if releases else releases for phase, releases in in_phase.items()}
    if not in_phase["step"]:
        schedule = ()
    elif not len(schedule):
        raise ParameterError("A schedule needs the noise of at least one step where blocks are released at every step.")
    steps = {noise: Release(in_phase["step"], Mechanism(sampler, noise), clipping=clipping) for noise in set(schedule)}
    taken = {
        phase: check_number(f"shares[{phase!r}]", shares[phase], low=0, high=1, closed="neither")
        for phase in PHASES
        if phase != "step" and in_phase[phase]
    }
    rest = 1.0 - sum(taken.values())
    if rest <= 0:
        raise ParameterError(f"shares must leave something for the steps: their sum is below 1, got {dict(shares)}.")
    cost = sampler.sampling_prob**2 * math.fsum(noise**-2 if noise > 0 else math.inf for noise in schedule)
    cost = cost if in_phase["step"] else rest  # Without steps their part goes to what is released once.
    laid: dict[Phase, list[Release]] = {
        phase: [Release(in_phase[phase], Mechanism(FullBatch(), math.sqrt(rest / (share * cost))), clipping=clipping)]
        for phase, share in taken.items()
    }
    before = round(MIDWAY * len(schedule))
    laid["step"] = [steps[noise] for noise in schedule[:before]]
    laid["midway"] = [*laid.get("midway", []), *(steps[noise] for noise in schedule[before:])]
    releases = [release for phase in PHASES for release in laid.get(phase, [])]
    return Plan(releases, neighboring_relation, unit)


def calibrated(plan: Plan, *, epsilon: float, delta: float, accountant: str = "pld") -> Plan:
    """Scale all noise multipliers of a plan by one factor, so that it meets (ε, δ).

    Args:
        plan: its noise multipliers are relative.
        epsilon: target in (0, inf]; infinity means no noise and no privacy.
        delta: in (0, 1).
        accountant: method of the calibration; a method that is for comparison only is checked by "pld".

    Raises:
        ParameterError: for an argument outside its range.
        PrivacyError: if an unsound method left too little noise, or if dp-accounting contradicts the accountant.
    """
    scale = accounting.calibrate(
        lambda scale: plan.scaled(scale).events(),
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=plan.neighboring_relation,
        method=accountant,
    )
    result = plan.scaled(scale)
    if epsilon == math.inf:
        return result
    if accountant not in ("pld", "renyi"):
        return check_budget(result, epsilon=epsilon, delta=delta)
    accounting.confirm_once(
        result.events(), epsilon=epsilon, delta=delta, neighboring_relation=plan.neighboring_relation
    )
    return result


def check_budget(plan: Plan, *, epsilon: float, delta: float) -> Plan:
    """Return the plan if its ε, as the tight accountant finds it, does not exceed a public epsilon.

    Raises:
        PrivacyError: naming both; or if dp-accounting contradicts the accountant.
    """
    check_number("epsilon", epsilon, low=0, closed="right")
    check_delta(delta)
    if epsilon == math.inf:
        return plan
    if (spent := plan.epsilon(delta)) > epsilon:
        raise PrivacyError(
            f"epsilon = {epsilon:g} is not met: this noise gives epsilon = {accounting.rounded_up(spent)} at delta = "
            f"{delta:g}. Leave noise_multiplier out, take more noise, or a sound accountant."
        )
    accounting.confirm_once(plan.events(), epsilon=spent, delta=delta, neighboring_relation=plan.neighboring_relation)
    return plan
