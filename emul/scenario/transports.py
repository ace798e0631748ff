"""`transport`, `queue`, `switching` and `overhead` of links: their models, what they stand for, and back to YAML."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, cast

from pydantic import PlainValidator

from emul.base.plain import PlainDict
from emul.base.units import duration_ns, format_duration, format_size, size_bytes
from emul.network import Arq, Queue, Switching, TcpCap, TcpStack
from emul.network.links.connections import CONGESTIONS
from emul.network.links.framing import PRESETS
from emul.network.links.transport import ARQ_MODES, TCP_FORMULAS, UNLIMITED_RETRIES
from emul.scenario.sections import Section, exactly_one, given, without_none
from emul.scenario.values import Count, PositiveSize, Probability, Written, one_of, unit
from emul.scenario.wording import MISSING, Finding, nearest

# ---- overhead ----

def _packet_bytes(value: object) -> int:
    # the key is the unit, so a plain number says all
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else size_bytes(value)


class Overhead(Section):
    bytes: Annotated[int, PlainValidator(_packet_bytes, json_schema_input_type=Written)] | None = None
    mtu: PositiveSize | None = None
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
_TCP_KEYS = ("rto", "mss", "b", "window")


def _buffer(value: object) -> int | str:
    return "unlimited" if value == "unlimited" else size_bytes(value)


class TcpKeys(Section):
    """`tcp: {...}`: connections with windows."""

    congestion: Annotated[str, one_of(*CONGESTIONS, what="congestion")] | None = None
    initial_window: Count | None = None
    idle_restart: bool | None = None
    buffer: Annotated[int | str, PlainValidator(_buffer, json_schema_input_type=Written)] | None = None
    rto_min: Annotated[int, unit(duration_ns, 1)] | None = None
    hystart: bool | None = None
    tlp: bool | None = None
    delayed_ack: Count | None = None
    mss: PositiveSize | None = None
    setup: bool | None = None


def _tcp(value: object) -> str | TcpKeys:
    """A formula, or a TcpKeys."""
    if isinstance(value, dict):
        return TcpKeys.model_validate(value)
    if value not in TCP_FORMULAS:
        near = nearest(value, TCP_FORMULAS) if isinstance(value, str) else ""
        raise ValueError(f"expected one of {', '.join(TCP_FORMULAS)}, or a mapping such as {{congestion: cubic}}{near}")
    return cast(str, value)


class Transport(Section):
    arq: Annotated[str, one_of(*ARQ_MODES, what="ARQ")] | None = None
    rto: Annotated[int | str, PlainValidator(_timeout, json_schema_input_type=Written)] | None = None
    retries: Annotated[int | str, PlainValidator(_retries, json_schema_input_type=Written)] | None = None
    ack_loss: Probability | None = None
    mtu: PositiveSize | None = None
    tcp: Annotated[Any, PlainValidator(_tcp, json_schema_input_type=Literal[TCP_FORMULAS] | TcpKeys)] | None = None
    mss: PositiveSize | None = None
    b: Count | None = None
    window: PositiveSize | None = None

    def wrong(self) -> list[Finding]:
        """Not one of arq and tcp; else keys that it does not use."""
        found = exactly_one(self, "arq", "tcp")
        if found:
            return found
        kind, uses = ("arq", list(_ARQ_KEYS)) if self.arq is not None else ("tcp", list(_TCP_KEYS))
        if isinstance(self.tcp, TcpKeys):
            return [((name,), "", "is not used by tcp: {...}, which has its own keys")
                    for name in given(self, *dict.fromkeys(_ARQ_KEYS + _TCP_KEYS))]
        if self.arq == "stop_and_wait":
            uses.remove("mtu")
        if self.tcp == "mathis":
            uses.remove("rto")
        word = getattr(self, kind)
        found = [((name,), "", f"is not used by {kind}: {word}")
                 for name in given(self, *dict.fromkeys(_ARQ_KEYS + _TCP_KEYS)) if name not in uses]
        if self.tcp is not None and self.rto == "auto":
            found.append((("rto",), "auto", "expected a duration: TCP's first timeout"))
        return found


def transport_value(value: object) -> object:
    """datagram, reliable, or a Transport."""
    if isinstance(value, dict):
        return Transport.model_validate(value)
    if value not in ("datagram", "reliable"):
        near = nearest(value, ("datagram", "reliable")) if isinstance(value, str) else ""
        raise ValueError("expected datagram, reliable, or a mapping such as {arq: stop_and_wait, rto: 200 ms}" + near)
    return value


AnyTransport = Annotated[Any, PlainValidator(transport_value, json_schema_input_type=Transport | str | PlainDict)]


def transport_spec(value: Any) -> Literal["datagram"] | Arq | TcpStack | TcpCap | None:
    """The transport as the network takes it; "reliable" is `Arq` with its defaults."""
    if value is None or value == "datagram":
        return cast(Any, value)
    if value == "reliable":
        return Arq()
    rto = None if value.rto == "auto" else value.rto
    if value.arq is not None:
        retries = Arq().retries if value.retries is None else None if value.retries == "unlimited" else value.retries
        return Arq(value.arq, rto, retries, value.ack_loss or 0.0, value.mtu)
    if isinstance(value.tcp, TcpKeys):
        names = {"buffer": "buffer_bytes", "rto_min": "rto_min_ns"}
        said = {names.get(name, name): said for name in TcpKeys.model_fields
                if (said := getattr(value.tcp, name)) not in (None, "unlimited")}
        return TcpStack(**said)
    spec = TcpCap(value.tcp)
    return TcpCap(value.tcp, value.mss or spec.mss, value.b or spec.b, rto, value.window)


def transport_document(spec: Any) -> object:
    """As a file says it."""
    if spec is None or isinstance(spec, str):
        return spec
    if isinstance(spec, TcpStack):
        return {"tcp": {"congestion": spec.congestion, "initial_window": spec.initial_window,
                        "idle_restart": spec.idle_restart,
                        "buffer": "unlimited" if spec.buffer_bytes is None else format_size(spec.buffer_bytes),
                        "rto_min": format_duration(spec.rto_min_ns), "hystart": spec.hystart, "tlp": spec.tlp,
                        "delayed_ack": spec.delayed_ack, "mss": format_size(spec.mss), "setup": spec.setup}}
    rto = None if spec.rto_ns is None else format_duration(spec.rto_ns)
    if isinstance(spec, TcpCap):
        return without_none(tcp=spec.formula, mss=format_size(spec.mss), b=spec.b, rto=rto,
                            window=None if spec.window is None else format_size(spec.window))
    if spec == Arq():
        return "reliable"
    return without_none(arq=spec.mode, rto=rto, retries="unlimited" if spec.retries is None else spec.retries,
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
