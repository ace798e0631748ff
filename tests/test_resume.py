"""A run that was interrupted or killed is gone on with, and is then the run that would have been."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emul import engine
from emul.engine.keeping import COMMAND
from emul.record import rundir
from emul.record.journal import Journal, RecordError, read
from emul.record.rundir import RESUMED, TRAININGS
from emul.registry import schemes
from emul.scenario import Scenario, loads

TWO = """
emul: 1
name: two
seed: 3
topology: {generator: star_mesh, clients: 5}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.1, per: round}}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 1 s}, {name: secagg, stage_deadline: 500 ms}]
stop: {rounds: 4}
"""


def cut(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """The next journal is cut off after so many rows, as by a kill: what waits to be written is lost."""
    def flush(self: Journal) -> None:
        whole(self)
        if self.count >= rows:
            raise KeyboardInterrupt

    whole = Journal._flush
    monkeypatch.setattr("emul.record.journal._CHUNK", max(1, rows))
    monkeypatch.setattr(Journal, "_flush", flush)


def interrupted(scenario: Scenario, out: Path, rows: int, **rest: Any) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, rows)
        with pytest.raises(KeyboardInterrupt):
            engine.run(scenario, workers=0, out=out, **rest)
    left = [path for path in sorted(out.iterdir()) if (path / rundir.INCOMPLETE).exists()]
    assert len(left) == 1
    return left[0]


def test_kept_moments_are_there_again_after_a_run_is_cut(tmp_path: Path) -> None:
    solver = "{adamw: {lr: 0.01, steps: 2, batch: 16, keep: true, schedule: {warm_up: 2, steps: 8}}}"
    scenario = loads(TWO.replace("{sgd: {lr: 0.1, steps: 2, batch: 16}}", solver).replace(
        ", {name: secagg, stage_deadline: 500 ms}", ""))
    (whole,) = engine.run(scenario, workers=0, out=tmp_path / "whole")
    assert whole.summary is not None
    for rows in (20, whole.summary["messages_sent"]):
        left = interrupted(scenario, tmp_path / str(rows), rows)
        (gone_on,) = engine.resume(left, workers=0)
        assert gone_on.summary is not None
        assert [gone_on.summary[key] for key in ("digest", "digest_model")] == [
            whole.summary[key] for key in ("digest", "digest_model")]


# Nothing of these is a local training: they do single passes of pieces of a model, or count. All is computed again.
NOTHING_STORED = {"heavy_hitters", "histogram", "split", "splitfed", "u_split", "vertical", "vertical_logistic_he"}
# One of each kind in every run of the suite: synchronous, masked, asynchronous, in layers, without a server, personal,
# encrypted, cut in two, and somebody else's app.
OFTEN = {"fedavg", "secagg", "fedasync", "hierarchical", "gossip", "fedrep", "ppfpl", "split", "flower"}


@pytest.mark.parametrize("name", [
    name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in schemes.known()])
def test_every_scheme_resumes_to_the_digest_of_the_run_that_was_not_cut(name: str, tmp_path: Path) -> None:
    scenario = loads(schemes.find(name).example, name)
    (whole,) = engine.run(scenario, workers=0, out=tmp_path / "whole")
    assert whole.summary is not None
    assert whole.directory is not None
    half = read(whole.directory / rundir.JOURNAL)
    left = interrupted(scenario, tmp_path / "cut", sum(1 for _ in half) // 2)
    assert any((left / TRAININGS).iterdir()) == (name not in NOTHING_STORED)
    (again,) = engine.resume(left, workers=0)
    assert again.summary is not None
    assert again.summary["digest"] == whole.summary["digest"]
    assert (again.summary["real_store"]["found"] > 0) == (name not in NOTHING_STORED)
    assert not (left / TRAININGS).exists()
    assert not (left / RESUMED).exists()
    assert engine.replay(left, workers=0) == whole.summary["digest"]


def test_the_schemes_that_had_not_begun_are_run_too_and_no_other(tmp_path: Path) -> None:
    scenario = loads(TWO, "two")
    whole = engine.run(scenario, workers=0, out=tmp_path / "whole")
    left = interrupted(scenario, tmp_path / "cut", 50)
    assert left.name == "two-fedavg-1"
    again = engine.resume(left, workers=0)
    assert [r.summary["digest"] for r in again if r.summary] == [r.summary["digest"] for r in whole if r.summary]
    assert sorted(p.name for p in left.parent.iterdir()) == ["two-fedavg-1", "two-secagg-1"]
    with pytest.raises(RecordError, match=r"two-fedavg-1: the run has ended; there is nothing to go on with$"):
        engine.resume(left, workers=0)


def test_measured_costs_are_those_that_had_been_measured(tmp_path: Path) -> None:
    scenario = loads(TWO.replace("mode: zero", "mode: measured"), "two")
    left = interrupted(scenario, tmp_path, 120, scheme="fedavg")
    before = list(read(left / rundir.JOURNAL))
    engine.resume(left, workers=0)
    after = [list(row) for row in read(left / rundir.JOURNAL)]
    assert len(after) > len(before) >= 120
    assert after[:len(before)] == [list(row) for row in before]


def test_a_run_that_does_otherwise_than_before_is_an_error_and_nothing_is_lost(tmp_path: Path) -> None:
    left = interrupted(loads(TWO, "two"), tmp_path, 60, scheme="fedavg")
    before = (left / rundir.JOURNAL).read_bytes()
    path = left / rundir.SCENARIO
    path.write_text(path.read_text().replace("seed: 3", "seed: 4"))
    with pytest.raises(engine.ResumeMismatch, match=r"it did otherwise than before .*: row \d+"):
        engine.resume(left, workers=0)
    assert (left / rundir.JOURNAL).read_bytes() == before
    assert (left / RESUMED).exists()
    assert (left / rundir.INCOMPLETE).exists()


def test_a_resumption_that_is_cut_in_its_turn_is_gone_on_with(tmp_path: Path) -> None:
    scenario = loads(TWO, "two")
    (whole,) = engine.run(scenario, workers=0, out=tmp_path / "whole", scheme="fedavg")
    left = interrupted(scenario, tmp_path / "cut", 40, scheme="fedavg")
    with pytest.MonkeyPatch.context() as patch:
        cut(patch, 90)
        with pytest.raises(KeyboardInterrupt):
            engine.resume(left, workers=0)
    (again,) = engine.resume(left, workers=0)
    assert again.summary is not None
    assert whole.summary is not None
    assert again.summary["digest"] == whole.summary["digest"]


def test_what_is_no_run_or_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"nothing: no directory of a run: it has no journal$"):
        engine.resume(tmp_path / "nothing")
    left = interrupted(loads(TWO, "two"), tmp_path, 40, scheme="fedavg")
    with rundir.RunDirectory(left).claimed(), \
            pytest.raises(RecordError, match=r"two-fedavg-1: this run is running, in another process$"):
        engine.resume(left, workers=0)
    (left / COMMAND).write_text("{")
    with pytest.raises(RecordError, match=r"command.json: Input data was truncated$"):
        engine.resume(left, workers=0)


def test_another_network_takes_the_trainings_of_a_run_and_says_how_many(tmp_path: Path) -> None:
    keep = engine.Keeping(keep=True)
    slow = TWO.replace("latency: 20 ms", "latency: 80 ms")
    (first,) = engine.run(loads(TWO, "two"), workers=0, out=tmp_path / "a", scheme="fedavg", keeping=keep)
    assert first.directory is not None
    (plain,) = engine.run(loads(slow, "two"), workers=0, out=tmp_path / "b", scheme="fedavg",
                          keeping=engine.Keeping(on=False))
    (found,) = engine.run(loads(slow, "two"), workers=0, out=tmp_path / "c", scheme="fedavg",
                          keeping=engine.Keeping(what_if=[first.directory / TRAININGS]))
    assert plain.summary is not None
    assert found.summary is not None
    assert found.summary["digest"] == plain.summary["digest"] != (first.summary or {})["digest"]
    assert found.summary["real_store"]["missed"] == 0
    assert found.summary["real_store"]["found"] > 20
    assert plain.summary["real_store"] is None


@pytest.mark.machine
@pytest.mark.slow
def test_the_command_is_killed_and_resumed(tmp_path: Path) -> None:
    scenario = tmp_path / "two.yaml"
    scenario.write_text(TWO.replace("steps: 2", "steps: 100").replace("rounds: 4", "rounds: 12"))
    emul = [sys.executable, "-m", "emul"]

    def run(*args: str) -> str:
        done = subprocess.run([*emul, *args], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("run", str(scenario), "--quiet", "--workers", "2", "--out", str(tmp_path / "whole"))
    cut_off = [*emul, "run", str(scenario), "--quiet", "--workers", "2", "--out", str(tmp_path / "cut")]
    killed = subprocess.Popen(cut_off, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    place = tmp_path / "cut" / "two-fedavg-1" / TRAININGS
    deadline = time.monotonic() + 60
    while not (place.is_dir() and sum(p.stat().st_size for p in place.iterdir()) > 20_000) and killed.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    said = run("resume", str(place.parent), "--workers", "2", "--quiet")
    assert re.search(r"fedavg: .*two-fedavg-1\n", said)
    for scheme in ("fedavg", "secagg"):
        digests = {json.loads((tmp_path / out / f"two-{scheme}-1" / "summary.json").read_text())["digest"]
                   for out in ("whole", "cut")}
        assert len(digests) == 1


def test_results_that_cannot_repeat_are_taken_from_the_run_that_is_gone_on_with(tmp_path: Path) -> None:
    scenario = loads(TWO.replace("schemes: [{name: fedavg, deadline: 1 s}, {name: secagg, stage_deadline: 500 ms}]",
                                 "schemes: [{name: sealed_scheme, seal: noisy}]").replace("star_mesh", "star"),
                     "sealed", plugins=["sealed_scheme"])
    left = interrupted(scenario, tmp_path, 60, plugins=["sealed_scheme"])
    before = [list(row) for row in read(left / rundir.JOURNAL)]
    (again,) = engine.resume(left, workers=0, plugins=["sealed_scheme"])
    assert again.error is None
    assert [list(row) for row in read(left / rundir.JOURNAL)][:len(before)] == before
    assert len(list(left.glob("volatile-*"))) == 2
