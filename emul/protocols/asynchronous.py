"""Training without rounds at the clients: the server hands its model out and goes on with whatever comes back.

    server      hands its newest model to clients, so that `concurrency` of them train at any time; once `buffer`
                updates have come, w <- aggregate(w, them), a new version, and the server's round is over
    client k    v_k, n_k = train(w)         v_k: a difference or a model, as the scheme has it

A round of the server is a version of its model; a client counts its own trainings. Messages belong to no round. A
client that trains, or whose update waits in the buffer, is not chosen; the others are drawn uniformly. A client that is
not heard of for `timeout` is given up: another is chosen, and what comes from it afterwards is dropped. The round fails
(TimedOut) if nothing is taken for so long; the buffer is kept.

Bytes of the arrays in each message, without its header: Model 4 d, Update 4 d.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from emul.base.errors import TimedOut
from emul.learning import NodeTask
from emul.learning.objectives import Proximal
from emul.protocols import updates
from emul.protocols.demands import Demand, both, demand, shaped, weighed
from emul.protocols.rounds import finite
from emul.protocols.updates import Compression, Sent
from emul.roles import Message, Node, Octets, Vector


@dataclass(frozen=True)
class Model(Message, unscoped=True):
    """Server to client."""

    parameters: Vector              # w, (d,) float32
    number: int                     # of the hand-out


@dataclass(frozen=True)
class Update(Message, unscoped=True):
    """Client to server."""

    vector: Vector                  # v_k, (d,) float32
    samples: int                    # n_k
    number: int                     # of the hand-out that it answers


@dataclass(frozen=True)
class PackedUpdate(Message, unscoped=True):
    """Client to server, in place of Update, of a scheme that sends differences."""

    code: Octets                    # of v_k, as `compress` says
    samples: int
    number: int


MESSAGES = (Model, Update, PackedUpdate)
PLAIN = (Model, Update)                 # of schemes that send models, which no codec takes


@dataclass(frozen=True)
class Arrived:
    """An update that has been taken."""

    vector: Vector
    samples: int
    staleness: int                  # versions between the model that it was made from and the one it meets


Train = Callable[[Vector], Awaitable[tuple[Vector, int]]]                   # w -> (v_k, n_k)
Aggregate = Callable[[Vector, dict[int, Arrived]], Awaitable[Vector]]       # w, {client: its update} -> w


@dataclass(frozen=True)
class Assignment:
    """The work that a client has been given."""

    number: int                     # of the hand-out
    version: int                    # of the model
    since_s: float                  # virtual time


@dataclass
class Handed:
    """The clients that train, and their models. It is part of a server's state."""

    training: dict[int, Assignment] = field(default_factory=dict)
    count: int = 0                  # hand-outs so far
    dropped: int = 0                # updates that came from those who had been given up, since this was last told

    def out(self, node: Node, clients: Collection[int], model: Vector, version: int) -> None:
        """Send the model to these clients."""
        self.count += 1
        self.training |= dict.fromkeys(clients, Assignment(self.count, version, node.now))
        node.broadcast(clients, Model(model, self.count))

    def back(self, update: Update | PackedUpdate) -> Assignment | None:
        """The assignment that an update answers; None: nothing that its client still has to do, and it is to be
        dropped."""
        task = self.training.get(update.sender)
        if task is None or task.number != update.number:
            self.dropped += 1
            return None
        return self.training.pop(update.sender)

    def give_up(self, until_s: float) -> list[int]:
        """Forget those who have trained since `until_s` or longer. The first in the dictionary have done so longest."""
        gone = list(takewhile(lambda k: self.training[k].since_s <= until_s, self.training))
        self.forget(gone)
        return gone

    def forget(self, clients: Collection[int]) -> None:
        """Give these clients up."""
        for k in clients:
            self.training.pop(k, None)

    def take_dropped(self) -> int:
        """The number of updates that were dropped since the last call."""
        dropped, self.dropped = self.dropped, 0
        return dropped


@dataclass
class State:
    model: Vector
    version: int = 0
    handed: Handed = field(default_factory=Handed)
    buffer: dict[int, Arrived] = field(default_factory=dict)


async def asynchronous_server(node: Node, aggregate: Aggregate, *, buffer: int = 1, concurrency: int | None = None,
                              timeout_s: float) -> None:
    """Rounds of the server, from the task's initial parameters.

    buffer: updates that make a new version. concurrency: clients that train at once; None: all. timeout_s: after this a
    client is given up, and a round in which nothing was taken for so long has failed.
    """
    s = node.state(State(node.task.initial_parameters()))
    how = updates.compression(node)
    kind: type[Update | PackedUpdate] = Update if how.up is None else PackedUpdate
    sound = answer(s.model.shape) if how.up is None else both(updates.sound(how.up, s.model.size), weighed)
    idle = set(node.clients) - s.handed.training.keys() - s.buffer.keys()      # kept: n of them, and an update for each
    async for round_ in node.rounds():
        with round_:
            heard_s = node.now
            while len(s.buffer) < buffer:
                idle.update(s.handed.give_up(node.now - timeout_s))
                clients = chosen(node, idle, (concurrency or node.world.clients) - len(s.handed.training))
                if clients:
                    s.handed.out(node, clients, s.model, s.version)
                    idle.difference_update(clients)
                update = await node.recv_any(kind, timeout_s=left(node, heard_s + timeout_s), accept=sound)
                task = s.handed.back(update)
                vector = None if task is None else await opened(node, how, update, s)
                if task is not None and vector is None:
                    idle.add(update.sender)
                if task is not None and vector is not None:
                    heard_s = node.now
                    s.buffer[update.sender] = Arrived(vector, update.samples, s.version - task.version)
            arrived, s.buffer = dict(sorted(s.buffer.items())), {}
            idle.update(arrived)
            s.model = finite(await aggregate(s.model, arrived))
            s.version += 1
            missed = [one.staleness for one in arrived.values()]
            node.report(parameters=s.model, received=len(arrived), staleness=sum(missed) / len(missed),
                        staleness_most=max(missed), dropped=s.handed.take_dropped())


async def opened(node: Node, how: Compression, update: Update | PackedUpdate, s: State) -> Vector | None:
    """The vector of an update; None: nobody can have encoded it, and it counts as dropped."""
    if isinstance(update, Update):
        return update.vector
    assert how.up is not None
    found = await node.compute("decode", updates.decoded, how.up, update.code, s.model.size, work=s.model.size)
    s.handed.dropped += found is None
    return found


def answer(shape: tuple[int, ...]) -> Demand:
    """The demands of a server on an update whose vector has this shape."""
    return both(shaped(vector=shape), weighed)


def left(node: Node, until_s: float) -> float:
    """The time left until `until_s`, seconds. Raises TimedOut if it has passed."""
    if node.now >= until_s:
        raise TimedOut("no update that was asked for")
    return until_s - node.now


def chosen(node: Node, idle: set[int], count: int) -> list[int]:
    """`count` of the idle clients that have joined, ascending, uniformly drawn; all, if there are no more."""
    clients: Sequence[int] = node.world.roles["client"]
    if node.world.rounds:
        clients = node.joined(clients)
        idle = idle.intersection(clients)
    if count >= len(idle):
        return sorted(idle)
    rng, found = node.stream("hand out"), set[int]()
    while len(found) < count:               # few are busy: no list of all the others for each that comes back
        k = clients[int(rng.integers(len(clients)))]
        if k in idle:
            found.add(k)
    return sorted(found)


async def asynchronous_client(node: Node, train: Train) -> None:
    """Train whenever the server asks for it, once for a hand-out; keep nothing but what codecs want."""
    how = updates.compression(node)
    s = Sent() if how.up is None else node.state(Sent())
    # No round says here how much a client may be asked to do, and no honest server sends a hand-out twice: a client
    # that trained for each copy of a flood would keep a run going a hundred times as long. Numbers are kept and not
    # the highest of them, since a network may deliver a hand-out after the next one.
    trained = set[int]()

    def sound(message: Model) -> None:
        demand(message.sender == node.server, "a model from somebody who is not the server")
        shaped(parameters=(node.task.dimension,))(message)
        demand(message.number not in trained, "a hand-out that this client has trained for")

    async for round_ in node.rounds():
        with round_:
            model = await node.recv_any(Model, accept=sound)
            number = model.number
            trained.add(number)
            vector, samples = await train(model.parameters)
            del model                       # this node may wait long for the next one
            if how.up is None:
                node.send(node.server, Update(vector, samples, number))
            else:
                code = await node.compute("encode", updates.encoded, how.up, s, vector, node.stream("compress"),
                                          work=vector.size)
                node.send(node.server, PackedUpdate(code, samples, number))


async def train_difference(node: Node, model: Vector) -> tuple[Vector, int]:
    """Local training as the scenario says it: (parameters after minus before, number of samples)."""
    found: tuple[Vector, int] = await node.compute("train", node.task.local_update, model)
    return found


async def train_model(node: Node, mu: float, model: Vector) -> tuple[Vector, int]:
    """Local training that is held near `model` by (mu / 2) |w - model|^2: (parameters after it, number of samples)."""
    if mu:
        return await node.compute("train", near, node.task, model, mu)
    delta, samples = await train_difference(node, model)        # as others do, and charged as that
    return model + delta, samples


def near(task: NodeTask, model: Vector, mu: float) -> tuple[Vector, int]:
    """The computation of `train_model` with mu above 0."""
    delta, samples = task.minimise(model, task.objective + Proximal(mu))
    return model + delta, samples
