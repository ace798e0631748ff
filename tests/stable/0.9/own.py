"""A scheme of a user, as it was written for version 0.9: never edited. See docs/stability.md."""

from dataclasses import dataclass

from emul import Message, Node, Scheme, Vector, weighted_mean


@dataclass(frozen=True)
class Params:
    patience_s: float = 1.0                 # how long the server waits


@dataclass(frozen=True)
class Model(Message):
    parameters: Vector                      # (d,) float32


@dataclass(frozen=True)
class Change(Message):
    delta: Vector                           # (d,) float32
    samples: int


async def server(node: Node, p: Params) -> None:
    model = node.task.initial_parameters()
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Model(model))
            answers = await node.gather(Change, node.clients, timeout_s=p.patience_s)
            model = await node.compute("mean", weighted_mean, model, answers)
            node.report(parameters=model, heard=len(answers))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            model = (await node.recv(Model, node.server)).parameters
            delta, samples = await node.compute("train", node.task.local_update, model)
            node.send(node.server, Change(delta, samples))


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Model, Change))
