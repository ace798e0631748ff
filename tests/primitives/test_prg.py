import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.primitives.crypto import prg as module
from emul.primitives.crypto.prg import prg, prg_add

SEED = bytes(range(32))


def test_key_stream_is_that_of_nist_sp_800_38a_f_5_5(monkeypatch):
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
                          "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")
    cipher = bytes.fromhex("601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
                           "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6")
    monkeypatch.setattr(module, "_IV", bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"))
    assert prg(key, 16).astype("<u4").tobytes() == bytes(a ^ b for a, b in zip(plain, cipher, strict=True))


def test_first_block_is_aes_of_the_zero_block():      # NIST AESAVS, VarKey256, count 0
    key = bytes.fromhex("80" + 31 * "00")
    assert prg(key, 4).astype("<u4").tobytes().hex() == "e35a6dcb19b201a01ebcfa8aa22b5759"


def test_blocks_count_upwards_across_chunks():
    d = 3 * 65536 + 5                                  # three chunks of 256 KiB and a rest
    stream = prg(SEED, d).astype("<u4").tobytes()
    ecb = Cipher(AES(SEED), ECB()).encryptor()
    for block in (0, 1, 16383, 16384, 49151, 49152):
        assert stream[16 * block:16 * block + 16] == ecb.update(block.to_bytes(16, "big"))
    assert stream[-4:] == ecb.update((49153).to_bytes(16, "big"))[:4]


@given(d=st.sampled_from([0, 1, 3, 4, 5, 65535, 65536, 65537, 131072]), data=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_adding_and_subtracting_a_mask_restores_every_element(d, data):
    out = np.full(d, data, dtype=np.uint32)
    prg_add(out, SEED)
    assert np.array_equal(out, ((prg(SEED, d).astype(np.uint64) + data) % 2**32).astype(np.uint32))
    prg_add(out, SEED, -1)
    assert np.array_equal(out, np.full(d, data, dtype=np.uint32))


def test_a_shorter_mask_is_a_prefix_of_a_longer_one():
    assert np.array_equal(prg(SEED, 70000)[:100], prg(SEED, 100))


@pytest.mark.parametrize(("out", "seed", "sign", "text"), [
    (np.zeros(2, np.int32), SEED, 1, r"^out is int32 of shape \(2,\), expected uint32 or uint64 of shape \(d,\)$"),
    (np.zeros((2, 1), np.uint32), SEED, 1, r"^out is uint32 of shape \(2, 1\), expected uint32 or uint64"),
    (np.zeros(2, np.uint32), SEED[:16], 1, r"^seed has 16 bytes, expected 32$"),
    (np.zeros(2, np.uint32), SEED, 0, r"^sign is 0, expected 1 or -1$"),
])
def test_bad_arguments_are_refused(out, seed, sign, text):
    with pytest.raises(ValueError, match=text):
        prg_add(out, seed, sign)
