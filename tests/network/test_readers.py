"""Graph files of every format: what is read, and that everything else is a NetworkError with file and place."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import RoleRule, TopologyError, TopologySpec, build
from emul.network.graph.readers import FORMATS, read_graph
from emul.network.graph.reading import FIRST, LINE, OF_READERS

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "topologies"
FEW = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

GRAPHML = """<?xml version="1.0" encoding="utf-8"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
 <key id="l" for="node" attr.name="label" attr.type="string"/>
 <key id="t" for="edge" attr.name="latency" attr.type="string"><default>7 ms</default></key>
 <key id="n" for="edge" attr.name="lanes" attr.type="int"/>
 <key id="w" for="edge" attr.name="wet" attr.type="boolean"/>
 <graph edgedefault="undirected">
  <node id="a"><data key="l">Rome</data></node>
  <node id="b"/>
  <edge source="a" target="b" id="e1"><data key="t">3 ms</data><data key="n"> 4 </data></edge>
  <edge source="b" target="a"><data key="w">true</data></edge>
 </graph>
</graphml>
"""
GML = """graph [
  directed 0
  node [ id 0 label "server" host_bandwidth_down "1 Gbit" host_bandwidth_up "1 Gbit" ]
  node [ id 1 label "c1" host_bandwidth_down "20 Mbit" host_bandwidth_up "10 Mbit" ]
  edge [ source 0 target 0 latency "1 ms" packet_loss 0.0 ]
  edge [ source 0 target 1 latency "21 ms" packet_loss 0.01 ]
]
"""
JSON = json.dumps({"directed": True, "multigraph": False, "graph": {"name": "x"},
                   "nodes": [{"id": "a", "pos": [1, 2]}, {"id": 7}],
                   "edges": [{"source": "a", "target": 7, "latency": "3 ms"}]})
EDGES = """# a comment
a b latency="20 ms" bandwidth=1Gbit/s

b c {'latency': '3 ms', 'weight': 1}
c "d e"  # another
"""
CSV = "source, target, latency, delay_us\nRome,Oslo,20 ms,\nOslo,\"Nice, F\",,5\n"


def written(tmp_path: Path, name: str, text: str | bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def edges(graph: nx.Graph) -> list[tuple[object, object, dict[str, object]]]:
    return [(u, v, {k: x for k, x in data.items() if k not in OF_READERS}) for u, v, data in graph.edges(data=True)]


def refusal(path: Path) -> list[str]:
    with pytest.raises(NetworkError) as caught:
        read_graph(path)
    lines = [" ".join(line.split()) for line in str(caught.value).splitlines()]
    assert lines[0].startswith(f"{path}: ")
    return lines


# --- what is read -----------------------------------------------------------------------------------------------------

def test_graphml_gives_typed_attributes_defaults_parallel_edges_and_lines(tmp_path):
    graph = read_graph(written(tmp_path, "n.graphml", GRAPHML))
    assert dict(graph.nodes(data=True)) == {"a": {"label": "Rome"}, "b": {}}
    assert edges(graph) == [("a", "b", {"id": "e1", "latency": "3 ms", "lanes": 4}),
                            ("a", "b", {"wet": True, "latency": "7 ms"})]
    assert [data[LINE] for *_, data in graph.edges(data=True)] == [10, 11]
    assert not graph.is_directed()


@pytest.mark.parametrize("file", sorted([*ROOT.glob("topologies/*.graphml"), *SHARED.glob("*/*.graphml")]),
                         ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_graphml_is_read_as_networkx_reads_it(file):
    ours, theirs = read_graph(file), nx.read_graphml(file)
    assert list(ours.nodes(data=True)) == list(theirs.nodes(data=True))
    assert ours.is_directed() == theirs.is_directed()

    def counted(graph):
        return Counter((frozenset((u, v)), tuple(sorted(data.items()))) for u, v, data in edges(graph))

    assert counted(ours) == counted(theirs)


def test_the_labels_of_yed_are_names(tmp_path):
    text = GRAPHML.replace('<node id="b"/>', '<node id="b"><data key="g"><y:ShapeNode xmlns:y="yy"><y:NodeLabel> Oslo '
                           '</y:NodeLabel></y:ShapeNode></data></node>').replace(
        '<key id="l"', '<key id="g" for="node" yfiles.type="nodegraphics"/><key id="l"')
    assert read_graph(written(tmp_path, "n.graphml", text)).nodes["b"] == {"label": "Oslo"}


def test_gml_of_shadow_becomes_a_network(tmp_path):
    spec = TopologySpec(file=written(tmp_path, "n.gml", GML), roles={"client": RoleRule("all")})
    network = build(spec, [], 7)
    assert network.names == ["server", "c1"]
    up, down = network.parameters(1, 0), network.parameters(0, 1)
    assert (up.latency_ns, up.bandwidth_bps, down.bandwidth_bps) == (21_000_000, 10_000_000, 20_000_000)
    assert up.outage is not None
    assert (up.outage.p, up.outage.per) == (0.01, "packet")


@pytest.mark.parametrize("kind", ["integer", "Integer", "long", "real", "short", "int32", "Java", "bool"])
def test_types_of_other_writers_of_graphml_are_read(tmp_path, kind):
    text = GRAPHML.replace('attr.type="int"', f'attr.type="{kind}"').replace(" 4 ", "1")
    graph = read_graph(written(tmp_path, "n.graphml", text))
    assert next(data for *_, data in graph.edges(data=True))["lanes"] == 1


@pytest.mark.parametrize(("element", "tool", "dialect"), [
    ("<!DOCTYPE platform SYSTEM 'simgrid.dtd'><platform version='4.1'/>", "a platform of SimGrid", "simgrid"),
    ("<platform/>", "a platform of SimGrid", "simgrid"), ("<scenario name='s'/>", "a scenario of CORE", "core"),
    ("<experiment/>", "an experiment of Kollaps", "kollaps")])
def test_the_own_file_of_a_tool_is_named_with_the_way_out(tmp_path, element, tool, dialect):
    said = refusal(written(tmp_path, "n.xml", element))
    assert said[0].endswith("1 error")
    assert tool in said[1]
    assert f"topology: {{file: network.csv, dialect: {dialect}}}" in said[1]


def test_gml_keeps_parallel_edges_whether_or_not_it_says_multigraph(tmp_path):
    body = "edge [ source 0 target 1 LinkLabel \"a\" ] edge [ source 1 target 0 ]\nedge [ source 0 target 1 ] ]"
    for flag in ("", "multigraph 1 "):
        graph = read_graph(written(tmp_path, "n.gml", f"graph [ {flag}node [ id 0 ] node [ id 1 ]\n{body}"))
        assert [(data[FIRST], data[LINE]) for *_, data in graph.edges(data=True)] == [(0, 2), (1, 2), (0, 3)]
        assert graph.graph["multigraph"] == bool(flag)


@pytest.mark.parametrize("file", sorted(SHARED.glob("*/*.gml")), ids=lambda path: path.stem)
def test_gml_is_read_as_networkx_reads_it(file):
    ours, theirs = read_graph(file), nx.parse_gml(file.read_text(), label="id")
    assert list(ours.nodes(data=True)) == list(theirs.nodes(data=True))
    assert sorted(map(str, edges(ours))) == sorted(map(str, edges(theirs)))


def test_gml_has_texts_numbers_lists_and_entities_as_networkx_writes_them(tmp_path):
    graph = nx.Graph()
    graph.add_node("a&b", x=[1, 2.5], graphics={"w": -1e-3, "h": "[ ]"}, note="é \"quoted\"", zero=0)
    graph.add_edge("a&b", 7, latency="20 ms")
    nx.write_gml(graph, tmp_path / "n.gml")
    read = read_graph(tmp_path / "n.gml")
    assert dict(read.nodes(data=True)) == {0: {"label": "a&b", **graph.nodes["a&b"]}, 1: {"label": 7}} or (
        read.nodes[1]["label"] == "7")
    assert edges(read) == [(0, 1, {"latency": "20 ms"})]


@pytest.mark.parametrize("text", [
    '{"nodes": [{"name": "hub"}, {"name": "left"}], "links": [{"source": 0, "target": 1, "latency": "5 ms"}]}',
    '{"nodes": [{"id": "hub"}, {"id": "left"}], "links": [{"source": 0, "target": 1, "latency": "5 ms"}]}',
    '{"nodes": [{"id": 0, "label": "hub"}, {"id": 1, "label": "left"}], "links": '
    '[{"source": "0", "target": "1", "latency": "5 ms"}]}',
    '{"nodes": [{"id": 0.0, "label": "hub"}, {"id": 1.0, "label": "left"}], "links": '
    '[{"source": 0.0, "target": 1, "latency": "5 ms"}]}',
    '{"nodes": [{"id": [0, 0], "label": "hub"}, {"id": [0, 1], "label": "left"}], "edges": '
    '[{"source": [0, 0], "target": [0, 1], "latency": "5 ms"}]}',
    '{"nodes": [{"id": 1, "label": "hub"}, {"id": 2, "label": "left"}], "edges": '
    '[{"from": 1, "to": 2, "latency": "5 ms"}]}',
    '{"elements": {"nodes": [{"data": {"id": "hub"}}, {"data": {"id": "left"}}], "edges": '
    '[{"data": {"source": "hub", "target": "left", "latency": "5 ms"}}]}}',
    '{"elements": [{"data": {"id": "hub"}}, {"data": {"id": "left"}}, '
    '{"data": {"source": "hub", "target": "left", "latency": "5 ms"}}]}'])
def test_json_of_other_writers_is_read(tmp_path, text):
    network = build(TopologySpec(file=written(tmp_path, "n.json", text), roles={"client": RoleRule("all")}), [], 7)
    assert network.names == ["hub", "left"]
    assert network.parameters(0, 1).latency_ns == network.parameters(1, 0).latency_ns == 5_000_000


def test_a_first_line_of_an_edge_list_may_count_the_vertices(tmp_path):
    assert len(read_graph(written(tmp_path, "n.edges", "3\n0 1\n1 2\n"))) == 3
    assert refusal(written(tmp_path, "n.edges", "4\n0 1\n1 2\n"))[1:] == [
        "4 expected the number of vertices, 3, or no such line"]
    assert "write latency_ms=5.0" in refusal(written(tmp_path, "n.edges", "a b 5.0\n"))[1]


@pytest.mark.parametrize("key", ["links", "edges"])
def test_node_link_json_has_its_edges_under_either_name(tmp_path, key):
    graph = read_graph(written(tmp_path, "n.json", JSON.replace('"edges"', f'"{key}"')))
    assert graph.is_directed()
    assert dict(graph.nodes(data=True)) == {"a": {"pos": [1, 2]}, 7: {}}
    assert edges(graph) == [("a", 7, {"latency": "3 ms"})]


@pytest.mark.parametrize("key", ["links", "edges"])
def test_json_and_edge_lists_that_networkx_writes_are_read_back(tmp_path, key):
    graph = nx.gnm_random_graph(12, 20, seed=3)
    nx.set_edge_attributes(graph, {edge: f"{i} ms" for i, edge in enumerate(graph.edges, 1)}, "latency")
    read = read_graph(written(tmp_path, "n.json", json.dumps(nx.node_link_data(graph, edges=key))))
    assert edges(read) == edges(graph)
    nx.write_edgelist(graph, tmp_path / "n.edgelist")
    listed = {frozenset((int(u), int(v))): data for u, v, data in edges(read_graph(tmp_path / "n.edgelist"))}
    assert listed == {frozenset((u, v)): data for u, v, data in graph.edges(data=True)}


def test_edge_lists_have_attributes_and_comments(tmp_path):
    graph = read_graph(written(tmp_path, "n.edges", EDGES))
    assert edges(graph) == [("a", "b", {"latency": "20 ms", "bandwidth": "1Gbit/s"}),
                            ("b", "c", {"latency": "3 ms", "weight": 1}), ("c", "d e", {})]
    assert [data[LINE] for *_, data in graph.edges(data=True)] == [2, 4, 5]


def test_a_csv_table_has_cells_with_commas_numbers_and_none(tmp_path):
    graph = read_graph(written(tmp_path, "n.csv", "\ufeff" + CSV))
    assert edges(graph) == [("Rome", "Oslo", {"latency": "20 ms"}), ("Oslo", "Nice, F", {"delay_us": 5})]


def test_a_wrong_attribute_is_named_with_its_line(tmp_path):
    file = written(tmp_path, "n.csv", CSV.replace("20 ms", "20"))
    with pytest.raises(TopologyError) as caught:
        build(TopologySpec(file=file, roles={"client": RoleRule("all")}), [], 7)
    assert caught.value.file == str(file)
    assert [(p.line, p.place, p.found) for p in caught.value.problems] == [(2, "edge Rome<->Oslo, latency", "20")]


# --- what is refused --------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("old", "new", "line", "said"), [
    ('target="b" id', 'target="bb" id', 10, "edge a->bb 'bb' unknown id of a node; did you mean \"b\"?"),
    ('<node id="b"/>', '<node id="a"/>', 9, "node a is there twice expected every id once"),
    ("<node id=\"b\"/>", "<node/>", 9, "node no id expected an id"),
    ('source="b" target="a"', 'source="b"', 11, "edge b->None no target expected source and target"),
    (" 4 ", "four", 10, "edge a->b, lanes 'four' expected the type int, as declared"),
    (">true<", ">perhaps<", 11, "edge b->a, wet 'perhaps' expected the type boolean, as declared"),
    ('data key="n"', 'data key="m"', 10, "edge a->b, data 'm' unknown key; there are: l, t, n, w"),
    ('<edge source="b"', '<edge directed="true" source="b"', 11,
     'edge b->a directed="true" expected all edges undirected, as edgedefault says'),
    ('<node id="b"/>', '<node id="b"><graph/></node>', 9,
     "graph expected one graph, without others beside it or in its nodes"),
    ('<node id="b"/>', '<node id="b"/><hyperedge id="h"/>', 9,
     "hyperedge h is not supported: expected edges of two ends"),
    (' <graph edge', '<!DOCTYPE x><graph edge', 7,
     "is no XML: not well-formed (invalid token): expected a GraphML file"),
    ("</graphml>", "", 14, "is no XML: no element found: expected a GraphML file"),
    ('encoding="utf-8"', 'encoding="klingon"', 1,
     "is no readable XML: unknown encoding: klingon: expected a GraphML file"),
])
def test_wrong_graphml_is_named_with_its_line(tmp_path, old, new, line, said):
    lines = refusal(written(tmp_path, "n.graphml", GRAPHML.replace(old, new, 1)))
    assert f"line {line} {said}" in lines[1:]


def test_entities_are_refused_before_they_multiply(tmp_path):
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10 if i else "ha"}">' for i in range(12))
    text = GRAPHML.replace("<graphml", f"<!DOCTYPE g [{laughs}]>\n<graphml").replace("Rome", "&l11;")
    assert refusal(written(tmp_path, "n.graphml", text))[1].startswith("line 2 DOCTYPE is refused")


def test_depth_and_size_have_limits(tmp_path, monkeypatch):
    deep = GRAPHML.replace('<node id="b"/>', "<x>" * 200_000 + "</x>" * 200_000)
    assert refusal(written(tmp_path, "n.graphml", deep))[1] == "line 9 is nested more than 100 deep"
    assert refusal(written(tmp_path, "n.json", "[" * 100_000))[0].endswith(": 1 error")
    assert refusal(written(tmp_path, "n.gml", "graph [ " * 100_000))[0].endswith(": 1 error")
    monkeypatch.setattr("emul.network.graph.readers.MOST_BYTES", 1 << 20)
    big = refusal(written(tmp_path, "big.csv", b"x" * (1 << 21)))
    assert big[0].endswith("has more than 1 MiB: expected a CSV file")


@pytest.mark.parametrize(("name", "text", "said"), [
    ("n.gml", "graph [ node [ id 0 ] edge [ source 0 target 1 ] ]", "edge 0->1 1 unknown id of a node; there are: 0"),
    ("n.gml", "graph [\n node [ id ~ ]\n]", "line 2 '~ ]' is neither key nor value: expected a GML file"),
    ("n.gml", "", "line 1 no graph expected one graph [ ... ]"),
    ("n.gml", "graph [ node [ id 0 ] node [ id 0 ] ]", "node 0 is there twice expected every id once"),
    ("n.gml", "graph [ directed 2 ]", "directed 2 expected 0 or 1"),
    ("n.gml", "graph [\n node [ id 0 ]", "line 2 ends before the last ]"),
    ("n.gml", "graph [ node [ label ] ]", "label has no value"),
    ("n.gml", b"\xff\xfe", "is no UTF-8"),
    ("n.json", "{]", "line 1 is no JSON"),
    ("n.json", "[]", 'list expected a mapping with the keys "nodes"'),
    ("n.json", '{"nodes": []}', 'neither expected one of "links" and "edges"'),
    ("n.json", '{"nodes": [], "links": [], "edges": []}', 'links and edges expected one of "links" and "edges"'),
    ("n.json", '{"nodes": {}, "links": []}', "nodes {} expected a list of mappings"),
    ("n.json", '{"nodes": [{"id": true}, {}], "links": []}', "nodes[0].id true expected text or a whole number"),
    ("n.json", '{"nodes": [{"id": 1}, {"id": 1}], "links": []}', "nodes[1].id 1 is there twice"),
    ("n.json", '{"nodes": [{"id": 1, "id": 2}], "links": []}', "the key 'id' is there twice in one mapping"),
    ("n.json", '{"nodes": [{"id": 1}], "links": [{"source": 1, "target": 2}]}',
     "links[0].target 2 unknown id of a node; there are: 1"),
    ("n.json", '{"nodes": [{"id": 1, "x": NaN}], "links": []}', "NaN is no number of JSON"),
    ("n.json", '{"nodes": [], "links": [], "directed": "no"}', "directed no expected true or false"),
    ("n.txt", "a b\na\n", "line 2 'a' is no edge: expected two vertices"),
    ("n.txt", "a b latency\n", "line 1 'a b latency' is no edge"),
    ("n.txt", "a b {'x': print(1)}\n", "line 1 "),
    ("n.txt", "a b {1: 2}\n", "is no mapping of names"),
    ("n.txt", 'a b latency="20 ms\n', "No closing quotation"),
    ("n.csv", "x,y\n", "line 1 x,y expected a first line such as source,target,latency"),
    ("n.csv", "source,target,source\n", "expected a first line"),
    ("n.csv", "source,target\na,b,c\n", "line 2 3 values expected 2, as the header has"),
    ("n.csv", "source,target\na,\n", "line 2 a, expected names of both ends"),
    ("n.csv", 'source,target\n"a"b,c\n', "expected values with a comma, ; or tab between them"),
])
def test_wrong_files_are_named_with_place_and_expectation(tmp_path, name, text, said):
    lines = refusal(written(tmp_path, name, text))
    assert lines[0].endswith((": 1 error", ": 2 errors"))
    assert any(said in line for line in lines[1:])


@pytest.mark.parametrize(("name", "way"), [
    ("n.gexf", "networkx.write_graphml(networkx.read_gexf('FILE'), 'NEW.graphml')"), ("n.net", "read_pajek"),
    ("n.pickle", "a pickle can run anything"), ("n.yaml", "network.graph: save that as .gml"),
    ("n.ned", "dialect: omnet")])
def test_what_is_not_read_says_how_it_becomes_what_is(tmp_path, name, way):
    assert way in refusal(tmp_path / name)[0]


def test_an_unknown_ending_and_a_missing_file_are_refused(tmp_path):
    assert refusal(tmp_path / "net.odt") == [
        f'{tmp_path}/net.odt: ".odt": expected one of {", ".join(FORMATS)} at the end of the name']
    assert refusal(tmp_path / "no.json") == [
        f"{tmp_path}/no.json: No such file or directory: expected a node-link JSON file"]
    assert refusal(tmp_path) [0].endswith("at the end of the name")
    (tmp_path / "folder.gml").mkdir()
    assert refusal(tmp_path / "folder.gml")[0].endswith("Is a directory: expected a GML file")


# --- fuzzing: nothing but a NetworkError comes out --------------------------------------------------------------------

SEEDS = {".graphml": GRAPHML, ".gml": GML, ".json": JSON, ".edgelist": EDGES, ".csv": CSV}
SCRAPS = st.sampled_from([
    "<edge source='a' target='zz'/>", "<graph>", "</node>", "&x;", "]]>", "<data key='n'>1</data>", "<node id='c'/>",
    "NaN", "1e999", '"', "[", "]", "{", "}", ",", "\n", "\0", "\ufeff", "é", "node [ id 0 ]", "id", "-1", "9" * 40,
    "1_0", "a b x=\n", "a b {'x': [1]}", "null", "true", "source", "->", "latency", "bandwidth", "20", "5 ms",
    "Latitude", "<default>9</default>",
    "<key id='d' for='all' attr.name='dist' attr.type='float'><default>nan</default></key>"])


def outcome(path: Path) -> None:
    """Read it and build a network of it, with everything that looks at attributes."""
    from emul.network import Capacity, Distance

    spec = TopologySpec(file=path, roles={"client": RoleRule("leaves", count=2), "server": RoleRule("random", count=1)},
                        latency=Distance(), capacity=Capacity(default_bps=10**9, by="lanes", unit_bps=10**6))
    for one in (spec, TopologySpec(file=path)):
        said = str(path)
        try:
            assert isinstance(build(one, [], 7).warnings(), list)
        except NetworkError as error:
            said = str(error)
        assert str(path) in said or "topology" in said


@FEW
@given(st.sampled_from(sorted(SEEDS)),
       st.lists(st.tuples(st.floats(0, 1), st.integers(0, 12), SCRAPS | st.text(max_size=4)), max_size=4))
def test_damaged_files(tmp_path, suffix, changes):
    text = SEEDS[suffix]
    for where, length, inserted in changes:
        at = int(where * len(text))
        text = text[:at] + inserted + text[at + length:]
    outcome(written(tmp_path, f"f{suffix}", text.encode("utf-8", "surrogatepass")))


@FEW
@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=60))
def test_garbage(tmp_path, suffix, raw):
    outcome(written(tmp_path, f"g{suffix}", raw))


VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | SCRAPS,
                      lambda v: st.lists(v, max_size=2) | st.dictionaries(st.text(max_size=3), v, max_size=2),
                      max_leaves=4)
NAMES = st.sampled_from([
    "latency", "delay_us", "bandwidth", "bw", "datarate", "loss", "per", "jitter", "jitter_ms", "dist", "lanes",
    "LinkSpeedRaw", "label", "name", "role", "Latitude", "Longitude", "pos", "bandwidth_up", "host_bandwidth_down",
    "latency_ns", "bandwidth_bps", "outage", "source", "target", "id", "key"])
ENTRY = st.dictionaries(NAMES, VALUES, max_size=5)


@FEW
@given(st.lists(ENTRY, max_size=4), st.lists(ENTRY, max_size=4), st.booleans())
def test_any_attribute_of_any_value(tmp_path, nodes, links, directed):
    for i, node in enumerate(nodes):
        node.setdefault("id", i)
    for i, link in enumerate(links):
        link.setdefault("source", i % max(len(nodes), 1))
        link.setdefault("target", (i + 1) % max(len(nodes), 1))
    tree = {"directed": directed, "nodes": nodes, "links": links}
    outcome(written(tmp_path, "h.json", json.dumps(tree)))
