"""A ledger: a privacy budget that outlives the process. Every fit is charged before it reads data.

    ledger = dpvb.Ledger("budget.db")
    ledger.register("notes", unit="document", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-6)
    with dpvb.Run(ledger=ledger, dataset="notes"):
        dpvb.LDA(20, epsilon=1.0, delta=1e-6, vocabulary=words).fit(documents)
    print(ledger.remaining("notes"))

Rows are only ever appended; each carries the hash of the one before it (`chain`), the totals of its data set after it,
in whole numbers (`accounting.filter`), and follows from the rows before it (`state`, `run_history`). Databases only
keep them (`store`, `sqlite`, `postgresql`). Outside the rows the head (`head`), what each user has seen (`seen`) and
the receipts in released models distinguish a ledger from an older copy of itself. No clock decides anything.
"""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import time
import uuid as uuids
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from dpvb.accounting import Method, budget_warnings
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Cost
from dpvb.accounting.events import Event, NeighboringRelation
from dpvb.core.plan import Plan
from dpvb.guards.errors import (
    LedgerError,
    LedgerUnreachableError,
    ParameterError,
    check_choice,
    check_integer,
    check_number,
)
from dpvb.guards.missing_arguments import constructor_says_what_lacks, says_what_lacks
from dpvb.guards.untrusted import parsed_json, say
from dpvb.ledger import chain, pricing
from dpvb.ledger.address import checked_place, is_address, without_password
from dpvb.ledger.chain import LOOK, MAX_BODY, WAY_OUT, Entry, canonical, check_hash, refused
from dpvb.ledger.head import Head, Seen, way_out
from dpvb.ledger.records import Dataset, Quote, Receipt, Remaining, as_epsilon, check_name, check_new_name
from dpvb.ledger.run_history import Past, Units, order_of
from dpvb.ledger.state import (
    RESTORE,
    State,
    begun,
    caught_up,
    check_kept,
    check_registration,
    dataset_key,
    stored_head,
)
from dpvb.ledger.store import Session, Store, Transaction
from dpvb.ledger.verify import check_end, verify_export, walk, write_export

__all__ = ["Dataset", "Entry", "Ledger", "Quote", "Receipt", "Remaining", "is_address", "verify_export"]

#: Seconds for which a server that is away is asked again, as long as a restart takes; public, the same for all data.
PATIENCE = 30.0
# Seconds before the second attempt, which double up to the longest pause.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

_NOTE: Mapping[str, Any] = {"state": LOOK, "step": None, "digest": None}
_ENDS = ("finished", "abandoned", LOOK)
_STATES = ("started", "released", "resumed", "finished", "abandoned")

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _patient(method: Callable[Concatenate[Ledger, _P], _T]) -> Callable[Concatenate[Ledger, _P], _T]:
    """Have a method wait for a server that is away; the method must come to the same if it is called again."""

    @wraps(method)
    def call(self: Ledger, /, *given: _P.args, **named: _P.kwargs) -> _T:
        return self._patiently(lambda: method(self, *given, **named))

    return cast("Callable[Concatenate[Ledger, _P], _T]", call)


@constructor_says_what_lacks
class Ledger:
    """Ledger of privacy budgets, in a file or in a PostgreSQL database.

    A ledger records the charges of fits and refuses a fit that would exceed the total budget of a data set. Several
    processes and threads may use one ledger at the same time. A pickle, a copy or a forked process opens the same
    ledger. Only the holder of the token of a charge can add events to the run or refund it: the object that made the
    charge, unless it passes the token on.

    Attributes:
        url: Path of the file, or address of the database, including a password.
        uuid: Identifier of the ledger.

    Args:
        path_or_url: Path of a file, which is created if it is missing, or a URL "postgresql://...".
        read_only: Whether the ledger is only read. Default: False. It also allows exporting a ledger that fails a
            check.

    Raises:
        LedgerError: If the ledger cannot be opened, or fails a check: it was changed, reset to an older copy or lost,
            or has another format.

    Examples:
        >>> import dpvb
        >>> ledger = dpvb.Ledger("budget.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> [data.name for data in ledger.datasets()]
        ['people']
    """

    def __init__(self, path_or_url: str | os.PathLike[str], *, read_only: bool = False) -> None:
        """Open a ledger, or create one; see the class for arguments and errors."""
        self.url = checked_place(path_or_url)
        self._read_only = bool(read_only)
        self.uuid = ""
        self._begin()
        self._open()

    @_patient
    def _open(self) -> None:
        with self._session.lock:
            self.uuid = self._opened().uuid
            self._seen = Seen(self.uuid)
            if not self._read_only:
                with self._transaction() as (_, state):
                    pass
                self._opened().settle(state.head())  # Where a crash came between a commit and its head.

    def _begin(self) -> None:
        self._state: State | None = None
        self._is_away = False  # Whether the server stayed away when it was asked last.
        self._sent = ""  # Hash of the row that was sent last, whether or not it was acknowledged.
        self._session = Session()
        weakref.finalize(self, self._session.close)

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_read_only": self._read_only, "uuid": self.uuid}

    def __setstate__(self, facts: dict[str, Any]) -> None:
        self.__dict__.update(facts)
        self._seen = Seen(self.uuid)
        self._begin()

    def __repr__(self) -> str:
        return f"Ledger({self.location!r})"

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def location(self) -> str:
        """Path of the file, or address of the database without its password."""
        return without_password(self.url)

    def close(self) -> None:
        """Let go of the database; the next use opens it again."""
        with self._session.lock:
            self._session.close()

    @says_what_lacks
    @_patient
    def register(
        self,
        name: str,
        *,
        unit: str,
        neighboring_relation: NeighboringRelation,
        epsilon: float,
        delta: float,
        part_of: str | None = None,
    ) -> None:
        """Say what a data set may lose in all; for good. Saying the same again changes nothing.

        Args:
            name: a public name, in only one form and unlike every other name: see `names`.
            unit: whose presence is protected, in words: "document", "row", "person".
            neighboring_relation: what neighbouring data sets differ in: "add_or_remove_one" or "replace_one".
            epsilon: the cap, in [0, 1e6], on what all plans together may spend.
            delta: δ of their guarantee, in (0, 1): well below one over the number of units.
            part_of: a data set that this one is a part of, a group of units that no other part shares. Parts spend
                side by side, each with what is charged to the whole, against the one cap. They are registered before
                the whole is charged, with its facts.

        Raises:
            ParameterError: for a value outside its range, or a name in another form than is accepted.
            LedgerError: if the name stands for other facts or looks like another, or the part does not fit its whole.
        """
        facts = Dataset(name, unit, neighboring_relation, epsilon, delta, part_of)
        budget_warnings.warn(epsilon, delta, unit=facts.unit, stacklevel=4)
        with self._transaction(write=True) as (rows, state):
            if state.datasets.get(facts.name) == facts:
                return
            check_registration(facts, state)
            check_new_name(facts.name, state.datasets)
            if other := rows.keyed(dataset_key(facts.name)):
                raise LedgerError(f"Row {other.seq} holds this name and breaks a rule. Choose another name.")
            key, body = dataset_key(facts.name), facts.to_dict()
            self._append(rows, state, body, kind="dataset", key=key, dataset=facts.name, units=facts.cap)

    @_patient
    def datasets(self) -> list[Dataset]:
        """All data sets, in the order of their registration."""
        with self._transaction() as (_, state):
            return list(state.datasets.values())

    @_patient
    def remaining(self, name: str) -> Remaining:
        """Return the remaining budget of a data set; of a whole with parts, that of the worst part.

        Raises:
            LedgerError: if there is none of that name.
        """
        with self._transaction() as (rows, state):
            facts = state.dataset(name)
            charged = pricing.charged(rows, state, name)
            number = sum(count for one in pricing.concerned(state, name) for _, count in rows.forms(one))
            more = pricing.num_more(rows, state, name)
        spent = pricing.spent(state, name)
        return Remaining(
            epsilon=as_epsilon(pricing.left(state, name)),
            delta=facts.delta,
            cap_epsilon=facts.epsilon,
            spent_adaptive=spent,
            if_fixed=partial(pricing.if_fixed, charged, facts, otherwise=spent if state.shared else None),
            num_charges=number,
            num_more=more,
            sole=bool(state.sole(name)),
        )

    @_patient
    def quote(self, plan: Plan | Cost | Sequence[Event], *, dataset: str | None = None, normal: bool = True) -> Quote:
        """Return what a plan would cost a data set, and the largest plan of this shape that fits; nothing is spent.

        Args:
            plan: a plan, a cost, or events.
            dataset: whose; not needed if there is only one.
            normal: as in `charge`; a fit by one owner says True.

        Raises:
            LedgerError: if the data set is unknown, or has other neighbours than the plan.
        """
        with self._transaction() as (rows, state):
            facts = pricing.chosen(state, dataset)
            charged = pricing.charged(rows, state, facts.name)
        cost = pricing.as_cost(plan, facts)
        units = state.units(facts.name, cost, normal=normal)
        price = state.price(facts.name, units)
        within = price.counted <= facts.cap
        sole = not within and pricing.is_sole(price, cost, facts)
        alone = cost.epsilon(facts.delta)
        scale, largest = pricing.largest(state, facts, cost, normal=normal)
        total = alone if sole else as_epsilon(price.counted)
        return Quote(
            dataset=facts.name,
            epsilon=alone,
            fits=within or sole,
            total_adaptive=total,
            if_fixed=partial(pricing.if_fixed, charged, facts, cost, otherwise=total if state.shared else None),
            largest=largest,
            noise_scale=scale,
            cap_epsilon=facts.epsilon,
            delta=facts.delta,
            num_fits=int(sole) if sole or state.sole(facts.name) else pricing.num_fits(state, facts.name, units),
        )

    @_patient
    def noise_scale(
        self, plan: Plan | Cost | Sequence[Event], *, epsilon: float, dataset: str | None = None, normal: bool = True
    ) -> float:
        """The least factor for a plan's noise with which it adds at most epsilon to what counts against the cap.

        For a first plan that is its own epsilon; for a later one what the filter's total rises by.

        Args:
            plan: a plan, a cost, or events, with noise.
            epsilon: positive and finite.
            dataset: whose; not needed if there is only one.
            normal: as in `quote`.

        Raises:
            LedgerError: if the data set is unknown, or has other neighbours than the plan.
            ParameterError: if no noise meets epsilon.
        """
        epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="neither")
        with self._transaction() as (_, state):
            facts = pricing.chosen(state, dataset)
        cost, target = pricing.as_cost(plan, facts), spending.cap_units(epsilon)
        scale = pricing.noise_scale(state, facts, cost, target, normal=normal)
        if scale == math.inf:
            raise ParameterError(f"epsilon must be within reach of some noise; {epsilon:g} is not, with this plan.")
        return scale

    def charge(
        self,
        dataset: str,
        cost: Cost,
        *,
        unit: str,
        run: str | None = None,
        plan_digest: str | None = None,
        attempt: int = 0,
        kind: str = "plan",
        steps: Sequence[int] | None = None,
        payload: Mapping[str, Any] | None = None,
        releases: Sequence[Event] | None = None,
        token: str | None = None,
        normal: bool = True,
    ) -> Receipt:
        """Charge a data set, before anything of it is looked at.

        A fit of dpvb charges itself (see `dpvb.Run`). For another analysis give its cost and the unit, and charge
        before the analysis reads the data. Charging again for the same run, attempt, kind and steps gives the same
        receipt and costs nothing.

        Args:
            dataset: whose.
            cost: of what is to be released; it must have noise. For an analysis that is not a fit of dpvb:
                `dpvb.accounting.gaussian_noise`, `LaplaceNoise`, or `StatedGuarantee` for one that states (epsilon,
                delta) only.
            unit: what the run protects; it must be the data set's.
            run: random public name of the run. None: one is drawn, so that each call is charged.
            plan_digest: hash of the run's plan. None: that of the cost.
            attempt: 0 for the first, more after a crash.
            kind: what for, in a word: "plan" for a whole fit, the name of another analysis.
            steps: which releases, if not all.
            payload: other public facts to keep, as JSON can hold them.
            releases: the same as `cost` in the order in which they are made. If releases differ and their order is not
                on record nothing comes back once one has begun.
            normal: whether the noise of each release is normal, or rounded from what is, as events say. False: only its
                Renyi curve is that of the events (see `accounting.dominating_gaussian`).
            token: a secret of the run's owner, of whom only its hash is put on record. None: one is drawn with the
                run's first charge, and only this object remembers it. The same token allows another object to continue.

        Returns:
            The receipt, once the charge is durable.

        Raises:
            BudgetError: if the cap would be exceeded; it says what is left and what would fit.
            LedgerError: if the data set is unknown or has another unit or other neighbours; if the run has ended, was
                taken over by a newer attempt, was charged for another plan, or belongs to another owner; if the ledger
                fails.
            ParameterError: for a value outside its range.
        """
        if not isinstance(cost, Cost):
            raise ParameterError(
                "cost must be dpvb.accounting.gaussian_noise(...), LaplaceNoise(...) or StatedGuarantee(...), got "
                f"{type(cost).__name__}."
            )
        run = secrets.token_hex(16) if run is None else run
        plan_digest = chain.form(cost) if plan_digest is None else plan_digest
        part = None if steps is None else [check_integer("steps", step, low=0) for step in steps]
        attempt = check_integer("attempt", attempt, low=0)
        if token is not None and not (isinstance(token, str) and token):
            raise ParameterError("token must be a text that is not empty.")
        at_orders = spending.cost_units(cost.noise)
        if min(at_orders) >= spending.SATURATED or not any(at_orders):
            raise ParameterError("cost must be positive and finite: a plan without noise has no place under a cap.")
        body: dict[str, Any] = {
            "kind": check_name("kind", kind),
            "plan": check_name("plan_digest", plan_digest),
            "steps": part,
            "cost": cost.to_dict(),
            "payload": dict(payload or {}),
        }
        if normal:
            body["normal"] = True
        if releases is not None:
            body["order"] = order_of(cost, releases)
        check_name("run", run)
        return self._charge(dataset, cost, body, unit=unit, run=run, attempt=attempt, token=token, normal=normal)

    @_patient
    def _charge(
        self,
        dataset: str,
        cost: Cost,
        body: dict[str, Any],
        *,
        unit: str,
        run: str,
        attempt: int,
        token: str | None,
        normal: bool,
    ) -> Receipt:
        body, key = dict(body), canonical(["charge", run, attempt, body["kind"], body["steps"]])
        form = chain.form(cost)
        with self._transaction(write=True) as (rows, state):
            facts = state.dataset(dataset)
            pricing.check_promise(facts, unit, cost)
            newest = rows.newest_of_run(run)
            if newest and (before := rows.keyed(key)):
                if (before.facts["plan"], before.form, before.dataset) != (body["plan"], form, dataset):
                    raise LedgerError(f"Run {run!r} was charged for another plan. Begin a new run for a new plan.")
                covered = len(before.cost_units) > len(spending.ORDERS)
                if covered and (before.facts.get("normal") is True) != normal:
                    raise LedgerError(f"Run {run!r} was charged for noise of another kind. Begin a new run for it.")
                if token is not None:
                    self._check_owner(rows, run, token)
                return self._receipt(before)
            if newest:
                self._check_turn(rows, newest, attempt, dataset=dataset)
                self._check_owner(rows, run, token)
            else:
                self._session.tokens[run] = token or self._session.tokens.get(run) or secrets.token_hex(16)
            if run in self._session.tokens:
                body["owner"] = _hash(self._session.tokens[run])
            cost_units = state.units(dataset, cost, normal=normal)
            price = state.price(dataset, cost_units)
            sole = price.counted > facts.cap and pricing.is_sole(price, cost, facts)
            if sole or price.counted <= facts.cap:
                if sole:
                    body["epsilon"] = cost.epsilon(facts.delta, expected=facts.epsilon)
                columns: dict[str, Any] = {"key": key, "dataset": dataset, "run": run, "attempt": attempt, "form": form}
                return self._append(rows, state, body, cost_units, kind="sole" if sole else "charge", **columns)
        raise pricing.over(state, facts, cost, price, normal=normal)

    @_patient
    def append(
        self,
        run: str,
        *,
        attempt: int,
        state: str,
        step: int | None = None,
        digest: str | None = None,
        key: str | None = None,
        request: str | None = None,
    ) -> Receipt:
        """Put on record how far a run has come. Saying the same again gives the same receipt, "resumed" excepted.

        Args:
            run: a run that was charged.
            attempt: which attempt speaks; a new one says "resumed" first, and from then on no older one may speak.
            state: "started", "released", "resumed", "finished" or "abandoned".
            step: which release.
            digest: hash of what was released.
            key: of what was "released" and lies sealed, the one-time key by which it is read.
            request: of what was "released" beyond the plan, the public name of what asked for it.

        Raises:
            LedgerError: if the run was never charged, has ended, belongs to another owner, or was taken over by a newer
                attempt; or if it said something else about the same step.
            ParameterError: for a value outside its range.
        """
        check_choice("state", state, _STATES)
        attempt = check_integer("attempt", attempt, low=0)
        more = {
            name: check_name(name, value) for name, value in (("key", key), ("request", request)) if value is not None
        }
        if more and state != "released":
            raise ParameterError(f"{next(iter(more))} must be None for the state {state!r}: it speaks of a release.")
        body = {
            "state": state,
            "step": None if step is None else check_integer("step", step, low=0),
            "digest": None if digest is None else check_name("digest", digest),
            **more,
        }
        name = chain.event_key(check_name("run", run), attempt, body)
        with self._transaction(write=True) as (rows, end):
            self._check_owner(rows, run)
            before = rows.keyed(name)
            if before and state == "resumed" and before.hash == self._sent:
                return self._receipt(before)  # It was this call that wrote it, and only the answer was lost.
            if before and state != "resumed":
                if (before.digest, before.unseals, before.request) != (digest, key, request):
                    raise LedgerError(f"Run {run!r} said something else about step {step} before.")
                return self._receipt(before)
            newest = rows.newest_of_run(run)
            if newest is None:
                raise LedgerError(f"Run {run!r} was never charged.")
            self._check_turn(rows, newest, attempt, resumes=state == "resumed")
            return self._note(rows, end, body, newest.dataset, run, attempt)

    def record_data_check(self, dataset: str) -> Receipt:
        """Record that private data are checked without noise. The record is a run of its own and uses no budget.

        Args:
            dataset: Registered name of the data set.

        Raises:
            LedgerError: if the data set is unknown.
        """
        return self._look(dataset, secrets.token_hex(16))

    @_patient
    def _look(self, dataset: str, run: str) -> Receipt:
        with self._transaction(write=True) as (rows, state):
            if before := rows.first_of_run(run):
                return self._receipt(before)
            return self._note(rows, state, _NOTE, state.dataset(dataset).name, run)

    @_patient
    def data_checks(self, dataset: str) -> list[Entry]:
        """Return the records that `record_data_check` wrote for a data set, in order.

        Args:
            dataset: Registered name of the data set.

        Raises:
            LedgerError: if there is none of that name.
        """
        with self._transaction() as (rows, state):
            name = state.dataset(dataset).name
            return [entry for entry in rows.events(canonical(_NOTE)) if entry.dataset == name]

    @_patient
    def history(self, run: str) -> list[Entry]:
        """The charges, refunds and events of a run, in order."""
        with self._transaction() as (rows, _):
            return rows.of_run(check_name("run", run))

    @_patient
    def method(self, name: str, events: Sequence[Event] = ()) -> Method:
        """The accountant's method by which a plan of these events is counted: "pld", or "renyi".

        Args:
            name: of the data set.
            events: of the plan, where its noise is normal, as in `charge`.

        Raises:
            LedgerError: if there is none of that name.
        """
        with self._transaction() as (_, state):
            price = state.price(state.dataset(name).name)
            covered = bool(events) and max(price.totals[len(spending.ORDERS) :], default=spending.SATURATED)
            return "pld" if price.first or covered < spending.SATURATED else "renyi"

    @_patient
    def entries(self) -> list[Entry]:
        """All rows, in order."""
        with self._transaction() as (rows, _):
            return [check_hash(entry) for entry in rows.since(1)]

    @_patient
    def refund(self, run: str, *, unstarted: Cost) -> Receipt:
        """Take back what was charged for releases that never started; the run is abandoned by that.

        Only a charge within the filter can be taken back: there the total is a sum over what was done. The epsilon of
        a first plan that was charged by itself is not.

        Args:
            run: whose.
            unstarted: the cost of the releases that never began; never of more than the run was charged for.

        Raises:
            LedgerError: if the run was never charged, has finished, belongs to another owner, was charged as a data
                set's first plan beyond the filter, or has had another refund; or if more is asked for than can have
                been left of its first charge, each step that was begun or charged again being used.
        """
        key, form = chain.refund_key(check_name("run", run)), chain.form(unstarted)
        with self._transaction(write=True) as (rows, state):
            if before := rows.keyed(key):
                if before.form != form:
                    raise LedgerError(f"Run {run!r} has had a refund already, of something else.")
                return self._receipt(before)
            entries = rows.of_run(run)
            past = Past.of(entries)
            back = past.back(unstarted)
            past.check_bounds(run, [-part for part in back])
            self._check_owner(rows, run, refund=True)
            newest = entries[-1]
            name, attempt = newest.dataset, newest.attempt
            facts = state.dataset(name)
            pricing.check_promise(facts, facts.unit, unstarted)
            past.check_steps(run, unstarted, [-part for part in back])
            if newest.state != "abandoned":
                self._note(rows, state, {"state": "abandoned", "step": None, "digest": None}, name, run, attempt)
            cost = tuple(
                -part if total < spending.SATURATED else 0 for part, total in zip(back, state.totals(name), strict=True)
            )
            columns: dict[str, Any] = {"key": key, "dataset": name, "run": run, "attempt": attempt, "form": form}
            return self._append(rows, state, {"cost": unstarted.to_dict()}, cost, kind="refund", **columns)

    @_patient
    def verify(self, receipts: Sequence[Receipt] = ()) -> None:
        """Check every row, the chain, the totals, the database below them and the head outside them.

        Args:
            receipts: of released models; each must be in the chain.

        Raises:
            LedgerError: naming the check that failed, and the row.
        """
        with self._session.lock:
            store = self._opened()
            if faults := store.check():
                raise LedgerError(f"{self.location}: {'; '.join(faults)}. {WAY_OUT}")
            seen = self._seen.head()
            with store.transaction(write=False) as rows:
                head = stored_head(store)  # Before the rows: it is never ahead of them.
                check_end(walk(store.uuid, rows.since(1), receipts, shared=store.shared), head)
                self._check_heads(seen, head, rows, {})

    @says_what_lacks
    def grant(self, role: str, *, append: bool = True) -> list[str]:
        """Let a role of PostgreSQL look at this ledger and append to it, and do nothing else in it.

        Args:
            role: public; it exists on the server, and keeps no other right on the ledger's tables.
            append: whether fits of this role are charged; without it the role may look, verify and export.

        Returns:
            The statements that were carried out.

        Raises:
            ParameterError: if the ledger is a file.
            LedgerError: if the role does not exist, or the user does not own the ledger.
        """
        with self._session.lock:
            return self._opened().grant(role, append=append)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the whole chain as JSON lines, for `verify_export`; of a damaged ledger, what can be read.

        Raises:
            LedgerError: if the file cannot be written.
        """
        with self._session.lock:
            write_export(path, self._opened())

    def _patiently(self, ask: Callable[[], _T]) -> _T:
        """Ask, and ask again for `PATIENCE` seconds where a server is away; only once where it stayed away before.

        A server that stopped may have lost rows that were not acknowledged. So what this object has read is forgotten,
        and only what was acknowledged is compared.
        """
        end, pause, self._sent = time.monotonic() + PATIENCE * (not self._is_away), _FIRST_PAUSE, ""
        while True:
            try:
                answer = ask()
                self._is_away = False
                return answer
            except LedgerUnreachableError as error:
                left = end - time.monotonic()
                if not is_address(self.url) or left <= 0:
                    self._is_away = True
                    raise
                if pause == _FIRST_PAUSE:
                    say(f"{str(error).rstrip('.')}. Trying again for {PATIENCE:g} s.")
            with self._session.lock:
                self._session.close()
                self._state = None
            time.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    @contextmanager
    def _transaction(self, *, write: bool = False) -> Iterator[tuple[Transaction, State]]:
        """Rows and state at one moment; a writer excludes others, and returns once rows and head are durable."""
        if write and self._read_only:
            raise LedgerError(f"{self.location} was opened with read_only=True; open it without to spend.")
        with self._session.lock:
            store = self._opened()
            seen = self._seen.head()
            # Before the rows: it is never ahead of them. In a shared store it is but what the rows say.
            head = None if store.shared and (self._state or seen) else stored_head(store)
            with store.transaction(write=write) as rows:
                if self._state is None:
                    self._check_heads(seen, head, rows, {})
                    start = seen if store.shared and seen else head
                    assert start is not None  # It was read, as there was no state.
                    self._state = begun(start, store, rows)
                self._state, hashes = caught_up(self._state.copy(), rows)
                self._check_heads(seen, head, rows, hashes)
                state = self._state.copy()
                yield rows, state
            self._state = state
            if write:
                store.settle(state.head())
            if not self._read_only:
                self._keep(store, state, hashes, seen, acknowledged=write)

    def _check_heads(
        self, seen: Head | None, stored: Head | None, rows: Transaction, hashes: Mapping[int, str]
    ) -> None:
        """Raise LedgerError unless heads belong to the chain; `hashes` are those of rows that were just followed."""
        for head, remedy in ((stored, RESTORE), (seen, way_out(self._seen.path))):
            if head is not None:
                row = rows.row(head.seq) if head.seq not in hashes else None
                check_kept(head, self.uuid, row.hash if row else hashes.get(head.seq), remedy)

    def _keep(
        self, store: Store, state: State, hashes: Mapping[int, str], seen: Head | None, *, acknowledged: bool
    ) -> None:
        """Remember the newest head, once it is durable: of a shared store after an acknowledgement only."""
        if (seen is not None and seen.seq == state.seq) or (store.shared and not acknowledged):
            return
        hashes = {**hashes, state.seq: state.hash}

        def check(kept: Head) -> None:
            if kept.seq in hashes:
                check_kept(kept, self.uuid, hashes[kept.seq], way_out(self._seen.path))
                return
            with store.transaction(write=False) as rows:
                self._check_heads(kept, None, rows, hashes)

        self._seen.keep(state.head(), check)

    def _check_turn(
        self, rows: Transaction, newest: Entry, attempt: int, *, dataset: str | None = None, resumes: bool = False
    ) -> None:
        """Raise LedgerError unless this attempt may write the row after the newest of its run."""
        run = newest.run
        if newest.state in _ENDS or rows.keyed(chain.refund_key(run)):
            raise LedgerError(f"Run {run!r} has ended; begin a new one.")
        if dataset not in (None, newest.dataset):
            raise LedgerError(f"Run {run!r} was charged to {newest.dataset!r}, not to {dataset!r}.")
        if attempt < newest.attempt or (resumes and attempt == newest.attempt):
            raise LedgerError(f"Run {run!r} was taken over by another process, as attempt {newest.attempt}.")
        if attempt > newest.attempt + resumes:
            raise LedgerError(f"Run {run!r} is at attempt {newest.attempt}; say 'resumed' to begin the next one.")

    def _check_owner(self, rows: Transaction, run: str, token: str | None = None, *, refund: bool = False) -> None:
        """Raise LedgerError unless a token is that of a run's charge; remember it if it is."""
        first, token = rows.first_of_run(run), token or self._session.tokens.get(run)
        owner = first and first.owner
        if owner is None:
            if refund:
                raise LedgerError(f"Run {run!r} has no owner, as earlier versions wrote it: nothing of it comes back.")
        elif token is None or _hash(token) != owner:
            raise LedgerError(
                f"Run {run!r} belongs to another owner: only the holder of the token of its charge may continue it, "
                "end it or take a refund."
            )
        else:
            self._session.tokens[run] = token

    def _opened(self) -> Store:
        if self._session.store is None:
            store = self._store()
            if self.uuid not in ("", store.uuid):
                store.close()
                raise LedgerError(f"{self.location} holds another ledger now, {store.uuid} instead of {self.uuid}.")
            self._session.store = store
        return self._session.store

    def _store(self) -> Store:
        new, now = self.uuid or str(uuids.uuid4()), _now()
        if is_address(self.url):
            from dpvb.ledger.postgresql import PostgreSQLStore

            return PostgreSQLStore(self.url, uuid=new, created=now, read_only=self._read_only)
        from dpvb.ledger.sqlite import SqliteStore

        if self.uuid and not Path(self.url).exists():
            raise LedgerError(f"{self.url}: this ledger is gone.")
        return SqliteStore(Path(self.url), uuid=new, created=now, read_only=self._read_only)

    def _note(
        self, rows: Transaction, state: State, body: Mapping[str, Any], dataset: str, run: str, attempt: int = 0
    ) -> Receipt:
        key = chain.event_key(run, attempt, body)
        return self._append(rows, state, body, kind="event", key=key, dataset=dataset, run=run, attempt=attempt)

    def _append(
        self,
        rows: Transaction,
        state: State,
        body: Mapping[str, Any],
        cost: Units = (),
        **columns: Any,
    ) -> Receipt:
        """Append a row with these other facts, cost and columns, if it follows from the rows."""
        if cost:
            price = state.price(columns["dataset"], cost)
            body = {**body, "favoured": price.favoured}
            columns |= {"cost": canonical(cost), "totals": canonical(price.totals), "units": price.spent}
        try:
            text = canonical(body)
            parsed_json(text)  # Every reader must be able to.
        except (TypeError, ValueError, RecursionError) as error:
            raise ParameterError(f"payload must be what JSON can hold, with finite numbers: {error}.") from error
        if len(text) > MAX_BODY or "\\u0000" in text:
            raise ParameterError(
                f"An entry of the ledger must have at most {MAX_BODY:,} bytes of JSON and no NUL, got {len(text):,} "
                "bytes. A plan of many different releases has too many: use fewer steps (n_steps). Nothing was spent."
            )
        entry = Entry(state.seq + 1, body=text, created=_now(), prev=state.hash, **columns).sealed()
        if odd := state.follow(entry, partial(rows.past, seq=entry.seq)):
            raise refused(entry, odd)
        self._sent = entry.hash
        rows.append(entry, state.head())
        return self._receipt(entry)

    def _receipt(self, entry: Entry) -> Receipt:
        return Receipt(self.uuid, entry.seq, entry.hash, entry.dataset)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
