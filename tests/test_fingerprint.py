"""Keyed digests of private data: equal for equal data alone, of every source that ships."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpvb.audit import NAMES, Case, shipped
from dpvb.data import Numeric, Schema, Table, Target, open_documents
from dpvb.data.design import Response
from dpvb.fingerprint import fingerprint

KEY = b"0" * 32
CASES = [case for name in NAMES for case in shipped(name)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_it_tells_data_apart_and_nothing_else(case: Case) -> None:
    matrix = case.records(np.random.default_rng(0), 40)
    person = np.arange(40) // 2

    def of(rows: Any, group: Any = None, key: bytes = KEY) -> str:
        return fingerprint(key, case.source(rows, group).chunks())

    first = of(matrix)
    assert of(matrix.copy()) == first
    changed = matrix.copy()
    changed[7] = case.modest
    others = [of(changed), of(matrix[:-1]), of(matrix[::-1]), of(np.vstack([matrix, matrix[:1]]))]
    others += [of(matrix, person), of(matrix, person[::-1] // 3), of(matrix, key=b"1" * 32)]
    assert len({first, *others}) == 1 + len(others)


def test_streams_have_one(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,y\n1,0\n2,1\n3,1\n")
    (tmp_path / "notes.csv").write_text("text\nwarm rain\ncold rain\n")
    table = Table(tmp_path / "x.csv", Schema((Numeric("a", 0, 5),), Target("y", classes=(0, 1))))
    design = table.design(None, None, response=Response("logistic", classes=(0, 1)), fit_intercept=True)
    documents = open_documents(tmp_path / "notes.csv", vocabulary=["rain", "warm", "cold"])
    for source in (design, documents):
        first = fingerprint(KEY, source.chunks())
        assert fingerprint(KEY, source.chunks()) == first
    (tmp_path / "notes.csv").write_text("text\nwarm rain\ncold cold\n")
    others = open_documents(tmp_path / "notes.csv", vocabulary=["rain", "warm", "cold"])
    assert fingerprint(KEY, others.chunks()) != first


@dataclass
class _Chunk:
    rows: Any
    unit_of_row: Any = None
    num_units: int = 2


def test_values_that_look_alike_are_told_apart() -> None:
    values: list[Any] = [
        *[np.zeros(4), np.zeros((2, 2)), np.zeros(4, np.float32), np.zeros(8, np.float32), np.zeros(4, np.int64)],
        *[None, 0, 0.0, False, "0", b"0", (), [()], (0, 0), ("a", "bc"), ("ab", "c"), (np.zeros(1), np.zeros(1))],
        *[sparse.csr_array(np.eye(2)), np.eye(2), np.zeros(2), -np.zeros(2), np.float64(0.0)],
    ]
    found = [fingerprint(KEY, [_Chunk(value)]) for value in values]
    assert len(set(found)) == len(values)
    columns = sparse.csc_array(np.array([[0, 1.0], [2, 0]]))
    assert fingerprint(KEY, [_Chunk(columns)]) == fingerprint(KEY, [_Chunk(columns.tocsr())])
    assert fingerprint(KEY, [_Chunk(np.eye(2)[:, ::-1])]) == fingerprint(KEY, [_Chunk(np.eye(2)[:, ::-1].copy())])
    for unknown in (np.array(["a", None], dtype=object), object(), {"a": 1}):
        with pytest.raises(TypeError, match="no fingerprint"):
            fingerprint(KEY, [_Chunk(unknown)])
