"""A worker process: one thread computes, another serves frames and the heartbeat.

The compute thread talks to the coordinator (`control`). The I/O thread owns the `inbox`, to which the coordinator
sends what to ship and the other workers send payloads, and the heartbeat; so a long computation neither looks like a
death nor keeps others waiting for a payload that lies here. Frames on the sockets, first part a tag:

    control   S setup, run, addresses of all inboxes | E events | H events, answers are urgent | F finish | A abort |
              Q quit
              answered by    r ready, at first with the inbox's address | R replies | O observations | D done |
              X failure to begin a run | Z failure that ends the process
    inbox     C commands of the coordinator: [ship (and forget), forget] | E end of a run |
              P run, payloads of a peer: headers, small arrays in a frame, and a frame a large one

Every peer knows the pool's token: every message to an inbox begins with it, and on the control socket a worker is
called by it and its number, as its heartbeat says. A message without it is passed over: it is some other process's.
Behind a heartbeat stand the run, what is to be said of a role of it that takes too long (`emul.workers.patience`), or
nothing, and to whom the worker has lost its connection, if to anybody.

A run ends in both threads: the coordinator says so on both sockets, and the compute thread waits until the I/O thread
has come to that point of its inbox. So no command of one run meets the payloads of the next; what a slower peer still
sends for an ended run carries that run's number and is thrown away.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec
import zmq

from emul.base.errors import EmulError, NotRecorded
from emul.base.tracebacks import named, writable
from emul.message.wire import Encoded, from_frames, padded, unpadded
from emul.roles.events import Event, Observation, Reply
from emul.workers.attacking import Note
from emul.workers.collections import rare_collections
from emul.workers.core import Core, FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue
from emul.workers.patience import RoleWatch
from emul.workers.payloads import Key
from emul.workers.setup import Setup
from emul.workers.transport import Connection, Context, WorkerSettings

BEAT_S = 0.5                        # between two heartbeats
CHUNK = 64                          # activations answered at once
# Arrays up to this share a frame on the way to another worker: a frame costs ZeroMQ and Python some 10 us at both ends,
# a copy of 20 kB one or two.
SMALL_BYTES = 1 << 16
# A bundle with more bytes than this is sent. It lies in one block where it arrives, and a block of 4 MB is new pages
# each time, which cost as much as the copy; small blocks are used again.
BUNDLE_BYTES = 1 << 16
# A reply is kept back at most so long for others that the coordinator waits for as well: each answer wakes threads in
# three processes. A round of 100 clients and five epochs takes 1, 6 and 5 % less CPU than with 50 ms (three pairs in
# turn on a busy machine, docs/decisions/batches.md).
HOLD_S = 0.25

Described = tuple[int, int, bytes, list[int]]       # source, number; header, sizes of the arrays

events_decoder = msgspec.msgpack.Decoder(list[Event])
replies_decoder = msgspec.msgpack.Decoder(list[Reply])
observations_decoder = msgspec.msgpack.Decoder(list[Observation])
done_decoder = msgspec.msgpack.Decoder(tuple[list[Observation], list[Timing], list[Note], list[KeptValue], StoreUse,
                                             FittedGroups, str])
setup_decoder = msgspec.msgpack.Decoder(Setup)
commands_decoder = msgspec.msgpack.Decoder(tuple[list[tuple[int, int, int, bool]], list[Key]])
addresses_decoder = msgspec.msgpack.Decoder(list[str])
payloads_decoder = msgspec.msgpack.Decoder(tuple[int, list[Described]])
encoder = msgspec.msgpack.Encoder()


class Ending:
    """The end of the process `pid`, by a descriptor where there are such, else by asking now and then.

    descriptor: can be read once it has ended (Linux); None: ask whether the end has `come`.
    """

    def __init__(self, pid: int):
        self._pid, self._parent = pid, os.getppid()
        opened = getattr(os, "pidfd_open", None)
        try:
            self.descriptor: int | None = None if opened is None else int(opened(pid))
        except OSError:                     # it has ended, or the system's call is not there, or forbidden
            self.descriptor = None

    def come(self) -> bool:
        """True if the process has ended. A parent has as soon as somebody else takes its place, and others once
        nobody has to hear of their end any more."""
        if self._parent == self._pid:
            return os.getppid() != self._pid
        try:
            os.kill(self._pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:         # there is one
            return False
        return False


def main(text: str) -> None:
    """Entry of a worker process; `text` is that of its `WorkerSettings`. Ends when it is told to, or when the process
    that it watches is gone: then it removes the sockets' directory and the one of the fork server, for nobody else is
    left to do it."""
    told = WorkerSettings.of(text)

    def orphaned() -> NoReturn:
        for path in told.leftovers * 2:         # again: another worker may just have bound its socket there
            shutil.rmtree(path, ignore_errors=True)
            time.sleep(0.05)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(0.0005)       # the I/O thread must not wait 5 ms for a computing thread
    import torch

    torch.set_num_threads(1)
    atexit._clear()                     # those of the fork server and of torch, which may hang in a forked process
    context = told.transport.context()
    ending = Ending(told.watched)
    if ending.come():
        orphaned()
    try:
        io = IO(context, told, ending, orphaned)
    except zmq.ZMQError:
        if told.transport.given_up:             # as after a Ctrl-C, before all had started
            os._exit(1)
        raise
    control = context.socket(zmq.DEALER)
    control.setsockopt(zmq.IDENTITY, f"{told.token}{told.index}".encode())
    control.setsockopt(zmq.SNDHWM, 0)
    control.setsockopt(zmq.RCVHWM, 0)
    io.watch(control, "the coordinator")
    io.start()
    told.transport.connect(control, told.control)
    control.send_multipart([b"r", io.address.encode()])
    try:
        Loop(control, io).run()
    except BaseException as e:
        control.send_multipart([b"Z", _failure(e).encode()])
        time.sleep(0.2)                 # for ZeroMQ to send it: the context cannot be closed under the I/O thread
    _run_exit_handlers()
    os._exit(0)


def _run_exit_handlers() -> None:
    """Call the handlers that roles, apps and libraries have registered in this process: `atexit`, and the semaphores
    of multiprocessing (tqdm has one), which would else be reported as leaked when the run is over."""
    atexit._run_exitfuncs()
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util._run_finalizers()          # of this process alone: each knows the process that made it
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):      # closed by a role, or by who reads it
            stream.flush()


def _failure(error: BaseException) -> str:
    """The coordinator's text on the error, after a colon: of a bug with its traceback."""
    if isinstance(error, (EmulError, OSError)):
        return f" {named(error)}"
    return writable("\n" + "".join(traceback.format_exception(error)))


class Bundle:
    """Payloads on their way to one worker. A frame of its own costs more than to copy what is small."""

    # A frame costs ZeroMQ and Python some 10 us at both ends, a copy of 20 kB one or two. Bundles of 4 MB in place of
    # 64 KiB are new pages each time, which cost as much as the copy
    # (`test_small_and_large_arrays_come_out_as_they_went_in`).

    def __init__(self) -> None:
        self.described: list[Described] = []
        self.small: list[bytes | memoryview] = []
        self.large: list[bytes | memoryview] = []
        self.size = 0                               # bytes of arrays

    def add(self, source: int, number: int, payload: Encoded) -> None:
        """One more. number: of its first copy; ~number: what goes with it off the wire."""
        sizes = []
        for buffer in payload.frames()[1:]:
            size = len(buffer)
            sizes.append(size)
            self.size += size
            (self.large if size > SMALL_BYTES else self.small).append(buffer)
        self.described.append((source, number, payload.header, sizes))

    def frames(self) -> list[bytes | memoryview]:
        """The frames that `unbundled` takes after `described`: the small arrays in one, and each large one."""
        return [b"".join(padded(self.small)), *self.large]


def unbundled(described: list[Described], small: bytes, large: list[bytes]) -> dict[Key, Encoded]:
    """The payloads of a `Bundle`. small: its small arrays one after the other, each on a boundary."""
    found: dict[Key, Encoded] = {}
    parts = iter(unpadded(small, [size for *_, sizes in described for size in sizes if size <= SMALL_BYTES]))
    whole = iter(large)
    for source, number, header, sizes in described:
        if max(sizes, default=0) <= SMALL_BYTES:
            came = Encoded(header, [next(parts) for _ in sizes])
        else:
            came = from_frames([header, *[next(parts) if size <= SMALL_BYTES else next(whole) for size in sizes]])
        if number < 0:
            found[source, ~number].aside = came
        else:
            found[source, number] = came
    return found


class IO(threading.Thread):
    """Serves frames to the other workers, takes theirs, and beats."""

    def __init__(self, context: Context, told: WorkerSettings, coordinator: Ending, orphaned: Callable[[], NoReturn]):
        """`orphaned` is called once the coordinator has ended. address: of the inbox."""
        super().__init__(daemon=True)
        self.outbox: dict[Key, Encoded] = {}            # payloads for other workers, until the kernel has decided
        self._arrived: dict[Key, Encoded] = {}
        self._run = 0                                   # number of the run that is open, or was last
        self._ended = False                             # the coordinator will command nothing more in this run
        self._news = threading.Condition()
        self._index, self._token, self._transport = told.index, told.token.encode(), told.transport
        self._context = context
        self._addresses: list[str] = []                 # of the inboxes of all workers
        self._peers: dict[int, zmq.Socket[bytes]] = {}
        self._poller = zmq.Poller()
        self._watched: list[tuple[str, Connection]] = []
        self._lost: list[bytes] = []                    # with whom the connection has been lost
        self.patience: RoleWatch | None = None           # with the roles of the run that is open
        self._inbox = context.socket(zmq.PULL)
        self._inbox.setsockopt(zmq.RCVHWM, 0)
        self.address = self._transport.bind(self._inbox, f"w{told.index}")
        self._beat = context.socket(zmq.PUSH)
        self._beat.setsockopt(zmq.LINGER, 0)
        self._beat.setsockopt(zmq.SNDHWM, 10)
        self._transport.connect(self._beat, told.beat)
        self._coordinator, self._orphaned = coordinator, orphaned

    def run(self) -> None:
        try:
            self._serve_forever()
        except BaseException:
            traceback.print_exc()
            os._exit(1)                 # a worker that beats no more would be found out, but late and without a reason

    def _serve_forever(self) -> None:
        self._poller.register(self._inbox, zmq.POLLIN)
        if self._coordinator.descriptor is not None:
            self._poller.register(self._coordinator.descriptor, select.POLLIN)
        next_beat = 0.0
        while True:
            now = time.monotonic()
            if now >= next_beat:
                patience = self.patience
                late = b"" if patience is None else patience.look(now).encode()
                with contextlib.suppress(zmq.Again):    # full while the coordinator idles; to block would miss its end
                    self._beat.send_multipart([self._token + b"%d" % self._index, b"%d" % self._run, late, *self._lost],
                                              zmq.NOBLOCK)
                next_beat = now + BEAT_S
                if self._coordinator.descriptor is None and self._coordinator.come():
                    self._orphaned()
            ready = dict(self._poller.poll(max(1, int((next_beat - now) * 1000))))
            if self._coordinator.descriptor in ready:
                self._orphaned()
            self._lost += [other.encode() for other, connection in self._watched if connection.lost()]
            if self._inbox in ready:
                self._drain()

    def _drain(self) -> None:
        while True:
            try:
                token, *parts = self._inbox.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            if token != self._token:
                continue
            tag, header, *frames = parts
            if tag == b"C":
                self._serve(*commands_decoder.decode(header))
            elif tag == b"P":
                self._take(*payloads_decoder.decode(header), frames[0], frames[1:])
            else:
                with self._news:
                    self._ended = True
                    self._news.notify()

    def _serve(self, ships: list[tuple[int, int, int, bool]], forgets: list[Key]) -> None:
        """Send payloads to the workers that need them, and let go of those that nobody else will."""
        bundles: dict[int, Bundle] = {}
        for source, first, target, last in ships:
            payload = self.outbox.pop((source, first)) if last else self.outbox[source, first]
            bundle = bundles.get(target)
            if bundle is None or bundle.size > BUNDLE_BYTES:
                if bundle is not None:
                    self._ship(target, bundle)
                bundle = bundles[target] = Bundle()
            for number, part in ((first, payload), (~first, payload.aside)):    # its companion comes after it
                if part is not None:
                    bundle.add(source, number, part)
        for target, bundle in bundles.items():
            self._ship(target, bundle)
        for key in forgets:
            self.outbox.pop(key, None)

    def _ship(self, target: int, bundle: Bundle) -> None:
        self._peer(target).send_multipart([self._token, b"P", encoder.encode((self._run, bundle.described)),
                                           *bundle.frames()], copy=False)

    def _peer(self, target: int) -> zmq.Socket[bytes]:
        if target not in self._peers:
            peer = self._peers[target] = self._context.socket(zmq.PUSH)
            peer.setsockopt(zmq.LINGER, 0)
            peer.setsockopt(zmq.SNDHWM, 0)
            self.watch(peer, f"worker {target}")
            self._transport.connect(peer, self._addresses[target])
        return self._peers[target]

    def watch(self, socket: zmq.Socket[bytes], other: str) -> None:
        """Have it told with the heartbeat when this connection to `other`, not made yet, is lost."""
        connection = self._transport.watched(socket)
        if connection is not None:
            self._watched.append((other, connection))
            self._poller.register(connection.events, zmq.POLLIN)

    def _take(self, run: int, described: list[Described], small: bytes, large: list[bytes]) -> None:
        arrived = unbundled(described, small, large)
        with self._news:
            if run == self._run:
                self._arrived.update(arrived)
                self._news.notify()

    def wait_for(self, key: Key) -> Encoded | None:
        """The payload `key`, which is on its way to this worker; it is handed out once. None: the run was aborted."""
        with self._news:
            while key not in self._arrived and not self._ended:
                self._news.wait()
            return self._arrived.pop(key, None)

    def begin(self, run: int, addresses: list[str]) -> None:
        """A run begins; nobody sends payloads of it before all workers have said that they are ready."""
        with self._news:
            self._run = run
            self._addresses = addresses

    def end(self) -> None:
        """Forget the run's payloads, once the coordinator's last command has been carried out."""
        with self._news:
            while not self._ended:
                self._news.wait()
            self._ended = False
            self._run = 0
            self._arrived.clear()
        self.outbox.clear()


class Loop:
    """The compute thread: takes events, answers, and does real work when nothing is to be answered."""

    def __init__(self, control: zmq.Socket[bytes], io: IO):
        self._control, self._io = control, io
        self._core: Core | None = None
        self._hurry = True                          # H: another worker may wait for what the replies lead to
        self._answered = 0.0
        self._quiet = contextlib.ExitStack()        # the collector is kept out of the way during a run

    def run(self) -> None:
        while True:
            core = self._core
            if core is not None and not core.idle and not self._control.poll(0):
                core.work(settle=self._hurry)
                if self._hurry or not core.awaited or time.monotonic() - self._answered >= HOLD_S:
                    core.settle()
                    self._answer(core)
                continue
            tag, *body = self._control.recv_multipart()
            if tag in (b"E", b"H"):
                self._hurry = tag == b"H"
                if core is not None:    # else the run was aborted while this was under way
                    if self._hurry:
                        core.settle()
                    self._events(core, events_decoder.decode(body[0]))
            elif tag == b"S":
                self._open(body[0], int(body[1]), addresses_decoder.decode(body[2]))
            elif tag == b"F":
                assert core is not None
                unwritten = ""
                try:
                    core.finish()
                except NotRecorded as e:
                    unwritten = str(e)
                used = core.close()
                self._end()
                left = core.observations, core.timings, core.notes, core.kept, used, core.fitted, unwritten
                self._control.send_multipart([b"D", encoder.encode(left)])
            elif tag == b"A":
                used = StoreUse() if core is None else core.close()
                self._end()
                self._control.send_multipart([b"D", encoder.encode(([], [], [], [], used, FittedGroups(), ""))])
            elif tag == b"Q":
                return

    def _open(self, body: bytes, run: int, addresses: list[str]) -> None:
        self._io.begin(run, addresses)
        try:
            setup = setup_decoder.decode(body)
            self._quiet.enter_context(rare_collections(len(setup.names)))
            self._core = core = Core(setup, self._io.outbox, self._io.wait_for)
            if setup.patience_s:
                self._io.patience = RoleWatch(threading.get_ident(), setup.patience_s, core.whose)
        except Exception as e:
            self._quiet.close()
            self._control.send_multipart([b"X", _failure(e).encode()])
            return
        self._control.send(b"r")

    def _end(self) -> None:
        self._core = self._io.patience = None
        self._quiet.close()
        self._io.end()

    def _events(self, core: Core, events: list[Event]) -> None:
        chunk = max(CHUNK, len(events) // 4)
        for event in events:
            core.put(event)
            if len(core.replies) >= chunk:
                self._answer(core)
        self._answer(core)

    def _answer(self, core: Core) -> None:
        if core.replies:
            self._control.send_multipart([b"R", encoder.encode(core.replies)])
            core.replies = []
            self._answered = time.monotonic()
        if core.observations:
            self._control.send_multipart([b"O", encoder.encode(core.observations)])
            core.observations = []
