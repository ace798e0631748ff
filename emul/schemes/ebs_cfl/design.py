"""The settings that the roles of EBS-CFL agree on."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from emul.protocols.trust import Trusting
from emul.roles import Node, World, checks
from emul.schemes.ebs_cfl.masking.blocks import Shape
from emul.schemes.ebs_cfl.masking.keys import SktMask, Verify, Zeta
from emul.schemes.ebs_cfl.masking.rounds import Order

Alpha = Literal["compact", "full"]
Recovery = Literal["correction", "standin", "restart"]


@dataclass(frozen=True)
class Masking(Trusting):
    """Parameters of the masks, beside those of the references."""

    t: int = 2                          # length of a segment; small ones have cheap keys and leak more
    q: int = 1                          # clients of a group
    layers: tuple[int, ...] = ()        # clients below a node of each layer between the groups and all of them
    alpha: Alpha = "compact"            # alpha keys as factors; full: the paper's tensors, 2 (t m)^2 times as much
    zeta: Zeta = "traceless"            # decode masks; zero_sum: the paper, leaves nothing masked
    skt_mask: SktMask = "off"           # masks of re-keying; zero_sum: the paper, needs all clients in each round
    mask_norm: float = 1.0              # sigma, norm of a client's mask rows
    verify: Verify = "per_segment"      # of both mask blocks; per_client: the paper, one scalar, can be evaded
    order: Order = "reassociated"       # sum_first: the paper, quadratic in the number of clients
    tau_v: float | None = None          # of the check of mask rows; none: 1e-9 (1 + sigma) sqrt(t m)
    tau_n: float | None = None          # of the check of the norm; none: 1e-9 (2 + sigma^2)
    recovery: Recovery = "correction"   # of rounds with missing clients; restart: the paper
    resend: int = 0                     # times that a client may send a rejected upload again
    restarts: int = 3                   # in a round, with `recovery: restart`
    min_clients: int | None = None      # a sum needs so many uploads; none: max(2, half of those that take part)
    deadline_s: float | None = None     # of uploads at the server; None: until the fates are known
    dealer_timeout_s: float | None = None       # of what the dealer sends; None: until the fates are known

    @property
    def sets(self) -> int:
        """Of alpha keys: one, or one for each cluster."""
        return self.clusters if self.weighting == "per_cluster" else 1

    def least(self, participants: int) -> int:
        """The number of uploads that a sum needs."""
        return self.min_clients if self.min_clients is not None else max(2, -(-participants // 2))

    @property
    def renews(self) -> bool:
        """True if a restart needs new keys at the server: something else than mask rows has to sum to zero."""
        return self.q > 1 or self.zeta == "zero_sum" or self.skt_mask == "zero_sum"


def shape_of(node: Node, d: Masking) -> Shape:
    """Dimensions of the masks. Keys count clients from 0 in the order of their nodes."""
    return Shape(len(node.clients), d.clusters, node.task.dimension, d.t, d.q, tuple(d.layers))


def dealer_of(node: Node) -> int:
    """The node of the role `kdc`."""
    return node.nodes("kdc")[0]


def wrong_masks(d: Masking, world: World) -> list[str]:
    """The mistakes in the masks' settings, for the scheme's `check`."""
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
    return errors + _wrong_layers(d, world.clients) + _wrong_together(d)


def _wrong_layers(d: Masking, clients: int) -> list[str]:
    """The mistakes of a tree of groups."""
    errors = []
    sizes = [d.q, *d.layers]
    if d.layers and (sizes[-1] >= clients or any(up <= low or up % low for low, up in pairwise(sizes))):
        errors.append(f"layers = {list(d.layers)}: expected clients below a node, each a multiple of the one before it "
                      f"(the first of q = {d.q}) and more than it, and less than the {clients} clients")
    if d.layers and d.skt_mask == "zero_sum" and d.recovery == "restart":
        errors.append(f"layers = {list(d.layers)}: a restart renews no keys above the groups, where skt_mask masks; "
                      "expected recovery: standin")
    return errors


def _wrong_together(d: Masking) -> list[str]:
    """The mistakes of settings that need all clients, or all of a group, in each sum."""
    zero = [f"{name} = zero_sum" for name, value in (("zeta", d.zeta), ("skt_mask", d.skt_mask)) if value == "zero_sum"]
    said = zero + ([f"q = {d.q}"] if d.q > 1 else [])
    errors = [f"{what}: a correction needs masks of single clients; expected recovery: standin or restart"
              for what in said if d.recovery == "correction"]
    return errors + [f"{what}: needs all clients in each round, expected fraction: 1" for what in said
                     if d.fraction < 1]
