"""Private set intersection: what comes out, and that points tell nothing of their ids."""

from __future__ import annotations

import numpy as np

from emul.primitives.crypto.intersection import blinded, raised

P = 2**255 - 19


def on_curve(point: bytes) -> bool:
    """Whether x belongs to a point of Curve25519, and not of its twist (Euler's criterion)."""
    x = (int.from_bytes(point, "little") & (2**255 - 1)) % P
    return pow((x**3 + 486662 * x**2 + x) % P, (P - 1) // 2, P) == 1


def test_both_find_the_ids_that_both_have() -> None:
    draw = np.random.default_rng(1)
    a, b = draw.bytes(32), draw.bytes(32)
    mine, theirs = range(40), range(30, 70)
    twice = set(raised(blinded(theirs, b), a))
    common = [k for k, point in zip(mine, raised(blinded(mine, a), b), strict=True) if point in twice]
    assert common == list(range(30, 40))


def test_all_points_lie_on_the_curve_since_one_of_the_twist_stays_there_under_every_secret() -> None:
    secret = np.random.default_rng(2).bytes(32)
    assert all(map(on_curve, blinded(range(60), secret)))
