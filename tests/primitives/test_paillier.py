"""Paillier against arithmetic on the plaintexts, its two trapdoors, packing, and what is declared of its cost."""

from __future__ import annotations

import time
from collections.abc import Callable

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.he.paillier import (
    Packing,
    PrivateKey,
    PublicKey,
    combined,
    key_pair,
    numbers,
    seconds,
)

KEY = key_pair(512, np.random.default_rng(3))
RNG = np.random.default_rng(5)
ANY = st.integers(-2**300, 2**300)


@given(st.lists(st.tuples(ANY, ANY), min_size=1, max_size=4), st.integers(-2**60, 2**60))
@settings(max_examples=25)
def test_sums_and_multiples_under_encryption_are_those_of_the_integers(pairs: list[tuple[int, int]], k: int) -> None:
    public, (a, b) = KEY.public, map(list, zip(*pairs, strict=True))
    x, y = public.encrypt(a, RNG), public.encrypt(b, RNG)
    assert KEY.decrypt(x) == a
    assert KEY.decrypt(public.add(x, y)) == [i + j for i, j in pairs]
    assert KEY.decrypt(public.plus(x, b)) == [i + j for i, j in pairs]
    assert KEY.decrypt(public.scale(x, k)) == [i * k for i in a]
    small = [j % 1000 for j in b]
    assert KEY.decrypt(public.dot(x, small)) == [sum(i * j for i, j in zip(a, small, strict=True))]


@given(st.lists(ANY, min_size=1, max_size=4))
@settings(max_examples=15)
def test_two_partial_decryptions_are_the_message_and_one_alone_is_not(values: list[int]) -> None:
    one, other = KEY.split(RNG)
    rows = KEY.public.encrypt(values, RNG)
    mine, theirs = one.partial(rows), other.partial(rows)
    assert combined(KEY.public, mine, theirs) == values
    n = KEY.public.n
    assert all((int(c) - 1) % n for c in numbers(mine))         # of no form 1 + m n


def test_a_key_has_the_length_asked_for_and_comes_again_from_its_stream() -> None:
    for bits in (256, 512, 1024):
        key = key_pair(bits, np.random.default_rng(bits))
        assert key.public.bits == bits
        assert key == key_pair(bits, np.random.default_rng(bits))
    assert KEY.public.cipher_bytes == 128
    for bits in (128, 520):
        with pytest.raises(ValueError, match=f"bits = {bits}: expected a multiple of 16, at least 256"):
            key_pair(bits, RNG)


def test_one_number_encrypted_twice_is_two_ciphertexts_and_a_row_each() -> None:
    rows = KEY.public.encrypt([7, 7], RNG)
    assert rows.shape == (2, 128)
    assert not np.array_equal(rows[0], rows[1])
    assert KEY.public.sound(rows)
    assert not KEY.public.sound(np.zeros((1, 128), np.uint8))
    assert not KEY.public.sound(rows[:, 1:])
    assert not KEY.public.sound(np.frombuffer(KEY.p.to_bytes(128, "big"), np.uint8).reshape(1, -1))


def test_a_number_that_is_too_large_for_the_key_is_refused() -> None:
    with pytest.raises(ValueError, match="is no plaintext of a key of 512 bits"):
        KEY.public.encrypt([KEY.public.n // 2 + 1], RNG)


@given(st.lists(st.integers(-2**62, 2**62), max_size=40), st.lists(st.integers(-2**62, 2**62), max_size=40),
       st.integers(-15, 15))
def test_packed_numbers_stay_apart_through_sums_and_multiples(a: list[int], b: list[int], k: int) -> None:
    packing, length = Packing.of(512, 88), min(len(a), len(b))
    x, y = (np.array([v // 32 for v in one[:length]], np.int64) for one in (a, b))
    packed = packing.pack(x)
    assert len(packed) == packing.count(length) == -(-length // 5)
    assert np.array_equal(packing.unpack(packed, length), x)
    both = [i + k * j for i, j in zip(packed, packing.pack(y), strict=True)]
    assert np.array_equal(packing.unpack(both, length), x + k * y)


def test_slots_of_a_key() -> None:
    assert [Packing.of(bits, 88).slots for bits in (2048, 1024, 512, 256)] == [23, 11, 5, 2]
    assert Packing.of(2048, 88).count(100_000) == 4348
    with pytest.raises(ValueError, match="bits = 64: expected at least 90, a slot and a sign"):
        Packing.of(64, 88)
    with pytest.raises(ValueError, match="a slot holds more than 64 bits"):
        Packing.of(512, 88).unpack([2**70], 1)


@pytest.mark.slow
def test_declared_seconds_are_within_a_factor_of_three_of_real_ones() -> None:
    """CPU seconds at 1,024 bits, the least of ten, in units of one power: what a processor is fast at cancels out."""
    key = key_pair(1024, np.random.default_rng(1))
    public, values = key.public, list(range(10))
    rows, (share, _) = public.encrypt(values, RNG), key.split(RNG)
    said = seconds(1024)

    def real(work: Callable[[], object]) -> float:
        times = []
        for _ in range(10):
            begun = time.process_time()
            work()
            times.append(time.process_time() - begun)
        return min(times) / len(values)

    square, exponent = gmpy2.mpz(public.n) ** 2, (1 << 2048) - 1
    power = real(lambda: [gmpy2.powmod(base, exponent, square) for base in range(square - 10, square)])
    speed = power / said.partial            # of this processor against that of the declared seconds
    assert 1 / 3 < real(lambda: public.encrypt(values, RNG)) / said.encrypt / speed < 3
    assert 1 / 3 < real(lambda: key.decrypt(rows)) / said.decrypt / speed < 3
    assert 1 / 3 < real(lambda: share.partial(rows)) / said.partial / speed < 3
    assert 1 / 3 < real(lambda: public.scale(rows, 2**31 + 11)) / said.scale / speed < 3


def test_keys_are_plain_numbers() -> None:
    assert {type(KEY.p), type(KEY.q), type(KEY.public.n)} == {int}
    assert PrivateKey(KEY.p, KEY.q).public == PublicKey(KEY.p * KEY.q)
