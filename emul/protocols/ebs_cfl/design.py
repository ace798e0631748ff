"""What the roles of EBS-CFL have to agree on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.masking.aggregate import Order
from emul.primitives.masking.keys import SktMask, Verify, Zeta
from emul.primitives.masking.shape import Shape
from emul.primitives.robust.rfca import Weighting
from emul.roles import Node, World, checks

Alpha = Literal["compact", "full"]
Recovery = Literal["correction", "standin", "restart"]


@dataclass(frozen=True)
class Masking:
    """The parameters of the masks; see the scheme's `Params`."""

    clusters: int                       # m
    weighting: Weighting
    t: int
    q: int
    alpha: Alpha
    zeta: Zeta
    skt_mask: SktMask
    mask_norm: float                    # sigma
    verify: Verify
    tau_v: float | None                 # tolerances of both checks; None: those of `rounds.tolerances`
    tau_n: float | None
    order: Order
    recovery: Recovery
    resend: int                         # how often a client whose upload is rejected may send it again
    restarts: int                       # how often a round may begin anew, with `recovery: restart`
    min_clients: int | None             # None: max(2, half of those that take part)
    fraction: float                     # of the clients, drawn each round
    deadline_s: float | None            # of uploads at the server
    dealer_timeout_s: float | None      # of what the dealer sends

    @property
    def sets(self) -> int:
        """Of alpha keys: one, or one for each cluster."""
        return self.clusters if self.weighting == "per_cluster" else 1

    def least(self, participants: int) -> int:
        """How many uploads a sum needs."""
        return self.min_clients if self.min_clients is not None else max(2, -(-participants // 2))

    @property
    def renews(self) -> bool:
        """Whether a restart needs new keys at the server: something else than mask rows has to sum to zero."""
        return self.q > 1 or self.zeta == "zero_sum" or self.skt_mask == "zero_sum"


def shape_of(node: Node, d: Masking) -> Shape:
    """Dimensions of the masks. Keys count clients from 0 in the order of their nodes."""
    return Shape(len(node.clients), d.clusters, node.task.dimension, d.t, d.q)


def dealer_of(node: Node) -> int:
    """The node of the role `kdc`."""
    return node.nodes("kdc")[0]


def wrong_masks(d: Masking, world: World) -> list[str]:
    """What is wrong with them, for the scheme's `check`."""
    n = max(1, round(d.fraction * world.clients))
    errors = checks.at_least(1, "1 or more", t=d.t, q=d.q, restarts=d.restarts)
    errors += checks.not_negative(resend=d.resend)
    errors += checks.at_least(1, "1 or more: shorter masks may have no sum that cancels", mask_norm=d.mask_norm)
    errors += checks.positive(tau_v=d.tau_v, tau_n=d.tau_n)
    errors += checks.times(deadline=d.deadline_s, dealer_timeout=d.dealer_timeout_s)
    if d.t * d.clusters < 2:
        errors.append(f"t = {d.t}: expected t m of 2 or more: masks of one number cannot sum to zero")
    if n < 2:
        errors.append(f"fraction = {d.fraction}: draws {n} of {world.clients} clients, masks need at least 2")
    if d.min_clients is not None and not 2 <= d.min_clients <= n:
        errors.append(f"min_clients = {d.min_clients}: expected 2..{n}, the clients of a round")
    if d.resend and d.recovery == "restart":
        errors.append(f"resend = {d.resend}: with recovery: restart a round begins anew instead")
    return errors + _wrong_together(d)


def _wrong_together(d: Masking) -> list[str]:
    """What needs all clients, or all of a group, in each sum."""
    zero = [f"{name} = zero_sum" for name, value in (("zeta", d.zeta), ("skt_mask", d.skt_mask)) if value == "zero_sum"]
    said = zero + ([f"q = {d.q}"] if d.q > 1 else [])
    errors = [f"{what}: a correction needs masks of single clients; expected recovery: standin or restart"
              for what in said if d.recovery == "correction"]
    return errors + [f"{what}: needs all clients in each round, expected fraction: 1" for what in said
                     if d.fraction < 1]
