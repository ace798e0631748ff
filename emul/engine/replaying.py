"""Read a run's record whole, compute the run again from its directory, and compare."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from emul.engine.costs import CostSource
from emul.engine.findings import drawn, facts, header, observed
from emul.engine.running import AnyPool, number_of_workers, pool_of
from emul.engine.session import execute, round_of
from emul.engine.wiring import wire
from emul.record import rundir, verify
from emul.record.journal import MemoryJournal
from emul.record.tables import recorded_costs
from emul.scenario import load


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
    count, size = number_of_workers(workers)
    wiring = wire(scenario, name, raw, size, plugins, costs)
    journal = MemoryJournal(header(wiring))
    with pool_of(count, scenario.workers.timeout_s) as pool:
        finished = execute(wiring, pool, journal, partial(
            round_of, step, f"computing {directory} again", scenario.stop.rounds))
    again = verify.Again(journal, facts(finished, journal.close()), observed(finished), wiring.network.latencies(),
                         wiring.network.unordered(), drawn(finished) if scenario.network.record else ())
    digest = verify.replayed(record, again)
    differ = verify.values_differ(record, again)
    if tell is not None and differ is not None:
        tell(differ)
    return digest
