"""What a response may be: the one public declaration that schemas, designs and models share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from dpvb.data.spelling import Categories, Cells, Floats, as_numbers, label
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number

Kind: TypeAlias = Literal["logistic", "binomial", "negative_binomial", "poisson", "numeric"]


@dataclass(frozen=True)
class Response:
    """What a response may be; every field is public.

    Attributes:
        kind: "logistic" (a label), "binomial" (successes of some trials), "negative_binomial" or "poisson" (a count),
            "numeric" (a number in a range).
        classes: the two labels, of which the second is y = 1 (logistic); compared with y as `spelling.label` says:
            capital letters, blanks at the ends and the form of a number make no difference.
        max_trials: bound on a row's trials (binomial).
        max_count: bound on a row's count; larger ones become max_count.
        low, high: the range of a number; those outside become its ends.

    Raises:
        ParameterError: for a field outside its range.
    """

    kind: Kind = "logistic"
    classes: tuple[Any, Any] = (0, 1)
    max_trials: int = 1
    max_count: int = 1
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        for name in ("max_trials", "max_count"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), low=1, high=10**9))
        try:
            first, second = self.classes
            labels = [one for one in (first, second) if isinstance(one, (str, bool, int, float, np.generic))]
            is_pair = len(labels) == 2 and not isinstance(self.classes, str) and label(first) != label(second)
            is_pair = is_pair and all(one == one for one in labels)
        except (TypeError, ValueError):
            is_pair = False
        if not is_pair:
            raise ParameterError(
                f"classes must be a pair of different labels (numbers or strings), got {self.classes!r}; the second is "
                "the one whose probability is modelled. Capital letters, blanks at the ends and the form of a number "
                "make no difference. More classes need one model each."
            )
        object.__setattr__(self, "classes", (first, second))
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
        """Places of numbers in their range, whose ends are -1 and 1, (n,); NaN for what is no finite number."""
        with np.errstate(all="ignore"):
            return np.where(np.isfinite(y_n), (y_n - self.middle) / self.half, np.nan)

    @property
    def is_count(self) -> bool:
        """Whether a row answers with a count that has no largest value of its own."""
        return self.kind in ("negative_binomial", "poisson")

    @property
    def caps(self) -> dict[str, Any]:
        """What bounds a row's influence: all but the names of the labels."""
        bounds = {"max_trials": self.max_trials, "max_count": self.max_count}
        return {"kind": self.kind, **({"low": self.low, "high": self.high} if self.kind == "numeric" else bounds)}

    def encode(self, cells: Cells) -> Floats:
        """The response of each private cell as a number, a label as its place in classes; NaN for anything else."""
        if self.kind != "logistic":
            return as_numbers(cells)
        code_n = Categories(self.classes).places(cells, unseen=-1, missing=-1)
        return np.where(code_n < 0, np.nan, code_n)


LOGISTIC = Response()
