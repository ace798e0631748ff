"""What a trace comes to, at a coarser step, and traces made by a model."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.network.models.traceformats import Trace, formatted, parse_trace
from emul.network.models.tracetools import MODELS, generate, resampled, summary

S = 10**9
NEEDED = {"constant": {"rate": "5 Mbit/s"}, "on_off": {"high": "20 Mbit/s", "up": "10 s", "down": "2 s"},
          "random_walk": {"mean": "5 Mbit/s"}, "markov": {"rates": "1 Mbit/s,5 Mbit/s,20 Mbit/s", "hold": "3 s"},
          "sine": {"mean": "10 Mbit/s", "amplitude": "8 Mbit/s"}, "poisson": {"mean": "12 Mbit/s", "length": "20 s"}}


def test_a_summary_is_taken_by_time():
    trace = Trace((0, 4 * S, 5 * S, 9 * S), (8, 0, 0, 24), 10 * S)
    found = summary(trace, [8, 9])
    assert (found.length_s, found.mean_bps, found.least_bps, found.most_bps) == (10.0, 5.6, 0, 24)
    assert found.percentiles_bps == (0, 0, 0, 8, 24)
    assert (found.off, found.on_s, found.off_s) == (0.5, 2.5, 5.0)
    assert found.below == {8: 0.5, 9: 0.9}


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10**6)), min_size=1, max_size=8), st.integers(1, 60))
def test_a_coarser_trace_carries_as_much_in_every_step(chosen, step):
    times, now = [], 0
    for length, _ in chosen:
        times.append(now)
        now += length
    trace = Trace(tuple(times), tuple(rate for _, rate in chosen), now)
    coarse = resampled(trace, step)
    assert coarse.length_ns == now
    fine, rough = trace.service(False), coarse.service(False)
    for begin, rate in zip(coarse.times_ns, coarse.rates_bps, strict=True):
        end = min(begin + step, now)
        work = fine.work_at(end) - fine.work_at(begin)
        assert abs(work - rate * (end - begin)) * 2 <= end - begin          # the mean, rounded to bit/s
    assert abs(rough.work_at(now) - fine.work_at(now)) * 2 <= now


@pytest.mark.parametrize("model", MODELS)
def test_a_model_makes_the_same_trace_from_the_same_seed_and_its_file_says_it(model):
    trace = generate(model, NEEDED[model], 7)
    assert trace == generate(model, NEEDED[model], 7)
    if model not in ("constant", "sine"):
        assert trace != generate(model, NEEDED[model], 8)
    for format in ("csv", "simgrid", *(["mahimahi"] if model == "poisson" else [])):
        again = parse_trace(formatted(trace, format), "t", format)
        assert again.length_ns == trace.length_ns
        assert summary(again).mean_bps == summary(trace).mean_bps
        assert again.service(None if format != "csv" else True).rate_at(7 * S) == trace.service(True).rate_at(7 * S)


def test_models_have_the_means_of_their_laws():
    long = {"length": "10 h"}
    found = summary(generate("on_off", NEEDED["on_off"] | long, 7))
    assert abs(found.off - 2 / 12) < 4 * math.sqrt(2 * (10 / 12) ** 2 * (2 / 12) ** 2 / 3000)   # renewal: 3,000 cycles
    assert 9 < found.on_s < 11
    assert set(generate("markov", NEEDED["markov"], 7).rates_bps) == {1_000_000, 5_000_000, 20_000_000}
    sine = generate("sine", NEEDED["sine"], 7)
    assert summary(sine).mean_bps == pytest.approx(10e6, rel=1e-6)
    assert (min(sine.rates_bps), max(sine.rates_bps)) == (pytest.approx(2e6, rel=1e-2), pytest.approx(18e6, rel=1e-2))
    walk = generate("random_walk", NEEDED["random_walk"] | long, 7).rates_bps
    assert 1_250_000 <= min(walk) < 1_500_000
    assert 19_000_000 < max(walk) <= 20_000_000
    poisson = generate("poisson", NEEDED["poisson"], 7)
    assert abs(len(poisson.stamps_ms) - 20_000) < 4 * math.sqrt(20_000)


@pytest.mark.parametrize(("model", "given", "expected"), [
    ("constant", {}, "rate: is needed by constant"),
    ("constant", {"rat": "1"}, "rat: is not used by constant, which has rate, length"),
    ("constant", {"rate": "3"}, 'rate: "3": expected a bandwidth such as 20 Mbit/s or 2 MB/s: the unit is missing'),
    ("markov", {"rates": "1 Mbit/s", "hold": "1 s"}, "expected two bandwidths or more"),
    ("sine", {"mean": "1 Mbit/s", "amplitude": "2 Mbit/s"}, "amplitude: expected at most the mean"),
    ("poisson", {"mean": "0"}, "mean: expected more than 0"),
    ("poisson", {"mean": "1 Tbit/s", "length": "1 h"}, "expected at most 10000000 packets"),
    ("random_walk", {"mean": "1 Mbit/s", "sigma": "nan"}, 'sigma: "nan": expected a number above 0, below 100')])
def test_a_bad_parameter_is_refused(model, given, expected):
    with pytest.raises(ValueError, match=expected.replace("(", r"\(")):
        generate(model, given, 7)
