"""The public facts of a run that a privacy statement is made of, and how JSON holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Self

from dpvb.accounting.events import Event
from dpvb.accounting.forms import from_dict
from dpvb.accounting.selection import Selection
from dpvb.core.plan import Plan, Release
from dpvb.core.sampling import FixedSize
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.guards.version import version_with_commit


@dataclass(frozen=True)
class BlockFacts:
    """One block of a release: its shape, the L2 norm that one unit may reach, and the noise std, in its units."""

    name: str
    shape: tuple[int, ...]
    bound: float
    noise_std: float

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_dict` of a statement wrote."""
        return cls(
            facts["name"],
            tuple(check_integer("shape", length, low=1) for length in facts["shape"]),
            check_number("bound", facts["bound"], low=0, closed="neither"),
            check_number("noise_std", facts["noise_std"], low=0, closed="left"),
        )


@dataclass(frozen=True)
class ReleaseFacts:
    """Equal releases of a plan.

    Attributes:
        event: sampler, rate, noise and number of these releases, as the accountant composes them.
        batch_size: for fixed-size batches, else None.
        clipping: "block" or "joint".
        blocks: released together.
    """

    event: Event
    batch_size: int | None
    clipping: str
    blocks: tuple[BlockFacts, ...]

    @classmethod
    def of(cls, release: Release) -> Self:
        """The public facts of one release."""
        sampler = release.mechanism.sampler
        blocks = (BlockFacts(n, b.shape, b.bound, release.noise_std(n)) for n, b in release.blocks.items())
        size = sampler.batch_size if isinstance(sampler, FixedSize) else None
        return cls(release.event(), size, release.clipping, tuple(blocks))

    @classmethod
    def of_plan(cls, plan: Plan) -> tuple[Self, ...]:
        """The releases of a plan, equal ones counted together."""
        counts = Counter(map(cls.of, plan))
        return tuple(replace(one, event=replace(one.event, n_steps=n)) for one, n in counts.items())

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_dict` of a statement wrote."""
        size = facts["batch_size"]
        return cls(
            Event.from_dict(facts["event"]),
            None if size is None else check_integer("batch_size", size, low=1),
            check_choice("clipping", facts["clipping"], ("block", "joint")),
            tuple(map(BlockFacts.from_dict, facts["blocks"])),
        )


@dataclass(frozen=True)
class ChargeFacts:
    """An entry of a ledger: its name, the entry's number and hash, and the data set that was charged."""

    ledger: str
    seq: int
    hash: str
    dataset: str


@dataclass(frozen=True)
class OriginFacts:
    """Version, day and schema of a result.

    Attributes:
        version: of dpvb, with its commit where it is known.
        date: day of the release in UTC. A time of day would tell how long the run took, which no guarantee covers.
        schema: SHA-256 of the schema, as the file that `Schema.save` writes. None (default): there was none.
    """

    version: str
    date: str
    schema: str | None = None

    @classmethod
    def on(cls, date: str | None) -> Self:
        """Return the facts of a result that this version made on a day; None: today."""
        return cls(version_with_commit(), datetime.now(UTC).date().isoformat() if date is None else date)


@dataclass(frozen=True)
class SelectionFacts:
    """A result that was chosen, as the best of a random number of runs.

    Attributes:
        cost: of all runs together.
        num_candidates: number of settings that a run could have.
        holdout: probability that a unit was scored, and not fitted.
    """

    cost: Selection
    num_candidates: int
    holdout: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"cost": self.cost.to_dict(), "num_candidates": self.num_candidates, "holdout": self.holdout}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        holdout = check_number("holdout", facts["holdout"], low=0, high=1, closed="neither")
        number = check_integer("num_candidates", facts["num_candidates"], low=1)
        cost = from_dict(facts["cost"])
        if not isinstance(cost, Selection):
            raise ParameterError("cost must be that of a selection.")
        return cls(cost, number, holdout)
