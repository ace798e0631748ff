"""The agreement of server and clients of the coded-mask protocol before a round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from emul.primitives.codes.packed import Code
from emul.primitives.quantise import SumOfUpdates
from emul.protocols.sums import WeightedSum, codec

Route = Literal["server", "direct"]


@dataclass(frozen=True)
class CodedSum(WeightedSum):
    """Parameters of a scheme of the coded-mask protocol."""

    offline: bool = True                    # train while the shares of the masks travel
    route: Route = "server"                 # of the shares


@dataclass(frozen=True)
class CodedMaskRules:
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


def rules_of(p: CodedSum, code: Code, clients: int) -> CodedMaskRules:
    """The rules of a scheme's parameters."""
    return CodedMaskRules(code, codec(p, clients, code.p), p.route, p.offline, p.verify_spare, p.stage_deadline_s,
                          p.audit)


def default_answers(n: int, T: int) -> int:
    """U, where a scenario does not say it: 0.7 n, above n/2 and T."""
    return max(7 * n // 10, n // 2 + 1, T + 1)


def without_colluders(n: int, T: int) -> list[str]:
    """A warning for T = 0."""
    return [] if T > 0 else [f"colluders = 0, with n = {n} clients in a round: a single client that tells the server "
                             "its share of a mask gives away what it hides; a mask is safe from the server alone"]
