import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from emul.base.errors import EmulError, NotSendable
from emul.primitives.quantise import Quantiser, QuantiserOverflow


def ring_sum(quantiser: Quantiser, xs: np.ndarray) -> np.ndarray:
    total = np.zeros(xs.shape[1], dtype=np.uint32)
    for x in xs:
        total += quantiser.quantise(x)
    return total


def test_three_bits_by_hand():
    quantiser = Quantiser(clip=3.5, bits=3)               # step 1, levels -3.5, -2.5, .. 3.5
    x = np.array([-9, -3.5, -3.01, -2.9, 0.1, 3.4, 3.5, 99, -np.inf, np.inf], dtype=np.float32)
    assert quantiser.quantise(x).tolist() == [0, 0, 0, 1, 4, 7, 7, 7, 0, 7]
    assert quantiser.quantise(x).dtype == np.uint32
    assert quantiser.clip_fraction(x) == 0.4
    mean = quantiser.dequantise_mean(np.array([0, 7, 14], dtype=np.uint32), 2)
    assert mean.tolist() == [-3.5, 0.0, 3.5]
    assert mean.dtype == np.float32


def test_ties_go_to_even():
    quantiser = Quantiser(clip=1.5, bits=2)               # step 1, x + c = 0.5, 1.5, 2.5
    assert quantiser.quantise(np.array([-1.0, 0.0, 1.0])).tolist() == [0, 2, 2]


@given(x=arrays(np.float32, st.tuples(st.integers(1, 20), st.integers(1, 8)), elements=st.floats(-1, 1, width=32)),
       bits=st.sampled_from([4, 8, 16, 20, 24]))
def test_A19_error_of_the_mean_is_at_most_half_a_step(x, bits):
    quantiser = Quantiser(clip=1.0, bits=bits)
    n = x.shape[0]
    mean = quantiser.dequantise_mean(ring_sum(quantiser, x), n)
    error = np.abs(mean.astype(np.float64) - x.astype(np.float64).mean(axis=0))
    assert error.max() <= quantiser.step / 2 + 2**-24      # the last rounding is that of float32


def test_A19_standard_deviation_of_the_error():
    n, d = 50, 20_000
    quantiser = Quantiser()
    x = np.random.default_rng(1).uniform(-1, 1, (n, d))
    total = ring_sum(quantiser, x).astype(np.float64)
    error = quantiser.step * total / n - 1.0 - x.mean(axis=0)      # before float32 hides the small errors
    assert error.std() == pytest.approx(quantiser.step / math.sqrt(12 * n), rel=0.05)
    assert quantiser.step / math.sqrt(12 * n) == pytest.approx(1.25e-6, rel=0.01)


@pytest.mark.parametrize(("bits", "n"), [(16, 65537), (20, 4096), (24, 256), (32, 1)])
def test_largest_sum_that_fits_is_exact_and_one_more_is_refused(bits, n):
    quantiser = Quantiser(clip=1.0, bits=bits)
    quantiser.check_sum(n)
    assert n * quantiser.top < 2**32
    assert quantiser.dequantise_mean(np.array([n * quantiser.top], dtype=np.uint32), n).tolist() == [1.0]
    with pytest.raises(QuantiserOverflow):
        quantiser.check_sum(n + 1)


def test_A19_257_values_of_24_bits_are_refused():
    quantiser = Quantiser(bits=24)
    text = ("quantiser_overflow: the sum of n = 257 values of 24 bits can reach 4311744255, "
            "expected below 4294967296; 24 bits allow n <= 256")
    for refused in (lambda: quantiser.check_sum(257), lambda: quantiser.dequantise_mean(np.zeros(1, np.uint32), 257)):
        with pytest.raises(QuantiserOverflow, match=f"^{re.escape(text)}$"):
            refused()
    assert issubclass(QuantiserOverflow, EmulError)
    wrapped = ring_sum(quantiser, np.ones((257, 1)))
    assert int(wrapped[0]) != 257 * quantiser.top           # what the refusal prevents


def test_a_sum_equal_to_the_modulus_is_refused():
    Quantiser(bits=1).check_sum(2**32 - 1)
    with pytest.raises(QuantiserOverflow, match=r"1 bits allow n <= 4294967295$"):
        Quantiser(bits=1).check_sum(2**32)


def test_another_modulus_has_its_own_limit():
    Quantiser(bits=16).check_sum(32768, modulus=2**31 - 1)
    with pytest.raises(QuantiserOverflow, match=r"16 bits allow n <= 32768$"):
        Quantiser(bits=16).check_sum(32769, modulus=2**31 - 1)


@pytest.mark.parametrize("clip", [0.1, 0.3, 1e-3, 1e30])    # float32(clip) lies above clip
def test_the_clip_itself_is_the_top_level_in_either_precision(clip):
    for bits in (16, 24, 32):
        quantiser = Quantiser(clip, bits)
        for dtype in (np.float32, np.float64):
            x = np.array([-clip, clip], dtype=dtype)
            assert quantiser.quantise(x).tolist() == [0, quantiser.top]


def test_the_input_is_not_changed():
    x = np.array([5.0, -5.0])
    x.flags.writeable = False
    Quantiser().quantise(x)
    assert x.tolist() == [5.0, -5.0]


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"^clip is 0, expected a number above 0$"):
        Quantiser(clip=0)
    with pytest.raises(ValueError, match=r"^clip is nan, expected a number above 0$"):
        Quantiser(clip=math.nan)
    with pytest.raises(ValueError, match=r"^bits is 33, expected 1\.\.32$"):
        Quantiser(bits=33)
    with pytest.raises(NotSendable, match=r"^not to be quantised: NaN$"):
        Quantiser().quantise(np.array([math.nan, 0.0, math.nan]))
    with pytest.raises(ValueError, match=r"^mean of n = 0 values, expected at least 1$"):
        Quantiser().dequantise_mean(np.zeros(2, np.uint32), 0)


def test_nothing_is_clipped_in_an_empty_vector():
    assert Quantiser().clip_fraction(np.zeros(0)) == 0.0
