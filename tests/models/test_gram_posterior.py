"""The posterior of linear dynamical systems from noisy moments: derivatives, likelihood, spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpvb.guards.arrays import Floats
from dpvb.models.sequences import kalman, linear_dynamical, linear_moments, linear_posterior
from dpvb.models.sequences.kalman import LinearSystem
from dpvb.models.sequences.linear_moments import Grams, law_of_windows, slopes
from dpvb.models.sequences.linear_posterior import ReleasedMoments, SystemShape, unclipped_posterior, ways

K, D, W = 2, 3, 4
UNIT = np.append(np.full(W * D, (W * D) ** 0.5), 1 / 0.3)


def system(seed: int = 0) -> LinearSystem:
    """A turning pair of states with deviation 1 in windows from everywhere."""
    rng = np.random.default_rng(seed)
    shown_dk = rng.standard_normal((D, K))
    turn = 0.9 * np.array([[np.cos(0.6), -np.sin(0.6)], [np.sin(0.6), np.cos(0.6)]])
    one = LinearSystem(
        step_kk=turn,
        step_noise_kk=np.eye(K) - turn @ turn.T,
        shown_dk=0.8 * shown_dk / np.linalg.norm(shown_dk, axis=1, keepdims=True),
        shown_d=0.1 * rng.standard_normal(D),
        noise_d=np.array([0.2, 0.3, 0.4]),
        start_k=0.3 * rng.standard_normal(K),
        start_kk=0.5 * np.eye(K) + 0.1,
        pooled_k=0.1 * rng.standard_normal(K),
        pooled_kk=np.eye(K),
    )
    return kalman.in_order(one)


def still() -> LinearSystem:
    """The same with first states like all others."""
    none_k, one_kk = np.zeros(K), np.eye(K)
    return replace(system(), start_k=none_k, start_kk=one_kk, pooled_k=none_k, pooled_kk=one_kk)


def shape(starts: bool) -> SystemShape:
    return SystemShape(K, D, W, 12, starts, UNIT)


def expected(one: LinearSystem, number: float, first: str = "pooled") -> Floats:
    """What so many windows add up to on average, in the units of the model."""
    mean_f, cov_ff = law_of_windows(one, getattr(one, f"{first}_k"), getattr(one, f"{first}_kk"), W)[2:]
    y = np.append(mean_f, 1.0)
    found = np.outer(y, y)
    found[:-1, :-1] += cov_ff
    return np.asarray(number * found / np.outer(UNIT, UNIT))


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("first", ["pooled", "start"])
def test_derivatives_are_differences_and_a_turn_of_the_states_changes_nothing(starts: bool, first: str) -> None:
    vector_p, little = linear_moments.packed(system(), starts=starts), 1e-5

    def law(at_p: Floats) -> Floats:
        one = linear_moments.unpacked(at_p, K, D, starts=starts)
        own = law_of_windows(one, getattr(one, f"{first}_k"), getattr(one, f"{first}_kk"), W)[2:]
        return np.concatenate([own[0], own[1].ravel()])

    found = slopes(vector_p, K, D, W, starts=starts, first=first)
    moved = np.column_stack([found.mean_pf, found.cov_pff.reshape(len(vector_p), -1)])
    np.testing.assert_allclose(np.concatenate([found.mean_f, found.cov_ff.ravel()]), law(vector_p), atol=1e-12)
    for own, way in zip(moved, little * np.eye(len(vector_p)), strict=True):
        np.testing.assert_allclose(own, (law(vector_p + way) - law(vector_p - way)) / (2 * little), atol=1e-8)
    for way in linear_moments.rotations(vector_p, K, D, starts=starts):
        np.testing.assert_allclose(way @ moved, 0.0, atol=1e-12)
        assert np.linalg.norm(way) > 0.1


def test_a_vector_holds_its_system() -> None:
    one = system()
    found = linear_moments.unpacked(linear_moments.packed(one, starts=True), K, D, starts=True)
    for name, value in vars(one).items():
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-9)


def test_exact_moments_give_the_system_that_made_them_from_elsewhere() -> None:
    """Without noise, and with noise that is counted in but was not drawn: up to what the prior moves."""
    one = system()
    for std, most in ((0.0, 5e-3), (3.0, 0.03)):
        blocks = [ReleasedMoments(first, expected(one, 1e5, first), std) for first in ("pooled", "start")]
        near = replace(one, shown_dk=one.shown_dk * 1.2, noise_d=one.noise_d * 0.7, step_kk=0.9 * one.step_kk)
        found = linear_posterior.fit_posterior(blocks, shape(True), near)
        np.testing.assert_allclose(found.number_b, 1e5, rtol=1e-3)
        for first in ("pooled", "start"):
            moved = expected(found.system(shape(True)), 1.0, first) - expected(one, 1.0, first)
            assert np.abs(moved).max() < most * np.abs(expected(one, 1.0, first)).max()
        values = kalman.modes(found.system(shape(True)).step_kk)
        np.testing.assert_allclose(values, kalman.modes(one.step_kk), atol=0.02 if std else 2e-3)


def test_without_noise_it_is_where_em_ends() -> None:
    """Moments of drawn people, which no system has exactly: the likelihood that EM reaches from there is no higher."""
    rng = np.random.default_rng(1)
    x_nf = kalman.drawn(system(), 4000, W, rng).reshape(4000, -1)
    y = np.column_stack([x_nf, np.ones(4000)])
    gram, one = y.T @ y, system(3)
    found = linear_posterior.fit_posterior(
        [ReleasedMoments("pooled", gram / np.outer(UNIT, UNIT), 0.0)], shape(False), one, 8
    )
    own = found.system(shape(False))
    before = linear_moments.em_step(Grams(gram), own).log
    after = linear_moments.fit(Grams(gram), own, rounds=200).log
    assert before <= after < before + 2e-4


def test_the_posterior_is_as_wide_as_estimates_vary() -> None:
    """Noise of 3 on moments of 20,000 windows, drawn 60 times: deviations of A, C and R to a third; seed 2."""
    one, rng, found = system(), np.random.default_rng(2), []
    for _ in range(60):
        noise = rng.standard_normal((len(UNIT), len(UNIT)))
        noise = np.triu(noise, 1) / np.sqrt(2) + np.diag(np.diagonal(noise))
        gram = expected(one, 2e4) + 3.0 * (noise + np.triu(noise, 1).T)
        found.append(linear_posterior.fit_posterior([ReleasedMoments("pooled", gram, 3.0)], shape(False), one, 2))
    nobody = linear_posterior.DrawnWindows([np.zeros((2, len(UNIT) ** 2))], [np.zeros((2, len(UNIT) ** 2))])
    blocks = [ReleasedMoments("pooled", expected(one, 2e4), 3.0)]
    said = found[0].drawn(found[0].covariance(blocks, nobody, shape(False)), shape(False), 400, rng)
    made = np.array([one.vector_p for one in found])

    def shown(vector_sp: Floats) -> Floats:
        systems = [shape(False).system(vector_p) for vector_p in vector_sp]
        return np.array([[*np.abs(kalman.modes(s.step_kk)), *np.log(s.noise_d), *np.linalg.norm(s.shown_dk, axis=1)]
                         for s in systems])  # fmt: skip

    ratio = shown(said).std(axis=0) / shown(made).std(axis=0)
    assert (ratio > 0.6).all(), ratio
    assert (ratio < 1.7).all(), ratio


def test_what_the_clip_takes_moves_as_people_do() -> None:
    """People whose windows are moved by a matrix, and clipped again."""
    one, rng, clip = system(), np.random.default_rng(3), 0.8
    people = linear_posterior.draw_windows(one, np.array([0.4, 0.6]), W, UNIT, clip, rng)
    plain = people.clipped_bne[0] - people.lost_bne[0]
    assert 0.2 < np.mean(np.any(people.lost_bne[0] != 0, axis=1)) < 0.9
    size, little = len(UNIT), 1e-6
    way = rng.standard_normal((1, size, size))

    def taken(by: float) -> Floats:
        move = np.eye(size) + by * way[0]
        moved = (move @ plain.reshape(-1, size, size) @ move.T).reshape(plain.shape)
        return np.asarray(((np.minimum(1, clip / np.linalg.norm(moved, axis=1)) - 1)[:, None] * moved).mean(axis=0))

    np.testing.assert_allclose(people.taken_be[0], taken(0.0), atol=1e-12)
    differences = (taken(little) - taken(-little)) / (2 * little)
    np.testing.assert_allclose(people.slopes(0, way)[0], differences, atol=2e-4 * np.abs(differences).max())


def test_windows_move_as_their_law() -> None:
    """Moved by the matrices of `ways`, they have the covariance and the mean that the numbers of a system give them."""
    vector_p = linear_moments.packed(system(), starts=False)
    block = ReleasedMoments("pooled", np.zeros((len(UNIT), len(UNIT))), 0.0)
    moved = ways(block, np.append(vector_p, 0.0), shape(False))
    found, law = slopes(vector_p, K, D, W, starts=False, first="pooled"), expected(system(), 1.0)
    for way, mean_f, cov_ff in zip(moved, found.mean_pf, found.cov_pff, strict=False):
        made = way @ law + (way @ law).T
        wanted = np.zeros_like(law)
        wanted[:-1, :-1] = cov_ff + np.outer(mean_f, found.mean_f) + np.outer(found.mean_f, mean_f)
        wanted[:-1, -1] = wanted[-1, :-1] = mean_f
        np.testing.assert_allclose(made, wanted / np.outer(UNIT, UNIT), atol=1e-10)


def test_what_a_clip_takes_is_put_back() -> None:
    """Moments of many drawn people, clipped to less than their average norm: deviations within a twentieth."""
    one, clip = still(), 0.7
    people = linear_posterior.draw_windows(one, np.array([0.0, 1.0]), W, UNIT, clip, np.random.default_rng(4))
    blocks = [
        ReleasedMoments(first, 1e4 * made.mean(axis=0).reshape(len(UNIT), -1), 0.0)
        for first, made in zip(("pooled", "start"), people.clipped_bne, strict=True)
    ]
    bent = linear_posterior.fit_posterior(blocks, shape(True), one).system(shape(True))
    found = unclipped_posterior(blocks, shape(True), one, np.array([0.0, 1.0]), clip, 3)["system"]

    def size(of: LinearSystem) -> Floats:
        return np.linalg.norm(of.shown_dk, axis=1)

    assert (size(bent) < 0.93 * size(one)).all()
    np.testing.assert_allclose(size(found), size(one), rtol=0.07)
    np.testing.assert_allclose(found.noise_d, one.noise_d, rtol=0.07)


def test_lengths_are_powers_of_two_and_noise_alone_leaves_the_shortest() -> None:
    assert linear_dynamical.length_places(np.array([0, 3, 4, 5, 6, 7, 11, 99]), 4, 12).tolist() == [
        -1,
        -1,
        0,
        1,
        1,
        2,
        3,
        3,
    ]
    assert linear_dynamical.num_lengths(4, 12) == 4
    assert linear_dynamical.length_shares(np.array([5.0, 30.0, -20.0, 70.0]), 10.0).tolist() == [0.0, 0.3, 0.0, 0.7]
    assert linear_dynamical.length_shares(np.array([5.0, -30.0]), 10.0).tolist() == [1.0, 0.0]


def test_modes_of_draws_stand_beside_their_own() -> None:
    mode_k = kalman.modes(np.array([[0.5, -0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.9]]))
    np.testing.assert_allclose(mode_k, [0.9, 0.5 + 0.5j, 0.5 - 0.5j], atol=1e-12)
    draw = np.array([[[0.8, 0, 0], [0, 0.55, -0.4], [0, 0.4, 0.55]]])
    np.testing.assert_allclose(kalman.modes_of_draws(draw, mode_k)[0], [0.8, 0.55 + 0.4j, 0.55 - 0.4j], atol=1e-12)


def test_drawn_people_move_as_little_as_their_system_and_have_its_law() -> None:
    """The same in another basis of states; a step of 1e-6 moves them in proportion; moments to 6 deviations; seed 5."""
    one, little = system(), 1e-6
    turned = one.in_basis(np.array([[0.0, -2.0], [0.5, 0.3]]))
    further = replace(one, step_kk=one.step_kk + little * np.array([[1.0, 2.0], [-1.0, 1.0]]))
    made, same, moved = (
        linear_posterior.drawn_smoothly(s, 20_000, W, np.random.default_rng(5)) for s in (one, turned, further)
    )
    np.testing.assert_allclose(same, made, atol=1e-9)
    assert 0 < np.abs(moved - made).max() < 100 * little
    bare = replace(one, noise_d=np.full(D, 1e-300), start_kk=np.zeros((K, K)))
    assert np.isfinite(linear_posterior.drawn_smoothly(bare, 10, 50, np.random.default_rng(5))).all()
    y_nf = np.column_stack([made.reshape(20_000, -1), np.ones(20_000)])
    mean_ff = expected(one, 1.0, "start") * np.outer(UNIT, UNIT)
    products_nff = y_nf[:, :, None] * y_nf[:, None, :]
    most_ff = 6 * products_nff.std(axis=0) / np.sqrt(20_000) + 1e-9
    assert (np.abs(products_nff.mean(axis=0) - mean_ff) < most_ff).all()


def test_what_is_put_back_ends_where_it_agrees_and_what_does_not_agree_widens() -> None:
    """People drawn anew from the end give what was put back, to a hundredth; a difference is a term of rank one."""
    one, clip, share_l = still(), 1.2, np.array([0.0, 1.0])
    people = linear_posterior.draw_windows(one, share_l, W, UNIT, clip, np.random.default_rng(4))
    size = len(UNIT)
    blocks = [ReleasedMoments(first, 1e4 * made.mean(axis=0).reshape(size, -1), 0.0)
              for first, made in zip(("pooled", "start"), people.clipped_bne, strict=True)]  # fmt: skip
    end = unclipped_posterior(blocks, shape(True), one, share_l, clip, 3)["system"]
    own = linear_posterior.draw_windows(end, share_l, W, UNIT, clip, np.random.default_rng(0))
    agreed = [replace(b, taken=t.reshape(size, size)) for b, t in zip(blocks, own.taken_be, strict=True)]
    found = linear_posterior.fit_posterior(agreed, shape(True), end, 2)
    again = linear_posterior.draw_windows(found.system(shape(True)), share_l, W, UNIT, clip, np.random.default_rng(0))
    assert np.abs(again.taken_be - own.taken_be).max() < 0.01 * np.abs(own.taken_be).max()
    apart = [replace(b, taken=0.9 * b.taken) for b in agreed]
    near_pp, wide_pp = (found.covariance(b, own, shape(True)) for b in (agreed, apart))
    added = np.linalg.eigvalsh(wide_pp - near_pp)
    assert added[-1] > 0
    np.testing.assert_allclose(added[:-1], 0.0, atol=1e-6 * added[-1])
