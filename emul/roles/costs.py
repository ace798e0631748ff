"""What a computation costs in virtual time: measured, from a profile, recorded, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from emul.base.errors import EmulError

Mode = Literal["measured", "profile", "recorded", "zero"]


class MissingCost(EmulError):
    """The profile or the record has no entry for a computation; the text names the command that makes one."""


@dataclass
class Costs:
    """Virtual cost of `compute` in nanoseconds.

    profile: {"scheme/role/label": (a, b)}, seconds at speed 1 = a + b * work.
    recorded: {node: costs in the order of that node's computations}, from the run that is replayed.
    """

    mode: Mode
    scheme: str
    profile: Mapping[str, Sequence[float]] = field(default_factory=dict)
    recorded: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def cost_ns(self, node: int, role: str, label: str, work: float, count: int, speed: float) -> int | None:
        """Cost of this node's computation number `count` (from 0), or None: measure it. Raises MissingCost."""
        if self.mode == "zero":
            return 0
        if self.mode == "measured":
            return None
        if self.mode == "recorded":
            costs = self.recorded.get(node, ())
            if count >= len(costs):
                raise MissingCost(f"the record holds {len(costs)} computations of node {node}, "
                                  f"number {count + 1} ({label}) was asked for")
            return int(costs[count])
        key = f"{self.scheme}/{role}/{label}"
        entry = self.profile.get(key)
        if entry is None:
            raise MissingCost(f"the profile has no entry {key!r}: make one with `emul profile SCENARIO -o FILE`")
        a, b = entry
        return max(0, round((a + b * work) * 1e9 / speed))
