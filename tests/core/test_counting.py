"""The two counts of every release: what they count, what they cost, and that they move by one unit at most."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from scipy import sparse
from small_models import table

import dpvb
from dpvb.audit.integers import relative_norm
from dpvb.core.blocks import Block
from dpvb.core.clipped_sums import Work
from dpvb.core.counting import COUNTS, Counts, with_counts
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.grids import grids_of
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.errors import FewUnitsWarning, ParameterError

BLOCKS = {"a": Block((2,), 1.0)}


def query(rows: Any) -> Any:
    return {"a": Rows(rows)}


def counted(matrix: np.ndarray, plan: Plan, group: Any = None, seed: int = 0) -> Counts:
    wall: Wall[Any] = Wall(table(matrix, group), plan, noise=InsecureNoise(seed))
    estimate = Estimate.empty(BLOCKS)
    for release in plan:
        estimate = estimate.update(wall.release(query, release), 0.3)
    assert estimate.counts is not None
    return estimate.counts


@kills("norms", "a unit counts twice")
@edit("core/clipped_sums.py", "np.count_nonzero(units) * int(", "2 * np.count_nonzero(units) * int(")
@pytest.mark.parametrize("clip", ["block", "joint"])
def test_without_noise_both_counts_are_exact(clip: Any) -> None:
    """Rows that add nothing do not count; rows over the bound are shortened, one at the bound is not."""
    matrix = np.array([[0.5, 0.5], [3.0, 0.0], [0.0, 0.0], [np.nan, 1.0], [1.0, 0.0], [0.0, 1e300]])
    plan = phased(BLOCKS, FullBatch(), [0.0, 0.0], clipping=clip)
    found = counted(matrix, plan)
    assert (found.included, found.clipped) == (4.0, 2.0)
    assert (found.included_std, found.clipped_std) == (0.0, 0.0)
    persons = counted(matrix, plan, group=np.array([0, 0, 1, 1, 2, 2]))
    assert (persons.included, persons.clipped) == (2.0, 2.0)


@pytest.mark.guarantees("unit count")
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.3), FixedSize(60, 200)])
def test_the_interval_of_the_count_covers(sampler: Any) -> None:
    """100 runs, seeds 0 to 99: with a coverage of .95 fewer than 82 inside has a probability below 1e-6."""
    matrix = np.full((200, 2), 0.3)
    plan = phased(BLOCKS, sampler, [4.0, 2.0, 8.0])
    found = [counted(matrix, plan, seed=seed) for seed in range(100)]
    inside = sum(abs(one.included - 200) <= 1.96 * one.included_std for one in found)
    assert inside >= 82
    assert abs(np.mean([one.included for one in found]) - 200) < 5 * found[0].included_std / math.sqrt(100)


@pytest.mark.guarantees("unit count")
def test_the_counts_take_a_hundredth_of_the_budget_and_leave_the_shares_of_the_others() -> None:
    blocks = {"a": Block((2,), 1.0, weight=3.0), "b": Block((1,), 2.0, weight=4.0), "c": Block((1,), 1.0, phase="last")}
    plan = phased(blocks, FullBatch(), [1.0, 2.0])
    for release in plan:
        own = {name: weight**2 for name, weight in release.weights.items()}
        assert math.fsum(own.values()) == pytest.approx(1.0)
        assert sum(own[name] for name in COUNTS) == pytest.approx(0.01)
    assert plan.releases[0].weights["a"] / plan.releases[0].weights["b"] == pytest.approx(0.75)
    with pytest.raises(ParameterError, match="included"):
        with_counts({"included": Block((1,), 1.0)})


@kills("norms", "joint clipping forgets what the counts take")
@edit("core/clipped_sums.py", "np.sqrt(np.sum(squares, axis=0) / share)", "np.sqrt(np.sum(squares, axis=0))")
def test_joint_clipping_leaves_room_for_the_counts() -> None:
    """Every unit at the joint bound and counted twice over: the scaled concatenation has norm 1 at most."""
    blocks = {"a": Block((2,), 1.0), "b": Block((1,), 3.0)}
    (release,) = phased(blocks, FullBatch(), [1.0], clipping="joint").releases
    asked = lambda rows: {"a": Rows(rows), "b": Rows(1e6 * rows[:, :1])}  # noqa: E731
    work: Work[Any] = Work(asked, release, grids_of(release, None), lambda *_, **__: np.zeros(0, dtype=np.uint64))
    sums = work.sums(table(np.full((1, 2), 1e9)).chunks(), lambda _, n: np.ones(n, dtype=np.bool_))
    _, joint = relative_norm(sums, release)
    assert 0.999 < joint <= 1


def test_what_reading_cut_is_counted() -> None:
    """Rows beyond the norm, values out of their range or filled in, and counts over the cap."""
    fit = {"epsilon": math.inf, "delta": 1e-5, "n_steps": 1}
    X = np.array([[0.1, 0.1], [0.3, 0.9], [0.2, -0.1], [np.nan, 0.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewUnitsWarning)
        counts = dpvb.NegativeBinomialRegression(dispersion=1.0, max_count=5, max_row_norm=0.5, **fit)
        found = counts.fit(X, [1, 2, 9, 1]).privacy_.counts
        assert (found.included, found.clipped) == (3.0, 2.0)
        schema = dpvb.data.Schema((dpvb.data.Numeric("a", 0, 1, missing=0.5),), dpvb.data.Target("y"))
        rows = {"a": ["0.5", "7", "none", "0.1", "0.2"], "y": [0, 1, 0, 1, "x"]}
        found = dpvb.LogisticRegression(**fit).fit(dpvb.data.Table(rows, schema)).privacy_.counts
        assert (found.included, found.clipped) == (4.0, 2.0)


def test_an_empty_fit_says_so() -> None:
    """At epsilon = 1, seed of the noise unknown: of nothing, more than 4.9 standard deviations are seen 1 in 1e6."""
    documents = sparse.csr_array((0, 6))
    model = dpvb.LDA(2, epsilon=1.0, delta=1e-5, vocabulary=list("abcdef"), n_steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FewUnitsWarning)
        counts = model.fit(documents).privacy_.counts
    assert counts is not None
    assert abs(counts.included) < 4.9 * counts.included_std
    assert counts.say("document") in " ".join(str(model.privacy_).split())
    with pytest.warns(FewUnitsWarning, match=r"rows included: 4 ± 0.*only the 2 declared labels are included"):
        dpvb.LogisticRegression(max_row_norm=1.0, epsilon=math.inf, delta=1e-5).fit(np.eye(4) / 2, ["0", "1", "1", "0"])


def test_few_are_those_that_cannot_be_told_from_none_or_teach_nothing() -> None:
    assert Counts(80.0, 43.0, 0.0, 1.0).are_few
    assert not Counts(90.0, 43.0, 0.0, 1.0).are_few
    assert Counts(30.0, 5.0, 0.0, 1.0).are_few
    assert not Counts(50.0, 0.0, 0.0, 1.0).are_few
    assert Counts(-30.0, 5.0, 0.0, 1.0).say("row").startswith("rows included: 0 ± 10 ")
    with pytest.raises(ParameterError, match="included_std"):
        Counts(1.0, -1.0, 0.0, 1.0)
