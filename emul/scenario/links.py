"""`links`: rules for latency, bandwidth, transport, queue, overhead and switching; models, the specifications they
stand for, and back to YAML. An outage is in `outages`: faults have one, too.

An entry of the file is a `LinkSection`, whose fields are checked one by one as they are read. `link_rules` makes each a
`LinkRule` in the units of the network; `emul.network.rules` says which rules a link gets, and `emul.network.network`
makes the link. `emul.scenario.load` has the whole way on one page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import PlainValidator

from emul.base.plain import PlainDict
from emul.base.units import duration_ns, format_bandwidth, format_duration, format_size, size_bytes
from emul.network import Arq, LinkRule, Queue, Switching, TcpStack, parse_match
from emul.network.links.connections import CONGESTIONS
from emul.network.links.framing import PRESETS
from emul.network.links.transport import ARQ_MODES, UNLIMITED_RETRIES
from emul.network.models.latency import AROUND, EmpiricalSpec, JitterSpec, LatencySpec, LatencyTraceSpec, LognormalSpec
from emul.network.models.traceformats import FORMATS, GAPS
from emul.network.models.traces import TraceSpec
from emul.network.rules import SharingMode
from emul.scenario.outages import WrittenOutage, outage_document, outage_spec
from emul.scenario.sections import (
    Count,
    Duration,
    Flag,
    Positive,
    PositiveDuration,
    PositiveSize,
    Probability,
    Quantity,
    Section,
    Stay,
    Text,
    Written,
    absolute,
    bandwidth,
    duration_text,
    exactly_one,
    file_digest,
    given,
    number,
    one_of,
    unit,
    without_none,
)
from emul.scenario.wording import MISSING, Finding, nearest

# ---- bandwidth ----

class BandwidthTrace(Section):
    # A file, looked for beside the scenario.
    trace: Text
    # [by its name] `csv`, `mahimahi` (`.up`, `.down`), `simgrid` (`.profile`), `plain`, `bytelog` or `iperf`
    # (`.json`).
    format: Annotated[str, one_of(*FORMATS, what="format")] | None = None
    # [false] Not of Mahimahi and SimGrid. `true`: it begins anew at the time of its last row, whose own rate then has
    # no meaning. Else the last rate holds for ever. `emul trace summary` tells how long the loop is, and `emul check`
    # where the last row has another rate than the first.
    loop: Flag | None = None
    # [the last time] With `loop`: it begins anew later, so that the last row holds for a time.
    period: Stay | None = None
    # The name of a trace, in a CSV file with the column `trace`.
    name: Text | None = None
    # `drawn`: each link follows a trace of its own.
    take: Annotated[str, one_of("drawn", what="way")] | None = None
    # [1] Every rate is multiplied by it.
    scale: Positive | None = None
    # Of a CSV file: the column of times, such as `"seq_num [s]"`.
    time: Text | None = None
    # Of a CSV file: the column of rates, with its unit where the header has none: `"DL_bitrate [kbit/s]"`. Needed
    # where several columns are rates, and none of them alone is called `bandwidth`.
    column: Text | None = None
    # [error] The rule for rows and times without a rate: `hold` (the one before goes on) or `off` (0).
    gaps: Annotated[str, one_of(*GAPS, what="rule")] | None = None
    # Of the file. A resolved scenario has it; if it is given, the file must be that one.
    sha256: Text | None = None


def bandwidth_value(value: object) -> int | str | BandwidthTrace:
    """A constant in bit/s, "infinite", or a trace."""
    return BandwidthTrace.model_validate(value) if isinstance(value, dict) else bandwidth(value)


AnyBandwidth = Annotated[BandwidthTrace | int | str, PlainValidator(
    bandwidth_value, json_schema_input_type=BandwidthTrace | Quantity | Literal["infinite"])]


def bandwidth_spec(value: int | str | BandwidthTrace | None, base: Path) -> Any:
    """The bandwidth as the network takes it; a file is looked for in `base`."""
    if not isinstance(value, BandwidthTrace):
        return value
    return TraceSpec(cast(Path, absolute(value.trace, base)), value.format, value.loop, value.period, value.name,
                     value.sha256, value.take == "drawn", scale=value.scale or 1.0, time=value.time,
                     column=value.column, gaps=value.gaps)


def bandwidth_document(value: object) -> object:
    """A constant as text, a trace with the digest of its file; read again it is the same."""
    if isinstance(value, TraceSpec):
        return without_none(trace=str(value.file), format=value.format, loop=value.loop,
                            period=duration_text(value.period_ns), name=value.name,
                            take="drawn" if value.drawn else None,
                            scale=None if value.scale == 1 else value.scale, time=value.time, column=value.column,
                            gaps=value.gaps, sha256=file_digest(value.file))
    return format_bandwidth(value) if isinstance(value, int) else value


# ---- latency ----

# distribution -> the keys that it needs; all use `min` and `reorder`
_KEYS: dict[str, tuple[str, ...]] = {**{name: ("mean", "jitter") for name in AROUND}, "lognormal": ("median", "sigma"),
                                     "empirical": ("file",), "trace": ("file",)}


class LatencySection(Section):
    # `uniform`, `normal`, `pareto`, `paretonormal`, `lognormal`, `empirical`, or `trace`: a latency over time,
    # without a draw.
    distribution: Annotated[str, one_of(*_KEYS, what="distribution")]
    # [needed] As netem takes them: `uniform` is mean +- jitter, the others a table of netem times jitter.
    mean: Duration | None = None
    # [needed] As netem takes them: `uniform` is mean +- jitter, the others a table of netem times jitter.
    jitter: Duration | None = None
    # [needed] `lognormal`: median * exp(sigma * normal); sigma is a number.
    median: PositiveDuration | None = None
    # [needed] `lognormal`: median * exp(sigma * normal); sigma is a number.
    sigma: Annotated[float, number("a number above 0, at most 20", lambda x: 0 < x <= 20)] | None = None
    # [needed] `empirical`: a CSV file with the column `latency_ms` (`latency_s`, ...), or `quantile` and
    # `latency_ms`. `trace`: the columns `t_s` and `latency_ms`; a row holds until the next one, the first counts as
    # 0, and the end of a transmission decides. A column `rtt_ms` in place of `latency_ms`, and what `ping` prints
    # (`ping -D` for a `trace`), are round trips: half of each counts.
    file: Text | None = None
    # [false] `trace`: it begins anew at the time of its last row.
    loop: Flag | None = None
    # [0] No draw is less.
    min: Duration | None = None
    # [false] `true`: a message may overtake an earlier one. `false`: messages arrive in the order in which they were
    # sent. The packets of one message are never reordered.
    reorder: Flag | None = None

    def wrong(self) -> list[Finding]:
        """Keys that its distribution needs and has not, or has and does not use."""
        needs = _KEYS[self.distribution]
        found: list[Finding] = [((name,), MISSING, f"is needed by distribution: {self.distribution}")
                                for name in needs if getattr(self, name) is None]
        useless = [name for name in given(self, "mean", "jitter", "median", "sigma", "file") if name not in needs]
        useless += given(self, "reorder") if self.distribution == "trace" else given(self, "loop")
        return found + [((name,), "", f"is not used by distribution: {self.distribution}") for name in useless]


def latency_value(value: object) -> int | LatencySection:
    """A constant in ns, or a distribution."""
    return LatencySection.model_validate(value) if isinstance(value, dict) else duration_ns(value)


AnyLatency = Annotated[LatencySection | int,
                       PlainValidator(latency_value, json_schema_input_type=LatencySection | Quantity)]


def latency_spec(value: int | LatencySection | None, base: Path) -> int | LatencySpec | None:
    """The latency as the network takes it; a file is looked for in `base`."""
    if not isinstance(value, LatencySection):
        return value
    if value.distribution == "trace":
        return LatencyTraceSpec(cast(Path, absolute(value.file, base)), bool(value.loop), value.min or 0)
    common = value.min or 0, bool(value.reorder)
    if value.file is not None:
        return EmpiricalSpec(cast(Path, absolute(value.file, base)), *common)
    if value.median is not None and value.sigma is not None:
        return LognormalSpec(value.median, value.sigma, *common)
    return JitterSpec(cast(Any, value.distribution), value.mean or 0, value.jitter or 0, *common)


def latency_document(spec: int | LatencySpec | None) -> object:
    """A constant as text, a distribution as a mapping; None where nothing is said."""
    if spec is None or isinstance(spec, int):
        return duration_text(spec)
    if isinstance(spec, LatencyTraceSpec):
        return without_none(distribution="trace", file=str(spec.file), loop=spec.loop or None,
                            min=duration_text(spec.min_ns or None))
    if isinstance(spec, EmpiricalSpec):
        said = without_none(distribution="empirical", file=str(spec.file))
    elif isinstance(spec, LognormalSpec):
        said = without_none(distribution="lognormal", median=format_duration(spec.median_ns), sigma=spec.sigma)
    else:
        said = without_none(distribution=spec.distribution, mean=format_duration(spec.mean_ns),
                            jitter=format_duration(spec.jitter_ns))
    return said | without_none(min=duration_text(spec.min_ns or None), reorder=spec.reorder or None)


# ---- overhead ----

def _packet_bytes(value: object) -> int:
    # the key is the unit, so a plain number says all
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else size_bytes(value)


class Overhead(Section):
    # [needed] Per packet, e.g. 28 for IPv4 and UDP; here a bare number is bytes.
    bytes: Annotated[int, PlainValidator(_packet_bytes, json_schema_input_type=Written)] | None = None
    # [one packet] Bytes of a message that fit a packet, e.g. `1472 B`.
    mtu: PositiveSize | None = None
    # In place of both: `ipv4_tcp` (52 B, 1448 B), `ipv4_udp` (28 B, 1472 B); with the header of Ethernet, as Linux'
    # `tc` counts, `tc_tcp` (66 B), `tc_udp` (42 B); with FCS, preamble and gap, too, `ethernet_tcp` (90 B),
    # `ethernet_udp` (66 B): 1538 B a full packet.
    preset: Annotated[str, one_of(*PRESETS, what="preset")] | None = None

    def wrong(self) -> list[Finding]:
        """Neither bytes nor a preset, or a preset beside what it decides."""
        if self.preset is None:
            return [] if self.bytes is not None else [(("bytes",), MISSING, "is needed, or a preset")]
        return [((name,), "", "is not used with a preset, which has its own")
                for name in given(self, "bytes", "mtu")]


def overhead_values(overhead: Overhead | None) -> PlainDict:
    """As fields of a LinkRule."""
    if overhead is None:
        return {}
    if overhead.preset is not None:
        preset = PRESETS[overhead.preset]
        return {"overhead_bytes": preset.overhead_bytes, "mtu": preset.mtu}
    return {"overhead_bytes": overhead.bytes, "mtu": overhead.mtu}


def overhead_document(overhead_bytes: int | None, mtu: int | None) -> dict[str, object] | None:
    """As a file says it, a preset as its numbers."""
    if overhead_bytes is None:
        return None
    return without_none(bytes=overhead_bytes, mtu=None if mtu is None else format_size(mtu))


# ---- transport ----

def _timeout(value: object) -> int | str:
    if value == "auto":
        return "auto"
    ns = duration_ns(value)
    if ns < 1:
        raise ValueError("expected more than 0, or auto")
    return ns


def _retries(value: object) -> int | str:
    if value == "unlimited":
        return "unlimited"
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < UNLIMITED_RETRIES:
        raise ValueError(f"expected a whole number in 0..{UNLIMITED_RETRIES - 1}, or unlimited")
    return value


_ARQ_KEYS = ("rto", "retries", "ack_loss", "mtu")


def _buffer(value: object) -> int | str:
    return "unlimited" if value == "unlimited" else size_bytes(value)


class TcpKeys(Section):
    """`tcp: {...}`: connections with windows."""

    # [cubic] `cubic` or `reno`.
    congestion: Annotated[str, one_of(*CONGESTIONS, what="congestion")] | None = None
    # [10] Packets that a new connection may have under way.
    initial_window: Count | None = None
    # [true] After silence the window halves for each timeout of it.
    idle_restart: bool | None = None
    # [unlimited] Bytes that wait in the queue of this link at most: of each connection, with `tcp_fifo` of all
    # together. The link of a route that is the slowest while a train is under way counts. The sender's own first link
    # drops nothing, because it holds back the sender.
    buffer: Annotated[int | str, PlainValidator(_buffer, json_schema_input_type=Written)] | None = None
    # [200 ms] The timeout is a round trip and this much.
    rto_min: Annotated[int, unit(duration_ns, 1)] | None = None
    # [true] `cubic` ends slow start when acknowledgements come late, before packets are lost.
    hystart: bool | None = None
    # [true] A probe finds out that the end of a message was lost, earlier than the timeout would.
    tlp: bool | None = None
    # [2] Packets that one acknowledgement is for.
    delayed_ack: Count | None = None
    # [1448 B] Bytes of a message in a packet.
    mss: PositiveSize | None = None
    # [false] The first message of a connection waits one round trip for the handshake.
    setup: bool | None = None
    # [1] Connections from one node to another. A message goes out on the one that has the fewest messages to send.
    connections: Count | None = None


def _tcp(value: object) -> TcpKeys:
    if isinstance(value, dict):
        return TcpKeys.model_validate(value)
    raise ValueError("expected a mapping such as {congestion: cubic}" + (nearest(str(value), ()) if value else ""))


class Transport(Section):
    # `stop_and_wait` or `selective_repeat`: the link sends lost messages or packets again.
    arq: Annotated[str, one_of(*ARQ_MODES, what="ARQ")] | None = None
    # [auto] `arq`: the time after the end of a transmission at which it counts as lost; `auto`, and at least, the way
    # there and back.
    rto: Annotated[int | str, PlainValidator(_timeout, json_schema_input_type=Written)] | None = None
    # [16] `arq`: how often a message (or packet) is sent again at most; `unlimited`, which is 4095 times.
    retries: Annotated[int | str, PlainValidator(_retries, json_schema_input_type=Written)] | None = None
    # [0] `arq`: the probability that an acknowledgement is lost.
    ack_loss: Probability | None = None
    # [`overhead.mtu`, or 1448 B] `selective_repeat`: the size of a packet.
    mtu: PositiveSize | None = None
    # Connections with windows, round trip by round trip.
    tcp: Annotated[Any, PlainValidator(_tcp, json_schema_input_type=TcpKeys)] | None = None

    def wrong(self) -> list[Finding]:
        """Not one of arq and tcp; else keys that it does not use."""
        found = exactly_one(self, "arq", "tcp")
        if found:
            return found
        if self.tcp is not None:
            return [((name,), "", "is not used by tcp: {...}, which has its own keys")
                    for name in given(self, *_ARQ_KEYS)]
        if self.arq == "stop_and_wait" and self.mtu is not None:
            return [(("mtu",), "", "is not used by arq: stop_and_wait")]
        return []


def transport_value(value: object) -> object:
    """datagram, reliable, or a Transport."""
    if isinstance(value, dict):
        return Transport.model_validate(value)
    if value not in ("datagram", "reliable"):
        near = nearest(value, ("datagram", "reliable")) if isinstance(value, str) else ""
        raise ValueError("expected datagram, reliable, or a mapping such as {arq: stop_and_wait, rto: 200 ms}" + near)
    return value


AnyTransport = Annotated[Any, PlainValidator(transport_value, json_schema_input_type=Transport | str | PlainDict)]


def transport_spec(value: Any) -> Literal["datagram"] | Arq | TcpStack | None:
    """The transport as the network takes it; "reliable" is `Arq` with its defaults."""
    if value is None or value == "datagram":
        return cast(Any, value)
    if value == "reliable":
        return Arq()
    if value.arq is not None:
        rto = None if value.rto == "auto" else value.rto
        retries = Arq().retries if value.retries is None else None if value.retries == "unlimited" else value.retries
        return Arq(value.arq, rto, retries, value.ack_loss or 0.0, value.mtu)
    names = {"buffer": "buffer_bytes", "rto_min": "rto_min_ns"}
    said = {names.get(name, name): said for name in TcpKeys.model_fields
            if (said := getattr(value.tcp, name)) not in (None, "unlimited")}
    return TcpStack(**said)


def transport_document(spec: Any) -> object:
    """As a file says it."""
    if spec is None or isinstance(spec, str):
        return spec
    if isinstance(spec, TcpStack):
        return {"tcp": {"congestion": spec.congestion, "initial_window": spec.initial_window,
                        "idle_restart": spec.idle_restart,
                        "buffer": "unlimited" if spec.buffer_bytes is None else format_size(spec.buffer_bytes),
                        "rto_min": format_duration(spec.rto_min_ns), "hystart": spec.hystart, "tlp": spec.tlp,
                        "delayed_ack": spec.delayed_ack, "mss": format_size(spec.mss), "setup": spec.setup,
                        **({} if spec.connections == 1 else {"connections": spec.connections})}}
    if spec == Arq():
        return "reliable"
    return without_none(arq=spec.mode, rto=duration_text(spec.rto_ns),
                        retries="unlimited" if spec.retries is None else spec.retries,
                        ack_loss=spec.ack_loss or None, mtu=None if spec.mtu is None else format_size(spec.mtu))


# ---- queue ----

_QUEUE = "expected a size such as 64 kB, a number such as 100 packets, or unlimited"


def queue_value(value: object) -> Queue | str:
    """64 kB, 100 packets or unlimited."""
    if value == "unlimited":
        return "unlimited"
    match = re.fullmatch(r"(\d{1,18}) ?packets?", value, re.ASCII) if isinstance(value, str) else None
    if match is not None:
        return Queue(int(match[1]), "packets")
    try:
        return Queue(size_bytes(value), "bytes")
    except ValueError as error:
        hint = str(error).partition(": ")[2] or str(error).partition("; ")[2]
        raise ValueError(_QUEUE + (f": {hint}" if hint else "")) from None


AnyQueue = Annotated[Any, PlainValidator(queue_value, json_schema_input_type=Written | PlainDict)]


def queue_document(queue: Queue | str | None) -> str | None:
    if not isinstance(queue, Queue):
        return queue
    return f"{queue.limit} packets" if queue.unit == "packets" else format_size(queue.limit)


# ---- switching ----

_SWITCHING = ("store_and_forward", "cut_through", "packetized")


class Packetized(Section):
    # `{packetized: 1500 B}`: the size of a packet where `overhead.mtu` does not say it.
    packetized: PositiveSize


def switching_value(value: object) -> Switching | str:
    """store_and_forward, cut_through, packetized or {packetized: 1500 B}."""
    if isinstance(value, dict):
        return Switching("packetized", Packetized.model_validate(value).packetized)
    if not isinstance(value, str):
        raise ValueError(f"expected one of {', '.join(_SWITCHING)}, or {{packetized: 1500 B}}")
    if value not in _SWITCHING:
        raise ValueError(f"unknown switching{nearest(value, _SWITCHING)}")
    return value if value == "store_and_forward" else Switching(cast(Any, value))


AnySwitching = Annotated[Any, PlainValidator(switching_value, json_schema_input_type=str | dict[str, Packetized])]


def switching_document(switching: Switching | str | None) -> object:
    """As a file says it."""
    if not isinstance(switching, Switching):
        return switching
    return switching.mode if switching.mtu is None else {"packetized": format_size(switching.mtu)}


# ---- a rule ----

BANDWIDTH_NAMES = ("bandwidth", "capacity", "bw", "datarate", "rate")


def _match(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError('expected text such as "client*->server"')
    parse_match(value)
    return value


class LinkSection(Section):
    # The links: `"a->b"` one direction, `"a<->b"` both, `"*"` all.
    match: Annotated[str, PlainValidator(_match, json_schema_input_type=str)]
    # [0, or the file's] One way, for each direction: a duration, or a distribution.
    latency: AnyLatency | None = None
    # [infinite] Of each direction; `infinite` says so; or a trace. `capacity`, `bw`, `datarate` and `rate` are other
    # names of it.
    bandwidth: AnyBandwidth | None = None
    # [none] A model of losses.
    outage: WrittenOutage | None = None
    # [datagram] `datagram`: a lost message is lost. `reliable`: the link sends it again. Or a mapping.
    transport: AnyTransport | None = None
    # [none] Bytes that each packet costs on top.
    overhead: Overhead | None = None
    # [fifo] `fifo`: one message after the other. `maxmin`: messages that are under way at the same time share the
    # bandwidth fairly, over all links of their routes at once. `connections`: as `maxmin`, and the messages of one node
    # to another follow each other, as over a TCP connection that both keep. `tcp_fifo`: each link is one queue of the
    # packets of all connections; needs `transport: {tcp: {...}}`.
    sharing: Annotated[str, one_of(*get_args(SharingMode), what="sharing")] | None = None
    # [unlimited] The most that may wait: `64 kB` or `100 packets`. A message that finds the queue full is lost
    # (drop-tail).
    queue: AnyQueue | None = None
    # [store_and_forward] The part of a message that must have crossed before it goes on over the next link: all, the
    # first byte (`cut_through`), or the first packet (`packetized`).
    switching: AnySwitching | None = None
    # [none] The name of one of the media: a radio cell whose time the link shares with others.
    medium: Text | None = None


def link_rules(links: list[LinkSection], base: Path) -> list[LinkRule]:
    """The rules as the network takes them, in the order of the file; traces are looked for in `base`."""
    return [LinkRule(match=link.match, latency_ns=latency_spec(link.latency, base),
                     bandwidth_bps=bandwidth_spec(link.bandwidth, base),
                     outage=outage_spec(link.outage, base), transport=transport_spec(link.transport),
                     **overhead_values(link.overhead), sharing=cast(Any, link.sharing), queue=link.queue,
                     switching=link.switching, medium=link.medium) for link in links]


def link_document(rule: LinkRule) -> dict[str, object]:
    """As a file says it, without what the rule leaves open."""
    return without_none(match=rule.match, latency=latency_document(rule.latency_ns),
                  bandwidth=bandwidth_document(rule.bandwidth_bps),
                  outage=outage_document(rule.outage),
                  transport=transport_document(rule.transport),
                  overhead=overhead_document(rule.overhead_bytes, rule.mtu), sharing=rule.sharing,
                  queue=queue_document(rule.queue), switching=switching_document(rule.switching),
                  medium=rule.medium)
