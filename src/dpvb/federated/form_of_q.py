"""What a client accepts as a q: the forms that its own model gives it, with numbers in their domains.

The forms are found by a rehearsal: the client's own plan on no data. The form settles that a row's statistic depends on
no other row: an array that is one row of q for each row of data, or is shorter than indices reach, would break that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, final

import numpy as np

from dpvb.core import loop
from dpvb.core.estimate import Estimate
from dpvb.core.model import Model, updated
from dpvb.core.plan import Plan, Release
from dpvb.core.source import Nobody, chunks_of
from dpvb.core.wall import Wall
from dpvb.estimators.base import Task, generator
from dpvb.federated.messages import classes_in
from dpvb.federated.shared import Shared
from dpvb.guards import domains
from dpvb.guards.errors import FederationError
from dpvb.guards.silence import silence

# A q is looked at before so many releases of each kind: by then it has all its parts.
_REHEARSED: Final = 3
# The form of a part that may be None and is.
_MISSING: Final = (Ellipsis, None)


@final
class FormOfQ:
    """The forms that a task's q has in an honest run.

    Args:
        task: model, plan and data; of the data only a batch of no rows is taken, when a q is first checked.
        shared: where clients with equal models and plans find the forms of one rehearsal.

    Attributes:
        classes: the classes that these forms are made of.
    """

    def __init__(self, task: Task, shared: Shared) -> None:
        self._task = task
        self._forms, self.classes = shared.once(_rehearsed, task.model, task.relative)
        self._no_rows: list[Any] | None = None

    def check(self, q: Any, release: Release) -> None:
        """Let a q pass that has a form and the domain of the model's, and with which the model answers for no rows.

        Args:
            q: from anybody.
            release: what it is asked for.

        Raises:
            FederationError: for any other q; nothing private has met it.
        """
        if (fault := domains.outside(q)) is not None:
            raise FederationError(f"{fault}; the request is refused, and nothing is spent on it.")
        form = _form(q)
        if not any(_fits(form, expected) for expected in self._forms) or not self._answers(q, release):
            raise FederationError("q is not one of this model's; the request is refused, and nothing is spent on it.")

    def _answers(self, q: Any, release: Release) -> bool:
        batches = self._empty_batch()
        try:
            with silence(logs=True):
                answers = [self._task.model.e_step(q, rows, release.asked) for rows in batches]
        except Exception:  # A q of strangers' making may raise anything.
            return False
        return all(release.asked.keys() <= answer.keys() for answer in answers)

    def _empty_batch(self) -> list[Any]:
        """A batch of no rows, in a list; none where a source of the user's own has no chunk at all."""
        if self._no_rows is None:
            with silence(logs=True):
                first = next(chunks_of(self._task.source), None)
                self._no_rows = [] if first is None else [first.select(np.zeros(first.num_units, dtype=np.bool_)).rows]
        return self._no_rows


def _rehearsed(model: Model[Any, Any], plan: Plan) -> tuple[tuple[Any, ...], frozenset[type]]:
    """The forms of q before the releases of a run on no data, and its classes; what such a run costs is the noise."""
    kinds, forms = Counter[tuple[str, ...]](), []
    for release in plan:
        kinds[tuple(release.blocks)] += 1
        if kinds[tuple(release.blocks)] <= _REHEARSED:
            forms.append(release)
    plan = replace(plan, releases=forms)
    wall: Wall[Any] = Wall(Nobody(), plan)
    with silence(logs=True):
        s, qs = Estimate.empty(model.blocks), [model.init(generator("seed", 0))]
        for release in plan.releases[:-1]:
            s = s.update(wall.release(loop.query(model, qs[-1], release), release), 1.0)
            qs.append(updated(model, s, qs[-1]))
    return tuple(dict.fromkeys(map(_form, qs))), classes_in(qs)


def _form(value: Any) -> Any:
    """Classes, shapes and dtypes of a tree, without its numbers; a field that may be None is marked by an ellipsis."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | np.bool_):
        return bool
    if isinstance(value, int | np.integer):
        return int
    if isinstance(value, float | np.floating):
        return float
    if isinstance(value, np.ndarray):
        return np.ndarray, value.dtype.str, value.shape
    if isinstance(value, Mapping):
        return type(value), tuple(sorted(value)), *(_form(value[name]) for name in sorted(value))
    if isinstance(value, tuple | list):
        return type(value), *map(_form, value)
    if is_dataclass(value):
        return type(value), *(
            (Ellipsis if "None" in str(part.type) else None, _form(getattr(value, part.name))) for part in fields(value)
        )
    return type(value)


def _fits(form: Any, wanted: Any) -> bool:
    """Whether a form is the wanted one, where a part that may be None is, and a whole number may stand for any."""
    if form is int and wanted is float:
        return True
    if not isinstance(form, tuple) or not isinstance(wanted, tuple) or form[0] is np.ndarray:
        return bool(form == wanted)
    if form == _MISSING and wanted[0] is Ellipsis:
        return True
    return len(form) == len(wanted) and form[0] is wanted[0] and all(map(_fits, form[1:], wanted[1:]))
