"""Link rules: which parameters each link gets, by patterns on the names of its ends.

A rule's `match` is "src->dst", "a<->b" (both directions) or "*" (every link); each side is a pattern of fnmatch, a
name as it stands, or "@lte": the vertices of that group, or of that class of links (`emul.network.classes`). Later
rules win, field by field.
Names are matched once per vertex, not per link: the rules a link meets are then the AND of two bit masks, and links
with the same mask share one set of parameters, which is what makes a mesh of a thousand clients cheap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from emul.base.errors import Problem
from emul.base.names import MARK
from emul.base.plain import is_count
from emul.network.links.connections import TcpStack
from emul.network.links.features import Queue, Switching
from emul.network.links.link import bandwidth_problem, latency_problem
from emul.network.links.transport import Arq
from emul.network.models import latency, outages, traces
from emul.network.models.latency import LatencySpec
from emul.network.models.outages import AnyOutage
from emul.network.models.traces import TraceSpec

MATCH_EXPECTED = 'expected "src->dst", "a<->b" or "*", each side a name or a pattern like "client*"'


SharingMode = Literal["fifo", "maxmin", "connections", "tcp_fifo"]
WINDOWED = ("connections", "tcp_fifo")          # modes of sharing with connections of TCP
Transport = Literal["datagram"] | Arq | TcpStack


@dataclass(frozen=True, slots=True)
class LinkRule:
    """The parameters of links whose ends match; None leaves a field to earlier rules, then the topology. `line`: in its
    file."""

    match: str
    latency_ns: int | LatencySpec | None = None
    bandwidth_bps: int | float | TraceSpec | Literal["infinite"] | None = None
    outage: AnyOutage | Literal["none"] | None = None
    transport: Transport | None = None
    overhead_bytes: int | None = None
    mtu: int | None = None
    sharing: SharingMode | None = None
    queue: Queue | Literal["unlimited"] | None = None
    switching: Switching | Literal["store_and_forward"] | None = None
    medium: str | None = None
    line: int | None = None


class LinkParameters(Struct, frozen=True, gc=False):
    """All that a link is made of. `latency_ns` None: nobody said; `bandwidth_bps` None: infinite."""

    latency_ns: int | LatencySpec | None = None
    bandwidth_bps: int | float | TraceSpec | None = None
    outage: AnyOutage | None = None
    transport: Transport = "datagram"
    overhead_bytes: int = 0
    mtu: int | None = None
    sharing: SharingMode = "fifo"
    queue: Queue | None = None
    switching: Switching | Literal["store_and_forward"] = "store_and_forward"
    medium: str | None = None           # the name of what it shares time with


_FIELDS = LinkParameters.__struct_fields__
# the value by which a rule says None on purpose
_NONE_WORD = {"bandwidth_bps": "infinite", "outage": "none", "queue": "unlimited"}


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
    # Of a scenario's rules its sections have said that already. This is for rules that were made in code: `build` is
    # where they come in, and there all mistakes of all rules are said at once.
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
    found += _feature_problems(rule)
    if rule.overhead_bytes is not None and not is_count(rule.overhead_bytes, 0):
        found.append(("overhead_bytes", repr(rule.overhead_bytes), "expected a whole number of bytes, 0 or more"))
    if rule.mtu is not None and not is_count(rule.mtu, 1):
        found.append(("mtu", repr(rule.mtu), "expected a whole number of bytes, 1 or more"))
    if rule.sharing is not None and rule.sharing not in get_args(SharingMode):
        found.append(("sharing", repr(rule.sharing), f"expected one of {', '.join(get_args(SharingMode))}"))
    return found


_FEATURES = {"queue": "a Queue", "switching": "a Switching", "transport": "an Arq or a TcpStack"}


def _feature_problems(rule: LinkRule) -> list[tuple[str, str, str]]:
    found = []
    for name, kind in (("queue", Queue), ("switching", Switching), ("transport", (Arq, TcpStack))):
        value = getattr(rule, name)
        word = {"queue": "unlimited", "switching": "store_and_forward", "transport": "datagram"}[name]
        if isinstance(value, kind):
            found += [(f"{name}.{place}", shown, expected) for place, shown, expected in value.problems()]
        elif value not in (None, word):
            found.append((name, repr(value), f'expected "{word}", or {_FEATURES[name]}'))
    return found


def mixture_problem(p: LinkParameters) -> tuple[str, str] | None:
    """(found, expected) of what in a link's parameters, each sound in itself, does not go together."""
    for name in ("transport", "switching"):
        mtu = getattr(getattr(p, name), "mtu", None)
        if p.mtu is not None and mtu is not None and mtu != p.mtu:
            return f"{name} with packets of {mtu} B, overhead of {p.mtu} B", "expected the same, or one of them alone"
    if isinstance(p.transport, TcpStack) and p.sharing not in WINDOWED:
        return f"transport tcp with sharing {p.sharing}", f"expected sharing {' or '.join(WINDOWED)}"
    if p.sharing == "tcp_fifo" and not isinstance(p.transport, TcpStack):
        return "sharing tcp_fifo", "expected transport: {tcp: {...}} with it, of which its queues hold the packets"
    wrong = None if p.medium is None else _medium_problem(p)
    if wrong is not None:
        return wrong
    if p.sharing != "fifo":
        plain = LinkParameters()
        for name in ("transport", "switching", "queue"):
            if getattr(p, name) != getattr(plain, name) and not isinstance(getattr(p, name), TcpStack):
                return f"{name} with sharing {p.sharing}", "expected sharing fifo, which alone knows it"
    return None


def _medium_problem(p: LinkParameters) -> tuple[str, str] | None:
    """As `mixture_problem`, of a link that shares the time of a medium."""
    if p.sharing in ("fifo", "tcp_fifo"):
        return f"medium with sharing {p.sharing}", "expected sharing maxmin or connections"
    if p.transport != "datagram":
        return "medium with a transport", "expected transport: datagram, which alone knows rates of a medium"
    if p.bandwidth_bps is None:
        return "medium without a bandwidth", "expected one: the rate at which the link sends in its time"
    return None


def parameter_problems(latency_ns: Any, bandwidth_bps: Any, outage: Any) -> list[tuple[str, str, str]]:
    """(place, found, expected) of each of the three that no link can have; None is sound."""
    found = []
    if isinstance(latency_ns, latency.SPECS):
        jitter = latency.problem(latency_ns)
        found += [] if jitter is None else [(f"latency.{jitter[0]}", jitter[1], jitter[2])]
        latency_ns = None
    if isinstance(bandwidth_bps, TraceSpec):
        bad = traces.problem(bandwidth_bps)
        found += [] if bad is None else [(f"bandwidth.{bad[0]}", bad[1], bad[2])]
        bandwidth_bps = None
    for name, value, text in (("latency", latency_ns, latency_problem(latency_ns)),
                              ("bandwidth", bandwidth_bps, bandwidth_problem(bandwidth_bps))):
        if text:
            found.append((name, repr(value), text.partition(": ")[2]))
    if isinstance(outage, outages.SPECS):
        wrong = outages.problem(outage)
        if wrong:
            found.append((f"outage.{wrong[0]}", wrong[1], wrong[2]))
    elif outage is not None and outage != "none":
        found.append(("outage", repr(outage), 'expected an outage model or "none"'))
    return found


class Resolver:
    """The rules compiled for the names of one topology: `parameters(u, v, given)` for the link of two vertices.

    marks: lists of what each vertex is called behind "@", such as its class; None: it has no such name.
    """

    def __init__(self, rules: Sequence[LinkRule], names: Sequence[str], *marks: Sequence[str | None]):
        self._rules = list(rules)
        # one bit per (rule, direction), so that "a<->b" does not match a->a
        self._bits = [(i, source, destination) for i, rule in enumerate(rules)
                      for source, destination in parse_match(rule.match)]
        self.source_masks = _masks([source for _, source, _ in self._bits], names, marks)
        self.destination_masks = _masks([destination for _, _, destination in self._bits], names, marks)
        self._said: dict[int, dict[str, Any]] = {}      # mask -> what the rules that match say, by field
        self._recent: dict[int, tuple[LinkParameters, LinkParameters]] = {}    # mask -> the last given, and found

    def parameters(self, u: int, v: int, given: LinkParameters) -> LinkParameters:
        """Parameters of the link u -> v: those `given` by the topology, overridden by every rule that matches."""
        return self.by_mask(self.source_masks[u] & self.destination_masks[v], given)

    def by_mask(self, mask: int, given: LinkParameters) -> LinkParameters:
        """As `parameters`, for all links that match exactly the (rule, direction) bits of `mask`."""
        recent = self._recent.get(mask)
        if recent is not None and recent[0] is given:       # always, where no links are listed
            return recent[1]
        found = replace(given, **self._said_by(mask))       # not kept: of a listed link all may be its own
        self._recent[mask] = given, found
        return found

    def latency_ns(self, u: int, v: int, given: LinkParameters) -> int | LatencySpec | None:
        """`parameters(u, v, given).latency_ns`, which a search for routes asks of every link."""
        return self.latency_by_mask(self.source_masks[u] & self.destination_masks[v], given)

    def latency_by_mask(self, mask: int, given: LinkParameters) -> int | LatencySpec | None:
        """`by_mask(mask, given).latency_ns`: asked of every link there is, of which few may be used."""
        found: int | LatencySpec | None = self._said_by(mask).get("latency_ns", given.latency_ns)
        return found

    def _said_by(self, mask: int) -> dict[str, Any]:
        said = self._said.get(mask)
        if said is None:
            said = self._said[mask] = {}
            for bit in set_bits(mask):
                rule = self._rules[self._bits[bit][0]]
                said |= {name: value for name in _FIELDS if (value := getattr(rule, name)) is not None}
            if said.get("medium") is not None:          # its links share, if they do not say how
                said.setdefault("sharing", "maxmin")
            for name, word in _NONE_WORD.items():
                if said.get(name) == word:
                    said[name] = None
        return said

    def mentions(self, u: int, v: int, field: str) -> bool:
        """True if a rule that matches the link u -> v sets `field`."""
        mask = self.source_masks[u] & self.destination_masks[v]
        return any(getattr(self._rules[self._bits[bit][0]], field) is not None for bit in set_bits(mask))

    def rule_of_bits(self) -> list[LinkRule]:
        """Bit of a mask -> its rule; later rules have higher bits."""
        return [self._rules[i] for i, _, _ in self._bits]

    def directions(self) -> list[tuple[LinkRule, frozenset[int], frozenset[int]]]:
        """For every rule and direction: the vertices that can be the source, and those that can be the destination."""
        return [(self._rules[i], sources, destinations) for (i, _, _), sources, destinations in zip(
            self._bits, *(_holders(masks, len(self._bits)) for masks in (self.source_masks, self.destination_masks)),
            strict=True)]


def set_bits(mask: int) -> Iterator[int]:
    """The numbers of the bits that are set, ascending: few of thousands, where a file has a rule for each client."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _holders(masks: Sequence[int], bits: int) -> list[frozenset[int]]:
    """Bit -> the vertices whose masks have it."""
    found: list[list[int]] = [[] for _ in range(bits)]
    for v, mask in enumerate(masks):
        for bit in set_bits(mask):
            found[bit].append(v)
    return [frozenset(vertices) for vertices in found]


def _masks(patterns: list[str], names: Sequence[str], marks: Sequence[Sequence[str | None]]) -> list[int]:
    """For every name the bits of the patterns that it matches, and of those of its marks."""
    everybody, named, tests, marked = 0, dict[str, int](), [], dict[str | None, int]()
    known = frozenset(names)
    for bit, pattern in enumerate(patterns):
        if pattern == "*":
            everybody |= 1 << bit
            continue
        if pattern.startswith(MARK):
            marked[pattern[len(MARK):]] = marked.get(pattern[len(MARK):], 0) | 1 << bit
            continue
        named[pattern] = named.get(pattern, 0) | 1 << bit
        # else it matches its own name only: files have vertices that are called "?" or "R[1]"
        if any(c in pattern for c in "*?[") and pattern not in known:
            tests.append((1 << bit, re.compile(translate(pattern)).match))
    masks = [everybody | named.get(name, 0) for name in names]
    for bit, match in tests:
        masks = [mask | bit if match(name) else mask for mask, name in zip(masks, names, strict=True)]
    for each in marks if marked else ():
        if each:
            masks = [mask | marked.get(one, 0) for mask, one in zip(masks, each, strict=True)]
    return masks
