"""Fits that a ledger counts: charged before they look, killed anywhere, continued at the least cost."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import itertools
import json
import multiprocessing
import os
import pickle
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import joblib
import killed_fit
import numpy as np
import pytest
from killed_fit import POINTS, STEPS, data, fitted, model
from planted import edit, kills
from scipy.stats import chisquare
from sklearn.base import clone
from small_models import table

import dpvb
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import add, cost_units, covered_units
from dpvb.core.blocks import Block
from dpvb.core.forms import Rows
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.errors import BudgetError, CheckpointError, LedgerError, NotRecordedWarning, ParameterError
from dpvb.ledger import Ledger
from dpvb.runs.checkpoint import Checkpoint, Seal
from dpvb.runs.journal import RunJournal

# Each child is forked from one process that has imported everything and has no threads.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["dpvb.estimators.generalized_linear", "dpvb.ledger.sqlite"])


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


def killed(path: Path, checkpoint: Path, point: str, count: int, epsilon: float = 1.0) -> None:
    """Run a fit in a process of its own until it dies."""
    child = SERVER.Process(target=killed_fit.main, args=(str(path), str(checkpoint), point, count, epsilon))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL


def release(checkpoint: Path, entry: Any) -> Any:
    """The release of a row, from the folder."""
    return Checkpoint(checkpoint).release(entry.step, entry.attempt, Seal(entry.digest, entry.unseals))


def costs(plan: Plan, steps: list[int]) -> tuple[int, ...]:
    """Counted by hand: the whole plan, and these releases once more, each in whole units, at a cap of 4."""
    plans = [plan.events(), *([plan.releases[step].event()] for step in steps)]
    counted = [
        covered_units(Composition(events, plan.neighboring_relation), epsilon=4 * 10**9, delta=1e-5, normal=True)
        for events in plans
    ]
    return reduce(add, counted)


@pytest.fixture
def plan(path: Path) -> Iterator[list[Plan]]:
    """The plan of the next fit in this process."""
    seen: list[Plan] = []
    made = RunJournal.__init__

    def spy(self: RunJournal, ledger: Ledger, dataset: str, plan: Plan, **given: Any) -> None:
        seen.append(plan)
        made(self, ledger, dataset, plan, **given)

    RunJournal.__init__ = spy  # type: ignore[method-assign]
    yield seen
    RunJournal.__init__ = made  # type: ignore[method-assign]


@pytest.mark.guarantees("killed fits")
@kills("leaks", "the token of a run left in its folder", "before the end-part of the cap")
@edit(
    "runs/journal.py",
    "        self._writes = False\n        if self._checkpoint is not None:",
    "        self._writes = False\n        if self._checkpoint is None:",
)
@pytest.mark.parametrize("epsilon", [1.0, 4.0], ids=["part of the cap", "the whole cap"])
@pytest.mark.parametrize("point", POINTS)
def test_a_fit_killed_anywhere_goes_on(
    point: str, epsilon: float, path: Path, tmp_path: Path, plan: list[Plan]
) -> None:
    """What is on record is never made again, what is not is made for the first charge; a whole cap suffices for it."""
    checkpoint = tmp_path / "run"
    count = 1 if "folder" in point or "charge" in point else 2
    killed(path, checkpoint, point, count, epsilon)
    before = Counter((entry.step, entry.digest) for entry in _released(path))
    result = fitted(path, checkpoint, epsilon=epsilon)
    history = rows(path)
    released = [entry for entry in history if entry.state == "released"]
    # Everything that was on record before is the run's still, bit for bit.
    assert Counter((entry.step, entry.digest) for entry in released) >= before
    assert [entry.step for entry in released] == list(range(len(plan[0])))
    assert all(release(checkpoint, entry) is not None for entry in released)
    assert totals(charges(history)[-1]) == costs(plan[0], [])
    assert len(charges(history)) == 1
    assert history[-1].state == "finished"
    assert not (checkpoint / "token").exists()
    assert np.isfinite(result.coef_).all()
    assert result.privacy_.run_id == history[-1].run
    assert result.privacy_.charge is not None
    with Ledger(path) as ledger:
        ledger.verify([result.privacy_.charge])


def _released(path: Path) -> list[Any]:
    with Ledger(path) as found:
        return [entry for entry in found.entries() if entry.state == "released"]


@pytest.mark.guarantees("lost releases")
@kills("crashes", "a release that is on record and lost made again for nothing")
@edit("runs/journal.py", 'if (step, "") in self._released and', "if False and")
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_bytes(bytes(100))])
def test_a_release_on_record_whose_bytes_are_lost_is_charged_again(
    damage: Any, path: Path, tmp_path: Path, plan: list[Plan]
) -> None:
    """Once: what was charged again and not made is made for that charge, however often the process dies."""
    checkpoint = tmp_path / "run"
    killed(path, checkpoint, "after it is on record", 3)
    for file in sorted(checkpoint.glob("release-*"))[1:]:
        damage(file)
    killed(path, checkpoint, "after the noise is drawn", 1)
    fitted(path, checkpoint)
    history = rows(path)
    assert totals(charges(history)[-1]) == costs(plan[0], [1, 2])
    assert [entry.facts["steps"] for entry in charges(history)[1:]] == [[1], [2]]
    released = [entry for entry in history if entry.state == "released"]
    assert [entry.step for entry in released] == [0, 1, 2, 1, 2, *range(3, len(plan[0]))]
    found = [release(checkpoint, entry) for entry in released]
    assert [total is None for total in found] == [False, True, True] + [False] * (len(found) - 3)


@pytest.mark.guarantees("lost releases")
@kills("crashes", "the key of a release left beside it")
@edit(
    "runs/checkpoint.py",
    "        return Seal(hashlib.sha256(sealed)",
    '        own.write_own(self.path / "release.key", key.hex().encode())\n        return Seal(hashlib.sha256(sealed)',
)
@kills("crashes", "a release that can be read before it is on record")
@edit("runs/checkpoint.py", "sealed = AESGCM(key).encrypt(_NONCE, packed, None)", "sealed = packed")
def test_what_is_sealed_and_not_on_record_tells_nothing(path: Path, tmp_path: Path) -> None:
    """Whoever sees every file and every row of a process that died sees bytes without their key."""
    killed(path, tmp_path / "run", "after the release is sealed", 2)
    sealed = sorted((tmp_path / "run").glob("release-*"))
    keys = [entry.unseals for entry in _released(path)]
    assert len(sealed) == 2
    assert len(keys) == 1
    held = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    cipher = sealed[1].read_bytes()
    folder, digest = Checkpoint(tmp_path / "run"), hashlib.sha256(cipher).hexdigest()
    for key in [*keys, *(held[n : n + 64].decode("latin1") for n in range(len(held) - 64))]:
        with contextlib.suppress(ValueError):
            assert folder.release(1, 0, Seal(digest, key)) is None
    counts = np.bincount(np.frombuffer(cipher, np.uint8), minlength=256)
    assert chisquare(counts).pvalue > 1e-6  # Of bytes that are uniform in all who do not know the key.


@pytest.mark.guarantees("interrupted runs")
def test_nothing_is_decided_by_the_data_of_an_interrupted_run(tmp_path: Path) -> None:
    """The same, one row less, other rows: the same steps, charges, files and words."""
    x_nd, y_n = data()
    said = []
    for name, rows_ in (("same", 60), ("less", 59), ("none", 0)):
        address = tmp_path / f"{name}.db"
        with Ledger(address) as made:
            made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
        killed(address, tmp_path / name, "after the data are read", 2)
        fitted(address, tmp_path / name, x_nd[:rows_], y_n[:rows_])
        history = rows(address)
        said.append(
            (
                [(entry.kind, entry.state, entry.step, entry.attempt, entry.cost) for entry in history],
                sorted((file.name, file.stat().st_size) for file in (tmp_path / name).glob("release-*")),
            )
        )
    assert said[0] == said[1] == said[2]


def test_no_budget_for_a_second_time_stops_before_the_data_are_read(path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "after it is on record", 2, epsilon=4.0)
    for file in (tmp_path / "run").glob("release-*"):
        file.unlink()
    unread = Wall._sums
    Wall._sums = None  # type: ignore[method-assign,assignment]
    try:
        with pytest.raises(BudgetError) as caught:
            fitted(path, tmp_path / "run", epsilon=4.0)
    finally:
        Wall._sums = unread  # type: ignore[method-assign]
    assert any("Repeat the same call to continue." in note for note in caught.value.__notes__)


@pytest.mark.parametrize("damage", [lambda file: file.chmod(0o644), lambda file: os.truncate(file, 2**40)])
def test_a_release_that_cannot_be_read_is_not_charged_again(damage: Any, path: Path, tmp_path: Path) -> None:
    """It is not lost: whoever mends its mode, or makes room, goes on for nothing."""
    checkpoint = tmp_path / "run"
    killed(path, checkpoint, "after it is on record", 2, epsilon=4.0)
    (file,) = checkpoint.glob("release-00000-*")
    size = file.stat().st_size
    damage(file)
    with pytest.raises(CheckpointError, match=r"others may read|more than"):
        fitted(path, checkpoint, epsilon=4.0)
    os.truncate(file, size)
    file.chmod(0o600)
    fitted(path, checkpoint, epsilon=4.0)
    assert len(charges(rows(path))) == 1


def test_a_plan_that_was_refused_leaves_the_folder_free(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BudgetError):
        fitted(path, tmp_path / "run", epsilon=5.0)
    fitted(path, tmp_path / "run", epsilon=1.0)
    assert len(charges(rows(path))) == 1


def test_an_interruption_just_after_the_charge_gives_all_of_it_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Ledger.charge

    def interrupted(self: Ledger, *given: Any, **more: Any) -> Any:
        plain(self, *given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(Ledger, "charge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(path, None, epsilon=0.5)
    history = rows(path)
    assert [entry.kind for entry in history] == ["charge", "event", "refund"]
    for charged, left in zip(totals(history[0]), totals(history[-1]), strict=True):
        assert 0 <= left <= charged * 4e-9 + 2 or charged >= 2**60  # Costs are rounded up, refunds down.


@kills("crashes", "a mark that speaks of its first step alone")
@edit("runs/journal.py", "step=self._started - 1)", "step=step)")
def test_nothing_that_has_begun_comes_back_in_the_middle_of_a_fit(path: Path) -> None:
    """By the interface, and by the holder of the token, after every step."""
    refused = 0

    def take_back(step: int, plan: Plan) -> None:
        nonlocal refused
        (run,) = {entry.run for entry in ledger.entries() if entry.run}
        for unstarted in (plan.releases, plan.releases[1:], plan.releases[step - 1 :]):
            with pytest.raises(LedgerError, match="fewer releases left"):
                ledger.refund(run, unstarted=Composition(replace(plan, releases=unstarted).events(), RELATION))
            refused += 1

    with Ledger(path) as ledger:
        fitted(ledger, None, epsilon=0.5, n_steps=58, progress=take_back)
    assert refused >= 3 * 58
    assert [entry.kind for entry in rows(path) if entry.kind != "event"] == ["charge"]


RELATION: Any = "add_or_remove_one"
PLAN = Plan([Release({"a": Block((2,), 1.0)}, Mechanism(FullBatch(), 5.0))] * 2, unit="row")
TOTAL = {"a": np.array([1.0, 2.0])}


def _reports(path: Path, folder: Path) -> None:
    with Ledger(path) as ledger:
        try:
            RunJournal(ledger, "people", PLAN, checkpoint=Checkpoint(folder / "run"))
        except CheckpointError as error:
            (folder / "said").write_text(str(error))


@pytest.mark.guarantees("one process")
@kills("crashes", "two processes at work in one folder")
@edit("runs/checkpoint.py", 'self._lock = file_ownership.locked(self.path / "lock")', "pass")
def test_two_processes_in_one_folder_are_one_run(path: Path, tmp_path: Path) -> None:
    """One runs, and the other is told so; the same within one process."""
    with Ledger(path) as one, Ledger(path) as two:
        first = RunJournal(one, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        with pytest.raises(CheckpointError, match="another process is at work"):
            RunJournal(two, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        child = SERVER.Process(target=_reports, args=(path, tmp_path))
        child.start()
        child.join(120)
        assert "another process is at work" in (tmp_path / "said").read_text()
        first.begin(0)
        first.record(0, TOTAL)
        first.close()
        second = RunJournal(two, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        np.testing.assert_array_equal((second.recorded(0) or {})["a"], TOTAL["a"])
        second.close()


@pytest.mark.guarantees("one process")
def test_an_older_attempt_is_fenced_off(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where locks do nothing, a process that slept while another went on cannot release anything any more."""
    monkeypatch.setattr(Checkpoint, "hold", lambda self: None)
    with Ledger(path) as one, Ledger(path) as two:
        old = RunJournal(one, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        old.begin(0)
        new = RunJournal(two, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        with pytest.raises(LedgerError, match="taken over"):
            old.record(0, TOTAL)
        assert new.recorded(0) is None
        new.begin(0)
        new.record(0, TOTAL)
        newest = RunJournal(two, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        np.testing.assert_array_equal((newest.recorded(0) or {})["a"], TOTAL["a"])


@kills("crashes", "a history that is read before the fence")
@edit(
    "runs/journal.py",
    "                history = self._ledger.history(self.name)  # From now on",
    "                # From now on",
)
def test_what_is_put_on_record_while_another_attempt_begins_is_not_made_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where locks do nothing: an older attempt is heard until it is fenced off, and what it said then counts."""
    monkeypatch.setattr(Checkpoint, "hold", lambda self: None)
    with Ledger(path) as one, Ledger(path) as two:
        old = RunJournal(one, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        old.begin(0)
        plain = two.append

        def late(run: str, **given: Any) -> Any:
            if given["state"] == "resumed":
                old.record(0, TOTAL)
            return plain(run, **given)

        monkeypatch.setattr(two, "append", late)
        new = RunJournal(two, "people", PLAN, checkpoint=Checkpoint(tmp_path / "run"))
        np.testing.assert_array_equal((new.recorded(0) or {})["a"], TOTAL["a"])


@kills("crashes", "a release taken for what something else asked for")
@edit("runs/journal.py", "key=seal.key, request=request or None)", "key=seal.key, request=None)")
def test_each_release_is_given_for_what_asked_for_it(tmp_path: Path) -> None:
    """The plan's, and two beyond it, in any order of deaths: each is charged once, and never taken for another."""
    sums = {name: {"a": np.full(2, float(number))} for number, name in enumerate(("", "first", "second"))}
    for number, order in enumerate(itertools.permutations(sums)):
        address, folder = tmp_path / f"{number}.db", tmp_path / str(number)
        with Ledger(address) as ledger:
            ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=9.0, delta=1e-5)
            for name in order:  # Each is charged and begun, and the process dies.
                run = RunJournal(ledger, "people", PLAN, checkpoint=Checkpoint(folder))
                (run if name == "" else run.repeated(0, name)).begin(0)
                run.close()
            for name in order[::-1]:  # Now each is made, and the process dies.
                run = RunJournal(ledger, "people", PLAN, checkpoint=Checkpoint(folder))
                journal = run if name == "" else run.repeated(0, name)
                assert journal.recorded(0) is None
                journal.begin(0)
                journal.record(0, sums[name])
                run.close()
            run = RunJournal(ledger, "people", PLAN, checkpoint=Checkpoint(folder))
            for name, total in sums.items():
                journal = run if name == "" else run.repeated(0, name)
                np.testing.assert_array_equal((journal.recorded(0) or {})["a"], total["a"])
            run.close()
            assert len(charges(ledger.history(run.name))) == 3


@pytest.mark.guarantees("one process")
@kills("crashes", "a forked child gives back what its parent was charged", "False")
@edit("runs/journal.py", "if not self._writes or not self._origin.is_here:", "if not self._writes:")
@edit("ledger/store.py", "session.tokens.clear()", "pass")
@kills("crashes", "a forked child goes on with its parent's fit", "False")
@edit("core/forks.py", "return self._num_forks == _num_forks", "return True")
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fit_goes_on_in_one_process_after_a_fork(counted: bool, path: Path, tmp_path: Path) -> None:
    """Forked anywhere in a fit, the child releases nothing, gives nothing back, and leaves the run to its parent."""
    children: list[int] = []
    said = tmp_path / "said"

    def fork(step: int, plan: Plan) -> None:
        if (child := os.fork()) == 0:
            children[:] = [0]
            raise_in_child.append(step)
        else:
            children.append(child)

    raise_in_child: list[int] = []
    try:
        fitted(path, tmp_path / "run" if counted else None, epsilon=0.5, progress=fork)
    except BaseException as error:
        if children == [0]:
            with open(said, "a") as file:
                file.write(f"{type(error).__name__} {error}\n")
            os._exit(0)
        raise
    if children[:1] == [0]:
        os._exit(1)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    words = said.read_text().splitlines()
    assert len(words) == len(children) > 2
    assert all(line.startswith("PrivacyError this ") for line in words)
    history = rows(path)
    assert len(charges(history)) == 1
    assert history[-1].state == "finished"
    assert not [entry for entry in history if entry.kind == "refund" or entry.state == "abandoned"]


@pytest.mark.guarantees("checkpoints")
@kills("strangers", "a checkpoint in a folder that somebody else made")
@edit("runs/checkpoint.py", "            file_ownership.check_own_folder(self.path)\n", "")
def test_a_folder_of_a_stranger_is_refused(path: Path, tmp_path: Path) -> None:
    """Nothing that another user could have written is believed, and nothing is charged."""
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for number, stranger in enumerate(("", "run.json", "token")):
        checkpoint = tmp_path / f"run{number}"
        killed(path, checkpoint, "after the data are read", 2)
        before = len(rows_of(path))
        os.chown(checkpoint / stranger, 65534, 65534)
        with pytest.raises(CheckpointError, match="belongs to user 65534"):
            fitted(path, checkpoint)
        assert len(rows_of(path)) == before
        os.chown(checkpoint / stranger, 0, 0)
    (tmp_path / "link").symlink_to(tmp_path / "run0")
    with pytest.raises(CheckpointError, match="a link"):
        fitted(path, tmp_path / "link")


def rows_of(path: Path) -> list[Any]:
    with Ledger(path) as found:
        return found.entries()


def test_a_run_without_its_token_does_not_go_on(path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "after the data are read", 2)
    token = (tmp_path / "run" / "token").read_bytes()
    (tmp_path / "run" / "token").write_bytes(token[::-1])
    with pytest.raises(LedgerError, match="token"):
        fitted(path, tmp_path / "run")
    (tmp_path / "run" / "token").unlink()
    with pytest.raises(CheckpointError, match="token: is gone"):
        fitted(path, tmp_path / "run")
    assert len(charges(rows(path))) == 1


def test_a_folder_of_an_earlier_version_is_refused_with_the_way_out(path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "after the data are read", 2)
    manifest = tmp_path / "run" / "run.json"
    for text in ('{"format": 1, "run": "x"}', '{"format": 2, "format": 2}', "[]", '{"format": NaN}', "\ud800" * 3):
        manifest.write_text(text, "utf-8", "surrogatepass")
        with pytest.raises(CheckpointError, match=r"end it with that version|damaged"):
            fitted(path, tmp_path / "run")


def test_a_run_that_knows_fewer_parameters_goes_on_and_one_that_knows_others_does_not(
    path: Path, tmp_path: Path
) -> None:
    """An earlier version did not know the provenance; a parameter that this one has lost is not passed over."""
    killed(path, tmp_path / "run", "after the data are read", 2)
    manifest = tmp_path / "run" / "run.json"
    facts = json.loads(manifest.read_text())
    facts["facts"]["params"]["lost"] = 1
    manifest.write_text(json.dumps(facts))
    with pytest.raises(CheckpointError, match="another lost"):
        fitted(path, tmp_path / "run")
    del facts["facts"]["params"]["lost"], facts["facts"]["params"]["provenance"]
    manifest.write_text(json.dumps(facts))
    fitted(path, tmp_path / "run")
    assert len(charges(rows(path))) == 1


@kills("leaks", "checkpoints hold sums without noise")
@edit(
    "core/wall.py",
    "self.__journal.record(step, total)",
    "self.__journal.record(step, {n: 1.0 * ints for n, ints in self._sums(query, release, step).items()})",
)
def test_an_ended_run_is_read_again_and_spends_nothing(path: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "run"
    first = fitted(path, checkpoint)
    before = len(rows(path))
    with pytest.raises(CheckpointError, match="has ended"):
        fitted(path, checkpoint)
    x_nd, y_n = data()
    again = fitted(path, checkpoint, 0 * x_nd, y_n, resume="load")  # The data are not asked.
    np.testing.assert_array_equal(again.coef_, first.coef_)
    assert len(rows(path)) == before
    with pytest.raises(CheckpointError, match="name its folder"):
        fitted(path, tmp_path / "none", resume="load")


@pytest.mark.parametrize(
    ("options", "what"), [({"epsilon": 0.9}, "plan"), ({"n_steps": STEPS + 1}, "plan"), ({"alpha": 2.0}, "alpha")]
)
def test_a_checkpoint_of_another_fit_is_refused(options: dict[str, Any], what: str, path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "after the data are read", 2)
    with pytest.raises(CheckpointError, match=f"another {what}"):
        fitted(path, tmp_path / "run", **options)
    assert len(charges(rows(path))) == 1


@pytest.mark.guarantees("checkpoints")
def test_checkpoints_hold_released_values_only(path: Path, tmp_path: Path) -> None:
    x_nd, y_n = data()
    canary = 0.1234567890123
    x_nd[7] = canary
    checkpoint = tmp_path / "run"
    fitted(path, checkpoint, x_nd, y_n)
    bytes_of = [np.array([canary], kind).tobytes() for kind in ("<f8", ">f8", "<f4", ">f4")] + [b"0.12345678901"]
    for file in [*checkpoint.iterdir(), *tmp_path.glob("budget.db*")]:
        assert not any(found in file.read_bytes() for found in bytes_of), file


@pytest.mark.guarantees("checkpoints")
def test_what_a_run_keeps_is_its_owners_alone(path: Path, tmp_path: Path) -> None:
    killed(path, tmp_path / "run", "after the data are read", 2)
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o600}
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == [
        "lock",
        "release-00000-0.sealed",
        "run.json",
        "token",
    ]


def _fit(estimator: Any) -> float:
    return float(estimator.fit(*data()).coef_[0, 0])


@pytest.mark.guarantees("copies")
@kills("choices", "fits of the same plan share one charge")
@edit(
    "runs/journal.py",
    "self.name, token, checkpoint = secrets.token_hex(16)",
    "self.name, token, checkpoint = self._plan.digest.hex()",
)
def test_every_copy_of_an_estimator_is_charged_once_a_fit(path: Path) -> None:
    with Ledger(path) as ledger:
        one = model(epsilon=0.1)
        with dpvb.Run(ledger=ledger, dataset="people"):
            copies = [one, clone(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
            for estimator in copies:
                estimator.fit(*data())
            joblib.Parallel(n_jobs=2)(joblib.delayed(_fit)(clone(one)) for _ in range(3))
        spent = [entry for entry in ledger.entries() if entry.kind in ("charge", "sole")]
        assert len(spent) == len({entry.run for entry in spent}) == 7
        ledger.verify()


class _Stop(BaseException):
    pass


@pytest.mark.guarantees("refunds")
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, _Stop])
@pytest.mark.parametrize("after", [1, 3])
def test_what_an_interrupted_fit_never_started_is_given_back(
    error: type[BaseException], after: int, path: Path, plan: list[Plan]
) -> None:
    def progress(step: int, plan: Plan) -> None:
        if step == after:
            raise error

    with pytest.raises(error) as caught:
        fitted(path, None, epsilon=0.5, progress=progress)
    history = rows(path)
    assert [entry.kind for entry in history if entry.kind != "event"][1:] == ["refund"]
    assert history[-1].kind == "refund" or history[-1].state == "abandoned"
    total = len(plan[0])
    assert any(f"{total - after} of {total} releases had not started" in note for note in caught.value.__notes__)
    spent = cost_units(Composition([r.event() for r in plan[0].releases[:after]], "add_or_remove_one"))
    last = max((entry for entry in history if entry.kind != "event"), key=lambda entry: entry.seq)
    slack = [kept - needed for kept, needed in zip(totals(last), spent, strict=False) if needed < 2**60]
    assert min(slack) >= 0  # never less than what the started releases cost,
    assert min(slack) < 100  # and at some order hardly more.


def test_a_first_plan_that_takes_the_whole_cap_is_not_given_back(path: Path) -> None:
    def progress(step: int, plan: Plan) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        fitted(path, None, epsilon=4.0, progress=progress)
    assert any("nothing is given back" in note for note in caught.value.__notes__)
    assert [entry.kind for entry in rows(path)] == ["sole", "event", "event"]
    with pytest.raises(BudgetError, match="epsilon limit 4, left 0,"):
        fitted(path, None, epsilon=0.1)


@pytest.mark.guarantees("charge first")
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

        def begin(self, step: int) -> None:
            order.append("begin")

        def record(self, step: int, total: Mapping[str, Any]) -> None:
            order.append("record")
            raise LedgerError("full")

    plan = Plan([Release({"a": Block((3,), 1.0)}, Mechanism(FullBatch(), 5.0))])
    wall: Wall[Any] = Wall(Watched(), plan, journal=Journal())
    with pytest.raises(LedgerError, match="full"):
        wall.release(lambda batch: {"a": Rows(batch)}, plan.releases[0])
    assert order == ["begin", "read", "record"]


@pytest.mark.guarantees("charge first")
@kills("crashes", "a plan beyond the cap granted")
@edit("ledger/__init__.py", "if sole or price.counted <= facts.cap:", "if sole or price.counted > 0:")
@edit(
    "ledger/state.py",
    'return "it is over the cap" if price.spent > self.datasets[entry.dataset].cap else ""',
    'return ""',
)
def test_budget_beyond_the_cap_is_refused_before_the_data_are_read(path: Path) -> None:
    class Unread:
        shape = (60, 2)

    with pytest.raises(BudgetError, match="left") as caught:
        fitted(path, None, epsilon=5.0)
    assert "4" in str(caught.value)
    with Ledger(path) as found:
        assert found.remaining("people").epsilon == pytest.approx(4.0)


def test_public_faults_cost_nothing(path: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    account = {"ledger": path, "dataset": "people"}
    bad: list[tuple[dict[str, Any], dict[str, Any], type[Exception]]] = [
        ({}, {"ledger": path}, ParameterError),
        ({"noise_multiplier": 50.0}, {"ledger": path}, ParameterError),
        ({}, {"dataset": "people"}, ParameterError),
        ({}, {"checkpoint": tmp_path / "run"}, ParameterError),
        ({}, {**account, "dataset": "unknown"}, LedgerError),
        ({}, {**account, "ledger": tmp_path / "none.db"}, LedgerError),
        ({"neighboring_relation": "replace_one"}, account, LedgerError),
        ({}, {**account, "resume": "again"}, ParameterError),
        ({}, {**account, "checkpoint": tmp_path / "full"}, CheckpointError),
        ({}, {**account, "checkpoint": tmp_path / "no" / "such"}, CheckpointError),
        ({"epsilon": np.inf}, account, ParameterError),
    ]
    for options, run, error in bad:
        with pytest.raises(error):
            model(**options).fit(*data(), run=dpvb.Run(**run))
    with pytest.raises(LedgerError):
        model().fit(*data(), group=np.arange(60), run=dpvb.Run(**account))  # The unit is a person then.
    assert not (tmp_path / "none.db").exists()
    with Ledger(path) as found:
        assert not [entry for entry in found.entries() if entry.kind != "dataset"]


def test_a_fit_without_a_ledger_warns_that_it_is_not_recorded(capfd: pytest.CaptureFixture[str]) -> None:
    model = dpvb.LogisticRegression(epsilon=0.75, delta=1e-5, n_steps=2, max_row_norm=1.0)
    with pytest.warns(NotRecordedWarning, match="not recorded in a ledger") as told:
        model.fit(*data())
    assert [warning.filename for warning in told if warning.category is NotRecordedWarning] == [__file__]
    assert capfd.readouterr() == ("", "")


FILTER = "warnings.simplefilter('ignore', __import__('dpvb.errors').errors.DpvbWarning)"


@pytest.mark.parametrize(("given", "times"), [("", 1), pytest.param(FILTER, 0, marks=pytest.mark.slow)])
def test_the_warning_of_fits_without_a_ledger_is_shown_once_per_process_and_can_be_filtered(
    given: str, times: int
) -> None:
    code = (
        f"import warnings, dpvb; {given}\n"
        "for epsilon in (0.5, 0.6, 0.7):\n"
        "    dpvb.LogisticRegression(epsilon=epsilon, delta=1e-5, max_row_norm=1.0).fit([[0.1]] * 40, [0, 1] * 20)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert said.count("not recorded in a ledger") == times


@pytest.mark.parametrize("sampling_prob", [None, 0.5], ids=["full batches", "sampled"])
def test_a_later_plan_is_calibrated_by_what_counts_it(sampling_prob: float | None, path: Path) -> None:
    """By privacy loss distributions: what counts is little more than that."""
    with Ledger(path) as ledger:
        fits = [fitted(ledger, None, sampling_prob=sampling_prob, epsilon=0.8) for _ in range(2)]
        first, second = (fitted.privacy_.releases[0].event.noise_multiplier for fitted in fits)
        assert second == first
        left = ledger.remaining("people")
    assert left.spent_if_fixed < left.spent_adaptive <= 4.0
    assert os.path.exists(path)
