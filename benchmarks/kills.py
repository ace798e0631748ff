"""Runs killed at random points, over all schemes, and gone on with to the digest of the run that was not killed.

    python -m benchmarks.kills --count 200 --seed 0

Killed are a worker, the coordinator, or both, by SIGKILL, at a random time of a run in two worker processes: one in ten
before its journal is there, the others while it lives. Afterwards no process of the run may be left, no socket, and
nothing half-written under a final name; `emul resume` then goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emul import engine
from emul.record import rundir
from emul.record.journal import read
from emul.registry import schemes
from emul.workers.pool import Workers

VICTIMS = ("worker", "coordinator", "both")
MARK = "EMUL_KILL_TEST"             # in the environment of a run: by it its processes are found
DONE = "cases"                      # key of a hunt's outcomes: how many there were
EARLY = 0.1                         # share of kills before there is a journal
_LIVELY = 0.7                       # share of a run's time in which the others fall; later it may be writing its tables
_END_S = 60.0                       # how long what was not killed may take to end by itself


@dataclass(frozen=True)
class Reference:
    """A scheme's example, made to last about a second, with the digest of its whole run."""

    scenario: Path
    digest: str
    begins_s: float                 # from the command's start until there is a journal
    lasts_s: float                  # from then on, until the command ends


@dataclass(frozen=True)
class Kill:
    scheme: str
    mode: str                       # of `compute`
    victim: str
    early: bool                     # before there is a journal
    after_s: float                  # of the command's start, or of its journal's


def written(scheme: str, mode: str, folder: Path, more: str = "") -> Path:
    """The scheme's example with more training, so that there is something to cut. more: sections that it lacks."""
    text = schemes.find(scheme).example.replace("steps: 1", "epochs: 8").replace("mode: zero", f"mode: {mode}") + more
    path = folder / f"{scheme}-{mode}.yaml"
    path.write_text(text)
    return path


def command(scenario: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "emul", "run", str(scenario), "--quiet", "--workers", "2", "--out", str(out)]


def reference(scheme: str, mode: str, folder: Path, more: str = "") -> Reference:
    scenario, out = written(scheme, mode, folder, more), folder / "whole"
    begin = time.monotonic()
    with subprocess.Popen(command(scenario, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        until_begun(out, run)
        begun = time.monotonic()
    if run.returncode:
        raise RuntimeError(f"{scenario}: emul run exits with {run.returncode}")
    ended = time.monotonic()
    (summary,) = out.glob(f"*/{rundir.SUMMARY}")
    digest = json.loads(summary.read_text())["digest"]
    shutil.rmtree(out)
    return Reference(scenario, digest, begun - begin, ended - begun)


def until_begun(out: Path, run: subprocess.Popen[Any]) -> None:
    """Wait until a run in `out` has a journal, or has ended without one."""
    while run.poll() is None and not list(out.glob(f"*/{rundir.JOURNAL}")):
        time.sleep(0.005)


def processes(mark: str) -> list[tuple[int, bool]]:
    """(process, whether it is the command itself) of all that carry the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes():
                state = (path / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found.append((int(path.name), b"emul\0run\0" in (path / "cmdline").read_bytes()))
    return found


def left_processes(mark: str, patience_s: float) -> list[int]:
    """Processes that carry the mark for so long; one look alone may miss one that is just ending, or find it."""
    deadline = time.monotonic() + patience_s
    calm = 0
    while calm < 3 and time.monotonic() < deadline:
        calm = 0 if processes(mark) else calm + 1
        time.sleep(0.03)
    return [] if calm == 3 else [pid for pid, _ in processes(mark)]


def cut_off(kill: Kill, ref: Reference, folder: Path, mark: str) -> list[str]:
    """Run and kill. Returns the mistakes in the files that are left."""
    sockets = folder / "tmp"
    sockets.mkdir()
    run = subprocess.Popen(command(ref.scenario, folder / "runs"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           env={**os.environ, MARK: mark, "TMPDIR": str(sockets)})
    if not kill.early:
        until_begun(folder / "runs", run)
    time.sleep(kill.after_s)
    there = processes(mark)
    coordinator = kill.victim == "coordinator"
    victims = [pid for pid, is_command in there if kill.victim == "both" or is_command == coordinator]
    if kill.victim == "worker":
        victims = victims[-1:]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wrong = []
    try:
        run.wait(_END_S)
    except subprocess.TimeoutExpired:
        wrong.append("the command did not end")
        run.kill()
        run.wait()
    wrong += [f"process {pid} was left" for pid in left_processes(mark, _END_S)]
    if kill.victim != "both":                   # else nobody is left to remove them
        wrong += [f"{path} was left" for path in sockets.rglob("*")]
    return wrong


def left(folder: Path) -> Iterator[Path]:
    """Runs that have not ended."""
    for path in sorted((folder / "runs").glob(f"*/{rundir.INCOMPLETE}")):
        if (path.parent / rundir.JOURNAL).exists():
            yield path.parent


def gone_on_with(run: Path, kill: Kill, ref: Reference, pool: Workers) -> list[str]:
    """Resume. Returns the mistakes in the run that comes out."""
    before = [list(row) for row in read(run / rundir.JOURNAL)]
    (result,) = engine.resume(run, workers=pool)
    if result.error is not None or result.violations:
        return [str(result.error or result.violations)]
    wrong = [f"{path} was left" for path in run.rglob("*") if path.name.startswith(".") or path.name == "error.txt"]
    if kill.mode == "zero" and (result.summary or {}).get("digest") != ref.digest:
        wrong.append("the digest is another one")
    after = [list(row) for row in read(run / rundir.JOURNAL)]
    if kill.mode == "measured" and after[:len(before)] != before and not all(row in after for row in before):
        wrong.append("rows that had survived are not in it")
    return wrong


def cases(count: int) -> Iterator[int]:
    """0, 1, ... below `count`; after a Ctrl-C the case that is under way is the last."""
    enough = False

    def stop(*_: object) -> None:
        nonlocal enough
        enough = True

    before = signal.signal(signal.SIGINT, stop)
    try:
        for number in range(count):
            if enough:
                return
            yield number
    finally:
        signal.signal(signal.SIGINT, before)


def hunt(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """`count` kills: (what became of them, what was wrong)."""
    draw = random.Random(seed)
    names, outcomes, wrong = sorted(schemes.known()), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="emul-kills-") as name, Workers(2) as pool:
        home, references = Path(name), dict[tuple[str, str], Reference]()
        for number in cases(count):
            scheme, mode = names[number % len(names)], "measured" if draw.random() < 0.25 else "zero"
            ref = references.get((scheme, mode)) or reference(scheme, mode, home)
            references[scheme, mode] = ref
            early = draw.random() < EARLY
            kill = Kill(scheme, mode, draw.choice(VICTIMS), early,
                        draw.random() * (ref.begins_s if early else _LIVELY * ref.lasts_s))
            folder = home / str(number)
            folder.mkdir()
            found = cut_off(kill, ref, folder, f"{os.getpid()}-{number}")
            runs = list(left(folder))
            for run in runs:
                found += gone_on_with(run, kill, ref, pool)
            outcomes["resumed" if runs else "had ended" if list(folder.glob(f"runs/*/{rundir.SUMMARY}")) else
                     "had not begun"] += 1
            outcomes[f"{kill.victim} killed"] += 1
            wrong += [f"{kill}: {text}" for text in found]
    return outcomes, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    outcomes, wrong = hunt(arguments.count, arguments.seed)
    print(", ".join(f"{name}: {count}" for name, count in sorted(outcomes.items())))
    print("\n".join(wrong) or "nothing was wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
