"""Routes by the earliest arrival in whole runs: digests for any number of workers, replay, records, losses, explain."""

from __future__ import annotations

from pathlib import Path

import pytest

from emul import engine, load_run
from emul.base.errors import ScenarioError
from emul.preview.explain import explain, notes
from emul.scenario import Scenario, loads
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests
from tests.test_contact_plans import HEADER, PASSES, PLAN, moving, rows

EARLIEST = "contacts.routes=earliest"
TEXT = """
emul: 1
name: relayed
seed: 7
topology: {generator: ring, nodes: 5, roles: {server: [n1], client: [n2, n3, n4]}}
links:
  - {match: "*", latency: 20 ms, bandwidth: 4 Mbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}, {name: secagg, threshold: 2}]
stop: {rounds: 4}
"""


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def turns(rate: str = "0.5") -> str:
    """A ring in which each link transmits for 0.3 s in every second, both ways, one after the other; slowly, so that
    messages wait for each other and miss the contacts that they set out for."""
    found = [HEADER]
    for k in range(200):
        for i in range(5):
            ends = f"n{i + 1}", f"n{(i + 1) % 5 + 1}"
            for a, b in (ends, ends[::-1]):
                found.append(f"{k + 0.17 * i:.2f},{k + 0.17 * i + 0.3:.2f},{a},{b},{rate},{20 + (k + i) % 3}\n")
    return "".join(found)


def relayed(folder: Path, plan: str, *sets: str) -> Scenario:
    (folder / "plan.csv").write_text(plan)
    return loads(TEXT, "relayed", [PLAN, EARLIEST, *sets], base=folder)


def test_on_a_star_there_is_no_choice(tmp_path, twin):
    assert digests(moving(tmp_path, PASSES, PLAN, EARLIEST), twin) == digests(moving(tmp_path, PASSES, PLAN), twin)
    assert (digests(moving(tmp_path, rows(("0", "inf")), PLAN, EARLIEST), twin)
            == digests(moving(tmp_path, rows(("0", "inf"))), twin))


GRID = ("topology={generator: grid, rows: 3, columns: 3, roles: {server: [n1], client: [n5, n6, n8]}}",
        "links=[{match: '*', latency: 20 ms}, {match: 'n1<->n2', latency: 25 ms}]")


def test_without_limits_and_gaps_routes_are_those_of_latencies(tmp_path, twin):
    """The one link of the plan is on no way. Of the ways over the grid many are as good as each other."""
    for sets in (GRID, (*GRID, "links[0].sharing=maxmin")):
        timed = relayed(tmp_path, f"{HEADER}0,1,n9,n8,1,1\n", *sets)
        assert digests(timed, twin) == digests(loads(TEXT, "relayed", sets, base=tmp_path), twin)


LINKS = {"plain": [], "outage": ["links[0].outage={model: bernoulli, p: 0.1}"],
         "queue": ["links[0].queue=20 kB"], "again": ["contacts.gap=again"], "shared": ["links[0].sharing=maxmin"],
         "connections": ["links[0].sharing=connections", "contacts.gap=drop",
                         "links[0].outage={model: bernoulli, p: 0.1}"],
         "faults": ["faults=[{at: 1 s, link: n1->n2, down: true, for: 2 s, inflight: pause}, {at: 2 s, link: n5->n1, "
                    "set: {bandwidth: 2 Mbit/s, latency: 5 ms}, for: 3 s}]"]}


@pytest.mark.parametrize("links", LINKS)
def test_one_digest_whatever_the_number_of_workers(tmp_path, twin, links, pools: list[Workers]):
    scenario = relayed(tmp_path, turns(), *LINKS[links])
    expected = digests(scenario, twin)
    assert digests(scenario, pools[1]) == expected
    assert expected != digests(relayed(tmp_path, turns(), *LINKS[links], "contacts.routes=fixed"), twin)


@pytest.mark.parametrize("scheme", ["fedavg", "secagg"])
def test_a_run_keeps_all_that_must_hold_and_is_replayed(tmp_path, twin, scheme, pools: list[Workers]):
    result, = engine.run(relayed(tmp_path, turns()), scheme=scheme, workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    messages = load_run(result.directory).messages
    assert (messages.fate == "delivered").all()
    assert engine.replay(result.directory, workers=pools[1]) == result.summary["digest"]


def test_a_run_on_the_record_of_another_meets_the_same_plan_and_losses(tmp_path, twin):
    lossy = "links[0].outage={model: bernoulli, p: 0.1}"
    first, = engine.run(relayed(tmp_path, turns(), lossy), scheme="fedavg", workers=twin, out=tmp_path / "runs")
    again, = engine.run(relayed(tmp_path, turns(), "seed=8", lossy, f"network={{replay: '{first.directory}'}}"),
                        scheme="fedavg", workers=twin, out=tmp_path / "runs")
    tables = [load_run(one.directory).messages[["source", "target", "sent_ns", "arrived_ns", "lost_ns"]]
              for one in (first, again)]
    assert tables[0].equals(tables[1])
    assert tables[0].lost_ns.notna().any()


def test_a_relay_is_taken_where_it_is_sooner(tmp_path, twin):
    """n3 meets the server's side over n2 or over n4 and n5: what is sooner changes with the contacts."""
    result, = engine.run(relayed(tmp_path, turns("8")), scheme="fedavg", workers=twin, out=tmp_path / "runs")
    fixed, = engine.run(relayed(tmp_path, turns("8"), "contacts.routes=fixed"), scheme="fedavg", workers=twin,
                        out=tmp_path / "runs")
    assert result.summary["virtual_seconds"] < fixed.summary["virtual_seconds"]
    messages = load_run(result.directory).messages
    ways = [messages[messages[end] == "n3"].hops.nunique() for end in ("source_name", "target_name")]
    assert sum(ways) > 2


def test_what_no_plan_delivers_is_known_to_be_lost_after_the_least_latency(tmp_path, twin):
    scenario = moving(tmp_path, rows(("0", "0.3"), ("1", "1.1"), latency="20"), PLAN, EARLIEST, "stop.rounds=8")
    result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    lost = load_run(result.directory).messages.query("fate == 'lost'")
    assert len(lost) > 0
    assert (lost.lost_ns == lost.sent_ns + 20_000_000).all()


RELAY = """
emul: 1
name: late
seed: 1
topology: {file: net.edgelist, roles: {server: [s], client: [c1, c2]}}
links:
  - {match: "*", latency: 20 ms, bandwidth: 1 Mbit/s}
contacts: {file: plan.csv, routes: earliest}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [fedavg]
stop: {rounds: 1}
"""


def test_a_message_that_comes_too_late_for_the_last_contact_is_lost_where_it_is(tmp_path, twin, pools: list[Workers]):
    """A fault holds the update of c1 for 5 s on its way to the relay."""
    (tmp_path / "net.edgelist").write_text("s r\nc1 r\nc2 r\n")
    (tmp_path / "plan.csv").write_text(HEADER + "0,1,r,s,1,20\n2,3,r,s,1,30\n")
    scenario = loads(RELAY, "late", ["faults=[{at: 10 ms, link: c1->r, down: true, for: 5 s, inflight: pause}]"],
                     base=tmp_path)
    result, = engine.run(scenario, workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    updates = load_run(result.directory).messages.query("type == 'Update'").set_index("source_name")
    assert list(updates.fate.sort_index()) == ["lost", "delivered"]
    assert 5.03e9 < updates.lost_ns["c1"] < 5.2e9
    assert digests(scenario, pools[1]) == digests(scenario, twin)


FORK = """s r
r c1
r c2
s m
m r
"""


def test_with_again_what_a_contact_cuts_takes_another_way(tmp_path, twin, pools: list[Workers]):
    """The second of two models is on its way when the contact with the relay r ends, and goes over m."""
    (tmp_path / "net.edgelist").write_text(FORK)

    def scenario(rate: str, *sets: str) -> Scenario:
        (tmp_path / "plan.csv").write_text(f"{HEADER}0,1,s,r,{rate},20\n100,200,s,r,{rate},20\n2,9,s,m,{rate},20\n")
        return loads(RELAY, "fork", ["contacts.gap=again", *sets], base=tmp_path)

    plain, = engine.run(scenario("1"), workers=twin, out=tmp_path / "runs")
    size = int(load_run(plain.directory).messages.query("type == 'Model'").wire_bytes.iloc[0]) // 2
    forked = scenario(f"{size * 8 / 0.8 / 1e6:.6f}")
    result, = engine.run(forked, workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    models = load_run(result.directory).messages.query("type == 'Model'").set_index("target_name")
    assert list(models.hops.sort_index()) == [2, 4]         # s-r, then s-m, m-r and r-c2
    assert models.arrived_ns["c1"] < 1e9
    assert 2.8e9 < models.arrived_ns["c2"] < 3e9
    expected = digests(forked, twin)
    assert digests(forked, pools[1]) == expected
    waits, = engine.run(scenario(f"{size * 8 / 0.8 / 1e6:.6f}", "contacts.routes=fixed"), workers=twin,
                        out=tmp_path / "runs")
    assert load_run(waits.directory).messages.query("type == 'Model'").arrived_ns.max() > 100e9


def test_with_again_the_rest_of_a_flow_takes_another_way(tmp_path, twin, pools: list[Workers]):
    """Alone each of two models takes 0.8 s over the contact of 1 s with the relay r. Together they get half as much:
    5/8 of each has come when it ends, and 3/8 begin anew at the server, over m."""
    (tmp_path / "net.edgelist").write_text(FORK)

    def scenario(rate: str, *sets: str) -> Scenario:
        (tmp_path / "plan.csv").write_text(f"{HEADER}0.02,1.02,s,r,{rate},10\n100,200,s,r,{rate},10\n"
                                           f"2,9,s,m,{rate},20\n")
        return loads(RELAY, "fork", ["contacts.gap=again", "links[0].sharing=maxmin", "links[0].latency=10 ms", *sets],
                     base=tmp_path)

    plain, = engine.run(scenario("1"), workers=twin, out=tmp_path / "runs")
    size = int(load_run(plain.directory).messages.query("type == 'Model'").wire_bytes.iloc[0]) // 2
    rate = f"{size * 8 / 0.8 / 1e6:.6f}"
    forked = scenario(rate)
    result, = engine.run(forked, workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    models = load_run(result.directory).messages.query("type == 'Model'")
    assert list(models.hops) == [5, 5]                      # s-r and r-c, then s-m, m-r and r-c
    assert list(models.wire_bytes / size) == pytest.approx([2 + 3 * 3 / 8] * 2, rel=0.01)
    assert list(models.arrived_ns / 1e9) == pytest.approx([2 + 2 * 0.8 * 3 / 8] * 2, rel=0.01)
    expected = digests(forked, twin)
    assert digests(forked, pools[1]) == expected
    assert engine.replay(result.directory, workers=pools[1]) == result.summary["digest"]
    waits, = engine.run(scenario(rate, "contacts.routes=fixed"), workers=twin, out=tmp_path / "runs")
    assert waits.violations == ()
    models = load_run(waits.directory).messages.query("type == 'Model'")
    assert list(models.wire_bytes / size) == [2, 2]         # no byte is sent twice
    assert list(models.arrived_ns / 1e9) == pytest.approx([100 + 2 * 0.8 * 3 / 8] * 2, rel=0.001)


def test_explain_tells_the_way_of_a_message_that_is_sent_at_once(tmp_path):
    (tmp_path / "net.edgelist").write_text("a z\na m\nm z\n")
    (tmp_path / "plan.csv").write_text(HEADER + "500,600,a,z,1,5\n0,10,a,m,1,5\n20,30,m,z,1,5\n")
    text = RELAY.replace("server: [s], client: [c1, c2]", "server: [z], client: [a]")
    explained = explain(loads(text, "late", base=tmp_path), 250_000, "fedavg")
    up, = (row for row in explained["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["seconds"]["min"] == 22.005
    assert up["hops"]["min"] == 2
    assert up["slowest"] == ["a", "m", "z"]
    assert notes(explained)[0].startswith("contacts: 3 on 3 links; routes and their times: of a message sent at 0 s")
    late = explain(loads(text, "late", base=tmp_path), 20_000_000, "fedavg")
    up, = (row for row in late["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["seconds"]["min"] is None


def test_links_over_which_a_message_is_not_whole_are_errors_of_check(tmp_path):
    with pytest.raises(ScenarioError) as error:
        relayed(tmp_path, f"{HEADER}0,1,n1,n2,1,1\n", "links=[{match: '*', latency: 1 ms}, {match: 'n3->n4', "
                "switching: cut_through}]")
    assert [(one.found, one.expected) for one in error.value.problems] == [
        ("n3->n4", "switching cut_through: contacts with routes: earliest are for links with switching: "
         "store_and_forward alone")]


def test_traffic_along_routes_is_refused_where_they_depend_on_the_time(tmp_path):
    with pytest.raises(ScenarioError) as error:
        relayed(tmp_path, f"{HEADER}0,1,n1,n2,1,1\n", "traffic=[{flow: 'n3->n4', rate: 1 Mbit/s}]")
    (problem,) = error.value.problems
    assert problem.expected == "routes depend on the time (contacts.routes: earliest): expected an entry with link"
