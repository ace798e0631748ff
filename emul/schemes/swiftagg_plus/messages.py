"""The messages of the coded-input protocol, in the order of its phases.

Bytes of the arrays in each message, without its header; w = ceil(d' / K), |g| the members of a group:

    Begin           4 d                 server to each of U0
    AdvertiseKey    32                  each of U0 to the server
    Roster          36 (u - 1)          server to each of U1
    Share           4 w + 16            each of U1 to each other seat of its group
    Held            ceil(|g| / 8)       each seat to the server
    Agreed          ceil(|g| / 8)       server to each seat whose sequence lives
    Running         4 w + 16            each seat to the same seat of the next group
    Total           4 w                 each seat of the last group to the server
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.protocols import channels
from emul.protocols.sums import Begin
from emul.roles import Message, Octets, Words


@dataclass(frozen=True)
class Share(Message):
    """Member of a group to one of its seats: the seat's share of my input."""

    box: Octets                     # (4 w + 16,)


@dataclass(frozen=True)
class Held(Message):
    """Seat to server: whose shares I hold."""

    members: Octets                 # (ceil(|g| / 8),): a bit a member, in the group's order


@dataclass(frozen=True)
class Agreed(Message):
    """Server to seat: A_g, whose shares to add up."""

    members: Octets                 # as in Held


@dataclass(frozen=True)
class Running(Message):
    """Seat to the same seat of the next group: what this sequence has added up."""

    box: Octets                     # (4 w + 16,)


@dataclass(frozen=True)
class Total(Message):
    """Seat of the last group to server: the whole sequence."""

    values: Words                   # (w,), below p


MESSAGES = (Begin, *channels.MESSAGES, Share, Held, Agreed, Running, Total)
