"""Double masking in the ring Z_2^32 or Z_2^64. Bonawitz et al., CCS 2017, section 4: a self mask,
and pair masks that cancel.

y_i = x_i + PRG(b_i) + sum_{j in N_i & U2} sgn(i, j) PRG(s_ij), sgn(i, j) = +1 if i < j else -1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from emul.base.errors import ProtocolViolation
from emul.primitives.crypto.prg import prg_add

Ring = NDArray[np.unsignedinteger]      # of uint32 or uint64: an element of Z_2^32 or Z_2^64

def sign(i: int, j: int) -> int:
    """sgn(i, j): +1 if i < j, else -1; ValueError for i = j, who has no mask with itself."""
    if i == j:
        raise ValueError(f"node {i} has no pair mask with itself")
    return 1 if i < j else -1


def add_pair_masks(out: Ring, i: int, seeds: Mapping[int, bytes]) -> None:
    """out <- out + sum_j sgn(i, j) PRG(s_ij), in place. out: (d,); seeds: {j: 32 bytes}."""
    for j in sorted(seeds):
        prg_add(out, seeds[j], sign(i, j))


def mask_input(x: Ring, i: int, self_seed: bytes, pair_seeds: Mapping[int, bytes]) -> Ring:
    """y_i, a new (d,) of the ring of x. x: (d,); self_seed: b_i; pair_seeds: {j: s_ij} over the neighbours in U2."""
    y = x.copy()
    prg_add(y, self_seed)
    add_pair_masks(y, i, pair_seeds)
    return y


def sum_ring(inputs: Iterable[Ring], d: int, dtype: type = np.uint32) -> Ring:
    """Sum of (d,) vectors of the ring of `dtype`: a new (d,), zero for none."""
    total: Ring = np.zeros(d, dtype=dtype)
    for y in inputs:
        np.add(total, y, out=total)
    return total


def unmask(total: Ring, self_seeds: Mapping[int, bytes],
           dropped: Mapping[int, Mapping[int, bytes]]) -> int:
    """Turn `total`, the sum of y_i over U3, into the sum of x_i over U3, in place; returns the masks expanded.

    self_seeds: {i: b_i} for all of U3. dropped: {j: {i: s_ij for i in N_j & U3}} for j in U2 - U3.
    """
    for i in sorted(self_seeds):
        prg_add(total, self_seeds[i], -1)
    for j in sorted(dropped):
        # the masks j would have added cancel those its neighbours added for it: sgn(j, i) = -sgn(i, j)
        add_pair_masks(total, j, dropped[j])
    return len(self_seeds) + sum(len(seeds) for seeds in dropped.values())


def check_reveal(U2: Collection[int], survivors: Collection[int], dropped: Collection[int]) -> None:
    """Refuse to reveal what would unmask one input: both secrets of a node, or a secret of a node outside U2.

    survivors: nodes whose self mask is asked for (U3). dropped: nodes whose mask key is asked for (within U2 - U3).
    Raises ProtocolViolation, `inconsistent_sets`. A client calls it once a round, before it answers.
    """
    both = sorted(set(survivors) & set(dropped))
    if both:
        raise ProtocolViolation(f"inconsistent_sets: both secrets asked for nodes {both}")
    outside = sorted((set(survivors) | set(dropped)) - set(U2))
    if outside:
        raise ProtocolViolation(f"inconsistent_sets: secrets asked for nodes {outside}, which are not in U2")
