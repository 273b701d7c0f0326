"""Arrow columns and Parquet files, through pyarrow, which is an optional dependency.

The type of a column may have been inferred from its values when it was made, so that no type is refused: every
column has cells, and a value other than a number, text or time is an unreadable cell. A Parquet file is a container:
one that pyarrow cannot read to its end is refused as a file, and a damaged page may change any record of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.readable import MAX_DOCUMENT_BYTES
from dpvb.data.times import in_utc
from dpvb.guards.errors import DataFormatError

Cells: TypeAlias = "NDArray[Any] | list[object]"


def import_arrow() -> Any:
    """Return pyarrow.

    Raises:
        DataFormatError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        pyarrow = None
    if pyarrow is None:
        raise DataFormatError("Reading Parquet needs pyarrow: pip install '.[arrow]' in dpvb's source folder.")
    return pyarrow


def cells(column: Any) -> Cells:
    """The cells of a column of any type: an array of numbers or times, null as NaN or NaT, or objects, null as None.

    Text is bytes: Arrow does not guarantee that it is UTF-8, and decoding would raise. One of more than 16 MiB is None.

    Args:
        column: an Array or ChunkedArray; private.
    """
    parts_of_column = [_cells(chunk) for chunk in getattr(column, "chunks", [column])]
    if len(parts_of_column) == 1:
        return parts_of_column[0]
    arrays = [part for part in parts_of_column if isinstance(part, np.ndarray)]
    if arrays and len(arrays) == len(parts_of_column):
        return np.concatenate(arrays)
    return [cell for part in parts_of_column for cell in (part.tolist() if isinstance(part, np.ndarray) else part)]


def _cells(column: Any) -> Cells:
    arrow = import_arrow()
    types, kind = arrow.types, column.type
    if isinstance(kind, arrow.BaseExtensionType) and kind.extension_name != "arrow.uuid":
        return _cells(column.storage)
    if types.is_dictionary(kind):
        values, places = cells(column.dictionary), column.indices.to_pylist()
        return [values[place] if place is not None and 0 <= place < len(values) else None for place in places]
    if types.is_run_end_encoded(kind):
        ends, values = np.asarray(column.run_ends), cells(column.values)
        places = np.searchsorted(ends, np.arange(column.offset, column.offset + len(column)), side="right")
        return values[places] if isinstance(values, np.ndarray) else [values[place] for place in places]
    if types.is_temporal(kind):
        return _times(arrow, column)
    if types.is_floating(kind) or (types.is_integer(kind) and column.null_count == 0):
        return np.asarray(column)
    if _is_text(types, kind):
        return _texts(arrow, column)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind) or hasattr(kind, "extension_name"):
        return list(column.to_pylist())
    return [None] * len(column)


def _times(arrow: Any, column: Any) -> Cells:
    """Dates, times and durations by the whole numbers that Arrow keeps: as Python objects the far ones would raise."""
    types, kind = arrow.types, column.type
    unit = "D" if types.is_date32(kind) else "ms" if types.is_date64(kind) else getattr(kind, "unit", None)
    if unit is None:  # an interval of months, days and nanoseconds, which has no length
        return [None] * len(column)
    whole = column.view(arrow.int32() if kind.bit_width == 32 else arrow.int64()).cast(arrow.int64())
    number = np.asarray(arrow.compute.fill_null(whole, np.iinfo(np.int64).min))  # NaT, as NumPy keeps it
    moments = number.view(f"{'m8' if types.is_duration(kind) else 'M8'}[{unit}]")
    if types.is_time(kind):
        return [None if np.isnat(one) else _time_of_day(one) for one in moments]
    return in_utc(moments) if types.is_timestamp(kind) and kind.tz is not None else moments


def _time_of_day(moment: Any) -> str | None:
    """The time of a moment of the first of January 1970."""
    day, _, clock = str(moment).partition("T")
    return clock if day == "1970-01-01" else None


def _is_text(types: Any, kind: Any) -> bool:
    tests = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(types, f"is_{name}")(kind) for name in tests if hasattr(types, f"is_{name}"))


def _texts(arrow: Any, column: Any) -> list[object]:
    texts = column.cast(arrow.large_binary())
    length = arrow.compute.binary_length(texts)
    if (arrow.compute.max(length).as_py() or 0) > MAX_DOCUMENT_BYTES:
        fits = arrow.compute.less_equal(length, MAX_DOCUMENT_BYTES)
        texts = arrow.compute.if_else(fits, texts, arrow.scalar(None, arrow.large_binary()))
    return list(texts.to_numpy(zero_copy_only=False))


def parquet_schema(path: Path) -> Any:
    """The Arrow schema of a Parquet file.

    Raises:
        DataFormatError: pyarrow is not installed, or the file is not Parquet.
    """
    arrow = import_arrow()
    schema = None
    # Whatever pyarrow raises may speak of what is in the file.
    try:
        with arrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
    except Exception:
        pass
    if schema is None:
        raise _unreadable(path)
    return schema


def check_parquet(path: Path, columns: Sequence[str], *, read_through: bool) -> None:
    """Check that the file is Parquet and that its schema has each of the columns once.

    Args:
        path, columns: public.
        read_through: whether to read the columns to their end, so that damage shows before the first charge.

    Raises:
        DataFormatError: pyarrow is not installed, the file is not Parquet, or a column is missing.
    """
    names = parquet_schema(path).names
    for column in columns:
        if names.count(column) != 1:
            raise DataFormatError(
                f"The Parquet file {str(path)!r} has no column {column!r}; its columns are {names}. "
                "Choose one with text_column= (and group_column=)."
            )
    if read_through:
        check_batches(path, columns)


def check_batches(path: Path, columns: Sequence[str]) -> None:
    """Read columns once.

    Raises:
        DataFormatError: a file that cannot be read to its end.
    """
    for _ in parquet_batches(path, columns, batch_rows=8192):
        pass


def parquet_batches(path: Path, columns: Sequence[str], *, batch_rows: int) -> Iterator[Any]:
    """Yield record batches of these columns, of at most so many rows.

    Raises:
        DataFormatError: a file that cannot be read to its end.
    """
    arrow = import_arrow()
    damaged = False
    try:
        with arrow.parquet.ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=batch_rows, columns=list(dict.fromkeys(columns)))
            while (batch := next(batches, None)) is not None:
                yield batch
    except MemoryError:
        raise
    except Exception:
        damaged = True
    if damaged:
        raise _unreadable(path)


def _unreadable(path: Path) -> DataFormatError:
    return DataFormatError(f"The file {str(path)!r} is not a readable Parquet file. Write it anew.")
