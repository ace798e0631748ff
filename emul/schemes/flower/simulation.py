"""A Flower app in Flower's local simulation: what `flwr run` with simulated SuperNodes does, step by step.

All of it is one machine: no network, no processes that start. `num_actors` actors take messages in turn, whichever
node these are for, so that a node works on several at once (`worker` of `server/superlink/fleet/vce/vce_api.py` has no
lock for a node). A thread looks for new messages now and then, one a node at a time (`add_messages_to_queue`), and the
app for replies (`InMemoryGrid`); both waits come from `installed`. A node's context is read as a message begins, and
written as it ends: of two at once the last one counts. Not modelled: seconds of Ray, and an actor that `sys.exit` of a
ClientApp ends.

Imported only where an app runs with `runtime: simulation`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial

from flwr.app import Message

from emul import roles
from emul.protocols.demands import demand
from emul.roles import Node
from emul.schemes.flower import encoding, installed
from emul.schemes.flower.hosting import AppParams, Client, label_of, lanes, serve
from emul.schemes.flower.messages import Answer, Call
from emul.schemes.flower.polling import PollingGrid, Stages


@dataclass
class Posted:
    """A message of the app for a node. name: Flower's. looked_ns: when the thread has found it."""

    name: str
    node: int
    call: Call
    expires_ns: int
    times: Stages
    looked_ns: int = 0


class Engine:
    """The threads beside the ServerApp: messages come to actors, and replies to the app."""

    def __init__(self, node: Node, actors: int, look_s: float):
        self.replies: dict[str, tuple[Posted, Answer]] = {}        # by the name of the message, in the order of arrival
        self._node, self._look_ns = node, round(look_s * 1e9)
        self._idle = actors
        self._new: list[Posted] = []               # pushed, and no look has come since
        self._queue: deque[Posted] = deque()       # for the next actor that is idle
        self._working: dict[str, Posted] = {}
        self._begun_ns = node.now_ns - round(node.stream("looks").random() * self._look_ns)

    def push(self, jobs: Sequence[Posted]) -> None:
        """The app has pushed messages."""
        if jobs and not self._new:
            self._node.start(self._look(), carry=True)
        self._new += jobs

    async def _look(self) -> None:
        """Look for messages each `look_s`, as long as there are some: the oldest one of each node."""
        while True:
            await self._node.sleep((self._look_ns - (self._node.now_ns - self._begun_ns) % self._look_ns) / 1e9)
            oldest = {job.node: job for job in reversed(self._new)}
            self._new = [job for job in self._new if oldest[job.node] is not job]
            for node in sorted(oldest):
                oldest[node].looked_ns = self._node.now_ns
                self._queue.append(oldest[node])
            self._hand_out()
            if not self._new:
                return

    def _hand_out(self) -> None:
        while self._idle and self._queue:
            job, now = self._queue.popleft(), self._node.now_ns
            if now >= job.expires_ns:
                continue                        # the state has forgotten it
            self._idle -= 1
            self._working[job.name] = job
            times = job.times
            times.free = times.pushed + now - job.looked_ns         # busy: as long as no actor was idle
            times.delivered = times.received = now
            self._node.send(job.node, job.call)

    async def gather(self) -> None:
        """Take replies, each of which ends the work of an actor, as long as the role lasts."""
        def sound(answer: roles.Message) -> None:
            demand(isinstance(answer, Answer) and encoding.answered(answer) in self._working, "no reply to a message")

        while True:
            answer = await self._node.recv_any(accept=sound)
            assert isinstance(answer, Answer)
            job = self._working.pop(encoding.answered(answer))
            job.times.replied = job.times.there = self._node.now_ns
            job.times.compute = job.times.there - job.times.received
            self.replies[job.name] = job, answer
            self._idle += 1
            self._hand_out()


@dataclass
class SimulationGrid(PollingGrid):
    """Flower's `InMemoryGrid`."""

    engine: Engine = field(kw_only=True)

    def _push(self, messages: list[Message], floating: bool) -> list[str]:
        self.ledger.push(self.clock.now_ns)
        return super()._push(messages, floating)

    def outgoing(self) -> list[tuple[list[int], Call]]:
        """None: those that the app has pushed are the engine's now."""
        jobs, number_of = [], {node: number for number, node in self.node_of.items()}
        for nodes, call in super().outgoing():
            object.__setattr__(call, "floating", True)          # of no round: its answer is never late
            number = encoding.number_of(call)
            for node in nodes:
                name = encoding.message_id(number, number_of[node])
                if name in self._asked:
                    jobs.append(Posted(name, node, call, self._asked[name].expires_ns, Stages(self.clock.now_ns, 0)))
        self.engine.push(jobs)
        return []

    def _fetch(self, names: Sequence[str]) -> None:
        wanted = set(names)
        for name in [name for name in self.engine.replies if name in wanted]:
            job, answer = self.engine.replies.pop(name)
            self.ledger.pull(self.clock.now_ns, job.times)
            self._take([answer])


def begin(node: Node, p: AppParams) -> Callable[..., SimulationGrid]:
    """Start the threads beside the ServerApp; its Grid, but for what all Grids have."""
    waits = installed.simulation(p)
    engine = Engine(node, p.num_actors, waits.look_s)
    node.start(engine.gather())
    return partial(SimulationGrid, poll_s=waits.server_poll_s, engine=engine)


async def simulated(node: Node, p: AppParams) -> None:
    """The role of a client: the actors that work for it."""
    def asked(call: roles.Message) -> None:
        demand(isinstance(call, Call) and call.sender == node.server, "no call of the server")

    async def work(call: Call) -> None:
        lane, own = idle.pop(0), Client(deepcopy(client.context), client.calls)
        client.calls += 1
        served = await node.compute(label_of(call), serve, node, p, own, call, lane=lane)
        if served is not None:
            if served.diverged:
                node.report(diverged=served.diverged)
            await node.sleep(served.slept_s)
            node.send(node.server, served.answer(call, node.now_ns))
        client.context = own.context
        idle.append(lane)

    client, idle = Client(), lanes(p)
    while True:
        call = await node.recv_any(accept=asked)
        assert isinstance(call, Call)
        node.start(work(call))
