"""Private mixtures on five tables: held-out log-density, against one component; and what synthetic rows of adult teach.

Needs DPVB_DATA, the folder that holds clusters/, adult/ and diabetes130/. MST, if it is set, is a checkout of
private-pgm with an environment .venv of its own, whose rows of adult are measured too. Fits are kept in
build/mixtures.jsonl under a digest of the code, so that an interrupted run goes on where it stopped.

    python -m benchmarks.mixtures [table ...]
"""

import csv
import gzip
import hashlib
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from functools import cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import dpvb
from dpvb.data import Categorical, Numeric, Schema

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("DPVB_DATA", ROOT / "data"))
CACHE = ROOT / "build" / "mixtures.jsonl"
DELTA, EPSILONS = 1e-5, (0.5, 1.0, 2.0, 4.0)
#: Table → splits, fits of each, largest number of groups.
TABLES = {
    "phoneme": (5, 4, 24),
    "banknote": (5, 4, 24),
    "faithful": (5, 4, 24),
    "adult": (1, 1, 40),
    "diabetes": (1, 1, 40),
}
#: Tables of which a fit takes minutes: fitted at fewer ε.
LARGE = ("adult", "diabetes")
#: Held-out log-densities that must be reached, by ε.
MUST = {
    "phoneme": (3.70, 4.20, 4.60, 4.85),
    "banknote": (0.95, 1.45, 1.90, 2.15),
    "faithful": (0.15, 0.40, 0.60, 0.80),
    "adult": (-9.65, -9.40, -9.22, -9.10),
    "diabetes": (-19.85, -19.55, -19.35, -19.15),
}
GAINS = (0, 1, 2000, 4000, 6000, 8000, 10000, 15000, 20000, 50000)
LOSSES = (0, 1, 1000, 1400, 1600, 1800, 2000, 2200, 2400, 3000)
EDGES = {
    "age": (17, *range(20, 80, 5)),
    "fnlwgt": (0, 5e4, 7.5e4, 1e5, 1.25e5, 1.5e5, 1.75e5, 2e5, 2.25e5, 2.5e5, 3e5, 3.5e5, 4e5),
    "hours": (1, 10, 20, 25, 30, 35, 40, 41, 45, 46, 50, 51, 60),
}
ADULT = (
    *("age", "workclass", "fnlwgt", "education", "number", "marital", "occupation", "relationship", "race", "sex"),
    *("gain", "loss", "hours", "country", "income"),
)
#: Columns of diabetes: numbers that are categories up to 9, and categories.
CAPPED = ("num_procedures", "number_outpatient", "number_emergency", "number_inpatient", "number_diagnoses")
CODED = (
    *("race", "gender", "age", "admission_type_id", "discharge_disposition_id", "admission_source_id", "payer_code"),
    *("max_glu_serum", "A1Cresult", "metformin", "repaglinide", "glimepiride", "glipizide", "glyburide"),
    *("pioglitazone", "rosiglitazone", "insulin", "change", "diabetesMed", "readmitted"),
)


def numbers(name: str, places: slice, low: list[float], high: list[float], *, skip: int = 0):
    """Columns of plain numbers with public ranges."""
    x = np.loadtxt(DATA / "clusters" / name, delimiter=",", skiprows=skip)[:, places]
    names = [f"x{j}" for j in range(x.shape[1])]
    schema = Schema(tuple(Numeric(name, *ends) for name, *ends in zip(names, low, high, strict=True)))
    return dict(zip(names, x.T, strict=True)), schema


def binned(values: np.ndarray, edges: tuple[int, ...]) -> np.ndarray:
    """Bins by public edges, as texts."""
    return np.array([f"from {edge}" for edge in edges], dtype=object)[np.searchsorted(edges, values, side="right") - 1]


def adult():
    """Age, logarithm of fnlwgt and hours as numbers; eleven columns of categories, gains and losses by public edges."""
    rows = []
    for name, first in (("adult.data", 0), ("adult.test", 1)):
        for row in list(csv.reader((DATA / "adult" / name).read_text().splitlines(), skipinitialspace=True))[first:]:
            if len(row) == len(ADULT):
                rows.append([cell.rstrip(".") for cell in row])
    columns = dict(zip(ADULT, np.array(rows, dtype=object).T, strict=True))
    del columns["number"]
    for name in ("age", "fnlwgt", "hours", "gain", "loss"):
        columns[name] = columns[name].astype(np.float64)
    columns["gain"], columns["loss"] = binned(columns["gain"], GAINS), binned(columns["loss"], LOSSES)
    ranges = {"age": (17, 90), "fnlwgt": (1e4, 1.5e6), "hours": (1, 99)}
    return columns, declared(columns, ranges, {"fnlwgt": "log1p"})


def diabetes():
    """First encounters: three numbers and 25 columns of categories, of the drugs those that one in a hundred takes."""
    with gzip.open(DATA / "diabetes130" / "diabetic_data.csv.gz", "rt") as file:
        reader = csv.reader(file)
        names, rows = next(reader), {}
        for row in reader:
            rows.setdefault(row[1], row)
    columns = dict(zip(names, np.array(list(rows.values()), dtype=object).T, strict=True))
    ranges = {"num_lab_procedures": (1, 132), "num_medications": (1, 81), "time_in_hospital": (1, 14)}
    kept = {name: columns[name].astype(np.float64) for name in ranges}
    kept |= {name: np.minimum(columns[name].astype(int), 9).astype(str).astype(object) for name in CAPPED}
    kept |= {name: columns[name] for name in CODED}
    return kept, declared(kept, ranges, {})


def declared(columns, ranges, transforms) -> Schema:
    """A schema; categories are those of public code books, which these tables use in full."""
    made = [
        Numeric(name, *ranges[name], transform=transforms.get(name))
        if name in ranges
        else Categorical(name, tuple(sorted(set(values))), other=False, missing=False)
        for name, values in columns.items()
    ]
    return Schema(tuple(made), missing_values=())


@cache
def table(name: str):
    """Columns and schema."""
    if name == "phoneme":
        return numbers("phoneme.csv", slice(5), [-5.0] * 5, [5.0] * 5)
    if name == "banknote":
        return numbers("banknote_authentication.csv", slice(4), [-10, -20, -20, -10], [10, 20, 20, 10])
    if name == "faithful":
        return numbers("faithful.csv", slice(1, None), [0, 30], [7, 120], skip=1)
    return adult() if name == "adult" else diabetes()


def split(name: str, seed: int):
    """Training and test rows."""
    columns, schema = table(name)
    order = np.random.default_rng(1000 + seed).permutation(len(next(iter(columns.values()))))
    fifth = len(order) // 5
    parts = order[fifth:], order[:fifth]
    return *(dpvb.Table({name: values[part] for name, values in columns.items()}, schema) for part in parts), schema


def density(model, rows, schema: Schema) -> float:
    """Mean log-density of held-out rows, of numbers brought to [-1, 1]."""
    own = [column for column in schema.own_columns if isinstance(column, Numeric)]
    return model.score(rows, public=True) + sum(math.log((c.ends[1][0] - c.ends[0][0]) / 2) for c in own)


def code() -> str:
    """Digest of the files that the fits' numbers depend on."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "src" / "dpvb" / "models" / "mixtures").glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def fits(chosen: list[str]) -> list[dict]:
    """Every fit, computed where the cache lacks it."""
    CACHE.parent.mkdir(exist_ok=True)
    version = code()
    found = [json.loads(line) for line in CACHE.read_text().splitlines()] if CACHE.exists() else []
    found = [one for one in found if one["code"] == version and one["table"] in chosen]
    done = {(one["table"], one["split"], one["epsilon"], one["repeat"], one["groups"]) for one in found}
    for name in chosen:
        splits, repeats, most = TABLES[name]
        for seed in range(splits):
            train, test, schema = split(name, seed)
            wanted = EPSILONS if name in LARGE else (0.1, *EPSILONS, math.inf)
            cells = [(e, r, k) for e in wanted for r in range(repeats) for k in (most, 1)]
            for epsilon, repeat, groups in cells:
                if (name, seed, epsilon, repeat, groups) in done or (epsilon == math.inf and repeat):
                    continue
                begun = time.process_time()
                model = dpvb.Mixture(groups, epsilon=epsilon, delta=DELTA, random_state=100 + repeat)
                model.fit(train)
                one = {"table": name, "split": seed, "epsilon": epsilon, "repeat": repeat, "groups": groups}
                one |= {"code": version, "kept": len(model.weights_), "density": density(model, test, schema)}
                one["seconds"] = time.process_time() - begun
                with CACHE.open("a") as file:
                    file.write(json.dumps(one) + "\n")
                found.append(one)
                print(one, file=sys.stderr, flush=True)
    return found


def _fit(one: dict) -> tuple[int, int]:
    """Split and repeat."""
    return one["split"], one["repeat"]


def densities(chosen: list[str]) -> None:
    """The table of held-out log-densities."""
    cells = defaultdict(list)
    for one in fits(chosen):
        cells[one["table"], one["epsilon"], one["groups"] == 1].append(one)
    print("| table | | ε = .1 | .5 | 1 | 2 | 4 | no privacy |\n|---|---|---|---|---|---|---|---|")
    for name in chosen:
        rows = defaultdict(list)
        for epsilon in (0.1, *EPSILONS, math.inf):
            own, alone = cells[name, epsilon, False], cells[name, epsilon, True]
            mean = np.mean([one["density"] for one in own]) if own else math.inf
            target = MUST[name][EPSILONS.index(epsilon)] if epsilon in EPSILONS else -math.inf
            bold = "**" if mean < target else ""
            rows["mixture"].append(f"{bold}{mean:.3f}{bold}" if own else "")
            rows["one component"].append(f"{np.mean([one['density'] for one in alone]):.3f}" if own else "")
            rows["to reach"].append(f"{target:.2f}" if epsilon in EPSILONS else "")
            rows["groups kept"].append(f"{np.mean([one['kept'] for one in own]):.1f}" if own else "")
            rows["seconds of CPU"].append(f"{np.mean([one['seconds'] for one in own]):.1f}" if own else "")
            pairs = [[one["density"] for one in sorted(part, key=_fit)] for part in (own, alone)]
            above = np.subtract(*pairs) if own else np.zeros(1)
            error = f" ± {above.std(ddof=1) / math.sqrt(len(above)):.3f}" if len(above) > 1 else ""
            rows["above one component, ± standard error"].append(f"{above.mean():.3f}{error}" if own else "")
        for label, texts in rows.items():
            print(f"| {name if label == 'mixture' else ''} | {label} | " + " | ".join(texts) + " |")
    splits = ", ".join(f"{name} {TABLES[name][0]} × {TABLES[name][1]}" for name in chosen)
    print(
        f"\nδ = {DELTA:g}; four fifths of the rows are fitted; splits × fits: {splits}. "
        "Bold: below what is to be reached, which for diabetes was set on a slightly different choice of its columns."
    )


def mst(codes: np.ndarray, sizes: dict[str, int], epsilon: float) -> np.ndarray:
    """Rows of MST's own script, by the Python of the environment .venv in its checkout."""
    home = Path(os.environ["MST"]).resolve()
    with TemporaryDirectory() as name:
        folder = Path(name)
        np.savetxt(folder / "rows.csv", codes, "%d", ",", header=",".join(sizes), comments="")
        (folder / "domain.json").write_text(json.dumps(sizes))
        given = {"dataset": "rows.csv", "domain": "domain.json", "save": "made.csv"}
        words = [text for key, file in given.items() for text in (f"--{key}", str(folder / file))]
        command = [str(home / ".venv" / "bin" / "python"), "mst.py", *words, "--epsilon", str(epsilon)]
        subprocess.run(
            [*command, "--delta", str(DELTA)], cwd=home / "mechanisms", check=True, stdout=subprocess.DEVNULL
        )
        return np.loadtxt(folder / "made.csv", dtype=np.int64, delimiter=",", skiprows=1)


def synthetic() -> None:
    """Classifiers that learn from synthetic rows of adult, and all two-way tables."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    columns = table("adult")[0]
    columns = {name: binned(values, EDGES[name]) if name in EDGES else values for name, values in columns.items()}
    schema = declared(columns, {}, {})
    places = [{value: place for place, value in enumerate(column.categories)} for column in schema.own_columns]

    def coded(rows) -> np.ndarray:
        """Columns as codes."""
        cells = [rows[column.name] for column in schema.own_columns]
        return np.array([[own[one] for one in values] for own, values in zip(places, cells, strict=True)]).T

    def distance(a: np.ndarray, b: np.ndarray) -> float:
        """Mean total variation of all two-way tables."""
        found = []
        for i, j in combinations(range(a.shape[1]), 2):
            width = max(a[:, j].max(), b[:, j].max()) + 1
            length = width * (max(a[:, i].max(), b[:, i].max()) + 1)
            shares = [np.bincount(x[:, i] * width + x[:, j], minlength=length) / len(x) for x in (a, b)]
            found.append(0.5 * np.abs(shares[0] - shares[1]).sum())
        return float(np.mean(found))

    def auc(train: np.ndarray, test: np.ndarray) -> float:
        model = HistGradientBoostingClassifier(random_state=0).fit(train[:, :-1], train[:, -1])
        return float(roc_auc_score(test[:, -1], model.predict_proba(test[:, :-1])[:, 1]))

    print(
        "\n| rows of adult | AUC, gradient boosting | two-way distance to test rows (to training rows) |\n|---|---|---|"
    )
    rows = defaultdict(list)
    for seed in range(1):
        order = np.random.default_rng(1000 + seed).permutation(len(columns["age"]))
        fifth = len(order) // 5
        train, test = (
            {name: values[part] for name, values in columns.items()} for part in (order[fifth:], order[:fifth])
        )
        test_codes, train_codes = coded(test), coded(train)
        rows["real"].append((auc(train_codes, test_codes), distance(train_codes, test_codes), 0.0))
        for epsilon in EPSILONS:
            model = dpvb.Mixture(40, epsilon=epsilon, delta=DELTA, random_state=0).fit(dpvb.Table(train, schema))
            codes = coded(model.sample(len(train_codes), 0))
            found = auc(codes, test_codes), distance(codes, test_codes), distance(codes, train_codes)
            rows[f"synthetic, ε = {epsilon:g}"].append(found)
            print(epsilon, found, file=sys.stderr, flush=True)
            if "MST" in os.environ and epsilon == 1:
                sizes = {column.name: len(column.categories) for column in schema.own_columns}
                codes = mst(train_codes, sizes, epsilon)
                rows["MST, ε = 1"].append(
                    (auc(codes, test_codes), distance(codes, test_codes), distance(codes, train_codes))
                )
    for label, found in rows.items():
        learnt, to_test, to_train = np.mean(found, axis=0)
        print(f"| {label} | {learnt:.4f} | {to_test:.4f} ({to_train:.4f}) |")
    print(
        "\nIncome is learnt from the other columns; one split. All 14 columns are categories, numbers by public edges. "
        + (f"MST is its authors' script at commit {commit()}, as it is." if "MST" in os.environ else "MST was not run.")
    )


def commit() -> str:
    """Which version of MST's repository is checked out."""
    command = ["git", "-C", os.environ["MST"], "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    chosen = sys.argv[1:] or list(TABLES)
    print("## Mixtures\n\nMean log-density of held-out rows, numbers brought to [-1, 1] by their public ranges.\n")
    densities([name for name in chosen if name in TABLES])
    if not sys.argv[1:] or "synthetic" in chosen:
        synthetic()


if __name__ == "__main__":
    main()
