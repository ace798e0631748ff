"""FedAT: tiers cut by time, tier by tier, weighed by what the opposite one has done."""

from __future__ import annotations

from typing import Any

import numpy as np

from emul.protocols.asynchronous import Model, Update
from emul.schemes import fedat
from emul.schemes.fedat import weighed_tiers
from emul.testing import drive
from emul.testing.drive import Driven


class Task:
    """A model of one number."""

    dimension = 1

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(1, np.float32)


def answer(role: Driven, client: int, value: float, samples: int = 1) -> None:
    role.deliver({client: Update(np.float32([value]), samples, role.sent(Model)[client].number)})


def profiled(rounds: int, **params: Any) -> Driven:
    """Four clients: 3 and 1 are fast, 4 and 2 slow; the model is 2 after the profiling round."""
    role = drive(fedat.server, fedat.Params(tiers=2, **params), clients=[1, 2, 3, 4], task=Task(), rounds=rounds)
    for client, at_s, value in ((3, 1.0, 1.0), (1, 2.0, 2.0), (4, 5.0, 3.0), (2, 6.0, 2.0)):
        role.advance_to(at_s)
        answer(role, client, value)
    return role


def model(role: Driven) -> float:
    return float(role.node.state(None).model[0])


def test_the_profiling_round_cuts_tiers_by_the_time_that_clients_took():
    role = profiled(rounds=1)
    assert role.node.state(None).tiers == [[1, 3], [2, 4]]
    assert model(role) == 2.0
    assert role.reports[0]["received"] == 4


def test_a_tier_counts_for_as_much_as_the_opposite_one_was_updated():
    role = profiled(rounds=4)
    answer(role, 1, 4.0, samples=3)
    answer(role, 3, 8.0, samples=1)                         # w_1 = 5, T = (1, 0): all the weight is the slow tier's
    assert model(role) == 2.0
    answer(role, 1, 8.0)
    answer(role, 3, 8.0)                                    # w_1 = 8, T = (2, 0)
    assert model(role) == 2.0
    answer(role, 2, 5.0)
    answer(role, 4, 5.0)                                    # w_2 = 5, T = (2, 1): 1/3 of 8 and 2/3 of 5
    assert model(role) == 6.0
    assert [report["tier"] for report in role.reports] == [0, 0, 0, 1]


def test_weights_are_those_of_algorithm_2():
    models = [np.float32([1.0]), np.float32([10.0]), np.float32([100.0])]
    assert weighed_tiers(models, [5, 3, 2])[0] == np.float32((2 * 1 + 3 * 10 + 5 * 100) / 10)


def test_a_tier_goes_on_without_those_that_it_has_waited_for_too_long():
    role = profiled(rounds=2, timeout_s=10.0)
    late = role.sent(Model)[3].number
    answer(role, 1, 9.0)
    role.advance_to(16.0)
    assert [report["received"] for report in role.reports] == [4, 1]
    assert role.node.state(None).models[0][0] == 9.0
    assert role.node.state(None).updates == [1, 0]
    role.deliver({3: Update(np.float32([50.0]), 1, late)})
    assert role.node.state(None).models[0][0] == 9.0


def test_a_client_that_is_silent_while_profiled_is_in_no_tier():
    role = drive(fedat.server, fedat.Params(tiers=2, timeout_s=9.0), clients=[1, 2, 3], task=Task(), rounds=1)
    answer(role, 3, 1.0)
    answer(role, 1, 1.0)
    role.advance_to(9.0)
    assert role.node.state(None).tiers == [[1], [3]]


def test_a_tier_of_which_nobody_answers_fails_its_round_and_begins_anew():
    role = profiled(rounds=4, timeout_s=10.0)
    role.advance_to(16.0)                                   # both tiers have been silent since 6 s
    assert len(role.reports) == 1
    assert {m: cohort.until_s for m, cohort in role.node.state(None).running.items()} == {0: 26.0, 1: 26.0}


def test_only_so_many_of_a_tier_are_drawn():
    role = profiled(rounds=2, count=1)
    assert [len(cohort.waiting) for cohort in role.node.state(None).running.values()] == [1, 1]
