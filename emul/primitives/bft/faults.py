"""What faulty servers do differently from `pbft.Replica`: with their inputs, their results, what they send.

`FAULTS` by name; an honest server is `Fault()`. Crashed and slow servers are matters of time, and their driver's.
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
    Send,
    proposal_digest,
)


def tampered(result: bytes) -> bytes:
    """Other bytes of the same length: the lowest bit of the last number is turned. None: one byte comes out."""
    if not result:
        return b"\x01"
    return result[:-4] + bytes([result[-4] ^ 1]) + result[-3:] if len(result) >= 4 else bytes([result[0] ^ 1])


class Fault:
    """None: the honest server."""

    machine: type[Replica] = Replica

    def inputs(self, entries: list[Entry]) -> list[Entry]:
        """Which of its inputs the server admits to have."""
        return entries

    def result(self, replica: Replica, result: bytes) -> bytes:
        """What the server says that F comes to."""
        return result

    def sent(self, me: int, send: Send) -> Iterable[Send]:
        """What is sent in place of `send`."""
        return [send]

    def told(self, result: bytes) -> bytes | None:
        """What clients are told of the result; None: nothing."""
        return result


class Silent(Fault):
    """Follows everything, and never says a word."""

    def sent(self, me: int, send: Send) -> Iterable[Send]:
        """Nothing to others; to itself what it would have sent."""
        return [Send((me,), send.message)] if me in send.to else []

    def told(self, result: bytes) -> bytes | None:
        return None


class Equivocating(Fault):
    """As the leader it shows another result to every second server, and votes for whatever it has shown to each."""

    def __init__(self) -> None:
        self._shown: dict[bytes, bytes] = {}            # digest of the proposal -> of the other one

    def sent(self, me: int, send: Send) -> Iterable[Send]:
        """Its proposals and votes twice: as they are to servers of even numbers and itself, with another result to the
        rest."""
        m = send.message
        first = tuple(s for s in send.to if s == me or s % 2 == 0)
        second = tuple(s for s in send.to if s not in first)
        if isinstance(m, (PrePrepare, NewView)):
            other: Proposal = dataclasses.replace(m.proposal, result=tampered(m.proposal.result))
            self._shown[proposal_digest(m.t, m.proposal)] = proposal_digest(m.t, other)
            return [Send(first, m), Send(second, dataclasses.replace(m, proposal=other))]
        if isinstance(m, (Prepare, Commit)) and m.digest in self._shown:
            return [Send(first, m), Send(second, dataclasses.replace(m, digest=self._shown[m.digest]))]
        return [send]


class Tampering(Fault):
    """As the leader it proposes another result, to everybody; and always tells clients another one."""

    def result(self, replica: Replica, result: bytes) -> bytes:
        """Another result in a view that it leads, else the one that F has."""
        return tampered(result) if replica.leads else result

    def told(self, result: bytes) -> bytes | None:
        return tampered(result)


class Dropping(Fault):
    """Leaves its first input out of what it proposes."""

    def inputs(self, entries: list[Entry]) -> list[Entry]:
        return entries[1:]


class WrongVotes(Fault):
    """Votes for proposals that do not exist."""

    def sent(self, me: int, send: Send) -> Iterable[Send]:
        """Votes to others with a digest that no proposal has; its vote to itself and all else as they are."""
        m = send.message
        if not isinstance(m, (Prepare, Commit)):
            return [send]
        others = tuple(s for s in send.to if s != me)
        return [Send((me,), m), Send(others, dataclasses.replace(m, digest=sha256(m.digest).digest()))]


class _Gullible(Replica):
    """Votes for whatever it is shown."""

    def _agrees(self, proposal: Proposal, result: bytes) -> bool:
        return True

    def _fault_of(self, proposal: Proposal, certified: bool) -> str | None:
        return None


class Colluding(Fault):
    """Tampers as the leader, and votes for everything: several of them need no word between them."""

    machine = _Gullible

    def result(self, replica: Replica, result: bytes) -> bytes:
        """Another result, always: the same one at all that collude."""
        return tampered(result)


FAULTS: dict[str, type[Fault]] = {"silent": Silent, "equivocating": Equivocating, "tampering": Tampering,
                                  "dropping": Dropping, "wrong_votes": WrongVotes, "colluding": Colluding}
