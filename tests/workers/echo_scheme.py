"""A scheme for the tests of workers: the server sends bytes, clients pass them round a ring, and things go wrong."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emul.roles import Message, Node, Scheme, Vector


@dataclass(frozen=True)
class Payload(Message):
    data: Vector


@dataclass(frozen=True)
class Blob(Message):
    data: bytes


@dataclass(frozen=True)
class Passed(Message):
    data: Vector
    total: float


@dataclass(frozen=True)
class Params:
    length: int = 8                 # numbers in a payload
    fault: str = ""                 # raise, hang, hold, block: in a client; setup: workers cannot begin
    busy_s: float = 0.0             # real time of a client's computation
    folder: str = ""                # a computation makes the file `begun` there and waits for the file `enough`
    pair: tuple[int, ...] = (1, 2)  # reported by the server, as it is
    blob_bytes: int = 0             # of text that the server sends besides

    def __post_init__(self) -> None:
        if self.fault == "setup" and multiprocessing.parent_process() is not None:
            raise RuntimeError("this worker cannot begin")


def work(p: Params, data: Vector) -> float:
    time.sleep(p.busy_s)
    if p.folder:
        Path(p.folder, "begun").touch()
        while not Path(p.folder, "enough").exists():
            time.sleep(0.01)
    if p.fault == "hang in work":
        spin()
    return float(data.sum())


def spin() -> None:
    while True:
        pass                        # for ever


def hold() -> None:
    sum(range(2 * 10**8))           # seconds of C code that lets no other thread run


blocked = threading.Lock()          # a test holds it until a client has waited for it long enough


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Payload(node.rng.standard_normal(p.length).astype(np.float32)))
            if p.blob_bytes:
                node.broadcast(node.clients, Blob(bytes(p.blob_bytes)))
            answers = await node.gather(Passed, node.clients)
            node.report(parameters=sum(a.data for a in answers.values()), total=sum(a.total for a in answers.values()),
                        pair=repr(p.pair))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            payload = await node.recv(Payload, node.server)
            if p.blob_bytes:
                assert len((await node.recv(Blob, node.server)).data) == p.blob_bytes
            if p.fault == "raise" and round_ == 2 and node.index == 1:
                raise LookupError("a bug of this role")
            if p.fault == "hang" and round_ == 2 and node.index == 1:
                with contextlib.suppress(Exception):
                    spin()
            if p.fault == "block" and round_ == 2 and node.index == 1:
                blocked.acquire(timeout=100)
            if p.fault == "hold" and round_ == 2 and node.index == 1:
                hold()
            total = await node.compute("sum", work, p, payload.data)
            clients = node.clients
            node.send(clients[(node.index + 1) % len(clients)], Passed(payload.data * node.id, total))
            passed = await node.recv(Passed, clients[node.index - 1])
            node.send(node.server, passed)


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Blob, Payload, Passed))
