"""Ed25519 signatures (RFC 8032): keys from 32 secret bytes, 64 bytes a signature, the same bytes every time.

For emulation only where secrets come from the scenario's seed: who has it can sign for everybody.
"""

from __future__ import annotations

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

KEY_BYTES, SIGNATURE_BYTES = 32, 64


def public_key(secret: bytes) -> bytes:
    """The 32 bytes by which others check what `secret`, any 32 bytes, has signed. ValueError for another length."""
    return _private(secret).public_key().public_bytes_raw()


def sign(secret: bytes, statement: bytes) -> bytes:
    """The signature of `statement`, (64) bytes."""
    return _private(secret).sign(statement)


def verify(public: bytes, statement: bytes, signature: bytes) -> bool:
    """True if `signature` is that of `statement` by the owner of `public`; nothing that is sent raises."""
    try:
        _public(public).verify(signature, statement)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=4096)
def _private(secret: bytes) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(secret)


@lru_cache(maxsize=4096)
def _public(public: bytes) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(public)
