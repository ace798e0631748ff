"""Framing presets against the figures of Ethernet, IPv4, TCP and UDP."""

from __future__ import annotations

import pytest

from emul.network import Link
from emul.network.links.framing import PRESETS


@pytest.mark.parametrize(("name", "mtu", "packet"), [
    ("ipv4_tcp", 1448, 1500), ("ipv4_udp", 1472, 1500), ("tc_tcp", 1448, 1514), ("tc_udp", 1472, 1514),
    ("ethernet_tcp", 1448, 1538), ("ethernet_udp", 1472, 1538)])
def test_a_full_packet_has_the_size_of_its_layer(name, mtu, packet):
    preset = PRESETS[name]
    link = Link(0, 1, overhead_bytes=preset.overhead_bytes, mtu=preset.mtu)
    assert (preset.mtu, link.wire_bytes(mtu), link.wire_bytes(10 * mtu)) == (mtu, packet, 10 * packet)


def test_the_goodput_of_tcp_is_what_the_kernel_shows():
    """Of a line 1448 / 1538 = 0.9415, of a rate of `tc` 1448 / 1514 = 0.9564."""
    shares = [PRESETS[name].mtu / (PRESETS[name].mtu + PRESETS[name].overhead_bytes) for name in ("ethernet_tcp",
                                                                                                  "tc_tcp")]
    assert shares == pytest.approx([0.9415, 0.9564], abs=5e-5)
