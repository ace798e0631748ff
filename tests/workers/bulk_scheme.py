"""A scheme for the tests of bulk sends: everybody sends everybody else a box of its own, some small and some large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.roles import Message, Node, Octets, Scheme


@dataclass(frozen=True)
class Box(Message):
    sealed: Octets


@dataclass(frozen=True)
class Params:
    bulk: bool = True


async def client(node: Node, p: Params) -> None:
    total = 0
    async for round_ in node.rounds():
        with round_:
            boxes = {j: Box(np.full((20, 5_000)[(node.id + j) % 2], node.id + j, np.uint8)) for j in node.peers}
            if p.bulk:
                node.send_each(boxes)
            else:
                for j, box in boxes.items():
                    node.send(j, box)
            for j, box in (await node.gather(Box, node.peers)).items():
                assert set(box.sealed.tolist()) == {node.id + j}
                total += len(box.sealed)
            node.report(total=total)


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            await node.sleep(0.1)


SCHEME = Scheme(params=Params, roles={"client": client, "server": server}, messages=(Box,))
