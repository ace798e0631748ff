"""Whole runs over links with each feature: the invariants hold, and a run does not depend on its workers."""

from __future__ import annotations

import pytest

from emul import engine, scenario
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
    "tcp": "outage: {model: bernoulli, p: 0.01, per: packet}, transport: {tcp: {}}, sharing: connections",
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
        if name in ("reliable", "tcp", "packetized"):
            assert result.summary["messages_lost"] == 0


def test_two_workers_see_what_one_process_does(tmp_path):
    loaded = scenario.loads(RUN % (CASES["reliable"] + ", queue: 100 packets", "fl_ideal"))
    alone, two = (engine.run(loaded, scheme="fedavg", workers=n, out=tmp_path)[0] for n in (0, 2))
    assert alone.error is None
    assert alone.summary["digest_journal"] == two.summary["digest_journal"]


# --- which link serves what -----------------------------------------------------------------------------------------

def test_a_link_without_features_stays_plain():
    plain = build(STAR, [LinkRule("*", latency_ns=5, outage=OutageSpec(0.1), overhead_bytes=5, mtu=10)], 7)
    assert {type(plain.link(u, v)) for u, v in ((0, 1), (1, 0))} == {Link}
    for rule in (LinkRule("*", queue=Queue(5)),
                 LinkRule("*", outage=OutageSpec(0.1, "slot", 10, span="pause"))):
        assert type(build(STAR, [rule], 7).link(0, 1)) is FullLink


def test_where_one_link_hands_on_heads_all_know_tails():
    network = build(STAR, [LinkRule("client1->server", switching=Switching("cut_through"))], 7)
    assert (network.link(1, 0).cut, network.link(0, 2).cut) == (True, False)
    assert isinstance(network.link(0, 2), FullLink)
