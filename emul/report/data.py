"""A run as arrays, and the frames that figures of one run are drawn from.

Messages, computations, rounds and real times are the tables that the run wrote. The journal is read only for figures of
what no table has: the hops of copies, and the order in which a node was activated, waited and was away.
All of it is vectorised: a run of a million messages takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from emul.base import rows as R
from emul.base.plain import PlainDict
from emul.record import rundir
from emul.record.columns import KeyIndex, Table, copy_keys
from emul.record.load import OpenedRun, opened
from emul.record.tables import LATE, LOST, REJECTED, TO_ENDED, RowActivities
from emul.roles.events import WaitEnd

KINDS = ("first", "retransmitted", "wasted", "lost")
STATES = ("computing", "waiting", "between rounds", "down")

_FILES = (rundir.JOURNAL, rundir.SCENARIO, "messages.parquet", "computations.parquet", "rounds.parquet",
          "timings.parquet")
_OF_NODES = (R.START, R.RESUME, R.ENTER, R.COMPUTED, R.COMPUTE, R.CRASH, R.RETURN, R.FINISH)
_OF_ACTIVITIES = (R.BESIDE, R.STATED)
_OF_ABSENCES = (R.AWAY, R.BACK, R.DROP)
_OF_LINKS = (R.SEND, R.HOP, R.RESENT, R.LINK)


@dataclass(frozen=True)
class Offers:
    """Every copy on every link that it was offered to, (n,) each: `copy` is its place in the messages."""

    copy: np.ndarray
    vertex: np.ndarray
    next: np.ndarray
    wire: np.ndarray


@dataclass(frozen=True)
class RunData(OpenedRun):
    """A run directory, of which each part is read when a figure asks for it."""

    scenario: PlainDict
    scenario_text: str

    @cached_property
    def rounds(self) -> pd.DataFrame:
        return self.table("rounds").to_pandas()

    @cached_property
    def timings(self) -> pd.DataFrame:
        return self.table("timings").to_pandas()

    @cached_property
    def events(self) -> Table:
        """The rows of which no table tells, by kind."""
        return self.rows((*_OF_NODES, *_OF_ACTIVITIES, *_OF_ABSENCES, *_OF_LINKS))

    @cached_property
    def offers(self) -> Offers:
        """The first hops and the further ones, those that lost the copy included; not what was sent again."""
        sent, hop = self.events[R.SEND], self.events[R.HOP]
        source, seq, vertex, following, wire = (
            np.concatenate([sent[f], hop[f]]) for f in ("source", "seq", "vertex", "next", "wire"))
        used = vertex >= 0                      # not what a node sends to itself, or while it is away
        return Offers(_place(self, source[used], seq[used]), vertex[used], following[used], wire[used])

    @property
    def label(self) -> str:
        return str(self.summary["label"])

    @property
    def names(self) -> list[str]:
        """Node -> name."""
        return list(self.header["names"])

    @property
    def roles(self) -> list[str]:
        """Node -> role."""
        return list(self.header["roles"])

    @property
    def vertices(self) -> list[str]:
        """Vertex of the network -> name; there may be more of them than nodes."""
        return list(self.header["network"])


def open_run(path: Path) -> RunData:
    """Open a run directory; one of a run that has not ended from its journal alone. Raises RecordError."""
    record = opened(path, _FILES)
    text, scenario = rundir.read_scenario(path / rundir.SCENARIO)
    return RunData(record.path, record.summary, record.derived, scenario, text)


# --- learning -------------------------------------------------------------------------------------------------------

def curve(run: RunData) -> pd.DataFrame:
    """One row a round that was observed: round, virtual_s, mb, then accuracy and loss where there are any.

    virtual_s: when the last deciding node left it. mb: 10^6 bytes of all that was sent until then. Values are means
    over the deciding nodes.
    """
    found, left_ns = over_nodes(run.rounds, run.end_ns)
    found.insert(2, "mb", sent_until(run, left_ns) / 1e6)
    return found


def observed(path: Path) -> pd.DataFrame:
    """The same without bytes: neither messages nor journal are read. Raises RecordError."""
    record = opened(path, ("rounds.parquet",))
    return over_nodes(record.table("rounds").to_pandas(), record.end_ns)[0]


def over_nodes(rounds: pd.DataFrame, end_ns: int) -> tuple[pd.DataFrame, np.ndarray]:
    """round, virtual_s and values of rounds that were observed; when they were left, ns.

    rounds: one row a deciding node, with round, left_ns and what was observed of accuracy and loss.
    """
    seen = [name for name in ("accuracy", "loss") if name in rounds]
    left = rounds.dropna(subset=seen, how="all") if seen else rounds.iloc[:0]
    found = left.groupby("round").agg({"left_ns": "max", **dict.fromkeys(seen, "mean")}).reset_index()
    left_ns = found.pop("left_ns").fillna(end_ns).to_numpy(np.int64)
    found.insert(1, "virtual_s", left_ns / 1e9)
    return found, left_ns


def sent_until(run: RunData, times_ns: np.ndarray) -> np.ndarray:
    """(n,) wire bytes of the copies sent at or before each time."""
    total = np.concatenate([[0], np.cumsum(run.messages.wire_bytes)])       # messages stand in the order of sending
    return total[np.searchsorted(run.messages.sent_ns, times_ns, side="right")]


# --- bytes ----------------------------------------------------------------------------------------------------------

def _place(run: RunData, source: np.ndarray, seq: np.ndarray) -> np.ndarray:
    """Places of copies in the messages."""
    return KeyIndex(copy_keys(run.messages.source, run.messages.seq)).positions(copy_keys(source, seq))


def resent(run: RunData) -> Offers:
    """The packets that reliable links sent again; `wire`: bytes."""
    again = run.events[R.RESENT]
    return Offers(_place(run, again["source"], again["seq"]), again["vertex"], again["next"], again["bytes"])


def traffic(run: RunData, by_round: bool = False) -> pd.DataFrame:
    """Bytes by link, type, direction (role to role, end to end) and kind: from, to, type, direction, kind, bytes.

    kind: `retransmitted`: sent again by a reliable link; of what was sent once `lost` if the copy was lost on any
    hop, `wasted` if it came late, came to a node that had ended, or was rejected or never read, and else `first`. Its
    sum is that of `wire_bytes`. by_round: apart, too, by `scoped`, whether the message belongs to a round.
    """
    m, o, again = run.messages, run.offers, resent(run)
    roles = list(dict.fromkeys(run.roles))
    role = np.array([roles.index(r) for r in run.roles] or [0])
    fate = np.zeros(len(m.fate), np.int64)
    fate[(m.fate == LATE) | (m.fate == TO_ENDED) | (m.fate == REJECTED) | m.unread] = KINDS.index("wasted")
    fate[m.fate == LOST] = KINDS.index("lost")
    copy, vertex, following, size = (np.concatenate([getattr(o, f), getattr(again, f)])
                                     for f in ("copy", "vertex", "next", "wire"))
    kind = np.concatenate([fate[o.copy], np.full(len(again.copy), KINDS.index("retransmitted"))])
    keys, _, place = distinct(vertex, following, m.kind[copy], role[m.source[copy]], role[m.target[copy]], kind,
                              m.round[copy] > 0 if by_round else np.zeros(len(copy), np.int64))
    total = np.zeros(len(keys[0]), np.int64)
    np.add.at(total, place, size)

    def text(of: list[str], code: np.ndarray) -> np.ndarray:
        return np.array(of or [""], dtype=object)[code]

    return pd.DataFrame({
        "from": text(run.vertices, keys[0]), "to": text(run.vertices, keys[1]), "type": text(m.kinds, keys[2]),
        "direction": text(roles, keys[3]) + " → " + text(roles, keys[4]), "kind": text(list(KINDS), keys[5]),
        "bytes": total, **({"scoped": keys[6] > 0} if by_round else {})})


def distinct(*columns: np.ndarray) -> tuple[tuple[np.ndarray, ...], np.ndarray, np.ndarray]:
    """The tuples that occur in columns of (n,) integers, none negative: their values, column by column, in ascending
    order; the first place of each; and the number of the tuple at each of the n places."""
    # one number for each tuple: `np.unique(..., axis=1)` of a million takes seconds, since it compares tuples
    shape = [int(column.max(initial=0)) + 1 for column in columns]
    keys, first, place = np.unique(np.ravel_multi_index(columns, shape), return_index=True, return_inverse=True)
    return np.unravel_index(keys, shape), first, place


def links(run: RunData) -> pd.DataFrame:
    """One row a link that carried something: vertex, next, bytes (those sent again included), copies, lost (copies)."""
    m, o, again = run.messages, run.offers, resent(run)
    keys, place, copies = np.unique(o.vertex << 32 | o.next, return_inverse=True, return_counts=True)
    size = np.zeros(len(keys), np.int64)
    np.add.at(size, place, o.wire)
    np.add.at(size, np.searchsorted(keys, again.vertex << 32 | again.next), again.wire)
    gone = (m.fate == LOST) & (m.lost_vertex >= 0)          # else it was lost with a node that was away
    lost = np.zeros(len(keys), np.int64)
    np.add.at(lost, np.searchsorted(keys, m.lost_vertex[gone] << 32 | m.lost_next[gone]), 1)
    return pd.DataFrame({"vertex": keys >> 32, "next": keys & 0xFFFFFFFF, "bytes": size, "copies": copies,
                         "lost": lost})


def losses(run: RunData) -> pd.DataFrame:
    """Per link and round of the sender: copies offered and lost; only links that lost something."""
    m, o = run.messages, run.offers
    here = (m.fate[o.copy] == LOST) & (m.lost_vertex[o.copy] == o.vertex) & (m.lost_next[o.copy] == o.next)
    key = o.vertex << 32 | o.next
    bad = np.isin(key, key[here])
    frame = pd.DataFrame({"key": key[bad], "round": m.round[o.copy[bad]], "lost": here[bad].astype(np.int64)})
    found = frame.groupby(["key", "round"])["lost"].agg(["size", "sum"]).reset_index()
    names = np.array(run.vertices, dtype=object)
    keys = found["key"].to_numpy(np.int64)
    return pd.DataFrame({"link": names[keys >> 32] + "→" + names[keys & 0xFFFFFFFF], "round": found["round"],
                         "copies": found["size"], "lost": found["sum"]})


# --- time -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Waits:
    """The waits of all nodes, (n,) each, by node and time. `outcome`: of the RESUME that ended it, -1 else.

    state: index into STATES. A wait begins when the node was last activated, since a role takes no virtual time
    but in computations; one that nothing ended ends with the run.
    """

    node: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    state: np.ndarray
    outcome: np.ndarray


def waits(run: RunData) -> Waits:
    """The intervals in which each node did not compute, from the order of its rows; its activities are left out."""
    node, index, kind, time = (np.concatenate(parts) for parts in zip(*(
        (t["node"], t.index, np.full(len(t), k), t["time_ns"]) for k in _OF_NODES for t in (run.events[k],)),
        strict=True))
    outcome = np.full(len(node), -1, np.int64)
    outcome[kind == R.RESUME] = run.events[R.RESUME]["outcome"]
    if len(activities := RowActivities(run.events)):
        own = activities.whose(index)[0] == 0
        node, index, kind, time, outcome = node[own], index[own], kind[own], time[own], outcome[own]
    order = np.lexsort((index, node))
    node, kind, time, outcome = node[order], kind[order], time[order], outcome[order]
    last = np.append(node[1:] != node[:-1], True) if len(node) else np.empty(0, bool)
    end = np.where(last, max(run.end_ns, int(time.max(initial=0))), np.append(time[1:], 0))
    ender = np.where(last, -1, np.append(kind[1:], -1))
    ended_by = np.where(last, -1, np.append(outcome[1:], -1))
    state = np.full(len(node), STATES.index("waiting"))
    state[ender == R.ENTER] = STATES.index("between rounds")
    state[(kind == R.CRASH)] = STATES.index("down")
    keep = (kind != R.COMPUTE) & (kind != R.FINISH) & (end > time)
    return Waits(node[keep], time[keep], end[keep], state[keep], ended_by[keep])


def busy_until(run: RunData) -> np.ndarray:
    """(n,) when each computation ended, was cut, or the run ended in it."""
    c = run.computations
    return np.where(c.end_ns >= 0, c.end_ns, np.minimum(c.start_ns + c.cost_ns, np.maximum(run.end_ns, c.start_ns)))


def states(run: RunData, w: Waits) -> pd.DataFrame:
    """Seconds that each node spent in each of STATES: node (number), name, role, state, seconds. (nodes x 4 rows)

    Of a role with activities the states of the role itself.
    """
    c, n = run.computations, len(run.names)
    total = np.zeros((n, len(STATES)), np.int64)
    np.add.at(total, (c.node, np.zeros(len(c.node), np.int64)), np.where(c.activity, 0, busy_until(run) - c.start_ns))
    np.add.at(total, (w.node, w.state), w.end_ns - w.start_ns)
    return pd.DataFrame({
        "node": np.repeat(np.arange(n), len(STATES)), "name": np.repeat(np.array(run.names, dtype=object), len(STATES)),
        "role": np.repeat(np.array(run.roles, dtype=object), len(STATES)),
        "state": np.tile(np.array(STATES, dtype=object), n), "seconds": total.reshape(-1) / 1e9})


def delays(run: RunData, w: Waits) -> pd.DataFrame:
    """The longest wait of every (round, deciding node), and what ended it: round, decider, cause, how, ...

    As `endings`. Where a timeout ended it (how: `deadline`), a row for every sender of a message of that round that
    came later or was lost, or `nobody` if there is none.
    """
    frame = endings(run, w)
    frame = frame.loc[frame.groupby(["round", "node"])["waited_s"].idxmax()]
    return _with_missing(run, frame).drop(columns=["node", "end_ns"]).reset_index(drop=True)


def endings(run: RunData, w: Waits) -> pd.DataFrame:
    """Every wait of the deciding nodes in their rounds, and what ended it: round, node, decider, cause, how, ...

    cause: the sender of the message whose arrival, or whose loss becoming known, ended the wait; where a timeout did
    `deadline`. `round over`: a newer round ended it. `a departure`: the last thing known was that somebody would not
    send. waited_s: the wait. alone_s: from the last but one arrival or loss in it to its end, what this one cost.
    """
    decider = np.zeros(len(run.names), bool)
    decider[list(run.header.get("deciders", range(len(run.names))))] = True
    mine = decider[w.node] & (w.outcome >= 0)
    node, start, end, outcome = w.node[mine], w.start_ns[mine], w.end_ns[mine], w.outcome[mine]
    m = run.messages
    known = np.where(m.fate == LOST, m.lost_ns, m.arrived_ns)
    to_decider = decider[m.target] & (known >= 0) & (m.source != m.target)
    order = np.flatnonzero(to_decider)
    order = order[np.lexsort((order, known[order], m.target[order]))]
    target, known = m.target[order], known[order]
    # one number for (target, time), so that one search finds the last message known at the end of a wait; ranks of
    # times, since nodes x nanoseconds can exceed 64 bits
    times, rank = np.unique(np.concatenate([known, end]), return_inverse=True)
    rank_known, rank_end = rank[:len(known)], rank[len(known):]
    place = np.searchsorted(target * len(times) + rank_known, node * len(times) + rank_end, side="right") - 1
    at = np.maximum(place, 0)
    hit = (place >= 0) & (len(order) > 0)
    if len(order):
        hit &= (target[at] == node) & (known[at] == end) & (outcome != WaitEnd.TIMEOUT)
    before = np.maximum(at - 1, 0)
    alone = np.array(start)
    if len(order):
        same = (at > 0) & (target[before] == node) & hit
        alone[same] = np.maximum(start[same], known[before[same]])
    copy = order[at] if len(order) else at
    names = np.array(run.names, dtype=object)
    others = {int(WaitEnd.TIMEOUT): DEADLINE, int(WaitEnd.ROUND_OVER): "round over"}
    cause = np.array([others.get(o, "a departure") for o in outcome.tolist()], dtype=object)
    how = cause.copy()
    if hit.any():
        cause[hit] = names[m.source[copy[hit]]]
        how[hit] = np.where(m.fate[copy[hit]] == LOST, "loss known", "arrival")
    frame = pd.DataFrame({"round": _round_at(run, node, start), "node": node, "decider": names[node], "cause": cause,
                          "how": how, "waited_s": (end - start) / 1e9, "alone_s": (end - alone) / 1e9})
    frame["end_ns"] = end
    return frame[frame["round"] > 0]


DEADLINE = "deadline"


def _with_missing(run: RunData, frame: pd.DataFrame) -> pd.DataFrame:
    """A wait that a deadline ended as one row a sender whose message of that round was not there in time."""
    ended = frame[frame["how"] == DEADLINE]
    if not len(ended):
        return frame
    m = run.messages
    keys = ended["round"].to_numpy(np.int64) << 32 | ended["node"].to_numpy(np.int64)
    place = KeyIndex(keys).positions(m.round << 32 | m.target)
    in_time = (m.arrived_ns >= 0) & (m.arrived_ns <= ended["end_ns"].to_numpy(np.int64)[np.maximum(place, 0)])
    missing = np.flatnonzero((place >= 0) & ~in_time & (m.source != m.target))
    pairs = pd.DataFrame({"place": place[missing], "source": m.source[missing]}).drop_duplicates()
    late = ended.iloc[pairs["place"].to_numpy()].assign(
        cause=np.array(run.names, dtype=object)[pairs["source"].to_numpy()])
    alone = ended.drop(index=late.index).assign(cause="nobody")
    return pd.concat([frame[frame["how"] != DEADLINE], late, alone]).sort_values(["round", "node"], kind="stable")


def _round_at(run: RunData, node: np.ndarray, time_ns: np.ndarray) -> np.ndarray:
    """The round that each deciding node was in when its wait began, after what it did then; 0: in none."""
    found = np.zeros(len(node), np.int64)
    for number, mine in run.rounds.groupby("node"):
        here = np.flatnonzero(node == number)
        if not len(here):
            continue
        mine = mine.sort_values("entered_ns")
        place = np.searchsorted(mine["entered_ns"].to_numpy(np.int64), time_ns[here], side="right") - 1
        left = mine["left_ns"].fillna(np.iinfo(np.int64).max).to_numpy(np.float64)
        inside = (place >= 0) & (time_ns[here] <= left[np.maximum(place, 0)])
        found[here[inside]] = mine["round"].to_numpy()[place[inside]]
    return found


def computing(run: RunData) -> pd.DataFrame:
    """By role and label: number, virtual seconds in all, mean and largest in ms; CPU seconds that this machine took."""
    c = run.computations
    roles = np.array(run.roles, dtype=object)
    used = (busy_until(run) - c.start_ns) / 1e9
    frame = pd.DataFrame({"role": roles[c.node], "label": np.array(c.labels or [""], dtype=object)[c.label], "s": used})
    grouped = frame.groupby(["role", "label"], observed=True)["s"]
    found = grouped.agg(count="size", virtual_s="sum", mean_ms="mean", largest_ms="max").reset_index()
    found[["mean_ms", "largest_ms"]] *= 1e3
    real = run.timings.groupby(["role", "label"], observed=True)["cpu_ns"].sum() / 1e9
    pairs = list(zip(found["role"], found["label"], strict=True))
    found["real_cpu_s"] = [float(real.get(pair, 0.0)) for pair in pairs]
    return found.sort_values("virtual_s", ascending=False, ignore_index=True)


def absences(run: RunData) -> Waits:
    """The intervals in which nodes were away while their roles went on: between `away` and `back` rows, and for nodes
    that dropped out of a round between `drop` and the next `enter`. state and outcome: -1."""
    away, dropped = (_between(run, begin, end) for begin, end in ((R.AWAY, R.BACK), (R.DROP, R.ENTER)))
    node, begin, end = (np.concatenate(pair) for pair in zip(away, dropped, strict=True))
    none = np.full(len(node), -1)
    return Waits(node, begin, end, none, none)


def _between(run: RunData, begins: int, ends: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(node, from, to) of what a row of one kind begins and the next of another kind of the same node ends."""
    gone, back = run.events[begins], run.events[ends]
    node = np.concatenate([gone["node"], back["node"]])
    time = np.concatenate([gone["time_ns"], back["time_ns"]])
    order = np.lexsort((np.concatenate([gone.index, back.index]), node))
    leaves = (np.arange(len(node)) < len(gone))[order]
    node, time = node[order], time[order]
    followed = np.append((node[1:] == node[:-1]) & ~leaves[1:], False)
    end = np.where(followed, np.append(time[1:], 0), np.maximum(run.end_ns, time))
    return node[leaves], time[leaves], end[leaves]
