"""FedAsync and FedBuff: staleness and steps worked out by hand, and what late, lost and silent clients do to them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.protocols.asynchronous import Model, Update
from emul.scenario import loads
from emul.schemes import fedasync, fedbuff
from emul.testing import Ran, drive, run_text
from emul.testing.drive import Driven


class Task:
    """A model of one number."""

    dimension = 1

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(1, np.float32)


def started(module: Any, rounds: int, clients: int = 3, **params: Any) -> Driven:
    return drive(module.server, module.Params(**params), clients=range(1, clients + 1), task=Task(), rounds=rounds)


def answer(role: Driven, client: int, value: float, samples: int = 1) -> None:
    """The client answers the model that it was handed last."""
    role.deliver({client: Update(np.float32([value]), samples, role.sent(Model)[client].number)})


def model(role: Driven, client: int) -> float:
    return float(role.sent(Model)[client].parameters[0])


def test_fedasync_mixes_a_model_in_by_the_versions_that_it_has_missed():
    role = started(fedasync, rounds=4, alpha=0.5, staleness="polynomial", a=1.0)
    answer(role, 1, 2.0)
    assert model(role, 1) == 1.0                            # u = 0: (0 + 2) / 2
    answer(role, 2, 5.0)
    assert model(role, 2) == 2.0                            # u = 1, alpha = 1/4: 3/4 1 + 1/4 5
    answer(role, 3, 8.0)
    assert model(role, 3) == 3.0                            # u = 2, alpha = 1/6: 5/6 2 + 1/6 8
    answer(role, 3, 7.0)                                    # made from the newest model
    assert [report["staleness"] for report in role.reports] == [0, 1, 2, 0]
    assert model(role, 1) == 1.0                            # client 1 has been at it since version 1


def test_fedbuff_steps_once_for_every_k_updates_and_weighs_old_ones_less():
    role = started(fedbuff, rounds=2, buffer=2, rate=2.0)
    answer(role, 1, 1.0)
    assert list(role.sent(Model)) == [1, 2, 3]
    assert model(role, 1) == 0.0                            # it waits: its update is in the buffer
    answer(role, 2, 3.0)
    assert (model(role, 1), model(role, 2)) == (4.0, 4.0)   # 2 (1 + 3) / 2
    answer(role, 3, 1.0)                                    # u = 1: s = 1 / sqrt(2)
    answer(role, 2, 1.0)
    assert role.node.state(None).model[0] == np.float32(4 + 2 * (2**-0.5 + 1) / 2)
    assert [(r["received"], r["staleness"], r["staleness_most"]) for r in role.reports] == [(2, 0, 0), (2, 0.5, 1)]


def test_fedbuff_may_weigh_by_samples():
    role = started(fedbuff, rounds=1, buffer=3, weights="samples")
    for client, value, samples in ((3, 9.0, 1), (1, 1.0, 4), (2, 2.0, 5)):
        answer(role, client, value, samples)
    assert role.node.state(None).model[0] == np.float32((4 + 10 + 9) / 10)


def test_only_as_many_clients_train_as_may_and_none_that_waits_in_the_buffer_is_chosen():
    role = started(fedbuff, rounds=1, clients=6, buffer=4, concurrency=2)
    begun = set(role.sent(Model))
    assert len(begun) == 2
    done: set[int] = set()
    for _ in range(3):
        client = min(begun - done)
        answer(role, client, 1.0)
        done.add(client)
        begun = set(role.sent(Model))
        assert len(begun - done) == 2                       # one for the one that has come back


def test_a_client_that_is_silent_is_given_up_and_what_it_says_later_is_dropped():
    role = started(fedbuff, rounds=2, clients=3, buffer=2, concurrency=2, timeout_s=10.0)
    silent, other = role.sent(Model)
    first = role.sent(Model)[silent].number
    role.advance_to(6.0)
    answer(role, other, 1.0)
    third, = set(role.sent(Model)) - {silent, other}
    role.advance_to(12.0)
    answer(role, third, 1.0)                                # version 1: now the silent one has been given up
    assert role.reports[0]["dropped"] == 0
    role.deliver({silent: Update(np.float32([50.0]), 1, first)})     # whether or not it has been drawn again
    assert role.node.state(None).buffer == {}
    for client in sorted(role.node.state(None).handed.training):
        answer(role, client, 1.0)
    assert role.reports[1]["dropped"] == 1
    assert role.node.state(None).model[0] < 3


def test_a_round_in_which_nobody_answers_fails_and_keeps_what_came_before():
    role = started(fedbuff, rounds=2, buffer=3, timeout_s=5.0)
    answer(role, 1, 3.0)
    role.advance_to(5.0)
    assert role.reports == []
    assert list(role.node.state(None).buffer) == [1]
    answer(role, 2, 3.0)                                    # handed out anew, in round 2
    answer(role, 3, 3.0)
    assert role.node.state(None).model[0] == 3.0
    assert role.ended == ""


@pytest.mark.parametrize(("update", "reason"), [
    (Update(np.zeros(2, np.float32), 1, 1), r"vector: shape (2,), expected (1,)"),
    (Update(np.zeros(1, np.float32), -1, 1), "samples: no number of samples")])
def test_an_update_that_is_none_is_rejected(update: Update, reason: str):
    role = started(fedasync, rounds=1)
    role.deliver({2: update})
    assert role.rejected == {2: reason}
    assert role.reports == []


def test_a_client_takes_a_model_from_the_server_alone():
    role = drive(fedasync.client, fedasync.Params(), id=1, task=Task(), rounds=1)
    role.deliver({2: Model(np.zeros(1, np.float32), 1)})
    assert role.rejected == {2: "a model from somebody who is not the server"}


@pytest.mark.parametrize("scheme", ["fedasync", "fedbuff"])
def test_a_parameter_that_the_staleness_function_has_not_is_refused(scheme: str):
    said = r"schemes\[0\]\.b +b = 4\.0 +expected none, for polynomial staleness has no b"
    with pytest.raises(ScenarioError, match=said):
        loads(text(f"{{name: {scheme}, b: 4}}"))


# --- over a network -------------------------------------------------------------------------------------------------

TEXT = """
emul: 1
name: asynchronous
seed: 5
topology: {generator: star, clients: CLIENTS}
links:
  - {match: "*", latency: 20 ms, bandwidth: 10 Mbit/s}
  LINKS
nodes: NODES
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic,
       solver: {sgd: {lr: 0.1, momentum: 0.9, epochs: 1, batch: 32}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 4}
"""


def text(scheme: str, nodes: str = "[]", links: str = "", clients: int = 6) -> str:
    return (TEXT.replace("SCHEME", scheme).replace("NODES", nodes).replace("LINKS", links)
            .replace("CLIENTS", str(clients)))


def run(*said: str, **more: Any) -> Ran:
    """`said` and `more`: as for `text`."""
    return run_text(text(*said, **more), costs={"client/train": 0.1, "server/aggregate": 0.001})


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("nodes", ["[]", "[{match: client2, speed: 0.1}]"])
def test_fedbuff_with_a_full_buffer_is_fedavg_to_the_bit(weights: str, nodes: str):
    """With equal speeds; and, since a client has one update in the buffer, with any."""
    synchronous = run(f"{{name: fedavg, weights: {weights}}}", nodes)
    buffered = run(f"{{name: fedbuff, buffer: 6, weights: {weights}}}", nodes)
    assert buffered.models == synchronous.models
    assert len(buffered.models) == 4
    assert buffered.kernel.end_ns == pytest.approx(synchronous.kernel.end_ns, rel=1e-3)     # names of different length


def test_fedbuff_does_not_wait_for_a_slow_client():
    slow = "[{match: client2, speed: 0.01}]"                # 10 s a training
    ran = run("{name: fedbuff, buffer: 3}", slow)
    assert ran.kernel.end_ns < 2e9
    assert run("fedavg", slow).kernel.end_ns > 40e9


@pytest.mark.parametrize("scheme", ["{name: fedasync, concurrency: 1, timeout: 500 ms}",
                                    "{name: fedbuff, buffer: 2, timeout: 500 ms}",
                                    "{name: fedat, tiers: 1, timeout: 500 ms}"])
def test_a_client_never_runs_out_of_rounds_however_many_of_its_updates_are_lost(scheme: str):
    """A client counts its own trainings; the run's limit is of the server's rounds alone."""
    lossy = '- {match: "client*->server*", outage: {model: bernoulli, p: 0.9, per: message}}'
    ran = run(scheme, links=lossy, clients=2)
    entered = Counter(row[2] for row in ran.rows if row[0] == R.ENTER and row[3])
    server, *clients = sorted(entered)
    assert entered[server] == 4
    assert max(entered[k] for k in clients) > 4
