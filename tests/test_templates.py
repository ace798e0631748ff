"""`emul new-scheme`: what it writes runs, and its own test passes."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from typer.main import get_command

from emul import cli, testing
from emul.base.errors import InputError
from emul.cli.options import app
from emul.network import build
from emul.scenario import load
from emul.templates import TemplateError, scenario_of_matrix, write_scheme, write_task


def command(words: list[str]) -> None:
    get_command(app)(words, standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder in which the user is, and from which plug-ins are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.slow
def test_a_new_scheme_runs_and_passes_its_own_test(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    names = ["my_scheme.py", "my_scheme.yaml", "test_my_scheme.py"]
    assert write_scheme("my_scheme", folder) == [folder / name for name in names]
    command = ["run", "my_scheme.yaml", "--plugin", "my_scheme", "--workers", "0", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["emul", *command])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0, capsys.readouterr().err
    table = capsys.readouterr().out.splitlines()
    assert table[1].split()[:3] == ["my_scheme", "3", "0"]              # rounds, failed
    # no pools: they would take longer than all the rest, and what they do is tested with other schemes
    monkeypatch.setattr(testing, "check_scheme", partial(testing.check_scheme, pools=[]))
    written = importlib.import_module("test_my_scheme")
    tests = [getattr(written, name) for name in dir(written) if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_a_new_task_runs_and_passes_its_own_test(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    def emul(*command: str) -> list[str]:
        monkeypatch.setattr(sys, "argv", ["emul", *command])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        assert stop.value.code == 0, said.err
        return said.out.splitlines()

    assert emul("new-task", "my_task")[-2] == "run it:  emul run my_task.yaml --plugin my_task"
    table = emul("run", "my_task.yaml", "--plugin", "my_task", "--workers", "0", "--quiet")
    assert table[1].split()[:3] == ["fedavg", "3", "0"]                 # rounds, failed
    assert float(table[1].split()[3]) > 0.8                             # accuracy
    assert ("my_task: for tasks: data set my_task_data, partition my_task_parts, model my_task_net, "
            "objective my_task_loss") in emul("schemes", "--plugin", "my_task")
    written = importlib.import_module("test_my_task")
    tests = [getattr(written, name) for name in dir(written) if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        test()


def test_a_task_has_errors_of_its_own(folder: Path) -> None:
    with pytest.raises(TemplateError, match=r'^task name "a-b": expected a Python identifier .*, such as my_task$'):
        write_task("a-b", folder)


def test_what_is_written_is_what_is_documented(folder: Path) -> None:
    write_scheme("other", folder / "new" / "folder")
    text = (folder / "new/folder/other.py").read_text()
    assert "NAME" not in text + (folder / "new/folder/other.yaml").read_text()
    assert len(text.splitlines()) < 80
    sys.path.insert(0, str(folder / "new" / "folder"))
    try:
        scenario = load(folder / "new/folder/other.yaml", plugins=["other"])
        with pytest.raises(Exception, match=r"fraction = 2\.0: expected a number in \(0, 1\]|fraction = 2\.0"):
            load(folder / "new/folder/other.yaml", sets=["schemes[0].fraction=2.0"], plugins=["other"])
    finally:
        sys.path.remove(str(folder / "new" / "folder"))
    assert scenario.stop.rounds == 3
    assert scenario.compute.mode == "zero"


@pytest.mark.parametrize(("name", "text"), [
    ("a-b", 'scheme name "a-b": expected a Python identifier that is no keyword, such as my_scheme'),
    ("../up", 'scheme name "../up": expected a Python identifier that is no keyword, such as my_scheme'),
    ("", 'scheme name "": expected a Python identifier that is no keyword, such as my_scheme'),
    ("class", 'scheme name "class": expected a Python identifier that is no keyword, such as my_scheme'),
    ("schéma", 'scheme name "schéma": expected a Python identifier that is no keyword, such as my_scheme'),
    ("fedavg", 'scheme name "fedavg": there is a scheme of this name already; expected another'),
    ("numpy", 'scheme name "numpy": expected a name that no Python module has and that does not begin with "_", '
              "such as my_scheme"),
    ("_mine", 'scheme name "_mine": expected a name that no Python module has and that does not begin with "_", '
              "such as my_scheme"),
])
def test_names_that_cannot_be_are_refused_and_nothing_is_written(name: str, text: str, folder: Path) -> None:
    with pytest.raises(TemplateError) as error:
        write_scheme(name, folder)
    assert str(error.value) == text
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("taken", ["mine.py", "mine.yaml", "test_mine.py"])
def test_no_file_is_ever_overwritten(taken: str, folder: Path) -> None:
    (folder / taken).write_text("precious")
    with pytest.raises(TemplateError) as error:
        write_scheme("mine", folder)
    assert str(error.value) == (f"{folder / taken}: exists already; nothing was written. Expected a name or a "
                                "directory (--dir) without such files")
    assert [(p.name, p.read_text()) for p in folder.iterdir()] == [(taken, "precious")]


def test_a_directory_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(TemplateError, match=r"file/below: cannot be written: Not a directory$"):
        write_scheme("mine", folder / "file" / "below")


def test_a_matrix_becomes_a_scenario_by_one_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sites = ["Riga", "Oulu", "Kiel", "Bern", "Faro", "Bari", "Cork", "St. Gallen"]
    rtt = {frozenset((a, b)): 10 + 7 * i * j % 90 for i, a in enumerate(sites) for j, b in enumerate(sites) if i < j}
    for name, value in (("rtt.csv", rtt.__getitem__), ("rates.csv", lambda pair: 5 + rtt[pair])):
        rows = [[a, *("" if a == b else str(value(frozenset((a, b)))) for b in sites)] for a in sites]
        (folder / name).write_text("".join(",".join(row) + "\n" for row in rows))
    command(["network", "from-matrix", "rtt.csv", "--rates", "rates.csv", "-o", "out.yaml"])
    assert "8 sites, round trips from 10 to 94 ms; Riga serves" in capsys.readouterr().out
    plan = load(folder / "out.yaml")
    assert plan.warnings == []
    network = build(plan.topology, plan.link_rules, plan.seed)
    for u, v in network.pairs():
        pair = frozenset((network.names[u], network.names[v]))
        assert network.latency_ns(u, v) + network.latency_ns(v, u) == rtt[pair] * 10**6
        assert network.parameters(u, v).bandwidth_bps == (5 + rtt[pair]) * 10**6
    (folder / "up.csv").write_text("t_s,rate_mbps\n0,5\n1,2\n")
    text = re.sub(r"^# (?=links|faults|  - )", "", (folder / "out.yaml").read_text(), flags=re.MULTILINE)
    (folder / "more.yaml").write_text(text.replace("FILE", "up.csv"))       # with the lines that it proposes
    proposed = load(folder / "more.yaml")
    assert proposed.warnings == []
    assert [rule.match for rule in proposed.link_rules] == ["*->Riga"]
    assert len(proposed.faults) == 1
    with pytest.raises(InputError, match="exists already"):
        command(["network", "from-matrix", "rtt.csv", "-o", "out.yaml"])
    with pytest.raises(InputError, match=r'Rigga: unknown site of rtt.csv; did you mean "Riga"\?'):
        command(["network", "from-matrix", "rtt.csv", "--server", "Rigga", "-o", "no.yaml"])


@pytest.mark.parametrize(("options", "roles", "scheme"), [
    ((None, True), {"peer": ["a", "b", "c"]}, "gossip"), (("c", False), {"server": ["c"], "client": ["b"]}, "fedavg"),
    ((None, False), {"server": ["b"], "client": ["a", "c"]}, "fedavg")])
def test_who_serves_is_named_or_is_the_nearest_to_all_and_talks_only_to_whom_it_has_links(
        folder: Path, options: tuple[str | None, bool], roles: dict[str, list[str]], scheme: str) -> None:
    (folder / "m.csv").write_text(",a,b,c\na,,5,\nb,,,9\nc,,,\n")
    text, _ = scenario_of_matrix(Path("m.csv"), None, folder / "s" / "s.yaml", *options, one_way=True, unit="us")
    (folder / "s").mkdir()
    (folder / "s" / "s.yaml").write_text(text)
    plan = load(folder / "s" / "s.yaml")
    network = build(plan.topology, plan.link_rules, plan.seed)
    assert {role: [network.names[v] for v in vertices] for role, vertices in network.roles.items()} == roles
    assert network.parameters(0, 1).latency_ns == 5_000
    assert [name for name, _ in plan.schemes] == [scheme]


@pytest.mark.slow
def test_the_commands_for_assistants_run_in_their_order(folder: Path) -> None:
    """Those that AGENTS.md shows, and it is short."""
    page = (Path(__file__).resolve().parents[1] / "AGENTS.md").read_text(encoding="utf-8")
    assert len(page.split()) < 300
    shown = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    assert [line.split()[1] for line in shown] == ["new-scheme", "check", "run", "compare", "sweep", "-m"]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for line in shown:
        done = subprocess.run(line, shell=True, cwd=folder, env={**os.environ, "PATH": path}, text=True,
                              capture_output=True, check=False, timeout=250)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
