"""Local SGD in a ring. The differences of a round travel while the peers train in the next one, and count after it.
After Wang, Liang, Joshi 2020, Overlap Local-SGD."""

from dataclasses import dataclass

import numpy as np

from emul import Message, Node, Scheme, Vector


@dataclass(frozen=True)
class Passed(Message):
    delta: Vector                       # (d,) float32, parameters after minus before


@dataclass(frozen=True)
class Params:
    pass


@dataclass
class State:
    model: Vector
    delta: Vector | None = None         # of the last round


async def circulate(node: Node, own: Vector) -> Vector:
    """The mean of all differences. Each goes once around the ring."""
    ring, me = node.nodes("peer"), node.index
    deltas = {me: own}
    for hop in range(1, len(ring)):
        node.send(ring[(me + 1) % len(ring)], Passed(deltas[(me - hop + 1) % len(ring)]))
        received = await node.recv(Passed, ring[me - 1])
        deltas[(me - hop) % len(ring)] = received.delta
    rows = [deltas[place] for place in range(len(ring))]            # one order at all peers: one mean
    return await node.compute("average", np.mean, rows, 0, lane="cpu")


async def peer(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            passing = None if s.delta is None else node.start(circulate(node, s.delta))
            s.delta, _ = await node.compute("train", node.task.local_update, s.model)
            if passing is not None:
                s.model = s.model + await passing
            node.report(parameters=s.model)


SCHEME = Scheme(params=Params, roles={"peer": peer}, messages=(Passed,), lanes=("gpu", "cpu"))
