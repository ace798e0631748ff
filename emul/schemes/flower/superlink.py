"""A Flower app as it is deployed: the SuperLink at the server and a SuperNode at each client, step by step.

Steps and waits are those of flwr 1.41 and 1.42, read in `supernode/start_client_internal.py`, `superlink/grid/http_grid
.py` and the servicers of the SuperLink; their seconds come from `installed`. Bodies of requests are Flower's own
protobuf messages, objects Flower's own content-addressed parts. The ServerApp and the SuperLink share a host, and so do
a SuperNode and its ClientApp: between those nothing takes time. Not modelled: seconds that the programs compute in
their handlers, and TLS.

Imported only where an app runs with `runtime: superlink`.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, cast

import msgspec
import numpy as np
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import fab_to_proto, message_to_proto, run_to_proto
from flwr.proto.fab_pb2 import GetFabRequest, GetFabResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    ObjectTree,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.proto.node_pb2 import Node as ProtoNode
from flwr.proto.run_pb2 import GetRunRequest, GetRunResponse
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

from emul import roles
from emul.base.errors import ProtocolViolation, TimedOut
from emul.base.streams import generator
from emul.roles import Declared, Node
from emul.roles.activities import Activity
from emul.schemes.flower import installed
from emul.schemes.flower import messages as http
from emul.schemes.flower.encoding import Run, kind_of, sent_by
from emul.schemes.flower.grid import Asked
from emul.schemes.flower.guest import Sleep
from emul.schemes.flower.hosting import FIRST_ID, AppParams, Client, StartedBefore, be, bundle_of, called, ids
from emul.schemes.flower.installed import Installed
from emul.schemes.flower.messages import LABELS, REQUESTS, RUN_ID, SERVER_ID, HttpRequest, HttpResponse
from emul.schemes.flower.polling import PollingGrid, Stages

UNAUTHORISED = 401
# of httpx (`DEFAULT_LIMITS.keepalive_expiry`) and of uvicorn (`timeout_keep_alive`): of a connection that is silent
KEEPALIVE_S = 5.0
_PART = 65_536                      # bytes that httpx reads or writes at a time
_SEGMENT = 40                       # bytes of a TCP segment without data
_SESSION = "0" * 36                 # as long as a UUID
# Bytes of the line and the headers of a request, without its name and the digits of its length, and of a response: of
# flwr 1.41 with httpx 0.28 and uvicorn 0.49, as a proxy between a SuperLink and a SuperNode has counted them
_REQUEST_HEAD, _RESPONSE_HEAD = 826, 127
_FRAME = 32                         # bytes of emul's frame and envelope around a body, and the name of its type
_NOTHING = np.zeros(0, np.uint8)
Proto: TypeAlias = Any              # a protobuf message, whose base class has no types
_RESPONSES: dict[type[HttpRequest], Proto] = {
    http.ActivateNode: ActivateNodeResponse, http.SendNodeHeartbeat: SendNodeHeartbeatResponse,
    http.PullMessages: PullMessagesResponse, http.GetRun: GetRunResponse, http.GetFab: GetFabResponse,
    http.PullObject: PullObjectResponse, http.ConfirmMessageReceived: ConfirmMessageReceivedResponse,
    http.PushMessages: PushMessagesResponse, http.PushObject: PushObjectResponse}


def head(kind: type[HttpRequest] | type[HttpResponse], body: np.ndarray, largest: int = 0) -> Declared:
    """The bytes of a line and headers, less those of emul's own frame: a request counts as many as it has on a wire.
    largest: of a response, which is emul's own, too."""
    name = kind.__name__
    if issubclass(kind, http.Connect | http.Connected):
        size = _SEGMENT
    elif issubclass(kind, HttpRequest):             # its path has the name in words: PullObject, pull-object
        size = _REQUEST_HEAD + len(name) + sum(map(str.isupper, name)) - 1 + len(str(len(body)))
    else:
        size = _RESPONSE_HEAD + len(str(len(body))) - len(msgspec.msgpack.encode(largest))
    return Declared(max(0, size - _FRAME - len(name)))


def octets(message: Proto) -> np.ndarray:
    """(bytes,) uint8: a protobuf message, serialised."""
    return np.frombuffer(message.SerializeToString(deterministic=True), np.uint8)


# --- the SuperLink --------------------------------------------------------------------------------------------------

@dataclass
class Pushed:
    """A message of the ServerApp that is not answered yet. reply: the metadata of its reply, and its objects' tree.
    until_ns: so long the rest of these objects is waited for."""

    message: ProtoMessage
    node: int                           # Flower's number
    expires_ns: int
    times: Stages
    delivered: bool = False
    reply: tuple[ProtoMessage, ObjectTree] | None = None
    until_ns: int = 0


@dataclass
class SuperLink:
    """The memory of the program. nodes: Flower's number of a node -> the time until which it counts as online, in ns.

    fab: the app's bundle. start_ns: node -> how long a process takes to start there.
    """

    waits: Installed
    nodes: dict[int, int]
    start_ns: dict[int, int]
    fab: bytes
    run: Run
    store: InMemoryObjectStore = field(default_factory=lambda: InMemoryObjectStore(verify=False))
    pushed: dict[str, Pushed] = field(default_factory=dict)         # id of a message -> it, in the order of pushing
    left: dict[str, Pushed] = field(default_factory=dict)           # id of a reply whose objects are still to come
    free: dict[int, int] = field(default_factory=dict)              # node -> when it had sent its last reply

    def online(self, now_ns: int) -> list[int]:
        """Flower's numbers of the nodes that count as online, ascending."""
        return sorted(node for node, until in self.nodes.items() if until >= now_ns)

    def push(self, message: Message, name: str, now_ns: int) -> int:
        """The ServerApp pushes a message: of its objects those that are not here, how many these are."""
        objects = get_all_nested_objects(message)
        missing = dict.fromkeys(self.store.preregister(RUN_ID, get_object_tree(message)))
        for one in missing:
            self.store.put(one, objects[one].deflate())
        meta = message.metadata
        self.pushed[name] = Pushed(
            message_to_proto(remove_content_from_message(message)), meta.dst_node_id,
            now_ns + round(meta.ttl * 1e9), Stages(now_ns, self.free.get(meta.dst_node_id, 0)))
        return len(missing)

    def replies(self, names: Collection[str], now_ns: int) -> tuple[list[str], list[str]]:
        """Of these messages: those that are answered, and those whose node is offline; the latter come first in
        Flower, too, whether or not there is a reply."""
        gone = [name for name in names if name in self.pushed and self.nodes.get(self.pushed[name].node, -1) < now_ns]
        found = [name for name, one in self.pushed.items() if one.reply and name in names and name not in gone]
        return found, gone

    def contents(self, name: str) -> dict[str, bytes] | None:
        """The objects of the reply to a message; None: some are still to come."""
        reply = self.pushed[name].reply
        assert reply is not None
        found = {tree.object_id: self.store.get(tree.object_id) or b"" for tree in iterate_object_tree(reply[1])}
        return found if all(found.values()) else None

    def largest(self, found: PullMessagesResponse) -> int:
        """The bytes of the largest object of a message that a node has found."""
        return max((len(self.store.get(part.object_id) or b"") for tree in found.message_object_trees
                    for part in iterate_object_tree(tree)), default=0)

    def taken(self, name: str) -> None:
        """The app has the reply to a message, or an error in its place: neither is kept."""
        one = self.pushed.pop(name)
        for message in [name, *([one.reply[0].metadata.message_id] if one.reply else [])]:
            self.store.delete(message)

    # --- its answers to requests of SuperNodes ---------------------------------------------------------------------

    def answer(self, request: HttpRequest, own: int, now_ns: int) -> tuple[int, Proto]:
        """Status and body of the response to the node with Flower's number `own`. Raises ProtocolViolation."""
        handle = _HANDLERS.get(type(request))
        if handle is None:
            raise ProtocolViolation("no request of Flower")
        of, does = handle
        try:
            asked = of.FromString(request.body.tobytes())
        except Exception:               # of protobuf: whatever bytes of a peer may cause
            raise ProtocolViolation("no request of Flower") from None
        if own not in self.nodes:
            return UNAUTHORISED, _RESPONSES[type(request)]()
        return 200, does(self, asked, own, now_ns)

    def _heard(self, own: int, now_ns: int) -> None:
        self.nodes[own] = now_ns + round(self.waits.patience * self.waits.heartbeat_s * 1e9)

    def _activate(self, asked: ActivateNodeRequest, own: int, now_ns: int) -> ActivateNodeResponse:
        self._heard(own, now_ns)
        return ActivateNodeResponse(node_id=own)

    def _heartbeat(self, asked: SendNodeHeartbeatRequest, own: int, now_ns: int) -> SendNodeHeartbeatResponse:
        self._heard(own, now_ns)
        return SendNodeHeartbeatResponse(success=True)

    def _pull_messages(self, asked: PullMessagesRequest, own: int, now_ns: int) -> PullMessagesResponse:
        for name, one in self.pushed.items():
            if one.node == own and not one.delivered and now_ns < one.expires_ns:
                one.delivered, one.times.delivered = True, now_ns
                return PullMessagesResponse(messages_list=[one.message],
                                            message_object_trees=[self.store.get_object_tree(name)])
        return PullMessagesResponse()

    def _get_run(self, asked: GetRunRequest, own: int, now_ns: int) -> GetRunResponse:
        return GetRunResponse(run=run_to_proto(self.run))

    def _get_fab(self, asked: GetFabRequest, own: int, now_ns: int) -> GetFabResponse:
        return GetFabResponse(fab=fab_to_proto(Fab(hashlib.sha256(self.fab).hexdigest(), self.fab, {})))

    def _pull_object(self, asked: PullObjectRequest, own: int, now_ns: int) -> PullObjectResponse:
        content = self.store.get(asked.object_id)
        return PullObjectResponse(object_found=content is not None, object_available=bool(content),
                                  object_content=content or b"")

    def _confirm(self, asked: ConfirmMessageReceivedRequest, own: int, now_ns: int) -> ConfirmMessageReceivedResponse:
        if asked.message_object_id in self.pushed:
            self.pushed[asked.message_object_id].times.received = now_ns
        self.store.delete(asked.message_object_id)
        return ConfirmMessageReceivedResponse()

    def _push_messages(self, asked: PushMessagesRequest, own: int, now_ns: int) -> PushMessagesResponse:
        if len(asked.messages_list) != 1 or len(asked.message_object_trees) != 1:
            raise ProtocolViolation("a push of other than one reply")
        reply, tree = asked.messages_list[0], asked.message_object_trees[0]
        one = self.pushed.get(reply.metadata.reply_to_message_id)
        if one is None or one.node != own or one.reply is not None:         # nobody waits for it any more
            return PushMessagesResponse(session_id=_SESSION)
        try:
            missing = self.store.preregister(RUN_ID, tree)
        except ValueError:
            raise ProtocolViolation("an object without a sound name") from None
        one.reply, one.times.replied = (reply, tree), now_ns
        one.times.compute = round(1e9 * sum(asked.clientapp_runtime_list))
        one.times.start = self.start_ns[own]
        self.left[reply.metadata.message_id] = one
        one.until_ns = now_ns + round(self.waits.session_s * 1e9)
        self._settle(reply.metadata.message_id, now_ns)
        return PushMessagesResponse(results={reply.metadata.message_id: 0}, objects_to_push=missing,
                                    session_id=_SESSION)

    def _push_object(self, asked: PushObjectRequest, own: int, now_ns: int) -> PushObjectResponse:
        if asked.object_id != hashlib.sha256(asked.object_content).hexdigest():
            raise ProtocolViolation("an object whose name is not its hash")
        stored = asked.object_id in self.store
        if stored:
            self.store.put(asked.object_id, asked.object_content)
            for one in self.left.values():
                if one.node == own:
                    one.until_ns = now_ns + round(self.waits.session_s * 1e9)
        for name in list(self.left):
            self._settle(name, now_ns)
        return PushObjectResponse(stored=stored)

    def _settle(self, reply: str, now_ns: int) -> None:
        """If all objects of a reply have come, its times say so."""
        if reply not in self.store or all(self.store.get(tree.object_id) for tree in iterate_object_tree(
                self.store.get_object_tree(reply))):
            one = self.left.pop(reply)
            one.times.there = self.free[one.node] = now_ns


_HANDLERS: dict[type[HttpRequest], tuple[Proto, Callable[[SuperLink, Proto, int, int], Proto]]] = {
    http.ActivateNode: (ActivateNodeRequest, SuperLink._activate),
    http.SendNodeHeartbeat: (SendNodeHeartbeatRequest, SuperLink._heartbeat),
    http.PullMessages: (PullMessagesRequest, SuperLink._pull_messages),
    http.GetRun: (GetRunRequest, SuperLink._get_run), http.GetFab: (GetFabRequest, SuperLink._get_fab),
    http.PullObject: (PullObjectRequest, SuperLink._pull_object),
    http.ConfirmMessageReceived: (ConfirmMessageReceivedRequest, SuperLink._confirm),
    http.PushMessages: (PushMessagesRequest, SuperLink._push_messages),
    http.PushObject: (PushObjectRequest, SuperLink._push_object)}


def linked(node: Node, p: AppParams, again: bool) -> SuperLink:
    """The SuperLink beside the ServerApp. Its nodes have come before the run begins; again: it knows none."""
    waits = installed.waits(p)
    until = {number: node.now_ns + round((waits.patience * waits.heartbeat_s - silent_s(node, k, waits)) * 1e9)
             for number, k in ids(node).items()}
    starts = {number: round(p.start_s / node.world.speeds[k] * 1e9) for number, k in ids(node).items()}
    run = Run.create_empty(RUN_ID)
    return SuperLink(waits, {} if again else until, starts, bundle_of(p), run)


def silent_s(node: Node, client: int, waits: Installed) -> float:
    """The seconds since the last heartbeat of a client as the run begins: its SuperNode has been there for long."""
    return float(generator(node.seed, "silent", node.world.names[client]).random()) * waits.between_beats_s


async def serve(node: Node, link: SuperLink) -> None:
    """Answer requests, each at once, as long as the role lasts."""
    own = {k: number for number, k in ids(node).items()}

    def sound(request: roles.Message) -> None:
        if not isinstance(request, HttpRequest):
            raise ProtocolViolation("no request of Flower")
        if not isinstance(request, http.Connect):
            answers.append(link.answer(request, own[request.sender], node.now_ns))

    answers: list[tuple[int, Proto]] = []
    while True:
        request = await node.recv_any(accept=sound)
        assert isinstance(request, HttpRequest)
        status, body = answers.pop() if answers else (200, None)
        kind, sent = REQUESTS[type(request)], _NOTHING if body is None else octets(body)
        largest = link.largest(body) if isinstance(body, PullMessagesResponse) else 0
        node.send(request.sender, kind(request.number, status, sent, head(kind, sent, largest), largest))


# --- the ServerApp's Grid, beside the SuperLink ----------------------------------------------------------------------

@dataclass
class LinkGrid(PollingGrid):
    """Flower's `HttpGrid`: replies lie in the SuperLink until the app pulls them. draw: a number from 0 to 1, for the
    waits for objects that are not there yet."""

    link: SuperLink = field(kw_only=True)
    request_s: float = field(kw_only=True)          # of the programs, for a request
    draw: Callable[[], float] = field(kw_only=True)

    def get_node_ids(self) -> list[int]:
        """Those that are online, and take part."""
        return sorted({*super().get_node_ids()} & {*self.link.online(self.clock.now_ns)})

    def _push(self, messages: list[Message], floating: bool) -> list[str]:
        self._watched = 0
        if not messages:
            return []
        self._begin_round(messages[0], floating)
        self.ledger.push(self.clock.now_ns)
        for message in messages:
            sent_by(message, RUN_ID, SERVER_ID)
        names = self._hand_over(messages)
        for name, message in zip(names, messages, strict=True):
            meta = message.metadata
            meta.__dict__["_message_id"] = name
            self._asked[name] = Asked(message, self.node_of[meta.dst_node_id],
                                      self.clock.now_ns + round(meta.ttl * 1e9))
        return names

    def _hand_over(self, messages: Sequence[Message]) -> list[str]:
        names, missing = [], 0
        self._requests(1, 0)
        with no_object_id_recompute():
            for message in messages:
                names.append(message.object_id)
                message.metadata.__dict__["_message_id"] = names[-1]
                missing += self.link.push(message, names[-1], self.clock.now_ns)
        self._requests(0, missing)
        return names

    def _requests(self, single: int, objects: int) -> None:
        """The app waits for so many requests, one after the other, and for some of objects, several at a time."""
        count = single + -(-objects // self.link.waits.pushes)
        if self.request_s:
            self._ask(Sleep(count * self.request_s))

    def _fetch(self, names: Sequence[str]) -> None:
        """Take the replies to these messages that are there."""
        self._requests(1, 0)
        there, gone = self.link.replies([name for name in names if name in self._asked], self.clock.now_ns)
        for name in gone:
            self._answer_for(name, self._asked[name], Error(
                ErrorCode.NODE_UNAVAILABLE, "the node is offline: no heartbeat within "
                f"{self.link.waits.patience * self.link.waits.heartbeat_s:g} s"))
            self._done(name)
        for name in there:                              # one after the other
            delays = retries(self.link.waits, self.draw, self.link.waits.pulls)
            while (contents := self.link.contents(name)) is None and (
                    self.clock.now_ns < self.link.pushed[name].until_ns):
                self._ask(Sleep(next(delays)))
            if contents is None:
                self._answer_for(name, self._asked[name], Error(
                    ErrorCode.MESSAGE_UNAVAILABLE, "the objects of the reply have not come"))
                self._done(name)
                continue
            metadata = self.link.pushed[name].reply
            assert metadata is not None
            number = metadata[0].metadata.message_id
            self._requests(1, len(contents))
            try:
                reply = message_of(number, contents)
            except ProtocolViolation as e:
                self._answer_for(name, self._asked[name], Error(ErrorCode.UNKNOWN, str(e)))
            else:
                self._arrived[name] = self._asked[name], reply
            self._done(name)

    def _done(self, name: str) -> None:
        del self._asked[name]
        self.ledger.pull(self.clock.now_ns, self.link.pushed[name].times)
        self.link.taken(name)

    def _expire(self, ids: Sequence[str], named: bool) -> None:
        for name in ids:
            if name in self._asked and self.clock.now_ns >= self._asked[name].expires_ns:
                self.link.taken(name)
        super()._expire(ids, named)


def grid_of(node: Node, p: AppParams, link: SuperLink) -> Callable[..., LinkGrid]:
    """The Grid beside a SuperLink, but for what all Grids have."""
    return partial(LinkGrid, poll_s=link.waits.server_poll_s, link=link, request_s=p.request_s,
                   draw=node.stream("pulls").random)


def retries(waits: Installed, draw: Callable[[], float], objects: int) -> Iterator[float]:
    """The waits between two tries to pull `objects` objects at a time that come together, a delay of each, doubled each
    time and drawn 20 % about it: until both have been tried again."""
    delay = waits.unavailable_s
    while True:
        yield max(delay * (0.8 + 0.4 * draw()) for _ in range(max(1, objects)))
        delay = min(2 * delay, waits.unavailable_most_s)


# --- the SuperNode ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Processed:
    """The end of a ClientApp's process: its reply, without its content, the tree and the objects of it; () if it has
    died. slept_s: by `time.sleep`."""

    message: bytes
    tree: bytes
    objects: dict[str, bytes]
    slept_s: float
    diverged: str = ""
    died: bool = False


class SuperNode:
    """The loop of one node, and what it remembers. process: (message, its id, whether it has died) -> what came of it.
    """

    def __init__(self, node: Node, waits: Installed, start_s: float, request_s: float, own: int,
                 process: Callable[..., Awaitable[Processed]]):
        self.node, self.waits, self._process = node, waits, process
        self.start_s, self.request_s = start_s, request_s
        self.own = ProtoNode(node_id=own)
        self.number = 0                             # of requests
        self.idle: list[int] = []                   # connections: since when
        self.knows_run = False
        self.largest = 0                            # bytes of the largest object of the message that it works on
        self.gone = False                           # the SuperLink does not know this node
        self._draw = {name: node.stream(name).random for name in ("superexec", "retries", "heartbeats", "polls")}
        self.begun = node.now_ns

    async def live(self, again: bool) -> None:
        """Until the SuperLink says that it does not know this node. again: it has crashed, and starts again."""
        if again:
            await self._start()
            await self.ask(http.ActivateNode, ActivateNodeRequest(heartbeat_interval=self.waits.heartbeat_s))
        else:
            await self.node.sleep(self._draw["polls"]() * self.waits.node_poll_s)
        self.begun = self.node.now_ns + round(self._draw["superexec"]() * self.waits.task_poll_s * 1e9)
        first_s = 0.0 if again else self.waits.between_beats_s - silent_s(self.node, self.node.id, self.waits)
        beats = self.node.start(self._heartbeats(first_s))
        while not self.gone:
            found = await self.ask(http.PullMessages, PullMessagesRequest(node=self.own))
            if found.messages_list:
                await self._work(found.messages_list[0], found.message_object_trees[0])
            elif not self.gone:
                await self.node.sleep(self.waits.node_poll_s)
        self.node.cancel(beats)

    async def _work(self, proto: ProtoMessage, tree: ObjectTree) -> None:
        run_id, name = proto.metadata.run_id, proto.metadata.message_id
        if not self.knows_run:
            run = await self.ask(http.GetRun, GetRunRequest(node=self.own, run_id=run_id))
            await self.ask(http.GetFab, GetFabRequest(node=self.own, hash_str=run.run.fab_hash, run_id=run_id))
            self.knows_run = True
        contents: dict[str, bytes] = {}
        pulling = self.node.start(self._pull(run_id, tree, contents))
        working = self.node.start(self._run(name, pulling, contents))
        await pulling
        await self.ask(http.ConfirmMessageReceived, ConfirmMessageReceivedRequest(
            node=self.own, run_id=run_id, message_object_id=name))
        received = self.node.now_ns
        found, runtime_s = await working
        await self._to_grid(received, self.waits.reply_poll_s)      # it looks each 0.5 s whether there is a reply
        if found.diverged:
            self.node.report(diverged=found.diverged)
        reply = ObjectTree.FromString(found.tree)
        answer = await self.ask(http.PushMessages, PushMessagesRequest(
            node=self.own, messages_list=[ProtoMessage.FromString(found.message)], message_object_trees=[reply],
            clientapp_runtime_list=[runtime_s]))
        missing = set(answer.objects_to_push)
        await self._two_at_a_time(self.waits.pushes, [
            partial(self.ask, http.PushObject, PushObjectRequest(
                node=self.own, run_id=run_id, object_id=one, object_content=found.objects[one],
                session_id=answer.session_id), self._limit_s(len(found.objects[one])))
            for one in dict.fromkeys(part.object_id for part in iterate_object_tree(reply)) if one in missing])

    async def _pull(self, run_id: int, tree: ObjectTree, contents: dict[str, bytes]) -> int:
        """All objects of a message, into `contents`; the time when they are there, in ns."""
        async def pull(name: str) -> None:
            delay = self.waits.unavailable_s
            while True:
                got = await self.ask(http.PullObject, PullObjectRequest(node=self.own, run_id=run_id, object_id=name),
                                     self._limit_s(self.largest))
                if got.object_available or self.gone:
                    contents[name] = got.object_content
                    return
                await self.node.sleep(delay * (0.8 + 0.4 * self._draw["retries"]()))
                delay = min(2 * delay, self.waits.unavailable_most_s)

        names = dict.fromkeys(part.object_id for part in iterate_object_tree(tree))
        await self._two_at_a_time(self.waits.pulls, [partial(pull, name) for name in names])
        return self.node.now_ns

    async def _run(self, name: str, pulling: Activity[int], contents: dict[str, bytes]) -> tuple[Processed, float]:
        """The process of a ClientApp, which SuperExec starts while the objects are still on their way; what came of it,
        and the seconds that it has computed and slept."""
        await self._to_grid(self.begun, self.waits.task_poll_s)
        await self._start()
        begun = self.node.now_ns
        there: int = await pulling
        at = begun
        delays = retries(self.waits, self._draw["retries"], min(self.waits.pulls, len(contents)))
        while at < there:
            at += round(next(delays) * 1e9)
        await self._until(at)
        found = await self._process(name, contents)
        if found.slept_s:
            await self.node.sleep(found.slept_s)
        computed_s = (self.node.now_ns - at) / 1e9
        if found.died:
            await self._died(begun)
        return found, computed_s

    async def _died(self, begun: int) -> None:
        """A process that says nothing more: its task expires `patience` heartbeats after the last one, and the next
        look for tasks finds that out."""
        beat = begun
        while (later := beat + self._between_beats()) <= self.node.now_ns:
            beat = later
        await self._until(beat + round(self.waits.patience * self.waits.heartbeat_s * 1e9))
        await self._to_grid(self.begun, self.waits.task_poll_s)

    async def _start(self) -> None:
        """A process starts: it imports flwr and the app."""
        await self.node.compute("start", _nothing, cost_s=self.start_s)

    async def _until(self, at_ns: int) -> None:
        if at_ns > self.node.now_ns:
            await self.node.sleep((at_ns - self.node.now_ns) / 1e9)

    async def _to_grid(self, origin_ns: int, period_s: float) -> None:
        """Until the next look of a loop that has looked at `origin_ns` and looks each `period_s`."""
        period = round(period_s * 1e9)
        if period:
            await self._until(origin_ns + -(-(self.node.now_ns - origin_ns) // period) * period)

    async def _two_at_a_time(self, most: int, jobs: Sequence[Callable[[], Awaitable[object]]]) -> None:
        left = deque(jobs)

        async def work() -> None:
            while left:
                await left.popleft()()

        for one in [self.node.start(work()) for _ in range(min(most, len(jobs)))]:
            await one

    def _between_beats(self) -> int:
        w = self.waits
        part = w.heartbeat_part + w.heartbeat_range * (2 * self._draw["heartbeats"]() - 1)
        return round((w.heartbeat_s - w.heartbeat_call_s) * part * 1e9)

    async def _heartbeats(self, first_s: float) -> None:
        await self.node.sleep(first_s)
        while True:
            await self.ask(http.SendNodeHeartbeat, SendNodeHeartbeatRequest(
                node=self.own, heartbeat_interval=self.waits.heartbeat_s), self.waits.heartbeat_call_s)
            await self.node.sleep(self._between_beats() / 1e9)

    # --- requests ---------------------------------------------------------------------------------------------------

    async def ask(self, kind: type[HttpRequest], body: Proto, limit_s: float | None = None) -> Proto:
        """The body of the response. A request without a response in time is tried again, after waits from 0 to 1, 2, 4,
        ... seconds, on a connection of its own."""
        wait, sent = 1.0, octets(body)
        limit_s = self.waits.limit_s if limit_s is None else limit_s
        while True:
            try:
                response = await self._try(kind, sent, limit_s)
            except TimedOut:
                await self.node.sleep(wait * self._draw["retries"]())
                wait = min(2 * wait, self.waits.retry_most_s)
                continue
            self.gone |= response.status == UNAUTHORISED
            return _RESPONSES[kind].FromString(response.body.tobytes())

    def _limit_s(self, size: int) -> float:
        """Of a request with an object of so many bytes: httpx allows `limit_s` for each part of it."""
        return self.waits.limit_s * max(1, size / _PART)

    async def _try(self, kind: type[HttpRequest], body: np.ndarray, limit_s: float) -> HttpResponse:
        now = self.node.now_ns
        self.idle = [since for since in self.idle if now - since < KEEPALIVE_S * 1e9]
        if self.idle:
            self.idle.pop()
        else:
            await self._exchange(http.Connect, _NOTHING, limit_s)
        response = await self._exchange(kind, body, limit_s)
        self.largest = response.largest or self.largest
        if self.request_s:                          # of the programs at both ends
            await self.node.sleep(self.request_s)
        self.idle.append(self.node.now_ns)
        return response

    async def _exchange(self, kind: type[HttpRequest], body: np.ndarray, limit_s: float) -> HttpResponse:
        self.number += 1
        number = self.number
        self.node.send(self.node.server, kind(number, body, head(kind, body)))
        return await self.node.recv(REQUESTS[kind], self.node.server, limit_s, tag=number)


def _nothing() -> None:
    """The work of a computation whose cost is stated."""


async def supernode(node: Node, p: AppParams) -> None:
    """The role of a client: its SuperNode, and processes of its ClientApp."""
    async def process(name: str, contents: dict[str, bytes]) -> Processed:
        message = message_of(name, contents)
        return await node.compute(LABELS[kind_of(message)], call, message)

    def call(message: Message) -> Processed:
        reply, slept_s, diverged, died = called(node, p, client, message)
        if died:
            be(FIRST_ID + node.index)
            reply = Message(Error(ErrorCode.CLIENT_APP_CRASHED, "ClientApp stopped responding."), reply_to=message)
        return processed(reply, slept_s, diverged, died)

    again = node.state(StartedBefore())
    client = Client()                               # its context is in the memory of the SuperNode
    waits = installed.waits(p)
    before, again.once = again.once, True
    await SuperNode(node, waits, p.start_s, p.request_s, FIRST_ID + node.index, process).live(before)


def processed(reply: Message, slept_s: float, diverged: str, died: bool) -> Processed:
    """The end of a process, of the app's reply."""
    with no_object_id_recompute():
        reply.metadata.__dict__["_message_id"] = reply.object_id
        objects = {name: one.deflate() for name, one in get_all_nested_objects(reply).items()}
        return Processed(message_to_proto(remove_content_from_message(reply)).SerializeToString(),
                         get_object_tree(reply).SerializeToString(), objects, slept_s, diverged, died)


def message_of(name: str, contents: dict[str, bytes]) -> Message:
    """The message that a ClientApp gets. Raises ProtocolViolation."""
    try:
        found = cast(Message, inflate_object_from_contents(name, contents))
        found.metadata.__dict__["_message_id"] = name
    except Exception as e:              # of protobuf and of Flower: whatever bytes of a peer may cause
        raise ProtocolViolation(f"no message of Flower: {type(e).__name__}") from None
    return found
