"""Synthetic rows, uniform in public declarations, for dry runs, forecasts and audits; no private row is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from scipy import sparse

from dpvb.data import BagOfWords, Categorical, Schema, Table, check_vocabulary
from dpvb.data.sequences.content import Symbols
from dpvb.data.tables.ranged import Ranged
from dpvb.data.tables.response import Response
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_integer

#: Rows of a dry run if no public number of units is given.
NUM_ROWS = 10_000
#: Words of a document: half a page.
LENGTH = 200
# Parameters that declare the columns, by the form of data.
_COLUMNS = {
    "documents": "vocabulary=, or width=, the number of words",
    "images": "width=, the number of entries of a row",
    "table": "schema=, which says what is public of a table",
    "labelled": "schema= for a table, vocabulary= for texts",
}
_ROWS = "schema= for a table, width= for a matrix, the number of its columns"
# Different words of texts without a public vocabulary.
_WORDS = 500


def arguments(
    estimator: Any,
    num_rows: int,
    *,
    schema: Schema | None,
    vocabulary: Sequence[str] | None,
    width: int | None,
    responses: int | None,
    grouped: bool,
) -> dict[str, Any]:
    """Return the arguments of `_task` for rows that are uniform in the declared ranges, categories or words.

    Args:
        estimator: Its class attribute `_reads` names the form of the rows.
        num_rows: Number of rows; each is a unit.
        schema, vocabulary, width: Public declarations of the columns, at least one of them.
        responses: Shape of y for estimators of plain numbers. None: no y; 0: one number per row; else numbers per row.
        grouped: whether each row comes with a person.

    Raises:
        ParameterError: if nothing says which columns there are.
    """
    rng = np.random.default_rng(0)
    if schema is not None:
        # A schema has its own persons.
        without = ("measurements", "model rows")
        if estimator._reads in without or (schema.target is None and estimator._reads in ("table", "labelled")):
            return {"X": Table(drawn_cells(schema, num_rows, rng), schema)}
        response = schema.target.response if schema.target is not None else estimator._response
        table = Table(drawn_cells(schema, num_rows, rng), schema)
        return {"X": table} if schema.target is not None else {"X": table, **drawn_responses(response, num_rows, rng)}
    if estimator._reads == "sequences":
        drawn = _sequences(estimator, num_rows, rng)
        return {"X": drawn, **({"group": np.arange(num_rows)} if grouped else {})}
    if estimator._opens:
        return {"X": _texts(num_rows, rng), **({"group": np.arange(num_rows)} if grouped else {})}
    words = None if vocabulary is None else check_vocabulary(vocabulary, width=width)
    if width is None and words is None:
        raise ParameterError(
            "No data are opened here, so that the columns must be declared: give "
            f"{_COLUMNS.get(str(estimator._reads), _ROWS)}."
        )
    width = check_integer("width", len(words) if words is not None else width, low=1)
    group = {"group": np.arange(num_rows)} if grouped else {}
    if estimator._reads == "labelled" and words is None:
        words = check_vocabulary([f"word{v}" for v in range(width)])
    if estimator._reads in ("documents", "labelled"):
        places = np.repeat(np.arange(num_rows), LENGTH), rng.integers(width, size=num_rows * LENGTH)
        counts = sparse.csr_array((np.ones(num_rows * LENGTH), places), shape=(num_rows, width))
        labels = {"y": _choices(estimator._class_labels(), num_rows, rng)} if estimator._reads == "labelled" else {}
        return {"X": BagOfWords(counts, vocabulary=words), **labels, **group}
    if estimator._reads == "images":
        level = estimator.threshold
        pixels = (0.0, 1.0) if level is None else (float(level), np.nextafter(float(level), np.inf))
        return {"X": np.where(rng.random((num_rows, width)) < 0.5, *pixels), **group}
    x_nd = drawn_numbers(estimator, rng.random((num_rows, width)))
    if estimator._reads == "rows":
        return {"X": x_nd, **drawn_responses(estimator._response, num_rows, rng), **group}
    if isinstance(response := getattr(estimator, "response", None), Response):
        return {"X": x_nd, **drawn_responses(response, num_rows, rng), **group}
    if responses is None:
        return {"X": x_nd, **group}
    shape = (num_rows, responses) if check_integer("responses", responses, low=0) else (num_rows,)
    return {"X": x_nd, "y": rng.standard_normal(shape), **group}


def _sequences(estimator: Any, num_rows: int, rng: np.random.Generator) -> Any:
    """Sequences as long as the longest: of symbols, of numbers, or of bits if the numbers have no bounds."""
    content = estimator._content()
    shape = num_rows, estimator.max_length
    if isinstance(content, Symbols):
        return np.array(content.values, dtype=object)[rng.integers(len(content), size=shape)]
    if not math.isfinite(content.reach):
        return rng.integers(2, size=(*shape, len(content)))
    return drawn_numbers(estimator, rng.random((num_rows * estimator.max_length, len(content)))).reshape(
        *shape, len(content)
    )


def _texts(num_rows: int, rng: np.random.Generator) -> list[str]:
    """Texts of words without a meaning, 26³ of them at most."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = np.array([a + b + c for a in letters for b in letters for c in letters])[rng.permutation(26**3)[:_WORDS]]
    return [" ".join(words[row]) for row in rng.integers(len(words), size=(num_rows, LENGTH))]


def drawn_numbers(estimator: Any, share_nd: Floats) -> Floats:
    """Rows of a plain matrix, uniform in the public range of each column or in a cube of rows within max_row_norm."""
    low, high, max_row_norm = (getattr(estimator, name, None) for name in ("low", "high", "max_row_norm"))
    with suppress(TypeError, ValueError):  # A value that is not a range is refused with its name where the fit begins.
        if low is not None and high is not None:
            low_d, high_d = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
            return np.asarray(low_d + share_nd * (high_d - low_d))
        return np.asarray(
            (2 * share_nd - 1) * (1.0 if max_row_norm is None else float(max_row_norm)) / np.sqrt(share_nd.shape[1])
        )
    return share_nd


def drawn_cells(schema: Schema, num_rows: int, rng: np.random.Generator) -> dict[str, Any]:
    """Columns of a table with a schema, each row of a person of its own."""
    cells: dict[str, Any] = {}
    for spec in schema.own_columns:
        if isinstance(spec, Ranged):
            low, high = spec.range
            cells[spec.name] = spec.cells(low + rng.random(num_rows) * (high - low))
        else:
            cells[spec.name] = _choices(
                spec.categories if isinstance(spec, Categorical) else spec.values, num_rows, rng
            )
    if schema.target is not None:
        columns = drawn_responses(schema.target.response, num_rows, rng)
        cells[schema.target.name] = columns["y"]
        cells |= {getattr(schema.target, role): column for role, column in columns.items() if role != "y"}
    if schema.group is not None:
        cells[schema.group] = np.arange(num_rows)
    return cells


def drawn_responses(response: Response, num_rows: int, rng: np.random.Generator) -> dict[str, Any]:
    """Responses of rows, and their row arguments."""
    columns: dict[str, Any]
    if response.is_label:
        columns = {"y": _choices(response.classes, num_rows, rng)}
    elif response.kind == "numeric":
        columns = {"y": response.middle + response.half * (2.0 * rng.random(num_rows) - 1.0)}
    elif response.is_count:
        columns = {"y": rng.integers(response.max_count + 1, size=num_rows)}
    else:
        trials = rng.integers(1, response.max_trials + 1, size=num_rows)
        columns = {"y": rng.integers(trials + 1), "trials": trials}
    for name, most in response.columns.items():
        columns[name] = most * (1.0 - rng.random(num_rows) * (2.0 if name == "offset" else 1.0))
    return columns


def _choices(values: Sequence[Any], num_rows: int, rng: np.random.Generator) -> Any:
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells[rng.integers(len(values), size=num_rows)]
