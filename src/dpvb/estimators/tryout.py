"""A tryout: a fit to rows of zeros, which are nobody's, one for each label that is declared, before anything is spent.

What fails there does so whatever the data are: the model's code, its declarations, the width of its rows. So the error
says all of it. The real fit would fail behind the wall, after it was charged, and tell no reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from dpvb.core import loop
from dpvb.core.clipped_sums import Work
from dpvb.core.estimate import Estimate
from dpvb.core.grids import grids_of
from dpvb.core.model import updated
from dpvb.core.plan import Plan, Release
from dpvb.core.source import Chunk, Source
from dpvb.core.wall import Wall
from dpvb.estimators.base import Task, generator
from dpvb.guards import domains
from dpvb.guards.errors import ParameterError
from dpvb.guards.silence import silence
from dpvb.guards.strangers import printable
from dpvb.models.base import Model
from dpvb.results.facts import ReleaseFacts
from dpvb.results.statement import PrivacyStatement

# Characters of a model's own error that are shown.
_MOST_SAID = 300
# The method that follows a release, for messages; see `core.model.updated`.
_METHODS = {"step": "m_step", "last": "finished"}


@contextmanager
def said(what: str) -> Iterator[None]:
    """Turn whatever a model raises into an error that names what failed.

    Args:
        what: public, in words.

    Raises:
        ParameterError: in place of any other exception.
    """
    try:
        yield
    except ParameterError:
        raise
    except Exception as error:
        reason = printable(f"{type(error).__name__}: {error}")[:_MOST_SAID]
        raise ParameterError(f"model must pass a tryout before anything is spent: {what} gave {reason}") from error


#: Something that is asked of a model at a q.
Asked = Callable[[Model, object], object]
#: A model's scores of rows at a q.
Scored = Callable[[Model, object, object], object]


def try_out(task: Task, nobody: Source[Any], keep: Asked, show: Asked, score: Scored | None) -> None:
    """Fit a model to made-up rows: without noise, and where that fails, with noise.

    A sound model passes one of the two. Numbers that no data would give may make an M-step fail, but hardly both times.

    Args:
        task: what a fit would do.
        nobody: rows of zeros with each label, as the source of the task has them; no chunk: none can be made up.
        keep: raises for a q that no file can hold.
        show: raises for a q of which the model cannot show what it defines.
        score: raises for rows, at a q, that cannot be scored; None: the model scores none.

    Raises:
        ParameterError: naming what failed and why; nothing was spent, and nothing private was looked at.
    """
    # By the second step a q is the model's own M-step's.
    plan = replace(task.relative, releases=[*task.relative.releases[:3], *task.relative.releases[3:][-1:]])
    with said("the privacy statement"):
        str(_statement(plan, task.public))
    refused = None
    for scale in (0.0, 1.0):
        try:
            with silence(logs=True):
                return _fit(task, plan.scaled(scale), nobody, keep, show, score)
        except ParameterError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _fit(task: Task, plan: Plan, nobody: Source[Any], keep: Asked, show: Asked, score: Scored | None) -> None:
    """`loop.fit`, looked at step by step."""
    model, wall = task.model, Wall(nobody, plan)
    with said("init"):
        q = model.init(generator("seed", 0))
    if (fault := domains.outside(q)) is not None:
        raise ParameterError(f"model must start from a q that the wall answers: {fault}.")
    # Each made-up unit by itself, so that an error names its label; then none.
    batches = [
        chunk.select(np.arange(chunk.num_units) == unit) for chunk in nobody.chunks() for unit in range(chunk.num_units)
    ]
    batches += [chunk.select(np.zeros(chunk.num_units, dtype=np.bool_)) for chunk in nobody.chunks()]
    s = Estimate.empty(model.blocks, task.projection)
    for t, release in enumerate(plan, start=1):
        for batch in batches:
            _ask(task, q, release, batch)
        with said("the sum of made-up rows"):
            released = wall.release(loop.query(model, q, release), release)
        with said("the step size"):
            s = s.update(released, task.rho(t))
        # What is brought about by the numbers of a sum is no fault of the model's form.
        method = _METHODS.get(s.phase, "started")
        with said(method), suppress(ArithmeticError, np.linalg.LinAlgError):
            q = updated(model, s, q)
        with said(f"the q of {method}"):
            keep(model, q)
        if domains.outside(q) is not None:
            return
    show(model, q)
    for batch in batches if score is not None else ():
        with said(f"score on {_rows(batch, task)}"):
            score(model, q, batch.rows)  # type: ignore[misc]


def _ask(task: Task, q: object, release: Release, batch: Chunk[Any]) -> None:
    """Ask the model about a batch, and sum each block's contributions by themselves.

    Raises:
        ParameterError: naming the block, its shape and what was found in its place.
    """
    what = f"e_step on {_rows(batch, task)}"
    with said(what):
        found = loop.query(task.model, q, release)(batch.rows)
    if not isinstance(found, Mapping):
        raise ParameterError(f"model must have an e_step that returns a dict of forms, got {type(found).__name__}.")
    for name, block in release.asked.items():
        place = f"block {name!r} of shape {block.shape}"
        if name not in found:
            raise ParameterError(f"model must have an e_step that returns {place}; it returned {sorted(found)}.")
        form = found[name]
        if not (hasattr(form, "norms") and hasattr(form, "accumulate")):
            raise ParameterError(
                f"model must have an e_step that returns a form (dpvb.Rows(values), say) for {place}, got "
                f"{type(form).__name__}."
            )
        alone = replace(release, blocks={name: block}, weights={name: 1.0})
        with said(f"{place}, for which {what} returned {_shown(form)},"):
            Work(partial(_again, found), alone, grids_of(alone, None), _words)._added(batch)


def _rows(batch: Chunk[Any], task: Task) -> str:
    width = task.notes["width"]
    columns = "" if width is None else f", with {width} features as in X,"
    response = task.notes.get("response")
    label = ""
    if batch.num_units and response is not None:
        label = f" with y = {response.decode(batch.rows.y_n[:1])[0]!r}"
    return f"{'a row of zeros' if batch.num_units else 'no rows'}{columns}{label}"


def _shown(form: object) -> str:
    """A form by its name and the shapes of its arrays."""
    parts = {part.name: getattr(form, part.name) for part in fields(form)} if is_dataclass(form) else {}
    shapes = [f"{name} {np.shape(value)}" for name, value in parts.items() if hasattr(value, "__array__")]
    return f"{type(form).__name__}({', '.join(shapes)})"


def _again(found: Any, rows: Any) -> Any:
    return found


def _words(count: int, start: int = 0) -> Any:
    return np.zeros(count, dtype=np.uint64)


def _statement(plan: Plan, public: list[str]) -> PrivacyStatement:
    """The texts that the fit's statement will be made of; the numbers stand for others."""
    return PrivacyStatement(
        unit=plan.unit,
        neighboring_relation=plan.neighboring_relation,
        epsilon=1.0,
        delta=0.5,
        curve=(),
        releases=ReleaseFacts.of_plan(plan),
        method="pld",
        tool="pld",
        secret_noise=True,
        public=tuple(public),
        num_examples=None,
        run_id="",
        plan_digest=plan.digest.hex(),
    )
