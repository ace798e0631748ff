"""`emul sweep` and `emul compare`: what they print, and their exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from emul import cli
from emul.cli.study import write_report
from emul.record.progress import StepProgress
from emul.study.cells import cells
from emul.study.job import CellEvent
from emul.study.runs import StudyProgress


class Shell:
    """Runs commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["emul", *args])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = self._capsys.readouterr()
        assert isinstance(stop.value.code, int)
        return stop.value.code, said.out, said.err


@pytest.fixture
def emul(small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(monkeypatch, capsys)


def test_a_sweep_tells_each_cell_in_plain_lines_and_where_it_all_is(emul: Shell) -> None:
    code, out, err = emul("sweep", "small.yaml", "--grid", "stop.rounds=1,2", "--seeds", "0:1", "--schemes", "fedavg",
                          "--workers", "0")
    assert code == 0
    assert out == ("2 runs: runs/small-sweep; 33% of trainings and evaluations were taken from the study's store\n")
    first, second = err.splitlines()
    assert re.fullmatch(r"1/2  fedavg seed 0 stop.rounds=1  global accuracy 0\.\d{3}  virtual 0\.\d{3} s  [\d.]+ kB  "
                        r"real [\d.]+ s  left [\d.]+ s", first)
    assert second.startswith("2/2  fedavg seed 0 stop.rounds=2  global accuracy ")
    code, out, err = emul("sweep", "small.yaml", "--grid", "stop.rounds=1,2", "--seeds", "0", "--schemes", "fedavg",
                          "--workers", "0")
    assert (code, out, err) == (0, "2 runs, 2 of them there before: runs/small-sweep\n",
                                "2 of 2 cells are there already\n")


def test_a_sweep_as_json_is_all_that_stands_on_stdout(emul: Shell) -> None:
    code, out, err = emul("sweep", "small.yaml", "--seeds", "1,2", "--workers", "0", "--quiet", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["kind"], said["directory"], said["failed"]) == ("sweep", "runs/small-sweep", [])
    assert [(r["scheme"], r["seed"], r["values"]) for r in said["runs"]] == [
        (scheme, seed, {}) for seed in (1, 2) for scheme in ("fedavg", "secagg")]
    assert all(Path(said["directory"], r["directory"], "summary.json").is_file() for r in said["runs"])


def test_failed_cells_are_named_at_the_end_with_exit_code_1(emul: Shell, picky: str) -> None:
    code, out, err = emul("sweep", "small.yaml", "--plugin", picky, "--set", f"schemes=[{picky}]", "--seeds", "0:4",
                          "--workers", "0", "--quiet")
    assert code == 1
    assert out == "2 runs: runs/small-sweep\n"
    assert err.splitlines() == [
        f"picky seed {seed} failed: RoleFailed: server (server) failed at 0 s in round 0: ... LookupError: no odd seeds"
        for seed in (1, 3)]


def test_a_comparison_prints_a_table_and_a_verdict(emul: Shell) -> None:
    code, out, err = emul("compare", "small.yaml", "--seeds", "0:3", "--workers", "0", "--quiet", "--no-report")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("fedavg* needs the least time to global accuracy 0.")
    assert lines[1].startswith("fedavg* needs the least bytes to global accuracy 0.")
    assert lines[2] == ""
    assert re.fullmatch(r"target: global accuracy 0\.\d+ \(95% of the median final accuracy of \w+, the lowest\)",
                        lines[3])
    assert [line.split()[0] for line in lines[4:7]] == ["scheme", "fedavg*", "secagg*"]
    assert lines[8].startswith("least time to the target: fedavg*, ")
    assert lines[9].startswith("  secagg*: +")
    assert json.loads(Path("runs/small-compare/study.json").read_text())["answer"] == lines[:2]
    assert lines[-1] == "runs/small-compare"


def test_a_page_of_a_study_that_takes_long_says_its_steps_unless_quiet(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def written(path: Path, tell: Callable[[str], None] = lambda step: None) -> Path:
        tell(f"reading {path}")
        return path / "report.html"

    monkeypatch.setattr("emul.report.write", written)
    monkeypatch.setattr(StepProgress, "tell", lambda self, text: told.append(text))
    assert [write_report(tmp_path, quiet) for quiet in (True, False)] == [tmp_path / "report.html"] * 2
    assert told == [f"reading {tmp_path}"]


def test_a_comparison_as_json_holds_the_differences(emul: Shell) -> None:
    code, out, _ = emul("compare", "small.yaml", "--seeds", "0:3", "--workers", "0", "--quiet", "--json", "--target",
                        "0.2", "--no-report")
    assert code == 0
    said = json.loads(out)
    assert (said["kind"], said["targets"]["fedavg"], said["report"], len(said["runs"])) == ("compare", 0.2, None, 6)
    assert said["least"]["time_to_target"] == {"global": "fedavg"}
    row = next(d for d in said["differences"] if d["metric"] == "time_to_target")
    assert (row["scheme"], row["baseline"], row["n_seeds"], row["unit"]) == ("secagg", "fedavg", 3, "s")
    assert row["low"] <= row["mean"] <= row["high"]


@pytest.mark.parametrize(("args", "said"), [
    (["sweep", "small.yaml", "--seeds", "5:1"], r'--seeds  "5:1"  expected seeds such as 0:5.*: 5:1 holds none'),
    (["sweep", "small.yaml", "--grid", "seed=1,2"], r"--grid seed    cannot be varied here: use --seeds"),
    (["sweep", "small.yaml", "--engine", "slurm"], r'--engine  "slurm"  expected local or ray'),
    (["compare", "small.yaml", "--schemes", "fedavg,krum"],
     r'--schemes  "krum"  expected one of its schemes: fedavg, secagg'),
    (["sweep", "small.yaml", "--out", "."], r"\.: holds something else than a study"),
    (["compare", "small.yaml", "--target", "1.5"], r"--target"),
])
def test_bad_input_is_exit_code_2(emul: Shell, args: list[str], said: str) -> None:
    code, out, err = emul(*args)
    assert (code, out) == (2, "")
    assert re.search(said, err)
    assert not Path("runs").exists()


def test_more_processes_than_cores_are_a_warning(emul: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    run = ["sweep", "small.yaml", "--schemes", "fedavg", "--quiet", "--set", "stop.rounds=1"]
    assert emul(*run, "--workers", "0")[2] == ""
    assert emul(*run, "--workers", "3")[2] == (
        "warning: 1 jobs with 3 workers each share 2 cores: runs get slower, and measured times wrong\n")
    assert "warning: 3 jobs with 1 workers each share 2 cores" in emul(*run, "--jobs", "3")[2]


# --- progress ---------------------------------------------------------------------------------------------------------

class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_the_running_cell_is_drawn_and_ended_ones_stay(small: Path) -> None:
    cell = cells(small, {}, [0])[0]
    stream = Terminal()
    progress = StudyProgress(3, 2, stream=stream)
    progress.moved(cell, CellEvent(cell.key, round=1, virtual_ns=10**9, accuracy=0.5))
    progress.ended(cell, CellEvent(cell.key, done=True), {"accuracy": 0.5, "virtual_seconds": 1.0, "bytes_total": 2000,
                                                          "real_seconds": 0.5})
    progress.ended(cell, CellEvent(cell.key, done=True, error="RunError: no\nmore of it"), None)
    progress.close()
    said = stream.getvalue()
    assert "1 of 3 cells are there already" in said
    assert "1/3  fedavg seed 0  round 1/2  virtual 1.000 s  accuracy 0.500" in said
    assert "2/3  fedavg seed 0  accuracy 0.500  virtual 1.000 s  2 kB  real 0.5 s" in said
    assert "3/3  fedavg seed 0  failed: RunError: no" in said
    assert "more of it" not in said


def test_elsewhere_a_long_cell_says_now_and_then_where_it_is(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.study.runs._LINES_EVERY_S", 0.0)
    cell = cells(small, {}, [0])[0]
    stream = io.StringIO()
    progress = StudyProgress(2, 2, stream=stream)
    progress.moved(cell, CellEvent(cell.key, round=1, virtual_ns=10**9))
    assert stream.getvalue() == "0/2  fedavg seed 0  round 1/2  virtual 1.000 s\n"
    quiet = io.StringIO()
    StudyProgress(2, 1, quiet=True, stream=quiet).moved(cell, CellEvent(cell.key, round=1))
    assert quiet.getvalue() == ""


def test_a_run_as_json_holds_the_summaries(emul: Shell, picky: str) -> None:
    code, out, err = emul("run", "small.yaml", "--workers", "0", "--quiet", "--json", "--plugin", picky, "--set",
                          f"schemes=[fedavg, {picky}]")
    assert code == 1
    assert "picky failed: RoleFailed" in err
    well, failed = json.loads(out)["runs"]
    assert (well["scheme"], well["error"], well["violated"]) == ("fedavg", None, [])
    assert well["summary"] == json.loads(Path(well["directory"], "summary.json").read_text())
    assert failed["error"].startswith("RoleFailed")
    assert failed["summary"]["incomplete"]["why"].startswith("RoleFailed")      # what there is of it
