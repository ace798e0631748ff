"""Clocks, generators, rounds, metrics and files of Flower apps, one by one."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime
import importlib.abc
import json
import multiprocessing.connection
import random
import subprocess
import sys
import time
import tomllib
from importlib.metadata import requires
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import typer
from flower_app import scenario, write_app
from packaging.requirements import Requirement

import emul
from emul.base.errors import EmulError, RoleError
from emul.cli.flower import flower_scheme, parsed
from emul.scenario import loads
from emul.schemes.flower import apps, clock, task_of
from emul.schemes.flower.apps import AppError, find
from emul.schemes.flower.clock import EPOCH_S
from emul.schemes.flower.current import AppClock, Notes, Running, best, report, run_as, running, weighted
from emul.schemes.flower.grid import RoundNumbers
from emul.schemes.flower.randomness import Randomness, begin

ROOT = Path(__file__).resolve().parents[2]


def no_sleep(seconds: float) -> None:
    raise AssertionError(f"time.sleep({seconds}): no time can pass here")


def at(seconds: float) -> Running:
    return Running(2, AppClock(round(seconds * 1e9), no_sleep))


# --- the seam -------------------------------------------------------------------------------------------------------

def test_flowers_grid_has_the_members_that_are_known() -> None:
    """Acceptance 6: whatever is added is to be looked at."""
    from flwr.serverapp import Grid

    assert set(Grid.__abstractmethods__) == {"set_run", "run", "create_message", "get_node_ids", "push_messages",
                                             "pull_messages", "send_and_receive"}


def test_nothing_of_emul_imports_flower_before_an_app_runs() -> None:
    code = ("import sys, emul, emul.cli, emul.schemes.flower.apps, emul.schemes.flower.hosting, emul.schemes.flower\n"
            "sys.exit(any(name.partition('.')[0] == 'flwr' for name in sys.modules))")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


# --- clocks ---------------------------------------------------------------------------------------------------------

def test_an_app_sees_virtual_time_and_nobody_else_does() -> None:
    clock.install()
    with run_as(at(2.5)):
        assert (time.time(), time.monotonic(), time.perf_counter()) == (EPOCH_S + 2.5, 2.5, 2.5)
        assert (time.time_ns(), time.monotonic_ns()) == (EPOCH_S * 10**9 + 2_500_000_000, 2_500_000_000)
    assert time.time() > EPOCH_S - 10**9
    assert time.time() != EPOCH_S + 2.5
    assert running() is None


def test_flower_writes_virtual_times_into_its_messages() -> None:
    from flwr.supercore.date import now

    clock.install()
    with run_as(at(3.25)):
        assert now() == datetime.datetime(2026, 1, 1, 0, 0, 3, 250_000, datetime.UTC)
    assert abs(now().timestamp() - datetime.datetime.now(datetime.UTC).timestamp()) < 60


def test_a_loop_of_asyncio_in_an_app_is_not_stopped() -> None:
    clock.install()
    with run_as(at(1)):
        assert asyncio.run(asyncio.sleep(0.01, "done")) == "done"


def test_a_wait_for_processes_or_futures_in_an_app_ends() -> None:
    reader, writer = multiprocessing.Pipe(duplex=False)
    clock.install()
    with reader, writer, run_as(at(1)):
        assert multiprocessing.connection.wait([reader], timeout=0.01) == []
        with pytest.raises(TimeoutError):
            list(concurrent.futures.as_completed([concurrent.futures.Future[None]()], timeout=0.01))


def test_a_negative_sleep_is_an_error_as_ever() -> None:
    clock.install()
    with run_as(at(1)), pytest.raises(ValueError, match=r"^sleep length must be non-negative$"):
        time.sleep(-1)


# --- generators -----------------------------------------------------------------------------------------------------

def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))       # noqa: NPY002    as apps do


def test_an_apps_generators_go_on_where_they_were_whoever_draws_in_between() -> None:
    one = Randomness(7, "server")
    with one.used():
        first = drawn()
    begin(7, "client1", 1)
    assert drawn() != first
    with one.used():
        second = drawn()
    begin(7, "server")
    assert (drawn(), drawn()) == (first, second)


def test_the_generators_of_a_process_are_put_back() -> None:
    begin(7, "before")
    before = drawn(), drawn()
    begin(7, "before")
    drawn()
    app = Randomness(7, "server")
    with app.used():
        drawn()
    app.close()
    assert drawn() == before[1]


# --- rounds and metrics ---------------------------------------------------------------------------------------------

def test_a_round_begins_with_another_number_whatever_it_is() -> None:
    """A second strategy in one app counts from 1 again. What has no number belongs to the round that goes on."""
    rounds = RoundNumbers()
    said = [("", False), ("1", True), ("1", False), ("2", True), ("", True), ("2", False), ("1", True)]
    assert [rounds.begins(number, trains) for number, trains in said] == [
        False, False, False, True, False, False, True]


@pytest.mark.parametrize(("keys", "found"), [
    (["eval_acc", "train_acc"], "eval_acc"), (["accuracy", "acc"], "accuracy"), (["train_acc"], "train_acc"),
    (["vacancy", "place"], None), (["Test-Accuracy"], "Test-Accuracy"), ([], None)])
def test_what_is_an_accuracy_is_told_by_its_name(keys: list[str], found: str | None) -> None:
    assert best(dict.fromkeys(keys, 1.0), "accuracy") == found


def test_metrics_are_weighted_as_flower_does_it() -> None:
    assert weighted([{"a": 1.0, "num_examples": 1}, {"a": 4.0, "b": 2.0, "num_examples": 3}]) == {"a": 3.25, "b": 2.0}
    assert weighted([{"a": 1.0, "num-examples": 0}]) == {}


def test_what_is_noted_belongs_to_one_round() -> None:
    notes = Notes()
    notes.evaluated({"accuracy": 0.5, "text": "no number"})
    notes.found.append({"accuracy": 0.9, "num-examples": 2.0})
    assert notes.closed() == {"accuracy": 0.5}
    assert notes.closed() == {}


def test_helpers_of_apps_say_where_they_cannot_be_used() -> None:
    class Context:
        node_id = 3

    report(accuracy=1.0)                    # nothing happens
    with pytest.raises(RoleError, match=r"no app of a run of emul is running in this thread$"):
        task_of(Context())
    with run_as(at(0)), pytest.raises(RoleError, match=r"node 3 is another one, this is 2$"):
        task_of(Context())
    Context.node_id = 2
    with run_as(at(0)), pytest.raises(RoleError, match=r"the scenario has no task$"):
        task_of(Context())


# --- files ----------------------------------------------------------------------------------------------------------

def test_an_app_is_found_by_the_name_of_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_app(tmp_path / "somewhere")
    monkeypatch.delitem(sys.modules, "tiny", raising=False)      # of another test
    monkeypatch.syspath_prepend(str(folder))
    found = find("tiny", None, "emul.schemes.flower.example:client", {})
    assert (found.folder, found.server, found.client) == (
        folder, "tiny.server_app:app", "emul.schemes.flower.example:client")


@pytest.mark.parametrize(("project", "said"), [
    ("[tool", r"pyproject.toml: Expected ']'"), ("[tool.other]", r"expected a section \[tool.flwr.app.components\]"),
    ("[tool.flwr.app.components]\nserverapp = 'a:b'", r"\[tool.flwr.app.components\] has no clientapp"),
    ("[tool.flwr.app.components]\nserverapp='json:a'\nclientapp='json:a'\n[tool.flwr.app.config]\nx=[1]",
     r"config.x = \[1\]: expected a number, text, true or false"),
    ("[tool.flwr.app]\ncomponents = 5", r"expected a section \[tool.flwr.app.components\]"),
    ("[tool.flwr.app]\nconfig = 5", r"expected a section \[tool.flwr.app.components\]"),
    ("a = " + "[" * 100_000, r"pyproject.toml: ")])
def test_a_project_that_is_no_app_is_refused(project: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(project)
    with pytest.raises(AppError, match=said):
        find(str(tmp_path), None, None, {})


@pytest.mark.parametrize(("app", "server", "said"), [
    ("no\0body", None, r'app = "no\0body": '), ("~nobody-of-this-name", None, r'app = "~nobody-of-this-name": '),
    ("antigravity.b", None, "expected a folder with a pyproject.toml"), (None, ".x:app", r"there is no module \.x$"),
    (None, "__main__:app", "there is no module __main__")])
def test_a_name_that_no_app_can_have_is_refused_and_imports_nothing(
        app: str | None, server: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)      # as in a program that is no module
    with pytest.raises(AppError, match=said):
        find(app, server, "json:a", {})
    assert "antigravity" not in sys.modules


def test_check_runs_nothing_of_an_app_also_where_it_looks_for_prices(tmp_path: Path) -> None:
    app = write_app(tmp_path / "app")
    for module in ("server_app", "client_app"):
        (app / "tiny" / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n1 / 0\n")
    (tmp_path / "costs.json").write_text('{"emul_profile": 1, "costs": {"fedavg/client/train": [0.1, 0]}}')
    (file := tmp_path / "app.yaml").write_text(scenario({"app": str(app)}).replace(
        "{mode: zero}", "{mode: profile, file: costs.json}"))
    found = emul.check(file)
    assert any("flower: its code is not run here" in one for one in found.warnings)
    assert not (tmp_path / "ran").exists()


def test_what_flower_needs_is_what_the_extra_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [Requirement(text).name for text in project["optional-dependencies"]["flower"]]
    assert extra == ["flwr"]
    assert {Requirement(text).name for text in requires("flwr") or ()} >= set(apps._NEEDED.values())
    assert not apps.lacking()


def test_what_flower_lacks_is_named_by_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = scenario({"app": str(write_app(tmp_path))})
    for module in ("grpc_health", "google.protobuf", "iterators"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EmulError, match=r"Flower needs protobuf, grpcio-health-checking, iterators: pip install "
                                        r"'emul\[flower\]'$"):
        loads(text)
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(EmulError, match=r"Flower is not installed  pip install 'emul\[flower\]'$"):
        loads(text)


def test_what_an_app_asks_for_and_what_is_not_there_is_a_warning_of_check(tmp_path: Path) -> None:
    app = write_app(tmp_path)
    assert not loads(scenario({"app": str(app)})).warnings
    project = app / "pyproject.toml"
    asked = ["flwr[simulation]>=1.27", "numpy", "no-such-thing[x]>=2", "Not.There", "elsewhere; sys_platform == 'x'"]
    bare = project.read_text()
    project.write_text(bare.replace("[project]\n", "[project]\ndependencies = 5\n"))     # no list: none is asked for
    assert not loads(scenario({"app": str(app)})).warnings
    project.write_text(bare.replace("[project]\n", f"[project]\ndependencies = {json.dumps(asked)}\n"))
    warning, = loads(scenario({"app": str(app)})).warnings
    assert warning.endswith(f"the app {app} asks for no-such-thing, Not.There, not installed: "
                            "pip install no-such-thing Not.There")


def test_a_need_of_another_version_of_flower_is_named_when_it_is_loaded(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(importlib.abc.MetaPathFinder):
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "flwr.clientapp":
                raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")

    loaded = apps.Loaded(find(str(write_app(tmp_path)), None, None, {}), 7)
    monkeypatch.delitem(sys.modules, "flwr.clientapp", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Gone(), *sys.meta_path])
    with pytest.raises(AppError, match=r"^Flower needs sqlalchemy, which is not installed$"):
        loaded.get("client")


def test_options_of_the_command_line_become_an_entry_of_the_scenario(tmp_path: Path) -> None:
    assert flower_scheme(str(tmp_path), None, "a.b:c", ["n=3 rate=0.5", "name='two words'"]) == [
        f'schemes=[{{"name": "flower", "app": "{tmp_path}", "client": "a.b:c", '
        '"config": {"n": 3, "rate": 0.5, "name": "two words"}}]']
    assert flower_scheme(None, None, None, None) == []


def test_a_config_that_is_no_toml_is_refused() -> None:
    with pytest.raises((typer.BadParameter, click.BadParameter), match="adam: expected key=value"):
        parsed(["lr=0.1 adam"])
    with pytest.raises((typer.BadParameter, click.BadParameter), match="is used only with --flower"):
        flower_scheme(None, None, None, ["lr=0.1"])
