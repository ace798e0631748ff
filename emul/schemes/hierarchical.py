"""HierFAVG: edge servers average several times for each average of the cloud. Liu et al., ICC 2020, Algorithm 1.

    client k    Delta_k = w_k - w, w_k: kappa_1 steps of local training from the edge's w (`solver` of the task)
    edge l      kappa_2 times: w_l <- w_l + sum_k n_k Delta_k / sum_k n_k, over its clients
    cloud       w <- w + sum_l n_l (w_l - w) / sum_l n_l        n_l: the samples of the edge's last average

The way to the server says which node is below which: edges may stand below edges, each with kappa_2 averages for each
of the one above it, and clients below the server take part in its averages. With kappa_2 = 1 and nothing lost it is
FedAvg but for the rounding of the sums. An edge knows the updates that an average has lost by their fates, or by
`edge_deadline`; what comes after it is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emul.protocols.demands import both, shaped, weighed
from emul.protocols.rounds import finite
from emul.roles import Message, Node, Scheme, Vector, World, checks, weighted_mean
from emul.roles.example import example, lossy


@dataclass(frozen=True)
class Model(Message):
    """From the server or an edge, to those below."""

    parameters: Vector                  # (d,) float32
    turn: int                           # the average of this round that it is sent for, from 1


@dataclass(frozen=True)
class Update(Message):
    """To the one above."""

    delta: Vector                       # (d,) float32, parameters after minus before
    samples: int
    turn: int                           # of the model that it was made from


@dataclass(frozen=True)
class Params:
    edge_rounds: int = 2                # kappa_2, averages at an edge for each of the one above it
    deadline_s: float | None = None     # of an average at the server; None: until the fate of every update is known
    edge_deadline_s: float | None = None        # of an average at an edge


@dataclass
class State:
    model: Vector


async def server(node: Node, p: Params) -> None:
    s = node.state(State(node.task.initial_parameters()))
    async for round_ in node.rounds():
        with round_:
            s.model, samples, received = await average(node, s.model, 1, p.deadline_s)
            node.report(parameters=s.model, samples=samples, received=received)


async def edge(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.parent):
        with round_:
            for _ in range(turns(node, p)):
                above = await model_from_above(node)
                start = model = above.parameters
                samples = 0
                for turn in range(1, p.edge_rounds + 1):
                    model, samples, _ = await average(node, model, first_turn(above, turn, p), p.edge_deadline_s)
                node.send(node.parent, Update(model - start, samples, above.turn))


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.parent):
        with round_:
            for _ in range(turns(node, p)):
                model = await model_from_above(node)
                delta, samples = await node.compute("train", node.task.local_update, model.parameters)
                node.send(node.parent, Update(delta, samples, model.turn))


def first_turn(above: Model, turn: int, p: Params) -> int:
    """The number of an edge's average in this round, over all models that come from above in it."""
    return (above.turn - 1) * p.edge_rounds + turn


def turns(node: Node, p: Params) -> int:
    """The number of models that come from above in a round: those of every edge on the way to the server."""
    found, world = 1, node.world
    above = world.parent(node.id)
    while above is not None and above in world.roles["edge"]:
        found *= p.edge_rounds
        above = world.parent(above)
    return found


async def model_from_above(node: Node) -> Model:
    """Raises NothingToReceive: it is lost."""
    return await node.recv(Model, node.parent, accept=shaped(parameters=(node.task.dimension,)))


async def average(node: Node, model: Vector, turn: int, deadline_s: float | None) -> tuple[Vector, int, int]:
    """One average with those below: the new model, how many samples it has learnt from, how many updates."""
    below = node.joined(node.children)
    node.broadcast(below, Model(model, turn))
    updates = await updates_of(node, below, turn, deadline_s)
    mean = finite(await node.compute("aggregate", weighted_mean, model, updates))
    return mean, sum(update.samples for update in updates.values()), len(updates)


async def updates_of(node: Node, below: Sequence[int], turn: int, deadline_s: float | None) -> dict[int, Update]:
    """{node: its update for this turn}, ascending. An update that comes too late for an earlier one is dropped."""
    sound = both(shaped(delta=(node.task.dimension,)), weighed)
    got, until_s = dict[int, Update](), node.now + (deadline_s or 0.0)
    while True:
        missing = [k for k in below if k not in got]
        left_s = None if deadline_s is None else max(0.0, until_s - node.now)
        came = await node.gather(Update, missing, timeout_s=left_s, accept=sound)
        got |= {k: update for k, update in came.items() if update.turn == turn}
        if len(came) < len(missing) or len(got) == len(below):
            return dict(sorted(got.items()))


def check(params: Params, world: World) -> list[str]:
    """The mistakes in these parameters; none if they are sound."""
    errors = (checks.at_least(1, "at least 1", edge_rounds=params.edge_rounds)
              + checks.times(deadline=params.deadline_s, edge_deadline=params.edge_deadline_s))
    inner = {*world.roles["edge"], world.root}
    lost = [k for role in ("client", "edge") for k in world.roles[role] if world.parent(k) not in inner]
    if lost:
        errors.append(f"places: {world.names[lost[0]]} has neither an edge nor the server as the next node on its way "
                      "to the server")
    return errors


EXAMPLE = example("hierarchical", "edge_rounds: 2, deadline: 2 s, edge_deadline: 500 ms",
                  links=(lossy("n4->n2", p=0.2, per="message"),),
                  topology="tree, branching: 2, height: 2, "
                           "roles: {server: [n1], edge: [n2, n3], client: {rule: leaves}}")

SCHEME = Scheme(
    params=Params, roles={"server": server, "edge": edge, "client": client}, messages=(Model, Update),
    knows_topology=True, oblivious=True, timeouts=("deadline_s", "edge_deadline_s"), check=check, example=EXAMPLE)
