"""The keys of `outage` and `latency`: what they stand for, back to YAML, and what is said of mistakes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from emul.base.errors import ScenarioError
from emul.network import OutageSpec
from emul.network.models.latency import EmpiricalSpec, JitterSpec, LognormalSpec
from emul.network.models.outages import FadingSpec, GilbertSpec, LossTraceSpec, OnOffSpec
from emul.scenario import loads

MS = 10**6
HEAD = """emul: 1
name: small
seed: 1
topology: {generator: star, clients: 2}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 5, batch: 32}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 3}
"""


def scenario(key: str, value: str, base: Path | None = None, check: bool = False):
    return loads(HEAD + f"links:\n  - {{match: '*', {key}: {value}}}\n", base=base, check=check)


BASE = Path("/base")


@pytest.mark.parametrize(("text", "spec"), [
    ("{model: bernoulli, p: 30%, per: packet}", OutageSpec(0.3, "packet")),
    ("{model: bernoulli, p: 0.3, per: slot, slot: 1 s, span: any_slot}",
     OutageSpec(0.3, "slot", 10**9, span="any_slot")),
    ("{model: gilbert, p: 0.05, r: 0.25}", GilbertSpec(0.05, 0.25)),
    ("{model: gilbert, p: 0.3}", GilbertSpec(0.3, 0.7)),
    ("{model: gilbert, p: 0.3, r: 0.2, 1-h: 0.9, per: round}", GilbertSpec(0.3, 0.2, 0.9, per="round")),
    ("{model: gemodel, p: 0.02, r: 0.2, 1-h: 80%, 1-k: 1%, per: slot, slot: 10 ms, span: pause}",
     GilbertSpec(0.02, 0.2, 0.8, 0.01, "slot", 10 * MS, span="pause")),
    ("{model: gilbert_elliott, p: 0.02, start: stationary}", GilbertSpec(0.02, 0.98, start="stationary")),
    ("{model: on_off, up: 10 s, down: 2 s}", OnOffSpec(10 * 10**9, 2 * 10**9)),
    ("{model: on_off, up: 10 s, down: 2 s, start: up, span: pause}",
     OnOffSpec(10 * 10**9, 2 * 10**9, "up", "pause")),
    ("{model: fading, coherence: 50 ms, snr: 20 dB, rate: 20 Mbit/s, bandwidth: 10 MHz}",
     FadingSpec(50 * MS, 100.0, 2.0)),
    ("{model: fading, coherence: 50 ms, snr: 10, spectral_efficiency: 1.5, span: any_slot}",
     FadingSpec(50 * MS, 10.0, 1.5, "any_slot")),
    ("{model: trace, file: up.csv}", LossTraceSpec(BASE / "up.csv")),
    ("{model: trace, file: ../up.csv, loop: true, span: pause}", LossTraceSpec(Path("/up.csv"), True, "pause")),
    ("none", "none"), ("{model: bernoulli, p: 0}", "none"),
])
def test_an_outage_is_what_it_says_and_comes_back_from_yaml(text, spec):
    found = scenario("outage", text, BASE)
    assert found.link_rules[0].outage == spec
    assert loads(found.resolved(), check=False) == found


@pytest.mark.parametrize(("text", "spec"), [
    ("20 ms", 20 * MS), ("0", 0),
    ("{distribution: uniform, mean: 20 ms, jitter: 5 ms}", JitterSpec("uniform", 20 * MS, 5 * MS)),
    ("{distribution: paretonormal, mean: 20 ms, jitter: 5 ms, min: 1 ms, reorder: true}",
     JitterSpec("paretonormal", 20 * MS, 5 * MS, MS, True)),
    ("{distribution: lognormal, median: 20 ms, sigma: 0.5, reorder: false}", LognormalSpec(20 * MS, 0.5)),
    ("{distribution: empirical, file: rtt.csv, min: 2 ms}", EmpiricalSpec(BASE / "rtt.csv", 2 * MS)),
])
def test_a_latency_is_what_it_says_and_comes_back_from_yaml(text, spec):
    found = scenario("latency", text, BASE)
    assert found.link_rules[0].latency_ns == spec
    assert loads(found.resolved(), check=False) == found


@pytest.mark.parametrize(("key", "text", "expected"), [
    ("outage", "{model: gilbret, p: 1}", 'outage.model  "gilbret"  unknown model; did you mean "gilbert"?'),
    ("outage", "{model: gilbert}", "outage.p  missing  is needed by model: gilbert"),
    ("outage", "{model: gilbert, p: 0.1, 1-k: 0.1}", "outage.1-k  0.1  is not used by model: gilbert"),
    ("outage", "{model: gilbert, p: 0.1, 1-h: 1.1}", "outage.1-h  1.1  expected a probability in [0, 1]"),
    ("outage", "{model: gilbert, p: 0.1, start: up}", 'outage.start  "up"  expected one of good, stationary'),
    ("outage", "{model: bernoulli, p: 0.1, span: pause}", 'outage.span  "pause"  is used only with per: slot'),
    ("outage", "{model: bernoulli, p: 0.1, per: round, slot: 1 s}", 'outage.slot  "1 s"  is used only with per: slot'),
    ("outage", "{model: on_off, up: 10 s}", "outage.down  missing  is needed by model: on_off"),
    ("outage", "{model: on_off, up: 10 s, down: 2 s, per: slot}", 'outage.per  "slot"  is not used by model: on_off'),
    ("outage", "{model: on_off, up: 0, down: 2 s}", "outage.up  0  expected more than 0"),
    ("outage", "{model: fading, coherence: 1 s, snr: 10 dB}", "outage  missing  expected spectral_efficiency, or rate "
     "and bandwidth: what the channel is to carry"),
    ("outage", "{model: fading, coherence: 1 s, snr: ten, spectral_efficiency: 2}",
     'outage.snr  "ten"  expected a ratio such as 10 dB or 10'),
    ("outage", "{model: fading, coherence: 1 s, snr: 1, rate: 1 Mbit/s, bandwidth: 10}",
     "outage.bandwidth  10  expected the width of a channel such as 20 MHz"),
    ("outage", "{model: trace}", "outage.file  missing  is needed by model: trace"),
    ("outage", "{model: trace, file: x, loop: 1}", "outage.loop  1  expected true or false"),
    ("latency", "20", "latency  20  expected a duration such as 20 ms or 1 h: the unit is missing"),
    ("latency", "{distribution: gauss}", 'latency.distribution  "gauss"  unknown distribution; there are: uniform, '
     "normal, pareto, paretonormal, lognormal, empirical, trace"),
    ("latency", "{distribution: normal, mean: 1 ms}", "latency.jitter  missing  is needed by distribution: normal"),
    ("latency", "{distribution: normal, mean: 1 ms, jitter: 1 ms, sigma: 1}",
     "latency.sigma  1  is not used by distribution: normal"),
    ("latency", "{distribution: lognormal, median: 1 ms, sigma: .nan}",
     "latency.sigma  nan  expected a number above 0, at most 20"),
    ("latency", "{distribution: normal, mean: 1 ms, jitter: 1 ms, meen: 1}",
     'latency.meen  1  unknown key; did you mean "mean"?'),
])
def test_each_mistake_is_told_with_its_place_and_what_is_expected(key, text, expected):
    with pytest.raises(ScenarioError) as caught:
        scenario(key, text)
    problem, = caught.value.problems
    assert problem.line == 10
    assert f"{problem.place}  {problem.found}  {problem.expected}" == f"links[0].{expected}"


@pytest.mark.parametrize(("key", "text", "place", "expected"), [
    ("outage", "{model: trace, file: t.csv}", "links[0].outage.file", "expected 1 (up) or 0 (down)"),
    ("latency", "{distribution: empirical, file: t.csv}", "links[0].latency.file", "expected a header with the"),
])
def test_the_file_of_a_trace_is_checked_where_it_is_named(tmp_path, key, text, place, expected):
    (tmp_path / "t.csv").write_text("t_s,up\n0,1\n5,maybe\n")
    with pytest.raises(ScenarioError) as caught:
        scenario(key, text, tmp_path, check=True)
    problem, = caught.value.problems
    assert (problem.place, problem.line) == (place, 10)
    assert str(tmp_path / "t.csv") in problem.found
    assert problem.expected.startswith(expected)


def test_scenarios_with_every_model_check(tmp_path):
    (tmp_path / "t.csv").write_text("t_s,up\n0,1\n5,0\n")
    (tmp_path / "l.csv").write_text("latency_ms\n3\n")
    for key, text in (("outage", "{model: trace, file: t.csv}"), ("latency", "{distribution: empirical, file: l.csv}"),
                      ("outage", "{model: on_off, up: 10 s, down: 2 s}"), ("outage", "{model: gemodel, p: 0.1}")):
        assert scenario(key, text, tmp_path, check=True).warnings == []


NAMES = st.sampled_from(["model", "p", "r", "1-h", "1-k", "per", "slot", "span", "start", "up", "down", "coherence",
                         "snr", "rate", "bandwidth", "spectral_efficiency", "file", "loop", "distribution", "mean",
                         "jitter", "median", "sigma", "min", "reorder"])
WORDS = st.sampled_from(["bernoulli", "gilbert", "gemodel", "on_off", "fading", "trace", "slot", "packet", "pause",
                         "up", "stationary", "10 dB", "20 MHz", "1 s", "2 ms", "0", "none", "lognormal", "normal",
                         "empirical", "1e400 dB", "\0", "3 Mbit/s", "/"])
VALUES = WORDS | st.floats() | st.integers(-2, 3) | st.booleans() | st.none() | st.lists(WORDS, max_size=1)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["outage", "latency"]), st.dictionaries(NAMES, VALUES, max_size=6) | VALUES,
       st.sampled_from([{}, {"model": "gilbert", "p": 0.1}, {"model": "on_off", "up": "1 s", "down": "2 s"},
                        {"model": "fading", "coherence": "1 s", "snr": 3}, {"distribution": "normal", "mean": "1 s"}]))
def test_whatever_stands_there_it_is_a_scenario_or_refused(key, value, more):
    if isinstance(value, dict):
        value = {**value, **more}
    out = io.StringIO()
    try:
        YAML(typ="safe", pure=True).dump({"links": [{"match": "*", key: value}]}, out)
    except Exception:
        return
    try:
        found = loads(HEAD + out.getvalue(), check=False)
    except ScenarioError as caught:
        error = caught
    else:
        again = loads(found.resolved(), check=False)
        assert again == found
        assert again.resolved() == found.resolved()
        return
    assert len(str(error).splitlines()) == len(error.problems) + 1
