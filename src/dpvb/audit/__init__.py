"""The audit: looks for what breaks privacy in a model, in the samplers, in the noise and in the accountant.

It runs on made-up records alone and measures what the package promises: what one record can change, exactly, also at a
q that a stranger made; what batches and noise look like; what other accountants find; and how well an attacker guesses
in a real run.

    print(dpvb.audit.audit("LDA"))                    # a model of this package; dpvb audit LDA
    print(dpvb.audit.audit(Case("mine", ...)))        # a model of yours; see cases.Case
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dpvb.audit import budget, draws, neighbours, one_run, queries, readers
from dpvb.audit.cases import Case
from dpvb.audit.kinds import NAMES, forms, shipped
from dpvb.audit.matrix import Matrix
from dpvb.audit.readers import check_reader
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.guards.errors import check_choice
from dpvb.results.audit_report import Check, Report

__all__ = ["NAMES", "Case", "Check", "Matrix", "Report", "audit", "check_reader", "shipped"]

#: Called with what is looked at next.
Progress = Callable[[str], object]
_SAFE = "PYTHONSAFEPATH"


def audit(*subjects: str | Case, workers: int = 1, progress: Progress = lambda subject: None) -> Report:
    """Audit models, and with them the samplers, the noise and the accountant that they rest on.

    Args:
        subjects: names of this package's models (NAMES) or cases of others; none: every model of this package.
        workers: number of processes that share the names; cases of others run in this one.
        progress: called with the name of what is looked at next.

    Raises:
        ParameterError: for an unknown name.
    """
    chosen = subjects or NAMES
    names = [check_choice("model class", s, NAMES) for s in chosen if isinstance(s, str)]
    cases = [(name, form) for name in names for form in forms(name)]
    own = [s for s in chosen if isinstance(s, Case)]
    progress("samplers, noise, accountant")
    reports = [Report(tuple(_foundations()))]
    if workers > 1 and len(cases) > 1:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        with _installed_code_alone(), ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for (name, _), report in zip(cases, pool.map(_of_shipped, cases), strict=True):
                progress(name)
                reports.append(report)
    else:
        for which in cases:
            progress(which[0])
            reports.append(_of_shipped(which))
    for case in own:
        progress(case.name)
        reports.append(Report(tuple(_model(case))))
    return Report.of(reports)


def _of_shipped(which: tuple[str, str]) -> Report:
    """Checks of one solver or form of one of this package's models."""
    name, form = which
    return Report(tuple(_model(forms(name)[form]())))


def _foundations() -> Iterator[Check]:
    """What all models share."""
    for sampler in (FullBatch(), Poisson(0.05), FixedSize(25, 500)):
        yield from draws.check_sampler(sampler)
    yield from draws.check_source()
    yield from budget.check_grid()
    yield from readers.shipped_readers()


def _model(case: Case) -> Iterator[Check]:
    """All checks of one model."""
    checks: Sequence[Callable[[Case], Iterator[Check]]] = (
        neighbours.check_records,
        neighbours.check_runs,
        neighbours.check_estimator,
        queries.check_queries,
        draws.check_noise,
        budget.check_plans,
        one_run.check_one_run,
    )
    for check in checks:
        yield from check(case)


@contextmanager
def _installed_code_alone() -> Iterator[None]:
    """Processes that start meanwhile take no module from the current folder, which may be that of somebody's data."""
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE]
        else:
            os.environ[_SAFE] = before
