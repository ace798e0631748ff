"""`devices`: what nodes are made of, by a table of classes of devices: how fast they compute, what power they draw.

    devices:
      table: devices.csv                                        # by default the one that comes along
      nodes:
        - {match: "client*", device: {phone_high: 0.2, phone_low: 0.8}}      # drawn by the seed, by these weights
        - {match: server, device: workstation}

A table is a CSV file with the columns device, kind, speed, memory_mb, idle_w, compute_w, send_w, receive_w, source.
Rules are tried from the last to the first; a node that none matches has no device. What is drawn depends on the seed
and the name of the node alone, so every scheme meets the same devices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PlainValidator

from emul.base.streams import key64, uniform_at
from emul.network.models.csvfile import amount, read
from emul.scenario.faults import matches
from emul.scenario.sections import Section, absolute, without_none
from emul.scenario.values import Positive, Text, nearest

SHIPPED = Path(__file__).with_name("devices.csv")
_NUMBERS = ("speed", "memory_mb", "idle_w", "compute_w", "send_w", "receive_w")


@dataclass(frozen=True)
class Device:
    """A class of devices. Watts: of the whole device when idle and when it computes; of its radio or port on top."""

    name: str
    kind: str                           # phone, board, laptop, server, ...
    speed: float                        # of the profile's machine
    memory_mb: float
    idle_w: float
    compute_w: float
    send_w: float
    receive_w: float
    source: str                         # where the figures come from


@dataclass(frozen=True)
class DeviceRule:
    """Nodes whose name matches are of one of these devices, by weight."""

    match: str
    weights: Mapping[str, float]
    battery_j: float | None = None      # what each of them has at the start; None: no battery, or one that lasts


@dataclass(frozen=True)
class Devices:
    """table: a file; None: the one that comes along."""

    rules: tuple[DeviceRule, ...]
    table: Path | None = None

    def devices(self) -> dict[str, Device]:
        """Name -> device. Raises ScenarioError naming file and line."""
        return read_devices(self.table or SHIPPED)

    def of(self, names: Sequence[str], seed: int) -> list[Device | None]:
        """Each node's device; None: no rule matches it. Raises ScenarioError, KeyError for one not in the table."""
        known = self.devices()
        return [None if rule is None else known[_drawn(rule, seed, name)]
                for name in names for rule in [self._rule(name)]]

    def batteries(self, names: Sequence[str]) -> list[float | None]:
        """What each node's battery has at the start, in joules; None: it has none."""
        return [None if rule is None else rule.battery_j for name in names for rule in [self._rule(name)]]

    def _rule(self, name: str) -> DeviceRule | None:
        return next((rule for rule in reversed(self.rules) if matches(name, rule.match)), None)


def _drawn(rule: DeviceRule, seed: int, name: str) -> str:
    at = uniform_at(key64(seed, "device", name), 0) * sum(rule.weights.values())
    for device, weight in rule.weights.items():
        at -= weight
        if at < 0:
            return device
    return next(device for device in reversed(list(rule.weights)) if rule.weights[device])


@cache
def read_devices(path: Path) -> dict[str, Device]:
    """Name -> device, of a table. Raises ScenarioError with everything that is wrong with it."""
    table = read(path, ("device", "kind", *_NUMBERS, "source"))
    texts = {name: table.column(name, str) for name in ("device", "kind", "source")}
    numbers = {name: table.column(name, amount) for name in _NUMBERS}
    for (line, _), speed in zip(table.rows, numbers["speed"], strict=True):
        if speed == 0:
            table.problem(line, "speed", "0", "expected a number above 0")
    seen: set[str] = set()
    for (line, _), name in zip(table.rows, texts["device"], strict=True):
        if name in seen:
            table.problem(line, "device", f'"{name}"', "there already")
        seen.add(str(name))
    table.check()
    columns: dict[str, Sequence[Any]] = {**texts, **numbers}
    found: dict[str, Device] = {}
    for row in range(len(table.rows)):
        one = {name: column[row] for name, column in columns.items()}
        name = one.pop("device")
        found[name] = Device(name=name, **one)
    return found


# --- models ---------------------------------------------------------------------------------------------------------

def _weights(value: Any) -> dict[str, float]:
    if isinstance(value, str) and value:
        return {value: 1.0}
    sound = isinstance(value, dict) and value and all(
        isinstance(name, str) and isinstance(weight, (int, float)) and not isinstance(weight, bool)
        and math.isfinite(weight) and weight >= 0 for name, weight in value.items())
    if not sound or not sum(value.values()) > 0:
        raise ValueError("expected the name of a device, or several by weight, {phone_high: 0.2, phone_low: 0.8}")
    return {name: float(weight) for name, weight in value.items()}


class DeviceNodes(Section):
    match: Text
    device: Annotated[dict[str, float], PlainValidator(_weights, json_schema_input_type=str | dict[str, float])]
    battery: Positive | None = None


class DevicesRule(Section):
    table: Text | None = None
    nodes: list[DeviceNodes] = Field(min_length=1)


def devices_value(rule: DevicesRule | None, base: Path) -> Devices | None:
    """The plain value; `table` is looked for beside the scenario."""
    if rule is None:
        return None
    rules = tuple(DeviceRule(one.match, one.device, one.battery) for one in rule.nodes)
    return Devices(rules, absolute(rule.table, base))


def devices_document(devices: Devices | None) -> dict[str, Any] | None:
    """As a scenario file says it."""
    if devices is None:
        return None
    return without_none(table=None if devices.table is None else str(devices.table),
                        nodes=[without_none(match=rule.match, device=dict(rule.weights), battery=rule.battery_j)
                               for rule in devices.rules])


def unknown_to(devices: Devices, names: Iterable[str]) -> list[str]:
    """Those of these names that are no device of the table."""
    known = devices.devices()
    return [name for name in names if name not in known]


def unknown_devices(devices: Devices) -> list[tuple[int, str, str]]:
    """(number of the rule, device, what was expected) of devices that the table lacks. Raises ScenarioError."""
    known = devices.devices()
    return [(i, name, "unknown device" + nearest(name, sorted(known))) for i, rule in enumerate(devices.rules)
            for name in rule.weights if name not in known]
