"""Types of arguments, by name: for readers of a signature, and for checkers of types.

A reader looks at what it is given and refuses what it cannot read; a type says no more than that it is one of these.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

from numpy.typing import ArrayLike
from scipy import sparse

from dpvb.core.source import Source
from dpvb.data.sequences.events import Events
from dpvb.data.tables.table import Table


class DataFrame(Protocol):
    """A table of pandas or Polars."""

    def __dataframe__(self, nan_as_null: bool = ..., allow_copy: bool = ...) -> object:
        """The table as other libraries read it."""


class ArrowTable(Protocol):
    """A table of Arrow, or of what hands itself over as one."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table's batches."""


Matrix: TypeAlias = ArrayLike | sparse.sparray | sparse.spmatrix
#: Private units: a table, documents, sequences or rows of numbers, in memory or in files.
Records: TypeAlias = (
    Table
    | Events
    | Source[Any]
    | Matrix
    | DataFrame
    | ArrowTable
    | Mapping[str, Iterable[object]]
    | Iterable[object]
    | os.PathLike[str]
)
#: Responses or labels, one for each row; None: the records bring their own, or there are none.
Responses: TypeAlias = ArrayLike | Iterable[object] | None
