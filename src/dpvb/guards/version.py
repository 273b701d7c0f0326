"""The version of this package.

A wheel has the file `built.txt` next to this module, with the version that it was built with. A source tree has the
development version of the next release, and its commit is read from git's own files.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

#: The next release; `setup/package_version.py` makes the version of a package of it.
NEXT = "0.4.0"

_HERE = Path(__file__).resolve()
_SHORT = 12


def _built() -> str:
    """Return the version of a wheel with its commit; empty in a source tree."""
    try:
        return _HERE.with_name("built.txt").read_text("ascii").strip()
    except OSError:
        return ""


#: The version, without a commit.
__version__ = _built().partition("+")[0] or f"{NEXT}.dev0"


def version_with_commit() -> str:
    """Return the version, with the commit where it is known: 0.4.0.dev17+g0123456789ab."""
    if built := _built():
        return built
    commit = ""
    with suppress(OSError, IndexError, UnicodeDecodeError):
        commit = _commit(_HERE.parents[3] / ".git")
    return f"{__version__}+g{commit[:_SHORT]}" if commit else __version__


def _commit(git: Path) -> str:
    """Return the commit that a repository is at."""
    if git.is_file():  # A worktree names the folder of its own HEAD.
        git = (git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
    head = (git / "HEAD").read_text("utf-8").strip()
    if not head.startswith("ref:"):
        return head
    name, common = head.removeprefix("ref:").strip(), git / "commondir"
    shared = git / common.read_text("utf-8").strip() if common.exists() else git
    with suppress(OSError):
        return (shared / name).read_text("utf-8").strip()
    lines = (shared / "packed-refs").read_text("utf-8").splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
