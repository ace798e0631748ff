"""A run of a few clients that train, for tests of what carries its frames."""

from __future__ import annotations

from emul import engine
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 5, batch: 8}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 30}
"""


def digest(pool: Workers | Twin, *sets: str) -> str:
    """Of the run's journal. sets: changes of the scenario, such as "stop.rounds=3"."""
    wiring = engine.wire(loads(TEXT, sets=sets), "fedavg", {}, pool.workers)
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, pool, journal)
    return journal.close()
