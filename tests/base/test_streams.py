import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.base.streams import generator, key64, seed_bytes, uniform_at

NAMES = st.lists(st.text(max_size=5) | st.integers(-5, 5), max_size=3)
PURPOSES = st.sampled_from(["a", "ab", "b"])


def splitmix64(seed: int, n: int) -> list[int]:
    """Steele, Lea and Flood's generator as published: a state that walks by the golden gamma."""
    state, out = seed, []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        out.append(z ^ (z >> 31))
    return out


def test_the_reference_itself_gives_the_published_first_outputs():
    assert splitmix64(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@given(st.integers(0, 2**64 - 1))
def test_draw_i_is_output_i_of_splitmix64(key):
    assert [uniform_at(key, i) for i in range(5)] == [(z >> 11) / 2**53 for z in splitmix64(key, 5)]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**128 - 1))
def test_a_draw_lies_in_the_unit_interval_and_depends_on_key_and_index_only(key, index):
    assert 0 <= uniform_at(key, index) < 1
    assert uniform_at(key, index) == uniform_at(key, index)


def test_indices_beyond_64_bits_are_not_folded_onto_small_ones():
    draws = {uniform_at(7, (high << 64) | low) for high in range(30) for low in range(30)}
    assert len(draws) == 900


@given(st.integers(0, 3), PURPOSES, NAMES, st.integers(0, 3), PURPOSES, NAMES)
def test_different_names_have_different_keys(seed1, purpose1, names1, seed2, purpose2, names2):
    same = (seed1, purpose1, names1) == (seed2, purpose2, names2)
    assert (key64(seed1, purpose1, *names1) == key64(seed2, purpose2, *names2)) == same


def test_a_number_and_its_text_are_different_names_and_borders_between_names_count():
    assert len({key64(1, "p", 1), key64(1, "p", "1"), key64(1, "p1"), key64(1, "p", "", "1"), key64(11, "p")}) == 5


def test_keys_do_not_change_between_versions():
    # results of published runs hang on these
    assert key64(7, "outage/round", "client1", "server") == 0x877b19453609bc71
    assert uniform_at(key64(7, "outage/round", "client1", "server"), 1) == 0.9695446354542615
    assert generator(7, "data", "client1").integers(0, 10**6, 3).tolist() == [921776, 150904, 868543]


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5])
def test_the_share_of_draws_below_p_is_p(p):
    n = 40_000
    for purpose in ("a", "b"):
        key = key64(3, purpose)
        lost = sum(uniform_at(key, i) < p for i in range(n))
        assert abs(lost - n * p) < 4 * math.sqrt(n * p * (1 - p))


def test_streams_of_neighbouring_links_and_neighbouring_draws_are_uncorrelated():
    n = 20_000
    a, b = (np.array([uniform_at(key64(3, "outage", "c", i), k) for k in range(n)]) for i in (1, 2))
    for x, y in ((a, b), (a[:-1], a[1:])):
        assert abs(np.corrcoef(x, y)[0, 1]) < 4 / math.sqrt(n)


def test_a_generator_does_not_depend_on_those_made_before_it():
    alone = generator(7, "data", "x").random(4)
    generator(7, "data", "y").random(100)
    assert np.array_equal(generator(7, "data", "x").random(4), alone)
    assert not np.array_equal(generator(8, "data", "x").random(4), alone)


def test_seed_bytes_are_32_and_differ_by_name():
    assert len(seed_bytes(7, "key", "a")) == 32
    assert len({seed_bytes(7, "key", "a"), seed_bytes(7, "key", "b"), seed_bytes(8, "key", "a")}) == 3


def test_torch_stream_seeds_its_block_and_leaves_the_global_generator_as_it_was():
    torch = pytest.importorskip("torch")
    from emul.base.streams import torch_stream

    before = torch.get_rng_state()
    with torch_stream(7, "dropout", "client1"):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    again = []

    def draw_and_fail():
        with torch_stream(7, "dropout", "client1"):
            again.append(torch.rand(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        draw_and_fail()
    assert torch.equal(again[0], first)
    assert torch.equal(torch.get_rng_state(), before)
    with torch_stream(7, "dropout", "client2"):
        assert not torch.equal(torch.rand(3), first)
