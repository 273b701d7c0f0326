"""What a report shows of a model: bars, intervals, grids, images and tables, not yet drawn; all of it is public."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from dpvb.guards.arrays import Floats

#: A figure shows so many rows; of the others it says how many there are.
MOST_ROWS = 200
#: A grid shows at most so many columns.
MOST_COLUMNS = 40
_WHITE = 255


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One thing that a report shows.

    Attributes:
        title: what it shows.
        note: how it is to be read; "": nothing need be said.
    """

    title: str
    note: str = ""

    #: By which the page knows how to draw it.
    form: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """The figure as plain JSON values; what is not finite is null."""
        return {"form": self.form, **_plain(asdict(self))}


@dataclass(frozen=True, kw_only=True)
class Bars(Figure):
    """Groups of bars, as the words of topics.

    Attributes:
        groups: for each a name, a remark, and (label, value) with values of at least 0.
    """

    groups: tuple[tuple[str, str, tuple[tuple[str, float], ...]], ...]

    form = "bars"

    @property
    def most(self) -> float:
        """The longest bar."""
        return max((value for *_, bars in self.groups for _, value in bars), default=1.0) or 1.0


@dataclass(frozen=True, kw_only=True)
class Intervals(Figure):
    """Estimates with their intervals, on one scale or each on its own.

    Attributes:
        rows: for each a name, the estimate, the ends of its interval, and a remark.
        reference: where a line is drawn; None: nowhere.
        log: whether the scale is that of logarithms.
        scales: the ends of each row's own scale; (): one scale serves all rows.
    """

    rows: tuple[tuple[str, float, float, float, str], ...]
    reference: float | None = None
    log: bool = False
    scales: tuple[tuple[float, float], ...] = ()

    form = "intervals"

    @property
    def places(self) -> list[tuple[float, float, float]]:
        """Of each row the estimate and the ends as shares of the width, in [0, 1]; what lies beyond is at the edge."""
        return [
            (self._share(mean, ends), self._share(low, ends), self._share(high, ends))
            for (_, mean, low, high, _), ends in zip(self.rows, self._ends_of_rows, strict=True)
        ]

    @property
    def lines(self) -> list[float | None]:
        """Of each row the reference as a share of the width."""
        at = self.reference
        return [None if at is None else self._share(at, ends) for ends in self._ends_of_rows]

    @property
    def _ends_of_rows(self) -> list[tuple[float, float]]:
        """The ends of the scale of each row."""
        if self.scales:
            return [(self._at(low), self._at(high)) for low, high in self.scales]
        return [self._ends] * len(self.rows)

    @property
    def _ends(self) -> tuple[float, float]:
        """The ends of the scale: those of rows without a remark, so that what is not known does not hide the rest."""
        known = [row for row in self.rows if not row[-1]] or self.rows
        ends = [self._at(end) for _, mean, low, high, _ in known for end in (mean, low, high)]
        finite = [end for end in ends if math.isfinite(end)] or [0.0, 1.0]
        at = [] if self.reference is None else [self._at(self.reference)]
        return min([*finite, *at]), max([*finite, *at])

    def _at(self, value: float) -> float:
        if not self.log:
            return value
        return math.log(value) if 0 < value < math.inf else math.copysign(math.inf, value - 1)

    def _share(self, value: float, ends: tuple[float, float]) -> float:
        share = (self._at(value) - ends[0]) / ((ends[1] - ends[0]) or 1.0)
        return 0.5 if math.isnan(share) else min(max(share, 0.0), 1.0)


@dataclass(frozen=True, kw_only=True)
class Grid(Figure):
    """A matrix of numbers with names, as transitions or loadings.

    Attributes:
        rows, columns: names.
        values: a row of numbers for each name of `rows`.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    form = "grid"

    @property
    def most(self) -> float:
        """The largest absolute value."""
        return max((abs(one) for row in self.values for one in row if math.isfinite(one)), default=1.0) or 1.0


@dataclass(frozen=True, kw_only=True)
class Images(Figure):
    """Small images, as the weights of hidden units.

    Attributes:
        names: one for each image.
        sources: PNG files in base64.
    """

    names: tuple[str, ...]
    sources: tuple[str, ...]

    form = "images"

    @classmethod
    def of(cls, title: str, note: str, images_khw: Floats, names: Sequence[str]) -> Images:
        """Images of signed numbers: blue below 0, white at 0, red above."""
        reach = float(np.quantile(np.abs(images_khw), 0.995)) if images_khw.size else 1.0
        return cls(
            title=title,
            note=note,
            names=tuple(names),
            sources=tuple(_png(np.clip(image_hw / (reach or 1.0), -1, 1)) for image_hw in images_khw),
        )

    def to_dict(self) -> dict[str, Any]:
        """The figure without its pixels."""
        return {name: value for name, value in super().to_dict().items() if name != "sources"}


@dataclass(frozen=True, kw_only=True)
class Facts(Figure):
    """A table of texts.

    Attributes:
        head: titles of the columns.
        rows: texts, as many as there are titles.
    """

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    form = "facts"


def _plain(value: Any) -> Any:
    """JSON values, without what JSON does not know."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _png(share_hw: Floats) -> str:
    """A PNG file, in base64, of numbers from -1 (blue) to 1 (red)."""
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
