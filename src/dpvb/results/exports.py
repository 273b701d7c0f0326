"""A table of coefficients in other programs' forms: LaTeX, CSV, a data frame, draws for ArviZ.

Numbers are written in full where a program reads them, and with four digits where people do.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, DpvbError, check_target, reason_of
from dpvb.guards.imports import import_apart
from dpvb.guards.strangers import printable
from dpvb.version import __version__

if TYPE_CHECKING:
    from dpvb.results.statement import PrivacyStatement

# "[" and "*" behind a line's end are that line's options, and "--" is a dash.
_LATEX = {
    **{one: f"\\{one}" for one in "{}$&#_%"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "{''}"},
    **{"[": "{[}", "]": "{]}", "*": "{*}"},
}
_NUMBER = re.compile(r"(-?[\d.]+)(?:e([+-]\d+))?")


def latex(titles: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int], notes: Iterable[str]) -> str:
    """A tabular of the package booktabs, with notes below it.

    Args:
        titles: of the columns.
        rows: texts; those that are numbers are set as such.
        numbers: places of the columns that are aligned to the right.
        notes: lines below the table.
    """
    sides = "".join("r" if place in numbers else "l" for place in range(len(titles)))
    lines = [f"\\begin{{tabular}}{{{sides}}}", r"\toprule", _line(titles), r"\midrule", *map(_line, rows)]
    below = [f"\\multicolumn{{{len(titles)}}}{{l}}{{\\footnotesize {_escaped(note)}}} \\\\" for note in notes]
    return "\n".join([*lines, r"\bottomrule", *below, r"\end{tabular}", ""])


def _line(texts: Sequence[str]) -> str:
    return f"{' & '.join(map(_cell, texts))} \\\\"


def _cell(text: str) -> str:
    found = _NUMBER.fullmatch(text)
    if found is None:
        return _escaped(text)
    mantissa, power = found.groups()
    return f"${mantissa}$" if power is None else f"${mantissa} \\times 10^{{{int(power)}}}$"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(one, one) for one in printable(text)).replace("--", "-{}-").replace("--", "-{}-")


def csv_text(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows below their columns' names as comma-separated values, by RFC 4180."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)  # A text may hold line ends.
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def write(path: str | os.PathLike[str], text: str, *, overwrite: bool) -> None:
    """Write a text file as a whole.

    Raises:
        ParameterError: for no path, or if a file is there that may not be replaced.
        DataFormatError: if the file cannot be written.
    """
    place = check_target("path", path, overwrite=overwrite)
    try:
        place.write_text(text, encoding="utf-8", newline="")
    except (OSError, UnicodeError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "it holds text that is not Unicode"
        raise DataFormatError(f"{str(place)!r} cannot be written: {reason}.") from error


def frame(names: Sequence[str], rows: Sequence[Sequence[object]], facts: Mapping[str, object]) -> Any:
    """A pandas data frame whose index is the first column, and whose attrs are facts about all rows.

    Raises:
        DpvbError: if pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise DpvbError("to_frame needs pandas: pip install pandas. Without it, to_csv() gives the same rows as text.")
    import pandas

    made = pandas.DataFrame.from_records(rows, columns=list(names)).set_index(names[0])
    made.attrs.update(facts)
    return made


def for_arviz(names: Sequence[str], draws_cdr: Floats, statement: PrivacyStatement) -> Any:
    """Draws as ArviZ reads them: a tree whose group "posterior" holds `coef` by chain, draw and coefficient.

    Args:
        names: of the coefficients, r.
        draws_cdr: chains, draws of each, coefficients.
        statement: what the fit promises; it goes along as an attribute.

    Raises:
        DpvbError: if arviz_base is not installed.
    """
    if find_spec("arviz_base") is None:
        raise DpvbError("to_arviz needs arviz-base: pip install '.[arviz]' in dpvb's source folder.")
    arviz_base = import_apart("arviz_base")
    facts = {"inference_library": "dpvb", "inference_library_version": __version__, "privacy": str(statement)}
    return arviz_base.from_dict(
        {"posterior": {"coef": draws_cdr}},
        coords={"coefficient": list(names)},
        dims={"coef": ["coefficient"]},
        attrs={"posterior": facts},
    )
