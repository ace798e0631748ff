"""Schemes whose clients keep models of their own: what is shared, what is counted, what is evaluated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.protocols.personal import Trained, mean_of, merged
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.scenario import loads
from emul.schemes import fedproto, fesem
from emul.testing import Ran, run_text
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: personal
seed: 5
topology: {generator: star, clients: 20}
links: [{match: "*", latency: 5 ms}]
task:
  data: {set: DATA}
  partition: {class_space: {avg: 4, std: 0, shots: 4, test_shots: 10}}
  model: MODEL
  solver: {sgd: {lr: 0.05, momentum: 0.5, epochs: 1, batch: 4}}
attacks: ATTACKS
compute: {mode: zero}
schemes: [{name: SCHEME}]
stop: {rounds: ROUNDS}
"""


def run(scheme: str, rounds: int = 1, attacks: str = "[]", data: str = "digits",
        model: str = "digits_classic") -> Ran:
    text = TEXT
    for key, value in {"SCHEME": scheme, "ROUNDS": rounds, "ATTACKS": attacks, "DATA": data, "MODEL": model}.items():
        text = text.replace(key, str(value))
    return run_text(text)


def up(world: Ran) -> float:
    """Bytes a round that the clients have sent."""
    return sum(row[6] for row in world.rows if row[0] == R.SEND and row[2] > 0) / world.summary["rounds"]


@pytest.fixture
def mnist_like(monkeypatch: pytest.MonkeyPatch) -> None:
    """28 x 28 images of noise by class, so that counts of parameters need no file."""
    from emul.learning import data

    def load(spec: dict[str, Any], plugins: Any = ()) -> data.DataSet:
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(10), 100)
        x = (rng.integers(0, 60, (1000, 1, 28, 28)) + 15 * y[:, None, None, None]).astype(np.uint8)
        return data.DataSet("mnist", x, y, x, y, 10, 255.0, 0.5, 0.3)

    monkeypatch.setattr(data, "load", load)
    monkeypatch.setattr(data, "missing", lambda spec: None)


@pytest.mark.parametrize(("scheme", "uploaded"), [
    ("fesem", 436_800), ("fedper", 105_600), ("fedrep", 426_600),
    ("fedrep, shared: convolutions", 105_600), ("fedproto", 80 * 50), ("local", 0)])
def test_the_parameters_that_twenty_clients_upload_a_round_are_those_of_the_sheet(scheme: str, uploaded: int,
                                                                                 mnist_like: None):
    world = run(scheme, data="mnist", model="mnist_classic")
    assert {row["uploaded"] for row in world.rounds} == {uploaded}


def test_prototypes_take_a_twentieth_of_the_bytes_of_a_model_or_less(mnist_like: None):
    whole = up(run("fedavg", data="mnist", model="mnist_classic"))
    assert whole > 20 * 4 * 21_840
    assert up(run("fedproto", data="mnist", model="mnist_classic")) < whole / 20


def test_fedrfq_uploads_24_numbers_a_class_to_each_server_and_stays_below_a_twentieth(mnist_like: None):
    whole = up(run("fedavg", data="mnist", model="mnist_classic"))
    text = TEXT.replace("clients: 20}", "clients: 20, servers: 4}")
    for key, value in {"SCHEME": "fedrfq", "ROUNDS": 1, "ATTACKS": "[]", "DATA": "mnist",
                       "MODEL": "mnist_classic"}.items():
        text = text.replace(key, str(value))
    scenario = loads(text, "t", check=True)
    wiring = engine.wire(scenario, "fedrfq", {})
    journal = MemoryJournal(engine.header(wiring))
    finished = engine.execute(wiring, Twin(), journal)
    world = Ran(journal.rows, journal.header, finished, journal.close())
    assert {row["uploaded"] for row in world.rounds} == {80 * 24}
    clients = sum(row[6] for row in world.rows if row[0] == R.SEND and row[2] >= 4 and row[8] == 1)
    assert clients <= whole / 20                                # to all four servers, measured frames
    assert world.summary["bytes_by_type"]["Upload"] >= clients


def test_local_sends_nothing_and_its_clients_decide():
    world = run("local", rounds=2)
    assert not [row for row in world.rows if row[0] == R.SEND]
    assert world.summary["rounds"] == 2
    assert len(world.rounds) == 40


@pytest.mark.parametrize(("scheme", "part"), [("fedper", "convolutions"), ("fedrep", "representation")])
def test_what_is_not_shared_stays_with_the_client(scheme: str, part: str):
    world = run(scheme, rounds=2)
    sizes = Counter(row[6] for row in world.rows if row[0] == R.SEND)
    from emul.learning import Task

    setup = world.finished.wiring.setups[0]
    assert setup.task is not None
    places = Task(setup.task, 20, 5).for_node("client1", 0, lambda: 1).part(part)
    assert all(4 * len(places) < size < 4 * len(places) + 200 for size in sizes)


def test_the_accuracy_of_a_run_is_the_mean_of_the_clients_own_models_without_poisoned_ones():
    clean, poisoned = (run("fedprox, personal: true", 2, attacks) for attacks in (
        "[]", "[{nodes: [client1, client7], data: label_random}]"))
    for world, clients in ((clean, 20), (poisoned, 18)):
        own = {o.node: o.values["accuracy"] for o in world.finished.observations
               if o.round == 2 and "accuracy" in o.values}
        assert len(own) == clients
        row, = (row for row in world.rounds if row["round"] == 2)
        assert row["accuracy"] == pytest.approx(np.mean(list(own.values())))
        assert row["accuracy_std"] == pytest.approx(np.std(list(own.values())))
        assert world.summary["accuracy"] == pytest.approx(row["accuracy"])
    assert clean.digest != poisoned.digest


def test_fedprox_with_mu_0_is_fedavg_and_reports_the_global_model():
    fedavg, fedprox, pulled = (run(scheme, 2) for scheme in ("fedavg", "fedprox, mu: 0", "fedprox, mu: 5"))
    for world in (fedavg, fedprox, pulled):
        assert {row["accuracy_of"] for row in world.rounds} == {world.summary["accuracy_of"]} == {"global"}
    for name in ("accuracy", "digest_model", "bytes_total"):
        assert fedprox.summary[name] == fedavg.summary[name] != 0, name
    assert pulled.summary["digest_model"] != fedavg.summary["digest_model"]


@pytest.mark.parametrize(("scheme", "beside"), [("fedprox", "global"), ("fesem", "cluster")])
def test_the_personal_models_accuracy_stands_beside_that_of_the_servers_where_it_is_asked_for(scheme: str, beside: str):
    server, own = run(scheme, 2), run(f"{scheme}, personal: true", 2)
    assert (server.summary["accuracy_of"], own.summary["accuracy_of"]) == (beside, "personal")
    for row, other in zip(server.rounds, own.rounds, strict=True):
        assert row["accuracy"] == other["accuracy_global"] != other["accuracy"]
        assert {"accuracy_received", "accuracy_std"} <= other.keys()


def test_the_spread_is_that_of_the_clients_and_not_of_running_means():
    from emul.record.tables import rounds_of

    world = run("fedprox, personal: true", 1)
    seen = [(1, 1, {"accuracy": 1.0}), (2, 1, {"accuracy": 0.5})]
    row, = rounds_of(columns(world.rows), world.header, seen)
    assert (row["accuracy"], row["accuracy_std"], row["accuracy_min"], row["accuracy_max"]) == (0.75, 0.25, 0.5, 1.0)


def test_prototype_schemes_report_silhouette_and_failure_rate():
    row, = run("fedproto").rounds
    assert -1 <= row["silhouette"] <= 1
    assert 0 <= row["failure_rate"] <= 1


def test_prediction_by_the_nearest_prototype_is_another_accuracy():
    model, nearest = (run(f"fedproto, predict: {how}", 3) for how in ("model", "nearest"))
    assert model.digest == nearest.digest                       # evaluation changes nothing
    assert model.summary["accuracy"] != nearest.summary["accuracy"]
    assert nearest.summary["accuracy"] > 0.3


def test_tampered_prototypes_reach_the_server_and_clients_are_drawn_by_fraction():
    clean, tampered = run("fedproto", 2), run("fedproto", 2, "[{nodes: {fraction: 0.1}, prototypes: shift}]")
    assert len(tampered.finished.wiring.setups[0].attacks) == 2
    assert tampered.rounds[0]["silhouette"] < clean.rounds[0]["silhouette"] + 0.2
    digests = [[row[5] for row in w.rows if row[0] == R.REPORT and row[2] == 0] for w in (clean, tampered)]
    assert digests[0][0] != digests[1][0]


# --- pure parts -----------------------------------------------------------------------------------------------------

def test_mean_and_merge():
    got = {3: Trained(np.float32([4, 0]), 3), 1: Trained(np.float32([0, 8]), 1)}
    assert mean_of(np.float32([9, 9]), got).tolist() == [3.0, 2.0]
    assert mean_of(np.float32([9, 9]), {}).tolist() == [9.0, 9.0]
    model = np.float32([1, 2, 3])
    assert merged(model, np.array([0, 2]), np.float32([7, 8])).tolist() == [7, 2, 8]
    assert model.tolist() == [1, 2, 3]


def test_fesem_finds_clusters_and_an_empty_centre_keeps_its_value():
    rng = np.random.default_rng(0)
    sent = {k: (10.0 * (k % 3) + rng.normal(0, 0.1, 4)).astype(np.float32) for k in range(12)}
    centres = fesem.k_means(sent, 3, np.random.default_rng(1))
    after, chosen = fesem.step(centres, sent)
    assert len({chosen[k] for k in (0, 1, 2)}) == 3
    assert all(chosen[k] == chosen[k % 3] for k in sent)
    for k in (0, 1, 2):
        np.testing.assert_allclose(after[chosen[k]], np.mean([sent[m] for m in sent if m % 3 == k], 0), rtol=1e-5)
    far = np.full(4, 1e6, np.float32)
    moved, chosen = fesem.step([*after, far], sent)
    assert moved[3] is far
    assert set(chosen.values()) == {0, 1, 2}
    assert len(fesem.k_means({1: sent[1]}, 3, rng)) == 1


def test_fedproto_averages_over_holders_and_keeps_what_nobody_sends():
    def own(vectors: dict[int, list[float]], counts: list[int]) -> fedproto.Own:
        return fedproto.Own(*fedproto.tables({j: np.float32(v) for j, v in vectors.items()}),
                            np.array(counts, np.uint32))
    got = {2: own({0: [1, 1]}, [1]), 5: own({0: [3, 3], 4: [2, 2]}, [3, 1])}
    before = {4: np.float32([9, 9]), 7: np.float32([5, 5])}
    found = fedproto.aggregate(before, got, "mean")
    assert {j: v.tolist() for j, v in found.items()} == {0: [2, 2], 4: [2, 2], 7: [5, 5]}
    assert fedproto.aggregate(before, got, "weighted")[0].tolist() == [2.5, 2.5]


@pytest.mark.parametrize(("scheme", "said"), [
    ("fedprox, mu: -1", "expected a number, 0 or above"), ("fesem, centres: 0", "expected 1 or more"),
    ("fedrep, head_epochs: -1", "expected a number of epochs, 0 or more"),
    ("fedproto, deadline: 0 s", "expected a time above 0, or none")])
def test_wrong_parameters_are_refused_when_the_scenario_is_read(scheme: str, said: str):
    with pytest.raises(ScenarioError) as refused:
        run(scheme)
    assert said in str(refused.value)


def test_a_model_without_a_representation_is_refused_when_the_scenario_is_read():
    with pytest.raises(ScenarioError, match="expected one with a representation and a decision, such as mnist_classic"):
        run("fedproto", model="digits_cnn")
