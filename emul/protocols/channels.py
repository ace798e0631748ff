"""Channels between the clients of one round: each sends a public key, and gets those of the others from the server.

Fresh X25519 keys each round, from a client's own stream: for emulation only, since who has the scenario's seed has
them, too. Public keys are not signed, as in protocols against an honest but curious server.

Bytes of the arrays in each message, without its header, for n clients: AdvertiseKey 32, Roster 36 (n - 1). A list's
length is in the header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from emul.base.errors import ProtocolViolation, TooFewClients
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, channel_key, key_pair, seal, unseal
from emul.primitives.field import Elements, below
from emul.protocols.demands import Demand, ascending, demand, key_table, sound_key
from emul.roles import Message, Node, OctetRows, Octets, Words


@dataclass(frozen=True)
class AdvertiseKey(Message):
    """Client to server."""

    key: Octets                     # (32,)


@dataclass(frozen=True)
class Roster(Message):
    """Server to client: the keys of the others who take part."""

    ids: Words                      # (n - 1,), ascending
    keys: OctetRows                 # (n - 1, 32)


MESSAGES = (AdvertiseKey, Roster)


def ids_of(nodes: Sequence[int]) -> np.ndarray:
    """(n,) uint32."""
    return np.array(nodes, np.uint32)


def closed(stage: str, answered: Mapping[int, Message], asked: int, need: int) -> list[int]:
    """The set of a stage: who has answered, ascending. Raises TooFewClients, `too_few_clients`, below `need`."""
    if len(answered) < need:
        raise TooFewClients(f"too_few_clients: {stage}: {len(answered)} of {asked} clients answered, need {need}")
    return list(answered)


# --- at the server ------------------------------------------------------------------------------------------------

def fresh_key() -> Demand:
    """A sound key that nobody has advertised before in this round."""
    seen: set[bytes] = set()

    def accept(message: AdvertiseKey) -> None:
        key = message.key.tobytes()
        sound_key("key", key)
        demand(key not in seen, "key: that of somebody else")
        seen.add(key)
    return accept


async def introduce(node: Node, members: Sequence[int], need: int, deadline_s: float | None) -> list[int]:
    """Gather the keys of `members` and send to each who answered those of the others. Returns who answered.

    Raises TooFewClients below `need`.
    """
    advertised = await node.gather(AdvertiseKey, members, timeout_s=deadline_s, accept=fresh_key())
    found = closed("keys", advertised, len(members), need)
    keys = np.stack([advertised[i].key for i in found])
    node.send_each({i: Roster(ids_of(found[:place] + found[place + 1:]), np.delete(keys, place, axis=0))
                    for place, i in enumerate(found)})
    return found


# --- at a client ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Channels:
    """The channels of a client to the others of its round: a key with each whom it talks to."""

    me: int
    round: int
    members: list[int]              # with this client, ascending
    own: KeyPair
    public: dict[int, bytes] = field(repr=False)
    keys: dict[int, bytes] = field(default_factory=dict, repr=False)

    def seal(self, to: int, values: Elements, counter: int = 0) -> np.ndarray:
        """(4 w + 16,) uint8: (w,) elements for one member. counter: differs between what goes to the same one."""
        return np.frombuffer(seal(self._key(to), self.me, to, counter, self.round, values.tobytes()), np.uint8)

    def open(self, source: int, box: np.ndarray, p: int, counter: int = 0) -> Elements:
        """The elements of a box. Raises ProtocolViolation, `bad_ciphertext`: not sealed by its source, or no such."""
        try:
            values = np.frombuffer(unseal(self._key(source), source, self.me, counter, self.round, box.tobytes()),
                                   np.uint32)
        except ProtocolViolation as e:
            raise ProtocolViolation(f"bad_ciphertext: {e}") from e
        demand(below(values, p), "bad_ciphertext: a value of p or above")
        return values

    def _key(self, other: int) -> bytes:
        if other not in self.keys:
            self.keys[other] = channel_key(agree(self.own.secret, self.public[other]))
        return self.keys[other]


async def join(node: Node, patience_s: float | None) -> Channels:
    """Advertise a fresh key and wait for those of the others."""
    own: KeyPair = await node.compute("keys", key_pair, node.rng.bytes(KEY_BYTES))
    node.send(node.server, AdvertiseKey(np.frombuffer(own.public, np.uint8)))
    roster = await node.recv(Roster, node.server, timeout_s=patience_s,
                             accept=lambda roster: check_roster(node.id, own, roster, node.clients))
    ids = roster.ids.tolist()
    public = {j: key.tobytes() for j, key in zip(ids, roster.keys, strict=True)}
    return Channels(node.id, node.round, sorted([*ids, node.id]), own, public)


def check_roster(me: int, own: KeyPair, roster: Roster, clients: Sequence[int]) -> None:
    """Keys of other clients, all of them different, none of them one's own. Raises ProtocolViolation."""
    ascending("ids", roster.ids, [j for j in clients if j != me])
    if len(roster.ids):
        key_table("keys", roster.keys, len(roster.ids))
    demand(roster.keys.shape == (len(roster.ids), KEY_BYTES), "keys: not one of each client")
    demand(own.public not in {key.tobytes() for key in roster.keys}, "keys: mine as somebody else's")
