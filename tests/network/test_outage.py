"""Outages: frequencies, common random numbers, independence of the three units."""

from __future__ import annotations

from dataclasses import replace
from math import comb, exp, hypot, sqrt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network import OutageSpec, lost_at
from emul.network.models.outages import FadingSpec, GilbertSpec, LossTraceSpec, OnOffSpec, outage, problem, read_trace

N = 20_000


def z(lost, n, p):
    """Standard score of `lost` out of n independent losses of probability p."""
    return (lost - n * p) / sqrt(n * p * (1 - p))


def index(per, i):
    """The i-th independent draw of a unit."""
    message = {"round": i // 100, "k": i % 100}
    return {"message": message, "packet": message, "round": {"round": i + 1},
            "slot": {"start_ns": i * 1000 + i % 1000}}[per]


def spec(p, per):
    return OutageSpec(p, per, 1000 if per == "slot" else None)


@pytest.mark.parametrize("per", ["message", "packet", "round", "slot"])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_the_frequency_of_losses_is_p(per, p):
    """F14."""
    model = outage(spec(p, per), 7, "a", "b")
    lost = sum(model.lost(d.get("start_ns", 0), d.get("start_ns", 0), d.get("round", 0), d.get("k", 0), 1)
               for d in (index(per, i) for i in range(N)))
    assert abs(z(lost, N, p)) < 4


@pytest.mark.parametrize("per", ["message", "packet", "round", "slot"])
def test_probability_0_loses_nothing_and_1_everything(per):
    assert outage(spec(0, per), 7, "a", "b") is None
    assert all(lost_at(spec(1, per), 7, "a", "b", **index(per, i)) for i in range(1000))


def test_k_of_n_uplinks_are_up_as_often_as_the_binomial_says():
    """F22: sum_{j >= k} C(n, j) (1 - p)^j p^(n - j) = 0.92981 for n = 10, k = 8, p = 0.1."""
    n, k, p, rounds = 10, 8, 0.1, 5000
    expected = sum(comb(n, j) * (1 - p) ** j * p ** (n - j) for j in range(k, n + 1))
    assert round(expected, 5) == 0.92981
    links = [outage(OutageSpec(p, "round"), 7, f"client{i}", "server") for i in range(n)]
    good = sum(sum(not link.lost(0, 0, t, 0, 1) for link in links) >= k for t in range(1, rounds + 1))
    assert abs(z(good, rounds, expected)) < 4


def test_a_fate_depends_on_seed_ends_and_direction_only():
    def fates(seed, src, dst):
        return [lost_at(OutageSpec(0.5, "round"), seed, src, dst, round=t) for t in range(1, 65)]

    assert fates(7, "a", "b") == fates(7, "a", "b")
    assert len({tuple(fates(*key)) for key in [(7, "a", "b"), (8, "a", "b"), (7, "b", "a"), (7, "a", "c")]}) == 4


def test_all_messages_of_a_round_share_its_fate_whatever_was_asked_before():
    model = outage(OutageSpec(0.5, "round"), 7, "a", "b")
    expected = {t: lost_at(OutageSpec(0.5, "round"), 7, "a", "b", round=t) for t in range(1, 40)}
    for t in [*range(39, 0, -1), *range(1, 40)]:
        assert {model.lost(start, start, t, k, 1) for start, k in ((0, 0), (10**9, 5))} == {expected[t]}


def test_round_0_draws_per_message_as_the_model_per_message_does():
    per_round = [lost_at(OutageSpec(0.5, "round"), 7, "a", "b", k=k) for k in range(64)]
    assert per_round == [lost_at(OutageSpec(0.5, "message"), 7, "a", "b", k=k) for k in range(64)]
    assert 0 < sum(per_round) < 64


def test_a_slot_is_one_fate_from_its_first_nanosecond_to_its_last():
    model = outage(spec(0.5, "slot"), 7, "a", "b")
    for slot in range(200):
        assert (model.lost(slot * 1000, 0, 1, 0, 1) == model.lost(slot * 1000 + 999, 0, 9, 9, 1)
                == model.lost(slot * 1000, 0, 0, 3, 1))


@pytest.mark.parametrize(("one", "other"), [("message", "round"), ("message", "slot"), ("round", "slot")])
def test_the_units_draw_from_independent_streams(one, other):
    def fates(per):
        at = {"message": lambda i: {"k": i}, "round": lambda i: {"round": i}, "slot": lambda i: {"start_ns": i * 1000}}
        return [lost_at(spec(0.5, per), 7, "a", "b", **at[per](i)) for i in range(1, 4001)]      # the same indices

    same = sum(a == b for a, b in zip(fates(one), fates(other), strict=True))
    assert abs(z(same, 4000, 0.5)) < 4


@pytest.mark.parametrize(("wrong", "expected"), [
    (OutageSpec(1.4), ("p", "1.4", "expected a probability in [0, 1]")),
    (OutageSpec(float("nan")), ("p", "nan", "expected a probability in [0, 1]")),
    (OutageSpec(0.1, "byte"), ("per", "'byte'", "expected one of message, packet, round, slot")),
    (OutageSpec(0.1, "slot"), ("slot", "None", "expected the length of a slot, a positive duration")),
    (OutageSpec(0.1, "round", 5), ("slot", "5", 'is used only with per "slot"')),
    (OutageSpec(0.1, model="gilbert"), ("model", "'gilbert'", 'expected "bernoulli"')),
    (OutageSpec(0.1, "slot", 5), None),
    (OutageSpec(0.1, span="any_slot"),
     ("span", "'any_slot'", 'per "message" knows no time: is used only with per "slot"')),
    (OutageSpec(0.1, "slot", 5, span="never"), ("span", "'never'", "expected one of at_start, any_slot, pause")),
    (GilbertSpec(0.1, 1.2), ("r", "1.2", "expected a probability in [0, 1]")),
    (GilbertSpec(0.1, 0.2, loss_good=float("nan")), ("1-k", "nan", "expected a probability in [0, 1]")),
    (GilbertSpec(0.1, 0.2, start="up"), ("start", "'up'", "expected good or stationary")),
    (GilbertSpec(0.1, 0.2, per="slot"), ("slot", "None", "expected the length of a slot, a positive duration")),
    (OnOffSpec(10, 0), ("down", "0", "expected a positive duration")),
    (OnOffSpec(10, 10, "good"), ("start", "'good'", "expected stationary or up")),
    (FadingSpec(0, 10, 2), ("coherence", "0", "expected a positive duration")),
    (FadingSpec(10, -1, 2), ("snr", "-1", "expected a positive number")),
    (FadingSpec(10, 1, 2000), ("spectral_efficiency", "2000", "expected bit/s/Hz, at most 1000")),
])
def test_a_spec_that_means_nothing_is_named(wrong, expected):
    assert problem(wrong) == expected


# --- per packet -----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("packets", [1, 3, 20])
def test_a_message_of_more_packets_is_lost_with_1_minus_the_power(packets):
    model = outage(OutageSpec(0.05, "packet"), 7, "a", "b")
    p = 1 - 0.95**packets
    assert model.mean_loss(packets) == pytest.approx(p, rel=1e-12)
    assert abs(z(sum(model.lost(0, 0, 1, k, packets) for k in range(N)), N, p)) < 4


@given(st.floats(0, 1, exclude_min=True), st.integers(0, 5), st.integers(0, 50), st.integers(1, 300))
def test_the_first_lost_packet_says_which_messages_are_lost(p, round, k, most):
    model = outage(OutageSpec(p, "packet"), 7, "a", "b")
    first = model.first_lost(round, k, most)
    for packets in {1, most, first or 1, (first or 0) + 1} & set(range(1, most + 1)):
        assert model.lost(0, 0, round, k, packets) == (first is not None and first < packets)


# --- messages that meet a change ------------------------------------------------------------------------------------

SLOT = 1000


def slots_of(spec):
    """The fates of the first 400 slots."""
    return [lost_at(replace(spec, span="at_start"), 7, "a", "b", start_ns=n * SLOT) for n in range(400)]


@pytest.mark.parametrize("timed", [OutageSpec(0.2, "slot", SLOT), GilbertSpec(0.1, 0.4, 0.9, 0.05, "slot", SLOT),
                                   GilbertSpec(0.1, 0.4, per="slot", slot_ns=SLOT, start="stationary"),
                                   FadingSpec(SLOT, 10, 2)])
def test_any_slot_loses_what_meets_a_bad_slot_and_pause_nothing(timed):
    bad = slots_of(timed)
    assert 20 < sum(bad) < 200
    every = outage(replace(timed, span="any_slot"), 7, "a", "b")
    paused = outage(replace(timed, span="pause"), 7, "a", "b")
    assert outage(timed, 7, "a", "b").timeline is every.timeline is None
    for start in range(0, 300 * SLOT, 377):
        for end in (start, start + 1, start + 500, start + 2 * SLOT, start + 9 * SLOT + 3):
            met = bad[start // SLOT:max(start, end - 1) // SLOT + 1]
            assert every.lost(start, end, 1, 0, 1) == any(met)
            assert not paused.lost(start, end, 1, 0, 1)
    states, t = paused.timeline, 0
    assert paused.mean_loss() == 0
    while t < 390 * SLOT:
        change = states.next_change(t)
        assert change > t
        assert {not b for b in bad[t // SLOT:change // SLOT]} == {states.up_at(t)} == {not states.up_at(change)}
        t = change


def test_fading_is_the_outage_of_a_rayleigh_channel():
    """Rayleigh: P(log2(1 + SNR) < R/B) = 1 - exp(-(2^(R/B) - 1) / SNR); here 1 - exp(-0.3)."""
    spec = FadingSpec(SLOT, 10.0, 2.0)
    assert spec.p == pytest.approx(1 - exp(-0.3), rel=1e-14)
    model = outage(spec, 7, "a", "b")
    assert model.mean_loss() == spec.p
    assert abs(z(sum(model.lost(n * SLOT, 0, 1, 0, 1) for n in range(N)), N, spec.p)) < 4


# --- on and off -----------------------------------------------------------------------------------------------------

def test_on_and_off_have_their_mean_times():
    """F23: the share of time up is up / (up + down); a period lasts up + down in the mean."""
    up, down, cycles = 10**9, 2 * 10**8, 4000
    states = outage(OnOffSpec(up, down), 7, "a", "b").states
    t, ends, lengths = 0, [], {True: [], False: []}
    while len(ends) < 2 * cycles:
        following = states.next_change(t)
        assert states.up_at(t) == states.up_at(following - 1) != states.up_at(following)
        lengths[states.up_at(t)].append(following - t)
        ends.append(following)
        t = following
    for is_up, mean in ((True, up), (False, down)):
        found = lengths[is_up]
        assert abs(sum(found) / len(found) - mean) / (mean / sqrt(len(found))) < 4      # exponential: deviation = mean
    period = t / cycles
    assert abs(period - (up + down)) / (hypot(up, down) / sqrt(cycles)) < 4


@pytest.mark.parametrize(("start", "share"), [("stationary", 0.75), ("up", 0.0)])
def test_on_off_starts_as_it_is_told(start, share):
    n = 2000
    down = sum(outage(OnOffSpec(100, 300, start), 7, "a", f"b{i}").lost(0, 0, 1, 0, 1) for i in range(n))
    assert down == 0 if share == 0 else abs(z(down, n, share)) < 4


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=12))
def test_a_state_does_not_depend_on_what_was_asked_before(times):
    asked = outage(OnOffSpec(5000, 3000), 7, "a", "b").states
    for t in times:
        fresh = outage(OnOffSpec(5000, 3000), 7, "a", "b").states
        assert (asked.up_at(t), asked.next_change(t)) == (fresh.up_at(t), fresh.next_change(t))


# --- traces ---------------------------------------------------------------------------------------------------------

def trace(tmp_path, text, **more):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return LossTraceSpec(path, **more)


def test_a_trace_of_up_and_down_is_followed_and_begins_anew(tmp_path):
    spec = trace(tmp_path, "t_ms,up\n# measured\n0,1\n10,0\n\n15,1\n20,0\n", loop=True)
    model = outage(spec, 7, "a", "b")
    lost = [model.lost(t * 10**6, 0, 1, 0, 1) for t in range(60)]
    assert lost == 3 * ([False] * 10 + [True] * 5 + [False] * 5)
    assert model.mean_loss() == 0.25
    assert model.states.next_change(0) == 10 * 10**6
    assert model.states.next_change(15 * 10**6) == 30 * 10**6       # up goes over into the next period
    once = outage(replace(spec, loop=False), 7, "a", "b")
    assert [once.lost(t * 10**6, 0, 1, 0, 1) for t in (19, 20, 10**6)] == [False, True, True]
    assert once.states.next_change(20 * 10**6) is None


def test_a_trace_of_probabilities_is_met_at_the_start_or_at_its_worst(tmp_path):
    spec = trace(tmp_path, "loss,t\n0.1,0\n0.5,1 s\n0,2 s\n")
    model, worst = outage(spec, 7, "a", "b"), outage(replace(spec, span="any_slot"), 7, "a", "b")
    for at, p in ((0, 0.1), (1, 0.5), (2, 0), (9, 0)):
        lost = sum(model.lost(at * 10**9, 0, 1, k, 1) for k in range(N))
        assert lost == 0 if p == 0 else abs(z(lost, N, p)) < 4
    for start, end, p in ((0, 10**9, 0.1), (0, 10**9 + 1, 0.5), (2 * 10**9, 3 * 10**9, 0)):
        lost = [worst.lost(start, end, 1, k, 1) for k in range(N)]
        assert lost == [worst.draw(1, k) < p for k in range(N)]


@pytest.mark.parametrize(("text", "more", "expected"), [
    ("", {}, "no rows  expected a header with the columns t_s (or another unit), up or t_s (or another unit), loss"),
    ("t_s,up\n", {}, "line 1    no rows  expected at least one row below the header"),
    ("t_s,up,loss\n0,1,0\n", {}, "line 1    t_s,up,loss  expected a header with the columns t_s (or another unit), up"),
    ("t_s,up\n0,1\n1\n", {}, "line 3    1 values  expected 2, as the header has"),
    ("t,up\n0,1\n5,0\n", {}, 'line 3  t  "5"  expected a duration such as 20 ms or 1 h: the unit is missing'),
    ("t_s,up\n0,1\nnan,0\n", {}, 'line 3  t_s  "nan"  expected a number'),
    ("t_s,up\n0,1\n-1,0\n", {}, 'line 3  t_s  "-1"  expected a duration of 0 or more, below 2^63 ns'),
    ("t_s,up\n1,1\n", {}, 'line 2  t_s  "1"  expected 0: the first row says what holds from the beginning'),
    ("t_s,up\n0,1\n2,0\n2,1\n", {}, 'line 4  t_s  "2"  expected each only once: the row before has the same'),
    ("t_s,up\n0,1\n2,0\n1,1\n", {}, 'line 4  t_s  "1"  expected rows in ascending order'),
    ("t_s,up\n0,yes\n", {}, 'line 2  up  "yes"  expected 1 (up) or 0 (down)'),
    ("t_s,loss\n0,1.5\n", {}, 'line 2  loss  "1.5"  expected a probability in [0, 1]'),
    ("t_s,up\n0,1\n", {"loop": True},
     "line 2    1 row  expected two or more: with loop the last row says where it ends"),
])
def test_a_bad_trace_is_told_with_line_column_and_expectation(tmp_path, text, more, expected):
    spec = trace(tmp_path, text, **more)
    with pytest.raises(ScenarioError) as caught:
        read_trace(spec.file, spec.loop)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{spec.file}: 1 error"
    assert lines[1].strip().startswith(expected)
    assert problem(spec)[0] == "file"


def test_all_mistakes_of_a_trace_are_told_and_a_missing_file_is_one(tmp_path):
    spec = trace(tmp_path, "t_s,up\n0,x\n0,1\n-1,2\n")
    assert problem(spec) == ("file", f'{spec.file}: line 2, up, "x"', "expected 1 (up) or 0 (down) (3 more)")
    gone = LossTraceSpec(tmp_path / "gone.csv")
    assert problem(gone) == ("file", f"{gone.file}: No such file or directory", "expected a CSV file")
    mixed = trace(tmp_path, "t_s,loss\n0,0.5\n", span="pause")
    assert problem(mixed)[0] == "span"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.text(alphabet="t_ms,up\n01.e-#\" ", max_size=40).map(lambda s: s.encode())
       | st.lists(st.tuples(st.integers(-1, 9), st.sampled_from(["0", "1", "x", ""])), max_size=5).map(
           lambda rows: ("t_s,up\n" + "\n".join(f"{t},{u}" for t, u in rows)).encode()), st.booleans())
def test_whatever_a_trace_holds_it_is_read_or_refused(tmp_path, content, loop):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    try:
        steps = read_trace(path, loop)
    except ScenarioError:
        return
    assert steps.times[0] == 0
    assert 0 <= steps.mean() <= 1
