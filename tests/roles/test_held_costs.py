"""Costs out of the record of a network: they go before the mode, and hold all that changed a node's speed."""

from __future__ import annotations

import pytest

from emul.roles.costs import Costs, MissingCost

HELD = {1: {"train": [50, 70]}}
SLOW = {1: [(0, 2, 1)]}


def costs(mode="zero", beyond="stream", **more):
    return Costs(mode, "fedavg", network_costs=HELD, beyond=beyond, slowdowns=SLOW, **more)


def asked(c, times=3, node=1, label="train"):
    return [c.cost_ns(node, "client", label, 0, n, 1.0) for n in range(times)]


@pytest.mark.parametrize(("mode", "beyond", "expected"), [
    ("zero", "stream", [50, 70, 0]), ("measured", "stream", [50, 70, None]), ("zero", "repeat", [50, 70, 50])])
def test_held_costs_go_before_the_mode_and_beyond_says_what_follows(mode, beyond, expected):
    assert asked(costs(mode, beyond)) == expected


def test_beyond_error_names_the_computation():
    c = costs(beyond="error")
    assert asked(c, 2) == [50, 70]
    with pytest.raises(MissingCost, match=r"^the record holds 2 computations 'train' of node 1, number 3 was"):
        asked(c, 1)


def test_labels_and_nodes_that_are_not_held_follow_the_mode():
    c = costs(beyond="error")
    assert asked(c, 1, label="mask") == asked(c, 1, node=2) == [0]
    assert asked(c, 1) == [50]


def test_a_recorded_run_keeps_its_own_costs():
    assert asked(costs("recorded", recorded={1: [7, 8]}), 2) == [7, 8]


def test_a_held_cost_is_not_stretched_by_a_slow_down_and_others_are():
    c = costs("profile", profile={"fedavg/client/train": [1e-6, 0]})
    stretched = [c.stretched(1, 0, cost) for cost in asked(c, 2)[-1:]]
    assert stretched == [70]
    cost, = asked(c, 1)
    assert (cost, c.stretched(1, 0, cost)) == (1000, 2000)


def test_a_stated_cost_goes_before_a_record_and_takes_its_place_in_it():
    costs = Costs("zero", "s", network_costs={0: {"seal": [10, 20, 30]}})
    asked = [costs.cost_ns(0, "client", "seal", 0.0, 0, 1.0), costs.stated_ns(0, "seal", 1e-9 * 7, 0.5),
             costs.cost_ns(0, "client", "seal", 0.0, 2, 1.0)]
    assert asked == [10, 14, 30]


def test_a_stated_cost_is_stretched_in_every_mode():
    slow = {0: [(0, 3, 1)]}
    for mode in ("zero", "recorded", "profile", "measured"):
        assert Costs(mode, "s", slowdowns=slow).stretched(0, 0, 10, stated=True) == 30
