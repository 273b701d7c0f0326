"""Public facts about the columns of a table, and how they are written down.

Nothing here is fitted to data. A row's features are those of its columns (`columns`), in the order of the schema. A
whole row is divided by the public constant R of `Schema.max_row_norm`, so that rows have a norm of about 1.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import MISSING_VALUES, Cells, Floats
from dpvb.data.tables.columns import Binary, Categorical, Column, Interaction, Product, check_categories
from dpvb.data.tables.ranged import Date, Encoded, Numeric, Spline, check_name
from dpvb.data.tables.response import BOUNDS, Kind, Response
from dpvb.guards import notebook_html
from dpvb.guards.errors import DataFormatError, DpvbError, ParameterError, check_number, check_path, reason_of
from dpvb.guards.untrusted import parsed_json

_FORMAT = "dpvb-schema"
_VERSION = 1
_KINDS: dict[str, type[Column | Interaction]] = {
    kind.kind: kind for kind in (Numeric, Date, Spline, Binary, Categorical, Interaction)
}


@dataclass(frozen=True)
class Target:
    """The column of responses.

    Attributes:
        name: name of the column.
        kind: kind of the response, as in `Response`.
        classes: public labels of the kinds "logistic" and "classes". Labels are compared as categories are.
        max_trials: largest number of trials (kind "binomial").
        max_count: largest count (kinds "poisson" and "negative_binomial"). Larger counts are clipped to it.
        low, high: public range of a number (kind "numeric"). Values outside are clipped to it.
        trials: column with the number of trials (kind "binomial").
        exposure: column with the time or amount for which a row was observed (counts).
        offset: column whose values are added to the log odds or log mean.
        weights: column with the number of equal rows that a row represents.
        max_exposure, max_offset, max_weight: public bound of that column; needed with it.

    Raises:
        ParameterError: for a field outside its range.

    Examples:
        >>> from dpvb.data import Target
        >>> Target("ill", classes=("no", "yes")).response.is_label
        True
    """

    name: str
    kind: Kind = "logistic"
    classes: tuple[Any, ...] = (0, 1)
    max_trials: int = 1
    max_count: int = 1
    trials: str | None = None
    exposure: str | None = None
    offset: str | None = None
    weights: str | None = None
    max_exposure: float | None = None
    max_offset: float | None = None
    max_weight: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        check_name(self.name)
        for role, bound in BOUNDS.items():
            if (getattr(self, role) is None) != (getattr(self, bound) is None):
                raise ParameterError(
                    f"{role} and {bound} of a target go together, the column and its public bound, got "
                    f"{getattr(self, role)!r} and {getattr(self, bound)!r}."
                )
        classes = check_categories(self.name, "classes", self.response.classes)
        for name, value in {**self.response.caps, "classes": classes}.items():
            object.__setattr__(self, name, value)
        if (self.trials is None) == (self.kind == "binomial"):
            raise ParameterError(
                f"trials must name a column for a binomial target and for no other; the kind is {self.kind!r}."
            )
        for name in self.columns:
            check_name(name)

    @property
    def columns(self) -> list[str]:
        """The columns that are read: of the response, and of the row arguments."""
        beside = (self.trials, self.exposure, self.offset, self.weights)
        return [self.name, *(name for name in beside if name is not None)]

    @property
    def response(self) -> Response:
        """Declaration of y."""
        bounds = ("max_trials", "max_count", "low", "high", *BOUNDS.values())
        return Response(self.kind, self.classes, **{name: getattr(self, name) for name in bounds})


@dataclass(frozen=True)
class Schema:
    """Public declaration of the columns of a table.

    Attributes:
        columns: Columns and interactions, in the order of their features; at least one. Other columns of the data are
            not read. Default: (), which raises an error.
        target: Column of the response. None (default): the data have no response.
        group: Column of the person ID, whose persons are the privacy units. None (default): each row is a unit.
        scale: Public upper bound R on the norm of a row. None (default): computed from the columns by the rule of
            `max_row_norm`.
        missing_values: Texts that mean a missing value; in the group column, a row without a person. Default: usual
            texts such as "", "NA" and "nan".

    Raises:
        ParameterError: If there are no columns, a name occurs twice, an interaction names no column, or a field is
            outside its range.

    Examples:
        >>> from dpvb.data import Categorical, Numeric, Schema, Target
        >>> columns = (Numeric("age", 18, 90), Categorical("work", ("private", "state")))
        >>> schema = Schema(columns, target=Target("ill", classes=("no", "yes")))
        >>> Schema.from_json(schema.to_json()) == schema
        True
    """

    columns: Sequence[Column | Interaction] = ()
    target: Target | None = None
    group: str | None = None
    scale: float | None = None
    missing_values: Sequence[str] = MISSING_VALUES

    def __post_init__(self) -> None:
        for name in ("columns", "missing_values"):
            listed = getattr(self, name)
            if isinstance(listed, str) or not isinstance(listed, Sequence):
                raise ParameterError(f"{name} must be a list, got {listed!r}.")
            object.__setattr__(self, name, tuple(listed))
        if not self.columns or not all(isinstance(column, tuple(_KINDS.values())) for column in self.columns):
            *kinds, last = (kind.__name__ for kind in _KINDS.values())
            raise ParameterError(f"columns must be a list of {', '.join(kinds)} and {last} columns, at least one.")
        if self.target is not None and not isinstance(self.target, Target):
            raise ParameterError(f"target must be a Target or None, got {self.target!r}.")
        if self.group is not None:
            check_name(self.group)
        names = self.read_columns
        for name in names:
            if names.count(name) > 1:
                raise ParameterError(f"Each column has one role, got {name!r} more than once among columns and roles.")
        self._check_interactions()
        if not all(isinstance(text, str) for text in self.missing_values):
            raise ParameterError(f"missing_values must be texts, got {self.missing_values!r}.")
        if self.scale is not None:
            hint = "The intercept 1/scale is part of a row, whose norm is 1."
            scale = check_number("scale", self.scale, low=1, high=1e100, closed="right", hint=hint)
            object.__setattr__(self, "scale", scale)

    def _check_interactions(self) -> None:
        """Each interaction once, and of two columns.

        Raises:
            ParameterError: naming the interaction.
        """
        names, pairs = [column.name for column in self.own_columns], set()
        for term in self.columns:
            if not isinstance(term, Interaction):
                continue
            for name in (term.first, term.second):
                if name not in names:
                    raise ParameterError(
                        f"The interaction {term.name!r} needs both of its columns by themselves, too, or its meaning "
                        f"would change with their ranges; {name!r} is none of the columns {', '.join(names)}. Add it."
                    )
            if term.name in names:
                raise ParameterError(f"The interaction {term.name!r} has the name of a column: rename the column.")
            if frozenset((term.first, term.second)) in pairs:
                raise ParameterError(f"The interaction {term.name!r} must be there once: leave the other one out.")
            pairs.add(frozenset((term.first, term.second)))
        _ = self.terms  # An interaction of too many features is refused here.

    @property
    def own_columns(self) -> tuple[Column, ...]:
        """The columns that are read from the data: all but interactions."""
        return tuple(column for column in self.columns if not isinstance(column, Interaction))

    @cached_property
    def terms(self) -> tuple[Column | Product, ...]:
        """Columns and expanded interactions, in the order of the features."""
        by_name = {column.name: column for column in self.own_columns}
        return tuple(
            Product(by_name[one.first], by_name[one.second]) if isinstance(one, Interaction) else one
            for one in self.columns
        )

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of the first feature of each term, by the term's name."""
        starts = np.cumsum([0, *(term.width for term in self.terms)]).tolist()
        return {term.name: start for term, start in zip(self.terms, starts, strict=False)}

    @property
    def products(self) -> NDArray[np.intp]:
        """Each feature that is a product with a number in it, and the two features that are its factors, (p, 3)."""
        triples = [np.empty((0, 3), dtype=np.intp)]
        for term in self.terms:
            if isinstance(term, Product) and term.numeric:
                triples.append(np.stack([self.places[term.name] + np.arange(term.width), *self.factors(term)], axis=1))
        return np.concatenate(triples)

    def factors(self, term: Product) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The places of both factors of each feature of an interaction."""
        first_w, second_w = np.divmod(np.arange(term.width), term.second.width)
        return self.places[term.first.name] + first_w, self.places[term.second.name] + second_w

    @property
    def numeric(self) -> NDArray[np.bool_]:
        """Which features are numbers in [0, 1]; the others are indicators."""
        return np.repeat([term.numeric for term in self.terms], [term.width for term in self.terms])

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, without the intercept."""
        return tuple(name for term in self.terms for name in term.names)

    @property
    def width(self) -> int:
        """Number of features, without the intercept."""
        return sum(term.width for term in self.terms)

    @property
    def max_row_norm(self) -> float:
        """R, by which rows are divided: R² = 1 for the intercept + mean + 2 standard deviations of ‖x‖².

        Columns are assumed independent, each with the public value `square`, so that few rows are longer than
        R; those are scaled back to it.
        """
        if self.scale is not None:
            return self.scale
        guess = {column.name: column.square for column in self.own_columns}
        means, rest, slope = [mean for mean, _ in guess.values()], [], dict.fromkeys(guess, 1.0)
        for term in self.terms:
            if isinstance(term, Product):
                # Σ (product)² is s·t/z for sums of squares s and t: it moves with both, and with their product.
                one, other, size = term.first.name, term.second.name, term.shrink**2
                (mean, variance), (other_mean, other_variance) = guess[one], guess[other]
                means.append(mean * other_mean / size)
                slope[one] += other_mean / size
                slope[other] += mean / size
                rest.append(variance * other_variance / size**2)
        variances = [variance * slope[name] ** 2 for name, (_, variance) in guess.items()]
        return math.sqrt(1.0 + math.fsum(means) + 2.0 * math.sqrt(math.fsum([*variances, *rest])))

    @property
    def intercept(self) -> float:
        """The intercept's constant in a row, 1/R."""
        return 1.0 / self.max_row_norm

    @property
    def read_columns(self) -> list[str]:
        """Names of all columns that are read, the target's and the group's last."""
        names = [column.name for column in self.own_columns]
        if self.target is not None:
            names += self.target.columns
        return names if self.group is None else [*names, self.group]

    def decoded(self, feature_nd: Floats) -> dict[str, NDArray[Any]]:
        """Cells by column name, of rows of features; interactions add no information."""
        return {
            one.name: one.decode(feature_nd[:, self.places[one.name] :][:, : one.width]) for one in self.own_columns
        }

    def encoded(self, cells: Mapping[str, Cells]) -> dict[str, Encoded]:
        """Features of each term from cells by column name, by the term's name; each row is made from its own cells."""
        encoded: dict[str, Encoded] = {}
        for column in self.own_columns:
            encoded[column.name] = column.encode(cells[column.name], frozenset(self.missing_values))
        for term in self.terms:
            if isinstance(term, Product):
                encoded[term.name] = term.encode(encoded[term.first.name], encoded[term.second.name])
        return encoded

    def _repr_html_(self) -> str:
        """The schema for a notebook: a row for each column, and the other declarations."""
        rows = [(column.name, column.kind, _said(column, "name")) for column in self.columns]
        roles = _said(self, "columns")
        table = notebook_html.table(rows, head=("column", "kind", "declared"))
        return f"<div>{table}<p>{notebook_html.escaped(roles)}</p></div>"

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

    @property
    def digest(self) -> str:
        """SHA-256 of the file that `save` writes, as hexadecimal text."""
        return hashlib.sha256(f"{self.to_json()}\n".encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str | bytes) -> Schema:
        """Read what `to_json` wrote; fields that have a default may be left out.

        Raises:
            DataFormatError: not a schema in JSON, an unknown field or kind, or a newer version.
            ParameterError: a column without bounds, or another field outside its range.
        """
        try:
            facts = parsed_json(text)
        except (ValueError, TypeError) as error:
            raise DataFormatError(
                f'The schema is not valid JSON: {error}. Run "dpvb schema" for an example.'
            ) from error
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
            if isinstance(facts["target"], dict) and facts["target"].get("kind", "") is None:
                raise ParameterError(
                    f"target {facts['target'].get('name')!r} of the schema needs kind, one of "
                    f"{', '.join(map(repr, get_args(Kind)))}, and what it may be: classes, max_count, low and high, or "
                    "trials and max_trials."
                )
            facts["target"] = _made(Target, facts["target"], "target")
        schema: Schema = _made(cls, facts, "schema")
        return schema

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the schema as a JSON file.

        Raises:
            DataFormatError: the file cannot be written.
        """
        try:
            check_path("path", path).write_text(self.to_json() + "\n", encoding="utf-8", newline="")
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
            content = check_path("path", path).read_bytes()
        except OSError as error:
            raise DataFormatError(f"The schema file {os.fspath(path)!r} cannot be read: {reason_of(error)}.") from error
        try:
            return cls.from_json(content)
        except (DataFormatError, ParameterError) as error:
            error.add_note(f"The schema is the file {os.fspath(path)!r}.")
            raise


def _column(facts: object, number: int) -> Column | Interaction:
    if not isinstance(facts, dict) or facts.get("kind") not in [*_KINDS]:
        raise DataFormatError(
            f'Column {number} of the schema must be an object with "kind": one of {", ".join(_KINDS)}.'
        )
    column: Column | Interaction = _made(
        _KINDS[facts["kind"]], {k: v for k, v in facts.items() if k != "kind"}, f"column {number}"
    )
    return column


def _made(kind: type[Any], facts: object, place: str) -> Any:
    """A schema's part from its JSON facts."""
    names = [field.name for field in fields(kind)]
    if not isinstance(facts, Mapping) or not set(facts) <= set(names):
        extra = sorted(set(facts) - set(names)) if isinstance(facts, Mapping) else facts
        raise DataFormatError(f"The schema's {place} knows the fields {', '.join(names)}, got {extra!r}.")
    try:
        return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()})
    except DpvbError:
        raise
    except (TypeError, ValueError) as error:
        raise DataFormatError(f"The schema's {place} is faulty: {error}.") from error


def _said(part: Any, *without: str) -> str:
    """Declarations of a schema's part other than its defaults, in Python's words; a long list in short."""
    declared = [(one, getattr(part, one.name)) for one in fields(part) if one.name not in without]
    return ", ".join(f"{one.name}={_value(value)}" for one, value in declared if value != one.default)


def _value(value: object) -> str:
    return f"{type(value).__name__}({_said(value)})" if isinstance(value, Target) else notebook_html.abbreviated(value)
