"""Disks that are full, read-only, or gone while a run writes to them; see `benchmarks.damage`.

A disk that is full is a limit on the size of files (RLIMIT_FSIZE) or, where this user may mount one, a small tmpfs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.kills import DONE, MARK, cases, command, processes, until_begun
from emul import engine
from emul.base.errors import EmulError
from emul.record import rundir, salvage
from emul.registry import schemes
from emul.scenario import Scenario, loads

_END_S = 300.0


@dataclass(frozen=True)
class Place:
    """The place of one case: its own folder, the scenario as a file and read, and what a whole run leaves."""

    folder: Path
    file: Path
    scenario: Scenario
    whole: Path
    digest: str
    mark: str
    draw: random.Random

    def emul(self, *args: str, limit: int | None = None,
             stdout: int | IO[str] = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
        """A command that can write files of `limit` bytes."""
        return subprocess.run(args, text=True, stdout=stdout, stderr=subprocess.PIPE,
                              check=False, timeout=_END_S, env=self.environment, preexec_fn=_limited(limit))

    @property
    def environment(self) -> dict[str, str]:
        # Python does not notice that a file of compiled code was cut short: no later process could read it
        return {**os.environ, MARK: self.mark, "TMPDIR": str(self.folder / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, out: Path) -> list[str]:
        """`emul run` with or without worker processes."""
        return [*command(self.file, out)[:-3], self.draw.choice(("0", "1", "2")), "--out", str(out)]

    def begun(self) -> Path:
        """A run in `out` that was interrupted."""
        with contextlib.suppress(KeyboardInterrupt):
            engine.run(self.scenario, workers=0, out=self.folder / "out", watch=_interrupt)
        return next((self.folder / "out").iterdir())


def _interrupt(round_: int, now_ns: int, accuracy: float | None) -> None:
    if round_ == 2:
        raise KeyboardInterrupt


def _limited(limit: int | None) -> Callable[[], None] | None:
    if limit is None:
        return None

    def apply() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    return apply


# --- cases: what they are given, and the exit codes that are right ---------------------------------------------------

Codes = tuple[int, ...]
Case = Callable[[Place], tuple[subprocess.CompletedProcess[str], Codes]]


def _bytes(draw: random.Random, most: int) -> int:
    """From none to `most`, as often below a tenth of it as above."""
    return int(most ** draw.random()) - 1


def full_while_it_runs(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    limit = _bytes(place.draw, 60_000)
    return place.emul(*place.run(place.folder / "out"), limit=limit), (0, 1)


def full_disk(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    size = 4096 * (1 + _bytes(place.draw, 60))
    out = place.folder / "out"
    with mounted(out, size) as there:
        if not there:
            return full_while_it_runs(place)
        done = place.emul(*place.run(out))
        shutil.copytree(out, place.folder / "kept")
    out.rmdir()
    (place.folder / "kept").rename(out)
    return done, (0, 1)


def full_when_resumed(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    run = place.begun()
    return place.emul(*_emul("resume", str(run), "--quiet", "--workers", "0"),
                      limit=_bytes(place.draw, 60_000)), (0, 1)


def full_when_salvaged(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    return place.emul(*_emul("salvage", str(place.begun())), limit=_bytes(place.draw, 8_000)), (0, 1, 2)


def full_when_reported(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    what = place.draw.choice((("report", "-o"), ("export", "--perfetto")))
    file = str(place.folder / "file")
    return place.emul(*_emul(what[0], str(place.whole), what[1], file), limit=_bytes(place.draw, 2000)), (1, 2)


def nowhere_to_write(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    (place.folder / "file").write_text("")
    out = place.draw.choice(("/proc/emul", str(place.folder / "file"), str(place.folder / "file" / "below")))
    whole = str(place.whole)
    args = place.draw.choice((place.run(Path(out)), _emul("report", whole, "-o", f"{out}/x.html"),
                              _emul("export", whole, "--perfetto", f"{out}/x.json")))
    return place.emul(*args), (1, 2)


def gone_while_it_runs(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    out = place.folder / "out"
    args = place.run(out)
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place.environment,
                          text=True) as run:
        until_begun(out, run)
        time.sleep(place.draw.random() * 0.3)
        shutil.rmtree(out, ignore_errors=True)
        said, wrong = run.communicate(timeout=_END_S)
    shutil.rmtree(out, ignore_errors=True)
    return subprocess.CompletedProcess(args, run.returncode, said, wrong), (0, 1, 2)


def two_runs_in_one_place(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    args = place.run(place.folder / "out")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place.environment) as other:
        done = place.emul(*args)
        other.communicate(timeout=_END_S)
    ended = len(list((place.folder / "out").glob(f"*/{rundir.SUMMARY}")))
    if other.returncode or ended != 2:
        done.stderr += f"Traceback: the other ended with {other.returncode}, {ended} runs have ended"
    return done, (0,)


def two_resume_one_run(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    args = _emul("resume", str(place.begun()), "--quiet", "--workers", "0")
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place.environment) as other:
        done = place.emul(*args)
        other.communicate(timeout=_END_S)
    if 0 not in (done.returncode, other.returncode):
        done.stderr += "Traceback: neither has gone on with it"
    return done, (0, 2)


def no_room_for_what_is_printed(place: Place) -> tuple[subprocess.CompletedProcess[str], Codes]:
    with open("/dev/full", "w") as full:
        return place.emul(*_emul("run", str(place.file), "--workers", "0", "--out", str(place.folder / "out")),
                          stdout=full), (1,)


CASES: tuple[Case, ...] = (full_while_it_runs, full_disk, full_when_resumed, full_when_salvaged, full_when_reported,
                           nowhere_to_write, gone_while_it_runs, two_runs_in_one_place, two_resume_one_run,
                           no_room_for_what_is_printed)


def _emul(*args: str) -> list[str]:
    return [*command(Path(), Path())[:3], *args]


@contextlib.contextmanager
def mounted(path: Path, size: int) -> Iterator[bool]:
    """A disk of `size` bytes at `path`. False: this user may not mount one."""
    path.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)], check=False,
                          capture_output=True) if shutil.which("mount") else None
    there = done is not None and done.returncode == 0
    if not there:
        path.rmdir()
    try:
        yield there
    finally:
        if there:
            subprocess.run(["umount", str(path)], check=True, capture_output=True)


# --- what is looked at afterwards -------------------------------------------------------------------------------------

def left_wrong(place: Place) -> Iterator[str]:
    """Things that a case left and should not have left."""
    yield from (f"process {pid} was left" for pid, _ in processes(place.mark))
    yield from (f"{path} was left" for path in (place.folder / "tmp").rglob("*"))
    for run in sorted((place.folder / "out").glob("*")):
        yield from (f"{path} was left" for path in run.rglob(".*.tmp"))
        if (run / rundir.INCOMPLETE).exists():
            yield from _of_unfinished(place, run)
        elif json.loads((run / rundir.SUMMARY).read_text())["digest"] != place.digest:
            yield f"{run.name}: the digest is another one"


def _of_unfinished(place: Place, run: Path) -> Iterator[str]:
    """It is read, and can be gone on with to the digest of a whole run."""
    try:
        salvage.unfinished(run)
        (result,) = engine.resume(run, workers=0)
    except EmulError as e:
        yield f"{run.name}: {type(e).__name__}: {e}"
        return
    if result.summary is None or result.summary["digest"] != place.digest:
        yield f"{run.name}: resumed to {result.error or 'another digest'}"


def hunt(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """`count` cases, each kind as often as the others: (what was done, what was wrong)."""
    draw = random.Random(seed)
    outcomes, wrong = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="emul-disks-") as name:
        home = Path(name)
        file = home / "fedavg.yaml"
        file.write_text(schemes.find("fedavg").example + "record: {models: 1, payloads: [Update]}\n")
        scenario = loads(file.read_text(), "fedavg")
        (whole,) = engine.run(scenario, workers=0, out=home / "whole")
        assert whole.directory is not None
        assert whole.summary is not None
        for number in cases(count):
            outcomes[DONE] += 1
            case = CASES[number % len(CASES)]
            folder = home / str(number)
            (folder / "tmp").mkdir(parents=True)
            place = Place(folder, file, scenario, whole.directory, str(whole.summary["digest"]),
                          f"{os.getpid()}-{number}", draw)
            done, right = case(place)
            found = [] if done.returncode in right else [f"exit code {done.returncode}"]
            found += ["a traceback"] if "Traceback" in done.stderr else []
            found = [f"{one}: {done.stderr}" for one in found] + list(left_wrong(place))
            outcomes[f"{case.__name__.replace('_', ' ')}: exit {done.returncode},"] += 1
            wrong += [f"disk case {number} ({case.__name__}, {done.args}): {text}" for text in found]
            shutil.rmtree(folder, ignore_errors=True)
    return outcomes, wrong
