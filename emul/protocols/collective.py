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

Each part of a sum is added up at one member and sent on as it is, so that all members end with the same bits. Several
collectives go on at once, each with a tag of its own, as activities (`Node.start`) of the members. With a codec a ring
sends codes: a member decodes what comes, adds in 32 bits and codes the sum anew; the one that has added up a part codes
it for all, and takes what others decode, as INTELLECT-1 does (arXiv 2412.01152).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from emul.base.errors import NotDecodable, ProtocolFailure, ProtocolViolation, RoleError
from emul.primitives.compress import Codec
from emul.primitives.compress.codec import sendable
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


@dataclass(frozen=True)
class Chunk(Message, tagged=True):
    """As `Part`, of a collective that has a tag."""

    values: Vector
    number: int
    tag: int


@dataclass(frozen=True)
class CodedPart(Message, tagged=True):
    """As `Chunk`, in a codec's bytes."""

    code: Octets
    number: int
    tag: int


MESSAGES = (Part, Code, Chunk, CodedPart)


class Leg(NamedTuple):
    """A step of a member: it sends and then receives, or does one of both. Members are ranks from 0."""

    to: int | None = None
    sends: slice = slice(0)             # the part of its vector that goes there
    source: int | None = None
    takes: slice = slice(0)             # the part of its vector that comes from there
    adds: bool = False                  # the part that comes is added; else it takes the place of the own one


@dataclass(frozen=True)
class Manner:
    """The way in which a collective goes on beside who sends what to whom.

    tag: of one among several of a round; None: it is the only one. codec: of the parts, in a ring. lane: of additions
    and codes; None: the first of the scheme. silence_s: the longest time in which no part comes. blocking: a member
    also waits until all that it sends has left it, as a call of a library for collectives does. pieces: into which each
    part is cut; the next one is sent when the one before has left, so that a collective that is given up leaves no more
    than one on the link. Not of codes.
    """

    tag: int | None = None
    codec: Codec | None = None
    lane: str | None = None
    silence_s: float | None = None
    blocking: bool = False
    pieces: int = 1


ALONE = Manner()


async def all_reduce(node: Node, members: Sequence[int], x: Vector, how: How, timeout_s: float | None = None,
                     manner: Manner = ALONE) -> Vector:
    """The sum of the vectors of all members, (d,) float32, with the same bits at each: a fresh array.

    At most one in a round, or one with each tag. members: in the same order at all. x: (d,) float32, only read.
    timeout_s: of all of it, from this member's call; None: until a message is known to be lost or never sent. manner:
    the same at all, but for the times. Raises ProtocolFailure if a member has not answered by then: then the others may
    have the sum or not, and this member has nothing. Raises RoleError for a codec in anything but a ring.
    """
    total = np.array(x, np.float32)
    legs = legs_of(how, len(members), members.index(node.id), len(total))
    end_s = None if timeout_s is None else node.now + timeout_s
    inbox = _Inbox(node, members, legs, end_s, manner)
    if manner.codec is not None:
        if how != "ring":
            raise RoleError(f"all_reduce: how = {how}: codes are added up in a ring alone")
        await _coded_ring(node, members, legs, total, manner.codec, inbox, manner)
    else:
        sent: Counter[int] = Counter()
        for leg in legs:
            sending = None
            if leg.to is not None:
                first = sent[leg.to]
                sent[leg.to] += manner.pieces
                if manner.pieces == 1:
                    node.send(members[leg.to], _part(total, leg.sends, first, manner))
                else:
                    sending = node.start(_in_pieces(node, members[leg.to], total, leg.sends, first, manner))
            try:
                for takes in [] if leg.source is None else _cut(leg.takes, manner.pieces):
                    values = await inbox.next(members[leg.source or 0])
                    if leg.adds:
                        values = await node.compute("add", np.add, total[takes], values, work=values.size,
                                                    lane=manner.lane)
                    total[takes] = values
                if sending is not None:
                    await sending
            finally:
                if sending is not None:
                    node.cancel(sending)
    if manner.blocking:
        for to in dict.fromkeys(leg.to for leg in legs if leg.to is not None):
            await node.sent(members[to])
    return total


def _part(total: Vector, where: slice, number: int, manner: Manner) -> Part | Chunk:
    return Part(total[where], number) if manner.tag is None else Chunk(total[where], number, manner.tag)


def _cut(where: slice, pieces: int) -> list[slice]:
    """A slice in so many pieces, as equal as they can be."""
    size = where.stop - where.start
    ends = [where.start + size * k // pieces for k in range(pieces + 1)]
    return [slice(a, b) for a, b in pairwise(ends)]


async def _in_pieces(node: Node, to: int, total: Vector, where: slice, first: int, manner: Manner) -> None:
    """Send a part piece by piece, each when the one before has left."""
    for number, piece in enumerate(_cut(where, manner.pieces)):
        if number:
            await node.sent(to)
        node.send(to, _part(total, piece, first + number, manner))


async def _coded_ring(node: Node, members: Sequence[int], legs: Sequence[Leg], total: Vector, codec: Codec,
                      inbox: _Inbox, manner: Manner) -> None:
    """As `all_reduce`, into `total`."""
    tag, lane, rng = manner.tag or 0, manner.lane, node.stream("compress")
    code: Octets | None = None                  # of the part that goes out next, as it has come
    for number, leg in enumerate(legs):
        assert leg.to is not None
        assert leg.source is not None
        if code is None:
            code = await node.compute("encode", _encoded, codec, total[leg.sends], rng, lane=lane,
                                      work=leg.sends.stop - leg.sends.start)
            if not leg.adds:                    # the sum of this part: what others decode is what counts
                total[leg.sends] = await node.compute("decode", _decoded, codec, code, len(total[leg.sends]), lane=lane,
                                                      work=leg.sends.stop - leg.sends.start)
        node.send(members[leg.to], CodedPart(code, number, tag))
        came: Octets = await inbox.next(members[leg.source])
        size = leg.takes.stop - leg.takes.start
        values = await node.compute("decode", _decoded, codec, came, size, lane=lane, work=size)
        if leg.adds:
            values = await node.compute("add", np.add, total[leg.takes], values, lane=lane, work=size)
        total[leg.takes] = values
        code = None if leg.adds else came


def _encoded(codec: Codec, x: Vector, rng: np.random.Generator) -> Octets:
    """The code of a part, which may be empty. Raises NotSendable."""
    return codec.encode(sendable(x), rng)[0] if x.size else np.empty(0, np.uint8)


def _decoded(codec: Codec, code: Octets, d: int) -> Vector:
    return decoded(codec, code, d) if d else np.empty(0, np.float32)


class _Inbox:
    """The parts that a member receives, each once and in the order of their numbers, though links may overtake."""

    def __init__(self, node: Node, members: Sequence[int], legs: Sequence[Leg], end_s: float | None, manner: Manner):
        self._node, self._end_s, self._manner = node, end_s, manner
        self._kind: type[Any] = Part if manner.tag is None else Chunk
        self._tag = manner.tag
        if manner.codec is not None:
            self._kind, self._tag = CodedPart, manner.tag or 0
        self._taken: Counter[int] = Counter()
        self._early: dict[tuple[int, int], Vector | Octets] = {}
        self._sizes: dict[tuple[int, int], int] = {}            # (member, number) -> of a part that has not come yet
        seen: Counter[int] = Counter()
        for leg in legs:
            for takes in [] if leg.source is None else _cut(leg.takes, 1 if manner.codec else manner.pieces):
                source = members[leg.source or 0]
                self._sizes[source, seen[source]] = takes.stop - takes.start
                seen[source] += 1

    async def next(self, source: int) -> np.ndarray:
        """The values of the next part of a member, or their code. Raises TimedOut or NothingToReceive, both failures
        of the round."""
        wanted = source, self._taken[source]
        self._taken[source] += 1
        while wanted not in self._early:
            times = [] if self._end_s is None else [max(0.0, self._end_s - self._node.now)]
            if self._manner.silence_s is not None:
                times.append(self._manner.silence_s)
            part = await self._node.recv(self._kind, source, min(times, default=None), accept=self._fits, tag=self._tag)
            del self._sizes[source, part.number]
            self._early[source, part.number] = part.code if isinstance(part, CodedPart) else part.values
        return self._early.pop(wanted)

    def _fits(self, part: Part | Chunk | CodedPart) -> None:
        size = self._sizes.get((part.sender, part.number))
        if size is None:
            raise ProtocolViolation(f"part {part.number}: no such part, or one twice")
        if isinstance(part, CodedPart):
            if size and self._manner.codec is not None:
                updates.sound(self._manner.codec, size)(part)
        elif part.values.shape != (size,):
            raise ProtocolViolation(f"part {part.number}: shape {part.values.shape}, expected {(size,)}")


async def all_gather(node: Node, members: Sequence[int], message: M, timeout_s: float | None = None, *,
                     accept: Accept[M] | None = None) -> dict[int, M]:
    """The messages of all members, {member: message} ascending by member, with the own one as it is.

    At most one of a type in a round, or one with each tag. members: in the same order at all; everybody sends to the
    next one first, so that nobody's downlink has to take two at a time. timeout_s, accept: as for `node.gather`. Raises
    ProtocolFailure if one is missing.
    """
    at = members.index(node.id)
    others = [*members[at + 1:], *members[:at]]
    node.broadcast(others, message)
    got = {node.id: message, **await node.gather(type(message), others, timeout_s, accept=accept,
                                                 tag=message.tag if message.tagged else None)}
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


async def gather_codes_of(node: Node, members: Sequence[int], senders: Sequence[int], codec: Codec, code: Octets | None,
                          d: int, tag: int, timeout_s: float | None = None) -> list[Octets]:
    """As `gather_codes`, of those members that are `senders`, by messages with a tag. code: of this one, if it is."""
    at = members.index(node.id)
    if code is not None:
        node.broadcast([*members[at + 1:], *members[:at]], CodedPart(code, 0, tag))
    others = [k for k in senders if k != node.id]
    got = await node.gather(CodedPart, others, timeout_s, accept=updates.sound(codec, d), tag=tag)
    missing = [node.world.names[k] for k in others if k not in got]
    if missing:
        raise ProtocolFailure(f"gather_codes_of: no code from {', '.join(missing)}")
    codes = {k: message.code for k, message in got.items()}
    if code is not None:
        codes[node.id] = code
    return [codes[k] for k in sorted(codes)]


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


def warn(params: object, world: World) -> list[str]:
    """The warning of a scheme whose rounds are one local training each, for its `warn`."""
    return [f"task.solver.{found}: the inner solver begins anew in every round; keep: true is that of the paper"
            for found in begins_anew(world)]


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
    # sums come from the smallest subtree first, since it is ready first; the sum goes to the largest first
    whole = slice(0, size)
    up = [Leg(source=child, takes=whole, adds=True) for child in reversed(children)]
    over = [] if parent is None else [Leg(parent, whole), Leg(source=parent, takes=whole)]
    return [*up, *over, *(Leg(child, whole) for child in children)]


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
