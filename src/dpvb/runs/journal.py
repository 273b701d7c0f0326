"""A fit that a ledger counts: charged before it looks, and continued after a crash at no cost.

The observable part of a step is its release, and no release leaves the memory of its process before it is on record
(see `checkpoint`). So after a crash

* a step that is on record is never made again: its release is read from the checkpoint, and the wall gives it out;
* a step that is not on record left nothing behind, and is made afresh: another batch, other noise, whatever the data
  are by now. Its first charge pays for it;
* a step that is on record, and whose bytes are lost, is charged again before it is made again.

Nothing private is kept or compared for that. A newer attempt fences off an older one: the ledger takes no record of a
release from it, so nothing of it is ever read.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, final

from dpvb.accounting.costs import Composition
from dpvb.accounting.methods import rounded_down
from dpvb.core.forks import Origin
from dpvb.core.journal import Journal, Sums
from dpvb.core.plan import Plan, Release
from dpvb.guards.errors import (
    CheckpointError,
    DataFormatError,
    DpvbError,
    EmptyVocabularyError,
    LedgerError,
    RunCompletedError,
    check_choice,
)
from dpvb.guards.untrusted import printable
from dpvb.guards.watched import FileState
from dpvb.ledger import Entry, Ledger, Receipt
from dpvb.results.statement import ChargeFacts
from dpvb.runs.checkpoint import Checkpoint, Seal

#: How a run uses its checkpoint, see RunJournal.
RESUMES = ("continue", "load")
NOTHING_TO_LOAD = "resume='load' loads a run that has ended: name its folder as checkpoint."
#: The end of a note to an error after which the same call resumes the run.
AGAIN = "Repeat the same call to continue."
# A run without a checkpoint says so often that it goes on, so that what it never started can be given back.
_MARKS = 20


@final
class RunJournal:
    """The journal of one fit; it belongs to the process that made it.

    Args:
        ledger, dataset: what is charged.
        plan: all releases of the fit.
        checkpoint: where releases are kept; None: an interrupted run cannot be continued.
        resume: "continue" goes on with a run that was interrupted, or begins one; "load" makes no release, and loads
            those of a run that has ended.
        facts: public facts that the fit must share with the run that it continues.
        files: state of the files that the data were read from, which must be the same for a run that goes on.
        normal: as in `Ledger.charge`.

    Attributes:
        name: random public name of the run, the same in all its attempts.
        seed: of the public start, where a checkpoint keeps one.
        date: day on which a run that is only read ended; None for a run that goes on.

    Raises:
        BudgetError, LedgerError: if the plan cannot be charged; nothing was read.
        CheckpointError: if the checkpoint belongs to another run, to another process, or has ended; nothing was
            charged.
        DataFormatError: if a file is not as it was when the run began; nothing was charged.
    """

    name: str
    seed: int | None = None
    date: str | None = None

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        plan: Plan,
        *,
        checkpoint: Checkpoint | None = None,
        resume: str = "continue",
        facts: Mapping[str, Any] | None = None,
        files: Sequence[FileState] = (),
        normal: bool = False,
    ) -> None:
        check_choice("resume", resume, RESUMES)
        self._ledger, self._dataset, self._plan, self._checkpoint = ledger, dataset, plan, checkpoint
        self._normal, self._files = normal, [[*one] for one in files]
        self._origin = Origin()
        self._attempt = 0
        # State of the run. Releases have the keys (step, request); those of the plan have the request "".
        #   _released  the newest record of each release that is on record
        #   _pending   releases that were charged by themselves, and not put on record since
        #   _started   how many releases of the plan do not come back; only a run without a checkpoint counts them
        #   _writes    whether this object adds to the run: not if it reads one, nor once the run has ended
        self._released: dict[tuple[int, str], Entry] = {}
        self._pending: set[tuple[int, str]] = set()
        self._started = 0
        self._writes = resume != "load"
        if checkpoint is not None and self._writes:
            checkpoint.hold()
        try:
            found = None if checkpoint is None else checkpoint.manifest()
            if checkpoint is not None and found is not None:
                self._continue_run(checkpoint, found, facts or {})
            elif self._writes:
                self._begin_run(facts or {})
            else:
                raise CheckpointError(NOTHING_TO_LOAD)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and checkpoint is None:
                error.add_note(self._remaining())
            elif isinstance(error, KeyboardInterrupt) and checkpoint is not None and checkpoint.manifest() is not None:
                error.add_note(f"The ledger records whether the fit was charged. {AGAIN}")
            self.close()
            raise

    def _begin_run(self, facts: Mapping[str, Any]) -> None:
        self.name, token, checkpoint = secrets.token_hex(16), secrets.token_hex(16), self._checkpoint
        if checkpoint is not None:
            self.seed = secrets.randbits(63)
            checkpoint.begin({"run": self.name, "seed": self.seed, **self._own(facts), "files": self._files}, token)
        try:
            self._charge_plan(token)
        except BaseException as error:
            if checkpoint is None:  # For example interrupted after its charge: no other process can take it back.
                with suppress(LedgerError):
                    self.withdraw()
            elif isinstance(error, DpvbError) and not self._ledger.history(self.name):
                checkpoint.withdraw()
            raise

    def _continue_run(self, checkpoint: Checkpoint, found: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        for what, value in self._own(facts).items():
            if differing := ", ".join(_differing(what, found[what], value)):
                raise CheckpointError(
                    f"{checkpoint.path}: holds a run with another {differing}. Continue it with the parameters that "
                    "it was begun with, or name a new folder as checkpoint."
                )
        self.name, self.seed = found["run"], found["seed"]
        history = self._ledger.history(self.name)
        if self._writes:
            checkpoint.check_files(self._files)
            if any(entry.state in ("finished", "abandoned") for entry in history):
                raise RunCompletedError(
                    f"{checkpoint.path}: its run has ended. To load its result again, which spends nothing, repeat the "
                    "call with resume='load'. For a new run, name a new folder as checkpoint."
                )
            self._charge_plan(checkpoint.token())
            self._attempt = max((entry.attempt for entry in history), default=-1) + 1
            if history:
                self._append("resumed")
                history = self._ledger.history(self.name)  # From now on no older attempt adds to it.
        elif history:
            last = history[-1]
            self.date = last.created.partition("T")[0]
            self._receipt = Receipt(self._ledger.uuid, last.seq, last.hash, last.dataset)
        else:
            raise CheckpointError(f"{checkpoint.path}: its run was never charged, so that there is nothing to read.")
        for entry in history:
            if entry.state == "released" and entry.step is not None:
                self._released[entry.step, entry.request or ""] = entry
                self._pending.discard((entry.step, entry.request or ""))
            elif entry.kind == "charge" and entry.facts["kind"] == "again":
                self._pending.add((entry.facts["steps"][0], entry.facts["payload"].get("request", "")))

    def _own(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Facts that a run must share with the one that continues it."""
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
    def num_recorded(self) -> int:
        """Number of releases of the plan that are on record."""
        return sum(not request for _, request in self._released)

    @property
    def has_lost(self) -> bool:
        """Whether a release is on record whose bytes are gone: the folder is not the newest one, say."""
        return any(self.recorded(*release) is None for release in self._released)

    @property
    def charge(self) -> ChargeFacts:
        """The newest entry of this run in the ledger, for its privacy statement."""
        return ChargeFacts(**asdict(self._receipt))

    def recorded(self, step: int, request: str = "") -> Sums | None:
        """The release of a step that is on record, read from the checkpoint; None where it is lost."""
        entry = self._released.get((step, request))
        if entry is None or self._checkpoint is None or entry.digest is None or entry.unseals is None:
            return None
        return self._checkpoint.release(step, entry.attempt, Seal(entry.digest, entry.unseals))

    def begin(self, step: int) -> None:
        """Charge a step again that is on record and lost; say how far a run has come that keeps no record."""
        self._check_writes(step)
        if (step, "") in self._released and (step, "") not in self._pending:
            self._charge_again(step, "")
        if self._checkpoint is None and step >= self._started:  # Speaks of all steps up to the next mark.
            stride = max(1, len(self._plan) // _MARKS)
            self._started = min((step // stride + 1) * stride, len(self._plan))
            self._append("started", step=self._started - 1)

    def record(self, step: int, total: Sums, request: str = "") -> None:
        """Put a release on record before it can be read; beyond the plan, with the name of what asked for it."""
        self._check_writes(step)
        if self._checkpoint is None:
            return
        seal = self._checkpoint.seal(step, self._attempt, total)
        self._append("released", step=step, digest=seal.digest, key=seal.key, request=request or None)
        self._pending.discard((step, request))

    def repeated(self, step: int, request: str) -> Journal:
        """The journal of one more release of a step, beyond the plan, which is charged by this.

        A request that was charged is not charged again: its release is given out, or made if it never was.

        Args:
            step: which.
            request: public name of what asks for it.

        Raises:
            BudgetError, LedgerError: if it cannot be charged; nothing was read.
        """
        found = self.recorded(step, request)
        if found is None:
            self._check_writes(step)
            self._append("resumed", attempt=self._attempt + 1)
            self._attempt += 1
            if (step, request) not in self._pending:
                self._charge_again(step, request)
        return _Repeated(self, step, request, found)

    def finish(self) -> None:
        """Say that the run has ended."""
        self._origin.check("this run")
        if self._writes:
            self._append("finished")
            self._end()

    def withdraw(self) -> None:
        """End a run of which no release was begun; its charge is given back where the ledger allows it."""
        self._append("abandoned")
        with suppress(LedgerError):
            self._refund(self._plan.releases)
        self._end()

    def _end(self) -> None:
        self._writes = False
        if self._checkpoint is not None:
            self._checkpoint.end()
            self.close()

    def interrupted(self, error: BaseException) -> None:
        """Say in an error what became of the budget; give back what a run that cannot go on has never started."""
        if not self._writes or not self._origin.is_here:
            return
        note = f"The data set {self._dataset!r} was charged before this happened"
        if self._checkpoint is not None:
            # The same call would come to the same, but where a folder could not be written.
            ends = isinstance(error, (CheckpointError, DataFormatError, EmptyVocabularyError))
            ends = ends and not isinstance(error.__cause__, OSError)
            error.add_note(f"{note}." if ends else f"{note}. {AGAIN}")
            return
        error.add_note(
            f"{note}; {self._given_back()} With checkpoint= an interrupted fit can be continued. {self._remaining()}"
        )

    def _given_back(self) -> str:
        """Give back the releases behind the newest mark, and say so."""
        unstarted = self._plan.releases[self._started :]
        try:
            self._append("abandoned")
            if unstarted:
                self._refund(unstarted)
        except LedgerError as error:
            return f"nothing is given back: {error}"
        return f"{len(unstarted)} of {len(self._plan)} releases had not started and were given back."

    def _remaining(self) -> str:
        try:
            return (
                f"{self._dataset!r} has epsilon = {rounded_down(self._ledger.remaining(self._dataset).epsilon)} left."
            )
        except LedgerError as error:
            return str(error)

    def _check_writes(self, step: int) -> None:
        self._origin.check("this run")
        if not self._writes:
            raise CheckpointError(
                f"Release {step} of this run cannot be read from its checkpoint; nothing is spent on it."
            )

    def _append(self, state: str, **more: Any) -> None:
        self._receipt = self._ledger.append(self.name, state=state, **{"attempt": self._attempt, **more})

    def _refund(self, unstarted: Sequence[Release]) -> None:
        self._receipt = self._ledger.refund(self.name, unstarted=self._cost(unstarted))

    def _charge_plan(self, token: str) -> None:
        """Charge the whole plan; a run that was killed before it knew finds its own charge."""
        self._charge(self._plan.releases, releases=[release.event() for release in self._plan], token=token)

    def _charge_again(self, step: int, request: str) -> None:
        """Charge one release more, before it is made."""
        payload = {"request": request} if request else None
        again = [self._plan.releases[step]]
        self._charge(again, attempt=self._attempt, kind="again", steps=[step], payload=payload)
        self._pending.add((step, request))

    def _charge(self, charged: Sequence[Release], **more: Any) -> None:
        self._receipt = self._ledger.charge(
            self._dataset,
            self._cost(charged),
            run=self.name,
            plan_digest=self._plan.digest.hex(),
            unit=self._plan.unit,
            normal=self._normal,
            **more,
        )

    def _cost(self, releases: Sequence[Release]) -> Composition:
        return Composition(replace(self._plan, releases=releases).events(), self._plan.neighboring_relation)


def _differing(name: str, kept: Any, own: Any) -> Iterator[str]:
    """Names of the facts of a run that are others by now; parameters that came in later versions are in none."""
    if isinstance(kept, dict) and isinstance(own, dict):
        for part, value in kept.items():
            yield from _differing(part, value, own.get(part, ...))
    elif kept != own:
        yield printable(name)


@final
@dataclass(frozen=True)
class _Repeated:
    """The journal of one more release of a step, which was charged; `made` if it was put on record already."""

    run: RunJournal
    step: int
    request: str
    made: Sums | None

    def recorded(self, step: int) -> Sums | None:
        """The release that was made for the same request."""
        return self.made

    def begin(self, step: int) -> None:
        """Nothing more is charged."""

    def record(self, step: int, total: Sums) -> None:
        """Put the release on record."""
        self.run.record(self.step, total, self.request)
