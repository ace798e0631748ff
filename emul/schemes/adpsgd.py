"""AD-PSGD: peers average with one neighbour at a time, and nobody waits for a round. Lian et al., ICML 2018, Alg. 1.

    peer i      Delta_i <- local training from x_i; then with a random neighbour j
                x_i, x_j <- (x_i + x_j) / 2;  x_i <- x_i + Delta_i

Peer i offers x_i, j answers with x_j before it averages, and i moves by half of what x_j differs from what it has
offered: the sum of both is kept, whatever i has averaged in the meantime. A peer answers between its computations and
while it waits, so that two who have chosen each other do not wait for ever; the paper parts the graph in two for that.
Without an answer within `timeout` it goes on. A round of a peer is one local training; who has made its last says
farewell.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emul.base.errors import TimedOut
from emul.protocols import peers
from emul.protocols.demands import shaped
from emul.protocols.peers import Graph, neighbours
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Scheme, Vector, World, checks
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Offer(Message, unscoped=True):
    """To a neighbour."""

    parameters: Vector                  # x_i, (d,) float32
    number: int                         # of this peer's offers


@dataclass(frozen=True)
class Answer(Message, unscoped=True):
    """Back to who has offered."""

    parameters: Vector                  # x_j, (d,) float32
    number: int                         # of the offer


@dataclass(frozen=True)
class Farewell(Message, unscoped=True):
    """To every neighbour: nothing is answered any more."""


@dataclass(frozen=True)
class Params:
    graph: Graph = "topology"           # the graph of neighbours
    timeout_s: float = 10.0             # the time that an answer is waited for


@dataclass
class State:
    model: Vector
    offers: int = 0
    gone: set[int] = field(default_factory=set)         # neighbours that have said farewell


async def peer(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    near = neighbours(node.world, node.id, p.graph)
    async for round_ in node.rounds():
        with round_:
            delta, _ = await node.compute("train", node.task.local_update, s.model)
            await serve(node, s, node.now)
            averaged = await exchange(node, s, [j for j in node.joined(near) if j not in s.gone], p.timeout_s)
            s.model = finite(s.model + delta)
            node.report(parameters=s.model, averaged=averaged)
    node.broadcast(near, Farewell())


async def exchange(node: Node, s: State, near: list[int], timeout_s: float) -> bool:
    """Average with one of the neighbours. False: there is none, or it has not answered."""
    if not near:
        return False
    j = near[int(node.rng.integers(len(near)))]
    s.offers += 1
    offered = s.model
    node.send(j, Offer(offered, s.offers))
    answer = await serve(node, s, node.now + timeout_s, j)
    if answer is None:
        return False
    s.model = finite(await node.compute("average", moved, s.model, answer - offered))
    return True


def moved(model: Vector, difference: Vector) -> Vector:
    """model + difference / 2."""
    return model + difference / 2


async def serve(node: Node, s: State, until_s: float, j: int | None = None) -> Vector | None:
    """Answer offers until then, or until j has answered this peer's last one: with what it has."""
    def sound(message: Message) -> None:
        if not isinstance(message, Farewell):
            shaped(parameters=s.model.shape)(message)

    while True:
        try:
            message = await node.recv_any(Offer, Answer, Farewell, timeout_s=max(0.0, until_s - node.now), accept=sound)
        except TimedOut:
            return None
        if isinstance(message, Offer):
            node.send(message.sender, Answer(s.model, message.number))
            s.model = finite(await node.compute("average", moved, s.model, message.parameters - s.model))
        elif isinstance(message, Farewell):
            s.gone.add(message.sender)
            if message.sender == j:
                return None
        elif isinstance(message, Answer) and (message.sender, message.number) == (j, s.offers):
            return message.parameters


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    return checks.times(timeout=params.timeout_s) + peers.alone(world, params.graph)


EXAMPLE = example("adpsgd", "graph: ring, timeout: 500 ms", topology="complete, peers: 5",
                  links=(lossy("*->peer1", per="message"),))

SCHEME = Scheme(
    params=Params, roles={"peer": peer}, messages=(Offer, Answer, Farewell), places=peers.PLACES, knows_topology=True,
    oblivious=True, timeouts=("timeout_s",), check=check, example=EXAMPLE)
