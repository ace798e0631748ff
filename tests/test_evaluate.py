"""`emul evaluate`: the summary's accuracy again from the models that a run kept, and on other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import emul
from emul import engine
from emul.base.errors import ScenarioError
from emul.cli import main
from emul.engine.evaluating import evaluate
from emul.record.journal import RecordError
from emul.scenario import loads

SCENARIO = """
emul: 1
name: evaluated
seed: 5
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: digits_classic,
       solver: {sgd: {lr: 0.1, steps: 2, batch: 8}}}
compute: {mode: zero}
schemes: [%s]
stop: {rounds: 3}
%s
"""


def run(scheme: str, out: Path, more: str = "", workers: Any = 0) -> tuple[Path, dict[str, Any]]:
    result, = engine.run(loads(SCENARIO % (scheme, more)), workers=workers, out=out)
    assert result.error is None
    assert result.directory is not None
    assert result.summary is not None
    return result.directory, result.summary


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return run("fedavg", tmp_path_factory.mktemp("evaluated"), "record: {models: 2}")


@pytest.mark.parametrize(("scheme", "more"), [
    ("fedavg", ""), ("{name: secagg, threshold: 3}", ""), ("local", ""), ("fedper", ""),
    ("{name: ifca, clusters: 2}", ""),
    ("fedavg", "evaluation: {scope: per_client}"), ("fedprox", "evaluation: {scope: per_client}"),
    ("local", "attacks: [{nodes: [client2], data: label_random}]")])
def test_the_accuracy_of_the_summary_comes_again_to_the_bit(scheme: str, more: str, tmp_path: Path,
                                                            pools: list[Any]) -> None:
    path, summary = run(scheme, tmp_path, more, pools[1])
    found = evaluate(path)
    assert found.expected == summary["accuracy"]
    assert found.accuracy == summary["accuracy"]
    assert found.round == 3


def test_what_a_scheme_measures_with_more_than_its_model_is_said_not_to_be_repeated(tmp_path: Path) -> None:
    path, _ = run("{name: fedproto, predict: nearest}", tmp_path)
    found = evaluate(path)
    assert {one.node: one.values for one in found.models}["client1"] is None
    assert found.expected is None


def test_a_round_that_was_kept_has_the_accuracy_of_its_row(made: tuple[Path, dict[str, Any]]) -> None:
    rows = emul.load_run(made[0]).rounds.set_index("round")
    second = evaluate(made[0], round_=2)
    assert second.accuracy == rows.accuracy[2]
    assert second.expected is None
    assert second.models[0].values == {"accuracy": rows.accuracy[2], "loss": rows.loss[2]}
    with pytest.raises(RecordError, match=r"it has kept no model of round 1; with record: \{models: 1\} in its"):
        evaluate(made[0], round_=1)


def test_a_run_that_evaluates_seldom_has_its_last_model_evaluated(tmp_path: Path) -> None:
    path, summary = run("fedavg", tmp_path, "evaluation: {every: 2}")
    found = evaluate(path)
    assert (found.round, found.expected) == (3, None)           # the summary's is of round 2
    kept = evaluate(run("fedavg", tmp_path, "evaluation: {every: 2}\nrecord: {models: 2}")[0])
    assert (kept.round, kept.accuracy, kept.expected) == (2, summary["accuracy"], summary["accuracy"])


def test_a_run_that_a_gpu_made_is_evaluated_without_one_and_that_is_said(tmp_path: Path,
                                                                        caplog: pytest.LogCaptureFixture) -> None:
    path, summary = run("fedavg", tmp_path)
    scenario = path / "scenario.resolved.yaml"
    scenario.write_text(scenario.read_text().replace("mode: zero", "mode: zero, device: cuda"))
    assert "device: cuda" in scenario.read_text()
    assert evaluate(path).accuracy == summary["accuracy"]
    assert [record.message for record in caplog.records if "GPU" in record.message] == [
        f"{path}: was made on a GPU, and torch finds none here: computed on the CPU, which rounds otherwise"]


def test_other_data_give_other_values_or_say_why_they_cannot(made: tuple[Path, dict[str, Any]]) -> None:
    path, summary = made
    found = evaluate(path, "{set: digits, normalise: {mean: 0.5, std: 0.1}}")
    assert found.expected is None
    assert found.accuracy != summary["accuracy"]
    assert evaluate(path, "digits").accuracy == summary["accuracy"]
    with pytest.raises(ScenarioError, match="unknown data set"):
        evaluate(path, "digitz")


def test_the_command_prints_it_and_fails_if_it_differs(made: tuple[Path, dict[str, Any]], tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    def emul_(*args: str) -> int:
        monkeypatch.setattr("sys.argv", ["emul", "evaluate", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    path, summary = made
    assert emul_(str(path)) == 0
    assert capsys.readouterr().out.endswith(f"accuracy {summary['accuracy']!r}, as in the summary\n")
    assert emul_(str(path), "--json", "--round", "2") == 0
    assert json.loads(capsys.readouterr().out)["round"] == 2
    other, changed = run("fedavg", tmp_path)
    monkeypatch.setattr("emul.workers.evaluations.by_scenario", lambda *of: {"accuracy": 0.125})
    assert emul_(str(other)) == 1
    assert f"but {changed['accuracy']!r} in the summary" in capsys.readouterr().out
