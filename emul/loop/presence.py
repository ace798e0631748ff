"""The nodes that are there at a time, as the plan of a run has it: by crashes, absences, and rounds."""

from __future__ import annotations

from collections.abc import Iterator

from emul.kernel.parts import Fault, NodeCrash, NodeLeave, Plan
from emul.roles.world import within


class Presence:
    """Asked at times that do not decrease."""

    def __init__(self, plan: Plan):
        self._rounds = plan.rounds
        self._coming: list[tuple[Fault | None, Iterator[Fault]]] = [
            (next(stream, None), stream) for stream in (iter(plan.faults), *plan.streams)]
        self._away: list[NodeCrash | NodeLeave] = []

    def away(self, now_ns: int) -> set[int]:
        """The nodes that are not there."""
        for place, (fault, stream) in enumerate(self._coming):
            while fault is not None and fault.at_ns <= now_ns:
                if isinstance(fault, NodeCrash | NodeLeave):
                    self._away.append(fault)
                fault = next(stream, None)
            self._coming[place] = fault, stream
        self._away = [one for one in self._away if one.until_ns is None or one.until_ns > now_ns]
        return {one.node for one in self._away}

    def takes_part(self, node: int, round_: int) -> bool:
        """True if the node takes part in that round."""
        spans = self._rounds.get(node)
        return spans is None or within(spans, round_)
