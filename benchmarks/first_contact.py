"""What a first user types, from the source to a table of coefficients, with the installed command line alone.

A wheel is made and installed in an environment of its own; then each command is a process in an empty folder. DPVB_DATA
names the folder with stroke/healthcare-dataset-stroke-data.csv, a published table; without it there is the made-up one.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = "stroke/healthcare-dataset-stroke-data.csv"
MOST = 5
#: What the page of the published table says of its columns: this much is typed in an editor.
STROKE = {
    "columns": [
        {"kind": "categorical", "name": "gender", "categories": ["Male", "Female"]},
        {"kind": "numeric", "name": "age", "low": 0, "high": 100},
        {"kind": "binary", "name": "hypertension", "values": [0, 1]},
        {"kind": "binary", "name": "heart_disease", "values": [0, 1]},
        {"kind": "binary", "name": "ever_married", "values": ["No", "Yes"]},
        {"kind": "binary", "name": "Residence_type", "values": ["Rural", "Urban"]},
        {"kind": "numeric", "name": "avg_glucose_level", "low": 50, "high": 300},
        {"kind": "numeric", "name": "bmi", "low": 10, "high": 60, "missing": 28},
    ],
    "target": {"name": "stroke", "classes": [0, 1]},
}


def typed(table: str, name: str) -> list[str]:
    """From a table and its schema to coefficients."""
    return [
        f"dpvb schema {name}.json",
        f"dpvb fit logistic {table} --schema {name}.json --epsilon 1 --delta 1e-5 --out {name}.dpvb",
        f"dpvb coef {name}.dpvb",
    ]


def run(line: str, folder: Path, programs: Path) -> tuple[float, int, str]:
    """Seconds, exit code and output of a line of a shell, in which nothing of this tree is to be found."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPVB"))}
    env |= {"PATH": f"{programs}{os.pathsep}{env['PATH']}", "XDG_STATE_HOME": str(folder / "state")}
    start = time.perf_counter()
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return time.perf_counter() - start, done.returncode, done.stdout


def journey(title: str, lines: list[str], folder: Path, programs: Path) -> bool:
    """Print the table of a journey; whether it ended with coefficients, in few enough commands."""
    print(f"{title}: {len(lines)} commands (asked: {MOST} at most).\n")
    print("| typed | s | exit code |\n|---|---|---|")
    codes, said = [], ""
    for line in lines:
        seconds, code, said = run(line, folder, programs)
        codes.append(code)
        print(f"| `{line}` | {seconds:.1f} | {code} |", flush=True)
    rows = [row.split() for row in said.splitlines() if re.search(r"\d$", row.strip())]
    age = next((row for row in rows if row[:1] == ["age"]), None)
    if age is not None:
        print(f"\nOf the {len(rows)} coefficients that of `age` is {age[1]} ± {age[2]}.\n")
    return len(lines) <= MOST and not any(codes) and age is not None


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, programs = Path(place), Path(place) / "installed" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "installed"], check=True)
        print("## First contact\n")
        pip = "python -m pip -q --disable-pip-version-check"
        line = f"{pip} wheel --no-deps -w dist {ROOT} && {pip} install dist/dpvb-*.whl"
        seconds, code, _ = run(line, folder, programs)
        if code:
            sys.exit(code)
        print(f"From the source to an installed wheel, with all that it needs: {seconds:.0f} s.\n")
        fine = journey("With made-up data", ["dpvb sample .", *typed("people.csv", "people")], folder, programs)
        published = Path(os.environ.get("DPVB_DATA", "")) / PUBLISHED
        if published.is_file():
            shutil.copy(published, folder / "stroke.csv")
            (folder / "stroke.json").write_text(json.dumps(STROKE))
            title = "With a published table (stroke, 5,110 rows), whose stub is filled in from its page in an editor"
            stub = "dpvb schema --header stroke.csv --target stroke --yes > stub.json"
            fine = journey(title, [stub, *typed("stroke.csv", "stroke")], folder, programs) and fine
            names = {column["name"] for column in json.loads((folder / "stub.json").read_text())["columns"]}
            fine = fine and names >= {column["name"] for column in STROKE["columns"]}
    sys.exit(not fine)


if __name__ == "__main__":
    main()
