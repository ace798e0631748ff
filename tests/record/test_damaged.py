"""Damaged run directories, full disks, and signals are clear errors: a file and a reason, never a traceback."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from emul import engine, report
from emul.base.errors import NotRecorded, ScenarioError
from emul.engine import read_profile
from emul.record.attacks import read_attack
from emul.record.journal import Journal, RecordError
from emul.record.load import load_run
from emul.report.data import open_run
from emul.scenario import load, loads

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return engine.run(loads(TEXT), workers=0, out=tmp_path_factory.mktemp("runs"))[0].directory


def emul(*args: str, cwd: Path, **more) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "emul", *args], cwd=cwd, capture_output=True, text=True, check=False,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, **more)


@pytest.mark.parametrize("name", ["summary.json", "rounds.parquet", "messages.parquet", "timings.parquet", "journal",
                                  "scenario.resolved.yaml"])
def test_a_damaged_file_is_named_by_load_run_and_report(original: Path, tmp_path: Path, name: str) -> None:
    run = shutil.copytree(original, tmp_path / "run")
    blob = (run / name).read_bytes()
    chance = random.Random(name)
    reads = {"load_run": load_run, "report": lambda path: report.write(path, tmp_path / "report.html")}
    if name in ("journal", "scenario.resolved.yaml"):
        del reads["load_run"]           # which does not read them
    if name == "messages.parquet":      # the part of a report that reads it
        reads["report"] = lambda path: open_run(path).messages
    for sealed in (True, False):
        if not sealed:                  # nor does anything escape from the readers themselves
            (run / "seal.json").unlink()
        for place in chance.sample(range(len(blob)), 12):
            (run / name).write_bytes(blob[:place] + bytes([blob[place] ^ 1 << chance.randrange(8)])
                                     + blob[place + 1:])
            for read in reads.values():
                if sealed:
                    with pytest.raises(RecordError, match=name):
                        read(run)
    (run / name).write_bytes(chance.randbytes(100))
    for read in reads.values():
        with pytest.raises(RecordError, match=name):
            read(run)


def test_a_place_that_cannot_be_written_is_named_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(TEXT)
    (tmp_path / "file").write_text("")
    done = emul("run", "small.yaml", "--workers", "0", "--quiet", "--out", "file", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip() == "file: is no directory"


def test_a_full_disk_is_one_error_and_the_journal_is_closed_once(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    journal = Journal(tmp_path / "j", {})
    journal._file.close()
    journal._file = open("/dev/full", "wb", buffering=0)        # noqa: SIM115
    journal.append((3, 0, 0))
    with pytest.raises(NotRecorded, match=r"/j: No space left on device; the rows before are kept$"):
        journal.close()
    journal.close(complete=False)                   # does not raise again


@pytest.mark.machine
@pytest.mark.timeout(120)
def test_sigterm_ends_a_run_as_an_interrupt_does(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(TEXT.replace("rounds: 2", "rounds: 100000"))
    scratch = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))     # sockets lie in it: their paths must be short
    process = subprocess.Popen([sys.executable, "-m", "emul", "run", "small.yaml", "--workers", "1", "--quiet"],
                               cwd=tmp_path, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)})
    journal = tmp_path / "runs" / "small-fedavg-1" / "journal"
    while process.poll() is None and not (journal.exists() and journal.stat().st_size > 5000):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip().splitlines()[-1]) == (143, "terminated")
    assert "Traceback" not in said
    assert (journal.parent / "INCOMPLETE").exists()
    assert not list(scratch.glob("pymp-*"))
    shutil.rmtree(scratch)


@pytest.mark.slow
def test_a_run_on_a_record_says_how_much_was_not_in_it(original: Path, tmp_path: Path) -> None:
    drawn = "latency: {distribution: uniform, mean: 5 ms, jitter: 2 ms}"
    (tmp_path / "small.yaml").write_text(TEXT.replace("latency: 20 ms", drawn))
    done = emul("run", "small.yaml", "--workers", "0", "--quiet", "--network", str(original), cwd=tmp_path)
    assert "fedavg: not in the record: " in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_files_without_an_end_and_endless_lists_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (pipe, Path("/dev/zero")):
        with pytest.raises(ScenarioError, match="is no regular file"):
            load(file)
    begin = time.monotonic()
    with pytest.raises(ScenarioError, match="has more than 100,000 entries"):
        loads("a: [" + "1," * 300_000 + "1]")
    assert time.monotonic() - begin < 20


def test_infinite_costs_and_deep_nesting_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(json.dumps({"emul_profile": 1, "costs": {"a/b/c": [0, 1]}}).replace("0, 1", "0, 1e999"))
    with pytest.raises(ScenarioError, match="expected two numbers of seconds"):
        read_profile(file)
    file.write_text("[" * 100_000)
    with pytest.raises(ScenarioError, match="expected JSON"):
        read_profile(file)


def test_a_model_that_is_no_name_is_a_problem_of_the_scenario() -> None:
    with pytest.raises(ScenarioError, match=r"task\.model"):
        loads(TEXT, sets=["schemes=[fedproto]", "task.model={a: 1}"])


def test_a_table_of_an_attack_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "attacks").mkdir()
    with (tmp_path / "attacks" / "a.csv").open("w") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(RecordError, match=r"a\.csv: no table: .*has more than 64 MiB"):
        read_attack(tmp_path, "a")
