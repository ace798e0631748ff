"""The parts of a set-up: asking until everybody has answered, and a ring of public keys.

    server      asks all clients for their keys, then sends all keys to all, until everybody has said that it holds them
    client      answers, however often it is asked

Messages of a set-up may be lost like any other. They travel again until they are answered.

Secret keys come from the scenario's seed, for emulation only. Public keys are not signed: a server that put keys of its
own into the ring would read along, which no client notices. A real system needs a PKI, and pays its bytes.

Bytes of the arrays in each message, without its header: PublicKey 32, KeyRing 32 K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from emul.base.errors import TooFewClients
from emul.primitives.crypto.keys import KEY_BYTES, KeyPair, agree, key_pair
from emul.protocols.demands import Demand, demand, sound_key
from emul.roles import Message, Node, OctetRows, Octets

TRIES = 20                          # a set-up is given up for this round after so many questions


@dataclass(frozen=True)
class KeyRequest(Message):
    """Server to client: send me your public key."""


# unscoped: on links that fail for a whole round, each of them still has a chance of its own
@dataclass(frozen=True)
class PublicKey(Message, unscoped=True):
    """Client to server."""

    key: Octets                     # (32,)


@dataclass(frozen=True)
class KeyRing(Message):
    """Server to client: the public keys of all clients, in their order."""

    keys: OctetRows                 # (K, 32)


@dataclass(frozen=True)
class KeysHeld(Message, unscoped=True):
    """Client to server: I have the key ring."""


MESSAGES = (KeyRequest, PublicKey, KeyRing, KeysHeld)

A = TypeVar("A", bound=Message)


# --- asking ---------------------------------------------------------------------------------------------------------

class Inquiry:
    """The questions of one set-up in one round, at most `tries` of them in all.

    timeout_s: what has no answer by then is asked again; None: once it is known that none will come.
    """

    def __init__(self, node: Node, timeout_s: float | None, tries: int = TRIES):
        self.node, self.timeout_s, self.left = node, timeout_s, tries

    async def ask(self, silent: Callable[[], list[int]], question: Message, kind: type[A],
                  take: Callable[[Mapping[int, A]], object], accept: Callable[[A], None] | None = None) -> None:
        """Ask those that `silent()` gives until it gives none, or no question is left.

        take: is given {node: its answer} of every question; whoever is silent after that is asked again. accept: of
        an answer, as for `node.gather`.
        """
        while self.left and (asked := silent()):
            self.left -= 1
            begun = self.node.now_ns
            self.node.broadcast(asked, question)
            answers = await self.node.gather(kind, asked, timeout_s=self.timeout_s, accept=accept)
            take(answers)
            if not answers and self.node.now_ns == begun:
                self.left = 0       # settled at once: all of them have left the round, asking again is no use


# --- a ring of keys -------------------------------------------------------------------------------------------------

async def exchange_keys(node: Node, clients: Sequence[int], keys: dict[int, np.ndarray], unsure: set[int],
                        timeout_s: float | None) -> None:
    """At the server: collect the public keys of all `clients`, then see to it that everybody has them all.

    keys: {client: its public key}, grows. unsure: clients that may not have the ring yet, shrinks.
    Raises TooFewClients, naming who does not answer: without all keys none is complete.
    """
    def missing() -> list[int]:
        return [k for k in clients if k not in keys]

    inquiry = Inquiry(node, timeout_s)
    await inquiry.ask(missing, KeyRequest(), PublicKey, lambda got: keys.update({k: m.key for k, m in got.items()}),
                      accept=one_of_its_own(keys))
    if not missing():
        ring = KeyRing(np.stack([keys[k] for k in clients]))
        await inquiry.ask(lambda: sorted(unsure), ring, KeysHeld, unsure.difference_update)
    for silent, what in ((missing(), "sent its public key"), (sorted(unsure), "confirmed the key ring")):
        if silent:
            raise TooFewClients(f"set-up: {node.world.names[silent[0]]} has not {what}")


def one_of_its_own(others: Mapping[int, np.ndarray]) -> Demand:
    """A sound key that is none of the `others`, nor one that came with it."""
    seen = {key.tobytes(): k for k, key in others.items()}

    def accept(message: Any) -> None:
        key = message.key.tobytes()
        sound_key("key", key)
        demand(seen.setdefault(key, message.sender) == message.sender, "key: that of somebody else")
    return accept


async def fresh_keys(node: Node) -> KeyPair:
    """At a client: an X25519 key pair from its own stream, so for emulation only: who has the seed has the secret."""
    own: KeyPair = await node.compute("keys", key_pair, node.rng.bytes(KEY_BYTES))
    return own


async def shared_secrets(node: Node, own: KeyPair, members: Sequence[int], ring: np.ndarray) -> dict[int, bytes]:
    """At a client: {other member: X25519 secret}. ring: (K, 32) uint8, the public keys in the order of `members`."""
    found: dict[int, bytes] = await node.compute("agree", agree_with_all, own, members, node.id, ring,
                                                 work=len(members) - 1)
    return found


def agree_with_all(own: KeyPair, members: Sequence[int], me: int, ring: np.ndarray) -> dict[int, bytes]:
    """{other member: X25519 secret}."""
    return {j: agree(own.secret, key.tobytes()) for j, key in zip(members, ring, strict=True) if j != me}
