"""SecCoGC beyond its default: who makes the keys, other decoders and ends, gradient coding, baselines, all bytes."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NotDecodable
from emul.base.streams import generator
from emul.kernel import NodeCrash
from emul.network.models.outages import OutageSpec, lost_at
from emul.primitives.crypto.keys import mask_seed
from emul.primitives.privacy import ldp
from emul.primitives.privacy.mechanism import noisy
from emul.registry import schemes
from emul.roles import Realised, Setting, Variant, World
from emul.scenario.params import check_params, scenario_keys
from emul.schemes import dnc_private, fair_seccogc, fl_private
from emul.schemes.dnc_private import network_coding
from emul.schemes.fair_seccogc import Params, keys
from emul.schemes.fair_seccogc.gradient_coding import cyclic_mds
from emul.schemes.fair_seccogc.group import key_generator
from emul.schemes.fair_seccogc.sums import decode, masked_update

D = 40                              # of the fake task


def lose(*what: tuple[str, int, int]) -> Any:
    """Lose (kind, source or target that is no server, round)."""
    return lambda kind, source, target, round_: (kind, source or target, round_) in what


@contextmanager
def masks() -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
    """(Delta, Y) of every masked update, in the order of their making."""
    made: list[tuple[np.ndarray, np.ndarray]] = []
    original = fair_seccogc.masked_update

    def see(delta: np.ndarray, clip: float | None, key: Any) -> np.ndarray:
        y = original(delta, clip, key)
        made.append((delta, y))
        return y
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_seccogc, "masked_update", see)
        yield made


# --- keys -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("keys", ["dealer", "component_seeds", "common_seed"])
@pytest.mark.parametrize(("scheme", "more"), [
    ("fair_seccogc", {}), ("fair_seccogc", {"gamma": 2}), ("fair_seccogc", {"construction": "fair_general"}),
    ("fair_seccogc", {"construction": "fair_projection"}), ("seccogc", {})])
def test_however_keys_are_made_they_hide_each_update_and_cancel(play: Any, keys: str, scheme: str,
                                                                more: dict[str, Any]) -> None:
    with masks() as made:
        played = play(scheme, 5, {"s": 2, "keys": keys, **more}, rounds=2, servers=2, d=400)
    assert [played.reports[t]["decoded"] for t in (1, 2)] == [True, True]
    model = np.zeros(400)
    for t in (0, 1):
        deltas, ys = (np.stack(part).astype(np.float64) for part in zip(*made[5 * t:5 * t + 5], strict=True))
        noise = ys - deltas
        assert np.abs(noise.sum(axis=0)).max() < 1e-6
        if scheme == "fair_seccogc":
            assert np.abs(noise.std(axis=1) / 0.1 - 1).max() < 0.2
        else:
            assert noise.std(axis=1)[-1] > 1.3 * noise.std(axis=1)[:-1].mean()      # III.1: the last is louder
        model = model + deltas.mean(axis=0)
        assert np.abs(played.models[t] - model).max() < 1e-6
    fresh = made[0][1] - made[0][0], made[5][1] - made[5][0]
    assert abs(np.corrcoef(fresh)[0, 1]) < 0.3                      # another key in every round


def test_the_three_dealt_modes_make_the_same_keys_of_one_root() -> None:
    A = key_generator(fair_seccogc.design(Params(s=2, keys="dealer", gamma=2)), 5, 3)
    root = bytes(range(32))
    dealt = keys.all_keys(A, root, 4, 20)
    for k in range(5):
        components = np.flatnonzero(A[k]).tolist()
        seeds = {component: mask_seed(root, component) for component in components}
        assert len(seeds) == 3                                      # gamma + 1
        assert np.abs(keys.key_of_seeds(A[k], seeds, 4, 20) - dealt[k]).max() < 1e-7
    assert not np.allclose(keys.all_keys(A, root, 5, 20)[0], dealt[0])


@pytest.mark.parametrize(("keys", "kind", "copies", "arrays"), [
    ("dealer", "Key", 2 * 5, 4 * D), ("component_seeds", "Seeds", 5, 32 * 3), ("common_seed", "Seeds", 5, 32)])
def test_bytes_of_the_dealers_messages(play: Any, keys: str, kind: str, copies: int, arrays: int) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "keys": keys, "gamma": 2}, rounds=2, servers=2)
    sizes = played.frame_bytes(kind)
    assert len(sizes) == copies
    assert all(arrays < size < arrays + 40 for size in sizes)
    assert {source for _, source, _ in played.sent(kind)} == {1}    # never from the server that decodes
    assert {target for _, _, target in played.sent(kind)} == set(range(2, 7))
    assert not played.sent("KeyRing")


def test_a_lost_key_fails_its_round_and_no_other(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "keys": "dealer"}, rounds=3, servers=2, lost=lose(("Key", 1, 2)))
    assert [played.reports[t]["decoded"] for t in (1, 2, 3)] == [True, False, True]
    assert played.why[3, 2] == "NothingToReceive: Key from server2 is lost or will not be sent"


def test_lost_seeds_are_sent_again_until_they_are_confirmed(play: Any) -> None:
    def loses(kind: str, source: int, target: int, round_: int) -> bool:
        return (kind, target, round_) == ("Seeds", 3, 1) or (kind == "SeedsHeld" and source == 4 and not confirmed)

    confirmed: list[int] = []
    played = play("fair_seccogc", 5, {"s": 2, "keys": "component_seeds"}, rounds=3, servers=2, lost=loses)
    assert played.why[3, 1] == "Behind: the seeds have not come"
    assert [played.reports[t]["decoded"] for t in (1, 2, 3)] == [False, True, True]
    assert Counter(target for *_, target in played.sent("Seeds")) == {2: 1, 3: 2, 4: 3, 5: 1, 6: 1}


def test_a_lost_order_to_deal_settles_and_fails_the_round(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "keys": "dealer"}, rounds=2, servers=2, lost=lose(("Deal", 1, 1)))
    assert [played.reports[t]["decoded"] for t in (1, 2)] == [False, True]


def test_a_crashed_dealer_fails_rounds_but_not_the_run(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "keys": "dealer"}, rounds=3, servers=2, faults=[NodeCrash(1, 1)])
    assert not any(played.reports[t]["decoded"] for t in (1, 2, 3))


def test_a_relay_waits_no_longer_for_its_key_than_it_is_told(play: Any) -> None:
    played = play("fair_seccogc", 5, {"s": 2, "keys": "dealer", "setup_s": 0.05, "share_s": 0.1, "uplink_s": 0.3},
                  servers=2, late=lambda kind, source, target, _: 900_000_000 * (kind == "Key" and target == 3))
    assert played.why[3, 1] == "TimedOut: no Key from server2 within 0.05 s"
    assert not played.kernel.oracle_waits


# --- variants -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("name", "fixed"), [
    ("seccogc", {"construction": "random"}), ("cogc", {"lambda_": 0.0}), ("gc", {"training": "replicated"}),
    ("fl_lossy", {"lambda_": 0.0}), ("fl_ideal", {"lambda_": 0.0})])
def test_a_variant_fixes_parameters_and_a_scenario_cannot_set_them(name: str, fixed: dict[str, Any]) -> None:
    scheme = schemes.find(name)
    assert schemes.find(name) is scheme                             # one object, whatever asks for it
    needed = {"s": 3} if "s" in scenario_keys(scheme.params) else {}
    params, problems = check_params(scheme.params, needed)
    assert not problems
    for key, value in fixed.items():
        assert getattr(params, key) == value
        _, problems = check_params(scheme.params, {**needed, key.rstrip("_"): value})
        assert [p[2].partition(";")[0] for p in problems] == ["unknown parameter"]
    base = schemes.find(scheme.of)
    assert scheme.roles is base.roles
    assert scheme.doc != base.doc


def test_a_variant_of_what_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ModuleType("odd")
    vars(odd).update(SCHEME=Variant(of="fl_private", fixed={"gamma": 1}))
    monkeypatch.setitem(sys.modules, "odd", odd)
    with pytest.raises(schemes.NotAScheme, match=r"^odd: fl_private has no parameter gamma$"):
        schemes.find("odd", ["odd"])


# --- how a run decodes and ends -------------------------------------------------------------------------------------

def test_the_run_ends_with_the_first_success_at_or_after_a_round(play: Any) -> None:
    down = lose(*[("PartialSum", k, t) for k in range(1, 6) for t in (1, 3, 4)])
    played = play("fair_seccogc", 5, {"s": 2, "finish_at": 3}, rounds=10, lost=down)
    assert [r["decoded"] for r in played.reports.values()] == [False, True, False, False, True]
    assert sorted(played.reports) == [1, 2, 3, 4, 5]


def heard_all_but(pairs: set[tuple[int, int]]) -> Any:
    """Relay k does not hear client m, for (m, k) in `pairs`, clients from 1."""
    return lambda kind, source, target, _: kind == "Masked" and (source, target) in pairs


def test_the_rowspace_decoder_recovers_what_complete_sums_cannot(play: Any) -> None:
    """K = 5, s = 2: relay 1 has not heard client 2, 2 not 3, 3 not 4; only the sums of 4 and 5 are complete."""
    lost = heard_all_but({(2, 1), (3, 2), (4, 3)})
    rows = cyclic_mds(5, 2)
    rows[0, 1] = rows[1, 2] = rows[2, 3] = 0.0
    assert np.linalg.matrix_rank(np.vstack([rows, np.ones(5)])) == np.linalg.matrix_rank(rows)
    common = {"s": 2, "send_incomplete": True}
    complete = play("fair_seccogc", 5, common, lost=lost)
    assert complete.why[0, 1] == "NotDecodable: 2 complete sums arrived, K - s = 3 of 5 are needed"
    with masks() as made:
        played = play("fair_seccogc", 5, {**common, "decoder": "rowspace"}, lost=lost)
    assert (played.reports[1]["decoded"], played.reports[1]["complete"], played.reports[1]["received"]) == (True, 2, 5)
    assert np.abs(played.models[0] - np.stack([d for d, _ in made]).mean(axis=0)).max() < 1e-6
    too_little = play("fair_seccogc", 5, {**common, "decoder": "rowspace"},
                      lost=lambda kind, source, target, _: kind == "PartialSum" and source > 1)
    assert too_little.why[0, 1] == "NotDecodable: 1 sums of 5 arrived, but do not give the mean"


def test_a_mean_whose_predicted_error_is_too_large_never_touches_the_model(play: Any) -> None:
    first = play("fair_seccogc", 6, {"s": 2, "code": "tandon", "max_error": 1e-6})
    error = first.reports[1]["predicted_error"]
    assert 1e-10 < error < 1e-6
    assert first.models[0].any()
    played = play("fair_seccogc", 6, {"s": 2, "code": "tandon", "max_error": error / 2}, rounds=2)
    assert played.why[0, 1].startswith("NotDecodable: the predicted error ")
    assert [r["decoded"] for r in played.reports.values()] == [False, False]
    assert not played.models[1].any()


def test_a_message_that_is_no_number_is_not_decodable_where_errors_count() -> None:
    sums = dict.fromkeys(range(3), np.full(4, np.nan, np.float32))
    with pytest.raises(NotDecodable, match=r"^the predicted error nan is above max_error = 1$"):
        decode(5, {k: cyclic_mds(5, 2)[k] for k in range(3)}, sums, 3, 1.0)


def test_updates_are_clipped_when_they_are_sent(play: Any) -> None:
    played = play("cogc", 5, {"s": 2, "clip": 0.01})
    assert 0 < np.linalg.norm(played.models[0]) <= 0.01 * (1 + 1e-5)
    delta = np.ones(4, np.float32)
    assert np.linalg.norm(masked_update(delta, 0.5, None)) == pytest.approx(0.5)
    assert masked_update(delta, 3.0, None) is delta
    assert np.linalg.norm(noisy(delta, 0.5, 0.0, np.random.default_rng(0))) == pytest.approx(0.5)


@pytest.mark.parametrize(("s", "code"), [(49, "fractional"), (50, "tandon")])
def test_a_hundred_clients(play: Any, s: int, code: str) -> None:
    """`fractional` recovers the mean to 1e-6; `tandon` within what it reports."""
    up = {k for k in range(2, 102) if generator(1, "up", k).random() < 0.7}
    with masks() as made:
        played = play("fair_seccogc", 100, {"s": s, "code": code, "keys": "dealer", "screen": 3}, servers=2, d=20,
                      lost=lambda kind, source, *_: kind == "PartialSum" and source not in up)
    report = played.reports[1]
    assert (report["decoded"], report["complete"]) == (True, len(up))
    error = np.abs(played.models[0] - np.stack([d for d, _ in made]).astype(np.float64).mean(axis=0))
    assert error.max() <= (1e-6 if code == "fractional" else 1e-8 * report["amplification"] * 0.1 + 1e-7)
    assert math.sqrt(float((error**2).mean())) <= report["predicted_error"] + 3e-8      # the model itself is rounded


# --- gradient coding ------------------------------------------------------------------------------------------------

def test_gradient_coding_shares_nothing_and_survives_s_lost_uplinks(play: Any) -> None:
    played = play("gc", 5, {"s": 2}, rounds=3, lost=lose(("PartialSum", 1, 1), ("PartialSum", 4, 1),
                                                         *[("PartialSum", k, 2) for k in (1, 2, 3)]))
    assert [r["decoded"] for r in played.reports.values()] == [True, False, True]
    assert played.why[0, 2] == "NotDecodable: 2 complete sums arrived, K - s = 3 of 5 are needed"
    assert not played.sent("Masked")
    assert len(played.sent("PartialSum")) == 15


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.5), st.sampled_from(["continue", "repeat"]),
       st.lists(st.tuples(st.integers(0, 5), st.integers(0, 150), st.integers(1, 80)), max_size=2))
def test_whatever_is_lost_holders_of_one_share_never_disagree(play: Any, seed: int, p: float, on_failure: str,
                                                              crashes: Any) -> None:
    """Every success adds the mean over the shares, all trained equally often and by everybody in the same way."""
    used: list[dict[int, dict[int, np.ndarray]]] = []
    combine, decode, current = fair_seccogc.combine, fair_seccogc.decode, {}

    def see_sum(g: Any, ys: Any) -> Any:
        total = combine(g, ys)
        current[total.tobytes()] = dict(ys)
        return total

    def see_decoding(K: int, rows: Any, sums: Any, *rest: Any) -> Any:
        found = decode(K, rows, sums, *rest)
        used.append({k: current[sums[k].tobytes()] for k in rows})
        return found

    faults = [NodeCrash(ms * 1_000_000, node, (ms + back) * 1_000_000)
              for node, ms, back in {c[0]: c for c in crashes}.values()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_seccogc, "combine", see_sum)
        patch.setattr(fair_seccogc, "decode", see_decoding)
        played = play("gc", 5, {"s": 2, "on_failure": on_failure}, rounds=8, faults=faults,
                      lost=lambda *where: generator(seed, "test", *where).random() < p)
    model, successes = np.zeros(D), iter(used)
    for t, reported in zip(sorted(played.reports), played.models, strict=True):
        if played.reports[t]["decoded"]:
            shares: dict[int, np.ndarray] = {}
            for ys in next(successes).values():
                for m, delta in ys.items():
                    assert np.array_equal(shares.setdefault(m, delta), delta)
            assert len(shares) == 5
            model = model + np.stack(list(shares.values())).astype(np.float64).mean(axis=0)
        assert np.abs(reported - model).max() < 1e-5


def test_a_holder_that_missed_a_round_sits_out_until_the_next_success(play: Any) -> None:
    played = play("gc", 5, {"s": 2}, rounds=4, lost=lose(*[("PartialSum", k, t) for k in (1, 2, 3) for t in (1, 2)],
                                                         ("Continue", 5, 2)))
    assert [r["decoded"] for r in played.reports.values()] == [False, False, True, True]
    assert played.why[5, 3] == "Behind: 1 local runs since model 0, the others have 2"
    assert played.reports[4]["received"] == 5


# --- baselines ------------------------------------------------------------------------------------------------------

def test_lossy_averaging_divides_by_those_that_arrived(play: Any) -> None:
    seen: list[np.ndarray] = []
    mean = fl_private.weighted_mean

    def see(model: np.ndarray, updates: Any, weights: str) -> np.ndarray:
        seen.append(np.stack([m.delta for m in updates.values()]) if updates else np.zeros((0, D)))
        return mean(model, updates, weights)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fl_private, "weighted_mean", see)
        played = play("fl_lossy", 4, {}, rounds=2, lost=lose(("Update", 1, 1), ("Update", 4, 1),
                                                             *[("Update", k, 2) for k in (1, 2, 3, 4)]))
    assert seen[0].shape == (2, D)
    assert np.abs(played.models[0] - seen[0].astype(np.float64).mean(axis=0)).max() < 1e-7
    assert [played.reports[t]["received"] for t in (1, 2)] == [2, 0]
    assert np.array_equal(played.models[0], played.models[1])       # nobody came: unchanged
    assert played.kernel.rounds_missed == {}


def test_noise_of_the_gaussian_mechanism_has_the_deviation_asked_for() -> None:
    rng, delta = np.random.default_rng(1), np.zeros(100_000, np.float32)
    assert np.std(noisy(delta, None, 0.3, rng)) == pytest.approx(0.3, rel=0.01)
    u = dnc_private.noisy_symbols(delta, None, 0.3, rng)
    assert np.std(network_coding.from_field(u)) == pytest.approx(0.3, rel=0.01)


def test_the_private_baselines_add_the_same_noise(play: Any) -> None:
    """Where nothing is lost, network coding changes nothing but the rounding to 2^-17."""
    fl, dnc = (play(name, 5, {"lambda_": 0.2}, rounds=3) for name in ("fl_private", "dnc_private"))
    assert np.abs(np.stack(fl.models) - np.stack(dnc.models)).max() <= 2**-16
    assert [r["recovered"] for r in dnc.reports.values()] == [5, 5, 5]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.6), st.integers(0, 2), st.sampled_from([None, 0.05]))
def test_network_coding_recovers_exactly_what_is_determined(play: Any, seed: int, p: float, r: int,
                                                            wait_s: float | None) -> None:
    noise, seen = dnc_private.noisy_symbols, []
    step = dnc_private.take_step

    def see_noise(*arguments: Any) -> np.ndarray:
        u = noise(*arguments)
        rounds.append(u)
        return u

    def see(model: Any, alpha: Any, plain: Any, coded: Any) -> Any:
        found = dnc_private.recover(alpha, plain, coded)
        seen.append((found, set(plain)))
        for m, u in found.items():
            assert any(np.array_equal(u, sent) for sent in rounds), m
        return step(model, alpha, plain, coded)

    rounds: list[np.ndarray] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dnc_private, "noisy_symbols", see_noise)
        patch.setattr(dnc_private, "take_step", see)
        played = play("dnc_private", 4, {"r": r, "share_s": wait_s, "uplink_s": wait_s}, rounds=3,
                      lost=lambda *where: where[0] != "Model" and generator(seed, "t", *where).random() < p)
    for t, (found, plain) in enumerate(seen, 1):
        assert plain <= set(found)
        assert played.reports[t]["recovered"] == len(found)


def test_seccogc_check_18_recovery_of_network_coding() -> None:
    """r = 1: all ten in 0.984 (symmetric), 0.951 (asymmetric); r = 0: 0.023."""
    rng, K = np.random.default_rng(3), 10
    alpha = network_coding.cauchy(2 * K, K)

    def rate(r: int, uplinks: np.ndarray, rounds: int) -> float:
        whole = 0
        for _ in range(rounds):
            heard = np.where(np.eye(K) > 0, True, rng.random((K, K)) < 0.9)
            plain = rng.random(K) < uplinks
            came = np.concatenate([rng.random(K) < uplinks for _ in range(r)] or [np.zeros(0, bool)])
            rows = (alpha[:r * K] * np.tile(heard, (r, 1)))[came][:, ~plain]
            whole += len(network_coding.solvable(rows)) == np.count_nonzero(~plain)
        return whole / rounds
    symmetric, asymmetric = np.full(K, 0.7), 0.5 + 0.3 * np.arange(K) / 9
    assert rate(1, symmetric, 1500) == pytest.approx(0.984, abs=0.011)
    assert rate(1, asymmetric, 1500) == pytest.approx(0.951, abs=0.02)
    assert rate(0, symmetric, 1500) == pytest.approx(0.023, abs=0.015)
    assert rate(2, symmetric, 200) == 1.0


# --- bytes ----------------------------------------------------------------------------------------------------------

VECTORS = ("Model", "Update", "Coded", "Masked", "PartialSum", "Key")       # messages that hold d elements


@pytest.mark.parametrize(("scheme", "params"), [
    ("fair_seccogc", {"s": 7}), ("fair_seccogc", {"s": 7, "send_incomplete": True}), ("seccogc", {"s": 7}),
    ("fair_seccogc", {"s": 4, "code": "fractional"}), ("cogc", {"s": 7}), ("gc", {"s": 7}), ("fl_lossy", {}),
    ("fl_private", {}), ("dnc_private", {"r": 1}), ("dnc_private", {"r": 2})])
def test_bytes_of_tensors_are_those_of_the_formula_at_the_realised_link_states(play: Any, scheme: str,
                                                                               params: dict[str, Any]) -> None:
    """4 D times the transmissions that section 11 gives, round by round; headers come on top."""
    K, d, servers, rounds = 10, 300, 2 if scheme == "seccogc" else 1, 12
    clients = range(servers, servers + K)
    names = ["server"] if servers == 1 else ["server1", "server2"]
    names += [f"client{k + 1}" for k in range(K)]

    def down(source: int, target: int, round_: int) -> bool:
        p = 0.3 if target == 0 else 0.1 if source >= servers and target >= servers else 0.0
        return lost_at(OutageSpec(p, "round"), 7, names[source], names[target], round=round_)

    played = play(scheme, K, params, rounds=rounds, d=d, servers=servers,
                  lost=lambda kind, source, target, round_: kind not in ("PublicKey", "KeysHeld")
                  and down(source, target, round_))
    counted = Counter((t, kind) for kind in VECTORS for t, *_ in played.sent(kind))
    G = (np.kron(np.eye(2), np.ones((5, 5))) if params.get("code") == "fractional"
         else cyclic_mds(K, params.get("s", 9)))
    successes = 1                                       # the first model counts as one
    for t in range(1, rounds + 1):
        expected: Counter[str] = Counter()
        up = np.array([not down(k, 0, t) for k in clients])
        if scheme in ("fl_lossy", "fl_private"):
            expected = Counter(Model=K, Update=K)
        elif scheme == "dnc_private":
            expected = Counter(Model=K, Update=K * K)   # K (K - 1) to clients, K to the server; Coded: below
        else:
            whole = np.array([scheme == "gc" or not any(down(clients[m], clients[k], t) for m in np.flatnonzero(G[k])
                                                        if m != k) for k in range(K)])
            expected["Masked"] = 0 if scheme == "gc" else np.count_nonzero(G) - K
            expected["PartialSum"] = K if params.get("send_incomplete") else int(whole.sum())
            expected["Model"] = K * successes
            expected["Key"] = K if scheme == "seccogc" else 0
            decodable = (whole & up).sum() >= K - params["s"]
            if params.get("code") == "fractional":      # one of each block, and as many as K - s
                decodable &= bool((whole & up)[:5].any() and (whole & up)[5:].any())
            assert played.reports[t]["decoded"] == decodable
            successes = int(decodable)
        assert {kind: counted[t, kind] for kind in VECTORS if kind != "Coded"} == {
            kind: expected[kind] for kind in VECTORS if kind != "Coded"}
    assert len(played.sent("Coded")) == rounds * K * params.get("r", 0)
    tensors = sum(played.frame_bytes(kind) != [] and sum(played.frame_bytes(kind)) for kind in VECTORS)
    headers = sum(size - 4 * d for kind in VECTORS for size in played.frame_bytes(kind))
    copies = sum(len(played.sent(kind)) for kind in VECTORS)
    assert tensors - headers == 4 * d * copies
    assert 0 < headers < 60 * copies


@pytest.mark.slow
def test_seccogc_check_19_frames_over_a_thousand_rounds(play: Any) -> None:
    played = play("cogc", 10, {"s": 7}, rounds=1000, d=2, lost=lambda kind, source, target, round_: (
        kind in ("Masked", "PartialSum")
        and generator(5, "link", source, target, round_).random() < (0.3 if target == 0 else 0.1)))
    assert len(played.sent("Masked")) == 70_000
    assert len(played.sent("PartialSum")) / 1000 == pytest.approx(4.78, abs=0.15)
    decoded = [r["decoded"] for r in played.reports.values()]
    assert 1 - sum(decoded) / 1000 == pytest.approx(0.2957, abs=0.045)      # three standard deviations


# --- analysis -------------------------------------------------------------------------------------------------------

def setting(K: int = 10, up: float = 0.3, side: float = 0.1) -> Setting:
    names = tuple(f"client{k + 1}" for k in range(K))
    return Setting({"server": ("server",), "client": names}, lambda u, v: up if v == "server" else side, 1, 100, 5)


def test_analysis_of_the_papers_setting() -> None:
    found = fair_seccogc.analysis(Params(s=7, clip=0.5), setting(), Realised())
    assert found["outage_probability"] == (pytest.approx(0.295701, abs=1e-6), "failed")
    assert sum(found[f"outage_by_{event}"] for event in ("sharing", "uplinks", "both")) == pytest.approx(0.295701,
                                                                                                          abs=1e-6)
    assert found["transmissions_per_success"] == pytest.approx(116.2, abs=0.05)
    assert found["transmissions_per_success_broadcast"] == pytest.approx(31.0, abs=0.05)
    assert found["transmissions_per_success_by_s"]["9"] == pytest.approx(98, abs=0.5)
    assert found["lmip_outsider_bits"] == pytest.approx(0.45)
    assert found["lmip_peer_bits"] == pytest.approx(0.5437, abs=1e-4)
    assert found["lmip_peer_hearing_all_bits"] == pytest.approx(0.5850, abs=1e-4)
    assert found["lmip_server_bits"] == pytest.approx(0.15623, abs=1e-4)
    assert found["ldp_outsider_epsilon"] == pytest.approx(91.82, abs=0.01)
    assert found["ldp_peer_epsilon"] > found["ldp_outsider_epsilon"]        # it shares a component of the key
    assert found["ldp_outsider_run_epsilon"] == (        # mu = 10 x that of one round, had all 100 been heard
        pytest.approx(ldp.epsilon(1e-5, 10 * ldp.peer_mu(0.5, 0.1))), 0.0)
    assert found["ldp_server_epsilon"] == math.inf                          # the exact mean, whatever the keys
    gc = schemes.find("gc")
    theory = gc.analysis(gc.params(s=7), setting(), Realised())
    assert theory["outage_probability"][0] == pytest.approx(0.001590, abs=1e-6)
    assert "lmip_peer_bits" not in theory


@pytest.mark.parametrize(("keys", "gamma", "bits"), [("dealer", None, 0.5045), ("dealer", 1, 0.6112),
                                                     ("common_seed", None, math.inf),
                                                     ("component_seeds", None, math.inf)])
def test_analysis_knows_who_knows_which_keys(keys: Any, gamma: int | None, bits: float) -> None:
    found = fair_seccogc.analysis(Params(s=7, keys=keys, gamma=gamma, clip=0.5), setting(), Realised())
    assert found["lmip_peer_bits"] == pytest.approx(bits, abs=1e-4)
    assert math.isinf(found["ldp_peer_epsilon"]) == math.isinf(bits)


def test_analysis_without_a_bound_of_updates_says_so() -> None:
    assert fair_seccogc.analysis(Params(s=7), setting(), Realised())["ldp_peer_epsilon"] == "unbounded"
    assert fl_private.analysis(fl_private.Params(), setting(), Realised())["ldp_update_epsilon"] == "unbounded"
    assert fl_private.analysis(fl_private.Params(clip=0.5), setting(), Realised())["ldp_update_epsilon"] == (
        pytest.approx(91.82, abs=0.01))
    found = dnc_private.analysis(dnc_private.Params(clip=0.5), setting(), Realised())
    assert found["updates_per_round"] == (100.0, "messages.Update")


@pytest.mark.parametrize(("params", "errors"), [
    (fl_private.Params(), []),
    (fl_private.Params(lambda_=-1.0, clip=0.0, uplink_s=0.0, finish_at=0, ldp_delta=0.0), [
        "lambda = -1.0: expected a number, 0 or above", "clip = 0.0: expected a number above 0, or none",
        "uplink = 0.0 s: expected a time above 0, or none", "finish_at = 0: expected a round, 1 or above",
        "ldp_delta = 0.0: expected a number between 0 and 1"]),
    (dnc_private.Params(), []),
    (dnc_private.Params(r=10**9), ["r = 1000000000: expected at most 100000 coded slots with 10 clients"]),
    (dnc_private.Params(r=-1, share_s=-2.0), ["r = -1: expected 0 coded slots or more",
                                              "share = -2.0 s: expected a time above 0, or none"])])
def test_check_of_the_baselines_names_what_is_wrong(params: Any, errors: list[str]) -> None:
    module = fl_private if isinstance(params, fl_private.Params) else dnc_private
    assert module.check(params, World("s", 1, [], {"client": list(range(10))}, [])) == errors


def test_a_round_that_ends_a_run_is_the_last_of_a_baseline_too(play: Any) -> None:
    for scheme in ("fl_lossy", "dnc_private"):
        assert sorted(play(scheme, 3, {"finish_at": 2}, rounds=9).reports) == [1, 2]


def test_partial_is_what_a_key_is() -> None:
    key = partial(keys.dealt_key, np.ones(3, np.float32))
    assert masked_update(np.zeros(3, np.float32), None, key).tolist() == [1, 1, 1]
