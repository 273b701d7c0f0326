"""Linear maps from a model's weights to the coefficients that people read; all that is here is public.

A row's features f are those of `schema`, before the row is divided by its norm. With v the weights of (1, f), the
intercept's first,

    β = U v         coefficients in the columns' own units, one a feature: `to_units`
    γ = K β         coefficients in a coding, such as those against a reference level: `coded`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.data.spelling import Floats, label, text
from dpvb.data.tables.columns import Binary, Categorical, Column, Product
from dpvb.data.tables.ranged import Ranged, Spline
from dpvb.data.tables.schema import Schema
from dpvb.guards.errors import ParameterError, check_choice

#: "reference": against one level of each categorical column; "sum": against the mean of its categories; "none": a
#: coefficient for each feature, as rows have them.
LevelCoding = Literal["reference", "sum", "none"]
CODINGS: Final[tuple[LevelCoding, ...]] = get_args(LevelCoding)
# Each level of a "sum" takes a number from each other.
_MOST_SUMMED = 2_000


class Coding(NamedTuple):
    """Coefficients as linear combinations of those of the features.

    Attributes:
        names: names of the lines, "intercept" first, (r,).
        matrix: K, sparse, (r, 1 + features).
        reference_r: which lines are reference levels, whose coefficient is 0.
    """

    names: tuple[str, ...]
    matrix: sparse.csr_array
    reference_r: NDArray[np.bool_]


def to_units(schema: Schema) -> sparse.csr_array:
    """U, (1 + features, 1 + features): β = U v has the coefficients in the columns' own units, the intercept's first.

    The coefficient of a number is per unit (where the schema transforms the number, of the transformed one), that of
    an indicator per category, that of a product of both; the intercept is that of a row of zeros. A product of numbers,
    s(x - o)·s'(x' - o'), has a part in the coefficients of both columns, and in the intercept.
    """
    zero = np.zeros(1, dtype=np.intp)
    parts = [_Entries(zero, zero, np.ones(1))]
    for term in schema.terms:
        feature_w = 1 + schema.places[term.name] + np.arange(term.width)
        if not isinstance(term, Product):
            scale_w, origin_w = term.units
            parts += [_Entries(feature_w, feature_w, scale_w), _Entries(0 * feature_w, feature_w, -scale_w * origin_w)]
            continue
        (scale_k, origin_k), (other_m, begin_m) = term.first.units, term.second.units
        size_w = np.multiply.outer(scale_k, other_m).ravel() / term.shrink
        first_w, second_w = (1 + place_w for place_w in schema.factors(term))
        origin_w, begin_w = np.repeat(origin_k, len(begin_m)), np.tile(begin_m, len(origin_k))
        parts += [
            _Entries(feature_w, feature_w, size_w),
            _Entries(first_w, feature_w, -size_w * begin_w),
            _Entries(second_w, feature_w, -size_w * origin_w),
            _Entries(0 * feature_w, feature_w, size_w * origin_w * begin_w),
        ]
    return _matrix(parts, (1 + schema.width, 1 + schema.width))


def in_units(schema: Schema, feature_d: Floats) -> Floats:
    """Features of numbers, (features,), in the columns' own units; 0 in the place of any other.

    In the place of a product stands the product of its factors.
    """
    value_of_column: dict[str, Floats] = {}
    for column in schema.own_columns:
        scale_w, origin_w = column.units
        own_w = feature_d[schema.places[column.name] :][: column.width]
        value_of_column[column.name] = own_w / scale_w + origin_w if column.numeric else np.zeros(column.width)
    return np.concatenate(_with_products(schema, value_of_column))


def ranges(schema: Schema) -> Floats:
    """Length of the declared range in units of each coefficient of `to_units`; 1 of an indicator and the intercept.

    1 of a spline, too, whose coefficients are differences between two knots.
    """
    length_of_column: dict[str, Floats] = {}
    for column in schema.own_columns:
        whole = isinstance(column, Ranged) and not isinstance(column, Spline)
        length_of_column[column.name] = 1 / column.units[0] if whole else np.ones(column.width)
    return np.concatenate([np.ones(1), *_with_products(schema, length_of_column)])


def _with_products(schema: Schema, found: Mapping[str, Floats]) -> list[Floats]:
    """A number for each feature of every column and of every product, which is a product of numbers."""
    return [
        np.multiply.outer(found[term.first.name], found[term.second.name]).ravel()
        if isinstance(term, Product)
        else found[term.name]
        for term in schema.terms
    ]


def plain(names: tuple[str, ...]) -> Coding:
    """A coefficient for each feature."""
    number = 1 + len(names)
    return Coding(("intercept", *names), sparse.eye_array(number, format="csr"), np.zeros(number, dtype=np.bool_))


def coded(schema: Schema, coding: str) -> Coding:
    """The lines of a table.

    Levels of a categorical column are compared, and the intercept takes what they are compared with; of a product that
    is taken by the other column.

    Raises:
        ParameterError: for an unknown coding, or "sum" with a column of thousands of categories.
    """
    check_choice("coding", coding, CODINGS)
    lines_of_column = {column.name: _lines(column, coding) for column in schema.own_columns}
    names, reference = ["intercept"], [False]
    first_line: dict[str, int] = {}
    for term in schema.terms:
        first_line[term.name] = len(names)
        if isinstance(term, Product):
            one, other = lines_of_column[term.first.name], lines_of_column[term.second.name]
            names += [f"{first}:{second}" for first in one.names for second in other.names]
            reference += [first or second for first in one.reference for second in other.reference]
        else:
            names += lines_of_column[term.name].names
            reference += lines_of_column[term.name].reference
    blocks = [(0, 0, sparse.coo_array([[1.0]]))]
    for term in schema.terms:
        at = 1 + schema.places[term.name]
        if isinstance(term, Product):
            one, other = lines_of_column[term.first.name], lines_of_column[term.second.name]
            blocks += [
                (first_line[term.name], at, sparse.coo_array(sparse.kron(one.matrix, other.matrix))),
                (first_line[term.first.name], at, sparse.coo_array(sparse.kron(one.matrix, other.base))),
                (first_line[term.second.name], at, sparse.coo_array(sparse.kron(one.base, other.matrix))),
                (0, at, sparse.coo_array(sparse.kron(one.base, other.base))),
            ]
        else:
            lines = lines_of_column[term.name]
            blocks += [(first_line[term.name], at, lines.matrix.tocoo()), (0, at, lines.base.tocoo())]
    entries = [_Entries(line + block.row, at + block.col, block.data) for line, at, block in blocks]
    return Coding(tuple(names), _matrix(entries, (len(names), 1 + schema.width)), np.array(reference))


def compared_with(schema: Schema, levels: Mapping[str, Any]) -> Schema:
    """The same columns, whose tables compare the levels of some columns with others than the schema names; public.

    Args:
        schema: the columns.
        levels: a category of each such column, by the column's name.

    Raises:
        ParameterError: for a column that has no categories, or a level that is none of them.
    """
    categorical = [column.name for column in schema.own_columns if isinstance(column, Categorical)]
    if not isinstance(levels, Mapping) or not {*levels} <= {*categorical}:
        raise ParameterError(
            f"reference must give a category of some of the columns {', '.join(categorical) or '(there are none)'}, "
            f'such as {{"work": "own"}}, got {levels!r}.'
        )
    columns = (
        replace(column, reference=levels[column.name]) if column.name in levels else column for column in schema.columns
    )
    return replace(schema, columns=tuple(columns))


def along(schema: Schema, name: str, at: Sequence[Any], reference: Any, given: Mapping[str, Any]) -> Coding:
    """Difference of one column's part between some of its values and a reference; all values are public.

    Args:
        schema: the columns.
        name: the column's.
        at: values of it; those outside its range count as its ends.
        reference: a value of it.
        given: a value of every other column with which this one has an interaction, by name.

    Raises:
        ParameterError: a column that `given` lacks or does not need, or a value that is none of a column.
    """
    columns = {column.name: column for column in schema.own_columns}
    if isinstance(at, (str, bytes)) or not isinstance(at, (Sequence, np.ndarray)) or not len(at):
        raise ParameterError(f"at must be a list of values of column {name!r}, at least one, got {at!r}.")
    products = [
        term for term in schema.terms if isinstance(term, Product) and name in (term.first.name, term.second.name)
    ]
    others = [term.second.name if term.first.name == name else term.first.name for term in products]
    if {*given} != {*others}:
        raise ParameterError(
            f"given must have a value of each column that acts together with {name!r}: {', '.join(others) or 'none'}; "
            f"got {', '.join(map(str, given)) or 'none'}. The effect of {name!r} depends on these."
        )
    values_of_column: dict[str, Floats] = {}
    for column, values in {name: [*at, reference], **{other: [given[other]] for other in others}}.items():
        values_of_column[column] = _in_units_of(columns[column], values, frozenset(schema.missing_values))
    matrix = sparse.lil_array((len(at), 1 + schema.width))
    for term in (columns[name], *products):
        if isinstance(term, Product):
            parts = values_of_column[term.first.name], values_of_column[term.second.name]
            value_nw = (parts[0][:, :, None] * parts[1][:, None, :]).reshape(len(at) + 1, -1)
        else:
            value_nw = values_of_column[name]
        start = 1 + schema.places[term.name]
        matrix[:, start : start + term.width] = value_nw[:-1] - value_nw[-1]
    names = tuple(f"{name}={shown(value)}" for value in at)
    return Coding(names, sparse.csr_array(matrix), np.zeros(len(names), dtype=np.bool_))


def reference_of(schema: Schema, name: str) -> Any:
    """The value of a column with which others are compared: a category, a knot, the first of two, a range's low end.

    Raises:
        ParameterError: no such column.
    """
    columns = {column.name: column for column in schema.own_columns}
    if name not in columns:
        raise ParameterError(f"A curve needs one of the columns {', '.join(columns)}, got {name!r}.")
    column = columns[name]
    if isinstance(column, Categorical):
        return column.categories[column.reference_place]
    if isinstance(column, Binary):
        return column.values[0]
    return column.reference if isinstance(column, Spline) else column.low


def _in_units_of(column: Column, values: Sequence[Any], missing_values: frozenset[str]) -> Floats:
    """Public values of a column as what its coefficients multiply, (n, w).

    Raises:
        ParameterError: for a value that is none.
    """
    encoded = column.encode(values, missing_values)
    for value, cells in zip(values, encoded.value_nm.tolist(), strict=True):
        if np.isnan(cells).any():
            raise ParameterError(f"A value of column {column.name!r} must be one that a row may have, got {value!r}.")
    feature_nw, (scale_w, origin_w) = np.zeros((len(values), column.width)), column.units
    np.put_along_axis(feature_nw, encoded.place_nm, encoded.value_nm, axis=1)
    return np.asarray(feature_nw / scale_w + origin_w)


def shown(value: Any) -> str:
    """A value as a name has it."""
    return f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)


class _Entries(NamedTuple):
    """Entries of a sparse matrix."""

    row: NDArray[Any]
    column: NDArray[Any]
    value: Floats


def _matrix(parts: list[_Entries], shape: tuple[int, int]) -> sparse.csr_array:
    row, column, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    matrix = sparse.csr_array((value, (row, column)), shape=shape)
    matrix.eliminate_zeros()
    return matrix


class _Lines(NamedTuple):
    """A column's lines: names, their combinations of its features, what the intercept takes, (1, w), and references."""

    names: list[str]
    matrix: sparse.csr_array
    base: sparse.csr_array
    reference: list[bool]


def _lines(column: Column, coding: str) -> _Lines:
    base_w = np.zeros(column.width)
    names, reference = [*column.names], [False] * column.width
    matrix = sparse.eye_array(column.width, format="csr")
    if transform := getattr(column, "transform", None):
        names = [f"{transform}({name})" for name in names]
    if isinstance(column, Binary) and [*map(label, column.values)] != ["0", "1"]:
        # A number of 0 or 1 needs no word on what it is compared with.
        zero, one = (f"{column.name}={text(value)}" for value in column.values)
        if coding == "reference":
            both = sparse.csr_array(np.array([[0.0], [1.0]]))
            return _Lines([zero, one], both, sparse.csr_array(base_w[None, :]), [True, False])
        names = [one]
    if not isinstance(column, Categorical) or coding == "none":
        return _Lines(names, matrix, sparse.csr_array(base_w[None, :]), reference)
    if coding == "reference":
        base_w[column.reference_place] = 1.0
        reference[column.reference_place] = True
    elif (number := len(column.categories)) <= _MOST_SUMMED:
        base_w[:number] = 1 / number
    else:
        raise ParameterError(
            f"coding 'sum' takes columns of at most {_MOST_SUMMED} categories, got {number} of column {column.name!r}. "
            "Take coding='reference'."
        )
    base = sparse.csr_array(base_w[None, :])
    return _Lines(names, sparse.csr_array(matrix - sparse.kron(np.ones((column.width, 1)), base)), base, reference)
