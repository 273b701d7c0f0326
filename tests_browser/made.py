"""Reports of four kinds, the same at each call: what a fit without noise learned, and the promise of a private one."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import dpvb
from dpvb.data import Categorical, Numeric, Schema, Table, Target
from dpvb.results.page import Page
from dpvb.sample import _FILLERS, _SUBJECTS

#: Ends of words, names of columns and of states that a page must show and must not obey.
HOSTILE = (
    "<script>document.title='taken'</script>",
    "\"><img src=x onerror=document.title='taken'>",
    "</style><style>body{display:none}",
    '=HYPERLINK("http://example.org/x")',
    "\\href{javascript:alert(1)}{\\input{/etc/passwd}}",
    "$\\rule{99cm}{99cm}$",
    "\x1b]0;taken\x07\x1b[2J",
    "\u202etxt.exe",
    "@import url(http://example.org/x.css)",
    "{{ 7 * 7 }}",
    "w" * 500,
)
_ROWS = 2_000
_BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def _texts(rng: np.random.Generator) -> list[str]:
    return [
        " ".join(rng.choice(_SUBJECTS[subject], 25)) + " " + " ".join(rng.choice(_FILLERS, 25))
        for subject in rng.integers(0, len(_SUBJECTS), _ROWS)
    ]


def _people(rng: np.random.Generator, *, labelled: bool) -> Table:
    age, income = rng.uniform(18, 90, _ROWS), rng.normal(40_000, 9_000, _ROWS)
    work = rng.choice(["private", "state", "self-employed"], _ROWS)
    ill = rng.random(_ROWS) < 1 / (1 + np.exp(3 - age / 25 - (work == "state")))
    columns = (
        Numeric("age", low=18, high=90),
        Numeric("income", low=0, high=100_000),
        Categorical("work", ("private", "state", "self-employed")),
    )
    target = Target("ill", classes=("no", "yes")) if labelled else None
    given: dict[str, Any] = {"age": age, "income": income, "work": work}
    return Table(given | ({"ill": np.where(ill, "yes", "no")} if labelled else {}), Schema(columns, target=target))


def _days(rng: np.random.Generator) -> list[list[str]]:
    """Sequences in which a state follows itself three times in four."""
    states, days = ("rest", "walk", "run", "cycle"), []
    for _ in range(_ROWS):
        places = [int(rng.integers(4))]
        while len(places) < 8:
            places.append(places[-1] if rng.random() < 0.75 else int(rng.integers(4)))
        days.append([states[place] for place in places])
    return days


@cache
def page(kind: str) -> Page:
    """The report of a kind, one of `MADE`."""
    rng = np.random.default_rng(7)
    model, records = _MADE[kind](rng)
    learned = model(epsilon=math.inf, delta=1e-6).fit(records)
    promised = model(**_BUDGET).fit(records).report()
    fixed = {"run_id": "0" * 32, "plan_digest": "0" * 64, "counts": None, "remarks": ()}
    said = "Privacy: NO PRIVACY, epsilon is infinite."
    figures = tuple(
        replace(figure, note=figure.note.replace(said, f"Privacy: {promised.statement.brief}."))
        for figure in learned.report().figures
    )
    return replace(promised, figures=figures, statement=replace(promised.statement, **fixed))


_MADE: dict[str, Any] = {
    "topics": lambda rng: (
        lambda **given: dpvb.LDA(4, vocabulary=[w for words in _SUBJECTS for w in words], random_state=0, **given),
        _texts(rng),
    ),
    "regression": lambda rng: (dpvb.LogisticRegression, _people(rng, labelled=True)),
    "mixture": lambda rng: (lambda **given: dpvb.Mixture(3, random_state=0, **given), _people(rng, labelled=False)),
    "chain": lambda rng: (
        lambda **given: dpvb.MarkovChain(["rest", "walk", "run", "cycle"], **given),
        _days(rng),
    ),
}
MADE = tuple(_MADE)
