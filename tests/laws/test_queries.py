"""The law of queries: at every q that is accepted a unit stays within its bound, in norm and in distance."""

from __future__ import annotations

import math
from array import array as packed
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Annotated, Any

import numpy as np
import pytest
from each import each
from forged import forge
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import topic_kernel
from planted import edit, kills
from small_models import CASES, NAMES, Case, table

import dpvb
from benchmarks.float64 import Float64Topics
from dpvb.audit import queries
from dpvb.core import loop
from dpvb.core.blocks import Block, Contributions, Grid
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Gram, Kron, MeasuredRows, Rows, ScaledRows, SparseRows, grouped, is_gram, nonnegative
from dpvb.core.model import constant, robbins_monro
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.errors import CheckpointError, ModelFileError, PrivacyError, PrivateComputationError
from dpvb.guards import domains
from dpvb.guards.arrays import Floats
from dpvb.guards.suppress_output import silence
from dpvb.models.topics import kernel as kernel
from dpvb.models.topics.lda import LDAModel

EVERY_MODEL = pytest.mark.parametrize("case", CASES, ids=NAMES)
_MODELS = list({type(case.model).__name__: case for case in CASES}.values())
ONE_OF_EACH = pytest.mark.parametrize("case", _MODELS, ids=lambda case: type(case.model).__name__)


def after_a_run(case: Case, noise: float) -> Any:
    """The last q of a short noisy run from beginning to end; a q never changes, so that tests share it."""
    if (case.name, noise) not in _FOUND:
        _FOUND[case.name, noise] = _run(case, noise)
    return _FOUND[case.name, noise]


_FOUND: dict[tuple[str, float], Any] = {}


def _run(case: Case, noise: float) -> Any:
    model = case.model
    plan = phased(model.blocks, FullBatch(), [noise, noise, noise])
    records = case.some(np.random.default_rng(3), 40)
    wall: Wall[Any] = Wall(case.source(records, None), plan, noise=InsecureNoise(4))
    return loop.fit(model, wall, plan, rho=robbins_monro(1.0, 0.6), rng=np.random.default_rng(5))[0]


# --- domains ------------------------------------------------------------------------------------------------


@ONE_OF_EACH
@each("noise", [0.0, 0.5, 30.0])
def test_an_honest_q_is_in_its_domain(case: Case, noise: float) -> None:
    assert domains.outside(case.start()) is None
    assert domains.outside(after_a_run(case, noise)) is None


def leaves(q: Any) -> int:
    """How many parts of a q hold numbers: an array of a kind of column that there is none of has none."""
    return sum(_floating(part) for _, part, _ in domains._parts("q", q, domains.FINITE))


def with_leaf(q: Any, place: int, change: Any) -> Any:
    """A copy of q in which one leaf is another."""
    numbers = iter(range(10**6))
    return queries._rebuilt(q, lambda value: change(value) if np.size(value) and next(numbers) == place else value)


@pytest.mark.guarantees("domains")
@kills("queries", "q with NaN in its domain", "LDAModel")
@edit("guards/domains.py", "if not np.isfinite(array).all():", "if np.isinf(array).any():")
@kills("queries", "q with infinity taken for finite", "LDAModel")
@edit("guards/domains.py", "if not np.isfinite(array).all():", "if np.isnan(array).any():")
@kills("queries", "q with numbers that are not finite asked", "LDAModel")
@edit("core/loop.py", "domains.checked(q)", "q")
@ONE_OF_EACH
@each("odd", [math.nan, math.inf, -math.inf])
def test_no_number_that_is_not_finite_reaches_an_e_step(case: Case, odd: float) -> None:
    """Every number of every q, one after the other."""
    q, release = after_a_run(case, 0.5), case.plan().releases[0]
    places = leaves(q)
    assert places

    def spoilt(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return odd
        array = value.copy()
        array.flat[array.size // 2] = odd
        return array

    refused = 0
    for place in range(places):
        other = with_leaf(q, place, spoilt)
        if other == q if isinstance(q, float) else domains.outside(other) is None:
            continue  # Its own class refuses to hold such a number, so that q is as it was.
        refused += 1
        with pytest.raises(PrivacyError, match="must be finite"):
            loop.query(case.model, other, release)
    assert refused >= places - 1


@dataclass(frozen=True)
class Everything:
    """A q with one field of every domain."""

    plain: Floats
    positive: Annotated[float, domains.POSITIVE] = 1.0
    nonnegative: Annotated[float, domains.NONNEGATIVE] = 0.0
    probability: Annotated[float, domains.PROBABILITIES] = 0.5
    simplex: Annotated[Floats | None, domains.SIMPLEX] = None
    symmetric: domains.Symmetric | None = None
    covariance: domains.Covariance | None = None


INSIDE = Everything(np.zeros(2), simplex=np.array([0.3, 0.7]), symmetric=np.eye(2), covariance=np.ones(3))


@kills("queries", "domains of parts that may be absent not found")
@edit("guards/domains.py", "parts = (hint, *get_args(hint))", "parts = (hint,)")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"positive": 0.0}, "q.positive must be positive"),
        ({"positive": -1e-300}, "q.positive must be positive"),
        ({"nonnegative": -5e-324}, "q.nonnegative must be 0 or more"),
        ({"probability": 1.0}, "q.probability must be between 0 and 1, ends left out"),
        ({"probability": 0.0}, "q.probability must be between 0 and 1, ends left out"),
        ({"simplex": np.array([0.3, 0.6])}, "q.simplex must be 0 or more with sum 1"),
        ({"simplex": np.array([1.3, -0.3])}, "q.simplex must be 0 or more with sum 1"),
        ({"symmetric": np.array([[1.0, 2.0], [3.0, 4.0]])}, "q.symmetric must be symmetric"),
        ({"symmetric": np.ones((2, 3))}, "q.symmetric must be symmetric"),
        ({"covariance": np.array([1.0, -1e-9])}, "q.covariance must be symmetric with a diagonal of 0 or more"),
        ({"covariance": np.diag([1.0, -1.0])}, "q.covariance must be symmetric with a diagonal of 0 or more"),
        ({"plain": np.array([1, "x"], dtype=object)}, "q.plain must be numbers, but has dtype object"),
        ({"plain": np.array([0.0, math.nan])}, "q.plain must be finite"),
        ({"plain": {"deep": [1.0, (2.0, -math.inf)]}}, "q.plain.deep.1.1 must be finite"),
        ({"plain": 10**400}, "q.plain must be numbers, but has dtype object"),
    ],
)
def test_what_is_outside_is_named(change: Mapping[str, Any], words: str) -> None:
    assert domains.outside(INSIDE) is None
    assert domains.outside(replace(INSIDE, **change)) == words


@pytest.mark.guarantees("domains")
@kills("queries", "declared domains of q never looked at", "LDAModel")
@edit("guards/domains.py", "if not declared.holds(array):", "if False:")
@ONE_OF_EACH
def test_every_declared_domain_is_checked(case: Case) -> None:
    """What a class declares for a field is asked of that field: the other sign is refused wherever one is declared."""
    q = after_a_run(case, 0.5)
    declared = [domain for _, part, domain in domains._parts("q", q, domains.FINITE) if _floating(part)]
    assert len(declared) == leaves(q)
    for place, domain in enumerate(declared):
        if domain is domains.FINITE or domain is domains.SYMMETRIC:
            continue
        other = with_leaf(q, place, lambda value: -1.0 - abs(value))
        fault = domains.outside(other)
        assert fault is not None, domain.words
        assert domain.words in fault


def _floating(part: Any) -> bool:
    return isinstance(part, (float, np.floating)) or (
        isinstance(part, np.ndarray) and part.dtype.kind == "f" and part.size > 0
    )


def test_models_that_travel_declare_signs() -> None:
    """What the E-steps of this package divide by, or take a root or a logarithm of, is declared."""
    found = {
        type(case.model).__name__: {d.words for *_, d in domains._parts("q", case.start(), domains.FINITE)}
        for case in _MODELS
    }
    for name in ("LDAModel", "FirstOrder", "FirstOrderDiagonal", "SBN"):
        assert domains.POSITIVE.words in found[name], name


@dataclass(frozen=True)
class Exploding:
    """A model whose M-step leaves the finite numbers after its first release."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"x": Block((1,), 1.0)}

    def init(self, rng: np.random.Generator) -> Floats:
        return np.zeros(1)

    def e_step(self, q: Floats, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return {"x": Rows(np.zeros((len(batch), 1)))}

    def m_step(self, s: Estimate, q: Floats) -> Floats:
        return np.array([math.inf])


def test_a_fit_whose_q_leaves_its_domain_ends_before_it_asks_again() -> None:
    model = Exploding()
    plan = phased(model.blocks, FullBatch(), [1.0, 1.0])
    wall: Wall[Any] = Wall(table(np.zeros((3, 4))), plan, noise=InsecureNoise(0))
    with pytest.raises(PrivacyError, match=r"q must be finite.*larger epsilon"):
        loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
    assert repr(wall) == "Wall(step 1 of 2)"


# --- model files --------------------------------------------------------------------------------------------


def small_fits() -> dict[str, tuple[Any, str, Any]]:
    """Fitted models, with an array of their file and what it is changed to."""
    rng = np.random.default_rng(0)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-4, "n_steps": 1}
    x, y = rng.normal(size=(30, 2)) / 4, (rng.random(30) < 0.5).astype(int)
    return {
        "LDA": (
            dpvb.LDA(2, public_vocabulary=True, **budget).fit(rng.poisson(1.0, (30, 3))),
            "lambda_vk",
            lambda a: -a,
        ),
        "regression": (
            dpvb.LogisticRegression(max_row_norm=1.0, **budget).fit(x, y),
            "weights__covariance",
            lambda a: -a,
        ),
        "asymmetric": (dpvb.LogisticRegression(max_row_norm=1.0, **budget).fit(x, y), "weights__covariance", np.tril),
        "network": (dpvb.SigmoidBeliefNetwork(2, **budget).fit(y.reshape(10, 3)), "mean_k", lambda a: a + 1),
    }


@pytest.mark.guarantees("domains")
@kills("queries", "a model file's network taken whatever its probabilities", "network")
@edit("models/belief_network/sbn.py", "mean_k: Annotated[Floats, PROBABILITIES]", "mean_k: Floats")
@kills("queries", "a model file's weights taken whatever their covariance", "asymmetric")
@edit("results/trees.py", "in domains.declared_by(kind).items():", "in ():")
@kills("queries", "a model file's topics taken whatever their numbers", "LDA")
@edit("estimators/lda.py", "if not (record.lambda_vk >= 1 / _MOST).all() or ", "if ")
@edit("estimators/lda.py", "    lambda_vk: Positives", "    lambda_vk: Floats")
@pytest.mark.parametrize("name", ["LDA", "regression", "asymmetric", "network"])
def test_a_model_file_outside_the_domain_is_refused(name: str, tmp_path: Any) -> None:
    fitted, array, change = small_fits()[name]
    path = tmp_path / "model.dpvb"
    fitted.save(path)
    dpvb.load(path)
    forge(path, arrays={array: change})
    with pytest.raises(ModelFileError, match="do not fit together"):
        dpvb.load(path)


# --- what the wall enforces ---------------------------------------------------------------------------------

GRID = Grid(2.0**-30, 4.0)
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=True) | st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e300, -1e300])


def alone(contribution: Any, n: int, shape: tuple[int, ...], count: int) -> np.ndarray:
    weight, out = np.zeros(count), np.zeros(shape, np.int64)
    norm = contribution.norms()[n]
    if np.isfinite(norm) and norm > 0:
        weight[n] = min(1.0, GRID.bound / norm) * (1 - 2.0**-20)
        contribution.accumulate(weight, GRID, out)
    return out


FORMS = ["rows", "scaled", "sparse", "kron", "strange", "rows of persons", "sparse of persons"]


class Strange:
    """A form that the package does not know."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def of_block(self, block: Any, num_rows: int) -> Any:
        return self

    def norms(self) -> Floats:
        return self._rows.norms()

    def accumulate(self, weights: Floats, grid: Grid, out: Any) -> None:
        self._rows.accumulate(weights, grid, out)


@pytest.mark.guarantees("enforced domains")
@kills("queries", "negative entries of persons kept")
@edit("core/forms.py", "        return replace(self, rows=nonnegative(self.rows))\n", "        return self\n")
@kills("queries", "negative entries of forms that nobody knows kept")
@edit(
    "core/forms.py", "_UnitByUnit(contribution) if without_negative is None", "contribution if without_negative is None"
)
@pytest.mark.parametrize(
    "form",
    ["rows", "scaled", "sparse", "kron", "strange", "rows of persons", "sparse of persons", "kron of persons"],
)
@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.data())
def test_no_nonnegative_block_gets_a_negative_entry(form: str, data: Any) -> None:
    """Of any form: so that any two units have a nonnegative inner product; and norms are still bounds."""
    n, d = 4, 3
    values = np.array(data.draw(st.lists(NUMBERS, min_size=n * d, max_size=n * d))).reshape(n, d)
    other = np.array(data.draw(st.lists(NUMBERS, min_size=n * d, max_size=n * d))).reshape(n, d)
    given_form: Any = {
        "rows": Rows(values),
        "scaled": ScaledRows(MeasuredRows(values), other[:, 0]),
        "sparse": SparseRows(np.arange(0, n * d + 1, d), np.tile(np.arange(d, dtype=np.int32), n), values.ravel()),
        "kron": Kron(values, other),
        "strange": Strange(Rows(values)),
    }[form.removesuffix(" of persons")]
    count = n
    if "persons" in form:
        given_form, count = grouped(given_form, np.array([0, 0, 1, 1]), 2), 2
    shape = (d, d) if form.startswith("kron") else (d,)
    with silence():  # As behind the wall, where the library computes it.
        contribution = nonnegative(given_form)
        parts = [alone(contribution, unit, shape, count) for unit in range(count)]
    for part in parts:
        assert (part >= 0).all()
        assert sum(int(v) ** 2 for v in part.ravel()) * GRID.step**2 <= GRID.bound**2
    plain = nonnegative(Rows(np.abs(values)))
    assert plain.norms().tolist() == Rows(np.abs(values)).norms().tolist()


def test_what_is_nonnegative_already_is_not_copied() -> None:
    rows = Rows(np.array([[0.0, 1.0], [np.nan, 2.0]]))
    assert nonnegative(rows).values is rows.values


@dataclass(frozen=True)
class Answers:
    """A model that contributes what it is told, whatever it declares."""

    domain: Any
    contribution: Any
    bound: float = 1.0

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"m": Block((2, 2), self.bound, self.domain)}

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return {"m": self.contribution(batch)}


def released(model: Answers, rows: int = 2) -> np.ndarray:
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))], unit="row")
    wall: Wall[Any] = Wall(table(np.ones((rows, 2))), plan, noise=InsecureNoise(0))
    return np.asarray(wall.release(partial(model.e_step, 0.0, blocks=model.blocks), plan.releases[0]).total["m"])


@pytest.mark.guarantees("enforced domains")
@kills("queries", "a Gram block takes any matrices")
@edit("core/clipped_sums.py", 'if block.domain == "gram" and not is_gram(contribution):', "if False:")
def test_a_gram_block_takes_gram_forms_alone() -> None:
    """√2 hangs on the form, not on a model's word: matrices that merely claim to be psd are refused."""
    matrices = lambda batch: Rows(np.tile(np.eye(2), (len(batch), 1, 1)), symmetric=True)  # noqa: E731
    with pytest.raises(PrivateComputationError):
        released(Answers("gram", matrices))
    assert released(Answers("psd", matrices)).shape == (3,)
    assert Release(Answers("psd", matrices).blocks, Mechanism(FullBatch(), 1.0)).event().swap_ratio == 2.0
    outer = lambda batch: Gram(batch, np.ones(len(batch)))  # noqa: E731
    assert released(Answers("gram", outer)).shape == (3,)
    assert Release(Answers("gram", outer).blocks, Mechanism(FullBatch(), 1.0)).event().swap_ratio == math.sqrt(2)
    assert is_gram(grouped(Gram(np.ones((2, 2)), np.ones(2)), np.array([0, 0]), 1))


class Silent:
    """Says that its norms are 0, and adds a lot."""

    def __init__(self, count: int, norm: float) -> None:
        self._norm_n = np.full(count, norm)

    def of_block(self, block: Any, num_rows: int) -> Any:
        return self

    def norms(self) -> Floats:
        return self._norm_n

    def accumulate(self, weights: Floats, grid: Grid, out: Any) -> None:
        out += np.int64(2**40) * int(np.count_nonzero(weights))


@pytest.mark.guarantees("enforced domains")
@kills("queries", "norm 0 given weight 1")
@edit("core/clipped_sums.py", "np.where(usable & (norms[name] > 0),", "np.where(usable,")
@pytest.mark.parametrize("norm", [0.0, -0.0, math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("domain", ["real", "nonnegative", "psd"])
def test_a_unit_of_norm_zero_or_unknown_adds_nothing(domain: str, norm: float) -> None:
    assert not released(Answers(domain, lambda batch: Silent(len(batch), norm))).any()


# --- hostile q ----------------------------------------------------------------------------------------------


#: A case of each model with releases beside the first ones, whose q no stranger can make: all of them are asked about.
LATER = list({id(case.model): case for case in CASES if case.phase != "first"}.values())


@pytest.mark.guarantees("hostile queries")
@pytest.mark.parametrize("count", [30, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", LATER, ids=lambda case: case.name)
def test_at_a_hostile_q_no_unit_leaves_its_bound(case: Case, count: int) -> None:
    for check in queries.check_queries(replace(case, phase=None), count):
        assert check.passed, check


@pytest.mark.guarantees("hostile queries")
@pytest.mark.parametrize("case", LATER, ids=lambda case: case.name)
def test_a_q_with_one_extreme_number_fails_nobody(case: Case) -> None:
    """Each number of q in turn, and each array of numbers, is the largest or the smallest that its domain allows."""
    for part in (part for part in replace(case, phase=None).parts() if part.phase != "first"):
        q, release = part.start(1), part.plan().releases[0]
        [chunk] = part.source(part.some(np.random.default_rng(1), 3), None).chunks()
        for place, extreme in product(range(leaves(q)), (1e300, 1e-300, 5e-324)):
            with np.errstate(all="ignore"):
                other = with_leaf(q, place, lambda value, x=extreme: x * np.ones_like(value) if np.ndim(value) else x)
                if domains.outside(other) is None:
                    part.model.e_step(other, chunk.rows, release.asked)


@pytest.mark.guarantees("hostile queries")
@pytest.mark.slow
@pytest.mark.parametrize("case", LATER, ids=lambda case: case.name)
def test_at_ten_thousand_hostile_q_no_unit_leaves_its_bound(case: Case) -> None:
    for check in queries.check_queries(replace(case, phase=None), 10_000):
        assert check.passed, check


@kills("queries", "an audit that asks honest q for hostile ones")
@edit(
    "audit/queries.py",
    "return _rebuilt(q, lambda value: _changed(value, rng) if next(place) in chosen else value)",
    "return q",
)
def test_hostile_q_are_of_many_kinds_and_some_are_accepted() -> None:
    q, rng = LDAModel(2, 5).init(np.random.default_rng(0)), np.random.default_rng(1)
    made = [queries.hostile(q, rng) for _ in range(400)]
    numbers = np.concatenate([other.beta_vk.ravel() for other in made])
    assert np.isnan(numbers).any()
    assert np.isinf(numbers).any()
    assert (numbers < 0).any()
    assert (np.abs(numbers[np.isfinite(numbers)]) > 1e30).any()
    accepted = sum(domains.outside(other) is None for other in made)
    assert 10 < accepted < 390


def test_topics_of_infinity_and_weights_of_nan_add_nothing() -> None:
    """A word of infinite probability and unknown weight made the kernel add the least integer."""
    for kind in (LDAModel, Float64Topics):
        model = kind(2, 6, release_word_totals=False, word_weight_power=0.0)
        q = model.init(np.random.default_rng(0))
        beta_vk, weight_v = q.beta_vk.copy(), q.word_weight_v.copy()
        beta_vk[3], weight_v[3] = np.inf, np.nan
        hostile = replace(q, beta_vk=beta_vk, word_weight_v=weight_v)
        assert domains.outside(hostile) == "q.beta_vk must be finite"
        plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))])
        source = dpvb.data.BagOfWords(np.array([[1, 0, 0, 2, 0, 0], [0, 0, 0, 1, 0, 0]]))
        wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(0))
        total = wall.release(partial(model.e_step, hostile, blocks=model.blocks), plan.releases[0]).total["counts"]
        assert np.abs(total).max() <= model.blocks["counts"].bound


@kills("queries", "what topics of any numbers give added as it is")
@edit("models/topics/kernel_numba.py", "                s = s if s > 0.0 else 0.0  # NaN as well\n", "")
@edit("models/topics/kernel_numba.py", "np.int64(s if s < most else most)", "np.int64(s)")
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1))
def test_topics_of_any_numbers_add_nothing_below_0_or_beyond_the_bound(seed: int) -> None:
    """Whatever topics, proportions and weights of words are, in compiled and plain loops, to the same bits."""
    rng = np.random.default_rng(seed)
    indptr, indices = np.array([0, 2, 5]), np.array([0, 3, 0, 1, 2], dtype=np.int32)
    beta_vk, theta_nk, ratio_j = rng.normal(size=(4, 2)), rng.normal(size=(2, 2)), rng.normal(size=5)
    for array in (beta_vk, theta_nk, ratio_j):
        array.flat[rng.integers(array.size)] = rng.choice(queries._ODD)
    found = []
    for engine in (kernel, topic_kernel):
        out_vk = np.zeros((4, 2), dtype=np.int64)
        with np.errstate(all="ignore"):
            engine.accumulate(
                indptr,
                indices,
                ratio_j,
                theta_nk,
                np.ones(2),
                beta_vk,
                GRID.step,
                out_vk,
                bound=GRID.bound,
            )
        found.append(out_vk)
    assert np.array_equal(*found)
    assert (found[0] >= 0).all()
    assert (found[0] <= 2 * GRID.bound / GRID.step).all()


@pytest.mark.parametrize("kind", [LDAModel, Float64Topics])
def test_negative_topics_do_not_push_two_documents_apart(kind: Any) -> None:
    """The q at which two documents were 1.97 C apart, where √2 C is accounted."""
    beta_vk = np.array([[-1.522315, -2.895056], [0.166584, -0.127521], [0.0494, -0.135326], [-0.166420, 0.455413]])
    facts: dict[str, Any] = {"count_power": 1.0, "release_word_totals": False, "word_weight_power": 0.0}
    model = kind(2, 4, clip_scale=0.01, document_length=1000.0, doc_topic_prior=0.05, **facts)
    q = model.init(np.random.default_rng(0))
    hostile = replace(q, beta_vk=beta_vk.astype(q.beta_vk.dtype))
    assert domains.outside(hostile) == "q.beta_vk must be 0 or more"
    plan = Plan([Release(model.blocks, Mechanism(FullBatch(), 0.0))])
    bound, sums = model.blocks["counts"].bound, []
    for document in ([10.0, 20, 0, 0], [0, 20, 20, 10]):
        wall: Wall[Any] = Wall(dpvb.data.BagOfWords(np.array([document])), plan, noise=InsecureNoise(0))
        query = partial(model.e_step, hostile, blocks=model.blocks)
        sums.append(wall.release(query, plan.releases[0]).total["counts"] / bound)
    assert all(np.linalg.norm(part) <= 1 for part in sums)
    assert np.linalg.norm(sums[0] - sums[1]) <= math.sqrt(2)


# --- interrupted runs ---------------------------------------------------------------------------------------


ONE = np.ones(1)


class Kept:
    """A journal in a folder of somebody else's: what it says was released is what they wrote."""

    def __init__(self, value: float) -> None:
        self._value = value
        self.begun: list[int] = []

    def recorded(self, step: int) -> Mapping[str, np.ndarray] | None:
        return {"words": np.full(6, self._value), "included": ONE, "clipped": ONE} if step == 0 else None

    def begin(self, step: int) -> None:
        self.begun.append(step)

    def record(self, step: int, released: Any) -> None:
        return None


@pytest.mark.guarantees("resumed values")
@pytest.mark.parametrize("value", [1e308, -math.inf, 3e307, math.nan])
def test_a_resumed_run_asks_nothing_at_a_q_of_hostile_numbers(value: float) -> None:
    """Sums that a folder brings make q; since they push it out of its domain, no document is read."""
    model = LDAModel(2, 6)
    plan = phased(model.blocks, FullBatch(), [1.0, 1.0])
    journal = Kept(value)
    wall: Wall[Any] = Wall(dpvb.data.BagOfWords(np.eye(6)), plan, noise=InsecureNoise(0), journal=journal)
    with np.errstate(all="ignore"), pytest.raises(PrivacyError, match="must be finite"):
        loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
    assert journal.begun == []


@pytest.mark.guarantees("resumed values")
@kills("queries", "a record of another form is believed")
@edit("core/journal.py", "if noisy is not None and {", "if False and {")
def test_a_record_of_another_form_is_refused_and_nothing_is_released() -> None:
    """A statistic of another shape, name or type in the folder of an interrupted run; a score for each row, say."""
    model = LDAModel(2, 6)
    plan = phased(model.blocks, FullBatch(), [1.0])
    for hostile in (
        {"words": np.zeros((6, 1))},
        {"words": np.zeros(7)},
        {"words": np.zeros(6, np.float32)},
        {"words": np.zeros(6, np.int64)},
        {"word": np.zeros(6)},
        {},
        {"words": np.zeros(6), "counts": np.zeros((6, 2))},
    ):
        journal = Kept(0.0)
        journal.recorded = lambda step, hostile=hostile: hostile  # type: ignore[method-assign]
        wall: Wall[Any] = Wall(dpvb.data.BagOfWords(np.eye(6)), plan, noise=InsecureNoise(0), journal=journal)
        with pytest.raises(CheckpointError, match="another form"):
            loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(0))
        assert journal.begun == []


@pytest.mark.parametrize(
    "part",
    [
        complex(1, 0),
        Decimal("NaN"),
        deque([math.nan]),
        packed("d", [math.nan]),
        memoryview(b""),
        iter([1.0]),
        len,
        object,
    ],
    ids=lambda part: type(part).__name__,
)
def test_what_cannot_be_looked_into_is_no_part_of_a_q(part: Any) -> None:
    fault = domains.outside({"ok": 1.0, "odd": part})
    assert fault is not None
    assert fault.startswith("q.odd must be")


class Slots:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = math.nan


def test_objects_are_looked_into_or_refused() -> None:
    class Plain:
        def __init__(self, value: float) -> None:
            self.value = value

    assert domains.outside(Plain(1.0)) is None
    assert domains.outside(Plain(math.nan)) == "q.value must be finite"
    assert "must be made of" in str(domains.outside(Slots()))
