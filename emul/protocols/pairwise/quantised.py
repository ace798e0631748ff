"""Updates as vectors of the ring Z_2^32, summed by the pairwise protocol: the two roles of a scheme of one vector.

Such a scheme is a mask graph and a threshold t.
"""

from __future__ import annotations

from typing import Protocol

from emul.protocols.pairwise.client import pairwise_client
from emul.protocols.pairwise.rules import Route, Rules
from emul.protocols.pairwise.server import Graph, pairwise_server
from emul.protocols.sums import Summed, codec
from emul.roles import Node


class Options(Summed, Protocol):
    """The parameters that schemes of the pairwise protocol have in common."""

    @property
    def route(self) -> Route: ...
    @property
    def verify_spare(self) -> bool: ...
    @property
    def audit(self) -> bool: ...


def rules(p: Options, t: int, active: bool = False, prune: bool = False) -> Rules:
    """What server and clients have agreed on."""
    return Rules(t, p.stage_deadline_s, p.route, active, p.audit, verify_spare=p.verify_spare, prune=prune)


async def serve(node: Node, p: Options, graph: Graph, t: int, active: bool = False, prune: bool = False) -> None:
    """The server of a scheme: rounds over a mask graph, with a threshold of t shares."""
    await pairwise_server(node, graph, rules(p, t, active, prune), codec(p, len(node.clients)), fraction=p.fraction)


async def join(node: Node, p: Options, t: int, active: bool = False) -> None:
    """A client of a scheme."""
    await pairwise_client(node, rules(p, t, active), codec(p, len(node.clients)).encode)
