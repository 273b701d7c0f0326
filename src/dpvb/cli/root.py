"""The program itself: its help, and its error line."""

from __future__ import annotations

import errno
import io
import re
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dpvb.cli import log
from dpvb.cli.terminal import echo, is_terminal, remark
from dpvb.guards.errors import (
    BudgetError,
    DataFormatError,
    DpvbError,
    DpvbWarning,
    LedgerUnreachableError,
    RunCompletedError,
    reason_of,
)
from dpvb.guards.imports import import_own
from dpvb.guards.version import version_with_commit

# As a shell reports a program whose output is not read any more.
_UNREAD = 128 + 13


class ExitCode(IntEnum):
    """How a command ended, for programs that start it; a signal gives 128 and its number."""

    DONE = 0
    FAILED = 2
    OVER_BUDGET = 3
    LEDGER_UNREACHABLE = 4
    DATA_UNREADABLE = 5
    RESUMABLE = 6
    COMPLETED = 7
    OUT_OF_MEMORY = 8
    DISK_FULL = 9


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of an error: that of its cause, or else whether the same command resumes."""
    chain: BaseException | None = error
    while chain is not None:
        is_full = isinstance(chain, OSError) and chain.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        if is_full or getattr(chain, "sqlite_errorname", "") == "SQLITE_FULL":
            return ExitCode.DISK_FULL
        is_short = isinstance(chain, OSError) and (chain.errno == errno.ENOMEM or _NO_ROOM in str(chain))
        if is_short or isinstance(chain, MemoryError):
            return ExitCode.OUT_OF_MEMORY
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    from dpvb.runs.journal import AGAIN

    notes = getattr(error, "__notes__", [])
    return ExitCode.RESUMABLE if any(note.endswith(AGAIN) for note in notes) else ExitCode.FAILED


# Message of the C library's loader if a library finds no room in memory; such an error has no number.
_NO_ROOM = "failed to map segment from shared object"
_CODES: dict[type[BaseException], ExitCode] = {
    BudgetError: ExitCode.OVER_BUDGET,
    LedgerUnreachableError: ExitCode.LEDGER_UNREACHABLE,
    DataFormatError: ExitCode.DATA_UNREADABLE,
    RunCompletedError: ExitCode.COMPLETED,
    MemoryError: ExitCode.OUT_OF_MEMORY,
}
_EXIT_CODES = (
    "Exit codes: 0 done, 2 wrong usage or another error, 3 over the cap, 4 ledger unreachable, 5 data unreadable, "
    "6 interrupted and resumable, 7 completed already, 8 out of memory, 9 disk full; 128 + N after signal N."
)
# The signal that ended a command.
_signal = signal.SIGINT


class Commands(TyperGroup):
    """Turns an error into one line, in the words of the command that was called, and an exit code.

    For Ctrl-C and SIGTERM one line states the cost; a pipe that is closed at its other end, as `| head` does, is not
    an error.
    """

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Parse the options of the program, and keep its words.

        Raises:
            typer.Exit: after a mistake in them.
        """
        if parent is None:
            log.words = tuple(args)
            # Whatever the terminal cannot show is a question mark there; --help is printed while options are parsed.
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(errors="replace")
        try:
            return super().make_context(info_name, args, parent=parent, **extra)
        except Exception as error:
            _check_usage(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Call a command.

        Raises:
            typer.Exit: with an `ExitCode` after an error; 128 and the number of a signal; 141, if the output is closed.
        """
        if ctx.parent is not None:
            return self._told(ctx)
        with log.ended(), _terminable():
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
        except (DpvbError, MemoryError) as error:
            # The ledger adds its notes to an error in a fit.
            words = [str(error) if isinstance(error, DpvbError) else "not enough memory.", *_notes(error)]
            message, code = self._with_options(ctx, " ".join(" ".join(words).split())), exit_code_of(error)
        except KeyboardInterrupt as error:
            remark(self._with_options(ctx, " ".join(_notes(error) or ["Stopped."])), level="warning")
            code = exit_code_of(error)
            raise typer.Exit(128 + _signal if code is ExitCode.FAILED else code) from None
        except BrokenPipeError as error:
            if not _is_read():
                raise typer.Exit(_UNREAD) from None
            message, code = f"{error.strerror or 'broken pipe'}: this command.", ExitCode.FAILED
        except (OSError, ImportError) as error:
            reason, code = reason_of(error) if isinstance(error, OSError) else str(error), exit_code_of(error)
            message = f"{reason or type(error).__name__}: {getattr(error, 'filename', None) or 'this command'}."
            message = "not enough memory." if code is ExitCode.OUT_OF_MEMORY else message
            message = " ".join([message, *_notes(error)])
        except Exception as error:
            if isinstance(error, typer.Abort) or hasattr(error, "exit_code"):
                _check_usage(error)
                raise  # The command line parser's own.
            # The text of an unexpected error may quote a private document.
            place = traceback.extract_tb(error.__traceback__)[-1]
            message = (
                f"unexpected {type(error).__name__} at {Path(place.filename).name}:{place.lineno}; please report it."
            )
            code = exit_code_of(error)
        remark(f"error: {message}", level="error")
        raise typer.Exit(code)

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


def _check_usage(error: Any) -> None:
    """Print a mistake of usage as one line where no terminal shows it.

    Raises:
        typer.Exit: after that line.
    """
    asks_help = type(error).__name__ == "NoArgsIsHelpError"
    if hasattr(error, "format_message") and not asks_help and not is_terminal(sys.stderr):
        remark(f"error: {' '.join(error.format_message().split())}", level="error")
        raise typer.Exit(error.exit_code) from None


def _notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM, with which a scheduler ends a command, end it as Ctrl-C does."""
    global _signal
    _signal = signal.SIGINT
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: object) -> None:
        global _signal
        _signal = signal.Signals(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _is_read() -> bool:
    """Return whether this program prints to a terminal."""
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
    epilog=_EXIT_CODES,
)


def _print_version(asked: bool) -> None:
    if asked:
        echo(version_with_commit())
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
        bool,
        typer.Option("--version", help="Print the version and the commit.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    for module in modules or ():
        import_own(module)
