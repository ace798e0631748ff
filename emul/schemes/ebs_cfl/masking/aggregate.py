"""The aggregation of uploads by the server of EBS-CFL. Section 9.3 of the specification.

    E_g  = SRFC of the group's alpha_i,  E = sum_g E_g tk0_g,  W = trace(E betaG^T) / d
    dk'  = E dk / W                                         = (sum_i w_i GP1_i + Z sum_j (GP2_j + GP3_j)) / W
    g    = sum_g (sum_{i in g} delta_i) (tk1_g dk'^T)       `reassociated`: linear in n where it is long
         = (sum_g (sum_{i in g} delta_i) tk1_g) dk'^T       `sum_first`, as printed: quadratic
    flatten(g A_c^T) = sum over i with j_i = c of w_i g_i / |g_i|, by sum_i w_i

which is what `emul.primitives.robust.rfca` computes in the clear. With a set of alpha keys for each cluster there are
an E, a W and a g for each of them, and no denominator is shared.

With more layers than two, tk0_g and tk1_g lead to the next layer, where the sums of the nodes below are moved on in the
same way, up to the blocks of all clients.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.schemes.ebs_cfl.masking import srfc
from emul.schemes.ebs_cfl.masking.blocks import Array
from emul.schemes.ebs_cfl.masking.keys import ServerKeys
from emul.schemes.ebs_cfl.masking.shape import Shape

Order = Literal["reassociated", "sum_first"]
Keyed = Sequence[Array] | Mapping[int, Array]       # by node of a layer

LEAST_WEIGHT = 1e-6                     # W_min: below it the round changes nothing


@dataclass(frozen=True)
class Trust:
    """The sum of the weights of one set, still encoded."""

    E: Array                            # (d, 2dN)
    W: float
    by_group: Mapping[int, float]       # its parts: with q = 1 and traceless zeta the weights themselves


def trust(shape: Shape, keys: ServerKeys, alphas: Mapping[int, Array], tau1: Mapping[int, Array] | None = None,
          ) -> Trust:
    """E and W of those whose alpha_i are there. tau1: of groups whose keys a restart has renewed."""
    lifted: dict[int, Array] = {}
    parts: dict[int, float] = {}
    for g, group in enumerate(shape.groups):
        here = [alphas[i] for i in group if i in alphas]
        if here:
            relu = keys.relu(g)
            if tau1 and g in tau1:
                relu = srfc.ReluKeys(relu.beta, tau1[g], relu.tau2, relu.tau3)
            own = srfc.evaluate(relu, here)
            parts[g] = srfc.value(own, relu.beta)
            lifted[g] = own
    E = moved_up(shape, lifted, [keys.tk0, *(each.tk0 for each in keys.lifts)]) if lifted else np.zeros_like(keys.betaG)
    return Trust(E, srfc.value(E, keys.betaG), parts)


def moved_up(shape: Shape, parts: Mapping[int, Array], tk: Sequence[Keyed]) -> Array:
    """The sum of what each group has, in the blocks of all. parts: {group: (., bdq)}. tk: of each layer, by node."""
    for layer, keys in enumerate(tk):
        above: dict[int, Array] = {}
        for node in sorted(parts):
            part, up = parts[node] @ keys[node], shape.parent(layer, node)
            above[up] = above[up] + part if up in above else part
        parts = above
    return parts[0]


def moved_down(shape: Shape, groups: Collection[int], right: Array, tk: Sequence[Keyed]) -> dict[int, Array]:
    """{group: the product of its keys of all layers with `right` (3dN, .)}."""
    below = {0: right}
    for layer in reversed(range(len(tk))):
        nodes = groups if layer == 0 else range(len(shape.tree[layer]))
        below = {node: tk[layer][node] @ below[shape.parent(layer, node)] for node in nodes}
    return below


def group_sums(shape: Shape, uploads: Mapping[int, Array]) -> dict[int, Array]:
    """{group: the sum of its uploads (s, 3dq)}, each in the order of its clients."""
    sums: dict[int, Array] = {}
    for g, group in enumerate(shape.groups):
        for i in group:
            if i in uploads:
                if g in sums:
                    sums[g] += uploads[i]
                else:
                    sums[g] = uploads[i].copy() if len(group) > 1 else uploads[i]
    return sums


def decoded(shape: Shape, keys: ServerKeys, sums: Mapping[int, Array], found: Trust, order: Order = "reassociated",
            slot: Array | None = None, tk1: Mapping[int, Array] | None = None) -> Array:
    """g, (s, d); of one slot A_c (t, d) alone, (s, t). tk1: of groups whose keys a restart has renewed.

    Only for W of `LEAST_WEIGHT` and more.
    """
    right = (found.E @ keys.dk / found.W).T                     # dk'^T, (3dN, d)
    if slot is not None:
        right = right @ slot.T
    tk = [{**dict(enumerate(keys.tk1)), **(tk1 or {})}, *(dict(enumerate(each.tk1)) for each in keys.lifts)]
    if order == "sum_first":
        return moved_up(shape, sums, tk) @ right
    rights = moved_down(shape, sums, right, tk)
    result = np.zeros((next(iter(sums.values())).shape[0], right.shape[1]))
    for g, total in sums.items():
        result += total @ rights[g]
    return result


def directions_of(shape: Shape, keys: ServerKeys, sums: Mapping[int, Array], found: Sequence[Trust],
                  order: Order = "reassociated", correction: Array | None = None,
                  tk1: Mapping[int, Array] | None = None) -> Array:
    """(m, l): by how much each cluster's model is moved, in units of its step; 0 where W is too small.

    found: one of all clusters, or one for each. correction: C (s, d), as `rounds.correction`.
    """
    out = np.zeros((shape.clusters, shape.length))
    joint: Array | None = None
    for c in range(shape.clusters):
        mine = found[c] if len(found) > 1 else found[0]
        if not mine.W >= LEAST_WEIGHT:
            continue
        if len(found) > 1:
            rows = decoded(shape, keys, sums, mine, order, keys.A[c], tk1)
            if correction is not None:
                rows += correction @ keys.A[c].T / mine.W
        else:
            if joint is None:
                joint = decoded(shape, keys, sums, mine, order, None, tk1)
                if correction is not None:
                    joint += correction / mine.W
            rows = joint @ keys.A[c].T
        out[c] = shape.flatten(rows)
    return out
