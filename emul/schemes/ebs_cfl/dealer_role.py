"""The key dealer of EBS-CFL: it draws all keys, is on line in every round, and never sees an upload.

It answers what the server asks within a round, one after the other: keys (`Wanted`), a round (`Participants`), and at
most one question of whom it can do without (`Missing`; with restarts as many as these). Two corrections for different
sets would tell the server the difference of both, so a second one is refused, and so is one that leaves too few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emul.base.errors import TooFewClients
from emul.protocols.demands import ascending, demand, shaped
from emul.roles import Message, Node
from emul.schemes.ebs_cfl.design import Masking, shape_of
from emul.schemes.ebs_cfl.masking import rounds
from emul.schemes.ebs_cfl.masking.blocks import Array, Shape
from emul.schemes.ebs_cfl.masking.keys import (
    SENT,
    DealerKeys,
    draw_keys,
    renewed,
    restarted,
    server_keys,
    verification_keys,
)
from emul.schemes.ebs_cfl.messages import (
    AlphaKeys,
    AlphaTensor,
    Checks,
    ClientKeys,
    Correction,
    KeysHeld,
    LayerKeys,
    Missing,
    NotHeld,
    Participants,
    References,
    Renewed,
    RoundKey,
    ServerKeySet,
    StandIns,
    VerifyKeys,
    Wanted,
)

Request = References | Wanted | Participants | Missing


@dataclass
class DealerState:
    """The state of the dealer: all keys, and the references of which alpha keys are made."""

    unsure: set[int]                            # nodes that may not have their keys
    keys: DealerKeys | None = None
    h: np.ndarray | None = None                 # (m, l)
    version: int = 0                            # of `h`


@dataclass
class Dealing:
    """The dealer's state of one round."""

    keys: DealerKeys                            # of this attempt
    rows: Mapping[int, Array] = field(default_factory=dict)     # client -> R_i
    attempt: int = 0
    mended: bool = False
    asked: int = 0                              # questions for keys


async def dealer(node: Node, d: Masking) -> None:
    """Rounds of the dealer, which follows the server."""
    shape = shape_of(node, d)
    s = node.state(DealerState(set(node.clients)))
    if s.keys is None:
        s.keys = await node.compute("keys", draw_keys, shape, node.seed, d.zeta, d.skt_mask, d.verify)
    async for round_ in node.rounds(of=node.server):
        with round_:
            session = Dealing(s.keys)
            while (request := await asked(node, d, shape, session)) is not None:
                if isinstance(request, References):
                    s.h, s.version = request.h, request.version
                elif isinstance(request, Wanted):
                    await give_keys(node, d, s, request)
                elif isinstance(request, Participants):
                    await open_round(node, d, s, session, request.clients.tolist(), round_)
                else:
                    await mend(node, d, session, request.clients.tolist(), round_)


async def asked(node: Node, d: Masking, shape: Shape, session: Dealing) -> Request | None:
    """The next question of the server in this round; None: there is none."""
    def sound(message: Message) -> None:
        if isinstance(message, References):
            shaped(h=(shape.clusters, shape.length))(message)
        elif isinstance(message, Wanted):
            ascending("whose", message.whose, range(shape.clients))
            # A server asks at most once for each client, and again for what was lost. Each answer is work of the
            # dealer, so a flood of questions must end somewhere.
            demand(session.asked < 4 * shape.clients + 4, f"asked {session.asked} times in this round")
            session.asked += 1
        elif isinstance(message, Participants):
            ascending("clients", message.clients, range(shape.clients))
            demand(len(message.clients) >= 2, "clients: fewer than 2")
        elif isinstance(message, Missing):
            ascending("clients", message.clients, range(shape.clients))
            demand(len(message.clients) >= 1, "clients: nobody")

    kinds = (References, Wanted, Participants, Missing)
    if d.dealer_timeout_s is not None:
        question: Message | None = await node.recv_any(*kinds, accept=sound)        # until the round is over
    else:
        question = (await node.gather(kinds, [node.server], accept=sound)).get(node.server)
    assert question is None or isinstance(question, kinds)
    return question


# --- keys -----------------------------------------------------------------------------------------------------------

async def give_keys(node: Node, d: Masking, s: DealerState, wanted: Wanted) -> None:
    """Keys to the server: those that do not depend on the references, then alpha keys of some clients or groups."""
    assert s.keys is not None
    if s.h is None or s.version != wanted.version:
        node.send(node.server, NotHeld())
        return
    if wanted.first:
        keys = await node.compute("server keys", server_keys, s.keys)
        node.send(node.server, ServerKeySet(**{name: getattr(keys, name) for name in SENT}))
        node.send(node.server, VerifyKeys(verification_keys(s.keys)))
        for layer, each in enumerate(keys.lifts, 1):
            node.send(node.server, LayerKeys(layer, each.tk0, each.tk1))
    sets = await node.compute("gammas", rounds.gammas, s.keys.shape, s.keys.A, s.h, d.weighting)
    for i in wanted.whose.tolist():
        for which, Gamma in enumerate(sets):
            if d.alpha == "full":
                tensor = await node.compute("alpha keys", rounds.full, s.keys, s.keys.shape.groups[i], Gamma)
                node.send(node.server, AlphaTensor(i, which, tensor))
            else:
                made = await node.compute("alpha keys", rounds.compact, s.keys.members[i], Gamma, which)
                node.send(node.server, AlphaKeys(i, which, made.F, made.B))


# --- rounds ---------------------------------------------------------------------------------------------------------

async def open_round(node: Node, d: Masking, s: DealerState, session: Dealing, there: list[int], round_: int) -> None:
    """Keys to those that have none yet, round keys to all, and what their uploads are checked against to the server."""
    if session.rows:
        node.send(node.server, NotHeld())
        return
    said = await node.gather(KeysHeld, node.clients, timeout_s=0)
    s.unsure = {k for k in node.clients if (not said[k].held if k in said else k in s.unsure)}
    node.send_each({node.clients[i]: ClientKeys(session.keys.members[i].P[0], session.keys.A)
                    for i in there if node.clients[i] in s.unsure})
    await deal(node, d, session, there, round_)


async def deal(node: Node, d: Masking, session: Dealing, there: list[int], round_: int) -> None:
    """Round keys of one attempt, and its checks. Raises TooFewClients if there are no masks that add up."""
    try:
        session.rows = await node.compute("mask rows", rounds.mask_rows, session.keys, node.seed,
                                          (int(round_), session.attempt), there, d.mask_norm)
    except ValueError as error:
        raise TooFewClients(str(error)) from None
    members = dict(enumerate(session.keys.members))
    for i in there:
        ek1 = await node.compute("round key", rounds.round_key, members[i], session.rows[i])
        node.send(node.clients[i], RoundKey(session.attempt, ek1))
    e = await node.compute("checks", rounds.expected, members, session.rows)
    node.send(node.server, Checks(session.attempt, e))


async def mend(node: Node, d: Masking, session: Dealing, missing: list[int], round_: int) -> None:
    """Send the server the keys that it needs to go on without the clients that are missing."""
    there = sorted(session.rows)
    left = [i for i in there if i not in missing]
    again = d.recovery == "restart" and session.attempt < d.restarts
    if not set(missing) <= set(there) or len(left) < d.least(len(there)) or (session.mended and not again):
        node.send(node.server, NotHeld())
        return
    session.mended = True
    if d.recovery == "correction":
        C = await node.compute("correction", rounds.correction, session.keys, session.rows, left)
        node.send(node.server, Correction(C))
    elif d.recovery == "standin":
        made = [await node.compute("round key", rounds.round_key, session.keys.members[i], session.rows[i])
                for i in missing]
        node.send(node.server, StandIns(made))
    else:
        await restart(node, d, session, left, round_)


async def restart(node: Node, d: Masking, session: Dealing, left: Sequence[int], round_: int) -> None:
    """The round once more, for those that are left."""
    session.attempt += 1
    new: Mapping[int, tuple[Array, Array]] = {}
    if d.renews:
        session.keys = await node.compute("restart", restarted, session.keys, node.seed, left,
                                          (int(round_), session.attempt), d.zeta, d.skt_mask)
        new = renewed(session.keys, left)
    node.send(node.server, Renewed(np.array(sorted(new), np.int32), [new[g][0] for g in sorted(new)],
                                   [new[g][1] for g in sorted(new)]))
    await deal(node, d, session, list(left), round_)
