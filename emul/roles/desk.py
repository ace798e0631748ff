"""The engine's side of a node: what passes between a role and the worker that runs it.

A role sees its `Node` alone. The trampoline and the worker hold the `Desk` of the same node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter_ns
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base.clock import cpu_ns
from emul.message.wire import Encoded, Message, Vector
from emul.roles.costs import Costs
from emul.roles.events import Action, Ready

if TYPE_CHECKING:           # a circle: a node begins activities, which wait as it does and act through its desk
    from emul.roles.activities import Activities

LANE = "compute"                    # the lane of all computations, unless a scheme declares others

Evaluate = Callable[[Vector], Mapping[str, float]]      # of reported parameters, off the clock
# source, message, number of the first copy, targets -> its frames, if they travel with the action
Keep = Callable[[int, Encoded, int, list[int]], list[bytes] | None]
Observe = Callable[[int, int, Vector, Evaluate | None], str]            # node, round, parameters, how -> their digest
Artefact = Callable[[int, str, int, object], None]      # node, name, round, array: left in the run directory
Fetch = Callable[[Ready], list[Message]]                # the messages that an event names


@dataclass(slots=True)
class Memory:
    """The part of a node that survives a crash with return."""

    state: Any = None
    round: int = 0
    sent: int = 0                               # copies sent so far: the next sequence number
    computed: int = 0                           # computations begun so far
    activities: int = 0                         # begun so far
    generators: dict[str, np.random.Generator] = field(default_factory=dict)


class Job:
    """A computation that has begun in virtual time. It really runs once, sooner or later, whatever happens."""

    __slots__ = ("alone", "args", "before", "cpu_ns", "done", "due", "error", "fn", "label", "number", "result",
                 "volatile", "work")

    def __init__(self, label: str, fn: Callable[..., object], args: tuple[object, ...], work: float, number: int = 0,
                 volatile: bool = False):
        self.label, self.fn, self.args, self.work = label, fn, args, work
        self.number = number                        # its number among the node's computations, from 0
        self.volatile = volatile                    # its result cannot repeat itself
        self.due = 0
        self.alone = False                          # as `Compute.alone`
        self.before: Job | None = None              # of the same node, begun before it and not yet done
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.cpu_ns = 0

    @property
    def same(self) -> str:
        """The name of the computation, if its cost is the same for every scheme that asks for it: a method of the
        learning task with its plain arguments and the shapes of its arrays (`NodeTask.charged_alike`). "": a function
        of the scheme's own, or an argument of another kind."""
        fn, args, keys = self.fn, self.args, dict[str, Any]()
        if isinstance(fn, partial):
            args, keys = fn.args + args, fn.keywords
            fn = fn.func
        charged_alike = getattr(getattr(fn, "__self__", None), "charged_alike", None)
        if charged_alike is None:
            return ""
        told = [*map(_told, args), *(f"{key}={_told(value)}" for key, value in sorted(keys.items()))]
        return "" if any(text.endswith("?") for text in told) else f"{charged_alike(fn.__name__)}({', '.join(told)})"

    def run(self, counts: bool = True) -> None:
        """Call the function here and now. Keeps its result, or the exception to be raised where the role awaits it, and
        its CPU time. counts: that time is wanted of the shortest ones, too (`Meter`)."""
        begin = cpu_ns() if counts else perf_counter_ns()
        try:
            self.result = self.fn(*self.args)
        except Exception as e:          # raised again where the role awaits it
            self.error = e
        if counts:
            meter.mark = cpu_ns()
            self.cpu_ns = meter.mark - begin
        else:
            self.cpu_ns = meter.cpu_ns(perf_counter_ns() - begin)
        self.end()

    def end(self) -> None:
        """It is done; what it held can go."""
        self.done = True
        self.fn, self.args = _nothing, ()


def _told(value: object) -> str:
    """An argument as it decides about a cost; "?": nobody knows how."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return repr(value) if isinstance(value, int | float | str | None) else "?"


class Meter:
    """CPU time of short pieces of code. The thread's CPU clock costs a system call, so it is read only where the
    wall clock says that a piece may have been long; the piece was at most what has been used since it was read last.
    """

    # The CPU clock always took a fifth of the samples of a profile in process. The wall clock always would blame a
    # preempted thread for the work of others. A piece below 0.5 ms may still count a preemption.

    def __init__(self) -> None:
        self.mark = 0

    def cpu_ns(self, wall_ns: int) -> int:
        """CPU ns of a piece that took `wall_ns`; below 0.5 ms its wall time counts as that."""
        if wall_ns < 500_000:
            return wall_ns
        now = cpu_ns()
        used, self.mark = now - self.mark, now
        return min(wall_ns, used)


meter = Meter()


def _nothing() -> None:
    return None


def keep_nothing(source: int, encoded: Encoded, first: int, to: list[int]) -> list[bytes] | None:
    """Messages sent from here go nowhere."""
    return None


def _observe_nothing(node: int, round: int, parameters: Vector, evaluate: Evaluate | None) -> str:
    return ""


def _leave_nothing(node: int, name: str, round: int, array: object) -> None:
    return None


def _no_attackers(round: int) -> set[int] | None:
    return None


def _no_cluster(node: int) -> int | None:
    return None


def _fetch_nothing(event: Ready) -> list[Message]:
    return []


class Desk:
    """The tools that a worker gives to a node, and the things that the node leaves there in one activation."""

    __slots__ = ("actions", "activities", "artefact", "attackers", "cluster", "costs", "deviates", "excused_ns",
                 "fetch", "growth", "job", "keep", "lanes", "main", "memory", "observe", "offered", "offers", "types",
                 "unawaited")

    def __init__(self, memory: Memory, costs: Costs, *, keep: Keep = keep_nothing, observe: Observe = _observe_nothing,
                 fetch: Fetch = _fetch_nothing, artefact: Artefact = _leave_nothing,
                 types: Mapping[str, type[Message]] | None = None, deviates: bool = False,
                 lanes: Sequence[str] = (LANE,)):
        self.memory = memory
        self.costs = costs
        self.keep = keep
        self.observe = observe
        self.fetch = fetch
        self.artefact = artefact
        self.attackers: Callable[[int], set[int] | None] = _no_attackers       # in a round, for the observer
        self.cluster: Callable[[int], int | None] = _no_cluster         # that a node's data are of, for the observer
        self.types = types                          # of messages that the scheme's nodes know; None: any
        self.deviates = deviates                    # a BEHAVIOUR: what it sends is nobody's programming error
        self.offers = False                         # somebody wants to know what is offered
        self.offered: dict[str, object] = {}           # in this round
        self.growth = 0.0                           # declared bytes of a byte of arrays, of a declared model
        self.lanes = lanes                          # names of those of a node's computations
        self.main: CoroutineType[object, object, None]        # of the role
        self.activities: Activities | None = None   # None: the role has never begun one
        self.job: Job | None = None                 # the computation that it waits for, or the newest that it asked for
        self.actions: list[Action] = []             # in this activation
        self.unawaited: list[str] = []              # places of suspensions asked for in this activation
        self.excused_ns = 0                         # CPU time of encoding and digests: the engine's, not the role's

    def begin(self) -> None:
        """An activation begins."""
        self.actions = []
        self.excused_ns = 0
        self.unawaited.clear()
