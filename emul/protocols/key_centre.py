"""A key centre that makes all keys of a scheme and is heard of no more once everybody has confirmed its own.

    server        Deal, at the start of each round until it has heard AllDealt
    key centre    Keys to each that has not confirmed them;  AllDealt to the server
    others        KeysHeld

Keys travel unencrypted: the links to the key centre are taken to be secure, which a real system has to see to. They
come from the scenario's seed, for emulation only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from emul.base.errors import NothingToReceive
from emul.protocols.demands import demand
from emul.roles import Message, Node

KeyParts = tuple[bytes, ...]            # the numbers for one party, big-endian, in an order that the scheme fixes


@dataclass(frozen=True)
class Deal(Message):
    """Server to key centre: this round needs keys."""


# unscoped: whoever is not in the round yet finds them when it enters
@dataclass(frozen=True)
class Keys(Message, unscoped=True):
    """Key centre to a party."""

    parts: list[bytes]


@dataclass(frozen=True)
class KeysHeld(Message, unscoped=True):
    """A party to the key centre: I have my keys."""


@dataclass(frozen=True)
class AllDealt(Message, unscoped=True):
    """Key centre to server: everybody has them."""


MESSAGES = (Deal, Keys, KeysHeld, AllDealt)


@dataclass
class Centre:
    """The state of the key centre."""

    unsure: set[int]                                # parties that have not confirmed their keys
    dealt: Mapping[int, KeyParts] | None = None     # node -> its keys


@dataclass
class PartyKeys:
    """The keys that a party keeps."""

    keys: KeyParts = field(default=())
    all_dealt: bool = False                         # at the server: so the key centre has said


async def key_centre(node: Node, make: Callable[[], Mapping[int, KeyParts]]) -> None:
    """Rounds of the key centre. make: {node: its keys}, called once."""
    s = node.state(Centre({k for k in range(node.world.nodes) if k != node.id}))
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Deal, node.server)
            if s.dealt is None:
                s.dealt = await node.compute("keygen", make)
            s.unsure -= (await node.gather(KeysHeld, s.unsure, timeout_s=0)).keys()
            node.send_each({k: Keys(list(s.dealt[k])) for k in sorted(s.unsure)})
            if not s.unsure:
                node.send(node.server, AllDealt())


async def wake_centre(node: Node, s: PartyKeys, role: str = "kgc") -> None:
    """At the server, at the start of a round: have keys dealt to whoever lacks them. role: the key centre's."""
    centre = node.nodes(role)[0]
    if not s.all_dealt:
        s.all_dealt = bool(await node.gather(AllDealt, [centre], timeout_s=0))
    if not s.all_dealt:
        node.send(centre, Deal())


async def hold_keys(node: Node, s: PartyKeys, parts: int, timeout_s: float | None, role: str = "kgc") -> KeyParts:
    """At a party: its keys, so many numbers; the key centre is told. Raises NothingToReceive if they have not come."""
    def accept(message: Keys) -> None:
        demand(len(message.parts) == parts, f"keys: expected {parts} parts")

    centre = node.nodes(role)[0]
    got = await node.gather(Keys, [centre], timeout_s=0 if s.keys else timeout_s, accept=accept)
    if got:
        s.keys = tuple(got[centre].parts)
        node.send(centre, KeysHeld())
    if not s.keys:
        raise NothingToReceive("the keys have not come")
    return s.keys


def octets(number: int) -> bytes:
    """A number as it travels."""
    return int(number).to_bytes((int(number).bit_length() + 7) // 8 or 1, "big")


def number(octets: bytes) -> int:
    """The number that has travelled."""
    return int.from_bytes(octets, "big")
