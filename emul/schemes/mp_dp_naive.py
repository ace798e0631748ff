"""MP-DP-Naive: a model disguised as in arXiv 2002.09843, and noise for each client alone.

The baseline of X. Yang et al., arXiv 2412.11737, section VI. There are no transitional layers and no pairs:

    R^(1)_ij = r_i,  R^(l)_ij = r_i / r_j,  R^(L)_ij = 1 / r_j,     r ~ U(0, 1) + 1e-5
    client k    c_k ghat_k + N(0, sigma^2 B^2),  and c_k Psi_k, c_k Phi_k as they are
    server      g = R o (ghat - sum_c r_c Psi_c + v Phi) of the mean of all

It fails for two reasons that parameters tell apart: `sigma: ldp` is K times the variance of central noise, which
`sigma: cdp` has; and recovery multiplies the noise by R, of which E R^2 = 3e4 for the published law, 3 with `scales:
chi3`, 3/2 with `transitional: true` besides.

Bytes of the arrays in each message: Disguised q (d + D) + 8 G n_L, Blocks S d q; q = 4 or 8 bytes a real, S blocks, D
diagonals, of which those of transitional layers are ones here.

Protects: a gradient from the server by each client's own noise, and the model, in disguise, from clients. Not: Psi and
Phi, which travel in the clear and give inputs away; false gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from emul.protocols.mp_dp import plain
from emul.protocols.mp_dp.account import spendings
from emul.protocols.mp_dp.opening import Opened
from emul.protocols.mp_dp.plain import Unmasked
from emul.protocols.mp_dp.settings import Settings, wrong_settings
from emul.roles import Analysis, Node, Realised, Scheme, Setting, World
from emul.roles.example import example

if TYPE_CHECKING:
    from emul.learning import NodeTask


@dataclass(frozen=True)
class Params(Unmasked):
    scales: Literal["uniform", "chi3", "log_uniform"] = "uniform"       # law of r
    transitional: bool = False          # R = r_i s_j with transitional layers, as of mp_dp
    sigma: Literal["ldp", "cdp"] = "ldp"        # of each client: enough for it alone, or its share of central noise
    clip: Literal["message", "oracle", "off"] = "oracle"        # by the norm of the message, or of the true gradient,
    #                                     as published

    def settled(self) -> Settings:
        """The parameters of the protocol."""
        return plain.settled(self, preset="naive", scales=self.scales, tied=not self.transitional, clip=self.clip,
                             own="whole" if self.sigma == "ldp" else "share")


async def server(node: Node, p: Params) -> None:
    s = p.settled()
    await plain.serve(node, s, mean, s.sigma_eta(s.cohort(len(node.clients))))


def mean(blocks: Mapping[int, np.ndarray], opened: Opened, task: NodeTask) -> np.ndarray:
    """g of the mean of the blocks."""
    from emul.protocols.mp_dp.algebra import recovered

    return recovered(task.disguise(), opened.known, np.mean(list(blocks.values()), axis=0))


async def client(node: Node, p: Params) -> None:
    await plain.join(node, p.settled())


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return wrong_settings(params.settled())


def warn(params: Params, world: World) -> list[str]:
    """Warnings of everything that is not protected."""
    flaws = params.settled().flaws()
    return ["no (eps, delta) holds against the server: " + "; ".join(flaws)] if flaws else []


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """The guarantee that holds for a client's messages, each of which the server sees alone."""
    s = params.settled()
    found: Analysis = {"guarantee": s.guarantee, "delta": s.delta}
    sigma = s.sigma_eta(s.cohort(len(setting.roles["client"])))
    if not sigma:
        return found
    sent = ((round_, source) for round_, source, _ in run.sent("Blocks"))
    return found | spendings(s, s.bound / sigma, run, sent, setting.rounds, nominal=bool(s.flaws()))


EXAMPLE = example("mp_dp_naive", 'scales: chi3, clip: message, additive: "off", stage_deadline: 1 s',
                  model="digits_mlp")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=plain.MESSAGES, stateless=("client",),
    disguises=True, timeouts=("stage_deadline_s",), check=check, warn=warn, analysis=analysis, example=EXAMPLE)
