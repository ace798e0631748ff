"""Runs from scenario to directory, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pytest
from small_scenario import SMALL

from emul import engine
from emul.api.calls import checked
from emul.base.errors import ReplayMismatch, ScenarioError
from emul.engine.profiling import MeasuredCost, pooled
from emul.engine.running import _require_gpu as require_gpu
from emul.record.journal import Journal, MemoryJournal, RecordError, header, read
from emul.report import write as write_report
from emul.roles import Message, Node, Scheme
from emul.scenario import loads
from emul.schemes import fedavg
from emul.workers.cluster import Cluster
from emul.workers.pool import Workers
from emul.workers.twin import Twin

TEXT = SMALL.replace("clients: 3", "clients: 4")


# --- a scheme of this file, loaded as a plug-in ---------------------------------------------------------------------

@dataclass(frozen=True)
class Ask(Message):
    number: int


@dataclass(frozen=True)
class Params:
    fail: bool = False
    work: int = 0


async def server(node: Node, p: Params) -> None:
    async for round_ in node.rounds():
        with round_:
            if p.fail:
                raise RuntimeError("as the test wants")
            node.broadcast(node.clients, Ask(int(round_)))
            await node.gather(Ask, node.clients)


async def client(node: Node, p: Params) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Ask, node.server)
            size = p.work * (1 + node.round % 3)
            node.send(node.server, Ask(await node.compute("count", count, size, work=size)))


def count(size: int) -> int:
    return sum(1 for _ in range(size))


PLUGIN = __name__


def scenario(*sets: str, text: str = TEXT) -> Any:
    return loads(text, "small", sets, plugins=[PLUGIN])


# --- run ------------------------------------------------------------------------------------------------------------

def test_a_run_leaves_a_directory_for_each_scheme_with_everything_in_it(tmp_path: Path) -> None:
    results = engine.run(scenario(), workers=0, out=tmp_path)
    assert [(r.scheme, r.error, r.violations) for r in results] == [("fedavg", None, ()), ("secagg", None, ())]
    for result in results:
        assert result.directory is not None
        names = {path.name for path in result.directory.iterdir()}
        assert {"journal", "summary.json", "scenario.resolved.yaml", "messages.parquet", "rounds.parquet",
                "computations.parquet", "timings.parquet"} <= names
        assert "INCOMPLETE" not in names
        assert json.loads((result.directory / "summary.json").read_text())["digest"] == result.summary["digest"]
        assert result.summary["rounds"] == 2


def test_runs_are_the_same_twice_in_process_and_in_processes(tmp_path: Path, pools: list[Workers]) -> None:
    digests = {engine.run(scenario(), scheme="fedavg", workers=pool, out=tmp_path)[0].summary["digest"]
               for pool in (Twin(), Twin(), *pools)}
    assert len(digests) == 1


def test_the_seed_and_a_set_value_change_a_run(tmp_path: Path) -> None:
    def digest(*sets: str, seed: int | None = None) -> str:
        chosen = loads(TEXT, "small", sets, seed)
        return engine.run(chosen, scheme="fedavg", workers=0, out=tmp_path)[0].summary["digest"]

    assert len({digest(), digest(seed=8), digest("links[0].latency=21 ms"), digest("task.solver.sgd.lr=0.2")}) == 4
    assert digest("stop.rounds=2") == digest()


def test_only_the_scheme_that_is_asked_for_runs(tmp_path: Path) -> None:
    assert [r.scheme for r in engine.run(scenario(), scheme="secagg", workers=0, out=tmp_path)] == ["secagg"]
    with pytest.raises(ScenarioError, match=r'(?s)--scheme +"krum" +expected one of its schemes: fedavg, secagg$'):
        engine.run(scenario(), scheme="krum", workers=0, out=tmp_path)


def test_a_scheme_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    both = scenario(f"schemes=[{{name: {PLUGIN}, fail: true}}, fedavg]")
    failed, well = engine.run(both, workers=0, out=tmp_path, plugins=[PLUGIN])
    assert failed.error is not None
    assert failed.error.startswith("RoleFailed: server (server) failed at 0 s in round 1:\n")
    assert failed.error.rstrip().endswith("RuntimeError: as the test wants")
    assert failed.summary is None
    assert (failed.directory / "INCOMPLETE").exists()
    assert "as the test wants" in (failed.directory / "error.txt").read_text()
    assert well.error is None
    assert well.summary["rounds"] == 2


@pytest.mark.slow
def test_after_a_scheme_that_fails_a_pool_takes_the_next_one(tmp_path: Path, pools: list[Workers]) -> None:
    both = scenario(f"schemes=[{{name: {PLUGIN}, fail: true}}, fedavg]")
    for pool in pools:
        failed, well = engine.run(both, workers=pool, out=tmp_path, plugins=[PLUGIN])
        assert "as the test wants" in failed.error
        assert well.error is None


def test_the_journal_of_a_run_that_failed_can_be_read_up_to_there(tmp_path: Path) -> None:
    failed = engine.run(scenario(f"schemes=[{{name: {PLUGIN}, fail: true}}]"), workers=0, out=tmp_path,
                        plugins=[PLUGIN])[0]
    reading = read(failed.directory / "journal")
    assert len(list(reading)) > 0
    assert not reading.complete
    with pytest.raises(RecordError, match=r": no directory of a run that ended$"):
        engine.replay(failed.directory, workers=0)


def test_an_unknown_scheme_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ScenarioError, match=r'"fedavgg" +unknown scheme; did you mean "fedavg"\?'):
        scenario("schemes=[fedavgg]")


def test_a_gpu_that_is_not_here_is_a_warning_to_who_checks_and_refused_where_workers_are_to_use_it(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    scenario = loads(TEXT, sets=["compute={mode: zero, device: cuda}"])
    assert ("compute.device: cuda, but torch finds no GPU on this machine: workers are to be elsewhere (--on)"
            in scenario.warnings)
    with pytest.raises(ScenarioError, match=r'compute\.device  "cuda"  torch finds no GPU on this machine$'):
        engine.run(scenario, workers=0, out=tmp_path)
    assert not list(tmp_path.iterdir())
    require_gpu(scenario, Cluster(1))           # its machines decide


def test_a_role_without_a_place_is_refused_with_the_key_that_gives_it_one() -> None:
    peers = loads(TEXT, "small", ["topology={generator: complete, peers: 3}", "schemes=[fedavg]"], check=False)
    with pytest.raises(ScenarioError, match=(
            r'^scheme fedavg: 2 errors\n +server at "server\[0\]"  the topology has no such node, it has 3 peer; say '
            r"where, as in places: \{server: peer1\}\n +client at ")):
        engine.wire(peers, "fedavg", {})


def test_rules_that_match_nothing_are_warnings() -> None:
    odd = scenario('links=[{match: "*", latency: 1 ms}, {match: "clint1->server", latency: 2 ms}]',
                   "compute.mode=measured", "nodes=[{match: clint2, speed: 2.0}]", "schemes=[fedavg]")
    assert engine.wire(odd, "fedavg", {}).warnings == [
        'links: the rule "clint1->server" matches no link', 'nodes[0] "clint2" matches no node']


def test_the_last_speed_that_matches_a_node_counts() -> None:
    fast = scenario("nodes=[{match: 'client*', speed: 2.0}, {match: client3, speed: 0.5}]")
    assert engine.wire(fast, "fedavg", {}).setups[0].speeds == [1.0, 2.0, 2.0, 0.5, 2.0]


# --- replay ---------------------------------------------------------------------------------------------------------

def test_no_more_workers_are_started_than_there_are_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(Workers):
        def __init__(self, workers: int, timeout_s: float = 30.0) -> None:
            asked.append(workers)
            super().__init__(workers, timeout_s)

    asked: list[int] = []
    monkeypatch.setattr("emul.engine.running.Workers", Counted)
    few = scenario("topology.clients=2", "stop.rounds=1")
    result, = engine.run(few, scheme="fedavg", workers=40, out=tmp_path)
    assert asked == [3]
    assert result.error is None


def test_a_replay_is_identical_whatever_the_workers(tmp_path: Path, pools: list[Workers]) -> None:
    result = engine.run(scenario(), scheme="fedavg", workers=0, out=tmp_path)[0]
    for workers in (0, pools[1]):
        assert engine.replay(result.directory, workers=workers) == result.summary["digest"]


def test_a_measured_run_is_replayed_with_its_own_times(tmp_path: Path) -> None:
    result = engine.run(scenario("compute.mode=measured"), scheme="fedavg", workers=0, out=tmp_path)[0]
    assert result.summary["compute_virtual_seconds"]["client"]["train"] > 0
    assert engine.replay(result.directory, workers=0) == result.summary["digest"]


def test_a_replay_that_differs_names_the_first_difference(tmp_path: Path) -> None:
    result = engine.run(scenario(), scheme="fedavg", workers=0, out=tmp_path)[0]
    path = result.directory / "scenario.resolved.yaml"
    text = path.read_text()
    assert "latency: 20 ms" in text
    path.write_text(text.replace("latency: 20 ms", "latency: 21 ms"))
    with pytest.raises(ReplayMismatch) as caught:
        engine.replay(result.directory, workers=0)
    said = str(caught.value)
    assert said.startswith(f"{result.directory}: 2 differences\n  journal, row ")
    assert "\n      recorded  deliver time_ns=" in said
    assert "      differ in time_ns\n  scenario.resolved.yaml: its bytes are not those that were written" in said


def test_a_replay_with_another_model_says_so(tmp_path: Path) -> None:
    result = engine.run(scenario(), scheme="fedavg", workers=0, out=tmp_path)[0]
    path = result.directory / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "digest_model": "0" * 32}))
    with pytest.raises(ReplayMismatch, match=r"summary.json, digest_model: '0{32}', computed again '[0-9a-f]{32}'$"):
        engine.replay(result.directory, workers=0)


def test_what_is_no_run_cannot_be_replayed(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r": no directory of a run that ended$"):
        engine.replay(tmp_path, workers=0)


# --- where times come from ------------------------------------------------------------------------------------------

def test_recorded_times_are_those_of_another_run(tmp_path: Path) -> None:
    first = engine.run(scenario("compute.mode=measured"), scheme="fedavg", workers=0, out=tmp_path)[0]
    again = engine.run(scenario("compute={mode: recorded, file: " + str(first.directory) + "}"), scheme="fedavg",
                       workers=0, out=tmp_path)[0]
    assert again.error is None
    assert again.summary["digest"] == first.summary["digest"]


def test_a_profile_charges_a_plus_b_times_work_over_speed(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"emul_profile": 1, "costs": {f"{PLUGIN}/client/count": [0.5, 0.01]}}))
    chosen = scenario(f"schemes=[{{name: {PLUGIN}, work: 10}}]", "stop.rounds=1", 'links=[{match: "*", latency: 1 ms}]',
                      "nodes=[{match: client2, speed: 0.25}]", "compute={mode: profile, file: " + str(path) + "}")
    run = engine.run(chosen, workers=0, out=tmp_path, plugins=[PLUGIN])[0]
    costs = [row[4] for row in read(run.directory / "journal") if row[0] == 8]
    assert sorted(costs) == [700_000_000] * 3 + [2_800_000_000]      # 0.5 + 0.01 * 20, round 1


def test_a_profile_without_an_entry_names_the_command(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"emul_profile": 1, "costs": {}}))
    run = engine.run(scenario("compute={mode: profile, file: " + str(path) + "}"), scheme="fedavg", workers=0,
                     out=tmp_path)[0]
    assert ("the profile has no price of 'fedavg/client/train': make one with `emul profile SCENARIO -o FILE`"
            in run.error)


@pytest.mark.parametrize(("content", "said"), [
    ("{", r"expected JSON as `emul profile` writes it"),
    ('{"emul_profile": 2, "costs": {}}', r"emul_profile +2 +expected version 1"),
    ('{"emul_profile": 1, "costs": {"a/b/c": [1]}}', r"costs.a/b/c +\[1\] +expected two numbers of seconds, \[a, b\]"),
    ('{"emul_profile": 1, "costs": {"a/b/c": [1, -1]}}', r"costs.a/b/c +\[1, -1\] +expected two numbers of seconds"),
])
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(content)
    with pytest.raises(ScenarioError, match=said):
        engine.read_profile(path)


def test_profiling_measures_every_computation_and_writes_a_file_that_a_run_takes(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    chosen = scenario(f"schemes=[{{name: {PLUGIN}, work: 20000}}]", "stop.rounds=5")
    told: list[str] = []
    found = engine.profile(chosen, path, plugins=[PLUGIN], repeat=1, tell=told.append)
    assert told[0] == f"{PLUGIN}, run 1 of 1"
    assert {f"{PLUGIN}, run 1 of 1: round {number} of 5" for number in (1, 5)} <= set(told)
    assert list(found) == [f"{PLUGIN}/client/count"]
    assert engine.read_profile(path) == {key: [one.a, one.b] for key, one in found.items()}
    one = found[f"{PLUGIN}/client/count"]
    assert one.a >= 0
    assert one.b > 0                                # counting takes time for each number
    assert json.loads(path.read_text())["spread"] == {key: list(one.spread) for key, one in found.items()}
    assert 0 < one.spread[0] <= one.spread[1]       # the line need not lie between the quartiles


def test_one_computation_has_one_cost_whichever_schemes_ask_for_it(tmp_path: Path) -> None:
    """The same local training got 0.78 ms under one scheme and 1.54 ms under another, which decides who wins."""
    path = tmp_path / "profile.json"
    schemes = "{name: fedasync, rho: 0, timeout: 50 s}, fedavg, {name: fedbuff, buffer: 2, timeout: 50 s}"
    found = engine.profile(scenario(f"schemes=[{schemes}, fedprox]", "stop.rounds=2"), path, repeat=1)
    trainings = ["fedasync/client/train", "fedavg/client/train", "fedbuff/client/train"]
    assert len({found[key][:3] for key in trainings}) == 1
    assert found["fedavg/client/train"].alike == ("fedasync/client/train", "fedbuff/client/train")
    assert found["fedprox/client/train"].alike == ()            # its loss has a term more
    assert json.loads(path.read_text())["alike"] == [trainings]
    chosen = scenario(f"schemes=[{schemes}]", "stop.rounds=2",
                      "compute={mode: profile, file: " + str(path) + "}")
    assert [r.warnings for r in engine.run(chosen, workers=0, out=tmp_path)] == [()] * 3
    assert checked(chosen, "t").warnings == []


def test_what_schemes_measure_of_one_computation_is_pooled() -> None:
    points = {"a/client/train": {0.0: [1.0, 1.0, 1.0]}, "b/client/train": {0.0: [2.0, 4.0]},
              "c/client/train": {0.0: [9.0]}, "d/client/both": {0.0: [1.0], 3.0: [7.0]},
              "e/server/sum": {0.0: [3.0]}, "f/server/sum": {0.0: [5.0]}}
    same = {"a/client/train": {"t"}, "b/client/train": {"t"}, "c/client/train": {"other"}, "d/client/both": {"t", ""},
            "e/server/sum": {""}, "f/server/sum": {""}}
    found = pooled(points, same)
    assert found["a/client/train"] == MeasuredCost(1.0, 0.0, (1.0, 2.0), ("b/client/train",))
    assert found["b/client/train"] == MeasuredCost(1.0, 0.0, (1.0, 2.0), ("a/client/train",))
    assert [found[key].a for key in ("c/client/train", "e/server/sum", "f/server/sum")] == [9.0, 3.0, 5.0]
    assert found["d/client/both"][:2] == (1.0, 2.0)


@pytest.mark.parametrize(("fedbuff", "said"), [
    (0.0078, ["compute.file: one computation, task.local_update(float32[650]), is charged 7.8 ms as "
              "fedbuff/client/train and 13.8 ms as fedavg/client/train: a comparison of these schemes depends on it; "
              "`emul profile` measures one cost for all, or write the same"]), (0.0130, [])])
def test_check_and_run_warn_where_one_computation_is_charged_unequally(tmp_path: Path, fedbuff: float, said: list[str],
                                                                        ) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"emul_profile": 1, "costs": {
        "fedavg/client/train": [0.0138, 0.0], "fedavg/server/aggregate": [0.001, 0.0],
        "fedbuff/client/train": [fedbuff, 0.0],
        "fedbuff/server/aggregate": [0.001, 0.0]}}))
    chosen = scenario("schemes=[fedavg, {name: fedbuff, buffer: 2, timeout: 50 s}]", "stop.rounds=2",
                      "compute={mode: profile, file: " + str(path) + "}")
    assert checked(chosen, "t").warnings == said
    assert [list(r.warnings) for r in engine.run(chosen, workers=0, out=tmp_path)] == [said] * 2


@pytest.mark.parametrize(("points", "expected"), [
    ({0.0: [0.2, 0.4, 0.9]}, (0.4, 0.0)),                                   # work is not said: the mean of medians
    ({1.0: [3.0], 2.0: [5.0], 4.0: [9.0]}, (1.0, 2.0)),                     # seconds = 1 + 2 work
    ({1.0: [3.0, 3.0, 90.0], 2.0: [5.0], 4.0: [9.0, 9.0, 0.0]}, (1.0, 2.0)),    # medians shrug off outliers
    ({1.0: [5.0], 2.0: [3.0]}, (4.0, 0.0)),                                 # no cost falls with work
    ({1.0: [0.1], 2.0: [2.0]}, (0.0, (0.1 + 4.0) / 5.0)),                   # nor begins below zero
])
def test_fit_draws_a_line_with_nothing_negative(points: dict[float, list[float]], expected: tuple[float, float],
                                                ) -> None:
    assert engine.fit(points) == pytest.approx(expected)


# --- what a run may be run on ---------------------------------------------------------------------------------------

def test_a_header_of_a_journal_holds_what_reading_it_needs(tmp_path: Path) -> None:
    wiring = engine.wire(scenario(), "fedavg", {})
    with Journal(tmp_path / "journal", engine.header(wiring)) as journal:
        engine.execute(wiring, Twin(), journal)
    found = header(tmp_path / "journal")
    assert found["names"] == ["server", "client1", "client2", "client3", "client4"]
    assert (found["roles"][:2], found["deciders"], found["seed"]) == (["server", "client"], [0], 7)


def test_the_progress_of_a_run_is_told_at_every_round_of_a_decider() -> None:
    wiring = engine.wire(scenario("stop.rounds=3"), "fedavg", {})
    seen: list[int] = []
    engine.execute(wiring, Twin(), MemoryJournal(engine.header(wiring)), lambda kernel: seen.append(kernel.entered))
    assert seen == [1, 2, 3]


def test_rounds_that_nobody_answers_are_a_warning_of_the_run(tmp_path: Path) -> None:
    """fedavg counts a round as completed whatever came: all clients crashed at 0 s gave two rounds without a word."""
    scenario = loads(fedavg.EXAMPLE, "scenario", ["stop.rounds=2", 'faults=[{at: 0 s, node: "client*", crash: true}]'])
    result, = engine.run(scenario, workers=0, out=tmp_path, quiet=True)
    assert result.warnings == ("fedavg: in 2 of 2 completed rounds no message reached a node whose rounds count: the "
                               "model is what it was before",)
    assert result.summary["rounds_unanswered"] == 2


SCHEME = Scheme(params=Params, roles={"server": server, "client": client}, messages=(Ask,))


@pytest.mark.parametrize(("scheme", "reason"), [
    ("{name: fedavg, deadline: 1 s}", "Update: delta: not finite, of 5 nodes (client) in 2 of 2 rounds, client1 first"),
    ("gossip", "the aggregate is not finite, of 5 nodes (peer) in 2 of 2 rounds, client1 first, in round 1"),
    ("local", "loss of its model: nan, of 5 nodes (client) in 2 of 2 rounds, client1 first, in round 1"),
    ("{name: splitfed, cut: 1, deadline: 1 s}", "training has diverged: a gradient or a parameter is not finite, ")])
def test_a_training_that_diverges_is_told_with_node_round_and_reason(scheme: str, reason: str, tmp_path: Path) -> None:
    plan = loads(fedavg.EXAMPLE, "scenario", [
        "topology={generator: star, clients: 5}", "task.solver={sgd: {lr: 1e12, steps: 5, batch: 32}}",
        "task.data={set: digits}", "task.model=digits_mlp", f"schemes=[{scheme}]", "stop={rounds: 2}"])
    result, = engine.run(plan, workers=0, out=tmp_path, quiet=True)
    label = result.scheme
    said, = [warning for warning in result.warnings if "diverged" in warning]
    assert said.startswith(f"{label}: diverged: {reason}")
    assert result.summary is not None
    one, = result.summary["diverged"]
    assert (one["rounds"], one["entered"], one["first_round"]) == (2, 2, 1)
    assert escape(said.partition(": ")[2]) in write_report([result.directory]).read_text()
