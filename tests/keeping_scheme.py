"""A scheme for tests: clients keep arrays, the server reports a vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emul.roles import Message, Node, Scheme, Vector


@dataclass(frozen=True)
class Go(Message):
    parameters: Vector


@dataclass(frozen=True)
class Done(Message):
    pass


@dataclass(frozen=True)
class Params:
    pass


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            model = node.task.initial_parameters() * np.float32(round_)
            node.broadcast(node.clients, Go(model))
            await node.gather(Done, node.clients)
            node.report(parameters=model)


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Go, node.server)
            node.keep(f"round {int(round_)}", np.full((2, 3), round_, np.int16))
            node.keep("mean/all", float(round_))
            node.send(node.server, Done())


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Go, Done))
