"""Topologies: which vertices there are, what they are called, who plays which role, and what is linked.

Generated topologies (`star`, `star_mesh`, `complete`) never list their links, so a mesh of n clients costs O(n).
In them a vertex *is* a host and hosts forward nothing: a link is used by its two ends, and only where there is none
does the traffic of clients go through a server. In a graph, a file or another generator (`emul.network.graph.graphs`) a
vertex is a place, with or without a host, and every place forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from emul.base.errors import NetworkError, Problem, ScenarioError
from emul.base.names import listed
from emul.base.plain import is_count
from emul.network.models.constellations import ConstellationSpec
from emul.network.rules import LinkParameters

if TYPE_CHECKING:
    import networkx as nx

    from emul.network.graph.geo import Distance

STARS = ("star", "star_mesh", "complete")           # hosts that forward nothing; here
SHAPES: dict[str, tuple[str, ...]] = {              # graphs whose vertices forward (module `generators`) -> sizes
    "ring": (), "tree": ("branching", "height"), "grid": ("rows", "columns"), "random_geometric": ("radius",),
    "watts_strogatz": ("neighbours", "rewire"), "barabasi_albert": ("attach",)}
GENERATORS = (*STARS, *SHAPES)
DIALECTS = ("shadow", "mininet", "core", "kollaps", "omnet", "ns3", "simgrid", "celestial", "toxiproxy", "astrasim")
_LISTED = 12        # names listed where none is near
_SHOWN = 10         # problems of one kind shown before "and n more"


class TopologyError(NetworkError):
    """The mistakes in one topology: `file` names it, `problems` say where."""

    def __init__(self, file: str, problems: list[Problem]):
        self.file = file
        self.problems = problems
        super().__init__(str(ScenarioError(file, problems)))


@dataclass(frozen=True, slots=True)
class Access:
    """The link between a host and its place, each way; None: nobody says it here."""

    latency_ns: int | None = None
    bandwidth_bps: int | float | Literal["infinite"] | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """The bandwidth of links for which the file states none.

    by: attribute of edges that holds it, text with a unit or numbers of `unit_bps`; default_bps: of all others.
    """

    default_bps: int | float | Literal["infinite"] | None = None
    by: str | None = None
    unit_bps: int | None = None


@dataclass(frozen=True, slots=True)
class RoleRule:
    """A rule that chooses the vertices of a file or graph that play a role. Vertices named by "nodes" and "attribute"
    are taken first.

    With `access` the rule chooses places, and the nodes are `count` hosts of their own (None: one a place), attached
    to the places in turn by access links; a place may have any number of them, and a node of its own.

    nodes: those named, in the order given.
    attribute: those whose vertex attribute `attribute` is `value` (None: the name of the role).
    highest_betweenness: the `count` (None: 1) vertices on most shortest paths by hops; ties go to the lower id.
    leaves: the vertices of degree 1; with `count`, that many vertices, those of the least degree first.
    all, random: every vertex without a role; `count` of them, drawn from the seed.
    """

    rule: Literal["nodes", "attribute", "highest_betweenness", "leaves", "all", "random"]
    nodes: tuple[str, ...] = ()
    count: int | None = None
    attribute: str | None = None
    value: Any = None
    access: Access | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """A file of what was measured between sites. unit: of bare numbers; values: what latencies are. None: as the file
    says, else round trips in ms, and rates in Mbit/s."""

    file: Path
    unit: str | None = None
    values: Literal["round_trip", "one_way"] | None = None


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """Exactly one of `generator`, `file` (GraphML, GML, JSON, edge list, table), `matrix`, `graph` (networkx) and
    `constellation`, with what it needs.

    generator: "star" or "star_mesh" with `clients` and `servers`, "complete" with `peers`; the SHAPES with their
        `sizes` ({"rows": 3, ...}) and either `roles` or `clients` and `servers` or `peers`. `extent_km`: the side of
        the square in which a shape lies.
    matrix, rates: latencies and rates between any two sites, from end to end (`emul.network.graph.matrix`).
    roles: for `file`, `matrix`, `graph` and shapes; empty means the vertices' own attribute "role", and of a matrix
        that all sites are peers.
    latency, capacity: rules for links for which the file states none, see `Distance` and `Capacity`.
    forward: false, and no vertex passes on messages of others, so that they take the one link between two. None:
        true, but for a matrix.
    repeated: what counts of several rows of one pair and direction: "mean", "median" or "first"; None: an error.
    dialect: the tool whose attributes and units a file uses, see `emul.network.graph.attributes`.
    line: of the topology in its scenario, for error messages.
    """

    generator: str | None = None
    clients: int | None = None
    servers: int = 1
    peers: int | None = None
    file: str | Path | None = None
    graph: nx.Graph | None = None
    roles: Mapping[str, RoleRule] = field(default_factory=dict)
    line: int | None = None
    sizes: Mapping[str, int | float] = field(default_factory=dict)
    extent_km: float | None = None
    latency: Distance | None = None
    capacity: Capacity | None = None
    dialect: str | None = None
    constellation: ConstellationSpec | None = None
    forward: bool | None = None
    repeated: Literal["mean", "median", "first"] | None = None
    matrix: Measured | None = None
    rates: Measured | None = None

    @property
    def forwards(self) -> bool:
        """True if hosts pass on what is not for them: by default those of a measured matrix do not."""
        return self.matrix is None if self.forward is None else self.forward

    @property
    def where(self) -> str:
        """The file that says what is linked; "topology" where there is none."""
        file = self.file if self.matrix is None else self.matrix.file
        return "topology" if file is None else str(file)


class Topology(Protocol):
    """A topology, as a network needs it. Vertices are 0 .. len(names) - 1."""

    names: list[str]
    roles: dict[str, list[int]]
    where: str                                  # its file, for messages; else "topology" or "graph"
    unused: Mapping[tuple[str, str], int]       # ("edges" or "vertices", attribute) -> how many have it for nothing
    varies: bool                                # true if some stated latency is drawn for each message
    forward: bool                               # false: a vertex passes on only what its own hosts send or get
    place_of: Mapping[int, int]                 # host on an access link -> the vertex that it is attached to

    def linked(self, u: int, v: int) -> bool:
        """True if there is a link u -> v."""
        ...

    def neighbours(self, u: int) -> Iterable[int]:
        """The vertices that u has a link to, ascending."""
        ...

    def given(self, u: int, v: int) -> LinkParameters:
        """The parameters of the link u -> v before the rules."""
        ...

    def neighbour_groups(self, u: int, masks: list[int]) -> Iterable[tuple[int, LinkParameters]]:
        """(mask, given) of the links of u, each pair at least once: all that the rules can tell apart."""
        ...

    def any_link(self, sources: frozenset[int], destinations: frozenset[int]) -> bool:
        """True if a link leads from one of `sources` to one of `destinations`."""
        ...

    def problems(self, parameters: Any, mentioned: Mentioned) -> list[Problem]:
        """Links without what they need once the rules are applied; `parameters(u, v)` gives a link's."""
        ...

    def warnings(self, mentioned: Mentioned) -> list[str]:
        """Warnings: it works, and is probably not what was meant."""
        ...


Mentioned = Callable[[int, int, str], bool]         # does a rule that matches the link u -> v set this field?
_GENERATED = LinkParameters(latency_ns=0)


class Generated:
    """`hubs` vertices linked with every vertex, and the others linked with each other only if `mesh`."""

    def __init__(self, names: list[str], roles: dict[str, list[int]], hubs: int, mesh: bool, forward: bool = True):
        self.names = names
        self.roles = roles
        self.forward = forward
        self.where = "topology"
        self.place_of: Mapping[int, int] = {}
        self.hubs = hubs
        self.mesh = mesh
        self.unused: Mapping[tuple[str, str], int] = {}
        self.varies = False
        self._groups: tuple[dict[int, int], dict[int, int]] | None = None

    def linked(self, u: int, v: int) -> bool:
        """True if one end is a hub, or any two are linked; never a vertex with itself."""
        return u != v and (self.mesh or u < self.hubs or v < self.hubs)

    def is_hub(self, v: int) -> bool:
        """Hubs are the vertices below `hubs`."""
        return v < self.hubs

    def neighbours(self, u: int) -> Iterator[int]:
        """Ascending and one by one: all of a mesh would be too many to list."""
        return (v for v in range(self._reach(u)) if v != u)

    def _reach(self, u: int) -> int:
        """u's links lead to the vertices below this, itself excepted."""
        return len(self.names) if self.mesh or u < self.hubs else self.hubs

    def given(self, u: int, v: int) -> LinkParameters:
        """A latency of 0 and nothing else, for any link."""
        return _GENERATED

    def neighbour_groups(self, u: int, masks: list[int]) -> Iterator[tuple[int, LinkParameters]]:
        """As a topology says. Masks are counted once for all vertices, so `masks` has to be the same in all calls."""
        if self._groups is None:
            self._groups = _count(masks[:self.hubs]), _count(masks)
        everybody = self._reach(u) == len(self.names)
        for mask, count in self._groups[everybody].items():
            if count > (masks[u] == mask and u < self._reach(u)):       # somebody besides u
                yield mask, _GENERATED

    def any_link(self, sources: frozenset[int], destinations: frozenset[int]) -> bool:
        """As a topology says, by sets and hubs instead of links."""
        if self.mesh:
            return _two(sources, destinations)
        return (_two(frozenset(u for u in sources if u < self.hubs), destinations)
                or _two(sources, frozenset(v for v in destinations if v < self.hubs)))

    def problems(self, parameters: Any, mentioned: Mentioned) -> list[Problem]:
        """None: its links have a latency."""
        return []

    def warnings(self, mentioned: Mentioned) -> list[str]:
        return []

    def route(self, u: int, v: int, latency_ns: Any) -> tuple[int, ...] | None:
        """The link, or through the hub of the least latency (ties: the lowest id); None: no hub forwards. No search."""
        # Real clients forward nothing, so two clients of a star talk through the server, even if a faster way leads
        # through a third client. That also saves the search: a mesh of 2,000 clients has four million links
        # (`test_hosts_of_a_mesh_forward_nothing_even_where_a_detour_were_faster`).
        if u == v:
            return (u,)
        if self.linked(u, v):
            return u, v
        if not self.forward:
            return None
        hub = min(range(self.hubs), key=lambda h: (latency_ns(u, h) + latency_ns(h, v), h))
        return u, hub, v


def _two(sources: frozenset[int], destinations: frozenset[int]) -> bool:
    """True if there are u in sources and v in destinations with u != v."""
    return bool(sources and destinations) and (len(sources) > 1 or sources != destinations)


def _count(masks: list[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for mask in masks:
        counts[mask] = counts.get(mask, 0) + 1
    return counts


def generated(spec: TopologySpec) -> Generated:
    """The topology that `spec.generator` names. Raises NetworkError with all that is wrong.

    star: every client linked with every server, servers with each other. star_mesh: clients with each other, too.
    complete: peers, all linked. One server is "server", several are "server1" ..; "client1" .., "peer1" .. .
    """
    wanted = ("peers",) if spec.generator == "complete" else ("clients", "servers")
    problems = [Problem(f"topology.{name}", repr(value), "expected a whole number, 1 or more", spec.line)
                for name in wanted if not is_count(value := getattr(spec, name))]
    if spec.roles:
        problems.append(Problem("topology.roles", ", ".join(spec.roles), "is for files: a generator has its own roles",
                                spec.line))
    if problems:
        raise TopologyError("topology", problems)
    if spec.generator == "complete":
        peers = numbered("peer", spec.peers)
        return Generated(peers, {"peer": list(range(len(peers)))}, hubs=0, mesh=True)
    servers = numbered_servers(spec.servers)
    names = servers + numbered("client", spec.clients)
    roles = {"server": list(range(len(servers))), "client": list(range(len(servers), len(names)))}
    return Generated(names, roles, len(servers), spec.generator == "star_mesh", spec.forwards)


def numbered_servers(count: int) -> list[str]:
    """"server" where there is one, else "server1" .."""
    return ["server"] if count == 1 else numbered("server", count)


def numbered(role: str, count: int | None) -> list[str]:
    """The role with numbers from 1 on; none where `count` is None."""
    return [f"{role}{i}" for i in range(1, (count or 0) + 1)]


def shortened(problems: list[Problem], more: str = "") -> list[Problem]:
    """The first ten, and how many there are beyond, with what is to be said of all."""
    if len(problems) <= _SHOWN:
        return problems
    return [*problems[:_SHOWN], Problem(f"and {len(problems) - _SHOWN} more", "", more)]


def unknown(found: str, known: Iterable[str], what: str) -> str:
    """'unknown generator; did you mean "star"?', or the list of what there is where nothing is near."""
    known = list(known)
    near = get_close_matches(found, known, n=1)
    if near:
        return f'unknown {what}; did you mean "{near[0]}"?'
    return f"unknown {what}; there are: {listed(known, _LISTED)}"
