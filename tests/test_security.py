"""Nothing of a stranger gets in: the sentences of docs/security.md."""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_scenario import SMALL

from emul import cli, engine, report
from emul.base.errors import InputError, ScenarioError, TooFewClients
from emul.base.tracebacks import traceback_of
from emul.engine import running
from emul.engine.keeping import Command, unfinished_like
from emul.engine.reopening import reopen
from emul.learning import data, own_data
from emul.learning.data import DataError, load, read_idx
from emul.learning.names import PluginError, add_folder_of
from emul.record import rundir
from emul.record.attacks import PICTURES
from emul.record.journal import Journal, RecordError
from emul.record.load import load_run
from emul.registry import attacks, schemes
from emul.scenario import loads
from emul.store.segments import SUFFIX
from emul.study import verify
from emul.study.directory import StudyError, opened
from emul.testing import drive
from emul.workers import ray_address
from emul.workers.cluster import cluster
from emul.workers.pool import Workers
from emul.workers.slurm import Steps

RAN = "open(__file__ + '.ran', 'w').close()\n"          # a module that leaves a mark when it is imported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the files of a stranger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Modules that were imported since are forgotten, now and at the end."""
    before = set(sys.modules)

    def drop() -> None:
        for name in set(sys.modules) - before:
            if name in ("stranger", "neighbour_of_stranger"):
                del sys.modules[name]

    yield drop
    drop()


# --- the current folder -----------------------------------------------------------------------------------------------

def command(*words: str) -> Any:
    sys.argv = ["emul", *words]
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_no_command_looks_for_modules_in_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                            forget: object) -> None:
    monkeypatch.setattr(sys, "argv", [])
    (folder / "stranger.py").write_text(RAN)
    assert command("check", "small.yaml") == 0
    assert importlib.util.find_spec("stranger") is None


def test_with_a_plug_in_the_folder_is_searched_and_last(folder: Path, forget: object) -> None:
    (folder / "stranger.py").write_text("import neighbour_of_stranger\nimport statistics\n" + RAN)
    (folder / "neighbour_of_stranger.py").write_text("")
    (folder / "statistics.py").write_text("1 / 0")
    add_folder_of("stranger")
    assert sys.path[-1] == str(folder)
    importlib.import_module("stranger")
    add_folder_of("neighbour_of_stranger.anything")
    assert sys.path.count(str(folder)) == 1


@pytest.mark.parametrize("name", ["statistics", "time", "networkx", "emul", "pandas.io"])
def test_a_plug_in_with_the_name_of_a_librarys_module_is_an_error_that_says_so(folder: Path, name: str) -> None:
    (folder / f"{name.partition('.')[0]}.py").write_text(RAN)
    with pytest.raises(PluginError, match=rf'^plug-in "{name}": .*\.py has the name of another module, .*: rename it$'):
        add_folder_of(name)
    assert sys.path[-1] != str(folder)


def test_a_plug_in_of_another_folder_gives_way(folder: Path, forget: object) -> None:
    for place in ("a", "b"):
        (folder / place).mkdir()
        (folder / place / "stranger.py").write_text("")
        add_folder_of("stranger", folder / place)
    assert [path for path in sys.path if path.startswith(str(folder))] == [str(folder / "b")]


@pytest.mark.slow
def test_files_with_the_names_of_libraries_do_not_run_anywhere(folder: Path) -> None:
    """Of the standard library, of packages, and of packages that these look for and that are not installed."""
    names = [*sys.stdlib_module_names, "torch", "numpy", "pandas", "yaml", "typer", "networkx", "gmpy2", "bottleneck",
             "numexpr", "polars"]
    for name in names:
        (folder / f"{name}.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write(__name__ + ' ')\n1 / 0\n")
    for words in (["check", "small.yaml"], ["run", "small.yaml", "--workers", "2", "--quiet"],
                  ["sweep", "small.yaml", "--grid", "stop.rounds=1,2", "--jobs", "2", "--out", "s"],
                  ["report", "runs"]):
        done = subprocess.run([Path(sys.executable).with_name("emul"), *words], capture_output=True, text=True,
                              timeout=120, check=False)
        assert done.returncode == 0, done.stderr
    assert not (folder / "ran").exists()


def test_ray_does_not_learn_of_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It puts the folder in which it is begun before Python's library, at each of its workers."""
    began_in = list[Path]()
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda *_, **__: began_in.append(Path.cwd())))
    monkeypatch.setenv("RAY_ADDRESS", "local")
    ray_address.join(None)
    assert began_in == [Path("/")]
    assert Path.cwd() == folder


def test_a_worker_of_slurm_does_not_search_the_current_folder(folder: Path) -> None:
    for name in ("msgspec", "numpy", "platform", "socket"):
        (folder / f"{name}.py").write_text(RAN)
    command = Steps(cluster("slurm", 1))._command("n1", "tcp://127.0.0.1:1")
    subprocess.run(command[command.index(sys.executable):], input=b"", cwd=folder, timeout=60, check=False,
                   capture_output=True)
    assert not list(folder.glob("*.ran"))


# --- run directories --------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def of_stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was made with a plug-in."""
    place = tmp_path_factory.mktemp("stranger")
    (place / "stranger.py").write_text("DATA = {}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setattr(sys, "path", list(sys.path))
        text = SMALL.replace("compute:", "training: skip\nrecord: {payloads: [Update]}\ncompute:")
        one, _ = engine.run(loads(text, "s", plugins=["stranger"]), workers=0, out=place / "runs", plugins=["stranger"])
        sys.modules.pop("stranger", None)
    assert one.directory is not None
    return one.directory


ASKED: dict[str, Callable[[Path, list[str] | None], object]] = {
    "replay": lambda path, plugins: engine.replay(path, 0, plugins or ()),
    "reopen": reopen,
    "payload": lambda path, plugins: load_run(path).payload("Update", plugins=plugins),
}


@pytest.mark.parametrize("asked", ASKED)
def test_modules_that_a_run_directory_names_are_imported_only_if_they_are_given(
        of_stranger: Path, folder: Path, asked: str, forget: Callable[[], None]) -> None:
    (folder / "stranger.py").write_text(RAN)
    expected = r"-1: made with --plugin stranger; give it again if you trust the module \(in Python: plugins=\['str"
    with pytest.raises(RecordError, match=expected):
        ASKED[asked](of_stranger, None)
    assert not list(folder.glob("*.ran"))
    assert ASKED[asked](of_stranger, ["stranger"])


def test_resume_imports_what_is_given_and_no_more(of_stranger: Path, folder: Path, forget: object) -> None:
    (folder / "stranger.py").write_text(RAN)
    with pytest.raises(RecordError, match="made with --plugin stranger"):
        engine.resume(of_stranger, 0)
    assert not list(folder.glob("*.ran"))


@pytest.mark.parametrize("kind", ["link out", "folder that is a link", "pipe"])
def test_nothing_is_written_to_a_run_directory_with_links_or_pipes(tmp_path: Path, kind: str) -> None:
    run = tmp_path / "run"
    (run / "models").mkdir(parents=True)
    (run / rundir.INCOMPLETE).write_text("")
    if kind == "pipe":
        os.mkfifo(run / "models" / "n")
    else:
        (run / "models" / "n").symlink_to(tmp_path if kind.startswith("folder") else "/etc/passwd")
    expected = "models/n: is " + ("a pipe" if kind == "pipe" else "a link, to ")
    with pytest.raises(RecordError, match=expected), rundir.RunDirectory(run).claimed():
        pass


@pytest.mark.parametrize("name", [".lock", "cells", "trainings"])
def test_nothing_is_written_through_the_links_of_a_study(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.write_text("mine") if name == ".lock" else home.mkdir()
    study = tmp_path / "study"
    study.mkdir()
    (study / "study.json").write_text('{"emul_study": 1, "scenario": "small"}')
    (study / name).symlink_to(home)
    with pytest.raises(StudyError, match=rf"{name}: is a link, to .*home: expected files"), opened(study, "small"):
        pass
    assert home.read_text() == "mine" if name == ".lock" else not list(home.iterdir())


@pytest.mark.timeout(60)
def test_the_lock_of_a_study_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "cells").mkdir()
    os.mkfifo(tmp_path / ".lock")
    with opened(tmp_path, "small"), pytest.raises(StudyError, match="another process works"), opened(tmp_path, "small"):
        pass


def test_a_command_of_a_stranger_names_no_folder_for_trainings(tmp_path: Path) -> None:
    named = Command("", store=str(tmp_path / "home"))
    assert named.keeping.store is None
    (tmp_path / "home").mkdir()
    assert named.keeping.store is None
    (tmp_path / "home" / f"1{SUFFIX}").touch()
    assert named.keeping.store == tmp_path / "home"


# --- names ------------------------------------------------------------------------------------------------------------

def test_an_installed_package_cannot_take_the_name_of_one_of_emuls_schemes(
        monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    points = [EntryPoint("fedavg", "stranger", schemes.PACKAGE), EntryPoint("other", "stranger", schemes.PACKAGE)]
    monkeypatch.setattr(schemes, "entry_points", lambda group: points)
    schemes._installed.cache_clear()
    try:
        known = schemes.known()
    finally:
        schemes._installed.cache_clear()
    assert known["fedavg"] == "emul.schemes.fedavg"
    assert known["other"] == "stranger"
    assert 'its scheme "fedavg" is not used: emul has one of this name' in caplog.text


def test_a_plug_in_cannot_take_the_name_of_emuls_own(folder: Path, forget: object) -> None:
    with pytest.raises(InputError, match=r'^plug-in "mine.fedavg": emul has a scheme "fedavg" of its own'):
        schemes.known(["mine.fedavg"])
    assert schemes.known(["emul.schemes.fedavg"])["fedavg"] == "emul.schemes.fedavg"
    taken = next(iter(attacks.known("update")))
    (folder / "stranger.py").write_text(f"ATTACKS = {{'update': {{{taken!r}: lambda own, rng, knows: own}}}}\n")
    with pytest.raises(InputError, match=rf'^plug-in "stranger": there is an attack "{taken}": give yours another'):
        attacks.known("update", ["stranger"])


def test_the_summary_says_whose_code_ran_that_is_not_emuls(of_stranger: Path) -> None:
    summary = json.loads((of_stranger / rundir.SUMMARY).read_text())
    digest = rundir.fingerprint(of_stranger.parent.parent / "stranger.py")["blake2b"]
    assert summary["versions"]["stranger"] == f"blake2b {digest}"


# --- damaged neighbours, texts, streams -------------------------------------------------------------------------------

def test_a_damaged_neighbour_ends_no_run_and_no_resumption(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    scenario = loads(SMALL.replace("compute:", "training: skip\ncompute:"), "s")
    odd = tmp_path / "odd-1"
    odd.mkdir()
    (odd / rundir.INCOMPLETE).touch()
    (odd / rundir.SCENARIO).write_bytes(b"\xff\xfe")
    (odd / rundir.COMMAND).write_bytes(b'{"id": "\xff"}')
    assert unfinished_like(tmp_path, scenario) == []
    first, second = engine.run(scenario, workers=0, out=tmp_path)
    assert first.directory is not None
    assert second.directory is not None
    shutil.rmtree(second.directory)
    again, = engine.resume(first.directory, 0)              # it has ended, and the other scheme has not begun
    assert again.scheme == second.scheme
    assert again.summary is not None
    assert again.summary["digest"] == (second.summary or {})["digest"]
    assert f"not looked at: {odd / rundir.COMMAND}" in caplog.text
    with pytest.raises(RecordError, match="nothing to go on with"):
        engine.resume(first.directory, 0)


def test_a_text_of_a_role_that_no_file_takes_is_written_with_escapes_and_bounded() -> None:
    async def server(node: Any, p: Any) -> None:
        raise TooFewClients("\udcff" + "x" * 99_999)

    why = drive(server, None, clients=[1]).ended or ""
    assert why.startswith("TooFewClients: \\udcffx")
    assert len(why.encode()) < 30_000
    assert "ValueError: \\udcff" in traceback_of(ValueError("\udcff"))


def test_control_characters_of_a_file_do_not_reach_the_terminal(of_stranger: Path, tmp_path: Path,
                                                               capsys: pytest.CaptureFixture[str],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [])
    run = shutil.copytree(of_stranger, tmp_path / "run")
    (run / rundir.INCOMPLETE).touch()
    (run / rundir.ERROR).write_text("\x1b]0;mine\x07 \x1b[2J\n")
    assert command("salvage", str(run)) == 0
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert "\\x1b[2J" in said.out


def test_control_characters_of_a_table_do_not_reach_the_terminal(tmp_path: Path,
                                                                 capsys: pytest.CaptureFixture[str]) -> None:
    (table := tmp_path / "devices.csv").write_text("device,kind,speed,source\nx\x1b[2J,k,1,\x1b]0;t\x07\n")
    assert command("devices", "x*", "--table", str(table)) == 0
    assert r"x\x1b[2J  speed   1      not said  \x1b]0;t\x07" in capsys.readouterr().out


def test_control_characters_of_a_files_name_do_not_reach_the_terminal(tmp_path: Path,
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    (named := tmp_path / "a\x1b[2J.yaml").write_text(SMALL)
    assert command("check", str(named)) == 0
    assert r"a\x1b[2J.yaml: ok" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["header", "summary", "aliases"])
def test_files_that_a_stranger_has_made_up_are_an_error_of_the_record(of_stranger: Path, tmp_path: Path,
                                                                     name: str) -> None:
    run = shutil.copytree(of_stranger, tmp_path / "run")
    (run / rundir.SEAL).unlink()
    if name == "header":
        (run / rundir.JOURNAL).unlink()
        Journal(run / rundir.JOURNAL, {"names": 3, "roles": {}, "network": None}).close()
    elif name == "summary":
        (run / rundir.SUMMARY).write_text('{"virtual_seconds": "never"}')
    else:
        (run / rundir.SCENARIO).write_text("a: &a [1]\nb: [*a, *a]\n")
    with pytest.raises(RecordError):
        report.write(run, tmp_path / "report.html")


# --- files ------------------------------------------------------------------------------------------------------------

def test_the_network_of_a_sealed_run_is_replayed_only_as_the_run_wrote_it(of_stranger: Path, tmp_path: Path) -> None:
    run = shutil.copytree(of_stranger, tmp_path / "run")
    sets = [f"network={{replay: {run}}}"]
    assert loads(SMALL, "s", sets).network.replay == run
    with (run / rundir.NETWORK).open("r+b") as file:
        file.seek(10)
        file.write(b"\0\1\2")
    with pytest.raises(ScenarioError, match=r"network\.replay .*damaged or changed since the run: network\.parquet"):
        loads(SMALL, "s", sets)
    plan = loads(SMALL, "s", sets, check=False)
    with pytest.raises(RecordError, match=r"damaged or changed since the run: network\.parquet"):
        engine.wire(plan, *plan.schemes[0])


CHANGED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "reopen": (rundir.SCENARIO, lambda run: reopen(run, ["stranger"])),
    "read_scenario": (rundir.SCENARIO, lambda run: rundir.read_scenario(run / rundir.SCENARIO)),
    "resume": (rundir.COMMAND, lambda run: engine.resume(run, 0, ["stranger"])),
}


@pytest.mark.parametrize("asked", CHANGED)
def test_the_scenario_and_the_command_of_a_sealed_run_are_read_only_as_the_run_wrote_them(
        of_stranger: Path, tmp_path: Path, asked: str) -> None:
    run = shutil.copytree(of_stranger, tmp_path / "run")
    name, read = CHANGED[asked]
    (run / name).write_text((run / name).read_text().replace("seed: 7", "seed: 8"))
    with pytest.raises(RecordError, match=f"damaged or changed since the run: {name}"):
        read(run)


@pytest.mark.timeout(60)
def test_a_pipe_or_a_device_is_no_table_no_array_and_no_picture(folder: Path) -> None:
    os.mkfifo("pipe.csv")
    for table in ("pipe.csv", "/dev/zero"):
        with pytest.raises(StudyError, match="is no regular file"):
            verify.read(Path(table))
    Path("own").mkdir()
    for name in ("train_x", "train_y", "test_x", "test_y"):
        os.mkfifo(f"own/{name}.npy")
    with pytest.raises(DataError, match="is no regular file"):
        load({"set": "arrays", "directory": "own"})
    os.mkfifo("train-images-idx3-ubyte")
    with pytest.raises(DataError, match="is no regular file"):
        read_idx(Path("train-images-idx3-ubyte"), 3)


def test_a_small_file_that_holds_much_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_data, "_MOST_BYTES", 1000)
    zeros = np.zeros(1_000_000, np.uint8)
    np.savez_compressed("own.npz", train_x=zeros, train_y=zeros, test_x=zeros, test_y=zeros)
    with pytest.raises(DataError, match=r"the archive holds 4,000,512 bytes, expected at most \d+"):
        load({"set": "arrays", "directory": "own.npz"})
    with gzip.open("images.gz", "wb") as file:
        file.write(bytes([0, 0, 8, 3, *[255] * 12, *[0] * 5000]))
    monkeypatch.setattr(data, "_MOST_BYTES", 1000)
    with pytest.raises(DataError, match=r"images\.gz: holds more than 1,000 values"):
        read_idx(Path("images.gz"), 3)


def test_a_picture_of_an_attack_that_is_a_link_does_not_come_into_the_report(of_stranger: Path, tmp_path: Path) -> None:
    run = shutil.copytree(of_stranger, tmp_path / "run")
    (run / "attacks" / "a").mkdir(parents=True)
    (run / "attacks" / "a.csv").write_text("x\n1\n")
    (run / "attacks" / "a.json").write_text('{"attack": "a", "parameters": {}, "pictures": ["mine"]}')
    (tmp_path / "secret").write_text("secret")
    picture = (run / "attacks" / "a").with_suffix(PICTURES) / "1.png"
    picture.parent.mkdir(exist_ok=True)
    picture.symlink_to(tmp_path / "secret")
    with pytest.raises(RecordError, match=r"1\.png: is a link, to .*secret: expected a picture"):
        report.write(run, tmp_path / "report.html")


def test_no_more_workers_start_than_there_are_nodes_or_a_machine_bears(monkeypatch: pytest.MonkeyPatch,
                                                                       tmp_path: Path) -> None:
    started: list[int] = []

    class Few(Workers):
        def __init__(self, n: int, *more: Any):
            started.append(n)
            super().__init__(1, *more)

    scenario = loads(SMALL, "s", ["training=skip"])
    nodes = len(engine.wire(scenario, *scenario.schemes[0]).plan.names)
    with pytest.raises(ScenarioError, match=r"--workers +1025 +expected at most 1,024"):
        engine.run(scenario, workers=1025, out=tmp_path)
    with pytest.raises(ScenarioError, match=r"--workers +1025 +expected at most 1,024"), engine.pool_of(1025):
        pass                                    # as a study asks for it
    monkeypatch.setattr(running, "Workers", Few)
    with contextlib.suppress(Exception):            # one worker for the set-ups of several
        engine.run(scenario, workers=100, out=tmp_path)
    assert started == [nodes]


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_command_runs_without_standard_streams(folder: Path, closed: str) -> None:
    emul = Path(sys.executable).with_name("emul")
    done = subprocess.run(f"{emul} run small.yaml --workers 1 {closed}", shell=True, timeout=120, check=False)
    assert done.returncode == 0
    assert len(list((folder / "runs").glob("*/seal.json"))) == 2
