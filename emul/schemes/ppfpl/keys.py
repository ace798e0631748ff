"""The key centre of PPFPL, and how every party comes to its keys.

    v   the verifier's pair         A: public, relin (and Galois where it rotates)   V: public, secret    client: public
    x   the clients' pair           A: public, relin        V: public        every client: public, secret, the same
    c   a pair of the verifier with more levels, for `compare: max_iter`     A: public, relin    V: public, secret

The aggregator asks for all keys in its first round, and later for those who say that theirs have not come. The key
centre answers; it takes no part in anything else. Its links must be private ones: it sends secret keys in the clear.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from emul.base.errors import NothingToReceive
from emul.primitives.he import ckks
from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Box, Ckks, Parameters, Plain
from emul.protocols.demands import Demand, ascending, demand
from emul.roles import Declared, Node
from emul.schemes.ppfpl.messages import KeyRequest, Keys, NoKeys

NONE = np.zeros(0, np.uint8)
ROLES = ("aggregator", "verifier", "client")


@dataclass(frozen=True)
class KeyPlan:
    """The pairs of keys that there are, and the parts of each that a role gets."""

    real: bool                          # ciphertexts, and no plain numbers
    rotates: bool = False               # A adds up slots: it needs Galois keys
    compares: bool = False              # there is a pair c

    def pairs(self) -> dict[str, Parameters]:
        """{name: parameters}."""
        return {"v": PROTOTYPES, "x": PROTOTYPES} | ({"c": COMPARISON} if self.compares else {})

    def part(self, role: str, pair: str) -> dict[str, bool] | None:
        """The parts of a pair that a role gets beside the public key; None: not even that."""
        if role == "aggregator":
            return {"relin": True} | ({"galois": True} if self.rotates and pair == "v" else {})
        if pair == "c" and role == "client":
            return None
        return {"secret": True} if pair == ("x" if role == "client" else "v") or pair == "c" else {}

    def sizes(self, role: str) -> dict[str, int]:
        """{pair: bytes} that a role gets."""
        return {name: parameters.key_bytes(**part) for name, parameters in self.pairs().items()
                if (part := self.part(role, name)) is not None}


@dataclass(frozen=True)
class Boxes:
    """The keys of one party."""

    v: Box
    x: Box
    c: Box | None = None


# --- key centre -----------------------------------------------------------------------------------------------------

Parts = dict[str, dict[str, np.ndarray]]                # role -> pair -> padded keys


@dataclass
class CentreState:
    parts: Parts | None = None


async def key_centre(node: Node, scheme: KeyPlan, cost_s: float | None) -> None:
    """Rounds of the key centre: it follows the aggregator, which says who needs keys. cost_s: of making all pairs."""
    s = node.state(CentreState())
    aggregator, = node.nodes("aggregator")
    role_of = {k: role for role in ROLES for k in node.nodes(role)}
    async for round_ in node.rounds(of=aggregator):
        with round_:
            asked = await node.recv(KeyRequest, aggregator,
                                    accept=lambda message: ascending("nodes", message.nodes, sorted(role_of)))
            if s.parts is None:
                s.parts = await node.compute("keygen", make_parts, scheme, cost_s=cost_s, volatile=scheme.real)
            for role in ROLES:
                node.broadcast([k for k in asked.nodes.tolist() if role_of[k] == role], keys_for(scheme, s.parts, role))


def make_parts(scheme: KeyPlan) -> Parts:
    """Fresh pairs, in the parts that roles get; {} of plain runs."""
    if not scheme.real:
        return {}
    pairs = {name: ckks.Keys(parameters, scheme.rotates and name == "v")
             for name, parameters in scheme.pairs().items()}
    return {role: {name: pairs[name].part(**(scheme.part(role, name) or {})) for name in scheme.sizes(role)}
            for role in ROLES}


def keys_for(scheme: KeyPlan, parts: Parts, role: str) -> Keys:
    """The message to a role."""
    if not scheme.real:
        return Keys(NONE, NONE, NONE, Declared(sum(scheme.sizes(role).values())))
    own = parts[role]
    return Keys(own["v"], own["x"], own.get("c", NONE), Declared(0))


# --- the others -----------------------------------------------------------------------------------------------------

async def ask_for(node: Node, lacking: set[int]) -> list[int]:
    """At the aggregator: ask the key centre for what is missing; whom it was asked to send keys, ascending.

    lacking: grows by who has said so.
    """
    others = [k for role in ROLES for k in node.nodes(role) if k != node.id]
    lacking.update(await node.gather(NoKeys, others, timeout_s=0))
    dealt = sorted(lacking)
    if dealt:
        centre, = node.nodes("kgc")
        node.send(centre, KeyRequest(np.array(dealt, np.uint32)))
    lacking.clear()
    return dealt


async def take_keys(node: Node, scheme: KeyPlan, dealt: Collection[int] | bool, timeout_s: float | None,
                    cost_s: float | None) -> Boxes:
    """This node's keys. dealt: whether it is among those that are sent theirs in this round. cost_s: of loading them.

    Raises NothingToReceive or TimedOut, having said so to the aggregator, where they have not come.
    """
    centre, = node.nodes("kgc")
    coming = dealt if isinstance(dealt, bool) else node.id in dealt
    sound = fitting(scheme, node.role)
    found = await node.gather(Keys, [centre], timeout_s=0, accept=sound)        # those that were late a round ago
    if not found and coming:
        found = await node.gather(Keys, [centre], timeout_s=timeout_s, accept=sound)
    if not found:
        if node.role != "aggregator":
            node.send(node.nodes("aggregator")[0], NoKeys())
        raise NothingToReceive("the keys have not come")
    made: Boxes = await node.compute("load_keys", boxes, scheme, found[centre], cost_s=cost_s)
    return made


def fitting(scheme: KeyPlan, role: str) -> Demand:
    """Keys of the lengths that this role's have."""
    def accept(message: Keys) -> None:
        wanted = scheme.sizes(role)
        if scheme.real:
            demand(all(len(getattr(message, name)) == wanted.get(name, 0) for name in ("v", "x", "c")),
                   "no keys of the lengths agreed")
        else:
            demand(message.rest.nbytes == sum(wanted.values()), "no keys of the lengths agreed")
    return accept


def boxes(scheme: KeyPlan, keys: Keys) -> Boxes:
    """The keys, ready to be used."""
    make: Callable[[Parameters, Any], Box] = Ckks if scheme.real else lambda parameters, _: Plain(parameters)
    return Boxes(make(PROTOTYPES, keys.v), make(PROTOTYPES, keys.x),
                 make(COMPARISON, keys.c) if scheme.compares and (len(keys.c) or not scheme.real) else None)
