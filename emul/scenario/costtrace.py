"""`compute: {trace: file}`: what computations took on real devices, drawn from or in the order of the file.

A CSV file with the columns label, seconds, and node (a name or a pattern) or device (a class of `devices`). The label
is that of the computation ("train"), or * for all others. A node has the rows of its own name, else of the first
pattern that matches it, or of its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emul.base.names import is_pattern, matches
from emul.base.tables import amount, read
from emul.scenario.devices import DeviceClass
from emul.scenario.wording import nearest

Costs = dict[str, list[int]]            # label -> ns, in the order of the file


@dataclass(frozen=True)
class CostTrace:
    """A file's costs by node, name or pattern, or by device."""

    by_node: dict[str, Costs] = field(default_factory=dict)
    by_device: dict[str, Costs] = field(default_factory=dict)

    def of(self, names: Sequence[str], devices: Sequence[DeviceClass | None]) -> tuple[list[Costs], list[int]]:
        """(different costs, node -> which of them; -1: none)."""
        used: list[Costs] = []
        place: dict[int, int] = {}
        found = []
        for name, device in zip(names, devices, strict=True):
            costs = self._costs(name, device)
            if costs is None:
                found.append(-1)
                continue
            if id(costs) not in place:
                place[id(costs)] = len(used)
                used.append(costs)
            found.append(place[id(costs)])
        return used, found

    def unknown(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """(name or pattern of the file that no node of these names has, what is wrong), in the order of the file."""
        known = set(names)
        return [(one, "a pattern that matches no node" if is_pattern(one) else "unknown node" + nearest(one, names))
                for one in self.by_node
                if one not in known and not (is_pattern(one) and any(matches(name, one) for name in names))]

    def _costs(self, name: str, device: DeviceClass | None) -> Costs | None:
        if name in self.by_node:
            return self.by_node[name]
        for pattern, costs in self.by_node.items():
            if is_pattern(pattern) and matches(name, pattern):
                return costs
        return None if device is None else self.by_device.get(device.name)


def read_trace(path: Path) -> CostTrace:
    """The costs of a file. Raises ScenarioError with everything that is wrong with it."""
    table = read(path, ("node", "label", "seconds"), ("device", "label", "seconds"))
    key = "node" if "node" in table.header else "device"
    whose, labels, costs = table.column(key, _text), table.column("label", _text), table.column("seconds", _ns)
    table.check()
    found: dict[str, Costs] = {}
    for one, label, cost in zip(whose, labels, costs, strict=True):
        assert one is not None and label is not None and cost is not None       # noqa: PT018, for the type checker
        found.setdefault(one, {}).setdefault(label, []).append(cost)
    return CostTrace(by_node=found) if key == "node" else CostTrace(by_device=found)


def _text(text: str) -> str:
    if not text:
        raise ValueError("expected a name")
    return text


def _ns(text: str) -> int:
    return round(amount(text, unit="seconds", below=1e9) * 1e9)
