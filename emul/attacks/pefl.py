"""PEFL broken: its cloud platform reads every client's update. Schneider, Suresh, Yalame, arXiv 2409.19964.

    full    has a_i g_i and g_i + p_i:  two coordinates give a_i = (A_j - A_l) / (B_j - B_l), hence g_i = A_i / a_i
    lean    has g_i + r of all i, r the same, and a_i g_i:  A_i / a_i - A_k / a_k = g_i - g_k in every coordinate, a
            system of d equations in 1 / a_i and 1 / a_k

Pure functions of what that server decrypts in a round, which `emul.schemes.pefl` sends it. Exact: the numbers are
integers. They are the known break of the scheme, and what a test holds it to.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


class NotBroken(ValueError):
    """What was seen determines no update, such as where all its coordinates are equal."""


def from_padded(scaled: Integers, padded: Integers) -> Integers:
    """g, (d,), from a g and g + p of one client, p the same in all coordinates. Raises NotBroken."""
    far = int(np.argmax(np.abs(padded - padded[0])))
    apart = int(padded[far]) - int(padded[0])
    if not apart:
        raise NotBroken("all coordinates are equal")
    return _divided(scaled, Fraction(int(scaled[far]) - int(scaled[0]), apart))


def from_blinded(scaled: Integers, blinded: Integers) -> list[Integers]:
    """Every g_i, (d,) each, from a_i g_i and g_i + r, both (m, d), m >= 2, r the same for all. Raises NotBroken.

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
        raise NotBroken("the updates are parallel")
    (x, y, e), (u, v, f) = ((int(a[place]), int(b[place]), int(apart[place])) for place in (j, other))
    determinant = Fraction(v * x - y * u)           # x s - y t = e and u s - v t = f
    s, t = (e * v - y * f) / determinant, (e * u - x * f) / determinant
    if not s or not t:
        raise NotBroken("the updates are parallel")
    return _divided(a, 1 / s), _divided(b, 1 / t)


def _divided(scaled: Integers, factor: Fraction) -> Integers:
    return np.array([round(Fraction(int(value)) / factor) for value in scaled], np.int64)
