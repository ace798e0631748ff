"""Sweeps: what is run, what is not run again, and what becomes of cells that fail and of sweeps that are killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_ray import own_ray

import emul
from emul import engine
from emul.base.errors import ScenarioError
from emul.study import tables
from emul.study.cells import Cell
from emul.study.directory import StudyError, opened
from emul.study.engines import _Waiting, in_processes, in_turn
from emul.study.job import CellJob
from emul.study.runs import Where, summary_of
from emul.study.sweep import Shard, shard, sweep

Inside = Callable[..., Where]


def digests(study: Path) -> dict[str, str]:
    """Directory -> digest of all runs in the tables of a study."""
    frame = pd.read_csv(study / "results.csv")
    return dict(zip(frame["directory"], frame["digest"], strict=True))


def births(study: Path) -> dict[str, int]:
    """Cell -> inode of its summary, which a second run would change."""
    return {path.parent.name: path.stat().st_ino for path in study.glob("cells/[!.]*/summary.json")}


def same_results(a: Path, b: Path) -> None:
    for frame, other in zip(*([pd.read_parquet(p / "results.parquet"), pd.read_csv(p / "results.csv")] for p in (a, b)),
                            strict=True):
        pd.testing.assert_frame_equal(frame.drop(columns="real_s"), other.drop(columns="real_s"))


# --- what a sweep leaves --------------------------------------------------------------------------------------------

def test_a_sweep_leaves_a_run_a_cell_a_table_and_what_was_asked_for(small: Path, inside: Inside) -> None:
    study = sweep(small, inside(), grid={"schemes.secagg.threshold": [2, 3]}, seeds=[0, 1])
    assert study.path == Path("runs/small-sweep")
    assert (len(study.runs), study.failed, study.found, study.violated) == (6, [], 0, [])

    said = json.loads((study.path / "study.json").read_text())
    assert {k: said[k] for k in ("emul_study", "kind", "scenario", "grid", "seeds", "failed")} == {
        "emul_study": 1, "kind": "sweep", "scenario": "small", "grid": {"schemes.secagg.threshold": [2, 3]},
        "seeds": [0, 1], "failed": []}
    assert said["runs"][1] == {"directory": f"cells/{study.runs[1].key}", "scheme": "secagg", "seed": 0,
                               "values": {"schemes.secagg.threshold": 2}}

    read = emul.load_study(study.path)
    frame = read.results
    assert list(frame.columns) == ["scheme", "seed", "schemes.secagg.threshold", "parameters.threshold",
                                   *list(tables.COLUMNS["results"])[2:]]
    assert frame["parameters.threshold"].equals(frame["schemes.secagg.threshold"])
    assert frame["schemes.secagg.threshold"].isna().tolist() == [s == "fedavg" for s in frame["scheme"]]
    pd.testing.assert_frame_equal(frame, pd.read_csv(study.path / "results.csv"))
    for row in frame.itertuples():
        run = emul.load_run(str(study.path / row.directory))
        assert (run.summary["digest"], run.summary["seed"]) == (row.digest, row.seed)
        assert row.bytes == run.messages.wire_bytes.sum()
        assert row.best_accuracy == run.rounds.accuracy.max()
        assert not (study.path / row.directory / "INCOMPLETE").exists()
    assert read.run(frame["directory"][0]).summary["scheme"] == "fedavg"
    assert not list(study.path.glob("cells/.*"))


def test_the_section_of_the_scenario_says_what_the_options_do_not(small: Path, inside: Inside) -> None:
    small.write_text(small.read_text()
                     + "sweep: {grid: {stop.rounds: [1, 2]}, seeds: 3:5, schemes: [fedavg]}\n")
    study = sweep(small, inside())
    assert [(c.values, c.seed, c.scheme) for c in study.runs] == [
        ({"stop.rounds": rounds}, seed, "fedavg") for rounds in (1, 2) for seed in (3, 4)]
    fewer = sweep(small, inside(), seeds=[3], grid={"stop.rounds": [2]})
    assert (len(fewer.runs), fewer.found) == (1, 1)


@pytest.mark.parametrize(("section", "said"), [
    ("{seeds: 5:5}", "expected seeds such as 0:5, which are 0..4, or 1,2,7: 5:5 holds none"),
    ("{seeds: [1, -2]}", "expected seeds such as 0:5"),
    ("{grid: {stop.rounds: 3}}", "expected a list of values"),
    ("{gird: {}}", 'unknown key; did you mean "grid"?'),
    ("{grid: {seed: [1]}}", "cannot be varied here: use --seeds"),
])
def test_a_section_that_makes_no_sense_is_refused(small: Path, inside: Inside, section: str, said: str) -> None:
    small.write_text(small.read_text() + f"sweep: {section}\n")
    with pytest.raises(ScenarioError) as caught:
        sweep(small, inside())
    assert said in str(caught.value)
    assert not Path("runs").exists()


def test_what_is_there_is_not_run_again_and_what_is_new_is(small: Path, inside: Inside) -> None:
    first = sweep(small, inside(), seeds=[0], schemes=["fedavg"])
    born = births(first.path)
    second = sweep(small, inside(), seeds=[0, 1], schemes=["fedavg"])
    assert (len(second.runs), second.found) == (2, 1)
    assert births(first.path).items() >= born.items()
    assert len(births(first.path)) == 2


def test_a_cell_whose_mark_is_still_there_is_run_again(small: Path, inside: Inside) -> None:
    first = sweep(small, inside(), seeds=[0])
    before, cell = digests(first.path), first.runs[0]
    (first.path / "cells" / cell.key / "INCOMPLETE").write_text("")
    born = births(first.path)
    again = sweep(small, inside(), seeds=[0])
    assert again.found == 1
    assert digests(first.path) == before
    assert {k for k, inode in births(first.path).items() if born[k] != inode} == {cell.key}


def test_a_cell_that_was_damaged_is_run_again(small: Path, inside: Inside, caplog: pytest.LogCaptureFixture) -> None:
    first = sweep(small, inside(), seeds=[0])
    before, cell = digests(first.path), first.runs[0]
    file = first.path / "cells" / cell.key / "summary.json"
    file.write_text(file.read_text()[:-9])
    assert sweep(small, inside(), seeds=[0]).found == 1
    assert digests(first.path) == before
    assert "damaged or changed since the run: summary.json" in caplog.text
    (file.parent / "seal.json").unlink()
    (file.parent / "rounds.parquet").write_bytes(b"xx")
    assert sweep(small, inside(), seeds=[0]).found == 1
    shutil.rmtree(file.parent)
    file.parent.write_text("a file in place of the cell")
    assert sweep(small, inside(), seeds=[0]).found == 1
    assert digests(first.path) == before


def test_values_of_many_kinds_make_columns_that_a_table_can_hold(small: Path, inside: Inside) -> None:
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"],
                  grid={"task.partition": ["iid", {"dirichlet": 0.5}], "links[0].latency": ["1 ms"]})
    frame = pd.read_parquet(study.path / "results.parquet")
    assert frame["task.partition"].tolist() == ["iid", '{"dirichlet": 0.5}']
    assert frame["links[0].latency"].tolist() == ["1 ms", "1 ms"]


def test_a_directory_of_something_else_is_left_alone(small: Path, inside: Inside) -> None:
    (small.parent / "runs").mkdir()
    (small.parent / "runs" / "thesis.tex").write_text("dear")
    with pytest.raises(StudyError, match=r"^runs: holds something else than a study; choose another --out$"):
        sweep(small, inside(), out=Path("runs"))
    assert os.listdir("runs") == ["thesis.tex"]


def test_the_folder_of_another_study_is_left_alone(small: Path, inside: Inside) -> None:
    study = sweep(small, inside(), seeds=[0], schemes=["fedavg"])
    before = (study.path / "study.json").read_bytes()
    other = small.with_name("other.yaml")
    other.write_text(small.read_text().replace("name: small", "name: other"))
    with pytest.raises(StudyError, match=r"holds a study of small, not of other; choose another --out$"):
        sweep(other, inside(), seeds=[0], out=study.path)
    assert (study.path / "study.json").read_bytes() == before


def test_two_processes_cannot_work_on_one_study(small: Path, inside: Inside) -> None:
    with opened(Path("study"), "small"), \
            pytest.raises(StudyError, match=r"^study: another process works on this study$"):
        sweep(small, inside(), out=Path("study"))


def test_what_is_no_study_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r": no directory of a study: study.json is missing$"):
        emul.load_study(tmp_path)
    (tmp_path / "study.json").write_text('{"emul_study": 7}')
    with pytest.raises(StudyError, match=r"study.json: expected emul_study: 1$"):
        emul.load_study(tmp_path)


# --- cells that fail ------------------------------------------------------------------------------------------------

def test_a_cell_that_fails_stops_no_other_is_named_and_is_run_again(small: Path, picky: str, inside: Inside) -> None:
    options = {"sets": [f"schemes=[{picky}, fedavg]"], "seeds": [0, 1, 2]}
    study = sweep(small, inside(picky), **options)
    assert [(f.cell.scheme, f.cell.seed) for f in study.failed] == [(picky, 1)]
    assert study.failed[0].error.startswith("RoleFailed: server (server) failed at 0 s")
    assert "LookupError: no odd seeds" in study.failed[0].error
    assert len(study.runs) == 5
    said = json.loads((study.path / "study.json").read_text())
    assert [(f["scheme"], f["seed"], "LookupError" in f["error"]) for f in said["failed"]] == [(picky, 1, True)]
    left = study.path / said["failed"][0]["directory"]
    assert (left / "INCOMPLETE").exists()
    assert "LookupError" in (left / "error.txt").read_text()
    assert len(pd.read_csv(study.path / "results.csv")) == 5

    (small.parent / "picky.py").write_text((small.parent / "picky.py").read_text().replace("% 2", "% 5 == 4"))
    del sys.modules[picky]              # as a new process would see it
    mended = sweep(small, inside(picky), **options)
    assert (mended.failed, len(mended.runs), mended.found) == ([], 6, 3)    # the scheme's other cells count as new


@pytest.mark.machine
@pytest.mark.slow
def test_a_process_that_dies_costs_its_cell_alone(small: Path) -> None:
    (small.parent / "deadly.py").write_text(
        '"""Ends its process on seed 1."""\nimport os\nfrom dataclasses import dataclass\n\n'
        "from emul.roles import Scheme\n\n\n@dataclass(frozen=True)\nclass Params:\n    pass\n\n\n"
        "async def server(node, p):\n    if node.seed == 1:\n        os._exit(9)\n\n\n"
        "async def client(node, p):\n    pass\n\n\n"
        'SCHEME = Scheme(params=Params, roles={"server": server, "client": client})\n')
    study = sweep(small, Where(in_processes(1), 0, ("deadly",)), sets=["schemes=[deadly]"], seeds=[0, 1, 2])
    assert [(f.cell.seed, f.error) for f in study.failed] == [(1, "the process that ran it ended with code 9")]
    assert [cell.seed for cell in study.runs] == [0, 2]
    assert len(list(study.path.glob("cells/.*.tmp"))) == 1
    sweep(small, Where(in_turn, 0, ("deadly",)), sets=["schemes=[deadly]"], seeds=[0])
    assert not list(study.path.glob("cells/.*.tmp"))         # what the dead one left is gone


# --- processes ------------------------------------------------------------------------------------------------------

def test_results_do_not_depend_on_where_cells_run(small: Path, inside: Inside) -> None:
    options = {"grid": {"stop.rounds": [1, 2]}, "seeds": [1], "schemes": ["fedavg"]}
    a = sweep(small, inside(), out=Path("a"), **options)
    b = sweep(small, Where(in_processes(2), 0), out=Path("b"), **options)
    assert len(a.runs) == 2
    same_results(a.path, b.path)


SLOW = ["--set", "stop.rounds=6", "--set", "task.model=digits_cnn", "--seeds", "0:4", "--schemes", "fedavg",
        "--workers", "0", "--quiet", "--out"]


@contextlib.contextmanager
def started(small: Path, out: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`emul sweep` as a process in a session of its own, once its first cell is done."""
    command = [sys.executable, "-m", "emul", "sweep", str(small), *SLOW, out, *options]
    process = subprocess.Popen(command, cwd=small.parent, start_new_session=True, stdout=subprocess.DEVNULL,
                               env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        deadline = time.monotonic() + 180      # on a busy machine, too
        while not births(small.parent / out):
            assert process.poll() is None, "it ended before it was interrupted"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


def session(pid: int) -> list[int]:
    """Living processes of the session `pid`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            after = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(after[3]) == pid and after[0] != "Z":
                found.append(int(entry.name))
    return found


@pytest.mark.machine
@pytest.mark.slow
def test_a_sweep_that_is_killed_runs_only_what_is_missing_and_ends_the_same(small: Path, inside: Inside) -> None:
    with started(small, "killed") as process:
        process.send_signal(signal.SIGKILL)
        process.wait(20)
    born = births(Path("killed"))
    assert 1 <= len(born) < 4
    options = {"sets": ["stop.rounds=6", "task.model=digits_cnn"], "seeds": [0, 1, 2, 3], "schemes": ["fedavg"]}
    resumed = sweep(small, inside(), out=Path("killed"), **options)
    assert resumed.found == len(born)
    assert births(Path("killed")).items() >= born.items()
    assert len(births(Path("killed"))) == 4
    assert not list(Path("killed").glob("cells/.*"))
    whole = sweep(small, inside(), out=Path("whole"), **options)
    assert whole.found == 0
    assert digests(Path("killed")) == digests(Path("whole"))
    same_results(Path("killed"), Path("whole"))


@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_sweep_that_ends_takes_its_processes_along(small: Path, how: signal.Signals) -> None:
    with started(small, "many", "--jobs", "2") as process:
        assert len(session(process.pid)) >= 3
        process.send_signal(how)
        code = process.wait(60)
        deadline = time.monotonic() + 180      # on a busy machine, too
        while session(process.pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert code == (130 if how == signal.SIGINT else -signal.SIGKILL)
    if how == signal.SIGINT:            # and what is finished can be looked at
        assert len(emul.load_study("many").results) == len(births(Path("many"))) >= 1
        assert not list(Path("many").glob("cells/.*.tmp"))


# --- Ray ------------------------------------------------------------------------------------------------------------

@pytest.mark.machine
@pytest.mark.slow
@pytest.mark.xdist_group("cluster")
def test_a_sweep_on_a_local_ray_gives_the_same_results(small: Path, picky: str, inside: Inside,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: install emul[ray]")
    from emul.study.engines import on_ray

    options = {"seeds": [0, 1], "sets": [f"schemes=[fedavg, secagg, {picky}]"]}
    a = sweep(small, inside(picky), out=Path("a"), **options)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))     # for Ray's processes, which find no plug-in else
    with own_ray():
        b = sweep(small, Where(on_ray, 1, (picky,)), out=Path("b"), **options)
    assert len(b.runs) == 5
    assert [(f.cell.scheme, f.cell.seed) for f in b.failed] == [(picky, 1)]
    assert re.search("LookupError: no odd seeds", b.failed[0].error)
    same_results(a.path, b.path)


def test_without_ray_its_engine_says_what_to_install(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from emul.study.engines import RayMissing, on_ray

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayMissing, match=r"^--engine ray needs Ray: install emul\[ray\]$"):
        sweep(small, Where(on_ray, 1), seeds=[0])



def test_cells_over_networks_train_once_and_come_out_as_they_would(small: Path, tmp_path: Path) -> None:
    study = sweep(small, Where(in_turn, 0), grid={"links[0].latency": ["10 ms", "20 ms", "40 ms"]}, seeds=[0, 1])
    assert study.from_store is not None
    assert study.from_store == pytest.approx(2 / 3, abs=0.1)
    for cell in study.runs:
        (alone,) = engine.run(cell.scenario, workers=0, out=tmp_path / "alone", keeping=engine.Keeping(on=False))
        assert alone.summary is not None
        assert alone.summary["digest"] == summary_of(study.path, cell)["digest"]


def test_jobs_go_on_with_their_group_and_begin_those_that_nobody_is_at() -> None:
    waiting = _Waiting([CellJob(f"{group}{n}", "", "", group=group) for n in range(3) for group in "ab"])
    first, second = waiting.take(None), waiting.take(None)
    assert first is not None
    assert second is not None
    assert {first.group, second.group} == {"a", "b"}
    assert [task.key for _ in range(2) if (task := waiting.take("b"))] == ["b1", "b2"]
    assert [task.key for _ in range(2) if (task := waiting.take("b"))] == ["a1", "a2"]
    assert waiting.take("a") is None


# --- in parts: every cell in one of them, and a study of all that equals the one that was run at once ---------------

GRID = {"links[1].outage.p": [0.1, 0.6]}


@given(st.integers(0, 60), st.integers(1, 20))
def test_the_parts_have_each_cell_once_in_their_order_and_in_like_numbers(count: int, of: int) -> None:
    cells = [Cell(f"{i:x}", "ab"[i % 2], i % 5, {}, None) for i in range(count)]        # type: ignore[arg-type]
    parts = [Shard(k, of).part(cells) for k in range(1, of + 1)]
    assert sorted(cell.key for part in parts for cell in part) == sorted(cell.key for cell in cells)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(part == [cell for cell in cells if cell in part] for part in parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2"])
def test_a_wrong_part_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 3/16"):
        shard(text)


def test_parts_that_are_collected_are_the_whole_sweep(small: Path, inside: Inside, tmp_path: Path) -> None:
    whole = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], out=tmp_path / "whole")
    parts = [sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], shard=Shard(k, 3)) for k in (1, 2, 3)]
    assert [part.path.name for part in parts] == ["small-sweep-1of3", "small-sweep-2of3", "small-sweep-3of3"]
    assert sorted(len(part.runs) for part in parts) == [1, 1, 2]

    some = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"],
                 collected=[part.path for part in parts[:2]])
    assert len(some.runs) == len(parts[0].runs) + len(parts[1].runs)
    assert f"{4 - len(some.runs)} of 4 cells are in none of these studies" in some.warnings[-1]
    shutil.rmtree(parts[0].path)                        # what was collected is a copy
    found = sweep(small, inside(), grid=GRID, seeds=[1, 2], schemes=["fedavg"], collected=[parts[2].path])
    assert not found.warnings
    tables = [pd.read_csv(study.path / "results.csv").drop(columns="real_s") for study in (whole, found)]
    pd.testing.assert_frame_equal(*tables)


def test_what_is_no_study_cannot_be_collected(small: Path, inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(StudyError, match=r"other: no directory of a study"):
        sweep(small, inside(), schemes=["fedavg"], collected=[tmp_path / "other"])
