"""A dry run is the same call on made-up rows: no row is read, nothing is spent, and nothing is taken for a fit."""

from __future__ import annotations

import gzip
import re
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy import sparse
from test_cli import refuse, run

import dpvb
from dpvb.cli import check_data, fit
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target
from dpvb.errors import BudgetError, DataFormatError, DpvbWarning, ParameterError
from dpvb.estimators import synthetic_rows
from dpvb.results.statement import PrivacyStatement

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}
BOUNDED = {**BUDGET, "max_row_norm": 1.0}
TYPED = ["--epsilon", "1", "--delta", "1e-5", "--quiet", "--dry-run", "--n-units", "300"]
COLUMNS = (
    Numeric("age", low=18, high=90),
    Numeric("income", low=0, high=1e6, transform="log1p"),
    Categorical("work", ("private", "state", 3)),
    Binary("urban", values=("no", "yes")),
)
TARGETS = {
    "logistic": Target("ill", classes=("no", "yes")),
    "binomial": Target("hits", kind="binomial", max_trials=5, trials="shots"),
    "negative-binomial": Target("visits", kind="negative_binomial", max_count=20),
    "poisson": Target("visits", kind="poisson", max_count=20),
    "linear": Target("weight", kind="numeric", low=30, high=200),
}
NEEDED = {
    "logistic": [],
    "binomial": ["--max-trials", "5"],
    "negative-binomial": ["--max-count", "20"],
    "poisson": ["--max-count", "20"],
    "linear": [],
}


def nothing_written(folder: Path, before: set[Path]) -> bool:
    return {path for path in folder.rglob("*") if ".dpvb-" not in path.name} == before


@pytest.mark.guarantees("dry run")
@pytest.mark.parametrize("name", TARGETS)
def test_a_regression_of_a_table_that_is_not_there(tmp_path: Path, name: str) -> None:
    Schema(COLUMNS, target=TARGETS[name]).save(tmp_path / "people.json")
    before = {tmp_path / "people.json"}
    given = ["--schema", tmp_path / "people.json", "--out", tmp_path / "m.dpvb", *TYPED, *NEEDED[name]]
    result = run("fit", name, tmp_path / "nosuch.csv", *given)
    assert result.stdout.startswith("DRY RUN on synthetic rows")
    if name == "logistic":
        given = [one for one in given if one not in ("--out", tmp_path / "m.dpvb")]
        assert run("fit", name, tmp_path / "nosuch.csv", *given).stdout.startswith("DRY RUN on synthetic rows")
        given.remove("--dry-run")
        refuse(tmp_path, "--out must name the model file to write", "fit", name, tmp_path / "nosuch.csv", *given)
    assert "work=state" in result.stdout
    assert re.search(r"300 synthetic rows took [\d.]+ s", result.stderr)
    assert "no budget was spent" in result.stderr
    assert "not recorded" not in result.stderr
    assert nothing_written(tmp_path, before)


def test_every_command_has_it() -> None:
    for name in fit.kinds():
        assert "--dry-run" in run("fit", name, "--help").stdout


def test_topics_of_documents_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("apple\npear\nplum\n")
    given = ["--topics", "2", "--out", tmp_path / "m.dpvb", "--public-vocabulary", *TYPED]
    said = run("fit", "lda", tmp_path / "nosuch", "--vocabulary", tmp_path / "words.txt", *given).stderr
    assert "300 synthetic documents" in said
    said = run("fit", "lda", tmp_path / "n.jsonl", "--width", "7", "--group-column", "who", *given).stderr
    assert "300 synthetic persons" in said
    refuse(tmp_path, "--vocabulary, or --width", "fit", "lda", tmp_path / "nosuch.npz", *given)
    assert nothing_written(tmp_path, {tmp_path / "words.txt"})


def headers(folder: Path) -> list[Path]:
    """Matrices of 9 columns of which the rows are missing or no numbers: whoever reads a row fails."""
    np.save(folder / "whole.npy", np.zeros((4, 9)))
    (folder / "cut.npy").write_bytes((folder / "whole.npy").read_bytes()[: -4 * 9 * 8])
    (folder / "whole.npy").unlink()
    with zipfile.ZipFile(folder / "array.npz", "w") as archive:
        archive.writestr("x.npy", (folder / "cut.npy").read_bytes())
    sparse.save_npz(folder / "s.npz", sparse.csr_array(np.eye(9)))
    with zipfile.ZipFile(folder / "s.npz") as whole, zipfile.ZipFile(folder / "sparse.npz", "w") as archive:
        for name in whole.namelist():
            archive.writestr(name, whole.read(name) if name in ("shape.npy", "format.npy") else b"x")
    (folder / "s.npz").unlink()
    idx = b"\0\0\x08\x03" + b"".join(size.to_bytes(4, "big") for size in (4, 3, 3))
    (folder / "cut-ubyte").write_bytes(idx)
    (folder / "packed-ubyte.gz").write_bytes(gzip.compress(idx))
    return [folder / name for name in ("cut.npy", "array.npz", "sparse.npz", "cut-ubyte", "packed-ubyte.gz")]


@pytest.mark.guarantees("dry run")
def test_of_a_matrix_the_header_alone_is_read(tmp_path: Path) -> None:
    for path in headers(tmp_path):
        given = ["--hidden", "2", "--n-steps", "2", "--out", tmp_path / "m.dpvb", *TYPED]
        assert "300 synthetic rows" in run("fit", "sbn", path, *given).stderr
        if path.suffix in (".npy", ".npz"):
            given = [
                "--target",
                tmp_path / "nosuch.npy",
                "--max-row-norm",
                "2",
                "--out",
                tmp_path / "m.dpvb",
                *TYPED,
            ]
            assert "x8" in run("fit", "logistic", path, *given).stdout
            assert "synthetic persons" in run("fit", "logistic", path, "--group", tmp_path / "who.npy", *given).stderr


def test_what_says_nothing_of_its_columns_is_refused(tmp_path: Path) -> None:
    given = ["--out", tmp_path / "m.dpvb", *TYPED]
    refuse(tmp_path, "--target for a matrix", "fit", "logistic", tmp_path / "x.npy", *given)
    refuse(tmp_path, "No such file", "fit", "sbn", tmp_path / "x.npy", *given)
    np.save(tmp_path / "x.npy", np.zeros(4))
    for name in ("x.npy", "damaged.npz"):
        (tmp_path / "damaged.npz").write_bytes(b"PK\3\4")
        refuse(tmp_path, "declares no rows and columns", "fit", "sbn", tmp_path / name, *given)
    with pytest.raises(ParameterError, match="schema= for a table, width= for a matrix"):
        dpvb.LogisticRegression(**BOUNDED).dry_run()
    for width in (0, 1.5, "3"):
        with pytest.raises(ParameterError, match="width must be"):
            dpvb.LogisticRegression(**BOUNDED).dry_run(width=width)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="n_units must be"):
        dpvb.LogisticRegression(**BOUNDED).dry_run(width=2, n_units=0)
    with pytest.raises(DataFormatError, match="2 columns"):
        dpvb.LDA(2, **BUDGET).dry_run(vocabulary=["a"], width=2)


def test_what_a_fit_refuses_its_dry_run_refuses(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        dpvb.LogisticRegression(epsilon=-1.0, delta=1e-5, max_row_norm=1.0).dry_run(width=2)
    with pytest.raises(ParameterError, match="covariance"):
        dpvb.LogisticRegression(covariance="best", **BOUNDED).dry_run(width=2)
    (tmp_path / "m.dpvb").write_text("there")
    Schema(COLUMNS, target=TARGETS["logistic"]).save(tmp_path / "people.json")
    given = ["--schema", tmp_path / "people.json", "--out", tmp_path / "m.dpvb", *TYPED]
    refuse(tmp_path, "already there", "fit", "logistic", tmp_path / "people.csv", *given)


@pytest.mark.guarantees("dry run")
@kills("crashes", "a dry run that is charged")
@edit("estimators/base.py", "        if not is_dry_run:\n", "        if True:\n")
@pytest.mark.parametrize("charged", [False, True])
def test_a_dry_run_has_the_plan_of_its_fit_and_charges_nothing(ledger: Path, tmp_path: Path, charged: bool) -> None:
    """A later plan has the noise that the ledger's filter asks for, and so has its dry run."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(-0.5, 0.5, (200, 3)), rng.integers(2, size=200)
    run = dpvb.Run(ledger=ledger, dataset="a", checkpoint=tmp_path / "run")
    if charged:
        dpvb.LogisticRegression(**BOUNDED).fit(x, y, run=replace(run, checkpoint=None))
    with dpvb.Ledger(ledger) as found:
        before, left = found.entries(), found.remaining("a")
    model = dpvb.LogisticRegression(**BOUNDED)
    dry = model.dry_run(width=3, run=run)
    with dpvb.Ledger(ledger) as found:
        assert found.entries() == before
        assert found.remaining("a") == left
    assert not (tmp_path / "run").exists()
    assert not hasattr(model, "privacy_")
    assert dry.privacy_.charge is None
    assert dry.privacy_.plan_digest == model.fit(x, y, run=run).privacy_.plan_digest


def test_a_ledger_says_whether_the_fit_would_fit(ledger: Path, tmp_path: Path) -> None:
    Schema(COLUMNS, target=TARGETS["logistic"]).save(tmp_path / "people.json")
    given = ["--schema", tmp_path / "people.json", "--out", tmp_path / "m.dpvb", "--ledger", ledger, "--dataset", "a"]
    said = run("fit", "logistic", tmp_path / "nosuch.csv", *given, *TYPED).stderr
    assert "It fits into the budget of 'a'" in said
    said = run("fit", "logistic", tmp_path / "nosuch.csv", *given, *TYPED, "--epsilon", "50").stderr
    assert "does not fit into the budget of 'a'" in said
    model = dpvb.LogisticRegression(epsilon=50.0, delta=1e-5, max_row_norm=1.0)
    with pytest.raises(BudgetError), pytest.warns(DpvbWarning, match="epsilon = 50"):
        model.fit(np.zeros((3, 2)), [0, 1, 0], run=dpvb.Run(ledger=ledger, dataset="a"))


@pytest.mark.guarantees("dry run")
@kills("leaks", "a dry run that promises what it never did")
@edit("results/statement.py", "return not self.dry_run and self.secret_noise", "return self.secret_noise")
@kills("leaks", "a dry run that is saved as a model")
@edit("estimators/base.py", "        if self.privacy_.dry_run:\n", "        if False:\n")
def test_a_dry_run_is_taken_for_no_fit(tmp_path: Path) -> None:
    dry = dpvb.LogisticRegression(**BOUNDED).dry_run(width=2, n_units=50)
    statement = dry.privacy_
    assert not statement.private
    assert "!!! DRY RUN" in str(statement)
    assert "Guarantee      None." in str(statement)
    assert PrivacyStatement.from_dict(statement.to_dict()) == statement
    with pytest.raises(ParameterError, match="save needs a fit to data"):
        dry.save(tmp_path / "m.dpvb")
    assert not (tmp_path / "m.dpvb").exists()
    fitted = dry.fit(np.zeros((3, 2)), [0, 1, 0])  # A fit of private rows is one, whatever was before.
    assert fitted.privacy_.private
    fitted.save(tmp_path / "m.dpvb")
    facts = {name: value for name, value in fitted.privacy_.to_dict().items() if name != "dry_run"}
    assert PrivacyStatement.from_dict(facts) == fitted.privacy_  # What earlier versions wrote is of no dry run.


@pytest.mark.parametrize("name", TARGETS)
def test_made_up_rows_have_no_fault(name: str) -> None:
    schema = Schema(COLUMNS, target=TARGETS[name], group="who")
    cells = synthetic_rows.drawn_cells(schema, 2_000, np.random.default_rng(1))
    num_rows, found = check_data._of_table(Table(cells, schema))
    assert num_rows == 2_000
    assert {word for words in found.values() for word in words} == {"none", ""}
    for spec in COLUMNS[2:]:  # Each of 2 or 3 values is missing with a chance below 3 (2/3)^2000.
        assert set(cells[spec.name]) == set(spec.categories if isinstance(spec, Categorical) else spec.values)
    assert len(set(cells["who"])) == 2_000


@pytest.mark.parametrize("max_row_norm", [1.0, 250.0])
def test_rows_of_a_made_up_matrix_lie_within_their_norm(max_row_norm: float) -> None:
    model = dpvb.LogisticRegression(**BUDGET, max_row_norm=max_row_norm)
    found = synthetic_rows.arguments(model, 500, schema=None, vocabulary=None, width=4, responses=None, grouped=True)
    assert found["X"].shape == (500, 4)
    norm_n = np.linalg.norm(found["X"], axis=1)
    assert max_row_norm / 2 < norm_n.max() <= max_row_norm  # One row is below half with a chance of π²/32.
    assert set(found["y"]) == {0, 1}
    assert len(set(found["group"])) == 500


def test_rows_of_a_made_up_matrix_fill_the_ranges_of_their_columns() -> None:
    declared = SimpleNamespace(low=-1.0, high=[1.0, 9.0], max_row_norm=None)
    x_nd = synthetic_rows.drawn_numbers(declared, np.random.default_rng(0).random((500, 2)))
    assert (np.floor(x_nd.min(axis=0)) == [-1, -1]).all()
    assert (np.ceil(x_nd.max(axis=0)) == [1, 9]).all()  # Within a tenth of each end: missed with a chance of 0.9^500.


def test_a_model_of_ones_own() -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "user_models"))
    try:
        from mixture import Mixture
    finally:
        sys.path.pop(0)
    private = dpvb.PrivateModel(Mixture(3, 2), max_row_norm=1.0, **BUDGET)
    dry = private.dry_run(width=2, n_units=200)
    assert dry.privacy_.dry_run
    with pytest.raises(ParameterError, match="width="):
        private.dry_run()
    with pytest.raises(ParameterError, match="with 5 features as in X"):
        private.dry_run(width=5)


@pytest.mark.parametrize("responses", [None, 0, 2])
def test_a_density_of_ones_own(responses: int | None) -> None:
    jnp = pytest.importorskip("jax.numpy")

    def log_density(theta: Any, x: Any, *y: Any) -> Any:
        seen = jnp.sum(y[0]) if y else 0.0
        return -((seen - jnp.dot(theta, x)) ** 2)

    model = dpvb.DPVI(log_density, parameters=3, n_steps=3, **BUDGET)
    dry = model.dry_run(width=3, responses=responses, n_units=50)
    assert dry.loc_.shape == (3,)
    assert dry.privacy_.dry_run
