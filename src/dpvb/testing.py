"""The laws that a model of your own must keep, as a test of yours runs them."""

from __future__ import annotations

from dpvb.audit import Case, audit
from dpvb.core.source import LARGEST_BATCH
from dpvb.guards.missing_arguments import says_what_lacks

__all__ = ["LARGEST_BATCH", "Case", "check_model"]


@says_what_lacks
def check_model(case: Case) -> None:
    """Hold a model against every law: purity and sensitivity in bits, queries of strangers, noise, budget, an attacker.

    The model is asked about 0 rows, 1 row, and up to exactly `LARGEST_BATCH` rows: a fit hands it no more at once.

    Args:
        case: the model, ordinary records and hostile ones; all of them made up.

    Raises:
        AssertionError: naming each law that is broken, and what was measured.
    """
    report = audit(case)
    if not report.passed:
        raise AssertionError("\n".join(f"{one.name}: {one.measured} ({one.threshold})" for one in report.findings))
