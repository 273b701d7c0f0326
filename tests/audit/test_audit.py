"""The audit: passes what is sound and sees each planted fault.

Statistical checks on secret noise fail by chance with probability at most 1e-6 each; planted faults are so gross that
a check misses them with less.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import scipy.stats
from checks import accountants, draws, formats, public_facts, words
from command_line import CliRunner
from each import each
from planted import edit, kills
from small_models import HOSTILE_ROWS, Location, table_records

import dpvb
from dpvb import accounting, audit, cli
from dpvb.accounting.events import RELATIONS, NeighboringRelation
from dpvb.audit import Case, Check, Matrix, Report, neighbours, one_run, queries
from dpvb.audit.kinds import NAMES, forms, shipped
from dpvb.core import names
from dpvb.core.blocks import Block, Contributions
from dpvb.core.forms import Rows
from dpvb.core.noise import InsecureNoise, NoiseSource, SecureNoise
from dpvb.core.plan import Plan
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.errors import DataFormatError, ModelFileError, ParameterError
from dpvb.estimators import PrivateEstimator
from dpvb.kernels import linear

SOUND = Case("location", Location(), Matrix, table_records, HOSTILE_ROWS)


def findings(checks: Any) -> dict[str, str]:
    """Names of the checks that did not pass, with what they saw."""
    return {check.name: check.measured for check in checks if not check.passed}


def records(case: Case, pairs: int = 5) -> dict[str, str]:
    return findings(neighbours.check_records(case, pairs=pairs))


def runs(case: Case) -> dict[str, str]:
    return findings(neighbours.check_runs(case))


# --- what one record can do ---------------------------------------------------------------------------------


def test_a_sound_model_passes() -> None:
    assert records(SOUND) == {}
    assert runs(SOUND) == {}
    joint = replace(SOUND, clipping="joint")
    assert records(joint) == {}


Statistics = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Faulty(Location):
    """The location model whose first statistic is something else."""

    pull: Statistics = field(default=lambda batch: batch)

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return {**super().e_step(q, batch, blocks), "pull": Rows(self.pull(batch))}


def faulty(pull: Statistics) -> Case:
    return replace(SOUND, model=Faulty(pull=pull))


@pytest.mark.guarantees("audit")
def test_division_by_the_batch_size_is_found() -> None:
    found = records(faulty(lambda batch: batch / max(len(batch), 1)))
    assert "in another batch" in found["one record more"]
    assert "halves" in found["order and size of a batch"]


def test_standardised_columns_are_found() -> None:
    found = records(faulty(lambda batch: batch - batch.sum(axis=0) / 7))
    assert "in another batch" in found["one record more"]


def test_dependence_on_the_place_in_a_batch_is_found() -> None:
    found = records(faulty(lambda batch: batch * (1 + np.arange(len(batch))[:, None]) * 1e-9))
    assert "another order" in found["order and size of a batch"]


@dataclass(frozen=True)
class Directions:
    """Rows' shares of three directions, softmax(x W); the product is formed as it is told."""

    product: Callable[[np.ndarray, np.ndarray], np.ndarray]
    width: int = 3

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"share": Block((3,), 1.0)}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((self.width, 3))

    def e_step(self, q: np.ndarray, batch: np.ndarray, blocks: Mapping[str, Block]) -> Contributions:
        logit_nk = self.product(batch, q)
        share_nk = np.exp(logit_nk - logit_nk.max(axis=1, keepdims=True))
        return {"share": Rows(share_nk / share_nk.sum(axis=1, keepdims=True))}

    def m_step(self, s: Any, q: np.ndarray) -> np.ndarray:
        return q


def directions(product: Any, width: int = 3) -> Case:
    draw = partial(table_records, width=width)
    return Case(
        "directions", Directions(product, width), Matrix, draw, np.eye(width), of_width=partial(directions, product)
    )


@pytest.mark.guarantees("own part")
def test_a_product_that_rounds_by_the_batch_is_found() -> None:
    """`x @ W` in an E-step: no release shows it, bits do; the package's own product passes."""
    found = records(directions(np.matmul))
    assert "another norm" in found["bits of a record"]
    assert "other bits" in found["bits of a record"]
    assert set(found) == {"bits of a record"}
    assert records(directions(linear.product)) == {}


@dataclass(frozen=True)
class Nearest(dpvb.Model):
    """Hard k-means: each row belongs to the nearest centre; the product is formed as it is told."""

    product: Callable[[np.ndarray, np.ndarray], np.ndarray]
    width: int = 3

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"rows": Block((4,), 1.0, "nonnegative"), "sums": Block((4, self.width), 1.0)}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((4, self.width))

    def e_step(self, q: np.ndarray, batch: np.ndarray, blocks: Mapping[str, Block]) -> Contributions:
        distance_nk = (q**2).sum(axis=1) - 2 * self.product(batch, q.T)
        nearest_nk = np.eye(4)[distance_nk.argmin(axis=1)]
        return {"rows": dpvb.Rows(nearest_nk), "sums": dpvb.Kron(nearest_nk, batch)}

    def m_step(self, s: Any, q: np.ndarray) -> np.ndarray:
        return q


@pytest.mark.guarantees("own part")
@kills("records", "an audit that takes no record on the edge of a decision", "3")
@edit("audit/neighbours.py", "> _JUMP:\n            step", "> 1e300:\n            step")
@edit("audit/neighbours.py", "for tied in [q, *ties(q)]:", "for tied in [q]:")
@pytest.mark.parametrize("width", [3, *(pytest.param(width, marks=pytest.mark.slow) for width in (2, 64))])
def test_a_nearest_centre_that_blas_decides_is_found(width: int) -> None:
    """One-hot rows show no last bit, but where two centres are as near: the records lie there by design."""

    def case(product: Any) -> Case:
        hostile = np.vstack([np.zeros(width), np.eye(width)])
        return Case("nearest", Nearest(product, width), Matrix, lambda rng, n: rng.uniform(-1, 1, (n, width)), hostile)

    assert "other bits" in findings([neighbours.check_bits(case(np.matmul))])["bits of a record"]
    assert findings([neighbours.check_bits(case(linear.product))]) == {}


class Filled(Location):
    """It makes invalid rows to rows of zeros, which are included in the number of rows."""

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return super().e_step(q, np.nan_to_num(batch, posinf=0, neginf=0), blocks)


@pytest.mark.guarantees("audit")
@kills("records", "an audit that lets a model include invalid rows")
@edit("audit/neighbours.py", "np.isnan(x_nd).all())", "np.isnan(x_nd).all() and False)")
def test_an_invalid_row_that_a_model_includes_is_found() -> None:
    assert "NaN throughout is included" in records(replace(SOUND, model=Filled()))["one record more"]
    assert "one record more" not in records(SOUND)


ROWS_SEEN = 0


@pytest.mark.guarantees("own part")
@kills("records", "an audit that asks about each record once", "the process ends")
@edit("audit/neighbours.py", "if twice else alone", "if False else alone")
@pytest.mark.parametrize("until", ["the release ends", "the process ends"])
def test_state_from_the_26th_row_on_is_found(until: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the first 25 rows that it meets it halves what a row adds."""

    class Keeping(Location):
        def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
            global ROWS_SEEN
            seen = ROWS_SEEN if until == "the process ends" else getattr(self, "seen", 0)
            row_n = seen + np.arange(len(batch))
            object.__setattr__(self, "seen", seen + len(batch))
            ROWS_SEEN += len(batch)
            made = super().e_step(q, batch, blocks)
            return {**made, "pull": Rows(np.where(row_n < 25, 1.0, 0.5)[:, None] * batch)}

    monkeypatch.setitem(globals(), "ROWS_SEEN", 0)
    found = records(replace(SOUND, model=Keeping()))
    if until == "the release ends":
        assert "other bits in another batch" in found["bits of a record"]
    else:
        assert "when it is asked about again" in found["bits of a record"]


class Gossip(Location):
    """Its E-step keeps what it sees where copies of the model share it, and a method of one phase reads that."""

    seen: ClassVar[list[Any]] = []
    told: ClassVar[str] = "step"

    @property
    def blocks(self) -> Mapping[str, Block]:
        at = {f"{phase}_rows": Block((1,), 1.0, "nonnegative", phase=phase) for phase in ("first", "last")}
        return {**super().blocks, **at}

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        if len(batch):
            self.seen.append(np.nan_to_num(batch).sum(axis=0))
        counts: Contributions = {name: Rows(1.0 + 0 * batch[:, :1]) for name in blocks if name.endswith("rows")}
        return {**super().e_step(q, batch, {n: b for n, b in blocks.items() if n not in counts}), **counts}

    def gossiped(self, s: Any, q: Any) -> Any:
        return q + self.seen[-1] if s.phase == self.told else q

    def started(self, s: Any, q: Any) -> Any:
        return self.gossiped(s, q)

    def m_step(self, s: Any, q: Any) -> Any:
        return super().m_step(s, self.gossiped(s, q))

    def finished(self, s: Any, q: Any) -> Any:
        return self.gossiped(s, q)


class Counting(Location):
    """Its M-step returns another q at each call."""

    calls: ClassVar[list[int]] = []

    def m_step(self, s: Any, q: Any) -> Any:
        self.calls.append(0)
        return super().m_step(s, q) + len(self.calls)


class Silent(Location):
    """Its statistics are NaN, so that every row is ignored."""

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return {name: Rows(np.nan * part.values) for name, part in super().e_step(q, batch, blocks).items()}  # type: ignore[attr-defined]


class Failing(Location):
    """Its M-step fails."""

    def m_step(self, s: Any, q: Any) -> Any:
        raise ValueError("no\nstep")


@pytest.mark.guarantees("audit")
@kills("leaks", "M-steps are compared after the same rows alone", "step")
@edit("audit/neighbours.py", "for data in (matrix, others, matrix)", "for data in (matrix, matrix, matrix)")
@kills("leaks", "M-steps of the first phase alone are compared", "last")
@edit(
    "audit/neighbours.py",
    "for release in plan:\n                s =",
    "for release in plan.releases[:1]:\n                s =",
)
@pytest.mark.parametrize("phase", ["first", "step", "last"])
def test_a_method_that_reads_what_an_e_step_kept_is_found(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gossip, "told", phase)
    found = findings(neighbours.check_steps(replace(SOUND, model=Gossip())))
    assert "another q for the same sums after other rows" in found["rows in M-steps"]


@pytest.mark.guarantees("audit")
def test_the_methods_of_all_phases_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gossip, "told", "none")
    [check] = neighbours.check_steps(replace(SOUND, model=Gossip()))
    assert check.passed
    assert check.compared == 3 * 4  # The first phase, two steps and the last phase, each after three data sets.


@pytest.mark.guarantees("audit")
@pytest.mark.parametrize(("model", "said"), [(Counting(), "called again"), (Failing(), "ValueError: no?step")])
def test_an_m_step_that_cannot_be_compared_is_found(model: Location, said: str) -> None:
    assert said in findings(neighbours.check_steps(replace(SOUND, model=model)))["rows in M-steps"]


@pytest.mark.guarantees("audit")
@kills("records", "an audit that passes a check that compared nothing")
@edit("results/audit_report.py", "if compared else f", "if True else f")
@edit("results/audit_report.py", "low=int(self.passed))", "low=0)")
def test_no_check_passes_that_compared_nothing() -> None:
    """Records that add nothing, as those do whose response is outside the declared one, show no fault of a model."""

    report = audit.audit(replace(SOUND, model=Silent()))
    assert [check.name for check in report.checks if check.passed] == ["rows in M-steps"]
    assert all(check.measured.startswith("nothing was compared") for check in report.findings)
    with pytest.raises(ParameterError, match="compared"):
        Check("a", "b", True, "c", "d", 0)


def test_a_warm_start_is_found() -> None:
    last = np.zeros(3)

    def warm(batch: np.ndarray) -> np.ndarray:
        nonlocal last
        result = np.nan_to_num(batch, posinf=0, neginf=0) * 0.1 + last
        last = result[-1] * 1e-3 if len(batch) else last
        return result

    assert "in another batch" in records(faulty(warm))["one record more"]


@dataclass(frozen=True)
class Understated(Rows):
    """Rows that claim half of their norms."""

    def norms(self) -> Any:
        return super().norms() / 2


def test_norms_that_are_too_small_are_found() -> None:
    class Lying(Location):
        def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
            return {name: Understated(part.values) for name, part in super().e_step(q, batch, blocks).items()}  # type: ignore[attr-defined]

    case = replace(SOUND, model=Lying())
    found = records(case)
    assert "a change of 2.0" in found["one record more"] or "a change of 1.9" in found["one record more"]
    assert "one record replaced" in found
    assert set(runs(case)) == {"replayed runs, add or remove", "replayed runs, replace"}


class Narrow(Location):
    """Declares that nothing is negative, which is not so."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {name: replace(block, domain="nonnegative") for name, block in super().blocks.items()}


@kills("queries", "negative entries of a nonnegative block kept")
@edit(
    "core/clipped_sums.py",
    'return nonnegative(contribution) if block.domain == "nonnegative" else contribution',
    "return contribution",
)
def test_a_declared_domain_that_does_not_hold_costs_accuracy_and_no_privacy() -> None:
    """Nonnegative blocks have the swap ratio √2, which the wall makes true."""
    assert not records(replace(SOUND, model=Narrow()))
    assert not runs(replace(SOUND, model=Narrow()))


def test_a_wall_that_believes_a_declared_domain_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpvb.core.clipped_sums._in_domain", lambda contribution, block: contribution)
    assert set(records(replace(SOUND, model=Narrow()))) == {"one record replaced"}
    assert set(runs(replace(SOUND, model=Narrow()))) == {"replayed runs, replace"}


def test_a_record_on_which_the_model_fails_adds_nothing() -> None:
    def fragile(batch: np.ndarray) -> np.ndarray:
        if np.isnan(batch).any():
            raise ValueError("NaN")
        return batch

    assert records(faulty(fragile)) == {}
    assert runs(faulty(fragile)) == {}


class Unreadable(Matrix):
    """Records that cannot be read where one of them is NaN."""

    def chunks(self) -> Any:
        if np.isnan(self.x).any():
            raise ValueError("NaN")
        return super().chunks()


def test_a_record_that_stops_the_computation_is_found() -> None:
    case = replace(SOUND, source=lambda matrix, group=None: Unreadable(matrix, group))
    assert "fail" in records(case)["one record more"]
    assert "fail" in runs(case)["replayed runs, add or remove"]


def test_a_record_that_is_printed_is_found_and_one_that_is_logged_does_not_get_out() -> None:
    import logging

    def printing(batch: np.ndarray) -> np.ndarray:
        if np.isnan(batch).any():
            print("a row with NaN")
        return batch

    def logging_(batch: np.ndarray) -> np.ndarray:
        logging.getLogger("model").info("largest value %g", np.abs(batch).max(initial=0))
        return batch

    assert "printed" in records(faulty(printing))["one record more"]
    assert "printed" in runs(faulty(printing))["replayed runs, replace"]
    assert records(faulty(logging_)) == {}
    assert runs(faulty(logging_)) == {}


def test_persons_that_count_once_a_row_are_found() -> None:
    def without_persons(matrix: np.ndarray, group: Any = None) -> Any:
        return Matrix(matrix)

    assert "a change of" in records(replace(SOUND, source=without_persons))["a person's many rows"]


def test_public_facts_taken_from_private_rows_are_found() -> None:
    """The number of rows as a public number of units; the largest count as a document's length."""
    case = shipped("LDA")[0]

    def counted(matrix: np.ndarray, **options: Any) -> Any:
        return dpvb.LDA(2, public_vocabulary=True, n_units=len(matrix), **options).fit(matrix)

    def measured(matrix: np.ndarray, **options: Any) -> Any:
        return dpvb.LDA(2, public_vocabulary=True, document_length=float(np.nanmax(matrix)), **options).fit(matrix)

    def asked(fit: Any, *relations: NeighboringRelation) -> dict[str, str]:
        return findings(public_facts.check_estimator(replace(case, fit=fit), relations))

    found = asked(counted, "add_or_remove_one")
    assert "n_units" in found["public facts of a fit, add_or_remove_one"]
    found = asked(measured, *RELATIONS)
    assert set(found) == {"public facts of a fit, add_or_remove_one", "public facts of a fit, replace_one"}

    def counting(matrix: np.ndarray, **options: Any) -> Any:
        model = dpvb.LDA(2, public_vocabulary=True, **options).fit(matrix)
        model.rows_ = len(matrix)
        return model

    found = asked(counting, "add_or_remove_one")
    assert "attribute rows_" in found["public facts of a fit, add_or_remove_one"]

    found = asked(lambda matrix, **options: dpvb.LDA(0, **options).fit(matrix), "replace_one")
    assert "fails" in found["public facts of a fit, replace_one"]


# --- samplers -----------------------------------------------------------------------------------------------

N, Q = 200, 0.05


def sampled(sampler: Any, noise: Callable[[], NoiseSource] = SecureNoise) -> dict[str, str]:
    return findings(draws.check_sampler(sampler, noise, num_units=N, n_steps=400))


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(Q), FixedSize(10, N)], ids=["full", "poisson", "fixed"])
def test_sound_samplers_pass(sampler: Any) -> None:
    assert sampled(sampler) == {}


@dataclass(frozen=True)
class Shuffled:
    """Epochs over a shuffled order, called Poisson or fixed-size."""

    name: str
    sampling_prob: float = Q
    state: ClassVar[dict[str, Any]] = {}

    def draw(self, words: Any, count: Callable[[], int]) -> Any:
        number, size = count(), int(count() * self.sampling_prob)
        left = self.state.get("left", np.empty(0, dtype=int))
        if not len(left):
            left = np.argsort(words(number))
        self.state["left"] = left[size:]
        chosen = np.zeros(number, dtype=bool)
        chosen[left[:size]] = True
        return lambda start, m: chosen[start : start + m]


def test_shuffled_epochs_are_found() -> None:
    assert set(sampled(Shuffled("poisson"))) == {
        "spread of batch sizes",
        "spread of inclusion counts",
        "repeats from one batch to the next",
    }
    assert set(sampled(Shuffled("fixed_size"))) == {"spread of inclusion counts", "repeats from one batch to the next"}


@dataclass(frozen=True)
class Generous(Poisson):
    """Draws at a higher rate than it says."""

    def draw(self, words: Any, count: Callable[[], int]) -> Any:
        return Poisson(1.5 * self.sampling_prob).draw(words, count)


def test_a_rate_above_the_accounted_one_is_found() -> None:
    assert "spread of inclusion counts" in sampled(Generous(Q))


def test_one_batch_for_all_steps_is_found() -> None:
    @dataclass(frozen=True)
    class Stuck(Source):
        def words(self, *, step: int, purpose: str) -> Any:
            return InsecureNoise(int(self.run_id[:8], 16)).words(step=0, purpose=purpose)

    found = sampled(Poisson(Q), Stuck)
    assert {"spread of inclusion counts", "repeats from one batch to the next"} <= set(found)


# --- noise --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Secret noise with a fault: so many times the std, in multiples of so many steps, of another step."""

    scale: float = 1.0
    coarse: int = 1
    inner: NoiseSource = field(default_factory=SecureNoise)
    private: ClassVar[bool] = True

    @property
    def run_id(self) -> str:
        return self.inner.run_id

    def gaussian(self, std_steps: float, total: Any, *, step: int, block: str, plan_digest: bytes) -> Any:
        made = self.inner.gaussian(self.scale * std_steps, total, step=step, block=block, plan_digest=plan_digest)
        return made // self.coarse * self.coarse

    def words(self, *, step: int, purpose: str) -> Any:
        return self.inner.words(step=step, purpose=purpose)


def test_sound_noise_passes() -> None:
    assert findings(draws.check_source()) == {}
    assert findings(draws.check_noise(SOUND)) == {}


@pytest.mark.guarantees("test power")
@pytest.mark.parametrize("scale", [0.5, 0.97, 1.03, 1 / math.sqrt(2)])
@pytest.mark.parametrize("name", ["LogisticRegression", "SigmoidBeliefNetwork"])
def test_noise_of_another_scale_is_found(scale: float, name: str) -> None:
    [wrong] = draws.check_noise(shipped(name)[0], lambda: Source(scale))
    assert not wrong.passed
    assert float(wrong.measured.split()[5]) == pytest.approx(scale, abs=0.01)


def test_noise_that_forgets_the_weight_of_a_block_is_found(monkeypatch: Any) -> None:
    """The declared std is then wrong, too: the check does not take it on trust."""
    from dpvb.core.plan import Release

    def unweighted(self: Release, name: str) -> float:
        return self.mechanism.noise_multiplier * self.blocks[name].bound

    assert draws.check_noise(SOUND).__next__().passed
    monkeypatch.setattr(Release, "noise_std", unweighted)
    [wrong] = draws.check_noise(SOUND)
    assert not wrong.passed


def test_noise_with_low_bits_of_its_own_is_found() -> None:
    assert set(findings(draws.check_source(lambda: Source(coarse=16)))) == {"lattice"}


def test_noise_that_comes_again_is_found() -> None:
    assert set(findings(draws.check_source(lambda: InsecureNoise(3)))) == {"never twice the same"}


def test_a_fork_that_shares_draws_is_found() -> None:
    seeds = itertools.count()

    class Forked(Source):
        def __init__(self) -> None:
            object.__setattr__(self, "inner", InsecureNoise(next(seeds)))

    assert set(findings(draws.check_source(Forked))) == {"never twice the same"}


def test_float_noise_off_the_lattice_is_found(monkeypatch: Any) -> None:
    rng = np.random.default_rng(0)

    def floating(noise: Any, sums: Any, release: Any, *_: Any) -> Any:
        return {n: sums[n] * 2.0**-34 + rng.normal(0.0, release.noise_std(n), sums[n].shape) for n in sums}

    monkeypatch.setattr("dpvb.core.wall._with_noise", floating)
    assert "off the grid" in findings(draws.check_source())["lattice"]
    assert "off the grid" in findings(draws.check_noise(SOUND))["scale of the noise"]
    assert "off its grid" in records(SOUND)["one record more"]


@pytest.mark.guarantees("test power")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_noise_of_every_release_of_every_kind_has_the_declared_scale(name: str) -> None:
    for case in shipped(name):
        assert findings(draws.check_noise(case)) == {}, case.name


# --- the accountant -----------------------------------------------------------------------------------------


def test_two_accountants_agree_on_plans_of_all_samplers() -> None:
    """A grid of plans, of which the other accountant knows at least ten."""
    for check in accountants.check_grid():
        assert check.passed, check.measured
        assert int(check.measured.split()[0]) >= 10


@pytest.mark.guarantees("test power")
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_two_accountants_agree_on_the_plans_of_every_kind(name: str) -> None:
    for case in shipped(name):
        assert findings(accountants.check_plans(case)) == {}, case.name


@pytest.mark.guarantees("test power")
def test_an_understated_epsilon_is_found() -> None:
    def understated(events: Any, **given: Any) -> float:
        return 0.98 * accounting.epsilon_of(events, **given)

    def forgetful(events: Any, *, delta: float, neighboring_relation: str) -> float:
        """Takes one record for another to be no more than one record more."""
        return accounting.epsilon_of(events, delta=delta, neighboring_relation="add_or_remove_one")

    assert findings(accountants.check_plans(SOUND)) == {}
    assert len(findings(accountants.check_plans(SOUND, understated))) == 2
    assert set(findings(accountants.check_plans(SOUND, forgetful))) == {"two accountants, replace_one"}


# --- one run ------------------------------------------------------------------------------------------------


def by_hand(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """The theorem, term by term."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    tail = [math.fsum(scipy.stats.binom.pmf(k, r, p) for k in range(max(w, 0), r + 1)) for w in range(v - m, v + 1)]
    last = tail[-1]
    return min(1.0, last + 2 * m * delta * max((tail[m - i] - last) / i for i in range(1, m + 1)))


@each(("m", "r", "v"), [(20, 20, 20), (20, 10, 7), (50, 12, 12), (9, 4, 0)])
@each("epsilon", [0.0, 0.3, 2.0])
@each("delta", [0.0, 1e-6, 1e-2])
def test_the_probability_of_right_guesses(m: int, r: int, v: int, epsilon: float, delta: float) -> None:
    assert one_run.guesses_probability(m, r, v, epsilon, delta) == pytest.approx(
        by_hand(m, r, v, epsilon, delta), rel=1e-9
    )


def test_randomised_response_is_never_refuted_at_its_epsilon() -> None:
    """Coins told truly with probability e^ε/(1+e^ε) attain the bound, and exceed it with the level's probability."""
    epsilon, m, level = 1.0, 60, 0.05
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = [one_run.epsilon_bound(m, m, v, delta=0.0, level=level) for v in range(m + 1)]
    assert bounds == sorted(bounds)
    too_high = math.fsum(scipy.stats.binom.pmf(v, m, p) for v in range(m + 1) if bounds[v] > epsilon)
    assert 0.005 < too_high <= level


def test_a_run_almost_without_noise_tells_what_its_canaries_can() -> None:
    """The bound varies with coins and noise, 2.57 with a deviation of 0.31; a mean of 3 is below 1.6 once in 3e7."""
    wide = shipped("LDA")[0].wide
    assert wide is not None
    plan: Plan = wide.whole(FullBatch(), [0.05])
    proven = [one_run.one_run(wide, plan)[0] for _ in range(3)]
    m = len(wide.hostile)
    everything = one_run.epsilon_bound(m, m, m, delta=one_run.DELTA, level=one_run.FALSE_ALARM / 3)
    assert np.mean(proven) > 1.6
    assert max(proven) <= everything < 5


@pytest.mark.guarantees("audit")
def test_an_under_noised_run_is_flagged() -> None:
    case = shipped("LDA")[0]
    checks = list(one_run.check_one_run(case, lambda: Source(scale=0.05)))
    assert not checks[0].passed
    assert "claimed 1.00" in checks[0].threshold


# --- the report ---------------------------------------------------------------------------------------------


def test_a_report_survives_json() -> None:
    report = Report(tuple(neighbours.check_records(SOUND, pairs=1)))
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    assert report.passed
    assert report.version == dpvb.__version__
    assert "5 of 5 checks passed" in report.summary
    assert "FINDING" not in str(report)
    broken = Report((*report.checks, Check("a", "b", False, "c", "d", 0, 1e-6)))
    assert [check.name for check in broken.findings] == ["b"]
    assert not broken.passed
    assert "FINDING b: c (d, false alarm 1e-06)" in str(broken)
    assert "5 of 6" in broken.summary


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": "\x1b[2J"},
        {"checks": []},
        {"checks": [{}]},
        {"checks": [{"subject": "\n", "name": "", "passed": True, "measured": "", "threshold": ""}]},
        {"checks": [{"subject": "", "name": "", "passed": "yes", "measured": "", "threshold": ""}]},
        {"checks": [{"subject": "", "name": "", "passed": True, "measured": "", "threshold": "", "false_alarm": 2}]},
        {"checks": None},
    ],
)
def test_a_damaged_report_is_refused(change: dict[str, Any]) -> None:
    whole = Report((Check("a", "b", True, "c", "d", 1),)).to_dict()
    with pytest.raises(ModelFileError, match="audit report"):
        Report.from_dict({**whole, **change})


@pytest.mark.parametrize("hostile", [np.zeros(3), np.zeros((0, 3))])
def test_a_case_needs_hostile_records(hostile: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="hostile"):
        replace(SOUND, hostile=hostile)


def test_every_kind_of_this_package_is_audited() -> None:
    """All but the estimator of any model, whose author writes a case; the table of kinds is the only list."""
    own = {name for name, kind in PrivateEstimator._registered.items() if kind.__module__.startswith("dpvb.")}
    assert set(NAMES) == own - {"PrivateModel"}
    assert all(case.name.startswith(name) for name in ("LDA", "LogisticRegression") for case in shipped(name))


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ParameterError, match="model class"):
        audit.audit("Nothing")


# --- the command --------------------------------------------------------------------------------------------


def call(*args: object, code: int = 0) -> Any:
    result = CliRunner().invoke(cli.app, ["audit", *map(str, args)])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return result


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audited") / "m.dpvb"
    counts = np.random.default_rng(0).poisson(1.0, (30, 8))
    dpvb.LDA(2, public_vocabulary=True, epsilon=1.0, delta=1e-5, n_steps=2).fit(counts).save(path)
    return path


@pytest.mark.slow
def test_an_audit_of_one_class_goes_with_a_model(saved: Path) -> None:
    facts = json.loads(call("LDA", "--json", "--attach", saved).stdout)
    assert facts["passed"] is True
    assert {check["subject"] for check in facts["checks"]} >= {"LDA", "LDA_step"}
    model = dpvb.load(saved)
    assert model.audit_ == Report.from_dict(facts)
    shown = CliRunner().invoke(cli.app, ["show", str(saved)]).stdout
    assert model.audit_.summary in shown
    assert json.loads(CliRunner().invoke(cli.app, ["show", str(saved), "--as", "json"]).stdout)["audit"] == facts
    model.save(saved, overwrite=True)
    assert dpvb.load(saved).audit_ == model.audit_


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "--all"),
        (("LDA", "--all"), "--all"),
        (("Nothing",), "model class must be one of"),
        (("--all", "--attach", "m.dpvb"), "--attach needs the class"),
        (("LDA", "--attach", "missing.dpvb"), "no such file"),
    ],
)
def test_wrong_use_is_refused(args: tuple[str, ...], message: str) -> None:
    assert message in call(*args, code=2).stderr


def test_a_model_of_another_class_is_refused(saved: Path) -> None:
    assert "holds a fitted LDA;" in call("LogisticRegression", "--attach", saved, code=2).stderr


def test_a_finding_is_exit_code_one(saved: Path, monkeypatch: Any) -> None:
    """The command, on the report of a model that divides by the batch's size; such a report is not attached."""
    wrong = Report(tuple(neighbours.check_records(faulty(lambda batch: batch / max(len(batch), 1)), pairs=1)))

    def found_wrong(*names: str, found: Any, **options: Any) -> Report:
        for check in wrong.checks:
            found(check)
        return wrong

    monkeypatch.setattr(audit, "audit", found_wrong)
    before = saved.read_bytes()
    assert "FINDING" in call("LDA", "--attach", saved, code=1).stdout
    assert saved.read_bytes() == before


def test_a_check_is_told_before_the_next_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Check] = []

    def begin(case: Case) -> Any:
        assert len(told) == 5
        raise KeyboardInterrupt

    monkeypatch.setattr(audit, "_CHECKS", (neighbours.check_records, begin))
    with pytest.raises(KeyboardInterrupt):
        audit.audit(SOUND, found=told.append)


def test_each_property_is_asked_once_per_kind_and_of_every_form_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def ask(case: Case) -> Any:
        asked.append(case.name)
        return [Check(case.name, "asked", True, "", "", 1)]

    monkeypatch.setattr(audit, "_CHECKS", (ask,))
    names = ("LogisticRegression", "NaiveBayes", "MarkovChain")
    audit.audit(*names)
    assert asked == [shipped(name)[0].name for name in names]
    asked.clear()
    audit.audit(*names, full=True)
    assert asked == [case.name for name in names for case in shipped(name)]
    assert len(asked) == sum(len(forms(name)) for name in names) > len(names)


def interrupted(where: str, tmp_path: Path, number: int, *args: str) -> str:
    """What stands in a file when an audit that writes to it is ended once a word is there."""
    program = [sys.executable, "-c", "from dpvb.cli import app; app()", "audit", *args]
    file = tmp_path / "report.txt"
    with file.open("w") as out:
        process = subprocess.Popen(program, stdout=out, stderr=subprocess.PIPE, text=True, start_new_session=True)
        assert process.stderr is not None
        assert re.search(r"audit of \w+: about \d+ min", process.stderr.readline())
        end = time.monotonic() + 300
        while where not in file.read_text():
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.05)
        os.killpg(process.pid, number)
        assert "Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    return file.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_an_audit_that_is_ended_leaves_what_it_has_found(number: int, tmp_path: Path) -> None:
    found = interrupted("  ok ", tmp_path, number, "LDA").splitlines()
    assert found[0] == "LDA_first"
    assert found[1].startswith("  ok      one record more: ")


@pytest.mark.slow
def test_an_audit_that_is_ended_ends_its_processes(tmp_path: Path) -> None:
    assert interrupted("  ok ", tmp_path, signal.SIGINT, "LogisticRegression", "--full")


@pytest.mark.slow
def test_all_models_pass_in_every_form() -> None:
    facts = json.loads(call("--all", "--full", "--json").stdout)
    assert facts["passed"], [check for check in facts["checks"] if not check["passed"]]
    assert set(NAMES) <= {check["subject"].split(",")[0] for check in facts["checks"]}


@pytest.mark.slow
def test_a_model_of_ones_own_can_be_audited() -> None:
    told: list[Check] = []
    report = audit.audit(SOUND, found=told.append)
    assert report.passed
    assert report.checks == tuple(told)
    report = audit.audit(faulty(lambda batch: batch / max(len(batch), 1)))
    assert {check.subject for check in report.findings} == {"location_step", "location"}


# --- hostile q ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Betrayed(Location):
    """Keeps the law at ordinary q, and breaks it at large ones in some way."""

    fault: str = ""

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        made = super().e_step(q, batch, blocks)
        if not np.abs(q).max() > 100:
            return made
        if self.fault == "understates":
            return {name: Understated(part.values) for name, part in made.items()}  # type: ignore[attr-defined]
        if self.fault == "mixes":
            return {name: Rows(part.values / max(len(batch), 1)) for name, part in made.items()}  # type: ignore[attr-defined]
        return made


@kills("queries", "an audit of hostile q that hears of no fault")
@edit("audit/queries.py", '"hostile q", found.faults, measured', '"hostile q", [], measured')
@kills("queries", "an audit of hostile q that passes whatever it measures")
@edit("audit/queries.py", "if max(found.norm, found.distance) > 1:", "if False:")
@pytest.mark.parametrize("fault", ["", "understates", "mixes"])
def test_a_model_that_breaks_the_law_at_hostile_q_is_found(fault: str) -> None:
    found = findings(queries.check_queries(replace(SOUND, model=Betrayed(fault=fault)), 100))
    assert ("hostile q" in found) == bool(fault)
    assert ("depends on others" in found.get("hostile q", "")) == (fault == "mixes")


# --- readers ------------------------------------------------------------------------------------------------


def test_shipped_readers_obey_the_law() -> None:
    checks = [*formats.shipped_readers()]
    assert len(checks) >= 8
    assert not findings(checks)


class Lines:
    """A reader of one number a line that can be told to break the law in some way."""

    def __init__(self, path: Path, fault: str) -> None:
        lines = path.read_bytes().split(b"\n")[:-1]
        if fault == "takes records apart":
            lines = path.read_bytes().replace(b"\r", b"\n").split(b"\n")[:-1]
        if fault == "refuses" and b"x" in lines:
            raise DataFormatError("a line is no number")
        if fault == "warns" and b"x" in lines:
            warnings.warn("a line is no number", stacklevel=2)
        known = np.array([float(line) if line.strip().isdigit() else np.nan for line in lines])
        if fault == "scales by the largest":
            known /= max(np.nanmax(known, initial=0.0), 1.0)
        self.width = 1
        self._shown = len(lines) if fault == "shows its length" else 0
        self._rows = known[:, None]

    def __repr__(self) -> str:
        return f"Lines({self._shown})"

    def chunks(self) -> Any:
        return Matrix(self._rows).chunks()


def write_lines(records: Any, folder: Path) -> Path:
    path = folder / "lines"
    path.write_bytes(b"".join(record + b"\n" for record in records))
    return path


@kills("readers", "an audit of readers that hears no warning and no refusal")
@edit("audit/readers.py", "if one.observable != other.observable:", "if False:")
@kills("readers", "an audit of readers that lets a record change any number of units")
@edit("audit/readers.py", "if max(more, less) > 1:", "if min(more, less) > 10**6:")
@pytest.mark.parametrize(
    "fault", ["", "takes records apart", "refuses", "warns", "scales by the largest", "shows its length"]
)
def test_a_reader_that_breaks_the_law_is_found(fault: str) -> None:
    records = [b"1", b"2", b"x", b"3\r4\r5"]
    checks = audit.check_reader("lines", write_lines, lambda path: Lines(path, fault), records, b"900")
    assert bool(findings(checks)) == bool(fault)


# --- words that a fit finds ---------------------------------------------------------------------------------


def test_the_release_of_words_keeps_what_it_promises() -> None:
    checks = [*words.check_words()]
    assert len(checks) == 3
    assert not findings(checks)


def test_a_threshold_that_is_too_low_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = names.Threshold.least
    monkeypatch.setattr(names.Threshold, "least", lambda self, grid: right(self, grid) - int(2 / grid.step))
    assert set(findings(words.check_words())) == {
        "words of one unit alone",
        "words of one unit alone, by the law of the noise",
    }


def test_units_that_give_all_their_words_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_of_them(source: Any, num_names: int, most: int, grid: Any, drawn: Any) -> Any:
        return right(source, num_names, 10**5, grid, drawn)

    right = names.totals
    monkeypatch.setattr(words, "totals", all_of_them)
    assert set(findings(words.check_words())) == {"one unit more"}
