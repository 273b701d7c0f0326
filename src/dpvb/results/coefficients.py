"""The table of coefficients: a joint normal distribution of named rows, computed from released numbers only.

    β = A z,   z ~ N(·, Σ),         a contrast:  l·β ~ N(l·E[β], l A Σ Aᵀ lᵀ)

Computing from such a table uses no budget. If the same people may be in the data of two fits, the variance of the
difference of their tables has a bound:

    β = x - y,   Std β ≤ Std x + Std y,     for independent fits   Var β = Var x + Var y

The bound holds for every linear combination of rows and is attained for some dependence (Cauchy-Schwarz inequality).
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
from scipy import sparse
from scipy.special import ndtri

from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.errors import DpvbError, ParameterError, check_number
from dpvb.guards.imports import import_apart
from dpvb.guards.untrusted import printable
from dpvb.guards.version import __version__
from dpvb.results import plots
from dpvb.results.figures import Figure, Intervals, Listing, number
from dpvb.results.statement import PrivacyStatement

#: Unit of a coefficient of a number: one unit of the column, or the declared range.
Per = Literal["unit", "range"]
# Width of text above and below a table: fits a terminal of 120 characters.
_WIDTH = 110
# Number of names in a message, so that it stays readable.
_MOST_NAMES = 40
# Largest logarithm of a ratio: exp(690) is a finite float64, and so is its square root of products.
_LARGEST_LOG = 690.0
# Largest number of decimals in a cell.
_MOST_DECIMALS = 8
# To what standard deviations are robust, without persons and with.
_ROBUST = (
    "robust to a variance of the response that differs from the model's",
    "robust to correlation within a person",
)
_PEOPLE = {
    True: "Assumed: no person is in the data of both fits, so their variances add up.",
    False: "The same people may be in the data of both fits: each std is the sum of both, an upper bound for every "
    "dependence. If no person is in both (disjoint), intervals are shorter. The epsilons of both fits add up.",
}
_RATIOS = {"log odds": "odds ratio", "log rate": "rate ratio"}
_NOTES = {
    "prior": "prior: contraction is below one half, so the interval mostly reflects the prior.",
    "scale unknown": "scale unknown: the budget is too small to estimate the spread of this column within its declared "
    "range. Declare a narrower range, from public knowledge, or use a larger budget.",
}


class Coefficient(NamedTuple):
    """One row of a table: a posterior mean and std, and the ends of a credible interval.

    Attributes:
        name: Name of the row: a column, or column=level.
        mean: Posterior mean. In a table of ratios: the median of the ratio.
        std: Posterior standard deviation. In a table of ratios: `mean` times the standard deviation of the logarithm.
        low, high: Limits of the credible interval.
        note: "prior" if `contraction` is below one half, "scale unknown" if the budget is too small to estimate the
            spread of the column within its declared range, otherwise empty.
        contraction: Posterior contraction, 1 - posterior variance / prior variance, in [0, 1]: that of the
            coefficient, or of a level in it if that is smaller. With `prior=` the prior includes the earlier data.
        positive: Posterior probability that the coefficient is above 0, or the ratio above 1.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> model = dpvb.LinearRegression(low=-1.0, high=1.0, y_range=(-1.0, 1.0), epsilon=1.0, delta=1e-6)
        >>> _, slope = model.fit(X, X[:, 0]).coefficients()
        >>> slope.name, slope.low < slope.mean < slope.high
        ('x0', True)
    """

    name: str
    mean: float
    std: float
    low: float
    high: float
    note: str = ""
    contraction: float = 1.0
    positive: float = 0.5


@dataclass(frozen=True, eq=False, repr=False)
class Normal:
    """Normal coefficients β = A z of a posterior and of its prior; public.

    Attributes:
        mean_r: Posterior means, (r,).
        map_rd: A, (r, d).
        covariance: Posterior covariance of z, (d, d), or its diagonal, (d,).
        prior: Prior covariance of z, in the same form.
    """

    mean_r: Floats
    map_rd: sparse.csr_array
    covariance: Floats
    prior: Floats

    def turned(self, matrix_sr: Any) -> Normal:
        """Return the coefficients Mβ for a matrix M, (s, r)."""
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
        """Joint posterior covariance, (r, r)."""
        map_rd = self.map_rd.toarray()
        return np.asarray(
            (map_rd * self.covariance if self.covariance.ndim == 1 else map_rd @ self.covariance) @ map_rd.T
        )

    def draws(self, normal_nd: Floats) -> Floats:
        """Return draws from the posterior, (n, r), computed from standard normal numbers, (n, d)."""
        if self.covariance.ndim == 1:
            draws_nd = normal_nd * np.sqrt(self.covariance)
        else:
            value_e, vector_de = np.linalg.eigh(self.covariance)
            draws_nd = (normal_nd * np.sqrt(np.maximum(value_e, 0.0))) @ vector_de.T
        return np.asarray(self.mean_r + (self.map_rd @ draws_nd.T).T)


def _variances(map_rd: sparse.csr_array, covariance: Floats) -> Floats:
    """Return the diagonal of A Σ Aᵀ, (r,)."""
    with np.errstate(over="ignore"):  # A flat prior has the largest finite variance.
        if covariance.ndim == 1:
            return np.asarray(np.maximum(map_rd.multiply(map_rd) @ covariance, 0.0))
        return np.maximum(np.ravel(map_rd.multiply(map_rd @ covariance).sum(axis=1)), 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class Sum:
    """The sum of two normal vectors; public.

    Attributes:
        first, second: The two vectors, (r,) each.
        independent: Whether they are independent. Otherwise, variances are upper bounds for every dependence.
    """

    first: Normal | Sum
    second: Normal | Sum
    independent: bool

    def turned(self, matrix_sr: Any) -> Sum:
        """Return the coefficients Mβ for a matrix M, (s, r)."""
        return replace(self, first=self.first.turned(matrix_sr), second=self.second.turned(matrix_sr))

    @property
    def mean_r(self) -> Floats:
        """Posterior means, (r,)."""
        return self.first.mean_r + self.second.mean_r

    @property
    def variance_r(self) -> Floats:
        """Posterior variances, (r,), or upper bounds of them."""
        return self._added(self.first.variance_r, self.second.variance_r)

    @property
    def prior_r(self) -> Floats:
        """Prior variances, (r,), or upper bounds of them."""
        return self._added(self.first.prior_r, self.second.prior_r)

    @property
    def covariance_rr(self) -> Floats:
        """Joint posterior covariance, (r, r).

        Raises:
            ParameterError: Unless both are independent.
        """
        if not self.independent:
            raise ParameterError(
                "The joint covariance of two fits to the same people is unknown. Use contrast(), which bounds the "
                "interval of any combination. If no person is in both data sets, compare with disjoint=True."
            )
        return self.first.covariance_rr + self.second.covariance_rr

    def _added(self, one_r: Floats, other_r: Floats) -> Floats:
        """Return Var(x + y), or its bound (√Var x + √Var y)², which holds for every dependence."""
        with np.errstate(over="ignore"):
            return one_r + other_r if self.independent else np.square(np.sqrt(one_r) + np.sqrt(other_r))


@dataclass(frozen=True)
class TableHead:
    """Facts above the rows of a table; public.

    Attributes:
        model: The model, in words.
        scale: Scale of a coefficient: "log odds", "log rate" or "response".
        per: Unit of a coefficient: one "unit" of a column, its declared "range", or other words.
        prior: The prior, in words.
        noise_aware: Whether intervals include the privacy noise.
        statement: Privacy statement of the fit, with the number of included units.
        replaced: Columns whose missing values are replaced by a constant, each with the constant. Default: none.
        against: Reference of the levels, in words. Empty (default): no categorical column.
        minus: Head of the table that is subtracted. None (default): no table is.
        disjoint: Whether no person is in the data of both fits. Default: False.
        robust: Whether standard deviations are those of a sandwich estimator. Default: False.
        convergence_ratio: Bias by too few steps, in standard deviations. Default: 0.
    """

    model: str
    scale: str
    per: str
    prior: str
    noise_aware: bool
    statement: PrivacyStatement
    replaced: tuple[str, ...] = ()
    against: str = ""
    minus: TableHead | None = None
    disjoint: bool = False
    robust: bool = False
    convergence_ratio: float = 0.0

    def lines(self) -> list[str]:
        """Return the head as printable lines."""
        statement = self.statement
        parts = [f"{self.model}.", f"Privacy: {statement.brief}."]
        if statement.counts is not None:
            parts.append(f"{statement.counts.say(statement.unit).capitalize()}.")
        parts.append(f"Prior: {self.prior}.")
        if self.robust:
            parts.append(f"Standard deviations: {_ROBUST[statement.unit == 'person']}.")
        if self.convergence_ratio > 1:
            parts.append("The fit had too few steps: its intervals are too narrow.")
        if self.replaced:
            parts.append(
                f"Missing values are replaced by a constant ({', '.join(self.replaced)}). Unless they are rare, "
                "this biases coefficients, and intervals do not account for it."
            )
        lines = [line for part in parts for line in textwrap.wrap(printable(part), _WIDTH, subsequent_indent="    ")]
        if self.minus is None:
            return lines
        first, *others = self.minus.lines()
        return [*lines, f"Minus: {first}", *others, *textwrap.wrap(_PEOPLE[self.disjoint], _WIDTH)]

    @property
    def budget(self) -> tuple[float, float]:
        """Epsilon and delta of the table; those of two fits add up if the same people may be in both data sets."""
        both = [self.statement] if self.minus is None else [self.statement, self.minus.statement]
        epsilons, deltas = [one.epsilon for one in both], [one.delta for one in both]
        if self.disjoint:
            return max(epsilons), max(deltas)
        # Guarantees for different units or neighbouring relations do not compose to a known one.
        kinds = {(one.unit, one.neighboring_relation) for one in both}
        return (math.fsum(epsilons) if len(kinds) == 1 else math.inf), math.fsum(deltas)


@dataclass(frozen=True, eq=False, repr=False)
class CoefficientTable(Figure, Sequence[Coefficient]):
    """Named coefficients with their joint distribution: a sequence of `Coefficient` rows that prints as a table.

    The printed table includes reference levels, whose coefficient is 0; the sequence does not.

    Attributes:
        lines: Names of the printed lines, including reference levels, (r,).
        matrix: Lines as linear combinations of the features, sparse, (r, d).
        places: Joint distribution of the intercept and the coefficients of the features, (d,).
        reference_r: Which lines are reference levels.
        unknown_scale_d: 1 for a feature of unknown scale (note "scale unknown"), otherwise 0.
        centre_r: Released centres of numeric columns, 1 for the intercept, otherwise 0; all 0 if none were released.
        head: Facts above the rows.
        level: Probability inside an interval, in (0, 1). Default: 0.95.
        exp: Whether rows are odds ratios or rate ratios. Default: False.
        scales: Axis limits of each row in a plot. Empty (default): all rows share one axis.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> y = (X[:, 0] > 0).astype(int)
        >>> model = dpvb.LogisticRegression(low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X, y)
        >>> table = model.coefficients()
        >>> table.names
        ('intercept', 'x0', 'x1')
    """

    lines: tuple[str, ...]
    matrix: sparse.csr_array
    places: Normal | Sum
    reference_r: Bools
    unknown_scale_d: Floats
    centre_r: Floats
    head: TableHead
    level: float = 0.95
    exp: bool = False
    scales: tuple[tuple[float, float], ...] = ()

    name = "coefficients"

    def __post_init__(self) -> None:
        check_number("level", self.level, low=0, high=1, closed="neither")
        if self.exp and self.head.scale not in _RATIOS:
            raise ParameterError(
                "exp must be False for a linear regression, got True: its coefficients are in the units of y."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the rows."""
        return tuple(row.name for row in self)

    @property
    def scale(self) -> str:
        """Scale of the rows: `TableHead.scale`, "odds ratio" or "rate ratio", or the difference or ratio of two."""
        what = _RATIOS[self.head.scale] if self.exp else self.head.scale
        return what if self.head.minus is None else f"ratio of {what}s" if self.exp else f"difference of {what}"

    @property
    def mean(self) -> Floats:
        """Posterior means of the rows, (rows,); for ratios, those of their logarithms."""
        return self._rows_alone.mean_r

    @property
    def covariance(self) -> Floats:
        """Joint posterior covariance of the rows, (rows, rows); for ratios, that of their logarithms."""
        return self._rows_alone.covariance_rr

    @property
    def prior_variance(self) -> Floats:
        """Prior variances of the rows, (rows,); for ratios, those of their logarithms."""
        return self._rows_alone.prior_r

    @property
    def _rows_alone(self) -> Normal | Sum:
        return self.places.turned(self.matrix[~self.reference_r])

    @overload
    def contrast(self, weights: Mapping[str, float]) -> Coefficient: ...
    @overload
    def contrast(self, weights: Sequence[Mapping[str, float]]) -> CoefficientTable: ...
    def contrast(self, weights: Mapping[str, float] | Sequence[Mapping[str, float]]) -> Coefficient | CoefficientTable:
        """Return a linear combination of coefficients, or a table of several.

        Args:
            weights: Weights by the names of lines, for example {"age": 10, "intercept": 1}, or a list of such
                mappings. Reference levels may be named. Differences of levels, for example
                {"work=own": 1, "work=state": -1}, do not depend on the coding.

        Returns:
            A `Coefficient` for one mapping, a `CoefficientTable` for a list.

        Raises:
            ParameterError: If there are no weights, a weight is not a number, or a name is unknown or ambiguous.
        """
        several = [weights] if isinstance(weights, Mapping) else weights
        if isinstance(several, str) or not isinstance(several, Sequence) or not several:
            raise ParameterError(
                f"weights must be a mapping of names to numbers, or a list of such mappings, got {weights!r}."
            )
        matrix_sr = np.array([self._weights(one) for one in several])
        table = self._combined([_words(one) for one in several], matrix_sr)
        return table[0] if isinstance(weights, Mapping) else table

    def _combined(self, names: Sequence[str], matrix_sr: Floats) -> CoefficientTable:
        """Return the table of linear combinations of the lines."""
        return replace(
            self,
            lines=tuple(names),
            matrix=sparse.csr_array(matrix_sr) @ self.matrix,
            reference_r=np.zeros(len(names), dtype=np.bool_),
            centre_r=np.zeros(len(names)),
        )

    def _weights(self, named: object) -> Floats:
        """Return weights by name as a vector over the lines."""
        if not isinstance(named, Mapping) or not named:
            raise ParameterError(
                f'weights must be a mapping of names to numbers, for example {{"age": 10}}, got {named!r}.'
            )
        weight_r = np.zeros(len(self.lines))
        for name, value in named.items():
            places = [place for place, line in enumerate(self.lines) if line == name]
            if not places:
                raise ParameterError(f"weights must name coefficients of the table ({some(self.lines)}), got {name!r}.")
            if len(places) > 1:
                raise ParameterError(
                    f"weights must name one coefficient, got {name!r}, the name of {len(places)}. Rename a column."
                )
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
        """Return a row for each line."""
        normal, unknown_r = self.places.turned(self.matrix), abs(self.matrix) @ self.unknown_scale_d > 0
        with np.errstate(over="ignore"):
            # A level without rows keeps the prior of its own coefficient, even if it is compared with another level.
            each_r = np.ravel((self.matrix.power(2) @ sparse.diags_array(self.places.prior_r)).max(axis=1).toarray())
        parts = (normal.mean_r, normal.variance_r, np.minimum(normal.prior_r, each_r), unknown_r)
        return [self._row(*facts) for facts in zip(self.lines, *(part.tolist() for part in parts), strict=True)]

    def _row(self, name: str, mean: float, variance: float, prior: float, is_scale_unknown: bool) -> Coefficient:
        std = math.sqrt(variance)
        margin = float(ndtri((1 + self.level) / 2)) * std
        contraction = 1.0 - min(variance / prior, 1.0) if prior > 0 else 1.0
        note = "scale unknown" if is_scale_unknown else "prior" if contraction < 0.5 else ""
        positive = 0.5 * math.erfc(-mean / std / math.sqrt(2)) if std > 0 else 0.5 + 0.5 * float(np.sign(mean))
        shown = mean, std, mean - margin, mean + margin
        if self.exp:
            median, low, high = (math.exp(min(part, _LARGEST_LOG)) for part in (mean, *shown[2:]))
            shown = median, min(median * std, math.exp(_LARGEST_LOG)), low, high
        return Coefficient(name, *shown, note, contraction, positive)

    def of_places(self, drawn_nd: Floats) -> Floats:
        """Return the rows, (n, rows), of drawn coefficients of the features, (n, d)."""
        drawn_nr = np.asarray((self.matrix[~self.reference_r] @ drawn_nd.T).T)
        return np.exp(np.minimum(drawn_nr, _LARGEST_LOG)) if self.exp else drawn_nr

    def listing(self) -> Listing:
        """Return the rows; as text a row for each line, reference levels included."""
        titles = (self.scale, *(["ratio"] if self.exp else ["mean", "std"]))
        titles = (*titles, f"{100 * self.level:g} % from", "to", "contraction", "note")
        cells = []
        for row, reference in zip(self._all, self.reference_r, strict=True):
            values = [row.mean, *([] if self.exp else [row.std]), row.low, row.high]
            texts = [*(_shown(value, ratio=self.exp) for value in values), f"{100 * row.contraction:.0f} %", row.note]
            cells.append([row.name, *([""] * (len(texts) - 1) + ["reference"] if reference else texts)])
        epsilon, delta = self.head.budget
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
        """Draw the intervals of all rows except the intercept, and return the axes. Rows with a note are faint.

        Args:
            ax: Matplotlib axes. None (default): axes of a new figure.

        Raises:
            ParameterError: If `ax` is anything else.
            DpvbError: If matplotlib is not installed.
        """
        if ax is not None and not hasattr(ax, "hlines"):
            raise ParameterError(f"ax must be Matplotlib axes or None, got {ax!r}.")
        axes = plots.new_axes(len(self)) if ax is None else ax
        [drawing] = self.drawings()
        slopes = tuple(row for row in drawing.rows if row[0] != "intercept")  # The intercept has another unit.
        plots.draw_intervals(axes, replace(drawing, rows=slopes, scales=()))
        return axes

    def drawings(self) -> Iterator[Intervals]:
        """Yield the intervals of all rows; 0 is not an effect, or among ratios 1."""
        how = " Numbers are per unit of a column. The plot is per declared range, so that rows are comparable."
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
        """Lines above the rows."""
        per = {"unit": "unit of a column", "range": "declared range of a column"}.get(self.head.per, self.head.per)
        against = f"; levels compared with {self.head.against}" if self.head.against else ""
        return [*self.head.lines(), f"{self.scale.capitalize()} per {per}{against}."]

    @property
    def _below(self) -> list[str]:
        """Lines below the rows."""
        parts = ["contraction: 1 - posterior variance / prior variance, at least 0."]
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
        parts.append(f"Intervals {'include' if self.head.noise_aware else 'do NOT include'} the privacy noise.")
        return [line for part in parts for line in textwrap.wrap(printable(part), _WIDTH, subsequent_indent="    ")]


def _shown(value: float, *, ratio: bool = False) -> str:
    """Format a number with four digits; a ratio near 1 with three digits of its difference from 1."""
    away = abs(value - 1.0)
    if ratio and 1e-9 < away < 1e-3:
        return f"{value:.{min(2 - math.floor(math.log10(away)), _MOST_DECIMALS)}f}"
    return number(value)


class Summary(str):
    """A table as text. A notebook displays it as a table.

    Attributes:
        table: The coefficient table.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 1))
        >>> model = dpvb.LinearRegression(low=-1.0, high=1.0, y_range=(-1.0, 1.0), epsilon=1.0, delta=1e-6)
        >>> summary = model.fit(X, X[:, 0]).summary()
        >>> "x0" in summary, summary.table.names
        (True, ('intercept', 'x0'))
    """

    table: CoefficientTable

    @classmethod
    def of(cls, table: CoefficientTable) -> Summary:
        """Return the text of a table."""
        summary = cls(table)
        summary.table = table
        return summary

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def difference(first: CoefficientTable, second: CoefficientTable, *, disjoint: bool) -> CoefficientTable:
    """Return the first table's rows minus the second's; for ratios, the ratios of both.

    Args:
        first, second: Tables of the same level, form and units.
        disjoint: Whether no person is in the data of both fits. Otherwise, standard deviations are upper bounds.

    Raises:
        ParameterError: If scales, rows or reference levels differ.
    """
    if first.scale != second.scale:
        raise ParameterError(f"Both models must have the same scale, got {first.scale!r} and {second.scale!r}.")
    if single := sorted(set(first.lines) ^ set(second.lines)):
        raise ParameterError(f"Both models must have the same rows. Only one of them has {some(single)}.")
    if max(len(first.lines), len(second.lines)) > len(set(first.lines)):
        raise ParameterError("Rows must have different names, but two have the same. Rename a column.")
    place_r = [second.lines.index(name) for name in first.lines]
    unlike = [first.lines[r] for r in np.flatnonzero(first.reference_r != second.reference_r[place_r])]
    if unlike:
        raise ParameterError(f"Both models must have the same reference levels. Only one of them has {some(unlike)}.")
    width, other = first.matrix.shape[1], second.matrix.shape[1]
    return replace(
        first,
        matrix=sparse.csr_array(sparse.hstack([first.matrix, -second.matrix[place_r]])),
        places=Sum(
            first.places.turned(sparse.eye_array(width + other, width)),
            second.places.turned(sparse.eye_array(width + other, other, k=-width)),
            disjoint,
        ),
        unknown_scale_d=np.concatenate([first.unknown_scale_d, second.unknown_scale_d]),
        centre_r=np.zeros(len(first.lines)),
        head=replace(first.head, minus=second.head, disjoint=disjoint),
    )


def for_arviz(names: Sequence[str], draws_cdr: Floats, statement: PrivacyStatement) -> Any:
    """Return draws for ArviZ: a tree whose group "posterior" contains `coef` by chain, draw and coefficient.

    Args:
        names: Names of the r coefficients.
        draws_cdr: Draws, (chains, draws, r).
        statement: Privacy statement of the fit, stored as an attribute.

    Raises:
        DpvbError: If arviz-base is not installed.
    """
    if find_spec("arviz_base") is None:
        raise DpvbError("to_arviz needs arviz-base. Install it: pip install '.[arviz]' in dpvb's source folder.")
    arviz_base = import_apart("arviz_base")
    facts = {"inference_library": "dpvb", "inference_library_version": __version__, "privacy": str(statement)}
    return arviz_base.from_dict(
        {"posterior": {"coef": draws_cdr}},
        coords={"coefficient": list(names)},
        dims={"coef": ["coefficient"]},
        attrs={"posterior": facts},
    )


def some(names: Sequence[str]) -> str:
    """Return names as text, at most 40 of them."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(repr, names[:_MOST_NAMES])) + more


def _words(weights: Mapping[str, float]) -> str:
    """Return a linear combination in words, for example "10 age - work=state"."""
    parts = []
    for name, value in weights.items():
        size = "" if abs(value) == 1 else f"{abs(value):g} "
        parts.append(("- " if value < 0 else "+ ") + size + name)
    return " ".join(parts).removeprefix("+ ")
