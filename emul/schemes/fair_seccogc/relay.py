"""A client before it trains: the set-up messages that it answers, and what the code makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from emul.base.errors import ProtocolFailure
from emul.primitives.crypto.keys import KeyPair
from emul.protocols import setup
from emul.protocols.demands import ascending, demand, key_table, shaped
from emul.protocols.setup import KeyRequest, KeyRing, KeysHeld, PublicKey, fresh_keys, shared_secrets
from emul.roles import Message, Node
from emul.schemes.fair_seccogc import gradient_coding
from emul.schemes.fair_seccogc.group import Design, code_of
from emul.schemes.fair_seccogc.messages import Continue, Group, GroupHeld, Model, Present, Rekey


class Behind(ProtocolFailure):
    """A client cannot take part in the round: it lacks the last global model, or its keys."""


@dataclass
class GroupMember:
    """The group as one client knows it, and its keys there."""

    members: list[int]                                          # ascending
    own: KeyPair | None = None
    shared: dict[int, bytes] = field(default_factory=dict)      # other client -> X25519 secret
    seeds: dict[int, bytes] = field(default_factory=dict)       # component -> seed, from the dealer
    epoch: int = 0                                              # number of the group
    asked: int = 0                                              # and of the one that `own` is for


class Relay(NamedTuple):
    """A client's part in the code."""

    epoch: int                      # of the group that it is for
    row: dict[int, float]           # member -> g_km
    U: list[int]                    # clients whose updates it needs
    V: list[int]                    # relays that need its own


async def relay_of(node: Node, design: Design, m: GroupMember) -> Relay:
    """This client as a relay of its group."""
    _, G = await code_of(node, design, m.members)
    k = m.members.index(node.id)
    return Relay(m.epoch, dict(zip(m.members, G[k].tolist(), strict=True)),
                 _named(m.members, gradient_coding.row_support(G, k)),
                 _named(m.members, gradient_coding.column_support(G, k)))


def _named(members: Sequence[int], positions: Sequence[int]) -> list[int]:
    return [members[place] for place in positions]


async def opening(node: Node, design: Design, m: GroupMember, timeout_s: float | None) -> Model | Continue:
    """The message that opens the round; set-up messages before it are answered, however often they come.

    A round is entered by one of these messages, so that only a client that was in set-up ever waits here, and at most
    as long as a set-up can last. Raises Behind if no opening comes, or it cannot be of the group.
    """
    patience = None if timeout_s is None else (setup.TRIES + 1) * timeout_s
    while True:
        got = await node.gather((Model, Continue, KeyRequest, KeyRing, Rekey, Group), [node.server], timeout_s=patience,
                                accept=lambda message: of_server(node, m, message))
        if not got:
            raise Behind("the opening of the round has not come")
        message = got[node.server]
        if isinstance(message, (Model, Continue)):
            return message
        node.send(node.server, await _answer(node, design, m, message))


def of_server(node: Node, m: GroupMember, message: Message) -> None:
    """Raise ProtocolViolation unless the model has its size, and keys are sound, different, and one's own as it was."""
    if isinstance(message, (Model, Continue)):
        demand(message.version >= 0, f"version: {message.version}, expected 0 or more")     # -1: no model has come
    if isinstance(message, Model):
        shaped(parameters=(node.task.dimension,))(message)
    elif isinstance(message, KeyRing) and m.own is not None:
        key_table("keys", message.keys, len(node.clients), (node.index, m.own.public))
    elif isinstance(message, Group):
        ascending("members", message.members, node.clients)
        demand(node.id in message.members, "members: not this client, which is there")
        if m.own is not None:
            place = message.members.tolist().index(node.id)
            key_table("keys", message.keys, len(message.members), (place, m.own.public))


async def _answer(node: Node, design: Design, m: GroupMember, question: Message) -> Message:
    """A client's answer in a set-up. Raises Behind."""
    if isinstance(question, KeyRequest):
        m.own = m.own or await fresh_keys(node)
        return PublicKey(_public(m.own))
    if isinstance(question, KeyRing):
        if not m.shared and m.own is not None:
            m.shared = await shared_secrets(node, m.own, node.clients, question.keys)
        return KeysHeld()
    if isinstance(question, Rekey):
        if question.epoch != m.asked:
            m.asked, m.own = question.epoch, None
            m.own = await fresh_keys(node) if design.of_pairs else None
        return Present(m.asked, _public(m.own))
    assert isinstance(question, Group)
    if question.epoch != m.asked:
        raise Behind("a crash has wiped what it was to bring to the group")
    if question.epoch != m.epoch:
        m.epoch, m.members = question.epoch, question.members.tolist()
        if m.own is not None:
            m.shared = await shared_secrets(node, m.own, m.members, question.keys)
    return GroupHeld(m.epoch)


def _public(own: KeyPair | None) -> np.ndarray:
    """(32,) uint8; (0,) without keys of pairs."""
    return np.frombuffer(own.public if own else b"", np.uint8)
