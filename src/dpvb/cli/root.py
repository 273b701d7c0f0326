"""The program itself: its help, and its error line."""

from __future__ import annotations

import io
import re
import select
import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpvb.cli import log
from dpvb.cli.terminal import echo, remark
from dpvb.guards.errors import DpvbError, DpvbWarning, reason_of
from dpvb.guards.imports import import_own
from dpvb.guards.version import __version__

# As a shell says it of a program that Ctrl-C has stopped, and of one whose output nobody reads any more.
_STOPPED, _UNREAD = 128 + 2, 128 + 13


class Commands(TyperGroup):
    """Turns an error into one line, in the words of the command that was called, and exit code 2.

    Of Ctrl-C one line says what it cost; a pipe that is closed at its other end, as `| head` does, is not an error.
    """

    def invoke(self, ctx: Any) -> Any:
        """Call a command.

        Raises:
            typer.Exit: with code 2, after an error; 130, after Ctrl-C; 141, where nobody reads on.
        """
        if ctx.parent is not None:
            return self._told(ctx)
        with log.ended():
            return self._told(ctx)

    def _told(self, ctx: Any) -> Any:
        """Call a command, and say in a line what ended it."""

        def show(message: Warning | str, category: type[Warning], *place: Any, **named: Any) -> None:
            words = str(message)
            told = self._with_options(ctx, words) if issubclass(category, DpvbWarning) else words
            remark(f"warning: {told}", level="warning")

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always", DpvbWarning)
                warnings.showwarning = show
                return super().invoke(ctx)
        except DpvbError as error:
            words = [str(error), *getattr(error, "__notes__", [])]  # What the ledger adds to an error in a fit.
            message = self._with_options(ctx, " ".join(" ".join(words).split()))
        except KeyboardInterrupt as error:
            remark(self._with_options(ctx, " ".join(getattr(error, "__notes__", ["Stopped."]))), level="warning")
            raise typer.Exit(_STOPPED) from None
        except BrokenPipeError as error:
            if not _is_read():
                raise typer.Exit(_UNREAD) from None
            message = f"{error.strerror or 'broken pipe'}: this command."
        except (OSError, ImportError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else str(error)
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
        remark(f"error: {message}", level="error")
        raise typer.Exit(2)

    def _with_options(self, ctx: Any, message: str) -> str:
        """An error of the library in which the parameters of the command become its options."""
        command = self.get_command(ctx, ctx.invoked_subcommand or "")
        known = [] if command is None else [p for p in command.params if p.param_type_name == "option"]
        word = {parameter.name: parameter.opts[0] for parameter in known}
        names = "|".join(map(str, word)) or "(?!)"
        argument = rf"(?<![\w.(])(?P<argument>{names})=(?=[\s,:;)]|\.(?!\.)|$)"
        subject = rf"^(?P<subject>{names})(?= must | needs | = )"
        message = re.sub(rf"(?<![\w.(])({names})='", lambda match: f"{word[match[1]]} '", message)
        return re.sub(f"{argument}|{subject}", lambda match: word[match["argument"] or match["subject"]], message)


def _is_read() -> bool:
    """Whether somebody is at the other end of what this program prints."""
    if sys.platform == "win32":
        return False
    ends = select.poll()
    for printed in (1, 2):
        ends.register(printed, 0)
    return not any(event & (select.POLLERR | select.POLLHUP) for _, event in ends.poll(0))


app = typer.Typer(
    name="dpvb",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""Fit Bayesian models of texts, tables, sequences and images under (ε, δ)-differential privacy.

    A first session, on synthetic data:

        dpvb example-data first-try && cd first-try

        dpvb plan lda --n-units 2000 --width 40 --topics 4 --epsilon 1 --delta 1e-5

        dpvb fit lda notes --vocabulary words.txt --topics 4 --epsilon 1 --delta 1e-5 --out notes.dpvb

        dpvb show notes.dpvb --what topics

        dpvb show notes.dpvb

    A regression of a table needs a schema, which declares the public ranges and categories of its columns. `dpvb
    schema` prints an example:

        dpvb fit logistic people.csv --schema people.json --epsilon 1 --delta 1e-5 --out people.dpvb

        dpvb show people.dpvb --what coefficients

    `dpvb demo` compares fits with and without privacy on Wikipedia articles. `dpvb COMMAND --help` explains a
    command.""",
)


def _print_version(asked: bool) -> None:
    if asked:
        echo(__version__)
        raise typer.Exit


@app.callback()
def _no_command(
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import",
            metavar="MODULE",
            help="Import a module with your own models, which the command can then name as MODULE:CLASS: an "
            "installed module, or MODULE.py in this folder. No data or model file can cause an import. Give it before "
            "the command; may be repeated.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    # Whatever the terminal cannot show is a question mark there.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    for module in modules or ():
        import_own(module)
