"""CSV as it is written in Europe: the same rows under any separator, decimal sign and encoding."""

from __future__ import annotations

import gzip
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from each import each
from planted import edit, kills

import dpvb
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target, open_documents
from dpvb.data.csv_files import ENCODINGS, Dialect
from dpvb.errors import DataFormatError, ParameterError

FRAME = pd.DataFrame(
    {
        "größe": [1.5, 1.725, -0.25, 2.0, math.nan],
        "dosis": [0.5, 1.0, 2.5, 0.5, 7.0],
        "stadt": ["Köln", "Århus", "köln", "Łódź", "Bern"],
        "krank": ["ja", "nein", "Ja", "NEIN", "ja"],
        "wer": ["é", "b", "é", "c", "b"],
    }
)
SCHEMA = Schema(
    (
        Numeric("größe", 0, 2),
        Categorical("dosis", (0.5, 1, 2.5)),
        Categorical("stadt", ("köln", "århus")),
    ),
    Target("krank", classes=("nein", "ja")),
)


def rows(table: Table, **options: Any) -> np.ndarray:
    chunks = [np.column_stack([c.rows.x_nd, c.rows.y_n]) for c in table.design(**options).chunks()]
    return np.vstack(chunks)


def written(path: Path, separator: str, decimal: str, encoding: str, frame: pd.DataFrame = FRAME) -> Path:
    path.write_bytes(frame.to_csv(sep=separator, decimal=decimal, index=False).encode(encoding, "replace"))
    return path


@pytest.mark.guarantees("CSV")
@each("stream", [True, False])
@each("encoding", ["utf-8", "latin-1", "cp1252", "iso-8859-15", "cp1257"])
@each(
    ("separator", "decimal"), [(",", "."), (";", ","), (";", "."), ("\t", ","), ("tab", ","), ("\\t", "."), ("|", ",")]
)
def test_the_same_rows_however_a_file_is_written(
    tmp_path: Path, separator: str, decimal: str, encoding: str, stream: bool
) -> None:
    mark = "\t" if separator in ("tab", "\\t") else separator
    path = written(tmp_path / "t.csv", mark, decimal, encoding)
    how = {"separator": separator, "decimal": decimal, "encoding": encoding, "stream": stream}
    np.testing.assert_array_equal(rows(Table(path, SCHEMA, **how)), rows(Table(FRAME, SCHEMA)))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    np.testing.assert_array_equal(rows(Table(tmp_path / "t.csv.gz", SCHEMA, **how)), rows(Table(FRAME, SCHEMA)))


@pytest.mark.guarantees("CSV")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_that_is_read_has_ascii_in_its_bytes_and_nowhere_else(encoding: str) -> None:
    """So that records can be cut before they are decoded."""
    for byte in range(256):
        try:
            sign = bytes([byte]).decode(encoding)
        except UnicodeDecodeError:
            continue
        assert (sign == chr(byte)) if byte < 128 else not sign.isascii()


def test_encodings_have_many_names() -> None:
    names = ["UTF8", "utf-8-sig", "latin1", "ISO-8859-1", "windows-1252", "cp1252", "l9", "mac_roman"]
    assert [Dialect(encoding=name).encoding for name in names] == [
        *("utf-8", "utf-8", "latin-1", "latin-1", "cp1252", "cp1252", "iso-8859-15", "mac-roman")
    ]


def test_a_decimal_comma_is_a_point_and_a_point_is_none(tmp_path: Path) -> None:
    cells = ["1,5", " +1,5 ", "15e-1", ",5", "1,", "1.5", "1.500,0", "1,5,0", "2", "", "nan", "1,5 €"]
    (tmp_path / "t.csv").write_text("v;y\n" + "".join(f"{cell};1\n" for cell in cells))
    schema = Schema((Numeric("v", 0, 2),), Target("y"))
    found = rows(Table(tmp_path / "t.csv", schema, separator=";", decimal=","), fit_intercept=False)
    expected = [1.5, 1.5, 1.5, 0.5, 1, math.nan, math.nan, math.nan, 2, math.nan, math.nan, math.nan]
    np.testing.assert_allclose(found[:, 0] * schema.max_row_norm * 2, expected)


def test_counts_and_trials_have_decimal_commas_too_and_ids_are_as_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("v;hits;shots;who\n1;2,0;3,0;1,5\n1;1;4,0;1.5\n")
    schema = Schema((Numeric("v", 0, 2),), Target("hits", "binomial", max_trials=4, trials="shots"), group="who")
    (chunk,) = Table(tmp_path / "t.csv", schema, separator=";", decimal=",").design().chunks()
    assert (chunk.rows.y_n.tolist(), chunk.rows.trials_n.tolist()) == ([2, 1], [3, 4])
    assert chunk.num_units == 2


def test_a_declared_text_that_a_decimal_comma_makes_a_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", ";", ",", "utf-8")
    how = {"separator": ";", "decimal": ","}
    for columns, target in (
        ((Categorical("dosis", ("0,5", "1")),), None),
        ((Binary("dosis", (1, "0,5")),), None),
        ((Numeric("größe", 0, 1),), Target("dosis", classes=("0,5", "1"))),
    ):
        with pytest.raises(
            ParameterError, match=r"column 'dosis' has the value '0,5', but .* number 0\.5: declare that"
        ):
            Table(path, Schema(columns, target), **how)
        Table(path, Schema(columns, target), separator=";")


@pytest.mark.guarantees("CSV")
@kills("readers", "a byte that is nothing in the encoding of a CSV file fails the file")
@edit(
    "data/csv_files.py",
    "        except UnicodeDecodeError:\n            return UNREADABLE\n",
    "        except TypeError:\n            return UNREADABLE\n",
)
def test_bytes_that_are_no_text_reach_their_own_field(tmp_path: Path) -> None:
    """0x81 is nothing in cp1252."""
    (tmp_path / "t.csv").write_bytes(b"c;y\n\xe9;1\n\x81;1\n\xe9;0\n")
    schema = Schema((Categorical("c", ("é",), other=False, missing=False),), Target("y"))
    found = rows(Table(tmp_path / "t.csv", schema, separator=";", encoding="cp1252"))
    assert np.isnan(found).all(axis=1).tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a;b;y\n1;2;0\n", "the header has one field with ';' in it: separator=';'"),
        (b"a\tb\ty\n1\t2\t0\n", r"the header has one field with '\\t' in it: separator='\\t'"),
        (b"a|b|y\n1|2|0\n", r"the header has one field with '\|' in it: separator='\|'"),
        (b"\xe9,a\n1,2\n", "the header is not valid UTF-8: declare encoding='cp1252', 'latin-1' or another"),
        ("a,b,y\n1,2,0\n".encode("utf-16"), "it holds zero bytes, as UTF-16 does: save the file as UTF-8"),
    ],
)
def test_an_error_about_the_header_says_what_the_header_shows(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataFormatError, match=said):
        Table(tmp_path / "t.csv", Schema((Numeric("b", 0, 1),), Target("y")))
    with pytest.raises(DataFormatError, match=said):
        open_documents(tmp_path / "t.csv", vocabulary=["a", "b"], text_column="b")


def test_another_separator_than_the_files_is_found_out_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b,y\n1,2,0\n")
    with pytest.raises(DataFormatError, match="one field with ',' in it: separator=','"):
        Table(tmp_path / "t.csv", Schema((Numeric("b", 0, 1),), Target("y")), separator=";")
    with pytest.raises(DataFormatError, match="names the column 'c' once; every column"):
        Table(tmp_path / "t.csv", Schema((Numeric("c", 0, 1),), Target("y")))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"separator": ":"}, "separator must be one of ',', ';', '|', .* got ':'. A tab may be written as tab"),
        ({"separator": ""}, "separator must be one of"),
        ({"separator": 5}, "separator must be one of"),
        ({"separator": ",", "decimal": ","}, "separator must be another sign than decimal"),
        ({"decimal": "'"}, "decimal must be one of '.', ','"),
        ({"encoding": "utf-16"}, "encoding must be one of 'utf-8', 'latin-1', .* got 'utf-16'. .* as UTF-8"),
        ({"encoding": "hex"}, "encoding must be one of"),
        ({"encoding": "a\0b"}, "encoding must be one of"),
        ({"encoding": None}, "encoding must be one of"),
    ],
)
def test_faulty_dialects_are_refused_with_what_there_is(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    path = written(tmp_path / "t.csv", ",", ".", "utf-8")
    with pytest.raises(ParameterError, match=said):
        Table(path, SCHEMA, **how)
    if "decimal" not in how:
        with pytest.raises(ParameterError, match=said):
            open_documents(path, vocabulary=["a"], **how)


def test_documents_in_another_encoding(tmp_path: Path) -> None:
    words = ["köln", "bern"]
    texts = ["Köln Köln; Bern", "", "Bern"]
    counts = [[2, 1], [0, 0], [0, 1]]
    options = {"vocabulary": words, "token_pattern": "[a-zäöü]+"}

    def found(path: Path, **how: Any) -> list[list[float]]:
        units = open_documents(path, **options, **how)
        return [row for chunk in units.chunks() for row in chunk.rows.csr().toarray().tolist()]

    lines = "".join(f"{text}\n" for text in texts)
    (tmp_path / "t.txt").write_text(lines, encoding="latin-1")
    assert found(tmp_path / "t.txt", encoding="latin-1") == counts
    pd.DataFrame({"text": texts}).to_csv(tmp_path / "t.csv", sep=";", index=False, encoding="cp1252")
    assert found(tmp_path / "t.csv", separator=";", encoding="cp1252") == counts
    (tmp_path / "notes").mkdir()
    for n, text in enumerate(texts):
        (tmp_path / "notes" / f"{n}.txt").write_text(text, encoding="cp1252")
    assert found(tmp_path / "notes", encoding="windows-1252") == counts
    (tmp_path / "t.jsonl").write_text("{}\n")
    with pytest.raises(ParameterError, match="encoding needs a csv or txt file or a folder"):
        found(tmp_path / "t.jsonl", encoding="latin-1")


def test_several_files_of_persons_are_read_as_one_is(tmp_path: Path) -> None:
    schema = Schema(SCHEMA.columns, SCHEMA.target, group="wer")
    how = {"separator": ";", "decimal": ",", "encoding": "latin-1"}
    paths = [written(tmp_path / f"{n}.csv", ";", ",", "latin-1", part) for n, part in enumerate((FRAME[:3], FRAME[3:]))]
    model = dpvb.LogisticRegression(epsilon=math.inf, delta=1e-6, n_steps=3)
    several = model.fit(Table(paths, schema, **how)).coef_
    # Rows of b in the second file do not count: b has one in the first.
    alone = model.fit(Table(FRAME[:4], schema)).coef_
    np.testing.assert_allclose(several, alone, rtol=1e-9)
