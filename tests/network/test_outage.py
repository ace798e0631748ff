"""Outages: frequencies, common random numbers, independence of the three units."""

from __future__ import annotations

from math import comb, sqrt

import pytest

from emul.network import OutageSpec, lost_at
from emul.network.loss import outage, problem

N = 20_000


def z(lost, n, p):
    """Standard score of `lost` out of n independent losses of probability p."""
    return (lost - n * p) / sqrt(n * p * (1 - p))


def index(per, i):
    """The i-th independent draw of a unit."""
    return {"message": {"round": i // 100, "k": i % 100}, "round": {"round": i + 1},
            "slot": {"start_ns": i * 1000 + i % 1000}}[per]


def spec(p, per):
    return OutageSpec(p, per, 1000 if per == "slot" else None)


@pytest.mark.parametrize("per", ["message", "round", "slot"])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_the_frequency_of_losses_is_p(per, p):
    """F14."""
    model = outage(spec(p, per), 7, "a", "b")
    lost = sum(model.lost(d.get("start_ns", 0), d.get("round", 0), d.get("k", 0))
               for d in (index(per, i) for i in range(N)))
    assert abs(z(lost, N, p)) < 4


@pytest.mark.parametrize("per", ["message", "round", "slot"])
def test_probability_0_loses_nothing_and_1_everything(per):
    assert outage(spec(0, per), 7, "a", "b") is None
    assert all(lost_at(spec(1, per), 7, "a", "b", **index(per, i)) for i in range(1000))


def test_k_of_n_uplinks_are_up_as_often_as_the_binomial_says():
    """F22: sum_{j >= k} C(n, j) (1 - p)^j p^(n - j) = 0.92981 for n = 10, k = 8, p = 0.1."""
    n, k, p, rounds = 10, 8, 0.1, 5000
    expected = sum(comb(n, j) * (1 - p) ** j * p ** (n - j) for j in range(k, n + 1))
    assert round(expected, 5) == 0.92981
    links = [outage(OutageSpec(p, "round"), 7, f"client{i}", "server") for i in range(n)]
    good = sum(sum(not link.lost(0, t, 0) for link in links) >= k for t in range(1, rounds + 1))
    assert abs(z(good, rounds, expected)) < 4


def test_a_fate_depends_on_seed_ends_and_direction_only():
    def fates(seed, src, dst):
        return [lost_at(OutageSpec(0.5, "round"), seed, src, dst, round=t) for t in range(1, 65)]

    assert fates(7, "a", "b") == fates(7, "a", "b")
    assert len({tuple(fates(*key)) for key in [(7, "a", "b"), (8, "a", "b"), (7, "b", "a"), (7, "a", "c")]}) == 4


def test_all_messages_of_a_round_share_its_fate_whatever_was_asked_before():
    model = outage(OutageSpec(0.5, "round"), 7, "a", "b")
    expected = {t: lost_at(OutageSpec(0.5, "round"), 7, "a", "b", round=t) for t in range(1, 40)}
    for t in [*range(39, 0, -1), *range(1, 40)]:
        assert {model.lost(start, t, k) for start, k in ((0, 0), (10**9, 5))} == {expected[t]}


def test_round_0_draws_per_message_as_the_model_per_message_does():
    per_round = [lost_at(OutageSpec(0.5, "round"), 7, "a", "b", k=k) for k in range(64)]
    assert per_round == [lost_at(OutageSpec(0.5, "message"), 7, "a", "b", k=k) for k in range(64)]
    assert 0 < sum(per_round) < 64


def test_a_slot_is_one_fate_from_its_first_nanosecond_to_its_last():
    model = outage(spec(0.5, "slot"), 7, "a", "b")
    for slot in range(200):
        assert model.lost(slot * 1000, 1, 0) == model.lost(slot * 1000 + 999, 9, 9) == model.lost(slot * 1000, 0, 3)


@pytest.mark.parametrize(("one", "other"), [("message", "round"), ("message", "slot"), ("round", "slot")])
def test_the_units_draw_from_independent_streams(one, other):
    def fates(per):
        at = {"message": lambda i: {"k": i}, "round": lambda i: {"round": i}, "slot": lambda i: {"start_ns": i * 1000}}
        return [lost_at(spec(0.5, per), 7, "a", "b", **at[per](i)) for i in range(1, 4001)]      # the same indices

    same = sum(a == b for a, b in zip(fates(one), fates(other), strict=True))
    assert abs(z(same, 4000, 0.5)) < 4


@pytest.mark.parametrize(("wrong", "expected"), [
    (OutageSpec(1.4), ("p", "1.4", "expected a probability in [0, 1]")),
    (OutageSpec(float("nan")), ("p", "nan", "expected a probability in [0, 1]")),
    (OutageSpec(0.1, "packet"), ("per", "'packet'", "expected one of message, round, slot")),
    (OutageSpec(0.1, "slot"), ("slot", "None", "expected the length of a slot, a positive duration")),
    (OutageSpec(0.1, "round", 5), ("slot", "5", 'is used only with per "slot"')),
    (OutageSpec(0.1, model="gilbert"), ("model", "'gilbert'", 'expected "bernoulli"')),
    (OutageSpec(0.1, "slot", 5), None),
])
def test_a_spec_that_means_nothing_is_named(wrong, expected):
    assert problem(wrong) == expected
