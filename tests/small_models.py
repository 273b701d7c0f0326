"""Two small models and the package's own, with their data, in one shape: what the tests of the core run over.

The cases of the package's models are the audit's; here are the toys, and what the tests expect of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.audit import cases, kinds
from dpvb.audit.cases import HOSTILE_ROWS, D, table_records
from dpvb.audit.cases import Matrix as Table
from dpvb.audit.integers import difference, in_steps, relative_norm, squared
from dpvb.audit.kinds import HOSTILE_DOCUMENTS, TERMS, bags
from dpvb.audit.kinds import NAMES as AUDITED
from dpvb.core import loop
from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.design import Design
from dpvb.estimators import private
from dpvb.guards.arrays import Floats
from dpvb.models.topics.lda import LDAModel
from dpvb.papers.belief_network import VIPSNetwork
from dpvb.papers.dp_sgd import DPSGDLogistic
from dpvb.papers.lda import VIPSTopics
from dpvb.papers.logistic_regression import VIPSRegression
from dpvb.papers.partitioned import LocalFreeEnergy
from dpvb.papers.private_em import PrivateEM

__all__ = ["CASES", "NAMES", "TOYS_FIRST", "Case", "Curvature", "D", "Location", "Table", "one_of_each"]
__all__ += ["difference", "in_steps", "relative_norm", "squared", "table"]


@dataclass(frozen=True)
class Location:
    """Two dense real blocks: a robust location (depends on q) and second moments (a score, not averaged)."""

    scale: float = 1.0

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            "pull": Block((D,), self.scale),
            "square": Block((2, D), 0.5 * self.scale, average=False),
        }

    def init(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(D)

    def e_step(self, q: Floats, batch: Floats, blocks: Mapping[str, Block]) -> Contributions:
        every = {"pull": Rows(batch - q), "square": Rows(np.stack([batch * 0.3, batch * batch], axis=1))}
        return {name: every[name] for name in blocks}

    def m_step(self, s: Estimate, q: Floats) -> Floats:
        return q + 0.1 * s.noisy("pull") / (1.0 + np.abs(s.noisy("square")[0]))


@dataclass(frozen=True)
class Curvature:
    """A Gram block of outer products and a real one, as in logistic regression with Pólya-Gamma weights."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"score": Block((D,), 0.5), "curvature": Block((D, D), 0.25, "gram")}

    def init(self, rng: np.random.Generator) -> Floats:
        return rng.standard_normal(D)

    def e_step(self, q: Floats, batch: Floats, blocks: Mapping[str, Block]) -> Contributions:
        # Row sums, not a matrix product: BLAS may round a row's product differently in another batch.
        c_n = np.maximum(np.abs((batch * q).sum(axis=1)), 1e-6)
        xi_n = np.tanh(c_n / 2) / (2 * c_n)
        every = {"score": Rows(0.5 * batch), "curvature": Gram(batch, xi_n)}
        return {name: every[name] for name in blocks}

    def m_step(self, s: Estimate, q: Floats) -> Floats:
        precision = np.eye(D) + s.project("curvature")
        return np.asarray(np.linalg.solve(precision, s.noisy("score")))


@dataclass(frozen=True)
class Case(cases.Case):
    """A case, and what the tests expect of it.

    Attributes:
        pairs: how many neighbours the longest tests draw.
        reach: share of the joint bound that a hostile record can reach: below 1 where the blocks' largest norms
            exclude each other.
    """

    pairs: int = 40
    reach: float = 1 - 1e-4


def table(matrix: Floats, group: Any = None) -> Table:
    return Table(np.asarray(matrix, dtype=np.float64), None if group is None else np.asarray(group))


def by_phase(name: str, case: cases.Case, reach: Mapping[str, float]) -> list[Case]:
    """One case for each of some phases."""
    kept = {part.phase: {f.name: getattr(part, f.name) for f in fields(cases.Case)} for part in case.parts()}
    return [Case(**kept[phase] | {"name": f"{name}_{phase}"}, pairs=8, reach=least) for phase, least in reach.items()]


def of_paper(name: str, model: Any, case: cases.Case) -> cases.Case:
    """The case of a paper's model, fitted by `dpvb.PrivateModel` to the rows of another case."""
    estimator, source = dpvb.PrivateModel(model, epsilon=1.0, delta=1e-6), case.source
    columns = {"columns": lambda matrix: {"X": source(matrix)}, "responses": case.responses}
    return cases.of_estimator(name, estimator, source, case.records, case.hostile, **columns)


def of_paper_topics() -> cases.Case:
    """The papers' topics."""
    model = VIPSTopics(3, TERMS, document_length=50.0, local_iterations=5, n_steps=2)
    rows = cases.Case("documents", PLAIN_TOPICS, bags, kinds.documents, HOSTILE_DOCUMENTS)
    return of_paper("VIPSTopics", model, rows)


def of_paper_regression() -> cases.Case:
    """The papers' regression, to successes of trials, with q from a short noisy run."""
    case = kinds.regression("BinomialRegression", "first_order", fit_intercept=False)
    model = VIPSRegression(D, n_rows=200.0, kind="binomial", max_trials=4.0, n_steps=2)

    def begin(seed: int) -> Any:
        plan, rng = phased(model.blocks, FullBatch(), [0.3, 0.3]), np.random.default_rng(seed)
        wall: Wall[Any] = Wall(case.source(case.records(rng, 200)), plan, noise=InsecureNoise(seed))
        return loop.fit(model, wall, plan, rho=model.schedule.rho, rng=rng)[0]

    return replace(of_paper("VIPSRegression", model, case), begin=begin)


def of_paper_gradients() -> cases.Case:
    """Gradient descent of the thesis draft; the last column is the label."""
    model = DPSGDLogistic(D - 1, 200.0, (1.0, 1.0), (0.1, 0.2), (1.0, 2.0))
    estimator = dpvb.PrivateModel(model, max_row_norm=1.0, epsilon=1.0, delta=1e-6)
    return cases.of_estimator("DPSGDLogistic", estimator, unit_rows, table_records, HOSTILE_ROWS)


def of_paper_parts() -> cases.Case:
    """A visit to a client of the thesis draft."""
    case = kinds.regression("LogisticRegression", "first_order", fit_intercept=False)
    prior = tuple(tuple(row) for row in np.eye(D).tolist())
    model = LocalFreeEnergy((0.0,) * D, prior, ((0.3,) * D, prior), n_steps=2)
    return of_paper("LocalFreeEnergy", model, case)


def of_paper_network() -> cases.Case:
    """The papers' belief network."""
    model = VIPSNetwork(3, kinds.VISIBLE, n_rows=200.0, init_std=1.0, n_steps=2)
    return of_paper("VIPSNetwork", model, kinds.network())


def of_paper_factors() -> cases.Case:
    """The papers' factor analysis, fitted by `dpvb.PrivateModel` to rows of norm 1."""
    model = dpvb.PrivateModel(PrivateEM(D, 2, n_steps=2), max_row_norm=1.0, epsilon=1.0, delta=1e-6)
    return cases.of_estimator("PrivateEM", model, unit_rows, table_records, HOSTILE_ROWS)


def unit_rows(matrix: Floats, group: Any = None) -> Any:
    """Rows as `dpvb.PrivateModel` gives them to a model."""
    return private.ModelRows(Design(matrix, max_row_norm=1.0, group=group))


#: Two ranges that hold part of the values, and an indicator.
SOME_NUMBERS: Any = {"numeric": [0, 1], "max_abs_value": 0.3}
PLAIN: Any = {"length_rule": "resample", "count_power": 1.0, "release_word_totals": False, "word_weight_power": 0.0}
PLAIN_TOPICS = LDAModel(3, TERMS, clip_scale=0.1, max_iter=5, **PLAIN)
CASES = [
    Case("location", Location(), table, table_records, HOSTILE_ROWS),
    Case("curvature", Curvature(), table, table_records, HOSTILE_ROWS),
    Case("curvature_joint", Curvature(), table, table_records, HOSTILE_ROWS, clipping="joint"),
    Case("lda", LDAModel(3, TERMS, clip_scale=0.1, max_iter=20), bags, kinds.documents, HOSTILE_DOCUMENTS),
    *by_phase(
        "lda",
        cases.Case("lda", LDAModel(3, TERMS, compares=True), bags, kinds.documents, HOSTILE_DOCUMENTS),
        {"midway": 0.2},
    ),
    Case("lda_plain", PLAIN_TOPICS, bags, kinds.documents, HOSTILE_DOCUMENTS),
    *by_phase(
        "first_order",
        kinds.regression("LogisticRegression", "first_order"),
        {"first": 0.9999, "step": 0.98, "last": 0.89},
    ),
    *by_phase(
        "counts",
        kinds.regression("NegativeBinomialRegression", "first_order", fit_intercept=False),
        {"step": 0.9},
    ),
    *by_phase(
        "poisson",
        kinds.regression("PoissonRegression", "first_order, diagonal"),
        {"step": 0.9},
    ),
    *by_phase(
        "beside",
        kinds.regression("PoissonRegression", "first_order, offset and weights"),
        {"first": 0.9, "step": 0.9, "last": 0.6},
    ),
    *by_phase(
        "dispersion",
        kinds.regression("NegativeBinomialRegression", "first_order, learned dispersion"),
        {"step": 0.28, "last": 0.1},
    ),
    *by_phase(
        "spreads",
        kinds.regression("LogisticRegression", "first_order", **SOME_NUMBERS),
        {"first": 0.4, "second": 0.4, "third": 0.9, "step": 0.4, "last": 0.2},
    ),
    *by_phase("diagonal", kinds.regression("LogisticRegression", "first_order, diagonal"), {"first": 0.9, "step": 0.9}),
    *by_phase("regression_paper", of_paper_regression(), {"step": 0.3}),
    *by_phase("topics_paper", of_paper_topics(), {"step": 0.9999}),
    *by_phase("gradients_paper", of_paper_gradients(), {"step": 0.9}),
    *by_phase("parts_paper", of_paper_parts(), {"step": 0.3}),
    *by_phase(
        "linear", kinds.regression("LinearRegression", "first_order"), {"first": 0.9999, "step": 0.55, "last": 0.3}
    ),
    *by_phase(
        "linear_spreads",
        kinds.regression("LinearRegression", "first_order", **SOME_NUMBERS),
        {"first": 0.4, "second": 0.3, "third": 0.9, "step": 0.4, "last": 0.2},
    ),
    *by_phase("gaussians", kinds.gaussian_mixture("full"), {"first": 0.9999, "step": 0.99}),
    *by_phase("mixed", kinds.mixture(), {"step": 0.55, "last": 0.9999}),
    *by_phase("classes_gaussian", kinds.naive_bayes("gaussian"), {"first": 0.98}),
    *by_phase("classes_words", kinds.naive_bayes_of_words(), {"first": 0.9999}),
    *by_phase("network", kinds.network(), {"first": 0.5, "step": 0.5}),
    *(
        by_phase("gradients", kinds.density("mean_field"), {"step": 0.9999, "last": 0.9999})
        if "DPVI" in AUDITED
        else []
    ),
    *by_phase("network_paper", of_paper_network(), {"step": 0.3}),
    *by_phase("factors", kinds.factors("FactorAnalysis"), {"first": 0.6, "second": 0.9, "last": 0.9}),
    *by_phase("chain", kinds.chain(2), {"first": 0.9999}),
    *by_phase("hidden_markov", kinds.hidden_markov("categorical"), {"first": 0.9999}),
    # All states are alike at the start, so that no state is certain.
    *by_phase("hidden_steps", kinds.hidden_markov("categorical", 2), {"step": 0.69}),
    *by_phase("hidden_cells", kinds.hidden_markov_of_points("gaussian"), {"first": 0.9}),
    *by_phase("linear_dynamical", kinds.linear_system(), {"first": 0.5, "second": 0.5}),
    *by_phase("components", kinds.factors("PCA"), {"first": 0.9999}),
    *by_phase("factors_paper", of_paper_factors(), {"step": 0.3}),
]
NAMES = [case.name for case in CASES]
#: For laws of the wall, which hold whatever the model is: the toys every day, the others in the slow suite.
TOYS_FIRST = [*CASES[:3], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES[3:])]


def one_of_each(cases: list[Case], also: Sequence[str] = ()) -> Any:
    """Every class of a model in each of its phases every day, and also some by name; other forms in the slow suite."""
    seen, params = set(), []
    for case in cases:
        own = (type(case.model), case.phase)
        params.append(
            pytest.param(case, id=case.name, marks=[pytest.mark.slow] * (own in seen and case.name not in also))
        )
        seen.add(own)
    return pytest.mark.parametrize("case", params)
