"""HTML shows every text as it is, whoever wrote it, and says nothing else to a browser."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from read_html import Page

import dpvb
from dpvb.guards import notebook_html
from dpvb.guards.untrusted import printable

HOSTILE = ["<script>alert(1)</script>", "\" onload='x'", "&lt;", "-->", "</td></table>", "a\u202eb", "\x1b[2J", "é", ""]
texts = st.one_of(st.sampled_from(HOSTILE), st.text())


@kills("names", "a name runs in the notebook that shows it")
@edit("guards/notebook_html.py", "return escape(printable(text))", "return text")
@given(st.lists(st.tuples(texts, st.lists(texts, min_size=1, max_size=3)), max_size=4), texts)
def test_a_table_is_well_formed_and_its_cells_are_the_texts(rows, head) -> None:
    page = Page(notebook_html.table(rows, head=[head, head], numbers=[1], faint=[0]))
    wanted = [[printable(head)] * 2]
    wanted += [[printable(name), "\n".join(map(printable, below))] for name, below in rows]
    assert page.cells == wanted


@given(texts)
def test_lines_frames_and_folds_hold_the_text_alone(text: str) -> None:
    for html in (notebook_html.title(text), notebook_html.boxed(text), notebook_html.folded(text, "")):
        assert "".join(Page(html).texts) == printable(text)


@pytest.mark.parametrize("value", [np.arange(10**6), list(range(10**6)), "x" * 10**6, {n: n for n in range(10**4)}])
def test_a_long_value_is_short_and_in_one_line(value: object) -> None:
    assert len(notebook_html.abbreviated(value)) < 200
    assert "\n" not in notebook_html.abbreviated(value)


def test_a_short_value_is_written_out() -> None:
    assert notebook_html.abbreviated({"a": [1, 2.5, None, (True,)]}) == "{'a': [1, 2.5, None, (True,)]}"


COMMANDS = "\x1b]0;x\x07\u202e<b>\r"
BUDGET: Any = {"epsilon": 1.0, "delta": 1e-6, "max_length": 6}


@kills("names", "a symbol that a terminal obeys in the summary of a chain")
@edit("estimators/markov_chain.py", "{printable(str(self.symbols_[a]))[:15]:<16}", "{self.symbols_[a]:<16}")
@pytest.mark.parametrize(
    "model",
    [
        dpvb.MarkovChain([COMMANDS, "b"], **BUDGET),
        dpvb.HiddenMarkovModel(2, symbols=[COMMANDS, "b"], n_init=1, **BUDGET),
        dpvb.LinearDynamicalSystem(1, columns=[COMMANDS], low=-1, high=1, window=3, **BUDGET),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_summary_holds_nothing_that_a_terminal_obeys(model: Any) -> None:
    """A model file of somebody else has symbols and columns of whatever name."""
    found = model.dry_run(n_units=60)
    assert all(line.isprintable() for line in found.summary().split("\n"))
    assert "<b>" not in found.report()._repr_html_()
