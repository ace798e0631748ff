"""Framing: what a packet costs on top of its share of a message, by name.

Three sizes of a message are kept apart. *Payload* is its encoded frames. *Framed* adds the envelope of 16 bytes: what
a link is offered, and what an `mtu` cuts into packets. *Wire* adds the overhead of every packet: what takes time on the
link, and what `wire_bytes` counts.

A packet of IPv4 is at most 1500 B on Ethernet: 20 B of IPv4 and 20 B of TCP with 12 B of timestamps leave 1448 B of a
message, 8 B of UDP leave 1472 B. Ethernet adds a header of 14 B, and on the line 4 B of FCS, 8 B of preamble and 12 B
of gap between frames: 1538 B. Linux' traffic control counts the header only: 1514 B (what a `tbf` or `htb` at a given
rate lets through).
"""

from __future__ import annotations

from dataclasses import dataclass

_IPV4, _TCP, _TIMESTAMPS, _UDP = 20, 20, 12, 8
_ETHERNET, _LINE = 14, 4 + 8 + 12
_PACKET = 1500


@dataclass(frozen=True, slots=True)
class Framing:
    """Each `mtu` bytes of a message, the last ones too, cost `overhead_bytes` more."""

    overhead_bytes: int
    mtu: int


def _framing(transport: int, below: int) -> Framing:
    headers = _IPV4 + transport
    return Framing(headers + below, _PACKET - headers)


PRESETS: dict[str, Framing] = {
    "ipv4_tcp": _framing(_TCP + _TIMESTAMPS, 0),
    "ipv4_udp": _framing(_UDP, 0),
    "tc_tcp": _framing(_TCP + _TIMESTAMPS, _ETHERNET),
    "tc_udp": _framing(_UDP, _ETHERNET),
    "ethernet_tcp": _framing(_TCP + _TIMESTAMPS, _ETHERNET + _LINE),
    "ethernet_udp": _framing(_UDP, _ETHERNET + _LINE),
}
