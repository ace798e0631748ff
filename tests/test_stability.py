"""Versions before: their scenarios load and run, so do schemes of users, their runs are read, their names are there.

`docs/stability.md` promises it; `tests/stable` has what each version left.
"""

from __future__ import annotations

import inspect
import json
import sys
from pathlib import Path

import pytest

import emul

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = sorted(path for path in (ROOT / "tests/stable").iterdir() if path.is_dir())


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a version, whose scheme `own` can be imported."""
    found: Path = request.param
    monkeypatch.syspath_prepend(found)
    monkeypatch.delitem(sys.modules, "own", raising=False)
    return found


def test_a_scenario_of_before_runs_with_a_scheme_of_a_user(before: Path, tmp_path: Path) -> None:
    runs = emul.run(before / "scenario.yaml", workers=0, out=tmp_path, plugins="own", quiet=True)
    assert [run.scheme for run in runs] == ["fedavg", "secagg", "mine"]
    assert [list(run.rounds["round"]) for run in runs] == [[1, 2]] * 3


def test_a_run_of_before_is_read_with_all_its_tables(before: Path) -> None:
    run = emul.load_run(before / "run")
    assert run.incomplete is None
    assert (run.scheme, run.digest) == ("fedavg", json.loads((before / "run/summary.json").read_text())["digest"])
    assert list(run.rounds["accuracy"])[-1] == pytest.approx(0.265993265993266)
    assert {"source", "target", "type", "round", "wire_bytes", "sent_ns", "arrived_ns", "fate"} <= set(run.messages)
    assert set(run.messages["type"]) == {"Model", "PackedUpdate"}
    assert run.messages["wire_bytes"].sum() == run.summary["bytes_total"]
    assert len(run.computations) == len(run.timings) > 0
    assert run.model().vector().shape == (650,)
    assert run.model_rounds("server") == [1, 2]
    assert min(map(len, (run.samples, run.traffic, run.network))) > 0
    (kept,) = run.payload("Model", 2, plugins=["own"])
    assert kept.message.parameters.shape == (650,)
    assert run.scenario.schemes[0][0] == "fedavg"


def test_the_names_and_arguments_of_before_are_there(before: Path) -> None:
    """New arguments may come behind the old ones, or be given by name."""
    for path, arguments in json.loads((before / "api.json").read_text(encoding="utf-8")).items():
        name, _, member = path.partition(".")
        thing = getattr(emul, name)
        if member and not hasattr(thing, member):
            assert any(member in inspect.get_annotations(kind) for kind in thing.__mro__), path
        elif arguments:
            known = inspect.signature(getattr(thing, member) if member else thing).parameters
            assert [one for one in known if one in arguments.split()] == arguments.split(), path
            added = [one for one in known.values() if one.name not in (*arguments.split(), "self")]
            assert all(one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
                       for one in added), path
