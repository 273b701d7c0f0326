"""Synthetic rows beside what a mixture released of the private ones: column by column, and two columns at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from dpvb.data.tables.mixed import Layout, MixedRows
from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import categorical
from dpvb.models.mixtures.components import MixedColumns
from dpvb.models.mixtures.pairs import Pairs
from dpvb.models.mixtures.spread import Marginals
from dpvb.results.fidelity import FidelityTable, Marginal, Pair

# Mean of |N(0, 1)|.
_MEAN_SIZE = math.sqrt(2 / math.pi)


def compared(
    layout: Layout, columns: MixedColumns, labels: dict[str, list[Any]], of: Marginals, rows: MixedRows
) -> FidelityTable:
    """The table of synthetic rows; in units of the columns, or of the transformed ones.

    Args:
        layout, columns, labels: what is public of the columns.
        of: what was released.
        rows: synthetic, at least one.
    """
    lines = [*_numbers(layout, of, rows), *_categories(labels, columns, of, rows)]
    pairs: list[Pair] = []
    if len(of.cell_c):
        lines += _bins(layout, Pairs(columns), of, rows)
        pairs = [*_pairs(layout, Pairs(columns), of, rows)]
    number = len(rows.sound_n)
    return FidelityTable(
        tuple(lines),
        tuple(pairs),
        f"{number:,} synthetic rows beside what was released; chance: the privacy noise, and the drawing of the rows",
    )


def _numbers(layout: Layout, of: Marginals, rows: MixedRows) -> Iterator[Marginal]:
    """Means of numbers and counts."""
    middle_d, half_d = layout.scale
    for place, column in enumerate(layout.numbers):
        x_n = rows.x_nd[~np.isnan(rows.x_nd[:, place]), place]
        mean, half = (float(x_n.mean()) if len(x_n) else 0.0), float(half_d[place])
        std = math.hypot(of.mean_std_d[place], _error(x_n)) * half
        middle = float(middle_d[place])
        yield Marginal(column.name, middle + half * float(of.mean_d[place]), std, middle + half * mean)
    for place, column in enumerate(layout.counts):
        count_n = rows.count_np[:, place]
        std = math.hypot(of.rate_std_p[place], _error(count_n))
        yield Marginal(column.name, float(of.rate_p[place]), std, float(count_n.mean()))


def _categories(
    labels: dict[str, list[Any]], columns: MixedColumns, of: Marginals, rows: MixedRows
) -> Iterator[Marginal]:
    """Shares of all categories."""
    found_v = categorical.one_hot(rows.code_nj, columns.sizes).mean(axis=0)
    names = [f"{name}={label}" for name, own in labels.items() for label in own]
    yield from _shares(names, of.share_v, of.share_std_v, found_v, len(rows.sound_n))


def _bins(layout: Layout, pairs: Pairs, of: Marginals, rows: MixedRows) -> Iterator[Marginal]:
    """Shares of the bins of numbers and counts, from the tables of two columns."""
    code_nj, (middle_d, half_d) = pairs.codes(rows), layout.scale
    for place, column in enumerate((*layout.numbers, *layout.counts)):
        size = pairs.sizes[place]
        cell_v, factor = pairs.margin(of.cell_c, place)
        std_v = np.full(size, factor * of.cell_std_1[0] / of.number_1[0])
        if place < len(layout.numbers):
            bins = size - (column.name in layout.gaps)
            edges = (middle_d[place] + half_d[place] * np.linspace(-1, 1, bins + 1)).tolist()
            ends = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges)] + ["missing"] * (size - bins)
        else:
            most = layout.max_counts[place - len(layout.numbers)]
            starts = [math.ceil(step * (most + 1) / size) for step in range(size + 1)]
            ends = [f"{low} to {high - 1}" for low, high in pairwise(starts)]
        names = [f"{column.name}: {end}" for end in ends]
        found_v = np.bincount(code_nj[:, place], minlength=size) / len(code_nj)
        yield from _shares(names, cell_v / of.number_1, std_v, found_v, len(code_nj))


def _pairs(layout: Layout, pairs: Pairs, of: Marginals, rows: MixedRows) -> Iterator[Pair]:
    """Distances of the tables of two columns, the largest beyond chance first."""
    names = [column.name for column in (*layout.numbers, *layout.counts, *layout.choices)]
    number, share_c = len(rows.sound_n), pairs.counted(rows) / len(rows.sound_n)
    released_c, std = of.cell_c / of.number_1, of.cell_std_1[0] / of.number_1[0]
    found: list[Pair] = []
    for (i, j), own in zip(pairs.places, pairs.tables, strict=True):
        std_c = np.sqrt(std**2 + share_c[own] * (1 - share_c[own]) / number)
        distance = 0.5 * float(np.abs(released_c[own] - share_c[own]).sum())
        found.append(Pair(f"{names[i]} × {names[j]}", distance, 0.5 * _MEAN_SIZE * float(std_c.sum())))
    yield from sorted(found, key=lambda pair: pair.by_chance - pair.distance)


def _shares(names: list[str], released_v: Floats, std_v: Floats, found_v: Floats, number: int) -> Iterator[Marginal]:
    drawn_v = found_v * (1 - found_v) / number
    for name, released, std, found, drawn in zip(names, released_v, std_v, found_v, drawn_v, strict=True):
        yield Marginal(name, float(released), math.sqrt(std**2 + drawn), float(found))


def _error(value_n: Floats) -> float:
    """Standard error of a mean of drawn values."""
    return float(value_n.std()) / math.sqrt(len(value_n)) if len(value_n) else 0.0
