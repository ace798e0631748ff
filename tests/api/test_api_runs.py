"""`emul.run`, `check`, `explain`: as the commands, from paths, mappings and scenarios, wherever they are called."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul import cli
from emul.base.errors import ScenarioError

ROOT = Path(__file__).resolve().parents[2]

Spec = dict[str, Any]
Scheme = Callable[[object], str]


def digests(runs: emul.Runs) -> dict[str, str | None]:
    return {run.scheme: run.digest for run in runs}


@pytest.fixture
def commands(small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Label -> digest, as `emul run` has them."""
    monkeypatch.setattr(sys, "argv", ["emul", "run", "small.yaml", "--workers", "0", "--quiet", "--json"])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main()
    return {run["scheme"]: run["summary"]["digest"] for run in json.loads(capsys.readouterr().out)["runs"]}


def test_a_path_a_mapping_and_a_scenario_run_as_the_command_does(small: Path, spec: Spec,
                                                                 commands: dict[str, str]) -> None:
    mapping = spec | {"seed": np.int64(7), "links": tuple(spec["links"])}        # what Python has in place of YAML
    for given in (small, str(small), mapping, emul.load_scenario(small)):
        assert digests(emul.run(given, workers=0, quiet=True)) == commands
    with_seed = emul.run(small, workers=0, quiet=True, seed=8, schemes="fedavg")
    assert [run.scheme for run in with_seed] == ["fedavg"]
    assert with_seed[0].digest != commands["fedavg"]


def test_what_is_set_and_which_schemes_run_is_said_by_arguments(small: Path) -> None:
    run, = emul.run(small, workers=0, quiet=True, schemes=["secagg"], out="elsewhere",
                    set={"stop.rounds": 1, "task.partition": {"dirichlet": 0.5}, "schemes.secagg.threshold": 3})
    assert run.path == Path("elsewhere/small-secagg-1")
    assert run.scenario.stop.rounds == 1
    assert run.scenario.task["partition"] == {"dirichlet": 0.5}
    assert run.scenario.schemes == [("secagg", {"threshold": 3})]
    with pytest.raises(ScenarioError, match=r'"krum"  expected one of its schemes: fedavg, secagg'):
        emul.run(small, schemes="krum")
    with pytest.raises(ScenarioError, match=r"--set stop\.rouns"):
        emul.run(small, set={"stop.rouns": 3})


def test_mistakes_of_a_mapping_are_told_by_their_places(small: Path, spec: Spec) -> None:
    wrong = spec | {"stop": {"rounds": object()}, "name": "mine", "links": [{"match": "*", "latency": {1.5: 2}}]}
    with pytest.raises(ScenarioError) as caught:
        emul.check(wrong)
    assert [(p.place, p.found, p.line) for p in caught.value.problems] == [
        ("links[0].latency", '"1.5"', None), ("stop.rounds", "object", None)]
    assert str(caught.value).startswith("mine: 2 errors\n")
    with pytest.raises(ScenarioError, match=r"stop\.rounds +\"many\" +expected a whole number"):
        emul.check(spec | {"stop": {"rounds": "many"}})
    deep: list[object] = []
    deep.append(deep)
    with pytest.raises(ScenarioError, match="nested more than 40 deep"):
        emul.check(spec | {"links": deep})


def test_a_run_has_frames_a_model_and_what_it_ran(small: Path) -> None:
    runs = emul.run(small, workers=0, quiet=True)
    fedavg = runs.of("fedavg")
    assert fedavg.rounds["round"].tolist() == [1, 2]
    assert set(fedavg.messages["source_role"]) == {"server", "client"}
    assert fedavg.accuracy == fedavg.summary["accuracy"] == fedavg.rounds["accuracy"].iloc[-1]
    assert fedavg.model().vector().shape == (650,)
    assert (fedavg.error, fedavg.violations) == (None, [])
    assert runs.table["scheme"].tolist() == ["fedavg", "secagg"]
    assert runs.table["bytes_total"].tolist() == [run.summary["bytes_total"] for run in runs]
    again = emul.load_run(fedavg.path)
    assert (again.digest, repr(again)) == (fedavg.digest, "<Run fedavg: runs/small-fedavg-1>")
    assert again.messages.equals(fedavg.messages)
    assert "fedavg" in fedavg._repr_html_()
    assert str(runs).splitlines()[0].split() == [
        "scheme", "rounds", "failed", "rounds", "accuracy", "of", "virtual", "time", "bytes", "lost", "real", "time"]
    assert all(name in runs._repr_html_() for name in ("fedavg", "secagg"))
    with pytest.raises(KeyError, match="no run of krum; there are: fedavg, secagg"):
        runs.of("krum")


def test_a_run_that_failed_is_raised_with_all_that_there_is(small: Path, scheme: Scheme, spec: Spec) -> None:
    Path("answering.py").write_text(scheme(1))
    with pytest.raises(emul.RunFailed, match=r"(?s)answering failed: RoleFailed: .*Error: a bug of this role") as e:
        emul.run(spec | {"schemes": ["fedavg", {"name": "answering", "fail": True}]}, workers=0, quiet=True,
                 plugins="answering")
    sound, failed = e.value.runs
    assert sound.error is None
    assert sound.rounds["completed"].all()
    assert "a bug of this role" in str(failed.error)
    assert failed.incomplete is not None
    assert failed.rounds["completed"].tolist() == [False]
    assert "FAILED" in repr(failed)
    assert "a bug of this role" in failed._repr_html_()


def test_a_plug_in_that_was_edited_is_run_as_it_is_now(small: Path, scheme: Scheme, spec: Spec) -> None:
    found = []
    for answer in "123":                    # files of one size, within one second
        Path("changing.py").write_text(scheme(answer))
        run, = emul.run(spec | {"schemes": ["changing"]}, workers=0, quiet=True, plugins=["changing"])
        found.append(run.rounds["answer"].tolist())
    assert found == [[1, 1], [2, 2], [3, 3]]
    del sys.modules["changing"]


def test_it_runs_inside_a_running_event_loop(small: Path, commands: dict[str, str]) -> None:
    async def cell() -> emul.Runs:
        await asyncio.sleep(0)
        return emul.run(small, workers=0, quiet=True)

    assert digests(asyncio.run(cell())) == commands


def test_a_script_needs_no_main_guard_and_finds_plug_ins_beside_it(small: Path, scheme: Scheme, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside.py").write_text(scheme(42))
    (tmp_path / "scripts" / "script.py").write_text(
        "import emul\n"
        "runs = emul.run('small.yaml', workers=2, quiet=True, plugins='beside',\n"
        "                set={'schemes': ['fedavg', 'beside']})\n"
        "print(runs[0].digest, runs[1].rounds['answer'].tolist())\n")
    done = subprocess.run([sys.executable, "scripts/script.py"], capture_output=True, text=True, check=False,
                          timeout=120, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    run, = emul.run(small, workers=0, quiet=True, schemes="fedavg")
    assert done.stdout.split("\n") == [f"{run.digest} [42, 42]", ""]


@pytest.mark.parametrize(("schemes", "stage", "said"), [
    (["fedavg"], "Masked", "no scheme of this scenario sends it with its parameters"),
    ([{"name": "mp_dp", "preset": "paper"}], "Masked", "no scheme of this scenario sends it with its parameters"),
    ([{"name": "mp_dp", "preset": "sound"}], "Blocks", "no scheme of this scenario sends it with its parameters"),
    ([{"name": "mp_dp", "preset": "paper", "repair": "seeds"}], "Seeds", None),
    ([{"name": "secagg", "route": "server"}], "Shares",
     'no scheme of this scenario sends it with its parameters; did you mean "SharesUp"?'),
    (["fedavg", {"name": "mp_dp", "preset": "paper"}], "Blocks", None), (["secagg"], "Masked", None)])
def test_a_stage_that_no_scheme_has_with_its_parameters_is_an_error_of_check(spec: Spec, schemes: list[Any], stage: str,
                                                                              said: str | None) -> None:
    fault = {"node": "client2", "stage": stage, "drop": True}
    asked = spec | {"schemes": schemes, "faults": [fault]}
    if said is None:
        assert emul.check(asked)
        return
    with pytest.raises(ScenarioError) as error:
        emul.check(asked)
    problem, = error.value.problems
    assert (problem.place, problem.found) == ("faults[0].stage", f'"{stage}"')
    assert problem.expected.startswith(said)


def test_check_says_what_the_command_says(small: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    text = {"faults": [{"at": "1 s", "node": "client1", "slow": 2}]}
    checked = emul.check(spec | text)
    assert checked.schemes == ["fedavg", "secagg"]
    assert checked.warnings == ["faults: slow has no effect with compute mode: zero"]
    assert str(checked).splitlines()[-1] == "small: ok; schemes: fedavg, secagg"
    assert checked.scenario == emul.load_scenario(spec | text)
    assert "no effect" in checked._repr_html_()
    monkeypatch.setattr(sys, "argv", ["emul", "check", "small.yaml"])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main()
    assert capsys.readouterr().out == f"{emul.check('small.yaml')}\n"


def test_explain_has_routes_and_traffic_as_values_and_as_frames(small: Path) -> None:
    found = emul.explain(small, size="2 MB", scheme="fedavg", set={"topology.clients": 4})
    assert found.document["roles"] == {"server": 1, "client": 4}
    assert found.document["schemes"][0]["round"]["messages"] == 8
    title, *_ = found.frames
    assert title.startswith("Routes, and a message of 2 MB")
    assert found.frames[title]["from"].tolist() == ["server", "client", "client"]
    assert all(title in str(found) for title in found.frames)
    assert "<table" in found._repr_html_()
    with pytest.raises(ValueError, match="the unit is missing"):
        emul.explain(small, size="2")
