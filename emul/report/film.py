"""The film of a run: the map of its network over virtual time, with messages on their way, computations and absences.

Links with contacts are there only within them, and vertices of which the run left places over time move.

A film holds as many rounds as its budget of rows allows, evenly chosen, and leaves out the time between them. Of a
network too large for a map it shows deciding nodes and a sample of the others, each message on one straight way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from emul.base import rows as R
from emul.record.columns import KeyIndex, copy_keys
from emul.record.tables import DELIVERED, IN_FLIGHT, LOST
from emul.report.data import STATES, RunData, Waits, absences, busy_until
from emul.report.spacetime import evenly, spaced, unit_of
from emul.report.topology import DRAWN, Map, Whereabouts, around, contacts_of, places_of

ROWS = 4000                     # journeys over links and computations of a film, at most
KINDS = ("message", "of no use", "lost")
_SAMPLE, _DECIDERS = 100, 8     # of the nodes of a large network
_PLACES = 5                     # rows of places, for one of journeys


@dataclass(frozen=True)
class Film:
    """The frames of a film. Places of vertices are in 0..1, downwards; times in `unit` since the run began.

    vertices: name, role, x, y. links: u, v, of those without contacts. met: u, v, from, to: the contacts of the others.
    moves: vertex, t, x, y. hops: u, v, kind, from, to. work, away: vertex, from, to. down: u, v, from, to. rounds:
    number, from, to. windows: from, to: the stretches of time that are shown. u, v: places in `vertices`.
    globe: x is a longitude, and the two edges of the map are one.
    """

    frames: dict[str, pd.DataFrame]
    unit: str
    aspect: float               # height over width
    text: str
    words: str
    globe: bool = False


@dataclass(frozen=True)
class Span:
    """Things that last: columns of each, and when they begin and end, ns. (n,) each."""

    columns: dict[str, np.ndarray]
    begin: np.ndarray
    end: np.ndarray

    def within(self, windows: np.ndarray, most: int) -> Span:
        """Those that are going on in one of the windows (k, 2), evenly thinned to `most`."""
        at = np.searchsorted(windows[:, 1], self.begin, side="right")
        inside = at < len(windows)
        inside[inside] = windows[at[inside], 0] < self.end[inside]
        return self.only(np.flatnonzero(inside)[spaced(int(inside.sum()), most)])

    def only(self, kept: np.ndarray) -> Span:
        """Those at these places, or where it is true."""
        return Span({name: values[kept] for name, values in self.columns.items()}, self.begin[kept], self.end[kept])

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
    hops = _ways(run, place) if large else journeys(run)
    c, spot = run.computations, place[np.array(run.header["vertices"], np.int64)]
    work = Span({"vertex": spot[c.node]}, c.start_ns, busy_until(run))
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
    met = _met(run, place)
    lasting = set(zip(met.columns["u"].tolist(), met.columns["v"].tolist(), strict=True))
    lines = pd.DataFrame([pair for pair in _pairs(drawn, hops, large) if pair not in lasting], columns=["u", "v"])
    going_on = met.within(windows, len(met.begin))
    meeting = going_on.within(windows, budget)
    stand, moves, aspect, globe = _stands(vertices, places_of(run), place, windows, factor, budget)
    frames = {
        "vertices": stand, "links": lines, "met": meeting.frame(factor), "moves": moves,
        "hops": shown.frame(factor).drop(columns=["round", "wire"]), "work": working.frame(factor),
        "away": _away(run, waits, spot).within(windows, budget).frame(factor),
        "down": (Span({}, windows[:0, 0], windows[:0, 0]) if large else _down(run)).within(windows, budget).frame(
            factor),
        "rounds": rounds.frame(factor), "windows": Span({}, windows[:, 0], windows[:, 1]).frame(factor)}
    text = "" if everything else (f" {len(chosen):,} of {len(numbers):,} rounds, evenly chosen; the time between them "
                                  "is left out.")
    if lasting:
        text += " A link with contacts is drawn only within them."
    if len(meeting.begin) < len(going_on.begin):
        text += f" {len(meeting.begin):,} of {len(going_on.begin):,} contacts are drawn, evenly chosen."
    if len(moves):
        text += " Vertices move as the positions that the run left say, straight on between two of them."
    if len(shown.begin) < len(going.begin):
        text += " Of the messages of these rounds an even sample is shown."
    if large:
        text += (f" {len(vertices):,} of {len(run.vertices):,} vertices: deciding nodes and an even sample of the "
                 "others, with the messages between them.")
    return Film(frames, unit, aspect or (0.62 if large else drawn.aspect), (
        "A dot is a message on a link; a cross is one that gets lost, whose place on the way has no meaning. A node "
        "fills up while it computes, and is crossed out while it is away. A dashed link is down." + text),
        f"Film of {len(vertices):,} vertices over {len(chosen):,} rounds, with {len(shown.begin):,} messages on links "
        f"and {len(working.begin):,} computations.", globe)


def _rounds(run: RunData) -> Span:
    """From the first deciding node's entering of each round to the last one's leaving, rounds in order."""
    left = run.rounds["left_ns"].astype("Float64").fillna(float(run.end_ns)).astype("int64")
    found = pd.DataFrame({"round": run.rounds["round"], "begin": run.rounds["entered_ns"], "end": left}).groupby(
        "round", sort=True).agg({"begin": "min", "end": "max"})
    return Span({"number": found.index.to_numpy(np.int64)}, found["begin"].to_numpy(np.int64),
                 found["end"].to_numpy(np.int64))


def _merged(rounds: Span) -> np.ndarray:
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


def journeys(run: RunData) -> Span:
    """Every copy on every link that it was offered to: u, v, kind, round, wire (bytes), in the order of time."""
    m, sent, hop = run.messages, run.events[R.SEND], run.events[R.HOP]
    source, seq, u, v, begin, wire = (np.concatenate([sent[f], hop[f]])
                                      for f in ("source", "seq", "vertex", "next", "time_ns", "wire"))
    copy = KeyIndex(copy_keys(m.source, m.seq)).positions(copy_keys(source, seq))
    order = np.lexsort((begin, copy))
    order = order[u[order] >= 0]                    # not what a node sends to itself, or while it is away
    copy, u, v, begin, wire = copy[order], u[order], v[order], begin[order], wire[order]
    last = np.append(copy[1:] != copy[:-1], True)[:len(copy)]
    end = np.where(last, _done(run)[copy], np.append(begin[1:], 0)[:len(copy)])
    kind = _kinds(run)[copy]
    kind[~last & (kind == KINDS[2])] = KINDS[0]     # it was lost further on
    by_time = np.argsort(begin, kind="stable")
    return Span({"u": u, "v": v, "kind": kind, "round": m.round[copy], "wire": wire}, begin, end).only(by_time)


def _ways(run: RunData, place: np.ndarray) -> Span:
    """Every copy between vertices of the film, from its sender to its receiver."""
    m, home = run.messages, place[np.array(run.header["vertices"], np.int64)]
    u, v = home[m.source], home[m.target]
    found = Span({"u": u, "v": v, "kind": _kinds(run), "round": m.round, "wire": m.wire_bytes}, m.sent_ns, _done(run))
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


def _met(run: RunData, place: np.ndarray) -> Span:
    """The contacts of links between vertices of the film: u < v, both directions as one."""
    found = contacts_of(run)
    if found is None:
        none = np.empty(0, np.int64)
        return Span({"u": none, "v": none}, none, none)
    u, v = place[found["u"].to_numpy()], place[found["v"].to_numpy()]
    both = pd.DataFrame({"u": np.minimum(u, v), "v": np.maximum(u, v), "from": found["from_ns"], "to": found["to_ns"]})
    both = both[both["u"] >= 0].drop_duplicates()
    return Span({"u": both["u"].to_numpy(), "v": both["v"].to_numpy()}, both["from"].to_numpy(), both["to"].to_numpy())


def _stands(vertices: pd.DataFrame, known: Whereabouts | None, place: np.ndarray, windows: np.ndarray, factor: float,
            budget: int) -> tuple[pd.DataFrame, pd.DataFrame, float | None, bool]:
    """The vertices where they stand at first, the ways of those that move, the aspect of their map or None, and whether
    it is that of a globe. A vertex of which the run left no place stands at the lower edge."""
    moves = pd.DataFrame({"vertex": [], "t": [], "x": [], "y": []})
    if known is None:
        return _scaled(vertices), moves, None, False
    rows = known.rows.assign(vertex=place[known.rows["vertex"].to_numpy()])
    rows = rows[rows["vertex"] >= 0]
    if not len(rows):
        return _scaled(vertices), moves, None, False
    if known.globe:
        x, y, aspect = (rows["x"] + 180) / 360, (90 - rows["y"]) / 180, 0.5
    else:
        low, width, height = rows["x"].min(), np.ptp(rows["x"]), np.ptp(rows["y"])
        x = (rows["x"] - low) / width if width else rows["x"] * 0 + 0.5
        y = (rows["y"].max() - rows["y"]) / height if height else rows["y"] * 0 + 0.5
        aspect = float(np.clip(height / width, 0.45, 1.0)) if width else 1.0
    rows = pd.DataFrame({"vertex": rows["vertex"], "t": rows["t_ns"], "x": x.round(4), "y": y.round(4)})
    most = max(2, _PLACES * budget // len(vertices))
    kept = pd.concat([_between(part, windows, most) for _, part in rows.groupby("vertex", sort=True)])
    first = kept.drop_duplicates("vertex").set_index("vertex")
    left = [v for v in range(len(vertices)) if v not in first.index]
    stand = vertices[["name", "role"]].assign(x=first["x"].reindex(range(len(vertices))).to_numpy(),
                                              y=first["y"].reindex(range(len(vertices))).to_numpy())
    stand.loc[left, "x"] = np.round((np.arange(len(left)) + 0.5) / max(len(left), 1), 4)
    stand.loc[left, "y"] = 1.0
    moving = kept[kept["vertex"].map(kept["vertex"].value_counts()) > 1]
    return stand, moving.assign(t=np.round(moving["t"] / factor, 6)), aspect, known.globe


def _between(part: pd.DataFrame, windows: np.ndarray, most: int) -> pd.DataFrame:
    """The rows of one vertex from the last before the windows to the first behind them, evenly thinned to `most`."""
    t = part["t"].to_numpy()
    first = max(0, int(np.searchsorted(t, windows[0, 0], side="right")) - 1)
    last = int(np.searchsorted(t, windows[-1, 1], side="left")) + 1
    part = part.iloc[first:max(last, first + 1)]
    return part.iloc[spaced(len(part), most)]


def _scaled(vertices: pd.DataFrame) -> pd.DataFrame:
    """With places in 0..1, downwards."""
    def scaled(values: pd.Series) -> np.ndarray:
        low, width = float(values.min()), float(np.ptp(values))
        return np.round((values.to_numpy(float) - low) / width if width > 0 else np.full(len(values), 0.5), 4)

    return vertices[["name", "role"]].assign(x=scaled(vertices["x"]), y=1 - scaled(vertices["y"]))


def _pairs(drawn: Map, hops: Span, large: bool) -> list[tuple[int, int]]:
    """The links as pairs of vertices, each once: those of the map, or of a sample those that messages go over."""
    number = {name: i for i, name in enumerate(drawn.vertices["name"])}
    ends = (hops.columns[end].tolist() for end in "uv") if large else (
        [number[name] for name in drawn.edges[end]] for end in ("from", "to"))
    return sorted({(min(pair), max(pair)) for pair in zip(*ends, strict=True)})


def _away(run: RunData, waits: Waits, spot: np.ndarray) -> Span:
    """Nodes that are down, have left, or dropped out of a round."""
    gone, down = absences(run), waits.state == STATES.index("down")
    node = np.concatenate([gone.node, waits.node[down]])
    found = Span({"vertex": spot[node]}, np.concatenate([gone.start_ns, waits.start_ns[down]]),
                  np.concatenate([gone.end_ns, waits.end_ns[down]]))
    return found.only(found.columns["vertex"] >= 0)


def _down(run: RunData) -> Span:
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
    return Span({"u": columns[:, 0], "v": columns[:, 1]}, columns[:, 2], columns[:, 3])
