"""X25519 key agreement, keys derived from it, and an authenticated channel with 16 bytes of overhead.

X25519: RFC 7748. HKDF-SHA256: RFC 5869, empty salt. AES-256-GCM: NIST SP 800-38D.

For emulation only: schemes take secrets from streams of the scenario's seed, so that a run repeats; who has the
scenario has every key. Nothing here ties a public key to its owner: whoever can change it on its way is in the middle.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from emul.base.errors import ProtocolViolation

KEY_BYTES = 32
SEAL_OVERHEAD_BYTES = 16      # the tag; the nonce is known to both ends

_THREE_U32 = struct.Struct("<III")


@dataclass(frozen=True)
class KeyPair:
    """An X25519 key pair: both halves are 32 raw bytes, as they are shared and sent."""

    secret: bytes = field(repr=False)
    public: bytes


def key_pair(secret: bytes) -> KeyPair:
    """The pair of 32 secret bytes, e.g. `node.rng.bytes(32)`; any 32 bytes are a key. ValueError for another length.

    Bytes of a node's stream are no secret to who knows the seed: for emulation only.
    Also gives the public key back to who has reconstructed a secret from its shares.
    """
    _expect_key(secret)
    return KeyPair(bytes(secret), _private(bytes(secret)).public_key().public_bytes_raw())


def agree(secret: bytes, public: bytes) -> bytes:
    """X25519(secret, public): 32 bytes, equal at both ends. Not a key yet: derive one with the functions below.

    ProtocolViolation if the peer's `public` is no 32 bytes or a point of low order (the result would not depend on
    `secret`); ValueError if `secret` is no 32 bytes.
    """
    _expect_key(secret)
    if len(public) != KEY_BYTES:
        raise ProtocolViolation(f"public key has {len(public)} bytes, expected {KEY_BYTES}")
    try:
        return _private(bytes(secret)).exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:
        raise ProtocolViolation("public key is a point of low order") from error


# u of all points of low order, canonical or not, without the bit that X25519 ignores: Bernstein, "Curve25519", question
# "How do I validate Curve25519 public keys?"
_P = 2**255 - 19
_LOW = frozenset((u | ignored << 255).to_bytes(32, "little") for ignored in (0, 1) for u in (
    0, 1, _P - 1, _P, _P + 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823))


def is_low_order(*publics: bytes) -> bool:
    """True if `agree` would refuse one of these, of 32 bytes each: a point whose secrets do not depend on the
    other's."""
    return not _LOW.isdisjoint(publics)


def channel_key(shared: bytes) -> bytes:
    """HKDF(shared, "enc"): the 32-byte key of `seal` between two nodes, the same in both directions."""
    return _derive(shared, b"enc")


def mask_seed(shared: bytes, round: int) -> bytes:
    """HKDF(shared, "mask" | round as u32): the 32-byte seed of a pair's mask in one round."""
    return _derive(shared, b"mask" + struct.pack("<I", round))


def seal(key: bytes, src: int, dst: int, counter: int, round: int, plaintext: bytes) -> bytes:
    """AES-GCM of `plaintext`, 16 bytes longer. Nonce (src, dst, counter), not sent; (src, dst, round) authenticated.

    Both directions of a pair share a key, hence src and dst in the nonce. The round is not in it: `counter` must not
    repeat while the key lives, so keys kept for several rounds need a counter that goes on. All numbers are u32.
    """
    return AESGCM(key).encrypt(_THREE_U32.pack(src, dst, counter), plaintext, _THREE_U32.pack(src, dst, round))


def unseal(key: bytes, src: int, dst: int, counter: int, round: int, ciphertext: bytes) -> bytes:
    """The plaintext of `seal` with the same numbers; ProtocolViolation if anything of it was changed."""
    try:
        return AESGCM(key).decrypt(_THREE_U32.pack(src, dst, counter), ciphertext, _THREE_U32.pack(src, dst, round))
    except InvalidTag as error:
        raise ProtocolViolation(
            f"bad ciphertext from node {src} to node {dst} (counter {counter}, round {round})") from error


@lru_cache(maxsize=16)
def _private(secret: bytes) -> X25519PrivateKey:
    """Loading a key costs as much as an exchange, and a client makes one exchange per neighbour with the same key."""
    return X25519PrivateKey.from_private_bytes(secret)


def _derive(shared: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(shared)


def _expect_key(secret: bytes) -> None:
    if len(secret) != KEY_BYTES:
        raise ValueError(f"secret key has {len(secret)} bytes, expected {KEY_BYTES}")
