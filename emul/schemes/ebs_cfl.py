"""EBS-CFL: clusters with trusted references, aggregated under orthogonal masks. Li et al., AAAI-25, corrected.

    server      g0^c from part c of its root data, h^c = g0^c / |g0^c| to the dealer; sends theta_1 .. theta_m
    dealer      keys once; in each round ek1_i = R_i P2_i + 1 mu_i P3_i to client i, e_i = R_i V_i^T + 1 mu_i V'_i^T to
                the server
    client i    j_i = argmin_c loss(D_i; theta_c), g_i = local training from theta_{j_i}
                delta_i = seg(g_i / |g_i|) A_{j_i} P1_i + ek1_i
    server      |delta_i vk^T - e_i| <= tau_v,  | |delta_i|^2 - (2 + sigma^2) | <= tau_n
                alpha_i = cos(g_i, g0^{j_i}) Phi_i + Psi_i by alpha keys;  E, W: the sum of ReLU(cos), encoded
                g = sum_i delta_i (tk1_i dk'^T), dk' = E dk / W
                theta_c += eta scale norm_c flatten(g A_c^T), as `rfca` does in the clear to about 1e-9

EBS-CFL reproduces the published protocol, its costs and its robustness. It does not keep updates or cluster membership
secret from the server: one round of the values that it is entitled to hold gives it every client's normalised update
and cluster. `profile: pad` is the nearest construction that does, against a server that follows the protocol.

The algebra is in `emul.primitives.masking`, what is printed differently is named there; messages and their elements in
`emul.protocols.ebs_cfl.messages`. Models travel as float32, all masks as float64. `recovery`, sampling, `per_cluster`,
`pad` and refreshed references are not in the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

from emul.primitives.masking.aggregate import Order
from emul.primitives.masking.keys import SktMask, Verify, Zeta
from emul.primitives.robust.rfca import Weighting
from emul.protocols import clustered
from emul.protocols.ebs_cfl import elements, forged, messages, pad
from emul.protocols.ebs_cfl import server as masked
from emul.protocols.ebs_cfl.client import Encode
from emul.protocols.ebs_cfl.client import client as masked_client
from emul.protocols.ebs_cfl.dealer import dealer
from emul.protocols.ebs_cfl.design import Alpha, Masking, Recovery, wrong_masks
from emul.protocols.trust import Refresh, StepNorm, Trusting, doubtful_trust, wrong_trust
from emul.roles import Analysis, Node, Realised, Setting, World


@dataclass(frozen=True)
class Params:
    clusters: int = 2                   # m
    t: int = 2                          # length of a segment; small ones have cheap keys and leak more
    q: int = 1                          # clients of a group
    alpha: Alpha = "compact"            # alpha keys as factors; full: the paper's tensors, 2 (t m)^2 times as much
    zeta: Zeta = "traceless"            # decode masks; zero_sum: the paper, leaves nothing masked
    skt_mask: SktMask = "off"           # masks of re-keying; zero_sum: the paper, needs all clients in each round
    mask_norm: float = 1.0              # sigma, norm of a client's mask rows
    weighting: Weighting = "joint"      # what weights are divided by: the sum of all, or of their cluster (not printed)
    verify: Verify = "per_segment"      # of both mask blocks; per_client: the paper, one scalar, can be evaded
    order: Order = "reassociated"       # sum_first: the paper, quadratic in the number of clients
    profile: Literal["masks", "pad"] = "masks"
    reference: Refresh = "init"         # when g0 is made: once, or {refresh: k}, every k rounds
    parts: Literal["forced", "chosen"] = "forced"       # part c of the root data is of cluster c, or of its best model
    rate: float = 1.0                   # eta
    step_norm: StepNorm = "root"        # length of a step: of a training on root data, of g0 (the paper), or a number
    step_scale: float | None = None     # what it is multiplied with; none: m for joint weights, else 1. The paper: 1
    start_steps: int = 10               # on part c of the root data, before model c is first sent
    reference_steps: int | None = None  # T_s, of g0; none: as many as clients take
    root_steps: int | None = None       # T_l, of `step_norm: root`; none: as many as clients take
    least_weight: float = 1e-6          # W_min: where the sum of the weights is below it, nothing is moved
    tau_v: float | None = None          # of the check of mask rows; none: 1e-9 (1 + sigma) sqrt(t m)
    tau_n: float | None = None          # of the check of the norm; none: 1e-9 (2 + sigma^2)
    recovery: Recovery = "correction"   # when clients are missing; restart: the paper
    resend: int = 0                     # how often a client whose upload is rejected may send it again
    restarts: int = 3                   # in a round, with `recovery: restart`
    min_clients: int | None = None      # a sum needs so many uploads; none: max(2, half of those that take part)
    fraction: float = 1.0               # of the clients, drawn each round
    deadline_s: float | None = None     # of uploads at the server; None: until the fates are known
    dealer_timeout_s: float | None = None       # of what the dealer sends; None: until the fates are known


D = TypeVar("D", Masking, Trusting)


def part_of(kind: Callable[..., D], p: Params) -> D:
    """The parameters that the masks, or the references, have to know."""
    return kind(**{f.name: getattr(p, f.name) for f in fields(kind)})       # type: ignore[arg-type]


async def server(node: Node, p: Params) -> None:
    d, how = part_of(Masking, p), part_of(Trusting, p)
    await (pad.server(node, d, how) if p.profile == "pad" else masked.server(node, d, how))


async def kdc(node: Node, p: Params) -> None:
    d = part_of(Masking, p)
    await (pad.dealer(node, d) if p.profile == "pad" else dealer(node, d))


async def client(node: Node, p: Params) -> None:
    d = part_of(Masking, p)
    await (pad.client(node, d) if p.profile == "pad" else masked_client(node, d))


def _forging(encode: Encode) -> Any:
    async def forger(node: Node, p: Params) -> None:
        await masked_client(node, part_of(Masking, p), encode)
    return forger


BEHAVIOURS = {"scaled": _forging(forged.scaled), "flat_masks": _forging(forged.flat_masks),
              "mixed": _forging(forged.mixed)}
HONEST = clustered.honest_update
MESSAGES = messages.MESSAGES
ROLES = {"server": server, "kdc": kdc, "client": client}
PLACES = {"kdc": "kdc | server[1]"}
STATELESS = ("client",)


def check(params: Params, world: World) -> list[str]:
    """What is wrong with these parameters, if anything."""
    errors = wrong_trust(part_of(Trusting, params), params.fraction, world)
    errors += wrong_masks(part_of(Masking, params), world)
    if params.profile == "pad" and params.weighting == "per_cluster":
        errors.append("weighting = per_cluster: the profile pad has joint weights only")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """What is allowed, and protects nobody, or may leave a cluster behind."""
    return doubtful_trust(part_of(Trusting, params)) + ([] if params.profile == "pad" else [
        "profile = masks: EBS-CFL does not keep updates or cluster membership secret from the server (profile: pad "
        "does, against one that follows the protocol)"])


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Messages of a round without losses."""
    return elements.messages_per_round(params.profile == "pad", round(params.fraction * len(setting.roles["client"])))


EXAMPLE = """
emul: 1
name: ebs_cfl
seed: 7
topology: {generator: star_mesh, clients: 5, servers: 2}
links:
  - {match: "*", latency: 20 ms, bandwidth: 100 Mbit/s}
  - {match: "client*->server1", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, clusters: {rotate: [0, 90]}, root: {samples: 60}, partition: {dirichlet: 0.5},
       model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: ebs_cfl, deadline: 1 s, dealer_timeout: 500 ms}]
stop: {rounds: 2}
"""
