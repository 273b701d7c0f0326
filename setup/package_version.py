"""The version of a package that is built, as hatchling asks for it.

A commit with the tag vNEXT has the version NEXT of `src/dpvb/guards/version.py`. Any other commit has a development
version, which counts commits: `pip install` of a newer wheel upgrades. A tree without git, as from a source
distribution, has the version that the distribution states.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NEXT = re.compile(r'^NEXT = "([0-9.]+)"$', re.MULTILINE)
_STATED = re.compile(r"^Version: (\S+)$", re.MULTILINE)


def package_version(root: Path = ROOT) -> str:
    """Return the version of a source tree."""
    found = _NEXT.search((root / "src" / "dpvb" / "guards" / "version.py").read_text("utf-8"))
    assert found is not None, "src/dpvb/guards/version.py names no next version"
    stated = root / "PKG-INFO"
    if stated.exists() and (line := _STATED.search(stated.read_text("utf-8"))):
        return line[1]
    try:
        count, commit, tags = (
            _git(root, *words)
            for words in (
                ("rev-list", "--count", "HEAD"),
                ("rev-parse", "--short=12", "HEAD"),
                ("tag", "--points-at", "HEAD"),
            )
        )
    except (OSError, subprocess.CalledProcessError):
        return f"{found[1]}.dev0"
    return found[1] if f"v{found[1]}" in tags.split() else f"{found[1]}.dev{count}+g{commit}"


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", root, *words], capture_output=True, check=True, text=True)
    return done.stdout.strip()
