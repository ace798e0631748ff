import re
import subprocess
import sys
from pathlib import Path

import pytest

from emul import scenario
from emul.base.errors import ScenarioError
from emul.network import LinkRule, OutageSpec, RoleRule, TopologySpec
from emul.scenario import (
    AttackSpec,
    Behaviour,
    ComputeTime,
    Crash,
    Evaluation,
    LinkDown,
    NamedAttack,
    NodeSpeed,
    Stop,
    WorkerTimeout,
)

HERE = Path(__file__).parent
CANONICAL = (HERE / "canonical.yaml").read_text()
SMALL = """\
emul: 1
name: small
seed: 7
topology: {generator: star, clients: 3}
task:
  data: {set: digits}
  model: digits_cnn
  solver: {sgd: {lr: 0.1, steps: 5}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 2}
"""


def small(**sections: str) -> str:
    """SMALL with top-level keys replaced or added, each as one line at the end."""
    kept = SMALL
    for key in sections:
        kept = re.sub(rf"^{key}:.*\n(?:  .*\n)*", "", kept, flags=re.M)
    return kept + "".join(f"{key}: {text}\n" for key, text in sections.items())


def read(text: str, *sets: str, **more) -> scenario.Scenario:
    return scenario.loads(text, "s.yaml", sets, **{"check": False} | more)


def table(text: str, *sets: str, **more) -> str:
    """The error without its widths: cells separated by two blanks."""
    with pytest.raises(ScenarioError) as caught:
        read(text, *sets, **more)
    return "\n".join(re.sub(" {2,}", "  ", line.strip()) for line in str(caught.value).splitlines()[1:])


def test_every_key_of_the_canonical_file_arrives():
    s = scenario.load(HERE / "canonical.yaml", check=False)
    assert (s.name, s.seed, s.path) == ("quickstart", 7, HERE / "canonical.yaml")
    assert s.topology == TopologySpec(generator="star_mesh", clients=10, line=4)
    assert s.link_rules == [
        LinkRule("*", latency_ns=20_000_000, bandwidth_bps=20_000_000, transport="datagram", line=6),
        LinkRule("client*->server", outage=OutageSpec(0.3, "round"), line=7),
        LinkRule("client*->client*", outage=OutageSpec(0.1, "round"), line=8),
        LinkRule("server->client*", outage="none", line=9)]
    assert s.node_speeds == [NodeSpeed("client3", 0.25)]
    assert s.faults == [LinkDown(30 * 10**9, "client1", "server", 10 * 10**9), Crash(45 * 10**9, "client2", 20 * 10**9),
                        Behaviour("server1", "equivocating_leader", 3, 9)]
    assert s.task == {"data": {"set": "digits"}, "partition": {"dirichlet": 0.2}, "model": "digits_cnn",
                      "solver": {"sgd": {"lr": 0.1, "steps": 5, "batch": 32}}}
    assert s.attacks == [AttackSpec(NamedAttack("label_flip"), fraction=0.2)]
    assert s.compute == ComputeTime("profile", HERE / "quickstart.profile.json")
    assert s.schemes == [("fedavg", {"deadline": "none"}), ("secagg", {"threshold": 4}),
                         ("fair_seccogc", {"s": 7, "lambda": 0.1})]
    assert s.stop == Stop(rounds=30)
    assert (s.evaluation, s.workers, s.warnings) == (Evaluation(1, "global"), WorkerTimeout(30.0), [])


def test_the_optional_keys_arrive_in_the_units_of_the_emulator():
    s = read(small(
        links='[{match: "a<->b", bw: 2 MB/s, overhead: {bytes: 28, mtu: 1472 B}},'
              ' {match: "*", bandwidth: infinite, outage: {model: bernoulli, p: 30%, per: slot, slot: 100 ms}}]',
        stop="{accuracy: 0.95, rounds: 200, virtual_time: 1 h}", evaluation="{every: 5, scope: per_client}",
        workers="{timeout: 2 min}", attacks="[{nodes: [client1, client2], data: label_flip}]",
        faults='[{at: 0, link: "client1<->server", down: true}, {at: 1 s, node: client1, crash: true}]'))
    assert s.link_rules == [
        LinkRule("a<->b", bandwidth_bps=16_000_000, overhead_bytes=28, mtu=1472, line=11),
        LinkRule("*", bandwidth_bps="infinite", outage=OutageSpec(0.3, "slot", 100_000_000), line=11)]
    assert s.stop == Stop(200, 0.95, 3600 * 10**9)
    assert (s.evaluation, s.workers) == (Evaluation(5, "per_client"), WorkerTimeout(120.0))
    assert s.attacks == [AttackSpec(NamedAttack("label_flip"), nodes=("client1", "client2"))]
    assert s.faults == [LinkDown(0, "client1", "server"), LinkDown(0, "server", "client1"), Crash(10**9, "client1")]


def test_a_topology_file_and_a_data_directory_are_looked_for_beside_the_scenario(tmp_path):
    s = read(small(topology="{file: ../nets/g.graphml, roles: {server: {rule: highest_betweenness},"
                            " client: {rule: leaves, count: 10}, relay: [a, b]}}",
                   task="{data: {set: mnist, directory: mnist}, model: m, solver: {sgd: {lr: 1, steps: 1}}}"),
             base=tmp_path / "scenarios")
    assert s.topology == TopologySpec(
        file=tmp_path / "nets" / "g.graphml", line=7,
        roles={"server": RoleRule("highest_betweenness"), "client": RoleRule("leaves", count=10),
               "relay": RoleRule("nodes", nodes=("a", "b"))})
    assert s.task["data"]["directory"] == str(tmp_path / "scenarios" / "mnist")
    assert scenario.loads(s.resolved(), base=Path("/elsewhere"), check=False) == s


@pytest.mark.parametrize("name", ["capacity", "bw", "datarate", "rate"])
def test_the_other_names_of_bandwidth_mean_the_same_and_errors_show_them_as_written(name):
    assert read(small(links=f'[{{match: "*", {name}: 1 Mbit/s}}]')).link_rules[0].bandwidth_bps == 10**6
    assert table(small(links=f'[{{match: "*", {name}: 20}}]')) == (
        f"line 12  links[0].{name}  20  expected a bandwidth such as 20 Mbit/s or 2 MB/s: the unit is missing")
    assert table(small(links=f'[{{match: "*", {name}: 1 Mbit/s, bandwidth: 1 Mbit/s}}]')) == (
        f'line 12  links[0].{name}  "1 Mbit/s"  is another name of "bandwidth": give one of them')


def test_all_problems_come_at_once_in_the_order_of_lines():
    text = (CANONICAL.replace("p: 0.3", "p: 1.4").replace('client3", speed', 'client3", sped')
            .replace("20 Mbit/s", "20 Mb/s").replace("rounds: 3..9", "rounds: 9..3"))
    with pytest.raises(ScenarioError) as caught:
        scenario.loads(text, "scenarios/x.yaml", ["schemes[0]=3", "stop.ronds=3"], check=False)
    assert str(caught.value) == """\
scenarios/x.yaml: 6 errors
  line 6   links[0].bandwidth  "20 Mb/s"  expected a bandwidth such as 20 Mbit/s or 2 MB/s; "Mb/s" is no such unit; \
did you mean Mbit/s or MB/s?
  line 7   links[1].outage.p   1.4        expected a probability in [0, 1]
  line 11  nodes[0].sped       0.25       unknown key; did you mean "speed"?
  line 15  faults[2].rounds    "9..3"     expected rounds such as 3..9 or 10..
           --set schemes[0]    3          expected the name of a scheme or a mapping such as {name: fedavg}
           --set stop.ronds    3          unknown key; did you mean "rounds"?"""


@pytest.mark.parametrize(("sections", "expected"), [
    ({"emul": "2"}, "line 11  emul  2  expected 1, the version of the format that this emul reads"),
    ({"name": "a/b"}, 'line 11  name  "a/b"  expected a name of letters, digits and _ . -'),
    ({"seed": "-1"}, "line 11  seed  -1  expected a whole number, 0 or more (below 2^63)"),
    ({"seed": "true"}, "line 11  seed  true  expected a whole number, 0 or more (below 2^63)"),
    ({"topolgy": "1"}, 'line 12  topolgy  1  unknown key; did you mean "topology"?'),
    ({"topology": "{generator: star}"},
     'line 11  topology.clients  missing  is needed by the generator "star": a whole number, 1 or more'),
    ({"topology": "{generator: sta, clients: 3}"},
     'line 11  topology.generator  "sta"  unknown generator; did you mean "star"?'),
    ({"topology": "{generator: star, clients: 3, file: x}"},
     "line 11  topology  generator, file  expected one of generator, file, matrix, constellation"),
    ({"topology": "{generator: complete, peers: 3, clients: 3}"},
     'line 11  topology.clients  3  is not used by the generator "complete"'),
    ({"topology": "{file: x, roles: {client: {rule: leaves, attribute: r}}}"},
     'line 11  topology.roles.client.attribute  "r"  is not used by the rule "leaves"'),
    ({"topology": "{file: x, roles: {client: {rule: leafs}}}"},
     'line 11  topology.roles.client.rule  "leafs"  unknown rule; did you mean "leaves"?'),
    ({"links": "[{match: a-b}]"},
     'line 12  links[0].match  "a-b"  '
     'expected "src->dst", "a<->b" or "*", each side a name or a pattern like "client*"'),
    ({"links": "[{latency: 20}]"}, "line 12  links[0].match  missing  is required\n"
     "line 12  links[0].latency  20  expected a duration such as 20 ms or 1 h: the unit is missing"),
    ({"links": "[{match: '*', bandwidth: 0}]"}, "line 12  links[0].bandwidth  0  "
     "expected a bandwidth above 0; a link that is down is a fault, one without limit is infinite"),
    ({"links": "[{match: '*', loss: 0.1}]"}, 'line 12  links[0].loss  0.1  unknown key; did you mean "outage"?'),
    ({"links": "[{match: '*', outage: 0.3}]"}, "line 12  links[0].outage  0.3  "
     "expected none or a model such as {model: bernoulli, p: 0.1, per: round}"),
    ({"links": "[{match: '*', outage: {model: bernoulli, p: 0.3, per: roudn}}]"},
     'line 12  links[0].outage.per  "roudn"  unknown unit of outage; did you mean "round"?'),
    ({"links": "[{match: '*', outage: {model: bernoulli, p: 0.3, per: slot}}]"},
     "line 12  links[0].outage.slot  missing  is needed by per: slot, a duration such as 100 ms"),
    ({"links": "[{match: '*', outage: {model: bernoulli, prob: 0.3, p: 1}}]"},
     'line 12  links[0].outage.prob  0.3  unknown key; there are: model, p, r, 1-h, 1-k, '
     'per, slot, span, start, up, down, coherence, snr, rate, bandwidth, spectral_efficiency, file, loop'),
    ({"links": "[{match: '*', transport: relyable}]"}, 'line 12  links[0].transport  "relyable"  expected datagram, '
     'reliable, or a mapping such as {arq: stop_and_wait, rto: 200 ms}; did you mean "reliable"?'),
    ({"links": "[{match: '*', transport: {arq: stop_and_wait, mtu: 1 kB}}]"},
     'line 12  links[0].transport.mtu  "1 kB"  is not used by arq: stop_and_wait'),
    ({"links": "[{match: '*', transport: {arq: selective_repeat, retries: 4095}}]"},
     'line 12  links[0].transport.retries  4095  expected a whole number in 0..4094, or unlimited'),
    ({"links": "[{match: '*', queue: 64}]"},
     'line 12  links[0].queue  64  expected a size such as 64 kB, a number such as 100 packets, or unlimited: the unit '
     'is missing'),
    ({"links": "[{match: '*', switching: cut_trough}]"},
     'line 12  links[0].switching  "cut_trough"  unknown switching; did you mean "cut_through"?'),
    ({"links": "[{match: '*', switching: {packetized: 0 B}}]"},
     'line 12  links[0].switching.packetized  "0 B"  expected more than 0'),
    ({"links": "[{match: '*', overhead: {preset: ethernet_tcp, mtu: 1 kB}}]"},
     'line 12  links[0].overhead.mtu  "1 kB"  is not used with a preset, which has its own'),
    ({"links": "[{match: '*', duplex: half}]"},
     'line 12  links[0].duplex  "half"  unknown key; duplex is gone: two directions that share time are a medium, '
     '`medium: air` with `media: {air: {efficiency: 1}}`'),
    ({"links": "{match: '*'}"}, 'line 12  links  {match: "*"}  expected a list'),
    ({"nodes": "[{match: a, speed: 0}]"}, "line 12  nodes[0].speed  0  expected a positive number"),
    ({"nodes": "[{match: a, speed: .inf}]"}, "line 12  nodes[0].speed  inf  expected a positive number"),
    ({"faults": "[{at: 1 s, link: 'client1', down: true}]"}, 'line 12  faults[0].link  "client1"  '
     'expected "a->b" or "a<->b", each side a name or a pattern such as "client*"'),
    ({"faults": "[{node: a}]"}, "line 12  faults[0]  missing  expected one of crash, leave, slow, behave, drop"),
    ({"faults": "[{node: a, crash: true}]"}, "line 12  faults[0].at  missing  is needed by a crash"),
    ({"faults": "[{at: 1 s, node: a, crash: true, down: true}]"},
     "line 12  faults[0].down  true  is not used by a crash"),
    ({"faults": "[{at: 1 s, node: a, crash: false}]"},
     'line 12  faults[0].crash  false  expected true (a fault ends after its "for")'),
    ({"task": "{data: {set: digits}, modle: x}"}, 'line 8  task.modle  "x"  unknown key; did you mean "model"?\n'
     "line 8  task.model  missing  is required\nline 8  task.solver  missing  is required"),
    ({"attacks": "[{nodes: {fraction: 2}, data: 7}]"},
     "line 12  attacks[0].nodes.fraction  2  expected a fraction in (0, 1]\n"
     "line 12  attacks[0].data  7  expected the name of an attack or a mapping such as {name: scale, factor: 10}"),
    ({"compute": "{mode: profile}"}, "line 11  compute.file  missing  is needed by mode: profile, the name of a file"),
    ({"compute": "{mode: zero, file: x}"}, 'line 11  compute.file  "x"  is not used by mode: zero'),
    ({"schemes": "[]"}, "line 11  schemes  []  expected at least one entry"),
    ({"schemes": "[{deadline: 3 s}]"}, "line 11  schemes[0].name  missing  expected the name of a scheme"),
    ({"stop": "{}"}, "line 11  stop  missing  expected at least one of rounds, accuracy, loss, virtual_time"),
    ({"stop": "{accuracy: 0.9}"},
     "line 11  stop.accuracy  0.9  may never be reached: give rounds or virtual_time, too"),
    ({"stop": "{rounds: 0}"}, "line 11  stop.rounds  0  expected a whole number in 1..1000000000"),
    ({"evaluation": "{scope: globl}"}, 'line 12  evaluation.scope  "globl"  unknown scope; did you mean "global"?'),
    ({"workers": "{timeout: 30}"},
     "line 12  workers.timeout  30  expected a duration such as 20 ms or 1 h: the unit is missing"),
])
def test_each_mistake_is_told_with_line_place_value_and_expectation(sections, expected):
    assert table(small(**sections)) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("", "line 1  null  expected a mapping with the keys emul, name, seed, topology, ..."),
    ("- 1", "line 1  [1]  expected a mapping with the keys emul, name, seed, topology, ..."),
    ("a: [1", "line 1  is no valid YAML: while parsing a flow sequence expected ',' or ']', but got '<stream end>'"),
    (SMALL + "seed: 8", "line 12  seed  duplicate key  was given before, in line 3"),
    ("a: &x [1]\nb: *x", "line 2  *x  aliases are not supported: write the value out"),
    ("a: 1\n<<: {b: 1}", "line 2  <<  merge keys are not supported: write the keys out"),
    ("a: !!python/object:os.system x", 'line 1  a  "x"  expected text, a number, true, false, a list or a mapping'),
    ("a: !x {b: 1}", "line 1  a  !x  tags are not supported"),
    ("[" * 5000, "line 1  is nested more than 40 deep"),
    ("? [1]\n: 2", "line 1  expected text as a key"),
    ("a: \x00", "line 1  is no valid YAML: special characters are not allowed"),
    ("a: 1\n---\nb: 2",
     "line 2  is no valid YAML: expected a single document in the stream but found another document"),
    ("a: 1\nb 2\nc: 3", "line 2  is no valid YAML: while scanning a simple key could not find expected ':'"),
    ("a:\n\tb: 1", r"line 2  is no valid YAML: while scanning for the next token found character '\t' that cannot "
     "start any token: indent with spaces"),
    (SMALL.replace("compute:", "# compute:"),
     "line 1  compute  missing  is required, such as compute: {mode: measured}"),
])
def test_what_is_no_plain_yaml_is_refused(text, expected):
    assert table(text) == expected


def test_an_alias_bomb_is_refused_before_it_is_expanded():
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    for i in range(1, 12):
        text += f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n"
    assert "aliases are not supported" in table(text)


def test_a_file_that_cannot_be_read_is_a_scenario_error(tmp_path):
    with pytest.raises(ScenarioError,
                       match=r"^.*/none\.yaml: 1 error\n +No such file or directory: expected a scenario file$"):
        scenario.load(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(ScenarioError, match=r"is no UTF-8 text: expected a scenario file$"):
        scenario.load(tmp_path / "latin.yaml")


# ---- --set and --seed ----

def test_sets_and_seed_are_applied_before_the_check():
    s = read(CANONICAL, "links[1].outage.p=0.1", "stop.rounds=5", "task.solver.sgd.lr=0.05", "schemes[0].deadline=30 s",
             "links[0].rate=1 Mbit/s", "stop={virtual_time: 1 h}", "evaluation={every: 3}", seed=99)
    assert s.link_rules[1].outage == OutageSpec(0.1, "round")
    assert s.link_rules[0].bandwidth_bps == 10**6
    assert s.task["solver"]["sgd"]["lr"] == 0.05
    assert s.schemes[0] == ("fedavg", {"deadline": "30 s"})
    assert (s.stop, s.evaluation, s.seed) == (Stop(virtual_time_ns=3600 * 10**9), Evaluation(3), 99)


def test_a_set_reaches_a_scheme_that_the_file_gives_by_its_bare_name():
    assert read(SMALL, "schemes[0].fraction=0.5").schemes == [("fedavg", {"fraction": 0.5})]


@pytest.mark.parametrize(("edit", "expected"), [
    ("stop.rounds", '--set  "stop.rounds"  expected path=value such as "links[1].outage.p=0.1"'),
    ("stop..rounds=1", '--set  "stop..rounds=1"  expected path=value such as "links[1].outage.p=0.1"'),
    ("=1", '--set  "=1"  expected path=value such as "links[1].outage.p=0.1"'),
    ("[0]=1", '--set  "[0]=1"  expected path=value such as "links[1].outage.p=0.1"'),
    ("tsk.model=x", '--set tsk.model  "x"  the scenario has no "tsk"; did you mean "task"?'),
    ("task.solver.sdg.lr=1", '--set task.solver.sdg.lr  1  task.solver has no "sdg"; did you mean "sgd"?'),
    ("schemes[4].s=1", "--set schemes[4].s  1  schemes has 1 entries, the first is [0]"),
    ("stop[0]=1", "--set stop[0]  1  stop is no list"),
    ("name.x=1", '--set name.x  1  name is "small": a path cannot go on below it'),
    ("stop.rounds=[1", '--set stop.rounds  "[1"  is no valid YAML: while parsing a flow sequence '
                       "expected ',' or ']', but got '<stream end>'"),
    ("stop.rounds=-2", "--set stop.rounds  -2  expected a whole number in 1..1000000000"),
    ("stop={ronds: 3}", '--set stop.ronds  3  unknown key; did you mean "rounds"?'),
    ("emul=2", "--set emul  2  expected 1, the version of the format that this emul reads"),
])
def test_a_mistake_in_a_set_names_the_option_in_place_of_a_line(edit, expected):
    assert table(SMALL, edit) == expected


def test_a_wrong_seed_names_its_option():
    assert table(SMALL, seed=-1) == "--seed  -1  expected a whole number, 0 or more (below 2^63)"


# ---- what the other layers know ----

def test_names_of_nodes_schemes_parameters_and_task_are_checked_with_the_rest():
    text = small(faults="[{at: 1 s, node: client9, crash: true}]", stop="{rounds: 0}",
                 schemes="[{name: fedavg, dedline: 3 s, id: a}, fedvg]",
                 attacks="[{nodes: [clint1], data: label_flip}]")
    assert table(text, "task.model=digit_cnn", "task.solver.sgd.lr=-1", check=True) == """\
line 10  faults[0].node  "client9"  unknown node; did you mean "client3"?
line 11  stop.rounds  0  expected a whole number in 1..1000000000
line 12  schemes[0].dedline  "3 s"  unknown parameter; did you mean "deadline"?
line 12  schemes[0].id  "a"  unknown parameter; did you mean "label"?
line 12  schemes[1].name  "fedvg"  unknown scheme; did you mean "fedavg"?
line 13  attacks[0].nodes[0]  "clint1"  unknown node; did you mean "client1"?
--set task.model  "digit_cnn"  unknown model; did you mean "digits_cnn"?
--set task.solver.sgd.lr  -1  expected a number > 0"""


def test_a_schemes_own_check_speaks_at_the_parameter_it_names():
    assert table(SMALL, "schemes[0].fraction=1.5", check=True) == (
        "--set schemes[0].fraction  fraction = 1.5  expected a number in (0, 1]")


def test_faulty_behaviour_is_refused_unless_a_scheme_of_the_scenario_has_it():
    text = small(faults="[{node: client1, behave: lazy, rounds: 3..9}]")
    assert table(text, check=True) == ('line 12  faults[0].behave  "lazy"  unknown behaviour: '
                                       "no scheme of this scenario has any")


def test_a_stage_is_a_message_of_a_scheme_of_the_scenario():
    text = small(faults="[{node: client1, stage: Updat, drop: true}]")
    assert table(text, check=True) == (
        'line 12  faults[0].stage  "Updat"  unknown message; did you mean "Update"?')


def test_a_missing_topology_file_is_told_at_the_topology(tmp_path):
    assert table(small(topology="{file: none.graphml}"), check=True, base=tmp_path) == (
        f"line 11  topology.file  {tmp_path}/none.graphml: No such file or directory: expected a GraphML file")


def test_a_node_rule_that_matches_nothing_is_a_warning():
    s = read(small(nodes='[{match: "peer*", speed: 2}, {match: "client*", speed: 2}]'), check=True)
    assert s.warnings == ['nodes[0] "peer*" matches no node', "nodes: speed has no effect with compute mode: zero"]


def test_reading_a_scenario_imports_neither_torch_nor_sklearn():
    code = ("import sys; from emul import scenario; scenario.loads(sys.stdin.read())\n"
            "print([m for m in ('torch', 'sklearn', 'networkx', 'scipy') if m in sys.modules])")
    done = subprocess.run([sys.executable, "-c", code], input=SMALL, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# ---- resolved ----

def test_resolved_text_is_canonical_and_loads_to_an_equal_scenario_from_anywhere(tmp_path):
    s = scenario.load(HERE / "canonical.yaml", check=False)
    text = s.resolved()
    (tmp_path / "scenario.resolved.yaml").write_text(text)
    again = scenario.load(tmp_path / "scenario.resolved.yaml", check=False)
    assert again == s
    assert again.resolved() == text
    assert "latency: 20 ms, bandwidth: 20 Mbit/s" in text
    assert f"file: {HERE}/quickstart.profile.json" in text


@pytest.mark.parametrize("change", ["seed=8", "stop.rounds=31", "links[0].latency=21 ms", "links[1].outage.p=0.31",
                                    "nodes[0].speed=0.5", "task.model=m", "schemes[1].threshold=5",
                                    "compute={mode: zero}", "faults[0].for=11 s", "evaluation={every: 2}",
                                    "workers={timeout: 31 s}",
                                    "topology.clients=11", "attacks[0].nodes.fraction=0.3", "name=other"])
def test_scenarios_that_say_different_things_are_unequal(change):
    assert read(CANONICAL, change) != read(CANONICAL)


@pytest.mark.parametrize("name", ["quickstart", "mnist"])
def test_our_own_scenarios_are_sound_in_format_and_resolve_to_themselves(name):
    s = scenario.load(HERE.parents[1] / "scenarios" / f"{name}.yaml", check=False)
    assert (s.name, s.topology.clients) == (name, 10)
    assert [scheme for scheme, _ in s.schemes] == ["fedavg", "secagg", "fair_seccogc"]
    assert s.compute == ComputeTime("profile", HERE.parents[1] / "scenarios" / f"{name}.profile.json")
    assert scenario.loads(s.resolved(), check=False) == s


def test_the_row_of_a_loop_that_never_holds_is_told(tmp_path):
    (tmp_path / "t.csv").write_text("t_s,mbps\n0,5\n3,7\n")
    links = '[{match: "*", latency: 1 ms, bandwidth: {trace: t.csv, loop: true}}]'
    assert read(small(links=links), base=tmp_path, check=True).warnings == [
        "links[0].bandwidth: t.csv begins anew after 3 s, at its last row, whose rate never holds; period gives it a "
        "time"]
    assert read(small(links=links.replace("true", "true, period: 5 s")), base=tmp_path, check=True).warnings == []
    (tmp_path / "t.csv").write_text("t_s,mbps\n0,5\n2,7\n3,5\n")
    assert read(small(links=links), base=tmp_path, check=True).warnings == []
