"""`dpvb transitions`: what a chain says of which symbol follows which."""

from __future__ import annotations

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json


@app.command()
def transitions(
    model: options.Model,
    level: options.Level = 0.95,
    naive: options.Naive = False,
    as_json: options.Json = False,
) -> None:
    """Print the symbols of a chain and what follows each, with intervals that know the noise.

    dpvb transitions visits.dpvb
    """
    fitted = files.load_model(model, "transition_intervals")
    table = fitted.transition_intervals(level, noise_aware=not naive)
    if as_json:
        print_json([line._asdict() for line in table])
        return
    echo(fitted.summary())
    echo("")
    echo(str(table))
