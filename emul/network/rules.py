"""Link rules: which parameters each link gets, by patterns on the names of its ends.

A rule's `match` is "src->dst", "a<->b" (both directions) or "*" (every link); each side is a pattern of fnmatch, or
a name as it stands. Later rules win, field by field. Names are matched once per vertex, not per link: the rules a
link meets are then the AND of two bit masks, and links with the same mask share one set of parameters, which is
what makes a mesh of a thousand clients cheap.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import translate
from typing import Any, Literal

from emul.base.errors import Problem
from emul.network import loss
from emul.network.link import bandwidth_problem, latency_problem
from emul.network.loss import OutageSpec

MATCH_EXPECTED = 'expected "src->dst", "a<->b" or "*", each side a name or a pattern like "client*"'


@dataclass(frozen=True, slots=True)
class LinkRule:
    """What links whose ends match get; None leaves a field to earlier rules, then the topology. `line`: in its file."""

    match: str
    latency_ns: int | None = None
    bandwidth_bps: int | float | Literal["infinite"] | None = None
    outage: OutageSpec | Literal["none"] | None = None
    transport: Literal["datagram"] | None = None
    overhead_bytes: int | None = None
    mtu: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class LinkParameters:
    """All that a link is made of. `latency_ns` None: nobody said; `bandwidth_bps` None: infinite."""

    latency_ns: int | None = None
    bandwidth_bps: int | float | None = None
    outage: OutageSpec | None = None
    transport: Literal["datagram"] = "datagram"
    overhead_bytes: int = 0
    mtu: int | None = None


_FIELDS = tuple(field.name for field in fields(LinkParameters))
_NONE_WORD = {"bandwidth_bps": "infinite", "outage": "none"}       # how a rule says None on purpose


def parse_match(match: str) -> list[tuple[str, str]]:
    """The (source, destination) patterns of a `match`, one per direction. Raises ValueError saying what is expected.

    >>> parse_match("client*<->server")
    [('client*', 'server'), ('server', 'client*')]
    """
    if match.strip() == "*":
        return [("*", "*")]
    arrow = "<->" if "<->" in match else "->"
    sides = [side.strip() for side in match.split(arrow)]
    if len(sides) != 2 or not all(sides) or any("->" in side for side in sides):
        raise ValueError(MATCH_EXPECTED)
    source, destination = sides
    both = arrow == "<->" and source != destination
    return [(source, destination), (destination, source)] if both else [(source, destination)]


def rule_problems(rules: Sequence[LinkRule]) -> list[Problem]:
    """Everything wrong with the rules' own values, in their order."""
    found = []
    for i, rule in enumerate(rules):
        found += [Problem(f"links[{i}].{place}", value, expected, rule.line)
                  for place, value, expected in _problems(rule)]
    return found


def _problems(rule: LinkRule) -> list[tuple[str, str, str]]:
    found = []
    try:
        parse_match(rule.match)
    except ValueError as error:
        found.append(("match", repr(rule.match), str(error)))
    found += parameter_problems(rule.latency_ns, rule.bandwidth_bps, rule.outage)
    if rule.transport not in (None, "datagram"):
        found.append(("transport", repr(rule.transport), 'expected "datagram"'))
    if rule.overhead_bytes is not None and not _is_count(rule.overhead_bytes, 0):
        found.append(("overhead_bytes", repr(rule.overhead_bytes), "expected a whole number of bytes, 0 or more"))
    if rule.mtu is not None and not _is_count(rule.mtu, 1):
        found.append(("mtu", repr(rule.mtu), "expected a whole number of bytes, 1 or more"))
    return found


def parameter_problems(latency_ns: Any, bandwidth_bps: Any, outage: Any) -> list[tuple[str, str, str]]:
    """(place, found, expected) of each of the three that no link can have; None is sound."""
    found = []
    for name, value, text in (("latency", latency_ns, latency_problem(latency_ns)),
                              ("bandwidth", bandwidth_bps, bandwidth_problem(bandwidth_bps))):
        if text:
            found.append((name, repr(value), text.partition(": ")[2]))
    if isinstance(outage, OutageSpec):
        wrong = loss.problem(outage)
        if wrong:
            found.append((f"outage.{wrong[0]}", wrong[1], wrong[2]))
    elif outage is not None and outage != "none":
        found.append(("outage", repr(outage), 'expected an outage model or "none"'))
    return found


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


class Resolver:
    """The rules compiled for the names of one topology: `parameters(u, v, given)` for the link of two vertices."""

    def __init__(self, rules: Sequence[LinkRule], names: Sequence[str]):
        self._rules = list(rules)
        # one bit per (rule, direction), so that "a<->b" does not match a->a
        self._bits = [(i, source, destination) for i, rule in enumerate(rules)
                      for source, destination in parse_match(rule.match)]
        self.source_masks = _masks([source for _, source, _ in self._bits], names)
        self.destination_masks = _masks([destination for _, _, destination in self._bits], names)
        self._cache: dict[tuple[int, LinkParameters], LinkParameters] = {}

    def parameters(self, u: int, v: int, given: LinkParameters) -> LinkParameters:
        """Parameters of the link u -> v: those `given` by the topology, overridden by every rule that matches."""
        return self.by_mask(self.source_masks[u] & self.destination_masks[v], given)

    def by_mask(self, mask: int, given: LinkParameters) -> LinkParameters:
        """As `parameters`, for all links that match exactly the (rule, direction) bits of `mask`."""
        key = (mask, given)
        cached = self._cache.get(key)
        if cached is None:
            cached = self._cache[key] = self._resolve(mask, given)
        return cached

    def _resolve(self, mask: int, given: LinkParameters) -> LinkParameters:
        values: dict[str, Any] = {}
        for bit, (i, _, _) in enumerate(self._bits):
            if mask >> bit & 1:
                values |= {name: value for name in _FIELDS if (value := getattr(self._rules[i], name)) is not None}
        for name, word in _NONE_WORD.items():
            if values.get(name) == word:
                values[name] = None
        return replace(given, **values)

    def directions(self) -> list[tuple[LinkRule, frozenset[int], frozenset[int]]]:
        """For every rule and direction: the vertices that can be the source, and those that can be the destination."""
        return [(self._rules[i], _holders(bit, self.source_masks), _holders(bit, self.destination_masks))
                for bit, (i, _, _) in enumerate(self._bits)]


def _holders(bit: int, masks: list[int]) -> frozenset[int]:
    return frozenset(v for v, mask in enumerate(masks) if mask >> bit & 1)


def _masks(patterns: list[str], names: Sequence[str]) -> list[int]:
    """For every name the bits of the patterns that it matches."""
    tests = [(1 << bit, pattern, re.compile(translate(pattern)).match) for bit, pattern in enumerate(patterns)]
    return [sum(bit for bit, pattern, match in tests if pattern == name or match(name)) for name in names]
