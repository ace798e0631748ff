"""Paillier's encryption whose key l parties share: any t of them decrypt together. Fouque, Poupard, Stern, FC 2000.

    n = p q,  p = 2 p' + 1,  q = 2 q' + 1, all four prime;  m = p' q';  d = 0 mod m, d = 1 mod n;  Delta = l!
    f of degree t - 1 over Z_{n m} with f(0) = d;  party i = 1..l has f(i)
    partial decryption   c_i = c^(2 Delta f(i)) mod n^2
    together, of S, |S| = t:  c' = prod_{i in S} c_i^(2 lambda_i),  lambda_i = Delta prod_{j in S - i} j / (j - i)
                              c' = c^(4 Delta^2 d) = 1 + 4 Delta^2 M n,  hence M

All lambda_i are integers, so nobody inverts modulo n m, which is secret. The public key is n alone, with l and t: it
holds no factor of n, nor m. t - 1 partial decryptions say nothing of M. Nothing proves that a partial decryption is
right: a wrong one is found out, not who made it. Randomness comes from the generator that is given, and so from a
scenario's seed: for emulation only.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import gmpy2
import numpy as np
from gmpy2 import mpz

from emul.primitives.he.paillier import LEAST_BITS, PublicKey, Rows, Share, numbers, seconds

_WINDOW = 1 << 16                   # odd numbers that are sieved at once
_SMALL = 1 << 14                    # primes below it are divided by


@dataclass(frozen=True)
class Dealt:
    """The keys that a dealer makes: a public key for everybody, and a share for each party; it then forgets p and q."""

    public: PublicKey
    shares: tuple[Share, ...]       # of the parties 1..l, with the exponents 2 Delta f(i)


def deal(bits: int, parties: int, threshold: int, rng: np.random.Generator) -> Dealt:
    """A key with n of exactly `bits` bits, shared so that `threshold` of the `parties` decrypt.

    Raises ValueError for lengths as `paillier.key_pair`, and for a threshold that is not in 1..parties.
    """
    if bits < LEAST_BITS or bits % 16:
        raise ValueError(f"bits = {bits}: expected a multiple of 16, at least {LEAST_BITS}")
    if not 1 <= threshold <= parties:
        raise ValueError(f"threshold = {threshold}: expected 1 to {parties}, the number of parties")
    p = q = mpz(0)
    while p == q or gmpy2.gcd(p * q, (p // 2) * (q // 2)) != 1:
        p, q = safe_prime(bits // 2, rng), safe_prime(bits // 2, rng)
    n, m = p * q, (p // 2) * (q // 2)
    coefficients = [m * gmpy2.invert(m, n), *(_below(n * m, rng) for _ in range(threshold - 1))]
    delta = math.factorial(parties)
    shares = tuple(Share(int(n), int(2 * delta * _value(coefficients, i, n * m))) for i in range(1, parties + 1))
    return Dealt(PublicKey(int(n)), shares)


def _value(coefficients: list[mpz], at: int, order: mpz) -> mpz:
    total = mpz(0)
    for one in reversed(coefficients):
        total = (total * at + one) % order
    return total


def lagrange(among: Collection[int], parties: int) -> dict[int, int]:
    """{i: lambda_i} of a set of parties: integers with sum_i lambda_i f(i) = Delta f(0), for any f of less degree.

    >>> lagrange([1, 3], 3)
    {1: 9, 3: -3}
    """
    delta, found = math.factorial(parties), {}
    for i in sorted(among):
        whole = Fraction(delta)
        for j in among:
            whole *= Fraction(j, j - i) if j != i else 1
        found[i] = int(whole)
    return found


def combined(public: PublicKey, parties: int, partials: Mapping[int, Rows]) -> list[int]:
    """The integers of which these are the partial decryptions, {party: (C, cipher_bytes)}, of `threshold` parties.

    Raises ValueError if they do not fit together: of too few parties, or one is wrong.
    """
    n, square = mpz(public.n), mpz(public.n) ** 2
    factors = lagrange(partials, parties)
    inverse = gmpy2.invert(mpz(4) * math.factorial(parties) ** 2, n)
    columns = {i: numbers(rows) for i, rows in partials.items()}
    return [_signed(_logarithm(_product(factors, row, square), n) * inverse % n, n)
            for row in (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))]


def _product(factors: Mapping[int, int], row: Mapping[int, mpz], square: mpz) -> mpz:
    """prod c_i^(2 lambda_i): one inverse for all that are negative."""
    over, under = mpz(1), mpz(1)
    for i, factor in factors.items():
        power = gmpy2.powmod(row[i], 2 * abs(factor), square)
        if factor > 0:
            over = over * power % square
        else:
            under = under * power % square
    if gmpy2.gcd(under, square) != 1:
        raise ValueError("a partial decryption is no unit modulo n^2")
    return over * gmpy2.invert(under, square) % square


def _logarithm(c: mpz, n: mpz) -> mpz:
    if (c - 1) % n:
        raise ValueError("these partial decryptions do not fit together")
    return (c - 1) // n


def _signed(message: mpz, n: mpz) -> int:
    return int(message - n if 2 * message > n else message)


# --- safe primes ------------------------------------------------------------------------------------------------------


def safe_prime(bits: int, rng: np.random.Generator) -> mpz:
    """p = 2 p' + 1 of so many bits, both prime, above 3/4 of the range: two of them have a product of twice the bits.

    Multiples of small primes are sieved out of a window behind a random number, then the rest is tested.
    """
    while True:
        start = (mpz(3) << (bits - 3)) + _below(mpz(1) << (bits - 4), rng) | 1
        for place in np.flatnonzero(_sieved(start)).tolist():
            half = start + 2 * place
            if gmpy2.is_strong_prp(half, 2) and gmpy2.is_prime(2 * half + 1) and gmpy2.is_prime(half):
                return 2 * half + 1


def _sieved(start: mpz) -> np.ndarray:
    """(_WINDOW,) bool: whether x = start + 2 k and 2 x + 1 have no small factor."""
    left = np.ones(_WINDOW, bool)
    for r, of_2, of_4 in _small_primes():
        rest = int(start % r)
        left[-rest * of_2 % r::r] = False
        left[-(2 * rest + 1) * of_4 % r::r] = False
    return left


@cache
def _small_primes() -> list[tuple[int, int, int]]:
    """(r, 1/2 mod r, 1/4 mod r) of odd primes."""
    return [(r, pow(2, -1, r), pow(4, -1, r)) for r in range(3, _SMALL, 2) if gmpy2.is_prime(r)]


def _below(bound: mpz, rng: np.random.Generator) -> mpz:
    return mpz(int.from_bytes(rng.bytes((bound.bit_length() + 7) // 8 + 8), "big")) % bound


# --- what it costs ----------------------------------------------------------------------------------------------------

def partial_seconds(bits: int, parties: int) -> float:
    """Of one core, for a partial decryption of one ciphertext: a power with an exponent of n m Delta's length."""
    return _power_seconds(bits, 2 * bits + math.factorial(parties).bit_length())


def combine_seconds(bits: int, among: Collection[int], parties: int) -> float:
    """For putting together the partial decryptions of these parties, one ciphertext: powers, and two inverses."""
    factors = lagrange(among, parties).values()
    return seconds(bits).scale + sum(_power_seconds(bits, 1 + factor.bit_length()) for factor in factors)


def _power_seconds(bits: int, exponent_bits: int) -> float:
    return seconds(bits).partial * exponent_bits / (2 * bits)
