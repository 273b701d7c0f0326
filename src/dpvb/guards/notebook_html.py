"""Untrusted text in notebooks, as HTML that runs nothing and asks nothing of a network.

Colours are the page's own, so that light and dark pages show the same.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Sequence
from html import escape

from dpvb.guards.untrusted import printable

_CELL = "vertical-align:top;text-align:"
_FAINT = "opacity:.6;"
# A page shows so many rows of a table.
_MOST_ROWS = 300
_SHORT = reprlib.Repr()
_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxset = _SHORT.maxdict = 8
_SHORT.maxstring = _SHORT.maxother = 120


def escaped(text: str) -> str:
    """Return a text as HTML that shows it in one line and says nothing else to a browser."""
    return escape(printable(text))


def abbreviated(value: object) -> str:
    """A public value in Python's words, in one line and short."""
    return " ".join(_SHORT.repr(value).split())


def title(text: str) -> str:
    """A line that stands out."""
    return f"<p><strong>{escaped(text)}</strong></p>"


def paragraph(lines: Iterable[str]) -> str:
    """Lines below each other."""
    return f"<p>{'<br>'.join(map(escaped, lines))}</p>"


def boxed(text: str) -> str:
    """A warning in a frame."""
    return f'<p style="border:1px solid currentColor;padding:.4em"><strong>{escaped(text)}</strong></p>'


def whole(text: str, inner: str) -> str:
    """A file of its own with a title: one that runs nothing and loads nothing."""
    policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    head = f'<meta charset="utf-8">{policy}<title>{escaped(text)}</title>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{inner}</body></html>\n'


def folded(text: str, inner: str) -> str:
    """HTML that is out of sight until its title is clicked."""
    return f"<details><summary>{escaped(text)}</summary>{inner}</details>"


def table(
    rows: Sequence[Sequence[str | Sequence[str]]],
    *,
    head: Sequence[str] = (),
    numbers: Collection[int] = (),
    faint: Collection[int] = (),
) -> str:
    """A table whose rows begin with their names; of a long one the first rows, and how many more there are.

    Args:
        rows: texts, or lists of texts below each other.
        head: titles of the columns.
        numbers: places of the columns that are aligned to the right.
        faint: places of the rows that are less than the others.
    """

    def line(texts: Sequence[str | Sequence[str]], names: int, style: str) -> str:
        cells = []
        for place, text in enumerate(texts):
            kind, side = "th" if place < names else "td", "right" if place in numbers else "left"
            inner = "<br>".join(map(escaped, [text] if isinstance(text, str) else text))
            cells.append(f'<{kind} style="{style}{_CELL}{side}">{inner}</{kind}>')
        return f"<tr>{''.join(cells)}</tr>"

    top = line(head, len(head), "border-bottom:1px solid currentColor;") if head else ""
    body = (line(row, 1, _FAINT if place in faint else "") for place, row in enumerate(rows[:_MOST_ROWS]))
    more = line([f"and {len(rows) - _MOST_ROWS:,} more rows"], 1, "") if len(rows) > _MOST_ROWS else ""
    return f"<table>{top}{''.join(body)}{more}</table>"
