"""Names of data sets: plain ASCII, none that looks like another; those that are registered already stay valid."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
from planted import edit, kills

from dpvb.errors import LedgerError, ParameterError
from dpvb.ledger import Ledger
from dpvb.ledger.records import appearance, check_new_name

FACTS: dict[str, Any] = {"unit": "row", "neighboring_relation": "add_or_remove_one", "epsilon": 3.0, "delta": 1e-6}
LOOK_ALIKE = [("people-1", "people-l"), ("people-I", "people-1"), ("COHORT0", "COHORTO"), ("modern", "modem")]
NOT_PLAIN = [
    "n\u043etes",
    "M\u00fcnchen",
    "my notes",
    " notes",
    "notes/a",
    "notes\u3164",
    "\uff4eotes",
    "a'b",
    "notes ",
]


@pytest.mark.guarantees("names")
@kills("names", "a name in letters that look like others")
@edit("ledger/records.py", "if not _NAME.fullmatch(name):", "if not name:")
@pytest.mark.parametrize("name", NOT_PLAIN, ids=ascii)
def test_a_name_is_plain_ascii(name: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "b.db") as book:
        with pytest.raises(ParameterError, match=r"ASCII letters, digits|printable"):
            book.register(name, **FACTS)
        assert book.datasets() == []


@pytest.mark.guarantees("names")
@kills("names", "names that look alike")
@edit("ledger/records.py", 'return name.replace("m", "rn").translate(str.maketrans("0I1|", "Olll"))', "return name")
@pytest.mark.parametrize(("one", "other"), LOOK_ALIKE)
def test_a_name_that_looks_like_another_is_refused_and_named(one: str, other: str, tmp_path: Path) -> None:
    for place, (registered, new) in enumerate([(one, other), (other, one)]):
        with Ledger(tmp_path / f"{place}.db") as book:
            book.register(registered, **FACTS)
            for part_of in (None, registered):
                with pytest.raises(LedgerError, match="looks like") as caught:
                    book.register(new, **FACTS, part_of=part_of)
                assert repr(registered) in str(caught.value)
            book.register(registered, **FACTS)
            book.register("another", **FACTS)
            assert [dataset.name for dataset in book.datasets()] == [registered, "another"]


def test_names_that_were_registered_before_go_on_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0.2.0 took whatever is printable; look-alikes among those are distinguished as they were."""
    older = [name for name in dict.fromkeys([*sum(LOOK_ALIKE, ()), *NOT_PLAIN]) if name.isprintable()]
    with Ledger(tmp_path / "b.db") as book, monkeypatch.context() as before:
        before.setattr("dpvb.ledger.check_new_name", lambda name, registered: None)
        for name in older:
            book.register(name, **FACTS)
    with Ledger(tmp_path / "b.db") as book:
        for name in older:
            book.register(name, **FACTS)
            assert book.remaining(name).epsilon == 3.0
        assert [dataset.name for dataset in book.datasets()] == older
        book.verify()
        with pytest.raises(LedgerError, match="looks like"):
            book.register("rnodern", **FACTS)
        book.register("another", **FACTS)


def test_every_allowed_character_can_be_told_from_the_others() -> None:
    """Only 0 and O, and 1, I and l, look alike."""
    allowed = string.ascii_letters + string.digits + "._-"
    assert len({appearance(character) for character in allowed}) == len(allowed) - 3
    check_new_name(allowed, [])
