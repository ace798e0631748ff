"""Attacks on the privacy of runs that have ended: what they get, what they leave, what is said if it is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul import engine
from emul.attacks.privacy import Needs, NotKept
from emul.base.errors import ScenarioError
from emul.cli import main
from emul.engine.reopening import attack
from emul.record.journal import RecordError
from emul.registry import attacks
from emul.report.build import attacked
from emul.scenario import loads

SCENARIO = """
emul: 1
name: pried
seed: 3
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 5 ms, bandwidth: 10 Mbit/s}]
task: {data: {set: digits}, model: digits_mlp, solver: {sgd: {lr: 0.2, epochs: 1, batch: 32}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}, local]
stop: {rounds: 3}
record: {models: 1, payloads: [Model, Update]}
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    results = engine.run(loads(SCENARIO), workers=0, out=tmp_path_factory.mktemp("pried"))
    return {result.scheme: result.directory for result in results if result.directory is not None}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of fedavg that has kept its last model alone."""
    text = SCENARIO.replace("record: {models: 1, payloads: [Model, Update]}", "")
    result, = engine.run(loads(text), scheme="fedavg", workers=0, out=tmp_path_factory.mktemp("bare"))
    assert result.directory is not None
    return result.directory


def test_membership_of_the_servers_model_is_told_for_every_round_that_was_kept(runs: dict[str, Path]) -> None:
    found = attack(runs["fedavg"], "membership")
    assert found.rows["node"].tolist() == ["server"] * 3
    assert found.rows["round"].tolist() == [1, 2, 3]
    tables = emul.load_run(runs["fedavg"])
    assert (found.rows["members"] == 1500).all()
    assert (found.rows["others"] == 297).all()
    assert tables.rounds["loss"].tolist() == pytest.approx(found.rows["loss_others"].tolist(), rel=1e-6)
    assert found.about["digest"] == tables.summary["digest"]


def test_members_of_a_clients_model_are_its_own_samples(runs: dict[str, Path]) -> None:
    found = attack(runs["local"], "membership", {"node": "client2", "round": 2}, label="one")
    assert found.rows[["node", "round", "members"]].to_numpy().tolist() == [["client2", 2, 500]]
    assert found.about["parameters"] == {"node": "client2", "round_": 2}


def test_the_same_attack_gives_the_same_file_and_changes_nothing_of_the_run(runs: dict[str, Path]) -> None:
    path = runs["local"]
    before = {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}
    first = attack(path, "membership").rows
    file = path / "attacks" / "membership.csv"
    content = file.read_bytes()
    assert attack(path, "membership").rows.equals(first)
    assert file.read_bytes() == content
    assert {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()} == before
    assert engine.replay(path, 0) == emul.load_run(path).summary["digest"]


def test_a_plug_in_sees_what_came_to_the_server_and_the_truth_can_be_computed_again(runs: dict[str, Path]) -> None:
    found = attack(runs["fedavg"], "norms", {"p": 1}, plugins=["prying_attack"])
    assert len(found.rows) == 9
    assert np.array_equal(found.rows["seen"], found.rows["true"])           # nothing hides an update in FedAvg


def test_what_was_found_is_listed_and_shown_in_the_report(runs: dict[str, Path], tmp_path: Path) -> None:
    attack(runs["fedavg"], "membership")
    attack(runs["fedavg"], "norms", {"p": 1}, plugins=["prying_attack"])
    tables = emul.load_run(runs["fedavg"])
    assert tables.attacks == ["membership", "norms"]
    assert tables.attack("membership").rows["auc"].between(0, 1).all()
    with pytest.raises(RecordError, match=r"no attack 'other' on it; there are: membership, norms"):
        tables.attack("other")
    part, = attacked(runs["fedavg"])
    caption, shown = part.tables[-1]
    assert caption.startswith("norms (p = 1.0). The norm of every update")
    assert len(shown) == 9
    assert attacked(tmp_path) == []


def test_a_run_that_has_not_kept_what_is_needed_says_what_its_scenario_lacks(bare: Path) -> None:
    with pytest.raises(NotKept, match=r"run its scenario again with record: \{payloads: \[Model, Update\]\}$"):
        attack(bare, "norms", plugins=["prying_attack"])
    with pytest.raises(NotKept, match=r"with record: \{models: 1\} those of all rounds are kept$"):
        attack(bare, "membership", {"round": 2})
    assert attack(bare, "membership").rows["round"].tolist() == [3]         # the last one is always there


def test_an_attack_on_another_scheme_is_refused(runs: dict[str, Path]) -> None:
    with pytest.raises(NotKept, match=r"a run of local; this attack is on fedavg$"):
        attack(runs["local"], "norms", plugins=["prying_attack"])


@pytest.mark.parametrize(("name", "given", "said"), [
    ("membrship", {}, 'unknown attack; did you mean "membership"?'),
    ("membership", {"rund": 1}, 'unknown parameter; did you mean "round"?'),
    ("membership", {"round": "x"}, "a whole number")])
def test_what_is_wrong_on_the_command_line_is_said(runs: dict[str, Path], name: str, given: dict[str, Any], said: str,
                                                   ) -> None:
    with pytest.raises(ScenarioError) as caught:
        attack(runs["local"], name, given)
    assert said in str(caught.value)


def test_needs_are_the_line_of_a_scenario() -> None:
    assert Needs(models=True).record() == "record: {models: 1}"
    assert loads(SCENARIO.replace("record: {models: 1, payloads: [Model, Update]}",
                                  Needs(("Update",), models=True).record())).record.models == 1


def test_every_attack_of_emul_says_its_source_and_what_the_attacker_holds() -> None:
    for name, made in attacks.known("privacy").items():
        text = made.__doc__ or ""
        assert "attacker holds" in text, name
        assert any(year in text for year in map(str, range(2010, 2030))), name


def test_the_command_lists_attacks_and_shows_rows(runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    def emul_(*args: str) -> int:
        monkeypatch.setattr("sys.argv", ["emul", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    path = str(runs["local"])
    assert emul_("attack", path) == 0
    assert "membership: Loss threshold." in capsys.readouterr().out
    assert emul_("attack", path, "--by", "membership", "--set", "node=client1", "--json") == 0
    assert '"attack": "membership"' in capsys.readouterr().out
    assert emul_("attack", path, "--by", "norms", "--plugin", "prying_attack") == 2
    assert "a run of local" in capsys.readouterr().err
