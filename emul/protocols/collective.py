"""Collectives: sums and collections among peers without a server. Every member calls the same function in its round.

    how         who sends what to whom                                                  time
    ring        n - 1 times a part of the vector, partly summed, to the next one;
                n - 1 times a part of the sum                                           2 (n - 1) (delta + S / (n B))
    tree        partial sums to the root, the sum back                                  2 ceil(log2 n) (delta + S / B)
    butterfly   halves of halves to partners, and their sums back; n = 2^k              2 k delta + 2 (n - 1)/n S / B
    server      vectors to the first member, the sum back                               2 (delta + (n - 1) S / B)
    all_gather  a message to all others                                                 delta + (n - 1) s / B

n members, S and s bytes, latencies delta, access links of B bytes a second, additions for nothing. Rabenseifner,
*Optimization of Collective Reduction Operations*, ICCS 2004, has ring and butterfly. The root of the tree gives the
larger half of the members to its first child, and so does the root of every subtree: the time is that of the table for
every n.

Each part of a sum is added up at one member and sent on as it is, so that all members end with the same bits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation, RoleError
from emul.primitives.compress import Codec
from emul.protocols import updates
from emul.roles import Message, Node, Octets, Vector, World
from emul.roles.node import Accept

M = TypeVar("M", bound=Message)

How = Literal["ring", "tree", "butterfly", "server"]


@dataclass(frozen=True)
class Part(Message):
    """To another member: a part of its partial sums, or of the sum."""

    values: Vector
    number: int                         # of the parts from this member to that one, from 0


@dataclass(frozen=True)
class Code(Message):
    """To all other members."""

    code: Octets                        # of a vector


MESSAGES = (Part, Code)


class Leg(NamedTuple):
    """A step of a member: it sends and then receives, or does one of both. Members are ranks from 0."""

    to: int | None = None
    sends: slice = slice(0)             # the part of its vector that goes there
    source: int | None = None
    takes: slice = slice(0)             # the part of its vector that comes from there
    adds: bool = False                  # the part that comes is added; else it takes the place of the own one


async def all_reduce(node: Node, members: Sequence[int], x: Vector, how: How, timeout_s: float | None = None,
                     ) -> Vector:
    """The sum of the vectors of all members, (d,) float32, with the same bits at each: a fresh array.

    At most one in a round. members: in the same order at all. x: (d,) float32, only read. timeout_s: of all of it, from
    this member's call; None: until a message is known to be lost or never sent. Raises ProtocolFailure if a member has
    not answered by then: then the others may have the sum or not, and this member has nothing.
    """
    total = np.array(x, np.float32)
    legs = legs_of(how, len(members), members.index(node.id), len(total))
    end_s = None if timeout_s is None else node.now + timeout_s
    inbox = _Inbox(node, members, legs, end_s)
    sent: Counter[int] = Counter()
    for leg in legs:
        if leg.to is not None:
            node.send(members[leg.to], Part(total[leg.sends], sent[leg.to]))
            sent[leg.to] += 1
        if leg.source is not None:
            values = await inbox.next(members[leg.source])
            if leg.adds:
                values = await node.compute("add", np.add, total[leg.takes], values, work=values.size)
            total[leg.takes] = values
    return total


class _Inbox:
    """The parts that a member receives, each once and in the order of their numbers, though links may overtake."""

    def __init__(self, node: Node, members: Sequence[int], legs: Sequence[Leg], end_s: float | None):
        self._node, self._end_s = node, end_s
        self._taken: Counter[int] = Counter()
        self._early: dict[tuple[int, int], Vector] = {}
        self._sizes: dict[tuple[int, int], int] = {}            # (member, number) -> of a part that has not come yet
        seen: Counter[int] = Counter()
        for leg in legs:
            if leg.source is not None:
                source = members[leg.source]
                self._sizes[source, seen[source]] = leg.takes.stop - leg.takes.start
                seen[source] += 1

    async def next(self, source: int) -> Vector:
        """The next part of a member. Raises TimedOut or NothingToReceive, both failures of the round."""
        wanted = source, self._taken[source]
        self._taken[source] += 1
        while wanted not in self._early:
            left_s = None if self._end_s is None else max(0.0, self._end_s - self._node.now)
            part = await self._node.recv(Part, source, left_s, accept=self._fits)
            del self._sizes[source, part.number]
            self._early[source, part.number] = part.values
        return self._early.pop(wanted)

    def _fits(self, part: Part) -> None:
        size = self._sizes.get((part.sender, part.number))
        if size is None:
            raise ProtocolViolation(f"part {part.number}: no such part, or one twice")
        if part.values.shape != (size,):
            raise ProtocolViolation(f"part {part.number}: shape {part.values.shape}, expected {(size,)}")


async def all_gather(node: Node, members: Sequence[int], message: M, timeout_s: float | None = None, *,
                     accept: Accept[M] | None = None) -> dict[int, M]:
    """The messages of all members, {member: message} ascending by member, with the own one as it is.

    At most one of a type in a round. members: in the same order at all; everybody sends to the next one first, so that
    nobody's downlink has to take two at a time. timeout_s, accept: as for `node.gather`. Raises ProtocolFailure if one
    is missing.
    """
    at = members.index(node.id)
    others = [*members[at + 1:], *members[:at]]
    node.broadcast(others, message)
    got = {node.id: message, **await node.gather(type(message), others, timeout_s, accept=accept)}
    missing = [node.world.names[j] for j in sorted(set(members) - set(got))]
    if missing:
        raise ProtocolFailure(f"all_gather: no {type(message).__name__} from {', '.join(missing)}")
    return dict(sorted(got.items()))


async def gather_codes(node: Node, members: Sequence[int], codec: Codec, code: Octets, d: int,
                       timeout_s: float | None = None) -> list[Octets]:
    """The codes of the vectors of all members, ascending by member, with the own one: an `all_gather`.

    codec: that of all members. d: of each vector. Raises ProtocolFailure if a code is missing.
    """
    got = await all_gather(node, members, Code(code), timeout_s, accept=updates.sound(codec, d))
    return [message.code for message in got.values()]


def decoded(codec: Codec, code: Octets, d: int) -> Vector:
    """The vector of a code, (d,) float32. Raises NotDecodable for a code that nobody can have made."""
    found = updates.decoded(codec, code, d)
    if found is None:
        raise NotDecodable("a code that nobody can have made")
    return found


# --- for a scheme's check ---------------------------------------------------------------------------------------------

def wrong_group(how: str, world: World) -> list[str]:
    """Mistakes in the collective of all peers."""
    n = len(world.roles["peer"])
    wrong = "one peer has nobody to add up with; expected two or more" if n < 2 else unfit(how, n)
    return [f"how = {how}: {wrong}"] if wrong else []


def begins_anew(world: World) -> list[str]:
    """The solver of the task, as "adamw.keep = False", if a local training or a step loses what the one before left:
    moments, or the place in a schedule."""
    (name, options), = (world.task.get("solver") or {"sgd": {}}).items()
    lost = name != "sgd" or options.get("momentum") or options.get("schedule")
    return [f"{name}.keep = False"] if lost and not options.get("keep") else []


# --- who sends what to whom: pure -------------------------------------------------------------------------------------

def legs_of(how: How, n: int, rank: int, size: int) -> list[Leg]:
    """The legs of one of n members for vectors (size,), in their order. Raises RoleError where `unfit` says why."""
    wrong = unfit(how, n)
    if wrong:
        raise RoleError(f"all_reduce: {wrong}")
    if n == 1:
        return []
    if how == "ring":
        return _ring(n, rank, size)
    if how == "butterfly":
        return _butterfly(n, rank, size)
    parent, children = _tree(n, rank) if how == "tree" else (None, [*range(1, n)]) if rank == 0 else (0, [])
    return _up_and_down(parent, children, size)


def unfit(how: str, n: int) -> str:
    """The reason why n members cannot add up that way; "": they can."""
    return f"a butterfly of {n} members: expected a power of two" if how == "butterfly" and n & (n - 1) else ""


def _ring(n: int, rank: int, size: int) -> list[Leg]:
    """Part p begins at member p and is the sum at member p - 1, which sends it around again."""
    ends = [size * p // n for p in range(n + 1)]

    def part(p: int) -> slice:
        return slice(ends[p % n], ends[p % n + 1])

    to, source = (rank + 1) % n, (rank - 1) % n
    return [*(Leg(to, part(rank - t), source, part(rank - t - 1), adds=True) for t in range(n - 1)),
            *(Leg(to, part(rank - t + 1), source, part(rank - t)) for t in range(n - 1))]


def _butterfly(n: int, rank: int, size: int) -> list[Leg]:
    """Half of the part that is left goes to the partner whose rank differs in one bit, from the highest bit on; then
    the same backwards with the sums."""
    there: list[Leg] = []
    left, bit = slice(0, size), n >> 1
    while bit:
        middle = (left.start + left.stop) // 2
        low, high = slice(left.start, middle), slice(middle, left.stop)
        left, gone = (high, low) if rank & bit else (low, high)
        there.append(Leg(rank ^ bit, gone, rank ^ bit, left, adds=True))
        bit >>= 1
    return there + [Leg(leg.to, leg.takes, leg.source, leg.sends) for leg in reversed(there)]


def _tree(n: int, rank: int) -> tuple[int | None, list[int]]:
    """(parent, children, the one with the largest subtree first). A subtree is a range of ranks with its root first."""
    root, count = 0, n
    parent, children = None, list[int]()
    while count > 1:
        child = root + count // 2               # it gets the larger half
        if rank < child:
            count //= 2
            if rank == root:
                children.append(child)
        else:
            root, count, parent = child, count - count // 2, root
    return parent, children


def _up_and_down(parent: int | None, children: Sequence[int], size: int) -> list[Leg]:
    """Sums come from the smallest subtree first, since it is ready first; the sum goes to the largest first."""
    whole = slice(0, size)
    up = [Leg(source=child, takes=whole, adds=True) for child in reversed(children)]
    over = [] if parent is None else [Leg(parent, whole), Leg(source=parent, takes=whole)]
    return [*up, *over, *(Leg(child, whole) for child in children)]
