"""HierFAVG, D-PSGD and AD-PSGD: averages over trees and graphs, worked out by hand with updates that tests choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning import NodeTask, Task
from emul.protocols.peers import neighbours
from emul.roles import World
from emul.schemes import adpsgd, gossip, hierarchical
from emul.schemes.gossip import metropolis
from emul.testing import Ran, run_text


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[float, int]]:
    """{node: (what its training adds to every parameter, its samples)}; accuracy is how far a model has moved."""
    chosen: dict[str, tuple[float, int]] = {}

    def local_update(task: Any, model: np.ndarray, **_: Any) -> tuple[np.ndarray, int]:
        step, samples = chosen[task._name]
        return np.full(model.shape, step, np.float32), samples

    monkeypatch.setattr(NodeTask, "local_update", local_update)
    monkeypatch.setattr(Task, "evaluate", lambda task, model: {
        "accuracy": float(np.mean(model - task.initial_parameters(), dtype=np.float64))})
    return chosen


def moved(ran: Ran) -> dict[str, list[float]]:
    """{node: how far its model has moved, round by round}."""
    found: dict[str, list[float]] = {}
    for seen in sorted(ran.finished.observations, key=lambda seen: (seen.node, seen.round)):
        found.setdefault(ran.header["names"][seen.node], []).append(round(seen.values["accuracy"], 5))
    return found


TREE = hierarchical.EXAMPLE.replace('  - {match: "n4->n2", outage: {model: bernoulli, p: 0.2, per: message}}\n', "")


def test_edges_average_their_clients_and_the_cloud_its_edges(updates: dict[str, tuple[float, int]]):
    updates |= {"n4": (1.0, 1), "n5": (3.0, 3), "n6": (10.0, 1), "n7": (0.0, 1)}
    ran = run_text(TREE, "stop.rounds=2")                   # kappa_2 = 2
    # n2: (1 * 1 + 3 * 3) / 4 = 2.5, twice: 5; n3: 5, twice: 10; cloud: (4 * 5 + 2 * 10) / 6
    assert moved(ran) == {"n1": pytest.approx([40 / 6, 80 / 6], abs=1e-4)}
    assert not ran.invariants.violations


def test_with_one_average_at_the_edges_it_is_fedavg(updates: dict[str, tuple[float, int]]):
    updates |= {"n4": (1.0, 1), "n5": (3.0, 3), "n6": (10.0, 1), "n7": (0.0, 1)}
    ran = run_text(TREE, "schemes[0].edge_rounds=1", "stop.rounds=1")
    flat = run_text(TREE.partition("schemes:")[0] + "schemes: [fedavg]\nstop: {rounds: 1}\n")
    assert moved(ran)["n1"] == pytest.approx(moved(flat)["n1"], abs=1e-4)


def test_edges_below_edges_average_for_each_average_above_them(updates: dict[str, tuple[float, int]]):
    deep = TREE.replace("height: 2", "height: 3").replace("edge: [n2, n3]", "edge: [n2, n3, n4, n5, n6, n7]")
    updates |= {f"n{k}": (1.0, 2) for k in range(8, 16)}
    ran = run_text(deep, "stop.rounds=2", "schemes[0].edge_deadline=none", "schemes[0].deadline=none")
    assert moved(ran) == {"n1": pytest.approx([4.0, 8.0], abs=1e-4)}        # 2 * 2 averages, each of +1
    assert sum(row[0] == R.COMPUTE and row[3] == "train" for row in ran.rows) == 8 * 4 * 2


def test_an_edge_that_misses_a_client_goes_on_at_its_deadline(updates: dict[str, tuple[float, int]]):
    updates |= {"n4": (1.0, 1), "n5": (3.0, 3), "n6": (10.0, 1), "n7": (0.0, 1)}
    lossy = TREE.replace("task:", '  - {match: "n4->n2", outage: {model: bernoulli, p: 1, per: message}}\ntask:')
    ran = run_text(lossy, "stop.rounds=1")
    assert moved(ran) == {"n1": pytest.approx([(3 * 6 + 2 * 10) / 5], abs=1e-4)}


def test_a_client_without_an_edge_is_an_error_of_the_scenario():
    with pytest.raises(ScenarioError, match="n4 has neither an edge nor the server"):
        run_text(TREE.replace("edge: [n2, n3], client: {rule: leaves}", "edge: [n3], client: [n2, n4, n5, n6, n7]"))


# --- gossip -----------------------------------------------------------------------------------------------------------

graphs = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20)


@given(graphs)
def test_metropolis_weights_are_symmetric_and_doubly_stochastic(edges: list[tuple[int, int]]):
    near: dict[int, set[int]] = {i: set() for i in range(8)}
    for i, j in edges:
        if i != j:
            near[i].add(j)
            near[j].add(i)
    W = np.zeros((8, 8))
    for i in near:
        for j, weight in metropolis(i, near).items():
            W[i, j] = weight
    assert np.array_equal(W, W.T)
    assert W.sum(axis=1) == pytest.approx(np.ones(8))
    assert (W >= 0).all()


def test_who_is_whose_neighbour():
    world = World("test", 1, ["a"] * 9, {"peer": [2, 4, 6, 8]}, [1.0] * 9)
    assert neighbours(world, 2, "ring") == [4, 8]
    assert neighbours(world, 6, "complete") == [2, 4, 8]
    assert neighbours(World("test", 1, ["a"] * 2, {"peer": [0, 1]}, [1.0] * 2), 0, "ring") == [1]


QUIET = gossip.EXAMPLE.replace('  - {match: "*->peer1", outage: {model: bernoulli, p: 0.1, per: round}}\n', "")


def test_peers_average_with_their_neighbours_on_a_ring_while_they_train(updates: dict[str, tuple[float, int]]):
    updates |= {f"peer{i}": (float(i), 1) for i in range(1, 6)}
    found = moved(run_text(QUIET, "stop.rounds=2"))
    assert {name: values[0] for name, values in found.items()} == {f"peer{i}": i for i in range(1, 6)}
    # x_1 <- (x_5 + x_1 + x_2) / 3 + 1, and so on around
    second = {1: (5 + 1 + 2) / 3 + 1, 2: 2 + 2, 3: 3 + 3, 4: 4 + 4, 5: (4 + 5 + 1) / 3 + 5}
    assert {name: values[1] for name, values in found.items()} == {
        f"peer{i}": pytest.approx(value, abs=1e-4) for i, value in second.items()}


def test_what_a_neighbour_has_not_sent_counts_as_ones_own(updates: dict[str, tuple[float, int]]):
    updates |= {f"peer{i}": (float(i), 1) for i in range(1, 6)}
    deaf = QUIET.replace("task:", '  - {match: "peer2->peer1", outage: {model: bernoulli, p: 1, per: message}}\ntask:')
    found = moved(run_text(deaf, "stop.rounds=2"))
    assert found["peer1"][1] == pytest.approx((5 + 1 + 1) / 3 + 1, abs=1e-4)


def test_clients_of_a_star_are_peers_with_the_shards_that_they_have_in_fedavg(updates: dict[str, tuple[float, int]]):
    updates |= {f"client{i}": (1.0, 1) for i in range(1, 5)}
    star = QUIET.replace("{generator: complete, peers: 5}", "{generator: star, clients: 4}")
    assert moved(run_text(star, "stop.rounds=2")) == {f"client{i}": [1.0, 2.0] for i in range(1, 5)}


def test_adpsgd_keeps_the_sum_whoever_averages_with_whom(updates: dict[str, tuple[float, int]]):
    updates |= {f"peer{i}": (float(i), 1) for i in range(1, 6)}
    calm = adpsgd.EXAMPLE.replace('  - {match: "*->peer1", outage: {model: bernoulli, p: 0.1, per: message}}\n', "")
    found = moved(run_text(calm, "stop.rounds=4"))
    assert sum(values[-1] for values in found.values()) == pytest.approx(4 * 15, abs=1e-3)
    spread = [values[-1] for values in found.values()]
    assert max(spread) - min(spread) < 4 * (5 - 1)          # apart they would be that far


def test_a_peer_of_adpsgd_goes_on_without_an_answer(updates: dict[str, tuple[float, int]]):
    updates |= {f"peer{i}": (1.0, 1) for i in range(1, 6)}
    silent = adpsgd.EXAMPLE.replace("p: 0.1", "p: 1").replace('"*->peer1"', '"*"')
    ran = run_text(silent, "stop.rounds=3")
    assert moved(ran) == {f"peer{i}": [1.0, 2.0, 3.0] for i in range(1, 6)}
    assert ran.kernel.end_ns == 3 * 500_000_000
