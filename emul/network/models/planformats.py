"""Contact plans of other tools, as rows: ION's `a contact` and `a range`, and the epochs of NetSatBench.

ION (`ionrc`): `a contact +START +STOP FROM TO RATE`, seconds and bytes a second, in one direction; `a range +START
+STOP FROM TO DELAY`, in seconds of light, in both directions unless the other one has ranges of its own. A contact has
the latency of the ranges that cover it, and is cut where one ends. A contact or range of a node with itself is passed
over, and so are other commands of a node's file, those of bpadmin, ltpadmin and others among them.

NetSatBench: one JSON file of epochs, in a list or one after the other, each with a `time` (ISO 8601) and any of
`links-add`, `links-update` and `links-del`, whose links are of both directions. Times count from the first epoch.
"""

from __future__ import annotations

import difflib
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from emul.base.plain import PlainDict, PlainMapping
from emul.base.units import LARGEST
from emul.network.models.profiles import NEVER

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


# --- ION ------------------------------------------------------------------------------------------------------------

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


# --- NetSatBench ------------------------------------------------------------------------------------------------------

_RATES = {"bit": 1, "bps": 8}                   # of tc: bits, and bytes, a second
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_TIMES = {"s": 10**9, "sec": 10**9, "secs": 10**9, "ms": 10**6, "msec": 10**6, "msecs": 10**6, "us": 10**3,
          "usec": 10**3, "usecs": 10**3, "ns": 1, "": 10**3}
_LINKS = ("links-del", "links-add", "links-update")        # in the order of their effects at one time


class _LinkUp(NamedTuple):
    """A link since its last change."""

    line: int
    begin_ns: int
    rate_bps: int
    latency_ns: int


def epoch_rows(text: str, wrong: Wrong) -> list[PlanRow]:
    """The contacts of epochs, both ways, in the order of time; `wrong` is told every mistake."""
    try:
        epochs = list(_epochs(text))
    except (ValueError, RecursionError) as error:           # JSONDecodeError, or a number of thousands of digits
        wrong(getattr(error, "lineno", None), "", getattr(error, "msg", str(error).splitlines()[0][:60]),
              "expected epochs in JSON, a list of them or one after the other")
        return []
    changes = _changes(epochs, _lines(text, "endpoint1"), _lines(text, "time"), wrong)
    up: dict[tuple[str, str], _LinkUp] = {}
    rows: list[PlanRow] = []

    def end(ends: tuple[str, str], at: int) -> None:
        state = up.pop(ends)
        if at > state.begin_ns:
            rows.extend(PlanRow(state.line, a, b, state.begin_ns, at, state.rate_bps, state.latency_ns)
                        for a, b in (ends, ends[::-1]))

    for at, key, line, entry in sorted(changes, key=lambda change: (change[0], _LINKS.index(change[1]))):
        first, second = str(entry["endpoint1"]), str(entry["endpoint2"])
        if first == second:
            continue
        ends = min(first, second), max(first, second)
        before = up.get(ends)
        if (before is None) != (key == "links-add"):
            there = "not " if before else ""
            wrong(line, key, f"{first} - {second}", f"expected a link that is {there}there at that time")
            continue
        state = None if key == "links-del" else _state(at, line, key, entry, before, wrong)
        if before is not None:
            end(ends, at)
        if state is not None:
            up[ends] = state
    for ends in list(up):
        end(ends, NEVER)
    return sorted(rows, key=lambda row: row.begin_ns)


def _lines(text: str, key: str) -> Iterator[int]:
    """The lines of a key in a text of JSON, one for each time that it comes."""
    line, at = 1, 0
    for found in re.finditer(rf'"{key}"\s*:', text):
        line += text.count("\n", at, found.start())
        at = found.start()
        yield line


def _epochs(text: str) -> Iterator[object]:
    """The epochs of a list, or those that stand one after the other. Raises JSONDecodeError."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        found, at = decoder.raw_decode(text, at)
        yield from found if isinstance(found, list) else [found]


def _changes(epochs: list[object], links: Iterator[int], begins: Iterator[int], wrong: Wrong,
             ) -> list[tuple[int, str, int, PlainDict]]:
    """(time in ns from the first epoch on, key, line, link) of all links of all epochs. links, begins: the lines in
    which links and epochs name their first end and their time."""
    found: list[tuple[datetime, str, int, PlainDict]] = []
    times, line = [], 1
    for epoch in epochs:
        said = epoch.get("time") if isinstance(epoch, dict) else None
        line = line if said is None else next(begins, line)
        time = _time(said)
        if time is None:
            wrong(line, "time", repr(said if isinstance(epoch, dict) else epoch)[:40],
                  "expected an epoch with a time, such as 2024-06-01T12:02:00Z")
        else:
            times.append(time)
        for key, entries in epoch.items() if isinstance(epoch, dict) else ():
            for entry in entries if key in _LINKS and isinstance(entries, list) else ():
                named = isinstance(entry, dict) and "endpoint1" in entry
                line = next(links, line) if named else line
                if not named or entry.get("endpoint2") in (None, "") or entry["endpoint1"] in (None, ""):
                    wrong(line, key, repr(entry)[:40], "expected a link with endpoint1 and endpoint2")
                elif time is not None:
                    found.append((time, key, line, entry))
    if not times:
        return []
    first, tick = min(times), timedelta(microseconds=1)
    return [((time - first) // tick * 1000, key, line, entry) for time, key, line, entry in found]


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def _state(at: int, line: int, key: str, entry: PlainMapping, before: _LinkUp | None,
           wrong: Wrong) -> _LinkUp | None:
    """The link from now on; what an update does not say stays. None and a problem where something is wrong."""
    rate, latency = (None, 0) if before is None else (before.rate_bps, before.latency_ns)
    before = None if before is None else before._replace(begin_ns=at)
    if "rate" in entry:
        rate = _rate(entry["rate"])
    if "delay" in entry:
        delay = _delay(entry["delay"])
        if delay is None:
            wrong(line, f"{key}.delay", repr(entry["delay"])[:40], 'expected a time as tc has it, such as "5ms"')
            return before
        latency = delay
    if entry.get("loss"):
        wrong(line, f"{key}.loss", repr(entry["loss"])[:40], "expected 0: a plan has no losses; say outage in links")
    if rate is None:
        wrong(line, f"{key}.rate", repr(entry.get("rate"))[:40], 'expected a rate as tc has it, such as "50mbit"')
        return before
    return _LinkUp(line, at, rate, latency)


def _rate(value: object) -> int | None:
    """A rate of tc in bit/s."""
    found = re.fullmatch(r"([0-9.]+)\s*([kmgt]i?)?(bit|bps)?", str(value).strip().lower())
    number = None if found is None else _number(found[1])
    if found is None or number is None or (found[2] and not found[3]):
        return None
    rate = round(number * _PREFIXES[found[2] or ""] * _RATES[found[3] or "bit"])
    return rate if 1 <= rate <= LARGEST else None


def _delay(value: object) -> int | None:
    """A time of tc in ns."""
    found = re.fullmatch(r"([0-9.]+)\s*([a-z]*)", str(value).strip().lower())
    number = None if found is None else _number(found[1])
    if found is None or number is None or found[2] not in _TIMES:
        return None
    latency = round(number * _TIMES[found[2]])
    return latency if latency <= LARGEST else None
