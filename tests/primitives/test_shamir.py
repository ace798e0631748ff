import re
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ProtocolViolation, TooFewClients
from emul.primitives.crypto.shamir import MAX_HOLDERS, combine, combine_all, multiply, share

element = st.integers(0, 65535)


def slow_multiply(a: int, b: int) -> int:
    product = reduce(lambda acc, i: acc ^ (a << i if b >> i & 1 else 0), range(16), 0)
    for degree in range(30, 15, -1):
        if product >> degree & 1:
            product ^= 0x1100B << degree - 16
    return product


def slow_inverse(a: int) -> int:
    result, power = 1, a
    for bit in bin(65534)[2:][::-1]:                 # a^(2^16 - 2)
        if bit == "1":
            result = slow_multiply(result, power)
        power = slow_multiply(power, power)
    return result


def elements(data: bytes) -> list[int]:
    return [int.from_bytes(data[i:i + 2], "little") for i in range(0, len(data), 2)]


def slow_interpolate(shares: dict[int, bytes], x: int) -> list[int]:
    """The polynomials through all the shares, at x, element by element."""
    values = [0] * (len(next(iter(shares.values()))) // 2)
    for j, data in shares.items():
        weight = 1
        for i in shares:
            if i != j:
                weight = slow_multiply(weight, slow_multiply(x ^ (i + 1), slow_inverse((i + 1) ^ (j + 1))))
        values = [v ^ slow_multiply(weight, y) for v, y in zip(values, elements(data), strict=True)]
    return values


def test_hand_worked_products():
    # x^15 * x = x^16 = x^12 + x^3 + x + 1;  (x + 1)^2 = x^2 + 1;  x^15 * x^2 = x^13 + x^4 + x^2 + x
    products = [(0x8000, 2, 0x100B), (3, 3, 5), (0x8000, 4, 0x2016), (0, 7, 0), (7, 0, 0), (0, 0, 0), (1, 9, 9)]
    for a, b, product in products:
        assert int(multiply(np.uint16(a), np.uint16(b))) == product


@given(a=element, b=element)
def test_product_equals_the_schoolbook_one(a, b):
    assert int(multiply(np.uint16(a), np.uint16(b))) == slow_multiply(a, b)


def test_every_nonzero_element_has_an_inverse_and_zero_none():
    nonzero = np.arange(1, 65536, dtype=np.uint16)
    for a in (1, 2, 0x1234, 0xFFFF):
        products = multiply(nonzero, np.uint16(a))
        assert np.count_nonzero(products == 1) == 1
        assert np.unique(products).size == 65535


@st.composite
def sharings(draw):
    n = draw(st.integers(1, 12))
    t = draw(st.integers(1, n))
    holders = draw(st.lists(st.integers(0, MAX_HOLDERS - 1), min_size=n, max_size=n, unique=True))
    used = draw(st.permutations(holders))[:t]
    secrets = draw(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
    return secrets, t, holders, used, draw(st.integers(0, 2**32))


@given(sharings())
@settings(deadline=None)
def test_any_t_shares_give_the_secrets(case):
    secrets, t, holders, used, seed = case
    shares = share(secrets, t, holders, np.random.default_rng(seed))
    assert list(shares) == holders
    assert all(len(s) == 32 * len(secrets) for s in shares.values())
    assert combine({j: shares[j] for j in used}, t) == b"".join(secrets)
    assert combine(shares, t) == b"".join(secrets)


@given(sharings())
@settings(max_examples=30, deadline=None)
def test_one_share_less_is_refused_and_says_nothing(case):
    secrets, t, holders, used, seed = case
    shares = share(secrets, t, holders, np.random.default_rng(seed))
    fewer = {j: shares[j] for j in used[1:]}
    with pytest.raises(TooFewClients, match=rf"^too few shares: need {t}, have {t - 1}$"):
        combine(fewer, t)
    # every other secret is consistent with t - 1 shares: a polynomial of degree t - 1 through them and (0, secret)
    claimed = {j: s[:32] for j, s in fewer.items()} | {-1: bytes(range(32))}       # holder -1 is the point x = 0
    missing = used[0]
    forged = b"".join(v.to_bytes(2, "little") for v in slow_interpolate(claimed, missing + 1))
    assert combine({j: s[:32] for j, s in fewer.items()} | {missing: forged}, t) == bytes(range(32))


def test_reconstruction_below_the_real_threshold_gives_something_else():
    secret = bytes(range(32))
    shares = share([secret], 5, range(8), np.random.default_rng(1))
    assert combine({j: shares[j] for j in range(4)}, 4) != secret


def test_shares_are_values_at_holder_plus_one_of_one_polynomial():
    secret = bytes(range(100, 132))
    shares = share([secret], 3, [0, 5, 9, 65534], np.random.default_rng(2))
    three = {j: shares[j] for j in (0, 5, 9)}
    assert slow_interpolate(three, 0) == elements(secret)
    assert slow_interpolate(three, 65535) == elements(shares[65534])


@pytest.mark.parametrize("t", [2, 7, 67])
def test_A7_t_shares_of_32_bytes_give_the_secret_and_t_minus_one_do_not(t):
    secret, holders = bytes(range(32)), range(t + 3)
    shares = share([secret], t, holders, np.random.default_rng(t))
    assert {len(one) for one in shares.values()} == {32}
    assert combine({j: shares[j] for j in range(3, t + 3)}, t) == secret
    fewer = {j: shares[j] for j in range(t - 1)}
    assert combine(fewer, t - 1) != secret                  # a polynomial of lower degree through them
    with pytest.raises(TooFewClients):
        combine(fewer, t)


def test_A7_a_thousand_secrets_of_667_shares_each_are_combined_at_once():
    """Shares are drawn: any 667 values lie on a polynomial. One secret is really shared."""
    t, rng = 667, np.random.default_rng(8)
    secret = rng.bytes(32)
    dealt = share([secret], t, range(1000), rng)
    held = {owner: dict(zip(range(t), np.split(rng.integers(0, 256, 32 * t, np.uint8), t), strict=True))
            for owner in range(999)}
    shares = {owner: {j: row.tobytes() for j, row in of.items()} for owner, of in held.items()}
    shares[999] = {j: dealt[j] for j in range(t)}
    secrets = combine_all(shares, t)
    assert len(secrets) == 1000
    assert secrets[999] == secret


def test_secagg_check_a3_eight_of_twelve_suffice_and_seven_do_not():
    rng = np.random.default_rng(3)
    secrets = {owner: rng.bytes(32) for owner in range(12)}
    dealt = {owner: share([secret], 8, range(12), rng) for owner, secret in secrets.items()}
    live = [0, 2, 3, 5, 7, 8, 10, 11]
    assert combine_all({o: {j: dealt[o][j] for j in live} for o in secrets}, 8) == secrets
    with pytest.raises(TooFewClients, match=r"^too few shares of node 0's secret: need 8, have 7$"):
        combine_all({o: {j: dealt[o][j] for j in live[1:]} for o in secrets}, 8)


def test_combine_all_with_different_holders_equals_combine_one_by_one():
    rng = np.random.default_rng(4)
    held = {}
    for owner in (9, 4, 7, 2):
        shares = share([rng.bytes(32)], 3, range(6), rng)
        held[owner] = {j: shares[j] for j in rng.permutation(6)[:3 + owner % 3].tolist()}
    together = combine_all(held, 3)
    assert list(together) == [2, 4, 7, 9]
    assert together == {owner: combine(shares, 3) for owner, shares in held.items()}
    assert combine_all({}, 3) == {}


def test_wide_sharing_in_several_blocks_equals_the_slow_interpolation():
    secret = bytes(range(32))
    n = 40000                                            # more than one block of the evaluation
    shares = share([secret], 2, range(n), np.random.default_rng(5))
    for j in (1, 16384, 39999):
        assert combine({0: shares[0], j: shares[j]}, 2) == secret


def test_a_changed_share_changes_the_secret():
    shares = share([bytes(32)], 3, range(3), np.random.default_rng(6))
    shares[1] = bytes([shares[1][0] ^ 1]) + shares[1][1:]
    assert combine(shares, 3) != bytes(32)
    assert combine(shares, 3)[2:] == bytes(30)


def test_same_generator_state_gives_the_same_shares():
    first, second = (share([bytes(32)], 3, range(4), np.random.default_rng(7)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("secrets", "threshold", "holders", "text"), [
    ([bytes(32)], 5, range(4), "threshold t = 5 exceeds n = 4"),
    ([bytes(32)], 0, range(4), "threshold t = 0, expected at least 1"),
    ([bytes(32), bytes(31)], 2, range(4), "secret 1 has 31 bytes, expected 32"),
    ([bytes(32)], 2, [1, 2, 1], "a holder is named twice"),
    ([bytes(32)], 2, [1, 65535], "holder id 65535, expected 0..65534"),
    ([bytes(32)], 2, [-1, 3], "holder id -1, expected 0..65534"),
])
def test_bad_arguments_of_share_are_refused(secrets, threshold, holders, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        share(secrets, threshold, holders, np.random.default_rng(0))


@pytest.mark.parametrize(("shares", "text"), [
    ({1: bytes(32), 2: bytes(64)}, "share of holder 2 has 64 bytes, expected 32 as of 1"),
    ({1: bytes(31), 2: bytes(31)}, "share of holder 1 has 31 bytes, expected a multiple of 32"),
    ({1: b"", 2: b""}, "share of holder 1 has 0 bytes, expected a multiple of 32"),
])
def test_malformed_shares_are_a_violation(shares, text):
    with pytest.raises(ProtocolViolation, match=f"^{text}$"):
        combine(shares, 2)


def test_a_threshold_below_one_is_refused_when_combining():
    for call in (combine, combine_all):
        with pytest.raises(ValueError, match=r"^threshold t = 0, expected at least 1$"):
            call({}, 0)


@pytest.mark.parametrize("place", [0, 2, 4, 6])
def test_a_spare_share_finds_one_that_is_false_wherever_it_is(place):
    shares = share([bytes(range(32))], 4, range(7), np.random.default_rng(9))
    assert combine_all({5: shares}, 4, verify=True) == {5: bytes(range(32))}
    false = {**shares, place: bytes([shares[place][0] ^ 1]) + shares[place][1:]}
    with pytest.raises(ProtocolViolation, match=r"^inconsistent_sets: the shares of a secret of node 5 do not fit"):
        combine_all({5: false}, 4, verify=True)
    only = {j: one for j, one in false.items() if j in (0, 2, 4, 6)}
    assert combine_all({5: only}, 4, verify=True) != {5: bytes(range(32))}         # without a spare nobody sees it
