"""The tables of released blocks on the theory pages name the blocks of the models, and their bounds."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpvb.models.belief_network import sbn
from dpvb.models.factors.three_releases import ThreeReleases
from dpvb.models.mixtures.components import MixedColumns
from dpvb.models.mixtures.mixture import MixtureModel
from dpvb.models.mixtures.naive_bayes import NaiveBayesModel
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.linear import Linear
from dpvb.models.regression.scaling import Declared
from dpvb.models.sequences.hidden_cells import HiddenCells
from dpvb.models.sequences.hidden_markov import HiddenMarkov
from dpvb.models.sequences.linear_dynamical import LinearDynamical
from dpvb.models.sequences.markov_chain import MarkovChainModel
from dpvb.models.topics.lda import LDAModel

THEORY = Path(__file__).parents[2] / "docs" / "theory"
NUMERIC = Declared(np.zeros(3), np.array([0.0, 1.0, 1.0]), np.ones(3))
MIXED = MixedColumns(numbers=3, max_counts=(9.0,), sizes=(3, 2, 2))
NEGATIVE = Likelihood("negative_binomial", max_count=5.0, dispersion=None)
MODELS: dict[str, list[Any]] = {
    "topics": [LDAModel(2, 5, compares=True)],
    "regressions": [FirstOrder(3, 0.5, declared=NUMERIC, robust=True), FirstOrder(3, likelihood=NEGATIVE)],
    "linear": [Linear(3, 0.5, declared=NUMERIC, robust=True)],
    "mixtures": [MixtureModel(3, MIXED, check=0.1)],
    "naive-bayes": [NaiveBayesModel(2, MIXED, num_bins=0), NaiveBayesModel(2, MixedColumns(), num_words=5)],
    "factors": [ThreeReleases(3)],
    "markov-chains": [MarkovChainModel(4), MarkovChainModel(4, order=2)],
    "hidden-markov": [HiddenMarkov(4, 2, n_steps=3), HiddenMarkov(50, 2), HiddenCells(2, 2)],
    "linear-dynamical": [LinearDynamical(2, 1)],
    "belief-networks": [sbn.SBN(2, 4)],
}


def named(page: str) -> set[str]:
    """The blocks in the tables of a page, with the names of the code."""
    section = (THEORY / f"{page}.md").read_text().split("\n## Released blocks\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| block")]
    cells = [row[2:].split(" |")[0].split(" (")[0] for row in rows]
    return {name.replace(" ", "_") for cell in cells for name in cell.split(", ")}


@pytest.mark.parametrize("page", MODELS)
def test_a_page_names_the_blocks_that_its_models_release(page: str) -> None:
    released = {name for model in MODELS[page] for name in model.blocks} - {"dispersion_at_mean"}
    assert named(page) == {re.sub(r"_(?:first|second|third)$", "", name) for name in released}


def test_bounds_of_the_pages_are_those_of_the_models() -> None:
    topics, network = LDAModel(2, 5, compares=True).blocks, sbn.SBN(2, 4).blocks
    assert [topics["words"].bound, topics["counts"].bound] == [4.0, 0.067 * math.sqrt(500.0)]
    assert topics["gain"].bound == math.hypot(1 / 2, 1 / 4)
    last = Linear(3, 0.5).blocks
    assert [last[name].weight for name in ("residual", "excess", "square")] == [0.3, 0.3, 0.6]
    assert (network["gradient"].bound, network["bias"].weight) == (0.0575 * math.sqrt(8.0), 0.16)
    system = LinearDynamical(2, 1).blocks
    assert system["points"].bound == 1.0 + 0.6**2
    assert system["windows"].bound == 0.75 * (1.0 + 0.3**2)
    assert (system["windows"].weight, system["starts"].weight) == (0.84, 0.55)
    steps = HiddenMarkov(4, 2, n_steps=3).blocks
    assert [steps[name].bound for name in ("initial", "transitions", "emissions")] == [1.0, 1.5, 1.7]
    cells = HiddenCells(2, 2, clip_norm=2.0).blocks
    assert [cells[name].weight for name in ("starts", "pairs", "moments")] == [0.3, 0.8, 0.5]
    assert cells["moments"].bound == 2.0
    factors = ThreeReleases(3).blocks
    assert [factors[name].weight for name in ("moments", "squares")] == [0.6, 0.8]
