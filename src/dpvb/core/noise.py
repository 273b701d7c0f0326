"""Gaussian noise on the integer grid, exact, from a cryptographic generator.

`gaussian` returns round(N(0, std²)): a *continuous* Gaussian, in grid steps, rounded to the nearest integer. For an
integer x, x + round(z) = round(x + z); so an integer sum plus this noise is a post-processing of the ideal continuous
Gaussian mechanism, whose accounting holds as it stands. No low bits of a floating-point number are ever released.

Write |z| = std·x with x = -Φ⁻¹(U), U uniform on (0, 1/2), and draw the sign apart. One 64-bit word gives the sign and
the first 63 bits k of U. The fast path computes y, a float64 close to |z|, and a bound e ≥ |y - std·x| for *every* U
that begins with k; if no half-integer lies within e of y, the answer is settled. Otherwise the slow path compares U
with Φ at the half-integers in high precision, and draws further bits of U while they matter. So the answer is the exact
function of a real uniform number, of which only the needed bits were drawn. With u = float64(k)·2⁻⁶⁴ and
x̂ = -ndtri(u),

    e = std (1.2534 (2⁻⁶⁴/u + 2⁻⁵²) + (2⁻⁴⁷ + 2⁻⁵²) x̂)

is proved in docs/proofs.md, "Exact noise", with the range of a draw and what its time tells.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol, final

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpvb.core.forks import Origin
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.kernels.threads import num_threads, spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_STD_STEPS: Final = 2.0**40
NDTRI_ERROR: Final = 2.0**-47  # relative, of SciPy's ndtri
_MILLS: Final = 1.2534  # largest |dΦ⁻¹/d log U| on the lower half
_TAIL_STDS: Final = 39  # no draw is further from 0
_PART: Final = 2**18  # draws of a thread, which begin at their own place of the keystream
_BLOCK: Final = 2**14  # words; the five working arrays of one block stay in the second-level cache
_LEAST_DRAWS: Final = 64  # a lone draw hides among others: which branches of ndtri it takes no longer shows
_ZEROS: Final = bytes(8 * _BLOCK)


class NoiseSource(Protocol):
    """Interface of a wall's source of random bits; only if it is `private` may a release be called so."""

    @property
    def private(self) -> bool:
        """Whether the bits are secret and fresh (public)."""

    @property
    def run_id(self) -> str:
        """The public name of this source's run."""

    def gaussian(
        self, std_steps: float, total: NDArray[np.int64], *, step: int, block: str, plan_digest: bytes
    ) -> NDArray[np.int64]:
        """Return rounded Gaussian noise of the shape of `total`."""

    def words(self, *, step: int, purpose: str) -> Words:
        """Return uniform words for one step and purpose."""


@final
class Words:
    """A stream of uniform words; another process that has it draws the same. Any place of it is reached at once."""

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


@final
class SecureNoise:
    """The noise of private releases: AES-256 in counter mode, every draw under a key of its own from the system.

    It takes no argument, so that no seed can reach a private release, and keeps no secret, so that nothing that was
    drawn is drawn again: another sum, or the same one, always gets independent noise. It refuses in a forked child.
    """

    private: Final = True

    def __init__(self) -> None:
        self.run_id = secrets.token_hex(16)
        self._origin = Origin()

    def gaussian(
        self, std_steps: float, total: NDArray[np.int64], *, step: int, block: str, plan_digest: bytes
    ) -> NDArray[np.int64]:
        """Return noise distributed exactly as round(N(0, std_steps²)), to be added to `total`.

        Shapes: `total`, any; the result has the same. Units: grid steps. `total` and the result are private; `total`
        is not read, and `step`, `block`, `plan_digest` matter only to test noise.

        Exact by interval refining, as in Haney et al. 2022; see the top of this file.

        Raises:
            ParameterError: std_steps outside [0, 2⁴⁰], or total not int64.
            PrivacyError: in a process that was forked from this source's.
        """
        return _gaussian(std_steps, total, self._fresh_key())

    def words(self, *, step: int, purpose: str) -> Words:
        """Return a stream of secret uniform words; private: they determine who was sampled.

        Raises:
            PrivacyError: in a process that was forked from this source's.
        """
        return Words(self._fresh_key())

    def _fresh_key(self) -> bytes:
        self._origin.check("this source of noise")
        return secrets.token_bytes(32)


@final
class InsecureNoise:
    """Noise for tests only: repeatable from a seed and blind to the sum, so neighbours meet the same draws.

    A draw is a function of the seed and of all its names, and of `total` by its shape only. Whatever is released with
    it is not private.
    """

    private: Final = False

    def __init__(self, seed: int) -> None:
        seed = check_integer("seed", seed, low=0)
        self.run_id = f"insecure-{seed}"
        self._secret = hashlib.sha256(b"dpvb insecure test noise %d" % seed).digest()

    def gaussian(
        self, std_steps: float, total: NDArray[np.int64], *, step: int, block: str, plan_digest: bytes
    ) -> NDArray[np.int64]:
        """Return the noise of this name; arguments and errors are those of SecureNoise."""
        # The last field stands for the sum, to which test noise is blind.
        names = plan_digest, float(std_steps).hex().encode(), b""
        return _gaussian(std_steps, total, self._key("gaussian", step, block, *names))

    def words(self, *, step: int, purpose: str) -> Words:
        """Return the stream of uniform words of this name."""
        return Words(self._key("uniform", step, purpose))

    def _key(self, purpose: str, step: int, name: str, *more: bytes) -> bytes:
        """Derive a key (HKDF-SHA256, RFC 5869); every field carries its length."""
        fields = (self.run_id.encode(), purpose.encode(), str(step).encode(), name.encode(), *more)
        info = b"".join(len(field).to_bytes(8, "little") + field for field in fields)
        return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=info).derive(self._secret)


def _gaussian(std_steps: float, total: NDArray[np.int64], key: bytes) -> NDArray[np.int64]:
    """The noise under a key."""
    std = check_number("std_steps", std_steps, low=0.0, high=MAX_STD_STEPS)
    if not isinstance(total, np.ndarray) or total.dtype != np.int64:
        raise ParameterError(f"total must be an int64 array, got {getattr(total, 'dtype', type(total).__name__)}.")
    if std == 0.0 or total.size == 0:
        return np.zeros(total.shape, dtype=np.int64)
    noise = np.empty(max(total.size, _LEAST_DRAWS), dtype=np.int64)

    def fill(start: int) -> None:
        words = _Keystream(key, 0, start)
        for first in range(start, min(start + _PART, noise.size), _BLOCK):
            out = noise[first : first + _BLOCK]
            for place, word in _round_block(std, words.next(out.size), out):
                out[place] = _decide(std, word, _further_words(key, 1 + first + place))

    parts = range(0, noise.size, _PART)
    spread(fill, parts, num_threads(None) if len(parts) > 1 else 1)
    return noise[: total.size].reshape(total.shape)


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
