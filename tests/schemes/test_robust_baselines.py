"""Krum and FoolsGold as schemes of their own; what clients received and trained, evaluated side by side."""

from __future__ import annotations

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.scenario import Scenario, loads
from emul.testing import Ran, run_text
from emul.workers.twin import one_thread

TEXT = """
emul: 1
name: baselines
seed: 5
topology: {generator: star, clients: 7}
links: [{match: "*", latency: 5 ms}]
task:
  data: {set: digits}
  partition: {class_space: {avg: 4, std: 0, shots: 6, test_shots: 10}}
  model: logistic
  solver: {sgd: {lr: 0.1, epochs: 2, batch: 6}}
attacks: [{nodes: [client2, client5], data: feature_noise}]
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 3}
"""


def scenario(scheme: str) -> Scenario:
    return loads(TEXT.replace("SCHEME", scheme), "t")


def run(scheme: str) -> Ran:
    return run_text(TEXT.replace("SCHEME", scheme))


@pytest.mark.parametrize(("scheme", "same"), [
    ("{name: krum, f: 2}", "{name: fedavg, aggregate: {krum: {f: 2}}}"),
    ("{name: krum, f: 1, m: 3}", "{name: fedavg, aggregate: {multi_krum: {f: 1, m: 3}}}"),
    ("{name: foolsgold}", "{name: fedavg, aggregate: foolsgold}"),
])
def test_a_scheme_of_its_own_is_fedavg_with_this_rule(scheme: str, same: str) -> None:
    assert run(scheme).digest == run(same).digest


def test_krum_with_too_many_malicious_clients_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"f = 3 +needs 9 updates, 7 clients take part in a round"):
        scenario("{name: krum, f: 3}")
    assert scenario("{name: krum, f: 3, unproven: true}").schemes


@pytest.mark.parametrize("scheme", ["{name: fedavg, personal: true}", "{name: krum, f: 2, personal: true}"])
def test_received_and_trained_models_are_evaluated_side_by_side_on_the_clients_own_test_samples(scheme: str) -> None:
    ran = run(scheme)
    assert ran.summary["accuracy_of_clients"]["clients"] == 5       # of the benign ones
    first = ran.rounds[0]
    spec = dict(scenario("{name: fedavg}").task)
    task, initial = Task(spec, 7, 5), Task(spec, 7, 5).initial_parameters()
    own = []
    with one_thread():
        for k in (0, 2, 3, 5, 6):
            node = task.for_node(f"client{k + 1}", k, lambda: 1)
            own.append((node.evaluate_own(initial + node.local_update(initial)[0])["accuracy"],
                        node.evaluate_own(initial)["accuracy"]))
    assert (first["accuracy"], first["accuracy_received"]) == pytest.approx(np.mean(own, 0).tolist(), abs=1e-9)


def test_who_asks_for_it_changes_nothing_of_what_is_learnt() -> None:
    plain, beside = run("{name: fedavg}"), run("{name: fedavg, personal: true}")
    assert [row["accuracy"] for row in plain.rounds] == [row["accuracy_global"] for row in beside.rounds]
    assert plain.summary["accuracy_of_clients"] is None
    assert beside.summary["accuracy"] > beside.summary["accuracy_of_clients"]["min"]
