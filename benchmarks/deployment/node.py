"""A real node: one process that runs the scheme's role behind TCP, with the clock of the machine.

The role, its `Node`, the trampoline, training, encoding and decoding are those of an emulated run, to the line: `Core`.
The rules by which messages meet waits and rounds are the kernel's own (`emul.kernel.fates`). New are the parts that an
emulator has to imagine: sockets, real time, other processes. On the wire a copy of a message is

    16 bytes    bytes of the header, bytes of the buffers, round, sequence number
    header      as `emul.message.wire` encodes it
    buffers     the same

so that it has as many bytes as the emulator counts. The node leaves its acts as rows of a journal, whose times are
nanoseconds since the common start.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from emul.base import rows as R
from emul.base.rows import Row
from emul.engine import Wiring
from emul.kernel.fates import matches, newest_reached, round_is_over, take_from_inbox
from emul.kernel.parts import Copy, KNode, Patience, Payload
from emul.message.wire import ENVELOPE_BYTES, Encoded, announced, from_frames
from emul.roles.events import (
    NO_DEADLINE,
    Abstain,
    Action,
    Compute,
    Computed,
    Entered,
    Finish,
    LeaveRound,
    NextRound,
    Ready,
    Ref,
    Reject,
    Reply,
    Report,
    RoleEvent,
    Send,
    SendEach,
    Start,
    Wait,
    WaitEnd,
)
from emul.workers.core import Core

ENVELOPE = struct.Struct("<IIII")
assert ENVELOPE.size == ENVELOPE_BYTES
HELLO = struct.Struct("<I")                 # who has connected, once, before the clock starts
GOODBYE = ENVELOPE.pack(0, 0, 0, 0)         # this node's rounds are over; after what it has sent before
TCP_CONGESTION = 13

Address = tuple[str, int]


class RealNode:
    """Node `me` of what is wired for as many workers as there are nodes."""

    def __init__(self, wiring: Wiring, me: int, addresses: Sequence[Address], congestion: str = "cubic"):
        self.rows: list[Row] = []
        self.bytes_written = 0
        self._me, self._addresses, self._congestion = me, addresses, congestion
        self._deciders, self._last = set(wiring.plan.deciders), wiring.plan.stop.rounds
        self._speed = wiring.setups[me].speeds[me]
        self._types = wiring.scheme.types
        self._frames: dict[tuple[int, int], Encoded] = {}       # what came, undecoded
        self._outbox: dict[tuple[int, int], Encoded] = {}
        self._core = Core(wiring.setups[me], self._outbox, self._frames.pop)
        self._node = KNode(me, wiring.plan.names[me], wiring.plan.roles[me], me, me, 0)
        self._node.inbox, self._node.reached = [], {}
        self._thread = ThreadPoolExecutor(1)                    # roles and training; sockets go on meanwhile
        self._changed, self._over = asyncio.Event(), asyncio.Event()
        self._gone: set[int] = set()                            # deciders that have said goodbye
        self._queues: dict[int, asyncio.Queue[list[bytes | memoryview]]] = {}
        self._streams: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._origin_ns = 0

    # --- its life -------------------------------------------------------------------------------------------------

    async def live(self, ready: Callable[[], int]) -> None:
        """Connect with all others, wait until `ready` returns when the clock starts (`time.monotonic_ns`), and run the
        role until the rounds of all deciders are over. Raises what the role raises."""
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._listen, sock=self._bound(), limit=1 << 20)
        for other in range(len(self._addresses)):
            if other != self._me:
                await self._connect(other)
        self._origin_ns = await loop.run_in_executor(None, ready)
        await self._sleep_until(0)
        role, over = loop.create_task(self._run()), loop.create_task(self._over.wait())
        try:
            await asyncio.wait({role, over}, return_when=asyncio.FIRST_COMPLETED)
            if role.done():
                role.result()
                if self._me in self._deciders:
                    self._say_goodbye()
            await over
            if self._me in self._deciders:
                await asyncio.wait_for(asyncio.gather(*map(self._flush, self._queues)), 10)
        finally:
            for task in (role, over, *self._tasks):
                task.cancel()
            server.close()
            self._thread.shutdown()
            self._core.close()

    def _bound(self) -> socket.socket:
        s = self._socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(self._addresses[self._me])
        return s

    def _socket(self) -> socket.socket:
        # asyncio sets TCP_NODELAY only where the protocol is named, and what is accepted inherits both: with Nagle's
        # algorithm a message that follows another one at once waits until that one is acknowledged
        s = socket.socket(proto=socket.IPPROTO_TCP)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, self._congestion.encode())
        s.setblocking(False)
        return s

    async def _connect(self, other: int) -> None:
        """One connection for each direction of each pair."""
        until = time.monotonic() + 30
        while True:
            s = self._socket()
            try:
                await asyncio.get_running_loop().sock_connect(s, self._addresses[other])
                break
            except ConnectionRefusedError:          # it does not listen yet
                s.close()
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)
        _, writer = self._streams[other] = await asyncio.open_connection(sock=s)
        writer.write(HELLO.pack(self._me))
        queue = self._queues[other] = asyncio.Queue()
        self._tasks.append(asyncio.get_running_loop().create_task(self._write(queue, writer)))

    @property
    def _now(self) -> int:
        return time.monotonic_ns() - self._origin_ns

    async def _sleep_until(self, at_ns: int) -> None:
        while (left := at_ns - self._now) > 0:
            await asyncio.sleep(left / 1e9)

    # --- sockets --------------------------------------------------------------------------------------------------

    async def _write(self, queue: asyncio.Queue[list[bytes | memoryview]], writer: asyncio.StreamWriter) -> None:
        """Send messages to one of the others, in their order; to one that has ended, nothing more."""
        while True:
            frames = await queue.get()
            with contextlib.suppress(ConnectionError):
                writer.writelines(frames)       # one write: without Nagle's algorithm each is a packet of its own
                await writer.drain()
            queue.task_done()

    async def _flush(self, other: int) -> None:
        await self._queues[other].join()
        writer = self._streams[other][1]
        with contextlib.suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # a task of a server that is cancelled at the end would else be reported as one that has failed
        ended = asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
        with contextlib.suppress(*ended), contextlib.closing(writer):
            source, = HELLO.unpack(await reader.readexactly(HELLO.size))
            while True:
                head, rest, round_, seq = ENVELOPE.unpack(await reader.readexactly(ENVELOPE.size))
                if not head:
                    self._hear_goodbye(source)
                    continue
                header, body = await reader.readexactly(head), memoryview(await reader.readexactly(rest))
                self._receive(source, seq, round_, header, body)

    def _receive(self, source: int, seq: int, round_: int, header: bytes, body: memoryview) -> None:
        name, sizes = announced(header)
        frames: list[bytes | memoryview] = [header]
        for size in sizes:
            frames.append(body[:size])
            body = body[size:]
        self._frames[source, seq] = from_frames(frames)
        self._arrive(Copy(source, seq, self._me, self._types[name].counted_as or name, 0, round_,
                          Payload(source, seq, self._me), ()))

    def _say_goodbye(self) -> None:
        for queue in self._queues.values():
            queue.put_nowait([GOODBYE])
        self._hear_goodbye(self._me)

    def _hear_goodbye(self, source: int) -> None:
        self._gone.add(source)
        if self._gone >= self._deciders:
            self._over.set()

    # --- the kernel's part, in real time ----------------------------------------------------------------------------

    async def _run(self) -> None:
        self.rows.append((R.START, self._now, self._me, 0))
        event: RoleEvent | None = Start(self._me, self._now, 0)
        while event is not None:
            reply = await asyncio.get_running_loop().run_in_executor(self._thread, self._step, event)
            if reply.error:
                raise RuntimeError(reply.error)
            for action in reply.actions:
                event = await self._apply(event, action)

    def _step(self, event: RoleEvent) -> Reply:
        self._core.put(event)
        while not self._core.replies:
            assert self._core.work()
        return self._core.replies.pop()

    async def _apply(self, event: RoleEvent | None, action: Action) -> RoleEvent | None:
        """Do what the role asks for; the event that answers the last action of an activation, None after its end."""
        node, me, now = self._node, self._me, self._now
        if isinstance(action, Send):
            self._send(action)
        elif isinstance(action, SendEach):
            for place in range(len(action.to)):
                self._send(action.singly(place))
        elif isinstance(action, LeaveRound):
            node.in_round, node.left = False, max(node.left, action.round)
            self._forget_late()
            self.rows.append((R.LEAVE, now, me, action.round, action.why))
        elif isinstance(action, Report):
            self.rows.append((R.REPORT, now, me, action.round, action.values, action.digest))
        elif isinstance(action, Abstain):           # nobody hears it: a real peer has a timeout
            self.rows.append((R.ABSTAIN, now, me, action.round, action.to, action.kinds))
        elif isinstance(action, Finish):
            self.rows.append((R.FINISH, now, me, action.why))
            return None
        elif isinstance(action, Compute):
            assert event is not None
            return await self._compute(action, event.now)
        elif isinstance(action, NextRound):
            return await self._next_round(action)
        elif isinstance(action, Wait):
            return await self._wait(Patience(action, now))
        elif isinstance(action, Reject):
            return await self._reject(action)
        else:
            raise RuntimeError(f"{node.name}: {type(action).__name__} is for the emulator alone: no scheme that has "
                               "activities has been deployed")
        return event

    def _send(self, action: Send) -> None:
        encoded = self._outbox.pop((self._me, action.first), None)
        if action.frames is not None:
            encoded = from_frames(action.frames)
        for seq, target in enumerate(action.to, action.first):
            self.rows.append((R.SEND, self._now, self._me, seq, target, action.kind, action.size, 0, action.round, -1,
                              -1))
            if target == self._me:
                self._arrive(Copy(self._me, seq, target, action.kind, action.size, action.round,
                                  Payload(self._me, action.first, self._me), ()))
                continue
            assert encoded is not None
            head = len(encoded.header)
            frames = encoded.frames()
            envelope = ENVELOPE.pack(head, sum(len(f) for f in frames) - head, action.round, seq)
            self._queues[target].put_nowait([envelope, *frames])
            self.bytes_written += ENVELOPE_BYTES + sum(len(f) for f in frames)

    def _arrive(self, copy: Copy) -> None:
        node, patience = self._node, self._node.patience
        late = bool(copy.round) and copy.round <= node.left
        self.rows.append((R.DELIVER, self._now, copy.source, copy.seq, R.DELIVERED_LATE if late else R.INBOX))
        if late:
            self._frames.pop((copy.source, copy.seq), None)
            return
        node.reached[copy.source] = max(copy.round, node.reached.get(copy.source, 0))
        if (patience is not None and len(patience.got) < patience.need and copy.source not in patience.got
                and matches(node, patience, copy)):
            patience.got[copy.source] = copy
        else:
            node.inbox.append(copy)
        self._changed.set()

    def _forget_late(self) -> None:
        node = self._node
        for copy in node.inbox:
            if copy.round and copy.round <= node.left:
                self._frames.pop((copy.source, copy.seq), None)
        node.inbox = [copy for copy in node.inbox if not copy.round or copy.round > node.left]

    async def _compute(self, action: Compute, begin_ns: int) -> RoleEvent:
        """At least as long as the scenario says, and longer on a slower node than the work really took."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._work)
        await self._sleep_until(begin_ns + max(action.cost, round((self._now - begin_ns) / self._speed)))
        now = self._now
        self.rows.append((R.COMPUTE, begin_ns, self._me, action.label, now - begin_ns, action.work, self._node.round))
        return Computed(self._me, now)

    def _work(self) -> None:
        while self._core.work():
            pass

    async def _next_round(self, action: NextRound) -> RoleEvent:
        node = self._node
        if action.of is None:
            number = node.round + 1
            if action.sync is not None:
                number = max(number, newest_reached(node, action.sync, action.quorum))
            if self._me in self._deciders and self._last is not None and number > self._last:
                number = 0
        else:
            node.leaders, node.quorum = tuple(action.of), action.quorum
            while (number := newest_reached(node, action.of, action.quorum)) <= node.round:
                await self._change()
        if number:
            node.round, node.in_round, node.left = number, True, max(node.left, number - 1)
            self._forget_late()
        self.rows.append((R.ENTER, self._now, self._me, number))
        return Entered(self._me, self._now, number)

    async def _wait(self, patience: Patience) -> Ready:
        node, deadline = self._node, patience.wait.deadline
        node.patience = patience
        take_from_inbox(node, patience)
        while True:
            left_s = None if deadline == NO_DEADLINE else (deadline - self._now) / 1e9
            if node.in_round and round_is_over(node):
                return self._resume(patience, WaitEnd.ROUND_OVER)
            if len(patience.got) >= patience.need:
                return self._resume(patience, WaitEnd.COMPLETE)
            if left_s is not None and left_s <= 0:
                return self._resume(patience, WaitEnd.TIMEOUT)
            await self._change(left_s)

    def _resume(self, patience: Patience, outcome: WaitEnd) -> Ready:
        node, got = self._node, patience.unread()
        node.patience = None
        if outcome == WaitEnd.ROUND_OVER:
            node.inbox, got = got + node.inbox, []
        if patience.wait.accepts:
            node.refusable = patience
        self.rows.append((R.RESUME, self._now, self._me, int(outcome), len(got)))
        return Ready(self._me, self._now, [Ref(c.source, c.seq, True) for c in got], outcome)

    async def _reject(self, action: Reject) -> Ready:
        patience = self._node.refusable
        assert patience is not None
        for source, reason in zip(action.sources, action.reasons, strict=True):
            copy = patience.got.pop(source)
            self.rows.append((R.REJECT, self._now, copy.source, copy.seq, reason))
        patience.handed = set(patience.got)
        return await self._wait(patience)

    async def _change(self, timeout_s: float | None = None) -> None:
        self._changed.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
