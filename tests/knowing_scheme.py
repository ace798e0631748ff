"""Clients tell their edge what they know of the topology; edges tell the server."""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Message, Node, Scheme


@dataclass(frozen=True)
class Params:
    pass


@dataclass(frozen=True)
class Known(Message):
    names: list[str]
    hops: int
    latency_s: float


def known(node: Node) -> Known:
    names = node.world.names
    return Known([names[k] for k in [*node.neighbours, *node.children, node.nearest("edge"), node.parent]],
                 node.hops(node.server), node.latency_s(node.server))


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast([*node.nodes("edge"), *node.clients], Known([], 0, 0.0))
            got = await node.gather(Known, [*node.nodes("edge"), *node.clients])
            node.report(**{node.world.names[k]: f"{' '.join(m.names)} {m.hops} {m.latency_s}" for k, m in got.items()})


async def follower(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Known, node.server)
            node.send(node.server, known(node))


SCHEME = Scheme(
    params=Params, roles={"server": server, "edge": follower, "client": follower}, messages=(Known,),
    knows_topology=True)
