"""The positions of vertices, how far apart, and the latency that follows: light in fibre takes 5 us a km.

Positions are degrees on the globe (Topology Zoo, SNDlib) or kilometres in a plane (generators).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from emul.base.errors import Problem
from emul.base.plain import is_number

if TYPE_CHECKING:
    import networkx as nx

EARTH_KM = 6371.0088                    # mean radius, IUGG
PLACE_ATTRIBUTES = (("Latitude", "Longitude"), ("latitude", "longitude"), ("lat", "lon"), ("lat", "lng"))
LENGTH_ATTRIBUTES = ("dist", "distance", "length", "dist_km", "distance_km", "length_km")     # in km

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Distance:
    """Latency of a link from its length: `per_km_ns` a km, the length times `stretch`, never below `least_ns`.

    5 us a km is 2e5 km/s, light in fibre. stretch: a fibre's way over the straight one. least_ns: for links within
    one place, whose length is 0.
    """

    per_km_ns: int = 5_000
    stretch: float = 1.0
    least_ns: int = 10_000

    def latency_ns(self, km: float) -> int:
        """Of a link of this many km, ns; `least_ns` at least."""
        return max(self.least_ns, round(km * self.stretch * self.per_km_ns))


@dataclass(frozen=True, slots=True)
class Positions:
    """One point a vertex, None where nobody knows: (latitude, longitude) in degrees, or (x, y) in km if `plane`."""

    points: tuple[Point | None, ...]
    plane: bool = False

    def km(self, u: int, v: int) -> float | None:
        """The distance of two vertices; None if one's place is not known."""
        a, b = self.points[u], self.points[v]
        if a is None or b is None:
            return None
        return math.dist(a, b) if self.plane else great_circle_km(a, b)


def great_circle_km(a: Point, b: Point) -> float:
    """Kilometres on the globe between two (latitude, longitude) in degrees, by the haversine formula.

    >>> round(great_circle_km((0, 0), (0, 180)))        # half the equator
    20015
    """
    (lat1, lon1), (lat2, lon2) = (tuple(map(math.radians, point)) for point in (a, b))
    half = math.sin((lat2 - lat1) / 2) ** 2 + math.cos(lat1) * math.cos(lat2) * math.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_KM * math.asin(math.sqrt(min(1.0, half)))


_LENGTH = re.compile(r"(\d{1,9}(?:\.\d{1,9})?) ?(km|m)", re.ASCII)


def length_km(value: object) -> float:
    """Kilometres in a length. Raises ValueError.

    >>> length_km("1000 km"), length_km("250 m")
    (1000.0, 0.25)
    """
    match = _LENGTH.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or float(match[1]) == 0:
        raise ValueError("expected a length above 0, such as 1000 km")
    return float(match[1]) / (1 if match[2] == "km" else 1000)


def format_length(km: float) -> str:
    """A length that `length_km` reads back."""
    return f"{km:.9f}".rstrip("0").rstrip(".") + " km"


def positions(graph: nx.Graph, names: Sequence[str]) -> tuple[Positions, list[Problem]]:
    """The places of a graph's vertices by their attributes, and what is wrong with those.

    A vertex without coordinates (Topology Zoo has junctions of links) takes the mean of its neighbours'.
    """
    points: dict[object, Point | None] = {}
    problems: list[Problem] = []
    for (key, data), name in zip(graph.nodes(data=True), names, strict=True):
        try:
            points[key] = _point(data)
        except ValueError as error:
            points[key] = None
            problems.append(Problem(f"vertex {name}", str(error), "expected degrees, -90..90 and -180..180"))
    _fill(graph, points)
    return Positions(tuple(points.values())), problems


def _point(data: Mapping[str, object]) -> Point | None:
    for lat, lon in PLACE_ATTRIBUTES:
        if lat in data and lon in data:
            return _degrees(data[lat], data[lon])
    pos = data.get("pos")                           # TopoHub: [longitude, latitude]
    if isinstance(pos, list | tuple) and len(pos) == 2:
        try:
            return _degrees(pos[1], pos[0])
        except ValueError:                          # its random graphs have points of a plane there, and lengths
            return None
    return None


def _degrees(lat: Any, lon: Any) -> Point:
    for value, most in ((lat, 90), (lon, 180)):
        if not is_number(value) or not abs(value) <= most:     # refuses NaN
            raise ValueError(f"{str(lat)[:20]}, {str(lon)[:20]}")
    return float(lat), float(lon)


def _fill(graph: nx.Graph, points: dict[object, Point | None]) -> None:
    around = graph.to_undirected(as_view=True)
    missing = [key for key, point in points.items() if point is None]
    while missing:
        found: dict[object, Point] = {}
        for key in missing:
            near = [point for other in around[key] if (point := points[other]) is not None]
            if near:
                found[key] = (sum(p[0] for p in near) / len(near), sum(p[1] for p in near) / len(near))
        if not found:
            return
        points.update(found)
        missing = [key for key in missing if key not in found]
