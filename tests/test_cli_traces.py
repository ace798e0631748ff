"""`emul trace`: what it writes and prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from emul.base.errors import ScenarioError
from emul.cli import app
from emul.network.models.churn import read_availability
from emul.network.models.sessions import PARAMETERS as SESSIONS
from emul.network.models.traces import read_trace
from emul.network.models.tracetools import MODELS, explained

runner = CliRunner()


def emul(*arguments: str, code: int = 0) -> str:
    done = runner.invoke(app, ["trace", *arguments])
    assert done.exit_code == code, done.output
    return done.output


def test_a_trace_is_generated_converted_and_summarised(tmp_path: Path) -> None:
    made, other = tmp_path / "made.csv", tmp_path / "made.up"
    assert emul("generate", "on_off", "high=12 Mbit/s", "up=2 s", "down=1 s", "length=1 min", "-o", str(made),
                "--seed", "3") == f"written: {made}\n"
    emul("convert", str(made), "-o", str(other))
    there, back = (json.loads(emul("summary", str(f), "--json", "--below", "1 Mbit/s")) for f in (made, other))
    assert there["length_s"] == back["length_s"] == 60.0
    assert there["mean_bps"] == pytest.approx(back["mean_bps"], abs=200)        # to a packet of 1,500 B in a minute
    assert there["below"] == {"1000000": there["off"]}
    assert "% of the time" in emul("summary", str(made))
    emul("convert", str(other), "-o", str(tmp_path / "slow.simgrid"), "--step", "500 ms")
    assert len(read_trace(tmp_path / "slow.simgrid").times_ns) == 120


def test_fedscales_availability_is_converted(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text('{"7": {"active": [0, 5], "inactive": [2, 6], "finish_time": 10}}')
    emul("convert", str(tmp_path / "f.json"), "--to", "availability", "-o", str(tmp_path / "a.csv"))
    assert read_availability(tmp_path / "a.csv")["7"].period_ns == 10 * 10**9


def test_availability_is_generated(tmp_path: Path) -> None:
    emul("generate", "sessions", "nodes=3", "day=1 h", "length=2 h", "-o", str(tmp_path / "a.csv"), "--seed", "2")
    found = read_availability(tmp_path / "a.csv")
    assert list(found) == ["1", "2", "3"]
    assert {one.period_ns for one in found.values()} == {7200 * 10**9}


@pytest.mark.parametrize(("arguments", "expected"), [
    (["generate", "sessions", "mean=2"], 'mean: "2": expected a number above 0, below 1'),
    (["generate", "on_of"], "expected one of constant, on_off"),
    (["generate", "constant", "rate"], "expected NAME=VALUE"),
    (["generate", "constant", "rate=3"], "the unit is missing"),
    (["generate", "constant", "rate=3 Mbit/s", "--to", "x"], "expected one of csv, mahimahi, simgrid")])
def test_what_is_wrong_on_the_command_line_is_told(tmp_path: Path, arguments: list[str], expected: str) -> None:
    assert expected in " ".join(emul(*arguments, "-o", str(tmp_path / "x.csv"), code=2).replace("│", " ").split())


def test_a_bad_file_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "bad.up").write_text("5\n3\n")
    done = runner.invoke(app, ["trace", "summary", str(tmp_path / "bad.up")])
    assert isinstance(done.exception, ScenarioError)
    assert "line 2" in str(done.exception)


def test_a_csv_file_has_its_units_in_the_header(tmp_path: Path) -> None:
    emul("generate", "constant", "rate=4266623 bit/s", "length=1500 ms", "-o", str(tmp_path / "x.csv"))
    assert (tmp_path / "x.csv").read_text() == "t_s,bandwidth_mbps\n0,4.266623\n1.5,4.266623\n"


ALL = {**MODELS, "sessions": SESSIONS}


@pytest.mark.parametrize("model", ALL)
def test_help_names_every_parameter_and_what_it_takes_if_nothing_is_said(model: str) -> None:
    line = next(line for line in emul("generate", "--help").replace("│", " ").splitlines()
                if line.split()[:1] == [model])
    said, parameters = line.strip().removeprefix(model), ALL[model]
    needed, _, others = said.partition(";") if ";" in said else ("", "", said)
    assert needed.replace(",", " ").split() == [name for name, p in parameters.items() if p.default is None]
    assert dict(part.strip().split("=") for part in others.split(",")) == {
        name: p.default for name, p in parameters.items() if p.default is not None}


def test_a_wrong_parameter_is_told_with_all_that_there_are(tmp_path: Path) -> None:
    told = emul("generate", "markov", "-o", str(tmp_path / "x.csv"), code=2)
    for line in explained("markov"):
        assert line in told
    assert "hold: mean time in one, such as 2 s [needed]" in told
