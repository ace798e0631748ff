"""Latencies that vary: laws and moments, netem's tables, files, bounds, common random numbers."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network import LinkRule, TopologySpec, build
from emul.network.models.latency import (
    EmpiricalSpec,
    JitterSpec,
    LatencyTraceSpec,
    LognormalSpec,
    latency,
    law,
    least_ns,
    problem,
    read_empirical,
    typical_ns,
)

MS = 10**6
N = 20_000


def draws(spec, n=N):
    model = latency(spec, 7, "a", "b")
    return np.array([model.draw(1 + k // 100, k % 100) for k in range(n)], float)


def quantiles(spec, n=200_000):
    q = law(spec).quantile
    return np.array([q((i + 0.5) / n) for i in range(n)])


@pytest.mark.parametrize(("name", "mean", "std", "low", "high"), [
    ("pareto", -0.033, 0.820, -0.667, 4.0), ("paretonormal", -0.025, 0.834, -1.42, 3.92), ("normal", 0, 1, -3.67, 3.67),
    ("uniform", 0, 1 / sqrt(3), -1, 1)])
def test_the_tables_have_netems_moments_and_ends(name, mean, std, low, high):
    """Spec of the network, 2.2: moments of the clipped tables, in units of the jitter."""
    x = (quantiles(JitterSpec(name, 100 * MS, 10 * MS)) - 100 * MS) / (10 * MS)
    assert x.mean() == pytest.approx(mean, abs=1e-3)
    assert x.std() == pytest.approx(std, abs=2e-3)
    assert (x.min(), x.max()) == pytest.approx((low, high), abs=5e-3)
    assert law(JitterSpec(name, 100 * MS, 10 * MS)).mean == pytest.approx(100 * MS + 10 * MS * x.mean(), rel=1e-5)


@pytest.mark.parametrize("spec", [
    JitterSpec("uniform", 20 * MS, 5 * MS), JitterSpec("normal", 50 * MS, 5 * MS), LognormalSpec(20 * MS, 0.5),
    JitterSpec("pareto", 50 * MS, 9 * MS), JitterSpec("paretonormal", 50 * MS, 9 * MS)])
def test_draws_have_the_mean_and_the_median_of_the_law(spec):
    x, model = draws(spec), latency(spec, 7, "a", "b")
    assert abs(x.mean() - model.mean_ns) / (x.std() / sqrt(N)) < 4
    assert abs((x < model.typical_ns).mean() - 0.5) / (0.5 / sqrt(N)) < 4
    assert x.min() >= model.least_ns == least_ns(spec)
    assert typical_ns(spec) == model.typical_ns


def test_a_lognormal_law_has_its_median_and_its_sigma():
    x = np.log(draws(LognormalSpec(20 * MS, 0.5)) / (20 * MS))
    assert abs(x.mean()) / (0.5 / sqrt(N)) < 4
    assert abs(x.std() / 0.5 - 1) / sqrt(1 / (2 * N)) < 4
    assert law(LognormalSpec(20 * MS, 0.5)).mean == pytest.approx(20 * MS * exp(0.125))


@pytest.mark.parametrize(("spec", "least"), [
    (JitterSpec("uniform", 20 * MS, 5 * MS), 15 * MS), (JitterSpec("uniform", 5 * MS, 20 * MS), 0),
    (JitterSpec("uniform", 5 * MS, 20 * MS, min_ns=MS), MS), (JitterSpec("pareto", 30 * MS, 9 * MS), 24 * MS),
    (JitterSpec("normal", 10 * MS, 20 * MS), 0), (LognormalSpec(20 * MS, 0.5), 0),
    (LognormalSpec(20 * MS, 0.5, min_ns=12 * MS), 12 * MS), (7, 7), (None, 0)])
def test_the_least_latency_is_what_a_draw_can_fall_to(spec, least):
    assert least_ns(spec) == least
    if not isinstance(spec, int | None):
        x = draws(spec, 5000)
        assert x.min() >= least
        assert (x.min() == least) or x.min() < least + 2 * MS or isinstance(spec, LognormalSpec)


def test_a_cut_law_keeps_its_minimum_for_all_that_would_be_less():
    x = draws(JitterSpec("normal", 10 * MS, 10 * MS))
    share = (x == 0).mean()
    assert abs(share - 0.158655) / sqrt(0.158655 * 0.841345 / N) < 4


def test_constants_stay_plain_integers():
    assert latency(None, 7, "a", "b") == 0
    assert latency(20 * MS, 7, "a", "b") == 20 * MS
    assert (typical_ns(None), typical_ns(5)) == (0, 5)


def test_a_draw_depends_on_seed_ends_round_and_number_only():
    def some(seed, src, dst):
        model = latency(LognormalSpec(20 * MS, 0.5), seed, src, dst)
        return tuple(model.draw(t, k) for t in range(4) for k in range(4))

    assert some(7, "a", "b") == some(7, "a", "b")
    assert len(set(some(7, "a", "b"))) == 16
    assert len({some(*key) for key in [(7, "a", "b"), (8, "a", "b"), (7, "b", "a"), (7, "a", "c")]}) == 4


@given(st.sampled_from(["uniform", "normal", "pareto", "paretonormal"]), st.integers(0, 10**12), st.integers(0, 10**12),
       st.integers(0, 10**12), st.integers(0, 2**31), st.integers(0, 2**31))
def test_no_draw_is_below_the_least(name, mean, jitter, least, round, k):
    model = latency(JitterSpec(name, mean, jitter, least), 7, "a", "b")
    assert model.draw(round, k) >= model.least_ns >= least
    assert model.typical_ns >= model.least_ns


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.floats(0, 1, exclude_min=True, exclude_max=True),
       st.sampled_from([JitterSpec(name, 10**8, 10**7) for name in ("uniform", "normal", "pareto", "paretonormal")]
                       + [LognormalSpec(10**8, 0.7)]))
def test_quantiles_do_not_fall(u, v, spec):
    low, high = sorted((u, v))
    q = law(spec).quantile
    assert q(low) <= q(high)
    assert law(spec).least <= q(low) * (1 + 1e-12)


# --- in a network ---------------------------------------------------------------------------------------------------

def test_a_network_routes_by_medians_and_promises_only_the_least():
    rules = [LinkRule("*", latency_ns=JitterSpec("uniform", 20 * MS, 5 * MS)),
             LinkRule("client1->server", latency_ns=LognormalSpec(8 * MS, 0.3, min_ns=2 * MS)),
             LinkRule("client2->server", latency_ns=9 * MS)]
    network = build(TopologySpec(generator="star", clients=3), rules, 7)
    assert network.latency_ns(1, 2) == 2 * MS + 15 * MS             # through the server
    assert [network.out_latency_ns(v) for v in (0, 1, 2, 3)] == [15 * MS, 2 * MS, 9 * MS, 15 * MS]
    assert network.latency_ns(2, 0) == 9 * MS


# --- files ----------------------------------------------------------------------------------------------------------

def written(tmp_path, text):
    path = tmp_path / "latency.csv"
    path.write_text(text)
    return EmpiricalSpec(path)


def test_measurements_are_drawn_as_often_as_they_were_measured(tmp_path):
    spec = written(tmp_path, "latency_ms\n30\n10\n20\n10\n")
    x = draws(spec)
    for value, share in ((10, 0.5), (20, 0.25), (30, 0.25)):
        assert abs((x == value * MS).mean() - share) / sqrt(share * (1 - share) / N) < 4
    assert (least_ns(spec), law(spec).mean) == (10 * MS, 17.5 * MS)


def test_quantiles_are_joined_by_lines(tmp_path):
    spec = written(tmp_path, "quantile,latency\n0,10 ms\n0.5,20 ms\n1,60 ms\n")
    q = law(spec)
    assert [q.quantile(u) for u in (0.0, 0.25, 0.5, 0.75, 1.0)] == [10 * MS, 15 * MS, 20 * MS, 40 * MS, 60 * MS]
    assert q.mean == pytest.approx(0.5 * 15 * MS + 0.5 * 40 * MS)
    x = draws(spec)
    assert abs(x.mean() - q.mean) / (x.std() / sqrt(N)) < 4


def test_a_file_that_changes_is_read_again(tmp_path):
    spec = written(tmp_path, "latency_ms\n30\n")
    assert least_ns(spec) == 30 * MS
    written(tmp_path, "latency_ms\n5.5\n")
    assert least_ns(spec) == 5_500_000


@pytest.mark.parametrize(("text", "expected"), [
    ("latency\n30\n", 'line 2  latency  "30"  expected a duration such as 20 ms or 1 h: the unit is missing'),
    ("ms\n30\n", "line 1    ms  expected a header with the columns latency_ms (or another unit) or"),
    ("latency_ms\nnan\n", 'line 2  latency_ms  "nan"  expected a number'),
    ("quantile,latency_ms\n0,1\n0.5,3\n", "line 3  quantile  0.5  expected 1 in the last row"),
    ("quantile,latency_ms\n0.1,1\n1,3\n", 'line 2  quantile  "0.1"  expected 0: the first row says what holds from'),
    ("quantile,latency_ms\n0,5\n1,3\n", "line 3  latency_ms  3000000  expected no less than in the row before")])
def test_a_bad_file_is_told_with_line_column_and_expectation(tmp_path, text, expected):
    spec = written(tmp_path, text)
    with pytest.raises(ScenarioError) as caught:
        read_empirical(spec.file)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"{spec.file}: 1 error"
    assert lines[1].strip().startswith(expected)
    assert problem(spec)[0] == "file"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=60) | st.lists(st.tuples(st.floats(), st.floats()), max_size=4).map(
    lambda rows: ("quantile,latency_ms\n" + "\n".join(f"{q},{v}" for q, v in rows)).encode()))
def test_whatever_a_file_holds_it_is_read_or_refused(tmp_path, content):
    path = tmp_path / "fuzz.csv"
    path.write_bytes(content)
    try:
        found = read_empirical(path)
    except ScenarioError:
        return
    assert found.least <= found.mean * (1 + 1e-12)


@pytest.mark.parametrize(("spec", "expected"), [
    (JitterSpec("gamma", 1, 1), ("distribution", "'gamma'", "expected one of uniform, normal, pareto, paretonormal")),
    (JitterSpec("normal", -1, 1), ("mean", "-1", "expected a duration, 0 or more")),
    (JitterSpec("normal", 1, True), ("jitter", "True", "expected a duration, 0 or more")),
    (LognormalSpec(1, float("nan")), ("sigma", "nan", "expected a number above 0, at most 20")),
    (LognormalSpec(1, 0.5, min_ns=-3), ("min", "-3", "expected a duration, 0 or more")),
    (LognormalSpec(1, 0.5), None)])
def test_a_spec_that_means_nothing_is_named(spec, expected):
    assert problem(spec) == expected


PING = "64 bytes from 10.0.0.1: icmp_seq=1 ttl=64 time=10 ms\n64 bytes from 10.0.0.1: icmp_seq=2 ttl=64 time=40.5 ms\n"


@pytest.mark.parametrize("text", ["latency_ms\n5\n20.25\n", "seq,latency\n1,5 ms\n2,20.25 ms\n", "rtt_ms\n10\n40.5\n",
                                  "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\n" + PING + "\n--- statistics ---\n",
                                  "quantile;rtt_ms\n0;10\n100%;40,5\n"])
def test_round_trips_count_half_and_further_columns_nothing(tmp_path, text):
    read = law(written(tmp_path, text))
    assert (read.least, read.quantile(0.99999)) == (5 * MS, pytest.approx(20.25 * MS, rel=1e-4))


@pytest.mark.parametrize("text", [
    "t_s,latency_ms\n0,10\n1,20\n3,5\n", "timestamp;rtt_ms\n1700000000 s;20\n1700000001 s;40,0\n1700000003 s;10\n",
    "".join(f"[{1700000000 + t}.250000] 64 bytes from 10.0.0.1: icmp_seq={t} ttl=64 time={ms} ms\n"
            for t, ms in ((0, 20), (1, 40), (3, 10)))])
def test_a_latency_over_time_is_that_of_the_last_row(tmp_path, text):
    for loop, later in ((False, 5), (True, 10)):
        found = latency(LatencyTraceSpec(written(tmp_path, text).file, loop), 7, "a", "b")
        assert [found.latency_at(round(t * 10**9)) // MS for t in (0, 0.9, 1, 2.9, 3)] == [10, 10, 20, 20, later]
        assert (found.least_ns, found.typical_ns) == (later * MS if not loop else 10 * MS, 10 * MS)
    assert latency(LatencyTraceSpec(written(tmp_path, text).file, min_ns=15 * MS), 7, "a", "b").least_ns == 15 * MS


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_the_end_of_a_transmission_decides_a_latency_over_time_and_nothing_overtakes(tmp_path, sharing):
    spec = LatencyTraceSpec(written(tmp_path, "t_s,latency_ms\n0,500\n1,20\n3,50\n").file)
    rules = [LinkRule("*", latency_ns=spec, bandwidth_bps=8_000_000, sharing=sharing)]
    network = build(TopologySpec(generator="star", clients=2), rules, 7)
    assert network.parameters(1, 0).latency_ns == spec
    link = network.link(1, 0)
    assert link.latency_ns == 20 * MS                           # the kernel looks ahead that far
    if sharing == "maxmin":
        assert [link.enter(t * 10**9, 1, 0)[1] for t in (0, 1, 5)] == [500 * MS, 20 * MS, 50 * MS]
        return
    for size in (900_000, 50_000, 100_000, 3_000_000):         # end at 0.9, 0.95, 1.05 and 4.05 s
        link.offer(0, size, size, 0)
    found = []
    while (due := link.next_change()) is not None:
        found += [(item, due // MS) for item, *_ in link.advance(due)]
    assert found == [(900_000, 1400), (50_000, 1450), (100_000, 1450), (3_000_000, 4100)]
    assert list(network.realised(10**10)) == []                # a trace is no draw


@pytest.mark.parametrize(("text", "more", "expected"), [
    (PING, {}, "expected what ping -D prints, or CSV"), ("t_s,latency_ms\n0,5\n0,6\n", {}, "each only once"),
    ("t_s,latency_ms\n0,5\n", {"loop": True}, "expected two or more"), ("latency_ms\n5\n", {}, "expected a header")])
def test_a_bad_latency_over_time_is_refused(tmp_path, text, more, expected):
    assert expected in problem(LatencyTraceSpec(written(tmp_path, text).file, **more))[2]
