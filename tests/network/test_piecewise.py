"""`Pieces` against a walk over single nanoseconds: given ones, repeated ones, and those that are found as one asks."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.network.models import profiles
from emul.network.models.outages import TracedLoss
from emul.network.models.pieces import Pieces, earliest
from emul.network.models.profiles import NEVER, CurveProfile, PiecewiseConstant

HORIZON = 200


@st.composite
def given_pieces(draw, values=(0.0, 0.3, 1.0)):
    """(times, values, period, the time at which it repeats from)."""
    gaps = draw(st.lists(st.integers(1, 6), max_size=6))
    times = [sum(gaps[:i]) for i in range(len(gaps) + 1)]
    repeat = draw(st.integers(0, times[-1]))
    period = draw(st.none() | st.integers(times[-1] - repeat + 1, times[-1] - repeat + 6))
    return times, [draw(st.sampled_from(values)) for _ in times], period, repeat if period else 0


def walked(times, values, period, repeat, until=HORIZON):
    """The value of every nanosecond, found by stepping through them."""
    found, at = [], 0
    for _ in range(until):
        found.append([value for time, value in zip(times, values, strict=True) if time <= at][-1])
        at += 1
        if period is not None and at == repeat + period:
            at = repeat
    return found


def change_after(known, t):
    return next((n for n in range(t + 1, len(known)) if known[n] != known[n - 1]), None)


@given(given_pieces(), st.integers(0, 60))
def test_a_value_and_its_next_change_are_those_of_a_walk_through_time(pieces, t):
    one, known = Pieces(*pieces), walked(*pieces)
    assert one.value_at(t) == known[t]
    assert one.next_change(t) == change_after(known, t)


@given(given_pieces())
def test_the_mean_is_that_of_a_period_or_of_what_is_given(pieces):
    times, values, period, _ = pieces
    whole = times[-1] if period is None else period
    if not whole:
        assert Pieces(*pieces).mean() == values[0]
    elif pieces[3] == 0:
        assert Pieces(*pieces).mean() == pytest.approx(sum(walked(*pieces)[:whole]) / whole, abs=1e-12)


@given(given_pieces(), st.integers(0, 60), st.integers(0, 40), st.integers(0, 5))
def test_a_message_is_lost_by_the_largest_probability_that_it_meets(pieces, t, length, k):
    one, known = TracedLoss(Pieces(*pieces), "any_slot", 7, "a", "b"), walked(*pieces)
    assert one.lost(t, t + length, 0, k, 1) == (one.draw(0, k) < max(known[t:t + max(1, length)]))


class Walked:
    """A curve whose changes are told one by one, also where the rate stays."""

    def __init__(self, pieces, ticks):
        self.known, self.ticks = walked(*pieces, until=4 * HORIZON), ticks

    def rate_at(self, t):
        return self.known[t]

    def next_change(self, t):
        return min((n for n in range(t + 1, len(self.known))
                    if self.known[n] != self.known[n - 1] or n % self.ticks == 0), default=None)


RATES = (0, 0, 8, 24, 8 * 10**9, 7 * 10**9 + 1)


@given(given_pieces(RATES), st.integers(3, 9), st.lists(st.integers(0, 60), min_size=1, max_size=6), st.data())
def test_what_is_found_as_one_asks_is_what_was_given(pieces, ticks, asked, data):
    """Rate, change, what is sent and when a size has left: of a curve that is kept, whatever was asked before, of given
    pieces, and by summing nanosecond after nanosecond."""
    kept, whole, known = CurveProfile(Walked(pieces, ticks)), PiecewiseConstant(*pieces), walked(*pieces)
    for t in asked:
        length, size = data.draw(st.integers(0, 50)), data.draw(st.integers(1, 40))
        assert kept.rate_at(t) == whole.rate_at(t) == known[t]
        assert kept.next_change(t) == whole.next_change(t) == change_after(known, t)
        sent = sum(Fraction(rate, 8 * 10**9) for rate in known[t:t + length])
        assert kept.sent_bytes(t, t + length) == whole.sent_bytes(t, t + length) == sent
        left, end = Fraction(size), t
        while left > 0 and end < HORIZON:
            left -= Fraction(known[end], 8 * 10**9)
            end += 1
        if left <= 0:
            assert kept.finish(t, size) == whole.finish(t, size) == end


def test_a_curve_that_changes_without_end_and_stays_as_it_is_counts_as_one_that_stays(monkeypatch):
    monkeypatch.setattr(profiles, "MOST_UNCHANGED", 1000)

    class Ticking:
        def rate_at(self, t):
            return 0

        def next_change(self, t):
            return t + 1

    kept = CurveProfile(Ticking())
    assert (kept.finish(0, 1), kept.next_change(5)) == (NEVER, None)


def test_the_earliest_of_times_of_which_some_never_come():
    assert (earliest(None, 5, 3, None), earliest(None, None), earliest()) == (3, None, None)
