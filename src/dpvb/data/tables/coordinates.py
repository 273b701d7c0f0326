"""Linear maps from a model's weights to the coefficients that people read; all that is here is public.

A row's features f are those of `schema`, before the row is divided by its norm. With v the weights of (1, f), the
intercept's first,

    β = U v         coefficients in the columns' own units, one a feature: `to_units`
    γ = K β         coefficients in a coding, such as those against a reference level: `coded`
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpvb.data.spelling import Floats, label, text
from dpvb.data.tables.schema import INDICATOR, Binary, Categorical, Column, Numeric, Schema
from dpvb.guards.errors import ParameterError, check_choice

#: "reference": against one level of each categorical column; "sum": against the mean of its categories; "places": a
#: coefficient for each feature, as rows have them.
CODINGS: Final = ("reference", "sum", "places")
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
    an indicator per category; the intercept is that of a row of zeros.
    """
    ends = [column.ends if isinstance(column, Numeric) else (0.0, 1 / INDICATOR) for column in schema.columns]
    widths = [column.width for column in schema.columns]
    low_d, high_d = (np.repeat(end, widths) for end in np.array(ends).T)
    unit_d = 1 / (high_d - low_d)
    matrix = sparse.lil_array(sparse.diags_array(np.append(1.0, unit_d)))
    matrix[0, 1:] = -low_d * unit_d
    return sparse.csr_array(matrix)


def in_units(schema: Schema, feature_d: Floats) -> Floats:
    """Features of numbers, (features,), in the columns' own units; 0 in the place of any other."""
    ends = [column.ends if isinstance(column, Numeric) else (0.0, 0.0) for column in schema.columns]
    low_d, high_d = (np.repeat(end, [column.width for column in schema.columns]) for end in np.array(ends).T)
    return np.asarray(low_d + feature_d * (high_d - low_d))


def ranges(schema: Schema) -> Floats:
    """Length of the declared range in units of each coefficient of `to_units`; 1 of an indicator and the intercept."""
    lengths = [column.ends[1] - column.ends[0] if isinstance(column, Numeric) else 1.0 for column in schema.columns]
    return np.append(1.0, np.repeat(lengths, [column.width for column in schema.columns]))


def plain(names: tuple[str, ...]) -> Coding:
    """A coefficient for each feature."""
    number = 1 + len(names)
    return Coding(("intercept", *names), sparse.eye_array(number, format="csr"), np.zeros(number, dtype=np.bool_))


def coded(schema: Schema, coding: str) -> Coding:
    """The lines of a table.

    Levels of a categorical column are compared, and the intercept takes what they are compared with.

    Raises:
        ParameterError: for an unknown coding, or "sum" with a column of thousands of categories.
    """
    if check_choice("coding", coding, CODINGS) == "places":
        return plain(schema.feature_names)
    parts = [_lines(column, coding) for column in schema.columns]
    names, blocks, bases, references = zip(*parts, strict=True)
    matrix = sparse.lil_array(sparse.block_diag([[[1.0]], *blocks]))
    matrix[0, 1:] = np.concatenate(bases)
    reference_r = np.array([False, *(is_one for part in references for is_one in part)])
    return Coding(("intercept", *(name for part in names for name in part)), sparse.csr_array(matrix), reference_r)


def _lines(column: Column, coding: str) -> tuple[list[str], sparse.csr_array, Floats, list[bool]]:
    """Names of a column's lines, their combinations of its features, what the intercept takes, and the references."""
    base_w = np.zeros(column.width)
    names, reference = [*column.names], [False] * column.width
    matrix = sparse.eye_array(column.width, format="csr")
    if isinstance(column, Binary) and coding == "reference" and [*map(label, column.values)] != ["0", "1"]:
        # A number of 0 or 1 needs no word on what it is compared with.
        return (
            [f"{column.name}={text(column.values[0])}", *names],
            sparse.vstack([0 * matrix, matrix]),
            base_w,
            [True, False],
        )
    if not isinstance(column, Categorical):
        return names, matrix, base_w, reference
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
    against = sparse.kron(np.ones((column.width, 1)), base_w[None, :])
    return names, sparse.csr_array(matrix - against), base_w, reference
