"""The equations of Fair-SecCoGC: an update is masked, updates are combined, complete sums are decoded.

    Y_k = Delta_k + N_k          S_k = sum_{m in U_k} g_km Y_m          1/K sum_m Delta_m = 1/K sum_{k in F} b_k S_k
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from emul.base.errors import NotDecodable
from emul.primitives.means import clipped, weighted_sum
from emul.roles import Vector
from emul.schemes.fair_seccogc import gradient_coding
from emul.schemes.fair_seccogc.messages import PartialSum


def masked_update(delta: Vector, clip: float | None, key: Callable[[int], np.ndarray] | None) -> Vector:
    """Y_k = Delta_k + N_k, (d,) float32, rounded once; Delta_k is scaled down to the norm `clip` first."""
    delta = clipped(delta, clip)
    return delta if key is None else (delta + key(delta.size)).astype(np.float32)


def combine(g: Mapping[int, float], ys: Mapping[int, Vector]) -> Vector:
    """S_k = sum_m g_km Y_m, (d,) float32, summed in the order of the clients in float64."""
    return weighted_sum(ys, g).astype(np.float32)


def heard_by(G: np.ndarray, k: int, message: PartialSum) -> np.ndarray:
    """Row k of G with zeros for those whom relay k has not heard; all zeros for a bitmap of another length."""
    row, U = np.zeros(len(G)), np.flatnonzero(G[k])
    if message.heard.size == math.ceil(U.size / 8):
        heard = U[np.unpackbits(message.heard, count=U.size).astype(bool)]
        row[heard] = G[k, heard]
    return row


class Decoded(NamedTuple):
    mean: Vector                    # (d,) float32
    amplification: float            # amp(F), independent of the messages
    predicted_error: float          # root mean square per coordinate, from the sizes of the sums


def decode(K: int, rows: Mapping[int, np.ndarray], sums: Mapping[int, Vector], least: int | None,
           max_error: float | None) -> Decoded:
    """1/K sum_{k in F} b_k S_k from {relay k in 0..K-1: its row, (K,)} and {k: S_k}.

    least: K - s, of rows that are complete; None: incomplete ones are there too, and any that determine the sum of all
    updates will do. Raises NotDecodable if they do not, or only with an error above `max_error`.
    """
    F = [k for k in sorted(rows) if rows[k].any()]
    R = np.array([rows[k] for k in F]).reshape(-1, K)                                               # (|F|, K)
    if least is None:
        b = gradient_coding.decode_rowspace(R)
        if b is None:
            raise NotDecodable(f"{len(F)} sums of {K} arrived, but do not give the mean")
    else:
        if len(F) < least:
            raise NotDecodable(f"{len(F)} complete sums arrived, K - s = {least} of {K} are needed")
        b = gradient_coding.decode_complete(R)
        if b is None:
            raise NotDecodable(f"{len(F)} complete sums of {K} arrived, but do not give the mean to 1e-6")
    sizes = np.array([np.linalg.norm(sums[k].astype(np.float64)) for k in F]) / math.sqrt(sums[F[0]].size)
    error = gradient_coding.predicted_error(R, b, sizes)
    if max_error is not None and not error <= max_error:            # also one that is no number
        raise NotDecodable(f"the predicted error {error:.2g} is above max_error = {max_error:g}")
    total = weighted_sum({k: sums[k] for k in F}, dict(zip(F, b, strict=True)))
    return Decoded((total / K).astype(np.float32), gradient_coding.amplification(R, list(range(len(F))), b), error)
