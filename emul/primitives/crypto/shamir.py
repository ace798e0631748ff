"""Shamir secret sharing over GF(2^16) for 32-byte secrets. Shamir, CACM 1979.

A secret is 16 field elements (little-endian u16), each shared by a polynomial of its own; holder j has the values
at x = j + 1, so a share has exactly 32 bytes and there are at most 65535 holders. The field is GF(2)[x] modulo
x^16 + x^12 + x^3 + x + 1 (0x1100B), with generator x.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from emul.base.errors import ProtocolViolation, TooFewClients

SHARE_BYTES = 32
MAX_HOLDERS = 65535

_POLYNOMIAL = 0x1100B
_ORDER = 65535                     # of the multiplicative group
_BLOCK_ELEMENTS = 1 << 18          # of one product: bounds the memory for indices, 2 MB

Elements = NDArray[np.uint16]


def _tables() -> tuple[NDArray[np.int64], Elements]:
    """log and exp. log 0 points beyond all sums of two logarithms, where exp is 0: a product needs no test for 0."""
    powers = np.zeros(_ORDER, dtype=np.uint16)
    value = 1
    for i in range(_ORDER):
        powers[i] = value
        value <<= 1
        if value >> 16:
            value ^= _POLYNOMIAL
    log = np.empty(_ORDER + 1, dtype=np.int64)      # int64: the index type of `take`, so that no cast is made
    log[powers] = np.arange(_ORDER)
    log[0] = 2 * _ORDER
    exp = np.zeros(4 * _ORDER + 1, dtype=np.uint16)
    exp[:2 * _ORDER] = np.tile(powers, 2)
    return log, exp


_LOG, _EXP = _tables()


def multiply(a: Elements, b: Elements) -> Elements:
    """a * b in GF(2^16), element by element with broadcasting. a, b: uint16.

    >>> int(multiply(np.uint16(0x8000), np.uint16(2)))          # x^15 * x = x^12 + x^3 + x + 1
    4107
    """
    return _EXP[_LOG[a] + _LOG[b]]


def share(secrets: Sequence[bytes], threshold: int, holders: Iterable[int], rng: Generator) -> dict[int, bytes]:
    """Shares of m secrets: any `threshold` holders determine them, fewer learn nothing.

    secrets: m times 32 bytes. holders: distinct ids in 0..65534. rng draws the coefficients.
    Returns {holder: 32 m bytes}: its share of secret 0, then of secret 1, ..., in the order of `holders`.
    Raises ValueError if the threshold exceeds the holders, or an id, a secret or the threshold is out of range.
    """
    ids = _holder_ids(holders)
    _expect_threshold(threshold)
    if threshold > len(ids):
        raise ValueError(f"threshold t = {threshold} exceeds n = {len(ids)}")
    for index, secret in enumerate(secrets):
        if len(secret) != SHARE_BYTES:
            raise ValueError(f"secret {index} has {len(secret)} bytes, expected {SHARE_BYTES}")
    constant = np.frombuffer(b"".join(secrets), dtype="<u2")                              # (16 m,)
    higher = rng.integers(0, 1 << 16, size=(threshold - 1, constant.size), dtype=np.uint16)
    values = _evaluate(np.vstack([constant[None], higher]), _points(ids))                 # (n, 16 m)
    return {j: row.tobytes() for j, row in zip(ids, values.astype("<u2"), strict=True)}


def combine(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secrets of one `share` call, 32 m bytes, from {holder: share} with at least `threshold` holders.

    Uses the `threshold` lowest ids. Raises TooFewClients below the threshold, ProtocolViolation if the shares are not
    of one length that is a multiple of 32.
    """
    _expect_threshold(threshold)
    if len(shares) < threshold:
        raise TooFewClients(f"too few shares: need {threshold}, have {len(shares)}")
    used = tuple(sorted(shares)[:threshold])
    return _interpolate([shares], used)[0]


def combine_all(shares: Mapping[int, Mapping[int, bytes]], threshold: int, verify: bool = False) -> dict[int, bytes]:
    """{owner: secret} from {owner: {holder: share}}: `combine` for many owners, in the order of their ids.

    Owners with the same holders cost one weight vector together, as all do on a complete graph.
    Raises TooFewClients, naming the lowest such owner, if one has fewer than `threshold` shares; with `verify`,
    ProtocolViolation if shares beyond the threshold are not of the same polynomial.
    """
    _expect_threshold(threshold)
    owners_of: dict[tuple[int, ...], list[int]] = {}
    for owner in sorted(shares):
        held = shares[owner]
        if len(held) < threshold:
            raise TooFewClients(f"too few shares of node {owner}'s secret: need {threshold}, have {len(held)}")
        owners_of.setdefault(tuple(sorted(held)[:threshold]), []).append(owner)
        if verify:
            _expect_one_polynomial(owner, held, threshold)
    secrets: dict[int, bytes] = {}
    for used, owners in owners_of.items():
        secrets.update(zip(owners, _interpolate([shares[owner] for owner in owners], used), strict=True))
    return {owner: secrets[owner] for owner in sorted(secrets)}


def _expect_one_polynomial(owner: int, held: Mapping[int, bytes], threshold: int) -> None:
    """Each spare share in the place of the lowest one gives the same secret. Two polynomials that differ do not: they
    meet at the other threshold - 1 holders, and nowhere else."""
    lowest, *others = sorted(held)
    secret, = _interpolate([held], (lowest, *others[:threshold - 1]))
    for spare in others[threshold - 1:]:
        if _interpolate([held], (*others[:threshold - 1], spare)) != [secret]:
            raise ProtocolViolation(f"inconsistent_sets: the shares of a secret of node {owner} do not fit together")


def _expect_threshold(threshold: int) -> None:
    if threshold < 1:
        raise ValueError(f"threshold t = {threshold}, expected at least 1")


def _holder_ids(holders: Iterable[int]) -> list[int]:
    ids = list(holders)
    if len(set(ids)) != len(ids):
        raise ValueError("a holder is named twice")
    for j in ids:
        if not 0 <= j < MAX_HOLDERS:
            raise ValueError(f"holder id {j}, expected 0..{MAX_HOLDERS - 1}")
    return ids


def _points(ids: Sequence[int]) -> Elements:
    return np.asarray(ids, dtype=np.int64).astype(np.uint16) + np.uint16(1)


def _evaluate(coefficients: Elements, points: Elements) -> Elements:
    """Horner. coefficients: (t, c), constant term first; points: (n,), none 0. Returns (n, c)."""
    log_x = _LOG[points][:, None]
    values = np.empty((points.size, coefficients.shape[1]), dtype=np.uint16)
    step = max(1, _BLOCK_ELEMENTS // max(1, coefficients.shape[1]))
    for start in range(0, points.size, step):
        block = values[start:start + step]
        block[:] = coefficients[-1]
        index = np.empty(block.shape, dtype=np.int64)
        for row in coefficients[-2::-1]:
            np.take(_LOG, block, out=index, mode="clip")        # "clip": no bounds check, all indices are valid
            index += log_x[start:start + step]
            np.take(_EXP, index, out=block, mode="clip")
            block ^= row
    return values


def _weights_at_zero(points: Elements) -> Elements:
    """Lagrange weights of f(0) = sum_j w_j f(x_j): w_j = prod_{i != j} x_i / (x_i - x_j). points: (t,), distinct."""
    log_x = _LOG[points]
    weights = np.empty_like(points)
    total = int(log_x.sum())
    for j, x in enumerate(points):
        differences = _LOG[points ^ x]
        differences[j] = 0                                      # the empty factor i = j
        weights[j] = _EXP[(total - int(log_x[j]) - int(differences.sum())) % _ORDER]
    return weights


def _interpolate(shares: Sequence[Mapping[int, bytes]], used: tuple[int, ...]) -> list[bytes]:
    """f(0) of every element: one secret for each of `shares`, all read at the holders `used`."""
    log_w = _LOG[_weights_at_zero(_points(_holder_ids(used)))][:, None]                  # (t, 1)
    found = []
    for held in shares:
        index = _LOG[_values(held, used)]
        index += log_w
        found.append(np.bitwise_xor.reduce(_EXP[index], axis=0).astype("<u2").tobytes())
    return found


def _values(held: Mapping[int, bytes], used: tuple[int, ...]) -> Elements:
    """(t, 16 m), one row a holder."""
    size = len(held[used[0]])
    if size == 0 or size % SHARE_BYTES:
        raise ProtocolViolation(f"share of holder {used[0]} has {size} bytes, expected a multiple of {SHARE_BYTES}")
    for j in used:
        if len(held[j]) != size:
            raise ProtocolViolation(f"share of holder {j} has {len(held[j])} bytes, expected {size} as of {used[0]}")
    return np.frombuffer(b"".join([held[j] for j in used]), dtype="<u2").reshape(len(used), size // 2)
