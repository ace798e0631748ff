"""Fluid sharing of links: flows over several links get max-min fair rates, by progressive filling.

Bertsekas & Gallager 1992, Data Networks, section 6.5.2. As in SimGrid, latency is no matter of this file: the caller
has paid it before a flow starts. No calendar here: the caller asks `next_change()` and comes back with `advance(now)`.

Flows that share links, directly or through others, form a *group*. Only the groups that an event touches are solved
anew. A group in which every link carries either all flows or a single one (the star: clients behind access links, one
server) is a `Hub`, a processor-sharing queue in virtual time: O(log n) an event. Any other, and a lone flow, is a
`Mesh`, filled anew at each event. Times are whole ns outside. Inside, an event happens at a fraction of a ns, so that
errors do not add up over events; a group's clock is an integer and a rest below 1, so that late times are as exact.

Links may share the time of a medium (`emul.network.links.media`). A group of flows in one medium, each with links that
it has for itself, is a `MediumHub`; with other links in common it is a `Mesh`, whose rates `levels` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import ceil, inf
from typing import Literal

from emul.base.errors import NetworkError
from emul.network.links.hub import Hub
from emul.network.links.media import MediumHub, MediumLink, SharedMedium, cost, stopped
from emul.network.links.mesh import Mesh
from emul.network.links.shares import SNAP_NS, WORK_PER_BYTE, Flow, FlowGroup, RateProfile, SharedLink, check_bandwidth
from emul.network.links.stalls import Stall, note_stall
from emul.network.models.media import MediumSpec


@dataclass(frozen=True, slots=True)
class Completion:
    """A flow that has ended. `due_ns`: when, in whole ns (up); `exact_ns`: before rounding, as good as a float is."""

    item: object
    due_ns: int
    exact_ns: float


Due = tuple[int, int, int, FlowGroup]           # when its next flow ends, serial, epoch, group


class Fluid:
    """Flows over links with shared bandwidth. Times in ns, sizes in bytes, rates in bit/s.

    Every flow is present on all its links at once and gets one rate. No flow's rate can be raised without lowering one
    that is no larger (max-min).

    Items are hashable and each is in flight once. `now_ns` must not decrease from call to call. A call at a time
    beyond `next_change()` is taken as if `advance` had come first, and what ended is kept for it.
    """

    def __init__(self) -> None:
        self._links: list[SharedLink] = []
        self._flows: dict[Hashable, Flow] = {}         # in the order of their start
        self._background = 0                            # flows in flight that are background
        self._order = 0
        self._heap: list[Due] = []
        self._unseen: list[Due] = []                    # of quiet flows that are alone, and of background alone
        self._ended: dict[Hashable, int] = {}           # quiet items that ended so: when, whole ns
        self._breaks: list[tuple[int, int]] = []        # next breakpoint, link
        self._serial = 0
        self._stamp = 0
        self._now = -1
        self._stale: list[FlowGroup] = []        # groups to be solved before anything is asked of them
        self._done: list[tuple[int, int, float, object]] = []              # due, order, exact, item

    # --- links ------------------------------------------------------------------------------------------------------

    def add_link(self, bandwidth_bps: float | None = None, *, profile: RateProfile | None = None) -> int:
        """A new link, by its number; `bandwidth_bps` None is infinite. With a `profile` that one says the rate."""
        index = len(self._links)
        if bandwidth_bps is not None:
            check_bandwidth(index, bandwidth_bps)
        self._links.append(SharedLink(index, None if bandwidth_bps is None else float(bandwidth_bps), profile))
        return index

    def add_medium(self, spec: MediumSpec, profile: RateProfile | None = None) -> int:
        """A new medium, by its number: a link that flows come to by `add_member` alone.

        profile: the share of its time that background traffic leaves, in place of all of it.
        """
        self._links.append(SharedMedium(len(self._links), spec, profile))
        return len(self._links) - 1

    def add_member(self, medium: int, station: Hashable, bandwidth_bps: float | None = None, *,
                   profile: RateProfile | None = None, packet_s: float = 0.0,
                   roams: Callable[[int], int] | None = None) -> int:
        """A new link that shares the time of a medium, by its number. It sends with this bandwidth, or by the profile.

        station: what gets equal time with others. packet_s: seconds a bit that packets cost beside their bits. roams:
        the medium at a time, in place of `medium` for good; the profile has a breakpoint where it becomes another one.
        """
        index = len(self._links)
        if profile is None:
            check_bandwidth(index, bandwidth_bps)
        self._links.append(MediumLink(index, self._medium(medium), station,
                                      None if bandwidth_bps is None else float(bandwidth_bps), profile, packet_s,
                                      roams))
        return index

    def _medium(self, index: int) -> SharedMedium:
        medium = self._link(index)
        if not isinstance(medium, SharedMedium):
            raise NetworkError(f"link {index} is no medium")
        return medium

    def used(self, now_ns: int, medium: int) -> float:
        """The seconds a second of a medium that its flows take at `now_ns`; eta at the most."""
        place = self._medium(medium)
        self._reach(now_ns)
        return sum(self.rate_bps(flow.item) * cost(flow, place) for flow in place.flows if not stopped(flow))

    def change(self, now_ns: int, link: int,
               bandwidth_bps: float | RateProfile | Literal["infinite", "profile"]) -> None:
        """From `now_ns` on the link has this bandwidth; 0: what is on it stands still.

        A number or "infinite" takes the place of the link's profile until "profile" gives the word back to it.
        Another profile takes the place of the link's for good. Raises NetworkError on what no link can have.
        """
        place = self._link(link)
        if isinstance(place, SharedMedium):
            raise NetworkError(f"link {link} is a medium, which has no bandwidth")
        if isinstance(place, MediumLink) and bandwidth_bps == "infinite":
            raise NetworkError(f"link {link} belongs to a medium: expected a bandwidth")
        if bandwidth_bps == "profile":
            if place.profile is None:
                raise NetworkError(f"link {link} has no profile")
        elif bandwidth_bps != "infinite" and isinstance(bandwidth_bps, (int, float)):
            check_bandwidth(link, bandwidth_bps)
        self._reach(now_ns)
        if not isinstance(bandwidth_bps, (int, float, str)):
            self._breaks = [found for found in self._breaks if found[1] != link]      # those of the profile before
            heapify(self._breaks)
            place.profile, place.watched = bandwidth_bps, False
            bandwidth_bps = "profile"
        place.follows = bandwidth_bps == "profile"
        if bandwidth_bps == "profile":
            self._follow(now_ns, place)
        else:
            self._set_bandwidth(now_ns, place, None if bandwidth_bps == "infinite" else float(bandwidth_bps))

    def settle(self, now_ns: int) -> None:
        """Process what has happened by `now_ns`: what has ended is off its links, and awaits `advance`."""
        self._run(now_ns)

    def flows_on(self, link: int) -> list[object]:
        """The items on a link, in the order of their start."""
        return [flow.item for flow in self._link(link).flows]

    def bandwidth_bps(self, now_ns: int, link: int) -> float | None:
        """At `now_ns`, which is no earlier than the last event; None is infinite."""
        place = self._link(link)
        if place.follows:                               # the rate of an idle link is not kept up to date
            assert place.profile is not None
            return float(place.profile.rate_at(now_ns))
        return place.bandwidth_bps

    def profile(self, link: int) -> RateProfile | None:
        """The rate over time that a link has where no `change` has set one."""
        return self._link(link).profile

    def stalls(self, link: int) -> Sequence[Stall]:
        """The times at which the link stood still while it was in use, ascending."""
        return self._link(link).stalls

    def _link(self, index: int) -> SharedLink:
        if not 0 <= index < len(self._links):
            raise NetworkError(f"there is no link {index}: {len(self._links)} were added")
        return self._links[index]

    def _follow(self, now_ns: int, link: SharedLink) -> None:
        """Let a link have its profile's rate and its medium at `now_ns`, and from there on while it is in use. Under a
        rate that a fault has set it roams all the same."""
        assert link.profile is not None
        if link.roams is not None:
            self._roam(now_ns, link, self._medium(link.roams(now_ns)))
        if link.follows:
            self._set_bandwidth(now_ns, link, float(link.profile.rate_at(now_ns)))
        if not link.watched:
            change = link.profile.next_change(now_ns)
            link.watched = change is not None
            if change is not None:
                heappush(self._breaks, (change, link.index))

    def _roam(self, now_ns: int, link: SharedLink, medium: SharedMedium) -> None:
        """The link belongs to this medium from now on, with the flows on it."""
        assert isinstance(link, MediumLink)
        before, link.medium = link.medium, medium
        if before is medium or not link.flows:
            return
        if medium.follows and not medium.watched:
            self._follow(now_ns, medium)
        flows = [flow for group in _groups([*link.flows, *medium.flows]) for flow in self._dissolve(group, now_ns)]
        for flow in link.flows:
            if all(other.medium is not before for other in flow.members):
                del before.flows[flow]
                flow.links = tuple(other for other in flow.links if other is not before)
            if medium not in flow.links:
                medium.flows[flow] = None
                flow.links += (medium,)
            flow.active = _finite(flow.links)
        self._regroup(now_ns, 0.0, flows)

    def _set_bandwidth(self, now_ns: int, link: SharedLink, bandwidth_bps: float | None) -> None:
        before, link.bandwidth_bps = link.bandwidth_bps, bandwidth_bps
        if before == bandwidth_bps:
            return
        if before == 0:
            note_stall(link.stalls, link.stands_since, now_ns)
        elif bandwidth_bps == 0:
            link.stands_since = now_ns
        if not link.flows:
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

    def start(self, now_ns: int, item: Hashable, size_bytes: float, links: Sequence[int], *,
              cap_bps: float | None = None, quiet: bool = False, background: bool = False) -> None:
        """Put `item` on its links; one named twice counts once. `cap_bps` is a rate that it never exceeds.

        Without bytes, or without a finite link and cap, it ends at `now_ns`. quiet: while no other flow shares a link
        with it, `next_change` does not name its end, and `advance` does not return it; `end_of` says when it ended.
        background: `advance` never returns it, and `next_change` names nothing while all flows are such. Raises
        NetworkError where something of that cannot be, and then changes nothing.
        """
        shared = [self._link(index) for index in (dict.fromkeys(links) if len(links) > 1 else links)]
        if item in self._flows:
            raise NetworkError(f"{item!r} is in flight already")
        if not 0 <= size_bytes < inf:
            raise NetworkError(f"size {size_bytes!r}: expected a number of bytes, 0 or more")
        if cap_bps is not None and not 0 <= cap_bps < inf:
            raise NetworkError(f"cap {cap_bps!r}: expected a number of bit/s, 0 or more")
        self._reach(now_ns)
        self._order += 1
        if cap_bps is not None:
            shared.append(SharedLink(-self._order, float(cap_bps)))
        members: tuple[MediumLink, ...] = ()
        for link in shared:
            if (link.follows or link.roams is not None) and not link.watched:
                self._follow(now_ns, link)
            if isinstance(link, MediumLink):
                members += (link,)
        for link in members:
            medium = link.medium
            if medium not in shared:
                shared.append(medium)
                if medium.follows and not medium.watched:
                    self._follow(now_ns, medium)
        flow = Flow(self._order, item, size_bytes * WORK_PER_BYTE, tuple(shared), quiet, background)
        flow.members = members
        flow.active = _finite(flow.links)
        if not size_bytes or not flow.active:
            if not background:
                self._done.append((now_ns, flow.order, float(now_ns), item))
            return
        self._background += background
        self._flows[item] = flow
        groups: list[FlowGroup] = []
        for link in flow.active:
            for other in link.flows:            # the first of them: all are in one group
                if other.group is not None and other.group not in groups:
                    groups.append(other.group)
                break
        joins = len(groups) == 1 and groups[0].accepts(flow.active)
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
            self._touch(Mesh(now_ns, 0.0, flows))
        else:
            self._regroup(now_ns, 0.0, flows)

    def remove(self, now_ns: int, items: Iterable[Hashable] = (), *, link: int | None = None) -> list[object]:
        """Take flows off their links: the `items`, or all that are on `link`. Returns them in the order of their start.

        A flow that has ended by `now_ns` is not removed: `advance` returns it. Raises NetworkError on an item not in
        flight.
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

    def in_flight(self) -> list[object]:
        """All items that have not ended by the last call, in the order of their start."""
        return list(self._flows)

    def rate_bps(self, item: Hashable) -> float:
        """Its rate since the last event."""
        flow = self._flow(item)
        self._flush()
        assert flow.group is not None
        return flow.group.rate_bps(flow)

    def remaining_bytes(self, now_ns: int, item: Hashable) -> float:
        """The bytes that have not crossed its links at `now_ns`; 0 for one that has ended by then and awaits
        `advance`."""
        flow = self._flow(item)
        self._run(now_ns)
        if flow.item not in self._flows:
            return 0.0
        assert flow.group is not None
        return flow.group.work(flow, now_ns) / WORK_PER_BYTE

    def end_of(self, now_ns: int, item: Hashable) -> int | None:
        """The time at which a quiet item ended, alone; None: it has not, and from now on its end is an event."""
        self._run(now_ns)
        end = self._ended.pop(item, None)
        flow = self._flows.get(item)
        if end is None and flow is not None:
            flow.quiet = False
            assert flow.group is not None
            self._touch(flow.group)
        return end

    def _flow(self, item: Hashable) -> Flow:
        flow = self._flows.get(item)
        if flow is None:
            raise NetworkError(f"{item!r} is not in flight")
        return flow

    # --- time -------------------------------------------------------------------------------------------------------

    def next_change(self) -> int | None:
        """The time of the next call of `advance`: the next completion, or breakpoint of the profile of a link in use.
        In whole ns, up.

        None where nothing is in flight, or all of it stands still for good. Every other call may move it.
        """
        if self._done:
            return min(self._done)[0]
        if self._background and not self.awaited:
            return None
        self._flush()
        due = _next_due(self._heap)
        pause = self._next_break()
        return due if pause is None else pause if due is None else min(due, pause)

    @property
    def awaited(self) -> bool:
        """True if a flow that is not background is in flight."""
        return len(self._flows) > self._background

    def stands_still(self) -> bool:
        """True if no flow that is not background has a rate, so that the end of others and new ones change nothing."""
        self._flush()
        for flow in self._flows.values():       # asked at each event of background: no generator
            if not flow.background and flow.group is not None and flow.group.rate_bps(flow):
                return False
        return True

    def advance(self, now_ns: int) -> list[object]:
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
            heap = self._heap
            due = _next_due(heap) if heap else None
            unseen = _next_due(self._unseen) if self._unseen else None
            pause = self._next_break() if self._breaks else None
            if unseen is not None and (due is None or unseen < due):
                due, heap = unseen, self._unseen
            if due is not None and due <= now_ns and (pause is None or due <= pause):
                self._finish(heappop(heap)[3], heap is self._heap)
            elif pause is not None and pause <= now_ns:
                link = self._links[heappop(self._breaks)[1]]
                link.watched = False
                self._follow(pause, link)
            else:
                return
            self._flush()

    def _next_break(self) -> int | None:
        while self._breaks:
            change, index = self._breaks[0]
            link = self._links[index]
            if link.flows and (link.follows or link.roams is not None):
                return change
            link.watched = False                # asked again at its next use
            heappop(self._breaks)
        return None

    def next_break(self) -> int | None:
        """The next breakpoint of the profile of a link that a flow is on which is not background; None: never."""
        return min((change for change, index in self._breaks if self._links[index].follows
                    and any(not flow.background for flow in self._links[index].flows)), default=None)

    def _finish(self, group: FlowGroup, seen: bool) -> None:
        due = group.due
        assert due is not None
        done, exact = group.finish()
        for flow in done:
            self._forget(flow)
            if flow.background:
                continue
            if seen:
                self._done.append((due, flow.order, exact, flow.item))
            else:
                self._ended[flow.item] = due
        self._changed(group)

    def _forget(self, flow: Flow) -> None:
        del self._flows[flow.item]
        self._background -= flow.background
        for link in flow.links:
            del link.flows[flow]

    # --- groups -----------------------------------------------------------------------------------------------------

    def _changed(self, group: FlowGroup, now_ns: int | None = None) -> None:
        """Flows have come or gone, or a bandwidth has changed: at `now_ns`, or at the group's clock."""
        group.until_regroup -= 1
        if group.until_regroup < 0 and group.flows:
            ns, rest = group.clock() if now_ns is None else (now_ns, 0.0)
            self._regroup(ns, rest, self._dissolve(group))
        else:
            self._touch(group)

    def _touch(self, group: FlowGroup) -> None:
        """Solve it before anything is asked: not at once, since many flows may start at one instant."""
        if not group.stale:
            group.stale = True
            self._stale.append(group)

    def _flush(self) -> None:
        if not self._stale:                     # most calls: nothing has changed since the last one
            return
        for group in self._stale:
            group.stale = False
            group.epoch += 1
            if group.flows:
                group.solve()
                group.plan()
                if group.due is not None:
                    self._serial += 1
                    first = next(iter(group.flows))
                    unseen = first.quiet and len(group.flows) == 1
                    if first.background:
                        unseen = all(flow.background for flow in group.flows)
                    heappush(self._unseen if unseen else self._heap, (group.due, self._serial, group.epoch, group))
        self._stale.clear()
        most = 64 + 4 * len(self._flows)
        for heap in (self._heap, self._unseen):
            if len(heap) > most:
                heap[:] = [entry for entry in heap if entry[2] == entry[3].epoch]
                heapify(heap)

    def _dissolve(self, group: FlowGroup, now_ns: int | None = None) -> list[Flow]:
        """End a group and return its flows with the work that is left of them at `now_ns`, or at the group's clock."""
        flows = list(group.flows)
        for flow in flows:
            flow.work = group.work(flow, now_ns)
        for flow in flows:
            flow.group = None
        group.flows = {}
        self._touch(group)                      # this voids its entry
        return flows

    def _regroup(self, ns: int, rest: float, flows: Sequence[Flow]) -> None:
        """Make groups of flows that have none, at the clock ns + rest. No other flow shares a finite link with them."""
        self._stamp += 1
        stamp = self._stamp
        found: set[Flow] = set()
        for flow in flows:
            if flow in found:
                continue
            if not flow.active:
                self._forget(flow)
                if flow.background:
                    continue
                self._done.append((ns + ceil(rest - SNAP_NS), flow.order, ns + rest, flow.item))
                continue
            members, links = [flow], []
            found.add(flow)
            for member in members:              # the list grows meanwhile
                for link in member.active:
                    if link.stamp != stamp:
                        link.stamp = stamp
                        links.append(link)
                        fresh = [other for other in link.flows if other not in found]
                        found.update(fresh)
                        members += fresh
            common = tuple(link for link in links if len(link.flows) == len(members))
            alone = sum(len(link.flows) == 1 for link in links)
            hub = len(members) > 1 and len(common) + alone == len(links)
            medium = next((link for link in common if isinstance(link, SharedMedium)), None) if hub else None
            if hub and medium is None:
                self._touch(Hub(ns, rest, members, common))
            elif medium is not None and len(common) == 1:
                self._touch(MediumHub(ns, rest, members, medium))
            else:
                self._touch(Mesh(ns, rest, members))


def _next_due(heap: list[Due]) -> int | None:
    """The time of its first entry, without those of plans that have changed since."""
    while heap:
        due, _, epoch, group = heap[0]
        if epoch == group.epoch:
            return due
        heappop(heap)
    return None


def _finite(links: Iterable[SharedLink]) -> tuple[SharedLink, ...]:
    return tuple([link for link in links if link.constrains and link.bandwidth_bps is not None])


def _groups(flows: Iterable[Flow]) -> list[FlowGroup]:
    """Their groups, each once, in the order met."""
    return list(dict.fromkeys(flow.group for flow in flows if flow.group is not None))
