"""`World`: the facts of a run that every role may know, and that a scheme's `check` asks before it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

from emul.base.errors import RoleError


class Contact(NamedTuple):
    """A span of time in which a link transmits, as the contact plan of the scenario has it."""

    start_s: float
    end_s: float                                # inf: the plan has no end
    rate_bps: int
    hop: int                                    # the number of the link on the way, 1 the first


class Surroundings(Protocol):
    """The topology as nodes know it; nodes are numbers."""

    def neighbours(self, node: int) -> list[int]:
        """The nodes to which a way leads from `node` on which no other node lies, ascending."""
        ...

    def latency_ns(self, node: int, other: int) -> int:
        """Of the way to `other`: the median latencies of its links."""
        ...

    def hops(self, node: int, other: int) -> int:
        """The number of links on the way to `other`."""
        ...

    def contacts(self, node: int, other: int, from_ns: int) -> Iterator[tuple[int, int | None, int, int]] | None:
        """(start, end, bit/s, which link of the way, 1 the first) of contacts that have not ended at `from_ns`.

        By start, then by link; an end of None is the end of time. None: no link of the way has contacts.
        """
        ...

    @property
    def planned(self) -> bool:
        """True if some link has contacts."""
        ...

    def arrivals(self, node: int, others: Sequence[int], from_ns: int, size_bytes: int) -> dict[int, int]:
        """Other node -> the time at which a message that sets out at `from_ns` is there at the soonest; without those
        that it never reaches."""
        ...

    def towards(self, node: int, other: int) -> int:
        """The first node on the way to `other`."""
        ...

    def nearest(self, node: int, others: Sequence[int]) -> int:
        """That of `others` with the least latency; ties: fewest hops, lowest number."""
        ...


def within(spans: Sequence[tuple[int, int]], round_: int) -> bool:
    """True if the round is in one of them, (first, last), ascending and apart."""
    place = bisect_right(spans, round_, key=itemgetter(0))
    return place > 0 and round_ <= spans[place - 1][1]


@dataclass(frozen=True)
class World:
    """The nodes that are there: those that have a role in this scheme, numbered from 0. Idle nodes of the topology are
    none."""

    scheme: str
    seed: int
    names: Sequence[str]                        # node -> name
    roles: Mapping[str, list[int]]              # role -> nodes, ascending
    speeds: Sequence[float]                     # node -> speed, 1: the profile's machine
    deterministic: bool = True                  # False: results of some computations cannot repeat themselves
    task: Mapping[str, Any] = field(default_factory=dict)       # the learning task as the scenario has it; {}: none
    compress: Mapping[str, Any] = field(default_factory=dict)   # {"up" or "down": codec as the scenario has it}
    root: int = 0                               # the first of the nodes whose rounds are the run's: where parents lead
    terrain: Surroundings | None = field(default=None, repr=False)   # None: the scheme does not know it
    # node -> (rate, sigma of the steps) of its GPUs, () without any; (): no node has some. The rate: floating-point
    # operations a second, for a declared model; with compute mode "model" steps a second of the node's device
    islands: Sequence[Sequence[float]] = ()
    # node -> (first, last) of the rounds that it takes part in, ascending and apart; one that is not here: in all
    rounds: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)

    def takes_part(self, node: int, round_: int) -> bool:
        """True if the node has joined by this round and has not left; 0: before the first round everybody is there."""
        return not round_ or node not in self.rounds or within(self.rounds[node], round_)

    @property
    def clients(self) -> int:
        """The number of clients."""
        return self.count("client")

    @property
    def servers(self) -> int:
        """The number of servers."""
        return self.count("server")

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.names)

    def count(self, role: str) -> int:
        """The number of nodes with a role; 0 if there is no such role."""
        return len(self.roles.get(role, ()))

    @cached_property
    def rates(self) -> list[float]:
        """Node -> how fast it trains: its speed, times the rate of its GPUs or its device where those count."""
        of_gpus: Sequence[float] = [one[0] if one else 1.0 for one in self.islands] or [1.0] * self.nodes
        return [speed * rate for speed, rate in zip(self.speeds, of_gpus, strict=True)]

    @cached_property
    def fastest(self) -> float:
        """The rate of the fastest client."""
        return max(self.rates[k] for k in self.roles["client"])

    # --- the topology -----------------------------------------------------------------------------------------------

    def neighbours(self, node: int) -> list[int]:
        """The nodes to which a way leads from `node` on which no other node lies, ascending."""
        return self._known.neighbours(node)

    def nearest(self, node: int, role: str) -> int:
        """The node of a role that is nearest to `node`: least latency, fewest hops, lowest number. Raises RoleError."""
        others = self.roles.get(role)
        if not others:
            raise RoleError(f"no node has the role {role}")
        return self._known.nearest(node, others)

    def parent(self, node: int) -> int | None:
        """The first node on the way to the root; None: it is the root."""
        return None if node == self.root else self._known.towards(node, self.root)

    def children(self, node: int) -> list[int]:
        """The nodes whose parent it is, ascending."""
        return self._children.get(node, [])

    def latency_s(self, node: int, other: int) -> float:
        """Of the way from one node to another: the median latencies of its links, in seconds."""
        return self._known.latency_ns(node, other) / 1e9

    def hops(self, node: int, other: int) -> int:
        """The number of links on the way from one node to another."""
        return self._known.hops(node, other)

    def contacts(self, node: int, other: int, from_ns: int = 0) -> Iterator[Contact]:
        """The contacts on the way from one node to another that have not ended at `from_ns`, by start, then by hop.

        Raises RoleError if no link on the way has contacts.
        """
        found = self._known.contacts(node, other, from_ns)
        if found is None:
            raise RoleError(f"{self.names[node]}: no link on the way to {self.names[other]} has contacts: it transmits "
                            "at all times")
        return (Contact(start / 1e9, inf if end is None else end / 1e9, rate, hop) for start, end, rate, hop in found)

    @property
    def planned(self) -> bool:
        """True if some link has contacts."""
        return self._known.planned

    def arrivals(self, node: int, others: Sequence[int], from_ns: int, size_bytes: int = 0) -> dict[int, int]:
        """Other node -> the time, ns, at which a message that `node` sends at `from_ns` is there at the soonest, over
        all ways that the plan opens; without those that it never reaches.

        The message is alone on every link. A link with contacts transmits it over their gaps; a link without any adds
        its median latency alone.
        """
        return self._known.arrivals(node, others, from_ns, size_bytes)

    @property
    def _known(self) -> Surroundings:
        if self.terrain is None:
            raise RoleError(f"{self.scheme} does not know the topology: it has to say knows_topology=True")
        return self.terrain

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for node in range(self.nodes):
            parent = self.parent(node)
            if parent is not None:
                found.setdefault(parent, []).append(node)
        return found
