"""Fits of an estimator on neighbouring data: everything public about them is equal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpvb.accounting.events import RELATIONS, NeighboringRelation
from dpvb.audit import Case
from dpvb.audit.captured_output import heard
from dpvb.guards.arrays import Floats
from dpvb.results import model_file
from dpvb.results.audit_report import Check
from dpvb.results.statement import PrivacyStatement

# Records in the data set of a fit.
_UNITS = 10


def check_estimator(case: Case, relations: Iterable[NeighboringRelation] = RELATIONS) -> Iterator[Check]:
    """Fits of the estimator under some relations: all that is public of them is equal on neighbouring data."""
    if case.fit is None:
        return
    matrix = case.records(np.random.default_rng(23), _UNITS)
    for relation in relations:
        options = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 2, "random_state": 0, "neighboring_relation": relation}
        fit = partial(case.fit, **options)
        _public(fit, matrix)  # What is said once, is said here.
        one, other = _public(fit, matrix), _public(fit, matrix)
        # Whatever differs on the same data is random: names of runs, released numbers.
        stable = {place for place in one if one[place] == other.get(place)}
        ends = [np.full(case.width, value) for value in (np.nan, np.inf, 1e308, 1e9, 7.5, 0.1, 0.0, -3.0)]
        start = matrix if relation == "add_or_remove_one" else matrix[1:]
        others = [np.vstack([start, record]) for record in [*ends, *case.hostile[:3]]]
        faults = ["a fit of ordinary records fails"] if "error" in one else []
        # No record at all is no neighbour, and shows as little.
        for other_records in others if relation == "replace_one" else [*others, matrix[:0]]:
            found = _public(fit, other_records)
            if set(found) != set(one):
                faults += sorted(map(str, set(found) ^ set(one)))
            faults += [place for place in sorted(stable & set(found)) if found[place] != one[place]]
        measured = f"{len(stable)} public facts equal on {len(others)} neighbours"
        if faults:
            measured = f"not so: {', '.join(dict.fromkeys(faults))}"
        name, compared = f"public facts of a fit, {relation}", len(stable) * len(others)
        yield Check(case.name, name, not faults, measured, "equal", compared)


def _public(fit: Any, matrix: Floats) -> dict[str, Any]:
    """Everything public about a fit, by place: statement, facts and forms in its file, attributes, what was said."""
    with heard() as said, tempfile.TemporaryDirectory() as folder:
        try:
            fitted = fit(matrix)
        except Exception as error:  # Whatever it is, it must not depend on the data.
            return {"error": f"{type(error).__name__}: {error}"}
        path = Path(folder) / "model.dpvb"
        fitted.save(path)
        stored = model_file.load(path)
    found: dict[str, Any] = {f"array {name}": (array.shape, array.dtype.str) for name, array in stored.arrays.items()}
    found |= {f"words {n}": text for n, text in enumerate(said)}
    found |= {f"attribute {name}": _form(value) for name, value in vars(fitted).items()}
    return found | dict(_flat("facts", stored.facts))


def _form(value: Any) -> Any:
    """Types, shapes and texts of what an attribute is made of; of a number only that it is one."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.flags.c_contiguous
    if isinstance(value, float):
        return "a number"
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [_form(part) for part in value]
    if is_dataclass(value) and not isinstance(value, (type, PrivacyStatement)):
        return type(value).__name__, {part.name: _form(getattr(value, part.name)) for part in fields(value)}
    # Without a text of its own an object shows its address, which two fits share by chance and a third does not.
    kind: Any = type(value)
    unnamed = kind is PrivacyStatement or kind.__repr__ is object.__repr__
    return kind.__name__ if unnamed else repr(value)


def _flat(place: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The leaves of nested JSON values, by their path; of a released number only that it is one."""
    if place == "facts.privacy.remarks":
        yield place, "released numbers, in words"  # They decide how many there are, too.
    elif isinstance(value, (Mapping, list)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in items:
            yield from _flat(f"{place}.{key}", inner)
    else:
        promised = place.startswith(("facts.privacy.", "facts.params."))
        read_off = ".above_noise." in place  # a released number, in words
        yield place, value if not read_off and (promised or not isinstance(value, float)) else "a number"
