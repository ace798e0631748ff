"""Fluid sharing of links: flows over several links get max-min fair rates, (weighted) progressive filling.

Bertsekas & Gallager 1992, Data Networks, section 6.5.2; Radunovic & Le Boudec 2007 for the weighted form. As in
SimGrid, latency is no matter of this file: the caller has paid it before a flow starts. No calendar here: the
caller asks `next_change()` and comes back with `advance(now)`.

Flows that share links, directly or through others, form a *group*. Only the groups that an event touches are solved
anew. A group in which every link carries either all flows or a single one (the star: clients behind access links, one
server) is a `_Hub`, a processor-sharing queue in virtual time: O(log n) an event. Any other, and a lone flow, is a
`_Mesh`, filled anew at each event. Times are whole ns outside. Inside, an event happens at a fraction of a ns, so that
errors do not add up over events; a group's clock is an integer and a rest below 1, so that late times are as exact.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, floor, inf
from typing import Any, Literal, Protocol

from emul.base.errors import NetworkError

Sharing = Literal["maxmin", "rtt_weighted"]

_WORK_PER_BYTE = 8e9            # bits a byte times ns a second: work / (bit/s) is a time in ns
# A completion this much after a whole ns counts as at it: rounding must not cost a ns where the true time is whole.
# Not a simple fraction, so that the times of simple examples do not lie on the border.
_SNAP_NS = 7.3e-4
_TIE_NS = 1e-7                  # flows that end so close together end in one event
_TIE = 1e-15                    # the same, relative to the clock: a few units in its last place
_LEVEL_TIE = 1 + 1e-12          # a flow at its cap leaves it only for a level clearly below
_REBUILD = 4096                 # changes of a hub until its sums and its virtual time are computed afresh,
_LONG_NS = 1e12                 # and the age at which the next change does that: its clock is a float


class RateProfile(Protocol):
    """A link's rate over time, piecewise constant."""

    def rate_at(self, t_ns: int) -> float:
        """bit/s from `t_ns` on, 0 or more."""
        ...

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the rate changes, None if it never does again."""
        ...


@dataclass(frozen=True, slots=True)
class Completion:
    """A flow that has ended. `due_ns`: when, in whole ns (up); `exact_ns`: before rounding, as good as a float is."""

    item: Any
    due_ns: int
    exact_ns: float


class _Link:
    __slots__ = ("bandwidth_bps", "flows", "follows", "index", "left_bps", "open", "profile", "stamp", "watched")

    def __init__(self, index: int, bandwidth_bps: float | None, profile: RateProfile | None = None):
        self.index = index
        self.bandwidth_bps = bandwidth_bps          # None is infinite
        self.profile = profile
        self.follows = profile is not None          # no `change` has taken its place
        self.flows: dict[_Flow, None] = {}          # in the order of their start
        self.watched = False                        # the profile's next breakpoint is in the heap
        self.stamp = 0                              # of the last search for groups that met it
        self.left_bps = 0.0                         # while filling: what is left
        self.open = 0                               # ... for so many flows


class _Flow:
    __slots__ = ("active", "anchor", "cap_bps", "capped", "group", "item", "links", "order", "rate_bps", "version",
                 "weight", "work")

    def __init__(self, order: int, item: Hashable, work: float, weight: float, links: tuple[_Link, ...]):
        self.order = order
        self.item = item
        self.work = work                            # bit ns / s, at the group's clock or, in a hub, at `anchor`
        self.weight = weight
        self.links = links
        self.active: tuple[_Link, ...] = ()         # those of finite bandwidth
        self.rate_bps = 0.0                         # in a mesh
        self.group: _Mesh | _Hub | None = None
        self.cap_bps = inf                          # in a hub: of the links that it has for itself
        self.capped = False
        self.anchor = 0.0
        self.version = 0


class _Mesh:
    """Flows in any arrangement: filled anew at each event. 0.3 ms for 1,000 flows over 3 of 100 links each."""

    __slots__ = ("_links", "due", "epoch", "flows", "next_ns", "ns", "rest", "stale", "until_regroup", "weighted")

    def __init__(self, ns: int, rest: float, flows: Iterable[_Flow], weighted: bool):
        self.ns, self.rest = ns, rest               # the clock: ns + rest
        self.flows = dict.fromkeys(flows)
        self.weighted = weighted                    # else all weights are 1
        self.until_regroup = len(self.flows) // 8   # changes: then it may have fallen apart, or be a hub
        self.epoch = 0                              # of its entry in the heap
        self.stale = False                          # in the list of what must be solved
        self.due: int | None = None
        self.next_ns = inf                          # until the next completion, from the clock
        for flow in self.flows:
            flow.group = self
        # in the order met; some may be idle by now, or in use by another group
        self._links = dict.fromkeys(link for flow in self.flows for link in flow.active)

    def add(self, flow: _Flow) -> None:
        flow.group = self
        self.flows[flow] = None
        self._links.update(dict.fromkeys(flow.active))

    def discard(self, flow: _Flow) -> None:
        del self.flows[flow]

    def recap(self, link: _Link) -> None:
        """Nothing to note: bandwidths are read when filling."""

    def settle(self, now_ns: int) -> None:
        """Bring the clock to `now_ns`."""
        passed = now_ns - self.ns - self.rest
        if passed > 0:
            for flow in self.flows:
                flow.work -= flow.rate_bps * passed
            self.ns, self.rest = now_ns, 0.0

    def work(self, flow: _Flow, now_ns: int | None = None) -> float:
        """What is left of it at `now_ns`, before the next completion; None: at the clock."""
        passed = 0.0 if now_ns is None else max(0.0, now_ns - self.ns - self.rest)
        return max(0.0, flow.work - flow.rate_bps * passed)

    def rate_bps(self, flow: _Flow) -> float:
        return flow.rate_bps

    def solve(self) -> None:
        """Weighted progressive filling: the tightest link freezes its flows at its level, again and again.

        A link's level only rises while others freeze flows, so a key in the heap is a lower bound and is looked at
        again when it comes to the top. Sum over routes of the length, times log(links).
        """
        for flow in self.flows:
            flow.rate_bps = -1.0
        heap = []
        for link in self._links:
            if link.flows and next(iter(link.flows)).group is self:
                assert link.bandwidth_bps is not None
                link.left_bps = link.bandwidth_bps
                link.open = len(link.flows)
                heap.append((link.left_bps / self._weight(link), link.index, link))
        heapify(heap)
        level = 0.0                             # it never falls: rounding must not leave a flow nothing
        while heap:
            bound, index, link = heap[0]
            if not link.open:
                heappop(heap)
                continue
            found = max(level, link.left_bps / self._weight(link))
            if found > bound:
                heapreplace(heap, (found, index, link))
                continue
            heappop(heap)
            level = found
            for flow in link.flows:
                if flow.rate_bps < 0:
                    rate = flow.rate_bps = flow.weight * level
                    for other in flow.active:
                        other.left_bps -= rate
                        other.open -= 1
        times = [flow.work / flow.rate_bps for flow in self.flows if flow.rate_bps]
        self.next_ns = max(0.0, min(times)) if times else inf

    def _weight(self, link: _Link) -> float:
        """Of its flows that are not frozen: summed each time, since differences would leave rests of rounding."""
        return sum(flow.weight for flow in link.flows if flow.rate_bps < 0) if self.weighted else link.open

    def plan(self) -> None:
        self.due = None if self.next_ns == inf else self.ns + ceil(self.rest + self.next_ns - _SNAP_NS)

    def finish(self) -> tuple[list[_Flow], float]:
        """The flows that end at the next completion, taken out, and when: the clock is there now."""
        passed = self.next_ns
        border = passed + passed * _TIE + _TIE_NS
        done = [flow for flow in self.flows if flow.work <= flow.rate_bps * border and flow.rate_bps]
        for flow in done:
            del self.flows[flow]
        for flow in self.flows:
            flow.work -= flow.rate_bps * passed
        self.rest += passed
        whole = floor(self.rest)
        self.ns += whole
        self.rest -= whole
        return done, self.ns + self.rest

    def clock(self) -> tuple[int, float]:
        return self.ns, self.rest


_Entry = tuple[float, int, int, _Flow]              # key, order, version when pushed, flow


class _Hub:
    """Flows that share the same links, `common`, and are capped each by links of its own: a PS queue in virtual time.

    The level v' (bit/s a unit of weight) is that of progressive filling on one link: a flow gets min(cap, weight v').
    Virtual time v is its integral, so that the finish of a flow below its cap is a constant of v, as that of a capped
    one is of t. Flows change between the two as the level moves: each heap has an entry for it, of the last version.
    """

    __slots__ = ("_by_cap", "_by_level", "_capped", "_free", "_in_t", "_in_v", "_sum_bps", "_t", "_v", "_weight",
                 "capacity_bps", "common", "due", "epoch", "flows", "level", "next_ns", "ns", "stale",
                 "until_regroup")

    def __init__(self, ns: int, rest: float, flows: Sequence[_Flow], common: tuple[_Link, ...]):
        self.ns = ns                                # the origin of t
        self._t, self._v = rest, 0.0
        self.common = common
        self.flows: dict[_Flow, None] = {}
        self.epoch = 0
        self.stale = False
        self.until_regroup = max(_REBUILD, 4 * len(flows))
        self.due: int | None = None
        self.next_ns = inf                          # on the scale of t
        self.level = 0.0
        self._in_v: list[_Entry] = []               # free flows by virtual finish
        self._in_t: list[_Entry] = []               # capped flows by finish
        self._by_level: list[_Entry] = []           # free flows by the level at which they meet their cap
        self._by_cap: list[_Entry] = []             # capped flows by the same, highest first
        self._free = self._capped = 0               # flows
        self._weight = self._sum_bps = 0.0          # of the free flows; of the capped
        self.capacity_bps = 0.0
        self._measure()
        for flow in flows:
            self.add(flow)

    def _measure(self) -> None:
        self.capacity_bps = min((link.bandwidth_bps or 0.0 for link in self.common), default=inf)

    def accepts(self, links: Sequence[_Link]) -> bool:
        """Does a new flow over `links` (finite ones) leave this group a hub? Its links hold it not yet."""
        return len(self.flows) > 1 and (all(not link.flows or link in self.common for link in links)
                                        and all(link in links for link in self.common))

    def add(self, flow: _Flow) -> None:
        flow.group = self
        self.flows[flow] = None
        flow.cap_bps = min((link.bandwidth_bps or 0.0 for link in flow.active if link not in self.common), default=inf)
        self._release(flow)

    def discard(self, flow: _Flow) -> None:
        del self.flows[flow]
        self._detach(flow)

    def _detach(self, flow: _Flow) -> None:
        flow.work = self.work(flow)
        flow.version += 1
        if flow.capped:
            self._capped -= 1
            self._sum_bps = self._sum_bps - flow.cap_bps if self._capped else 0.0
        else:
            self._free -= 1
            self._weight = self._weight - flow.weight if self._free else 0.0

    def _release(self, flow: _Flow) -> None:
        """Let a detached flow share what is left."""
        flow.capped, flow.anchor = False, self._v
        self._free += 1
        self._weight += flow.weight
        heappush(self._in_v, (self._v + flow.work / flow.weight, flow.order, flow.version, flow))
        if flow.cap_bps < inf:
            heappush(self._by_level, (flow.cap_bps / flow.weight, flow.order, flow.version, flow))

    def _cap(self, flow: _Flow) -> None:
        """Hold a detached flow at its cap."""
        flow.capped, flow.anchor = True, self._t
        self._capped += 1
        self._sum_bps += flow.cap_bps
        if flow.cap_bps:
            heappush(self._in_t, (self._t + flow.work / flow.cap_bps, flow.order, flow.version, flow))
        heappush(self._by_cap, (-flow.cap_bps / flow.weight, flow.order, flow.version, flow))

    def recap(self, link: _Link) -> None:
        """The bandwidth of `link` has changed."""
        if link in self.common:
            self._measure()
            return
        for flow in link.flows:
            self._detach(flow)
            flow.cap_bps = min(other.bandwidth_bps or 0.0 for other in flow.active if other not in self.common)
            self._release(flow)

    def settle(self, now_ns: int) -> None:
        """Bring the clock to `now_ns`."""
        self._settle(float(now_ns - self.ns))
        if self._t > _LONG_NS:
            self.until_regroup = 0

    def _settle(self, t: float) -> None:
        if t > self._t:
            if self._free:
                self._v += self.level * (t - self._t)
            self._t = t

    def work(self, flow: _Flow, now_ns: int | None = None) -> float:
        """What is left of it at `now_ns`, before the next completion; None: at the clock."""
        t = self._t if now_ns is None else max(self._t, float(now_ns - self.ns))
        if flow.capped:
            return max(0.0, flow.work - flow.cap_bps * (t - flow.anchor))
        v = self._v if t == self._t else self._v + self.level * (t - self._t)
        return max(0.0, flow.work - flow.weight * (v - flow.anchor))

    def rate_bps(self, flow: _Flow) -> float:
        return flow.cap_bps if flow.capped else flow.weight * self.level

    def solve(self) -> None:
        """Cap and release flows until the level fits. Either raises the level, so that this comes to an end."""
        while True:
            spare = self.capacity_bps - self._sum_bps
            if self._free:
                level = spare / self._weight
            else:
                level = inf if self._sum_bps <= self.capacity_bps * _LEVEL_TIE else -1.0
            top = _top(self._by_level)
            if top is not None and top[0] <= level:
                heappop(self._by_level)
                self._detach(top[3])
                self._cap(top[3])
                continue
            top = _top(self._by_cap)
            if top is not None and -top[0] > level * _LEVEL_TIE:
                heappop(self._by_cap)
                self._detach(top[3])
                self._release(top[3])
                continue
            break
        self.level = max(0.0, level)
        self.next_ns = inf
        top = _top(self._in_v)
        if top is not None and self.level:
            self.next_ns = self._t + max(0.0, top[0] - self._v) / self.level
        top = _top(self._in_t)
        if top is not None and top[0] < self.next_ns:
            self.next_ns = max(self._t, top[0])

    def plan(self) -> None:
        self.due = None if self.next_ns == inf else self.ns + ceil(self.next_ns - _SNAP_NS)

    def finish(self) -> tuple[list[_Flow], float]:
        """The flows that end at the next completion, taken out, and when: the clock is there now."""
        self._settle(self.next_ns)
        done: list[_Flow] = []
        tie_ns = self._t * _TIE + _TIE_NS
        for heap, border in ((self._in_v, self._v + self._v * _TIE + self.level * tie_ns),
                             (self._in_t, self._t + tie_ns)):
            if heap is self._in_v and not self.level:
                continue
            while (top := _top(heap)) is not None and top[0] <= border:
                heappop(heap)
                self.discard(top[3])
                done.append(top[3])
        return done, self.ns + self._t

    def clock(self) -> tuple[int, float]:
        whole = floor(self._t)
        return self.ns + whole, self._t - whole


def _top(heap: list[_Entry]) -> _Entry | None:
    """The first entry that is of its flow's last version; older ones are dropped."""
    while heap:
        if heap[0][2] == heap[0][3].version:
            return heap[0]
        heappop(heap)
    return None


class Fluid:
    """Flows over links with shared bandwidth. Times in ns, sizes in bytes, rates in bit/s.

    Every flow is present on all its links at once and gets one rate. "maxmin": no flow's rate can be raised without
    lowering one that is no larger. "rtt_weighted": the same of rates times RTT, so that flows share a bottleneck as
    1/RTT and what one cannot use goes to the others (what long TCP flows with unequal RTTs do, roughly; Kollaps,
    state.rs); an RTT below 1 ns counts as 1 ns.

    Items are hashable and each is in flight once. `now_ns` must not decrease from call to call. A call at a time
    beyond `next_change()` is taken as if `advance` had come first, and what ended is kept for it.
    """

    def __init__(self, sharing: Sharing = "maxmin"):
        if sharing not in ("maxmin", "rtt_weighted"):
            raise NetworkError(f'sharing {sharing!r}: expected "maxmin" or "rtt_weighted"')
        self.sharing = sharing
        self._weighted = sharing == "rtt_weighted"
        self._links: list[_Link] = []
        self._flows: dict[Hashable, _Flow] = {}         # in the order of their start
        self._order = 0
        self._heap: list[tuple[int, int, int, _Mesh | _Hub]] = []       # due, serial, epoch, group
        self._breaks: list[tuple[int, int]] = []        # next breakpoint, link
        self._serial = 0
        self._stamp = 0
        self._now = -1
        self._stale: list[_Mesh | _Hub] = []            # groups to be solved before anything is asked of them
        self._done: list[tuple[int, int, float, Any]] = []              # due, order, exact, item

    # --- links ------------------------------------------------------------------------------------------------------

    def add_link(self, bandwidth_bps: float | None = None, *, profile: RateProfile | None = None) -> int:
        """A new link, by its number; `bandwidth_bps` None is infinite. With a `profile` that one says the rate.

        Both directions of a half-duplex link are one link here; a full-duplex one is two.
        """
        index = len(self._links)
        if bandwidth_bps is not None:
            _check_bandwidth(index, bandwidth_bps)
        self._links.append(_Link(index, None if bandwidth_bps is None else float(bandwidth_bps), profile))
        return index

    def change(self, now_ns: int, link: int, bandwidth_bps: float | Literal["infinite", "profile"]) -> None:
        """From `now_ns` on the link has this bandwidth; 0: what is on it stands still.

        A number or "infinite" takes the place of the link's profile until "profile" gives the word back to it.
        Raises NetworkError on what no link can have.
        """
        place = self._link(link)
        if bandwidth_bps == "profile":
            if place.profile is None:
                raise NetworkError(f"link {link} has no profile")
        elif bandwidth_bps != "infinite":
            _check_bandwidth(link, bandwidth_bps)
        self._reach(now_ns)
        place.follows = bandwidth_bps == "profile"
        if bandwidth_bps == "profile":
            self._follow(now_ns, place)
        else:
            self._set_bandwidth(now_ns, place, None if bandwidth_bps == "infinite" else float(bandwidth_bps))

    def settle(self, now_ns: int) -> None:
        """Process what has happened by `now_ns`: what has ended is off its links, and awaits `advance`."""
        self._run(now_ns)

    def flows_on(self, link: int) -> list[Any]:
        """The items on a link, in the order of their start."""
        return [flow.item for flow in self._link(link).flows]

    def bandwidth_bps(self, link: int) -> float | None:
        """As of the last event; None is infinite. The rate of an idle link with a profile is not kept up to date."""
        return self._link(link).bandwidth_bps

    def _link(self, index: int) -> _Link:
        if not 0 <= index < len(self._links):
            raise NetworkError(f"there is no link {index}: {len(self._links)} were added")
        return self._links[index]

    def _follow(self, now_ns: int, link: _Link) -> None:
        """Let a link have its profile's rate at `now_ns`, and from there on while it is in use."""
        assert link.profile is not None
        self._set_bandwidth(now_ns, link, float(link.profile.rate_at(now_ns)))
        if not link.watched:
            self._watch(now_ns, link)

    def _watch(self, now_ns: int, link: _Link) -> None:
        assert link.profile is not None
        change = link.profile.next_change(now_ns)
        link.watched = change is not None
        if change is not None:
            heappush(self._breaks, (change, link.index))

    def _set_bandwidth(self, now_ns: int, link: _Link, bandwidth_bps: float | None) -> None:
        before, link.bandwidth_bps = link.bandwidth_bps, bandwidth_bps
        if before == bandwidth_bps or not link.flows:
            return
        if before is not None and bandwidth_bps is not None:
            group = next(iter(link.flows)).group
            assert group is not None
            group.settle(now_ns)
            group.recap(link)
            self._changed(group, now_ns)
            return
        # an infinite link ties no flows together, a finite one does: groups merge or fall apart
        flows = [flow for group in _groups(link.flows) for flow in self._dissolve(group, now_ns)]
        for flow in link.flows:
            flow.active = _finite(flow.links)
        self._regroup(now_ns, 0.0, flows)

    # --- flows ------------------------------------------------------------------------------------------------------

    def start(self, now_ns: int, item: Hashable, size_bytes: float, links: Sequence[int], *, rtt_ns: int = 0,
              cap_bps: float | None = None) -> None:
        """Put `item` on its links; one named twice counts once. `cap_bps` is a rate that it never exceeds.

        `rtt_ns` matters only with "rtt_weighted". Without bytes, or without a finite link and cap, it ends at
        `now_ns`. Raises NetworkError where something of that cannot be, and then changes nothing.
        """
        places = [self._link(index) for index in dict.fromkeys(links)]
        if item in self._flows:
            raise NetworkError(f"{item!r} is in flight already")
        if not 0 <= size_bytes < inf:
            raise NetworkError(f"size {size_bytes!r}: expected a number of bytes, 0 or more")
        if cap_bps is not None and not 0 <= cap_bps < inf:
            raise NetworkError(f"cap {cap_bps!r}: expected a number of bit/s, 0 or more")
        self._reach(now_ns)
        self._order += 1
        if cap_bps is not None:
            places.append(_Link(-self._order, float(cap_bps)))
        for link in places:
            if link.follows and not link.watched:
                self._follow(now_ns, link)
        weight = 1 / max(1, rtt_ns) if self._weighted else 1.0
        flow = _Flow(self._order, item, size_bytes * _WORK_PER_BYTE, weight, tuple(places))
        flow.active = _finite(flow.links)
        if not size_bytes or not flow.active:
            self._done.append((now_ns, flow.order, float(now_ns), item))
            return
        self._flows[item] = flow
        groups = _groups(next(iter(link.flows)) for link in flow.active if link.flows)
        joins = len(groups) == 1 and (isinstance(groups[0], _Mesh) or groups[0].accepts(flow.active))
        for link in flow.links:
            link.flows[flow] = None
        if joins:
            groups[0].settle(now_ns)
            groups[0].add(flow)
            self._changed(groups[0], now_ns)
            return
        flows = [other for group in groups for other in self._dissolve(group, now_ns)]
        flows.append(flow)
        if len(groups) > 1:             # they had no link in common: connected now, and no hub
            self._touch(_Mesh(now_ns, 0.0, flows, self._weighted))
        else:
            self._regroup(now_ns, 0.0, flows)

    def remove(self, now_ns: int, items: Iterable[Hashable] = (), *, link: int | None = None) -> list[Any]:
        """Take flows off their links: the `items`, or all that are on `link`. Returns them in the order of their start.

        What has ended by `now_ns` is not removed: `advance` returns it. Raises NetworkError on an item not in flight.
        """
        wanted = list(items)
        if link is not None:
            wanted += self.flows_on(link)
        flows = {self._flow(item): None for item in wanted}
        self._run(now_ns)
        left = sorted((flow for flow in flows if flow.item in self._flows), key=lambda flow: flow.order)
        for group in _groups(left):
            group.settle(now_ns)
        for flow in left:
            group_of = flow.group
            assert group_of is not None
            group_of.discard(flow)
            self._forget(flow)
            self._changed(group_of, now_ns)
        return [flow.item for flow in left]

    def in_flight(self) -> list[Any]:
        """All items that have not ended by the last call, in the order of their start."""
        return list(self._flows)

    def rate_bps(self, item: Hashable) -> float:
        """Its rate since the last event."""
        flow = self._flow(item)
        self._flush()
        assert flow.group is not None
        return flow.group.rate_bps(flow)

    def remaining_bytes(self, now_ns: int, item: Hashable) -> float:
        """What has not crossed its links at `now_ns`; 0 for one that has ended by then and awaits `advance`."""
        flow = self._flow(item)
        self._run(now_ns)
        if flow.item not in self._flows:
            return 0.0
        assert flow.group is not None
        return flow.group.work(flow, now_ns) / _WORK_PER_BYTE

    def _flow(self, item: Hashable) -> _Flow:
        flow = self._flows.get(item)
        if flow is None:
            raise NetworkError(f"{item!r} is not in flight")
        return flow

    # --- time -------------------------------------------------------------------------------------------------------

    def next_change(self) -> int | None:
        """When to call `advance`: the next completion, or breakpoint of the profile of a link in use. In whole ns, up.

        None where nothing is in flight, or all of it stands still for good. Every other call may move it.
        """
        if self._done:
            return min(self._done)[0]
        self._flush()
        due = self._next_due()
        pause = self._next_break()
        return due if pause is None else pause if due is None else min(due, pause)

    def advance(self, now_ns: int) -> list[Any]:
        """The items that have ended by `now_ns` and were not returned yet, ordered by whole ns, then by their start."""
        return [completion.item for completion in self.completions(now_ns)]

    def completions(self, now_ns: int) -> list[Completion]:
        """As `advance`, with their times."""
        self._run(now_ns)
        if not self._done:
            return []
        done = [Completion(item, due, exact) for due, _, exact, item in sorted(self._done, key=lambda d: d[:2])]
        self._done.clear()
        return done

    def _reach(self, now_ns: int) -> None:
        """Process all events by `now_ns` if the time is new: what starts together is solved together."""
        if now_ns > self._now:
            self._run(now_ns)

    def _run(self, now_ns: int) -> None:
        """Process all events by `now_ns`."""
        self._now = max(now_ns, self._now)
        self._flush()
        while True:
            due, pause = self._next_due(), self._next_break()
            if due is not None and due <= now_ns and (pause is None or due <= pause):
                self._finish(heappop(self._heap)[3])
            elif pause is not None and pause <= now_ns:
                link = self._links[heappop(self._breaks)[1]]
                link.watched = False
                self._follow(pause, link)
            else:
                return
            self._flush()

    def _next_due(self) -> int | None:
        heap = self._heap
        while heap:
            due, _, epoch, group = heap[0]
            if epoch == group.epoch:
                return due
            heappop(heap)
        return None

    def _next_break(self) -> int | None:
        while self._breaks:
            change, index = self._breaks[0]
            link = self._links[index]
            if link.flows and link.follows:
                return change
            link.watched = False                # asked again at its next use
            heappop(self._breaks)
        return None

    def _finish(self, group: _Mesh | _Hub) -> None:
        due = group.due
        assert due is not None
        done, exact = group.finish()
        for flow in done:
            self._forget(flow)
            self._done.append((due, flow.order, exact, flow.item))
        self._changed(group)

    def _forget(self, flow: _Flow) -> None:
        del self._flows[flow.item]
        for link in flow.links:
            del link.flows[flow]

    # --- groups -----------------------------------------------------------------------------------------------------

    def _changed(self, group: _Mesh | _Hub, now_ns: int | None = None) -> None:
        """Flows have come or gone, or a bandwidth has changed: at `now_ns`, or at the group's clock."""
        group.until_regroup -= 1
        if group.until_regroup < 0 and group.flows:
            ns, rest = group.clock() if now_ns is None else (now_ns, 0.0)
            self._regroup(ns, rest, self._dissolve(group))
        else:
            self._touch(group)

    def _touch(self, group: _Mesh | _Hub) -> None:
        """Solve it before anything is asked: not at once, since many flows may start at one instant."""
        if not group.stale:
            group.stale = True
            self._stale.append(group)

    def _flush(self) -> None:
        for group in self._stale:
            group.stale = False
            group.epoch += 1
            if group.flows:
                group.solve()
                group.plan()
                if group.due is not None:
                    self._serial += 1
                    heappush(self._heap, (group.due, self._serial, group.epoch, group))
        self._stale.clear()
        if len(self._heap) > 64 + 4 * len(self._flows):
            self._heap = [entry for entry in self._heap if entry[2] == entry[3].epoch]
            heapify(self._heap)

    def _dissolve(self, group: _Mesh | _Hub, now_ns: int | None = None) -> list[_Flow]:
        """End a group and return its flows with the work that is left of them at `now_ns`, or at the group's clock."""
        flows = list(group.flows)
        for flow in flows:
            flow.work = group.work(flow, now_ns)
        for flow in flows:
            flow.group = None
        group.flows = {}
        self._touch(group)                      # which voids its entry
        return flows

    def _regroup(self, ns: int, rest: float, flows: Sequence[_Flow]) -> None:
        """Make groups of flows that have none, at the clock ns + rest. No other flow shares a finite link with them."""
        self._stamp += 1
        stamp = self._stamp
        found: set[_Flow] = set()
        for flow in flows:
            if flow in found:
                continue
            if not flow.active:
                self._forget(flow)
                self._done.append((ns + ceil(rest - _SNAP_NS), flow.order, ns + rest, flow.item))
                continue
            members, links = [flow], []
            found.add(flow)
            for member in members:              # which grows
                for link in member.active:
                    if link.stamp != stamp:
                        link.stamp = stamp
                        links.append(link)
                        fresh = [other for other in link.flows if other not in found]
                        found.update(fresh)
                        members += fresh
            common = tuple(link for link in links if len(link.flows) == len(members))
            alone = sum(len(link.flows) == 1 for link in links)
            if len(members) > 1 and len(common) + alone == len(links):
                self._touch(_Hub(ns, rest, members, common))
            else:
                self._touch(_Mesh(ns, rest, members, self._weighted))


def _finite(links: Iterable[_Link]) -> tuple[_Link, ...]:
    return tuple(link for link in links if link.bandwidth_bps is not None)


def _groups(flows: Iterable[_Flow]) -> list[_Mesh | _Hub]:
    """Their groups, each once, in the order met."""
    return list(dict.fromkeys(flow.group for flow in flows if flow.group is not None))


def _check_bandwidth(link: int, bandwidth_bps: Any) -> None:
    if isinstance(bandwidth_bps, bool) or not isinstance(bandwidth_bps, (int, float)) or not 0 <= bandwidth_bps < inf:
        raise NetworkError(f'link {link}: bandwidth {bandwidth_bps!r}: expected a number of bit/s, 0 or more, '
                           'or "infinite"')
