"""Streams are parsed once: the first pass writes rows to a file without a name, and later passes have the same rows."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import scipy.io
from scipy import sparse

import dpvb
from dpvb.audit.readers import units_of
from dpvb.core.noise import InsecureNoise
from dpvb.data import Binary, Categorical, Numeric, Schema, Table, Target, open_documents
from dpvb.data.documents import matrix_files
from dpvb.data.documents.vocabulary import Tokenizer
from dpvb.data.parsed_once import ParsedOnce, _is_in_memory, _Pieces
from dpvb.data.stored import Stored
from dpvb.data.tables import table as table_module
from dpvb.data.tables.mixed import Layout

WORDS = ["red", "green", "blue"]
SCHEMA = Schema((Numeric("a", 0, 1), Categorical("b", ("x", "y")), Binary("c")), Target("d"))
LAYOUT = Layout.of(SCHEMA)
ROWS = 40
# Pieces of eight rows.
PIECE = 8


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("dpvb.data.tables.table.MAX_ROWS", PIECE)
    monkeypatch.setattr("dpvb.kernels.spans.MAX_ROWS", PIECE)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))


def frame() -> Any:
    rng = np.random.default_rng(0)
    cells = {"a": rng.random(ROWS).round(3), "b": rng.choice([*"xyz"], ROWS), "c": rng.integers(0, 2, ROWS)}
    return pd.DataFrame({**cells, "d": rng.integers(0, 2, ROWS)})


def csv(folder: Path) -> Path:
    frame().to_csv(folder / "x.csv", index=False)
    return folder / "x.csv"


def csvs(folder: Path) -> list[Path]:
    for place in range(2):
        frame()[place::2].to_csv(folder / f"{place}.csv", index=False)
    return [folder / "0.csv", folder / "1.csv"]


def text(folder: Path, name: str = "x.txt") -> Path:
    rng = np.random.default_rng(1)
    (folder / name).write_text("".join(" ".join(rng.choice(WORDS, 5)) + "\n" for _ in range(ROWS)))
    return folder / name


def counts(folder: Path) -> Path:
    matrix = sparse.csr_matrix(np.random.default_rng(2).integers(0, 3, (ROWS, 3)))
    scipy.io.mmwrite(folder / "x.mtx", matrix)
    return folder / "x.mtx"


class Form(NamedTuple):
    """Data that are streamed, the same in memory, and the parser that a pass calls."""

    streamed: Callable[[Path], Any]
    held: Callable[[Path], Any]
    parser: tuple[Any, str]


TABLE_PARSER, TEXT_PARSER = (table_module, "csv_records"), (Tokenizer, "slabs")
FORMS = {
    "design": Form(
        lambda folder: Table(csv(folder), SCHEMA, stream=True).design(),
        lambda folder: Table(frame(), SCHEMA).design(),
        TABLE_PARSER,
    ),
    "sparse design": Form(
        lambda folder: Table(csv(folder), SCHEMA, stream=True).design(sparse_rows=True),
        lambda folder: Table(frame(), SCHEMA).design(sparse_rows=True),
        TABLE_PARSER,
    ),
    "labels beside a file": Form(
        lambda folder: Table(csv(folder), SCHEMA, stream=True).design(1 - frame()["d"]),
        lambda folder: Table(frame(), SCHEMA).design(1 - frame()["d"]),
        TABLE_PARSER,
    ),
    "design of two files": Form(
        lambda folder: Table(csvs(folder), SCHEMA).design(),
        lambda folder: Table(pd.concat([frame()[0::2], frame()[1::2]]), SCHEMA).design(),
        TABLE_PARSER,
    ),
    "mixture": Form(
        lambda folder: Table(csv(folder), SCHEMA, stream=True).mixed(LAYOUT),
        lambda folder: Table(frame(), SCHEMA).mixed(LAYOUT),
        TABLE_PARSER,
    ),
    "mixture of two files": Form(
        lambda folder: Table(csvs(folder), SCHEMA).mixed(LAYOUT),
        lambda folder: Table(pd.concat([frame()[0::2], frame()[1::2]]), SCHEMA).mixed(LAYOUT),
        TABLE_PARSER,
    ),
    "text": Form(
        lambda folder: open_documents(text(folder), vocabulary=WORDS, stream=True),
        lambda folder: open_documents(text(folder), vocabulary=WORDS),
        TEXT_PARSER,
    ),
    "two files of text": Form(
        lambda folder: open_documents([text(folder), text(folder, "y.txt")], vocabulary=WORDS),
        lambda folder: open_documents([text(folder), text(folder, "y.txt")], vocabulary=WORDS, stream=True),
        TEXT_PARSER,
    ),
    "counts": Form(
        lambda folder: open_documents(counts(folder), stream=True),
        lambda folder: open_documents(counts(folder)),
        (matrix_files, "_read_lines"),
    ),
}


def parsed(monkeypatch: pytest.MonkeyPatch, parser: tuple[Any, str]) -> list[None]:
    """Return a list that grows with every call of a parser."""
    calls: list[None] = []
    place, name = parser
    original = getattr(place, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(None)
        return original(*arguments, **named)

    monkeypatch.setattr(place, name, counted)
    return calls


@pytest.mark.parametrize("form", FORMS)
def test_only_the_first_pass_parses_and_all_have_the_rows_in_memory(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, expected = FORMS[form].streamed(tmp_path), units_of(FORMS[form].held(tmp_path))
    calls = parsed(monkeypatch, FORMS[form].parser)
    assert units_of(source) == expected
    after_one = len(calls)
    assert units_of(source) == expected
    assert source.count() == expected.total()
    assert len(calls) == after_one > 0


def open_files(folder: Path) -> list[str]:
    """Files in a folder that this process has open, with a name or without."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(link))
    return [name for name in found if name.startswith(str(folder))]


@pytest.mark.guarantees("streams")
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not report open files")
@pytest.mark.parametrize("mode", [0o700, 0o777])
def test_the_file_has_no_name_and_goes_with_the_data(mode: int, tmp_path: Path) -> None:
    """Even in a folder that others can write to."""
    (tmp_path / "scratch").chmod(mode)
    source = Table(csv(tmp_path), SCHEMA, stream=True).design()
    units_of(source)
    assert len(open_files(tmp_path / "scratch")) == 1
    assert not [*(tmp_path / "scratch").iterdir()]
    del source
    gc.collect()
    assert not open_files(tmp_path / "scratch")


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1000})())


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills with the third write, whose room no one forecast."""
    original, left = tempfile.TemporaryFile, iter([50, 60])

    class Full:
        def __init__(self, **how: Any) -> None:
            self._file = original(**how)
            self.close, self.fileno = self._file.close, self._file.fileno

        def write(self, buffer: Any) -> int:
            number = next(left, 0)
            if not number:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self._file.write(buffer[:number])

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)


def no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", os.environ["TMPDIR"] + "/gone")


def in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpvb.data.parsed_once._is_in_memory", lambda folder: True)


@pytest.mark.guarantees("streams")
@pytest.mark.parametrize("obstacle", [no_room, full_disk, no_folder, in_memory])
@pytest.mark.parametrize("form", ["design", "mixture", "two files of text"])
def test_where_there_is_no_room_each_pass_parses_and_no_unit_is_left_out(
    form: str, obstacle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: Any, capfd: Any
) -> None:
    source, expected = FORMS[form].streamed(tmp_path), units_of(FORMS[form].held(tmp_path))
    obstacle(monkeypatch)
    calls = parsed(monkeypatch, FORMS[form].parser)
    assert units_of(source) == expected
    after_one = len(calls)
    assert units_of(source) == expected
    assert len(calls) > after_one
    assert not open_files(tmp_path / "scratch")
    # Whether there was room depends on the number of rows.
    assert not recwarn
    assert capfd.readouterr() == ("", "")


def test_a_pass_that_is_broken_off_keeps_nothing(tmp_path: Path) -> None:
    source = Table(csv(tmp_path), SCHEMA, stream=True).design()
    passing = source.chunks()
    next(passing)
    second = source.chunks()
    assert sum(chunk.num_units for chunk in second) == ROWS
    passing.close()
    assert sum(chunk.num_units for chunk in source.chunks()) == ROWS


def test_passes_may_be_interleaved(tmp_path: Path) -> None:
    source = open_documents(text(tmp_path), vocabulary=WORDS, stream=True)
    for _ in range(2):
        for one, other in zip(source.chunks(), source.chunks(), strict=True):
            np.testing.assert_array_equal(one.rows.csr().toarray(), other.rows.csr().toarray())


def test_a_file_that_is_cut_raises_and_leaves_no_row_out() -> None:
    rows = Stored({"v": np.arange(5.0)})
    pieces = ParsedOnce(lambda: iter([rows, rows]), Stored({"v": np.empty(0)}))
    assert len([*pieces.after(0)]) == 2
    [again] = pieces.after(1)
    np.testing.assert_array_equal(again.columns["v"], rows.columns["v"])
    assert pieces._kept is not None
    os.truncate(pieces._kept._file.fileno(), 90)
    with pytest.raises(OSError, match="cut"):
        [*pieces.after(0)]


def test_a_file_takes_half_of_the_free_space_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Stored({"v": np.zeros(100, dtype=np.uint8)})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 500})())
    pieces = _Pieces.begun()
    assert pieces is not None
    # Sixteen bytes of numbers, and a hundred of rows in steps of sixteen: 128.
    assert pieces.add(rows)
    assert not pieces.add(rows)


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="the system does not report file systems")
def test_a_folder_in_memory_is_recognised() -> None:
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    folders = {folder: kind for folder, kind in kinds.items() if kind in ("tmpfs", "ext4", "overlay", "xfs")}
    visible = {folder: kind for folder, kind in folders.items() if os.path.ismount(folder)}
    assert visible
    for folder, kind in visible.items():
        assert _is_in_memory(folder) == (kind == "tmpfs")


@pytest.mark.guarantees("sampling")
@pytest.mark.parametrize(
    ("form", "kept", "batches"),
    [
        # Drawn batches are asked about every day from one file without room and from two files with room.
        pytest.param(form, kept, batches, marks=[pytest.mark.slow] * (bool(batches) and (form == "one") != (kept == 0)))
        for form in ("one", "two")
        for kept in (0, 2**24)
        for batches in ({}, {"sampling_prob": 0.5, "neighboring_relation": "replace_one"})
    ],
)
def test_a_streamed_fit_has_the_bits_of_one_in_memory(
    form: str, kept: int, batches: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever pieces stay open from pass to pass, with full batches and with drawn ones."""
    monkeypatch.setattr("dpvb.data.tables.design.STREAMED_ENTRIES", kept)
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: InsecureNoise(3))
    data = {"one": csv, "two": csvs}[form](tmp_path)
    whole = frame() if form == "one" else pd.concat([frame()[0::2], frame()[1::2]])
    streamed, held = (
        dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, n_steps=4, random_state=0, **batches).fit(table)
        for table in (Table(data, SCHEMA, stream=form == "one"), Table(whole, SCHEMA))
    )
    np.testing.assert_array_equal(streamed.coef_, held.coef_)


def test_few_pieces_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpvb.data.tables.design.STREAMED_ENTRIES", 2 * PIECE * 7)
    source = Table(csv(tmp_path), SCHEMA, stream=True).design()
    assert source.width == 7
    first = {id(chunk.rows) for chunk in source.chunks()}
    again = [id(chunk.rows) in first for chunk in source.chunks()]
    assert len(source._first._open) == 2
    assert again[:2] == [True, True]
