"""The samples that all parties of vertical learning have, found without telling which others each of them has.

    party k     H(id)^a of its ids, shuffled                        Blinded
    holder      those to the power of b; H(id)^b of its own         Raised
    party k     which of the holder's ids it has                    Matches
    holder      which of them all parties have                      Aligned

By `emul.primitives.crypto.intersection`, between the holder of the labels and each party. The holder learns of each
party which of its ids it has, and how many; parties learn their common ids. Secrets are of a node's stream.

Bytes of the arrays, n_k ids of party k, n of the holder, m of them the party's, c common: Blinded 32 n_k, Raised
32 (n_k + n), Matches 4 m, Aligned 4 c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.base.errors import NotDecodable, TooFewClients
from emul.primitives.crypto import intersection
from emul.protocols.demands import ascending, demand, shaped
from emul.roles import Message, Node, OctetRows, Words

POINT = intersection.BYTES


@dataclass(frozen=True)
class Blinded(Message):
    """Party to holder."""

    points: OctetRows                   # H(id)^a, (n_k, 32), shuffled


@dataclass(frozen=True)
class Raised(Message):
    """Holder to party."""

    yours: OctetRows                    # (H(id)^a)^b, in the order in which they came
    mine: OctetRows                     # H(id)^b of the holder's ids, (n, 32), shuffled


@dataclass(frozen=True)
class Matches(Message):
    """Party to holder."""

    positions: Words                       # rows of `mine` that are of ids which the party has, ascending


@dataclass(frozen=True)
class Aligned(Message):
    """Holder to party."""

    positions: Words                       # rows of `mine` that all parties have, ascending: the order of the samples


MESSAGES = (Blinded, Raised, Matches, Aligned)


async def align(node: Node, deadline_s: float) -> np.ndarray:
    """At who has the labels: the ids of the samples that all clients have, in the order that everybody has. Raises
    TooFewClients if a client is missing or there are none."""
    def points(message: Blinded) -> None:
        demand(message.points.ndim == 2 and message.points.shape[1] == POINT and 0 < len(message.points) <= 10**7,
               "points: no points")

    secret = node.rng.bytes(POINT)
    order = node.rng.permutation(node.task.ids())
    came = present(node, node.clients, await node.gather(Blinded, node.clients, timeout_s=deadline_s, accept=points))
    mine = await node.compute("blind", blind, order, secret, work=float(len(order)))
    for k, message in came.items():
        yours = await node.compute("raise", raise_all, message.points, secret, work=float(len(message.points)))
        node.send(k, Raised(yours, mine))
    found = present(node, node.clients, await node.gather(
        Matches, node.clients, timeout_s=deadline_s,
        accept=lambda m: ascending("positions", m.positions, range(len(mine)))))
    positions = sorted(set.intersection(*(set(m.positions.tolist()) for m in found.values())))
    if not positions:
        raise TooFewClients("the parties have no sample in common")
    node.broadcast(node.clients, Aligned(np.array(positions, np.uint32)))
    return order[positions]


def present(node: Node, among: Sequence[int], got: dict[int, Any]) -> dict[int, Any]:
    """The messages of all of these nodes. Raises TooFewClients if one is missing."""
    missing = [node.world.names[k] for k in among if k not in got]
    if missing:
        raise TooFewClients(f"nothing came of {', '.join(missing)}")
    return got


async def find_common(node: Node, holder: int, timeout_s: float) -> np.ndarray:
    """At a client: the same. holder: who has the labels."""
    secret = node.rng.bytes(POINT)
    ids = node.rng.permutation(node.task.ids())
    node.send(holder, Blinded(await node.compute("blind", blind, ids, secret, work=float(len(ids)))))
    raised = await node.recv(Raised, holder, timeout_s=timeout_s, accept=shaped(yours=(len(ids), POINT)))
    id_at = await node.compute("match", match, ids, raised, secret, work=float(len(raised.mine)))
    node.send(holder, Matches(np.array(sorted(id_at), np.uint32)))

    def sound(message: Aligned) -> None:
        ascending("positions", message.positions, sorted(id_at))
        demand(len(message.positions) > 0, "positions: no sample in common")

    aligned = await node.recv(Aligned, holder, timeout_s=timeout_s, accept=sound)
    return np.array([id_at[place] for place in aligned.positions.tolist()], np.int64)


def blind(ids: np.ndarray, secret: bytes) -> np.ndarray:
    """(n, 32) uint8."""
    return rows_of(intersection.blinded(ids.tolist(), secret))


def raise_all(points: np.ndarray, secret: bytes) -> np.ndarray:
    """(n, 32) uint8. Raises NotDecodable for what is no point."""
    try:
        return rows_of(intersection.raised([row.tobytes() for row in points], secret))
    except ValueError:
        raise NotDecodable("what came is no point") from None


def match(ids: np.ndarray, raised: Raised, secret: bytes) -> dict[int, int]:
    """Row of `mine` -> the id of it, of those that the party has."""
    own = {row.tobytes(): id_ for row, id_ in zip(raised.yours, ids.tolist(), strict=True)}
    theirs = raise_all(raised.mine, secret)
    return {place: own[row.tobytes()] for place, row in enumerate(theirs) if row.tobytes() in own}


def rows_of(points: Sequence[bytes]) -> np.ndarray:
    """As they travel."""
    return np.frombuffer(b"".join(points), np.uint8).reshape(-1, POINT)
