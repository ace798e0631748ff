"""The record of one link: rows by kind and index, and what is to be done beyond them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from emul.base.errors import RunError

Beyond = Literal["stream", "repeat", "error"]
BEYOND: tuple[str, ...] = get_args(Beyond)
Row: TypeAlias = tuple[str, str, str, int | None, int | None, int | None, int | None, float | None]
# of `lost_packet`, and of background along a route: the same, and the message's sender and receiver
PacketRow: TypeAlias = tuple[str, str, str, int | None, int | None, int | None, int | None, float | None, str | None,
                               str | None]


class BeyondRecord(RunError):
    """The run asked for a draw that its record does not hold, with beyond: error."""


@dataclass
class LinkRecord:
    """The rows of one link, by kind. Of `fates`, `packets`, `draws` and `states` a link has one at most."""

    name: str = ""                                                                  # source -> destination, for errors
    fates: dict[tuple[int, int | None], bool] = field(default_factory=dict)         # (round, k), (round, None)
    packets: dict[tuple[int, int | None], int | None] = field(default_factory=dict)
    draws: dict[tuple[int, int | None], float] = field(default_factory=dict)
    states: list[tuple[int, int | None, bool]] = field(default_factory=list)        # start, end, up; end to end from 0
    latencies: dict[tuple[int, int | None], int] = field(default_factory=dict)
    rates: list[tuple[int, int | None, int]] = field(default_factory=list)          # start, end, bit/s; as `states`
    background: list[tuple[int, int | None, int]] = field(default_factory=list)     # start, end, bit/s; as `rates`
    # of background messages and flows, by the vertices whose route they take, None for those of this link alone:
    # (when, bytes) in order, and (from, until, flows)
    arrivals: dict[tuple[str, str] | None, list[tuple[int, int]]] = field(default_factory=dict)
    greedy: dict[tuple[str, str] | None, list[tuple[int, int | None, int]]] = field(default_factory=dict)
    # of messages over TCP, by (sender, receiver, round, k): the transmissions that were lost, ascending
    lost_packets: dict[tuple[str, str, int, int], list[int]] = field(default_factory=dict)

    def packets_lost(self, sender: str, receiver: str, round: int, k: int, repeats: bool) -> list[int] | None:
        """The lost transmissions of a message; None: the record does not hold it. repeats: the record begins anew."""
        held = self.lost_packets
        found = held.get((sender, receiver, round, k))
        if found is not None or not repeats:
            return found
        rounds = sorted({at for source, target, at, _ in held if at and (source, target) == (sender, receiver)})
        if (sender, receiver, round, 0) not in held and round and rounds:
            round = rounds[(round - 1) % len(rounds)]
        numbers = sorted(at for *ends, of, at in held if (*ends, of) == (sender, receiver, round))
        return held[sender, receiver, round, numbers[k % len(numbers)]] if numbers else None

    def holds(self, what: str, round: int | None, k: int | None, start_ns: int | None) -> bool:
        """True if a draw of a run was in the record."""
        if what in ("up", "rate_bps", "background_bps"):
            rates: list[Any] = self.rates if what == "rate_bps" else self.background
            pieces = self.states if what == "up" else rates
            end = pieces[-1][1] if pieces else None if what == "rate_bps" else 0    # a rate is no draw of a model
            return end is None or (start_ns or 0) < end
        held: dict[str, Mapping[Any, Any]] = {"lost": self.fates, "first_lost_packet": self.packets,
                                              "draw": self.draws, "latency_ns": self.latencies}
        return (round, k) in held[what] or (round, None) in held[what]

    @property
    def least_latency_ns(self) -> int | None:
        """Of the messages of which it holds one; None where there are none."""
        return min(self.latencies.values(), default=None)
