"""A session: one run of one scheme, from what is wired to what it leaves in its directory."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from emul.base.errors import NotRecorded, RoleHangs, RunError, WorkerDied
from emul.base.files import strerror
from emul.base.plain import PlainDict
from emul.base.tracebacks import named
from emul.engine.costs import Charge
from emul.engine.findings import (
    Finished,
    charges,
    drawn,
    drop_later,
    facts,
    header,
    observed,
    samples_held,
    timed,
)
from emul.engine.keeping import Command, Keeping
from emul.engine.wiring import Wiring
from emul.kernel import Kernel, Recorder, run_to_end
from emul.network.positions import on_globe, positions
from emul.record import rundir
from emul.record.invariants import InvariantReport
from emul.record.journal import Journal
from emul.record.marks import diverged
from emul.record.progress import Progress
from emul.record.rundir import RunDirectory
from emul.record.side_tables import traffic_totals, write_contacts, write_positions, write_samples, write_traffic
from emul.record.summary import final_mean, write_results
from emul.roles.evaluation import kind_of
from emul.scenario import Scenario
from emul.workers.collections import KERNEL, ROLES, rare_collections, seldom
from emul.workers.patience import Overdue
from emul.workers.pool import Workers

Watch = Callable[[int, int, float | None], None]            # (round, virtual ns, newest accuracy)
Companion = Callable[[Path], contextlib.AbstractContextManager[None]]       # of a run directory, such as a logger


@dataclass(frozen=True)
class Result:
    """One scheme's run: its directory and summary, or why it failed. `scheme`: its label."""

    scheme: str
    directory: Path | None = None
    summary: PlainDict | None = None
    violations: tuple[str, ...] = ()
    error: str | None = None
    warnings: tuple[str, ...] = ()
    worker_died: bool = False
    charged: frozenset[Charge] = frozenset()            # the costs that it asked of the profile, if it has one


def execute(wiring: Wiring, pool: Any, journal: Recorder, progress: Callable[[Kernel], None] | None = None,
            directory: Path | None = None, recalled: Path | None = None) -> Finished:
    """Run what is wired, and write nothing. Raises RunError; the pool can take the next run afterwards, unless it lost
    a worker.

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
    except Overdue:                     # in a run without worker processes: they are ended by the pool
        pool.abort()
        raise RoleHangs(pool.watchdog.text) from None
    except Exception:                   # not at an interrupt: closing the pool must not wait for a computation
        pool.abort()
        raise
    used = pool.store_use if wiring.setups[0].store or wiring.setups[0].stored else None
    return Finished(kernel, observations, timings, pool.notes, pool.kept, time.perf_counter() - begin, used,
                    pool.fitted, wiring)


def round_of(tell: Callable[[str], None], step: str, rounds: int | None, kernel: Kernel) -> None:
    """Tell the round that a run has come to; `rounds`: how many it has, if that is known."""
    tell(f"{step}: round {kernel.entered}" + (f" of {rounds}" if rounds else ""))


@dataclass(frozen=True)
class Session:
    """One scheme of a scenario on an open pool.

    scenario: with this scheme alone. keeping: where trainings are kept. watch: told at the end of every round of a
    deciding node, in place of the progress line; quiet: there is no such line.
    """

    scenario: Scenario
    wiring: Wiring
    pool: Any
    keeping: Keeping
    quiet: bool = True
    watch: Watch | None = None

    def start(self, out: Path, command: Command, text: str, companions: Sequence[Companion] = (),
              recalled: Path | None = None) -> Result:
        """Run in a new directory below `out`. text: the scenario, resolved. companions: are entered with that directory
        while the run goes. recalled: as `run_in` takes it."""
        try:
            directory = rundir.create(out, self.scenario.name, self.wiring.label)
            with contextlib.ExitStack() as stack:       # companions see it end, and so are left after it
                for enter in companions:
                    stack.enter_context(enter(directory.path))
                stack.enter_context(directory.claimed())
                return self.run_in(directory, self._begun(directory, command, text), recalled=recalled)
        except NotRecorded as e:            # before anything ran
            return Result(self.wiring.label, error=named(e), warnings=tuple(self.wiring.warnings))

    def _begun(self, directory: RunDirectory, command: Command, text: str) -> Journal:
        """The journal of a new run, in its directory with all that it can be gone on with. Raises NotRecorded, and then
        there is no directory."""
        try:
            directory.write(rundir.SCENARIO, text)
            command.write(directory)
            return Journal(directory.journal, header(self.wiring))
        except (OSError, NotRecorded) as e:
            shutil.rmtree(directory.path, ignore_errors=True)
            why = str(e) if isinstance(e, NotRecorded) else f"{e.filename or directory.path}: {strerror(e)}"
            raise NotRecorded(why) from None

    def run_in(self, directory: RunDirectory, journal: Journal, ended: Callable[[], None] = lambda: None,
               recalled: Path | None = None) -> Result:
        """Run with this journal, and write into `directory` what the run left. ended: called before tables are made of
        the journal of a run that came to its end. recalled: the directory with its volatile results, if it has some."""
        with seldom(len(self.wiring.plan.names)):
            try:
                finished = self._executed(directory, journal, recalled)
                digest = journal.close(background=traffic_totals(finished.background))
                ended()
                summary, report = self._written(directory, finished, digest)
            except RunError as e:
                journal.close(complete=False)
                note_end(directory, named(e))
                return Result(self.wiring.label, directory.path, error=named(e), warnings=tuple(self.wiring.warnings),
                              worker_died=isinstance(e, WorkerDied))
            except BaseException as e:
                journal.close(complete=False)
                note_end(directory, (str(e) or "interrupted") if isinstance(e, KeyboardInterrupt) else named(e))
                raise
            self.keeping.completed(directory.path)
            profiled = self.scenario.compute.mode == "profile"
            use: Any = summary["real_store"] or {}
            unstored = use.get("failure")           # these trainings will be computed again
            return Result(self.wiring.label, directory.path, summary,
                          tuple(f"{v.name}: {v.detail}" for v in report.violations),
                          warnings=(*self.wiring.warnings, *_unanswered(self.wiring.label, summary),
                                    *([f"{self.wiring.label}: trainings: {unstored}"] if unstored else []),
                                    *(f"{self.wiring.label}: {line}" for line in diverged(summary))),
                          charged=frozenset(charges(self.wiring, finished.timings) if profiled else ()))

    def _executed(self, directory: RunDirectory, journal: Journal, recalled: Path | None) -> Finished:
        stop = self.scenario.stop
        setup = self.wiring.setups[0]
        progress = Progress(self.wiring.label, stop.rounds, stop.virtual_time_ns, self.quiet,
                            accuracy_of=kind_of(setup.accuracy_of, setup.evaluate_scope))

        def tell(kernel: Kernel) -> None:
            if kernel.round_ended:
                (self.watch or progress.update)(kernel.entered, kernel.now, self.pool.accuracy)
            elif self.watch is None:
                progress.silent(kernel.entered, kernel.now)

        try:
            finished = execute(self.keeping.applied(self.wiring, directory.path), self.pool, journal, tell,
                               directory.path, recalled)
            progress.ended(finished.kernel.entered, finished.kernel.end_ns, final_mean(observed(finished), "accuracy"))
            return finished
        finally:
            progress.done()

    def _written(self, directory: RunDirectory, finished: Finished,
                 digest: str) -> tuple[dict[str, object], InvariantReport]:
        """Tables and summary, written. Raises NotRecorded: they cannot be, and the journal has all of the run."""
        network = finished.wiring.network
        try:
            drop_later(finished, directory.path)
            write_samples(directory.path, samples_held(finished.wiring))
            write_traffic(directory.path, finished.background)
            until_ns = max(finished.kernel.end_ns, finished.kernel.now)
            write_contacts(directory.path, finished.plan, until_ns)
            write_positions(directory.path, positions(network, until_ns), on_globe(network))
            return write_results(directory, facts(finished, digest, directory.path), observed(finished),
                                 timed(finished), network.latencies(), network.unordered(),
                                 drawn(finished) if self.scenario.network.record else ())
        except OSError as e:
            raise NotRecorded(f"{e.filename or directory.path}: {strerror(e)}; the journal has all of the run: `emul "
                              "salvage` makes tables of it, `emul resume` all files") from None


def note_end(directory: RunDirectory, why: str) -> None:
    """Leave word of why a run ended, if the disk takes it."""
    with contextlib.suppress(OSError):
        directory.write(rundir.ERROR, f"{why}\n")


def _unanswered(label: str, summary: Mapping[str, object]) -> list[str]:
    """A warning of rounds that count as completed and in which nobody answered."""
    count, rounds = summary["rounds_unanswered"], summary["rounds"]
    return [f"{label}: in {count} of {rounds} completed rounds no message reached a node whose rounds count: the model "
            "is what it was before"] if count else []
