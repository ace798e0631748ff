"""Deploying the cases, emulating them again, and the files in between: one a case, and tables of all of them."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from benchmarks.deployment import compare
from benchmarks.deployment.cases import BEST, MODELS, PLUGINS, Case, Model, Net, declared, recorded, scenario
from benchmarks.deployment.namespaces import built, places, wire_bytes
from benchmarks.deployment.processes import Deployed, Place, deploy, wired
from emul.base.rows import Row
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

NODES = 10
SLOW_UP = [30.0, 3, 4, 5, 6, 8, 3, 4, 5, 6]         # Mbit/s
FAR = [5.0, 10, 15, 20, 25, 30, 35, 40, 45, 50]     # ms to the router

HTB = Net("htb", "htb", [20] * NODES, [20] * NODES)
TBF = Net("tbf", "tbf", [15] * NODES, [15] * NODES)
DSL = Net("dsl", "htb", SLOW_UP, [30, *[12] * (NODES - 1)])
WAN = Net("wan", "htb", [10] * NODES, [10] * NODES, FAR, 0.005)

BUFFERED = "buffer: 3"
CASES = [case for net in (HTB, TBF, DSL, WAN) for case in (
    Case("fedavg", net, "deadline: 60 s", 6 if net is WAN else 8),
    Case("secagg", net, "stage_deadline: 60 s", 6 if net is WAN else 8),
    Case("gossip", net, "graph: ring, deadline: 60 s", 12),
    Case("fedbuff", net, BUFFERED, 16, spread=0.3))]
CASES += [Case("fedavg", HTB, "deadline: 60 s", 8, train_s=0.0, steps=60, variant="trained"),
          *(Case("fedbuff", net, BUFFERED, 16, variant="equal clients") for net in (HTB, TBF))]


@dataclass(frozen=True)
class Measured:
    """What was measured of a case."""

    rows: list[Row]
    bytes_written: list[int]        # node -> into its sockets
    wire: dict[str, int]            # link -> bytes as tc counts them
    load: float                     # of the machine, before it

    def keep(self, file: Path) -> None:
        """Write it."""
        file.write_text(json.dumps(vars(self)))

    @classmethod
    def read(cls, file: Path) -> Measured:
        """What `keep` has written."""
        found = json.loads(file.read_text())
        return cls(**{**found, "rows": [tuple(row) for row in found["rows"]]})


def measure(case: Case, load: float, timeout_s: float = 180) -> Measured:
    """Deploy a case over network namespaces. Raises RuntimeError, DeploymentFailed."""
    nodes = case.net.nodes
    with built(case.net):
        found = _deployed(case, places(nodes), timeout_s)
        return Measured(found.rows, found.bytes_written, wire_bytes(nodes), load)


def on_loopback(case: Case, ports: Sequence[int], timeout_s: float = 60) -> Measured:
    """The same processes without a network of their own, on ports of this machine: nothing is shaped, no root."""
    found = _deployed(case, [Place(("127.0.0.1", port)) for port in ports], timeout_s)
    return Measured(found.rows, found.bytes_written, {}, 0.0)


def _deployed(case: Case, where: Sequence[Place], timeout_s: float) -> Deployed:
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as folder:
        text = scenario(case, declared(case, Path(folder, "declared.csv")))
        return deploy(text, where, plugins=PLUGINS, timeout_s=timeout_s)


def emulate(case: Case, measured: Measured, model: Model) -> list[Row]:
    """The rows of the case as emulated, computations as they were measured."""
    with tempfile.TemporaryDirectory(prefix="emul-deployment-") as folder:
        text = scenario(case, recorded(case, measured.rows, Path(folder, "recorded.csv")), model)
        return run_wiring(wired(text, plugins=PLUGINS), Twin()).rows


# --- the table of all rounds ----------------------------------------------------------------------------------------

MEASURED, AGAIN = "measured", "again"
ROUNDS, SUMS = "deployment_rounds.csv", "deployment_cases.csv"


@dataclass(frozen=True)
class Compared:
    """One case, all that is said of it."""

    name: str
    rounds: dict[str, list[float]]      # model, "measured" or "again" -> seconds of each round
    nodes: dict[str, list[float]]       # model -> errors of the rounds of each node
    sent: tuple[int, int]               # bytes into sockets; of messages, emulated
    wire: tuple[int, int]               # on all links; emulated


def compared(case: Case, measured: Measured, models: Sequence[Model] = MODELS,
             said: Callable[[str], None] = lambda text: None, again: Measured | None = None) -> Compared:
    """A case and its emulations by each model; of bytes, those of the first. again: another measurement of it."""
    deciders = deciders_of(case)
    rounds = {MEASURED: compare.round_times(measured.rows, deciders)}
    if again is not None:
        rounds[AGAIN] = compare.round_times(again.rows, deciders)
    nodes, sent, wire = {}, 0, 0
    theirs = compare.node_times(measured.rows)
    known: dict[Model, list[Row]] = {}
    for model in models:
        alike = case.tells_apart(model)
        rows = known[alike] if alike in known else known.setdefault(alike, emulate(case, measured, alike))
        rounds[model.name] = compare.round_times(rows, deciders)
        nodes[model.name] = compare.node_errors(compare.node_times(rows), theirs).tolist()
        said(f"{case.name}: {model.name}: mean {mean(rounds[model.name]):.3f}, measured {mean(rounds[MEASURED]):.3f} s")
        if model is models[0]:
            sent, wire = sum(compare.sent_bytes(rows, case.net.nodes)), compare.wire_total(rows)
    return Compared(case.name, rounds, nodes, (sum(measured.bytes_written), sent), (sum(measured.wire.values()), wire))


def deciders_of(case: Case) -> list[int]:
    """Nodes whose rounds are the run's."""
    return list(range(case.net.nodes)) if case.peers else [0]


def write(found: Sequence[Compared], folder: Path) -> None:
    """Two tables: a line a round of a case, and a line a case."""
    columns = [MEASURED, AGAIN, *(model.name for model in MODELS)]
    rounds = [{"case": one.name, "round": i + 1, **{c: round(one.rounds[c][i], 4) for c in columns if c in one.rounds}}
              for one in found for i in range(len(one.rounds[MEASURED]))]
    cases = [{"case": one.name, "sent": one.sent[0], "sent_emulated": one.sent[1], "wire": one.wire[0],
              "wire_emulated": one.wire[1], "node_rounds": len(one.nodes[BEST.name]),
              "node_median": round(float(np.median(np.abs(one.nodes[BEST.name]))), 5),
              "node_p90": round(float(np.quantile(np.abs(one.nodes[BEST.name]), 0.9)), 5)} for one in found]
    for name, lines in ((ROUNDS, rounds), (SUMS, cases)):
        with (folder / name).open("w", newline="") as f:
            fields = ["case", "round", *columns] if name == ROUNDS else list(lines[0])
            writer = csv.DictWriter(f, fields, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
