"""A table of coefficients for other programs: LaTeX that shows names as they are, CSV and frames with the same rows."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpvb.guards.strangers import printable
from dpvb.results import exports

HOSTILE = [
    "a\rb\n",
    "\\input{/etc/passwd}",
    "100%",
    "a&b",
    "$x^2$",
    "a_b",
    "#1",
    "~",
    "[4in] x",
    "*",
    "--",
    "?`",
    '"',
    "\x1b",
    "",
]
MEANT = {
    **{r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textasciigrave{}": "`"},
    **{r"\textless{}": "<", r"\textgreater{}": ">", r"\textbar{}": "|", "{''}": '"', "{[}": "[", "{]}": "]"},
    **{"{*}": "*", "-{}-": "--", r"\{": "{", r"\}": "}", r"\$": "$", r"\&": "&", r"\#": "#", r"\_": "_", r"\%": "%"},
}
texts = st.one_of(st.sampled_from(HOSTILE), st.text())


def read(latex: str) -> str:
    """What LaTeX shows of a text in which no character commands."""
    parts = re.split("(" + "|".join(map(re.escape, MEANT)) + ")", latex)
    assert not re.search(r"[\\{}$&#^_~%<>|\"*\[\]`]|--", "".join(parts[::2]))
    return "".join(MEANT.get(part, part) for part in parts)


@given(texts)
def test_latex_shows_a_text_as_it_is(text: str) -> None:
    assert read(exports._escaped(text)) == printable(text)


@pytest.mark.parametrize(
    ("text", "set_as"),
    [("-0.25", "$-0.25$"), ("1.5e-07", r"$1.5 \times 10^{-7}$"), ("2e+09", r"$2 \times 10^{9}$"), ("inf", "inf")],
)
def test_numbers_are_set_as_numbers(text: str, set_as: str) -> None:
    assert exports._cell(text) == set_as


@given(st.lists(st.tuples(texts, texts), max_size=4), texts)
def test_a_tabular_has_its_rows_and_its_notes(rows, note) -> None:
    made = exports.latex(["", "mean"], rows, numbers=[1], notes=[note])
    lines = made.split("\n")
    assert lines[0] == r"\begin{tabular}{lr}"
    assert lines[-2:] == [r"\end{tabular}", ""]
    assert [lines[place] for place in (1, 3, -4)] == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert len(lines) == 8 + len(rows)
    assert all(line.endswith(r" \\") and line.count(" & ") == 1 for line in lines[4:-4])


@given(st.lists(st.tuples(texts, st.floats())))
def test_csv_is_read_as_it_was_written(rows) -> None:
    text = exports.csv_text(["name", "mean"], rows)
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found[0] == ["name", "mean"]
    assert [(name, repr(float(mean))) for name, mean in found[1:]] == [(name, repr(mean)) for name, mean in rows]
