"""Deploying the cases, emulating them again, and the files in between: one a deployment, and tables of all of them."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import os
import platform
import subprocess
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.common import cpu_seconds, machine_facts
from benchmarks.deployment import compare
from benchmarks.deployment.cases import (
    BEST,
    MODELS,
    PLUGINS,
    Case,
    Costs,
    Model,
    declared,
    fingerprint,
    recorded,
    replayed,
    scenario,
)
from benchmarks.deployment.namespaces import Passed, address, built, counted, places
from benchmarks.deployment.processes import Deployed, Place, deploy, wired
from emul.base import rows as R
from emul.base.rows import Row
from emul.message.wire import ENVELOPE_BYTES
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

Lost = list[list[Any]]      # [vertex, source, target, round, number of the message in it, transmissions of it dropped]


@dataclass(frozen=True)
class Measured:
    """The results of one deployment of a case."""

    rows: list[Row]
    bytes_written: list[int]        # node -> into its sockets
    wire: dict[str, int]            # link -> bytes as tc counts them
    dropped: int                    # packets, by queues that were full
    repeat: int                     # of the case
    busy: float                     # share of the cores' time that was in use meanwhile
    others: float | None            # share of it that went to processes that are not of the deployment, or to other
                                    # machines of the same host (steal)
    machine: str = ""
    date: str = ""
    revision: str = ""              # of this repository
    code: str = ""                  # what git calls the content of this folder, whatever the revision is rebased on
    lost: Lost = field(default_factory=list)                    # what the relays have dropped
    began: str = ""                 # UTC
    predictions: dict[str, str] = field(default_factory=dict)   # predictor -> digest of what it had predicted by then

    def keep(self, file: Path) -> None:
        """Write it."""
        file.write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, file: Path) -> Measured:
        """The deployment that `keep` has written."""
        found = json.loads(file.read_text())
        return cls(**{**found, "rows": [tuple(row) for row in found["rows"]]})


def measure(case: Case, repeat: int = 0, timeout_s: float = 180,
            predictions: Mapping[str, str] | None = None) -> Measured:
    """Deploy a case over network namespaces. predictions: digests of what has been predicted of it. Raises
    RuntimeError, DeploymentFailed."""
    began = now()
    with built(case.net, repeat) as passed:
        with Usage() as usage:
            found = _deployed(case, places(case.net.nodes), timeout_s)
        links = counted(case.net)
    return Measured(found.rows, found.bytes_written, {link: through for link, (through, _) in links.items()},
                    sum(dropped for _, dropped in links.values()), repeat, round(usage.busy, 3),
                    round(usage.others, 3), *provenance(), lost=dropped_of(passed, found.rows, case.net.nodes),
                    began=began, predictions=dict(predictions or {}))


def now() -> str:
    """The time of day, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def dropped_of(passed: Passed, rows: Sequence[Row], nodes: int) -> Lost:
    """The drops of lossy links in each message that came to them: a packet is of the message that its first byte
    is of, and is counted among the transmissions of that message that have come to the relay."""
    node_of = {address(i): i for i in range(nodes)}
    limits: dict[tuple[int, int], list[int]] = {}           # (source, target) -> where each message ends, in bytes
    numbers: dict[tuple[int, int], list[tuple[int, int]]] = {}      # -> its round, and its number in that
    counts: Counter[tuple[int, int, int]] = Counter()
    for row in rows:
        if row[0] == R.SEND and row[2] != row[4]:
            ends = limits.setdefault((row[2], row[4]), [])
            ends.append((ends[-1] if ends else 0) + row[6] + ENVELOPE_BYTES)
            numbers.setdefault((row[2], row[4]), []).append((row[8], counts[row[2], row[4], row[8]]))
            counts[row[2], row[4], row[8]] += 1
    found: Lost = []
    for vertex, connections in sorted(passed.items()):
        for source, target, _, packets in connections:
            pair = node_of[source], node_of[target]
            ends = limits.get(pair, [])
            lost: list[list[int]] = [[] for _ in range(len(ends) + 1)]      # behind the last message: the goodbye
            sent = [0] * (len(ends) + 1)
            for offset, _, dropped in packets:
                message = bisect_right(ends, offset)
                if dropped:
                    lost[message].append(sent[message])
                sent[message] += 1
            found += [[vertex, *pair, *numbers[pair][message], lost[message]]
                      for message in range(len(ends)) if sent[message]]
    return found


class Usage:
    """While the block lasts, which shares of the cores' time are in use, and by processes that are not of this tree or
    by other machines of the same host: where these took 15 %, timers were late and rounds 5 % longer."""

    def __enter__(self) -> Usage:
        self._begin = self._read()
        return self

    def __exit__(self, *error: object) -> None:
        wall, idle, programs, stolen, own = (after - before for after, before
                                             in zip(self._read(), self._begin, strict=True))
        cores = os.cpu_count() or 1
        self.busy, self.others = 1 - idle / wall / cores, (max(0.0, programs - own) + stolen) / wall / cores

    @staticmethod
    def _read() -> tuple[float, ...]:
        """Seconds: now, nothing to do, programs and their calls of the system (no interrupts), what other machines
        took, what this tree took."""
        user, nice, system, idle, waiting, _, _, stolen = (
            int(field) / os.sysconf("SC_CLK_TCK") for field in
            Path("/proc/stat").read_text().splitlines()[0].split()[1:9])
        return time.monotonic(), idle + waiting, user + nice + system, stolen, cpu_seconds(os.getpid())


def provenance() -> tuple[str, str, str, str]:
    """machine, date, revision, code: where and of what a measurement is."""
    facts = machine_facts()
    machine = (f"{facts['cores']} cores, {facts['cpu']}, {facts['memory']}; {facts['system']} "
               f"{'.'.join(platform.release().split('.')[:2])}")
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=here, capture_output=True, text=True).stdout.strip()

    changed = "+" * bool(git("status", "--porcelain", "--untracked-files=no", "."))
    return (machine, datetime.date.today().isoformat(), git("rev-parse", "--short=12", "HEAD") + changed,
            git("rev-parse", "--short=12", "HEAD:./") + changed)


def on_loopback(case: Case, ports: Sequence[int], timeout_s: float = 60) -> Measured:
    """The same processes without a network of their own, on ports of this machine: nothing is shaped, no root."""
    found = _deployed(case, [Place(("127.0.0.1", port)) for port in ports], timeout_s)
    return Measured(found.rows, found.bytes_written, {}, 0, 0, 0.0, None)


def _deployed(case: Case, where: Sequence[Place], timeout_s: float) -> Deployed:
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as name:
        folder = Path(name)
        text = scenario(case, folder, declared(case, folder / "declared.csv"))
        return deploy(text, where, plugins=PLUGINS, timeout_s=timeout_s)


def emulate(case: Case, measured: Measured, model: Model) -> list[Row]:
    """The rows of the case as emulated, computations as they were measured; each repeat has a seed of its own."""
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as name:
        folder = Path(name)
        trace = recorded(case, measured.rows, folder / "recorded.csv")
        replay = replayed(case, measured.lost, folder / "lost.csv") if model.lost else None
        text = scenario(case, folder, trace, model, 7 + measured.repeat, replay)
        return run_wiring(wired(text, plugins=PLUGINS), Twin()).rows


def predict(case: Case, costs: Costs, model: Model, seed: int) -> tuple[list[Row], str]:
    """The rows of the case as emulated before anything is measured, and the fingerprint of the scenario."""
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as name:
        folder = Path(name)
        text = scenario(case, folder, declared(case, folder / "declared.csv", costs), model, seed)
        mark = fingerprint(text, folder)
        return run_wiring(wired(text, plugins=PLUGINS), Twin()).rows, mark


# --- the table of all rounds ----------------------------------------------------------------------------------------

MEASURED = "measured"
ROUNDS, RUNS = "deployment_rounds.csv", "deployment_runs.csv"
FACTS = ("dropped", "busy", "others", "machine", "date", "revision", "code", "began")


@dataclass(frozen=True)
class Compared:
    """One deployment, all that is said of it."""

    name: str                           # of its case
    repeat: int
    rounds: dict[str, list[float]]      # model or "measured" -> seconds of each round
    nodes: dict[str, list[float]]       # model -> errors of the rounds of each node
    sent: tuple[int, int]               # bytes into sockets; of messages, emulated
    wire: tuple[int, int]               # on all links; emulated
    facts: dict[str, Any]               # FACTS, and packets that relays have lost


def compared(case: Case, measured: Measured, models: Sequence[Model] = MODELS,
             said: Callable[[str], None] = lambda text: None) -> Compared:
    """A deployment and its emulations by each model, computations as they were measured; of bytes, those of the
    first."""
    deciders = deciders_of(case)
    rounds = {MEASURED: compare.round_times(measured.rows, deciders)}
    nodes, sent, wire = {}, 0, 0
    theirs = compare.node_times(measured.rows)
    known: dict[Model, list[Row]] = {}
    for model in models:
        alike = case.tells_apart(model)
        rows = known[alike] if alike in known else known.setdefault(alike, emulate(case, measured, alike))
        rounds[model.name] = compare.round_times(rows, deciders)
        nodes[model.name] = compare.node_errors(compare.node_times(rows), theirs).tolist()
        said(f"{case.name}, {measured.repeat}: {model.name}: mean {mean(rounds[model.name]):.3f}, measured "
             f"{mean(rounds[MEASURED]):.3f} s")
        if model is models[0]:
            sent, wire = sum(compare.sent_bytes(rows, case.net.nodes)), compare.wire_total(rows)
    facts = {key: getattr(measured, key) for key in FACTS}
    return Compared(case.name, measured.repeat, rounds, nodes, (sum(measured.bytes_written), sent),
                    (sum(measured.wire.values()), wire), facts | {"lost": sum(len(of[-1]) for of in measured.lost)})


def kept(folder: Path, measured: Path, make: Callable[[], Compared]) -> Compared:
    """A comparison, which is made anew where the deployment, this folder or the emulator has changed."""
    here = Path(__file__).parents[2]
    trees = subprocess.run(["git", "rev-parse", "HEAD:emul", "HEAD:benchmarks/deployment"], cwd=here,
                           capture_output=True, text=True).stdout
    dirty = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no", "emul", "benchmarks/deployment"],
                           cwd=here, capture_output=True, text=True).stdout
    mark = hashlib.sha256((trees + dirty).encode() + measured.read_bytes()).hexdigest()[:16]
    file = folder / f"{measured.stem}-{mark}.json"
    if not dirty and file.exists():
        return Compared(**json.loads(file.read_text()))
    found = make()
    folder.mkdir(exist_ok=True)
    file.write_text(json.dumps(vars(found)))
    return found


def deciders_of(case: Case) -> list[int]:
    """Nodes whose rounds are the run's."""
    return list(range(case.net.nodes)) if case.peers else [0]


def write(found: Sequence[Compared], folder: Path) -> None:
    """Two tables: a line a round of a deployment, and a line a deployment."""
    columns = [MEASURED, *(model.name for model in MODELS)]
    rounds = [{"case": one.name, "repeat": one.repeat, "round": i + 1,
               **{c: round(one.rounds[c][i], 4) for c in columns}}
              for one in found for i in range(min(len(one.rounds[c]) for c in columns))]
    runs = [{"case": one.name, "repeat": one.repeat, "sent": one.sent[0], "sent_emulated": one.sent[1],
             "wire": one.wire[0], "wire_emulated": one.wire[1], "node_rounds": len(one.nodes[BEST.name]),
             "node_median": round(float(np.median(np.abs(one.nodes[BEST.name]))), 5),
             "node_p90": round(float(np.quantile(np.abs(one.nodes[BEST.name]), 0.9)), 5), **one.facts}
            for one in found]
    write_table(folder / ROUNDS, rounds)
    write_table(folder / RUNS, runs)


def write_table(file: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """As CSV; the first line says the columns. Lines that the file has of other cases stay, before these."""
    if file.exists():
        anew = {line["case"] for line in lines}
        with file.open(newline="") as f:
            lines = [*(line for line in csv.DictReader(f) if line["case"] not in anew), *lines]
    with file.open("w", newline="") as f:
        writer = csv.DictWriter(f, list(lines[-1]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
