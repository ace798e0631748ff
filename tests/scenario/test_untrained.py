"""`training: skip`: the same run without what is learned, or a refusal that says what decides by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.registry import schemes
from emul.scenario import load, loads
from emul.testing import Ran, run_text
from emul.workers.pool import Workers

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
        assert engine.replay(result.directory, workers=pools[0]) == result.summary["digest"]


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
