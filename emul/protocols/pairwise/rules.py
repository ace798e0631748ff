"""The agreement of server and clients of a pairwise protocol before the first round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Route = Literal["direct", "server"]


@dataclass(frozen=True)
class PairwiseRules:
    """t: shares that give a secret. deadline_s: of each stage at the server; None: until the fates are known.

    route: whether encrypted shares go from client to client, or through the server, which then forwards those of U2
    alone, in one bundle a client. active: the server may deviate: clients sign their keys, and sign and compare the
    survivors before they reveal anything. audit: inputs, sums and what was revealed are kept in the run directory.
    word_bits: 32 or 64: masks and sums are in Z_2^32 or Z_2^64.
    verify_spare: shares beyond t are held against the others; a round whose shares do not fit is given up.
    prune: who has fewer than t clients around it when the keys or the shares are in is left out like one that has sent
    none, instead of the round being given up.
    receipts: clients say with their masked input whose shares they lack. A client that is lacked, and has its shares at
    fewer than t others, leaves the sum, and the others reveal their pair masks with it instead of its secrets.
    """

    t: int
    deadline_s: float | None = None
    route: Route = "direct"
    active: bool = False
    audit: bool = False
    word_bits: int = 32
    verify_spare: bool = False
    prune: bool = False
    receipts: bool = False

    @property
    def words(self) -> int:
        """The number of uint32 that travel for one number of the ring."""
        return self.word_bits // 32

    @property
    def patience_s(self) -> float | None:
        """The time that a client waits: a message under way for longer than a stage could not be answered in time."""
        return None if self.deadline_s is None else 2 * self.deadline_s
