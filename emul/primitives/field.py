"""Arithmetic modulo a prime below 2^31: elements, vectors and matrices, uniform masks.

An element is a u32 below p. Products of matrices are exact in float64: one factor is cut into halves of 16 bits, so
that 64 products below 2^47 add up below 2^53. That is 5 G multiply-adds a second on one core; FastSecAgg's Fourier
transform, vectorised, is slower up to a thousand clients, and `galois` some hundred times as slow. Sums and inverses of
single elements are exact in 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emul.primitives.crypto.prg import CHUNK_WORDS, KeyStream

P31 = (1 << 31) - 1             # a Mersenne prime, the largest below 2^31

Elements = NDArray[np.uint32]   # below p
Matrix = NDArray[np.int64]      # below p; small ones, of codes

_TERMS = 64                     # products below 2^47 whose sum stays below 2^53
_BLOCK = 1 << 15                # elements of a product at once: float64 blocks stay in the second-level cache
_LEAST_BLOCK = 128              # columns


# --- vectors --------------------------------------------------------------------------------------------------------

def add(a: Elements, b: Elements, p: int) -> Elements:
    """a + b mod p, a new (d,) uint32."""
    total = a + b                               # below 2 p < 2^32
    # one of the two is below p: total - p wraps around to above 2^31 where total < p
    result: Elements = np.minimum(total, total - np.uint32(p))
    return result


def subtract(a: Elements, b: Elements, p: int) -> Elements:
    """a - b mod p, a new (d,) uint32."""
    difference = a - b                          # wraps around where a < b; then adding p is right
    result: Elements = np.minimum(difference, difference + np.uint32(p))
    return result


def total(vectors: Sequence[Elements], size: int, p: int) -> Elements:
    """The sum mod p of (size,) vectors, up to 2^32 of them: a new (size,) uint32, zero for none."""
    found = np.zeros(size, np.uint64)
    for vector in vectors:
        found += vector
    found %= np.uint64(p)
    return found.astype(np.uint32)


def below(values: NDArray[np.uint32], p: int) -> bool:
    """True if all values are elements."""
    return values.size == 0 or int(values.max()) < p


def uniform(seed: bytes, size: int, p: int) -> Elements:
    """(size,) uint32, uniform on 0..p-1, from an AES-256-CTR key stream: 2^30 < p < 2^31. seed: 32 bytes, used once.

    The upper 31 bits of a word are a draw; one of p or above, which a large p makes rare, is drawn again from what
    follows in the stream. So no value is more likely than another.
    """
    if not 1 << 30 < p < 1 << 31:
        raise ValueError(f"p = {p}, expected a prime between 2^30 and 2^31")
    stream = KeyStream(seed)
    out = np.empty(size, np.uint32)
    missing: list[NDArray[np.intp]] = []
    for start in range(0, size, CHUNK_WORDS):
        part = out[start:start + CHUNK_WORDS]
        np.right_shift(stream.words(part.size), 1, out=part)
        if int(part.max()) >= p:
            missing.append(start + np.flatnonzero(part >= p))
    for again in missing:
        while again.size:
            out[again] = stream.words(again.size) >> np.uint32(1)
            again = again[out[again] >= p]
    return out


# --- matrices -------------------------------------------------------------------------------------------------------

def matmul(a: NDArray[np.integer], b: Sequence[NDArray[np.integer]] | NDArray[np.integer], p: int) -> Elements:
    """a @ b mod p, exact. a: (r, n); b: (n, w), or n vectors of (w,); all elements. Returns (r, w) uint32."""
    r, n = a.shape
    w = len(b[0]) if n else 0
    out = np.zeros((r, w), np.uint32)
    whole = a.astype(np.int64)
    halves = np.vstack([whole >> 16, whole & 0xFFFF]).astype(np.float64)                    # (2 r, n)
    step = max(_LEAST_BLOCK, _BLOCK // max(1, r))
    for start in range(0, w, step):
        stop = min(w, start + step)
        sums = np.zeros((2 * r, stop - start))
        for first in range(0, n, _TERMS):
            rows = np.stack([v[start:stop] for v in b[first:first + _TERMS]], dtype=np.float64)
            sums += _reduced(halves[:, first:first + _TERMS] @ rows, p)
        sums = _reduced(sums, p)
        whole = _reduced(sums[:r] * 65536.0 + sums[r:], p).astype(np.uint32)                # of values below 2^49
        np.minimum(whole, whole - np.uint32(p), out=out[:, start:stop])
    return out


def _reduced(x: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """x mod p, or that and p: in place, for whole numbers from 0 up to 2^53."""
    quotient = x * ((1.0 - 2.0**-50) / p)       # never above x / p, and below it by less than 1
    np.floor(quotient, out=quotient)
    quotient *= p
    x -= quotient
    return x


def inverses(values: ArrayLike, p: int) -> Matrix:
    """1 / v mod p of each element, by Fermat. Raises ZeroDivisionError if one is 0."""
    base = np.asarray(values, np.int64) % p
    if not base.all():
        raise ZeroDivisionError("0 has no inverse")
    result, exponent = np.ones_like(base), p - 2
    while exponent:
        if exponent & 1:
            result = result * base % p
        base = base * base % p
        exponent >>= 1
    return result


def inverse(matrix: Matrix, p: int) -> Matrix:
    """The inverse of a square matrix. Raises ZeroDivisionError if there is none."""
    n = len(matrix)
    work = np.hstack([np.asarray(matrix, np.int64) % p, np.eye(n, dtype=np.int64)])
    if len(_echelon(work, n, p)) < n:
        raise ZeroDivisionError("a singular matrix has no inverse")
    return work[:, n:]


def rank(matrix: Matrix, p: int) -> int:
    """The rank of a matrix. matrix: (r, c)."""
    work = np.asarray(matrix, np.int64) % p
    return len(_echelon(work, work.shape[1], p))


def _echelon(work: Matrix, columns: int, p: int) -> list[int]:
    """Bring the first columns of a matrix to reduced row echelon form, in place; the columns of the pivots."""
    pivots: list[int] = []
    for column in range(columns):
        row = len(pivots)
        candidates = np.flatnonzero(work[row:, column])
        if not candidates.size:
            continue
        at = row + int(candidates[0])
        if at != row:
            work[[row, at]] = work[[at, row]]
        work[row] = work[row] * pow(int(work[row, column]), p - 2, p) % p
        others = np.flatnonzero(work[:, column])
        others = others[others != row]
        work[others] = (work[others] - np.outer(work[others, column], work[row])) % p       # products below 2^62
        pivots.append(column)
        if len(pivots) == len(work):
            break
    return pivots


def lagrange(at: Sequence[int], nodes: Sequence[int], p: int) -> Matrix:
    """(len(at), len(nodes)): takes the values of a polynomial at `nodes` to its values `at` other points.

    The degree is below the number of nodes; all points are different mod p.
    """
    x, z = np.asarray(at, np.int64), np.asarray(nodes, np.int64)
    products, weights = np.ones_like(x), np.ones_like(z)
    for k, node in enumerate(z):
        products = products * ((x - node) % p) % p
        differences = (z - node) % p
        differences[k] = 1
        weights = weights * differences % p
    scaled = inverses((x[:, None] - z) % p, p) * products[:, None] % p
    return scaled * inverses(weights, p) % p


# --- roots of unity ---------------------------------------------------------------------------------------------------

@lru_cache(maxsize=64)
def prime_for(order: int) -> int:
    """The largest prime below 2^31 that is 1 mod `order`: its field has roots of unity of that order."""
    candidate = (P31 - 1) // order * order + 1
    while candidate > P31 or not _is_prime(candidate):
        candidate -= order
        if candidate <= 1 << 30:
            raise ValueError(f"no prime between 2^30 and 2^31 is 1 mod {order}")
    return candidate


@lru_cache(maxsize=64)
def root_of_unity(order: int, p: int) -> int:
    """An element whose powers 0..order-1 are different and whose power `order` is 1."""
    if (p - 1) % order:
        raise ValueError(f"order = {order} does not divide p - 1 = {p - 1}")
    proper = [order // q for q in range(2, order + 1) if order % q == 0 and _is_prime(q)]
    for g in range(2, p):
        root = pow(g, (p - 1) // order, p)
        if all(pow(root, k, p) != 1 for k in proper):
            return root
    raise ValueError(f"{p} is no prime")


@lru_cache(maxsize=64)
def roots(order: int, p: int) -> Matrix:
    """(order,): the powers 0..order-1 of `root_of_unity`."""
    root, found = root_of_unity(order, p), [1]
    for _ in range(order - 1):
        found.append(found[-1] * root % p)
    table = np.array(found, np.int64)
    table.flags.writeable = False
    return table


def _is_prime(n: int) -> bool:
    return n in (2, 3) or (n > 3 and n % 2 == 1 and all(n % q for q in range(3, isqrt(n) + 1, 2)))
