"""Code that the benchmarks share: figures and tables, the command line, memory and CPU time of a process tree."""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import heapq
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
_PACKAGES = ("emul", "torch", "numpy", "simpy", "networkx", "pyzmq", "msgspec", "pyarrow", "scikit-learn")
_PAUSE = 30                         # times as long as a reading took: 3 % of a core
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figure:
    """One measured number, with what it should reach, if anything.

    minor: a variant whose target need not stand in the headlines of docs/benchmarks.md, too.
    """

    name: str
    value: float
    unit: str
    at_least: float | None = None
    at_most: float | None = None
    note: str = ""
    minor: bool = False

    @property
    def headline(self) -> bool:
        """True if it stands on the front page."""
        return bool(self.target) and not self.minor

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


@dataclass
class Table:
    """The result of one benchmark, and the way in which it was run."""

    name: str
    repeats: int
    load: float                         # average over a minute, before anything was run
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())
    figures: list[Figure] = field(default_factory=list)
    yardstick: float = 0.0              # `yardstick()`, the mean of before and after
    error: str | None = None            # it ended with this; the figures are those before it

    def plain(self) -> dict[str, Any]:
        return asdict(self)


HEAD = "| figure | value | unit | target | | note |\n|---|---|---|---|---|---|"


def row(figure: Figure) -> str:
    """A line of a Markdown table; the name of a headline is bold."""
    name = f"**{figure.name}**" if figure.headline else figure.name
    cells = (name, shown(figure.value), figure.unit, figure.target, figure.verdict, figure.note)
    return f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"


BAR = "\\|"                             # how Markdown writes | in a cell


def measure(table: Table, benchmark: Benchmark, found: Callable[[], None] = lambda: None) -> None:
    """Fill the table, printing it line by line; `found` is called after each. An error is kept, not raised."""
    print(f"\n{table.name}\n\n{HEAD}", flush=True)
    before = yardstick()
    try:
        for figure in benchmark(Options(table.repeats)):
            table.figures.append(figure)
            print(row(figure), flush=True)
            found()
    except Exception as e:              # whatever it is, the other benchmarks go on
        table.error = f"{type(e).__name__}: {e}"
        traceback.print_exc()
    table.yardstick = (before + yardstick()) / 2
    found()


def main(*benchmarks: Benchmark, text: str | None) -> None:
    """Run them, print a Markdown table line by line; `--json FILE` keeps figures, machine, versions and load."""
    parser = argparse.ArgumentParser(description=(text or "").partition("\n")[0])
    arguments(parser)
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    tables = [Table(str(getattr(benchmark, "__name__", "")), chosen.repeats, load) for benchmark in benchmarks]
    for table, benchmark in zip(tables, benchmarks, strict=True):
        measure(table, benchmark, lambda: keep(tables, chosen.json))
    print(f"\n{said(machine_facts(), load)}; {listed(versions())}")
    sys.exit(any(table.error for table in tables))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Those of every command here."""
    parser.add_argument("--repeats", type=int, default=Options.repeats, help="of each measurement [%(default)s]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")


def keep(tables: Sequence[Table], file: Path | None) -> None:
    """Write what has been found so far: an interrupted run keeps what it has."""
    if file is not None:
        content = {**machine_facts(), "versions": versions(), "tables": [table.plain() for table in tables]}
        file.write_text(json.dumps(content, indent=2) + "\n")


def said(machine: dict[str, Any], load: float) -> str:
    return (f"{machine['cores']} cores, {machine['cpu']}, {machine['memory']}; {machine['system']}; "
            f"load {load:.2f} before")


def listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def yardstick(steps: int = 20_000) -> float:
    """Steps a CPU second of plain Python of the kind that a kernel is made of: a heap, a dictionary, tuples, calls.

    A rate by CPU seconds that is divided by it depends little on the machine. Median of five, about 0.1 s in all.
    """
    def once() -> float:
        heap = [(place * 7919 % 1009, place, (place,)) for place in range(1000)]
        heapq.heapify(heap)
        seen: dict[int, int] = {}
        begin = time.thread_time()
        for number in range(steps):
            due, place, content = heap[0]
            seen[place] = seen.get(place, 0) + len(content)
            heapq.heapreplace(heap, (due + 1 + number % 13, place, (number,)))
        return steps / (time.thread_time() - begin)

    return median(once() for _ in range(5))


def machine_facts() -> dict[str, Any]:
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith("model name")), platform.processor() or "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory": f"{memory:.1f} GiB",
            "system": f"{platform.system()} {platform.machine()}"}


def versions(packages: Sequence[str] = _PACKAGES) -> dict[str, str]:
    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:           # such as emul itself, run from a checkout
            return "not installed"
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


# --- children -------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    """The outcome of a command: its standard output, wall and CPU seconds of its whole tree, peak of the summed PSS."""

    output: str
    wall_s: float
    cpu_s: float = 0.0
    begin: float = field(default=0.0, repr=False)       # time.monotonic() just before it was started


def read_rows(file: Path, text: Collection[str]) -> list[dict[str, Any]]:
    """Rows of a table as CSV, numbers as such but for the columns of text; none if there is no such file."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return [{key: value if key in text else float(value) for key, value in row.items()}
                for row in csv.DictReader(lines)]


def write_rows(file: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]], text: Collection[str]) -> None:
    """As `read_rows` reads them, in this order, numbers with six digits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as lines:
        table = csv.writer(lines, lineterminator="\n")
        table.writerow(columns)
        for row in rows:
            table.writerow([row[key] if key in text else f"{row[key]:.6g}" for key in columns])


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


class Pss:
    """As `pss_bytes`, for a `Sampler` of a run that is timed: to read a GiB takes 17 ms, in which a process that is
    read gets no memory.

    It is read when processes have come or gone, and else after `_PAUSE` times as long as the last reading took. In
    between, what the resident sets have grown by is added, as if none of it was shared: if anything too much, but for
    pages that are copied as they are written.
    """

    def __init__(self) -> None:
        self._members: set[int] = set()
        self._pss = self._resident = self._next_s = 0.0

    def __call__(self, pid: int) -> float:
        begin = time.monotonic()
        members = set(_tree(pid))
        resident = _resident_bytes(members)
        if members != self._members or begin >= self._next_s:
            self._pss, self._resident, self._members = pss_bytes(pid), resident, members
            self._next_s = begin + (1 + _PAUSE) * (time.monotonic() - begin)
        return self._pss + max(0.0, resident - self._resident)


def _resident_bytes(pids: Iterable[int]) -> float:
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError):      # it has ended meanwhile
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return float(pages * resource.getpagesize())


def _tree(root: int) -> dict[int, list[str]]:
    """pid -> fields of /proc/<pid>/stat from the state on, of `root` and all below it."""
    stats = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stats[int(name)] = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()
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
