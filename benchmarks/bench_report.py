"""`emul report` on a run of 1,000,000 messages: seconds to write, size, and how the page opens in Chromium.

The run is synthetic but whole: rows of FedAvg with 100 clients, 5,000 rounds, uplinks that lose a tenth, written by
the journal and derived by `write_results`, invariants checked. In the browser the network is cut.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.common import Figure, Options, main, python, run
from emul.base import rows as R
from emul.base.rows import Row
from emul.base.streams import generator
from emul.record import rundir
from emul.record.journal import Journal
from emul.record.summary import Facts, write_results

SECONDS_TARGET, MB_TARGET = 60, 20
STILL_TARGET = 1.0                          # s: longer is a page that hangs
_LATENCY_NS, _TRAIN_NS, _SIZE, _LOSS = 20_000_000, 50_000_000, 14_632, 0.1
_POLLS = 600

SCENARIO = """emul: 1
name: synthetic
seed: 1
topology: {{generator: star, clients: {clients}}}
links:
- {{match: '*', latency: 20 ms}}
schemes: [fedavg]
stop: {{rounds: {rounds}}}
"""


def synthesise(folder: Path, clients: int = 100, rounds: int = 5_000) -> Path:
    """A run directory of 2 x clients x rounds messages, in `folder`."""
    directory = rundir.create(folder, "synthetic", "fedavg")
    directory.write(rundir.SCENARIO, SCENARIO.format(clients=clients, rounds=rounds))
    names = ["server", *(f"client{i}" for i in range(1, clients + 1))]
    nodes = list(range(clients + 1))
    header = {"scheme": "fedavg", "seed": 1, "names": names, "roles": ["server"] + ["client"] * clients,
              "vertices": nodes, "deciders": [0], "network": names}
    with Journal(directory.journal, header) as journal:
        for node in nodes:
            journal.append((R.START, 0, node, 0))
        end = 0
        for number in range(1, rounds + 1):
            found = list(_round(number, end, clients))
            end = found[-1][1]
            for row in sorted(found, key=lambda row: row[1]):       # stable: those of one time in their order
                journal.append(row)
        journal.append((R.FINISH, end, 0, ""))
        digest = journal.close()
    observed = [(0, number, {"accuracy": 1 - 0.9 / number, "loss": 2 / number}) for number in range(1, rounds + 1)]
    write_results(directory, Facts("fedavg", end, 1.0, digest), observed,
                  latencies={ends: _LATENCY_NS for node in nodes[1:] for ends in ((0, node), (node, 0))})
    return directory.path


def _round(number: int, begin: int, clients: int) -> Iterator[Row]:
    """The rows of one round; the last one is the server's leaving."""
    rng = generator(1, "bench_report", number)
    train = (_TRAIN_NS * (0.5 + rng.random(clients))).astype(np.int64).tolist()
    lost = (rng.random(clients) < _LOSS).tolist()
    wire, arrive = _SIZE + 16, begin + _LATENCY_NS
    yield R.ENTER, begin, 0, number
    for client in range(1, clients + 1):
        yield R.SEND, begin, 0, (number - 1) * clients + client, client, "Model", _SIZE, wire, number, 0, client
    for client in range(1, clients + 1):
        yield R.DELIVER, arrive, 0, (number - 1) * clients + client, R.INBOX
        yield R.ENTER, arrive, client, number
        yield R.RESUME, arrive, client, 0, 1
        yield R.COMPUTE, arrive, client, "train", train[client - 1], 1.0, number
    for client in range(1, clients + 1):
        done = arrive + train[client - 1]
        yield R.COMPUTED, done, client
        yield R.SEND, done, client, number, 0, "Update", _SIZE, wire, number, client, 0
        yield R.LEAVE, done, client, number, ""
        if lost[client - 1]:
            yield R.LOST, done + _LATENCY_NS, client, number, client, 0
        else:
            yield R.DELIVER, done + _LATENCY_NS, client, number, R.INBOX
    end = arrive + max(train) + _LATENCY_NS
    yield R.RESUME, end, 0, int(any(lost)), clients - sum(lost)
    yield R.REPORT, end, 0, number, {"received": clients - sum(lost)}, ""
    yield R.LEAVE, end, 0, number, ""


_WATCH = """window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({type: "longtask", buffered: true});"""
_STATE = """return [[...document.querySelectorAll(".chart")].every((box) => box.dataset.drawn),
                   performance.now() / 1000, window.longest / 1000]"""


def opening(page: Path) -> tuple[float, float] | None:
    """(seconds until every chart is drawn, longest time the page stood still) in Chromium; None where there is none."""
    try:
        from selenium import webdriver
    except ImportError:
        return None
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage",
                     "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(argument)
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(driver)) as browser:
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _WATCH})
        browser.get(page.as_uri())
        for _ in range(_POLLS):
            drawn, seconds, longest = browser.execute_script(_STATE)
            if drawn:
                return seconds, longest
            time.sleep(0.1)
    raise RuntimeError(f"{page}: not every chart was drawn")


def report(options: Options) -> Iterable[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        directory = synthesise(Path(folder))
        write = python("import sys; from pathlib import Path; from emul.report import write; "
                       f"write(Path({str(directory)!r}))")
        seconds = median(run(write).wall_s for _ in range(options.repeats))
        page = directory / "report.html"
        yield Figure("report of 1,000,000 messages", seconds, "s", at_most=SECONDS_TARGET,
                     note=f"journal {(directory / 'journal').stat().st_size / 1e6:.0f} MB")
        yield Figure("size of that report", page.stat().st_size / 1e6, "MB", at_most=MB_TARGET)
        found = [opening(page) for _ in range(options.repeats)]
        opened = [one for one in found if one is not None]
        if opened:
            yield Figure("until every chart is drawn, Chromium", median(one[0] for one in opened), "s")
            yield Figure("longest time its page stands still", median(one[1] for one in opened), "s",
                         at_most=STILL_TARGET)


if __name__ == "__main__":
    main(report, text=__doc__)
