"""Names of data sets: one spelling each, none that looks like another; those that are there already stay."""

from __future__ import annotations

import ast
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from confusable_homoglyphs.confusables import confusables_data
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills

from dpvb.errors import LedgerError, ParameterError
from dpvb.ledger import Ledger
from dpvb.ledger.names import check_new_name, skeleton

FACTS: dict[str, Any] = {"unit": "row", "neighboring_relation": "add_or_remove_one", "epsilon": 3.0, "delta": 1e-6}
LOOK_ALIKE = [
    ("notes", "n\u043etes"),
    ("notes", "not\u0435s"),
    ("people-1", "people-l"),
    ("people-I", "people-1"),
    ("COHORT0", "COHORTO"),
    ("modern", "modem"),
    ("clinic", "cl\u0456nic"),
    ("M\u00fcnchen", "M\u00fcn\u0441hen"),
    ("paypal", "\u0440\u0430\u0443\u0440\u0430\u04c0"),
    ("a\u2019b", "a'b"),
]
OTHER_FORMS = [
    ("M\u00fcnchen", unicodedata.normalize("NFD", "M\u00fcnchen")),
    ("notes", "notes "),
    ("notes", " notes"),
    ("notes", "\u3000notes"),
    ("my notes", "my  notes"),
    ("notes", "notes\u3164"),
    ("notes", "notes\uffa0"),
    ("notes", "no\u034ftes"),
    ("notes", "notes\ufe0f"),
    ("notes", "notes\U000e0101"),
    ("notes", "\u115fnotes"),
    ("notes", "notes\u2800"),
    ("notes", "\uff4eotes"),
    ("file", "\ufb01le"),
    ("clinic", "c\u217cinic"),
    ("notes 2", "notes \u00b2"),
]


@pytest.fixture
def book(tmp_path: Path) -> Any:
    with Ledger(tmp_path / "b.db") as made:
        yield made


@kills("names", "a name in two forms")
@edit("ledger/names.py", "    if name != plain:\n", "    if not plain:\n")
@pytest.mark.parametrize(("plain", "other"), OTHER_FORMS, ids=ascii)
def test_a_name_has_one_form(plain: str, other: str, book: Ledger) -> None:
    for _ in range(2):  # Whether or not the plain one is registered.
        with pytest.raises(ParameterError) as caught:
            book.register(other, **FACTS)
        assert f"Write {plain!r}" in str(caught.value) or "printable" in str(caught.value)
        book.register(plain, **FACTS)
    assert [one.name for one in book.datasets()] == [plain]


@kills("names", "names that look alike")
@edit(
    "ledger/names.py",
    'drawn = unicodedata.normalize("NFD", "".join(parts))',
    'drawn = unicodedata.normalize("NFD", shown)',
)
@pytest.mark.parametrize(("one", "other"), LOOK_ALIKE, ids=ascii)
def test_a_name_that_looks_like_another_is_refused_and_named(one: str, other: str, tmp_path: Path) -> None:
    for place, (known, new) in enumerate([(one, other), (other, one)]):
        with Ledger(tmp_path / f"{place}.db") as book:
            book.register(known, **FACTS)
            for part_of in (None, known):
                with pytest.raises(LedgerError, match="looks like") as caught:
                    book.register(new, **FACTS, part_of=part_of)
                assert repr(known) in str(caught.value)
            book.register(known, **FACTS)
            book.register("quite another", **FACTS)
            assert [found.name for found in book.datasets()] == [known, "quite another"]


def test_names_that_were_registered_before_go_on_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier versions took whatever is printable; look-alikes among those are told apart as they were."""
    older = [name for pair in [*LOOK_ALIKE, *OTHER_FORMS] for name in pair if name.isprintable()]
    older = list(dict.fromkeys(older))
    with Ledger(tmp_path / "b.db") as book, monkeypatch.context() as before:
        before.setattr("dpvb.ledger.check_new_name", lambda name, registered: None)
        for name in older:
            book.register(name, **FACTS)
    with Ledger(tmp_path / "b.db") as book:
        for name in older:
            book.register(name, **FACTS)
            assert book.remaining(name).epsilon == 3.0
        assert [found.name for found in book.datasets()] == older
        book.verify()
        with pytest.raises(LedgerError, match="looks like"):
            book.register("n\u043et\u0435s", **FACTS)
        book.register("quite another", **FACTS)


def test_skeletons_are_those_of_the_table() -> None:
    """Each pair of the table, as far as its characters are whole ones, looks alike, and nothing more does."""
    number = 0
    for one, others in confusables_data.items():
        for other in (entry["c"] for entry in others):
            pair = [text.strip("\u200e") for text in (one, other)]
            if all(unicodedata.normalize("NFD", text) == text for text in pair):
                assert skeleton(pair[0]) == skeleton(pair[1]), ascii(pair)
                number += 1
    assert number > 10_000
    letters = "abcdefghijklnopqrstuvwxyzABCDEFGHJKLMNOPQRSTUVWXYZ23456789_-."
    assert len({skeleton(letter) for letter in letters}) == len(letters)


@given(st.text())
def test_a_skeleton_is_its_own_and_that_of_its_forms(text: str) -> None:
    drawn = skeleton(text)
    assert skeleton(drawn) == drawn
    for form in ("NFC", "NFD"):
        assert skeleton(unicodedata.normalize(form, text)) == drawn


@given(st.text(min_size=1, max_size=40).filter(str.isprintable))
def test_every_name_has_a_form_that_is_accepted(name: str) -> None:
    try:
        check_new_name(name, [])
    except ParameterError as error:
        if "Write " in str(error):
            check_new_name(ast.literal_eval(str(error).rpartition("Write ")[2].removesuffix(".")), [])
