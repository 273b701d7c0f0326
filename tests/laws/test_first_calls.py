"""First calls that lack something, or have it in another form: one line that says what, the range, and the way out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.data import Numeric, Schema, Table, check_vocabulary, open_documents
from dpvb.errors import DpvbError, ParameterError

X, Y = np.eye(4), [0, 1, 0, 1]
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}

LACKING: dict[str, tuple[Callable[[], Any], str]] = {
    "delta": (
        lambda: dpvb.LogisticRegression(epsilon=1.0),
        r"^LogisticRegression needs delta=, parameter δ of .* in \(0, 1\), for example 1e-6;.*\.$",
    ),
    "delta, topics": (lambda: dpvb.LDA(20, epsilon=1.0), "^LDA needs delta=, parameter δ of the guarantee"),
    "epsilon": (lambda: dpvb.SigmoidBeliefNetwork(delta=1e-5), r"^SigmoidBeliefNetwork needs epsilon=, .*\(0, inf\]"),
    "dispersion": (
        lambda: dpvb.NegativeBinomialRegression(**BUDGET, max_count=9, max_row_norm=1.0, covariance="diagonal").fit(
            X, Y
        ),
        r"^dispersion must be a number, unless .* learns it, got None\. dpvb\.private_select chooses among several\.$",
    ),
    "everything": (
        lambda: dpvb.NegativeBinomialRegression(),
        "needs epsilon=, .*; and delta=, .*; and max_count=, public upper bound on a count",
    ),
    "trials": (lambda: dpvb.BinomialRegression(**BUDGET), "^BinomialRegression needs max_trials=, public upper bound"),
    "schema": (
        lambda: Table({"a": [1.0]}),
        r"^schema must be a dpvb\.Schema, .*, got NoneType\. Read one .*`dpvb schema --header FILE` writes one",
    ),
    "delta, selection": (
        lambda: dpvb.private_select(dpvb.LogisticRegression(**BUDGET, max_row_norm=1.0), [{}], X, Y, epsilon=1.0),
        r"^private_select needs delta=, parameter δ of .* in \(0, 1\), for example 1e-6; .*n units\.$",
    ),
    "budget, selection": (
        lambda: dpvb.private_select(dpvb.LogisticRegression(**BUDGET, max_row_norm=1.0), [{}], X, Y),
        r"^private_select needs epsilon=, privacy budget ε of the whole selection, in \(0, inf\]; and delta=, param",
    ),
    "range": (
        lambda: dpvb.private_range([1.0], epsilon=1.0),
        r"^private_range needs low= and high=, public limits of a grid .*low below high; and delta=, .*\(0, 1\)",
    ),
    "delta, accountant": (
        lambda: dpvb.accounting.epsilon(noise_multiplier=1.0, sampling_prob=0.1, n_steps=10),
        r"^epsilon needs delta=, δ of the guarantee, in \(0, 1\)\.$",
    ),
    "noise, accountant": (
        lambda: dpvb.accounting.epsilon(delta=1e-6, sampling_prob=0.1),
        r"^Event needs noise_multiplier=, noise standard deviation over the clip norm C; 0 means no noise",
    ),
}


@pytest.mark.parametrize("what", LACKING)
def test_what_is_lacking_is_said_with_its_range(what: str) -> None:
    call, said = LACKING[what]
    with pytest.raises(ParameterError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def _callables() -> list[str]:
    """Public functions, and the classes that a first call makes; forms and blocks are made inside a model."""
    found = [name for name in dpvb.__all__ if inspect.isfunction(getattr(dpvb, name))]
    return [*found, "Ledger", "Schema", "Table", "LDA", "PrivateModel"]


@pytest.mark.parametrize("name", _callables())
def test_a_call_of_nothing_is_answered_in_words(name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name} needs .*=, .+|^columns must be a list of Numeric, .*, at least"):
        getattr(dpvb, name)()


def test_a_data_set_is_registered_with_all_that_it_needs(tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        with pytest.raises(
            ParameterError, match=r"^Ledger\.register needs .*neighboring_relation=.*\[0, 1e6\].*delta="
        ):
            ledger.register("people", unit="row")  # type: ignore[call-arg]
        assert ledger.datasets() == []


TEXTS: dict[str, Callable[[Any], Any]] = {
    **{
        f"epsilon, {covariance}": lambda value, covariance=covariance: dpvb.LogisticRegression(  # type: ignore[misc]
            epsilon=value, delta=1e-5, max_row_norm=1.0, covariance=covariance
        ).fit(X, Y)
        for covariance in ("full", "diagonal")
    },
    "epsilon, topics": lambda value: dpvb.LDA(2, public_vocabulary=True, epsilon=value, delta=1e-5).fit(X),
    "epsilon, network": lambda value: dpvb.SigmoidBeliefNetwork(2, epsilon=value, delta=1e-5).fit(X),
    "epsilon, range": lambda value: dpvb.private_range([1.0], low=0, high=1, epsilon=value, delta=1e-5),
    "delta": lambda value: dpvb.LogisticRegression(epsilon=1.0, delta=value, max_row_norm=1.0).fit(X, Y),
    "max_row_norm": lambda value: dpvb.LogisticRegression(**BUDGET, max_row_norm=value).fit(X, Y),
    "dispersion": lambda value: dpvb.NegativeBinomialRegression(
        **BUDGET, max_row_norm=1.0, max_count=3, dispersion=value
    ).fit(X, Y),
}


@pytest.mark.parametrize("value", ["inf", "1.0"])
@pytest.mark.parametrize("what", TEXTS)
def test_a_number_that_was_typed_as_text_is_refused_in_one_line(what: str, value: str) -> None:
    name = what.split(",")[0]
    with pytest.raises(
        ParameterError, match=rf"^{name} must be a number in .*, got '{value}'\. .*float\('inf'\)"
    ) as caught:
        TEXTS[what](value)
    assert "\n" not in str(caught.value)


MISSING: dict[str, Callable[[Path], Any]] = {
    "documents": lambda path: open_documents(path, vocabulary=["a"]),
    "documents in a format": lambda path: open_documents(path, vocabulary=["a"], file_format="csv"),
    "documents in a folder": lambda path: open_documents(path, vocabulary=["a"], file_format="folder"),
    "documents in files": lambda path: open_documents([path, path.with_suffix(".csv")], vocabulary=["a"]),
    **{
        suffix: lambda path, suffix=suffix: open_documents(path.with_suffix(suffix), vocabulary=["a"])  # type: ignore[misc]
        for suffix in (".csv", ".txt", ".jsonl", ".npz", ".mtx", ".dat", ".parquet", ".csv.gz")
    },
    "table": lambda path: Table(path, Schema((Numeric("a", 0, 1),))),
    "table of CSV": lambda path: Table(path.with_suffix(".csv"), Schema((Numeric("a", 0, 1),))),
    "table of Parquet": lambda path: Table(path.with_suffix(".parquet"), Schema((Numeric("a", 0, 1),))),
    "table of files": lambda path: Table([path.with_suffix(".csv")], Schema((Numeric("a", 0, 1),))),
    "schema": Schema.load,
    "vocabulary": check_vocabulary,
    "model": dpvb.load,
}


@pytest.mark.parametrize("what", MISSING)
def test_a_file_that_is_not_there_is_said_to_be_missing(what: str, tmp_path: Path) -> None:
    with pytest.raises(DpvbError, match="there is no such file") as caught:
        MISSING[what](tmp_path / "nosuch")
    assert "nosuch" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_package_shows_its_public_names_alone() -> None:
    shown = dir(dpvb)
    assert {"Table", "Schema", "LogisticRegression", "Ledger", "data", "__version__"} <= {*shown}
    assert shown == sorted({*shown})
    assert not {"Any", "TYPE_CHECKING", "annotations", "import_module"} & {*shown}
    assert all(getattr(dpvb, name) is not None for name in shown)
    assert not [name for name in shown if name.startswith("_") and name != "__version__"]
    assert dpvb.Table is Table
    assert dpvb.Schema is Schema


@pytest.mark.filterwarnings("ignore::dpvb.errors.NotSettledWarning")  # Age separates the labels.
def test_the_first_call_of_scikit_learns_users_with_a_table_of_their_own() -> None:
    rng = np.random.default_rng(0)
    age = rng.uniform(18, 90, 400)
    schema = dpvb.Schema((Numeric("age", 18, 90),))
    table = dpvb.Table({"age": age}, schema)
    model = dpvb.LogisticRegression(epsilon=math.inf, delta=1e-5, n_steps=5).fit(table, age > 50)
    assert model.coef_[0, 0] > 0
