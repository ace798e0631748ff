"""Private set intersection by Diffie-Hellman: two parties find the ids that both hold, and no others of each other.

    A, with secret a    sends   {H(x)^a : x in X}, shuffled
    B, with secret b    sends   those to the power of b, in the same order, and {H(y)^b : y in Y}, shuffled
    A                   raises the latter to the power of a; x is in Y where (H(x)^a)^b = (H(y)^b)^a

Meadows, S&P 1986; Huberman, Franklin and Hogg, EC 1999. The group is Curve25519 by its x-coordinates: H is SHA-256
without the highest bit, of the id and the first counter that gives a point of the curve. A point of its twist would
stay there whatever the secret is, which tells a bit of each id. Honest but curious parties learn the intersection and
each other's number of ids, under the decisional Diffie-Hellman assumption with H a random oracle. A party that invents
ids learns whether they are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import count

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

BYTES = 32                              # of a point
_P = 2**255 - 19                        # Curve25519 is over the integers modulo p


def blinded(ids: Iterable[int], secret: bytes) -> list[bytes]:
    """H(x)^secret of each id, in their order. secret: 32 bytes."""
    return raised([_point(id_) for id_ in ids], secret)


def raised(points: Sequence[bytes], secret: bytes) -> list[bytes]:
    """Each to the power of the secret, in their order. Raises ValueError for a point of low order.

    >>> a, b = bytes(31) + b"a", bytes(31) + b"b"
    >>> raised(blinded([7, 8], a), b) == raised(blinded([7, 8], b), a)
    True
    """
    key = X25519PrivateKey.from_private_bytes(secret)
    return [key.exchange(X25519PublicKey.from_public_bytes(point)) for point in points]


def _point(id_: int) -> bytes:
    """x of a point of the curve y^2 = x^3 + 486662 x^2 + x, 32 bytes, the least significant first."""
    for counter in count():
        digest = bytearray(hashlib.sha256(b"emul.intersection %d %d" % (id_, counter)).digest())
        digest[-1] &= 0x7F
        x = int.from_bytes(digest, "little")
        if pow(x * (x * (x + 486662) + 1) % _P, (_P - 1) // 2, _P) == 1:        # a square: y exists
            return bytes(digest)
    raise AssertionError
