"""Everybody sends a message of its own to everybody else, round after round: what sharing secrets does to a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.roles import Message, Node, Octets, Scheme


@dataclass(frozen=True)
class Box(Message):
    sealed: Octets


@dataclass(frozen=True)
class Params:
    nbytes: int = 64
    bulk: bool = True                   # by `send_each`; else one by one


async def peer(node: Node, p: Params) -> None:
    others = node.peers
    async for round_ in node.rounds():
        with round_:
            boxes = np.zeros((len(others), p.nbytes), np.uint8)
            boxes[:, 0] = round_
            if p.bulk:
                node.send_each({j: Box(boxes[k]) for k, j in enumerate(others)})
            else:
                for k, j in enumerate(others):
                    node.send(j, Box(boxes[k]))
            got = await node.gather(Box, others)
            node.report(boxes=len(got))


SCHEME = Scheme(params=Params, roles={"peer": peer}, messages=(Box,))
