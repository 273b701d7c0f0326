"""What the declared type of a NumPy array rules out: a call that can only be useless is refused before its charge.

The dtype of an array of numbers or dates is public, as its width is: each record is a value of that type, in every
neighbouring data set too. Nothing else is asked. A column of pandas or Arrow has the type that some reader has inferred
from its values, and so one private value may have decided it; an array of texts or objects may hold numbers or labels
as text (see `spelling`); and the cells of a list are private, their types included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dpvb.data.spelling import label, number
from dpvb.data.times import time_of_text
from dpvb.guards.errors import DataFormatError

# Kinds of dtypes whose values are numbers, and those of which no value is read as a number: dates and records.
_NUMBERS: Final = "biufcm"
_NO_NUMBERS: Final = "MV"
_CHARGED: Final = "Nothing was spent."


def check_numbers(name: str, values: object) -> None:
    """Refuse an array of which no value is a number.

    Raises:
        DataFormatError: for dates and structured records.
    """
    if _kind(values) in _NO_NUMBERS:
        raise DataFormatError(
            f"{name} must hold numbers, but is an array of dtype {_dtype(values)}, whose values are none. Dates become "
            f"numbers by a public origin and unit, and columns with names go in as dpvb.data.Table. {_CHARGED}"
        )


def check_texts(name: str, values: object) -> None:
    """Refuse an array of which no value is a text.

    Raises:
        DataFormatError: for numbers, dates and structured records.
    """
    if _kind(values) in _NUMBERS + _NO_NUMBERS:
        raise DataFormatError(
            f"{name} with one dimension must hold texts, but is an array of dtype {_dtype(values)}, whose values are "
            f"none. Counts have 2 dimensions, documents by words. {_CHARGED}"
        )


def check_labels(name: str, values: object, labels: Sequence[object]) -> None:
    """Refuse an array of which no value can be one of the declared labels.

    Args:
        name: public.
        values: private but for the dtype of an array.
        labels: classes, symbols or categories; public.

    Raises:
        DataFormatError: naming the labels and the dtype.
    """
    kind = _kind(values)
    if kind == "V" or (kind in _NUMBERS + "M" and not any(_may_be(kind, one) for one in labels)):
        few = ", ".join(map(repr, labels[:5])) + (", ..." if len(labels) > 5 else "")
        raise DataFormatError(
            f"{name} must hold some of {few}, but is an array of dtype {_dtype(values)}, whose values are none of "
            f"them. Declare what {name} holds, or give {name} in the declared spelling. {_CHARGED}"
        )


def _may_be(kind: str, one: object) -> bool:
    """Whether a value of a kind can be spelled as a label."""
    spelled = label(one)
    if spelled is None:  # A label that stands for what is missing.
        return True
    if kind == "M":
        return time_of_text(spelled) is not None
    value = number(spelled)
    if kind == "b":
        return value in (0.0, 1.0)
    return not np.isnan(value) and (kind in "fc" or value == np.floor(value))


def _kind(values: object) -> str:
    """The kind of the dtype that a NumPy array declares; "O", of which nothing is known, for anything else."""
    return str(values.dtype.kind) if type(values) is np.ndarray else "O"


def _dtype(values: object) -> str:
    return str(getattr(values, "dtype", ""))[:60]
