"""Background messages on first-in-first-out links: they wait in the queues of the links, and no calendar knows them.

When they come to the first link of their way is known beforehand. So a link takes those that have come by `now` into
its queue when a message of the scheme is offered to it, or when it changes: they then stand before that message. Later
ones stand behind it and cannot delay it. A link that nobody uses does nothing, and no run is kept alive.

When a background message comes to a *further* link of its way depends on the queues before. A message that is at a
link at `t` was at the link before at `t - latency` at the latest, and nothing that the kernel still has open can offer
anything to that link at or before `t - latency`: its lookahead is that latency at most. So all queues together may be
brought as far as each one's latency before `t`, in the order of time plus latency, in which what comes is never
earlier than what caused it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Protocol, TypeAlias

from emul.network.links.service import PAUSED
from emul.network.links.transit import Transit
from emul.network.models.elastic import Arrival

Order: TypeAlias = tuple[int, int, int]         # source and destination of a flow, number of its entry


@dataclass(frozen=True, slots=True, eq=False)
class CrossFlow:
    """The elastic traffic of one entry between two vertices, along `path`; greedy: flows that never end, in place of
    messages. end_ns None: for ever. listed: it is of an entry that names links, and not of one that names routes."""

    order: Order
    entry: str
    path: tuple[int, ...]
    listed: bool
    arrivals: Callable[[], Iterator[Arrival]] | None
    greedy: int = 0
    at_ns: int = 0
    end_ns: int | None = None


class QueueLink(Protocol):
    """The part of `emul.network.links.full_link.FullLink` that its background messages ask for."""

    typical_ns: int

    def wire_bytes(self, size_bytes: int) -> int:
        """As of a link."""
        ...

    def cross(self, now: int, item: object, size_bytes: int) -> Transit | None:
        """A background message comes; None: it is dropped at once."""
        ...

    def cross_left(self, e: Transit) -> None:
        """A background message has left."""
        ...

    def cross_sent(self, e: Transit, now: int) -> int:
        """The whole wire bytes of a background message that have crossed by `now`."""
        ...


class CrossMessage:
    """One background message under way over first-in-first-out links."""

    __slots__ = ("due", "flow", "hop", "index", "onward", "size")

    def __init__(self, flow: CrossFlow, index: int, size: int, hop: int):
        self.flow = flow
        self.index = index
        self.size = size                # without overhead
        self.hop = hop                  # index of the link of the flow's path
        self.onward: CrossQueue | None = None       # the queue of the next link
        self.due = -1                   # when it will be there, as that was told; -1: it is


_Coming: TypeAlias = tuple[int, Order, int, int, CrossMessage, Transit | None]
#            time, order, index, serial, message, on the link before it: None, it comes from its source


class CrossQueue:
    """The background messages of one link: those that come, and those that are on it."""

    def __init__(self, queues: CrossQueues, number: int, chained: bool):
        self._queues = queues
        self.number = number
        self._chained = chained                     # what comes here, or goes on from here, is of several links
        self._link: QueueLink | None = None
        self.lead_ns = 0
        self._coming: list[_Coming] = []
        self._serial = 0
        self._on_link: deque[Transit] = deque()
        self.carried: Counter[str] = Counter()      # entry -> bytes,
        self.dropped: Counter[str] = Counter()

    def begin(self, link: QueueLink, flows: Iterable[CrossFlow]) -> None:
        """The messages of `flows`, whose first link is this one, come to it from now on."""
        self._link = link
        self.lead_ns = link.typical_ns
        for flow in flows:
            assert flow.arrivals is not None
            self._draw(flow, 0, flow.arrivals())

    def _draw(self, flow: CrossFlow, index: int, arrivals: Iterator[Arrival]) -> None:
        for at, size in arrivals:                   # the next one, if there is one
            self._sources[flow] = arrivals
            self._expect(at, CrossMessage(flow, index, size, 0), None)
            return
        self._sources.pop(flow, None)

    @property
    def _sources(self) -> dict[CrossFlow, Iterator[Arrival]]:
        return self._queues.sources

    def _expect(self, at: int, message: CrossMessage, on: Transit | None) -> None:
        self._serial += 1
        heappush(self._coming, (at, message.flow.order, message.index, self._serial, message, on))
        if self._chained:
            self._queues.remind(at + self.lead_ns, self.number)

    def pull(self, now: int) -> None:
        """Take all that has come by `now` into the link's queue, before it is used or changed."""
        if self._chained:
            self._queues.run(now)
        self.take(now)

    def take(self, until: int) -> None:
        """Take what comes to this link by `until`; all queues before it have been brought that far."""
        coming = self._coming
        while coming and coming[0][0] <= until:
            at, _, index, _, message, on = heappop(coming)
            if on is None:
                self._draw(message.flow, index + 1, self._sources[message.flow])
            elif message.due != at or not on.delivered:     # it has been planned anew, or a fault dropped it
                continue
            else:
                message.due = -1
                message = CrossMessage(message.flow, index, message.size, message.hop + 1)
            self._enter(at, message)
        self._leave(until)

    def _enter(self, at: int, message: CrossMessage) -> None:
        link = self._link
        assert link is not None
        e = link.cross(at, message, message.size)
        if e is None:
            self.dropped[message.flow.entry] += link.wire_bytes(message.size)
            return
        self._on_link.append(e)
        path, hop = message.flow.path, message.hop
        if hop + 2 < len(path):
            message.onward = self._queues.at(path[hop + 1], path[hop + 2])
            self._tell_onward(message, e)

    def _tell_onward(self, message: CrossMessage, e: Transit) -> None:
        if message.onward is not None and message.due != e.due:
            message.due = e.due
            message.onward._expect(e.due, message, e)

    def _leave(self, until: int) -> None:
        waiting, link = self._on_link, self._link
        while waiting and waiting[0].due <= until:
            e = waiting.popleft()
            assert link is not None
            link.cross_left(e)
            (self.carried if e.delivered else self.dropped)[_message(e).flow.entry] += e.size

    def planned_anew(self, latency_ns: int) -> None:
        """The link has changed: what is on it may come to the next link at other times."""
        for e in self._on_link:
            message = _message(e)
            if message.due >= 0:
                self._tell_onward(message, e)
        # A latency that grows is no reason to wait longer: the kernel's lookahead is the least that it ever is.
        if latency_ns < self.lead_ns:
            self.lead_ns = latency_ns
            if self._chained:
                for at, *_ in self._coming:
                    self._queues.remind(at + latency_ns, self.number)

    def planned_ns(self) -> int:
        """The time when the last of what is on the link has crossed it."""
        return max((e.end for e in self._on_link), default=0)

    def totals(self, end_ns: int) -> Iterator[tuple[str, int, int]]:
        """(entry, carried bytes, dropped bytes) by `end_ns`, to which it has been pulled. Of what is on the link the
        part counts that has crossed."""
        carried, dropped = Counter(self.carried), Counter(self.dropped)
        for e in self._on_link:
            if e.delivered:
                assert self._link is not None
                carried[_message(e).flow.entry] += self._link.cross_sent(e, end_ns)
            else:
                dropped[_message(e).flow.entry] += e.size
        for entry in sorted({*carried, *dropped}):
            yield entry, carried[entry], dropped[entry]


def _message(e: Transit) -> CrossMessage:
    assert isinstance(e.item, CrossMessage)
    return e.item


class CrossQueues:
    """All links of a network with background messages. at: the queue of the link between two vertices."""

    def __init__(self, at: Callable[[int, int], CrossQueue]):
        self.at = at
        self.sources: dict[CrossFlow, Iterator[Arrival]] = {}
        self._numbered: list[CrossQueue] = []
        self._due: list[tuple[int, int]] = []       # time plus latency of what comes to a link, its number

    def queue(self, chained: bool) -> CrossQueue:
        """A new queue, for a link that has not been used. chained: flows over several links cross it."""
        found = CrossQueue(self, len(self._numbered), chained)
        self._numbered.append(found)
        return found

    def remind(self, due: int, number: int) -> None:
        """Something comes to the link of that number; `due`: when, plus its latency."""
        heappush(self._due, (due, number))

    def run(self, now: int) -> None:
        """Bring every queue of several links as far as it is safe when one is used at `now`."""
        heap = self._due
        while heap and heap[0][0] <= now:
            due, number = heappop(heap)
            queue = self._numbered[number]
            queue.take(due - queue.lead_ns)

    def finish(self, end_ns: int) -> None:
        """Bring all queues to the end of the run, when nothing is open any more."""
        self._due = [(due - self._numbered[number].lead_ns, number) for due, number in self._due]
        heapify(self._due)
        for queue in self._numbered:
            queue.lead_ns = 0
        self.run(end_ns)
        for queue in self._numbered:
            queue.take(end_ns)

    def planned_ns(self) -> int:
        """The time when the last of all that waits has crossed its link, as far as that is known."""
        return max((end for queue in self._numbered if (end := queue.planned_ns()) < PAUSED), default=0)
