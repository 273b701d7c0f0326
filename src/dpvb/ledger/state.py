"""What the rows of a ledger amount to: who may still spend what, and which row may come next."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dpvb.accounting import filter as spending
from dpvb.errors import LedgerError, ParameterError
from dpvb.ledger.chain import KINDS, Entry, canonical, genesis
from dpvb.ledger.facts import Dataset
from dpvb.ledger.head import Head

Units = tuple[int, ...]
_ZERO: Units = (0,) * len(spending.ORDERS)


@dataclass(frozen=True)
class Price:
    """What a charge would come to.

    Attributes:
        totals: of the data set after it.
        spent: the filter's epsilon after it, the worst of the parts that it concerns.
        favoured: index of the order that carries most of delta.
        first: whether neither the data set nor its whole or any of its parts has been charged before.
    """

    totals: Units
    spent: int
    favoured: int
    first: bool


@dataclass
class State:
    """The end of a chain, and what decides a charge there; `follow` moves it on by one row.

    Attributes:
        uuid: of the ledger.
        seq, hash: of the last row.
        datasets: the registrations.
        rows: the numbers of their rows.
        charges: the newest charge of each data set that has one.
    """

    uuid: str
    seq: int = 0
    hash: str = ""
    datasets: dict[str, Dataset] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    charges: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hash = self.hash or genesis(self.uuid)

    @staticmethod
    def at(head: Head, row: Callable[[int], Entry | None]) -> State:
        """The state that a head stands for.

        Args:
            head: of the ledger.
            row: finds a row by its number.

        Raises:
            LedgerError: if a row that the head names is missing or was changed.
        """
        state = State(head.uuid, head.seq, head.hash)
        for name, (seq, charge) in sorted(head.datasets.items(), key=lambda item: item[1]):
            registration = _named(row(seq), seq, name, ("dataset",))
            state.datasets[name] = Dataset.from_dict(registration.facts)
            state.rows[name] = seq
            if charge:
                state.charges[name] = _named(row(charge), charge, name, ("charge", "sole", "refund"))
        return state

    def copy(self) -> State:
        """A state of its own."""
        return replace(self, datasets=dict(self.datasets), rows=dict(self.rows), charges=dict(self.charges))

    def head(self) -> Head:
        """The head of a ledger in this state."""
        numbers = {
            name: (row, self.charges[name].seq if name in self.charges else 0) for name, row in self.rows.items()
        }
        return Head(self.uuid, self.seq, self.hash, numbers)

    def dataset(self, name: object) -> Dataset:
        """A registered data set.

        Raises:
            LedgerError: if there is none of that name.
        """
        if not isinstance(name, str) or name not in self.datasets:
            known = ", ".join(map(repr, sorted(self.datasets))) or "none yet"
            raise LedgerError(f"dataset must be one that is registered ({known}), got {name!r}. Use `register`.")
        return self.datasets[name]

    def family(self, name: str) -> list[str]:
        """A whole data set and its parts."""
        whole = self.datasets[name].part_of or name
        return [whole, *(part for part, facts in self.datasets.items() if facts.part_of == whole)]

    def lines(self, name: str) -> list[list[str]]:
        """The groups of data sets whose charges add up against one cap and concern this one.

        A unit of a part is touched by the charges of the part and of the whole; of the others' it is not.
        """
        whole, *parts = self.family(name)
        if name != whole:
            return [[whole, name]]
        return [[whole, part] for part in parts] or [[whole]]

    def totals(self, name: str) -> Units:
        """What a data set itself has been charged with."""
        return self.charges[name].total_units if name in self.charges else _ZERO

    def price(self, name: str, cost: Units = _ZERO) -> Price:
        """What charging a data set with a cost would come to."""
        facts = self.datasets[name]
        newest = [self.charges[one] for one in self.family(name) if one in self.charges]
        if newest:
            favoured = int(newest[0].facts["favoured"])
        else:
            favoured = spending.favoured_order(cost, epsilon=facts.cap, delta=facts.delta)
        offsets = spending.offset_units(facts.delta, favoured)
        spent = 0
        for line in self.lines(name):
            total = cost
            for one in line:
                total = spending.add(total, self.totals(one))
            if any(total):
                spent = max(spent, spending.spent_units(total, offsets))
        return Price(spending.add(self.totals(name), cost), spent, favoured, not newest)

    def sole(self, name: str) -> list[Entry]:
        """The charges that hold by their own epsilon only, and that nothing can follow."""
        return [self.charges[one] for line in self.lines(name) for one in line if self._is_sole(one)]

    def _is_sole(self, name: str) -> bool:
        return name in self.charges and self.charges[name].kind == "sole"

    def follow(self, entry: Entry) -> None:
        """Move on by one row.

        Raises:
            LedgerError: naming the row and the check, if it cannot be the next one.
        """
        if entry.seq != self.seq + 1:
            raise _refused(entry, f"row {self.seq + 1} is missing, or the rows are out of order")
        if entry.prev != self.hash:
            raise _refused(entry, "its chain is broken: it does not follow from the row before it")
        check_hash(entry)
        try:
            self._take(entry)
        except (ParameterError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise _refused(entry, "its contents are not what a ledger writes") from error
        self.seq, self.hash = entry.seq, entry.hash

    def _take(self, entry: Entry) -> None:
        if entry.kind not in KINDS:
            raise _refused(entry, f"it has the kind {entry.kind!r}")
        if entry.kind == "dataset":
            self._take_dataset(entry)
        elif entry.dataset not in self.datasets:
            raise _refused(entry, "its data set is not registered")
        elif entry.kind == "event":
            if entry.cost or entry.totals or entry.units:
                raise _refused(entry, "an event costs nothing")
        else:
            self._take_charge(entry)

    def _take_dataset(self, entry: Entry) -> None:
        facts = Dataset.from_dict(entry.facts)
        check_registration(facts, self)
        if (entry.dataset, entry.key, entry.units) != (facts.name, dataset_key(facts.name), facts.cap):
            raise _refused(entry, "its columns differ from its contents")
        self.datasets[facts.name] = facts
        self.rows[facts.name] = entry.seq

    def _take_charge(self, entry: Entry) -> None:
        cost = tuple(json.loads(entry.cost))
        if len(cost) != len(spending.ORDERS) or not all(type(part) is int for part in cost):
            raise _refused(entry, "its cost is not one whole number for each order")
        if (max(cost) > 0) if entry.kind == "refund" else (min(cost) < 0):
            raise _refused(entry, "its cost has the wrong sign")
        price = self.price(entry.dataset, cost)
        if entry.totals != canonical(price.totals) or min(price.totals) < 0:
            raise _refused(entry, "its totals are not those before it plus its cost")
        if (entry.units, entry.facts["favoured"]) != (price.spent, price.favoured):
            raise _refused(entry, "what it says is spent does not follow from its totals")
        if entry.kind == "sole" and not price.first:
            raise _refused(entry, "it is charged as a first plan and is none")
        if entry.kind != "sole" and price.spent > self.datasets[entry.dataset].cap:
            raise _refused(entry, "it is over the cap")
        self.charges[entry.dataset] = entry


def check_registration(facts: Dataset, state: State) -> None:
    """Raise LedgerError unless a data set may be registered now."""
    if facts.name in state.datasets:
        raise LedgerError(
            f"{facts.name!r} is registered with other facts: {state.datasets[facts.name].to_dict()}. They stay for "
            "good; choose another name only for other data."
        )
    if facts.part_of is None:
        return
    whole = state.dataset(facts.part_of)
    if replace(facts, name=whole.name, part_of=None) != whole:
        raise LedgerError(
            f"{facts.name!r} must have the unit, neighboring_relation, epsilon and delta of {whole.name!r}, a whole "
            "data set, to be a part of it: parts spend side by side against one cap."
        )
    if any(one in state.charges for one in state.family(whole.name)):
        raise LedgerError(
            f"{facts.name!r} cannot become a part of {whole.name!r}, which has been charged: parts are fixed "
            "beforehand, so that they do not depend on anything released."
        )


def check_hash(entry: Entry) -> Entry:
    """Return a row whose hash fits its contents; else raise LedgerError."""
    if entry.hash != entry.digest_of_row:
        raise _refused(entry, "its hash does not fit its contents")
    return entry


def _named(entry: Entry | None, seq: int, name: str, kinds: tuple[str, ...]) -> Entry:
    """The row that a head names."""
    if entry is None:
        raise set_back(seq)
    if (check_hash(entry).seq, entry.dataset) != (seq, name) or entry.kind not in kinds:
        raise _refused(entry, "it is not what the head says")
    return entry


def set_back(seq: int) -> LedgerError:
    """What to say of a ledger that lacks a row it had."""
    return LedgerError(
        f"row {seq} is missing: the ledger was set back to an older copy, or its -wal file was lost. Restore the "
        f"newest copy. {WAY_OUT}"
    )


def dataset_key(name: str) -> str:
    """Key of a registration."""
    return f"dataset/{name}"


def _refused(entry: Entry, why: str) -> LedgerError:
    return LedgerError(f"row {entry.seq}: {why}. {WAY_OUT}")


#: What to do with a ledger that fails a check.
WAY_OUT = (
    "Nothing is spent from a ledger that fails a check; Ledger(..., read_only=True).export(path) or `dpvb ledger "
    "export` still reads it."
)
