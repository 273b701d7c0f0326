"""The rows of a ledger, chained by their hashes, and what follows from them.

Every row carries the hash of the row before it and its own, SHA-256 over a canonical JSON of all its other fields; the
first row's `prev` is made from the ledger's uuid. A row follows the rows before it only if it keeps every rule below:
`State.follow` is the one place that says so, for a row about to be written, for one that another process wrote, and for
all of them in `verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from dpvb.accounting.costs import Cost
from dpvb.guards.errors import LedgerError

#: Version of rows, hashes, orders and tables; a ledger of another one is refused.
FORMAT = 1
#: Limit of the bytes of a row's other facts, as JSON: a plan of some 2,000 different releases.
MAX_BODY = 2**18
#: Kinds of rows that change the total of a data set.
COSTS = ("charge", "sole", "refund")
#: Remedy for a ledger that fails a check.
WAY_OUT = (
    "Nothing is spent from a ledger that fails a check; Ledger(..., read_only=True).export(path) or `dpvb ledger "
    "export` still reads it."
)
#: State of the one event of a run that was never charged: a check of private data without noise.
LOOK = "looked"


def canonical(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no blanks, ASCII, finite numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def genesis(uuid: str) -> str:
    """The hash of the row before the first row of a ledger."""
    return hashlib.sha256(f"dpvb ledger {FORMAT} {uuid}".encode()).hexdigest()


class UnreadableError(LedgerError, ValueError):
    """A column of a row is not what was written: a ValueError too, for those who pass over what others append."""


@dataclass(frozen=True)
class Entry:
    """One row of a ledger.

    Attributes:
        seq: 1, 2, 3, ... without gaps.
        kind: "dataset" (a registration), "charge" (within the filter), "sole" (a data set's first plan, charged by its
            own epsilon), "refund" or "event".
        key: what no two rows share; it makes writing idempotent.
        dataset, run, attempt: whose it is; a registration has no run ("", 0).
        form: digest of the cost of a charge; equal plans share it. "" for a row that is not a charge.
        cost, totals: of a charge: canonical JSON of whole numbers, one for each order of the filter, in 1e-9; what it
            costs and what its data set has been charged with it. "" for a row that is not a charge.
        units: of a registration its cap on epsilon, of a charge the filter's epsilon after it, in 1e-9; else 0.
        body: canonical JSON of all other facts.
        created: when, as the clock of the writer had it; nothing depends on it.
        prev, hash: the chain.

    Examples:
        >>> import dpvb
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> [(entry.seq, entry.kind, entry.dataset) for entry in ledger.entries()]
        [(1, 'dataset', 'people')]
    """

    seq: int
    kind: str
    key: str
    dataset: str
    run: str = ""
    attempt: int = 0
    form: str = ""
    cost: str = ""
    totals: str = ""
    units: int = 0
    body: str = ""
    created: str = ""
    prev: str = ""
    hash: str = ""

    @property
    def digest_of_row(self) -> str:
        """The correct value of `hash`."""
        fields = {name: getattr(self, name) for name in COLUMNS if name != "hash"}
        return hashlib.sha256(canonical(fields).encode()).hexdigest()

    def sealed(self) -> Entry:
        """The row with its hash."""
        return replace(self, hash=self.digest_of_row)

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """The other facts."""
        facts: dict[str, Any] = self._parsed("body", dict)
        return facts

    @cached_property
    def cost_units(self) -> tuple[int, ...]:
        """The cost of a charge."""
        return tuple(self._parsed("cost", list))

    @cached_property
    def total_units(self) -> tuple[int, ...]:
        """The totals of a charge."""
        return tuple(self._parsed("totals", list))

    def _parsed(self, column: str, kind: type) -> Any:
        try:
            value = json.loads(getattr(self, column))
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, kind):
            raise refused(self, f"its {column} cannot be read", UnreadableError)
        return value

    @property
    def state(self) -> str | None:
        """The state of an event: "started", "released", "resumed", "finished", "abandoned" or "looked"."""
        return self.facts.get("state")

    @property
    def step(self) -> int | None:
        """The release of an event."""
        return self.facts.get("step")

    @property
    def digest(self) -> str | None:
        """The hash of the release of an event."""
        return self.facts.get("digest")

    @property
    def unseals(self) -> str | None:
        """The one-time key of an event, by which a sealed release is read."""
        return self.facts.get("key")

    @property
    def request(self) -> str | None:
        """The request of an event for a release beyond the plan."""
        return self.facts.get("request")

    @property
    def owner(self) -> str | None:
        """SHA-256 of the token of a charge that its run's owner holds; None in rows of earlier versions."""
        return self.facts.get("owner")


#: The columns of table `entry`, in order, with their types in both databases: whole numbers or text.
COLUMNS: Mapping[str, type] = {
    name: int if name in ("seq", "attempt", "units") else str for name in Entry.__dataclass_fields__
}


def check_hash(entry: Entry) -> Entry:
    """Return a row whose hash fits its contents; else raise LedgerError."""
    if entry.hash != entry.digest_of_row:
        raise refused(entry, "its hash does not fit its contents")
    return entry


def refused(entry: Entry, why: str, kind: type[LedgerError] = LedgerError) -> LedgerError:
    """The error of a row that fails a check."""
    return kind(f"row {entry.seq}: {why}. {WAY_OUT}")


def event_key(run: str, attempt: int, body: Mapping[str, Any]) -> str:
    """Key of an event."""
    return canonical(["event", run, attempt, body["state"], body["step"]])


def refund_key(run: str) -> str:
    """Key of a run's one refund."""
    return canonical(["refund", run])


def form(cost: Cost) -> str:
    """Digest that equal costs share."""
    return hashlib.sha256(canonical(cost.to_dict()).encode()).hexdigest()
