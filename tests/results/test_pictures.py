"""Pictures show words as they are."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.guards.strangers import printable
from dpvb.results.pictures import topics_picture

WORDS = ["$\\frac$", "$x^", "$$", "\\input{/etc/passwd}", "100%", "<script>", "a\x1b]0;b\u202e", "_^{}&#~"]


@kills("leaks", "words of a picture that are mathematics")
@edit("results/pictures.py", ", parse_math=False)", ")")
@pytest.mark.parametrize("usetex", [False, True])
def test_words_in_a_picture_are_words(tmp_path: Path, usetex: bool) -> None:
    """No mathematics and no LaTeX, whatever the words are and whatever the user's own pictures look like."""
    matplotlib = pytest.importorskip("matplotlib")
    counts = np.random.default_rng(0).poisson(1.0, (50, len(WORDS)))
    model = dpvb.LDA(2, public_vocabulary=True, epsilon=1.0, delta=1e-5, num_steps=2, random_state=0).fit(counts)
    path = tmp_path / "topics.svg"
    with matplotlib.rc_context({"text.usetex": usetex, "svg.fonttype": "none"}):
        topics_picture(path, model.components_, WORDS, model.privacy_)
    drawn = {"".join(text.itertext()) for text in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")}
    assert {printable(word) for word in WORDS} <= drawn
