"""What `pip install` brings, and how long a new process takes from `import dpvb` to a first small fit.

A wheel is made and installed without extras in an environment of its own, where everything runs. `--list` writes the
packages into docs/install.md, which tests_browser/test_core_install.py keeps.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
#: CPU seconds that a new process may take, compiled loops being on disk.
MOST = 2.5
_ROWS = "rng.uniform(0, 1, (300, 3))"
_NUMBERS = "low=0, high=1"
_DAYS = "[['rest', 'walk', 'rest', 'run']] * 200"
_MATRIX = "symbols=['rest', 'walk', 'run']"
#: A small fit of each kind that needs no extra: its parameters, and what it is fitted to.
FITS = {
    "BinomialRegression": (f"max_trials=9, {_NUMBERS}", f"{_ROWS}, rng.integers(0, 5, 300), trials=np.full(300, 5)"),
    "FactorAnalysis": (f"2, {_NUMBERS}", _ROWS),
    "GaussianHiddenMarkovModel": ("2, columns=['x', 'y'], low=0, high=1", "[rng.random((5, 2)) for _ in range(200)]"),
    "GaussianMixture": (f"2, {_NUMBERS}", _ROWS),
    "HiddenMarkovModel": (f"2, {_MATRIX}", _DAYS),
    "LDA": ("3, vocabulary=['cat', 'dog', 'mat', 'sat', 'ran']", "['the cat sat on a mat'] * 200"),
    "LinearDynamicalSystem": ("2, columns=['x', 'y'], low=0, high=1", "[rng.random((5, 2)) for _ in range(200)]"),
    "LinearRegression": (f"y_range=(0, 1), {_NUMBERS}", f"{_ROWS}, rng.random(300)"),
    "LogisticRegression": (_NUMBERS, f"{_ROWS}, rng.integers(0, 2, 300)"),
    "MarkovChain": (_MATRIX[len("symbols=") :], _DAYS),
    "Mixture": (
        "2",
        "dpvb.Table({'age': rng.uniform(0, 9, 300)}, dpvb.Schema((dpvb.data.Numeric('age', low=0, high=9),)))",
    ),
    "NaiveBayes": (
        "neighboring_relation='add_or_remove_one'",
        "dpvb.Table({'age': rng.uniform(0, 9, 300), 'ill': rng.integers(0, 2, 300)}, dpvb.Schema("
        "(dpvb.data.Numeric('age', low=0, high=9),), target=dpvb.data.Target('ill', classes=(0, 1))))",
    ),
    "NegativeBinomialRegression": (f"max_count=9, dispersion=1.0, {_NUMBERS}", f"{_ROWS}, rng.integers(0, 9, 300)"),
    "PCA": (f"2, {_NUMBERS}", _ROWS),
    "PoissonRegression": (f"max_count=9, {_NUMBERS}", f"{_ROWS}, rng.integers(0, 9, 300)"),
    "SigmoidBeliefNetwork": ("2", f"{_ROWS} < 0.5"),
}
_FIRST = """
import json, time, warnings
import dpvb
imported = time.process_time()
warnings.simplefilter("ignore")
import numpy as np
rng = np.random.default_rng(0)
model = dpvb.{name}({given}, epsilon=1.0, delta=1e-6).fit({data})
done = time.process_time()
assert 0.9 < model.privacy_.epsilon <= 1.0
print(json.dumps([imported, done]))
"""
_PACKAGES = """
import json
from importlib.metadata import distributions
sizes = {}
for one in distributions():
    files = {one.locate_file(file).resolve() for file in one.files or () if file.suffix != ".pyc"}
    sizes[one.metadata["Name"].lower()] = sum(file.stat().st_size for file in files if file.is_file()) / 2**20
print(json.dumps(sizes))
"""
#: What a new environment has before anything is installed in it.
_THERE = ("pip", "setuptools", "wheel")


def installed(folder: Path) -> Path:
    """The Python of a new environment in which a wheel of this tree is installed, without extras."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", folder / "dist", ROOT], check=True)
    subprocess.run([*pip, "install", *(folder / "dist").glob("dpvb-*.whl")], check=True)
    return python


def alone(python: Path, code: str, *told: str) -> subprocess.CompletedProcess[str]:
    """What a process of an environment says that sees nothing of this tree."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPVB"))}
    given = [python, "-I", "-c", code, *told]
    return subprocess.run(given, env=env, cwd="/", capture_output=True, text=True, check=False)


def packages(python: Path) -> dict[str, float]:
    """MiB of each installed package by name, without what every environment has."""
    sizes = json.loads(alone(python, _PACKAGES).stdout)
    return {name: size for name, size in sorted(sizes.items()) if name not in _THERE}


def first(python: Path, name: str) -> tuple[float, float]:
    """CPU seconds of a new process until `import dpvb` is done, and until a kind's first small fit is."""
    given, data = FITS[name]
    done = alone(python, _FIRST.format(name=name, given=given, data=data))
    assert done.returncode == 0, done.stderr
    imported, fitted = json.loads(done.stdout.splitlines()[-1])
    return imported, fitted


def listed(sizes: dict[str, float]) -> str:
    """The list of packages as Markdown."""
    rows = "".join(f"| {name} | {size:.1f} |\n" for name, size in sizes.items())
    total = f"{len(sizes)} packages, {sum(sizes.values()):.0f} MiB on disk, without files that Python compiles.\n\n"
    return f"{total}| package | MiB |\n|---|---|\n{rows}"


def on_page() -> tuple[set[str], float]:
    """The packages that docs/install.md lists, and the MiB that it says they take."""
    text = PAGE.read_text(encoding="utf-8")
    total = re.search(r"^\d+ packages, (\d+) MiB", text, re.MULTILINE)
    assert total is not None
    return set(re.findall(r"^\| (\S+) \| [\d.]+ \|$", text, re.MULTILINE)), float(total[1])


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        python = installed(Path(place) / "core")
        sizes = packages(python)
        if "--list" in sys.argv:
            before, after = PAGE.read_text(encoding="utf-8").split("<!-- packages -->\n")[::2]
            PAGE.write_text(f"{before}<!-- packages -->\n{listed(sizes)}<!-- packages -->\n{after}", encoding="utf-8")
            return
        print("## First fit\n")
        print(f"`pip install .` brings {len(sizes)} packages, {sum(sizes.values()):.0f} MiB (`docs/install.md`).\n")
        print(
            f"CPU seconds of a new process until its first small fit is done (asked: at most {MOST}). The first process"
        )
        print("after an installation compiles loops; they stay on disk for those that come later.\n")
        print("| kind | `import dpvb` | first process ever | a later new process |\n|---|---|---|---|")
        slow = 0
        for name in FITS:
            (_, once), (imported, later) = first(python, name), first(python, name)
            slow += later > MOST
            print(f"| {name} | {imported:.2f} | {once:.1f} | {later:.2f} |", flush=True)
    sys.exit(slow)


if __name__ == "__main__":
    main()
