"""The report of a model: one HTML page without network access, and the same facts as JSON.

Everything on the page is a released or a public value. All text in it is escaped: words, names of
columns, names of data sets. The page runs no script.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from dpvb.guards.untrusted import printable
from dpvb.guards.version import __version__
from dpvb.results.audit_report import Report
from dpvb.results.figures import MOST_COLUMNS, MOST_ROWS, Curves, Drawing, number, write
from dpvb.results.statement import PrivacyStatement

if TYPE_CHECKING:
    from jinja2 import Template

#: Version of the JSON form.
FORMAT = 1
_MOST_EPSILON = 100.0


@dataclass(frozen=True)
class Page:
    """Report of a fitted model; all of it is public.

    Attributes:
        kind: Class of the model.
        figures: Results.
        statement: Privacy statement.
        parameters: Parameters that differ from their defaults, and the others, as Python code.
        audit: Report of an audit. None: there is none.

    Examples:
        >>> import dpvb
        >>> from dpvb.data import Categorical, Schema, Table
        >>> schema = Schema([Categorical("sex", ("f", "m")), Categorical("smokes", ("no", "yes"))])
        >>> rows = Table({"sex": ["f", "m"] * 500, "smokes": ["no", "yes"] * 500}, schema)
        >>> page = dpvb.NaiveBayes(response="sex", epsilon=1.0, delta=1e-6).fit(rows).report()
        >>> page.kind, "<table" in page.html()
        ('NaiveBayes', True)
    """

    kind: str
    figures: tuple[Drawing, ...]
    statement: PrivacyStatement
    parameters: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
    audit: Report | None

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the page as one HTML file.

        Args:
            path: File to write; its folder must exist.
            overwrite: Whether to replace an existing file. Default: False.

        Raises:
            ParameterError: If the file exists and `overwrite` is False.
            DataFormatError: If the file cannot be written.
        """
        write(path, self.html(), overwrite=overwrite)

    def _repr_html_(self) -> str:
        """Return the page for a notebook, in a frame."""
        frame = 'title="report" sandbox="" style="width:100%;height:40rem;border:0"'
        return f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'

    def html(self) -> str:
        """Return the page as HTML."""
        return _template().render(
            page=self,
            version=__version__,
            short=self.statement.in_short_lines(),
            warnings=list(self.statement.warnings()),
            sections=list(self.statement.sections()),
            curve=_curve(self.statement),
            most_rows=MOST_ROWS,
            most_columns=MOST_COLUMNS,
        )

    def card(self) -> dict[str, Any]:
        """Return the report as plain JSON values, which `docs/report.md` describes."""
        return {
            "format": FORMAT,
            "version": __version__,
            "kind": self.kind,
            "brief": dict(self.statement.in_short_lines()),
            "warnings": list(self.statement.warnings()),
            "learned": [figure.to_dict() for figure in self.figures],
            "parameters": {name: value for names in self.parameters for name, value in names},
            "privacy": self.statement.to_dict(),
            "audit": None if self.audit is None else self.audit.to_dict(),
        }


def _curve(statement: PrivacyStatement) -> Curves | None:
    """Return epsilon against delta; None without a guarantee."""
    points = sorted({(delta, epsilon) for delta, epsilon in statement.points if 0 < epsilon < _MOST_EPSILON})
    if len(points) < 2:
        return None
    return Curves(
        title="epsilon against delta; all of these guarantees hold",
        note="Epsilon at other values of delta; all of these guarantees hold. The larger dot is the budget of the fit.",
        x="delta",
        at=tuple(delta for delta, _ in points),
        lines=(("epsilon", tuple((epsilon, epsilon, epsilon) for _, epsilon in points)),),
        mark=statement.delta,
        log=True,
        low=0.0,
    )


def _shown(value: object) -> object:
    """Return a text on one line, without control characters."""
    return printable(value) if type(value) is str else value


@cache
def _template() -> Template:
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    engine = Environment(
        loader=PackageLoader("dpvb.results", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    engine.filters["number"] = number
    return engine.get_template("page.html.jinja")
