"""The program itself: its help, its error line, and the group of `fit` commands."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpvb.cli.terminal import echo, remark
from dpvb.errors import DpvbError
from dpvb.version import __version__

#: Parameters of the library that are options here, and those whose option has another name.
_PARAMETERS = (
    *("batch_size", "checkpoint", "classes", "clip", "covariance", "dataset", "delta", "dispersion"),
    *("document_length", "epsilon", "file_format", "form", "group", "group_column", "hidden"),
    *("intercept_value", "ledger", "level", "max_count", "max_trials", "n_components", "neighboring_relation"),
    *("noise_multiplier", "num_examples", "num_steps", "random_state", "resume", "row_norm", "sampling_prob"),
    *("solver", "swap_ratio", "text_column", "threshold", "token_pattern", "vocabulary", "width"),
)
_RENAMED = {"n_components": "topics", "file_format": "format", "random_state": "seed"}


class _Commands(TyperGroup):
    """Turns an error into one line and exit code 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DpvbError as error:
            message = _with_options(" ".join(str(error).split()))
        except (OSError, ImportError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            message = f"{reason or type(error).__name__}: {getattr(error, 'filename', None) or 'this command'}."
        except MemoryError:
            message = "not enough memory."
        except Exception as error:
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                raise  # The command line parser's own.
            # The text of an error that nobody foresaw may quote a private document.
            place = traceback.extract_tb(error.__traceback__)[-1]
            message = (
                f"unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; please report it."
            )
        remark(f"error: {message}")
        raise typer.Exit(2)


app = typer.Typer(
    name="dpvb",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Private models: fit topics, regressions and belief networks so that no single row shows in them.

    A first session:

        dpvb plan --epsilon 1 --delta 1e-5

        dpvb fit lda notes.csv --vocabulary words.txt --topics 50 --epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb topics notes.dpvb

        dpvb show notes.dpvb

    A regression of a table takes a schema, what is public about its columns; `dpvb schema` prints one to start from:

        dpvb fit logistic people.csv --schema people.json --epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb coef people.dpvb

    `dpvb demo` shows it all on Wikipedia articles. `dpvb COMMAND --help` explains a command.""",
)
fit = typer.Typer(no_args_is_help=True, help="Fit a private model; `dpvb fit lda --help` explains one of them.")
app.add_typer(fit, name="fit")


def _print_version(asked: bool) -> None:
    if asked:
        echo(__version__)
        raise typer.Exit


@app.callback()
def _no_command(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _with_options(message: str) -> str:
    """An error of the library in the words of the command line: parameters become options."""
    names = "|".join(_PARAMETERS)

    def option(match: re.Match[str]) -> str:
        name = match.group("argument") or match.group("subject")
        return f"--{_RENAMED.get(name, name).replace('_', '-')}"

    argument = rf"(?<![\w.(])(?P<argument>{names})=(?=[\s,.:;)]|$)"
    subject = rf"^(?P<subject>{names})(?= must | needs | = )"
    return re.sub(f"{argument}|{subject}", option, message)
