"""Runs of a scheme that draws randomness of its own: the same decisions, sizes, times and fates, and other values."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sealed_scheme

from emul import engine
from emul.base.errors import ReplayMismatch, RoleFailed
from emul.cli import app
from emul.record.columns import columns
from emul.record.journal import MemoryJournal, read
from emul.record.summary import digest_model
from emul.roles import Node
from emul.scenario import Scenario, loads
from emul.testing import check_scheme, run_world
from emul.workers import volatile
from emul.workers.twin import Twin

PLUGINS = ["sealed_scheme"]
SCENARIO = """
emul: 1
name: sealed
seed: 3
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 5 ms, bandwidth: 100 kbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.2, per: message}}
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: sealed_scheme, seal: noisy}]
stop: {rounds: 3}
"""


def scenario(*sets: str) -> Scenario:
    return loads(SCENARIO, sets=sets, plugins=PLUGINS)


def run(tmp_path: Path, workers: Any = 0, *sets: str) -> engine.Result:
    result, = engine.run(scenario(*sets), workers=workers, out=tmp_path, plugins=PLUGINS)
    assert result.error is None
    return result


def executed(pool: Any, directory: Path | None = None, recalled: Path | None = None) -> tuple[str, str]:
    """(digest of the journal, digest of the models) of one run."""
    chosen = scenario()
    wiring = engine.wire(chosen, *chosen.schemes[0], pool.workers, PLUGINS)
    journal = MemoryJournal(engine.header(wiring))
    engine.execute(wiring, pool, journal, None, directory, recalled)
    return journal.close(), digest_model(columns(journal.rows))


def test_two_runs_have_one_digest_although_their_values_differ(tmp_path: Path) -> None:
    one, other = run(tmp_path), run(tmp_path)
    assert one.summary is not None
    assert other.summary is not None
    assert one.summary["digest"] == other.summary["digest"]
    assert one.summary["digest_journal"] == other.summary["digest_journal"]
    assert one.summary["digest_model"] != other.summary["digest_model"]
    assert one.summary["deterministic"] is other.summary["deterministic"] is False


def test_another_decision_is_another_digest(tmp_path: Path) -> None:
    one, other = run(tmp_path), run(tmp_path, 0, "seed=4")
    assert one.summary is not None
    assert other.summary is not None
    assert one.summary["digest"] != other.summary["digest"]


def test_a_scheme_may_repeat_under_some_parameters(tmp_path: Path) -> None:
    one, other = (run(tmp_path, 0, "schemes[0].seal=real") for _ in range(2))
    assert one.summary is not None
    assert other.summary is not None
    assert one.summary["deterministic"] is True
    assert one.summary["digest_model"] == other.summary["digest_model"]
    assert one.directory is not None
    assert not list(one.directory.glob("volatile-*"))


def test_the_journals_end_states_the_digest_that_its_rows_have(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.directory is not None
    assert result.summary is not None
    source = read(result.directory / "journal")
    assert len(list(source)) == source.count
    assert source.digest == source.summed == result.summary["digest_journal"]


def test_replay_says_where_values_first_differ_and_that_is_no_failure(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = run(tmp_path)
    assert result.directory is not None
    assert result.summary is not None
    told: list[str] = []
    assert engine.replay(result.directory, 0, PLUGINS, told.append) == result.summary["digest"]
    assert len(told) == 1
    assert told[0].startswith("values first differ in journal, row ")
    assert "node 0 (server), report\n" in told[0]
    assert re.search("differ in (values, )?digest", told[0])    # other bits, which may by chance have the same mean
    assert app(["replay", str(result.directory), "--workers", "0", "--plugin", "sealed_scheme"],
               standalone_mode=False) in (None, 0)
    out = capsys.readouterr().out
    assert f"{result.directory}: identical in all but values, digest {result.summary['digest']}\n" in out
    assert "values first differ in journal" in out


def test_replay_of_a_run_that_decided_otherwise_is_a_mismatch(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.directory is not None
    file = result.directory / "scenario.resolved.yaml"
    file.write_text(file.read_text().replace("rounds: 3", "rounds: 2"))
    with pytest.raises(ReplayMismatch, match="journal, row"):
        engine.replay(result.directory, 0, PLUGINS)


def test_a_run_that_takes_its_volatile_results_from_another_is_the_other(tmp_path: Path, pools: list[Any]) -> None:
    for pool in pools[:2]:
        folder = tmp_path / str(pool.workers)
        folder.mkdir()
        first = executed(pool, folder)
        assert len(list(folder.glob("volatile-*"))) == pool.workers
        assert len(volatile.read(folder)) == 3 * 3
        assert executed(Twin(), None, folder) == first
        assert executed(pools[1], None, folder) == first
    assert executed(Twin())[1] != first[1]


def test_a_run_that_was_killed_goes_on_with_the_results_that_it_had_kept(tmp_path: Path) -> None:
    result = run(tmp_path)
    assert result.directory is not None
    assert result.summary is not None
    journal, kept = result.directory / "journal", result.directory / "volatile-0"
    journal.write_bytes(journal.read_bytes()[:-100])                # killed in its last round: no end frame
    (result.directory / "summary.json").unlink()
    (result.directory / "INCOMPLETE").write_text("")
    content = kept.read_bytes()
    resumed, = engine.resume(result.directory, 0, PLUGINS)
    assert resumed.error is None
    assert resumed.summary is not None
    assert [resumed.summary[key] for key in ("digest", "digest_model")] == [
        result.summary[key] for key in ("digest", "digest_model")]
    assert kept.read_bytes() == content


def test_a_volatile_result_in_a_scheme_that_says_nothing_ends_the_run() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.compute("draw", len, (), volatile=True)

    async def client(node: Node, p: Any) -> None:
        return

    with pytest.raises(RoleFailed, match=r"test_volatile_runs.py:\d+: compute\(volatile=True\) in a scheme that does"):
        run_world({"server": server, "client": client}, clients=1)


def test_conformance_compares_decisions_and_what_was_kept() -> None:
    found = check_scheme("sealed_scheme", SCENARIO, PLUGINS, params={"seal": "noisy"}, pools=[], quick=True)
    assert "as it is" in found


def test_conformance_finds_randomness_that_is_not_kept() -> None:
    with pytest.raises(AssertionError, match="with the results of its volatile computations from the file the run is"):
        check_scheme("sealed_scheme", SCENARIO, PLUGINS, params={"seal": "noisy", "logged": False}, pools=[])


def test_conformance_finds_randomness_that_is_not_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealed_scheme, "SCHEME", replace(sealed_scheme.SCHEME, deterministic=True))
    with pytest.raises(AssertionError, match="in a second run the run is another one"):
        check_scheme("sealed_scheme", SCENARIO, PLUGINS, params={"seal": "noisy", "logged": False}, pools=[])


def test_the_summary_says_that_values_may_differ(tmp_path: Path) -> None:
    result = run(tmp_path, 0, "schemes[0].seal=declared")
    assert result.directory is not None
    assert json.loads((result.directory / "summary.json").read_text())["deterministic"] is True
