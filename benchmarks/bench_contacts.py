"""Contact plans: CPU seconds and memory to read a million contacts, and microseconds a message over such a plan.

The plan is read in an interpreter of its own. Memory: by how much its peak exceeds what it has before it reads.
"""

from __future__ import annotations

import json
import resource
import time
from array import array
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.common import Figure, Options, main, python, run
from emul.network import FullLink
from emul.network.models.contacts import Contacts, ContactSpec, Gap, read_plan

CONTACTS, MESSAGES = 1_000_000, 100_000
PAIRS = {"one link": 1, "1,000 links": 1_000, "20,000 links": 20_000}
_S, _MS = 10**9, 10**6


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
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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


if __name__ == "__main__":
    main(contacts, text=__doc__)
