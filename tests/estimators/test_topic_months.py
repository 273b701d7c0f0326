"""A stream of months: sums of disjoint people are read together; later rows of whoever comes again add nothing."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import edit, kills
from test_topic_prior import TOPICS, documents, model

import dpvb
from dpvb.core.noise import InsecureNoise
from dpvb.data.persons import newcomers
from dpvb.errors import DataFormatError, ParameterError


@pytest.fixture(scope="module")
def known() -> dpvb.LDA:
    return model(n_components=TOPICS, epsilon=math.inf).fit(documents(2_000, seed=2, share=0.1))


def months(known: dpvb.LDA, **options: Any) -> dpvb.LDA:
    return model(**{"prior": known, "public_prior": True, **options})


@pytest.fixture
def noise_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def seeded(seed: int) -> None:
        noise = InsecureNoise(seed)
        monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda: noise)
        monkeypatch.setattr("dpvb.results.statement.PrivacyStatement.private", property(lambda self: True))

    return seeded


@kills("factor", "sums of months that forget the noise of the earlier ones")
@edit("models/topics/lda.py", "math.hypot(std, self.previous.words_std)", "std")
@pytest.mark.parametrize("n_steps", [0, 2])
def test_sums_of_months_are_those_of_each_added_up(known: dpvb.LDA, n_steps: int, noise_of: Any) -> None:
    """Word totals to the last bit; their noise, and that of the topics' sums, as of independent releases."""
    noise_of(1)
    first = months(known, n_steps=n_steps).fit(documents(60, seed=1))
    noise_of(2)
    alone = months(known, n_steps=n_steps).fit(documents(40, seed=2))
    noise_of(2)
    both = months(known, n_steps=n_steps, previous=first).fit(documents(40, seed=2))
    np.testing.assert_array_equal(both._q.words_v, first._q.words_v + alone._q.words_v)
    assert both._q.words_std == math.hypot(first._q.words_std, alone._q.words_std)
    assert both._q.num_units == pytest.approx(first._q.num_units + alone._q.num_units)
    if n_steps:
        np.testing.assert_allclose(both._q.sum_std_v, np.hypot(first._q.sum_std_v, alone._q.sum_std_v), rtol=1e-12)
        now = both._q.sum_vk - first._q.sum_vk
        assert now.sum() == pytest.approx(
            alone._q.sum_vk.sum(), abs=6 * float(alone._q.sum_std_v[0]) * math.sqrt(now.size)
        )
    else:
        assert both._q.sum_vk is None


def test_a_month_without_topic_sums_keeps_those_of_the_months_before(known: dpvb.LDA, noise_of: Any) -> None:
    noise_of(1)
    first = months(known, n_steps=2).fit(documents(60, seed=1))
    both = months(known, n_steps=0, previous=first).fit(documents(40, seed=2))
    np.testing.assert_array_equal(both._q.sum_vk, first._q.sum_vk)
    np.testing.assert_array_equal(both._q.sum_std_v, first._q.sum_std_v)


def test_every_month_is_better_than_the_one_before(known: dpvb.LDA, noise_of: Any, tmp_path: Path) -> None:
    test, values, earlier = documents(300, seed=99), [], None
    for month in range(4):
        noise_of(month)
        fitted = months(known, n_steps=0, previous=earlier).fit(documents(250, seed=month))
        fitted.save(tmp_path / f"{month}.dpvb")
        earlier = tmp_path / f"{month}.dpvb"
        values.append(fitted.perplexity(test, public=True))
    assert all(later < before for before, later in itertools.pairwise(values))


@pytest.mark.guarantees("excluded people")
@kills("persons", "ids of an earlier month in another spelling")
@edit("data/persons.py", "None if identity(cell) in excluded else cell", "None if cell in excluded else cell")
@kills("persons", "a person of an earlier month who counts again in a later one")
@edit("data/persons.py", "None if identity(cell) in excluded else cell", "cell")
def test_whoever_was_seen_adds_nothing_and_nothing_says_so(known: dpvb.LDA, noise_of: Any) -> None:
    """The same bits as without these persons' documents; ids are compared in one spelling."""
    matrix, persons = documents(40, seed=3), np.arange(40) // 2
    noise_of(4)
    left = months(known, n_steps=2).fit(matrix, group=persons, exclude_groups=["3", 5.0, None, 99])
    noise_of(4)
    kept = ~np.isin(persons, [3, 5])
    without = months(known, n_steps=2).fit(matrix[kept], group=persons[kept])
    np.testing.assert_array_equal(left._q.sum_vk, without._q.sum_vk)
    assert left.privacy_.unit == "person"
    assert newcomers(["a", "b", None], []) == ["a", "b", None]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"prior": None, "n_components": 6}, "prior must be a model where previous= is given"),
        ({"clip_scale": 0.05}, "clip_scale must be None, as in the fit that previous= names"),
        ({"document_length": 100.0}, "document_length must be 500.0, as in the fit that previous= names"),
        ({"previous": 3}, "previous must be a fitted dpvb.LDA"),
        ({"previous": {"waa": 1.0}}, "previous must be a fit of 6 topics"),
    ],
)
def test_months_that_do_not_fit_together_are_refused(known: dpvb.LDA, options: dict[str, Any], said: str) -> None:
    first = months(known, n_steps=0).fit(documents(20))
    with pytest.raises(ParameterError, match=said):
        months(known, **{"previous": first, **options}).fit(documents(20))


def test_an_earlier_fit_without_a_prior_or_noise_is_no_month(known: dpvb.LDA) -> None:
    with pytest.raises(ParameterError, match="previous must be a private model"):
        months(known, previous=known).fit(documents(20))
    with pytest.raises(ParameterError, match="previous must be a fit with prior="):
        months(known, previous=model(n_components=TOPICS, n_steps=10).fit(documents(20))).fit(documents(20))


def test_persons_are_asked_for_as_ids(known: dpvb.LDA) -> None:
    with pytest.raises(ParameterError, match="group must name the person"):
        months(known).fit(documents(4), exclude_groups=[1])
    for wrong in ("anna", 3):
        with pytest.raises(DataFormatError, match="exclude_groups must be a sequence"):
            months(known).fit(documents(4), group=range(4), exclude_groups=wrong)


def test_a_month_of_the_same_data_set_is_refused(known: dpvb.LDA, tmp_path: Path) -> None:
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        for name in ("january", "february"):
            ledger.register(name, epsilon=4.0, delta=1e-3, unit="document", neighboring_relation="add_or_remove_one")
        first = months(known, n_steps=0).fit(documents(20), run=dpvb.Run(ledger=ledger, dataset="january"))
        with pytest.raises(ParameterError, match="previous must come from other people than dataset='january'"):
            months(known, previous=first).fit(documents(20), run=dpvb.Run(ledger=ledger, dataset="january"))
        second = months(known, n_steps=0, previous=first).fit(
            documents(20), run=dpvb.Run(ledger=ledger, dataset="february")
        )
    assert "sums of 6 topics of an earlier release of data set 'january'" in " ".join(str(second.privacy_).split())


def test_parts_of_one_data_set_share_nobody_and_a_whole_has_its_parts(known: dpvb.LDA, tmp_path: Path) -> None:
    """The ledger was told before anybody was charged: parts are disjoint, and a part's people are the whole's."""
    kind: dict[str, Any] = {"unit": "document", "neighboring_relation": "add_or_remove_one"}
    with dpvb.Ledger(tmp_path / "budget.db") as ledger:
        ledger.register("notes", epsilon=9.0, delta=1e-3, **kind)
        for name in ("january", "february"):
            ledger.register(name, epsilon=9.0, delta=1e-3, part_of="notes", **kind)
        first = months(known, n_steps=0).fit(documents(20), run=dpvb.Run(ledger=ledger, dataset="january"))
        second = months(known, n_steps=0, previous=first).fit(
            documents(20), run=dpvb.Run(ledger=ledger, dataset="february")
        )
        with pytest.raises(ParameterError, match="previous must come from other people than dataset='notes'"):
            months(known, previous=second).fit(documents(20), run=dpvb.Run(ledger=ledger, dataset="notes"))
    said = " ".join(str(second.privacy_).split())
    assert "both data sets are disjoint parts of one" in said
    assert "no more than" not in said
