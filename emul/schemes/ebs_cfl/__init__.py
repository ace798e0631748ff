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

Models travel as float32, all masks as float64. `recovery`, sampling, `per_cluster`, `pad` and refreshed references are
not in the paper.

`messages`      the twelve messages of the protocol; read them first; `elements` counts what they hold
`dealer_role`, `client_role` (and what clients that cheat upload), `server_role`; `design`: what they have agreed on
`pad`           the profile that hides updates: its algebra and its roles
`masking`       the algebra; it names what is printed differently
`attacks`       what the server learns of updates and clusters

Protects: with `profile: pad` an update and its cluster from a server that follows the protocol; against false updates:
cosine with trusted references. Not: the published protocol hides neither from the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from emul.protocols import clustered
from emul.protocols.trust import doubtful_trust, wrong_trust
from emul.roles import Analysis, Node, Realised, Scheme, Setting, World
from emul.roles.example import example, lossy
from emul.schemes.ebs_cfl import client_role, messages, pad
from emul.schemes.ebs_cfl import server_role as masked
from emul.schemes.ebs_cfl.client_role import Encode
from emul.schemes.ebs_cfl.client_role import client as masked_client
from emul.schemes.ebs_cfl.dealer_role import dealer
from emul.schemes.ebs_cfl.design import Masking, wrong_masks


@dataclass(frozen=True)
class Params(Masking):
    """`Masking` declares those of the masks, `Trusting` those of the references."""

    profile: Literal["masks", "pad"] = "masks"


async def server(node: Node, p: Params) -> None:
    await (pad.server(node, p) if p.profile == "pad" else masked.server(node, p))


async def kdc(node: Node, p: Params) -> None:
    await (pad.dealer(node, p) if p.profile == "pad" else dealer(node, p))


async def client(node: Node, p: Params) -> None:
    await (pad.client(node, p) if p.profile == "pad" else masked_client(node, p))


def _forging(encode: Encode) -> Any:
    async def forger(node: Node, p: Params) -> None:
        await masked_client(node, p, encode)
    return forger


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = wrong_trust(params, world) + wrong_masks(params, world)
    if params.profile == "pad" and params.weighting == "per_cluster":
        errors.append("weighting = per_cluster: the profile pad has joint weights only")
    return errors


def warn(params: Params, world: World) -> list[str]:
    """Warnings of parameters that are allowed, but protect nobody or may leave a cluster behind."""
    return doubtful_trust(params) + ([] if params.profile == "pad" else [
        "profile = masks: EBS-CFL does not keep updates or cluster membership secret from the server (profile: pad "
        "does, against one that follows the protocol)"])


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """Messages of a round without losses."""
    return messages.messages_per_round(params.profile == "pad", round(params.fraction * len(setting.roles["client"])))


EXAMPLE = example("ebs_cfl", "deadline: 1 s, dealer_timeout: 500 ms", topology="star_mesh, clients: 5, servers: 2",
                  bandwidth="100 Mbit/s", links=(lossy("client*->server1"),),
                  task=("clusters: {rotate: [0, 90]}", "root: {samples: 60}"), solver="lr: 0.1, steps: 2, batch: 16",
                  rounds=2)

SCHEME = Scheme(
    params=Params, roles={"server": server, "kdc": kdc, "client": client}, messages=messages.MESSAGES,
    behaviours={"client": {"scaled": _forging(client_role.scaled), "flat_masks": _forging(client_role.flat_masks),
                           "mixed": _forging(client_role.mixed)}},
    places={"kdc": "kdc | server[1]"}, stateless=("client",), timeouts=("deadline_s", "dealer_timeout_s"),
    honest=clustered.honest_update, check=check, warn=warn, analysis=analysis, accuracy="cluster", example=EXAMPLE)
