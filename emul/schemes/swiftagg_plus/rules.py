"""The rules that server and clients of the coded-input protocol have agreed on before a round."""

from __future__ import annotations

from dataclasses import dataclass

from emul.primitives.codes.packed import Code
from emul.primitives.quantise import SumOfUpdates


@dataclass(frozen=True)
class SwiftAggRules:
    """code: of the nu seats of a group. codec: how updates become vectors of the field.

    least: the fewest contributors whose sum may be known. verify: hold spare sequences against the sum. deadline_s: of
    the keys, of the sharing with the training, of the agreement and of each hop of a chain; None: until the fates are
    known. audit: inputs and sums are kept in the run directory.
    """

    code: Code
    codec: SumOfUpdates
    least: int = 3
    verify: bool = False
    deadline_s: float | None = None
    audit: bool = False

    def stages_s(self, count: int) -> float | None:
        """The time of so many stages; None: without a limit."""
        return None if self.deadline_s is None else count * self.deadline_s
