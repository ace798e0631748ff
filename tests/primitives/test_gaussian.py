import hashlib
import math
from statistics import NormalDist

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from emul.primitives.crypto import gaussian as module
from emul.primitives.crypto.gaussian import gaussian, pairwise_key
from emul.schemes.fair_seccogc.secure_keys import pairwise

SEED = bytes(range(32))


def test_elements_are_the_inverse_normal_of_the_chacha20_stream():
    d = module._BLOCK + 50                                  # into the second block
    stream = Cipher(ChaCha20(SEED, bytes(16)), mode=None).encryptor().update(bytes(8 * d))
    words = [int.from_bytes(stream[8 * i:8 * i + 8], "little") >> 11 for i in range(d)]
    uniform = [(2 * w + 1) / 2**54 for w in words]
    expected = [NormalDist().inv_cdf(u) for u in uniform]
    assert gaussian(SEED, d) == pytest.approx(expected, rel=1e-12, abs=1e-15)    # u near 1 is rounded, 1 - u is not


def test_first_key_stream_bytes_are_those_of_the_known_vector():      # zero key, zero nonce, block 0 (RFC 8439, A.1)
    words = np.frombuffer(bytes.fromhex("76b8e0ada0f13d90405d6ae55386bd28"), dtype="<u8")
    uniform = [((int(w) >> 11) + 0.5) / 2**53 for w in words]
    assert gaussian(bytes(32), 2) == pytest.approx([NormalDist().inv_cdf(u) for u in uniform], rel=1e-13)


def test_a_shorter_vector_is_a_prefix_and_a_second_call_is_bit_identical():
    long = gaussian(SEED, 3 * module._BLOCK + 1)
    for d in (0, 1, 7, module._BLOCK, module._BLOCK + 1):
        assert gaussian(SEED, d).tobytes() == long[:d].tobytes()
    assert long.dtype == np.float64


def test_the_transform_is_fixed_for_all_machines():
    """Digest of the bits: only operations that IEEE 754 rounds in one way, so it holds on every processor."""
    digest = hashlib.sha256(gaussian(SEED, 20000).astype("<f8").tobytes()).hexdigest()
    assert digest == "d35673afcf4c3341ea62a491d3649491ed5a16f2e4ba02a2f9ed806fb8f1b6d2"


def test_extreme_words_give_finite_values_of_both_signs():
    words = np.array([0, 2**64 - 1, 2**63, 2**63 - 1, 2**11, 2**30], dtype=np.uint64)
    z = module._inverse_normal(module._centred_uniform(words))
    assert np.isfinite(z).all()
    assert z[0] == -z[1] == pytest.approx(-8.29236, abs=1e-5)      # Phi^-1(2^-54)
    assert z[2] == -z[3] > 0
    assert z[4] == pytest.approx(NormalDist().inv_cdf(1.5 * 2**-53), rel=1e-13)
    assert z[5] == pytest.approx(NormalDist().inv_cdf((2**19 + 0.5) * 2**-53), rel=1e-13)


def test_logarithm_agrees_with_the_library():
    p = 2.0 ** np.linspace(-54, -0.01, 5000)
    assert module._log(p.copy()) == pytest.approx(np.log(p), rel=1e-15)


def test_moments_and_tails_are_those_of_a_normal():
    n = 400_000
    z = gaussian(SEED, n)
    assert abs(z.mean()) < 4 / math.sqrt(n)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / n)
    assert abs((z**4).mean() - 3) < 4 * math.sqrt(96 / n)
    for x in (-2.0, -0.5, 0.0, 1.0, 3.0):
        p = NormalDist().cdf(x)
        assert abs((z < x).mean() - p) < 4 * math.sqrt(p * (1 - p) / n)
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 4 / math.sqrt(n)
    other = gaussian(bytes(32), n)
    assert abs(np.corrcoef(z, other)[0, 1]) < 4 / math.sqrt(n)


def test_a_seed_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"^seed has 31 bytes, expected 32$"):
        gaussian(SEED[:31], 3)


def seeds_of(k: int, K: int) -> dict[int, bytes]:
    return {j: hashlib.sha256(bytes(sorted((j, k)))).digest() for j in range(K) if j != k}


def test_pairwise_keys_are_the_rows_of_the_pairwise_matrix_and_cancel():
    K, d, lambda_ = 6, 50, 0.1
    keys = np.stack([pairwise_key(k, seeds_of(k, K), d, lambda_ / math.sqrt(K - 1)) for k in range(K)])
    Z = np.stack([gaussian(seeds_of(i, K)[j], d) for i in range(K) for j in range(i + 1, K)])
    assert keys == pytest.approx(pairwise(K, lambda_) @ Z, abs=1e-15)
    assert np.abs(keys.sum(axis=0)).max() < 1e-15
    assert keys[0].std() == pytest.approx(lambda_, rel=0.4)


def test_two_nodes_alone_have_exactly_opposite_keys():
    seed = {1: SEED}
    assert (pairwise_key(0, seed, 9, 0.3) == -pairwise_key(1, {0: SEED}, 9, 0.3)).all()


def test_the_order_in_which_seeds_are_given_changes_no_bit():
    seeds = seeds_of(2, 6)
    backwards = dict(reversed(seeds.items()))
    assert pairwise_key(2, seeds, 20, 0.1).tobytes() == pairwise_key(2, backwards, 20, 0.1).tobytes()


def test_a_key_with_oneself_is_refused():
    with pytest.raises(ValueError, match=r"^node 2 has no pairwise key with itself$"):
        pairwise_key(2, {2: SEED}, 4, 1.0)
