"""CKKS ciphertexts that travel, and the six rules that are easy to break: each fails on the naive way."""

from __future__ import annotations

from time import process_time
from typing import Any

import numpy as np
import pytest

from emul.base.errors import ProtocolViolation
from emul.primitives.he.ckks import COMPARISON, PROTOTYPES, Ckks, Keys, Plain, padded, unpadded
from emul.schemes.ppfpl.slots import BOUND, Layout, uniform, zero_sum

tenseal = pytest.importorskip("tenseal", reason="TenSEAL, the extra `he`, is not installed")
SLOTS = 4096
SEED = bytes(range(32))


@pytest.fixture(scope="module")
def pair() -> Keys:
    return Keys(PROTOTYPES)


@pytest.fixture(scope="module")
def owner(pair: Keys) -> Ckks:
    return Ckks(PROTOTYPES, pair.part(secret=True))


@pytest.fixture(scope="module")
def worker(pair: Keys) -> Ckks:
    return Ckks(PROTOTYPES, pair.part(relin=True))


def unit(n: int = 50, seed: int = 1) -> np.ndarray:
    found = np.zeros(SLOTS)
    drawn = np.random.default_rng(seed).standard_normal(n)
    found[:n] = drawn / np.linalg.norm(drawn)
    return found


def test_check_1_errors_are_far_below_those_that_are_allowed(owner: Ckks, worker: Ckks):
    row = unit()
    fresh, = owner.open(owner.seal([owner.encrypt(row)], 0))
    assert np.abs(owner.decrypt(fresh) - row).max() < 1e-9
    ours, = worker.open(owner.seal([fresh], 0))
    product, = owner.open(worker.seal([ours * ours], 1))
    assert abs(owner.decrypt(product).sum() - 1) < 1e-7


@pytest.mark.parametrize(("rescales", "measured"), [(0, 364_500), (1, 249_200), (2, 131_217)])
def test_check_1_sizes_are_those_of_the_specification(worker: Ckks, rescales: int, measured: int):
    cipher = worker.encrypt(unit())
    for _ in range(rescales):
        cipher = cipher * unit(SLOTS)
    assert len(cipher.serialize()) == pytest.approx(measured, rel=0.01)
    assert worker.seal([cipher], rescales).shape == (1, PROTOTYPES.cipher_bytes[rescales])


def test_check_1_keys_have_the_sizes_of_the_specification(pair: Keys):
    for part, measured in (({}, 0.50e6), ({"secret": True}, 0.75e6), ({"relin": True}, 1.99e6)):
        assert pair.part(**part).nbytes == pytest.approx(measured, rel=0.02)


def test_every_length_that_is_agreed_on_holds_what_there_is():
    keys = Keys(COMPARISON)
    box, cipher = Ckks(COMPARISON, keys.part(relin=True)), None
    row = np.random.default_rng(0).uniform(-1, 1, 8192)
    for rescales in range(7):
        cipher = box.encrypt(row) if cipher is None else cipher * row
        sealed = box.seal([cipher], rescales)
        assert len(unpadded(sealed[0])) / sealed.nbytes > 0.98      # and not much more


# --- rule 1: all slots --------------------------------------------------------------------------------------------

def widened(cipher: Any, slots: int = SLOTS) -> bytes:
    """A serialised vector that says that it has all slots: what a party that decrypts can read of a short one."""
    data = cipher.serialize()
    varint = bytes([slots & 127 | 128, slots >> 7])
    return b"\x0a\x02" + varint + data[2 + data[1]:]


def test_rule_1_a_short_vector_leaves_most_slots_without_its_mask(owner: Ckks):
    context, mask = owner._context, uniform(SEED, 1, 64)[0]
    short = np.zeros(64)
    short[:50] = unit()[:50]
    naive = tenseal.ckks_vector(context, short) + mask
    seen = np.array(tenseal.ckks_vector_from(context, widened(naive)).decrypt())
    assert np.abs(seen[64:114] - short[:50]).max() < 1e-6           # the next copy of the prototype, in the clear

    full = owner.encrypt(unit()) + uniform(SEED, 1, SLOTS)[0]
    seen = owner.decrypt(full)
    assert len(np.unique(np.round(seen, 6))) == SLOTS
    assert np.abs(seen).min() > 1


def test_rule_1_a_row_that_is_not_full_is_refused(owner: Ckks):
    for box in (owner, Plain(PROTOTYPES)):
        with pytest.raises(ValueError, match=r"^a row of shape \(50,\): all 4096 slots must be given$"):
            box.encrypt(np.zeros(50))
    short = padded(tenseal.ckks_vector(owner._context, [1.0] * 50).serialize(), PROTOTYPES.cipher_bytes[0])
    with pytest.raises(ProtocolViolation, match=r"^a ciphertext of 50 slots, expected 4096$"):
        owner.open(short[None])


def test_a_zero_sum_mask_adds_up_to_nothing_in_each_block_and_hides_every_slot():
    mask = zero_sum(SEED, 3, Layout(64, 50, SLOTS))
    assert (mask.reshape(3, -1, 64)[:, :, :50].sum(2) == 0).all()
    inside = np.delete(mask.reshape(3, -1, 64), 49, axis=2)
    assert np.abs(inside).max() <= BOUND
    assert np.abs(inside).mean() == pytest.approx(BOUND / 2, rel=0.02)
    assert len(np.unique(mask)) == mask.size


# --- rule 2: magnitude ----------------------------------------------------------------------------------------------

def test_rule_2_one_slot_that_is_too_large_destroys_all(owner: Ckks, worker: Ckks):
    row, ones = unit(), np.ones(SLOTS)
    for large, survives in ((2.0**9, True), (2.0**30, False)):
        values = row.copy()
        values[4000] = large                                        # no block lies there: an iterate that diverged
        twice, = owner.open(worker.seal([worker.open(owner.seal([owner.encrypt(values)], 0))[0] * ones * ones], 2))
        error = np.abs(owner.decrypt(twice)[:50] - row[:50]).max()
        assert (error < 1e-6) == survives


def test_rule_2_masks_of_full_size_cost_no_accuracy_before_the_second_rescale(owner: Ckks, worker: Ckks):
    row, mask = unit(), uniform(SEED, 1, SLOTS)[0]
    cipher, = worker.open(owner.seal([owner.encrypt(row)], 0))
    masked, = owner.open(worker.seal([cipher * np.ones(SLOTS) + mask], 1))
    assert np.abs(owner.decrypt(masked) - mask - row).max() < 1e-7


# --- rule 3: what arrives -------------------------------------------------------------------------------------------

def test_rule_3_the_library_takes_an_empty_string_for_a_ciphertext_and_we_do_not(owner: Ckks):
    assert tenseal.ckks_vector_from(owner._context, b"") is not None
    with pytest.raises(ProtocolViolation, match=r"^an empty ciphertext$"):
        owner.open(np.zeros((1, PROTOTYPES.cipher_bytes[0]), np.uint8))


def test_rule_3_truncated_junk_and_wrong_parameters_are_violations_with_a_reason(owner: Ckks, pair: Keys):
    size, data = PROTOTYPES.cipher_bytes[0], owner.encrypt(unit()).serialize()
    other = tenseal.context(tenseal.SCHEME_TYPE.CKKS, 8192, -1, [60, 40, 40, 60])
    other.global_scale = 2.0**40
    foreign = tenseal.ckks_vector(other, unit()).serialize()
    for bad, said in ((data[:1000], "no ciphertext: failed to parse CKKS stream"),
                      (b"junk" * 1000, "no ciphertext: failed to parse CKKS stream"),
                      (foreign, "no ciphertext: ciphertext data is invalid")):
        with pytest.raises(ProtocolViolation, match=f"^{said}$"):
            owner.open(padded(bad, size)[None])
    beyond = padded(data, size)
    beyond[:4] = 255
    with pytest.raises(ProtocolViolation, match=r"^a ciphertext longer than its row$"):
        owner.open(beyond[None])
    with pytest.raises(ProtocolViolation, match=r"^no keys: "):
        Ckks(PROTOTYPES, padded(b"nothing", 100))


# --- rule 4: copies -------------------------------------------------------------------------------------------------

def test_rule_4_a_sum_is_built_without_copies(worker: Ckks):
    """A copy takes with it a copy of the context and its keys."""
    a, b = worker.encrypt(unit()), worker.encrypt(unit(seed=2))
    worker.seal([a + b], 0)                 # warm
    begin = process_time()
    for _ in range(5):
        a + b
    adding = process_time() - begin
    begin = process_time()
    a.copy()
    assert process_time() - begin > adding


# --- rule 5: secrets ------------------------------------------------------------------------------------------------

def test_rule_5_a_part_without_the_secret_cannot_decrypt(pair: Keys, owner: Ckks, worker: Ckks):
    assert owner._context.is_private()
    for part in (pair.part(), pair.part(relin=True), worker._context.serialize()):
        box = worker if isinstance(part, bytes) else Ckks(PROTOTYPES, part)
        assert not box._context.is_private()
        with pytest.raises(ValueError, match="doesn't hold a secret_key"):
            box.decrypt(box.encrypt(unit()))
    naive = Ckks(PROTOTYPES, padded(owner._context.serialize(save_secret_key=True), PROTOTYPES.key_bytes(True, True)))
    assert naive._context.is_private()                 # what `serialize` gives away when it is asked for everything


# --- rule 6: nothing repeats, so lengths are fixed ------------------------------------------------------------------

def test_rule_6_two_encryptions_differ_in_bytes_and_often_in_length_but_not_once_they_are_padded(owner: Ckks):
    found = [owner.encrypt(unit()).serialize() for _ in range(6)]
    assert len(set(found)) == 6
    assert len(set(map(len, found))) > 1
    assert {row.shape for row in owner.seal([owner.encrypt(unit()) for _ in range(6)], 0)} == {(368_640,)}


def test_a_plain_box_does_the_same_on_numbers_and_declares_what_is_missing():
    box, row = Plain(PROTOTYPES), unit()
    sealed = box.seal([box.encrypt(row)], 0)
    assert np.array_equal(box.decrypt(box.open(sealed)[0]), row)
    assert sealed.nbytes + PROTOTYPES.rest(sealed, 0) == PROTOTYPES.cipher_bytes[0]
    assert box.total(row)[77] == row.sum()


@pytest.mark.parametrize(("J", "n", "rows"), [(10, 50, 1), (10, 512, 2), (62, 50, 1), (65, 50, 2), (1, 4096, 1)])
def test_vectors_lie_in_blocks_of_their_own_and_come_out_again(J: int, n: int, rows: int):
    rng, layout = np.random.default_rng(0), Layout(J, n)
    own = {k: rng.standard_normal(n) for k in range(0, J, 2)}
    table = layout.table(own)
    assert list(table) == list(range(rows)) == layout.rows_of(list(own))
    for k, vector in own.items():
        row, _ = layout.place(k)
        assert np.array_equal(layout.vector(k, table[row]), vector)
    assert sum(np.abs(row).sum() for row in table.values()) == pytest.approx(sum(np.abs(v).sum() for v in own.values()))
    spread = layout.spread({0: 3.0}, 0)
    assert layout.sums(spread)[0] == 3.0 * n
    assert spread.sum() == 3.0 * layout.block


def test_classes_that_are_not_packed_have_rows_of_their_own():
    layout = Layout(10, 50, packed=False)
    assert layout.rows_of([7, 2]) == [2, 7]
    assert layout.place(7) == (7, slice(0, 64))
