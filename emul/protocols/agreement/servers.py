"""The servers' side of an agreement: `agree` drives one `pbft.Replica` through one round.

    certificate = await agree(voter, inputs, round_timeout_s)

The messages are those of `emul.primitives.bft.pbft`, signed with Ed25519. ViewChange, Decision and Ask belong to no
round: a server that is a round behind is answered all the same. Signing, checking signatures and F are computations,
"sign", "verify" (work: signatures) and "filter" (work: numbers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from emul.base.errors import ProtocolFailure, ProtocolViolation, TimedOut
from emul.primitives.bft import pbft
from emul.primitives.bft.faults import ServerBehaviour
from emul.primitives.bft.pbft import Certificate, Decide, Effect, Entry, Execute, Replica, Signed
from emul.protocols.agreement.clients import Result, Upload
from emul.protocols.agreement.keys import signed, verify
from emul.roles import Message, Node

# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrePrepare(Message, pbft.PrePrepare):
    """Leader of view 0 to the other servers."""


@dataclass(frozen=True)
class Prepare(Message, pbft.Prepare):
    """Server to server."""


@dataclass(frozen=True)
class Commit(Message, pbft.Commit):
    """Server to server."""


@dataclass(frozen=True)
class ViewChange(Message, pbft.ViewChange, unscoped=True):
    """Server to server."""


@dataclass(frozen=True)
class NewView(Message, pbft.NewView):
    """Leader of a view above 0 to the other servers."""


@dataclass(frozen=True)
class Fetch(Message, pbft.Fetch):
    """Server to server: uploads that are missing here."""


@dataclass(frozen=True)
class Bodies(Message, pbft.Bodies):
    """The answer to Fetch."""


@dataclass(frozen=True)
class Decision(Message, pbft.Decision, unscoped=True):
    """Server to a server that was left behind."""


@dataclass(frozen=True)
class Ask(Message, pbft.Ask, unscoped=True):
    """Server to server, after a crash."""


MESSAGES: tuple[type[Message], ...] = (PrePrepare, Prepare, Commit, ViewChange, NewView, Fetch, Bodies, Decision, Ask)
T = TypeVar("T")                    # the type of a client's input, once it has been read

_WIRE: dict[type[Any], type[Any]] = {kind.__mro__[2]: kind for kind in MESSAGES}      # kind, Message, the primitive's


class NoQuorum(ProtocolFailure):
    """The servers have not agreed within the round's time; the text names the quorum that is missing."""


# --- the driver -----------------------------------------------------------------------------------------------------

@dataclass
class Ballot(Generic[T]):
    """The subject of the agreement: inputs of clients by (client node, digest), how they are read, and F of them.

    read: body -> input; raises ProtocolViolation. F: {client: input} -> the bytes that are agreed on. size: numbers in
    an input, the work of F.
    """

    read: Callable[[bytes], T]
    F: Callable[[dict[int, T]], bytes]
    size: Callable[[T], int]
    bodies: dict[tuple[int, bytes], tuple[pbft.Body, T]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)         # dropped messages, by reason

    def add(self, body: pbft.Body) -> tuple[Entry, bool]:
        """Keep an input whose signature holds: (its name, whether its bytes are valid)."""
        entry = Entry(body.client, pbft.body_digest(body.body), body.signature)
        try:
            self.bodies[entry.client, entry.digest] = (body, self.read(body.body))
        except ProtocolViolation:
            self.rejected["invalid upload"] += 1
            return entry, False
        return entry, True

    def result(self, entries: Iterable[Entry]) -> bytes:
        """F of the inputs named, as bytes. Raises KeyError where one was not kept."""
        return self.F({e.client: self.bodies[e.client, e.digest][1] for e in entries})


@dataclass
class Voter:
    """One server in one round."""

    node: Node
    replica: Replica
    ballot: Ballot[Any]
    fault: ServerBehaviour = field(default_factory=ServerBehaviour)
    delay_s: float = 0.0                # a slow server waits so long before it sends

    @property
    def servers(self) -> list[int]:
        return self.node.servers

    async def apply(self, effects: list[Effect]) -> None:
        """Do what the replica wants done, and what follows from it here."""
        pending = list(effects)
        node, replica = self.node, self.replica
        while pending:
            effect = pending.pop(0)
            if isinstance(effect, Execute):
                work = sum(self.ballot.size(self.ballot.bodies[e.client, e.digest][1]) for e in effect.entries)
                found = await node.compute("filter", self.ballot.result, effect.entries, work=work)
                pending += replica.evaluated(node.now_ns, effect.entries, self.fault.result(replica, found))
            elif not isinstance(effect, Decide):
                for part in self.fault.sent(replica.me, effect):
                    pending += await self.send(part)

    async def send(self, send: pbft.SendSigned) -> list[Effect]:
        """Sign, send to the others; what this server makes of its own copy."""
        node, me = self.node, self.replica.me
        told = pbft.statement(me, send.message)
        signature = await signed(node, told)
        if self.delay_s:
            await node.sleep(self.delay_s)
        message = on_the_wire(replace(send.message, signature=signature))
        node.broadcast([self.servers[s] for s in send.to if s != me], message)
        return self.replica.receive(node.now_ns, me, send_of(message)) if me in send.to else []

    async def take(self, message: Message) -> None:
        """One message of another server."""
        node, replica, ballot = self.node, self.replica, self.ballot
        if message.sender not in self.servers:
            ballot.rejected["not a server"] += 1
            return
        server, m = self.servers.index(message.sender), send_of(message)
        told = list(pbft.claims(server, m))
        good = await node.compute("verify", verify, node.seed, [self.claimed(c) for c in told], work=len(told))
        if not all(ok for c, ok in zip(told, good, strict=True) if not c.client):
            ballot.rejected["bad signature"] += 1
        elif isinstance(m, pbft.Fetch):
            found = tuple(ballot.bodies[key][0] for key in m.wanted if key in ballot.bodies)
            if found and m.t == replica.t:
                await self.apply([pbft.SendSigned((server,), pbft.Bodies(m.t, found))])
        elif isinstance(m, pbft.Bodies):
            for body, ok in zip(m.bodies, good[1:], strict=True):
                if ok and m.t == replica.t:
                    await self.apply(replica.provide(node.now_ns, *ballot.add(body)))
                else:
                    ballot.rejected["forged upload"] += 1
        else:
            await self.apply(replica.receive(node.now_ns, server, m, forged=not all(good)))

    def claimed(self, c: pbft.Claim) -> tuple[str, bytes, bytes]:
        """(signer's name, statement, signature); of who is none of them, a name that nobody has."""
        members = self.node.clients if c.client else self.servers
        known = c.signer in members if c.client else 0 <= c.signer < len(members)
        who = (c.signer if c.client else members[c.signer]) if known else None
        return ("" if who is None else self.node.world.names[who], c.statement, c.signature)


def on_the_wire(message: Signed) -> Message:
    """The message of ours that travels in place of the primitive's."""
    kind = type(message)
    wire: Message = _WIRE[kind](*(getattr(message, f.name) for f in fields(kind)))
    return wire


def send_of(message: Message) -> Signed:
    """The primitive's message in one of ours."""
    assert isinstance(message, (pbft.PrePrepare, pbft.Prepare, pbft.Commit, pbft.ViewChange, pbft.NewView, pbft.Fetch,
                                pbft.Bodies, pbft.Decision, pbft.Ask))
    kind = next(c for c in type(message).__mro__ if c.__module__ == pbft.__name__)
    plain: Signed = kind(*(getattr(message, f.name) for f in fields(message)))
    return plain


async def agree(voter: Voter, inputs: list[Entry], timeout_s: float, last: pbft.Certificate | None = None,
                later: list[Message] | None = None, ask: bool = False) -> Certificate:
    """Take part in the agreement until this server has decided. Raises NoQuorum after `timeout_s`.

    inputs: uploads of this server's own, in `voter.ballot` already. last: what was decided in the round before, for who
    asks. later: ViewChanges that came too early; those that come now are added, those of this round are taken out.
    ask: this server was away in this round.
    """
    node, replica = voter.node, voter.replica
    end = node.now_ns + round(timeout_s * 1e9)
    await voter.apply(replica.begin(node.now_ns, voter.fault.inputs(inputs)))
    if ask:
        await voter.apply([pbft.SendSigned(replica.group.everybody, pbft.Ask(replica.t))])
    early = [m for m in later or [] if send_of(m).t == replica.t]
    if later is not None:
        later[:] = [m for m in later if send_of(m).t > replica.t]
    for message in early:
        await voter.take(message)
    while replica.decision is None:
        if node.now_ns >= end:
            raise NoQuorum(_missing(voter))
        await _step(voter, end, last, later)
    return replica.decision


async def linger(voter: Voter, seconds: float, last: pbft.Certificate | None, later: list[Message]) -> None:
    """Stay, decided, for who has not got there: until every server has been heard to commit, or for `seconds`."""
    end = voter.node.now_ns + round(seconds * 1e9)
    while voter.node.now_ns < end and not voter.replica.everybody_committed:
        await _step(voter, end, last, later)


async def _step(voter: Voter, end: int, last: pbft.Certificate | None, later: list[Message] | None) -> None:
    """The next message, or the next deadline."""
    node, replica = voter.node, voter.replica
    until = end if replica.deadline is None else min(end, replica.deadline)
    try:
        message = await node.recv_any(*MESSAGES, timeout_s=max(0, until - node.now_ns) / 1e9)
    except TimedOut:
        await voter.apply(replica.expire(node.now_ns))
        return
    t = send_of(message).t
    if t > replica.t and later is not None and isinstance(message, (ViewChange, Ask)):
        later.append(message)
    elif t == replica.t - 1 and last is not None and isinstance(message, (ViewChange, Ask)):
        if message.sender in voter.servers:
            await voter.send(pbft.SendSigned((voter.servers.index(message.sender),), pbft.Decision(t, last)))
    elif t == replica.t:
        await voter.take(message)
    else:
        voter.ballot.rejected["wrong instance"] += 1


def _missing(voter: Voter) -> str:
    replica, group = voter.replica, voter.replica.group
    heard, what = replica.heard()
    silent = [voter.node.world.names[voter.servers[s]] for s in group.everybody if s not in heard]
    return (f"no quorum in round {replica.t}: {what} of {len(heard)} of {group.servers} servers in view "
            f"{replica.view}, {group.quorum} are needed; not heard: {', '.join(silent) or 'none'}")


# --- what clients send and are told ---------------------------------------------------------------------------------

async def accepted(voter: Voter, got: Mapping[int, Upload]) -> list[Entry]:
    """The inputs that are valid and signed by who sent them, by name; the others are counted."""
    entries: list[Entry] = await voter.node.compute("verify", accept, voter, got, work=len(got))
    return entries


def accept(voter: Voter, got: Mapping[int, Upload]) -> list[Entry]:
    """The result of `accepted`."""
    node, ballot, entries = voter.node, voter.ballot, []
    for k, m in sorted(got.items()):
        told = pbft.upload_statement(voter.replica.t, k, pbft.body_digest(m.body))
        if not verify(node.seed, [(node.world.names[k], told, m.signature)])[0]:
            ballot.rejected["forged upload"] += 1
            continue
        entry, valid = ballot.add(pbft.Body(k, m.body, m.signature))
        if valid:
            entries.append(entry)
    return entries


async def tell(voter: Voter, result: bytes) -> None:
    """Send every client what has been agreed on, or what a faulty server says."""
    told = voter.fault.reply(result)
    if told is not None:
        statement = pbft.pack("Result", voter.replica.t, told)
        voter.node.broadcast(voter.node.clients, Result(told, await signed(voter.node, statement)))


def dropped(voter: Voter) -> str:
    """The messages that were dropped and why: "bad signature 2, wrong result 1"."""
    return ", ".join(f"{why} {n}" for why, n in sorted((voter.ballot.rejected + voter.replica.rejected).items()))
