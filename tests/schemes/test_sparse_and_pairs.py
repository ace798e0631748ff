"""SparseLoCo, NoLoCo and the codes of DiLoCo: against oracles that go number by number, and their bytes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from emul.base import rows as R
from emul.base.errors import NotSendable, ScenarioError
from emul.base.streams import generator
from emul.learning import NodeTask, Task
from emul.message.wire import encode
from emul.primitives.compress import choose
from emul.protocols.collective import Code
from emul.protocols.updates import Sent, encoded
from emul.scenario import loads
from emul.schemes import diloco, local_sgd, noloco, sparseloco
from emul.testing import Ran, run_text

D = 650                                 # parameters of the examples' model
DEAF = ('links: [{', 'links: [{match: "peer2->peer3", outage: {model: bernoulli, p: 1, per: message}}, {')
Vectors = dict[tuple[int, int], np.ndarray]        # (peer from 0, round) -> (d,)


def drawn(i: int, round_: int) -> np.ndarray:
    """The difference that peer i trains in a round: heavy tails, so that the largest are clear."""
    return (1e-2 * np.random.default_rng([i, round_]).standard_t(2, D)).astype(np.float32)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Ran, Vectors]]:
    """Runs a scenario whose peers train what `drawn` says: (the run, each peer's model after each round)."""
    seen: list[np.ndarray] = []

    def local_update(task: Any, model: np.ndarray, *, steps: int | None) -> tuple[np.ndarray, int]:
        return drawn(int(task._name.removeprefix("peer").removeprefix("client")) - 1, task._round_of()), 1

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        seen.append(np.array(model))
        return {"accuracy": float(len(seen) - 1)}

    def run(text: str, *sets: str) -> tuple[Ran, Vectors]:
        found = run_text(text, *sets)
        return found, {(o.node, o.round): seen[int(o.values["accuracy"])] for o in found.finished.observations}
    monkeypatch.setattr(NodeTask, "local_update", local_update)
    monkeypatch.setattr(Task, "evaluate", evaluate)
    return run


def first(text: str) -> np.ndarray:
    scenario = loads(text)
    return np.array(Task(scenario.task, 5, scenario.seed).initial_parameters())


def changed(text: str, was: str, becomes: str) -> str:
    assert was in text
    return text.replace(was, becomes)


# --- SparseLoCo -------------------------------------------------------------------------------------------------------

def sent(a: np.ndarray, k: int, chunk: int, bins: int) -> np.ndarray:
    """The k largest of each chunk, each with the mean size of its bin; bins: 0, as they are."""
    found = np.zeros(len(a))
    for start in range(0, len(a), chunk):
        part = [float(x) for x in a[start:start + chunk]]
        places = sorted(range(len(part)), key=lambda i: -abs(part[i]))[:k]
        low, high = min(abs(part[i]) for i in places), max(abs(part[i]) for i in places)
        bin_of = {i: min(bins - 1, int((abs(part[i]) - low) * bins / (high - low))) if bins else i for i in places}
        for i in places:
            alike = [abs(part[j]) for j in places if bin_of[j] == bin_of[i]]
            found[start + i] = math.copysign(sum(alike) / len(alike), part[i])
    return found


def sparsely(start: np.ndarray, rounds: int, *, senders: bool = False, bins: int = 2, k: int = 8, rate: float = 1.0,
             deaf: Iterable[int] = ()) -> Vectors:
    """Equations 1 and 2 for 5 peers. deaf: those whose rounds all fail."""
    theta = {i: start.astype(np.float64) for i in range(5)}
    left, found = {i: np.zeros(D) for i in range(5)}, {}
    for round_ in range(1, rounds + 1):
        a = {i: 0.95 * left[i] - drawn(i, round_) for i in range(5)}
        D_ = {i: sent(a[i], k, 64, bins) for i in range(5)}
        for i in set(range(5)) - set(deaf):
            left[i] = a[i] - D_[i]
            total = np.sum([*D_.values()], 0)
            count = np.maximum(np.sum([v != 0 for v in D_.values()], 0), 1) if senders else 5
            theta[i] = theta[i] - rate * total / count
            found[i, round_] = theta[i]
    return found


def same(found: Vectors, expected: Vectors) -> None:
    assert found.keys() == expected.keys()
    for key, vector in expected.items():
        np.testing.assert_allclose(found[key], vector, atol=2e-6, err_msg=str(key))


@pytest.mark.parametrize(("sets", "how"), [
    ((), {}), (("schemes[0].mean=senders",), {"senders": True}), (("schemes[0].bits=4",), {"bins": 8}),
    (("schemes[0].bits=32", "schemes[0].k=5", "schemes[0].rate=0.5"), {"bins": 0, "k": 5, "rate": 0.5})])
def test_sparseloco_is_the_papers_equations(ran: Any, sets: tuple[str, ...], how: dict[str, Any]) -> None:
    world, found = ran(sparseloco.EXAMPLE, "stop.rounds=4", *sets)
    same(found, sparsely(first(sparseloco.EXAMPLE), 4, **how))
    assert len(set(world.models)) == 4              # one for each round: replicas have the same bits
    assert len(world.models) == 20


def test_a_peer_whose_round_fails_keeps_its_error_and_its_model(ran: Any) -> None:
    """Peer 3 never hears peer 2. It trains from the first model on, and what it sends holds no error of a failed
    round."""
    world, found = ran(changed(sparseloco.EXAMPLE, *DEAF), "schemes[0].timeout=none")
    same(found, sparsely(first(sparseloco.EXAMPLE), 3, deaf=[2]))
    assert {row[2] for row in world.rows if row[0] == R.LEAVE and row[4]} == {2}


def test_sparseloco_of_all_values_without_errors_is_local_sgd(ran: Any) -> None:
    _, ours = ran(sparseloco.EXAMPLE, "schemes[0].k=64", "schemes[0].decay=0", "schemes[0].bits=32")
    _, theirs = ran(changed(local_sgd.EXAMPLE, "peers: 4", "peers: 5"))
    assert ours.keys() == theirs.keys()
    assert max(np.abs(ours[key] - theirs[key]).max() for key in ours) < 1e-6
    assert np.abs(ours[0, 3] - first(sparseloco.EXAMPLE)).max() > 1e-2


def test_through_a_store_every_peer_gets_the_same_codes_by_other_links(ran: Any) -> None:
    """A peer sends its code once, and the store hands on those of the n - 1 others."""
    direct, expected = ran(sparseloco.EXAMPLE, "stop.rounds=3")
    text = changed(sparseloco.EXAMPLE, "{generator: complete, peers: 5}", "{generator: star, clients: 5}")
    stored, found = ran(text, "stop.rounds=3", "schemes[0].store=true")
    assert len(found) == len(expected) == 15
    for ours, theirs in zip(sorted(found), sorted(expected), strict=True):          # of peers in their order
        np.testing.assert_array_equal(found[ours], expected[theirs])
    assert len(direct.payloads["Code"]) == 3 * 5 * 4
    assert {kind: len(sizes) for kind, sizes in stored.payloads.items()} == {"Code": 3 * 5, "StoredCode": 3 * 5 * 4}


@given(sizes=st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_differences_longer_than_the_median_are_shortened_to_it(sizes: list[float]) -> None:
    vectors = [np.array([0.6, 0, -0.8], np.float32) * np.float32(size) for size in sizes]
    middle = sorted(sizes)
    median = (middle[(len(sizes) - 1) // 2] + middle[len(sizes) // 2]) / 2
    for size, before, after in zip(sizes, vectors, sparseloco.clipped(vectors), strict=True):
        np.testing.assert_allclose(after, before * min(1, median / size), rtol=1e-5)


def test_with_clip_a_peer_that_trains_ten_times_as_far_moves_the_mean_no_further(
        ran: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All values are sent as they are, so a step is the mean of the shortened differences."""
    honest = drawn

    def far(i: int, round_: int) -> np.ndarray:
        return honest(i, round_) * np.float32(10 if i == 2 else 1)
    monkeypatch.setitem(globals(), "drawn", far)
    every = "schemes[0].k=64", "schemes[0].decay=0", "schemes[0].bits=32", "stop.rounds=1"
    start = first(sparseloco.EXAMPLE)
    steps = [far(i, 1).astype(np.float64) for i in range(5)]
    norms = [math.sqrt(sum(x * x for x in step)) for step in steps]
    for sets, most in (((), math.inf), (("schemes[0].clip=median",), sorted(norms)[2])):
        _, found = ran(sparseloco.EXAMPLE, *every, *sets)
        mean = np.mean([step * min(1, most / norm) for step, norm in zip(steps, norms, strict=True)], 0)
        np.testing.assert_allclose(found[0, 1], start + mean, atol=2e-6)


def test_a_code_of_sparseloco_has_the_bytes_of_the_closed_form(ran: Any) -> None:
    """650 numbers are 10 chunks of 64 and one of 10, of which 8 each are sent: 2 bits and 6 of a place, and 2 float32
    a chunk."""
    nbytes = 11 * 8 * (2 + 6) // 8 + 11 * 2 * 4
    world, _ = ran(sparseloco.EXAMPLE, "stop.rounds=1")
    assert world.payloads["Code"] == [encode(Code(np.zeros(nbytes, np.uint8))).size] * 20
    assert sparseloco.codec_of(sparseloco.Params()).nbytes(1_035_008) == 253 * 64 * 14 // 8 + 253 * 8 == 28_336 + 2_024


def test_a_difference_that_is_not_finite_is_not_sent() -> None:
    zeros, rng = np.zeros(4, np.float32), np.random.default_rng(0)
    codec = sparseloco.codec_of(sparseloco.Params())
    for wrong in (np.inf, np.nan):
        with pytest.raises(NotSendable):
            sparseloco.encoded(codec, zeros, np.float32([1, wrong, 0, 0]), 0.95, rng)
        for written in ("bf16", "int8", "e3m0", {"top_k": {"k": 2, "bits": 2}}):
            with pytest.raises(NotSendable):
                encoded(choose(written), Sent(), np.float32([1, wrong, 0, 0]), rng)


# --- codes of DiLoCo --------------------------------------------------------------------------------------------------

CODED = changed(diloco.EXAMPLE, "timeout: 10 s", "how: all_gather, codec: CODEC").replace("peers: 4", "peers: 5")


def by_torch(x: np.ndarray) -> np.ndarray:
    return torch.from_numpy(x).bfloat16().float().numpy()


@pytest.mark.parametrize(("codec", "nbytes", "there_and_back"), [
    ("bf16", 2 * D, by_torch),
    ("int8", 1024 + D, None),
    ("{e3m0: {bucket: 65}}", 10 * 4 + 4 * 82, None),
    ("{top_k: {k: 9, chunk: 65, bits: 2, feedback: false}}", 10 * 8 + (2 + 7) * 12, None),
])
def test_diloco_steps_by_the_mean_of_the_decoded_differences(
        ran: Any, codec: str, nbytes: int, there_and_back: Callable[[np.ndarray], np.ndarray] | None) -> None:
    text = CODED.replace("CODEC", codec)
    world, found = ran(text)
    assert world.payloads == {"Code": [encode(Code(np.zeros(nbytes, np.uint8))).size] * 20 * 3}
    used = choose(loads(text).schemes[0][1]["codec"])

    def decoded(x: np.ndarray) -> np.ndarray:
        return used.decode(used.encode(x, np.random.default_rng(0))[0], D)
    theta, b = first(text).astype(np.float64), np.zeros(D)
    for round_ in (1, 2, 3):
        delta = -np.mean([(there_and_back or decoded)(drawn(i, round_)) for i in range(5)], 0)
        b = 0.9 * b + delta
        theta = theta - 0.7 * (delta + 0.9 * b)
        for i in range(5):
            np.testing.assert_allclose(found[i, round_], theta, atol=2e-6)
    assert len(set(world.models)) == 3              # replicas have the same bits


def test_diloco_adds_what_codes_left_out_to_the_next_difference_unless_the_round_fails(ran: Any) -> None:
    """Peer 3 never hears peer 2, so that it leaves nothing out of its next difference."""
    text = CODED.replace("CODEC", "{top_k: {k: 4, chunk: 64}}").replace(*DEAF)
    _, found = ran(text, "schemes[0].rate=1", "schemes[0].momentum=0")
    left, theta = {i: np.zeros(D) for i in range(5)}, first(text).astype(np.float64)
    for round_ in (1, 2, 3):
        x = {i: left[i] + drawn(i, round_) for i in range(5)}
        D_ = {i: sent(x[i], 4, 64, 0) for i in range(5)}
        left = {i: x[i] - D_[i] if i != 2 else left[i] for i in range(5)}
        theta = theta + np.mean([*D_.values()], 0)
        assert {i for i, at in found if at == round_} == {0, 1, 3, 4}
        np.testing.assert_allclose(found[0, round_], theta, atol=2e-6)


# --- NoLoCo -----------------------------------------------------------------------------------------------------------

@given(st.integers(0, 2**32), st.integers(1, 1000), st.integers(2, 40))
def test_pairs_are_mutual_and_one_of_an_odd_number_is_left(seed: int, round_: int, n: int) -> None:
    members = list(range(3, 3 + n))
    of = {i: noloco.partner_of(seed, round_, members, i) for i in members}
    assert [i for i, (*partner,) in of.items() if partner and of[partner[0]] != [i]] == []
    assert [len(partner) for partner in of.values()].count(0) == n % 2
    assert not any(i in partner for i, partner in of.items())


def test_everybody_meets_everybody() -> None:
    """Of 300 rounds with 6 peers, a pair has 60 as the mean; 30 are 4.3 standard deviations fewer."""
    met = np.zeros((6, 6), int)
    for round_ in range(300):
        for i in range(6):
            met[i, noloco.partner_of(1, round_, range(6), i)] += 1
    assert (met[~np.eye(6, dtype=bool)] > 30).all()


def in_pairs(start: np.ndarray, n: int, rounds: int, *, alpha: float = 0.5, beta: float = 0.7, gamma: float = 0.7,
             deaf: Iterable[tuple[int, int]] = ()) -> Vectors:
    """The rule pair by pair. deaf: (i, j): i hears nothing of j."""
    phi, m, found = {i: start.astype(np.float64) for i in range(n)}, {i: np.zeros(D) for i in range(n)}, {}
    for round_ in range(1, rounds + 1):
        order = [int(i) for i in generator(7, "pairs", round_).permutation(n)]
        step = {}
        for pair in [*zip(order[::2], order[1::2], strict=False), *([(order[-1],) * 2] if n % 2 else [])]:
            for i, j in (pair, pair[::-1]):
                other = i if (i, j) in deaf else j
                mean = (drawn(i, round_) + drawn(other, round_)) / 2
                step[i] = alpha * m[i] + beta * mean - gamma * (phi[i] - phi[other]) / 2
        m, phi = step, {i: phi[i] + step[i] for i in range(n)}
        found |= {(i, round_): phi[i] for i in range(n)}
    return found


@pytest.mark.parametrize("n", [2, 4, 5])
@pytest.mark.parametrize(("sets", "how"), [
    ((), {}), (("schemes[0].gamma=1.5", "schemes[0].momentum=0.2", "schemes[0].rate=1"),
               {"gamma": 1.5, "alpha": 0.2, "beta": 1.0})])
def test_noloco_is_the_rule_pair_by_pair(ran: Any, n: int, sets: tuple[str, ...], how: dict[str, float]) -> None:
    text = changed(noloco.EXAMPLE, "peers: 5", f"peers: {n}")
    world, found = ran(text, "stop.rounds=6", *sets)
    same(found, in_pairs(first(text), n, 6, **how))
    assert [row["paired"] for row in world.rounds].count(False) == (n % 2) * 6
    header = encode(noloco.Replica(np.zeros(D, np.float32), np.zeros(D, np.float32))).size - 8 * D
    assert world.payloads == {"Replica": [8 * D + header] * (6 * (n - n % 2))}


def test_a_peer_that_hears_nothing_of_its_partner_goes_on_alone(ran: Any) -> None:
    text = changed(noloco.EXAMPLE, *DEAF).replace("peers: 5", "peers: 2").replace("peer2->peer3", "peer2->peer1")
    world, found = ran(text)
    same(found, in_pairs(first(text), 2, 3, deaf=[(0, 1)]))
    assert not world.summary["rounds_failed"]


def test_a_slow_pair_keeps_nobody_else_waiting(ran: Any) -> None:
    """Of 4 peers one pair has a latency of 3 s in the first round. The others are in their second before it ends."""
    order = [int(i) + 1 for i in generator(7, "pairs", 1).permutation(4)]
    slow = f'bandwidth: 20 Mbit/s}}, {{match: "peer{order[0]}<->peer{order[1]}", latency: 3 s}}]'
    text = changed(changed(noloco.EXAMPLE, "peers: 5", "peers: 4"), "bandwidth: 20 Mbit/s}]", slow)
    world, _ = ran(text, "stop.rounds=2")
    entered = {row[2] + 1: row[1] / 1e9 for row in world.rows if row[0] == R.ENTER and row[3] == 2}
    assert all(entered[i] > 3 for i in order[:2])
    assert all(entered[i] < 0.1 for i in order[2:])


def test_a_peer_that_returns_skips_to_the_rounds_of_the_others(ran: Any, tmp_path: Path) -> None:
    """A training takes a second, so that by itself it would stay the eight rounds behind that it was gone for."""
    profile = tmp_path / "second.json"
    profile.write_text('{"emul_profile": 1, "costs": {"noloco/peer/train": [1, 0], "noloco/peer/outer": [0, 0]}}')
    text = changed(noloco.EXAMPLE, "mode: zero", f"mode: profile, file: {profile}").replace("peers: 5", "peers: 8")
    text = changed(text, "stop:", "faults: [{at: 2500 ms, node: peer2, crash: true, for: 8 s}]\nstop:")
    world, found = ran(text, "stop.rounds=30", "schemes[0].timeout=none")
    same({key: vector for key, vector in found.items() if key[1] < 3}, in_pairs(first(text), 8, 2))
    own = sorted(row[3] for row in world.rows if row[0] == R.ENTER and row[2] == 1 and row[3])
    back = next(round_ for before, round_ in pairwise(own) if round_ > before + 1)
    assert 8 < back < 16
    late = [row for row in world.rounds if row["round"] >= 16]
    assert len(late) == 8 * 15
    assert all(row["paired"] for row in late)


# --- a small training -------------------------------------------------------------------------------------------------

BYTES_OF_SOURCES = """
emul: 1
name: small_training
seed: 7
topology: {generator: complete, peers: 4}
links: [{match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}]
task:
  data: {set: text, package: networkx, window: 128, test: 96}
  partition: {by: file}
  model: {transformer: {blocks: 5, width: 128, heads: 4}}
  solver: {adamw: {lr: 0.001, beta2: 0.95, weight_decay: 0.1, decays: matrices, steps: 10, batch: 4, clip: 1,
                   keep: true, schedule: {warm_up: 30, steps: 200, to: 0.1}}}
compute: {mode: zero}
schemes: [SCHEME]
stop: {rounds: 20}
"""


@pytest.mark.release
@pytest.mark.parametrize(("scheme", "loss", "kind", "nbytes"), [
    ("sparseloco", 2.674, "Code", 28_336 + 2_024), ("{name: sparseloco, mean: senders}", 2.515, "Code", 28_336 + 2_024),
    ("noloco", 2.492, "Replica", 8 * 1_035_008)])
def test_a_small_transformer_comes_to_the_loss_of_a_plain_loop(
        monkeypatch: pytest.MonkeyPatch, scheme: str, loss: float, kind: str, nbytes: int) -> None:
    """200 steps of 4 peers, in nats a byte. The expected losses are those of a loop in plain torch with batches and
    test windows of its own; another seed moved its losses by 0.02."""
    last: deque[tuple[Task, np.ndarray]] = deque(maxlen=4)
    whole = Task.evaluate

    def evaluate(task: Task, model: np.ndarray) -> dict[str, float]:
        last.append((task, np.array(model)))
        return {"accuracy": 0.0}
    monkeypatch.setattr(Task, "evaluate", evaluate)
    ran = run_text(BYTES_OF_SOURCES.replace("SCHEME", scheme))
    mean = np.mean([model for _, model in last], 0, dtype=np.float64).astype(np.float32)
    assert abs(whole(last[0][0], mean)["loss"] - loss) < 0.03
    assert set(ran.payloads) == {kind}
    assert all(0 < size - nbytes < 50 for size in ran.payloads[kind])


# --- mistakes ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("text", "was", "becomes", "said"), [
    (diloco.EXAMPLE, "timeout: 10 s", "how: tree, codec: bf16",
     "how = tree *adds up on the way, and a sum of codes of bf16 is no code: expected ring or all_gather"),
    (diloco.EXAMPLE, "timeout: 10 s", "how: server, codec: {int8: {sigmas: 3}}", "a sum of codes of int8 is no code"),
    (diloco.EXAMPLE, "timeout: 10 s", "how: all_gather", "sends codes: expected a codec, or another how"),
    (local_sgd.EXAMPLE, "how: tree", "how: all_gather, codec: int9", 'unknown codec "int9"; did you mean "int8"'),
    (diloco.EXAMPLE, "timeout: 10 s", "how: all_gather, codec: {int8: {sigmas: 0}}", "expected a number > 0"),
    (CODED.replace("CODEC", "bf16"), "peers: 5", "peers: 1", "one peer has nobody to add up with"),
    (CODED.replace("CODEC", "qsgd"), "compute:", "training: skip\ncompute:", "length depends on the values"),
    (sparseloco.EXAMPLE, "peers: 5", "peers: 1", "expected two or more"),
    (sparseloco.EXAMPLE, "k: 8", "k: 0", "expected at least 1"),
    (sparseloco.EXAMPLE, "k: 8", "bits: 12", r"expected 1\.\.8, or 32"),
    (sparseloco.EXAMPLE, "k: 8", "decay: 1.5", r"expected a number in \[0, 1\]"),
    (sparseloco.EXAMPLE, "k: 8", "mean: none", "expected one of all, senders"),
    (noloco.EXAMPLE, "peers: 5", "peers: 1", "expected two or more"),
    (noloco.EXAMPLE, "timeout: 10 s", "gamma: -1", "expected a number, 0 or above"),
    (noloco.EXAMPLE, "timeout: 10 s", "momentum: 1", r"expected a number in \[0, 1\)"),
])
def test_mistakes_are_told(text: str, was: str, becomes: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        loads(changed(text, was, becomes))


@pytest.mark.parametrize("scheme", [sparseloco, noloco])
def test_an_inner_solver_that_begins_anew_is_no_mistake_but_is_said(scheme: Any) -> None:
    scenario = loads(changed(scheme.EXAMPLE, "sgd: {lr: 0.1", "adamw: {lr: 0.1"))
    assert any("the inner solver begins anew" in text for text in scenario.warnings)
