import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ProtocolViolation
from emul.primitives.crypto.keys import SEAL_OVERHEAD_BYTES, agree, channel_key, key_pair, mask_seed, seal, unseal

KEY = bytes(range(32))
u32 = st.integers(0, 2**32 - 1)


def test_rfc_7748_section_5_2_first_vector():
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    assert agree(scalar, point).hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


def test_rfc_7748_section_6_1():
    alice_public = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    bob = key_pair(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    assert agree(bob.secret, alice_public).hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


@given(a=st.binary(min_size=32, max_size=32), b=st.binary(min_size=32, max_size=32))
@settings(max_examples=20)
def test_both_ends_agree(a, b):
    assert agree(a, key_pair(b).public) == agree(b, key_pair(a).public)


def test_derived_keys_differ_by_purpose_and_round():
    keys = [channel_key(KEY), mask_seed(KEY, 1), mask_seed(KEY, 2), mask_seed(bytes(32), 1), KEY]
    assert len(set(keys)) == 5
    assert all(len(key) == 32 for key in keys)


def test_channel_key_is_rfc_5869_with_an_empty_salt():
    import hashlib
    import hmac

    extracted = hmac.digest(bytes(32), KEY, hashlib.sha256)
    assert channel_key(KEY) == hmac.digest(extracted, b"enc\x01", hashlib.sha256)
    assert mask_seed(KEY, 258) == hmac.digest(extracted, b"mask\x02\x01\x00\x00\x01", hashlib.sha256)


def test_a_secret_key_is_not_printed():
    assert repr(key_pair(KEY)).startswith("KeyPair(public=")


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little")])
def test_a_public_key_of_low_order_is_refused(public):
    with pytest.raises(ProtocolViolation, match=r"^public key is a point of low order$"):
        agree(KEY, public)


def test_keys_of_a_wrong_length_are_refused():
    with pytest.raises(ProtocolViolation, match=r"^public key has 31 bytes, expected 32$"):
        agree(KEY, bytes(31))
    with pytest.raises(ValueError, match=r"^secret key has 33 bytes, expected 32$"):
        key_pair(bytes(33))
    with pytest.raises(ValueError, match=r"^secret key has 0 bytes, expected 32$"):
        agree(b"", key_pair(KEY).public)


@given(src=u32, dst=u32, counter=u32, round=u32, plaintext=st.binary(max_size=200))
def test_a_sealed_text_opens_and_is_16_bytes_longer(src, dst, counter, round, plaintext):
    sealed = seal(KEY, src, dst, counter, round, plaintext)
    assert len(sealed) == len(plaintext) + SEAL_OVERHEAD_BYTES == len(plaintext) + 16
    assert unseal(KEY, src, dst, counter, round, sealed) == plaintext


@given(position=st.integers(0, 8 * 80 - 1))
def test_any_changed_bit_is_noticed(position):
    sealed = bytearray(seal(KEY, 3, 7, 0, 2, bytes(64)))
    sealed[position // 8] ^= 1 << position % 8
    with pytest.raises(ProtocolViolation, match=r"^bad ciphertext from node 3 to node 7 \(counter 0, round 2\)$"):
        unseal(KEY, 3, 7, 0, 2, bytes(sealed))


@pytest.mark.parametrize("numbers", [(7, 3, 0, 2), (3, 8, 0, 2), (3, 7, 1, 2), (3, 7, 0, 3)])
def test_another_sender_receiver_counter_or_round_does_not_open(numbers):
    with pytest.raises(ProtocolViolation, match=r"^bad ciphertext from node "):
        unseal(KEY, *numbers, seal(KEY, 3, 7, 0, 2, b"share"))


@pytest.mark.parametrize("length", [0, 15, 16])
def test_a_truncated_ciphertext_does_not_open(length):
    with pytest.raises(ProtocolViolation, match=r"^bad ciphertext from node 3 to node 7 "):
        unseal(KEY, 3, 7, 0, 2, seal(KEY, 3, 7, 0, 2, b"share")[:length])


def test_both_directions_encrypt_differently():
    assert seal(KEY, 3, 7, 0, 2, bytes(32))[:32] != seal(KEY, 7, 3, 0, 2, bytes(32))[:32]
