"""PEFL: checks A17 and A20 of the secure-aggregation family, its faults, and the published break of it."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks.summing import sums
from emul.base import rows
from emul.base.errors import ProtocolViolation, ScenarioError
from emul.primitives.he.paillier import Packing, PublicKey, key_pair
from emul.protocols.sealed import Ciphertexts
from emul.record.audit import wrong_sums
from emul.registry import schemes
from emul.scenario import loads
from emul.schemes import pefl
from emul.schemes.pefl import pearson, twice_median, weights
from emul.schemes.pefl.attacks import UpdateUndetermined, from_blinded, from_padded
from emul.testing import run_text
from emul.workers.keeping import Keeper
from emul.workers.pool import Workers

SMALL = ["schemes.pefl.bits=512", "stop.rounds=1"]
run = partial(run_text, pefl.EXAMPLE)


# --- bytes, seconds and decisions, declared and real ----------------------------------------------------------------

@pytest.mark.parametrize("variant", ["full", "lean"])
def test_what_is_declared_is_what_encryption_for_real_comes_to(variant: str) -> None:
    sets = [*SMALL, f"schemes.pefl.variant={variant}", "links[1].outage.p=0"]
    declared, real = run(*sets), run(*sets, "schemes.pefl.real_up_to=1000")
    assert declared.summary["digest_model"] == real.summary["digest_model"]     # every decision, to the bit
    assert real.summary["bytes_declared"] == {} != declared.summary["bytes_declared"]
    one, other = declared.payloads, real.payloads
    assert one.keys() == other.keys()
    for kind, sizes in one.items():
        assert sizes == pytest.approx(other[kind], rel=0.01, abs=8), kind


@pytest.mark.slow
def test_2000_parameters_are_encrypted_for_real_by_default() -> None:
    """With 2,048 bits: the sum is that of what is declared, element by element."""
    real, declared = (sums("pefl", 3, params, d=2000) for params in ({}, {"real_up_to": 0}))
    assert real.wrong == declared.wrong == {1: 0}
    assert not [row for row in real.rows if row[0] == rows.DECLARED]
    assert [row for row in declared.rows if row[0] == rows.DECLARED]
    for key, found in declared.arrays.items():
        assert np.array_equal(real.arrays[key], found), key


@pytest.mark.parametrize(("variant", "a", "b"), [("full", 7, 3), ("lean", 5, 3)])
def test_A17_a_round_of_m_clients_has_so_many_vectors_of_ciphertexts(variant: str, a: int, b: int) -> None:
    """A17: (7 m + 3) C ciphertexts of 512 bytes, or (5 m + 3) C; 8 m bytes of weights in clear."""
    ran = run("schemes.pefl.bits=2048", "stop.rounds=1", f"schemes.pefl.variant={variant}", "links[1].outage.p=0")
    C, m = -(-650 // 23), 5
    kinds = ("Global", "Upload", "Blinded", "Median", "Scaled", "Padded", "Weights", "Exchange")
    total = sum(sum(sizes) for kind, sizes in ran.payloads.items() if kind in kinds)
    vectors = a * m + b
    assert 0 < total - vectors * C * 512 - 8 * m < 120 * vectors + 500         # headers
    assert ran.payloads["Upload"] == pytest.approx([C * 512] * m, abs=120)


def test_declared_seconds_are_those_of_the_operations() -> None:
    summary = run("schemes.pefl.bits=2048", "stop.rounds=1", "links[1].outage.p=0").summary
    C, m = 29, 5
    client, cloud = (summary["seconds_declared"][role] for role in ("client", "cloud"))
    assert client == pytest.approx({"encrypt": m * C * 8.9e-3, "decrypt": m * C * 2.5e-3})
    assert cloud == pytest.approx({"decrypt": (4 * m + 1) * C * 2.5e-3, "encrypt": (m + 2) * C * 8.9e-3})


def test_A20_a_run_repeats_itself_for_any_number_of_workers(pools: list[Workers]) -> None:
    """A20."""
    sets = [*SMALL, "schemes.pefl.real_up_to=1000"]
    assert run(*sets).digest == run(*sets, pool=pools[1]).digest


# --- weights --------------------------------------------------------------------------------------------------------

def test_A17_weights_are_those_of_plain_arithmetic_and_attackers_have_none() -> None:
    """A17: 7 clients, one sign-flipped, one random: equal to 1e-9, both attackers 0."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal(200)
    g = np.rint((truth + 0.5 * rng.standard_normal((7, 200))) * 2**16).astype(np.int64)
    g[2], g[5] = -g[2], np.rint(rng.standard_normal(200) * 2**16).astype(np.int64)
    r = rng.integers(0, 2**40, 200)
    twice = twice_median(g + r) - 2 * r
    assert np.array_equal(twice, 2 * np.median(g, axis=0).astype(np.int64))
    a, b = rng.integers(1, 2**30, (2, 7))
    k = weights(pearson(a[:, None] * g, b[:, None] * np.tile(twice, (7, 1))), 0.5)
    rho = np.array([np.corrcoef(row, np.median(g, axis=0))[0, 1] for row in g])
    mu = np.maximum(0, np.log((1 + rho) / (1 - rho)) - 0.5)
    assert k == pytest.approx(mu / mu.sum(), abs=1e-9)
    assert (k[2], k[5]) == (0.0, 0.0)
    assert k.sum() == pytest.approx(1)


def test_an_even_number_of_updates_has_the_sum_of_the_two_in_the_middle_as_twice_its_median() -> None:
    assert twice_median(np.array([[1, 8], [4, 2], [7, -3], [9, 0]])).tolist() == [11, 2]
    assert twice_median(np.array([[1], [4], [9]])).tolist() == [8]


def test_a_copy_of_the_median_has_a_finite_weight_and_constant_rows_none() -> None:
    rows = np.array([[1, 2, 3], [5, 5, 5], [3, 2, 1]])
    rho = pearson(rows, np.tile(rows[0], (3, 1)))
    assert rho == pytest.approx([1, 0, -1])
    assert weights(rho, 0.5).tolist() == [1, 0, 0]
    assert not weights(np.zeros(3), 0.5).any()


def test_nobody_left_fails_the_round_and_leaves_the_model() -> None:
    ran = run(*SMALL, "schemes.pefl.reject=50")
    assert (ran.summary["rounds"], ran.summary["rounds_failed"]) == (0, 1)
    assert "AllRejected: all_rejected: none of" in ran.rounds[0]["why"]


def test_sign_flippers_have_no_weight_in_a_run() -> None:
    ran = run("schemes.pefl.bits=512", "links[1].outage.p=0", "task.partition=iid", "topology.clients=7",
              "attacks=[{nodes: [client2, client5], update: {name: scale, factor: -1}}]")
    kept = [(v["attackers_judged"], v["attackers_kept"], v["attackers_weight"]) for v in ran.rounds]
    assert kept == [(2, 0, 0.0)] * 2


# --- audit ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("variant", ["full", "lean"])
@pytest.mark.parametrize("real_up_to", [0, 8])
def test_the_step_is_the_sum_of_updates_times_their_weights_to_the_last_bit(variant: str, real_up_to: int) -> None:
    params = {"bits": 256, "variant": variant, "real_up_to": real_up_to, "reject": 0.0}
    found = sums("pefl", 6, params, drops={2: "Upload"}, rounds=2)
    assert found.wrong == {1: 0, 2: 0}
    names = ["server1", "server2", "server3", *(f"client{i}" for i in range(1, 7))]
    assert all("client2" not in [names[i] for i in inside] for inside in found.included.values())
    changed = {**found.arrays, ("server1", "pad-1"): found.arrays["server1", "pad-1"] + np.eye(8, dtype=np.int64)[3]}
    assert wrong_sums(changed, names, "server1") == {1: 1, 2: 0}


def test_without_an_audit_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeper, "array", lambda *_: pytest.fail("an array was kept"))
    assert run(*SMALL).summary["rounds"] == 1


# --- faults ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("link", ["server1->server2", "server2->server1"])
def test_what_is_lost_between_the_servers_fails_that_round_and_the_next_goes_on(link: str) -> None:
    ran = run("schemes.pefl.bits=512", "stop.rounds=3", "schemes.pefl.server_timeout=5 s",
              f"faults=[{{at: 0 s, link: {link}, down: true, for: 2 s}}]")
    assert ran.summary["rounds_failed"] >= 1
    assert ran.summary["rounds"] >= 1
    assert ran.invariants.violations == []


def test_a_client_that_is_lost_before_its_upload_is_left_out() -> None:
    ran = run(*SMALL, "links[1].outage.p=0", "links[1].match=client1->server1", "links[1].outage.p=1")
    assert [v["received"] for v in ran.rounds] == [4]


def test_bad_parameters_are_refused_when_the_scenario_is_read() -> None:
    for setting, message in (("bits=100", "bits = 100 +expected a multiple of 16, at least 256"),
                             ("reject=-1", "reject = -1"), ("real_up_to=-1", "real_up_to = -1")):
        with pytest.raises(ScenarioError, match=message):
            loads(schemes.find("pefl").example, "t", [f"schemes.pefl.{setting}"])


# --- the break ------------------------------------------------------------------------------------------------------

class Watching(Ciphertexts):
    """Writes down what is decrypted: what CP sees."""

    seen: ClassVar[list[np.ndarray]] = []

    def open(self, private: Any, sealed: Any, length: int) -> np.ndarray:
        found = super().open(private, sealed, length)
        Watching.seen.append(found)
        return found


@pytest.mark.parametrize("variant", ["full", "lean"])
def test_A17_the_cloud_platform_recovers_every_update_exactly(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A17, documented as known: in a run under real encryption, from what CP decrypts alone."""
    from emul.protocols import sealed

    uploads: list[np.ndarray] = []
    real_fixed = pefl.fixed

    def watched(values: np.ndarray, fraction_bits: int, value_bits: int) -> np.ndarray:
        found = real_fixed(values, fraction_bits, value_bits)
        if value_bits == pefl.VALUE:
            uploads.append(found)
        return found

    monkeypatch.setattr(sealed, "Ciphertexts", Watching)
    monkeypatch.setattr(pefl, "fixed", watched)
    Watching.seen.clear()
    run(*SMALL, "links[1].outage.p=0", "schemes.pefl.real_up_to=1000", f"schemes.pefl.variant={variant}",
        "topology.clients=3")
    seen = Watching.seen[3:]                     # after the clients have decrypted the model
    blinded, scaled = np.array(seen[:3]), np.array(seen[3:6])
    if variant == "full":
        padded = seen[9:12]
        found = [from_padded(a, b) for a, b in zip(scaled, padded, strict=True)]
    else:
        found = from_blinded(scaled, blinded)
    assert {g.tobytes() for g in found} == {g.tobytes() for g in uploads}
    assert len(found) == 3


def test_fresh_pads_for_every_coordinate_do_not_help_since_the_common_r_gives_differences() -> None:
    rng = np.random.default_rng(1)
    g = rng.integers(-2**20, 2**20, (4, 30))
    a = rng.integers(1, 2**30, 4)
    assert np.array_equal(from_blinded(a[:, None] * g, g + rng.integers(0, 2**40, 30)), g)


def test_an_update_without_two_different_coordinates_is_not_recovered() -> None:
    with pytest.raises(UpdateUndetermined, match="all coordinates are equal"):
        from_padded(np.full(4, 15), np.full(4, 105))
    with pytest.raises(UpdateUndetermined, match="parallel"):
        from_blinded(np.array([[2, 4], [3, 6]]), np.array([[1, 2], [1, 2]]))


def test_what_is_no_ciphertext_is_rejected_with_its_reason() -> None:
    key = key_pair(256, np.random.default_rng(0))
    box = Ciphertexts(PublicKey(key.public.n), Packing.of(256, pefl.SLOT))
    sound = box.seal(np.arange(5), np.random.default_rng(1))
    box.demand(sound, 5)
    for ciphertexts, message in ((sound.ciphertexts[:2], "expected 3 ciphertexts"),
                                 (np.zeros_like(sound.ciphertexts), "no ciphertexts under this key"),
                                 (np.full_like(sound.ciphertexts, 255), "no ciphertexts under this key"),
                                 (sound.ciphertexts[:, :9], "no ciphertexts under this key")):
        bad = pefl.Sealed(ciphertexts, sound.values, sound.rest)
        with pytest.raises(ProtocolViolation, match=message):
            box.demand(bad, 5)
