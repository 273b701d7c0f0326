"""`dpvb transitions`: what a chain says of which symbol follows which, or a linear system of how it moves."""

from __future__ import annotations

from typing import Any

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json

# Attributes of a linear system that say all of it.
_OF_A_SYSTEM = (
    *("transition_matrix_", "transition_noise_", "loadings_", "offset_", "noise_variance_"),
    *("initial_mean_", "initial_covariance_"),
)


@app.command()
def transitions(
    model: options.Model,
    level: options.Level = 0.95,
    naive: options.Naive = False,
    as_json: options.Json = False,
) -> None:
    """Print the symbols or states of a chain and what follows each, with intervals that know the noise.

    Hidden states behind more than 40 symbols have no intervals and are printed without them. For a linear system,
    the columns and the modes of the motion are printed.

        dpvb transitions visits.dpvb
    """
    fitted = files.load_model(model, "transition_intervals", "motion")
    if not hasattr(fitted, "transition_intervals"):
        if as_json:
            print_json({name.rstrip("_"): getattr(fitted, name).tolist() for name in _OF_A_SYSTEM})
            return
        echo(fitted.summary())
        return
    why_none = fitted.why_no_intervals
    table = None if why_none else fitted.transition_intervals(level, noise_aware=not naive)
    if as_json:
        print_json(_steps(fitted) if table is None else [line._asdict() for line in table])
        return
    echo(fitted.summary())
    echo("")
    echo(f"There are no intervals: {why_none}" if table is None else str(table))


def _steps(fitted: Any) -> list[dict[str, Any]]:
    """Every transition of states without an interval."""
    places = range(len(fitted.transition_matrix_))
    none = dict.fromkeys(("std", "low", "high"))
    steps = fitted.transition_matrix_.tolist()
    return [{"group": str(a), "name": str(b), "mean": steps[a][b], **none} for a in places for b in places]
