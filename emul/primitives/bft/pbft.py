"""PBFT as a pure state machine: one server, one instance of agreement. Castro and Liskov 1999, as FedRFQ uses it.

Rule 1: nothing here sends, waits, signs, or reads a clock. Messages and times go in, effects come out, in order.
Rule 2: nothing here knows what is agreed on: F of listed inputs is asked for (`Execute`), bytes are compared.

N >= 3f + 1 servers, 0..N-1; quorum q = floor((N + f) / 2) + 1, which is 2f + 1 for N = 3f + 1. Leader of view v of
instance t: (t + v) mod N.

    PrePrepare  leader of view 0 -> others      its inputs (client, digest, signature) and F of them
    Prepare     all -> all                      after its own check of the proposal
    Commit      all -> all                      q Prepares, its own and the leader's among them
    decided                                     q Commits for what it has prepared itself
    ViewChange  all -> all                      the timer T 2^v of view v ended, the proposal failed the check, or f + 1
                                                servers are in higher views; with what it has prepared and q Prepares
    NewView     leader of view v > 0 -> others  q ViewChanges; the newest prepared proposal among them, else its own
    Fetch       -> Bodies                       inputs that were named and are not here
    Decision    -> who asks or changes views    the proposal and q Commits: for who was left behind

Check of a proposal: (i) it is the leader's; (ii) every input is signed by its client, no client twice; (iii) none of
this server's own inputs is left out; (iv) F of the inputs has the proposed bytes. A client that has signed two inputs
is left out, with both as proof. A value that was prepared before is not asked for (iii) again: q servers have accepted
it.

Deviations from the sheet that the scheme follows: certificates in ViewChange, without which a liar could claim to have
prepared anything; `Decision`, so that a server that a faulty leader kept out catches up: it checks (ii), (iv) itself.
Inputs that a server misses in a proposal travel in its ViewChange, so that on lossy links the next leader knows them.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, TypeAlias

# --- what is sent ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """An input by name: whose, SHA-256 of its bytes, the client's signature of `upload_statement`."""

    client: int
    digest: bytes
    signature: bytes


@dataclass(frozen=True)
class Proposal:
    """Inputs, ascending by client; F of them; and, of each client that is left out for signing twice, two inputs."""

    entries: tuple[Entry, ...]
    result: bytes
    twice: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """A proposal and who has voted for it in a view."""

    view: int
    proposal: Proposal
    votes: tuple[tuple[int, bytes], ...]        # (server, its signature), ascending


@dataclass(frozen=True)
class PrePrepare:
    """The leader's proposal in a view of instance t."""

    t: int
    view: int
    proposal: Proposal
    signature: bytes = b""


@dataclass(frozen=True)
class Prepare:
    """A vote for a proposal: the sender has checked it."""

    t: int
    view: int
    digest: bytes                               # of the proposal
    signature: bytes = b""


@dataclass(frozen=True)
class Commit:
    """A vote for what is prepared: the sender has seen a quorum of Prepares for it."""

    t: int
    view: int
    digest: bytes
    signature: bytes = b""


@dataclass(frozen=True)
class ViewChange:
    """The sender has given up the leaders before `view`: what it has prepared, what they left out."""

    t: int
    view: int                                   # the one to go to
    prepared: Certificate | None                # of Prepares: what this server has prepared last
    missed: tuple[Entry, ...]                   # inputs that the last proposal left out, or contradicts
    signature: bytes = b""


@dataclass(frozen=True)
class NewView:
    """The new leader's proposal, with the quorum of ViewChanges that it follows from."""

    t: int
    view: int
    changes: tuple[tuple[int, ViewChange], ...]     # (server, what it sent), ascending
    proposal: Proposal
    signature: bytes = b""


@dataclass(frozen=True)
class Fetch:
    """Asks for the bytes of inputs that a proposal names."""

    t: int
    wanted: tuple[tuple[int, bytes], ...]       # (client, digest)
    signature: bytes = b""


@dataclass(frozen=True)
class Body:
    """The bytes of one input."""

    client: int
    body: bytes
    signature: bytes                            # the client's


@dataclass(frozen=True)
class Bodies:
    """The answer to a Fetch: what the sender has of it."""

    t: int
    bodies: tuple[Body, ...]
    signature: bytes = b""


@dataclass(frozen=True)
class Decision:
    """The decision, with the votes that prove it."""

    t: int
    certificate: Certificate                    # of Commits
    signature: bytes = b""


@dataclass(frozen=True)
class Ask:
    """For the Decision of instance t, by a server that has been away."""

    t: int
    signature: bytes = b""


Signed: TypeAlias = PrePrepare | Prepare | Commit | ViewChange | NewView | Fetch | Bodies | Decision | Ask


# --- canonical bytes ------------------------------------------------------------------------------------------------

_NUMBER = struct.Struct("<cq")
_LENGTH = struct.Struct("<cI")


def _pack(value: Any, out: list[bytes]) -> None:
    if isinstance(value, int):
        out.append(_NUMBER.pack(b"i", value))
    elif isinstance(value, (bytes, str)):
        raw = value.encode() if isinstance(value, str) else value
        out += [_LENGTH.pack(b"b", len(raw)), raw]
    elif value is None:
        out.append(b"n")
    else:
        items = value if isinstance(value, tuple) else [getattr(value, f.name) for f in fields(value)]
        out.append(_LENGTH.pack(b"t", len(items)))
        for item in items:
            _pack(item, out)


def pack(*values: object) -> bytes:
    """Unambiguous bytes of integers, bytes, text, None, tuples and dataclasses of these."""
    out: list[bytes] = []
    _pack(values, out)
    return b"".join(out)


def statement(server: int, message: Signed) -> bytes:
    """The bytes that `server` signs of a message: its type, who sends it, everything in it but the signature."""
    # the scheme's messages inherit from these; what is signed is the same
    kind = next(c for c in type(message).__mro__ if c.__module__ == __name__)
    return pack(kind.__name__, server, *(getattr(message, f.name) for f in fields(kind) if f.name != "signature"))


def body_digest(body: bytes) -> bytes:
    """SHA-256 of a client's input, 32 bytes: its name among servers."""
    return sha256(body).digest()


def upload_statement(t: int, client: int, digest: bytes) -> bytes:
    """The bytes that a client signs of its input for instance t."""
    return pack("Upload", t, client, digest)


def proposal_digest(t: int, proposal: Proposal) -> bytes:
    """The digest that votes are for; the same in every view."""
    return sha256(pack("Proposal", t, proposal)).digest()


@dataclass(frozen=True)
class Claim:
    """A signature to be checked."""

    client: bool                                # else a server
    signer: int
    statement: bytes
    signature: bytes


def claims(server: int, message: Signed) -> Iterator[Claim]:
    """Every signature in a message of `server`, its own first."""
    yield Claim(False, server, statement(server, message), message.signature)
    if isinstance(message, PrePrepare):
        yield from _of_proposal(message.t, message.proposal)
    elif isinstance(message, NewView):
        for sender, change in message.changes:
            yield from claims(sender, change)
        yield from _of_proposal(message.t, message.proposal)
    elif isinstance(message, ViewChange):
        yield from _of_entries(message.t, message.missed)
        if message.prepared is not None:
            yield from _of_certificate(message.t, message.prepared, Prepare)
    elif isinstance(message, Decision):
        yield from _of_certificate(message.t, message.certificate, Commit)
    elif isinstance(message, Bodies):
        for body in message.bodies:
            told = upload_statement(message.t, body.client, sha256(body.body).digest())
            yield Claim(True, body.client, told, body.signature)


def _of_entries(t: int, entries: Iterable[Entry]) -> Iterator[Claim]:
    for e in entries:
        yield Claim(True, e.client, upload_statement(t, e.client, e.digest), e.signature)


def _of_proposal(t: int, proposal: Proposal) -> Iterator[Claim]:
    yield from _of_entries(t, proposal.entries)
    yield from _of_entries(t, proposal.twice)


def _of_certificate(t: int, c: Certificate, vote: type[Prepare] | type[Commit]) -> Iterator[Claim]:
    found = proposal_digest(t, c.proposal)
    for server, signature in c.votes:
        yield Claim(False, server, statement(server, vote(t, c.view, found)), signature)
    yield from _of_proposal(t, c.proposal)


# --- what comes out -------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class SendSigned:
    """To be signed and sent to each of `to`; where the server itself is among them, handed back to it at once."""

    to: tuple[int, ...]
    message: Signed


@dataclass(frozen=True)
class Execute:
    """F of these inputs, which are all here, is wanted: `Replica.evaluated`."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Decide:
    """The instance is decided."""

    view: int
    proposal: Proposal


Effect: TypeAlias = SendSigned | Execute | Decide


# --- the machine ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class ServerGroup:
    """Facts that all servers know."""

    servers: int                                # N
    faults: int                                 # f
    timeout_ns: int                             # T of view 0; at least ten times the latency, and F's time

    @property
    def quorum(self) -> int:
        """Votes of so many servers have an honest one in common with those of any other quorum."""
        return (self.servers + self.faults) // 2 + 1

    @property
    def everybody(self) -> tuple[int, ...]:
        return tuple(range(self.servers))

    def leader(self, t: int, view: int) -> int:
        """The leaders take turns, by instance and by view."""
        return (t + view) % self.servers


@dataclass
class VoteJournal:
    """The notes that a server writes before it sends: with it, no crash makes it vote twice in one view."""

    t: int
    view: int = 0
    opened: int = 0                             # newest view whose NewView it has seen; 0 needs none
    proposed: dict[int, Signed] = field(default_factory=dict)       # view -> its own PrePrepare or NewView
    prepares: dict[int, bytes] = field(default_factory=dict)        # view -> digest that it has voted for
    prepared: dict[int, Certificate] = field(default_factory=dict)  # view -> what it has prepared
    decision: Certificate | None = None


class Replica:
    """Server `me` of the group in instance `journal.t`. Times are nanoseconds.

    The driver checks signatures before it calls `receive` (`claims`), and tells only of server signatures that hold.
    """

    # A machine without I/O: the next step of a server depends on which of ten things has come, in any order, so no
    # coroutine reads like the protocol. It signs nothing, so tests drive thousands of schedules in seconds without
    # cryptography (`test_with_up_to_f_faulty_servers_all_honest_ones_decide_one_correct_result`).

    def __init__(self, group: ServerGroup, me: int, journal: VoteJournal):
        self.group, self.me, self.journal, self.t = group, me, journal, journal.t
        self.rejected: Counter[str] = Counter()             # reason -> messages and proposals
        self.view = journal.view
        self.begun = False
        self._timer: int | None = None
        self._patience: int | None = None                   # a leader waits for bodies until then
        self._held: dict[int, Entry] = {}                   # this server's own inputs: client -> input
        self._known: dict[int, dict[bytes, Entry]] = {}     # client -> digest -> input, signed by it
        self._here: set[tuple[int, bytes]] = set()          # inputs whose bytes are here
        self._bad: set[tuple[int, bytes]] = set()           # those that are no valid input
        self._asked: set[tuple[int, tuple[int, bytes]]] = set()     # (server, input): in this view
        self._results: dict[tuple[Entry, ...], bytes] = {}
        self._proposal: tuple[int, Proposal, bool] | None = None     # view, to be checked; whether it was certified
        self._own: tuple[Entry, ...] | None = None        # the entries that this server is about to propose in its view
        self._missed: dict[tuple[int, bytes], Entry] = {}
        self._accepted: dict[int, tuple[bytes, Proposal]] = {}      # view -> what passed the check
        self._prepares: dict[tuple[int, bytes], dict[int, bytes]] = {}
        self._commits: dict[tuple[int, bytes], dict[int, bytes]] = {}
        self._changes: dict[int, dict[int, ViewChange]] = {}        # view -> server -> its word
        self._behind: set[int] = set()                      # servers that asked before this one had decided
        self._told: dict[int, Decision] = {}                # decisions of others, to be checked
        self._effects: list[Effect] = []

    # --- what the driver asks and tells ---------------------------------------------------------------------------

    @property
    def decision(self) -> Certificate | None:
        return self.journal.decision

    @property
    def deadline(self) -> int | None:
        """The time at which `expire` wants to be called; None: never."""
        times = [time for time in (self._timer, self._patience) if time is not None]
        return min(times, default=None)

    @property
    def leads(self) -> bool:
        return self.group.leader(self.t, self.view) == self.me

    @property
    def everybody_committed(self) -> bool:
        """True if every server is known to have come as far as a Commit for what is decided: nobody needs help."""
        c = self.decision
        if c is None:
            return False
        votes = self._commits.get((c.view, proposal_digest(self.t, c.proposal)), {})
        return len(votes) == self.group.servers

    def heard(self) -> tuple[set[int], str]:
        """The servers whose votes have come of those that this server waits for in its view, and the kind of vote."""
        if self.view in self._accepted:
            found, _ = self._accepted[self.view]
            if self.view in self.journal.prepared:
                return set(self._commits.get((self.view, found), {})), "Commits"
            return set(self._prepares.get((self.view, found), {})), "Prepares"
        return set(self._changes.get(self.view, {})), "ViewChanges"

    def begin(self, now: int, inputs: Iterable[Entry]) -> list[Effect]:
        """This server's own inputs are complete: its bytes are here, its clients' signatures hold."""
        self.begun = True
        for entry in inputs:
            self._learn(entry)
            self._here.add((entry.client, entry.digest))
            if len(self._known[entry.client]) == 1:
                self._held[entry.client] = entry
            else:                               # it has signed twice, and both are here
                self._held.pop(entry.client, None)
        if self.decision is None:
            self._timer = now + self._patience_of(self.view)
            before = self.journal.proposed.get(self.view)
            if before is not None:              # back from a crash: the same again, and nothing else
                self._broadcast(before)
        return self._progress(now)

    def provide(self, now: int, entry: Entry, valid: bool) -> list[Effect]:
        """The bytes of an input have come; `valid`: they are such."""
        key = (entry.client, entry.digest)
        if valid:
            self._here.add(key)
        else:
            self._bad.add(key)
        return self._progress(now)

    def evaluated(self, now: int, entries: tuple[Entry, ...], result: bytes) -> list[Effect]:
        """F of `entries`."""
        self._results[entries] = result
        return self._progress(now)

    def expire(self, now: int) -> list[Effect]:
        """A deadline has come."""
        if self._patience is not None and now >= self._patience:
            self._patience = None
            self._own = self._choose()          # without the bodies that did not come
        if self._timer is not None and now >= self._timer:
            self._change(now, self.view + 1)
        return self._progress(now)

    def receive(self, now: int, server: int, message: Signed, forged: bool = False) -> list[Effect]:
        """A message whose server signatures hold. forged: a client's signature in it does not."""
        if message.t != self.t:
            return self._reject("wrong instance")
        if isinstance(message, Prepare):
            self._prepares.setdefault((message.view, message.digest), {})[server] = message.signature
        elif isinstance(message, Commit):
            self._commits.setdefault((message.view, message.digest), {})[server] = message.signature
        elif isinstance(message, PrePrepare):
            self._pre_prepare(now, server, message, forged)
        elif isinstance(message, NewView):
            self._new_view(now, server, message, forged)
        elif forged:                            # an honest server passes no such thing on
            return self._reject("forged upload")
        elif isinstance(message, ViewChange):
            self._view_change(now, server, message)
        elif isinstance(message, Decision):
            if self.decision is None and self._proves(message.certificate):
                self._told[server] = message
        elif isinstance(message, Ask):
            self._behind.add(server)
        return self._progress(now)

    # --- proposals ------------------------------------------------------------------------------------------------

    def _pre_prepare(self, now: int, server: int, m: PrePrepare, forged: bool) -> None:
        if m.view != 0 or server != self.group.leader(self.t, 0):
            self._reject("not the leader")
        elif self.view != 0:
            self._reject("old view")
        else:
            self._take(now, m.view, m.proposal, forged, False)

    def _new_view(self, now: int, server: int, m: NewView, forged: bool) -> None:
        if m.view < 1 or server != self.group.leader(self.t, m.view):
            self._reject("not the leader")
            return
        if m.view < self.view or m.view <= self.journal.opened:
            self._reject("old view")
            return
        voters = {s for s, c in m.changes if c.t == self.t and c.view == m.view}
        sound = len(voters) == len(m.changes) >= self.group.quorum and all(
            c.prepared is None or self._certified(c.prepared, m.view) for _, c in m.changes)
        newest = _newest(c for _, c in m.changes)
        if not sound or (newest is not None and newest.proposal != m.proposal):
            self._reject("no proof of the new view")
            return
        if m.view > self.view:
            self._enter(now, m.view)
        self.journal.opened = m.view
        for _, change in m.changes if not forged else ():       # else a forged second upload would frame its client
            for entry in change.missed:
                self._learn(entry)
        self._take(now, m.view, m.proposal, forged, newest is not None)

    def _take(self, now: int, view: int, proposal: Proposal, forged: bool, certified: bool) -> None:
        """A proposal of the view that this server is in: the first one counts."""
        if self.decision is not None:
            return
        if view in self._accepted or (self._proposal is not None and self._proposal[0] == view):
            self._reject("second proposal")
            return
        reason = "forged upload" if forged else self._fault_of(proposal, certified)
        if reason is None:
            self._proposal = (view, proposal, certified)
        else:
            self._reject(reason)
            self._change(now, view + 1)

    def _fault_of(self, proposal: Proposal, certified: bool) -> str | None:
        """The part of (ii) and (iii) that does not hold; None: all does. A missing part is kept for the ViewChange."""
        clients = [e.client for e in proposal.entries]
        if clients != sorted(set(clients)):
            return "a client twice"
        proof: dict[int, set[bytes]] = {}
        for entry in proposal.twice:
            proof.setdefault(entry.client, set()).add(entry.digest)
            self._learn(entry)
        if certified:
            return None
        if any(len(digests) < 2 for digests in proof.values()) or proof.keys() & set(clients):
            return "no proof that an upload was signed twice"
        named = {(e.client, e.digest) for e in proposal.entries}
        for entry in proposal.entries:
            self._learn(entry)
        double = [e for e in proposal.entries if len(self._known[e.client]) > 1]
        left_out = [e for client, e in sorted(self._held.items())
                    if client not in proof and (client, e.digest) not in named and len(self._known[client]) == 1]
        if double:
            for entry in double:
                self._missed |= {(e.client, e.digest): e for e in self._known[entry.client].values()}
            return "upload signed twice"
        if left_out:
            self._missed |= {(e.client, e.digest): e for e in left_out}
            return "inputs left out"
        return None

    def _agrees(self, proposal: Proposal, result: bytes) -> bool:
        """(iv)."""
        return proposal.result == result

    def _choose(self) -> tuple[Entry, ...]:
        """The proposal of this server as the leader: every input whose bytes are here, of clients that signed one."""
        chosen = []
        for _, inputs in sorted(self._known.items()):
            entry = next(iter(inputs.values()))
            if len(inputs) == 1 and (entry.client, entry.digest) in self._here:
                chosen.append(entry)
        return tuple(chosen)

    def _twice(self) -> tuple[Entry, ...]:
        return tuple(e for _, inputs in sorted(self._known.items()) if len(inputs) > 1
                     for _, e in sorted(inputs.items())[:2])

    # --- views ----------------------------------------------------------------------------------------------------

    def _patience_of(self, view: int) -> int:
        return self.group.timeout_ns << min(view, 30)

    def _enter(self, now: int, view: int) -> None:
        self.view = self.journal.view = view
        self._timer = now + self._patience_of(view)
        self._proposal = self._own = self._patience = None
        self._asked.clear()

    def _change(self, now: int, view: int) -> None:
        if view <= self.view or self.decision is not None:
            return
        self._enter(now, view)
        prepared = self.journal.prepared
        self._broadcast(ViewChange(self.t, view, prepared[max(prepared)] if prepared else None,
                                   tuple(e for _, e in sorted(self._missed.items()))))

    def _view_change(self, now: int, server: int, m: ViewChange) -> None:
        if m.prepared is not None and not self._certified(m.prepared, m.view):
            self._reject("no proof of what was prepared")
            return
        for entry in m.missed:
            self._learn(entry)
        self._changes.setdefault(m.view, {})[server] = m
        if self.decision is not None:
            self._behind.add(server)
            return
        ahead: dict[int, int] = {}              # server -> the newest view that it wants
        for view, senders in self._changes.items():
            for sender in senders:
                if view > max(self.view, ahead.get(sender, 0)):
                    ahead[sender] = view
        if len(ahead) > self.group.faults:
            self._change(now, min(ahead.values()))

    def _certified(self, c: Certificate, view: int) -> bool:
        """True if q servers have prepared this below `view`; their signatures were checked by the driver."""
        voters = [server for server, _ in c.votes]
        return (c.view < view and len(set(voters)) == len(voters) >= self.group.quorum
                and all(0 <= s < self.group.servers for s in voters))

    def _proves(self, c: Certificate) -> bool:
        if self._certified(c, c.view + 1) and self._fault_of(c.proposal, True) is None:
            return True
        self._reject("no proof of the decision")
        return False

    # --- what follows ---------------------------------------------------------------------------------------------

    def _progress(self, now: int) -> list[Effect]:
        """Do everything that can be done now; the effects, and none is left."""
        if self.begun:
            while self._turn(now):
                pass
        effects, self._effects = self._effects, []
        return effects

    def _turn(self, now: int) -> bool:
        """One thing that can be done; False: nothing can."""
        if self.decision is not None:
            return self._answer()
        return self._lead(now) or self._check(now) or self._prepare() or self._decide() or self._catch_up()

    def _lead(self, now: int) -> bool:
        """Propose, if it is this server's turn."""
        view = self.view
        if not self.leads or view in self.journal.proposed:
            return False
        changes = self._changes.get(view, {})
        if view > 0 and len(changes) < self.group.quorum:
            return False
        chosen = dict(sorted(changes.items())[:self.group.quorum])
        newest = _newest(chosen.values()) if view else None
        if newest is None:
            if self._own is None:
                if self._patience is None:
                    wanted = [e for inputs in self._known.values() if len(inputs) == 1 for e in inputs.values()]
                    if self._ask(wanted, [s for s in self.group.everybody if s != self.me]):
                        self._patience = now + self._patience_of(view) // 3
                        return True
                elif {key for _, key in self._asked} - self._here - self._bad:
                    return False
                self._own, self._patience = self._choose(), None
            result = self._result(self._own)
            if result is None:
                return False
            proposal = Proposal(self._own, result, self._twice())
        else:
            proposal = newest.proposal
        message: Signed = PrePrepare(self.t, 0, proposal) if view == 0 else NewView(
            self.t, view, tuple(sorted(chosen.items())), proposal)
        self.journal.proposed[view] = message
        self._broadcast(message)
        return True

    def _check(self, now: int) -> bool:
        """(iv) of the proposal of this view; then vote."""
        if self._proposal is None:
            return False
        view, proposal, _ = self._proposal
        if any((e.client, e.digest) in self._bad for e in proposal.entries):
            self._proposal = None
            self._reject("invalid upload")
            self._change(now, view + 1)
            return True
        if self._ask(proposal.entries, [self.group.leader(self.t, view)]):
            return True
        result = self._result(proposal.entries)
        if result is None:
            return False
        self._proposal = None
        found = proposal_digest(self.t, proposal)
        if not self._agrees(proposal, result):
            self._reject("wrong result")
            self._change(now, view + 1)
        elif self.journal.prepares.setdefault(view, found) != found:
            self._reject("has voted for another")       # before a crash
        else:
            self._accepted[view] = (found, proposal)
            self._broadcast(Prepare(self.t, view, found))
        return True

    def _prepare(self) -> bool:
        """q Prepares for what this server has accepted in its view."""
        if self.view not in self._accepted or self.view in self.journal.prepared:
            return False
        found, proposal = self._accepted[self.view]
        votes = self._prepares.get((self.view, found), {})
        if len(votes) < self.group.quorum or self.me not in votes:
            return False
        self.journal.prepared[self.view] = Certificate(self.view, proposal, self._some(votes))
        self._broadcast(Commit(self.t, self.view, found))
        return True

    def _decide(self) -> bool:
        """q Commits for what this server has prepared, in whatever view."""
        for view, prepared in sorted(self.journal.prepared.items()):
            votes = self._commits.get((view, self.journal.prepares[view]), {})
            if len(votes) >= self.group.quorum:
                self._settle(Certificate(view, prepared.proposal, self._some(votes)))
                return True
        return False

    def _catch_up(self) -> bool:
        """A decision of others whose inputs and result this server has checked itself."""
        for server, m in sorted(self._told.items()):
            entries = m.certificate.proposal.entries
            if any((e.client, e.digest) in self._bad for e in entries):
                del self._told[server]
                self._reject("invalid upload")
                return True
            if self._ask(entries, [server]):
                return True
            result = self._result(entries)
            if result is None:
                continue
            del self._told[server]
            if self._agrees(m.certificate.proposal, result):
                self._settle(m.certificate)
            else:
                self._reject("wrong result")
            return True
        return False

    def _answer(self) -> bool:
        """Tell the decision to those who asked."""
        if not self._behind:
            return False
        assert self.decision is not None
        to = tuple(sorted(self._behind - {self.me}))
        self._behind.clear()
        if to:
            self._effects.append(SendSigned(to, Decision(self.t, self.decision)))
        return True

    def _settle(self, certificate: Certificate) -> None:
        self.journal.decision = certificate
        self._timer = self._patience = None
        self._told.clear()
        # a server beyond this view does not listen to it any more; one that has come as far may decide by itself
        self._behind |= {s for view, senders in self._changes.items() if view > certificate.view for s in senders}
        self._effects.append(Decide(certificate.view, certificate.proposal))

    # --- helpers --------------------------------------------------------------------------------------------------

    def _learn(self, entry: Entry) -> None:
        self._known.setdefault(entry.client, {}).setdefault(entry.digest, entry)

    def _ask(self, entries: Iterable[Entry], servers: list[int]) -> bool:
        """Fetch what of `entries` is not here and was not asked for. True: something was."""
        missing = [key for key in ((e.client, e.digest) for e in entries) if key not in self._here | self._bad]
        wanted = tuple(key for key in missing if any(s != self.me and (s, key) not in self._asked for s in servers))
        if not wanted:
            return False
        to = tuple(s for s in servers if s != self.me)
        self._asked |= {(s, key) for s in to for key in wanted}
        self._effects.append(SendSigned(to, Fetch(self.t, wanted)))
        return True

    def _result(self, entries: tuple[Entry, ...]) -> bytes | None:
        """F of the entries; None: not yet known. It is asked for as soon as their bytes are here."""
        found = self._results.get(entries)
        if found is None and all((e.client, e.digest) in self._here for e in entries):
            asked = Execute(entries)
            if asked not in self._effects:
                self._effects.append(asked)
        return found

    def _some(self, votes: Mapping[int, bytes]) -> tuple[tuple[int, bytes], ...]:
        return tuple(sorted(votes.items())[:self.group.quorum])

    def _broadcast(self, message: Signed) -> None:
        self._effects.append(SendSigned(self.group.everybody, message))

    def _reject(self, reason: str) -> list[Effect]:
        self.rejected[reason] += 1
        return []


def _newest(changes: Iterable[ViewChange]) -> Certificate | None:
    """The proposal prepared last, among those that the ViewChanges tell."""
    certificates = [c.prepared for c in changes if c.prepared is not None]
    return max(certificates, key=lambda c: c.view, default=None)
