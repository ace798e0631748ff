"""Flows of which each link carries all or one: a processor-sharing queue in virtual time, O(log n) an event."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from math import ceil, floor, inf

from emul.network.links.shares import SNAP_NS, TIE, TIE_NS, Flow, SharedLink

_LEVEL_TIE = 1 + 1e-12          # a flow at its cap leaves it only for a level clearly below
_REBUILD = 4096                 # changes of a hub until its sums and its virtual time are computed afresh,
_LONG_NS = 1e12                 # and the age at which the next change does that: its clock is a float

_Entry = tuple[float, int, int, Flow]              # key, order, version when pushed, flow


class Hub:
    """Flows that share the same links, `common`, and are capped each by links of its own: a PS queue in virtual time.

    The level v' (bit/s a unit of share) is that of progressive filling on one link: a flow gets min(cap, share v').
    Virtual time v is its integral, so that the finish of a flow below its cap is a constant of v, as that of a capped
    one is of t. Flows change between the two as the level moves: each heap has an entry for it, of the last version.
    """

    __slots__ = ("_by_cap", "_by_level", "_capped", "_free", "_in_t", "_in_v", "_sum_bps", "_t", "_v", "_weight",
                 "capacity_bps", "common", "due", "epoch", "flows", "level", "next_ns", "ns", "stale",
                 "until_regroup")

    def __init__(self, ns: int, rest: float, flows: Sequence[Flow], common: tuple[SharedLink, ...]):
        self.ns = ns                                # the origin of t
        self._t, self._v = rest, 0.0
        self.common = common
        self.flows: dict[Flow, None] = {}
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

    def accepts(self, links: Sequence[SharedLink]) -> bool:
        """Does a new flow over `links` (finite ones) leave this group a hub? Its links hold it not yet."""
        return len(self.flows) > 1 and (all(not link.flows or link in self.common for link in links)
                                        and all(link in links for link in self.common))

    def add(self, flow: Flow) -> None:
        """Take a flow in, free until `solve`. Its cap: the least bandwidth of its links outside `common`, in bit/s."""
        flow.group = self
        self.flows[flow] = None
        flow.share, flow.cost = 1.0, 1.0
        flow.cap_bps = min((link.alone_bps(flow) for link in flow.active if link not in self.common), default=inf)
        self._release(flow)

    def discard(self, flow: Flow) -> None:
        """Let a flow go; its `work` is then what is left of it at the clock."""
        del self.flows[flow]
        self._detach(flow)

    def _detach(self, flow: Flow) -> None:
        # Floats that were added and taken away again leave a rest, which would be bandwidth of nobody: a sum over no
        # flow is 0 (`test_every_completion_is_that_of_the_exact_calendar`).
        flow.work = self.work(flow)
        flow.version += 1
        if flow.capped:
            self._capped -= 1
            self._sum_bps = self._sum_bps - flow.cap_bps * flow.cost if self._capped else 0.0
        else:
            self._free -= 1
            self._weight = self._weight - flow.share * flow.cost if self._free else 0.0

    def _release(self, flow: Flow) -> None:
        """Let a detached flow share what is left."""
        flow.capped, flow.anchor = False, self._v
        self._free += 1
        self._weight += flow.share * flow.cost
        heappush(self._in_v, (self._v + flow.work / flow.share, flow.order, flow.version, flow))
        if flow.cap_bps < inf:
            heappush(self._by_level, (flow.cap_bps / flow.share, flow.order, flow.version, flow))

    def _cap(self, flow: Flow) -> None:
        """Hold a detached flow at its cap."""
        flow.capped, flow.anchor = True, self._t
        self._capped += 1
        self._sum_bps += flow.cap_bps * flow.cost
        if flow.cap_bps:
            heappush(self._in_t, (self._t + flow.work / flow.cap_bps, flow.order, flow.version, flow))
        heappush(self._by_cap, (-flow.cap_bps / flow.share, flow.order, flow.version, flow))

    def recap(self, link: SharedLink) -> None:
        """The bandwidth of `link` has changed."""
        if link in self.common:
            self._measure()
            return
        for flow in link.flows:
            self._detach(flow)
            flow.cap_bps = min(other.alone_bps(flow) for other in flow.active if other not in self.common)
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

    def work(self, flow: Flow, now_ns: int | None = None) -> float:
        """The rest of it at `now_ns`, before the next completion; None: at the clock."""
        t = self._t if now_ns is None else max(self._t, float(now_ns - self.ns))
        if flow.capped:
            return max(0.0, flow.work - flow.cap_bps * (t - flow.anchor))
        v = self._v if t == self._t else self._v + self.level * (t - self._t)
        return max(0.0, flow.work - flow.share * (v - flow.anchor))

    def rate_bps(self, flow: Flow) -> float:
        """The flow's rate by the last `solve`: its cap, or its share times the level."""
        return flow.cap_bps if flow.capped else flow.share * self.level

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
        """Set `due`: the whole ns by which the next flow ends, None where none does."""
        self.due = None if self.next_ns == inf else self.ns + ceil(self.next_ns - SNAP_NS)

    def finish(self) -> tuple[list[Flow], float]:
        """The flows that end at the next completion, taken out, and when: the clock is there now."""
        self._settle(self.next_ns)
        done: list[Flow] = []
        tie_ns = self._t * TIE + TIE_NS
        for heap, border in ((self._in_v, self._v + self._v * TIE + self.level * tie_ns),
                             (self._in_t, self._t + tie_ns)):
            if heap is self._in_v and not self.level:
                continue
            while (top := _top(heap)) is not None and top[0] <= border:
                heappop(heap)
                self.discard(top[3])
                done.append(top[3])
        return done, self.ns + self._t

    def clock(self) -> tuple[int, float]:
        """The time it stands at: (whole ns, rest below 1 ns)."""
        whole = floor(self._t)
        return self.ns + whole, self._t - whole


def _top(heap: list[_Entry]) -> _Entry | None:
    """The first entry that is of its flow's last version; older ones are dropped."""
    while heap:
        if heap[0][2] == heap[0][3].version:
            return heap[0]
        heappop(heap)
    return None
