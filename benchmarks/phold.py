"""PHOLD (Fujimoto 1990) as a scheme: every activation receives one message and sends one to a random neighbour.

The classic load for a kernel: no training, no round, as many messages under way as there are nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Message, Node, Scheme


@dataclass(frozen=True)
class Token(Message, unscoped=True):
    hops: int


@dataclass(frozen=True)
class Params:
    shifts: tuple[int, ...] = (1,)      # node i sends to (i + shift) mod n, one of these at random


async def peer(node: Node, p: Params) -> None:
    peers = node.world.roles["peer"]
    n, me = len(peers), node.id
    targets = [(me + shift) % n for shift in p.shifts]
    draw = node.rng.integers(len(targets), size=64).tolist()        # a batch: one draw alone would cost 3 us
    place = 0
    node.send(targets[draw[0]], Token(0))
    while True:
        token = await node.recv_any(Token)
        place += 1
        if place == len(draw):
            draw, place = node.rng.integers(len(targets), size=64).tolist(), 0
        node.send(targets[draw[place]], Token(token.hops + 1))


SCHEME = Scheme(params=Params, roles={"peer": peer}, messages=(Token,))
