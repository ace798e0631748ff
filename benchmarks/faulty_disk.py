"""A disk that fails at any operation of a run, a resumption, a store, a sweep or a report; nothing wrong may stay.

    python -m benchmarks.faulty_disk                    # every point of failure of each command
    python -m benchmarks.faulty_disk --sample 20        # so many of each command and kind of failure

The command runs once to count its operations below one folder: write, fsync, rename, mkdir, open to write, mmap. Then
it runs once for each operation and kind of failure: the disk is full from there on, that operation fails with EIO, a
write takes half of its bytes, or the process is killed there, with what it had not handed to the system. Afterwards:

- an error is one typed line on stderr (exit code 1 or 2), never a traceback; a short write is no error;
- no file stands half-written under its final name: everything that has a summary or a seal is read whole;
- a run goes on with `emul resume` to the digest of the run that met no failure.

Some points would only repeat others, and are left out: a short write where nothing is written, a disk that is full
where nothing takes space (the next operation that does is the same point), a process killed after a sync or a map,
which leave the files as they were. Where two points leave the same files, `emul resume` goes on from them once: a
file under a temporary name counts as its name, since nobody reads it.

The failing disk is a library that is loaded before libc (`faulty_disk.c`), so Arrow and safetensors meet it, too.
One process imports emul and forks for each point, so that a point costs the command alone.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("faulty_disk.c")
KINDS = {"full": 1, "broken": 2, "short": 3, "killed": 4}
SCENARIO = """
emul: 1
name: small
seed: 5
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
record: {models: 2}
schemes: [fedavg]
stop: {rounds: 4}
"""
UNLIKE = r"timings\.parquet$|command\.json$|[^/]+\.segment$"      # real times, and what is drawn for a run
RUN = ("run", "small.yaml", "--quiet", "--workers", "0", "--out", "runs")


@dataclass(frozen=True)
class Case:
    """A command whose disk fails: `before` are commands that met a sound disk."""

    name: str
    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    cut: int = 0                        # > 0: `before` is killed at this operation: there is something to resume


CASES = (
    Case("run", RUN),
    Case("resume", ("resume", "runs/small-fedavg-1", "--quiet", "--workers", "0"), (RUN,), cut=20),
    Case("store", (*RUN, "--store", "store")),
    Case("sweep", ("sweep", "small.yaml", "--seeds", "5:7", "--quiet", "--workers", "0", "--out", "study")),
    Case("report", ("report", "runs/small-fedavg-1"), (RUN,)),
)


def library(folder: Path) -> Path:
    """The failing disk, compiled. Raises FileNotFoundError: there is no C compiler."""
    made = folder / "faulty_disk.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(made), str(SOURCE), "-ldl"], check=True)
    return made


class Disk:
    """Runs commands in forks of this process, on a disk that fails there alone."""

    def __init__(self, home: Path):
        self.home = home
        self._library = ctypes.CDLL(None)               # what was loaded before libc
        self._library.faulty_count.restype = ctypes.c_long
        self._library.faulty_letters.restype = ctypes.c_char_p

    def run(self, command: tuple[str, ...], folder: Path, at: int = 0, kind: str = "full") -> tuple[int, str, str]:
        """(exit code, or minus the signal; stderr; a letter for each operation) of `emul COMMAND` in `folder`."""
        said, counted = self.home / "stderr", self.home / "operations"
        counted.write_text("")
        child = os.fork()
        if child == 0:
            self._child(command, folder, at, kind, said, counted)
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status), said.read_text(errors="replace"), counted.read_text()

    def _child(self, command: tuple[str, ...], folder: Path, at: int, kind: str, said: Path, counted: Path) -> None:
        code = 1
        try:
            os.chdir(folder)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.argv = ["emul", *command]
            from emul import cli

            self._library.faulty_arm(str(folder).encode(), ctypes.c_long(at), KINDS[kind])
            cli.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stderr.flush()
            operations = self._library.faulty_letters()[:self._library.faulty_count()]
            self._library.faulty_arm(b"", 0, 0)
            counted.write_bytes(operations)
            os._exit(code)

    def warm(self, command: tuple[str, ...], folder: Path) -> None:
        """Do the command in this process: later forks begin with what it has imported and keeps."""
        from emul import cli

        before = sys.argv, os.getcwd()
        os.chdir(folder)
        sys.argv = ["emul", *command]
        try:
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
                cli.main()
        except SystemExit as end:
            if end.code:
                raise RuntimeError(f"emul {' '.join(command)}: {end.code}") from None
        finally:
            sys.argv = before[0]
            os.chdir(before[1])


def points_of(operations: str, kind: str) -> list[int]:
    """The operations, from 1 on, at which a failure of this kind is another one than at the operations before."""
    if kind in ("short", "full"):
        return [at for at, letter in enumerate(operations, 1) if letter in ("w" if kind == "short" else "wdc")]
    same = "sm" if kind == "killed" else ""
    return [at for at, before in enumerate(f" {operations[:-1]}", 1) if before not in same]


def whole(folder: Path) -> list[str]:
    """Files below `folder` that are not whole, and temporary ones that nobody will remove."""
    import pandas as pd
    import pyarrow.parquet as parquet

    from emul.record import rundir

    wrong = []
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name.startswith("."):
            continue
        try:
            if path.suffix == ".json":
                json.loads(path.read_text())
            elif path.suffix == ".parquet":
                parquet.read_table(path)
            elif path.suffix == ".csv":
                pd.read_csv(path)
            elif path.suffix == ".html" and not path.read_text().rstrip().endswith("</html>"):
                raise ValueError("is cut")
        except Exception as error:
            wrong.append(f"{path.relative_to(folder)}: half-written: {' '.join(str(error).split())[:100]}")
        if path.name == rundir.SEAL and not (path.parent / rundir.INCOMPLETE).exists():
            names = [name for name in json.loads(path.read_text())["files"]]
            try:
                rundir.check_seal(path.parent, names)
            except Exception as error:
                wrong.append(str(error))
    return wrong


def state(folder: Path) -> tuple[tuple[str, bytes], ...]:
    """The files below `folder`: a digest of each, the size of one that no two runs have alike, and the names of folders
    and temporary files, without the numbers of processes."""
    found = []
    for path in folder.rglob("*"):
        name = re.sub(r"\.\d+\.tmp", ".tmp", str(path.relative_to(folder)))
        content = b"" if path.is_dir() or ".tmp" in name else path.read_bytes()
        if content and (unlike := re.search(UNLIKE, name)):
            name, content = name[:unlike.start()], b"%d bytes" % len(content)
        found.append((name, hashlib.sha256(content).digest()))
    return tuple(sorted(found))


def mistakes(kind: str, code: int, said: str, folder: Path, before: Path) -> list[str]:
    """The mistakes that a command whose disk has failed has made. before: a copy of `folder` as it was, in which a run
    that was killed may have left temporary files."""
    wrong = [] if kind == "killed" and code == -9 else [
        f"traceback: {said.strip().splitlines()[-1]}"] if "Traceback" in said else []
    if code not in ((0, -9) if kind == "killed" else (0,) if kind == "short" else (0, 1, 2)):
        wrong.append(f"exit code {code}: {said.strip()[-200:]}")
    if code in (1, 2) and not said.strip():
        wrong.append("fails without a word")
    if kind != "killed":
        wrong += [f"{path.relative_to(folder)} was left" for path in folder.rglob(".*.tmp")
                  if not (before / path.relative_to(folder)).exists()]
    return wrong + whole(folder)


def digests(folder: Path) -> dict[str, str]:
    """run -> digest of each run below `folder` that has ended."""
    return {str(path.parent.relative_to(folder)): json.loads(path.read_text())["digest"]
            for path in sorted(folder.rglob("summary.json")) if not (path.parent / "INCOMPLETE").exists()}


def gone_on_with(disk: Disk, case: Case, folder: Path, expected: dict[str, str]) -> list[str]:
    """Do on a sound disk what a user would do then. Returns the mistakes in what comes out."""
    again = [case.command]
    if case.name in ("run", "store", "resume"):
        left = [path.parent for path in folder.glob("runs/*/INCOMPLETE")]
        again = [("resume", str(path.relative_to(folder)), "--quiet", "--workers", "0") for path in left
                 if (path / "journal").exists()]
    wrong = []
    for command in again:
        code, said, _ = disk.run(command, folder)
        begun = "no directory of a run" not in said and "header is missing" not in said
        if code and begun:
            wrong.append(f"`emul {' '.join(command[:2])}` afterwards: {code}: {said.strip()[-300:]}")
    found = digests(folder)
    wrong += [f"{run}: digest {digest}, expected {expected[run]}" for run, digest in found.items()
              if expected.get(run, digest) != digest]
    if case.name == "sweep" and found != expected:
        wrong.append(f"cells {sorted(found)}, expected {sorted(expected)}")
    return wrong + whole(folder)


def begin(disk: Disk, case: Case, folder: Path) -> None:
    """Make `folder` with what stands before the command."""
    folder.mkdir()
    (folder / "small.yaml").write_text(SCENARIO)
    for command in case.before:
        code, said, _ = disk.run(command, folder, case.cut, "killed")
        if code != (-9 if case.cut else 0):
            raise RuntimeError(f"{case.name}: emul {' '.join(command)}: {code}: {said}")


def hunt(home: Path, sample: int, seed: int, names: tuple[str, ...] = (),
         each: Callable[[str], None] = lambda text: None) -> tuple[Counter[str], list[str]]:
    """(points by command, mistakes). sample: points of each command and kind; 0: all. In a process whose disk
    fails: see `main`."""
    disk, draw = Disk(home), random.Random(seed)
    points, wrong = Counter[str](), list[str]()
    for case in CASES:
        if names and case.name not in names:
            continue
        begin(disk, case, home / "template")
        sound, here = home / "sound", home / "here"
        for folder in (here, sound):
            shutil.copytree(home / "template", folder)
        disk.warm(case.command, here)
        code, said, operations = disk.run(case.command, sound)
        if code:
            raise RuntimeError(f"{case.name} on a sound disk: {code}: {said}")
        expected, sound_states = digests(sound), set[tuple[tuple[str, bytes], ...]]()
        for kind in KINDS:
            every = points_of(operations, kind)
            for at in every if not sample else sorted(draw.sample(every, min(sample, len(every)))):
                folder = home / "there"
                shutil.copytree(home / "template", folder)
                code, said, _ = disk.run(case.command, folder, at, kind)
                found, left = mistakes(kind, code, said, folder, home / "template"), state(folder)
                if not found and left not in sound_states:
                    found = gone_on_with(disk, case, folder, expected)
                    sound_states |= set() if found else {left}
                points[case.name] += 1
                place = f"{case.name}, operation {at} of {len(operations)} {kind}"
                wrong += (lines := [f"{place}: {text}" for text in found])
                for line in lines:
                    each(line)
                shutil.rmtree(folder)
        for folder in (home / "template", here, sound):
            shutil.rmtree(folder)
    return points, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=0, help="points of each command and kind of failure; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands, with commas")
    arguments = parser.parse_args()
    if "faulty_disk" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory(prefix="emul-disk-") as name:
            code = subprocess.run([sys.executable, "-m", "benchmarks.faulty_disk", *sys.argv[1:]], check=False, env={
                **os.environ, "LD_PRELOAD": str(library(Path(name))), "OMP_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1"}).returncode
        sys.exit(code)
    with tempfile.TemporaryDirectory(prefix="emul-disk-") as name:
        points, wrong = hunt(Path(name).resolve(), arguments.sample, arguments.seed,
                             tuple(filter(None, arguments.only.split(","))), lambda line: print(line, flush=True))
    print(", ".join(f"{name}: {count} points" for name, count in points.items()), f"{len(wrong)} mistakes", sep="; ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
