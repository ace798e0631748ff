"""Paillier's encryption: sums of integers under encryption. Paillier, EUROCRYPT 1999, with g = n + 1.

    E(m; r) = (1 + m n) r^n mod n^2            m in Z_n, negative ones as n - |m|
    E(a) E(b) = E(a + b)      E(a)^k = E(k a)      E(a) (1 + b n) = E(a + b)
    two trapdoors: sk = 0 mod lambda, 1 mod n;  c^sk = 1 + m n mod n^2;  sk = sk_1 + sk_2:  c^sk_1 c^sk_2 = c^sk

Ciphertexts stand in rows of a (C, 2 |n|) uint8 array, big-endian, so that they travel as they are. `Packing` puts many
small numbers into one plaintext. Results of `plus` and `scale` are not randomised anew: a party that knows the factors
and the old ciphertext recognises them. Keys and randomness come from the generator that is given, and so from a
scenario's seed: for emulation only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

Rows = NDArray[np.uint8]            # (C, bytes of a ciphertext)

LEAST_BITS = 256                    # of n: below that packing has no room, and primes may be equal


@dataclass(frozen=True)
class PublicKey:
    """n, the product of two primes."""

    n: int

    @property
    def bits(self) -> int:
        """|n| in bits."""
        return int(self.n).bit_length()

    @property
    def plain_bytes(self) -> int:
        """|n| in bytes."""
        return (self.bits + 7) // 8

    @property
    def cipher_bytes(self) -> int:
        """Of one ciphertext, and of one partial decryption."""
        return 2 * self.plain_bytes

    def encrypt(self, values: Sequence[int], rng: np.random.Generator) -> Rows:
        """(C, cipher_bytes) of C integers, |value| < n / 2. Raises ValueError for larger ones."""
        n, square = mpz(self.n), mpz(self.n) ** 2
        return self._rows((1 + self._residue(value) * n) * gmpy2.powmod(self._unit(rng), n, square) % square
                          for value in values)

    def plus(self, rows: Rows, values: Sequence[int]) -> Rows:
        """E(m_i + value_i): without an encryption, hence without new randomness."""
        n, square = mpz(self.n), mpz(self.n) ** 2
        return self._rows(c * (1 + self._residue(value) * n) % square
                          for c, value in zip(numbers(rows), values, strict=True))

    def add(self, a: Rows, b: Rows) -> Rows:
        """E(a_i + b_i)."""
        square = mpz(self.n) ** 2
        return self._rows(x * y % square for x, y in zip(numbers(a), numbers(b), strict=True))

    def scale(self, rows: Rows, factor: int) -> Rows:
        """E(factor m_i)."""
        square = mpz(self.n) ** 2
        return self._rows(gmpy2.powmod(c, factor, square) for c in numbers(rows))

    def dot(self, rows: Rows, factors: Sequence[int]) -> Rows:
        """(1, cipher_bytes), E(sum_i factor_i m_i)."""
        square, total = mpz(self.n) ** 2, mpz(1)
        for c, factor in zip(numbers(rows), factors, strict=True):
            total = total * gmpy2.powmod(c, factor, square) % square
        return self._rows([total])

    def sound(self, rows: Rows) -> bool:
        """True if each row is a unit modulo n^2, which every ciphertext is."""
        n = mpz(self.n)
        return rows.shape[1:] == (self.cipher_bytes,) and all(
            0 < c < n * n and gmpy2.gcd(c, n) == 1 for c in numbers(rows))

    def _residue(self, value: int) -> mpz:
        number = mpz(int(value))
        if 2 * abs(number) >= self.n:
            raise ValueError(f"{value} is no plaintext of a key of {self.bits} bits")
        return number % self.n

    def _unit(self, rng: np.random.Generator) -> mpz:
        return 1 + mpz(int.from_bytes(rng.bytes(self.plain_bytes + 8), "big")) % (mpz(self.n) - 1)

    def _rows(self, ciphertexts: Iterable[mpz]) -> Rows:
        octets = b"".join(int(c).to_bytes(self.cipher_bytes, "big") for c in ciphertexts)
        return np.frombuffer(octets, np.uint8).reshape(-1, self.cipher_bytes)


@dataclass(frozen=True)
class PrivateKey:
    """The two primes of n."""

    p: int
    q: int

    @property
    def public(self) -> PublicKey:
        """Its other half."""
        return PublicKey(int(mpz(self.p) * self.q))

    def decrypt(self, rows: Rows) -> list[int]:
        """The integers in C ciphertexts, by the Chinese remainder theorem."""
        n, p, q = mpz(self.public.n), mpz(self.p), mpz(self.q)
        to_p, to_q, inverse = self._to(p), self._to(q), gmpy2.invert(p, q)
        found = []
        for c in numbers(rows):
            m_p, m_q = _part(c, p, to_p), _part(c, q, to_q)
            found.append(_signed(m_p + p * ((m_q - m_p) * inverse % q), n))
        return found

    def _to(self, prime: mpz) -> mpz:
        """1 / L(g^(prime - 1) mod prime^2) mod prime."""
        return gmpy2.invert(_part(1 + mpz(self.public.n), prime, mpz(1)), prime)

    def split(self, rng: np.random.Generator) -> tuple[Share, Share]:
        """Two shares of sk, each of which alone says nothing of a message."""
        n, lambda_ = mpz(self.public.n), gmpy2.lcm(mpz(self.p) - 1, mpz(self.q) - 1)
        order = n * lambda_
        sk = lambda_ * gmpy2.invert(lambda_, n) % order
        one = mpz(int.from_bytes(rng.bytes(2 * self.public.plain_bytes + 16), "big")) % order
        return Share(int(n), int(one)), Share(int(n), int((sk - one) % order))


@dataclass(frozen=True)
class Share:
    """A part of sk for the public key n."""

    n: int
    part: int

    def partial(self, rows: Rows) -> Rows:
        """c^part of every ciphertext: a partial decryption, (C, cipher_bytes)."""
        return PublicKey(self.n).scale(rows, self.part)


def combined(public: PublicKey, one: Rows, other: Rows) -> list[int]:
    """The integers of which these are the two partial decryptions."""
    n = mpz(public.n)
    return [_signed((x * y % n**2 - 1) // n, n) for x, y in zip(numbers(one), numbers(other), strict=True)]


def key_pair(bits: int, rng: np.random.Generator) -> PrivateKey:
    """A key with n of exactly `bits` bits. Raises ValueError for less than LEAST_BITS or an odd number of them."""
    if bits < LEAST_BITS or bits % 16:
        raise ValueError(f"bits = {bits}: expected a multiple of 16, at least {LEAST_BITS}")
    while True:
        p, q = _prime(bits // 2, rng), _prime(bits // 2, rng)
        if p != q and gmpy2.gcd(p * q, (p - 1) * (q - 1)) == 1:
            return PrivateKey(int(p), int(q))


def _prime(bits: int, rng: np.random.Generator) -> mpz:
    """Above 3/4 of the range: two of them have a product of twice the bits."""
    low = mpz(3) << (bits - 2)
    start = low + mpz(int.from_bytes(rng.bytes(bits // 8), "big")) % (mpz(1) << (bits - 3))
    return gmpy2.next_prime(start)


def numbers(rows: Rows) -> list[mpz]:
    """The integers in the rows, such as ciphertexts."""
    return [mpz(int.from_bytes(row.tobytes(), "big")) for row in rows]


def _part(c: mpz, prime: mpz, factor: mpz) -> mpz:
    return (gmpy2.powmod(c, prime - 1, prime * prime) - 1) // prime * factor % prime


def _signed(m: mpz, n: mpz) -> int:
    return int(m - n if 2 * m > n else m)


# --- many numbers in one plaintext ------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Packing:
    """`slots` signed numbers in one plaintext, of `slot_bits` = b bits each: they stay apart below 2^(b-1)."""

    slots: int
    slot_bits: int

    @classmethod
    def of(cls, bits: int, slot_bits: int) -> Packing:
        """As many slots as a modulus of so many bits has room for, with a sign. Raises ValueError if it has none."""
        if slot_bits > bits - 2:
            raise ValueError(f"bits = {bits}: expected at least {slot_bits + 2}, a slot and a sign")
        return cls((bits - 2) // slot_bits, slot_bits)

    def count(self, length: int) -> int:
        """C, how many plaintexts `length` numbers need."""
        return math.ceil(length / self.slots)

    def pack(self, values: NDArray[np.int64]) -> list[int]:
        """C integers from (k,) numbers."""
        found = []
        for start in range(0, len(values), self.slots):
            total = 0
            for value in reversed(values[start:start + self.slots].tolist()):
                total = (total << self.slot_bits) + value
            found.append(total)
        return found

    def unpack(self, packed: Sequence[int], length: int) -> NDArray[np.int64]:
        """The (length,) numbers of C integers. Raises ValueError for a slot that leaves int64."""
        top, half = 1 << self.slot_bits, 1 << (self.slot_bits - 1)
        found: list[int] = []
        for whole in packed:
            rest = whole
            for _ in range(min(self.slots, length - len(found))):
                digit = rest % top
                digit -= top if digit >= half else 0
                found.append(digit)
                rest = (rest - digit) >> self.slot_bits
        try:
            return np.array(found, np.int64)
        except OverflowError:
            raise ValueError("a slot holds more than 64 bits") from None


# --- what it costs ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Seconds:
    """Of one core, for one ciphertext each."""

    encrypt: float
    decrypt: float                  # with both primes
    partial: float                  # with a share
    add: float
    scale: float                    # by a factor of 32 bits


AT_2048 = Seconds(encrypt=8.9e-3, decrypt=2.5e-3, partial=17.5e-3, add=5e-6, scale=0.14e-3)


def seconds(bits: int) -> Seconds:
    """The seconds declared for a key of so many bits: as measured with gmpy2 at 2,048, times (bits / 2048)^3 for powers
    with exponents of the key's length, and its square for the others."""
    r = bits / 2048
    return Seconds(AT_2048.encrypt * r**3, AT_2048.decrypt * r**3, AT_2048.partial * r**3, AT_2048.add * r**2,
                   AT_2048.scale * r**2)
