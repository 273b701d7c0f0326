"""The loop and its running estimate: closed forms, phases, and plain variational Bayes as the noiseless case."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_models import CASES, Curvature, D, Table, table

from dpvb.core import loop
from dpvb.core.blocks import Block
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Rows
from dpvb.core.model import constant, robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.released import Released
from dpvb.core.sampling import FullBatch, Poisson
from dpvb.core.source import Nobody
from dpvb.core.wall import Wall
from dpvb.errors import ParameterError, PrivacyError, PrivateComputationError

BLOCKS = {
    "mean": Block((D,), 1.0),
    "moment": Block((D, D), 1.0, "psd"),
    "part": Block((2,), 1.0, "nonnegative"),
    "score": Block((D,), 1.0, average=False),
}


def releases(count: int, *, q: float = 1.0, noise: float = 1.0, seed: int = 0) -> list[Released]:
    """Noisy releases of an empty data set: arbitrary values of known variance."""
    release = Release(BLOCKS, Mechanism(FullBatch() if q == 1 else Poisson(q), noise))
    wall: Wall[Any] = Wall(Nobody(), Plan([release] * count), noise=InsecureNoise(seed))
    return [wall.release(lambda rows: {}, release) for _ in range(count)]


# --- estimate -----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8), st.sampled_from([1.0, 0.3]))
def test_the_estimate_in_closed_form(rhos: list[float], q: float) -> None:
    """S̄ = Σ_t ρ_t Π_{u>t}(1-ρ_u) T_t/q over the mass Σ_t ρ_t Π_{u>t}(1-ρ_u) = 1 - Π(1-ρ); variances by squares."""
    made = releases(len(rhos), q=q)
    s = Estimate.empty(BLOCKS)
    for released, rho in zip(made, rhos, strict=True):
        s = s.update(released, rho)
    shares = [rho * math.prod(1 - later for later in rhos[t + 1 :]) for t, rho in enumerate(rhos)]
    mass = sum(shares)
    assert mass == pytest.approx(1 - math.prod(1 - rho for rho in rhos), rel=1e-12)
    for name, block in BLOCKS.items():
        weights = [0.0] * (len(rhos) - 1) + [1.0] if name == "score" else [share / mass for share in shares]
        expected = sum(w * block.unpack(r.total[name]) / q for w, r in zip(weights, made, strict=True))
        np.testing.assert_allclose(s.noisy(name), expected, rtol=1e-9, atol=1e-9)
        std = math.sqrt(sum(w**2 * (r.noise_std[name] / q) ** 2 for w, r in zip(weights, made, strict=True)))
        assert s.noise_std(name) == pytest.approx(std, rel=1e-12)
        np.testing.assert_allclose(s.project(name), block.project(s.noisy(name)), atol=1e-12)
    assert s.rho == rhos[-1]
    assert s.receipt == made[-1].receipt


def test_projection_on_reading_is_unbiased_where_projection_at_each_step_is_not() -> None:
    """Pure noise, 40 steps, 4,000 entries: the clamped accumulator rises, the linear one stays within 5 sigma of 0."""
    blocks = {"part": Block((4000,), 1.0, "nonnegative")}
    release = Release(blocks, Mechanism(FullBatch(), 1.0))
    wall: Wall[Any] = Wall(Nobody(), Plan([release] * 40), noise=InsecureNoise(3))
    s, clamped, mass = Estimate.empty(blocks), np.zeros(4000), 0.0
    for _ in range(40):
        released = wall.release(lambda rows: {}, release)
        s = s.update(released, 0.1)
        clamped, mass = np.maximum(0.9 * clamped + 0.1 * released.total["part"], 0.0), 0.9 * mass + 0.1
    spread = s.noise_std("part")
    assert abs(s.noisy("part").mean()) < 5 * spread / math.sqrt(4000)
    assert s.noisy("part").std() == pytest.approx(spread, rel=5 / math.sqrt(2 * 4000))
    clamped_once = s.project("part").mean()
    assert clamped_once == pytest.approx(spread / math.sqrt(2 * math.pi), rel=0.1)
    assert (clamped / mass).mean() > 1.3 * clamped_once


def test_an_estimate_is_never_changed_in_place() -> None:
    first, second = releases(2)
    s = Estimate.empty(BLOCKS).update(first, 0.5)
    before = {name: s.noisy(name).copy() for name in BLOCKS}
    s.update(second, 0.5)
    assert all(np.array_equal(s.noisy(name), before[name]) for name in BLOCKS)


# --- step sizes ---------------------------------------------------------------------------------------------


def test_step_sizes() -> None:
    rho = robbins_monro(2.0, 0.7)
    assert [rho(t) for t in (1, 2, 5)] == pytest.approx([3**-0.7, 4**-0.7, 7**-0.7], rel=1e-15)
    assert constant(0.3)(17) == 0.3
    for bad in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ParameterError, match="rho"):
            constant(bad)
    for tau0, kappa in ((-1.0, 0.5), (1.0, -0.1), (1.0, 1.1), (math.nan, 0.5)):
        with pytest.raises(ParameterError):
            robbins_monro(tau0, kappa)


# --- fits ---------------------------------------------------------------------------------------------------


def small_rows(seed: int = 0, n: int = 40) -> np.ndarray:
    rows = np.random.default_rng(seed).standard_normal((n, D))
    return rows / (2 * np.linalg.norm(rows, axis=1, keepdims=True))


def plain_curvature(rows: np.ndarray, q: np.ndarray, steps: int) -> np.ndarray:
    """Pólya-Gamma fixed point with no labels, written from its equations, float64."""
    for _ in range(steps):
        c = np.abs(rows @ q)
        xi = np.tanh(c / 2) / (2 * c)
        q = np.linalg.solve(np.eye(D) + (xi[:, None] * rows).T @ rows, 0.5 * rows.sum(axis=0))
    return q


def test_without_noise_the_loop_is_plain_variational_bayes() -> None:
    """Full batch, ρ = 1, σ = 0: J steps equal J plain iterations; the grid of the products leaves 1e-5."""
    rows, model = small_rows(), Curvature()
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))] * 6)
    wall: Wall[Any] = Wall(table(rows), plan, noise=InsecureNoise(0))
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(4))
    start = model.init(np.random.default_rng(4))
    np.testing.assert_allclose(q, plain_curvature(rows, start, 6), rtol=1e-4)


def test_a_different_plan_is_refused() -> None:
    model = Curvature()
    plan, twin = (Plan([Release(model.blocks, Mechanism(FullBatch(), 1.0))]) for _ in range(2))
    wall: Wall[Any] = Wall(table(small_rows()), plan)
    with pytest.raises(PrivacyError):
        loop.fit(model, wall, twin, rho=constant(1.0), rng=np.random.default_rng(0))


@dataclass(frozen=True)
class Phases:
    """Ridge regression by phases: a first moment once, scores at each step, a curvature at the end."""

    @property
    def blocks(self) -> dict[str, Block]:
        return {
            "first": Block((D,), 1.0, phase="first"),
            "score": Block((D,), 4.0, average=False),
            "last": Block((D, D), 1.0, "psd", phase="last"),
        }

    def init(self, rng: np.random.Generator) -> dict[str, Any]:
        return {"seen": [], "w": np.zeros(D)}

    def e_step(self, q: dict[str, Any], batch: np.ndarray, blocks: Any) -> Any:
        made = {}
        if "first" in blocks:
            made["first"] = Rows(batch)
        if "score" in blocks:
            made["score"] = Rows(batch - q["w"])
        if "last" in blocks:
            made["last"] = Gram(batch, np.ones(len(batch)))
        return made

    def started(self, s: Estimate, q: dict[str, Any]) -> dict[str, Any]:
        return {**q, "seen": [*q["seen"], ("started", s.phase)]}

    def m_step(self, s: Estimate, q: dict[str, Any]) -> dict[str, Any]:
        return {"seen": [*q["seen"], ("m_step", s.phase)], "w": q["w"] + 0.02 * s.noisy("score")}

    def finished(self, s: Estimate, q: dict[str, Any]) -> dict[str, Any]:
        return {**q, "seen": [*q["seen"], ("finished", s.phase)]}


def test_phases_run_in_order_and_a_method_of_its_own_follows_each() -> None:
    rows, model = small_rows(), Phases()
    plan = phased(model.blocks, FullBatch(), [0.0, 0.0])
    wall: Wall[Any] = Wall(table(rows), plan, noise=InsecureNoise(0))
    told: list[int] = []
    q, s = loop.fit(
        model, wall, plan, rho=constant(0.5), rng=np.random.default_rng(0), on_step=lambda t, q: told.append(t)
    )
    assert q["seen"] == [("started", "first"), ("m_step", "step"), ("m_step", "step"), ("finished", "last")]
    assert told == [1, 2, 3, 4]
    w = np.zeros(D)
    for _ in range(2):
        w = w + 0.02 * (rows - w).sum(axis=0)
    np.testing.assert_allclose(q["w"], w, rtol=1e-7)
    np.testing.assert_allclose(s.noisy("first"), rows.sum(axis=0), rtol=1e-7)
    np.testing.assert_allclose(s.noisy("last"), rows.T @ rows, rtol=2e-4, atol=1e-4)


def test_a_failed_step_stops_the_fit_and_stays_charged() -> None:
    class Fails(Curvature):
        def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
            raise ValueError("x")

    plan = Plan([Release(Fails().blocks, Mechanism(FullBatch(), 1.0))] * 3)
    wall: Wall[Any] = Wall(table(small_rows()), plan)
    with pytest.raises(PrivateComputationError):
        loop.fit(Fails(), wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
    assert repr(wall) == "Wall(step 1 of 3)"


@pytest.mark.parametrize("case", CASES[:2], ids=lambda case: case.name)
def test_noise_of_many_steps_averages_out(case: Any) -> None:
    """One q for all steps: the error of the running mean is its stated noise_std, and falls like √(Σ shares²)."""
    rows = small_rows()
    name = "pull" if case.name == "location" else "score"
    plan = case.plan(noise=[5.0] * 60)
    s = Estimate.empty(case.model.blocks)
    [exact] = case.run(rows, case.plan(noise=0.0))
    errors, source = [], Table(rows, chunk=100)
    for seed in range(15):
        s = Estimate.empty(case.model.blocks)
        for t, released in enumerate(case.run(rows, plan, noise=InsecureNoise(seed), source=source), start=1):
            s = s.update(released, 1.0 / t)
        errors.append(s.noisy(name) - exact.total[name])
    assert s.noise_std(name) == pytest.approx(plan.releases[0].noise_std(name) / math.sqrt(60), rel=1e-12)
    ratio = np.std(errors) / s.noise_std(name)
    assert abs(ratio - 1) < 5 / math.sqrt(2 * np.size(errors))
