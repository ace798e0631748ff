"""A run of a few clients that train, for tests of what carries its frames."""

from __future__ import annotations

from digested import digests

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
    return digests(loads(TEXT, sets=sets), pool)[0]
