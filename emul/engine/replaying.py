"""Compute a run again from its directory, and compare."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from emul.base.errors import ReplayMismatch
from emul.engine.costs import CostSource
from emul.engine.findings import header
from emul.engine.running import execute, number_of_workers, pool_of
from emul.engine.wiring import wire
from emul.record import rundir
from emul.record.columns import columns
from emul.record.journal import MemoryJournal, RecordError, read
from emul.record.summary import digest_model
from emul.record.tables import recorded_costs
from emul.scenario import load
from emul.workers.pool import Workers
from emul.workers.twin import Twin


def replay(directory: Path, workers: int | Workers | Twin | None = None, plugins: Sequence[str] = ()) -> str:
    """Compute the run in `directory` again; its digest. Raises ReplayMismatch, naming the first difference."""
    from emul.record.compare import first_difference

    path = directory / rundir.SCENARIO
    if not (directory / rundir.SUMMARY).is_file() or not path.is_file():
        raise RecordError(f"{directory}: no directory of a run that ended")
    summary = json.loads((directory / rundir.SUMMARY).read_text())
    scenario = load(path, plugins=plugins)
    name, raw = scenario.schemes[0]
    costs = None
    if scenario.compute.mode == "measured":         # what was measured then is what it costs now
        costs = CostSource("recorded", recorded=recorded_costs(directory))
    count, size = number_of_workers(workers)
    wiring = wire(scenario, name, raw, size, plugins, costs)
    journal = MemoryJournal(header(wiring))
    with pool_of(count, scenario.workers.timeout_s) as pool:
        execute(wiring, pool, journal)
    digest_journal = journal.close()
    if digest_journal != summary["digest_journal"]:
        recorded = read(directory / rundir.JOURNAL)
        raise ReplayMismatch(f"{directory}: {first_difference(recorded, journal.rows, recorded.header)}")
    model = digest_model(columns(journal.rows))
    if model != summary["digest_model"]:
        raise ReplayMismatch(f"{directory}: the journals are equal, the models differ")
    return str(summary["digest"])
