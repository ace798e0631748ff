"""Routes over a contact plan: the way on which a message of one size is soonest at its target, if it sets out now.

A search in time: a vertex is reached when the message would be whole there, alone on every link. A link with contacts
takes it as `FullLink` would: transmitted over the gaps (`gap: hold`), whole within a contact (`again`), or whole within
the contact of the time itself (`drop`); then the latency of the contact in which the transmission ends. A link without
contacts transmits at all times. Ties: the fewest links, then the lowest number of the vertex before, from the target
back, as `ShortestPaths` has it. A vertex is left at the time at which it is reached first, by the way found then.

One target is searched for by the least times to it (A*): those of links that transmit at all times, at the highest
rates and with the least latencies of their contacts. They never exceed the time that a link takes, so each vertex is
reached as by a search without them. Several targets of one vertex, time and size (a broadcast) share one search.

Nothing here depends on what was asked before: an answer is a function of the plan, vertex, target, time and size.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from emul.network.models.contacts import Contacts
from emul.network.models.profiles import NEVER, WORK_PER_BYTE

MOST_HOPS = 64
_KEPT = 4_000_000                   # least times to targets; of 1,600 vertices those to 2,500 targets and sizes


class Crossing(NamedTuple):
    """A link as a search sees it. contacts None: it transmits at all times, at `rate_bps` (None: infinite).

    latency_ns: the typical one, of a link without contacts. least_ns: the least that it ever has.
    """

    contacts: Contacts | None
    rate_bps: int | float | None
    latency_ns: int
    least_ns: int
    overhead_bytes: int = 0
    mtu: int | None = None


# number of the vertex; numerator and denominator of the rate (0: infinite); latency; number of the framing
_Steady: TypeAlias = tuple[int, int, int, int, int]
# number of the vertex; contacts, and their ends, begins, rates and latencies; number of the framing
_Planned: TypeAlias = tuple[int, Contacts, Sequence[int], Sequence[int], Sequence[int], Sequence[int], int]


class EarliestRoutes:
    """Routes over the links of `vertices` vertices: `neighbours(u)`, and `crossing(u, v)` of each link."""

    def __init__(self, vertices: int, neighbours: Callable[[int], Iterable[int]],
                 crossing: Callable[[int, int], Crossing]):
        self._vertices = vertices
        self._neighbours = neighbours
        self._crossing = crossing
        self._framings: dict[tuple[int, int | None], int] = {}      # (overhead, mtu) -> number
        self._steady: list[list[_Steady]] = []
        self._planned: list[list[_Planned]] = []
        self._into: list[list[_Steady]] = []        # of links into a vertex: at their best, at all times
        self._least: dict[tuple[int, int], list[int]] = {}      # (target, bytes; -1: none) -> vertex -> least time
        self._asked: tuple[int, int, int] | None = None         # vertex, time and bytes of the last question,
        self._tree: dict[int, int] | None = None                # and the ways to all vertices, where that came again

    def way(self, source: int, target: int, time_ns: int, size_bytes: int) -> tuple[int, ...] | None:
        """The vertices from source to target for a message of `size_bytes`, without framing, that is at the source at
        `time_ns`; None: the plan leads it nowhere."""
        if source == target:
            return (source,)
        asked = source, time_ns, size_bytes
        if asked == self._asked:
            if self._tree is None:
                self._tree = self._search(source, -1, time_ns, size_bytes, [0] * self._vertices)
            before = self._tree
        else:
            self._asked, self._tree = asked, None
            least = self._least_times(target, size_bytes)
            if least[source] >= NEVER:
                return None
            before = self._search(source, target, time_ns, size_bytes, least)
        if target not in before:
            return None
        path = [target]
        while path[-1] != source:
            path.append(before[path[-1]])
        return tuple(reversed(path))

    def least_ns(self, source: int, target: int) -> int:
        """The least time that any message ever takes from source to target: latencies alone; NEVER: no links lead
        there."""
        return self._least_times(target, -1)[source]

    # --- searches -------------------------------------------------------------------------------------------------

    def _search(self, source: int, target: int, time_ns: int, size_bytes: int, least: Sequence[int]) -> dict[int, int]:
        """Vertex -> the one before it, as far as `target`; of all vertices where no vertex is that. least: vertex ->
        a time that it takes at the least from there to the target."""
        if not self._steady:
            self._build()
        sizes = self._sizes(size_bytes)
        before: dict[int, int] = {}
        reached = {source: (time_ns, 0)}
        heap = [(time_ns + least[source], time_ns, 0, source, source)]
        bound = NEVER                               # by then the target is reached
        while heap:
            _, now, hops, u, previous = heappop(heap)
            if u in before:
                continue
            before[u] = previous
            if u == target:
                break
            if hops == MOST_HOPS:
                continue
            hops += 1
            for v, arrival in self._arrivals(u, now, sizes, before):
                soonest = arrival + least[v]
                label = arrival, hops
                if soonest > bound or (v in reached and label > reached[v]):
                    continue
                reached[v] = label
                if v == target:
                    bound = arrival
                heappush(heap, (soonest, arrival, hops, v, u))
        return before

    def _arrivals(self, u: int, now: int, sizes: Sequence[tuple[int, int]],
                  done: dict[int, int]) -> list[tuple[int, int]]:
        """(neighbour, when the message is there) of a message that is at `u` now; without those that are `done`."""
        found = [(v, now + latency - (-sizes[framing][1] * denominator // rate if rate else 0))
                 for v, rate, denominator, latency, framing in self._steady[u] if v not in done]
        for v, contacts, ends, begins, rates, latencies, framing in self._planned[u]:
            if v in done:
                continue
            i = bisect_right(ends, now)             # the first one that has not ended
            if i == len(ends):
                continue
            begin = begins[i]
            size, work = sizes[framing]
            end = (begin if begin > now else now) - (-work // rates[i])
            if end <= ends[i] and (begin <= now or contacts.gap != "drop"):
                found.append((v, end + latencies[i]))       # nearly always: one contact takes it
            elif (end := carried(contacts, now, size)) < NEVER:
                found.append((v, end + contacts.latency_at(end)))
        return found

    def _least_times(self, target: int, size_bytes: int) -> list[int]:
        """Vertex -> the least time from there to the target, over links that transmit at all times at their best; NEVER
        where no links lead there. size_bytes -1: of latencies alone."""
        found = self._least.get((target, size_bytes))
        if found is not None:
            return found
        if not self._steady:
            self._build()
        if len(self._least) * self._vertices > _KEPT:
            self._least.clear()
        work = [0] * len(self._framings) if size_bytes < 0 else [work for _, work in self._sizes(size_bytes)]
        found = self._least[target, size_bytes] = [NEVER] * self._vertices
        found[target] = 0
        heap = [(0, target)]
        while heap:
            along, v = heappop(heap)
            if along > found[v]:
                continue
            for u, rate, denominator, latency, framing in self._into[v]:
                total = along + latency - (-work[framing] * denominator // rate if rate else 0)
                if total < found[u]:
                    found[u] = total
                    heappush(heap, (total, u))
        return found

    # --- links ----------------------------------------------------------------------------------------------------

    def _sizes(self, size_bytes: int) -> list[tuple[int, int]]:
        """Of each framing the wire bytes of a message, and its work in bit ns/s."""
        wire = [size_bytes + overhead * (1 if mtu is None else -(-size_bytes // mtu))
                for overhead, mtu in self._framings]
        return [(size, size * WORK_PER_BYTE) for size in wire]

    def _build(self) -> None:
        """Look at all links once."""
        self._into = [[] for _ in range(self._vertices)]
        for u in range(self._vertices):
            steady: list[_Steady] = []
            planned: list[_Planned] = []
            for v in self._neighbours(u):
                contacts, bps, latency, least, *framed = self._crossing(u, v)
                framing = self._framings.setdefault((framed[0], framed[1]), len(self._framings))
                rate = Fraction(bps or 0)
                if contacts is None:
                    steady.append((v, rate.numerator, rate.denominator, latency, framing))
                else:
                    rate = Fraction(max(contacts.rates_bps))
                    planned.append((v, contacts, contacts.ends, contacts.begins, contacts.rates_bps,
                                    contacts.latencies_ns, framing))
                self._into[v].append((u, rate.numerator, rate.denominator, least, framing))
            self._steady.append(steady)
            self._planned.append(planned)


def carried(contacts: Contacts, at_ns: int, size_bytes: int) -> int:
    """The time when a link alone has transmitted so many wire bytes that come at `at_ns`; NEVER: it does not."""
    if contacts.gap == "hold":
        return contacts.finish(at_ns, size_bytes)
    opens = contacts.opens(at_ns)
    if contacts.gap == "drop" and opens > at_ns:
        return NEVER
    while opens < NEVER and contacts.may_hold(size_bytes, opens):
        lasts, end = contacts.lasts(opens), contacts.finish(opens, size_bytes)
        if end <= lasts:
            return end
        if contacts.gap == "drop" or lasts >= NEVER:
            return NEVER
        opens = contacts.opens(lasts)
    return NEVER
