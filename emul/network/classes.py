"""Classes of links: what joins a node to the network, such as fibre or LTE.

A class says how fast a node sends and receives, how late and with what loss. It becomes rules on the links of its
members, `@fibre->*` and `*->@fibre`, which come before those of the scenario, so that these win. Between two members,
`@dsl->@lte`, both lines are crossed: the slower rate holds, latencies add up, losses too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from emul.network.links.transport import Arq
from emul.network.models.outages import OutageSpec
from emul.network.rules import LinkParameters, LinkRule


@dataclass(frozen=True)
class LinkClass:
    """Rates of the node: what comes down to it, what goes up from it. latency_ns: one way. loss: of a packet."""

    name: str
    down_bps: int
    up_bps: int
    latency_ns: int
    loss: float


class Joined(Protocol):
    """The vertices of each group, and the access link of each vertex. `emul.scenario.devices` makes it from a table and
    by draws."""

    def groups_of(self, names: Sequence[str], roles: Mapping[str, Sequence[int]], seed: int) -> Sequence[str | None]:
        """The name of each vertex's group; None: it is in none. Empty: there are no groups."""

    def link_classes(self) -> Sequence[LinkClass]:
        """Those that some node may have."""

    def links_of(self, names: Sequence[str], seed: int, groups: Sequence[str | None] = ()) -> list[str | None]:
        """The name of each vertex's class; None: it has none. groups: of `groups_of`."""


def class_rules(classes: Sequence[LinkClass]) -> list[LinkRule]:
    """The rules of links whose ends have classes; those of two classes come last, so that they win."""
    single = [rule for one in classes for rule in (
        _rule(f"@{one.name}->*", one.latency_ns, one.up_bps, one.loss),
        _rule(f"*->@{one.name}", one.latency_ns, one.down_bps, one.loss))]
    both = [_rule(f"@{a.name}->@{b.name}", a.latency_ns + b.latency_ns, min(a.up_bps, b.down_bps),
                  1 - (1 - a.loss) * (1 - b.loss)) for a in classes for b in classes]
    return single + both


def whole_message_losses(classes: Sequence[LinkClass],
                         links: Iterable[tuple[set[str | None], LinkParameters]]) -> list[LinkClass]:
    """The classes whose loss of a packet is that of a whole message on some link, whatever the message's size: where
    neither an overhead's mtu nor a transport makes packets of it. links: (classes of both ends, parameters)."""
    found: set[str | None] = set()
    for ends, p in links:
        packets = p.mtu is not None or not (
            p.transport == "datagram" or (isinstance(p.transport, Arq) and p.transport.mode == "stop_and_wait"))
        own = [one for one in classes if one.name in ends]
        if not packets and p.outage is not None and any(rule.outage == p.outage for rule in class_rules(own)):
            found |= {one.name for one in own if one.loss}
    return [one for one in classes if one.name in found]


def _rule(match: str, latency_ns: int, rate_bps: int, loss: float) -> LinkRule:
    return LinkRule(match, latency_ns=latency_ns, bandwidth_bps=rate_bps,
                    outage=OutageSpec(loss, per="packet") if loss else None)
