"""A run computed again from its directory: gone on with after an interrupt or a kill (`resume`), with the trainings
that it has kept, or only to compare (`replay`).

The journal of a resumed run is written anew beside the old one and takes its name once the run has ended. Every row
that had survived must be in it: a resumed run is the run that would have been.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from emul.base.errors import EmulError
from emul.base.names import listed
from emul.base.rows import Row
from emul.engine.costs import CostSource, load_costs
from emul.engine.findings import drawn, facts, header, observed
from emul.engine.keeping import begun, read_command
from emul.engine.running import AnyPool, pool_of, run, wired
from emul.engine.session import Result, Session, Watch, execute, round_of
from emul.engine.wiring import wire
from emul.record import rundir, verify
from emul.record.journal import Journal, MemoryJournal, RecordError, read
from emul.record.tables import recorded_costs
from emul.record.verify import first_difference
from emul.scenario import Scenario, load, loads


class ResumeMismatch(EmulError):
    """A run did otherwise when it was gone on with: the code, the data or the machine is another one."""


def resume(directory: Path, workers: AnyPool = None, plugins: Sequence[str] | None = None,
           quiet: bool = True, watch: Watch | None = None) -> list[Result]:
    """Go on with the run in `directory`, then with the schemes that its command had not begun.

    plugins: the modules of the command, which its directory does not import by itself. Raises RecordError: there is no
    such run, it has ended, or is running; ResumeMismatch: it did otherwise than before, and both journals are left.
    """
    if not (directory / rundir.JOURNAL).is_file():
        raise RecordError(f"{directory}: no directory of a run: it has no journal")
    command = read_command(directory)
    there = rundir.RunDirectory(directory)
    modules = rundir.plugins_of(directory, plugins)
    results: list[Result] = []
    if not there.complete:
        with there.claimed():
            for _ in read(there.journal).chunks():      # damaged: say so before anything is computed
                pass
            results.append(_go_on(there, workers, modules, quiet, watch))
    rest = loads(command.scenario, str(directory / rundir.COMMAND), plugins=modules)
    others = begun(directory.parent, command)
    missing = [place for place in range(command.place, len(rest.schemes)) if place not in others]
    if not results and (not missing or any(rundir.RunDirectory(path).running for path in others.values())):
        raise RecordError(f"{directory}: the run has ended; there is nothing to go on with")
    for place in missing:
        results += run(rest, workers=workers, out=directory.parent, plugins=modules, quiet=quiet, watch=watch,
                       command=command, which=[place])
    return results


def _go_on(there: rundir.RunDirectory, workers: AnyPool, plugins: Sequence[str], quiet: bool,
           watch: Watch | None) -> Result:
    scenario = load(there.path / rundir.SCENARIO, plugins=plugins)
    name, raw = scenario.schemes[0]
    costs = None
    if scenario.compute.mode == "measured":         # the costs measured before, then those of now
        costs = replace(load_costs(scenario), recorded=recorded_costs(there.path))
    count, (wiring,) = wired(workers, lambda size: [wire(scenario, name, raw, size, plugins, costs)])
    path = there.path / rundir.RESUMED
    # of a resumption that was killed in its turn, of the failure, of tables that were being written
    for stale in (path, there.path / rundir.ERROR, *there.path.rglob(".*.tmp")):
        stale.unlink(missing_ok=True)

    def ended() -> None:
        _require_survived(there.journal, path)
        os.replace(path, there.journal)

    with pool_of(count, scenario.workers.timeout_s) as pool:
        session = Session(scenario, wiring, pool, read_command(there.path).keeping, quiet, watch)
        return session.run_in(there, Journal(path, header(wiring)), ended, there.path)


def _require_survived(old: Path, new: Path) -> None:
    """Every row of the old journal is in the new one. Raises ResumeMismatch with the first that is not.

    Up to the last time before which nothing was open they are its first rows; a worker that died leaves rows beyond it,
    of nodes that were ahead of others.
    """
    surviving, fresh = read(old), read(new)
    ahead: list[Row] = []
    rest: list[Row] = []
    for row in surviving:
        other = next(fresh, None)
        if other is None or list(row) != list(other):
            ahead = [row, *surviving]
            rest = [*([] if other is None else [other]), *fresh]
            break
    end = max((row[1] for row in rest), default=0)
    missing = _encoded(row for row in ahead if row[1] <= end)       # rows after the end belong to no run
    missing.subtract(_encoded(rest))
    if any(count > 0 for count in missing.values()):
        again = read(old)
        raise ResumeMismatch(f"{old.parent}: it did otherwise than before (the new journal is {new.name}): "
                             f"{first_difference(again, read(new), again.header)}")


def _encoded(rows: Iterable[Row]) -> Counter[bytes]:
    return Counter(msgspec.msgpack.encode(row) for row in rows)


def on_network_of(plan: Scenario, directory: Path) -> Scenario:
    """The scenario with the loop of a run, which is to be taken from its record (`run(recalled=...)`). Raises
    RecordError: it is no run of a loop, or one of other nodes."""
    entries = load(directory / rundir.SCENARIO, check=False).schemes
    found = replace(plan, schemes=entries)
    wiring = wire(found, *entries[0])
    if not wiring.scheme.guided:
        raise RecordError(f"{directory}: a run of {entries[0][0]}, and the scenario is a network for a loop: "
                          "expected the run of a loop")
    names = cast(list[str], read(directory / rundir.JOURNAL).header["names"])
    if names != list(wiring.plan.names):
        raise RecordError(f"{directory}: the loop's nodes are {listed(names, 5)}, and this network has "
                          f"{listed(wiring.plan.names, 5)}: its decisions are not known for others")
    return found


def replay(directory: Path, workers: AnyPool = None, plugins: Sequence[str] = (),
           tell: Callable[[str], None] | None = None, step: Callable[[str], None] = lambda step: None) -> str:
    """Read the record in `directory` whole and compute the run again; its digest.

    Of a run that cannot repeat itself, decisions, sizes, times and fates are compared; `tell` is told where values
    first differ, which is no failure. step: is told how far it has come.
    Raises RecordError where there is no run that ended, ReplayMismatch with all that is damaged or differs, and where.
    """
    record = verify.open_record(directory)
    plugins = rundir.plugins_of(directory, plugins)
    scenario = load(directory / rundir.SCENARIO, plugins=plugins)
    name, raw = scenario.schemes[0]
    costs = None
    if scenario.compute.mode == "measured":         # the costs measured then are charged now
        costs = CostSource("recorded", recorded=recorded_costs(directory))
    count, (wiring,) = wired(workers, lambda size: [wire(scenario, name, raw, size, plugins, costs)])
    journal = MemoryJournal(header(wiring))
    with pool_of(count, scenario.workers.timeout_s) as pool:
        finished = execute(wiring, pool, journal, partial(
            round_of, step, f"computing {directory} again", None if wiring.scheme.guided else scenario.stop.rounds),
            recalled=directory if wiring.scheme.guided else None)
    again = verify.Again(journal, facts(finished, journal.close()), observed(finished), wiring.network.latencies(),
                         wiring.network.unordered(), drawn(finished) if scenario.network.record else ())
    digest = verify.replayed(record, again)
    differ = verify.values_differ(record, again)
    if tell is not None and differ is not None:
        tell(differ)
    return digest
