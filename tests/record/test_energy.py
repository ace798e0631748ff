"""Joules by node against a run whose seconds were worked out by hand, a crash, and what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine
from emul.record.energy import COLUMNS
from emul.record.journal import RecordError
from emul.record.load import load_run
from emul.scenario import loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TABLE = ("device,kind,speed,memory_mb,idle_w,compute_w,send_w,receive_w,source\n"
         "small,phone,1,100,1,3,0.5,0.25,mine\nlarge,server,1,100,10,100,2,1,mine\n")
TEXT = """
emul: 1
name: energy
seed: 3
topology: {generator: star, clients: 2}
links:
  - {match: "server->client*", latency: 100 ms, bandwidth: 2 Mbit/s}
  - {match: "client*->server", latency: 100 ms, bandwidth: 1 Mbit/s}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {trace: TRACE, default: zero}
devices: {table: TABLE, nodes: [{match: client1, device: small}, {match: server, device: large}]}
schemes: [fedavg]
stop: {rounds: 2}
"""


@pytest.fixture
def written(tmp_path: Path) -> str:
    (tmp_path / "table.csv").write_text(TABLE)
    (tmp_path / "trace.csv").write_text("node,label,seconds\nclient*,train,2\nserver,aggregate,0.5\n")
    return TEXT.replace("TRACE", str(tmp_path / "trace.csv")).replace("TABLE", str(tmp_path / "table.csv"))


def test_joules_are_watts_times_the_seconds_of_each_state(written: str, tmp_path: Path) -> None:
    result, = engine.run(loads(written), workers=Twin(), out=tmp_path / "runs")
    run = load_run(str(result.directory))
    assert list(run.energy.columns) == list(COLUMNS)
    server, client, other = (row._asdict() for row in run.energy.itertuples(index=False))
    down, up = (8 * run.messages[run.messages.type == kind].wire_bytes.iloc[0] for kind in ("Model", "Update"))
    total = run.summary["virtual_seconds"]
    assert client["up_s"] == pytest.approx(total)
    assert client["compute_s"] == pytest.approx(2 * 2)
    assert client["send_s"] == pytest.approx(2 * up / 1e6)
    assert client["receive_s"] == pytest.approx(2 * down / 2e6)
    assert client["idle_j"] == pytest.approx(1 * (total - 4))
    assert client["compute_j"] == pytest.approx(3 * 4)
    assert client["send_j"] == pytest.approx(0.5 * 2 * up / 1e6)
    assert client["receive_j"] == pytest.approx(0.25 * 2 * down / 2e6)
    assert client["joules"] == pytest.approx(sum(client[f"{s}_j"] for s in ("idle", "compute", "send", "receive")))
    # both clients share nothing with each other: the server's links carry twice as much
    assert server["send_s"] == pytest.approx(2 * client["receive_s"])
    assert server["compute_j"] == pytest.approx(100 * 2 * 0.5)
    assert (run.energy.device.isna().tolist(), other["joules"]) == ([False, False, True], 0)
    assert other["compute_s"] == pytest.approx(4)
    found = run.summary["energy"]
    assert found["joules"] == pytest.approx(server["joules"] + client["joules"])
    assert found["by_kind"] == pytest.approx({"phone": client["joules"], "server": server["joules"]})
    assert found["by_role"] == pytest.approx({"client": client["joules"], "server": server["joules"]})
    assert found["most"]["node"] == "server"
    assert engine.replay(result.directory, Twin()) == run.summary["digest"]


def test_a_node_that_is_down_draws_nothing(written: str, tmp_path: Path) -> None:
    text = written + "faults: [{at: 1 s, node: client1, crash: true, for: 1500 ms}]\n"
    result, = engine.run(loads(text), workers=Twin(), out=tmp_path / "runs")
    run = load_run(str(result.directory))
    client = run.energy[run.energy.name == "client1"].iloc[0]
    assert client.up_s == pytest.approx(run.summary["virtual_seconds"] - 1.5)


def battery(text: str, joules: float) -> str:
    return text.replace("device: small}", f"device: small, battery: {joules}}}")


def test_a_battery_that_runs_out_is_a_crash_for_good(written: str, tmp_path: Path) -> None:
    """Idle 1 W until the model comes, then 3 W: the battery is empty in the middle of the first training."""
    result, = engine.run(loads(battery(written, 4)), workers=Twin(), out=tmp_path / "runs")
    run = load_run(str(result.directory))
    client = run.energy[run.energy.name == "client1"].iloc[0]
    model = run.messages[(run.messages.type == "Model") & (run.messages.target_name == "client1")].iloc[0]
    came = model.arrived_ns / 1e9
    left = 4 - came - 0.25 * 8 * model.wire_bytes / 2e6
    assert client.up_s == pytest.approx(came + left / 3)
    assert client.joules == pytest.approx(4)
    assert (client.battery_j, client.left_j) == (4, pytest.approx(0, abs=1e-6))
    assert run.summary["invariants"] == "hold"
    assert run.rounds.received.tolist() == [1, 1]
    assert run.messages[run.messages.target_name == "client1"].fate.tolist()[1:] == ["to_ended"]
    assert engine.replay(result.directory, Twin()) == run.summary["digest"]


def test_a_battery_that_lasts_changes_nothing_and_its_books_are_those_of_the_table(
        written: str, tmp_path: Path, pools: list[Workers]) -> None:
    plain, = engine.run(loads(written), workers=Twin(), out=tmp_path / "plain")
    charged, = engine.run(loads(battery(written, 1000)), workers=pools[1], out=tmp_path / "charged")
    assert plain.summary is not None
    assert charged.summary is not None
    assert charged.summary["digest"] == plain.summary["digest"]
    energy = load_run(str(charged.directory)).energy
    assert energy.left_j.dropna().tolist() == pytest.approx([1000 - energy.joules[1]])


@pytest.mark.parametrize("joules", [1.0, 5.0, 9.0, 13.0])
def test_what_was_drawn_when_it_ran_out_is_what_the_battery_had(written: str, tmp_path: Path, joules: float) -> None:
    """Whatever the node was doing then: the kernel's reckoning against that of the journal."""
    text = battery(written, joules).replace("rounds: 2", "rounds: 6")
    result, = engine.run(loads(text), workers=Twin(), out=tmp_path / "runs")
    assert load_run(str(result.directory)).energy.joules[1] == pytest.approx(joules, rel=1e-6)


def test_without_devices_there_is_no_energy(written: str, tmp_path: Path) -> None:
    text = "\n".join(line for line in written.splitlines() if not line.startswith("devices"))
    result, = engine.run(loads(text), workers=Twin(), out=tmp_path / "runs")
    run = load_run(str(result.directory))
    assert "energy" not in run.summary
    with pytest.raises(RecordError):
        _ = run.energy
