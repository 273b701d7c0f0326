"""`dpvb runs`: list the runs of this user, show the record of one, and remove folders of runs that have ended."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpvb.cli import options
from dpvb.cli.root import Commands, app
from dpvb.cli.terminal import echo, print_json, print_table, remark
from dpvb.guards.errors import CheckpointError, ParameterError, check_number

if TYPE_CHECKING:
    from dpvb.runs.record import RunRecord

runs = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""List the runs of this user that a ledger recorded, and remove folders of runs that have ended.

    Each run has a private record under `$XDG_STATE_HOME/dpvb/runs`, which its run id finds:

        dpvb runs list

        dpvb runs clean --older-than 30""",
)
app.add_typer(runs, name="runs")

# A month: a scheduler's weekly or monthly job has read the model by then.
_DAYS = 30.0


@runs.command("list")
def list_runs(as_json: options.Json = False) -> None:
    """List the runs of this user, without facts of their files.

    A run is open, so that the same command resumes it, or it has finished, or it was abandoned. The column "folder" has
    the checkpoint, if the folder still exists.

        dpvb runs list
    """
    from dpvb.runs.record import records

    listed = records()
    if as_json:
        print_json([{name: value for name, value in one.to_dict().items() if name != "files"} for one in listed])
        return
    rows = [[one.run, one.began, one.state, one.dataset, one.model, _folder_of(one)] for one in listed]
    print_table("", ["run", "began (UTC)", "state", "data set", "model", "folder"], rows, numbers=())


@runs.command("show")
def show_run(run: Annotated[str, typer.Argument(help="Run id, as in a privacy statement.")]) -> None:
    """Print the private record of a run as JSON: file names, sizes, times and keyed digests.

    These are exact facts of private data. Only people who may open the data may read the record.

        dpvb runs show 0123456789abcdef0123456789abcdef
    """
    from dpvb.runs.record import record_of

    record = record_of(run)
    if record is None:
        raise ParameterError(f"RUN must be a run of this user, got {run!r}. `dpvb runs list` lists all runs.")
    remark("warning: this record describes private files without noise. Do not publish it.", level="warning")
    print_json(record.to_dict())


@runs.command()
def clean(
    older_than: Annotated[float, typer.Option(help="Days since the end of a run.")] = _DAYS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the folders.")] = False,
) -> None:
    """Remove checkpoint folders of runs that have ended. Records, models and ledgers are kept.

    A folder of an open run is never removed. After the removal, `--resume load` can no longer restore the model.

        dpvb runs clean --older-than 30
    """
    from dpvb.runs.checkpoint import Checkpoint
    from dpvb.runs.record import records

    days = check_number("older_than", older_than, low=0, high=1e5)
    before = (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="seconds")
    removed = left = 0
    for one in records():
        folder = _folder_of(one)
        if not folder or one.ended is None or one.ended > before:
            left += bool(folder)
            continue
        try:
            checkpoint = Checkpoint(folder)
            if (manifest := checkpoint.manifest()) is None or manifest["run"] != one.run:
                continue  # Another run is in the folder by now.
            if not dry_run:
                checkpoint.remove()
        except CheckpointError as error:
            remark(f"warning: {error}", level="warning")
            left += 1
            continue
        removed += 1
        echo(folder)
    echo(f"{removed} folders {'would be ' * dry_run}removed, {left} kept.")


def _folder_of(record: RunRecord) -> str:
    """Return the checkpoint of a run; empty where there is none, or it is gone."""
    return record.checkpoint if record.checkpoint is not None and Path(record.checkpoint).is_dir() else ""
