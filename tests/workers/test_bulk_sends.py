"""Bulk sends between processes: payloads that go with events, that lie here, and that are shipped."""

from __future__ import annotations

import dataclasses

from digested import digests

from emul.scenario import loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin

SCENARIO = """
emul: 1
name: bulk
seed: 3
topology: {generator: star_mesh, clients: 5}
links: [{match: "*", latency: 5 ms, bandwidth: 100 Mbit/s, outage: {model: bernoulli, p: 0.1, per: message}}]
task: {data: {set: digits}, partition: iid, model: digits_cnn, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: bulk_scheme, bulk: %s}]
stop: {rounds: 4}
"""


def digest(pool: Twin | Workers, bulk: bool) -> str:
    scenario = dataclasses.replace(loads(SCENARIO % str(bulk).lower(), plugins=["bulk_scheme"]), task={})
    return digests(scenario, pool, ["bulk_scheme"])[0]


def test_a_run_is_the_same_sent_in_bulk_or_one_by_one_by_any_number_of_workers(pools: list[Workers]) -> None:
    found = {digest(pool, bulk) for pool in (Twin(), pools[1]) for bulk in (True, False)}
    assert len(found) == 1
