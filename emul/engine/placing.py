"""Which nodes a scheme has: its roles on the vertices of the network."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from emul.base.errors import Problem, ScenarioError
from emul.network import Network
from emul.scenario import Scenario


@dataclass(frozen=True)
class Placed:
    """The nodes of a run, by their numbers."""

    names: list[str]                    # node -> name of its vertex
    role_of: list[str]                  # node -> role
    vertices: list[int]                 # node -> vertex
    roles: dict[str, list[int]]         # role -> nodes, ascending


def place(scenario: Scenario, scheme: str, module: ModuleType, network: Network) -> Placed:
    """The nodes of a scheme on a network, role by role. Raises ScenarioError for a role that the scheme lacks."""
    unknown = [role for role, vertices in network.roles.items() if vertices and role not in module.ROLES]
    if unknown:
        raise ScenarioError(str(scenario.path or scenario.name), [Problem(
            "topology", ", ".join(unknown), f'scheme "{scheme}" has the roles {", ".join(module.ROLES)}')])
    placed = [(role, vertex) for role, vertices in network.roles.items() for vertex in vertices]
    roles: dict[str, list[int]] = {}
    for node, (role, _) in enumerate(placed):
        roles.setdefault(role, []).append(node)
    return Placed([network.names[vertex] for _, vertex in placed], [role for role, _ in placed],
                  [vertex for _, vertex in placed], roles)
