"""Every scheme over networks with everything in use: what is written down computes again, to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emul import engine
from emul.registry import schemes
from emul.scenario import loads
from emul.workers.pool import Workers

HEAD = """emul: 1
name: everything
seed: 5
topology: {{generator: star_mesh, clients: 5, servers: {servers}}}
links:
  - {{match: "*", latency: 5 ms, bandwidth: 5 Mbit/s, overhead: {{preset: ethernet_udp}}}}
{links}
faults:
{faults}
task: {{data: {{set: digits}}, model: logistic, partition: iid, solver: {{sgd: {{lr: 0.1, steps: 2, batch: 16}}}}}}
compute: {{mode: zero}}
schemes: [{scheme}]
stop: {{rounds: {rounds}, virtual_time: 1 h}}
"""

FIFO = """
  - {match: "client1->*", outage: {model: gilbert_elliott, p: 0.2, r: 0.5, 1-h: 0.9, per: message}}
  - {match: "client2->*", outage: {model: bernoulli, p: 0.01, per: packet}}
  - {match: "client2->*", transport: {arq: selective_repeat, ack_loss: 0.1}}
  - {match: "client3->*", outage: {model: on_off, up: 100 ms, down: 30 ms, span: pause}, queue: 100 kB}
  - match: "client4->*"
    outage: {model: fading, coherence: 20 ms, snr: 10 dB, spectral_efficiency: 1, span: any_slot}
  - {match: "client5->*", outage: {model: gilbert, p: 0.1, r: 0.5, per: slot, slot: 10 ms}}
  - {match: "client5->*", switching: packetized}
  - {match: "server*->client1", latency: {distribution: lognormal, median: 20 ms, sigma: 0.5}}
  - {match: "server*->client2", latency: {distribution: pareto, mean: 20 ms, jitter: 5 ms, reorder: true}}
  - {match: "server*->client2", queue: 20 packets}
  - {match: "server*->client3", latency: {distribution: normal, mean: 20 ms, jitter: 3 ms}}
  - {match: "server*->client3", transport: {arq: stop_and_wait}}
  - {match: "server*->client4", transport: reliable, outage: {model: bernoulli, p: 0.01, per: packet}}
  - {match: "client4<->client5", outage: none, switching: store_and_forward}
"""
FLOWS = """
  - {match: "*", sharing: SHARING, outage: {model: bernoulli, p: 0.1, per: slot, slot: 25 ms}}
  - {match: "client1->*", latency: {distribution: uniform, mean: 10 ms, jitter: 5 ms}}
  - {match: "client3->*", outage: {model: bernoulli, p: 0.02, per: packet}}
  - {match: "client4->*", outage: {model: on_off, up: 100 ms, down: 30 ms}}
  - {match: "client5->*", sharing: fifo, outage: {model: bernoulli, p: 0.2, per: round}}
"""
FAULTS = """
  - {at: 40 ms, link: "client1<->server*", down: true, for: 20 ms, inflight: pause}
  - {at: 60 ms, link: "client2->*", set: {latency: 1 ms, bandwidth: 1 Mbit/s}, for: 50 ms}
  - {at: 90 ms, partition: [[client1, client2], ["*"]], for: 30 ms, inflight: deliver}
  - {at: 120 ms, node: client3, leave: true, for: 60 ms}
  - {at: 150 ms, node: client5, crash: true, for: 40 ms}
  - churn: {match: client4, up: {weibull: {shape: 0.6, scale: 300 ms}}, down: {exponential: 50 ms}}
  - group: {match: "client[1-2]", every: {exponential: 500 ms}, down: {lognormal: {median: 30 ms, sigma: 0.5}}, p: 0.7}
"""
FEW_MESSAGES = {"async_diloco", "fedasync", "fedat", "fedbuff", "noloco"}          # in a round
NETWORKS = {"fifo": FIFO, "maxmin": FLOWS.replace("SHARING", "maxmin")}


def written(scheme: str, network: str) -> str:
    """The scheme's EXAMPLE on another network: its entry, model, root data, clusters and number of servers. The mesh
    has no edges: a client is one, for a scheme with that role. Three rounds of an asynchronous scheme are three
    updates, and those of noloco a message a peer, over before anything is lost: they get more."""
    found = schemes.find(scheme)
    example = loads(found.example, scheme)
    servers = example.topology.servers or 1
    entry = example.document()["schemes"][0]
    if "edge" in found.roles:
        entry["places"] = {"edge": "client5", "client": [f"client{number}" for number in range(1, 5)]}
    text = HEAD.format(servers=servers, links=NETWORKS[network], faults=FAULTS, scheme=json.dumps(entry),
                       rounds=40 if scheme in FEW_MESSAGES else 3)
    needed = "".join(f"{key}: {json.dumps(example.task[key])}, " for key in ("root", "clusters") if key in example.task)
    text = text.replace("model: logistic", f"{needed}model: {example.task['model']}")
    if scheme.startswith("vertical"):   # each client has columns of its own
        text = text.replace("partition: iid", "partition: {columns: {groups: 5, common: 0.8}}")
    return text if servers > 1 else text.replace("server1", "server")


@pytest.mark.slow
@pytest.mark.parametrize("network", [
    "maxmin", *(pytest.param(one, marks=pytest.mark.release) for one in NETWORKS if one != "maxmin")])
@pytest.mark.parametrize("scheme", schemes.known())
def test_a_run_with_everything_in_use_is_replayed_to_the_bit(scheme: str, network: str, tmp_path: Path,
                                                             pools: list[Workers]) -> None:
    (result,) = engine.run(loads(written(scheme, network)), workers=0, out=tmp_path)
    assert result.error is None, result.error
    assert result.violations == ()
    assert result.directory is not None
    assert result.summary is not None
    ideal = schemes.find(scheme).ideal_links        # links that lose nothing, for this one
    assert ideal or scheme == "local" or result.summary["messages_lost"] > 0
    assert engine.replay(result.directory, workers=pools[1]) == result.summary["digest"]
