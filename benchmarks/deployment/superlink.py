"""Unmodified apps with a real SuperLink and SuperNodes, predicted before. As root, with nothing else running:

    python -m benchmarks.deployment.superlink docs/studies/data/flower_deployed.csv --minutes 10 --write

Network `loopback`: nothing is shaped; the others are network namespaces with shaped links (`namespaces`). All that is
chosen and has no rows is predicted first: by `runtime: links`, `simulation` and, with three seeds, `superlink`.
`start` and `request` are measured before, alone: the wall seconds of `flwr-clientapp --help`, the median of five, and
of a look of a SuperNode that finds nothing, on loopback, the median of 200. On two cores the processes of three nodes
slow each other down, so apps say how long theirs took until they were called; `started` is `superlink` again with the
mean of these, after the deployment. `engine` is Flower's own simulation (it needs Ray). A row a round.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import metadata
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeAlias

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.deployment.cases import PLUGINS, TCP, Case, Net, scenario, vertex_name
from benchmarks.deployment.compare import kendall
from benchmarks.deployment.namespaces import address, built, missing, namespace
from benchmarks.deployment.processes import wired
from benchmarks.finished import markdown
from emul.schemes.flower import installed
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

HERE = Path(__file__).parent
SEMI, STRATEGY, SECAGG = HERE / "semi_app", HERE / "strategy_app", HERE / "secagg_app"
PORT, SEEDS = 18710, (7, 8, 9)
PAGE, TABLE = ROOT / "docs" / "flower.md", ROOT / "docs" / "studies" / "data" / "flower_deployed.csv"
COLUMNS = ("app", "network", "source", "seed", "round", "seconds", "replies", "start_s", "request_s", "load", "flwr",
           "made")
LINKS, SIMULATION, SUPERLINK, DEPLOYED, STARTED, ENGINE = (
    "links", "simulation", "superlink", "deployed", "started", "engine")
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class App:
    """An app as it is run. killed_s: so long after the begin of its first round SuperNode 0 is killed; 0: never."""

    name: str
    folder: Path
    nodes: int
    rounds: int
    config: Mapping[str, Any] = field(default_factory=dict)
    killed_s: float = 0.0


APPS = {app.name: app for app in (
    App("waits for 3 of 4", SEMI, 4, 6, {"m": 3}), App("waits for 4 of 4", SEMI, 4, 6, {"m": 4}),
    App("waits for 2 of 3", SEMI, 3, 3, {"m": 2}), App("looks each 0.1 s", SEMI, 3, 3, {"m": 2, "poll": 0.1}),
    App("FedAvg", STRATEGY, 3, 2), App("evaluation off", STRATEGY, 3, 3, {"evaluated": 0.0}),
    App("a client raises", STRATEGY, 3, 2, {"raises": 0}), App("SecAgg+", SECAGG, 3, 1),
    App("model of 20 MB", STRATEGY, 3, 1, {"size": 5_000_000, "evaluated": 0.0}),
    App("a node is gone", STRATEGY, 3, 2, {"evaluated": 0.0}, killed_s=8.0))}


def shaped(name: str, up: float, down: float, delay_ms: float, loss: float = 0.0) -> Net:
    """A server and three clients around a router. Mbit/s and ms of the links of clients; the server has 30 and 2."""
    return Net(name, "htb", [30.0, *[up] * 3], [30.0, *[down] * 3], [2.0, *[delay_ms] * 3], loss)


LOOPBACK = "loopback"
NETWORKS: dict[str, Net | None] = {net.name: net for net in (
    shaped("cable", 4, 25, 13), shaped("far", 20, 20, 98), shaped("slow", 2, 10, 28),
    shaped("lossy", 15, 15, 38, 0.005))} | {LOOPBACK: None}
LOOKS = """
import sys, time
from statistics import median
from flwr.supernode.fleet_http_connection import http_request_response
with http_request_response(sys.argv[1], True) as (_, look, *_):
    times = [time.perf_counter()]
    for _ in range(200):
        look()
        times.append(time.perf_counter())
print(median(end - begin for begin, end in zip(times, times[1:])))
"""
SCENARIO = """
emul: 1
name: semi
seed: SEED
topology: {generator: star, clients: NODES}
links: [{match: "*", latency: 0.02 ms, bandwidth: 10 Gbit/s}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
stop: {rounds: 20}
schemes: [SCHEME]
"""


# --- predictions -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Costs:
    """Wall seconds of the programs on this machine: of a process that starts, of a request."""

    start_s: float
    request_s: float


def costs() -> Costs:
    """Measured alone, before anything is predicted."""
    starts = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([program("flwr-clientapp"), "--help"], check=True, capture_output=True)
        starts.append(time.perf_counter() - begun)
    with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
        deployment = Deployment(None, 0, Path(folder))
        with deployment.up():
            looks = subprocess.run([sys.executable, "-c", LOOKS, deployment.address], env=deployment.environment,
                                   check=True, capture_output=True, text=True)
    return Costs(round(median(starts), 3), round(float(looks.stdout), 4))


def predicted(app: App, net: Net | None, runtime: str, paid: Costs, seed: int) -> list[dict[str, Any]]:
    """Rounds of the app in emul."""
    with tempfile.TemporaryDirectory(prefix="emul-superlink-") as name:
        folder = Path(name)
        out, client = folder / "rounds.json", "client1" if net is None else vertex_name(1)
        config = {**app.config, "n": app.nodes, "rounds": app.rounds, "out": str(out)}
        scheme = {"app": str(app.folder), "config": config, "runtime": runtime, "start": f"{paid.start_s} s",
                  "request": f"{paid.request_s} s", "num_actors": app.nodes}
        if net is None:
            text = SCENARIO.replace("NODES", str(app.nodes)).replace("SCHEME", json.dumps({"name": "flower", **scheme}))
            text = text.replace("SEED", str(seed))
        else:
            case = Case("flower", net, json.dumps(scheme)[1:-1], app.rounds + 5, 0, slow={})
            # one request after the other on each of the connections that a SuperNode opens
            several = installed.read().pushes if runtime == SUPERLINK else 1
            text = scenario(case, folder, None, replace(TCP, connections=several), seed)
        if app.killed_s and runtime == SUPERLINK:
            text += f"faults: [{{at: {app.killed_s} s, node: {client}, crash: true}}]\n"
        run_wiring(wired(text, plugins=PLUGINS), Twin())
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found


# --- deployments -----------------------------------------------------------------------------------------------------

def program(name: str) -> str:
    """The path of one of Flower's commands, beside this Python."""
    return str(Path(sys.executable).with_name(name))


class Program:
    """One of Flower's, with the processes that it starts: it ends with all of them."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, vertex: int | None):
        inside = [] if vertex is None else ["ip", "netns", "exec", namespace(vertex)]
        with log.open("w") as said:
            self.process = subprocess.Popen([*inside, program(command[0]), *command[1:]], env=dict(environment),
                                            stdout=said, stderr=subprocess.STDOUT, start_new_session=True)

    def end(self, how: int = signal.SIGTERM) -> None:
        """Ask it to end, then make it."""
        for number in (how, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)


class Deployment:
    """A SuperLink and SuperNodes, one after the other for several apps. net: None, loopback; engine: a SuperLink
    alone, which runs Flower's simulation."""

    def __init__(self, net: Net | None, nodes: int, folder: Path, engine: bool = False):
        self.net, self.nodes, self.folder, self.engine = net, nodes, folder, engine
        self.address = f"127.0.0.1:{PORT}"
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        own = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        self.environment = {**own, "FLWR_HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0", "PATH": path}
        self.supernodes: dict[int, Program] = {}

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """The programs run while the block lasts."""
        (self.folder / "config.toml").write_text(
            f'[superlink]\ndefault = "dep"\n[superlink.dep]\naddress = "{self.address}"\ninsecure = true\n')
        with contextlib.ExitStack() as stack:
            if self.net is not None:
                stack.enter_context(built(self.net))
            log = self.folder / "superlink.log"
            link = Program(["flower-superlink", "--insecure", "--host", "0.0.0.0", "--port", str(PORT),
                            "--disable-runtime-dependency-installation", *(["--simulation"] if self.engine else [])],
                           self.environment, log, self._vertex(0))
            stack.callback(link.end)
            wait_for(lambda: "running on" in log.read_text().lower(), 30)
            stack.callback(self._end)
            for k in range(0 if self.engine else self.nodes):
                self._start(k)
            yield

    def _end(self) -> None:
        for one in self.supernodes.values():
            one.end()

    def _vertex(self, i: int) -> int | None:
        return None if self.net is None else i

    def _start(self, k: int) -> None:
        server = self.address if self.net is None else f"{address(0)}:{PORT}"
        self.supernodes[k] = Program(
            ["flower-supernode", "--insecure", "--superlink", server, "--host", "127.0.0.1", "--port",
             str(PORT + 1 + k), "--node-config", f"partition-id={k} num-partitions={self.nodes}"],
            self.environment, self.folder / f"node{k}.log", self._vertex(k + 1))

    def run(self, app: App) -> list[dict[str, Any]]:
        """The rounds of an app. Raises RuntimeError, with what the programs have said."""
        out = self.folder / f"{app.name}.json"
        words = {**app.config, "n": app.nodes, "rounds": app.rounds, "out": f"'{out}'"}
        command = ["flwr", "run", str(app.folder), "dep", "--run-config",
                   " ".join(f"{key}={value}" for key, value in words.items()), "--stream"]
        if self.engine:
            command += ["--federation-config", f"num-supernodes={app.nodes} client-resources-num-cpus=1 "
                        f"init-args-num-cpus={app.nodes}"]
        killing = threading.Thread(target=self._kill, args=(app, Path(f"{out}.begun")))
        killing.start()
        cli = Program(command, self.environment, self.folder / "run.log", self._vertex(0))
        try:
            wait_for(out.exists, 600, lambda: cli.process.poll() not in (None, 0))
        finally:
            cli.end()
            killing.join()
        if app.killed_s:
            self.supernodes[0].end()
            self._start(0)
        if not out.exists():
            raise RuntimeError("\n".join(one.read_text()[-2000:] for one in sorted(self.folder.glob("*.log"))))
        time.sleep(0.5)                 # until it is written
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found

    def _kill(self, app: App, begun: Path) -> None:
        if app.killed_s:
            wait_for(begun.exists, 60)
            time.sleep(app.killed_s)
            self.supernodes[0].end(signal.SIGKILL)


def wait_for(there: Callable[[], bool], most_s: float, ended: Callable[[], bool] = lambda: False) -> None:
    """Return as soon as it is there, or cannot come any more."""
    until = time.monotonic() + most_s
    while not there() and time.monotonic() < until and not ended():
        time.sleep(0.1)


# --- the table -------------------------------------------------------------------------------------------------------

class Table:
    """The rows, on disk after each cell, which is (app, network, source, seed)."""

    def __init__(self, file: Path, measured: Callable[[], Costs]):
        self._file, self._measured = file, measured
        self.rows: list[dict[str, Any]] = []
        if file.exists():
            with file.open(newline="") as f:
                self.rows = list(csv.DictReader(f))

    def has(self, app: App, network: str, source: str, seed: int = 0) -> bool:
        """True if it has rows of this cell."""
        return any(self._cell(row) == (app.name, network, source, str(seed)) for row in self.rows)

    @staticmethod
    def _cell(row: Mapping[str, Any]) -> tuple[str, ...]:
        return str(row["app"]), str(row["network"]), str(row["source"]), str(row["seed"])

    @cached_property
    def costs(self) -> Costs:
        """Of the programs, measured once for all predictions."""
        for row in reversed(self.rows):
            if row["source"] == SUPERLINK:
                return Costs(float(row["start_s"]), float(row["request_s"]))
        return self._measured()

    def keep(self, app: App, network: str, source: str, seed: int, paid: Costs, rounds: Rows) -> None:
        """Write the rounds of a cell, in the place of those that it has."""
        cell = app.name, network, source, str(seed)
        self.rows = [row for row in self.rows if self._cell(row) != cell]
        now, load = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), round(os.getloadavg()[0], 2)
        self.rows += [{
            "app": app.name, "network": network, "source": source, "seed": seed, "round": number,
            "seconds": round(row["seconds"], 3), "start_s": paid.start_s, "request_s": paid.request_s,
            "flwr": metadata.version("flwr"), "replies": " ".join(f"{part}:{stale}" for part, stale in row["got"]),
            "load": load, "made": now} for number, row in enumerate(rounds, 1)]
        with self._file.open("w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        seconds = " ".join(f"{row['seconds']:.2f}" for row in rounds)
        print(f"{app.name}, {network}, {source}, seed {seed}: rounds of {seconds} s", flush=True)


def predict(table: Table, cells: Sequence[tuple[App, str]]) -> None:
    """Predict the cells that have no prediction yet."""
    for app, network in cells:
        for source, seeds in ((LINKS, SEEDS[:1]), (SIMULATION, SEEDS[:1]), (SUPERLINK, SEEDS)):
            for seed in seeds:
                if not table.has(app, network, source, seed):
                    paid = table.costs
                    rounds = predicted(app, NETWORKS[network], source, paid, seed)
                    table.keep(app, network, source, seed, paid, rounds)


def measure(table: Table, cells: Sequence[tuple[App, str]], minutes: float, again: bool) -> None:
    """Deploy the cells that have no measurement yet; again: those that have one, for a second time."""
    until = time.monotonic() + 60 * minutes
    open_cells = [cell for cell in cells if table.has(*cell, DEPLOYED) == again and not table.has(*cell, DEPLOYED, 1)]
    for network, nodes in dict.fromkeys((network, app.nodes) for app, network in open_cells):
        if time.monotonic() > until:
            return
        with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
            deployment = Deployment(NETWORKS[network], nodes, Path(folder))
            with deployment.up():
                for app, _ in (cell for cell in open_cells if cell[1] == network and cell[0].nodes == nodes):
                    if time.monotonic() > until:
                        return
                    try:
                        rounds = deployment.run(app)
                    except RuntimeError as e:           # the others may do
                        print(f"{app.name}, {network}: not measured: {e}", flush=True)
                        continue
                    # a process waits for a large model until it is called, which is no start
                    starts = [one for row in rounds for one in row["start"] if "size" not in app.config]
                    paid = replace(table.costs, start_s=round(mean(starts), 3)) if starts else table.costs
                    table.keep(app, network, DEPLOYED, int(again), paid, rounds)
                    for seed in SEEDS if starts and not again else ():
                        table.keep(app, network, STARTED, seed, paid, predicted(
                            app, NETWORKS[network], SUPERLINK, paid, seed))


def simulate(table: Table, cells: Sequence[tuple[App, str]]) -> None:
    """By Flower's own simulation, which knows no network."""
    for app in {app.name: app for app, _ in cells}.values():
        if not table.has(app, LOOPBACK, ENGINE):
            with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
                deployment = Deployment(None, app.nodes, Path(folder), engine=True)
                with deployment.up():
                    table.keep(app, LOOPBACK, ENGINE, 0, Costs(0.0, 0.0), deployment.run(app))


# --- the page --------------------------------------------------------------------------------------------------------

Cell: TypeAlias = tuple[str, str]           # app, network


@dataclass(frozen=True)
class Ran:
    """One run of an app. seconds: the mean of its rounds behind the first, or of its only round. replies: "round
    part:staleness" of each reply that its own loop took."""

    seconds: float
    replies: frozenset[str]


def runs_of(rows: Rows, source: str) -> dict[Cell, list[Ran]]:
    """The runs of a source, by cell, in the order of their seeds."""
    found: dict[Cell, dict[int, list[Mapping[str, Any]]]] = {}
    for row in rows:
        if row["source"] == source:
            found.setdefault((row["app"], row["network"]), {}).setdefault(int(row["seed"]), []).append(row)
    return {cell: [Ran(mean([float(row["seconds"]) for row in of[1:] or of]),
                       frozenset(f"{row['round']} {one}" for row in of for one in row["replies"].split()))
                   for _, of in sorted(seeds.items())] for cell, seeds in found.items()}


def middle(runs: Sequence[Ran]) -> float:
    """The median of their seconds."""
    return median(run.seconds for run in runs)


def apart(truths: Mapping[Cell, Ran], predictions: Mapping[Cell, Sequence[Ran]]) -> list[float]:
    """Runs against their predictions: the median error without sign, Kendall's tau of the cells, and the share of
    replies that have the same staleness in the same round."""
    seconds = {cell: middle(runs) for cell, runs in predictions.items()}
    return [median(abs(seconds[cell] / truth.seconds - 1) for cell, truth in truths.items()),
            kendall({str(cell): seconds[cell] for cell in truths},
                    {str(cell): truth.seconds for cell, truth in truths.items()}),
            mean(len(truth.replies & run.replies) / len(truth.replies | run.replies)
                 for cell, truth in truths.items() if truth.replies for run in predictions[cell])]


def page(rows: Rows) -> str:
    """The table app x network of docs/flower.md, and what follows from it."""
    deployed, emul, links, simulated, started, engine = (runs_of(rows, source) for source in (
        DEPLOYED, SUPERLINK, LINKS, SIMULATION, STARTED, ENGINE))
    lines = []
    for cell, (truth, *_) in deployed.items():
        app, network = cell
        spread = [run.seconds for run in emul[cell]]
        lines.append([app, network, *("" if runs is None else f"{middle(runs):.2f}" for runs in (
            engine.get((app, LOOPBACK)), simulated.get(cell), links.get(cell))),
            f"**{truth.seconds:.2f}**", " ".join(f"{run.seconds:.2f}" for run in deployed[cell][1:]),
            f"**{middle(emul[cell]):.2f}**", f"{min(spread):.2f} to {max(spread):.2f}",
            *(f"{middle(of[cell]) / truth.seconds - 1:+.1%}" for of in (emul, {**emul, **started}))])
    head = ["app", "network", "Flower's simulation", "`simulation`", "`links`", "deployed", "again", "`superlink`",
            "its seeds", "error", "with starts as measured"]
    truths = {cell: runs[0] for cell, runs in deployed.items()}
    columns = [apart(truths, emul), apart(truths, {**emul, **started}),
               apart({cell: runs[1] for cell, runs in deployed.items() if runs[1:]},
                     {cell: runs[:1] for cell, runs in deployed.items()}),
               [mean(found) for found in zip(*(
                   apart({cell: emul[cell][k] for cell in truths},
                         {cell: [*emul[cell][:k], *emul[cell][k + 1:]] for cell in truths})
                   for k in range(len(SEEDS))), strict=True)]]
    spans = {cell: (min(run.seconds for run in emul[cell]), max(run.seconds for run in emul[cell])) for cell in truths}
    inside = mean(low <= truths[cell].seconds <= high for cell, (low, high) in spans.items())
    decided = [truths[x].seconds < truths[y].seconds for x, (_, high) in spans.items() for y, (low, _) in spans.items()
               if high < low]
    said = [[name, *(form.format(column[i]) for column in columns)] for i, (name, form) in enumerate((
        ("median error", "{:.1%}"), ("Kendall's tau", "{:.2f}"), ("equal replies", "{:.0%}")))]
    return "\n\n".join([
        markdown(head, lines),
        markdown(["", "`superlink`", "starts as measured", "deployed again", "its seeds"], said),
        "Of cells the error without sign and the order, of own loops the replies with the same staleness in the same "
        "round: predictions against deployments, first deployments against second ones, two seeds against the third.",
        f"{inside:.0%} of {len(truths)} deployments lie within their three seeds. These decide the order of "
        f"{len(decided)} of {len(truths) * (len(truths) - 1) // 2} pairs of cells; {mean(decided):.1%} have it."])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--apps", nargs="+", default=list(APPS), choices=APPS)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no deployment after so long")
    parser.add_argument("--again", action="store_true", help="measure what has been measured a second time")
    parser.add_argument("--only", choices=("predict", "measure", "engine", "page"), help="one of the steps alone")
    parser.add_argument("--write", action="store_true", help=f"write the block of {PAGE.name}")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that what was made is taken away
    table = Table(chosen.table, costs)
    # four nodes are the case of the specification's table, on loopback alone
    cells = [(APPS[name], network) for network in chosen.networks for name in chosen.apps
             if (APPS[name].nodes == 4) <= (network == LOOPBACK)]
    if chosen.only in (None, "predict"):
        predict(table, cells)
    if chosen.only in (None, "measure"):
        reason = missing() if set(chosen.networks) - {LOOPBACK} else None
        if reason is not None:
            sys.exit(f"not measured: {reason}")
        measure(table, cells, chosen.minutes, chosen.again)
    if chosen.only == "engine":
        simulate(table, cells)
    if chosen.write or chosen.only == "page":
        text = page(table.rows)
        print(text)
        if chosen.write:
            document.save(PAGE, document.replaced(document.read(PAGE), "deployed", text))


if __name__ == "__main__":
    main()
