"""Faults and dynamics end to end: what each does to messages, computations and roles, exactly."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from emul import engine, load_run
from emul.base import rows as R
from emul.base.errors import NothingToReceive, ScenarioError, TimedOut
from emul.engine import session
from emul.network import LinkRule, OutageSpec, TopologySpec, build
from emul.network.models.churn import Diurnal, Shocks, alternating
from emul.network.models.laws import Exponential, Fixed
from emul.network.models.traces import TraceSpec
from emul.registry import schemes
from emul.roles import Message, Node
from emul.scenario import (
    Availability,
    Churn,
    ComputeTime,
    Crash,
    Days,
    DropOut,
    Leave,
    LinkDown,
    LinkSet,
    LinkUp,
    NetworkPartition,
    Scenario,
    ShockGroup,
    Slow,
    Stop,
    loads,
)
from emul.scenario.changes import _changes, _Window, changes
from emul.testing import MS, Ran, Shuffled, run_world
from emul.workers.pool import Workers

S = 10**9
RATE = 20_000_000
LINK = (LinkRule("*", latency_ns=10 * MS, bandwidth_bps=RATE),)


@dataclass(frozen=True)
class Blob(Message):
    body: bytes = b""


MESSAGES = (Blob,)


@dataclass
class Notes:
    seen: list[Any] = field(default_factory=list)


def send_at(*times_ms: int, size: int = 0) -> Any:
    """A server that sends a blob to everybody at each of these times."""
    async def server(node: Node, p: Any) -> None:
        for at in times_ms:
            await node.sleep(at / 1e3 - node.now)
            node.broadcast(node.clients, Blob(bytes(size)))
        await node.sleep(20)
    return server


def listen(log: list[tuple[str, int]]) -> Any:
    async def client(node: Node, p: Any) -> None:
        while True:
            await node.recv_any(Blob)
            log.append((node.name, node.now_ns))
    return client


def deliveries(server: Any, faults: list[Any], clients: int = 1, links: Any = LINK,
               **how: Any) -> tuple[list[Any], Ran]:
    """((client, ns) of what arrived, the run)."""
    log: list[tuple[str, int]] = []
    world = run_world({"server": server, "client": listen(log)}, clients=clients, faults=faults, links=links, **how)
    assert world.invariants.violations == []
    return sorted(log, key=lambda seen: (seen[1], seen[0])), world


def transmission(world: Ran) -> int:
    """ns that the first message occupies a link of RATE."""
    wire = next(row[7] for row in world.rows if row[0] == R.SEND)
    return -(-wire * 8 * S // RATE)


# --- links ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("inflight", "extra"), [("drop", None), ("deliver", 0), ("pause", 200 * MS)])
def test_what_is_in_flight_when_a_link_goes_down(inflight: str, extra: int | None) -> None:
    fault = LinkDown(100 * MS, "server", "client1", 200 * MS, inflight)     # type: ignore[arg-type]
    log, world = deliveries(send_at(0, size=10**6), [fault])
    expected = [] if extra is None else [("client1", 10 * MS + transmission(world) + extra)]
    assert log == expected
    assert world.summary["messages_lost"] == (extra is None)


def test_bandwidth_that_is_set_for_a_time_is_integrated() -> None:
    log, world = deliveries(send_at(0, size=10**6), [LinkSet(100 * MS, "server", "*", bandwidth_bps=RATE // 2,
                                                             for_ns=100 * MS)])
    assert log == [("client1", 10 * MS + transmission(world) + 50 * MS)]


def test_latency_that_is_set_for_a_time_comes_back() -> None:
    fault = LinkSet(100 * MS, "*", "client*", latency_ns=3 * MS, for_ns=100 * MS)
    log, world = deliveries(send_at(0, 150, 300), [fault])
    short = transmission(world)
    assert [ns for _, ns in log] == [10 * MS + short, 153 * MS + short, 310 * MS + short]


def test_outage_that_is_set_for_a_time_loses_what_starts_in_it() -> None:
    fault = LinkSet(100 * MS, "server", "client1", outage=OutageSpec(1.0), for_ns=100 * MS)
    log, _ = deliveries(send_at(0, 50, 120, 190, 230), [fault], clients=2)
    assert [ns // (10 * MS) for name, ns in log if name == "client1"] == [1, 6, 24]
    assert [ns // (10 * MS) for name, ns in log if name == "client2"] == [1, 6, 13, 20, 24]


def test_a_lossless_scheme_keeps_its_links_when_outages_are_set() -> None:
    scenario = world_of([LinkSet(0, "server", "client1", outage=OutageSpec(1.0)), LinkDown(5, "server", "client1")])
    network = build(scenario.topology, scenario.link_rules, 7)
    names = list(network.names)
    assert [f.changes for f in changes(scenario, network, names, lossless=True).faults] == [{"down": True}]
    assert [sorted(f.changes) for f in changes(scenario, network, names).faults] == [["outage"], ["down"]]


def test_faults_that_overlap_end_with_the_later_one_and_up_ends_them_all() -> None:
    def states(*faults: Any) -> list[tuple[int, bool]]:
        found = changes(world_of(list(faults)), network := build(
            TopologySpec(generator="star", clients=2), LINK, 7), list(network.names))
        return [(f.at_ns, f.changes["down"]) for f in found.faults]

    a, b = LinkDown(10, "server", "client1", 20), LinkDown(20, "server", "client1", 20)
    assert states(a, b) == [(10, True), (40, False)]
    assert states(a, b, LinkUp(25, "server", "client1")) == [(10, True), (25, False)]
    assert states(LinkDown(10, "server", "client1"), LinkUp(25, "*", "client1"),
                   LinkDown(30, "server", "client1")) == [(10, True), (25, False), (30, True)]
    assert states(LinkUp(25, "server", "client1")) == []
    assert states(NetworkPartition(5, (("server",), ("client*",)), 10), LinkDown(8, "server", "client1", 2)) == [
        (5, True), (15, False), (5, True), (15, False), (5, True), (15, False), (5, True), (15, False)]


@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(1, 30), st.integers(1, 9)), max_size=6))
@settings(max_examples=60)
def test_of_values_set_at_one_time_the_latest_holds(windows: list[tuple[int, int | None, int]]) -> None:
    """Against the obvious: at every ns, look through the faults."""
    faults = [LinkSet(at, "server", "client1", latency_ns=value, for_ns=length) for at, length, value in windows]
    network = build(TopologySpec(generator="star", clients=1), LINK, 7)
    made = {f.at_ns: f.changes["latency_ns"] for f in changes(world_of(faults), network, network.names).faults}
    value = 10 * MS
    for t in range(70):
        value = made.get(t, value)
        holding = [(at, i, v) for i, (at, length, v) in enumerate(windows) if at <= t < at + (length or 1000)]
        assert value == (max(holding)[2] if holding else 10 * MS)


def test_a_partition_cuts_every_link_that_crosses_and_heals() -> None:
    cut_off = NetworkPartition(50 * MS, (("server", "client1"), ("*",)), 150 * MS)
    log, world = deliveries(send_at(0, 100, 300), [cut_off], clients=3)
    assert [name for name, ns in log if 100 * MS < ns < 250 * MS] == ["client1"]
    assert len(log) == 3 + 1 + 3
    cut = {(row[2], row[3]) for row in world.rows if row[0] == R.LINK}
    assert cut == {(0, 2), (0, 3), (2, 0), (3, 0)}


# --- rates that vary ------------------------------------------------------------------------------------------------

def csv(tmp_path: Path, text: str, **how: Any) -> tuple[LinkRule, ...]:
    (tmp_path / "t.csv").write_text(text)
    return (LinkRule("*", latency_ns=10 * MS, bandwidth_bps=TraceSpec(tmp_path / "t.csv", **how)),)


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_a_link_follows_its_trace(tmp_path: Path, sharing: Any) -> None:
    rule, = csv(tmp_path, "t_ms,bandwidth_mbps\n0,20\n100,0\n300,20\n")
    log, world = deliveries(send_at(0, size=10**6), [], links=[LinkRule(
        "*", rule.latency_ns, rule.bandwidth_bps, sharing=sharing)])
    expected = 10 * MS + transmission(world) + 200 * MS     # a shared rate is a float, and rounded up
    assert abs(log[0][1] - expected) <= (0 if sharing == "fifo" else 1)


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_a_set_bandwidth_takes_the_place_of_a_trace_for_its_time(tmp_path: Path, sharing: Any) -> None:
    """20 Mbit/s until 100 ms, 10 Mbit/s by the fault until 200 ms, then the trace's 40 Mbit/s."""
    rule, = csv(tmp_path, "t_ms,bandwidth_mbps\n0,20\n150,40\n")
    begin = 0 if sharing == "fifo" else 10 * MS             # a flow pays its latency before
    fault = LinkSet(100 * MS + begin, "server", "client1", bandwidth_bps=RATE // 2, for_ns=100 * MS)
    links = [LinkRule("*", rule.latency_ns, rule.bandwidth_bps, sharing=sharing)]
    log, world = deliveries(send_at(0, size=10**6), [fault], links=links)
    bits = next(row[7] for row in world.rows if row[0] == R.SEND) * 8
    expected = 210 * MS + -(-(bits - 3_000_000) * S // 40_000_000)
    assert abs(log[0][1] - expected) <= (0 if sharing == "fifo" else 1)
    told = [row[4] for row in world.rows if row[0] == R.LINK]
    assert told == [{"bandwidth_bps": RATE // 2}, {"bandwidth_bps": "profile"}]


def test_a_mahimahi_trace_drives_a_link(tmp_path: Path) -> None:
    """One packet of 1,500 bytes a millisecond is 12 Mbit/s."""
    (tmp_path / "x.up").write_text("1\n")
    log, world = deliveries(send_at(0, size=10**5), [], links=[
        LinkRule("*", latency_ns=0, bandwidth_bps=TraceSpec(tmp_path / "x.up"))])
    assert log == [("client1", -(-next(row[7] for row in world.rows if row[0] == R.SEND) * 8 * S // 12_000_000))]


# --- nodes ----------------------------------------------------------------------------------------------------------

def counting(log: list[int]) -> Any:
    async def client(node: Node, p: Any) -> None:
        mine = 0                                            # lost in a crash, kept while away
        notes = node.state(Notes())                         # kept in a crash, but for `wipe`
        while True:
            await node.recv_any(Blob)
            mine += 1
            notes.seen.append(0)
            log.append(100 * mine + len(notes.seen))
    return client


@pytest.mark.parametrize(("fault", "expected"), [
    (Crash(100 * MS, "client1", 100 * MS), [101, 202, 103, 204]),
    (Crash(100 * MS, "client1", 100 * MS, wipe=True), [101, 202, 101, 202]),
    (Leave(100 * MS, "client1", 100 * MS), [101, 202, 303, 404])])
def test_what_a_node_remembers_after_a_crash_and_after_it_was_away(fault: Any, expected: list[int]) -> None:
    log: list[int] = []
    world = run_world({"server": send_at(0, 50, 120, 150, 220, 250), "client": counting(log)}, clients=1,
                      faults=[fault])
    assert log == expected                                  # what was sent at 120 and 150 ms never came
    assert world.invariants.violations == []


def test_what_a_node_sends_while_it_is_away_is_lost_and_the_receiver_learns_so() -> None:
    outcome: list[Any] = []

    async def server(node: Node, p: Any) -> None:
        for _ in range(3):
            try:
                await node.recv(Blob, node.clients[0])
                outcome.append(node.now_ns // MS)
            except NothingToReceive:
                outcome.append(("lost", node.now_ns // MS))

    async def client(node: Node, p: Any) -> None:
        for _ in range(3):
            await node.sleep(0.1)
            node.send(node.server, Blob())

    run_world({"server": server, "client": client}, clients=1, faults=[Leave(150 * MS, "client1", 100 * MS)])
    assert outcome == [110, ("lost", 210), 310]


COST = 1000 * MS


@pytest.mark.parametrize(("faults", "expected"), [
    ([], 1000), ([Slow(500 * MS, "client1", 4.0, 1000 * MS)], 500 + 1000 + 250),
    ([Slow(0, "client*", 2.5)], 2500), ([Slow(2000 * MS, "client1", 9.0)], 1000),
    ([Slow(0, "client1", 2.0, 400 * MS), Slow(200 * MS, "client1", 3.0, 600 * MS)],
     200 + 200 + 400 + round(1000 - 100 - 200 / 6 - 400 / 3)),
    ([Slow(0, "client1", 0.5)], 500)])
def test_a_computation_takes_the_integral_of_its_nodes_speed(faults: list[Any], expected: int) -> None:
    ends: list[int] = []

    async def server(node: Node, p: Any) -> None:
        await node.sleep(20)

    async def client(node: Node, p: Any) -> None:
        await node.compute("work", int)
        ends.append(node.now_ns)

    run_world({"server": server, "client": client}, clients=1, faults=faults, costs={"work": COST / S})
    assert round(ends[0] / MS) == expected


# --- what comes by itself -------------------------------------------------------------------------------------------

def world_of(faults: list[Any], clients: int = 2) -> Scenario:
    return Scenario(name="test", seed=7, topology=TopologySpec(generator="star", clients=clients),
                    link_rules=list(LINK), node_speeds=[], faults=faults, task={}, attacks=[],
                    compute=ComputeTime("zero"), schemes=[("x", {})], stop=Stop(rounds=1))


def test_churn_takes_the_nodes_away_when_its_stream_says_so() -> None:
    law = Exponential(2 * S), Exponential(S)
    _, world = deliveries(send_at(0), [Churn("client*", *law, "leave", False)], clients=3)
    for name in ("client1", "client2", "client3"):
        absences = islice(alternating(*law, 7, name, False), 50)
        expected = [time for absence in absences for time in absence if time is not None and time < 19 * S]
        assert [row[1] for row in world.of(name, R.AWAY, R.BACK) if row[1] < 19 * S] == expected


def test_the_share_of_messages_that_reach_nodes_that_come_and_go_is_their_availability() -> None:
    """Up 2 s and down 1 s on average: two thirds; messages a second apart of one node are correlated, nodes are not."""
    n, times = 60, [500 + 1000 * i for i in range(10)]
    faults = [Churn("client*", Exponential(2 * S), Exponential(S))]
    log, _ = deliveries(send_at(*times), faults, clients=n)
    share = np.array([sum(name == f"client{i}" for name, _ in log) for i in range(1, n + 1)]) / len(times)
    assert abs(share.mean() - 2 / 3) / (share.std() / np.sqrt(n)) < 4


def test_a_later_rule_of_churn_wins_and_groups_come_on_top() -> None:
    network = build(TopologySpec(generator="star", clients=3), LINK, 7)
    group = ShockGroup(Shocks(Fixed(5 * S), Fixed(1)), match="client*")
    faults = [Churn("client*", Fixed(S), Fixed(S), "leave", False),
              Churn("client2", Fixed(3 * S), Fixed(S), "crash", False), group, group]
    found = changes(world_of(faults, 3), network, network.names[:4])
    first = [next(stream) for stream in found.streams]
    assert [(type(f).__name__, f.at_ns, f.node) for f in first] == [
        ("NodeLeave", S, 1), ("NodeCrash", 3 * S, 2), ("NodeLeave", S, 3),
        *[("NodeCrash", 5 * S, node) for node in (1, 2, 3)] * 2]


@pytest.mark.parametrize(("fault", "share"), [
    (ShockGroup(Shocks(Fixed(S), Fixed(2 * S)), "client*", name="g"), "0"),
    (ShockGroup(Shocks(Exponential(S), Exponential(4 * S)), "client*", name="g"), "0.018"),
    (Churn("client*", Fixed(S), Fixed(99 * S)), "0.01"), (Days("client*", Diurnal(0.01, 0.0, S)), "0.01")])
def test_nodes_that_will_hardly_ever_be_there_are_a_warning(fault: Any, share: str) -> None:
    network = build(TopologySpec(generator="star", clients=2), LINK, 7)
    warning, = changes(world_of([fault]), network, network.names[:3]).warnings
    assert warning.startswith("faults[0].")
    assert warning.endswith(f" will be there {share} of the time")


def test_availability_is_taken_by_name_or_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("node,t_on_s,t_off_s\nclient1,0,5\nclient3,0,7\nsomebody,1,2\n")
    network = build(TopologySpec(generator="star", clients=4), LINK, 7)

    def firsts(fault: Availability) -> list[tuple[int, int]]:
        return [(f.node, f.at_ns // S) for stream in changes(world_of([fault]), network, network.names).streams
                for f in islice(stream, 1)]

    assert firsts(Availability(file)) == [(1, 5), (3, 7)]
    assert firsts(Availability(file, "client*", in_turn=True)) == [(1, 5), (2, 7), (3, 0), (4, 5)]
    assert changes(world_of([Availability(file)]), network, network.names).warnings == [
        "faults[0].availability: 1 nodes of a.csv are not in the network"]
    with pytest.raises(ScenarioError, match="expected the name of a node among its nodes"):
        changes(world_of([Availability(file, "client2")]), network, network.names)
    with pytest.raises(ScenarioError, match="is not the one that this scenario was resolved with"):
        changes(world_of([Availability(file, sha256="0" * 64)]), network, network.names)


def test_what_faults_name_and_the_network_has_not_is_told_at_once() -> None:
    faults = [LinkDown(0, "client1", "client2"), Crash(0, "nobody"), Slow(0, "x*", 2.0),
              NetworkPartition(0, (("client1",), ("y",))), NetworkPartition(0, (("client1",), ("client2",))),
              Churn("z", Fixed(1), Fixed(1)), ShockGroup(Shocks(Fixed(1), Fixed(1)), nodes=("client1", "w")),
              LinkSet(0, "a*", "server", latency_ns=1)]
    network = build(TopologySpec(generator="star", clients=2), LINK, 7)
    with pytest.raises(ScenarioError) as caught:
        changes(world_of(faults), network, network.names)
    assert [(p.place, p.expected) for p in caught.value.problems] == [
        ("faults[0].link", "there is no link client1 -> client2"),
        ("faults[1].node", "expected a vertex that hosts a node"),
        ("faults[2].node", "expected a pattern that a node's name matches"),
        ("faults[3].partition[1][0]", "matches no vertex of the network"),
        ("faults[5].churn.match", "expected a vertex that hosts a node"),
        ("faults[6].group.nodes", "expected a vertex that hosts a node"),
        ("faults[7].link", "there is no link a* -> server")]
    with pytest.raises(ScenarioError, match="no link leads from one of these groups to another"):
        changes(world_of(faults[4:5]), network, network.names)


# --- whole runs -----------------------------------------------------------------------------------------------------

TEXT = """
emul: 1
name: dynamic
seed: 7
topology: {generator: star, clients: 6}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s}
  - {match: "client*->server", bandwidth: {trace: lte.csv, loop: true}}
nodes: [{match: "*", speed: 0.5}]
faults:
  - churn: {match: "client*", up: {weibull: {shape: 0.6, scale: 4 s}}, down: {lognormal: {median: 1 s, sigma: 0.5}},
            kind: KIND}
  - group: {match: "client[1-3]", every: {exponential: 5 s}, down: 500 ms, p: 0.7, correlation: 0.5}
  - availability: {match: client6, diurnal: {mean: 0.5, amplitude: 0.4, period: 10 s}}
  - {at: 2 s, node: "client*", slow: 4, for: 3 s}
  - {at: 3 s, partition: [[server, client1, client2], ["*"]], for: 2 s, inflight: pause}
  - {at: 4 s, link: "client2<->server", set: {latency: 5 ms, bandwidth: 1 Mbit/s}, for: 4 s}
task:
  data: {set: digits}
  model: logistic
  solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}
compute: {mode: profile, file: costs.json}
schemes: [{name: fedavg, deadline: 2 s}]
stop: {rounds: 8}
"""
COSTS = ('{"emul_profile": 1, "costs": {"fedavg/client/train": [0.3, 0], "fedavg/server/aggregate": [0.01, 0], '
         '"fedavg/server/initialise": [0.01, 0]}}')


@pytest.mark.parametrize("kind", ["leave", "crash"])
def test_a_run_with_all_of_it_is_the_same_for_any_number_of_workers(tmp_path: Path, pools: list[Workers],
                                                                   kind: str) -> None:
    (tmp_path / "lte.csv").write_text("t_s,mbps\n0,4\n0.5,0\n0.8,20\n2,0\n")
    (tmp_path / "costs.json").write_text(COSTS)
    scenario = loads(TEXT.replace("KIND", kind), base=tmp_path)
    assert loads(scenario.resolved()) == scenario
    digests = set()
    for pool in (0, Shuffled(3, 5), pools[1]):
        result, = engine.run(scenario, workers=pool, out=tmp_path)
        assert (result.error, result.violations) == (None, ())
        assert result.summary is not None
        digests.add(result.summary["digest"])
    assert len(digests) == 1
    assert result.directory is not None
    assert "sha256" in (result.directory / "scenario.resolved.yaml").read_text()
    assert engine.replay(result.directory, workers=0) in digests


def test_a_replay_notices_that_a_trace_has_changed(tmp_path: Path) -> None:
    (tmp_path / "lte.csv").write_text("t_s,mbps\n0,4\n0.5,0\n0.8,20\n2,0\n")
    (tmp_path / "costs.json").write_text(COSTS)
    result, = engine.run(loads(TEXT.replace("KIND", "leave"), base=tmp_path), workers=0, out=tmp_path)
    assert result.directory is not None
    (tmp_path / "lte.csv").write_text("t_s,mbps\n0,4\n0.5,1\n0.8,20\n2,0\n")
    with pytest.raises(ScenarioError, match=r"links\[1\]\.bandwidth\.sha256"):
        engine.replay(result.directory, workers=0)


def test_days_and_timeouts_are_seen_by_a_role() -> None:
    """A client that is there for half of a day of 2 s: the server's question is lost at night."""
    seen: list[bool] = []

    async def server(node: Node, p: Any) -> None:
        for _ in range(20):
            node.send(node.clients[0], Blob())
            try:
                await node.recv(Blob, node.clients[0], timeout_s=0.5)
                seen.append(True)
                await node.sleep(0.48)
            except TimedOut:
                seen.append(False)

    async def client(node: Node, p: Any) -> None:
        while True:
            await node.recv_any(Blob)
            node.send(node.server, Blob())

    run_world({"server": server, "client": client}, clients=1, faults=[Days("client1", Diurnal(0.5, 0.5, 2 * S))])
    assert True in seen
    assert False in seen


# --- lookahead must not show ----------------------------------------------------------------------------------------

async def rounds_server(node: Node, p: Any) -> None:
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Blob(bytes(50 * int(round_))))
            await node.gather(Blob, node.clients, timeout_s=0.03)
            await node.compute("server", int)


async def rounds_client(node: Node, p: Any) -> None:
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Blob, node.server)
            await node.compute("client", int)
            node.send(node.server, Blob(bytes(100)))


moments = st.integers(0, 150).map(lambda ms: ms * MS)
lengths = st.none() | st.integers(1, 60).map(lambda ms: ms * MS)
clients = st.sampled_from(["client1", "client2", "client3", "client*"])
flights = st.sampled_from(["drop", "pause", "deliver"])
laws = st.builds(Exponential, st.integers(5, 60).map(lambda ms: ms * MS)) | st.builds(Fixed, st.just(17 * MS))
kinds = st.sampled_from(["leave", "crash"])
any_fault = st.one_of(
    st.builds(LinkDown, moments, st.just("server"), clients, lengths, flights),
    st.builds(LinkDown, moments, clients, st.just("server"), lengths, flights),
    st.builds(LinkUp, moments, st.just("*"), clients),
    st.builds(LinkSet, moments, st.just("*"), clients, st.none() | st.integers(1, 9).map(lambda ms: ms * MS),
              st.sampled_from([100_000, "infinite"]), st.sampled_from([None, "none", OutageSpec(0.5, "round")]),
              lengths),
    st.builds(NetworkPartition, moments, st.just((("server", "client1"), ("*",))), lengths, flights),
    st.builds(Crash, moments, clients, st.integers(1, 60).map(lambda ms: ms * MS), st.booleans()),
    st.builds(Leave, moments, clients, lengths),
    st.builds(DropOut, clients, st.just("Blob"), st.none() | st.integers(1, 3)),
    st.builds(Slow, moments, clients, st.sampled_from([0.5, 3.0]), lengths),
    st.builds(Churn, clients, laws, laws, kinds, st.booleans()),
    st.builds(ShockGroup, st.builds(Shocks, laws, laws, st.just(0.5), st.just(0.5)), clients, st.just(()), st.none(),
              kinds))


# a flow that goes on when its link comes up has paid its latency: it may end at once
@example([LinkDown(5 * MS, "server", "client2", None, "pause"), LinkUp(83 * MS, "*", "client2"),
          Churn("client2", Fixed(17 * MS), Fixed(17 * MS), "leave", False)], "maxmin", 0)
@given(st.lists(any_fault, min_size=1, max_size=4), st.sampled_from(["fifo", "maxmin"]), st.integers(0, 99))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_nodes_live_the_same_with_lookahead_and_for_any_workers(faults: list[Any], sharing: Any, seed: int) -> None:
    def run(**how: Any) -> Ran:
        return run_world({"server": rounds_server, "client": rounds_client}, faults=faults, stop=Stop(rounds=4),
                         links=[LinkRule("*", latency_ns=4 * MS, bandwidth_bps=RATE // 20, sharing=sharing)],
                         seed=seed, costs={"server": 0.002, "client": 0.007}, **how)

    # collecting all garbage before each of these short runs would take most of the time
    with mock.patch.object(session, "rare_collections", return_value=contextlib.nullcontext()):
        fast, slow, shuffled = run(), run(lookahead=False), run(pool=Shuffled(2, seed))
    for name in fast.header["names"]:
        assert fast.of(name) == slow.of(name)
    assert fast.invariants.violations == []
    assert shuffled.digest == fast.digest


# --- heads before their messages --------------------------------------------------------------------------------------

@pytest.mark.parametrize(("fault", "received"), [
    ("{at: 4 s, link: 'r->s', down: true}", 0), ("{at: 1 s, link: 'r->s', down: true, for: 3 s}", 1)],
    ids=["down when it comes", "up again when it comes"])
def test_a_link_that_shares_is_asked_when_a_message_comes_and_not_when_its_head_does(
        fault: str, received: int, tmp_path: Path) -> None:
    """The head of the update is at r after 3 s, and the update after 5 s: the model takes as long to come down."""
    (tmp_path / "net.csv").write_text("source,target,latency,bandwidth\nc1,r,10 ms,0.05 Mbit/s\nr,s,10 ms,10 Mbit/s\n")
    text = """
emul: 1
name: heads
seed: 1
topology: {file: net.csv, roles: {server: [s], client: [c1]}}
links:
  - {match: "c1->r", switching: {packetized: 1448 B}}
  - {match: "r->s", sharing: maxmin}
task: {data: {set: digits}, model: digits_mlp, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: zero}
schemes: [{name: fedavg, deadline: 20 s}]
stop: {rounds: 1}
"""
    scenario = loads(text + f"faults: [{fault}]\n", "heads", base=tmp_path)
    result, = engine.run(scenario, workers=0, out=tmp_path / "runs")
    rounds = load_run(result.directory).rounds
    assert list(rounds["received"]) == [received]


@pytest.mark.parametrize(("scheme", "params", "late"), [
    ("fedavg", {"deadline": "10 s"}, "client5"), ("fedavg", {"selection": {"uniform": {"count": 3}}}, "client5"),
    ("secagg", {}, "client5"), ("gossip", {}, "peer5"), ("fedasync", {}, "client5"), ("fedat", {}, "client5"),
    ("hierarchical", {}, "n7"), ("split", {}, "client3"), ("flower", {}, "client5")])
def test_who_joins_in_round_three_does_not_download_and_train_before(tmp_path: Path, scheme: str,
                                                                     params: dict[str, Any], late: str) -> None:
    text = schemes.find(scheme).example
    versions = scheme in ("fedasync", "fedat")      # its rounds are versions of a model, several at one instant
    rounds, stop = ("3..", 12) if versions else ("3..3", 4)
    edits = [*(f"schemes.{scheme}.{key}={json.dumps(value)}" for key, value in params.items()),
             f"stop={{rounds: {stop}}}", 'links=[{match: "*", latency: 20 ms}]',
             f"faults=[{{availability: {{match: {late}, rounds: {rounds}}}}}]",
             *["training=skip"] * (scheme not in ("flower", "split"))]
    plan = loads(text, scheme, sets=edits)
    result = engine.run(plan, workers=0, out=tmp_path)[0]
    assert result.error is None
    assert result.violations == ()
    run = load_run(result.directory)
    counted = run.rounds[run.rounds["node"] == run.rounds["node"].iloc[0]].set_index("round")
    begin, end = counted.loc[3, "entered_ns"], counted.loc[3, "left_ns"]
    trained, got = run.computations.query("name == @late"), run.messages.query("target_name == @late")
    assert len(trained)
    assert len(got)
    assert trained["start_ns"].min() >= begin
    assert got["sent_ns"].min() >= begin
    assert versions or got["sent_ns"].max() <= end
    assert (run.rounds["why"] == "").all(), "no deadline was awaited in vain"
    again = engine.run(plan, workers=Shuffled(2, 3), out=tmp_path / "again")[0]
    assert again.summary is not None
    assert again.summary["digest"] == run.digest


WINDOWS = st.lists(st.builds(
    lambda begin, length, place, what: _Window(begin, begin + length, place, what, (
        f"value {place}" if what != "down" else "pause" if place % 2 else "drop")),
    st.integers(0, 6), st.integers(0, 6), st.integers(0, 9), st.sampled_from(["down", "latency_ns", "outage"])),
    max_size=8, unique_by=lambda w: (w.place, w.what))


@given(WINDOWS)
def test_of_a_link_the_fault_holds_that_has_begun_last_and_it_is_down_while_any_is(windows: list[_Window]) -> None:
    own = {what: (f"own {what}", f"own {what}") for what in ("bandwidth_bps", "latency_ns", "outage")}
    found = list(_changes(windows, own))
    assert [time for time, *_ in found] == sorted({time for time, *_ in found})
    state: dict[str, Any] = {"down": False, **{what: value for what, (value, _) in own.items()}}
    for time in range(14):
        state |= {key: value for at, _, made, _ in found if at == time for key, value in made.items()}
        active = [w for w in windows if w.begin <= time < w.end]
        assert state["down"] is any(w.what == "down" for w in active)
        for what in ("latency_ns", "outage"):
            holding = [w for w in active if w.what == what]
            latest = max(holding, key=lambda w: (w.begin, w.place), default=None)
            assert state[what] == (own[what][0] if latest is None else latest.value)
    for time, place, made, _ in found:
        assert place == min(w.place for w in windows if time in (w.begin, w.end))
        downs = [w for w in windows if w.what == "down" and w.begin <= time < w.end]
        if made.get("down"):
            assert made.get("inflight", "drop") == min(downs, key=lambda w: w.place).value
