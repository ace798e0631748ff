"""Class prototypes as integers, their canonical bytes, and an exact filter and mean of them: what FedRFQ agrees on.

Float32 means differ in their bytes with the order of summation; integers do not. x -> round(x 2^20), |x| <= 64:

    body        classes ascending, each <u32 class><u32 n><int32 * n>, little-endian; `counted`: <u32 samples> after it
    F(P, psi)   G0^j = mean of P_k^j over the holders of j;  D_k = sum_j |P_k^j - G0^j|^2, divided by |J_k| or not;
                without the psi clients of the largest D_k (ties: the smaller number goes first) G^j = mean of the rest

Every mean is (2 sum + m) // (2 m): rounded to the nearest integer, the same on every machine. Yan et al.,
arXiv 2401.07558 (FedRFQ), section on the consensus, made exact.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from emul.base.errors import ProtocolViolation

UNIT = 1 << 20
LIMIT = 64                              # of an entry's magnitude
_COUNT_LIMIT = 1 << 24                  # samples of a class that a client may claim

_HEAD = struct.Struct("<II")
_COUNT = struct.Struct("<I")

Aggregate = Literal["mean", "weighted", "printed"]


class InvalidUpload(ProtocolViolation):
    """A body is no canonical set of prototypes; the text says why. All who read the same bytes come to the same
    result."""


@dataclass(frozen=True)
class Upload:
    """Prototypes of one client, class -> (n,) int32 in units of 2^-20, and of how many samples it says they are."""

    prototypes: Mapping[int, np.ndarray]
    counts: Mapping[int, int]           # {}: not told


@dataclass(frozen=True)
class Filtered:
    """F of some uploads."""

    prototypes: dict[int, np.ndarray]   # class -> (n,) int32; classes that nobody left holds are absent
    excluded: tuple[int, ...]           # clients, ascending


def quantise(prototypes: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """class -> (n,) int32 of class -> (n,) float. Raises InvalidUpload for what is not finite or beyond 64."""
    found = {}
    for label, vector in sorted(prototypes.items()):
        wide = np.asarray(vector, np.float64)
        if not np.isfinite(wide).all():
            raise InvalidUpload(f"class {label}: a value that is no finite number")
        if wide.size and float(np.abs(wide).max()) > LIMIT:
            raise InvalidUpload(f"class {label}: {float(np.abs(wide).max()):.4g} is beyond {LIMIT}")
        found[int(label)] = np.rint(wide * UNIT).astype(np.int32)
    return found


def to_float(prototypes: Mapping[int, np.ndarray]) -> dict[int, np.ndarray]:
    """class -> (n,) float32; its entries are off by 2^-21 at most, and by the rounding of float32."""
    return {label: (vector / UNIT).astype(np.float32) for label, vector in sorted(prototypes.items())}


def to_bytes(prototypes: Mapping[int, np.ndarray], counts: Mapping[int, int] | None = None) -> bytes:
    """The canonical body. counts: class -> samples, for a body that tells them."""
    parts = []
    for label, vector in sorted(prototypes.items()):
        parts += [_HEAD.pack(label, len(vector)), np.ascontiguousarray(vector, "<i4").tobytes()]
        if counts is not None:
            parts.append(_COUNT.pack(counts[label]))
    return b"".join(parts)


def from_bytes(body: bytes, length: int, classes: int, counted: bool = False) -> Upload:
    """The upload in a body: vectors of `length` entries, classes below `classes`. Raises InvalidUpload.

    Accepted bytes are canonical: to_bytes of it is the body.
    """
    each = _HEAD.size + 4 * length + (_COUNT.size if counted else 0)
    if len(body) % each:
        raise InvalidUpload(f"{len(body)} bytes: expected a multiple of {each}")
    prototypes: dict[int, np.ndarray] = {}
    counts: dict[int, int] = {}
    last = -1
    for start in range(0, len(body), each):
        label, found = _HEAD.unpack_from(body, start)
        if found != length:
            raise InvalidUpload(f"class {label}: length {found}, expected {length}")
        if not last < label < classes:
            raise InvalidUpload(f"class {label} after {last}: expected classes below {classes}, ascending")
        last = label
        vector = np.frombuffer(body, "<i4", length, start + _HEAD.size)
        if length and (int(vector.max()) > LIMIT * UNIT or int(vector.min()) < -LIMIT * UNIT):
            raise InvalidUpload(f"class {label}: a value beyond {LIMIT}")
        prototypes[label] = vector
        if counted:
            counts[label], = _COUNT.unpack_from(body, start + each - _COUNT.size)
            if not 1 <= counts[label] < _COUNT_LIMIT:
                raise InvalidUpload(f"class {label}: {counts[label]} samples")
    return Upload(prototypes, counts)


def filtered_mean(inputs: Mapping[int, Upload], psi: int = 0, aggregate: Aggregate = "mean") -> Filtered:
    """F(inputs, psi) for {client: upload}; the order of the clients does not matter. psi >= len(inputs) > 0: nothing is
    left to average, and no class comes out.

    aggregate: "weighted" by the samples told; "printed" as the paper has it, sum_k n_k P_k / sum_k n_k / |S_j|, which
    shrinks every prototype by the number of its holders.
    """
    clients = sorted(inputs)
    excluded: list[int] = []
    if psi:
        centre = _means(inputs, clients, "mean")
        far = {k: _distance(inputs[k], centre) for k in clients}
        excluded = sorted(clients, key=lambda k: (-far[k], k))[:psi]
    left = [k for k in clients if k not in excluded]
    return Filtered(_means(inputs, left, aggregate), tuple(sorted(excluded)))


def _means(inputs: Mapping[int, Upload], clients: list[int], aggregate: Aggregate) -> dict[int, np.ndarray]:
    held: dict[int, list[int]] = {}
    for k in clients:
        for label in inputs[k].prototypes:
            held.setdefault(label, []).append(k)
    found = {}
    for label, holders in sorted(held.items()):
        weights = [1 if aggregate == "mean" else inputs[k].counts[label] for k in holders]
        total = sum(np.multiply(inputs[k].prototypes[label], w, dtype=np.int64)     # < 2^26 2^24 each: 2^13 holders fit
                    for k, w in zip(holders, weights, strict=True))
        m = sum(weights) * (len(holders) if aggregate == "printed" else 1)
        found[label] = ((2 * total + m) // (2 * m)).astype(np.int32)
    return found


def _distance(upload: Upload, centre: Mapping[int, np.ndarray]) -> Fraction:
    """Of a client's prototypes from the means of all, in the mean of its classes."""
    total = 0
    for label, vector in upload.prototypes.items():
        d = vector.astype(np.int64) - centre[label]
        total += sum((d * d).tolist())              # each < 2^54; their sum is not bounded by 64 bits
    return Fraction(total, max(1, len(upload.prototypes)))
