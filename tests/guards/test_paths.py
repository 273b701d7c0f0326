"""Public arguments that are paths: a number is a descriptor of `open`, and no path."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dpvb
from dpvb.data import Schema
from dpvb.data.tables.ranged import Numeric
from dpvb.errors import ParameterError
from dpvb.federated.config import Agreement, ClientConfig, ServerConfig
from dpvb.federated.keys import Identity
from dpvb.guards.errors import check_path
from dpvb.ledger import Ledger
from dpvb.ledger.verify import verify_export
from dpvb.results import model_file, pictures

SCHEMA = Schema((Numeric("age", 0, 1),))


@pytest.mark.parametrize("odd", [5, True, None, b"a", "", 1.0, ["a"]])
def test_what_is_no_path_is_refused(odd: object) -> None:
    with pytest.raises(ParameterError, match="where must be a path, as text or as pathlib has it, got"):
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
    "picture": lambda chain, place: pictures._write(pictures._figure_class()(), place),
    "checkpoint": lambda chain, place: dpvb.MarkovChain(2, epsilon=1, delta=1e-6, checkpoint=place).fit([[0]]),
    "ledger": lambda chain, place: Ledger(place),
}


@pytest.mark.parametrize("name", CALLS)
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
