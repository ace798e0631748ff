"""Classes of links: what joins a node to the network, such as fibre or LTE.

A class says how fast a node sends and receives, how late and with what loss. It becomes rules on the links of its
members, `@fibre->*` and `*->@fibre`, which come before those of the scenario, so that these win. Between two members,
`@dsl->@lte`, both lines are crossed: the slower rate holds, latencies add up, losses too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from emul.network.models.outages import OutageSpec
from emul.network.rules import LinkRule


@dataclass(frozen=True)
class LinkClass:
    """Rates of the node: what comes down to it, what goes up from it. latency_ns: one way. loss: of a packet."""

    name: str
    down_bps: int
    up_bps: int
    latency_ns: int
    loss: float


class Joined(Protocol):
    """Who is joined to the network by what: `emul.scenario.devices` has it of a table and by draws."""

    def link_classes(self) -> Sequence[LinkClass]:
        """Those that some node may have."""

    def links_of(self, names: Sequence[str], seed: int) -> list[str | None]:
        """The name of each vertex's class; None: it has none."""


def class_rules(classes: Sequence[LinkClass]) -> list[LinkRule]:
    """The rules of links whose ends have classes; those of two classes come last, so that they win."""
    single = [rule for one in classes for rule in (
        _rule(f"@{one.name}->*", one.latency_ns, one.up_bps, one.loss),
        _rule(f"*->@{one.name}", one.latency_ns, one.down_bps, one.loss))]
    both = [_rule(f"@{a.name}->@{b.name}", a.latency_ns + b.latency_ns, min(a.up_bps, b.down_bps),
                  1 - (1 - a.loss) * (1 - b.loss)) for a in classes for b in classes]
    return single + both


def _rule(match: str, latency_ns: int, rate_bps: int, loss: float) -> LinkRule:
    return LinkRule(match, latency_ns=latency_ns, bandwidth_bps=rate_bps,
                    outage=OutageSpec(loss, per="packet") if loss else None)
