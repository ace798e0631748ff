"""`links`: the models of its rules, the specifications they stand for, and back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, PlainValidator

from emul.base.units import format_bandwidth, format_size, size_bytes
from emul.network import LinkRule, OutageSpec, parse_match
from emul.scenario.sections import MISSING, Section, duration_text, without_none
from emul.scenario.values import Bandwidth, Duration, Finding, PositiveDuration, PositiveSize, Probability, one_of

BANDWIDTH_NAMES = ("bandwidth", "capacity", "bw", "datarate", "rate")


class Outage(Section):
    model: Annotated[str, one_of("bernoulli", what="model")]
    p: Probability
    per: Annotated[str, one_of("message", "round", "slot", what="unit of outage")] = "message"
    slot: PositiveDuration | None = None

    def wrong(self) -> list[Finding]:
        if self.per == "slot" and self.slot is None:
            return [(("slot",), MISSING, "is needed by per: slot, a duration such as 100 ms")]
        if self.per != "slot" and self.slot is not None:
            return [(("slot",), "", "is used only with per: slot")]
        return []


def _packet_bytes(value: Any) -> int:
    # the key is the unit, so a plain number says all
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else size_bytes(value)


class Overhead(Section):
    bytes: Annotated[int, PlainValidator(_packet_bytes)]
    mtu: PositiveSize | None = None


def _match(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError('expected text such as "client*->server"')
    parse_match(value)
    return value


def _outage(value: Any) -> Any:
    if not isinstance(value, dict) and value != "none":
        raise ValueError("expected none or a model such as {model: bernoulli, p: 0.1, per: round}")
    # p = 0 is what "none" means; `load` gives the rule its word back
    return {"model": "bernoulli", "p": 0} if value == "none" else value


class Link(Section):
    match: Annotated[str, PlainValidator(_match)]
    latency: Duration | None = None
    bandwidth: Bandwidth | None = None
    outage: Annotated[Outage, BeforeValidator(_outage)] | None = None
    transport: Annotated[str, one_of("datagram", what="transport")] | None = None
    overhead: Overhead | None = None


def link_rules(links: list[Link], base: Path) -> list[LinkRule]:
    return [LinkRule(match=link.match, latency_ns=link.latency, bandwidth_bps=cast(Any, link.bandwidth),
                     outage=_outage_spec(link.outage), transport=cast(Any, link.transport),
                     overhead_bytes=link.overhead.bytes if link.overhead else None,
                     mtu=link.overhead.mtu if link.overhead else None) for link in links]


def _outage_spec(outage: Outage | None) -> OutageSpec | Literal["none"] | None:
    if outage is None:
        return None
    return OutageSpec(p=outage.p, per=cast(Any, outage.per), slot_ns=outage.slot) if outage.p else "none"


def link_document(rule: LinkRule) -> dict[str, Any]:
    bandwidth = rule.bandwidth_bps
    overhead = None
    if rule.overhead_bytes is not None:
        overhead = without_none(bytes=rule.overhead_bytes, mtu=None if rule.mtu is None else format_size(rule.mtu))
    return without_none(match=rule.match, latency=duration_text(rule.latency_ns),
                  bandwidth=format_bandwidth(bandwidth) if isinstance(bandwidth, int) else bandwidth,
                  outage=_outage_document(rule.outage) if isinstance(rule.outage, OutageSpec) else rule.outage,
                  transport=rule.transport, overhead=overhead)


def _outage_document(spec: OutageSpec) -> dict[str, Any]:
    return without_none(model=spec.model, p=spec.p, per=spec.per, slot=duration_text(spec.slot_ns))
