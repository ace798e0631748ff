"""A run that was interrupted, killed or failed is read up to its last whole row, by everything that reads runs."""

from __future__ import annotations

import errno
import json
import os
import shutil
import struct
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from emul import cli, engine, load_run, report
from emul.record import rundir, salvage
from emul.record.journal import Journal, RecordError, read
from emul.record.load import IncompleteRun
from emul.record.tables import COLUMNS
from emul.report import export
from emul.roles.events import Observation
from emul.scenario import loads

TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, fraction: 0.7}]
stop: {rounds: 3}
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = engine.run(loads(TEXT), workers=0, out=tmp_path_factory.mktemp("runs"))[0].directory
    assert found is not None
    return found


def killed(whole: Path, place: Path, size: int | None = None) -> Path:
    """A copy of a run as a kill leaves it, with so many bytes of its journal."""
    run = shutil.copytree(whole, place)
    for file in (*run.glob("*.parquet"), run / rundir.SUMMARY, run / rundir.SEAL):
        file.unlink()
    (run / rundir.INCOMPLETE).write_text("")
    if size is not None:
        (run / rundir.JOURNAL).write_bytes((whole / rundir.JOURNAL).read_bytes()[:size])
    return run


def cut_after(whole: Path, place: Path, rows: int) -> Path:
    """As `killed`, with so many rows and all that was observed."""
    run = killed(whole, place)
    (run / rundir.JOURNAL).unlink()
    source = read(whole / rundir.JOURNAL)
    found = list(source)
    journal = Journal(run / rundir.JOURNAL, {k: v for k, v in source.header.items() if k != "format"})
    for node, number, values in source.observed:
        journal.observed([Observation(node, number, values)])
    for row in found[:rows]:
        journal.append(row)
    journal.close(complete=False)
    return run


def loaded(run: Path) -> Any:
    with pytest.warns(IncompleteRun, match=r"INCOMPLETE: until virtual time \d"):
        return load_run(run)


def test_of_a_journal_with_all_its_rows_tables_and_summary_are_those_of_the_run(whole: Path, tmp_path: Path) -> None:
    found, expected = loaded(killed(whole, tmp_path / "run")), load_run(whole)
    for name in ("rounds", "messages", "computations"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(expected, name))
    differ = {k for k, v in expected.summary.items() if found.summary[k] != v}
    assert {k for k in differ if not k.startswith("real_")} == {"incomplete", "invariants"}
    assert found.summary["digest"] == expected.summary["digest"]
    assert found.summary["parameters_given"] == ["fraction"]
    assert found.incomplete == ("INCOMPLETE: until virtual time 0.120 s, in round 3: "
                                "it ended, but not all of its files were written")
    assert expected.incomplete is None
    assert found.model().round == 3


def test_after_any_number_of_rows_there_are_tables_up_to_the_last(whole: Path, tmp_path: Path) -> None:
    expected = load_run(whole)
    count = sum(1 for _ in read(whole / rundir.JOURNAL))
    for rows in range(0, count, 7):
        found = loaded(cut_after(whole, tmp_path / str(rows), rows))
        assert found.summary["journal_rows"] == rows
        sent = found.messages[["source", "seq", "sent_ns", "type"]]
        pd.testing.assert_frame_equal(sent, expected.messages[sent.columns].head(len(sent)), check_categorical=False,
                                      check_dtype=False)
        if len(found.rounds):
            accuracy = found.rounds.set_index("round").accuracy.dropna()
            assert accuracy.to_dict() == expected.rounds.set_index("round").accuracy.head(len(accuracy)).to_dict()
            assert found.summary["incomplete"]["round"] == found.rounds["round"].max()
    assert found.incomplete.endswith("it was killed, or its machine stopped")


def test_a_torn_record_is_left_out_and_damage_before_it_names_file_and_byte(whole: Path, tmp_path: Path) -> None:
    blob = (whole / rundir.JOURNAL).read_bytes()
    head = 8 + struct.unpack_from("<I", blob)[0]
    for size in (head, head + 3, len(blob) - 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IncompleteRun)
            load_run(killed(whole, tmp_path / str(size), size))
    run = killed(whole, tmp_path / "damaged")
    (run / rundir.JOURNAL).write_bytes(blob[:head + 20] + bytes([blob[head + 20] ^ 1]) + blob[head + 21:])
    place = rf"{run}/journal, byte {head}: the frame's checksum is wrong$"
    for reads in (load_run, salvage.write, lambda path: report.write(path, tmp_path / "r.html")):
        with pytest.raises(RecordError, match=place):
            reads(run)
    for size in (0, head - 1):
        with pytest.raises(RecordError, match=r"journal, byte 0: no journal of emul: its header is missing$"):
            load_run(killed(whole, tmp_path / f"headless {size}", size))
    (run / rundir.JOURNAL).unlink()
    with pytest.raises(RecordError, match=r"journal: No such file or directory$"):
        load_run(run)


@pytest.mark.slow
def test_every_command_reads_it_and_says_incomplete(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    run = cut_after(whole, tmp_path / "small-fedavg-2", 60)
    (run / rundir.ERROR).write_text("RoleFailed: server failed:\nTraceback ...\nKeyError: 3\n")
    says = "in round 3: RoleFailed: server failed: ... KeyError: 3"

    def emul(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["emul", *args])
        code = cli._run_command() or 0
        return (code, *capsys.readouterr())

    page = tmp_path / "r.html"
    report.write(run, page)
    assert "INCOMPLETE: until virtual time" in page.read_text()
    assert says in page.read_text()
    report.write([whole, run], page)
    assert "small-fedavg-2 is INCOMPLETE: until" in page.read_text()
    assert "small-fedavg-2 (INCOMPLETE)" in page.read_text()
    code, _, err = emul("export", str(run), "--perfetto", str(tmp_path / "p.json"))
    assert code == 0
    assert says in err
    assert says in json.loads((tmp_path / "p.json").read_text())["otherData"]["incomplete"]
    with pytest.warns(IncompleteRun):
        assert export.scalars(load_run(run))
    code, out, err = emul("salvage", str(run), str(whole), str(tmp_path))
    assert code == 2
    assert says in out
    assert err.splitlines() == [f"{whole}: the run has ended: its tables are there",
                                f"{tmp_path}: no directory of a run"]
    assert sorted(p.stem for p in run.glob("*.parquet")) == sorted(COLUMNS)
    written = pd.read_parquet(run / "messages.parquet")
    assert len(written) == len(loaded(run).messages)
    assert json.loads((run / rundir.SUMMARY).read_text())["incomplete"]["why"] in says
    assert (run / rundir.INCOMPLETE).exists()
    code, out, _ = emul("salvage", "--json", str(run))
    assert json.loads(out)["runs"][0]["summary"]["incomplete"]["round"] == 3


@pytest.mark.parametrize("damage", ["pipe", "loop"])
def test_an_array_that_cannot_be_read_is_an_error_of_the_record(whole: Path, tmp_path: Path, damage: str) -> None:
    run = killed(whole, tmp_path / "run")
    array = run / "artefacts" / "client1" / "kept.npy"
    array.parent.mkdir(parents=True)
    if damage == "pipe":
        os.mkfifo(array)
    else:
        array.symlink_to(array)
    with pytest.raises(RecordError, match=r"kept\.npy: expected a regular file"):
        load_run(run)


def test_a_run_that_is_running_is_read_but_not_written(whole: Path, tmp_path: Path) -> None:
    run = cut_after(whole, tmp_path / "run", 40)
    with rundir.RunDirectory(run).claimed():
        assert loaded(run).incomplete.endswith("it is running")
        with pytest.raises(RecordError, match=r"run: this run is running, in another process$"):
            salvage.write(run)


def test_a_finished_run_without_room_for_its_tables_is_salvaged_and_resumed(
        whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left")

    with monkeypatch.context() as patch:
        patch.setattr("emul.record.summary.write_tables", full)
        (result,) = engine.run(loads(TEXT), workers=0, out=tmp_path)
    assert result.error == (f"NotRecorded: {result.directory}: No space left on device; the journal has all of the "
                            "run: `emul salvage` makes tables of it, `emul resume` all files")
    assert result.directory is not None
    assert loaded(result.directory).rounds.accuracy.tolist() == load_run(whole).rounds.accuracy.tolist()
    assert cli.runs._document(result)["summary"]["incomplete"]["why"].startswith("NotRecorded: ")
    (again,) = engine.resume(result.directory, workers=0)
    assert again.summary is not None
    assert again.summary["incomplete"] is None
    assert again.summary["digest"] == load_run(whole).summary["digest"]


@pytest.mark.parametrize("header", [{}, {"scheme": "fedavg", "names": "server"}])
def test_a_journal_with_another_header_is_named(tmp_path: Path, header: dict[str, Any]) -> None:
    Journal(tmp_path / rundir.JOURNAL, header).close(complete=False)
    (tmp_path / rundir.INCOMPLETE).write_text("")
    with pytest.raises(RecordError, match=r"journal, byte 0: the header has no .*names, roles"):
        load_run(tmp_path)
