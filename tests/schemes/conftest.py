"""A scheme over a virtual network whose losses a test writes down, without files, processes or a real model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from emul import schemes
from emul.base import rows
from emul.base.streams import generator
from emul.kernel import Crash, Kernel, Plan, StopRule, run_to_end
from emul.learning.device import Device
from emul.learning.results import Results
from emul.network import LinkRule, Network, TopologySpec, build
from emul.network.links.link import Link
from emul.roles.costs import Costs
from emul.roles.desk import Desk, Memory
from emul.roles.events import Compute, Computed, Entered, LeaveRound, Ready, Start, WaitEnd
from emul.roles.node import Node
from emul.roles.trampoline import Role
from emul.roles.world import World
from emul.scenario.placing import place
from emul.wire import Encoded, Message, decode, encode, message_types
from emul.workers.core import Setup
from emul.workers.twin import Twin

LATENCY_NS = 10_000_000

# (kind, source, target, round) -> the copy is lost; nodes by number, 0 is the server
Lost = Callable[[str, int, int, int], bool]
# ... -> what it takes on top of the latency, ns
Late = Callable[[str, int, int, int], int]


class FakeTask:
    """A task without data: "training" moves a tenth of the way to a point of the client's own, with noise."""

    dimension = 40
    spread = 1.0

    def __init__(self, spec: dict[str, Any], clients: int, seed: int, device: str = "cpu", *rest: Any):
        self.seed = seed
        self.device = Device(device)
        self.d = self.dimension = spec.get("d", self.dimension)
        self.spread = spec.get("spread", 1.0)
        self.evaluated: list[np.ndarray] = []
        self.results = Results()

    def prepare(self) -> None:
        pass

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(self.d, np.float32)

    def for_node(self, name: str, client: int | None, round_of: Callable[[], int],
                 transform: object = None, tamper: object = None) -> FakeNodeTask:
        return FakeNodeTask(self, name, client, round_of)

    def named(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        return {"parameters": vector}

    def evaluate(self, vector: np.ndarray) -> dict[str, float]:
        self.evaluated.append(vector)
        return {"accuracy": 0.0}


@dataclass
class FakeNodeTask:
    task: FakeTask
    name: str
    client: int | None
    round_of: Callable[[], int]
    untouched = True                            # it keeps nothing

    @property
    def dimension(self) -> int:
        return self.task.d

    def initial_parameters(self) -> np.ndarray:
        return self.task.initial_parameters()

    def samples(self) -> int:
        return 10 + (self.client or 0)

    def local_update(self, parameters: np.ndarray, share: int | None = None) -> tuple[np.ndarray, int]:
        whose = self.name if share is None else f"client{share + 1}"
        goal = generator(self.task.seed, "goal", whose).standard_normal(self.task.d) * self.task.spread
        noise = generator(self.task.seed, "noise", whose, self.round_of()).standard_normal(self.task.d) * 0.01
        return (0.1 * (goal - parameters) + noise * self.task.spread).astype(np.float32), self.samples()


class ScriptedLink(Link):
    """A link that loses and delays what the test says."""

    __slots__ = ("_late", "_loses", "_usual_ns")

    def __init__(self, src: int, dst: int, lost: Lost, late: Late):
        super().__init__(src, dst, LATENCY_NS, None)
        self._loses, self._late, self._usual_ns = lost, late, LATENCY_NS

    def offer(self, now: int, item: Any, size_bytes: int, round: int) -> bool:
        where = (item.kind, item.source, item.target, round)
        fate = self._loses(*where)
        self._lost = lambda start, end, round, k, packets: fate
        self.latency_ns = self._usual_ns + self._late(*where)
        return super().offer(now, item, size_bytes, round)


class ScriptedNetwork:
    def __init__(self, network: Network, lost: Lost, late: Late):
        self._network, self._lost, self._late = network, lost, late
        self._links: dict[tuple[int, int], Link] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def link(self, u: int, v: int) -> Link:
        if (u, v) not in self._links:
            self._links[u, v] = ScriptedLink(u, v, self._lost, self._late)
        return self._links[u, v]


@dataclass
class Played:
    """What a run left behind."""

    rows: list[tuple[Any, ...]]
    kernel: Kernel
    models: list[np.ndarray]                    # as reported by the server, in order
    reports: dict[int, dict[str, Any]] = field(default_factory=dict)        # round -> the server's values
    why: dict[tuple[int, int], str] = field(default_factory=dict)           # (node, round) -> why it was left

    def sent(self, kind: str) -> list[tuple[int, int, int]]:
        """(round, source, target) of every copy of a type that was sent."""
        return [(r[8], r[2], r[4]) for r in self.rows if r[0] == rows.SEND and r[5] == kind]

    def frame_bytes(self, kind: str) -> list[int]:
        """Size of each copy sent."""
        return [r[6] for r in self.rows if r[0] == rows.SEND and r[5] == kind]


def nothing(*_: Any) -> bool:
    return False


def play(scheme: str, clients: int, params: dict[str, Any], rounds: int = 1, lost: Lost = nothing,
         late: Late | None = None, faults: Sequence[Crash] = (), seed: int = 7, d: int = 40,
         spread: float = 1.0, servers: int = 1) -> Played:
    """Run a scheme on a star mesh; computing takes no virtual time, so that times are those of the links."""
    network = build(TopologySpec(generator="star_mesh", clients=clients, servers=servers),
                    [LinkRule("*", latency_ns=LATENCY_NS)], seed)
    module = schemes.find(scheme)
    placed = place(scheme, module, module.Params(**params), {}, network)
    names = placed.names
    setup = Setup(0, scheme, [], params, seed, names, placed.roles, [1.0] * len(names), [0] * len(names), {},
                  {"d": d, "spread": spread}, "zero", {}, {}, shards=placed.shards, holders=len(placed.holders))
    plan = Plan(names, placed.role_of, placed.vertices, [0] * len(names), [0], StopRule(rounds=rounds), list(faults))
    log: list[tuple[Any, ...]] = []

    class Journal:
        append = log.append

        def round_ended(self) -> None:
            pass

    tasks: list[FakeTask] = []

    def make(*args: Any) -> FakeTask:
        tasks.append(FakeTask(*args))
        return tasks[-1]

    with pytest.MonkeyPatch.context() as patch, Twin() as twin:
        patch.setattr("emul.learning.Task", make)
        twin.open([setup])
        kernel = Kernel(plan, ScriptedNetwork(network, lost, late or (lambda *_: 0)), twin, Journal())  # type: ignore
        run_to_end(kernel)
        twin.finish()
    played = Played(log, kernel, tasks[0].evaluated)
    for row in log:
        if row[0] == rows.REPORT and row[2] == 0:
            played.reports[row[3]] = row[4]
        if row[0] == rows.LEAVE:
            played.why[row[2], row[3]] = row[4]
    return played


class Drive:
    """One role alone: events in, actions out. Computations are done at once."""

    def __init__(self, scheme: str, role: str, node: int, clients: int, params: dict[str, Any]):
        module = schemes.find(scheme)
        names = ["server", *(f"client{k}" for k in range(1, clients + 1))]
        world = World(scheme, 7, names, {"server": [0], "client": list(range(1, clients + 1))}, [1.0] * len(names))
        memory = Memory()
        task = FakeTask({}, clients, 7).for_node(names[node], None if node == 0 else node - 1, lambda: memory.round)
        self.desk = Desk(memory, Costs("zero", scheme), keep=self._keep, fetch=lambda event: self._inbox)
        self.node = Node(node, role, world, self.desk, task)
        self.sent: list[tuple[list[int], Message]] = []         # since the last event
        self.last: Any = None                                   # the action that it is suspended on
        self.left: list[str] = []                               # why it left its rounds
        self._types = message_types(module)
        self._inbox: list[Message] = []
        self._role = Role(self.node, self.desk, module.ROLES[role], module.Params(**params))
        self._go(Start(node, 0, 0))

    def enter(self, round_: int) -> None:
        self._go(Entered(self.node.id, self.node.now_ns, round_))

    def deliver(self, *messages: tuple[int, Message], outcome: WaitEnd = WaitEnd.COMPLETE) -> None:
        """(sender, message) each, all that the wait gets."""
        self._inbox = [self._received(source, message) for source, message in messages]
        self._go(Ready(self.node.id, self.node.now_ns, [], outcome))

    def only(self, kind: type) -> Any:
        """The one message of a type sent since the last event."""
        found = [m for _, m in self.sent if isinstance(m, kind)]
        assert len(found) == 1, f"{len(found)} messages {kind.__name__}, expected one"
        return found[0]

    def _received(self, source: int, message: Message) -> Message:
        arrived = decode(encode(message), self._types)
        object.__setattr__(arrived, "sender", source)
        return arrived

    def _keep(self, source: int, encoded: Encoded, first: int, to: list[int]) -> None:
        self.sent.append((list(to), decode(encoded, self._types)))

    def _go(self, event: Any) -> None:
        self.sent = []
        while True:
            reply = self._role.step(event)
            assert not reply.error, reply.error
            self.left += [a.why for a in reply.actions if isinstance(a, LeaveRound)]
            self.last = reply.actions[-1]
            if not isinstance(self.last, Compute):
                return
            assert self.desk.job is not None
            self.desk.job.run()
            event = Computed(self.node.id, self.node.now_ns)


@pytest.fixture(scope="session", name="play")
def _play() -> Callable[..., Played]:
    return play


@pytest.fixture(scope="session", name="drive")
def _drive() -> type[Drive]:
    return Drive
