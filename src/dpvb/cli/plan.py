"""`dpvb plan`: expected accuracy and privacy of a fit, or of equal releases. No data are read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

import dpvb
from dpvb.cli import options
from dpvb.cli.fit import Kinds, kind_named, kinds, needed, of_files, options_of, own_model, summary, value_of, word_of
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, print_json, print_table, working
from dpvb.guards.errors import ParameterError, check_integer, check_number

Units = Annotated[
    int, typer.Option(help="Approximate public number of units; do not compute it from the data.", show_default=False)
]
Width = Annotated[int | None, typer.Option(help="Number of columns or words.", show_default=False)]
Grouped = Annotated[
    bool,
    typer.Option("--grouped", help="The fit gets the person of each row or document: the units are persons."),
]
Entries = Annotated[
    float | None,
    typer.Option(
        help="Public number of entries of a unit, for the forecast of memory: numbers of a row times rows of a person, "
        "words of a document. Default: the encoded columns, or 200 words.",
        show_default=False,
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(help="Write a plot of accuracy and privacy by epsilon: .png, .pdf or .svg.", show_default=False),
]
# Options of a fit that declare its columns.
_OF_COLUMNS = ("schema", "vocabulary", "width")


class _Plans(Kinds):
    """Group with one command per estimator class; its own options plan equal releases."""

    def get_command(self, ctx: Any, name: str) -> Any:
        if not name:  # An error of the group names the options of the group.
            return self
        name = name if ":" in name else name.replace("_", "-")
        return _command(name) if name in kinds() or ":" in name else None


plan = typer.Typer(cls=_Plans, no_args_is_help=False)
app.add_typer(plan, name="plan")


def planning(name: str) -> Callable[..., None]:
    """Return the function that plans the estimator of a command, with the options in its signature."""
    kind = kind_named(name)
    parameters, hints = {option.name: option for option in options_of(kind)}, get_type_hints(kind)
    of_model, model_of = own_model(name, parameters)
    columns = {option.name: option for option in of_files(kind) if option.name in _OF_COLUMNS}
    if kind._reads not in ("sequences", "table"):
        width = inspect.Parameter("width", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Width)
        columns.setdefault("width", width)

    def run(
        *,
        n_units: Units,
        grouped: Grouped = False,
        entries: Entries = None,
        plot: Plot = None,
        as_json: options.Json = False,
        **given: Any,
    ) -> None:
        from dpvb.estimators.planned import plan as planned

        names = inspect.signature(kind).parameters
        values = {name: value_of(name, value, hints[name]) for name, value in given.items() if name in names}
        model = kind(**values, **model_of(given))
        declared = {name: given[name] for name in columns if name not in names} | {"grouped": grouped}
        if declared.get("schema") is not None:
            declared["schema"] = dpvb.Schema.load(declared["schema"])
        n_units = check_integer("n_units", n_units, low=1)
        with working("accounting"):
            expected = planned(model, n_units, entries=entries, **declared)
        name, size = expected.size
        expected = replace(expected, size=(word_of(kind, name), size))
        if plot is not None:
            expected.plot(plot)
        budget = _quoted(
            model, {"width": None, "schema": None, "vocabulary": None, "responses": None} | declared, given
        )
        if as_json:
            print_json(expected.to_dict() | ({} if budget is None else {"ledger": budget.to_dict()}))
        else:
            echo(str(expected) if budget is None else f"{expected}\nLedger: {budget}")

    shared = inspect.signature(run, eval_str=True).parameters
    ordered = sorted(
        [
            shared["n_units"],
            *columns.values(),
            *of_model,
            *(option for name, option in parameters.items() if name != "n_units"),
            *([] if kind._reads == "table" else [shared["grouped"]]),
            shared["entries"],
            shared["plot"],
            shared["as_json"],
        ],
        key=lambda option: option.default is not option.empty,
    )
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in ordered}
    return run


def _quoted(
    model: dpvb.PrivateEstimator, declared: Mapping[str, Any], given: Mapping[str, Any]
) -> dpvb.ledger.Quote | None:
    """Return how far the limit of a data set goes with such fits; None without a ledger."""
    from dpvb.runs.run import check_account

    check_account(given["ledger"], given["dataset"])
    if given["ledger"] is None or not math.isfinite(model.epsilon):
        return None
    _, releases = model._foreseen(**declared)
    with dpvb.Ledger(given["ledger"], read_only=True) as ledger:
        return ledger.quote(releases, dataset=given["dataset"])


@cache
def _command(name: str) -> Any:
    """Return the command of an estimator class."""
    kind = kind_named(name)
    text_of = summary(inspect.getdoc(kind))
    about = (
        "All inputs are public: the command reads no data and uses no budget. With --ledger and --dataset it reads how "
        "many such fits the remaining budget allows."
    )
    program = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    text = (
        f"Estimate the accuracy of this fit: {text_of[:1].lower()}{text_of[1:]}\n\n{about}\n\n    dpvb plan {name} "
        f"--n-units 20000 {needed(kind)}--epsilon 1 --delta 1e-5"
    )
    program.command(name, help=text)(planning(name))
    return typer.main.get_command(program)


@plan.callback(invoke_without_command=True)
def of_releases(
    context: typer.Context,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Privacy budget to which the noise is calibrated, in (0, inf).", show_default=False),
    ] = None,
    delta: Annotated[
        float, typer.Option(help="Delta of the guarantee, for example 1e-6; much smaller than 1/n.")
    ] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="Noise standard deviation over the clip norm; prints its epsilon. Instead of --epsilon.",
            show_default=False,
        ),
    ] = None,
    n_steps: Annotated[int, typer.Option(help="Number of noisy releases.")] = 20,
    sampling_prob: options.SamplingProb = None,
    batch_size: options.BatchSize = None,
    n_units: options.NumExamples = None,
    neighboring_relation: options.Relation = options.ADD_OR_REMOVE,
    swap_ratio: Annotated[
        float,
        typer.Option(
            help="Largest distance of two units' statistics over the clip norm: sqrt(2) for topic models, 2 in "
            "general. "
            "It affects only replace_one and fixed-size batches. If a unit can be absent, at least 1 is used.",
            rich_help_panel=options.PLAN,
        ),
    ] = math.sqrt(2.0),
    as_json: options.Json = False,
) -> None:
    """Estimate the accuracy and the privacy of a budget before a fit. Reads no data and uses no budget.

    With a model NAME, prints the expected accuracy of a fit, the epsilon, number of units or model size at which noise
    would not hide the result, and what an attacker can learn. `dpvb plan lda --help` lists the options of a model.
    Without a NAME, prints what (epsilon, delta) guarantees to one unit, the calibrated noise, and the epsilon of the
    same releases at other values of delta.

        dpvb plan --epsilon 1 --delta 1e-5 --n-steps 20

        dpvb plan --noise-multiplier 1.24 --sampling-prob 0.05 --delta 1e-4 --json

        dpvb plan lda --n-units 2000 --width 7702 --topics 10 --epsilon 1 --delta 1e-5
    """
    if context.invoked_subcommand is not None:
        return
    from dpvb import accounting
    from dpvb.accounting import Event, budget_warnings
    from dpvb.accounting.events import named_sampler
    from dpvb.accounting.methods import as_json as plain
    from dpvb.results.expected_accuracy import attack

    if (epsilon is None) == (noise_multiplier is None):
        raise ParameterError("Give either epsilon=, to calibrate the noise, or noise_multiplier=, to get its epsilon.")
    budget = math.inf if epsilon is None else check_number("epsilon", epsilon, low=0, high=math.inf, closed="neither")
    sampler, rate = named_sampler(sampling_prob, batch_size, n_units)
    shape: dict[str, Any] = {
        "sampler": sampler,
        "sampling_prob": rate,
        "n_steps": check_integer("n_steps", n_steps, low=1, high=10**7),
        "swap_ratio": swap_ratio,
    }
    relation: Any = neighboring_relation
    with working("accounting"):
        noise = noise_multiplier
        if noise is None:
            noise = accounting.noise_multiplier(epsilon=budget, delta=delta, neighboring_relation=relation, **shape)
        events = [Event(noise_multiplier=noise, **shape)]
        spent = accounting.epsilon(delta=delta, noise_multiplier=noise, neighboring_relation=relation, **shape)
        curve = accounting.curve(events, neighboring_relation=relation)
        power = accounting.power(events, neighboring_relation=relation)
    budget_warnings.warn(budget, delta, unit="unit", num_units=n_units, events=events)
    averaged = noise / (rate * math.sqrt(n_steps))
    if as_json:
        facts = {"epsilon": plain(spent), "delta": delta, "noise_multiplier": noise, **shape}
        facts["neighboring_relation"] = neighboring_relation
        facts["noise_of_average"] = averaged
        facts["curve"] = [[d, plain(e)] for d, e in curve]
        print_json(facts)
        return
    if math.isfinite(spent):
        accuracy = accounting.attack_accuracy(spent, delta)
        echo(f"epsilon = {accounting.rounded_up(spent)}. {attack(accuracy, power, 'unit')}")
    echo(
        f"Noise multiplier {noise:.6g}: {n_steps} releases ({sampler}, sampling probability {rate:.6g}, "
        f"{neighboring_relation}) cost epsilon = {accounting.rounded_up(spent)} at delta = {delta:g}.\n"
        f"Noise of the average over all releases, relative to the clip norm: {averaged:.4g}."
    )
    print_table(
        "Epsilon of the same releases at other values of delta; all of these guarantees hold",
        ["delta", "epsilon"],
        [[f"{d:g}", accounting.rounded_up(e)] for d, e in curve],
    )
