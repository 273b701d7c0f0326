"""The audit: looks for what breaks privacy in a model, from outside.

It runs on synthetic records only and measures what the package guarantees: what one record can change, exactly, also
at a q that a stranger made and in whole runs; and how well an attacker guesses in a real
run. Samplers, noise and accountant are the same for all models: the tests of this package check them.

    print(dpvb.audit.audit("LDA"))                    # a model of this package; dpvb audit LDA
    print(dpvb.audit.audit(Case("mine", ...)))        # a model of yours; see cases.Case
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import product
from multiprocessing import active_children, get_context

from dpvb.audit import neighbours, one_run, queries
from dpvb.audit.cases import Case, Matrix
from dpvb.audit.kinds import NAMES, forms, shipped
from dpvb.audit.readers import check_reader
from dpvb.guards.errors import check_choice
from dpvb.results.audit_report import Check, Report

__all__ = ["NAMES", "Case", "Check", "Matrix", "Report", "audit", "check_reader", "shipped"]

#: Called with each check as soon as it is done.
Found = Callable[[Check], object]
_SAFE = "PYTHONSAFEPATH"


def audit(*subjects: str | Case, workers: int = 1, full: bool = False, found: Found = lambda check: None) -> Report:
    """Audit models.

    Args:
        subjects: names of this package's models (NAMES) or cases of others; none: every model of this package.
        workers: number of processes that share the names; cases of others run in this one.
        full: Whether every form of this package's models is audited. False (default): one form of each.
        found: called with each check as soon as it is done, in the order of the report.

    Raises:
        ParameterError: for an unknown name.
    """
    chosen = subjects or NAMES
    names = [check_choice("model class", s, NAMES) for s in chosen if isinstance(s, str)]
    cases = [(name, form) for name in names for form in [*forms(name)][: None if full else 1]]
    own = [s for s in chosen if isinstance(s, Case)]
    done: list[Check] = []

    def take(checks: Iterable[Check]) -> None:
        for check in checks:
            done.append(check)
            found(check)

    if workers > 1 and len(cases) > 1:
        with _processes(workers) as pool:
            # Not pool.map, which cancels what is left: that a process has died is then told to a cancelled future.
            asked = [pool.submit(_of_shipped, *which) for which in product(cases, range(len(_CHECKS)))]
            for answer in asked:
                take(answer.result())
    else:
        for name, form in cases:
            take(_model(forms(name)[form]()))
    for case in own:
        take(_model(case))
        take(neighbours.check_largest(case))
        take(neighbours.check_steps(case))
    return Report(tuple(done))


def _of_shipped(which: tuple[str, str], check: int) -> list[Check]:
    """One check of one solver or form of one of this package's models."""
    name, form = which
    return list(_CHECKS[check](forms(name)[form]()))


_CHECKS: Sequence[Callable[[Case], Iterator[Check]]] = (
    neighbours.check_records,
    neighbours.check_scores,
    neighbours.check_runs,
    queries.check_queries,
    one_run.check_one_run,
)


def _model(case: Case) -> Iterator[Check]:
    """All checks of one model."""
    for check in _CHECKS:
        yield from check(case)


@contextmanager
def _processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """Run processes that import no module from the current folder, which may hold data of others.

    An interrupt of the audit ends them too, without a message.
    """
    before, others = os.environ.get(_SAFE), set(active_children())
    os.environ[_SAFE] = "1"
    end = (signal.SIGINT, signal.SIG_DFL)
    try:
        with ProcessPoolExecutor(number, get_context("spawn"), signal.signal, end) as pool:
            try:
                yield pool
            except BaseException:
                for process in set(active_children()) - others:
                    process.terminate()
                raise
    finally:
        if before is None:
            del os.environ[_SAFE]
        else:
            os.environ[_SAFE] = before
