"""`devices`: what nodes are made of, by a table of classes of devices: how fast they compute, what power they draw.

    devices:
      table: devices.csv                                        # by default the one that comes along
      nodes:
        - {match: "client*", device: {phone_high: 0.2, phone_low: 0.8}}      # drawn by the seed, by these weights
        - {match: "client*", link: {lte: 0.7, 5g: 0.3}}         # and what joins them to the network
        - {match: server, device: workstation}

A table is a CSV file with a row a device, columns device, kind and any of NUMBERS; or with a row a number, columns
device, kind, quantity, value, basis, source, which says where each comes from. One of links has link, down_mbps,
up_mbps, rtt_ms, loss, source. Rules are tried from the last to the first, those that name
a device and those that name a link each for themselves; a node that none matches has no device, no link of its own.
The draws depend on the seed and the name of the node alone, so every scheme meets the same devices and links.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from emul.base.names import MARK, matches
from emul.base.streams import key64, uniform_at
from emul.base.tables import TextTable, amount, missing, read, stamp
from emul.network.classes import LinkClass
from emul.scenario.groups import ClientGroup, members
from emul.scenario.sections import (
    AnyWeights,
    Positive,
    Section,
    Text,
    Weights,
    absolute,
    one_of,
    plain_weights,
    whole,
    without_none,
)
from emul.scenario.wording import MISSING, Finding, nearest, shown

if TYPE_CHECKING:
    from emul.learning.counting import StepCount

SHIPPED = Path(__file__).with_name("devices.csv")
# The numbers that a table may have of a device. The first six: its speed, 1 that of the profile's machine; its memory;
# watts of the whole device when idle and when it computes, of its radio or port on top.
NUMBERS = ("speed", "memory_mb", "idle_w", "compute_w", "send_w", "receive_w",
           "flops", "bandwidth", "efficiency", "use", "launch_s", "conv_efficiency", "conv_use", "conv_launch_s",
           "steam_share")
WATTS = ("idle_w", "compute_w", "send_w", "receive_w")
ROOFLINE = ("flops", "bandwidth", "efficiency", "use", "launch_s")
OF_CONVOLUTIONS = ("conv_efficiency", "conv_use", "conv_launch_s")
BASES = ("measured", "specified", "assumed")
ASSUMED = "assumed"


@dataclass(frozen=True)
class Origin:
    """The origin of a number of a table. basis: one of BASES; "": the table does not say."""

    basis: str
    source: str


@dataclass(frozen=True)
class DeviceClass:
    """A class of devices. None: the table does not say it.

    flops: P, of the precision that is trained in, at its best, a second. bandwidth: W, bytes of memory a second. Both
    are the maker's. efficiency, use: e and u, the shares of P and W that a training reaches; launch_s: o, of an
    operation. conv_efficiency, conv_use, conv_launch_s: e, u and o of convolutions; None: as of all others. See
    `step_time`.
    """

    name: str
    kind: str                           # phone, board, laptop, server, ...
    speed: float | None = None          # of the profile's machine
    memory_mb: float | None = None
    idle_w: float | None = None
    compute_w: float | None = None
    send_w: float | None = None
    receive_w: float | None = None
    flops: float | None = None
    bandwidth: float | None = None
    efficiency: float | None = None
    use: float | None = None
    launch_s: float | None = None
    conv_efficiency: float | None = None
    conv_use: float | None = None
    conv_launch_s: float | None = None
    steam_share: float | None = None    # in percent of a population, see `Devices.population`
    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)      # number -> where it comes from

    def lacking(self, numbers: Iterable[str]) -> list[str]:
        """Those of these numbers that the table does not say."""
        return [name for name in numbers if getattr(self, name) is None]

    def assumed(self, numbers: Iterable[str]) -> list[str]:
        """Those of these numbers that nobody has measured or specified."""
        return [name for name in numbers if name in self.origins and self.origins[name].basis == ASSUMED]


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step of training: of its arithmetic, of what it moves, and of its launches."""

    compute_s: float
    memory_s: float
    launch_s: float

    @property
    def seconds(self) -> float:
        """Of the step."""
        return self.compute_s + self.memory_s + self.launch_s

    @property
    def bound(self) -> str:
        """The largest of the three: "compute", "memory" or "launch"."""
        parts = {"compute": self.compute_s, "memory": self.memory_s, "launch": self.launch_s}
        return max(parts, key=parts.__getitem__)


def step_time(device: DeviceClass, count: StepCount) -> StepTime:
    """t = sum over operations of F / (e P) + B / (u W) + o, of a device that has all of these."""
    # A sum, and not the roofline's max(F / (e P), B / (u W)), which needs a perfect overlap: over pairs whose batch or
    # model is left out the sum has the smaller errors, by 0.5 to 3 points. A CPU brings the arrays of a convolution
    # into another order and back: with a u of their own the error over batches left out falls from 17 to 14 %.
    # `benchmarks/bench_devices.py` has the maximum beside the sum.
    P, W, e, u, o = (float(getattr(device, name)) for name in ROOFLINE)
    of_conv = (device.conv_efficiency or e, device.conv_use or u,
               o if device.conv_launch_s is None else device.conv_launch_s)
    compute = memory = launch = 0.0
    for one in count.operations:
        share, use, each = of_conv if one.convolution else (e, u, o)
        compute += one.times * one.flops / (share * P)
        memory += one.times * one.bytes / (use * W)
        launch += one.times * each
    return StepTime(compute, memory, launch)


@dataclass(frozen=True)
class DeviceRule:
    """Nodes whose name matches are of one of these devices, by weight; None: the rule is about their links alone."""

    match: str
    weights: Mapping[str, float] | None
    battery_j: float | None = None      # the charge of each at the start; None: no battery, or one that lasts
    links: Mapping[str, float] | None = None    # classes of what joins them to the network, by weight


@dataclass(frozen=True)
class Devices:
    """table, links: files; None: those that come along. groups: whose members are drawn, for rules that name them.

    population: the nodes that no rule gives a device draw one by the shares of the table: "steam-cpu" those of kind
    cpu, "steam" the others; seed: of these draws; None: that of the run.
    """

    rules: tuple[DeviceRule, ...]
    table: Path | None = None
    links: Path | None = None
    groups: tuple[ClientGroup, ...] = ()
    population: str | None = None
    seed: int | None = None

    @property
    def gives(self) -> bool:
        """True if it gives any node something."""
        return bool(self.rules) or self.population is not None

    def devices(self) -> dict[str, DeviceClass]:
        """Name -> device. Raises ScenarioError naming file and line."""
        return read_devices(self.table or SHIPPED)

    def of(self, names: Sequence[str], seed: int, groups: Sequence[str | None] = ()) -> list[DeviceClass | None]:
        """Each node's device; None: no rule matches it. groups: the group of each. Raises ScenarioError, KeyError for
        one not in the table."""
        known = self.devices()
        drawn = _each(names, groups, [(rule.match, rule.weights) for rule in self.rules], "device", seed)
        if self.population is not None:
            shares, own = self.shares(), seed if self.seed is None else self.seed
            drawn = [_drawn(shares, key64(own, "population", name)) if device is None else device
                     for name, device in zip(names, drawn, strict=True)]
        return [None if name is None else known[name] for name in drawn]

    def shares(self) -> dict[str, float]:
        """Device -> its share of the population, of those that are of it. Raises ScenarioError."""
        cpus = self.population == "steam-cpu"
        return {name: one.steam_share for name, one in self.devices().items()
                if one.steam_share and (one.kind == "cpu") == cpus}

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
    return replace(below, rules=(*below.rules, *own), groups=tuple(groups))


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
    table = read(path, ("device", "kind"), ("device", "kind", "quantity", "value", "basis", "source"))
    if table.find("quantity") and table.find("basis"):
        return _by_number(table)
    names, kinds = table.column("device", str), table.column("kind", str)
    found: dict[str, dict[str, float]] = {name: {} for name in names if name is not None}
    for quantity in NUMBERS:
        if table.find(quantity) is not None:
            for (line, _), name, value in zip(table.rows, names, table.column(quantity, _or_none), strict=True):
                if name is not None and value is not None:
                    _note(table, found[name], line, quantity, value, quantity)
    sources = table.column("source", str) if table.find("source") else [""] * len(table.rows)
    table.unique("device")
    table.check()
    return {name: DeviceClass(name, kind or "", **found[name], origins=dict.fromkeys(
        found[name], Origin("", source or ""))) for name, kind, source in zip(names, kinds, sources, strict=True)
        if name is not None}


def _by_number(table: TextTable) -> dict[str, DeviceClass]:
    """Of a table with a row a number, which says of each whether it is measured, specified or assumed."""
    texts = {name: table.column(name, str) for name in ("device", "kind", "quantity", "basis", "source")}
    values = table.column("value", amount)
    kinds: dict[str, str] = {}
    numbers: dict[str, dict[str, float]] = {}
    origins: dict[str, dict[str, Origin]] = {}
    for (line, _), name, kind, quantity, basis, source, value in zip(table.rows, *texts.values(), values, strict=True):
        assert name is not None and kind is not None and quantity is not None       # noqa: PT018, for the type checker
        if kinds.setdefault(name, kind) != kind:
            table.problem(line, "kind", shown(kind), f"expected {kinds[name]}, as a row above says")
        if basis not in BASES or not source:
            table.problem(line, "basis", shown(basis), f"expected one of {', '.join(BASES)}, and a source")
        elif value is not None:
            _note(table, numbers.setdefault(name, {}), line, quantity, value, "value")
            origins.setdefault(name, {})[quantity] = Origin(basis, source)
    table.check()
    return {name: DeviceClass(name, kind, **numbers[name], origins=origins[name]) for name, kind in kinds.items()}


def _note(table: TextTable, numbers: dict[str, float], line: int, quantity: str, value: float, place: str) -> None:
    """Keep a number of a device, or note why it is none. place: the column that has it."""
    if quantity not in NUMBERS:
        table.problem(line, "quantity", shown(quantity), "unknown quantity" + nearest(quantity, NUMBERS))
    elif quantity in numbers and place == "value":
        table.problem(line, "quantity", shown(quantity), "there already")
    elif value == 0 and quantity in ("speed", "flops", "bandwidth", "efficiency", "use", "conv_efficiency",
                                     "conv_use"):
        table.problem(line, place, "0", "expected a number above 0")
    else:
        numbers[quantity] = value


def _or_none(text: str) -> float | None:
    return None if missing(text) else amount(text)


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
    # A CSV file beside the scenario: columns `device`, `kind` and any of `speed`, `memory_mb`, `idle_w`, `compute_w`,
    # `send_w`, `receive_w`, `flops`, `bandwidth`, `efficiency`, `use`, `launch_s`, `conv_efficiency`, `conv_use`,
    # `conv_launch_s`, `steam_share`; or a row a number, columns `device`, `kind`, `quantity`, `value`, `basis`,
    # `source`.
    table: Text | None = None
    # The same of links, columns `link`, `down_mbps`, `up_mbps`, `rtt_ms`, `loss`; `source` is for people.
    links: Text | None = None
    # `steam`, `steam-cpu`: each node that no rule gives a device draws one by the shares of the Steam hardware survey
    # (`steam_share` of the table), a GPU or a device of kind `cpu`.
    population: Annotated[str, one_of("steam", "steam-cpu", what="population")] | None = None
    # The seed of the draws of `population`; without it, that of the scenario.
    seed: Annotated[int, whole(0, 2**63 - 1)] | None = None
    # A list of rules, of which later ones win. A node that none matches has no device, no link of its own. It may be
    # left out with `population`.
    nodes: list[DeviceNodes] = Field(default_factory=list)

    def wrong(self) -> list[Finding]:
        """Nothing is said of any node, or a seed of no draw."""
        if not self.nodes and self.population is None:
            return [(("nodes",), MISSING, "is required: a list of rules, or population")]
        return [(("seed",), str(self.seed), "is used only with population")] \
            if self.seed is not None and self.population is None else []


def devices_value(rule: DevicesRule | None, base: Path) -> Devices | None:
    """The plain value; `table` and `links` are looked for beside the scenario."""
    if rule is None:
        return None
    rules = tuple(DeviceRule(one.match, one.device, one.battery, one.link) for one in rule.nodes)
    return Devices(rules, absolute(rule.table, base), absolute(rule.links, base), (), rule.population, rule.seed)


def devices_document(devices: Devices | None) -> dict[str, object] | None:
    """As a scenario file says it."""
    if devices is None:
        return None
    rules = [without_none(match=rule.match, device=plain_weights(rule.weights), link=plain_weights(rule.links),
                          battery=rule.battery_j) for rule in devices.rules]
    return without_none(table=None if devices.table is None else str(devices.table),
                        links=None if devices.links is None else str(devices.links),
                        population=devices.population, seed=devices.seed,
                        nodes=rules or None)


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
