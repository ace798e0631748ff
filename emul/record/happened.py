"""The course of a run, for the `analysis` of its scheme: from the journal alone."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from emul.base import rows
from emul.record.tables import DELIVERED, LATE, TO_ENDED, Derived
from emul.roles.analysis import Passage, Realised


def realised(run: Derived) -> Realised:
    """The participants of each round, the messages that were heard, and the reports of nodes. Copies are looked at once
    asked for."""
    m, names = run.messages, run.header["names"]

    def passages(kind: str, which: np.ndarray) -> frozenset[Passage]:
        if kind not in m.kinds:
            return frozenset()
        mine = which & (m.kind == m.kinds.index(kind))
        return frozenset((round_, names[source], names[target]) for round_, source, target in zip(
            m.round[mine].tolist(), m.source[mine].tolist(), m.target[mine].tolist(), strict=True))

    @cache
    def sent(kind: str) -> frozenset[Passage]:
        return passages(kind, np.ones(len(m.kind), bool))

    @cache
    def arrived(kind: str) -> frozenset[Passage]:
        return passages(kind, (m.fate == DELIVERED) & ~m.unread)

    @cache
    def late(kind: str) -> frozenset[Passage]:
        return passages(kind, (m.fate == LATE) | (m.fate == TO_ENDED))

    def reported(name: str) -> dict[tuple[int, str], Any]:
        part = run.table[rows.REPORT]
        return {(round_, names[node]): values[name] for round_, node, values in zip(
            part["round"].tolist(), part["node"].tolist(), part["values"], strict=True) if name in values}

    return Realised(tuple(sorted({row["round"] for row in run.rounds})),
                    tuple(sorted({row["round"] for row in run.rounds if row["completed"]})), sent, arrived, late,
                    reported)
