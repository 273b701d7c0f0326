"""A fit that a ledger counts: charged before it looks, and continued after a crash at no cost.

What may be observed of a step is its release, and no release leaves the memory of its process before it is on record
(see `checkpoint`). So after a crash

* a step that is on record is never made again: its release is read from the checkpoint, and the wall gives it out;
* a step that is not on record left nothing behind, and is made afresh: another batch, other noise, whatever the data
  are by now. Its first charge pays for it;
* a step that is on record, and whose bytes are lost, is charged again before it is made again.

Nothing private is kept or compared for that. A newer attempt fences off an older one: the ledger takes no record of a
release from it, so nothing of it is ever read.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, final

from dpvb.accounting.costs import Composition
from dpvb.core.forks import Origin
from dpvb.core.journal import Journal, Sums
from dpvb.core.plan import Plan, Release
from dpvb.errors import CheckpointError, DpvbError, LedgerError, ParameterError, check_choice
from dpvb.guards.strangers import say
from dpvb.ledger import Entry, Ledger, Receipt, is_address
from dpvb.results.facts import ChargeFacts
from dpvb.runs.checkpoint import Checkpoint, Seal

#: How a run uses its checkpoint, see Run.
MODES = ("continue", "read")
_NOTHING_TO_READ = "resume='read' reads a run that has ended: name its folder as checkpoint."
# A run without a checkpoint says so often that it goes on, so that what it never started can be given back.
_MARKS = 20


@final
class Run:
    """The journal of one fit; it belongs to the process that made it.

    Args:
        ledger, dataset: what is charged.
        plan: all releases of the fit.
        checkpoint: where releases are kept; None: an interrupted run cannot be continued.
        resume: "continue" goes on with a run that was interrupted, or begins one; "read" makes no release, and reads
            those of a run that has ended.
        facts: public facts that the fit must share with the run that it continues.

    Attributes:
        seed: of the public start, where a checkpoint keeps one.

    Raises:
        BudgetError, LedgerError: if the plan cannot be charged; nothing was read.
        CheckpointError: if the checkpoint belongs to another run, to another process, or has ended; nothing was
            charged.
    """

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        plan: Plan,
        *,
        checkpoint: Checkpoint | None = None,
        resume: str = "continue",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        check_choice("resume", resume, MODES)
        self._ledger, self._dataset, self._plan = ledger, dataset, plan
        self._checkpoint, self._reads = checkpoint, resume == "read"
        self._origin = Origin()
        self._attempt = 0
        self.seed: int | None = None
        # By step and request; what the plan fixes has the request "". A release is pending from its own charge on.
        self._released: dict[tuple[int, str], Entry] = {}
        self._pending: set[tuple[int, str]] = set()
        self._newest = -1
        self._mark = max(1, len(plan) // _MARKS)
        self._ended = False
        if checkpoint is None:
            self._name, self._token = secrets.token_hex(16), secrets.token_hex(16)
            try:
                self._receipt = self._charge_plan()
            except BaseException:  # Interrupted after it was charged, say: nobody else can take it back.
                with suppress(LedgerError):
                    self.withdraw()
                raise
            return
        if not self._reads:
            checkpoint.hold()
        try:
            found = checkpoint.manifest()
            if found is not None:
                self._continue_run(checkpoint, found, facts or {})
            elif self._reads:
                raise CheckpointError(_NOTHING_TO_READ)
            else:
                self._begin_run(checkpoint, facts or {})
        except BaseException:
            self.close()
            raise

    def _begin_run(self, checkpoint: Checkpoint, facts: Mapping[str, Any]) -> None:
        self._name, self._token, self.seed = secrets.token_hex(16), secrets.token_hex(16), secrets.randbits(63)
        checkpoint.begin({"run": self._name, "seed": self.seed, **self._own(facts)}, self._token)
        try:
            self._receipt = self._charge_plan()
        except DpvbError:
            if not self._ledger.history(self._name):
                checkpoint.withdraw()
            raise

    def _continue_run(self, checkpoint: Checkpoint, found: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        for what, value in self._own(facts).items():
            if found[what] != value:
                raise CheckpointError(
                    f"{checkpoint.path}: holds a run with another {what}. Continue it with the parameters that it was "
                    "begun with, or name a new folder as checkpoint."
                )
        self._name, self.seed = found["run"], found["seed"]
        history = self._ledger.history(self._name)
        self._ended = any(entry.state in ("finished", "abandoned") for entry in history)
        if not self._reads:
            if self._ended:
                raise CheckpointError(
                    f"{checkpoint.path}: its run has ended. resume='read' reads its result again and spends nothing; "
                    "for a new run name a new folder as checkpoint."
                )
            self._token = checkpoint.token()
            self._receipt = self._charge_plan()
            self._attempt = max((entry.attempt for entry in history), default=-1) + 1
            if history:
                self._ledger.append(self._name, attempt=self._attempt, state="resumed")
                history = self._ledger.history(self._name)  # From now on no older attempt adds to it.
        elif history:
            last = history[-1]
            self._receipt = Receipt(self._ledger.uuid, last.seq, last.hash, last.dataset)
        else:
            raise CheckpointError(f"{checkpoint.path}: its run was never charged, so that there is nothing to read.")
        for entry in history:
            self._follow(entry)

    def _follow(self, entry: Entry) -> None:
        """Take in what is on record of this run."""
        if entry.state == "released" and entry.step is not None:
            request = entry.request or ""
            self._released[entry.step, request] = entry
            self._pending.discard((entry.step, request))
        elif entry.kind == "charge" and entry.facts["kind"] == "again":
            self._pending.add((entry.facts["steps"][0], entry.facts["payload"].get("request", "")))

    def _own(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """What a run must share with the one that continues it."""
        return {
            "ledger": self._ledger.uuid,
            "dataset": self._dataset,
            "plan": self._plan.digest.hex(),
            "facts": dict(facts),
        }

    def close(self) -> None:
        """Let another process go on with the run."""
        if self._checkpoint is not None and self._origin.is_here:
            self._checkpoint.close()

    @property
    def name(self) -> str:
        """Random public name of the run, the same in all its attempts."""
        return self._name

    @property
    def num_recorded(self) -> int:
        """Number of releases of the plan that are on record."""
        return sum(not request for _, request in self._released)

    @property
    def has_lost(self) -> bool:
        """Whether a release is on record whose bytes are gone: the folder is not the newest one, say."""
        return any(self._read(step, request) is None for step, request in self._released)

    @property
    def charge(self) -> ChargeFacts:
        """The newest entry of this run in the ledger, for its privacy statement."""
        newest = self._receipt
        return ChargeFacts(newest.ledger, newest.seq, newest.hash, self._dataset)

    def recorded(self, step: int) -> Sums | None:
        """The release of a step that is on record, read from the checkpoint."""
        return self._read(step, "")

    def begin(self, step: int) -> None:
        """Charge a step again that is on record and lost; mark how far a run has come that keeps no record."""
        self._check_writes(step)
        if (step, "") in self._released and (step, "") not in self._pending:
            self._charge_again(step, "")
        self._newest = step
        if self._checkpoint is None and step % self._mark == 0:  # Speaks of all steps up to the next mark.
            last = min(step + self._mark, len(self._plan)) - 1
            self._ledger.append(self._name, attempt=self._attempt, state="started", step=last)

    def record(self, step: int, total: Sums, request: str = "") -> None:
        """Put a release on record before it can be read; beyond the plan, with the name of what asked for it."""
        self._check_writes(step)
        if self._checkpoint is None:
            return
        seal = self._checkpoint.seal(step, self._attempt, total)
        self._receipt = self._ledger.append(
            self._name,
            attempt=self._attempt,
            state="released",
            step=step,
            digest=seal.digest,
            key=seal.key,
            request=request or None,
        )
        self._pending.discard((step, request))

    def repeated(self, step: int, request: str) -> Journal:
        """The journal of one more release of a step, beyond the plan, which is charged by this.

        What the same request was charged for is not charged again: it is given out, or made if it never was.

        Args:
            step: which.
            request: public name of what asks for it.

        Raises:
            BudgetError, LedgerError: if it cannot be charged; nothing was read.
        """
        found = self._read(step, request)
        if found is None:
            self._check_writes(step)
            self._ledger.append(self._name, attempt=self._attempt + 1, state="resumed")
            self._attempt += 1
            if (step, request) not in self._pending:
                self._charge_again(step, request)
        return _Repeated(self, step, request, found)

    def finish(self) -> None:
        """Say that the run has ended."""
        self._origin.check("this run")
        if not self._reads:
            self._receipt = self._ledger.append(self._name, attempt=self._attempt, state="finished")
            self._end()

    def withdraw(self) -> None:
        """End a run of which no release was begun; its charge is given back where the ledger allows it."""
        self._receipt = self._ledger.append(self._name, attempt=self._attempt, state="abandoned")
        with suppress(LedgerError):
            self._receipt = self._ledger.refund(self._name, unstarted=self._cost(self._plan.releases))
        self._end()

    def _end(self) -> None:
        self._ended = True
        if self._checkpoint is not None:
            self._checkpoint.end()
            self.close()

    def interrupted(self, error: BaseException) -> None:
        """Say in an error what became of the budget; give back what a run that cannot go on has never started."""
        if self._ended or self._reads or not self._origin.is_here:
            return
        note = f"The data set {self._dataset!r} was charged before this happened"
        if self._checkpoint is not None:
            error.add_note(f"{note}. Continue with the same call, or `dpvb resume {self._checkpoint.path}`.")
            return
        error.add_note(
            f"{note}; {self._given_back()} With checkpoint= an interrupted fit can be continued. {self._remaining()}"
        )

    def _given_back(self) -> str:
        """Give back the releases behind the newest mark, and say so."""
        unstarted = self._plan.releases[(self._newest // self._mark + 1) * self._mark :]
        try:
            self._ledger.append(self._name, attempt=self._attempt, state="abandoned")
            if unstarted:
                self._ledger.refund(self._name, unstarted=self._cost(unstarted))
        except LedgerError as error:
            return f"nothing is given back: {error}"
        return f"{len(unstarted)} of {len(self._plan)} releases had not started and were given back."

    def _remaining(self) -> str:
        try:
            return f"It has epsilon = {self._ledger.remaining(self._dataset).epsilon:.4g} left."
        except LedgerError as error:
            return str(error)

    def _check_writes(self, step: int) -> None:
        self._origin.check("this run")
        if self._reads:
            raise CheckpointError(
                f"release {step} of this run cannot be read from its checkpoint; nothing is spent on it."
            )

    def _read(self, step: int, request: str) -> Sums | None:
        entry = self._released.get((step, request))
        if entry is None or self._checkpoint is None or entry.digest is None or entry.unseals is None:
            return None
        return self._checkpoint.release(step, entry.attempt, Seal(entry.digest, entry.unseals))

    def _charge_plan(self) -> Receipt:
        """Charge the whole plan; a run that was killed before it knew finds its own charge."""
        return self._ledger.charge(
            self._dataset,
            self._cost(self._plan.releases),
            run=self._name,
            plan_digest=self._plan.digest.hex(),
            unit=self._plan.unit,
            releases=[release.event() for release in self._plan],
            token=self._token,
        )

    def _charge_again(self, step: int, request: str) -> None:
        """Charge one release more, before it is made."""
        self._receipt = self._ledger.charge(
            self._dataset,
            self._cost([self._plan.releases[step]]),
            run=self._name,
            plan_digest=self._plan.digest.hex(),
            unit=self._plan.unit,
            attempt=self._attempt,
            kind="again",
            steps=[step],
            payload={"request": request} if request else None,
        )
        self._pending.add((step, request))

    def _cost(self, releases: Sequence[Release]) -> Composition:
        return Composition(replace(self._plan, releases=releases).events(), self._plan.neighboring_relation)


@final
class _Repeated:
    """The journal of one more release of a step, which was charged."""

    def __init__(self, run: Run, step: int, request: str, found: Sums | None) -> None:
        self._run, self._step, self._request, self._found = run, step, request, found

    def recorded(self, step: int) -> Sums | None:
        """The release that was made for the same request."""
        return self._found

    def begin(self, step: int) -> None:
        """Nothing more is charged."""

    def record(self, step: int, total: Sums) -> None:
        """Put the release on record."""
        self._run.record(self._step, total, self._request)


@contextmanager
def counted(
    plan: Plan,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str = "continue",
    epsilon: float,
    delta: float,
    facts: Mapping[str, Any] | None = None,
) -> Iterator[Run | None]:
    """The run of a plan that is about to start; it ends with the block, or is interrupted in it.

    Args:
        plan: all releases.
        ledger, dataset: what is charged; None: nothing is counted, which is said on standard error.
        checkpoint, resume, facts: as in Run.
        epsilon, delta: what is said to be spent if nobody counts it.

    Raises:
        ParameterError: if one of ledger and dataset is missing, or a checkpoint has no ledger.
    """
    check_account(ledger, dataset)
    if ledger is None or dataset is None:
        if checkpoint is not None:
            raise ParameterError("checkpoint needs ledger: what an interruption costs must be counted somewhere.")
        uncounted(plan, epsilon=epsilon, delta=delta)
        yield None
        return
    with opened(ledger) as found:
        folder = None if checkpoint is None else Checkpoint(checkpoint)
        facts = {**(facts or {}), "accountant": accountant("pld", ledger=found, dataset=dataset, checkpoint=checkpoint)}
        run = Run(found, dataset, plan, checkpoint=folder, resume=resume, facts=facts)
        try:
            if 0 < run.num_recorded < len(plan):
                say(f"run {run.name} goes on at release {run.num_recorded + 1} of {len(plan)}.")
            yield run
            run.finish()
        except BaseException as error:
            run.interrupted(error)
            raise
        finally:
            run.close()


def uncounted(plan: Plan, *, epsilon: float, delta: float) -> None:
    """Say on standard error what is spent without a ledger."""
    if epsilon < math.inf:
        say(
            f"this fit spends epsilon = {epsilon:g}, delta = {delta:g} of each {plan.unit}'s privacy in these "
            "data, and nobody keeps count: the epsilons of several fits add up. A ledger counts them (dpvb.Ledger)."
        )


def accountant(
    method: str,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str = "continue",
) -> str:
    """The method by which a plan's noise is calibrated: beyond a first plan a ledger grants what its filter counts.

    Raises:
        ParameterError: if one of ledger and dataset is missing.
    """
    check_account(ledger, dataset)
    if resume == "read" and not os.path.isdir(checkpoint or ""):
        raise CheckpointError(_NOTHING_TO_READ)
    if ledger is None or dataset is None or method != "pld":
        return method
    if checkpoint is not None and (found := Checkpoint(checkpoint).manifest()) is not None:
        return str(found["facts"].get("accountant", method))
    with opened(ledger) as opened_ledger:
        return "renyi" if opened_ledger.charged(dataset) else "pld"


def check_account(ledger: object, dataset: str | None) -> None:
    """Raise ParameterError if one of ledger and dataset is missing: such a fit would be counted nowhere."""
    if (ledger is None) != (dataset is None):
        raise ParameterError("ledger and dataset belong together: who counts, and whose budget it is.")


@contextmanager
def opened(ledger: Ledger | str | os.PathLike[str]) -> Iterator[Ledger]:
    """A ledger, or the one at a path or URL for as long as the block runs."""
    if isinstance(ledger, Ledger):
        yield ledger
        return
    place = os.fspath(ledger)
    if not is_address(place) and not os.path.exists(place):
        raise LedgerError(f"there is no ledger {place!r}. Make it first: dpvb.Ledger(path) or `dpvb ledger init`.")
    with Ledger(ledger) as own:
        yield own
