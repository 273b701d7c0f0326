"""Types of columns in a schema, and the rule by which each converts cells to numbers.

Nothing here is fitted to data. What a column adds to a row is its features:

==============  ======================================================================================
column          features
==============  ======================================================================================
Numeric         one: clipped to [low, high], transformed, then scaled to [0, 1]
Date            one: the days or years since a public epoch, as a number
Spline          one for each knot but the reference: a natural spline that is 1 there, scaled to [0, 1]
Binary          one: 0 or 0.7
Categorical     0.7 for the category that it is, 0 for the others; one more place for a value that is
                none of them, and one for a missing value
Interaction     the products of the features of two columns, an indicator in them counting as 0 or 1;
                of two indicators 0 or 0.7
==============  ======================================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpvb.data.spelling import UNREADABLE, Categories, Cells, Floats, label, text
from dpvb.data.tables.ranged import Date, Encoded, Numeric, Spline, check_name
from dpvb.guards.errors import ParameterError

#: Size of an indicator: two rows that differ in a category are as far apart as the ends of a numeric column.
INDICATOR = 0.7

_MAX_CATEGORIES = 10**6


@dataclass(frozen=True)
class Binary:
    """A column of two values.

    Attributes:
        name: the column's.
        values: the two values, of which the second is the feature's 0.7; public.
        missing: which of the two stands for a missing or another value; None: such a row is faulty and adds nothing.

    Raises:
        ParameterError: for a field outside its range.

    Examples:
        >>> from dpvb.data import Binary
        >>> Binary("smoker", ("no", "yes")).labels
        ['no', 'yes']
    """

    name: str
    values: Sequence[Any] = (0, 1)
    missing: Any = None
    kind: ClassVar[str] = "binary"
    numeric: ClassVar[bool] = False
    entries: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "values", check_categories(self.name, "values", self.values))
        if len(self.values) != 2:
            raise ParameterError(f"values of column {self.name!r} must be two values, got {self.values!r}.")
        if self.missing is not None and label(self.missing) not in map(label, self.values):
            raise ParameterError(
                f"missing of column {self.name!r} must be one of {self.values!r} or None, got {self.missing!r}."
            )

    @property
    def width(self) -> int:
        """One feature."""
        return 1

    @property
    def names(self) -> tuple[str, ...]:
        """The feature's name is the column's."""
        return (self.name,)

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm, guessed as a fair coin's."""
        return INDICATOR**2 / 2, INDICATOR**4 / 4

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Step of the feature for 1, and the number at which the feature is 0."""
        return np.array([INDICATOR]), np.zeros(1)

    @property
    def labels(self) -> list[Any]:
        """Both values."""
        return [*self.values]

    def decode(self, feature_nk: Floats) -> NDArray[Any]:
        """The value whose feature is nearer."""
        return np.array(self.labels, dtype=object)[(feature_nk[:, 0] > INDICATOR / 2).astype(np.int64)]

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """The feature, NaN in a faulty row."""
        otherwise = -1 if self.missing is None else [*map(label, self.values)].index(label(self.missing))
        code_n = Categories(self.values, missing_values).places(cells, other=otherwise, missing=otherwise)
        value_n = np.where(code_n < 0, np.nan, INDICATOR * code_n)
        return _alone(value_n, np.zeros(len(code_n), dtype=np.bool_))


@dataclass(frozen=True)
class Categorical:
    """A column of public categories.

    Categories and values are compared in one spelling, whatever form the table has: texts without blanks at the ends
    and without regard to capital letters, numbers by their value ("1.50" is 1.5), 0/1 and False/True being the same. So
    two categories must differ in more than that.

    Attributes:
        name: the column's.
        categories: the public categories in the order of their features.
        other: whether a value that is none of them has a place of its own; False: such a row is faulty.
        missing: the same for a missing value.
        reference: the category that a table of coefficients compares the others with; None: the first. It changes no
            fit.

    Raises:
        ParameterError: no categories, one twice, or a reference that is none of them.

    Examples:
        >>> from dpvb.data import Categorical
        >>> Categorical("work", ("state", "own")).names
        ('work=state', 'work=own', 'work=<other>', 'work=<missing>')
    """

    name: str
    categories: Sequence[Any]
    other: bool = True
    missing: bool = True
    reference: Any = field(default=None, compare=False)
    kind: ClassVar[str] = "categorical"
    numeric: ClassVar[bool] = False
    entries: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_name(self.name)
        object.__setattr__(self, "categories", check_categories(self.name, "categories", self.categories))
        for name in ("other", "missing"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(
                    f"{name} of column {self.name!r} must be True or False, got {getattr(self, name)!r}."
                )
        if self.reference is not None:
            labels = [*map(label, self.categories)]
            if label(self.reference) not in labels:
                raise ParameterError(
                    f"reference of column {self.name!r} must be one of {self.categories!r} or None, "
                    f"got {self.reference!r}."
                )
            object.__setattr__(self, "reference", self.categories[labels.index(label(self.reference))])

    @property
    def reference_place(self) -> int:
        """Place of the reference among the categories."""
        return 0 if self.reference is None else self.categories.index(self.reference)

    @property
    def width(self) -> int:
        """One feature for each category, and for each further place."""
        return len(self.categories) + self.other + self.missing

    @property
    def names(self) -> tuple[str, ...]:
        """column=category, then column=<other> and column=<missing>."""
        places = ["<other>"] * self.other + ["<missing>"] * self.missing
        return tuple(f"{self.name}={place}" for place in (*map(text, self.categories), *places))

    @property
    def square(self) -> tuple[float, float]:
        """Mean and variance of what a value adds to a row's squared norm."""
        return INDICATOR**2, 0.0

    @property
    def units(self) -> tuple[Floats, Floats]:
        """Step of each feature for 1, and the number at which the feature is 0."""
        return np.full(self.width, INDICATOR), np.zeros(self.width)

    @property
    def labels(self) -> list[Any]:
        """The value at each place: the categories, a text that is not a category for <other>, None for <missing>."""
        return [*self.categories, *["<other>"] * self.other, *[None] * self.missing]

    def decode(self, feature_nk: Floats) -> NDArray[Any]:
        """The value with the largest feature."""
        return np.asarray(np.array(self.labels, dtype=object)[feature_nk.argmax(axis=1)])

    def encode(self, cells: Cells, missing_values: frozenset[str]) -> Encoded:
        """The one feature of each row that is not 0; NaN in a faulty row."""
        count = len(self.categories)
        other = count if self.other else -1
        missing = count + self.other if self.missing else -1
        code_n = Categories(self.categories, missing_values).places(cells, other=other, missing=missing)
        value_n = np.where(code_n < 0, np.nan, INDICATOR)
        return _alone(value_n, np.zeros(len(code_n), dtype=np.bool_), np.maximum(code_n, 0))


@dataclass(frozen=True)
class Interaction:
    """The products of two columns of the schema: what the one adds depends on the other.

    Both columns stand in the schema by themselves, too. So the product holds whatever their ranges are: what a range
    moves is decided only by the columns.

    Attributes:
        first, second: names of two columns, none of them an interaction.

    Raises:
        ParameterError: for names that are not texts, or equal.

    Examples:
        >>> from dpvb.data import Interaction
        >>> Interaction("smoker", "age").name
        'smoker:age'
    """

    first: str
    second: str
    kind: ClassVar[str] = "interaction"

    def __post_init__(self) -> None:
        check_name(self.first)
        check_name(self.second)
        if self.first == self.second:
            raise ParameterError(
                f"An interaction needs two different columns, got {self.first!r} twice. For a curve take "
                f"Spline({self.first!r}, knots=..., low=..., high=...)."
            )

    @property
    def name(self) -> str:
        """first:second."""
        return f"{self.first}:{self.second}"


@dataclass(frozen=True)
class Product:
    """An interaction, its two columns found.

    Raises:
        ParameterError: more than 10^6 products.
    """

    first: Column
    second: Column
    kind: ClassVar[str] = Interaction.kind

    def __post_init__(self) -> None:
        if self.width > _MAX_CATEGORIES:
            raise ParameterError(
                f"The interaction {self.name!r} has {self.width:,} features, more than {_MAX_CATEGORIES:,}: leave it "
                "out, or bring categories together."
            )

    @property
    def name(self) -> str:
        """first:second."""
        return f"{self.first.name}:{self.second.name}"

    @property
    def numeric(self) -> bool:
        """Whether the features are numbers in [0, 1], and not all indicators."""
        return self.first.numeric or self.second.numeric

    @property
    def entries(self) -> int:
        """How many features of a row may differ from 0."""
        return self.first.entries * self.second.entries

    @property
    def width(self) -> int:
        """One feature for each pair."""
        return self.first.width * self.second.width

    @property
    def names(self) -> tuple[str, ...]:
        """first:second, the features of the second column running faster."""
        return tuple(f"{one}:{other}" for one in self.first.names for other in self.second.names)

    @property
    def shrink(self) -> float:
        """The product of two features over the feature that is made of it."""
        return 1.0 if self.first.numeric and self.second.numeric else INDICATOR

    def encode(self, first: Encoded, second: Encoded) -> Encoded:
        """The products of what both columns were made into."""
        place_nmm = first.place_nm[:, :, None] * self.second.width + second.place_nm[:, None, :]
        # An indicator over its size is 1 exactly.
        size, other = (INDICATOR if not column.numeric else 1.0 for column in (self.first, self.second))
        size = 1.0 if not self.numeric else size
        value_nmm = (first.value_nm / size)[:, :, None] * (second.value_nm / other)[:, None, :]
        shape = (len(place_nmm), self.entries)
        cut_n = first.cut_n | second.cut_n
        return Encoded(place_nmm.reshape(shape), value_nmm.reshape(shape), cut_n)


#: Types of a column of the data.
Column: TypeAlias = Numeric | Date | Spline | Binary | Categorical


def _alone(value_n: Floats, cut_n: NDArray[np.bool_], place_n: NDArray[np.int64] | None = None) -> Encoded:
    """One feature a row, the first one unless a place is given."""
    place_n = np.zeros(len(value_n), dtype=np.int64) if place_n is None else place_n
    return Encoded(place_n[:, None], value_n[:, None], cut_n)


def check_categories(name: str, field: str, given: object) -> tuple[Any, ...]:
    """Public categories as plain Python values of different labels."""
    if isinstance(given, (str, bytes)) or not isinstance(given, (Sequence, np.ndarray)):
        raise ParameterError(f"{field} of column {name!r} must be a list of public values, got {given!r}.")
    values = tuple(value.item() if isinstance(value, np.generic) else value for value in given)
    if not 1 <= len(values) <= _MAX_CATEGORIES:
        raise ParameterError(f"{field} of column {name!r} must hold 1 to {_MAX_CATEGORIES} values, got {len(values)}.")
    first: dict[str | None, object] = {}
    for value in values:
        allowed = isinstance(value, (str, bool, int)) or (isinstance(value, float) and math.isfinite(value))
        name_of_value = label(value)
        if not allowed or name_of_value == UNREADABLE:
            raise ParameterError(f"{field} of column {name!r} must hold texts or finite numbers, got {value!r}.")
        if name_of_value in first:
            raise ParameterError(
                f"{field} of column {name!r} must not repeat a value, got {first[name_of_value]!r} and {value!r}: "
                "capital letters, blanks at the ends and the form of a number make no difference. Rename one of them, "
                "or take one for both."
            )
        first[name_of_value] = value
    return values
