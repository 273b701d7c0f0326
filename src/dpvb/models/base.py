"""The base of models of one's own; the models of this package have the same members."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

from dpvb.core import model
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats


class Model(model.Model[Any, Any], ABC):
    """A conjugate-exponential model: one declaration and three methods.

    A subclass is a frozen dataclass. Its fields are public: numbers, texts, None, and tuples of them. Its q is made of
    finite numbers and arrays, in dataclasses, named tuples, tuples, lists and dicts with names for keys; a field's type
    may declare a narrower domain (`dpvb.guards.domains`).

    Attributes:
        num_steps: number of releases of the steps; a field of the subclass where users may choose it.
        score_range: public ends of a row's score; a model that has them and `score` can be selected.
    """

    num_steps: int = 20
    score_range: ClassVar[tuple[float, float] | None] = None

    @property
    def schedule(self) -> Schedule:
        """Equal noise at every step; each step keeps only the newest release."""
        return Schedule((1.0,) * self.num_steps)

    @property
    def is_scored(self) -> bool:
        """Whether its rows have scores: it has a `score` of its own, and declares their range."""
        return self.score_range is not None and type(self).score is not Model.score

    def score(self, q: Any, batch: Any) -> Floats:
        """Score of each row, in nats, from that row alone, bit for bit; by it models are selected."""
        raise NotImplementedError
