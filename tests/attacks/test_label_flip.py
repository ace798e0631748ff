"""Attacks on data reach the nodes that a scenario names, and no others."""

import numpy as np

from emul import engine
from emul.attacks.data import label_flip
from emul.scenario import loads
from emul.workers.core import Core

TEXT = """
emul: 1
name: poisoned
seed: 3
topology: {generator: star, clients: 5}
task:
  data: {set: digits}
  partition: iid
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
attacks:
  - {nodes: %s, data: label_flip}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
"""


def test_every_label_is_mirrored_and_no_input_changes():
    x, y = np.ones((3, 2)), np.array([0, 4, 9])
    flipped_x, flipped_y = label_flip(x, y, 10, np.random.default_rng(0))
    assert flipped_x is x
    assert flipped_y.tolist() == [9, 5, 0]


def test_named_nodes_learn_from_flipped_labels_and_the_others_from_their_own():
    wiring = engine.wire(loads(TEXT % "[client2]", "t"), "fedavg", {})
    core = Core(wiring.setups[0])
    tasks = []
    for node in (1, 2):                                 # nodes 1 and 2 are client1 and client2
        core._start(node)
        tasks.append(core._tasks[node])
        core._running[node].close()
    own = [core._task.data.train_y[core._task.indices(c)] for c in (0, 1)]
    labels = [t._samples().take(np.arange(t.samples()))[1].numpy() for t in tasks]
    assert labels[0].tolist() == own[0].tolist()
    assert labels[1].tolist() == (9 - own[1]).tolist()


def test_a_fraction_is_drawn_from_the_clients_by_the_seed():
    poisons = engine.wire(loads(TEXT % "{fraction: 0.4}", "t"), "fedavg", {}).setups[0].attacks
    assert len(poisons) == 2
    assert set(poisons) <= {1, 2, 3, 4, 5}
    assert poisons == engine.wire(loads(TEXT % "{fraction: 0.4}", "t"), "fedavg", {}).setups[0].attacks
