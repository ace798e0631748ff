"""One-time pads in Z_2^64: RFCA's weighted sum without showing updates to an honest-but-curious server. An extension.

The dealer shares a seed with each client in each round. Payload x_i (m l,): g_i / |g_i| in the slot of its cluster, 0
elsewhere, in fixed point with f = 24 bits.

    upload              Y_i = X_i + PRG(seed_i)                             mod 2^64
    server -> dealer    p_i = <Y_i, fix(h)>, and a sketch S Y_i by 64 rows of random signs
    dealer -> server    w_i = max(0, p_i - <r_i, fix(h)>), sum_i w_i r_i    r_i = PRG(seed_i)
    server              (sum w_i Y_i - sum w_i r_i) / 2^2f / sum w_i

The server learns the weights and the aggregate, the dealer the cosines and 64 random projections of each payload; no
update and no cluster. Not as in EBS-CFL: the norm is estimated by the sketch (within about 18 %), not checked exactly,
and a server that falsifies p_i is believed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from emul.base.streams import generator
from emul.primitives.crypto.prg import prg
from emul.schemes.ebs_cfl.masking.blocks import Array

Ring = NDArray[np.uint64]

BITS = 24                               # f, of the fraction
SKETCH = 64                             # rows of signs
MOST = 1 + 6 * float(np.sqrt(2 / SKETCH))       # of an estimated squared norm of 1: six standard deviations above

_CHUNK = 1 << 16                        # columns: below 2^21, so that sums of 32-bit halves are exact in float64


def fixed(x: Array) -> Ring:
    """x 2^f, rounded, mod 2^64."""
    return np.rint(x * (1 << BITS)).astype(np.int64).view(np.uint64)


def pad(seed: bytes, size: int) -> Ring:
    """r, (size,) uniform in Z_2^64. seed: 32 bytes, of one client and round alone."""
    return prg(seed, 2 * size).view(np.uint64)


def payload(unit: Array, cluster: int, clusters: int) -> Array:
    """x, (m l,): `unit` (l,) in the slot of the cluster."""
    x = np.zeros((clusters, len(unit)))
    x[cluster] = unit
    return x.reshape(-1)


def product(y: Ring, h: Ring) -> int:
    """<y, h> mod 2^64."""
    return int(np.multiply(y, h).sum(dtype=np.uint64))


def signed(number: int) -> int:
    """The representative of a number mod 2^64 in [-2^63, 2^63)."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def weighted_sum(vectors: Sequence[Ring], weights: NDArray[np.int64]) -> Ring:
    """sum w_i v_i mod 2^64, (m l,)."""
    total = np.zeros_like(vectors[0])
    for v, w in zip(vectors, weights.astype(np.uint64), strict=True):
        total += v * w
    return total


def sketches(vectors: Sequence[Ring], seed: int, round_: int) -> list[Ring]:
    """S y mod 2^64, (64,) of each: S random signs that server and dealer know, drawn anew in each round."""
    rng = generator(seed, "ebs_cfl", "signs", round_)
    total = np.zeros((SKETCH, len(vectors)), np.uint64)
    for at in range(0, len(vectors[0]) if vectors else 0, _CHUNK):
        parts = np.stack([y[at:at + _CHUNK] for y in vectors], axis=1)
        bits = np.unpackbits(np.frombuffer(rng.bytes(SKETCH * _CHUNK // 8), np.uint8)).reshape(SKETCH, _CHUNK)
        signs = bits[:, :len(parts)].astype(np.float64) * 2 - 1
        low = signs @ (parts & np.uint64(0xFFFFFFFF)).astype(np.float64)
        high = signs @ (parts >> np.uint64(32)).astype(np.float64)
        total += low.astype(np.int64).view(np.uint64) + (high.astype(np.int64).view(np.uint64) << np.uint64(32))
    return list(np.ascontiguousarray(total.T))


def squared_norm(difference: Ring) -> float:
    """|x|^2 as the sketch S x = S Y - S r says."""
    return float(np.square(difference.view(np.int64) / (1 << BITS)).mean())


def weights(products: Mapping[int, int], sketched: Mapping[int, Ring], pads: Mapping[int, Ring], h: Ring,
            seed: int, round_: int) -> tuple[dict[int, int], list[int]]:
    """At the dealer: ({client: w_i 2^f}, whom it rejects for its norm). A weight is 1 at most."""
    clients = sorted(products)
    of_pads = dict(zip(clients, sketches([pads[i] for i in clients], seed, round_), strict=True))
    rejected = [i for i in clients if squared_norm(sketched[i] - of_pads[i]) > MOST]
    cosines = {i: signed(products[i] - product(pads[i], h)) >> BITS for i in clients if i not in rejected}
    return {i: min(max(cosine, 0), 1 << BITS) for i, cosine in cosines.items()}, rejected


def decoded(total: Ring, pads: Ring, clusters: int) -> Array:
    """sum w_i x_i, (m, l)."""
    return ((total - pads).view(np.int64) / float(1 << 2 * BITS)).reshape(clusters, -1)
