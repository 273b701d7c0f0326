"""The command line on rows of numbers: regressions and belief networks, end to end, and bad input."""

from __future__ import annotations

import gzip
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from test_cli import refuse, run, without_counts

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target
from dpvb.errors import PrivacyError
from dpvb.results import metrics, model_file

BUDGET = ["--epsilon", "2", "--delta", "1e-4", "--n-steps", "3", "--quiet"]
COEF = ("show", "--what", "coefficients")
CANARY = 0.7316502911
COLUMNS = (Numeric("age", 0, 100), Categorical("work", ("state", "private")), Binary("urban", values=("no", "yes")))


def people(folder: Path, name: str = "people.csv", n: int = 200) -> Path:
    rng = np.random.default_rng(7)
    age, work, urban = rng.uniform(0, 100, n), rng.choice(["state", "private"], n), rng.choice(["no", "yes"], n)
    ill = np.where(rng.random(n) < 0.2 + age / 200, "yes", "no")
    shots, hits = rng.integers(1, 5, n), np.zeros(n, dtype=int)
    hits[:] = rng.binomial(shots, 0.3)
    visits = rng.poisson(1.0 + age / 50)
    data = {"age": age, "work": work, "urban": urban, "ill": ill, "shots": shots, "hits": hits, "visits": visits}
    path = folder / name
    if name.endswith(".parquet"):
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(arrow.table(data), path)
    else:
        rows = [",".join(data), *(",".join(map(str, row)) for row in zip(*data.values(), strict=True))]
        path.write_text("\n".join(rows) + "\n")
    return path


def schema_file(folder: Path, target: Target | None) -> Path:
    path = folder / "schema.json"
    Schema(COLUMNS, target).save(path)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    schema = schema_file(folder, Target("ill", classes=("no", "yes")))
    run("fit", "logistic", people(folder), "--schema", schema, "--out", folder / "m.dpvb", *BUDGET)
    return folder / "m.dpvb"


@pytest.mark.parametrize("name", ["people.csv", "people.parquet"])
def test_a_table_is_fitted_shown_and_measured(tmp_path: Path, name: str) -> None:
    data, out = people(tmp_path, name), tmp_path / "m.dpvb"
    schema = schema_file(tmp_path, Target("ill", classes=("no", "yes")))
    result = run("fit", "logistic", data, "--schema", schema, "--out", out, *BUDGET)
    assert result.stdout == ""
    assert "--what coefficients" in result.stderr
    model = dpvb.load(out)
    assert model.classes_.tolist() == ["no", "yes"]
    assert run("show", out).stdout.strip() == str(model.privacy_)
    facts = json.loads(run("evaluate", out, data, "--public", "--json").stdout)
    assert facts == pytest.approx(model.evaluate(Table(data, model.schema_), public=True))
    assert set(facts) == {"auc", "log_likelihood", "accuracy", "calibration_error"}
    assert f"{facts['auc']:.4g}" in run("evaluate", out, data, "--public").stdout


def test_coefficients_are_printed_with_their_intervals(fitted: Path) -> None:
    model = dpvb.load(fitted)
    rows = json.loads(run(*COEF, fitted, "--level", "0.8", "--as", "json").stdout)
    assert rows == [row._asdict() for row in model.coefficients(0.8)]
    shown = run(*COEF, fitted).stdout
    for row in model.coefficients():
        assert row.name in shown
        assert f"{row.low:.4g}" in shown
        assert row.note in shown
    assert shown == model.summary() + "\n"
    assert "do NOT include the privacy noise" in run(*COEF, fitted, "--ignore-noise").stdout
    told = run(*COEF, fitted, "--exp", "--coding", "sum", "--per", "range", "--level", "0.9").stdout
    assert told == model.summary(0.9, exp=True, coding="sum", per="range") + "\n"
    refuse(fitted.parent, "--coding must be one of", *COEF, fitted, "--coding", "effects")
    refuse(fitted.parent, "--per must be one of", *COEF, fitted, "--per", "sd")


def test_a_matrix_is_fitted_with_its_columns_beside_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (100, 4))
    y = (rng.random(100) < 0.5 + 0.4 * X[:, 0]).astype(int)
    np.save(tmp_path / "y.npy", y)
    np.save(tmp_path / "who.npy", np.arange(100) // 2)
    np.save(tmp_path / "X.npy", X)
    np.savez(tmp_path / "X.npz", X=X)
    sparse.save_npz(tmp_path / "S.npz", sparse.csr_array(X))
    exact = [*BUDGET, "--epsilon", "inf", "--target", tmp_path / "y.npy", "--max-row-norm", "2", "--overwrite"]
    out = tmp_path / "m.dpvb"
    expected = dpvb.LogisticRegression(epsilon=math.inf, delta=1e-4, n_steps=3, max_row_norm=2.0).fit(X, y)
    for name in ("X.npy", "X.npz", "S.npz"):
        assert "NO PRIVACY" in run("fit", "logistic", tmp_path / name, "--out", out, *exact).stderr
        assert dpvb.load(out).coef_ == pytest.approx(expected.coef_)
    facts = json.loads(
        run("evaluate", out, tmp_path / "X.npy", "--target", tmp_path / "y.npy", "--public", "--json").stdout
    )
    assert facts == pytest.approx(expected.evaluate(X, y, public=True))
    run("fit", "logistic", tmp_path / "X.npy", "--out", out, *exact, "--group", tmp_path / "who.npy")
    assert dpvb.load(out).privacy_.unit == "person"
    np.save(tmp_path / "words.npy", np.where(y == 1, "yes", "no"))
    words = ["--target", tmp_path / "words.npy", "--classes", "no", "yes", "--no-intercept", "--covariance", "diagonal"]
    run("fit", "logistic", tmp_path / "X.npy", "--out", out, *exact, *words)
    assert dpvb.load(out).classes_.tolist() == ["no", "yes"]
    assert dpvb.load(out).intercept_ == 0.0


def test_ranges_of_a_matrix_are_numbers_with_commas(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    X = rng.uniform([18, 0], [90, 500_000], (300, 2))
    y = (rng.random(300) < X[:, 0] / 100).astype(int)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    out = tmp_path / "m.dpvb"
    fit = ["fit", "logistic", tmp_path / "X.npy", "--target", tmp_path / "y.npy", "--out", out, *BUDGET]
    run(*fit, "--epsilon", "inf", "--low", "18,0", "--high", "90,500000")
    ends = {"low": [18, 0], "high": [90, 500_000]}
    expected = dpvb.LogisticRegression(epsilon=math.inf, delta=1e-4, n_steps=3, **ends).fit(X, y)
    assert dpvb.load(out).coef_ == pytest.approx(expected.coef_)
    assert dpvb.load(out).intercept_ == pytest.approx(expected.intercept_)
    out.unlink()
    refuse(tmp_path, "X needs public bounds on its numbers", *fit)
    refuse(tmp_path, "Alternatives: (1) --low and --high", *fit, "--low", "0")
    refuse(tmp_path, "--low must be a number, or numbers with commas between", *fit, "--low", "a;b", "--high", "1")
    refuse(tmp_path, "--low must be a number or 2 of them", *fit, "--low", "1,2,3", "--high", "9")
    refuse(tmp_path, "high of column 'x1' must be", *fit, "--low", "0,5", "--high", "9,5")
    assert not out.exists()


def test_successes_and_counts(tmp_path: Path) -> None:
    data, out = people(tmp_path), tmp_path / "m.dpvb"
    schema = schema_file(tmp_path, Target("hits", kind="binomial", max_trials=4, trials="shots"))
    run("fit", "binomial", data, "--schema", schema, "--max-trials", "4", "--out", out, *BUDGET)
    facts = json.loads(run("evaluate", out, data, "--public", "--json").stdout)
    assert set(facts) == {"deviance", "explained_deviance"}
    assert "deviance per row" in run("evaluate", out, data, "--public").stdout
    schema = schema_file(tmp_path, Target("visits", kind="negative_binomial", max_count=9))
    counts = ["--dispersion", "2", "--max-count", "9", "--out", out, "--overwrite"]
    run("fit", "negative-binomial", data, "--schema", schema, *counts, *BUDGET)
    model = dpvb.load(out)
    facts = json.loads(run("evaluate", out, data, "--public", "--json").stdout)
    assert facts == pytest.approx(model.evaluate(Table(data, model.schema_), public=True))


def test_what_stands_beside_counts(tmp_path: Path) -> None:
    """By the columns of a table or by files beside a matrix; a model's measures read them as the fit did."""
    rng, out = np.random.default_rng(3), tmp_path / "m.dpvb"
    age, days, w = rng.uniform(18, 90, 60), rng.uniform(1, 365, 60), rng.uniform(0, 2, 60)
    visits = rng.poisson(days * 0.01)
    data = tmp_path / "visits.csv"
    cells = np.column_stack([age, days, w, visits]).astype(str)
    data.write_text("\n".join(",".join(row) for row in [["age", "days", "w", "visits"], *cells]) + "\n")
    beside = {"exposure": "days", "max_exposure": 365, "weights": "w", "max_weight": 2}
    like = Schema((Numeric("age", 18, 90),), Target("visits", "poisson", max_count=9, **beside))
    like.save(tmp_path / "s.json")
    bounds = ["--max-count", "9", "--max-exposure", "365", "--max-weight", "2", "--epsilon", "inf", "--delta", "1e-6"]
    run("fit", "poisson", data, "--schema", tmp_path / "s.json", "--out", out, "--quiet", *bounds)
    found, facts = dpvb.load(out), json.loads(run("evaluate", out, data, "--public", "--json").stdout)
    assert facts == pytest.approx(found.evaluate(Table(data, like), public=True))
    matrix = {"x": age[:, None], "y": visits, "e": days, "w": w}
    for name, column in matrix.items():
        np.save(tmp_path / f"{name}.npy", column)
    x, y, e, given = (tmp_path / f"{name}.npy" for name in matrix)
    call = ["fit", "poisson", x, "--target", y, "--low", "18", "--high", "90", "--out", tmp_path / "n", "--quiet"]
    run(*call, "--exposure", e, "--weights", given, *bounds)
    assert dpvb.load(tmp_path / "n").coef_ == pytest.approx(found.coef_)
    refuse(tmp_path, "weights must be given", *call[:-3], "--out", tmp_path / "o", "--exposure", e, *bounds)
    run(*call[:5], "--max-row-norm", "100", "--out", tmp_path / "o", "--exposure", e, "--weights", given, *bounds)
    known = json.loads(run("evaluate", tmp_path / "o", x, "--target", y, "--exposure", e, "--public", "--json").stdout)
    own = dpvb.load(tmp_path / "o").evaluate(age[:, None], visits, exposure=days, public=True)
    assert known == pytest.approx(own)
    refuse(tmp_path, "apply only to a matrix", "evaluate", out, data, "--public", "--exposure", e)


@pytest.mark.parametrize(
    "kind",
    [
        "logistic",
        "lda",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("binomial", "negative-binomial", "sbn")),
    ],
)
def test_a_fit_over_two_processes_is_the_same_fit(kind: str, tmp_path: Path) -> None:
    """Without noise: the same arrays, to the last bit."""
    rng = np.random.default_rng(2)
    sparse.save_npz(tmp_path / "counts.npz", sparse.csr_array(rng.poisson(0.5, (80, 6)).astype(float)))
    table = ["--schema", tmp_path / "schema.json"]
    data, target, more = {
        "logistic": (people, Target("ill", classes=("no", "yes")), table),
        "binomial": (
            people,
            Target("hits", kind="binomial", max_trials=4, trials="shots"),
            [*table, "--max-trials", "4"],
        ),
        "negative-binomial": (
            people,
            Target("visits", kind="negative_binomial", max_count=9),
            [*table, "--dispersion", "2", "--max-count", "9"],
        ),
        "sbn": (lambda folder: images(folder)[0], None, ["--threshold", "127", "--hidden", "3", "--seed", "1"]),
        "lda": (lambda folder: folder / "counts.npz", None, ["--topics", "2", "--seed", "1", "--public-vocabulary"]),
    }[kind]
    schema_file(tmp_path, target)
    fit = ["fit", kind, data(tmp_path), *more, *BUDGET, "--epsilon", "inf"]
    run(*fit, "--out", tmp_path / "one.dpvb")
    run(*fit, "--out", tmp_path / "two.dpvb", "--cluster", "local:2")
    one, two = (model_file.load(tmp_path / f"{name}.dpvb").arrays for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name])


def test_a_schema_is_shown_and_checked(tmp_path: Path) -> None:
    example = run("schema").stdout
    (tmp_path / "s.json").write_text(example)
    assert Schema.from_json(example).to_json() == Schema.load(tmp_path / "s.json").to_json()
    shown = run("schema", tmp_path / "s.json").stdout
    for column in Schema.from_json(example).columns:
        assert column.name in shown
    assert "target" in shown
    assert json.loads(run("schema", tmp_path / "s.json", "--json").stdout) == json.loads(example)
    (tmp_path / "bad.json").write_text('{"columns": [{"kind": "numeric", "name": "age", "low": 0}]}')
    refuse(tmp_path, "Three ways out", "schema", tmp_path / "bad.json")
    refuse(tmp_path, "not valid JSON", "schema", people(tmp_path))
    refuse(tmp_path, "cannot be read", "schema", tmp_path / "none.json")


def images(folder: Path) -> tuple[Path, np.ndarray]:
    rng = np.random.default_rng(3)
    pixels = (255 * (rng.random((60, 16)) < 0.3)).astype(np.uint8)
    path = folder / "images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">4I", 0x803, 60, 4, 4) + pixels.tobytes()))
    return path, pixels


def test_a_network_is_fitted_drawn_and_measured(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data, pixels = images(tmp_path)
    out, png = tmp_path / "m.dpvb", tmp_path / "weights.png"
    fit = ["fit", "sbn", data, "--threshold", "127", "--hidden", "3", "--out", out, "--seed", "1"]
    assert "SigmoidBeliefNetwork, epsilon = " in run(*fit, *BUDGET).stderr
    model = dpvb.load(out)
    assert model.components_.shape == (3, 16)
    run("show", out, "--what", "weights", "--out", png)
    assert png.read_bytes().startswith(b"\x89PNG")
    refuse(
        tmp_path, "--width must divide", "show", out, "--what", "weights", "--out", png, "--width", "5", "--overwrite"
    )
    facts = json.loads(run("evaluate", out, data, "--public", "--json").stdout)
    expected = metrics.reconstruction_accuracy(pixels > 127, model.reconstruct(pixels))
    assert facts["reconstruction_accuracy"] == pytest.approx(expected)
    assert facts["bound"] == pytest.approx(model.score(pixels, public=True))
    with pytest.raises(PrivacyError, match="public=True"):
        model.evaluate(pixels)
    for bad in (b"", b"\0\0\x08\x03", data.read_bytes()[:50]):
        (tmp_path / "bad-ubyte.gz").write_bytes(bad)
        refuse(tmp_path, "not a matrix", *fit[:2], tmp_path / "bad-ubyte.gz", *fit[3:], *BUDGET, "--overwrite")


@pytest.mark.guarantees("models")
def test_nothing_private_is_printed(tmp_path: Path) -> None:
    """Everything that two sessions print, on 137 rows and on 138, but for the noisy numbers."""
    printed = []
    for n in (137, 138):
        X = np.full((n, 2), CANARY)
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", np.arange(n) % 2)
        out = tmp_path / "m.dpvb"
        fit = [
            "fit",
            "logistic",
            tmp_path / "X.npy",
            "--target",
            tmp_path / "y.npy",
            "--out",
            out,
            "--overwrite",
            "--low",
            "0",
            "--high",
            "1e9",
        ]
        results = [run(*fit, *BUDGET), run("show", out)]
        printed.append("".join(r.stdout + r.stderr for r in results).replace(dpvb.load(out).privacy_.run_id, "RUN"))
        # Where a line ends depends on how long a noisy count is.
        printed[-1] = without_counts(" ".join(without_counts(printed[-1]).split()))
        assert str(n) not in printed[-1].replace(dpvb.load(out).privacy_.plan_digest, "PLAN")
        assert str(CANARY)[:6] not in printed[-1]
    assert printed[0] == printed[1]


BAD: dict[str, tuple[list[str], str]] = {
    "epsilon": (["--epsilon", "0"], "--epsilon must be"),
    "covariance": (["--covariance", "none"], "--covariance must be"),
    "steps": (["--n-steps", "0"], "--n-steps must be"),
    "relation": (["--neighboring-relation", "similar"], "--neighboring-relation must be"),
    "target": (["--target", "y.npy"], "apply only to a matrix"),
    "cluster": (["--cluster", "local:0"], "cluster must be None, 'local:N'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options(tmp_path: Path, name: str) -> None:
    options, expected = BAD[name]
    schema = schema_file(tmp_path, Target("ill", classes=("no", "yes")))
    out = tmp_path / "m.dpvb"
    refuse(tmp_path, expected, "fit", "logistic", people(tmp_path), "--schema", schema, "--out", out, *BUDGET, *options)


def test_bad_data(tmp_path: Path, fitted: Path) -> None:
    table, out = people(tmp_path), tmp_path / "m.dpvb"
    np.save(tmp_path / "X.npy", np.ones((5, 2)))
    np.save(tmp_path / "y.npy", np.ones(5))
    np.save(tmp_path / "short.npy", np.ones(3))
    missing = np.array([[0.0, 1.0], [None, 1.0]])
    np.save(tmp_path / "object.npy", missing, allow_pickle=True)
    np.savez(tmp_path / "object.npz", X=missing)
    (tmp_path / "text.npy").write_text("hello")
    np.savez(tmp_path / "two.npz", a=np.ones(2), b=np.ones(2))

    def refuse_fit(expected: str, *args: Any) -> None:
        refuse(tmp_path, expected, "fit", "logistic", *args, "--out", out, *BUDGET)

    target = ["--target", tmp_path / "y.npy", "--max-row-norm", "1"]
    refuse_fit("needs --schema", table)
    refuse_fit("needs --target", tmp_path / "X.npy")
    refuse_fit("differ in length", tmp_path / "X.npy", *target, "--target", tmp_path / "short.npy")
    refuse_fit("there is no such file", tmp_path / "none.npy", *target)
    for name in ("object.npy", "object.npz"):
        refuse_fit("never unpickled", tmp_path / name, *target)
        refuse_fit("never unpickled", tmp_path / "X.npy", *target, "--target", tmp_path / name)
    for name in ("text.npy", "two.npz"):
        refuse_fit("not a matrix of numbers", tmp_path / name, *target)
    refuse_fit("--max-row-norm must be", tmp_path / "X.npy", *target, "--max-row-norm", "0")
    refuse_fit("--classes must be", tmp_path / "X.npy", *target, "--classes", "1", "1")
    refuse_fit("response is missing", table, "--schema", schema_file(tmp_path, None))
    refuse_fit("target", table, "--schema", schema_file(tmp_path, Target("hits", "negative_binomial", max_count=4)))
    refuse(tmp_path, "all, coefficients for a LogisticRegression, got 'topics'", "show", fitted, "--what", "topics")
    refuse(tmp_path, "--words does not apply to a LogisticRegression", *COEF, fitted, "--words", "3")
    refuse(tmp_path, "Every model has `dpvb report`", "synthesize", fitted, "--rows", "1", "--out", tmp_path / "s.csv")
    refuse(tmp_path, "--level must be", *COEF, fitted, "--level", "1")
    refuse(tmp_path, "--public", "evaluate", fitted, table)
    refuse(tmp_path, "apply only to a matrix", "evaluate", fitted, table, "--public", *target[:2])


def test_help_teaches() -> None:
    for command in (
        ["fit", "logistic"],
        ["fit", "binomial"],
        ["fit", "negative-binomial"],
        ["fit", "sbn"],
        ["show"],
        ["schema"],
    ):
        assert f"dpvb {' '.join(command)} " in run(*command, "--help").stdout
