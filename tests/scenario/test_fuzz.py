"""Whatever the file says, the answer is a scenario or a ScenarioError."""

import copy
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from small_scenario import SMALL

from emul import scenario
from emul.base.errors import ScenarioError
from emul.scenario.source import read

CANONICAL = (Path(__file__).parent / "canonical.yaml").read_text()
# the same, sound to the end: faulty behaviour is refused, and only one scheme is taken for granted
GOOD = "".join(line for line in CANONICAL.splitlines(keepends=True)
               if not any(word in line for word in ("behave:", "secagg", "fair_seccogc")))
TREE = read(GOOD).tree
FEW = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])

WORDS = st.sampled_from(["none", "iid", "fedavg", "*", "a->b", "client1->server", "20 ms", "1 MB", "20 Mbit/s",
                         "3..9", "", "~", "star", "infinite", "digits", "mnist", "bernoulli", "~nobody/x", "\0", "0",
                         "1e999 s"])
SCALARS = (st.none() | st.booleans() | st.integers() | st.integers(-3, 3) | st.floats() | st.text(max_size=8) | WORDS
           | st.just(10**60))
KEYS = st.sampled_from(["match", "p", "per", "outage", "at", "for", "node", "link", "name", "file", "roles", "rule",
                        "data", "set", "sgd", "lr", "mode", "generator", "behave", "nodes", "__class__",
                        "model_config", "0"])
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), v,
                                                                                   max_size=3), max_leaves=8)


def attempt(text: str, *sets: str) -> scenario.Scenario | None:
    try:
        return scenario.loads(text, "fuzz", sets)
    except ScenarioError as caught:
        error = caught
    assert error.problems
    assert len(str(error).splitlines()) == len(error.problems) + 1      # one line each, whatever the values hold
    return None


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


PLACES = [path for path in places(TREE) if path]


def dump(tree) -> str | None:
    """YAML text of a tree; None for what the dumper cannot write in a way that anybody could read."""
    out = io.StringIO()
    try:
        YAML(typ="safe", pure=True).dump(tree, out)
    except Exception:
        return None
    return out.getvalue()


def test_the_file_that_is_mutated_below_is_sound():
    assert attempt(GOOD) is not None


@FEW
@given(st.text())
def test_garbage(text):
    attempt(text)


@FEW
@given(st.text(alphabet="-:?[]{}&*!|>%@`'\"#,\n\t ab0.~<\\x\u2028\x85", max_size=30))
def test_garbage_of_yamls_own_characters(text):
    attempt(text)


@FEW
@given(st.integers(0, len(GOOD)), st.integers(0, 30), st.text(alphabet="-:[]{}&*!|>'\"#,\n a0.<é\0", max_size=5))
def test_a_damaged_file(start, length, inserted):
    attempt(GOOD[:start] + inserted + GOOD[start + length:])


def change(tree, path, value, how: str) -> None:
    """Set, drop or add at `path`, if an earlier change has left it there."""
    for step in path[:-1]:
        here = step in tree if isinstance(tree, dict) else isinstance(tree, list) and step in range(len(tree))
        if not here:
            return
        tree = tree[step]
    last = path[-1]
    if how == "add" and isinstance(tree, dict):
        tree["x"] = value
    elif last in tree if isinstance(tree, dict) else isinstance(tree, list) and last in range(len(tree)):
        if how == "drop":
            del tree[last]
        else:
            tree[last] = value


@FEW
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES, st.sampled_from(["set", "drop", "add"])),
                min_size=1, max_size=3))
def test_a_file_with_other_values_where_they_may_stand(changes):
    tree = copy.deepcopy(TREE)
    for path, value, how in changes:
        change(tree, path, value, how)
    text = dump(tree)
    if text is None:
        return
    s = attempt(text)
    if s is not None:
        again = scenario.loads(s.resolved())
        assert again == s
        assert again.resolved() == s.resolved()


@FEW
@given(st.text(max_size=15) | st.tuples(st.sampled_from(["stop.rounds", "links[0]", "links[1].outage.p", "task.solver",
                                                         "schemes[0].deadline", "topology", "", "a[9999999]"]),
                                        st.text(max_size=10) | VALUES.map(str)).map("=".join))
def test_garbage_in_a_set(edit):
    attempt(GOOD, edit)


@pytest.mark.slow
@FEW
@given(st.dictionaries(st.text(min_size=1, max_size=5).filter(lambda k: k != "name"), VALUES, max_size=4))
def test_a_schemes_raw_parameters_survive_being_resolved(parameters):
    text = dump({**TREE, "schemes": [{"name": "fedavg", **parameters}]})
    if text is None:
        return
    try:
        first = scenario.loads(text, check=False)
    except ScenarioError:       # text that YAML cannot hold
        return
    again = scenario.loads(first.resolved(), check=False)
    assert repr(again.schemes) == repr(first.schemes)       # repr, because NaN differs from itself


@pytest.mark.parametrize(("sets", "place", "expected"), [
    (["devices=x"], "devices", "expected a mapping"),
    (["task=5", "schemes=[{name: splitfed, cut: 1}]"], "task", "expected a mapping"),
    (["schemes=[{name: fedavg, selection: {uniform: {over: 1e308}}}]"], "schemes[0].selection", "at most 1e6"),
    (["links[0].outage={model: on_off, up: 1 ns, down: 1 s}"], "links[0].outage.up", "expected 1 us or more"),
    (["links[0].outage={model: bernoulli, p: 0.1, per: slot, slot: 999 ns}"], "links[0].outage.slot", "1 us or more"),
    (["links[0].outage={model: on_off, up: 1 us, down: 1 us}", "stop={virtual_time: 1 h}"], "links[0].outage",
     "at most 10,000,000 up to stop.virtual_time"),
    (["traffic=[{link: client1->server, messages: {every: {exponential: 1 ns}, size: 1 kB}}]"],
     "traffic[0].messages.every.exponential", "expected 1 us or more"),
    (["traffic=[{link: client1->server, messages: {every: 1 us, size: 1 B}}]", "stop={virtual_time: 1 h}"],
     "traffic[0].messages.every", "expected 360 us or more"),
    (["traffic=[{link: client1->server, greedy: 1000000000}]"], "traffic[0].greedy", "in 1..10000"),
    (["faults=[{churn: {match: client*, up: 1 ns, down: 1 s}}]"], "faults[0].churn.up", "expected 1 us or more"),
    (["schemes=[{name: diloco, pieces: 10000}]"], "schemes[0].pieces", "the 650 numbers of the model over 3 nodes"),
    (["schemes=[{name: ddp, layers: 1000}]"], "schemes[0].layers", "the 650 numbers of the model"),
    (["schemes=[{name: diloco, steps: 1000000000}]"], "schemes[0].steps", "up to 10,000,000"),
    (["task.solver={sgd: {lr: 0.1, steps: 1000000000, batch: 8}}"], "task.solver.sgd.steps", "at most 10,000,000"),
    (["schemes=[{name: dp_fedavg, eps: 1e-300}]"], "schemes[0].eps", "a number in [1e-6, 1e6]"),
    (["traffic=[{link: client1->server, rate: {walk: {every: 1 ns, law: {uniform: [1 Mbit/s, 2 Mbit/s]}}}}]"],
     "traffic[0].rate.walk.every", "expected 1 us or more"),
    (["traffic=[{link: client1->server, rate: {walk: {every: 1 us, law: {uniform: [1 Mbit/s, 2 Mbit/s]}}}}]",
      "stop={virtual_time: 1 h}"], "traffic[0].rate.walk.every", "expected 360 us or more"),
    (["traffic=[{link: client1->server, rate: {on_off: {on: 1 ns, off: 1 s, rate: 1 Mbit/s}}}]"],
     "traffic[0].rate.on_off.on", "expected 1 us or more"),
    (["schemes=[{name: fedavg, selection: {uniform: {nobody: 1}}}]", "training=skip"], "schemes[0].selection",
     'unknown parameter "nobody"')])
def test_what_would_take_a_run_without_end_is_an_error_at_its_place(sets, place, expected):
    with pytest.raises(ScenarioError) as wrong:
        scenario.loads(SMALL, "small", [*sets])
    assert place in {problem.place.removeprefix("--set ") for problem in wrong.value.problems}
    assert any(expected in problem.expected for problem in wrong.value.problems)


@pytest.mark.timeout(60)
def test_files_and_networks_that_hold_absurd_numbers_are_errors_at_their_place(tmp_path):
    np.savez(tmp_path / "empty.npz")
    (tmp_path / "plan.txt").write_text(f"a contact +0 +{'9' * 5000} 1 2 1000\n")
    for sets, place, expected in (
            ([f"task.data={{set: arrays, directory: {tmp_path / 'empty.npz'}}}"], "task.data", "expected the arrays"),
            ([f"contacts={{file: {tmp_path / 'plan.txt'}, format: ion}}"], "contacts.file", "expected a time"),
            (["topology={generator: random_geometric, nodes: 30000, radius: 0.1, roles: {client: {rule: all}}}"],
             "topology.generator", "at most 3,000,000"),
            (["topology={generator: watts_strogatz, peers: 1000000, neighbours: 800000, rewire: 0.1}"],
             "topology.generator", "at most 3,000,000")):
        with pytest.raises(ScenarioError) as wrong:
            scenario.loads(SMALL, "small", sets)
        found = {problem.place.removeprefix("--set "): problem.expected for problem in wrong.value.problems}
        assert any(one.startswith(place) and expected in text for one, text in found.items()), found


@pytest.mark.parametrize("text", ["t_s,up\n0,1\n0.000000001,0\n0.000000002,1\n",
                                  "t_s,loss\n0,0.1\n0.0000009,0.5\n0.0000019,0\n"])
def test_a_looped_trace_of_losses_lasts_for_each_of_its_values(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ScenarioError, match=r"expected 1 us or more for each of the 2 values: with loop it ends there"):
        scenario.loads(SMALL, "small", [f"links[0].outage={{model: trace, file: {tmp_path / 't.csv'}, loop: true}}"])


def test_a_schedule_lasts_for_each_of_its_stays(tmp_path):
    (tmp_path / "a.csv").write_text("node,t_on_ns,t_off_ns\nclient1,0,100\n")
    with pytest.raises(ScenarioError, match=r"expected 1 us or more for each of the 1 stays"):
        scenario.loads(SMALL, "small", [f"faults=[{{availability: {{file: {tmp_path / 'a.csv'}, period: 500 ns}}}}]"])


def test_a_looped_trace_of_latencies_lasts_for_each_of_its_values(tmp_path):
    (tmp_path / "t.csv").write_text("t_s,latency_ms\n0,1\n0.000000001,2\n0.000000002,1\n")
    with pytest.raises(ScenarioError, match=r"expected 1 us or more for each of the 2 values: with loop it ends there"):
        scenario.loads(SMALL, "small", [
            f"links[0].latency={{distribution: trace, file: {tmp_path / 't.csv'}, loop: true}}"])


def test_a_looped_trace_lasts_for_each_of_its_rates(tmp_path):
    (tmp_path / "t.csv").write_text("time_s,rate_mbps\n0,10\n0.000000001,5\n0.000000002,5\n")
    with pytest.raises(ScenarioError, match=r"bandwidth.loop +2 ns +expected 1 us or more for each of the 3 rates"):
        scenario.loads(SMALL, "small", [f"links[0].bandwidth={{trace: {tmp_path / 't.csv'}, loop: true}}"])
