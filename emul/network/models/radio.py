"""Radio: the rates of links between nodes that move and places, and to which place a node is attached.

The power that a node receives falls with the distance, so that the rate of its link to a place is a function of its
walk: a table says the least power of each rate, so each rate has a reach, and the rate changes where a stretch of the
walk crosses one. That is a root of a quadratic: nothing is sampled. All is known beforehand, and is the same for all
schemes.

    received power (dBm) = power - reference - 10 exponent log10(distance / at) - shadowing

The shadowing of a node and a place is normal, drawn once from (seed, node, place).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

from emul.base.names import MARK, matches
from emul.base.streams import key64, uniform_at
from emul.network.models.pieces import Pieces, earliest
from emul.network.models.profiles import CurveProfile, VaryingRate
from emul.network.models.walks import Stretch, Walk, Waypoints, along, standing, waypoints

# (least dBm, bit/s), ascending: IEEE 802.11ax-2021, HE MCS 0 to 11 of one stream in 20 MHz, guard interval of 0.8 us
# (table 27-61), and the sensitivities of receivers (table 27-54).
_WIFI_DBM = (-82, -79, -77, -74, -70, -66, -65, -64, -59, -57, -54, -52)
_WIFI_MBPS = (8.6, 17.2, 25.8, 34.4, 51.6, 68.8, 77.4, 86.0, 103.2, 114.7, 129.0, 143.4)
# bits a symbol of CQI 1 to 15: 3GPP TS 36.213, table 7.2.3-1
_CQI = (0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152,
        5.5547)
_LTE_HZ = 9e6                   # 50 blocks of 180 kHz, of a carrier of 10 MHz
_LTE_NOISE_DBM = -174 + 10 * math.log10(_LTE_HZ) + 9        # of a receiver with a noise figure of 9 dB
_LTE_GAP = -math.log(5 * 5e-5) / 1.5                        # bits = log2(1 + SNR / gap), BER 5e-5 (Piro et al. 2011)
HandoverGap = Literal["hold", "again"]
HANDOVER_GAPS: tuple[str, ...] = get_args(HandoverGap)
Steps = tuple[tuple[float, int], ...]
RATES: dict[str, Steps] = {
    "wifi_ax_20": tuple((float(dbm), round(mbps * 1e6)) for dbm, mbps in zip(_WIFI_DBM, _WIFI_MBPS, strict=True)),
    "lte_10": tuple((_LTE_NOISE_DBM + 10 * math.log10(_LTE_GAP * (2**bits - 1)), round(bits * _LTE_HZ))
                    for bits in _CQI)}
MOST_STRETCHES = 20_000         # of a walk are looked through for a change: one farther away counts as none
_MEAN_NS = 600 * 10**9          # of a rate, from 0 on, and
_MEAN_STRETCHES = 200           # at the most
_NORMAL = NormalDist()
_HALF = 2.0**-54                # moves a uniform draw off 0


@dataclass(frozen=True, slots=True)
class LogDistance:
    """Path loss: reference_db at `at_m` and nearer, from there on 10 exponent dB a decade; shadowing_db: its sigma."""

    exponent: float
    reference_db: float
    at_m: float = 1.0
    shadowing_db: float = 0.0


@dataclass(frozen=True, slots=True)
class RadioPlace:
    """A point that nodes send to, in m: a vertex of the network of this name."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Move:
    """The movement of the nodes that match: a walk each by `waypoint`, points by name ("": for all), or `at` one place.

    points: (time in ns, x, y) ascending in time. in_turn: the first node that matches has the first of these walks, and
    so on, from the beginning again where they do not suffice; names do not matter.
    """

    match: str
    waypoint: Waypoints | None = None
    points: Mapping[str, Sequence[tuple[int, float, float]]] | None = None
    at: tuple[float, float] | None = None
    in_turn: bool = False

    def walk(self, seed: int, name: str) -> Walk | None:
        """The walk of a node that matches, in a trace of this name; None: it has no rows of that."""
        if self.waypoint is not None:
            return Walk(waypoints(self.waypoint, seed, name))
        if self.at is not None:
            return Walk(standing(*self.at))
        assert self.points is not None
        points = self.points.get(name) or self.points.get("")
        return None if points is None else Walk(along(points))


@dataclass(frozen=True, slots=True)
class Attach:
    """A node is attached to one of the places that match: the strongest at 0, then one that is stronger than its own by
    `hysteresis_db` (above 0). After a change its link is down for `interruption_ns`.

    gap "hold": a message that a change meets goes on over the next place. "again": its rest begins anew at its source.
    """

    nodes: str
    spots: str
    hysteresis_db: float
    interruption_ns: int = 0
    gap: HandoverGap = "hold"


@dataclass(frozen=True, slots=True)
class RadioModel:
    """The `radio` of a scenario. rates: (least dBm, bit/s), ascending. Of moves that match a node the last
    one holds."""

    spots: tuple[RadioPlace, ...]
    moves: tuple[Move, ...]
    loss: LogDistance
    rates: Steps
    power_dbm: float
    attach: Attach | None = None


def shadowing(loss: LogDistance, seed: int, node: str, place: str) -> float:
    """The loss in dB beside that by distance, the same for the whole run."""
    if not loss.shadowing_db:
        return 0.0
    return loss.shadowing_db * _NORMAL.inv_cdf(uniform_at(key64(seed, "shadowing", node, place), 0) + _HALF)


def reach_m(model: RadioModel, least_dbm: float, shadow_db: float = 0.0) -> float:
    """The distance up to which at least so much power comes; below 0: nowhere."""
    loss = model.loss
    spare = model.power_dbm - loss.reference_db - shadow_db - least_dbm
    return -1.0 if spare < 0 else loss.at_m * 10 ** (spare / (10 * loss.exponent))


# ---- values over time -----------------------------------------------------------------------------------------------

def _square(stretch: Stretch, place: RadioPlace) -> tuple[float, float, float]:
    """The square of the distance to a place, a + b s + c s^2, s seconds after the stretch begins."""
    x, y = stretch.x - place.x, stretch.y - place.y
    return x * x + y * y, 2 * (x * stretch.vx + y * stretch.vy), stretch.vx**2 + stretch.vy**2


def roots(a: float, b: float, c: float) -> list[float]:
    """The roots of a + b s + c s^2, ascending; none where it is constant."""
    if c == 0:
        return [] if b == 0 else [-a / b]
    under = b * b - 4 * a * c
    if under < 0:
        return []
    # the larger of the two by magnitude first: no difference of nearly equal numbers
    q = -(b + math.copysign(math.sqrt(under), b)) / 2
    return sorted([q / c] if q == 0 else [q / c, a / q])


class _Grown(Pieces[int], ABC):
    """Values that hold from times on, found stretch by stretch of a walk as far as they are asked for."""

    __slots__ = ("_number", "_walk")

    def __init__(self, walk: Walk):
        super().__init__([], [])
        self._walk = walk
        self._number = 0                # stretches that have been looked at
        self.known_ns = 0               # the end of the last of them

    @abstractmethod
    def _changes(self, stretch: Stretch) -> Iterable[tuple[int, int]]:
        """(time, value) of a stretch, in order, the first at its beginning."""

    def _grow(self) -> None:
        stretch = self._walk.stretch(self._number)
        if stretch is None:
            self.known_ns = None
            return
        self._number += 1
        self.known_ns = stretch.end_ns
        for time, value in self._changes(stretch):
            if self.times and self.times[-1] == time:
                self.values[-1] = value
            elif not self.values or self.values[-1] != value:
                self.times.append(time)
                self.values.append(value)

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the value may be another one; None: not in MOST_STRETCHES stretches,
        as of a node that walks for ever where one rate holds."""
        i = self.place(t_ns) + 1
        last = self._number + MOST_STRETCHES
        while i == len(self.times) and self._number < last and self.known_ns is not None:
            self._grow()
        return self.times[i] if i < len(self.times) else None


class PlaceRates(_Grown):
    """The rate of a node at one place, in bit/s, by the distance alone."""

    __slots__ = ("_reaches", "_spot")

    def __init__(self, walk: Walk, spot: RadioPlace, model: RadioModel, shadow_db: float):
        super().__init__(walk)
        self._spot = spot
        found = [(reach_m(model, least, shadow_db), bps) for least, bps in model.rates]
        self._reaches = [(reach**2, bps) for reach, bps in found if reach > 0]         # the farthest first

    def _rate(self, square: float) -> int:
        rate = 0
        for reach, bps in self._reaches:
            if square > reach:
                break
            rate = bps
        return rate

    def _changes(self, stretch: Stretch) -> Iterable[tuple[int, int]]:
        a, b, c = _square(stretch, self._spot)
        length = (stretch.end_ns - stretch.begin_ns) / 1e9
        times = sorted({0.0, *(s for reach, _ in self._reaches for s in roots(a - reach, b, c) if 0 < s < length)})
        for s, following in zip(times, [*times[1:], length], strict=True):
            middle = (s + following) / 2 if b or c else 0.0         # between two crossings nothing is on a border
            yield stretch.begin_ns + math.ceil(s * 1e9), self._rate(a + b * middle + c * middle * middle)


class Attachments(_Grown):
    """The number of the place that a node is attached to. spots: with the shadowing of each in dB."""

    __slots__ = ("_factors", "_now", "_spots")

    def __init__(self, walk: Walk, spots: Sequence[tuple[RadioPlace, float]], loss: LogDistance, hysteresis_db: float):
        super().__init__(walk)
        self._spots = [place for place, _ in spots]
        # b is stronger than a by the hysteresis where the square of the distance to a is so many times that to b
        self._factors = [[10 ** ((hysteresis_db + there - here) / (5 * loss.exponent)) for _, there in spots]
                         for _, here in spots]
        start = walk.stretch(0)
        assert start is not None
        self._now = min(range(len(spots)), key=lambda i: _square(start, self._spots[i])[0] * 10 ** (
            spots[i][1] / (5 * loss.exponent)))

    def next_change(self, t_ns: int) -> int | None:
        """As of a `_Grown`; of one place, never: no stretch needs to be looked at."""
        return super().next_change(t_ns) if len(self._spots) > 1 else None

    def _changes(self, stretch: Stretch) -> Iterable[tuple[int, int]]:
        yield stretch.begin_ns, self._now
        squares = [_square(stretch, place) for place in self._spots]
        length, s = (stretch.end_ns - stretch.begin_ns) / 1e9, 0.0
        while (found := self._next(squares, s, length)) is not None:
            s, self._now = found
            yield stretch.begin_ns + math.ceil(s * 1e9), self._now

    def _next(self, squares: Sequence[tuple[float, float, float]], s: float, length: float) -> tuple[float, int] | None:
        """The next (seconds, place) after `s` at which another place is stronger by the hysteresis; None: none is."""
        best: tuple[float, int] | None = None
        own = squares[self._now]
        for number, other in enumerate(squares):
            if number == self._now:
                continue
            factor = self._factors[self._now][number]
            a, b, c = (x - factor * y for x, y in zip(own, other, strict=True))
            times = [s, *(at for at in roots(a, b, c) if s < at < length)]
            for at, following in zip(times, [*times[1:], length], strict=True):
                middle = (at + following) / 2
                if a + b * middle + c * middle * middle > 0:
                    if best is None or at < best[0]:
                        best = at, number
                    break
        return best


class AttachedTimeline:
    """The times at which a node is attached to one place, and its link there is up: a `Timeline`."""

    __slots__ = ("_attached", "_interruption", "_number")

    def __init__(self, attached: Attachments, number: int, interruption_ns: int):
        self._attached = attached
        self._number = number
        self._interruption = interruption_ns

    def _opens(self, t_ns: int) -> int | None:
        """The time at which the link came up or will, if the node is attached there at `t_ns`; None: it is not."""
        i = self._attached.place(t_ns)
        if self._attached.values[i] != self._number:
            return None
        return self._attached.times[i] + (self._interruption if i else 0)

    def up_at(self, t_ns: int) -> bool:
        """As of a `Timeline`, whatever the distance."""
        opens = self._opens(t_ns)
        return opens is not None and opens <= t_ns

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which `up_at` may be another; None: never."""
        opens = self._opens(t_ns)
        return earliest(self._attached.next_change(t_ns), opens if opens is not None and opens > t_ns else None)


class LinkCurve:
    """The rate of the link between a node and a place, in bit/s: a `RateCurve`. up: when it has one; None: always."""

    __slots__ = ("_rates", "up")

    def __init__(self, rates: PlaceRates, up: AttachedTimeline | None = None):
        self._rates = rates
        self.up = up

    def rate_at(self, t_ns: int) -> int:
        """As of a `RateCurve`."""
        return self._rates.values[self._rates.place(t_ns)] if self.up is None or self.up.up_at(t_ns) else 0

    def next_change(self, t_ns: int) -> int | None:
        """As of a `RateCurve`."""
        return earliest(self._rates.next_change(t_ns), None if self.up is None else self.up.next_change(t_ns))


class RoamingCurve:
    """The rate of the links of a node over the place that it is attached to, in bit/s: a `RateCurve`."""

    __slots__ = ("_attached", "_interruption", "_rates")

    def __init__(self, rates: Sequence[PlaceRates], attached: Attachments, interruption_ns: int):
        self._rates = rates
        self._attached = attached
        self._interruption = interruption_ns

    def place_at(self, t_ns: int) -> int:
        """The number of the place."""
        return self._attached.values[self._attached.place(t_ns)]

    def next_place(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which the place may be another one."""
        return self._attached.next_change(t_ns)

    def _opens(self, t_ns: int) -> int:
        i = self._attached.place(t_ns)
        return self._attached.times[i] + (self._interruption if i else 0)

    def rate_at(self, t_ns: int) -> int:
        """As of a `RateCurve`; 0 while it changes from one place to another."""
        rates = self._rates[self.place_at(t_ns)]
        return rates.values[rates.place(t_ns)] if self._opens(t_ns) <= t_ns else 0

    def next_change(self, t_ns: int) -> int | None:
        """As of a `RateCurve`: also where the place becomes another one, and the rate does not."""
        opens = self._opens(t_ns)
        return earliest(self._rates[self.place_at(t_ns)].next_change(t_ns), self._attached.next_change(t_ns),
                        opens if opens > t_ns else None)


class RoamingRate:
    """A rate over the places of a node that roams, with a breakpoint, too, where the place becomes another one."""

    __slots__ = ("_curve", "_rate")

    def __init__(self, rate: VaryingRate, curve: RoamingCurve):
        self._rate = rate
        self._curve = curve

    def rate_at(self, t_ns: int) -> int:
        """bit/s from `t_ns` on."""
        return self._rate.rate_at(t_ns)

    def next_change(self, t_ns: int) -> int | None:
        """The first time after `t_ns` at which rate or place may be another."""
        return earliest(self._rate.next_change(t_ns), self._curve.next_place(t_ns))


class Radio:
    """The radio of one network: walks and rates by name, made when they are asked for.

    vertices: names of the network. A place that is among them has links of its own. Over one that is not the
    links of the nodes that are attached to it lead, wherever they lead. marks: vertex -> the names of its group and
    class of links, by which patterns such as `@slow` have it.
    """

    def __init__(self, model: RadioModel, seed: int, vertices: Iterable[str],
                 marks: Mapping[str, Collection[str | None]] = {}):
        self.model = model
        self._names = list(vertices)
        self._vertices = set(self._names)
        self._marks = marks
        self._seed = seed
        self._places = {place.name: place for place in model.spots}
        self._walks: dict[str, Walk | None] = {}
        self._attachments: dict[str, Attachments] = {}
        self._curves: dict[tuple[str, str], LinkCurve] = {}
        self._roaming: dict[str, RoamingCurve] = {}
        self._means: dict[tuple[str, str], int] = {}

    def walk(self, name: str) -> Walk | None:
        """The walk of a node; None: nothing moves it, or it is a place."""
        if name not in self._walks:
            move = self._move(name)
            if move is not None and move.in_turn:
                walks = list(move.points or {})
                for k, one in enumerate(one for one in self._names if self._move(one) is move):
                    self._walks[one] = move.walk(self._seed, walks[k % len(walks)])
            else:
                self._walks[name] = None if move is None else move.walk(self._seed, name)
        return self._walks.get(name)

    def _move(self, name: str) -> Move | None:
        """The last that matches a node; None: there is none, or it is a place."""
        return None if name in self._places else next(
            (one for one in reversed(self.model.moves) if self.fits(name, one.match)), None)

    def fits(self, name: str, pattern: str) -> bool:
        """True if a pattern of `radio` has this vertex, as those of links and faults have theirs."""
        return (pattern[len(MARK):] in self._marks.get(name, ()) if pattern.startswith(MARK) else
                matches(name, pattern, self._vertices))

    def unmoved(self) -> str:
        """A remark on vertices that a trace should move, and has no rows of; empty where there are none."""
        said = ""
        for i, move in enumerate(self.model.moves):
            still = [name for name in sorted(self._vertices.difference(self._places))
                     if move.points is not None and self.fits(name, move.match) and self.walk(name) is None]
            if still:
                moved = [f'"{name}"' for name in move.points or {}]
                said += (f"; or rows in the trace of radio.move[{i}], which has none of {', '.join(still[:5])}"
                         f"{', ...' * (len(still) > 5)}: it moves {', '.join(moved[:5])}{', ...' * (len(moved) > 5)}")
        return said

    def ends(self, source: str, destination: str) -> tuple[str, str] | None:
        """(node, place) of a link; place "": that to which the node is attached; None: it has no rate by
        radio."""
        for node, other in ((source, destination), (destination, source)):
            if other in self._places and self.walk(node) is not None:
                return node, other
        for node in (source, destination):
            if self.roams(node) is not None:
                return node, ""
        return None

    def roams(self, node: str) -> RoamingCurve | None:
        """The rate of the links of a node that is attached to places that are no vertices; None: it is not."""
        if node not in self._vertices or any(one.name in self._vertices for one in self.candidates()):
            return None
        if node not in self._roaming:
            attached, attach = self.attached(node), self.model.attach
            if attached is None or attach is None:
                return None
            self._roaming[node] = RoamingCurve([self._at_place(node, place) for place in self.candidates()], attached,
                                               attach.interruption_ns)
        return self._roaming[node]

    def roaming(self, source: str, destination: str) -> RoamingCurve | None:
        """The rate of a link of a node that roams; None: neither end does."""
        ends = self.ends(source, destination)
        return None if ends is None or ends[1] else self.roams(ends[0])

    def attached(self, node: str) -> Attachments | None:
        """The places that a node is attached to, by their numbers in `candidates`; None: it is attached to none."""
        attach, walk = self.model.attach, self.walk(node)
        if attach is None or walk is None or not self.fits(node, attach.nodes) or not self.candidates():
            return None
        if node not in self._attachments:
            places = [(place, shadowing(self.model.loss, self._seed, node, place.name))
                      for place in self.candidates()]
            self._attachments[node] = Attachments(walk, places, self.model.loss, attach.hysteresis_db)
        return self._attachments[node]

    def candidates(self) -> list[RadioPlace]:
        """The places that nodes can be attached to."""
        attach = self.model.attach
        return [] if attach is None else [
            one for one in self.model.spots if matches(one.name, attach.spots, self._places)]

    def curve(self, node: str, place: str) -> LinkCurve:
        """The rate of both directions between a node and a place."""
        found = self._curves.get((node, place))
        if found is None:
            attach, rates = self.model.attach, self._at_place(node, self._places[place])
            attached = self.attached(node)
            numbers = [one.name for one in self.candidates()]
            if attached is None or attach is None or place not in numbers:
                found = LinkCurve(rates)
            else:
                found = LinkCurve(rates, AttachedTimeline(attached, numbers.index(place), attach.interruption_ns))
            self._curves[node, place] = found
        return found

    def _at_place(self, node: str, place: RadioPlace) -> PlaceRates:
        walk = self.walk(node)
        assert walk is not None
        return PlaceRates(walk, place, self.model, shadowing(self.model.loss, self._seed, node, place.name))

    def profile(self, source: str, destination: str) -> CurveProfile | None:
        """The rate of a link; None: it has another rate than by radio."""
        ends = self.ends(source, destination)
        if ends is None:
            return None
        curve = self.curve(*ends) if ends[1] else self.roams(ends[0])
        assert curve is not None
        return CurveProfile(curve)

    def typical_bps(self, source: str, destination: str) -> int | None:
        """The mean rate of a link in the first ten minutes, 1 bit/s at the least; None: it has none by radio."""
        ends = self.ends(source, destination)
        if ends is None:
            return None
        if ends not in self._means:
            profile, walk = self.profile(source, destination), self.walk(ends[0])
            assert profile is not None
            assert walk is not None
            last = walk.stretch(_MEAN_STRETCHES)
            span = _MEAN_NS if last is None else min(_MEAN_NS, last.begin_ns)
            self._means[ends] = max(1, round(profile.sent_bytes(0, span) * 8 * 10**9 / span))
        return self._means[ends]
