"""Data to try the package on: a sample of English Wikipedia, and synthetic files.

The sample ships with the package; README.md in this folder names its licences. The synthetic files are notes, a table
with its schema, images, visits and a word list, always the same. The correct results are known. The notes are about
four subjects; illness follows from age and work; the images are four squares; who sees a page sees it again more often
than not.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

#: Files that are written: private files, public ones for measuring (they begin with "public_"), and public facts on
#: both.
NAMES: Final = (
    *("notes", "public_notes", "words.txt"),
    *("people.csv", "public_people.csv", "people.json"),
    *("images-ubyte.gz", "public_images-ubyte.gz"),
    "visits.csv",
)
_SEED = 20_261_122
_NOTES, _PEOPLE, _IMAGES, _VISITORS, _PUBLIC = 2_000, 20_000, 5_000, 3_000, 500
# Words of four subjects, and those that say nothing.
*_SUBJECTS, _FILLERS = (
    text.split()
    for text in (
        "cough fever throat cold flu virus chest breath sleep tired",
        "heart pulse pressure blood artery walk stairs pain beat rest",
        "knee hip joint fall bone sprain ankle plaster crutch swelling",
        "skin rash itch cream allergy pollen eczema spot sun hand",
        "the patient says that it began and was seen again with no other",
    )
)


def write(folder: Path) -> None:
    """Write all files into a folder.

    Args:
        folder: there, and without any of NAMES.
    """
    rng = np.random.default_rng(_SEED)
    for name, number in (("notes", _NOTES), ("public_notes", _PUBLIC)):
        (folder / name).mkdir()
        for place in range(number):
            (folder / name / f"note-{place:04}.txt").write_text(_note(rng), encoding="utf-8")
    (folder / "words.txt").write_text(
        "\n".join(word for subject in _SUBJECTS for word in subject) + "\n", encoding="utf-8"
    )
    for name, number in (("people.csv", _PEOPLE), ("public_people.csv", _PUBLIC)):
        (folder / name).write_text(_table(rng, number), encoding="utf-8")
    (folder / "people.json").write_text(json.dumps(SCHEMA, indent=2) + "\n", encoding="utf-8")
    for name, number in (("images-ubyte.gz", _IMAGES), ("public_images-ubyte.gz", _PUBLIC)):
        (folder / name).write_bytes(_images(rng, number))
    (folder / "visits.csv").write_text(_visits(rng, _VISITORS), encoding="utf-8")


def _note(rng: np.random.Generator) -> str:
    """About one subject for the most part, and now and then another one."""
    subjects = rng.choice(len(_SUBJECTS), 2, replace=False)
    sentences = (_SUBJECTS[subjects[int(rng.random() < 0.2)]] for _ in range(rng.integers(15, 40)))
    return " ".join(_one(rng, words) for subject in sentences for words in (_FILLERS, subject)).capitalize() + ".\n"


def _one(rng: np.random.Generator, values: Sequence[str]) -> str:
    return values[int(rng.integers(len(values)))]


#: Public facts about the people.
SCHEMA = {
    "columns": [
        {"kind": "numeric", "name": "age", "low": 18, "high": 90},
        {"kind": "numeric", "name": "income", "low": 0, "high": 500_000, "transform": "log1p", "missing": 0},
        {"kind": "categorical", "name": "work", "categories": ["private", "state", "self-employed"]},
        {"kind": "binary", "name": "urban", "values": ["no", "yes"]},
    ],
    "target": {"name": "ill", "classes": ["no", "yes"]},
}


def _table(rng: np.random.Generator, number: int) -> str:
    """People of whom the older fall ill more often, and so do those who work for the state; some keep their income."""

    def rows() -> Iterator[tuple[object, ...]]:
        for _ in range(number):
            age, work = int(rng.integers(18, 91)), _one(rng, ("private", "state", "self-employed"))
            income = "" if rng.random() < 0.05 else int(np.exp(rng.normal(10.3, 0.7)))
            ill = rng.random() < 1 / (1 + np.exp(3 - age / 25 - (work == "state")))
            yield age, income, work, "yes" if rng.random() < 0.6 else "no", "yes" if ill else "no"

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("age", "income", "work", "urban", "ill"), *rows()])
    return text.getvalue()


def _visits(rng: np.random.Generator, number: int) -> str:
    """A row for each page that a visitor saw, in no order; after each page the next of three, or with 0.6 the same."""
    pages, rows = ("front", "news", "sports"), []
    for user in range(number):
        page = int(rng.integers(3))
        for clock in range(int(rng.integers(2, 9))):
            rows.append(f"{user},{pages[page]},{clock}")
            page = (page + int(rng.random() < 0.4)) % 3
    return "\n".join(["user,page,clock", *(rows[place] for place in rng.permutation(len(rows)))]) + "\n"


def _images(rng: np.random.Generator, number: int) -> bytes:
    """Images of 8 × 8 grey levels in the idx format; each corner is dark or bright, but for some pixels."""
    corners = np.kron(rng.random((number, 2, 2)) < 0.5, np.ones((4, 4), dtype=np.bool_))
    bright = corners ^ (rng.random(corners.shape) < 0.1)
    grey = np.where(bright, rng.integers(1, 256, corners.shape), 0).astype(np.uint8)
    header = b"\0\0\x08\x03" + np.array(grey.shape, dtype=">u4").tobytes()
    return gzip.compress(header + grey.tobytes(), mtime=0)


@dataclass(frozen=True, eq=False)
class Sample:
    """Word counts of Wikipedia articles; the demo plays that `documents` were private.

    Attributes:
        counts: articles × words, CSR, int32.
        article_ids: number of each article, shape (articles,); `link` turns it into a page.
        is_held_out: which articles are the public held-out part, shape (articles,).
        vocabulary: the words in column order.
    """

    counts: sparse.csr_array[Any]
    article_ids: NDArray[np.int64]
    is_held_out: NDArray[np.bool_]
    vocabulary: tuple[str, ...]

    @cached_property
    def documents(self) -> sparse.csr_array[Any]:
        """The articles to fit, 40,000 × 7,702."""
        return self.counts[~self.is_held_out]

    @cached_property
    def held_out(self) -> sparse.csr_array[Any]:
        """The public held-out articles, 1,000 × 7,702."""
        return self.counts[self.is_held_out]

    @staticmethod
    def link(article_id: int) -> str:
        """Where an article stands, with its authors in the page's history."""
        return f"https://en.wikipedia.org/?curid={article_id}"


def load_sample() -> Sample:
    """Unpack the bundled Wikipedia sample.

    Terms are stored in order of frequency and each as the gap to the one before it, in two bytes.
    """
    folder = files("dpvb.sample")
    vocabulary = tuple(folder.joinpath("words.txt").read_text(encoding="utf-8").split())
    with as_file(folder.joinpath("wikipedia.npz")) as path, np.load(path, allow_pickle=False) as packed:
        stored = {name: packed[name] for name in packed.files}
    indptr = np.concatenate([[0], np.cumsum(stored["terms_per_document"], dtype=np.int64)])
    total = np.cumsum(stored["low"] + 256 * stored["high"].astype(np.int64))
    before_document = np.concatenate([[0], total])[indptr[:-1]]
    rank = total - np.repeat(before_document, np.diff(indptr))
    counts = sparse.csr_array(
        (stored["counts"].astype(np.int32), stored["order"].astype(np.int32)[rank], indptr.astype(np.int32)),
        shape=(len(indptr) - 1, len(vocabulary)),
    )
    counts.sort_indices()
    article_ids = np.cumsum(stored["article_gaps"], dtype=np.int64)
    return Sample(counts, article_ids, stored["is_held_out"], vocabulary)
