"""Entries of one scheme are told apart by their labels; `training: skip` is the same run, or refused with a reason."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.record.load import load_run
from emul.registry import schemes
from emul.scenario import Scenario, label_of, load, loads
from emul.testing import Ran, run_text
from emul.workers.pool import Workers

# ---- labels ----

TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: SCHEMES
stop: {rounds: 1}
"""


@pytest.mark.parametrize(("more", "entry", "warned"), [
    ("faults: [{node: client1, stage: Update, drop: true}]", "{name: fedbuff, buffer: 2}", True),
    ("faults: [{at: 1 s, node: client1, slow: 2}]", "{name: fedbuff, buffer: 2}", False),
    ("faults: [{node: client1, stage: Update, drop: true}]", "{name: fedbuff, buffer: 2, timeout: 2 s}", False),
    ("faults: [{node: client1, stage: Update, drop: true}]", "fedavg", False),        # waits until fates are known
    ("", "{name: fedbuff, buffer: 2}", False)])
def test_a_long_wait_that_is_not_stated_is_a_warning_where_nodes_fail(more: str, entry: str, warned: bool) -> None:
    text = TEXT.replace("SCHEMES", f"[{entry}]").replace("mode: zero", "mode: measured") + more
    assert loads(text).warnings == ["fedbuff: timeout is not stated: by default 10 min are waited for whoever is lost, "
                                    "which may decide all times"] * warned


@pytest.mark.parametrize(("outage", "warned"), [
    ("outage: {model: bernoulli, p: 0.1}", True), ("outage: none", False),
    ("transport: reliable, outage: {model: bernoulli, p: 0.1}", False)])
def test_so_it_is_where_links_lose_messages_for_good(outage: str, warned: bool) -> None:
    text = TEXT.replace("SCHEMES", "[{name: fedbuff, buffer: 2}]").replace("20 ms", f"20 ms, {outage}")
    assert any("is not stated" in warning for warning in loads(text).warnings) == warned



def of(schemes: str, *sets: str) -> Scenario:
    return loads(TEXT.replace("SCHEMES", schemes), "small", sets, check=False)


def labels(schemes: str, *sets: str) -> list[str]:
    return [label_of(*entry) for entry in of(schemes, *sets).schemes]


def test_a_scheme_that_stands_alone_goes_by_its_name() -> None:
    assert labels("[fedavg, {name: secagg, threshold: 3}]") == ["fedavg", "secagg"]
    assert of("[fedavg]").schemes == [("fedavg", {})]


def test_several_entries_of_a_scheme_go_by_what_differs() -> None:
    assert labels("[fedavg, {name: fedavg, deadline: 2 s, weights: uniform}, "
                  "{name: fedavg, deadline: none, weights: uniform}]") == [
        "fedavg", "fedavg deadline=2s weights=uniform", "fedavg deadline=none weights=uniform"]
    assert labels("[{name: fair_seccogc, s: 1, finish_at: [1, 2]}, {name: fair_seccogc, s: 1, finish_at: [3]}]") == [
        "fair_seccogc finish_at=[1;2]", "fair_seccogc finish_at=[3]"]


def test_a_label_of_its_own_wins_and_the_others_need_none() -> None:
    assert labels("[{name: fedavg, label: patient}, {name: fedavg, deadline: 1 s}]") == ["patient", "fedavg"]


def test_a_label_survives_the_resolved_scenario() -> None:
    there = of("[{name: fedavg, label: patient}, {name: fedavg, deadline: 1 s}, {name: fedavg, deadline: 2 s}]")
    again = loads(there.resolved(), check=False)
    assert again == there
    assert [label_of(*entry) for entry in again.schemes] == ["patient", "fedavg deadline=1s", "fedavg deadline=2s"]


def test_a_path_may_say_the_label() -> None:
    two = "[{name: fedavg, label: slow}, {name: fedavg, label: fast}]"
    assert of(two, "schemes.fast.deadline=1 s").schemes[1] == ("fedavg", {"label": "fast", "deadline": "1 s"})
    with pytest.raises(ScenarioError, match=r'schemes has no "fst"; did you mean "fast"\?'):
        of(two, "schemes.fst.deadline=1 s")


@pytest.mark.parametrize(("schemes", "text"), [
    ("[fedavg, fedavg]", r'schemes\[1\] +"fedavg" +says the same as schemes\[0\]: give one of them a label'),
    ("[{name: fedavg, label: a}, {name: secagg, label: a}]", r'schemes\[1\].label +"a" +schemes\[0\] is called so'),
    ("[secagg, {name: fedavg, label: secagg}]", r'schemes\[1\].label +"secagg" +schemes\[0\] is called so'),
    ("[{name: fedavg, label: 'a,b'}]", r'schemes\[0\].label +"a,b" +expected text of at most 100 characters'),
    ("[{name: fedavg, label: '../up'}]", r"schemes\[0\].label .*expected text"),
    ("[{name: fedavg, label: ''}]", r"schemes\[0\].label .*expected text"),
    ("[{name: fedavg, label: 3}]", r"schemes\[0\].label +3 +expected text"),
])
def test_labels_that_are_unsound_or_not_distinct_are_refused(schemes: str, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        of(schemes)


def test_runs_directories_and_summaries_go_by_label_and_each_run_holds_its_own_entry(tmp_path) -> None:
    two = loads(TEXT.replace("SCHEMES", "[{name: fedavg, label: half}, {name: fedavg, deadline: 3 s}]"),
                sets=["schemes[0].fraction=0.5"])
    half, other = engine.run(two, workers=0, out=tmp_path)
    assert [r.directory.name for r in (half, other)] == ["small-half-1", "small-fedavg-1"]
    assert (half.summary["label"], half.summary["scheme"]) == ("half", "fedavg")
    assert half.summary["parameters"].items() >= {"deadline_s": None, "fraction": 0.5, "weights": "samples"}.items()
    assert (half.summary["parameters_given"], other.summary["parameters_given"]) == (["fraction"], ["deadline_s"])
    assert set(load_run(half.directory).rounds.cohort) == {2}
    for one in (half, other):
        assert engine.replay(one.directory, workers=0) == one.summary["digest"]
    assert [r.scheme for r in engine.run(two, scheme="half", workers=0, out=tmp_path)] == ["half"]


# ---- training: skip ----

JUDGING = {"foolsgold", "median"}           # variants of an oblivious scheme with a rule that is none
QUICK = {"fedavg", "fair_seccogc", "fedbuff", "gossip", "secagg"}


def oblivious() -> list[Any]:
    """Names; those that are not quick are for the slow tests."""
    fit = {name for name in schemes.known() if schemes.find(name).oblivious} - JUDGING
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(fit)]


def happened(ran: Ran) -> list[tuple[object, ...]]:
    return [row for row in ran.rows if row[0] != R.REPORT]


COUNTING = {"heavy_hitters", "histogram"}       # these count values of the data, and train nothing


@pytest.mark.parametrize("scheme", oblivious())
def test_the_run_without_training_is_the_run_but_for_its_models(scheme: str) -> None:
    text = schemes.find(scheme).example
    trained, skipped = run_text(text), run_text(text, "training=skip")
    assert happened(skipped) == happened(trained)
    assert skipped.summary["accuracy"] is None
    assert not skipped.finished.observations
    assert (skipped.models == trained.models) is (scheme in COUNTING)


@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
@pytest.mark.parametrize("scheme", ["fedavg", "fedbuff", "gossip"])
def test_over_connections_of_tcp_the_run_without_training_is_the_run_row_for_row(scheme: str, sharing: str) -> None:
    links = ("links=[{match: '*', latency: 20 ms, bandwidth: 4 Mbit/s, overhead: {preset: ipv4_tcp}, "
             f"sharing: {sharing}, transport: {{tcp: {{buffer: 30 kB}}}}, "
             "outage: {model: bernoulli, p: 0.1, per: packet}}]")
    text = schemes.find(scheme).example
    trained, skipped = run_text(text, links), run_text(text, links, "training=skip")
    assert any(row[0] == R.RESENT for row in trained.rows)
    assert happened(skipped) == happened(trained)


@pytest.mark.parametrize("codec", ["{top_k: {fraction: 0.1}}", "{random_k: {fraction: 0.1}}", "sign", "powersgd",
                                   "{uniform: {bits: 8}}", "{up: fedpaq, down: {uniform: {bits: 4}}}"])
def test_compressed_updates_are_as_long_without_training(codec: str) -> None:
    text, entry = schemes.find("fedavg").example, f"schemes=[{{name: fedavg, compress: {codec}}}]"
    assert happened(run_text(text, entry, "training=skip")) == happened(run_text(text, entry))


@pytest.mark.parametrize(("edit", "said"), [
    ("schemes=[fltrust]", r"schemes\[0\].name  fltrust  training: skip: decides by updates, losses or gradients"),
    ("schemes=[{name: fedavg, aggregate: median}]", r"schemes\[0\].aggregate  median  training: skip: judges updates"),
    ("schemes=[median]", r"schemes\[0\].aggregate  median  training: skip: judges updates by their values"),
    ("schemes=[{name: fedavg, selection: {oort: {count: 2, step: 1 s}}}]",
     r"schemes\[0\].selection  oort  training: skip: chooses by losses or accuracies"),
    ("schemes=[{name: fedavg, selection: {power_of_choice: {count: 2, candidates: 3}}}]",
     r"schemes\[0\].selection  power_of_choice  training: skip"),
    ("schemes=[{name: fedavg, compress: qsgd}]", r"compress.up  qsgd  training: skip: makes codes whose length"),
    ("compute={mode: measured}", r"compute.mode  measured  training: skip: nothing to measure"),
    ("stop.accuracy=0.9", r"stop.accuracy  0.9  training: skip: nothing is evaluated"),
    ("attacks=[{nodes: [client1], data: label_flip}]", r"attacks  training: skip: change what is learned"),
    ("training=skp", r'training  "?skp"?  unknown way')])
def test_what_decides_by_what_was_learned_is_refused(small: Path, edit: str, said: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(small, ["training=skip", edit])
    assert re.search(said, re.sub(r" {2,}", "  ", str(caught.value)))


def test_a_scenario_says_so_and_its_record_is_replayed(small: Path, pools: list[Workers], tmp_path: Path) -> None:
    scenario = load(small, ["training=skip", "fuse=2"])
    assert loads(scenario.resolved()) == scenario
    fedavg, secagg = engine.run(scenario, workers=pools[1], out=tmp_path / "runs")
    for result in (fedavg, secagg):
        assert result.error is None
        assert result.directory is not None
        assert result.summary is not None
        assert engine.replay(result.directory, workers=0) == result.summary["digest"]


@pytest.mark.slow
def test_the_command_prints_a_table_and_a_report_without_accuracies(
        small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from emul import cli

    def emul(*args: str) -> str:
        monkeypatch.setattr("sys.argv", ["emul", *args])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        return capsys.readouterr().out

    assert "fedavg" in emul("run", "small.yaml", "--no-training", "--workers", "0", "--quiet")
    emul("report", "runs/small-fedavg-1", "runs/small-secagg-1")
    compared = emul("compare", "small.yaml", "--set", "training=skip", "--seeds", "0:2", "--workers", "0", "--quiet")
    assert "secagg" in compared


@pytest.mark.parametrize("skip", ["training=run", "training=skip"])
@pytest.mark.parametrize(("wrong", "place", "expected"), [
    ("{name: fedavg, selection: over_select}", "selection", 'unknown selection "over_select"'),
    ("{name: fedavg, selection: {uniform: {count: 99}}}", "selection", "count = 99: expected at most"),
    ("{name: scaffold, selection: {}}", "selection", "expected the name of a selection"),
    ("{name: fedavg, aggregate: medain}", "aggregate", "did you mean"),
    ("{name: fl_private, aggregate: {krum: {f: x}}}", "aggregate", "f = 'x': expected a whole number"),
    ("{name: fedavg, compress: qsdg}", "compress", "did you mean"),
    ("{name: diloco, steps: 0}", "steps", "expected"),
    ("{name: streaming_diloco, codec: nothing}", "codec", "")])
def test_a_wrong_parameter_is_one_error_at_its_place_with_and_without_training(wrong: str, place: str, expected: str,
                                                                              skip: str) -> None:
    text = schemes.find("fedavg").example
    with pytest.raises(ScenarioError) as error:
        loads(text, "scenario", [f"schemes=[{wrong}]", skip])
    problem, = error.value.problems
    assert f"schemes[0].{place}" in problem.place
    assert expected in problem.expected
