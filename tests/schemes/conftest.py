"""A scheme over a virtual network whose losses a test writes down, without files, processes or a real model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from benchmarks import scripted
from benchmarks.scripted import FakeTask, Late, Lost, Script, nothing
from emul.base import rows
from emul.base.streams import generator
from emul.kernel import Kernel, NodeCrash
from emul.message.wire import Encoded, Message, decode, encode
from emul.registry import schemes
from emul.roles.costs import Costs
from emul.roles.desk import Desk, Memory
from emul.roles.events import Compute, Computed, Entered, LeaveRound, Ready, Start, WaitEnd
from emul.roles.node import Node
from emul.roles.trampoline import Role
from emul.roles.world import World


def towards_a_goal(task: FakeTask, whose: str, round_: int, parameters: np.ndarray) -> np.ndarray:
    """"Training" moves a tenth of the way to a point of the client's own, with noise."""
    spread = task.spec.get("spread", 1.0)
    goal = generator(task.seed, "goal", whose).standard_normal(task.dimension) * spread
    noise = generator(task.seed, "noise", whose, round_).standard_normal(task.dimension) * 0.01
    return (0.1 * (goal - parameters) + noise * spread).astype(np.float32)


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


def play(scheme: str, clients: int, params: dict[str, Any], rounds: int = 1, lost: Lost = nothing,
         late: Late | None = None, faults: Sequence[NodeCrash] = (), seed: int = 7, d: int = 40,
         spread: float = 1.0, servers: int = 1) -> Played:
    """Run a scheme on a star mesh; computing takes no virtual time, so that times are those of the links."""
    run = scripted.play(scheme, clients, params, towards_a_goal,
                        Script(rounds, seed, d, servers, lost, late, faults, spec={"spread": spread}))
    played = Played(run.rows, run.kernel, run.task.evaluated)
    for row in run.rows:
        if row[0] == rows.REPORT and row[2] == 0:
            played.reports[row[3]] = row[4]
        if row[0] == rows.LEAVE:
            played.why[row[2], row[3]] = row[4]
    return played


class Drive:
    """One role alone: events in, actions out. Computations are done at once."""

    def __init__(self, scheme: str, role: str, node: int, clients: int, params: dict[str, Any]):
        found = schemes.find(scheme)
        names = ["server", *(f"client{k}" for k in range(1, clients + 1))]
        world = World(scheme, 7, names, {"server": [0], "client": list(range(1, clients + 1))}, [1.0] * len(names))
        memory = Memory()
        whole = FakeTask(towards_a_goal, {"d": 40}, clients, 7)
        task = whole.for_node(names[node], None if node == 0 else node - 1, lambda: memory.round)
        self.desk = Desk(memory, Costs("zero", scheme), keep=self._keep, fetch=lambda event: self._inbox)
        self.node = Node(node, role, world, self.desk, task)
        self.sent: list[tuple[list[int], Message]] = []         # since the last event
        self.last: Any = None                                   # the action that it is suspended on
        self.left: list[str] = []                               # why it left its rounds
        self._types = found.types
        self._inbox: list[Message] = []
        self._role = Role(self.node, self.desk, found.roles[role], found.params(**params))
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
