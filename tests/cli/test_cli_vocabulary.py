"""`dpvb vocabulary`: what many public texts use, and nothing without saying that they are public."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from planted import edit, kills
from test_cli import refuse, run

from dpvb.data import words as listed

WORDS = listed("english:60")


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """Texts in which words are the rarer the later they stand in the list, in a file and in a folder."""
    rng = np.random.default_rng(0)
    chance_v = 1 / np.arange(1, len(WORDS) + 1)
    made = [" ".join(rng.choice(WORDS, 12, p=chance_v / chance_v.sum())).title() + " the the" for _ in range(120)]
    (tmp_path / "folder").mkdir()
    for number, text in enumerate(made):
        (tmp_path / "folder" / f"{number}.txt").write_text(text)
    with (tmp_path / "texts.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in made)])
    return made


@pytest.mark.parametrize("name", ["folder", "texts.csv"])
def test_words_are_those_of_enough_texts(texts: list[str], tmp_path: Path, name: str) -> None:
    """Against a count by hand: a word counts once a text."""
    in_v = Counter(word for text in texts for word in set(text.lower().split()))
    enough = sorted(word for word, number in in_v.items() if number >= 15)
    assert 3 < len(enough) < len(in_v)
    out = tmp_path / f"{name}.txt"
    run("vocabulary", tmp_path / name, "--public", "--min-df", 15, "--out", out)
    assert out.read_text().split() == enough
    run("vocabulary", tmp_path / name, "--public", "--min-df", 1, "--most", 4, "--out", out, "--overwrite")
    kept = out.read_text().split()
    assert min(in_v[word] for word in kept) >= max(in_v[word] for word in in_v if word not in kept)
    assert len(kept) == 4
    run("vocabulary", tmp_path / name, "--public", "--stop-words", "english", "--out", out, "--overwrite")
    assert "the" in enough
    assert "the" not in out.read_text().split()


@kills("public facts", "words of texts that nobody calls public are written")
@edit("cli/schema.py", "    if not public:\n", "    if False:\n")
def test_nothing_is_written_of_texts_that_nobody_calls_public(texts: list[str], tmp_path: Path) -> None:
    out = tmp_path / "w.txt"
    refuse(tmp_path, "Add --public if they are", "vocabulary", tmp_path / "folder", "--out", out)
    refuse(
        tmp_path,
        "--min-df must be smaller",
        "vocabulary",
        tmp_path / "folder",
        "--public",
        "--min-df",
        121,
        "--out",
        out,
    )
    refuse(tmp_path, "there is no such file", "vocabulary", tmp_path / "none.csv", "--public", "--out", out)
    refuse(tmp_path, "--min-df must be", "vocabulary", tmp_path / "folder", "--public", "--min-df", 0, "--out", out)
    assert not out.exists()
