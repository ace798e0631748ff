"""The messages of the coded-mask protocol, in the order of its stages.

Bytes of the arrays in each message, without its header; w = ceil(d' / S), u the size of the set; the length of a list
is in the header (4 bytes in So et al.'s count):

    Begin           4 d                             server to each of U0
    AdvertiseKey    32                              each of U0 to the server
    Roster          36 (u - 1)                      server to each of Keys
    Coded           (u - 1) (20 + 4 w)              each of Keys to the server (a number, w elements, a tag of 16)
    Relayed         (u - 1) (20 + 4 w)              server to each of U1
    Masked          4 d'                            each of U1 to the server
    Survivors       4 u                             server to each of U2
    Answer          4 w                             each of U2 to the server

With `route: direct` the shares do not pass the server: Share, 4 w + 16, each of Keys to each other; Shared, 0, to the
server; Sharers, 4 u, from the server to each of U1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emul.message.wire import fixed
from emul.protocols import channels
from emul.protocols.sums import Begin
from emul.roles import Message, OctetRows, Octets, Words


def joined(boxes: Sequence[np.ndarray]) -> np.ndarray:
    """(len(boxes), bytes of one) uint8, one box or more below each other: in one copy, and for good."""
    return fixed(boxes).reshape(len(boxes), -1)


@dataclass(frozen=True)
class Coded(Message):
    """Client to server: the shares of my mask, one for each other."""

    ids: Words                      # their owners, ascending
    boxes: OctetRows                # (u - 1, 4 w + 16), encrypted for them


@dataclass(frozen=True)
class Relayed(Message):
    """Server to client: the shares that U1 has for you."""

    ids: Words                      # from whom, ascending
    boxes: OctetRows                # (u - 1, 4 w + 16)


@dataclass(frozen=True)
class Share(Message):
    """Client to client, `route: direct`."""

    box: Octets                     # (4 w + 16,)


@dataclass(frozen=True)
class Shared(Message):
    """Client to server, `route: direct`: my shares are out."""


@dataclass(frozen=True)
class Sharers(Message):
    """Server to client, `route: direct`: U1."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class Masked(Message):
    """Client to server."""

    y: Words                        # (d',), below p


@dataclass(frozen=True)
class Survivors(Message):
    """Server to client: U2, of whose masks to add up the shares."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class Answer(Message):
    """Client to server: the sum of the shares of U2 that it holds."""

    values: Words                   # (w,), below p


MESSAGES = (Begin, *channels.MESSAGES, Coded, Relayed, Share, Shared, Sharers, Masked, Survivors, Answer)
