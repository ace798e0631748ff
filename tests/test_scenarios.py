"""The scenarios that ship: real worker processes, real data, one realisation of the network for all schemes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from emul import engine
from emul.record.load import load_run
from emul.scenario import load

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def quickstart(pools, tmp_path_factory):
    """Two of its thirty rounds."""
    out = tmp_path_factory.mktemp("quickstart")
    return engine.run(load(ROOT / "scenarios" / "quickstart.yaml", sets=["stop.rounds=2"]), workers=pools[1], out=out)


@pytest.fixture(scope="module")
def whole(pools, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return engine.run(load(ROOT / "scenarios" / "quickstart.yaml"), workers=pools[1], out=out)


def test_quickstart_runs_three_schemes_and_no_invariant_is_violated(quickstart):
    assert [r.scheme for r in quickstart] == ["fedavg", "secagg", "fair_seccogc"]
    assert [r.error for r in quickstart] == [None, None, None]
    assert [r.violations for r in quickstart] == [(), (), ()]
    assert [r.warnings for r in quickstart] == [(), (), ()]


def test_no_wait_of_the_quickstart_knows_fates(quickstart):
    assert [r.summary["oracle_waits"] for r in quickstart] == [{}, {}, {}]


def test_the_schemes_of_mnist_have_deadlines_and_sound_thresholds():
    entries = dict(load(ROOT / "scenarios" / "mnist.yaml", check=False).schemes)
    assert entries["fedavg"]["deadline"] == "500 ms"
    assert 2 * entries["secagg"]["threshold"] > 10
    assert {"share", "uplink", "setup"} <= entries["fair_seccogc"].keys()


@pytest.mark.slow
def test_quickstart_learns(whole):
    accuracy = {r.scheme: r.summary["accuracy"] for r in whole}
    assert accuracy["fedavg"] > 0.9
    assert accuracy["secagg"] > 0.9
    assert accuracy["fair_seccogc"] > 0.85         # a quarter of its rounds cannot be decoded


def test_all_schemes_of_quickstart_meet_the_same_outages_of_the_uplinks(pools, tmp_path):
    """Common random numbers: the fate of an uplink in a round is the same whichever scheme sends over it."""
    scenario = load(ROOT / "scenarios" / "quickstart.yaml", sets=["training=skip"])
    fates = []
    for result in engine.run(scenario, workers=pools[1], out=tmp_path):
        messages = load_run(result.directory).messages
        up = messages[(messages.target_name == "server") & (messages["round"] > 0)]
        lost = up.fate.astype(str) == "lost"
        by_link = lost.groupby([up.source_name.astype(str), up["round"]])
        assert (by_link.min() == by_link.max()).all()          # a round's outage holds for all its messages
        fates.append(by_link.max())
    fedavg, secagg, seccogc = fates
    for other in (secagg, seccogc):
        common = fedavg.index.intersection(other.index)
        assert len(common) > 100
        assert (fedavg[common] == other[common]).all()
    assert 0.1 < fedavg.mean() < 0.3


@pytest.mark.slow
def test_quickstart_is_replayed_to_the_bit_in_one_process(whole):
    for result in whole:
        assert engine.replay(result.directory, workers=0) == result.summary["digest"]


@pytest.mark.release
def test_mnist_runs_three_schemes_and_learns(pools, tmp_path, monkeypatch):
    directory = Path(os.environ.get("EMUL_DATA", SHARED))
    if not (directory / "mnist").is_dir() and not list(directory.glob("train-images-idx3-ubyte*")):
        pytest.skip(f"no MNIST files in {directory}: set EMUL_DATA")
    monkeypatch.setenv("EMUL_DATA", str(directory))
    results = engine.run(load(ROOT / "scenarios" / "mnist.yaml"), workers=pools[1], out=tmp_path)
    assert [r.error for r in results] == [None, None, None]
    assert [r.violations for r in results] == [(), (), ()]
    accuracy = {r.scheme: r.summary["accuracy"] for r in results}
    assert accuracy["fedavg"] > 0.9
    assert accuracy["secagg"] > 0.9
