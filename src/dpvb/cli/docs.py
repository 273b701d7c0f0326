"""`dpvb docs`: the pages, which travel with the package."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

import dpvb
from dpvb.cli.root import app
from dpvb.cli.terminal import echo, remark
from dpvb.guards.errors import ParameterError


def pages() -> dict[str, Path]:
    """Every page by its name, such as "glossary" or "how-to/priors": those of a wheel, or of the source's folder."""
    package = Path(dpvb.__file__).parent
    folder = next((there for there in (package / "docs", package.parents[1] / "docs") if there.is_dir()), package)
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}


@app.command()
def docs(page: Annotated[str | None, typer.Argument(help="Its name; left out: all names.")] = None) -> None:
    """Print a page of the documentation, or the names of all.

    dpvb docs how-to/tables
    """
    paths = pages()
    if page is None:
        for name, path in paths.items():
            echo(f"{name:34} {_title(path)}")
        remark("Next: dpvb docs NAME.")
        return
    asked = page.removeprefix("docs/").removesuffix(".md")
    # The last part of a name is enough where one page alone has it.
    able = [name for name in paths if name == asked] or [name for name in paths if name.split("/")[-1] == asked]
    if len(able) != 1:
        near = " or ".join(map(repr, able or get_close_matches(asked, paths, 1) or ["index"]))
        raise ParameterError(f"PAGE must be one of those that `dpvb docs` names, such as {near}, got {page!r}.")
    echo(paths[able[0]].read_text(encoding="utf-8").rstrip())


def _title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")
