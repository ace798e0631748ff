"""Absences: their laws against closed forms (|z| < 4 at a fixed seed), and traces of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import islice, pairwise, takewhile
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network import Link
from emul.network.models.churn import (
    Diurnal,
    Schedule,
    Shocks,
    alternating,
    availability_csv,
    availability_summary,
    from_fedscale,
    holds_availability,
    read_availability,
)
from emul.network.models.laws import Exponential, Fixed, LogNormal, Weibull
from emul.network.models.profiles import NEVER

S = 10**9
LAWS = [Exponential(5 * S), Weibull(0.5, 5 * S), Weibull(2.0, 5 * S), LogNormal(5 * S, 0.8), Fixed(5 * S)]
SEED = 7


def z(values, expected):
    return (fmean(values) - expected) / (pstdev(values) / math.sqrt(len(values)))


def away(absences, t):
    """Whether the node is away at t."""
    return any(begin <= t for begin, end in takewhile(lambda a: a[0] <= t, absences) if end is None or end > t)


# --- laws -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("law", LAWS[:4], ids=repr)
def test_sojourns_have_the_mean_and_the_median_of_their_law(law):
    downs = [end - begin for begin, end in islice(alternating(Fixed(S), law, SEED, "a", stationary=False), 20_000)]
    assert abs(z(downs, law.mean)) < 4
    below = sum(d < law.quantile(0.5) for d in downs)
    assert abs(below - 10_000) / math.sqrt(5000) < 4


@pytest.mark.parametrize(("law", "median"), [(Exponential(S), math.log(2)), (Weibull(0.5, S), math.log(2) ** 2),
                                             (LogNormal(S, 2.0), 1.0), (Fixed(S), 1.0)])
def test_the_median_is_that_of_the_closed_form(law, median):
    assert law.quantile(0.5) / S == pytest.approx(median, rel=1e-12)


# --- churn ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("up", LAWS, ids=repr)
def test_f23_the_share_of_nodes_that_are_up_is_the_availability_at_any_time(up):
    down = Exponential(3 * S)
    share = up.mean / (up.mean + down.mean)
    n = 4000
    for t in (0, 2 * S, 9 * S):
        there = sum(not away(alternating(up, down, SEED, f"node{i}"), t) for i in range(n))
        assert abs(there - n * share) / math.sqrt(n * share * (1 - share)) < 4


def test_f23_the_mean_period_is_the_sum_of_the_means():
    downs = list(islice(alternating(Weibull(0.7, 5 * S), LogNormal(2 * S, 1.0), SEED, "a"), 20_000))
    periods = [b[0] - a[0] for a, b in pairwise(downs)]
    assert abs(z(periods, Weibull(0.7, 5 * S).mean + LogNormal(2 * S, 1.0).mean)) < 4


def transfers(s, law_up, down, restart):
    """Durations of transfers of `s` seconds that begin in turn; an absence ends the transfer, or makes it pause."""
    found = []
    for i in range(6000):
        now, left = 0, s
        for begin, end in alternating(law_up, down, SEED, f"node{i}", stationary=False):
            if begin - now >= left:
                found.append((now + left) / S)
                break
            left = s if restart else left - (begin - now)
            now = end
    return found


def test_f19_a_transfer_that_restarts_from_scratch():
    """(1 / lambda + D)(e^(lambda s) - 1) for lambda = 0.2, s = 5, D = 3: 13.746 s."""
    assert abs(z(transfers(5 * S, Exponential(5 * S), Exponential(3 * S), True), 8 * (math.e - 1))) < 4


def test_f20_a_transfer_that_resumes():
    """s (1 + lambda D) = 8 s."""
    assert abs(z(transfers(5 * S, Exponential(5 * S), Exponential(3 * S), False), 8.0)) < 4


def test_f20_a_message_on_a_link_that_pauses_takes_as_long() -> None:
    """The same transfers on a link that is down, with `inflight: pause`, when the churn has it down."""
    found = []
    for i in range(1500):
        link = Link(0, 1, 0, 8 * 10**6)
        link.offer(0, "m", 5 * 10**6, 1)                # 5 s
        changes = (t for absence in alternating(Exponential(5 * S), Exponential(3 * S), SEED, f"node{i}", False)
                   for t in absence)
        down = False
        while True:
            at, due = next(changes), link.next_change()
            if due is not None and due <= at:
                found.append(due / S)
                break
            down = not down
            link.change(at, down=down, inflight="pause")
    assert found == pytest.approx(transfers(5 * S, Exponential(5 * S), Exponential(3 * S), False)[:1500], abs=1e-9)


@pytest.mark.parametrize("stationary", [True, False])
def test_absences_are_apart_and_a_pure_function_of_seed_and_name(stationary):
    first = list(islice(alternating(Weibull(0.34, S), Exponential(1), SEED, "a", stationary), 200))
    again = list(islice(alternating(Weibull(0.34, S), Exponential(1), SEED, "a", stationary), 200))
    assert first == again
    assert all(begin < end for begin, end in first)
    assert all(a[1] < b[0] for a, b in pairwise(first))
    assert first != list(islice(alternating(Weibull(0.34, S), Exponential(1), SEED, "b", stationary), 200))
    assert first != list(islice(alternating(Weibull(0.34, S), Exponential(1), SEED + 1, "a", stationary), 200))


def test_an_absence_beyond_all_times_is_for_good():
    assert list(alternating(Fixed(S), Fixed(2**62), SEED, "a", stationary=False)) == [(S, None)]
    assert list(alternating(Fixed(2**62), Fixed(1), SEED, "a", stationary=False)) == []


# --- days -----------------------------------------------------------------------------------------------------------

DAY = 86_400 * S


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_share_of_nodes_that_are_up_is_a_sine_of_the_day(spread):
    spec = Diurnal(0.5, 0.4, DAY, spread)
    smoothed = math.sin(math.pi * spread) / (math.pi * spread) if spread else 1.0
    n = 2000
    for t in (0, DAY // 4, DAY // 2, 3 * DAY // 4, DAY + DAY // 8):
        share = 0.5 + 0.4 * smoothed * math.sin(2 * math.pi * t / DAY)
        there = sum(not away(spec.absences(SEED, f"node{i}"), t) for i in range(n))
        assert abs(there - n * share) / math.sqrt(n * share * (1 - share)) < 4


def test_days_without_a_night_and_nights_without_a_day():
    assert list(Diurnal(1.0, 0.0, DAY).absences(SEED, "a")) == []
    flat = list(islice(Diurnal(0.5, 0.0, DAY).absences(SEED, "a"), 100))        # whole days, half of them
    assert all((end - begin) % DAY == 0 for begin, end in flat[1:])
    assert all(a[1] < b[0] for a, b in pairwise(flat))


# --- groups ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("correlation", [0.0, 0.3, 1.0])
def test_failures_at_a_shock_have_the_correlation_that_is_asked_for(correlation):
    """Var = n p (1 - p) [1 + (n - 1) rho], and the mean n p."""
    n, p, shocks = 12, 0.3, 6000
    spec = Shocks(Fixed(S), Fixed(1), p, correlation)
    counts = [sum(spec.hit(SEED, "rack", f"node{i}", k) for i in range(n)) for k in range(shocks)]
    assert abs(z(counts, n * p)) < 4
    variance = n * p * (1 - p) * (1 + (n - 1) * correlation)
    assert abs(z([(c - n * p) ** 2 for c in counts], variance)) < 4


def test_members_of_a_group_fail_together_at_its_shocks():
    spec = Shocks(Exponential(100 * S), Exponential(S), p=1.0)
    begins = [{begin for begin, _ in islice(spec.absences(SEED, "rack", name), 50)} for name in ("a", "b")]
    assert len(begins[0] & begins[1]) > 40          # but for shocks during an absence, which prolong it
    other = {begin for begin, _ in islice(spec.absences(SEED, "other rack", "a"), 50)}
    assert not begins[0] & other


def test_shocks_during_an_absence_prolong_it():
    assert list(islice(Shocks(Fixed(3), Fixed(2)).absences(SEED, "g", "a"), 2)) == [(3, 5), (6, 8)]
    spec = Shocks(Fixed(3), Exponential(4))
    found = list(islice(spec.absences(SEED, "g", "a"), 300))
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert max(Counter(end - begin for begin, end in found)) > 6


@pytest.mark.parametrize(("every", "down"), [(Fixed(S), Fixed(2 * S)), (Exponential(S), Exponential(60 * S))])
def test_shocks_that_come_faster_than_absences_end_take_a_member_away_for_good(every, down):
    spec = Shocks(every, down)
    (begin, end), *rest = spec.absences(SEED, "g", "a")
    assert (end, rest) == (None, [])
    (soon, end), *rest = spec.absences(SEED, "g", "a", until_ns=20 * S)
    assert (soon, end, rest) == (begin, None, [])
    assert spec.expected_up < 1e-20


def test_the_share_of_time_that_members_are_there_is_that_of_poissons_law():
    spec = Shocks(Exponential(10 * S), Exponential(5 * S), p=0.7)
    away = sum(end - begin for begin, end in takewhile(lambda one: one[1] < 20_000 * S, spec.absences(SEED, "g", "a")))
    assert 1 - away / (20_000 * S) == pytest.approx(spec.expected_up, abs=0.03)


# --- traces ---------------------------------------------------------------------------------------------------------

def test_a_schedule_repeats_or_ends():
    assert list(Schedule(((2, 5), (5, 7), (9, 10))).absences()) == [(0, 2), (7, 9), (10, None)]
    assert list(islice(Schedule(((2, 5), (7, 10)), 10).absences(), 3)) == [(0, 2), (5, 7), (10, 12)]
    assert list(islice(Schedule(((0, 5),), 10).absences(), 2)) == [(5, 10), (15, 20)]
    assert list(Schedule(((0, 10),), 10).absences()) == []
    assert list(Schedule((), 10).absences()) == [(0, None)]


@settings(max_examples=40)
@given(st.dictionaries(st.sampled_from(["a", "b", "c d", "e,f"]), st.lists(
    st.integers(0, 10**12), min_size=2, max_size=9, unique=True).map(sorted), min_size=1), st.none() | st.just(10**12))
def test_availability_is_written_and_read_back(tmp_path_factory, edges, period):
    schedules = {name: Schedule(tuple(zip(t[::2], t[1::2], strict=False)), period) for name, t in edges.items()}
    file = tmp_path_factory.mktemp("avail") / "a.csv"
    file.write_text(availability_csv(schedules))
    assert read_availability(file) == schedules


def test_a_run_may_begin_at_any_time_of_a_schedule():
    for period in (None, 10):
        whole = Schedule(((1, 3), (4, 7), (9, 10)), period)
        there = [any(on <= t % (period or 99) < off for on, off in whole.present) for t in range(60)]
        for offset in range(25):
            moved = whole.from_time(offset)
            assert moved.period_ns == period
            assert [any(on <= t % (period or 99) < off for on, off in moved.present) for t in range(30)] == [
                there[offset + t] for t in range(30)]
            assert list(moved.present) == sorted(moved.present)


@pytest.mark.parametrize(("text", "present", "period"), [
    ("node,t_on_s,t_off_s\n1,0,54\n1,890,\n2,5,5\n", {"1": ((0, 54), (890, None)), "2": ()}, None),
    ("node;t_on_s;t_off_s\n1;0,5;54\n2;10;inf\n", {"1": ((0.5, 54),), "2": ((10, None),)}, None),
    ("# made\n1: on, [54, 890, 2042]\n2: off, [10, 700]\n3: OFF, []\n4:on,[7.5, 9]\n",
     {"1": ((0, 54), (890, 2042)), "2": ((10, 700),), "3": (), "4": ((0, 7.5), (9, None))}, None),
    (json.dumps({"1": {"active": [5, 20], "inactive": [10, 30], "finish_time": 40, "model": "x"},
                 "2": {"active": [5, 20], "inactive": [2, 10], "finish_time": 40},
                 "3": {"active": [], "inactive": [], "finish_time": 40},
                 "4": {"active": [20, 5], "inactive": [50, 10], "finish_time": 40},
                 "5": {"active": [5, 20], "inactive": [10], "finish_time": 40}}),
     {"1": ((5, 10), (20, 30)), "2": ((0, 2), (5, 10), (20, 40)), "3": (), "4": ((5, 10), (20, 40)),
      "5": ((5, 10), (20, 40))}, 40)])
def test_presence_as_pairs_of_times_is_read_from_whatever_has_it(tmp_path, text, present, period):
    (tmp_path / "trace").write_text(text)
    assert holds_availability(text)
    found = read_availability(tmp_path / "trace")
    assert found == {name: Schedule(tuple((round(on * S), NEVER if off is None else round(off * S))
                                          for on, off in pairs), None if period is None else period * S)
                     for name, pairs in present.items()}
    (tmp_path / "again.csv").write_text(availability_csv(found))
    assert read_availability(tmp_path / "again.csv") == found


@pytest.mark.parametrize(("text", "offset"), [
    ("node,t_on_s,t_off_s\n1,890,2042\n1,0,54\n2,10,700\n", 0),                      # in any order
    ("client_id,start_ms,end_ms,model\n1,0,54000,x\n1,890000,2042000,x\n2,10000,700000,y\n", 0),
    ("node,t_on,t_off\n1,2026-05-01T10:00:00Z,2026-05-01T10:00:54Z\n2,2026-05-01T12:00:10+02:00,2026-05-01T10:11:40Z\n"
     "1,2026-05-01T10:14:50Z,2026-05-01T10:34:02Z\n", 0),
    ("device;on_s;off_s\n1;1700000000;1700000054\n1;1700000890;1700002042\n2;1700000010;1700000700\n", 0),
    ("device|on_s|off_s\n1|1700000000|1700000054\n1|1700000890|1700002042\n2|1700000010|1700000700\n",
     1_700_000_000 * S)])
def test_presence_counts_from_the_first_of_dates_and_of_times_since_1970(tmp_path, text, offset):
    (tmp_path / "a.csv").write_text(text)
    assert holds_availability(text)
    assert read_availability(tmp_path / "a.csv", offset_ns=offset) == {
        "1": Schedule(((0, 54 * S), (890 * S, 2042 * S))), "2": Schedule(((10 * S, 700 * S),))}
    assert list(read_availability(tmp_path / "a.csv", offset_ns=offset)) == ["1", "2"]


def test_a_summary_tells_how_much_of_the_time_nodes_are_there(tmp_path):
    (tmp_path / "a.csv").write_text("node,t_on_s,t_off_s,period_s\na,0,30,40\nb,10,20,40\nb,30,40,40\nc,0,0,40\n")
    found = availability_summary(read_availability(tmp_path / "a.csv"))
    assert (found.nodes, found.never, found.length_s, found.repeats) == (3, 1, 40, True)
    assert (found.mean, found.least, found.most) == (pytest.approx(5 / 12), 0, 0.75)
    assert (found.presences, found.presence_mean_s, found.presence_median_s) == (3, pytest.approx(50 / 3), 10)


@pytest.mark.parametrize(("text", "expected"), [
    ("1: on, [5, 3]\n", 'line 1 +1 +"5, 3" +expected times that ascend'),
    ("1: on, [5, x]\n", "line 1 .*expected a number"), ("1: on, [5]\n1: off, []\n", "line 2 .*there already"),
    ('{"1": {"active": [1, 2], "inactive": [3], "finish_time": 9}}', "expected active and inactive times in turn"),
    ("", "no rows"), ("node,t_on\na,1\n", "header"), ("node,t_on_s,t_off_s\na,5,4\n", "expected a time after t_on"),
    ("node,t_on_s,t_off_s\na,0,5\nb,0,1\na,4,6\n", "expected a time after the row before of a has ended"),
    ("node,t_on_s,t_off_s,period_s\na,0,5,4\n", "expected a time within the period, 4 s"),
    ("node,t_on_s,t_off_s,period_s\na,0,1,4\na,2,3,5\n", "expected one period for a: 4 s"),
    ("node,t_on,t_off\na,0,5\n", "the unit is missing"), ("node,t_on_s,t_off_s\na,nan,5\n", "expected a number")])
def test_a_bad_availability_is_refused(tmp_path, text, expected):
    file = tmp_path / "a.csv"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=expected):
        read_availability(file)


def test_fedscales_availability_is_converted():
    text = json.dumps({"1": {"duration": 9, "active": [0, 5.5], "inactive": [2, 8], "finish_time": 10, "model": "x"}})
    assert from_fedscale(text, "f") == {"1": Schedule(((0, 2 * S), (11 * S // 2, 8 * S)), 10 * S)}
    for bad in ("[]", "{}", "x", '{"1": 3}', '{"1": {"active": [1, 2], "inactive": [4, 3], "finish_time": 5}}',
                '{"1": {"active": [1], "inactive": [2, 3], "finish_time": 5}}',
                '{"1": {"active": [1], "inactive": [2], "finish_time": null}}',
                '{"1": {"active": [NaN], "inactive": [2], "finish_time": 3}}'):
        with pytest.raises(ScenarioError):
            from_fedscale(bad, "f")
