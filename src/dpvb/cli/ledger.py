"""`dpvb ledger`: a budget that outlives the process: keep it, look at it, prove that nobody changed it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from dpvb.cli import files, options
from dpvb.cli.root import Commands, app
from dpvb.cli.terminal import echo, print_json, print_table, working
from dpvb.guards.errors import ParameterError

ledger = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Keep a privacy budget over many fits, people and years.

    A ledger is one file, or a PostgreSQL database for a team. It says what each data set may lose in all, and every
    fit that names it is charged before it looks at the data:

        dpvb ledger init budget.db

        dpvb ledger register budget.db notes --unit document --epsilon 3 --delta 1e-6

        dpvb ledger show budget.db""",
)
app.add_typer(ledger, name="ledger")

Place = Annotated[str, typer.Argument(metavar="LEDGER", help="A ledger file, or the address postgresql://... of one.")]
Name = Annotated[str, typer.Argument(help="Name of the data set.")]
Unit = Annotated[str, typer.Option(help="Whose presence is protected: document, row, person.")]
CapEpsilon = Annotated[float, typer.Option(help="What all fits together may spend.")]
CapDelta = Annotated[float, typer.Option(help="Well below one over the number of units; of all fits together.")]


@ledger.command()
def init(path: Place) -> None:
    """Make a new, empty ledger.

    Beside a file there is a second one, its name with `.head`, which tells it from an older copy of itself: keep both
    together. What is already there is left as it is and refused.

        dpvb ledger init budget.db

        dpvb ledger init postgresql://keeper@server/budgets
    """
    from dpvb import Ledger

    if _is_file(path):
        raise ParameterError(f"{path!r} is already there. Look at it with: dpvb ledger show {path}")
    with Ledger(path) as budget:
        if datasets := budget.datasets():
            raise ParameterError(
                f"{budget.location!r} is a ledger already, with {len(datasets)} data sets. Look at it with: "
                "dpvb ledger show"
            )
        echo(f"ledger {budget.uuid}: no data sets yet. Say what one may lose with: dpvb ledger register")


@ledger.command()
def register(
    path: Place,
    name: Name,
    unit: Unit,
    epsilon: CapEpsilon,
    delta: CapDelta,
    neighboring_relation: options.Relation = options.ADD_OR_REMOVE,
    part_of: Annotated[
        str | None,
        typer.Option(
            help="A data set of which this one is a part: a group of units, fixed beforehand, that no other part "
            "shares. Parts spend side by side."
        ),
    ] = None,
) -> None:
    """Say what a data set may lose in all: its unit, its neighbours and the cap (epsilon, delta).

    These facts stay for good. Registering the same facts again changes nothing; other facts are refused.

        dpvb ledger register budget.db notes --unit document --epsilon 3 --delta 1e-6

        dpvb ledger register budget.db north --part-of people --unit person --epsilon 3 --delta 1e-6
    """
    from dpvb import Ledger
    from dpvb.ledger import is_address
    from dpvb.ledger.address import without_password

    if not _is_file(path) and not is_address(path):
        shown = without_password(path)
        raise ParameterError(f"There is no ledger {shown!r}. Make it first: dpvb ledger init {shown}")
    with Ledger(path) as budget:
        budget.register(
            name,
            unit=unit,
            neighboring_relation=neighboring_relation,  # type: ignore[arg-type]
            epsilon=epsilon,
            delta=delta,
            part_of=part_of,
        )
        echo(f"{name}: {budget.remaining(name)}")


@ledger.command()
def grant(
    path: Place,
    role: Annotated[str, typer.Argument(help="A role of the PostgreSQL server; it exists.")],
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Let the role look, verify and export, and charge nothing.")
    ] = False,
) -> None:
    """Let a role of PostgreSQL charge its fits to a ledger, and do nothing else in it.

    The ledger's owner gives the right; rights that the role had on the ledger's tables before are taken away. The
    statements are printed.

        dpvb ledger grant postgresql://keeper@server/budgets analyst

        dpvb ledger grant postgresql://keeper@server/budgets auditor --read-only
    """
    from dpvb import Ledger

    with Ledger(path, read_only=True) as budget:
        for statement in budget.grant(role, append=not read_only):
            echo(f"{statement};")


@ledger.command()
def show(
    path: Place,
    name: Annotated[str | None, typer.Argument(help="One data set; all of them if not given.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print the budget that each data set has spent and has left, and the times of `dpvb check-data`.

    Two totals stand side by side. The first counts for the cap: it holds although later plans were chosen after
    seeing earlier results. The second is what the same plans would cost, had all of them been fixed beforehand.

        dpvb ledger show budget.db
    """
    from dpvb import Ledger, accounting

    with working("accounting"), Ledger(path, read_only=True) as budget:
        names = [one.name for one in budget.datasets()] if name is None else [name]
        left = {one: budget.remaining(one) for one in names}  # Of an unknown name it says which there are.
        facts = [
            one.to_dict()
            | left[one.name].to_dict()
            | {"data_checks": [note.created for note in budget.data_checks(one.name)]}
            for one in budget.datasets()
            if one.name in left
        ]
    if as_json:
        print_json(facts)
        return
    print_table(
        "What is spent, at each data set's delta",
        ["data set", "unit", "delta", "cap", "spent", "if fixed", "left", "charges", "more"],
        [
            [
                one["name"] if one["part_of"] is None else f"{one['name']} (of {one['part_of']})",
                one["unit"],
                f"{one['delta']:g}",
                f"{one['cap_epsilon']:g}",
                *(accounting.rounded_up(one[key]) for key in ("spent_adaptive", "spent_if_fixed")),
                accounting.rounded_down(one["epsilon"]),
                str(one["num_charges"]),
                "" if one["num_more"] is None else str(one["num_more"]),
            ]
            for one in facts
        ],
        numbers=(2, 3, 4, 5, 6, 7, 8),
    )
    echo("spent: whatever made people choose the later plans; if fixed: had all plans been fixed beforehand.")
    echo("left: the cap without what is spent. A plan that costs more by itself may fit: together they cost less.")
    echo("more: how many more plans like a data set's last one would fit.")
    for one in facts:
        if one["sole"]:
            echo(f"{one['name']}: one plan, charged by its own epsilon as the first; nothing can follow it.")
    for one in facts:
        if one["data_checks"]:
            echo(f"{one['name']}: checked without noise by dpvb check-data, at {', '.join(one['data_checks'])}.")


@ledger.command()
def quote(
    path: Place,
    name: Annotated[str | None, typer.Argument(help="Name of the data set; not needed if there is only one.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The budget of the fit; its noise is calibrated to it.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="Where epsilon is meant; the data set's delta if not given.")
    ] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise std over the clip norm, instead of epsilon.")
    ] = None,
    n_steps: Annotated[int, typer.Option(help="Number J of noisy releases.")] = 20,
    sampling_prob: options.SamplingProb = None,
    swap_ratio: Annotated[
        float,
        options.plan(
            "Largest distance of two units' statistics over the clip norm: sqrt(2) for topic models, 2 in "
            "general. It matters for replace_one only. With sampling, at least 1 is accounted."
        ),
    ] = 2.0,
    as_json: options.Json = False,
) -> None:
    """Ask whether a plan fits into what remains; nothing is spent.

    Prints what the plan costs by itself, both totals after it, and the largest plan of this shape that fits.

        dpvb ledger quote budget.db notes --epsilon 1 --n-steps 20
    """
    from dpvb import Ledger, accounting

    if (epsilon is None) == (noise_multiplier is None):
        raise ParameterError("Give --epsilon, to calibrate the noise, or --noise-multiplier, to ask for its epsilon.")
    with working("accounting"), Ledger(path, read_only=True) as budget:
        datasets = budget.datasets()
        facts = next((one for one in datasets if one.name == name or (name is None and len(datasets) == 1)), None)
        shape: dict[str, Any] = {
            "sampler": "full_batch" if sampling_prob is None else "poisson",
            "sampling_prob": 1.0 if sampling_prob is None else sampling_prob,
            "n_steps": n_steps,
            "swap_ratio": swap_ratio,
        }
        if epsilon is not None and facts is not None:
            noise_multiplier = accounting.noise_multiplier(
                epsilon=epsilon,
                delta=facts.delta if delta is None else delta,
                neighboring_relation=facts.neighboring_relation,
                method=budget.method(facts.name, [accounting.Event(noise_multiplier=1.0, **shape)]),  # As a fit would.
                **shape,
            )
        answer = budget.quote([accounting.Event(noise_multiplier=noise_multiplier or 0.0, **shape)], dataset=name)
    if as_json:
        print_json(
            {**answer.to_dict(), "noise_multiplier": noise_multiplier, "noise_scale": _finite(answer.noise_scale)}
        )
    else:
        echo(f"noise multiplier {noise_multiplier:.6g}: {answer}")


@ledger.command()
def verify(
    path: Place,
    receipt: Annotated[
        list[Path] | None,
        typer.Option(
            help="A model that was fitted with this ledger; its receipt must be there. May be given several times."
        ),
    ] = None,
) -> None:
    """Check every row of a ledger: its hash, its place in the chain, its totals, and the head beside them.

    Works on a ledger, or offline on the chain that `dpvb ledger export` wrote. A model knows what the ledger held when
    it was released: with --receipt, a ledger that was set back to before that is found out. If a check fails, one line
    names it and the row, and the exit code is 2.

        dpvb ledger verify budget.db --receipt notes.dpvb

        dpvb ledger verify chain.jsonl
    """
    from dpvb import Ledger
    from dpvb.ledger import verify_export

    receipts = [_receipt(model) for model in receipt or ()]
    if _is_file(path) and not _is_database(path):
        verify_export(path, receipts)
        shown = path
    else:
        with Ledger(path, read_only=True) as budget:
            budget.verify(receipts)
            shown = budget.location
    with_receipts = f", and {len(receipts)} of them have a model's receipt" if receipts else ""
    echo(f"{shown}: all rows are as they were written{with_receipts}.")


@ledger.command()
def export(
    path: Place,
    out: Annotated[Path, typer.Argument(help="The file to write: JSON lines.")],
    overwrite: options.Overwrite = False,
) -> None:
    """Write the whole chain as JSON lines, to be checked anywhere, without the ledger.

    Works for a damaged ledger too, from which nothing can be spent any more.

        dpvb ledger export budget.db chain.jsonl
    """
    from dpvb import Ledger

    files.check_target(out, overwrite)
    with Ledger(path, read_only=True) as budget, files.replacing(out) as temporary:
        budget.export(temporary)


def _receipt(model: Path) -> Any:
    """What a model carries of its charge."""
    from dpvb.ledger import Receipt

    charge = files.load_model(model).privacy_.charge
    if charge is None:
        raise ParameterError(f"--receipt: {str(model)!r} was fitted without a ledger.")
    return Receipt(**vars(charge))


def _is_file(path: str) -> bool:
    from dpvb.ledger import is_address

    return not is_address(path) and Path(path).is_file()


def _is_database(path: str) -> bool:
    with open(path, "rb") as file:
        return not file.read(1).startswith(b"{")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
