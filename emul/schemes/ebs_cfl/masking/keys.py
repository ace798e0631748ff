"""The keys that the dealer of EBS-CFL draws once, and those of them that it gives to clients and server. Section 9.1 of
the specification.

Each family of keys has a stream of its own, (seed, "ebs_cfl", family). The seed is the scenario's: for emulation only,
whoever has it has every key.

    ek0_i = P1_i                                        ek1_i = R_i P2_i + 1 mu_i P3_i      (each round: `rounds`)
    tk0_g = sum_i M1^T GM1 + M2^T GM2                   from a group's blocks to those of all
    tk1_g = sum_i P1^T GP1 + P2^T GP2 + P3^T (GP3 + mu^+ rho)
    dk    = sum_i GM1_i^T GP1_i + GM2_i^T sum_j (GP2_j + GP3_j)
    vk_g  = sum_i V_i P2_i + V'_i P3_i                  printed: V_i (sum_j A_j) P2_i alone

With more layers (equation 21) a node of each has blocks of its own, where every client below it keeps a slot. There are
keys from each node to the one above it, and the mask rho is added by the last of them.

zeta_i: each without a trace, or all of them with sum 0 as printed, which leaves nothing masked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from emul.base.streams import generator
from emul.schemes.ebs_cfl.masking import srfc
from emul.schemes.ebs_cfl.masking.blocks import (
    Array,
    Shape,
    decode_key,
    haar,
    invertible,
    orthogonal_blocks,
    rekeying,
    verification_key,
    with_mask,
    zero_sum,
)
from emul.schemes.ebs_cfl.masking.srfc import Relu, ReluKeys

Zeta = Literal["traceless", "zero_sum"]
SktMask = Literal["off", "zero_sum"]
Verify = Literal["per_segment", "per_client"]


@dataclass(frozen=True)
class LayerBlocks:
    """The slot of one client at one layer, below whose node there are k clients."""

    M: Array                            # (2, d, 2dk): of SRFC
    P: Array                            # (3, d, 3dk): of uploads


@dataclass(frozen=True)
class MemberKeys:
    """All that the dealer knows of one client."""

    relu: Relu
    P: Array                            # (3, d, 3dq): payload, mask, mask
    GM: Array                           # (2, d, 2dN)
    GP: Array                           # (3, d, 3dN)
    zeta: Array                         # (d, d)
    mu: Array                           # (d,), of norm 1 / sqrt(s)
    V: Array                            # (2, d): of the first and the second mask block
    rho: Array                          # (3dN,)
    H: Array                            # (m, 2, 2): Hx, one a set of alpha keys
    between: tuple[LayerBlocks, ...] = ()       # its slots at the layers between its group and the top

    def slot(self, layer: int) -> LayerBlocks:
        """Its slot at a layer, from 0, the groups."""
        if layer == 0:
            return LayerBlocks(np.stack([self.relu.M1, self.relu.M2]), self.P)
        return [*self.between, LayerBlocks(self.GM, self.GP)][layer - 1]


@dataclass(frozen=True)
class DealerKeys:
    """All that the dealer knows."""

    shape: Shape
    A: Array                            # (m, t, d): the slots of the clusters, together orthogonal
    members: tuple[MemberKeys, ...]     # by client, from 0


@dataclass(frozen=True)
class Lift:
    """Keys from the nodes of one layer to those of the next, by node."""

    tk0: list[Array]                    # (2dk, 2dk'), k clients below the node, k' below its parent
    tk1: list[Array]                    # (3dk, 3dk')


@dataclass(frozen=True)
class ServerKeys:
    """The keys that the server gets once. Lists go by group; numbers of elements: section 9.4."""

    A: Array                            # (m, t, d)
    beta: list[Array]                   # (d, 2dq)
    tau1: list[Array]                   # (2dq, 2dq)
    tau2: list[Array]                   # (2dq, 2dq)
    tau3: list[Array]                   # (2dq, 2dq)
    tk0: list[Array]                    # (2dq, 2dN); with more layers to the next one
    tk1: list[Array]                    # (3dq, 3dN)
    betaG: Array                        # (d, 2dN)
    dk: Array                           # (2dN, 3dN)
    lifts: tuple[Lift, ...] = ()        # from the layers between the groups and the top

    def relu(self, group: int) -> ReluKeys:
        """The SRFC keys of a group."""
        return ReluKeys(self.beta[group], self.tau1[group], self.tau2[group], self.tau3[group])


SENT = ("A", "beta", "tau1", "tau2", "tau3", "tk0", "tk1", "betaG", "dk")       # in one message; lifts in one each


def draw_keys(shape: Shape, seed: int, zeta: Zeta = "traceless", skt_mask: SktMask = "off",
              verify: Verify = "per_segment") -> DealerKeys:
    """All keys of a run."""
    N, d, t = shape.clients, shape.d, shape.t
    A = haar(generator(seed, "ebs_cfl", "slots"), d).reshape(shape.clusters, t, d)
    GM = orthogonal_blocks(generator(seed, "ebs_cfl", "global srfc"), 2 * N, d).reshape(2, N, d, -1)
    GP = orthogonal_blocks(generator(seed, "ebs_cfl", "global blocks"), 3 * N, d).reshape(3, N, d, -1)
    free = generator(seed, "ebs_cfl", "rows")
    mu = free.standard_normal((N, d))
    mu /= np.linalg.norm(mu, axis=1, keepdims=True) * np.sqrt(shape.segments)
    V = free.standard_normal((N, 2, d)) if verify == "per_segment" else _printed_rows(free, N, t, A)
    zetas = _zetas(generator(seed, "ebs_cfl", "zeta"), N, d, zeta)
    rho = zero_sum(generator(seed, "ebs_cfl", "rho"), N, (3 * d * N,)) * (skt_mask == "zero_sum")
    between = _between(shape, seed)
    members: list[MemberKeys] = []
    for g, group in enumerate(shape.groups):
        q = len(group)
        P = orthogonal_blocks(generator(seed, "ebs_cfl", "blocks", g), 3 * q, d).reshape(3, q, d, -1)
        M = orthogonal_blocks(generator(seed, "ebs_cfl", "srfc", g), 2 * q, d)
        for j, (i, relu) in enumerate(zip(group, srfc.draw(generator(seed, "ebs_cfl", "masks", g), M), strict=True)):
            twos = generator(seed, "ebs_cfl", "twos", i)
            members.append(MemberKeys(relu, P[:, j], GM[:, i], GP[:, i], zetas[i], mu[i], V[i], rho[i],
                                      np.stack([invertible(twos, 2) for _ in range(shape.clusters)]), between[i]))
    return DealerKeys(shape, A, tuple(members))


def _between(shape: Shape, seed: int) -> list[tuple[LayerBlocks, ...]]:
    """The slots of each client at the layers between the groups and the top, lowest first."""
    found: list[list[LayerBlocks]] = [[] for _ in range(shape.clients)]
    for layer, nodes in enumerate(shape.tree[1:-1], 1):
        for node, below in enumerate(nodes):
            k, names = len(below), (layer, node)
            M = orthogonal_blocks(generator(seed, "ebs_cfl", "layer srfc", *names), 2 * k, shape.d)
            P = orthogonal_blocks(generator(seed, "ebs_cfl", "layer blocks", *names), 3 * k, shape.d)
            M, P = M.reshape(2, k, shape.d, -1), P.reshape(3, k, shape.d, -1)
            for j, i in enumerate(below):
                found[i].append(LayerBlocks(M[:, j], P[:, j]))
    return [tuple(own) for own in found]


def _printed_rows(rng: np.random.Generator, N: int, t: int, A: Array) -> Array:
    """V_i (sum_j A_j) for the first mask block, nothing for the second, (N, 2, d)."""
    rows = rng.standard_normal((N, t)) @ A.sum(0)
    return np.stack([rows, np.zeros_like(rows)], axis=1)


def _zetas(rng: np.random.Generator, n: int, d: int, kind: Zeta) -> Array:
    """(n, d, d): each without a trace, or with sum 0."""
    if kind == "zero_sum":
        return zero_sum(rng, n, (d, d))
    drawn = rng.standard_normal((n, d, d))
    return drawn - np.trace(drawn, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)


# --- what the server gets -------------------------------------------------------------------------------------------

def server_keys(keys: DealerKeys) -> ServerKeys:
    """The keys that the server aggregates with."""
    members, groups = keys.members, keys.shape.groups
    relu = [srfc.evaluation_keys([members[i].relu for i in group], [members[i].zeta for i in group])
            for group in groups]
    GP23 = decode_key(block for a in members for block in a.GP[1:])
    dk = rekeying([pair for a in members for pair in ((a.GM[0], a.GP[0]), (a.GM[1], GP23))])
    first, *others = (lift(keys, layer) for layer in range(len(keys.shape.tree) - 1))
    return ServerKeys(
        keys.A, [r.beta for r in relu], [r.tau1 for r in relu], [r.tau2 for r in relu], [r.tau3 for r in relu],
        first.tk0, first.tk1, decode_key(block for a in members for block in a.GM), dk, tuple(others))


def lift(keys: DealerKeys, layer: int) -> Lift:
    """Keys from every node of a layer to the node above it."""
    nodes = [[keys.members[i] for i in node] for node in keys.shape.tree[layer]]
    tk0 = [rekeying([pair for a in members for pair in zip(a.slot(layer).M, a.slot(layer + 1).M, strict=True)])
           for members in nodes]
    return Lift(tk0, [node_tk1(members, layer) for members in nodes])


def node_tk1(members: Sequence[MemberKeys], layer: int = 0) -> Array:
    """tk1 of a node of a layer, (3dk, 3dk'): of a group (3dq, 3dN) where there are two layers."""
    def target(a: MemberKeys) -> Array:
        up = a.slot(layer + 1).P
        return np.stack([up[0], up[1], with_mask(up[2], a.mu, a.rho)]) if layer == len(a.between) else up

    return rekeying([pair for a in members for pair in zip(a.slot(layer).P, target(a), strict=True)])


def verification_keys(keys: DealerKeys) -> list[Array]:
    """vk of each group, (3dq,)."""
    return [verification_key([pair for i in group for pair in zip(keys.members[i].V, keys.members[i].P[1:],
                                                                  strict=True)]) for group in keys.shape.groups]


# --- for some of the clients only -----------------------------------------------------------------------------------

def restarted(keys: DealerKeys, seed: int, present: Collection[int], names: tuple[int, ...], zeta: Zeta,
              skt_mask: SktMask,
              ) -> DealerKeys:
    """The keys for those that are `present`: what has to sum to zero over them does so anew.

    R0 + R1 of each group; zeta if it is `zero_sum`; rho if it is. names: of the streams, such as round and attempt.
    """
    there = sorted(present)
    d, N = keys.shape.d, keys.shape.clients
    changed: dict[int, MemberKeys] = {i: keys.members[i] for i in there}
    if zeta == "zero_sum":
        drawn = zero_sum(generator(seed, "ebs_cfl", "zeta", *names), len(there), (d, d))
        changed = {i: replace(a, zeta=z) for (i, a), z in zip(changed.items(), drawn, strict=True)}
    if skt_mask == "zero_sum":
        drawn = zero_sum(generator(seed, "ebs_cfl", "rho", *names), len(there), (3 * d * N,))
        changed = {i: replace(a, rho=r) for (i, a), r in zip(changed.items(), drawn, strict=True)}
    for g, group in enumerate(keys.shape.groups):
        here = [i for i in group if i in changed]
        if not here:
            continue
        R0 = srfc.closing(generator(seed, "ebs_cfl", "R0", g, *names), [changed[i].relu.R1 for i in here])
        for i, own in zip(here, R0, strict=True):
            changed[i] = replace(changed[i], relu=replace(changed[i].relu, R0=own))
    return replace(keys, members=tuple(changed.get(i, a) for i, a in enumerate(keys.members)))


def renewed(keys: DealerKeys, present: Collection[int]) -> Mapping[int, tuple[Array, Array]]:
    """{group: (tau1, tk1)} over those of it that are present, of every group that has one."""
    found = {}
    for g, group in enumerate(keys.shape.groups):
        here = [keys.members[i] for i in group if i in present]
        if here:
            found[g] = srfc.tau1([a.relu for a in here], [a.zeta for a in here]), node_tk1(here)
    return found
