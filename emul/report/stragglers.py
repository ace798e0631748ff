"""Stragglers: for whom the deciding nodes waited, how long, and what work came to nothing.

A computation belongs to what its node sends next to a deciding node: an update that was late, lost, or never read was
computed in vain. The last computation of a node, if nothing of it was sent to a deciding node, is `unsent`: it was cut
off, the run was over, or its scheme wants nothing of it. At the end the same by groups of clients.
"""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd

from emul.record.summary import named_groups
from emul.record.tables import DELIVERED, IN_FLIGHT, LATE, LOST, REJECTED, TO_ENDED
from emul.report.data import DEADLINE, RunData, Waits, busy_until, endings
from emul.report.drawing import Figure, amount, in_rows, named, ranked, row_axis, stacked

_SHOWN = 24                 # nodes that a figure shows, at most
BECAME = ("used", "late", "lost", "unread", "unsent")
_COLOURS = ["$s1", "$late", "$lost", "$s4", "$between"]
_WAITED = ("alone", "together")
_WAITED_COLOURS = ["$s2", "$wait"]
_WAITED_TEXT = ("Every wait of a deciding node in a round counts for the node whose message, or loss, ended it. A wait "
                "that a deadline ended counts in equal parts for the nodes that had not answered. Alone: the part "
                "since the message before; together: the part while others were still missing, too.")


# --- who was waited for ---------------------------------------------------------------------------------------------

def held_up(run: RunData, w: Waits) -> pd.DataFrame:
    """The waits of the deciding nodes as `data.endings`, one that a timeout ended as a row for each node that was sent
    something in that round and of which nothing had come, or `nobody`."""
    found = endings(run, w)
    late = found[found["how"] == DEADLINE]
    if not len(late):
        return found
    m = run.messages
    asked = pd.DataFrame({"node": m.source, "round": m.round, "other": m.target})
    came = (m.fate == DELIVERED) & (m.arrived_ns >= 0)
    answered = pd.DataFrame({"node": m.target, "round": m.round, "other": m.source, "came": m.arrived_ns})[came]
    first = answered.groupby(["node", "round", "other"], as_index=False)["came"].min()
    pairs = late[["node", "round", "end_ns"]].merge(asked.drop_duplicates()).merge(first, how="left")
    pairs = pairs[(pairs["other"] != pairs["node"]) & ~(pairs["came"] <= pairs["end_ns"])]
    missing = late.drop(columns=["cause"]).merge(pairs[["node", "round", "end_ns", "other"]], how="left")
    names = np.array([*run.names, "nobody"], dtype=object)
    cause = names[missing.pop("other").fillna(len(run.names)).to_numpy(np.int64)]
    return pd.concat([found[found["how"] != DEADLINE], missing.assign(cause=cause)], ignore_index=True)


def waited_for(held: pd.DataFrame) -> pd.DataFrame:
    """One row a node that ended a wait, or was missing at a deadline; by seconds, falling.

    held: of `held_up`. rounds: in how many; waited_s: the waits that it ended, in equal parts for those who were
    missing at a deadline; alone_s: the part of them after the last but one message, that this node alone cost; most_s:
    the longest; share: of all that was waited.
    """
    parts = held.groupby(["node", "end_ns"])["cause"].transform("size")
    each = held.assign(waited_s=held["waited_s"] / parts,
                       alone_s=np.minimum(held["alone_s"], held["waited_s"]) / parts)
    found = each.groupby("cause", sort=False).agg(rounds=("round", "nunique"), waited_s=("waited_s", "sum"),
                                                  alone_s=("alone_s", "sum"), most_s=("waited_s", "max"))
    total = float(found["waited_s"].sum())
    found = found.assign(share=found["waited_s"] / total if total else 0.0)
    return found.sort_values("waited_s", ascending=False, kind="stable").reset_index()


def waited_figure(held: pd.DataFrame, key: str = "waited-for", title: str = "Waits, by the node that was waited for",
                  text: str = _WAITED_TEXT) -> Figure:
    """Seconds that deciding nodes waited, by whom for. There is one wait at least."""
    found = waited_for(held)
    kept = found.head(_SHOWN)
    order = kept["cause"].tolist()
    parts = pd.concat([kept.assign(part="alone", seconds=kept["alone_s"]),
                       kept.assign(part="together", seconds=kept["waited_s"] - kept["alone_s"])], ignore_index=True)
    parts = parts[parts["seconds"] > 0].assign(rank=ranked(parts["part"], _WAITED))
    chart = stacked(
        named("waited"), row_axis("cause", order),
        alt.X("seconds:Q", title="virtual seconds waited, all rounds together"), "part", _WAITED, _WAITED_COLOURS,
        [alt.Tooltip("cause:N", title="for"), "part:N", alt.Tooltip("seconds:Q", format=",.4~g"),
         alt.Tooltip("rounds:Q", title="rounds"), alt.Tooltip("share:Q", title="of all waits", format=".1%")])
    cut = "" if len(found) <= _SHOWN else f" The {_SHOWN} of {len(found):,} that were waited for longest."
    few = found.head(max(1, round(len(found) / 10)))
    said = (f"{found['cause'][0]} was waited for {amount(found['waited_s'][0], 's')} in {found['rounds'][0]} rounds; "
            f"the first tenth of them, {len(few)}, for {few['share'].sum():.0%} of the time")
    return Figure(key, title, f"{text}{cut}",
                  f"Stacked bars of waits by cause: {said}.",
                  in_rows(chart, len(kept)), {"waited": parts}, found, least_width=330)


# --- where the seconds of a round go, of a scheme that reports it ----------------------------------------------------

_SECONDS = "seconds_"
_PART_COLOURS = ["$wait", "$late", "$s4", "$s2", "$s1", "$between", "$lost"]


def seconds_figures(rounds: pd.DataFrame) -> list[Figure]:
    """Seconds of each round by what they went for, in a stack; none if nobody has reported `seconds_...`."""
    parts = [column for column in rounds if str(column).startswith(_SECONDS)]
    found = rounds[["round", *parts]].dropna().head(_SHOWN) if parts else rounds.head(0)
    if not len(found):
        return []
    names = [part.removeprefix(_SECONDS) for part in parts]
    found = found.rename(columns=dict(zip(parts, names, strict=True))).assign(round=found["round"].astype(str))
    long = found.melt(id_vars=["round"], var_name="part", value_name="seconds")
    long = long.assign(rank=ranked(long["part"], names))
    colours = [_PART_COLOURS[k % len(_PART_COLOURS)] for k in range(len(names))]
    chart = stacked(named("seconds"), row_axis("round", found["round"].tolist()),
                    alt.X("seconds:Q", title="virtual seconds of the round"), "part", names, colours,
                    ["round:N", "part:N", alt.Tooltip("seconds:Q", format=",.4~g")], columns=4)
    most = found[names].sum().idxmax()
    return [Figure("seconds-of-rounds", "Where the seconds of a round go",
                   "In the mean over the replies that the server waited for: its own polls and those of nodes, nodes "
                   "that are busy with an earlier message, starts of processes, transfers, computing, waiting for the "
                   "slowest.",
                   f"Stacked bars of seconds by round; most of them: {most}.", in_rows(chart, len(found)),
                   {"seconds": long}, found, least_width=330)]


# --- work wasted ----------------------------------------------------------------------------------------------------

def work(run: RunData) -> pd.DataFrame:
    """One row a node and what its work became: node (number), name, role, became, count, seconds, bytes.

    Of nodes that decide nothing. count: computations; seconds: virtual; bytes: of what it sent to deciding nodes, on
    all hops.
    """
    decider = np.zeros(len(run.names), bool)
    decider[list(run.header.get("deciders", range(len(run.names))))] = True
    m, c, end_ns = run.messages, run.computations, busy_until(run)
    sent = np.flatnonzero(decider[m.target] & ~decider[m.source])
    fate, became = m.fate[sent], np.full(len(sent), BECAME.index("used"))      # of each of these messages
    became[m.unread[sent] | (fate == REJECTED)] = BECAME.index("unread")
    became[(fate == LATE) | (fate == TO_ENDED) | (fate == IN_FLIGHT)] = BECAME.index("late")
    became[fate == LOST] = BECAME.index("lost")
    mine = np.flatnonzero(~decider[c.node])
    fate = _followed_by(run, sent, became, c.node[mine], end_ns[mine])
    computed = {"node": c.node[mine], "became": fate, "count": 1, "seconds": (end_ns - c.start_ns)[mine] / 1e9,
                "bytes": 0}
    carried = {"node": m.source[sent], "became": became, "count": 0, "seconds": 0.0, "bytes": m.wire_bytes[sent]}
    both = pd.concat([pd.DataFrame(computed), pd.DataFrame(carried)])
    found = both.groupby(["node", "became"], as_index=False)[["count", "seconds", "bytes"]].sum()
    names, roles = np.array(run.names, dtype=object), np.array(run.roles, dtype=object)
    found.insert(1, "name", names[found["node"].to_numpy(np.int64)])
    found.insert(2, "role", roles[found["node"].to_numpy(np.int64)])
    return found.assign(became=np.array(BECAME, dtype=object)[found["became"].to_numpy(np.int64)])


def _followed_by(run: RunData, sent: np.ndarray, became: np.ndarray, node: np.ndarray,
                 end_ns: np.ndarray) -> np.ndarray:
    """The fate of the first message that each node sent at or after each of these times. Of several at one instant it
    is the largest, which is the update and not a message for a rule beside it."""
    m = run.messages
    times, rank = np.unique(np.concatenate([m.sent_ns[sent], end_ns]), return_inverse=True)
    key = m.source[sent] * len(times) + rank[:len(sent)]        # ranks: nodes x nanoseconds can exceed 64 bits
    order = np.lexsort((-m.payload_bytes[sent], key))
    key, became = key[order], np.append(became[order], BECAME.index("unsent"))
    place = np.searchsorted(key, node * len(times) + rank[len(sent):])
    same = (place < len(key)) & (np.append(m.source[sent][order], -1)[place] == node)
    return became[np.where(same, place, len(key))]


def wasted(found: pd.DataFrame) -> float:
    """The share of the seconds of `work` that came to nothing; 0 without any."""
    total = found["seconds"].sum()
    return float(found.loc[found["became"] != "used", "seconds"].sum() / total) if total else 0.0


def work_figure(found: pd.DataFrame) -> Figure:
    """Seconds computed by node and what became of them."""
    by_node = found.groupby("node")["seconds"].sum()
    vain = found[found["became"] != "used"].groupby("node")["seconds"].sum().reindex(by_node.index, fill_value=0.0)
    each = pd.DataFrame({"vain": vain, "all": by_node})
    order = each.sort_values(["vain", "all"], ascending=False, kind="stable").index
    kept = found[found["node"].isin(order[:_SHOWN]) & (found["seconds"] > 0)]
    kept = kept.assign(rank=ranked(kept["became"], BECAME))
    names = found.drop_duplicates("node").set_index("node")["name"]
    chart = stacked(
        named("work"), alt.Y("name:N", title=None, sort=names.loc[order[:_SHOWN]].tolist()),
        alt.X("seconds:Q", title="virtual seconds computed"), "became", BECAME, _COLOURS,
        ["name:N", "role:N", "became:N", alt.Tooltip("count:Q", title="computations"),
         alt.Tooltip("seconds:Q", format=",.4~g"), alt.Tooltip("bytes:Q", format=",")], columns=3)
    cut = "" if len(order) <= _SHOWN else f" The {_SHOWN} of {len(order):,} nodes with most work in vain."
    lost = found[found["became"] != "used"]
    said = (f"{wasted(found):.1%} of {amount(found['seconds'].sum(), 's')} came to nothing, and "
            f"{amount(lost['bytes'].sum() / 1e6, 'MB')} of what was sent")
    return Figure("work-wasted", "Work that came to nothing",
                  "Computing of each node, by the fate of the message that it sent next to a deciding node: used, "
                  f"late, lost, or come and never read; unsent: the node sent nothing any more.{cut}",
                  f"Stacked bars of computing by node: {said}.",
                  in_rows(chart, min(len(order), _SHOWN)), {"work": kept},
                  found.drop(columns=["node"]), least_width=330)


def views(held: pd.DataFrame, worked: pd.DataFrame) -> list[Figure]:
    """The figures of one run, of those for which there is something: who was waited for (`held_up`), and what work came
    to nothing (`work`)."""
    return [*([waited_figure(held)] if len(held) else []),
            *([work_figure(worked)] if worked["seconds"].sum() > 0 else [])]


def side_by_side(found: dict[str, pd.DataFrame], key: str = "work-by-run",
                 title: str = "Work that came to nothing, side by side",
                 text: str = "Shares of the computing of all nodes that decide nothing, by the fate of the message "
                             "that followed.", what: str = "run") -> Figure:
    """Work of several runs, or of several of `what`, by what became of it, each as shares of its own."""
    parts = pd.concat([one.groupby("became", as_index=False)[["count", "seconds", "bytes"]].sum().assign(**{what: name})
                       for name, one in found.items()], ignore_index=True)
    parts = parts.assign(share=parts["seconds"] / parts.groupby(what)["seconds"].transform("sum"),
                         rank=ranked(parts["became"], BECAME))
    chart = stacked(
        named("work"), row_axis(what, list(found)),
        alt.X("share:Q", title="share of the virtual seconds computed", axis=alt.Axis(format=".0%")), "became",
        BECAME, _COLOURS,
        [f"{what}:N", "became:N", alt.Tooltip("share:Q", format=".1%"), alt.Tooltip("seconds:Q", format=",.4~g"),
         alt.Tooltip("bytes:Q", format=",")], columns=3)
    said = "; ".join(f"{name} {wasted(one):.0%}" for name, one in found.items())
    return Figure(key, title, text, f"Stacked bars of shares by {what}. In vain: {said}.",
                  in_rows(chart, len(found)),
                  {"work": parts}, parts.drop(columns=["rank"]), least_width=320)


# --- groups of clients beside each other and beside those that are in none -----------------------------------------

def group_of(run: RunData) -> dict[str, str]:
    """Name of a node -> its group, or `others`; empty where the scenario has no groups."""
    return {run.names[node]: group for group, nodes in named_groups(run.header).items() for node in nodes}


def by_group(run: RunData, work: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Group -> its rows of `stragglers.work`, of groups that computed anything."""
    of = work["name"].map(group_of(run))
    found = {group: work[of == group] for group in named_groups(run.header)}
    return {group: rows for group, rows in found.items() if rows["seconds"].sum() > 0}


def group_table(run: RunData, held: pd.DataFrame, work: pd.DataFrame) -> pd.DataFrame:
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


def group_figures(run: RunData, held: pd.DataFrame, work: pd.DataFrame) -> list[Figure]:
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
