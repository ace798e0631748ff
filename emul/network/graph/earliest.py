"""Routes over a contact plan: the way on which a message of one size is soonest at its target, if it sets out now.

A search in time: a vertex is reached when the message would be whole there, alone on every link. A link with contacts
takes it as `FullLink` would: transmitted over the gaps (`gap: hold`), whole within a contact (`again`), or whole within
the contact of the time itself (`drop`); then the latency of the contact in which the transmission ends. A link without
contacts transmits at all times. Ties: the fewest links, then the lowest number of the vertex before, from the target
back, as `ShortestPaths` has it. A vertex is left at the time at which it is reached first, by the way found then.

One target is searched for by the least times to it (A*): those of links that transmit at all times, at the highest
rates and with the least latencies of their contacts. They never exceed the time that a link takes, so each vertex is
reached as by a search without them. Several targets of one vertex, time and size (a broadcast) share one search.

Where many questions are of one half minute, the least times to a target are those over the links that transmit at all
in that *window*: then a satellite that the target will see in an hour is no candidate. That holds for all that arrives
in the window, so a search goes no further. If this search finds nothing, the search by all links follows. A route to a
satellite among 1,594 vertices takes 1.06 ms with windows, 9.3 without.

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
_WINDOW_NS = 2**35                  # 34 s: questions of such a time have one window, which ends as long after it
_OFTEN = 8                          # questions, before a window pays
_WAITING = -1                       # in place of the vertex before: the links of a vertex that wait for a contact
_WINDOWS = 4                        # kept; questions come nearly in the order of time


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


# number of the vertex; contacts, and of the one that is open the end, the rate and the latency; number of the framing
_Contact: TypeAlias = tuple[int, Contacts, int, int, int, int]


class _AskedWindow:
    """A span of time in which many questions are asked, and the links into each vertex that transmit in it."""

    __slots__ = ("asked", "begin_ns", "end_ns", "failed", "found", "into", "least")

    def __init__(self, begin_ns: int):
        self.begin_ns, self.end_ns = begin_ns, begin_ns + 2 * _WINDOW_NS
        self.asked = 0
        self.found = self.failed = 0                # answers within the window, and questions without one
        self.into: dict[int, list[_Steady]] = {}
        self.least: dict[tuple[int, int], list[int]] = {}       # as of `EarliestRoutes`

    @property
    def pays(self) -> bool:
        """True if questions are asked again and again, and most of them have an answer within the window."""
        return self.asked > _OFTEN and self.failed <= self.found


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
        self._into: list[list[_Steady]] = []        # of links into a vertex: at their best, at all times,
        self._into_contacts: list[list[Contacts | None]] = []      # and their contacts
        self._windows: dict[int, _AskedWindow] = {}      # by their begin
        # of each vertex: from when until when these contacts are open, and the next begin of another one
        self._opened: list[tuple[int, int, list[_Contact], int]] = []
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
            before = self._in_window(source, target, time_ns, size_bytes)
            if target not in before:
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

    def _in_window(self, source: int, target: int, time_ns: int, size_bytes: int) -> dict[int, int]:
        """As `_search`, led by the least times of the window of that time; empty, or without the target, where that
        does not pay or nothing arrives in it."""
        begin = time_ns - time_ns % _WINDOW_NS
        window = self._windows.get(begin)
        if window is None:
            if len(self._windows) == _WINDOWS:
                del self._windows[next(iter(self._windows))]
            window = self._windows[begin] = _AskedWindow(begin)
        window.asked += 1
        if not window.pays:
            return {}
        least = self._least_times(target, size_bytes, window)
        before: dict[int, int] = {}
        if least[source] < NEVER:
            before = self._search(source, target, time_ns, size_bytes, least, window.end_ns)
        if target in before:
            window.found += 1
        else:
            window.failed += 1
        return before

    def _open_into(self, v: int, window: _AskedWindow) -> list[_Steady]:
        """The links into a vertex that transmit in a window at all."""
        found = window.into.get(v)
        if found is None:
            found = window.into[v] = []
            for link, contacts in zip(self._into[v], self._into_contacts[v], strict=True):
                if contacts is not None:
                    i = bisect_right(contacts.ends, window.begin_ns)
                    if i == len(contacts) or contacts.begins[i] > window.end_ns:
                        continue
                found.append(link)
        return found

    def _search(self, source: int, target: int, time_ns: int, size_bytes: int, least: Sequence[int],
                until_ns: int = NEVER) -> dict[int, int]:
        """Vertex -> the one before it, as far as `target`; of all vertices where no vertex is that. least: vertex ->
        a time that it takes at the least from there to the target. until_ns: later arrivals do not count."""
        if not self._steady:
            self._build()
        sizes = self._sizes(size_bytes)
        before: dict[int, int] = {}
        reached = {source: (time_ns, 0)}
        heap = [(time_ns + least[source], time_ns, 0, source, source)]
        bound = until_ns                            # by then the target is reached
        while heap and len(before) < self._vertices:
            _, now, hops, u, previous = heappop(heap)
            if previous == _WAITING:
                arrivals = self._later(u, now, sizes, before, least, bound - now)
            elif u in before:
                continue
            else:
                before[u] = previous
                if u == target:
                    break
                if hops == MOST_HOPS:
                    continue
                hops += 1
                arrivals, begin = self._arrivals(u, now, sizes, before, least, bound - now)
                if begin <= bound:                  # nothing that waits comes before that
                    heappush(heap, (begin - 1, now, hops, u, _WAITING))
            for v, arrival in arrivals:
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
                  done: dict[int, int], least: Sequence[int], room: int) -> tuple[list[tuple[int, int]], int]:
        """(neighbour, when the message is there) of a message that is at `u` now; without those that are `done`, those
        from which it takes more than `room` to the target, and links that wait for a contact. And the first time at
        which one of those has one, NEVER without any: most searches end before it.
        """
        found = [(v, now + latency - (-sizes[framing][1] * denominator // rate if rate else 0))
                 for v, rate, denominator, latency, framing in self._steady[u] if v not in done and least[v] <= room]
        begin, until, links, first = self._opened[u]
        if not begin <= now < until:
            links, first = self._open(u, now)
        for v, contacts, last, rate, latency, framing in links:
            if v in done or least[v] > room:
                continue
            size, work = sizes[framing]
            end = now - (-work // rate)
            if end <= last:
                found.append((v, end + latency))            # nearly always: this contact takes it
            elif (end := carried(contacts, now, size)) < NEVER:
                found.append((v, end + contacts.latency_at(end)))
        return found, first

    def _open(self, u: int, now: int) -> tuple[list[_Contact], int]:
        """The contacts of links out of `u` that are open, and the first time at which another one opens. Both are kept
        for the time in which they stay so: most questions are of the same time as those before."""
        links: list[_Contact] = []
        since, until, first = 0, NEVER, NEVER
        for v, contacts, ends, begins, rates, latencies, framing in self._planned[u]:
            i = bisect_right(ends, now)             # the first one that has not ended
            if i and ends[i - 1] > since:
                since = ends[i - 1]
            if i == len(ends):
                continue
            begin, end = begins[i], ends[i]
            if begin <= now:
                links.append((v, contacts, end, rates[i], latencies[i], framing))
                if begin > since:
                    since = begin
                if end < until:
                    until = end
            else:
                if begin < until:
                    until = begin
                if begin < first and contacts.gap != "drop":
                    first = begin
        self._opened[u] = since, until, links, first
        return links, first

    def _later(self, u: int, now: int, sizes: Sequence[tuple[int, int]], done: dict[int, int], least: Sequence[int],
               room: int) -> list[tuple[int, int]]:
        """As `_arrivals`, over the links that wait for a contact."""
        found = []
        for v, contacts, ends, begins, _, _, framing in self._planned[u]:
            if v in done or least[v] > room:
                continue
            i = bisect_right(ends, now)
            if i == len(ends) or begins[i] <= now:
                continue
            end = carried(contacts, now, sizes[framing][0])
            if end < NEVER:
                found.append((v, end + contacts.latency_at(end)))
        return found

    def _least_times(self, target: int, size_bytes: int, window: _AskedWindow | None = None) -> list[int]:
        """Vertex -> the least time from there to the target, over links that transmit at all times at their best; NEVER
        where no links lead there. size_bytes -1: of latencies alone. window: over the links that transmit in it."""
        known = self._least if window is None else window.least
        found = known.get((target, size_bytes))
        if found is not None:
            return found
        if not self._steady:
            self._build()
        if len(known) * self._vertices > _KEPT:
            known.clear()
        work = [0] * len(self._framings) if size_bytes < 0 else [work for _, work in self._sizes(size_bytes)]
        found = known[target, size_bytes] = [NEVER] * self._vertices
        found[target] = 0
        heap = [(0, target)]
        while heap:
            along, v = heappop(heap)
            if along > found[v]:
                continue
            for u, rate, denominator, latency, framing in (self._into[v] if window is None
                                                           else self._open_into(v, window)):
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
        self._into_contacts = [[] for _ in range(self._vertices)]
        for u in range(self._vertices):
            steady: list[_Steady] = []
            planned: list[_Planned] = []
            for v in self._neighbours(u):
                contacts, bps, latency, least, overhead, mtu = self._crossing(u, v)
                framing = self._framings.setdefault((overhead, mtu), len(self._framings))
                rate = Fraction(bps or 0)
                self._into_contacts[v].append(contacts)
                if contacts is not None and len(contacts) == 1 and not contacts.begins[0] and contacts.ends[0] == NEVER:
                    rate, latency, contacts = Fraction(contacts.rates_bps[0]), contacts.latencies_ns[0], None
                if contacts is None:            # or one contact, which is there at all times
                    steady.append((v, rate.numerator, rate.denominator, latency, framing))
                else:
                    rate = Fraction(max(contacts.rates_bps))
                    planned.append((v, contacts, contacts.ends, contacts.begins, contacts.rates_bps,
                                    contacts.latencies_ns, framing))
                self._into[v].append((u, rate.numerator, rate.denominator, least, framing))
            self._opened.append((0, 0, [], NEVER))
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
