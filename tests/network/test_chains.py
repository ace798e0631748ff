"""Gilbert-Elliott chains: netem's order, closed forms of mean, burst and variance, purity."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.network.models.chains import Chain
from emul.network.models.outages import GilbertSpec, lost_at, outage
from emul.network.models.stays import Stays, geometric

SLOT = 1000


def losses(spec, n, seed=7):
    """The fates of n steps in a row."""
    model = outage(spec, seed, "a", "b")
    ask = {"message": lambda i: model.lost(0, 0, 1, i, 1), "round": lambda i: model.lost(0, 0, i + 1, 0, 1),
           "slot": lambda i: model.lost(i * SLOT, i * SLOT, 1, 0, 1)}[spec.per]
    return np.array([ask(i) for i in range(n)])


def spec(p, r, bad=1.0, good=0.0, per="round", **more):
    return GilbertSpec(p, r, bad, good, per, SLOT if per == "slot" else None, **more)


def deviation(p, r, bad, good, n):
    """Standard deviation of the number of losses in n steps: spec of the chain, 2.1."""
    share, decay = p / (p + r), 1 - p - r
    e = share * bad + (1 - share) * good
    return sqrt(n * (e * (1 - e) + 2 * (bad - good)**2 * share * (1 - share) * decay / (1 - decay)))


@pytest.mark.parametrize("per", ["message", "round", "slot"])
@pytest.mark.parametrize(("p", "r", "bad", "good", "e"), [(0.02, 0.2, 0.8, 0.01, 0.081818), (0.05, 0.25, 1, 0, 1 / 6)])
def test_the_mean_loss_is_that_of_the_stationary_chain(per, p, r, bad, good, e):
    """F15, F16."""
    n = 60_000
    chain = spec(p, r, bad, good, per)
    assert outage(chain, 7, "a", "b").mean_loss() == pytest.approx(e, abs=1e-6)
    lost = losses(chain, n).sum()
    assert abs(lost - n * e) / deviation(p, r, bad, good, n) < 4


def test_the_mean_burst_of_a_simple_chain_is_1_over_r():
    """F16: geometric bursts of mean 1 / r = 4, deviation sqrt(1 - r) / r."""
    lost = losses(spec(0.05, 0.25), 100_000)
    change = np.flatnonzero(np.diff(np.concatenate(([0], lost.astype(int), [0]))))
    bursts = change[1::2] - change[::2]
    assert abs(bursts.mean() - 4) / (sqrt(0.75) / 0.25 / sqrt(len(bursts))) < 4


def test_the_variance_of_counts_is_that_of_the_chain():
    p, r, bad, good, n, links = 0.05, 0.2, 0.9, 0.02, 400, 600
    counts = np.array([losses(spec(p, r, bad, good, start="stationary"), n, seed).sum() for seed in range(links)])
    expected = deviation(p, r, bad, good, n)**2
    # the variance of n independent, nearly normal counts has a relative deviation of sqrt(2 / n)
    assert abs(counts.var(ddof=1) / expected - 1) / sqrt(2 / links) < 4


@pytest.mark.parametrize("per", ["message", "round", "slot"])
def test_a_link_starts_good_and_the_loss_is_drawn_before_the_change(per):
    """netem: with p = r = 1 the state alternates, the first step is the good state's."""
    expected = [False, True] * 10
    if per == "message":
        expected = [not lost for lost in expected]      # round 1 begins one step after round 0
    assert losses(spec(1, 1, per=per), 20).tolist() == expected


def test_with_p_alone_a_chain_is_bernoulli():
    n, lost = 50_000, losses(spec(0.3, 0.7), 50_000)
    assert abs(lost.sum() - 0.3 * n) / sqrt(n * 0.21) < 4
    pairs = (lost[1:] & lost[:-1]).sum()
    assert abs(pairs - 0.09 * n) / sqrt(n * 0.09 * 0.91 * 1.5) < 4


def test_the_first_messages_of_rounds_are_a_chain_of_their_own():
    n, model = 50_000, outage(spec(0.05, 0.25, per="message"), 7, "a", "b")
    first = np.array([model.lost(0, 0, t, 0, 1) for t in range(1, n + 1)])
    assert abs(first.sum() - n / 6) / deviation(0.05, 0.25, 1, 0, n) < 4
    after = np.array([model.lost(0, 0, t, 1, 1) for t in range(1, n + 1)])
    stayed = (first & after).sum()                      # the second message goes on from the first: bad with 1 - r
    assert abs(stayed - 0.75 * first.sum()) / sqrt(first.sum() * 0.75 * 0.25) < 4


@pytest.mark.parametrize(("packets", "bad", "good"), [(1, 0.8, 0.01), (5, 0.8, 0.01), (40, 1, 0), (7, 0.3, 0)])
def test_a_message_is_lost_with_a_packet_of_its_chain(packets, bad, good):
    model = outage(spec(0.02, 0.2, bad, good, "packet", start="stationary"), 7, "a", "b")
    n = 30_000
    e = model.mean_loss(packets)
    lost = sum(model.lost(0, 0, 1, 50 * k, packets) for k in range(n))      # far apart: almost independent
    assert abs(lost - n * e) / sqrt(n * e * (1 - e)) < 4


def test_the_loss_of_several_packets_is_the_sum_over_all_paths():
    chain, total = Chain(0.1, 0.3, 0.05, 0.6), 0.0
    for path in np.ndindex(2, 2, 2, 2):
        weight = (0.75, 0.25)[path[0]]
        for a, b in pairwise(path):
            weight *= ((0.9, 0.1), (0.3, 0.7))[a][b]
        total += weight * float(np.prod([1 - chain.loss(bool(s)) for s in path]))
    assert chain.mean_loss(4) == pytest.approx(1 - total, rel=1e-12)
    assert chain.mean_loss(0) == 0
    assert Chain(0, 0, 0.5, 1).mean_loss() == 0.5


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=25),
       st.sampled_from(["message", "packet", "round"]), st.sampled_from(["good", "stationary"]))
def test_a_fate_does_not_depend_on_what_was_asked_before(asked, per, start):
    chain = spec(0.2, 0.3, 0.7, 0.1, per, start=start)
    model = outage(chain, 7, "a", "b")
    for round, k, packets in asked:
        assert model.lost(0, 0, round, k, packets) == lost_at(chain, 7, "a", "b", round=round, k=k, packets=packets)


@given(st.integers(0, 3), st.integers(0, 50), st.integers(1, 200))
def test_more_packets_never_save_a_message(round, k, most):
    model = outage(spec(0.2, 0.3, 0.3, 0.01, "packet"), 7, "a", "b")
    first = model.first_lost(round, k, most)
    assert first is None or 0 <= first < most
    for packets in {1, most, first or 1, (first or 0) + 1}:
        if packets <= most:
            assert model.lost(0, 0, round, k, packets) == (first is not None and first < packets)


@pytest.mark.parametrize(("p", "r", "bad", "good", "expected"), [
    (0, 0, 1, 0, [False] * 9), (0, 0.5, 1, 1, [True] * 9), (1, 0, 1, 0, [False] + [True] * 8)])
def test_states_that_are_never_left_last_for_ever(p, r, bad, good, expected):
    for per in ("round", "slot"):
        assert losses(spec(p, r, bad, good, per), 9).tolist() == expected


@given(st.lists(st.integers(1, 5), min_size=1, max_size=300), st.lists(st.integers(0, 900), min_size=1, max_size=20))
def test_stays_are_found_again_in_any_order(lengths, asked):
    stays = Stays(True, lambda i, _: lengths[i] if i < len(lengths) else None)
    states = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    last = len(lengths) % 2 == 0
    for n in asked:
        assert stays.bad(n) == (states[n] if n < len(states) else last)
        end = stays.end(n)
        assert end is None if n >= len(states) else end == np.cumsum(lengths)[np.cumsum(lengths) > n][0]


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_a_geometric_draw_is_the_inverse_of_its_distribution(u, p):
    n = geometric(u, p)
    if p == 0:
        assert n is None
    elif 1e-6 < p < 1:
        assert 1 - (1 - p)**(n - 1) <= u + 1e-9
        assert u <= 1 - (1 - p)**n + 1e-9
    else:
        assert n >= 1
