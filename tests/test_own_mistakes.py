"""What a user is told of mistakes of their own: the place, the command to type, and their own lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_scenario import SMALL

import emul
from emul import cli
from emul.base.errors import RoleFailed, ScenarioError
from emul.engine.costs import load_costs
from emul.record.journal import RecordError
from emul.roles import Message, Node
from emul.scenario import load
from emul.scenario.task import mistakes
from emul.testing import run_world


def test_a_profile_that_is_not_there_is_told_with_its_line_its_key_and_the_command_that_writes_it(
        tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    lines = [line for line in SMALL.strip().splitlines() if not line.startswith("compute:")]
    file.write_text("\n".join([*lines, "compute: {mode: profile, file: mine.json}"]))
    with pytest.raises(ScenarioError) as wrong:
        load_costs(load(file, check=False))
    assert " ".join(str(wrong.value).split()) == (
        f"{file}: 1 error line {len(lines) + 1} compute.file {tmp_path / 'mine.json'} there is no such file; this "
        f"writes it: emul profile {file} -o {tmp_path / 'mine.json'}")


def test_a_run_that_is_not_there_is_said_not_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=rf"^{tmp_path / 'none'}: there is no such directory$"):
        emul.load_run(tmp_path / "none")


@pytest.mark.parametrize(("key", "value"), [
    ("model", "perceiver"), ("partition", "zipf"), ("objective", "huber"), ("data", {"set": "weather"})])
def test_an_unknown_name_that_may_be_the_users_own_comes_with_the_way_to_give_its_module(key: str, value: Any) -> None:
    task = {"data": {"set": "digits"}, "model": "logistic", "solver": {"sgd": {"lr": 0.1, "steps": 1}}, key: value}
    (_, _, expected), = mistakes(task, 3)
    assert expected.endswith("; one of your own: give its module, --plugin NAME")


@dataclass(frozen=True)
class Note(Message):
    number: int = 0


MESSAGES = (Note,)


def adds(number: int) -> int:
    return number + "1"             # type: ignore[operator]


async def nothing(node: Node, p: Any) -> None:
    return


def failed(server: Any) -> list[str]:
    """The lines of the error of a server that fails, without those of source."""
    with pytest.raises(RoleFailed) as error:
        run_world({"server": server, "client": nothing}, clients=1)
    return [line for line in str(error.value).splitlines() if not line.startswith("    ")]


def test_an_error_in_a_computation_of_ones_own_is_shown_by_ones_own_lines_alone() -> None:
    async def server(node: Node, p: Any) -> None:
        await node.compute("add", adds, 1)

    lines = failed(server)
    number = adds.__code__.co_firstlineno + 1
    assert lines[1] == (f"{Path(__file__).name}, line {number}: TypeError: unsupported operand type(s) for +: 'int' "
                        "and 'str'")
    assert re.fullmatch(r"\((1 line|(?!1 )\d+ lines) of emul left out: emul --traceback shows them\)", lines[2])
    assert [line.split('"')[1].rpartition("/")[2] for line in lines if line.startswith("  File")] == [
        Path(__file__).name] * 2
    assert lines[-1] == "TypeError: unsupported operand type(s) for +: 'int' and 'str'"


def test_with_traceback_emuls_own_lines_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def server(node: Node, p: Any) -> None:
        await node.compute("add", adds, 1)

    monkeypatch.setenv("EMUL_TRACEBACK", "1")
    lines = failed(server)
    assert sum("/emul/" in line for line in lines if line.startswith("  File")) > 2
    assert lines[1].startswith(f"{Path(__file__).name}, line ")
    assert "left out" not in str(lines)


@pytest.mark.parametrize("place", [1, 3], ids=["before the command", "behind it"])
def test_the_option_shows_where_an_error_of_a_scenario_was_raised(
        place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text("import nowhere\n")
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL.replace("schemes: [fedavg,", "schemes: [mine,"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMUL_TRACEBACK", "")         # what the command sets is gone after the test
    for asked in (False, True):
        words = ["emul", "check", str(file), "--plugin", "mine"]
        words[place:place] = ["--traceback"] * asked
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = capsys.readouterr().err
        assert left.value.code in (1, 2)
        assert "nowhere" in said
        assert ("Traceback" in said) == asked


def test_an_error_that_emul_raises_at_a_line_of_ones_own_shows_that_line_and_where_it_was_raised() -> None:
    async def server(node: Node, p: Any) -> None:
        node.send(node.clients[0], "no message")        # type: ignore[arg-type]

    files = [line.split('"')[1] for line in failed(server) if line.startswith("  File")]
    assert len(files) == 2
    assert files[0] == __file__
    assert "/emul/" in files[1]
