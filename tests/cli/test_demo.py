"""The bundled sample, and the demo on a slice of it."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpvb
from dpvb.cli import demo
from dpvb.sample import Sample, load_sample


@pytest.fixture(scope="module")
def sample() -> Sample:
    return load_sample()


def test_the_sample_is_what_its_readme_says(sample: Sample) -> None:
    assert sample.documents.shape == (40_000, 7_702)
    assert sample.held_out.shape == (1_000, 7_702)
    assert len(set(sample.vocabulary)) == 7_702
    length = np.asarray(sample.counts.sum(axis=1)).ravel()
    assert (length.min(), length.max()) == (50, 300)
    assert sample.counts.data.min() >= 1
    assert sample.counts.has_canonical_format
    assert (np.diff(sample.article_ids) > 0).all()
    assert sample.article_ids[0] >= 18_228_284
    assert sample.article_ids[-1] <= 20_925_000
    # Distinct bags of words, in the held-out part and altogether: no article is in both parts.
    bags = {row.indices.tobytes() + row.data.tobytes() for row in (sample.counts[[n]] for n in range(3_000))}
    assert len(bags) == 3_000


def test_the_sample_is_small_and_says_where_it_comes_from() -> None:
    folder = files("dpvb.sample")
    names = ("wikipedia.npz", "words.txt", "README.md")
    assert sum(len(folder.joinpath(name).read_bytes()) for name in names) <= 5_000_000
    licence = folder.joinpath("README.md").read_text(encoding="utf-8")
    for words in ("CC BY-SA 3.0", "GFDL", "GPL 3 or later", "onlineldavb"):
        assert words in licence


def test_known_articles_are_unpacked_right(sample: Sample) -> None:
    """The words of an article and of its neighbours make sense together, and its page can be found."""
    season = list(sample.vocabulary).index("season")
    league = list(sample.vocabulary).index("league")
    present = sample.counts[:, [season, league]] > 0
    both = np.asarray(present.sum(axis=1)).ravel() == 2
    shares = np.asarray(present.mean(axis=0)).ravel()
    # Were terms and articles mismatched, the two words would meet by chance.
    assert both.mean() > 3 * shares.prod()
    assert sample.link(int(sample.article_ids[0])).endswith(str(sample.article_ids[0]))


def test_demo_on_a_slice(
    tmp_path: Path, sample: Sample, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    kept = np.concatenate([np.flatnonzero(~sample.is_held_out)[:400], np.flatnonzero(sample.is_held_out)[:50]])
    common = np.argsort(-np.asarray(sample.counts.sum(axis=0)).ravel())[:300]
    part = Sample(
        sample.counts[kept][:, common],
        sample.article_ids[kept],
        sample.is_held_out[kept],
        tuple(sample.vocabulary[v] for v in common),
    )
    demo.compare(
        part,
        tmp_path,
        epsilon=4.0,
        delta=1e-4,
        topics=4,
        n_steps=3,
    )
    shown = capsys.readouterr().out
    assert "400 articles treated as private" in shown
    model = dpvb.load(tmp_path / "model.dpvb")
    assert 0.98 * 4 <= model.privacy_.epsilon <= 4
    assert str(model.privacy_) in shown
    assert f"{model.perplexity(part.held_out, public=True):,.0f}" in shown
    for words in model.topics(3):
        assert " ".join(words) in shown
    picture = (tmp_path / "topics.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) > 20_000
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.dpvb", "topics.png"]


DOCS = Path(__file__).parents[2] / "docs"


def example(page: str) -> str:
    """The first program of a page."""
    found = re.search(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_example_of_belief_networks_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Always the mean pixel errs by 0.5 on average."""
    held: dict[str, Any] = {}
    exec(example("models/belief-networks.md"), held)
    assert float(capsys.readouterr().out) < 0.4
    assert held["new"].shape == (10, 64)


def test_the_tutorial_of_federated_data_is_true() -> None:
    """Weights of 4, -1 and 0 from 8,800 rows of three owners: the privacy noise moves them by about 0.3."""
    text = (DOCS / "tutorials" / "federated.md").read_text(encoding="utf-8")
    held: dict[str, Any] = {}
    exec("".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)), held)
    model = held["models"]["secure_aggregation"]
    assert model.coef_[0] == pytest.approx([4.0, -1.0, 0.0], abs=1.5)
    assert "masks cancel" in " ".join(str(held["statement"]).split())


def test_the_example_of_a_density_runs() -> None:
    """Twenty thousand rows give weights to about 0.01."""
    held: dict[str, Any] = {}
    exec(example("models/dpvi.md"), held)
    assert held["model"].loc_ == pytest.approx([1.0, 2.0, -1.0], abs=0.15)
