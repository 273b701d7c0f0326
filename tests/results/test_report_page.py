"""The page about a model: what it shows of each kind, and that nothing in it is obeyed by a browser."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CliRunner

import dpvb
from dpvb.audit import kinds
from dpvb.audit.kinds import NAMES
from dpvb.cli import app
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.results.figures import MOST_ROWS, Bars, Curves, Drawing, Facts, Grid, Images, Intervals
from dpvb.results.interval_table import IntervalTable, Line
from dpvb.results.page import Page

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7 * 7 }} {% raw %}",
    '=HYPERLINK("http://x")',
    "\\input{/etc/passwd}",
    "\x1b[31mred\x1b[0m",
    "a\u202eb\nc",
    "&lt;b&gt;",
    "</style><script>",
    "javascript:alert(1)",
    "x" * 5_000,
]


class Read(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.given: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.given += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.given += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)


def checked(page: str) -> Read:
    """A page that is well formed, runs nothing and asks nothing of a network."""
    read = Read(page)
    assert read.open == []
    assert not {"script", "iframe", "object", "embed", "link", "base", "form", "a"} & {*read.tags}
    assert not [name for name, _ in read.given if name.startswith("on")]
    assert all(value.startswith("data:image/png;base64,") for name, value in read.given if name in ("src", "href"))
    ids = [value for name, value in read.given if name == "id"]
    assert len(ids) == len(set(ids))
    assert len(page.encode()) < 1_500_000
    assert "url(" not in page
    assert "@import" not in page
    assert all(text.isprintable() or text.isspace() for text in "".join(read.texts).splitlines())
    return read


def fitted() -> dpvb.LogisticRegression:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (300, 2))
    return dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, low=0, high=1).fit(x, rng.integers(0, 2, 300))


def page_of(*figures: Drawing, **changed: Any) -> Page:
    facts = {"kind": "Model", "parameters": ((), ()), "audit": None, "statement": fitted().privacy_}
    return Page(figures=figures, **(facts | changed))


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_has_a_page_and_a_card(name: str, tmp_path: Path) -> None:
    case = kinds.shipped(name)[0]
    assert case.fit is not None
    model = case.fit(case.records(np.random.default_rng(0), 60))
    page = model.report()
    read = checked(page.html())
    text = " ".join(" ".join(read.texts).split())
    for part in ("Summary", "Results", "Privacy cost", "Parameters", "Audit"):
        assert part in text
    assert model.privacy_.brief in text
    assert page.figures
    assert "This model has no plots" not in text
    card = json.loads(json.dumps(page.card(), allow_nan=False))
    assert card["privacy"]["run_id"] == model.privacy_.run_id
    assert [figure["title"] for figure in card["learned"]] == [figure.title for figure in page.figures]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_is_obeyed(text: str) -> None:
    page = page_of(
        Bars(title=text, note=text, groups=((text, text, ((text, 1.0), ("b", 0.5))),)),
        Intervals(title=text, note=text, rows=((text, 1.0, 0.0, 2.0, text),)),
        Grid(title=text, note=text, rows=(text,), columns=(text, "c"), values=((1.0, -2.0),)),
        Facts(title=text, note=text, head=(text, text), rows=((text, text),)),
        Images(title=text, note=text, names=(text,), images_khw=np.ones((1, 2, 2))),
        Curves(title=text, note=text, x=text, at=(1.0, 2.0), lines=((text, ((1.0, 0.0, 2.0),) * 2),)),
        kind=text,
        parameters=(((text, text),), ((text, text),)),
    )
    read = checked(page.html())
    shown = "".join(one if one.isprintable() else "?" for one in text)
    assert sum(one.strip() == shown.strip() for one in read.texts) >= 15
    assert read.tags == checked(page_of_harmless(page)).tags


def page_of_harmless(page: Page) -> str:
    """The same page with a word where the text was."""
    word = "w"
    return page_of(
        Bars(title=word, note=word, groups=((word, word, ((word, 1.0), ("b", 0.5))),)),
        Intervals(title=word, note=word, rows=((word, 1.0, 0.0, 2.0, word),)),
        Grid(title=word, note=word, rows=(word,), columns=(word, "c"), values=((1.0, -2.0),)),
        Facts(title=word, note=word, head=(word, word), rows=((word, word),)),
        Images(title=word, note=word, names=(word,), images_khw=np.ones((1, 2, 2))),
        Curves(title=word, note=word, x=word, at=(1.0, 2.0), lines=((word, ((1.0, 0.0, 2.0),) * 2),)),
        kind=word,
        parameters=(((word, word),), ((word, word),)),
        statement=page.statement,
    ).html()


def test_odd_numbers_are_shown_and_stay_in_the_picture() -> None:
    odd = (math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0)
    rows = tuple((str(a), a, b, c, "") for a in odd for b in odd for c in odd)
    for figure in (
        Intervals(title="t", rows=rows),
        Intervals(title="t", rows=rows, reference=1.0, log=True),
        Intervals(title="t", rows=()),
        Bars(title="t", groups=()),
        Bars(title="t", groups=(("a", "", (("b", 0.0),)),)),
        Grid(title="t", rows=("a",), columns=("b",), values=((math.nan,),)),
        Grid(title="t", rows=(), columns=(), values=()),
    ):
        checked(page_of(figure).html())
        json.dumps(page_of(figure).card(), allow_nan=False)
        if isinstance(figure, Intervals):
            assert all(0 <= share <= 1 for place in figure.places for share in place)


def test_places_are_shares_of_the_scale_and_remarks_do_not_stretch_it() -> None:
    rows = (("a", 1.0, 0.0, 2.0, ""), ("b", 3.0, 2.0, 4.0, ""), ("c", 0.0, -100.0, 100.0, "prior"))
    figure = Intervals(title="t", rows=rows, reference=0.0)
    assert figure.places == [(0.25, 0.0, 0.5), (0.75, 0.5, 1.0), (0.0, 0.0, 1.0)]
    assert figure.lines == [0.0] * 3
    own = Intervals(title="t", rows=rows, reference=0.0, scales=((0.0, 4.0), (-2.0, 6.0), (-1.0, 1.0)))
    assert own.places == [(0.25, 0.0, 0.5), (0.625, 0.5, 0.75), (0.5, 0.0, 1.0)]
    assert own.lines == [0.0, 0.25, 0.5]
    ratios = Intervals(title="t", rows=(("a", 1.0, 0.1, 10.0, ""),), reference=1.0, log=True)
    assert ratios.places == [pytest.approx((0.5, 0.0, 1.0))]


def test_a_coefficient_is_drawn_per_range_and_a_group_by_the_scale_of_its_row() -> None:
    """On one scale, the interval of an income would hide those of probabilities, and so would its coefficient."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 10, (20_000, 2))
    model = dpvb.LogisticRegression(epsilon=1.0, delta=1e-5, low=0, high=10)
    (figure,) = model.fit(x, x[:, 0] > rng.uniform(0, 10, 20_000)).report().figures
    assert isinstance(figure, Intervals)
    assert figure.lines == [0.5] * len(figure.rows)
    whole = model.coefficients(per="range")
    most = max(max(abs(row.low), abs(row.high)) for row in whole)
    assert not any(row.note for row in whole)
    assert [place[0] for place in figure.places] == pytest.approx([0.5 + row.mean / most / 2 for row in whole])
    lines = (
        *(
            Line(0, "share", 0.6, 0.1, 0.5, 0.7),
            Line(0, "age", 40.0, 1.0, 30.0, 50.0),
            Line(0, "p", 0.2, 0.1, 0.0, 0.4),
        ),
        *(
            Line(1, "share", 0.4, 0.1, 0.3, 0.5),
            Line(1, "age", 60.0, 1.0, 50.0, 70.0),
            Line(1, "p", 0.8, 0.1, 0.6, 1.0),
        ),
    )
    first, second = IntervalTable(lines, "head").drawings()
    assert first.places == [(0.25, 0.0, 0.5), pytest.approx((0.2, 0.0, 0.4))]
    assert second.places == [(0.75, 0.5, 1.0), pytest.approx((0.8, 0.6, 1.0))]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (43_742.4, "43742"),
        (9_999_999.0, "9999999"),
        (1e7, "1e+07"),
        (9999.4, "9999"),
        (-12345.6, "-12346"),
        (0.12345, "0.1235"),
    ],
)
def test_a_number_of_a_usual_size_has_no_exponent(value: float, shown: str) -> None:
    texts = checked(page_of(Grid(title="t", rows=("a",), columns=("b",), values=((value,),))).html()).texts
    assert shown in texts


def test_long_tables_are_cut_and_say_so() -> None:
    figure = Intervals(title="t", rows=tuple((f"c{n}", 0.0, -1.0, 1.0, "") for n in range(MOST_ROWS + 7)))
    page = page_of(figure)
    assert "and 7 more rows" in page.html()
    assert f"c{MOST_ROWS}" not in checked(page.html()).texts
    assert len(page.card()["learned"][0]["rows"]) == MOST_ROWS + 7


def test_the_scale_of_a_figure_is_found_once() -> None:
    """Found for each cell, it would take the square of their number."""
    asked = 0

    class Counted(Grid):
        @property
        def most(self) -> float:
            nonlocal asked
            asked += 1
            return super().most

    page_of(Counted(title="t", rows=("a", "b"), columns=("c", "d"), values=((1.0, 2.0), (3.0, 4.0)))).html()
    assert asked == 1


def test_the_command_writes_page_and_card(tmp_path: Path) -> None:
    model, run = fitted(), CliRunner().invoke
    model.save(tmp_path / "m.dpvb")
    done = run(app, ["report", str(tmp_path / "m.dpvb"), "--out", str(tmp_path / "m.html"), "--json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m.html").read_text() == model.report().html()
    assert json.loads(done.stdout) == json.loads(json.dumps(model.report().card()))
    again = run(app, ["report", str(tmp_path / "m.dpvb"), "--out", str(tmp_path / "m.html")])
    assert again.exit_code == 2
    assert "already there" in again.output
    assert run(app, ["report", str(tmp_path / "m.dpvb")]).exit_code == 2
    with pytest.raises(ParameterError, match="already there"):
        model.report().save(tmp_path / "m.html")
    with pytest.raises(DataFormatError, match="cannot be written"):
        model.report().save(tmp_path / "no" / "m.html")
    model.report().save(tmp_path / "m.html", overwrite=True)


def test_a_notebook_shows_the_page_in_a_frame_that_may_do_nothing() -> None:
    frame = Read(fitted().report()._repr_html_())
    assert frame.tags == ["iframe"]
    assert dict(frame.given)["sandbox"] == ""
    checked(dict(frame.given)["srcdoc"])


def test_a_file_that_promises_too_little_has_no_page(tmp_path: Path) -> None:
    model = fitted()
    model.privacy_ = dpvb.load(saved(model, tmp_path)).privacy_
    object.__setattr__(model.privacy_, "epsilon", 0.01)
    with pytest.raises(Exception, match="Do not trust this file"):
        model.report()
    with pytest.raises(ModelFileError):
        dpvb.load(tmp_path)


def saved(model: Any, folder: Path) -> Path:
    model.save(folder / "m.dpvb")
    return folder / "m.dpvb"
