"""A client's side: gradients of the blocks, clipping, noise, masks."""

from __future__ import annotations

from emul.base.errors import ProtocolViolation
from emul.protocols.demands import Refused
from emul.protocols.mp_dp.client import Contribution, as_agreed
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
