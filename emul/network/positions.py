"""The positions of vertices over time, of a network that knows them: satellites and stations, or nodes that walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np

from emul.network.models.walks import Walk
from emul.network.network import Network

PositionRow: TypeAlias = tuple[float, str, float, float]       # s, vertex; x, y in m, or latitude, longitude in degrees

_EVERY_S = 30.0         # of a satellite, where it does not make too many rows: it passes 230 km of ground in that time
_ROWS = 60_000          # about; then satellites have fewer
_STRETCHES = 10_000     # of a walk


def on_globe(network: Network) -> bool:
    """True if the positions are latitudes and longitudes."""
    return network.planned.constellation is not None


def positions(network: Network, until_ns: int) -> Iterator[PositionRow]:
    """The positions up to a time, vertex by vertex, each in the order of time; nothing of a network without any.

    Between two rows a node walks straight on; a satellite does so nearly. A host on a satellite is where that is.
    """
    hosts = _hosts(network)
    for t_s, vertex, latitude, longitude in _in_orbit(network, until_ns / 1e9):
        for name in (vertex, *hosts.get(vertex, ())):
            yield t_s, name, latitude, longitude
    if network.radio is not None:
        places = {one.name: one for one in network.radio.model.spots}
        for name in network.names:
            walk = network.radio.walk(name)
            if walk is not None:
                yield from _walked(name, walk, until_ns)
            elif name in places:
                yield 0.0, name, places[name].x, places[name].y


def _hosts(network: Network) -> dict[str, list[str]]:
    """satellite or station -> the vertices that have a link to it alone."""
    found: dict[str, list[str]] = {}
    spec = network.planned.constellation
    if spec is None:
        return found
    from emul.network.graph.constellation import constellation  # few networks are one

    own = {one.name for one in constellation(spec).vertices}        # a station may see one satellite alone
    for v, name in enumerate(network.names):
        near = list(network.topology.neighbours(v))
        if len(near) == 1 and name not in own:
            found.setdefault(network.names[near[0]], []).append(network.names[v])
    return found


def _in_orbit(network: Network, until_s: float) -> Iterator[PositionRow]:
    spec = network.planned.constellation
    if spec is None:
        return
    from emul.network.graph.constellation import constellation  # few networks are one

    sky = constellation(spec)
    n = sky.motion.count
    times = np.linspace(0.0, until_s, max(2, min(int(until_s / _EVERY_S), _ROWS // n) + 1))
    for i in range(n):
        x, y, z = sky.motion.places(np.full(len(times), i), times).T
        latitude, longitude = np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
        for row in zip(times.tolist(), latitude.tolist(), longitude.tolist(), strict=True):
            yield row[0], sky.vertices[i].name, row[1], row[2]
    for station in sky.stations:
        yield 0.0, station.name, station.latitude, station.longitude


def _walked(name: str, walk: Walk, until_ns: int) -> Iterator[PositionRow]:
    for number in range(_STRETCHES):
        stretch = walk.stretch(number)
        if stretch is None or stretch.begin_ns > until_ns:
            return
        yield stretch.begin_ns / 1e9, name, stretch.x, stretch.y
        if stretch.end_ns > until_ns > stretch.begin_ns:
            yield until_ns / 1e9, name, *stretch.at(until_ns)
