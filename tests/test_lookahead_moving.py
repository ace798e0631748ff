"""Networks that are shared and move: the same run with lookahead as one event at a time, whatever the links carry."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine
from emul.scenario import Scenario, loads
from emul.testing.world import Ran, run_wiring
from emul.workers.twin import Twin
from tests import test_background_traffic, test_contact_plans, test_elastic_traffic, test_moving_routes, test_radio_runs
from tests.kernel.test_lookahead import assert_same_lives

AGAIN = "contacts.gap=again"


def rates(folder: Path, links: str) -> Scenario:
    entries = [f"{{link: '*->server', rate: {test_background_traffic.LAWS['on_off']}}}",
               f"{{flow: 'client1->client2', rate: {test_background_traffic.LAWS['walk']}}}"]
    return loads(test_background_traffic.TEXT, "loaded", [
        *test_background_traffic.LINKS[links], f"traffic=[{', '.join(entries)}]"], base=folder)


def elastic(folder: Path, links: str) -> Scenario:
    kinds = ["listed", "routed"] if links == "fifo" else ["listed", "routed", "greedy"]
    return loads(test_elastic_traffic.TEXT, "elastic", [
        *test_elastic_traffic.STAR, *test_elastic_traffic.LINKS[links], test_elastic_traffic.traffic(*kinds)],
        base=folder)


def passes(folder: Path, *sets: str) -> Scenario:
    return test_contact_plans.moving(folder, test_contact_plans.SLOW, test_contact_plans.PLAN, *sets)


def relays(folder: Path, *sets: str) -> Scenario:
    return test_moving_routes.relayed(folder, test_moving_routes.turns(), *sets)


CASES = {
    "rates, fifo": lambda folder: rates(folder, "fifo"), "rates, shared": lambda folder: rates(folder, "maxmin"),
    "rates, connections": lambda folder: rates(folder, "connections"),
    "elastic, fifo": lambda folder: elastic(folder, "fifo"),
    "elastic, shared": lambda folder: elastic(folder, "maxmin"),
    "elastic, connections": lambda folder: elastic(folder, "connections"),
    "hold": passes, "again": lambda folder: passes(folder, AGAIN),
    "drop": lambda folder: passes(folder, "contacts.gap=drop"),
    "hold, shared": lambda folder: passes(folder, test_contact_plans.SHARING[0]),
    "again, shared": lambda folder: passes(folder, test_contact_plans.SHARING[0], AGAIN),
    "routes": relays, "routes, again": lambda folder: relays(folder, AGAIN),
    "routes, again, shared": lambda folder: relays(folder, AGAIN, "links[0].sharing=maxmin"),
    "cells": lambda folder: test_radio_runs.cells(folder, test_radio_runs.RADIO),
    "roaming": test_radio_runs.roaming,
    "roaming, again": lambda folder: test_radio_runs.roaming(folder, "radio.attach.gap=again")}


def ran(scenario: Scenario, lookahead: bool) -> Ran:
    with Twin() as twin:
        wiring = engine.wire(scenario, *scenario.schemes[0], twin.workers)
        if not lookahead:
            wiring.network.out_latency_ns = lambda u: 0     # type: ignore[method-assign]
        return run_wiring(wiring, twin)


@pytest.mark.parametrize("case", CASES)
def test_every_node_lives_the_same_life_with_lookahead_as_one_event_at_a_time(tmp_path: Path, case: str) -> None:
    scenario = CASES[case](tmp_path)
    fast, slow = ran(scenario, True), ran(scenario, False)
    assert len(fast.rows) > 50
    assert_same_lives(fast, slow)
