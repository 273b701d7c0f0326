"""Pictures of topics and of privacy curves; they need matplotlib (pip install dpvb[plot])."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpvb import metrics
from dpvb.errors import DpvbError

if TYPE_CHECKING:
    from dpvb.report import PrivacyStatement

_PRIVATE, _REFERENCE = "#2f6f9f", "#d9822b"
_COLUMNS = 7


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
        axes.set_yticks(place, [vocabulary[v] for v in top], fontsize=8)
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
    figure.savefig(Path(path), dpi=110)


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
    if find_spec("matplotlib") is None:
        raise DpvbError("Pictures need matplotlib: pip install 'dpvb[plot]'.")
    from matplotlib.figure import Figure

    return Figure
