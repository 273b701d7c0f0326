"""Figures as pictures: each form drawn by matplotlib (the extra `plot`), as the report's page draws it in HTML."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import Any, Final

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DpvbError, check_path
from dpvb.guards.imports import import_apart
from dpvb.guards.untrusted import printable
from dpvb.results.figures import MOST_ROWS, Bars, Curves, Facts, Figure, Grid, Images, Intervals, number

_BLUE, _ORANGE = "#2f6f9f", "#d9822b"
_WIDTH = 11.0
# Groups of bars and images in one row.
_ACROSS, _IMAGES_ACROSS = 4, 10
# A logarithmic axis shows ratios up to this one.
_LARGEST_LOG = 200.0
# Letters of a name next to a grid; most rows of one whose cells have numbers.
_LONGEST_NAME, _NUMBERED = 24, 12
_LETTERS_OF_A_LINE = 120
# Axes of larger numbers overflow.
_LARGEST = 1e100
# In inches; a higher picture has more dots than matplotlib draws.
_HIGHEST = 500.0
# No word in a picture is mathematics or a program of LaTeX.
_AS_IT_IS: Final = {"parse_math": False, "usetex": False}


def save(path: str | os.PathLike[str], figures: Iterable[Figure], heading: str) -> None:
    """Write figures below each other as one picture.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        figures: at least one.
        heading: text above them, such as a guarantee.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    matplotlib = _matplotlib("matplotlib.figure")
    drawings = [drawing for figure in figures for drawing in figure.drawings()]
    notes = [_wrapped(drawing.note) for drawing in drawings]
    heights = [
        0.6 + 0.15 * note.count("\n") + _DRAWN[drawing.form][1](drawing)
        for drawing, note in zip(drawings, notes, strict=True)
    ]
    picture = matplotlib.Figure(figsize=(_WIDTH, min(sum(heights) + 0.4, _HIGHEST)), layout="constrained")
    panels = picture.subfigures(len(drawings), 1, height_ratios=heights, squeeze=False).ravel()
    for panel, drawing, note in zip(panels, drawings, notes, strict=True):
        panel.suptitle(_wrapped(drawing.title), fontsize=10, **_AS_IT_IS)
        panel.supxlabel(note, fontsize=7, **_AS_IT_IS)
        _DRAWN[drawing.form][0](panel, drawing)
    picture.suptitle(_wrapped(heading), fontsize=9, **_AS_IT_IS)
    _write(picture, path)


def new_axes(rows: int) -> Any:
    """Axes of a new figure of pyplot, which a notebook shows, for intervals of so many rows.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    height = min(0.28 * rows + 1.4, _HIGHEST)
    return _matplotlib("matplotlib.pyplot").subplots(figsize=(7.0, height), layout="constrained")[1]


def draw_intervals(axes: Any, intervals: Intervals) -> None:
    """Draw an estimate and its interval on a line each, the first one on top.

    Rows with a remark are faint, and may run out of the picture: the others choose its width. A line marks the
    reference. Rows with scales of their own show their numbers next to their names.

    Args:
        axes: matplotlib's.
        intervals: the estimates; their title is that of the axis.
    """
    rows, is_log = intervals.rows, intervals.log and not intervals.scales
    place = np.arange(len(rows))
    shares = intervals.places if intervals.scales else [row[1:4] for row in rows]
    middle, low, high = _drawable(shares).reshape(-1, 3).T
    clear = np.array([not remark for *_, remark in rows], dtype=np.bool_)
    if is_log:
        from matplotlib.ticker import LogFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(LogFormatter())
        axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
        low = np.maximum(low, math.exp(-_LARGEST_LOG))
    if intervals.scales:
        if intervals.reference is not None:
            axes.plot(intervals.lines, place, "|", color="gray", markersize=12)
        axes.set_xlim(-0.02, 1.02)
        axes.set_xticks([])
    else:
        if intervals.reference is not None:
            axes.axvline(intervals.reference, color="gray", linewidth=0.8, linestyle="--")
        axes.set_xlim(*_edges(intervals, low, high, clear))
    for faint, chosen in ((True, ~clear), (False, clear)):
        look = {"color": _BLUE, "alpha": 0.35 if faint else 1.0}
        axes.hlines(place[chosen], low[chosen], high[chosen], linewidth=1.5, **look)
        axes.plot(middle[chosen], place[chosen], "o", markersize=4, **look)
    labels = []
    for name, mean, start, end, remark in intervals.listing().texts[1]:
        values = f"  {mean} [{start}, {end}]" if intervals.scales else ""
        labels.append(printable(name + values + (f" ({remark})" if remark else "")))
    axes.set_yticks(place, labels, fontsize=8, **_AS_IT_IS)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.set_xlabel(_wrapped(intervals.title), fontsize=9, **_AS_IT_IS)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _edges(intervals: Intervals, low: Any, high: Any, clear: Any) -> Any:
    """The ends of an axis that shows the reference and the rows without a remark, with a margin."""
    rows = (clear if clear.any() else ~clear) & (np.isfinite(low) & np.isfinite(high))
    ends = np.concatenate([[] if intervals.reference is None else [intervals.reference], low[rows], high[rows]])
    ends = np.log(ends) if intervals.log else ends
    least, most = (ends.min(), ends.max()) if len(ends) else (0.0, 1.0)
    margin = 0.05 * (most - least) or 1.0
    edges = np.array([least - margin, most + margin])
    return np.exp(np.clip(edges, -_LARGEST_LOG, _LARGEST_LOG)) if intervals.log else edges


def _intervals(panel: Any, intervals: Intervals) -> None:
    axes = panel.subplots()
    draw_intervals(axes, intervals)
    axes.set_xlabel("")  # Which stands above.


def _bars(panel: Any, bars: Bars) -> None:
    across = max(min(len(bars.groups), _ACROSS), 1)
    panels = panel.subplots(math.ceil(len(bars.groups) / across) or 1, across, squeeze=False).ravel()
    for axes in panels[len(bars.groups) :]:
        axes.set_visible(False)
    for axes, (name, remark, values) in zip(panels, bars.groups, strict=False):
        place = np.arange(len(values))
        axes.barh(place, _drawable([value for _, value in values]), color=_BLUE, height=0.7)
        axes.set_yticks(place, [printable(label) for label, _ in values], fontsize=8, **_AS_IT_IS)
        axes.set_xlim(0, float(_drawable(bars.most)))
        axes.invert_yaxis()
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(printable(f"{name} {remark}"), fontsize=8, loc="left", **_AS_IT_IS)


def _grid(panel: Any, grid: Grid) -> None:
    axes, value_rc = panel.subplots(), _drawable(grid.values).reshape(len(grid.rows), -1)
    signed, most = bool((value_rc < 0).any()), float(_drawable(grid.most))
    colours = {"cmap": "RdBu_r" if signed else "Blues", "vmin": -most if signed else 0.0, "vmax": most}
    panel.colorbar(axes.imshow(value_rc, aspect="auto", **colours), ax=axes, shrink=0.6)
    for ticks, names, turned in ((axes.set_xticks, grid.columns, 90), (axes.set_yticks, grid.rows, 0)):
        shown = [printable(name)[:_LONGEST_NAME] for name in names]
        ticks(np.arange(len(names)), shown, rotation=turned, fontsize=7, **_AS_IT_IS)
    if max(value_rc.shape, default=0) <= _NUMBERED:
        for (row, column), value in np.ndenumerate(value_rc):
            colour = "w" if abs(value) > most / 2 else "k"
            axes.text(column, row, number(grid.values[row][column]), ha="center", va="center", fontsize=6, color=colour)


def _images(panel: Any, images: Images) -> None:
    pixels_khw = np.nan_to_num(_drawable(images.images_khw))
    reach = float(np.quantile(np.abs(pixels_khw), 0.995)) or 1.0
    across = max(min(len(images.names), _IMAGES_ACROSS), 1)
    panels = panel.subplots(math.ceil(len(images.names) / across) or 1, across, squeeze=False).ravel()
    for axes in panels:
        axes.set_axis_off()
    for axes, name, image_hw in zip(panels, images.names, pixels_khw, strict=False):
        axes.imshow(image_hw, cmap="RdBu_r", vmin=-reach, vmax=reach)
        axes.set_title(printable(name), fontsize=7, **_AS_IT_IS)


def _facts(panel: Any, facts: Facts) -> None:
    axes = panel.subplots()
    axes.set_axis_off()
    lines = str(facts).splitlines()[2:]
    axes.text(0, 1, "\n".join(lines[: MOST_ROWS + 1]), va="top", fontsize=8, family="monospace", **_AS_IT_IS)


def _curves(panel: Any, curves: Curves) -> None:
    axes = panel.subplots()
    for place, (name, points) in enumerate(curves.lines):
        middle, low, high = _drawable(points).T
        colour, width = (_BLUE, 2.0) if place == 0 else (_ORANGE, 0.6)
        axes.fill_between(curves.at, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(curves.at, middle, color=colour, linewidth=width, label=printable(name))
    if curves.mark is not None:
        axes.axvline(curves.mark, color=_ORANGE, linewidth=1)
    if curves.log:
        axes.set_xscale("log")
    axes.set_ylim(bottom=curves.low)
    axes.set_xlabel(printable(curves.x), fontsize=8, **_AS_IT_IS)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _drawable(values: Any) -> Floats:
    """Numbers as matplotlib can place them: those that are not finite are left out, larger ones are at its limit."""
    array = np.array(values, dtype=np.float64)
    return np.where(np.isfinite(array), np.clip(array, -_LARGEST, _LARGEST), math.nan)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(printable(text), _LETTERS_OF_A_LINE))


#: How each form is drawn, and how high it is, in inches.
_DRAWN: Final[Mapping[str, tuple[Callable[[Any, Any], None], Callable[[Any], float]]]] = {
    Bars.form: (_bars, lambda bars: 2.1 * math.ceil(len(bars.groups) / _ACROSS)),
    Intervals.form: (_intervals, lambda intervals: 0.28 * len(intervals.rows) + 0.6),
    Grid.form: (_grid, lambda grid: 0.3 * len(grid.rows) + 1.4),
    Images.form: (_images, lambda images: 1.3 * math.ceil(len(images.names) / _IMAGES_ACROSS)),
    Facts.form: (_facts, lambda facts: 0.16 * min(len(facts.rows), MOST_ROWS) + 0.4),
    Curves.form: (_curves, lambda curves: 2.2),
}


def _write(picture: Any, path: str | os.PathLike[str]) -> None:
    """Write a picture; no word in it is a program of LaTeX, whatever the user's settings are."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in picture.findobj(Text):
        text.set_usetex(False)
    with rc_context({"text.usetex": False}):  # For the texts that are made as they are drawn.
        picture.savefig(check_path("path", path), dpi=110)


def _matplotlib(module: str) -> Any:
    """Import a module of matplotlib with the user's settings, and none of the current folder.

    Raises:
        DpvbError: if it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise DpvbError("Pictures need matplotlib: pip install '.[plot]' in dpvb's source folder.")
    return import_apart(module)
