"""Energy: joules by node, from the virtual seconds that it computed, sent, received and was idle.

    idle        idle_w * idle_s         compute     compute_w * compute_s       of the whole device
    send        send_w * send_s         receive     receive_w * receive_s       of its radio or port, on top

compute_s: of all its computations, as long as they went on. send_s, receive_s: bytes that crossed the node's own links
over their rate, the mean one of a rate that varies; a link without a rate takes no time. A message that is forwarded
costs the node that forwards it both; what was lost on a link, or came to a node that was down, was not received.
idle_s: what the run lasted without compute_s, and without the time that the node was down.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from emul.base import rows
from emul.base.files import write_atomically
from emul.base.parquet import write_parquet
from emul.base.plain import PlainDict
from emul.record.columns import Table
from emul.record.tables import ENERGY, Derived

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "node": "number of the node",
    "name": "its name",
    "role": "its role",
    "device": "the class of its device; null: it has none, and no watts",
    "kind": "phone, board, laptop, server, ...; null: it has no device",
    "up_s": "virtual seconds that it was there",
    "compute_s": "of these it computed",
    "send_s": "its links carried what it sent or forwarded",
    "receive_s": "its links carried what came",
    "idle_j": "joules while it did not compute; this and what follows: null where the table of devices says no watts",
    "compute_j": "while it computed",
    "send_j": "of sending",
    "receive_j": "of receiving",
    "joules": "all of them",
    "battery_j": "what its battery had at the start; null: it has none",
    "left_j": "of these what was left at the end",
}


@dataclass(frozen=True)
class Power:
    """The power that a node's device draws, in watts; None: its table does not say it."""

    device: str
    kind: str
    idle_w: float | None
    compute_w: float | None
    send_w: float | None
    receive_w: float | None
    battery_j: float | None = None      # at the start; None: it has no battery


@dataclass(frozen=True)
class PowerDraw:
    """powers: node -> what its device draws; None: it has none. rate: (vertex, next) -> bit/s of the link; inf: none.
    end_ns: when the run ended."""

    powers: Sequence[Power | None]
    rate: Callable[[int, int], float]
    end_ns: int


def energy_of(run: Derived, drawn: PowerDraw) -> dict[str, list[Any]]:
    """The columns of the table, a row a node."""
    # The kernel counts no joules, or every run would pay with every message. Only a node with a battery has an account
    # there (`emul.kernel.battery`), because its end is a fault;
    # `test_a_battery_that_lasts_changes_nothing_and_its_books_are_those_of_the_table` compares both.
    n, end = len(drawn.powers), drawn.end_ns
    compute = _compute_ns(run, n, end) / 1e9
    up = np.maximum(end - _down_ns(run.table, n, end), 0) / 1e9
    send, receive = _air_s(run, drawn, n)
    watts = {name: np.array([0.0 if one is None else getattr(one, name) for one in drawn.powers], np.float64)
             for name in ("idle_w", "compute_w", "send_w", "receive_w")}
    joules = {"idle_j": watts["idle_w"] * np.maximum(up - compute, 0), "compute_j": watts["compute_w"] * compute,
              "send_j": watts["send_w"] * send, "receive_j": watts["receive_w"] * receive}
    columns = {"up_s": up, "compute_s": compute, "send_s": send, "receive_s": receive, **joules,
               "joules": sum(joules.values(), np.zeros(n))}
    batteries = [None if one is None else one.battery_j for one in drawn.powers]
    left = [None if has is None else max(has - used, 0.0)
            for has, used in zip(batteries, columns["joules"].tolist(), strict=True)]
    told = {name: [None if math.isnan(value) else value for value in column.tolist()]
            for name, column in columns.items()}            # None became nan in an array
    return {"battery_j": batteries, "left_j": left, "node": list(range(n)),
            "name": list(run.header["names"]), "role": list(run.header["roles"]),
            "device": [None if one is None else one.device for one in drawn.powers],
            "kind": [None if one is None else one.kind for one in drawn.powers],
            **told}


def energy_summary(table: Mapping[str, Sequence[Any]]) -> PlainDict:
    """Joules of all nodes by state, by role and by kind of device; the most that one node drew, and whose that was.
    unknown: how many nodes have a device without watts, where there are some; sums leave out what is not known."""
    def known(name: str) -> float:
        return sum(value for value in table[name] if value is not None)

    def by(key: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for name, joules in zip(table[key], table["joules"], strict=True):
            if name is not None and joules is not None:
                found[name] = found.get(name, 0.0) + joules
        return dict(sorted(found.items()))

    most = max((k for k in range(len(table["node"])) if table["joules"][k] is not None),
               key=lambda k: (table["joules"][k], -k), default=None)
    unknown = sum(joules is None for joules in table["joules"])
    return {"joules": known("joules"), **({"unknown": unknown} if unknown else {}),
            **{name: known(name) for name in ("idle_j", "compute_j", "send_j", "receive_j")},
            "by_role": by("role"), "by_kind": by("kind"),
            "most": None if most is None else {"node": table["name"][most], "joules": table["joules"][most]}}


def energy_table(columns: Mapping[str, Sequence[object]]) -> pa.Table:
    """`energy.parquet`: a row a node."""
    import pyarrow as pa

    texts = {name: pa.array(columns[name], pa.string()) for name in ("name", "role", "device", "kind")}
    floats = {name: pa.array(columns[name], pa.float64()) for name in (
        "idle_j", "compute_j", "send_j", "receive_j", "joules", "battery_j", "left_j")}
    return pa.table({name: (texts | floats)[name] if name in texts | floats else pa.array(columns[name])
                     for name in COLUMNS})


def write_energy(folder: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write the table into the run directory, under a temporary name first."""
    with write_atomically(folder / ENERGY) as path:
        write_parquet(path, energy_table(columns))


def _compute_ns(run: Derived, n: int, end: int) -> np.ndarray:
    c = run.computations
    start, until = c.start_ns, np.minimum(np.where(c.end_ns < 0, end, c.end_ns), end)
    if c.activity.any():                        # several at a time draw no more than one: count what none before covers
        latest: dict[int, int] = {}
        start = start.copy()
        for i in np.lexsort((start, c.node)).tolist():
            node = int(c.node[i])
            start[i] = max(start[i], latest.get(node, 0))
            latest[node] = max(int(until[i]), latest.get(node, 0))
    return np.bincount(c.node, np.maximum(until - start, 0), n)[:n]


def _down_ns(table: Table, n: int, end: int) -> np.ndarray:
    """The time that each node was crashed, ns."""
    down = np.zeros(n)
    events = [(int(time), int(node), kind) for kind in (rows.CRASH, rows.RETURN)
              for time, node in zip(table[kind]["time_ns"], table[kind]["node"], strict=True)]
    since: dict[int, int] = {}
    for time, node, kind in sorted(events):
        if kind == rows.CRASH:
            since.setdefault(node, time)
        elif node in since:
            down[node] += time - since.pop(node)
    for node, time in since.items():
        down[node] += max(end - time, 0)
    return down


def _air_s(run: Derived, drawn: PowerDraw, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(seconds that the links of each node carried what left it, ... what came to it)."""
    node_at = {vertex: node for node, vertex in enumerate(run.header["vertices"])}
    sent, received = _carried(run)
    send, receive = np.zeros(n), np.zeros(n)
    for found, bits, side in ((send, sent, 0), (receive, received, 1)):
        for ends, count in sorted(bits.items()):
            if ends[side] in node_at:
                found[node_at[ends[side]]] += count / drawn.rate(*ends)
    return send, receive


def _carried(run: Derived) -> tuple[Counter[tuple[int, int]], Counter[tuple[int, int]]]:
    """(bits that were sent on each link, (vertex, next); of these those that a living node received)."""
    lost, ended = run.table[rows.LOST], run.table[rows.DELIVER]
    missed = set(zip(*(lost[name].tolist() for name in ("source", "seq", "vertex", "next")), strict=True))
    down = {(source, seq) for source, seq, fate in zip(
        *(ended[name].tolist() for name in ("source", "seq", "fate")), strict=True) if fate == rows.TO_ENDED}
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    vertices, target = run.header["vertices"], {}
    hops = [run.table[rows.SEND], run.table[rows.HOP]]
    for source, seq, to in zip(*(hops[0][name].tolist() for name in ("source", "seq", "target")), strict=True):
        target[source, seq] = vertices[to]
    for part in hops:
        for source, seq, vertex, following, wire in zip(
                *(part[name].tolist() for name in ("source", "seq", "vertex", "next", "wire")), strict=True):
            if vertex < 0:
                continue
            sent[vertex, following] += 8 * wire
            last = (source, seq) in down and target[source, seq] == following
            if not last and (source, seq, vertex, following) not in missed:
                received[vertex, following] += 8 * wire
    return sent, received
