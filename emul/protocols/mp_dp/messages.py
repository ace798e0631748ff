"""The messages of MP-DP beside those of keys and masks.

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
from typing import Annotated, Any

import numpy as np

from emul.protocols import channels, pairwise
from emul.protocols.demands import Demand, demand, shaped
from emul.roles import Holds, Message, OctetRows, Words

Reals = Annotated[np.ndarray, Holds(ndim=1)]            # float32 or float64, as agreed on
Rows = Annotated[np.ndarray, Holds("float64", 2)]


@dataclass(frozen=True)
class Disguised(Message):
    """Server to client: the round is open."""

    parameters: Reals               # W^, (d,)
    diagonals: Reals                # t of the transitional layers, q of the shortcuts, (D,)
    directions: Rows                # (G, n_L) of the compact variant, else (0, 0)
    sigma_eta: float                # of a client's own noise
    sigma_delta: float              # of the noise of a pair; 0 where masks are of the ring


@dataclass(frozen=True)
class Blocks(Message):
    """Client to server: c ghat + eta + sum of Delta, and c Psi, c Phi as they are."""

    values: Reals                   # (S d,)


@dataclass(frozen=True)
class Dropped(Message):
    """Server to client: those of your neighbours whose blocks have not come."""

    ids: Words                      # ascending


@dataclass(frozen=True)
class Seeds(Message):
    """Client to server: the seeds of the noise shared with them."""

    ids: Words                      # (m,), ascending
    seeds: OctetRows                # (m, 32)


def numbers(size: int, dtype: np.dtype[Any]) -> Demand:
    """For `accept` of `Blocks`: so many numbers of the agreed type."""
    def accept(message: Blocks) -> None:
        shaped(values=(size,))(message)
        demand(message.values.dtype == dtype, "values: not of the agreed type")
    return accept


MESSAGES = (Disguised, Blocks, Dropped, Seeds, *channels.MESSAGES, *pairwise.MESSAGES)
