"""Figures: the same rows in every form, and pictures that show words as they are."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from planted import edit, kills
from read_html import Page

from dpvb.guards.untrusted import printable
from dpvb.results import plots
from dpvb.results.figures import Bars, Curves, Drawing, Facts, Grid, Images, Intervals

WORDS = ["$\\frac$", "$x^", "$$", "\\input{/etc/passwd}", "100%", "<script>", "a\x1b]0;b\u202e", "_^{}&#~"]


FIGURES: dict[str, Callable[[str, float], Drawing]] = {
    "bars": lambda word, value: Bars(title=word, groups=((word, word, ((word, abs(value)),)),)),
    "intervals": lambda word, value: Intervals(
        title=word, rows=((word, value, value - 1, value + 1, ""),), reference=0.0
    ),
    "ratios": lambda word, value: Intervals(
        title=word, rows=((word, abs(value), 0.0, 2.0, word),), reference=1.0, log=True
    ),
    "own scales": lambda word, value: Intervals(
        title=word, rows=((word, value, value - 1, value + 1, ""),), scales=((-1.0, 1.0),)
    ),
    "grid": lambda word, value: Grid(title=word, rows=(word,), columns=(word, "c"), values=((value, 1.0),)),
    "images": lambda word, value: Images(title=word, names=(word,), images_khw=np.full((1, 2, 2), value)),
    "facts": lambda word, value: Facts(title=word, head=(word, "b"), rows=((word, "c"),)),
    "curves": lambda word, value: Curves(
        title=word, x=word, at=(1.0, 2.0), lines=((word, ((value, value, value), (1.0, 0.0, 2.0))),), mark=1.0, log=True
    ),
}


@pytest.mark.guarantees("terminals")
@kills("leaks", "words of a picture that are mathematics")
@edit("results/plots.py", '= {"parse_math": False, "usetex": False}', "= {}")
@pytest.mark.parametrize(
    ("form", "usetex"),
    [
        pytest.param(form, usetex, marks=[pytest.mark.slow] * (usetex and form != "grid"))
        for form in FIGURES
        for usetex in (False, True)
    ],
)
def test_words_in_a_picture_are_words(tmp_path: Path, form: str, usetex: bool) -> None:
    """No mathematics and no LaTeX, whatever the words are and whatever the user's own pictures look like."""
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"text.usetex": usetex, "svg.fonttype": "none"}):
        plots.save(tmp_path / "picture.svg", [FIGURES[form](word, 0.5) for word in WORDS], WORDS[1])
    svg = ElementTree.parse(tmp_path / "picture.svg").iter("{http://www.w3.org/2000/svg}text")
    drawn = "\n".join("".join(text.itertext()) for text in svg)
    assert all(printable(word) in drawn for word in WORDS)


@pytest.mark.parametrize("form", FIGURES)
def test_odd_numbers_and_empty_figures_are_drawn(tmp_path: Path, form: str) -> None:
    pytest.importorskip("matplotlib")
    plots.save(tmp_path / "odd.png", [FIGURES[form]("w", value) for value in (0.0, 1e308, -1e308, np.inf, np.nan)], "")
    assert (tmp_path / "odd.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("form", FIGURES)
def test_a_figure_has_the_same_rows_in_every_form(form: str) -> None:
    for word in ("w", "<script>", "a\x1b]0;b\u202e"):
        figure = FIGURES[form](word, 0.5)
        rows = list(csv.DictReader(io.StringIO(figure.to_csv(), newline="")))
        assert [[*row.values()] for row in rows] == [[*map(str, row.values())] for row in figure.to_dicts()]
        assert [*figure.drawings()] == [figure]
        for shown in (str(figure), *Page(figure._repr_html_()).texts):
            assert all(one.isprintable() or one == "\n" for one in shown)
        assert printable(word) in str(figure)
        assert json.loads(json.dumps(figure.to_dict(), allow_nan=False))["form"] == figure.form
