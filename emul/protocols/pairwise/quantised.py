"""Updates as vectors of the ring Z_2^32, summed by the pairwise protocol: the two roles of a scheme of one vector.

Such a scheme is a mask graph and a threshold t.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.protocols.pairwise.client import pairwise_client
from emul.protocols.pairwise.rules import PairwiseRules, Route
from emul.protocols.pairwise.server import Graph, pairwise_server
from emul.protocols.sums import WeightedSum, codec
from emul.roles import Node


@dataclass(frozen=True)
class PairwiseSum(WeightedSum):
    """Parameters of such a scheme."""

    route: Route = "server"                 # of encrypted shares
    receipts: bool = False                  # clients say whose shares they lack: no single one ends the round so


def rules(p: PairwiseSum, t: int, active: bool = False, prune: bool = False) -> PairwiseRules:
    """The agreement of server and clients."""
    return PairwiseRules(t, p.stage_deadline_s, p.route, active, p.audit, verify_spare=p.verify_spare, prune=prune,
                         receipts=p.receipts)


async def serve(node: Node, p: PairwiseSum, graph: Graph, t: int, active: bool = False, prune: bool = False) -> None:
    """The server of a scheme: rounds over a mask graph, with a threshold of t shares."""
    await pairwise_server(node, graph, rules(p, t, active, prune), codec(p, len(node.clients)), fraction=p.fraction)


async def join(node: Node, p: PairwiseSum, t: int, active: bool = False) -> None:
    """A client of a scheme."""
    await pairwise_client(node, rules(p, t, active), codec(p, len(node.clients)).encode)
