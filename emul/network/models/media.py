"""Media: radio cells whose links share time, not bits. A station at a low rate takes longer for the same bytes.

A medium has seconds: the sum over its flows of x_j / r_j is at most eta(n). x_j is the rate of a flow, r_j that of its
link, n the number of stations with something to send, and eta the share of time in which bits are sent at all.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, get_args

Fairness = Literal["throughput", "airtime"]
FAIRNESS: tuple[str, ...] = get_args(Fairness)
PACKET_BYTES = 1500         # of a link that says no `mtu`


@dataclass(frozen=True, slots=True)
class MediumSpec:
    """One of the `media` of a scenario.

    fair "throughput": all flows get the same rate (802.11 without airtime fairness; Heusse et al. 2003). "airtime": all
    stations get the same time, which the flows of a station share (Linux since Hoiland-Jorgensen et al. 2017,
    proportional fair schedulers of cellular networks; Li et al. 2008).
    efficiency: (stations, eta), ascending by stations, eta in (0, 1]. per_packet_ns: the time that each packet costs
    beside its bits.
    """

    name: str
    fair: Fairness
    efficiency: tuple[tuple[int, float], ...]
    per_packet_ns: int = 0

    def share(self, stations: int) -> float:
        """eta(n): linear between the numbers of stations that are given, constant beyond them."""
        table = self.efficiency
        i = bisect_right(table, stations, key=lambda one: one[0])
        if i == 0 or i == len(table):
            return table[max(0, i - 1)][1]
        (n0, low), (n1, high) = table[i - 1], table[i]
        return low + (high - low) * (stations - n0) / (n1 - n0)

    def seconds_a_bit(self, mtu: int | None) -> float:
        """The share of `per_packet` that a bit takes, in s, in packets of `mtu` bytes (None: 1,500)."""
        return self.per_packet_ns / 1e9 / (8 * (mtu or PACKET_BYTES))

    def alone_bps(self, rate_bps: float, mtu: int | None) -> float:
        """The rate of the only flow of the only station, over a link of this rate and `mtu`."""
        return self.share(1) / (1 / rate_bps + self.seconds_a_bit(mtu))
