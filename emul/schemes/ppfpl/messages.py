"""Messages of PPFPL, and what their receivers demand of them.

     1  GlobalPrototypes  A -> clients    Enc_x(C), and where each class lies
     2  LocalPrototypes   client -> A     the classes held, Enc_v(x)
     3  NormCheck         A -> V          Enc_v(x o x) with the sums of the blocks left open
     4  Accepted          V -> A          whose prototypes have length 1
     5  ClassNorm         A -> V          Enc_v(T o T) likewise
     6  ClassNorms        V -> A          |T_k|^2
     7  MaskedProducts    A -> V          Enc_v(x o T) with masked sums, Enc_v(x + R)
     8  PackedProducts    V -> A          all s + rho in one vector, under v; with max_iter under c
    9a  Signs             A -> V          Enc_v(p (s - chi |T|))
    9b  Refresh, Refreshed, Excess        masked iterates and back; Enc_c(p (h - chi')) with p chi'
    10  Weights           V -> A          bits, sums by class, Enc_x of the weights, Enc_x(x + R)

Before the first round KeyRequest (A -> KGC) and Keys (KGC -> all); NoKeys from who has missed them. Ciphertexts are
padded to fixed lengths (`emul.primitives.he.ckks.Parameters`); what `he: plain` does not carry of them is declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Parameters
from emul.protocols.demands import Demand, ascending, demand, shaped
from emul.roles import Declared, Holds, Message, OctetRows, Octets, Words
from emul.schemes.ppfpl.ciphertexts import Cohort, Rows
from emul.schemes.ppfpl.slots import Layout

Doubles = Annotated[np.ndarray, Holds("float64", 1)]


@dataclass(frozen=True)
class SealedRows:
    """Ciphertexts of one padded length."""

    rows: Annotated[np.ndarray, Holds(None, 2)]     # (count, bytes) uint8; plain: (count, slots) float64
    rest: Declared                                  # the bytes by which plain rows are shorter

    @classmethod
    def of(cls, rows: Rows, rescales: int, parameters: Parameters = PROTOTYPES) -> SealedRows:
        """The message with the rows that `Box.seal` gave."""
        return cls(rows, Declared(parameters.rest(rows, rescales)))


# --- keys -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class KeyRequest(Message):
    """Aggregator to key centre: these nodes need their keys."""

    nodes: Words


# unscoped: keys are large, and as good a round later
@dataclass(frozen=True)
class Keys(Message, unscoped=True):
    """Key centre to one party: its part of each pair; empty where it has none."""

    v: Octets
    x: Octets
    c: Octets
    rest: Declared                      # of plain runs: all of it


@dataclass(frozen=True)
class NoKeys(Message, unscoped=True):
    """To the aggregator: my keys have not come."""


# --- prototypes -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class GlobalPrototypes(Message):
    """Aggregator to clients."""

    sealed: SealedRows                  # under x, 2 rescales; several where a class has kept an older prototype
    where: Words                        # (J,): 1 + the ciphertext in which C_k lies; 0: there is none yet
    dealt: Words                        # nodes that the key centre was asked to send keys in this round


@dataclass(frozen=True)
class LocalPrototypes(Message):
    """Client to aggregator."""

    classes: Words                      # ascending
    sealed: SealedRows                  # under v, fresh


# --- between the servers --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class NormCheck(Message):
    """Aggregator to verifier."""

    clients: Words                      # (K',), ascending
    held: OctetRows                     # (K', J): 1 where a client holds a class
    squares: SealedRows                 # under v, 1 rescale
    dealt: bool                         # the key centre was asked to send V its keys in this round


@dataclass(frozen=True)
class Accepted(Message):
    """Verifier to aggregator."""

    accepted: Octets                    # (K',)


@dataclass(frozen=True)
class ClassNorm(Message):
    """Aggregator to verifier: of the accepted clients."""

    squares: SealedRows                 # under v, 1 rescale


@dataclass(frozen=True)
class ClassNorms(Message):
    """Verifier to aggregator."""

    squares: Doubles                    # (J,) |T_k|^2, rounded to 1e-6


@dataclass(frozen=True)
class MaskedProducts(Message):
    """Aggregator to verifier."""

    products: SealedRows                # under v, 1 rescale
    prototypes: SealedRows              # under v, fresh


@dataclass(frozen=True)
class PackedProducts(Message):
    """Verifier to aggregator."""

    values: SealedRows                  # under v, or c; fresh


@dataclass(frozen=True)
class Signs(Message):
    """Aggregator to verifier."""

    values: SealedRows                  # under v, 1 rescale


@dataclass(frozen=True)
class Refresh(Message):
    """Aggregator to verifier: a and u behind masks."""

    a: SealedRows                       # under c
    u: SealedRows


@dataclass(frozen=True)
class Refreshed(Message):
    """Verifier to aggregator."""

    a: SealedRows                       # under c, fresh
    u: SealedRows


@dataclass(frozen=True)
class Excess(Message):
    """Aggregator to verifier."""

    values: SealedRows                  # under c
    reference: Doubles                  # (J,) p_k chi'


@dataclass(frozen=True)
class Weights(Message):
    """Verifier to aggregator."""

    bits: Octets                        # (pairs,)
    sums: Doubles                       # (J,)
    values: SealedRows                  # under x, fresh
    prototypes: SealedRows              # under x, fresh


MESSAGES = (KeyRequest, Keys, NoKeys, GlobalPrototypes, LocalPrototypes, NormCheck, Accepted, ClassNorm, ClassNorms,
            MaskedProducts, PackedProducts, Signs, Refresh, Refreshed, Excess, Weights)


# --- what a receiver demands ------------------------------------------------------------------------------------------

class CiphertextSizes:
    """The sizes that ciphertexts must have: of one set-up of the protocol.

    real: they are ciphertexts, and no plain numbers.
    """

    def __init__(self, layout: Layout, real: bool):
        self.layout, self.real = layout, real

    def holds(self, name: str, sealed: SealedRows, count: int, rescales: int,
              parameters: Parameters = PROTOTYPES) -> None:
        """Raise ProtocolViolation unless these are `count` ciphertexts after so many rescales."""
        entries, dtype = parameters.entries(rescales, self.real)
        rows = sealed.rows
        demand(len(rows) == count, f"{name}: wrong number of ciphertexts")
        demand(rows.dtype == dtype and rows.shape[1] == entries and
               sealed.rest.nbytes == parameters.rest(rows, rescales), f"{name}: not of the length agreed")

    def prototypes(self, message: GlobalPrototypes) -> None:
        """Every class in one of the ciphertexts."""
        shaped(where=(self.layout.classes,))(message)
        count = int(message.where.max(initial=0))
        demand(count <= len(message.sealed.rows) <= self.layout.classes, "where: not among the ciphertexts")
        self.holds("sealed", message.sealed, len(message.sealed.rows), 2)

    def upload(self, message: LocalPrototypes) -> None:
        """Classes that there are, and their ciphertexts."""
        ascending("classes", message.classes, range(self.layout.classes))
        demand(len(message.classes) > 0, "classes: none")
        self.holds("sealed", message.sealed, len(self.layout.rows_of(message.classes.tolist())), 0)

    def norm_check(self, clients: Sequence[int]) -> Demand:
        """Of some of these clients."""
        def accept(message: NormCheck) -> None:
            ascending("clients", message.clients, clients)
            shaped(held=(len(message.clients), self.layout.classes))(message)
            demand(bool((message.held <= 1).all() and message.held.any(1).all()), "held: no classes")
            self.holds("squares", message.squares, len(cohort_of(message, self.layout).sent()), 1)
        return accept

    def class_norm(self, cohort: Cohort) -> Demand:
        """One ciphertext a row."""
        return lambda message: self.holds("squares", message.squares, len(cohort.rows()), 1)

    def products(self, cohort: Cohort) -> Demand:
        """Two ciphertexts for each that a client has sent."""
        def accept(message: MaskedProducts) -> None:
            self.holds("products", message.products, len(cohort.sent()), 1)
            self.holds("prototypes", message.prototypes, len(cohort.sent()), 0)
        return accept

    def packed(self, pairs: int, parameters: Parameters) -> Demand:
        """As many ciphertexts as hold all pairs."""
        return lambda message: self.holds("values", message.values, in_slots(pairs, parameters), 0, parameters)

    def compared(self, pairs: int) -> Demand:
        """Of `Signs`, `Refresh` and `Excess`."""
        def accept(message: Signs | Refresh | Excess) -> None:
            if isinstance(message, Signs):
                self.holds("values", message.values, in_slots(pairs, PROTOTYPES), 1)
                return
            count = in_slots(pairs, COMPARISON)
            parts = {"a": message.a, "u": message.u} if isinstance(message, Refresh) else {"values": message.values}
            for name, sealed in parts.items():
                rescales = self._rescales(sealed)
                self.holds(name, sealed, count, rescales, COMPARISON)
            if isinstance(message, Excess):
                shaped(reference=(self.layout.classes,))(message)
        return accept

    def refreshed(self, pairs: int) -> Demand:
        """Both fresh."""
        def accept(message: Refreshed) -> None:
            for name, sealed in (("a", message.a), ("u", message.u)):
                self.holds(name, sealed, in_slots(pairs, COMPARISON), 0, COMPARISON)
        return accept

    def weights(self, cohort: Cohort, pairs: int) -> Demand:
        """A bit a pair, a sum a class, two ciphertexts for each that a client has sent."""
        def accept(message: Weights) -> None:
            shaped(bits=(pairs,), sums=(self.layout.classes,))(message)
            demand(bool((message.bits <= 1).all()), "bits: neither 0 nor 1")
            self.holds("values", message.values, len(cohort.sent()), 0)
            self.holds("prototypes", message.prototypes, len(cohort.sent()), 0)
        return accept

    def _rescales(self, sealed: SealedRows) -> int:
        """The number of rescalings, of those under c, that fits the lengths of these; 0 if none does."""
        each = (sealed.rows.nbytes + sealed.rest.nbytes) // max(1, len(sealed.rows))
        return COMPARISON.cipher_bytes.index(each) if each in COMPARISON.cipher_bytes else 0


def in_slots(values: int, parameters: Parameters) -> int:
    """The number of ciphertexts that hold so many numbers; one at least."""
    return max(1, -(-values // parameters.slots))


def held_by(classes: Mapping[int, Sequence[int]], J: int) -> np.ndarray:
    """(K', J) uint8: 1 where a client, in ascending order, holds a class."""
    found = np.zeros((len(classes), J), np.uint8)
    for row, (_, own) in zip(found, sorted(classes.items()), strict=True):
        row[list(own)] = 1
    return found


def cohort_of(message: NormCheck, layout: Layout) -> Cohort:
    """The clients that take part, and the classes that each holds."""
    return Cohort(layout, {m: tuple(np.flatnonzero(row).tolist())
                           for m, row in zip(message.clients.tolist(), message.held, strict=True)})
