"""The command line: plan a budget, fit models privately, look at them and measure them.

Answers go to standard output, progress and remarks to standard error. An error is one line on standard error and exit
code 2. No command prints a size, a length or any other fact of private data.
"""

from __future__ import annotations

from dpvb.cli import (  # noqa: F401  # Each adds its commands.
    audit,
    check_data,
    demo,
    evaluate,
    federate,
    fit,
    ledger,
    plan,
    runs,
    schema,
    show,
    synthesize,
)
from dpvb.cli.root import app

__all__ = ["app"]
