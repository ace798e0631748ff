"""Damaged run directories, full disks and stopped runs: a small share of what `benchmarks.damage` does."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from benchmarks import damage, disks, stops
from emul import engine
from emul.record import rundir, salvage
from emul.registry import schemes
from emul.scenario import loads


def test_whatever_happens_to_a_run_directory_every_command_says_what_is_wrong() -> None:
    outcomes, wrong = damage.directories(4, seed=3, names=["fedavg"])
    assert wrong == []
    assert outcomes.total() >= 4


def test_a_disk_that_gets_full_ends_a_run_in_one_line_and_takes_nothing_from_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)       # Python does not notice that such a file was cut short
    scenario = loads(schemes.find("fedavg").example + "record: {models: 1, payloads: [Update]}\n", "fedavg")
    (whole,) = engine.run(scenario, workers=0, out=tmp_path / "whole")
    assert whole.summary is not None
    sizes = sorted({path.stat().st_size for path in whole.directory.rglob("*") if path.is_file()})      # type: ignore
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 100, sizes[len(sizes) // 3], sizes[-2], sizes[-1] - 1):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            (result,) = engine.run(scenario, workers=0, out=tmp_path / str(limit))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (result.error or "").startswith(("NotRecorded: ", "RoleFailed: ")), limit
        assert "File too large" in (result.error or "")
        assert "Traceback" not in (result.error or "")
        if result.directory is None:                        # it could not even begin
            assert list((tmp_path / str(limit)).iterdir()) == []
            continue
        assert salvage.unfinished(result.directory).summary["incomplete"]["why"]
        (again,) = engine.resume(result.directory, workers=0)
        assert again.summary is not None
        assert again.summary["digest"] == whole.summary["digest"]


def test_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    answer = damage.called("report", str(tmp_path), "-o", "/dev/null")
    assert answer.code == 2
    (tmp_path / rundir.INCOMPLETE).write_text("")
    with pytest.raises(OSError, match=r"is no regular file: '/dev/null'$"):
        rundir.write_json(Path("/dev/null"), {})
    assert Path("/dev/null").is_char_device()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_damaged_directories() -> None:
    assert damage.directories(20, seed=1)[1] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_ten_disks_that_take_no_more() -> None:
    assert disks.hunt(len(disks.CASES), seed=1)[1] == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nine_runs_that_get_a_signal() -> None:
    assert stops.hunt(len(stops.STOPS), seed=1)[1] == []
