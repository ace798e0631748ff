"""The hosting of a Flower app by a role: the server's role hosts the app's thread, a client's role calls the app.

Nothing of Flower is imported before the first of these functions runs, as a computation of a node.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from emul.base.clock import off_the_clock
from emul.base.errors import ProtocolViolation, RoleError
from emul.base.plain import PlainDict, PlainMapping
from emul.roles import Node, World
from emul.roles.desk import LANE
from emul.schemes.flower.apps import AppError, Loaded, find
from emul.schemes.flower.clock import created_s
from emul.schemes.flower.current import AppClock, Entropy, Notes, Running, run_as
from emul.schemes.flower.guest import BeginRound, Ended, Guest, Request
from emul.schemes.flower.installed import GivenWaits
from emul.schemes.flower.messages import LABELS, REPLIES, RUN_ID, SERVER_ID, Answer, Call, count_as
from emul.schemes.flower.randomness import Randomness, begin

if TYPE_CHECKING:
    from flwr.app import Message

FIRST_ID = 2                        # of the first client; the others follow


class AppParams(GivenWaits, Protocol):
    """The parameters of the scheme `flower` that describe an app."""

    @property
    def app(self) -> str | None: ...
    @property
    def server(self) -> str | None: ...
    @property
    def client(self) -> str | None: ...
    @property
    def config(self) -> PlainMapping: ...
    @property
    def timeout_s(self) -> float | None: ...
    @property
    def connected(self) -> str: ...
    @property
    def stuck_s(self) -> float: ...
    @property
    def log(self) -> str: ...
    @property
    def start_s(self) -> float: ...
    @property
    def request_s(self) -> float: ...
    @property
    def runtime(self) -> str: ...
    @property
    def num_actors(self) -> int: ...


_loaded: dict[int, Loaded] = {}         # by the World of a run, which is one object in a worker


def loaded(world: World, p: AppParams) -> Loaded:
    """The app of this run in this process. Raises AppError."""
    found = _loaded.get(id(world))
    if found is None:
        found = _loaded[id(world)] = Loaded(find(p.app, p.server, p.client, p.config), world.seed)
        weakref.finalize(world, _loaded.pop, id(world), None)
        import flwr.supercore  # noqa: F401    which makes its log, at a level of its own

        from emul.schemes.flower import arrays, encoding

        arrays.install()
        found.broadcast = encoding.SharedCall()
        logging.getLogger("flwr").setLevel(p.log.upper())
    return found


def ids(node: Node) -> dict[int, int]:
    """Flower's number of each client -> emul's."""
    return {FIRST_ID + place: client for place, client in enumerate(node.clients)}


def be(flower_id: int) -> None:
    """Messages that are made from now on are of this node."""
    from emul.schemes.flower import encoding

    encoding.be(RUN_ID, flower_id)


class AppHost:
    """The server app of a run, in its thread."""

    def __init__(self, node: Node, p: AppParams):
        self._node, self._p = node, p
        self._notes = Notes()
        self._clock = AppClock(0, self._sleep)
        self._randomness = Randomness(node.seed, node.name)
        self._guest = Guest(self._run, p.stuck_s)
        self._app: Any = None
        self._config: PlainDict = {}
        self.grid_of: Callable[..., object] | None = None       # what makes its Grid; None: `EmulGrid`
        self.grid: Any = None
        self.answer: Any = None                 # to what the app has asked for
        self.ended = False

    @property
    def label(self) -> str:
        """The label under which the next piece of the app is charged."""
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
            self.ended = True
            if isinstance(request.error, Exception):
                if self.grid.nothing_came:              # the last line of what is printed
                    request.error.add_note(self.grid.nothing_came)
                raise request.error
            if request.error is not None and getattr(request.error, "code", None) not in (None, 0):
                raise RoleError(f"the server app has ended by {request.error!r}") from request.error
        return request

    def closing(self) -> BeginRound:
        """The report on a round that has ended with the app."""
        closing: BeginRound = self.grid.closing()
        return closing

    def close(self) -> None:
        """Nobody waits for the app any more."""
        self._guest.dismiss()
        self._randomness.close()

    def _load(self) -> None:
        app = loaded(self._node.world, self._p)
        self._app, self._config = app.get("server"), app.config
        from emul.schemes.flower import hooks
        from emul.schemes.flower.grid import EmulGrid

        hooks.install()
        common = (self._guest, self._clock, ids(self._node), self._node.world.names, self._notes, self._p.timeout_s,
                  self._p.connected == "asked", None if not self._node.world.rounds else self._joined)
        self.grid = (self.grid_of or EmulGrid)(*common)

    def _joined(self, ahead: int) -> list[int]:
        """The clients that take part so many rounds from now."""
        node = self._node
        return [k for k in node.clients if node.world.takes_part(k, node.round + ahead)]

    def _run(self) -> None:
        """In the app's thread."""
        from flwr.app import Context, RecordDict

        context = Context(RUN_ID, 0, {}, RecordDict(), self._config)
        entropy = Entropy(self._node.seed, self._node.name)
        with run_as(Running(SERVER_ID, self._clock, self._node.task, self._notes, entropy)):
            self._app(self.grid, context)

    def _sleep(self, seconds: float) -> None:
        self.grid.sleep(seconds)


@dataclass(frozen=True)
class Served:
    """The result of a client app's call: its reply, serialised. slept_s: how long it has waited by `time.sleep`.
    diverged: a number of its arrays is not finite, in words; "": all are."""

    message: np.ndarray
    phase: str
    slept_s: float
    diverged: str = ""

    def answer(self, call: Call, now_ns: int) -> Answer:
        """The answer that is sent at that time."""
        answer = REPLIES[type(call)](self.message, created_s(now_ns))
        if self.phase != type(call).__name__:
            count_as(answer, f"{self.phase}Reply")
        if call.floating:
            object.__setattr__(answer, "unscoped", True)        # of no round: it is never late
        return answer


@dataclass(frozen=True)
class Owed:
    """A reply that is sent when the app has slept as long as it wants to."""

    call: Call
    served: Served
    due_ns: int


@dataclass
class Client:
    """The state of a client: the app's Context, as long as its run lasts. owed: answers that it has not sent yet."""

    context: Any = None
    calls: int = 0
    owed: Owed | None = None


@dataclass
class StartedBefore:
    """The state of a host of a deployment. once: its program has been started before, and has crashed since."""

    once: bool = False


def lanes(p: AppParams) -> list[str]:
    """The lanes of a client's computations: in the simulation it may have all actors at once."""
    return [f"actor{k}" for k in range(1, p.num_actors + 1)] if p.runtime == "simulation" else [LANE]


def label_of(call: Call) -> str:
    """The label under which a client's computation is charged."""
    return LABELS[type(call)]


def bundle_of(p: AppParams) -> bytes:
    """The app as Flower sends it to SuperNodes, a FAB; b"": it is no folder. Raises AppError."""
    folder = find(p.app, p.server, p.client, p.config).folder
    if folder is None:
        return b""
    from flwr.cli.build import build_fab_from_disk

    try:
        return build_fab_from_disk(folder)
    except (ValueError, OSError) as e:
        raise AppError(f"{folder}: flwr cannot bundle it, so it cannot be deployed: {e}") from None


def serve(node: Node, p: AppParams, client: Client, call: Call) -> Served | None:
    """Call the client app with a message; None: it has expired, or is none. An exception of the app becomes a reply."""
    own = FIRST_ID + node.index
    with off_the_clock():               # a broadcast is read once in a worker: nobody in particular has read it
        app = loaded(node.world, p)
        app.get("client")
        try:
            message = app.broadcast.message_of(call, own)
        except ProtocolViolation:
            return None
    if created_s(node.now_ns) >= message.metadata.created_at + message.metadata.ttl:
        return None
    from emul.schemes.flower import encoding

    phase = encoding.label(message, type(call).__name__)
    reply, slept_s, diverged, _ = called(node, p, client, message)
    return Served(encoding.reply_bytes(reply), phase, slept_s, diverged and f"{phase}: {diverged}")


def called(node: Node, p: AppParams, client: Client, message: Message) -> tuple[Message, float, str, bool]:
    """Call the client app with Flower's message: its reply, the seconds that it has slept, a number of its arrays that
    is not finite, in words, and whether it has ended its process. An exception of the app becomes a reply."""
    own = FIRST_ID + node.index
    with off_the_clock():
        app = loaded(node.world, p)
        function = app.get("client")
    from flwr.app import Context, RecordDict

    from emul.schemes.flower import encoding

    if client.context is None:
        client.context = Context(RUN_ID, own, {"partition-id": node.index, "num-partitions": len(node.clients)},
                                 RecordDict(), app.config)
    clock = AppClock(node.now_ns, lambda seconds: None)
    slept = _Sleeper(clock)
    clock.sleep = slept
    client.calls += 1
    be(own)
    begin(node.seed, node.name, client.calls)
    with run_as(Running(own, clock, node.task, entropy=Entropy(node.seed, node.name, client.calls))):
        with off_the_clock():
            before = app.globals.before()
        reply, died = _replied(function, message, client.context, app.told)
        with off_the_clock():
            app.globals.after(before)
            diverged = encoding.unsound(reply.content) if reply.has_content() else ""
    return reply, slept.seconds, diverged, died


class _Sleeper:
    """`time.sleep` of a client app: its clock goes on, and its reply leaves so much later."""

    def __init__(self, clock: AppClock):
        self.seconds = 0.0
        self._clock = clock

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds
        self._clock.now_ns += round(seconds * 1e9)


def _replied(app: Callable[[object, object], object], message: Message, context: Any, told: set[str],
             ) -> tuple[Message, bool]:
    """The app's reply, or one that tells of its exception, as Flower's own runtime has it; whether it has ended its
    process."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    try:
        reply = app(message, context)
        if not isinstance(reply, Message):
            raise TypeError(f"the client app returned {type(reply).__name__}, expected a Message")
        return reply, False
    except (Exception, SystemExit) as e:            # one client's end is not that of the run
        reason = f"{type(e)}:<'{e}'>"
        if reason not in told:                      # of hundreds of clients that fail alike, one is enough
            told.add(reason)
            logging.getLogger("flwr").error("ClientApp of node %d: %s", context.node_id, reason, exc_info=e)
        return (Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message),
                isinstance(e, SystemExit))
