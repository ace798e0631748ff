"""A rendezvous: who takes part in a collective, and whether its result counts. With it collectives survive members that
fail, leave and come back.

    rendezvous      a round begins: to all peers `Epoch`: the number of steps that count so far, and who has taken them
    peer            whose number of steps is another asks the nearest of these for model and outer state (`Wanted`,
                    `Handover`, 8 d bytes) and takes them over; all others train; to the rendezvous `Present`
    rendezvous      waits for those who have taken the last step, until `grace_s` after the first of them, and for
                    those of whom it has heard that they join (`Joining`), as long again; to those who are present
                    `Members`: an attempt begins
    members         run the collective, tagged with the number of the attempt. One that waits too long for a part ends
                    it and tells all others (`Abort`). To the rendezvous `Attempted`
    rendezvous      waits for the answers, each for the timeout at most. If all that have come are good, the step
                    counts: `Members` of nobody. Else the next attempt begins, of those who have answered until
                    `grace_s` after the last one

A peer keeps the input of a collective until the step counts, and takes the step when it hears so. A peer that has not
heard it is out: the next epoch has another number of steps, and the peer joins anew. So all who have taken as many
steps have the same model, whoever crashes when. A peer that joins adds nothing in its first epoch, and trains from the
next one on.

torchft's lighthouse and the master of PCCL (arXiv 2505.14065) decide who takes part in this way.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from emul.base.errors import Cancelled, ProtocolFailure, TooFewClients
from emul.protocols.demands import ascending, demand
from emul.roles import Message, Node, Vector
from emul.roles.activities import Activity

R = TypeVar("R")

PLACE = "rendezvous | server[0]"    # of the role
ATTEMPTS = 10                       # of one epoch, before it fails


@dataclass(frozen=True)
class Epoch(Message):
    """Rendezvous to all peers."""

    steps: int                      # outer steps that count
    members: list[int]              # that have taken the last of them; none: nobody has taken any


@dataclass(frozen=True)
class Joining(Message):
    """Peer that joins to rendezvous: it will be present once it has the state."""


@dataclass(frozen=True)
class Wanted(Message):
    """Peer that joins to a member."""


@dataclass(frozen=True)
class Handover(Message):
    """Member to a peer that joins."""

    steps: int
    state: list[Vector]             # the model, (d,) float32, and what else all have alike, such as an outer momentum


@dataclass(frozen=True)
class Present(Message):
    """Peer to rendezvous."""

    trained: bool


@dataclass(frozen=True)
class Members(Message):
    """Rendezvous to those who are present."""

    attempt: int
    members: list[int]              # ascending; none: the attempt before counts
    trained: list[int]              # those of them that have, ascending


@dataclass(frozen=True)
class Attempted(Message, tagged=True):
    """Member to rendezvous."""

    good: bool
    tag: int                        # the attempt


@dataclass(frozen=True)
class Abort(Message, tagged=True):
    """Member to all others: it has waited too long."""

    tag: int                        # the attempt


MESSAGES = (Epoch, Joining, Wanted, Handover, Present, Members, Attempted, Abort)


class Replicated(Protocol):
    """The state of a peer, a part of which is the same at all who have taken as many steps."""

    steps: int

    def shared(self) -> list[Vector]:
        """That part."""
        ...

    def take_over(self, state: Sequence[Vector]) -> None:
        """Replace it by that of another peer, in the order of `shared`."""
        ...


@dataclass
class Register:
    """The state of a rendezvous."""

    members: list[int]              # that have taken the last step
    steps: int = 0


class Times(Protocol):
    """The times of a rendezvous, seconds: parameters of a scheme."""

    @property
    def grace_s(self) -> float:
        """Between the first peer that is present and the last one that is waited for."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """The longest silence in a collective."""
        ...


# --- rendezvous -------------------------------------------------------------------------------------------------------

async def rendezvous(node: Node, p: Times) -> None:
    """The role."""
    peers = node.nodes("peer")
    s = node.state(Register(peers))
    async for round_ in node.rounds():
        with round_:
            node.broadcast(peers, Epoch(s.steps, s.members if s.steps else []))
            present = await _present(node, peers, s.members, p.grace_s)
            members, trained = sorted(present), {k for k, said in present.items() if said.trained}
            for attempt in range(1, ATTEMPTS + 1):
                left = sorted(trained.intersection(members))
                if not left:
                    await node.sleep(p.grace_s)
                    raise TooFewClients("nobody who has trained is left")
                node.broadcast(members, Members(attempt, members, left))
                ended = await _ended(node, members, attempt, p)
                good = len(ended) > 0 and all(one.good for one in ended.values())
                members = sorted(ended)
                if good:
                    s.members, s.steps = members, s.steps + 1
                    node.broadcast(members, Members(attempt, [], []))
                    node.report(members=len(members), attempts=attempt)
                    break
            else:
                raise ProtocolFailure(f"no attempt of {ATTEMPTS} has come to its end")


async def _present(node: Node, peers: Sequence[int], expected: Sequence[int], grace_s: float) -> dict[int, Present]:
    """{peer: what it has said}. Raises TooFewClients if nobody who can train is there."""
    found = await node.gather(Present, expected, need=1)
    if not found:
        await node.sleep(grace_s)               # or rounds would pass without time
        raise TooFewClients("no peer is present that has taken the last step")
    found |= await node.gather(Present, set(expected) - set(found), grace_s)
    joining = await node.gather(Joining, set(peers) - set(found), 0.0)           # those of whom it has heard by now
    return found | await node.gather(Present, joining, grace_s)


async def _ended(node: Node, members: Sequence[int], attempt: int, p: Times) -> dict[int, Attempted]:
    """{member: what it has said}, of those that have answered in time."""
    found: dict[int, Attempted] = {}
    wait_s: float | None = None
    while len(found) < len(members):
        got = await node.gather(Attempted, set(members) - set(found), wait_s, need=1, tag=attempt)
        if not got:
            break
        found |= got
        wait_s = p.timeout_s if all(one.good for one in found.values()) else p.grace_s
    return found


# --- peer -------------------------------------------------------------------------------------------------------------

async def enter(node: Node, where: int, s: Replicated) -> bool:
    """A peer in a round of the rendezvous `where`: its state is that of the epoch afterwards. True: it has it from
    another one, and must not train. Raises ProtocolFailure if that one fails."""
    peers = node.nodes("peer")
    epoch = await node.recv(Epoch, where, accept=lambda m: ascending("members", m.members, peers))
    if epoch.steps == s.steps:
        node.start(_hand_over(node, s))
        return False
    others = [k for k in epoch.members if k != node.id]
    if not others:
        raise ProtocolFailure("nobody has the state of this epoch")
    donor = min(others, key=lambda k: (node.latency_s(k), k))
    node.send(where, Joining())
    node.send(donor, Wanted())
    shapes = [one.shape for one in s.shared()]

    def sound(came: Handover) -> None:
        demand([one.shape for one in came.state] == shapes, f"state: not of the shapes {shapes}")
        demand(came.steps == epoch.steps, f"steps: {came.steps}, expected the {epoch.steps} of the epoch")
    came = await node.recv(Handover, donor, accept=sound)
    s.take_over(came.state)
    s.steps = came.steps
    return True


async def _hand_over(node: Node, s: Replicated) -> None:
    """Give the state of this epoch to each peer that asks for it, until the round ends."""
    while True:
        wanted = await node.recv_any(Wanted)
        node.send(wanted.sender, Handover(s.steps, s.shared()))


async def settle(node: Node, where: int, trained: bool,
                 work: Callable[[Members], Coroutine[object, object, R]]) -> tuple[R, Members]:
    """The result of `work` in the attempt that counts, and that attempt.

    work: the collective of one attempt, with `silence_s` and the attempt as its tag. It changes nothing, since its
    result may not count.
    """
    peers = node.nodes("peer")

    def sound(call: Members) -> None:
        ascending("members", call.members, peers)
        ascending("trained", call.trained, call.members)
        demand(not call.members or (node.id in call.members and len(call.trained) > 0),
               "members: without this peer, or without one that has trained")

    node.send(where, Present(trained))
    done: tuple[R, Members] | None = None
    while True:
        call = await node.recv(Members, where, accept=sound)
        if not call.members:
            if done is None:
                raise ProtocolFailure("a step counts that this peer has not taken")
            return done
        done = await _attempt(node, call, work)
        node.send(where, Attempted(done is not None, call.attempt))


async def _attempt(node: Node, call: Members, work: Callable[[Members], Coroutine[object, object, R]],
                   ) -> tuple[R, Members] | None:
    """None: it has failed."""
    doing = node.start(work(call))
    watching = node.start(_stop(node, doing, call.attempt))
    try:
        return await doing, call
    except Cancelled:
        return None
    except ProtocolFailure:
        node.broadcast([k for k in call.members if k != node.id], Abort(call.attempt))
        return None
    finally:
        node.cancel(watching)


def mortal(survive: bool, timeout_s: float | None) -> list[str]:
    """The mistake in parameters with which no collective survives anything, for a scheme's `check`."""
    return ["survive = True: expected a timeout, after which a peer takes another one for lost"] * (
        survive and timeout_s is None)


async def _stop(node: Node, doing: Activity[R], attempt: int) -> None:
    """End the collective once a member has said that it has failed."""
    await node.recv_any(Abort, tag=attempt)
    node.cancel(doing)
