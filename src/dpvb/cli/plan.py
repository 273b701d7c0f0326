"""`dpvb plan`: what a budget buys, of a model by its name, or of equal releases; no data are read."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dpvb.cli import options
from dpvb.cli.fit import Kinds, kinds, needed, of_files, options_of, summary, value_of
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, new_console, print_json, print_table, working
from dpvb.guards.errors import ParameterError, check_integer

if TYPE_CHECKING:
    from dpvb.estimators.base import PrivateEstimator

Units = Annotated[
    int, typer.Option(help="Roughly how many units there will be, from elsewhere than the data.", show_default=False)
]
Width = Annotated[int | None, typer.Option(help="Number of columns or words.", show_default=False)]
Plot = Annotated[
    Path | None, typer.Option(help="A picture to write of what epsilon buys: .png, .pdf or .svg.", show_default=False)
]
# What a model's own files would say of its columns.
_OF_COLUMNS = ("schema", "vocabulary", "width")


class _Plans(Kinds):
    """The group whose commands plan the kinds of models; its own options are those of equal releases."""

    def get_command(self, ctx: Any, name: str) -> Any:
        if not name:  # An error of its own, which says its own options.
            return self
        return _command(name) if name in kinds() else None


plan = typer.Typer(cls=_Plans, no_args_is_help=False)
app.add_typer(plan, name="plan")


def planning(kind: type[PrivateEstimator]) -> Callable[..., None]:
    """The function that plans a kind; its signature has the options."""
    own, hints = {option.name: option for option in options_of(kind)}, get_type_hints(kind)
    columns = {option.name: option for option in of_files(kind) if option.name in _OF_COLUMNS}
    if kind.reads not in ("sequences", "table"):
        width = inspect.Parameter("width", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Width)
        columns.setdefault("width", width)

    def run(*, units: Units, plot: Plot = None, as_json: options.Json = False, **given: Any) -> None:
        from dpvb.data import Schema
        from dpvb.estimators.planned import plan as planned

        known = inspect.signature(kind).parameters
        model = kind(**{name: value_of(name, value, hints[name]) for name, value in given.items() if name in known})
        declared = {name: given[name] for name in columns if name not in known}
        if declared.get("schema") is not None:
            declared["schema"] = Schema.load(declared["schema"])
        units = check_integer("units", units, low=1)
        with working("accounting"):
            found = planned(model, units, **declared)
        if plot is not None:
            found.plot(plot)
        if as_json:
            print_json(found.to_dict())
        else:
            echo(str(found))

    shared = inspect.signature(run, eval_str=True).parameters
    ordered = sorted(
        [shared["units"], *columns.values(), *own.values(), shared["plot"], shared["as_json"]],
        key=lambda option: option.default is not option.empty,
    )
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in ordered}
    return run


@cache
def _command(name: str) -> Any:
    """A kind's command, of what its class says."""
    kind = kinds()[name]
    about = "Everything is public: no data are read, and nothing is spent."
    program = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    text = (
        f"What to expect of: {summary(inspect.getdoc(kind))}\n\n{about}\n\n    dpvb plan {name} --units 20000 "
        f"{needed(kind)}--epsilon 1 --delta 1e-5"
    )
    program.command(name, help=text)(planning(kind))
    return typer.main.get_command(program)


@plan.callback(invoke_without_command=True)
def of_releases(
    context: typer.Context,
    epsilon: Annotated[
        float | None, typer.Option(help="The budget; the noise is calibrated to it.", show_default=False)
    ] = None,
    delta: Annotated[float, typer.Option(help="Well below one over the number of documents.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(
            help="The other direction: what a given noise (std over the clip norm) costs.", show_default=False
        ),
    ] = None,
    num_steps: Annotated[int, typer.Option(help="Number J of noisy releases.")] = 20,
    sampling_prob: options.SamplingProb = None,
    batch_size: options.BatchSize = None,
    num_examples: options.NumExamples = None,
    neighboring_relation: options.Relation = options.ADD_OR_REMOVE,
    swap_ratio: Annotated[
        float,
        typer.Option(
            help="Largest distance of two documents' statistics over the clip norm: sqrt(2) for topic models, 2 in "
            "general. It matters for replace_one and fixed-size batches only. Where a unit can be absent, at least 1 "
            "is accounted.",
            rich_help_panel=options.PLAN,
        ),
    ] = math.sqrt(2.0),
    vocabulary_share: Annotated[
        float | None,
        typer.Option(
            help="Part of the budget that finds words, as `fit lda --vocabulary private` does: how many documents must "
            "use a word. Needs --epsilon.",
            show_default=False,
        ),
    ] = None,
    methods: Annotated[
        bool, typer.Option("--methods", help="Also what every accounting method makes of the same releases.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Say what a budget buys, before any data are touched.

    With the NAME of a model, says what to expect of a fit to so many units, which of epsilon, units and model size must
    give where that is nothing, and what an attacker gains; `dpvb plan lda --help` explains one of them. Without,
    shows what (epsilon, delta) means for one unit, the noise that meets it, what the same releases promise at other
    values of delta, and what 4 and 16 times the compute would buy. Reads no data and spends nothing.

        dpvb plan --epsilon 1 --delta 1e-5 --num-steps 20

        dpvb plan --noise-multiplier 1.24 --sampling-prob 0.05 --delta 1e-4 --json

        dpvb plan lda --units 2000 --width 7702 --topics 10 --epsilon 1 --delta 1e-5

        dpvb plan --epsilon 1 --vocabulary-share 0.2
    """
    if context.invoked_subcommand is not None:
        return
    from dpvb import accounting
    from dpvb.accounting import Event, doubts, planning
    from dpvb.results.statement import percent

    shape: dict[str, Any] = {
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "num_steps": num_steps,
        "sampling_prob": sampling_prob,
        "batch_size": batch_size,
        "num_examples": num_examples,
        "neighboring_relation": neighboring_relation,
    }
    with working("accounting"):
        facts = planning.plan_facts(epsilon=epsilon, swap_ratio=swap_ratio, **shape)
    doubts.warn(
        math.inf if epsilon is None else epsilon,
        delta,
        unit="unit",
        num_units=num_examples,
        events=[Event(facts["sampler"], facts["sampling_prob"], facts["noise_multiplier"], facts["num_steps"])],
    )
    found = ""
    if vocabulary_share is not None:
        with working("accounting"):
            facts["vocabulary"], found = _vocabulary(vocabulary_share, {"epsilon": epsilon, **shape})
    if as_json:
        print_json(facts)
        return
    out = new_console()
    if found:
        out.print(found)
    if isinstance(facts["epsilon"], float):
        alarms = accounting.true_positive_rate(
            [(delta, facts["epsilon"]), *((d, e) for d, e in facts["curve"] if isinstance(e, float))]
        )
        out.print(
            f"epsilon = {_number(facts['epsilon'])}: whoever gives even odds to one unit's presence becomes at most "
            f"{percent(accounting.belief(facts['epsilon']))} sure of it, but for a probability of {delta:g}; a test "
            f"with 1 % false alarms finds at most {percent(alarms)} of those who are there."
        )
    out.print(
        f"noise multiplier {facts['noise_multiplier']:.6g}: {facts['num_steps']} releases "
        f"({facts['sampler']}, sampling probability {facts['sampling_prob']:.6g}, {facts['neighboring_relation']}) "
        f"cost epsilon = {_number(facts['epsilon'])} at delta = {facts['delta']:g}"
    )
    print_table(
        "The same releases at other values of delta, all at once",
        ["delta", "epsilon"],
        [[f"{d:g}", _number(e)] for d, e in facts["curve"]],
    )
    if methods:
        unproven = facts["unproven_methods"]
        print_table(
            f"The same releases by every method, at delta = {facts['delta']:g}",
            ["method", "epsilon", ""],
            [
                [name, "-" if value is None else _number(value), _remark(name, value, unproven)]
                for name, value in facts["methods"].items()
            ],
        )
    if not facts["compute"]:
        return
    print_table(
        "What compute buys at this epsilon; the noise is that of the average over all steps, over the clip norm",
        ["compute", "sampling prob.", "steps", "noise multiplier", "noise of the average"],
        [
            [
                f"{row['compute']}x",
                f"{row['sampling_prob']:.4g}",
                str(row["num_steps"]),
                f"{row['noise_multiplier']:.4g}",
                f"{row['noise_of_average']:.4g}",
            ]
            for row in facts["compute"]
        ],
    )


def _vocabulary(share: float, shape: dict[str, Any]) -> tuple[dict[str, float], str]:
    """What finding words by a share of the budget comes to, as facts and in words."""
    from dpvb.core.names import Threshold
    from dpvb.estimators.lda import LDA

    if shape["epsilon"] is None:
        raise ParameterError("vocabulary_share= needs epsilon=, of which it is a part.")
    model = LDA(vocabulary="private", vocabulary_share=share, **shape)
    mechanism = model.task([]).plan.releases[0].mechanism
    assert isinstance(mechanism, Threshold)
    facts = {
        "share": share,
        "added_delta": mechanism.added_delta,
        "noise_multiplier": mechanism.noise_multiplier,
        "threshold": mechanism.threshold,
    }
    few, many = (math.ceil(mechanism.threshold * math.sqrt(t)) for t in (10, 100))
    return facts, (
        f"words by {share:g} of the budget: noise multiplier {mechanism.noise_multiplier:.4g}, and "
        f"{mechanism.added_delta:g} of delta. A word is found that about {many:,} documents of a hundred different "
        f"words use, or {few:,} of ten. What follows is the same budget without them."
    )


def _remark(name: str, value: float | None, unproven: list[str]) -> str:
    if value is None:
        return "does not apply"
    return "claimed by the papers, no guarantee" if name in unproven else ""


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"
