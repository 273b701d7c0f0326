"""`dpvb plan`, `show`, `demo`: what a budget buys, what a model promises, and a first look."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, new_console, print_json, print_table, working
from dpvb.guards.errors import ParameterError


@app.command()
def plan(
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
            "general. It matters for replace_one and fixed-size batches only.",
            rich_help_panel=options.PLAN,
        ),
    ] = math.sqrt(2.0),
    documents: Annotated[
        int | None,
        typer.Option(
            help="A public number of documents: what to expect of topics fitted to so many.", show_default=False
        ),
    ] = None,
    vocabulary_size: Annotated[
        int | None, typer.Option(help="Number of words, with --documents.", show_default=False)
    ] = None,
    topics: Annotated[int, typer.Option(help="Number of topics, with --documents.")] = 10,
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

    Shows what (epsilon, delta) means for one unit, the noise that meets it, what the same releases promise at other
    values of delta, and what 4 and 16 times the compute would buy. Reads no data and spends
    nothing. The releases are equal ones; `fit lda` makes one more, of word totals, out of the same budget. With
    --documents, says how many topics of so many documents stand above the noise; epsilon is 1 then, if not given.

        dpvb plan --epsilon 1 --delta 1e-5 --num-steps 20

        dpvb plan --noise-multiplier 1.24 --sampling-prob 0.05 --delta 1e-4 --json

        dpvb plan --documents 2000 --vocabulary-size 7702 --topics 10

        dpvb plan --epsilon 1 --vocabulary-share 0.2
    """
    from dpvb import accounting
    from dpvb.accounting import Event, doubts, planning
    from dpvb.results.statement import percent

    if (documents is None) != (vocabulary_size is None):
        raise ParameterError("documents= needs vocabulary_size=, and the other way round.")
    if documents is not None and noise_multiplier is None:
        epsilon = 1.0 if epsilon is None else epsilon
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
    expected = None
    if documents is not None and vocabulary_size is not None:
        from dpvb.estimators.lda import LDA

        model = LDA(topics, epsilon=math.inf if epsilon is None else epsilon, **shape)
        with working("accounting"):
            expected = model.forecast(documents, vocabulary_size)
        facts["topics"] = {"signal": expected.signal, "detectable": expected.detectable, "needed": expected.needed}
    found = ""
    if vocabulary_share is not None:
        with working("accounting"):
            facts["vocabulary"], found = _vocabulary(vocabulary_share, topics, {"epsilon": epsilon, **shape})
    if as_json:
        print_json(facts)
        return
    out = new_console()
    if found:
        out.print(found)
    if expected is not None:
        out.print(f"{documents:,} documents at epsilon = {_number(facts['epsilon'])}: {expected}")
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


def _vocabulary(share: float, topics: int, shape: dict[str, Any]) -> tuple[dict[str, float], str]:
    """What finding words by a share of the budget comes to, as facts and in words."""
    from dpvb.core.names import Threshold
    from dpvb.estimators.lda import LDA

    if shape["epsilon"] is None:
        raise ParameterError("vocabulary_share= needs epsilon=, of which it is a part.")
    model = LDA(topics, vocabulary="private", vocabulary_share=share, **shape)
    mechanism = model._calibrated(model.task([]).plan).releases[0].mechanism
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


@app.command()
def show(
    model: options.Model,
    brief: Annotated[bool, typer.Option("--brief", help="Six lines for whoever decides.")] = False,
    as_json: options.Json = False,
) -> None:
    """Print the privacy statement of a saved model.

    What is promised, to whom, by which releases, what is taken as public and what is not covered. The epsilon is
    accounted for anew from the releases that the file lists. Where `dpvb audit --attach` has left its report, one line
    sums it up.

        dpvb show notes.dpvb
    """
    fitted = files.load_model(model)
    statement, report = fitted.privacy_, getattr(fitted, "audit_", None)
    statement.verify()
    if as_json:
        print_json(statement.to_dict() | ({} if report is None else {"audit": report.to_dict()}))
    else:
        echo(statement.in_short() if brief else str(statement))
        if report is not None:
            echo(f"{'Audit':<15}{report.summary}")


@app.command()
def report(
    model: options.Model,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The HTML file to write.", show_default=False)] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Write one page about a model: what was learned, how sure it is, what it cost, how it was done.

    The page needs no network and runs no script; it may be published, as the model may. With --json the same as a model
    card, on standard output.

        dpvb report notes.dpvb --out notes.html

        dpvb report notes.dpvb --json
    """
    if out is None and not as_json:
        raise ParameterError("out= must name the page's file; or give as_json=True for a model card.")
    if out is not None:
        files.check_target(out, overwrite)
    page = files.load_model(model).report()
    if out is not None:
        page.save(out, overwrite=overwrite)
    if as_json:
        print_json(page.card())


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model and the picture.")] = Path("demo-output"),
    epsilon: Annotated[float, typer.Option(help="The budget of the private fit.")] = 2.0,
    delta: Annotated[float, typer.Option(help="Below one over the 40,000 articles.")] = 1e-6,
) -> None:
    """Fit 20 topics to Wikipedia articles, privately and not, and compare.

    The package holds word counts of 40,000 articles, played to be private, and 1,000 public held-out ones. Prints both
    models' topics side by side, their perplexities and the privacy statement; writes a model and a picture.

        dpvb demo --out demo-output
    """
    from dpvb.cli import demo as demonstration

    files.check_folder(out)
    demonstration.run(out, epsilon=epsilon, delta=delta)


def _remark(name: str, value: float | None, unproven: list[str]) -> str:
    if value is None:
        return "does not apply"
    return "claimed by the papers, no guarantee" if name in unproven else ""


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.5g}"
