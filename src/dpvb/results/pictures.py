"""Pictures of topics, weights, coefficients and privacy curves; they need matplotlib (the extra `plot`)."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DpvbError, check_path
from dpvb.guards.imports import import_apart
from dpvb.guards.strangers import printable
from dpvb.results import metrics
from dpvb.results.figures import Intervals

if TYPE_CHECKING:
    from dpvb.results.statement import PrivacyStatement

_PRIVATE, _REFERENCE = "#2f6f9f", "#d9822b"
_COLUMNS = 7
# A logarithmic axis shows ratios up to this one.
_LARGEST_LOG = 200.0
# Letters of a name beside a heat map; most rows of one whose cells have numbers.
_LONGEST_NAME, _NUMBERED = 24, 12
# Columns of a linear system that are drawn.
_MOST_COLUMNS = 12


def topics_picture(
    path: str | os.PathLike[str],
    components_kv: NDArray[Any],
    vocabulary: Sequence[str],
    statement: PrivacyStatement,
    *,
    reference_kv: NDArray[Any] | None = None,
    words: int = 8,
) -> None:
    """Draw the probabilities of each topic's top words, and epsilon as a function of delta.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        components_kv: topics as unnormalised weights, (K, V).
        vocabulary: V words.
        statement: of the fit.
        reference_kv: other topics, row k to be compared with row k, drawn as dots.
        words: bars of each topic.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    figure_class = _figure_class()
    probability_kv = components_kv / components_kv.sum(axis=1, keepdims=True)
    compared_kv = None if reference_kv is None else reference_kv / reference_kv.sum(axis=1, keepdims=True)
    rows = math.ceil((len(probability_kv) + 1) / _COLUMNS)
    figure = figure_class(figsize=(3.1 * _COLUMNS, 2.3 * rows + 0.6), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
    for k, top in enumerate(metrics.top_words(probability_kv, min(words, probability_kv.shape[1]))):
        axes, place = panels[k], np.arange(len(top))
        axes.barh(place, 100 * probability_kv[k, top], color=_PRIVATE, height=0.7)
        if compared_kv is not None:
            axes.plot(100 * compared_kv[k, top], place, "o", color=_REFERENCE, markersize=4)
        axes.set_yticks(place, [printable(vocabulary[v]) for v in top], fontsize=8, parse_math=False)
        axes.invert_yaxis()
        axes.tick_params(axis="x", labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_title(f"topic {k}", fontsize=9, loc="left")
    for axes in panels[len(probability_kv) : -1]:
        axes.set_visible(False)
    _draw_curve(panels[-1], statement)
    dots = "" if compared_kv is None else "; dots: the topics fitted without privacy"
    figure.suptitle(
        f"Probability of each topic's top words in %, fitted at epsilon = {statement.epsilon:.3g}, "
        f"delta = {statement.delta:g}{dots}",
        fontsize=11,
    )
    _write(figure, path)


def weights_picture(
    path: str | os.PathLike[str], components_kj: NDArray[Any], statement: PrivacyStatement, *, shape: tuple[int, int]
) -> None:
    """Draw the weights of each hidden unit of a belief network as an image, strongest unit first.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        components_kj: weights, (K, J).
        statement: of the fit.
        shape: height and width of an image, whose product is J.

    Raises:
        DpvbError: if matplotlib is not installed, or the shape does not fit.
    """
    figure_class = _figure_class()
    num_hidden, num_visible = components_kj.shape
    if shape[0] * shape[1] != num_visible:
        raise DpvbError(f"an image of {shape[0]} x {shape[1]} does not hold {num_visible} units.")
    order = np.argsort(-np.square(components_kj).sum(axis=1), kind="stable")
    columns = math.ceil(math.sqrt(num_hidden))
    rows = math.ceil(num_hidden / columns)
    figure = figure_class(figsize=(0.8 * columns, 0.8 * rows + 0.4), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    reach = float(np.quantile(np.abs(components_kj), 0.995)) or 1.0
    for axes in panels:
        axes.set_axis_off()
    for axes, k in zip(panels, order, strict=False):
        axes.imshow(components_kj[k].reshape(shape), cmap="RdBu_r", vmin=-reach, vmax=reach)
    figure.suptitle(
        f"Weights of {num_hidden} hidden units at epsilon = {statement.epsilon:.3g}, delta = {statement.delta:g}; "
        f"red: +{reach:.2g}",
        fontsize=9,
    )
    _write(figure, path)


def steps_picture(
    path: str | os.PathLike[str],
    names: Sequence[str],
    law_vv: NDArray[Any],
    duration_v: NDArray[Any],
    statement: PrivacyStatement,
) -> None:
    """Draw what follows what as a heat map, and how long each symbol or state lasts as bars beside it.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        names: of the V symbols or states.
        law_vv: probabilities of the next one, rows sum to 1, (V, V).
        duration_v: expected number of times in a row, (V,).
        statement: of the fit.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    shown, place = [printable(name)[:_LONGEST_NAME] for name in names], np.arange(len(names))
    side = max(3.0, min(0.45 * len(names), 40.0))
    figure = _figure_class()(figsize=(side + 4.0, side + 1.0), layout="constrained")
    axes, beside = figure.subplots(1, 2, width_ratios=(side, 1.5))
    image = axes.imshow(law_vv, cmap="Blues", vmin=0.0, vmax=1.0)
    figure.colorbar(image, ax=axes, label="probability", shrink=0.6)
    axes.set_xticks(place, shown, rotation=90, fontsize=7, parse_math=False, usetex=False)
    axes.set_yticks(place, shown, fontsize=7, parse_math=False, usetex=False)
    axes.set_xlabel("comes next", fontsize=9)
    axes.set_ylabel("after", fontsize=9)
    if len(names) <= _NUMBERED:
        for (a, b), value in np.ndenumerate(law_vv):
            axes.text(b, a, f"{value:.2f}", ha="center", va="center", fontsize=6, color="w" if value > 0.5 else "k")
    beside.barh(place, duration_v, color=_PRIVATE, height=0.7)
    beside.set_ylim(len(names) - 0.5, -0.5)
    beside.set_yticks([])
    beside.tick_params(labelsize=7)
    beside.set_xlabel("times in a row", fontsize=9)
    beside.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"What follows what, at epsilon = {statement.epsilon:.3g}, delta = {statement.delta:g}", fontsize=9)
    _write(figure, path)


def motion_picture(
    path: str | os.PathLike[str],
    names: Sequence[str],
    mean_td: NDArray[Any],
    low_td: NDArray[Any],
    high_td: NDArray[Any],
    some_ntd: NDArray[Any],
    statement: PrivacyStatement,
) -> None:
    """Draw how each column begins, a mean and a band, and some sequences of nobody as thin lines.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        names: of the D columns.
        mean_td, low_td, high_td: law of each point, (T, D).
        some_ntd: sequences of nobody, (n, T, D).
        statement: of the fit.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    shown = min(len(names), _MOST_COLUMNS)
    figure = _figure_class()(figsize=(7.0, 1.8 * shown + 0.6), layout="constrained")
    place_t = np.arange(1, len(mean_td) + 1)
    for d, axes in enumerate(figure.subplots(shown, 1, squeeze=False).ravel()):
        axes.fill_between(place_t, low_td[:, d], high_td[:, d], color=_PRIVATE, alpha=0.2, linewidth=0)
        axes.plot(place_t, some_ntd[:, :, d].T, color=_REFERENCE, linewidth=0.6)
        axes.plot(place_t, mean_td[:, d], color=_PRIVATE, linewidth=2)
        axes.set_ylabel(printable(names[d])[:_LONGEST_NAME], fontsize=8, parse_math=False, usetex=False)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("point of a sequence; thin lines are sequences of nobody", fontsize=8)
    figure.suptitle(
        f"How sequences begin, at epsilon = {statement.epsilon:.3g}, delta = {statement.delta:g}", fontsize=9
    )
    _write(figure, path)


def forest_picture(path: str | os.PathLike[str], intervals: Intervals) -> None:
    """Draw estimates with their intervals, see `draw_forest`.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        intervals: the estimates.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    figure = _figure_class()(figsize=_forest_size(len(intervals.rows)), layout="constrained")
    draw_forest(figure.subplots(), intervals)
    _write(figure, path)


def ladder_picture(
    path: str | os.PathLike[str], points: Sequence[tuple[float, float, float]], measure: str, epsilon: float
) -> None:
    """Draw what epsilon buys, and what a test with 1 % false alarms then finds at most.

    Args:
        path: where to write; the suffix tells the format (.png, .pdf, .svg).
        points: epsilon, what is expected, and the power of the test.
        measure: what is expected, in words.
        epsilon: the budget itself, which a line marks.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    figure = _figure_class()(figsize=(7.0, 3.0), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, place, title in zip(panels, (1, 2), (measure, "found by a test with 1 % false alarms"), strict=True):
        axes.plot(
            [point[0] for point in points], [point[place] for point in points], "o-", color=_PRIVATE, markersize=4
        )
        axes.axvline(epsilon, color=_REFERENCE, linewidth=1)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("epsilon", fontsize=8)
        axes.set_title("\n".join(textwrap.wrap(title, 44)), fontsize=8, loc="left")
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    _write(figure, path)


def new_axes(rows: int) -> Any:
    """Axes of a new figure of pyplot, which a notebook shows, for a forest of so many rows.

    Raises:
        DpvbError: if matplotlib is not installed.
    """
    _matplotlib()
    return import_apart("matplotlib.pyplot").subplots(figsize=_forest_size(rows), layout="constrained")[1]


def draw_scree(axes: Any, explained_k: Floats, low_k: Floats, high_k: Floats, rest: float) -> None:
    """Draw the variance along each component as a dot with its interval, and that in every other direction as a line.

    Args:
        axes: matplotlib's.
        explained_k, low_k, high_k: (K,).
        rest: variance in every other direction.
    """
    place_k = np.arange(1, len(explained_k) + 1)
    axes.vlines(place_k, low_k, high_k, color=_PRIVATE, linewidth=2)
    axes.plot(place_k, explained_k, "o", color=_PRIVATE, markersize=5)
    axes.axhline(rest, color=_REFERENCE, linewidth=1)
    axes.set_xlabel("component")
    axes.set_ylabel("variance")
    axes.spines[["top", "right"]].set_visible(False)


def _forest_size(rows: int) -> tuple[float, float]:
    """In inches; a higher picture has more dots than matplotlib draws."""
    return 7.0, min(0.28 * rows + 1.4, 500.0)


def draw_forest(axes: Any, intervals: Intervals) -> None:
    """Draw an estimate and its interval on a line each, the first one on top.

    Rows with a remark are faint, and may run out of the picture: the others choose its width. A line marks the
    reference.

    Args:
        axes: matplotlib's.
        intervals: the estimates; their title is that of the axis.
    """
    rows, reference, is_log = intervals.rows, intervals.reference, intervals.log
    place = np.arange(len(rows))
    middle, low, high = (np.array([row[end] for row in rows]) for end in (1, 2, 3))
    clear = np.array([not remark for *_, remark in rows], dtype=np.bool_)
    if is_log:
        from matplotlib.ticker import LogFormatter

        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(LogFormatter())
        axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.4)))
        low = np.maximum(low, math.exp(-_LARGEST_LOG))
    if reference is not None:
        axes.axvline(reference, color="gray", linewidth=0.8, linestyle="--")
    shown = clear if clear.any() else ~clear
    ends = np.concatenate([[] if reference is None else [reference], low[shown], high[shown]])
    ends = np.log(ends) if is_log else ends
    margin = 0.05 * (ends.max() - ends.min()) or 1.0
    edges = np.array([ends.min() - margin, ends.max() + margin])
    axes.set_xlim(*(np.exp(np.clip(edges, -_LARGEST_LOG, _LARGEST_LOG)) if is_log else edges))
    for faint, chosen in ((True, ~clear), (False, clear)):
        look = {"color": _PRIVATE, "alpha": 0.35 if faint else 1.0}
        axes.hlines(place[chosen], low[chosen], high[chosen], linewidth=1.5, **look)
        axes.plot(middle[chosen], place[chosen], "o", markersize=4, **look)
    labels = [printable(name) + (f" ({remark})" if remark else "") for name, *_, remark in rows]
    axes.set_yticks(place, labels, fontsize=8, parse_math=False, usetex=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.set_xlabel(intervals.title, fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _write(figure: Any, path: str | os.PathLike[str]) -> None:
    """Write a picture; no word in it is a program of LaTeX, whatever the user's settings are."""
    from matplotlib import rc_context
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_usetex(False)
    with rc_context({"text.usetex": False}):  # For the texts that are made as they are drawn.
        figure.savefig(check_path("path", path), dpi=110)


def _draw_curve(axes: Any, statement: PrivacyStatement) -> None:
    points = sorted({(d, e) for d, e in [*statement.curve, (statement.delta, statement.epsilon)] if e < math.inf})
    if points:
        axes.plot([d for d, _ in points], [e for _, e in points], color=_PRIVATE)
        axes.plot([statement.delta], [statement.epsilon], "o", color=_PRIVATE)
        axes.set_ylim(bottom=0)
    axes.set_xscale("log")
    axes.set_xlabel("delta", fontsize=8)
    axes.set_title("epsilon at delta: all hold at once", fontsize=9, loc="left")
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def _figure_class() -> Any:
    _matplotlib()
    from matplotlib.figure import Figure

    return Figure


def _matplotlib() -> None:
    """Import matplotlib with the user's settings, and none of the current folder.

    Raises:
        DpvbError: if it is not installed.
    """
    if find_spec("matplotlib") is None:
        raise DpvbError("Pictures need matplotlib: pip install '.[plot]' in dpvb's source folder.")
    import_apart("matplotlib")
