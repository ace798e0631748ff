"""Links that share the time of a medium: the medium, its links, and the group of flows of which it is the centre.

A flow with the rate x takes x times `cost` of each second of its medium: `cost` is the seconds of a bit, 1 / r and its
part of what a packet costs. A medium is a link for the `Fluid`, with a capacity of eta(n) seconds a second. A flow with
a link of rate 0 stands still, and counts nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import inf

from emul.network.links.hub import Hub
from emul.network.links.shares import Flow, MediumMember, RateProfile, SharedLink
from emul.network.models.media import MediumSpec


class SharedMedium(SharedLink):
    """The time of a medium; flows are on it by their `MediumLink`s."""

    __slots__ = ("_shares", "airtime", "spec")

    def __init__(self, index: int, spec: MediumSpec, profile: RateProfile | None = None):
        super().__init__(index, 1.0, profile)       # the "bandwidth": the share of time that background traffic leaves
        self.spec = spec
        self.airtime = spec.fair == "airtime"
        self._shares: dict[int, float] = {}         # number of stations -> the share of time in which they send

    def capacity(self, stations: int) -> float:
        """The seconds a second that flows may take while so many stations send."""
        assert self.bandwidth_bps is not None
        share = self._shares.get(stations)
        if share is None:
            share = self._shares[stations] = self.spec.share(stations)
        return max(0.0, share - (1.0 - self.bandwidth_bps))

    def alone_bps(self, flow: Flow) -> float:
        """The rate of its only flow."""
        if stopped(flow):
            return 0.0
        return self.capacity(len(stations(flow, self))) / cost(flow, self)

    def terms(self, flows: Sequence[Flow]) -> tuple[float, list[float], list[float]]:
        """(seconds a second, shares, costs) of these flows on it, of which none is `stopped`: a flow with the share s
        and the cost c has x = level * s and takes c * x."""
        here = [flow.members if len(flow.members) == 1 else [link for link in flow.members if link.medium is self]
                for flow in flows]
        users: dict[Hashable, int] = {}             # station -> its flows
        for links in here:
            for station in [links[0].station] if len(links) == 1 else {link.station: None for link in links}:
                users[station] = users.get(station, 0) + 1
        seconds = {link: link.seconds_a_bit for link in {link: None for links in here for link in links}}
        divisors = {link: users[link.station] * s if self.airtime else 1.0 for link, s in seconds.items()}
        shares = [1.0 / (divisors[links[0]] if len(links) == 1 else max(divisors[link] for link in links))
                  for links in here]
        costs = [seconds[links[0]] if len(links) == 1 else sum([seconds[link] for link in links]) for links in here]
        return self.capacity(len(users)), shares, costs

    def worth(self, flow: Flow, users: dict[Hashable, int]) -> float:
        """The share s of a flow: its rate at the level 1. users: the number of flows of each station."""
        if not self.airtime:
            return 1.0
        return min(1.0 / (users[link.station] * link.seconds_a_bit)
                   for link in flow.members if link.medium is self)


class MediumLink(SharedLink):
    """A link whose rate holds while it sends: no limit by itself, but what a bit costs its medium.

    station: what gets a share of the time; both directions of a link are one station. packet_s: seconds a bit that
    packets cost beside their bits.
    """

    __slots__ = ("medium", "packet_s", "roams", "station")

    constrains = False

    def __init__(self, index: int, medium: SharedMedium, station: Hashable, bandwidth_bps: float | None,
                 profile: RateProfile | None = None, packet_s: float = 0.0,
                 roams: Callable[[int], int] | None = None):
        super().__init__(index, bandwidth_bps, profile)
        self.medium = medium
        self.station = station
        self.packet_s = packet_s
        self.roams = roams                          # time -> the number of its medium; None: always the same

    @property
    def seconds_a_bit(self) -> float:
        """The time of a bit in its medium; inf: the link stands still."""
        return 1 / self.bandwidth_bps + self.packet_s if self.bandwidth_bps else inf


def stopped(flow: Flow) -> bool:
    """True if a link of a medium on its way has no rate."""
    return any(not link.bandwidth_bps for link in flow.members)


def stations(flow: Flow, medium: SharedMedium) -> list[Hashable]:
    """Those that send for a flow in a medium, each once."""
    return list(dict.fromkeys(link.station for link in flow.members if link.medium is medium))


def cost(flow: Flow, medium: SharedMedium) -> float:
    """The seconds that a bit of a flow takes in a medium."""
    found = 0.0
    for link in flow.members:
        if link.medium is medium:
            found += link.seconds_a_bit
    return found


class MediumHub(Hub):
    """A `Hub` whose one common link is a medium: flows with a share and a cost each, which stations that come change.

    O(log n) an event, times the flows of the station with `fair: airtime`.
    """

    __slots__ = ("_medium", "_stations")

    def __init__(self, ns: int, rest: float, flows: Sequence[Flow], medium: SharedMedium):
        self._medium = medium
        self._stations: dict[Hashable, dict[Flow, None]] = {}       # station -> its flows that do not stand still
        super().__init__(ns, rest, flows, (medium,))

    def _measure(self) -> None:
        self.capacity_bps = self._medium.capacity(len(self._stations))

    def add(self, flow: Flow) -> None:
        """As of a `Hub`."""
        flow.group = self
        link = self._only_member(flow)
        if link is None or not link.bandwidth_bps or self._stations.get(link.station):
            self._renew([flow])
            return
        # by far the most: one link, and nobody else of its station. `_renew` does the same, in three times the time.
        medium, seconds = self._medium, link.seconds_a_bit
        self.flows[flow] = None
        self._stations[link.station] = {flow: None}
        flow.share = 1.0 / seconds if medium.airtime else 1.0
        flow.cost = seconds
        self._set_cap(flow)
        self._release(flow)
        self._measure()

    def discard(self, flow: Flow) -> None:
        """As of a `Hub`."""
        link = self._only_member(flow)
        there = None if link is None else self._stations.get(link.station)
        if link is None or there is None or len(there) > 1 or flow not in there:
            self._renew([], flow)
            return
        del self.flows[flow], self._stations[link.station]
        self._detach(flow)
        self._measure()

    def _only_member(self, flow: Flow) -> MediumMember | None:
        """The link by which a flow is on the medium; None: there are several."""
        return flow.members[0] if len(flow.members) == 1 else None

    def _set_cap(self, flow: Flow) -> None:
        """The least rate of the links that a flow has for itself."""
        flow.cap_bps = inf
        for link in flow.active:
            if link is not self._medium:
                flow.cap_bps = min(flow.cap_bps, link.alone_bps(flow))

    def recap(self, link: SharedLink) -> None:
        """The rate of a link of the medium has changed, the bandwidth of a link that one flow has for itself, or what
        background traffic takes of the medium."""
        if link is self._medium:
            self._measure()
        else:
            self._renew(list(link.flows))

    def _renew(self, flows: Iterable[Flow], gone: Flow | None = None) -> None:
        """`flows` are new, or their links have changed; `gone` goes. Others of their stations have other shares now."""
        medium = self._medium
        changed = dict.fromkeys(flows)
        touched = dict.fromkeys([*changed, *([] if gone is None else [gone])])
        if medium.airtime:
            for flow in list(touched):
                for station in stations(flow, medium):
                    touched.update(self._stations.get(station, {}))
        for flow in touched:
            if flow in self.flows:
                self._detach(flow)
        if gone is not None:
            del self.flows[gone], touched[gone]
            self._leave(gone)
        for flow in changed:
            self.flows[flow] = None
            self._leave(flow)
            if not stopped(flow):
                for station in stations(flow, medium):
                    self._stations.setdefault(station, {})[flow] = None
        users: dict[Hashable, int] = {}
        for flow in touched if medium.airtime else ():
            for station in stations(flow, medium):
                users[station] = len(self._stations.get(station, ()))
        for flow in touched:
            if stopped(flow):
                flow.share, flow.cost, flow.cap_bps = 1.0, 0.0, 0.0
                self._cap(flow)
                continue
            flow.share, flow.cost = medium.worth(flow, users), cost(flow, medium)
            self._set_cap(flow)
            self._release(flow)
        self._measure()

    def _leave(self, flow: Flow) -> None:
        for station in stations(flow, self._medium):
            there = self._stations.get(station)
            if there is not None and there.pop(flow, flow) is None and not there:
                del self._stations[station]
