"""`emul evaluate`: the summary's accuracy again from the models that a run kept, and on other data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul import engine
from emul.base.errors import ScenarioError
from emul.cli import main
from emul.engine.evaluating import evaluate
from emul.learning import Task
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
    (path / "seal.json").unlink()
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


def replicas(scheme: str, out: Path) -> Path:
    """A run of five peers of a full mesh, each with a model of its own."""
    text = SCENARIO.replace("star, clients: 4", "complete, peers: 5") % (scheme, "")
    result, = engine.run(loads(text), workers=0, out=out)
    assert result.directory is not None
    return result.directory


def test_models_that_differ_have_a_mean_whose_loss_is_none_of_theirs(tmp_path: Path) -> None:
    path = replicas("noloco", tmp_path)
    found, run_ = evaluate(path), emul.load_run(path)
    vectors = [run_.model(f"peer{k}").vector() for k in range(1, 6)]
    assert len({vector.tobytes() for vector in vectors}) == 5
    scenario = loads(SCENARIO.replace("star, clients: 4", "complete, peers: 5") % ("noloco", ""))
    mean = np.mean(np.array(vectors, np.float64), 0).astype(np.float32)
    assert found.mean == Task(scenario.task, 5, scenario.seed).evaluate(mean)
    losses = [one.values["loss"] for one in found.models if one.values]
    assert len(losses) == 5
    # the loss of this network is nearly convex where the models are: their mean is better than they are on average
    assert found.mean["loss"] < sum(losses) / 5
    assert found.mean["loss"] not in losses


def test_replicas_that_are_equal_have_the_values_of_each_as_those_of_their_mean(tmp_path: Path) -> None:
    found = evaluate(replicas("diloco", tmp_path))
    assert len(found.models) == 5
    assert {tuple(one.values.items()) for one in found.models if one.values} == {tuple((found.mean or {}).items())}


def test_one_model_has_no_mean_nor_have_models_that_their_nodes_evaluate(made: tuple[Path, dict[str, Any]],
                                                                         tmp_path: Path) -> None:
    assert evaluate(made[0]).mean is None
    assert evaluate(run("fedper", tmp_path)[0]).mean is None


def test_the_command_prints_the_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    path = replicas("noloco", tmp_path)
    monkeypatch.setattr("sys.argv", ["emul", "evaluate", str(path)])
    with pytest.raises(SystemExit):
        main()
    mean = evaluate(path).mean
    assert mean is not None
    assert f"mean of 5 models, round 3: accuracy {mean['accuracy']:.6g}  loss {mean['loss']:.6g}\n" in (
        capsys.readouterr().out)


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
