"""The progress of a run, kept up row by row; memory for what is under way, not for what is over.

`emul.report.data` says the same of a whole record, from its tables and by arrays of all copies: what a run that goes
has not yet, and what would be read again at every look. So states and kinds of bytes, and what is made of the rounds,
come from there, and the counts are kept here; `test_at_the_end_the_state_says_what_summary_and_report_say` holds that
both come to the same.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from emul.base import rows
from emul.base.plain import PlainDict, PlainMapping
from emul.base.rows import Row
from emul.record.rundir import SCENARIO, read_section
from emul.record.tables import FATES
from emul.report import data

_SAMPLES = 60                       # of how far it was, for the estimate of its end
_CURVE = 2000                       # points of a curve, at most

WAITING, RUNNING, ENDED, STOPPED, DAMAGED = "waiting", "running", "ended", "stopped", "damaged"     # a run
COMPUTING, IN_ROUND, BETWEEN, DOWN = data.STATES
OVER = "ended"
_FIRST, _AGAIN, _WASTED, _LOST = data.KINDS


@dataclass
class NodeProgress:
    """One node, as its newest row tells."""

    name: str
    role: str
    state: str = BETWEEN
    round: int = 0
    doing: str = ""                 # label of the computation


@dataclass
class RoundProgress:
    """One round of a deciding node. None: not yet."""

    number: int
    node: int
    entered_ns: int
    left_ns: int | None = None
    why: str = ""
    bytes: int = 0                  # of all until it was left
    values: PlainDict = field(default_factory=dict)             # that its node has reported


class RunProgress:
    """Of the run in `directory`. `status`, `why`: how it stands, for whoever follows it to say."""

    def __init__(self, directory: Path):
        self.path = directory
        self.status, self.why = "", ""
        self.header: PlainDict = {}
        self.nodes: list[NodeProgress] = []
        self.rounds: dict[tuple[int, int], RoundProgress] = {}
        self.observed: dict[tuple[int, int], dict[str, float]] = {}     # (round, node)
        self.now_ns = self.rows = self.bytes = 0
        self.messages: Counter[str] = Counter()                         # sent, and by fate
        self.traffic: Counter[tuple[str, str, str]] = Counter()         # (type, direction, kind) -> bytes
        self.lost: Counter[int] = Counter()                             # by round of the sender
        self.refused: Counter[tuple[str, str, str]] = Counter()         # (sender, type, reason) -> messages
        self._flying: dict[tuple[int, int], list[Any]] = {}     # copy -> [type, direction, bytes so far, round]
        self._seen = 0
        self._deciders: frozenset[int] = frozenset()
        self._samples: deque[tuple[float, float]] = deque(maxlen=_SAMPLES)
        self.stop_rounds, self._stop_ns = _stop_of(directory)
        self._began = _mtime(directory / SCENARIO)

    def begin(self, header: PlainMapping) -> None:
        """The journal's header is known."""
        self.header = dict(header)
        self.nodes = [NodeProgress(name, role) for name, role in zip(header["names"], header["roles"], strict=True)]
        self._deciders = frozenset(header.get("deciders", range(len(self.nodes))))

    def take(self, found: Sequence[Row]) -> None:
        """The next rows of the journal."""
        self.rows += len(found)
        for row in found:
            handler = _HANDLERS.get(row[0])
            if handler is not None:
                handler(self, row)
        if found:
            self.now_ns = max(self.now_ns, found[-1][1])

    def observe(self, observed: Sequence[tuple[int, int, Mapping[str, float]]]) -> None:
        """All that was observed so far."""
        for node, number, values in observed[self._seen:]:
            self.observed[number, node] = dict(values)
        self._seen = len(observed)

    # --- rows ---------------------------------------------------------------------------------------------------

    def _enter(self, row: Row) -> None:
        _, time_ns, node, number, *_ = row
        self.nodes[node].state = IN_ROUND if number else OVER
        self.nodes[node].round = number or self.nodes[node].round
        if number and node in self._deciders:
            self.rounds[number, node] = RoundProgress(number, node, time_ns)

    def _leave(self, row: Row) -> None:
        _, time_ns, node, number, why, *_ = row
        self.nodes[node].state = BETWEEN
        found = self.rounds.get((number, node))
        if found is not None:
            found.left_ns, found.why, found.bytes = time_ns, why, self.bytes

    def _report(self, row: Row) -> None:
        found = self.rounds.get((row[3], row[2]))
        if found is not None:
            found.values.update(row[4])

    def _compute(self, row: Row) -> None:
        self.nodes[row[2]].state, self.nodes[row[2]].doing = COMPUTING, row[3]

    def _waits(self, row: Row) -> None:
        node = self.nodes[row[2]]
        node.state, node.doing = IN_ROUND, ""

    def _down(self, row: Row) -> None:
        self.nodes[row[2]].state = DOWN

    def _finish(self, row: Row) -> None:
        self.nodes[row[2]].state = OVER

    def _send(self, row: Row) -> None:
        _, _, source, seq, target, kind, _, wire, number, *_ = row
        direction = f"{self.nodes[source].role} → {self.nodes[target].role}"
        self._flying[source, seq] = [kind, direction, wire, number]
        self.messages["sent"] += 1
        self._count(kind, direction, _FIRST, wire)

    def _hop(self, row: Row) -> None:
        found = self._flying.get((row[2], row[3]))
        if found is not None:
            found[2] += row[4]
            self._count(found[0], found[1], _FIRST, row[4])

    def _resent(self, row: Row) -> None:
        found = self._flying.get((row[2], row[3]))
        if found is not None:
            self._count(found[0], found[1], _AGAIN, row[4])

    def _count(self, kind: str, direction: str, what: str, size: int) -> None:
        self.traffic[kind, direction, what] += size
        self.bytes += size

    def _turned_out(self, key: tuple[int, int], what: str) -> list[Any] | None:
        """A copy is not under way any more; its bytes are of another kind if they were spent in vain."""
        found = self._flying.pop(key, None)
        if found is not None and what != _FIRST:
            kind, direction, size, _ = found
            self.traffic[kind, direction, _FIRST] -= size
            self.traffic[kind, direction, what] += size
        return found

    def _deliver(self, row: Row) -> None:
        fate = ("delivered", "late", "to_ended")[row[4]]
        self.messages[fate] += 1
        self._turned_out((row[2], row[3]), _FIRST if fate == "delivered" else _WASTED)

    def _lose(self, row: Row) -> None:
        self.messages[FATES[2]] += 1
        found = self._turned_out((row[2], row[3]), _LOST)
        if found is not None:
            self.lost[found[3]] += 1

    def _late(self, row: Row) -> None:
        self.messages["delivered"] -= 1
        self.messages["late"] += 1

    def _reject(self, row: Row) -> None:
        found = self._turned_out((row[2], row[3]), _WASTED)
        self.messages["rejected"] += 1
        if found is None:                           # it had been delivered, and the protocol refuses it
            self.messages["delivered"] -= 1
        self.refused[self.nodes[row[2]].name, found[0] if found else "", row[4]] += 1

    # --- what it amounts to ----------------------------------------------------------------------------------------

    @property
    def entered(self) -> int:
        """The newest round of a deciding node."""
        return max((number for number, _ in self.rounds), default=0)

    def curve(self) -> pd.DataFrame:
        """As `emul.report.data.curve`, with series and seed, of the rounds that were observed and are over."""
        over = [(number, self.rounds[number, node], values) for (number, node), values in self.observed.items()
                if (number, node) in self.rounds and self.rounds[number, node].left_ns is not None]
        rounds = pd.DataFrame([(number, one.left_ns, one.bytes, values.get("accuracy"), values.get("loss"))
                               for number, one, values in over],
                              columns=["round", "left_ns", "bytes", "accuracy", "loss"], dtype=float)
        frame, _ = data.over_nodes(rounds, self.now_ns)
        frame.insert(2, "mb", rounds.groupby("round")["bytes"].max().reindex(frame["round"]).to_numpy() / 1e6)
        frame = frame[::-(-len(frame) // _CURVE) or 1].replace([math.inf, -math.inf], math.nan)
        return frame.assign(series=self.label, seed=self.header.get("seed"))

    def traffic_frame(self) -> pd.DataFrame:
        """As `emul.report.data.traffic`, without links."""
        return pd.DataFrame([(*key, size) for key, size in self.traffic.items() if size],
                            columns=["type", "direction", "kind", "bytes"])

    @property
    def label(self) -> str:
        """The label of the run's scheme."""
        return str(self.header.get("label") or self.header.get("scheme") or self.path.name)

    def newest(self, name: str) -> float | None:
        """The mean over the nodes of the newest round in which there is such a value."""
        number = max((n for (n, _), values in self.observed.items() if name in values), default=None)
        values = [v[name] for (n, _), v in self.observed.items() if n == number and name in v]
        return sum(values) / len(values) if values else None

    # --- how far it is ----------------------------------------------------------------------------------------------

    def share(self) -> float | None:
        """The share of the way to the first of its stops, 0 to 1; None: nobody knows."""
        rounds, virtual_ns = self.stop_rounds, self._stop_ns
        over = sum(1 for one in self.rounds.values() if one.left_ns is not None) / max(1, len(self._deciders))
        shares = [over / rounds] if rounds else []
        shares += [self.now_ns / virtual_ns] if virtual_ns else []
        return min(1.0, max(shares)) if shares else None

    def sample(self, now_s: float) -> None:
        """Note how far it is at `now_s`, of a clock that goes on."""
        share = self.share()
        if share is not None:
            self._samples.append((now_s, share))

    @property
    def elapsed_s(self) -> float:
        """Real seconds since it began, as the times of its files tell."""
        end = time.time() if self.status == "running" else _mtime(self.path / "journal") or self._began  # noqa: TID251
        return max(0.0, end - self._began)

    def left_s(self) -> float | None:
        """Real seconds until its end if it goes on as in the last half minute; None: nobody knows."""
        if len(self._samples) < 2 or self.status != "running":
            return None
        (begin, before), (end, now) = self._samples[0], self._samples[-1]
        if end - begin >= 5 and now > before:
            return (1 - now) * (end - begin) / (now - before)
        return self.elapsed_s * (1 - now) / now if now else None


_HANDLERS: dict[int, Callable[..., None]] = {
    rows.ENTER: RunProgress._enter, rows.LEAVE: RunProgress._leave, rows.REPORT: RunProgress._report,
    rows.COMPUTE: RunProgress._compute, rows.COMPUTED: RunProgress._waits, rows.RESUME: RunProgress._waits,
    rows.CRASH: RunProgress._down, rows.AWAY: RunProgress._down, rows.RETURN: RunProgress._waits,
    rows.BACK: RunProgress._waits, rows.FINISH: RunProgress._finish, rows.SEND: RunProgress._send,
    rows.HOP: RunProgress._hop, rows.RESENT: RunProgress._resent, rows.DELIVER: RunProgress._deliver,
    rows.LOST: RunProgress._lose, rows.LATE: RunProgress._late, rows.REJECT: RunProgress._reject}


def _mtime(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _stop_of(directory: Path) -> tuple[int | None, int | None]:
    """(rounds, virtual ns) at which the scenario ends; None: no such limit, or it cannot be read."""
    from emul.base.errors import EmulError
    from emul.base.units import duration_ns

    try:
        stop = read_section(directory / SCENARIO, "stop") or {}
        return stop.get("rounds"), duration_ns(stop["virtual_time"]) if "virtual_time" in stop else None
    except (EmulError, ValueError, AttributeError, TypeError):
        return None, None
