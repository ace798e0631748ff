"""Multi-input functional encryption of inner products, from DDH. Abdalla, Catalano, Fiore, Gay, Ursu, CRYPTO 2018.

    group of prime order q, generators g and h; party i has s_i, t_i and a pad u_ic for each coordinate c, all of Z_q
    E_i(x_c)        (g^r, h^r, g^(x_c + u_ic) (g^s_i h^t_i)^r),  r fresh
    key for y       (y_i s_i, y_i t_i) of every i, z_c = sum_i y_i u_ic
    decryption      g^(sum_i y_i x_ic) = prod_i (third^y_i / first^(y_i s_i) second^(y_i t_i)) / g^z_c

The discrete logarithm is found by baby steps and giant steps, whose table all coordinates share. There is one number to
a coordinate, so y_i s_i gives s_i away to whoever has a functional key, and then g^(x_c + u_ic): it is the pads that
hide x. Hence keys serve for one round and one y: two of them would give differences of single inputs. Keys come from
seeds, and these from a scenario's: for emulation only.

Group: squares modulo a safe prime p, by default that of 2,048 bits of RFC 3526 (group 14), g = 2, h the square of a
hash. eprint 2017/972 has the proofs.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from emul.primitives.he.paillier import numbers

Rows = NDArray[np.uint8]            # (k, bytes of an element or of an exponent), big-endian

GROUP_14 = int("FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
               "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
               "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
               "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
               "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
               "15728E5A8AACAA68FFFFFFFFFFFFFFFF", 16)


@dataclass(frozen=True)
class SafePrimeGroup:
    """Squares modulo a safe prime p = 2 q + 1, p = 7 mod 8, so that 2 is one of them."""

    p: int = GROUP_14

    @property
    def q(self) -> int:
        """Its order."""
        return self.p // 2

    @property
    def width(self) -> int:
        """Bytes of an element, and of an exponent."""
        return (self.p.bit_length() + 7) // 8

    @cached_property
    def h(self) -> mpz:
        """The second generator: the square of a hash, of which nobody knows the logarithm."""
        octets = hashlib.shake_256(b"emul second generator" + self.p.to_bytes(self.width, "big"))
        return gmpy2.powmod(int.from_bytes(octets.digest(self.width + 16), "big"), 2, self.p)

    def holds(self, elements: Rows) -> bool:
        """True if each row may be an element: a number below p. A row that is no square shows when it is opened."""
        return elements.shape[1:] == (self.width,) and all(0 < x < self.p for x in numbers(elements))

    def scalars(self, elements: Rows) -> bool:
        """True if each row is an exponent below q."""
        return elements.shape[1:] == (self.width,) and all(x < self.q for x in numbers(elements))

    def rows(self, found: Sequence[mpz | int]) -> Rows:
        """(k, width)."""
        octets = b"".join(int(x).to_bytes(self.width, "big") for x in found)
        return np.frombuffer(octets, np.uint8).reshape(-1, self.width)


@dataclass(frozen=True)
class PartyKey:
    """The key with which a party encrypts in one round: s, t and one pad a coordinate, all from a seed of 32 bytes."""

    group: SafePrimeGroup
    seed: bytes

    def exponents(self, d: int) -> tuple[int, int, list[int]]:
        """s, t and the pads of d coordinates, each uniform in Z_q up to 2^-128."""
        length = self.group.width + 16
        octets = hashlib.shake_256(b"emul mife" + self.seed).digest(length * (d + 2))
        found = [int.from_bytes(octets[at:at + length], "big") % self.group.q for at in range(0, len(octets), length)]
        return found[0], found[1], found[2:]

    def encrypt(self, values: NDArray[np.int64], rng: np.random.Generator) -> Rows:
        """(3 d, width) of (d,) integers: three elements each."""
        group, p = self.group, mpz(self.group.p)
        s, t, pads = self.exponents(values.size)
        both = gmpy2.powmod(2, s, p) * gmpy2.powmod(group.h, t, p) % p
        found: list[mpz | int] = []
        for x, pad in zip(values.tolist(), pads, strict=True):
            r = int.from_bytes(rng.bytes(group.width + 16), "big") % group.q
            found += [gmpy2.powmod(2, r, p), gmpy2.powmod(group.h, r, p),
                      gmpy2.powmod(2, (x + pad) % group.q, p) * gmpy2.powmod(both, r, p) % p]
        return group.rows(found)


@dataclass(frozen=True)
class FunctionalKey:
    """The key that opens the inner product with y in every coordinate, and nothing else."""

    parts: Rows                     # (2 of parties, width): y_i s_i, y_i t_i
    z: Rows                         # (d, width)


def functional_key(group: SafePrimeGroup, keys: Mapping[int, PartyKey], y: Mapping[int, int], d: int) -> FunctionalKey:
    """For {party: y_i}, of d coordinates; parties in ascending order."""
    parts: list[mpz | int] = []
    z = [0] * d
    for i in sorted(y):
        s, t, pads = keys[i].exponents(d)
        parts += [y[i] * s % group.q, y[i] * t % group.q]
        z = [(one + y[i] * pad) % group.q for one, pad in zip(z, pads, strict=True)]
    return FunctionalKey(group.rows(parts), group.rows(z))


def decrypt(group: SafePrimeGroup, ciphertexts: Mapping[int, Rows], y: Mapping[int, int], key: FunctionalKey,
            bound: int) -> NDArray[np.int64]:
    """sum_i y_i x_ic, (d,) int64, where it is at most `bound` in absolute value.

    Raises ValueError if it is not, as where a ciphertext is of another round or the key of another y.
    """
    p, parts = mpz(group.p), numbers(key.parts)
    columns = {i: numbers(rows) for i, rows in ciphertexts.items()}
    found = Logarithms(group, bound, len(key.z))
    values = []
    for c, z in enumerate(numbers(key.z)):
        over, under = mpz(1), gmpy2.powmod(2, z, p)
        for place, i in enumerate(sorted(y)):
            first, second, third = columns[i][3 * c:3 * c + 3]
            over = over * gmpy2.powmod(third, y[i], p) % p
            under = under * gmpy2.powmod(first, parts[2 * place], p) * gmpy2.powmod(second, parts[2 * place + 1], p) % p
        values.append(found.of(over * gmpy2.invert(under, p) % p))
    return np.array(values, np.int64)


class Logarithms:
    """Logarithms to the base g = 2 in [-bound, bound], by baby steps and giant steps.

    The table has sqrt((2 bound + 1) times) steps, which is best for so many `times` of asking; at most 2^20.
    """

    def __init__(self, group: SafePrimeGroup, bound: int, times: int = 1):
        self._p, self._bound = mpz(group.p), bound
        self.steps = table_steps(bound, times)
        self._table: dict[mpz, int] = {}
        power = mpz(1)
        for step in range(self.steps):
            self._table[power] = step
            power = power * 2 % self._p
        self._giant = gmpy2.invert(power, self._p)

    def of(self, element: mpz) -> int:
        """x with g^x = element. Raises ValueError if there is none within the bound."""
        at = element * gmpy2.powmod(2, self._bound, self._p) % self._p
        for giant in range(-(-(2 * self._bound + 1) // self.steps)):
            step = self._table.get(at)
            if step is not None and giant * self.steps + step <= 2 * self._bound:
                return giant * self.steps + step - self._bound
            at = at * self._giant % self._p
        raise ValueError(f"no inner product of at most {self._bound}")


def table_steps(bound: int, times: int) -> int:
    """Baby steps of a table that is asked so many times."""
    return min(1 << 20, max(1, math.isqrt((2 * bound + 1) * max(1, times))), 2 * bound + 1)


# --- what it costs ----------------------------------------------------------------------------------------------------

POWER, PRODUCT = 2.6e-3, 4e-6       # seconds of one core in group 14, with gmpy2: an exponent of 2,048 bits; a product


def encrypt_seconds(d: int) -> float:
    """Of d coordinates in group 14, for one party."""
    return 4 * d * POWER


def decrypt_seconds(d: int, parties: int, bound: int) -> float:
    """Of d coordinates in group 14: 2 powers a party and coordinate, the table, and half of the giant steps."""
    steps = table_steps(bound, d)
    return d * (2 * parties + 1) * POWER + PRODUCT * (steps + d * (2 * bound + 1) / steps / 2)
