"""`World`: the facts of a run that every role may know, and that a scheme's `check` asks before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class World:
    """Who is there: the nodes that have a role in this scheme, numbered from 0. Idle nodes of the topology are none."""

    scheme: str
    seed: int
    names: Sequence[str]                        # node -> name
    roles: Mapping[str, list[int]]              # role -> nodes, ascending
    speeds: Sequence[float]                     # node -> speed, 1: the profile's machine
    deterministic: bool = True                  # False: results of some computations cannot repeat themselves
    task: Mapping[str, Any] = field(default_factory=dict)       # the learning task as the scenario has it; {}: none

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.count("client")

    @property
    def servers(self) -> int:
        """How many servers there are."""
        return self.count("server")

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.names)

    def count(self, role: str) -> int:
        """How many nodes have a role; 0 if there is no such role."""
        return len(self.roles.get(role, ()))
