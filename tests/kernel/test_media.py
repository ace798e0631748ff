"""Half-duplex links in a run: both directions are one medium, and messages come to it in the order of time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from emul.base import rows as R
from emul.network import LinkRule, OutageSpec
from emul.roles import Message, Node
from emul.testing import MS, Shuffled, run_world

RATE = 8_000_000                    # bit/s: 1 byte takes 1 us
LINKS = [LinkRule("*", latency_ns=1 * MS, bandwidth_bps=RATE, duplex="half")]


@dataclass(frozen=True)
class Block(Message):
    body: bytes


MESSAGES = (Block,)


def test_both_directions_take_turns() -> None:
    async def server(node: Node, p: Any) -> None:
        node.broadcast(node.clients, Block(bytes(4000)))
        await node.gather(Block, node.clients)

    async def client(node: Node, p: Any) -> None:
        await node.sleep(0.001)             # the medium is taken when this one sends
        node.send(node.server, Block(bytes(1000)))
        await node.recv(Block, node.server)

    world = run_world({"server": server, "client": client}, clients=2, links=LINKS)
    sent = {(row[2], row[4]): row[7] for row in world.rows if row[0] == R.SEND}
    arrived = {(row[2], row[3]): row[1] for row in world.rows if row[0] == R.DELIVER}
    down, up = sent[0, 1], sent[1, 0]
    assert arrived[0, 0] == arrived[0, 1] == down * 1000 + 1 * MS       # to each client a medium of its own
    assert arrived[1, 0] == (down + up) * 1000 + 1 * MS                 # not sent before the other is through
    assert world.invariants.violations == []


@pytest.mark.parametrize("seed", range(4))
def test_neither_lookahead_nor_the_order_of_answers_shows(seed: int) -> None:
    async def server(node: Node, p: Any) -> None:
        for _ in range(8):
            node.broadcast(node.clients, Block(bytes(700)))
            await node.recv_any(Block, timeout_s=0.002)

    async def client(node: Node, p: Any) -> None:
        for _ in range(8):
            node.send(node.server, Block(bytes(900 + node.id)))
            node.send(node.clients[0], Block(bytes(300)))               # through the server
            await node.recv_any(Block, timeout_s=0.0013 * node.id)

    links = [*LINKS, LinkRule("*", outage=OutageSpec(p=0.3)), LinkRule("client3<->server", duplex="full")]
    roles = {"server": server, "client": client}
    reference = run_world(roles, links=links, lookahead=False)
    assert reference.invariants.violations == []
    ahead = run_world(roles, links=links)
    assert [ahead.of(n) for n in range(4)] == [reference.of(n) for n in range(4)]
    assert run_world(roles, links=links, pool=Shuffled(2, seed)).digest == ahead.digest
