"""SAFA: who is synchronised, which updates a round takes, and the cache, against the paper's equations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base import rows as R
from emul.protocols.asynchronous import Model, Update
from emul.schemes import safa
from emul.schemes.safa import Proceed
from emul.testing import drive, run_text
from emul.testing.drive import Driven

CLIENTS = [1, 2, 3, 4]


class Task:
    """A model of one number."""

    dimension = 1

    def initial_parameters(self) -> np.ndarray:
        return np.zeros(1, np.float32)


def served(rounds: int, **params: Any) -> Driven:
    return drive(safa.server, safa.Params(**{"deadline_s": 10.0} | params), clients=CLIENTS, task=Task(), rounds=rounds)


def answer(role: Driven, client: int, value: float, number: int, samples: int = 1) -> None:
    role.deliver({client: Update(np.float32([value]), samples, number)})


def time_out(role: Driven) -> None:
    assert role.deadline is not None
    role.advance_to(role.deadline)


def orders(role: Driven) -> dict[int, tuple[str, int]]:
    """Each client's newest order: its kind and its round."""
    newest = {k: ("model", m.number) for k, m in role.sent(Model).items()}
    for k, m in role.sent(Proceed).items():
        newest[k] = max(newest[k], ("proceed", m.number), key=lambda one: one[1])
    return newest


def test_those_who_answered_and_those_who_have_not_for_too_long_are_synchronised():
    role = served(rounds=3, fraction=0.5, lag=1)
    answer(role, 1, 1.0, 1)
    answer(role, 2, 1.0, 1)
    assert orders(role) == {1: ("model", 2), 2: ("model", 2), 3: ("proceed", 2), 4: ("proceed", 2)}
    answer(role, 3, 1.0, 1)
    answer(role, 1, 1.0, 2)
    time_out(role)
    assert orders(role) == {1: ("model", 3), 2: ("proceed", 3), 3: ("model", 3), 4: ("model", 3)}
    assert [(r["synchronised"], r["forced"]) for r in role.reports] == [(4, 0), (2, 0)]


def test_a_round_takes_the_first_that_were_not_in_the_last_one_and_others_at_its_deadline():
    role = served(rounds=3, fraction=0.5)
    answer(role, 1, 4.0, 1)
    answer(role, 2, 8.0, 1)                                             # P = {1, 2}
    for client, value in ((2, 20.0), (1, 10.0), (3, 40.0), (4, 80.0)):    # 2 and 1 first, and they wait: P = {3, 4}
        answer(role, client, value, 2 if client < 3 else 1)
    assert [(r["received"], r["undrafted"]) for r in role.reports] == [(2, 0), (2, 2)]
    assert role.node.state(None).model[0] == np.float32((4 + 8 + 40 + 80) / 4)    # 10 and 20 wait in the cache
    answer(role, 4, 100.0, 3)
    answer(role, 3, 60.0, 3)
    time_out(role)                                               # both were in the last P: the deadline takes them
    assert [(r["received"], r["undrafted"]) for r in role.reports][2] == (2, 0)
    assert role.node.state(None).model[0] == np.float32((10 + 20 + 60 + 100) / 4)


def test_the_cache_of_one_that_is_synchronised_by_force_is_the_model():
    role = served(rounds=3, fraction=0.25, lag=1)
    answer(role, 1, 8.0, 1, samples=3)
    answer(role, 2, 4.0, 1)                                             # late: it is the second round's
    answer(role, 1, 16.0, 2)
    assert [report["forced"] for report in role.reports] == [0, 0, 2]   # 3 and 4, of which nothing was ever heard
    assert [float(w[0]) for w in role.node.state(None).cache.values()][2:] == [3.5, 3.5]          # (3 8 + 4) / 8


def test_what_answers_an_order_that_a_model_has_replaced_is_dropped_and_an_order_is_answered_once():
    role = served(rounds=2, fraction=0.75)
    answer(role, 1, 1.0, 1)
    answer(role, 1, 9.0, 1)
    answer(role, 2, 1.0, 7)                                             # of a round that has not been
    time_out(role)
    assert role.reports[0]["dropped"] == 2
    answer(role, 1, 9.0, 1)
    answer(role, 1, 2.0, 2)
    time_out(role)
    assert (role.reports[1]["dropped"], role.reports[1]["received"]) == (1, 1)


def test_a_round_without_an_update_fails():
    role = served(rounds=2)
    role.advance_to(10.0)
    assert not role.reports
    assert {kind for kind, _ in orders(role).values()} == {"model"}     # nobody lags behind a round that made no model


@settings(max_examples=60, deadline=None)
@given(rounds=st.lists(st.permutations(CLIENTS).flatmap(lambda order: st.integers(1, 4).map(lambda n: order[:n])),
                       min_size=1, max_size=6),
       fraction=st.sampled_from([0.25, 0.5, 0.6, 1.0]), lag=st.integers(1, 3), data=st.data())
def test_models_are_those_of_the_equations(rounds: list[list[int]], fraction: float, lag: int, data: Any) -> None:
    """An oracle written from equations 3 to 7 and Algorithm 2; every update comes in the round of its order."""
    n = {k: data.draw(st.integers(1, 9), label=f"samples of {k}") for k in CLIENTS}
    role = served(rounds=len(rounds), fraction=fraction, lag=lag)
    quota = math.ceil(fraction * len(CLIENTS))
    w, cache, version, last_picked = 0.0, dict.fromkeys(CLIENTS, 0.0), dict.fromkeys(CLIENTS, 0), set[int]()
    heard = dict[int, int]()
    for t, order in enumerate(rounds, 1):
        for k in CLIENTS:
            if t - 1 - version[k] > lag:
                cache[k], version[k] = w, t - 1
        expected = {k: "model" if version[k] == t - 1 else "proceed" for k in CLIENTS}
        assert {k: kind for k, (kind, _) in orders(role).items()} == expected
        value = {k: float(data.draw(st.integers(-50, 50))) for k in order}
        picked, waiting, arrived = [], [], []
        for k in order:
            if len(picked) == quota:
                break                                       # the round is over; this client stays silent
            arrived.append(k)
            (waiting if k in last_picked else picked).append(k)
            answer(role, k, value[k], t, n[k])
        if len(picked) < quota:
            time_out(role)
        while len(picked) < quota and waiting:
            picked.append(waiting.pop(0))
        heard |= {k: n[k] for k in arrived}
        weight = {k: heard.get(k, sum(heard.values()) / len(heard)) for k in CLIENTS}
        cache |= {k: value[k] for k in picked}
        w = sum(weight[k] * cache[k] for k in CLIENTS) / sum(weight.values())
        cache |= {k: value[k] for k in waiting}
        version |= dict.fromkeys(arrived, t)
        last_picked = set(picked)
        assert role.node.state(None).model[0] == pytest.approx(w, rel=1e-5, abs=1e-4)


STRAGGLING = """
emul: 1
name: straggling
seed: 7
topology: {generator: star, clients: 4}
links: [{match: "*", latency: 10 ms}]
task: {data: {set: digits}, partition: iid, model: logistic, solver: {sgd: {lr: 0.1, steps: 1, batch: 16}}}
nodes: [{match: client4, speed: 0.1}]
compute: {mode: zero}
schemes: [{name: safa, fraction: 0.25, lag: LAG, deadline: 10 s}]
stop: {rounds: 36}
"""


@pytest.mark.parametrize(("lag", "begun", "ended"), [(40, 2, 1), (2, 12, 0)])
def test_a_straggler_goes_on_with_its_training_and_is_cut_when_it_is_synchronised_by_force(lag: int, begun: int,
                                                                                           ended: int) -> None:
    """Three rounds take the others 120 ms, a training takes the straggler 1 s."""
    ran = run_text(STRAGGLING.replace("LAG", str(lag)), costs={"client/train": 0.1, "server/aggregate": 0.0})
    trainings, updates = (sum(row[0] == kind and row[2] == 4 for row in ran.rows) for kind in (R.COMPUTE, R.SEND))
    assert (trainings, updates) == (begun, ended)
