"""Do the tests see the bugs that break privacy? Plant them one at a time and look.

Each bug is written above the test that must fail with it (`tests/planted.py`). The package is copied to a temporary
directory, in which all those tests must pass. Each bug is then planted in a copy of its own, in which its test must
fail. One row a bug, sorted by the way to fail that it stands for; the last line is `caught N of M`. The exit status is
1 if a bug escapes, 2 if the clean copy fails. As many bugs are tried at a time as there are processors.

    python benchmarks/planted_bugs.py [part of a bug's name ...]
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# In the place of this folder: its module `coverage` is not the one that Numba imports.
sys.path[0] = str(ROOT / "tests")

import pytest  # noqa: E402
from planted import PACKAGE, Bug, bugs  # noqa: E402

#: Tests start in forks of a process that has imported what most of them need: half the time of a test was imports.
IMPORTED = ["numpy", "scipy.stats", "scipy.optimize", "scipy.sparse", "numba", "sklearn.base", "mpmath", "pytest"]
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(IMPORTED)


def run(package: Path, tests: list[str], printed: Path) -> None:
    """Run tests against a copy of the package, in a process of its own, and exit with pytest's status."""
    with printed.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.path.insert(0, str(package.parent))
    os.environ["PYTHONPATH"] = str(package.parent)
    # Processes that tests start run the main module first: it is that of `python -m pytest`.
    sys.modules["__main__"] = import_module("pytest.__main__")
    import dpvb

    if Path(dpvb.__file__).resolve().parent != package.resolve():
        sys.exit(f"the tests would import {dpvb.__file__}, not the copy.")
    status = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests])
    sys.stdout.flush()
    # Without what runs at the end of a process: joblib would wait there for workers that wait for this process.
    os._exit(status)


def failure(package: Path, tests: list[str]) -> str:
    """Run tests against a copy of the package; return what they print if they fail, or nothing."""
    printed = package.with_name("printed.txt")
    process = PROCESSES.Process(target=run, args=(package, tests, printed))
    process.start()
    process.join()
    # 2 and 4: a bug stops the import of the tests' module, which makes models. The clean copy passes the same tests.
    if process.exitcode not in (0, 1, 2, 4):
        raise SystemExit(f"pytest ended with {process.exitcode} for {tests}:\n{printed.read_text()}")
    return printed.read_text() if process.exitcode else ""


def frozen(package: Path) -> set[str]:
    """Files that compiled loops import: Numba's cache does not see when they change, only when the loops do."""
    loops = [text for path in package.rglob("*.py") if "import compiled\n" in (text := path.read_text())]
    names = {name for text in loops for name in re.findall(r"^from dpvb\.([\w.]+) import", text, re.MULTILINE)}
    return {f"{name.replace('.', '/')}.py" for name in names}


def caught(bug: Bug, clean: Path) -> bool:
    """Plant a bug in a copy of the clean copy, with all that was compiled there, and say whether its test fails."""
    texts = bug.planted(clean)
    stale = ("*.nbi", "*.nbc") if frozen(clean) & texts.keys() else ()
    with tempfile.TemporaryDirectory(dir=clean.parent.parent) as name:
        package = Path(name) / clean.name
        shutil.copytree(clean, package, ignore=shutil.ignore_patterns(*stale))
        for file, text in texts.items():
            (package / file).write_text(text)
        return bool(failure(package, [bug.test]))


def main(wanted: list[str]) -> int:
    """Plant all bugs, or those whose names contain one of the given texts."""
    chosen = [bug for bug in bugs() if not wanted or any(text in bug.name for text in wanted)]
    start = time.perf_counter()
    at_a_time = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(at_a_time) as pool:
        clean = Path(name) / "clean" / PACKAGE.name
        shutil.copytree(PACKAGE, clean, ignore=shutil.ignore_patterns("__pycache__"))
        if text := failure(clean, list(dict.fromkeys(bug.test for bug in chosen))):
            print(f"{text}\nthe clean copy fails its tests")
            return 2
        print("## Planted bugs\n\n| | way to fail | bug |\n|---|---|---|", flush=True)
        count = 0
        for bug, seen in zip(chosen, pool.map(lambda bug: caught(bug, clean), chosen), strict=True):
            count += seen
            print(f"| {'caught' if seen else '**escaped**'} | {bug.failure} | {bug.name} |", flush=True)
    ways = len({bug.failure for bug in chosen})
    print(f"\nThe clean copy passes its tests. {ways} ways to fail, {time.perf_counter() - start:.0f} s.\n")
    print(f"caught {count} of {len(chosen)}")
    return 0 if count == len(chosen) else 1


if __name__ == "__main__":
    # As the tests do, before the process that is forked imports NumPy and Numba.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    sys.exit(main(sys.argv[1:]))
