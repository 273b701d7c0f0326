"""How topics are read: by what the noise will be at the end of a plan, from its first step on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpvb.core import loop
from dpvb.core.model import robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.models import empirical_bayes
from dpvb.models.topics.lda import LDAModel


@pytest.mark.parametrize("strong", [False, True])
def test_one_prior_reads_all_steps_of_a_plan(strong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are free from the first step on where the last will see topics clearly, and in no step elsewhere."""
    found: list[bool] = []
    usual = empirical_bayes.around

    def watched(*args: Any, free: bool = False) -> Any:
        found.append(free)
        return usual(*args, free=free)

    monkeypatch.setattr(empirical_bayes, "around", watched)
    model = LDAModel(3, 40, n_steps=16)
    matrix = np.random.default_rng(0).poisson(1.0, (500, 40))
    # The averages of the last steps have about a third of one step's noise.
    noise = 500 * 0.2 / 3 / model.detectable * (1.5 if strong else 6.0)
    plan = phased(model.blocks, FullBatch(), [noise] * 16)
    wall: Wall[Any] = Wall(BagOfWords(matrix), plan, noise=InsecureNoise(2))
    q, _ = loop.fit(model, wall, plan, rho=robbins_monro(1.0, 0.6), rng=np.random.default_rng(1))
    assert found == [strong] * 16
    assert q.sum_std_v is not None
    clear = model.signal(500, float(q.sum_std_v[0] * q.word_weight_v[0])) >= model.detectable
    assert clear is strong
