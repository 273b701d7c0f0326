"""The current folder may be that of somebody's data: no dependency takes settings, code or caches from there."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.data import Numeric, Target

# Every file that a dependency, or a part of Python, looks for in a folder which it takes for the current one: settings,
# environments, modules by the names of those that a fit imports, and what is read from a home or a system folder.
SETTINGS = {
    ".numba_config.yaml": "cache_dir: cache\ndisable_jit: 1\nnum_threads: 100000\n",
    "matplotlibrc": "svg.fonttype: none\n",
    "arvizrc": "data.index_origin: 1\n",
    **dict.fromkeys(("dask.yaml", "distributed.yaml", "dask/dask.yaml", ".config/dask/dask.yaml"), "a: 1\n"),
    **dict.fromkeys((".env", ".flaskenv", ".netrc", ".pgpass", "pg_service.conf", ".pg_service.conf"), "A=1\n"),
    **dict.fromkeys(("pyvenv.cfg", "setup.cfg", "tox.ini", "alembic.ini", "pyproject.toml", "logging.conf"), ""),
    **dict.fromkeys(("openssl.cnf", "fonts.conf", "je_malloc.conf", ".sqliterc", ".inputrc", ".pdbrc"), ""),
    **dict.fromkeys(("python311._pth", "python._pth", "evil.pth", ".pythonrc.py", "config.toml"), ""),
    **dict.fromkeys(("ipython_config.py", "jupyter_config.py", "conftest.py", "jax_plugins/evil.py"), ""),
}
# From where no module comes, whether it is imported early or late.
MODULES = (
    "sitecustomize",
    "usercustomize",
    "dpvb",
    "numpy",
    "numba",
    "yaml",
    "typer",
    "click",
    "rich",
    "scipy",
    "json",
)
COMMAND = [str(Path(sys.executable).with_name("dpvb")), "fit", "logistic", "people.csv", "--schema", "people.json"]
COMMAND += ["--epsilon", "1", "--delta", "1e-5", "--out", "people.dpvb", "--quiet"]

DRAW = """
import os, sys
import dpvb
from dpvb.guards.imports import import_numba
from dpvb.results import plots
model = dpvb.load("people.dpvb")
plots.save("people.svg", [model.coefficients()], "people")
model.to_arviz()
import arviz_base
assert arviz_base.rcParams["data.index_origin"] == 0
assert "<text" not in open("people.svg").read(), "matplotlibrc"
numba = import_numba()
assert numba.njit(lambda x: x + 1)(1) == 2  # It looks at its settings anew.
assert not numba.config.DISABLE_JIT and not numba.config.CACHE_DIR
import yaml  # It is there again.
assert not {"", ".", os.getcwd()}.intersection(sys.path)
"""

NUMBA_FIRST = """
import numba
import dpvb
from dpvb.errors import ParameterError
ledger = dpvb.Ledger("../budget.db")
ledger.register("a", unit="row", neighboring_relation="add_or_remove_one", epsilon=3, delta=1e-4)
model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, low=0, high=1, n_steps=2)
try:
    model.fit([[0.5]], [1], run=dpvb.Run(ledger=ledger, dataset="a"))
except ParameterError as error:
    print(error)
print(ledger.remaining("a").num_charges)
"""


def hostile(folder: Path) -> list[Path]:
    """Fill a folder with rows to fit, and with what strangers would like a fit to take."""
    rows = np.random.default_rng(0).random(50)
    (folder / "people.csv").write_text("x,ill\n" + "".join(f"{x},{int(x > 0.5)}\n" for x in rows))
    schema = dpvb.Schema([Numeric("x", 0, 1)], target=Target("ill", kind="logistic", classes=[0, 1]))
    schema.save(folder / "people.json")
    planted = []
    code = "import os\nos._exit(3)\n"
    for name, text in {**SETTINGS, **{f"{name}.py": code for name in MODULES}}.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        os.utime(place, (1, 2))  # Read before it was written: the next read is noted, with "relatime", too.
        planted.append(place)
    return planted


def environment(home: Path) -> dict[str, str]:
    """Of somebody who has set nothing but where this package lies."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "PYTHON", "MPL", "XDG"))}
    return kept | {"HOME": str(home), "MPLBACKEND": "agg", "PYTHONPATH": str(Path(dpvb.__file__).parents[1])}


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(folder.parent), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def were_read(planted: list[Path]) -> list[str]:
    return [place.name for place in planted if place.stat().st_atime != 1]


@pytest.mark.guarantees("dependencies")
@kills("names", "pictures and exports take settings from the folder of the data")
@edit("guards/imports.py", "place: Any = chdir(sys.prefix)", "place: Any = nullcontext()")
@kills("names", "numba takes settings, and with them code, from the folder of the data")
@edit("guards/imports.py", '            sys.modules["yaml"] = None  # type', "            pass  # type")
@pytest.mark.skipif(os.name != "posix", reason="looks at when files were read")
def test_no_dependency_takes_settings_or_code_from_the_current_folder(tmp_path: Path) -> None:
    """The installed program, a worker of its own, pictures and exports; not one planted file is read, by anybody."""
    folder = tmp_path / "data"
    folder.mkdir()
    planted = hostile(folder)
    run([*COMMAND, "--cluster", "local:1"], folder)
    run([sys.executable, "-P", "-c", DRAW], folder)
    assert not (folder / "cache").exists()
    assert were_read(planted) == []
    # The test sees what is read: numba by itself reads its settings, and Python its own.
    seen = subprocess.run(
        [sys.executable, "-P", "-c", "import numba"], cwd=folder, env=environment(tmp_path), check=False
    )
    assert seen.returncode == 0
    probe = tmp_path / "probe"
    probe.touch()
    os.utime(probe, (1, 2))
    probe.read_bytes()
    if find_spec("yaml") and were_read([probe]):  # A disk may be mounted so that it notes no reads.
        assert were_read(planted) == [".numba_config.yaml"]


@pytest.mark.guarantees("dependencies")
@kills("names", "settings of numba that were taken before dpvb was imported")
@edit("runs/run.py", "    check_numba()\n", "")
def test_where_numba_was_imported_first_its_settings_in_the_current_folder_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    call = [sys.executable, "-P", "-c", NUMBA_FIRST]
    (folder / ".numba_config.yaml").write_text("opt: 3\n")
    said, charges = run(call, folder).splitlines()
    assert ".numba_config.yaml" in said
    assert "Nothing was charged" in said
    assert charges == "0"
