"""What server and clients of the coded-mask protocol have agreed on before a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.codes.packed import Code
from emul.primitives.quantise import SumOfUpdates

Route = Literal["server", "direct"]


@dataclass(frozen=True)
class Rules:
    """code: of the masks, for the n clients of a round; a stage that leaves fewer than it needs ends the round.

    codec: how updates become vectors of the field. route: of the shares. offline: train while they travel; else when
    they have arrived. verify: hold spare answers against the decoded sum. deadline_s: of each stage; None: until the
    fates are known. audit: inputs and sums are kept in the run directory.
    """

    code: Code
    codec: SumOfUpdates
    route: Route = "server"
    offline: bool = True
    verify: bool = False
    deadline_s: float | None = None
    audit: bool = False

    @property
    def patience_s(self) -> float | None:
        """Of a client: what has been under way for longer than a whole stage could not be answered in time."""
        return None if self.deadline_s is None else 2 * self.deadline_s
