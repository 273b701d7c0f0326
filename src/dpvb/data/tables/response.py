"""Responses: the one public declaration that schemas, designs and models share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from dpvb.data.slabs import Which
from dpvb.data.spelling import Categories, Cells, Floats, as_numbers, label
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number

Kind: TypeAlias = Literal["logistic", "binomial", "negative_binomial", "poisson", "numeric", "classes"]

#: Row arguments in addition to a response, and the name of their bounds.
BOUNDS = {"exposure": "max_exposure", "offset": "max_offset", "weights": "max_weight"}
#: Rows with less than this are ignored.
LOWEST = {"exposure": 5e-324, "offset": -math.inf, "weights": 0.0}
# The largest of the bounds.
_LARGEST = {"max_exposure": 1e9, "max_offset": 50.0, "max_weight": 1e9}


class Beside(NamedTuple):
    """Row arguments in addition to the responses, (n,) each; private.

    Attributes:
        offset_n: what is added to ψ, the logarithm of the exposure included; None: nothing is declared.
        weight_n: how many rows each row counts as; None: nothing is declared.
        over_n: whether something was beyond its bound.
    """

    offset_n: Floats | None
    weight_n: Floats | None
    over_n: NDArray[np.bool_]

    def of(self, which: Which) -> Beside:
        """Those of the rows with these numbers."""
        offset_n, weight_n = (None if one is None else one[which] for one in self[:2])
        return Beside(offset_n, weight_n, self.over_n[which])


@dataclass(frozen=True)
class Response:
    """Declaration of a response; every field is public.

    Attributes:
        kind: "logistic" (one of two labels), "binomial" (successes of some trials), "negative_binomial" or "poisson"
            (a count), "numeric" (a number in a range), "classes" (one of several labels, for a model of your own).
        classes: the labels; y is the place of a row's label: of two, the second is y = 1 (logistic). They are compared
            with y as `spelling.label` says: capital letters, blanks at the ends and the form of a number make no
            difference.
        max_trials: bound on a row's trials (binomial).
        max_count: bound on a row's count; larger ones become max_count.
        low, high: the range of a number; those outside become its ends.
        max_exposure: bound on how long or how much a row was counted (counts), in (0, 1e9]; None: rows do not say.
        max_offset: bound on the absolute value of what is added to a row's log odds or log mean, in (0, 50]; None:
            nothing is.
        max_weight: bound on how many rows a row counts as, in (0, 1e9]; None: one. Beyond these three bounds a row
            gets the bound.

    Raises:
        ParameterError: for a field outside its range.

    Examples:
        >>> from dpvb.data import Response
        >>> Response("poisson", max_count=20).is_count
        True
    """

    kind: Kind = "logistic"
    classes: tuple[Any, ...] = (0, 1)
    max_trials: int = 1
    max_count: int = 1
    low: float | None = None
    high: float | None = None
    max_exposure: float | None = None
    max_offset: float | None = None
    max_weight: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        for name, high in _LARGEST.items():
            if (bound := getattr(self, name)) is not None:
                object.__setattr__(self, name, check_number(name, bound, low=0, high=high, closed="right"))
        if self.max_exposure is not None and not self.is_count:
            raise ParameterError(
                f"max_exposure must be None unless the response is a count, got {self.max_exposure!r} for the kind "
                f"{self.kind!r}; offset and weights are for labels and counts."
            )
        if self.kind == "numeric" and self.columns:
            raise ParameterError(
                "max_offset and max_weight must be None for a response of the kind 'numeric': linear regressions take "
                "neither an offset nor weights."
            )
        for name in ("max_trials", "max_count"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), low=1, high=10**9))
        most = math.inf if self.kind == "classes" else 2
        try:
            labels = () if isinstance(self.classes, str) else tuple(self.classes)
            plain = all(isinstance(one, (str, bool, int, float, np.generic)) and one == one for one in labels)
            differ = plain and len({label(one) for one in labels}) == len(labels)
        except (TypeError, ValueError):
            labels, differ = (), False
        if not (differ and 2 <= len(labels) <= most):
            if self.kind == "classes":
                raise ParameterError(
                    f"classes must be two or more different labels (numbers or strings), got {self.classes!r}. Capital "
                    "letters, blanks at the ends and the form of a number make no difference."
                )
            raise ParameterError(
                f"classes must be a pair of different labels (numbers or strings), got {self.classes!r}; the second is "
                "the one whose probability is modelled. Capital letters, blanks at the ends and the form of a number "
                "make no difference. More classes need one model each."
            )
        object.__setattr__(self, "classes", labels)
        self._check_range()

    def _check_range(self) -> None:
        """Low and high are a range for a number, and None for any other response."""
        if self.kind != "numeric":
            if self.low is not None or self.high is not None:
                raise ParameterError(f"low and high must be None for a response of the kind {self.kind!r}.")
            return
        for name in ("low", "high"):
            if getattr(self, name) is None:
                raise ParameterError(
                    f"{name} must be a number that you know without looking at the data, got None: the response is "
                    "clipped to a public range, as low=1, high=99 for hours a week."
                )
            object.__setattr__(self, name, check_number(name, getattr(self, name), low=-1e100, high=1e100))
        if not self.half > 0:
            raise ParameterError(f"low must be below high, got low={self.low!r} and high={self.high!r}.")

    @property
    def range(self) -> tuple[float, float]:
        """Both ends of the range of a number."""
        return self.low or 0.0, self.high or 0.0

    @property
    def middle(self) -> float:
        """The middle of that range, which is 0 in a model."""
        return 0.5 * self.range[0] + 0.5 * self.range[1]

    @property
    def half(self) -> float:
        """Half its length, which is 1 in a model."""
        return 0.5 * self.range[1] - 0.5 * self.range[0]

    def places(self, y_n: Floats) -> Floats:
        """Places of numbers in their range, whose ends are -1 and 1, (n,); NaN for a value that is not finite."""
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(y_n), (y_n - self.middle) / self.half, np.nan)

    @property
    def is_label(self) -> bool:
        """Whether a row answers with one of `classes`."""
        return self.kind in ("logistic", "classes")

    @property
    def is_count(self) -> bool:
        """Whether a row answers with a count that has no largest value of its own."""
        return self.kind in ("negative_binomial", "poisson")

    @property
    def caps(self) -> dict[str, Any]:
        """Fields that bound a row's influence: all but the names of the labels."""
        bounds = {"low": self.low, "high": self.high}
        if self.kind != "numeric":
            bounds = {"max_trials": self.max_trials, "max_count": self.max_count, **self.beside}
        return {"kind": self.kind, **bounds}

    @property
    def beside(self) -> dict[str, float | None]:
        """The bounds of the row arguments."""
        return {name: getattr(self, name) for name in _LARGEST}

    @property
    def columns(self) -> dict[str, float]:
        """The row arguments, by the names that `fit` gives them, and their bounds."""
        named = {name: getattr(self, bound) for name, bound in BOUNDS.items()}
        return {name: bound for name, bound in named.items() if bound is not None}

    def shifts(self, num_rows: int, given: Mapping[str, Floats]) -> Beside:
        """Shift of ψ and weight of rows, from private columns; a fault makes it NaN.

        Args:
            num_rows: number of rows.
            given: exposure, offset and weights, (rows,), as far as they were given; otherwise 1, 0 and 1.
        """
        over_n = np.zeros(num_rows, dtype=np.bool_)
        value_of_column: dict[str, Floats] = {}
        for name, bound in self.columns.items():
            value_n = given.get(name, np.full(num_rows, 0.0 if name == "offset" else min(1.0, bound)))
            with np.errstate(all="ignore"):
                value_n = np.where(np.isfinite(value_n) & (value_n >= LOWEST[name]), value_n, np.nan)
                over_n |= np.abs(value_n) > bound
            value_of_column[name] = np.clip(value_n, -bound, bound)
        if "exposure" in value_of_column:
            value_of_column["offset"] = np.log(value_of_column["exposure"]) + value_of_column.get("offset", 0.0)
        return Beside(value_of_column.get("offset"), value_of_column.get("weights"), over_n)

    def encode(self, cells: Cells) -> Floats:
        """The response of each private cell as a number, a label as its place in classes; NaN for anything else."""
        if not self.is_label:
            return as_numbers(cells)
        code_n = Categories(self.classes).places(cells, other=-1, missing=-1)
        return np.where(code_n < 0, np.nan, code_n)

    def decode(self, y_n: Floats) -> NDArray[Any]:
        """Inverse of `encode`, for numbers as rows hold them: a number of [-1, 1] is back in its range."""
        if self.kind == "numeric":
            return self.middle + self.half * np.clip(y_n, -1.0, 1.0)
        whole_n = np.rint(y_n).astype(np.int64)
        return whole_n if self.is_count or self.kind == "binomial" else np.array(self.classes)[whole_n]

    @property
    def said(self) -> str:
        """Description of the response, in words."""
        if self.is_label:
            return f"one of the labels {', '.join(map(str, self.classes))}"
        return (
            f"a number in [{self.low:g}, {self.high:g}]"
            if self.kind == "numeric"
            else f"a count up to {self.max_count}"
        )


LOGISTIC = Response()
