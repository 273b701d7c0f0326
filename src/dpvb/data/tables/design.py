"""Private rows for regression and for belief networks: numbers in, clean rows of bounded norm out.

A fault in a row must not show. So nothing here raises, warns or logs because of a value that it finds:

======================================================  ===================================================
found in a row                                          the row becomes
======================================================  ===================================================
NaN, infinity, or no number, in features or response    faulty
the same in an exposure, an offset or a weight          faulty
a label outside the declared classes                    faulty
a negative or fractional count                          faulty
an exposure of 0 or less, a negative weight             faulty
trials outside 1..max_trials or fractional, y > trials  faulty
a pixel that is neither 0 nor 1                         faulty
a count above max_count                                 the same row with the count max_count
a number outside the range of the response              the same row with the nearer end of the range
an exposure or weight above its bound, a far offset     the same row with the bound
features beyond the norm                                the same row, scaled back to the norm
======================================================  ===================================================

A faulty row is NaN throughout (dense), or has a response of NaN and no entries (sparse): the wall drops it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpvb.data.documents.matrix_files import open_npz
from dpvb.data.shards import FirstOpen, Shard, Sharded, one_width, paths_of
from dpvb.data.slabs import Integers, Which
from dpvb.data.spelling import Floats, as_numbers
from dpvb.data.stored import Stored
from dpvb.data.tables.matrices import LENGTH_UNIT, Entries, SparseMatrix, as_matrix, column
from dpvb.data.tables.response import BOUNDS, LOGISTIC, Beside, Response
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.errors import ParameterError, check_number
from dpvb.guards.watched import Watched
from dpvb.kernels.spans import running_total
from dpvb.rows import BinaryRows, DesignRows, SparseDesignRows

#: Entries of clean rows that are kept from pass to pass, 128 MiB; with what a model derives from them, twice that.
KEPT_ENTRIES = 2**24
#: Those of a stream: its other rows are read from a file of encoded rows, which takes hardly longer.
STREAMED_ENTRIES = 2**22


class Design(Held):
    """Rows of a regression, held in memory as they were given and cleaned chunk by chunk; few enough are kept clean.

    A delivered row is (c0, f·x): x the given features, f = min(1/max_row_norm, √(1-c0²)/‖x‖). So the posterior's
    weights belong to x/max_row_norm, and to the constant c0.

    Examples:
        >>> import numpy as np
        >>> from dpvb.data import Design
        >>> rows = Design(np.eye(3), [0, 1, 1], max_row_norm=1.0)
        >>> rows.unit, rows.width
        ('row', 3)
    """

    def __init__(
        self,
        X: object,
        y: object = None,
        trials: object = None,
        *,
        response: Response = LOGISTIC,
        max_row_norm: float = 1.0,
        intercept: float = 0.0,
        sparse_rows: bool = False,
        group: Iterable[object] | None = None,
        cut: NDArray[np.bool_] | None = None,
        beside: Mapping[str, object] | None = None,
    ) -> None:
        """Take features and responses.

        Args:
            X: rows × features; see `matrices.as_matrix`. Its dtype and width are public, everything else private. It is
                read again at every pass, but for the rows that are kept, and must not change while in use.
            y: response of each row; private. None: zeros, for rows that are only to be predicted.
            trials: number of trials of each row (binomial only); private.
            response: what y may be; public.
            max_row_norm: what the features are divided by; public.
            intercept: the constant c0 of column 0, in [0, 1); 0 for no such column. Public.
            sparse_rows: whether chunks hold `SparseDesignRows` or `DesignRows`.
            group: the person of each row, (rows,); private. None: each row is a unit.
            cut: rows that were cut to a range, or filled in, before they came here, (rows,); private.
            beside: exposure, offset and weights, as far as the response has bounds of them; private. The
            defaults are 1, 0 and 1.

        Raises:
            DataFormatError: X is not a matrix, or y, trials, group or a row argument differ from it in length.
            ParameterError: a public argument outside its range, trials without the binomial kind, or a row argument
                without a bound.
        """
        self._row_norm = check_number("max_row_norm", max_row_norm, low=1e-100, high=1e100)
        self._intercept = check_number("intercept", intercept, low=0, high=1, closed="left")
        self._matrix = as_matrix(X)
        y_n, trials_n, over_n = _clean_responses(response, y, trials, self._matrix.num_rows)
        self._beside = response.shifts(self._matrix.num_rows, _columns(response, beside or {}, self._matrix.num_rows))
        self._response, self._sparse = response, sparse_rows
        self._units = Units(self._entry_start(), group)
        limit = math.sqrt((1.0 - self._intercept) * (1.0 + self._intercept))
        margin = 1.0 - (self._matrix.width + 16) * 2.0**-51
        pieces, inside = [np.empty(0)], [np.empty(0, dtype=np.bool_)]
        for chunk in Units(self._matrix.entry_start(), None).chunks(self._matrix.lengths):
            with np.errstate(all="ignore"):
                # A row inside the bound is left as it is. The margin keeps one that was scaled back inside it.
                length_n = chunk.rows
                inside.append(length_n <= limit * self._row_norm / LENGTH_UNIT)
                back_n = limit * margin / length_n / LENGTH_UNIT
                pieces.append(np.where(inside[-1], 1.0 / self._row_norm, back_n))
        scale_n = np.concatenate(pieces)
        faulty = np.isnan(scale_n) | np.isnan(y_n)
        for beside_n in self._beside[:2]:
            faulty |= False if beside_n is None else np.isnan(beside_n)
        self._scale_n, self._y_n, self._trials_n = (np.where(faulty, np.nan, v) for v in (scale_n, y_n, trials_n))
        self._cut_n = over_n | self._beside.over_n | ~np.concatenate(inside)
        if cut is not None:
            self._cut_n |= cut

    def __repr__(self) -> str:
        return f"Design(width={self.width}, unit={self.unit!r})"

    @property
    def width(self) -> int:
        """Number of delivered columns, the intercept's included; public."""
        return self._matrix.width + (self._intercept > 0)

    @property
    def intercept(self) -> float:
        """The constant c0 in column 0; public. 0: there is no such column."""
        return self._intercept

    @property
    def max_row_norm(self) -> float:
        """Divisor of the features; public."""
        return self._row_norm

    @property
    def response(self) -> Response:
        """Declaration of y; public."""
        return self._response

    def chunks(self) -> Iterator[Chunk[DesignRows]] | Iterator[Chunk[SparseDesignRows]]:
        """Yield all units once."""
        if self._sparse:
            return self._units.chunks(self._sparse_rows, keep_entries=KEPT_ENTRIES // 2)  # Each has an index, too.
        return self._units.chunks(self._dense_rows, keep_entries=KEPT_ENTRIES)

    def stored(self) -> Stored:
        """Return the rows of a table as a file can hold them; they are read and cleaned already."""
        assert isinstance(self._matrix, SparseMatrix)
        columns = {"scale": self._scale_n, "y": self._y_n, "trials": self._trials_n, "cut": self._cut_n}
        beside = {"offset": self._beside.offset_n, "weight": self._beside.weight_n}
        columns |= {name: column for name, column in beside.items() if column is not None}
        return Stored(columns, self._matrix.slab)

    def restored(self, rows: Stored, group: Iterable[object] | None) -> Design:
        """Return a design of other rows, which `stored` gave for a design with the same public arguments."""
        other, columns = copy(self), rows.columns
        assert rows.slab is not None
        other._matrix = SparseMatrix(rows.slab, self._matrix.width)
        other._scale_n, other._y_n, other._trials_n = (columns[name] for name in ("scale", "y", "trials"))
        other._cut_n = columns["cut"]
        other._beside = Beside(columns.get("offset"), columns.get("weight"), columns["cut"])
        other._units = Units(other._entry_start(), group)
        return other

    @staticmethod
    def first_open(like: Design) -> FirstOpen[Design]:
        """Which of many designs stay open, with the rows that they keep clean."""
        room = STREAMED_ENTRIES // 2 if like._sparse else STREAMED_ENTRIES
        return FirstOpen(room, lambda design: int(design._entry_start()[-1]))

    def _entry_start(self) -> Integers:
        if self._sparse:
            return self._matrix.entry_start()
        return np.arange(self._matrix.num_rows + 1, dtype=np.int64) * self._matrix.width

    def _keep(self, which: Which) -> None:
        self._matrix = self._matrix.take(which)
        self._scale_n, self._y_n, self._trials_n = (v[which] for v in (self._scale_n, self._y_n, self._trials_n))
        self._cut_n = self._cut_n[which]
        self._beside = self._beside.of(which)

    def _dense_rows(self, which: Which) -> DesignRows:
        scale_n = self._scale_n[which]
        first = int(self._intercept > 0)
        features = self._matrix.dense(which)
        x_nd = np.empty((len(features), self.width))
        with np.errstate(all="ignore"):
            np.multiply(features, scale_n[:, None], out=x_nd[:, first:])
        x_nd[:, :first] = np.where(np.isnan(scale_n), np.nan, self._intercept)[:, None]
        x_nd.flags.writeable = False
        parts = self._y_n[which], self._trials_n[which], self._cut_n[which], *self._beside.of(which)[:2]
        return DesignRows(x_nd, *parts)

    def _sparse_rows(self, which: Which) -> SparseDesignRows:
        scale_n = self._scale_n[which]
        indptr, indices, values = _without(self._matrix.entries(which), np.isnan(scale_n))
        with np.errstate(all="ignore"):
            values = values * np.repeat(scale_n, np.diff(indptr))
        if self._intercept > 0:
            usable = np.isfinite(scale_n)
            place = indptr[:-1][usable]
            indices = np.insert(indices + np.int32(1), place, np.int32(0))
            values = np.insert(values, place, self._intercept)
            indptr = indptr + running_total(usable)
        parts = self._y_n[which], self._trials_n[which], self._cut_n[which], *self._beside.of(which)[:2]
        return SparseDesignRows(indptr, indices, values, *parts)


def _clean_responses(
    response: Response, y: object, trials: object, num_rows: int
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Responses and numbers of trials of all rows, both NaN in faulty ones, and which counts are over the cap.

    Raises:
        DataFormatError: a faulty form of y or trials.
        ParameterError: trials without the binomial kind, or the binomial kind without trials.
    """
    if (trials is None) == (response.kind == "binomial" and y is not None):
        raise ParameterError(
            f"trials must be given with a binomial response and with no other; the kind is {response.kind!r}."
        )
    trials_n = np.ones(num_rows) if trials is None else as_numbers(column("trials", trials, num_rows))
    if y is None:
        return np.zeros(num_rows), trials_n, np.zeros(num_rows, dtype=np.bool_)
    cells = column("y", y, num_rows)
    y_n = response.encode(cells)
    over_n = np.zeros(num_rows, dtype=np.bool_)
    if response.kind == "numeric":
        y_n = response.places(y_n)
        return np.clip(y_n, -1.0, 1.0), np.where(np.isnan(y_n), np.nan, 1.0), np.abs(y_n) > 1.0
    with np.errstate(all="ignore"):
        sound = (y_n >= 0) & (y_n == np.floor(y_n)) & np.isfinite(y_n)
        if response.kind == "binomial":
            sound &= (y_n <= trials_n) & (trials_n <= response.max_trials) & (trials_n == np.floor(trials_n))
            sound &= trials_n >= 1
    if response.is_count:
        with np.errstate(all="ignore"):
            over_n = y_n > response.max_count
        y_n = np.minimum(y_n, response.max_count)
    return np.where(sound, y_n, np.nan), np.where(sound, trials_n, np.nan), over_n


def _columns(response: Response, beside: Mapping[str, object], num_rows: int) -> dict[str, Floats]:
    """The row arguments as numbers.

    Raises:
        ParameterError: for one that has no bound.
    """
    for name in beside:
        if name not in response.columns:
            raise ParameterError(f"{name} needs a public bound: give {BOUNDS[name]} as well, or leave {name} out.")
    return {name: as_numbers(column(name, cells, num_rows)) for name, cells in beside.items()}


def _without(entries: Entries, faulty: NDArray[np.bool_]) -> Entries:
    """The same rows, the faulty ones without entries."""
    lengths = np.diff(entries.indptr)
    sound = ~np.repeat(faulty, lengths)
    return Entries(running_total(np.where(faulty, 0, lengths)), entries.indices[sound], entries.values[sound])


class BinaryMatrix(Held):
    """Binary vectors, held in memory as they were given; chunks hold float32 arrays (n, J), faulty rows NaN.

    Examples:
        >>> from dpvb.data import BinaryMatrix
        >>> pixels = BinaryMatrix([[0, 200], [130, 7]], threshold=128)
        >>> [chunk.rows.tolist() for chunk in pixels.chunks()]
        [[[0.0, 1.0], [1.0, 0.0]]]
    """

    def __init__(self, X: object, *, threshold: float | None = None, group: Iterable[object] | None = None) -> None:
        """Take a matrix of zeros and ones.

        Args:
            X: rows × J; see `matrices.as_matrix`. It is not copied and must not change while the source is in use.
            threshold: binarises by x > threshold; public. None: entries must be 0 or 1.
            group: the person of each row, (rows,); private. None: each row is a unit.

        Raises:
            DataFormatError: X is not a matrix, or group differs from it in length.
            ParameterError: a threshold that is not a number.
        """
        self._threshold = None if threshold is None else check_number("threshold", threshold)
        self._matrix = as_matrix(X)
        self._units = Units(np.arange(self._matrix.num_rows + 1, dtype=np.int64) * self.width, group)

    def __repr__(self) -> str:
        return f"BinaryMatrix(width={self.width}, unit={self.unit!r})"

    @property
    def width(self) -> int:
        """Number of columns J; public."""
        return self._matrix.width

    def chunks(self) -> Iterator[Chunk[BinaryRows]]:
        """Yield all units once."""
        return self._units.chunks(self._rows)

    def _keep(self, which: Which) -> None:
        self._matrix = self._matrix.take(which)

    def _rows(self, which: Which) -> BinaryRows:
        x_nj = self._matrix.dense(which)
        ones = x_nj == 1 if self._threshold is None else x_nj > self._threshold
        sound = ones | (x_nj == 0) if self._threshold is None else np.isfinite(x_nj)
        y_nj = ones.astype(np.float32)
        y_nj[~sound.all(axis=1)] = np.nan
        return y_nj


class ShardedBinary(Sharded[BinaryRows]):
    """Binary vectors in several files."""

    def __init__(self, shards: list[Shard], width: int) -> None:
        """Take files of one width."""
        super().__init__(shards, unit="row")
        self.width = width
        self.watched = Watched.of([shard.path for shard in shards], is_read_again=True)


def binary_rows(
    X: object, *, threshold: float | None = None, group: Iterable[object] | None = None
) -> BinaryMatrix | ShardedBinary:
    """Binary vectors in memory, or where X is a list or folder of .npz files (scipy.sparse.save_npz), in these.

    Raises:
        DataFormatError, ParameterError: as in `BinaryMatrix`; files of different widths; a group for several files.
    """
    paths = paths_of(X)
    if paths is None:
        return BinaryMatrix(X, threshold=threshold, group=group)
    if group is not None:
        raise ParameterError("group is not read for several files: bring the rows into memory, or leave it out.")
    width = one_width(open_npz(path).width or 0 for path in paths)
    return ShardedBinary([Shard(path, partial(_binary_file, path, threshold)) for path in paths], width)


def _binary_file(path: Path, threshold: float | None) -> BinaryMatrix:
    opened = open_npz(path)
    width = opened.width or 0
    return BinaryMatrix(
        SparseMatrix.stacked([SparseMatrix(slab, width) for slab in opened.slabs()], width), threshold=threshold
    )
