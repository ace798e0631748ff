"""Entries of one scheme are told apart by their labels."""

from __future__ import annotations

import pytest

from emul import engine
from emul.base.errors import ScenarioError
from emul.record.load import load_run
from emul.scenario import Scenario, label_of, loads

TEXT = """
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
links: [{match: "*", latency: 20 ms}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: SCHEMES
stop: {rounds: 1}
"""


def of(schemes: str, *sets: str) -> Scenario:
    return loads(TEXT.replace("SCHEMES", schemes), "small", sets, check=False)


def labels(schemes: str, *sets: str) -> list[str]:
    return [label_of(*entry) for entry in of(schemes, *sets).schemes]


def test_a_scheme_that_stands_alone_goes_by_its_name() -> None:
    assert labels("[fedavg, {name: secagg, threshold: 3}]") == ["fedavg", "secagg"]
    assert of("[fedavg]").schemes == [("fedavg", {})]


def test_several_entries_of_a_scheme_go_by_what_differs() -> None:
    assert labels("[fedavg, {name: fedavg, deadline: 2 s, weights: uniform}, "
                  "{name: fedavg, deadline: none, weights: uniform}]") == [
        "fedavg", "fedavg deadline=2s weights=uniform", "fedavg deadline=none weights=uniform"]
    assert labels("[{name: fair_seccogc, s: 1, finish_at: [1, 2]}, {name: fair_seccogc, s: 1, finish_at: [3]}]") == [
        "fair_seccogc finish_at=[1;2]", "fair_seccogc finish_at=[3]"]


def test_a_label_of_its_own_wins_and_the_others_need_none() -> None:
    assert labels("[{name: fedavg, label: patient}, {name: fedavg, deadline: 1 s}]") == ["patient", "fedavg"]


def test_a_label_survives_the_resolved_scenario() -> None:
    there = of("[{name: fedavg, label: patient}, {name: fedavg, deadline: 1 s}, {name: fedavg, deadline: 2 s}]")
    again = loads(there.resolved(), check=False)
    assert again == there
    assert [label_of(*entry) for entry in again.schemes] == ["patient", "fedavg deadline=1s", "fedavg deadline=2s"]


def test_a_path_may_say_the_label() -> None:
    two = "[{name: fedavg, label: slow}, {name: fedavg, label: fast}]"
    assert of(two, "schemes.fast.deadline=1 s").schemes[1] == ("fedavg", {"label": "fast", "deadline": "1 s"})
    with pytest.raises(ScenarioError, match=r'schemes has no "fst"; did you mean "fast"\?'):
        of(two, "schemes.fst.deadline=1 s")


@pytest.mark.parametrize(("schemes", "text"), [
    ("[fedavg, fedavg]", r'schemes\[1\] +"fedavg" +says the same as schemes\[0\]: give one of them a label'),
    ("[{name: fedavg, label: a}, {name: secagg, label: a}]", r'schemes\[1\].label +"a" +schemes\[0\] is called so'),
    ("[secagg, {name: fedavg, label: secagg}]", r'schemes\[1\].label +"secagg" +schemes\[0\] is called so'),
    ("[{name: fedavg, label: 'a,b'}]", r'schemes\[0\].label +"a,b" +expected text of at most 100 characters'),
    ("[{name: fedavg, label: '../up'}]", r"schemes\[0\].label .*expected text"),
    ("[{name: fedavg, label: ''}]", r"schemes\[0\].label .*expected text"),
    ("[{name: fedavg, label: 3}]", r"schemes\[0\].label +3 +expected text"),
])
def test_labels_that_are_unsound_or_not_distinct_are_refused(schemes: str, text: str) -> None:
    with pytest.raises(ScenarioError, match=text):
        of(schemes)


def test_runs_directories_and_summaries_go_by_label_and_each_run_holds_its_own_entry(tmp_path) -> None:
    two = loads(TEXT.replace("SCHEMES", "[{name: fedavg, label: half}, {name: fedavg, deadline: 3 s}]"),
                sets=["schemes[0].fraction=0.5"])
    half, other = engine.run(two, workers=0, out=tmp_path)
    assert [r.directory.name for r in (half, other)] == ["small-half-1", "small-fedavg-1"]
    assert (half.summary["label"], half.summary["scheme"]) == ("half", "fedavg")
    assert half.summary["parameters"].items() >= {"deadline_s": None, "fraction": 0.5, "weights": "samples"}.items()
    assert (half.summary["parameters_given"], other.summary["parameters_given"]) == (["fraction"], ["deadline_s"])
    assert set(load_run(half.directory).rounds.cohort) == {2}
    for one in (half, other):
        assert engine.replay(one.directory, workers=0) == one.summary["digest"]
    assert [r.scheme for r in engine.run(two, scheme="half", workers=0, out=tmp_path)] == ["half"]
