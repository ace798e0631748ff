"""Whole deployments against their emulation: `python -m benchmarks.deployment measure DIR`, as root, ten minutes, then
`... compare DIR`, which needs neither. What a second `measure DIR/again` finds is set beside it. Ctrl-C takes all away
again."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from benchmarks.common import machine_facts, said
from benchmarks.deployment import namespaces, pages
from benchmarks.deployment.runs import CASES, Measured, compared, measure, write


def arguments() -> argparse.Namespace:
    """Of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deployment", description=__doc__)
    parser.add_argument("what", choices=("measure", "compare"))
    parser.add_argument("directory", type=Path, help="a file for each case")
    parser.add_argument("--only", metavar="TEXT", default="", help="cases whose name contains it")
    parser.add_argument("--write", action="store_true", help="compare: rewrite tables, figure and data of the page")
    return parser.parse_args()


def measure_all(directory: Path, only: str) -> None:
    """Those that have no file yet."""
    directory.mkdir(parents=True, exist_ok=True)
    for case in CASES:
        file = directory / f"{case.name.replace(' ', '-').replace(',', '')}.json"
        if only not in case.name or file.exists():
            continue
        print(case.name, flush=True)
        measure(case, os.getloadavg()[0]).keep(file)


def compare_all(directory: Path, only: str, rewrite: bool) -> None:
    """Those that have been measured."""
    found, loads = [], []
    for case in CASES:
        file = directory / f"{case.name.replace(' ', '-').replace(',', '')}.json"
        if only in case.name and file.exists():
            measured = Measured.read(file)
            loads.append(measured.load)
            second = directory / "again" / file.name
            found.append(compared(case, measured, said=lambda text: print(text, flush=True),
                                  again=Measured.read(second) if second.exists() else None))
    machine = said(machine_facts(), max(loads))
    folder = pages.HOME / "data" if rewrite else directory
    write(found, folder)
    print(f"\n{pages.tables(folder)}\n\n{machine}")
    if rewrite:
        pages.draw(folder, pages.FIGURE)
        pages.fill(machine)


def main() -> None:
    """The command."""
    chosen = arguments()
    if chosen.what == "compare":
        compare_all(chosen.directory, chosen.only, chosen.write)
        return
    reason = namespaces.missing()
    if reason is not None:
        sys.exit(f"not measured: {reason}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))       # so that what was made is taken away
    measure_all(chosen.directory, chosen.only)


if __name__ == "__main__":
    main()
