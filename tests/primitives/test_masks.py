import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ProtocolViolation
from emul.primitives.crypto.keys import agree, key_pair, mask_seed
from emul.primitives.crypto.masks import add_pair_masks, check_reveal, mask_input, sign, sum_ring, unmask
from emul.primitives.crypto.prg import prg


def pair_seed(i: int, j: int) -> bytes:
    return min(i, j).to_bytes(16, "big") + max(i, j).to_bytes(16, "big")


def self_seed(i: int) -> bytes:
    return b"self" + i.to_bytes(28, "big")


def test_sign_is_plus_for_the_lower_id():
    assert (sign(1, 2), sign(2, 1)) == (1, -1)
    with pytest.raises(ValueError, match=r"^node 3 has no pair mask with itself$"):
        sign(3, 3)


def test_masked_input_equals_its_formula():
    x = np.array([0, 1, 2**32 - 1], dtype=np.uint32)
    seeds = {1: pair_seed(4, 1), 9: pair_seed(4, 9)}
    expected = (x.astype(object) + prg(self_seed(4), 3) - prg(seeds[1], 3).astype(object) + prg(seeds[9], 3)) % 2**32
    before = x.copy()
    assert mask_input(x, 4, self_seed(4), seeds).tolist() == expected.tolist()
    assert np.array_equal(x, before)


def test_pair_masks_of_two_ends_cancel_with_seeds_from_key_agreement():
    a, b = key_pair(bytes(range(32))), key_pair(bytes(range(1, 33)))
    out = np.zeros(5, dtype=np.uint32)
    add_pair_masks(out, 0, {6: mask_seed(agree(a.secret, b.public), 3)})
    assert out.any()
    add_pair_masks(out, 6, {0: mask_seed(agree(b.secret, a.public), 3)})
    assert not out.any()


@st.composite
def rounds(draw):
    """n nodes on a random graph, U2 and U3 within it."""
    n = draw(st.integers(2, 8))
    nodes = list(range(n))
    edges = [(i, j) for i in nodes for j in nodes if i < j and draw(st.integers(0, 3))]
    U2 = [i for i in nodes if draw(st.integers(0, 4))]
    U3 = [i for i in U2 if draw(st.integers(0, 3))]
    return edges, U2, U3, draw(st.integers(0, 2**32))


@given(rounds())
@settings(max_examples=60, deadline=None)
def test_unmasked_sum_is_the_plain_sum_over_u3(case):
    edges, U2, U3, seed = case
    d = 7
    N = {i: {a + b - i for a, b in edges if i in (a, b)} for i in U2}
    x = {i: np.random.default_rng([seed, i]).integers(0, 2**32, d, dtype=np.uint32) for i in U2}
    y = {i: mask_input(x[i], i, self_seed(i), {j: pair_seed(i, j) for j in N[i] & set(U2)}) for i in U2}
    total = sum_ring([y[i] for i in U3], d)
    dropped = {j: {i: pair_seed(i, j) for i in N[j] & set(U3)} for j in set(U2) - set(U3)}
    expansions = unmask(total, {i: self_seed(i) for i in U3}, dropped)
    assert total.tolist() == (sum(x[i].astype(object) for i in U3) % 2**32 if U3 else np.zeros(d, int)).tolist()
    assert expansions == len(U3) + sum(1 for a, b in edges if (a in U3 and b in dropped) or (b in U3 and a in dropped))


def test_without_its_self_mask_a_late_input_could_be_read():      # why b_j is never asked for a late y_j
    x = np.arange(6, dtype=np.uint32)
    seeds = {j: pair_seed(2, j) for j in (0, 1, 3)}
    y = mask_input(x, 2, self_seed(2), seeds)
    with_key_only = y.copy()
    for j, seed in seeds.items():
        add_pair_masks(with_key_only, j, {2: seed})
    assert not np.array_equal(with_key_only, x)
    unmask(with_key_only, {2: self_seed(2)}, {})
    assert np.array_equal(with_key_only, x)


@pytest.mark.parametrize(("survivors", "dropped", "text"), [
    ([1, 2], [2, 3], r"^inconsistent_sets: both secrets asked for nodes \[2\]$"),
    ([1, 7], [3], r"^inconsistent_sets: secrets asked for nodes \[7\], which are not in U2$"),
    ([1, 2], [9, 8], r"^inconsistent_sets: secrets asked for nodes \[8, 9\], which are not in U2$"),
])
def test_secagg_check_a6_a_request_for_too_much_is_refused(survivors, dropped, text):
    with pytest.raises(ProtocolViolation, match=text):
        check_reveal([1, 2, 3, 4], survivors, dropped)


def test_a_consistent_request_passes():
    check_reveal([1, 2, 3, 4], survivors=[1, 2], dropped=[3])
