"""`topology` in a scenario file: every key, back to YAML, errors in their places, and nothing else whatever it says."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from emul import scenario
from emul.base.errors import ScenarioError
from emul.network import Access, Capacity, Distance
from emul.scenario.topology import TopologySection

ROOT = Path(__file__).resolve().parents[2]
GEANT = ROOT / "topologies" / "Geant2012.graphml"
HEAD = """emul: 1
name: places
seed: 7
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
topology:
"""
FULL = f"""  file: {GEANT}
  latency: {{per_km: 6 us, stretch: 1.5, least: 1 ms}}
  capacity: {{default: 1 Gbit/s, by: LinkSpeedRaw, unit: 1 bit/s}}
  dialect: mininet
  roles:
    server: {{rule: highest_betweenness}}
    client: {{rule: all, count: 100, access: {{latency: 5 ms, bandwidth: 20 Mbit/s}}}}
"""


def problems(text: str) -> list[tuple[int | None, str, str, str]]:
    with pytest.raises(ScenarioError) as caught:
        scenario.loads(HEAD + text)
    return [(p.line, p.place, p.found, p.expected) for p in caught.value.problems]


@pytest.mark.parametrize("text", [
    FULL, FULL.replace("{per_km: 6 us, stretch: 1.5, least: 1 ms}", "distance"),
    FULL.replace("{default: 1 Gbit/s, by: LinkSpeedRaw, unit: 1 bit/s}", "infinite"),
    "  {generator: ring, peers: 5}\n", "  {generator: ring, clients: 5, servers: 2, extent: 200 km}\n",
    "  {generator: tree, branching: 2, height: 2, roles: {server: [n1], client: {rule: leaves}}}\n",
    "  {generator: grid, rows: 2, columns: 3, roles: {server: [n1], client: {rule: all, access: {}}}}\n",
    "  {generator: random_geometric, radius: 0.7, clients: 5, latency: distance, capacity: 1 Gbit/s}\n",
    "  {generator: watts_strogatz, neighbours: 2, rewire: 10%, clients: 5}\n",
    "  {generator: barabasi_albert, attach: 1, clients: 5}\n"])
def test_a_topology_is_written_back_as_it_was_meant(text):
    first = scenario.loads(HEAD + text, check="peers" not in text)      # fedavg has no peers
    again = scenario.loads(first.resolved(), check=False)
    assert again == first
    assert again.resolved() == first.resolved()


def test_keys_become_the_specification():
    spec = scenario.loads(HEAD + FULL).topology
    assert spec.latency == Distance(6000, 1.5, 10**6)
    assert spec.capacity == Capacity(10**9, "LinkSpeedRaw", 1)
    assert spec.roles["client"].access == Access(5 * 10**6, 20 * 10**6)
    assert (spec.roles["client"].count, spec.dialect) == (100, "mininet")


@pytest.mark.parametrize(("old", "new", "line", "place", "found", "expected"), [
    ("per_km: 6 us", "per_km: 6", 10, "topology.latency.per_km", "6", "expected a duration such as 20 ms or 1 h: the "
                                                                   "unit is missing"),
    ("stretch: 1.5", "stretch: 0.5", 10, "topology.latency.stretch", "0.5", "expected a factor of 1 or more"),
    ("default: 1 Gbit/s", "default: 1", 11, "topology.capacity.default", "1",
     "expected a bandwidth such as 20 Mbit/s or 2 MB/s: the unit is missing"),
    ("default: 1 Gbit/s, by: LinkSpeedRaw, unit", "default: 1 Gbit/s, unit", 11, "topology.capacity.unit", '"1 bit/s"',
     "is used only with by"),
    ("default: 1 Gbit/s, by: LinkSpeedRaw, unit: 1 bit/s", "", 11, "topology.capacity", "missing",
     "expected one of default, by"),
    ("by: LinkSpeedRaw", "by: LinkSpeed_Raw", 11, "topology.capacity.by", "'LinkSpeed_Raw'",
     'unknown attribute of edges; did you mean "LinkSpeedRaw"?'),
    ("dialect: mininet", "dialect: mininets", 12, "topology.dialect", '"mininets"',
     'unknown dialect; did you mean "mininet"?'),
    ("count: 100", "count: 0", 15, "topology.roles.client.count", "0", "expected a whole number in 1..1000000"),
    ("latency: 5 ms", "delay: 5 ms", 15, "topology.roles.client.access.delay", '"5 ms"',
     'unknown key; did you mean "latency"?'),
    (", access: {latency: 5 ms, bandwidth: 20 Mbit/s}", "", 15, "topology.roles.client.count", "100",
     'is not used by the rule "all" without access'),
    ("rule: highest_betweenness", "rule: nodes, nodes: [Parris]", 14, "topology.roles.server", "'Parris'",
     "unknown vertex; there are: NL, BE, DK, PL, DE, CZ, LU, FR, CH, IT, UA, MD and 28 more"),
    (f"file: {GEANT}", f"file: {GEANT.parent}/Geant.graphml", 9, "topology.file", "",
     f"{GEANT.parent}/Geant.graphml: No such file or directory: expected a GraphML file"),
])
def test_a_mistake_is_named_in_its_place(old, new, line, place, found, expected):
    assert problems(FULL.replace(old, new)) == [(line, place, found, expected)]


def test_what_is_wrong_in_the_file_is_named_with_its_line(tmp_path):
    file = tmp_path / "net.csv"
    file.write_text("source,target,latency\na,b,20 ms\nb,c,20\n")
    assert problems(f"  file: {file}\n  roles: {{server: [a], client: [b]}}\n") == [
        (9, "topology.file", "net.csv",
         "line 3: edge b<->c, latency: 20: expected a duration such as 20 ms or 1 h: the unit is missing")]


@pytest.mark.parametrize(("text", "place", "expected"), [
    ("{generator: ring}", "topology.generator", "expected one of nodes, clients, peers"),
    ("{generator: star, clients: 3, latency: distance}", "topology.latency", 'is not used by the generator "star"'),
    ("{generator: ring, peers: 3, dialect: core}", "topology.dialect", 'is not used by the generator "ring"'),
    ("{generator: tree, clients: 3}", "topology.branching", 'is needed by the generator "tree"'),
    ("{generator: grid, rows: 3, columns: 2, radius: 1}", "topology.radius", 'is not used by the generator "grid"'),
    ("{generator: ring, clients: 3, extent: 4}", "topology.extent", "expected a length above 0, such as 1000 km"),
])
def test_keys_of_generators_fit_their_generator(text, place, expected):
    assert (place, expected) in [(p, e) for _, p, _, e in problems(f"  {text}\n")]


def test_emul_warns_of_attributes_and_of_links_without_bandwidth(tmp_path):
    from emul import engine

    file = tmp_path / "net.csv"
    file.write_text("source,target,latency,delya\na,b,20 ms,3\n")
    plan = scenario.loads(HEAD + f"  file: {file}\n  roles: {{server: [a], client: [b]}}\n")
    wiring = engine.wire(plan, *plan.schemes[0])
    assert [w.replace(str(file), "net.csv") for w in wiring.warnings] == [
        "net.csv: 1 edges, such as a<->b, have no bandwidth and count as infinitely fast: give topology.capacity, or a "
        "rule with a bandwidth (infinite says that it is meant)",
        'net.csv: nothing uses the attribute "delya" of 1 edges']


# --- fuzzing ----------------------------------------------------------------------------------------------------------

SMALL = ROOT / "topologies" / "tree-40.json"
SCALARS = (st.none() | st.booleans() | st.integers(-2, 60) | st.floats() | st.text(max_size=6) | st.sampled_from(
    ["ring", "tree", "grid", "random_geometric", "watts_strogatz", "barabasi_albert", "star", "distance", "1 Gbit/s",
     "infinite", "5 us", "100 km", "leaves", "all", "random", "nodes", "attribute", "n1", "core", "kollaps", str(SMALL),
     str(ROOT), "dist"]))
KEYS = st.sampled_from([*TopologySection.model_fields, "rule", "count", "access", "default", "by", "unit", "per_km",
                        "stretch", "least", "bandwidth", "value", "attribute"])
VALUES = st.recursive(SCALARS, lambda v: st.lists(v, max_size=2) | st.dictionaries(KEYS, v, max_size=4), max_leaves=6)
ROLES = st.dictionaries(st.sampled_from(["server", "client", "peer", "x->y", ""]), st.dictionaries(
    st.sampled_from(["rule", "nodes", "count", "access", "attribute", "value"]), VALUES, max_size=4), max_size=3)


def attempt(text: str) -> scenario.Scenario | None:
    try:
        return scenario.loads(text, "fuzz")
    except ScenarioError as caught:
        error = caught
    assert len(str(error).splitlines()) == len(error.problems) + 1      # one line each
    return None


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=6), ROLES, st.sampled_from([
    {}, {"file": str(SMALL)}, {"generator": "ring"}, {"generator": "grid", "rows": 2, "columns": 2}]))
def test_whatever_a_topology_says_the_answer_is_a_scenario_or_a_scenario_error(tree, roles, base):
    out = io.StringIO()
    try:
        YAML(typ="safe", pure=True).dump({**tree, "roles": roles, **base}, out)
    except Exception:           # what the dumper cannot write in a way that anybody could read
        return
    text = HEAD + "".join(f"  {line}\n" for line in out.getvalue().splitlines())
    first = attempt(text)
    if first is None:
        return
    again = scenario.loads(first.resolved())
    assert again == first
    assert again.resolved() == first.resolved()


PARTS = "source,target,latency_ms,bw\na,b,1,9\nc,d,1,9\nb,e,1,9\n"
ONE_WAY = ('{"directed": true, "nodes": [{"id": "a"}, {"id": "b"}], "links": [{"source": "a", "target": "b", '
           '"latency_ms": 5, "bw": 9}]}')
SPARSE = ",a,b,c\na,,10,\nb,,,5\nc,,,\n"


@pytest.mark.parametrize(("file", "text", "topology", "scheme", "said"), [
    ("n.csv", PARTS, "file: n.csv, roles: {server: [a], client: [b, c]}", "fedavg",
     "server a cannot reach client c: no links lead from one part to the other, of 2 parts: "
     "a, b, e (1 server, 1 client); c, d (1 client)"),
    ("n.csv", PARTS, "file: n.csv, roles: {peer: {rule: all}}", "ddp", "peer a cannot reach peer c: no links lead"),
    ("n.json", ONE_WAY, "file: n.json, roles: {server: [a], client: [b]}", "fedavg",
     "client b cannot reach server a: links lead only the other way"),
    ("n.csv", PARTS, "file: n.csv, forward: false, roles: {server: [a], client: [b, e]}", "fedavg",
     "server a cannot reach client e: there is no link between the two, and no vertex forwards (topology.forward: "),
    ("n.csv", SPARSE, "matrix: n.csv, capacity: 1 Gbit/s, roles: {server: [a], client: [b, c]}", "fedavg",
     "server a cannot reach client c: there is no link between the two")])
def test_nodes_that_cannot_reach_each_other_are_told_with_file_and_parts(tmp_path, monkeypatch, file, text, topology,
                                                                         scheme, said):
    (tmp_path / file).write_text(text)
    plan = HEAD.replace("fedavg", scheme).removesuffix("topology:\n") + f"topology: {{{topology}}}\n"
    with pytest.raises(ScenarioError) as caught:
        scenario.loads(plan, base=tmp_path)
    found = [(p.place, p.found, p.expected) for p in caught.value.problems]
    assert [one[:2] for one in found] == [("topology.matrix" if "matrix" in topology else "topology.file", file)]
    assert found[0][2].startswith(said)


def test_where_nobody_forwards_a_round_tells_who_talks_to_whom(tmp_path):
    from emul.api.calls import checked

    (tmp_path / "n.csv").write_text("source,target,latency_ms,bw\na,b,1,9\nb,c,1,9\nc,d,1,9\nd,a,1,9\n")
    head = HEAD.removesuffix("topology:\n") + "topology: {file: n.csv, forward: false, roles: {peer: {rule: all}}}\n"
    for scheme in ("gossip", "ddp"):                # round a ring
        checked(scenario.loads(head.replace("fedavg", scheme), base=tmp_path), "s")
    with pytest.raises(ScenarioError, match=r"n.csv: c cannot be reached from a: .*\(topology.forward: false\)"):
        checked(scenario.loads(head.replace("fedavg", "sparseloco"), base=tmp_path), "s")


def test_a_matrix_is_written_back_and_names_are_also_numbers(tmp_path):
    (tmp_path / "m.csv").write_text(",0,1\n0,,5\n1,5,\n")
    text = HEAD + ("  matrix: {file: m.csv, unit: ms, values: round_trip}\n  rates: m.csv\n  repeated: mean\n"
                   "  forward: true\n  roles: {server: [0], client: {rule: nodes, nodes: [1]}}\n")
    plan = scenario.loads(text, base=tmp_path)
    again = scenario.loads(_text_of(plan.document()), base=tmp_path)
    assert replace(again.topology, line=8) == plan.topology
    assert plan.topology.roles["server"].nodes == ("0",)
    assert again.warnings == plan.warnings


def _text_of(document):
    out = io.StringIO()
    YAML(typ="safe").dump(document, out)
    return out.getvalue()


def test_a_matrix_in_the_place_of_a_file_is_told_where_it_stands(tmp_path):
    (tmp_path / "m.csv").write_text(SPARSE)
    with pytest.raises(ScenarioError, match=r"a matrix stands in topology.matrix, in place of file"):
        scenario.loads(HEAD + "  file: m.csv\n  roles: {peer: {rule: all}}\n", base=tmp_path)
