"""An unmodified app with a real SuperLink and SuperNodes on loopback, predicted before: on a machine with nothing else
running, some six minutes,

    python -m benchmarks.deployment.superlink docs/studies/data/flower_deployed.csv

The app (`semi_app`) waits for m of 4 replies a round; node 0 sleeps 5 s. Network: loopback, nothing is shaped. `start`
is measured before, alone: the wall seconds of `flwr-clientapp --help`, the median of five. Predictions are written
before a SuperLink is started; a row a round.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from emul.testing import run_text

APP = Path(__file__).parent / "semi_app"
NODES, PORT, SEEDS = 4, 18710, (7, 8, 9)
SCENARIO = """
emul: 1
name: semi
seed: 7
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 0.02 ms, bandwidth: 10 Gbit/s}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
stop: {rounds: 20}
schemes: [SCHEME]
"""
COLUMNS = ("m", "source", "seed", "round", "train_s", "eval_s", "replies", "start_s", "load", "flwr", "made")


def program(name: str) -> str:
    """The path of one of Flower's commands, beside this Python."""
    return str(Path(sys.executable).with_name(name))


def start_s() -> float:
    """Wall seconds of a ClientApp's process that only starts."""
    found = []
    for _ in range(5):
        begun = time.perf_counter()
        subprocess.run([program("flwr-clientapp"), "--help"], check=True, capture_output=True)
        found.append(time.perf_counter() - begun)
    return round(median(found), 3)


def predicted(m: int, rounds: int, runtime: str, start: float, seed: int) -> list[dict[str, Any]]:
    """Rounds of the app in emul."""
    with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
        out = Path(folder, "rounds.json")
        scheme = {"name": "flower", "app": str(APP), "config": {"m": m, "rounds": rounds, "out": str(out)},
                  "runtime": runtime, "start": f"{start} s"}
        run_text(SCENARIO.replace("SCHEME", json.dumps(scheme)), f"seed={seed}")
        found: list[dict[str, Any]] = json.loads(out.read_text())
        return found


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """A program while the block lasts."""
    with log.open("w") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measured(m: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """Rounds of the app with a SuperLink and SuperNodes."""
    address = f"127.0.0.1:{PORT}"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "FLWR_HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0", "PATH": path}
    (folder / "config.toml").write_text(f'[superlink]\ndefault = "dep"\n[superlink.dep]\naddress = "{address}"\n'
                                        "insecure = true\n")
    out = folder / "rounds.json"
    with ExitStack() as programs:
        programs.enter_context(started(
            [program("flower-superlink"), "--insecure", "--port", str(PORT),
             "--disable-runtime-dependency-installation"], environment, folder / "superlink.log"))
        time.sleep(8)
        for k in range(NODES):
            programs.enter_context(started(
                [program("flower-supernode"), "--insecure", "--superlink", address, "--host", "127.0.0.1", "--port",
                 str(PORT + 1 + k), "--node-config", f"partition-id={k} num-partitions={NODES}"], environment,
                folder / f"node{k}.log"))
        time.sleep(15)
        subprocess.run([program("flwr"), "run", str(APP), "dep", "--run-config", f"m={m} rounds={rounds} out='{out}'",
                        "--stream"], env=environment, check=True, timeout=900, capture_output=True)
        until = time.monotonic() + 10
        while not out.exists() and time.monotonic() < until:
            time.sleep(0.5)
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("table", type=Path)
    parser.add_argument("--wanted", type=int, nargs="+", default=[3, 4], help="m: replies that end a round")
    parser.add_argument("--rounds", type=int, default=6)
    chosen = parser.parse_args()
    start = start_s()
    with chosen.table.open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        table.writeheader()

        def keep(m: int, source: str, seed: int, rounds: list[dict[str, Any]]) -> None:
            for number, row in enumerate(rounds, 1):
                table.writerow({
                    "m": m, "source": source, "seed": seed, "round": number, "train_s": round(row["train"], 3),
                    "eval_s": round(row["eval"], 3), "start_s": start, "flwr": metadata.version("flwr"),
                    "replies": " ".join(f"{part}:{stale}" for part, stale in row["got"]),
                    "load": round(os.getloadavg()[0], 2),
                    "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")})
            file.flush()
            later = [row["train"] + row["eval"] for row in rounds[1:]]
            print(f"m = {m}, {source}, seed {seed}: rounds 2 to {len(rounds)} {sum(later):.2f} s", flush=True)

        for m in chosen.wanted:
            keep(m, "links", SEEDS[0], predicted(m, chosen.rounds, "links", start, SEEDS[0]))
            for seed in SEEDS:
                keep(m, "superlink", seed, predicted(m, chosen.rounds, "superlink", start, seed))
        for m in chosen.wanted:
            with tempfile.TemporaryDirectory(prefix="emul-superlink-") as folder:
                keep(m, "deployed", 0, measured(m, chosen.rounds, Path(folder)))


if __name__ == "__main__":
    main()
