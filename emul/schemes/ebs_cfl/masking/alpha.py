"""Keys by which the server turns an upload into its cosine, encoded for SRFC. Section 9.1, "alpha' keys".

    Gamma = sum_c seg(h^c) A_c (s, d), h^c = g0^c / |g0^c|;  u_k = (Gamma_k P1)^T, v = (1/s) (mu^+T P3)^T
    full      alpha'_k[row j] = sum_i u_ik (Phi_i)_j + v_i (Psi_i)_j        12 d^3 q^3 numbers a segment, as printed
    compact   F_i = [u_ik, v_i] Hx, (B_1, B_2) = Hx^-1 (Phi_i, Psi_i)       its factors, of rank 2, one pair a client

Then alpha_i = sum_k delta_ik . alpha'_k = cos_i Phi_i + Psi_i. Where weights are by cluster there is a set of keys for
each of them, from Gamma^c = seg(h^c) A_c alone.

The server knows Gamma: it has the references and the slots. So it keeps of F_i what Gamma and a column of ones do not
say, C_i with F_i = [Gamma, 1] C_i, in place of 6 s d numbers. (That C_i holds P1_i up to a factor: a leak.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.schemes.ebs_cfl.masking.blocks import Array
from emul.schemes.ebs_cfl.masking.keys import DealerKeys, MemberKeys
from emul.schemes.ebs_cfl.masking.shape import Shape


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
    basis = _with_ones(Gamma)
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


def _with_ones(Gamma: Array) -> Array:
    return np.concatenate([Gamma, np.ones((len(Gamma), 1))], axis=1)
