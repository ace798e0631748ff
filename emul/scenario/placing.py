"""The places of a scheme's roles, as a scheme and a scenario write them, and the nodes that they come to.

A topology has nodes of *kinds* ("server", "client", "peer", "edge"), a scheme has *roles*; `emul.roles.places` is how a
place is written. A node that no role takes is idle: it is no part of the run, its vertex only routes.

The kinds decide who holds data, and never the roles: the clients, or, where there are none, every node. So all schemes
of a scenario meet the same shards, whatever roles those who hold them have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from emul.base.errors import Problem
from emul.base.plain import PlainDict, PlainMapping
from emul.base.streams import generator
from emul.network import Network
from emul.network.terrain import chart
from emul.roles import Scheme
from emul.roles.places import terms
from emul.roles.scheme import AnyScheme
from emul.scenario.devices import DeviceClass, Devices
from emul.scenario.faults import Island, NodeSpeed
from emul.scenario.groups import ClientGroup, holders_of, hosts_of
from emul.scenario.schemes import PLACES as KEY
from emul.scenario.wording import Finding, nearest, scenario_error, shown
from emul.scenario.wording import place as place_of


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
    groups: list[str | None] = field(default_factory=list)      # node -> its group; empty: there are none
    classes: list[str | None] = field(default_factory=list)     # node -> its class of links; empty: there are none

    def numbers(self) -> dict[str, int]:
        """Name -> node."""
        return {name: node for node, name in enumerate(self.names)}

    def marked(self, name: str) -> list[int]:
        """The nodes of a group, or of a class of links."""
        return [node for each in (self.groups, self.classes) for node, one in enumerate(each) if one == name]


def place(scheme: AnyScheme, params: object, entry: PlainMapping, network: Network) -> Placed:
    """The nodes of a scheme on a network. Raises ScenarioError with everything that is wrong with its places."""
    placed, found = placed_or_wrong(scheme, params, entry, network)
    if placed is None:
        raise scenario_error(f"scheme {scheme.name}", [
            Problem(place_of(path), value, expected) for path, value, expected in found])
    return placed


def placed_or_wrong(scheme: AnyScheme, params: object, entry: PlainMapping, network: Network,
                    ) -> tuple[Placed | None, list[Finding]]:
    """The nodes, or None and all that is wrong: (path below the entry, found, expected).

    entry: as the scenario has it; its `places` go before those of the scheme.
    """
    # Idle nodes are not started with a role that does nothing: they would have numbers, lanes and rows, and a mean over
    # servers would count them. The run is that of a topology whose idle vertices are plain routers, to the bit
    # (`test_idle_nodes_of_any_topology_change_nothing`).
    said: Mapping[str, object] = entry.get(KEY) or {}
    found: list[Finding] = [((KEY, role), shown(said[role]), "unknown role" + nearest(role, scheme.roles))
                            for role in said if role not in scheme.roles]
    wanted = scheme.places_under(params) | {role: where for role, where in said.items() if role in scheme.roles}
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
    return list(of_kind) or [vertex for vertex in hosts_of(network.roles) if network.names[vertex] == name]


def holders(network: Network) -> list[int]:
    """Shard -> vertex of the node that holds it: the clients, or every node of a topology without clients."""
    return holders_of(network.roles)


def _nowhere(role: str, network: Network) -> str:
    has = ", ".join(f"{len(vertices)} {kind}" for kind, vertices in network.roles.items() if vertices)
    example = network.names[next(hosts_of(network.roles), 0)]
    return f"the topology has no such node, it has {has or 'none'}; say where, as in {KEY}: {{{role}: {example}}}"


def _numbered(role_at: Mapping[int, str], network: Network) -> Placed:
    vertices = [vertex for vertex in hosts_of(network.roles) if vertex in role_at]
    roles: dict[str, list[int]] = {}
    for node, vertex in enumerate(vertices):
        roles.setdefault(role_at[vertex], []).append(node)
    holding = holders(network)
    return Placed([network.names[vertex] for vertex in vertices], [role_at[vertex] for vertex in vertices], vertices,
                  roles, [network.names[vertex] for vertex in hosts_of(network.roles) if vertex not in role_at],
                  _runs(holding, vertices), holding, *([each[vertex] for vertex in vertices] if each else []
                                                       for each in (network.groups, network.classes)))


def _runs(holding: Sequence[int], vertices: Sequence[int]) -> list[list[int]]:
    """Of the nodes on `vertices` those that hold data, as [first node, its shard, how many]."""
    shard_of = {vertex: shard for shard, vertex in enumerate(holding)}
    shards = np.array([shard_of.get(vertex, -1) for vertex in vertices], int)
    nodes = np.flatnonzero(shards >= 0)
    held = shards[nodes]
    first = np.flatnonzero((np.diff(nodes, prepend=-2) != 1) | (np.diff(held, prepend=-2) != 1))
    found: list[list[int]] = np.stack([nodes[first], held[first], np.diff(first, append=len(nodes))], 1).tolist()
    return found


def node_speeds(rules: Sequence[NodeSpeed], seed: int, placed: Placed, network: Network,
                devices: Devices | None = None, groups: Sequence[ClientGroup] = (), relative: bool = False,
                ) -> list[float]:
    """Node -> speed: that of its group, else of the last rule that is about it, else of its device, else 1. A fraction
    is drawn from the topology's nodes, idle or not. devices: those of groups included. relative: to the time that a
    model gives a node's device, whose own speed then is no part of it."""
    node_at = {vertex: node for node, vertex in enumerate(placed.vertices)} if rules else {}
    speeds = [1.0 if device is None or device.speed is None or relative else device.speed
              for device in devices_of(devices, seed, placed)]
    for rule, chosen in _chosen(rules, seed, network):
        for vertex in chosen:
            if vertex in node_at and rule.speed is not None:
                speeds[node_at[vertex]] = rule.speed
    of_group = {group.name: group.speed for group in groups if group.speed is not None}
    return [of_group.get(name or "", speed) for name, speed in zip(placed.groups, speeds, strict=True)
            ] if of_group else speeds


def islands(rules: Sequence[NodeSpeed], seed: int, placed: Placed, network: Network) -> list[Island | None]:
    """Node -> the GPUs that it trains a declared model with: those of the last rule that says it; None: none does."""
    found = islands_at(rules, seed, network)
    return [found.get(vertex) for vertex in placed.vertices]


def islands_at(rules: Sequence[NodeSpeed], seed: int, network: Network) -> dict[int, Island]:
    """Vertex -> the GPUs of the node there."""
    return {vertex: rule.island for rule, chosen in _chosen(rules, seed, network) if rule.island is not None
            for vertex in chosen}


def devices_of(devices: Devices | None, seed: int, placed: Placed) -> list[DeviceClass | None]:
    """Node -> its device; None: it has none."""
    return [None] * len(placed.names) if devices is None else devices.of(placed.names, seed, placed.groups)


def _chosen(rules: Sequence[NodeSpeed], seed: int, network: Network) -> Iterator[tuple[NodeSpeed, list[int]]]:
    """Each rule with the vertices of the nodes that it is about."""
    hosts = dict.fromkeys(hosts_of(network.roles))
    for number, rule in enumerate(rules):
        pool = holders(network) if rule.match is None else network.fitting(rule.match, hosts)
        if rule.fraction is not None:
            drawn = generator(seed, "speed", number).choice(len(pool), round(rule.fraction * len(pool)), replace=False)
            pool = [pool[i] for i in sorted(drawn)]
        yield rule, pool


def chart_for(scheme: Scheme[object], params: object, network: Network, placed: Placed) -> PlainDict | None:
    """The topology as the roles of a scheme know it under these parameters; None: they do not."""
    return chart(network, placed.vertices) if scheme.knows(params) else None
