"""Contact plans in whole runs: digests, faults, records, errors of `check`, `explain`, and the scenario of passes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from emul import engine, load_run
from emul.base.errors import RunError, ScenarioError
from emul.preview.explain import computations, explain, notes
from emul.report import write as report
from emul.scenario import Scenario, load, loads
from emul.testing import check_scheme
from emul.workers.pool import Workers
from emul.workers.twin import Twin
from tests.digested import digests
from tests.test_resume import interrupted

ROOT = Path(__file__).resolve().parents[1]
HEADER = "start_s,end_s,source,destination,rate_mbps,latency_ms\n"
NODES = ("client1", "client2", "client3")
TEXT = """
emul: 1
name: moving
seed: 7
topology: {generator: star, clients: 3}
links:
  - {match: "*", latency: 20 ms, bandwidth: 4 Mbit/s}
task: {data: {set: digits}, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
training: skip
compute: {mode: zero}
schemes: [{name: fedavg}, {name: secagg, threshold: 2}]
stop: {rounds: 4}
"""
PLAN = "contacts={file: plan.csv}"


@pytest.fixture(scope="module")
def twin():
    with Twin() as twin:
        yield twin


def rows(*spans: tuple[str, str], rate: str = "4", latency: str = "20") -> str:
    """The plan in which each client meets the server in these spans, both ways, each client 50 ms after the last."""
    found = [HEADER]
    for begin, end in spans:
        for i, client in enumerate(NODES):
            late = "inf" if end == "inf" else f"{float(end) + i / 20:.3f}"
            for a, b in ((client, "server"), ("server", client)):
                found.append(f"{float(begin) + (i / 20 if end != 'inf' else 0):.2f},{late},{a},{b},{rate},{latency}\n")
    return "".join(found)


PASSES = rows(*((f"{k}", f"{k}.1") for k in range(40)))


def moving(folder: Path, plan: str, *sets: str) -> Scenario:
    (folder / "plan.csv").write_text(plan)
    return loads(TEXT, "moving", sets, base=folder)


def test_contacts_without_an_end_are_no_plan(tmp_path, twin):
    for sets in ((), ("links[0].outage={model: bernoulli, p: 0.3}",), (
            "faults=[{at: 30 ms, link: client1->server, down: true, for: 100 ms}, {at: 25 ms, link: client2->server, "
            "set: {bandwidth: 1 Mbit/s, latency: 30 ms}}]",)):
        plain = digests(moving(tmp_path, "", *sets), twin)
        assert digests(moving(tmp_path, rows(("0", "inf")), *sets, PLAN), twin) == plain
    assert digests(moving(tmp_path, rows(("0", "inf"), latency="20.001"), PLAN), twin) != plain


LINKS = {"plain": [], "outage": ["links[0].outage={model: on_off, up: 90 ms, down: 30 ms, span: pause}"],
         "queue": ["links[0].queue=20 kB"],
         "traffic": ["traffic=[{link: '*->server', rate: {on_off: {rate: 3 Mbit/s, on: {exponential: 30 ms}, "
                     "off: 20 ms}}}]"],
         "faults": ["faults=[{at: 2040 ms, link: client1->server, down: true, for: 2 s, inflight: pause}, {at: 1 s, "
                    "link: client2->server, set: {bandwidth: 1 Mbit/s, latency: 5 ms}, for: 3 s}]"]}


@pytest.mark.parametrize("links", LINKS)
def test_one_digest_whatever_the_number_of_workers(tmp_path, twin, links, pools: list[Workers]):
    scenario = moving(tmp_path, PASSES, *LINKS[links], PLAN)
    expected = digests(scenario, twin)
    assert digests(scenario, pools[1]) == expected
    assert expected != digests(moving(tmp_path, PASSES, *LINKS[links]), twin)


SHARING = "links[0].sharing=maxmin", "links[0].sharing=connections"


@pytest.mark.parametrize("sharing", SHARING)
def test_contacts_without_an_end_on_links_that_share_are_no_plan(tmp_path, twin, sharing):
    for sets in ((sharing,), (sharing, *LINKS["faults"])):
        plain = digests(moving(tmp_path, "", *sets), twin)
        assert digests(moving(tmp_path, rows(("0", "inf")), *sets, PLAN), twin) == plain


@pytest.mark.parametrize("gap", ["hold", "drop", "again"])
@pytest.mark.parametrize("links", ["plain", "outage", "traffic", "faults"])
def test_links_that_share_have_contacts_for_any_number_of_workers(tmp_path, twin, gap, links, pools: list[Workers]):
    sets = (SHARING[0], *LINKS[links], PLAN, f"contacts.gap={gap}")
    result, = engine.run(moving(tmp_path, SLOW, *sets), scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    assert engine.replay(result.directory, workers=pools[1]) == result.summary["digest"]
    scenario = moving(tmp_path, PASSES, *sets)
    expected = digests(scenario, twin)
    assert digests(scenario, pools[1]) == expected
    assert expected != digests(moving(tmp_path, PASSES, *sets[:-2]), twin)


def test_a_run_on_the_record_of_another_meets_the_same_plan_and_losses(tmp_path, twin):
    lossy = "links[0].outage={model: bernoulli, p: 0.2}"
    first, = engine.run(moving(tmp_path, PASSES, lossy, PLAN), scheme="fedavg", workers=twin, out=tmp_path / "runs")
    again, = engine.run(moving(tmp_path, PASSES, "seed=8", lossy, PLAN, f"network={{replay: '{first.directory}'}}"),
                        scheme="fedavg", workers=twin, out=tmp_path / "runs")
    tables = [load_run(one.directory).messages[["source", "target", "sent_ns", "arrived_ns", "lost_ns"]]
              for one in (first, again)]
    assert tables[0].equals(tables[1])
    assert tables[0].lost_ns.notna().any()


def test_what_no_contact_carries_is_lost_and_told(tmp_path, twin):
    result, = engine.run(moving(tmp_path, rows(("0", "0.1"), ("1", "1.005")), PLAN), scheme="fedavg", workers=twin,
                         out=tmp_path / "runs")
    assert result.violations == ()
    messages = load_run(result.directory).messages
    lost = messages[messages.fate == "lost"]
    assert len(lost) > 0
    assert (lost.lost_ns >= lost.sent_ns + 20_000_000).all()
    assert messages.arrived_ns.max() < 1_300_000_000


def test_with_drop_messages_that_meet_no_contact_are_lost(tmp_path, twin, pools: list[Workers]):
    scenario = moving(tmp_path, PASSES, PLAN, "contacts.gap=drop")
    result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    messages = load_run(result.directory).messages
    assert {"delivered", "lost"} <= set(messages.fate)
    met = load_run(result.directory).contacts
    plan = pd.read_csv(tmp_path / "plan.csv")
    plan = plan[plan.start_s * 1e9 < met.begin_ns.max() + 1].sort_values(["source", "destination", "start_s"])
    assert met.source.tolist() == plan.source.tolist()
    assert met.end_ns.tolist() == (plan.end_s * 1e9).round().astype(int).tolist()
    assert met.begin_ns.max() <= result.summary["virtual_seconds"] * 1e9
    assert 'data-key="contacts"' in report(result.directory).read_text(encoding="utf-8")
    assert (messages.arrived_ns - messages.sent_ns).max() < 200_000_000
    assert digests(scenario, pools[1]) == digests(scenario, twin)


KNOWING = ("schemes=[passing_scheme]", "training=run", "stop.rounds=3")


def knowing(folder: Path, *sets: str) -> Scenario:
    (folder / "plan.csv").write_text(PASSES)
    return loads(TEXT, "moving", [*KNOWING, *sets], base=folder, plugins=["passing_scheme"])


def test_a_scheme_that_knows_the_plan_sends_within_contacts_alone(tmp_path, twin, pools: list[Workers]):
    scenario = knowing(tmp_path, PLAN, "contacts.gap=drop")
    result, = engine.run(scenario, workers=twin, out=tmp_path / "runs", plugins=["passing_scheme"])
    assert result.violations == ()
    run = load_run(result.directory)
    assert set(run.messages.fate) == {"delivered"}          # with `drop` what begins or ends in a gap is lost
    first = run.rounds.iloc[0]
    assert [first[name] for name in NODES] == ["1.0 1.1 4000000 1", "1.05 1.15 4000000 1", "1.1 1.2 4000000 1"]
    expected = digests(scenario, twin, ["passing_scheme"])
    assert digests(scenario, pools[1], ["passing_scheme"]) == expected
    again = engine.replay(result.directory, workers=pools[1], plugins=["passing_scheme"])
    assert again == result.summary["digest"]
    assert digests(knowing(tmp_path, PLAN), twin, ["passing_scheme"])[1] == expected[1]


def test_a_run_that_knows_the_plan_is_gone_on_with(tmp_path, twin):
    scenario = knowing(tmp_path, PLAN)
    whole, = engine.run(scenario, workers=twin, out=tmp_path / "whole", plugins=["passing_scheme"])
    left = interrupted(scenario, tmp_path / "cut", 40, plugins=["passing_scheme"])
    again, = engine.resume(left, workers=0, plugins=["passing_scheme"])
    assert again.summary["digest"] == whole.summary["digest"]


def test_explain_and_profiles_know_a_scheme_that_reads_the_plan(tmp_path):
    scenario = knowing(tmp_path, PLAN)
    row, = explain(scenario, 1000, plugins=["passing_scheme"])["schemes"]
    assert [(one["type"], one["messages"]) for one in row["round"]["by_type"]] == [("Model", 3), ("Change", 3)]
    assert 1.1 < row["seconds"] < 1.2                       # as the run: the last client answers in its second contact
    charges, unpriced = computations(scenario, *scenario.schemes[0], plugins=["passing_scheme"])
    assert (len(charges), unpriced) == (1, [])


def test_a_way_without_contacts_is_an_error_of_the_role_that_asks(tmp_path, twin):
    with pytest.raises(RunError, match="server: no link on the way to client1 has contacts: it transmits at all times"):
        digests(knowing(tmp_path), twin, ["passing_scheme"])


SLOW = rows(*((f"{k}", f"{k}.1") for k in range(40)), rate="0.3")      # a message takes 71 ms of 100


@pytest.mark.parametrize("links", [pytest.param(one, marks=[pytest.mark.slow] if one == "traffic" else [])
                                   for one in LINKS])
def test_with_again_messages_are_sent_anew_and_told_so(tmp_path, twin, links, pools: list[Workers]):
    scenario = moving(tmp_path, SLOW, *LINKS[links], PLAN, "contacts.gap=again")
    result, = engine.run(scenario, scheme="fedavg", workers=twin, out=tmp_path / "runs")
    assert result.violations == ()
    messages = load_run(result.directory).messages
    again = messages[messages.retransmitted_bytes > 0]
    assert len(again) > 0
    assert (again.wire_bytes - again.retransmitted_bytes >= again.payload_bytes).all()
    assert result.summary["bytes_retransmitted"] == messages.retransmitted_bytes.sum()
    assert digests(scenario, pools[1]) == digests(scenario, twin)


def test_a_resolved_scenario_names_the_plan_and_its_digest(tmp_path):
    scenario = moving(tmp_path, PASSES, PLAN)
    text = scenario.resolved()
    assert f"{tmp_path}/plan.csv" in text
    assert loads(text, "resolved") == scenario
    (tmp_path / "plan.csv").write_text(rows(("0", "1")))
    with pytest.raises(ScenarioError, match=r"contacts.sha256.*is not the one that this scenario was resolved with"):
        loads(text, "resolved")


def told(folder: Path, plan: str, *sets: str) -> list[tuple[str, str, str]]:
    with pytest.raises(ScenarioError) as error:
        moving(folder, plan, *sets, PLAN)
    return [(one.place.removeprefix("--set "), one.found, one.expected) for one in error.value.problems]


def test_check_tells_every_mistake_with_file_and_line(tmp_path):
    wrong = HEADER + "0,5,client1,server,1,1\n4,6,client1,server,1,1\n3,3,server,client1,1,1\n0,1,client2,server,-1,1\n"
    assert told(tmp_path, wrong) == [
        ("contacts.file", "plan.csv, line 3, start_s, 4", "expected rows of client1 -> server in the order of time, "
         "without an overlap: the row before is of [0, 5]"),
        ("contacts.file", "plan.csv, line 4, end_s, 3", "expected more than start_s, 3"),
        ("contacts.file", 'plan.csv, line 5, rate_mbps, "-1"', "expected a number, 0 or more")]
    strange = HEADER + "0,5,client1,sever,1,1\n0,5,client1,client2,1,1\n0,5,client1,server,1,1\n"
    assert told(tmp_path, strange) == [
        ("contacts.file", 'plan.csv, line 2, destination, "sever"', "unknown vertex"),
        ("contacts.file", "plan.csv, line 3, client1 -> client2", "expected a link of the topology")]
    for key, text in (("transport=reliable", "has a transport"), ("switching=cut_through", "has switching")):
        found = told(tmp_path, PASSES, f"links[0].{key}")
        assert len(found) == 6
        assert all(place == "contacts.file" and expected.startswith(text) for place, _, expected in found)
    found = told(tmp_path, PASSES, "links[0].sharing=connections", "links[0].transport={tcp: {congestion: cubic}}")
    assert found[0] == ("contacts.file", "plan.csv, line 2, client1 -> server", "has a transport: contacts are known "
                        "to links with transport: datagram alone, without windows of TCP")
    with pytest.raises(ScenarioError, match="No such file"):
        loads(TEXT, "moving", ["contacts={file: none.csv}"], base=tmp_path)


@pytest.mark.parametrize(("said", "place", "expected"), [
    ("{file: plan.csv, routes: soonest}", "contacts.routes", "expected one of fixed, earliest"),
    ("{file: plan.csv, gap: wait}", "contacts.gap", "expected one of hold, again, drop"),
    ("{gap: hold}", "contacts.file", "is required")])
def test_what_this_version_cannot_do_is_said(tmp_path, said, place, expected):
    (tmp_path / "plan.csv").write_text(PASSES)
    with pytest.raises(ScenarioError) as error:
        loads(TEXT, "moving", [f"contacts={said}"], base=tmp_path)
    one, = error.value.problems
    assert one.place == f"--set {place}"
    assert expected in one.expected


@pytest.mark.parametrize("entry", ["{flow: 'client1->server', rate: 1 Mbit/s}",
                                   "{link: 'client1->server', messages: {every: 1 s, size: 1 kB}}"])
def test_traffic_that_knows_no_contacts_is_refused(tmp_path, entry):
    (place, _, expected), = told(tmp_path, PASSES, f"traffic=[{entry}]")
    assert place.startswith("traffic[0]")
    assert expected == "client1->server transmits only within its contacts: expected an entry with link and rate there"


def test_explain_tells_the_contacts_and_the_time_through_them(tmp_path):
    explained = explain(moving(tmp_path, rows(("0", "0.1"), ("1", "2")), PLAN), 100_000, "fedavg")
    assert explained["contacts"]["links"] == 6
    assert explained["contacts"]["contacts"] == 12
    said = notes(explained)
    assert said[0].startswith("contacts: 12 on 6 links")
    assert said[1] == ("server->client1: 2 contacts from 0 s to 2 s, 1.1 s of it in contacts; mean rate 4 Mbit/s, "
                       "median latency 20 ms")
    up, = (row for row in explained["routes"] if (row["from"], row["to"]) == ("client", "server"))
    assert up["seconds"] == {"min": 1.12, "median": 1.17, "max": 1.22}      # 0.2 s at 4 Mbit/s, over two contacts
    for gap, seconds in (("again", [1.22, 1.27, 1.32]), ("drop", [None] * 3)):
        said = explain(moving(tmp_path, rows(("0", "0.1"), ("1", "2")), PLAN, f"contacts.gap={gap}"), 100_000, "fedavg")
        up, = (row for row in said["routes"] if (row["from"], row["to"]) == ("client", "server"))
        assert list(up["seconds"].values()) == seconds


def test_fedavg_waits_for_passes_and_with_a_deadline_does_without_some(twin, tmp_path):
    waits, deadline = engine.run(load(ROOT / "scenarios" / "moving" / "passes.yaml"), workers=twin, out=tmp_path)
    assert [one.violations for one in (waits, deadline)] == [(), ()]
    updates = [load_run(one.directory).messages.query("type == 'Update'") for one in (waits, deadline)]
    taken = [(of.fate == "delivered").groupby(of["round"]).sum() for of in updates]
    assert (taken[0] == 6).all()
    assert (taken[1] < 6).all()
    assert 4 * 500 < waits.summary["virtual_seconds"] < 5 * 600
    assert deadline.summary["virtual_seconds"] == 5 * 250


# --- selection by the plan --------------------------------------------------------------------------------------------

TURNS = HEADER + "".join(f"{begin},{begin + long},{a},{b},4,20\n" for client, begins, long in (
    ("client1", (5, 15, 25, 35), 1), ("client2", (0, 10, 20, 30), 1), ("client3", (3, 33), 9)) for begin in begins
    for a, b in ((client, "server"), ("server", client)))


def chosen(folder: Path, twin: Twin, rule: str, *sets: str) -> tuple[list[list[str]], str]:
    """The clients that were sent a model, round by round, and the digest. Trainings take 2 s."""
    (folder / "costs.json").write_text(
        '{"emul_profile": 1, "costs": {"fedavg/client/train": [2.0, 0.0], "fedavg/server/select": [0.0, 0.0], '
        '"fedavg/server/aggregate": [0.0, 0.0]}}')
    (folder / "plan.csv").write_text(TURNS)
    scenario = loads(TEXT, "moving", ["compute={mode: profile, file: costs.json}", "stop.rounds=3", PLAN, *sets,
                                      f"schemes=[{{name: fedavg, selection: {rule}}}]"], base=folder)
    result, = engine.run(scenario, workers=twin, out=folder / "runs")
    assert result.violations == ()
    models = load_run(result.directory).messages.query("type == 'Model'")
    return ([sorted(of.target_name) for _, of in models.groupby("round")], result.summary["digest"])


def test_the_plan_chooses_those_that_it_reaches_first(tmp_path, twin):
    """At 0 client2 is reached. Its update waits until 10 s, and then client2 is there again."""
    first, _ = chosen(tmp_path, twin, "{contact: {count: 1}}")
    assert first == [["client2"]] * 3
    two, _ = chosen(tmp_path, twin, "{contact: {count: 2}}")
    assert two[0] == ["client2", "client3"]                 # at 0 and 3 s; client1 has its first contact at 5 s


def test_with_the_time_of_a_training_the_plan_chooses_those_that_are_back_first(tmp_path, twin):
    """client3 is reached at 3 s, trains for 2 s and is still there; client2 is back at 10 s, client1 at 15 s."""
    back, _ = chosen(tmp_path, twin, "{contact: {count: 1, training: 2 s}}")
    assert back[0] == ["client3"]
    two, _ = chosen(tmp_path, twin, "{contact: {count: 2, training: 2 s}}")
    assert two[0] == ["client2", "client3"]


def test_a_client_that_the_plan_never_reaches_again_is_not_chosen(tmp_path, twin):
    found, _ = chosen(tmp_path, twin, "{contact: {count: 3, training: 2 s}}", "stop={rounds: 9, virtual_time: 2 min}")
    assert found[0] == list(NODES)
    assert found[-1] != list(NODES)


def test_a_run_that_selects_by_the_plan_has_one_digest(tmp_path, twin, pools: list[Workers]):
    _, expected = chosen(tmp_path, twin, "{contact: {count: 2, training: 2 s}}")
    assert chosen(tmp_path, pools[1], "{contact: {count: 2, training: 2 s}}")[1] == expected  # type: ignore[arg-type]


def test_explain_counts_a_round_that_selects_by_the_plan(tmp_path):
    (tmp_path / "plan.csv").write_text(TURNS)
    scenario = loads(TEXT, "moving", [PLAN, "schemes=[{name: fedavg, selection: {contact: {count: 2}}}]"],
                     base=tmp_path)
    row, = explain(scenario)["schemes"]
    assert [(one["type"], one["messages"]) for one in row["round"]["by_type"]] == [("Model", 2), ("Update", 2)]


@pytest.mark.slow
def test_a_scheme_that_selects_by_the_plan_conforms(tmp_path):
    (tmp_path / "plan.csv").write_text(PASSES)
    scenario = loads(TEXT, "moving", [PLAN, "training=run", "stop.rounds=3",
                                      "schemes=[{name: fedavg, deadline: 3 s, selection: {contact: {count: 2}}}]"],
                     base=tmp_path)
    check_scheme("fedavg", scenario, pools=[])
