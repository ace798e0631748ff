"""Two runs compared: the digests of a scenario's first scheme on a pool, in the twin or in workers."""

from __future__ import annotations

from collections.abc import Sequence

from emul import engine
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.summary import digest_model
from emul.scenario import Scenario
from emul.workers.pool import Workers
from emul.workers.twin import Twin


def digests(scenario: Scenario, pool: Workers | Twin, plugins: Sequence[str] = ()) -> tuple[str, str]:
    """(of the journal, of the models; of these "" where the scheme cannot repeat them)."""
    wiring = engine.wire(scenario, *scenario.schemes[0], pool.workers, plugins)
    header = engine.header(wiring)
    journal = MemoryJournal(header)
    engine.execute(wiring, pool, journal)
    return journal.close(), digest_model(columns(journal.rows)) if header.get("deterministic", True) else ""
