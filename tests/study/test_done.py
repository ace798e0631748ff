"""`emul sweep --done`: a table of finished cells that outlives their run directories."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from emul.base.errors import EmulError
from emul.base.machine import chip
from emul.study import syntax
from emul.study.cells import asked, cells
from emul.study.done import COLUMNS, Done
from emul.study.job import CELLS, ORIGIN, revision
from emul.study.runs import Where, summary_of
from emul.study.sweep import sweep

Inside = Callable[..., Where]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_finished_cell_is_a_row_with_its_numbers_and_its_curve(small: Path, inside: Inside, tmp_path: Path) -> None:
    table = tmp_path / "deep" / "done.csv"
    study = sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"], done=table)
    found = rows(table)
    assert [list(row) for row in found] == [list(COLUMNS)] * 2
    for row, cell in zip(found, study.runs, strict=True):
        summary = summary_of(study.path, cell)
        assert (row["key"], row["seed"]) == (asked(cell.scenario), str(cell.seed))
        assert (row["digest"], row["rounds"], row["best_five"]) == (summary["digest"], "2", "")
        curve = dict(point.split(":") for point in row["curve"].split())
        assert list(curve) == ["1", "2"]
        assert float(curve["2"]) == pytest.approx(summary["accuracy"], abs=1e-4)
        assert json.loads(row["means"])["received"] <= 3


def test_what_has_a_row_is_not_run_again_though_its_run_is_gone(small: Path, inside: Inside, tmp_path: Path) -> None:
    table = tmp_path / "done.csv"
    sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=table)
    before = table.read_text()
    again = sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"], done=table, out=tmp_path / "elsewhere")
    assert ([cell.seed for cell in again.runs], again.known, again.found) == ([1], 1, 0)
    assert table.read_text().startswith(before)
    assert [row["seed"] for row in rows(table)] == ["0", "1"]
    assert sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"], done=table, out=tmp_path / "third").known == 2
    assert len(rows(table)) == 2


def test_of_two_sweeps_on_one_table_the_second_adds_no_row_that_the_first_has_added(small: Path, inside: Inside,
                                                                                    tmp_path: Path) -> None:
    first, second = (Done(tmp_path / "done.csv") for _ in range(2))         # both opened while the table was not there
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"])
    for table in (first, second):
        table.add(study.path, study.runs[0])
    assert len(rows(tmp_path / "done.csv")) == 1


def test_a_row_that_was_cut_is_not_done_and_does_not_swallow_the_next_one(small: Path, inside: Inside,
                                                                          tmp_path: Path) -> None:
    table = tmp_path / "done.csv"
    sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"], done=table)
    whole = table.read_text().splitlines()
    table.write_text(table.read_text()[:-len(whole[-1]) // 2])
    assert len(Done(table).code) == 1
    sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"], done=table, out=tmp_path / "elsewhere")
    lines = table.read_text().splitlines()
    assert (lines[:2], len(lines)) == (whole[:2], 4)
    assert len(Done(table).code) == 2


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "done.csv").write_bytes(bytes(range(256)))
    with pytest.raises(EmulError, match=r"done\.csv: is no table"):
        Done(tmp_path / "done.csv")


def test_runs_that_are_there_without_a_row_get_one(small: Path, inside: Inside, tmp_path: Path) -> None:
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"])
    table = tmp_path / "done.csv"
    again = sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=table)
    assert (again.found, again.known, len(rows(table))) == (1, 0, 1)
    assert rows(table)[0]["digest"] == summary_of(study.path, study.runs[0])["digest"]


def test_a_row_has_what_makes_it_again(small: Path, inside: Inside, tmp_path: Path) -> None:
    table = tmp_path / "data" / "done.csv"
    more = tmp_path / "more.yaml"
    more.write_text("evaluation: {every: 2}\n")
    sweep(small, inside(), seeds=[0], schemes=["fedavg"], sets=[more, "stop.rounds=2"], done=table,
          grid={"stop.rounds": [1, 2]})
    one, two = rows(table)
    assert (one["file"], json.loads(one["sets"])) == ("small.yaml", [{"file": "more.yaml"}, "stop.rounds=2"])
    assert [json.loads(row["values"]) for row in (one, two)] == [{"stop.rounds": 1}, {"stop.rounds": 2}]
    assert json.loads(one["parameters"])["weights"] == "samples"         # a default
    assert (one["revision"], one["torch"]) == (revision(), metadata.version("torch"))
    assert one["processor"] == chip()
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", one["made"])
    assert one["code"] == syntax.code_of([syntax.ROOT / "schemes" / "fedavg.py"])


def test_a_row_of_other_code_stands_and_is_told_of(small: Path, inside: Inside, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of code that is not in the scheme's own file: a row was stale without a sign once local training changed."""
    table = tmp_path / "done.csv"
    first, = cells(small, {}, [0], ["fedavg"])
    sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=table)
    changed = tmp_path / "emul"
    shutil.copytree(syntax.ROOT, changed, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(syntax, "ROOT", changed)
    with (changed / "learning" / "stack.py").open("a") as file:
        file.write("\n# a comment\n")
    assert sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=table, out=tmp_path / "same").warnings == []
    with (changed / "learning" / "stack.py").open("a") as file:
        file.write("\nOTHER = 1\n")
    then, = cells(small, {}, [0], ["fedavg"])
    assert (first.key == then.key, asked(first.scenario) == asked(then.scenario)) == (True, True)
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=table, out=tmp_path / "other")
    assert (study.known, study.runs) == (1, [])
    assert study.warnings == [f"{table}: 1 of the 1 cells in it were run with other code than there is now; delete "
                              "their rows to have them run again, or see with `emul verify` whether they still hold"]


def test_a_run_of_an_older_revision_gets_a_row_that_says_so(small: Path, inside: Inside, tmp_path: Path) -> None:
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"])
    origin = study.path / CELLS / study.runs[0].key / ORIGIN
    then = {"revision": "0123456789", "processor": "abacus", "torch": "1.0", "made": "1801-07-07"}
    origin.write_text(json.dumps(then))
    sweep(small, inside(), seeds=[0], schemes=["fedavg"], done=tmp_path / "done.csv")
    row, = rows(tmp_path / "done.csv")
    assert row["code"] == ""
    assert {name: row[name] for name in then} == then


def test_another_value_seed_or_scheme_is_another_row(small: Path) -> None:
    found = cells(small, {"stop.rounds": [1, 2]}, [0, 1])
    assert len({asked(cell.scenario) for cell in found}) == len(found) == 8


def test_a_failed_cell_has_no_row(picky: str, small: Path, inside: Inside, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("[fedavg,", "[picky, fedavg,"))
    study = sweep(small, inside(picky), seeds=[1], schemes=["picky", "fedavg"], done=tmp_path / "done.csv")
    assert [failure.cell.scheme for failure in study.failed] == ["picky"]
    assert [row["scheme"] for row in rows(tmp_path / "done.csv")] == ["fedavg"]


def test_another_file_is_refused_before_anything_runs(small: Path, inside: Inside, tmp_path: Path) -> None:
    table = tmp_path / "done.csv"
    table.write_text("round,accuracy\n1,0.5\n")
    with pytest.raises(EmulError, match=r"done\.csv: found the columns round, accuracy; expected key, code, file,"):
        sweep(small, inside(), seeds=[0], done=table)
    assert not Path("runs").exists()
    assert Done(tmp_path / "none.csv").code == {}
