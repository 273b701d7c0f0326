"""What a first user types, from the source to topics, coefficients and rows of nobody: installed commands alone.

A wheel is made and installed in an environment of its own; then each command is a process in an empty folder. There are
the data that the README's commands write, and a user's own: published texts and a table, where DPVB_DATA names
the folder that holds them. By hand is written what their pages say of their columns, and nothing else.
"""

import gzip
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
TABLE, TEXTS = "stroke/healthcare-dataset-stroke-data.csv", "reuters21578/sample_2000.txt.gz"
#: Commands and seconds that a journey may take; the installation counts in each.
MOST, MOST_SECONDS = 10, 300.0
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


def topics(texts: str, words: str, number: int) -> list[str]:
    """From a folder of text files to topics and a page about them."""
    return [
        f"dpvb plan lda --n-units 2000 --width 5000 --topics {number} --epsilon 1 --delta 1e-5",
        f"dpvb fit lda {texts} --vocabulary {words} --topics {number} --epsilon 1 --delta 1e-5 --out {texts}.dpvb",
        f"dpvb report {texts}.dpvb --out {texts}.html",
        f"dpvb show {texts}.dpvb --what topics",
    ]


def coefficients(name: str) -> list[str]:
    """From a table and its schema to coefficients."""
    return [
        f"dpvb schema {name}.json",
        f"dpvb fit logistic {name}.csv --schema {name}.json --epsilon 1 --delta 1e-5 --out {name}.dpvb",
        f"dpvb show {name}.dpvb --what coefficients",
    ]


def synthetic(name: str) -> list[str]:
    """From a table and its schema to rows of nobody."""
    nobody = f"--rows 5000 --epsilon 1 --delta 1e-5 --out {name}-of-synthetic.csv"
    return [f"dpvb synthesize {name}.csv {nobody} --schema {name}.json", f"wc -l {name}-of-synthetic.csv"]


def run(line: str, folder: Path, programs: Path) -> tuple[float, int, str]:
    """Seconds, exit code and output of a line of a shell, in which nothing of this tree is to be found."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "DPVB"))}
    env |= {"PATH": f"{programs}{os.pathsep}{env['PATH']}", "XDG_STATE_HOME": str(folder / "state")}
    start = time.perf_counter()
    done = subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return time.perf_counter() - start, done.returncode, done.stdout


def journey(title: str, lines: list[str], end: str, folder: Path, programs: Path, spent: float) -> bool:
    """Print the table of a journey; whether the last command shows its end, in few enough commands and seconds."""
    print(f"### {title}\n")
    print("| typed | s | exit code |\n|---|---|---|")
    codes, said = [], ""
    total = spent
    for line in lines:
        seconds, code, said = run(line, folder, programs)
        codes.append(code)
        total += seconds
        print(f"| `{line}` | {seconds:.1f} | {code} |", flush=True)
    shown = re.search(end, said, re.MULTILINE)
    found = "nothing" if shown is None else f"`{' '.join(shown[0].split())}`"
    print(f"\nIt ends with {found}: {len(lines)} commands (asked: {MOST} at most) and {total:.0f} s, the installation")
    print(f"among them (asked: {MOST_SECONDS:.0f} at most).\n")
    return len(lines) <= MOST and not any(codes) and shown is not None and total < MOST_SECONDS


#: What the last command of a journey shows: a topic's words, the coefficient of age, and 5,000 rows with a header.
TOPIC, AGE, ROWS = r"^Topic 0 +\w+ \w+ \w+", r"^ *age +-?[\d.]+ +[\d.]+", r"^ *5001 "


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder, programs = Path(place), Path(place) / "installed" / "bin"
        subprocess.run([sys.executable, "-m", "venv", folder / "installed"], check=True)
        print("## First contact\n")
        pip = "python -m pip -q --disable-pip-version-check"
        line = f"{pip} wheel --no-deps -w dist {ROOT} && {pip} install dist/dpvb-*.whl"
        spent, code, _ = run(line, folder, programs)
        if code:
            sys.exit(code)
        print(f"From the source to an installed wheel, with all that it needs: {spent:.0f} s.\n")

        def goes(title: str, lines: list[str], end: str) -> bool:
            return journey(title, lines, end, folder, programs, spent)

        sample = "dpvb example-data ."
        fine = [
            goes(
                "A folder of notes that the README's first command writes",
                [sample, *topics("notes", "words.txt", 4)],
                TOPIC,
            ),
            goes("Its table, to coefficients", coefficients("people"), AGE),
            goes("Its table, to rows of nobody", synthetic("people"), ROWS),
        ]
        data = Path(os.environ.get("DPVB_DATA", ""))
        if (data / TEXTS).is_file():
            (folder / "mine").mkdir()
            with gzip.open(data / TEXTS, "rt", encoding="utf-8") as texts:
                for number, text in enumerate(texts):
                    (folder / "mine" / f"{number:04}.txt").write_text(text, encoding="utf-8")
            fine.append(goes("A folder of one's own: 2,000 press reports", topics("mine", "english", 5), TOPIC))
        if (data / TABLE).is_file():
            shutil.copy(data / TABLE, folder / "stroke.csv")
            (folder / "stroke.json").write_text(json.dumps(STROKE))
            stub = "dpvb schema --header stroke.csv --target stroke --yes > stub.json"
            title = "A table of one's own (stroke, 5,110 rows), whose stub is filled in from its page in an editor"
            fine.append(goes(title, [stub, *coefficients("stroke")], AGE))
            fine.append(goes("The same table, to rows of nobody", synthetic("stroke"), ROWS))
            names = {column["name"] for column in json.loads((folder / "stub.json").read_text())["columns"]}
            fine.append(names >= {column["name"] for column in STROKE["columns"]})
    sys.exit(not all(fine))


if __name__ == "__main__":
    main()
