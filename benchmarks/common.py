"""What the benchmarks share: figures and their table, the command line, memory and CPU time of a process tree."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("emul", "torch", "numpy", "simpy", "networkx", "pyzmq", "msgspec", "pyarrow", "scikit-learn")
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One measured number, with what it should reach, if anything."""

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {shown(self.at_least)}"
        return "" if self.at_most is None else f"<= {shown(self.at_most)}"

    @property
    def verdict(self) -> str:
        if self.at_least is None and self.at_most is None:
            return ""
        met = self.value >= self.at_least if self.at_least is not None else self.value <= (self.at_most or 0)
        return "met" if met else "missed"


@dataclass(frozen=True)
class Options:
    """Of every benchmark."""

    repeats: int = 3


Benchmark = Callable[[Options], Iterable[Figure]]


def shown(value: float) -> str:
    """
    >>> shown(61234.5), shown(0.04561), shown(1.5)
    ('61,234', '0.0456', '1.50')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) >= 1 else f"{value:.3g}"


def main(*benchmarks: Benchmark, text: str | None) -> None:
    """Run them, print a Markdown table line by line; `--json FILE` keeps figures, machine, versions and load."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=Options.repeats, help="of each measurement [%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    chosen = parser.parse_args()
    report(benchmarks, Options(chosen.repeats), chosen.json)


def report(benchmarks: Sequence[Benchmark], options: Options, file: Path | None) -> None:
    load = os.getloadavg()[0]
    machine = {**machine_facts(), "load before": f"{load:.2f}", "versions": versions(), "repeats": options.repeats}
    print("| figure | value | unit | target | | note |\n|---|---|---|---|---|---|", flush=True)
    figures: list[Figure] = []
    for benchmark in benchmarks:
        for figure in benchmark(options):
            figures.append(figure)
            print(f"| {figure.name} | {shown(figure.value)} | {figure.unit} | {figure.target} | {figure.verdict} "
                  f"| {figure.note} |", flush=True)
            if file is not None:        # written at once: an interrupted run keeps what it has
                file.write_text(json.dumps({**machine, "figures": [asdict(f) for f in figures]}, indent=2) + "\n")
    print(f"\n{machine['cores']} cores, {machine['cpu']}, {machine['memory']}; {machine['system']}; "
          f"load {load:.2f} before; "
          + ", ".join(f"{name} {version}" for name, version in machine["versions"].items()))


def machine_facts() -> dict[str, Any]:
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor() or "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory": f"{memory:.1f} GiB",
            "system": f"{platform.system()} {platform.machine()}"}


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


# --- children -------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    """What a command did: its standard output, wall and CPU seconds of its whole tree, peak of the summed PSS."""

    output: str
    wall_s: float
    cpu_s: float = 0.0
    begin: float = field(default=0.0, repr=False)       # time.monotonic() just before it was started


def python(code: str) -> list[str]:
    """The command that runs `code` in a fresh interpreter of this environment."""
    return [sys.executable, "-c", code]


def run(command: Sequence[str], folder: Path = ROOT, **environment: str) -> Run:
    """Run a command with one thread a process. Raises RuntimeError with the end of what it said if it fails."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **environment}
    before = sum(os.times()[2:4])
    begin = time.monotonic()
    with subprocess.Popen(command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process, Sampler(cpu_seconds, process.pid) as sampler:
        output, errors = process.communicate()
    wall = time.monotonic() - begin
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{errors[-2000:]}")
    # what has been waited for is exact; the samples know of processes that nobody waited for (Ray's)
    return Run(output, wall, max(sampler.peak, sum(os.times()[2:4]) - before), begin)


class Sampler:
    """Samples `measure(pid)` in a thread and keeps the peak."""

    def __init__(self, measure: Callable[[int], float], pid: int, every_s: float = 0.2):
        self.peak = 0.0
        self._measure, self._pid, self._every_s = measure, pid, every_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def _loop(self) -> None:
        while not self._end.wait(self._every_s):
            self.peak = max(self.peak, self._measure(self._pid))

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of the tree below `pid`, those of ended processes that were waited for included."""
    return sum(sum(map(int, stat[11:15])) for stat in _tree(pid).values()) / _TICKS


def pss_bytes(pid: int) -> float:
    """Proportional set size of the tree below `pid`: pages shared by k processes count 1/k each."""
    total = 0
    for member in _tree(pid):
        try:
            rollup = Path(f"/proc/{member}/smaps_rollup").read_text()
        except OSError:                 # it has ended meanwhile
            continue
        total += next((int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")), 0)
    return total * 1024.0


def _tree(root: int) -> dict[int, list[str]]:
    """pid -> fields of /proc/<pid>/stat from the state on, of `root` and all below it."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(int(stat[1]), []).append(pid)
    found, waiting = {}, [root]
    while waiting:
        pid = waiting.pop()
        if pid in stats:
            found[pid] = stats[pid]
            waiting += children.get(pid, [])
    return found
