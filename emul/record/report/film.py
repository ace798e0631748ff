"""The film of a run: the map of its network over virtual time, with messages on their way, computations and absences.

A film holds as many rounds as its budget of rows allows, evenly chosen, and leaves out the time between them. Of a
network too large for a map it shows deciding nodes and a sample of the others, each message on one straight way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from emul.base import rows as R
from emul.record.columns import KeyIndex, copy_keys
from emul.record.report.data import STATES, RunData, Waits, absences, busy_until
from emul.record.report.spacetime import evenly, spaced, unit_of
from emul.record.report.topology import DRAWN, Map, around
from emul.record.tables import DELIVERED, IN_FLIGHT, LOST

ROWS = 4000                     # journeys over links and computations of a film, at most
KINDS = ("message", "of no use", "lost")
_SAMPLE, _DECIDERS = 100, 8     # of the nodes of a large network


@dataclass(frozen=True)
class Film:
    """The frames of a film. Places of vertices are in 0..1, downwards; times in `unit` since the run began.

    vertices: name, role, x, y. links: u, v. hops: u, v, kind, from, to. work, away: vertex, from, to. down: u, v, from,
    to. rounds: number, from, to. windows: from, to: the stretches of time that are shown. u, v: places in `vertices`.
    """

    frames: dict[str, pd.DataFrame]
    unit: str
    aspect: float               # height over width
    text: str
    words: str


@dataclass(frozen=True)
class _Span:
    """Things that last: columns of each, and when they begin and end, ns. (n,) each."""

    columns: dict[str, np.ndarray]
    begin: np.ndarray
    end: np.ndarray

    def within(self, windows: np.ndarray, most: int) -> _Span:
        """Those that are going on in one of the windows (k, 2), evenly thinned to `most`."""
        at = np.searchsorted(windows[:, 1], self.begin, side="right")
        inside = at < len(windows)
        inside[inside] = windows[at[inside], 0] < self.end[inside]
        return self.only(np.flatnonzero(inside)[spaced(int(inside.sum()), most)])

    def only(self, kept: np.ndarray) -> _Span:
        """Those at these places, or where it is true."""
        return _Span({name: values[kept] for name, values in self.columns.items()}, self.begin[kept], self.end[kept])

    def frame(self, factor: float) -> pd.DataFrame:
        return pd.DataFrame({**self.columns, "from": np.round(self.begin / factor, 6),
                             "to": np.round(self.end / factor, 6)})


def film(run: RunData, waits: Waits, drawn: Map, budget: int = ROWS) -> Film | None:
    """The film of a run whose map is `drawn`; None: it had no round. budget: rows, at most."""
    if not len(run.rounds):
        return None
    large = len(run.vertices) > DRAWN
    vertices, place = _sampled(run) if large else (drawn.vertices[["name", "role", "x", "y"]], np.arange(
        len(run.vertices)))
    hops = _ways(run, place) if large else _hops(run)
    c, spot = run.computations, place[np.array(run.header["vertices"], np.int64)]
    work = _Span({"vertex": spot[c.node]}, c.start_ns, busy_until(run))
    work = work.only((work.columns["vertex"] >= 0) & (work.end > work.begin))
    rounds = _rounds(run)
    numbers = rounds.columns["number"]
    of_round = np.searchsorted(numbers, np.concatenate([hops.columns["round"], c.round]))
    rows = np.bincount(of_round, minlength=len(numbers) + 1)[:len(numbers)]
    chosen = evenly(list(range(len(numbers))), rows.tolist(), budget)
    rounds = rounds.only(np.array(chosen))
    everything = len(chosen) == len(numbers)
    windows = np.array([[0, max(run.end_ns, 1)]]) if everything else _merged(rounds)
    going = hops.within(windows, len(hops.begin))
    shown, working = hops.within(windows, budget), work.within(windows, budget)
    unit, factor = unit_of(int(windows[-1, 1]))
    lines = pd.DataFrame(_pairs(drawn, hops, large), columns=["u", "v"])
    frames = {
        "vertices": _scaled(vertices), "links": lines,
        "hops": shown.frame(factor).drop(columns="round"), "work": working.frame(factor),
        "away": _away(run, waits, spot).within(windows, budget).frame(factor),
        "down": (_Span({}, windows[:0, 0], windows[:0, 0]) if large else _down(run)).within(windows, budget).frame(
            factor),
        "rounds": rounds.frame(factor), "windows": _Span({}, windows[:, 0], windows[:, 1]).frame(factor)}
    text = "" if everything else (f" {len(chosen):,} of {len(numbers):,} rounds, evenly chosen; the time between them "
                                  "is left out.")
    if len(shown.begin) < len(going.begin):
        text += " Of the messages of these rounds an even sample is shown."
    if large:
        text += (f" {len(vertices):,} of {len(run.vertices):,} vertices: deciding nodes and an even sample of the "
                 "others, with the messages between them.")
    return Film(frames, unit, 0.62 if large else drawn.aspect, (
        "A dot is a message on a link; a cross is one that gets lost, whose place on the way has no meaning. A node "
        "fills up while it computes, and is crossed out while it is away. A dashed link is down." + text),
        f"Film of {len(vertices):,} vertices over {len(chosen):,} rounds, with {len(shown.begin):,} messages on links "
        f"and {len(working.begin):,} computations.")


def _rounds(run: RunData) -> _Span:
    """From the first deciding node's entering of each round to the last one's leaving, rounds in order."""
    left = run.rounds["left_ns"].astype("Float64").fillna(float(run.end_ns)).astype("int64")
    found = pd.DataFrame({"round": run.rounds["round"], "begin": run.rounds["entered_ns"], "end": left}).groupby(
        "round", sort=True).agg({"begin": "min", "end": "max"})
    return _Span({"number": found.index.to_numpy(np.int64)}, found["begin"].to_numpy(np.int64),
                 found["end"].to_numpy(np.int64))


def _merged(rounds: _Span) -> np.ndarray:
    """(k, 2) stretches of time that the rounds take, in order and apart."""
    found: list[list[int]] = []
    for begin, end in sorted(zip(rounds.begin.tolist(), rounds.end.tolist(), strict=True)):
        if found and begin <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([begin, end])
    return np.array(found)


def _done(run: RunData) -> np.ndarray:
    """(n,) when each copy arrived, its loss became known, or the run ended, ns."""
    m = run.messages
    return np.where(m.fate == IN_FLIGHT, run.end_ns, np.where(m.arrived_ns >= 0, m.arrived_ns, m.lost_ns))


def _kinds(run: RunData) -> np.ndarray:
    """(n,) of each copy: its kind, if nothing but its last hop counts."""
    m = run.messages
    good = (m.fate == DELIVERED) & ~m.unread | (m.fate == IN_FLIGHT)
    return np.array(KINDS, dtype=object)[np.select([m.fate == LOST, good], [2, 0], 1)]


def _hops(run: RunData) -> _Span:
    """Every copy on every link that it was offered to."""
    m, sent, hop = run.messages, run.events[R.SEND], run.events[R.HOP]
    source, seq, u, v, begin = (np.concatenate([sent[f], hop[f]])
                                for f in ("source", "seq", "vertex", "next", "time_ns"))
    copy = KeyIndex(copy_keys(m.source, m.seq)).positions(copy_keys(source, seq))
    order = np.lexsort((begin, copy))
    order = order[u[order] >= 0]                    # not what a node sends to itself, or while it is away
    copy, u, v, begin = copy[order], u[order], v[order], begin[order]
    last = np.append(copy[1:] != copy[:-1], True)[:len(copy)]
    end = np.where(last, _done(run)[copy], np.append(begin[1:], 0)[:len(copy)])
    kind = _kinds(run)[copy]
    kind[~last & (kind == KINDS[2])] = KINDS[0]     # it was lost further on
    by_time = np.argsort(begin, kind="stable")
    return _Span({"u": u, "v": v, "kind": kind, "round": m.round[copy]}, begin, end).only(by_time)


def _ways(run: RunData, place: np.ndarray) -> _Span:
    """Every copy between vertices of the film, from its sender to its receiver."""
    m, home = run.messages, place[np.array(run.header["vertices"], np.int64)]
    u, v = home[m.source], home[m.target]
    found = _Span({"u": u, "v": v, "kind": _kinds(run), "round": m.round}, m.sent_ns, _done(run))
    return found.only((u >= 0) & (v >= 0) & (u != v))


def _sampled(run: RunData) -> tuple[pd.DataFrame, np.ndarray]:
    """Vertices of deciding nodes and of an even sample of the others, around; vertex -> its place among them, or -1."""
    deciders = list(run.header.get("deciders", ()))[:_DECIDERS]
    others = [node for node in range(len(run.names)) if node not in set(deciders)]
    nodes = sorted([*deciders, *(others[i] for i in spaced(len(others), _SAMPLE - len(deciders)))])
    roles = np.array([run.roles[node] for node in nodes], dtype=object)
    layout = around(roles)
    place = np.full(len(run.vertices), -1)
    place[[run.header["vertices"][node] for node in nodes]] = np.arange(len(nodes))
    return pd.DataFrame({"name": [run.names[node] for node in nodes], "role": roles, "x": layout[:, 0],
                         "y": layout[:, 1]}), place


def _scaled(vertices: pd.DataFrame) -> pd.DataFrame:
    """With places in 0..1, downwards."""
    def scaled(values: pd.Series) -> np.ndarray:
        low, width = float(values.min()), float(np.ptp(values))
        return np.round((values.to_numpy(float) - low) / width if width > 0 else np.full(len(values), 0.5), 4)

    return vertices[["name", "role"]].assign(x=scaled(vertices["x"]), y=1 - scaled(vertices["y"]))


def _pairs(drawn: Map, hops: _Span, large: bool) -> list[tuple[int, int]]:
    """The links as pairs of vertices, each once: those of the map, or of a sample those that messages go over."""
    number = {name: i for i, name in enumerate(drawn.vertices["name"])}
    ends = (hops.columns[end].tolist() for end in "uv") if large else (
        [number[name] for name in drawn.edges[end]] for end in ("from", "to"))
    return sorted({(min(pair), max(pair)) for pair in zip(*ends, strict=True)})


def _away(run: RunData, waits: Waits, spot: np.ndarray) -> _Span:
    """Nodes that are down, have left, or dropped out of a round."""
    gone, down = absences(run), waits.state == STATES.index("down")
    node = np.concatenate([gone.node, waits.node[down]])
    found = _Span({"vertex": spot[node]}, np.concatenate([gone.start_ns, waits.start_ns[down]]),
                  np.concatenate([gone.end_ns, waits.end_ns[down]]))
    return found.only(found.columns["vertex"] >= 0)


def _down(run: RunData) -> _Span:
    """Directed links that faults have taken down."""
    table = run.events[R.LINK]
    since: dict[tuple[int, int], int] = {}
    found: list[tuple[int, int, int, int]] = []
    for time, u, v, changes in zip(table["time_ns"].tolist(), table["vertex"].tolist(), table["next"].tolist(),
                                   table["changes"], strict=True):
        if changes.get("down") is True:
            since.setdefault((u, v), time)
        elif changes.get("down") is False and (u, v) in since:
            found.append((u, v, since.pop((u, v)), time))
    found += [(u, v, begin, max(run.end_ns, begin)) for (u, v), begin in since.items()]
    columns = np.array(found, np.int64).reshape(-1, 4)
    return _Span({"u": columns[:, 0], "v": columns[:, 1]}, columns[:, 2], columns[:, 3])
