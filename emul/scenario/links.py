"""`links`: the models of its rules, the specifications they stand for, and back to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast, get_args

from pydantic import PlainValidator

from emul.network import LinkRule, parse_match
from emul.network.rules import SharingMode
from emul.scenario.bandwidths import AnyBandwidth, BandwidthTrace, bandwidth_document, bandwidth_spec  # noqa: F401
from emul.scenario.latencies import AnyLatency, LatencySection, latency_document, latency_spec  # noqa: F401
from emul.scenario.outages import WrittenOutage, outage_document, outage_spec
from emul.scenario.sections import Section, without_none
from emul.scenario.transports import (  # noqa: F401
    AnyQueue,
    AnySwitching,
    AnyTransport,
    Overhead,
    Packetized,
    TcpKeys,
    Transport,
    overhead_document,
    overhead_values,
    queue_document,
    switching_document,
    transport_document,
    transport_spec,
)
from emul.scenario.values import Text, one_of

BANDWIDTH_NAMES = ("bandwidth", "capacity", "bw", "datarate", "rate")


def _match(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('expected text such as "client*->server"')
    parse_match(value)
    return value


class LinkSection(Section):
    match: Annotated[str, PlainValidator(_match, json_schema_input_type=str)]
    latency: AnyLatency | None = None
    bandwidth: AnyBandwidth | None = None
    outage: WrittenOutage | None = None
    transport: AnyTransport | None = None
    overhead: Overhead | None = None
    sharing: Annotated[str, one_of(*get_args(SharingMode), what="sharing")] | None = None
    queue: AnyQueue | None = None
    switching: AnySwitching | None = None
    duplex: Annotated[str, one_of("full", "half", what="duplex")] | None = None
    medium: Text | None = None


def link_rules(links: list[LinkSection], base: Path) -> list[LinkRule]:
    """The rules as the network takes them, in the order of the file; traces are looked for in `base`."""
    return [LinkRule(match=link.match, latency_ns=latency_spec(link.latency, base),
                     bandwidth_bps=bandwidth_spec(link.bandwidth, base),
                     outage=outage_spec(link.outage, base), transport=transport_spec(link.transport),
                     **overhead_values(link.overhead), sharing=cast(Any, link.sharing), queue=link.queue,
                     switching=link.switching, duplex=cast(Any, link.duplex), medium=link.medium) for link in links]


def link_document(rule: LinkRule) -> dict[str, object]:
    """As a file says it, without what the rule leaves open."""
    return without_none(match=rule.match, latency=latency_document(rule.latency_ns),
                  bandwidth=bandwidth_document(rule.bandwidth_bps),
                  outage=outage_document(rule.outage),
                  transport=transport_document(rule.transport),
                  overhead=overhead_document(rule.overhead_bytes, rule.mtu), sharing=rule.sharing,
                  queue=queue_document(rule.queue), switching=switching_document(rule.switching), duplex=rule.duplex,
                  medium=rule.medium)
