"""Mixtures with everything around a fit: ledgers and runs that go on, federations, persons, choices among settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forged import forge

import dpvb
from dpvb.data import Binary, Numeric, Schema, Table
from dpvb.data.tables import schema
from dpvb.errors import BudgetError, ModelFileError, ParameterError
from dpvb.ledger import Ledger

SCHEMA = Schema((Numeric("x", -4, 4), Numeric("visits", 0, 20), Binary("flag")))
GIVEN: dict[str, Any] = {
    "count_columns": "visits",
    "n_steps": 4,
    "fidelity_share": 0.1,
    "random_state": 0,
    "delta": 1e-6,
}


def people(n: int = 600) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    one = rng.random(n) < 0.4
    visits = rng.poisson(np.where(one, 2, 9)).clip(0, 20)
    return {"x": rng.normal(np.where(one, -2, 2), 0.5), "visits": visits, "flag": (rng.random(n) < one).astype(int)}


def part(cells: dict[str, np.ndarray], which: Any) -> Table:
    return Table({name: values[which] for name, values in cells.items()}, SCHEMA)


def same(one: Any, two: Any) -> None:
    assert one.component_table().lines == two.component_table().lines
    rows = one.sample(50, 0)
    assert one.fidelity(rows, synthetic=True).lines == two.fidelity(rows, synthetic=True).lines
    assert one.fidelity(rows, synthetic=True).pairs == two.fidelity(rows, synthetic=True).pairs


def test_a_ledger_is_charged_once_and_a_stopped_fit_goes_on_with_the_releases_that_it_made(tmp_path: Path) -> None:
    """Stopped in the first phases, at a step and before the check: noise of what was released is not drawn again."""
    path = tmp_path / "budget.db"
    with Ledger(path) as made:
        made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
    table = part(people(), slice(None))
    given: Any = {"ledger": path, "dataset": "people"}
    for stops in ((2,), (5,), (7,)):
        checkpoint = tmp_path / f"run-{stops[0]}"

        def stop(step: int, plan: Any, at: int = stops[0]) -> None:
            if step == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            dpvb.Mixture(2, **GIVEN, epsilon=1.0).fit(
                table, run=dpvb.Run(**given, progress=stop, checkpoint=checkpoint)
            )
        fitted = dpvb.Mixture(2, **GIVEN, epsilon=1.0).fit(table, run=dpvb.Run(**given, checkpoint=checkpoint))
        same(
            dpvb.Mixture(2, **GIVEN, epsilon=1.0).fit(
                table, run=dpvb.Run(**given, checkpoint=checkpoint, resume="load")
            ),
            fitted,
        )
    with Ledger(path) as found:
        found.verify()
        assert len([entry for entry in found.entries() if entry.kind == "charge"]) == 3
    with pytest.raises(BudgetError):
        dpvb.Mixture(2, **GIVEN, epsilon=3.0).fit(table, run=dpvb.Run(**given))


@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
def test_owners_fit_one_mixture_and_one_check(trust: str) -> None:
    cells = people(2000)
    shards = [{"X": part(cells, slice(own, None, 2))} for own in (0, 1)]
    model = dpvb.federated.simulate(dpvb.Mixture(2, **GIVEN, epsilon=8.0), shards, trust=trust)
    assert np.sort(model.means_[:, 0]) == pytest.approx([-2, 2], abs=1.0)
    found = {line.name: line for line in model.fidelity(cells, synthetic=True)}
    assert abs(found["flag=1"].released - cells["flag"].mean()) < 7 * found["flag=1"].std
    assert len(model.fidelity(cells, synthetic=True).pairs) == 3


def test_without_noise_owners_have_the_fit_of_all_rows() -> None:
    cells, exact = people(), {**GIVEN, "epsilon": np.inf}
    shards = [{"X": part(cells, slice(own, None, 2))} for own in (0, 1)]
    together = dpvb.Mixture(2, **exact).fit(part(cells, slice(None)))
    apart = dpvb.federated.simulate(dpvb.Mixture(2, **exact), shards)
    np.testing.assert_allclose(apart.means_, together.means_, rtol=1e-9)
    np.testing.assert_allclose(apart._marginals.cell_c, together._marginals.cell_c, rtol=1e-9)


def test_a_person_counts_once_in_groups_and_in_the_check() -> None:
    """Hundred rows of a person are as one; a person of each row is as no persons."""
    cells, exact = people(60), {**GIVEN, "epsilon": np.inf, "prune": False}
    table = part(cells, slice(None))
    alone = dpvb.Mixture(2, **exact).fit(table)
    singles = dpvb.Mixture(2, **exact).fit(table, group=np.arange(60))
    np.testing.assert_allclose(singles.means_, alone.means_, rtol=1e-6)
    np.testing.assert_allclose(singles._marginals.cell_c, alone._marginals.cell_c, rtol=1e-6)
    assert singles.privacy_.unit == "person"
    places = np.r_[np.arange(60), np.full(99, 7)]
    crowd = dpvb.Mixture(2, **exact).fit(part(cells, places), group=places)
    # All blocks of a person together are within the bound, which a single row does not use up.
    assert 60 - 1e-3 <= crowd._marginals.number_1[0] < 60.5
    np.testing.assert_allclose(crowd._marginals.cell_c, alone._marginals.cell_c, atol=1e-2)


def test_batches_are_drawn_and_a_table_of_persons_says_so_itself() -> None:
    cells = people(2000)
    model = dpvb.Mixture(2, **{**GIVEN, "n_steps": 20}, epsilon=4.0, sampling_prob=0.3).fit(part(cells, slice(None)))
    assert np.sort(model.means_[:, 0]) == pytest.approx([-2, 2], abs=1.0)
    schema = Schema(SCHEMA.columns, group="who")
    owned = Table({**people(200), "who": np.repeat(np.arange(100), 2)}, schema)
    of_persons = dpvb.Mixture(2, **GIVEN, epsilon=4.0).fit(owned)
    assert of_persons.privacy_.unit == "person"
    assert of_persons.fidelity(of_persons.sample(20, 0), synthetic=True).pairs


def test_settings_of_a_table_are_chosen() -> None:
    grid = [{"n_components": 1, "fidelity_share": 0.0}, {"n_components": 2, "fidelity_share": 0.1}]
    best = dpvb.private_select(
        dpvb.Mixture(1, **GIVEN, epsilon=1.0), grid, part(people(), slice(None)), epsilon=8.0, delta=1e-5
    )
    assert len(best.weights_) <= best.n_components
    assert len(best.fidelity(best.sample(10, 0), synthetic=True).pairs) == (3 if best.n_components == 2 else 0)
    assert best.privacy_.epsilon <= 8.0


def test_a_cluster_gives_the_same_bits_with_a_check(two_processes: Any) -> None:
    table, exact = part(people(200), slice(None)), {**GIVEN, "epsilon": np.inf}
    same(*(dpvb.Mixture(2, **exact).fit(table, run=dpvb.Run(cluster=cluster)) for cluster in (None, two_processes)))


def test_a_file_whose_groups_say_nothing_of_a_row_is_refused(tmp_path: Path) -> None:
    """Finite numbers in the domains of their parts, of which sums and squares overflow."""
    fitted = dpvb.Mixture(2, **{**GIVEN, "epsilon": 1.0, "n_steps": 1}).fit(part(people(300), slice(None)))
    fitted.save(tmp_path / "m.dpvb")
    for name, value in (("number_k", 1e308), ("mean_kd", 1e308), ("root_kdd", 1e-308), ("root_kdd", 1e308)):
        odd = {f"components__{name}": lambda a, value=value: np.full_like(a, value)}
        forge(tmp_path / "m.dpvb", tmp_path / f"{name}{value}", arrays=odd)
        with pytest.raises(ModelFileError, match="do not fit together"):
            dpvb.load(tmp_path / f"{name}{value}")
    # A prior that claims to be sure beyond measure is met as one that is very sure.
    forge(tmp_path / "m.dpvb", tmp_path / "sure", arrays={"variances__mean_k": np.zeros(2)})
    given = {**GIVEN, "epsilon": 1.0, "prior": tmp_path / "sure", "public_prior": True}
    again = dpvb.Mixture(2, **given).fit(part(people(), slice(None)))
    assert np.sort(again.means_, axis=0) == pytest.approx(np.sort(fitted.means_, axis=0))  # Noise orders the groups.


class Ordinal:
    """A column of a kind that no mixture models, which otherwise behaves like a number."""

    def __init__(self, name: str) -> None:
        self._number = Numeric(name, 0, 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._number, name)


@pytest.mark.parametrize("model", ["Mixture", "NaiveBayes"])
def test_a_column_of_another_kind_is_refused_before_the_charge(
    model: str, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(schema._KINDS, "ordinal", Ordinal)
    columns: list[Any] = [Numeric("x", 0, 1), Binary("y"), Ordinal("grade")]
    table = Table({"x": np.ones(40), "y": np.ones(40), "grade": np.ones(40)}, Schema(columns))
    given = {"response": "y"} if model == "NaiveBayes" else {}
    fit = getattr(dpvb, model)(epsilon=0.5, delta=1e-5, **given).fit
    with pytest.raises(ParameterError, match=r"grade.*got Ordinal"):
        fit(table, run=dpvb.Run(ledger=str(ledger), dataset="a"))
    assert Ledger(ledger).remaining("a").num_charges == 0
