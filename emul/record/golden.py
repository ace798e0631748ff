"""A run as text, one line a row in the order of virtual time: for golden tests, and for people.

    0.020000000 server -> client3 Model 14632 B round 1

Nothing of a model stands in it, neither floats nor digests, so that it is the same on every machine with the same
compute times; sizes, times, fates and rounds are integers and do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from emul.base import rows
from emul.base.plain import PlainMapping
from emul.base.rows import Row
from emul.roles.events import WaitEnd

_ARRIVED = {rows.INBOX: "arrives", rows.DELIVERED_LATE: "arrives late", rows.TO_ENDED: "arrives, nobody there"}


def virtual_seconds(time_ns: int) -> str:
    """Nanoseconds as seconds, exactly.

    >>> virtual_seconds(20_000_000)
    '0.020000000'
    """
    return f"{time_ns // 10**9}.{time_ns % 10**9:09d}"


def golden(source: Iterable[Row], header: Mapping[str, object]) -> Iterator[str]:
    """The lines of a run's rows, without line ends. Sorts, so it holds all rows in memory."""
    ordered = sorted(source, key=lambda row: row[1])
    log = _Log(header)
    for row in ordered:
        yield f"{virtual_seconds(row[1])} {log.text(row)}"


def golden_text(source: Iterable[Row], header: Mapping[str, object]) -> str:
    """The whole log, with a line end after each line."""
    return "".join(line + "\n" for line in golden(source, header))


class _Log:
    """Names for what rows number. A copy is known by its SEND row, which in the order of time comes first."""

    def __init__(self, header: PlainMapping):
        self._nodes = header["names"]
        self._vertices = header["network"]
        self._copies: dict[tuple[int, int], str] = {}
        self._texts = {
            rows.START: lambda row: f"{self._node(row)} starts" + (f" in round {row[3]}" if row[3] else ""),
            rows.RESUME: self._resume,
            rows.ENTER: lambda row: (f"{self._node(row)} enters round {row[3]}" if row[3] else
                                     f"{self._node(row)} has no more rounds"),
            rows.COMPUTED: lambda row: f"{self._node(row)} has computed", rows.SEND: self._send,
            rows.HOP: lambda row: f"{self._copy(row)} goes on over {self._link(row[5], row[6])}",
            rows.DELIVER: lambda row: f"{self._copy(row)} {_ARRIVED[row[4]]}",
            rows.LOST: lambda row: (f"{self._copy(row)} is lost" if row[4] < 0 else
                                    f"{self._copy(row)} is lost on {self._link(row[4], row[5])}"),
            rows.COMPUTE: lambda row: f"{self._node(row)} computes {row[3]} for {virtual_seconds(row[4])} s",
            rows.LEAVE: lambda row: f"{self._node(row)} leaves round {row[3]}" + (f": {row[4]}" if row[4] else ""),
            rows.REPORT: lambda row: f"{self._node(row)} reports {' '.join(sorted(row[4])) or 'parameters'}",
            rows.FINISH: lambda row: f"{self._node(row)} ends" + (f": {row[3]}" if row[3] else ""),
            rows.CRASH: lambda row: f"{self._node(row)} crashes",
            rows.RETURN: lambda row: f"{self._node(row)} returns",
            rows.LINK: self._link_changes, rows.ABSTAIN: self._abstain,
            rows.LATE: lambda row: f"{self._copy(row)} is late, unread",
            rows.UNREAD: lambda row: f"{self._copy(row)} stays unread",
            rows.AWAY: lambda row: f"{self._node(row)} goes away",
            rows.DROP: lambda row: f"{self._node(row)} drops out of round {row[3]}",
            rows.BACK: lambda row: f"{self._node(row)} is back",
            rows.DECLARED: lambda row: f"{row[4]} B of {self._copy(row)} are declared",
            rows.STATED: lambda row: f"{self._node(row)} has stated that cost",
            rows.REJECT: lambda row: f"{self._copy(row)} is rejected: {row[4]}",
            rows.ACTIVITY: lambda row: f"{self._node(row)} begins activity {row[3]}: {row[4]}",
            rows.DONE: lambda row: f"{self._node(row)} ends activity {row[3]}" + (f": {row[4]}" if row[4] else ""),
            rows.BESIDE: lambda row: f"that was activity {row[3]} of {self._node(row)}, on lane {row[4]}",
            rows.RESENT: lambda row: f"{row[4]} B of {self._copy(row)} were sent again on {self._link(row[5], row[6])}",
        }

    def text(self, row: Row) -> str:
        return self._texts[row[0]](row)

    def _node(self, row: Row) -> str:
        return self._nodes[row[2]]

    def _link(self, vertex: int, following: int) -> str:
        return f"{self._vertices[vertex]}->{self._vertices[following]}"

    def _copy(self, row: Row) -> str:
        return self._copies.get((row[2], row[3]), f"{self._nodes[row[2]]} #{row[3]}")

    def _resume(self, row: Row) -> str:
        outcome = WaitEnd(row[3]).name.lower().replace("_", " ")
        return f"{self._node(row)} resumes: {outcome}" + (f", {row[4]} messages" if row[4] else "")

    def _send(self, row: Row) -> str:
        _, _, source, seq, target, kind, size, _, round_, vertex, following = row
        name = f"{self._nodes[source]} -> {self._nodes[target]} {kind}"
        self._copies[source, seq] = name + (f" of round {round_}" if round_ else "")
        direct = vertex < 0 or self._vertices[following] == self._nodes[target]
        return (f"{name} {size} B" + (f" round {round_}" if round_ else "")
                + ("" if direct else f" by {self._vertices[following]}"))

    def _link_changes(self, row: Row) -> str:
        changes = " ".join(f"{key}={value}" for key, value in sorted(row[4].items()) if value is not None)
        return f"link {self._link(row[2], row[3])} changes: {changes}"

    def _abstain(self, row: Row) -> str:
        targets = ", ".join(self._nodes[node] for node in row[4])
        return f"{self._node(row)} sends no {', '.join(row[5])} to {targets} in round {row[3]}"
