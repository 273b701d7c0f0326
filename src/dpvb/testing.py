"""The invariants of a user-defined model, as a test of yours runs them."""

from __future__ import annotations

from dpvb.audit import Case, audit
from dpvb.core.source import LARGEST_BATCH
from dpvb.guards.missing_arguments import says_what_lacks

__all__ = ["LARGEST_BATCH", "Case", "check_model"]


@says_what_lacks
def check_model(case: Case) -> None:
    """Check all invariants of a model: independence of records, sensitivity in bits, hostile queries, noise, budget.

    The model is asked about 0 rows, 1 row, and up to exactly `LARGEST_BATCH` rows: a fit hands it no more at once.

    Args:
        case: the model, ordinary records and hostile ones; all of them synthetic.

    Raises:
        AssertionError: naming each invariant that is broken, and what was measured.
    """
    report = audit(case)
    if not report.passed:
        raise AssertionError("\n".join(f"{one.name}: {one.measured} ({one.threshold})" for one in report.findings))
