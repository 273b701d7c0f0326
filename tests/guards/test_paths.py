"""Public arguments that are paths: a number is a descriptor of `open`, and no path."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from each import each

import dpvb
from dpvb.data import Events, Schema, Table, open_documents
from dpvb.data.tables.ranged import Numeric
from dpvb.errors import DpvbError, ParameterError
from dpvb.federated.config import Agreement, Certificate, ClientConfig, ServerConfig, _Table
from dpvb.federated.keys import Identity
from dpvb.guards.errors import check_path
from dpvb.ledger import Ledger
from dpvb.ledger.verify import verify_export
from dpvb.results import model_file, plots
from dpvb.results.figures import Facts
from dpvb.runs.checkpoint import Checkpoint

SCHEMA = Schema((Numeric("age", 0, 1),))

TABLE = Facts(title="t", head=("a",), rows=(("b",),))
CERTIFICATE = Certificate.generate("localhost")


@pytest.mark.parametrize("odd", [5, True, None, b"a", "", 1.0, ["a"]])
def test_what_is_no_path_is_refused(odd: object) -> None:
    with pytest.raises(ParameterError, match=r"where must be a path \(a text or a pathlib.Path\), got"):
        check_path("where", odd)


def test_a_path_is_as_it_was_given(tmp_path: Path) -> None:
    assert check_path("where", tmp_path) == check_path("where", os.fspath(tmp_path)) == tmp_path


@pytest.fixture(scope="module")
def chain() -> Any:
    return dpvb.MarkovChain(2, epsilon=math.inf, delta=1e-6).fit([[0, 1, 1]])


CALLS: dict[str, Callable[[Any, int], object]] = {
    "save": lambda chain, place: chain.save(place),
    "load": lambda chain, place: dpvb.load(place),
    "model file": lambda chain, place: model_file.load(place),
    "report": lambda chain, place: chain.report().save(place),
    "schema": lambda chain, place: SCHEMA.save(place),
    "schema from": lambda chain, place: Schema.load(place),
    "export": lambda chain, place: Ledger("memory.db").export(place),
    "verify": lambda chain, place: verify_export(place),
    "agreement": lambda chain, place: Agreement.load(place),
    "server": lambda chain, place: ServerConfig.load(place),
    "client": lambda chain, place: ClientConfig.load(place),
    "identity": lambda chain, place: Identity.generate("a").save(place),
    "identity from": lambda chain, place: Identity.load(place),
    "picture": lambda chain, place: plots._write(plots._matplotlib("matplotlib.figure").Figure(), place),
    "checkpoint": lambda chain, place: dpvb.MarkovChain(2, epsilon=1, delta=1e-6).fit(
        [[0]], run=dpvb.Run(checkpoint=place)
    ),
    "ledger": lambda chain, place: Ledger(place),
}


def lda(**given: Any) -> Any:
    return dpvb.LDA(2, epsilon=1, delta=1e-6, **given)


def logistic(**given: Any) -> Any:
    return dpvb.LogisticRegression(epsilon=1, delta=1e-6, low=0, high=1, **given)


def charged(place: Any) -> object:
    return dpvb.MarkovChain(2, epsilon=1, delta=1e-6).fit([[0]], run=dpvb.Run(ledger=place, dataset="a"))


#: What else takes a path, or reads a text as one.
READS: dict[str, Callable[[Any, Any], object]] = {
    "table": lambda chain, place: Table(place, SCHEMA),
    "tables": lambda chain, place: Table([place], SCHEMA),
    "table larger than memory": lambda chain, place: Table(place, SCHEMA, stream=True),
    "texts": lambda chain, place: open_documents(place, vocabulary=["a"]),
    "texts of several files": lambda chain, place: open_documents([place], vocabulary=["a"]),
    "words": lambda chain, place: open_documents("notes.txt", vocabulary=place),
    "words of a fit": lambda chain, place: lda(vocabulary=place).fit(["a"]),
    "words to leave out": lambda chain, place: lda(vocabulary="private", stop_words=place).fit(["a"]),
    "prior of topics": lambda chain, place: lda(vocabulary=["a"], prior=place).fit(["a"]),
    "prior of coefficients": lambda chain, place: logistic(prior=place).fit([[0.0]], [0]),
    "texts of a fit": lambda chain, place: lda(vocabulary=["a"]).fit(place),
    "table of a fit": lambda chain, place: logistic().fit(place, [0]),
    "events": lambda chain, place: Events(place),
    "events of a fit": lambda chain, place: dpvb.MarkovChain(2, epsilon=1, delta=1e-6).fit(place),
    "coefficients": lambda chain, place: TABLE.to_csv(place),
    "ledger of a fit": lambda chain, place: charged(place),
    "run": lambda chain, place: Checkpoint(place),
    "plot": lambda chain, place: chain.plot(place),
    "certificate": lambda chain, place: CERTIFICATE.save(place),
    "key of a configuration": lambda chain, place: _Table({"key": place}, Path("x.toml")).path("key"),
}
#: Texts that no file of this system has as its path.
ODD = {"null": "a\0b", "empty": "", "surrogate": "a\ud800b", "long name": "a" * 300, "long path": "a/" * 3_000}
NAMED = re.compile(
    "(path|path_or_url|data|vocabulary|stop_words|prior|ledger|checkpoint|X|Documents|x.toml: key) must "
)


@each("odd", ODD)
@each("name", sorted((CALLS | READS).keys() - {"checkpoint"}))
def test_a_text_that_is_no_path_is_refused_by_its_parameters_name(
    chain: Any, name: str, odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a")
    before = {*os.listdir(tmp_path)} | {"memory.db", "memory.db.head"}  # A ledger that is to be exported.
    with pytest.raises(DpvbError, match=NAMED):
        (CALLS | READS)[name](chain, ODD[odd])
    assert {*os.listdir(tmp_path)} <= before


# Texts may lie in a folder, a run has one, and Matplotlib adds the ending of its format to a name that has none.
FOLDERS = {"texts", "texts of several files", "run", "checkpoint", "key of a configuration", "picture"}


@each("name", sorted((CALLS | READS).keys() - FOLDERS))
def test_a_folder_in_place_of_a_file_is_refused(
    chain: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("a")
    (tmp_path / "folder").mkdir(exist_ok=True)
    with pytest.raises(DpvbError):
        (CALLS | READS)[name](chain, "folder")


@each("name", CALLS)
def test_a_number_is_no_path_and_its_descriptor_stays_untouched(
    chain: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with open(tmp_path / "open", "w+b") as file:
        file.write(b"kept")
        file.flush()
        with pytest.raises(ParameterError):
            CALLS[name](chain, file.fileno())
        assert os.fstat(file.fileno()).st_size == 4
    assert (tmp_path / "open").read_bytes() == b"kept"
