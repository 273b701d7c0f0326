"""The report as a browser shows it: in four looks, to whoever cannot see it, and with words that want to be obeyed."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target
from dpvb.results.figures import MOST_ROWS, Bars, Facts, Grid, Images, Intervals
from dpvb.results.page import Page
from tests_browser import looks, made
from tests_browser.conftest import LOOKS

#: Boxes whose text is cut or that lie beyond the page; boxes that scroll are asked for their own room alone.
_BEYOND = """() => {
  const wide = document.documentElement.clientWidth, found = [];
  for (const one of document.querySelectorAll('h1, h2, h3, p, dt, dd, summary, figure, svg, .bar, .wide')) {
    if (!one.checkVisibility({contentVisibilityAuto: true}) || one.closest('.wide') && !one.matches('.wide')) continue;
    const box = one.getBoundingClientRect();
    if (box.left < -0.5 || box.right > wide + 0.5) found.push(one.tagName + ': ' + one.textContent.trim().slice(0, 40));
  }
  return found;
}"""
#: Pairs of texts, one over the other.
_COVERED = """() => {
  const boxes = [...document.querySelectorAll('h1, h2, h3, dt, dd, th, td, .bar > span:first-child, svg text')]
    .filter(one => one.checkVisibility({contentVisibilityAuto: true}) && one.textContent.trim())
    .map(one => {
      const range = document.createRange(); range.selectNodeContents(one);
      const cut = getComputedStyle(one).overflow === 'hidden' || one instanceof SVGElement;
      return [one, cut ? one.getBoundingClientRect() : range.getBoundingClientRect()];
    });
  const found = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
    const [one, a] = boxes[i], [other, b] = boxes[j];
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 2 && down > 4 && !one.contains(other))
      found.push(one.textContent.trim() + ' | ' + other.textContent.trim());
  }
  return found;
}"""
_FOCUSED = """() => {
  const one = document.activeElement;
  return [one.tagName, Math.round(one.getBoundingClientRect().top + scrollY)];
}"""


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", made.MADE)
def test_a_page_looks_as_the_image_that_was_reviewed(kind: str, look: str, show: Any) -> None:
    page = show(made.page(kind).html(), look).page
    assert page.evaluate(_BEYOND) == []
    assert page.evaluate(_COVERED) == []
    assert page.evaluate("document.documentElement.scrollWidth") == LOOKS[look][0]
    with Image.open(looks.FOLDER / f"{kind}-{look}.png") as kept:
        cells, height = looks.apart(looks.taken(page), kept, look)
    assert cells < looks.MOST_APART
    assert height < looks.MOST_TALLER


def test_an_image_is_near_itself_alone() -> None:
    """Else the comparison could not fail: each image is far from those of other kinds and other looks."""
    names = [(kind, look) for kind in made.MADE for look in LOOKS]
    images = {name: Image.open(looks.FOLDER / f"{name[0]}-{name[1]}.png") for name in names}
    for one in names:
        for other in names:
            cells, height = looks.apart(images[one], images[other], one[1])
            assert (cells < looks.MOST_APART and height < looks.MOST_TALLER) == (one == other), (one, other)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("kind", made.MADE)
def test_axe_finds_nothing(kind: str, look: str, show: Any) -> None:
    shown = show(made.page(kind).html(), look)
    shown.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    found = Axe().run(shown.page)
    assert len(found.response["passes"]) > 20
    assert [rule["id"] for rule in found.response["violations"]] == []


def test_axe_would_find_something(show: Any) -> None:
    harmed = made.page("topics").html().replace("--faint: #5b6577", "--faint: #c9ced6").replace(' lang="en"', "")
    found = {rule["id"] for rule in Axe().run(show(harmed).page).response["violations"]}
    assert {"color-contrast", "html-has-lang"} <= found


@pytest.mark.parametrize("kind", made.MADE)
def test_the_keyboard_goes_down_the_page_and_opens_what_is_folded(kind: str, show: Any) -> None:
    page = show(made.page(kind).html(), "phone").page
    found = []
    while True:
        page.keyboard.press("Tab")
        tag, top = page.evaluate(_FOCUSED)
        if tag == "BODY":
            break
        found.append((tag, top))
        outlined = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outlined == "solid", tag
    assert [top for _, top in found] == sorted(top for _, top in found)
    assert len(found) == page.locator(".wide, summary").count()
    assert found[-1][0] == "SUMMARY"
    page.locator("summary").last.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").last.get_attribute("open") is not None


def test_print_shows_what_is_folded_on_screen(show: Any) -> None:
    text = made.page("regression").html()
    inside = "details:not([open]) dd"
    assert not show(text).page.locator(inside).first.is_visible()
    page = show(text, "print").page
    assert page.locator(inside).first.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF-")


def _of_everything(text: str) -> Page:
    """A page with a text in each place where there may be one."""
    figures = (
        Bars(title=text, note=text, groups=((text, text, ((text, 1.0), ("b", 0.5))),)),
        Intervals(title=text, note=text, rows=((text, 1.0, 0.0, 2.0, text),), reference=0.0),
        Grid(title=text, note=text, rows=(text,), columns=(text, "c"), values=((1.0, -2.0),)),
        Facts(title=text, note=text, head=(text, text), rows=((text, text),)),
        Images(title=text, note=text, names=(text,), images_khw=np.ones((1, 2, 2))),
    )
    page = made.page("regression")
    return Page(text, figures, page.statement, (((text, text),), ((text, text),)), None)


def _quiet(shown: Any) -> None:
    """Nothing ran, nothing was asked for, and the page is whole."""
    assert shown.said == []
    assert len(shown.requests) == 1
    assert shown.page.title() != "taken"
    assert shown.page.locator("body").is_visible()
    assert shown.page.locator("script, iframe, object, embed, link, form, a").count() == 0


@pytest.mark.parametrize("text", made.HOSTILE, ids=range(len(made.HOSTILE)))
def test_a_hostile_text_is_shown_and_not_obeyed(text: str, show: Any) -> None:
    shown = show(_of_everything(text).html(), "phone")
    _quiet(shown)
    assert shown.page.evaluate("document.documentElement.scrollWidth") == LOOKS["phone"][0]
    seen = "".join(one if one.isprintable() else "?" for one in text)
    assert shown.page.locator("h1").inner_text() == seen
    assert shown.page.evaluate(_BEYOND) == []
    assert [rule["id"] for rule in Axe().run(shown.page).response["violations"]] == []


def test_models_of_hostile_words_and_names_have_quiet_pages(show: Any) -> None:
    words = [word for word in made.HOSTILE if word.isprintable()]
    topics = dpvb.LDA(2, vocabulary=words, epsilon=1.0, delta=1e-6)
    topics.fit(np.random.default_rng(0).integers(0, 3, (200, len(words))))
    name, other = made.HOSTILE[1], made.HOSTILE[3]
    schema = Schema(
        (Numeric(name, low=0, high=1), Categorical(other, tuple(words))), target=Target("y", classes=(0, 1))
    )
    rows = {name: np.linspace(0, 1, 300), other: np.resize(np.array(words), 300), "y": np.resize([0, 1], 300)}
    people = dpvb.LogisticRegression(epsilon=1.0, delta=1e-6).fit(Table(rows, schema))
    for model, seen in (
        (topics, words[:4]),
        (people, words[1:4]),
    ):  # The first category is what others are compared with.
        shown = show(model.report().html(), "phone")
        _quiet(shown)
        assert all(word in shown.page.locator("main").inner_text() for word in seen)


def test_a_notebook_shows_the_page_and_lets_it_do_nothing(show: Any) -> None:
    harmed = _of_everything(made.HOSTILE[0])
    shown = show(f"<!DOCTYPE html><html lang=en><title>notebook</title><body>{harmed._repr_html_()}</body></html>")
    frame = shown.page.frames[-1]
    assert frame.locator("h1").inner_text() == made.HOSTILE[0]
    assert shown.page.title() == "notebook"
    assert len({url for url in shown.requests if not url.startswith("about:")}) == 1


def test_the_largest_pages_are_small_and_made_at_once() -> None:
    """200 topics, 200 images, a grid of 200 by 40 and 200 coefficients: more is cut. Pages take a tenth of this."""
    rng = np.random.default_rng(0)
    names = tuple(f"name {n}" for n in range(MOST_ROWS + 1))
    figures = (
        Bars(title="t", groups=tuple((name, "", tuple((f"word{n}", 1.0) for n in range(20))) for name in names)),
        Intervals(title="i", rows=tuple((name, 0.0, -1.0, 1.0, "") for name in names)),
        Grid(title="g", rows=names, columns=names, values=tuple(map(tuple, rng.normal(size=(201, 201))))),
    )
    weights = Images(title="m", names=tuple(names[:100]), images_khw=rng.normal(size=(100, 28, 28)))
    page = made.page("topics")
    start = time.process_time()
    text = Page("LDA", (*figures, weights), page.statement, page.parameters, None).html()
    assert time.process_time() - start < 2.0
    assert len(text.encode()) < 1_500_000
