"""`transport`, `queue`, `switching` and `overhead`: what each form means, back to YAML, and garbage."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from emul import scenario
from emul.base.errors import ScenarioError
from emul.network import Arq, Queue, Switching, TcpStack

SMALL = """emul: 1
name: small
seed: 1
topology: {generator: star, clients: 3}
links: [{match: "*", %s}]
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 5, batch: 32}}}
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
"""


def rule(text):
    loaded = scenario.loads(SMALL % text)
    assert scenario.loads(loaded.resolved()) == loaded
    assert scenario.loads(loaded.resolved()).resolved() == loaded.resolved()
    return loaded.link_rules[0]


@pytest.mark.parametrize(("text", "expected"), [
    ("datagram", "datagram"),
    ("reliable", Arq()),
    ("{arq: selective_repeat}", Arq()),
    ("{arq: stop_and_wait, rto: 200 ms, retries: 3, ack_loss: 1%}", Arq("stop_and_wait", 200_000_000, 3, 0.01)),
    ("{arq: selective_repeat, rto: auto, retries: unlimited, mtu: 1 kB}", Arq(retries=None, mtu=1000)),
    ("{arq: stop_and_wait, retries: 0}", Arq("stop_and_wait", retries=0))])
def test_every_form_of_a_transport(text, expected):
    assert rule(f"transport: {text}").transport == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("unlimited", "unlimited"), ("64 kB", Queue(64_000)), ("100 packets", Queue(100, "packets")),
    ("1 packet", Queue(1, "packets")), ("0 packets", Queue(0, "packets")), ("0", Queue(0))])
def test_every_form_of_a_queue(text, expected):
    assert rule(f"queue: {text}").queue == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("store_and_forward", "store_and_forward"), ("cut_through", Switching("cut_through")),
    ("packetized", Switching("packetized")), ("{packetized: 1500 B}", Switching("packetized", 1500))])
def test_every_form_of_a_switching(text, expected):
    assert rule(f"switching: {text}").switching == expected


def test_a_preset():
    found = rule("overhead: {preset: tc_tcp}")
    assert (found.overhead_bytes, found.mtu) == (66, 1448)


@pytest.mark.parametrize(("text", "expected"), [
    ('overhead: {preset: tc_tcp}, transport: {arq: selective_repeat, mtu: 1 kB}',
      "server->client1  transport with packets of 1000 B, overhead of 1448 B: expected the same, or one of them alone"),
    ("sharing: maxmin, queue: 10 packets",
      "server->client1  queue with sharing maxmin: expected sharing fifo, which alone knows it")])
def test_what_does_not_go_together_is_found_by_check(text, expected):
    with pytest.raises(ScenarioError) as caught:
        scenario.loads(SMALL % text)
    problem, = caught.value.problems
    assert (problem.place, problem.line, f"{problem.found}  {problem.expected}") == ("links", 5, expected)


SCALARS = (st.none() | st.booleans() | st.integers(-3, 5000) | st.floats() | st.text(max_size=6)
           | st.sampled_from(["auto", "unlimited", "1 s", "10 kB", "5 packets", "stop_and_wait", "reliable",
                              "packetized", "tc_tcp", "30%", "1e99 s", "9" * 40 + " packets"]))
KEYS = st.sampled_from(["arq", "rto", "retries", "ack_loss", "mtu", "tcp", "packetized", "bytes", "preset"])
VALUES = SCALARS | st.dictionaries(KEYS, SCALARS, max_size=4) | st.lists(SCALARS, max_size=2)


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(["transport", "queue", "switching", "overhead"]), VALUES, min_size=1))
def test_garbage_is_a_scenario_error_or_a_scenario_that_survives_being_written(values):
    out = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = True
    yaml.dump(values, out)
    inner = out.getvalue().strip().removesuffix("...").strip()[1:-1]
    try:
        loaded = scenario.loads(SMALL % inner.replace("\n", " "), check=False)
    except ScenarioError:
        return
    again = scenario.loads(loaded.resolved(), check=False)
    assert again == loaded


@pytest.mark.parametrize(("text", "expected"), [
    ("{tcp: {}}", TcpStack()),
    ("{tcp: {congestion: reno, initial_window: 4, idle_restart: false, buffer: 150 kB, rto_min: 1 s}}",
     TcpStack("reno", 4, False, 150_000, 10**9)),
    ("{tcp: {hystart: false, tlp: false, delayed_ack: 1, mss: 536 B, setup: true, buffer: unlimited}}",
     TcpStack(hystart=False, tlp=False, delayed_ack=1, mss=536, setup=True))])
@pytest.mark.parametrize("sharing", ["connections", "tcp_fifo"])
def test_every_parameter_of_connections_of_tcp(text, expected, sharing):
    assert rule(f"transport: {text}, sharing: {sharing}").transport == expected


@pytest.mark.parametrize(("text", "place", "said"), [
    ("transport: {tcp: {congestion: bbr}}, sharing: connections", "transport.tcp.congestion", "cubic, reno"),
    ("transport: {tcp: {buffer: 12}}, sharing: connections", "transport.tcp.buffer", "unit"),
    ("transport: {tcp: {window: 3}}, sharing: connections", "transport.tcp.window", "unknown"),
    ("transport: {tcp: {idle_restart: 3}}, sharing: connections", "transport.tcp.idle_restart", "boolean"),
    ("transport: {tcp: {}, rto: 1 s}, sharing: connections", "transport.rto", "own keys"),
    ("transport: {tcp: cubic}, sharing: connections", "transport.tcp", "a mapping such as {congestion: cubic}"),
    ("transport: {tcp: mathis}", "transport.tcp", "mathis is gone: sharing: connections with transport: {tcp: {}} has"),
    ("sharing: rtt_weighted", "links[0].sharing", "rtt_weighted is gone: sharing: connections with"),
    ("transport: {tcp: {}}", "links", "expected sharing connections or tcp_fifo"),
    ("transport: {tcp: {}}, sharing: maxmin", "links", "expected sharing connections or tcp_fifo"),
    ("sharing: tcp_fifo", "links", "expected transport: {tcp: {...}}")])
def test_what_is_wrong_with_connections_of_tcp(text, place, said):
    with pytest.raises(ScenarioError) as caught:
        rule(text)
    problem, = caught.value.problems
    assert place in problem.place
    assert problem.line == 5
    assert said in f"{problem.found}: {problem.expected}"
