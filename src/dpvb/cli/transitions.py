"""`dpvb transitions`: what a chain says of which symbol follows which."""

from __future__ import annotations

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, remark
from dpvb.guards.errors import ParameterError, check_number


@app.command()
def transitions(
    model: options.Model,
    level: options.Level = 0.95,
    naive: options.Naive = False,
    as_json: options.Json = False,
) -> None:
    """Print the symbols or states of a model and what follows each, with intervals that know the noise.

    A model whose transitions have no intervals, as states of numbers, is printed without them.

    dpvb transitions visits.dpvb
    """
    fitted = files.load_model(model, "transition_intervals")
    level = check_number("--level", level, low=0, high=1, closed="neither")
    if not as_json:
        echo(fitted.summary())
    try:
        table = fitted.transition_intervals(level, noise_aware=not naive)
    except ParameterError as error:  # The kind of model has no intervals.
        if as_json:
            raise
        remark(f"No intervals: {error}")
        return
    if as_json:
        print_json([line._asdict() for line in table])
        return
    echo("")
    echo(str(table))
