import math
import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.schemes.fair_seccogc.gradient_coding import (
    amplification,
    column_support,
    cyclic_mds,
    decode,
    decode_rowspace,
    fractional,
    predicted_error,
    row_support,
    support,
    tandon,
)
from emul.schemes.fair_seccogc.secure_keys import fair_cyclic

THREES = [list(F) for F in combinations(range(10), 3)]


def worst(G: np.ndarray, size: int) -> float:
    sets = [list(F) for F in combinations(range(G.shape[0]), size)]
    return max(amplification(G, F, decode(G, F)) for F in sets)


def needed_by(K: int, s: int, k: int) -> list[int]:
    """V_k = {k - s, .., k} mod K, in this order: which relays of a cyclic code need the update of k, itself last."""
    return [(k - s + i) % K for i in range(s + 1)]


def test_supports_by_hand():
    assert support(5, 2, 3) == [3, 4, 0]
    assert needed_by(5, 2, 1) == [4, 0, 1]
    assert support(4, 0, 2) == needed_by(4, 0, 2) == [2]


@given(st.integers(1, 12).flatmap(lambda K: st.tuples(st.just(K), st.integers(0, K - 1))))
def test_k_needs_m_iff_m_is_needed_by_k(case):
    K, s = case
    for k in range(K):
        assert support(K, s, k)[0] == needed_by(K, s, k)[-1] == k
        assert {m for m in range(K) if k in support(K, s, m)} == set(needed_by(K, s, k))


def test_seccogc_check_1_tandon():
    for seed in range(100):
        G = tandon(10, 7, np.random.default_rng(seed))
        assert (np.count_nonzero(G, axis=1) == 8).all()
        assert (np.diag(G) == 1).all()
        assert all(set(row_support(G, k)) == set(support(10, 7, k)) for k in range(10))
        assert np.linalg.matrix_rank(G, tol=1e-9) == 3
        for F in THREES if seed < 10 else THREES[seed % 7::7]:
            b = decode(G, F)
            assert b is not None
            assert np.abs(G[F].T @ b - 1).max() <= 1e-9
        if seed < 10:
            for F in combinations(range(10), 2):        # not even by least squares without the count
                b = np.linalg.lstsq(G[list(F)].T, np.ones(10), rcond=None)[0]
                assert np.abs(G[list(F)].T @ b - 1).max() > 1e-6
                assert decode(G, list(F)) is None


def test_seccogc_check_2_code_of_figure_1():
    G = np.array([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
    for rows, b in [([0, 1], [2, -1]), ([0, 2], [1, 1]), ([1, 2], [1, 2]), ([1, 0], [-1, 2])]:
        assert decode(G, rows) == pytest.approx(b, abs=1e-12)
    assert decode(G, [0]) is None
    assert decode(G, []) is None


def test_seccogc_check_3_cyclic_mds():
    G = cyclic_mds(10, 7)
    assert G[0] == pytest.approx([0.190983, 0.5, 0.809017, 1, 1, 0.809017, 0.5, 0.190983, 0, 0], abs=5e-7)
    assert all((G[k] == np.roll(G[0], k)).all() for k in range(10))
    assert np.linalg.matrix_rank(G) == 3
    assert decode(G, [0, 1, 2]) == pytest.approx([5.236068, -8.472136, 5.236068], abs=5e-7)
    assert decode(G, [0, 3, 6]) == pytest.approx([0.763932, 0.472136, 0.763932], abs=5e-7)
    assert worst(G, 3) == pytest.approx(22.2, abs=0.05)
    assert cyclic_mds(5, 2)[0] == pytest.approx([0.618034, 1, 0.618034, 0, 0], abs=5e-7)


@given(st.integers(1, 9).flatmap(lambda K: st.tuples(st.just(K), st.integers(0, K - 1))))
@settings(max_examples=25, deadline=None)
def test_any_k_minus_s_rows_decode_the_exact_sum(case):
    K, s = case
    x = np.random.default_rng(3).integers(-9, 9, (K, 4)).astype(float)
    codes = [tandon(K, s, np.random.default_rng(4), screen=3)]
    codes += [cyclic_mds(K, s)] if (K - s) % 2 else []
    codes += [fractional(K, s)] if K % (s + 1) == 0 else []
    for G in codes:
        assert (np.count_nonzero(G, axis=1) == s + 1).all()
        assert (np.diag(G) > 0).all()
        for F in combinations(range(K), K - s):
            b = decode(G, list(F))
            assert b is not None
            assert b @ (G @ x)[list(F)] == pytest.approx(x.sum(axis=0), abs=1e-6)


def test_extremes_are_identity_and_all_ones():
    assert (tandon(4, 0, np.random.default_rng(0)) == np.eye(4)).all()
    assert (tandon(4, 3, np.random.default_rng(0)) == np.ones((4, 4))).all()
    assert (cyclic_mds(4, 3) == np.ones((4, 4))).all()
    assert cyclic_mds(5, 0) == pytest.approx(np.eye(5))
    assert (fractional(4, 3) == np.ones((4, 4))).all()


def test_fractional_repeats_blocks():
    G = fractional(6, 2)
    assert [row_support(G, k) for k in range(6)] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3
    assert [column_support(G, k) for k in range(6)] == [[0, 1, 2]] * 3 + [[3, 4, 5]] * 3
    assert decode(G, [0, 4, 1, 5]) == pytest.approx([0.5] * 4)          # all that came, equally

    assert decode(G, [0, 3]) is None            # would do, but the rule is one for all codes: at least K - s rows


def test_screening_keeps_the_draw_with_the_smallest_worst_amplification():
    draws = [worst(tandon(10, 7, rng), 3) for rng in [np.random.default_rng(5)] for _ in range(20)]
    screened = worst(tandon(10, 7, np.random.default_rng(5), screen=20), 3)
    assert screened == pytest.approx(min(draws), rel=1e-6)
    assert screened < 300 < np.median(draws)


def test_more_rows_than_needed_damp_the_amplification():
    G = cyclic_mds(10, 7)
    few, many = [0, 1, 2], [0, 1, 2, 5, 7]
    assert amplification(G, many, decode(G, many)) < amplification(G, few, decode(G, few))


def test_amplification_by_hand_and_independent_of_the_scale_of_rows():
    G = np.array([[0.5, 1, 0], [0, 1, -1], [0.5, 0, 1]])
    assert amplification(G, [0, 1], np.array([2.0, -1.0])) == pytest.approx(math.sqrt(4 * 1.25 + 2))
    scaled = G * np.array([[3.0], [-0.1], [1.0]])
    assert amplification(scaled, [0, 1], decode(scaled, [0, 1])) == pytest.approx(math.sqrt(7))


def test_a_float32_rounded_code_decodes_with_a_larger_rcond():
    G = tandon(10, 7, np.random.default_rng(6), screen=20).astype(np.float32).astype(np.float64)
    rows = list(range(10))
    assert np.linalg.matrix_rank(G, tol=1e-12) > 3       # rounding has filled the kernel
    b = decode(G, rows, rcond=1e-6)
    assert b is not None
    assert np.abs(b).max() < 10


@pytest.mark.parametrize(("code", "lambda_", "limit"), [
    (cyclic_mds(10, 7), 0.1, 2e-7), (cyclic_mds(10, 7), 100.0, 2e-4),
    (tandon(10, 7, np.random.default_rng(7), screen=20), 0.1, 1e-6)])
def test_seccogc_check_9_masked_sums_in_float32_decode_to_the_mean(code, lambda_, limit):
    K, D = 10, 2000
    rng = np.random.default_rng(8)
    updates = rng.normal(0, 0.01, (K, D)).astype(np.float32)
    keys = fair_cyclic(K, K - 1, lambda_) @ rng.standard_normal((K, D))
    masked = (updates + keys).astype(np.float32)
    sums = (code @ masked.astype(np.float64)).astype(np.float32)
    mean = updates.astype(np.float64).mean(axis=0)
    errors = [np.abs(decode(code, F) @ sums[F].astype(np.float64) / K - mean).max() for F in THREES]
    assert max(errors) <= limit
    assert (masked.astype(np.float64) - updates).std() == pytest.approx(lambda_, rel=0.02)


@pytest.mark.parametrize(("make", "text"), [
    (lambda: cyclic_mds(10, 6), "cyclic_mds needs K - s odd, got K = 10, s = 6; use s = 7"),
    (lambda: cyclic_mds(0, 0), "K is 0, expected at least 1 node"),
    (lambda: cyclic_mds(5, 5), "s is 5, expected 0..4 for K = 5"),
    (lambda: tandon(5, -1, np.random.default_rng(0)), "s is -1, expected 0..4 for K = 5"),
    (lambda: tandon(5, 2, np.random.default_rng(0), screen=0), "screen is 0, expected at least 1 draw"),
    (lambda: fractional(10, 5), "fractional needs K divisible by s + 1, got K = 10, s = 5; use s = 9"),
    (lambda: fractional(10, 2), "fractional needs K divisible by s + 1, got K = 10, s = 2; use s = 4"),
    (lambda: support(3, 3, 0), "s is 3, expected 0..2 for K = 3"),
    (lambda: decode(np.eye(3), [0, 1, 1]), "a row is named twice: [0, 1, 1]"),
    (lambda: decode(np.eye(3), [0, 3]), "rows [0, 3], expected numbers in 0..2"),
])
def test_bad_parameters_are_refused(make, text):
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        make()


# --- the rowspace decoder, and predicted errors ---------------------------------------------------------------------

def test_the_rowspace_decoder_uses_sums_that_lack_an_update():
    G = cyclic_mds(5, 2)
    received = G[[0, 1, 2]].copy()
    received[2, 4] = 0.0                                            # relay 2 has not heard client 4
    assert decode_rowspace(received) is None
    # sums that lack the same update give it back if it comes alone
    alone = np.vstack([received, np.eye(5)[4]])
    b = decode_rowspace(alone)
    assert b @ alone == pytest.approx(np.ones(5))
    assert decode_rowspace(np.zeros((0, 5))) is None


@pytest.mark.parametrize(("code", "complete", "rowspace"), [("tandon", 0.287, 0.218), ("cyclic_mds", 0.291, 0.198)])
def test_failure_rates_of_both_decoders(code, complete, rowspace):
    """4000 rounds of the symmetric network; standard deviation of a rate below 0.0075."""
    rng = np.random.default_rng(11)
    G = cyclic_mds(10, 7) if code == "cyclic_mds" else tandon(10, 7, rng, screen=20)
    failed = np.zeros(2)
    rounds = 1500
    for _ in range(rounds):
        heard = np.where(np.eye(10) > 0, True, rng.random((10, 10)) < 0.9)
        up = rng.random(10) < 0.7
        rows = np.flatnonzero(up & (heard | (G == 0)).all(axis=1)).tolist()
        failed += decode(G, rows) is None, decode_rowspace((G * heard)[up]) is None
    assert failed / rounds == pytest.approx([complete, rowspace], abs=0.04)


@pytest.mark.parametrize(("K", "s", "code"), [(10, 7, "cyclic_mds"), (10, 7, "tandon"), (50, 25, "tandon"),
                                              (100, 50, "tandon"), (100, 49, "fractional")])
def test_the_error_of_float32_sums_is_predicted(K, s, code):
    """An upper bound of the root mean square, within a factor of 5; fractional stays below 1e-6 at K = 100."""
    rng = np.random.default_rng(K)
    G = {"cyclic_mds": lambda: cyclic_mds(K, s), "fractional": lambda: fractional(K, s),
         "tandon": lambda: tandon(K, s, rng, screen=3)}[code]()
    for size in (K - s, K - s, K - s + 1, K):
        updates = rng.normal(0, 0.01, (K, 300)).astype(np.float32)
        keys = fair_cyclic(K, K - 1, 0.1) @ rng.standard_normal((K, 300))
        sums = (G @ (updates + keys).astype(np.float32).astype(np.float64)).astype(np.float32).astype(np.float64)
        F = sorted(rng.permutation(K)[:size].tolist())
        b = decode(G, F)
        if b is None:
            assert code == "fractional"
            continue
        error = b @ sums[F] / K - updates.astype(np.float64).mean(axis=0)
        sizes = np.sqrt((sums[F] ** 2).mean(axis=1))
        predicted = predicted_error(G[F], b, sizes)
        rms = float(np.sqrt((error**2).mean()))
        assert rms <= predicted <= 5 * rms
        # and the amplification that is reported bounds the largest error: 1e-8 amp lambda is far above it at K = 100
        assert np.abs(error).max() <= 1e-8 * amplification(G, F, b) * 0.1 + 1e-8
        if code == "fractional":
            assert np.abs(error).max() <= 1e-6


@given(st.integers(0, 2**32), st.integers(0, 10))
@settings(max_examples=25, deadline=None)
def test_the_server_recovers_nothing_but_the_sum(seed, missing):
    """What the server receives of a round without losses, complete sums of masked updates: the only combinations of
    updates that are free of keys are multiples of the sum."""
    rng = np.random.default_rng(seed)
    K, s = [(5, 2), (6, 3), (7, 4)][seed % 3]
    for G in (cyclic_mds(K, s), tandon(K, s, rng)):
        A = fair_cyclic(K, 1 + seed % (K - 1), 1.0)
        F = sorted(rng.permutation(K)[:max(1, K - missing)].tolist())
        noise = G[F] @ A                                            # (|F|, K): keys in what was received
        free = np.linalg.svd(noise.T)[2][np.linalg.matrix_rank(noise, tol=1e-9):]       # combinations without keys
        rows = free @ G[F]                                          # what they tell of the updates
        rank = np.linalg.matrix_rank(rows, tol=1e-9)
        assert rank <= 1
        if rank:
            row = rows[np.abs(rows).max(axis=1).argmax()]
            assert row / row[0] == pytest.approx(np.ones(K), abs=1e-6)
            assert len(F) >= K - s


@given(st.integers(2, 7).flatmap(lambda K: st.tuples(st.just(K), st.integers(0, K - 1))))
@settings(max_examples=15, deadline=None)
def test_every_pattern_of_up_to_s_missing_rows_is_decoded(case):
    K, s = case
    x = np.random.default_rng(1).integers(-9, 9, (K, 2)).astype(float)
    for G in [tandon(K, s, np.random.default_rng(2), screen=3), *([cyclic_mds(K, s)] if (K - s) % 2 else []),
              *([fractional(K, s)] if K % (s + 1) == 0 else [])]:
        for missing in range(s + 1):
            for lost in combinations(range(K), missing):
                F = [k for k in range(K) if k not in lost]
                assert decode(G, F) @ (G @ x)[F] == pytest.approx(x.sum(axis=0), abs=1e-6)
