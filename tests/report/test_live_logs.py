"""`emul run --log`: what other tools are told while a run goes is what an export of it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from test_export import histories, records

from emul import engine
from emul.record.load import RunTables, load_run
from emul.report import export
from emul.report.export import ExportError, Scalar
from emul.report.live import loggers
from emul.report.live.loggers import logger
from emul.scenario import loads

SCENARIO = """
emul: 1
name: logged
seed: 3
topology: {generator: star, clients: 3}
links:
- {match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}
- {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}, local]
stop: {rounds: 4}
"""


class Noted:
    """A log that keeps what it is told."""

    all: ClassVar[dict[str, Noted]] = {}

    def __init__(self, directory: Path, where: str, name: str):
        self.where, self.found, self.closed = where, list[Scalar](), False
        Noted.all[name.partition("-")[0]] = self

    def add(self, found: Sequence[Scalar]) -> None:
        self.found += found

    def close(self, run: RunTables) -> None:
        assert run.summary["rounds"] == 4
        self.closed = True


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> dict[str, Noted]:
    monkeypatch.setitem(loggers.KINDS, "mlflow", Noted)
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    Noted.all.clear()
    return Noted.all


def run(out: Path, *said: str) -> dict[str, Path]:
    results = engine.run(loads(SCENARIO), workers=0, out=out, companions=[logger(one) for one in said])
    assert [result.error for result in results] == [None, None]
    return {result.scheme: result.directory for result in results if result.directory is not None}


def test_all_that_an_export_has_is_logged_once(noted: dict[str, Noted], tmp_path: Path) -> None:
    for scheme, path in run(tmp_path, "mlflow=here").items():
        log = noted[scheme]
        assert (log.where, log.closed) == ("here", True)
        assert len({(name, number) for name, number, *_ in log.found}) == len(log.found)
        counts = ("messages", "payload_bytes", "wire_bytes", "mb")          # of a round, known when all is over
        expected = {one[:3]: one[3] for one in export.scalars(load_run(path)) if one[0].split("/")[0] not in counts}
        assert {one[:3]: one[3] for one in log.found if one[0].split("/")[0] != "mb"} == expected


def test_a_run_that_is_logged_has_the_digest_of_one_that_is_not(noted: dict[str, Noted], tmp_path: Path) -> None:
    one, other = run(tmp_path / "a", "mlflow"), run(tmp_path / "b")
    for scheme in one:
        digests = [json.loads((path / "summary.json").read_text())["digest"] for path in (one[scheme], other[scheme])]
        assert digests[0] == digests[1]


def test_a_log_that_fails_is_said_once_and_the_run_goes_on(noted: dict[str, Noted], tmp_path: Path,
                                                           monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    def broken(self: Noted, found: Sequence[Scalar]) -> None:
        raise ConnectionError("the server has gone")

    monkeypatch.setattr(Noted, "add", broken)
    run(tmp_path, "mlflow")
    assert capsys.readouterr().err.count("warning: nothing more is logged: ConnectionError: the server has gone") == 2


def test_an_unknown_kind_and_a_missing_package_are_said_before_anything_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExportError, match=r"^--log tensorbord: expected one of tensorboard, mlflow, wandb, with "):
        logger("tensorbord=x")
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ExportError, match=r"^--log mlflow needs a package: install emul\[mlflow\]$"):
        logger("mlflow")


def test_tensorboard_reads_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: install emul[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = run(tmp_path, f"tensorboard={tmp_path / 'tb'}")["fedavg"]
    reading = EventAccumulator(str(tmp_path / "tb" / export.title(load_run(path))))
    reading.Reload()
    seen = load_run(path).rounds.dropna(subset=["accuracy"])
    assert [e.step for e in reading.Scalars("accuracy")] == seen["round"].tolist()
    assert [e.value for e in reading.Scalars("accuracy")] == pytest.approx(seen.accuracy.tolist())


def test_mlflow_reads_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed: install emul[mlflow]")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")       # newer versions want a database unless told
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "store").as_uri()
    path = run(tmp_path, f"mlflow={uri}")["fedavg"]
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("logged")
    found = next(one for one in client.search_runs([experiment.experiment_id]) if one.data.tags["label"] == "fedavg")
    assert (found.info.status, found.data.params["stop/rounds"]) == ("FINISHED", "4")
    seen = load_run(path).rounds.dropna(subset=["accuracy"])
    history = client.get_metric_history(found.info.run_id, "accuracy")
    assert [(m.step, m.value) for m in history] == list(zip(seen["round"], seen.accuracy, strict=True))


def test_wandb_reads_what_was_logged(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: install emul[wandb]")
    path = run(tmp_path, f"wandb={tmp_path / 'wb'}")["fedavg"]
    found = dict(map(read, (tmp_path / "wb" / "wandb").glob("offline-run-*")))
    assert len(found) == 2                                      # a run for each scheme
    seen = load_run(path).rounds.dropna(subset=["accuracy"])
    history = [row for row in found[export.title(load_run(path))] if "accuracy" in row]
    assert [(row["round"], row["accuracy"]) for row in history] == list(zip(seen["round"], seen.accuracy, strict=True))


def read(place: Path) -> tuple[str, list[dict[str, Any]]]:
    """The name of an offline run of wandb, and its history."""
    file, = place.glob("*.wandb")
    found = records(file)
    return (next(one.run.display_name for one in found if one.WhichOneof("record_type") == "run"), histories(found))
