"""A message that many nodes of one worker read is decoded once for all of them, if nobody can change it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.message.wire import Vector
from emul.roles import Message, Node
from emul.roles.job import Job
from emul.scenario import Stop
from emul.testing import run_world
from emul.workers.twin import Twin


@dataclass(frozen=True)
class Flat(Message):
    values: Vector
    number: int


@dataclass(frozen=True)
class Nested(Message):
    values: list[int]


@dataclass(frozen=True)
class Summed(Message):
    number: int


MESSAGES = (Flat, Nested, Summed)
CLIENTS, ROUNDS = 4, 2
seen: dict[tuple[str, int], list[Message]] = {}


async def server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Flat(np.full(3, round_, np.float32), int(round_)))
            node.broadcast(node.clients, Nested([int(round_)]))
            await node.gather(Summed, node.clients)


async def client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            flat = await node.recv(Flat, node.server)
            nested = await node.recv(Nested, node.server)
            seen.setdefault(("flat", int(round_)), []).append(flat)
            seen.setdefault(("nested", int(round_)), []).append(nested)
            assert flat.sender == nested.sender == node.server
            assert flat.number == nested.values[0] == round_
            nested.values.append(node.id)               # its own list
            node.send(node.server, Summed(int(flat.values.sum()) + len(nested.values)))


def test_messages_of_arrays_and_integers_are_shared_and_others_are_not() -> None:
    seen.clear()
    pool = Twin()
    held: list[Any] = []

    def look() -> None:
        assert pool._core is not None
        held.append(pool._core._newest[0])

    pool_reply = pool.reply

    def reply(node: int, worker: int) -> Any:
        look()
        return pool_reply(node, worker)

    pool.reply = reply                                  # type: ignore[method-assign]
    run_world({"server": server, "client": client}, clients=CLIENTS, stop=Stop(rounds=ROUNDS), pool=pool)
    for number in range(1, ROUNDS + 1):
        flat, nested = seen["flat", number], seen["nested", number]
        assert len(flat) == len(nested) == CLIENTS
        assert all(one is flat[0] for one in flat)
        assert not flat[0].values.flags.writeable       # type: ignore[attr-defined]
        assert len({id(one) for one in nested}) == CLIENTS
    assert seen["flat", 1][0] is not seen["flat", 2][0]
    assert any(one is not None for one in held)
    assert held[-1] is None                             # nothing is kept that nobody will read


def test_a_job_whose_time_nobody_needs_is_measured_where_it_is_long() -> None:
    job = Job("work", _busy, (0.02,), 0.0)
    job.run(counts=False)
    assert job.done
    assert job.cpu_ns >= 10_000_000


def _busy(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
