"""Scenarios of several files: what is merged and what replaced, whose line an error names, and where files are."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from emul import cli
from emul.base.errors import ScenarioError
from emul.scenario import Scenario, load

ROOT = Path(__file__).resolve().parents[2]
BASE = """\
emul: 1
name: base
seed: 7
topology: {generator: star, clients: 4}
links:
  - {match: "*", latency: 20 ms, rate: 20 Mbit/s}
  - {match: "client*->server", outage: {model: bernoulli, p: 0.3, per: round}}
nodes:
  - {match: client3, speed: 0.25}
task:
  data: {set: digits}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}
compute: {mode: zero}
schemes: [fedavg, {name: secagg, threshold: 3}]
stop: {rounds: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "base.yaml").write_text(BASE)
    return tmp_path


def on_top(text: str, extends: str = "below/base.yaml", **more: bool) -> Scenario:
    Path("top.yaml").write_text(f"extends: {extends}\n{text}")
    return load("top.yaml", **more)


def test_mappings_are_merged_and_lists_replaced(folder: Path) -> None:
    found = on_top("name: top\nschemes: [krum]\ntask: {solver: {sgd: {lr: 0.5}}}\nstop: {rounds: 9}\n", check=False)
    base = load("below/base.yaml", check=False)
    assert (found.name, found.seed, found.stop.rounds) == ("top", 7, 9)
    assert found.task["solver"] == {"sgd": {"lr": 0.5, "steps": 2, "batch": 16}}
    assert found.task["data"] == base.task["data"]
    assert found.schemes == [("krum", {})]
    assert found.link_rules == base.link_rules
    assert found.path == folder / "top.yaml"


def test_entries_of_links_and_nodes_are_merged_by_match_and_others_added(folder: Path) -> None:
    found = on_top("links:\n"
                   "  - {match: 'server->client*', latency: 1 ms}\n"
                   "  - {match: ' client*->server', outage: {p: 0.1}}\n"
                   "  - {match: '*', bandwidth: 5 Mbit/s}\n"
                   "nodes: [{match: client3, speed: 0.5}, {match: client4, speed: 0.1}]\n")
    assert [rule.match.strip() for rule in found.link_rules] == ["*", "client*->server", "server->client*"]
    everywhere, up, down = found.link_rules
    assert (everywhere.latency_ns, everywhere.bandwidth_bps) == (20_000_000, 5_000_000)     # `rate` is its other name
    assert up.outage is not None
    assert down.latency_ns == 1_000_000
    assert "p: 0.1" in found.resolved()
    assert [(rule.match, rule.speed) for rule in found.node_speeds] == [("client3", 0.5), ("client4", 0.1)]


def test_null_takes_what_the_file_below_says_away(folder: Path) -> None:
    found = on_top("nodes: null\nlinks: [{match: 'client*->server', outage: null}]\n"
                   "task: {solver: {sgd: {momentum: null}}, partition: {dirichlet: 0.5}}\n", check=False)
    assert found.node_speeds == []
    assert found.link_rules[1].outage is None
    assert found.task["partition"] == {"dirichlet": 0.5}


def test_a_chain_and_a_file_on_top_are_applied_in_their_order(folder: Path) -> None:
    (folder / "middle.yaml").write_text("extends: below/base.yaml\nseed: 8\nstop: {rounds: 3, accuracy: 0.9}\n")
    (folder / "below" / "more.yaml").write_text("seed: 9\nlinks: [{match: 'client*->server', outage: {p: 0.7}}]\n")
    assert (on_top("name: x\n", "middle.yaml").seed, load("top.yaml").stop.accuracy) == (8, 0.9)
    found = load("top.yaml", [Path("below/more.yaml"), "seed=10", "links[1].outage.p=0.8"], check=False)
    assert found.seed == 10
    assert "p: 0.8" in found.resolved()
    assert load("top.yaml", ["seed=10", Path("below/more.yaml")], check=False).seed == 9


def test_errors_name_the_file_and_line_that_a_value_comes_from(folder: Path) -> None:
    wrong = BASE.replace("p: 0.3", "p: 1.3").replace("threshold: 3", "threshold: many")
    (folder / "below" / "base.yaml").write_text(wrong)
    with pytest.raises(ScenarioError) as caught:
        on_top("name: top\nstop: {rounds: many}\nlinks: [{match: 'client*->server', latency: 3}]\n")
    said = {problem.place: (problem.file, problem.line) for problem in caught.value.problems}
    assert said == {"stop.rounds": ("", 3), "links[1].latency": ("", 4),
                    "links[1].outage.p": ("below/base.yaml", 7), "schemes[1].threshold": ("below/base.yaml", 15)}
    lines = str(caught.value).splitlines()
    assert lines[0] == "top.yaml: 4 errors"
    assert any(re.match(r"  below/base\.yaml line 7 +links\[1\]\.outage\.p +1\.3 ", line) for line in lines)
    with pytest.raises(ScenarioError, match=r"--set seed +-1"):
        load("top.yaml", ["seed=-1"])


@pytest.mark.parametrize(("extends", "said"), [
    ("nowhere.yaml", r'top\.yaml: 1 error\n  line 1  extends  "nowhere\.yaml"  no such file$'),
    ("top.yaml", "extends itself: top.yaml -> top.yaml$"),
    ("[a, b]", "expected the name of a scenario file"),
    ("below/list.yaml", r"^below/list\.yaml: 1 error\n  line 1 .*expected a mapping"),
    ("below/broken.yaml", r"^below/broken\.yaml: 1 error\n  line 2 .*is no valid YAML"),
    ("below/loop.yaml", r"^top\.yaml: 1 error\n  below/loop\.yaml line 1 .*: top\.yaml -> loop\.yaml -> top\.yaml$")])
def test_what_cannot_be_extended_is_told(folder: Path, extends: str, said: str) -> None:
    (folder / "below" / "list.yaml").write_text("[1, 2]\n")
    (folder / "below" / "broken.yaml").write_text("a: 1\nb: [\n")
    (folder / "below" / "loop.yaml").write_text("extends: ../top.yaml\n")
    with pytest.raises(ScenarioError, match=said):
        on_top("name: top\n", extends)


def test_a_file_on_top_extends_nothing_itself(folder: Path) -> None:
    (folder / "more.yaml").write_text("seed: 3\nextends: below/base.yaml\n")
    with pytest.raises(ScenarioError, match=r"^more\.yaml: 1 error\n  more\.yaml line 2  extends .*cannot be used"):
        load("below/base.yaml", [Path("more.yaml")])


FILES = """\
extends: inner.yaml
topology: {generator: null, clients: null, file: net.graphml}
links:
  - {match: "a->b", outage: {model: trace, file: loss.csv}}
  - {match: "b->a", latency: {distribution: empirical, file: latency.csv}}
  - {match: "c->a", bandwidth: {trace: rate.csv}}
faults: [{availability: {file: there.csv}}]
compute: {mode: profile, file: costs.json, trace: measured.csv}
devices: {table: phones.csv, nodes: [{match: "*", device: laptop}]}
network: {replay: runs/one}
task: {data: {directory: data}}
"""


def test_files_are_where_the_file_lies_that_names_them(folder: Path) -> None:
    (folder / "below" / "inner.yaml").write_text(BASE)
    (folder / "below" / "base.yaml").write_text(FILES)
    with_files = load("below/base.yaml", check=False).resolved()
    (folder / "deeper" / "still").mkdir(parents=True)
    (folder / "deeper" / "still" / "top.yaml").write_text("extends: ../../below/base.yaml\n")
    assert load("deeper/still/top.yaml", check=False).resolved() == with_files
    named = ("net.graphml", "loss.csv", "latency.csv", "rate.csv", "there.csv", "costs.json", "measured.csv",
             "phones.csv", "runs/one", "data")
    assert [name for name in named if str(folder / "below" / name) not in with_files] == []


@pytest.mark.slow
def test_every_shipped_scenario_can_be_extended_from_elsewhere(folder: Path) -> None:
    shipped = [path for path in sorted((ROOT / "scenarios").rglob("*.yaml")) if path.read_text().find("emul: 1") >= 0]
    assert len(shipped) > 10
    for path in shipped:
        (folder / "top.yaml").write_text(f"extends: {path}\n")
        assert load("top.yaml", check=False).resolved() == load(path, check=False).resolved(), path


def test_what_is_extended_does_not_change_the_digest(folder: Path) -> None:
    whole = load("below/base.yaml", ["name=top", "stop.rounds=1"])
    assert on_top("name: top\nstop: {rounds: 1}\n") == whole


def test_commands_take_files_to_be_set_before_what_is_set_by_hand(
        folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "more.yaml").write_text("schemes: [fedavg]\nstop: {rounds: 0}\n")
    for last, code, said in (("stop.rounds=3", 0, "below/base.yaml: ok; schemes: fedavg\n"),
                             ("seed=3", 2, "below/base.yaml: 1 error\n  more.yaml line 2  stop.rounds  0  expected")):
        monkeypatch.setattr(sys, "argv", ["emul", "check", "below/base.yaml", "--set-file", "more.yaml", "--set", last])
        with pytest.raises(SystemExit, match=f"^{code}$"):
            cli.main()
        assert said in "".join(capsys.readouterr())
