"""Who counts what a fit spends: a ledger, for as long as the fit runs, or nobody, which is said."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dpvb.accounting import Event
from dpvb.accounting.answers import METHODS
from dpvb.core.plan import Plan
from dpvb.guards.errors import (
    CheckpointError,
    LedgerError,
    NotRecordedWarning,
    ParameterError,
    check_choice,
    check_path,
)
from dpvb.guards.imports import check_numba
from dpvb.guards.strangers import say
from dpvb.ledger import Ledger, is_address
from dpvb.runs.checkpoint import Checkpoint
from dpvb.runs.run import NOTHING_TO_READ, Run

#: A ledger, or its path or URL.
AnyLedger = Ledger | str | os.PathLike[str]


@contextmanager
def counted(
    plan: Plan,
    *,
    ledger: AnyLedger | None,
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
        ledger, dataset: what is charged; None: the fit is not recorded, with a warning.
        checkpoint, resume, facts: as in Run.
        epsilon, delta: what an interrupted fit without a ledger is said to have spent.

    Raises:
        ParameterError: if one of ledger and dataset is missing, or a checkpoint has no ledger; and if numba takes
            settings from the current folder.
    """
    check_numba()
    check_account(ledger, dataset)
    if ledger is None or dataset is None:
        if checkpoint is not None:
            raise ParameterError(
                "checkpoint needs ledger= and dataset=: what an interruption costs must be counted somewhere."
            )
        # The caller of `fit` and of `select`, which come between with two calls of context managers.
        warn_not_recorded(epsilon, stacklevel=6)
        try:
            yield None
        except KeyboardInterrupt as error:
            if epsilon < math.inf:
                error.add_note(
                    f"This fit is not recorded in a ledger: take epsilon = {epsilon:g}, delta = {delta:g} as spent. "
                    "With ledger=, dataset= and checkpoint= a fit that is stopped goes on from its last release."
                )
            raise
        return
    with opened(ledger) as found:
        folder = None if checkpoint is None else Checkpoint(checkpoint)
        account: dict[str, Any] = {"ledger": found, "dataset": dataset, "checkpoint": checkpoint}
        facts = {**(facts or {}), "accountant": accountant("pld", **account, events=plan.events())}
        # The wall adds normal noise, rounded after it was drawn.
        run = Run(found, dataset, plan, checkpoint=folder, resume=resume, facts=facts, normal=True)
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


def warn_not_recorded(epsilon: float, *, stacklevel: int = 2) -> None:
    """Warn that a fit with privacy is not recorded in a ledger.

    Args:
        epsilon: of the fit; for inf there is nothing to record.
        stacklevel: as in `warnings.warn`.
    """
    if epsilon < math.inf:
        warnings.warn(
            "This fit is not recorded in a ledger: the epsilons of several fits of the same data add up. To record "
            "fits, give ledger= and dataset= (see dpvb.Ledger).",
            NotRecordedWarning,
            stacklevel=stacklevel + 1,
        )
        # The last of all filters, so that the user's own come first. Python's "once" would forget whenever a
        # `catch_warnings` ends, which every fit has.
        warnings.simplefilter("ignore", NotRecordedWarning, append=True)


def accountant(
    method: str,
    *,
    ledger: AnyLedger | None,
    dataset: str | None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str = "continue",
    events: Sequence[Event] = (),
) -> str:
    """The method by which a plan's noise is calibrated: beyond a first plan a ledger grants what its filter counts.

    Args:
        method: what is asked for; all but "pld" stay.
        ledger, dataset, checkpoint, resume: as in `counted`.
        events: of the plan, where its noise is normal.

    Raises:
        ParameterError: for an unknown method, and if one of ledger and dataset is missing.
    """
    check_choice("accountant", method, METHODS)
    check_account(ledger, dataset)
    if resume == "read" and not os.path.isdir(checkpoint or ""):
        raise CheckpointError(NOTHING_TO_READ)
    if ledger is None or dataset is None or method != "pld":
        return method
    if checkpoint is not None and (found := Checkpoint(checkpoint).manifest()) is not None:
        return str(found["facts"].get("accountant", method))
    with opened(ledger) as opened_ledger:
        return opened_ledger.method(dataset, events)


def check_account(ledger: object, dataset: str | None) -> None:
    """Raise ParameterError if one of ledger and dataset is missing: such a fit would be counted nowhere."""
    if (ledger is None) != (dataset is None):
        raise ParameterError("ledger and dataset belong together: who counts, and whose budget it is.")


@contextmanager
def opened(ledger: AnyLedger) -> Iterator[Ledger]:
    """A ledger, or the one at a path or URL for as long as the block runs."""
    if isinstance(ledger, Ledger):
        yield ledger
        return
    place = os.fspath(ledger)
    if not is_address(place) and not check_path("ledger", place).exists():
        raise LedgerError(f"there is no ledger {place!r}. Make it first: dpvb.Ledger(path) or `dpvb ledger init`.")
    with Ledger(ledger) as own:
        yield own
