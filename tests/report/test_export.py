"""Runs as other tools see them: the structure of the trace, and curves read back by TensorBoard's and MLflow's own."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from emul import cli, engine, load_run
from emul.record.load import RunTables
from emul.record.progress import StepProgress
from emul.report import export
from emul.scenario import loads

TEXT = """
emul: 1
name: traced
seed: 3
topology: {generator: star_mesh, clients: 4}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.4, per: round}}
faults:
  - {at: 100 ms, node: client2, crash: true, for: 100 ms}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: measured}
schemes: [{name: secagg, threshold: 2}]
stop: {rounds: 4}
"""
PEERS = """
emul: 1
name: peers
seed: 3
topology: {generator: complete, peers: 3}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [chatter]
stop: {rounds: 2}
"""
CHATTER = '''
"""Every peer shows its model."""

from dataclasses import dataclass

from emul.roles import Scheme


@dataclass(frozen=True)
class Params:
    pass


async def peer(node, p):
    model = node.task.initial_parameters()
    async for round_ in node.rounds():
        with round_:
            await node.sleep(0.01 * node.id)
            node.report(parameters=model, rank=node.id)


SCHEME = Scheme(params=Params, roles={"peer": peer})
'''


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with losses, late and undelivered messages, a crash and failed rounds."""
    found = engine.run(loads(TEXT), workers=0, out=tmp_path_factory.mktemp("runs"))[0]
    assert found.error is None
    assert found.directory is not None
    return found.directory


@pytest.fixture(scope="module")
def peers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three deciding nodes."""
    folder = tmp_path_factory.mktemp("peers")
    (folder / "chatter.py").write_text(CHATTER)
    sys.path.insert(0, str(folder))
    try:
        found = engine.run(loads(PEERS, plugins=["chatter"]), workers=0, out=folder, plugins=["chatter"])[0]
    finally:
        sys.path.remove(str(folder))
    assert found.directory is not None
    return found.directory


@pytest.fixture(scope="module")
def trace(run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("trace") / "trace.json"
    count = export.perfetto(run, file)
    found: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    assert len(found) == count
    return found


def tracks(trace: list[dict[str, Any]], kinds: str) -> dict[tuple[int, int], list[dict[str, Any]]]:
    found = defaultdict(list)
    for event in trace:
        if event["ph"] in kinds:
            found[event["pid"], event["tid"]].append(event)
    return found


def test_nodes_are_processes_with_the_names_of_their_tracks(trace: list[dict[str, Any]]) -> None:
    names = {e["pid"]: e["args"]["name"] for e in trace if e["name"] == "process_name"}
    assert names == {1: "server", 2: "client1 (client)", 3: "client2 (client)", 4: "client3 (client)",
                     5: "client4 (client)"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    assert {threads[1, t] for t in (1, 2, 3, 4)} == {"rounds", "computes", "sends", "receives"}
    assert (2, 1) not in threads                    # a client decides nothing
    assert {(e["pid"], e["tid"]) for e in trace if e["ph"] == "X"} <= set(threads)


def test_times_grow_on_every_track_and_slices_do_not_overlap(trace: list[dict[str, Any]]) -> None:
    for slices in tracks(trace, "X").values():
        ends = [round((s["ts"] + s["dur"]) * 1000) for s in slices]
        starts = [round(s["ts"] * 1000) for s in slices]
        assert starts == sorted(starts)
        assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
        assert all(s["dur"] >= 0 for s in slices)


def test_every_flow_has_one_begin_and_one_end_each_within_a_slice(trace: list[dict[str, Any]]) -> None:
    begins = {e["id"]: e for e in trace if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace if e["ph"] == "f"}
    assert len(begins) == sum(e["ph"] == "s" for e in trace) == len(ends) == sum(e["ph"] == "f" for e in trace)
    assert begins.keys() == ends.keys()
    slices = tracks(trace, "X")
    for number, begin in begins.items():
        assert begin["ts"] <= ends[number]["ts"]
        for event in (begin, ends[number]):
            assert any(s["ts"] == event["ts"] for s in slices[event["pid"], event["tid"]])


def test_the_trace_holds_all_messages_and_computations_of_the_run(run: Path, trace: list[dict[str, Any]]) -> None:
    tables = load_run(run)
    m = tables.messages
    known = m[m.fate != "in_flight"]
    assert {"lost", "delivered"} <= set(known.fate)
    begins = sorted((round(e["ts"] * 1000), e["pid"] - 1, e["name"]) for e in trace if e["ph"] == "s")
    assert begins == sorted(zip(known.sent_ns, known.source, known.type.astype(str), strict=True))
    ended = known.arrived_ns.fillna(known.lost_ns)
    ends = sorted((round(e["ts"] * 1000), e["pid"] - 1) for e in trace if e["ph"] == "f")
    assert ends == sorted(zip(ended, known.target, strict=True))
    computes = [e for e in trace if e["ph"] == "X" and e["tid"] == 2]
    assert Counter(e["name"] for e in computes) == Counter(tables.computations.label.astype(str))
    by_hand = (tables.computations.end_ns - tables.computations.start_ns).sum()
    assert sum(round(e["dur"] * 1000) for e in computes) == by_hand
    sent = sum(e["args"]["bytes"] for e in trace if e["ph"] == "X" and e["tid"] == 3)
    assert sent == tables.summary["bytes_total"]


def test_rounds_say_how_they_ended_and_what_was_observed(run: Path, trace: list[dict[str, Any]]) -> None:
    rows = load_run(run).rounds
    rounds = [e for e in trace if e["ph"] == "X" and e["tid"] == 1]
    assert [("failed" in e["args"]) for e in rounds] == [not c for c in rows.completed]
    assert [e["args"].get("accuracy") for e in rounds] == [None if np.isnan(a) else a for a in rows.accuracy]
    counted = [e["args"]["accuracy"] for e in trace if e["ph"] == "C"]
    assert counted == rows.accuracy.dropna().tolist()


def test_what_happens_at_one_instant_is_one_slice_as_long_as_there_is_room() -> None:
    node = np.array([0, 0, 0, 1, 0])
    time = np.array([5, 5, 205, 7, 9000])
    found = list(export.instants(node, time, np.array([0, 1, 2, 3, 4])))
    assert found == [([0, 1], 200), ([2], 1000), ([4], 1000), ([3], 1000)]
    assert list(export.instants(node, time, np.array([], int))) == []


def test_several_deciders_have_a_track_and_a_curve_each(peers: Path, tmp_path: Path) -> None:
    export.perfetto(peers, tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert Counter(e["pid"] for e in events if e["ph"] == "X" and e["tid"] == 1) == {1: 2, 2: 2, 3: 2}
    found = export.scalars(load_run(peers))
    assert {(name, number, value) for name, number, _, value in found if name.startswith("rank")} == {
        (f"rank/peer{i + 1}", number, float(i)) for i in range(3) for number in (1, 2)}


def test_what_the_end_of_the_run_cut_ends_with_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_run(run)
    end_ns = round(whole.summary["virtual_seconds"] * 1e9)
    cut = load_run(run)                         # frames of its own
    cut.rounds.loc[cut.rounds.index[-1], "left_ns"] = pd.NA
    cut.computations.loc[cut.computations.index[-1], ["end_ns", "finished"]] = [pd.NA, False]
    monkeypatch.setattr(export, "load_run", lambda directory: cut)
    export.perfetto(run, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    ends = [round((e["ts"] + e["dur"]) * 1000) for e in events if e["ph"] == "X" and e["tid"] in (1, 2)]
    assert ends.count(end_ns) >= 2
    assert {e["args"]["finished"] for e in events if e["ph"] == "X" and e["tid"] == 2} == {True, False}
    assert max(seconds for _, _, seconds, _ in export.scalars(cut)) == end_ns / 1e9


def test_scalars_are_the_numbers_of_each_round_with_its_time_and_bytes(run: Path) -> None:
    tables = load_run(run)
    found: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    for name, number, seconds, value in export.scalars(tables):
        found[name].append((number, seconds, value))
    left = tables.rounds.left_ns
    assert [v for _, _, v in found["virtual_s"]] == [ns / 1e9 for ns in left]
    assert [v for _, _, v in found["mb"]] == [
        tables.messages[tables.messages.sent_ns <= ns].wire_bytes.sum() / 1e6 for ns in left]
    seen = tables.rounds.dropna(subset=["accuracy"])
    assert [(n, v) for n, _, v in found["accuracy"]] == list(zip(seen["round"], seen.accuracy, strict=True))
    assert {"completed", "wire_bytes", "messages", "loss"} <= set(found)
    assert not {"round", "node", "entered_ns", "left_ns"} & set(found)


# --- read by the tools themselves -----------------------------------------------------------------------------------

def test_tensorboard_reads_the_curves(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: install emul[tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for _ in range(2):                              # a second export takes the place of the first
        place = export.tensorboard(run, tmp_path)
    assert place == tmp_path / f"secagg-seed3-{run.name}"
    reading = EventAccumulator(str(place))
    reading.Reload()
    tables = load_run(run)
    seen = tables.rounds.dropna(subset=["accuracy"])
    events = reading.Scalars("accuracy")
    assert [e.step for e in events] == seen["round"].tolist()
    assert [e.value for e in events] == pytest.approx(seen.accuracy.tolist())
    assert [e.wall_time for e in events] == pytest.approx([ns / 1e9 for ns in seen.left_ns])


def test_mlflow_reads_parameters_metrics_and_files(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow", reason="MLflow is not installed: install emul[mlflow]")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")       # newer versions want a database unless told
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "store").as_uri()
    first, second = export.mlflow(run, uri), export.mlflow(run, uri)
    client = MlflowClient(tracking_uri=uri)
    found = client.get_run(first)
    assert client.get_run(second).info.experiment_id == found.info.experiment_id
    assert client.get_experiment(found.info.experiment_id).name == "traced"
    tables = load_run(run)
    assert found.data.params["stop/rounds"] == "4"
    assert found.data.params["schemes/0/threshold"] == "2"
    assert found.data.tags["digest"] == tables.summary["digest"]
    assert found.data.metrics["summary.bytes_total"] == tables.summary["bytes_total"]
    seen = tables.rounds.dropna(subset=["accuracy"])
    history = client.get_metric_history(first, "accuracy")
    assert [(m.step, m.value) for m in history] == list(zip(seen["round"], seen.accuracy, strict=True))
    assert {f.path for f in client.list_artifacts(first)} == {"summary.json", "scenario.resolved.yaml"}


def records(file: Path) -> list[Any]:
    """The records of an offline run of wandb: a log of LevelDB behind 7 bytes that say what it is.

    Blocks of 32 KiB hold pieces: crc32 (4 bytes), length (2), kind (1: whole, 2: first, 3: middle, 4: last).
    """
    import wandb
    from wandb.proto import wandb_internal_pb2

    wandb.teardown()                    # its service writes the file behind the run, until it is told to end
    data, at, body, found = file.read_bytes(), 7, b"", []
    assert data.startswith(b":W&B")
    while at < len(data):
        left = 32_768 - at % 32_768
        if left < 7:                    # no piece begins there
            at += left
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        body += data[at + 7:at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            found.append(wandb_internal_pb2.Record.FromString(body))
            body = b""
    return found


def histories(found: list[Any]) -> list[dict[str, Any]]:
    """The rows of the history among what a file holds."""
    return [{item.key or item.nested_key[0]: json.loads(item.value_json) for item in one.history.item}
            for one in found if one.WhichOneof("record_type") == "history"]


def test_wandb_reads_config_history_and_summary_of_an_offline_run(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed: install emul[wandb]")
    place = export.wandb(run, tmp_path)
    assert place.parent == tmp_path / "wandb"
    assert place.name.startswith("offline-run-")
    file, = place.glob("*.wandb")
    found, tables = records(file), load_run(run)
    told = next(one.run for one in found if one.WhichOneof("record_type") == "run")
    assert (told.project, told.display_name) == ("traced", export.title(tables))
    config = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in told.config.update}
    assert config["stop/rounds"] == 4
    history = histories(found)
    seen = tables.rounds.dropna(subset=["accuracy"])
    assert [(row["round"], row["accuracy"]) for row in history if "accuracy" in row] == list(
        zip(seen["round"], seen.accuracy, strict=True))
    assert [row["round"] for row in history] == sorted(set(tables.rounds["round"]))
    axes = {one.metric.glob_name: one.metric.step_metric for one in found if one.WhichOneof("record_type") == "metric"}
    assert axes["*"] == "round"
    again = export.wandb(run, tmp_path)             # a second one beside it
    assert again != place


@pytest.mark.parametrize(("tool", "package", "extra"), [
    ("tensorboard", "tensorboard.compat.proto.event_pb2", "emul[tensorboard]"),
    ("mlflow", "mlflow.entities", "emul[mlflow]"), ("wandb", "wandb", "emul[wandb]")])
def test_without_its_package_an_export_says_what_to_install(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                            tool: str, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(export.ExportError, match=rf"^--{tool} needs \w+: install {extra.replace('[', '.')[:-1]}.$"):
        getattr(export, tool)(run, tmp_path.as_uri() if tool == "mlflow" else tmp_path)


# --- the command ----------------------------------------------------------------------------------------------------

def command(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["emul", "export", *args])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_the_command_writes_the_trace_and_says_how_to_look_at_it(
        run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.json"
    assert command(monkeypatch, str(run), "--perfetto", str(file)) == 0
    count = len(json.loads(file.read_text())["traceEvents"])
    assert capsys.readouterr().out == f"{file}: {count} events; open it in https://ui.perfetto.dev\n"


def test_the_command_says_what_it_does_if_that_takes_long(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("emul.record.progress._SHORT_S", 0.02)
    monkeypatch.setattr(export, "_TOLD", 5)
    tables = load_run(run)

    begun: list[StepProgress] = []
    enter = StepProgress.__enter__

    def slow(directory: Path) -> RunTables:
        while begun[-1]._said != begun[-1]._text:   # until the thread that watches has said this step
            time.sleep(0.01)
        return tables

    monkeypatch.setattr(StepProgress, "__enter__", lambda steps: begun.append(steps) or enter(steps))
    monkeypatch.setattr(export, "load_run", slow)
    file = tmp_path / "t.json"
    assert command(monkeypatch, str(run), "--perfetto", str(file), "--tensorboard", str(tmp_path / "tb")) == 0
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == f"reading {run}"
    assert f"writing event files below {tmp_path / 'tb'}" in said.err.splitlines()
    assert "events written" not in said.out
    told: list[str] = []
    monkeypatch.setattr(export, "load_run", load_run)
    count = export.perfetto(run, file, told.append)
    assert told == [f"reading {run}", *(f"{n:,} events written to {file}" for n in range(5, count + 1, 5))]


def test_the_command_wants_a_format_and_a_run(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    assert command(monkeypatch, str(run)) == 2
    assert "expected --perfetto, --tensorboard, --mlflow, --wandb or --model" in capsys.readouterr().err
    assert command(monkeypatch, str(tmp_path), "--perfetto", str(tmp_path / "t.json")) == 2
    assert "no directory of a run that ended" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()
