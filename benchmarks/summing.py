"""Secure sums under losses that are written down: rounds of any scheme that keeps an audit, in this process.

Training is a draw of small numbers, so a round with real cryptography takes 20 ms. The check looks at the values that
an auditor sees (`emul.record.audit`): each sum is that of the inputs that it says it has, element by element, or the
round has failed with a reason; and nobody's two secrets were given away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.scripted import FakeTask, Lost, Script, ScriptedRun, play
from emul.base import rows
from emul.base.plain import PlainDict, PlainMapping
from emul.base.rows import Row
from emul.base.streams import generator
from emul.record.audit import both_revealed, reason, wrong_sums
from emul.registry import schemes


@dataclass(frozen=True)
class SumOutcome:
    """The outcome of one run. rounds: {round: why the server left it, "": it did not fail}."""

    rounds: dict[int, str]
    wrong: dict[int, int]                       # round with a sum -> elements that are wrong
    included: dict[int, list[int]]              # round with a sum -> whose inputs are in it
    exposed: list[tuple[int, int, int]]         # (round, owner, vector) of whom shares of both secrets were given away
    models: list[np.ndarray]                    # as the server reported them
    rows: list[Row] = field(repr=False)
    reports: dict[int, PlainDict] = field(default_factory=dict)
    arrays: Mapping[tuple[str, str], np.ndarray] = field(default_factory=dict, repr=False)
    clients: Sequence[int] = ()                 # their nodes

    def verdict(self, round_: int = 1) -> str:
        """exact, wrong, or why it was given up; "exposed" comes before all."""
        if self.exposed:
            return "exposed"
        if self.rounds[round_]:
            return reason(self.rounds[round_])
        return "exact" if self.wrong.get(round_) == 0 else "wrong"


def drawn(task: FakeTask, whose: str, round_: int, parameters: np.ndarray) -> np.ndarray:
    """(d,) float32 of normal numbers with standard deviation 0.3, by client and round."""
    normal = generator(task.seed, "update", whose, round_).standard_normal(task.dimension)
    return (0.3 * normal).astype(np.float32)


def sums(scheme: str, clients: int, params: PlainMapping, *, lost: Lost | None = None,
         drops: Mapping[int, str] | None = None, rounds: int = 1, d: int = 8, seed: int = 7) -> SumOutcome:
    """Run a scheme with `audit` on a star of `clients`, with links of 10 ms and computations that take no time.

    As many servers as the scheme has places for. params: by the names of the fields. drops: number of the client, from
    1 -> the type of message before which it drops out of every round.
    """
    places = schemes.find(scheme).places.values()
    script = Script(rounds, seed, d, 1 + sum(place.startswith("server[") for place in places), lost,
                    drops=drops or {})
    return _summed(play(scheme, clients, {**params, "audit": True}, drawn, script))


def _summed(run: ScriptedRun) -> SumOutcome:
    log, arrays, plan = run.rows, run.arrays, run.plan
    hub = plan.deciders[0]
    server = plan.names[hub]
    why = {row[3]: row[4] for row in log if row[0] == rows.LEAVE and row[2] == hub}
    reports: dict[int, PlainDict] = {}
    for row in log:
        if row[0] == rows.REPORT and row[2] == hub:
            reports.setdefault(row[3], {}).update(row[4])
    included = {int(name.partition("-")[2]): ids.tolist() for (node, name), ids in arrays.items()
                if node == server and name.startswith("included-")}
    return SumOutcome(why, wrong_sums(arrays, plan.names, server), included, both_revealed(arrays, 1),
                      run.task.evaluated, log, reports, arrays,
                      [node for node, role in enumerate(plan.roles) if role == "client"])
