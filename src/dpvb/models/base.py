"""The base of models of one's own; the models of this package have the same members."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from dpvb.core import model
from dpvb.core.model import Schedule
from dpvb.guards.arrays import Floats

#: A name, an estimate, and the ends of its credible interval.
Interval = tuple[str, float, float, float]


class Model(model.Model[Any, Any], ABC):
    """Base class of your own models: statistics, a starting point, an E-step, and a method after each phase.

    A subclass is a frozen dataclass. Its fields are public: numbers, texts, None, and tuples of them. Its q consists of
    finite numbers and arrays, in dataclasses, named tuples, tuples, lists and dicts with names as keys; the type of a
    field may declare a narrower domain (`dpvb.guards.domains`). It defines `blocks`, `init` and `e_step`, and `m_step`,
    `started` or `finished` for the phases of its blocks.

    A fit fills in fields `columns`, `units` and `classes` that are (): the names of the features, the step of each of
    them for one unit of its column, and the labels of the response. Rows have no constant for an intercept.

    The methods from `figures` on are optional: `dpvb.PrivateModel` offers those that a model defines. They get only
    released and public values, except `score`, which gets rows.

    Args:
        args, kwargs: Fields of the subclass. Default: those of the subclass.

    Attributes:
        n_steps: Number of steps; declare it as a field if users may choose it. Default: 20.
        score_range: Public limits of the score of a row. None (default): the model cannot be selected privately.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> import dpvb
        >>> @dataclass(frozen=True)
        ... class Mean(dpvb.Model):
        ...     n_features: int = 2
        ...
        ...     @property
        ...     def blocks(self):
        ...         shapes = {"sum": (self.n_features,), "n": (1,)}
        ...         return {name: dpvb.Block(shape, 1.0, phase="last") for name, shape in shapes.items()}
        ...
        ...     def init(self, rng):
        ...         return np.zeros(self.n_features)
        ...
        ...     def e_step(self, q, batch, blocks):
        ...         return {"sum": dpvb.Rows(batch), "n": dpvb.Rows(np.ones((len(batch), 1)))}
        ...
        ...     def finished(self, s, q):
        ...         return s.noisy("sum") / max(s.noisy("n")[0], 1.0)
        >>> X = np.random.default_rng(0).uniform(-0.5, 0.5, (5000, 2))
        >>> dpvb.PrivateModel(Mean(), max_row_norm=1.0, epsilon=1.0, delta=1e-6).fit(X).q_.shape
        (2,)
    """

    n_steps: int = 20
    score_range: ClassVar[tuple[float, float] | None] = None

    @property
    def schedule(self) -> Schedule:
        """Schedule of the fit. By default, all steps have equal noise, and each step uses only the newest release."""
        return Schedule((1.0,) * self.n_steps)

    def defines(self, name: str) -> bool:
        """Return whether the class of the model overrides the method of this name."""
        return getattr(type(self), name) is not getattr(Model, name)

    @property
    def is_scored(self) -> bool:
        """Whether rows have scores: the model overrides `score` and declares `score_range`."""
        return self.score_range is not None and self.defines("score")

    def score(self, q: Any, batch: Any) -> Floats:
        """Return the score of each row, in nats, computed from only that row; private selection uses it."""
        raise NotImplementedError

    def figures(self, q: Any) -> Iterable[object]:
        """Return figures of q for a report (`dpvb.results.figures`), in addition to its intervals."""
        return ()

    def intervals(self, q: Any, level: float) -> Sequence[Interval]:
        """Return names, estimates, and limits of credible intervals with this probability."""
        raise NotImplementedError

    def sample(self, q: Any, n: int, rng: np.random.Generator) -> Any:
        """Draw n rows in the units of a batch: (n, features), or a pair of rows and responses, (n,)."""
        raise NotImplementedError

    def as_prior(self, q: Any) -> Mapping[str, object]:
        """Return values of fields of the model of a later fit, whose prior is then this q."""
        raise NotImplementedError

    def lower_bound(self, q: Any) -> float:
        """Return the variational lower bound on the log evidence in nats, if q determines it."""
        raise NotImplementedError

    def expected_accuracy(self, noise: Mapping[str, float], n: float) -> tuple[str, float]:
        """Return a name and the expected size of an error of a fit to n units; at most 0.1 counts as accurate.

        Args:
            noise: Standard deviation of the noise of `s.noisy(name)` after the last release, by block; public. It is
                that of one release, unless the step sizes of the schedule average releases. A model that averages m
                releases itself divides it by √m; `dpvb.FixedCurvature` averages the last 80 % of the scores.
            n: Public number of units.
        """
        raise NotImplementedError
