"""Features of a link besides a constant latency and rate, as values: latencies, a limit of what waits, switching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from emul.base.plain import is_count

Finding = tuple[str, str, str]      # place, found, expected


class Delay(Protocol):
    """A latency that is drawn, in ns; never below `least_ns`."""

    least_ns: int
    typical_ns: int
    reorder: bool

    def draw(self, round: int, k: int) -> int:
        """Of the k-th message of a round."""
        ...


@dataclass(frozen=True, slots=True)
class Queue:
    """The limit of a queue: `limit` wire bytes or packets. M/M/1/K is messages of one packet and a queue of K - 1."""

    limit: int
    unit: Literal["bytes", "packets"] = "bytes"

    def problems(self) -> list[Finding]:
        """Its mistakes, if there are any."""
        found = [] if is_count(self.limit, 0) else [("limit", repr(self.limit), "expected a whole number, 0 or more")]
        if self.unit not in ("bytes", "packets"):
            found.append(("unit", repr(self.unit), "expected bytes or packets"))
        return found


@dataclass(frozen=True, slots=True)
class Switching:
    """The part of a message that must have crossed before it goes on: its first byte, or first packet of `mtu` bytes.

    mtu None: that of the link's overhead; where there is none, a message is one packet.
    """

    mode: Literal["cut_through", "packetized"]
    mtu: int | None = None

    def problems(self) -> list[Finding]:
        """Its mistakes, if there are any."""
        found = []
        if self.mode not in ("cut_through", "packetized"):
            found.append(("mode", repr(self.mode), "expected cut_through or packetized"))
        if self.mtu is not None and (self.mode != "packetized" or not is_count(self.mtu, 1)):
            found.append(("mtu", repr(self.mtu), "expected a whole number of bytes, 1 or more, of packetized"))
        return found
