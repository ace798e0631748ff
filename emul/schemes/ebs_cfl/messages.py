"""The messages of EBS-CFL, numbered as in section 9.4 of its specification; all masks are float64.

Numbers of elements for q = 1, with d = t m, s = ceil(l / t), N clients of which n take part:

     1  References    server -> dealer      m l                                             at each refresh
     2  ClientKeys    dealer -> client      4 d^2                                           once
     3  ServerKeySet  dealer -> server      N (14 d^2 + 13 d^2 N) + 2 d^2 N + 6 d^2 N^2 + d^2       once
        LayerKeys     dealer -> server      4 d^2 k k' + 9 d^2 k k' a node of a further layer       once
     4  AlphaKeys     dealer -> server      6 s d + 8 d^2 a client and set (AlphaTensor: 12 s d^3)  at each refresh
     5  VerifyKeys    dealer -> server      3 d a client                                    once
     6  Participants  server -> dealer      n                                               each round
     7  RoundKey      dealer -> client      3 s d                                           each round
     8  Models        server -> client      m l, float32 as models are                      each round
     9  Upload        client -> server      3 s d                                           each round
    10  Checks        dealer -> server      n s                                             each round
    11  Missing       server -> dealer      at most n                                       if any
    12  Correction    dealer -> server      s d (StandIns: 3 s d each; Renewed)             if any

With `layers` there are more layers of re-keying (equation 21 of the paper). ServerKeySet then has the keys from the
groups to the nodes above them, and a message LayerKeys those from each further layer to the next one. k clients are
below a node, k' below the one above it.

Ours: Wanted (which keys the server lacks), NotHeld, KeysHeld, Resend; and those of the profile `pad`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from emul.protocols.clustered import Models
from emul.roles import Analysis, Holds, Message, Octets

Row: TypeAlias = Annotated[np.ndarray, Holds("float64", 1)]
Rows: TypeAlias = Annotated[np.ndarray, Holds("float64", 2)]
Cube: TypeAlias = Annotated[np.ndarray, Holds("float64", 3)]
Tensor: TypeAlias = Annotated[np.ndarray, Holds("float64", 4)]
Ids: TypeAlias = Annotated[np.ndarray, Holds("int32", 1)]      # clients, counted from 0, ascending
Ring: TypeAlias = Annotated[np.ndarray, Holds("uint64", 1)]
RingRows: TypeAlias = Annotated[np.ndarray, Holds("uint64", 2)]


# --- once, and when references are made anew ------------------------------------------------------------------------

@dataclass(frozen=True)
class References(Message):
    """1, server to dealer."""

    version: int                    # times that they have been made
    h: Rows                         # (m, l), of norm 1


@dataclass(frozen=True)
class Wanted(Message):
    """Server to dealer: keys that it lacks."""

    version: int                    # of the references that they are to be made of
    first: bool                     # ServerKeySet and VerifyKeys, too
    whose: Ids                      # AlphaKeys of these clients; AlphaTensor of these groups


@dataclass(frozen=True)
class NotHeld(Message):
    """Dealer to server: it has not what it would need for that, or may not tell it."""


@dataclass(frozen=True)
class ClientKeys(Message):
    """2, dealer to client."""

    ek0: Rows                       # (d, 3dq)
    A: Cube                         # (m, t, d)


# unscoped: on links that fail for a whole round it has a chance of its own
@dataclass(frozen=True)
class KeysHeld(Message, unscoped=True):
    """Client to dealer."""

    held: bool                      # I have my keys; or I have none


@dataclass(frozen=True)
class ServerKeySet(Message):
    """3, dealer to server: `emul.schemes.ebs_cfl.masking.keys.ServerKeys`."""

    A: Cube
    beta: list[Rows]
    tau1: list[Rows]
    tau2: list[Rows]
    tau3: list[Rows]
    tk0: list[Rows]
    tk1: list[Rows]
    betaG: Rows
    dk: Rows


@dataclass(frozen=True)
class LayerKeys(Message):
    """3, dealer to server, with `layers`: `emul.schemes.ebs_cfl.masking.keys.Lift`."""

    layer: int                      # from which: 1 is the first above the groups
    tk0: list[Rows]
    tk1: list[Rows]


@dataclass(frozen=True)
class AlphaKeys(Message):
    """4, dealer to server, `alpha: compact`."""

    client: int
    which: int                      # of the sets
    F: Cube                         # (s, 3dq, 2)
    B: Cube                         # (2, 2dq, 2dq)


@dataclass(frozen=True)
class AlphaTensor(Message):
    """4, dealer to server, `alpha: full`."""

    group: int
    which: int
    tensor: Tensor                  # (s, 2dq, 3dq, 2dq)


@dataclass(frozen=True)
class VerifyKeys(Message):
    """5, dealer to server."""

    vk: list[Row]                   # by group, (3dq,)


# --- each round -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Participants(Message):
    """6, server to dealer."""

    clients: Ids


@dataclass(frozen=True)
class RoundKey(Message):
    """7, dealer to client."""

    attempt: int                    # 0; more after a restart
    ek1: Rows                       # (s, 3dq)


@dataclass(frozen=True)
class Upload(Message):
    """9, client to server."""

    attempt: int
    delta: Rows                     # (s, 3dq)


@dataclass(frozen=True)
class Resend(Message):
    """Server to client: your upload did not pass, encode it again with the same key."""


@dataclass(frozen=True)
class Checks(Message):
    """10, dealer to server."""

    attempt: int
    e: Rows                         # (n, s), ascending by client


@dataclass(frozen=True)
class Missing(Message):
    """11, server to dealer: who has not answered, or was rejected. Their messages after this do not count."""

    clients: Ids


@dataclass(frozen=True)
class Correction(Message):
    """12, dealer to server, `recovery: correction`."""

    C: Rows                         # (s, d)


@dataclass(frozen=True)
class StandIns(Message):
    """12, dealer to server, `recovery: standin`: what clients without an update would have sent."""

    uploads: list[Rows]             # (s, 3dq) each, in the order of `Missing`


@dataclass(frozen=True)
class Renewed(Message):
    """12, dealer to server, `recovery: restart`: keys for those that are left, of no group where the old ones do."""

    groups: Ids
    tau1: list[Rows]
    tk1: list[Rows]


# --- profile pad ----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class PadKey(Message):
    """Dealer to client."""

    seed: Octets                    # (32,), of this round


@dataclass(frozen=True)
class Padded(Message):
    """Client to server."""

    y: Ring                         # (m l,)


@dataclass(frozen=True)
class Products(Message):
    """Server to dealer."""

    clients: Ids
    p: Ring                         # (n,)
    sketch: RingRows                # (n, 64)


@dataclass(frozen=True)
class PadWeights(Message):
    """Dealer to server."""

    clients: Ids                    # those that it has not rejected
    w: Annotated[np.ndarray, Holds("int64", 1)]         # 2^24 times their weights
    pads: Ring                      # (m l,), the weighted sum of the pads


MESSAGES = (Models, References, Wanted, NotHeld, ClientKeys, KeysHeld, ServerKeySet, AlphaKeys, AlphaTensor, VerifyKeys,
            Participants, RoundKey, Upload, Resend, Checks, Missing, Correction, StandIns, Renewed,
            PadKey, Padded, Products, PadWeights, LayerKeys)


def messages_per_round(pad: bool, n: int) -> Analysis:
    """The theory of a round in which nothing is lost, for a scheme's `analysis`."""
    if pad:
        return {"models_per_round": (float(n), "messages.Models"), "uploads_per_round": (float(n), "messages.Padded")}
    return {"models_per_round": (float(n), "messages.Models"), "uploads_per_round": (float(n), "messages.Upload"),
            "round_keys_per_round": (float(n), "messages.RoundKey")}
