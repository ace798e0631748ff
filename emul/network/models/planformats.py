"""Contact plans of ION, as rows: the commands `a contact` and `a range` of an `ionrc` file.

`a contact +START +STOP FROM TO RATE`, seconds and bytes a second, in one direction; `a range +START +STOP FROM TO
DELAY`, in seconds of light, in both directions unless the other one has ranges of its own. A contact has the latency
of the ranges that cover it, and is cut where one ends. A contact or range of a node with itself is passed over, and so
are other commands of a node's file, those of bpadmin, ltpadmin and others among them.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from emul.base.units import LARGEST

Wrong: TypeAlias = Callable[[int | None, str, str, str], None]      # line, place, found, expected


class PlanRow(NamedTuple):
    """A contact: times and latency in ns, the rate in bit/s; `line`: in its file."""

    line: int
    source: str
    destination: str
    begin_ns: int
    end_ns: int
    rate_bps: int
    latency_ns: int


_CONTACT = "expected a contact +start +end source destination rate, with the rate in bytes a second"
_RANGE = "expected a range +start +end source destination delay, with the delay in seconds"


class _IonLine(NamedTuple):
    line: int
    source: str
    destination: str
    begin_ns: int
    end_ns: int
    value: Fraction         # bytes/s, or s


def ion_rows(lines: Iterable[tuple[int, str]], wrong: Wrong) -> list[PlanRow]:
    """The contacts of an `ionrc` file, in the order of time; `wrong` is told every mistake."""
    contacts: list[_IonLine] = []
    ranges: dict[tuple[str, str], list[_IonLine]] = {}
    for line, text in lines:
        words = text.split()
        if not words or words[0].startswith("#"):
            continue
        what = words[1] if len(words) > 1 else ""
        if words[0] == "a" and what in ("contact", "range"):
            found = _ion_line(line, words, wrong)
            if found is None or found.source == found.destination:
                continue
            if what == "contact":
                contacts.append(found)
            else:
                ranges.setdefault((found.source, found.destination), []).append(found)
        elif words[0] in ("a", "c", "d") and difflib.get_close_matches(what.lower(), ("contact", "range"), 1, 0.8):
            # a slip, or one that is changed or deleted: passed over, the plan would be another
            wrong(line, "", " ".join(words)[:40], "expected a contact or a range to be added: a contact, a range")
    for apart in ranges.values():
        apart.sort(key=lambda one: one.begin_ns)
        for before, after in pairwise(apart):
            if after.begin_ns < before.end_ns:
                wrong(after.line, "range", f"+{after.begin_ns / 1e9:.12g}", (
                    f"expected ranges of {after.source} and {after.destination} without an overlap: that of line "
                    f"{before.line} ends at +{before.end_ns / 1e9:.12g}"))
    rows = [row for one in contacts for row in _ranged(one, ranges, wrong)]
    return sorted(rows, key=lambda row: row.begin_ns)


def _ion_line(line: int, words: list[str], wrong: Wrong) -> _IonLine | None:
    """One contact or range; None and a problem where it is none."""
    contact = words[1] == "contact"
    if len(words) != 7 and not (contact and len(words) == 8):       # the last one: how sure the contact is
        wrong(line, words[1], f"{len(words)} words", _CONTACT if contact else _RANGE)
        return None
    times = []
    for name, text in (("start", words[2]), ("end", words[3])):
        number = _number(text[1:]) if text.startswith("+") else None
        if number is None or number * 10**9 > LARGEST:
            wrong(line, name, f'"{text[:40]}"', "expected a time after the start of the run, +seconds")
            return None
        times.append(round(number * 10**9))
    if times[1] <= times[0]:
        wrong(line, "end", words[3], f"expected more than the start, {words[2]}")
        return None
    value = _number(words[6])
    if value is None or (contact and value * 8 < 1) or value * (8 if contact else 10**9) > LARGEST:
        wrong(line, "rate" if contact else "delay", f'"{words[6][:40]}"', _CONTACT if contact else _RANGE)
        return None
    return _IonLine(line, words[4], words[5], times[0], times[1], value)


def _number(text: str) -> Fraction | None:
    """The number of 0 or more in a text of digits, with a point or without."""
    return Fraction(text) if re.fullmatch(r"[0-9]{1,40}(\.[0-9]{1,40})?", text) else None


def _ranged(one: _IonLine, ranges: Mapping[tuple[str, str], list[_IonLine]], wrong: Wrong) -> Iterator[PlanRow]:
    """The contact with the latencies of its ranges, cut where one of them ends."""
    known = ranges.get((one.source, one.destination)) or ranges.get((one.destination, one.source), [])
    at = one.begin_ns
    i = max(0, bisect_right(known, at, key=lambda each: each.begin_ns) - 1)
    while at < one.end_ns:
        if i < len(known) and known[i].end_ns <= at:
            i += 1
            continue
        if i == len(known) or known[i].begin_ns > at:
            wrong(one.line, "contact", f"{one.source} -> {one.destination}",
                  f"expected a range that covers it at +{at / 1e9:.12g}: that is its latency")
            return
        end = min(one.end_ns, known[i].end_ns)
        yield PlanRow(one.line, one.source, one.destination, at, end, round(8 * one.value),
                      round(known[i].value * 10**9))
        at = end
