"""`dpvb audit`: look for what breaks privacy, in this very installation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, new_console, print_json, print_table
from dpvb.guards.errors import ModelFileError, ParameterError

if TYPE_CHECKING:
    from dpvb.audit import Check


@app.command()
def audit(
    model_class: Annotated[
        str | None,
        typer.Argument(help="A class of models, such as LDA or LogisticRegression.", show_default=False),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model class.")] = False,
    attach: Annotated[
        Path | None,
        typer.Option(
            help="Write the report into this saved model of the class, if there is no finding.", show_default=False
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Audit models: what one record can change, samplers, noise, the accountant, and one attacked run.

    Runs on made-up records; reads no data and spends nothing. One line a check: what was measured, what is allowed, and
    how likely a sound package would fail it. Exit code 1 if there is a finding.

        dpvb audit LDA

        dpvb audit --all --json
    """
    from dpvb.audit import NAMES
    from dpvb.audit import audit as run

    if (model_class is None) != everything:
        raise ParameterError(f"name one model class ({', '.join(NAMES)}), or give --all.")
    if attach is not None and model_class is None:
        raise ParameterError("--attach needs the class of the model.")
    if model_class is not None and model_class not in NAMES:
        raise ParameterError(f"model class must be one of {', '.join(NAMES)}, got {model_class!r}.")
    model = None if attach is None else files.load_model(attach)
    if model is not None and type(model).__name__ != model_class:
        raise ModelFileError(f"{attach}: holds a {type(model).__name__}; the report would be of {model_class}.")
    with new_console(stderr=True).status("audit") as shown:
        report = run(
            *([] if model_class is None else [model_class]),
            workers=min(4, os.cpu_count() or 1),
            progress=lambda subject: shown.update(f"audit: {subject}"),
        )
    if as_json:
        print_json(report.to_dict())
    else:
        for subject in report.subjects:
            _print(subject, [check for check in report.checks if check.subject == subject])
        echo(report.summary)
    if not report.passed:
        raise typer.Exit(1)
    if attach is not None and model is not None:
        model.audit_ = report
        model.save(attach, overwrite=True)


def _print(subject: str, checks: Sequence[Check]) -> None:
    """The checks of one subject as a table."""
    rows = [
        [
            "ok" if check.passed else "FINDING",
            check.name,
            check.measured,
            check.threshold,
            f"{check.false_alarm:.0e}" if check.false_alarm else "0",
        ]
        for check in checks
    ]
    print_table(subject, ["", "check", "measured", "allowed", "false alarm"], rows, numbers=())
