"""The table of coefficients: a joint normal distribution of named rows, made of released numbers alone.

    β = A z,   z ~ N(·, Σ),         a contrast:  l·β ~ N(l·E[β], l A Σ Aᵀ lᵀ)

Whatever is calculated from such a table costs no privacy. The difference of two tables, whose fits may have seen the
same people, bounds its variance:

    β = x - y,   Std β ≤ Std x + Std y,     for independent fits   Var β = Var x + Var y

The bound holds for every linear combination of rows, and some dependence reaches it (Cauchy and Schwarz).
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DpvbError, ParameterError, check_number
from dpvb.guards.imports import import_apart
from dpvb.guards.strangers import printable
from dpvb.guards.version import __version__
from dpvb.results import pictures
from dpvb.results.figures import Figure, Intervals, Listing, number
from dpvb.results.statement import PrivacyStatement

#: What the coefficient of a number is per.
Per = Literal["unit", "range"]
_WIDTH = 110
_MOST_NAMES = 40
# Ratios beyond stay finite numbers.
_LARGEST_LOG = 690.0
# So many decimals fit into a cell.
_MOST_DECIMALS = 8
_PEOPLE = {
    True: "Assumed: nobody is in the data of both fits, so that their variances add up.",
    False: "The same people may be in the data of both fits: a std is the sum of both, which no dependence exceeds. "
    "Where nobody is in both (disjoint), intervals are shorter. The epsilons of both fits add up.",
}
_RATIOS = {"log odds": "odds ratio", "log rate": "rate ratio"}
_NOTES = {
    "prior": "prior: the data decided less than half of the variance; the interval is mostly the prior's.",
    "unseen": "unseen: the declared range is too wide for this budget to see the column's spread; narrow it, or spend "
    "more.",
}


class Coefficient(NamedTuple):
    """One row of a table: a posterior mean and std, and the ends of a credible interval.

    In a table of ratios mean and ends are those of the ratio, whose median the mean is, and std is mean times the
    std of its logarithm. `decided` is the share, in [0, 1], that the data took away from the prior's variance: that
    of the coefficient, or of a level in it where that is smaller. With `prior=` the prior includes the earlier
    data. `note` is "prior" where the share is less than half, "unseen" where the declared range is too wide for the
    budget to see the column's spread, and else empty. `positive` is the probability that the coefficient is above
    0, or the ratio above 1.
    """

    name: str
    mean: float
    std: float
    low: float
    high: float
    note: str = ""
    decided: float = 1.0
    positive: float = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Normal:
    """Normal coefficients β = A z of a posterior and of its prior; public.

    Attributes:
        mean_r: posterior means, (r,).
        map_rd: A, (r, d).
        covariance: Σ of z under the posterior, (d, d), or its diagonal, (d,).
        prior: the same under the prior.
    """

    mean_r: Floats
    map_rd: sparse.csr_array
    covariance: Floats
    prior: Floats

    def turned(self, matrix_sr: Any) -> Normal:
        """The coefficients Mβ of a matrix M, (s, r)."""
        matrix_sr = sparse.csr_array(matrix_sr)
        map_sd = sparse.csr_array(matrix_sr @ self.map_rd)
        map_sd.sort_indices()
        return replace(self, mean_r=np.asarray(matrix_sr @ self.mean_r), map_rd=map_sd)

    @property
    def variance_r(self) -> Floats:
        """Posterior variances, (r,)."""
        return _variances(self.map_rd, self.covariance)

    @property
    def prior_r(self) -> Floats:
        """Prior variances, (r,)."""
        return _variances(self.map_rd, self.prior)

    @property
    def covariance_rr(self) -> Floats:
        """The joint posterior covariance, (r, r)."""
        map_rd = self.map_rd.toarray()
        return np.asarray(
            (map_rd * self.covariance if self.covariance.ndim == 1 else map_rd @ self.covariance) @ map_rd.T
        )

    def draws(self, normal_nd: Floats) -> Floats:
        """Draws from the posterior, (n, r), made of standard normal numbers, (n, d)."""
        if self.covariance.ndim == 1:
            draws_nd = normal_nd * np.sqrt(self.covariance)
        else:
            value_e, vector_de = np.linalg.eigh(self.covariance)
            draws_nd = (normal_nd * np.sqrt(np.maximum(value_e, 0.0))) @ vector_de.T
        return np.asarray(self.mean_r + (self.map_rd @ draws_nd.T).T)


def _variances(map_rd: sparse.csr_array, covariance: Floats) -> Floats:
    """The diagonal of A Σ Aᵀ, (r,)."""
    with np.errstate(over="ignore"):  # What has no prior has the largest of variances.
        if covariance.ndim == 1:
            return np.asarray(np.maximum(map_rd.multiply(map_rd) @ covariance, 0.0))
        return np.maximum(np.ravel(map_rd.multiply(map_rd @ covariance).sum(axis=1)), 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Sum:
    """The sum of two normal vectors; public.

    Attributes:
        first, second: the two, (r,) each.
        independent: whether they are; else nothing is known of it, and variances are the largest that there can be.
    """

    first: Normal | Sum
    second: Normal | Sum
    independent: bool

    def turned(self, matrix_sr: Any) -> Sum:
        """The coefficients Mβ of a matrix M, (s, r)."""
        return replace(self, first=self.first.turned(matrix_sr), second=self.second.turned(matrix_sr))

    @property
    def mean_r(self) -> Floats:
        """Posterior means, (r,)."""
        return self.first.mean_r + self.second.mean_r

    @property
    def variance_r(self) -> Floats:
        """Posterior variances, (r,), or what they are at most."""
        return self._added(self.first.variance_r, self.second.variance_r)

    @property
    def prior_r(self) -> Floats:
        """The same under the prior."""
        return self._added(self.first.prior_r, self.second.prior_r)

    @property
    def covariance_rr(self) -> Floats:
        """The joint posterior covariance, (r, r).

        Raises:
            ParameterError: unless both are independent.
        """
        if not self.independent:
            raise ParameterError(
                "two fits to the same people have no joint covariance that is known: contrast() bounds the interval of "
                "any combination. Of disjoint people compare with disjoint=True."
            )
        return self.first.covariance_rr + self.second.covariance_rr

    def _added(self, one_r: Floats, other_r: Floats) -> Floats:
        """Var(x + y), or its bound (√Var x + √Var y)², which no dependence exceeds."""
        with np.errstate(over="ignore"):
            return one_r + other_r if self.independent else np.square(np.sqrt(one_r) + np.sqrt(other_r))


@dataclass(frozen=True)
class TableHead:
    """What a table says above its rows; public.

    Attributes:
        model: the model, in words.
        scale: "log odds", "log rate" or "response": what a coefficient is.
        per: "unit" of a number, or its whole declared "range"; or any other words.
        prior: the prior, in words.
        noise_aware: whether the privacy noise is counted in.
        statement: what the fit promises, and how many units it counted.
        against: what levels are compared with, in words; "": there are none.
        minus: the head of the table that was taken away, where one was; None else.
        disjoint: whether nobody is in the data of both.
    """

    model: str
    scale: str
    per: str
    prior: str
    noise_aware: bool
    statement: PrivacyStatement
    against: str = ""
    minus: TableHead | None = None
    disjoint: bool = False

    def lines(self) -> list[str]:
        """The head as printable lines."""
        statement = self.statement
        parts = [f"{self.model}.", f"Privacy: {statement.brief}."]
        if statement.counts is not None:
            parts.append(f"{statement.counts.say(statement.unit).capitalize()} (95 % intervals).")
        parts.append(f"Prior: {self.prior}.")
        lines = [line for part in parts for line in textwrap.wrap(printable(part), _WIDTH, subsequent_indent="    ")]
        if self.minus is None:
            return lines
        first, *others = self.minus.lines()
        return [*lines, f"Minus: {first}", *others, *textwrap.wrap(_PEOPLE[self.disjoint], _WIDTH)]

    @property
    def promise(self) -> tuple[float, float]:
        """Epsilon and delta of what the table is made of: they add up where both fits saw the same people."""
        both = [self.statement] if self.minus is None else [self.statement, self.minus.statement]
        epsilons, deltas = [one.epsilon for one in both], [one.delta for one in both]
        if self.disjoint:
            return max(epsilons), max(deltas)
        # What is protected in two ways is protected together in none that is known.
        kinds = {(one.unit, one.neighboring_relation) for one in both}
        return (math.fsum(epsilons) if len(kinds) == 1 else math.inf), math.fsum(deltas)


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientTable(Figure, Sequence[Coefficient]):
    """Named coefficients with their joint distribution: a sequence of rows, a text, and the source of contrasts.

    Reference levels have lines, whose coefficient is 0, and are no rows of the sequence.

    Attributes:
        lines: names of the lines, reference levels included, (r,).
        matrix: lines as linear combinations of the places, sparse, (r, d).
        places: the joint distribution of the coefficients of the places: the intercept, and each feature, (d,).
        reference_r: which lines are reference levels.
        unseen_d: 1 for a place whose column has a spread that the budget could not see, else 0.
        centre_r: released centres of numeric columns, 1 for the intercept and 0 else; all 0: none were released.
        head: what stands above.
        level: probability inside an interval.
        exp: whether rows are ratios.
        scales: the ends of each row's own scale in a drawing; (): one scale serves all rows.
    """

    lines: tuple[str, ...]
    matrix: sparse.csr_array
    places: Normal | Sum
    reference_r: NDArray[np.bool_]
    unseen_d: Floats
    centre_r: Floats
    head: TableHead
    level: float = 0.95
    exp: bool = False
    scales: tuple[tuple[float, float], ...] = ()

    name = "coefficients"

    def __post_init__(self) -> None:
        check_number("level", self.level, low=0, high=1, closed="neither")
        if self.exp and self.head.scale not in _RATIOS:
            raise ParameterError("exp must be False for a linear regression: its coefficients are in the units of y.")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rows."""
        return tuple(row.name for row in self)

    @property
    def scale(self) -> str:
        """What a row is: a `TableHead.scale`, or "odds ratio" or "rate ratio", or the difference or ratio of such."""
        what = _RATIOS[self.head.scale] if self.exp else self.head.scale
        return what if self.head.minus is None else f"ratio of {what}s" if self.exp else f"difference of {what}"

    @property
    def mean(self) -> Floats:
        """Posterior means of the rows, (rows,); of ratios, those of their logarithms."""
        return self._rows_alone.mean_r

    @property
    def covariance(self) -> Floats:
        """The joint posterior covariance of the rows, (rows, rows); of ratios, that of their logarithms."""
        return self._rows_alone.covariance_rr

    @property
    def prior_variance(self) -> Floats:
        """Prior variances of the rows, (rows,); of ratios, those of their logarithms."""
        return self._rows_alone.prior_r

    @property
    def _rows_alone(self) -> Normal | Sum:
        return self.places.turned(self.matrix[~self.reference_r])

    @overload
    def contrast(self, weights: Mapping[str, float]) -> Coefficient: ...
    @overload
    def contrast(self, weights: Sequence[Mapping[str, float]]) -> CoefficientTable: ...
    def contrast(self, weights: Mapping[str, float] | Sequence[Mapping[str, float]]) -> Coefficient | CoefficientTable:
        """A linear combination of coefficients, or a table of several.

        Args:
            weights: numbers by names of lines, reference levels included, such as {"age": 10, "intercept": 1}; or a
                list of such. Of {"work=own": 1, "work=state": -1} the result is the same in every coding.

        Returns:
            A `Coefficient` for one, a `CoefficientTable` for a list.

        Raises:
            ParameterError: for no weights, a weight that is no number, or a name that no line bears, or two.
        """
        several = [weights] if isinstance(weights, Mapping) else weights
        if isinstance(several, str) or not isinstance(several, Sequence) or not several:
            raise ParameterError(f"weights must be numbers by name, or a list of such, got {weights!r}.")
        matrix_sr = np.array([self._weights(one) for one in several])
        table = self._combined([_words(one) for one in several], matrix_sr)
        return table[0] if isinstance(weights, Mapping) else table

    def _combined(self, names: Sequence[str], matrix_sr: Floats) -> CoefficientTable:
        """The table of linear combinations of the lines."""
        return replace(
            self,
            lines=tuple(names),
            matrix=sparse.csr_array(matrix_sr) @ self.matrix,
            reference_r=np.zeros(len(names), dtype=np.bool_),
            centre_r=np.zeros(len(names)),
        )

    def _weights(self, named: object) -> Floats:
        """Numbers by name as a vector over the lines."""
        if not isinstance(named, Mapping) or not named:
            raise ParameterError(f'weights must hold numbers by name, such as {{"age": 10}}, got {named!r}.')
        weight_r = np.zeros(len(self.lines))
        for name, value in named.items():
            places = [place for place, line in enumerate(self.lines) if line == name]
            if not places:
                raise ParameterError(f"weights must name coefficients: {some(self.lines)}; got {name!r}.")
            if len(places) > 1:
                raise ParameterError(f"weights name {name!r}, which {len(places)} coefficients bear: rename a column.")
            weight_r[places[0]] = check_number(f"weight of {name!r}", value)
        return weight_r

    @overload
    def __getitem__(self, index: int) -> Coefficient: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Coefficient]: ...
    def __getitem__(self, index: int | slice) -> Coefficient | Sequence[Coefficient]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    @cached_property
    def _rows(self) -> tuple[Coefficient, ...]:
        return tuple(row for row, is_not in zip(self._all, self.reference_r, strict=True) if not is_not)

    @cached_property
    def _all(self) -> list[Coefficient]:
        """A row for each line."""
        normal, unseen_r = self.places.turned(self.matrix), abs(self.matrix) @ self.unseen_d > 0
        with np.errstate(over="ignore"):
            # A level without rows has its own prior, whatever it is compared with.
            each_r = np.ravel((self.matrix.power(2) @ sparse.diags_array(self.places.prior_r)).max(axis=1).toarray())
        parts = (normal.mean_r, normal.variance_r, np.minimum(normal.prior_r, each_r), unseen_r)
        return [self._row(*facts) for facts in zip(self.lines, *(part.tolist() for part in parts), strict=True)]

    def _row(self, name: str, mean: float, variance: float, prior: float, unseen: bool) -> Coefficient:
        std = math.sqrt(variance)
        margin = float(ndtri((1 + self.level) / 2)) * std
        decided = 1.0 - min(variance / prior, 1.0) if prior > 0 else 1.0
        note = "unseen" if unseen else "prior" if decided < 0.5 else ""
        positive = 0.5 * math.erfc(-mean / std / math.sqrt(2)) if std > 0 else 0.5 + 0.5 * float(np.sign(mean))
        shown = mean, std, mean - margin, mean + margin
        if self.exp:
            median, low, high = (math.exp(min(part, _LARGEST_LOG)) for part in (mean, *shown[2:]))
            shown = median, min(median * std, math.exp(_LARGEST_LOG)), low, high
        return Coefficient(name, *shown, note, decided, positive)

    def of_places(self, drawn_nd: Floats) -> Floats:
        """The rows, (n, rows), of drawn coefficients of the places, (n, d)."""
        drawn_nr = np.asarray((self.matrix[~self.reference_r] @ drawn_nd.T).T)
        return np.exp(np.minimum(drawn_nr, _LARGEST_LOG)) if self.exp else drawn_nr

    def listing(self) -> Listing:
        """Return the rows; as text a row for each line, reference levels included."""
        titles = (self.scale, *(["ratio"] if self.exp else ["mean", "std"]))
        titles = (*titles, f"{100 * self.level:g} % from", "to", "decided", "note")
        cells = []
        for row, reference in zip(self._all, self.reference_r, strict=True):
            values = [row.mean, *([] if self.exp else [row.std]), row.low, row.high]
            texts = [*(_shown(value, ratio=self.exp) for value in values), f"{100 * row.decided:.0f} %", row.note]
            cells.append([row.name, *([""] * (len(texts) - 1) + ["reference"] if reference else texts)])
        epsilon, delta = self.head.promise
        return Listing(
            keys=Coefficient._fields,
            values=self._rows,
            above=self._above,
            below=self._below,
            titles=titles,
            cells=cells,
            numbers=range(1, len(titles) - 1),
            faint=[place for place, texts in enumerate(cells) if texts[-1]],
            facts={"scale": self.scale, "level": self.level, "epsilon": epsilon, "delta": delta},
        )

    def forest(self, ax: Any = None) -> Any:
        """Draw the intervals of all rows but the intercept, and return the axes; rows with a note are faint.

        Args:
            ax: axes of matplotlib; None: those of a new figure.

        Raises:
            ParameterError: for anything else.
            DpvbError: if matplotlib is not installed.
        """
        if ax is not None and not hasattr(ax, "hlines"):
            raise ParameterError(f"ax must be axes of matplotlib, or None for new ones, got {ax!r}.")
        axes = pictures.new_axes(len(self)) if ax is None else ax
        [drawing] = self.drawings()
        slopes = tuple(row for row in drawing.rows if row[0] != "intercept")  # Which has another unit.
        pictures.draw_intervals(axes, replace(drawing, rows=slopes, scales=()))
        return axes

    def drawings(self) -> Iterator[Intervals]:
        """Yield the intervals of all rows; 0 is no effect, or among ratios 1."""
        how = " Numbers are per unit of a column; the pictures are per whole declared range, so that rows compare."
        yield Intervals(
            title=f"Coefficients: {self.scale}",
            note=" ".join(self.head.lines()) + (how if self.scales else ""),
            rows=tuple((row.name, row.mean, row.low, row.high, row.note) for row in self),
            reference=1.0 if self.exp else 0.0,
            log=self.exp,
            scales=self.scales,
        )

    @property
    def _above(self) -> list[str]:
        """What is said above the rows."""
        per = {"unit": "unit of a column", "range": "declared range of a column"}.get(self.head.per, self.head.per)
        against = f"; of a level against {self.head.against}" if self.head.against else ""
        return [*self.head.lines(), f"{self.scale.capitalize()} per {per}{against}."]

    @property
    def _below(self) -> list[str]:
        """What is said below the rows."""
        parts = ["decided: the share of the prior's variance that the data took away."]
        parts += [text for note, text in _NOTES.items() if any(row.note == note for row in self)]
        if self.centre_r.any():
            at = ", ".join(
                f"{name} = {_shown(value)}"
                for name, value in zip(self.lines[1:], self.centre_r[1:].tolist(), strict=True)
                if value
            )
            [row] = self._combined(["centre"], self.centre_r[None, :])
            parts.append(
                f"At the released centres ({at}) the {'baseline' if self.exp else 'intercept'} is "
                f"{_shown(row.mean)} [{_shown(row.low)}, {_shown(row.high)}]."
            )
        parts.append(f"Uncertainty {'with' if self.head.noise_aware else 'WITHOUT'} the privacy noise counted in.")
        return [line for part in parts for line in textwrap.wrap(printable(part), _WIDTH, subsequent_indent="    ")]


def _shown(value: float, *, ratio: bool = False) -> str:
    """A number to four digits, whole below ten millions; a ratio near 1 to three digits of what it is away from 1."""
    away = abs(value - 1.0)
    if ratio and 1e-9 < away < 1e-3:
        return f"{value:.{min(2 - math.floor(math.log10(away)), _MOST_DECIMALS)}f}"
    return number(value)


class Summary(str):
    """A table as text, which a notebook shows as a table.

    Attributes:
        table: what it says in words.
    """

    table: CoefficientTable

    @classmethod
    def of(cls, table: CoefficientTable) -> Summary:
        """The text of a table."""
        summary = cls(table)
        summary.table = table
        return summary

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def difference(first: CoefficientTable, second: CoefficientTable, *, disjoint: bool) -> CoefficientTable:
    """The first table's rows minus the second's, as a table; as ratios, the ratios of both.

    Args:
        first, second: of one level and one form, whose columns have the same units.
        disjoint: whether nobody is in the data of both fits; else the table says what a std is at most.

    Raises:
        ParameterError: if scales, rows or reference levels differ, naming what does.
    """
    if first.scale != second.scale:
        raise ParameterError(f"both models must have one scale, got {first.scale!r} and {second.scale!r}.")
    if alone := sorted(set(first.lines) ^ set(second.lines)):
        raise ParameterError(f"both models must have the same rows, but one alone has {some(alone)}.")
    if max(len(first.lines), len(second.lines)) > len(set(first.lines)):
        raise ParameterError("the name of a row stands for two: rename a column.")
    place_r = [second.lines.index(name) for name in first.lines]
    unlike = [first.lines[r] for r in np.flatnonzero(first.reference_r != second.reference_r[place_r])]
    if unlike:
        raise ParameterError(f"both models must have the same reference levels, but one alone has {some(unlike)}.")
    width, other = first.matrix.shape[1], second.matrix.shape[1]
    return replace(
        first,
        matrix=sparse.csr_array(sparse.hstack([first.matrix, -second.matrix[place_r]])),
        places=Sum(
            first.places.turned(sparse.eye_array(width + other, width)),
            second.places.turned(sparse.eye_array(width + other, other, k=-width)),
            disjoint,
        ),
        unseen_d=np.concatenate([first.unseen_d, second.unseen_d]),
        centre_r=np.zeros(len(first.lines)),
        head=replace(first.head, minus=second.head, disjoint=disjoint),
    )


def for_arviz(names: Sequence[str], draws_cdr: Floats, statement: PrivacyStatement) -> Any:
    """Draws as ArviZ reads them: a tree whose group "posterior" holds `coef` by chain, draw and coefficient.

    Args:
        names: of the coefficients, r.
        draws_cdr: chains, draws of each, coefficients.
        statement: what the fit promises; it goes along as an attribute.

    Raises:
        DpvbError: if arviz_base is not installed.
    """
    if find_spec("arviz_base") is None:
        raise DpvbError("to_arviz needs arviz-base: pip install '.[arviz]' in dpvb's source folder.")
    arviz_base = import_apart("arviz_base")
    facts = {"inference_library": "dpvb", "inference_library_version": __version__, "privacy": str(statement)}
    return arviz_base.from_dict(
        {"posterior": {"coef": draws_cdr}},
        coords={"coefficient": list(names)},
        dims={"coef": ["coefficient"]},
        attrs={"posterior": facts},
    )


def some(names: Sequence[str]) -> str:
    """Names, the first of many."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more


def _words(weights: Mapping[str, float]) -> str:
    """A linear combination in words, such as "10 age - work=state"."""
    parts = []
    for name, value in weights.items():
        size = "" if abs(value) == 1 else f"{abs(value):g} "
        parts.append(("- " if value < 0 else "+ ") + size + name)
    return " ".join(parts).removeprefix("+ ")
