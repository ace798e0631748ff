"""The neighbours of a peer, for schemes without a server: roles are placed on nodes of the kind peer, or client."""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal

from emul.roles import World

Graph = Literal["topology", "ring", "complete"]

PLACES = {"peer": "peer | client"}


def neighbours(world: World, i: int, graph: Graph) -> list[int]:
    """Ascending, of peer i: in the topology those to which a way leads on which no other node lies; on a ring those
    before and after it in the order of numbers; or all others."""
    peers = world.roles["peer"]
    if graph == "topology":         # found in the ascending list: a set of all peers, made for each of them, is n^2
        places = ((j, bisect_left(peers, j)) for j in world.neighbours(i))
        return [j for j, place in places if peers[place:place + 1] == [j]]
    if graph == "complete":
        return [j for j in peers if j != i]
    at = bisect_left(peers, i)
    return sorted({peers[at - 1], peers[(at + 1) % len(peers)]} - {i})


def alone(world: World, graph: Graph) -> list[str]:
    """Mistakes in the graph, for a scheme's `check`: every peer needs a neighbour."""
    lost = [i for i in world.roles["peer"] if not neighbours(world, i, graph)]
    return [f"graph = {graph}: {world.names[lost[0]]} has no neighbour"] if lost else []
