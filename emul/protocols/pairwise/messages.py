"""The messages of the pairwise protocol, in the order of its stages.

Bytes of the arrays in each message, without its header; A_i = N_i + i, the closed neighbourhood in the mask graph:

    Begin           4 d                             server to each of U0
    AdvertiseKeys   64                              each of U0 to the server
    KeyRing         68 |A_i & U1|                   server to each of U1
    Shares          80                              each of U1 to each of N_i & U1 (two shares of 32, a tag of 16)
    Shared          0                               each of U1 to the server
    Sharers         4 |A_i & U2|                    server to each of U2
    Masked          4 d'                            each of U2 to the server; d' = d + 1 with `weights: samples`;
                                                    8 d' in Z_2^64
    Unmask          4 |A_i & U2|                    server to each of U3
    Reveal          36 per share held of A_i & U2   each of U3 to the server

With `route: server`, in place of Shares, Shared and Sharers:

    SharesUp        84 |N_i & U1|                   each of U1 to the server
    SharesDown      84 |N_i & U2|                   server to each of U2

With `adversary: active` AdvertiseKeys has 64 more and KeyRing 64 |A_i & U1|, of signatures; and in place of Unmask:

    Survived        4 |U3|                          server to each of U3
    Consent         64                              each of U3 to the server
    Consents        68 |A_i & U4|                   server to each of U4

With `receipts`, in place of Masked and Unmask; K: those whose secrets too few could give back:

    MaskedLacking   4 d' + 4 per neighbour lacked   each of U2 to the server
    UnmaskWithout   4 |A_i & U2|                    server to each of U3, which is without K

With two vectors AdvertiseKeys has 32 more, Shares 64 more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.primitives.crypto.keys import KEY_BYTES
from emul.protocols.sums import Begin
from emul.roles import Message, OctetRows, Octets, Words


@dataclass(frozen=True)
class AdvertiseKeys(Message):
    """Client to server. Without a signature, as against an honest but curious server, nothing ties a key to its
    owner."""

    keys: Octets                    # (64,): c_pk, for the channels; s_pk, for the masks; [signature, 64]


@dataclass(frozen=True)
class KeyRing(Message):
    """Server to client: the keys of A_i & U1."""

    ids: Words                      # (a,), ascending
    keys: OctetRows                 # (a, 64)


@dataclass(frozen=True)
class Shares(Message):
    """Client to client: what the receiver keeps of the sender's two secrets, encrypted."""

    box: Octets                     # (80,): shares of s_sk and b


@dataclass(frozen=True)
class Shared(Message):
    """Client to server: my shares are out."""


@dataclass(frozen=True)
class Sharers(Message):
    """Server to client: A_i & U2."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class SharesUp(Message):
    """Client to server: my encrypted shares, to be forwarded."""

    ids: Words                      # (a,), ascending: N_i & U1
    boxes: OctetRows                # (a, 80)


@dataclass(frozen=True)
class SharesDown(Message):
    """Server to client: those for you."""

    ids: Words                      # (b,), ascending: N_i & U2
    boxes: OctetRows                # (b, 80)


@dataclass(frozen=True)
class Masked(Message):
    """Client to server."""

    y: Words                        # (d',); in Z_2^64 (2 d',), the low half of each number first


@dataclass(frozen=True)
class Unmask(Message):
    """Server to client: whose secrets to reveal your shares of; of nobody both."""

    survivors: Words                # A_i & U3: of b
    dropped: Words                  # A_i & (U2 - U3): of s_sk


@dataclass(frozen=True)
class MaskedLacking(Message):
    """Client to server, with `receipts`: a masked input, and whose shares I lack."""

    y: Words                        # as in Masked
    lacking: Words                  # of N_i & U2, ascending: no box of theirs has come, or one that does not open


@dataclass(frozen=True)
class UnmaskWithout(Message):
    """Server to client, with `receipts`: of whom to reveal what; of nobody two things."""

    survivors: Words                # A_i & U3: the share of b
    dropped: Words                  # A_i & (U2 - U3 - K): the share of s_sk
    unheld: Words                   # A_i & K: the seed of the pair mask with it


@dataclass(frozen=True)
class Survived(Message):
    """Server to client, which it does not trust: U3."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class Consent(Message):
    """Client to server: this U3 was shown to me in this round."""

    signature: Octets               # (64,)


@dataclass(frozen=True)
class Consents(Message):
    """Server to client: what A_i & U4 have signed."""

    ids: Words                      # (f,), ascending
    signatures: OctetRows           # (f, 64)


@dataclass(frozen=True)
class Reveal(Message):
    """Client to server: the shares asked for that the client holds, and the seeds asked for."""

    ids: Words                      # (m,)
    shares: OctetRows               # (m, 32)


MESSAGES = (Begin, AdvertiseKeys, KeyRing, Shares, Shared, Sharers, SharesUp, SharesDown, Masked, Unmask, Survived,
            Consent, Consents, Reveal, MaskedLacking, UnmaskWithout)


def id_array(ids: Sequence[int]) -> np.ndarray:
    """(n,) uint32."""
    return np.array(ids, np.uint32)


def channel_public(keys: np.ndarray) -> bytes:
    """c_pk of what a client advertises."""
    return keys[:KEY_BYTES].tobytes()


def mask_public(keys: np.ndarray, vector: int = 0) -> bytes:
    """s_pk of what a client advertises, of one of its vectors."""
    return keys[KEY_BYTES * (1 + vector):KEY_BYTES * (2 + vector)].tobytes()


def unsent(route: str) -> list[str]:
    """The messages of the other route of encrypted shares."""
    return ["SharesUp", "SharesDown"] if route == "direct" else ["Shares", "Shared", "Sharers"]
