"""Benchmarks in turn: tables, JSON, the two pages of docs/ and thresholds. One that fails does not stop the others."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks import document, thresholds
from benchmarks.common import Benchmark, Figure, Options, Table, keep, listed, machine_facts, measure, said, versions

APART = "peers"                         # needs an environment of its own
ELSEWHERE = "gpu"                       # needs a GPU, and has a command line of its own


def names() -> list[str]:
    """Of all `bench_<name>.py` but the peers', in the order of the document, then of the alphabet."""
    found = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    order = list(document.blocks(document.read(document.PAGES.tables)))
    return sorted((name for name in found if name not in (APART, ELSEWHERE)),
                  key=lambda name: order.index(name) if name in order else len(order))


def find(name: str) -> Benchmark:
    """The function `name` of `bench_<name>.py`, imported when it is called: an import that fails is its own failure."""
    def benchmark(options: Options) -> Iterable[Figure]:
        found: Benchmark = getattr(importlib.import_module(f"benchmarks.bench_{name}"), name)
        return found(options)

    return benchmark


def run(benchmarks: Mapping[str, Benchmark], repeats: int, json: Path | None = None,
        write: document.Pages | None = None, environments: Mapping[str, str] | None = None,
        limits: Sequence[thresholds.Threshold] | None = None) -> int:
    """Run all, print what was found; 1 if a benchmark failed or a ratio fell, else 0.

    write: the pages to put each table into as soon as it is there. environments: further rows of that block.
    """
    limits = thresholds.load() if limits is None else limits
    load, machine = os.getloadavg()[0], machine_facts()
    rows = {"machine": f"{machine['cores']} cores, {machine['cpu']}; {machine['memory']}, {machine['system']}",
            "emul's environment": listed(versions()), **(environments or {})}
    tables: list[Table] = []
    for name, benchmark in benchmarks.items():
        table = Table(name, repeats, load)
        tables.append(table)
        measure(table, benchmark, lambda: keep(tables, json))
        if write is not None:
            document.write([table], f"{machine['cores']} cores, {machine['cpu']}", rows, write, limits)
    held, fell = thresholds.check(limits, tables)
    failed = [f"{table.name}: {table.error}" for table in tables if table.error is not None]
    print(f"\n{said(machine, load)}; {listed(versions())}")
    for what, sentences in (("ratios that hold", held), ("ratios that fell", fell), ("benchmarks that failed", failed)):
        print(f"\n{what}: {len(sentences)}" + "".join(f"\n  {sentence}" for sentence in sentences))
    if fell and load > machine["cores"] / 4:
        print(f"\nThe machine was busy (load {load:.2f}): ratios of wall times may have fallen for that alone.")
    return int(bool(fell or failed))
