"""Elastic background traffic in whole runs: digests, records, tables, deadlocks, errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.preview.explain import explain
from emul.scenario import loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests
from tests.test_background_traffic import LINKS, TEXT

MESSAGES = "messages: {every: {exponential: 15 ms}, size: {pareto: {shape: 1.5, mean: 4 kB}}}"
MEAN = "messages: {every: {exponential: 80 ms}, size: {exponential: 40 kB}}"
KINDS = {
    "listed": [f"{{link: '*', name: m, {MESSAGES}}}"],
    "routed": [f"{{flow: 'client1->client*', name: r, {MESSAGES}}}", f"{{flow: '*->server', {MESSAGES}, for: 200 ms}}"],
    "greedy": ["{flow: 'client*->server', name: g, greedy: 2, at: 30 ms}",
               "{link: 'server->client1', greedy: 1, for: 150 ms}"]}
STAR = ["topology={generator: star, clients: 3}"]
# by what a network is made of: what may load it
CASES = [(links, kind) for links in LINKS for kind in KINDS if links != "tcp_fifo"
         and (kind != "greedy" or any("sharing=" in text for text in LINKS[links]))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("elastic")


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def scenario(folder: Path, *sets: str, text: str = TEXT):
    return loads(text, "elastic", [*STAR, *sets], base=folder)


def traffic(*kinds: str) -> str:
    return f"traffic=[{', '.join(entry for kind in kinds for entry in KINDS[kind])}]"


def go(folder: Path, twin: Twin, scheme: str, *sets: str):
    result, = engine.run(scenario(folder, *sets), scheme=scheme, workers=twin, out=folder / "runs")
    assert result.error is None, result.error
    assert result.violations == ()
    return result


def drawn(result):
    """The rows of elastic traffic in a run's record, up to its end."""
    network = load_run(result.directory).network
    found = network[network.what.isin(["arrival_bytes", "greedy_flows"])]
    return found.drop(columns=["round"]).reset_index(drop=True)


@pytest.mark.parametrize(("links", "kind"), CASES)
def test_a_run_repeats_itself_on_its_record_without_the_traffic_of_its_scenario(folder, twin, links, kind):
    first = go(folder, twin, "fedavg", *LINKS[links], traffic(kind))
    again = go(folder, twin, "fedavg", *LINKS[links], f"network={{replay: '{first.directory}', beyond: error}}")
    assert again.summary["digest"] == first.summary["digest"]
    assert set(again.summary["network_beyond"].values()) == {0}
    assert first.summary["digest"] != go(folder, twin, "fedavg", *LINKS[links]).summary["digest"]
    told, repeated = drawn(first), drawn(again)
    assert len(told) > 0
    assert told.equals(repeated)
    table = load_run(first.directory).traffic
    assert (table.offered_bytes == table.carried_bytes + table.dropped_bytes).all()
    assert table.carried_bytes.sum() > 0
    assert first.summary["bytes_background"] == again.summary["bytes_background"]
    assert first.summary["bytes_background"]["carried_bytes"] == table.carried_bytes.sum()


@pytest.mark.parametrize("links", ["fifo", "maxmin"])
def test_two_schemes_meet_the_same_arrivals_and_an_added_entry_changes_none(folder, twin, links):
    a = drawn(go(folder, twin, "fedavg", *LINKS[links], traffic("routed")))
    b = drawn(go(folder, twin, "secagg", *LINKS[links], traffic("routed")))
    more = drawn(go(folder, twin, "fedavg", *LINKS[links], traffic("listed", "routed")))
    keys = ["source", "destination", "sender", "receiver", "k", "start_ns"]
    both = a.dropna(subset=["value"]).merge(b, on=keys)
    assert len(both) > 20
    assert (both.value_x == both.value_y).all()
    routed = more.dropna(subset=["sender"])
    assert a.merge(routed, on=[*keys, "value"]).shape[0] >= len(a) - 6       # the last ones of six pairs may differ


@pytest.mark.parametrize("links", ["fifo", "maxmin", "connections"])
def test_one_digest_whatever_the_number_of_workers(folder, twin, links, pools: list[Workers]):
    loaded = scenario(folder, *LINKS[links], traffic("listed", "routed"))
    alone = digests(loaded, twin)
    assert digests(loaded, pools[1]) == alone


STUCK = """
emul: 1
name: stuck
seed: 7
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 4 Mbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}]
stop: {rounds: 4}
faults: [{at: 50 ms, link: client1->server, down: true, inflight: pause}]
"""


@pytest.mark.parametrize("links", ["fifo", "maxmin", "connections"])
def test_background_keeps_no_run_alive(folder, twin, links):
    """A paused link never goes on, and its message stands still: the run is deadlocked, whatever else flows."""
    kinds = ("listed", "routed") if links == "fifo" else ("listed", "routed", "greedy")
    result, = engine.run(scenario(folder, *LINKS[links], traffic(*kinds), text=STUCK), workers=twin,
                         out=folder / "stuck")
    assert result.error is not None
    assert "deadlock" in result.error


@pytest.mark.parametrize(("sharing", "entry", "bandwidth", "expected", "load"), [
    ("maxmin", "greedy: 3", "40 Mbit/s", 0.8, 0), ("maxmin", MEAN, "10 Mbit/s", 4 / 3, 0.4),
    ("fifo", MEAN, "10 Mbit/s", 0.8 + 0.021333, 0.4), ("fifo", MEAN.replace("exponential: 40 kB", "pareto: {shape: 5, "
     "mean: 40 kB}"), "10 Mbit/s", 0.8 + 0.011378, 0.4)])
def test_explain_tells_the_time_beside_elastic_traffic(folder, sharing, entry, bandwidth, expected, load):
    """Cases A5, A6 and A7: 1 MB."""
    loaded = scenario(folder, f"links[0].bandwidth={bandwidth}", "links[0].latency=0 s", f"links[0].sharing={sharing}",
                      f"traffic=[{{link: '*->server', {entry}}}]", "schemes=[fedavg]")
    up = next(row for row in explain(loaded, 10**6)["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["load"]["max"] == pytest.approx(load)
    assert up["seconds_loaded"]["max"] == pytest.approx(expected, abs=1e-6)


def test_messages_beyond_a_link_warn(folder):
    warning, = scenario(folder, "traffic=[{link: 'client1->server', messages: {every: 80 ms, size: 40 kB}}]").warnings
    assert "nothing is left for messages on client1->server (4 Mbit/s on 4 Mbit/s)" in warning


@pytest.mark.parametrize(("written", "sets", "said"), [
    ("{link: 'client1->server', greedy: 1}", ["links[0].sharing=tcp_fifo", "links[0].transport={tcp: {}}"],
     "client1->server has sharing: tcp_fifo"),
    ("{link: 'client1->server', greedy: 1}", ["links[0].sharing=maxmin", "links[0].bandwidth=infinite"],
     "has no bandwidth that greedy flows could share"),
    ("{flow: 'client1->client2', " + MESSAGES + "}",
     ["links=[{match: '*', bandwidth: 4 Mbit/s}, {match: 'client1->server', sharing: maxmin}]"],
     "the route from client1 to client2 has links that share their bandwidth and links that do not")])
def test_what_does_not_go_together(folder, written, sets, said):
    with pytest.raises(ScenarioError) as error:
        scenario(folder, *sets, f"traffic=[{written}]")
    assert said in str(error.value)


@pytest.mark.parametrize("kind", [
    "messages: {every: 1 s, size: 40 kB}", "messages: {every: {exponential: 1 s}, size: {exponential: 4 kB}}",
    "messages: {every: {weibull: {shape: 0.7, scale: 1 s}}, size: {uniform: [1 kB, 2 kB]}}",
    "messages: {every: {pareto: {shape: 2, mean: 1 s}}, size: {lognormal: {median: 1 kB, sigma: 1}}}", MESSAGES])
def test_an_entry_written_back_is_the_same(folder, kind):
    given = scenario(folder, "traffic=[{link: '*', " + kind + ", at: 1 s, for: 2 s}, {flow: 'client1->server', "
                     "name: n, " + kind + "}, {link: '*', " + kind + ", at: 1 s, for: 2 s}]")
    again = loads(given.resolved(), "again", base=folder / "elsewhere")
    assert again == given
    assert again.traffic[0].key + " #2" == again.traffic[2].key


def test_what_waits_to_begin_anew_is_not_forgotten_beside_background_while_another_message_stands_still(
        folder: Path, twin: Twin) -> None:
    (folder / "cut.csv").write_text("start_s,end_s,source,destination,rate_mbps,latency_ms\n"
                                    "0,1,client1,server,0.01,100\n1.02,inf,client1,server,0.01,100\n")
    sets = ["links=[{match: '*', bandwidth: 10 Mbit/s, sharing: maxmin, latency: 1 ms}]",
            "contacts={file: cut.csv, gap: again}", "compute={mode: zero}", "stop={rounds: 1}",
            "schemes=[{name: fedavg, deadline: 50 s}]",
            "faults=[{at: 1 ms, link: 'client2->server', down: true, inflight: pause}]"]
    alone, beside = (load_run(go(folder, twin, "fedavg", *sets, *more).directory).rounds for more in (
        [], ["traffic=[{link: 'client3->server', name: bg, messages: {every: 1 ms, size: 10 B}}]"]))
    assert list(alone["received"]) == list(beside["received"])


@pytest.mark.parametrize("seed", [4, 5])
def test_background_that_ends_with_the_run_is_counted(seed: int, folder: Path, twin: Twin) -> None:
    go(folder, twin, "fedavg", f"seed={seed}",
       "links=[{match: '*', latency: 20 ms, bandwidth: 1 Mbit/s, sharing: maxmin},"
       " {match: 'client1->server', outage: {model: bernoulli, p: 0.5, per: message}}]",
       "traffic=[{link: '*', messages: {every: {exponential: 200 ms}, size: 10 kB}}]",
       "topology={generator: star, clients: 4}",
       "task={data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}",
       "compute={mode: zero}", "schemes=[{name: fedavg, deadline: 1 s}]", "stop={rounds: 5}")


def test_what_no_plan_delivers_any_more_is_lost_on_the_link_that_gave_it_back(folder: Path, twin: Twin) -> None:
    (folder / "back.csv").write_text("start_s,end_s,source,destination,rate_mbps,latency_ms\n"
                                     "1,1.05,client3,server,5,10\n3.5,4.5,server,client4,0.1,10\n")
    go(folder, twin, "gossip", "seed=13", "topology={generator: star, clients: 4}",
       "contacts={file: back.csv, gap: again, routes: earliest}",
       "links=[{match: '*', latency: 20 ms, bandwidth: 1 Mbit/s, sharing: maxmin}]",
       "task={data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16, keep: true}}}",
       "compute={mode: zero}", "schemes=[{name: gossip, deadline: 2 s}]", "stop={rounds: 4, virtual_time: 60 s}")
