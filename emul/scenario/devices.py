"""`devices`: what nodes are made of, by a table of classes of devices: how fast they compute, what power they draw.

    devices:
      table: devices.csv                                        # by default the one that comes along
      nodes:
        - {match: "client*", device: {phone_high: 0.2, phone_low: 0.8}}      # drawn by the seed, by these weights
        - {match: "client*", link: {lte: 0.7, 5g: 0.3}}         # and what joins them to the network
        - {match: server, device: workstation}

A table is a CSV file with the columns device, kind, speed, memory_mb, idle_w, compute_w, send_w, receive_w, source; one
of links has link, down_mbps, up_mbps, rtt_ms, loss, source. Rules are tried from the last to the first, those that name
a device and those that name a link each for themselves; a node that none matches has no device, no link of its own.
The draws depend on the seed and the name of the node alone, so every scheme meets the same devices and links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import Field

from emul.base.names import MARK, matches
from emul.base.streams import key64, uniform_at
from emul.base.tables import amount, read, stamp
from emul.network.classes import LinkClass
from emul.scenario.groups import ClientGroup, members
from emul.scenario.sections import AnyWeights, Positive, Section, Text, Weights, absolute, plain_weights, without_none
from emul.scenario.wording import MISSING, Finding, nearest

SHIPPED = Path(__file__).with_name("devices.csv")
_NUMBERS = ("speed", "memory_mb", "idle_w", "compute_w", "send_w", "receive_w")


@dataclass(frozen=True)
class DeviceClass:
    """A class of devices. Watts: of the whole device when idle and when it computes; of its radio or port on top."""

    name: str
    kind: str                           # phone, board, laptop, server, ...
    speed: float                        # of the profile's machine
    memory_mb: float
    idle_w: float
    compute_w: float
    send_w: float
    receive_w: float
    source: str                         # the source of the figures


@dataclass(frozen=True)
class DeviceRule:
    """Nodes whose name matches are of one of these devices, by weight; None: the rule is about their links alone."""

    match: str
    weights: Mapping[str, float] | None
    battery_j: float | None = None      # the charge of each at the start; None: no battery, or one that lasts
    links: Mapping[str, float] | None = None    # classes of what joins them to the network, by weight


@dataclass(frozen=True)
class Devices:
    """table, links: files; None: those that come along. groups: whose members are drawn, for rules that name them."""

    rules: tuple[DeviceRule, ...]
    table: Path | None = None
    links: Path | None = None
    groups: tuple[ClientGroup, ...] = ()

    def devices(self) -> dict[str, DeviceClass]:
        """Name -> device. Raises ScenarioError naming file and line."""
        return read_devices(self.table or SHIPPED)

    def of(self, names: Sequence[str], seed: int, groups: Sequence[str | None] = ()) -> list[DeviceClass | None]:
        """Each node's device; None: no rule matches it. groups: the group of each. Raises ScenarioError, KeyError for
        one not in the table."""
        known = self.devices()
        drawn = _each(names, groups, [(rule.match, rule.weights) for rule in self.rules], "device", seed)
        return [None if name is None else known[name] for name in drawn]

    def link_classes(self) -> list[LinkClass]:
        """Those that the rules name, in the order of the table. Raises ScenarioError."""
        named = {name for rule in self.rules for name in rule.links or ()}
        return [one for name, one in self.known_links().items() if name in named]

    def known_links(self) -> dict[str, LinkClass]:
        """Name -> class of links. Raises ScenarioError naming file and line."""
        return read_links(self.links or SHIPPED_LINKS)

    def links_of(self, names: Sequence[str], seed: int, groups: Sequence[str | None] = ()) -> list[str | None]:
        """Each node's class of links; None: no rule names one. groups: the group of each."""
        return _each(names, groups, [(rule.match, rule.links) for rule in self.rules], "link", seed)

    def groups_of(self, names: Sequence[str], roles: Mapping[str, Sequence[int]], seed: int) -> list[str | None]:
        """Each node's group, None: it is in none; empty without groups."""
        return members(self.groups, names, roles, seed) if self.groups else []

    def batteries(self, names: Sequence[str], groups: Sequence[str | None] = ()) -> list[float | None]:
        """The energy in each node's battery at the start, in joules; None: it has none. groups: the group of each."""
        rules = [rule for rule in reversed(self.rules) if rule.weights is not None]
        known = frozenset(names)
        return [next((rule.battery_j for rule in rules if _fits(name, group, rule.match, known)), None)
                for name, group in _in_groups(names, groups)]


def equipment(devices: Devices | None, groups: Sequence[ClientGroup]) -> Devices | None:
    """`devices` of a scenario with what its groups say on top; None: it has neither."""
    if not groups:
        return devices
    own = tuple(DeviceRule(group.mark, group.device, group.battery_j, group.link) for group in groups
                if group.device is not None or group.link is not None)
    below = devices or Devices(())
    return Devices((*below.rules, *own), below.table, below.links, tuple(groups))


def _each(names: Sequence[str], groups: Sequence[str | None], rules: Sequence[tuple[str, Weights | None]], what: str,
          seed: int) -> list[str | None]:
    """The value for each node from the last rule that matches it and has one; None: no rule does."""
    said = [(match, weights) for match, weights in reversed(rules) if weights is not None]
    known = frozenset(names)
    found = (next((weights for match, weights in said if _fits(name, group, match, known)), None)
             for name, group in _in_groups(names, groups))
    return [None if weights is None else _drawn(weights, key64(seed, what, name))
            for name, weights in zip(names, found, strict=True)]


def _in_groups(names: Sequence[str], groups: Sequence[str | None]) -> Iterable[tuple[str, str | None]]:
    return zip(names, groups or [None] * len(names), strict=True)


def _fits(name: str, group: str | None, pattern: str, known: frozenset[str]) -> bool:
    return pattern[len(MARK):] == group if pattern.startswith(MARK) else matches(name, pattern, known)


def _drawn(weights: Weights, key: int) -> str:
    at = uniform_at(key, 0) * sum(weights.values())
    for name, weight in weights.items():
        at -= weight
        if at < 0:
            return name
    return next(name for name in reversed(list(weights)) if weights[name])


def read_devices(path: Path) -> dict[str, DeviceClass]:
    """Name -> device, of a table. Raises ScenarioError with everything that is wrong with it."""
    return _read_devices(path, stamp(path))


@lru_cache(maxsize=64)
def _read_devices(path: Path, stamp: tuple[int, int] | None) -> dict[str, DeviceClass]:
    # once for the schemes of a scenario; a file that has changed is read again
    table = read(path, ("device", "kind", *_NUMBERS, "source"))
    texts = {name: table.column(name, str) for name in ("device", "kind", "source")}
    numbers = {name: table.column(name, amount) for name in _NUMBERS}
    for (line, _), speed in zip(table.rows, numbers["speed"], strict=True):
        if speed == 0:
            table.problem(line, "speed", "0", "expected a number above 0")
    table.unique("device")
    table.check()
    columns: dict[str, Sequence[Any]] = {**texts, **numbers}
    found: dict[str, DeviceClass] = {}
    for row in range(len(table.rows)):
        one = {name: column[row] for name, column in columns.items()}
        name = one.pop("device")
        found[name] = DeviceClass(name=name, **one)
    return found


# --- models ---------------------------------------------------------------------------------------------------------

class DeviceNodes(Section):
    # A name or a pattern, or `@slow`, the members of a group.
    match: Text
    # A class, or several by weight, drawn by the seed and the name of the node.
    device: AnyWeights | None = None
    # The same with classes of links. One of `device` and `link` is needed. Of several rules that give a node a
    # `device`, the last one counts; the same holds of `link`.
    link: AnyWeights | None = None
    # Joules at the start: a node that has drawn them crashes for good.
    battery: Positive | None = None

    def wrong(self) -> list[Finding]:
        """A rule says something, and a battery is that of a device."""
        if self.device is None and self.link is None:
            return [((), MISSING, "expected device, link, or both")]
        return [(("battery",), "", "is used only with device")] if self.battery and self.device is None else []


class DevicesRule(Section):
    # A CSV file beside the scenario, columns `device`, `kind`, `speed`, `memory_mb`, `idle_w`, `compute_w`, `send_w`,
    # `receive_w`, `source`.
    table: Text | None = None
    # The same of links, columns `link`, `down_mbps`, `up_mbps`, `rtt_ms`, `loss`; `source` is for people.
    links: Text | None = None
    # A list of rules, of which later ones win. A node that none matches has no device, no link of its own.
    nodes: list[DeviceNodes] = Field(min_length=1)


def devices_value(rule: DevicesRule | None, base: Path) -> Devices | None:
    """The plain value; `table` and `links` are looked for beside the scenario."""
    if rule is None:
        return None
    rules = tuple(DeviceRule(one.match, one.device, one.battery, one.link) for one in rule.nodes)
    return Devices(rules, absolute(rule.table, base), absolute(rule.links, base))


def devices_document(devices: Devices | None) -> dict[str, object] | None:
    """As a scenario file says it."""
    if devices is None:
        return None
    return without_none(table=None if devices.table is None else str(devices.table),
                        links=None if devices.links is None else str(devices.links),
                        nodes=[without_none(match=rule.match, device=plain_weights(rule.weights),
                                            link=plain_weights(rule.links), battery=rule.battery_j)
                               for rule in devices.rules])


def unknown_to(devices: Devices, names: Iterable[str]) -> list[str]:
    """Those of these names that are no device of the table."""
    known = devices.devices()
    return [name for name in names if name not in known]


def unknown_devices(devices: Devices) -> list[tuple[int, str, str]]:
    """(number of the rule, device, what was expected) of devices that the table lacks. Raises ScenarioError."""
    known = devices.devices()
    return [(i, name, "unknown device" + nearest(name, sorted(known))) for i, rule in enumerate(devices.rules)
            for name in rule.weights or () if name not in known]


def unknown_links(devices: Devices) -> list[tuple[int, str, str]]:
    """As `unknown_devices`, of classes of links that their table lacks. Raises ScenarioError."""
    if not any(rule.links for rule in devices.rules):
        return []
    known = devices.known_links()
    return [(i, name, "unknown class of links" + nearest(name, sorted(known))) for i, rule in enumerate(devices.rules)
            for name in rule.links or () if name not in known]


# ---- the table of link classes ----

SHIPPED_LINKS = Path(__file__).with_name("linkclasses.csv")


def read_links(path: Path) -> dict[str, LinkClass]:
    """Name -> class, of a table. Raises ScenarioError with everything that is wrong with it."""
    return _read_links(path, stamp(path))


@lru_cache(maxsize=64)
def _read_links(path: Path, stamp: tuple[int, int] | None) -> dict[str, LinkClass]:
    # once for the schemes of a scenario; a file that has changed is read again
    table = read(path, ("link", "down=mbps", "up=mbps", "rtt=ms", "loss"))          # and, for people, source
    names = table.column("link", _name)
    down, up, rtt, loss = table.rates("down"), table.rates("up"), table.durations("rtt"), table.shares("loss")
    for (line, _), d, u, p in zip(table.rows, down, up, loss, strict=True):
        for name, value in (("down", d), ("up", u)):
            if value == 0:
                table.problem(line, name, "0", "expected a rate above 0, at least 1 bit/s")
        if p == 1:
            table.problem(line, "loss", "1", "expected a probability below 1")
    table.unique("link")
    table.check()
    return {name: LinkClass(name, d, u, round(r / 2), p)
            for name, d, u, r, p in zip(names, down, up, rtt, loss, strict=True)
            if name is not None and d is not None and u is not None and r is not None and p is not None}


def _name(text: str) -> str:
    if not text or any(c in text for c in "*?[@<>- "):
        raise ValueError("expected a name without blanks and without any of * ? [ @ < > -")
    return text
