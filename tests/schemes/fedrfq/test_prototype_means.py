"""What servers agree on is exact: the same bytes for any order, on any machine, or no upload at all."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.bft import signing
from emul.primitives.bft.pbft import body_digest
from emul.schemes.fedrfq import prototypes, security_probability
from emul.schemes.fedrfq.prototypes import (
    LIMIT,
    UNIT,
    InvalidUpload,
    Upload,
    filtered_mean,
    from_bytes,
    quantise,
    to_bytes,
)


def upload(vectors: dict[int, object], counts: dict[int, int] | None = None) -> Upload:
    return Upload(quantise({j: np.asarray(v, np.float64) for j, v in vectors.items()}), counts or {})


def drawn(seed: int, clients: int = 20, n: int = 24, shifted: tuple[int, ...] = ()) -> dict[int, Upload]:
    rng = np.random.default_rng(seed)
    centres = rng.random((10, n))
    inputs = {}
    for k in range(clients):
        held = rng.permutation(10)[:int(rng.integers(2, 6))].tolist()
        inputs[k] = upload({j: centres[j] + rng.normal(0, 4 if k in shifted else 0.1, n) for j in held},
                           {j: 10 for j in held})
    return inputs


def test_the_mean_is_over_holders_and_the_printed_rule_divides_twice():
    inputs = {2: upload({0: [1.0, 1.0]}, {0: 5}), 3: upload({0: [3.0, 3.0]}, {0: 5})}
    for rule, expected in (("mean", 2.0), ("weighted", 2.0), ("printed", 1.0)):
        found = filtered_mean(inputs, aggregate=rule).prototypes
        assert prototypes.to_float(found)[0].tolist() == [expected, expected]
    unequal = {2: upload({0: [1.0]}, {0: 1}), 3: upload({0: [3.0]}, {0: 3})}
    assert prototypes.to_float(filtered_mean(unequal, aggregate="weighted").prototypes)[0].tolist() == [2.5]


@given(st.integers(0, 200), st.randoms(use_true_random=False), st.sampled_from(["mean", "weighted", "printed"]))
@settings(max_examples=40)
def test_F_has_the_same_digest_for_any_order_of_clients(seed, random, rule):
    inputs = drawn(seed)
    order = list(inputs)
    random.shuffle(order)
    one = to_bytes(filtered_mean(inputs, 2, aggregate=rule).prototypes)
    other = to_bytes(filtered_mean({k: inputs[k] for k in order}, 2, aggregate=rule).prototypes)
    assert body_digest(one) == body_digest(other)


@given(st.lists(st.lists(st.integers(-LIMIT * UNIT, LIMIT * UNIT), min_size=3, max_size=3),
                min_size=1, max_size=30))
@settings(max_examples=60)
def test_the_mean_is_the_nearest_integer_of_the_true_mean(vectors):
    inputs = {k: Upload({0: np.array(v, np.int32)}, {}) for k, v in enumerate(vectors)}
    found = filtered_mean(inputs).prototypes[0].tolist()
    for place, value in enumerate(found):
        exact = Fraction(sum(v[place] for v in vectors), len(vectors))
        assert abs(value - exact) <= Fraction(1, 2)


def test_the_filter_excludes_exactly_the_two_clients_that_are_shifted():
    for seed in range(20):
        assert filtered_mean(drawn(seed, shifted=(4, 11)), 2).excluded == (4, 11)


def test_ties_of_the_filter_go_to_the_smaller_number_and_a_class_without_holder_is_absent():
    same = {k: upload({0: [1.0], 1: [2.0]}) for k in (5, 3, 9)}
    assert filtered_mean(same, 2).excluded == (3, 5)
    alone = {1: upload({0: [1.0], 7: [50.0]}), 2: upload({0: [1.0]}), 3: upload({0: [-9.0]})}
    found = filtered_mean(alone, 1)
    assert found.excluded == (3,)
    assert list(found.prototypes) == [0, 7]
    assert filtered_mean(alone, 3).prototypes == {}             # nobody is left


def test_the_discrepancy_of_a_client_is_a_mean_over_its_classes():
    inputs = {1: upload({0: [0.0]}), 2: upload({0: [1.0], 1: [0.0], 2: [0.0]}),
              3: upload({1: [0.9], 2: [0.9], 0: [0.5]}), 4: upload({0: [2.0]})}
    assert filtered_mean(inputs, 1).excluded == (4,)


def test_float32_means_differ_by_the_order_of_summation_which_is_why_integers_are_averaged():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((20, 50)).astype(np.float32)
    digests = set()
    for _ in range(100):
        total = np.zeros(50, np.float32)
        for v in vectors[rng.permutation(20)]:
            total += v
        digests.add(body_digest((total / np.float32(20)).tobytes()))
    assert len(digests) > 50


@given(st.dictionaries(st.integers(0, 9), st.lists(st.floats(-64, 64), min_size=3, max_size=3), max_size=6),
       st.booleans())
@settings(max_examples=50)
def test_bytes_and_back(vectors, counted):
    one = upload(vectors, {j: j + 1 for j in vectors} if counted else {})
    body = to_bytes(one.prototypes, one.counts if counted else None)
    back = from_bytes(body, 3, 10, counted)
    assert to_bytes(back.prototypes, back.counts if counted else None) == body
    assert len(body) == len(vectors) * (8 + 12 + 4 * counted)
    for j, v in vectors.items():
        assert np.abs(prototypes.to_float(back.prototypes)[j] - np.array(v)).max() <= 2**-21 + 64 * 2**-24


@pytest.mark.parametrize(("body", "said"), [
    (b"\x00" * 5, r"5 bytes: expected a multiple of 20"),
    (to_bytes(quantise({3: np.zeros(2), 4: np.zeros(4)})), r"class 3: length 2, expected 3"),
    (to_bytes(quantise({1: np.zeros(3)})) * 2, r"class 1 after 1: expected classes below 10, ascending"),
    (to_bytes(quantise({10: np.zeros(3)})), r"class 10 after -1"),
    (to_bytes({1: np.array([0, 1, 64 * 2**20 + 1])}), r"class 1: a value beyond 64"),
    (to_bytes({1: np.array([0, 1, -2**31])}), r"class 1: a value beyond 64")])
def test_what_is_no_canonical_upload_is_refused_for_what_its_bytes_are(body, said):
    with pytest.raises(InvalidUpload, match=said):
        from_bytes(body, 3, 10)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 64.001, -65])
def test_what_has_no_fixed_point_is_no_upload(value):
    with pytest.raises(InvalidUpload, match="class 4"):
        quantise({4: np.array([0.0, value])})


def test_signatures_hold_for_their_statement_and_key_alone():
    secret = bytes(range(32))
    public, told = signing.public_key(secret), b"round 3"
    signature = signing.sign(secret, told)
    assert (len(public), len(signature)) == (signing.KEY_BYTES, signing.SIGNATURE_BYTES)
    assert signing.verify(public, told, signature)
    assert signing.sign(secret, told) == signature
    for wrong in ((public, b"round 2", signature), (signing.public_key(bytes(32)), told, signature),
                  (public, told, b"\x00" * 64), (public, told, b""), (b"", told, signature)):
        assert not signing.verify(*wrong)


TABLE = """
4 7 10 13 16 19 20 21 22 31 40 100
.05 .9860 .9962 .9990 .9997 .9999 1.0000 1.0000 1.0000 1.0000 1.0000 1.0000 1.0000
.10 .9477 .9743 .9872 .9935 .9967 .9983 .9976 .9967 .9991 .9999 1.0000 1.0000
.15 .8905 .9262 .9500 .9658 .9765 .9837 .9781 .9713 .9886 .9961 .9986 1.0000
.20 .8192 .8520 .8791 .9009 .9183 .9324 .9133 .8915 .9439 .9673 .9806 .9993
.25 .7383 .7564 .7759 .7940 .8103 .8251 .7858 .7436 .8385 .8716 .8968 .9724
.30 .6517 .6471 .6496 .6543 .6598 .6655 .6080 .5505 .6713 .6879 .7032 .7793
"""


def test_the_security_probability_is_that_of_the_table():
    head, *lines = TABLE.strip().splitlines()
    for line in lines:
        p, *values = map(float, line.split())
        for n, value in zip(map(int, head.split()), values, strict=True):
            assert round(security_probability(n, p), 4) == value
    with pytest.raises(ValueError, match="expected one server or more and a probability"):
        security_probability(4, 1.5)
