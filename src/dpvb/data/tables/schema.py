"""What is public about the columns of a table, and the rule that makes numbers of them.

Nothing here is fitted to data. A row's features are, in the order of the schema:

==============  ======================================================================================
column          features
==============  ======================================================================================
Numeric         one: clipped to [low, high], transformed, then scaled to [0, 1]
Binary          one: 0 or 0.7
Categorical     0.7 for the category that it is, 0 for the others; one more place for a value that is
                none of them, and one for a missing value
==============  ======================================================================================

A whole row is divided by the public constant R of `Schema.row_norm`, so that rows have a norm of about 1.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import MISSING_VALUES, UNREADABLE, Categories, Cells, Floats, as_numbers, label, text
from dpvb.data.tables.response import Kind, Response
from dpvb.guards import pages
from dpvb.guards.errors import DataFormatError, DpvbError, ParameterError, check_choice, check_number, reason_of
from dpvb.guards.strangers import parsed_json

#: Size of an indicator: two rows that differ in a category are as far apart as the ends of a numeric column.
INDICATOR = 0.7

_FORMAT = "dpvb-schema"
_VERSION = 1
_TRANSFORMS = ("log1p", "asinh")
_MAX_CATEGORIES = 10**6


#: Cells of a column as a model reads them: their places among its features, their values, and which were cut or filled.
Encoded: TypeAlias = tuple[NDArray[np.int64], Floats, NDArray[np.bool_]]


@dataclass(frozen=True)
class Numeric:
    """A number with a public range.

    Attributes:
        name: the column's.
        low, high: public range; values outside are clipped to it.
        transform: None, "log1p" or "asinh", applied after clipping and before scaling to [0, 1].
        missing: the value that stands for a missing one (no number, or no text of a number); None: such a row is
            faulty and adds nothing. An infinity is always faulty.

    Raises:
        ParameterError: a missing bound, or a field outside its range.
    """

    name: str
    low: float | None = None
    high: float | None = None
    transform: Literal["log1p", "asinh"] | None = None
    missing: float | None = None
    kind: ClassVar[str] = "numeric"

    def __post_init__(self) -> None:
        _check_name(self.name)
        if self.low is None or self.high is None:
            bound = " and ".join(name for name in ("low", "high") if getattr(self, name) is None)
            raise ParameterError(
                f"column {self.name!r} needs {bound}, a public bound: one read off private data would show the largest "
                "or smallest value that somebody has. Three ways out: "
                f"(1) give a range that you know without looking at the data: Numeric({self.name!r}, low=0, high=120); "
                "(2) let a small private release choose one: dpvb.private_range(values, low=..., high=..., "
                "epsilon=0.05, delta=1e-6) on a range that is surely wide enough, its budget added to the fit's; "
                "(3) rescale to units that have a range by themselves, as a share of a total or a rank in a public "
                f"table: Numeric({self.name!r}, low=0, high=1)."
            )
        if self.transform is not None:
            check_choice(f"transform of column {self.name!r}", self.transform, _TRANSFORMS, hint="None: no transform.")
        least = -1.0 if self.transform == "log1p" else -1e300
        low = check_number(f"low of column {self.name!r}", self.low, low=least, high=1e300, closed="right")
        high = check_number(f"high of column {self.name!r}", self.high, low=low, high=1e300, closed="right")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not self.ends[1] > self.ends[0]:
            raise ParameterError(f"the range of column {self.name!r} is too narrow, got low={low!r} and high={high!r}.")
        if self.missing is not None:
            missing = check_number(f"missing of column {self.name!r}", self.missing, low=-1e300, high=1e300)
            object.__setattr__(self, "missing", missing)

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name is the column's."""
        return (self.name,)

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm, guessed as a uniform one's."""
        return 1 / 3, 4 / 45

    @property
    def ends(self) -> tuple[Any, Any]:
        """The range, transformed."""
        return self._transformed(np.float64(self.low)), self._transformed(np.float64(self.high))

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """Place (always 0) and value of each cell, NaN in a faulty one; cells cut to the range, or filled in."""
        value_n = as_numbers(cells)
        with np.errstate(all="ignore"):
            cut_n = np.clip(value_n, self.low, self.high) != value_n
            if self.missing is not None:
                value_n = np.where(np.isnan(value_n), self.missing, value_n)
            low, high = self.ends
            scaled_n = (self._transformed(np.clip(value_n, self.low, self.high)) - low) / (high - low)
        scaled_n = np.where(np.isfinite(value_n), np.clip(scaled_n, 0, 1), np.nan)
        return np.zeros(len(value_n), dtype=np.int64), scaled_n, cut_n

    def _transformed(self, value: Any) -> Any:
        if self.transform is None:
            return value
        return np.log1p(value) if self.transform == "log1p" else np.arcsinh(value)


@dataclass(frozen=True)
class Binary:
    """A column of two values.

    Attributes:
        name: the column's.
        values: the two values, of which the second is the feature's 0.7; public.
        missing: which of the two stands for a missing or another value; None: such a row is faulty and adds nothing.

    Raises:
        ParameterError: for a field outside its range.
    """

    name: str
    values: tuple[Any, Any] = (0, 1)
    missing: Any = None
    kind: ClassVar[str] = "binary"

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "values", _check_categories(self.name, "values", self.values))
        if len(self.values) != 2:
            raise ParameterError(f"values of column {self.name!r} must be two values, got {self.values!r}.")
        if self.missing is not None and label(self.missing) not in map(label, self.values):
            raise ParameterError(
                f"missing of column {self.name!r} must be one of {self.values!r} or None, got {self.missing!r}."
            )

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name is the column's."""
        return (self.name,)

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm, guessed as a fair coin's."""
        return INDICATOR**2 / 2, INDICATOR**4 / 4

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """Place (always 0) and value of each cell; the value is NaN in a faulty one."""
        otherwise = -1 if self.missing is None else [*map(label, self.values)].index(label(self.missing))
        code_n = Categories(self.values, missing_values).places(cells, unseen=otherwise, missing=otherwise)
        value_n = np.where(code_n < 0, np.nan, INDICATOR * code_n)
        return np.zeros(len(code_n), dtype=np.int64), value_n, np.zeros(len(code_n), dtype=np.bool_)


@dataclass(frozen=True)
class Categorical:
    """A column of public categories.

    Categories and values are compared in one spelling, whatever form the table has: texts without blanks at the ends
    and without regard to capital letters, numbers by their value ("1.50" is 1.5), 0/1 and False/True being the same. So
    two categories must differ in more than that.

    Attributes:
        name: the column's.
        categories: the public categories in the order of their features.
        unseen: whether a value that is none of them has a place of its own; False: such a row is faulty.
        missing: the same for a missing value.
        reference: the category that a table of coefficients compares the others with; None: the first. It changes no
            fit.

    Raises:
        ParameterError: no categories, one twice, or a reference that is none of them.
    """

    name: str
    categories: tuple[Any, ...]
    unseen: bool = True
    missing: bool = True
    reference: Any = field(default=None, compare=False)
    kind: ClassVar[str] = "categorical"

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "categories", _check_categories(self.name, "categories", self.categories))
        for name in ("unseen", "missing"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(
                    f"{name} of column {self.name!r} must be True or False, got {getattr(self, name)!r}."
                )
        if self.reference is not None:
            labels = [*map(label, self.categories)]
            if label(self.reference) not in labels:
                raise ParameterError(
                    f"reference of column {self.name!r} must be one of {self.categories!r} or None, "
                    f"got {self.reference!r}."
                )
            object.__setattr__(self, "reference", self.categories[labels.index(label(self.reference))])

    @property
    def reference_place(self) -> int:
        """Place of the reference among the categories."""
        return 0 if self.reference is None else self.categories.index(self.reference)

    @property
    def width(self) -> int:
        """One feature for each category, and for each further place."""
        return len(self.categories) + self.unseen + self.missing

    @property
    def names(self) -> tuple[str, ...]:
        """column=category, then column=<unseen> and column=<missing>."""
        places = ["<unseen>"] * self.unseen + ["<missing>"] * self.missing
        return tuple(f"{self.name}={place}" for place in (*map(text, self.categories), *places))

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm."""
        return INDICATOR**2, 0.0

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """Place and value of each cell; the value is NaN in a faulty one."""
        count = len(self.categories)
        unseen = count if self.unseen else -1
        missing = count + self.unseen if self.missing else -1
        code_n = Categories(self.categories, missing_values).places(cells, unseen=unseen, missing=missing)
        value_n = np.where(code_n < 0, np.nan, INDICATOR)
        return np.maximum(code_n, 0), value_n, np.zeros(len(code_n), dtype=np.bool_)


Column: TypeAlias = "Numeric | Binary | Categorical"
_KINDS: dict[str, type[Numeric | Binary | Categorical]] = {c.kind: c for c in (Numeric, Binary, Categorical)}


@dataclass(frozen=True)
class Target:
    """The column of responses.

    Attributes:
        name: the column's.
        kind, classes, max_trials, max_count: as in `Response`; labels are compared as categories are.
        trials: the column of numbers of trials (binomial).

    Raises:
        ParameterError: for a field outside its range.
    """

    name: str
    kind: Kind = "logistic"
    classes: tuple[Any, Any] = (0, 1)
    max_trials: int = 1
    max_count: int = 1
    trials: str | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        classes = _check_categories(self.name, "classes", self.response.classes)
        for name, value in {**self.response.caps, "classes": classes}.items():
            object.__setattr__(self, name, value)
        if (self.trials is None) == (self.kind == "binomial"):
            raise ParameterError(
                f"trials must name a column for a binomial target and for no other; the kind is {self.kind!r}."
            )
        if self.trials is not None:
            _check_name(self.trials)

    @property
    def response(self) -> Response:
        """What y may be."""
        return Response(self.kind, self.classes, self.max_trials, self.max_count)


@dataclass(frozen=True)
class Schema:
    """The public columns of a table.

    Attributes:
        columns: in the order of their features; other columns of the data are not read.
        target: the column of responses, if the data hold them.
        group: the column that says whose a row is; its persons are then the privacy units.
        scale: R; None: the rule of `row_norm`.
        missing_values: texts that stand for a missing value; in the group column they name nobody.

    Raises:
        ParameterError: no columns, a name twice, or a field outside its range.
    """

    columns: tuple[Column, ...]
    target: Target | None = None
    group: str | None = None
    scale: float | None = None
    missing_values: tuple[str, ...] = MISSING_VALUES

    def __post_init__(self) -> None:
        for name in ("columns", "missing_values"):
            given = getattr(self, name)
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise ParameterError(f"{name} must be a list, got {given!r}.")
            object.__setattr__(self, name, tuple(given))
        if not self.columns or not all(isinstance(column, tuple(_KINDS.values())) for column in self.columns):
            raise ParameterError("columns must be a list of Numeric, Binary and Categorical columns, at least one.")
        if self.target is not None and not isinstance(self.target, Target):
            raise ParameterError(f"target must be a Target or None, got {self.target!r}.")
        if self.group is not None:
            _check_name(self.group)
        names = self.read_columns
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"each column has one role, got {name!r} more than once among columns and roles.")
        if not all(isinstance(text, str) for text in self.missing_values):
            raise ParameterError(f"missing_values must be texts, got {self.missing_values!r}.")
        if self.scale is not None:
            hint = "The intercept 1/scale is part of a row, whose norm is 1."
            scale = check_number("scale", self.scale, low=1, high=1e100, closed="right", hint=hint)
            object.__setattr__(self, "scale", scale)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, without the intercept."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def width(self) -> int:
        """Number of features, without the intercept."""
        return sum(column.width for column in self.columns)

    @property
    def row_norm(self) -> float:
        """R, by which rows are divided: R² = 1 for the intercept + mean + 2 standard deviations of ‖x‖².

        Each column has its public guess (`square`) and they are taken for independent, so that few rows are longer than
        R; those are scaled back to it.
        """
        if self.scale is not None:
            return self.scale
        means, variances = zip(*(column.square for column in self.columns), strict=True)
        return math.sqrt(1.0 + math.fsum(means) + 2.0 * math.sqrt(math.fsum(variances)))

    @property
    def intercept(self) -> float:
        """The intercept's constant in a row, 1/R."""
        return 1.0 / self.row_norm

    @property
    def read_columns(self) -> list[str]:
        """Names of all columns that are read, the target's and the group's last."""
        names = [column.name for column in self.columns]
        if self.target is not None:
            names += [self.target.name, *([] if self.target.trials is None else [self.target.trials])]
        return names if self.group is None else [*names, self.group]

    def _repr_html_(self) -> str:
        """The schema for a notebook: a row for each column, and what is declared beside them."""
        rows = [(column.name, column.kind, _said(column, "name")) for column in self.columns]
        roles = _said(self, "columns")
        return f"<div>{pages.table(rows, head=('column', 'kind', 'declared'))}<p>{pages.escaped(roles)}</p></div>"

    def to_json(self) -> str:
        """The schema as JSON text; `from_json` is its exact inverse."""
        facts = {
            "format": _FORMAT,
            "version": _VERSION,
            "columns": [{"kind": column.kind, **asdict(column)} for column in self.columns],
            "target": None if self.target is None else asdict(self.target),
            "group": self.group,
            "scale": self.scale,
            "missing_values": list(self.missing_values),
        }
        return json.dumps(facts, indent=2, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read what `to_json` wrote; fields that have a default may be left out.

        Raises:
            DataFormatError: no JSON object of a schema, an unknown field or kind, or a newer version.
            ParameterError: a column without bounds, or another field outside its range.
        """
        try:
            facts = parsed_json(text)
        except (ValueError, TypeError) as error:
            raise DataFormatError(f"The schema is not JSON: {error}.") from error
        if not isinstance(facts, dict) or facts.pop("format", _FORMAT) != _FORMAT:
            raise DataFormatError(f'A schema is a JSON object with "format": "{_FORMAT}" and "columns": [...].')
        version = facts.pop("version", _VERSION)
        if version != _VERSION:
            raise DataFormatError(f"The schema has version {version!r}; this program reads version {_VERSION}.")
        columns = facts.pop("columns", None)
        if not isinstance(columns, list):
            raise DataFormatError('The schema must hold "columns": a list of objects.')
        facts["columns"] = tuple(_column(column, number) for number, column in enumerate(columns, start=1))
        if facts.get("target") is not None:
            if isinstance(facts["target"], dict) and facts["target"].get("name", "") is None:
                raise ParameterError(
                    "target of the schema needs name, the column of responses, which then is none of columns; where "
                    "the data have no response, write null in its place."
                )
            facts["target"] = _made(Target, facts["target"], "target")
        made: Schema = _made(cls, facts, "schema")
        return made

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as a JSON file.

        Raises:
            DataFormatError: the file cannot be written.
        """
        try:
            Path(path).write_text(self.to_json() + "\n", encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = reason_of(error) if isinstance(error, OSError) else "it holds text that is not Unicode"
            raise DataFormatError(f"The schema file {os.fspath(path)!r} cannot be written: {reason}.") from error

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Schema:
        """Read a JSON file.

        Raises:
            DataFormatError: the file cannot be read, and as `from_json`.
            ParameterError: as `from_json`.
        """
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise DataFormatError(f"The schema file {os.fspath(path)!r} cannot be read: {reason_of(error)}.") from error
        return cls.from_json(content)


def _column(facts: object, number: int) -> Column:
    if not isinstance(facts, dict) or facts.get("kind") not in [*_KINDS]:
        raise DataFormatError(
            f'Column {number} of the schema must be an object with "kind": one of {", ".join(_KINDS)}.'
        )
    made: Column = _made(_KINDS[facts["kind"]], {k: v for k, v in facts.items() if k != "kind"}, f"column {number}")
    return made


def _made(kind: type[Any], facts: object, place: str) -> Any:
    """A schema's part from its JSON facts."""
    known = [field.name for field in fields(kind)]
    if not isinstance(facts, Mapping) or not set(facts) <= set(known):
        extra = sorted(set(facts) - set(known)) if isinstance(facts, Mapping) else facts
        raise DataFormatError(f"The schema's {place} knows the fields {', '.join(known)}, got {extra!r}.")
    try:
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()})
    except DpvbError:
        raise
    except (TypeError, ValueError) as error:
        raise DataFormatError(f"The schema's {place} is faulty: {error}.") from error


def _said(part: Any, *without: str) -> str:
    """What a schema's part declares beyond its defaults, in Python's words; a long list in short."""
    given = [(one, getattr(part, one.name)) for one in fields(part) if one.name not in without]
    return ", ".join(f"{one.name}={_value(value)}" for one, value in given if value != one.default)


def _value(value: object) -> str:
    return f"{type(value).__name__}({_said(value)})" if isinstance(value, Target) else pages.shortened(value)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ParameterError(f"the name of a column must be a nonempty text, got {name!r}.")


def _check_categories(name: str, field: str, given: object) -> tuple[Any, ...]:
    """Public categories as plain Python values of different labels."""
    if isinstance(given, (str, bytes)) or not isinstance(given, (Sequence, np.ndarray)):
        raise ParameterError(f"{field} of column {name!r} must be a list of public values, got {given!r}.")
    values = tuple(value.item() if isinstance(value, np.generic) else value for value in given)
    if not 1 <= len(values) <= _MAX_CATEGORIES:
        raise ParameterError(f"{field} of column {name!r} must hold 1 to {_MAX_CATEGORIES} values, got {len(values)}.")
    first: dict[str | None, object] = {}
    for value in values:
        known = isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))
        name_of_value = label(value)
        if not known or name_of_value == UNREADABLE:
            raise ParameterError(f"{field} of column {name!r} must hold texts or finite numbers, got {value!r}.")
        if name_of_value in first:
            raise ParameterError(
                f"{field} of column {name!r} must not repeat a value, got {first[name_of_value]!r} and {value!r}: "
                "capital letters, blanks at the ends and the form of a number make no difference. Rename one of them, "
                "or take one for both."
            )
        first[name_of_value] = value
    return values
