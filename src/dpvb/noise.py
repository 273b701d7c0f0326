"""Gaussian noise on the integer grid, exact, from a cryptographic generator.

**What is drawn.** `gaussian` returns round(N(0, std²)): a *continuous* Gaussian, in grid steps, rounded to
the nearest integer. For an integer x, x + round(z) = round(x + z); so an integer sum plus this noise is a
rounding, that is a post-processing, of the ideal continuous Gaussian mechanism, and the accounting of the
continuous mechanism holds as it stands (a discrete Gaussian would have another privacy profile). No low bits
of a floating-point number are ever released.

**Why it is exact.** Write |z| = std·x with x = -Φ⁻¹(U), U uniform on (0, 1/2), and draw the sign apart;
half-integers have probability zero, so the rounding is symmetric. One 64-bit word gives the sign and the
first 63 bits k of U: U lies in [k, k+1]·2⁻⁶⁴, its further bits are not yet drawn. The fast path computes y, a
float64 close to |z|, and a bound e ≥ |y - std·x| that holds for *every* U in that interval; if no
half-integer lies within e of y, all of the interval rounds to the same integer, and this is the integer that
the full real number would give. Otherwise the slow path compares U with Φ at the half-integers in high
precision, drawing further bits of U while they matter. In both cases the answer is the exact function of a
real uniform number, of which only the needed bits were drawn. Starting from the lower tail keeps every bit of
U significant: there is no top value that rounds to 1 and gives infinite noise.

**The bound e.** Let u = float64(k)·2⁻⁶⁴, x̂ = -ndtri(u) and y = float64(std·x̂).

1. From U to u: |log U - log u| ≤ 1/k + 2⁻⁵² (the bits not drawn, and the conversion to 53 bits). Since
   |dΦ⁻¹/d log U| = U/φ(x) is Mills' ratio, on the lower half at most √(π/2) < 1.2534, x moves by at most
   1.2534 (2⁻⁶⁴/u + 2⁻⁵²).
2. SciPy's `ndtri` at the float u: relative error at most `NDTRI_ERROR` = 2⁻⁴⁷, 64 units of roundoff. It is
   the rational approximation of Moshier's Cephes. A first-order analysis of its formulas (each operation
   rounded to nearest, logarithms within one unit in the last place) gives at most 37 units of roundoff, to
   which the approximation itself adds 1.5; both are largest at the seam u = exp(-2). The worst found against
   high precision is 7.5 units, and the tests hold the error below a quarter of the bound.
3. The product: relative 2⁻⁵³. The roundings inside e itself are far below the slack of 2.

So e = std (1.2534 (2⁻⁶⁴/u + 2⁻⁵²) + (2⁻⁴⁷ + 2⁻⁵²) x̂), while y - rint(y) is exact in float64. k = 0 gives x̂
= inf and a comparison with NaN, never accepted. That logarithms are good to a unit in the last place and that
mpmath's `erfc` keeps its precision are the assumptions; they are tested, not proved.

**Range.** U < 2⁻¹⁰⁷⁴ would take a thousand zero bits of the generator in a row and is left out of the
statement: above it x < 39, so `noise_bound(std)` serves a public check against overflow. std is at most 2⁴⁰.

**Time.** Every draw consumes one word and passes through the same vector operations. The slow path is met by
a share of draws proportional to std (1e-5 at 2³⁰, 2e-4 at 2³⁴). This is constant work per draw, not constant
time at the level of machine instructions: the inverse CDF's branches differ by some 500 ns in a lone draw
(measured), so a small request is computed as a part of 64 draws, the rest thrown away.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpvb.errors import ParameterError, PrivacyError, check_integer, check_number
from dpvb.forks import Origin

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_STD_STEPS: Final = 2.0**40
NDTRI_ERROR: Final = 2.0**-47
_MILLS: Final = 1.2534
_TAIL_STDS: Final = 39
_BLOCK: Final = 2**14  # words; the five working arrays of one block stay in the second-level cache
_LEAST_DRAWS: Final = 64  # a lone draw hides among others: which branches of ndtri it takes no longer shows
_ZEROS: Final = bytes(8 * _BLOCK)


class NoiseSource(Protocol):
    """What a wall needs of its source of random bits; only if it is `private` may a release be called so."""

    @property
    def private(self) -> bool:
        """Whether the bits are secret and fresh (public)."""
        ...

    @property
    def run_id(self) -> str:
        """The public name of this source's run."""
        ...

    def gaussian(
        self, std_steps: float, total: NDArray[np.int64], *, step: int, block: str, plan_digest: bytes
    ) -> NDArray[np.int64]:
        """Return rounded Gaussian noise of the shape of `total`."""
        ...

    def uniform_bits(self, count: int, *, step: int, purpose: str, start: int = 0) -> NDArray[np.uint64]:
        """Return uniform 64-bit words."""
        ...

    def words(self, *, step: int, purpose: str) -> Words:
        """Return the same words for a process that the source's secret does not reach."""
        ...


@final
class Words:
    """The uniform words of one step and purpose, to be drawn by another process: the key of that stream alone."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __call__(self, count: int, start: int = 0) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words from word `start` on, shape (count,); private.

        Raises:
            ParameterError: count or start negative or not whole.
        """
        count = check_integer("count", count, low=0)
        start = check_integer("start", start, low=0)
        words = _Keystream(self._key, 0, start)
        bits = np.empty(count, dtype=np.uint64)
        for first in range(0, count, _BLOCK):
            piece = bits[first : first + _BLOCK]
            piece[:] = words.next(piece.size)
        return bits


class _KeyedNoise:
    """Noise whose every draw is a function of a secret and of the public and private names of the draw."""

    def __init__(self, secret: bytes, run_id: str) -> None:
        self._secret = secret
        self._run_id = run_id

    @property
    def run_id(self) -> str:
        """The public name of this source's run."""
        return self._run_id

    def gaussian(
        self, std_steps: float, total: NDArray[np.int64], *, step: int, block: str, plan_digest: bytes
    ) -> NDArray[np.int64]:
        """Return noise distributed exactly as round(N(0, std_steps²)), to be added to `total`.

        Shapes: `total`, any; the result has the same. Units: grid steps. `total` and the result are private;
        `std_steps`, `step`, `block`, `plan_digest` are public. `std_steps = 0` gives zeros.

        The key of the draw is made from all arguments, the digest of `total` included: another sum (or step,
        block, plan, standard deviation) always gets independent noise, so a difference of two releases never
        cancels the noise. The same call gives the same bits. Within a run, whose data do not change, this is
        safe: the same sum at the same place is the same release, and repeating it says nothing new. It does
        not allow a source to be carried over to other data: whether two releases are equal would then tell
        whether the sums are.

        Exactness and the error bound behind it: the module's docstring (interval refining as in Haney et al.
        2022).

        Raises:
            ParameterError: std_steps outside [0, 2⁴⁰], total not int64, or a bad step.
        """
        std = check_number("std_steps", std_steps, low=0.0, high=MAX_STD_STEPS)
        if not isinstance(total, np.ndarray) or total.dtype != np.int64:
            raise ParameterError(f"total must be an int64 array, got {getattr(total, 'dtype', type(total).__name__)}.")
        if std == 0.0 or total.size == 0:
            return np.zeros(total.shape, dtype=np.int64)
        key = self._key("gaussian", step, block, plan_digest, std.hex().encode(), self._sum_digest(total))
        noise = np.empty(max(total.size, _LEAST_DRAWS), dtype=np.int64)
        words = _Keystream(key, 0)
        for first in range(0, noise.size, _BLOCK):
            out = noise[first : first + _BLOCK]
            for place, word in _round_block(std, words.next(out.size), out):
                out[place] = _decide(std, word, _further_words(key, 1 + first + place))
        return noise[: total.size].reshape(total.shape)

    def uniform_bits(self, count: int, *, step: int, purpose: str, start: int = 0) -> NDArray[np.uint64]:
        """Return `count` uniform 64-bit words of the stream of this step and purpose, from word `start` on.

        Shape: (count,). The words are private (they tell who was sampled); all arguments are public. A
        sampler that does not want `count` words in memory asks for them in pieces: `start` reaches any place
        of the stream at once, and the pieces equal the whole. A place of a stream always holds the same word.

        Raises:
            ParameterError: count, start or step negative or not whole.
        """
        return self.words(step=step, purpose=purpose)(count, start)

    def words(self, *, step: int, purpose: str) -> Words:
        """Return the stream of `uniform_bits` for a process that the secret does not reach; private."""
        return Words(self._key("uniform", step, purpose))

    def _sum_digest(self, total: NDArray[np.int64]) -> bytes:
        exact = np.ascontiguousarray(total, dtype="<i8")
        return hashlib.sha256(repr(total.shape).encode() + b"|" + exact.data).digest()

    def _key(self, purpose: str, step: int, name: str, *more: bytes) -> bytes:
        """Derive an AES-256 key (HKDF-SHA256, RFC 5869).

        Every field carries its length, so that no two lists of fields make the same key.
        """
        step = check_integer("step", step, low=0)
        fields = (self._run_id.encode(), purpose.encode(), str(step).encode(), name.encode(), *more)
        info = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(self._secret)


@final
class SecureNoise(_KeyedNoise):
    """The noise of private releases: AES-256 in counter mode under keys from one fresh 256-bit secret.

    It takes no argument, so that no seed can reach a private release. One object serves one run on one data
    set. It refuses in a forked child process, and can be neither pickled nor copied nor kept in a file: no two
    processes ever share a draw, and none draws anew what was drawn.
    """

    private: Final = True

    def __init__(self) -> None:
        super().__init__(secrets.token_bytes(32), secrets.token_hex(16))
        self._origin = Origin()

    def _key(self, purpose: str, step: int, name: str, *more: bytes) -> bytes:
        self._origin.check("this source of noise")
        return super()._key(purpose, step, name, *more)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise PrivacyError("A SecureNoise cannot be pickled or copied: its secret stays in the process that drew it.")


@final
class InsecureNoise(_KeyedNoise):
    """Noise for tests only: repeatable from a seed and blind to the sum, so neighbours meet the same draws.

    `gaussian` depends on `total` by its shape only. Whatever is released with it is not private.
    """

    private: Final = False

    def __init__(self, seed: int) -> None:
        seed = check_integer("seed", seed, low=0)
        super().__init__(hashlib.sha256(b"dpvb insecure test noise %d" % seed).digest(), f"insecure-{seed}")

    def _sum_digest(self, total: NDArray[np.int64]) -> bytes:
        return b""


def noise_bound(std_steps: float) -> int:
    """Return the largest magnitude, in grid steps, that a draw of `gaussian` can have (public).

    A sum of magnitude at most 2⁶³ - 1 - noise_bound(std_steps) can take the noise without overflow.

    Raises:
        ParameterError: std_steps outside [0, 2⁴⁰].
    """
    std = check_number("std_steps", std_steps, low=0.0, high=MAX_STD_STEPS)
    return math.ceil(_TAIL_STDS * std) + 1 if std > 0.0 else 0


class _Keystream:
    """The AES-256-CTR keystream of one key as 64-bit words.

    Lane and place have 64 bits of the counter each, so lanes never overlap.
    """

    def __init__(self, key: bytes, lane: int, start: int = 0) -> None:
        counter = (lane << 64) + start // 2
        self._cipher = Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()
        if start % 2:
            self.next_word()

    def next(self, count: int) -> NDArray[np.uint64]:
        """Return the next `count` words, at most one block of them."""
        words = np.frombuffer(self._cipher.update(_ZEROS[: 8 * count]), dtype="<u8")
        return words.astype(np.uint64, copy=False)

    def next_word(self) -> int:
        """Return the next word."""
        return int(self.next(1)[0])


def _further_words(key: bytes, lane: int) -> Iterator[int]:
    """Yield the words of one lane, which are seldom needed: the stream is opened at the first."""
    stream = _Keystream(key, lane)
    while True:
        yield stream.next_word()


def _round_block(
    std: float, words: NDArray[np.uint64], out: NDArray[np.int64], ndtri_error: float = NDTRI_ERROR
) -> list[tuple[int, int]]:
    """Write the rounded draws of `words` to `out`; return (place, word) of those still open after this."""
    from scipy.special import ndtri

    with np.errstate(divide="ignore", invalid="ignore"):
        u = np.multiply(words >> np.uint64(1), 2.0**-64, dtype=np.float64)
        x = ndtri(u)
        np.negative(x, out=x)
        error = np.divide(std * _MILLS * 2.0**-64, u, out=u)
        error += std * _MILLS * 2.0**-52
        y = std * x
        x *= std * (ndtri_error + 2.0**-52)
        error += x
        nearest = np.rint(y)
        y -= nearest
        np.abs(y, out=y)
        y += error
        settled = y < 0.5
        magnitude = nearest.astype(np.int64)
    sign = (words & np.uint64(1)).view(np.int64)
    np.bitwise_xor(magnitude, -sign, out=out)
    out += sign
    return [] if settled.all() else [(int(i), int(words[i])) for i in np.flatnonzero(~settled)]


def _decide(std: float, word: int, more: Iterator[int]) -> int:
    """Return the exact draw of a word, with further words of U from `more` as they are needed."""
    magnitude = _exact_magnitude(std, word >> 1, 64, more)
    return -magnitude if word & 1 else magnitude


def _exact_magnitude(std: float, k: int, bits: int, more: Iterator[int]) -> int:
    """Return round(-std Φ⁻¹(U)) for U in [k, k+1]·2^-bits, U's further bits taken from `more`.

    The float64 inverse gives only the place where the search starts, never the decision.
    """
    from scipy.special import ndtri

    while k < 2**40:  # a start near the answer needs U to a good relative precision
        k, bits = (k << 64) | next(more), bits + 64
    magnitude = round(-std * float(ndtri(math.ldexp(k, -bits))))

    def exceeds(n: int) -> bool:
        """Decide whether std·x > n + 1/2, that is U < Φ(-(n + 1/2)/std)."""
        nonlocal k, bits
        while True:
            low, high = _lower_tail(std, n, k.bit_length() + 64, bits)
            if k + 1 <= low:
                return True
            if k >= high:
                return False
            k, bits = (k << 64) | next(more), bits + 64

    while exceeds(magnitude):
        magnitude += 1
    while magnitude > 0 and not exceeds(magnitude - 1):
        magnitude -= 1
    return magnitude


def _lower_tail(std: float, n: int, precision: int, bits: int) -> tuple[int, int]:
    """Return integers that enclose Φ(-(n + 1/2)/std)·2^bits.

    Computed as erfc(t)/2 with `precision` significant bits; the enclosure is wider by 2^24 units in the last
    place, more than the rounding of t, amplified by 2t² < 2^11, and that of erfc can amount to. Beyond 39
    standard deviations the tail is below any U: then 0 and 1.
    """
    from mpmath import libmp

    if n + 0.5 > _TAIL_STDS * std:
        return 0, 1
    scale = libmp.mpf_mul(libmp.from_float(std), libmp.mpf_sqrt(libmp.from_int(2), precision), precision)
    t = libmp.mpf_div(libmp.from_man_exp(2 * n + 1, -1), scale, precision)
    tail = libmp.mpf_shift(libmp.mpf_erfc(t, precision), bits - 1)
    slack = libmp.mpf_shift(tail, 24 - precision)
    low = libmp.to_int(libmp.mpf_sub(tail, slack, precision), libmp.round_floor)
    high = libmp.to_int(libmp.mpf_add(tail, slack, precision), libmp.round_ceiling)
    return int(low), int(high)
