"""Figures: public results, each as text, CSV file, data frame, JSON values, notebook table and plot.

A page draws them as HTML (`page.html.jinja`), a picture file by matplotlib (`plots`). Both use the positions of a
`Drawing`, so that a page and a picture are the same.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import os
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpvb.guards import notebook_html
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, DpvbError, check_target, reason_of
from dpvb.guards.untrusted import printable

#: A figure shows so many rows; of the others it says how many there are.
MOST_ROWS = 200
#: A grid shows at most so many columns.
MOST_COLUMNS = 40
_WHITE = 255
# Between these a number is written out, without an exponent.
_MANY, _TOO_MANY = 9999.5, 1e7


class Listing(NamedTuple):
    """Rows of a figure, as values and as texts, with the lines around them.

    Attributes:
        keys: Names of the columns of values.
        values: Rows with full precision.
        above, below: Lines above and below the rows.
        titles: Titles of the columns of texts. Empty: `keys`.
        cells: Rows as text. None: values with four digits.
        numbers: Indices of right-aligned columns of texts.
        faint: Indices of rows that a notebook shows faint.
        facts: Facts about all rows by name: additional columns of a CSV file, and attrs of a data frame.

    Examples:
        >>> from dpvb.results.figures import Listing
        >>> Listing(("word", "share"), [("fever", 0.25)]).texts[1]
        [['fever', '0.25']]
    """

    keys: Sequence[str]
    values: Sequence[Sequence[Any]]
    above: Sequence[str] = ()
    below: Sequence[str] = ()
    titles: Sequence[str] = ()
    cells: Sequence[Sequence[str]] | None = None
    numbers: Collection[int] = ()
    faint: Collection[int] = ()
    facts: Mapping[str, object] = MappingProxyType({})

    @property
    def texts(self) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
        """Return titles and rows as text."""
        cells = [[one if isinstance(one, str) else number(one) for one in row] for row in self.values]
        return self.titles or self.keys, cells if self.cells is None else self.cells


class Figure(ABC):
    """Public result: text, CSV file, data frame, JSON values, notebook table and plots of the same rows.

    Attributes:
        name: Name for `dpvb show --what`. Empty: it is shown only together with all others.

    Examples:
        >>> from dpvb.results.figures import Facts
        >>> Facts(title="Words", head=("topic", "word"), rows=(("1", "fever"),)).to_dicts()
        [{'topic': '1', 'word': 'fever'}]
    """

    name: str = ""

    @abstractmethod
    def listing(self) -> Listing:
        """Return the rows."""

    @abstractmethod
    def drawings(self) -> Iterator[Drawing]:
        """Yield the plots of a page or picture."""

    def __str__(self) -> str:
        listing = self.listing()
        titles, cells = listing.texts
        above, below = (list(map(printable, lines)) for lines in (listing.above, listing.below))
        return "\n".join([*above, "", *aligned([titles, *cells], listing.numbers), *below])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return HTML of the rows for a notebook."""
        listing = self.listing()
        titles, cells = listing.texts
        table = notebook_html.table(cells, head=titles, numbers=listing.numbers, faint=listing.faint)
        return f"<div>{notebook_html.paragraph(listing.above)}{table}{notebook_html.paragraph(listing.below)}</div>"

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as plain JSON values by the names of their columns; a number that is not finite is None."""
        listing = self.listing()
        return [dict(zip(listing.keys, _plain(list(row)), strict=True)) for row in listing.values]

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame, indexed by the first column; its attrs are facts about all rows.

        Raises:
            DpvbError: If pandas is not installed.
        """
        return frame(self.listing())

    def to_csv(self, path: str | os.PathLike[str] | None = None, *, overwrite: bool = False) -> str | None:
        """Return or write the rows as comma-separated values (RFC 4180) with full precision, and facts in each row.

        Args:
            path: File to write. None (default): the text is returned.
            overwrite: Whether to replace an existing file. Default: False.

        Raises:
            ParameterError: If the file exists and `overwrite` is False.
            DataFormatError: If the file cannot be written.
        """
        listing, text = self.listing(), io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # A text may hold line ends.
        writer.writerow([*listing.keys, *listing.facts])
        writer.writerows([*row, *listing.facts.values()] for row in listing.values)
        if path is None:
            return text.getvalue()
        write(path, text.getvalue(), overwrite=overwrite)
        return None


@dataclass(frozen=True, kw_only=True)
class Drawing(Figure):
    """Figure of one form, which a page and a picture can draw.

    Attributes:
        title: Title.
        note: Explanation. Empty: none.

    Examples:
        >>> from dpvb.results.figures import Drawing, Intervals
        >>> rates = Intervals(title="Rates", rows=(("north", 0.5, 0.4, 0.6, ""),))
        >>> isinstance(rates, Drawing), rates.form
        (True, 'intervals')
    """

    title: str
    note: str = ""
    name: str = ""

    #: Name of the form by which the page and the picture draw it.
    form: ClassVar[str]

    def drawings(self) -> Iterator[Drawing]:
        """Yield the figure itself."""
        yield self

    def _listing(self, keys: Sequence[str], values: Sequence[Sequence[Any]], **texts: Any) -> Listing:
        """Return a listing between title and note."""
        return Listing(keys, values, (self.title,), (self.note,) if self.note else (), **texts)

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain JSON values, without pixels of images; numbers that are not finite are null."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "images_khw"}
        return {"form": self.form, **_plain(values)}


@dataclass(frozen=True, kw_only=True)
class Bars(Drawing):
    """Groups of bars, for example words of topics.

    Attributes:
        groups: Name, remark, and (label, value) pairs of each group; values are at least 0.

    Examples:
        >>> from dpvb.results.figures import Bars
        >>> words = ("topic 1", "", (("fever", 0.25), ("cough", 0.5)))
        >>> Bars(title="Words of topics", groups=(words,)).most
        0.5
    """

    groups: tuple[tuple[str, str, tuple[tuple[str, float], ...]], ...]

    form = "bars"

    def listing(self) -> Listing:
        """Return a row per bar; as text, a row per group."""
        bars = [(group, label, value) for group, _, bars in self.groups for label, value in bars]
        cells = [[group, " ".join(label for label, _ in bars), remark] for group, remark, bars in self.groups]
        return self._listing(("group", "name", "value"), bars, titles=("", "largest first", ""), cells=cells)

    @property
    def most(self) -> float:
        """Largest value."""
        return max((one for *_, bars in self.groups for _, one in bars if math.isfinite(one)), default=1.0) or 1.0


@dataclass(frozen=True, kw_only=True)
class Intervals(Drawing):
    """Estimates with intervals, on one axis or on an axis each.

    Attributes:
        rows: Name, estimate, limits of the interval, and remark of each row.
        reference: Position of a reference line. None: none.
        log: Whether the axis is logarithmic.
        scales: Limits of the axis of each row. Empty: all rows share one axis.

    Examples:
        >>> from dpvb.results.figures import Intervals
        >>> Intervals(title="Rates", rows=(("north", 0.5, 0.4, 0.6, ""),)).to_dicts()[0]["high"]
        0.6
    """

    rows: tuple[tuple[str, float, float, float, str], ...]
    reference: float | None = None
    log: bool = False
    scales: tuple[tuple[float, float], ...] = ()

    form = "intervals"

    def listing(self) -> Listing:
        """Return a row per estimate."""
        return self._listing(("name", "mean", "low", "high", "note"), self.rows, numbers=(1, 2, 3))

    @property
    def places(self) -> list[tuple[float, float, float]]:
        """Return estimate and limits of each row as shares of the width, in [0, 1]; values outside are at the edge."""
        return [
            (self._share(mean, ends), self._share(low, ends), self._share(high, ends))
            for (_, mean, low, high, _), ends in zip(self.rows, self._ends_of_rows, strict=True)
        ]

    @property
    def lines(self) -> list[float | None]:
        """Return the reference of each row as a share of the width."""
        at = self.reference
        return [None if at is None else self._share(at, ends) for ends in self._ends_of_rows]

    @property
    def _ends_of_rows(self) -> list[tuple[float, float]]:
        """Return the limits of the axis of each row."""
        if self.scales:
            return [(self._at(low), self._at(high)) for low, high in self.scales]
        return [self._ends] * len(self.rows)

    @property
    def _ends(self) -> tuple[float, float]:
        """Return the limits of the axis, from rows without a remark, so that uncertain rows do not hide the others."""
        clear = [row for row in self.rows if not row[-1]] or self.rows
        ends = [self._at(end) for _, mean, low, high, _ in clear for end in (mean, low, high)]
        finite = [end for end in ends if math.isfinite(end)] or [0.0, 1.0]
        at = [] if self.reference is None else [self._at(self.reference)]
        return min([*finite, *at]), max([*finite, *at])

    def _at(self, value: float) -> float:
        if not self.log:
            return value
        return math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)

    def _share(self, value: float, ends: tuple[float, float]) -> float:
        return _share(self._at(value), ends)


@dataclass(frozen=True, kw_only=True)
class Grid(Drawing):
    """Matrix of numbers with names, for example transitions or loadings.

    Attributes:
        rows, columns: Names.
        values: A row of numbers for each name of `rows`.

    Examples:
        >>> from dpvb.results.figures import Grid
        >>> print(Grid(title="Transitions", rows=("home",), columns=("home", "news"), values=((0.25, 0.75),)))
        Transitions
        <BLANKLINE>
              home  news
        home  0.25  0.75
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    form = "grid"

    def listing(self) -> Listing:
        """Return a row per cell; as text, the matrix."""
        lines = list(zip(self.rows, self.values, strict=True))
        values = [(row, column, one) for row, line in lines for column, one in zip(self.columns, line, strict=True)]
        cells = [[row, *map(number, line)] for row, line in lines]
        heads = ("", *self.columns)
        return self._listing(
            ("row", "column", "value"), values, titles=heads, cells=cells, numbers=range(1, len(heads))
        )

    @property
    def most(self) -> float:
        """Largest absolute value."""
        return max((abs(one) for row in self.values for one in row if math.isfinite(one)), default=1.0) or 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Images(Drawing):
    """Small images of signed numbers, for example weights of hidden units: blue below 0, white at 0, red above.

    Attributes:
        names: Name of each image.
        images_khw: Numbers.

    Examples:
        >>> import numpy as np
        >>> from dpvb.results.figures import Images
        >>> weights = Images(title="Hidden units", names=("unit 1",), images_khw=np.ones((1, 8, 8)))
        >>> len(weights.sources)
        1
    """

    names: tuple[str, ...]
    images_khw: Floats

    form = "images"

    def listing(self) -> Listing:
        """Return a row per pixel; as text, a row per image."""
        lines = list(zip(self.names, self.images_khw.reshape(len(self.names), -1).tolist(), strict=True))
        values = [(name, pixel, one) for name, line in lines for pixel, one in enumerate(line)]
        cells = [[name, number(float(np.sqrt(np.mean(np.square(line)))))] for name, line in lines]
        titles = ("", "root mean square")
        return self._listing(("name", "pixel", "value"), values, titles=titles, cells=cells, numbers=(1,))

    @property
    def sources(self) -> list[str]:
        """Return PNG files in base64, of the first `MOST_ROWS`."""
        reach = float(np.quantile(np.abs(self.images_khw), 0.995)) if self.images_khw.size else 1.0
        return [_png(np.clip(image_hw / (reach or 1.0), -1, 1)) for image_hw in self.images_khw[:MOST_ROWS]]


@dataclass(frozen=True, kw_only=True)
class Facts(Drawing):
    """Table of texts.

    Attributes:
        head: Titles of the columns.
        rows: Texts, one per title.

    Examples:
        >>> from dpvb.results.figures import Facts
        >>> Facts(title="Words", head=("topic", "word"), rows=(("1", "fever"),)).to_frame().loc["1", "word"]
        'fever'
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    form = "facts"

    def listing(self) -> Listing:
        """Return the table."""
        return self._listing(self.head, self.rows)


@dataclass(frozen=True, kw_only=True)
class Curves(Drawing):
    """Values over a common axis, with optional bands.

    Attributes:
        x: Title of the axis.
        at: Positions on the axis, ascending.
        lines: Name of each line, and its value and limits of its band at each position.
        mark: Highlighted position. None: none.
        log: Whether the axis is logarithmic.
        low: Lower limit of the axis of values. None: the smallest value.

    Examples:
        >>> from dpvb.results.figures import Curves
        >>> forecast = Curves(title="Forecast", x="day", at=(1.0,), lines=(("home", ((0.5, 0.4, 0.6),)),))
        >>> forecast.to_dicts()[0]["high"]
        0.6
    """

    x: str
    at: tuple[float, ...]
    lines: tuple[tuple[str, tuple[tuple[float, float, float], ...]], ...]
    mark: float | None = None
    log: bool = False
    low: float | None = None

    form = "curves"

    def listing(self) -> Listing:
        """Return a row per line and position."""
        values = [(name, x, *point) for name, points in self.lines for x, point in zip(self.at, points, strict=True)]
        return self._listing(("line", self.x, "value", "low", "high"), values, numbers=range(1, 5))

    @property
    def places(self) -> list[list[tuple[float, ...]]]:
        """Return value and limits of each line and position as shares of width and height, in [0, 1]."""
        scale = math.log if self.log else float
        ends = [end for _, points in self.lines for point in points for end in point if math.isfinite(end)] or [
            0.0,
            1.0,
        ]
        height = (min(ends) if self.low is None else self.low, max(ends))
        width = (scale(self.at[0]), scale(self.at[-1]))
        return [
            [
                (_share(scale(x), width), *(_share(end, height) for end in point))
                for x, point in zip(self.at, points, strict=True)
            ]
            for _, points in self.lines
        ]


def write(path: str | os.PathLike[str], text: str, *, overwrite: bool) -> None:
    """Write a text file.

    Raises:
        ParameterError: If `path` is not a path, or the file exists and may not be replaced.
        DataFormatError: If the file cannot be written.
    """
    place = check_target("path", path, overwrite=overwrite)
    try:
        place.write_text(text, encoding="utf-8", newline="")
    except (OSError, UnicodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it holds text that is not Unicode"
        raise DataFormatError(f"{str(place)!r} cannot be written: {reason}.") from error


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Return a line per row, with aligned columns.

    Args:
        rows: Rows of equally many cells, printable or not.
        numbers: Indices of right-aligned columns.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def number(value: float) -> str:
    """Format a number with four digits, or all digits before the point below ten million; a word for NaN."""
    if _MANY <= abs(value) < _TOO_MANY:
        return f"{value:.0f}"
    return f"{value:.4g}" if math.isfinite(value) else "unknown" if math.isnan(value) else "∞" if value > 0 else "-∞"


def frame(listing: Listing) -> Any:
    """Return a pandas data frame whose index is the first column, and whose attrs are facts about all rows.

    Raises:
        DpvbError: If pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise DpvbError("to_frame needs pandas: pip install pandas. Without it, to_csv() gives the same rows as text.")
    import pandas

    table = pandas.DataFrame.from_records(listing.values, columns=list(listing.keys)).set_index(listing.keys[0])
    table.attrs.update(listing.facts)
    return table


def _share(value: float, ends: tuple[float, float]) -> float:
    """Return the position of a value between two limits, in [0, 1]; 0.5 if it is NaN."""
    share = (value - ends[0]) / ((ends[1] - ends[0]) or 1.0)
    return 0.5 if math.isnan(share) else min(max(share, 0.0), 1.0)


def _plain(value: Any) -> Any:
    """Return JSON values, with null for NaN and infinity."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _png(share_hw: Floats) -> str:
    """Return a PNG file, in base64, of numbers from -1 (blue) to 1 (red)."""
    fade_hw = (_WHITE * (1 - np.abs(share_hw))).astype(np.uint8)
    full_hw = np.full_like(fade_hw, _WHITE)
    above_hw = share_hw >= 0
    pixels_hwc = np.stack([np.where(above_hw, full_hw, fade_hw), fade_hw, np.where(above_hw, fade_hw, full_hw)], axis=2)
    height, width = share_hw.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels_hwc)  # Each line is stored as it is.
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b"")]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return base64.b64encode(file).decode("ascii")
