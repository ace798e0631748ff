"""The node whose app runs in this thread: the clocks, the messages and the helpers of an app go by it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from emul.base.errors import RoleError
from emul.schemes.flower.clock import Clock
from emul.schemes.flower.notes import Notes
from emul.schemes.flower.randomness import Entropy

if TYPE_CHECKING:
    from emul.learning import NodeTask


@dataclass
class Running:
    """An app that runs in this thread, at one node."""

    flower_id: int                          # Flower's number of the node
    clock: Clock
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
