"""Codecs: what they make of vectors, their bytes by formula, their means, and codes that nobody has made."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base.errors import NotSendable
from emul.primitives.compress import CODECS, Codec, Undecodable, choose, planes
from emul.primitives.compress.codec import Reader, joined
from emul.primitives.compress.sparse import largest

WRITTEN: list[Any] = [{"top_k": {"k": 7}}, {"top_k": {"fraction": 0.05}}, {"random_k": {"k": 9}},
                      {"random_k": {"fraction": 0.1, "feedback": False}}, "uniform", {"uniform": {"bits": 4}},
                      {"uniform": {"bits": 11, "bucket": 32, "rounding": "nearest"}}, "qsgd",
                      {"qsgd": {"levels": 300, "bucket": 16}}, "fedpaq", {"fedpaq": {"levels": 5, "bucket": 50}},
                      "sign", {"sign": {"scale": "none", "feedback": False}}, "powersgd", {"powersgd": {"rank": 1}},
                      {"top_k": {"k": 5, "chunk": 32}}, {"top_k": {"fraction": 0.1, "chunk": 50, "bits": 2}},
                      "bf16", "int8", {"int8": {"sigmas": 0.5}}, "e3m0", {"e3m0": {"bucket": 16}}]
SHAPES = ((10, 12), (10,), (4, 3, 3), (4,))         # 170 numbers, two tensors of which are matrices
D = 170


def vector(d: int = D, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(d).astype(np.float32)


def codec_of(written: Any) -> Codec:
    return choose(written).shaped(SHAPES)


def there_and_back(codec: Codec, x: np.ndarray, seed: int = 0) -> tuple[int, np.ndarray]:
    code, _ = codec.encode(x.copy(), np.random.default_rng(seed))
    assert code.dtype == np.uint8
    return len(code), codec.decode(code, len(x))


def test_every_codec_is_tried() -> None:
    assert {w if isinstance(w, str) else next(iter(w)) for w in WRITTEN} == set(CODECS)


# --- bytes ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("written", "expected"), [
    ({"top_k": {"k": 7}}, 4 * 7 + 8 * 1),                       # ceil(log2 170) = 8 planes of ceil(7 / 8) bytes
    ({"top_k": {"fraction": 0.05}}, 4 * 9 + 8 * 2),
    ({"random_k": {"k": 9}}, 4 * 9 + 8),
    ("uniform", 8 + 8 * 22),                                    # ceil(170 / 8) = 22
    ({"uniform": {"bits": 4}}, 8 + 4 * 22),
    ({"uniform": {"bits": 4, "bucket": 32}}, 8 * 6 + 4 * 22),
    ("fedpaq", 4 + 2 * 22),
    ({"fedpaq": {"levels": 5, "bucket": 50}}, 4 * 4 + 4 * 22),
    ("sign", 4 + 22),
    ({"sign": {"scale": "none", "feedback": False}}, 22),
    ("powersgd", 4 * (2 * (10 + 12) + 10 + 2 * (4 + 9) + 4)),
    ({"powersgd": {"rank": 1}}, 4 * (22 + 10 + 13 + 4)),
    ({"top_k": {"k": 5, "chunk": 32}}, 4 * 30 + 5 * 4),         # 6 chunks, places below 32, ceil(30 / 8) = 4
    ({"top_k": {"k": 12, "chunk": 32}}, 4 * 70 + 5 * 9),        # the last chunk has 10 numbers, all of which go
    ({"top_k": {"fraction": 0.1, "chunk": 50, "bits": 2}}, 4 * 2 * 4 + (2 + 6) * 3),    # 5 + 5 + 5 + 2 of 4 chunks
    ({"top_k": {"k": 7, "bits": 1}}, 4 + (1 + 8) * 1),
    ("bf16", 2 * 170),
    ("int8", 4 * 256 + 170),
    ("e3m0", 4 + 4 * 22),
    ({"e3m0": {"bucket": 16}}, 4 * 11 + 4 * 22),
])
def test_the_bytes_of_a_code_are_those_of_the_formula(written: Any, expected: int) -> None:
    codec = codec_of(written)
    assert there_and_back(codec, vector())[0] == codec.nbytes(D) == expected


def test_sparselocos_values_take_14_bits_each_and_a_table_a_chunk() -> None:
    """253 chunks of 4096 for the model of 1,035,008 numbers, of which 64 each are sent."""
    codec = choose({"top_k": {"k": 64, "chunk": 4096, "bits": 2}})
    assert codec.nbytes(1_035_008) == 253 * 64 * 14 // 8 + 253 * 8 == 28_336 + 2_024


def gamma_bytes(values: Iterable[int]) -> int:
    """Length of `planes.gamma` of them, added up number by number."""
    lengths = [int(v).bit_length() - 1 for v in values]
    return 1 + sum(-(-sum(n >= j - 1 for n in lengths) // 8) + -(-sum(n >= j for n in lengths) // 8)
                   for j in range(1, max(lengths, default=0) + 1))


@pytest.mark.parametrize(("levels", "bucket"), [(1, None), (16, None), (16, 16), (500, 8)])
def test_the_bytes_of_qsgd_are_those_of_the_gamma_codes_of_gaps_and_levels(levels: int, bucket: int | None) -> None:
    x, codec = vector(), choose({"qsgd": {"levels": levels, "bucket": bucket}})
    size, decoded = there_and_back(codec, x)
    norm = np.concatenate([np.full(len(part), np.linalg.norm(part)) for part in
                           np.split(x, range(bucket, D, bucket) if bucket else [])])
    level = np.rint(np.abs(decoded) / norm * levels).astype(int)
    at = np.flatnonzero(level)
    assert codec.nbytes(D) is None
    assert size == (4 * (-(-D // (bucket or D))) + 4 + gamma_bytes(np.diff(at, prepend=-1))
                    + gamma_bytes(level[at]) + -(-len(at) // 8))


# --- planes -----------------------------------------------------------------------------------------------------------

@given(st.lists(st.integers(1, 2**31), max_size=60))
def test_gamma_codes_come_back_and_have_the_length_of_eliass(values: list[int]) -> None:
    given_, code = np.array(values, np.uint32), planes.gamma(np.array(values, np.uint32))
    reader = Reader(code)
    assert planes.ungamma(reader, len(values)).tolist() == given_.tolist()
    reader.end()
    assert len(code) == gamma_bytes(given_)
    elias = sum(2 * (v.bit_length() - 1) + 1 for v in values)       # bits of the code as a chain
    most = max((v.bit_length() - 1 for v in values), default=0)
    assert 8 * len(code) <= elias + 8 + 2 * most * 7       # a byte of planes, each plane to whole bytes


@given(st.integers(0, 17), st.data())
def test_numbers_of_fixed_width_come_back(bits: int, data: st.DataObject) -> None:
    values = np.array(data.draw(st.lists(st.integers(0, (1 << bits) - 1), max_size=40)), np.uint32)
    code = planes.pack(values, bits)
    assert len(code) == bits * -(-len(values) // 8)
    assert planes.unpack(Reader(code), len(values), bits).tolist() == values.tolist()


# --- values -----------------------------------------------------------------------------------------------------------

@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 40))
def test_the_largest_are_those_of_a_sort_ties_to_the_first(values: list[int], k: int) -> None:
    x = np.array(values, np.float32)
    expected = sorted(sorted(range(len(x)), key=lambda i: (-abs(values[i]), i))[:k])
    assert largest(x, k).tolist() == expected


def test_top_k_of_all_gives_the_vector_to_the_bit() -> None:
    x = vector()
    assert there_and_back(choose({"top_k": {"fraction": 1.0}}), x)[1].tobytes() == x.tobytes()


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 20),
       st.sampled_from([1, 2, 3, 32]))
def test_chunked_top_k_is_that_of_a_sort_of_each_chunk(values: list[int], k: int, chunk: int, bits: int) -> None:
    """The oracle goes number by number: sorts a chunk, and averages the sizes of each bin."""
    expected = [0.0] * len(values)
    for start in range(0, len(values), chunk):
        part = values[start:start + chunk]
        sent = sorted(range(len(part)), key=lambda i: (-abs(part[i]), i))[:k]
        sizes, bins = [abs(part[i]) for i in sent], 1 << (bits - 1)
        low, spread = min(sizes), max(sizes) - min(sizes)
        bin_of = [min(bins - 1, (size - low) * bins // spread) if spread else 0 for size in sizes]
        for i, size, b in zip(sent, sizes, bin_of, strict=True):
            alike = [s for s, other in zip(sizes, bin_of, strict=True) if other == b]
            expected[start + i] = math.copysign(size if bits == 32 else sum(alike) / len(alike), part[i])
    codec = choose({"top_k": {"k": k, "chunk": chunk, "bits": bits}})
    size, found = there_and_back(codec, np.array(values, np.float32))
    assert size == codec.nbytes(len(values))
    assert found.tolist() == np.array(expected, np.float32).tolist()


def test_chunks_of_all_numbers_are_no_chunks() -> None:
    x = vector()
    whole, chunked = (choose({"top_k": {"k": 9, **more}}).encode(x, np.random.default_rng(0))[0]
                      for more in ({}, {"chunk": D}))
    assert whole.tobytes() == chunked.tobytes()


FLOATS = st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40)


@given(FLOATS)
def test_bf16_rounds_as_torch_does_and_stays_finite(values: list[float]) -> None:
    import torch

    x = np.array(values, np.float32)
    found, expected = there_and_back(choose("bf16"), x)[1], torch.from_numpy(x).bfloat16().float().numpy()
    most = np.float32(torch.finfo(torch.bfloat16).max)
    assert found.tobytes() == np.clip(expected, -most, most).tobytes()
    ordinary = np.abs(x) >= np.float32(2.0**-126)
    assert (np.abs(found.astype(np.float64) - x) <= np.where(ordinary, 2.0**-8 * np.abs(x.astype(np.float64)),
                                                             2.0**-134)).all()


@given(FLOATS, st.sampled_from([0.25, 3.0, 6.0]))
def test_int8_gives_the_mean_of_each_bin_and_keeps_the_sum(values: list[float], sigmas: float) -> None:
    """The oracle goes number by number, in Python's floats."""
    x = np.array(values, np.float32)
    wide = [float(v) for v in x]
    centre = float(np.mean(x.astype(np.float64)))
    width = 2 * sigmas * math.sqrt(float(np.mean(np.square(x.astype(np.float64) - centre)))) / 256
    found = there_and_back(choose({"int8": {"sigmas": sigmas}}), x)[1].astype(np.float64)
    size = float(np.abs(x.astype(np.float64)).max())
    assert math.isclose(found.sum(), sum(wide), rel_tol=1e-6, abs_tol=len(x) * (1e-6 * size + 1e-44))
    for value, decoded in zip(wide, found, strict=True):
        at = min(127, max(-128, round((value - centre) / width))) if width else 0
        alike = [v for v, other in zip(wide, found, strict=True) if other == decoded]
        assert math.isclose(decoded, sum(alike) / len(alike), rel_tol=1e-6, abs_tol=1e-6 * size + 1e-44)
        if -128 < at < 127:
            assert abs(value - decoded) <= width * (1 + 1e-6) + 1e-6 * size + 1e-44


@given(FLOATS, st.integers(1, 12))
def test_e3m0_is_the_nearest_power_of_two_of_the_largest_in_the_bucket(values: list[float], bucket: int) -> None:
    x = np.array(values, np.float32)
    found = there_and_back(choose({"e3m0": {"bucket": bucket}}), x)[1]
    for start in range(0, len(x), bucket):
        part = x[start:start + bucket].astype(np.float64)
        most = float(np.abs(part).max())
        levels = [0.0, *(most * 2.0**-e for e in range(7))]
        for value, decoded in zip(part, found[start:start + bucket].astype(np.float64), strict=True):
            nearest = min(abs(abs(value) - level) for level in levels)
            assert abs(value - decoded) <= nearest * (1 + 1e-6) + 1e-6 * abs(value) + 1.5e-45
            assert min(abs(abs(decoded) - level) for level in levels) <= 1e-6 * abs(decoded) + 1.5e-45
            assert decoded * value >= 0
            if abs(value) >= 0.75 * 2.0**-6 * most and most > 1e-30:
                assert abs(value - decoded) <= abs(value) / 3 * (1 + 1e-6)
            assert abs(value - decoded) <= abs(value) * (1 + 1e-6) + 1.5e-45


@given(FLOATS, st.integers(1, 6), st.integers(1, 12), st.integers(1, 4))
def test_a_value_of_few_bits_is_off_by_a_bin_at_most_and_the_others_are_0(values: list[float], k: int, chunk: int,
                                                                          bits: int) -> None:
    x = np.array(values, np.float32)
    found = there_and_back(choose({"top_k": {"k": k, "chunk": chunk, "bits": bits}}), x)[1].astype(np.float64)
    for start in range(0, len(x), chunk):
        part, decoded = x[start:start + chunk].astype(np.float64), found[start:start + chunk]
        sent = np.argsort(-np.abs(part), kind="stable")[:k]
        sizes = np.abs(part[sent])
        width = (sizes.max() - sizes.min()) / 2 ** (bits - 1)
        assert (np.abs(decoded[sent] - part[sent]) <= width * (1 + 1e-6) + 1e-6 * sizes + 1.5e-45).all()
        assert not np.delete(decoded, sent).any()


@given(FLOATS, st.sampled_from(["bf16", "int8", "e3m0", {"top_k": {"k": 3, "chunk": 8, "bits": 2}}]))
def test_codecs_that_draw_nothing_give_one_code_for_one_vector(values: list[float], written: Any) -> None:
    codec, x = choose(written), np.array(values, np.float32)
    before, rngs = x.copy(), [np.random.default_rng(seed) for seed in (1, 2)]
    codes = [codec.encode(x, rng)[0].tobytes() for rng in rngs]
    assert codes[0] == codes[1]
    assert len(codes[0]) == codec.nbytes(len(x))
    assert x.tobytes() == before.tobytes()
    assert [rng.random() for rng in rngs] == [np.random.default_rng(seed).random() for seed in (1, 2)]


def test_random_k_sends_values_and_a_seed_and_no_places() -> None:
    x, codec = vector(), choose({"random_k": {"k": 20}})
    decoded = there_and_back(codec, x)[1]
    at = np.flatnonzero(decoded)
    assert len(at) == 20
    assert decoded[at].tolist() == x[at].tolist()


UNBIASED = [w for w in WRITTEN if codec_of(w).unbiased]


@pytest.mark.parametrize("written", UNBIASED, ids=str)
def test_the_mean_of_an_unbiased_codec_is_the_vector(written: Any) -> None:
    """Within 5 standard errors at every coordinate, which a right codec passes but for one in 10,000."""
    x, codec, rng, n = vector(24), choose(written), np.random.default_rng(5), 2000
    decoded = np.stack([codec.decode(codec.encode(x, rng)[0], len(x)) for _ in range(n)]).astype(np.float64)
    error = np.maximum(decoded.std(0), 1e-7) / math.sqrt(n)
    assert (np.abs(decoded.mean(0) - x) < 5 * error + 1e-6).all()


def test_those_that_are_said_to_be_unbiased_are_these() -> None:
    assert [w if isinstance(w, str) else next(iter(w)) for w in UNBIASED] == [
        "random_k", "uniform", "uniform", "qsgd", "qsgd", "fedpaq", "fedpaq"]
    assert not choose({"qsgd": {"feedback": True}}).unbiased


def test_the_variance_of_qsgd_is_within_the_bound_of_its_paper() -> None:
    """Lemma 3.1: E |Q(x) - x|^2 <= min(d / s^2, sqrt(d) / s) |x|^2."""
    x, rng = vector(100), np.random.default_rng(1)
    for s in (1, 4, 32):
        codec = choose({"qsgd": {"levels": s}})
        found = np.mean([np.sum((codec.decode(codec.encode(x, rng)[0], 100) - x) ** 2) for _ in range(300)])
        assert found <= 1.05 * min(100 / s**2, 10 / s) * np.sum(x**2)


def kept(written: Any, d: int, rounds: int = 60) -> float:
    """What error feedback keeps after so many rounds of normal numbers, relative to a round's."""
    codec, rng, left = choose(written), np.random.default_rng(3), np.zeros(d, np.float32)
    for _ in range(rounds):
        x = rng.standard_normal(d, np.float32) + left
        left = x - codec.decode(codec.encode(x, rng)[0], d)
    return float(np.linalg.norm(left)) / math.sqrt(d)


@pytest.mark.parametrize(("written", "d", "said"), [
    ({"qsgd": {"levels": 1}}, 650,
     "25.5 times as much as it is given, sqrt(m) / s for m = 650 numbers that share a norm: "
     "expected levels: 26 or more, or a bucket of 1 or fewer"),
    ({"fedpaq": {"levels": 1}}, 900, "expected levels: 30 or more, or a bucket of 1 or fewer"),
    ({"qsgd": {"levels": 4, "bucket": 300}}, 650, "4.33 times as much as it is given, sqrt(m) / s for m = 300 numbers"),
    ({"uniform": {"bits": 1}}, 650, "325 times as much as it is given, m / 2 for m = 650 numbers that share lo and hi"),
], ids=str)
def test_what_codes_leave_out_grows_where_they_leave_out_more_than_they_are_given(written: Any, d: int, said: str,
                                                                                   ) -> None:
    assert said in (choose(written).grows(d) or "")
    assert kept(written, d) > 1e3


@pytest.mark.parametrize("written", [
    {"qsgd": {"levels": 26}}, {"fedpaq": {"levels": 26}}, {"qsgd": {"levels": 4, "bucket": 16}}, "uniform",
    {"uniform": {"bits": 2}}, "sign", {"top_k": {"fraction": 0.1}}, {"random_k": {"fraction": 0.1}},
    {"top_k": {"fraction": 0.1, "chunk": 64, "bits": 2}}, "bf16", "int8", "e3m0"], ids=str)
def test_what_codes_leave_out_stays_where_they_leave_out_less_than_they_are_given(written: Any) -> None:
    assert choose(written).grows(650) is None
    assert kept(written, 650) < 30                          # of random_k(0.1) 1 / 0.1 rounds' worth, and more


def test_uniform_levels_are_a_step_from_the_values_at_most_and_half_a_step_to_the_nearest() -> None:
    x = vector()
    step = (x.max() - x.min()) / 15
    for rounding, most in (("stochastic", 1.0), ("nearest", 0.5)):
        decoded = there_and_back(choose({"uniform": {"bits": 4, "rounding": rounding}}), x)[1]
        assert np.abs(decoded - x).max() <= most * step * 1.0001


def test_equal_numbers_and_zeros_come_back_as_they_are() -> None:
    few: list[Any] = [{"top_k": {"k": 3}}, {"top_k": {"k": 3, "bits": 2}}, "bf16", "int8", "e3m0"]
    for written in ("uniform", "qsgd", "fedpaq", *few):
        assert there_and_back(choose(written), np.zeros(9, np.float32))[1].tolist() == [0.0] * 9
    assert there_and_back(choose("uniform"), np.full(9, 2.5, np.float32))[1].tolist() == [2.5] * 9


def test_signs_have_the_mean_size() -> None:
    assert there_and_back(choose("sign"), np.float32([1, -2, 0, 5]))[1].tolist() == [2, -2, 2, 2]


def test_powersgd_gives_a_matrix_of_its_rank_back_and_its_warm_start_finds_the_best_one() -> None:
    rng = np.random.default_rng(2)
    low = (rng.standard_normal((10, 2)) @ rng.standard_normal((2, 12))).astype(np.float32).reshape(-1)
    codec = choose({"powersgd": {"rank": 2}}).shaped(((10, 12),))
    assert np.allclose(there_and_back(codec, low)[1], low, atol=1e-4)
    full, warm = vector(120), None
    for _ in range(60):
        code, warm = codec.encode(full, rng, warm)
    u, s, v = np.linalg.svd(full.reshape(10, 12))
    assert np.allclose(codec.decode(code, 120).reshape(10, 12), u[:, :2] * s[:2] @ v[:2], atol=1e-2)


# --- errors -----------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize("written", WRITTEN, ids=str)
@given(data=st.data())
def test_a_code_that_nobody_has_made_is_undecodable_or_d_finite_numbers(written: Any, data: st.DataObject) -> None:
    codec = codec_of(written)
    code = codec.encode(vector(), np.random.default_rng(0))[0].copy()
    for at, octet in data.draw(st.lists(st.tuples(st.integers(0, len(code) - 1), st.integers(0, 255)), max_size=12)):
        code[at] = octet
    cut = data.draw(st.sampled_from([code, code[:-1], np.append(code, np.uint8(0)), code[:0]]))
    try:
        found = codec.decode(cut, D)
    except Undecodable:
        return
    assert codec.nbytes(D) in (None, len(cut))
    assert found.shape == (D,)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


@pytest.mark.parametrize(("written", "text"), [
    ("top_l", 'unknown codec "top_l"; did you mean "top_k"?'),
    ("top_k", "top_k: expected either k or fraction"),
    ({"top_k": {"k": 0}}, "top_k: k = 0: expected at least 1"),
    ({"random_k": {"fraction": 1.5}}, "random_k: fraction = 1.5: expected a number in (0, 1]"),
    ({"uniform": {"bits": 17}}, "uniform: bits = 17: expected 1..16"),
    ({"uniform": {"rounding": "up"}}, "uniform: rounding = 'up': expected stochastic or nearest"),
    ({"qsgd": {"levels": 0, "bukket": 3}}, 'qsgd: unknown parameter "bukket", expected levels, bucket, feedback'),
    ({"qsgd": {"bucket": 0}}, "qsgd: bucket = 0: expected at least 1, or none"),
    ({"sign": {"scale": "none"}}, "sign: feedback: true needs scale: mean: without a size there is no error to keep"),
    ({"top_k": {"k": 3, "chunk": 0}}, "top_k: chunk = 0: expected at least 1, or none"),
    ({"top_k": {"k": 3, "bits": 9}}, "top_k: bits = 9: expected 1..8, or 32"),
    ({"int8": {"sigmas": 0}}, "int8: sigmas = 0: expected a number > 0"),
    ({"e3m0": {"bucket": 0}}, "e3m0: bucket = 0: expected at least 1, or none"),
    ({"powersgd": {"rank": 0}}, "powersgd: rank = 0: expected at least 1"),
    ({"powersgd": {"_shapes": []}}, 'powersgd: unknown parameter "_shapes", expected rank, feedback'),
    (["sign"], "found ['sign'], expected the name of a codec, or {name: {parameter: value}}"),
])
def test_what_is_wrong_with_a_codec_is_said(written: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        choose(written)


@pytest.mark.parametrize("written", ["uniform", "qsgd", "fedpaq", "sign"])
def test_a_scale_beyond_float32_is_not_sent(written: str) -> None:
    x = np.full(8, 3e38, np.float32) * np.float32([1, -1] * 4)
    if written == "sign":
        assert there_and_back(choose(written), x)[1].tolist() == x.tolist()
        return
    with pytest.raises(NotSendable, match=r"^not to be compressed: a number that is not finite$"), \
            np.errstate(over="ignore"):
        choose(written).encode(x, np.random.default_rng(0))


def test_parts_are_joined_byte_by_byte() -> None:
    assert joined([np.array([1], "<u2"), np.array([7], np.uint8)]).tolist() == [1, 0, 7]
