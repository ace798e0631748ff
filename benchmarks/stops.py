"""Runs that get a signal while they go on: killed, terminated, interrupted, or stopped for a while; see
`benchmarks.damage`.

In every case the command ends, leaves no process, socket or folder, and says why; what was computed until then is
read. A worker that is stopped for longer than `workers.timeout` is given up, and a run that was stopped as a whole and
goes on is the run that it would have been.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kills import DONE, MARK, Reference, cases, command, left_processes, processes, reference, until_begun
from emul.base.errors import EmulError
from emul.record import rundir, salvage

SCHEMES = ("fedavg", "secagg", "fedproto")
TIMEOUT_S = 4.0                     # of workers that give no sign of life
INTERRUPTED = (130, -2)             # a shell says 130 of both: Python ends itself by SIGINT if an import was cut off
_END_S = 60.0


@dataclass(frozen=True)
class Stop:
    """The signal, its receiver, and the exit codes that are right for a run that had not ended."""

    name: str
    act: Callable[[subprocess.Popen[str], list[int]], None]     # (the command, its other processes)
    codes: tuple[int, ...]
    why: str = ""                   # what the run directory must say of why it ended; "": nothing is known
    early: bool = False             # while its workers start, before there is a journal


def _send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _worker(others: list[int]) -> list[int]:
    """A worker, if there still is one: the server that forks them is no worker, and nobody waits for it."""
    parents = {}
    for pid in others:
        with suppress(OSError):
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in parents.items() if parent in parents][-1:]


def _killed_worker(run: subprocess.Popen[str], others: list[int]) -> None:
    _send(_worker(others), signal.SIGKILL)


def _killed(run: subprocess.Popen[str], others: list[int]) -> None:
    _send([run.pid], signal.SIGKILL)


def _terminated(run: subprocess.Popen[str], others: list[int]) -> None:
    _send([run.pid], signal.SIGTERM)


def _interrupted(run: subprocess.Popen[str], others: list[int]) -> None:
    _send([*others, run.pid], signal.SIGINT)        # Ctrl-C reaches all of them


def _stopped_worker(run: subprocess.Popen[str], others: list[int]) -> None:
    _send(_worker(others), signal.SIGSTOP)


def _worker_stopped_for_a_moment(run: subprocess.Popen[str], others: list[int]) -> None:
    worker = _worker(others)
    _send(worker, signal.SIGSTOP)
    time.sleep(TIMEOUT_S / 4)
    _send(worker, signal.SIGCONT)


def _all_stopped_for_long(run: subprocess.Popen[str], others: list[int]) -> None:
    _send([run.pid, *others], signal.SIGSTOP)       # Ctrl-Z
    time.sleep(1.5 * TIMEOUT_S)
    _send([run.pid, *others], signal.SIGCONT)


def _stopped_then_killed(run: subprocess.Popen[str], others: list[int]) -> None:
    _send([run.pid], signal.SIGSTOP)
    time.sleep(0.2)
    _send([run.pid], signal.SIGKILL)


STOPS = (Stop("worker killed", _killed_worker, (1,), "WorkerDied"), Stop("killed", _killed, (-9,)),
         Stop("terminated", _terminated, (143,), "terminated"),
         Stop("interrupted", _interrupted, INTERRUPTED, "interrupted"),
         Stop("interrupted at its start", _interrupted, INTERRUPTED, "interrupted", early=True),
         Stop("worker stopped", _stopped_worker, (1,), "WorkerDied"),
         Stop("worker stopped for a moment", _worker_stopped_for_a_moment, (0,)),
         Stop("all stopped for long", _all_stopped_for_long, (0,)),
         Stop("stopped, then killed", _stopped_then_killed, (-9,)))


def ended(stop: Stop, ref: Reference, folder: Path, mark: str, after_s: float) -> tuple[int, list[str]]:
    """Run and stop. (exit code, what is wrong with what is left)."""
    scratch = folder / "tmp"
    scratch.mkdir(parents=True)
    run = subprocess.Popen(command(ref.scenario, folder / "runs"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, env={**os.environ, MARK: mark, "TMPDIR": str(scratch)})
    if stop.early:
        while run.poll() is None and len(processes(mark)) < 2:
            time.sleep(0.005)
    else:
        until_begun(folder / "runs", run)
    time.sleep(after_s)
    stop.act(run, [pid for pid, is_command in processes(mark) if not is_command])
    wrong = []
    try:
        _, said = run.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        wrong.append("the command did not end")
        _send([pid for pid, _ in processes(mark)], signal.SIGKILL)      # they hold what it prints to
        _, said = run.communicate()
    if "Traceback" in said:
        wrong.append(said)
    wrong += [f"process {pid} was left" for pid in left_processes(mark, _END_S)]
    wrong += [f"{path} was left" for path in scratch.rglob("*")]
    return run.returncode, wrong


def left_wrong(stop: Stop, code: int, ref: Reference, folder: Path) -> Iterator[str]:
    """The mistake in the run directory: it had ended, or it is read and says why it did not."""
    if not (folder / "runs").is_dir():
        if code not in stop.codes:
            yield f"exit code {code}"
        return
    (run,) = (folder / "runs").iterdir()
    yield from (f"{path} was left" for path in run.rglob(".*.tmp") if code != -9)
    if not (run / rundir.INCOMPLETE).exists():
        if json.loads((run / rundir.SUMMARY).read_text())["digest"] != ref.digest:
            yield "the digest is another one"
        return
    if code not in stop.codes:
        yield f"exit code {code}"
    try:
        why = salvage.write(run)["incomplete"]["why"]
    except EmulError as e:
        yield f"{type(e).__name__}: {e}"
        return
    if stop.why not in why:
        yield f"the run says that it ended since {why!r}"


def hunt(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """`count` runs, each kind of end as often as the others: (what was done, what was wrong)."""
    draw = random.Random(seed)
    outcomes, wrong = Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="emul-stops-") as name:
        home, references = Path(name), dict[str, Reference]()
        for number in cases(count):
            outcomes[DONE] += 1
            stop, scheme = STOPS[number % len(STOPS)], draw.choice(SCHEMES)
            ref = references.get(scheme) or reference(scheme, "zero", home, f"workers: {{timeout: {TIMEOUT_S} s}}\n")
            references[scheme] = ref
            folder = home / str(number)
            after_s = draw.random() * (ref.begins_s / 2 if stop.early else ref.lasts_s)
            code, found = ended(stop, ref, folder, f"{os.getpid()}-{number}", after_s)
            found += left_wrong(stop, code, ref, folder)
            outcomes[f"{stop.name}: exit {code},"] += 1
            wrong += [f"{stop.name} {number}, {scheme}: {text}" for text in found]
    return outcomes, wrong
