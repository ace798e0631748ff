"""`compute: {mode: model}`: what trainings then cost, on which devices, and what is refused; with real workers, too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import emul
from emul import engine
from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.cli.options import app
from emul.learning import Task
from emul.learning.counting import Operation, StepCount, step_counts
from emul.scenario import load, loads
from emul.scenario.devices import DeviceClass, step_time
from emul.testing import Ran, run_text

SCENARIO = """
emul: 1
name: model
seed: 3
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
task: {data: {set: digits}, partition: iid, model: digits_cnn, solver: SOLVER}
compute: {mode: model, default: 1 ms}
devices: {table: TABLE, nodes: [{match: "client*", device: slow}, {match: client2, device: fast}]}
schemes: [SCHEME]
stop: {rounds: 2}
"""
HEAD = "device,kind,memory_mb,idle_w,compute_w,send_w,receive_w,flops,bandwidth,efficiency,use,launch_s\n"
TABLE = HEAD + "slow,board,512,1,3,0,0,1e9,1e9,0.5,0.25,1e-5\nfast,board,4096,2,8,0,0,1e11,2e10,0.5,0.5,1e-6\n"
SLOW = DeviceClass("slow", "board", flops=1e9, bandwidth=1e9, efficiency=0.5, use=0.25, launch_s=1e-5)
FAST = DeviceClass("fast", "board", flops=1e11, bandwidth=2e10, efficiency=0.5, use=0.5, launch_s=1e-6)


def text(tmp_path: Path, table: str = TABLE, scheme: str = "fedavg",
         solver: str = "{sgd: {lr: 0.1, epochs: 2, batch: 32}}") -> str:
    file = tmp_path / "table.csv"
    file.write_text(table)
    return SCENARIO.replace("TABLE", str(file)).replace("SCHEME", scheme).replace("SOLVER", solver)


def costs(ran: Ran, label: str = "train") -> dict[int, list[int]]:
    """Node -> ns of its computations with this label."""
    found: dict[int, list[int]] = {}
    for row in ran.rows:
        if row[0] == R.COMPUTE and row[3] == label:
            found.setdefault(row[2], []).append(row[4])
    return found


def expected_s(device: DeviceClass, samples: int, epochs: int = 2, batch: int = 32) -> float:
    """Batch by batch: of each pass the last batch has what is left."""
    line = step_counts(Task({"data": {"set": "digits"}, "partition": "iid", "model": "digits_cnn",
                             "solver": {"sgd": {"lr": 0.1, "epochs": epochs, "batch": batch}}}, 3, 3))
    sizes = [min(batch, samples - start) for start in range(0, samples, batch)] * epochs
    return sum(step_time(device, line.of(size)).seconds for size in sizes)


def test_each_operation_takes_its_arithmetic_what_it_moves_and_its_launch() -> None:
    product, copy = Operation(10, False, 1e9, 1e6), Operation(30, False, 0.0, 1e7)      # 2 s; 0.04 s each
    found = step_time(SLOW, StepCount((product, copy), 0))
    assert (found.compute_s, found.memory_s, found.launch_s) == (
        20.0, pytest.approx(1.24), pytest.approx(40 * 1e-5))
    assert (found.seconds, found.bound) == (pytest.approx(21.2404), "compute")
    assert step_time(SLOW, StepCount((copy,), 0)).bound == "memory"
    assert step_time(SLOW, StepCount((Operation(1, False, 1.0, 1.0),), 0)).bound == "launch"


def test_convolutions_have_shares_and_a_launch_of_their_own_where_the_table_says_so() -> None:
    count = StepCount((Operation(2, True, 1e9, 1e6), Operation(1, False, 1e9, 1e6)), 0)
    assert step_time(SLOW, count).seconds == pytest.approx(3 * (2.0 + 4e-3 + 1e-5))
    own = replace(SLOW, conv_efficiency=0.25, conv_use=0.125, conv_launch_s=1e-3)
    assert step_time(own, count).seconds == pytest.approx(2 * (4.0 + 8e-3 + 1e-3) + 2.0 + 4e-3 + 1e-5)


def test_a_training_costs_what_its_batches_ask_of_the_device_of_its_node(tmp_path: Path) -> None:
    ran = run_text(text(tmp_path))
    found = costs(ran)
    task = Task(ran.finished.wiring.setups[0].task or {}, 3, 3)
    for node, device in ((1, SLOW), (2, FAST), (3, SLOW)):
        seconds = expected_s(device, task.samples(node - 1))
        assert found[node] == [pytest.approx(seconds * 1e9, rel=1e-6)] * 2
    assert set(costs(ran, "aggregate")[0]) == {10**6}               # the default, which no device changes


def test_steps_that_a_scheme_says_itself_are_those_that_count(tmp_path: Path) -> None:
    scheme = "{name: diloco, steps: 3}"
    found = costs(run_text(text(tmp_path, scheme=scheme, solver="{sgd: {lr: 0.1, steps: 50, batch: 32}}")))
    line = step_counts(Task({"data": {"set": "digits"}, "partition": "iid", "model": "digits_cnn",
                             "solver": {"sgd": {"lr": 0.1, "steps": 50, "batch": 32}}}, 3, 3))
    assert any(cost == pytest.approx(3 * step_time(SLOW, line.of(32)).seconds * 1e9, rel=1e-6)
               for each in found.values() for cost in each)


def test_a_scheme_of_gradients_takes_one_step_whatever_the_solver_says(tmp_path: Path) -> None:
    found = costs(run_text(text(tmp_path, scheme="signsgd", solver="{sgd: {lr: 0.1, steps: 50, batch: 32}}")))
    line = step_counts(Task({"data": {"set": "digits"}, "partition": "iid", "model": "digits_cnn",
                             "solver": {"sgd": {"lr": 0.1, "steps": 50, "batch": 32}}}, 3, 3))
    assert found[2] == [pytest.approx(step_time(FAST, line.of(32)).seconds * 1e9, abs=1)] * 2


def test_a_speed_of_nodes_and_a_slow_fault_are_relative_to_the_device(tmp_path: Path) -> None:
    plain = costs(run_text(text(tmp_path)))
    faster = costs(run_text(text(tmp_path) + "nodes: [{match: client1, speed: 4}]\n"))
    slowed = costs(run_text(text(tmp_path) + "faults: [{at: 0 s, node: client3, slow: 2}]\n"))
    assert faster[1][0] == pytest.approx(plain[1][0] / 4, abs=1)
    assert faster[2] == plain[2]
    assert slowed[3][0] == pytest.approx(plain[3][0] * 2, abs=1)


def test_two_workers_make_the_journal_of_one_process(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path))
    alone, together = (emul.run(path, out=tmp_path / f"run{workers}", workers=workers, quiet=True)[0]
                       for workers in (0, 2))
    assert together.summary["digest"] == alone.summary["digest"]


def test_the_scenario_is_the_same_when_it_is_read_again(tmp_path: Path) -> None:
    found = loads(text(tmp_path))
    assert loads(found.resolved()).compute == found.compute


# --- what is refused, and what is said -------------------------------------------------------------------------------

@pytest.mark.parametrize(("old", "new", "said"), [
    ('{match: "client*", device: slow}', '{match: "client1", device: slow}', r"client3 has no device: expected"),
    ("compute: {mode: model, default: 1 ms}", "compute: {mode: model}",
     "compute.mode .*fedavg/server/aggregate.* no price"),
    ("compute: {mode: model, default: 1 ms}", "compute: {mode: model, file: x.json}", "is not used by mode: model")])
def test_what_the_model_lacks_is_an_error_of_check(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path).replace(old, new))
    assert path.read_text() != text(tmp_path)
    with pytest.raises(ScenarioError, match=said):
        emul.check(path)


def test_a_table_that_lacks_a_number_of_the_model_is_told_which(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path, "device,kind,flops,bandwidth\nslow,board,1e9,1e9\nfast,board,1e9,1e9\n"))
    with pytest.raises(ScenarioError, match=r"slow +the table says no efficiency, use, launch_s of it, which mode: "
                                            "model needs: expected a device such as "):
        emul.check(path)


def test_a_step_that_does_not_fit_is_an_error_that_says_how_much(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path, TABLE.replace("slow,board,512", "slow,board,0.1")))
    said = r"slow +a step of 32 samples takes \d+ MiB, and the device has 0: \d+ MiB too many"
    with pytest.raises(ScenarioError, match=said):
        emul.check(path)


def test_a_table_without_memory_and_watts_is_taken_and_what_cannot_be_said_is_told(tmp_path: Path) -> None:
    bare = "device,kind,flops,bandwidth,efficiency,use,launch_s\nslow,board,1e9,1e9,0.5,0.25,1e-5\n" \
           "fast,board,1e11,2e10,0.5,0.5,1e-6\n"
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path, bare))
    warned = "\n".join(emul.check(path).warnings)
    assert "the table says no memory of slow: whether a step fits is not checked" in warned
    watts = "idle_w, compute_w, send_w, receive_w"
    assert f"the table says no {watts} of fast: the joules of its nodes are not known" in warned
    assert costs(run_text(text(tmp_path))) == costs(run_text(text(tmp_path, bare)))
    run, = emul.run(path, out=tmp_path / "run", workers=0, quiet=True)
    energy = run.energy
    assert energy.loc[energy["name"] != "server", "joules"].isna().all()
    assert energy["compute_s"].notna().all()
    assert run.summary["energy"]["unknown"] == 3
    path.write_text(text(tmp_path, bare).replace("device: slow}", "device: slow, battery: 5}"))
    with pytest.raises(ScenarioError, match=f"battery .*slow.* the table says no {watts} of it"):
        emul.check(path)


def test_joules_of_trainings_are_their_seconds_times_the_watts_of_the_same_row(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path))
    run, = emul.run(path, out=tmp_path / "run", workers=0, quiet=True)
    energy = run.energy.set_index("name")
    assert energy.loc["client2", "compute_j"] == pytest.approx(8 * energy.loc["client2", "compute_s"])
    assert "unknown" not in run.summary["energy"]


def test_explain_tells_counts_bound_and_seconds_of_each_device(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text(tmp_path))
    found = CliRunner().invoke(app, ["explain", str(path), "--json"])
    assert found.exit_code == 0, found.output
    scheme, = json.loads(found.output)["schemes"]
    rows: list[dict[str, Any]] = scheme["training"]
    assert [(row["device"], row["nodes"], row["batch"]) for row in rows] == [("fast", 1, 32), ("slow", 2, 32)]
    for row, device in zip(rows, (FAST, SLOW), strict=True):
        line = step_counts(Task({"data": {"set": "digits"}, "partition": "iid", "model": "digits_cnn",
                                 "solver": {"sgd": {"lr": 0.1, "epochs": 2, "batch": 32}}}, 3, 3)).of(32)
        assert (row["flops"], row["bytes"], row["launches"]) == (line.flops, line.bytes, line.launches)
        assert row["step_s"] == pytest.approx(step_time(device, line).seconds)
        assert row["launch_s"] == pytest.approx(line.launches * (device.launch_s or 0))
        assert row["bound"] in ("compute", "memory", "launch")
    priced = {row["label"]: row for row in scheme["computations"]}
    assert priced["train"]["priced_by"] == ["model"]
    assert priced["train"]["seconds"]["max"] == pytest.approx(rows[1]["update_s"], rel=1e-6)
    shown = CliRunner().invoke(app, ["explain", str(path)]).output
    assert "a step of training by device: of each operation compute, memory and its launch add up" in shown


# --- consumer devices, by their shares ------------------------------------------------------------------------------

@pytest.mark.parametrize(("population", "kind"), [("steam", "gpu"), ("steam-cpu", "cpu")])
def test_a_population_is_drawn_by_its_shares_and_by_its_seed(population: str, kind: str) -> None:
    from emul.scenario.devices import Devices

    names = [f"client{k}" for k in range(2000)]
    drawn = Devices((), population=population).of(names, 1)
    assert {one and one.kind for one in drawn} == {kind}
    found = [one.name for one in drawn if one is not None]
    shares = Devices((), population=population).shares()
    assert len(found) == 2000
    assert sum(shares.values()) == pytest.approx(100, abs=0.5)
    most = max(shares, key=shares.__getitem__)
    share = shares[most] / 100
    assert abs(found.count(most) / 2000 - share) < 4 * (share * (1 - share) / 2000) ** 0.5
    assert [one and one.name for one in Devices((), population=population, seed=1).of(names, 7)] == found
    assert [one and one.name for one in Devices((), population=population).of(names, 7)] != found


def test_a_population_gives_devices_to_the_nodes_that_no_rule_names(tmp_path: Path) -> None:
    written = text(tmp_path).replace(
        f"devices: {{table: {tmp_path / 'table.csv'}, nodes: [{{match: \"client*\", device: slow}}, "
        "{match: client2, device: fast}]}",
        "devices: {population: steam, seed: 5, nodes: [{match: client2, device: jetson-nano}]}")
    assert "population" in written
    scenario = loads(written)
    assert loads(scenario.resolved()).devices == scenario.devices
    wiring = engine.wire(scenario, *scenario.schemes[0])
    assert wiring.devices is not None
    assert [one and one.kind for one in wiring.devices] == ["gpu", "gpu", "board", "gpu"]
    assert any("are assumed" in warning for warning in wiring.warnings)
    alone = loads(written.replace(", nodes: [{match: client2, device: jetson-nano}]", ""))
    assert alone.devices is not None
    assert alone.devices.rules == ()


@pytest.mark.parametrize(("devices", "said"), [
    ("{seed: 3, nodes: [{match: '*', device: jetson-nano}]}", "devices.seed .* is used only with population"),
    ("{population: stean}", 'devices.population .*"stean"'), ("{}", "devices.nodes +missing +is required"),
    ("{nodes: [{match: '*', device: jetson-nano}]}", r"devices.nodes\[0\].device .*the table says no speed of it")])
def test_populations_and_speeds_that_make_no_sense_are_refused(devices: str, said: str) -> None:
    written = SCENARIO.replace("SOLVER", "{sgd: {lr: 0.1, steps: 1}}").replace("SCHEME", "fedavg")
    lines = [line for line in written.splitlines() if not line.startswith(("devices", "compute"))]
    with pytest.raises(ScenarioError, match=said):
        loads("\n".join([*lines, f"devices: {devices}", "compute: {mode: measured}"]))


# --- the table that comes along -------------------------------------------------------------------------------------

def test_devices_are_listed_with_what_each_number_is_known_from() -> None:
    listed = CliRunner().invoke(app, ["devices"]).output
    assert "jetson-nano" in listed
    assert "raspberry-pi-3" in listed
    shown = CliRunner().invoke(app, ["devices", "jetson-n*"]).output
    assert "specified" in shown
    assert "NVIDIA" in shown
    unknown = CliRunner().invoke(app, ["devices", "jetson-nanno"])
    assert unknown.exit_code == 2
    assert 'did you mean "jetson-nano"' in unknown.output


def test_a_scenario_of_shipped_boards_runs_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    lines = text(tmp_path).splitlines()
    lines[next(k for k, line in enumerate(lines) if line.startswith("devices"))] = \
        'devices: {nodes: [{match: "client*", device: jetson-nano}]}'
    path.write_text("\n".join(lines))
    assert load(path).compute.mode == "model"
    assert any("of jetson-nano are assumed" in warning for warning in emul.check(path).warnings)
