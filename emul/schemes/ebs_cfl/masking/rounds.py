"""One round of EBS-CFL: mask rows, uploads, their checks, and what mends a sum that lacks some. Sections 9.1, 9.2, 11.

    mask rows   |R_i| = sigma, sum over S of R_i = -1 sum over S of mu_i
    ek1_i       R_i P2_i + 1 mu_i P3_i                      (s, 3dq)
    upload      delta_i = seg(g_i / |g_i|) A_{j_i} P1_i + ek1_i
    check       |delta_i vk^T - e_i| <= tau_v, | |delta_i|^2 - (2 + sigma^2) | <= tau_n
    correction  C = (sum over the missing of R_i + 1 mu_i) Z_P^T,  Z_P = sum over the present of zeta_i / 2:  g + C / W

The paper gives each R''_ij norm 1, so that the square of a norm is m + 2; it has nothing for a missing client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from emul.base.streams import generator
from emul.schemes.ebs_cfl.masking.blocks import Array, rows_with_sum
from emul.schemes.ebs_cfl.masking.keys import DealerKeys, MemberKeys, Verify
from emul.schemes.ebs_cfl.masking.shape import Shape
from emul.schemes.ebs_cfl.masking.vomca import checks, encode, residual, residual_of_sum


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
