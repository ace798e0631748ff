"""Rates that vary in time, against a sum over single nanoseconds or milliseconds, exactly."""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.network.models.profiles import NEVER, PiecewiseConstant, opportunities
from emul.network.models.traces import read_trace

MS = 10**6
TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "traces"

pieces = st.lists(st.tuples(st.integers(1, 12), st.sampled_from([0, 0, 8, 24, 10**9, 8 * 10**9, 7 * 10**9 + 1])),
                  min_size=1, max_size=6)


def profile(chosen, loop):
    times = [0, *accumulate(length for length, _ in chosen)]
    return PiecewiseConstant(times[:-1], [rate for _, rate in chosen], times[-1] if loop else None)


def rate(chosen, loop, t):
    """The obvious way: walk along the pieces."""
    if loop:
        t %= sum(length for length, _ in chosen)
    for length, bps in chosen:
        if t < length:
            return bps
        t -= length
    return chosen[-1][1]


@settings(max_examples=60)
@given(pieces, st.booleans(), st.integers(0, 60), st.integers(0, 60))
def test_what_is_sent_is_the_integral_of_the_rate(chosen, loop, start, length):
    service = profile(chosen, loop)
    expected = sum(Fraction(rate(chosen, loop, t), 8 * 10**9) for t in range(start, start + length))
    assert service.sent_bytes(start, start + length) == expected
    assert all(service.rate_at(t) == rate(chosen, loop, t) for t in range(start, start + length))


@settings(max_examples=60)
@given(pieces, st.booleans(), st.integers(0, 40), st.integers(0, 60) | st.fractions(0, 20))
def test_a_size_has_left_at_the_first_nanosecond_by_which_as_much_was_sent(chosen, loop, start, size):
    service = profile(chosen, loop)
    end = service.finish(start, size)
    if end == NEVER:
        assert not any(bps for _, bps in (chosen if loop else chosen[-1:]))
        assert service.sent_bytes(start, 10**12) < size
        return
    assert service.sent_bytes(start, end) >= size
    assert end == start or service.sent_bytes(start, end - 1) < size


@settings(max_examples=60)
@given(pieces, st.booleans())
def test_the_changes_told_are_all_the_changes(chosen, loop):
    service = profile(chosen, loop)
    now, told = 0, []
    while (following := service.next_change(now)) is not None and following < 80:
        assert following > now
        told.append(now := following)
    assert told == [t for t in range(1, 80) if rate(chosen, loop, t) != rate(chosen, loop, t - 1)]


@given(pieces, st.booleans(), st.lists(st.integers(0, 30), min_size=1, max_size=8))
def test_work_is_additive_so_a_queue_of_messages_leaves_like_one(chosen, loop, sizes):
    service = profile(chosen, loop)
    work = 0
    for size in sizes:
        work += size * 8 * 10**9
    assert service.time_of(work) == service.finish(0, sum(sizes))


def test_a_constant_profile_is_a_constant_link():
    service = PiecewiseConstant([0], [20_000_000])
    assert service.finish(1000, 1_000_000) == 1000 + 400 * MS
    assert (service.next_change(0), service.mean_bps) == (None, 20e6)
    assert PiecewiseConstant([0, 5, 9], [7, 7, 7], 12).next_change(0) is None


def test_a_rate_of_zero_at_the_end_holds_for_ever():
    service = PiecewiseConstant([0, MS], [8_000_000, 0])
    assert service.finish(0, 1000) == MS
    assert service.finish(0, 1001) == NEVER
    assert service.finish(5 * MS, 1) == NEVER
    assert service.finish(5 * MS, 0) == 5 * MS
    assert PiecewiseConstant([0], [0], 7).finish(0, 1) == NEVER


@pytest.mark.parametrize(("times", "rates", "text"), [
    ([], [], "times"), ([1], [5], "times"), ([0, 5, 5], [1, 2, 3], "times"), ([0], [1, 2], "rate"),
    ([0], [-1], "rate")])
def test_what_is_no_profile_is_refused(times, rates, text):
    with pytest.raises(ValueError, match=text):
        PiecewiseConstant(times, rates)


# --- Mahimahi -------------------------------------------------------------------------------------------------------

def lines_until(stamps, t_ms):
    """Opportunities up to and with a millisecond, as link_queue.cc counts: base += last_timestamp at the end."""
    length, count, base = stamps[-1], 0, 0
    while base <= t_ms:
        count += bisect_right(stamps, t_ms - base)
        base += length
    return count


stamps = st.lists(st.integers(0, 9), min_size=1, max_size=12).map(sorted).filter(lambda s: s[-1] > 0)


@settings(max_examples=60)
@given(stamps, st.integers(1, 60))
def test_f24_bytes_are_1500_times_the_opportunities_until_then(chosen, t_ms):
    assert opportunities(chosen).sent_bytes(0, t_ms * MS) == 1500 * lines_until(chosen, t_ms)


@settings(max_examples=40)
@given(stamps, st.integers(1, 20), st.integers(1, 9000))
def test_a_message_ends_in_the_millisecond_of_the_opportunity_that_takes_its_last_byte(chosen, begin_ms, size):
    """finish = time of opportunity number n0 + ceil(bytes / 1500)."""
    needed = lines_until(chosen, begin_ms) + -(-size // 1500)
    stamp = next(t for t in range(1000) if lines_until(chosen, t) >= needed)
    assert -(-opportunities(chosen).finish(begin_ms * MS, size) // MS) == stamp


def test_the_traces_of_mahimahis_documentation():
    assert opportunities([1]).rate_at(0) == 12e6                # "1" is 12 Mbit/s
    assert opportunities([1]).next_change(0) is None
    assert opportunities([0, 1]).rate_at(5 * MS) == 24e6        # "0\n1": two a millisecond


@pytest.mark.parametrize(("name", "mbps"), [
    ("ATT-LTE-driving-2016.down", 4.56), ("ATT-LTE-driving-2016.up", 1.91), ("Verizon-LTE-short.down", 5.03),
    ("TMobile-LTE-short.up", 13.32), ("Verizon-EVDO-driving.up", 0.84), ("TMobile-UMTS-driving.down", 2.02)])
def test_real_traces_have_the_means_that_their_source_tells(name, mbps):
    path = TRACES / "mahimahi" / name
    if not path.exists():
        pytest.skip("needs the traces in ../shared/data")
    trace = read_trace(path)
    service = trace.service()
    assert service.mean_bps / 1e6 == pytest.approx(mbps, abs=0.005)
    length = trace.stamps_ms[-1]
    for t_ms in (1, length // 3, length, 2 * length + 17):
        assert service.sent_bytes(0, t_ms * MS) == 1500 * lines_until(trace.stamps_ms, t_ms)
