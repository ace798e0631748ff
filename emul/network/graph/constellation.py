"""Constellations: satellites and stations as a topology, and the contacts of its links.

Walker's pattern (`emul.network.models.orbits`) or a file of two-line elements (`emul.network.models.tle`) says how the
satellites move. A satellite and a station have a link if it ever stands above `elevation` at the station; two
satellites have one if `isl` joins them and they ever see each other; stations have links with each other if `ground` is
"mesh". Contacts begin and end where clearances are 0, rounded inwards to a millisecond, and latencies are those of
light, rounded to a microsecond: so a plan is the same on every processor.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emul.base import tables
from emul.base.errors import Problem, ScenarioError
from emul.base.extras import MissingExtra
from emul.base.files import read_limited
from emul.base.names import matches
from emul.network.graph.geo import Distance, Positions, great_circle_km
from emul.network.graph.topology import TopologyError
from emul.network.models import orbits, tle
from emul.network.models.constellations import ConstellationSpec
from emul.network.models.contacts import Contacts
from emul.network.models.orbits import FloatArray, IntArray, Motion, Spans

if TYPE_CHECKING:
    import networkx as nx

STEP_NS = 10 * 10**9
KIND, PLANE = "kind", "plane"                   # attributes of vertices
SATELLITE, GATEWAY, STATION = "satellite", "gateway", "station"     # values of the former

_MS, _S = 10**6, 10**9
_SAME_US = 100          # latencies of a link between satellites that differ by less, at steps that follow, are one row
_PORTION = 500_000      # clearances or latencies that are computed at once
_PLACE = "topology.constellation"


@dataclass(frozen=True, slots=True)
class Station:
    """A place on the ground, degrees."""

    name: str
    latitude: float
    longitude: float


@dataclass(frozen=True, slots=True)
class Vertex:
    """kind: SATELLITE, GATEWAY (a satellite among those that alone have links to stations) or STATION. plane: of a
    satellite of Walker's pattern, from 1."""

    name: str
    kind: str
    plane: int | None = None


@dataclass(frozen=True, eq=False)
class Constellation:
    """A constellation without the step of its latencies. Satellites are the first vertices.

    pairs: (satellite, vertex) of each link that the sky opens, in the order of `spans.pair`; ground_ns: latency of each
    pair of stations that are linked.
    """

    vertices: tuple[Vertex, ...]
    stations: tuple[Station, ...]
    motion: Motion
    pairs: IntArray
    spans: Spans
    ground_ns: Mapping[tuple[int, int], int]


def digest(spec: ConstellationSpec) -> str:
    """SHA-256 of the files, one after the other. Raises OSError."""
    return hashlib.sha256(b"".join(read_limited(file) for file in spec.files)).hexdigest()


def constellation(spec: ConstellationSpec) -> Constellation:
    """The constellation; the same object again while its files do not change. Raises TopologyError with all that is
    wrong with its files, with their lines, and where two-line elements lack the package `sgp4`."""
    return _made(spec, spec.sha256, _stamps(spec))


def _stamps(spec: ConstellationSpec) -> tuple[tuple[int, int] | None, ...]:
    return tuple(tables.stamp(file) for file in spec.files)


@lru_cache(maxsize=2)
def _made(spec: ConstellationSpec, sha256: str | None, stamps: tuple[tuple[int, int] | None, ...]) -> Constellation:
    stations, motion, vertices = _sky(spec)
    until_s = spec.span_ns / _S
    n = motion.count
    satellites = [vertex.name for vertex in vertices[:n]]
    unknown = [one for one in spec.gateways if not any(matches(name, one, satellites) for name in satellites)]
    if unknown:
        raise _error([Problem(f"{_PLACE}.gateways", one, "matches no satellite") for one in unknown])
    talking = np.array([i for i in range(n) if not spec.gateways or vertices[i].kind == GATEWAY], np.int64)
    try:
        down = _to_stations(motion, stations, talking, spec.elevation, until_s)
        across = _to_satellites(motion, joined(spec), until_s)
    except ValueError as error:             # of SGP4
        raise _error([Problem(f"{_PLACE}.tle", str(spec.tle), str(error))]) from None
    if not len(down[0]):
        raise _error([Problem(f"{_PLACE}.stations", spec.stations.name,
                              f"no satellite ever stands {spec.elevation:g} deg above the horizon of a station")])
    if spec.isl != "none" and not len(across[0]):
        raise _error([Problem(f"{_PLACE}.isl", spec.isl, "the Earth is between all satellites that it joins")])
    pairs = np.concatenate([down[0], across[0]])
    spans = Spans(np.concatenate([down[1].pair, across[1].pair + len(down[0])]),
                  np.concatenate([down[1].begin_s, across[1].begin_s]),
                  np.concatenate([down[1].end_s, across[1].end_s]))
    law = Distance()
    ground_ns = {} if spec.ground == "none" else {
        (n + i, n + j): law.latency_ns(great_circle_km((a.latitude, a.longitude), (b.latitude, b.longitude)))
        for (i, a), (j, b) in combinations(enumerate(stations), 2)}
    return Constellation(vertices, tuple(stations), motion, pairs, spans, ground_ns)


def _error(problems: Sequence[Problem]) -> TopologyError:
    return TopologyError("topology", list(problems))


def _sky(spec: ConstellationSpec) -> tuple[list[Station], Motion, tuple[Vertex, ...]]:
    """Stations, motion and vertices. Raises TopologyError with what is wrong with both files."""
    problems: list[Problem] = []
    stations: list[Station] = []
    satellites: list[tle.Elements] = []
    try:
        stations = read_stations(spec.stations)
    except ScenarioError as error:
        problems += _of_file("stations", spec.stations, error)
    if spec.tle is not None:
        try:
            satellites = tle.read_elements(spec.tle)
        except ScenarioError as error:
            problems += _of_file("tle", spec.tle, error)
    if not problems and spec.sha256 is not None and digest(spec) != spec.sha256:
        problems.append(Problem(f"{_PLACE}.sha256", f"{digest(spec)[:16]}...", (
            f"expected {spec.sha256[:16]}...: the files are not those that this scenario was resolved with")))
    if spec.tle is not None:
        planes: dict[str, int | None] = {one.name: None for one in satellites}
    else:
        planes = {f"sat{p}-{s}": p for p in range(1, spec.planes + 1) for s in range(1, spec.each + 1)}
    named = [Vertex(name, GATEWAY if any(matches(name, one, planes) for one in spec.gateways) else SATELLITE, plane)
             for name, plane in planes.items()]
    taken = {one.name for one in named}
    problems += [Problem(f"{_PLACE}.stations", f'{spec.stations.name}, "{one.name}"', "is the name of a satellite")
                 for one in stations if one.name in taken]
    if problems:
        raise _error(problems)
    try:
        motion: Motion = tle.Propagated(satellites) if spec.tle is not None else _circles(spec)
    except MissingExtra as error:
        raise _error([Problem(f"{_PLACE}.tle", str(spec.tle), str(error))]) from error
    return stations, motion, (*named, *(Vertex(one.name, STATION) for one in stations))


def _circles(spec: ConstellationSpec) -> orbits.Circles:
    assert spec.altitude_km is not None
    assert spec.inclination is not None
    return orbits.walker(spec.altitude_km, np.radians(spec.inclination), spec.planes, spec.each, spec.phasing)


def _of_file(key: str, path: Path, error: ScenarioError) -> list[Problem]:
    """Problems of a file where the scenario names it, with the file's lines."""
    return [Problem(f"{_PLACE}.{key}", ", ".join(part for part in (
        path.name, f"line {one.line}" if one.line else "", one.place, one.found) if part), one.expected)
        for one in error.problems]


def read_stations(path: Path) -> list[Station]:
    """The stations of a CSV file. Raises ScenarioError with every line that is wrong."""
    found = tables.read(path, ("name", "latitude", "longitude"))
    names = found.column("name", _name)
    places = [found.column(column, partial(_degrees, most=most))
              for column, most in (("latitude", 90.0), ("longitude", 180.0))]
    found.unique("name")
    found.check()
    return [Station(name, latitude, longitude) for name, latitude, longitude in zip(names, *places, strict=True)
            if name is not None and latitude is not None and longitude is not None]


def _name(text: str) -> str:
    if not text or "->" in text or not text.isprintable():
        raise ValueError('expected a name without "->", which rules use')
    return text


def _degrees(text: str, most: float) -> float:
    hemisphere = text[-1:].upper() if text[-1:].upper() in ("NS" if most == 90 else "EW") else ""
    found = float(tables.finite(text[:-1].rstrip("\u00b0 ") if hemisphere else text))
    if (hemisphere and found < 0) or abs(found) > most:
        raise ValueError(f"expected degrees, -{most:g}..{most:g}")
    return -found if hemisphere in ("S", "W") else found


def joined(spec: ConstellationSpec) -> list[tuple[int, int]]:
    """The pairs of satellites that `isl` joins, each once, ascending. Between the last plane and the first the pattern
    is shifted by its phasing, so that every satellite has its like there, too."""
    found: set[tuple[int, int]] = set()
    for p in range(spec.planes if spec.isl != "none" else 0):
        for s in range(spec.each):
            others = [p * spec.each + (s + 1) % spec.each]
            if spec.isl == "grid" and spec.planes > 1:
                last = p + 1 == spec.planes
                others.append((p + 1) % spec.planes * spec.each + (s + spec.phasing * last) % spec.each)
            me = p * spec.each + s
            found |= {(min(me, other), max(me, other)) for other in others if other != me}
    return sorted(found)


# --- spans ------------------------------------------------------------------------------------------------------------

def _to_stations(motion: Motion, stations: Sequence[Station], talking: IntArray, elevation: float, until_s: float,
                 ) -> tuple[IntArray, Spans]:
    """((satellite, vertex) of pairs that ever see each other, their spans, by numbers of these pairs)."""
    units = _units(stations)
    angle, m = float(np.radians(elevation)), len(stations)
    times = orbits.sample_times(until_s)

    def sampled() -> Iterator[tuple[IntArray, FloatArray]]:
        for i in talking.tolist():
            places = motion.places(np.full(len(times), i), times)
            yield np.arange(i * m, (i + 1) * m), orbits.above(places[None], units[:, None], angle)

    def clearance(pair: IntArray, t_s: FloatArray) -> FloatArray:
        return orbits.above(motion.places(pair // m, t_s), units[pair % m], angle)

    return _only_used(orbits.spans(clearance, sampled(), until_s),
                      lambda pair: np.stack([pair // m, motion.count + pair % m], axis=-1))


def _to_satellites(motion: Motion, wanted: Sequence[tuple[int, int]], until_s: float) -> tuple[IntArray, Spans]:
    """As `_to_stations`, of links between satellites."""
    ends = np.array(wanted, np.int64).reshape(-1, 2)
    times = orbits.sample_times(until_s)
    portion = max(1, _PORTION // len(times))

    def sampled() -> Iterator[tuple[IntArray, FloatArray]]:
        for begin in range(0, len(ends), portion):
            pairs = np.arange(begin, min(begin + portion, len(ends)))
            flat = clearance(np.repeat(pairs, len(times)), np.tile(times, len(pairs)))
            yield pairs, flat.reshape(len(pairs), len(times))

    def clearance(pair: IntArray, t_s: FloatArray) -> FloatArray:
        return orbits.clear(motion.places(ends[pair, 0], t_s), motion.places(ends[pair, 1], t_s))

    return _only_used(orbits.spans(clearance, sampled(), until_s), lambda pair: ends[pair])


def _only_used(found: Spans, ends: Callable[[IntArray], IntArray]) -> tuple[IntArray, Spans]:
    used, number = np.unique(found.pair, return_inverse=True)
    return ends(used), Spans(number.astype(np.int64), found.begin_s, found.end_s)


# --- contacts ---------------------------------------------------------------------------------------------------------

def plan(spec: ConstellationSpec, step_ns: int = STEP_NS) -> dict[tuple[str, str], Contacts]:
    """(source, destination) -> the contacts, of every link that the sky opens. Both directions share their arrays.

    step_ns: a row is so long at most, but that rows of two satellites go on while the latency stays within 0.1 ms. The
    latency is that in the middle of a row. Rates are 1 bit/s: those of links are not known here. Raises as
    `constellation`.
    """
    return _planned(spec, spec.sha256, _stamps(spec), step_ns)


@lru_cache(maxsize=2)
def _planned(spec: ConstellationSpec, sha256: str | None, stamps: tuple[tuple[int, int] | None, ...], step_ns: int,
             ) -> dict[tuple[str, str], Contacts]:
    made = constellation(spec)
    begins, ends, pair = _rows(made, step_ns)
    latencies = 1000 * _latency_us(made, pair, begins, ends)
    first = np.searchsorted(pair, np.arange(len(made.pairs) + 1))
    found: dict[tuple[str, str], Contacts] = {}
    for number, (a, b) in enumerate(made.pairs.tolist()):
        here = slice(int(first[number]), int(first[number + 1]))
        if here.start == here.stop:         # a glimpse of less than 2 ms
            continue
        columns = [array("q", column[here].tobytes()) for column in (begins, ends, latencies)]
        contacts = Contacts(columns[0], columns[1], array("q", [1]) * len(columns[0]), columns[2])
        for source, destination in ((a, b), (b, a)):
            found[made.vertices[source].name, made.vertices[destination].name] = contacts
    return found


def _rows(made: Constellation, step_ns: int) -> tuple[IntArray, IntArray, IntArray]:
    """(begins, ends, pair) of rows, ns; by pair, then by time."""
    begin = np.ceil(made.spans.begin_s * 1000).astype(np.int64) * _MS
    end = np.floor(made.spans.end_s * 1000).astype(np.int64) * _MS
    some = end > begin
    begin, end, pair = begin[some], end[some], made.spans.pair[some]
    steps = -((begin - end) // step_ns)
    span = np.repeat(np.arange(len(steps)), steps)
    begins = begin[span] + (np.arange(len(span)) - np.repeat(np.cumsum(steps) - steps, steps)) * step_ns
    ends = np.minimum(begins + step_ns, end[span])
    pair = pair[span]
    level = _latency_us(made, pair, begins, ends) // _SAME_US
    other_span = np.diff(span, prepend=-1) != 0
    stands = other_span | (np.diff(level, prepend=-1) != 0) | (made.pairs[pair, 1] >= made.motion.count)
    last = np.flatnonzero(np.append(stands[1:], True))
    return begins[stands], ends[last], pair[stands]


def _latency_us(made: Constellation, pair: IntArray, begins: IntArray, ends: IntArray) -> IntArray:
    """In the middle of rows, whole microseconds."""
    units = _units(made.stations)
    found = np.empty(len(pair), np.int64)
    for begin in range(0, len(pair), _PORTION):
        here = slice(begin, begin + _PORTION)
        middle = (begins[here] + ends[here]) / (2 * _S)
        a, b = made.pairs[pair[here], 0], made.pairs[pair[here], 1]
        places, low = made.motion.places(a, middle), b >= made.motion.count
        others = np.empty_like(places)
        others[~low] = made.motion.places(b[~low], middle[~low])
        others[low] = orbits.RADIUS_KM * units[b[low] - made.motion.count]
        found[here] = np.rint(np.linalg.norm(places - others, axis=-1) / orbits.LIGHT_KM_S * 1e6)
    return found


def _units(stations: Sequence[Station]) -> FloatArray:
    return orbits.ground(np.radians([one.latitude for one in stations]),
                         np.radians([one.longitude for one in stations]))


# --- topology ---------------------------------------------------------------------------------------------------------

def graph_of(spec: ConstellationSpec) -> tuple[nx.Graph, Positions]:
    """The graph: vertices with `label` and `kind`, edges with the median of their latencies; and where the vertices are
    at the beginning. Raises as `constellation`."""
    import networkx as nx

    made = constellation(spec)
    graph = nx.Graph()
    for v, one in enumerate(made.vertices):
        graph.add_node(v, label=one.name, **{KIND: one.kind, **({} if one.plane is None else {PLANE: one.plane})})
    number = {one.name: v for v, one in enumerate(made.vertices)}
    for (source, destination), contacts in plan(spec).items():
        if number[source] < number[destination]:
            graph.add_edge(number[source], number[destination], latency_ns=contacts.typical_ns)
    for (u, v), latency in made.ground_ns.items():
        graph.add_edge(u, v, latency_ns=latency)
    # the places on the ground below satellites at the beginning, in degrees
    x, y, z = made.motion.places(np.arange(made.motion.count), np.zeros(made.motion.count)).T
    latitude, longitude = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
    below = zip(latitude.tolist(), longitude.tolist(), strict=True)
    return graph, Positions(tuple([*below, *((one.latitude, one.longitude) for one in made.stations)]))
