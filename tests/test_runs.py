"""Fits that a ledger counts: charged before they look, killed anywhere, continued at the least cost."""

from __future__ import annotations

import copy
import json
import multiprocessing
import os
import pickle
import signal
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import joblib
import killed_fit
import numpy as np
import pytest
from killed_fit import POINTS, STEPS, data, model
from sklearn.base import clone
from small_models import table

import dpvb
from dpvb import runs
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import add, cost_units
from dpvb.blocks import Block
from dpvb.checkpoint import Checkpoint, digest_of
from dpvb.contributions import Rows
from dpvb.errors import BudgetError, CheckpointError, LedgerError, ParameterError
from dpvb.ledger import Ledger
from dpvb.mechanism import FullBatch, Mechanism, Plan, Release
from dpvb.noise import SecureNoise
from dpvb.wall import Wall

# Each child is forked from one process that has imported everything and has no threads.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["dpvb.estimators.regression", "dpvb.ledger.sqlite"])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger with one data set of cap 4."""
    with Ledger(tmp_path / "budget.db") as made:
        made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
    return tmp_path / "budget.db"


def rows(path: Path) -> list[Any]:
    """All rows of the only run in a ledger, in order."""
    with Ledger(path) as found:
        found.verify()
        (run,) = {entry.run for entry in found.entries() if entry.run}
        return found.history(run)


def totals(entry: Any) -> tuple[int, ...]:
    return tuple(json.loads(entry.totals))


def charges(history: list[Any]) -> list[Any]:
    return [entry for entry in history if entry.kind in ("charge", "sole")]


def killed(path: Path, checkpoint: Path, resume: str, point: str, count: int) -> None:
    """Run a fit in a process of its own until it dies."""
    child = SERVER.Process(target=killed_fit.main, args=(str(path), str(checkpoint), resume, point, count))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL


def costs(plan: Plan, steps: list[int]) -> tuple[int, ...]:
    """Counted by hand: the whole plan, and these releases once more, each in whole units."""
    total = cost_units(Composition(plan.events(), plan.neighboring_relation))
    for step in steps:
        again = [plan.releases[step].event()]
        total = add(total, cost_units(Composition(again, plan.neighboring_relation)))
    return total


@pytest.fixture
def plan(path: Path) -> Iterator[list[Plan]]:
    """The plan of the next fit in this process."""
    seen: list[Plan] = []
    made = runs.Run.__init__

    def spy(self: runs.Run, ledger: Ledger, dataset: str, plan: Plan, **given: Any) -> None:
        seen.append(plan)
        made(self, ledger, dataset, plan, **given)

    runs.Run.__init__ = spy  # type: ignore[method-assign]
    yield seen
    runs.Run.__init__ = made  # type: ignore[method-assign]


@pytest.mark.parametrize("resume", ["replay", "recharge"])
@pytest.mark.parametrize("point", POINTS)
def test_a_fit_killed_anywhere_goes_on(point: str, resume: str, path: Path, tmp_path: Path, plan: list[Plan]) -> None:
    """Replay never pays twice; recharge pays for at most the one step that may have run unseen."""
    if resume == "recharge" and "secret" in point:
        pytest.skip("no secret is written")
    checkpoint = tmp_path / "run"
    count = 1 if "secret" in point or "charge" in point else 2
    killed(path, checkpoint, resume, point, count)
    before = Counter((entry.step, entry.digest) for entry in _released(path))
    fitted = model(path, checkpoint, resume).fit(*data())
    history = rows(path)
    released = [entry for entry in history if entry.state == "released"]
    # Everything that was on record before is the run's still, bit for bit.
    assert Counter((entry.step, entry.digest) for entry in released) >= before
    assert [entry.step for entry in released] == list(range(len(plan[0])))
    for entry in released:
        assert Checkpoint(checkpoint).release(entry.step, entry.digest) is not None
    begun = point not in ("before the secret", "after the secret", "before the charge")
    begun &= point not in ("after the release is written", "before it is on record")  # It is used as it was written.
    steps = [len(before)] if resume == "recharge" and begun and len(before) < len(plan[0]) else []
    assert totals(charges(history)[-1]) == costs(plan[0], steps)
    assert len(charges(history)) == 1 + len(steps)
    assert history[-1].state == "finished"
    assert not Checkpoint(checkpoint).secret_path.exists()
    assert np.isfinite(fitted.coef_).all()
    assert fitted.privacy_.run_id == history[-1].run
    assert fitted.privacy_.charge is not None
    with Ledger(path) as ledger:
        ledger.verify([fitted.privacy_.charge])


def _released(path: Path) -> list[Any]:
    with Ledger(path) as found:
        return [entry for entry in found.entries() if entry.state == "released"]


def test_a_recorded_release_that_was_lost_is_made_again_bit_for_bit(path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run"
    killed(path, checkpoint, "replay", "after it is on record", 3)
    lost = [file for file in checkpoint.iterdir() if file.name.startswith("release-")]
    for file in lost:
        file.unlink()
    assert len(lost) == 3
    model(path, checkpoint, "replay").fit(*data())
    digests: dict[int, set[str]] = {}
    for entry in _released(path):
        digests.setdefault(entry.step, set()).add(entry.digest)
    assert all(len(found) == 1 for found in digests.values())
    assert len(charges(rows(path))) == 1


@pytest.mark.parametrize("fault", ["other programs", "another secret", "open secret", "torn file"])
def test_where_bits_cannot_be_the_same_a_step_is_charged_again(fault: str, path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run"
    killed(path, checkpoint, "replay", "after the data are read", 2)
    folder = Checkpoint(checkpoint)
    if fault == "other programs":
        manifest = folder.manifest()
        assert manifest is not None
        folder.write_manifest({**manifest, "programs": {}})
    elif fault == "another secret":
        folder.secret_path.unlink()
        SecureNoise.kept(folder.secret_path)
    elif fault == "open secret":
        folder.secret_path.chmod(0o644)
    else:
        (checkpoint / ".dpvb-0123456789abcdef.tmp").write_bytes(b"PK")
    model(path, checkpoint, "replay").fit(*data())
    assert not list(checkpoint.glob(".*"))
    again = charges(rows(path))[1:]
    assert [entry.facts["steps"] for entry in again] == [[1]]


def test_other_data_are_refused_unless_the_secret_is_given_up(path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run"
    killed(path, checkpoint, "replay", "after the data are read", 2)
    x_nd, y_n = data()
    with pytest.raises(CheckpointError, match="not the data that the run began with"):
        model(path, checkpoint, "replay").fit(x_nd[:-1], y_n[:-1])
    assert len(charges(rows(path))) == 1
    Checkpoint(checkpoint).secret_path.unlink()
    model(path, checkpoint, "replay").fit(x_nd[:-1], y_n[:-1])
    assert len(charges(rows(path))) == 2


def test_no_budget_for_a_second_time_stops_before_the_data_are_read(tmp_path: Path) -> None:
    with Ledger(tmp_path / "b.db") as made:
        made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-5)
    killed(tmp_path / "b.db", tmp_path / "run", "recharge", "after the data are read", 2)
    unread = Wall._sums
    Wall._sums = None  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(BudgetError) as caught:
            model(tmp_path / "b.db", tmp_path / "run", "recharge").fit(*data())
    finally:
        Wall._sums = unread  # type: ignore[method-assign]
    assert any("Continue with the same call" in note for note in caught.value.__notes__)


def test_an_older_attempt_is_fenced_off(path: Path, tmp_path: Path) -> None:
    """A process that slept while another went on cannot release anything any more."""
    plan = Plan([Release({"a": Block((2,), 1.0)}, Mechanism(FullBatch(), 5.0))] * 2, unit="row")
    with Ledger(path) as one, Ledger(path) as two:
        old = runs.Run(one, "people", plan, checkpoint=Checkpoint(tmp_path / "run"))
        old.begin(0, lambda: "same")
        new = runs.Run(two, "people", plan, checkpoint=Checkpoint(tmp_path / "run"))
        total = {"a": np.array([1.0, 2.0])}
        with pytest.raises(LedgerError, match="taken over"):
            old.record(0, total)
        assert new.recorded(0) is None
        assert not (tmp_path / "run" / "release-00000.dpvb").exists()
        new.begin(0, lambda: "same")
        new.record(0, total)
        assert digest_of(runs.Run(two, "people", plan, checkpoint=Checkpoint(tmp_path / "run")).recorded(0) or {}) == (
            digest_of(total)
        )


def test_an_ended_run_is_read_again_and_spends_nothing(path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run"
    fitted = model(path, checkpoint, "replay").fit(*data())
    before = len(rows(path))
    with pytest.raises(CheckpointError, match="has ended"):
        model(path, checkpoint, "replay").fit(*data())
    x_nd, y_n = data()
    again = model(path, checkpoint, "read").fit(0 * x_nd, y_n)  # The data are not asked.
    np.testing.assert_array_equal(again.coef_, fitted.coef_)
    assert len(rows(path)) == before
    with pytest.raises(CheckpointError, match="name its folder"):
        model(path, tmp_path / "none", "read").fit(*data())


@pytest.mark.parametrize(
    ("options", "what"), [({"epsilon": 0.9}, "plan"), ({"num_steps": STEPS + 1}, "plan"), ({"alpha": 2.0}, "facts")]
)
def test_a_checkpoint_of_another_fit_is_refused(options: dict[str, Any], what: str, path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "replay", "after the data are read", 2)
    with pytest.raises(CheckpointError, match=f"another {what}"):
        model(path, tmp_path / "run", "replay", **options).fit(*data())
    assert len(charges(rows(path))) == 1


def test_checkpoints_hold_released_values_only(path: Path, tmp_path: Path) -> None:
    x_nd, y_n = data()
    canary = 0.1234567890123
    x_nd[7] = canary
    checkpoint = tmp_path / "run"
    model(path, checkpoint, "replay").fit(x_nd, y_n)
    bytes_of = [np.array([canary], kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")] + [b"0.12345678901"]
    for file in [*checkpoint.iterdir(), *tmp_path.glob("budget.db*")]:
        assert not any(found in file.read_bytes() for found in bytes_of), file


def test_the_secret_is_its_owners_alone(path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "replay", "after the data are read", 2)
    secret = tmp_path / "run.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    kept = secret.read_bytes().split()[-1]
    assert not any(kept in file.read_bytes() for file in (tmp_path / "run").iterdir())
    killed(path, tmp_path / "other", "recharge", "after the data are read", 2)
    assert not (tmp_path / "other.secret").exists()
    twice = SecureNoise.reopened(secret), SecureNoise.reopened(secret)
    assert twice[0] is not None
    assert twice[1] is not None
    assert (twice[0].uniform_bits(9, step=0, purpose="x") == twice[1].uniform_bits(9, step=0, purpose="x")).all()
    for damaged in (b"", b"dpvb run secret 1\nab zz\n", secret.read_bytes()[:-9]):
        secret.write_bytes(damaged)
        assert SecureNoise.reopened(secret) is None


def _fit(estimator: Any) -> float:
    return float(estimator.fit(*data()).coef_[0, 0])


def test_every_copy_of_an_estimator_is_charged_once_a_fit(path: Path) -> None:
    with Ledger(path) as ledger:
        one = model(ledger, None, "replay", epsilon=0.1)
        copies = [one, clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
        for estimator in copies:
            estimator.fit(*data())
        joblib.Parallel(n_jobs=2)(joblib.delayed(_fit)(clone(one)) for _ in range(3))
        spent = [entry for entry in ledger.entries() if entry.kind in ("charge", "sole")]
        assert len(spent) == len({entry.run for entry in spent}) == 7
        ledger.verify()


class _Stop(BaseException):
    pass


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, _Stop])
@pytest.mark.parametrize("after", [1, 3])
def test_what_an_interrupted_fit_never_started_is_given_back(
    error: type[BaseException], after: int, path: Path, plan: list[Plan]
) -> None:
    def progress(step: int, plan: Plan) -> None:
        if step == after:
            raise error

    with pytest.raises(error) as caught:
        model(path, None, "replay", epsilon=0.5).fit(*data(), progress=progress)
    history = rows(path)
    assert [entry.kind for entry in history if entry.kind != "event"][1:] == ["refund"]
    assert history[-1].kind == "refund" or history[-1].state == "abandoned"
    total = len(plan[0])
    assert any(f"{total - after} of {total} releases had not started" in note for note in caught.value.__notes__)
    spent = cost_units(Composition([r.event() for r in plan[0].releases[:after]], "add_or_remove_one"))
    last = max((entry for entry in history if entry.kind != "event"), key=lambda entry: entry.seq)
    slack = [kept - needed for kept, needed in zip(totals(last), spent, strict=True) if needed < 2**60]
    assert min(slack) >= 0  # never less than what the started releases cost,
    assert min(slack) < 100  # and at some order hardly more.


def test_a_first_plan_that_takes_the_whole_cap_is_not_given_back(path: Path) -> None:
    def progress(step: int, plan: Plan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        model(path, None, "replay", epsilon=4.0).fit(*data(), progress=progress)
    assert any("nothing is given back" in note for note in caught.value.__notes__)
    assert [entry.kind for entry in rows(path)] == ["sole", "event"]
    with pytest.raises(BudgetError, match="0 of 4 left"):
        model(path, None, "replay", epsilon=0.1).fit(*data())


def test_a_ledger_is_asked_before_the_data_and_the_result_is_recorded_before_it_is_told() -> None:
    order: list[str] = []
    units = table(np.ones((5, 3)))

    class Watched:
        def count(self) -> int:
            return units.count()

        def chunks(self) -> Any:
            order.append("read")
            return units.chunks()

    class Journal:
        def recorded(self, step: int) -> None:
            return None

        def begin(self, step: int, fingerprint: Any) -> None:
            order.append("begin")

        def record(self, step: int, total: Mapping[str, Any]) -> None:
            order.append("record")
            raise LedgerError("full")

    plan = Plan([Release({"a": Block((3,), 1.0)}, Mechanism(FullBatch(), 5.0))])
    wall: Wall[Any] = Wall(Watched(), plan, journal=Journal())
    with pytest.raises(LedgerError, match="full"):
        wall.release(lambda batch: {"a": Rows(batch)}, plan.releases[0])
    assert order == ["begin", "read", "record"]


def test_budget_beyond_the_cap_is_refused_before_the_data_are_read(path: Path) -> None:
    class Unread:
        shape = (60, 2)

    with pytest.raises(BudgetError, match="left") as caught:
        model(path, None, "replay", epsilon=5.0).fit(*data())
    assert "4" in str(caught.value)
    with Ledger(path) as found:
        assert found.remaining("people").epsilon == pytest.approx(4.0)


def test_public_faults_cost_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    bad: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"dataset": None}, ParameterError),
        ({"dataset": None, "noise_multiplier": 50.0}, ParameterError),
        ({"ledger": None}, ParameterError),
        ({"ledger": None, "dataset": None, "checkpoint": tmp_path / "run"}, ParameterError),
        ({"dataset": "unknown"}, LedgerError),
        ({"ledger": tmp_path / "none.db"}, LedgerError),
        ({"neighboring_relation": "replace_one"}, LedgerError),
        ({"resume": "again"}, ParameterError),
        ({"checkpoint": tmp_path / "full"}, CheckpointError),
        ({"checkpoint": tmp_path / "no" / "such"}, CheckpointError),
        ({"epsilon": np.inf}, ParameterError),
    ]
    for options, error in bad:
        estimator = model(path, None, "replay").set_params(**options)
        with pytest.raises(error):
            estimator.fit(*data())
    with pytest.raises(LedgerError):
        model(path, None, "replay").fit(*data(), group=np.arange(60))  # The unit is a person then.
    assert not (tmp_path / "none.db").exists()
    with Ledger(path) as found:
        assert not [entry for entry in found.entries() if entry.kind != "dataset"]


def test_without_a_ledger_a_fit_says_that_nobody_keeps_count(capfd: pytest.CaptureFixture[str]) -> None:
    dpvb.LogisticRegression(epsilon=0.75, delta=1e-5, num_steps=2).fit(*data())
    said = capfd.readouterr()
    assert said.out == ""
    assert "epsilon = 0.75" in said.err
    assert "nobody keeps count" in said.err


def test_a_later_plan_is_calibrated_by_the_filter(path: Path) -> None:
    with Ledger(path) as ledger:
        first = model(ledger, None, "replay").fit(*data())
        second = model(ledger, None, "replay").fit(*data())
        noise = [fitted.privacy_.releases[0].event.noise_multiplier for fitted in (first, second)]
        assert noise[1] > noise[0]  # Rényi asks for more noise than privacy loss distributions.
        left = ledger.remaining("people")
    assert left.spent_if_fixed < left.spent_adaptive <= 4.0
    assert os.path.exists(path)
