"""One history: whatever happens to the files, objects and processes of a ledger, there are never two of it."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest
from planted import edit, kills
from test_ledger import FACTS, charge, in_child, plan

from dpvb.errors import LedgerError, ParameterError
from dpvb.ledger import Ledger, sqlite
from dpvb.ledger import head as seen_module
from dpvb.ledger.head import Head, Seen
from dpvb.ledger.sqlite import SqliteStore

COST = plan(2.5)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
    return tmp_path / "budget.db"


def spend(ledger: Ledger, who: str, most: int = 1000) -> list[str]:
    """Runs whose charges are acknowledged, until one is refused."""
    names: list[str] = []
    with suppress(LedgerError):
        while len(names) < most:
            charge(ledger, f"{who} {len(names)}", COST)
            names.append(f"{who} {len(names)}")
    return names


def most_charges(folder: Path) -> int:
    with Ledger(folder / "alone.db") as alone:
        alone.register("notes", **FACTS)
        return len(spend(alone, "alone"))


class Process:
    """Another process that does to a ledger what it is told, and answers."""

    def __init__(self, path: Path | str, *, user: Path | None = None) -> None:
        (child_in, self._out), (self._in, child_out) = os.pipe(), os.pipe()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.close(self._out)
                os.close(self._in)
                if user is not None:
                    os.environ["XDG_STATE_HOME"] = str(user)
                self._serve(path, child_in, child_out)
            finally:
                os._exit(0)
        os.close(child_in)
        os.close(child_out)
        self._lines = os.fdopen(self._in)

    @staticmethod
    def _serve(path: Path | str, inlet: int, outlet: int) -> None:
        ledger: Ledger | None = None
        with os.fdopen(inlet) as lines:
            for line in lines:
                what, who = json.loads(line)
                try:
                    ledger = ledger or Ledger(path)
                    answer = done(ledger, what, who)
                except LedgerError as error:
                    answer = [f"refused: {error}"]
                os.write(outlet, json.dumps(answer).encode() + b"\n")

    def ask(self, what: str, who: str = "") -> list[str]:
        os.write(self._out, json.dumps([what, who]).encode() + b"\n")
        return list(json.loads(self._lines.readline()))

    def end(self) -> None:
        os.close(self._out)
        self._lines.close()
        os.waitpid(self._child, 0)


def done(ledger: Ledger, what: str, who: str) -> list[str]:
    """Do one thing; the runs that were acknowledged."""
    if what == "charge":
        return spend(ledger, who, 1)
    if what == "spend":
        return spend(ledger, who)
    if what == "verify":
        ledger.verify()
    elif what == "close":
        ledger.close()
    elif what == "runs":
        return [entry.run for entry in ledger.entries() if entry.kind == "charge"]
    elif what == "copy":
        with copy.copy(ledger) as other:
            other.remaining("notes")
    else:
        ledger.remaining("notes")
    return []


@pytest.fixture
def processes() -> Iterator[Callable[..., Process]]:
    begun: list[Process] = []

    def begin(path: Path, **given: Any) -> Process:
        begun.append(Process(path, **given))
        return begun[-1]

    yield begin
    for process in reversed(begun):  # A later one holds the ends of the pipes of those before it.
        process.end()


ACTIONS = ("charge", "charge", "verify", "close", "copy", "look")


@pytest.mark.guarantees("one history")
@pytest.mark.parametrize("seed", range(6))
def test_objects_and_processes_have_one_history(
    path: Path, seed: int, tmp_path: Path, processes: Callable[..., Process]
) -> None:
    """In any order of charges, looks, checks and closings: all that is acknowledged is there, and within the cap."""
    draw, others = random.Random(seed), [processes(path) for _ in range(2)]
    objects = [Ledger(path) for _ in range(3)]
    names: set[str] = set()
    for k in range(40):
        what, who = draw.choice(ACTIONS), draw.randrange(5)
        names |= set(done(objects[who], what, f"{k}") if who < 3 else others[who - 3].ask(what, f"{k}"))
    for ledger in objects:
        names |= set(spend(ledger, f"last {id(ledger)}"))
    names |= {name for number, other in enumerate(others) for name in other.ask("spend", f"end {number}")}
    draw.shuffle(objects)
    for ledger in objects:
        ledger.close()
    assert [other.ask("close") for other in others] == [[], []]
    with Ledger(path) as found:
        found.verify()
        assert {entry.run for entry in found.entries() if entry.kind == "charge"} == names
    assert len(names) == most_charges(tmp_path)


@pytest.mark.guarantees("one history")
@kills("crashes", "the database opened beside SQLite, whose locks are dropped by that")
@edit("ledger/sqlite.py", "sha256(fresh.serialize())", "sha256(self._path.read_bytes())")
def test_nothing_but_sqlite_opens_the_database(path: Path) -> None:
    """Closing any other descriptor of it would drop the locks of the whole process."""
    opened: list[str] = []
    wanted = {str(path), f"{path}-wal", f"{path}-shm"}
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    with Ledger(path) as ledger, copy.copy(ledger) as other:
        charge(ledger, "run")
        other.verify()
        ledger.close()
        ledger.verify()
    with Ledger(path, read_only=True) as ledger:
        ledger.verify()
        ledger.export(path.with_name("chain.jsonl"))
    assert str(path.with_name("budget.db.head")) in opened
    assert not wanted & set(opened)


def replaced(path: Path) -> None:
    shutil.copy(path, path.with_name("new"))
    os.replace(path.with_name("new"), path)


def without_its_log(path: Path) -> None:
    for name in ("-wal", "-shm"):
        path.with_name(path.name + name).unlink()


def replaced_without_its_log(path: Path) -> None:
    replaced(path)
    without_its_log(path)


def replaced_with_its_log(path: Path) -> None:
    replaced(path)
    for name in ("-wal", "-shm"):
        replaced(path.with_name(path.name + name))


def all_replaced(path: Path) -> None:
    replaced_with_its_log(path)
    replaced(path.with_name("budget.db.head"))


def renamed_and_copied(path: Path) -> None:
    path.rename(path.with_name("old.db"))
    shutil.copy(path.with_name("old.db"), path)


WAYS = [replaced, without_its_log, replaced_without_its_log, replaced_with_its_log, all_replaced, renamed_and_copied]


@pytest.mark.guarantees("one history")
@pytest.mark.parametrize("mine_first", [True, False])
@pytest.mark.parametrize("before", [pytest.param(0, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("way", WAYS)
def test_files_that_are_replaced_while_they_are_open(
    path: Path, way: Callable[[Path], None], before: int, mine_first: bool, tmp_path: Path, processes: Any
) -> None:
    """Two processes, of two users who know nothing of each other: together they never get more than one alone."""
    other = processes(path, user=tmp_path / "another")
    mine = Ledger(path)
    names = spend(mine, "early", before)
    way(path)
    if mine_first:
        names += spend(mine, "mine")
    names += [name for name in other.ask("spend", "other") if not name.startswith("refused")]
    names += spend(mine, "mine again")
    mine.close()
    other.ask("close")
    assert len(names) <= most_charges(tmp_path)
    with suppress(LedgerError), Ledger(path) as found:  # It may have to be restored; it never forgets in silence.
        found.verify()
        assert {entry.run for entry in found.entries() if entry.kind == "charge"} >= set(names)


@kills("crashes", "a file replaced while it is open, and nobody looks")
@edit(
    "ledger/sqlite.py",
    "return bool(self._places) and (_identity(self._path)",
    "return False and (_identity(self._path)",
)
@pytest.mark.parametrize("way", WAYS)
def test_a_look_at_replaced_files_says_so(path: Path, way: Callable[[Path], None]) -> None:
    with Ledger(path) as ledger:
        charge(ledger, "run")
        way(path)
        for look in (lambda: ledger.remaining("notes"), ledger.verify, lambda: charge(ledger, "other")):
            with pytest.raises(LedgerError, match="while it was open"):
                look()


def test_opened_again_it_goes_on(path: Path) -> None:
    with Ledger(path) as ledger:
        charge(ledger, "run")
        ledger.close()
        replaced(path)
        charge(ledger, "after it was closed")
        replaced_with_its_log(path)
        with pytest.raises(LedgerError, match="Close it"):
            charge(ledger, "other")
        ledger.close()
        assert charge(ledger, "other").seq == 4
        ledger.verify()


@kills("crashes", "a log that was taken away written over its successor")
@edit(
    "ledger/sqlite.py", "        if self._is_moved():\n            # SQLite", "        if False:\n            # SQLite"
)
def test_a_process_whose_log_was_taken_away_leaves_the_file_alone(path: Path, processes: Any) -> None:
    """What it has of the old log is never written over what others do meanwhile; acknowledged charges stay."""
    first, *others = [processes(path) for _ in range(3)]
    mine = Ledger(path)
    mine.remaining("notes")
    without_its_log(path)
    names = first.ask("spend", "other")
    first.ask("close")
    mine.close()
    with pytest.raises(LedgerError, match="new process"):
        Ledger(path)
    assert len(names) > 5
    for other in others:
        assert other.ask("verify") == []
        assert other.ask("runs") == names
        other.ask("close")


def test_a_reader_goes_on_while_writers_come_and_go(path: Path) -> None:
    with Ledger(path, read_only=True) as reader:
        for k in range(3):
            with Ledger(path) as writer:
                charge(writer, f"run {k}")
            assert reader.remaining("notes").num_charges == k + 1
            reader.verify()


@pytest.mark.guarantees("one history")
@kills("crashes", "what a user has seen of a ledger forgotten")
@edit(
    "ledger/__init__.py",
    "((stored, RESTORE), (seen, way_out(self._seen.path)))",
    "((stored, RESTORE),)",
)
def test_a_copy_that_goes_its_own_way(path: Path, tmp_path: Path) -> None:
    """Two copies side by side, by one user: whoever is second is told, and so is every later look."""
    (tmp_path / "copy").mkdir()
    for file in path.parent.glob("budget.db*"):
        shutil.copy(file, tmp_path / "copy" / file.name)
    twin = Ledger(tmp_path / "copy" / "budget.db")
    mine = Ledger(path)
    charge(mine, "mine")
    for _ in range(2):
        with pytest.raises(LedgerError, match=f"Row 2 is missing.*{Seen(mine.uuid).path}"):
            charge(twin, "theirs")
        with pytest.raises(LedgerError, match="Row 2 is missing"):
            twin.remaining("notes")
    charge(mine, "mine too")
    mine.close()
    twin.close()
    with pytest.raises(LedgerError, match="Row 3 is missing"):
        Ledger(tmp_path / "copy" / "budget.db")


@pytest.mark.guarantees("one history")
@kills("crashes", "a head taken for a chain's own by its number")
@edit("ledger/sqlite.py", "        check_kept(head, self.uuid, None if row is None else row.hash, RESTORE)\n", "")
@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_head_settles_between_two_histories(path: Path, tmp_path: Path, number: int) -> None:
    """Two files that went apart have one head: it acknowledges rows of one of them only."""
    shutil.copy(path, tmp_path / "twin.db")
    shutil.copy(path.with_name("budget.db.head"), tmp_path / "twin.db.head")
    mine, twin = Ledger(path), Ledger(tmp_path / "twin.db")
    store: Any = twin._opened()
    assert isinstance(store, SqliteStore)
    store._head_path = path.with_name("budget.db.head")
    ways = pytest.raises(LedgerError, match=r"went on apart|missing") if number else nullcontext()
    with ways, twin._transaction(write=True) as (rows, state):
        started = {"kind": "event", "dataset": "notes", "run": "r", "body": {"state": "started"}}
        twin._append(rows, state, key="theirs", **started)
        with mine._transaction(write=True) as (others, end):
            for k in range(number):
                mine._append(others, end, key=f"mine {k}", **started)
        twin._seen.path.unlink(missing_ok=True)
    settled = store.head()
    assert (settled.seq, settled.hash) == ((end if number else state).seq, (end if number else state).hash)
    twin.close()
    mine.close()


@pytest.mark.guarantees("tokens")
@kills("crashes", "a forked process that goes on with its parent's runs")
@edit("ledger/store.py", "session.tokens.clear()", "pass")
def test_a_forked_process_does_not_go_on_with_its_parents_runs(path: Path) -> None:
    with Ledger(path) as ledger:
        charge(ledger, "run")
        ledger.append("run", attempt=0, state="started", step=0)

        def work() -> None:
            for say in (
                lambda: ledger.append("run", attempt=0, state="started", step=0),  # Nor say the same again.
                lambda: ledger.append("run", attempt=0, state="released", step=0, digest="aa"),
                lambda: ledger.append("run", attempt=0, state="finished"),
                lambda: ledger.append("run", attempt=1, state="resumed"),
                lambda: charge(ledger, "run", kind="again", steps=[0]),
                lambda: ledger.refund("run", unstarted=plan()),
            ):
                with pytest.raises(LedgerError, match="belongs to another owner"):
                    say()
            charge(ledger, "its own")
            ledger.append("its own", attempt=0, state="finished")

        assert in_child(work) == 0
        ledger.append("run", attempt=0, state="released", step=0, digest="aa")
        assert ledger.history("its own")[-1].state == "finished"


@pytest.mark.guarantees("tokens")
@kills("crashes", "a run that everybody may end")
@edit("ledger/__init__.py", "elif token is None or _hash(token) != owner:", "elif token is None:")
@pytest.mark.parametrize(
    "way", [copy.copy, lambda ledger: pickle.loads(pickle.dumps(ledger)), lambda ledger: Ledger(ledger.url)]
)
def test_a_token_goes_where_it_is_told(path: Path, way: Callable[[Ledger], Ledger]) -> None:
    with Ledger(path) as ledger, way(ledger) as other:
        receipt = charge(ledger, "run", token="secret")
        assert "secret" not in str(ledger.entries())
        assert charge(other, "run") == receipt
        with pytest.raises(LedgerError, match="belongs to another owner"):
            other.append("run", attempt=0, state="started", step=0)
        with pytest.raises(LedgerError, match="belongs to another owner") as error:
            charge(other, "run", token="guessed")
        assert "guessed" not in str(error.value)
        assert charge(other, "run", token="secret") == receipt
        other.append("run", attempt=1, state="resumed")
        other.append("run", attempt=1, state="released", step=0, digest="aa", key="k" * 43)
        assert [entry.unseals for entry in ledger.history("run")] == [None, None, "k" * 43]
        with pytest.raises(LedgerError, match="something else"):
            other.append("run", attempt=1, state="released", step=0, digest="aa")
        other.refund("run", unstarted=plan(4.0, 19))
        ledger.verify()


def test_runs_of_earlier_versions_go_on_and_give_nothing_back(path: Path) -> None:
    with Ledger(path) as ledger:
        charge(ledger, "model")
        [entry] = ledger.history("model")
        body = {name: value for name, value in entry.facts.items() if name not in ("owner", "favoured")}
        with ledger._transaction(write=True) as (rows, state):
            given: Any = {"kind": "charge", "key": "old", "dataset": "notes", "run": "old", "form": entry.form}
            ledger._append(rows, state, **given, cost=entry.cost_units, body=body)
    with Ledger(path) as ledger:
        ledger.append("old", attempt=1, state="resumed")
        ledger.append("old", attempt=1, state="released", step=0, digest="aa")
        with pytest.raises(LedgerError, match="earlier versions"):
            ledger.refund("old", unstarted=plan(4.0, 3))
        ledger.verify()


# ---------------------------------------------------------------- what a user has seen


def test_what_was_seen_is_its_users_alone_and_never_goes_back(path: Path) -> None:
    with Ledger(path) as ledger:
        seen = Seen(ledger.uuid)
        heads = [Head(ledger.uuid, k, "0" * 64) for k in range(10, 60)]
        random.Random(1).shuffle(heads)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda head: seen.keep(head, lambda _: None), heads))
    assert seen.head() == Head(ledger.uuid, 59, "0" * 64)
    assert stat.S_IMODE(seen.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(seen.path.parent.stat().st_mode) == 0o700
    assert os.listdir(seen.path.parent) == [ledger.uuid]


@pytest.mark.parametrize("uuid", ["../../x", "", "a/b", "x" * 300, "é", "."])
def test_no_ledger_chooses_where_it_is_remembered(uuid: str) -> None:
    path = Seen(uuid).path
    assert path.resolve().parent == Seen("x").path.resolve().parent
    assert len(path.name) == 64


@pytest.mark.parametrize("content", [b"x", b"{}", b"\xff\xfe", b'{"head":"{}","sha256":""}'])
def test_a_changed_memory_is_said(path: Path, content: bytes) -> None:
    with Ledger(path) as ledger:
        seen = Seen(ledger.uuid).path
        seen.write_bytes(content)
        for look in (lambda: ledger.remaining("notes"), lambda: charge(ledger, "run"), ledger.verify):
            with pytest.raises(LedgerError, match=f"{seen}: The head was changed.*Delete"):
                look()
        seen.write_bytes(b"")  # As a power cut leaves it.
        charge(ledger, "run")
        assert Seen(ledger.uuid).head() is not None


def test_where_nothing_can_be_remembered_it_is_said_once(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(path))  # A file, and no folder.
    monkeypatch.setattr(seen_module, "_remarked", False)
    with Ledger(path) as ledger:
        for k in range(3):
            charge(ledger, f"run {k}")
        ledger.verify()
    said = capsys.readouterr().err
    assert said.count("XDG_STATE_HOME") == 1
    assert said.count("\n") == 1


@kills("crashes", "a ledger's file with two names")
@edit("ledger/sqlite.py", "if links != 1 or points &", "if points &")
def test_a_file_with_another_name_is_refused(tmp_path: Path) -> None:
    """Under two names a file has two logs and two heads: a hard link, and a file that is mounted by itself."""
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
    os.link(tmp_path / "budget.db", tmp_path / "other.db")
    shutil.copy(tmp_path / "budget.db.head", tmp_path / "other.db.head")
    for name in ("budget.db", "other.db"):
        for read_only in (False, True):
            with pytest.raises(LedgerError, match="has another name"):
                Ledger(tmp_path / name, read_only=read_only)
    (tmp_path / "other.db").unlink()
    with Ledger(tmp_path / "budget.db") as found:
        found.verify()


@pytest.mark.parametrize("name", ["budget.db", "budget.db.head"])
def test_a_file_that_is_mounted_by_itself_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containers do with `-v file:file`: the folder around it is another one than the owner's."""
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
    plain = sqlite._mounts()
    monkeypatch.setattr(sqlite, "_mounts", lambda: f"{plain}/dev/vda {tmp_path / name} ext4 rw 0 0\n")
    with pytest.raises(LedgerError, match="mounted by itself"):
        Ledger(tmp_path / "budget.db")


@kills("crashes", "a look at a copy taken for what its user has seen")
@edit(
    "ledger/__init__.py",
    "            if not self._read_only:\n                self._keep",
    "            if True:\n                self._keep",
)
def test_a_look_at_a_copy_does_not_speak_for_the_original(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody else charged in a copy is looked at, and not taken for what this user has seen."""
    original, copy = tmp_path / "budget.db", tmp_path / "copy.db"
    with Ledger(original) as made:
        made.register("notes", **FACTS)
    for ending in ("", ".head"):
        shutil.copy(f"{original}{ending}", f"{copy}{ending}")
    with monkeypatch.context() as colleague:
        colleague.setenv("XDG_STATE_HOME", str(tmp_path / "colleague"))
        with Ledger(copy) as theirs:
            charge(theirs, "theirs", COST)
    with Ledger(copy, read_only=True) as look:
        look.verify()
        assert len(look.entries()) == 2
    with Ledger(original) as mine:
        charge(mine, "mine", COST)


def test_no_charge_makes_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    """A payload that a reader would refuse is refused before it is written."""
    deep: Any = 0
    for _ in range(70):
        deep = [deep]
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
        for payload in ({"x": deep}, {"x": "\ud800"}, {"x": "y" * 2**20}, {"x": float("inf")}):
            with pytest.raises(ParameterError, match=r"payload|An entry of the ledger"):
                made.charge("notes", COST, run="r", plan_digest="p", unit=FACTS["unit"], payload=payload)
    with Ledger(tmp_path / "budget.db") as found:
        found.verify()
        assert [entry.kind for entry in found.entries()] == ["dataset"]


@pytest.mark.parametrize("place", ["relative", "~/state"])
def test_what_a_user_has_seen_lies_in_no_folder_of_chance(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", place)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with Ledger(tmp_path / "budget.db") as made:
        made.register("notes", **FACTS)
    assert len(list((tmp_path / "home").glob(".local/state/dpvb/heads/*"))) == 1
    assert not (tmp_path / place.split("/")[0]).exists()


@pytest.mark.guarantees("ledger files")
@kills("names", "a ledger's head that others may write")
@edit("ledger/sqlite.py", "        os.fchmod(descriptor, stat.S_IMODE(state.st_mode))\n", "")
@pytest.mark.parametrize("umask", [0, 0o002, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("mode", [None, 0o600, 0o660, 0o666])
def test_every_file_beside_a_ledger_has_its_mode(tmp_path: Path, umask: int, mode: int | None) -> None:
    """Of a new ledger, of one in use, and of one that was signed; whatever the umask is on that day."""
    path = tmp_path / "budget.db"
    before = os.umask(umask)
    try:
        if mode is not None:  # Whoever keeps it has made room for it, or has changed its mode since.
            path.touch()
            path.chmod(mode)
        with Ledger(path) as ledger:
            ledger.register("notes", unit="document", neighboring_relation="add_or_remove_one", epsilon=3, delta=1e-6)
            in_use = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        closed = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
        os.umask(0)
        with Ledger(path):
            pass
        later = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"budget.db", "budget.db.head"} == closed.keys() == later.keys() < in_use.keys()
    expected = 0o644 & ~umask if mode is None else mode
    assert {*in_use.values(), *closed.values(), *later.values()} == {expected}
