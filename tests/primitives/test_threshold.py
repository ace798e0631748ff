"""Threshold Paillier: what any t shares decrypt and fewer do not, integer coefficients, and what is declared."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from itertools import combinations

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.he.paillier import Packing, Rows, seconds
from emul.primitives.he.threshold import (
    Dealt,
    combine_seconds,
    combined,
    deal,
    lagrange,
    partial_seconds,
    safe_prime,
)

RNG = np.random.default_rng(5)
ANY = st.integers(-2**200, 2**200)


@cache
def key(bits: int = 512, parties: int = 5, threshold: int = 3) -> Dealt:
    return deal(bits, parties, threshold, np.random.default_rng(3))


def partials(dealt: Dealt, rows: Rows, among: tuple[int, ...]) -> dict[int, Rows]:
    return {i: dealt.shares[i - 1].partial(rows) for i in among}


@given(st.lists(ANY, min_size=1, max_size=3), st.sampled_from(list(combinations(range(1, 6), 3))))
@settings(max_examples=25)
def test_any_three_of_five_decrypt_and_two_do_not(values: list[int], among: tuple[int, ...]) -> None:
    rows = key().public.encrypt(values, RNG)
    assert combined(key().public, 5, partials(key(), rows, among)) == values
    with pytest.raises(ValueError, match="do not fit together"):
        combined(key().public, 5, partials(key(), rows, among[:2]))


@pytest.mark.parametrize(("parties", "threshold"), [(1, 1), (2, 1), (4, 4), (20, 7)])
def test_all_thresholds_decrypt(parties: int, threshold: int) -> None:
    dealt = key(256, parties, threshold)
    rows = dealt.public.encrypt([-12], RNG)
    among = tuple(RNG.permutation(parties)[:threshold] + 1)
    assert combined(dealt.public, parties, partials(dealt, rows, tuple(int(i) for i in among))) == [-12]


def test_more_shares_than_the_threshold_decrypt_as_well_and_all_of_them_are_there() -> None:
    rows = key().public.encrypt([9], RNG)
    assert combined(key().public, 5, partials(key(), rows, (1, 2, 3, 4, 5))) == [9]
    assert len(key().shares) == 5


def test_the_sum_of_five_packed_vectors_is_the_sum_of_the_fixed_point_numbers() -> None:
    """Section 10.1: 48 bits a slot, 20 after the point, 42 slots at 2,048 bits."""
    assert Packing.of(2048, 48).slots == 42
    packing = Packing.of(512, 48)
    rows = np.clip(np.rint(RNG.standard_normal((5, 100)) * 2**20), -2**36, 2**36).astype(np.int64)
    public, summed = key().public, None
    for row in rows:
        sealed = public.encrypt(packing.pack(row), RNG)
        summed = sealed if summed is None else public.add(summed, sealed)
    assert summed is not None
    found = packing.unpack(combined(public, 5, partials(key(), summed, (2, 4, 5))), 100)
    assert np.array_equal(found, rows.sum(0))


def test_a_slot_has_room_for_two_to_the_eleven_summands() -> None:
    packing, most = Packing.of(512, 48), np.full(20, -2**36)
    whole = [2**11 * one for one in packing.pack(most)]
    assert np.array_equal(packing.unpack(whole, 20), 2**11 * most)


def test_what_everybody_has_and_what_a_party_has_hold_no_factor_of_n() -> None:
    """Check 15."""
    public = key().public
    assert set(vars(public)) == {"n"}
    n = gmpy2.mpz(public.n)
    assert not n.is_prime()
    for share in key().shares:                          # m divides no single share: else n would be factored
        assert gmpy2.powmod(2, 2 * share.part, n) != 1
        assert gmpy2.gcd(share.part, n) == 1
    joined = sum(factor * key().shares[i - 1].part for i, factor in lagrange((1, 2, 3), 5).items())
    assert gmpy2.powmod(2, 2 * joined, n) == 1          # three of them together could


def test_a_wrong_partial_decryption_is_found_out() -> None:
    rows = key().public.encrypt([9], RNG)
    parts = partials(key(), rows, (1, 2, 3))
    parts[2] = key().public.plus(parts[2], [1])
    found = combined(key().public, 5, parts)            # a multiple of 1 + n changes the message
    assert found != [9]
    parts[2] = key().public.encrypt([9], RNG)
    with pytest.raises(ValueError, match="do not fit together"):
        combined(key().public, 5, parts)
    parts[2] = np.frombuffer(int(key().public.n).to_bytes(128, "big"), np.uint8).reshape(1, -1)
    with pytest.raises(ValueError, match=r"no unit|do not fit together"):
        combined(key().public, 5, parts)


@given(st.sets(st.integers(1, 12), min_size=1), st.lists(st.integers(-2**70, 2**70), min_size=1, max_size=12))
@settings(max_examples=40)
def test_coefficients_are_integers_that_interpolate_at_zero(among: set[int], coefficients: list[int]) -> None:
    known = coefficients[:len(among)]
    values = {i: sum(c * i**k for k, c in enumerate(known)) for i in among}
    assert sum(factor * values[i] for i, factor in lagrange(among, 12).items()) == math.factorial(12) * known[0]


def test_a_key_has_the_length_asked_for_is_of_safe_primes_and_comes_again_from_its_stream() -> None:
    p = safe_prime(256, np.random.default_rng(1))
    assert gmpy2.is_prime(p)
    assert gmpy2.is_prime(p // 2)
    assert p.bit_length() == 256
    assert key(256).public.bits == 256
    assert key().public.bits == 512
    assert deal(512, 5, 3, np.random.default_rng(3)) == key()
    for bits, t, message in ((128, 3, "bits = 128"), (520, 3, "bits = 520"), (512, 6, "threshold = 6: expected 1 to 5"),
                             (512, 0, "threshold = 0")):
        with pytest.raises(ValueError, match=message):
            deal(bits, 5, t, RNG)


def test_declared_seconds_are_within_a_factor_of_three_of_real_ones() -> None:
    """CPU seconds at 1,024 bits, the least of three, in units of one power: what a processor is fast at cancels out."""
    dealt, among = key(1024, 20, 7), (1, 4, 7, 11, 12, 16, 20)
    rows = dealt.public.encrypt(list(range(4)), RNG)
    parts = partials(dealt, rows, among)

    def real(work: Callable[[], object]) -> float:
        times = []
        for _ in range(3):
            begun = time.process_time()
            work()
            times.append(time.process_time() - begun)
        return min(times) / 4

    square, exponent = gmpy2.mpz(dealt.public.n) ** 2, (1 << 2048) - 1
    power = real(lambda: [gmpy2.powmod(base, exponent, square) for base in range(square - 4, square)])
    speed = power / seconds(1024).partial           # of this processor against that of the declared seconds
    assert 1 / 3 < real(lambda: dealt.shares[3].partial(rows)) / partial_seconds(1024, 20) / speed < 3
    assert 1 / 3 < real(lambda: combined(dealt.public, 20, parts)) / combine_seconds(1024, among, 20) / speed < 3
