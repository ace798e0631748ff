"""Gaussian vectors from a seed, bit-identical at every node that holds it, and the pairwise keys made of them.

ChaCha20 key stream -> 53-bit uniforms -> inverse normal distribution (Wichura, Applied Statistics 37, 1988, AS 241,
double precision). Only + - * / and sqrt, which IEEE 754 rounds in one way, and a logarithm built from them: the
library's log, sin and cos differ between processors in the last bit, and a key that two nodes see differently would
not cancel.

Pairwise keys: N_k = scale * sum_j sgn(k, j) Z_kj, Z_kj i.i.d. N(0, 1) known to k and j; they sum to zero over all k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

SEED_BYTES = 32

_BLOCK = 1 << 13                   # elements; the few float64 vectors of one block stay in the second-level cache
_ZEROS = bytes(8 * _BLOCK)
_NONCE = bytes(16)                 # every seed is used once

Floats = NDArray[np.float64]

# Coefficients of AS 241, highest power first: (numerator, denominator) by region.
_CENTRE = (
    (2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
     1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0),
    (5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
     5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0),
)
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
     3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0),
)
_FAR_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
     2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0),
    (2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
     1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0),
)
# log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1)/(m + 1); |s| <= 0.172, so that 12 terms leave less than 1e-19
_LOG_SERIES = tuple(2.0 / (2 * k + 1) for k in range(11, -1, -1))
_LN2 = math.log(2.0)
_SQRT_HALF = math.sqrt(0.5)


def gaussian(seed: bytes, d: int) -> Floats:
    """Z(seed): (d,) float64, i.i.d. N(0, 1), at most 8.3 in absolute value. A prefix of the vector for a larger d.

    seed: 32 bytes, for one vector only. Raises ValueError for another length.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"seed has {len(seed)} bytes, expected {SEED_BYTES}")
    stream = Cipher(ChaCha20(seed, _NONCE), mode=None).encryptor()
    out = np.empty(d, dtype=np.float64)
    for start in range(0, d, _BLOCK):
        block = out[start:start + _BLOCK]
        words = np.frombuffer(stream.update(_ZEROS[:8 * block.size]), dtype="<u8")
        block[:] = _inverse_normal(_centred_uniform(words))
    return out


def uniform(seed: bytes, d: int) -> Floats:
    """(d,) float64, i.i.d. uniform in (-1, 1), of 53 bits. A prefix of the vector for a larger d.

    seed: 32 bytes, for one vector only. Raises ValueError for another length.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"seed has {len(seed)} bytes, expected {SEED_BYTES}")
    stream = Cipher(ChaCha20(seed, _NONCE), mode=None).encryptor()
    found = _centred_uniform(np.frombuffer(stream.update(bytes(8 * d)), dtype="<u8"))
    found *= 2.0
    return found


def pairwise_key(k: int, seeds: Mapping[int, bytes], d: int, scale: float) -> Floats:
    """N_k = scale * sum_{j in seeds} sgn(k, j) Z(seeds[j]), sgn = +1 if k < j else -1, summed in id order.

    seeds: {peer j: 32 bytes, the same at both ends, fresh each round}. Returns (d,) float64; round it once, when it
    has been added to the update. scale = lambda / sqrt(K - 1) gives a standard deviation of lambda for K - 1 peers.
    """
    total = np.zeros(d, dtype=np.float64)
    for j in sorted(seeds):
        if j == k:
            raise ValueError(f"node {k} has no pairwise key with itself")
        combine = np.add if k < j else np.subtract
        combine(total, gaussian(seeds[j], d), out=total)
    total *= scale
    return total


def _centred_uniform(words: NDArray[np.uint64]) -> Floats:
    """u - 1/2 for u = (w + 1/2) / 2^53, w the upper 53 bits: exact, symmetric, never 0 and never +-1/2."""
    q = (words >> np.uint64(11)).astype(np.float64)
    q -= 2.0**52
    q += 0.5
    q *= 2.0**-53
    return q


def _inverse_normal(q: Floats) -> Floats:
    """Phi^-1(1/2 + q) for |q| < 1/2."""
    z = q * _ratio(_CENTRE, 0.180625 - q * q)
    outer = np.flatnonzero(np.abs(q) > 0.425)
    tail = q[outer]
    r = np.sqrt(-_log(0.5 - np.abs(tail)))          # 0.5 - |q| is exact
    magnitude = _ratio(_TAIL, r - 1.6)
    far = np.flatnonzero(r > 5.0)                   # 3 in 10^11 elements
    if far.size:
        magnitude[far] = _ratio(_FAR_TAIL, r[far] - 5.0)
    z[outer] = np.copysign(magnitude, tail)
    return z


def _log(p: Floats) -> Floats:
    """Natural logarithm of p > 0."""
    m, exponent = np.frexp(p)
    low = m < _SQRT_HALF
    m[low] *= 2.0
    exponent[low] -= 1
    s = (m - 1.0) / (m + 1.0)
    return exponent * _LN2 + s * _polynomial(_LOG_SERIES, s * s)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Floats) -> Floats:
    value = _polynomial(coefficients[0], r)
    value /= _polynomial(coefficients[1], r)
    return value


def _polynomial(coefficients: tuple[float, ...], r: Floats) -> Floats:
    """Horner, highest power first."""
    value = r * coefficients[0]
    for c in coefficients[1:-1]:
        value += c
        value *= r
    value += coefficients[-1]
    return value
