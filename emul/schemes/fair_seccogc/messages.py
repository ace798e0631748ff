"""The messages of Fair-SecCoGC, beside those of the key ring (`emul.protocols.setup`).

Bytes of the arrays in each message, without its header:

    Model 4 d     Continue 0     Masked 4 d     PartialSum 4 d + ceil(|U_k| / 8)     GroupSum as PartialSum
    Key 4 d     Seeds 32 for each component of the client     DealTo 4 K'
    Present 32     Group 36 K'; without keys of pairs none of the 32s
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import numpy as np

from emul.protocols import setup
from emul.roles import Holds, Message, OctetRows, Octets, Vector

Members: TypeAlias = Annotated[np.ndarray, Holds("int32", 1)]

# --- rounds ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model(Message):
    """Server to client: the round is open, go on from here."""

    version: int                    # number of successes so far
    failed: int                     # rounds that have failed since: not 0 for a client that has asked for it
    parameters: Vector              # Theta_ref, (d,) float32


@dataclass(frozen=True)
class Continue(Message):
    """Server to client: the round is open, the last one failed."""

    version: int                    # of the Theta_ref that is still the last
    failed: int                     # rounds that have failed since


@dataclass(frozen=True)
class ModelRequest(Message, unscoped=True):
    """Client to server: I missed the model of this version."""


@dataclass(frozen=True)
class Masked(Message):
    """Client to relay."""

    y: Vector                       # Y_k, (d,) float32


@dataclass(frozen=True)
class PartialSum(Message):
    """Relay to server."""

    heard: Octets                   # (ceil(|U_k| / 8),): a bit for each of U_k in ascending order
    sum: Vector                     # S_k over those heard, (d,) float32


@dataclass(frozen=True)
class GroupSum(PartialSum):
    """Relay to server, in place of `PartialSum` from the second group on: a relay that lost its state in a crash may
    still combine by an earlier code."""

    epoch: int


# --- a dealer of keys -----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Deal(Message):
    """Server to dealer: the round is open, deal the keys."""

    dimension: int


@dataclass(frozen=True)
class DealTo(Message):
    """Server to dealer, in place of `Deal` from the second group on."""

    dimension: int
    members: Members                # (K',)


@dataclass(frozen=True)
class Key(Message):
    """Dealer to client, `keys: dealer`."""

    key: Vector                     # N_k of this round, (d,) float32


@dataclass(frozen=True)
class Seeds(Message):
    """Dealer to client, `keys: component_seeds` and `common_seed`."""

    seeds: OctetRows                # (n, 32): of the components with a_kl != 0, in their order; or the common one


@dataclass(frozen=True)
class SeedsHeld(Message, unscoped=True):
    """Client to dealer: I have the seeds."""


# --- a group made anew ----------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Rekey(Message):
    """Server to client: who is there will be the group."""

    epoch: int                      # of that group; the first one of all clients has 0


@dataclass(frozen=True)
class Present(Message, unscoped=True):
    """Client to server: I am."""

    epoch: int
    key: Octets                     # a fresh one, (32,); (0,) where no keys of pairs are in use


@dataclass(frozen=True)
class Group(Message):
    """Server to those who are there."""

    epoch: int
    members: Members                # (K',), ascending
    keys: OctetRows                 # (K', 32), theirs, or (K', 0)


@dataclass(frozen=True)
class GroupHeld(Message, unscoped=True):
    """Client to server: I know the group."""

    epoch: int


MESSAGES = (*setup.MESSAGES, Model, Continue, ModelRequest, Masked, PartialSum, GroupSum, Deal, DealTo, Key, Seeds,
            SeedsHeld, Rekey, Present, Group, GroupHeld)
