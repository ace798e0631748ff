"""Run directories made of rows by hand, for tests of the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from written_run import HEADER, ROWS

from emul.base import rows as R
from emul.record import rundir
from emul.record.journal import Journal
from emul.record.summary import Facts, write_results
from emul.report import data
from emul.report.film import Film, film
from emul.report.topology import network_map

SCENARIO = "emul: 1\nname: by hand\ntopology: {generator: star, clients: 2}\n"


def by_hand() -> tuple[list[Any], dict[str, Any]]:
    """Rows and header of the small run; 70 B are sent again on a link."""
    at = next(i for i, row in enumerate(ROWS) if row[:2] == (R.HOP, 11)) + 1
    return [*ROWS[:at], (R.RESENT, 11, 0, 0, 70, 0, 1), *ROWS[at:]], HEADER


def make_run(folder: Path, rows: list[Any] | None = None, header: dict[str, Any] | None = None, end_ns: int = 210,
             scenario: str = SCENARIO, scheme: str = "fedavg", seed: int = 7,
             observations: list[Any] | None = None) -> Path:
    """A run directory with these rows, as a run would leave it; by default the small run's."""
    known = by_hand()
    rows, header = rows or known[0], header or known[1]
    directory = rundir.create(folder, "run", f"{scheme}-{seed}")
    directory.write(rundir.SCENARIO, scenario)
    with Journal(directory.journal, {**header, "scheme": scheme, "seed": seed}) as journal:
        for row in rows:
            journal.append(row)
        digest = journal.close()
    if observations is None:
        observations = [(0, 1, {"accuracy": 0.5 + seed / 1000 - 0.007, "loss": 2.0}), (0, 2, {"accuracy": 0.75})]
    timed = [(node, "train", 5.0, node * 10**9) for node in range(1, len(header["names"]))]
    write_results(directory, Facts(scheme, end_ns, 1.0, digest), observations, timed)
    return directory.path


def filmed(path: Path, budget: int = 4000) -> Film:
    """The film of a run that has one."""
    run = data.open_run(path)
    found = film(run, data.waits(run), network_map(run), budget)
    assert found is not None
    return found


def rows_of(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    """The rows of a frame, in their order by value."""
    return sorted(frame.itertuples(index=False, name=None))
