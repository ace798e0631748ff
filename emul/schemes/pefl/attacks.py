"""PEFL broken: its cloud platform reads every client's update. Schneider, Suresh, Yalame, arXiv 2409.19964.

    full    has a_i g_i and g_i + p_i:  two coordinates give a_i = (A_j - A_l) / (B_j - B_l), hence g_i = A_i / a_i
    lean    has g_i + r of all i, r the same, and a_i g_i:  A_i / a_i - A_k / a_k = g_i - g_k in every coordinate, a
            system of d equations in 1 / a_i and 1 / a_k

Pure functions of what that server decrypts in a round, which `emul.schemes.pefl` sends it, and an attack on a run.
Exact: the numbers are integers. They are the known break of the scheme, and what a test holds it to.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from emul.primitives.he.paillier import PrivateKey
from emul.protocols.key_centre import number
from emul.protocols.sealed import Box, Ciphertexts, Sealed, StandIns, open_rows
from emul.roles.evidence import Evidence, Needs, NotKept, Rows

Integers = NDArray[np.int64]


class UpdateUndetermined(ValueError):
    """The values that were seen determine no update, as when all its coordinates are equal."""


def from_padded(scaled: Integers, padded: Integers) -> Integers:
    """g, (d,), from a g and g + p of one client, p the same in all coordinates. Raises UpdateUndetermined."""
    far = int(np.argmax(np.abs(padded - padded[0])))
    apart = int(padded[far]) - int(padded[0])
    if not apart:
        raise UpdateUndetermined("all coordinates are equal")
    return _divided(scaled, Fraction(int(scaled[far]) - int(scaled[0]), apart))


def from_blinded(scaled: Integers, blinded: Integers) -> list[Integers]:
    """Every g_i, (d,) each, from a_i g_i and g_i + r, both (m, d), m >= 2, r the same for all.
    Raises UpdateUndetermined.

    Of each pair with client 0: s A_i - t A_0 = B_i - B_0 with s = 1 / a_i and t = 1 / a_0, which two coordinates
    determine if A_i and A_0 are not parallel in them; g is then A / a.
    """
    found = [_from_pair(scaled[i], scaled[0], blinded[i] - blinded[0]) for i in range(1, len(scaled))]
    return [found[0][1], *(one for one, _ in found)]


def _from_pair(a: Integers, b: Integers, apart: Integers) -> tuple[Integers, Integers]:
    """(g_i, g_k) from a_i g_i, a_k g_k and g_i - g_k."""
    j = int(np.argmax(np.abs(a)))
    crossed = [int(a[j]) * int(y) - int(x) * int(b[j]) for x, y in zip(a, b, strict=True)]
    other = max(range(len(crossed)), key=lambda place: abs(crossed[place]))
    if not crossed[other]:
        raise UpdateUndetermined("the updates are parallel")
    (x, y, e), (u, v, f) = ((int(a[place]), int(b[place]), int(apart[place])) for place in (j, other))
    determinant = Fraction(v * x - y * u)           # x s - y t = e and u s - v t = f
    s, t = (e * v - y * f) / determinant, (e * u - x * f) / determinant
    if not s or not t:
        raise UpdateUndetermined("the updates are parallel")
    return _divided(a, 1 / s), _divided(b, 1 / t)


def _divided(scaled: Integers, factor: Fraction) -> Integers:
    return np.array([round(Fraction(int(value)) / factor) for value in scaled], np.int64)


# --- on a run -------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Pefl:
    """Every update of a round of PEFL, exactly, by its cloud platform alone. Schneider, Suresh, Yalame, arXiv
    2409.19964, 2024.

    The attacker holds what that server does: its key, and what the other server sends it. It needs
    `record: {payloads: [Keys, Upload, Scaled, Padded]}`, of `variant: lean` `[Keys, Upload, Scaled, Blinded]`; `Upload`
    is for the truth, which the same key opens.
    """

    NEEDS: ClassVar[Needs] = Needs(payloads=("Keys", "Upload", "Scaled"), schemes=("pefl",))

    def __call__(self, evidence: Evidence) -> Rows:
        """Columns: exact, whether what was found is the update of a client, to the bit; node: whose."""
        cloud = evidence.names[evidence.roles["cloud"][0]]
        keys = evidence.messages("Keys", to=cloud)
        if not keys:
            raise NotKept(f"{evidence.run.path}: no keys have come to {cloud}")
        private = PrivateKey(number(keys[0].message.parts[0]), number(keys[0].message.parts[1]))
        real = evidence.task.dimension <= evidence.params.real_up_to    # else integers stand for ciphertexts
        box = (Ciphertexts if real else StandIns)(private.public, evidence.params.packing)
        opened = _Opened(private, box, evidence.task.dimension)
        rows: Rows = []
        for scaled in evidence.messages("Scaled", to=cloud):
            truth = {opened.of([one.message.update])[0].tobytes(): one.source_name
                     for one in evidence.messages("Upload", round_=scaled.round)}
            for update in _updates(evidence, opened, scaled, cloud):
                rows.append({"node": truth.get(update.tobytes()), "round": scaled.round,
                             "exact": update.tobytes() in truth})
        return rows


@dataclass(frozen=True)
class _Opened:
    """The vectors that the cloud platform decrypts."""

    private: PrivateKey
    box: Box
    d: int

    def of(self, vectors: list[Sealed]) -> Integers:
        """(m, d)."""
        return open_rows(self.box, self.private, vectors, self.d)


def _updates(evidence: Evidence, opened: _Opened, scaled: Any, cloud: str) -> list[Integers]:
    """Every g_i of a round; none where nothing is determined, or what is needed has not come."""
    kind = "Padded" if evidence.params.variant == "full" else "Blinded"
    others = evidence.messages(kind, round_=scaled.round, to=cloud)
    if not others:
        return []
    a, b = opened.of(scaled.message.updates), opened.of(others[0].message.updates)
    try:
        if kind == "Padded":
            return [from_padded(*pair) for pair in zip(a, b, strict=True)]
        return from_blinded(a, b)
    except UpdateUndetermined:
        return []


ATTACKS = {"privacy": {"pefl": Pefl}}
