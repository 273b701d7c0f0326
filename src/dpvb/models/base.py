"""The base of models of one's own; the models of this package have the same members."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dpvb.core import model
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats

#: A name, an estimate, and the ends of its credible interval.
Interval = tuple[str, float, float, float]


class Model(model.Model[Any, Any], ABC):
    """A conjugate-exponential model: one declaration, a start, an E-step, and what follows each release.

    A subclass is a frozen dataclass. Its fields are public: numbers, texts, None, and tuples of them. Its q is made of
    finite numbers and arrays, in dataclasses, named tuples, tuples, lists and dicts with names for keys; a field's type
    may declare a narrower domain (`dpvb.guards.domains`).

    The methods from `figures` on are optional: `dpvb.PrivateModel` offers what a model defines. Each of them gets
    released and public values only, but `score`, which gets rows.

    Attributes:
        n_steps: number of releases of the steps; a field of the subclass where users may choose it.
        score_range: public ends of a row's score; a model that has them and `score` can be selected.
    """

    n_steps: int = 20
    score_range: ClassVar[tuple[float, float] | None] = None

    @property
    def schedule(self) -> Schedule:
        """Equal noise at every step; each step keeps only the newest release."""
        return Schedule((1.0,) * self.n_steps)

    def defines(self, name: str) -> bool:
        """Whether the model's class has a method of its own by this name, in place of the one here."""
        return getattr(type(self), name) is not getattr(Model, name)

    @property
    def is_scored(self) -> bool:
        """Whether its rows have scores: it has a `score` of its own, and declares their range."""
        return self.score_range is not None and self.defines("score")

    def score(self, q: Any, batch: Any) -> Floats:
        """Score of each row, in nats, from that row alone, bit for bit; by it models are selected."""
        raise NotImplementedError

    def figures(self, q: Any) -> Iterable[object]:
        """What a report shows of q beside its intervals: figures of `dpvb.results.figures`."""
        return ()

    def intervals(self, q: Any, level: float) -> Sequence[Interval]:
        """Names, estimates, and ends of the credible intervals that hold the truth with this probability."""
        raise NotImplementedError

    def sample(self, q: Any, n: int, rng: np.random.Generator) -> Any:
        """Draw n rows in the units of a batch: (n, features), or a pair of these and responses, (n,)."""
        raise NotImplementedError

    def as_prior(self, q: Any) -> Mapping[str, object]:
        """Values for fields of the model of a later fit, whose prior is then this q."""
        raise NotImplementedError

    def lower_bound(self, q: Any) -> float:
        """Return the variational lower bound on the log evidence in nats, if q determines it."""
        raise NotImplementedError

    def expected_accuracy(self, noise: Mapping[str, float], n: float) -> tuple[str, float]:
        """Return a name and the expected size of an error of a fit to n units; at most 0.1 counts as accurate.

        Args:
            noise: Standard deviation of the noise of the mean of each block, by name; public.
            n: Public number of units.
        """
        raise NotImplementedError
