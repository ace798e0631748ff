"""Rules of selection by hand-worked numbers: utilities, the pacer, tiers, credits, losses."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.primitives.selection import KINDS, Heard, begun, choose
from emul.primitives.selection.choice import ChoiceRule, PowerOfChoice
from emul.primitives.selection.contact import FirstContact, FirstContactRule
from emul.primitives.selection.fedcs import FedCS, FedCSRule, within
from emul.primitives.selection.oort import ExploredClient, Oort, OortRule
from emul.primitives.selection.rule import drawn
from emul.primitives.selection.tifl import Tifl, TiflRule, changed
from emul.primitives.selection.uniform import Available, AvailableRule


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


@given(st.integers(1, 30), st.integers(1, 40), st.integers(0, 99), st.booleans())
def test_a_draw_is_of_different_clients_in_order_and_of_all_if_there_are_too_few(n: int, count: int, seed: int,
                                                                                 weighted: bool):
    clients = list(range(5, 5 + n))
    weights = rng(seed + 1).integers(0, 3, n).tolist() if weighted else None
    found = drawn(rng(seed), clients, count, weights)
    assert found == sorted(set(found))
    assert set(found) <= set(clients)
    assert len(found) == min(n, count)
    assert found == drawn(rng(seed), clients, count, weights)


def test_a_draw_goes_by_its_weights_and_zeros_come_last():
    assert drawn(rng(), [1, 2, 3, 4], 2, [0, 1, 0, 5]) == [2, 4]
    assert {1, 3} <= set(drawn(rng(), [1, 2, 3, 4], 3, [2, 0, 2, 0]))
    firsts = Counter(drawn(rng(seed), [1, 2], 1, [3, 1])[0] for seed in range(400))
    assert firsts[1] == pytest.approx(300, abs=40)


# --- Oort -----------------------------------------------------------------------------------------------------------

def oort(known: dict[int, ExploredClient], **params: Any) -> OortRule:
    return OortRule(Oort(**params), known)


def test_the_utility_of_oort_is_statistical_uncertain_and_cut_where_a_client_is_late():
    rule = oort({1: ExploredClient(10, 5, 2, 1), 2: ExploredClient(10, 20, 2, 1), 3: ExploredClient(4, 10, 8, 1)},
                step_s=10, clip=1)
    found = rule.utilities([1, 2, 3], 8)
    unsure = math.sqrt(0.1 * math.log(8) / 2)                           # 0.3224
    assert found == pytest.approx({1: 10 + unsure, 2: (10 + unsure) / 4, 3: 4 + math.sqrt(0.1 * math.log(8) / 8)})
    assert oort(rule.known, step_s=10, clip=1, alpha=1).utilities([2], 8)[2] == pytest.approx((10 + unsure) / 2)


def test_oort_clips_utilities_at_a_quantile():
    rule = oort({k: ExploredClient(float(k), 1, 1, 1) for k in range(1, 6)}, clip=0.5)
    assert rule.utilities([1, 2, 3, 4, 5], 1) == pytest.approx({1: 1, 2: 2, 3: 3, 4: 3, 5: 3})      # ln 1 = 0


def test_oort_draws_from_those_near_the_last_that_rank_would_take():
    rule = oort({1: ExploredClient(100, 1, 1, 1), 2: ExploredClient(96, 1, 1, 1), 3: ExploredClient(92, 1, 1, 1),
                 4: ExploredClient(90, 1, 1, 1)},
                explore=0, explore_least=0, clip=1)
    chosen = Counter(k for seed in range(60) for k in rule.choose(rng(seed), [1, 2, 3, 4], 2, 1, {}))
    assert chosen.keys() == {1, 2, 3}                                   # 0.95 of 96 is 91.2
    strict = oort(rule.known, explore=0, explore_least=0, clip=1, cutoff=1)
    assert strict.choose(rng(), [1, 2, 3, 4], 2, 1, {}) == [1, 2]


def test_oort_explores_a_share_of_a_round_that_decays():
    p = Oort(explore=0.8, decay=0.5, explore_least=0.3)
    assert [OortRule(p).epsilon(round_) for round_ in (1, 2, 3, 4)] == [0.8, 0.4, 0.3, 0.3]
    rule = OortRule(p, {k: ExploredClient(1, 1, 1, 1) for k in range(10)})
    chosen = rule.choose(rng(), list(range(20)), 10, 2, {})
    assert len(chosen) == 10
    assert sum(k >= 10 for k in chosen) == 4
    assert len(rule.choose(rng(), list(range(12)), 10, 1, {})) == 10    # 8 wanted, 2 unexplored: the rest is exploited
    assert sum(k >= 10 for k in rule.choose(rng(), [0, *range(10, 20)], 10, 2, {})) == 9        # and the reverse


def test_the_pacer_allows_longer_rounds_when_utility_falls():
    rule = OortRule(Oort(step_s=3, window=2))
    for round_, won in enumerate([5, 5, 4, 5, 6, 6, 1, 1], 1):
        rule.learn(Heard(round_, [1], {1: 1.0}, 1.0, {1: won}))
        rule.preferred_s = round(rule.preferred_s, 9)
        if round_ == 4:
            assert rule.preferred_s == 6                                # 10 > 9
        if round_ == 6:
            assert rule.preferred_s == 6                                # 9 < 12
    assert rule.preferred_s == 9                                        # 12 > 2


def test_oort_learns_of_those_who_do_not_answer_that_they_take_long():
    rule = oort({2: ExploredClient(7, 3, 1, 1)})
    rule.learn(Heard(4, [1, 2, 3], {1: 2.5}, 6.0, {1: 9.0}))
    assert rule.known == {1: ExploredClient(9, 2.5, 4, 1), 2: ExploredClient(7, 6, 4, 2), 3: ExploredClient(0, 6, 4, 1)}


def test_oort_chooses_nobody_too_often():
    rule = oort({1: ExploredClient(9, 1, 1, 2), 2: ExploredClient(1, 1, 1, 1)}, most=2)
    assert rule.choose(rng(), [1, 2], 2, 3, {}) == [2]


# --- TiFL -----------------------------------------------------------------------------------------------------------

def profiled(latencies: dict[int, float], **params: Any) -> TiflRule:
    rule = TiflRule(Tifl(**params))
    assert rule.choose(rng(), sorted(latencies), 1, 1, {}) == sorted(latencies)     # all of them are profiled
    answered = {k: s for k, s in latencies.items() if s < 9}
    rule.learn(Heard(1, sorted(latencies), answered, 9.0))
    return rule


def test_tifl_cuts_clients_into_tiers_by_latency_and_leaves_the_silent_out():
    rule = profiled({1: 5, 2: 1, 3: 9, 4: 3, 5: 2, 6: 4}, tiers=2)
    chosen = rule.choose(rng(), [1, 2, 3, 4, 5, 6], 2, 2, {})
    assert rule.tiers == [[2, 4, 5], [1, 6]]
    assert set(chosen) <= set(rule.tiers[rule.current])
    assert len(chosen) == 2


def test_tifl_averages_the_profiling_rounds_with_a_deadline_for_each_silence():
    rule = TiflRule(Tifl(tiers=2, profile=2))
    rule.learn(Heard(1, [1, 2, 3, 4], {1: 1.0, 2: 3.0, 3: 5.0}, 8.0))
    rule.learn(Heard(2, [1, 2, 3, 4], {2: 3.0, 3: 5.0}, 8.0))
    rule.choose(rng(), [1, 2, 3, 4], 1, 3, {})
    assert rule.tiers == [[1, 2], [3]]                                  # (1 + 8) / 2, 3, 5: 3 < 4.5 < 5


def test_a_tier_of_tifl_has_as_many_rounds_as_credits():
    rule = profiled({k: float(k) for k in range(1, 7)}, tiers=3, credits=2, adaptive=False)
    drawn_tiers = []
    for round_ in range(2, 8):
        rule.choose(rng(round_), [1, 2, 3, 4, 5, 6], 1, round_, {})
        drawn_tiers.append(rule.current)
    assert Counter(drawn_tiers) == {0: 2, 1: 2, 2: 2}
    assert rule.choose(rng(9), [1, 2, 3, 4, 5, 6], 1, 8, {})            # spent: none is needed any more


def test_tiers_of_poor_accuracy_become_likelier_if_the_last_one_has_not_gained():
    rule = profiled({1: 1, 2: 2, 3: 3}, tiers=3, interval=2)
    everyone, third = [1, 2, 3], 1 / 3
    rule.learn(Heard(1, everyone, {}, 9.0, {1: 0.9, 2: 0.5, 3: 0.7}))
    rule.choose(rng(), everyone, 1, 2, {})                              # the first look: nothing to compare with
    assert rule.chances == [third] * 3
    rule.choose(rng(), everyone, 1, 3, {})
    rule.choose(rng(), everyone, 1, 4, {})                              # nobody has gained
    assert rule.chances == pytest.approx([1 / 6, 3 / 6, 2 / 6])
    assert changed([0.9, 0.5, 0.7], [1, 0, 1]) == pytest.approx([1 / 3, 0, 2 / 3])      # without credits: none
    rule.told = dict.fromkeys(everyone, 0.95)
    rule.chances = [third] * 3
    rule.choose(rng(), everyone, 1, 6, {})                              # all have gained
    assert rule.chances == [third] * 3


# --- power of choice, availability ------------------------------------------------------------------------------------

def test_power_of_choice_takes_the_largest_losses_of_those_that_answered():
    rule = ChoiceRule(PowerOfChoice(candidates=4))
    assert rule.choose(rng(), list(range(9)), 2, 1, {3: 0.5, 5: 2.0, 6: 1.0, 8: 2.0}) == [5, 8]
    assert rule.choose(rng(), list(range(9)), 1, 1, {8: 2.0, 5: 2.0}) == [5]


def test_rpow_d_asks_nobody_and_takes_whom_it_does_not_know_first():
    rule = ChoiceRule(PowerOfChoice(candidates=4, loss="rpow_d"))
    assert (rule.p.asks, rule.p.tells) == ("", "loss")
    assert (PowerOfChoice().asks, PowerOfChoice().tells) == ("loss", "")
    rule.learn(Heard(1, [1, 2], {1: 1.0, 2: 1.0}, 1.0, {1: 3.0, 2: 5.0}, {1: 10, 2: 10}))
    assert rule.choose(rng(), [1, 2, 3], 1, 2, {}) == [3]
    rule.learn(Heard(2, [3], {3: 1.0}, 1.0, {3: 4.0}, {3: 10}))
    assert rule.choose(rng(), [1, 2, 3], 2, 3, {}) == [2, 3]


def test_candidates_are_drawn_by_their_numbers_of_samples():
    rule = ChoiceRule(PowerOfChoice(candidates=1))
    rule.samples = {1: 1, 2: 7}                                         # 3 unknown: 4
    found = Counter(rule.candidates(rng(seed), [1, 2, 3], 1)[0] for seed in range(600))
    assert [found[k] / 600 for k in (1, 2, 3)] == pytest.approx([1 / 12, 7 / 12, 4 / 12], abs=0.06)


def test_rare_clients_come_first_if_that_is_preferred():
    rule = AvailableRule(Available(prefer="rare"), {1: 3, 2: 1, 3: 2})
    answers = dict.fromkeys([1, 2, 3, 4], 0.0)
    assert rule.choose(rng(), [], 2, 1, answers) == [2, 4]
    rule.learn(Heard(1, [2, 4], {4: 1.0}, 1.0))
    assert rule.times == {1: 3, 2: 1, 3: 2, 4: 1}
    assert len(rule.candidates(rng(), list(range(50)), 10)) == 20


# --- as written -------------------------------------------------------------------------------------------------------

def test_every_rule_begins_and_is_found_by_its_name():
    for name, kind in KINDS.items():
        assert type(choose(name)) is kind
        assert begun(choose({name: {"count": 3}}))


@pytest.mark.parametrize(("written", "error"), [
    ("ort", 'unknown selection "ort"; did you mean "oort"?'),
    ({"oort": {"step": "soon"}}, "oort: step = 'soon': "),
    ({"oort": {"cutof": 1}}, 'oort: unknown parameter "cutof"'),
    ({"oort": {"explore": 1.5}}, "oort: explore = 1.5: expected a number in [0, 1]"),
    ({"uniform": {"over": 0.5}}, "uniform: over = 0.5: expected at least 1"),
    ({"oort": {"most": 0}}, "oort: most = 0: expected at least 1, or none"),
    ({"tifl": {"tiers": 0}}, "tifl: tiers = 0: expected at least 1"),
    ({"power_of_choice": {"candidates": 3, "count": 5}}, "candidates = 3: expected at least 5, those chosen"),
    ({"available": {"window": "0 s"}}, "window = 0.0 s: expected a time above 0")])
def test_what_is_wrong_with_a_rule_is_said(written: Any, error: str):
    with pytest.raises(ValueError, match=re.escape(error)):
        choose(written)


def test_times_are_written_with_their_unit():
    assert choose({"oort": {"step": "500 ms"}}).step_s == 0.5           # type: ignore[attr-defined]


# --- first contact ----------------------------------------------------------------------------------------------------

@given(st.dictionaries(st.integers(0, 20), st.integers(0, 5)), st.integers(1, 8))
def test_first_contact_takes_those_that_are_reached_first_and_of_equal_ones_the_lowest_numbers(
        reached: dict[int, int], count: int):
    clients = list(range(21))
    found = FirstContactRule(FirstContact()).choose(rng(), clients, count, 1, {k: float(s) for k, s in reached.items()})
    left = dict(reached)
    expected = []
    while left and len(expected) < count:
        soonest = min(left.values())
        expected.append(min(k for k, s in left.items() if s == soonest))
        del left[expected[-1]]
    assert found == sorted(expected)


def test_first_contact_is_written_with_the_time_of_a_training():
    assert choose("contact") == FirstContact()
    assert choose({"contact": {"count": 3, "training": "5 min"}}) == FirstContact(count=3, training_s=300.0)
    with pytest.raises(ValueError, match=r"^contact: training = '-1 s': expected a duration"):
        choose({"contact": {"training": "-1 s"}})


# --- FedCS ----------------------------------------------------------------------------------------------------------

def scheduled(order: list[int], training: dict[int, int], upload: dict[int, int]) -> int:
    """The end of a round, step by step: the download of the slowest, then trainings at once and uploads in turn."""
    downloaded = max((upload[k] for k in order), default=0)
    ready = {k: downloaded + training[k] for k in order}
    free = downloaded
    for k in order:
        free = max(free, ready[k]) + upload[k]
    return free


TIMES = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 10)), min_size=1, max_size=7)


@given(TIMES, st.integers(1, 80))
def test_fedcs_takes_at_each_step_whom_the_schedule_grows_least_by_if_the_round_still_ends(
        times: list[tuple[int, int]], round_s: int):
    training, upload = ({k: one[i] for k, one in enumerate(times)} for i in (0, 1))
    order, left = list[int](), set(training)
    while left:                                         # Algorithm 3 by a whole schedule of each extension
        x = min(left, key=lambda k: (scheduled([*order, k], training, upload), k))
        left.remove(x)
        if scheduled([*order, x], training, upload) < round_s:
            order.append(x)
    assert within(round_s, training, upload) == sorted(order)


def test_fedcs_knows_a_client_by_its_last_update_alone():
    rule = FedCSRule(FedCS(round_s=20))
    assert rule.choose(rng(), [1, 2, 3], 3, 1, {1: 0.0, 3: 0.0}) == [1, 3]      # unknown ones are tried
    rule.learn(Heard(1, [1, 2, 3], {1: 12.0, 3: 30.0}, 40.0, {1: 8.0, 3: 29.0, 2: 1.0}))
    assert rule.training == {1: 8.0, 2: 40.0, 3: 29.0}                          # 2 has had its chance
    assert rule.upload == {1: 2.0, 3: 0.5}
    assert rule.choose(rng(), [1, 2, 3], 3, 2, {1: 0.0, 2: 0.0, 3: 0.0}) == [1]
    rule.learn(Heard(2, [1], {}, 20.0, {}))
    assert rule.training[1] == 8.0                                              # a lost update changes nothing


@given(TIMES, st.integers(1, 80))
def test_fedcs_at_once_takes_all_whose_own_way_is_short_enough(times: list[tuple[int, int]], round_s: int):
    rule = FedCSRule(FedCS(round_s=round_s, uploads="at_once"))
    whole = {k: float(training + 2 * upload) for k, (training, upload) in enumerate(times)}
    rule.learn(Heard(1, list(whole), whole, 99.0, {k: float(training) for k, (training, _) in enumerate(times)}))
    assert rule.choose(rng(), list(whole), 9, 2, dict.fromkeys(whole, 0.0)) == [
        k for k in whole if whole[k] < round_s]
