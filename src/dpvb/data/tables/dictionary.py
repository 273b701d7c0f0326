"""A schema to fill in, of what is known of a table's columns: the names in its header, or a data dictionary.

A range that is not declared stays null, and a schema with a null range is not read. Nothing is read off rows: of a
table only its first line, and of a dictionary the fields that declare, by an open list of their names.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dpvb.data.csv_files import USUAL, Dialect, header_of, shown_by_header
from dpvb.data.readable import check_readable
from dpvb.data.spelling import MISSING_VALUES, UNREADABLE, label, number
from dpvb.data.times import time_of_text
from dpvb.guards.errors import DataFormatError, ParameterError, PrivacyError, check_choice, reason_of
from dpvb.guards.untrusted import parsed_json

_ROLES: Final = ("feature", "target", "group", "none")
#: The kinds of columns by the types that dictionaries name.
_KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("numeric", "number", "integer", "int", "float", "double", "decimal", "real"), "numeric"),
    **dict.fromkeys(("year", "continuous", "count"), "numeric"),
    **dict.fromkeys(("date", "datetime", "timestamp"), "date"),
    **dict.fromkeys(("binary", "boolean", "bool", "logical"), "binary"),
    **dict.fromkeys(("categorical", "category", "factor", "nominal", "ordinal", "enum", "string", "text"), "levels"),
}
#: Facts that a dictionary in CSV declares, by its column heads, in small letters and without signs between.
_HEADS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("name", "variable", "var", "column", "field"), "name"),
    **dict.fromkeys(("type", "kind"), "type"),
    **dict.fromkeys(("low", "min", "minimum"), "low"),
    **dict.fromkeys(("high", "max", "maximum"), "high"),
    **dict.fromkeys(("levels", "categories", "values", "enum", "classes"), "levels"),
    **{one: one for one in ("transform", "missing", "role")},
}
# Other facts that dictionaries declare of a column and of its values; and of a table, a resource or a package in JSON.
_DECLARED: Final = frozenset(
    (
        *("title", "label", "description", "desc", "definition", "question", "unit", "units", "format", "constraints"),
        *("exclusiveminimum", "exclusivemaximum", "minlength", "maxlength", "pattern", "required", "unique"),
        *("categoriesordered", "missingvalues", "truevalues", "falsevalues", "barenumber", "decimalchar", "groupchar"),
        *("rdftype", "note", "notes", "comment", "comments", "remark", "remarks"),
    )
)
_DECLARED_OF_TABLE: Final = frozenset(
    (
        *("schema", "resources", "fields", "fieldsmatch", "primarykey", "foreignkeys", "uniquekeys", "missingvalues"),
        *("name", "id", "title", "description", "homepage", "version", "created", "licenses", "license", "sources"),
        *("contributors", "keywords", "image", "profile", "path", "scheme", "type", "format", "mediatype", "encoding"),
        "dialect",
    )
)
_NUMBER_OR_DATE: Final = re.compile(r"[\d\s.,:/%+-]*\d[\d\s.,:/%+-]*|\d{1,2}[\s.-]*[^\W\d]{3,9}[\s.,-]*\d{2,4}")


class Column(NamedTuple):
    """Declaration of a column: as a feature in a schema (None: it is none), and its role."""

    name: str
    feature: dict[str, Any] | None
    role: str = "feature"


def columns_of_header(path: Path, dialect: Dialect = USUAL, *, sure: bool = False) -> list[Column]:
    """The columns that the first line of a CSV file names, all as numbers; nothing behind the line is looked at.

    Args:
        path: the file; its first line is public.
        dialect: how the file is written.
        sure: whether the user says that the line is a header, whatever it looks like.

    Raises:
        DataFormatError: a file that cannot be read, or whose first line shows another separator or encoding.
        PrivacyError: a line that looks like a row of data; the line is not quoted.
    """
    check_readable(path)
    names = [str(name).strip() for name in header_of(path, dialect)]
    shown = shown_by_header(path, dialect) or (f"it is not in {dialect.encoding}" if UNREADABLE in names else "")
    if shown or not any(names):
        reason = shown.rstrip("; ") or "it is empty"
        raise DataFormatError(f"The first line of {str(path)!r} must be a header that names columns; {reason}.")
    for place, name in enumerate(names, start=1):
        doubt = _doubt(name)
        if doubt and not sure:
            raise PrivacyError(
                f"The first line of {str(path)!r} has {doubt} in field {place}, so that it may be a person's row and "
                "no header. Write a line of names above it; if it is a header that names columns so, add --yes."
            )
    return [_numeric(name) for name in names if name]


def columns_of_dictionary(path: Path, dialect: Dialect = USUAL) -> tuple[list[Column], list[tuple[str, str]]]:
    """The columns that a data dictionary declares, and its fields that say anything else.

    ==========================  ==================================================================================
    a file                      says of a column
    ==========================  ==================================================================================
    .json                       a table schema of Frictionless, by itself or in a resource or a package of one:
                                name, type, constraints (minimum, maximum, enum), categories
    any other: CSV              a line with name and type, and any of low and high (or minimum, maximum), levels with
                                | between, transform, missing, and role: feature, target, group or none
    ==========================  ==================================================================================

    A text without levels, a date without a range, or another type is not a feature.

    Args:
        path: the file; public.
        dialect: how a CSV file is written.

    Returns:
        The columns; and of what may have been computed from the data, as no known field declares it, each field and the
        column that it speaks of. Nothing is made of such fields.

    Raises:
        DataFormatError: a file that cannot be read, or says something else.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataFormatError(f"The dictionary {str(path)!r} cannot be read: {reason_of(error)}.") from error
    unknown: list[tuple[str, str]] = []
    is_json = path.suffix.lower() == ".json"
    try:
        return [*(_of_json(content, unknown) if is_json else _of_csv(content, dialect, unknown))], unknown
    except (DataFormatError, ParameterError) as error:
        raise type(error)(f"The dictionary {str(path)!r}: {error}") from error


def stub(columns: Sequence[Column], *, target: str | None = None, group: str | None = None) -> dict[str, Any]:
    """A schema as JSON has it, with null in the place of ranges that are not declared.

    Args:
        columns: public.
        target, group: names of the columns of responses and of persons; None: what a dictionary says.

    Raises:
        ParameterError: a name that no column has, or one that two have.
    """
    names = [column.name for column in columns]
    for name in names:
        if names.count(name) > 1:
            raise ParameterError(f"The columns must have names of their own, got {name!r} {names.count(name)} times.")
    for role, chosen in (("target", target), ("group", group)):
        if chosen is not None and chosen not in names:
            raise ParameterError(f"{role} must be one of the columns {', '.join(map(repr, names))}, got {chosen!r}.")
    roles = {column.name: column.role for column in columns}
    for role, chosen in (("target", target), ("group", group)):
        if chosen is not None:
            roles = {name: "none" if present == role else present for name, present in roles.items()} | {chosen: role}
    of_role = {role: [column for column in columns if roles[column.name] == role] for role in _ROLES}
    if len(of_role["target"]) > 1 or len(of_role["group"]) > 1:
        raise ParameterError("role must be target for one column at most, and group for one at most.")
    return {
        "format": "dpvb-schema",
        "version": 1,
        "columns": [column.feature for column in of_role["feature"] if column.feature is not None],
        "target": _target(*of_role["target"]),
        "group": next((column.name for column in of_role["group"]), None),
    }


def _numeric(name: str, low: Any = None, high: Any = None, **more: Any) -> Column:
    return Column(name, {"kind": "numeric", "name": name, "low": low, "high": high, **more})


def _target(column: Column | None = None) -> dict[str, Any]:
    """The response: labels, a number or a count; its kind is null where the column does not declare it."""
    feature = {} if column is None or column.feature is None else column.feature
    facts: dict[str, Any] = {"name": None if column is None else column.name}
    if levels := feature.get("values", feature.get("categories")):
        return {**facts, "kind": "logistic" if len(levels) == 2 else "classes", "classes": [*levels]}
    low, high = feature.get("low"), feature.get("high")
    if feature.get("kind") != "numeric" or high is None:
        return {**facts, "kind": None}
    if (low, high) == (0, 1):
        return {**facts, "kind": "logistic", "classes": [0, 1]}
    if low is not None and (low < 0 or high != int(high)):
        return {**facts, "kind": "numeric", "low": low, "high": high}
    return {**facts, "kind": "negative_binomial", "max_count": high}


def _doubt(name: str) -> str:
    """Return why a field of a first line looks like data, in words; empty: it does not."""
    if not name or label(name) in {label(one) for one in MISSING_VALUES}:
        return "nothing"
    if _NUMBER_OR_DATE.fullmatch(name) or time_of_text(name) is not None or not math.isnan(number(name)):
        return "a number or a date"
    if "@" in name or re.search(r"(?<![^\s./])\d+(?![^\s./])", name):
        return "what may be an address"
    return ""


def _of_csv(content: bytes, dialect: Dialect, unknown: list[tuple[str, str]]) -> Iterator[Column]:
    try:
        text = content.decode("utf-8-sig" if dialect.encoding == "utf-8" else dialect.encoding)
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=dialect.separator) if any(line)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataFormatError(f"is not a CSV file in {dialect.encoding}: {error}.") from error
    heads = [_plain(head) for head in lines[0]] if lines else []
    fields = [_HEADS.get(head) for head in heads]
    if not {"name", "type"} <= {*fields}:
        raise DataFormatError("its first line must name the columns name and type (see separator=).")
    for line in lines[1:]:
        cells = [*(cell.strip() for cell in line), *[""] * len(heads)][: len(heads)]
        declared = {field: cell for field, cell in zip(fields, cells, strict=True) if field is not None and cell}
        name = declared.get("name", "")
        unknown += [(head, name) for head, cell in zip(lines[0], cells, strict=True) if cell and not _is_declared(head)]
        if not name:
            raise DataFormatError("A line of it has no name.")
        levels = [one.strip() for one in declared["levels"].split("|")] if "levels" in declared else None
        numbers = {field: dialect.number(declared.get(field)) for field in ("low", "high", "missing")}
        role = check_choice(f"role of column {name!r}", declared.get("role", "feature").casefold(), _ROLES)
        column = _column(name, declared.get("type", ""), numbers, levels, declared.get("transform"))
        yield column._replace(role=role)


def _of_json(content: bytes, unknown: list[tuple[str, str]]) -> Iterator[Column]:
    try:
        facts = parsed_json(content)
    except ValueError as error:
        raise DataFormatError(f"is not JSON: {error}.") from error
    while isinstance(facts, dict) and "fields" not in facts:
        unknown += _unknown_of_table(facts)
        inner = facts.get("schema", facts.get("resources"))
        facts = inner[0] if isinstance(inner, list) and len(inner) == 1 else inner
    fields = facts.get("fields") if isinstance(facts, dict) else None
    if not isinstance(fields, list) or not all(isinstance(one, dict) and one.get("name") for one in fields):
        raise DataFormatError('must hold one table schema, {"fields": [{"name": ..., "type": ...}, ...]}.')
    unknown += _unknown_of_table(facts)
    for field in fields:
        name, limits = str(field["name"]), field.get("constraints") or {}
        if not isinstance(limits, dict):
            raise DataFormatError(f"The constraints of column {name!r} must be an object.")
        keys = [key for key, value in [*field.items(), *limits.items()] if value is not None]
        unknown += [(key, name) for key in keys if not _is_declared(key)]
        levels = limits.get("enum", field.get("categories"))
        if isinstance(levels, list):
            levels = [one.get("value") if isinstance(one, dict) else one for one in levels]
        yield _column(
            name,
            str(field.get("type", "")),
            {"low": limits.get("minimum"), "high": limits.get("maximum")},
            levels,
            None,
        )


def _column(name: str, of_type: str, numbers: Mapping[str, Any], levels: Any, transform: str | None) -> Column:
    """A column of a dictionary; levels decide, where there are any."""
    kind = _KINDS.get(_plain(of_type))
    if levels is not None or kind == "binary":
        values = [False, True] if levels is None else [*levels]
        field = "values" if kind == "binary" else "categories"
        return Column(name, {"kind": "binary" if kind == "binary" else "categorical", "name": name, field: values})
    if kind == "date" and (numbers["low"] or numbers["high"]):
        ends = {field: numbers[field] or None for field in ("low", "high", "missing") if field in numbers}
        return Column(name, {"kind": "date", "name": name, **ends})
    if kind != "numeric":
        return Column(name, None)
    ends = {field: _number(name, field, value) for field, value in numbers.items()}
    more = {"transform": transform, "missing": ends.pop("missing", None)}
    return _numeric(name, **ends, **{field: value for field, value in more.items() if value is not None})


def _number(name: str, field: str, value: Any) -> int | float | None:
    """A declared number, None where there is none.

    Raises:
        ParameterError: for anything else.
    """
    if value is None or value == "":
        return None
    parsed = number(value)
    if not math.isfinite(parsed):
        raise ParameterError(f"{field} of column {name!r} must be a number, got {value!r}.")
    return int(parsed) if parsed.is_integer() else parsed


def _is_declared(head: str) -> bool:
    return _plain(head) in _HEADS.keys() | _DECLARED


def _unknown_of_table(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(key, "the table") for key in facts if _plain(key) not in _DECLARED_OF_TABLE]


def _plain(head: str) -> str:
    """A head in small letters, without signs between."""
    return re.sub(r"[^\w%]|_", "", head.casefold())
