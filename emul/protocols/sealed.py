"""Vectors of integers under Paillier's encryption as they travel: for real, or declared where that is too heavy.

A scheme computes with a `Box`, and does not see which of the two it is. `Ciphertexts` does the cryptography.
`StandIns` keeps the integers themselves, modulo 2^64, in messages of the same size: every sum and multiple, and hence
every decision, is the same as long as what is decrypted fits into 64 bits. A value that masks hide in the one is hidden
by the same masks in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import NotDecodable, NotSendable, ProtocolViolation
from emul.message.wire import Holds
from emul.primitives.he import threshold
from emul.primitives.he.paillier import LEAST_BITS, Packing, PrivateKey, PublicKey, Share, combined, seconds
from emul.protocols.demands import Demand, demand
from emul.protocols.rounds import report_both, train_once
from emul.roles import Declared, Node, OctetRows, Vector, checks

Integers = NDArray[np.int64]
One = TypeVar("One")
_NOTHING = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Sealed:
    """A vector of k integers under a key: C ciphertexts, or k integers and what the ciphertexts would weigh besides."""

    ciphertexts: OctetRows                                  # (C, bytes of one); (0, ..): declared
    values: Annotated[np.ndarray, Holds("int64", 1)]        # (k,); (0,): for real
    rest: Declared


@dataclass(frozen=True)
class Ciphertexts:
    """Computes under encryption. `packing`: how many numbers share a ciphertext."""

    public: PublicKey
    packing: Packing

    real = True

    def seal(self, values: Integers, rng: np.random.Generator) -> Sealed:
        """E(values)."""
        return self._of(self.public.encrypt(self.packing.pack(values), rng))

    def seal_each(self, numbers: Sequence[int], rng: np.random.Generator) -> Sealed:
        """A ciphertext for each of these numbers, which may be as long as the key."""
        return self._of(self.public.encrypt(numbers, rng))

    def plus(self, sealed: Sealed, values: Integers) -> Sealed:
        """E(m + values)."""
        return self._of(self.public.plus(sealed.ciphertexts, self.packing.pack(values)))

    def plus_each(self, sealed: Sealed, numbers: Sequence[int]) -> Sealed:
        """E(m + numbers), of `seal_each`."""
        return self._of(self.public.plus(sealed.ciphertexts, numbers))

    def add(self, a: Sealed, b: Sealed) -> Sealed:
        """E(a + b)."""
        return self._of(self.public.add(a.ciphertexts, b.ciphertexts))

    def scale(self, sealed: Sealed, factor: int) -> Sealed:
        """E(factor m)."""
        return self._of(self.public.scale(sealed.ciphertexts, factor))

    def dot(self, sealed: Sealed, factors: Integers) -> Sealed:
        """E(sum_i factor_i m_i), one ciphertext; of numbers that are not packed."""
        return self._of(self.public.dot(sealed.ciphertexts, factors.tolist()))

    def joined(self, parts: Sequence[Sealed]) -> Sealed:
        """One after the other, of numbers that are not packed."""
        return self._of(np.concatenate([one.ciphertexts for one in parts]))

    def inner(self, a: Integers, b: Integers) -> int:
        """sum_i a_i b_i, of any length."""
        return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))

    def open(self, private: PrivateKey, sealed: Sealed, length: int) -> Integers:
        """D(c), (length,)."""
        return self.packing.unpack(private.decrypt(sealed.ciphertexts), length)

    def partial(self, share: Share, sealed: Sealed) -> Sealed:
        """c^share: what the holder of the other share needs to read c."""
        return self._of(share.partial(sealed.ciphertexts))

    def open_jointly(self, share: Share, sealed: Sealed, theirs: Sealed, length: int) -> Integers:
        """D(c) from the own share and the partial decryption of the other one."""
        own = share.partial(sealed.ciphertexts)
        return self.packing.unpack(combined(self.public, own, theirs.ciphertexts), length)

    def open_among(self, parties: int, sealed: Sealed, partials: Mapping[int, Sealed], length: int) -> Integers:
        """D(c) from the partial decryptions of enough of the `parties` 1, 2, ..; see `emul.primitives.he.threshold`.

        Raises NotDecodable if they do not fit together.
        """
        try:
            found = threshold.combined(self.public, parties, {i: one.ciphertexts for i, one in partials.items()})
        except ValueError as wrong:
            raise NotDecodable(str(wrong)) from None
        return self.packing.unpack(found, length)

    def demand(self, sealed: Sealed, length: int, partial: bool = False) -> None:
        """Raise ProtocolViolation unless it can be `length` numbers under this key; partial: a partial decryption."""
        count = self.packing.count(length)
        if sealed.values.size or sealed.rest.nbytes or len(sealed.ciphertexts) != count:
            raise ProtocolViolation(f"sealed: expected {count} ciphertexts and nothing else")
        if not self.public.sound(sealed.ciphertexts):
            raise ProtocolViolation("sealed: no ciphertexts under this key")

    def _of(self, rows: np.ndarray) -> Sealed:
        return Sealed(rows, _NOTHING, Declared(0))


@dataclass(frozen=True)
class StandIns:
    """The same without encryption, modulo 2^64. A message has the length of that which it stands for."""

    public: PublicKey
    packing: Packing

    real = False

    def seal(self, values: Integers, rng: np.random.Generator) -> Sealed:
        """As `Ciphertexts` has it; so are the others."""
        return self._of(values)

    def seal_each(self, numbers: Sequence[int], rng: np.random.Generator) -> Sealed:
        """A number is kept modulo 2^64."""
        return self._of(_wrapped(numbers))

    def plus(self, sealed: Sealed, values: Integers) -> Sealed:
        """E(m + values)."""
        return self._of(sealed.values + values)

    def plus_each(self, sealed: Sealed, numbers: Sequence[int]) -> Sealed:
        """E(m + numbers)."""
        return self._of(sealed.values + _wrapped(numbers))

    def add(self, a: Sealed, b: Sealed) -> Sealed:
        """E(a + b)."""
        return self._of(a.values + b.values)

    def scale(self, sealed: Sealed, factor: int) -> Sealed:
        """E(factor m)."""
        return self._of(sealed.values * _wrapped([factor]))

    def dot(self, sealed: Sealed, factors: Integers) -> Sealed:
        """E(sum_i factor_i m_i)."""
        return self._of(_wrapped([self.inner(sealed.values, factors)]))

    def joined(self, parts: Sequence[Sealed]) -> Sealed:
        """One after the other."""
        return self._of(np.concatenate([one.values for one in parts]))

    def inner(self, a: Integers, b: Integers) -> int:
        """sum_i a_i b_i modulo 2^64."""
        return int(np.dot(a, b))

    def open(self, private: PrivateKey, sealed: Sealed, length: int) -> Integers:
        """D(c)."""
        return sealed.values

    def partial(self, share: Share, sealed: Sealed) -> Sealed:
        """Nothing but its weight."""
        return Sealed(_rows(), _NOTHING, Declared(self.packing.count(sealed.values.size) * self.public.cipher_bytes))

    def open_jointly(self, share: Share, sealed: Sealed, theirs: Sealed, length: int) -> Integers:
        """D(c)."""
        return sealed.values

    def open_among(self, parties: int, sealed: Sealed, partials: Mapping[int, Sealed], length: int) -> Integers:
        """D(c)."""
        return sealed.values

    def demand(self, sealed: Sealed, length: int, partial: bool = False) -> None:
        """Raise ProtocolViolation unless it stands for `length` numbers under this key."""
        held = 0 if partial else length
        weight = self.packing.count(length) * self.public.cipher_bytes
        if len(sealed.ciphertexts) or sealed.values.size != held or sealed.rest.nbytes != weight - 8 * held:
            raise ProtocolViolation(f"sealed: expected {held} numbers that stand for {weight} bytes")

    def _of(self, values: Integers) -> Sealed:
        weight = self.packing.count(values.size) * self.public.cipher_bytes
        return Sealed(_rows(), values, Declared(weight - values.nbytes))


Box = Ciphertexts | StandIns


def open_rows(box: Box, private: PrivateKey, vectors: Sequence[Sealed], length: int) -> np.ndarray:
    """The numbers that they hold, (len(vectors), length) int64."""
    return np.stack([box.open(private, one, length) for one in vectors])


def total(box: Box, parts: Sequence[Sealed], factors: Sequence[int] | None = None) -> Sealed:
    """E(sum_i factor_i m_i) of one vector or more; factors: all 1."""
    scaled = parts if factors is None else [box.scale(one, k) for one, k in zip(parts, factors, strict=True)]
    found = scaled[0]
    for one in scaled[1:]:
        found = box.add(found, one)
    return found


def each(operation: Callable[..., One], *columns: Sequence[object]) -> list[One]:
    """operation(x, y, ..) of each row of the columns."""
    return [operation(*row) for row in zip(*columns, strict=True)]


class SealedArithmetic:
    """The tools of a node under one key: a box for vectors of d numbers, its streams, and what it all costs."""

    def __init__(self, node: Node, public: PublicKey, packing: Packing, d: int, real_up_to: int):
        self.node, self.d = node, d
        self.box = (Ciphertexts if d <= real_up_to else StandIns)(public, packing)
        self._seconds = seconds(public.bits)

    def cost(self, *, encrypt: int = 0, decrypt: int = 0, partial: int = 0, add: int = 0, scale: int = 0,
             numbers: bool = False) -> float | None:
        """Seconds of so many vectors of each kind, for `cost_s`; None: all is done for real. numbers: of so many single
        ciphertexts."""
        if self.box.real:
            return None
        each, count = self._seconds, 1 if numbers else self.box.packing.count(self.d)
        return count * (encrypt * each.encrypt + decrypt * each.decrypt + partial * each.partial + add * each.add
                        + scale * each.scale)

    def seconds_of(self, each: float) -> float | None:
        """Seconds of one vector, of a work that takes so many for a ciphertext, for `cost_s`; None as in `cost`."""
        return None if self.box.real else each * self.box.packing.count(self.d)

    def mask(self, bits: int, count: int) -> Integers:
        """(count,) numbers, uniform in [0, 2^bits): they hide numbers that are much smaller, statistically."""
        return self.node.stream("mask").integers(0, 1 << bits, count, dtype=np.int64)

    @property
    def rng(self) -> np.random.Generator:
        """The stream that encryption draws from."""
        return self.node.stream("encryption")

    async def seal(self, values: Integers) -> Sealed:
        """E(values), (d,), as a computation of the node."""
        sealed: Sealed = await self.node.compute("encrypt", self.box.seal, values, self.rng,
                                                 cost_s=self.cost(encrypt=1))
        return sealed

    def sound(self, *names: str, count: int | None = None, length: int | None = None, partial: bool = False) -> Demand:
        """For `accept`: each of these fields is a vector under this key, or a list of such ones. count: of how many;
        None: one or more.
        length: of a vector, if it is not d. partial: partial decryptions of it."""
        def accept(message: Any) -> None:
            for name in names:
                value = getattr(message, name)
                vectors = [value] if isinstance(value, Sealed) else value
                demand(bool(vectors) if count is None else isinstance(value, Sealed) or len(vectors) == count,
                       f"{name}: expected {'a vector' if count is None else f'{count} vectors'}")
                for sealed in vectors:
                    self.box.demand(sealed, self.d if length is None else length, partial)
        return accept


async def trained_from(node: Node, w: Integers, fraction_bits: int) -> Vector:
    """At a client: its update, (d,) float32, from the model 2^-fraction_bits w; both are evaluated side by side."""
    model: Vector = (w / 2.0**fraction_bits).astype(np.float32)
    delta, _ = await train_once(node, model)
    report_both(node, model, delta)
    return delta


def fixed(values: Vector | NDArray[np.floating], fraction_bits: int, value_bits: int) -> Integers:
    """rint(2^fraction_bits x) with |.| < 2^value_bits, (d,) int64; what lies outside is cut.

    Raises NotSendable for a NaN: training has diverged.
    """
    scaled = np.rint(np.asarray(values, np.float64) * 2.0**fraction_bits)
    if np.isnan(scaled).any():
        raise NotSendable("an update with NaN cannot be encrypted")
    top = 2.0**value_bits - 1
    return np.clip(scaled, -top, top).astype(np.int64)


MOST_BITS = 16384


def wrong_encryption(bits: int, real_up_to: int) -> list[str]:
    """Mistakes in these parameters of a scheme, for its `check`."""
    errors = checks.not_negative(real_up_to=real_up_to)
    if bits < LEAST_BITS or bits % 16:
        errors.append(f"bits = {bits}: expected a multiple of 16, at least {LEAST_BITS}")
    elif bits > MOST_BITS:
        errors.append(f"bits = {bits}: expected at most {MOST_BITS}: larger primes are searched for hours")
    return errors


def _wrapped(numbers: Sequence[int]) -> Integers:
    return np.array([int(number) & 0xFFFF_FFFF_FFFF_FFFF for number in numbers], np.uint64).view(np.int64)


def _rows() -> Any:
    return np.zeros((0, 0), np.uint8)
