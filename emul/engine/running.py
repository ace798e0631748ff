"""Run what is wired: a scheme after the other on one pool of workers, a directory each."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec import structs

from emul.base.errors import NotRecorded, Problem, RunError, ScenarioError, WorkerDied
from emul.base.files import strerror
from emul.base.machine import cores
from emul.engine.costs import load_costs
from emul.engine.findings import drawn, drop_later, facts, header, latencies, observed, timed
from emul.engine.keeping import Command, Keeping, command_of
from emul.engine.wiring import Wiring, wire
from emul.kernel import Kernel, Recorder, run_to_end
from emul.learning import gpus
from emul.record import rundir
from emul.record.invariants import Report
from emul.record.journal import Journal
from emul.record.progress import Progress
from emul.record.summary import final_mean, write_results
from emul.roles.events import Observation
from emul.scenario import Scenario, chosen
from emul.workers.attacking import Note
from emul.workers.cluster import Cluster
from emul.workers.collections import KERNEL, ROLES, rare_collections, seldom
from emul.workers.core import StoreUse, Timing
from emul.workers.keeping import Kept
from emul.workers.pool import Workers
from emul.workers.twin import Twin

Watch = Callable[[int, int, float | None], None]
Places = int | Cluster | Workers | Twin | None
Beside = Callable[[Path], contextlib.AbstractContextManager[None]]


@dataclass(frozen=True)
class Finished:
    """What a run that ended left behind, before it is written anywhere."""

    kernel: Kernel
    observations: list[Observation]
    timings: list[Timing]
    notes: list[Note]
    kept: list[Kept]
    real_seconds: float
    store: StoreUse | None                  # what a store of trainings did; None: there was none
    wiring: Wiring = field(repr=False)


@dataclass(frozen=True)
class Result:
    """One scheme's run: its directory and summary, or why it failed. `scheme`: its label."""

    scheme: str
    directory: Path | None = None
    summary: dict[str, Any] | None = None
    violations: tuple[str, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    worker_died: bool = False


def execute(wiring: Wiring, pool: Any, journal: Recorder, progress: Callable[[Kernel], None] | None = None,
            directory: Path | None = None, recalled: Path | None = None) -> Finished:
    """Run it. Raises RunError; the pool can take the next run afterwards, unless it lost a worker.

    directory: of the run, for what its workers leave there; None: nothing is written. recalled: the directory of a run
    whose volatile results are taken, as far as it has them.
    """
    begin = time.perf_counter()
    home, before = ("" if path is None else str(path.resolve()) for path in (directory, recalled))
    try:
        with rare_collections(len(wiring.plan.names), KERNEL if isinstance(pool, Workers) else ROLES):
            pool.open([structs.replace(setup, directory=home, recalled=before) for setup in wiring.setups])
            pool.tell = journal.observed
            kernel = Kernel(wiring.plan, wiring.network, pool, journal, progress)
            run_to_end(kernel)
            observations, timings = pool.finish()
    except Exception:                   # not at an interrupt: closing the pool must not wait for a computation
        pool.abort()
        raise
    used = pool.store_use if wiring.setups[0].store or wiring.setups[0].stored else None
    return Finished(kernel, observations, timings, pool.notes, pool.kept, time.perf_counter() - begin, used, wiring)


def run(scenario: Scenario, *, scheme: str | None = None, workers: Places = None,
        out: Path = Path("runs"), plugins: Sequence[str] = (), quiet: bool = True,
        watch: Watch | None = None, keeping: Keeping | None = None, command: Command | None = None,
        places: Sequence[int] | None = None, beside: Sequence[Beside] = ()) -> list[Result]:
    """Run the schemes of a scenario, a directory each; one that fails does not stop the others.

    scheme: the label of the only one to run, or a name: all entries of that scheme.
    workers: a number of processes (0: none; None: one a core), a cluster, or an open pool. watch: told (round, virtual
    ns, newest accuracy) at the end of every round of a deciding node, in place of the progress line. keeping: where
    trainings are kept. command, places: of one that is gone on with, and which of its schemes. beside: context
    managers, entered with each run's directory while the run in it goes. Raises ScenarioError before anything runs if
    something is wrong with the files.
    """
    entries = chosen(scenario.schemes, scheme, str(scenario.path or scenario.name))
    keeping = keeping or (Keeping() if command is None else command.keeping)
    command = command or command_of(keeping, dataclasses.replace(scenario, schemes=entries).resolved(), plugins)
    places = range(len(entries)) if places is None else places
    entries = [entries[place] for place in places]
    count, size = number_of_workers(workers)
    _require_gpu(scenario, count)
    costs = load_costs(scenario)
    wirings = [wire(scenario, name, raw, size, plugins, costs) for name, raw in entries]
    results: list[Result] = []
    while len(results) < len(wirings):          # once, unless a pool of ours loses a worker: then a new one goes on
        with pool_of(count, scenario.workers.timeout_s) as pool:
            for place, entry, wiring in list(zip(places, entries, wirings, strict=True))[len(results):]:
                one = dataclasses.replace(scenario, schemes=[entry])
                results.append(_run_one(one, wiring, pool, out, dataclasses.replace(command, place=place), keeping,
                                        quiet, watch, beside))
                if isinstance(count, int | Cluster) and results[-1].worker_died:
                    break
    return results


def _require_gpu(scenario: Scenario, places: int | Cluster | Workers | Twin) -> None:
    """Raises ScenarioError: workers of this machine shall use a GPU, and it has none."""
    if scenario.compute.device == "cuda" and isinstance(places, int) and not gpus():
        raise ScenarioError(str(scenario.path or scenario.name), [
            Problem("compute.device", '"cuda"', "torch finds no GPU on this machine")])


def _run_one(scenario: Scenario, wiring: Wiring, pool: Any, out: Path, command: Command, keeping: Keeping,
             quiet: bool, watch: Watch | None, beside: Sequence[Beside]) -> Result:
    try:
        directory = rundir.create(out, scenario.name, wiring.label)
        with contextlib.ExitStack() as stack:       # those beside see it end, and so are left after it
            for enter in beside:
                stack.enter_context(enter(directory.path))
            stack.enter_context(directory.claimed())
            return run_into(directory, scenario, wiring, pool, _begun(directory, scenario, wiring, command), keeping,
                            quiet, watch)
    except NotRecorded as e:            # before anything ran
        return Result(wiring.label, error=_told(e), warnings=tuple(wiring.warnings))


def _begun(directory: rundir.RunDirectory, scenario: Scenario, wiring: Wiring, command: Command) -> Journal:
    """The journal of a new run, in its directory with all that it can be gone on with. Raises NotRecorded, and then
    there is no directory."""
    try:
        directory.write(rundir.SCENARIO, scenario.resolved())
        command.write(directory)
        return Journal(directory.journal, header(wiring))
    except (OSError, NotRecorded) as e:
        shutil.rmtree(directory.path, ignore_errors=True)
        why = str(e) if isinstance(e, NotRecorded) else f"{e.filename or directory.path}: {strerror(e)}"
        raise NotRecorded(why) from None


def run_into(directory: rundir.RunDirectory, scenario: Scenario, wiring: Wiring, pool: Any, journal: Journal,
             keeping: Keeping, quiet: bool = True, watch: Watch | None = None,
             ended: Callable[[], None] = lambda: None, recalled: Path | None = None) -> Result:
    """Run what is wired, with `journal`, and write what it left into `directory`. ended: called before tables are made
    of the journal of a run that came to its end. recalled: the directory with its volatile results, if it has some."""
    with seldom(len(wiring.plan.names)):
        return _run_into(directory, scenario, wiring, pool, journal, keeping, quiet, watch, ended, recalled)


def _run_into(directory: rundir.RunDirectory, scenario: Scenario, wiring: Wiring, pool: Any, journal: Journal,
              keeping: Keeping, quiet: bool, watch: Watch | None, ended: Callable[[], None], recalled: Path | None,
              ) -> Result:
    progress = Progress(wiring.label, scenario.stop.rounds, scenario.stop.virtual_time_ns, quiet)

    def tell(kernel: Kernel) -> None:
        if kernel.round_ended:
            (watch or progress.update)(kernel.entered, kernel.now, pool.accuracy)
        elif watch is None:
            progress.silent(kernel.entered, kernel.now)

    try:
        try:
            finished = execute(keeping.applied(wiring, directory.path), pool, journal, tell, directory.path, recalled)
            progress.ended(finished.kernel.entered, finished.kernel.end_ns, final_mean(observed(finished), "accuracy"))
        finally:
            progress.done()
        digest = journal.close()
        ended()
        summary, report = _written(directory, finished, digest, scenario.network.record)
    except RunError as e:
        journal.close(complete=False)
        _note_end(directory, _told(e))
        return Result(wiring.label, directory.path, error=_told(e), warnings=tuple(wiring.warnings),
                      worker_died=isinstance(e, WorkerDied))
    except BaseException as e:
        journal.close(complete=False)
        _note_end(directory, (str(e) or "interrupted") if isinstance(e, KeyboardInterrupt) else _told(e))
        raise
    keeping.completed(directory.path)
    return Result(wiring.label, directory.path, summary,
                  tuple(f"{v.name}: {v.detail}" for v in report.violations), warnings=tuple(wiring.warnings))


def _written(directory: rundir.RunDirectory, finished: Finished, digest: str, draws: bool,
             ) -> tuple[dict[str, Any], Report]:
    """Tables and summary, written. Raises NotRecorded: they cannot be, and the journal has all of the run."""
    network = finished.wiring.network
    try:
        drop_later(finished, directory.path)
        return write_results(directory, facts(finished, digest, directory.path), observed(finished),
                             timed(finished), latencies(network), network.unordered(),
                             drawn(finished) if draws else ())
    except OSError as e:
        raise NotRecorded(f"{e.filename or directory.path}: {strerror(e)}; the journal has all of the run: `emul "
                          "salvage` makes tables of it, `emul resume` all files") from None


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _note_end(directory: rundir.RunDirectory, why: str) -> None:
    """Leave word of why a run ended, if the disk takes it."""
    with contextlib.suppress(OSError):
        directory.write(rundir.ERROR, f"{why}\n")


def number_of_workers(workers: Places) -> tuple[int | Cluster | Workers | Twin, int]:
    """(what `pool_of` takes, how many workers to wire for); None: a worker a core."""
    count = cores() if workers is None else workers
    return count, max(1, count if isinstance(count, int) else count.workers)


@contextlib.contextmanager
def pool_of(workers: int | Cluster | Workers | Twin, timeout_s: float = 30.0) -> Iterator[Any]:
    """A pool to run on: the one given, which stays open, or one of that many workers (0: the in-process twin)."""
    if workers == 0:
        with Twin() as twin:
            yield twin
    elif isinstance(workers, int):
        with Workers(workers, timeout_s) as pool:
            yield pool
    elif isinstance(workers, Cluster):
        from emul.workers.actors import Actors

        with Workers(workers.workers, timeout_s, Actors(workers)) as pool:
            yield pool
    else:
        yield workers
