"""Faults and traces in scenario files: every key there and back, every mistake in its place, and fuzzing."""

from __future__ import annotations

import copy
import io
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from emul import engine, scenario
from emul.base.errors import ScenarioError
from emul.kernel.calendar import FAR
from emul.network import OutageSpec
from emul.network.models.churn import Diurnal, Shocks
from emul.network.models.laws import Exponential, Fixed, LogNormal, Weibull
from emul.network.models.traces import TraceSpec
from emul.scenario import (
    Availability,
    Churn,
    Crash,
    Days,
    DropOut,
    Leave,
    LinkDown,
    LinkSet,
    LinkUp,
    NetworkPartition,
    ShockGroup,
    Slow,
)
from emul.scenario.churn import InRounds
from emul.scenario.source import read

S = 10**9
HEAD = """\
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 5}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""
FAULTS = """\
links:
  - {match: "*", latency: 20 ms, bandwidth: {trace: lte.csv, format: csv, loop: true, period: 2 min, name: bus}}
  - {match: "client1->server", bw: {trace: lte.up}}
faults:
  - {at: 1 s, link: "client*->server", down: true, for: 2 s, inflight: pause}
  - {at: 2 s, link: "client1->server", up: true}
  - {at: 3 s, link: "client1<->server", set: {latency: 5 ms, bandwidth: 1 Mbit/s}, for: 1 s}
  - {at: 3 s, link: "*->server", set: {bandwidth: infinite, outage: {model: bernoulli, p: 0.5, per: round}}}
  - {at: 4 s, link: "client1->server", set: {outage: none}}
  - {at: 5 s, partition: [[server, client1], ["*"]], for: 15 s, inflight: deliver}
  - {at: 6 s, node: client1, crash: true, wipe: true, for: 1 s}
  - {at: 6 s, node: "client*", leave: true, for: 1 s}
  - {at: 7 s, node: client2, slow: 4, for: 1 min}
  - {node: "client*", stage: Update, drop: true, rounds: 2..3}
  - {node: client3, stage: Update, drop: true}
  - {node: "client*", stage: Update, drop: {p: 0.2, per: round}, rounds: ..4}
  - availability: {match: client2, rounds: [..4, 6, 10..]}
  - availability: {match: client3, from_round: 2}
  - churn: {match: "client*", up: {weibull: {shape: 0.5, scale: 10 min}}, down: {exponential: 2 min}, kind: crash,
            start: up}
  - churn: {match: client1, up: {lognormal: {median: 5 min, sigma: 1.5}}, down: 30 s}
  - availability: {file: avail.csv, period: 2 d, assign: in_turn, match: "client*", kind: crash}
  - availability: {match: client3, diurnal: {mean: 0.6, amplitude: 0.3, period: 1 d, spread: 0.5}}
  - group: {match: "client*", name: rack, every: {exponential: 1 h}, down: {exponential: 1 min}, p: 0.5,
            correlation: 0.3}
  - group: {nodes: [client1, client2], every: 1 h, down: 1 s, kind: leave}
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "lte.csv").write_text("trace,t_s,mbps\nbus,0,20\nbus,60,3\n")
    (tmp_path / "lte.up").write_text("0\n3\n8\n")
    (tmp_path / "avail.csv").write_text("node,t_on_s,t_off_s\na,0,600\nb,60,90\n")
    return tmp_path


def table(text: str, base: Path, check: bool = False) -> str:
    with pytest.raises(ScenarioError) as caught:
        scenario.loads(HEAD + text, "s.yaml", base=base, check=check)
    return "\n".join(re.sub(" {2,}", "  ", line.strip()) for line in str(caught.value).splitlines()[1:])


def test_every_fault_arrives_in_the_units_of_the_emulator(base: Path) -> None:
    s = scenario.loads(HEAD + FAULTS, base=base)
    both = LinkSet(3 * S, "client1", "server", 5_000_000, 1_000_000, None, S)
    assert s.faults == [
        LinkDown(S, "client*", "server", 2 * S, "pause"), LinkUp(2 * S, "client1", "server"),
        both, LinkSet(3 * S, "server", "client1", 5_000_000, 1_000_000, None, S),
        LinkSet(3 * S, "*", "server", None, "infinite", OutageSpec(0.5, "round")),
        LinkSet(4 * S, "client1", "server", outage="none"),
        NetworkPartition(5 * S, (("server", "client1"), ("*",)), 15 * S, "deliver"),
        Crash(6 * S, "client1", S, True), Leave(6 * S, "client*", S), Slow(7 * S, "client2", 4, 60 * S),
        DropOut("client*", "Update", 2, 3), DropOut("client3", "Update"),
        DropOut("client*", "Update", 1, 4, 0.2), InRounds("client2", ((1, 4), (6, 6), (10, None))),
        InRounds("client3", ((2, None),)),
        Churn("client*", Weibull(0.5, 600 * S), Exponential(120 * S), "crash", False),
        Churn("client1", LogNormal(300 * S, 1.5), Fixed(30 * S), "leave", True),
        Availability(base / "avail.csv", "client*", 172_800 * S, True, "crash"),
        Days("client3", Diurnal(0.6, 0.3, 86_400 * S, 0.5)),
        ShockGroup(Shocks(Exponential(3600 * S), Exponential(60 * S), 0.5, 0.3), "client*", (), "rack"),
        ShockGroup(Shocks(Fixed(3600 * S), Fixed(S)), None, ("client1", "client2"), kind="leave")]
    assert [rule.bandwidth_bps for rule in s.link_rules] == [
        TraceSpec(base / "lte.csv", "csv", True, 120 * S, "bus"), TraceSpec(base / "lte.up")]


def test_a_resolved_scenario_says_the_same_from_anywhere_and_tells_the_files_digests(base: Path) -> None:
    s = scenario.loads(HEAD + FAULTS, base=base)
    again = scenario.loads(s.resolved(), base=Path("/"))
    assert again == s
    assert again.resolved() == s.resolved()
    text = s.resolved()
    assert text.count("sha256") == 3
    (base / "lte.up").write_text("1\n")
    with pytest.raises(ScenarioError, match="is not the one that this scenario was resolved with"):
        scenario.loads(text)


def test_the_scenario_of_this_file_is_wired_whole(base: Path) -> None:
    wiring = engine.wire(scenario.loads(HEAD + FAULTS, base=base), "fedavg", {})
    assert len(wiring.plan.streams) == 3 + 3 + 2         # one a client of the last rule that matches it, and the groups
    assert wiring.setups[0].rounds == {2: [(1, 4), (6, 6), (10, FAR)], 3: [(2, FAR)]}
    assert wiring.setups[0].slowdowns == {2: [[7 * S, 4, 1], [67 * S, 1, 1]]}
    assert {type(f).__name__ for f in wiring.plan.faults} == {"LinkChange", "NodeCrash", "NodeLeave"}


ONE = "line 9  faults[0]"


@pytest.mark.parametrize(("fault", "expected"), [
    ("{at: 1 s}", f"{ONE}  missing  expected one of link, node, partition, churn, availability, group"),
    ("{at: 1 s, link: 'a->b'}", f"{ONE}  missing  expected one of down, up, set"),
    ("{link: 'a->b', down: true}", f"{ONE}.at  missing  is needed by a link that goes down"),
    ("{at: 1 s, link: 'a->b', up: true, for: 1 s}", f'{ONE}.for  "1 s"  is not used by a link that comes up'),
    ("{at: 1 s, link: 'a->b', down: true, inflight: hold}",
     f'{ONE}.inflight  "hold"  unknown word for what is in flight; there are: drop, pause, deliver'),
    ("{at: 1 s, link: 'a->b', set: {}}", f"{ONE}.set  missing  expected at least one of latency, bandwidth, outage"),
    ("{at: 1 s, link: 'a->b', set: {bandwidth: 20}}",
     f"{ONE}.set.bandwidth  20  expected a bandwidth such as 20 Mbit/s or 2 MB/s: the unit is missing"),
    ("{at: 1 s, node: a, slow: 0}", f"{ONE}.slow  0  expected how many times slower, a number in [0.001, 1000000]"),
    ("{at: 1 s, node: a, leave: true, wipe: true}", f"{ONE}.wipe  true  is not used by a node that leaves"),
    ("{node: a, drop: true}", f"{ONE}.stage  missing  is needed by a node that drops out: the first message that it "
                              "does not send, such as Update; `emul schemes NAME` lists them"),
    ("{at: 1 s, node: a, stage: Update, drop: true}", f'{ONE}.at  "1 s"  is not used by a node that drops out'),
    ("{at: 1 s, partition: [[a]]}", f'{ONE}.partition  [["a"]]  expected two lists of names or more, such as '
                                    "[[server, client1], [client2]]"),
    ("{churn: {match: a, up: {weibul: 3}, down: 1 s}}",
     f'{ONE}.churn.up.weibul  3  unknown key; did you mean "weibull"?'),
    ("{churn: {match: a, up: {}, down: 1 s}}",
     f"{ONE}.churn.up  missing  expected one of exponential, weibull, lognormal"),
    ("{churn: {match: a, up: 1, down: 0}}",
     f"{ONE}.churn.up  1  expected a duration such as 20 ms or 1 h: the unit is missing\n"
     f"{ONE}.churn.down  0  expected more than 0"),
    ("{churn: {match: a, up: {weibull: {shape: 0, scale: 1 s}}, down: 1 s}, at: 1 s}",
     f"{ONE}.churn.up.weibull.shape  0  expected a number in [0.05, 100]"),
    ("{availability: {match: a}}", f"{ONE}.availability  missing  expected one of file, diurnal, rounds, from_round"),
    ("{availability: {match: a, rounds: 2..4, from_round: 3}}",
     f"{ONE}.availability  rounds, from_round  expected one of file, diurnal, rounds, from_round"),
    ("{availability: {rounds: 2..4, kind: crash, period: 1 d}}",
     f'{ONE}.availability.period  "1 d"  is used only with a file\n'
     f"{ONE}.availability.kind  crash  is not used with rounds: the node takes no part in the others\n"
     f"{ONE}.availability.match  missing  is needed by rounds: the nodes it is about"),
    ("{availability: {match: a, from_round: 0}}",
     f"{ONE}.availability.from_round  0  expected a whole number, 1 or more (below 2^63)"),
    ("{availability: {match: a, rounds: [4.., 6..9]}}",
     f'{ONE}.availability.rounds  ["4..", "6..9"]  expected rounds in ascending order that do not overlap, such as '
     "[1..5, 10..20]"),
    ("{availability: {match: a, rounds: ..}}",
     f'{ONE}.availability.rounds  ".."  expected rounds such as 3..9 or 10..'),
    ("{node: a, stage: Update, drop: 0.2}",
     f"{ONE}.drop  0.2  expected true, or the probability in a round, such as {{p: 0.2, per: round}}"),
    ("{node: a, stage: Update, drop: {p: 0, per: run}}",
     f"{ONE}.drop.p  0  expected a fraction in (0, 1]\n"
     f'{ONE}.drop.per  "run"  expected "round"'),
    ("{availability: {diurnal: {mean: 0.5}, period: 1 d}}",
     f'{ONE}.availability.period  "1 d"  is used only with a file\n'
     f"{ONE}.availability.match  missing  is needed by diurnal: the nodes it is about"),
    ("{availability: {match: a, diurnal: {mean: 0.5, amplitude: 0.6}}}",
     f"{ONE}.availability.diurnal.amplitude  0.6  expected a share in [0, 0.5]"),
    ("{availability: {match: a, diurnal: {mean: 0.3, amplitude: 0.4}}}",
     f"{ONE}.availability.diurnal.amplitude  0.4  expected a share that stays in [0, 1] (below 0.999 at its least, "
     "unless it is 1), not -0.1..0.7"),
    ("{group: {every: 1 h, down: 1 s}}", f"{ONE}.group  missing  expected one of match, nodes"),
    ("{group: {match: a, every: 1 h, down: 1 s, p: 0}}", f"{ONE}.group.p  0  expected a probability in [0.001, 1]")])
def test_each_mistake_is_told_in_its_place(base: Path, fault: str, expected: str) -> None:
    assert table(f"faults: [{fault}]\n", base) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("faults: [{at: 1 s, node: 'x*', crash: true}]",
     'faults[0].node  "x*"  matches no node; there are: server, client1, client2'),
    ("faults: [{at: 1 s, link: 'client*->sever', down: true}]",
     'faults[0].link  "sever"  unknown node; did you mean "server"?'),
    ("faults: [{at: 1 s, partition: [[server], [clint1]]}]",
     'faults[0].partition[1][0]  "clint1"  unknown node; did you mean "client1"?'),
    ("faults: [{churn: {match: clint1, up: 1 s, down: 1 s}}]",
     'faults[0].churn.match  "clint1"  unknown node; did you mean "client1"?'),
    ("faults: [{group: {nodes: [client1, x], every: 1 s, down: 1 s}}]",
     'faults[0].group.nodes[1]  "x"  unknown node'),
    ("faults: [{at: 0, node: client1, slow: 2}, {availability: {file: none.csv}}]", "faults[1].availability.file"),
    ("links: [{match: '*', bandwidth: {trace: none.csv}}]", "links[0].bandwidth.trace"),
    ("links: [{match: '*', bandwidth: {trace: lte.csv}}]", 'expected the name of a trace in the file: "bus"'),
    ("links: [{match: '*', bandwidth: {trace: lte.up, loop: false}}]", "links[0].bandwidth.loop  is not used by a"),
    ("links: [{match: '*', bandwidth: {trace: lte.x}}]", "links[0].bandwidth.format  missing  expected one of csv, ")])
def test_what_is_not_there_is_told_where_it_is_named(base: Path, text: str, expected: str) -> None:
    assert expected in table(text + "\n", base, check=True)


# --- fuzzing --------------------------------------------------------------------------------------------------------

TREE: Any = read(HEAD + FAULTS).tree
SCALARS = st.sampled_from([None, True, False, 0, 1, -1, 0.5, 10**30, float("nan"), "", "1 s", "0 s", "client*", "a->b",
                           "*->*", "infinite", "none", "pause", "leave", "crash", "lte.up", "avail.csv", "9e99 d",
                           "\0"])
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(
    ["match", "up", "down", "exponential", "weibull", "shape", "scale", "file", "diurnal", "mean", "trace", "p", "set",
     "latency", "bandwidth", "outage", "nodes", "every"]), v, max_size=3), max_leaves=6)


def places(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


PLACES = [path for path in places(TREE) if len(path) > 1 and path[0] in ("faults", "links")]


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow,
                                                                  HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES, st.booleans()), min_size=1, max_size=3))
def test_with_other_values_where_they_may_stand_it_is_a_scenario_or_a_scenario_error(base: Path, changes: Any) -> None:
    tree = copy.deepcopy(TREE)
    for path, value, drop in changes:
        here = tree
        for step in path[:-1]:
            here = here.get(step) if isinstance(here, dict) else (
                here[step] if isinstance(here, list) and step in range(len(here)) else None)
        if isinstance(here, dict) and path[-1] in here:
            here.pop(path[-1]) if drop else here.update({path[-1]: value})
        elif isinstance(here, list) and path[-1] in range(len(here)):
            here[path[-1]] = value
    out = io.StringIO()
    YAML(typ="safe", pure=True).dump(tree, out)
    try:
        s = scenario.loads(out.getvalue(), "fuzz", base=base)
        again = scenario.loads(s.resolved())
    except ScenarioError as caught:
        error = caught
    else:
        assert again == s
        assert again.resolved() == s.resolved()
        return
    assert len(str(error).splitlines()) == len(error.problems) + 1
