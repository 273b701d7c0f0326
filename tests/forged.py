"""Model files that somebody has changed who computes the hashes anew."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from dpvb.results import model_file


def forge(
    path: Path,
    target: Path | None = None,
    *,
    arrays: Mapping[str, Any] | None = None,
    learned: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Path:
    """Write a model file with other contents.

    Args:
        path: the file.
        target: the file that is written; None: the same.
        arrays: arrays by name, or functions that change them.
        learned: fields of the record, by their names with dots between.
        facts: other facts of the file.
    """
    stored, target = model_file.load(path), target or path
    changed = dict(stored.arrays)
    for name, array in (arrays or {}).items():
        changed[name] = array(changed[name].copy()) if callable(array) else array
    others = {**deepcopy(dict(stored.facts)), **facts}
    for place, value in (learned or {}).items():
        *outer, last = place.split(".")
        part = others["learned"]
        for name in outer:
            part = part[name]
        assert last in part
        part[last] = value
    model_file.save(target, kind=stored.kind, arrays=changed, facts=others)
    return target
