"""One round of EBS-CFL: mask rows, uploads, checks, what mends a sum that lacks some; alpha keys; the aggregation.

Sections 9.1, 9.2, 9.3 and 11 of the specification.

    mask rows   |R_i| = sigma, sum over S of R_i = -1 sum over S of mu_i
    ek1_i       R_i P2_i + 1 mu_i P3_i                      (s, 3dq)
    upload      delta_i = seg(g_i / |g_i|) A_{j_i} P1_i + ek1_i
    check       |delta_i vk^T - e_i| <= tau_v, | |delta_i|^2 - (2 + sigma^2) | <= tau_n
    correction  C = (sum over the missing of R_i + 1 mu_i) Z_P^T,  Z_P = sum over the present of zeta_i / 2:  g + C / W

The paper gives each R''_ij norm 1, so that the square of a norm is m + 2; it has nothing for a missing client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from emul.base.streams import generator
from emul.schemes.ebs_cfl.masking import srfc
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape, checks, encode, residual, residual_of_sum, rows_with_sum
from emul.schemes.ebs_cfl.masking.keys import DealerKeys, MemberKeys, ServerKeys, Verify


def mask_rows(keys: DealerKeys, seed: int, names: tuple[int, ...], participants: Sequence[int], sigma: float,
              ) -> dict[int, Array]:
    """{client: R_i (s, d)} of a round. names: of the stream, such as round and attempt. Raises ValueError: too few."""
    there = sorted(participants)
    shape = keys.shape
    total = np.tile(-np.add.reduce([keys.members[i].mu for i in there]), (shape.segments, 1))
    rows = rows_with_sum(generator(seed, "ebs_cfl", "mask rows", *names), len(there), total, sigma)
    return dict(zip(there, rows, strict=True))


def round_key(member: MemberKeys, R: Array) -> Array:
    """ek1_i, (s, 3dq)."""
    key = R @ member.P[1]
    key += member.mu @ member.P[2]
    return key


def expected(members: Mapping[int, MemberKeys], rows: Mapping[int, Array]) -> Array:
    """e_i of all that take part, (n, s), ascending by client."""
    return np.stack([checks([(rows[i], members[i].V[0]), (members[i].mu, members[i].V[1])]) for i in sorted(rows)])


def unit(update: Array) -> Array:
    """g / |g| in float64; of zeros zeros."""
    g = update.astype(np.float64)
    norm = float(np.linalg.norm(g))
    return g / norm if norm > 0 else g


def payload_key(slot: Array, ek0: Array) -> Array:
    """A_j P1_i, (t, 3dq): what a segment of the update is multiplied with."""
    return slot @ ek0


def upload(shape: Shape, update: Array, cluster: int, A: Array, ek0: Array, ek1: Array) -> Array:
    """delta_i, (s, 3dq). An update of zeros has a payload of zeros."""
    return encode((shape.segment(unit(update)), payload_key(A[cluster], ek0))) + ek1


def tolerances(sigma: float, d: int) -> tuple[float, float]:
    """(tau_v, tau_n)."""
    return 1e-9 * (1 + sigma) * float(np.sqrt(d)), 1e-9 * (2 + sigma**2)


def wrong(delta: Array, vk: Array, e: Array, sigma: float, d: int, how: Verify, tau_v: float | None = None,
          tau_n: float | None = None) -> str:
    """The reason why an upload is rejected: "masks" or "norm"; "" if it is sound. Tolerances: None: those of
    `tolerances`."""
    usual = tolerances(sigma, d)
    tau_v, tau_n = usual[0] if tau_v is None else tau_v, usual[1] if tau_n is None else tau_n
    found = residual(delta, vk, e) if how == "per_segment" else residual_of_sum(delta, vk, e)
    if not found <= tau_v:                  # of NaN, too
        return "masks"
    return "" if abs(float(np.vdot(delta, delta)) - (2 + sigma**2)) <= tau_n else "norm"


def correction(keys: DealerKeys, rows: Mapping[int, Array], present: Collection[int]) -> Array:
    """C, (s, d): what the masks of those that are missing would have added to W g. For traceless zeta, without rho."""
    Z = np.add.reduce([keys.members[i].zeta for i in sorted(present)]) / 2
    missing = [i for i in sorted(rows) if i not in set(present)]
    lacking = np.add.reduce([rows[i] + keys.members[i].mu for i in missing])
    return lacking @ Z.T


# --- alpha keys, by which the server turns an upload into its cosine, encoded for SRFC ------------------------------
# Section 9.1, "alpha' keys".
#
#     Gamma = sum_c seg(h^c) A_c (s, d), h^c = g0^c / |g0^c|;  u_k = (Gamma_k P1)^T, v = (1/s) (mu^+T P3)^T
#     full      alpha'_k[row j] = sum_i u_ik (Phi_i)_j + v_i (Psi_i)_j        12 d^3 q^3 numbers a segment, as printed
#     compact   F_i = [u_ik, v_i] Hx, (B_1, B_2) = Hx^-1 (Phi_i, Psi_i)       its factors, of rank 2, one pair a client
#
# Then alpha_i = sum_k delta_ik . alpha'_k = cos_i Phi_i + Psi_i. Where weights are by cluster there is a set of keys
# for each of them, from Gamma^c = seg(h^c) A_c alone.
#
# The server knows Gamma: it has the references and the slots. So it keeps of F_i what Gamma and a column of ones do not
# say, C_i with F_i = [Gamma, 1] C_i, in place of 6 s d numbers. (That C_i holds P1_i up to a factor: a leak.)

@dataclass(frozen=True)
class Compact:
    """Of one client and one set."""

    F: Array                            # (s, 3dq, 2)
    B: Array                            # (2, 2dq, 2dq)


@dataclass(frozen=True)
class Factor:
    """The part of a `Compact` that the server keeps: F = [Gamma, 1] C."""

    C: Array                            # (d + 1, 3dq, 2)
    B: Array                            # (2, 2dq, 2dq)


def directions(references: Array) -> Array:
    """h^c = g0^c / |g0^c|, (m, l) float64; a reference of zeros stays one."""
    norms = np.linalg.norm(references, axis=1, keepdims=True)
    return np.divide(references, norms, out=np.zeros(references.shape), where=norms > 0)


def gammas(shape: Shape, A: Array, h: Array, weighting: str) -> list[Array]:
    """Gamma (s, d) of each set of alpha keys: one of all clusters (`joint`), or one a cluster (`per_cluster`)."""
    each = [shape.segment(v) @ slot for v, slot in zip(h, A, strict=True)]
    return each if weighting == "per_cluster" else [np.add.reduce(each)]


def compact(member: MemberKeys, Gamma: Array, which: int) -> Compact:
    """The factors of one client. which: of the sets, from 0."""
    H = member.H[which]
    u, v = Gamma @ member.P[0], member.mu @ member.P[2]         # (1/s) mu^+T = mu, since |mu|^2 = 1/s
    F = np.empty((*u.shape, 2))
    for a in range(2):
        np.add(u * H[0, a], v * H[1, a], out=F[:, :, a])
    both = np.stack([member.relu.phi, member.relu.psi])
    return Compact(F, np.tensordot(np.linalg.inv(H), both, axes=1))


def full(keys: DealerKeys, group: Sequence[int], Gamma: Array) -> Array:
    """The tensor of a group, (s, 2dq, 3dq, 2dq), as printed."""
    members = [keys.members[i] for i in group]
    tensor = np.zeros(())
    for a in members:
        v = a.mu @ a.P[2]
        tensor = (tensor + np.einsum("ku,jv->kjuv", Gamma @ a.P[0], a.relu.phi)
                  + np.einsum("u,jv->juv", v, a.relu.psi))
    return tensor


def factor(key: Compact, Gamma: Array) -> Factor:
    """C of F = [Gamma, 1] C, by least squares; of many that do the shortest."""
    basis = np.concatenate([Gamma, np.ones((len(Gamma), 1))], axis=1)
    C: Array = np.linalg.lstsq(basis, key.F.reshape(len(basis), -1), rcond=None)[0].astype(np.float64)
    return Factor(C.reshape(-1, *key.F.shape[1:]), key.B)


def product(Gamma: Array, delta: Array) -> Array:
    """[Gamma, 1]^T delta, (d + 1, 3dq): the one pass over an upload that its cosine needs."""
    return np.concatenate([Gamma.T @ delta, delta.sum(0, keepdims=True)])


def encoded(key: Factor, products: Array) -> Array:
    """alpha_i = sum_a (sum_k delta_ik . F_i[k, :, a]) B_a = cos_i Phi_i + Psi_i, (2dq, 2dq)."""
    return np.tensordot(np.tensordot(products, key.C, axes=2), key.B, axes=1)


def encoded_by_tensor(tensor: Array, delta: Array) -> Array:
    """The same by the keys as printed: (alpha_i)_j = sum_k delta_ik alpha'_k[j]."""
    return np.einsum("ku,kjuv->jv", delta, tensor)


# --- the aggregation of uploads by the server. Section 9.3 of the specification -------------------------------------
#     E_g  = SRFC of the group's alpha_i,  E = sum_g E_g tk0_g,  W = trace(E betaG^T) / d
#     dk'  = E dk / W                                         = (sum_i w_i GP1_i + Z sum_j (GP2_j + GP3_j)) / W
#     g    = sum_g (sum_{i in g} delta_i) (tk1_g dk'^T)       `reassociated`: linear in n where it is long
#          = (sum_g (sum_{i in g} delta_i) tk1_g) dk'^T       `sum_first`, as printed: quadratic
#     flatten(g A_c^T) = sum over i with j_i = c of w_i g_i / |g_i|, by sum_i w_i
#
# which is what `emul.primitives.robust.rfca` computes in the clear. With a set of alpha keys for each cluster there are
# an E, a W and a g for each of them, and no denominator is shared.
#
# With more layers than two, tk0_g and tk1_g lead to the next layer, where the sums of the nodes below are moved on in
# the same way, up to the blocks of all clients.

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
