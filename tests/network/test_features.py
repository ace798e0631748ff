"""Whole runs over links with each feature: the invariants hold, and a run does not depend on its workers."""

from __future__ import annotations

import pytest

from emul import engine, scenario
from emul.base.errors import NetworkError
from emul.network import FullLink, Link, LinkRule, OutageSpec, Queue, Switching, TopologySpec, build

STAR = TopologySpec(generator="star", clients=3)

RUN = """emul: 1
name: features
seed: 3
topology: {generator: star, clients: 4}
links:
  - {match: "*", latency: 5 ms, bandwidth: 2 Mbit/s, overhead: {preset: ethernet_udp}}
  - {match: "*", %s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [fedavg, %s]
stop: {rounds: 3}
"""
CASES = {
    "reliable": "outage: {model: bernoulli, p: 0.05, per: packet}, transport: reliable",
    "stop and wait": "outage: {model: bernoulli, p: 0.4}, transport: {arq: stop_and_wait, retries: 2, ack_loss: 0.1}",
    "tcp": "outage: {model: bernoulli, p: 0.01, per: packet}, transport: {tcp: pftk}",
    "half duplex": "duplex: half",
    "queue": "queue: 2 kB",
    "packetized": "switching: packetized",
    "cut-through": "switching: cut_through, outage: {model: bernoulli, p: 0.2}",
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_over_such_links_keeps_the_invariants(name, tmp_path):
    loaded = scenario.loads(RUN % (CASES[name], "fl_ideal"))
    for result in engine.run(loaded, workers=0, out=tmp_path):
        assert result.error is None
        assert result.summary["invariants"] == "hold"
        assert result.summary["rounds"] == 3
        if name in ("reliable", "tcp", "half duplex", "packetized"):
            assert result.summary["messages_lost"] == 0


def test_two_workers_see_what_one_process_does(tmp_path):
    loaded = scenario.loads(RUN % (CASES["reliable"] + ", duplex: half, queue: 100 packets", "fl_ideal"))
    alone, two = (engine.run(loaded, scheme="fedavg", workers=n, out=tmp_path)[0] for n in (0, 2))
    assert alone.error is None
    assert alone.summary["digest_journal"] == two.summary["digest_journal"]


# --- which link serves what -----------------------------------------------------------------------------------------

def test_a_link_without_features_stays_plain():
    plain = build(STAR, [LinkRule("*", latency_ns=5, outage=OutageSpec(0.1), overhead_bytes=5, mtu=10)], 7)
    assert {type(plain.link(u, v)) for u, v in ((0, 1), (1, 0))} == {Link}
    for rule in (LinkRule("*", queue=Queue(5)), LinkRule("*", duplex="half"),
                 LinkRule("*", outage=OutageSpec(0.1, "slot", 10, span="pause"))):
        assert type(build(STAR, [rule], 7).link(0, 1)) is FullLink


def test_where_one_link_hands_on_heads_all_know_tails():
    network = build(STAR, [LinkRule("client1->server", switching=Switching("cut_through"))], 7)
    assert (network.link(1, 0).cut, network.link(0, 2).cut) == (True, False)
    assert isinstance(network.link(0, 2), FullLink)


def test_half_duplex_is_one_link():
    network = build(STAR, [LinkRule("*", duplex="half", outage=OutageSpec(0.5))], 7)
    link = network.link(1, 0)
    assert link is network.link(0, 1)
    assert link.half_duplex
    assert network.link(2, 0) is not link
    other = build(STAR, [LinkRule("*", duplex="half", outage=OutageSpec(0.5))], 7)
    there, back = ([net.link(*ends).offer(0, None, 1, t) for t in range(40)] for net, ends in
                   ((network, (0, 1)), (other, (1, 0))))
    assert there == back                    # streams of the pair, whoever is asked first


def test_half_duplex_directions_share_the_time():
    network = build(STAR, [LinkRule("*", bandwidth_bps=8 * 10**9, duplex="half", latency_ns=3)], 7)
    network.link(0, 1).offer(0, "there", 100, 1)
    network.link(1, 0).offer(0, "back", 100, 1)
    assert network.link(0, 1).next_change() == 103
    assert [item for item, *_ in network.link(1, 0).advance(203)] == ["there", "back"]


@pytest.mark.parametrize("rules", [
    [LinkRule("*", duplex="half"), LinkRule("server->client*", bandwidth_bps=10**6)],
    [LinkRule("client*->server", duplex="half")]])
def test_the_directions_of_a_half_duplex_link_must_agree(rules):
    with pytest.raises(NetworkError, match="one medium") as caught:
        build(STAR, rules, 7)
    first, = str(caught.value).splitlines()[1:]
    assert "server->client1 and client1->server" in first or "client1->server and server->client1" in first
