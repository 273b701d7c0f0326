"""`dpvb sample`: data of nobody, for a first try."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from dpvb.cli import files
from dpvb.cli.root import app
from dpvb.cli.terminal import remark
from dpvb.guards.errors import ParameterError


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="Where the files go; a new folder, or one without such files.")],
) -> None:
    """Write made-up data to try all of this on: notes, a table with its schema, images, visits, a word list.

    They are the same at each call. Nobody is in them; the files whose names begin with public_ are for `dpvb evaluate`.
    What is there already is never replaced.

        dpvb sample first-try
    """
    from dpvb.sample import made_up

    files.check_folder(folder, "DIR")
    if there := [name for name in made_up.NAMES if os.path.lexists(folder / name)]:
        raise ParameterError(f"{str(folder)!r} holds {there[0]!r} already. Name a new folder.")
    made_up.write(folder)
    remark(f"{folder}: {', '.join(made_up.NAMES)}. Next: dpvb fit logistic --help, or dpvb docs, which prints pages.")
