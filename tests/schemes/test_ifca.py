"""IFCA against its own formulas, and clusters of digits found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.protocols.clustered import Models, best, starts
from emul.registry import schemes
from emul.roles import Node
from emul.scenario import loads
from emul.schemes.ifca import Chosen, Params, step
from emul.testing import Ran, run_text

TEXT = """
emul: 1
name: clustered
seed: 3
topology: {generator: star, clients: 6}
links: [{match: "*", latency: 5 ms}]
task: {data: {set: digits}, root: {samples: 60}, clusters: {rotate: [0, 90]}, model: logistic,
       solver: {sgd: {lr: 0.3, steps: 20, batch: 32}}}
compute: {mode: zero}
schemes: [{name: ifca, root_steps: 5}]
stop: {rounds: 3}
"""


def run(*edits: tuple[str, str], attacks: str = "[]") -> Ran:
    text = TEXT + f"attacks: {attacks}\n"
    for old, new in edits:
        text = text.replace(old, new)
    return run_text(text)


def chosen(*pairs: tuple[int, list[float]]) -> dict[int, Chosen]:
    return {k: Chosen(c, np.array(g, np.float32)) for k, (c, g) in enumerate(pairs, 1)}


MODELS = np.array([[0, 0], [10, 10], [7, 7]], np.float32)


def test_models_are_the_means_of_what_their_members_have_trained() -> None:
    got = chosen((0, [1, 2]), (1, [4, 4]), (0, [3, 0]))
    np.testing.assert_allclose(step(MODELS, got, Params(clusters=3)), [[2, 1], [14, 14], [7, 7]])


def test_gradients_of_a_cluster_count_by_all_that_have_answered() -> None:
    got = chosen((0, [1, 2]), (1, [4, 4]), (0, [3, 0]), (1, [0, 0]))
    found = step(MODELS, got, Params(clusters=3, averaging="gradient", rate=0.5))
    np.testing.assert_allclose(found, [[-0.5, -0.25], [9.5, 9.5], [7, 7]])


def test_nobody_heard_changes_nothing() -> None:
    np.testing.assert_array_equal(step(MODELS, {}, Params(clusters=3)), MODELS)


class Losses:
    choose_on = 0

    def loss(self, model: np.ndarray, most: int = 0) -> float:
        return float(model[0])


def test_ties_go_to_the_lower_cluster() -> None:
    assert best(Losses(), np.array([[2.0], [1.0], [1.0]])) == 1         # type: ignore[arg-type]
    assert best(None, np.array([[2.0]])) == 0                           # type: ignore[arg-type]


def test_models_differ_from_the_start_and_learn_from_their_part_of_the_root_data() -> None:
    from emul.learning import Task

    scenario = loads(TEXT, "t")
    task = Task(scenario.task, 6, scenario.seed)
    first = starts(task.for_node("server", None, lambda: 1), 2)
    np.testing.assert_array_equal(first[0], task.initial_parameters())
    assert np.abs(first[0] - first[1]).max() > 0.01
    node = task.for_node("server", None, lambda: 1)
    taught = starts(node, 2, root_steps=30)
    losses = [[node.loss(model, root=(c, 2)) for model in taught] for c in range(2)]
    assert losses[0][0] < losses[0][1]
    assert losses[1][1] < losses[1][0]


def test_clusters_of_turned_digits_are_found_and_served_better_than_by_one_model() -> None:
    found = run().rounds
    assert [row["clusters_matched"] for row in found][-1] == 1.0
    assert [row["clusters_rand"] for row in found][-1] == 1.0
    assert found[-1]["clusters_used"] == 2
    one = run(("clusters: 2", ""), ("name: ifca, root_steps: 5", "name: fedavg")).rounds
    assert found[-1]["accuracy"] > one[-1]["accuracy"] + 0.05


def test_one_cluster_is_fedavg_with_equal_weights() -> None:
    one = run(("{name: ifca, root_steps: 5}", "{name: ifca, clusters: 1}")).rounds
    fedavg = run(("{name: ifca, root_steps: 5}", "{name: fedavg, weights: uniform}")).rounds
    assert [r["accuracy"] for r in one] == pytest.approx([r["accuracy"] for r in fedavg], abs=0.005)


def test_models_can_be_compared_on_a_few_samples_which_stay_the_same() -> None:
    from emul.learning import Task

    scenario = loads(TEXT, "t")
    node = Task(scenario.task, 6, scenario.seed).for_node("client1", 0, lambda: 1)
    w = node.initial_parameters()
    few = [node.loss(w, most=8) for _ in range(2)]
    assert few[0] == few[1] != node.loss(w)
    assert len(node.loss(w, each=True, most=8)) == 8
    assert node.loss(w, most=10**6) == node.loss(w)
    found = run(("root: {samples: 60}", "choose_on: 16, root: {samples: 60}")).rounds
    assert found[-1]["clusters_matched"] == 1.0
    with pytest.raises(ScenarioError, match=r"task.choose_on  -1  expected a number of samples, 0 or more"):
        run(("root: {samples: 60}", "choose_on: -1, root: {samples: 60}"))


def test_there_are_no_more_clusters_than_clients() -> None:
    text = schemes.find("ifca").example.replace("clusters: 2, deadline", "clusters: 1000000, deadline")
    with pytest.raises(ScenarioError, match=r"clusters = 1000000  expected at most \d+, the number of clients"):
        loads(text, "t")


def test_gradients_can_be_averaged() -> None:
    found = run(("root_steps: 5", "root_steps: 20, averaging: gradient, rate: 0.5"), ("rounds: 3", "rounds: 8")).rounds
    assert found[-1]["accuracy"] > found[0]["accuracy"]


def test_a_cluster_that_does_not_exist_is_refused() -> None:
    async def liar(node: Node, p: Params) -> None:
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Models, node.server)
                node.send(node.server, Chosen(7, np.zeros(node.task.dimension, np.float32)))

    lying = replace(schemes.find("ifca"), behaviours={"client": {"liar": liar}})
    with schemes.lend("ifca", lying):
        world = run(("stop:", "faults: [{node: client2, behave: liar}]\nstop:"))
    assert [row["received"] for row in world.rounds] == [5, 5, 5]
    assert "cluster: out of range" in str(world.summary["violations"])


def test_root_steps_need_root_data() -> None:
    with pytest.raises(ScenarioError, match="root_steps = 5  needs root data at the server: root of the task"):
        loads(TEXT.replace("root: {samples: 60}, ", ""), "t", check=True)
