"""The expectations of a medium before anything is sent: its stations, and their rates alone and all at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf

from emul.network.models.media import MediumSpec
from emul.network.models.radio import Radio
from emul.network.network import Network
from emul.network.rules import LinkParameters

_LOOKED_AT = 200_000        # links of a network


@dataclass(frozen=True, slots=True)
class MediumOutlook:
    """A medium: its stations, the links that belong to it, and the rates of each station's first link, in bit/s.

    alone_bps: with nobody else. all_bps: with a flow of each station.
    """

    spec: MediumSpec
    links: int
    alone_bps: Sequence[float]
    all_bps: Sequence[float]

    @property
    def stations(self) -> int:
        return len(self.alone_bps)


def seconds_a_bit(spec: MediumSpec, rate_bps: float | None, mtu: int | None) -> float:
    """The time of a bit on a link of this rate."""
    return inf if not rate_bps else 1 / rate_bps + spec.seconds_a_bit(mtu)


def medium_outlooks(network: Network) -> list[MediumOutlook]:
    """Of all media, in their order; of networks with very many links the first ones count."""
    links: dict[str, int] = dict.fromkeys(network.media, 0)
    costs: dict[str, dict[tuple[int, int], float]] = {name: {} for name in network.media}
    for u, v, p in islice(_links(network), _LOOKED_AT) if network.media else ():
        if p.medium is not None:
            links[p.medium] += 1
            costs[p.medium].setdefault((min(u, v), max(u, v)), seconds_a_bit(
                network.media[p.medium], None if p.bandwidth_bps is None else float(p.bandwidth_bps), p.mtu))
    found = []
    for name, spec in network.media.items():
        each = list(costs[name].values())
        share, together = spec.share(len(each)), sum(each)
        alone = [spec.share(1) / cost for cost in each]
        every = [share / together if spec.fair == "throughput" else share / len(each) / cost for cost in each]
        found.append(MediumOutlook(spec, links[name], alone, every))
    return found


def _links(network: Network) -> Iterator[tuple[int, int, LinkParameters]]:
    for u in range(len(network.names)):
        for v in network.topology.neighbours(u):
            yield u, v, network.parameters(u, v)


def _cannot_begin_anew(network: Network, radio: Radio, spots: set[str]) -> list[tuple[tuple[str | int, ...], str, str]]:
    """The first reason why flows cannot begin anew at handovers. spots: places that are vertices."""
    place = "attach", "gap"
    if spots:
        return [(place, "again", f"{min(spots)} is a vertex, and routes do not follow the place: expected hold")]
    for u, name in enumerate(network.names):
        for v in network.topology.neighbours(u) if radio.roams(name) is not None else ():
            for a, b in ((u, v), (v, u)):
                p = network.parameters(a, b) if network.topology.linked(a, b) else None
                if p is not None and (p.sharing == "fifo" or p.transport != "datagram"):
                    wrong = "sharing fifo" if p.sharing == "fifo" else "a transport"
                    return [(place, "again", f"{network.names[a]} -> {network.names[b]} has {wrong}: expected hold, or "
                             "links that share, with transport: datagram")]
    return []


def radio_problems(network: Network) -> list[tuple[tuple[str | int, ...], str, str]]:
    """(where in `radio`, found, expected) of what does not fit the network: names that nobody has, places out of it."""
    radio = network.radio
    if radio is None:
        return []
    found: list[tuple[tuple[str | int, ...], str, str]] = []
    vertices, model = set(network.names), radio.model
    places = {place.name for place in model.spots}
    for i, move in enumerate(model.moves):
        movers = [name for name in vertices - places if radio.fits(name, move.match)]
        if not movers:
            found.append((("move", i, "match"), move.match, "matches no vertex of the network that is no place"))
        elif not move.in_turn and all(move.walk(0, name) is None for name in movers):
            found.append((("move", i, "match"), move.match, "its trace has rows of none of these vertices"))
    candidates = [place.name for place in radio.candidates()]
    attach = model.attach
    if attach is not None:
        if not any(radio.fits(name, attach.nodes) and radio.walk(name) is not None for name in network.names):
            found.append((("attach", "match"), attach.nodes, "matches no vertex that `move` says the way of"))
        if not candidates:
            found.append((("attach", "match"), attach.spots, "matches no place"))
        elif len(vertices.intersection(candidates)) not in (0, len(candidates)):
            strange = next(name for name in candidates if name not in vertices)
            found.append((("attach", "match"), strange, "is no vertex of the network, and other places are: expected "
                          "all of them to be vertices, or none"))
        elif attach.gap == "again":
            found += _cannot_begin_anew(network, radio, vertices.intersection(candidates))
    lost = [name for name in sorted(places - vertices) if name not in candidates]
    if lost:
        found.append((("places",), lost[0], "is no vertex of the network, and no node attaches to it"))
    return found
