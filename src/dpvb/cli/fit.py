"""`dpvb fit NAME`: one command per class of models, generated from the class.

Parameters become options. The types are the annotations of the class, and the help texts are the `Args:` of its
docstrings. The class attribute `reads` selects the function that reads the files. A class is imported only when its
command is called: the list of all commands is parsed from the source text.

`dpvb fit NAME --dry-run` makes the same call on synthetic rows. It reads no private row and spends nothing.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import shlex
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

import dpvb
from dpvb.cli import files, log, options
from dpvb.cli.reading import READINGS, read
from dpvb.cli.root import Commands, app
from dpvb.cli.terminal import echo, progress_bar, remark, spent
from dpvb.guards.errors import ModelFileError, ParameterError
from dpvb.guards.untrusted import imported
from dpvb.guards.watched import watching

if TYPE_CHECKING:
    from dpvb.core.plan import Plan


_MARK = "DRY RUN on synthetic rows: the lines below describe no private data.\n"


def dry_run_fit(model: dpvb.PrivateEstimator, given: Mapping[str, Any], run: dpvb.Run, *, quiet: bool) -> None:
    """Fit synthetic rows; print the form of the result, the time that the fit took, and the cost of a fit."""
    from dpvb.estimators.synthetic_rows import NUM_ROWS

    columns = _declared(str(model._reads), given)
    plans: list[Plan] = []
    start = time.perf_counter()
    with progress_bar(quiet=quiet, label="dry run") as tell:

        def told(step: int, plan: Plan) -> None:
            plans[:] = [plan]
            tell(step, plan)

        fitted: Any = model.dry_run(**columns, run=replace(run, progress=told))
    seconds = time.perf_counter() - start
    if getattr(fitted, "coef_std_", None) is not None:
        echo(_MARK)
        echo(fitted.summary())
    number = model.n_units or NUM_ROWS
    remark(
        f"Dry run: {number:,} synthetic {fitted.privacy_.unit}s took {seconds:.1f} s on this machine (--n-units sets "
        "their number). No row was read, no budget was spent, and no file was written."
    )
    if not Path(given["data"]).exists():
        remark(f"{given['data']}: there is no such file, so the fit will be refused.")
    remark(f"A fit would cost {spent(fitted)}.")
    if run.ledger is not None and math.isfinite(model.epsilon):
        from dpvb.runs.run import opened

        with opened(run.ledger) as ledger:
            remark(f"Ledger: {ledger.quote(plans[0], dataset=run.dataset)}")


def _declared(form: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return public facts of a call about the columns. For a matrix, only the file header is read."""
    from dpvb.data.documents.vocabulary import PRIVATE

    if form == "documents":
        if str(given["vocabulary"]) == PRIVATE:
            return {"grouped": given["group_column"] is not None}
        if given["vocabulary"] is None and given["width"] is None:
            raise ParameterError(
                "--dry-run does not open documents. Give --vocabulary, or --width, the number of words."
            )
        words = None if given["vocabulary"] is None else dpvb.data.check_vocabulary(given["vocabulary"])
        return {"vocabulary": words, "width": given["width"], "grouped": given["group_column"] is not None}
    if form == "sequences":
        return {"grouped": True}
    if given.get("schema") is not None:
        return {"schema": dpvb.Schema.load(given["schema"])}
    if form == "labelled" and given["vocabulary"] is not None:
        return {"vocabulary": dpvb.data.check_vocabulary(given["vocabulary"])}
    if form in ("table", "labelled"):
        raise ParameterError("--dry-run needs --schema, as the fit does.")
    if form == "rows" and given["target"] is None:
        raise ParameterError("--dry-run needs --schema for a table, or --target for a matrix, as the fit does.")
    return {"width": files.matrix_width(Path(given["data"])), "grouped": given["group"] is not None}


# Options that name files of private rows.
_FILES = ("data", "target", "trials", "exposure", "offset", "weights", "group", "exclude_groups")
# Options that every example has.
_BUDGET = ("epsilon", "delta")
# Types of options; a parameter with several types gets the first of these.
_PLAIN = (bool, int, float, Path, str)
# Type of a parameter that may be one number or several; they are written with commas.
_NUMBERS = Sequence[float]


class Kinds(Commands):
    """The group whose commands are the kinds of models."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all kinds."""
        return list(kinds())

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of an estimator, or None. Underscores may replace hyphens, as in files."""
        name = name if ":" in name else name.replace("_", "-")
        return _command(name) if name in kinds() or ":" in name else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of a call.

        Raises:
            ParameterError: If there is no model of this name; it lists all names.
        """
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise ParameterError(f"There is no model {args[0]!r}. Models: {', '.join(summaries())}.")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without importing the estimators."""
        shown = copy(self)
        shown.list_commands = lambda ctx: list(summaries())  # type: ignore[method-assign]
        shown.get_command = lambda ctx, name: TyperCommand(name, help=summaries()[name])  # type: ignore[method-assign]
        super(Kinds, shown).format_help(ctx, formatter)


fit = typer.Typer(
    cls=Kinds,
    no_args_is_help=True,
    help="Fit a model to private data. `dpvb fit NAME --help` lists the options of a model.",
)
app.add_typer(fit, name="fit")


@cache
def summaries() -> dict[str, str]:
    """Return the first sentence of each estimator's docstring, by command, without importing the estimators."""
    [home] = find_spec("dpvb.estimators").submodule_search_locations  # type: ignore[union-attr,misc]
    found: dict[str, str] = {}
    for path in sorted(Path(home).glob("*.py")):
        for kind in ast.parse(path.read_bytes()).body:
            if isinstance(kind, ast.ClassDef):
                values = {ast.unparse(line.target): line.value for line in kind.body if isinstance(line, ast.AnnAssign)}
                if isinstance(name := values.get("_command"), ast.Constant) and name.value is not None:
                    found[str(name.value)] = summary(ast.get_docstring(kind))
    return found


def summary(docstring: str | None) -> str:
    """Return the first paragraph of a docstring."""
    return (docstring or "").split("\n\n")[0]


def kinds() -> dict[str, type[dpvb.PrivateEstimator]]:
    """Return estimator classes by the name of their command."""
    named = ((vars(kind).get("_command"), kind) for kind in dpvb.PrivateEstimator._registered.values())
    return {name: kind for name, kind in named if name is not None}


def kind_named(name: str) -> type[dpvb.PrivateEstimator]:
    """Return the estimator class of a command; for MODULE:CLASS, `PrivateModel`."""
    from dpvb.estimators import PrivateModel

    return PrivateModel if ":" in name else kinds()[name]


def model_named(name: str) -> type[dpvb.Model]:
    """Return the class of a user's model in an imported module.

    Raises:
        ParameterError: If there is no such class.
    """
    kind = imported(name)
    if not (isinstance(kind, type) and issubclass(kind, dpvb.Model) and is_dataclass(kind)):
        raise ParameterError(
            f"{name} must be a dpvb.Model and a frozen dataclass in an imported module: dpvb --import "
            f"{name.partition(':')[0]} fit {name} ..."
        )
    return kind


def options_of_model(kind: type[dpvb.Model], taken: Container[str]) -> Iterator[inspect.Parameter]:
    """Yield the options of a model's fields; several values are written with commas.

    Args:
        kind: Class of the model.
        taken: Names of options of the estimator; a field of such a name keeps its default.

    Raises:
        ParameterError: If a field has no default, and its type cannot be an option.
    """
    hints = get_type_hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        hint, is_needed = hints[field.name], field.default is MISSING
        plain = str if get_origin(hint) is tuple else _plain(hint)
        if field.name in taken or plain is None:
            if is_needed:
                raise ParameterError(
                    f"{kind.__name__}.{field.name} needs a default, since its type cannot be an option."
                )
            continue
        word = f"--{field.name.replace('_', '-')}"
        default = inspect.Parameter.empty if is_needed else field.default
        if isinstance(default, tuple):
            default = ",".join(map(str, default))
        option = typer.Option(
            f"{word}/--no-{word[2:]}" if plain is bool else word,
            show_default=not is_needed,
            rich_help_panel=None if is_needed else "Model",
        )
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[plain, option]
        )


def own_model(
    name: str, taken: Container[str]
) -> tuple[list[inspect.Parameter], Callable[[dict[str, Any]], dict[str, Any]]]:
    """Return the options of the fields of a model MODULE:CLASS, and what makes the argument `model` of their values.

    Args:
        name: Name of a command; that of an estimator has no such options and no such argument.
        taken: Names of options of the estimator.
    """
    if ":" not in name:
        return [], lambda given: {}
    kind = model_named(name)
    parts, hints = [*options_of_model(kind, taken)], get_type_hints(kind)
    return parts, lambda given: {
        "model": kind(**{part.name: _field(given.pop(part.name), hints[part.name]) for part in parts})
    }


def _field(value: Any, hint: Any) -> Any:
    """Return the value of a model's field from its option."""
    if get_origin(hint) is not tuple or not isinstance(value, str):
        return value
    kind = get_args(hint)[0]
    try:
        return tuple(kind(part.strip()) for part in value.split(",") if part.strip())
    except (TypeError, ValueError):
        raise ParameterError(f"{value!r} must be values of type {kind.__name__}, separated by commas.") from None


def fitting(name: str) -> Callable[..., None]:
    """Return the function of an estimator's command, with all options in its signature."""
    from dpvb.data.shards import files_of
    from dpvb.runs.checkpoint import Checkpoint

    kind = kind_named(name)
    of_estimator, hints = {option.name: option for option in options_of(kind)}, get_type_hints(kind)
    parts, model_of = own_model(name, of_estimator)
    of_the_run = inspect.signature(dpvb.Run).parameters

    def command(
        *,
        out: Annotated[Path | None, typer.Option(help="Model file to write; required without --dry-run.")] = None,
        overwrite: options.Overwrite = False,
        quiet: options.Quiet = False,
        dry_run: Annotated[
            bool,
            options.run(
                "Fit synthetic rows of the declared columns. No row is read, no budget is spent, no file is written.",
                "--dry-run",
            ),
        ] = False,
        log_file: options.LogFile = None,
        **given: Any,
    ) -> None:
        if out is not None:
            files.check_target(out, overwrite)
        elif not dry_run:
            raise ParameterError("--out must name the model file to write, unless --dry-run is given.")
        parameters = inspect.signature(kind).parameters
        values = {name: value_of(name, value, hints[name]) for name, value in given.items() if name in parameters}
        model = kind(**values, **model_of(given))
        run = dpvb.Run(**{name: value for name, value in given.items() if name in of_the_run})
        if dry_run:
            dry_run_fit(model, given, run, quiet=quiet)
            return
        assert out is not None
        if kind._reads == "sequences":  # Report errors in the columns before a file is opened.
            given["columns"] = model._named_columns
        given_files = [file for name in _FILES for file in files_of(given.get(name), name)]
        held = files.reserved(out, overwrite)
        with held, _told_of_stops(model, out, given["checkpoint"]), watching(given_files) as states:
            if given["checkpoint"] is not None and given["checkpoint"].is_dir() and run.resume != "load":
                Checkpoint(given["checkpoint"]).check_files(states.states)
            rows = read(str(kind._reads), given)
            with progress_bar(quiet=quiet) as tell:
                model.fit(**rows, run=replace(run, progress=tell))
            model.save(out, overwrite=overwrite)
        log.write("statement", message=model.privacy_.brief)
        figure = next(model._facts_for_report(), None)
        looks = "" if figure is None else f"dpvb show {out} --what {figure.name or 'all'}; "
        remark(f"{out}: {kind.__name__}, {spent(model)}. Next: {looks}dpvb show {out}")

    *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
    # Those first that must be given.
    every = (*of_files(kind), *parts, *of_estimator.values(), *shared)
    ordered = sorted(every, key=lambda option: option.default is not option.empty)
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in ordered}
    return command


@contextmanager
def _told_of_stops(model: dpvb.PrivateEstimator, out: Path, checkpoint: Path | None) -> Iterator[None]:
    """Report the cost of an end that comes while files are read or the model is written."""
    try:
        yield
    except (ModelFileError, ParameterError) as error:
        if hasattr(model, "privacy_"):  # The fit has ended, and only its file is missing.
            error.add_note(f"The fit has ended and was charged. {_way_to_the_file(checkpoint, 'Make room')}")
        raise
    except KeyboardInterrupt as error:
        if not hasattr(error, "__notes__") and hasattr(model, "privacy_"):
            error.add_note(f"Interrupted after the fit had ended: its budget was spent, and {out} may be missing.")
            error.add_note(_way_to_the_file(checkpoint))
        elif not hasattr(error, "__notes__"):
            error.add_note("Interrupted before anything was charged or released.")
        raise


def _way_to_the_file(checkpoint: Path | None, first: str = "") -> str:
    """Return how to get the model of a fit that has ended, which spends nothing, as a command line."""
    if checkpoint is None:
        return "Without --checkpoint its releases are lost."
    command = shlex.join(["dpvb", *log.arguments(), "--resume", "load"])
    return f"{first + ', then resume' if first else 'Resume'} with: {command}"


@cache
def _command(name: str) -> Any:
    """Return the command of an estimator, from the docstrings of its class and its reader."""
    kind = kind_named(name)
    words = needed(kind) if kind._example is None else f"{kind._example} "
    about = inspect.cleandoc(READINGS[str(kind._reads)].__doc__ or "").format(name=name, needed=words)
    program = typer.Typer(add_completion=False, rich_markup_mode="markdown")
    program.command(name, help=f"{summary(inspect.getdoc(kind))}\n\n{about}")(fitting(name))
    return typer.main.get_command(program)


def of_files(kind: type[dpvb.PrivateEstimator]) -> Iterator[inspect.Parameter]:
    """Yield the options of an estimator's files; bounds of columns only if the estimator has the parameter."""
    from dpvb.data.tables.response import BOUNDS

    bounds = {**BOUNDS, "trials": "max_trials", "symbol_column": "symbols"}
    for option in inspect.signature(READINGS[str(kind._reads)], eval_str=True).parameters.values():
        if option.name == "columns":
            continue  # A parameter of the estimator.
        if option.name not in bounds or bounds[option.name] in inspect.signature(kind).parameters:
            yield option.replace(kind=option.KEYWORD_ONLY)


def options_of(kind: type[dpvb.PrivateEstimator]) -> Iterator[inspect.Parameter]:
    """Yield the options of an estimator's parameters and of its run, without those of its files."""
    from dpvb.guards.missing_arguments import described
    from dpvb.runs.run import VARIABLES

    texts, hints = described(kind) | described(dpvb.Run), get_type_hints(kind) | get_type_hints(dpvb.Run)
    brought, of_the_run = {option.name for option in of_files(kind)}, inspect.signature(dpvb.Run).parameters
    for name, parameter in {**inspect.signature(kind).parameters, **of_the_run}.items():
        plain = _plain(hints[name])
        if plain is None or name in brought:
            continue
        word, needed = word_of(kind, name), parameter.default is parameter.empty
        panel = options.PLAN if name in dpvb.PrivateEstimator.__annotations__ else "Model"
        panel = options.RUN if name in of_the_run else panel
        option = typer.Option(
            f"{word}/--no-{word[2:]}" if plain is bool else word,
            help=help_of(kind, texts[name]) if name in texts else None,
            show_default=not needed,
            rich_help_panel=None if needed else panel,
            envvar=VARIABLES.get(name),
        )
        if plain == (float | None) and not needed and parameter.default is not None:
            option.parser, option.metavar = number_or_none, "NUMBER|none"
        default = tuple(map(str, parameter.default)) if get_origin(plain) is tuple else parameter.default
        yield inspect.Parameter(name, parameter.KEYWORD_ONLY, default=default, annotation=Annotated[plain, option])


def needed(kind: type[dpvb.PrivateEstimator]) -> str:
    """Return the required options of an estimator other than the budget, for an example."""
    names = (option.name for option in options_of(kind) if option.default is option.empty)
    return "".join(f"{word_of(kind, name)} N " for name in names if name not in _BUDGET)


def help_of(kind: type[dpvb.PrivateEstimator], text: str) -> str:
    """Return the description of a parameter for the command line: parameters become options, None is "not given"."""
    names = {*inspect.signature(kind).parameters, *inspect.signature(dpvb.Run).parameters}
    text = re.sub(r"`(\w+)`", lambda found: word_of(kind, found[1]) if found[1] in names else found[0], text)
    text = re.sub(r"\bNone \(default\)", "Not given", text)
    return text[:1].upper() + text[1:]


def word_of(kind: type[dpvb.PrivateEstimator], name: str) -> str:
    """Return the option of a parameter."""
    return f"--{kind._spelled.get(name, name).replace('_', '-')}"


def _plain(hint: Any) -> Any:
    """The type of the option of a parameter of some type; None: no command line can hold it."""
    if get_origin(hint) is tuple:
        return tuple[(str,) * len(get_args(hint))]  # type: ignore[misc]
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    members = tuple(str if get_origin(one) is Literal and int not in members else one for one in members)
    worded = int in members and any(one is str or get_origin(one) is Literal for one in members)
    plain: Any = str if _NUMBERS in members or worded else next((one for one in _PLAIN if one in members), None)
    return plain | None if plain is not None and NoneType in members else plain


def number_or_none(given: str | float) -> float | None:
    """A number, or None for the word; a default comes as a number."""
    return None if str(given).strip().lower() == "none" else float(given)


def value_of(name: str, value: Any, hint: Any) -> Any:
    """Parse the value of an option: labels; one number or several, or a word; the rest as it is."""
    if isinstance(value, str) and _NUMBERS in get_args(hint):
        try:
            numbers = tuple(map(float, value.split(",")))
        except ValueError:
            raise ParameterError(f"{name} must be a number, or numbers with commas between, got {value!r}.") from None
        return numbers if len(numbers) > 1 else numbers[0]
    if isinstance(value, str) and int in get_args(hint) and value.isdecimal():
        return int(value)
    return tuple(map(_label, value)) if isinstance(value, tuple) else value


def _label(text: str) -> str | float:
    try:
        number = float(text)
    except ValueError:
        return text
    if number != number:
        raise ParameterError(f"classes must be two labels, got {text!r}.")
    return int(number) if number.is_integer() else number
