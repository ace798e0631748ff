"""`emul.sweep` and `emul.compare`: the cells of the commands, with frames, figures, and what failed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emul
from emul import cli
from emul.base.errors import ScenarioError

Spec = dict[str, Any]
Scheme = Callable[[object], str]


@pytest.mark.slow
def test_a_comparison_has_the_runs_of_the_command_and_says_what_it_says(
        small: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    study = emul.compare(spec, seeds=range(3), workers=0, quiet=True, out="mine", set={"stop.rounds": 1})
    monkeypatch.setattr(sys, "argv", ["emul", "compare", "small.yaml", "--seeds", "0:3", "--workers", "0", "--quiet",
                                      "--out", "theirs", "--no-report", "--set", "stop.rounds=1"])
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main()
    theirs = emul.load_study("theirs")
    assert study.results["digest"].tolist() == theirs.results["digest"].tolist()
    assert study.results["directory"].tolist() == theirs.results["directory"].tolist()      # keys: the same cells
    assert capsys.readouterr().out == f"{study}\n\ntheirs\n"
    assert study.differences is not None
    assert set(study.differences["scheme"]) == {"secagg"}
    assert study.run(study.results["directory"][0]).digest == study.results["digest"][0]
    assert study.plot.accuracy("rounds").to_dict()["datasets"]
    assert study.plot.differences().to_dict()["datasets"]
    assert "fedavg" in study._repr_html_()
    assert repr(study) == "<Study compare of small: 6 runs, mine>"
    assert study.report() == Path("mine/report.html")


def test_a_sweep_has_a_row_a_cell_and_curves_by_values(small: Path) -> None:
    study = emul.sweep(small, {"links[1].outage.p": [0.1, 0.6]}, seeds=[1, 2], schemes="fedavg", workers=0, quiet=True,
                       set={"stop.rounds": 1})
    assert study.path == Path("runs/small-sweep")
    assert study.results[["links[1].outage.p", "seed"]].to_numpy().tolist() == [[0.1, 1], [0.1, 2], [0.6, 1], [0.6, 2]]
    series = set(study.plot.curves["series"])
    assert series == {"fedavg* links[1].outage.p=0.1", "fedavg* links[1].outage.p=0.6"}
    assert study.plot.grid("links[1].outage.p", "mb").to_dict()["datasets"]
    again = emul.sweep(small, {"links[1].outage.p": [0.1, 0.6]}, seeds=[1, 2], schemes="fedavg", workers=0, quiet=True,
                       set={"stop.rounds": 1})
    assert again.results.equals(study.results)
    with pytest.raises(ScenarioError, match=r"links\[7\]"):
        emul.sweep(small, {"links[7].outage.p": [0.1]}, workers=0)


def test_cells_that_fail_are_raised_with_what_there_is_of_the_others(small: Path, scheme: Scheme, spec: Spec) -> None:
    Path("half_failing.py").write_text(scheme(0).replace("if p.fail:", "if node.seed == 2:"))
    with pytest.raises(emul.StudyFailed, match=r"^half_failing seed 2 failed: .*a bug of this role") as caught:
        emul.sweep(spec | {"schemes": ["half_failing"]}, seeds=[1, 2], workers=0, quiet=True, plugins="half_failing")
    assert caught.value.study is not None
    assert caught.value.study.results["seed"].tolist() == [1]
    assert len(caught.value.study.study["failed"]) == 1


def test_arguments_that_make_no_sense_are_refused(small: Path) -> None:
    with pytest.raises(ValueError, match=r'^engine = "slurm": expected local or ray$'):
        emul.sweep(small, engine="slurm")           # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^jobs = 0: expected 1 or more$"):
        emul.compare(small, jobs=0)
    with pytest.raises(ValueError, match=r"^target = 95: expected a number from 0 to 1$"):
        emul.compare(small, target=95)
    for seeds in ([], [1.5], [-1], {1, 2}):
        with pytest.raises(ScenarioError, match=r"^seeds: 1 error\n.* expected seeds such as 0:5"):
            emul.compare(small, seeds=seeds)        # type: ignore[arg-type]
    for values in ([], 5, "57"):
        with pytest.raises(ScenarioError, match=r"^grid: 1 error\n +stop\.rounds  .*expected a list of values$"):
            emul.sweep(small, {"stop.rounds": values})      # type: ignore[dict-item]
    with pytest.raises(ScenarioError, match=r"seed +cannot be varied here"):
        emul.sweep(small, {"seed": [1, 2]}, seeds=[3])


def test_a_seed_that_is_said_twice_counts_once_and_may_be_one_of_numpy(small: Path) -> None:
    study = emul.compare(small, seeds=np.array([1, 1, 1]), workers=0, quiet=True, set={"stop.rounds": 1})
    assert study.study["seeds"] == [1]
    assert study.differences is not None
    assert set(study.differences["n_seeds"]) <= {0, 1}
    assert study.differences["p"].isna().all()
