"""Flows in any arrangement, filled anew at each event: progressive filling, or, with media, by `levels`.

Bertsekas & Gallager 1992, Data Networks, section 6.5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from math import ceil, floor, inf

from emul.network.links.levels import fill
from emul.network.links.shares import SNAP_NS, TIE, TIE_NS, Flow, SharedLink


class Mesh:
    """Flows in any arrangement: filled anew at each event. 0.3 ms for 1,000 flows over 3 of 100 links each."""

    __slots__ = ("_links", "_media", "due", "epoch", "flows", "next_ns", "ns", "rest", "stale", "until_regroup")

    def __init__(self, ns: int, rest: float, flows: Iterable[Flow]):
        self.ns, self.rest = ns, rest               # the clock: ns + rest
        self.flows = dict.fromkeys(flows)
        self.until_regroup = len(self.flows) // 8   # changes: then it may have fallen apart, or be a hub
        self.epoch = 0                              # of its entry in the heap
        self.stale = False                          # in the list of what must be solved
        self.due: int | None = None
        self.next_ns = inf                          # until the next completion, from the clock
        for flow in self.flows:
            flow.group = self
        # in the order met; some may be idle by now, or in use by another group
        self._links = dict.fromkeys(link for flow in self.flows for link in flow.active)
        self._media = any(flow.members for flow in self.flows)          # some have met one

    def accepts(self, links: Sequence[SharedLink]) -> bool:
        """Always: filling needs no structure."""
        return True

    def add(self, flow: Flow) -> None:
        """Take a flow in; it has no rate before the next `solve`."""
        flow.group = self
        self.flows[flow] = None
        self._links.update(dict.fromkeys(flow.active))
        self._media = self._media or bool(flow.members)

    def discard(self, flow: Flow) -> None:
        """Let a flow go; its `work` is what is left of it at the clock."""
        del self.flows[flow]

    def recap(self, link: SharedLink) -> None:
        """Nothing to note: bandwidths are read when filling."""

    def settle(self, now_ns: int) -> None:
        """Bring the clock to `now_ns`."""
        passed = now_ns - self.ns - self.rest
        if passed > 0:
            for flow in self.flows:
                flow.work -= flow.rate_bps * passed
            self.ns, self.rest = now_ns, 0.0

    def work(self, flow: Flow, now_ns: int | None = None) -> float:
        """The rest of it at `now_ns`, before the next completion; None: at the clock."""
        passed = 0.0 if now_ns is None else max(0.0, now_ns - self.ns - self.rest)
        return max(0.0, flow.work - flow.rate_bps * passed)

    def rate_bps(self, flow: Flow) -> float:
        return flow.rate_bps

    def solve(self) -> None:
        """Find all rates, and when the next flow ends."""
        if self._media:
            fill(self.flows, [link for link in self._links if self._holds(link)])
        else:
            self._fill()
        times = [flow.work / flow.rate_bps for flow in self.flows if flow.rate_bps]
        self.next_ns = max(0.0, min(times)) if times else inf

    def _holds(self, link: SharedLink) -> bool:
        return bool(link.flows) and next(iter(link.flows)).group is self

    def _fill(self) -> None:
        """Progressive filling: the tightest link freezes its flows at its level, again and again.

        A link's level only rises while others freeze flows, so a key in the heap is a lower bound and is looked at
        again when it comes to the top. Sum over routes of the length, times log(links).
        """
        for flow in self.flows:
            flow.rate_bps = -1.0
        heap = []
        for link in self._links:
            if self._holds(link):
                assert link.bandwidth_bps is not None
                link.left_bps = link.bandwidth_bps
                link.open = len(link.flows)
                heap.append((link.left_bps / link.open, link.index, link))
        heapify(heap)
        level = 0.0                             # it never falls: rounding must not leave a flow nothing
        while heap:
            bound, index, link = heap[0]
            if not link.open:
                heappop(heap)
                continue
            found = max(level, link.left_bps / link.open)
            if found > bound:
                heapreplace(heap, (found, index, link))
                continue
            heappop(heap)
            level = found
            for flow in link.flows:
                if flow.rate_bps < 0:
                    flow.rate_bps = level
                    for other in flow.active:
                        other.left_bps -= level
                        other.open -= 1

    def plan(self) -> None:
        """Set `due`: the whole ns by which the next flow ends, None where none does."""
        self.due = None if self.next_ns == inf else self.ns + ceil(self.rest + self.next_ns - SNAP_NS)

    def finish(self) -> tuple[list[Flow], float]:
        """The flows that end at the next completion, taken out, and when: the clock is there now."""
        passed = self.next_ns
        border = passed + passed * TIE + TIE_NS
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
        """The time it stands at: (whole ns, rest below 1 ns)."""
        return self.ns, self.rest
