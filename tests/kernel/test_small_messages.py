"""Frames of a small message for one node of another worker go with the events; those of all others are shipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emul.network import LinkRule, OutageSpec
from emul.roles import Message, Node
from emul.testing import MS, Shuffled, run_world
from emul.workers.payloads import WITH_EVENT_BYTES


@dataclass(frozen=True)
class Block(Message):
    body: bytes


MESSAGES = (Block,)


class Counting(Shuffled):
    """Counts what is shipped, and what its sender was to drop with it."""

    def __init__(self, workers: int) -> None:
        super().__init__(workers, 1)
        self.shipped: list[bool] = []

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        self.shipped.append(last)
        super().ship(source, first, home, target, last)


def shipped(size: int, broadcast: bool, lost: float = 0.0) -> list[bool]:
    """Whether the sender was to drop them, of all payloads that two clients in two workers are shipped."""
    async def server(node: Node, p: Any) -> None:
        if broadcast:
            node.broadcast(node.clients, Block(bytes(size)))
        else:
            for client in node.clients:
                node.send(client, Block(bytes(size)))
        await node.sleep(1)

    async def client(node: Node, p: Any) -> None:
        if not lost:
            assert (await node.recv(Block, node.server)).body == bytes(size)

    pool = Counting(3)
    links = [LinkRule("*", latency_ns=1 * MS, outage=OutageSpec(p=lost))]
    world = run_world({"server": server, "client": client}, clients=2, links=links, pool=pool)
    assert world.invariants.violations == []
    assert world.digest == run_world({"server": server, "client": client}, clients=2, links=links).digest
    assert not any(pool._outboxes)
    return pool.shipped


@pytest.mark.parametrize(("size", "broadcast", "found"), [
    (100, False, []),                                   # with the events
    (WITH_EVENT_BYTES, False, [True, True]),            # its header makes it larger
    (100, True, [False, True]),                         # one payload for two workers: dropped with the second
])
def test_what_is_small_and_for_one_node_is_not_shipped(size: int, broadcast: bool, found: list[bool]) -> None:
    assert shipped(size, broadcast) == found


@pytest.mark.parametrize("size", [100, 5000])
def test_a_lost_message_is_neither_shipped_nor_kept(size: int) -> None:
    assert shipped(size, False, lost=1.0) == []
