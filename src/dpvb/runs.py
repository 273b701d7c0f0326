"""A fit that a ledger counts: charged before it looks, and continued after a crash at the least cost.

What may be observed of a step is its release; it is put on record by its digest before it is written or returned. So
after a crash

* a release that was recorded, or written whole, is read from the checkpoint, and the wall gives it out again: the data
  are not asked;
* a step that may have begun, and left no record or no readable one, is done again. That costs nothing if it must give
  the very bits of the first time: the same run secret (so the same batch and, for the same sums, the same noise), the
  same data by their keyed digest, the same programs; and, where there is a record, bits of the recorded digest. If
  not, or if it was being written when the process died, it is charged again before it is done.

A newer attempt fences off an older one: the ledger takes no record of a release from it, so nothing of it is read.
"""

from __future__ import annotations

import math
import os
import platform
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Any, final

from dpvb import __version__
from dpvb.accounting.costs import Composition
from dpvb.checkpoint import Checkpoint, digest_of
from dpvb.errors import CheckpointError, LedgerError, ParameterError, check_choice
from dpvb.journal import Fingerprint, Sums
from dpvb.ledger import Ledger, Receipt, is_address
from dpvb.mechanism import Plan, Release
from dpvb.noise import SecureNoise
from dpvb.report import ChargeFacts

#: How a run keeps itself, see Run.
MODES = ("replay", "recharge", "read")
_UNKNOWN = "unknown"
# A run without a checkpoint says so often that it goes on, so that what it never started can be given back.
_MARKS = 20


@final
class Run:
    """The journal of one fit.

    Args:
        ledger, dataset: what is charged.
        plan: all releases of the fit.
        checkpoint: where releases are kept; None: an interrupted run cannot be continued.
        resume: "replay" keeps the run's secret in a file beside the checkpoint while the run goes on; "recharge" never
            writes it, and an interrupted step is charged again; "read" makes no release, and reads those of a run that
            has ended.
        facts: public facts that the fit must share with the run that it continues.
        begun: where a run may pass over releases, the steps that were begun so far, as its owner has put them on
            record; None: they are begun in order.

    Attributes:
        noise: the run's source of randomness.
        seed: of the public start, where a checkpoint keeps one.
        num_recorded: releases that need not be made again.

    Raises:
        BudgetError, LedgerError: if the plan cannot be charged; nothing was read.
        CheckpointError: if the checkpoint belongs to another run, or has ended; nothing was charged.
    """

    def __init__(
        self,
        ledger: Ledger,
        dataset: str,
        plan: Plan,
        *,
        checkpoint: Checkpoint | None = None,
        resume: str = "replay",
        facts: Mapping[str, Any] | None = None,
        begun: Sequence[int] | None = None,
    ) -> None:
        check_choice("resume", resume, MODES)
        self._ledger, self._dataset, self._plan = ledger, dataset, plan
        self._checkpoint, self._mode = checkpoint, resume
        self._attempt = 0
        self._token: str | None = secrets.token_hex(16)
        self.seed: int | None = None
        self._recorded: dict[int, Sums] = {}
        self._digests: dict[int, str] = {}
        self._begun, self._newest = 0, -1
        self._mark = max(1, len(plan) // _MARKS)
        self._ended = False
        self._free: bool | None = None
        found = None if checkpoint is None else checkpoint.manifest()
        if found is None:
            if resume == "read":
                raise CheckpointError("resume='read' reads a run that has ended: name its folder as checkpoint.")
            self._begin_run(facts or {})
        else:
            self._continue_run(found, facts or {}, begun)

    def _begin_run(self, facts: Mapping[str, Any]) -> None:
        if self._checkpoint is None:
            self.noise, self._name = SecureNoise(), secrets.token_hex(16)
        else:
            self.seed = secrets.randbits(63)
            with suppress(OSError):  # A secret without a manifest: a run that was killed before it was charged.
                self._checkpoint.secret_path.unlink()
            kept = self._mode == "replay"
            self.noise = SecureNoise.kept(self._checkpoint.secret_path) if kept else SecureNoise()
            self._name = self.noise.run_id
            self._manifest = {
                "run": self._name,
                "token": self._token,
                "seed": self.seed,
                "ledger": self._ledger.uuid,
                "dataset": self._dataset,
                "plan": self._plan.digest.hex(),
                "facts": dict(facts),
                "programs": _programs(),
                "fingerprint": None,
            }
            self._checkpoint.write_manifest(self._manifest, new=True)
        self._receipt = self._charge_plan()

    def _continue_run(self, found: dict[str, Any], facts: Mapping[str, Any], begun: Sequence[int] | None) -> None:
        assert self._checkpoint is not None
        own = {"ledger": self._ledger.uuid, "dataset": self._dataset, "plan": self._plan.digest.hex(), "facts": facts}
        for what, value in own.items():
            if found.get(what) != value:
                raise CheckpointError(
                    f"{self._checkpoint.path}: holds a run with another {what}. Continue it with the parameters that "
                    "it was begun with, or name a new folder as checkpoint."
                )
        self._manifest, self._name, self.seed = found, str(found["run"]), int(found["seed"])
        self._token = None if found.get("token") is None else str(found["token"])
        charged = bool(self._ledger.history(self._name))
        self._receipt = self._charge_plan()
        history = self._ledger.history(self._name)
        self._digests = {entry.step: entry.digest for entry in history if entry.step is not None and entry.digest}
        self._ended = any(entry.state in ("finished", "abandoned") for entry in history)
        if self._ended and self._mode != "read":
            raise CheckpointError(
                f"{self._checkpoint.path}: its run has ended. resume='read' reads its result again and spends nothing; "
                "for a new run name a new folder as checkpoint."
            )
        for step in range(len(self._plan)) if begun is None else begun:
            total = self._checkpoint.release(step, self._digests[step]) if step in self._digests else None
            if total is not None:
                self._recorded[step] = total
            elif begun is None:
                break
        if self._mode == "read":
            last = history[-1]
            self._receipt = Receipt(self._ledger.uuid, last.seq, last.hash, last.dataset)
        newest = max(self._digests, default=-1)
        self._begun = 1 + newest + charged if begun is None else 1 + max(newest, *begun, -1)
        whole = not self._checkpoint.discard_torn()
        kept = SecureNoise.reopened(self._checkpoint.secret_path) if self._mode == "replay" else None
        same = whole and kept is not None and kept.run_id == self._name and found["programs"] == _programs()
        self._free = None if same else False
        self.noise = kept if same and kept is not None else SecureNoise()
        if self._mode != "read":
            self._attempt = 1 + max(entry.attempt for entry in history)
            self._ledger.append(self._name, attempt=self._attempt, state="resumed")
            self._adopt(self._checkpoint, len(self._recorded) if begun is None else max(begun, default=0))

    def _adopt(self, checkpoint: Checkpoint, step: int) -> None:
        """Put on record what was written whole just before the interruption: it may have been seen, and can be used."""
        total = None if step in self._digests else checkpoint.prepared(step)
        if total is not None:
            self._put_on_record(checkpoint, step, total)
            self._recorded[step] = total

    def _put_on_record(self, checkpoint: Checkpoint, step: int, total: Sums) -> None:
        self._receipt = self._ledger.append(
            self._name, attempt=self._attempt, state="released", step=step, digest=digest_of(total)
        )
        checkpoint.publish(step)

    @property
    def name(self) -> str:
        """Random public name of the run, the same in all its attempts."""
        return self._name

    @property
    def num_recorded(self) -> int:
        """Number of releases that this run made before it was interrupted, and that are at hand."""
        return len(self._recorded)

    @property
    def charge(self) -> ChargeFacts:
        """The newest entry of this run in the ledger, for its privacy statement."""
        newest = self._receipt
        return ChargeFacts(newest.ledger, newest.seq, newest.hash, self._dataset)

    def recorded(self, step: int) -> Sums | None:
        """The release of a step before the interruption, read from the checkpoint."""
        return self._recorded.get(step)

    def begin(self, step: int, fingerprint: Fingerprint) -> None:
        """Charge a step that may have been done before; mark how far the run has come."""
        if self._mode == "read":
            raise CheckpointError(
                f"release {step} of this run cannot be read from its checkpoint; nothing is spent on it."
            )
        if self._checkpoint is not None and self._free is None:
            self._free = self._mode == "replay" and self._same_data(self._checkpoint, fingerprint)
        if step < self._begun and not self._free:
            self._charge_again(step)
        self._newest = step
        if self._checkpoint is None and step > 0 and step % self._mark == 0:
            self._ledger.append(self._name, attempt=self._attempt, state="started", step=step)

    def record(self, step: int, total: Sums) -> None:
        """Put a release on record before it can be read."""
        if self._checkpoint is None:
            return
        if step in self._digests and self._digests[step] != digest_of(total) and self._free:
            self._charge_again(step)
        self._checkpoint.prepare(step, total)
        self._put_on_record(self._checkpoint, step, total)

    def finish(self) -> None:
        """Say that the run has ended, and delete its secret."""
        if self._mode == "read":
            return
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
            with suppress(OSError):
                self._checkpoint.secret_path.unlink()

    def interrupted(self, error: BaseException) -> None:
        """Say in an error what became of the budget; give back what a run that cannot go on has never started."""
        if self._ended or self._mode == "read":
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

    def _charge_plan(self) -> Receipt:
        """Charge the whole plan; a run that was killed before it knew finds its own charge."""
        return self._ledger.charge(
            self._dataset,
            self._cost(self._plan.releases),
            run=self._name,
            plan_digest=self._plan.digest.hex(),
            unit=self._plan.unit,
            releases=[release.event() for release in self._plan.releases],
            token=self._token,
        )

    def _charge_again(self, step: int) -> None:
        """Charge one release a second time, before it is done again."""
        self._receipt = self._ledger.charge(
            self._dataset,
            self._cost([self._plan.releases[step]]),
            run=self._name,
            plan_digest=self._plan.digest.hex(),
            unit=self._plan.unit,
            attempt=self._attempt,
            kind="again",
            steps=[step],
        )

    def _cost(self, releases: Sequence[Release]) -> Composition:
        return Composition(replace(self._plan, releases=releases).events(), self._plan.neighboring_relation)

    def _same_data(self, checkpoint: Checkpoint, fingerprint: Fingerprint) -> bool:
        """Whether the data are those that the run began with; the first attempt writes down what they are.

        Raises:
            CheckpointError: if they are others.
        """
        own, known = fingerprint(), self._manifest["fingerprint"]
        if known is None:  # Written before the first step is begun: none was.
            self._manifest["fingerprint"] = own or _UNKNOWN
            checkpoint.write_manifest(self._manifest)
            return True
        if own is None or known == _UNKNOWN:
            return False
        if own != known:
            raise CheckpointError(
                f"{checkpoint.path}: these are not the data that the run began with. Give it the same data in the same "
                f"order; or delete {checkpoint.secret_path}, to go on with these: an interrupted step is then charged "
                "again."
            )
        return True


@contextmanager
def counted(
    plan: Plan,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str = "replay",
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
        if run.num_recorded:
            _say(f"run {run.name} goes on at release {run.num_recorded + 1} of {len(plan)}.")
        try:
            yield run
        except BaseException as error:
            run.interrupted(error)
            raise
        run.finish()


def uncounted(plan: Plan, *, epsilon: float, delta: float) -> None:
    """Say on standard error what is spent without a ledger."""
    if epsilon < math.inf:
        _say(
            f"this fit spends epsilon = {epsilon:g}, delta = {delta:g} of each {plan.unit}'s privacy in these "
            "data, and nobody keeps count: the epsilons of several fits add up. A ledger counts them (dpvb.Ledger)."
        )


def accountant(
    method: str,
    *,
    ledger: Ledger | str | os.PathLike[str] | None,
    dataset: str | None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str = "replay",
) -> str:
    """The method by which a plan's noise is calibrated: beyond a first plan a ledger grants what its filter counts.

    Raises:
        ParameterError: if one of ledger and dataset is missing.
    """
    check_account(ledger, dataset)
    if ledger is None or dataset is None or method != "pld":
        return method
    if checkpoint is not None and (found := Checkpoint(checkpoint).manifest()) is not None:
        return str(found["facts"]["accountant"])
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


def _say(message: str) -> None:
    print(f"dpvb: {message}", file=sys.stderr)


def _programs() -> dict[str, str]:
    """What must be the same for a computation to give the same bits."""
    found = {name: version(name) for name in ("numpy", "scipy", "numba", "cryptography")}
    return {"dpvb": __version__, "python": sys.version, "machine": platform.platform(), **found}
