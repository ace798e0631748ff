"""The node whose app runs in this thread: the clocks, the messages and the helpers of an app go by it.

`Notes` is what it has observed of its round.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emul.base.errors import RoleError
from emul.base.plain import PlainMapping
from emul.base.streams import key64

if TYPE_CHECKING:
    from emul.learning import NodeTask

# --- observations of an app's round, for the observer: its global model, and the metrics that it finds --------------

_WEIGHTS = ("num-examples", "num_examples")     # the metric by which Flower's strategies weight others


@dataclass
class Notes:
    """Of one server app. metrics of the round that goes on; model: the newest."""

    central: dict[str, float] = field(default_factory=dict)         # evaluated by the server app itself
    found: list[dict[str, float]] = field(default_factory=list)     # evaluated by clients
    model: Any = None                                               # ArrayRecord
    replies: int = 0
    errors: int = 0
    trained: int = 0                                                # replies to trainings,
    untrained: list[str] = field(default_factory=list)              # and those that tell of an error: "client: reason"

    def evaluated(self, metrics: PlainMapping | None) -> None:
        """The server app has evaluated its model."""
        if metrics is not None:
            self.central |= {key: float(v) for key, v in metrics.items() if isinstance(v, (int, float))}

    def closed(self) -> dict[str, float]:
        """The metrics of the round, which is over: `accuracy` and `loss`, and each under its own name."""
        clients = weighted(self.found)
        metrics = clients | self.central
        found = {named(key): value for key, value in metrics.items()}
        for wanted in ("accuracy", "loss"):
            key = best(self.central, wanted) or best(clients, wanted)
            if key is not None:
                found[wanted] = metrics[key]
        self.central, self.found = {}, []
        return found

    def counted(self) -> dict[str, float]:
        """The numbers of replies that came in the round, and of those that told of an error."""
        found: dict[str, float] = {"received": self.replies, "client_errors": self.errors}
        self.replies = self.errors = 0
        return found

    def failure(self) -> str:
        """The reason why no training came out of the round, which is over; "": some did, or nobody was asked."""
        found = all_failed(self.untrained) if self.untrained and not self.trained else ""
        self.trained, self.untrained = 0, []
        return found


def all_failed(errors: Sequence[str]) -> str:
    """The message on replies that all tell of errors."""
    return f"all {len(errors)} replies tell of an error; the first: {errors[0]}"


def weighted(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over those that have it, weighted by `num-examples` as Flower's strategies do it.

    >>> weighted([{"acc": 1.0, "num-examples": 3}, {"acc": 0.0, "num-examples": 1}])
    {'acc': 0.75}
    """
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for one in found:
        weight = next((one[key] for key in _WEIGHTS if key in one), 1.0)
        for key, value in one.items():
            if key not in _WEIGHTS:
                sums[key] = sums.get(key, 0.0) + weight * value
                weights[key] = weights.get(key, 0.0) + weight
    return {key: sums[key] / weights[key] for key in sums if weights[key]}


def best(metrics: Mapping[str, float], wanted: str) -> str | None:
    """The key that tells "accuracy" or "loss", by its name; of several the one that comes closest.

    >>> best({"eval_acc": 0.5, "train_loss": 1.0}, "accuracy")
    'eval_acc'
    """
    short = wanted[:3] if wanted == "accuracy" else wanted
    fitting = [key for key in metrics if short in named(key).split("_") or wanted in named(key).split("_")]
    return min(fitting, key=lambda key: (named(key) != wanted, "train" in key, key), default=None)


def named(key: str) -> str:
    """A metric's key as the name of a column."""
    return "".join(c if c.isalnum() else "_" for c in key.lower())


# --- The app that runs -----------------------------------------------------------------------------------------------

@dataclass
class AppClock:
    """The virtual time of one app. sleep: what its `time.sleep` does with a number of seconds."""

    now_ns: int
    sleep: Callable[[float], None]


class Entropy:
    """Seeds for what an app makes without one, in the order in which it does."""

    def __init__(self, seed: int, *names: str | int):
        self._seed, self._names = seed, names
        self._given = {"numpy": 0, "random": 0}

    def bits(self, count: int, library: str) -> int:
        """So many random bits; the streams of both libraries are apart."""
        self._given[library] += 1
        key = key64(self._seed, "flower", "unseeded", *self._names, library, self._given[library])
        return random.Random(key).getrandbits(count)


@dataclass
class Running:
    """An app that runs in this thread, at one node."""

    flower_id: int                          # Flower's number of the node
    clock: AppClock
    task: Any = field(default=None, repr=False)         # the node's learning task; None: the scenario has none
    notes: Notes | None = None                          # of a server app, for the observer
    entropy: Entropy | None = None                      # for generators that it makes without a seed
    thread: int = field(default_factory=threading.get_ident)        # in which it was called; it may start others


# of a thread, and of a greenlet: computations that are fused stand still in the middle of an app, while others go on
_here: ContextVar[Running | None] = ContextVar("running", default=None)


def running() -> Running | None:
    """The app that runs in this thread; None: emul itself does."""
    return _here.get()


@contextlib.contextmanager
def run_as(app: Running) -> Iterator[None]:
    """Inside the block `app` runs in this thread."""
    before = _here.set(app)
    try:
        yield
    finally:
        _here.reset(before)


def report(**metrics: float) -> None:
    """At a server app that evaluates its model in a loop of its own: what it has found in this round, such as
    `accuracy=0.93`. Of strategies and workflows this is seen without it. Nothing happens where no server app of a run
    of emul runs in this thread, so that an app may call it anywhere."""
    app = running()
    if app is not None and app.notes is not None:
        app.notes.evaluated(metrics)


def task_of(context: Any) -> NodeTask:
    """The scenario's learning task as the node of this `context` sees it: its samples, `local_update`, `evaluate_own`,
    `forward`, ...; at the server the task as the server sees it, with `initial_parameters()` and `evaluate`.

    context: the one that Flower has handed to the app. Raises RoleError outside of emul, where the scenario has no
    task, and for the context of another node.
    """
    app = running()
    if app is None:
        raise RoleError("task_of(context): no app of a run of emul is running in this thread")
    if context.node_id not in (app.flower_id, 0):
        raise RoleError(f"task_of(context): node {context.node_id} is another one, this is {app.flower_id}")
    if app.task is None:
        raise RoleError("task_of(context): the scenario has no task")
    found: NodeTask = app.task
    return found
