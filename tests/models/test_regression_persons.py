"""Persons with several rows in regressions: weights by features only, scores without bias, bits of single rows."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from scipy.special import expit

import dpvb
from dpvb.core.blocks import Grid, pack_symmetric
from dpvb.core.forms import GramOfSums, MeasuredRows, Rows, ScaledRows, SparseRows, grouped
from dpvb.core.noise import InsecureNoise
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.regression import persons, tuned
from dpvb.models.regression.diagonal import DiagonalState, FirstOrderDiagonal
from dpvb.models.regression.first_order import FirstOrder
from dpvb.models.regression.likelihood import Likelihood
from dpvb.models.regression.linear import Linear
from dpvb.rows import DesignRows, SparseDesignRows

COLUMN, D = 0.4, 4
LIKELIHOODS = {
    "logistic": Likelihood(),
    "binomial": Likelihood("binomial", max_trials=5.0),
    "negative_binomial": Likelihood("negative_binomial", dispersion=None, max_count=8.0),
    "poisson": Likelihood("poisson", max_count=8.0),
}
#: Full and diagonal models of every likelihood, and the linear one.
MODELS: dict[str, Any] = {
    **{name: FirstOrder(D, COLUMN, likelihood=likelihood) for name, likelihood in LIKELIHOODS.items()},
    **{
        f"{name}, diagonal": FirstOrderDiagonal(D, replace(likelihood, dispersion=1.0), COLUMN)
        for name, likelihood in LIKELIHOODS.items()
    },
    "linear": Linear(D, COLUMN),
    "logistic, robust": FirstOrder(D, COLUMN, robust=True),
    "poisson, robust": FirstOrder(D, COLUMN, robust=True, likelihood=LIKELIHOODS["poisson"]),
    "linear, robust": Linear(D, COLUMN, robust=True),
}


def moved(model: Any, rng: np.random.Generator, size: float = 1.0) -> Any:
    """A state of the steps away from the start, whose scales leave some rows longer than 1."""
    q, point_d = model.init(rng), size * rng.standard_normal(D)
    scale_d = rng.uniform(0.4, 1.2, D)
    if isinstance(q, DiagonalState):
        return replace(q, scale_d=scale_d, descent=replace(q.descent, point_d=point_d))
    mean = replace(q.mean, point_d=point_d)
    return replace(q, moments=replace(q.moments, scale_e=scale_d), point_e=point_d, mean=mean)


def drawn(model: Any, rng: np.random.Generator, sizes: Any) -> Any:
    """Rows of persons with these numbers of rows, in the form that the model reads."""
    n, likelihood = int(np.sum(sizes)), getattr(model, "likelihood", None)
    x_nd = rng.standard_normal((n, D)) * (rng.random((n, D)) < 0.8)
    x_nd[:, 1:] *= 0.9 / np.maximum(np.linalg.norm(x_nd[:, 1:], axis=1), 1.0)[:, None]
    x_nd[:, 0] = COLUMN
    trials_n = np.ones(n)
    if likelihood is None:
        y_n = rng.uniform(-1, 1, n)
    elif likelihood.is_count:
        y_n = rng.integers(0, 9, n).astype(float)
    else:
        trials_n = rng.integers(1, likelihood.max_trials + 1, n).astype(float)
        y_n = rng.binomial(trials_n.astype(int), 0.5).astype(float)
    person_n = np.repeat(np.arange(len(sizes)), sizes)
    if isinstance(model, FirstOrderDiagonal):
        indptr = np.append(0, np.cumsum((x_nd != 0).sum(axis=1))).astype(np.int64)
        columns = np.nonzero(x_nd)[1].astype(np.int32)
        return SparseDesignRows(indptr, columns, x_nd[x_nd != 0], y_n, trials_n, person_n=person_n)
    return DesignRows(x_nd, y_n, trials_n, person_n=person_n)


def added(model: Any, q: Any, batch: Any, phase: str) -> dict[str, Any]:
    """What the persons of a batch add to the blocks of a phase, before they are clipped."""
    blocks = {name: block for name, block in model.blocks.items() if block.phase == phase}
    if not blocks:
        return {}
    count = int(batch.person_n.max(initial=-1)) + 1
    with np.errstate(invalid="ignore"):
        return {name: grouped(one, batch.person_n, count) for name, one in model.e_step(q, batch, blocks).items()}


def dense(form: Any) -> Floats:
    """A form of vectors as an array."""
    if isinstance(form, Rows):
        return form.values
    if isinstance(form, ScaledRows):
        return form.rows.x_nd * form.scale_n[:, None]
    out = np.zeros((len(form.indptr) - 1, D))
    out[np.repeat(np.arange(len(out)), np.diff(form.indptr)), form.indices] = form.values
    return out


def by_hand(a_nd: Floats, share_n: Floats, bound: float, person_n: Ints) -> Floats:
    """W of each person, straight from its formula."""
    weights = []
    for i in range(person_n.max() + 1):
        own, c = a_nd[person_n == i], share_n[person_n == i]
        square, total, rho = (own**2).sum(), (own.sum(axis=0) ** 2).sum(), tuned.PERSON_CORRELATION
        expected = np.sqrt((1 - rho) * square + rho * total)
        weight = min(1.0, bound / (tuned.PERSON_STD * expected), 1.0 / (len(own) * c.max()))
        weights.append(max(weight, 1.0 / len(own)))
    return np.array(weights)


@kills("records", "weight of a person by the scores of all persons")
@edit("models/regression/persons.py", "1.0 / (number_i * largest_i)", "1.0 / (number_i * largest_i.max())")
@given(seed=st.integers(0, 2**32 - 1), sparse=st.booleans())
def test_weights_are_those_of_the_formula(seed: int, sparse: bool) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, 6)
    person_n, n = np.repeat(np.arange(6), sizes), int(sizes.sum())
    a_nd, share_n = rng.standard_normal((n, D)) * 10 ** rng.uniform(-2, 0.5), rng.uniform(0.01, 1, n)
    form: Any = ScaledRows(MeasuredRows(a_nd), np.ones(n))
    if sparse:
        form = SparseRows(D * np.arange(n + 1), np.tile(np.arange(D), n), a_nd.ravel())
    expected = persons.Expected(form, share_n, 1.0)
    found_n = persons.score_weights(expected, np.ones(n, dtype=bool), person_n)
    hand_i = by_hand(a_nd, share_n, 1.0, person_n)
    np.testing.assert_allclose(found_n, hand_i[person_n], rtol=1e-6)
    assert (found_n[np.repeat(sizes == 1, sizes)] == 1.0).all()


def bounded_far(model: Any) -> bool:
    """Whether residuals are far below their bound: those of counts that are clipped at a public bound only."""
    return isinstance(model, FirstOrderDiagonal) and model.likelihood.is_count


def alone(batch: Any) -> Any:
    """The same rows, a person each."""
    return replace(batch, person_n=np.arange(len(batch.y_n)))


@pytest.mark.parametrize("name", MODELS)
def test_a_person_adds_v_times_their_rows_to_sums_and_w_times_their_sum_to_scores(name: str) -> None:
    """W is the same in the score and in its curvature, and the same for other responses."""
    model, rng = MODELS[name], np.random.default_rng(31)
    sizes = np.array([1, 2, 5, 9, 1, 3])
    q, batch = moved(model, rng), drawn(model, rng, sizes)
    other = replace(drawn(model, np.random.default_rng(32), sizes), **rows_of(batch))
    first = np.append(0, np.cumsum(sizes))[:-1]
    part_i = 1.0 / sizes
    if isinstance(model, FirstOrder):
        # As much as leaves the second moments within their bound.
        length_i = np.add.reduceat(added(model, q, alone(batch), "first")["curvature"].norms(), first)
        part_i = np.maximum(np.minimum(model.blocks["curvature"].bound / length_i, 1.0), part_i)
        part_i[sizes == 1] = 1.0
    for phase in ("first", "step"):
        rows, sums = added(model, q, alone(batch), phase), added(model, q, batch, phase)
        for block in set(rows) - {"score", "variance", "curvature"}:
            histogram = block == "count" and isinstance(model, FirstOrder) and model.likelihood.is_count
            part = 1.0 / sizes if histogram else part_i
            expected = np.add.reduceat(dense(rows[block]), first) * part[:, None]
            np.testing.assert_allclose(dense(sums[block]), expected, rtol=1e-6, atol=1e-12)
    rows, sums, others = (added(model, q, one, "step") for one in (alone(batch), batch, other))
    score = np.add.reduceat(dense(rows["score"]), first)
    if not bounded_far(model):
        weight_i = 1.0 / sizes
    else:
        total, weighted, again = (one["variance"].values[:, 0] for one in (rows, sums, others))
        weight_i = weighted / np.add.reduceat(total, first)
        np.testing.assert_array_equal(again, weighted)
        np.testing.assert_array_equal(weight_i[sizes == 1], 1.0)
        assert (weight_i >= 1.0 / sizes - 1e-12).all()
        assert (weight_i <= 1.0 + 1e-12).all()
    np.testing.assert_allclose(dense(sums["score"]), weight_i[:, None] * score, rtol=1e-9, atol=1e-12)
    at_end = [added(model, q, one, "last") for one in (alone(batch), batch)]
    if "curvature_at_mean" in at_end[0]:
        # Both are at the same weights here, so that W is as it was at the step.
        norms = [one["curvature_at_mean"].norms() for one in at_end]
        np.testing.assert_allclose(norms[1], weight_i * np.add.reduceat(norms[0], first), rtol=1e-9)


def rows_of(batch: Any) -> dict[str, Any]:
    """All fields of a batch but the responses."""
    return {name: value for name, value in vars(batch).items() if name not in ("y_n", "_last")}


@pytest.mark.parametrize("name", MODELS)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_sum_of_a_person_is_clipped_and_a_score_has_room(name: str, seed: int) -> None:
    """Sums and curvatures of a person are within the bound of one row; a score is, or k of its deviations are."""
    model, rng = MODELS[name], np.random.default_rng(seed)
    sizes = rng.integers(1, 12, 5)
    q, batch = moved(model, rng, 10 ** rng.uniform(-1, 1)), drawn(model, rng, sizes)
    for phase in ("first", "step", "last"):
        for block, form in added(model, q, batch, phase).items():
            bound = model.blocks[block].bound
            # Where residuals are far below their bound, a score has room for k deviations; a base rate and a dispersion
            # bias no coefficient.
            loose = {"score"} if bounded_far(model) else set()
            if isinstance(model, FirstOrder):
                loose |= {"dispersion", "dispersion_at_mean"} | (set() if model.likelihood.is_count else {"count"})
            if block not in loose:
                assert (form.norms() <= bound * (1 + 1e-4)).all(), block
    if not bounded_far(model):
        return
    score, rows = added(model, q, batch, "step")["score"], added(model, q, alone(batch), "step")["score"]
    first = np.append(0, np.cumsum(sizes))[:-1]
    weight_i = score.norms() / np.linalg.norm(np.add.reduceat(dense(rows), first), axis=1)
    longest = weight_i * sizes
    assert (score.norms()[longest <= 1 + 1e-9] <= model.blocks["score"].bound * (1 + 1e-9)).all()


@kills("rows", "each score of a person is clipped, then they are added")
@edit(
    "core/forms.py",
    "ScaledRows(self.rows, self.scale_n).grouped",
    "ScaledRows(self.rows, self.scale_n / np.maximum(np.abs(self.scale_n) * self.rows.length_n, 1.0)).grouped",
)
@kills("rows", "outer products of a person's scores are added, without those of different rows")
@edit(
    "core/forms.py",
    "        sums = ScaledRows(self.rows, self.scale_n)",
    "        return grouped(self._products, unit_of_row, num_units)  # type: ignore[return-value]\n"
    "        sums = ScaledRows(self.rows, self.scale_n)",
)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_variance_of_scores_is_of_their_sums_over_persons_which_are_clipped_whole(seed: int) -> None:
    """Against sums formed by hand; clipping s sᵀ to norm C² clips s to norm C."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, 4)
    person_n, n = np.repeat(np.arange(4), sizes), int(sizes.sum())
    x_nd, scale_n = rng.standard_normal((n, D)), rng.standard_normal(n)
    form = grouped(GramOfSums(MeasuredRows(x_nd), scale_n), person_n, 4)
    bound, sums = 1.5**2, np.zeros(D * (D + 1) // 2, dtype=np.int64)
    grid = Grid(2.0**-30, bound)
    form.accumulate(np.minimum(bound / form.norms(), 1.0), grid, sums)
    score_id = np.array([(x_nd * scale_n[:, None])[person_n == i].sum(axis=0) for i in range(4)])
    clipped_id = score_id * np.minimum(1.5 / np.linalg.norm(score_id, axis=1), 1.0)[:, None]
    np.testing.assert_allclose(sums * grid.step, pack_symmetric(clipped_id.T @ clipped_id), atol=2e-3)


@pytest.mark.parametrize("name", [name for name in MODELS if name.endswith("robust")])
def test_the_variance_of_scores_at_the_end_is_that_of_the_scores_of_the_steps(name: str) -> None:
    """At the same weights, and over the square of the norm to which scores are clipped there."""
    model, rng = MODELS[name], np.random.default_rng(38)
    q, batch = moved(model, rng), drawn(model, rng, [1, 2, 5, 3])
    score_id = dense(added(model, q, batch, "step")["score"]) / model._longest(q)
    found = added(model, q, batch, "last")["variance_at_mean"]
    scaled_id = found.x_nd * np.sqrt(found.scale_n)[:, None]
    np.testing.assert_allclose(
        np.einsum("ia,ib->iab", scaled_id, scaled_id), np.einsum("ia,ib->iab", score_id, score_id), atol=1e-12
    )


def test_the_score_of_a_person_has_expectation_zero_at_the_truth() -> None:
    """Over all responses of a person of six rows; their clipped sum without weights has not."""
    model, rng = MODELS["logistic"], np.random.default_rng(33)
    q, batch = moved(model, rng, 0.5), drawn(model, rng, [6])
    scaled_nd = batch.x_nd / q.moments.scale_e
    chance_n = expit(scaled_nd @ (q.moments.scale_e * q.point_e))
    expected_d, clipped_d = np.zeros(D), np.zeros(D)
    for response in itertools.product((0.0, 1.0), repeat=6):
        y_n = np.array(response)
        chance = np.prod(np.where(y_n == 1, chance_n, 1 - chance_n))
        person = added(model, q, replace(batch, y_n=y_n), "step")["score"]
        assert person.norms()[0] <= 1.0
        expected_d += chance * dense(person)[0]
        plain_d = dense(added(model, q, alone(replace(batch, y_n=y_n)), "step")["score"]).sum(axis=0)
        clipped_d += chance * plain_d / max(np.linalg.norm(plain_d), 1.0)
    # Rows in the coordinates of a score are exact to about 2⁻²⁷.
    assert np.abs(expected_d).max() < 1e-8
    assert np.abs(clipped_d).max() > 1e-3


def test_a_faulty_row_and_a_row_of_weight_zero_count_as_no_row() -> None:
    """The others add what they add without it."""
    rng = np.random.default_rng(34)
    for name, model in MODELS.items():
        q, batch = moved(model, rng), drawn(model, rng, [4, 3])
        keep = np.arange(7) != 2
        faulty = replace(batch, **{part: np.where(keep, getattr(batch, part), np.nan) for part in ("y_n", "trials_n")})
        if isinstance(batch, DesignRows):
            faulty = replace(faulty, x_nd=np.where(keep[:, None], batch.x_nd, np.nan))
        weightless = replace(batch, weight_n=keep.astype(float))
        whole = drawn(model, np.random.default_rng(35), [3, 3])
        few = replace(whole, **taken(batch, keep))
        for phase in ("first", "step", "last"):
            expected = added(model, q, few, phase)
            for one in (faulty, weightless):
                found = added(model, q, one, phase)
                for block in expected:
                    np.testing.assert_allclose(found[block].norms(), expected[block].norms(), rtol=1e-9, err_msg=name)


def taken(batch: Any, keep: Floats) -> dict[str, Any]:
    """Fields of a batch of some of its rows."""
    fields = {"y_n": batch.y_n[keep], "trials_n": batch.trials_n[keep], "person_n": batch.person_n[keep]}
    if isinstance(batch, DesignRows):
        return {**fields, "x_nd": batch.x_nd[keep]}
    entry = np.repeat(keep, np.diff(batch.indptr))
    indptr = np.append(0, np.cumsum(np.diff(batch.indptr)[keep]))
    return {**fields, "indptr": indptr, "indices": batch.indices[entry], "values": batch.values[entry]}


X = np.random.default_rng(36).uniform(-1, 1, (240, 3))
COUNTS = np.random.default_rng(37).poisson(np.exp(X[:, 0]))
GIVEN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "low": -1, "high": 1}
#: Estimators and their responses.
FITS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "logistic": (dpvb.LogisticRegression, (COUNTS > 0,)),
    "binomial": (
        lambda **more: dpvb.BinomialRegression(max_trials=4, **more),
        (np.minimum(COUNTS, 4), np.full(240, 4)),
    ),
    "negative binomial": (lambda **more: dpvb.NegativeBinomialRegression(max_count=9, **more), (COUNTS,)),
    "poisson": (lambda **more: dpvb.PoissonRegression(max_count=9, **more), (COUNTS,)),
}


class Unnamed:
    """Noise for tests that is the same in every plan of the same blocks, whatever its unit is called."""

    private, run_id = False, "unnamed"

    def gaussian(self, std_steps: float, total: Ints, *, step: int, block: str, plan_digest: bytes) -> Ints:
        return InsecureNoise(5).gaussian(std_steps, total, step=step, block=block, plan_digest=b"")

    def words(self, *, step: int, purpose: str) -> Any:
        return InsecureNoise(5).words(step=step, purpose=purpose)


def fitted(make: Any, data: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Any:
    monkeypatch.setattr("dpvb.core.wall.SecureNoise", Unnamed)
    return make.fit(X, *data, **more)


@pytest.mark.parametrize(
    ("name", "covariance"),
    [
        pytest.param(name, form, marks=[pytest.mark.slow] * (form == "diagonal" and name != "negative binomial"))
        for name in FITS
        for form in ("full", "diagonal")
    ],
)
def test_persons_with_one_row_each_have_the_bits_of_rows(
    name: str, covariance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, data = FITS[name]
    more = {"robust": False} if covariance == "full" else {"dispersion": 1.0} if name == "negative binomial" else {}
    plain, single = (
        fitted(kind(covariance=covariance, **GIVEN, **more), data, monkeypatch, **group)
        for group in ({}, {"group": np.arange(240)})
    )
    np.testing.assert_array_equal(plain.coef_, single.coef_)
    np.testing.assert_array_equal(plain.coef_std_, single.coef_std_)


def test_persons_with_one_row_each_have_the_bits_of_rows_in_linear_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, single = (
        fitted(dpvb.LinearRegression(y_range=(0, 9), **GIVEN), (COUNTS,), monkeypatch, **group)
        for group in ({}, {"group": np.arange(240)})
    )
    np.testing.assert_array_equal(plain.coef_, single.coef_)
    np.testing.assert_array_equal(plain.coef_std_, single.coef_std_)
    assert plain.sigma_ == single.sigma_


def of_persons(seed: int, n: int, sd: float) -> tuple[Floats, Floats, Ints, Floats]:
    """Rows of n persons, 1 to 10 each, whose effects leave the marginal model logistic (Wang & Louis 2003).

    The first two columns are constant within a person. Returns features, responses, persons and slopes.
    """
    rng, slope_d = np.random.default_rng(seed), np.array([0.6, -0.4, 0.6, -0.4])
    person_n = np.repeat(np.arange(n), rng.integers(1, 11, n))
    x_nd = np.hstack([rng.standard_normal((n, 2))[person_n], rng.standard_normal((len(person_n), 2))]).clip(-4, 4)
    phi, u_i = 1 / np.sqrt(1 + 3 * sd**2 / np.pi**2), rng.random(n)
    effect_i = np.log(np.sin(phi * np.pi * u_i) / np.sin(phi * np.pi * (1 - u_i))) / phi
    chance_n = expit((x_nd @ slope_d - 0.5) / phi + effect_i[person_n])
    return x_nd, (rng.random(len(person_n)) < chance_n).astype(float), person_n, slope_d


@kills("rows", "rows of a person at full weight, so that their clipped sum biases coefficients")
@edit(
    "models/regression/persons.py",
    "        weight_n = 1.0 / _numbers(_usable(batch), batch.person_n)[batch.person_n]",
    "        weight_n = np.ones(len(batch.person_n))",
)
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_coefficients_of_persons_have_no_bias_and_their_intervals_cover(
    covariance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six tables of 2,000 persons with correlated rows at ε = 2.

    The mean relative error of slopes has a standard error of at most 0.02, and an expectation within 0.1, since the
    prior of the diagonal form shrinks: the limit of 0.2 is five standard errors from it. Each of 24 intervals misses
    with probability 0.05 at most: more than 9 with probability 1e-7. Clipped sums of rows at full weight are off by
    0.33. The seeds are fixed, so that there is no false alarm.
    """
    errors, missed = [], 0
    for seed in range(6):
        noise = InsecureNoise(seed)
        monkeypatch.setattr("dpvb.core.wall.SecureNoise", lambda noise=noise: noise)
        x_nd, y_n, person_n, slope_d = of_persons(4_000 + seed, 2_000, 1.5)
        given: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "low": -4, "high": 4, "covariance": covariance}
        model = dpvb.LogisticRegression(**given).fit(x_nd, y_n, group=person_n)
        errors.append(float(np.ravel(model.coef_) @ slope_d / (slope_d @ slope_d)) - 1.0)
        missed += int((np.abs(np.ravel(model.coef_) - slope_d) > 1.96 * np.ravel(model.coef_std_)).sum())
    assert abs(np.mean(errors)) < 0.2
    assert missed <= 9


@pytest.mark.guarantees("unit count")
@kills("records", "a person of whom no row is valid is included")
@edit("core/clipped_sums.py", "norm > _NOTHING for norm", "norm > 0 for norm")
def test_a_person_of_whom_no_row_is_valid_is_not_included() -> None:
    """Without noise, in a table: labels that no class has, and missing numbers."""
    schema = dpvb.data.Schema((dpvb.data.Numeric("x", -1, 1),), dpvb.data.Target("y"), group="who")
    rng, who = np.random.default_rng(39), np.repeat(np.arange(40), 3)
    x, y = rng.uniform(-1, 1, 120), rng.integers(0, 2, 120).astype(object)
    y[who < 10], x[(who >= 10) & (who < 15)] = "other", np.nan
    model = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-6)
    model.fit(dpvb.Table({"x": x, "y": y, "who": who}, schema))
    assert model.privacy_.counts is not None
    assert model.privacy_.counts.included == 25
