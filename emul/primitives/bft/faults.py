"""The ways in which faulty servers differ from `pbft.Replica`: in their inputs, their results, their messages.

`FAULTS` by name; an honest server is `ServerBehaviour()`. Crashed and slow servers are matters of time: their driver
has them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from hashlib import sha256

from emul.primitives.bft.pbft import (
    Commit,
    Entry,
    NewView,
    Prepare,
    PrePrepare,
    Proposal,
    Replica,
    SendSigned,
    proposal_digest,
)


def tampered(result: bytes) -> bytes:
    """Other bytes of the same length: the lowest bit of the last number is turned. None: one byte comes out."""
    if not result:
        return b"\x01"
    return result[:-4] + bytes([result[-4] ^ 1]) + result[-3:] if len(result) >= 4 else bytes([result[0] ^ 1])


class ServerBehaviour:
    """None: the honest server."""

    machine: type[Replica] = Replica

    def inputs(self, entries: list[Entry]) -> list[Entry]:
        """Those of its inputs that the server admits to have."""
        return entries

    def result(self, replica: Replica, result: bytes) -> bytes:
        """The value of F that the server claims."""
        return result

    def sent(self, me: int, send: SendSigned) -> Iterable[SendSigned]:
        """The messages that are sent in place of `send`."""
        return [send]

    def reply(self, result: bytes) -> bytes | None:
        """The result with which clients are answered; None: with nothing."""
        return result


class Silent(ServerBehaviour):
    """Follows everything, and never says a word."""

    def sent(self, me: int, send: SendSigned) -> Iterable[SendSigned]:
        """Nothing to others; to itself what it would have sent."""
        return [SendSigned((me,), send.message)] if me in send.to else []

    def reply(self, result: bytes) -> bytes | None:
        return None


class Equivocating(ServerBehaviour):
    """As the leader it shows another result to every second server, and votes for whatever it has shown to each."""

    def __init__(self) -> None:
        self._shown: dict[bytes, bytes] = {}            # digest of the proposal -> of the other one

    def sent(self, me: int, send: SendSigned) -> Iterable[SendSigned]:
        """Its proposals and votes twice: as they are to servers of even numbers and itself, with another result to the
        rest."""
        m = send.message
        first = tuple(s for s in send.to if s == me or s % 2 == 0)
        second = tuple(s for s in send.to if s not in first)
        if isinstance(m, (PrePrepare, NewView)):
            other: Proposal = dataclasses.replace(m.proposal, result=tampered(m.proposal.result))
            self._shown[proposal_digest(m.t, m.proposal)] = proposal_digest(m.t, other)
            return [SendSigned(first, m), SendSigned(second, dataclasses.replace(m, proposal=other))]
        if isinstance(m, (Prepare, Commit)) and m.digest in self._shown:
            return [SendSigned(first, m), SendSigned(second, dataclasses.replace(m, digest=self._shown[m.digest]))]
        return [send]


class Tampering(ServerBehaviour):
    """As the leader it proposes another result, to everybody; and always tells clients another one."""

    def result(self, replica: Replica, result: bytes) -> bytes:
        """Another result in a view that it leads, else the one that F has."""
        return tampered(result) if replica.leads else result

    def reply(self, result: bytes) -> bytes | None:
        return tampered(result)


class Dropping(ServerBehaviour):
    """Leaves its first input out of what it proposes."""

    def inputs(self, entries: list[Entry]) -> list[Entry]:
        return entries[1:]


class WrongVotes(ServerBehaviour):
    """Votes for proposals that do not exist."""

    def sent(self, me: int, send: SendSigned) -> Iterable[SendSigned]:
        """Votes to others with a digest that no proposal has; its vote to itself and all else as they are."""
        m = send.message
        if not isinstance(m, (Prepare, Commit)):
            return [send]
        others = tuple(s for s in send.to if s != me)
        return [SendSigned((me,), m), SendSigned(others, dataclasses.replace(m, digest=sha256(m.digest).digest()))]


class _Gullible(Replica):
    """Votes for whatever it is shown."""

    def _agrees(self, proposal: Proposal, result: bytes) -> bool:
        return True

    def _fault_of(self, proposal: Proposal, certified: bool) -> str | None:
        return None


class Colluding(ServerBehaviour):
    """Tampers as the leader, and votes for everything: several of them need no word between them."""

    machine = _Gullible

    def result(self, replica: Replica, result: bytes) -> bytes:
        """Another result, always: the same one at all that collude."""
        return tampered(result)


FAULTS: dict[str, type[ServerBehaviour]] = {"silent": Silent, "equivocating": Equivocating, "tampering": Tampering,
                                            "dropping": Dropping, "wrong_votes": WrongVotes, "colluding": Colluding}
