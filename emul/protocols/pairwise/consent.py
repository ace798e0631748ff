"""Against a server that deviates: signed keys, and survivors that all have seen alike. Bonawitz et al., figure 4.

A server that shows two versions of U3 to two parts of the clients gets shares of both secrets of one. So a client signs
the U3 that it was shown, and reveals something only if t of its neighbours have signed the same. With 2 t above the
number of those that can sign, colluders counted twice, no two versions find t signatures each.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

import numpy as np

from emul.primitives.bft.signing import SIGNATURE_BYTES
from emul.protocols.agreement.keys import signed, verify
from emul.protocols.demands import Refused, ascending, shaped
from emul.protocols.pairwise.hand import RoundSecrets
from emul.protocols.pairwise.messages import Consent, Consents, KeyRing, Survived, Unmask, id_array
from emul.protocols.pairwise.rules import PairwiseRules
from emul.roles import Node


async def advertised_keys(node: Node, rules: PairwiseRules, own: RoundSecrets) -> np.ndarray:
    """The keys that a client advertises, with its signature if the server is not trusted."""
    if not rules.active:
        return own.public
    signature = await signed(node, _of_keys(node.round, node.id, own.public.tobytes()))
    return np.concatenate([own.public, np.frombuffer(signature, np.uint8)])


def extra_octets(rules: PairwiseRules) -> int:
    """The number of octets behind the keys of a client."""
    return SIGNATURE_BYTES if rules.active else 0


async def verify_ring(node: Node, rules: PairwiseRules, ring: KeyRing) -> None:
    """Raises Refused unless every client has signed its keys."""
    if not rules.active:
        return
    claims = [(node.world.names[j], _of_keys(node.round, j, row[:-SIGNATURE_BYTES].tobytes()),
               row[-SIGNATURE_BYTES:].tobytes()) for j, row in zip(ring.ids.tolist(), ring.keys, strict=True)]
    sound = await node.compute("verify", verify, node.seed, claims, work=len(claims))
    if not all(sound):
        raise Refused("inconsistent_sets: keys that their owner has not signed")


async def agreed_request(node: Node, rules: PairwiseRules, U2: Sequence[int]) -> Unmask:
    """The request that follows from a U3 that t of the neighbours, this client among them, have been shown alike.

    U2: A_i & U2. Raises Refused.
    """
    told = await node.recv(Survived, node.server, timeout_s=rules.patience_s,
                           accept=lambda told: ascending("ids", told.ids, node.clients))
    U3 = told.ids.tolist()
    if node.id not in U3:
        raise Refused("inconsistent_sets: my own masked input was sent, but I am told as one who dropped out")
    statement = b"emul pairwise survivors" + struct.pack("<I", node.round) + id_array(U3).tobytes()
    node.send(node.server, Consent(np.frombuffer(await signed(node, statement), np.uint8)))

    near = set(U2).intersection(U3)
    back = await node.recv(Consents, node.server, timeout_s=rules.patience_s,
                           accept=lambda back: _check_consents(back, near))
    claims = [(node.world.names[j], statement, row.tobytes())
              for j, row in zip(back.ids.tolist(), back.signatures, strict=True)]
    sound = await node.compute("verify", verify, node.seed, claims, work=len(claims))
    if sum(sound) < rules.t:
        raise Refused(f"inconsistent_sets: {sum(sound)} neighbours have signed the survivors that I was shown, "
                      f"threshold t = {rules.t}")
    return Unmask(id_array(sorted(near)), id_array(sorted(set(U2).difference(U3))))


def _check_consents(back: Consents, near: Collection[int]) -> None:
    ascending("ids", back.ids, list(near))
    shaped(signatures=(len(back.ids), SIGNATURE_BYTES))(back)


def _of_keys(round_: int, client: int, keys: bytes) -> bytes:
    return b"emul pairwise keys" + struct.pack("<II", round_, client) + keys
