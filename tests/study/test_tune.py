"""What `emul tune` tries, measures and chooses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emul.base.errors import ScenarioError
from emul.cli.tune import _numbers
from emul.scenario import FusedTraining, loads
from emul.study.tune import MachineSetting, RoundSeconds, choose, measure, settings
from emul.testing import SMALL

TEXT = SMALL.replace("SCHEME", "{name: fedavg}")


def test_sizes_are_tried_that_a_lane_can_fill() -> None:
    tried = settings(40, [1, 2])
    assert {s.workers for s in tried} == {1, 2}
    assert tried[0] == MachineSetting(1)
    assert [s.fuse for s in tried if s.workers == 2] == [None, *(FusedTraining(n, 2) for n in (8, 16, 20))]
    assert [s.fuse for s in settings(1, [0])] == [None]
    assert settings(1000, [2], [8, 64])[-1].fuse == FusedTraining(64, 2)


def test_a_fused_setting_has_to_be_worth_it() -> None:
    plain, fused = MachineSetting(1), MachineSetting(2, FusedTraining(8, 2))
    assert choose([RoundSeconds(plain, 1.0), RoundSeconds(fused, 0.95)]).setting == plain
    assert choose([RoundSeconds(plain, 1.0), RoundSeconds(fused, 0.5)]).setting == fused
    assert choose([RoundSeconds(plain, 1.0), RoundSeconds(MachineSetting(2), 0.6)]).setting == MachineSetting(2)


def test_every_setting_is_measured_and_a_measured_cost_is_left_out() -> None:
    scenario = loads(TEXT.replace("mode: zero", "mode: measured"))
    told: list[RoundSeconds] = []
    found = measure(scenario, None, settings(5, [0]), 3, tell=told.append)
    assert [m.setting for m in found] == settings(5, [0])
    assert told == found
    assert all(m.seconds > 0 for m in found)


def test_what_cannot_be_measured_is_said() -> None:
    scenario = loads(TEXT)
    with pytest.raises(ValueError, match="rounds = 1"):
        measure(scenario, None, [MachineSetting(0)], 1)
    with pytest.raises(ScenarioError, match="one of its schemes: fedavg"):
        measure(scenario, "secagg", [MachineSetting(0)])
    with pytest.raises(ScenarioError, match="expected numbers of 2 or more"):
        _numbers("--sizes", "8,x", 2)


def test_the_command_says_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from emul.cli.tune import tune

    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    tune(path, workers="0", sizes="3", rounds=2)
    said = capsys.readouterr().out
    assert "{clients: 3, lanes: 1}" in said
    assert "set   fuse: " in said
    assert "--workers 0" in said
    tune(path, workers="0", sizes="3", rounds=2, as_json=True)
    assert len(json.loads(capsys.readouterr().out)["measured"]) == 2
