"""Multi-input functional encryption: inner products, what does not fit, bounded logarithms, what is declared."""

from __future__ import annotations

import time

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.he.paillier import numbers
from emul.primitives.he.threshold import safe_prime
from emul.schemes.hybrid_alpha import mife
from emul.schemes.hybrid_alpha.mife import FunctionalKey, Logarithms, PartyKey, SafePrimeGroup, decrypt, functional_key


def small() -> SafePrimeGroup:
    rng = np.random.default_rng(2)
    while True:
        p = int(safe_prime(256, rng))
        if p % 8 == 7:
            return SafePrimeGroup(p)


SMALL, WHOLE = small(), SafePrimeGroup()
RNG = np.random.default_rng(4)
Y = st.lists(st.integers(0, 5), min_size=1, max_size=5).filter(any)


def keys(group: SafePrimeGroup, parties: int, round_: int = 0) -> dict[int, PartyKey]:
    return {i: PartyKey(group, bytes([round_, i] * 16)) for i in range(parties)}


def test_the_group_is_that_of_rfc_3526_and_both_generators_are_squares_in_it() -> None:
    assert (WHOLE.p.bit_length(), WHOLE.width) == (2048, 256)
    assert gmpy2.is_prime(WHOLE.p)
    assert gmpy2.is_prime(WHOLE.q)
    for g in (2, WHOLE.h):
        assert gmpy2.powmod(g, WHOLE.q, WHOLE.p) == 1
    assert WHOLE.h != 2


@given(Y, st.integers(1, 4), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_inner_products_are_those_of_the_integers(weights: list[int], d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = keys(SMALL, len(weights))
    x = rng.integers(-500, 500, (len(weights), d))
    ciphertexts = {i: held[i].encrypt(x[i], rng) for i in held}
    y = {i: one for i, one in enumerate(weights) if one}
    key = functional_key(SMALL, held, y, d)
    bound = 500 * sum(weights)
    assert np.array_equal(decrypt(SMALL, ciphertexts, y, key, bound), np.array(weights) @ x)


def test_decrypted_sums_of_five_parties_are_the_plain_fixed_point_sums_in_group_14() -> None:
    """Check 15, in the whole group; a run of d = 100 is in the tests of the scheme."""
    held, d = keys(WHOLE, 5), 8
    x = RNG.integers(-2**17, 2**17, (5, d))
    ciphertexts = {i: held[i].encrypt(x[i], RNG) for i in held}
    ones = dict.fromkeys(held, 1)
    key = functional_key(WHOLE, held, ones, d)
    assert np.array_equal(decrypt(WHOLE, ciphertexts, ones, key, 5 << 17), x.sum(0))
    assert ciphertexts[0].shape == (3 * d, 256)
    assert (key.parts.shape, key.z.shape) == ((10, 256), (d, 256))
    assert WHOLE.holds(ciphertexts[0])
    assert WHOLE.scalars(key.z)


def test_a_ciphertext_of_another_round_or_a_key_of_others_opens_nothing() -> None:
    """What fresh keys per round are for: inputs of two rounds do not add up to a small number."""
    held, other = keys(SMALL, 3), keys(SMALL, 3, round_=1)
    x = RNG.integers(-50, 50, (3, 2))
    ciphertexts = {i: held[i].encrypt(x[i], RNG) for i in held}
    ones = dict.fromkeys(held, 1)
    key = functional_key(SMALL, held, ones, 2)
    mixed = {**ciphertexts, 1: other[1].encrypt(x[1], RNG)}
    with pytest.raises(ValueError, match="no inner product of at most 150"):
        decrypt(SMALL, mixed, ones, key, 150)
    two = {0: 1, 1: 1}
    with pytest.raises(ValueError, match="no inner product"):
        decrypt(SMALL, ciphertexts, two, FunctionalKey(key.parts[:4], key.z), 150)
    with pytest.raises(ValueError, match="no inner product of at most"):
        decrypt(SMALL, ciphertexts, ones, key, max(0, int(np.abs(x.sum(0)).max()) - 1))


def test_what_a_functional_key_leaves_of_one_client_is_behind_its_pad() -> None:
    """s and t follow from the key, and open x + u only, which is uniform."""
    held, x = keys(SMALL, 2), np.array([7])
    ciphertext, key = held[0].encrypt(x, RNG), functional_key(SMALL, held, {0: 1, 1: 1}, 1)
    first, second, third = numbers(ciphertext)
    s, t = numbers(key.parts)[:2]
    p = gmpy2.mpz(SMALL.p)
    bare = third * gmpy2.invert(gmpy2.powmod(first, s, p) * gmpy2.powmod(second, t, p), p) % p
    pad = held[0].exponents(1)[2][0]
    assert bare == gmpy2.powmod(2, 7 + pad, p)
    with pytest.raises(ValueError, match="no inner product"):
        Logarithms(SMALL, 1000).of(bare)


@given(st.integers(0, 3000), st.integers(1, 50), st.data())
@settings(max_examples=40, deadline=None)
def test_logarithms_are_found_up_to_the_bound_and_not_beyond(bound: int, times: int, data: st.DataObject) -> None:
    x = data.draw(st.integers(-bound, bound))
    found = Logarithms(SMALL, bound, times)
    assert found.of(gmpy2.powmod(2, x, SMALL.p)) == x
    for beyond in (bound + 1, -bound - 1):
        with pytest.raises(ValueError, match=f"at most {bound}"):
            found.of(gmpy2.powmod(2, beyond, SMALL.p))


def test_one_number_encrypted_twice_is_two_ciphertexts_and_elements_are_judged() -> None:
    key = keys(SMALL, 1)[0]
    one, other = (key.encrypt(np.array([3]), RNG) for _ in range(2))
    assert not np.array_equal(one, other)
    assert SMALL.holds(one)
    assert not SMALL.holds(np.zeros_like(one))
    assert not SMALL.holds(one[:, 1:])
    assert not SMALL.scalars(np.full((1, SMALL.width), 255, np.uint8))


@pytest.mark.slow
def test_declared_seconds_are_within_a_factor_of_three_of_real_ones() -> None:
    """CPU seconds in group 14, the least of two, in units of one power: what a processor is fast at cancels out."""
    held, d = keys(WHOLE, 3), 6
    powers = []
    for _ in range(3):
        begun = time.process_time()
        for base in range(3, 13):
            gmpy2.powmod(WHOLE.p - base, WHOLE.q - base, WHOLE.p)
        powers.append((time.process_time() - begun) / 10)
    speed = min(powers) / mife.POWER                # of this processor against that of the declared seconds
    ones, x = dict.fromkeys(held, 1), RNG.integers(-2**17, 2**17, (3, d))
    encrypting, decrypting = [], []
    for _ in range(2):
        begun = time.process_time()
        ciphertexts = {i: held[i].encrypt(x[i], RNG) for i in held}
        encrypting.append((time.process_time() - begun) / 3)
        key = functional_key(WHOLE, held, ones, d)
        begun = time.process_time()
        decrypt(WHOLE, ciphertexts, ones, key, 3 << 17)
        decrypting.append(time.process_time() - begun)
    assert 1 / 3 < min(encrypting) / mife.encrypt_seconds(d) / speed < 3
    assert 1 / 3 < min(decrypting) / mife.decrypt_seconds(d, 3, 3 << 17) / speed < 3
