"""Groups of clients in the record of a run: who is in them, and what came of each, beside those that are in none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from emul.base.plain import PlainDict, PlainMapping
from emul.record.tables import LATE, LOST, Derived

OTHERS = "others"               # nodes that are in no group and decide nothing


def named_groups(header: PlainMapping) -> dict[str, list[int]]:
    """Group -> its nodes, in the order of the scenario, then `others`; empty where the scenario has no groups."""
    said: Mapping[str, Sequence[int]] = header.get("groups") or {}
    taken = {node for nodes in said.values() for node in nodes} | set(header.get("deciders", ()))
    rest = [node for node in range(len(header["names"])) if node not in taken]
    return {name: list(nodes) for name, nodes in said.items()} | ({OTHERS: rest} if rest else {}) if said else {}


def group_summary(run: Derived, virtual_ns: int) -> dict[str, PlainDict]:
    """Group -> its nodes by name, and of them together: virtual seconds of computing, messages and bytes that they
    sent, and how many of these messages were lost or late; with models of their own their mean accuracy at the end.
    """
    m, c, names = run.messages, run.computations, run.header["names"]
    until_end = np.clip(virtual_ns - c.start_ns, 0, c.cost_ns)
    used = np.where(c.end_ns >= 0, c.end_ns - c.start_ns, until_end)
    found = {}
    for group, nodes in named_groups(run.header).items():
        sent, computed = np.isin(m.source, nodes), np.isin(c.node, nodes)
        found[group] = {
            "nodes": [names[node] for node in nodes], "computations": int(computed.sum()),
            "compute_virtual_seconds": int(used[computed].sum()) / 1e9, "messages_sent": int(sent.sum()),
            "messages_lost": int((m.fate[sent] == LOST).sum()), "messages_late": int((m.fate[sent] == LATE).sum()),
            "bytes_sent": int(m.wire_bytes[sent].sum()), "accuracy": _last_accuracy(run, set(nodes))}
    return found


def _last_accuracy(run: Derived, nodes: set[int]) -> float | None:
    """The mean over those of these nodes whose models were evaluated, each in its last round; None: of none."""
    last: dict[int, tuple[int, float]] = {}
    for node, number, values in run.observed:
        if node in nodes and "accuracy" in values and number >= last.get(node, (0, 0.0))[0]:
            last[node] = number, values["accuracy"]
    return float(sum(value for _, value in last.values()) / len(last)) if last else None
