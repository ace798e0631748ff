"""The packets of TCP's messages that links lose: by position among the transmissions, as keyed draws.

A link draws for each message: the stream is keyed by the link's ends, the message's source and target, its round, and
its number among those of that pair in that round on this link. The losses of one message say nothing of another's and
do not depend on what was sent before: all schemes of a scenario meet the same. The draws are noted, for the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from emul.base.streams import key64
from emul.network.linkrecord import BeyondRecord, PacketRow
from emul.network.models.outages import Outage, Timed

if TYPE_CHECKING:
    from emul.network.recorded import Realisation

PacketKey = tuple[int, int, int, int]       # source and target of the message (vertices), its round, its number there
_NEVER = 1 << 62


class LinkFates:
    """The fates of one message's transmissions on one link, in their order."""

    __slots__ = ("_lost", "_next", "_noted", "_timed", "_tried")

    def __init__(self, lost: Iterator[int], noted: list[int], timed: Timed | None):
        self._lost = lost
        self._next = next(lost, _NEVER)
        self._noted = noted
        self._timed = timed
        self._tried = 0

    def among(self, now: float, positions: Sequence[int]) -> tuple[list[int], Sequence[int]]:
        """Of these positions in a train: those lost, and those that pass."""
        if self._timed is not None and not self._timed.states.up_at(int(now)):
            return list(positions), ()                  # the whole train at its time
        first, self._tried = self._tried, self._tried + len(positions)
        if self._next >= self._tried:
            return [], positions
        lost = []
        while self._next < self._tried:
            lost.append(positions[self._next - first])
            self._noted.append(self._next)
            self._next = next(self._lost, _NEVER)
        gone = set(lost)
        return lost, [position for position in positions if position not in gone]

    def clear(self) -> int:
        return 0 if self._timed is not None else self._next - self._tried


class RowFates:
    """The fates of one message on the links of its row, as `Connection` asks for them."""

    __slots__ = ("_links",)

    def __init__(self, links: Sequence[LinkFates]):
        self._links = links

    def lost(self, now_ns: float, count: int) -> list[int]:
        """The positions lost among the next `count` transmissions; a later link sees only what has come so far."""
        found: list[int] = []
        left: Sequence[int] = range(count)
        for link in self._links:
            lost, left = link.among(now_ns, left)
            found += lost
        found.sort()
        return found

    def clear(self) -> int:
        """So many of the next transmissions pass all links."""
        return min(link.clear() for link in self._links)


class PacketFates:
    """The draws of one link for TCP's messages. `lost`: what has been drawn, by message.

    names: of vertices. recorded: asked first.
    """

    def __init__(self, seed: int, source: str, destination: str, names: Sequence[str],
                 recorded: Realisation | None = None):
        self._seed = seed
        self._ends = source, destination
        self.name = f"link {source} -> {destination}"
        self._names = names
        held = None if recorded is None else recorded.links.get((source, destination))
        self._record = held if held is not None and held.lost_packets else None
        self._refuses = recorded is not None and recorded.beyond == "error"
        self._repeats = recorded is not None and recorded.beyond == "repeat"
        self._counts: dict[tuple[int, int, int], int] = {}
        self.lost: dict[PacketKey, list[int]] = {}

    def realised(self) -> Iterator[PacketRow]:
        """The rows of the record: one for each transmission lost; of a message that lost none one without a value."""
        for (source, target, round, k), lost in sorted(self.lost.items()):
            numbers: list[int | None] = [*lost] or [None]
            for number in numbers:
                yield (*self._ends, "lost_packet", round, k, None, None, number, self._names[source],
                       self._names[target])

    def message(self, outage: Outage | None, source: int, target: int, round: int) -> LinkFates | None:
        """The fates of the next message of this pair in this round; None: all passes."""
        told = self._record is not None
        timed = outage if isinstance(outage, Timed) else None
        if outage is None and not told:
            return None
        if timed is not None and not told:
            return LinkFates(iter(()), [], timed)
        place = source, target, round
        k = self._counts.get(place, 0)
        self._counts[place] = k + 1
        noted = self.lost[source, target, round, k] = []
        return LinkFates(self._draws(outage, source, target, round, k), noted, timed)

    def _draws(self, outage: Outage | None, source: int, target: int, round: int, k: int) -> Iterator[int]:
        ends = self._names[source], self._names[target]
        if self._record is not None:
            held = self._record.packets_lost(*ends, round, k, self._repeats)
            if held is not None:
                return iter(held)
        if self._refuses:
            raise BeyondRecord(f"{self.name}: the lost packets of message {k} of round {round} "
                               f"from {ends[0]} to {ends[1]} are not in the record (beyond: error)")
        draw: Callable[[int], Iterator[int]] | None = getattr(outage, "lost_packets", None)
        if draw is None:
            return iter(())
        return draw(key64(self._seed, "tcp", *self._ends, *ends, round, k))

