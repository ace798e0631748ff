"""The messages that MP-DP and its relatives share.

Bytes of the arrays in each message, without its header; q = 4 or 8 bytes a real, S blocks: 1 without the additive part,
G + 2 in the compact variant, n_L + 2 in the full one; D diagonals:

    Disguised       q (d + D) + 8 G n_L             server to each of the round
    Blocks          S d q, of words of a ring S d (ring bits / 8)       client to server
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from emul.protocols.demands import Demand, demand, shaped
from emul.roles import Holds, Message

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


def numbers(size: int, dtype: np.dtype) -> Demand:
    """For `accept` of `Blocks`: so many numbers of the agreed type."""
    def accept(message: Blocks) -> None:
        shaped(values=(size,))(message)
        demand(message.values.dtype == dtype, "values: not of the agreed type")
    return accept


MESSAGES = (Disguised, Blocks)
