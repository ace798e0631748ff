"""Fidelity of whole runs: kernel, workers' twin and roles over a network, against order statistics and closed forms."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb

import numpy as np
import pytest
from laws import BYTE_A_NS, MS, S, count_z, mean_z

from emul.base import rows as R
from emul.base.streams import generator
from emul.message.wire import ENVELOPE_BYTES, encode
from emul.network import LinkRule, OutageSpec, TopologySpec
from emul.roles import Message
from emul.scenario import Crash, LinkDown, Stop
from emul.testing import run_world


@dataclass(frozen=True)
class Ask(Message):
    number: int = 0


@dataclass(frozen=True)
class Answer(Message):
    number: int = 0


@dataclass(frozen=True)
class Chunk(Message):
    values: np.ndarray


MESSAGES = (Ask, Answer, Chunk)


def reported(world, name):
    """The values that the server reported, by round."""
    return [row[4][name] for row in world.of("server", R.REPORT)]


# --- F21, F22 -------------------------------------------------------------------------------------------------------

@pytest.mark.slow
@pytest.mark.parametrize(("n", "k", "rounds", "mean", "variance"), [
    (20, 15, 400, 1.31441, 0.13255), (10, 8, 400, 1.4290, None), (10, 10, 400, 2.9290, None),
    (100, 100, 60, 5.1874, None)])
def test_f21_a_server_waits_for_k_of_n_exponential_stragglers(n, k, rounds, mean, variance):
    """E = H_n - H_(n - k), Var = sum of i^-2 for i = n - k + 1 .. n, plus the latency there and back."""
    async def server(node, p):
        async for round_ in node.rounds():
            with round_:
                begin = node.now_ns
                node.broadcast(node.clients, Ask())
                answers = await node.gather(Answer, node.clients, need=k)
                node.report(took_ns=node.now_ns - begin, got=len(answers))

    async def client(node, p):
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                await node.sleep(generator(3, "fidelity/straggler", n, k, node.id, round_).exponential())
                node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, clients=n, links=[LinkRule("*", latency_ns=MS)],
                      stop=Stop(rounds=rounds))
    exact = sum(1 / i for i in range(n - k + 1, n + 1))
    spread = sum(1 / i**2 for i in range(n - k + 1, n + 1))
    assert exact == pytest.approx(mean, abs=5e-5)
    assert variance is None or spread == pytest.approx(variance, abs=5e-6)
    assert set(reported(world, "got")) == {k}
    times = (np.array(reported(world, "took_ns")) - 2 * MS) / S
    assert len(times) == rounds
    assert abs(mean_z(times, exact, spread)) < 4
    assert abs(mean_z((times - exact) ** 2, spread)) < 4


def test_f22_k_of_n_uplinks_with_outage():
    """n = 10, k = 8, p = .1: .92981 of the rounds have at least 8 updates."""
    n, k, p, rounds = 10, 8, 0.1, 1000

    async def server(node, params):
        async for round_ in node.rounds():
            with round_:
                node.broadcast(node.clients, Ask())
                node.report(got=len(await node.gather(Answer, node.clients)))

    async def client(node, params):
        async for round_ in node.rounds(of=node.server):
            with round_:
                await node.recv(Ask, node.server)
                node.send(node.server, Answer())

    world = run_world({"server": server, "client": client}, clients=n, stop=Stop(rounds=rounds), links=[
        LinkRule("*", latency_ns=MS), LinkRule("client*->server", outage=OutageSpec(p, "round"))])
    expected = sum(comb(n, j) * (1 - p) ** j * p ** (n - j) for j in range(k, n + 1))
    assert expected == pytest.approx(0.92981, abs=5e-6)
    got = reported(world, "got")
    assert abs(count_z(sum(g >= k for g in got), rounds, expected)) < 4
    assert abs(count_z(sum(got), rounds * n, 1 - p)) < 4


# --- F25, F26 -------------------------------------------------------------------------------------------------------

TREE = {"nodes": ["server", "a", "b", *(f"client{i}" for i in range(1, 7))],
        "links": [("server", "a"), ("server", "b"), *((("a", "b")[i % 2], f"client{i}") for i in range(1, 7))]}


async def asking(node, p):
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Chunk(np.zeros(100 * int(round_), np.float32)))
            node.report(got=len(await node.gather(Answer, node.clients, timeout_s=0.05)))


async def answering(node, p):
    async for round_ in node.rounds(of=node.server):
        with round_:
            chunk = await node.recv(Chunk, node.server)
            node.send(node.server, Answer(len(chunk.values)))


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_f25_every_copy_is_delivered_lost_or_in_flight_with_its_bytes_on_every_link(sharing):
    """Over two hops, with losses, a link and a node that fail: counted from the journal alone."""
    import networkx as nx

    graph = nx.Graph()
    graph.add_nodes_from((name, {"role": name.rstrip("123456")}) for name in TREE["nodes"])
    graph.add_edges_from(TREE["links"])
    world = run_world(
        {"server": asking, "client": answering}, stop=Stop(rounds=40),
        topology=TopologySpec(graph=graph, roles={role: _by_role(role) for role in ("server", "client")}),
        links=[LinkRule("*", latency_ns=2 * MS, bandwidth_bps=10**7, outage=OutageSpec(0.2), sharing=sharing)],
        faults=[LinkDown(300 * MS, "a", "client2", 200 * MS), Crash(500 * MS, "client3", 300 * MS)])
    assert not world.invariants.violations
    sent = {(row[2], row[3]): row for row in world.rows if row[0] == R.SEND}
    delivered = {(row[2], row[3]) for row in world.rows if row[0] == R.DELIVER}
    lost = {(row[2], row[3]) for row in world.rows if row[0] == R.LOST}
    assert len(sent) > 300
    assert len(lost) > 50
    assert not delivered & lost
    assert delivered | lost <= set(sent)
    flight = set(sent) - delivered - lost
    last = max(row[1] for row in world.rows)
    assert all(last - sent[copy][1] < 60 * MS for copy in flight)
    hops = [(row[2], row[3], row[7] if row[0] == R.SEND else row[4]) for row in world.rows
            if row[0] in (R.SEND, R.HOP)]
    per_copy = {}
    for source, seq, wire in hops:
        per_copy.setdefault((source, seq), []).append(wire)
    # two hops for what arrived, one or two for what did not, all of the same bytes
    assert all(len(per_copy[copy]) == 2 for copy in delivered)
    assert all(1 <= len(wires) <= 2 and len(set(wires)) == 1 for wires in per_copy.values())


def _by_role(role):
    from emul.network import RoleRule

    return RoleRule("attribute", attribute="role", value=role)


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
@pytest.mark.parametrize("p", [0, 1])
def test_f26_certain_outcomes_and_no_time(p, sharing):
    """Losses of probability 0 or 1, no latency, no limit of bandwidth: a run ends, at once."""
    world = run_world({"server": waiting, "client": answering}, stop=Stop(rounds=5), links=[
        LinkRule("*", latency_ns=0, sharing=sharing), LinkRule("client*->server", outage=OutageSpec(p))])
    assert reported(world, "got") == [3 * (1 - p)] * 5
    assert world.kernel.end_ns == 0


async def waiting(node, p):
    """As `asking`, until every fate is known."""
    async for round_ in node.rounds():
        with round_:
            node.broadcast(node.clients, Chunk(np.zeros(10, np.float32)))
            node.report(got=len(await node.gather(Answer, node.clients)))


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
def test_f26_a_link_down_for_ever_ends_a_run_all_the_same(sharing):
    world = run_world({"server": waiting, "client": answering}, stop=Stop(rounds=5),
                      links=[LinkRule("*", latency_ns=MS, bandwidth_bps=10**8, sharing=sharing)],
                      faults=[LinkDown(0, "server", "client1")])
    assert reported(world, "got") == [2] * 5


# --- F27 ------------------------------------------------------------------------------------------------------------

def fast(k=1, clients=3):
    """A run in which client i has i ms of latency and a bandwidth of 2^(1 - i) bytes a ns; k scales all times."""
    async def server(node, p):
        async for round_ in node.rounds():
            with round_:
                cohort = node.clients[:3]
                node.broadcast(cohort, Chunk(np.zeros(1000, np.float32)))
                await node.gather(Answer, cohort)
                await node.compute("aggregate", int)

    links = [LinkRule("*", latency_ns=MS * k)] + [
        LinkRule(f"client{i}<->server", latency_ns=i * MS * k, bandwidth_bps=2 * BYTE_A_NS // k >> i)
        for i in (1, 2, 3)]
    return run_world({"server": server, "client": answering}, clients=clients, links=links, stop=Stop(rounds=4),
                     costs={"aggregate": 0.003 * k})


def times(world, scale=1):
    kinds = (R.SEND, R.DELIVER, R.ENTER, R.LEAVE, R.COMPUTED)
    return [(row[0], row[1] * scale, *row[2:4]) for row in world.rows if row[0] in kinds]


def test_f27_all_times_scaled_scale_the_log():
    """Latencies and costs times k, bandwidths over k: every time of the journal times k, exactly."""
    assert times(fast(8)) == times(fast(), 8)


def test_f27_an_idle_node_changes_nothing():
    idle = 4
    more = [row for row in fast(clients=4).rows if row[0] in (R.SEND, R.DELIVER, R.COMPUTED) and row[2] != idle]
    assert more == [row for row in fast().rows if row[0] in (R.SEND, R.DELIVER, R.COMPUTED)]


def test_f27_clients_that_change_places_change_places_in_the_log():
    """Client i gets the link of another one: its deliveries are at the times of that one."""
    def deliveries(places):
        links = [LinkRule("*", latency_ns=MS)] + [
            LinkRule(f"client{i + 1}<->server", latency_ns=(place + 1) * MS, bandwidth_bps=BYTE_A_NS * (place + 1))
            for i, place in enumerate(places)]
        world = run_world({"server": waiting, "client": answering}, links=links, stop=Stop(rounds=4))
        target = {(row[2], row[3]): row[4] for row in world.rows if row[0] == R.SEND}
        found = {}
        for row in world.rows:
            if row[0] == R.DELIVER:
                client = max(row[2], target[row[2], row[3]])
                found.setdefault(places[client - 1], []).append((row[1], row[2] == client))
        return found

    assert deliveries([0, 1, 2]) == deliveries([2, 0, 1])


# --- F28, F29 -------------------------------------------------------------------------------------------------------

async def ring_all_reduce(node, p):
    """Every node ends with the sum of all vectors: n - 1 steps of reducing, n - 1 of handing on the sums."""
    ring, i = node.nodes("peer"), node.index
    n = len(ring)
    right, left = ring[(i + 1) % n], ring[(i - 1) % n]
    chunks = [np.full(500, 1.0 + i + 10 * c, np.float32) for c in range(n)]
    async for round_ in node.rounds():
        with round_:
            for step in range(n - 1):
                node.send(right, Chunk(chunks[(i - step) % n]))
                received = await node.recv(Chunk, left)
                chunks[(i - step - 1) % n] = chunks[(i - step - 1) % n] + received.values
            for step in range(n - 1):
                node.send(right, Chunk(chunks[(i - step + 1) % n]))
                chunks[(i - step) % n] = (await node.recv(Chunk, left)).values
            sums = [float(chunk[0]) for chunk in chunks]
            node.report(sound=sums == [sum(1.0 + j + 10 * c for j in range(n)) for c in range(n)])


def complete(n):
    return TopologySpec(generator="complete", peers=n)


def one_wire(world):
    (wire,) = {row[7] for row in world.rows if row[0] == R.SEND}
    return wire


@pytest.mark.parametrize("sharing", ["fifo", "maxmin"])
@pytest.mark.parametrize("n", [2, 3, 8])
def test_f28_ring_all_reduce(n, sharing):
    """2 (n - 1)(d + S / (n C)), S / n being the bytes of a chunk on the wire: exactly."""
    latency, bandwidth = 3 * MS, 10**7
    world = run_world({"peer": ring_all_reduce}, topology=complete(n),
                      links=[LinkRule("*", latency_ns=latency, bandwidth_bps=bandwidth, sharing=sharing)])
    assert [row[4]["sound"] for row in world.rows if row[0] == R.REPORT] == [True] * n
    assert 2000 < one_wire(world) < 2200                    # 500 float32, header and envelope
    assert world.kernel.end_ns == 2 * (n - 1) * (latency + ceil(8 * S * one_wire(world) / bandwidth))


@pytest.mark.parametrize("m", [1, 2, 4])
def test_f29_binomial_tree_broadcast(m):
    """n = 2^m, a node calls one at a time and is occupied until the call is over: m (d + S / C), exactly."""
    latency, bandwidth = 3 * MS, 10**7
    wire = ENVELOPE_BYTES + encode(Chunk(np.ones(500, np.float32))).size
    call_ns = latency + ceil(8 * S * wire / bandwidth)

    async def peer(node, p):
        peers, i, have = node.nodes("peer"), node.index, None
        async for round_ in node.rounds():
            with round_:
                if i == 0:
                    have, first = Chunk(np.ones(500, np.float32)), 0
                else:
                    first = i.bit_length()          # it is called in step first - 1, by the node without its top bit
                    have = Chunk((await node.recv(Chunk, peers[i - (1 << first - 1)])).values)
                for step in range(first, m):
                    node.send(peers[i + (1 << step)], have)
                    await node.sleep(call_ns / S)
                node.report(step=node.now_ns / call_ns)

    world = run_world({"peer": peer}, topology=complete(2**m),
                      links=[LinkRule("*", latency_ns=latency, bandwidth_bps=bandwidth)])
    assert one_wire(world) == wire
    assert sum(row[0] == R.DELIVER for row in world.rows) == 2**m - 1
    assert world.kernel.end_ns == m * call_ns
    assert {row[4]["step"] for row in world.rows if row[0] == R.REPORT} == {m}


# --- F30 ------------------------------------------------------------------------------------------------------------

async def chatty(node, p):
    """Another scheme than `answering`: three messages of other sizes at other times."""
    async for round_ in node.rounds(of=node.server):
        with round_:
            await node.recv(Chunk, node.server)
            for i in range(3):
                node.send(node.server, Chunk(np.zeros(70 * i + node.id, np.float32)))
                await node.sleep(0.0007)
            node.send(node.server, Answer())


def states(roles, unit, slot_ns=None):
    """{(source, round or slot): was its uplink in outage}, as far as messages met it."""
    world = run_world(roles, clients=6, stop=Stop(rounds=60), links=[
        LinkRule("*", latency_ns=MS, bandwidth_bps=10**8),
        LinkRule("client*->server", outage=OutageSpec(0.3, unit, slot_ns))])
    lost = {(row[2], row[3]) for row in world.rows if row[0] == R.LOST}
    known = lost | {(row[2], row[3]) for row in world.rows if row[0] == R.DELIVER}
    found, free = {}, {}
    for row in world.rows:
        if row[0] == R.SEND and row[2] != 0:
            _, _, source, seq, _, _, _, wire, round, *_ = row
            start = max(row[1], free.get(source, 0))
            free[source] = start + ceil(8 * S * wire / 10**8)
            if (source, seq) in known:
                key = source, round if unit == "round" else start // slot_ns
                assert found.setdefault(key, (source, seq) in lost) == ((source, seq) in lost)
    return found


@pytest.mark.parametrize(("unit", "slot_ns"), [("round", None), ("slot", 5 * MS)])
def test_f30_two_schemes_meet_the_same_links(unit, slot_ns):
    """At equal (link, round) or (link, slot) the state of the link is the same, whatever is sent."""
    one = states({"server": asking, "client": answering}, unit, slot_ns)
    other = states({"server": asking, "client": chatty}, unit, slot_ns)
    both = one.keys() & other.keys()
    assert len(both) > 50
    assert {one[key] for key in both} == {True, False}
    assert {key: one[key] for key in both} == {key: other[key] for key in both}
