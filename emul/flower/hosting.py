"""What a role does for its Flower app: at the server it hosts the app's thread, at a client it calls the app.

Nothing of Flower is imported before the first of these functions runs, as a computation of a node.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from emul.base.clock import off_the_clock
from emul.base.errors import ProtocolViolation, RoleError
from emul.flower.apps import Loaded, find
from emul.flower.clock import Clock, created_s
from emul.flower.current import Running, run_as
from emul.flower.guest import Ended, Guest, Request
from emul.flower.messages import LABELS, REPLIES, Answer, Call, count_as
from emul.flower.notes import Notes
from emul.flower.randomness import Randomness, begin
from emul.flower.requests import NextRound
from emul.roles import Node, World

RUN_ID = 1
SERVER_ID = 1                       # Flower's number of whoever runs a ServerApp
FIRST_ID = 2                        # of the first client; the others follow


class AppParams(Protocol):
    """What is to be known of an app: parameters of the scheme `flower`."""

    @property
    def app(self) -> str | None: ...
    @property
    def server(self) -> str | None: ...
    @property
    def client(self) -> str | None: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def timeout_s(self) -> float | None: ...
    @property
    def connected(self) -> str: ...
    @property
    def stuck_s(self) -> float: ...
    @property
    def log(self) -> str: ...


_loaded: dict[int, Loaded] = {}         # by the World of a run, which is one object in a worker


def loaded(world: World, p: AppParams) -> Loaded:
    """The app of this run in this process. Raises AppError."""
    found = _loaded.get(id(world))
    if found is None:
        found = _loaded[id(world)] = Loaded(find(p.app, p.server, p.client, p.config))
        weakref.finalize(world, _loaded.pop, id(world), None)
        import flwr.supercore  # noqa: F401    which makes its log, at a level of its own

        logging.getLogger("flwr").setLevel(p.log.upper())
    return found


def ids(node: Node) -> dict[int, int]:
    """Flower's number of each client -> emul's."""
    return {FIRST_ID + place: client for place, client in enumerate(node.clients)}


def be(flower_id: int) -> None:
    """Messages that are made from now on are of this node."""
    from emul.flower import versions

    versions.be(RUN_ID, flower_id)


class Host:
    """The server app of a run, in its thread."""

    def __init__(self, node: Node, p: AppParams):
        self._node, self._p = node, p
        self._notes = Notes()
        self._clock = Clock(0, self._sleep)
        self._randomness = Randomness(node.seed, node.name)
        self._guest = Guest(self._run, p.stuck_s)
        self._app: Any = None
        self._config: dict[str, Any] = {}
        self.grid: Any = None
        self.answer: Any = None                 # to what the app has asked for

    @property
    def label(self) -> str:
        """What the next piece of the app is charged as."""
        return "start" if self.grid is None else "aggregate"

    def step(self, now_ns: int) -> Request:
        """Let the app go on from `now_ns` until it asks for something that takes time. Raises what it raises."""
        if self.grid is None:
            with off_the_clock():
                self._load()
        self._clock.now_ns = now_ns
        be(SERVER_ID)
        with self._randomness.used():
            answer, self.answer = self.answer, None
            request = self._guest.resume(answer)
        if isinstance(request, Ended):
            if isinstance(request.error, Exception):
                raise request.error
            if request.error is not None and getattr(request.error, "code", None) not in (None, 0):
                raise RoleError(f"the server app has ended by {request.error!r}") from request.error
        return request

    def closing(self) -> NextRound:
        """What is to be told of a round that has ended with the app."""
        closing: NextRound = self.grid.closing()
        return closing

    def close(self) -> None:
        """Nobody waits for the app any more."""
        self._guest.dismiss()
        self._randomness.close()

    def _load(self) -> None:
        app = loaded(self._node.world, self._p)
        self._app, self._config = app.get("server"), app.config
        from emul.flower import hooks
        from emul.flower.grid import EmulGrid

        hooks.install()
        self.grid = EmulGrid(self._guest, self._clock, ids(self._node), self._node.world.names, self._notes,
                             self._p.timeout_s, self._p.connected == "asked")

    def _run(self) -> None:
        """In the app's thread."""
        from flwr.app import Context, RecordDict

        context = Context(RUN_ID, 0, {}, RecordDict(), self._config)
        with run_as(Running(SERVER_ID, self._clock, self._node.task, self._notes)):
            self._app(self.grid, context)

    def _sleep(self, seconds: float) -> None:
        self.grid.sleep(seconds)


@dataclass
class Client:
    """What a client keeps: the app's Context, as long as its run lasts."""

    context: Any = None
    calls: int = 0


@dataclass(frozen=True)
class Served:
    """What a client app has made of a call: its reply, serialised. slept_s: how long it has waited by `time.sleep`."""

    message: np.ndarray
    phase: str
    slept_s: float

    def answer(self, call: Call, now_ns: int) -> Answer:
        """What is sent, at that time."""
        answer = REPLIES[type(call)](self.message, created_s(now_ns))
        if self.phase != type(call).__name__:
            count_as(answer, f"{self.phase}Reply")
        if call.floating:
            object.__setattr__(answer, "unscoped", True)        # of no round: it is never late
        return answer


def label_of(call: Call) -> str:
    """What a client's computation is charged as."""
    return LABELS[type(call)]


def serve(node: Node, p: AppParams, client: Client, call: Call) -> Served | None:
    """Call the client app with a message; None: it has expired, or is none. An exception of the app becomes a reply."""
    with off_the_clock():
        app = loaded(node.world, p)
        function = app.get("client")
    from flwr.app import Context, RecordDict

    from emul.flower import encoding

    own = FIRST_ID + node.index
    if client.context is None:
        client.context = Context(RUN_ID, own, {"partition-id": node.index, "num-partitions": len(node.clients)},
                                 RecordDict(), app.config)
    try:
        message = encoding.message_of(call, own)
    except ProtocolViolation:
        return None
    if created_s(node.now_ns) >= message.metadata.created_at + message.metadata.ttl:
        return None
    clock = Clock(node.now_ns, lambda seconds: None)
    slept = _Sleeper(clock)
    clock.sleep = slept
    client.calls += 1
    phase = encoding.label(message, type(call).__name__)
    be(own)
    begin(node.seed, node.name, client.calls)
    with run_as(Running(own, clock, node.task)):
        reply = _replied(function, message, client.context, app.told)
    return Served(encoding.reply_bytes(reply), phase, slept.seconds)


class _Sleeper:
    """`time.sleep` of a client app: its clock goes on, and its reply leaves so much later."""

    def __init__(self, clock: Clock):
        self.seconds = 0.0
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds
        self._clock.now_ns += round(seconds * 1e9)


def _replied(app: Callable[[Any, Any], Any], message: Any, context: Any, told: set[str]) -> Any:
    """The app's reply, or one that tells of its exception, as Flower's own runtime has it."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    try:
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise TypeError(f"the client app returned {type(reply).__name__}, expected a Message")
        return reply
    except Exception as e:
        reason = f"{type(e)}:<'{e}'>"
        if reason not in told:                      # of hundreds of clients that fail alike, one is enough
            told.add(reason)
            logging.getLogger("flwr").error("ClientApp of node %d: %s", context.node_id, reason, exc_info=e)
        return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
