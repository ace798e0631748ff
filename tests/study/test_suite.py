"""The suite: its cells, what cannot run, its numbers against the runs' own tables, and what must not be mixed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import emul
from benchmarks import document, suite_tasks
from emul import cli, engine, scenario
from emul.base.errors import ScenarioError
from emul.base.files import shipped
from emul.learning.task import Task
from emul.record.journal import RecordError
from emul.record.load import load_run
from emul.registry.schemes import UnknownScheme
from emul.report import write
from emul.report.suite import _compared, dots
from emul.study.directory import StudyError
from emul.study.engines import in_turn
from emul.study.job import CELLS
from emul.study.runs import Where
from emul.study.suite import Suite, SuiteOutcome, patient, suite
from emul.study.suite_tables import METRICS, RefusedScheme, SuiteResults
from emul.study.suite_text import answer, latex, plain, printed, settled

Inside = Callable[..., Where]

LAN = """\
emul: 1
name: suite7-lan
seed: 0
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 5 ms, bandwidth: 20 Mbit/s}
devices:
  nodes: [{match: "*", device: laptop}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {trace: train.csv, default: 1 ms}
schemes:
  - {name: fedavg, deadline: 3 s}
  - {name: fedavg, label: half, fraction: 0.5, deadline: 3 s}
stop: {rounds: 4}
"""
FAR = """\
extends: lan.yaml
name: suite7-far
links: [{match: "*", latency: 500 ms}]
schemes:
  - {name: fedavg, deadline: 9 s}
  - {name: fedavg, label: half, fraction: 0.5, deadline: 9 s}
"""
DIGITS = "extends: ../lan.yaml\nname: suite7-digits\nstop: {accuracy: 0.3}\n"
MINE = '''\
"""A scheme that never sends: its server waits for a message until its timeout."""

from dataclasses import dataclass

from emul.roles import Message, Node, Scheme


@dataclass(frozen=True)
class Never(Message):
    pass


@dataclass(frozen=True)
class Params:
    deadline_s: float | None = None


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            await node.gather(Never, node.clients, timeout_s=p.deadline_s)


async def client(node: Node, p: Params) -> None:
    async for _ in node.rounds(of=node.server):
        pass


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Never,),
                timeouts=("deadline_s",))
'''


@pytest.fixture
def folder(small: Path) -> Path:
    """A suite of two networks, of three clients each."""
    made = small.parent / "networks"
    (made / "tasks").mkdir(parents=True)
    (made / "lan.yaml").write_text(LAN)
    (made / "far.yaml").write_text(FAR)
    (made / "train.csv").write_text("device,label,seconds\nlaptop,train,0.5\n")
    (made / "tasks" / "digits.yaml").write_text(DIGITS)
    return made


def run(folder: Path, **more: Any) -> SuiteOutcome:
    return suite(Where(in_turn, 0), folder=folder, **{"seeds": [0, 1], **more})


# --- what is run ------------------------------------------------------------------------------------------------------

def test_every_scheme_runs_on_every_network_and_seed_with_what_the_network_says_of_it(folder: Path) -> None:
    found = run(folder)
    assert [(cell.network, cell.scheme, cell.seed) for cell in found.study.runs] == [
        (network, scheme, seed) for network in ("lan", "far") for scheme in ("fedavg", "half") for seed in (0, 1)]
    deadlines = {(cell.network, cell.scenario.schemes[0][1]["deadline"]) for cell in found.study.runs}
    assert deadlines == {("lan", "3 s"), ("far", "9 s")}
    said = json.loads((found.study.path / "study.json").read_text())
    assert found.study.path == Path("runs/suite-digits")
    assert {key: said[key] for key in ("kind", "suite", "task", "target", "networks", "schemes", "baseline", "refused")
            } == {"kind": "suite", "suite": 7, "task": "digits", "target": 0.3, "networks": ["lan", "far"],
                  "schemes": ["fedavg", "half"], "baseline": "fedavg", "refused": []}
    assert pd.read_csv(found.study.path / "results.csv")["network"].tolist() == ["lan"] * 4 + ["far"] * 4


def test_a_scheme_that_cannot_run_on_a_network_is_a_line_with_the_reason(folder: Path) -> None:
    found = run(folder, schemes=["fedavg", "hierarchical"], networks=["lan"], seeds=[0])
    (refused,) = found.results.refused
    assert (refused.network, refused.scheme) == ("lan", "hierarchical")
    assert refused.reason.startswith('edge at "edge": the topology has no such node')
    assert plain(found.results, "accuracy")[2][2] == "x"
    with pytest.raises(ScenarioError, match="the topology has no such node"):
        run(folder, schemes=["hierarchical"], out=Path("none"))


@pytest.mark.parametrize(("more", "error", "said"), [
    ({"networks": ["fa"]}, ScenarioError, 'unknown network; did you mean "far"?'),
    ({"task": "digit"}, ScenarioError, 'unknown task; did you mean "digits"?; or give a scenario file'),
    ({"schemes": ["fedavk"]}, UnknownScheme, 'unknown scheme "fedavk"; did you mean "fedavg"?'),
    ({"baseline": "fedavk"}, ScenarioError, 'unknown scheme of this suite; did you mean "fedavg"?')])
def test_unknown_names_tell_the_nearest_before_anything_runs(folder: Path, more: dict[str, Any], error: type[Exception],
                                                             said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        run(folder, **more)
    assert not Path("runs").exists()


@pytest.mark.parametrize("scheme", ["fedper", "fedrep", "fedproto"])
def test_a_scheme_that_cuts_the_model_is_a_line_where_the_model_cannot_be_cut(folder: Path, scheme: str) -> None:
    (refused,) = run(folder, schemes=["fedavg", scheme], networks=["lan"], seeds=[0]).results.refused
    assert refused.reason.startswith("model = logistic: expected one with a representation and a decision, such as ")


def test_a_scheme_of_a_plug_in_runs_beside_the_others_with_the_deadline_of_each_network(folder: Path) -> None:
    (folder.parent / "never.py").write_text(MINE)
    found = suite(Where(in_turn, 0, ("never",)), folder=folder, schemes=["fedavg"], seeds=[0])
    mine = {cell.network: cell.scenario.schemes[0][1]["deadline"] for cell in found.study.runs
            if cell.scheme == "never"}
    assert mine == {"lan": "3 s", "far": "9 s"}
    assert found.results.of("time", "lan", "never") == {}


def test_a_task_and_schemes_are_taken_from_a_scenario_file(folder: Path, small: Path) -> None:
    own = small.parent / "own.yaml"
    own.write_text(small.read_text().replace("model: logistic", "model: digits_mlp").replace(
        "stop: {rounds: 2}", "stop: {rounds: 2, accuracy: 0.25}"))
    found = run(folder, task=str(own), schemes=[str(own)], networks=["far"], seeds=[0])
    assert [cell.scheme for cell in found.study.runs] == ["fedavg", "secagg"]
    assert {cell.scenario.task["model"] for cell in found.study.runs} == {"digits_mlp"}
    assert {cell.scenario.stop.rounds for cell in found.study.runs} == {4}
    assert (found.study.path, found.results.target) == (Path("runs/suite-own"), {"far": 0.25})


# --- again, elsewhere, in parts ---------------------------------------------------------------------------------------

def test_started_again_it_runs_what_is_missing_and_says_the_same(folder: Path) -> None:
    first = run(folder, networks=["lan"])
    again = run(folder, networks=["lan"])
    assert (again.study.found, again.badge) == (4, first.badge)
    assert re.fullmatch(r"emul suite 7: digits, 1 networks, 2 schemes, seeds 0, 1, 4 runs, digest [0-9a-f]{16}",
                        first.badge)
    more = run(folder)
    assert (more.study.found, len(more.study.runs)) == (4, 8)
    assert more.badge != first.badge


def test_a_network_only_change_trains_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EMUL_STORE", str(tmp_path / "store"))
    run(folder, networks=["lan"], seeds=[0])
    slower = run(folder, networks=["lan"], seeds=[0], sets=["links[0].latency=40 ms"], out=Path("slower"))
    assert slower.study.from_store == 1.0
    assert "changed: links[0].latency=40 ms" in slower.badge


@pytest.mark.slow
def test_parts_put_together_are_the_suite(folder: Path) -> None:
    from emul.study.sweep import Shard

    whole = run(folder, out=Path("whole"))
    parts = [run(folder, shard=Shard(k, 2)).study.path for k in (1, 2)]
    assert parts == [Path("runs/suite-digits-1of2"), Path("runs/suite-digits-2of2")]
    assert run(folder, collected=parts).badge == whole.badge


def test_cells_with_a_row_in_a_table_are_not_run_again(folder: Path) -> None:
    run(folder, networks=["lan"], done=Path("done.csv"))
    found = run(folder, out=Path("other"), done=Path("done.csv"))
    assert (found.study.known, len(found.study.runs)) == (4, 4)
    assert {cell.network for cell in found.study.runs} == {"far"}


@pytest.mark.slow
def test_digests_are_equal_for_one_and_two_workers_and_after_a_part_was_lost(folder: Path) -> None:
    import shutil

    badges = [suite(Where(in_turn, workers), folder=folder, seeds=[0], out=Path(f"with-{workers}")).badge
              for workers in (0, 1, 2)]
    shutil.rmtree(next(iter(sorted(Path("with-2", CELLS).glob("[!.]*")))))
    badges.append(run(folder, seeds=[0], out=Path("with-2")).badge)
    assert len(set(badges)) == 1


# --- what is frozen ---------------------------------------------------------------------------------------------------

def test_the_files_of_the_suite_are_those_of_its_sums() -> None:
    sums = shipped("scenarios") / "suite" / "SHA256SUMS"
    said = {name: digest for digest, name in (line.split("  ") for line in sums.read_text().splitlines())}
    found = {file.relative_to(sums.parent).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
             for file in sums.parent.rglob("*") if file.is_file() and file != sums}
    assert found == said, ("what changes a row's digest makes another version of the suite; then, in scenarios/suite: "
                           "git ls-files | grep -v SHA256SUMS | xargs sha256sum > SHA256SUMS")


# --- what must not be mixed -------------------------------------------------------------------------------------------

def test_suites_of_two_versions_are_not_mixed(folder: Path) -> None:
    run(folder, networks=["lan"], seeds=[0], done=Path("done.csv"))
    (folder / "far.yaml").write_text(FAR.replace("suite7", "suite8"))
    with pytest.raises(StudyError, match=r"holds networks of suites 7, 8: they cannot be mixed"):
        run(folder)
    for name in ("lan", "tasks/digits"):
        file = folder / f"{name}.yaml"
        file.write_text(file.read_text().replace("suite7", "suite8"))
    with pytest.raises(StudyError, match=r"holds suite 7, this is suite 8: they cannot be mixed; choose another --out"):
        run(folder)
    with pytest.raises(StudyError, match=r"done\.csv: holds rows of suite 7, this is suite 8: they cannot be mixed"):
        run(folder, out=Path("new"), done=Path("done.csv"))
    with pytest.raises(StudyError, match=r"runs/suite-digits: holds suite 7, this is suite 8"):
        run(folder, out=Path("new"), collected=[Path("runs/suite-digits")])


def test_another_task_and_another_kind_of_study_are_not_mixed(folder: Path, small: Path) -> None:
    out = run(folder, networks=["lan"], seeds=[0]).study.path
    with pytest.raises(StudyError, match=r"holds task digits, this is task small: they cannot be mixed"):
        run(folder, task=str(small), out=out)
    emul.sweep(small, schemes="fedavg", workers=0, quiet=True, out="swept")
    with pytest.raises(StudyError, match=r"swept: holds a sweep, no suite; choose another --out"):
        run(folder, out=Path("swept"))


def test_a_folder_without_networks_and_a_scenario_that_is_no_network_are_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StudyError, match="empty: holds no network of a suite"):
        Suite.of(tmp_path / "empty")
    (folder / "far.yaml").write_text(FAR.replace("suite7-", ""))
    with pytest.raises(StudyError, match=r"far\.yaml: is no network of a suite: expected a name such as suite1-far"):
        Suite.of(folder)


# --- numbers ----------------------------------------------------------------------------------------------------------

def test_what_it_takes_to_the_target_is_what_the_tables_of_the_run_say(folder: Path) -> None:
    found = run(folder, seeds=[0], schemes=["fedavg"])
    for cell in found.study.runs:
        run_directory = found.study.path / CELLS / cell.key
        tables = load_run(run_directory)
        reached = tables.rounds[tables.rounds["accuracy"] >= 0.3].iloc[0]
        until = int(reached["left_ns"])
        sent = tables.messages.loc[tables.messages["sent_ns"] <= until, "wire_bytes"].sum()
        r = found.results
        assert r.of("time", cell.network, "fedavg") == {0: until / 1e9}
        assert r.of("bytes", cell.network, "fedavg") == {0: pytest.approx(sent / 1e6)}
        assert r.of("accuracy", cell.network, "fedavg") == {0: tables.summary["accuracy"]}


def test_the_accuracy_at_the_end_is_the_last_one_within_the_time(folder: Path) -> None:
    found = run(folder, seeds=[0], schemes=["fedavg"], networks=["far"], sets=["stop.virtual_time=4 s"])
    curve = found.results.curves
    assert curve["virtual_s"].iloc[-1] > 4.0            # the round under way goes on to its end
    within = curve.loc[curve["virtual_s"] <= 4.0, "accuracy"].iloc[-1]
    assert found.results.of("accuracy", "far", "fedavg") == {0: within}


def made(values: Mapping[tuple[str, str, str], Mapping[int, float]], **more: Any) -> SuiteResults:
    """Results of schemes a and b, each of whose networks has all seeds."""
    networks = list(dict.fromkeys(network for _, network, _ in values))
    ended = {(network, scheme): [0, 1, 2] for network in networks for scheme in ("a", "b")}
    return SuiteResults(**{"networks": networks, "schemes": ["a", "b"], "seeds": [0, 1, 2], "baseline": "a",
                           "target": dict.fromkeys(networks, 0.9), "values": values, "ended": ended,
                           "accuracy_of": {"a": "global", "b": "global"},
                           "knowing": dict.fromkeys(ended, 0), "refused": [], "curves": pd.DataFrame(), **more})


TIMES = {("time", "lan", "a"): {0: 1.0, 1: 2.0, 2: 3.0}, ("time", "lan", "b"): {0: 3.0, 1: 4.5, 2: 6.0},
         ("time", "home", "a"): {0: 9.0, 1: 9.0, 2: 9.0}, ("time", "home", "b"): {0: 5.0, 1: 6.0, 2: 7.0},
         ("time", "far", "a"): {0: 99.0, 1: 99.0, 2: 99.0}, ("time", "far", "b"): {0: 1.0},
         ("accuracy", "lan", "a"): {0: 0.5, 1: 0.5, 2: 0.5}, ("accuracy", "lan", "b"): {0: 0.6, 1: 0.6, 2: 0.6}}


def test_a_scheme_that_reached_the_target_on_fewer_seeds_ranks_below_those_that_reached_it_on_more() -> None:
    r = made(TIMES)
    assert r.winners("time", "global") == {"lan": "a", "home": "b", "far": "a"}
    assert r.ranked("accuracy", "lan", "global") == ["b", "a"]
    assert r.winners("bytes", "global") == {}


def test_a_scheme_whose_network_loses_nothing_has_no_rank_and_cannot_win() -> None:
    r = made(TIMES, lossless=["a"])
    assert r.winners("time", "global") == {"lan": "b", "home": "b", "far": "b"}
    assert "no rank: a" in printed(r, "badge")
    ranks = r.frames()["suite"].set_index(["network", "scheme"])["time_rank"]
    assert pd.isna(ranks["lan", "a"])
    assert ranks["lan", "b"] == 1


def test_a_network_on_which_not_all_have_run_has_no_winner() -> None:
    r = made(TIMES, lacking={"home": ["a"]})
    assert r.winners("time", "global") == {"lan": "a", "far": "a"}
    assert "no rank on home: a has not run on all seeds here" in printed(r, "badge")
    assert pd.isna(r.frames()["suite"].set_index(["network", "scheme"])["time_rank"]["home", "b"])


def test_schemes_whose_accuracies_are_of_two_kinds_are_not_ranked_against_each_other() -> None:
    r = made(TIMES, accuracy_of={"a": "global", "b": "personal"})
    assert r.winners("time", "global") == {"lan": "a", "home": "a", "far": "a"}
    assert r.winners("time", "personal") == {"lan": "b", "home": "b", "far": "b"}
    assert r.frames()["suite"].groupby("scheme")["time_rank"].unique().map(list).to_dict() == {"a": [1.0], "b": [1.0]}
    assert r.frames()["differences"].empty
    assert answer(r) == ["Not compared with one another: schemes with global accuracy (a); schemes with personal "
                         "accuracy (b). These are different measures, so neither they nor what it takes to reach them "
                         "can be ranked."]
    assert "accuracy of  global  personal" in printed(r, "badge")
    assert latex(r, "badge").count(r"\textbf{") == 8                    # the best of each kind


def test_the_answer_counts_winners_and_the_pairs_of_networks_in_which_they_differ() -> None:
    time, accuracy = answer(made(TIMES))
    assert time == ("Least time to the target: a on 2, b on 1 of 3 networks; the paired t-test settles the lead over "
                    "the second on 2 of them. The winner differs in 2 of 3 pairs of networks; the winner of lan, a, "
                    "does not win on home.")
    assert accuracy.startswith("Highest accuracy at the end of the network's time: b on 1 of 1 networks; the "
                               "paired t-test settles the lead over the second on 1 of them.")
    assert accuracy.endswith("No scheme has a value on home, far.")


def test_differences_are_paired_by_seed_and_tested() -> None:
    frame = made(TIMES).frames()["differences"].set_index(["network", "metric"])
    lan, far = frame.loc[("lan", "time")], frame.loc[("far", "time")]
    assert (lan["scheme"], lan["baseline"], lan["n_seeds"], lan["mean"]) == ("b", "a", 3, 2.5)      # of 2, 2.5 and 3
    half = 4.302652729911275 * 0.5 / 3**0.5             # t of two degrees of freedom, deviation of 0.5
    assert (lan["t_low"], lan["t_high"]) == (pytest.approx(2.5 - half), pytest.approx(2.5 + half))
    assert lan["p_holm"] == pytest.approx(lan["p"])         # of one scheme
    assert lan["p"] < 0.05
    assert (far["n_seeds"], far["mean"]) == (1, -98.0)
    assert pd.isna(far["p"])
    assert [settled(made(TIMES), "time", network, "global") for network in ("lan", "far")] == [True, None]


def test_the_table_has_a_row_a_network_and_scheme() -> None:
    frame = made(TIMES).frames()["suite"].set_index(["network", "scheme"])
    assert frame.loc[("far", "b"), ["seeds", "reached", "time", "time_rank"]].tolist() == [3, 1, 1.0, 2.0]
    assert frame.loc[("lan", "a"), "time_low"] == pytest.approx(2 - 4.302652729911275 / 3**0.5)
    assert pd.isna(frame.loc[("far", "b"), "time_low"])


def test_tables_for_a_paper_have_the_best_in_bold_and_tell_what_is_missing() -> None:
    said = latex(made(TIMES, schemes=["a", "b"]), "emul suite 7: a_b").splitlines()
    assert said[0] == "% emul suite 7: a_b"
    assert r"home & 9 $\pm$ 0 & \textbf{6 $\pm$ 2.48} \\" in said
    assert r"far & \textbf{99 $\pm$ 0} & 1$^{1/3}$ \\" in said
    assert sum(line == r"\begin{tabular}{lrr}" for line in said) == 3
    refused = [RefusedScheme("far", "b", "no peers")]
    assert plain(made(TIMES, refused=refused), "time") == [["network", "a", "b"], ["accuracy of", "global", "global"],
                                                           ["lan", "2", "4.5"], ["home", "9", "6"], ["far", "99", "x"]]


# --- the page ---------------------------------------------------------------------------------------------------------

def test_the_page_has_the_badge_every_network_and_why_a_scheme_cannot_run(folder: Path) -> None:
    found = run(folder, schemes=["fedavg", "half", "hierarchical"])
    text = write(found.study.path).read_text(encoding="utf-8")
    assert found.badge in text
    for section in ("networks", "differences", "ranks", "fronts", "left-out", "all"):
        assert f'<section id="{section}"' in text
    assert "the topology has no such node" in text
    said = json.loads((found.study.path / "study.json").read_text())
    (found.study.path / "study.json").write_text(json.dumps({k: v for k, v in said.items() if k != "badge"}))
    with pytest.raises(RecordError, match="has not come to its end"):
        write(found.study.path)


def test_without_intervals_no_bars_are_drawn_and_none_is_counted() -> None:
    known = pd.DataFrame([{"network": "lan", "scheme": name, "accuracy_of": "global", "time": value,
                           "time_low": value - 1,
                           "time_high": value + 1, "reached": 3, "seeds": 3}
                          for name, value in (("a", 10.0), ("b", 12.0))])
    marks = [[layer["mark"]["type"] for layer in dots(table, "time", ["lan"], ["a", "b"]).spec()["layer"]]
             for table in (known, known.assign(time_low=np.nan, time_high=np.nan))]
    assert marks == [["rule", "point"], ["point"]]
    compared = pd.DataFrame([{"network": "lan", "metric": "time", "scheme": "b", "baseline": "a", "mean": 2.0,
                              "p_holm": 0.01}])
    assert "Of 1 differences with an interval 1 are settled" in _compared(compared).text
    assert "No difference has an interval" in _compared(compared.assign(p_holm=np.nan)).text


def test_a_suite_is_read_in_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emul.study.suite.shipped", lambda name: folder.parent)
    folder.rename(folder.parent / "suite")
    study = emul.suite("fedavg", networks="lan", seeds=[0], workers=0, quiet=True)
    assert study.suite[["network", "scheme", "seeds"]].values.tolist() == [["lan", "fedavg", 1]]
    assert "emul suite 7: digits" in str(study)
    assert emul.load_study(study.path).suite.equals(study.suite)


def test_the_command_prints_tables_and_the_badge(folder: Path, monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("emul.study.suite.shipped", lambda name: folder.parent)
    folder.rename(folder.parent / "suite")

    def command(*args: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["emul", "suite", *args, "--workers", "0", "--quiet", "--no-report"])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert isinstance(stop.value.code, int)
        return stop.value.code, capsys.readouterr().out

    code, said = command("--schemes", "fedavg,hierarchical", "--seeds", "0")
    assert code == 0
    assert "hierarchical cannot run on lan: " in said
    assert re.search(r"^emul suite 7: digits, 2 networks, 2 schemes, seeds 0, 2 runs, digest [0-9a-f]{16}$", said,
                     re.MULTILINE)
    code, said = command("--schemes", "fedavg", "--seeds", "0", "--json")
    found = json.loads(said)
    assert (code, found["kind"], found["winners"]["accuracy"]["global"]) == (
        0, "suite", {"lan": "fedavg", "far": "fedavg"})
    assert command("--networks", "fra")[0] == 2


# --- the suite that comes along ---------------------------------------------------------------------------------------

SHIPPED = Suite.of()


def test_the_suite_that_comes_along_is_version_2_and_begins_with_a_lan() -> None:
    assert SHIPPED.version == 2
    assert list(SHIPPED.networks) == ["lan", "background", "bursty", "bursty_tcp", "cell", "churn", "congested", "edge",
                                      "home", "lossy", "lossy_tcp", "mesh", "mobile", "silo"]
    assert list(SHIPPED.tasks()) == ["characters", "digits", "fashion", "tabular"]


@pytest.mark.parametrize("task", SHIPPED.tasks())
def test_a_task_that_comes_along_states_its_sources_has_a_target_and_data_for_the_clients_of_every_network(
        task: str) -> None:
    file = SHIPPED.tasks()[task]
    one = scenario.load(file, check=task != "fashion")              # whose files do not come along
    assert one.name == f"suite2-{task}"
    assert 0.3 < (one.stop.accuracy or 0) < 1
    text = document.read(Path(__file__).parents[2] / "docs" / "suite.md")
    assert f"| `{task}` | {one.stop.accuracy:.0%} |".replace("%", " %") in text
    if task == "fashion":
        return
    for clients in (20, 60):                                        # of the smallest network and of the largest
        learning = Task(one.task, clients, 0, "cpu")
        held = [learning.for_node(f"client{k}", k, lambda: 1).samples() for k in range(clients)]
        assert sum(held) >= 400
        assert min(held) > 0


def test_the_tables_task_learns_on_a_network_that_comes_along(small: Path) -> None:
    found = suite(Where(in_turn, 0), schemes=["fedavg"], networks=["lan"], seeds=[0], task="tabular",
                  sets=["stop.rounds=5"])
    curve = found.results.curves
    assert found.results.target == {"lan": 0.95}
    assert curve["loss"].iloc[-1] < 0.9 * curve["loss"].iloc[0]


def test_the_files_of_the_tasks_are_those_that_the_benchmark_writes(monkeypatch: pytest.MonkeyPatch,
                                                                    tmp_path: Path) -> None:
    import networkx

    pytest.importorskip("sklearn")
    if networkx.__version__ != "3.6.1":
        pytest.skip("another networkx has other docstrings")
    monkeypatch.setattr(suite_tasks, "TASKS", tmp_path)
    suite_tasks.data()
    assert (tmp_path / "tabular.csv").read_bytes() == (SHIPPED.folder / "tasks" / "tabular.csv").read_bytes()
    with np.load(tmp_path / "characters.npz") as made_now, np.load(SHIPPED.folder / "tasks" / "characters.npz") as kept:
        assert set(made_now) == set(kept)
        assert all(np.array_equal(made_now[name], kept[name]) for name in kept)


@pytest.mark.parametrize("network", SHIPPED.networks)
def test_a_network_states_its_sources_has_20_to_100_clients_and_takes_its_own_schemes(network: str) -> None:
    file = SHIPPED.networks[network]
    text = file.read_text(encoding="utf-8")
    assert "\n# Sources: " in text
    assert text.splitlines()[1].startswith("# Suite 2: ")
    one = scenario.load(file)                                       # checks every scheme that the file has
    wiring = engine.wire(one, *one.schemes[0])
    assert 20 <= sum(role == "client" for role in wiring.plan.roles) <= 100
    assert SHIPPED.units("digits")[network] > 0
    stated = [patient({"name": name, **params}, "1 h", ()) for name, params in one.schemes]     # as the suite does
    assert scenario.load(file, [f"schemes={json.dumps(stated)}"]).warnings == []


def test_the_measures_are_explained() -> None:
    text = document.read(Path(__file__).parents[2] / "docs" / "suite.md")
    said = dict(re.findall(r"^\| `(\w+)` \| ([^|]*)\| [^|]+ \|$", text.partition("## The page")[2], re.MULTILINE))
    assert {name: unit.strip() for name, unit in said.items()} == {name: unit for name, (unit, _) in METRICS.items()}


def test_the_networks_of_the_page_are_those_of_the_suite() -> None:
    text = document.read(Path(__file__).parents[2] / "docs" / "suite.md")
    said = re.findall(r"^\| `(\w+)` \| \d+ \|", text, re.MULTILINE)
    assert sorted(said) == sorted(SHIPPED.networks)
