"""Unmodified apps with a real SuperLink and SuperNodes, predicted before. As root, with nothing else running:

    python -m benchmarks.deployment.superlink docs/studies/data/flower_deployed.csv --minutes 10 --write

Network `loopback`: nothing is shaped; the others are network namespaces with shaped links (`namespaces`). All that is
chosen and has no rows is predicted first: by `runtime: links`, `simulation` and, with three seeds, `superlink`.
`start` is measured before, alone: the wall seconds of `flwr-clientapp --help`, the median of five. On two cores the
processes of three nodes slow each other down, so apps say how long theirs took until they were called; `started` is
`superlink` again with the mean of these, after the deployment. `engine` is Flower's own simulation (it needs Ray). A
row a round.
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
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks import document
from benchmarks.common import ROOT
from benchmarks.deployment.cases import PLUGINS, TCP, Case, Net, scenario, vertex_name
from benchmarks.deployment.compare import kendall
from benchmarks.deployment.namespaces import address, built, missing, namespace
from benchmarks.deployment.processes import wired
from benchmarks.finished import markdown
from emul.testing.world import run_wiring
from emul.workers.twin import Twin

HERE = Path(__file__).parent
SEMI, STRATEGY, SECAGG = HERE / "semi_app", HERE / "strategy_app", HERE / "secagg_app"
PORT, SEEDS = 18710, (7, 8, 9)
PAGE, TABLE = ROOT / "docs" / "flower.md", ROOT / "docs" / "studies" / "data" / "flower_deployed.csv"
COLUMNS = ("app", "network", "source", "seed", "round", "seconds", "replies", "start_s", "load", "flwr", "made")
LINKS, SIMULATION, SUPERLINK, DEPLOYED, STARTED, ENGINE = (
    "links", "simulation", "superlink", "deployed", "started", "engine")
PREDICTED = (LINKS, SIMULATION, SUPERLINK)
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

def start_s() -> float:
    """Wall seconds of a ClientApp's process that only starts."""
    found = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([program("flwr-clientapp"), "--help"], check=True, capture_output=True)
        found.append(time.perf_counter() - begun)
    return round(median(found), 3)


def predicted(app: App, net: Net | None, runtime: str, start: float, seed: int) -> list[dict[str, Any]]:
    """Rounds of the app in emul."""
    with tempfile.TemporaryDirectory(prefix="emul-superlink-") as name:
        folder = Path(name)
        out, client = folder / "rounds.json", "client1" if net is None else vertex_name(1)
        config = {**app.config, "n": app.nodes, "rounds": app.rounds, "out": str(out)}
        scheme = {"app": str(app.folder), "config": config, "runtime": runtime, "start": f"{start} s",
                  "num_actors": app.nodes}
        if net is None:
            text = SCENARIO.replace("NODES", str(app.nodes)).replace("SCHEME", json.dumps({"name": "flower", **scheme}))
            text = text.replace("SEED", str(seed))
        else:
            case = Case("flower", net, json.dumps(scheme)[1:-1], app.rounds + 5, 0, slow={})
            text = scenario(case, folder, None, TCP, seed)
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

    def __init__(self, file: Path, start: Callable[[], float]):
        self._file, self._measured = file, start
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

    @property
    def start_s(self) -> float:
        """The seconds of a process that starts, measured once for all predictions."""
        known = [float(row["start_s"]) for row in self.rows if row["source"] == SUPERLINK]
        return known[-1] if known else self._measured()

    def keep(self, app: App, network: str, source: str, seed: int, start: float, rounds: Rows) -> None:
        """Write the rounds of a cell, in the place of those that it has."""
        cell = app.name, network, source, str(seed)
        self.rows = [row for row in self.rows if self._cell(row) != cell]
        now, load = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), round(os.getloadavg()[0], 2)
        self.rows += [{
            "app": app.name, "network": network, "source": source, "seed": seed, "round": number,
            "seconds": round(row["seconds"], 3), "start_s": round(start, 3), "flwr": metadata.version("flwr"),
            "replies": " ".join(f"{part}:{stale}" for part, stale in row["got"]),
            "load": load, "made": now} for number, row in enumerate(rounds, 1)]
        with self._file.open("w", newline="") as f:
            writer = csv.DictWriter(f, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        later = [row["seconds"] for row in rounds[1:]]
        print(f"{app.name}, {network}, {source}, seed {seed}: rounds 2 to {len(rounds)} {sum(later):.2f} s", flush=True)


def predict(table: Table, cells: Sequence[tuple[App, str]]) -> None:
    """Predict the cells that have no prediction yet."""
    for app, network in cells:
        for source, seeds in ((LINKS, SEEDS[:1]), (SIMULATION, SEEDS[:1]), (SUPERLINK, SEEDS)):
            for seed in seeds:
                if not table.has(app, network, source, seed):
                    start = table.start_s
                    rounds = predicted(app, NETWORKS[network], source, start, seed)
                    table.keep(app, network, source, seed, start, rounds)


def measure(table: Table, cells: Sequence[tuple[App, str]], minutes: float, again: bool) -> None:
    """Deploy the cells that have no measurement yet; again: all of them."""
    until = time.monotonic() + 60 * minutes
    open_cells = [cell for cell in cells if again or not table.has(*cell, DEPLOYED)]
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
                    starts = [one for row in rounds for one in row["start"]]
                    start = round(mean(starts), 3) if starts else table.start_s
                    table.keep(app, network, DEPLOYED, 0, start, rounds)
                    for seed in SEEDS if starts else ():
                        table.keep(app, network, STARTED, seed, start, predicted(
                            app, NETWORKS[network], SUPERLINK, start, seed))


def simulate(table: Table, cells: Sequence[tuple[App, str]]) -> None:
    """By Flower's own simulation, which knows no network."""
    for app in {app.name: app for app, _ in cells}.values():
        if not table.has(app, LOOPBACK, ENGINE):
            with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
                deployment = Deployment(None, app.nodes, Path(folder), engine=True)
                with deployment.up():
                    table.keep(app, LOOPBACK, ENGINE, 0, 0.0, deployment.run(app))


# --- the page --------------------------------------------------------------------------------------------------------

def seconds_of(rows: Rows, app: str, network: str, source: str) -> float | None:
    """The mean seconds of the rounds behind the first, or of an app of one round; of several seeds the median. None:
    there are none."""
    found: dict[str, list[tuple[bool, float]]] = {}
    for row in rows:
        if (row["app"], row["network"], row["source"]) == (app, network, source):
            found.setdefault(str(row["seed"]), []).append((int(row["round"]) > 1, float(row["seconds"])))
    return median(mean([seconds for behind, seconds in of if behind] or [seconds for _, seconds in of])
                  for of in found.values()) if found else None


def replies_of(rows: Rows, app: str, network: str, source: str, seed: int) -> list[str]:
    """Of each round, who has answered, how stale."""
    return [reply for row in rows if (row["app"], row["network"], row["source"], int(row["seed"])) == (
        app, network, source, seed) for reply in [f"{row['round']} {one}" for one in row["replies"].split()]]


def page(rows: Rows) -> str:
    """The table app x network of docs/flower.md, and what follows from it."""
    lines, pairs, errors, explained = [], {}, [], []
    shares: list[float] = []
    for app, network in dict.fromkeys((row["app"], row["network"]) for row in rows if row["source"] == DEPLOYED):
        truth = seconds_of(rows, app, network, DEPLOYED)
        emul, links, simulated = (seconds_of(rows, app, network, source) for source in (SUPERLINK, LINKS, SIMULATION))
        started, engine = seconds_of(rows, app, network, STARTED), seconds_of(rows, app, LOOPBACK, ENGINE)
        assert truth is not None
        assert emul is not None
        pairs[f"{app} {network}"] = emul, truth
        errors.append(emul / truth - 1)
        explained.append((started or emul) / truth - 1)
        real = replies_of(rows, app, network, DEPLOYED, 0)
        if real:
            shares.append(mean(len(set(real) & set(replies_of(rows, app, network, SUPERLINK, seed)))
                               / len({*real, *replies_of(rows, app, network, SUPERLINK, seed)}) for seed in SEEDS))
        lines.append([app, network, *("" if one is None else f"{one:.2f}" for one in (engine, simulated, links)),
                      f"**{truth:.2f}**", f"**{emul:.2f}**", f"{errors[-1]:+.1%}", f"{explained[-1]:+.1%}"])
    tau = kendall({name: one for name, (one, _) in pairs.items()}, {name: one for name, (_, one) in pairs.items()})
    head = ["app", "network", "Flower's simulation", "`simulation`", "`links`", "deployed", "`superlink`", "error",
            "with starts as measured"]
    return markdown(head, lines) + (
        f"\n\nMedian error without sign {median(map(abs, errors)):.1%}, with starts as measured "
        f"{median(map(abs, explained)):.1%}; Kendall's tau of all cells {tau:.2f}; of the replies of own loops "
        f"{mean(shares):.0%} come in the same round with the same staleness (a seed each of three).")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--apps", nargs="+", default=list(APPS), choices=APPS)
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no deployment after so long")
    parser.add_argument("--again", action="store_true", help="measure what has been measured, too")
    parser.add_argument("--only", choices=("predict", "measure", "engine", "page"), help="one of the steps alone")
    parser.add_argument("--write", action="store_true", help=f"write the block of {PAGE.name}")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that what was made is taken away
    table = Table(chosen.table, start_s)
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
