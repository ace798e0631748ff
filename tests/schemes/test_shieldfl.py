"""ShieldFL: the rule against plain arithmetic, encryption for real against what is declared, and its faults."""

from __future__ import annotations

import numpy as np
import pytest

from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.scenario import loads
from emul.schemes import shieldfl
from emul.testing import Ran, run_text
from emul.workers.twin import one_thread

QUIET = ["links[1].outage.p=0", "schemes.shieldfl.bits=512"]
TINY = ["links[1].outage.p=0", "schemes.shieldfl.bits=256", "topology.clients=3", "stop.rounds=1"]


def run(*sets: str) -> Ran:
    return run_text(shieldfl.EXAMPLE, *sets)


def plain(rounds: int, clients: int) -> np.ndarray:
    """The model after some rounds without loss, in floats: the rule as the head of the scheme states it."""
    spec = loads(shieldfl.EXAMPLE, "t").task
    now = [1]
    task = Task(dict(spec), clients, 7)
    nodes = [task.for_node(f"client{k + 1}", k, lambda: now[0]) for k in range(clients)]
    w, reference = task.initial_parameters().astype(np.float64), None
    for now[0] in range(1, rounds + 1):
        with one_thread():
            D = np.array([node.local_update(w.astype(np.float32))[0] for node in nodes], np.float64)
        lengths = np.linalg.norm(D, axis=1)
        U = D / lengths[:, None]
        reference = U.sum(0) if reference is None else reference
        baseline = U[np.argmin(U @ reference)]
        mu = 1 - U @ baseline
        reference = (mu / mu.sum()) @ U
        w = w + np.median(lengths) * reference
    return w


def test_the_model_is_that_of_plain_arithmetic_but_for_ten_bits_of_a_weight() -> None:
    ran = run(*QUIET, "stop.rounds=2", "topology.clients=5")
    expected = Task(dict(loads(shieldfl.EXAMPLE, "t").task), 5, 7)
    w = plain(1, 5)                             # what clients receive in round 2
    with one_thread():
        scores = [expected.for_node(f"client{k + 1}", k, lambda: 2).evaluate_own(w.astype(np.float32))
                  for k in range(5)]
    assert ran.rounds[1]["loss_received"] == pytest.approx(np.mean([s["loss"] for s in scores]), abs=2e-3)


def test_what_is_declared_is_what_encryption_for_real_comes_to() -> None:
    """Up to 256 coordinates for real by default: here the bound is moved so that both can be run at one size."""
    declared, real = run(*TINY), run(*TINY, "schemes.shieldfl.real_up_to=1000")
    assert declared.summary["digest_model"] == real.summary["digest_model"]     # every decision, to the bit
    assert real.summary["bytes_declared"] == {} != declared.summary["bytes_declared"]
    one, other = declared.payloads, real.payloads
    assert one.keys() == other.keys()
    for kind, sizes in one.items():
        assert sizes == pytest.approx(other[kind], rel=0.01, abs=8), kind


def test_an_upload_has_a_ciphertext_a_number_and_the_model_a_partial_decryption_beside_each() -> None:
    ran = run("links[1].outage.p=0", "schemes.shieldfl.bits=2048", "stop.rounds=1")
    assert ran.payloads["Upload"] == pytest.approx([650 * 512] * 5, abs=150)
    assert ran.payloads["Global"] == pytest.approx([2 * 650 * 512] * 5, abs=250)
    client = ran.summary["seconds_declared"]["client"]
    assert client == pytest.approx({"encrypt": 5 * 650 * 8.9e-3, "decrypt": 5 * 650 * 17.5e-3})


def test_the_baseline_has_no_weight_and_the_others_some() -> None:
    for values in run(*QUIET).rounds:
        assert (values["judged"], values["kept"], values["sound"]) == (5, 4, 5)


def test_an_amplified_update_counts_as_much_as_any_other_since_only_directions_are_sent() -> None:
    attack = "attacks=[{nodes: [client2], update: {name: scale, factor: 50}}]"
    plain_run, attacked = run(*QUIET), run(*QUIET, attack)
    assert attacked.rounds[0]["attackers_weight"] < 0.5
    assert abs(attacked.rounds[1]["loss_received"] - plain_run.rounds[1]["loss_received"]) < 1.0


@pytest.mark.parametrize("link", ["server1->server2", "server2->server1"])
def test_what_is_lost_between_the_servers_fails_that_round_and_the_next_goes_on(link: str) -> None:
    ran = run(*QUIET, "stop.rounds=3", "schemes.shieldfl.server_timeout=8 s",
              f"faults=[{{at: 0 s, link: {link}, down: true, for: 4 s}}]")
    assert ran.summary["rounds_failed"] >= 1
    assert ran.summary["rounds"] >= 1
    assert ran.invariants.violations == []


def test_too_short_a_key_is_refused_when_the_scenario_is_read() -> None:
    with pytest.raises(ScenarioError, match=r"bits = 128 +expected a multiple of 16, at least 256"):
        run("schemes.shieldfl.bits=128")
