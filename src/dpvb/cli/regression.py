"""`dpvb fit logistic`, `binomial`, `negbin`, `coef`, `schema`: regressions and the schemas of their tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options, resumption
from dpvb.cli.root import app, fit
from dpvb.cli.terminal import echo, print_json, print_table, progress_bar, remark, spent
from dpvb.errors import ParameterError

KINDS = ("LogisticRegression", "BinomialRegression", "NegativeBinomialRegression")

_MODEL = "the model"
_RowNorm = Annotated[
    float,
    typer.Option(help="Public bound on the norm of a matrix's row; longer rows are scaled back to it."),
]
_Intercept = Annotated[bool, typer.Option("--intercept/--no-intercept", help="Whether rows get a constant.")]
_InterceptValue = Annotated[
    float, typer.Option(help="That constant over the row norm, for a matrix; a schema brings its own.")
]
_Solver = Annotated[str, typer.Option(help="first_order, sufficient_statistics or paper.", rich_help_panel=_MODEL)]
_Covariance = Annotated[str, typer.Option(help="full, or diagonal for thousands of columns.", rich_help_panel=_MODEL)]


@fit.command("logistic")
@resumption.planned
def fit_logistic(
    data: options.Rows,
    out: options.Out,
    epsilon: options.Epsilon,
    delta: options.Delta,
    schema: options.SchemaFile = None,
    target: options.Target = None,
    group: options.Group = None,
    classes: Annotated[
        tuple[str, str], typer.Option(help="The two labels of a matrix's target.", rich_help_panel=options.DATA)
    ] = ("0", "1"),
    row_norm: _RowNorm = 1.0,
    intercept: _Intercept = True,
    intercept_value: _InterceptValue = 0.4,
    solver: _Solver = "first_order",
    covariance: _Covariance = "full",
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    *,
    plan: dict[str, Any],
) -> None:
    """Fit a logistic regression to private rows: the chance of the second of two classes.

    Everything on the command line and in the schema is public; choose it without looking at the data. A row with a
    fault, or with a label that is neither class, silently counts as no row.

        dpvb fit logistic people.csv --schema people.json --epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb fit logistic X.npz --target y.npy --row-norm 2.5 --epsilon 1 --delta 1e-5 --out m.dpvb
    """
    import dpvb

    files.check_target(out, overwrite)
    rows = files.read_rows(data, schema, target, group=group)
    model = dpvb.LogisticRegression(
        epsilon=epsilon,
        delta=delta,
        classes=(_label(classes[0]), _label(classes[1])),
        row_norm=row_norm,
        fit_intercept=intercept,
        intercept_value=intercept_value,
        solver=solver,
        covariance=covariance,
        **plan,
    )
    _fit_and_save(model, rows, out, cluster, quiet=quiet)


@fit.command("binomial")
@resumption.planned
def fit_binomial(
    data: options.Rows,
    out: options.Out,
    epsilon: options.Epsilon,
    delta: options.Delta,
    max_trials: Annotated[int, typer.Option(help="Public bound on a row's trials.", show_default=False)],
    schema: options.SchemaFile = None,
    target: options.Target = None,
    trials: options.Trials = None,
    group: options.Group = None,
    row_norm: _RowNorm = 1.0,
    intercept: _Intercept = True,
    intercept_value: _InterceptValue = 0.4,
    solver: _Solver = "first_order",
    covariance: _Covariance = "full",
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    *,
    plan: dict[str, Any],
) -> None:
    """Fit a binomial regression to private rows: successes out of trials.

    The noise grows with the public bound on trials. See `dpvb fit logistic --help` for the rest.

        dpvb fit binomial shots.csv --schema shots.json --max-trials 20 --epsilon 1 --delta 1e-5 --out shots.dpvb
    """
    import dpvb

    files.check_target(out, overwrite)
    rows = files.read_rows(data, schema, target, trials=trials, group=group)
    model = dpvb.BinomialRegression(
        epsilon=epsilon,
        delta=delta,
        max_trials=max_trials,
        row_norm=row_norm,
        fit_intercept=intercept,
        intercept_value=intercept_value,
        solver=solver,
        covariance=covariance,
        **plan,
    )
    _fit_and_save(model, rows, out, cluster, quiet=quiet)


@fit.command("negbin")
@resumption.planned
def fit_negbin(
    data: options.Rows,
    out: options.Out,
    epsilon: options.Epsilon,
    delta: options.Delta,
    dispersion: Annotated[float, typer.Option(help="r of the variance mean + mean^2/r; public.", show_default=False)],
    max_count: Annotated[
        int, typer.Option(help="Public bound on a count; larger ones are clipped to it.", show_default=False)
    ],
    schema: options.SchemaFile = None,
    target: options.Target = None,
    group: options.Group = None,
    row_norm: _RowNorm = 1.0,
    intercept: _Intercept = True,
    intercept_value: _InterceptValue = 0.4,
    solver: _Solver = "first_order",
    covariance: _Covariance = "full",
    cluster: options.Cluster = None,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    *,
    plan: dict[str, Any],
) -> None:
    """Fit a negative binomial regression to private rows: counts.

    The noise grows with the public bound on counts. See `dpvb fit logistic --help` for the rest.

        dpvb fit negbin v.csv --schema v.json --dispersion 1 --max-count 30 --epsilon 1 --delta 1e-5 --out v.dpvb
    """
    import dpvb

    files.check_target(out, overwrite)
    rows = files.read_rows(data, schema, target, group=group)
    model = dpvb.NegativeBinomialRegression(
        epsilon=epsilon,
        delta=delta,
        dispersion=dispersion,
        max_count=max_count,
        row_norm=row_norm,
        fit_intercept=intercept,
        intercept_value=intercept_value,
        solver=solver,
        covariance=covariance,
        **plan,
    )
    _fit_and_save(model, rows, out, cluster, quiet=quiet)


@app.command()
def coef(
    model: options.Model,
    level: Annotated[float, typer.Option(help="Probability inside an interval.")] = 0.95,
    naive: Annotated[
        bool, typer.Option("--naive", help="Leave the privacy noise out of account; such intervals are too short.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Print the coefficients of a regression with their credible intervals.

    The intervals know the privacy noise. Coefficients are per unit of a matrix's column; of a table, per category,
    and per whole declared range of a number.

        dpvb coef people.dpvb --level 0.9
    """
    fitted = files.load_model(model, *KINDS)
    rows = fitted.coefficients(level, noise_aware=not naive)
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    print_table(
        f"Posterior with {100 * level:g} % intervals" + (", WITHOUT the privacy noise" if naive else ""),
        ["", "mean", "std", "from", "to"],
        [[row.name, *(f"{value:.4g}" for value in row[1:])] for row in rows],
    )


@app.command()
def schema(
    file: Annotated[Path | None, typer.Argument(help="A schema to check; none: print an example.")] = None,
    as_json: options.Json = False,
) -> None:
    """Check a schema, or print an example of one.

    A schema is a JSON file that says what is public about a table: each column's range or categories, and the target.
    Nothing is read off the data.

        dpvb schema > people.json

        dpvb schema people.json
    """
    from dpvb.data import Binary, Categorical, Numeric, Schema, Target

    if file is None:
        example = Schema(
            columns=(
                Numeric("age", low=18, high=90),
                Numeric("income", low=0, high=500_000, transform="log1p", missing=0),
                Categorical("work", ("private", "state", "self-employed")),
                Binary("urban", values=("no", "yes")),
            ),
            target=Target("ill", classes=("no", "yes")),
        )
        print_json(json.loads(example.to_json()), ensure_ascii=False)
        return
    found = Schema.load(file)
    if as_json:
        print_json(json.loads(found.to_json()), ensure_ascii=False)
        return
    print_table(
        f"{file.name}: {found.width} features, row norm {found.row_norm:.4g}, intercept {found.intercept:.4g}",
        ["column", "kind", "features"],
        [[column.name, column.kind, str(column.width)] for column in found.columns],
        numbers=(2,),
    )
    if found.target is not None:
        echo(f"target: {found.target.name} ({found.target.kind})")
    if found.group is not None:
        echo(f"person: {found.group}")


def _fit_and_save(model: Any, rows: files.Rows, out: Path, cluster: str | None, *, quiet: bool) -> None:
    """Fit with a bar of steps, write the model, say what was spent."""
    trials = {} if rows.trials is None else {"trials": rows.trials}
    with progress_bar(model.epsilon, model.delta, quiet=quiet) as tell:
        model.fit(rows.x, rows.y, group=rows.group, progress=tell, cluster=cluster, **trials)
    model.save(out)
    remark(f"{out}: {model.n_features_in_} coefficients, {spent(model)}. Next: dpvb coef {out}; dpvb show {out}")


def _label(text: str) -> str | float:
    """A label of the command line as a number where it is one."""
    try:
        number = float(text)
    except ValueError:
        return text
    if number != number:
        raise ParameterError(f"classes must be two labels, got {text!r}.")
    return int(number) if number.is_integer() else number
