"""Private gradients: the gradient, the guides' fixed points, purity, NumPyro, and what is refused before it costs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.base import clone

import dpvb
from dpvb.core import loop
from dpvb.core.blocks import Grid
from dpvb.core.forms import Rows
from dpvb.core.model import constant
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.tables.numbers import Numbers
from dpvb.errors import DataFormatError, ParameterError, PrivacyError
from dpvb.models.gradients.density import Density
from dpvb.models.gradients.numpyro_model import NumPyro
from dpvb.models.gradients.variational import CurvatureRegression, Gradients, SingleRows, Variational, VariationalState

jax = pytest.importorskip("jax")
jnp = jax.numpy
numpyro = pytest.importorskip("numpyro")
dist = pytest.importorskip("numpyro.distributions")

D = 3
MIXING = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.3], [0.0, 0.0, 0.5]])
PRECISION = np.linalg.inv(MIXING @ MIXING.T)
SHAPES = ((D,), ())
GIVEN: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-5}


def logistic(theta: Any, x: Any, y: Any) -> Any:
    psi = x @ theta
    return y * psi - jnp.logaddexp(0.0, psi)


def of_many(theta: Any, x: Any, y: Any) -> Any:
    return logistic(theta["w"], x, y)


def gaussian(precision: np.ndarray) -> Callable[[Any, Any], Any]:
    held = precision.astype(np.float32)
    return lambda theta, x: -0.5 * (x - theta) @ held @ (x - theta)


def fitted(
    model: Variational, x_nd: np.ndarray, y_n: np.ndarray | None = None, *, noise: float = 0.0, seed: int = 1
) -> VariationalState:
    plan = phased(model.blocks, FullBatch(), [noise] * model.n_steps, shares={"first": 0.05, "last": 0.05})
    wall = Wall(Numbers(x_nd, y_n).cut(1000), plan, noise=InsecureNoise(3))
    q, _ = loop.fit(model, wall, plan, rho=constant(1.0), rng=np.random.default_rng(seed))
    return q


def rows_and_labels(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x_nd = rng.standard_normal((n, D))
    return x_nd, (rng.random(n) < expit(x_nd @ [1.0, -0.5, 0.2])).astype(float)


# --- gradients ----------------------------------------------------------------------------------------------


def test_the_gradient_is_the_analytic_one() -> None:
    x_nd, y_n = rows_and_labels(200)
    theta = np.array([0.3, -1.0, 0.7])
    found = Gradients(Density(logistic, D, D, 0).likelihood, D, SHAPES)(theta, (x_nd, y_n))
    assert found == pytest.approx((y_n - expit(x_nd @ theta))[:, None] * x_nd, abs=1e-6)


def test_the_gradient_is_the_slope_of_the_density_in_the_form_of_theta() -> None:
    """A network with a pytree of parameters, against central differences in float64."""
    rng = np.random.default_rng(1)
    example = {"w": rng.standard_normal((4, D)), "out": rng.standard_normal(4), "bias": np.zeros(())}

    def density(theta: Any, x: Any) -> Any:
        return -jnp.square(jnp.tanh(theta["w"] @ x) @ theta["out"] + theta["bias"] - 1.0)

    held = Density(density, example, D)
    found = Gradients(held.likelihood, held.num_parameters, held.shapes)(
        held.start, (row := rng.standard_normal((1, D)),)
    )[0]

    def value(theta_p: np.ndarray) -> float:
        tree = held.tree(theta_p.astype(np.float32))
        w, out, bias = (np.asarray(tree[name], dtype=np.float64) for name in ("w", "out", "bias"))
        return -float((np.tanh(w @ row[0]) @ out + bias - 1.0) ** 2)

    step = 1e-3
    slopes = [
        (value(held.start + step * e) - value(held.start - step * e)) / (2 * step) for e in np.eye(len(held.start))
    ]
    assert found == pytest.approx(slopes, abs=2e-3)


@pytest.mark.parametrize("row_by_row", [None, True])
def test_a_rows_gradient_does_not_depend_on_its_batch(row_by_row: bool | None) -> None:
    rng = np.random.default_rng(2)
    x_nd, y_n = rows_and_labels(9000, seed=2)
    x_nd = x_nd * 10.0 ** rng.uniform(-3, 3, (9000, 1))
    gradients = Gradients(Density(logistic, D, D, 0).likelihood, D, SHAPES, row_by_row=row_by_row)
    theta = rng.standard_normal(D)
    whole = gradients(theta, (x_nd, y_n))
    for size in (1, 2, 7, 255, 8192, 8193):
        chosen = rng.choice(9000, size, replace=False)
        assert np.array_equal(gradients(theta, (x_nd[chosen], y_n[chosen])), whole[chosen])


def test_a_program_that_looks_at_places_is_found_out() -> None:
    """Rows computed together must give the bits of the same row anywhere; else they are computed one by one."""

    class Uneven(Gradients):
        def __call__(self, theta_p: Any, rows: Any) -> Any:
            out = np.array(super().__call__(theta_p, rows))
            if not getattr(self, "row_by_row", False) and len(out) > 100:
                out[100] = np.nextafter(out[100], np.float32(np.inf))
            return out

    likelihood = Density(logistic, D, D, 0).likelihood
    assert Uneven(likelihood, D, SHAPES).row_by_row
    assert not Gradients(likelihood, D, SHAPES).row_by_row


def test_a_row_with_a_fault_has_no_gradient_whatever_the_density_makes_of_it() -> None:
    model = Variational(Density(lambda theta, x: -(theta[0] ** 2) + 0.0 * theta[1], 2, 2), "point")
    rows = np.array([[1.0, 2.0], [np.nan, np.nan], [np.inf, 0.0], [1e300, 0.0], [0.0, 0.0]])
    batch = next(Numbers(rows).chunks()).rows
    norms = model.e_step(model.init(np.random.default_rng(0)), batch, model.blocks)["gradient"].norms()
    assert np.array_equal(np.isfinite(norms), [True, False, False, False, True])


def test_single_precision_rows_are_rows() -> None:
    """The same norms, up to rounding above, and the same integers as the plain form."""
    rng = np.random.default_rng(3)
    values = (rng.standard_normal((50, 37)) * 10.0 ** rng.uniform(-30, 15, (50, 1))).astype(np.float32)
    values[3, 5], values[4, 0] = np.nan, np.inf
    single, plain = SingleRows(values), Rows(values.astype(np.float64))
    norms, expected = single.norms(), plain.norms()
    finite = np.isfinite(expected)
    assert np.array_equal(np.isfinite(norms), finite)
    exact = np.array([math.sqrt(math.fsum(float(v) ** 2 for v in row)) for row in values[finite]])
    assert (norms[finite] >= exact).all()
    assert norms[finite] == pytest.approx(expected[finite], rel=1e-12)
    weights = np.where(finite, 1.0 / np.maximum(norms, 1.0), 0.0)
    out, other = np.zeros(37, dtype=np.int64), np.zeros(37, dtype=np.int64)
    grid = Grid(2.0**-35, 1.0)
    single.accumulate(weights, grid, out)
    plain.accumulate(weights, grid, other)
    assert np.array_equal(out, other)


# --- fixed points without noise -----------------------------------------------------------------------------


def test_full_rank_reaches_the_exact_posterior_of_a_gaussian_mean() -> None:
    x_nd = np.random.default_rng(4).standard_normal((60, D)) @ MIXING.T + 1.0
    q = fitted(Variational(Density(gaussian(PRECISION), D, D), "full_rank", n_steps=60, clip_norm=1e4), x_nd)
    precision = 60 * PRECISION + np.eye(D)
    covariance = np.linalg.inv(precision)
    assert q.average_p == pytest.approx(covariance @ PRECISION @ x_nd.sum(axis=0), abs=1e-5)
    assert q.covariance == pytest.approx(covariance, abs=1e-5 * covariance.max())


def test_mean_field_reaches_the_exact_posterior_of_independent_means() -> None:
    precision_d = np.array([0.5, 1.0, 4.0])
    x_nd = np.random.default_rng(5).standard_normal((60, D)) / np.sqrt(precision_d) + [2.0, -1.0, 0.0]
    model = Variational(Density(gaussian(np.diag(precision_d)), D, D), "mean_field", n_steps=600, clip_norm=1e4)
    q = fitted(model, x_nd)
    exact_d = 60 * precision_d + 1.0
    assert 1.0 / q.covariance == pytest.approx(exact_d, rel=1e-4)
    assert np.abs(q.average_p - precision_d * x_nd.sum(axis=0) / exact_d).max() < 1e-2 / math.sqrt(exact_d.max())


def test_mean_field_of_a_correlated_posterior_has_the_precision_of_its_diagonal() -> None:
    """The optimum of the ELBO (Bishop 2006, 10.15), up to the draws' own error."""
    x_nd = np.random.default_rng(4).standard_normal((60, D)) @ MIXING.T + 1.0
    q = fitted(Variational(Density(gaussian(PRECISION), D, D), "mean_field", n_steps=800, clip_norm=1e4), x_nd)
    assert 1.0 / q.covariance == pytest.approx(np.diag(60 * PRECISION + np.eye(D)), rel=0.1)


def test_the_point_is_the_penalised_optimum() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    x_nd, y_n = rows_and_labels(300, seed=6)
    q = fitted(Variational(Density(logistic, D, D, 0), "point", n_steps=1000, clip_norm=1e3), x_nd, y_n)
    theirs = linear.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10).fit(x_nd, y_n)
    assert q.average_p == pytest.approx(theirs.coef_[0], abs=1e-5)
    assert np.array_equal(q.covariance, np.zeros(D))


def test_the_covariance_of_a_logistic_posterior_is_that_of_its_curvature() -> None:
    x_nd, y_n = rows_and_labels(400, seed=7)
    q = fitted(Variational(Density(logistic, D, D, 0), "full_rank", n_steps=400, clip_norm=1e3), x_nd, y_n)
    p_n = expit(x_nd @ q.average_p)
    laplace = np.linalg.inv(np.eye(D) + (x_nd * (p_n * (1 - p_n))[:, None]).T @ x_nd)
    assert q.covariance == pytest.approx(laplace, abs=0.06 * laplace.max())


# --- noise --------------------------------------------------------------------------------------------------


def test_the_regression_is_least_squares_where_the_guess_is_free() -> None:
    """Against the textbook formula, with weights; and noise that is all pulls it to the guess."""
    rng = np.random.default_rng(8)
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    points = rng.standard_normal((40, 2))
    scores = -points @ matrix + 0.1 * rng.standard_normal((40, 2))
    for full in (False, True):
        found = CurvatureRegression.start(2, full=full)
        for t in range(40):
            found = found.joined(points[t], scores[t], -points[t], 1.0 / (t + 1))
        assert found.point_p == pytest.approx(points.mean(axis=0))
        assert found.noise_part == pytest.approx(1 / 40)
        curvature, _ = found.curvature(np.ones(2), np.full(2, 1e6), 0.1)
        centred, moved = points - points.mean(axis=0), scores - scores.mean(axis=0)
        if full:
            plain = -np.linalg.solve(centred.T @ centred, centred.T @ moved)
            assert curvature == pytest.approx(0.5 * (plain + plain.T), abs=1e-4)
        else:
            assert curvature == pytest.approx(-(centred * moved).sum(axis=0) / (centred**2).sum(axis=0), abs=1e-4)
        guessed, error_p = found.curvature(np.array([3.0, 5.0]), np.full(2, 0.1), 1e9)
        assert guessed == pytest.approx(np.diag([3.0, 5.0]) if full else [3.0, 5.0], abs=1e-6)
        assert error_p == pytest.approx([0.1, 0.1])
        assert found.prior_curvature(np.ones(2)) == pytest.approx(np.eye(2) if full else np.ones(2), abs=1e-6)


def test_noise_widens_the_posterior() -> None:
    x_nd, y_n = rows_and_labels(2000, seed=9)
    x_nd /= np.linalg.norm(x_nd, axis=1, keepdims=True)
    model = Variational(Density(logistic, D, D, 0), "mean_field", n_steps=50)
    widths = [np.sqrt(fitted(model, x_nd, y_n, noise=noise).covariance) for noise in (0.0, 60.0, 600.0)]
    assert (np.diff(widths, axis=0) > 0).all()
    assert (widths[-1] < 1.01).all()  # never wider than the prior


def test_draws_come_in_opposite_pairs_and_from_the_seed_alone() -> None:
    model = Variational(Density(gaussian(np.eye(D)), D, D), n_steps=20, clip_norm=100.0)
    x_nd = np.random.default_rng(10).standard_normal((30, D))
    q, same, other = (fitted(model, x_nd, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(q.average_p, same.average_p)
    assert not np.array_equal(q.average_p, other.average_p)
    start = model.init(np.random.default_rng(0))
    after = model._drawn(loop_step(start))
    assert np.array_equal(after.draw_p, -start.draw_p)


def loop_step(q: VariationalState) -> VariationalState:
    from dataclasses import replace

    return replace(q, step=q.step + 1)


# --- NumPyro ------------------------------------------------------------------------------------------------


def numpyro_logistic(x: Any, y: Any) -> None:
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def test_a_numpyro_model_is_its_log_density() -> None:
    rows = rows_and_labels(64)
    theirs, ours = NumPyro(numpyro_logistic, D, 0).density(), Density(logistic, D, D, 0)
    theta = np.array([0.3, -1.0, 0.7])
    assert theirs.prior_gradient(theta) == pytest.approx(ours.prior_gradient(theta), abs=1e-6)
    gradients = [Gradients(density.likelihood, D, SHAPES)(theta, rows) for density in (theirs, ours)]
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-6)


def test_constrained_sites_come_with_their_jacobian_and_go_back() -> None:
    """A scale: log p(log s) = log p(s) + log s; the posterior's draws are positive."""

    def model(x: Any) -> None:
        scale = numpyro.sample("scale", dist.Exponential(1.0))
        with numpyro.plate("rows", x.shape[0]):
            numpyro.sample("x", dist.Normal(0.0, scale), obs=x[:, 0])

    density = NumPyro(model, 1).density()
    theta = np.array([0.4])
    assert density.prior_gradient(theta) == pytest.approx(1.0 - np.exp(theta), abs=1e-6)
    x_nd = np.random.default_rng(11).standard_normal((500, 1)) * 2.0
    fit = dpvb.DPVI(numpyro_model=model, clip_norm=1e3, **GIVEN).fit(x_nd)
    assert fit.theta_["scale"] == pytest.approx(x_nd.std(), rel=0.05)
    draws = fit.sample_posterior(50, rng=0)["scale"]
    assert draws.shape == (50,)
    assert (draws > 0).all()


def local(x: Any) -> None:
    with numpyro.plate("rows", x.shape[0]):
        z = numpyro.sample("z", dist.Normal(0.0, 1.0))
        numpyro.sample("x", dist.Normal(z, 1.0), obs=x[:, 0])


def sized(x: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    with numpyro.plate("rows", 100):
        numpyro.sample("x", dist.Normal(w, 1.0), obs=x[:, 0])


def peeking(x: Any) -> None:
    w = numpyro.sample("w", dist.Normal(x.mean(), 1.0))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("x", dist.Normal(w, 1.0), obs=x[:, 0])


def factored(x: Any) -> None:
    w = numpyro.sample("w", dist.Normal(0.0, 1.0))
    numpyro.factor("twice", -(w**2))
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("x", dist.Normal(w, 1.0), obs=x[:, 0])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (local, "once for all rows"),
        (sized, "numpyro_model"),
        (peeking, "must not look at the rows"),
        (factored, "independent between rows"),
        (lambda x: None, "a latent variable and an observed one"),
    ],
)
def test_a_numpyro_model_that_is_no_sum_over_rows_is_refused(model: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        NumPyro(model, 2).density()


# --- the estimator ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("density", "words"),
    [
        (lambda theta, x, y: x * theta, "one real number"),
        (lambda theta, x, y: jnp.nan * theta.sum(), "finite"),
        (lambda theta, x, y: x @ theta[:2], "one real number"),
        (lambda theta, x: x @ theta, "one real number"),
        (lambda theta, x, y: float(np.asarray(theta) @ x), "one real number"),
        (lambda theta, x, y: jnp.sqrt(theta).sum(), "finite"),
        ("psi", "must be a function"),
    ],
)
def test_a_faulty_density_is_refused_before_anything_is_spent(density: Any, words: str, tmp_path: Any) -> None:
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-5)
    x_nd, y_n = rows_and_labels(20)
    model = dpvb.DPVI(density, parameters=D, epsilon=1.0, delta=1e-5)
    with pytest.raises(ParameterError, match=words):
        model.fit(x_nd, y_n, run=dpvb.Run(ledger=ledger, dataset="rows"))
    assert ledger.remaining("rows").num_charges == 0
    ledger.close()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"parameters": 0}, "parameters"),
        ({"parameters": None}, "parameters"),
        ({"parameters": "three"}, "parameters"),
        ({"parameters": [np.nan]}, "parameters"),
        ({"guide": "normal"}, "guide"),
        ({"clip_norm": 0.0}, "clip_norm"),
        ({"log_prior": lambda theta: theta}, "log_prior"),
        ({"log_prior": lambda theta: jnp.log(theta).sum()}, "log_prior"),
        ({"numpyro_model": numpyro_logistic}, "one of the two"),
        (
            {"guide": "full_rank", "parameters": {"w": np.zeros(D), "rest": np.zeros(2500)}, "log_density": of_many},
            "full_rank",
        ),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"init_scale": 0.0}, "init_scale"),
    ],
)
def test_faulty_parameters_are_refused(params: dict[str, Any], words: str) -> None:
    x_nd, y_n = rows_and_labels(20)
    with pytest.raises(ParameterError, match=words):
        dpvb.DPVI(**{"log_density": logistic, "parameters": D, **GIVEN, **params}).fit(x_nd, y_n)


def test_without_jax_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setitem(sys.modules, "jax.flatten_util", None)
    x_nd, y_n = rows_and_labels(5)
    with pytest.raises(ParameterError, match=r"pip install '\.\[jax\]'"):
        dpvb.DPVI(logistic, parameters=D, **GIVEN).fit(x_nd, y_n)


def test_a_private_fit_is_counted_stated_saved_and_loaded(tmp_path: Any) -> None:
    ledger = dpvb.Ledger(tmp_path / "ledger.db")
    ledger.register("rows", unit="row", neighboring_relation="add_or_remove_one", epsilon=3.0, delta=1e-5)
    x_nd, y_n = rows_and_labels(300)
    params: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 10}
    run = dpvb.Run(ledger=ledger, dataset="rows")
    model = dpvb.DPVI(logistic, parameters=D, guide="full_rank", **params).fit(x_nd, y_n, run=run)
    assert 0.9 < ledger.remaining("rows").spent_if_fixed <= 1.0
    assert model.privacy_.epsilon <= 1.0
    ledger.close()
    model.save(tmp_path / "model")
    read = dpvb.load(tmp_path / "model")
    assert read.log_density is None
    assert np.array_equal(read.sample_posterior(4, rng=1), model.sample_posterior(4, rng=1))
    with pytest.raises(ParameterError, match="log_density"):
        read.score(x_nd, y_n, public=True)
    read.set_params(log_density=logistic, parameters=D)
    assert read.score(x_nd, y_n, public=True) == model.score(x_nd, y_n, public=True)


def test_rows_with_faults_count_as_no_rows() -> None:
    x_nd, y_n = rows_and_labels(100)
    more_x = np.vstack([x_nd, np.full((3, D), np.nan), np.ones((1, D)), np.full((1, D), 1e300)])
    more_y = np.concatenate([y_n, [0.0, 1.0, 1.0, np.inf, 1.0]])
    params = {"parameters": D, "n_steps": 8, "random_state": 0, "clip_norm": 1e3, **GIVEN}
    alone, among = dpvb.DPVI(logistic, **params).fit(x_nd, y_n), dpvb.DPVI(logistic, **params).fit(more_x, more_y)
    assert np.array_equal(alone.loc_, among.loc_)
    sparse = pytest.importorskip("scipy.sparse")
    assert np.array_equal(alone.loc_, dpvb.DPVI(logistic, **params).fit(sparse.csr_matrix(more_x), more_y).loc_)


def test_the_predictive_score_is_the_average_density() -> None:
    """Known in closed form for a Gaussian mean, up to the error of 64 draws."""
    x_nd = np.random.default_rng(12).standard_normal((40, 1)) + 1.0
    density = lambda theta, x: -0.5 * ((x - theta) ** 2).sum() - 0.5 * math.log(2 * math.pi)  # noqa: E731
    model = dpvb.DPVI(density, parameters=1, guide="full_rank", n_steps=40, clip_norm=1e3, **GIVEN).fit(x_nd)
    variance = 1.0 + float(model.scale_[0]) ** 2
    exact = -0.5 * (x_nd[:, 0] - model.loc_[0]) ** 2 / variance - 0.5 * math.log(2 * math.pi * variance)
    assert model.score_samples(x_nd, public=True) == pytest.approx(exact, abs=0.05)
    with pytest.raises(PrivacyError, match="public=True"):
        model.score(x_nd)
    with pytest.raises(DataFormatError, match="features"):
        model.score(np.ones((2, 2)), public=True)


def test_it_is_a_scikit_learn_estimator() -> None:
    model = dpvb.DPVI(logistic, parameters={"w": np.zeros(D)}, **GIVEN, guide="point")
    copy = clone(model)
    assert copy.log_density is logistic
    assert copy.get_params()["guide"] == "point"


def test_persons_and_responses_of_several_columns() -> None:
    x_nd, y_n = rows_and_labels(60)
    params = {"parameters": {"w": np.zeros((2, D))}, "n_steps": 5, "clip_norm": 1e3, "random_state": 0, **GIVEN}

    def density(theta: Any, x: Any, y: Any) -> Any:
        return -jnp.square(theta["w"] @ x - y).sum()

    both = np.column_stack([y_n, 1 - y_n])
    plain = dpvb.DPVI(density, **params).fit(x_nd, both)
    persons = dpvb.DPVI(density, **params).fit(x_nd, both, group=np.repeat(np.arange(20), 3))
    assert plain.theta_["w"].shape == (2, D)
    assert plain.sample_posterior(7)["w"].shape == (7, 2, D)
    # Sums over persons of unclipped gradients are the sums over rows.
    assert persons.loc_ == pytest.approx(plain.loc_, abs=1e-4)
    assert persons.privacy_.unit == "person"


def test_numbers_are_clean_rows_in_chunks_that_suit_the_model() -> None:
    x_nd, y_n = rows_and_labels(1000)
    source = Numbers(x_nd, y_n).cut(256)
    chunks = list(source.chunks())
    assert len(chunks) == 4
    assert all(part.ctypes.data % 64 == 0 for chunk in chunks for part in chunk.rows)  # JAX reads them in place.
    for place, values in enumerate((x_nd, y_n)):
        assert np.array_equal(np.concatenate([chunk.rows[place] for chunk in chunks]), values.astype(np.float32))
    parts = source.parts(3)
    assert sum(part.count() for part in parts) == 1000
    for place, values in enumerate((x_nd, y_n)):
        again = np.concatenate([chunk.rows[place] for part in parts for chunk in part.chunks()])
        assert np.array_equal(again, values.astype(np.float32))
    with pytest.raises(DataFormatError, match="y must"):
        Numbers(np.ones((2, 1)), np.ones(3))


# --- in company ---------------------------------------------------------------------------------------------


def test_clients_that_share_a_posterior_reach_the_pooled_one() -> None:
    """Without noise, synchronously: every step is the pooled step, up to the grid of the sums."""
    x_nd, y_n = rows_and_labels(90)
    params: dict[str, Any] = {"parameters": D, "clip_norm": 1e3, "n_steps": 12, "random_state": 0, **GIVEN}
    pooled = dpvb.DPVI(logistic, **params).fit(x_nd, y_n)
    shards = [(x_nd[i::3], y_n[i::3]) for i in range(3)]
    shared = dpvb.federated.simulate(dpvb.DPVI(logistic, **params), shards, trust="trusted_server")
    assert shared.loc_ == pytest.approx(pooled.loc_, abs=1e-5)
    assert shared.scale_ == pytest.approx(pooled.scale_, rel=1e-3)
