"""The messages of MP-DP.

Bytes of the arrays in each message, without its header; q = 4 or 8 bytes a real, S blocks: 1 without the additive part,
G + 2 in the compact variant, n_L + 2 in the full one; D diagonals; a_i = |N_i|:

    Disguised       q (d + D) + 8 G n_L             server to each of the round
    repair: shamir  AdvertiseKeys 64, KeyRing 68 (a_i + 1), SharesUp and SharesDown 84 a_i,
                    Masked S d (ring bits / 8), or S d q of real masks, Unmask 4 (a_i + 1), Reveal 36 per share held
    else            AdvertiseKey 32, Roster 36 a_i,
                    Blocks S d (ring bits / 8), or S d q     client to server
    repair: seeds   Dropped 4 per dropped neighbour server to each that was heard
                    Seeds 36 per dropped neighbour  client to server
"""

from __future__ import annotations

from dataclasses import dataclass

from emul.protocols import channels, pairwise
from emul.protocols.mp_dp import messages as opened
from emul.roles import Message, OctetRows, Words


@dataclass(frozen=True)
class Dropped(Message):
    """Server to client: those of your neighbours whose blocks have not come."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class Seeds(Message):
    """Client to server: the seeds of the noise shared with them."""

    ids: Words                      # (m,), ascending
    seeds: OctetRows                # (m, 32)


MESSAGES = (*opened.MESSAGES, Dropped, Seeds, *channels.MESSAGES, *pairwise.MESSAGES)
