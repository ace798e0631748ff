"""Fair-SecCoGC: the exact mean of all updates since the last success, or nothing; the keys leave no trace in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NotDecodable, TooFewClients
from emul.base.streams import generator
from emul.kernel import NodeCrash
from emul.message.wire import encode
from emul.primitives.crypto.keys import key_pair
from emul.protocols.setup import KeyRequest, KeyRing, KeysHeld, PublicKey
from emul.roles.events import WaitEnd
from emul.roles.world import World
from emul.schemes import fair_seccogc
from emul.schemes.fair_seccogc import Params, check, group, sums
from emul.schemes.fair_seccogc.gradient_coding import cyclic_mds, fractional
from emul.schemes.fair_seccogc.keys import key_of_pairs
from emul.schemes.fair_seccogc.messages import (
    Continue,
    GroupHeld,
    GroupSum,
    Masked,
    Model,
    ModelRequest,
    PartialSum,
    Present,
)


@dataclass
class Audit:
    """What was trained, masked and decoded, in the order of its doing."""

    trained: list[tuple[str, np.ndarray, np.ndarray | None, np.ndarray]] = field(default_factory=list)
    #        (client, Theta_ref, Delta before, Delta after)
    masked: list[tuple[int, int, np.ndarray, np.ndarray]] = field(default_factory=list)     # (round, client, Delta, Y)
    means: list[np.ndarray] = field(default_factory=list)               # one per success

    def of_round(self, t: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        return {k: (delta, y) for r, k, delta, y in self.masked if r == t}


@contextmanager
def audited() -> Iterator[Audit]:
    audit = Audit()
    train_on, masked_update, decode = fair_seccogc.train_on, fair_seccogc.masked_update, fair_seccogc.decode

    def see_training(task: Any, reference: np.ndarray, deltas: Any, data: Any) -> Any:
        after = train_on(task, reference, deltas, data)
        (me,) = after
        audit.trained.append((task.name, reference, deltas.get(me), after[me]))
        return after

    def see_mask(delta: np.ndarray, clip: float | None, key: Any) -> np.ndarray:
        y = masked_update(delta, clip, key)
        me, _, t, _ = key.args
        audit.masked.append((t, me, delta, y))
        return y

    def see_decoding(*arguments: Any) -> Any:
        decoded = decode(*arguments)
        audit.means.append(decoded.mean)
        return decoded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_seccogc, "train_on", see_training)
        patch.setattr(fair_seccogc, "masked_update", see_mask)
        patch.setattr(fair_seccogc, "decode", see_decoding)
        yield audit


def decode(G: np.ndarray, arrived: Any, max_error: float | None = None) -> sums.Decoded:
    """From complete sums {k: S_k}."""
    s = int(np.count_nonzero(G, axis=1).max()) - 1
    return sums.decode(len(G), {k: G[k] for k in arrived}, arrived, len(G) - s, max_error)


def lose(*what: tuple[str, int, int]) -> Any:
    """Lose (kind, source or target that is a client, round)."""
    return lambda kind, source, target, round_: (kind, source or target, round_) in what


# --- exactness (check 9) --------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("lambda_", "tolerance"), [(0.1, 2e-7), (100.0, 2e-4)])
def test_any_set_of_K_minus_s_sums_gives_the_mean(lambda_: float, tolerance: float) -> None:
    K, d = 10, 2000
    G, rng = cyclic_mds(K, 7), np.random.default_rng(1)
    secrets = {frozenset(pair): rng.bytes(32) for pair in combinations(range(K), 2)}
    deltas = rng.normal(0, 0.01, (K, d)).astype(np.float32)
    ys = {k: sums.masked_update(deltas[k], None, partial(
        key_of_pairs, k, {j: secrets[frozenset((k, j))] for j in range(K) if j != k}, 3, lambda_))
        for k in range(K)}
    arrived = {k: sums.combine({m: G[k, m] for m in np.flatnonzero(G[k]).tolist()},
                                    {m: ys[m] for m in np.flatnonzero(G[k]).tolist()}) for k in range(K)}
    mean = deltas.astype(np.float64).mean(axis=0)
    decoded = {F: decode(G, {k: arrived[k] for k in F}) for F in combinations(range(K), 3)}
    worst = max(float(np.abs(found.mean - mean).max()) for found in decoded.values())
    assert all(np.sqrt(((found.mean - mean) ** 2).mean()) <= found.predicted_error for found in decoded.values())
    assert 0 < worst <= tolerance
    # each update is hidden by a key of the standard deviation asked for; together the keys vanish
    noise = np.stack([ys[k].astype(np.float64) - deltas[k] for k in range(K)])
    assert np.abs(noise.std(axis=1) / lambda_ - 1).max() < 0.08
    assert np.abs(noise.sum(axis=0)).max() < 1e-5 * lambda_


@pytest.mark.parametrize(("code", "s"), [("cyclic_mds", 3), ("fractional", 2), ("tandon", 2), ("fractional", 0),
                                         ("tandon", 5)])
def test_with_perfect_links_every_code_moves_the_model_by_the_mean(play: Any, code: str, s: int) -> None:
    with audited() as audit:
        played = play("fair_seccogc", 6, {"s": s, "code": code}, rounds=2)
    model = np.zeros(40)
    for t in (1, 2):
        report = played.reports[t]
        assert (report["decoded"], report["complete"], report["received"]) == (True, 6, 6)
        assert report["amplification"] > 1 - 1e-12
        deltas = np.stack([delta for delta, _ in audit.of_round(t).values()]).astype(np.float64)
        assert len(deltas) == 6
        model = model + deltas.mean(axis=0)
        assert np.abs(played.models[t - 1] - model).max() < 1e-6
    assert np.abs(model).max() > 0.05
    assert {len(played.sent("KeyRequest")), len(played.sent("KeyRing"))} == {6}         # set-up only once


def test_keys_of_different_rounds_differ(play: Any) -> None:
    with audited() as audit:
        play("fair_seccogc", 4, {"s": 1, "on_failure": "repeat"}, rounds=2, lost=lose(*[("PartialSum", k, 1)
                                                                                       for k in (1, 2, 3, 4)]))
    for k in (1, 2, 3, 4):
        (delta1, y1), (delta2, y2) = audit.of_round(1)[k], audit.of_round(2)[k]
        assert np.array_equal(delta1, delta2)              # `repeat`: the same update
        assert np.abs((y1 - y2).std() / (0.1 * 2**0.5) - 1) < 0.4


# --- the failure rule (check 16) ------------------------------------------------------------------------------------

def test_after_two_failures_the_update_is_the_sum_of_three_local_runs(play: Any) -> None:
    uplinks_down = lose(*[("PartialSum", k, t) for k in (1, 2, 3, 4, 5) for t in (1, 2)])
    with audited() as audit:
        played = play("fair_seccogc", 5, {"s": 2}, rounds=4, lost=uplinks_down)
    assert [played.why[0, t] for t in (1, 2, 3, 4)] == [
        *["NotDecodable: 0 complete sums arrived, K - s = 3 of 5 are needed"] * 2, "", ""]
    assert [played.reports[t]["decoded"] for t in (1, 2, 3, 4)] == [False, False, True, True]
    assert not played.models[0].any()                      # a failed round changes no global model
    assert not played.models[1].any()
    for name in {name for name, *_ in audit.trained}:
        runs = [(reference, before, after) for n, reference, before, after in audit.trained if n == name]
        assert [r[1] is None for r in runs] == [True, False, False, True]
        assert not any(reference.any() for reference, _, _ in runs[:3])
        steps = [runs[0][2], runs[1][2] - runs[1][1], runs[2][2] - runs[2][1]]
        assert np.allclose(runs[2][2], steps[0] + steps[1] + steps[2], atol=1e-6)
        assert np.array_equal(runs[3][0], played.models[2])                 # all start from Theta_ref again
    mean = np.stack([delta for delta, _ in audit.of_round(3).values()]).astype(np.float64).mean(axis=0)
    assert np.abs(played.models[2] - mean).max() < 1e-6
    assert Counter(round_ for round_, *_ in played.sent("Model")) == {1: 5, 4: 5}
    assert Counter(round_ for round_, *_ in played.sent("Continue")) == {2: 5, 3: 5}


def test_a_client_that_missed_a_model_asks_for_it_and_counts_nothing_twice(play: Any) -> None:
    """Round 1 succeeds; client 2 does not hear of it, so round 2 fails; it must not go on from its old model."""
    with audited() as audit:
        played = play("fair_seccogc", 5, {"s": 2}, rounds=4, lost=lose(("Model", 2, 2)))
    assert [played.reports[t]["decoded"] for t in (1, 2, 3, 4)] == [True, False, False, True]
    assert played.why[2, 3] == "Behind: the server continues from model 1, which has not come"
    assert [target for round_, _, target in played.sent("Model") if round_ == 4] == [2]
    for _, reference, _, _ in audit.trained[-5:]:
        assert np.array_equal(reference, played.models[2])
    mean = np.stack([delta for delta, _ in audit.of_round(4).values()]).astype(np.float64).mean(axis=0)
    assert np.abs(played.models[3] - played.models[2] - mean).max() < 1e-6


KINDS = ["KeyRequest", "PublicKey", "KeyRing", "KeysHeld", "Model", "Continue", "ModelRequest", "Masked", "PartialSum",
         "Rekey", "Present", "Group", "GroupHeld", "GroupSum"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.5), st.sampled_from(["continue", "repeat"]), st.booleans(),
       st.frozensets(st.sampled_from(KINDS)), st.sampled_from([None, 0.03]),
       st.lists(st.tuples(st.integers(0, 5), st.integers(0, 300), st.integers(1, 200)), max_size=2),
       st.sampled_from([{}, {"rekey_after": 1}, {"rekey_after": 2}, {"rekey_at": (2, 4)}]), st.booleans())
def test_whatever_is_lost_every_success_adds_the_mean_of_all(play: Any, seed: int, p: float, on_failure: str,
                                                             send_incomplete: bool, reliable: frozenset[str],
                                                             wait_s: float | None, crashes: Any, rekey: Any,
                                                             wipe: bool) -> None:
    count: Counter[tuple[str, int, int, int]] = Counter()

    def loses(kind: str, source: int, target: int, round_: int) -> bool:
        where = (kind, source, target, round_)
        count[where] += 1
        return kind not in reliable and generator(seed, "test", *where, count[where]).random() < p

    faults = [NodeCrash(ms * 1_000_000, node, (ms + back) * 1_000_000, wipe and node > 0)
              for node, ms, back in {c[0]: c for c in crashes}.values()]
    with audited() as audit:
        played = play("fair_seccogc", 5, {"s": 2, "on_failure": on_failure, "send_incomplete": send_incomplete,
                                          "share_s": wait_s, "uplink_s": wait_s, "setup_s": wait_s, **rekey},
                      rounds=6, lost=loses, faults=faults)
    model, means = np.zeros(40, np.float32), iter(audit.means)
    for t, reported in zip(sorted(played.reports), played.models, strict=True):
        report, why = played.reports[t], played.why[0, t]
        if report["decoded"]:
            updates = audit.of_round(t)
            members = report.get("members", 5)
            assert len(updates) == members
            added = next(means)
            assert np.abs(added - np.stack([u for u, _ in updates.values()]).astype(np.float64).mean(axis=0)
                          ).max() < 1e-5
            begun = {name: (reference, delta) for name, reference, _, delta in audit.trained
                     if any(delta is u for u, _ in updates.values())}
            assert len(begun) == members                   # of the group, from the model that the server has
            assert all(np.array_equal(reference, model) for reference, _ in begun.values())
            model = model + added
        else:
            assert why.startswith(("NotDecodable: ", "TooFewClients: set-up: "))
        assert np.array_equal(reported, model)


# --- lambda, silence, bytes (checks 17, 18, 19) ---------------------------------------------------------------------

def half_lost(kind: str, source: int, target: int, round_: int) -> bool:
    return kind in ("Masked", "PartialSum") and generator(5, "test", kind, source, target, round_).random() < 0.2


def test_the_curve_does_not_depend_on_lambda(play: Any) -> None:
    curves = {lambda_: play("fair_seccogc", 5, {"s": 2, "lambda_": lambda_}, rounds=8, lost=half_lost)
              for lambda_ in (0.0, 0.1, 10.0)}
    decoded = [r["decoded"] for r in curves[0.0].reports.values()]
    assert {True, False} == set(decoded)
    for lambda_, played in curves.items():
        assert [r["decoded"] for r in played.reports.values()] == decoded
        assert np.abs(np.stack(played.models) - np.stack(curves[0.0].models)).max() <= 1e-7 + 3e-6 * lambda_


def test_without_lambda_there_are_no_keys_and_no_set_up(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "lambda_": 0.0})
    assert not played.sent("KeyRequest")
    assert not played.sent("KeyRing")
    assert played.reports[1]["decoded"] is True


def test_a_client_that_shares_nothing_blocks_every_round(play: Any) -> None:
    played = play("fair_seccogc", 10, {"s": 7}, rounds=5,
                  lost=lambda kind, source, *_: source == 3 and kind in ("Masked", "PartialSum"))
    assert {(played.reports[t]["complete"], played.why[0, t]) for t in range(1, 6)} == {
        (2, "NotDecodable: 2 complete sums arrived, K - s = 3 of 10 are needed")}


def test_bytes_and_frames_of_a_round(play: Any) -> None:
    d = 300
    played = play("fair_seccogc", 10, {"s": 7}, d=d, rounds=2)
    vector = np.zeros(d, np.float32)
    for kind, count, arrays, example in (
            ("Masked", 2 * 70, 4 * d, Masked(vector)),
            ("PartialSum", 2 * 10, 4 * d + 1, PartialSum(np.zeros(1, np.uint8), vector)),
            ("Model", 2 * 10, 4 * d, Model(0, 0, vector)),
            ("KeyRing", 10, 320, KeyRing(np.zeros((10, 32), np.uint8))),
            ("PublicKey", 10, 32, PublicKey(np.zeros(32, np.uint8)))):
        sizes = played.frame_bytes(kind)
        assert len(sizes) == count
        assert set(sizes) == {arrays + len(encode(example).header)}


@pytest.mark.parametrize(("send_incomplete", "received"), [(False, 4), (True, 5)])
def test_an_incomplete_sum_stays_at_home_unless_asked_for(play: Any, send_incomplete: bool, received: int) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "send_incomplete": send_incomplete},
                  lost=lambda kind, source, target, _: (kind, source, target) == ("Masked", 3, 1))
    assert len(played.sent("PartialSum")) == received
    assert (played.reports[1]["received"], played.reports[1]["complete"]) == (received, 4)
    assert played.reports[1]["decoded"] is True
    assert played.why[1, 1] == ""                          # no failure of the relay


def test_relays_and_server_wait_no_longer_than_they_are_told(play: Any) -> None:
    slow = {("Masked", 3, 1), ("PartialSum", 4, 0)}
    played = play("fair_seccogc", 5, {"s": 2, "share_s": 0.05, "uplink_s": 0.2, "setup_s": 0.1},
                  late=lambda kind, source, target, _: 900_000_000 if (kind, source, target) in slow else 0)
    assert not played.kernel.oracle_waits
    assert played.reports[1]["complete"] == 3
    assert played.kernel.end_ns == 240_000_000             # set-up 40 ms, then 200 ms from the opening on


# --- set-up ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("setup_s", [None, 0.5])
def test_lost_set_up_messages_are_sent_again(play: Any, setup_s: float | None) -> None:
    count: Counter[tuple[str, int]] = Counter()

    def loses(kind: str, source: int, target: int, round_: int) -> bool:
        count[kind, source] += 1
        return kind in ("PublicKey", "KeysHeld") and count[kind, source] <= source % 3

    played = play("fair_seccogc", 5, {"s": 2, "setup_s": setup_s}, lost=loses)
    assert played.reports[1]["decoded"] is True
    # client k answers k mod 3 times in vain
    assert Counter(s for _, s, _ in played.sent("PublicKey")) == {1: 2, 2: 3, 3: 1, 4: 2, 5: 3}
    assert Counter(s for _, s, _ in played.sent("KeysHeld")) == {1: 2, 2: 3, 3: 1, 4: 2, 5: 3}


def test_set_up_is_given_up_for_the_round_and_taken_up_in_the_next(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2}, rounds=3, lost=lose(("KeyRequest", 4, 1), ("KeyRing", 2, 2)))
    assert played.why[0, 1] == "TooFewClients: set-up: client4 has not sent its public key"
    assert played.why[0, 2] == "TooFewClients: set-up: client2 has not confirmed the key ring"
    assert played.reports[3]["decoded"] is True
    assert [t for t, *_ in played.sent("Model")] == [3] * 5
    assert Counter((t, k) for t, _, k in played.sent("KeyRequest"))[1, 4] <= 3      # not asked over and over in vain


def test_a_client_that_is_dead_from_the_start_fails_every_round_but_not_the_run(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2}, rounds=3, faults=[NodeCrash(0, 3)])
    assert {played.why[0, t] for t in (1, 2, 3)} == {
        "TooFewClients: set-up: client3 has not sent its public key"}


# --- groups made anew -----------------------------------------------------------------------------------------------

def test_those_who_are_left_go_on_with_fresh_keys_and_a_code_of_their_number(play: Any) -> None:
    with audited() as audit:
        played = play("fair_seccogc", 10, {"s": 7, "rekey_after": 2}, rounds=8,
                      faults=[NodeCrash(100_000_000, 3)], d=400)
    first = next(t for t, report in played.reports.items() if not report["decoded"])
    again = first + 4                                                   # 2 in vain, then asked in 3 rounds
    assert [played.reports[t]["decoded"] for t in range(first, again + 2)] == [False] * 4 + [True, True]
    assert {played.why[0, t] for t in (first + 2, first + 3)} == {
        "TooFewClients: set-up: client3 has not said that it is there"}
    report = played.reports[again]
    assert (report["members"], report["rekeyings"], report["complete"]) == (9, 1, 9)
    assert played.reports[first]["members"] == 10
    model = played.models[first]
    for t in (again, again + 1):
        updates = audit.of_round(t)
        assert sorted(updates) == [1, 2, 4, 5, 6, 7, 8, 9, 10]
        delta, y = (np.stack(part).astype(np.float64) for part in zip(*updates.values(), strict=True))
        assert np.abs((y - delta).sum(axis=0)).max() < 1e-6             # their keys are zero together
        assert np.abs((y - delta).std(axis=1) / 0.1 - 1).max() < 0.2
        model = model + delta.mean(axis=0)
        assert np.abs(played.models[t - 1] - model).max() < 1e-6
    sharing = Counter(source for t, source, _ in played.sent("Masked") if t == again)
    assert set(sharing.values()) == {6}                                 # s' = 6, since 9 - 7 is even
    assert {t for t, *_ in played.sent("Rekey")} == {again - 2, again - 1, again}
    keys = [y - delta for t in (first, again) for k, (delta, y) in audit.of_round(t).items() if k == 1]
    assert abs(np.corrcoef(keys)[0, 1]) < 0.3


def test_a_client_that_came_back_is_in_the_next_group(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "rekey_at": (2, 6)}, rounds=7,
                  faults=[NodeCrash(65_000_000, 3, 150_000_000, True)])
    assert [(r["members"], r["rekeyings"], r["decoded"]) for r in played.reports.values()] == [
        (5, 0, True), (5, 0, False), (5, 0, False), (4, 1, True), (4, 1, True), (5, 2, True), (5, 2, True)]


def test_a_request_that_is_lost_leaves_nobody_out(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "rekey_at": (2,)}, rounds=4,
                  lost=lose(("Rekey", 2, 2), ("Rekey", 4, 2), ("Rekey", 4, 3)))
    assert [(r["members"], r["rekeyings"], r["decoded"]) for r in played.reports.values()] == [
        (5, 0, True), (5, 0, False), (5, 0, False), (5, 1, True)]


@pytest.mark.parametrize(("scheme", "more"), [("seccogc", {}), ("cogc", {}), ("fair_seccogc", {"keys": "dealer"})])
def test_groups_are_made_anew_with_a_dealer_and_without_keys(play: Any, scheme: str, more: Any) -> None:
    dealt = scheme == "seccogc" or bool(more)
    played = play(scheme, 5, {"s": 2, "rekey_after": 1, **more}, rounds=7, servers=2 if dealt else 1,
                  faults=[NodeCrash(55_000_000, 4)])
    last = played.reports[7]
    assert (last["decoded"], last["members"], last["rekeyings"]) == (True, 4, 1)
    sizes = {kind: played.frame_bytes(kind) for kind in ("Present", "Group")}
    assert max(sizes["Present"]) < 32                                   # no key in it
    assert {target for t, _, target in played.sent("Key") if t == 7} == ({2, 3, 5, 6} if dealt else set())


def test_answers_that_are_lost_are_asked_for_again(play: Any) -> None:
    count: Counter[tuple[str, int]] = Counter()

    def loses(kind: str, source: int, target: int, round_: int) -> bool:
        count[kind, source] += 1
        return kind in ("Present", "GroupHeld") and count[kind, source] <= source % 3

    played = play("fair_seccogc", 5, {"s": 2, "rekey_at": (1, 2)}, rounds=3, lost=loses)
    assert [(r["decoded"], r["members"], r["rekeyings"]) for r in played.reports.values()] == [
        (True, 5, 1), (True, 5, 2), (True, 5, 2)]
    for kind in ("Present", "GroupHeld"):
        assert Counter(s for _, s, _ in played.sent(kind)) == {1: 3, 2: 4, 3: 2, 4: 3, 5: 4}


def test_too_few_for_a_group_leave_the_old_one(play: Any) -> None:
    played = play("fair_seccogc", 3, {"s": 2, "rekey_after": 1}, rounds=6,
                  faults=[NodeCrash(55_000_000, 1), NodeCrash(55_000_000, 2)])
    assert "TooFewClients: set-up: 1 clients are there, too few for a sum" in played.why.values()
    assert (played.reports[6]["members"], played.reports[6]["rekeyings"]) == (3, 0)


def test_a_sum_by_an_earlier_code_is_not_counted(drive: Any) -> None:
    """Its bitmap would fit, its coefficients would not."""
    server = drive("fair_seccogc", "server", 0, 5, {"s": 2, "lambda_": 0.0, "rekey_at": (1,)})
    server.enter(1)
    there = [(k, Present(1, np.zeros(0, np.uint8))) for k in (1, 2, 3, 4)]
    server.deliver(*there, outcome=WaitEnd.SETTLED)
    server.deliver(outcome=WaitEnd.SETTLED)                 # of client 5 nothing comes, in three rounds
    for t in (2, 3):
        server.enter(t)
        server.deliver(outcome=WaitEnd.SETTLED)
    server.deliver(*((k, GroupHeld(1)) for k in (1, 2, 3, 4)))
    assert server.last.kinds == ["GroupSum"]
    heard, total = np.packbits([True] * 2), np.ones(40, np.float32)
    server.deliver(*((k, GroupSum(heard, total, int(k < 3))) for k in (1, 2, 3, 4)))
    assert server.left[2:] == ["NotDecodable: 2 complete sums arrived, K - s = 3 of 4 are needed"]


@given(st.sampled_from(["cyclic_mds", "fractional", "tandon"]), st.integers(2, 12), st.integers(0, 11))
def test_a_smaller_group_has_a_code_of_the_largest_s_that_fits(code: str, K: int, s: int) -> None:
    p = Params(s=s, code=code, gamma=5)                     # type: ignore[arg-type]
    possible = [i for i in range(min(s, K - 1) + 1) if group.no_code(code, K, i) is None]
    if not possible:
        with pytest.raises(TooFewClients):
            group.fitted(fair_seccogc.design(p), K)
        return
    found = group.fitted(fair_seccogc.design(p), K)
    assert found.s == max(possible)
    assert found.gamma == min(5, K - 1)
    assert np.count_nonzero(group.gradient_code(found, K, 1), axis=1).tolist() == [found.s + 1] * K


# --- roles alone ----------------------------------------------------------------------------------------------------

def test_a_relay_combines_what_it_heard_and_says_whom(drive: Any) -> None:
    client = drive("fair_seccogc", "client", 5, 5, {"s": 2, "lambda_": 0.0, "send_incomplete": True})
    client.enter(1)
    client.deliver((0, Model(0, 0, np.zeros(40, np.float32))))
    assert [to for to, _ in client.sent] == [[3, 4]]       # V_5 = {3, 4, 5}
    own, other = client.only(Masked).y, np.full(40, 2.0, np.float32)
    assert client.last.sources == [1, 2]                   # U_5 = {5, 1, 2}
    client.deliver((2, Masked(other)))
    answer, G = client.only(PartialSum), cyclic_mds(5, 2)
    assert np.unpackbits(answer.heard, count=3).tolist() == [0, 1, 1]       # of 1, 2, 5 in ascending order
    assert np.allclose(answer.sum, G[4, 1] * other + G[4, 4] * own, atol=1e-6)
    assert sums.heard_by(G, 4, answer).tolist() == [0, G[4, 1], 0, 0, G[4, 4]]
    assert not sums.heard_by(G, 4, PartialSum(np.zeros(2, np.uint8), answer.sum)).any()    # of another length


def test_a_client_answers_set_up_as_often_as_it_is_asked(drive: Any) -> None:
    client = drive("fair_seccogc", "client", 1, 2, {"s": 1, "code": "fractional"})
    client.enter(1)
    keys = []
    for _ in range(2):
        client.deliver((0, KeyRequest()))
        keys.append(client.only(PublicKey).key)
    assert np.array_equal(*keys)
    ring = np.stack([keys[0], np.frombuffer(key_pair(bytes(range(32))).public, np.uint8)])
    for _ in range(2):
        client.deliver((0, KeyRing(ring)))
        client.only(KeysHeld)
    client.deliver((0, Continue(0, 0)))
    client.only(ModelRequest)
    assert client.left == ["Behind: the server continues from model 0, which has not come"]


def test_without_the_key_ring_a_client_sends_no_update(drive: Any) -> None:
    client = drive("fair_seccogc", "client", 1, 2, {"s": 1, "code": "fractional"})
    client.enter(1)
    client.deliver((0, Model(0, 0, np.zeros(40, np.float32))))
    assert client.sent == []
    assert client.left == ["Behind: the key ring has not come"]


def test_too_few_sums_and_sums_that_do_not_fit_are_told_apart() -> None:
    sums = dict.fromkeys(range(3), np.zeros(4, np.float32))
    with pytest.raises(NotDecodable, match=r"^2 complete sums arrived, K - s = 3 of 6 are needed$"):
        decode(cyclic_mds(6, 3), dict(list(sums.items())[:2]))
    with pytest.raises(NotDecodable, match=r"^2 complete sums arrived, K - s = 4 of 6 are needed$"):
        decode(fractional(6, 2), dict(list(sums.items())[:2]))
    G = cyclic_mds(5, 2)
    G[1] = G[0]
    with pytest.raises(NotDecodable, match=r"^3 complete sums of 5 arrived, but do not give the mean to 1e-6$"):
        decode(G, sums)


def world(clients: int) -> World:
    names = ["server", *(f"client{k}" for k in range(1, clients + 1))]
    return World("fair_seccogc", 7, names, {"server": [0], "client": list(range(1, clients + 1))}, [1.0] * len(names))


# --- parameters -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("params", "errors"), [
    (Params(s=7), []),
    (Params(s=6), ["s = 6: cyclic_mds needs K - s odd, K = 10 clients; s = 7 would do"]),
    (Params(s=6, code="tandon"), []),
    (Params(s=3, code="fractional"), ["s = 3: fractional needs s + 1 to divide K = 10 clients"]),
    (Params(s=4, code="fractional"), []),
    (Params(s=10), ["s = 10: expected 0..9 with 10 clients"]),
    (Params(s=-1, lambda_=-0.1), ["s = -1: expected 0..9 with 10 clients",
                                  "lambda = -0.1: expected a number, 0 or above"]),
    (Params(s=7, gamma=2), ["keys = pairwise: pairs make the keys of fair_cyclic with gamma = K - 1 = 9, not of "
                            "gamma = 2; let a dealer make them"]),
    (Params(s=7, gamma=9), []),
    (Params(s=7, construction="random"), ["keys = pairwise: pairs make the keys of fair_cyclic with gamma = K - 1 = 9, "
                                          "not of random; let a dealer make them"]),
    (Params(s=7, lambda_=0.0, keys="dealer", gamma=10), ["gamma = 10: expected 1..9 with 10 clients, for fair_cyclic "
                                                         "only"]),
    (Params(s=7, decoder="rowspace"), ["decoder = rowspace: needs send_incomplete: true"]),
    (Params(s=7, screen=0, finish_at=0, ldp_delta=1.0, max_error=0.0, clip=-1.0, zeta=0.0), [
        "screen = 0: expected 1 draw or more", "finish_at = 0: expected a round, 1 or above",
        "ldp_delta = 1.0: expected a number between 0 and 1", "max_error = 0.0: expected a number above 0, or none",
        "clip = -1.0: expected a number above 0, or none", "zeta = 0.0: expected a number above 0, or none"]),
    (Params(s=7, rekey_after=0, rekey_at=(0,)), ["rekey_after = 0: expected 1 failed round or more",
                                                 "rekey_at = [0]: expected rounds, 1 or above"]),
    (Params(s=7, share_s=0.0, setup_s=-1.0), ["share = 0.0 s: expected a time above 0, or none",
                                              "setup = -1.0 s: expected a time above 0, or none"])])
def test_check_names_what_is_wrong(params: Params, errors: list[str]) -> None:
    assert check(params, world(10)) == errors


def test_one_client_is_too_few() -> None:
    assert check(Params(s=0), world(1)) == [
        "s = 0: 1 clients, a sum needs at least 2"]
