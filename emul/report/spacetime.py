"""The space-time diagram of a run, round by round: who computed, waited, sent, and what was lost.

A page holds as many rounds as its budget of rows allows, evenly chosen; a round shows at most `LANES` nodes and
`MESSAGES` messages, and says how many it left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from emul.base.plain import PlainDict
from emul.record.tables import DELIVERED, IN_FLIGHT, LATE, LOST, REJECTED, TO_ENDED
from emul.report.data import STATES, RunData, Waits, absences, busy_until

LANES = 32
HALF = 0.3                          # of the bar of a computation: its height, where a node has 1
MESSAGES = 1000
COMPUTATIONS = 1000
WAITS = 1000
FATES = ("delivered", "late", "lost", "receiver ended", "never read", "rejected", "in flight")

_DECIDERS, _LATEST = 8, 12          # of the lanes, where there are more nodes than lanes
_LOST_AT = 0.8                      # of its way, where the cross of a lost message stands
_LANE_HEIGHT, _LEAST_HEIGHT = 22, 120


@dataclass(frozen=True)
class RoundDiagram:
    """The data that the diagram of one round is drawn from. `tokens`: what its chart is filled with, see
    `palette.fill`."""

    number: int
    label: str
    text: str
    tokens: PlainDict
    height: int
    computations: pd.DataFrame
    waits: pd.DataFrame
    messages: pd.DataFrame
    nodes: pd.DataFrame


@dataclass(frozen=True)
class SpaceTime:
    """The rounds of a run that a page shows, out of `total`, and the one that it shows first."""

    rounds: list[RoundDiagram]
    total: int
    first: int                      # index into `rounds`
    labels: list[str]               # of computations, for their colours
    lanes: list[str]                # of computations, if a node has several: its bar is divided among them


class _Sorted:
    """Places of the rows of each round in an array of rounds."""

    def __init__(self, rounds: np.ndarray):
        self._order = np.argsort(rounds, kind="stable")
        self._rounds = rounds[self._order]

    def of(self, number: int) -> np.ndarray:
        begin, end = np.searchsorted(self._rounds, [number, number + 1])
        return self._order[begin:end]

    def count(self, number: int) -> int:
        begin, end = np.searchsorted(self._rounds, [number, number + 1])
        return int(end - begin)


def space_time(run: RunData, waits: Waits, budget: int) -> SpaceTime:
    """`budget`: rows (messages, computations, waits) of all rounds together."""
    builder = _DiagramBuilder(run, waits)
    numbers = builder.numbers()
    chosen = evenly(numbers, [builder.rows(number) for number in numbers], budget)
    rounds = [builder.round(number) for number in chosen]
    lengths = [r.tokens["xdomain"][1] * _FACTOR[r.tokens["unit"]] for r in rounds]
    real = [i for i, r in enumerate(rounds) if r.number > 0] or list(range(len(rounds)))
    middle = sorted(real, key=lambda i: lengths[i])[len(real) // 2] if real else 0     # a round like the others
    return SpaceTime(rounds, len(numbers), middle, list(run.computations.labels), _lanes_of(run))


def one_round(run: RunData, waits: Waits, number: int) -> SpaceTime:
    """The diagram of a single round. Raises ValueError: the run has none of this number."""
    builder = _DiagramBuilder(run, waits)
    numbers = builder.numbers()
    if number not in numbers:
        raise ValueError(f"round {number}: the run has the rounds {numbers[0]}..{numbers[-1]}" if numbers else
                         f"round {number}: the run has no round")
    return SpaceTime([builder.round(number)], 1, 0, list(run.computations.labels), _lanes_of(run))


def _lanes_of(run: RunData) -> list[str]:
    return list(run.header.get("lanes", []))


def evenly(numbers: list[int], rows: list[int], budget: int) -> list[int]:
    """The most evenly spaced of `numbers`, first and last included, whose rows fit the budget; one at least.

    >>> evenly([1, 2, 3, 4, 5], [10] * 5, 30)
    [1, 3, 5]
    """
    if sum(rows) <= budget:
        return numbers
    low, high = 1, len(numbers)
    while low < high:                       # the largest count that fits; rows are nearly monotone in it
        count = (low + high + 1) // 2
        if sum(rows[i] for i in spaced(len(numbers), count)) <= budget:
            low = count
        else:
            high = count - 1
    return [numbers[i] for i in spaced(len(numbers), low)]


def spaced(n: int, count: int) -> list[int]:
    """Evenly spaced places of n things, first and last included, at most `count`."""
    return [] if not n else np.unique(np.linspace(0, n - 1, min(count, n)).round().astype(int)).tolist()


_UNITS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))
_FACTOR = dict(_UNITS)


def unit_of(length_ns: float) -> tuple[str, float]:
    """The largest unit of which `length_ns` is at least two, and its ns."""
    return next(((unit, factor) for unit, factor in _UNITS if length_ns >= 2 * factor), ("ns", 1.0))


class _DiagramBuilder:
    def __init__(self, run: RunData, waits: Waits):
        self.run, self.waits = run, waits
        self._messages = _Sorted(run.messages.round)
        self._computations = _Sorted(run.computations.round)
        self._ends = busy_until(run)
        self._away = absences(run)
        self._first_wait = np.searchsorted(waits.node, np.arange(len(run.names) + 1))
        m = run.messages
        self._done = np.where(m.arrived_ns >= 0, m.arrived_ns, m.lost_ns)
        self._fate = np.select(
            [m.unread & (m.fate == DELIVERED), m.fate == DELIVERED, m.fate == LATE, m.fate == LOST, m.fate == TO_ENDED,
             m.fate == REJECTED, m.fate == IN_FLIGHT],
            [FATES.index(f) for f in ("never read", "delivered", "late", "lost", "receiver ended", "rejected",
                                      "in flight")])
        self._windows = self._find_windows()
        self._unscoped = bool((m.round == 0).any())
        self._deciders = list(run.header.get("deciders", range(len(run.names))))

    def _find_windows(self) -> dict[int, tuple[int, int]]:
        """round -> from the first deciding node's entering to the last one's leaving, ns; 0: before and outside."""
        r = self.run.rounds
        found: dict[int, tuple[int, int]] = {}
        if len(r):
            left = r["left_ns"].astype("Float64").fillna(float(self.run.end_ns))
            grouped = pd.DataFrame({"round": r["round"], "start": r["entered_ns"], "end": left.astype("int64")})
            for number, part in grouped.groupby("round").agg({"start": "min", "end": "max"}).iterrows():
                found[int(number)] = (int(part["start"]), int(part["end"]))
        begin = min((start for start, _ in found.values()), default=self.run.end_ns)
        m, c = self.run.messages, self.run.computations
        early = bool((m.sent_ns[m.round == 0] < begin).any() or (c.start_ns[c.round == 0] < begin).any())
        if early and begin > 0:
            found[0] = (0, begin)
        return found

    def numbers(self) -> list[int]:
        return sorted(self._windows)

    def rows(self, number: int) -> int:
        """The most rows that this round will have."""
        return (min(self._messages.count(number), MESSAGES) + min(self._computations.count(number), COMPUTATIONS)
                + LANES * 2)

    def _copies(self, number: int, start: int, end: int) -> np.ndarray:
        """The round's messages, and those outside rounds that were sent while it lasted."""
        mine = self._messages.of(number) if number else np.empty(0, np.int64)
        m = self.run.messages
        if self._unscoped:
            begin, stop = np.searchsorted(m.sent_ns, [start, end + (number > 0)])
            loose = np.arange(begin, stop)
            mine = np.concatenate([mine, loose[m.round[loose] == 0]])
        return mine

    def _computed(self, number: int, start: int, end: int) -> np.ndarray:
        c = self.run.computations
        loose = self._computations.of(0)
        loose = loose[(c.start_ns[loose] < max(end, start + 1)) & (self._ends[loose] >= start)]
        return np.concatenate([self._computations.of(number), loose]) if number else loose

    def round(self, number: int) -> RoundDiagram:
        run, m, c = self.run, self.run.messages, self.run.computations
        start, left = self._windows[number]
        copies, computed = self._copies(number, start, left), self._computed(number, start, left)
        latest = max(int(self._done[copies].max(initial=left)), int(self._ends[computed].max(initial=left)))
        end = max(left, min(latest, start + 2 * (left - start)), start + 1)       # stragglers, within reason
        lanes = self._lanes(copies, computed)
        unit, factor = unit_of(end - start)
        lane = np.full(len(run.names), -1, np.int64)
        lane[lanes] = np.arange(len(lanes))

        drawn = copies[(lane[m.source[copies]] >= 0) & (lane[m.target[copies]] >= 0)
                       & (m.source[copies] != m.target[copies])]
        shown = self._thin(drawn)
        worked = computed[(lane[c.node[computed]] >= 0) & (self._ends[computed] > c.start_ns[computed])]
        worked = worked[np.linspace(0, len(worked) - 1, min(len(worked), COMPUTATIONS)).astype(int)]

        def at(times: np.ndarray) -> np.ndarray:
            return _short((np.clip(times, start, end) - start) / factor)

        idle = self._idle(lanes, start, end)
        gone = np.flatnonzero((lane[self._away.node] >= 0) & (self._away.end_ns > start) & (self._away.start_ns < end))
        length = _short(np.array([(end - start) / factor])).tolist()[0]
        tokens = {"lanes": [run.names[n] for n in lanes], "ticks": list(range(len(lanes))),
                  "ydomain": [len(lanes) - 0.5, -0.5], "xdomain": [0, length], "unit": unit,
                  "xtitle": f"{unit} of virtual time since the round began",
                  "said_from": f"from, {unit}", "said_for": f"for, {unit}", "said_sent": f"sent at, {unit}",
                  "said_under_way": f"under way for, {unit}",
                  "left": _short(np.array([(left - start) / factor])).tolist()[0]}
        return RoundDiagram(
            number, f"Round {number}" if number else "Before round 1",
            self._text(number, start, left, copies, computed, lanes, len(drawn), len(shown)), tokens,
            max(_LEAST_HEIGHT, _LANE_HEIGHT * len(lanes)),
            pd.DataFrame({"lane": lane[c.node[worked]] + self._shift(worked), "x": at(c.start_ns[worked]),
                          "x2": at(self._ends[worked]),
                          "label": np.array(c.labels or [""], dtype=object)[c.label[worked]]}),
            pd.concat([pd.DataFrame({
                "lane": lane[w.node[i]], "x": at(w.start_ns[i]), "x2": at(w.end_ns[i]), "state": state})
                for w, i, state in ((self.waits, idle, np.array(STATES, dtype=object)[self.waits.state[idle]]),
                                    (self._away, gone, "away"))], ignore_index=True),
            self._lines(shown, lane, at, end), self._table(lanes, copies, computed, idle, start, end))

    def _shift(self, computed: np.ndarray) -> np.ndarray:
        """The distance of a computation from the middle of its node, downwards; 0 where nodes have one lane."""
        lanes = len(_lanes_of(self.run))
        if lanes < 2:
            return np.zeros(len(computed), np.int64)
        return _short((self.run.computations.lane[computed] - (lanes - 1) / 2) * 2 * HALF / lanes)

    def _lines(self, shown: np.ndarray, lane: np.ndarray, at: Any, end: int) -> pd.DataFrame:
        m = self.run.messages
        done = np.where(self._done[shown] >= 0, self._done[shown], end)
        x, x2 = at(m.sent_ns[shown]), at(done)
        y, y2 = lane[m.source[shown]].astype(float), lane[m.target[shown]].astype(float)
        stop = np.where(m.fate[shown] == LOST, _LOST_AT, 1.0)
        return pd.DataFrame({
            "x": x, "x2": _short(x + stop * (x2 - x)), "y": y, "y2": _short(y + stop * (y2 - y)),
            "target": lane[m.target[shown]], "fate": np.array(FATES, dtype=object)[self._fate[shown]],
            "type": np.array(m.kinds or [""], dtype=object)[m.kind[shown]], "bytes": m.wire_bytes[shown]})

    def _lanes(self, copies: np.ndarray, computed: np.ndarray) -> list[int]:
        """The nodes that took part; of many: deciding nodes, those that were last, and an even sample."""
        m, c = self.run.messages, self.run.computations
        active = np.unique(np.concatenate([m.source[copies], m.target[copies], c.node[computed]]))
        if not len(active):
            active = np.array(self._deciders[:LANES], np.int64)
        if len(active) <= LANES:
            return sorted(active.tolist())
        last = np.zeros(len(self.run.names), np.int64)
        np.maximum.at(last, c.node[computed], self._ends[computed])
        np.maximum.at(last, m.source[copies], self._done[copies])
        here = set(active.tolist())
        chosen = [n for n in self._deciders if n in here][:_DECIDERS]
        slowest = active[np.lexsort((active, -last[active]))].tolist()
        chosen += [n for n in slowest if n not in set(chosen)][:_LATEST]
        others = [n for n in active.tolist() if n not in set(chosen)]
        chosen += [others[i] for i in spaced(len(others), LANES - len(chosen))]
        return sorted(chosen)

    def _thin(self, copies: np.ndarray) -> np.ndarray:
        """At most MESSAGES of them: what went wrong first, evenly chosen where there is too much."""
        if len(copies) <= MESSAGES:
            return copies
        wrong = self._fate[copies] != FATES.index("delivered")
        bad, good = copies[wrong], copies[~wrong]
        bad = bad[spaced(len(bad), max(MESSAGES // 2, MESSAGES - len(good)))]
        return np.sort(np.concatenate([bad, good[spaced(len(good), MESSAGES - len(bad))]]))

    def _idle(self, lanes: list[int], start: int, end: int) -> np.ndarray:
        """Places of the waits of these nodes that fall into the window."""
        w = self.waits
        found = []
        for node in lanes:
            begin, stop = self._first_wait[node], self._first_wait[node + 1]
            low = begin + np.searchsorted(w.end_ns[begin:stop], start, side="right")
            high = begin + np.searchsorted(w.start_ns[begin:stop], end, side="left")
            found.append(np.arange(low, max(low, high)))
        idle = np.concatenate(found) if found else np.empty(0, np.int64)
        return idle[spaced(len(idle), WAITS)]

    def _table(self, lanes: list[int], copies: np.ndarray, computed: np.ndarray, idle: np.ndarray, start: int,
               end: int) -> pd.DataFrame:
        """Per node drawn: seconds in the window, and its messages, those that are not drawn included."""
        m, c, w, n = self.run.messages, self.run.computations, self.waits, len(self.run.names)

        def seconds(node: np.ndarray, begin: np.ndarray, stop: np.ndarray) -> np.ndarray:
            inside = np.clip(stop, start, end) - np.clip(begin, start, end)
            return np.bincount(node, inside, n) / 1e9

        wait = idle[w.state[idle] == STATES.index("waiting")]
        fate, source = self._fate[copies], m.source[copies]
        arrived = copies[(fate == FATES.index("delivered")) | (fate == FATES.index("never read"))]
        return pd.DataFrame({
            "node": self.run.names,
            "computed_s": seconds(c.node[computed], c.start_ns[computed], self._ends[computed]),
            "waited_s": seconds(w.node[wait], w.start_ns[wait], w.end_ns[wait]),
            "sent": np.bincount(source, minlength=n),
            "lost": np.bincount(source[fate == FATES.index("lost")], minlength=n),
            "late": np.bincount(source[fate == FATES.index("late")], minlength=n),
            "rejected": np.bincount(source[fate == FATES.index("rejected")], minlength=n),
            "received": np.bincount(m.target[arrived], minlength=n),
        }).iloc[lanes].reset_index(drop=True).round(6)

    def _text(self, number: int, start: int, left: int, copies: np.ndarray, computed: np.ndarray, lanes: list[int],
              drawn: int, shown: int) -> str:
        run, c = self.run, self.run.computations
        unit, factor = unit_of(left - start)
        head = (f"Round {number} began at {start / 1e9:.3f} s and took {(left - start) / factor:.4g} {unit}."
                if number else f"Before the first round, {(left - start) / factor:.4g} {unit}.")
        why = sorted({w for w in run.rounds.loc[run.rounds["round"] == number, "why"].tolist() if w})
        if why:
            head += f" It failed: {why[0]}" + (f" (and {len(why) - 1} other reasons)." if len(why) > 1 else ".")
        counts = np.bincount(self._fate[copies], minlength=len(FATES)).tolist()
        fates = ", ".join(f"{n:,} {name}" for n, name in zip(counts, FATES, strict=True) if n)
        active = len(np.unique(np.concatenate([run.messages.source[copies], run.messages.target[copies],
                                               c.node[computed]])))
        parts = [head, f"{len(np.unique(c.node[computed])):,} nodes computed; {len(copies):,} messages were sent"
                       + (f": {fates}." if fates else ".")]
        if active > len(lanes):
            parts.append(f"{len(lanes)} of the {active:,} nodes that took part are drawn: deciding nodes, those that "
                         "were last, and a sample.")
        if shown < drawn:
            parts.append(f"{shown:,} of the {drawn:,} messages between them are drawn, those that went wrong first.")
        return " ".join(parts)


def _short(values: np.ndarray) -> np.ndarray:
    """Rounded, so that a page stays small: to 1e-4 of a unit of which a round has two at least."""
    return np.round(values, 4)
