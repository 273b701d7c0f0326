"""Files of counts: SciPy .npz, Matrix Market, UCI docword and lda-c, read piece by piece.

Each `open_*` checks the public header and returns the width that the file declares (None: it declares none)
with a function that starts a new pass over the rows. Formats: scipy.sparse.save_npz; Boisvert, Pozo and
Remington 1996 (Matrix Market coordinate form); the UCI "Bag of Words" data set; Blei's lda-c.

==========================  ============================================================================
found in the body           becomes
==========================  ============================================================================
lda-c: a line of another    an empty document
form, or beyond 16 MiB
mtx, docword: a line of     nothing: it is left out
another number of tokens,
or beyond 16 MiB
a row number that is none   nothing: it is left out
a number that is none       NaN: the document of its row is empty
npz: a number out of range  what `dpvb.data.documents.count_rows` says of it
npz: damaged structure      the file is refused: row boundaries and checksums are its container's
==========================  ============================================================================
"""

from __future__ import annotations

import math
import re
import zipfile
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.data.readable import MAX_DOCUMENT_BYTES, blocks, check_readable, lines, open_binary
from dpvb.data.slabs import MAX_WIDTH, Slab, check_slab, slab_of_triples
from dpvb.data.spelling import real
from dpvb.guards.errors import DataFormatError
from dpvb.guards.suppress_output import silence
from dpvb.kernels.spans import MAX_ENTRIES, MAX_ROWS, spans

_Ids = NDArray[np.int64]
_Triples = tuple[_Ids, _Ids, NDArray[np.float64]]

# Longest line of a header.
_HEADER_BYTES = 2**16


@dataclass(frozen=True)
class OpenedFile:
    """A file whose header has been checked.

    Attributes:
        width: the number of columns that the header declares; public. None: it does not.
        slabs: starts a pass over the rows.
    """

    width: int | None
    slabs: Callable[[], Iterator[Slab]]


def open_npz(path: Path) -> OpenedFile:
    """Open a CSR matrix saved by scipy.sparse.save_npz; nothing in it is ever unpickled.

    The row boundaries (8 bytes per document) stay in memory. Complex numbers are accepted, as one entry makes a whole
    matrix complex; one that is not real is NaN.

    Raises:
        DataFormatError: not such a file, or damaged.
    """
    check_readable(path, _test_archive)
    header = _read_npz_header(path)
    if header is None or not 1 <= header.width <= MAX_WIDTH or len(header.indptr) != header.num_rows + 1:
        raise DataFormatError(
            f"The file {str(path)!r} is not a CSR matrix of numbers; "
            "write it with scipy.sparse.save_npz(path, X.tocsr())."
        )
    # Stand-ins for the entries: only their number is looked at here.
    ids, values = np.broadcast_to(np.int64(0), header.entries), np.broadcast_to(0.0, header.entries)
    boundaries = check_slab(header.indptr, ids, values).indptr

    def slabs() -> Iterator[Slab]:
        with zipfile.ZipFile(path) as archive, archive.open("indices.npy") as ids, archive.open("data.npy") as data:
            array_header(ids)
            array_header(data)
            for start, stop in spans(boundaries):
                indptr = boundaries[start : stop + 1] - boundaries[start]
                entries = int(indptr[-1])
                yield Slab(
                    indptr,
                    _read_array(ids, header.id_type, entries),
                    real(_read_array(data, header.value_type, entries)),
                )

    return OpenedFile(header.width, slabs)


def open_matrix_market(path: Path) -> OpenedFile:
    """Open a Matrix Market file in coordinate form, documents × terms.

    Kind and symmetry of a header may depend on the values when a file is written, so that all are accepted; an
    imaginary part other than 0 is a malformed number. A file that lists its entries row by row is read in bounded
    memory; of any other, and of a symmetric one, a pass holds the entries.

    Raises:
        DataFormatError: another kind of Matrix Market file, or a faulty header.
    """
    check_readable(path)
    header = _read_market_header(path)
    if header is None:
        raise DataFormatError(
            f"The file {str(path)!r} must start with '%%MatrixMarket matrix coordinate', its kind of numbers and its "
            "symmetry, comments, and a line of rows, columns and entries; write it with "
            "scipy.io.mmwrite(path, X.tocsr())."
        )
    return _open_triples(path, *header)


def open_docword(path: Path) -> OpenedFile:
    """Open a UCI docword file: three lines D, W, NNZ, then lines "document word count", both counted from 1.

    Raises:
        DataFormatError: a faulty header.
    """
    check_readable(path)
    with open_binary(path) as file:
        header = [_whole_numbers(file.readline(1024), 1) for _ in range(3)]
    if header[0] is None or header[1] is None or header[2] is None:
        raise DataFormatError(
            f"The docword file {str(path)!r} must start with three lines: the numbers of documents, words and entries."
        )
    return _open_triples(path, 3, _Form(header[0][0], header[1][0]))


def open_lda_c(path: Path) -> OpenedFile:
    """Open an lda-c file: a line "M id:count ... id:count" for each document, M its number of pairs, ids from 0.

    A line that is not of this form is an empty document.

    Raises:
        DataFormatError: a file that cannot be read.
    """
    check_readable(path, any_start=True)

    def slabs() -> Iterator[Slab]:
        with open_binary(path) as file:
            pairs, ends = bytearray(), array("q", [0])
            for line in lines(file):
                line_pairs = _pairs(line)
                pairs += line_pairs
                ends.append(ends[-1] + line_pairs.count(b":"))
                if len(ends) > MAX_ROWS or len(pairs) >= MAX_ENTRIES:
                    yield _slab_of_pairs(pairs, ends)
                    pairs, ends = bytearray(), array("q", [0])
            yield _slab_of_pairs(pairs, ends)

    return OpenedFile(None, slabs)


# Without *+ the engine would remember every pair, to come back to it in vain.
_LDA_C_LINE = re.compile(rb"\s*(\d+)((?:\s+[+-]?\d+:[^\s:]+)*+)\s*")
_LINE_OF_PAIR = bytes.maketrans(b" \t\v\f\r:", b"\n\n\n\n\n ")


def _pairs(line: bytes) -> bytes:
    """Return the pairs " id:count id:count" of a line; nothing if it is malformed."""
    match = _LDA_C_LINE.fullmatch(line)
    return b"" if match is None or _number(match[1]) != match[2].count(b":") else match[2]


def _slab_of_pairs(pairs: bytearray, ends: array[int]) -> Slab:
    table = _read_lines(bytes(pairs).translate(_LINE_OF_PAIR), 2)
    return Slab(np.array(ends, dtype=np.int64), _ids(table[:, 0]), table[:, 1])


def _open_triples(path: Path, header_lines: int, form: _Form) -> OpenedFile:
    if not (form.num_rows <= MAX_WIDTH and 1 <= form.width <= MAX_WIDTH):
        raise DataFormatError(f"The header of {str(path)!r} must declare between 1 and {MAX_WIDTH} columns.")

    def triples() -> Iterator[_Triples]:
        with open_binary(path) as file:
            for _ in range(header_lines):
                file.readline(_HEADER_BYTES)
            for block in blocks(file):
                row_id, word_id, value = form.entries(_read_lines(block, form.num_fields))
                inside = (row_id >= 0) & (row_id < form.num_rows)
                yield row_id[inside], word_id[inside], value[inside]

    if _in_row_order(triples()):
        return OpenedFile(form.width, lambda: _slabs_in_row_order(triples(), form.num_rows))
    return OpenedFile(form.width, lambda: _slabs_in_row_order(_sorted(triples()), form.num_rows))


def _sorted(triples: Iterator[_Triples]) -> Iterator[_Triples]:
    """All triples at once, row by row."""
    row, column, value = (np.concatenate(parts) for parts in zip(*triples, strict=True))
    order = np.argsort(row, kind="stable")
    yield row[order], column[order], value[order]


def _in_row_order(triples: Iterator[_Triples]) -> bool:
    last = 0
    for row, _, _ in triples:
        if len(row) and (row[0] < last or np.any(row[1:] < row[:-1])):
            return False
        last = int(row[-1]) if len(row) else last
    return True


def _slabs_in_row_order(triples: Iterator[_Triples], num_rows: int) -> Iterator[Slab]:
    """Yield all rows; those before the last one seen are complete and need not be kept."""
    start = 0
    row, column = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    value = np.empty(0, dtype=np.float64)
    for more_rows, more_columns, more_values in triples:
        row = np.concatenate([row, more_rows])
        column = np.concatenate([column, more_columns])
        value = np.concatenate([value, more_values])
        complete = int(row[-1]) if len(row) else start
        yield from _cut(row, column, value, start, complete)
        rest = int(np.searchsorted(row, complete))
        row, column, value, start = row[rest:], column[rest:], value[rest:], complete
    yield from _cut(row, column, value, start, num_rows)


def _cut(row: _Ids, column: _Ids, value: NDArray[np.float64], start: int, end: int) -> Iterator[Slab]:
    for first in range(start, end, MAX_ROWS):
        stop = min(first + MAX_ROWS, end)
        low, high = np.searchsorted(row, (first, stop))
        yield slab_of_triples(row[low:high] - first, column[low:high], value[low:high], stop - first)


def _read_lines(block: bytes, num_fields: int) -> NDArray[np.float64]:
    """The numbers of each line of so many tokens, (lines, num_fields); a malformed number is NaN.

    Another line is left out. Tokens are those of `bytes.split`, numbers those of `float`, whatever other lines hold.
    """
    from dpvb.data import parsing_numba

    most = block.count(b"\n") + 1
    table, left = np.empty((most, num_fields)), np.empty((most * num_fields, 3), dtype=np.int64)
    rows, num_left = parsing_numba.parse(np.frombuffer(block, np.uint8), MAX_DOCUMENT_BYTES, table, left)
    place_k, start_k, stop_k = left[:num_left].T
    tokens = zip(start_k.tolist(), stop_k.tolist(), strict=True)
    table.reshape(-1)[place_k] = [_number(block[start:stop]) for start, stop in tokens]
    return table[:rows]


def _number(field: bytes) -> float:
    try:
        return float(field)
    except ValueError:
        return np.nan


def _ids(numbers: NDArray[np.float64]) -> _Ids:
    """Return whole numbers as int64 and everything else, also what is far out of range, as -1."""
    with np.errstate(invalid="ignore"):
        whole = (numbers == np.floor(numbers)) & (np.abs(numbers) <= 2.0**40)
    return np.where(whole, numbers, -1.0).astype(np.int64)


def _whole_numbers(line: bytes, how_many: int) -> list[int] | None:
    fields = line.split()
    if len(fields) != how_many or not all(field.isdigit() and len(field) < 18 for field in fields):
        return None
    return [int(field) for field in fields]


def _test_archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None:
            raise zipfile.BadZipFile


class _Form(NamedTuple):
    """The facts that a header declares about its entries.

    Attributes:
        num_rows, width: of the matrix.
        kind: "pattern": entries are 1; "complex": two numbers each; anything else: one number.
        mirrored: 0: entries are those of the matrix; 1 or -1: an entry below the diagonal stands for one above, too,
            with the same sign or the other.
    """

    num_rows: int
    width: int
    kind: str = "real"
    mirrored: int = 0

    @property
    def num_fields(self) -> int:
        """Tokens of a line."""
        return {"pattern": 2, "complex": 4}.get(self.kind, 3)

    def entries(self, table: NDArray[np.float64]) -> _Triples:
        """Row, column and value of the entries that some lines stand for."""
        row, column = _ids(table[:, 0]) - 1, _ids(table[:, 1]) - 1
        value = table[:, 2] if self.num_fields > 2 else np.ones(len(table))
        if self.num_fields > 3:
            value = np.where(table[:, 3] == 0, value, np.nan)
        if self.mirrored:
            off = np.flatnonzero(row != column)
            row, column = np.concatenate([row, column[off]]), np.concatenate([column, row[off]])
            value = np.concatenate([value, self.mirrored * value[off]])
        return row, column, value


_MARKET_BANNER = re.compile(
    rb"%%matrixmarket\s+matrix\s+coordinate\s+(real|double|integer|unsigned-integer|pattern|complex)\s+"
    rb"(general|symmetric|skew-symmetric|hermitian)\s*"
)


def _read_market_header(path: Path) -> tuple[int, _Form] | None:
    """Return how many lines precede the entries and what they say; None if `open_matrix_market` cannot read them."""
    with open_binary(path) as file:
        banner = _MARKET_BANNER.fullmatch(file.readline(1024).lower())
        line, number = file.readline(_HEADER_BYTES), 2
        while line.endswith(b"\n") and (line.startswith(b"%") or not line.strip()):
            line, number = file.readline(_HEADER_BYTES), number + 1
    size = _whole_numbers(line, 3)
    if banner is None or size is None:
        return None
    mirrored = {b"general": 0, b"skew-symmetric": -1}.get(banner[2], 1)
    if mirrored and size[0] != size[1]:
        return None
    return number, _Form(size[0], size[1], banner[1].decode(), mirrored)


class _NpzHeader(NamedTuple):
    num_rows: int
    width: int
    indptr: NDArray[Any]
    id_type: np.dtype[Any]
    value_type: np.dtype[Any]
    entries: int


def _read_npz_header(path: Path) -> _NpzHeader | None:
    """Return what precedes the entries, or None if the file is not a CSR matrix."""
    arrays: dict[str, NDArray[Any]] = {}
    types: dict[str, np.dtype[Any]] = {}
    lengths: dict[str, int] = {}
    try:
        with zipfile.ZipFile(path) as archive, silence():
            for name in ("format", "shape", "indptr", "indices", "data"):
                member = archive.getinfo(f"{name}.npy")
                with archive.open(member) as file:
                    types[name], shape = array_header(file)
                    lengths[name] = math.prod(shape)
                    if len(shape) > 1 or lengths[name] * types[name].itemsize != member.file_size - file.tell():
                        return None
                    if name in ("format", "shape", "indptr"):
                        arrays[name] = _read_array(file, types[name], lengths[name])
    except Exception:  # whatever a damaged header makes NumPy or zipfile raise
        return None
    if arrays["format"].tolist() not in ([b"csr"], ["csr"]):
        return None
    if lengths["shape"] != 2 or types["shape"].kind not in "iu" or types["indices"].kind not in "iu":
        return None
    if types["data"].kind not in "biufc" or types["indptr"].kind not in "iu":
        return None
    if lengths["indices"] != lengths["data"]:
        return None
    num_rows, width = arrays["shape"].tolist()
    return _NpzHeader(num_rows, width, arrays["indptr"], types["indices"], types["data"], lengths["data"])


def array_header(file: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type and shape that a .npy file declares, with the file read up to its first entry.

    Raises:
        ValueError: no such header; or whatever else a damaged one makes NumPy raise.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return dtype, shape


def _read_array(file: Any, dtype: np.dtype[Any], length: int) -> NDArray[Any]:
    return np.frombuffer(file.read(length * dtype.itemsize), dtype=dtype, count=length)
