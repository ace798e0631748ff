"""Ed25519 keys of the nodes that take part in an agreement, and claims that they have signed.

Keys follow from the scenario's seed and the node's name, for emulation only: everybody could sign for everybody. Public
keys are given, not sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from emul.base.streams import seed_bytes
from emul.primitives.bft import signing
from emul.roles import Node


def secret_key(node: Node) -> bytes:
    """This node's Ed25519 key, 32 bytes; after a crash the same."""
    return _secret(node.seed, node.name)


def verify(seed: int, claims: Sequence[tuple[str, bytes, bytes]]) -> list[bool]:
    """True if each (signer's name, statement, signature) holds. Everybody has got everybody's public key before the
    first round, for which no byte is counted."""
    return [signing.verify(_public(seed, name), told, signature) for name, told, signature in claims]


def _secret(seed: int, name: str) -> bytes:
    return seed_bytes(seed, "ed25519", name)


@lru_cache(maxsize=4096)
def _public(seed: int, name: str) -> bytes:
    return signing.public_key(_secret(seed, name))


async def signed(node: Node, statement: bytes) -> bytes:
    """This node's signature of `statement`: the computation "sign"."""
    signature: bytes = await node.compute("sign", signing.sign, secret_key(node), statement, work=1)
    return signature
