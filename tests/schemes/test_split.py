"""split, splitfed and u_split against training in one place, bytes and times against their closed forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul import engine, load_run
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.learning import Task
from emul.learning.stacked_pieces import There, _Stacked
from emul.message.wire import Message, encode
from emul.preview.explain import explain, tables
from emul.protocols.split import Activations, Done, Features, Gradients, HeadGradients, Turn
from emul.scenario import loads
from emul.testing import MS, Ran, Shuffled, run_text
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TEXT = """
emul: 1
name: split
seed: 7
topology: {generator: star, clients: 2}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, partition: iid, model: digits_classic, solver: {sgd: {lr: 0.1, steps: 3, batch: 20}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 2}
"""
SPLIT, U_SPLIT = "{name: split, cut: 2}", "{name: u_split, cut: 2, head: 8}"
AT_CUT, AT_HEAD = 10 * 4 * 4, 50        # numbers of a sample behind layers 2 and 8 of digits_classic
FIRST, LAST = 100, 510                  # parameters of the bottom and of the head


def model_of(scheme: str, folder: Path, *sets: str) -> np.ndarray:
    """What the server reported last."""
    result, = engine.run(loads(TEXT.replace("SCHEME", scheme), "t", list(sets)), workers=0, out=folder)
    return load_run(result.directory).model("server").vector()


def in_one_place(rounds: int = 2) -> np.ndarray:
    """The whole model, trained on the batches of client after client, round after round."""
    task = Task(loads(TEXT.replace("SCHEME", SPLIT), "t").task, 2, 7)
    now = [0]
    nodes = [task.for_node(f"client{k + 1}", k, lambda: now[0]) for k in range(2)]
    model = task.initial_parameters()
    for now[0] in range(1, rounds + 1):
        for node in nodes:
            model = model + node.local_update(model)[0]
    return model


@pytest.mark.parametrize("scheme", [SPLIT, U_SPLIT, SPLIT[:-1] + ", micro_batches: 3}"])
def test_over_perfect_links_it_is_the_whole_model_trained_on_the_same_batches(scheme: str, tmp_path: Path) -> None:
    found = model_of(scheme, tmp_path)
    expected = in_one_place()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-6)
    assert np.abs(expected - in_one_place(1)).max() > 1e-3


def test_micro_batches_of_several_clients_do_not_mix_in_the_one_top_of_v2(tmp_path: Path) -> None:
    """A batch in one part and in three is the same, whoever is served in between."""
    whole, parts = (model_of(f"{{name: splitfed, cut: 2, version: v2, micro_batches: {m}}}", tmp_path / str(m),
                             "task.solver.sgd.steps=1", "stop.rounds=1") for m in (1, 3))
    np.testing.assert_allclose(parts, whole, rtol=1e-3, atol=1e-4)


def test_splitfed_v1_is_federated_averaging_and_v2_is_not(tmp_path: Path) -> None:
    expected = model_of("fedavg", tmp_path / "a", "task.partition={dirichlet: 0.5}")
    v1, v2 = (model_of(f"{{name: splitfed, cut: 2, version: {v}}}", tmp_path / v, "task.partition={dirichlet: 0.5}")
              for v in ("v1", "v2"))
    np.testing.assert_allclose(v1, expected, rtol=1e-4, atol=2e-6)
    assert np.abs(v2 - expected).max() > 1e-3
    np.testing.assert_allclose(v2[:FIRST], expected[:FIRST], atol=0.05)     # bottoms are averaged all the same


# --- bytes and times --------------------------------------------------------------------------------------------------

def sizes(ran: Ran, kind: str, message: Message, numbers: int) -> None:
    """Every message of this kind has 4 bytes a number and the header that this one has, which is short."""
    size = encode(message).size
    assert 0 < size - 4 * numbers < 64
    assert set(ran.payloads[kind]) == {size}


def test_bytes_of_a_batch_are_activations_and_gradients() -> None:
    b = 20
    a, z = np.zeros((b, 10, 4, 4), np.float32), np.zeros((b, 50), np.float32)
    ran = run_text(TEXT.replace("SCHEME", U_SPLIT), "stop.rounds=1")
    sizes(ran, "Activations", Activations(0, 0, b, b, a, None), b * AT_CUT)
    sizes(ran, "Gradients", Gradients(0, 0, a), b * AT_CUT)
    sizes(ran, "Features", Features(0, 0, z), b * AT_HEAD)
    sizes(ran, "HeadGradients", HeadGradients(0, 0, z), b * AT_HEAD)
    sizes(ran, "Turn", Turn(np.zeros(FIRST + LAST, np.float32)), FIRST + LAST)
    assert [len(ran.payloads[kind]) for kind in ("Activations", "Features", "HeadGradients", "Gradients")] == [6] * 4
    with_labels = run_text(TEXT.replace("SCHEME", SPLIT), "stop.rounds=1")
    sizes(with_labels, "Activations", Activations(0, 0, b, b, a, np.zeros(b, np.int32)), b * (AT_CUT + 1))


COSTS = {"client/load": 0.001, "client/forward": 0.003, "client/backward": 0.005, "client/head": 0.002,
         "server/load": 0.007, "server/top": 0.011, "server/middle": 0.013, "server/middle back": 0.017,
         "server/assemble": 0.019}


def taken(ran: Ran, rate_bps: int, latency_ns: int) -> int:
    """ns of all messages, sent one after the other: latency and transfer, with 16 bytes a copy."""
    each = [size + 16 for sizes in ran.payloads.values() for size in sizes]
    return sum(latency_ns + -(-size * 8 * 10**9 // rate_bps) for size in each)


@pytest.mark.parametrize(("scheme", "a_batch_s", "messages"), [
    (SPLIT, 0.003 + 0.011 + 0.005, 2), (U_SPLIT, 0.003 + 0.013 + 0.002 + 0.017 + 0.005, 4)])
def test_a_round_takes_what_its_messages_and_computations_take(scheme: str, a_batch_s: float, messages: int) -> None:
    """Exactly: of each batch round trips, sizes over rates, computations; of each client its turn there and back."""
    ran = run_text(TEXT.replace("SCHEME", scheme), "stop.rounds=1", "links[0].bandwidth=8 Mbit/s", costs=COSTS)
    assert sum(map(len, ran.payloads.values())) == 2 * (2 + 3 * messages)
    computed = round(1e9 * (0.007 + 0.019 + 2 * (0.001 + 3 * a_batch_s)))
    assert ran.rounds[0]["left_ns"] == taken(ran, 8 * 10**6, 20 * MS) + computed


@pytest.mark.parametrize(("in_flight", "waits"), [(1, 6), (2, 3), (3, 2), (6, 1)])
def test_latency_is_waited_for_once_in_so_many_batches_as_are_in_flight(in_flight: int, waits: int) -> None:
    ran = run_text(TEXT.replace("SCHEME", f"{{name: split, cut: 2, in_flight: {in_flight}}}"), "stop.rounds=1",
                   "task.solver.sgd.steps=6", "topology.clients=1")
    assert ran.rounds[0]["left_ns"] == (2 + 2 * waits) * 20 * MS
    assert len(ran.payloads["Gradients"]) == 6


def test_micro_batches_overlap_computing_and_sending() -> None:
    """Four parts: the server computes on the first while the client computes the second."""
    text, cost = TEXT.replace("SCHEME", "{name: split, cut: 2, micro_batches: 4}"), {
        **dict.fromkeys(COSTS, 0.0), "client/forward": 0.010, "server/top": 0.010, "client/backward": 0.010}
    ran = run_text(text, "stop.rounds=1", "task.solver.sgd.steps=1", "topology.clients=1", costs=cost)
    assert len(ran.payloads["Activations"]) == 4
    # the last part: 4 forwards, there, top, back, backward; all others are done by then
    assert ran.rounds[0]["left_ns"] == round(1e9 * (0.02 + 4 * 0.01 + 0.02 + 0.01 + 0.02 + 0.01 + 0.02))


@pytest.mark.parametrize(("scheme", "kinds"), [
    (SPLIT, ("Activations", "Gradients")), (U_SPLIT, ("Activations", "Features", "HeadGradients", "Gradients"))])
def test_a_codec_packs_what_crosses_the_cut(scheme: str, kinds: tuple[str, ...]) -> None:
    plain, packed = (run_text(TEXT.replace("SCHEME", entry), "stop.rounds=1") for entry in (
        scheme, scheme[:-1] + ", compress: {up: {uniform: {bits: 8}}, down: {uniform: {bits: 8}}}}"))
    for kind in kinds:
        assert max(packed.payloads[kind]) < min(plain.payloads[kind]) / 3
    assert packed.rounds[0]["received"] == 2
    assert packed.models != plain.models


# --- losses and mistakes ----------------------------------------------------------------------------------------------

def test_a_lost_message_ends_the_turn_of_its_client_alone() -> None:
    text = TEXT.replace('latency: 20 ms}', 'latency: 20 ms}, {match: "server->client1", outage: {model: bernoulli, '
                        'p: 0.5, per: message}}')
    ran = run_text(text.replace("SCHEME", SPLIT), "stop.rounds=4")
    received = [row["received"] for row in ran.rounds]
    assert all(row["completed"] for row in ran.rounds)
    assert 1 in received
    assert len(ran.of("server", R.REPORT)) == 4


@pytest.mark.parametrize(("scheme", "said"), [
    ("{name: split, cut: 77}", r'no layer "77": expected one of 0, 1'),
    ("{name: u_split, cut: 8, head: 2}", "no layer lies between 8 and 2"),
    ("{name: splitfed, cut: 9}", "no layer lies between 9 and the outputs"),
    ("{name: split, cut: 2, in_flight: 0}", "expected a number of batches, 1 or more"),
    ("{name: split}", "missing")])
def test_a_cut_that_does_not_exist_is_an_error_of_check(scheme: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(TEXT.replace("SCHEME", scheme), "t")


def test_explain_says_what_a_batch_sends() -> None:
    explained = explain(loads(TEXT.replace("SCHEME", SPLIT), "t"))
    by_type = {row["type"]: row for row in explained["schemes"][0]["round"]["by_type"]}
    assert {kind: row["messages"] for kind, row in by_type.items()} == {
        "Turn": 2, "Activations": 2, "Gradients": 2, Done.__name__: 2}
    assert by_type["Gradients"]["payload_bytes"] > 2 * 4 * 20 * AT_CUT
    assert "split, in a round of one batch" in [title for title, _ in tables(explained)]


# --- several clients at once ------------------------------------------------------------------------------------------

SPLITFED, FUSE = "{name: splitfed, cut: 2}", "fuse={clients: 3, lanes: 2}"
FUSED = (FUSE, "topology.clients=6", "task.partition={dirichlet: 0.3}", "task.model=digits_mlp")


@pytest.mark.parametrize("scheme", [SPLIT, U_SPLIT])
def test_fuse_changes_nothing_where_clients_have_their_turns_one_after_the_other(scheme: str) -> None:
    text = TEXT.replace("SCHEME", scheme)
    alone, fused = run_text(text), run_text(text, "fuse={clients: 2, lanes: 1}")
    assert fused.digest == alone.digest
    assert len(alone.models) == 2


@pytest.mark.parametrize("scheme", [SPLITFED, SPLITFED[:-1] + ", version: v2, micro_batches: 2, in_flight: 2}"])
def test_bottoms_that_are_computed_as_one_are_those_of_each_client_alone(
        scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, whole = [], There.many
    monkeypatch.setattr(There, "many", staticmethod(lambda asked: sizes.append(len(asked)) or whole(asked)))
    alone = model_of(scheme, tmp_path / "alone", *FUSED[1:])
    assert not sizes
    fused = model_of(scheme, tmp_path / "fused", *FUSED)
    assert set(sizes) == {3}
    np.testing.assert_allclose(fused, alone, rtol=1e-4, atol=2e-6)


def test_times_and_messages_are_those_of_clients_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bottoms of clients whose links differ, which begin at other times and come back in other groups."""
    again, of = [], _Stacked.of
    monkeypatch.setattr(_Stacked, "of", lambda passes: again.append(len(passes)) or of(passes))
    text = TEXT.replace("20 ms}]", '20 ms}, {match: "client2->server", latency: 27 ms}, '
                                   '{match: "client3<->server", latency: 33 ms, bandwidth: 5 Mbit/s}]')
    costs = {**COSTS, "server/top": 0.001, "server/average": 0.001}
    alone, *fused = (run_text(text.replace("SCHEME", SPLITFED), *sets, "task.model=digits_classic", costs=costs,
                              pool=pool)
                     for sets, pool in ((FUSED[1:], Twin()), (FUSED, Twin()), (FUSED, Shuffled(2, 3))))
    unreported = [[row for row in ran.rows if row[0] != R.REPORT] for ran in (alone, *fused)]
    assert unreported[0] == unreported[1] == unreported[2]
    assert {ran.digest for ran in fused} != {alone.digest}
    assert len({ran.digest for ran in fused}) == 1
    assert max(again) > 1, again


def test_workers_and_a_replay_come_to_the_digest_of_the_one_process(tmp_path: Path, pools: list[Workers]) -> None:
    sets = (*FUSED, "task.model=digits_classic")        # whose stacked passes differ in their last bits from lone ones
    scenario = loads(TEXT.replace("SCHEME", SPLITFED), "t", list(sets))
    result, = engine.run(scenario, workers=0, out=tmp_path)
    assert result.summary is not None
    assert engine.replay(result.directory, workers=0) == result.summary["digest"]
    first, other = (run_text(TEXT.replace("SCHEME", SPLITFED), *sets, pool=pool) for pool in (Twin(), pools[1]))
    assert first.digest != run_text(TEXT.replace("SCHEME", SPLITFED), *sets[1:]).digest
    assert other.digest == first.digest
