"""What a scenario asks a run to keep: models of rounds, and messages as they were sent. Digests do not change."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul import engine
from emul.base import payloads
from emul.base.errors import ReplayMismatch, ScenarioError
from emul.base.kept import KeptError
from emul.engine.evaluating import evaluate
from emul.record.journal import RecordError
from emul.record.load import IncompleteRun
from emul.scenario import Scenario, loads
from emul.scenario.running import Recorded

SCENARIO = """
emul: 1
name: recorded
seed: 3
topology: {generator: star, clients: 3}
links:
- {match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}
- {match: "server -> client1", latency: 5 ms, bandwidth: 10 Mbit/s, outage: {model: bernoulli, p: 0.2}}
- {match: "client1 -> server", latency: 5 ms, bandwidth: 10 Mbit/s, outage: {model: bernoulli, p: 0.8}}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [%s]
stop: {rounds: 4}
%s
"""
ALL = "record: {models: 2, payloads: [Model, Update]}"


def scenario(record: str = ALL, scheme: str = "{name: fedavg, deadline: 1 s}") -> Scenario:
    return loads(SCENARIO % (scheme, record))


def run(out: Path, record: str = ALL, scheme: str = "{name: fedavg, deadline: 1 s}", workers: Any = 0,
        ) -> tuple[Path, dict[str, Any]]:
    result, = engine.run(scenario(record, scheme), workers=workers, out=out)
    assert result.error is None
    assert result.directory is not None
    assert result.summary is not None
    return result.directory, result.summary


@dataclass(frozen=True)
class Recordings:
    path: Path
    summary: dict[str, Any]

    @property
    def tables(self) -> Any:
        return emul.load_run(self.path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Recordings:
    return Recordings(*run(tmp_path_factory.mktemp("recorded")))


def test_a_run_that_keeps_all_has_the_digest_of_one_that_keeps_nothing(made: Recordings, tmp_path: Path) -> None:
    path, summary = run(tmp_path, record="")
    assert summary["digest"] == made.summary["digest"]
    assert summary["payloads"] == {}
    assert not (path / "payloads").exists()
    assert emul.load_run(path).model_rounds("server") == []
    assert emul.load_run(path).payloads.empty


def test_models_are_kept_every_so_many_rounds(made: Recordings) -> None:
    tables = made.tables
    assert tables.model_rounds("server") == [2, 4]
    second, last = tables.model("server", 2), tables.model()
    assert (second.round, last.round) == (2, 4)
    assert np.array_equal(tables.model(round_=4).vector(), last.vector())
    assert not np.array_equal(second.vector(), last.vector())
    with pytest.raises(KeptError, match=r"server left no model of round 3$"):
        tables.model("server", 3)


def test_clients_with_models_of_their_own_leave_one_each_round(tmp_path: Path) -> None:
    tables = emul.load_run(run(tmp_path, "record: {models: 1}", "local")[0])
    assert tables.models == ["client1", "client2", "client3"]
    assert tables.model_rounds("client2") == [1, 2, 3, 4]


def test_of_a_run_that_was_cut_off_the_newest_model_stands_for_the_last(made: Recordings, tmp_path: Path) -> None:
    shutil.copytree(made.path, tmp_path / "cut")
    (tmp_path / "cut" / "models" / "server.safetensors").unlink()
    (tmp_path / "cut" / "models" / "round-4" / "server.safetensors").unlink()
    (tmp_path / "cut" / "INCOMPLETE").touch()
    with pytest.warns(IncompleteRun):
        tables = emul.load_run(tmp_path / "cut")
    assert tables.models == ["server"]
    assert tables.model().round == 2
    with pytest.warns(IncompleteRun):
        assert evaluate(tmp_path / "cut").accuracy == made.tables.rounds.set_index("round").accuracy[2]


def test_every_message_of_the_types_is_kept_and_can_be_read(made: Recordings) -> None:
    tables = made.tables
    sent = tables.messages[tables.messages.type == "Update"]
    listed = tables.payloads
    assert len(sent) == (listed.type == "Update").sum() == len(tables.payload("Update"))
    assert made.summary["payloads"]["Update"]["messages"] == len(sent)
    assert listed.kept.all()
    assert set(listed.source_name) == {"server", "client1", "client2", "client3"}
    update = tables.payload("Update", round_=2, source="client1")[0]
    row = sent[(sent.source == update.source) & (sent.seq == update.seq)].iloc[0]
    assert (update.sent_ns, update.round) == (row.sent_ns, row["round"]) == (update.sent_ns, 2)
    assert update.message.sender == update.source
    assert update.message.delta.dtype == np.float32
    assert not update.message.delta.flags.writeable


def test_a_broadcast_is_kept_once_and_equals_the_model_of_the_round(made: Recordings) -> None:
    third, = made.tables.payload("Model", round_=3)
    assert len(third.to) == 3
    assert np.array_equal(third.message.parameters, made.tables.model("server", 2).vector())


def test_what_a_node_has_seen_is_what_came_to_it(made: Recordings) -> None:
    tables = made.tables
    seen = tables.payload("Update", to="server")
    sent = tables.messages[(tables.messages.type == "Update")]
    assert len(seen) == sent.fate.isin(["delivered", "late"]).sum() < len(sent)
    assert len(tables.payload("Model", to="client1")) < 4 == len(tables.payload("Model"))


@pytest.mark.parametrize("scheme", ["{name: fedavg, deadline: 1 s}", "{name: secagg, threshold: 2}"])
def test_files_are_the_same_to_the_byte_for_any_number_of_workers(
        scheme: str, tmp_path: Path, pools: list[Any]) -> None:
    record = ALL if "fedavg" in scheme else "record: {models: 1, payloads: [Masked, AdvertiseKeys], limit: 30 kB}"
    found = []
    for pool in (0, pools[1]):
        path, summary = run(tmp_path, record, scheme, pool)
        found.append({file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
                      for folder in ("models", "payloads") for file in sorted((path / folder).rglob("*"))
                      if file.is_file()} | {"summary": str(summary["payloads"])})
    assert len(found[0]) > 4
    assert found[0] == found[1]


def test_rounds_choose_and_messages_outside_rounds_are_kept(tmp_path: Path) -> None:
    path, _ = run(tmp_path, "record: {payloads: [Masked, AdvertiseKeys], rounds: 2..3}", "{name: secagg, threshold: 2}")
    tables = emul.load_run(path)
    assert set(tables.payloads[tables.payloads.type == "Masked"]["round"]) == {2, 3}
    assert set(tables.payloads["round"]) <= {0, 2, 3}


def test_beyond_the_limit_only_heads_are_kept(tmp_path: Path) -> None:
    path, summary = run(tmp_path, "record: {payloads: [Update], limit: 24 kB}")       # 6 kB a node, an update is 2.6 kB
    tables = emul.load_run(path)
    counts = summary["payloads"]["Update"]
    assert counts["left_out"] > 0
    assert counts["messages"] == len(tables.payload("Update")) == tables.payloads.kept.sum()
    assert counts["bytes"] <= 24_000
    assert len(tables.payloads) == counts["messages"] + counts["left_out"]


def test_a_replay_sees_a_payload_that_was_changed(tmp_path: Path) -> None:
    path, summary = run(tmp_path)
    assert engine.replay(path, 0) == summary["digest"]
    file = path / "payloads" / "client1"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(RecordError, match="damaged or changed since the run: payloads/client1;"):
        emul.load_run(path).payload("Update")
    with pytest.raises(ReplayMismatch, match=r"payloads/client1: its bytes are not those"):
        engine.replay(path, 0)


def test_a_file_that_was_cut_short_gives_what_is_whole(made: Recordings, tmp_path: Path) -> None:
    content = (made.path / "payloads" / "client1").read_bytes()
    (tmp_path / "payloads").mkdir()
    (tmp_path / "payloads" / "client1").write_bytes(content[:-1])
    whole = list(payloads.kept(made.path, "client1"))
    assert [head.first for head, _ in payloads.kept(tmp_path, "client1")] == [head.first for head, _ in whole[:-1]]


def test_the_resolved_scenario_says_the_same(made: Recordings) -> None:
    text = "record: {models: 5, payloads: [Update], rounds: 2..7, limit: 3 MB}"
    found = scenario(text)
    assert found.record == Recorded(5, ("Update",), 2, 7, 3_000_000)
    assert loads(found.resolved()) == found
    assert "record:" not in scenario("").resolved()


def test_what_is_wrong_is_said_where_it_stands() -> None:
    with pytest.raises(ScenarioError) as caught:
        scenario("record: {payloads: [Modell, Update], models: 0}")
    assert 'record.payloads[0]' not in str(caught.value)            # the section is not sound
    assert "record.models" in str(caught.value)
    with pytest.raises(ScenarioError) as caught:
        scenario("record: {payloads: [Modell, Update]}")
    assert 'record.payloads[0]' in str(caught.value)
    assert 'no scheme of this scenario sends such messages; did you mean "Model"?' in str(caught.value)
    with pytest.raises(ScenarioError, match="is used only with payloads"):
        scenario("record: {limit: 3 MB}")
