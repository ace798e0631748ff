"""The tables of a run, derived from its journal: what an analysis reads.

Units are part of the names; times are nanoseconds of virtual time but for `cpu_ns`. `COLUMNS` says what every column
is. A null means "never came to pass".

A new column is three lines here: its meaning in `COLUMNS`, its type in `SCHEMAS`, and its values in `messages_table`,
`computations_table` or `rounds_of`. For a figure that reads it back it is in `messages_from` or `computations_from`.
The rows of `network` are made in `emul.record.realised`, the tables that only some runs have in `side_tables` and
`energy`. Values that a role reports (`node.report`) are columns of `rounds` without any of this.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base import rows
from emul.base.files import write_atomically
from emul.base.parquet import ParquetError, read_parquet, write_parquet
from emul.base.plain import PlainDict, PlainMapping
from emul.record.columns import Computations, KeyIndex, Messages, Table, columns, copy_keys
from emul.record.journal import RecordError, read
from emul.record.realised import LinkRow, network_table
from emul.record.rundir import JOURNAL, require_as_sealed
from emul.roles.events import WaitEnd

if TYPE_CHECKING:
    import pyarrow as pa

ENERGY = "energy.parquet"           # beside the tables of COLUMNS, where a scenario has devices
DELIVERED, LATE, LOST, TO_ENDED, IN_FLIGHT, REJECTED = range(6)
FATES = ("delivered", "late", "lost", "to_ended", "in_flight", "rejected")
_LISTED = 10                        # names, at most, that an error lists
NULLABLE = ("arrived_ns", "lost_ns", "left_ns", "end_ns")        # of messages, rounds and computations

Observed = Sequence[tuple[int, int, Mapping[str, float]]]       # (node, round, {name: value}), off-clock
Timed = Sequence[tuple[int, str, float, int]]                   # (node, label, work, CPU ns)

COLUMNS: dict[str, dict[str, str]] = {
    "messages": {                       # one row a copy, in the order of sending
        "source": "Node that sent it.",
        "source_name": "Its name.",
        "source_role": "Its role.",
        "seq": "The number of the copy at its source; (source, seq) names it in the journal.",
        "target": "Node that it is for.",
        "target_name": "Its name.",
        "target_role": "Its role.",
        "type": "The message's type in the scheme.",
        "round": "The sender's round; 0 outside rounds, or of an unscoped type.",
        "payload_bytes": "Bytes of the encoded frames, and the bytes that the message declares.",
        "declared_bytes": "The part of these that the scheme declared and did not carry (`Declared`).",
        "wire_bytes": "Bytes that crossed links: frames, envelope and overhead per packet, once a hop. The losing "
                      "hop, a hop under way, repetitions, and a hop from which the end of a contact gave the "
                      "message back are included. 0 to oneself.",
        "retransmitted_bytes": "The part of these that reliable links sent again, and links with contacts and `gap: "
                               "again`.",
        "hops": "Links that it was offered to; 0 to oneself.",
        "sent_ns": "When it was sent.",
        "arrived_ns": "When it was delivered, `late`, `to_ended` and `rejected` included; null if lost or in "
                      "flight.",
        "fate": "`delivered`: to the inbox in time. `late`: its round was over for the receiver, at the delivery or "
                "before it was read. `lost`: on a link, or because its sender or receiver was away. `to_ended`: the "
                "receiver had crashed or ended. `in_flight`: under way when the run ended. `rejected`: it is not "
                "what its type or the protocol says, or is beyond a limit; waits take it for lost. A message that "
                "its receiver never reads is `late` once its round is over, so only `lost` tells of losses of the "
                "network.",
        "lost_ns": "When its loss became known. This is the time at which the losing link would have delivered it.",
        "lost_vertex": "The beginning of the losing link; null unless lost on a link.",
        "lost_next": "Its end.",
        "unread": "It was delivered, but was still in the inbox when its receiver crashed or ended. Messages that "
                  "were in an inbox when the run ended are not marked.",
        "reason": "The reason of its rejection; null: it was not rejected.",
    },
    "rounds": {                         # one row for each round that a deciding node entered
        "round": "Its number, from 1.",
        "node": "The deciding node.",
        "node_name": "Its name.",
        "entered_ns": "When it entered.",
        "left_ns": "When it left or crashed; null: the run ended in this round.",
        "completed": "True: the node left it without a failure of its protocol.",
        "why": "The reason why it was not completed: the failure, `crashed` or `run ended`; else empty.",
        "deadline_ended": "True: a wait of the node ended in this round because its deadline came.",
        "last_arrival_ns": "The last arrival of a message of this round at the node, in time or late: how long the "
                           "node would have had to wait. Null: none came.",
        "messages": "Copies of this round that were sent, by any node.",
        "payload_bytes": "Their frames.",
        "wire_bytes": "All that crossed links for them.",
        # then the observations (accuracy, loss, ...), after an accuracy what it is of (accuracy_of, of
        # `emul.roles.evaluation.KINDS`), then what the role reported; a reported value whose name is taken is called
        # reported_<name>
    },
    "computations": {                   # one row a computation, in the order in which they began
        "node": "The node.",
        "name": "Its name.",
        "role": "Its role.",
        "label": "The computation's name in the scheme.",
        "round": "The node's round; 0 outside.",
        "start_ns": "When it began.",
        "cost_ns": "The virtual time that it takes whole.",
        "end_ns": "When it ended or was cut; null: the run ended first.",
        "work": "Its size in the scheme's own unit; 0: the scheme gave none.",
        "finished": "False: cut by a crash, abandoned for a new round, or the run ended first.",
        "declared": "True: the scheme stated the cost.",
    },
    "timings": {                        # real times: these differ from run to run
        "node": "The node.",
        "name": "Its name.",
        "role": "Its role.",
        "label": "The computation's name in the scheme.",
        "work": "Its size in the scheme's own unit.",
        "cpu_ns": "CPU time that it took on this machine.",
    },
    "network": {                        # draws of links: a run can be made on them again, see emul.network.realisation
        "source": "The beginning of the link. Of `compute_ns`: the node.",
        "destination": "Its end. Of `compute_ns`: the label.",
        "what": "The kind of the row: `lost`, `first_lost_packet`, `lost_packet`, `draw`, `up`, `latency_ns`, "
                "`rate_bps`, `background_bps`, `arrival_bytes`, `greedy_flows`, `compute_ns`, `fault_...`.",
        "round": "Of the message, 0 outside rounds; of the computation.",
        "k": "The number of the message in that round on this link, from 0. Of `compute_ns`: the number of the "
             "computation among those of that label at the node.",
        "start_ns": "From when on, for states and faults.",
        "end_ns": "Until when a state lasts; null: for ever.",
        "value": "1 or 0, a packet, a probability, ns, bit/s, bytes or flows, by the kind.",
        "sender": "Of `lost_packet`: the source of the message; null in a table by hand: the end of the link. Of "
                  "background along a route: where that begins.",
        "receiver": "Of `lost_packet`: its target. Of background along a route: where that ends.",
    },
}


ACTIVITY_COLUMNS = {                    # of computations, in a run with activities or several lanes
    "activity": "the number of the activity that computed; 0: the role itself",
    "lane": "the place of its lane among those of the scheme, from 0",
}


# The types of the columns of every table that a run writes; "?": may be null. Integers are never negative.
SCHEMAS: dict[str, dict[str, str]] = {name: dict(one.split(":") for one in said.split()) for name, said in {
    "messages": "source:int source_name:text source_role:text seq:int target:int target_name:text target_role:text "
                "type:text round:int payload_bytes:int declared_bytes:int wire_bytes:int retransmitted_bytes:int "
                "hops:int sent_ns:int arrived_ns:int? fate:text lost_ns:int? lost_vertex:text? lost_next:text? "
                "unread:bool reason:text?",
    "rounds": "round:int node:int node_name:text entered_ns:int left_ns:int? completed:bool why:text "
              "deadline_ended:bool last_arrival_ns:int? messages:int payload_bytes:int wire_bytes:int",
    "computations": "node:int name:text role:text label:text round:int start_ns:int cost_ns:int end_ns:int? work:float "
                    "finished:bool declared:bool activity:int lane:int",
    "timings": "node:int name:text role:text label:text work:float cpu_ns:int",
    "network": "source:text destination:text what:text round:int? k:int? start_ns:int? end_ns:int? value:float? "
               "sender:text? receiver:text?",
    "energy": "node:int name:text role:text device:text? kind:text? up_s:float compute_s:float send_s:float "
              "receive_s:float idle_j:float? compute_j:float? send_j:float? receive_j:float? joules:float? "
              "battery_j:float? left_j:float?",
    "samples": "node:int name:text class:int? samples:int class_name:text?",
    "traffic": "source:text destination:text entry:text offered_bytes:int carried_bytes:int dropped_bytes:int",
    "contacts": "source:text destination:text begin_ns:int end_ns:int? rate_bps:int latency_ns:int",
    "positions": "t_s:float vertex:text x:float y:float lat:float lon:float",
}.items()}


def messages_of(table: Table) -> Messages:
    """Join the rows of every copy: sent, hops, outcome."""
    sent = table[rows.SEND]
    order = np.argsort(sent["time_ns"], kind="stable")
    source, seq = sent["source"][order], sent["seq"][order]
    finder = KeyIndex(copy_keys(source, seq))

    def positions(kind: int) -> np.ndarray:
        found = finder.positions(copy_keys(table[kind]["source"], table[kind]["seq"]))
        if len(found) and found.min() < 0:
            at = int(table[kind].index[np.argmin(found)])
            raise RecordError(f"journal, row {at}: a {rows.NAMES[kind][0]} row of a message that was never sent")
        return found

    n = len(source)
    fate = np.full(n, IN_FLIGHT, np.int64)
    arrived, lost_ns, lost_vertex, lost_next = (np.full(n, -1, np.int64) for _ in range(4))
    hop, delivered, lost = positions(rows.HOP), positions(rows.DELIVER), positions(rows.LOST)
    wire = sent["wire"][order].copy()
    np.add.at(wire, hop, table[rows.HOP]["wire"])
    resent = np.zeros(n, np.int64)
    np.add.at(resent, positions(rows.RESENT), table[rows.RESENT]["bytes"])
    wire += resent
    declared = np.zeros(n, np.int64)
    declared[positions(rows.DECLARED)] = table[rows.DECLARED]["bytes"]
    hops = (sent["vertex"][order] >= 0) + np.bincount(hop, minlength=n)
    arrived[delivered] = table[rows.DELIVER]["time_ns"]
    fate[delivered] = np.array([DELIVERED, LATE, TO_ENDED])[table[rows.DELIVER]["fate"]]
    fate[lost] = LOST
    lost_ns[lost] = table[rows.LOST]["time_ns"]
    lost_vertex[lost], lost_next[lost] = table[rows.LOST]["vertex"], table[rows.LOST]["next"]
    fate[positions(rows.LATE)] = LATE
    rejected, refused = positions(rows.REJECT), table[rows.REJECT]
    fate[rejected] = REJECTED
    arrived[rejected] = np.where(arrived[rejected] < 0, refused["time_ns"], arrived[rejected])
    reason = np.full(n, -1, np.int64)
    reason[rejected] = refused["reason"]
    unread = np.zeros(n, bool)
    unread[positions(rows.UNREAD)] = True
    return Messages(source, seq, sent["target"][order], sent["type"][order], sent.texts["type"], sent["round"][order],
                    sent["size"][order], declared, wire, resent, hops, sent["time_ns"][order], arrived, fate, lost_ns,
                    lost_vertex, lost_next, unread, reason, refused.texts["reason"])


def computations_of(table: Table) -> Computations:
    """Each computation with what ended it: of its node's rows that can, the next in the journal. With activities: of
    the rows of the same activity."""
    begun, activities = table[rows.COMPUTE], RowActivities(table)
    enders = (rows.COMPUTED, rows.CRASH, rows.RESUME, rows.COMPUTE, rows.DONE)
    node, index, kind, time = (np.concatenate(parts) for parts in zip(
        *((table[k]["node"], table[k].index, np.full(len(table[k]), k), table[k]["time_ns"]) for k in enders),
        strict=True))
    activity, lane = activities.whose(begun.index)
    if len(activities) or len(table[rows.ACTIVITY]):
        node, index, kind, time = _by_activity(table, activities, node, index, kind, time)
    order = np.lexsort((index, node))
    node, index, kind, time = node[order], index[order], kind[order], time[order]
    n = len(node)
    following = np.minimum(np.arange(n) + 1, max(n - 1, 0))
    ended = np.where((node[following] == node) & (np.arange(n) + 1 < n) & (kind[following] != rows.COMPUTE),
                     time[following], -1) if n else time
    at = KeyIndex(index).positions(begun.index)
    end = ended[at]
    finished = (end >= 0) & (kind[following][at] == rows.COMPUTED)
    by_start = np.argsort(begun["time_ns"], kind="stable")
    return Computations(begun["node"][by_start], begun["label"][by_start], begun.texts["label"],
                        begun["round"][by_start], begun["time_ns"][by_start], begun["cost_ns"][by_start],
                        end[by_start], begun["work"][by_start], finished[by_start], _stated(table)[by_start],
                        activity[by_start], lane[by_start])


class RowActivities:
    """The activities and lanes of rows, where they are not the role itself and the first lane."""

    def __init__(self, table: Table):
        part = table[rows.BESIDE]
        stated = np.isin(part.index - 1, table[rows.STATED].index)      # it stands between a COMPUTE row and this
        self._finder = KeyIndex(part.index - 1 - stated)
        self._activity, self._lane = part["activity"], part["lane"]

    def __len__(self) -> int:
        return len(self._activity)

    def whose(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """index: (n,) places of rows in the journal. (n,) activities, 0 of the role itself; (n,) places of lanes."""
        at = self._finder.positions(index)
        if not len(self):
            return np.zeros(len(at), np.int64), np.zeros(len(at), np.int64)
        return np.where(at >= 0, self._activity[at], 0), np.where(at >= 0, self._lane[at], 0)


def _by_activity(table: Table, activities: RowActivities, node: np.ndarray, index: np.ndarray, kind: np.ndarray,
                 time: np.ndarray) -> tuple[np.ndarray, ...]:
    """The rows of nodes with one number for each (node, activity) in place of the node. A crash ends all activities."""
    activity, _ = activities.whose(index)
    done = table[rows.DONE]
    activity[kind == rows.DONE] = done["activity"]
    key = node << 32 | activity
    again = []                                  # of each crash a row more for each activity of that node
    begun = table[rows.ACTIVITY]
    for at in np.flatnonzero(kind == rows.CRASH).tolist():
        mine = np.unique(begun["activity"][(begun["node"] == node[at]) & (begun.index < index[at])])
        again += [(node[at] << 32 | number, index[at], kind[at], time[at]) for number in mine.tolist()]
    more = np.array(again, np.int64).reshape(-1, 4)
    return tuple(np.concatenate([column, more[:, place]]) for place, column in enumerate((key, index, kind, time)))


def _stated(table: Table) -> np.ndarray:
    """(n,) bool, of every computation in the order of its row: whether the row that says so follows."""
    begun = table[rows.COMPUTE]
    stated = np.zeros(len(begun), bool)
    at = KeyIndex(begun.index).positions(table[rows.STATED].index - 1)
    if len(at) and at.min() < 0:
        row = int(table[rows.STATED].index[np.argmin(at)])
        raise RecordError(f"journal, row {row}: a stated row that follows no compute row")
    stated[at] = True
    return stated


# columns of `rounds` that name a round or tell its course; all others that are numbers can be averaged and drawn
OF_ROUND = ("round", "node", "node_name", "entered_ns", "left_ns", "completed", "why", "deadline_ended",
            "last_arrival_ns")


def rounds_of(table: Table, header: PlainMapping, observed: Observed = ()) -> list[PlainDict]:
    """One dict a (round, deciding node), ordered so; without the columns that count messages."""
    deciders = set(header.get("deciders", range(len(header["names"]))))
    found: dict[tuple[int, int], PlainDict] = {}
    entered, left, crashed = table[rows.ENTER], table[rows.LEAVE], table[rows.CRASH]
    ours = [np.isin(part["node"], sorted(deciders)) for part in (entered, left)]        # few of many, as a rule
    for time, node, number in _tuples(entered, "time_ns", "node", "round", where=ours[0]):
        if number:
            found[number, node] = {"round": number, "node": node, "node_name": header["names"][node],
                                   "entered_ns": time, "left_ns": None, "completed": False, "why": "run ended",
                                   "deadline_ended": False}
    for time, node, number, code in _tuples(left, "time_ns", "node", "round", "why", where=ours[1]):
        row = found.get((number, node))
        if row is not None:
            why = left.texts["why"][code]
            row.update(left_ns=time, completed=not why, why=why)
    resumed = table[rows.RESUME]
    timed_out = (resumed["outcome"] == WaitEnd.TIMEOUT) & np.isin(resumed["node"], sorted(deciders))
    begun: dict[int, list[tuple[int, int]]] = {node: [] for node in deciders}
    for entered_ns, number, node in sorted((row["entered_ns"], *key) for key, row in found.items()):
        begun[node].append((entered_ns, number))
    for time, node in _tuples(resumed, "time_ns", "node", where=timed_out):
        place = bisect_left(begun[node], (time, 0)) - 1         # a wait lasts: its round was entered before it ended
        if place >= 0:
            in_round = found[begun[node][place][1], node]
            if in_round["left_ns"] is None or in_round["left_ns"] >= time:
                in_round["deadline_ended"] = True
    for time, node in _tuples(crashed, "time_ns", "node"):
        row = max((r for (_, n), r in found.items() if n == node and r["entered_ns"] <= time),
                  key=lambda r: r["round"], default=None)
        if row is not None and row["left_ns"] is None:
            row.update(left_ns=time, why="crashed")
    _add_values(found, table, observed, header.get("accuracy_of"))
    return [row for _, row in sorted(found.items(), key=lambda item: item[0])]


def _add_values(found: dict[tuple[int, int], dict[str, object]], table: Table, observed: Observed,
                accuracy_of: object) -> None:
    taken = {*COLUMNS["rounds"], "accuracy_of"} | {name for _, _, values in observed for name in values}
    others = _of_others(observed, {node for _, node in found})
    for (number, _), row in found.items():
        row.update({name: v for name, v in others.get(number, {}).items() if name not in COLUMNS["rounds"]})
    for node, number, values in observed:
        if (number, node) in found:
            found[number, node].update({name: v for name, v in values.items() if name not in COLUMNS["rounds"]})
    for row in found.values():
        if accuracy_of is not None and "accuracy" in row:
            row["accuracy_of"] = accuracy_of
    reported = table[rows.REPORT]
    for (node, number), values in zip(_tuples(reported, "node", "round"), reported["values"], strict=True):
        if (number, node) in found:
            found[number, node].update({f"reported_{k}" if k in taken else k: v for k, v in values.items()})


def _of_others(observed: Observed, deciding: Collection[int]) -> dict[int, dict[str, float]]:
    """round -> what was observed of nodes that do not decide, such as clients with models of their own: the mean of
    each value, and its standard deviation, least and largest under `_std`, `_min`, `_max`."""
    each: dict[int, dict[str, list[float]]] = {}
    for node, number, values in observed:
        if node not in deciding:
            for name, value in values.items():
                each.setdefault(number, {}).setdefault(name, []).append(value)
    return {number: {key: value for name, column in sorted(columns.items())
                     for key, value in ((name, float(np.mean(column))), (f"{name}_std", float(np.std(column))),
                                        (f"{name}_min", min(column)), (f"{name}_max", max(column)))}
            for number, columns in sorted(each.items())}


def _tuples(part: Any, *fields: str, where: Any = slice(None)) -> list[tuple[int, ...]]:
    return list(zip(*(part[field][where].tolist() for field in fields), strict=True))


# --- as Arrow tables ------------------------------------------------------------------------------------------------

def _named(codes: np.ndarray, names: Sequence[str]) -> pa.Array:
    """Codes as text, dictionary-encoded; -1 is null."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32), mask=codes < 0),
                                          pa.array(list(names), pa.string()))


def _nullable(values: np.ndarray) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, mask=values < 0)


def messages_table(m: Messages, header: PlainMapping) -> pa.Table:
    """`messages.parquet`: a row a message in the order of `m`; times in ns, null where what they tell did not
    happen."""
    import pyarrow as pa

    names, vertices = header["names"], header["network"]
    return pa.table({
        "source": m.source, "source_name": _named(m.source, names), "source_role": _roles(m.source, header),
        "seq": m.seq, "target": m.target, "target_name": _named(m.target, names),
        "target_role": _roles(m.target, header), "type": _named(m.kind, m.kinds),
        "round": m.round, "payload_bytes": m.payload_bytes, "declared_bytes": m.declared_bytes,
        "wire_bytes": m.wire_bytes,
        "retransmitted_bytes": m.retransmitted_bytes, "hops": m.hops,
        "sent_ns": m.sent_ns, "arrived_ns": _nullable(m.arrived_ns), "fate": _named(m.fate, FATES),
        "lost_ns": _nullable(m.lost_ns), "lost_vertex": _named(m.lost_vertex, vertices),
        "lost_next": _named(m.lost_next, vertices), "unread": m.unread, "reason": _named(m.reason, m.reasons)})


def messages_from(table: pa.Table, nodes: int, vertices: Sequence[str]) -> Messages:
    """The messages of a table, in a run of so many nodes. Raises ValueError for what no run writes."""
    kind, kinds = _coded(table["type"])
    reason, reasons = _coded(table["reason"])
    return Messages(
        source=_nodes(table, "source", nodes), target=_nodes(table, "target", nodes), kind=kind, kinds=kinds,
        fate=_places(table["fate"], FATES), lost_vertex=_places(table["lost_vertex"], vertices),
        lost_next=_places(table["lost_next"], vertices), reason=reason, reasons=reasons, **{
            name: _values(table, name) for name in (
                "seq", "round", "payload_bytes", "declared_bytes", "wire_bytes", "retransmitted_bytes", "hops",
                "sent_ns", "arrived_ns", "lost_ns", "unread")})


def _values(table: pa.Table, name: str) -> np.ndarray:
    """A column as an array, -1 for the nulls that it may have. Raises ValueError for others."""
    column = table[name]
    if name in NULLABLE:
        return column.fill_null(-1).to_numpy()
    if column.null_count:
        raise ValueError(f"column {name}: {column.null_count} nulls")
    return column.to_numpy()


def _nodes(table: pa.Table, name: str, count: int) -> np.ndarray:
    """A column of nodes. Raises ValueError for those that the run does not have."""
    found = _values(table, name)
    if len(found) and not 0 <= found.min() <= found.max() < count:
        raise ValueError(f"column {name}: nodes {found.min()} to {found.max()}; the run has 0 to {count - 1}")
    return found


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """(n,) codes, -1 for null, and the texts that they stand for: what `_named` was given."""
    whole = column.unify_dictionaries().combine_chunks()
    return whole.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64), whole.dictionary.to_pylist()


def _places(column: pa.ChunkedArray, names: Sequence[str]) -> np.ndarray:
    """(n,) the places in `names` of what the column says, -1 for null. Raises ValueError."""
    codes, said = _coded(column)
    place = {name: i for i, name in enumerate(names)}
    unknown = [name for name in said if name not in place]
    if unknown:
        raise ValueError(f'found "{unknown[0]}", expected one of {", ".join(names[:_LISTED])}')
    return np.array([*(place[name] for name in said), -1], np.int64)[codes]


def computations_table(c: Computations, header: PlainMapping) -> pa.Table:
    """`computations.parquet`: a row a computation; `end_ns` null where the run ended before it."""
    import pyarrow as pa

    return pa.table({
        "node": c.node, "name": _named(c.node, header["names"]), "role": _roles(c.node, header),
        "label": _named(c.label, c.labels), "round": c.round, "start_ns": c.start_ns, "cost_ns": c.cost_ns,
        "end_ns": _nullable(c.end_ns), "work": c.work, "finished": c.finished, "declared": c.declared,
        **({"activity": c.activity, "lane": c.lane} if c.activity.any() or c.lane.any() else {})})


def computations_from(table: pa.Table, nodes: int) -> Computations:
    """The computations of a table, in a run of so many nodes. Raises ValueError for what no run writes."""
    label, labels = _coded(table["label"])
    return Computations(_nodes(table, "node", nodes), label, labels, *(_values(table, name) for name in (
        "round", "start_ns", "cost_ns", "end_ns", "work", "finished", "declared")), *(
        _values(table, name) if name in table.column_names else np.zeros(len(table), np.int64)
        for name in ACTIVITY_COLUMNS))


def _roles(nodes: np.ndarray, header: PlainMapping) -> pa.Array:
    kinds = list(dict.fromkeys(header["roles"]))
    return _named(np.array([kinds.index(role) for role in header["roles"]] or [0])[nodes], kinds)


def rounds_table(found: Sequence[PlainMapping], m: Messages) -> pa.Table:
    """`rounds.parquet`: a row for each of `found`, with the messages and bytes of all nodes in its round, and a column
    for each name that a role reported."""
    import pyarrow as pa

    last = max((row["round"] for row in found), default=0)
    counted = m.round <= last
    sums = {name: np.bincount(m.round[counted], None if w is None else w[counted], last + 1).astype(np.int64)
            for name, w in (("messages", None), ("payload_bytes", m.payload_bytes), ("wire_bytes", m.wire_bytes))}
    width = max((row["node"] for row in found), default=0) + 1
    to_them = counted & (m.target < width)
    last_ns = np.full((last + 1) * width, -1, np.int64)
    np.maximum.at(last_ns, m.round[to_them] * width + m.target[to_them], m.arrived_ns[to_them])
    arrivals = {(row["round"], row["node"]): int(last_ns[row["round"] * width + row["node"]]) for row in found}
    whole = [{**row, **{name: int(total[row["round"]]) for name, total in sums.items()},
              "last_arrival_ns": None if (at := arrivals[row["round"], row["node"]]) < 0 else at} for row in found]
    kinds = {"int": pa.int64(), "text": pa.string(), "bool": pa.bool_()}
    types = {name: kinds[kind.removesuffix("?")] for name, kind in SCHEMAS["rounds"].items()}
    table = {name: pa.array([row[name] for row in whole], kind) for name, kind in types.items()}
    for name in dict.fromkeys(name for row in whole for name in row if name not in types):
        table[name] = _column([row.get(name) for row in whole])
    return pa.table(table)


def _column(values: list[Any]) -> pa.Array:
    """A column of whatever roles report under one name; as text where the values are of several types."""
    import pyarrow as pa

    kinds = {type(v) for v in values if v is not None}
    if kinds == {int, float}:
        values = [None if v is None else float(v) for v in values]
    elif len(kinds) > 1:
        values = [None if v is None else str(v) for v in values]
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, OverflowError):            # integers of more than 64 bits
        return pa.array([None if v is None else str(v) for v in values])


def timings_table(timed: Timed, header: PlainMapping) -> pa.Table:
    """`timings.parquet`: a row for each measured computation, CPU time in ns. Real time: no two runs have the same."""
    import pyarrow as pa

    node, label, work, cpu_ns = zip(*timed, strict=True) if timed else ((), (), (), ())
    where = np.array(node, np.int64)
    return pa.table({"node": where, "name": _named(where, header["names"]), "role": _roles(where, header),
                     "label": pa.array(label, pa.string()).dictionary_encode(),
                     "work": pa.array(work, pa.float64()), "cpu_ns": pa.array(cpu_ns, pa.int64())})


# --- the whole of a run ---------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Derived:
    """The rows of a journal, joined: the source of tables and summary."""

    header: PlainMapping
    table: Table
    messages: Messages
    computations: Computations
    rounds: list[PlainDict]
    observed: Observed


def derive(table: Table, header: Mapping[str, object], observed: Observed = ()) -> Derived:
    """Join the columns of a journal. Raises RecordError for rows that no run writes."""
    return Derived(header, table, messages_of(table), computations_of(table), rounds_of(table, header, observed),
                   observed)


def tables_of(run: Derived, timed: Timed = (), drawn: Iterable[LinkRow] = ()) -> Iterator[tuple[str, pa.Table]]:
    """(name, table) of every table of `COLUMNS`, each made when it is asked for. `drawn`: rows of the links."""
    yield "rounds", rounds_table(run.rounds, run.messages)
    yield "messages", messages_table(run.messages, run.header)
    yield "computations", computations_table(run.computations, run.header)
    yield "timings", timings_table(timed, run.header)
    yield "network", network_table(drawn, run.computations, run.table, run.header)


def write_tables(folder: Path, run: Derived, timed: Timed = (), drawn: Iterable[LinkRow] = ()) -> None:
    """Write the tables into the run directory, each under a temporary name first. `drawn`: rows of the links."""
    for name, table in tables_of(run, timed, drawn):
        with write_atomically(folder / f"{name}.parquet") as path:
            write_parquet(path, table)


def read_table(file: Path, columns: Sequence[str] | None = None, optional: Collection[str] = (),
               where: tuple[str, Collection[str]] | None = None) -> pa.Table:
    """A table of a run directory or a study, of which nothing is trusted: a regular file below its folder, as it was
    sealed, with the columns of `SCHEMAS` in their types, and of others plain values alone.

    columns: None: all. optional: columns that are read where they are there. where: (column, values): only rows that
    have one of these. Raises RecordError naming the file.
    """
    if not file.is_file():
        raise RecordError(f"{file}: no table: " + ("expected a regular file" if file.exists() else "no such file"))
    if not file.resolve().is_relative_to(file.parent.resolve()):
        raise RecordError(f"{file}: a link that leads out of its folder")
    require_as_sealed(file)
    try:
        return read_parquet(file, SCHEMAS.get(file.stem, {}), columns, optional, where)
    except ParquetError as error:
        raise RecordError(f"{file}: {error}") from None


def recorded_costs(path: Path) -> dict[int, list[int]]:
    """node -> virtual costs in ns of its computations, in their order, from a run directory or its journal.

    Raises RecordError; OSError where there is no such file.
    """
    source = read(path / JOURNAL if path.is_dir() else path)
    costs: dict[int, list[int]] = {}
    begun = columns(source)[rows.COMPUTE]
    for node, cost in _tuples(begun, "node", "cost_ns"):
        costs.setdefault(node, []).append(cost)
    return costs


def lost_links(m: Messages) -> Counter[tuple[int, int]]:
    """(vertex, next vertex) -> copies lost there."""
    lost = (m.fate == LOST) & (m.lost_vertex >= 0)
    return Counter(zip(m.lost_vertex[lost].tolist(), m.lost_next[lost].tolist(), strict=True))
