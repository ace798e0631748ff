"""Nodes that no links join, told before a run: which parts a network has, and who is in which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from emul.base.errors import NetworkError
from emul.base.names import listed
from emul.network.graph.topology import Generated
from emul.network.network import Network

_SHOWN = 5


def cut_off(network: Network, talking: Iterable[tuple[int, int]]) -> str | None:
    """The reason why the two of one of these pairs of vertices cannot talk, each to the other; None: all can."""
    topology = network.topology
    if isinstance(topology, Generated) and topology.forward:
        return None                     # a hub leads everywhere
    joined: set[int] | None = None      # who reaches the first of all, and is reached by it
    for u, v in talking:
        if joined is None:
            ahead, behind = _links(network)
            joined = _from(u, ahead) & _from(u, behind) if topology.forward else set()
        if u in joined and v in joined:
            continue
        for a, b in ((u, v), (v, u)):
            try:
                network.route(a, b)
            except NetworkError:
                return _explained(network, a, b)
    return None


def _links(network: Network) -> tuple[list[list[int]], list[list[int]]]:
    """Vertex -> where its links lead, and vertex -> whence links lead to it."""
    ahead = [list(network.topology.neighbours(u)) for u in range(len(network.names))]
    behind: list[list[int]] = [[] for _ in ahead]
    for u, links in enumerate(ahead):
        for v in links:
            behind[v].append(u)
    return ahead, behind


def _from(start: int, *links: Sequence[Sequence[int]]) -> set[int]:
    """All that can be reached over these links, with the vertex itself."""
    seen, waiting = {start}, [start]
    while waiting:
        u = waiting.pop()
        for each in links:
            found = [v for v in each[u] if v not in seen]
            seen.update(found)
            waiting += found
    return seen


def _explained(network: Network, u: int, v: int) -> str:
    """The reason why v cannot be reached from u."""
    said = f"{_name(network, u)} cannot reach {_name(network, v)}"
    if not network.topology.forward:
        return f"{said}: there is no link between the two, and no vertex forwards (topology.forward: false)"
    links, parts, seen = _links(network), [], set[int]()
    for vertex in range(len(network.names)):
        if vertex not in seen:
            parts.append(sorted(_from(vertex, *links)))
            seen.update(parts[-1])
    if len(parts) == 1:
        return (f"{said}: links lead only the other way; expected edges in both directions, or a file that is not "
                "directed")
    told = "; ".join(_members(network, members) for members in parts[:_SHOWN])
    more = f"; and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else ""
    return f"{said}: no links lead from one part to the other, of {len(parts)} parts: {told}{more}"


def _members(network: Network, members: Sequence[int]) -> str:
    """A part in words: its vertices, and how many of each role are there."""
    within = set(members)
    counts = {role: len(within & set(vertices)) for role, vertices in network.roles.items()}
    has = ", ".join(f"{count} {role}" for role, count in counts.items() if count) or "no node"
    return f"{listed([network.names[v] for v in members], _SHOWN)} ({has})"


def _name(network: Network, v: int) -> str:
    role = next((role for role, vertices in network.roles.items() if v in vertices), "")
    name = network.names[v]
    return f"{role} {name}" if role and role != name else name
