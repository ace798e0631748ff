"""Nobody sends outside of contacts: server and clients read the plan, and wait for one with room for a message."""

from __future__ import annotations

from dataclasses import dataclass

from emul.roles import Message, Node, Scheme, Vector

EXAMPLE = """
emul: 1
name: passing
seed: 1
topology: {generator: star, clients: 5}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [passing_scheme]
stop: {rounds: 2}
"""


@dataclass(frozen=True)
class Params:
    room_s: float = 0.08            # that a contact must last still


@dataclass(frozen=True)
class Model(Message):
    parameters: Vector


@dataclass(frozen=True)
class Change(Message):
    difference: Vector
    seen: str                       # the contact in which it is sent


async def contact(node: Node, other: int, p: Params) -> str:
    """Wait for the next contact that has room; its text."""
    for start_s, end_s, rate_bps, hop in node.contacts(other):
        if end_s - max(start_s, node.now) >= p.room_s:
            await node.sleep(max(0.0, start_s - node.now))
            return f"{start_s} {end_s} {rate_bps} {hop}"
    raise AssertionError("the plan has no more contacts")


async def server(node: Node, p: Params) -> None:
    parameters = node.task.initial_parameters()
    async for round_ in node.rounds():
        with round_:
            for client in sorted(node.clients, key=lambda k: next(node.contacts(k))):
                await contact(node, client, p)
                node.send(client, Model(parameters))
            got = await node.gather(Change, node.clients)
            parameters = parameters + sum(m.difference for m in got.values()) / len(node.clients)
            node.report(parameters, **{node.world.names[k]: m.seen for k, m in got.items()})


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            model = await node.recv(Model, node.server)
            difference, _ = await node.compute("train", node.task.local_update, model.parameters)
            seen = await contact(node, node.server, p)
            node.send(node.server, Change(difference, seen))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Model, Change),
                knows_topology=True, example=EXAMPLE)
