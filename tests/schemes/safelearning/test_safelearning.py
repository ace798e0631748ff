"""SAFELearning: group sums and the final sum are exact, flagged groups stay out, and nobody is opened twice (A18)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.summing import SumOutcome, sums
from emul import engine
from emul.base.errors import ProtocolFailure
from emul.primitives.crypto.graphs import connected
from emul.primitives.crypto.masks import mask_input
from emul.primitives.crypto.prg import prg_add
from emul.protocols.pairwise.hand import new_secrets, pair_seeds
from emul.protocols.pairwise.messages import id_array
from emul.record.columns import columns
from emul.record.journal import MemoryJournal
from emul.record.tables import derive
from emul.roles import World
from emul.scenario import loads
from emul.schemes import safelearning
from emul.schemes.safelearning import EXAMPLE, Params, check, groups, split_client
from emul.schemes.safelearning.groups import DETECTORS, commitment, draw_groups, group_seed, joined
from emul.schemes.safelearning.split import LOW, UnmaskLow, check_draw, check_second_request, masked_parts
from emul.workers.twin import Twin

CLIENTS = st.integers(8, 16)


def drawn(means: np.ndarray, limit: float) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=int(1e6 * np.abs(means).sum()))).random(len(means)) < 0.4


@pytest.fixture(autouse=True)
def _some_groups_are_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DETECTORS, "some", drawn)


@settings(max_examples=15, deadline=None)
@given(CLIENTS, st.integers(3, 6), st.dictionaries(st.integers(1, 16), st.sampled_from(
    ["AdvertiseKeys", "SharesUp", "MaskedParts", "Reveal", "RevealLow"]), max_size=4), st.integers(0, 99))
def test_A18_the_sum_over_groups_that_are_kept_is_exact_or_the_round_is_given_up(
        n: int, group: int, drops: dict[int, str], seed: int) -> None:
    found = sums("safelearning", n, {"group": min(group, n // 2), "least": 2, "detector": "some"}, seed=seed,
                 drops={i: kind for i, kind in drops.items() if i <= n})
    assert found.verdict() in ("exact", "too_few_shares", "too_few_neighbours", "all_rejected", "inconsistent_sets",
                               "empty_group")
    assert not found.exposed
    if found.verdict() == "exact":
        late = {i for i, kind in drops.items() if kind in ("AdvertiseKeys", "SharesUp", "MaskedParts")}
        assert not late.intersection(found.included[1])


@pytest.mark.parametrize(("verify", "verdict"), [(False, "wrong"), (True, "inconsistent_sets")])
def test_a_client_that_reveals_false_shares_is_seen_by_spare_ones(verify: bool, verdict: str,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    real = split_client.opened

    def lies(i: int, *rest: Any) -> dict[int, bytes]:
        held = real(i, *rest)
        return {j: bytes(octet ^ (i == 2) for octet in shares) for j, shares in held.items()}

    params = {"group": 5, "detector": "none", "verify_spare": verify}
    assert sums("safelearning", 10, params, drops={3: "MaskedParts"}).verdict() == "exact"
    monkeypatch.setattr(split_client, "opened", lies)
    assert sums("safelearning", 10, params).verdict() == verdict


def opened(monkeypatch: pytest.MonkeyPatch, n: int, params: dict[str, Any], drops: dict[int, str], seed: int = 7,
           ) -> tuple[SumOutcome, dict[tuple[int, ...], np.ndarray]]:
    """A round, and the sums of high parts that its server has opened, which are those of the inputs."""
    seen: dict[tuple[int, ...], np.ndarray] = {}
    real = safelearning.flagged_groups

    def see(high: dict[tuple[int, ...], np.ndarray], p: Params) -> set[tuple[int, ...]]:
        seen.update(high)
        return real(high, p)

    with monkeypatch.context() as patch:
        patch.setattr(safelearning, "flagged_groups", see)
        found = sums("safelearning", n, params, drops=drops, seed=seed)
    for members, total in seen.items():
        high = sum((found.arrays[f"client{i}", "input-1"] >> 8 for i in members), np.zeros(8, np.uint32))
        assert np.array_equal(total, high)
    return found, seen


def test_A18_the_sums_that_groups_open_are_those_of_their_high_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    _, seen = opened(monkeypatch, 14, {"group": 4, "least": 2, "detector": "some"}, {3: "MaskedParts", 9: "Reveal"})
    assert len(seen) == 3
    assert 3 not in {i for members in seen for i in members}


@pytest.mark.release
def test_A18_group_sums_and_the_sum_are_exact_in_400_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random groups are flagged. n = 8 to 50 in groups of 4 to 8; up to a fifth drops out, each at a random stage."""
    rng, found = np.random.default_rng(18), Counter[str]()
    stages = ["AdvertiseKeys", "SharesUp", "MaskedParts", "Reveal", "RevealLow"]
    for seed in range(400):
        n = int(rng.integers(8, 51 if seed % 15 == 0 else 17))
        loss = float(rng.uniform(0, 0.2))
        drops = {i: str(rng.choice(stages)) for i in range(1, n + 1) if rng.random() < loss}
        params = {"group": int(rng.integers(4, min(8, n // 2) + 1)), "least": 2, "detector": "some"}
        summed, seen = opened(monkeypatch, n, params, drops, seed)
        found[summed.verdict()] += 1
        assert not summed.exposed
        if summed.verdict() == "exact":
            assert seen
    assert set(found) <= {"exact", "too_few_shares", "too_few_neighbours", "all_rejected", "inconsistent_sets",
                          "empty_group"}
    assert found["exact"] >= 200


def test_a_group_below_its_least_is_left_out_and_not_opened() -> None:
    p: dict[str, Any] = {"group": 4, "least": 3, "threshold": 3, "partners": 3}
    seed = 7
    plain = sums("safelearning", 12, p, seed=seed)
    assert plain.included[1] == list(range(1, 13))
    first = next(iter(plain.reports.values()))
    assert first["groups"] == 3
    # drop clients one after the other until a group of four has two left
    for second in range(2, 13):
        found = sums("safelearning", 12, p, drops={1: "MaskedParts", second: "MaskedParts"}, seed=seed)
        if found.verdict() == "exact" and len(found.included[1]) == 8:
            assert found.reports[1]["S"] == 8
            assert found.reports[1]["U3"] == 10
            return
    pytest.fail("no second client shares the group of the first")


def test_A18_with_one_key_for_both_parts_the_high_part_of_a_flagged_client_is_read_off() -> None:
    """Opening the low parts reveals s_sk of a flagged client; its self mask of the high part is known by then."""
    rng = np.random.default_rng(0)
    own, mate = new_secrets(rng, 2), new_secrets(rng, 2)
    peers = {2: b"".join(s.public for s, _ in mate.vectors)}
    one, two = ([pair_seeds(1, own, peers, [1, 2], 1, v) for v in pair] for pair in ((LOW, LOW), (0, LOW)))
    values = rng.integers(0, 1 << 16, 20).astype(np.uint32)
    b = [secret for _, secret in own.vectors]
    for seeds, leaks in ((one, True), (two, False)):
        y = masked_parts(1, values, 8, b, seeds).high.astype(np.uint32)
        prg_add(y, b[0], -1)                                    # revealed with its group
        prg_add(y, pair_seeds(1, own, peers, [1, 2], 1, LOW)[2], -1)    # from the key that the low parts give away
        assert np.array_equal(y & 0xFFFF, values >> 8) is leaks


@pytest.mark.parametrize(("partners", "most"), [(2, 0.02), (1, 0.1)])
def test_A18_the_low_parts_hold_together_without_the_groups_that_are_left_out(partners: int, most: float) -> None:
    """n = 100, groups of 10, 4 of them flagged: the graph of the low parts on those that are kept."""
    rng, apart, rounds = np.random.default_rng(3), 0, 100
    for k in range(rounds):
        seed = group_seed(bytes([k]) * 32, {})
        groups = draw_groups(seed, range(100), 10)
        kept = [i for g in rng.permutation(10)[:6] for i in groups[g]]
        apart += not connected(joined(seed, groups, partners), kept)
    assert apart / rounds <= most


@pytest.mark.parametrize(("n", "attackers", "size", "clean"), [(40, 4, 8, 0.3935), (100, 20, 10, 0.0951)])
def test_how_many_groups_have_no_attacker(n: int, attackers: int, size: int, clean: float) -> None:
    rounds = 300
    free = np.mean([all(i >= attackers for i in group) for k in range(rounds)
                    for group in draw_groups(group_seed(k.to_bytes(32, "little"), {}), range(n), size)])
    assert free == pytest.approx(clean, abs=4 * (clean * (1 - clean) / rounds) ** 0.5)


# --- what a client refuses ------------------------------------------------------------------------------------------

def request(survivors: list[int], dropped: list[int]) -> UnmaskLow:
    return UnmaskLow(id_array(survivors), id_array(dropped), np.frombuffer(bytes(32), np.uint8), id_array([]),
                     np.zeros((0, 16), np.uint8))


@pytest.mark.parametrize(("survivors", "dropped", "said"), [
    ([1, 2, 3, 5], [4], None), ([5], [1, 2, 3, 4], None),
    ([1, 2, 3, 5], [3, 4], "both secrets"), ([1, 2, 3, 9], [4], "nobody in U2"),
    ([1, 2, 3, 4, 5], [], "dropped and back"), ([1, 2, 3, 6], [4], "without having been opened"),
    ([1, 2, 5], [3, 4], "my group is split")])
def test_a_client_refuses_a_second_request_that_would_expose_somebody(survivors: list[int], dropped: list[int],
                                                                      said: str | None) -> None:
    """Client 1, its group 1, 2, 3 and 4, of which 4 dropped out; 5 a partner that was opened, 6 one that was not."""
    def ask() -> None:
        check_second_request([1, 2, 3, 4, 5, 6], [1, 2, 3, 4], [1, 2, 3, 5], [4], request(survivors, dropped))

    if said is None:
        ask()
    else:
        with pytest.raises(ProtocolFailure, match=f"^inconsistent_sets: .*{said}"):
            ask()


def test_a_client_checks_that_its_group_was_drawn_from_what_was_committed_to() -> None:
    secret, nonces = bytes(range(32)), {i: bytes([i]) * 16 for i in range(1, 9)}
    groups = draw_groups(group_seed(secret, nonces), list(nonces), 4)
    mine = next(group for group in groups if 3 in group)
    told = UnmaskLow(id_array([]), id_array([]), np.frombuffer(secret, np.uint8), id_array(list(nonces)),
                     np.stack([np.frombuffer(nonce, np.uint8) for nonce in nonces.values()]))
    check_draw(3, commitment(secret), nonces[3], mine, 4, told)
    other = replace(told, secret=np.frombuffer(bytes(32), np.uint8))
    for request_, group, nonce, said in ((other, mine, nonces[3], "not what was committed to"),
                                         (told, mine, bytes(16), "lacks my nonce"),
                                         (told, sorted({*mine[:2], 3, 99}), nonces[3], "my group was not drawn")):
        with pytest.raises(ProtocolFailure, match=said):
            check_draw(3, commitment(secret), nonce, group, 4, request_)


# --- detectors, parameters, a backdoor ------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["distance", "norm", "cosine"])
def test_detectors_find_a_group_that_is_unlike_the_others(name: str) -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(1.0, 0.05, (9, 30))
    means[4] = -20 * means[4]
    assert np.flatnonzero(DETECTORS[name](means, 8.0)).tolist() == [4]
    assert not groups.no_group(means, 3.0).any()
    assert not DETECTORS[name](np.ones((5, 4)), 3.0).any()


def accuracy_under_attack(detector: str) -> tuple[float, int]:
    """(accuracy in the end, attackers whose updates got into a sum) of two attackers that push against the others."""
    scenario = loads(EXAMPLE, sets=[
        f"schemes[0].detector={detector}", "faults=[]", "schemes[0].clip=20", "topology.clients=18", "stop.rounds=8",
        "attacks[0].nodes=[client4, client11]", "task.partition=iid", "task.solver.sgd.steps=5"])
    wiring = engine.wire(scenario, *scenario.schemes[0])
    journal = MemoryJournal(engine.header(wiring))
    finished = engine.execute(wiring, Twin(), journal)
    rounds = derive(columns(journal.rows), journal.header, engine.observed(finished)).rounds
    return rounds[-1]["accuracy"], sum(row["attackers_kept"] for row in rounds)


def test_attackers_are_left_out_with_their_groups_and_the_model_is_learnt() -> None:
    without, in_all = accuracy_under_attack("none")
    detected, kept = accuracy_under_attack("distance")
    assert in_all == 2 * 8
    assert kept <= 2
    assert detected > without + 0.2


@pytest.mark.parametrize(("changed", "said"), [
    ({}, None), ({"group": 30}, "group = 30: expected 2..20"), ({"least": 9}, "least = 9: expected 2..8"),
    ({"detector": "no"}, 'detector = "no": expected one of none, distance'),
    ({"threshold": 11}, "threshold = 11: expected 2..10"), ({"bits": 20}, "low_bits = 8: expected bits - 8")])
def test_parameters_that_cannot_be_are_told(changed: dict[str, Any], said: str | None) -> None:
    world = World("safelearning", 7, ["server", *(f"client{i}" for i in range(1, 21))],
                  {"server": [0], "client": list(range(1, 21))}, [1.0] * 21)
    errors = check(Params(**changed), world)
    assert errors == [] if said is None else len(errors) == 1 and errors[0].startswith(said)


def test_the_parts_of_a_value_are_masked_in_rings_of_their_own() -> None:
    values = np.array([0xFFFF, 0x0102, 0], np.uint32)
    parts = masked_parts(1, values, 8, [bytes(32), bytes([1]) * 32], [{}, {}])
    assert parts.high.dtype == np.uint16
    assert np.array_equal(parts.low, mask_input(values & 0xFF, 1, bytes([1]) * 32, {}))
