"""Run the blocks of pages, and write what they print below them: `python setup/outputs.py docs/tutorials/*.md`.

A `text` block directly below a `python` or `sh` block has its standard output. To ask for it, write an empty `text`
block. Numbers depend on random starts and on the machine: for README.md and the tutorials, `tests/laws/test_site.py`
compares all but the numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import types
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^(?P<indent> *)(?:<!-- first:\n(?P<first>.*?)^-->|```(?P<kind>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<code>.*?)^(?P=indent)```)$",
    re.DOTALL | re.MULTILINE,
)
#: Lines for the folder of the source; all others are for a folder of the reader's own.
OF_THE_SOURCE = ("make ", "python3 -m pip ", "pip install ")
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


class Output(NamedTuple):
    """A `text` block of a page: its place, what the page has there, and what its program printed."""

    start: int
    end: int
    written: str
    printed: str


def form(text: str) -> Counter[str]:
    """Return how often an output has each word, with every number as `#`: all that is the same in every run."""
    return Counter(re.findall(r"[^\W\d_][\w.-]*|#", NUMBER.sub(" # ", text)))


def repeatable_noise() -> contextlib.AbstractContextManager[object]:
    """Replace the fresh keys of private noise in this process, so that an output changes only if the program does."""
    from dpvb.core.noise import SecureNoise

    numbers = itertools.count()
    return patch.object(SecureNoise, "_fresh_key", lambda _: hashlib.sha256(b"%d" % next(numbers)).digest())


def run(text: str, name: str, replaced: Callable[[str], str] = str) -> list[Output]:
    """Run the blocks of a page in the current folder, in their order, and return its outputs.

    A `python` block is run in the page's own namespace, a `sh` block line by line. A block with a title is written to
    the file of that name.

    Args:
        text: the page.
        name: its name, for error messages.
        replaced: what a block becomes before it is run, for example with another address.
    """
    module = sys.modules["page"] = types.ModuleType("page")  # Classes of a page are looked for in it.
    outputs: list[Output] = []
    found, noise = [*BLOCK.finditer(text)], repeatable_noise()
    for block, below in zip(found, [*found[1:], None], strict=True):
        kind = "python" if block["code"] is None else block["kind"]
        code = replaced(textwrap.dedent(block["first"] if block["code"] is None else block["code"]))
        if block["title"]:
            Path(block["title"]).write_text(code, encoding="utf-8")
            continue
        printed = io.StringIO()
        if kind == "python":
            with contextlib.redirect_stdout(printed), noise:
                exec(compile(code, f"<{name}>", "exec"), module.__dict__)
        elif kind == "sh":
            for line in lines_of(code):
                if line.startswith("cd "):
                    os.chdir(shlex.split(line, comments=True)[1])
                elif not line.startswith(OF_THE_SOURCE):
                    with noise:
                        printed.write(command(line, Path.cwd()))
        else:
            continue
        is_output = below is not None and below["kind"] == "text" and not text[block.end() : below.start()].strip()
        if below is not None and is_output:
            shown = printed.getvalue().replace(f"{Path.cwd()}{os.sep}", "").strip("\n")
            lines = "".join(f"{line.rstrip()}\n" for line in shown.splitlines())
            outputs.append(Output(below.start("code"), below.end("code"), textwrap.dedent(below["code"]), lines))
    return outputs


def command(line: str, folder: Path) -> str:
    """Return what one line of a shell prints; `dpvb` is called in this process, which has loaded what it needs."""
    from dpvb.cli import app

    if line.startswith("dpvb check-data"):  # It runs only on a terminal, with a typed yes.
        line = f"printf 'yes\\n' | script -qec {shlex.quote(line)} /dev/null"
    if line.startswith("dpvb ") and not re.search(r"[|<>&]", line):
        done = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, (line, done.stdout[-2000:], done.stderr[-2000:], done.exception)
        return done.stdout
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": source},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, (line, ran.stdout[-2000:], ran.stderr[-2000:])
    return ran.stdout


def lines_of(code: str) -> list[str]:
    """Lines of a shell; one that ends in `&` goes on in the next, so that what it has begun is waited for."""
    joined = re.sub(r"&( +#.*)?\n", "& ", code.replace("\\\n", ""))
    lines = [line.strip() for line in joined.splitlines()]
    return [f"{line} wait" if line.endswith("&") else line for line in lines if line and line[0] != "#"]


def main() -> None:
    """Write the outputs of the pages that are named."""
    from dpvb import sample

    os.environ["MPLBACKEND"] = "agg"
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            os.environ["XDG_STATE_HOME"] = folder
            sys.path.insert(0, folder)
            sample.write(Path(folder))
            outputs = run(text, page.name)
        for output in reversed(outputs):
            text = text[: output.start] + output.printed + text[output.end :]
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
