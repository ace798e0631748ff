"""A client's side: gradients of the blocks, clipping, noise, masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.base.errors import ProtocolViolation
from emul.primitives import ring
from emul.protocols.demands import Refused
from emul.protocols.mp_dp.client import as_agreed, contribution
from emul.protocols.mp_dp.messages import Disguised
from emul.protocols.mp_dp.settings import Settings
from emul.protocols.pairwise.client import contribute
from emul.roles import Node
from emul.schemes.mp_dp.double import DoubleNoise
from emul.schemes.mp_dp.real import take_part


async def join(node: Node, s: Settings) -> None:
    """Rounds of a client, which keeps nothing between them."""
    async for round_ in node.rounds(of=node.server):
        with round_:
            K = s.cohort(len(node.clients))
            disguise = await node.compute("model", node.task.disguise)
            opening = await node.recv(Disguised, node.server, timeout_s=s.rules(K).patience_s,
                                      accept=as_agreed(s, node.task, disguise))
            own = Contribution(node, s, opening, K)
            try:
                if s.repair == "shamir":
                    masking = None if s.masks == "ring" else DoubleNoise(s, opening, node.task.dimension).masked
                    await contribute(node, s.rules(K), own.values, own.encoded, masking)
                else:
                    await take_part(node, s, K, own)
            except ProtocolViolation as e:
                raise Refused(str(e)) from e


@dataclass
class Contribution:
    """A client's contribution to the sum of a round, as `contribute` and `take_part` take it."""

    node: Node
    s: Settings
    opening: Disguised
    K: int
    clipping: float = 1.0

    async def values(self) -> tuple[np.ndarray, int]:
        """((S d,) float64, number of samples)."""
        values, samples, self.clipping = await contribution(self.node, self.s, self.opening)
        return values, samples

    def encoded(self, values: np.ndarray, samples: int) -> tuple[np.ndarray, float]:
        """(values in the ring, or as they are where masks are real; 1 if they were clipped)."""
        clipped = float(self.clipping < 1)
        if self.s.masks == "real":
            return values, clipped
        return ring.encode(values, self.s.f(self.K), self.s.ring_bits, self.K), clipped
