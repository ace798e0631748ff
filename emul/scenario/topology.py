"""`topology` and `contacts`: where nodes are, the orbits that may say so, and when links transmit; models, the
specifications they stand for, and back to YAML."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, PlainValidator

from emul.base.plain import PlainDict
from emul.base.units import format_bandwidth
from emul.network import DIALECTS, GENERATORS, SHAPES, Access, Capacity, Distance, Measured, RoleRule, TopologySpec
from emul.network.graph.constellation import digest
from emul.network.graph.geo import format_length, length_km
from emul.network.models.constellations import DAY_NS, GROUNDS, ISLS, ConstellationSpec, Ground, Isl
from emul.network.models.contacts import GAPS, PLAN_FORMATS, ROUTINGS, ContactSpec, Gap, PlanFormat, Routing
from emul.scenario.sections import (
    Bandwidth,
    Count,
    Duration,
    Name,
    PositiveDuration,
    Probability,
    Section,
    Text,
    Written,
    absolute,
    duration_text,
    exactly_one,
    file_digest,
    given,
    number,
    one_of,
    whole,
    without_none,
)
from emul.scenario.wording import MISSING, Finding
from emul.scenario.wording import Path as Place

# ---- constellation ----

WALKER = ("altitude", "inclination", "planes", "each")      # needed without `tle`
MOST = 20_000                                               # satellites
_ANGLE = re.compile(r"([+-]?\d{1,3}(?:\.\d{1,9})?) ?deg", re.ASCII)
_LOW_KM, _HIGH_KM = 100, 50_000


def _degrees(most: float, whole_range: str) -> PlainValidator:
    """Degrees in 0 .. most."""
    def check(value: object) -> float:
        match = _ANGLE.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None or not 0 <= float(match[1]) <= most:
            unit = ": the unit is missing" if isinstance(value, int | float) and not isinstance(value, bool) else ""
            raise ValueError(f"expected an angle {whole_range}, such as 25 deg{unit}")
        return float(match[1])
    return PlainValidator(check, json_schema_input_type=Annotated[str, Field(pattern=r"^\s*[+-]?\d+(\.\d+)? ?deg\s*$")])


def _altitude(value: object) -> float:
    km = length_km(value)
    if not _LOW_KM <= km <= _HIGH_KM:
        raise ValueError(f"expected {_LOW_KM} km to {_HIGH_KM} km")
    return km


def _alone(value: object) -> object:
    return [value] if isinstance(value, str) else value


class ConstellationSection(Section):
    # [needed] The height of all satellites above the equator's radius, 100 km to 50000 km.
    altitude: Annotated[float, PlainValidator(_altitude, json_schema_input_type=str)] | None = None
    # [needed] The angle between the orbits and the equator, 0 deg to 180 deg.
    inclination: Annotated[float, _degrees(180, "from 0 deg to 180 deg")] | None = None
    # [needed] The number of orbital planes; their nodes are spread over the whole equator.
    planes: Annotated[int, whole(1, MOST)] | None = None
    # [needed] The number of satellites in each plane.
    each: Annotated[int, whole(1, MOST)] | None = None
    # [0] F of Walker's pattern i: T/P/F: a satellite is F * 360 / T degrees ahead of its like in the plane before.
    phasing: Annotated[int, whole(0, MOST)] | None = None
    # A file of two-line elements, or of orbit mean-elements messages (CSV or JSON, as CelesTrak has them), in place
    # of `altitude`, `inclination`, `planes`, `each` and `phasing`; needs `pip install 'emul[orbits]'`. Satellites
    # that share a name have their catalogue number behind it.
    tle: Text | None = None
    # A CSV file of stations with the columns `name`, `latitude`, `longitude` (or `lat`, `lon`), in degrees: `-3.7` or
    # `3.7W`.
    stations: Text
    # The least angle above the horizon at which a station and a satellite have a contact, 0 deg to 89 deg.
    elevation: Annotated[float, _degrees(89, "from 0 deg to 89 deg")]
    # The links between satellites. `ring`: with both neighbours in the plane. `grid`: also with the like in both
    # planes beside it.
    isl: Annotated[str, one_of(*ISLS, what="way to join satellites")] = "none"
    # `mesh`: stations are linked with each other at all times, with the latency of fibre along the great circle.
    ground: Annotated[str, one_of(*GROUNDS, what="way to join stations")] = "none"
    # [all] The satellites that have links to stations: a name, a pattern, or a list of them.
    gateways: Annotated[list[Text], Field(min_length=1), BeforeValidator(
        _alone, json_schema_input_type=list[str] | str)] | None = None
    # [24 h] The time from the beginning of the run in which contacts are computed; after it nothing is carried.
    for_: Annotated[PositiveDuration, Field(alias="for")] = DAY_NS
    # The digest of the files, which a resolved scenario has.
    sha256: Text | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its kind needs and has not, or has and does not use; more satellites or phases than there can
        be."""
        if self.tle is not None:
            found: list[Finding] = [((name,), "", "is not used with tle, which has the orbits")
                                    for name in given(self, *WALKER, "phasing")]
            if self.isl != "none":
                found.append((("isl",), self.isl, "expected none with tle, which says nothing of planes"))
            return found
        found = [((name,), MISSING, "is needed, or tle, a file of two-line elements")
                 for name in WALKER if getattr(self, name) is None]
        planes, each, phasing = self.planes or 1, self.each or 1, self.phasing or 0
        if planes * each > MOST:
            found.append((("each",), str(each), f"expected at most {MOST} satellites, not {planes * each}"))
        if self.planes is not None and phasing >= planes:
            found.append((("phasing",), str(phasing), f"expected less than the {planes} planes"))
        return found


def constellation_spec(c: ConstellationSection | None, base: Path) -> ConstellationSpec | None:
    """The constellation as the network takes it; its files are looked for in `base`."""
    if c is None:
        return None
    return ConstellationSpec(
        cast(Path, absolute(c.stations, base)), c.elevation, c.altitude, c.inclination, c.planes or 1, c.each or 1,
        c.phasing or 0, cast(Isl, c.isl), cast(Ground, c.ground), tuple(c.gateways or ()), absolute(c.tle, base),
            c.for_,
        c.sha256)


def constellation_document(spec: ConstellationSpec | None) -> PlainDict | None:
    """As a file says it, with the digest of its files; read again it is the same."""
    if spec is None:
        return None
    circles: PlainDict = {}
    if spec.altitude_km is not None and spec.inclination is not None:
        circles = {"altitude": format_length(spec.altitude_km), "inclination": f"{spec.inclination:.9g} deg",
                   "planes": spec.planes, "each": spec.each, "phasing": spec.phasing}
    try:
        sha256: str | None = digest(spec)
    except OSError:                     # that is told where the files are used
        sha256 = None
    return without_none(
        **circles, tle=None if spec.tle is None else str(spec.tle), stations=str(spec.stations),
        elevation=f"{spec.elevation:.9g} deg", isl=spec.isl, ground=spec.ground, gateways=list(spec.gateways) or None,
        **{"for": duration_text(spec.span_ns)}, sha256=sha256)


# ---- topology ----

ROLE_RULES = ("nodes", "attribute", "highest_betweenness", "leaves", "all", "random")
_COUNTS = ("clients", "servers", "peers")
_SIZES = ("nodes", *dict.fromkeys(name for names in SHAPES.values() for name in names))
_FILLED = ("latency", "capacity")               # for links of which a file or a shape says nothing


class AccessLink(Section):
    # Of the access link, each way.
    latency: Duration | None = None
    # Of the access link, each way.
    bandwidth: Bandwidth | None = None


class RoleSection(Section):
    # `nodes`: those named. `attribute`: those whose attribute has a value. `highest_betweenness`: those on most
    # shortest paths. `leaves`: those of degree 1. `all`: every vertex without a role. `random`: drawn from the seed.
    rule: Annotated[str, one_of(*ROLE_RULES, what="rule")]
    # The names, for `nodes`.
    nodes: Annotated[list[Name], Field(min_length=1)] | None = None
    # The number of vertices. `random` needs it; `highest_betweenness` takes 1 by default; `leaves` with a count takes
    # those of the least degree. With `access`, the number of hosts.
    count: Annotated[int, whole(1, 10**6)] | None = None
    # The vertices' attribute, for `attribute`.
    attribute: Text | None = None
    # Its value, for `attribute`; by default the name of the role.
    value: Name | None = None
    # Hosts of their own, each with one link to its place.
    access: AccessLink | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its rule needs and has not, or has and does not use."""
        uses: tuple[str, ...] = {
            "nodes": ("nodes",), "attribute": ("attribute", "value"), "leaves": ("count",), "random": ("count",),
            "highest_betweenness": ("count",), "all": ()}[self.rule]
        if self.access is not None:
            uses = (*uses, "count")
        needs = {"nodes": "nodes", "attribute": "attribute", "random": "count"}.get(self.rule)
        found: list[Finding] = [((name,), "", f'is not used by the rule "{self.rule}"'
                                 + (" without access" if name == "count" else ""))
                                for name in given(self, "nodes", "count", "attribute", "value") if name not in uses]
        if needs and getattr(self, needs) is None:
            found.append(((needs,), MISSING, f'is needed by the rule "{self.rule}"'))
        return found


def _names_as_rule(value: object) -> object:
    return {"rule": "nodes", "nodes": value} if isinstance(value, list) else value


class LatencyByDistance(Section):
    # [5 us] Of light in fibre, 2e5 km/s.
    per_km: PositiveDuration = 5_000
    # [1] The length of the fibre over that of the straight way.
    stretch: Annotated[float, number("a factor of 1 or more", lambda x: 1 <= x <= 1e6)] = 1.0
    # [10 us] The least latency, for links within one place.
    least: Duration = 10_000


class MeasuredFile(Section):
    # The file.
    file: Text
    # The unit of bare numbers.
    unit: Text | None = None
    # `round_trip` or `one_way`.
    values: Annotated[str, one_of("round_trip", "one_way", what="kind")] | None = None


def _file_alone(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


def _by_distance(value: object) -> object:
    if value == "distance":
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected distance or a mapping such as {per_km: 5 us}; a constant latency stands in links")
    return value


class CapacityRule(Section):
    # The bandwidth of links for which nothing else is said; `infinite` says so.
    default: Bandwidth | None = None
    # The attribute of edges that holds it.
    by: Text | None = None
    # The unit of its bare numbers, such as `1 Mbit/s`.
    unit: Bandwidth | None = None

    def wrong(self) -> list[Finding]:
        """Neither default nor attribute, or a unit for no attribute, or an infinite one."""
        if self.default is None and self.by is None:
            return [((), MISSING, "expected one of default, by")]
        if self.unit is not None and self.by is None:
            return [(("unit",), "", "is used only with by")]
        if self.unit == "infinite":
            return [(("unit",), '"infinite"', "expected a bandwidth such as 1 Mbit/s")]
        return []


def _capacity_default(value: object) -> object:
    return value if isinstance(value, dict) else {"default": value}


class TopologySection(Section):
    # The name of a generator.
    generator: Annotated[str, one_of(*GENERATORS, what="generator")] | None = None
    # The number of clients, for all generators but `complete` and `grid`.
    clients: Annotated[int, whole(1, 10**6)] | None = None
    # The number of servers, with `clients`; 1 by default.
    servers: Annotated[int, whole(1, 10**4)] | None = None
    # The number of peers, for `complete`; in place of `clients` also for the others but `grid` and the stars.
    peers: Annotated[int, whole(1, 10**6)] | None = None
    # The number of vertices; `roles` then give them their roles.
    nodes: Annotated[int, whole(1, 10**6)] | None = None
    # Of a `tree`: branches of every vertex.
    branching: Annotated[int, whole(1, 10**4)] | None = None
    # Of a `tree`: levels below the root, in place of a number of vertices; with `roles`.
    height: Annotated[int, whole(1, 20)] | None = None
    # Of a `grid`; with `roles`.
    rows: Annotated[int, whole(1, 10**4)] | None = None
    # Of a `grid`.
    columns: Annotated[int, whole(1, 10**4)] | None = None
    # Of `random_geometric`: vertices nearer than this are linked, as a share of the side of the square.
    radius: Annotated[float, number("a share of the side, above 0, at most 1.4", lambda x: 0 < x <= 1.4)] | None = None
    # Of `watts_strogatz`: an even number, the nearest on the ring.
    neighbours: Count | None = None
    # Of `watts_strogatz`: the probability that an edge leads elsewhere.
    rewire: Probability | None = None
    # Of `barabasi_albert`: edges of each new vertex.
    attach: Count | None = None
    # The side of the square in which a generated graph lies, such as `500 km`; 1000 km by default.
    extent: Annotated[float, PlainValidator(length_km, json_schema_input_type=str)] | None = None
    # A file in place of a generator.
    file: Text | None = None
    # A measured matrix in place of a generator.
    matrix: Annotated[MeasuredFile, BeforeValidator(
        _file_alone, json_schema_input_type=MeasuredFile | str)] | None = None
    # The rates between its sites.
    rates: Annotated[MeasuredFile, BeforeValidator(
        _file_alone, json_schema_input_type=MeasuredFile | str)] | None = None
    # Satellites and stations in place of a generator; with `roles`, and `capacity`.
    constellation: ConstellationSection | None = None
    # The tool whose attributes and units a file has: `shadow`, `mininet`, `core`, `kollaps`, `omnet`, `ns3`,
    # `simgrid`, `celestial`, `toxiproxy`, `astrasim`.
    dialect: Annotated[str, one_of(*DIALECTS, what="dialect")] | None = None
    # `mean`, `median` or `first`: the value of a pair that stands several times in one direction of a file or a
    # matrix. Without it that is an error.
    repeated: Annotated[str, one_of("mean", "median", "first", what="rule")] | None = None
    # `false`: no vertex passes on messages of others, so that a message takes the one link between two. `true` by
    # default, but for a matrix.
    forward: bool | None = None
    # The role of each vertex, for files and for generators without `clients` and `peers`.
    roles: dict[Text, Annotated[RoleSection, BeforeValidator(
        _names_as_rule, json_schema_input_type=RoleSection | list[str | int])]] | None = None
    # `distance`, or a mapping: latencies from lengths, for links that have none.
    latency: Annotated[LatencyByDistance, BeforeValidator(
        _by_distance, json_schema_input_type=LatencyByDistance | str)] | None = None
    # A bandwidth, or a mapping: for links that have none.
    capacity: Annotated[CapacityRule, BeforeValidator(
        _capacity_default, json_schema_input_type=CapacityRule | Written)] | None = None

    def wrong(self) -> list[Finding]:
        """Not one of generator, file, matrix and constellation; else keys that this kind of topology needs and has not,
        or does not use."""
        found = exactly_one(self, "generator", "file", "matrix", "constellation")
        if found:
            return found
        kind = f'the generator "{self.generator}"' if self.generator else (
            "a topology from a file" if self.file is not None else
            "a matrix" if self.matrix is not None else "a constellation")
        needs, uses = self._keys()
        whole_number = dict.fromkeys(_COUNTS, ": a whole number, 1 or more")
        found += [((name,), MISSING, f"is needed by {kind}{whole_number.get(name, '')}")
                  for name in needs if getattr(self, name) is None]
        others = given(self, *_COUNTS, *_SIZES, "extent", "dialect", "repeated", "rates", "roles", *_FILLED)
        return found + [((name,), "", f"is not used by {kind}") for name in others if name not in uses]

    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The keys that this kind of topology needs, and those that it can use."""
        if self.constellation is not None:
            return ("roles",), ("roles", "capacity")
        if self.matrix is not None:
            return (), ("rates", "repeated", "roles", "capacity")
        if self.generator is None:
            return (), ("dialect", "repeated", "roles", *_FILLED)
        if self.generator == "complete":
            return ("peers",), ("peers",)
        if self.generator in SHAPES:        # the generator knows those that fit together
            own = SHAPES[self.generator]
            return tuple(k for k in own if k != "height"), (*own, "nodes", *_COUNTS, "extent", "roles", *_FILLED)
        return ("clients",), ("clients", "servers")


def topology_spec(t: TopologySection, base: Path) -> TopologySpec:
    """The topology as the network takes it; a file is looked for in `base`."""
    roles = {role: RoleRule(rule=cast(Any, r.rule), nodes=tuple(r.nodes or ()), count=r.count, attribute=r.attribute,
                            value=r.value, access=None if r.access is None else
                            Access(r.access.latency, cast(Any, r.access.bandwidth)))
             for role, r in (t.roles or {}).items()}
    sizes = {name: getattr(t, name) for name in given(t, *_SIZES)}
    latency = None if t.latency is None else Distance(t.latency.per_km, t.latency.stretch, t.latency.least)
    capacity = None
    if t.capacity is not None:
        capacity = Capacity(cast(Any, t.capacity.default), t.capacity.by, cast(Any, t.capacity.unit))
    return TopologySpec(generator=t.generator, clients=t.clients, servers=t.servers or 1, peers=t.peers,
                        file=absolute(t.file, base), roles=roles, sizes=sizes, extent_km=t.extent, latency=latency,
                        capacity=capacity, dialect=t.dialect, constellation=constellation_spec(t.constellation, base),
                        forward=t.forward, repeated=cast(Any, t.repeated), matrix=_measured(t.matrix, base),
                        rates=_measured(t.rates, base))


def _measured(written: MeasuredFile | None, base: Path) -> Measured | None:
    return None if written is None else Measured(
        cast(Path, absolute(written.file, base)), written.unit, cast(Any, written.values))


def key_of_file(topology: TopologySpec, file: str) -> Place:
    """The key of the scenario that names that file of its topology."""
    if topology.matrix is not None:
        return "topology", "matrix" if file == str(topology.matrix.file) else "rates"
    return ("topology",) if topology.file is None else ("topology", "file")


def topology_document(spec: TopologySpec) -> dict[str, object]:
    """As a file says it, without what has no value."""
    servers = spec.servers if spec.clients is not None or spec.servers != 1 else None
    roles = {role: _role(rule) for role, rule in spec.roles.items()}
    return without_none(
        generator=spec.generator, file=None if spec.file is None else str(spec.file), dialect=spec.dialect,
        constellation=constellation_document(spec.constellation),
        matrix=_measured_document(spec.matrix), rates=_measured_document(spec.rates),
        repeated=spec.repeated, forward=spec.forward,
        clients=spec.clients, servers=servers, peers=spec.peers, **spec.sizes,
        extent=None if spec.extent_km is None else format_length(spec.extent_km), roles=roles or None,
        latency=None if spec.latency is None else {
            "per_km": duration_text(spec.latency.per_km_ns), "stretch": spec.latency.stretch,
            "least": duration_text(spec.latency.least_ns)},
        capacity=None if spec.capacity is None else without_none(
            default=_bandwidth(spec.capacity.default_bps), by=spec.capacity.by,
            unit=_bandwidth(spec.capacity.unit_bps)))


def _measured_document(spec: Measured | None) -> object:
    return None if spec is None else without_none(file=str(spec.file), unit=spec.unit, values=spec.values)


def _role(rule: RoleRule) -> dict[str, object]:
    access = rule.access
    return without_none(
        rule=rule.rule, nodes=list(rule.nodes) or None, count=rule.count, attribute=rule.attribute, value=rule.value,
        access=None if access is None else without_none(latency=duration_text(access.latency_ns),
                                                        bandwidth=_bandwidth(access.bandwidth_bps)))


def _bandwidth(bps: object) -> object:
    return format_bandwidth(bps) if isinstance(bps, int) else bps


# ---- contacts ----

def _one_of(words: tuple[str, ...], kind: object) -> PlainValidator:
    """One of a few words, of the type `kind`; whatever else is there, they are listed."""
    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return str(value)
    return PlainValidator(check, json_schema_input_type=kind)


class ContactsRule(Section):
    # [needed] The contact plan: a CSV file, or a file of another tool. A constellation makes the plan instead.
    file: Text | None = None
    # The format of the file: `csv` or `ion`.
    format: Annotated[str, _one_of(PLAN_FORMATS, PlanFormat)] = "csv"
    # [10 s] Of a constellation: the time for which a latency is constant. Latencies between satellites stay while
    # they change by less than 0.1 ms.
    step: PositiveDuration | None = None
    # The fate of a message that a contact cuts: with `hold` the rest of it goes on in the next contact, with `again`
    # it is sent again from its start there, with `drop` it is lost.
    gap: Annotated[str, _one_of(GAPS, Gap)] = "hold"
    # The choice of routes: `fixed` takes the shortest ones by the median latencies, whatever the time; `earliest`
    # chooses the next link at each vertex anew, by the plan.
    routes: Annotated[str, _one_of(ROUTINGS, Routing)] = "fixed"
    # The digest of the file, which a resolved scenario has.
    sha256: Text | None = None


def contacts_value(rule: ContactsRule | None, base: Path) -> ContactSpec | None:
    """The plan as the network takes it; its file is looked for in `base`."""
    if rule is None:
        return None
    return ContactSpec(absolute(rule.file, base), cast(Gap, rule.gap), rule.sha256, cast(Routing, rule.routes),
                       cast(PlanFormat, rule.format), step_ns=rule.step)


def contacts_document(spec: ContactSpec | None) -> PlainDict | None:
    """With the digest of the file; read again it is the same."""
    if spec is None:
        return None
    file = spec.file
    return without_none(file=None if file is None else str(file), format=None if spec.format == "csv" else spec.format,
                        step=duration_text(spec.step_ns), gap=spec.gap, routes=None if spec.routes == "fixed" else
                            spec.routes,
                        sha256=None if file is None else file_digest(file))
