"""Arithmetic modulo a prime, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives import field
from emul.primitives.crypto.prg import CHUNK_WORDS, prg
from emul.primitives.field import P31

PRIMES = [P31, field.prime_for(56), field.prime_for(110)]
SEED = bytes(range(32))


def objects(matrix: np.ndarray) -> np.ndarray:
    return matrix.astype(object)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(1, 150), st.integers(0, 300), st.sampled_from(PRIMES), st.integers(0, 2**32))
def test_products_of_matrices_are_exact(r: int, n: int, w: int, p: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, p, (r, n)), rng.integers(0, p, (n, w)).astype(np.uint32)
    found = field.matmul(a, list(b), p)
    assert found.dtype == np.uint32
    assert np.array_equal(found, (objects(a) @ objects(b)) % p)


@pytest.mark.parametrize("p", PRIMES)
def test_products_of_the_largest_elements_are_exact(p: int) -> None:
    a, b = np.full((130, 200), p - 1), np.full((200, 600), p - 1, np.uint32)
    assert np.array_equal(field.matmul(a, b, p), np.full((130, 600), 200 * (p - 1) ** 2 % p))


def test_a_product_over_nothing_is_zero() -> None:
    assert field.matmul(np.zeros((3, 0), np.int64), [], P31).shape == (3, 0)


@given(st.lists(st.tuples(st.integers(0, P31 - 1), st.integers(0, P31 - 1)), min_size=1, max_size=20))
def test_sums_and_differences_are_those_of_integers(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(v, np.uint32) for v in zip(*pairs, strict=True))
    assert field.add(a, b, P31).tolist() == [(x + y) % P31 for x, y in pairs]
    assert field.subtract(a, b, P31).tolist() == [(x - y) % P31 for x, y in pairs]
    assert field.total([a, b, b], len(a), P31).tolist() == [(x + 2 * y) % P31 for x, y in pairs]
    assert field.add(a, np.full_like(a, P31 - 1), P31).tolist() == [(x - 1) % P31 for x, _ in pairs]


def test_the_sum_of_nothing_is_zero() -> None:
    assert field.total([], 3, P31).tolist() == [0, 0, 0]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.sampled_from(PRIMES), st.integers(0, 2**32))
def test_an_inverse_times_its_matrix_is_the_identity(n: int, p: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).integers(0, p, (n, n))
    matrix[0] = 0 if seed % 5 == 0 and n > 1 else matrix[0]
    if not matrix[0].any():
        with pytest.raises(ZeroDivisionError, match=r"^a singular matrix has no inverse$"):
            field.inverse(matrix, p)
        assert field.rank(matrix, p) == n - 1
    else:
        assert np.array_equal(field.matmul(matrix, field.inverse(matrix, p), p), np.eye(n))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 8), st.integers(1, 10), st.integers(1, 10), st.integers(0, 2**32))
def test_the_rank_of_a_product_is_that_of_its_narrowest_factor(r: int, rows: int, columns: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, P31, (rows, r)), rng.integers(0, P31, (r, columns))
    product = field.matmul(a, b, P31) if r else np.zeros((rows, columns))
    assert field.rank(product, P31) == min(rows, columns, r)


def test_zero_has_no_inverse() -> None:
    assert (field.inverses([3, P31 - 1], P31) * np.array([3, P31 - 1]) % P31).tolist() == [1, 1]
    with pytest.raises(ZeroDivisionError, match=r"^0 has no inverse$"):
        field.inverses([1, P31], P31)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 6), st.integers(0, 2**32))
def test_lagrange_takes_values_of_a_polynomial_to_others(nodes: int, at: int, seed: int) -> None:
    p, rng = PRIMES[1], np.random.default_rng(seed)
    points = rng.choice(10_000, nodes + at, replace=False)
    polynomial = rng.integers(0, p, nodes).tolist()

    def value(x: int) -> int:
        return sum(c * pow(int(x), k, p) for k, c in enumerate(polynomial)) % p

    matrix = field.lagrange(points[nodes:], points[:nodes], p)
    known = np.array([[value(x)] for x in points[:nodes]], np.uint32)
    assert field.matmul(matrix, known, p)[:, 0].tolist() == [value(x) for x in points[nodes:]]


@pytest.mark.parametrize(("order", "p"), [(1, P31), (56, 2147483647 - 2147483646 % 56)])
def test_the_prime_for_an_order_is_the_largest_below_2_31(order: int, p: int) -> None:
    found = field.prime_for(order)
    assert found <= p
    assert (found - 1) % order == 0
    between = range(found + order, 1 << 31, order)
    assert all(any(n % q == 0 for q in range(3, 46341, 2)) or n % 2 == 0 for n in between)


def test_a_prime_of_no_use_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^order = 7 does not divide p - 1 = 10$"):
        field.root_of_unity(7, 11)
    with pytest.raises(ValueError, match=r"^no prime between 2\^30 and 2\^31 is 1 mod 2147483648$"):
        field.prime_for(1 << 31)


@pytest.mark.parametrize("order", [1, 2, 7, 56, 110, 240])
def test_roots_of_unity_are_as_many_as_their_order(order: int) -> None:
    p = field.prime_for(order)
    table = field.roots(order, p).tolist()
    assert table[0] == 1
    assert len(set(table)) == order
    assert all(pow(x, order, p) == 1 for x in table)


# --- masks ----------------------------------------------------------------------------------------------------------

def test_a_mask_is_the_upper_31_bits_of_the_key_stream() -> None:
    d = CHUNK_WORDS + 70
    assert np.array_equal(field.uniform(SEED, d, P31), prg(SEED, d) >> 1)
    assert field.uniform(SEED, 0, P31).size == 0


def test_what_is_p_or_above_is_drawn_again_from_what_follows() -> None:
    p, d = (1 << 30) + 3, CHUNK_WORDS + 1000                # half of the draws are refused
    words = prg(SEED, 8 * d) >> 1
    mask = field.uniform(SEED, d, p)
    assert int(mask.max()) < p
    first = words[:d] < p
    assert np.array_equal(mask[first], words[:d][first])
    again = np.flatnonzero(~first[:CHUNK_WORDS])            # filled up chunk by chunk
    fresh = words[d:d + again.size]
    assert np.array_equal(mask[again][fresh < p], fresh[fresh < p])
    counts = np.bincount(mask.astype(np.int64) * 16 // p, minlength=16)
    assert np.abs(counts / d - 1 / 16).max() < 0.005


@pytest.mark.parametrize("p", [1 << 30, 1 << 31])
def test_a_mask_modulo_another_size_is_refused(p: int) -> None:
    with pytest.raises(ValueError, match=rf"^p = {p}, expected a prime between 2\^30 and 2\^31$"):
        field.uniform(SEED, 3, p)
