"""The noise: exact rounded Gaussians, never shared between two sums, runs or processes.

Statistical tests fail by chance with probability at most 1e-6 each; those on `InsecureNoise` name their seed
and always give the same answer.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import math
import multiprocessing
import pickle
import random
import time
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
import scipy.stats
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from planted import edit, kills

from dpvb.core import noise
from dpvb.core.noise import InsecureNoise, NoiseSource, SecureNoise
from dpvb.errors import ParameterError, PrivacyError

Ints = NDArray[np.int64]
FALSE_ALARM = 1e-6


def draw(source: NoiseSource, std: float, count: int, step: int = 0, block: str = "b") -> Ints:
    return source.gaussian(std, np.zeros(count, dtype=np.int64), step=step, block=block, plan_digest=b"plan")


def words_of(seed: int, count: int) -> NDArray[np.uint64]:
    return InsecureNoise(seed).words(step=0, purpose="words")(count)


def chi_square_p(values: Ints, std: float) -> float:
    """Test integers against the masses of round(N(0, std²)), cells of fewer than 10 expected draws merged."""
    reach = math.ceil(9 * std) + 1
    edges = np.arange(-reach, reach + 1) + 0.5
    mass = np.diff(scipy.special.ndtr(np.concatenate([[-np.inf], edges, [np.inf]]) / std))
    counts = np.bincount(np.clip(values, -reach, reach + 1) + reach, minlength=2 * reach + 2)
    rich = mass * values.size >= 10
    observed = np.append(counts[rich], counts[~rich].sum())
    expected = np.append(mass[rich], mass[~rich].sum()) * values.size
    if expected[-1] < 1:  # the merged rest is then a rare event by itself
        assert observed[-1] <= scipy.stats.poisson.isf(FALSE_ALARM, expected[-1])
        observed, expected = observed[:-1], expected[:-1]
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(scipy.stats.chi2.sf(statistic, observed.size - 1))


def inverse(tail: mpmath.mpf) -> mpmath.mpf:
    """Return -Φ⁻¹(tail) by Newton's method on log Φ, at mpmath's working precision."""
    x = mpmath.mpf(-float(scipy.special.ndtri(float(tail))))
    for _ in range(6):
        value = mpmath.erfc(x / mpmath.sqrt(2)) / 2
        density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
        x += (mpmath.log(value) - mpmath.log(tail)) * value / density
    return x


def magnitude_by_inverse(std: float, k: int, bits: int) -> int:
    return int(mpmath.floor(std * inverse(mpmath.ldexp(mpmath.mpf(k), -bits)) + mpmath.mpf(0.5)))


# --- the distribution ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [0.2, 0.3, 1.0, 5.0, 64.0])
def test_small_std_has_the_rounded_gaussian_masses(std: float) -> None:
    assert chi_square_p(draw(InsecureNoise(11), std, 1_000_000), std) > FALSE_ALARM


@pytest.mark.guarantees("noise")
def test_secure_noise_has_the_rounded_gaussian_masses() -> None:
    assert chi_square_p(draw(SecureNoise(), 3.0, 200_000), 3.0) > FALSE_ALARM / 2


@pytest.mark.parametrize("exponent", [20, 34])
def test_large_std_is_gaussian(exponent: int) -> None:
    values = draw(InsecureNoise(12), 2.0**exponent, 400_000) * 2.0**-exponent
    assert scipy.stats.kstest(values, "norm").pvalue > FALSE_ALARM
    assert abs(values.mean()) < 5 / math.sqrt(values.size)
    assert abs((values**2).mean() - 1) < 5 * math.sqrt(2 / values.size)


def test_noise_off_by_two_percent_is_seen() -> None:
    values = draw(InsecureNoise(12), 1.02 * 2.0**20, 400_000) * 2.0**-20
    assert abs((values**2).mean() - 1) > 5 * math.sqrt(2 / values.size)
    assert chi_square_p(draw(InsecureNoise(11), 5.1, 1_000_000), 5.0) < FALSE_ALARM


def test_sign_is_a_separate_fair_bit() -> None:
    values = draw(InsecureNoise(13), 2.0**20, 400_000)
    positive = int((values > 0).sum())
    assert abs(positive - values.size / 2) < 5 * math.sqrt(values.size) / 2
    assert abs(np.corrcoef(np.sign(values), np.abs(values))[0, 1]) < 5 / math.sqrt(values.size)


# --- exactness ----------------------------------------------------------------------------------------------


def hard_points() -> list[float]:
    """Arguments in (0, 1/2): both seams of the implementation, the deep tail, the centre, anything."""
    rng = np.random.default_rng(5)
    seams = [math.exp(-2), math.exp(-32), 0.5, 0.25, 0.125, 2.0**-11, 2.0**-64]
    near = [float((np.float64(seam).view(np.int64) + d).view(np.float64)) for seam in seams for d in range(-60, 60)]
    smooth = np.concatenate(
        [
            rng.uniform(0, 0.5, 800),
            rng.uniform(0.13, 0.15, 1500),
            0.5 - 10.0 ** rng.uniform(-16, -0.4, 500),
            np.exp(-rng.uniform(0.7, 744, 1000)),
        ]
    )
    return [u for u in [*near, *smooth.tolist()] if 0 < u < 0.5]


def test_inverse_cdf_keeps_a_quarter_of_its_stated_error_bound() -> None:
    with mpmath.workprec(160):
        for u in hard_points():
            x = mpmath.mpf(float(scipy.special.ndtri(u)))
            density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
            step = (mpmath.mpf(u) - mpmath.erfc(-x / mpmath.sqrt(2)) / 2) / density
            error = step + x * step * step / 2  # Newton's step with its second-order term
            assert abs(error) <= abs(x) * noise.NDTRI_ERROR / 4, u


@pytest.mark.parametrize("std", [0.7, 1000.0, 2.0**20, 2.0**34, 2.0**40])
def test_words_beside_a_half_integer_round_as_the_whole_interval_does(std: float) -> None:
    rng = np.random.default_rng(6)
    with mpmath.workprec(200):
        stds = np.concatenate([rng.uniform(0, 8.5, 20), 10.0 ** rng.uniform(-6, 0, 10)])
        hits = []
        for n in sorted({int(std * x) for x in stds}):
            tail = mpmath.erfc((n + mpmath.mpf(0.5)) / std / mpmath.sqrt(2)) / 2
            k = int(mpmath.floor(mpmath.ldexp(tail, 64)))
            hits += [max(k + d, 0) for d in (-(2**18), -(2**12), -3, -1, 0, 1, 3, 2**12, 2**18)]
        ks = [k for k in hits if 1 <= k < 2**63]
        words = np.array([2 * k for k in ks], dtype=np.uint64)
        out = np.empty(words.size, dtype=np.int64)
        open_places = {place for place, _ in noise._round_block(std, words, out)}
        for place, k in enumerate(ks):
            largest = magnitude_by_inverse(std, k, 64)
            smallest = magnitude_by_inverse(std, k + 1, 64) if k + 1 < 2**63 else 0
            if place not in open_places:
                assert smallest == out[place] == largest
            low_bits, high_bits = itertools.repeat(0), itertools.repeat(2**64 - 1)
            assert noise._decide(std, 2 * k, low_bits) == largest
            assert noise._decide(std, 2 * k + 1, high_bits) == -smallest
        assert len(open_places) > 0


@pytest.mark.parametrize("std", [0.3, 5.0, 2.0**20, 2.0**34])
def test_slow_path_gives_the_fast_answers(std: float) -> None:
    words = words_of(21, 1500)
    fast = np.empty(words.size, dtype=np.int64)
    still_open = dict(noise._round_block(std, words, fast))
    slow = np.empty_like(fast)
    forced = noise._round_block(std, words, slow, ndtri_error=1.0)
    assert len(forced) > 0.5 * words.size or std < 1
    for place, word in forced:
        slow[place] = noise._decide(std, word, iter(()))  # 64 bits must do where the fast path found them enough
        if place in still_open:
            fast[place] = slow[place]
    assert np.array_equal(fast, slow)


@pytest.mark.parametrize("std", [0.3, 5.0, 2.0**20])
def test_bits_drawn_late_give_the_same_answer(std: float) -> None:
    words = words_of(22, 600)
    fast = np.empty(words.size, dtype=np.int64)
    assert noise._round_block(std, words, fast) == []
    for place, word in enumerate(words.tolist()):
        k = word >> 1
        late = iter([((k & (2**51 - 1)) << 13) | 0x1A5B, 7, 8])
        assert noise._exact_magnitude(std, k >> 51, 13, late) == abs(fast[place])


def test_slow_path_alone_has_the_right_distribution() -> None:
    std, words = 2.0, words_of(23, 12_000)
    values = [noise._exact_magnitude(std, word >> 59, 6, iter([word << 5 & (2**64 - 1), 1])) for word in words.tolist()]
    signs = np.where(words_of(25, 12_000) & np.uint64(1), -1, 1)
    assert chi_square_p(signs * np.array(values), std) > FALSE_ALARM


@pytest.mark.slow
def test_late_bits_have_the_right_distribution_at_length() -> None:
    std, count = 40.0, 200_000
    values = [
        noise._exact_magnitude(std, word >> 60, 5, iter([word << 4 & (2**64 - 1), 1]))
        for word in words_of(26, count).tolist()
    ]
    signs = np.where(words_of(27, count) & np.uint64(1), -1, 1)
    assert chi_square_p(signs * np.array(values), std) > FALSE_ALARM


def test_zero_word_is_the_far_tail_not_infinity() -> None:
    out = np.empty(2, dtype=np.int64)
    words = np.array([0, 1], dtype=np.uint64)
    for std in (1e-300, 0.3, 1.0, 2.0**20, 2.0**40):
        assert [word for _, word in noise._round_block(std, words, out)] == [0, 1]
    with mpmath.workprec(300):
        for zeros in (0, 1, 5, 14):
            bits = 64 * (zeros + 2)
            value = noise._decide(2.0**40, 0, itertools.chain([0] * zeros, [2**63], itertools.repeat(0)))
            assert value == magnitude_by_inverse(2.0**40, 2**63, bits)
            assert 0 < value < 39 * 2**40 < 2**46
    assert noise._decide(1e-300, 1, itertools.repeat(5)) == 0


def test_a_draw_equals_an_independent_computation() -> None:
    """HKDF (RFC 5869) by hand, AES-256 on explicit counters, the inverse CDF in high precision."""
    source, std, count = InsecureNoise(3), 1000.5, 40
    fields = [source.run_id.encode(), b"gaussian", b"7", b"topics", b"plan", std.hex().encode(), b""]
    info = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
    secret = hashlib.sha256(b"dpvb insecure test noise 3").digest()
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    key = hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()
    encrypt = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    stream = b"".join(encrypt.update(counter.to_bytes(16, "big")) for counter in range(count // 2))
    expected = []
    with mpmath.workprec(120):
        for place in range(count):
            word = int.from_bytes(stream[8 * place : 8 * place + 8], "little")
            magnitude = magnitude_by_inverse(std, word >> 1, 64)
            expected.append(-magnitude if word % 2 else magnitude)
    total = np.arange(count, dtype=np.int64).reshape(5, 8)
    got = source.gaussian(std, total, step=7, block="topics", plan_digest=b"plan")
    assert got.shape == (5, 8)
    assert got.ravel().tolist() == expected


def test_blocks_of_work_leave_no_seam() -> None:
    """An array longer than one block of work repeats nothing and meets slow draws at the right places."""
    std, count = 2.0**40, 3 * noise._BLOCK + 5
    values = draw(InsecureNoise(31), std, count)
    assert np.unique(values).size > 0.999 * count
    key_of_prefix = draw(InsecureNoise(31), std, noise._BLOCK + 1)
    assert np.array_equal(values[: noise._BLOCK + 1], key_of_prefix)


# --- what is released ---------------------------------------------------------------------------------------


@pytest.mark.guarantees("noise")
def test_low_bits_of_a_release_do_not_depend_on_the_sum() -> None:
    """Lattice test: the share of releases on each binary lattice is the same for every true value."""
    grid, std, count = 2.0**-30, 2.0**20, 20_000
    source = SecureNoise()
    values = [0, 1, 2**20, 2**30 // 3]
    on_lattice = []
    for step, value in enumerate(values):
        total = np.full(count, value, dtype=np.int64)
        released = (total + source.gaussian(std, total, step=step, block="b", plan_digest=b"")) * grid
        assert np.array_equal(released / grid, np.rint(released / grid))
        on_lattice.append([int((np.ldexp(released, k) % 1 == 0).sum()) for k in range(8, 61)])
    first = np.array(on_lattice[0])
    for other in on_lattice[1:]:
        pooled = (first + other) / (2 * count)
        spread = np.sqrt(2 * count * pooled * (1 - pooled))
        rare = pooled * count < 10  # expected below 10 of 20,000: compare with a Poisson tail instead
        assert (np.abs(first - other)[~rare] <= 6.5 * spread[~rare]).all()
        assert (np.maximum(first, other)[rare] < 50).all()
    assert (np.array(on_lattice)[:, 30 - 8 :] == count).all()


@pytest.mark.parametrize("value", [0, 1, 2**20])
def test_residues_of_a_release_are_uniform(value: int) -> None:
    total = np.full(200_000, value, dtype=np.int64)
    released = total + SecureNoise().gaussian(2.0**20, total, step=0, block="b", plan_digest=b"")
    counts = np.bincount(released % 64, minlength=64)
    assert scipy.stats.chisquare(counts).pvalue > FALSE_ALARM / 3


# --- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.guarantees("fresh noise")
def test_no_two_draws_have_anything_in_common() -> None:
    """Secure noise of one source and of two, of the same sum and of others; test noise of other names."""
    count = 100_000
    total = np.arange(count, dtype=np.int64)
    base: dict[str, Any] = {
        "std_steps": 2.0**20,
        "total": total,
        "step": 3,
        "block": "topics",
        "plan_digest": b"p",
    }
    changes: list[dict[str, Any]] = [
        {"step": 4},
        {"block": "topicsp"},
        {"block": "topicsp", "plan_digest": b""},
        {"plan_digest": b"q"},
        {"std_steps": math.nextafter(2.0**20, 0)},
    ]
    secure, insecure = SecureNoise(), InsecureNoise(0)
    draws = [source.gaussian(**base) for source in (secure, secure, SecureNoise(), insecure, InsecureNoise(1))]
    draws += [insecure.gaussian(**{**base, **change}).ravel() for change in changes]
    correlation = np.corrcoef(np.array(draws, dtype=np.float64))
    assert np.abs(correlation - np.eye(len(draws))).max() < 6 / math.sqrt(count)  # 45 pairs: false alarm 9e-8
    lagged = [np.corrcoef(draws[0][:-lag], draws[0][lag:])[0, 1] for lag in (1, 2, 3, 1024, noise._BLOCK)]
    assert np.abs(lagged).max() < 5.5 / math.sqrt(count - noise._BLOCK)


def test_test_noise_is_the_same_for_the_same_names() -> None:
    source = InsecureNoise(7)
    total = np.arange(60, dtype=np.int64).reshape(6, 10)
    first = source.gaussian(99.0, total, step=1, block="b", plan_digest=b"p")
    source.gaussian(99.0, total, step=2, block="b", plan_digest=b"p")
    again = source.gaussian(99.0, np.asfortranarray(total) + 1, step=1, block="b", plan_digest=b"p")
    assert np.array_equal(first, again)


def test_secure_noise_hides_a_difference_of_one_and_insecure_noise_shows_it() -> None:
    total = np.zeros(1000, dtype=np.int64)
    neighbour = total.copy()
    neighbour[17] = 1
    for source, cancels in ((SecureNoise(), False), (InsecureNoise(1), True)):
        releases = [
            sums + source.gaussian(1e6, sums, step=0, block="b", plan_digest=b"") for sums in (total, neighbour)
        ]
        assert np.array_equal(releases[1] - releases[0], neighbour - total) is cancels


def test_only_the_secure_source_is_private() -> None:
    sources: list[NoiseSource] = [SecureNoise(), InsecureNoise(0)]
    assert [source.private for source in sources] == [True, False]
    with pytest.raises(TypeError):
        SecureNoise(1)  # type: ignore[call-arg]
    assert SecureNoise().run_id != SecureNoise().run_id
    assert np.array_equal(draw(InsecureNoise(4), 50.0, 100), draw(InsecureNoise(4), 50.0, 100))
    assert not np.array_equal(draw(InsecureNoise(4), 50.0, 100), draw(InsecureNoise(5), 50.0, 100))


# --- uniform words ------------------------------------------------------------------------------------------


def test_uniform_words_in_pieces_equal_the_whole() -> None:
    words = SecureNoise().words(step=5, purpose="poisson")
    count = 2 * noise._BLOCK + 77
    whole = words(count)
    for cuts in ([0, 1, 2, 3, 1000, count], [0, noise._BLOCK, noise._BLOCK + 1, count]):
        pieces = [words(stop - start, start) for start, stop in itertools.pairwise(cuts)]
        assert np.array_equal(np.concatenate(pieces), whole)
    assert np.array_equal(pickle.loads(pickle.dumps(words))(count), whole)
    assert not np.isin(words(3, 10**12 + 1), whole).any()
    assert words(0).shape == (0,)


def test_uniform_words_are_uniform_and_apart() -> None:
    source = SecureNoise()
    words = source.words(step=0, purpose="a")(200_000)
    for shift in (0, 28, 56):
        counts = np.bincount((words >> np.uint64(shift)).astype(np.uint8), minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > FALSE_ALARM / 3
    others = [
        source.words(step=0, purpose="a")(1000),
        SecureNoise().words(step=0, purpose="a")(1000),
        *(InsecureNoise(0).words(step=step, purpose=purpose)(1000) for step, purpose in ((0, "a"), (1, "a"), (0, "b"))),
    ]
    assert np.unique(np.concatenate([words[:1000], *others])).size == 6000  # a collision: 1e-12


# --- no other generator, no sharing between processes -------------------------------------------------------


@kills("generators", "noise from a 32-bit seed")
@edit(
    "core/noise.py",
    "return secrets.token_bytes(32)",
    "return np.random.default_rng(int.from_bytes(secrets.token_bytes(4))).bytes(32)",
)
def test_no_ordinary_generator_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("an ordinary generator was called")

    for module in (random, np.random):
        for name in dir(module):
            if not name.startswith("_") and callable(getattr(module, name)):
                monkeypatch.setattr(module, name, refuse)
    with pytest.raises(AssertionError):
        np.random.default_rng(0)
    source = SecureNoise()
    assert draw(source, 2.0**34, 50_000).any()
    assert source.words(step=0, purpose="p")(10).any()


_shared = SecureNoise()


def report_draws(channel: Any, fresh: bool) -> None:
    source = SecureNoise() if fresh else _shared
    try:
        channel.send((draw(source, 2.0**30, 100).tolist(), source.words(step=0, purpose="p")(100).tolist()))
    except PrivacyError as error:
        channel.send(str(error))
    channel.close()


@pytest.mark.guarantees("generator")
@kills("reused noise", "a forked process keeps its parent's secret", "fork-False")
@edit("core/noise.py", 'self._origin.check("this source of noise")', "pass")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(("method", "fresh"), [("fork", False), ("fork", True), ("spawn", True)])
def test_processes_never_share_a_draw(method: str, fresh: bool) -> None:
    """Even for equal sums, steps and blocks: two children and their parent, 100 draws each. A copy draws nothing."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this platform cannot {method}")
    context: Any = multiprocessing.get_context(method)
    results = [(draw(_shared, 2.0**30, 100).tolist(), _shared.words(step=0, purpose="p")(100).tolist())]
    children = []
    for _ in range(2):
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=report_draws, args=(sender, fresh))
        child.start()
        children.append((child, receiver))
    for child, receiver in children:
        assert receiver.poll(60)
        results.append(receiver.recv())
        child.join()
    if not fresh:
        assert all("belongs to the process that made it" in said for said in results[1:])
        return
    for (first, first_words), (second, second_words) in itertools.combinations(results, 2):
        same_place = sum(a == b for a, b in zip(first, second, strict=True))
        assert same_place < 3  # one chance agreement has probability 1e-7
        assert not set(first_words) & set(second_words)


# --- time ---------------------------------------------------------------------------------------------------


@kills("time", "large draws take more rounds")
@edit(
    "core/noise.py",
    "    sign = (words & np.uint64(1)).view(np.int64)\n",
    "    for _ in range(round(8 * magnitude[0] / std)):\n        np.rint(u)\n"
    "    sign = (words & np.uint64(1)).view(np.int64)\n",
)
def test_time_of_a_draw_does_not_tell_its_size() -> None:
    """Correlate |noise| with the processor time of the fastest 6,000 of 20,000 scalar draws; no draw can be repeated.

    Interruptions by other processes only slow a draw down, so the fastest draws are those that they spared. Without a
    relation the correlation has standard deviation 0.013. Tails of the inverse normal distribution have formulas of
    their own, which gives about 0.03: 0.2 is exceeded by chance with probability below 1e-20.
    """
    source, total, count = SecureNoise(), np.zeros(1, dtype=np.int64), 20_000
    sizes, times = np.empty(count), np.empty(count)
    for step in range(count):
        begin = time.thread_time_ns()
        value = source.gaussian(2.0**20, total, step=step, block="b", plan_digest=b"")
        times[step] = time.thread_time_ns() - begin
        sizes[step] = abs(int(value[0]))
    kept = times <= np.quantile(times, 0.3)
    assert abs(np.corrcoef(sizes[kept], times[kept])[0, 1]) < 0.2


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [20, 34])
def test_five_million_draws_per_cpu_second(exponent: int) -> None:
    source, count = SecureNoise(), 2_000_000
    seconds = []
    for step in range(3):
        begin = time.process_time()
        draw(source, 2.0**exponent, count, step)
        seconds.append(time.process_time() - begin)
    assert count / min(seconds) >= 5e6


# --- arguments ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf, 2.0**40 * 1.001, "1", None])
def test_bad_std_is_refused(std: Any) -> None:
    with pytest.raises(ParameterError, match="std_steps"):
        draw(SecureNoise(), std, 3)


@pytest.mark.parametrize("total", [np.zeros(3), np.zeros(3, dtype=np.int32), [0, 0], 0])
def test_total_must_be_int64(total: Any) -> None:
    with pytest.raises(ParameterError, match="int64"):
        SecureNoise().gaussian(1.0, total, step=0, block="b", plan_digest=b"")


def test_bad_places_are_refused() -> None:
    words = SecureNoise().words(step=0, purpose="p")
    for bad in ({"count": -1}, {"count": 1.5}, {"start": -1}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            words(**{"count": 1, **bad})


def test_no_noise_and_empty_totals() -> None:
    source = SecureNoise()
    assert not draw(source, 0.0, 1000).any()
    for shape in ((), (0,), (3, 0), (2, 3, 4)):
        total = np.zeros(shape, dtype=np.int64)
        result = source.gaussian(1e6, total, step=0, block="b", plan_digest=b"")
        assert result.shape == shape
        assert result.dtype == np.int64
    assert not draw(source, 1e-300, 1000).any()


@kills("reused noise", "threads draw noise from one place of the keystream")
@edit("core/noise.py", "_Keystream(key, 0, start)", "_Keystream(key, 0, 0)")
@pytest.mark.parametrize("part", [2**14, 2**15, 2**20])
def test_noise_has_the_same_bits_in_any_number_of_parts(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    total = np.zeros(2**17 + 5, dtype=np.int64)
    expected = noise._gaussian(1e9, total, bytes(32))
    monkeypatch.setattr(noise, "_PART", part)
    assert np.array_equal(noise._gaussian(1e9, total, bytes(32)), expected)
    assert len({*expected[:: 2**14].tolist()}) == 9  # Parts do not begin with the same draw.
