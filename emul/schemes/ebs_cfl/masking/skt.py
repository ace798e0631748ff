"""SKT: an encoding moved from its blocks to others. Section 6 of the paper, corrected; and the sizes of such keys.

    chi = x M1 + r M2                   r: (1, d), the same for all rows of x
    tk  = M1^T T1 + M2^T (T2 + r^+ rho) r^+ = r^T / (r r^T): the paper prints the inverse of a row
    chi tk = x T1 + r T2 + rho          the rho of all that are added up sum to 0

Keys of members of one group may be summed: cross terms vanish. They compose: tk(a -> b) tk(b -> c) leads from a to c,
as long as every client keeps a slot of its own. Slots that are merged before the weights are applied lose the weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from emul.schemes.ebs_cfl.masking.blocks import Array, right_inverse


def rekeying(moves: Iterable[tuple[Array, Array]]) -> Array:
    """tk = sum B^T T over (from block B (d, k), to block T (d, k')): (k, k')."""
    pairs = list(moves)
    return np.concatenate([b for b, _ in pairs]).T @ np.concatenate([t for _, t in pairs])


def with_mask(target: Array, row: Array, rho: Array) -> Array:
    """T + r^+ rho, (d, k): the target block of the mask row r (d,), so that rho (k,) is added to what is moved."""
    return target + np.outer(right_inverse(row), rho)


# --- sizes in a tree of groups --------------------------------------------------------------------------------------

def tree_size(clients: int, d: int, below: Sequence[int], blocks: int) -> int:
    """Elements of the re-keying material of a tree, and of its decode key. Section 10 of the specification.

    below: q_1 .. q_x, the clients below a node of each layer, the last one N. blocks: a client has, 2 of SRFC, 3 of
    uploads. Every client keeps its slot.

    >>> tree_size(8, 4, [1, 8], 2)
    4352
    """
    layers = sum(-(-clients // q) * (blocks * d * q) * (blocks * d * up)
                 for q, up in pairwise(below))
    return layers + d * blocks * d * below[-1]


def printed_tree_size(d: int, fan_in: Sequence[int]) -> int:
    """The paper's S(n, {xi}) = 2 d xi_x + sum_i 4 d^2 xi_i xi_{i+1} prod_{j > i} xi_j. Its last term counts columns;
    beyond two layers it assumes merged slots, which destroy the weights: a model of sizes, and no way to aggregate.

    >>> printed_tree_size(4, [1, 8])
    4160
    """
    total = 2 * d * fan_in[-1]
    for i in range(len(fan_in) - 1):
        total += 4 * d * d * fan_in[i] * fan_in[i + 1] * int(np.prod(fan_in[i + 1:]))
    return total
