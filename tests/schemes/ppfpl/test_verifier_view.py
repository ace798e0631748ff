"""Attacks from PPFPL's verifier's side: what they find where masks are as printed, and that they find nothing here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emul import engine
from emul.attacks.privacy import NotKept
from emul.engine.reopening import attack
from emul.primitives.he.ckks import PROTOTYPES, Ckks, Keys, available
from emul.scenario import loads
from emul.schemes.ppfpl.attacks import leakage, likeness, shared_mask
from emul.schemes.ppfpl.slots import Layout, uniform, zero_sum

needs_tenseal = pytest.mark.skipif(not available(), reason="TenSEAL, the extra `he`, is not installed")
SEED = bytes(range(32))

SCENARIO = """
emul: 1
name: seen
seed: 3
topology: {generator: star_mesh, clients: 20, servers: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 10 Gbit/s}]
task:
  data: {set: digits}
  partition: {class_space: {avg: 4, std: 1, shots: 6, test_shots: 5}}
  model: digits_classic
  solver: {sgd: {lr: 0.05, steps: 1, batch: 8}}
compute: {mode: zero}
schemes: [{name: ppfpl, HE}]
stop: {rounds: 1}
evaluation: {every: 100}
record: {payloads: [LocalPrototypes, NormCheck, Accepted, ClassNorm, MaskedProducts, Keys]}
"""


def units(m: int, n: int, seed: int = 0) -> np.ndarray:
    drawn = np.abs(np.random.default_rng(seed).standard_normal((m, n)))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_check_9_one_vector_for_a_round_is_found_from_69_prototypes():
    V, u = np.random.default_rng(1).uniform(0.5, 2, 50), units(69, 50)
    found = shared_mask(V * u)
    assert np.abs(found / V - 1).max() < 1e-10
    assert likeness(V * u / found, u).min() > 1 - 1e-12


def test_check_9_prototypes_of_length_128_are_too_long_for_79_of_them():
    V, u = np.random.default_rng(1).uniform(0.5, 2, 128), units(79, 128)
    assert np.abs(shared_mask(V * u) / V - 1).max() > 0.01


def test_check_9_fresh_additive_masks_leave_nothing_to_find():
    u = units(69, 50)
    masked = u + uniform(SEED, 69, 50)
    assert likeness(masked / shared_mask(masked), u).max() < 0.7        # as of random vectors with positive ones


def test_the_remainder_of_a_masked_value_says_nothing_of_the_value():
    layout = Layout(20, 200)
    x = layout.table(dict(enumerate(units(16, 200))))[0]
    for mask in (uniform(SEED, 1, 4096)[0], zero_sum(SEED, 1, layout)[0]):
        for bits in (26, 20, 10, 0):
            apart = np.mod(x + mask - x, 2.0**-bits)                # of the remainders by 2^-bits of masked and bare
            near = np.minimum(apart, 2.0**-bits - apart) < 2.0**-bits / 32
            assert abs(near.mean() - 1 / 16) < 0.02


@needs_tenseal
def test_check_8_a_short_vector_leaks_from_the_slots_that_its_mask_does_not_reach():
    import tenseal

    box = Ckks(PROTOTYPES, Keys(PROTOTYPES).part(secret=True))
    for n in (64, 50):                                      # a power of two, and none
        u = units(1, n)[0]
        naive = tenseal.ckks_vector(box._context, u) + uniform(SEED, 1, n)[0]
        data = naive.serialize()
        wide = tenseal.ckks_vector_from(box._context, b"\x0a\x02\x80\x20" + data[2 + data[1]:])     # of 4096 slots
        slots = box.decrypt(wide)
        assert len(slots) == 4096
        found = leakage(slots, np.resize(u, 4096))
        assert found["leaks"]
        assert found["correlation"] > 0.9
    full = np.zeros(4096)
    full[:50] = u
    assert not leakage(box.decrypt(box.encrypt(full) + uniform(SEED, 1, 4096)[0]), full)["leaks"]


@pytest.fixture(scope="module", params=["he: plain", pytest.param("he: ckks", marks=[pytest.mark.slow, needs_tenseal])])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = SCENARIO.replace("HE", request.param)
    result, = engine.run(loads(text), workers=0, out=tmp_path_factory.mktemp("seen"))
    assert result.directory is not None
    return result.directory


def test_check_8_no_slot_that_the_verifier_gets_tells_of_a_prototype(run: Path):
    rows = attack(run, "slot_leak").rows
    assert set(rows["message"]) == {"NormCheck", "ClassNorm", "products", "prototypes"}
    assert len(rows) == 3 * 20 + 1
    assert not rows["leaks"].any()
    assert rows["correlation"].max() < 0.08
    assert (rows["distinct"] == 1).all()


def test_check_9_a_shared_mask_is_looked_for_in_a_run_and_not_found(run: Path):
    row, = attack(run, "shared_mask").rows.to_dict("records")
    assert row["prototypes"] >= 60
    assert row["recovered"] == 0
    assert row["cosine"] < 0.6


def test_a_run_that_has_not_kept_what_the_verifier_gets_says_what_to_add(tmp_path: Path):
    text = SCENARIO.replace("HE", "he: plain").partition("record:")[0]
    result, = engine.run(loads(text), workers=0, out=tmp_path)
    assert result.directory is not None
    with pytest.raises(NotKept, match=r"record: \{payloads: \[LocalPrototypes, NormCheck, Accepted, ClassNorm, Masked"):
        attack(result.directory, "slot_leak")
