"""MP-CDP: the disguised model of MP-DP, and one draw of noise by a trusted server. arXiv 2412.11737, section VI.

    client k    ghat_k, Psi_k, Phi_k of W^ = R o W (+ r)
    server      g_k = R o (ghat_k - sum_c r_c Psi_k,c + v Phi_k);   W <- W - lr / |S| (sum_{k in S} clip_B(g_k) +
                N(0, sigma^2 B^2)),   S: whose blocks have come

The upper bound of what noise leaves of the accuracy. The server recovers and clips each gradient, which the clients
could not: they know neither R nor r. It is trusted with all; (eps, delta) holds against clients, who see models.

Bytes of the arrays in each message: Disguised q (d + D) + 8 G n_L, Blocks S d q; q = 4 or 8 bytes a real, S blocks, D
diagonals.

Protects: the model, in disguise, from clients; a client from all who see the model, by noise of a trusted server. Not:
anything from that server; false gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from emul.protocols.mp_dp import plain
from emul.protocols.mp_dp.account import spendings
from emul.protocols.mp_dp.opening import Opened
from emul.protocols.mp_dp.plain import Unmasked
from emul.protocols.mp_dp.settings import Scales, Settings, wrong_settings
from emul.roles import Analysis, Node, Realised, Scheme, Setting, World
from emul.roles.example import example

if TYPE_CHECKING:
    from emul.learning import NodeTask

GUARANTEE = ("(eps, delta)-DP of one client's whole contribution, which is there or zero, against the other clients; "
             "none against the server, which is trusted with every gradient")


@dataclass(frozen=True)
class Params(Unmasked):
    scales: Scales = "chi3"             # of R

    def settled(self) -> Settings:
        """The parameters of the protocol: nothing is clipped nor noised at a client."""
        return plain.settled(self, preset="central", scales=self.scales)


def sigma_of(s: Settings) -> float:
    """Standard deviation of the noise on the sum."""
    return 0.0 if s.mu is None else s.bound / s.mu


async def server(node: Node, p: Params) -> None:
    s = p.settled()
    await plain.serve(node, s, partial(noisy_mean, bound=s.bound, sigma=sigma_of(s), rng=node.stream("noise")),
                      sigma_of(s))


def noisy_mean(blocks: Mapping[int, np.ndarray], opened: Opened, task: NodeTask, *, bound: float, sigma: float,
               rng: np.random.Generator) -> np.ndarray:
    """(sum clip_B(g_k) + N(0, sigma^2)) / |S|, (d,) float64."""
    from emul.protocols.mp_dp.algebra import recovered

    disguise, total = task.disguise(), np.zeros(task.dimension)
    for own in blocks.values():
        g = recovered(disguise, opened.known, own)
        total += g * min(1.0, bound / max(float(np.linalg.norm(g)), np.finfo(float).tiny))
    return (total + (rng.normal(0.0, sigma, total.size) if sigma else 0.0)) / len(blocks)


async def client(node: Node, p: Params) -> None:
    await plain.join(node, p.settled())


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return wrong_settings(params.settled())


def analysis(params: Params, setting: Setting, run: Realised) -> Analysis:
    """The guarantee that holds, by the clients whose gradients were in the sum of a completed round."""
    s, found = params.settled(), Analysis(guarantee=GUARANTEE, delta=params.delta)
    if s.mu is None:
        return found | {"guarantee": "none: no noise is added"}
    heard = run.heard("Blocks", setting.roles["server"][0])
    summed = ((round_, name) for round_, names in heard.items() for name in sorted(names))
    return found | spendings(s, s.mu, run, summed, setting.rounds, nominal=False)


EXAMPLE = example("mp_cdp", "stage_deadline: 1 s", model="digits_mlp")

SCHEME = Scheme(
    params=Params, roles={"server": server, "client": client}, messages=plain.MESSAGES, stateless=("client",),
    disguises=True, timeouts=("stage_deadline_s",), check=check, analysis=analysis, example=EXAMPLE)
