"""Selection in synchronous rounds: who is asked, told, waited for, and what a round costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from emul.base import rows as R
from emul.base.errors import ScenarioError
from emul.protocols.rounds import Model, Update
from emul.protocols.selection import Call, Here, Probe, Told, Verdict, by_plan, measured, wrong_selection
from emul.roles import World
from emul.schemes import fedavg, fedper
from emul.testing import Ran, check_scheme, drive, run_text
from emul.testing.drive import Driven


class Task:
    """A model of one number, whose loss is it."""

    dimension = 1

    def initial_parameters(self) -> np.ndarray:
        return np.ones(1, np.float32)

    def samples(self) -> int:
        return 3

    def local_update(self, model: np.ndarray) -> tuple[np.ndarray, int]:
        return np.float32([0.5]), 3

    def loss(self, model: np.ndarray, each: bool = False, most: int = 0) -> Any:
        return np.array([1.0, 2.0, 2.0]) if each else 5.0 / 3


def server(selection: Any, clients: int = 6, rounds: int = 1, **params: Any) -> Driven:
    return drive(fedavg.server, fedavg.Params(selection=selection, **params), clients=range(1, clients + 1),
                 task=Task(), rounds=rounds)


def client(selection: Any) -> Driven:
    return drive(fedavg.client, fedavg.Params(selection=selection), id=1, task=Task())


def update(value: float = 1.0) -> Update:
    return Update(np.float32([value]), 3)


def test_over_selection_ends_a_round_with_the_first_k_updates():
    role = server({"uniform": {"count": 3, "over": 1.3}}, deadline_s=10.0, rounds=2)
    cohort = list(role.sent(Model))
    assert len(cohort) == 4                                 # 1.3 * 3, rounded up
    for k in cohort[1:]:
        assert role.reports == []
        role.deliver({k: update(2.0)})
    assert role.reports == [{"received": 3, "cohort": 4}]
    assert role.node.state(None).model[0] == 3.0


def test_a_round_with_too_few_updates_at_its_deadline_is_abandoned():
    role = server({"uniform": {"count": 3, "over": 1.3, "least": 2}}, deadline_s=10.0)
    role.deliver({next(iter(role.sent(Model))): update(7.0)})
    role.advance_to(10.0)
    assert role.reports == []
    assert role.node.state(None).model[0] == 1.0
    assert role.ended == ""


def test_without_a_deadline_a_round_ends_when_all_fates_are_known():
    role = server({"uniform": {"count": 3}})
    role.deliver({next(iter(role.sent(Model))): update(2.0)})
    role.settle()
    assert role.reports == [{"received": 1, "cohort": 3}]


def test_pow_d_probes_candidates_and_sends_the_model_to_nobody_again():
    role = server({"power_of_choice": {"count": 2, "candidates": 4}}, deadline_s=5.0)
    asked = list(role.sent(Probe))
    assert len(asked) == 4
    role.deliver({asked[0]: Told(0.5), asked[1]: Told(3.0), asked[3]: Told(2.0)})
    role.advance_to(5.0)                                    # asked[2] is silent
    assert {k: m.chosen for k, m in role.sent(Verdict).items()} == {
        asked[0]: False, asked[1]: True, asked[2]: False, asked[3]: True}
    assert role.sent(Model) == {}
    role.deliver({asked[1]: update(1.0), asked[3]: update(3.0)})
    assert role.reports == [{"received": 2, "cohort": 2}]
    assert role.node.state(None).model[0] == 3.0


def test_a_client_that_is_probed_trains_only_if_it_is_chosen():
    for chosen in (True, False):
        role = client("power_of_choice")
        role.deliver({0: Probe(np.ones(1, np.float32))})
        assert role.sent(Told)[0].value == pytest.approx(5 / 3)
        role.deliver({0: Verdict(chosen)})
        assert role.computed == (["probe", "train"] if chosen else ["probe"])
        assert bool(role.sent(Update)) == chosen


def test_only_those_that_say_that_they_are_there_are_chosen():
    role = server({"available": {"count": 2, "window": "500 ms"}}, deadline_s=5.0)
    asked = list(role.sent(Call))
    assert len(asked) == 4
    role.deliver({asked[0]: Here(), asked[2]: Here(), asked[3]: Here()})
    assert role.deadline == 0.5
    role.advance_to(0.5)
    cohort = list(role.sent(Model))
    assert len(cohort) == 2
    assert asked[1] not in cohort
    role.deliver({k: update() for k in cohort})
    assert role.reports == [{"received": 2, "cohort": 2}]


def test_nobody_there_is_an_outcome_of_the_round():
    role = server("available", deadline_s=5.0)
    role.advance_to(1.0)
    assert (role.reports, role.ended) == ([], "")


def test_a_client_says_that_it_is_there_and_waits_for_the_model():
    role = client("available")
    role.deliver({0: Call()})
    assert list(role.sent(Here)) == [0]
    role.deliver({0: Verdict(True)})
    assert role.computed == []
    role.deliver({0: Model(np.ones(1, np.float32))})
    assert role.computed == ["train"]


def test_clients_tell_oort_the_utility_that_the_paper_has():
    role = client({"oort": {"count": 2}})
    role.deliver({0: Model(np.ones(1, np.float32))})
    assert role.sent(Told)[0].value == pytest.approx(3 * np.sqrt((1 + 4 + 4) / 3))
    assert role.computed == ["train", "measure"]


def test_the_server_learns_utilities_and_times_of_those_that_answered():
    role = server({"oort": {"count": 2}}, clients=2, deadline_s=9.0)
    role.deliver({1: Told(8.0)})
    role.advance_to(2.5)
    role.deliver({1: update()})
    role.advance_to(9.0)                                    # client 2 is silent
    known = role.node.state(None).selecting.rule.known
    assert (known[1].utility, known[1].seconds) == (8.0, 2.5)
    assert (known[2].utility, known[2].seconds) == (0.0, 9.0)


@pytest.mark.parametrize("value", [-1.0, 1e300])
def test_what_is_no_loss_is_rejected(value: float):
    role = server({"power_of_choice": {"count": 1, "candidates": 6}}, deadline_s=5.0)
    role.deliver({2: Told(value)})
    role.advance_to(5.0)
    assert role.rejected == {2: "value: no loss, utility or accuracy"}


# --- over a network -------------------------------------------------------------------------------------------------

TEXT = """
emul: 1
name: selection
seed: 5
topology: {generator: star, clients: 8}
links: [{match: "*", latency: 20 ms, bandwidth: 10 Mbit/s}]
nodes: [{match: client2, speed: 0.1}, {match: client5, speed: 0.2}]
task: {data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic, solver: {sgd: {lr: 0.1, steps: 2, batch: 16}}}
compute: {mode: zero}
schemes: [{name: SCHEME, deadline: 30 s, selection: RULE}]
stop: {rounds: 6}
"""
COSTS = {"client/train": 0.5, "client/measure": 0.01, "client/probe": 0.01, "server/aggregate": 0.001,
         "server/select": 0.001, "client/encode": 0.001, "server/decode": 0.001,
         "server/encode": 0.001, "client/decode": 0.001, "server/start": 0.001, "client/choose": 0.01}


def run(rule: str, scheme: str = "fedavg") -> Ran:
    return run_text(TEXT.replace("SCHEME", scheme).replace("RULE", rule), costs=COSTS)


def trained(ran: Ran) -> list[set[int]]:
    """Who has sent an update, round by round."""
    rounds: dict[int, set[int]] = {}
    for row in ran.rows:
        if row[0] == R.SEND and row[5] == "Update":
            rounds.setdefault(row[8], set()).add(row[2])
    return [rounds[number] for number in sorted(rounds)]


def test_uniform_selection_of_everybody_is_plain_fedavg_to_the_bit():
    assert run("uniform").models == run("none").models


def test_tifl_waits_for_slow_clients_in_rounds_of_theirs_alone():
    ran = run("{tifl: {count: 2, tiers: 4}}")
    profiling, *rest = trained(ran)
    assert len(profiling) == 8
    slow = {2, 5}
    assert all(cohort <= slow or not cohort & slow for cohort in rest)


def test_fedcs_leaves_out_who_cannot_end_in_time_and_asks_for_the_times_of_trainings():
    ran = run("{fedcs: {round: 1200 ms, uploads: at_once}}")
    assert [sorted(cohort) for cohort in trained(ran)] == [[*range(1, 9)]] + [[1, 3, 4, 6, 7, 8]] * 5
    told = [row for row in ran.rows if row[0] == R.SEND and row[5] == "Told"]
    assert len(told) == 8 + 5 * 6


def test_tifl_goes_by_loss_where_the_targets_are_numbers(tmp_path: Path):
    rows = "\n".join(f"{i % 7},{i % 5},{2 * (i % 7) - i % 5}.5" for i in range(200))
    (tmp_path / "data.csv").write_text(f"a,b,y\n{rows}\n")
    data = f"{{set: csv, directory: {tmp_path / 'data.csv'}, y: y}}"
    text = TEXT.replace("{data: {set: digits}, partition: {dirichlet: 0.5}, model: logistic",
                        f"{{data: {data}, partition: iid, model: logistic")
    ran = run_text(text.replace("SCHEME", "fedavg").replace("RULE", "{tifl: {count: 2, tiers: 2, interval: 1}}"),
                   costs=COSTS)
    assert ran.summary["rounds"] == 6
    assert sum(row[0] == R.SEND and row[5] == "Told" for row in ran.rows) == 8 + 5 * 2


class OwnTests:
    """A task whose evaluation on own test samples finds this."""

    def __init__(self, **found: float):
        self.found = found

    def evaluate_own(self, model: np.ndarray) -> dict[str, float]:
        return self.found


@pytest.mark.parametrize(("found", "told"), [
    ({"accuracy": 0.0, "loss": 3.0}, 0.0), ({"loss": 3.0}, 0.25), ({"accuracy": math.nan, "loss": math.nan}, None),
    ({"loss": math.inf}, 0.0)])
def test_an_accuracy_is_told_a_loss_in_its_place_and_nothing_without_test_samples(
        found: dict[str, float], told: float | None):
    assert measured(cast(Any, OwnTests(**found)), np.zeros(2, np.float32), "accuracy") == told


@pytest.mark.parametrize("rule", ["{uniform: {count: 3, over: 2}}", "{oort: {count: 3, step: 1 s}}",
                                  "{power_of_choice: {count: 3, candidates: 6}}",
                                  "{power_of_choice: {count: 3, candidates: 6, loss: rpow_d}}",
                                  "{available: {count: 3}}", "{fedcs: {count: 3}}"])
def test_every_rule_runs_rounds_of_so_many_updates(rule: str):
    ran = run(rule)
    assert not ran.invariants.violations
    assert not ran.summary["violations"]
    assert [row[4]["received"] for row in ran.rows if row[0] == R.REPORT] == [3] * 6


def test_over_selection_is_faster_than_waiting_for_everybody():
    assert run("{uniform: {count: 4, over: 2}}").kernel.end_ns < run("uniform").kernel.end_ns / 2


@pytest.mark.parametrize(("scheme", "rule"), [
    ("krum", "{uniform: {count: 5}}"), ("signsgd", "{oort: {count: 5, step: 1 s}}"),
    ("fednova", "{available: {count: 5}}"), ("fedadam", "{uniform: {count: 5, over: 1.3}}"),
    ("scaffold", "{oort: {count: 5, step: 1 s}}"), ("scaffold", "{available: {count: 5}}"),
    ("ifca", "{tifl: {count: 5, tiers: 1}}"), ("ifca", "{power_of_choice: {count: 5, candidates: 6, loss: rpow_d}}"),
    ("ifca", "{fedcs: {count: 5}}"), ("scaffold", "{fedcs: {count: 5}}"),
    ("fedprox", "{tifl: {count: 5, tiers: 1}}"), ("fedprox", "{power_of_choice: {count: 5, candidates: 6}}")])
def test_other_synchronous_schemes_select_too(scheme: str, rule: str):
    ran = run(rule, scheme)
    received = [row[4]["received"] for row in ran.rows if row[0] == R.REPORT and "received" in row[4]]
    assert received[1:] == [5] * 5                          # in the first round tifl profiles all
    assert not ran.summary["violations"]


@pytest.mark.parametrize(("rule", "said"), [
    ("{uniform: {count: 9}}", "expected at most 8, the number of clients"),
    ("orot", 'did you mean "oort"'),
    ("{power_of_choice: {candidates: 4}}", "power_of_choice +candidates = 4: expected at least 8, those chosen"),
    ("{power_of_choice: {count: 4, candidates: 5, over: 1.5}}", "candidates = 5: expected at least 6, those chosen"),
    ("{uniform: {count: 3, over: 2, least: 4}}", "uniform +least = 4: expected at most 3, the updates that end"),
    ("{fedcs: {round: 0 s}}", "fedcs: round = 0.0 s: expected a time above 0"),
    ("{contact: {count: 3}}", "contact +expected a network with contacts: this one has none"),
    ("{contact: {count: 3, training: 5 parsec}}", "contact: training = '5 parsec'"),
    ("{power_of_choice: {count: 3}}, compress: {down: sign}", "compress.down: candidates are sent the model as it is")])
def test_a_wrong_rule_is_an_error_of_the_scenario(rule: str, said: str):
    with pytest.raises(ScenarioError, match=said):
        run(rule)


def test_a_scheme_that_is_not_told_the_plan_cannot_select_by_it():
    world = World("mine", 0, ["server", "client1"], {"server": [0], "client": [1]}, [1.0, 1.0])
    assert wrong_selection("contact", world) == ["selection = contact: the scheme mine does not know the contact plan: "
                                                 "expected knows_topology=by_plan"]
    assert wrong_selection("uniform", world) == []
    assert [by_plan(fedavg.Params(selection=rule)) for rule in (None, "uniform", "contcat", "contact")] == [
        False, False, False, True]


@pytest.mark.parametrize(("scheme", "why"), [("scaffold", "training needs c, too"),
                                             ("ifca", "clients choose among several")])
def test_who_is_probed_has_the_model_alone_and_schemes_that_send_more_refuse_that(scheme: str, why: str):
    with pytest.raises(ScenarioError, match=f"power_of_choice +candidates are sent the model alone, and {why}; "
                                            "expected loss: rpow_d, that asks nobody, or another rule"):
        run("{power_of_choice: {count: 5, candidates: 6}}", scheme)


def test_rpow_d_asks_nobody_and_so_its_model_may_be_compressed():
    ran = run("{power_of_choice: {count: 3, loss: rpow_d}}, compress: {down: sign}")
    assert [row[4]["received"] for row in ran.rows if row[0] == R.REPORT and "received" in row[4]] == [3] * 6


def test_a_rule_that_has_no_client_left_says_so():
    role = server({"oort": {"count": 2, "most": 1}}, clients=2, rounds=2, deadline_s=9.0)
    role.deliver({1: update(), 2: update()})
    role.advance_to(9.0)
    assert any("the rule has no client left to choose" in str(action) for action in role.actions)


RULES = ["{oort: {count: 3, step: 1 s, over: 1.3}}", "{power_of_choice: {count: 2, candidates: 4}}",
         "{available: {count: 2, window: 200 ms, prefer: rare}}", "{tifl: {count: 2, tiers: 2, interval: 1}}",
         "{fedcs: {count: 2, round: 2 s, window: 200 ms}}"]


@pytest.mark.slow
@pytest.mark.parametrize("rule", [RULES[1], RULES[-1]])
def test_a_scheme_that_shares_a_part_of_its_model_conforms_with_a_rule_that_probes_or_takes_times(rule: str):
    text = fedper.EXAMPLE.replace("deadline: 1 s", f"deadline: 1 s, selection: {rule}")
    check_scheme("fedper", text, pools=[])


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_scheme_with_a_rule_conforms(rule: str):
    check_scheme("fedavg", fedavg.EXAMPLE.replace("deadline: 1 s", f"deadline: 1 s, selection: {rule}"), pools=[])
