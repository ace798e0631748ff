"""`groups`: who is in them, what they get, what is wrong with them, and what the record of a run says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul import load_run
from emul.base.errors import ScenarioError
from emul.engine import run
from emul.engine.wiring import wire
from emul.scenario import Scenario, load, loads
from emul.scenario.groups import ClientGroup, members

TEXT = """
emul: 1
name: groups
seed: 3
topology: {generator: star, clients: 10}
links:
  - {match: "*", latency: 20 ms, bandwidth: 20 Mbit/s, overhead: {preset: ipv4_tcp}}
LINKS
GROUPS
MORE
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 8}}}
compute: {mode: profile, file: PROFILE}
schemes: [{name: fedavg, deadline: 5 s}]
stop: {rounds: 2}
"""
PROFILE = '{"emul_profile": 1, "costs": {"fedavg/client/train": [1.0, 0.0], "fedavg/server/aggregate": [0.0, 0.0]}}'
SLOW = "groups: [{name: slow, fraction: 0.3, speed: 0.25}]"


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "p.json"
    path.write_text(PROFILE)
    return path


def text(profile: Path, groups: str = SLOW, links: str = "", more: str = "") -> str:
    return TEXT.replace("PROFILE", str(profile)).replace("GROUPS", groups).replace("LINKS", links).replace("MORE", more)


def wired(scenario: Scenario) -> Any:
    return wire(scenario, *scenario.schemes[0])


# --- who is in them -------------------------------------------------------------------------------------------------

def population(clients: int) -> tuple[list[str], dict[str, list[int]]]:
    names = ["server", *(f"client{k}" for k in range(1, clients + 1))]
    return names, {"server": [0], "client": list(range(1, clients + 1))}


@given(st.integers(1, 60), st.floats(0.01, 0.6), st.floats(0.01, 0.4), st.integers(0, 2**40))
def test_groups_are_as_large_as_their_fractions_and_share_nobody(clients: int, first: float, second: float,
                                                                 seed: int) -> None:
    names, roles = population(clients)
    of = members([ClientGroup("slow", fraction=first), ClientGroup("far", fraction=second)], names, roles, seed)
    assert of[0] is None                                            # a server holds no data
    assert of.count("slow") == round(first * clients)
    assert of.count("far") == min(round(second * clients), clients - of.count("slow"))


@given(st.integers(1, 60), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 2**40))
def test_a_larger_fraction_keeps_the_members_of_a_smaller_one(clients: int, one: float, other: float,
                                                              seed: int) -> None:
    names, roles = population(clients)
    small, large = (members([ClientGroup("slow", fraction=share)], names, roles, seed)
                    for share in sorted((one, other)))
    assert all(b == "slow" for a, b in zip(small, large, strict=True) if a == "slow")


def test_whom_a_group_draws_depends_on_seed_and_name() -> None:
    names, roles = population(100)
    found = [members([ClientGroup(name, fraction=0.5)], names, roles, seed) for name, seed in
             (("slow", 1), ("slow", 1), ("slow", 2), ("far", 1))]
    drawn = [[one is not None for one in of] for of in found]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert drawn[0] != drawn[3]
    shares = [sum(members([ClientGroup("slow", fraction=0.3)], names, roles, seed)[k] == "slow" for seed in range(400))
              / 400 for k in (1, 50, 100)]
    assert all(0.3 - 0.08 < share < 0.3 + 0.08 for share in shares)     # each client, within 3.5 standard deviations


def test_a_match_takes_those_that_are_left_and_a_share_of_those_that_match() -> None:
    names, roles = population(20)
    of = members([ClientGroup("few", match="client1*", fraction=0.5), ClientGroup("rest", match="client*")],
                 names, roles, 1)
    assert of.count("few") == round(0.5 * 11)                       # client1, client10 .. client19
    assert all(name.startswith("client1") for name, one in zip(names, of, strict=True) if one == "few")
    assert of.count("rest") == 20 - of.count("few")


# --- what they get --------------------------------------------------------------------------------------------------

def test_members_share_speed_device_link_and_absences(profile: Path) -> None:
    groups = ("groups:\n  - {name: slow, fraction: 0.3, speed: 0.25, link: lte, device: phone_low, battery: 50, "
              "churn: {up: 10 s, down: 5 s}}\n")
    scenario = loads(text(profile, groups, more="nodes: [{match: \"client*\", speed: 2}]"))
    found = wired(scenario)
    slow = found.groups["slow"]
    assert len(slow) == 3
    assert [speed for node, speed in enumerate(found.setups[0].speeds) if node in slow] == [0.25] * 3
    assert {speed for node, speed in enumerate(found.setups[0].speeds) if node not in (0, *slow)} == {2}
    assert [node for node, one in enumerate(found.devices) if one is not None and one.name == "phone_low"] == slow
    assert sorted(found.plan.batteries) == slow
    assert len(found.plan.streams) == 3
    assert {found.network.classes[node] for node in slow} == {"lte"}
    assert [node for node, one in enumerate(found.network.classes) if one is not None] == slow


def test_a_group_is_named_in_links_nodes_faults_and_attacks(profile: Path) -> None:
    more = ('devices: {nodes: [{match: "@slow", device: phone_mid}]}\n'
            'nodes: [{match: "@other", speed: 3}]\n'
            'faults:\n  - {at: 1 s, node: "@slow", slow: 2}\n'
            '  - {at: 2 s, link: "@slow->server", down: true, for: 1 s}\n'
            '  - {at: 3 s, partition: [["@slow"], ["*"]], for: 1 s}\n'
            'attacks: [{nodes: "@slow", update: sign_flip}, {nodes: ["@other", client1], update: scale}]\n')
    groups = "groups: [{name: slow, fraction: 0.3}, {name: other, fraction: 0.2}]"
    scenario = loads(text(profile, groups, '  - {match: "@slow->server", latency: 90 ms}', more))
    found = wired(scenario)
    slow, other = found.groups["slow"], found.groups["other"]
    network = found.network
    assert [v for v in range(1, 11) if network.parameters(v, 0).latency_ns == 90 * 10**6] == slow
    assert [node for node, speed in enumerate(found.setups[0].speeds) if speed == 3] == other
    assert sorted(found.setups[0].slowdowns) == slow
    assert sorted({node for node, plans in found.setups[0].attacks.items() for one in plans if one.name == "sign_flip"}
                  ) == slow
    assert {node for node, plans in found.setups[0].attacks.items() for one in plans if one.name == "scale"} == {
        *other, 1}
    downs = [fault for fault in found.plan.faults if fault.at_ns == 2 * 10**9]
    assert sorted(fault.src for fault in downs) == slow
    assert loads(scenario.resolved()) == scenario


def test_a_file_on_top_changes_a_group_by_its_name(profile: Path, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(profile))
    (tmp_path / "b.yaml").write_text(
        "extends: a.yaml\ngroups: [{name: slow, fraction: 0.5}, {name: far, fraction: 0.1, link: dsl}]\n")
    found = load(tmp_path / "b.yaml", ["groups.far.fraction=0.2"])
    assert [(one.name, one.fraction, one.speed) for one in found.groups] == [("slow", 0.5, 0.25), ("far", 0.2, None)]


# --- what is wrong with them ----------------------------------------------------------------------------------------

def test_all_mistakes_are_told_at_once_with_their_lines(profile: Path) -> None:
    groups = """groups:
  - {name: slow, fraction: 0.7, link: ltee}
  - {name: lte, fraction: 0.6}
  - {name: far, match: "client*", device: phone_lo}"""
    more = 'attacks: [{nodes: "@slo", update: sign_flip}]\nfaults: [{at: 1 s, node: "@fra", crash: true}]'
    with pytest.raises(ScenarioError) as error:
        loads(text(profile, groups, '  - {match: "@slwo->server", latency: 1 ms}', more))
    told = [(p.place, p.line) for p in error.value.problems]
    assert sorted(told) == sorted([
        ("groups[0].link", 10), ("groups[1].name", 11), ("groups[1].fraction", 11), ("groups[2].device", 12),
        ("attacks[0].nodes", 13), ("faults[0].node", 14), ("links[1].match", 8)])
    said = str(error.value)
    assert 'did you mean "lte"?' in said
    assert 'did you mean "@slow"?' in said
    assert "is 6 of 10, and the groups before it leave 3" in said


@pytest.mark.parametrize(("group", "expected"), [
    ("{name: slow}", "expected match, fraction or both"),
    ("{name: others, fraction: 0.1}", "which those in no group are called"),
    ("{name: a b, fraction: 0.1}", "expected a name of letters"),
    ("{name: slow, fraction: 0.1, battery: 5}", "is used only with device"),
    ("{name: slow, fraction: 0.1, churn: {up: 1 s, down: 1 s}, availability: {diurnal: {mean: 0.5}}}",
     "cannot be used with availability"),
    ("{name: slow, fraction: 0.1, churn: {match: client1, up: 1 s, down: 1 s}}", "unknown key"),
    ("{name: slow, fraction: 0.1}, {name: slow, fraction: 0.2}", "groups[0] is called so already")])
def test_a_group_that_cannot_be_is_refused(profile: Path, group: str, expected: str) -> None:
    with pytest.raises(ScenarioError, match=r"groups\[") as error:
        loads(text(profile, f"groups: [{group}]"))
    assert expected in str(error.value)


def test_a_group_without_members_is_a_warning_and_its_faults_do_nothing(profile: Path) -> None:
    scenario = loads(text(profile, "groups: [{name: slow, fraction: 0.01}]",
                          more='faults: [{at: 1 s, node: "@slow", crash: true}]'))
    assert scenario.warnings == ["groups[0]: slow has no members: 0.01 of 10 is none"]
    found = wired(scenario)
    assert found.groups == {"slow": []}
    assert found.plan.faults == []


def test_a_class_of_links_that_a_rule_for_all_links_takes_away_is_a_warning(profile: Path) -> None:
    groups = "groups: [{name: slow, fraction: 0.3, link: lte}]"
    scenario = loads(text(profile, groups))
    assert scenario.warnings == [
        "groups[0].link: lte: links[0] gives latency and bandwidth of every link, which go before those of a class: "
        "its losses alone are left"]
    found = wired(scenario)
    slow, network = found.groups["slow"], found.network
    assert {network.parameters(v, 0).latency_ns for v in slow} == {20 * 10**6}
    bare = text(profile, groups).replace("latency: 20 ms, bandwidth: 20 Mbit/s, ", "")
    again = loads(bare)
    assert not any("losses alone" in warning for warning in again.warnings)
    assert {wired(again).network.parameters(v, 0).latency_ns for v in slow} == {35 * 10**6}


# --- what the record says -------------------------------------------------------------------------------------------

def test_members_and_digests_are_the_same_for_any_number_of_workers(profile: Path, tmp_path: Path) -> None:
    scenario = loads(text(profile))
    found = [run(scenario, out=tmp_path / str(workers), workers=workers)[0].summary for workers in (0, 2)]
    assert found[0]["groups"] == found[1]["groups"]
    assert found[0]["digest"] == found[1]["digest"]


def test_the_summary_has_each_group_beside_the_others(profile: Path, tmp_path: Path) -> None:
    results = run(loads(text(profile, "groups: [{name: slow, fraction: 0.3, speed: 0.1}]")), out=tmp_path, workers=0)
    found = load_run(results[0].directory)
    assert {name: len(nodes) for name, nodes in found.groups.items()} == {"slow": 3, "others": 7}
    said = found.summary["groups"]
    assert said["others"]["compute_virtual_seconds"] == 14                  # two rounds of 1 s
    # ten times as slow, and the deadline of 5 s ends each round; what was begun in the second is cut at 10 s
    assert 3 * 5 <= said["slow"]["compute_virtual_seconds"] <= 3 * 10.2
    assert said["slow"]["messages_sent"] <= 3
    computed = found.computations
    assert set(computed[computed.name.isin(found.groups["slow"])].cost_ns) == {10 * 10**9}
