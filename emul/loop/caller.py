"""The way between a loop and the roles that do what it says: the loop's thread waits while the roles run, and the roles
wait while the loop computes. Either runs, never both, so real time changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Literal, TypeAlias, cast

import numpy as np

from emul.base.plain import PlainDict

FIRST_BATCH = 1 << 16                   # numbers from here on have 5 bytes in a header, so sizes do not depend on them
Mode: TypeAlias = Literal["synchronous", "asynchronous", "peers"]         # who waits for whom: emul/loop/scheme.py

NO_LOADS = np.zeros((0, 7), np.int64)
NO_TIMES = np.zeros(0)
NO_NODES = np.zeros(0, np.int64)
NO_SENDS = np.zeros((0, 3), np.int64)
NO_MODEL = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Step:
    """One thing that the loop says. A record keeps it, so it is plain; arrays that travel are `Caller.contents`.

    loads: (n, 7) of clients: node, CPU ns, place of its label in `labels`, bytes down, are they declared, bytes up, are
    they declared. takes_s: (n,) seconds that the loop states, -1: none.
    """

    kind: str                           # begin, send, gather, next, late, compute, report, leave, finish
    batch: int = 0
    loads: np.ndarray = field(default_factory=lambda: NO_LOADS)
    takes_s: np.ndarray = field(default_factory=lambda: NO_TIMES)
    labels: list[str] = field(default_factory=list)
    limit: float | None = None          # seconds of a wait
    first: int = 0                      # so many are enough; 0: all
    values: PlainDict = field(default_factory=dict)
    model: np.ndarray = field(default_factory=lambda: NO_MODEL)
    text: str = ""                      # why a round was abandoned


@dataclass(frozen=True)
class Orders:
    """The steps of a loop until it needs an answer. heard: the nodes of the answer before. ordered: their order counts.
    after: the call that was answered."""

    steps: list[Step]
    heard: np.ndarray
    ordered: bool = False
    after: str = ""


@dataclass(frozen=True)
class PeerStep:
    """The part of one peer in an exchange. sends: (n, 3) of its targets: node, bytes, are they declared. heard: those
    that it had heard in the exchange before, as the loop knows it."""

    label: str = "train"
    cpu_ns: int = 0
    takes_s: float = -1.0
    sends: np.ndarray = field(default_factory=lambda: NO_SENDS)
    sources: np.ndarray = field(default_factory=lambda: NO_NODES)
    limit: float | None = None
    heard: np.ndarray = field(default_factory=lambda: NO_NODES)
    values: PlainDict = field(default_factory=dict)
    ends: bool = False


@dataclass(frozen=True)
class Came:
    """An update that has come: whose, of which round, and when it was handed over."""

    node: int
    round: int
    at_ns: int


@dataclass
class LoopAnswer:
    """The answer to orders: the time, and who was heard."""

    now_ns: int = 0
    came: list[Came] = field(default_factory=list)
    heard: dict[int, list[int]] = field(default_factory=dict)       # of an exchange: peer -> whom it has heard


@dataclass(frozen=True)
class RunEnded:
    """The run has ended. results: of `engine.run`; error: what it raised."""

    results: Sequence[object] = ()
    error: BaseException | None = None


class LoopGone(KeyboardInterrupt):
    """The loop is no more: the run ends as an interrupted one does."""


class Caller:
    """The two queues, and the arrays that travel."""

    def __init__(self) -> None:
        self._orders: SimpleQueue[Orders | dict[int, PeerStep] | None] = SimpleQueue()
        self._answers: SimpleQueue[LoopAnswer | RunEnded] = SimpleQueue()
        self._steps: list[dict[int, PeerStep]] = []     # of each exchange: peer -> what it does
        self.loads: dict[int, list[tuple[np.ndarray | None, np.ndarray | None]]] = {}       # batch -> down, up of each
        self.sends: dict[int, dict[int, np.ndarray]] = {}       # of the exchange that goes on: peer -> target -> array
        self.heard: dict[int, list[int]] = {}                   # of that exchange: peer -> whom it has heard
        self.directory: Path | None = None                      # of the run
        self.crashed: set[int] = set()                          # nodes that are down now, as far as the roles are told

    # --- in the thread of the roles ---

    def orders(self, answer: LoopAnswer) -> Orders:
        """Hand the answer over and wait for what comes next. Raises LoopGone."""
        return cast(Orders, self._next(answer))

    def peer_step(self, node: int, number: int, now_ns: int) -> PeerStep:
        """The part of a peer in that exchange. The first who asks for it has the loop go on: all are through with the
        one before, since this one knows so. Raises LoopGone."""
        while len(self._steps) < number:
            heard, self.heard = self.heard, {}
            self._steps.append(cast(dict[int, PeerStep], self._next(LoopAnswer(now_ns, heard=heard))))
        return self._steps[number - 1][node]

    def _next(self, answer: LoopAnswer) -> Orders | dict[int, PeerStep]:
        self._answers.put(answer)
        orders = self._orders.get()
        if orders is None:
            raise LoopGone("the loop was interrupted")
        return orders

    def ended(self, ended: RunEnded) -> None:
        """There will be no more answers."""
        self._answers.put(ended)

    # --- in the thread of the loop ---

    def first_answer(self) -> LoopAnswer | RunEnded:
        """Wait until the roles ask for orders for the first time."""
        return self._answers.get()

    def ask(self, orders: Orders | dict[int, PeerStep]) -> LoopAnswer | RunEnded:
        """Hand orders over and wait for the answer."""
        self._orders.put(orders)
        return self._answers.get()

    def dismiss(self) -> None:
        """There will be no more orders."""
        self._orders.put(None)


_here = threading.local()


def current() -> Caller | None:
    """The loop whose run this thread does; None: there is none."""
    return getattr(_here, "caller", None)


def run_for(caller: Caller) -> None:
    """This thread does the run of that loop from now on."""
    _here.caller = caller
