"""The meaning of a graph's attributes: emul's own names, and those of other tools with their units.

A name has one meaning, whatever file it stands in: `delay_us` is microseconds (Celestial), `bw` is Mbit/s (Mininet),
`datarate` bit/s (OMNeT++), `packet_loss` a fraction (Shadow). A name that tools use in different units, such as a bare
`delay`, needs its unit written, or a *dialect*, which says whose file it is. emul's own bare numbers for latency and
bandwidth are refused, since nobody can tell what was meant. Attributes that nothing uses are counted, to be told.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from emul.base import units
from emul.base.errors import Problem
from emul.base.plain import PlainMapping
from emul.network.graph.geo import LENGTH_ATTRIBUTES, PLACE_ATTRIBUTES
from emul.network.graph.reading import LINE, OF_READERS
from emul.network.graph.topology import Capacity, unknown
from emul.network.models.latency import JitterSpec
from emul.network.models.outages import SPECS, AnyOutage, OutageSpec, OutageUnit
from emul.network.rules import parameter_problems

Parse = Callable[[Any], Any]

_PLAIN = re.compile(r"[+-]?\d{1,20}(\.\d{0,20})?([eE][+-]?\d{1,2})?", re.ASCII)
SPEED = "LinkSpeedRaw"              # bit/s, of the Topology Zoo; counts where nothing else is said


def _number(value: object) -> Fraction | None:
    """A plain number, also as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = float(value) if _PLAIN.fullmatch(value) else None
    return Fraction(value) if isinstance(value, int | float) and abs(value) < 1e30 else None


def _whole(value: Fraction, expected: str) -> int:
    if value < 0 or value > units.LARGEST:
        raise ValueError(f"expected {expected}, not negative and below 2^63")
    return round(value)


def _latency(unit_ns: int | None = None) -> Parse:
    """A duration as text, or a plain number of `unit_ns`."""
    def parse(value: Any) -> int:
        number = _number(value)
        if unit_ns is None or number is None:
            return units.duration_ns(value, rounded=True)       # the file of a measurement
        return _whole(number * unit_ns, "a duration")
    return parse


def _bandwidth(unit_bps: int | None = None, zero_is_infinite: bool = False) -> Parse:
    def parse(value: Any) -> int | None:
        number = _number(value)
        if number == 0:
            if zero_is_infinite:
                return None
            raise ValueError("expected a bandwidth above 0")
        if unit_bps is None or number is None:
            return units.bandwidth_bps(value, rounded=True)
        return _whole(number * unit_bps, "a bandwidth")
    return parse


def _loss(per: OutageUnit = "message", percent: bool = False) -> Parse:
    """A probability, or an outage as it is. Other tools lose packets."""
    def parse(value: Any) -> AnyOutage:
        if isinstance(value, SPECS):
            return value
        number = _number(value)
        p = float(number / 100 if percent else number) if number is not None else value
        return OutageSpec(units.probability(p), per)
    return parse


@dataclass(frozen=True, slots=True)
class Meaning:
    """The field of LinkParameters that an attribute gives, and how its value is read."""

    field: str
    parse: Parse


def _as_it_is(value: object) -> object:
    return value.item() if hasattr(value, "item") else value        # a NumPy scalar as a Python number


def _whole_ns(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value     # GraphML may declare a double


_US, _MS, _S = 10**3, 10**6, 10**9
_KBIT, _MBIT, _GBYTE = 10**3, 10**6, 8 * 10**9

EDGE: dict[str, Meaning] = {
    "latency": Meaning("latency_ns", _latency()),
    "latency_ns": Meaning("latency_ns", _whole_ns),
    "latency_us": Meaning("latency_ns", _latency(_US)),
    "latency_ms": Meaning("latency_ns", _latency(_MS)),             # Rocketfuel
    "delay": Meaning("latency_ns", _latency()),                     # Mininet, OMNeT++: "5ms"
    "Delay": Meaning("latency_ns", _latency()),                     # ns-3: "2ms"
    "delay_us": Meaning("latency_ns", _latency(_US)),               # Celestial
    "delay_ms": Meaning("latency_ns", _latency(_MS)),
    "bandwidth": Meaning("bandwidth_bps", _bandwidth()),
    "capacity": Meaning("bandwidth_bps", _bandwidth()),
    "rate": Meaning("bandwidth_bps", _bandwidth()),
    "bandwidth_bps": Meaning("bandwidth_bps", _as_it_is),
    "bandwidth_kbits": Meaning("bandwidth_bps", _bandwidth(_KBIT)),     # Celestial
    "bandwidth_mbits": Meaning("bandwidth_bps", _bandwidth(_MBIT)),
    "bw": Meaning("bandwidth_bps", _bandwidth(_MBIT)),                  # Mininet
    "datarate": Meaning("bandwidth_bps", _bandwidth(1, zero_is_infinite=True)),      # OMNeT++
    "DataRate": Meaning("bandwidth_bps", _bandwidth(1)),                # ns-3: "5Mbps"
    "outage": Meaning("outage", _loss()),
    "loss": Meaning("outage", _loss()),
    "packet_loss": Meaning("outage", _loss("packet")),              # Shadow
    "drop": Meaning("outage", _loss("packet")),                     # Kollaps
    "per": Meaning("outage", _loss("packet")),                      # OMNeT++
    "jitter": Meaning("jitter_ns", _latency()),
    "jitter_us": Meaning("jitter_ns", _latency(_US)),
    "jitter_ms": Meaning("jitter_ns", _latency(_MS)),
}

_DIALECTS: dict[str, dict[str, Meaning]] = {
    "shadow": {"latency": EDGE["latency"], "packet_loss": EDGE["packet_loss"]},
    "mininet": {"loss": Meaning("outage", _loss("packet", percent=True))},
    "core": {"bandwidth": Meaning("bandwidth_bps", _bandwidth(1, zero_is_infinite=True)),
             "delay": Meaning("latency_ns", _latency(_US)), "jitter": Meaning("jitter_ns", _latency(_US)),
             "loss": Meaning("outage", _loss("packet", percent=True))},
    "kollaps": {"latency": Meaning("latency_ns", _latency(_MS)), "jitter": Meaning("jitter_ns", _latency(_MS)),
                "upload": Meaning("bandwidth_bps", _bandwidth()), "download": Meaning("bandwidth_bps", _bandwidth())},
    "omnet": {"delay": Meaning("latency_ns", _latency(_S))},
    "ns3": {},
    "simgrid": {"bandwidth": Meaning("bandwidth_bps", _bandwidth(8)), "latency": Meaning("latency_ns", _latency(_S))},
    "celestial": {},
    "toxiproxy": {"latency": Meaning("latency_ns", _latency(_MS)), "jitter": Meaning("jitter_ns", _latency(_MS)),
                  "rate": Meaning("bandwidth_bps", _bandwidth(8_000))},
    "astrasim": {"bandwidth": Meaning("bandwidth_bps", _bandwidth(_GBYTE)),
                 "latency": Meaning("latency_ns", _latency(1))},
}

_VERTEX_RATES = {       # what it limits: links of the vertex, or the traffic of each host there (Shadow)
    "bandwidth_up": ("up", _bandwidth()), "bandwidth_down": ("down", _bandwidth()),
    "host_bandwidth_up": ("host_up", _bandwidth()), "host_bandwidth_down": ("host_down", _bandwidth())}
_VERTEX_NAMES = ("label", "name")

# keys for people: nobody expects that a network acts on them
DESCRIPTIVE = frozenset((
    "id", "key", "label", "name", "type", "Country", "country", "Internal", "hyperedge", "LinkLabel", "LinkType",
    "LinkNote", "LinkSpeed", "LinkSpeedUnits", SPEED, "geocode_append", "geocode_country", "geocode_id", "description",
    "graphics", "x", "y", "pos", "weight", "ecmp_fwd", "ecmp_bwd", *LENGTH_ATTRIBUTES,
    *(name for pair in PLACE_ATTRIBUTES for name in pair)))


class Attributes:
    """Reads the attributes of one graph; `unused` counts those of edges and vertices that gave nothing."""

    def __init__(self, dialect: str | None = None, capacity: Capacity | None = None, used: Iterable[str] = ()):
        """used: attributes that others read (places, lengths, roles). Raises KeyError for an unknown dialect."""
        self._meanings = EDGE | (_DIALECTS[dialect] if dialect else {})
        self._capacity = capacity or Capacity()
        self._used = {*used, *OF_READERS}
        self.unused: Counter[tuple[str, str]] = Counter()           # ("edges" or "vertices", name)

    def edge(self, data: Mapping[str, Any], place: str) -> tuple[dict[str, Any], list[Problem]]:
        """(fields of LinkParameters that an edge states, what is wrong)."""
        stated: dict[str, Any] = {}
        said: dict[str, str] = {}                                   # field -> the attribute that gave it
        problems: list[Problem] = []
        line = data.get(LINE)
        for name, value in data.items():
            meaning = self._meanings.get(name)
            if meaning is None:
                self._count("edges", name, used=(self._capacity.by, SPEED))
                continue
            field = meaning.field
            first = said.setdefault(field, name)
            try:
                parsed = meaning.parse(_as_it_is(value))
            except ValueError as error:
                problems.append(Problem(f"{place}, {name}", repr(value), str(error), line))
                continue
            if first != name and stated.get(field, parsed) != parsed:
                problems.append(Problem(f"{place}, {name}", repr(value), f"expected one of {first} and {name}", line))
            stated.setdefault(field, parsed)
        if "bandwidth_bps" not in said:
            problems += self._speed(data, stated, place)
        jitter = stated.pop("jitter_ns", None)
        if jitter and isinstance(stated.get("latency_ns"), int):        # as netem without a distribution
            stated["latency_ns"] = JitterSpec("uniform", stated["latency_ns"], jitter)
        elif jitter and "latency_ns" not in said:
            found = repr(data[said["jitter_ns"]])
            problems.append(Problem(f"{place}, {said['jitter_ns']}", found, "expected a latency, too", line))
        problems += [Problem(f"{place}, {name}", found, expected, line) for name, found, expected in parameter_problems(
            stated.get("latency_ns"), stated.get("bandwidth_bps"), stated.get("outage"))]
        return stated, problems

    def _speed(self, data: Mapping[str, Any], stated: dict[str, object], place: str) -> list[Problem]:
        """The bandwidth by the capacity rule: the attribute `by`, else the Zoo's; the default is given later."""
        by, unit = self._capacity.by, self._capacity.unit_bps
        if by is None or by not in data:
            by, unit = SPEED, 1
        if by not in data:
            return []
        try:
            stated["bandwidth_bps"] = _bandwidth(unit)(_as_it_is(data[by]))
        except ValueError as error:
            return [Problem(f"{place}, {by}", repr(data[by]), str(error), data.get(LINE))]
        return []

    def vertex(self, data: PlainMapping, place: str) -> tuple[dict[str, int], list[Problem]]:
        """({"up", "down", "host_up", "host_down": bit/s} as far as they are stated, what is wrong)."""
        rates: dict[str, int] = {}
        problems: list[Problem] = []
        for name, value in data.items():
            known = _VERTEX_RATES.get(name)
            if known is None:
                self._count("vertices", name, used=_VERTEX_NAMES)
                continue
            try:
                rates[known[0]] = known[1](_as_it_is(value))
            except ValueError as error:
                problems.append(Problem(f"{place}, {name}", repr(value), str(error)))
        return rates, problems

    def _count(self, kind: str, name: Any, used: Iterable[str | None]) -> None:
        if name not in self._used and name not in used:
            self.unused[kind, str(name)] += 1

    def no_such(self, found: Iterable[str]) -> list[Problem]:
        """A capacity rule whose attribute no edge has."""
        by, known = self._capacity.by, list(found)
        if by is None or by in known:
            return []
        return [Problem("topology.capacity.by", repr(by), unknown(by, known, "attribute of edges"))]
