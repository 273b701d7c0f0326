"""Settings of a run: where a fit is recorded and kept, and what computes it.

The posterior and the guarantee do not depend on them. A run is given to one fit, or is in force in a block:

    model.fit(X, y, run=dpvb.Run(ledger="budget.db", dataset="people"))

    with dpvb.Run(ledger="budget.db", dataset="people"):
        pipeline.fit(X, y)

Settings that a run leaves out are taken from the block around it, and then from the environment. A block is a context
variable, so that threads and tasks have blocks of their own. A fit must not slip past a block unrecorded, so that a
block also covers

* a thread without a block of its own, as a search starts one: the block is in force there if it is the only one that is
  open in the process. Otherwise the fit is refused;
* another process, which was sent an estimator from within the block.
"""

from __future__ import annotations

import math
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, final

from dpvb.accounting import Event
from dpvb.accounting.methods import METHODS
from dpvb.cluster import Cluster
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
from dpvb.guards.untrusted import say
from dpvb.guards.watched import Watched
from dpvb.ledger import Ledger, is_address
from dpvb.ledger.address import Address
from dpvb.runs.checkpoint import Checkpoint
from dpvb.runs.journal import NOTHING_TO_LOAD, RESUMES, RunJournal
from dpvb.runs.record import RunRecord
from dpvb.runs.stops import Progress

#: A ledger, or its path or URL.
AnyLedger = Ledger | str | os.PathLike[str]
#: Variables of the environment that name the ledger and the data set where nothing else does.
VARIABLES: Final[Mapping[str, str]] = {"ledger": "DPVB_LEDGER", "dataset": "DPVB_DATASET"}

#: Two ways to have fits without a ledger refused: a variable of the environment, and for all users of a
#: machine a file with the line `require_ledger = true`.
REQUIRED: Final = "DPVB_REQUIRE_LEDGER"
SETTINGS: Final = Path("/etc/dpvb.toml")


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a fit is recorded and kept, and what computes it.

    Give it to a fit, `model.fit(X, run=dpvb.Run(...))`, or open a block that covers every fit in it, also those of a
    Pipeline or a search: `with dpvb.Run(...):`. Omitted settings are taken from the block around it, and then from the
    environment variables DPVB_LEDGER and DPVB_DATASET. The posterior and the guarantee do not depend on a run.

    Args:
        ledger: Ledger that records the fit before any data are read: a `dpvb.Ledger`, its path or its URL. None
            (default): the fit is not recorded, with a warning.
        dataset: Registered name of the data set in the ledger. None (default): only without a ledger.
        checkpoint: Folder that stores the releases of a fit, so that the same call resumes an interrupted fit. None
            (default): an interrupted fit cannot be resumed.
        resume: "continue" (default) resumes the fit that was interrupted in that folder, or begins one; "load" loads
            one that has ended, and spends nothing.
        progress: function that is called with (step, plan) after each release. None (default): a notebook shows a line
            of the steps.
        cluster: "local:N" for N processes of this machine, a `dpvb.cluster.LocalPool`, or a Dask client. None
            (default): this process. The released values do not depend on it.
        keep: "path" keeps what was learned after each step in memory and in the model's file: `model.at_step(t)` is the
            model after step t. It costs no privacy, since each q is computed from releases, and n_steps times the
            memory of one model. Selections and federations keep only the result. None (default): only the result.

    Raises:
        ParameterError: for another value of resume or keep.

    Examples:
        >>> import dpvb
        >>> with dpvb.Run(ledger="budget.db", dataset="people"):
        ...     print(dpvb.Run.current().dataset)
        people
    """

    ledger: AnyLedger | None = None
    dataset: str | None = None
    checkpoint: Path | str | os.PathLike[str] | None = None
    resume: Literal["continue", "load"] | None = None
    progress: Progress | None = None
    cluster: Cluster = None
    keep: Literal["path"] | None = None

    def __post_init__(self) -> None:
        if type(self.ledger) is str:  # A notebook shows a run, and errors quote it.
            object.__setattr__(self, "ledger", Address(self.ledger))
        if self.resume is not None:
            check_choice("resume", self.resume, RESUMES)
        if self.keep is not None:
            check_choice("keep", self.keep, ("path",))

    def __enter__(self) -> Run:
        run = Run.current(self)
        _blocks.set((*_blocks.get(), run))
        _open[id(run)] = run
        return run

    def __exit__(self, *_: object) -> None:
        *outer, run = _blocks.get()
        _blocks.set(tuple(outer))
        del _open[id(run)]

    @classmethod
    def current(cls, run: Run | None = None, *, sent: SentRun | None = None) -> Run:
        """Return the run that is in force for a fit.

        Args:
            run: what the fit was given.
            sent: what an estimator brought from the process that sent it.

        Raises:
            ParameterError: if `run` is not a run; or if it names no ledger in a thread without a block, while other
                threads are in several.
        """
        if not isinstance(run, Run | None):
            raise ParameterError(f"run must be a dpvb.Run, got {type(run).__name__}.")
        asked = Run() if run is None else run
        if blocks := _blocks.get():
            return asked._within(blocks[-1])
        if asked.ledger is None:
            around = [*_open.values()]
            if not around and sent is not None and sent.process != _process():
                around = [*sent.runs]
            if any(one != around[0] for one in around):
                raise ParameterError(
                    "run must be given to a fit in a thread without a `with dpvb.Run(...)` of its own, while other "
                    "threads are in several: fit(..., run=dpvb.Run(ledger=..., dataset=...))."
                )
            if around:
                return asked._within(around[0])
        named: dict[str, Any] = {name: os.environ.get(variable) or None for name, variable in VARIABLES.items()}
        return asked._within(Run(**named))

    @classmethod
    def to_send(cls) -> SentRun | None:
        """Return what an estimator brings to another process: the run of the block around it, but for its functions."""
        # A pool may send from a thread of its own.
        runs = _blocks.get()[-1:] or tuple(_open.values())
        return SentRun(_process(), tuple(replace(run, progress=None, cluster=None) for run in runs)) if runs else None

    def _within(self, outer: Run) -> Run:
        """Return this run, with what it leaves out from another."""
        values = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) is not None}
        return replace(outer, **values)

    @contextmanager
    def isolated(self) -> Iterator[None]:
        """Put this run in force as it is, whatever is around it."""
        blocks = _blocks.get()
        _blocks.set((*blocks, self))
        try:
            yield
        finally:
            _blocks.set(blocks)

    @contextmanager
    def opened(self) -> Iterator[Run]:
        """Return this run with its ledger open, which is closed with the block.

        Raises:
            ParameterError: if one of ledger and dataset is missing: such a fit would be counted nowhere.
            LedgerError: if the ledger cannot be opened, or does not exist.
        """
        check_account(self.ledger, self.dataset)
        if self.ledger is None:
            yield self
            return
        with opened(self.ledger) as ledger:
            yield replace(self, ledger=ledger)

    def method(self, asked: str, events: Sequence[Event] = ()) -> str:
        """Return the method that calibrates a plan: beyond a first plan a ledger grants what its filter counts.

        Args:
            asked: method that the estimator asks for; all but "pld" stay.
            events: of the plan, where its noise is normal.

        Raises:
            ParameterError: for an unknown method, and if one of ledger and dataset is missing.
        """
        check_choice("accountant", asked, METHODS)
        check_account(self.ledger, self.dataset)
        if self.resume == "load" and not os.path.isdir(self.checkpoint or ""):
            raise CheckpointError(NOTHING_TO_LOAD)
        if self.ledger is None or self.dataset is None or asked != "pld":
            return asked
        if self.checkpoint is not None and (manifest := Checkpoint(self.checkpoint).manifest()) is not None:
            return str(manifest["facts"].get("accountant", asked))
        with opened(self.ledger) as ledger:
            return ledger.method(self.dataset, events)

    @contextmanager
    def journal(
        self,
        plan: Plan,
        *,
        epsilon: float,
        delta: float,
        facts: Mapping[str, Any] | None = None,
        files: Watched | None = None,
    ) -> Iterator[RunJournal | None]:
        """Charge a plan that is about to start; the journal ends with the block, or is interrupted in it.

        Args:
            plan: all releases.
            epsilon, delta: what an interrupted fit without a ledger is said to have spent.
            facts: as in RunJournal.
            files: that the data were read from. None (default): none are known.

        Raises:
            ParameterError: if one of ledger and dataset is missing, or a checkpoint has no ledger; and if numba takes
                settings from the current folder.
        """
        check_numba()
        check_account(self.ledger, self.dataset)
        if self.ledger is None or self.dataset is None:
            if self.checkpoint is not None:
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
                        f"This fit is not recorded in a ledger: take epsilon = {epsilon:g}, delta = {delta:g} as "
                        "spent. With ledger=, dataset= and checkpoint= a fit that is stopped goes on from its last "
                        "release."
                    )
                raise
            return
        with opened(self.ledger) as ledger:
            folder = None if self.checkpoint is None else Checkpoint(self.checkpoint)
            resume = "continue" if self.resume is None else self.resume
            facts = {**(facts or {}), "accountant": replace(self, ledger=ledger).method("pld", plan.events())}
            # The wall adds normal noise, rounded after it was drawn.
            files = Watched() if files is None else files
            kept: dict[str, Any] = {"checkpoint": folder, "resume": resume, "facts": facts, "files": files.states}
            journal = RunJournal(ledger, self.dataset, plan, normal=True, **kept)
            record = None
            try:
                if resume != "load":
                    record = RunRecord.begin(
                        journal.name,
                        ledger=ledger.location,
                        dataset=self.dataset,
                        model=str(facts.get("model", "")),
                        checkpoint=None if folder is None else folder.path,
                        files=files,
                    )
                if 0 < journal.num_recorded < len(plan):
                    say(f"run {journal.name} goes on at release {journal.num_recorded + 1} of {len(plan)}.")
                yield journal
                journal.finish()
                if record is not None:
                    record.end("finished")
            except BaseException as error:
                journal.interrupted(error)
                if record is not None and folder is None:
                    record.end("abandoned")
                raise
            finally:
                journal.close()


class SentRun(NamedTuple):
    """The run of a block from within which an estimator was sent to another process.

    Attributes:
        process: random name of the process that sent it.
        runs: the run, or those of all threads, where the thread that sent it has none; without what belongs to that
            process.
    """

    process: str
    runs: tuple[Run, ...]


# The blocks that are open here, each with what it takes from the ones around it.
_blocks: ContextVar[tuple[Run, ...]] = ContextVar("dpvb_runs", default=())
# All blocks that are open in this process, in any thread.
_open: dict[int, Run] = {}
_NAME: Final = secrets.token_hex(8)


def _process() -> str:
    """Return the random name of this process; a process that was forked from it has another."""
    return f"{os.getpid()}-{_NAME}"


def warn_not_recorded(epsilon: float, *, stacklevel: int = 2) -> None:
    """Warn that a fit with privacy is not recorded in a ledger, or refuse it where an administrator requires one.

    Args:
        epsilon: of the fit; for inf there is nothing to record.
        stacklevel: as in `warnings.warn`.

    Raises:
        ParameterError: if DPVB_REQUIRE_LEDGER is set to anything but 0, or `/etc/dpvb.toml` requires a ledger or cannot
            be read.
    """
    if epsilon < math.inf and (requiring := _requiring()) is not None:
        raise ParameterError(
            f"ledger must name a ledger, because {requiring} requires one, got None. Give ledger= and dataset=. "
            "Nothing was read or charged."
        )
    if epsilon < math.inf:
        warnings.warn(
            "This fit is not recorded in a ledger: the epsilons of several fits of the same data add up. To record "
            "fits, give ledger= and dataset= (see dpvb.Run).",
            NotRecordedWarning,
            stacklevel=stacklevel + 1,
        )
        # The last of all filters, so that the user's own come first. Python's "once" would forget whenever a
        # `catch_warnings` ends, which every fit has.
        warnings.simplefilter("ignore", NotRecordedWarning, append=True)


def _requiring() -> str | None:
    """Return what requires a ledger, in words.

    Raises:
        ParameterError: if the file of settings is not one.
    """
    if os.environ.get(REQUIRED, "0") not in ("", "0"):
        return f"the environment variable {REQUIRED}"
    try:
        text = SETTINGS.read_text("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        text = "?"
    import tomllib

    try:
        settings = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        settings = {}
    if settings.keys() != {"require_ledger"} or type(settings["require_ledger"]) is not bool:
        raise ParameterError(
            f"{SETTINGS} must have one line, require_ledger = true or require_ledger = false, and be readable by every "
            "user. Nothing was read or charged."
        )
    return f"the file {SETTINGS}" if settings["require_ledger"] else None


def check_account(ledger: object, dataset: str | None) -> None:
    """Raise ParameterError if one of ledger and dataset is missing: such a fit would be counted nowhere."""
    if (ledger is None) != (dataset is None):
        lacking = "dataset" if dataset is None else "ledger"
        raise ParameterError(
            f"ledger and dataset belong together, but {lacking} is missing. Give {lacking}=, the environment "
            f"variable DPVB_{lacking.upper()}, or neither. Nothing was charged."
        )


@contextmanager
def opened(ledger: AnyLedger) -> Iterator[Ledger]:
    """A ledger, or the one at a path or URL for as long as the block runs."""
    if isinstance(ledger, Ledger):
        yield ledger
        return
    place = os.fspath(ledger)
    if not is_address(place) and not check_path("ledger", place).exists():
        raise LedgerError(f"There is no ledger {place!r}. Make it first: dpvb.Ledger(path) or `dpvb ledger init`.")
    with Ledger(ledger) as own:
        yield own
