"""Network coding over GF(2^31 - 1), against Python's integers."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.schemes.dnc_private import network_coding as nc

P = nc.P


@given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_combinations_are_exact(n, r, seed):
    rng = np.random.default_rng(seed)
    coefficients = rng.integers(0, P, (r, n))
    symbols = [rng.integers(0, P, 5).astype(np.uint32) for _ in range(n)]
    coefficients[0, 0], symbols[0][:] = P - 1, P - 1                # the largest there are
    for row, x in zip(coefficients, nc.combine(coefficients, symbols), strict=True):
        assert x.dtype == np.uint32
        assert x.tolist() == [sum(int(a) * int(u[i]) for a, u in zip(row, symbols, strict=True)) % P for i in range(5)]


def test_combinations_of_many_elements_are_cut_into_blocks():
    rng = np.random.default_rng(0)
    symbols = [rng.integers(0, P, 100_000).astype(np.uint32) for _ in range(3)]
    x, = nc.combine(np.array([[5, P - 1, 1 << 30]]), symbols)
    for i in (0, 32_767, 32_768, 99_999):
        assert int(x[i]) == (5 * int(symbols[0][i]) - int(symbols[1][i]) + (1 << 30) * int(symbols[2][i])) % P


@given(st.lists(st.floats(-8191, 8191, width=32), min_size=1, max_size=20))
def test_a_value_comes_back_to_2_to_the_minus_17(values):
    v = np.array(values, np.float32)
    back = nc.from_field(nc.to_field(v))
    assert np.abs(back.astype(np.float64) - v).max() <= 2**-17 + 1e-7 * np.abs(v).max()


def test_what_cannot_be_coded_is_cut():
    v = np.array([1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    assert nc.from_field(nc.to_field(v)).tolist() == [8191, -8191, 8191, -8191, 0]


def test_every_square_part_of_a_cauchy_matrix_is_invertible():
    alpha = nc.cauchy(4, 4)
    for size in (1, 2, 3, 4):
        for rows in combinations(range(4), size):
            for columns in combinations(range(4), size):
                part = alpha[np.ix_(rows, columns)]
                assert sorted(nc.solvable(part)) == list(range(size))
    assert all((int(alpha[i, m]) * (4 + i - m)) % P == 1 for i in range(4) for m in range(4))


@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_weights_give_unit_vectors_and_exactly_what_is_determined_is_found(K, n, seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, P, (n, K)) * (rng.random((n, K)) < 0.5)
    found = nc.solvable(rows)
    for m, w in found.items():
        assert [sum(int(w[i]) * int(rows[i, c]) for i in range(n)) % P for c in range(K)] == [c == m for c in range(K)]
    # m is determined iff the rows without column m have one rank less
    for m in range(K):
        determined = rank(rows) == rank(np.delete(rows, m, axis=1)) + 1
        assert (m in found) == determined


def rank(rows: np.ndarray) -> int:
    """Over GF(P), by plain elimination."""
    work, found = [[int(v) for v in row] for row in rows], 0
    for c in range(rows.shape[1]):
        at = next((i for i in range(found, len(work)) if work[i][c]), None)
        if at is None:
            continue
        work[found], work[at] = work[at], work[found]
        for i in range(found + 1, len(work)):
            factor = work[i][c] * pow(work[found][c], P - 2, P)
            work[i] = [(v - factor * w) % P for v, w in zip(work[i], work[found], strict=True)]
        found += 1
    return found


def test_with_nothing_received_nothing_is_found():
    assert nc.solvable(np.zeros((0, 3), np.int64)) == {}
    assert nc.solvable(np.zeros((2, 3), np.int64)) == {}
    assert nc.cauchy(0, 3).shape == (0, 3)
