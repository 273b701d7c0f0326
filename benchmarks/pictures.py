"""Pictures of RESULTS.md for the pages: `python -m benchmarks.pictures` draws them anew into docs/pictures.

Each picture names the numbers that it was drawn from by their digest, so that a test finds one that is older.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
#: In this order, of any picture; those of this package first.
COLOURS = ("#0b6e99", "#c1666b", "#d4a017", "#7a9e7e", "#8d80ad", "#555555")

Lines = dict[str, list[float]]


def table(section: str, row: str = "") -> list[list[str]]:
    """Cells of the rows of the first table after a heading, of those whose line holds a text."""
    rest = RESULTS[RESULTS.index(f"{section}\n") :]
    found = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert found is not None
    lines = found[0].splitlines()[2:]
    return [[cell.replace("*", "").strip() for cell in line.strip("|").split("|")] for line in lines if row in line]


def number(text: str) -> float:
    return float(text.split("±")[0].replace(",", ""))


def logistic(data: str, measure: int, methods: dict[str, str]) -> Lines:
    """A measure of held-out rows by method, at all ε."""
    rows = {row[0]: row[1:] for row in table(f"### {data}")}
    found = {}
    for title, start in methods.items():
        [cells] = [cells for name, cells in rows.items() if name.startswith(start)]
        found[title] = [float(cell.split("/")[measure]) for cell in cells if cell]
    return found


METHODS = {
    "dpvb": "first order (",
    "Opacus, DP-SGD": "Opacus",
    "d3p, DPVI": "d3p",
    "diffprivlib, best of 4 C": "diffprivlib, best",
    "no privacy": "no privacy",
}


def adult() -> Lines:
    return logistic("adult: 39,074 rows and 9,768 held out, 129 columns", 1, METHODS)


def stroke() -> Lines:
    return logistic("stroke: 4,088 rows and 1,022 held out, 22 columns", 1, METHODS)


def hours() -> Lines:
    rows = {row[1]: [number(cell) for cell in row[2:]] for row in table("## Linear regression", "| adult_hours |")}
    names = {
        "dpvb": "first order",
        "DP-GD, best of 6 in hindsight": "DP-GD, best of 6 in hindsight",
        "AdaSSP, exact accounting": "AdaSSP, exact accounting",
        "no privacy": "no privacy",
    }
    return {title: rows[name] for title, name in names.items()}


def bars_of_synthetic() -> dict[str, float]:
    start = RESULTS.index("| rows of adult | AUC")
    lines = RESULTS[start : RESULTS.index("\n\n", start)].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: float(auc) for name, auc, _ in cells}


def bars_of_bayes() -> dict[str, float]:
    rows = table("## Naive Bayes")
    ours = next(row for row in rows if row[0] == "adult")
    theirs = next(row for row in rows if row[1] == "diffprivlib GaussianNB")  # Of adult, which is the first table.
    return {
        "dpvb, ε = 1": float(ours[3]),
        "diffprivlib GaussianNB, ε = 1": float(theirs[3]),
        "no privacy": float(ours[6]),
    }


def topics() -> dict[str, float]:
    rows = {(row[0], row[1]): number(row[3]) for row in table("## Topic models on Wikipedia")}
    figure_2 = table("### Topics: Figure 2, perplexity of the fifteen cells", "| 20,000 | 1.24 |")
    return {
        "no privacy": rows["default, no noise", "inf"],
        "dpvb, ε = 0.5": rows["default", "0.5"],
        "dpvb, ε = 1": rows["default", "1.0"],
        "dpvb, ε = 2.44": rows["default", "2.44"],
        "published, ε = 2.44": number(figure_2[0][4]),
    }


def draw_lines(lines: Any, axes: Any, label: str) -> None:
    for (title, values), colour in zip(lines.items(), COLOURS, strict=False):
        if len(values) == 1 or title == "no privacy":
            axes.axhline(values[0], color=COLOURS[-1], linestyle=":", label=title)
        else:
            epsilon = [0.2, 0.5, 1, 2, 4][-len(values) :]
            axes.plot(epsilon, values, "o-", color=colour, label=title)
    axes.set_xscale("log")
    axes.set_xticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
    axes.minorticks_off()
    axes.set_xlabel("ε")
    axes.set_ylabel(label)
    axes.legend(frameon=False)


def draw_bars(bars: Any, axes: Any, label: str) -> None:
    colours = [COLOURS[0] if "dpvb" in name or "synthetic" in name else COLOURS[5] for name in bars]
    axes.barh(list(bars), list(bars.values()), color=colours)
    for place, value in enumerate(bars.values()):
        axes.text(value, place, f" {value:,.4g}", va="center")
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.set_xlim(right=max(bars.values()) * 1.15)


#: Each picture: its numbers, how they are drawn, what is on the axis.
PICTURES: dict[str, tuple[Callable[[], Any], Callable[[Any, Any, str], None], str]] = {
    "logistic-adult": (adult, draw_lines, "log-likelihood of a held-out row"),
    "logistic-stroke": (stroke, draw_lines, "log-likelihood of a held-out row"),
    "linear-hours": (hours, draw_lines, "R² of held-out rows"),
    "synthetic-adult": (bars_of_synthetic, draw_bars, "AUC on real rows of boosting fitted to these"),
    "naive-bayes-adult": (bars_of_bayes, draw_bars, "AUC of held-out rows"),
    "topics-wikipedia": (topics, draw_bars, "perplexity of held-out articles; less is better"),
}


def digest(name: str) -> str:
    """Of the numbers that a picture shows."""
    return hashlib.sha256(repr(PICTURES[name][0]()).encode()).hexdigest()[:16]


def main() -> None:
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": "dpvb", "svg.fonttype": "none", "font.size": 10})
    import matplotlib.pyplot as plt

    for name, (numbers, draw, label) in PICTURES.items():
        figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
        axes.spines[["top", "right"]].set_visible(False)
        draw(numbers(), axes, label)
        figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None, "Identifier": digest(name)}, facecolor="white")
        plt.close(figure)


if __name__ == "__main__":
    main()
