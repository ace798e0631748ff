"""Groups of clients beside each other and beside those that are in none: their work, and the waits that they cost."""

from __future__ import annotations

import pandas as pd

from emul.record.summary import named_groups
from emul.report.data import RunData
from emul.report.drawing import Figure
from emul.report.stragglers import side_by_side, waited_figure, waited_for


def group_of(run: RunData) -> dict[str, str]:
    """Name of a node -> its group, or `others`; empty where the scenario has no groups."""
    return {run.names[node]: group for group, nodes in named_groups(run.header).items() for node in nodes}


def by_group(run: RunData, work: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Group -> its rows of `stragglers.work`, of groups that computed anything."""
    of = work["name"].map(group_of(run))
    found = {group: work[of == group] for group in named_groups(run.header)}
    return {group: rows for group, rows in found.items() if rows["seconds"].sum() > 0}


def table(run: RunData, held: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
    """One row a group: how many nodes, what they computed and sent, what of it was used, and the waits that they cost.

    held: of `stragglers.held_up`; work: of `stragglers.work`.
    """
    waits = waited_for(_in_groups(run, held)).set_index("cause") if len(held) else pd.DataFrame()
    rows = []
    for group, said in (run.summary.get("groups") or {}).items():
        own = work[work["name"].isin(said["nodes"])]
        seconds = own["seconds"].sum()
        used = own.loc[own["became"] == "used", "seconds"].sum()
        count = max(1, said["computations"])
        rows.append({
            "group": group, "nodes": len(said["nodes"]), "computing (s)": said["compute_virtual_seconds"],
            "mean computation (s)": said["compute_virtual_seconds"] / count,
            "of it used": _share(used, seconds), "MB sent": said["bytes_sent"] / 1e6,
            "messages": said["messages_sent"], "lost": _share(said["messages_lost"], said["messages_sent"]),
            "late": _share(said["messages_late"], said["messages_sent"]),
            "waits that it cost (s)": float(waits["waited_s"].get(group, 0.0)) if len(waits) else 0.0,
            "accuracy": said["accuracy"]})
    return pd.DataFrame(rows).dropna(axis=1, how="all")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""


def _in_groups(run: RunData, held: pd.DataFrame) -> pd.DataFrame:
    """The waits with groups in place of nodes as their causes."""
    of = group_of(run)
    return held.assign(cause=[of.get(name, name) for name in held["cause"]])


def figures(run: RunData, held: pd.DataFrame, work: pd.DataFrame) -> list[Figure]:
    """Work and waits by group, of those for which there is something."""
    found = by_group(run, work)
    drawn = [] if not found else [side_by_side(
        found, "work-by-group", "Work that came to nothing, by group",
        "Shares of the computing of each group, by the fate of the message that followed.", "group")]
    if len(held):
        drawn.append(waited_figure(
            _in_groups(run, held), "waited-for-groups", "Waits, by the group that was waited for",
            "Every wait of a deciding node in a round counts for the group of the node whose message, or loss, ended "
            "it, and a wait that a deadline ended in equal parts for the nodes that had not answered. Alone: the part "
            "since the message before; together: the part while others were still missing, too."))
    return drawn
