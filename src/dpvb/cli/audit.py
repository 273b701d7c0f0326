"""`dpvb audit`: look for what breaks privacy, in this very installation."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, remark
from dpvb.guards.errors import ModelFileError, ParameterError
from dpvb.guards.untrusted import imported

if TYPE_CHECKING:
    from dpvb.audit import Check

# Seconds on a quiet core for one form of a model, about.
_EACH = 15


@app.command()
def audit(
    model_class: Annotated[
        str | None,
        typer.Argument(
            help="A class of models, such as LDA or LogisticRegression; or MODULE:NAME, a dpvb.audit.Case of your own "
            "in a module that `dpvb --import MODULE` imports.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every model class.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every form of a model class, not only one.")] = False,
    attach: Annotated[
        Path | None, typer.Option(help="Write the report into this saved model of the class, if there is no finding.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Audit models: what one record can change, at any query and in a whole run, and what an attacker gains.

    Runs on synthetic records; reads no data and spends nothing. One line per check, as soon as it is done: what was
    measured, what is allowed, and how likely a sound package would fail it. With --json these lines go to standard
    error, and the whole report to standard output. Exit code 1 if there is a finding.

        dpvb audit LDA

        dpvb audit --all --json
    """
    from dpvb.audit import NAMES, Case
    from dpvb.audit import audit as run
    from dpvb.audit.kinds import forms

    if (model_class is None) != everything:
        raise ParameterError(f"name one model class ({', '.join(NAMES)}), or give --all.")
    if attach is not None and model_class is None:
        raise ParameterError("--attach needs the class of the model.")
    case = None if model_class is None else imported(model_class)
    if model_class is not None and model_class not in NAMES and not isinstance(case, Case):
        if ":" in model_class:
            module, _, name = model_class.partition(":")
            raise ParameterError(
                f"{name!r} must be a dpvb.audit.Case in a module that is imported: dpvb --import {module}."
            )
        raise ParameterError(f"model class must be one of {', '.join(NAMES)}, got {model_class!r}.")
    model = None if attach is None else files.load_model(attach)
    kind = "PrivateModel" if isinstance(case, Case) else model_class
    if model is not None and type(model).__name__ != kind:
        raise ModelFileError(f"{attach}: holds a fitted {type(model).__name__}; the report would be of {model_class}.")
    names, workers = NAMES if model_class is None else (model_class,), min(4, os.cpu_count() or 1)
    number = 1 if isinstance(case, Case) else sum(len(forms(name)) if full else 1 for name in names)
    minutes = math.ceil(_EACH * number / min(workers, number) / 60)
    remark(f"audit of {', '.join(names)}: about {minutes} min on an idle machine; each check is printed as it ends.")
    shown = ""

    def tell(check: Check) -> None:
        nonlocal shown
        if check.subject != shown:
            echo(shown := check.subject, err=as_json)
        echo(f"  {check}", err=as_json)

    report = run(*(names if not isinstance(case, Case) else (case,)), workers=workers, full=full, found=tell)
    if as_json:
        print_json(report.to_dict())
    else:
        echo(report.summary)
    if not report.passed:
        raise typer.Exit(1)
    if attach is not None and model is not None:
        model.audit_ = report
        model.save(attach, overwrite=True)
