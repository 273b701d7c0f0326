"""Private rows of tables whose columns are numbers, counts and categories side by side, for mixtures.

Nothing here is fitted to data, and nothing raises, warns or logs because of a value that it finds. A number goes from
its declared range to [-1, 1], a category to its place; a row that its schema calls faulty is not sound, and the wall
drops it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.parsed_once import Streamed
from dpvb.data.shards import Sharded
from dpvb.data.slabs import Which
from dpvb.data.spelling import Cells, Floats
from dpvb.data.stored import Stored
from dpvb.data.tables.columns import Binary, Categorical
from dpvb.data.tables.ranged import Date, Numeric, Spline
from dpvb.data.tables.schema import Schema
from dpvb.data.units import Chunk, Held, Units
from dpvb.guards.errors import ParameterError, check_number
from dpvb.rows import MixedRows

#: Columns that a mixture models by a Gaussian.
Number: TypeAlias = Numeric | Date
#: Columns that a mixture models by a table of probabilities.
Choice: TypeAlias = Binary | Categorical


# Below 2^53 every whole number has a float of its own, and NumPy draws it.
_MOST_COUNT = 2.0**53
# Half of the widest range of a number that has a variance; its square, with room for a product.
_MOST_SQUARED = 1e150


@dataclass(frozen=True)
class Layout:
    """The columns of a schema by how a mixture models them; public.

    Attributes:
        numbers: columns with a Gaussian.
        counts: columns with a Poisson distribution, from 0 to the end of their range.
        choices: columns with a probability for each category.
        gaps: names of the numbers that may be missing; each has two more categories, there and missing.
        order: names of all columns, in that of the schema.
    """

    numbers: tuple[Number, ...]
    counts: tuple[Numeric, ...]
    choices: tuple[Choice, ...]
    gaps: tuple[str, ...]
    order: tuple[str, ...]

    @classmethod
    def of(cls, schema: Schema, counts: Sequence[str] = (), gaps: Sequence[str] = ()) -> Layout:
        """The layout of a schema, its target included: labels are categories, counts are counts, numbers are numbers.

        Args:
            schema: public.
            counts: names of numeric columns that are counts.
            gaps: names of numeric columns whose entries may be missing.

        Raises:
            ParameterError: for a column of a type that has no distribution here, a name that is not such a column, a
                count whose range does not begin at 0 or ends beyond 2^53, or a response of trials.
        """
        columns = [_plain(column) for column in schema.own_columns]
        for column in columns:
            if not isinstance(column, (Numeric, Date, Binary, Categorical)):
                raise ParameterError(
                    f"column {column.name!r} must be Numeric, Date, Spline, Binary or Categorical, got "
                    f"{type(column).__name__}: mixtures and naive Bayes have no distribution of another kind. Leave "
                    "the column out of the schema."
                )
        counts = [*counts]
        if (target := schema.target) is not None:
            if target.kind == "binomial":
                raise ParameterError(
                    f"The target {target.name!r} must be a label or a count: declare trials and successes as numeric "
                    "columns in its place."
                )
            if target.kind == "logistic":
                columns.append(Binary(target.name, target.classes))
            elif target.kind == "classes":
                columns.append(Categorical(target.name, target.classes))
            elif target.kind == "numeric":
                columns.append(Numeric(target.name, *target.response.range))
            else:
                columns.append(Numeric(target.name, 0, target.max_count))
                counts += [target.name]
        numeric = {column.name: column for column in columns if isinstance(column, (Numeric, Date))}
        for role, names in (("count_columns", counts), ("missing_columns", gaps)):
            for name in names:
                if name not in numeric:
                    raise ParameterError(f"{role} must name numeric columns of the schema, got {name!r}.")
        counted: list[Numeric] = []
        for column in (numeric[name] for name in counts):
            if isinstance(column, Date) or column.low != 0 or column.transform or column.name in gaps:
                raise ParameterError(
                    f"A count must be a numeric column from low=0 without transform or gaps, got {column.name!r}."
                )
            check_number(f"high of the count {column.name!r}", column.high, high=_MOST_COUNT)
            counted.append(column)
        numbers: tuple[Number, ...] = tuple(column for name, column in numeric.items() if name not in counts)
        choices = tuple(column for column in columns if isinstance(column, (Binary, Categorical)))
        own_gaps = tuple(column.name for column in numbers if column.name in gaps)
        return cls(numbers, tuple(counted), choices, own_gaps, tuple(column.name for column in columns))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of categories of each choice, then of the gaps."""
        of_choices = (2 if isinstance(choice, Binary) else choice.width for choice in self.choices)
        return (*of_choices, *(2 for _ in self.gaps))

    @property
    def gap_places(self) -> tuple[int, ...]:
        """Places among the numbers of those that may be missing."""
        return tuple(place for place, column in enumerate(self.numbers) if column.name in self.gaps)

    @property
    def max_counts(self) -> tuple[float, ...]:
        """The largest of each count."""
        return tuple(float(column.high or 0) for column in self.counts)

    @cached_property
    def scale(self) -> tuple[Floats, Floats]:
        """Middle and half the length of the range of each number, transformed where its column says so, (d,)."""
        ends = [(float(column.ends[0][0]), float(column.ends[1][0])) for column in self.numbers]
        low_d, high_d = np.array(ends).reshape(-1, 2).T
        return (low_d + high_d) / 2, (high_d - low_d) / 2

    def check_squares(self) -> None:
        """Refuse numbers whose variance in the unit of their column is not finite.

        Raises:
            ParameterError: naming the column.
        """
        for column, half in zip(self.numbers, self.scale[1], strict=True):
            if half > _MOST_SQUARED:
                raise ParameterError(
                    f"high of column {column.name!r} must be at most {2 * _MOST_SQUARED:g} above its low, got "
                    f"{2 * half:g}: a variance would not be finite. Declare the column in a larger unit."
                )

    def rows(self, cells: Mapping[str, Cells], malformed: NDArray[np.bool_], missing: frozenset[str]) -> MixedRows:
        """Cells by column name as a mixture reads them; each row is made from its own cells.

        Args:
            cells, malformed: private; malformed rows could not be read.
            missing: texts that stand for a missing value; public.
        """
        length = len(malformed)
        x_nd, count_np = np.empty((length, len(self.numbers))), np.empty((length, len(self.counts)))
        code_nj = np.empty((length, len(self.sizes)), dtype=np.int64)
        faulty_n, cut_n = malformed.copy(), np.zeros(length, dtype=np.bool_)
        for place, column in enumerate(self.numbers):
            encoded = column.encode(cells[column.name], missing)
            x_nd[:, place] = 2 * encoded.value_nm[:, 0] - 1
            if column.name in self.gaps:
                lacks_n = np.isnan(x_nd[:, place])
                code_nj[:, len(self.choices) + self.gaps.index(column.name)] = lacks_n
                cut_n |= encoded.cut_n & ~lacks_n
            else:
                cut_n |= encoded.cut_n
        for place, column in enumerate(self.counts):
            encoded = column.encode(cells[column.name], missing)
            count_np[:, place] = np.rint(encoded.value_nm[:, 0] * float(column.high or 0))
            cut_n |= encoded.cut_n
        for place, choice in enumerate(self.choices):
            encoded = choice.encode(cells[choice.name], missing)
            value_n = encoded.value_nm[:, 0]
            faulty_n |= np.isnan(value_n)
            code_nj[:, place] = (np.nan_to_num(value_n) > 0) if isinstance(choice, Binary) else encoded.place_nm[:, 0]
        required = [place for place, column in enumerate(self.numbers) if column.name not in self.gaps]
        faulty_n |= np.isnan(x_nd[:, required]).any(axis=1) | np.isnan(count_np).any(axis=1)
        return MixedRows(x_nd, count_np, code_nj, np.where(faulty_n, np.nan, 1.0), cut_n)

    @property
    def none(self) -> MixedRows:
        """No rows."""
        columns = (*self.numbers, *self.counts, *self.choices)
        return self.rows({column.name: [] for column in columns}, np.zeros(0, dtype=np.bool_), frozenset())

    def cells(self, rows: MixedRows) -> dict[str, NDArray[Any]]:
        """Columns by name of synthetic rows, in the types of the schema; None and NaN are missing."""
        column_cells: dict[str, NDArray[Any]] = {}
        for place, column in enumerate(self.numbers):
            middle_d, half_d = self.scale
            place_n = np.nan_to_num(rows.x_nd[:, place])
            number_n = column.inverse((middle_d[place] + half_d[place] * place_n)[:, None])
            cell_n = column.cells(np.clip(number_n, *column.range))
            if column.name in self.gaps:
                lacks_n = rows.code_nj[:, len(self.choices) + self.gaps.index(column.name)] == 1
                cell_n[lacks_n] = np.datetime64("NaT") if isinstance(column, Date) else np.nan
            column_cells[column.name] = cell_n
        for place, column in enumerate(self.counts):
            column_cells[column.name] = rows.count_np[:, place].astype(np.int64)
        for place, choice in enumerate(self.choices):
            values = np.array(choice.labels, dtype=object)
            column_cells[choice.name] = values[rows.code_nj[:, place]]
        return {name: column_cells[name] for name in self.order}


def shown(column: Number, value_n: Floats) -> list[str]:
    """Places in the range of a column as texts in its own units, where they are transformed or days."""
    cell_n = column.cells(np.clip(column.inverse(value_n[:, None]), *column.range))
    return [str(cell.astype("M8[m]")) if isinstance(column, Date) else f"{cell:.6g}" for cell in cell_n]


def _plain(column: Any) -> Any:
    """A column as a mixture models it: a curve is a number."""
    return Numeric(column.name, column.low, column.high, None, column.missing) if isinstance(column, Spline) else column


class Mixed(Held):
    """Rows of mixed columns, held in memory.

    Args:
        rows: private.
        group: the person of each row, (rows,); private. None: each row is a unit.

    Raises:
        DataFormatError: a group of another length.
    """

    def __init__(self, rows: MixedRows, group: Iterable[object] | None = None) -> None:
        self._rows = rows
        width = sum(part.shape[1] for part in rows.parts[:3])
        # A mixture forms several numbers of each row and group: chunks are smaller than those of plain rows.
        self._units = Units(np.arange(len(rows.sound_n) + 1, dtype=np.int64) * max(16 * width, 512), group)

    def __repr__(self) -> str:
        return f"Mixed(unit={self.unit!r})"

    def chunks(self) -> Iterator[Chunk[MixedRows]]:
        """Yield all units once."""
        return self._units.chunks(self._rows.take)

    def _keep(self, which: Which) -> None:
        self._rows = self._rows.take(which)


def stored(rows: MixedRows) -> Stored:
    """Return rows as a file can hold them."""
    return Stored({field.name: getattr(rows, field.name) for field in fields(rows)})


def mixed_of(rows: Stored, group: Iterable[object] | None) -> Mixed:
    """Return rows that `stored` gave, by person where there are persons."""
    return Mixed(MixedRows(**rows.columns), group)


#: Rows of mixed columns in memory, of a stream, or in several files.
AnyMixed: TypeAlias = "Mixed | Streamed[Mixed] | Sharded[MixedRows]"
