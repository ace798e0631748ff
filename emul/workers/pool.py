"""The coordinator's side of the worker processes: a pool that outlives runs, and the kernel's port to it.

    with Workers(2) as pool:
        run(scenario, workers=pool)

A launcher starts the workers (`emul.workers.launcher`), frames travel by its transport (`emul.workers.transport`); by
default processes of this machine, and Unix sockets. A message without the pool's token, from another process of this
user, is passed over. A death is noticed by the process's own descriptor, a hang by missing heartbeats; a connection
that is lost while both of its ends live ends the run, since nobody knows what was under way on it. Control messages
carry headers, and the frames of small messages; other payloads travel from worker to worker.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Sequence

import msgspec
import zmq

from emul.base.errors import ConnectionLost, NotRecorded, RoleFailed, RoleHangs, WorkerDied
from emul.roles.events import Close, Drop, Event, Fuse, Observation, Reply
from emul.workers.attacking import Note
from emul.workers.core import FittedGroups, StoreUse
from emul.workers.jobs import Timing
from emul.workers.keeping import KeptValue
from emul.workers.launcher import Launcher, LocalLauncher, Started
from emul.workers.setup import Setup
from emul.workers.transport import Connection, Context, WorkerSettings

_BATCH = 48                         # events sent to a worker at once while the kernel goes on, if it is the only one,
_MOST = 512                         # more, a quarter of what it has not answered, where that is much,
_FIRST = 8                          # and to one that has nothing to do
_EXPLAINED_S = 3.0                  # for the death that explains a lost connection to become known
_HOLD_MS = 250                      # payloads that nobody waits for yet are not asked for one by one
_START_TIMEOUT_S = 120.0            # from the fork server's start to the first word of a worker
_WITHOUT_ANSWER = (Close, Drop, Fuse)

Tell = Callable[[list[Observation]], None]
# a worker's answer at the end of a run: the last text names files it could not write, if any
Done = tuple[list[Observation], list[Timing], list[Note], list[KeptValue], StoreUse, FittedGroups, str]


def discard(seen: list[Observation]) -> None:
    """For whoever does not want to hear what is observed before the run has ended."""


class Workers:
    """`n` worker processes. `timeout_s`: without a heartbeat for so long, a worker counts as hanging. `launcher`: who
    starts them; None: processes of this machine."""

    # A pool takes one run after the other, so a scenario of many schemes starts processes once; it forgets all of the
    # run before (`test_a_pool_outlives_runs_and_keeps_nothing_of_them`). Heartbeats come from an I/O thread, so a long
    # training is no hang (`test_a_worker_is_heard_of_while_it_computes`).

    def __init__(self, n: int, timeout_s: float = 30.0, launcher: Launcher | None = None):
        if n < 1:
            raise ValueError(f"workers = {n}: expected at least 1")
        self.workers = n
        self.timeout_s = timeout_s
        self._launcher: Launcher = LocalLauncher() if launcher is None else launcher
        self._transport = self._launcher.transport()
        # It guards against mistakes of the same user, whose other processes may write to these sockets. CURVE would
        # encrypt every payload against somebody who may read the memory of the workers anyway
        # (`test_a_run_amid_junk_on_its_sockets_is_the_run_that_it_would_have_been`).
        self._token = secrets.token_hex(16).encode()            # of whoever may speak on the sockets
        self._senders = [self._token + b"%d" % index for index in range(n)]     # names of the workers there
        self._processes: Sequence[Started] = []
        self._addresses = [""] * n                              # of the workers' inboxes, told by them
        self._context: Context | None = None
        self._encoder = msgspec.msgpack.Encoder()
        self._replies: dict[int, Reply] = {}
        self._observations: dict[tuple[int, int], Observation] = {}
        self.tell: Tell = discard       # of the run that is open: what is observed, as it comes
        self._done: list[Done] = []
        self._events: list[list[Event]] = [[] for _ in range(n)]
        self._ships: list[list[tuple[int, int, int, bool]]] = [[] for _ in range(n)]
        self._forgets: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self._commanded: set[int] = set()   # workers to which ships or forgets are held
        self._targets: set[int] = set()     # workers to which those ships go
        self._held_since = 0.0
        # Of n workers each gets its n-th of the events: batches as large would wait so much longer until they are full.
        # Two workers take 28.6 us an activation with batches of 48 and 23.1 with 24; 16 and 12 cost as much in sending.
        self._batch = max(_FIRST, _BATCH // n)
        self._unanswered = [0] * n          # events of roles that have no answer yet
        self._hurried = [False] * n         # answers at once, and not several of them after up to `process.HOLD_S`
        self._runs = 0                      # opened so far
        self._running = False
        self._ending = False                # the workers have been told that the run is over
        self._broken = False
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # --- life -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        context = self._context = self._transport.context()
        self._control = context.socket(zmq.ROUTER)
        self._control.setsockopt(zmq.SNDHWM, 0)
        self._control.setsockopt(zmq.RCVHWM, 0)
        control = self._transport.bind(self._control, "control")
        self._beats = context.socket(zmq.PULL)
        beat = self._transport.bind(self._beats, "beat")
        self._inboxes = []
        for _ in range(self.workers):
            inbox = context.socket(zmq.PUSH)
            inbox.setsockopt(zmq.SNDHWM, 0)
            self._inboxes.append(inbox)
        self._processes = self._launcher.start([
            WorkerSettings(index, self._token.decode(), self._transport, control, beat, 0)
            for index in range(self.workers)])
        self._poller = zmq.Poller()
        self._poller.register(self._control, zmq.POLLIN)
        self._poller.register(self._beats, zmq.POLLIN)
        for process in self._processes:
            self._poller.register(process.sentinel, zmq.POLLIN)
        self._last_beat = [time.monotonic() + _START_TIMEOUT_S] * self.workers
        self._looked = time.monotonic()
        self._watched: list[tuple[int, Connection]] = []        # to the workers' inboxes
        # since when it is known, between whom, and which of them are workers
        self._lost: tuple[float, str, set[int]] | None = None
        self._ready = 0
        self._until_ready()

    def _until_ready(self) -> None:
        while self._ready < self.workers:
            self._poll()
        self._ready = 0

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers, gently while nothing is wrong, by a signal otherwise. May be called twice."""
        processes, self._processes = self._processes, []
        if self._context is not None:
            if not self._broken and not self._running:
                # first: who is told to end looks after nothing any more, should this process be killed now
                self._transport.remove()
                for index in range(len(processes)):
                    self._control.send_multipart([self._senders[index], b"Q"])
                for process in processes:
                    process.join(2)
            for process in processes:
                if process.is_alive():
                    process.kill()
            for process in processes:
                process.join(5)
            self._context.destroy(linger=0)
            self._context = None
        else:
            for process in processes:
                process.kill()
                process.join(5)
        self._transport.remove()
        self._launcher.close()

    # --- a run ----------------------------------------------------------------------------------------------------

    def open(self, setups: Sequence[Setup]) -> None:
        """Begin a run: one set-up per worker. Raises RoleFailed with the traceback if a worker cannot."""
        self.tell = discard
        if self._broken:
            raise WorkerDied("this pool has lost a worker; make a new one")
        if self._running:                   # the last one was interrupted, and so was its end
            self.abort()
        setups = self._launcher.prepare(setups)
        self._replies.clear()
        self._observations.clear()
        self._done.clear()
        self._ready = 0
        self._runs += 1
        self._running, self._ending = True, False
        self._unanswered = [0] * self.workers
        peers = self._encoder.encode(self._addresses)
        for index, setup in enumerate(setups):
            self._control.send_multipart([self._senders[index], b"S", self._encoder.encode(setup), b"%d" % self._runs,
                                          peers])
        self._until_ready()

    def finish(self) -> tuple[list[Observation], list[Timing]]:
        """End the run: all observations, by (round, node), and timings, by worker. Raises NotRecorded: a model that was
        to be left could not be written."""
        self._flush()
        self._flush_commands()
        self._end(b"F")
        self._launcher.collect()
        for *_, unwritten in self._done:
            if unwritten:
                raise NotRecorded(unwritten)
        timings = [timing for _, timings, *_ in self._done for timing in timings]
        return sorted(self._observations.values(), key=lambda o: (o.round, o.node)), timings

    @property
    def notes(self) -> list[Note]:
        """Of the run that has ended: what was computed again of what others computed, in no order that counts."""
        return [note for _, _, notes, *_ in self._done for note in notes]

    @property
    def store_use(self) -> StoreUse:
        """Of the run that has ended last."""
        return sum((used for *_, used, _, _ in self._done), StoreUse())

    @property
    def fitted(self) -> FittedGroups:
        """Of the run that has ended last."""
        return sum((fitted for *_, fitted, _ in self._done), FittedGroups())

    @property
    def kept(self) -> list[KeptValue]:
        """Of the run that has ended: what its nodes left in the run directory, by node and name."""
        return sorted((one for _, _, _, kept, *_ in self._done for one in kept), key=lambda one: (one.node, one.name))

    def abort(self) -> None:
        """End a run that failed, so that the pool can take the next one."""
        if not self._running:
            return
        if self._broken:
            self._launcher.collect()
            return
        self._events = [[] for _ in range(self.workers)]
        self._ships = [[] for _ in range(self.workers)]
        self._forgets = [[] for _ in range(self.workers)]
        self._commanded.clear()
        self._targets.clear()
        self._end(b"A")
        self._launcher.collect()

    def _end(self, tag: bytes) -> None:
        """Tell both threads of every worker that the run is over, once, and wait until all have said so."""
        if not self._ending:
            self._ending = True
            for index in range(self.workers):
                self._inboxes[index].send_multipart([self._token, b"E", b""])
                self._control.send_multipart([self._senders[index], tag])
        while len(self._done) < self.workers:
            self._poll()
        self._running = False

    @property
    def accuracy(self) -> float | None:
        """The newest accuracy that has been observed in this run, for a progress line."""
        return newest_accuracy(self._observations)

    # --- the kernel's port ----------------------------------------------------------------------------------------

    def post(self, worker: int, event: Event) -> None:
        """Keep an event for its worker; events leave in batches, at the latest when the kernel waits."""
        events = self._events[worker]
        events.append(event)
        if type(event) not in _WITHOUT_ANSWER:
            self._unanswered[worker] += 1
        count, unanswered = len(events), self._unanswered[worker]
        if count >= _FIRST and (count == unanswered or count >= max(self._batch, min(unanswered // 4, _MOST))):
            self._flush_worker(worker)

    def reply(self, node: int, worker: int) -> Reply:
        replies = self._replies
        if node not in replies:
            self._receive()
            if node not in replies:
                self._flush()
                while node not in replies:
                    self._hurry()
                    self._poll()
        return replies.pop(node)

    def _hurry(self) -> None:
        """While a worker has nothing to do, the others shall not keep back what could give it work."""
        if 0 in self._unanswered:
            for worker, unanswered in enumerate(self._unanswered):
                if unanswered and not self._hurried[worker]:
                    self._flush_worker(worker)

    def ship(self, source: int, first: int, home: int, target: int, last: bool = False) -> None:
        """Have the frames sent with the next batch of commands to the worker `home`."""
        self._ships[home].append((source, first, target, last))
        self._targets.add(target)
        self._command(home)

    def forget(self, source: int, first: int, home: int) -> None:
        self._forgets[home].append((source, first))
        self._command(home)

    def _command(self, home: int) -> None:
        if not self._commanded:
            self._held_since = time.monotonic()
        self._commanded.add(home)

    def observation(self, node: int, round: int) -> Observation:
        self._flush()
        while (node, round) not in self._observations:
            self._poll()
        return self._observations[node, round]

    def _flush(self) -> None:
        for worker, events in enumerate(self._events):
            if events:
                self._flush_worker(worker)
        self._flush_commands(late=True)

    def _flush_commands(self, late: bool = False) -> None:
        """late: only if they have been held for long enough."""
        if not self._commanded or (late and time.monotonic() - self._held_since < _HOLD_MS / 1000):
            return
        for worker in sorted(self._commanded):
            ships, forgets = self._ships[worker], self._forgets[worker]
            self._inboxes[worker].send_multipart([self._token, b"C", self._encoder.encode((ships, forgets))])
            ships.clear()
            forgets.clear()
        self._commanded.clear()
        self._targets.clear()

    def _flush_worker(self, worker: int) -> None:
        if worker in self._targets:         # the next command may be to read them
            self._flush_commands()
        self._hurried[worker] = 0 in self._unanswered
        self._send(worker, b"H" if self._hurried[worker] else b"E", self._events[worker])
        self._events[worker] = []

    def _send(self, worker: int, tag: bytes, body: object) -> None:
        self._control.send_multipart([self._senders[worker], tag, self._encoder.encode(body)])

    # --- receiving ------------------------------------------------------------------------------------------------

    def _receive(self) -> bool:
        """Take everything that has come on the control socket. False: nothing had."""
        from emul.workers.process import done_decoder, observations_decoder, replies_decoder

        some = False
        while True:
            try:
                sender, *body = self._control.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return some
            if sender not in self._senders:
                continue
            worker, tag, *body = self._senders.index(sender), *body
            some = True
            if tag == b"R":
                replies = replies_decoder.decode(body[0])
                self._unanswered[worker] -= len(replies)
                for reply in replies:
                    self._replies[reply.node] = reply
            elif tag == b"O":
                self._observed(observations_decoder.decode(body[0]))
            elif tag == b"D":
                self._done.append(done_decoder.decode(body[0]))
                self._observed(self._done[-1][0])
            elif tag == b"r":
                self._ready += 1
                if body:                    # its first word has its address
                    self._addresses[worker] = body[0].decode()
                    self._connect(worker)
            elif tag == b"X":
                if not self._ending:        # else it is known already that this run fails
                    raise RoleFailed("a worker could not begin the run:" + body[0].decode(errors="replace"))
            elif tag == b"Z":
                self._broken = True         # that process is ending
                raise RoleFailed("a worker failed:" + body[0].decode(errors="replace"))

    def _connect(self, worker: int) -> None:
        connection = self._transport.watched(self._inboxes[worker])
        if connection is not None:
            self._watched.append((worker, connection))
            self._poller.register(connection.events, zmq.POLLIN)
        self._transport.connect(self._inboxes[worker], self._addresses[worker])

    def _observed(self, observations: list[Observation]) -> None:
        for seen in observations:
            self._observations[seen.node, seen.round] = seen
        if observations:
            self.tell(observations)

    def _poll(self) -> None:
        """Block until something comes. Raises WorkerDied for a process that ended or sends no heartbeat, RoleHangs, and
        ConnectionLost."""
        ready = dict(self._poller.poll(_HOLD_MS if self._commanded else 1000))
        self._flush_commands(late=True)
        now = time.monotonic()
        if now - self._looked > self.timeout_s / 2:     # this process was stopped itself, and perhaps all of them
            self._last_beat = [max(last, now) for last in self._last_beat]
        self._looked = now
        if self._beats in ready:
            self._hear(now)
        for index, connection in self._watched:
            if connection.lost():
                self._note_loss(now, "the coordinator", index)
        if self._control in ready:
            self._receive()             # first: a worker that dies may have said why
        for index, process in enumerate(self._processes):
            if process.sentinel in ready:
                self._broken = True
                raise WorkerDied(f"worker {index} ({process.place}) {process.ending()}")
            if now - self._last_beat[index] > self.timeout_s:
                self._broken = True
                raise WorkerDied(f"worker {index} ({process.place}) sent no heartbeat for {self.timeout_s:g} s")
        if self._lost is not None and now - self._lost[0] > _EXPLAINED_S and self._both_live(self._lost):
            self._broken = True
            raise ConnectionLost(f"the connection between {self._lost[1]} was lost, and with it perhaps what was on "
                                 "its way; `emul resume` goes on with the run")

    def _hear(self, now: float) -> None:
        """Take the heartbeats that have come."""
        with contextlib.suppress(zmq.Again):
            while True:
                beat, *more = self._beats.recv_multipart(zmq.NOBLOCK)
                if beat in self._senders:
                    run, late, *lost = more
                    worker = self._senders.index(beat)
                    self._last_beat[worker] = now
                    if late and self._running and int(run) == self._runs:       # else of a run that has ended
                        self._broken = True
                        raise RoleHangs(late.decode())
                    if lost:
                        self._note_loss(now, lost[0].decode(), worker)

    def _note_loss(self, now: float, other: str, worker: int) -> None:
        if self._lost is None:
            ends = {worker, *(index for index in range(self.workers) if other == f"worker {index}")}
            self._lost = now, f"{other} and worker {worker} ({self._processes[worker].place})", ends

    def _both_live(self, lost: tuple[float, str, set[int]]) -> bool:
        """True if the workers at a lost connection were heard of since. Else one has died, or its machine has, which a
        launcher may know only later; at the latest its heartbeat tells."""
        since, _, ends = lost
        return all(self._last_beat[worker] > since + _EXPLAINED_S / 2 for worker in ends)


def newest_accuracy(observations: dict[tuple[int, int], Observation]) -> float | None:
    """That of the latest round which has one; None: there is none yet."""
    seen = max((o for o in observations.values() if "accuracy" in o.values), key=lambda o: o.round, default=None)
    return None if seen is None else seen.values["accuracy"]
