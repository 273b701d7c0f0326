"""Output of the command line: tables, remarks and a progress bar."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from dpvb.cli import log
from dpvb.guards.untrusted import printable

if TYPE_CHECKING:
    from rich.console import Console

    from dpvb.core.plan import Plan


def new_console(*, stderr: bool = False) -> Console:
    """Return a console that prints text unchanged."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # `Commands` handles it for all output.

    return Plain(stderr=stderr, highlight=False, markup=False)


def print_table(
    title: str, columns: list[str], rows: list[list[str]], *, numbers: tuple[int, ...] | None = None
) -> None:
    """Print a table; the columns `numbers` (None: all except the first) are right-aligned."""
    from dpvb.results.figures import aligned

    right = range(1, len(columns)) if numbers is None else numbers
    head, *lines = aligned([columns, *rows], right)
    echo("\n".join(["", *([title] if title else []), head, "-" * len(head), *lines]))


def is_terminal(*streams: TextIO | None) -> bool:
    """Whether all of these streams are terminals; a process may lack a stream."""
    return all(stream is not None and stream.isatty() for stream in streams)


def echo(text: str, *, err: bool = False) -> None:
    """Print lines, with control characters of untrusted texts removed."""
    import typer

    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)


def as_json(facts: Any, *, ensure_ascii: bool = True) -> str:
    """Return plain values as JSON, with escapes for characters that are not printable."""
    text = json.dumps(facts, indent=2, allow_nan=False, ensure_ascii=ensure_ascii)
    return "".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text)


def print_json(facts: Any, *, ensure_ascii: bool = True) -> None:
    """Print plain values as JSON on standard output."""
    echo(as_json(facts, ensure_ascii=ensure_ascii))


def spent(model: Any) -> str:
    """Return the budget of a fit and the number of included units, in words."""
    from dpvb.accounting.methods import rounded_up

    if not math.isfinite(model.epsilon):
        return "public data, no privacy claimed" if model.privacy_.published else "NO PRIVACY"
    statement = model.privacy_
    counted = "" if statement.counts is None or statement.dry_run else f"; {statement.counts.say(statement.unit)}"
    return f"epsilon = {rounded_up(statement.epsilon)} at delta = {model.delta:g}{counted}"


def remark(text: str, *, level: str = "info") -> None:
    """Print a line on standard error, and append it to the log of the command, if there is one."""
    log.write("message", level=level, message=printable(text))
    echo(printable(text), err=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on standard error."""
    with new_console(stderr=True).status(what):
        yield


@contextmanager
def progress_bar(*, quiet: bool = False, label: str = "fit") -> Iterator[Callable[[int, Plan], None]]:
    """Show a bar of the releases of a run, whose number is public.

    Args:
        quiet: Whether steps go to the log only.
        label: Name of the run.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = new_console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=console)
    waiting = console.status(f"{label}: noise and first step")
    task = bar.add_task(label, total=None)

    def tell(step: int, plan: Plan) -> None:
        log.write("step", step=step, of=len(plan))
        if not quiet:
            waiting.stop()
            bar.start()
            bar.update(task, total=len(plan), completed=step)

    try:
        if not quiet:
            waiting.start()
        yield tell
    finally:
        waiting.stop()
        if bar.live.is_started:
            bar.stop()
