"""Contact plans: CPU seconds and memory to read a million contacts, microseconds a message over such a plan, and
milliseconds a route over the contacts of 1,584 satellites and ten stations.

The plan is read in an interpreter of its own. Memory: by how much its peak exceeds what it has before it reads.
"""

from __future__ import annotations

import json
import random
import time
from array import array
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.common import Figure, Options, main, python, run
from emul.network import FullLink
from emul.network.graph.earliest import Crossing, EarliestRoutes
from emul.network.models.contacts import Contacts, ContactSpec, Gap, read_plan
from emul.network.models.profiles import NEVER

CONTACTS, MESSAGES = 1_000_000, 100_000
PAIRS = {"one link": 1, "1,000 links": 1_000, "20,000 links": 20_000}
_S, _MS = 10**9, 10**6
_STEP, _SIZE = 30 * _S, 100_000
_ROUNDS, _SENDERS = 10, 60


def plan(pairs: int) -> Iterable[str]:
    """The lines of a plan in which satellites meet stations for 227.25 s in every 600 s."""
    yield "start_s,end_s,source,destination,rate_mbps,latency_ms\n"
    for i in range(CONTACTS):
        begin, pair = 600 * (i // pairs) + i % pairs / 100, i % pairs
        yield f"{begin:.3f},{begin + 227.25:.3f},sat{pair},gs{pair % 10},{10 + pair % 7},{3.7 + i % 2000 / 1000:.3f}\n"


def probe(file: str) -> None:
    """Read a plan; print CPU seconds and bytes."""
    before, begin = _peak_bytes(), time.process_time()
    found = read_plan(ContactSpec(Path(file)))
    took = time.process_time() - begin
    if sum(map(len, found.values())) != CONTACTS:
        raise RuntimeError("contacts are missing")
    print(json.dumps([took, _peak_bytes() - before]))


def _peak_bytes() -> int:
    """ru_maxrss would begin with what the parent held when it forked this process."""
    peak, = (line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line)
    return 1024 * int(peak)


def through(gap: Gap) -> float:
    """Microseconds a message on a link of a million contacts of 1 s each 2 s, of which a tenth is cut by a gap."""
    begins = array("q", (2 * _S * i for i in range(CONTACTS)))
    contacts = Contacts(begins, array("q", (begin + _S for begin in begins)), array("q", [8 * 10**6]) * CONTACTS,
                        array("q", [5 * _MS]) * CONTACTS, gap=gap)
    link = FullLink(0, 1, contacts, profile=contacts)
    contacts.finish(0, 1)                       # makes what is kept of a plan, once
    contacts.may_hold(1, 0)
    begin = time.process_time()
    for i in range(MESSAGES):
        link.offer(2 * _S * i + 9 * _S // 10 * (i % 10 == 0), i, 150_000, 1)
        while (due := link.next_change()) is not None:
            link.advance(due)
    return (time.process_time() - begin) / MESSAGES * 1e6


def windows(up: np.ndarray, late_ns: np.ndarray) -> Contacts:
    """The contacts of a link that is up at steps of _STEP, 10 Mbit/s each, with the latency at the begin."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], up.astype(np.int8), [0]])))
    begins, ends = edges[::2] * _STEP, edges[1::2] * _STEP
    return Contacts(array("q", begins.tolist()), array("q", ends.tolist()), array("q", [10**7]) * len(begins),
                    array("q", late_ns[edges[::2]].tolist()))


def constellation() -> tuple[dict[tuple[int, int], Contacts], int, int]:
    """(contacts, satellites, stations): a Walker shell of 72 planes of 22, grid links that never end, and passes above
    25 degrees over ten stations for a day. Circles over a sphere that turns."""
    planes, each, stations, radius = 72, 22, 10, 6928.137
    plane, place = np.divmod(np.arange(planes * each), each)
    node = 2 * np.pi * plane / planes
    start = 2 * np.pi * (place / each + 17 * plane / (planes * each))
    tilt, times = np.radians(53), np.arange(0, 86_400, _STEP // _S)
    lat, lon = np.radians(np.linspace(-50, 50, stations)), np.radians(np.arange(stations) * 137.5)
    up = np.zeros((stations, planes * each, len(times)), bool)
    late = np.zeros(up.shape, np.int32)
    for i, t in enumerate(times.tolist()):
        u = start + 2 * np.pi * t / 5739
        sat = radius * np.stack([np.cos(node) * np.cos(u) - np.sin(node) * np.sin(u) * np.cos(tilt),
                                 np.sin(node) * np.cos(u) + np.cos(node) * np.sin(u) * np.cos(tilt),
                                 np.sin(u) * np.sin(tilt)], axis=1)
        turn = lon + 2 * np.pi * t / 86_164
        up_axis = np.stack([np.cos(lat) * np.cos(turn), np.cos(lat) * np.sin(turn), np.sin(lat)], axis=1)
        height = up_axis @ sat.T - 6378.137
        far = np.sqrt(radius**2 + 6378.137**2 - 2 * 6378.137 * (height + 6378.137))
        up[:, :, i], late[:, :, i] = height > far * np.sin(np.radians(25)), far / 299_792.458 * 1e9
    found: dict[tuple[int, int], Contacts] = {}
    for s in range(planes * each):
        for other in ((s // each + 1) % planes * each + s % each, s // each * each + (s + 1) % each):
            for ends in ((s, other), (other, s)):
                found[ends] = Contacts(array("q", [0]), array("q", [NEVER]), array("q", [10**8]),
                                       array("q", [3 * _MS + s % 7 * 10**5]))
    for g in range(stations):
        for s in np.flatnonzero(up[g].any(axis=1)).tolist():
            found[planes * each + g, s] = found[s, planes * each + g] = windows(up[g, s], late[g, s])
    return found, planes * each, stations


def routes() -> Iterable[Figure]:
    plan, satellites, stations = constellation()
    out: dict[int, list[int]] = {}
    for u, v in sorted(plan):
        out.setdefault(u, []).append(v)
    found = EarliestRoutes(satellites + stations, lambda u: out.get(u, []),
                           lambda u, v: Crossing(plan[u, v], None, 0, plan[u, v].least_ns))
    draw = random.Random(1)
    asked = [(draw.randrange(satellites), draw.randrange(satellites), satellites + draw.randrange(stations),
              draw.randrange(80_000) * _S) for _ in range(100)]
    found.way(0, satellites, 0, _SIZE)                          # looks at all links, once
    note = f"CPU; {sum(map(len, plan.values())):,} contacts"
    spent: dict[str, list[float]] = {name: [] for name in ("to a station", "to a satellite", "to all")}
    for source, other, station, at in asked:
        for name, target in (("to a station", station), ("to a satellite", other)):
            found.way(satellites - 1 - source, target, at + 1, _SIZE)       # the least times to it, once
            begin = time.process_time()
            led = found.way(source, target, at, _SIZE)
            spent[name].append((time.process_time() - begin) * 1e3)
            begin = time.process_time()
            if found.way(source, target, at, _SIZE) != led:     # the same again: by one search for all
                raise RuntimeError("a search that is led finds another way")
            spent["to all"].append((time.process_time() - begin) * 1e3)
    bounds = {"to a station": 5.0, "to a satellite": 15.0, "to all": 40.0}
    clustered = {name: 0.0 for name in ("to a station", "to a satellite")}
    for source, other, station, at in asked[:_ROUNDS]:          # a round: all send to one server, within 20 s
        for name, target in (("to a station", station), ("to a satellite", other)):
            begin = time.process_time()
            for i in range(_SENDERS):
                found.way((source + 26 * i + 1) % satellites, target, at // 2**35 * 2**35 + i * _S // 3, _SIZE)
            clustered[name] += (time.process_time() - begin) * 1e3 / _SENDERS / _ROUNDS
    for name, took in clustered.items():
        yield Figure(f"route of 1,594 vertices, {name}, of {_SENDERS} within 20 s", took, "ms", at_most=bounds[name],
                     minor=True, note=note)
    for name in spent:
        yield Figure(f"route of 1,594 vertices, {name}", sum(spent[name]) / len(spent[name]), "ms",
                     at_most=bounds[name], minor=name == "to all", note=note)


def contacts(options: Options) -> Iterable[Figure]:
    for name, pairs in PAIRS.items():
        with TemporaryDirectory() as folder:
            file = Path(folder) / "plan.csv"
            with file.open("w") as out:
                out.writelines(plan(pairs))
            child = python(f"from benchmarks.bench_contacts import probe; probe({str(file)!r})")
            took, size = (median(column) for column in zip(*(
                json.loads(run(child).output) for _ in range(options.repeats)), strict=True))
        yield Figure(f"plan of 10^6 contacts, {name}: read", took, "s", at_most=3.0, minor=pairs != 1_000,
                     note="CPU seconds")
        yield Figure(f"plan of 10^6 contacts, {name}: memory", size / 1e6, "MB", at_most=64.0, minor=pairs != 1_000)
    gaps: tuple[Gap, ...] = ("hold", "again", "drop")
    for gap in gaps:
        yield Figure(f"message over 10^6 contacts, gap {gap}", median(through(gap) for _ in range(options.repeats)),
                     "us", at_most=15.0, minor=gap != "hold", note="CPU; a tenth of them meets a gap")
    yield from routes()


if __name__ == "__main__":
    main(contacts, text=__doc__)
