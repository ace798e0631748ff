"""`emul.Clock`: a network for a training loop that one already has.

    clock = emul.Clock("network.yaml")
    with clock.round() as now:
        for c in chosen:
            with now.client(c, down=model) as at:
                at.up(clients[c].train(model))
        heard = now.gather(deadline=2.0)
    clock.report(accuracy=test(model))
    run = clock.finish()

The loop computes one client after the other; in virtual time they compute side by side. It stands still while the
network runs, in a thread of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time_ns, thread_time_ns
from types import TracebackType
from typing import TYPE_CHECKING, cast

import numpy as np

from emul import engine
from emul import scenario as scenarios
from emul.api.runs import Run, runs_of
from emul.base.errors import EmulError
from emul.base.plain import PlainDict
from emul.base.tracebacks import named
from emul.base.units import LARGEST
from emul.kernel.parts import Fault, NodeCrash, NodeLeave, Plan
from emul.loop.caller import FIRST_BATCH, Caller, Came, LoopAnswer, Mode, Orders, PeerStep, RunEnded, Step, run_for
from emul.loop.payload import NOTHING, LoopPayload, arrays_of, payload_of
from emul.roles.events import Close, Event, Start
from emul.roles.world import within
from emul.scenario import Given, Scenario, Stop
from emul.scenario.devices import ROOFLINE, step_time
from emul.scenario.document import LOOP, MOST_ROUNDS
from emul.scenario.placing import islands_at
from emul.scenario.wording import nearest
from emul.workers.twin import Twin

if TYPE_CHECKING:
    from emul.learning.counting import StepCount

_CLOSING_S = 5.0                    # for a run that is told to end


class LoopError(EmulError):
    """The loop asks the clock for what it cannot do; the text says what it can."""


class ClientBlock:
    """The block `with now.client(...) as at`: what one client does. Its CPU time is the client's computation.

    CPU time is that of this process, all its threads together. Other processes and a GPU do not count: say their time
    by `takes`.
    """

    def __init__(self, clock: Clock, node: int, down: LoopPayload, label: str):
        self._clock, self.node, self.down, self.label = clock, node, down, label
        self.payload: LoopPayload = NOTHING
        self.takes_s: float | None = None
        self.cpu_ns = 0
        self._own_ns = 0                # of emul, inside the block
        self._up = False

    def up(self, payload: object) -> None:
        """Have the client send when it has computed: arrays, a number of bytes, or None. Raises LoopError: said twice,
        of peers, or neither arrays nor a number."""
        begin = thread_time_ns()        # other threads may go on with the client's work meanwhile
        if self._clock.mode == "peers":
            raise LoopError("at.up() has no server to send to: peers send by now.exchange(pairs, payloads)")
        if self._up:
            raise LoopError(f"{self._clock.names[self.node]} has sent already: at.up() is said once in a block; put "
                            "all that it sends into one list")
        self.payload, self._up = self._clock._encoded(payload, "at.up()"), True
        self._own_ns += thread_time_ns() - begin

    def takes(self, time: float | StepCount, steps: int = 1) -> None:
        """Have the client compute for so long, in place of the CPU time of the block: seconds at speed 1, so that a
        node of speed 0.5 takes twice as long; or what the client's device takes for what `Clock.count` has counted.
        steps: so many of these. Raises LoopError: no time, or nothing says how fast the client is."""
        counted = hasattr(time, "operations")
        each = self._clock._seconds_of(self.node, cast("StepCount", time)) if counted else time
        self.takes_s = _seconds(_seconds(each, "at.takes()") * _steps(steps), "at.takes()")

    def __enter__(self) -> ClientBlock:
        self._begin_ns = process_time_ns()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.cpu_ns = max(0, process_time_ns() - self._begin_ns - self._own_ns)
        self._clock._left(self, error)


@dataclass(frozen=True)
class Arrival:
    """An update that has come: whose, of which round, and when, in seconds of virtual time."""

    client: str
    round: int
    time_s: float


class LoopRound:
    """A round: the block `with clock.round() as now`."""

    def __init__(self, clock: Clock, number: int):
        self._clock, self.number = clock, number

    def client(self, client: str, down: object = None, label: str = "train") -> ClientBlock:
        """The block in which the loop does what this client does.

        down: what is sent to it: arrays (a state dict, lists, tensors), a number of bytes, or None for a mere call.
        label: of its computation, in profiles, traces and tables. Raises LoopError.
        """
        return self._clock._block(client, down, label)

    def server(self, label: str = "aggregate") -> ClientBlock:
        """The block in which the loop does what the server does, such as a mean; the server goes on when it is through.
        The code outside of blocks costs no virtual time. Raises LoopError: there is no server."""
        return self._clock._server_block(label)

    def send(self, client: str, down: object = None, *, up: object = None, takes: float = 0.0,
             label: str = "train") -> None:
        """A client's block in one line, where its size and time are said. Raises LoopError."""
        with self.client(client, down, label) as at:
            at.takes(takes)
            at.up(up)

    def gather(self, deadline: float | None = None, first: int | None = None) -> list[str]:
        """Run the network until all updates of this round have come, or `first` of them, or for `deadline` seconds.

        Returns the clients that are heard, in the order of arrival. Without a deadline it waits until the fate of each
        is known, which no real server can, and which an asynchronous loop cannot. Raises LoopError.
        """
        return self._clock._gather(deadline, first)

    def exchange(self, pairs: Iterable[tuple[str, str]], payloads: Mapping[str, object] | object = None,
                 deadline: float | None = None) -> dict[str, list[str]]:
        """Peers send to each other, and all wait until all are through: {peer: whom it has heard, in the order of
        arrival}, of all peers.

        pairs: (from, to). payloads: {from: arrays, number of bytes or None}, or one for all. deadline: seconds for
        which a peer waits after it has sent; None: until the fate of each message is known. Each peer computes before
        it sends as long as its block `now.client(peer)` says. Raises LoopError.
        """
        return self._clock._exchange(list(pairs), payloads, deadline)

    def __enter__(self) -> LoopRound:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._clock._leave(error)


class Presence:
    """The nodes that are there at a time, by the plan of a run: by crashes, absences, and rounds. It is asked at times
    that do not decrease."""

    def __init__(self, plan: Plan):
        self._rounds = plan.rounds
        self._coming: list[tuple[Fault | None, Iterator[Fault]]] = [
            (next(stream, None), stream) for stream in (iter(plan.faults), *plan.streams)]
        self._away: list[NodeCrash | NodeLeave] = []

    def away(self, now_ns: int) -> set[int]:
        """The nodes that are not there."""
        for place, (fault, stream) in enumerate(self._coming):
            while fault is not None and fault.at_ns <= now_ns:
                if isinstance(fault, NodeCrash | NodeLeave):
                    self._away.append(fault)
                fault = next(stream, None)
            self._coming[place] = fault, stream
        self._away = [one for one in self._away if one.until_ns is None or one.until_ns > now_ns]
        return {one.node for one in self._away}

    def takes_part(self, node: int, round_: int) -> bool:
        """True if the node takes part in that round."""
        spans = self._rounds.get(node)
        return spans is None or within(spans, round_)


class Clock:
    """Virtual time, bytes and losses for a loop; every method may raise LoopError, which says what is wrong.

    network: a file, a mapping or a Scenario; its task, schemes, attacks and `stop` are not used. mode: "synchronous":
    rounds as FedAvg's, an update that comes after its round is lost. "asynchronous": messages belong to no round, and
    `next` and `late` give updates when they come. "peers": no server, `exchange` only. label: the name of the loop in
    tables. set, seed: changes of the file, as `emul.run` takes them. out: where the run directory is made, `runs` by
    default. Raises ScenarioError.
    """

    def __init__(self, network: Given, *, mode: Mode = "synchronous", label: str = LOOP, set: Mapping[str, object] = {},
                 seed: int | None = None, out: str | os.PathLike[str] | None = None):
        if mode not in ("synchronous", "asynchronous", "peers"):
            raise LoopError(f"mode {mode!r}: expected synchronous, asynchronous or peers"
                            + nearest(str(mode), ["synchronous", "asynchronous", "peers"]))
        self.mode: Mode = mode
        self.scenario = network_for(network, mode, label, set, seed)
        wiring = engine.wire(self.scenario, *self.scenario.schemes[0])
        self.names: list[str] = list(wiring.plan.names)
        role = "peer" if mode == "peers" else "client"
        self._numbers = {name: node for node, name in enumerate(self.names) if wiring.plan.roles[node] == role}
        self._server = next((node for node, one in enumerate(wiring.plan.roles) if one == "server"), -1)
        self.clients: list[str] = list(self._numbers)
        self._presence, self._batteries = Presence(wiring.plan), frozenset(wiring.plan.batteries)
        self._devices = wiring.devices or [None] * len(self.names)
        islands = islands_at(self.scenario.node_speeds, self.scenario.seed, wiring.network)
        self._islands = [islands.get(vertex) for vertex in wiring.plan.vertices]
        compute = self.scenario.compute
        self._unpriced = compute.mode == "model" and compute.default_ns is None and compute.trace is None
        self._out = Path(out or "runs")
        self._caller = Caller()
        self._thread: threading.Thread | None = None
        self._pid = os.getpid()
        self._end = ""                          # why it can be used no more
        self._now_ns = 0
        self._round = 0
        self._inside = self._left_open = False  # in a round; out of it, and the role is not told yet
        self._steps: list[Step] = []            # what the role is to be told
        self._blocks: dict[int, ClientBlock] = {}     # by node, of this round, not sent yet
        self._gathered = False
        self._open: ClientBlock | None = None
        self._batch = FIRST_BATCH
        self._heard: Sequence[int] = ()         # of the answer before
        self._after, self._ordered = "the beginning", False
        self._of_peers: dict[int, list[int]] = {}
        self._values: PlainDict = {}            # of peers: what is to be reported
        self._encodings: dict[int, tuple[object, LoopPayload]] = {}     # id -> what is sent in this round, encoded
        self._close = weakref.finalize(self, self._caller.dismiss)
        atexit.register(_at_exit, weakref.ref(self))

    # --- what a loop asks ---------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """Virtual time, seconds."""
        return self._now_ns / 1e9

    @property
    def directory(self) -> Path | None:
        """That of the run, once the network has run; None: before."""
        return self._caller.directory

    def available(self) -> list[str]:
        """The clients that are there now: neither crashed nor away, and taking part in the round that goes on or comes
        next, with something left in its battery. Contacts are not asked: what is sent may be lost all the same."""
        self._ready()
        away = self._presence.away(self._now_ns) | (self._caller.crashed & self._batteries)
        return [name for name, node in self._numbers.items()
                if node not in away and self._presence.takes_part(node, max(1, self._round + (not self._inside)))]

    def count(self, step: Callable[[], object]) -> StepCount:
        """Count the operations, bytes and launches of a step of training on one batch, for `at.takes(count, steps=n)`.
        The step is done for real, once: give it a copy of what it changes."""
        from emul.learning.counting import count_call  # torch

        return count_call(step)

    def round(self) -> LoopRound:
        """The next round: `with clock.round() as now`."""
        self._ready()
        if self._inside:
            raise LoopError(f"round {self._round} has not ended: a round begins when the block of the last is left")
        self._tell_leave()
        self._round += 1
        self._inside, self._gathered = True, False
        if self.mode != "peers":
            self._steps.append(Step("begin"))
        return LoopRound(self, self._round)

    def next(self, timeout: float = 600.0) -> Arrival | None:
        """The update that comes next, in an asynchronous loop; None: none comes within so many seconds, since nobody
        has work, or all of it was lost."""
        self._must_be("asynchronous", "clock.next()")
        limit = _seconds(timeout, "timeout")
        self._flush()
        if not self._inside:
            self._tell_leave()
        came = self._came(Step("next", limit=limit), "clock.next()", ordered=True)
        return Arrival(self.names[came[0].node], came[0].round, came[0].at_ns / 1e9) if came else None

    def late(self) -> list[Arrival]:
        """The updates that have come and that nobody has taken, in the order of arrival, of an asynchronous loop."""
        self._must_be("asynchronous", "clock.late()")
        self._flush()
        if not self._inside:
            self._tell_leave()
        return [Arrival(self.names[one.node], one.round, one.at_ns / 1e9)
                for one in self._came(Step("late"), "clock.late()")]

    def report(self, model: object = None, **values: float) -> None:
        """Note what the loop has found, for the tables and curves of the run; costs no virtual time.

        `accuracy` and `loss` are those of the run. model: kept in the run's directory: arrays.
        """
        self._ready()
        if not self._round:
            raise LoopError("clock.report() is of a round, and none has begun")
        plain = {name: _number(name, value) for name, value in values.items()}
        if self.mode == "peers":
            self._values |= plain
            return
        kept = np.zeros(0, np.float32) if model is None else _vector(model)
        self._steps.append(Step("report", values=plain, model=kept))

    def finish(self) -> Run:
        """End the run and write its tables. Raises RunFailed: an invariant does not hold."""
        self._ready()
        if self._inside:
            raise LoopError(f"round {self._round} has not ended: finish after its block")
        if self.mode == "peers":
            ended = self._ask_peers({node: self._peer_step(node, ends=True) for node in self._numbers.values()})
        else:
            self._tell_leave()
            ended = self._ask(Step("finish"), "clock.finish()", ends=True)
        assert isinstance(ended, RunEnded)
        self._end = "the clock has finished"
        return runs_of(cast(list[engine.Result], list(ended.results)))[0]

    def __repr__(self) -> str:
        return f"<Clock {self.scenario.name}: round {self._round}, {self.now_s:.6g} s, {len(self.clients)} clients>"

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _block(self, client: str, down: object, label: str) -> ClientBlock:
        self._in_round("now.client()")
        if self._open is not None:
            raise LoopError(f"now.client({client!r}) inside the block of {self.names[self._open.node]}: blocks follow "
                            "each other, and run side by side in virtual time")
        node = self._node(client)
        if self.mode == "synchronous" and self._gathered:
            raise LoopError(f"round {self._round} has gathered: begin another round, or take mode=\"asynchronous\"")
        if node in self._blocks:
            raise LoopError(f"{client} has a block in round {self._round} already")
        if self.mode == "peers" and down is not None:
            raise LoopError("now.client(down=) has no server to send it: peers send by now.exchange(pairs, payloads)")
        self._open = ClientBlock(self, node, self._encoded(down, "now.client(down=)"), label)
        return self._open

    def _server_block(self, label: str) -> ClientBlock:
        self._in_round("now.server()")
        self._must_not_be_peers("now.server()")
        if self._open is not None:
            raise LoopError("now.server() inside the block of a client")
        self._open = ClientBlock(self, self._server, NOTHING, label)
        return self._open

    def _left(self, block: ClientBlock, error: BaseException | None) -> None:
        self._open = None
        if error is not None:
            return                              # the round is abandoned, as its own block sees
        if block.takes_s is None and self._unpriced:
            raise LoopError(f"{self.names[block.node]}: compute: {{mode: model}} has no price of this block: "
                            "at.takes(clock.count(step), steps=20) gives it one, compute.default to all others")
        if block.node == self._server:
            self._flush()
            self._steps.append(self._step("compute", [block]))
        else:
            self._blocks[block.node] = block

    def _seconds_of(self, node: int, count: StepCount) -> float:
        """Seconds of a step of training on a node: by the FLOP/s that the file says of it, or by its device."""
        island, device = self._islands[node], self._devices[node]
        if island is not None:
            return count.flops / island.rate
        if device is None or device.lacking(ROOFLINE):
            what = "has no device" if device is None else \
                f"is a {device.name}, of which the table says no {', '.join(device.lacking(ROOFLINE))}"
            raise LoopError(f'at.takes(): {self.names[node]} {what}: expected such as devices: {{nodes: [{{match: "*", '
                            'device: jetson-nano}]}, or nodes: [{match: "*", flops: 1e12, mfu: 0.4}]')
        if self.scenario.compute.mode != "model":
            raise LoopError("at.takes(): seconds by a device need compute: {mode: model}, where a speed of the device "
                            "counts no second time")
        return step_time(device, count).seconds

    def _step(self, kind: str, blocks: Sequence[ClientBlock]) -> Step:
        labels = {label: place for place, label in enumerate(dict.fromkeys(b.label for b in blocks))}
        loads = [(b.node, b.cpu_ns, labels[b.label], b.down.bytes, b.down.declares, b.payload.bytes,
                  b.payload.declares) for b in blocks]
        takes = [-1.0 if b.takes_s is None else b.takes_s for b in blocks]
        return Step(kind, self._batch, np.array(loads, np.int64), np.array(takes), list(labels))

    def _flush(self) -> list[ClientBlock]:
        """Have sent what the blocks so far say."""
        blocks, self._blocks = [*self._blocks.values()], {}
        if blocks:
            self._batch += 1
            self._caller.loads[self._batch] = [(b.down.content, b.payload.content) for b in blocks]
            self._steps.append(self._step("send", blocks))
        return blocks

    def _gather(self, deadline: float | None, first: int | None) -> list[str]:
        self._in_round("now.gather()")
        self._must_not_be_peers("now.gather()")
        limit = None if deadline is None else _seconds(deadline, "deadline")
        if first is not None and (not isinstance(first, int | np.integer) or first < 1):
            raise LoopError(f"now.gather(first={first!r}): expected a number of clients, 1 or more")
        if self.mode == "asynchronous" and limit is None:
            raise LoopError("now.gather() of an asynchronous loop needs deadline=: messages that belong to no round "
                            "have fates that nobody knows")
        blocks = self._flush()
        if not blocks:
            if self._gathered:
                raise LoopError(f"round {self._round} has gathered: begin another round")
            return []
        self._gathered = True
        came = self._came(Step("gather", self._batch, limit=limit, first=min(int(first or 0), len(blocks))),
                          "now.gather()", ordered=first is not None)
        return [self.names[one.node] for one in came]

    # --- peers --------------------------------------------------------------------------------------------------------

    def _exchange(self, pairs: Sequence[tuple[str, str]], payloads: Mapping[str, object] | object,
                  deadline: float | None) -> dict[str, list[str]]:
        self._in_round("now.exchange()")
        self._must_be("peers", "now.exchange()")
        if self._gathered:
            raise LoopError(f"round {self._round} has exchanged: one exchange is one round; what has more steps "
                            "between peers is a scheme (docs/writing-a-scheme.md)")
        limit = None if deadline is None else _seconds(deadline, "deadline")
        each = payloads if isinstance(payloads, Mapping) and set(payloads) <= {*self.names} and payloads else None
        targets: dict[int, dict[int, LoopPayload]] = {node: {} for node in self._numbers.values()}
        sources: dict[int, list[int]] = {node: [] for node in self._numbers.values()}
        for pair in pairs:
            if len(pair) != 2 or pair[0] == pair[1]:
                raise LoopError(f"now.exchange(): {pair!r}: expected pairs (from, to) of two peers")
            a, b = map(self._node, pair)
            if b in targets[a]:
                raise LoopError(f"now.exchange(): the pair {pair!r} is there twice")
            if each is not None and pair[0] not in each:
                raise LoopError(f"now.exchange(): {pair[0]} sends to {pair[1]} and payloads has nothing of it")
            targets[a][b] = self._encoded(payloads if each is None else each[pair[0]], "now.exchange(payloads=)")
            sources[b].append(a)
        blocks, self._blocks, self._gathered = self._blocks, {}, True
        self._caller.sends.update({a: {b: one.content for b, one in of.items() if one.content is not None}
                                   for a, of in targets.items()})
        answer = self._ask_peers({node: self._peer_step(node, blocks.get(node), targets[node], sources[node], limit)
                                  for node in self._numbers.values()})
        assert isinstance(answer, LoopAnswer)
        self._now_ns = answer.now_ns
        self._of_peers = answer.heard
        return {name: [self.names[one] for one in answer.heard.get(node, ())] for name, node in self._numbers.items()}

    def _peer_step(self, node: int, block: ClientBlock | None = None, targets: Mapping[int, LoopPayload] = {},
                   sources: Sequence[int] = (), limit: float | None = None, ends: bool = False) -> PeerStep:
        found = PeerStep(ends=ends, limit=limit, heard=np.array(self._of_peers.get(node, ()), np.int64),
                         values=self._values, sources=np.array(sorted(sources), np.int64),
                         sends=np.array([(b, one.bytes, one.declares) for b, one in targets.items()],
                                        np.int64).reshape(-1, 3))
        if block is None:
            return dataclasses.replace(found, takes_s=0.0)
        return dataclasses.replace(found, label=block.label, cpu_ns=block.cpu_ns,
                                   takes_s=-1.0 if block.takes_s is None else block.takes_s)

    def _ask_peers(self, steps: dict[int, PeerStep]) -> LoopAnswer | RunEnded:
        self._start()
        self._values = {}
        self._encodings.clear()
        return self._heard_from(self._asked_of(steps), ends=next(iter(steps.values())).ends)

    # --- the way to the roles -----------------------------------------------------------------------------------------

    def _leave(self, error: BaseException | None) -> None:
        """The block of a round is left."""
        self._inside, self._open = False, None
        if self._end:
            return
        if error is not None:
            self._blocks = {}
        elif self.mode == "synchronous" and self._blocks:
            self._blocks = {}
            raise LoopError(f"round {self._round} ends and nobody has gathered its updates: call now.gather(), or take "
                            'mode="asynchronous" and clock.next()')
        self._flush()
        self._abandoned = "" if error is None else f"abandoned: {named(error)}"
        self._left_open = self.mode != "peers"

    def _tell_leave(self) -> None:
        """Have the role leave the round, if it is not told yet: reports that come after the block are of that round."""
        if self._left_open:
            self._steps.append(Step("leave", text=self._abandoned))
            self._left_open = False

    def _ask(self, step: Step, after: str, ordered: bool = False, ends: bool = False) -> LoopAnswer | RunEnded:
        """Hand over all that is to be told, and wait for the answer to the last step."""
        self._start()
        steps, self._steps = [*self._steps, step], []
        self._encodings.clear()
        answer = self._heard_from(self._asked_of(Orders(steps, np.array(self._heard, np.int64), self._ordered,
                                                        self._after)), ends)
        if isinstance(answer, LoopAnswer):
            self._now_ns = answer.now_ns
            self._heard, self._after, self._ordered = [one.node for one in answer.came], after, ordered
        return answer

    def _came(self, step: Step, after: str, ordered: bool = False) -> list[Came]:
        """The updates that answer a step."""
        return cast(LoopAnswer, self._ask(step, after, ordered)).came

    def _asked_of(self, orders: Orders | dict[int, PeerStep]) -> LoopAnswer | RunEnded:
        try:
            return self._caller.ask(orders)
        except BaseException:                   # an interrupt, while the network runs
            self._interrupt()
            raise

    def _heard_from(self, answer: LoopAnswer | RunEnded, ends: bool = False) -> LoopAnswer | RunEnded:
        """The answer. Raises LoopError: the run has ended, and the loop has not."""
        if isinstance(answer, RunEnded) and not (ends and answer.error is None):
            self._end = "its run has ended"
            if answer.error is not None:
                raise LoopError(f"the run has failed: {named(answer.error)}") from answer.error
            results = cast(Sequence[engine.Result], answer.results)
            why = next((one.error for one in results if one.error), "its end was reached")
            raise LoopError(f"the run has ended: {why}")
        return answer

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=_run, args=(self._caller, self.scenario, self._out), daemon=True,
                                            name="emul.Clock")
            self._thread.start()
            self._heard_from(self._caller.first_answer())

    def _interrupt(self) -> None:
        """End the run as an interrupted one: its journal is kept."""
        if not self._end:
            self._end = "the loop was interrupted"
            self._close()
            if self._thread is not None:
                self._thread.join(_CLOSING_S)

    # --- checks -------------------------------------------------------------------------------------------------------

    def _ready(self) -> None:
        if self._end:
            raise LoopError(f"{self._end}: make another emul.Clock")
        if os.getpid() != self._pid:
            raise LoopError("this process was forked from the one that made the clock, which alone may ask it")

    def _in_round(self, what: str) -> None:
        self._ready()
        if not self._inside:
            raise LoopError(f"{what} outside of a round: with clock.round() as now: ...")

    def _must_be(self, mode: Mode, what: str) -> None:
        self._ready()
        if self.mode != mode:
            raise LoopError(f'{what} is of mode="{mode}", and this clock has mode="{self.mode}": '
                            f'emul.Clock(..., mode="{mode}")')

    def _must_not_be_peers(self, what: str) -> None:
        if self.mode == "peers":
            raise LoopError(f"{what} needs a server, and peers have none: now.exchange(pairs, payloads)")

    def _node(self, client: object) -> int:
        found = self._numbers.get(client) if isinstance(client, str) else None
        if found is None:
            raise LoopError(f"unknown client {client!r}: expected one of clock.clients"
                            + (nearest(client, self.clients) if isinstance(client, str) else
                               f", which are names such as {self.clients[0]!r}: clock.clients[{_place(client)}]"))
        return found

    def _encoded(self, payload: object, what: str) -> LoopPayload:
        """Its bytes; the same object is encoded once in a round."""
        known = self._encodings.get(id(payload))
        if known is not None and known[0] is payload:
            return known[1]
        try:
            found = payload_of(payload)
        except (TypeError, ValueError) as error:
            raise LoopError(f"{what}: {error}") from None
        if found.content is not None:
            self._encodings[id(payload)] = payload, found
        return found


def network_for(given: Given, mode: Mode, label: str, set: Mapping[str, object], seed: int | None) -> Scenario:
    """The scenario of a loop on this network: without its task, schemes, attacks and stop. Raises ScenarioError."""
    from emul.api.arguments import edits

    base = scenarios.load(given, edits(set), seed, check=False)
    entry = {"mode": mode} | ({"label": label} if label != LOOP else {})
    return scenarios.load(dataclasses.replace(
        base, task={}, schemes=[(LOOP, entry)], attacks=[], training="run", fuse=None, sweep=None,
        stop=Stop(rounds=MOST_ROUNDS)))


def _run(caller: Caller, scenario: Scenario, out: Path) -> None:
    """In the thread of the roles."""
    @contextlib.contextmanager
    def noted(directory: Path) -> Iterator[None]:
        caller.directory = directory
        yield

    run_for(caller)
    try:
        results = engine.run(scenario, workers=LoopTwin(caller), out=out, keeping=engine.Keeping(on=False),
                             companions=[noted])
        caller.ended(RunEnded(results))
    except BaseException as error:              # LoopGone, too: nobody else would hear of it
        caller.ended(RunEnded(error=error))


class LoopTwin(Twin):
    """The one worker of a loop. It tells the loop who is down: a battery that runs out is in no plan."""

    def __init__(self, caller: Caller):
        super().__init__(computes=False)
        self._caller = caller

    def post(self, worker: int, event: Event) -> None:
        if isinstance(event, Close):
            self._caller.crashed.add(event.node)
        elif isinstance(event, Start):
            self._caller.crashed.discard(event.node)
        super().post(worker, event)


def _at_exit(clock: weakref.ref[Clock]) -> None:
    """The program ends without `finish`: the run is that of an interrupted one."""
    found = clock()
    if found is not None and found._thread is not None and os.getpid() == found._pid:
        found._interrupt()


def _place(client: object) -> int:
    """The number, if it is meant as the place of a client in a list, else 0."""
    return int(client) if isinstance(client, int | np.integer) else 0


def _seconds(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise LoopError(f"{what} = {value!r}: expected seconds")
    found = float(value)
    if not (math.isfinite(found) and 0 <= found * 1e9 <= LARGEST):
        raise LoopError(f"{what} = {value!r}: expected seconds, 0 or more")
    return found


def _steps(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise LoopError(f"at.takes(steps={value!r}): expected a whole number, 0 or more")
    return int(value)


def _number(name: str, value: object) -> float | int | bool | str:
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:       # of NumPy, or a tensor
        value = value.item()
    if name in ("accuracy", "loss") and isinstance(value, str):
        raise LoopError(f"clock.report({name}={value!r}): expected a number")
    if isinstance(value, bool | int | float | str):
        return value
    raise LoopError(f"clock.report({name}={value!r}): expected a number or text")


def _vector(model: object) -> np.ndarray:
    """(d,) float32: all arrays of it, one after the other."""
    found = [np.asarray(one, np.float32).ravel() for one in arrays_of(model)]
    if not found:
        raise LoopError("clock.report(model=): expected arrays")
    return np.concatenate(found)
