"""Where a scheme's roles are: places, as a scheme and a scenario write them, and the nodes that they come to.

A topology has nodes of *kinds* ("server", "client", "peer", "edge"), a scheme has *roles*; `emul.roles.places` is how a
place is written. A node that no role takes is idle: it is no part of the run, its vertex only routes.

Who holds data follows the kinds and never the roles: the clients, or, where there are none, every node. So all schemes
of a scenario meet the same shards, whatever roles those who hold them have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from emul import schemes
from emul.base.errors import Problem, ScenarioError
from emul.base.streams import generator
from emul.network import Network
from emul.network.terrain import chart
from emul.roles.places import terms
from emul.scenario.devices import Device, Devices
from emul.scenario.faults import NodeSpeed, matches
from emul.scenario.labels import PLACES as KEY
from emul.scenario.source import place as place_of
from emul.scenario.source import scenario_error, shown
from emul.scenario.values import Finding, nearest


@dataclass(frozen=True)
class Placed:
    """The nodes of a run, by their numbers: in the order of the topology's kinds, whatever their roles are."""

    names: list[str]                    # node -> name of its vertex
    role_of: list[str]                  # node -> role
    vertices: list[int]                 # node -> vertex
    roles: dict[str, list[int]]         # role -> nodes, ascending
    idle: list[str]                     # names of the topology's nodes that no role takes
    shards: list[list[int]]             # runs of nodes that hold data: [first node, its shard, how many]
    holders: Sequence[int]              # shard -> vertex of the node that holds it, idle or not

    def numbers(self) -> dict[str, int]:
        """Name -> node."""
        return {name: node for node, name in enumerate(self.names)}


def place(scheme: str, module: ModuleType, params: Any, entry: Mapping[str, Any], network: Network) -> Placed:
    """The nodes of a scheme on a network. Raises ScenarioError with everything that is wrong with its places."""
    placed, found = placed_or_wrong(module, params, entry, network)
    if placed is None:
        raise _error(scheme, found)
    return placed


def placed_or_wrong(module: ModuleType, params: Any, entry: Mapping[str, Any], network: Network,
                    ) -> tuple[Placed | None, list[Finding]]:
    """The nodes, or None and all that is wrong: (path below the entry, found, expected).

    entry: as the scenario has it; its `places` go before those of the scheme.
    """
    said: Mapping[str, Any] = entry.get(KEY) or {}
    found: list[Finding] = [((KEY, role), shown(said[role]), "unknown role" + nearest(role, module.ROLES))
                            for role in said if role not in module.ROLES]
    wanted = schemes.places(module, params) | {role: where for role, where in said.items() if role in module.ROLES}
    role_at: dict[int, str] = {}
    for role, where in wanted.items():
        path = (KEY, role) if role in said else ()
        vertices = _vertices(where, network)
        if not vertices:
            found.append((path, f"{role} at {shown(where)}", _nowhere(role, network)))
        for vertex in vertices:
            other = role_at.setdefault(vertex, role)
            if other != role:
                found.append((path, f"{role} at {shown(where)}", f"{network.names[vertex]} is the place of {other}; "
                              f"a node has one role: say another in {KEY}"))
                break
    return (None, found) if found else (_numbered(role_at, network), [])


def _vertices(where: Any, network: Network) -> list[int]:
    """The vertices of a place, or of a list of them; [] if there is none."""
    if isinstance(where, list):
        each = [_vertices(one, network) for one in where]
        return [vertex for vertices in each for vertex in vertices] if all(each) else []
    return next((vertices for name, number in terms(where) if (vertices := _named(name, number, network))), [])


def _named(name: str, number: int | None, network: Network) -> list[int]:
    of_kind = network.roles.get(name, [])
    if number is not None:
        return of_kind[number:number + 1]
    return list(of_kind) or [vertex for vertex in _hosts(network) if network.names[vertex] == name]


def holders(network: Network) -> list[int]:
    """Shard -> vertex of the node that holds it: the clients, or every node of a topology without clients."""
    return network.roles.get("client") or list(_hosts(network))


def _hosts(network: Network) -> Iterator[int]:
    """The vertices that host a node, kind by kind."""
    return (vertex for vertices in network.roles.values() for vertex in vertices)


def _nowhere(role: str, network: Network) -> str:
    has = ", ".join(f"{len(vertices)} {kind}" for kind, vertices in network.roles.items() if vertices)
    example = network.names[next(_hosts(network), 0)]
    return f"the topology has no such node, it has {has or 'none'}; say where, as in {KEY}: {{{role}: {example}}}"


def _numbered(role_at: Mapping[int, str], network: Network) -> Placed:
    vertices = [vertex for vertex in _hosts(network) if vertex in role_at]
    roles: dict[str, list[int]] = {}
    for node, vertex in enumerate(vertices):
        roles.setdefault(role_at[vertex], []).append(node)
    holding = holders(network)
    return Placed([network.names[vertex] for vertex in vertices], [role_at[vertex] for vertex in vertices], vertices,
                  roles, [network.names[vertex] for vertex in _hosts(network) if vertex not in role_at],
                  _runs(holding, vertices), holding)


def _runs(holding: Sequence[int], vertices: Sequence[int]) -> list[list[int]]:
    """Of the nodes on `vertices` those that hold data, as [first node, its shard, how many]."""
    shard_of = {vertex: shard for shard, vertex in enumerate(holding)}
    runs: list[list[int]] = []
    for node, vertex in enumerate(vertices):
        shard = shard_of.get(vertex)
        if shard is None:
            continue
        if runs and node == runs[-1][0] + runs[-1][2] and shard == runs[-1][1] + runs[-1][2]:
            runs[-1][2] += 1
        else:
            runs.append([node, shard, 1])
    return runs


def node_speeds(rules: Sequence[NodeSpeed], seed: int, placed: Placed, network: Network,
                devices: Devices | None = None) -> list[float]:
    """Node -> speed: that of its device, 1 without one, where no rule says otherwise. A fraction is drawn from the
    topology's nodes, idle or not."""
    node_at = {vertex: node for node, vertex in enumerate(placed.vertices)} if rules else {}
    speeds = [1.0 if device is None else device.speed for device in devices_of(devices, seed, placed)]
    for number, rule in enumerate(rules):
        for vertex in _chosen(rule, number, seed, network):
            if vertex in node_at:
                speeds[node_at[vertex]] = rule.speed
    return speeds


def devices_of(devices: Devices | None, seed: int, placed: Placed) -> list[Device | None]:
    """Node -> its device; None: it has none."""
    return [None] * len(placed.names) if devices is None else devices.of(placed.names, seed)


def _chosen(rule: NodeSpeed, number: int, seed: int, network: Network) -> list[int]:
    """The vertices of the nodes that a rule is about."""
    pool = holders(network) if rule.match is None else [
        vertex for vertex in _hosts(network) if matches(network.names[vertex], rule.match)]
    if rule.fraction is None:
        return pool
    drawn = generator(seed, "speed", number).choice(len(pool), round(rule.fraction * len(pool)), replace=False)
    return [pool[i] for i in sorted(drawn)]


def chart_for(module: ModuleType, network: Network, placed: Placed) -> dict[str, Any] | None:
    """The topology as the roles of a scheme know it; None: they do not."""
    return chart(network, placed.vertices) if getattr(module, "KNOWS_TOPOLOGY", False) else None


def _error(scheme: str, found: Sequence[Finding]) -> ScenarioError:
    return scenario_error(f"scheme {scheme}", [Problem(place_of(path), value, said) for path, value, said in found])

