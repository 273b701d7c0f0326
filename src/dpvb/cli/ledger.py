"""`dpvb ledger`: create, print, verify and export a ledger of privacy budgets."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

import dpvb
from dpvb.cli import files, options
from dpvb.cli.root import Commands, app
from dpvb.cli.terminal import echo, print_json, print_table, working
from dpvb.guards.errors import ParameterError

ledger = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Manage a ledger, which enforces a privacy budget over several fits.

    A ledger is a file, or a PostgreSQL database for a team. It records the total budget of each data set. A fit with
    --ledger is charged before it reads the data, and refused if the budget is exceeded:

        dpvb ledger init budget.db

        dpvb ledger register budget.db notes --unit document --epsilon 3 --delta 1e-6

        dpvb ledger show budget.db""",
)
app.add_typer(ledger, name="ledger")

Place = Annotated[str, typer.Argument(metavar="LEDGER", help="Ledger file, or a URL postgresql://...")]
Name = Annotated[str, typer.Argument(help="Name of the data set.")]
Unit = Annotated[str, typer.Option(help="Protected unit: document, row or person.")]
CapEpsilon = Annotated[float, typer.Option(help="Total epsilon of all fits.")]
CapDelta = Annotated[float, typer.Option(help="Total delta of all fits, for example 1e-6; much smaller than 1/n.")]


@ledger.command()
def init(path: Place) -> None:
    """Create an empty ledger, or bring an existing one to the form of this version.

    The command may be repeated: rows of an existing ledger are never changed. Beside a ledger file, a second file with
    `.head` appended to its name detects older copies: keep both files together.

        dpvb ledger init budget.db

        dpvb ledger init postgresql://keeper@server/budgets
    """
    with dpvb.Ledger(path) as budget:
        number = len(budget.datasets())
        names = "no data set yet" if not number else f"{number} data set{'s' * (number > 1)}"
        next_step = "dpvb ledger show" if number else "register a data set with dpvb ledger register"
        echo(f"Ledger {budget.location} (id {budget.uuid}) is ready, with {names}. Next: {next_step}.")


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
            help="Data set of which this one is a part. Parts must be fixed beforehand and share no unit; each part "
            "has its "
            "own budget."
        ),
    ] = None,
) -> None:
    """Register a data set with its unit, neighbouring relation and total budget (epsilon, delta).

    These facts cannot be changed later. Registering the same facts again has no effect; other facts are refused. In
    PostgreSQL only the owner of the ledger can register.

        dpvb ledger register budget.db notes --unit document --epsilon 3 --delta 1e-6

        dpvb ledger register budget.db north --part-of people --unit person --epsilon 3 --delta 1e-6
    """
    from dpvb.ledger import is_address
    from dpvb.ledger.address import without_password

    if not _is_file(path) and not is_address(path):
        shown = without_password(path)
        raise ParameterError(f"There is no ledger {shown!r}. Create it first: dpvb ledger init {shown}")
    with dpvb.Ledger(path) as budget:
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
    role: Annotated[str, typer.Argument(help="Existing role of the PostgreSQL server.")],
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Allow only reading, verifying and exporting.")
    ] = False,
) -> None:
    """Allow a PostgreSQL role to charge fits to a ledger, and nothing else.

    Run it as the owner of the ledger. Other rights of the role on the tables of the ledger are revoked. The executed
    statements are printed.

        dpvb ledger grant postgresql://keeper@server/budgets analyst

        dpvb ledger grant postgresql://keeper@server/budgets auditor --read-only
    """
    with dpvb.Ledger(path, read_only=True) as budget:
        for statement in budget.grant(role, append=not read_only):
            echo(f"{statement};")


@ledger.command()
def show(
    path: Place,
    name: Annotated[str | None, typer.Argument(help="Data set; not given: all.")] = None,
    as_json: options.Json = False,
) -> None:
    """Print the budget that each data set has spent and has left, and the times of `dpvb check-data`.

    Two totals are printed. The first, which is compared with the limit, is valid even if later plans were chosen after
    earlier results. The second is the cost of the same plans if all had been fixed beforehand.

        dpvb ledger show budget.db
    """
    from dpvb import accounting
    from dpvb.results.statement import percent

    with working("accounting"), dpvb.Ledger(path, read_only=True) as budget:
        names = [one.name for one in budget.datasets()] if name is None else [name]
        left = {one: budget.remaining(one) for one in names}  # The error for an unknown name lists the known ones.
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
        "Budgets, epsilon at the delta of each data set",
        ["data set", "unit", "delta", "limit", "spent", "if fixed", "left", "charges", "more"],
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
    echo(
        "spent: total cost, valid if later plans depend on earlier results; if fixed: total cost of plans fixed "
        "beforehand."
    )
    echo("left: limit minus spent. A plan that costs more by itself may fit, since costs compose sublinearly.")
    echo("more: number of further plans like the last one that fit.")
    for one in facts:
        # A statement about a total: what all fits together may disclose, not one of them.
        bounds = [
            f"{percent(accounting.attack_accuracy(one[key], one['delta']))} {words}"
            for key, words in (("spent_adaptive", "for all charges so far"), ("cap_epsilon", "at the limit"))
        ]
        echo(
            f"{one['name']}: an attacker who believes with probability 50 % that a {one['unit']} is in the data "
            f"guesses right with a probability of at most {' and '.join(bounds)}."
        )
    for one in facts:
        if one["sole"]:
            echo(f"{one['name']}: one plan, charged at its own epsilon; no further plan is possible.")
    for one in facts:
        if one["data_checks"]:
            echo(f"{one['name']}: checked without noise by dpvb check-data, at {', '.join(one['data_checks'])}.")


@ledger.command()
def quote(
    path: Place,
    name: Annotated[str | None, typer.Argument(help="Data set; not needed if there is only one.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget to which the noise is calibrated.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of --epsilon; not given: that of the data set.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Noise standard deviation over the clip norm, instead of --epsilon.")
    ] = None,
    n_steps: Annotated[int, typer.Option(help="Number of noisy releases.")] = 20,
    sampling_prob: options.SamplingProb = None,
    swap_ratio: Annotated[
        float,
        options.plan(
            "Largest distance of two units' statistics over the clip norm: sqrt(2) for topic models, 2 in general. It "
            "affects only replace_one. With sampling, at least 1 is used."
        ),
    ] = 2.0,
    as_json: options.Json = False,
) -> None:
    """Check whether a plan fits into the remaining budget. No budget is spent.

    Prints the cost of the plan by itself, both totals after it, and the largest plan of this shape that fits.

        dpvb ledger quote budget.db notes --epsilon 1 --n-steps 20
    """
    from dpvb import accounting

    if (epsilon is None) == (noise_multiplier is None):
        raise ParameterError(
            "Give either --epsilon, to calibrate the noise, or --noise-multiplier, to get its epsilon."
        )
    with working("accounting"), dpvb.Ledger(path, read_only=True) as budget:
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
        typer.Option(help="Model that was fitted with this ledger, whose receipt is checked. May be repeated."),
    ] = None,
) -> None:
    """Check every row of a ledger: hash, place in the chain, totals and head.

    It checks a ledger, or offline the file of `dpvb ledger export`. With --receipt of a model, it also detects a ledger
    that was reset to a state before the model. If a check fails, one line names the check and the row, and the exit
    code is 2.

        dpvb ledger verify budget.db --receipt notes.dpvb

        dpvb ledger verify chain.jsonl
    """
    from dpvb.ledger import verify_export

    receipts = [_receipt(model) for model in receipt or ()]
    if _is_file(path) and not _is_database(path):
        verify_export(path, receipts)
        shown = path
    else:
        with dpvb.Ledger(path, read_only=True) as budget:
            budget.verify(receipts)
            shown = budget.location
    with_receipts = f", and {len(receipts)} of them match a receipt" if receipts else ""
    echo(f"{shown}: all rows are valid{with_receipts}.")


@ledger.command()
def export(
    path: Place,
    out: Annotated[Path, typer.Argument(help="File to write, in JSON lines.")],
    overwrite: options.Overwrite = False,
) -> None:
    """Write the whole chain as JSON lines, which can be verified without the ledger.

    It also exports a damaged ledger, which refuses charges.

        dpvb ledger export budget.db chain.jsonl
    """
    files.check_target(out, overwrite)
    with dpvb.Ledger(path, read_only=True) as budget, files.replacing(out) as temporary:
        budget.export(temporary)


def _receipt(model: Path) -> Any:
    """Return the receipt of a model."""
    from dpvb.ledger import Receipt

    charge = files.read_statement(model)[0].charge
    if charge is None:
        raise ParameterError(f"--receipt must name a model that was fitted with a ledger, got {str(model)!r}.")
    return Receipt(**vars(charge))


def _is_file(path: str) -> bool:
    from dpvb.ledger import is_address

    return not is_address(path) and Path(path).is_file()


def _is_database(path: str) -> bool:
    with open(path, "rb") as file:
        return not file.read(1).startswith(b"{")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
