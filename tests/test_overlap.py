"""The scheme of docs/writing-a-scheme.md that passes messages on while it trains: in processes, cut off, replayed."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import overlap_scheme
import pytest
from digested import digests
from overlap_scheme import Params, Passed, peer
from test_docs import blocks
from test_resume import interrupted

import emul
from emul import engine
from emul.base import rows as R
from emul.record.journal import read
from emul.record.rundir import JOURNAL
from emul.record.tables import ACTIVITY_COLUMNS
from emul.report import write
from emul.scenario import Scenario, loads
from emul.testing import check_scheme, drive
from emul.workers.pool import Workers
from emul.workers.twin import Twin

PAGE = "docs/writing-a-scheme.md"
NAME = "overlap_scheme"
PLUGINS = ["overlap_scheme"]
TEXT = """
emul: 1
name: overlap
seed: 3
topology: {generator: complete, peers: 4}
links: [{match: "*", latency: 100 ms, bandwidth: 1 Mbit/s}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: profile, file: costs.json}
schemes: [overlap_scheme]
stop: {rounds: 4}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    monkeypatch.chdir(tmp_path)
    costs = {f"{NAME}/peer/train": [1.0, 0], f"{NAME}/peer/average": [0.25, 0]}
    (tmp_path / "costs.json").write_text(json.dumps({"emul_profile": 1, "costs": costs}))
    return loads(TEXT, "overlap", plugins=PLUGINS)


def test_the_page_has_this_scheme() -> None:
    assert inspect.getsource(overlap_scheme) in blocks(PAGE, "python")


def test_it_takes_the_time_of_the_slower_of_training_and_passing(scenario: Scenario, tmp_path: Path) -> None:
    result, = engine.run(scenario, workers=0, out=tmp_path / "runs", plugins=PLUGINS)
    assert result.error is None
    assert result.summary is not None
    assert result.directory is not None
    assert (result.summary["rounds"], result.summary["invariants"]) == (4, "hold")
    d = 650 * 4
    size = next(row[6] for row in read(result.directory / JOURNAL) if row[0] == R.SEND)
    assert d < size < d + 100
    passing = 3 * (0.1 + 8 * (size + 16) / 1e6) + 0.25
    assert passing < 1.0
    assert result.summary["virtual_seconds"] == 4.0


def test_one_digest_for_any_number_of_workers(scenario: Scenario, pools: list[Workers]) -> None:
    alone = digests(scenario, Twin(), PLUGINS)
    assert [digests(scenario, pool, PLUGINS) for pool in pools] == [alone] * 3


def test_it_conforms(scenario: Scenario, pools: list[Workers]) -> None:
    check_scheme(NAME, scenario, PLUGINS, pools=pools[1:2], quick=True)


def test_a_run_that_was_cut_goes_on_to_the_same_digest_and_is_replayed(scenario: Scenario, tmp_path: Path) -> None:
    whole, = engine.run(scenario, workers=0, out=tmp_path / "whole", plugins=PLUGINS)
    assert whole.summary is not None
    assert whole.directory is not None
    begun = [place for place, row in enumerate(read(whole.directory / JOURNAL)) if row[0] == R.ACTIVITY]
    left = interrupted(scenario, tmp_path / "cut", begun[5], plugins=PLUGINS)        # in the midst of the third round
    assert emul.load_run(left).computations["activity"].any()                       # tables of a run that has not ended
    gone_on, = engine.resume(left, workers=0, plugins=PLUGINS)
    assert gone_on.summary is not None
    assert gone_on.summary["digest"] == whole.summary["digest"]
    assert engine.replay(whole.directory, workers=0, plugins=PLUGINS)


def test_measured_costs_are_those_of_the_run_that_was_cut_or_is_replayed(scenario: Scenario, tmp_path: Path) -> None:
    measured = loads(TEXT.replace("{mode: profile, file: costs.json}", "{mode: measured}"), "m", plugins=PLUGINS)
    left = interrupted(measured, tmp_path / "cut", 60, plugins=PLUGINS)
    before = [list(row) for row in read(left / JOURNAL) if row[0] == R.COMPUTE]
    assert before
    gone_on, = engine.resume(left, workers=0, plugins=PLUGINS)
    assert gone_on.directory is not None
    after = [list(row) for row in read(gone_on.directory / JOURNAL) if row[0] == R.COMPUTE]
    assert after[:len(before)] == before
    assert engine.replay(gone_on.directory, workers=0, plugins=PLUGINS)


def test_tables_report_and_explain_know_activities_and_lanes(scenario: Scenario, tmp_path: Path) -> None:
    result, = engine.run(scenario, workers=0, out=tmp_path / "runs", plugins=PLUGINS)
    assert result.directory is not None
    frame = emul.load_run(result.directory).computations
    assert set(ACTIVITY_COLUMNS) <= set(frame.columns)
    assert dict(frame.groupby("label")["lane"].first()) == {"train": 0, "average": 1}
    both = frame[frame["node"] == 0].sort_values("start_ns")
    assert (both["start_ns"].to_numpy()[1:] < both["end_ns"].to_numpy()[:-1]).any()     # they overlap
    page = result.directory / "report.html"
    write(result.directory, page)
    assert page.stat().st_size > 10_000
    assert NAME in str(emul.explain(scenario, scheme=NAME, plugins=PLUGINS))


def test_a_test_drives_it(scenario: Scenario) -> None:
    class Task:
        def initial_parameters(self) -> np.ndarray:
            return np.zeros(2, np.float32)

        def local_update(self, parameters: np.ndarray) -> tuple[np.ndarray, int]:
            return np.ones(2, np.float32), 10

    role = drive(peer, Params(), roles={"peer": [0, 1, 2]}, task=Task(), rounds=2, lanes=("gpu", "cpu"))
    assert role.computed == ["train", "train"]          # the second while the first difference is on its way
    assert role.sent(Passed)[1].delta.tolist() == [1.0, 1.0]
    role.deliver({2: Passed(np.full(2, 4, np.float32))})
    role.deliver({2: Passed(np.full(2, 7, np.float32))})
    assert role.computed == ["train", "train", "average"]
    assert role.ended == ""
