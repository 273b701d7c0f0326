"""State from the rows of a ledger: remaining budgets, and valid next rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition, Cost
from dpvb.accounting.forms import from_dict
from dpvb.accounting.selection import Selection
from dpvb.guards.errors import LedgerError, ParameterError
from dpvb.ledger.chain import COSTS, WAY_OUT, Entry, canonical, check_hash, genesis, refused
from dpvb.ledger.head import Head
from dpvb.ledger.records import Dataset
from dpvb.ledger.run_history import Past, Units, fact
from dpvb.ledger.store import Store, Transaction

#: Errors of facts, or of calculations with them, that no ledger has written.
ODD = (ParameterError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError)
_ODD = (LedgerError, *ODD)
# The costs that `costs_more_now` reads: of fixed-size batches, or with a swap ratio below 1.
_MAY_COST_MORE = re.compile('"fixed_size"|"swap_ratio":(0|[0-9.]+e-)')


@dataclass(frozen=True)
class Price:
    """Result of a charge.

    Attributes:
        totals: of the data set after it.
        spent: the filter's epsilon after it by what the rows say, the worst of the parts that it concerns.
        counted: the same with what charges of earlier versions cost by today's accountant; it decides.
        favoured: index of the order that carries most of delta.
        first: whether neither the data set nor its whole or any of its parts has been charged before.
    """

    totals: Units
    spent: int
    counted: int
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
        favoured: for each whole data set that was charged, the order that carries most of delta.
        widths: for each of these, how many numbers its costs have: one for each order, and two more where the rule for
            Gaussians counts as well.
        understated: For each data set, the cost that counts in addition to what its rows say: of charges that cost more
            by today's accountant, and of refunds that break a rule.
        shared: whether others may append. Their claims are then calculated anew, and an odd row stops no other run.
    """

    uuid: str
    seq: int = 0
    hash: str = ""
    datasets: dict[str, Dataset] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    charges: dict[str, Entry] = field(default_factory=dict)
    favoured: dict[str, int] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    understated: dict[str, Units] = field(default_factory=dict)
    shared: bool = False

    def __post_init__(self) -> None:
        self.hash = self.hash or genesis(self.uuid)

    @staticmethod
    def at(head: Head, row: Callable[[int], Entry | None], first: Callable[[str], Entry | None] | None = None) -> State:
        """The state that a head stands for.

        Args:
            head: of the ledger.
            row: finds a row by its number.
            first: finds the first charge of a data set, where others may append and no row is believed that a charge
                favours the order that the first one did.

        Raises:
            LedgerError: if a row that the head names is missing or was changed.
        """
        state = State(head.uuid, head.seq, head.hash, shared=first is not None)
        if first is not None:  # Looked up beforehand: that a charge was changed is not a fault of a registration.
            first = {name: first(name) for name, (_, charge) in head.datasets.items() if charge}.get
        for name, (seq, _) in sorted(head.datasets.items(), key=lambda item: item[1]):
            registration = _named(row(seq), seq, name, ("dataset",))
            with suppress(*_ODD) if state.shared else nullcontext():
                state._take_dataset(registration, first)
        for name in state.datasets:
            if charge := head.datasets[name][1]:
                state.charges[name] = _named(row(charge), charge, name, COSTS)
        for name in state.charges:
            whole = state.datasets[name].part_of or name
            if whole not in state.favoured:
                state.favoured[whole] = state._first_favoured(name, first)
                state.widths[whole] = len(state.charges[name].total_units)
        return state

    def _first_favoured(self, name: str, first: Callable[[str], Entry | None] | None) -> int:
        """The order that the first charge of a data set's family favours."""
        if first is None:
            return int(self.charges[name].facts["favoured"])
        charges = filter(None, (first(one) for one in self.family(name) if one in self.charges))
        earliest = min(charges, key=lambda entry: entry.seq, default=self.charges[name])
        facts = self.datasets[name]
        return spending.favoured_order(earliest.cost_units, epsilon=facts.cap, delta=facts.delta)

    def copy(self) -> State:
        """A state of its own."""
        return replace(
            self,
            datasets=dict(self.datasets),
            rows=dict(self.rows),
            charges=dict(self.charges),
            favoured=dict(self.favoured),
            widths=dict(self.widths),
            understated=dict(self.understated),
        )

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
            names = ", ".join(map(repr, sorted(self.datasets))) or "none yet"
            raise LedgerError(
                f"dataset must be one that is registered ({names}), got {name!r}. `dpvb ledger register` adds one."
            )
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
        """Charges of a data set itself."""
        return self.charges[name].total_units if name in self.charges else (0,) * self.width(name)

    def width(self, name: str) -> int:
        """Return how many numbers a data set's costs have. In a shared store it is unknown whether noise was normal."""
        whole = self.datasets[name].part_of or name
        return self.widths.get(whole, len(spending.ORDERS) + 2 * (not self.shared))

    def units(self, name: str, cost: Cost, *, normal: bool) -> Units:
        """A cost as a data set counts it; `normal` says whether all its noise is normal."""
        facts = self.datasets[name]
        if self.width(name) == len(spending.ORDERS):
            return spending.cost_units(cost)
        return spending.covered_units(cost, epsilon=facts.cap, delta=facts.delta, normal=normal)

    def price(self, name: str, cost: Units = ()) -> Price:
        """Return the result of charging a data set with a cost; by default with none."""
        cost = cost or (0,) * self.width(name)
        facts = self.datasets[name]
        whole = facts.part_of or name
        favoured = self.favoured.get(whole)
        first = favoured is None
        if favoured is None:
            orders = cost[: len(spending.ORDERS)]
            favoured = spending.favoured_order(orders, epsilon=facts.cap, delta=facts.delta)
        spent = counted = 0
        for line in self.lines(name):
            total = cost
            for one in line:
                total = spending.add(total, self.totals(one))
            if any(total):
                spent = max(spent, spending.counted_units(total, favoured, facts.delta))
            for one in line:
                total = spending.add(total, self.understated.get(one, (0,) * len(total)))
            if any(total):
                counted = max(counted, spending.counted_units(total, favoured, facts.delta))
        return Price(spending.add(self.totals(name), cost), spent, counted, favoured, first)

    def recount(self, entry: Entry) -> None:
        """Note what a charge costs by today's accountant beyond what its row says; a row itself is never changed."""
        if any(more := self.beyond(entry)):
            self.understate(entry.dataset, more)

    def understate(self, name: str, more: Sequence[int]) -> None:
        """Count more for a data set than its rows say."""
        self.understated[name] = spending.add(self.understated.get(name, (0,) * len(more)), more)

    def beyond(self, entry: Entry) -> Units:
        """Return the cost of a charge by today's accountant beyond that in its row.

        A refund gives back what was charged, and nothing follows a charge by its own epsilon: of both it is nothing.
        """
        if costs_more_now(entry):
            with suppress(*_ODD):  # A row of another writer has its cost.
                cost = from_dict(entry.facts["cost"])
                today = self.units(entry.dataset, cost, normal=fact(entry, "normal") is True)
                more = tuple(max(0, now - then) for now, then in zip(today, entry.cost_units, strict=True))
                if min(today[: len(spending.ORDERS)]) < spending.SATURATED:  # No ledger takes a plan without noise.
                    return more
        return ()

    def sole(self, name: str) -> list[Entry]:
        """The charges that hold by their own epsilon only, and that nothing can follow."""
        return [self.charges[one] for line in self.lines(name) for one in line if self._is_sole(one)]

    def _is_sole(self, name: str) -> bool:
        charge = self.charges.get(name)
        return charge is not None and charge.kind == "sole" and charge.totals == charge.cost

    def follow(self, entry: Entry, past: Callable[[str], Past] = lambda _: Past()) -> str:
        """Move on by one row.

        Args:
            entry: the row.
            past: tells of a run what its rows before this one amount to; only a refund asks.

        Returns:
            "", or the fault of a row that another writer added to a shared store. Such a row is
            believed: a charge counts with its cost, everything else for nothing.

        Raises:
            LedgerError: naming the row and the check, if it cannot be the next one.
        """
        if entry.seq != self.seq + 1:
            raise refused(entry, f"row {self.seq + 1} is missing, or the rows are out of order")
        if entry.prev != self.hash:
            raise refused(entry, "its chain is broken: it does not follow from the row before it")
        check_hash(entry)
        odd = self._take_charge(entry, past) if entry.cost or entry.totals else self._take_other(entry)
        if odd and not self.shared:
            raise refused(entry, odd)
        self.seq, self.hash = entry.seq, entry.hash
        return odd

    def _take_other(self, entry: Entry) -> str:
        try:
            if entry.kind == "dataset":
                self._take_dataset(entry)
            elif entry.kind != "event":
                return f"it has the kind {entry.kind!r} and no cost"
            elif entry.dataset not in self.datasets:
                return "its data set is not registered"
            elif entry.units or not isinstance(entry.facts.get("state"), str):
                return "it is not an event that a ledger writes"
        except ODD:  # Before LedgerError: an UnreadableError is both.
            return "its contents are not what a ledger writes"
        except LedgerError as error:
            return str(error).rstrip(".")
        return ""

    def _take_dataset(self, entry: Entry, first: Callable[[str], Entry | None] | None = None) -> None:
        facts = Dataset.from_dict(entry.facts)
        check_registration(facts, self)
        if (entry.dataset, entry.key, entry.units) != (facts.name, dataset_key(facts.name), facts.cap):
            raise LedgerError("its columns differ from its contents.")
        if first is not None and facts.part_of is not None:
            charged = [first(one) for one in [*self.family(facts.part_of), facts.name]]
            if any(one is not None and one.seq < entry.seq for one in charged):
                raise LedgerError("it is a part of what was charged before.")
        self.datasets[facts.name] = facts
        self.rows[facts.name] = entry.seq

    def _take_charge(self, entry: Entry, past: Callable[[str], Past]) -> str:
        """Count a cost. Refuse, in every store, a row that would lower a total wrongly or cannot be counted."""
        if entry.kind not in COSTS:
            raise refused(entry, f"it has the kind {entry.kind!r} and a cost")
        if entry.dataset not in self.datasets:
            if self.shared:  # Its registration was odd, and stands for no data set.
                return "its data set is not registered"
            raise refused(entry, "its data set is not registered")
        try:
            cost = entry.cost_units
        except _ODD as error:
            raise refused(entry, "its contents are not what a ledger writes") from error
        widths = {self.width(entry.dataset)}
        if self.family(entry.dataset)[0] not in self.favoured:
            widths.add(len(spending.ORDERS))  # As earlier versions began.
        if len(cost) not in widths or not all(type(part) is int for part in cost):
            raise refused(entry, "its cost is not one whole number for each order")
        if (max(cost) > 0) if entry.kind == "refund" else (min(cost) < 0):
            raise refused(entry, "its cost has the wrong sign")
        price = self.price(entry.dataset, cost)
        if entry.totals != canonical(price.totals) or min(price.totals) < 0:
            raise refused(entry, "its totals are not those before it plus its cost")
        odd = self.odd_refund(entry, past) if entry.kind == "refund" else self._odd_charge(entry, price)
        if odd and entry.kind == "refund":  # Where others may append, such a refund gives nothing back.
            self.understate(entry.dataset, [-part for part in cost])
        if not odd and (entry.units, fact(entry, "favoured")) != (price.spent, price.favoured):
            odd = "what it says is spent does not follow from its totals"
        self.charges[entry.dataset] = entry
        whole = self.family(entry.dataset)[0]
        self.favoured.setdefault(whole, price.favoured)
        self.widths.setdefault(whole, len(cost))
        if not self.shared:
            self.recount(entry)
        return odd

    def _odd_charge(self, entry: Entry, price: Price) -> str:
        if entry.kind == "sole":
            return "" if price.first else "it is charged as a first plan, but is not one"
        return "it is over the cap" if price.spent > self.datasets[entry.dataset].cap else ""

    def odd_refund(self, entry: Entry, past_of: Callable[[str], Past]) -> str:
        """Return "", or why a refund gives nothing back: it must be within what its run never began."""
        past = past_of(entry.run)
        try:
            past.check_bounds(entry.run, entry.cost_units)
            if past.first is None or past.first.dataset != entry.dataset:
                return "its run was charged to another data set"
            past.check_steps(entry.run, from_dict(entry.facts["cost"]), entry.cost_units)
        except ODD:  # Before LedgerError: an UnreadableError is both.
            return "its contents are not what a ledger writes"
        except LedgerError as error:
            return str(error).rstrip(".")
        return ""


def costs_more_now(entry: Entry) -> bool:
    """Whether a charge may have been written by a version that found a lower cost than today's accountant.

    Up to version 0.2 the distance of two contributions stood for the distance of one from none, and fixed-size batches
    were accounted as if they had no empty places.
    """
    if not _MAY_COST_MORE.search(entry.body):
        return False
    try:
        cost = from_dict(entry.facts["cost"])
    except _ODD:
        return False
    plans = cost.alternatives if isinstance(cost, Selection) else [cost]
    return entry.kind == "charge" and any(
        event.sampler == "fixed_size" or (event.swap_ratio < 1 and event.sampling_prob < 1)
        for plan in plans
        if isinstance(plan, Composition)
        for event in plan.events
    )


def stored_head(store: Store) -> Head:
    """Return the head that a store has, or raise LedgerError."""
    head = store.head()
    if head is None:
        raise LedgerError(f"The head is missing; it distinguishes a ledger from an older copy. {WAY_OUT}")
    return head


def begun(head: Head, store: Store, rows: Transaction) -> State:
    """Return the state at a head; of a shared store, the state at the last row.

    Charges of earlier versions that cost more by today's accountant are looked up. In a shared store, which rows have
    a writer since version 0.2, no other row needs to be calculated.

    Raises:
        LedgerError: if the head is another ledger's, or its rows are not there.
    """
    if head.uuid != store.uuid:
        raise LedgerError(f"The head is that of another ledger. {WAY_OUT}")
    state = State.at(head, rows.row, rows.first_charge if store.shared else None)
    if store.shared:
        for name in state.charges:
            for entry in rows.refunds(name):
                if entry.seq <= head.seq and state.odd_refund(entry, partial(rows.past, seq=entry.seq)):
                    state.understate(name, [-part for part in entry.cost_units])
        state, _ = caught_up(state, rows)
    for name in state.charges:
        for seq, _ in rows.forms(name, earlier=True):
            one = rows.row(seq)
            if one is not None and costs_more_now(one):
                for entry in rows.of_form(one.form):
                    if (entry.dataset, entry.kind) == (name, "charge") and (store.shared or entry.seq <= head.seq):
                        state.recount(entry)
    return state


def caught_up(state: State, rows: Transaction) -> tuple[State, dict[int, str]]:
    """The state at the last row, and the hashes of the rows on the way there.

    Raises:
        LedgerError: if the ledger was set back or replaced, or a row does not follow from those before it.
    """
    entries = rows.since(max(state.seq, 1))
    if state.seq > 0:
        last = next(entries, None)
        if last is None or last.seq != state.seq:
            raise set_back(state.seq)
        if check_hash(last).hash != state.hash:
            raise LedgerError(f"Row {state.seq} is another one than it was: the ledger was replaced. {WAY_OUT}")
    hashes = {state.seq: state.hash}
    for entry in entries:
        state.follow(entry, partial(rows.past, seq=entry.seq))
        hashes[entry.seq] = entry.hash
    return state, hashes


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


def _named(entry: Entry | None, seq: int, name: str, kinds: tuple[str, ...]) -> Entry:
    """The row that a head names."""
    if entry is None:
        raise set_back(seq)
    if entry.dataset != name or entry.kind not in kinds:
        raise refused(entry, "it is not what the head says")
    return entry


def check_kept(head: Head, uuid: str, found: str | None, way_out: str) -> None:
    """Raise LedgerError unless a head that was kept outside the rows belongs to their chain.

    Args:
        head: what was kept.
        uuid: of the ledger.
        found: hash of the row of the head's number; None if there is none.
        way_out: what to do if they disagree.
    """
    if head.uuid != uuid:
        raise LedgerError(f"The head is that of another ledger. {way_out}")
    if head.seq > 0 and found is None:
        raise set_back(head.seq, way_out)
    if head.hash != (found if head.seq > 0 else genesis(uuid)):
        raise LedgerError(
            f"Row {head.seq} is another one than it was: the ledger was replaced, or two copies of it went on apart. "
            f"Nothing is acknowledged here. {way_out}"
        )


def set_back(seq: int, way_out: str = "") -> LedgerError:
    """Return the error of a ledger that lacks a row that it had."""
    return LedgerError(
        f"Row {seq} is missing: the ledger was set back to an older copy, or its -wal file was lost. "
        f"{way_out or RESTORE}"
    )


def dataset_key(name: str) -> str:
    """Key of a registration."""
    return f"dataset/{name}"


#: Remedy for a ledger whose head has a later row.
RESTORE = f"Restore the newest copy. {WAY_OUT}"
