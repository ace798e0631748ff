"""CKKS ciphertexts as bytes of fixed length, with TenSEAL (extra `he`), and the same operations on plain numbers.

A `Box` is one pair of keys as one party holds it. It turns ciphertexts into rows of bytes and back; between the two
they are added and multiplied by `+` and `*`, with each other (left and right) or with plain vectors and floats (right):

    box = Ckks(PROTOTYPES, keys)                two = box.open(rows)[0] * other + mask
    sent = box.seal([two], rescales=1)          every `*` is one rescale; a sum keeps the larger number

`Plain` has the same interface on float64 arrays, so that a protocol is written once. Its rows are shorter than those of
`Ckks`; `Parameters.rest` says by how much.

Six rules that are easy to break:

1. Vectors and masks are full rows (`emul.schemes.ppfpl.slots`); what must reach every slot is a float.
2. Value times scale stays below half the remaining modulus: after two rescales |value| < 2^10. One slot that passes it
   destroys all.
3. An empty string is parsed as a ciphertext: lengths are looked at first. Junk raises ValueError, other parameters
   RuntimeError; both become ProtocolViolation here.
4. `copy()` of a ciphertext takes half a second: sums are built by `a + b`.
5. Secret keys leave only through `Keys.part(secret=True)`.
6. Encryption cannot be seeded, and lengths vary by 0.3 %: rows are padded to fixed lengths. A computation that encrypts
is volatile.

A plain factor of zeros only would give a fresh ciphertext in place of a rescaled one (TenSEAL): never multiply by it.
Keys are drawn by TenSEAL, not from the scenario's seed.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from emul.base.errors import EmulError, ProtocolViolation

Cipher = Any                            # a tenseal.CKKSVector, or (slots,) float64
_LENGTH = struct.Struct("<I")           # before the bytes of what is padded


class NoLibrary(EmulError):
    """TenSEAL is not installed."""


def available() -> bool:
    """True if TenSEAL can be imported."""
    return find_spec("tenseal") is not None


@dataclass(frozen=True)
class Parameters:
    """A set of parameters, of 128-bit security, and what things weigh under it; measured with TenSEAL 0.3.18."""

    degree: int                         # N; N / 2 slots
    chain: tuple[int, ...]              # bits of the primes; the last is used for keys only
    scale: int                          # bits
    cipher_bytes: tuple[int, ...]       # of a padded ciphertext after 0, 1, 2 ... rescales
    public_bytes: int                   # of padded keys
    secret_bytes: int
    relin_bytes: int
    galois_bytes: int = 0               # 0: this set is not rotated

    @property
    def slots(self) -> int:
        return self.degree // 2

    def entries(self, rescales: int, real: bool) -> tuple[int, type]:
        """(length, dtype) of a sealed row after so many rescales: bytes if it is `real`, else the slots."""
        return (self.cipher_bytes[rescales], np.uint8) if real else (self.slots, np.float64)

    def rest(self, rows: np.ndarray, rescales: int) -> int:
        """Bytes of sealed ciphertexts, (count, entries), that their rows do not carry."""
        return len(rows) * self.cipher_bytes[rescales] - rows.nbytes

    def key_bytes(self, secret: bool = False, relin: bool = False, galois: bool = False) -> int:
        """Of a part of a pair, padded."""
        return (self.public_bytes + secret * self.secret_bytes + relin * self.relin_bytes
                + galois * self.galois_bytes)


PROTOTYPES = Parameters(8192, (60, 49, 49, 60), 49, (368_640, 253_952, 135_168), 503_808, 253_952, 1_507_328,
                        36_175_872)
COMPARISON = Parameters(16384, (60, 50, 50, 50, 50, 50, 50, 60), 50,
                        (1_691_648, 1_454_080, 1_216_512, 978_944, 741_376, 503_808, 266_240), 1_957_888, 978_944,
                        13_701_120)


class Box(ABC):
    """One pair of keys as one party holds it. `seal` and `open` deal in rows of one padded length."""

    # A protocol on ciphertexts is written once, for TenSEAL's vectors and for NumPy's in the clear, so a test holds
    # both to one oracle. Steps take and give padded bytes: a context of 40 MB hangs on each object of TenSEAL, and
    # lengths of ciphertexts vary, which would move virtual time (`test_the_steps_on_plain_numbers_are_the_oracle`).

    parameters: Parameters

    @property
    def slots(self) -> int:
        """Of a row."""
        return self.parameters.slots

    @abstractmethod
    def seal(self, ciphers: Sequence[Cipher], rescales: int) -> np.ndarray:
        """(count, entries): what travels. rescales: those of the ciphertexts, on which the length depends."""

    @abstractmethod
    def open(self, rows: np.ndarray) -> list[Cipher]:
        """The numbers that `seal` was given. Raises ProtocolViolation for a row that is no ciphertext of these
        parameters."""

    @abstractmethod
    def encrypt(self, row: np.ndarray) -> Cipher:
        """A fresh ciphertext of a full row, (slots,) float64. Raises ValueError for another shape."""

    @abstractmethod
    def decrypt(self, cipher: Cipher) -> np.ndarray:
        """(slots,) float64; of a `total` (1,). Raises ValueError without the secret key."""

    @abstractmethod
    def total(self, cipher: Cipher) -> Cipher:
        """The sum of all slots, in all slots, by rotations: needs Galois keys, and no rescale."""


class Plain(Box):
    """No encryption: ciphertexts are their slots, and rows too."""

    def __init__(self, parameters: Parameters):
        self.parameters = parameters

    def seal(self, ciphers: Sequence[Cipher], rescales: int) -> np.ndarray:
        return np.stack(ciphers) if len(ciphers) else np.zeros((0, self.slots))

    def open(self, rows: np.ndarray) -> list[Cipher]:
        return list(rows)

    def encrypt(self, row: np.ndarray) -> Cipher:
        _full(row, self.slots)
        return row

    def decrypt(self, cipher: Cipher) -> np.ndarray:
        found: np.ndarray = cipher
        return found

    def total(self, cipher: Cipher) -> Cipher:
        return np.full(self.slots, cipher.sum())


class Ckks(Box):
    """keys: a part of a pair, padded, as `Keys.part` gives it."""

    def __init__(self, parameters: Parameters, keys: np.ndarray):
        self.parameters = parameters
        try:
            self._context = _tenseal().context_from(unpadded(keys))
        except (ValueError, RuntimeError) as e:
            raise ProtocolViolation(f"no keys: {e}") from None

    def seal(self, ciphers: Sequence[Cipher], rescales: int) -> np.ndarray:
        size = self.parameters.cipher_bytes[rescales]
        found = [padded(cipher.serialize(), size) for cipher in ciphers]
        return np.stack(found) if found else np.zeros((0, size), np.uint8)

    def open(self, rows: np.ndarray) -> list[Cipher]:
        return [self._open(row) for row in rows]

    def _open(self, row: np.ndarray) -> Cipher:
        data = unpadded(row)
        try:
            found = _tenseal().ckks_vector_from(self._context, data)
            size = found.size()
        except (ValueError, RuntimeError) as e:
            raise ProtocolViolation(f"no ciphertext: {e}") from None
        if size not in (self.slots, 1):                 # 1: a `total`
            raise ProtocolViolation(f"a ciphertext of {size} slots, expected {self.slots}")
        return found

    def encrypt(self, row: np.ndarray) -> Cipher:
        _full(row, self.slots)
        return _tenseal().ckks_vector(self._context, row)

    def decrypt(self, cipher: Cipher) -> np.ndarray:
        return np.array(cipher.decrypt())

    def total(self, cipher: Cipher) -> Cipher:
        return cipher.sum()


class Keys:
    """A fresh pair of keys, of which parts are given away."""

    def __init__(self, parameters: Parameters, galois: bool = False):
        tenseal = _tenseal()
        self.parameters = parameters
        self._context = tenseal.context(tenseal.SCHEME_TYPE.CKKS, parameters.degree, -1, list(parameters.chain))
        self._context.global_scale = 2.0**parameters.scale
        if galois:
            self._context.generate_galois_keys()

    def part(self, secret: bool = False, relin: bool = False, galois: bool = False) -> np.ndarray:
        """The public key, with others where it is said, padded: (bytes,) uint8."""
        data = self._context.serialize(save_public_key=True, save_secret_key=secret, save_galois_keys=galois,
                                       save_relin_keys=relin)
        return padded(data, self.parameters.key_bytes(secret, relin, galois))


def padded(data: bytes, size: int) -> np.ndarray:
    """(size,) uint8: the length, the data, zeros. Raises ValueError if they do not fit."""
    if len(data) + _LENGTH.size > size:
        raise ValueError(f"{len(data)} bytes do not fit {size}")
    found = np.zeros(size, np.uint8)
    found[:_LENGTH.size] = np.frombuffer(_LENGTH.pack(len(data)), np.uint8)
    found[_LENGTH.size:_LENGTH.size + len(data)] = np.frombuffer(data, np.uint8)
    return found


def unpadded(row: np.ndarray) -> bytes:
    """The data in what `padded` gave. Raises ProtocolViolation for none, or for more than there is."""
    length = _LENGTH.unpack(row[:_LENGTH.size].tobytes())[0] if len(row) >= _LENGTH.size else 0
    if not 0 < length <= len(row) - _LENGTH.size:
        raise ProtocolViolation("an empty ciphertext" if not length else "a ciphertext longer than its row")
    return row[_LENGTH.size:_LENGTH.size + length].tobytes()


def _full(row: np.ndarray, slots: int) -> None:
    if row.shape != (slots,):
        raise ValueError(f"a row of shape {row.shape}: all {slots} slots must be given")


@cache
def _tenseal() -> Any:
    if not available():
        raise NoLibrary("CKKS needs TenSEAL: pip install emul[he]")
    import tenseal

    return tenseal
