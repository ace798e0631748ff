"""Reliability of gradient-coded rounds: closed forms against enumeration and simulation (spec checks 10, 11, 12)."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.schemes.fair_seccogc import outage
from emul.schemes.fair_seccogc.gradient_coding import cyclic_mds, fractional

PI = [0.9**7] * 10
SYMMETRIC = [0.7] * 10
ASYMMETRIC = [0.5 + 0.3 * k / 9 for k in range(10)]


@pytest.mark.parametrize(("uplinks", "events", "total"), [
    (SYMMETRIC, (0.071680, 9.97e-7, 0.224020), 0.295701), (ASYMMETRIC, (0.071680, 2.51e-6, 0.281454), 0.353137)])
def test_seccogc_check_10_the_published_table_corrected(uplinks, events, total):
    P_O, found = outage.outage_probability(PI, uplinks, 7), outage.failure_events(PI, uplinks, 7)
    assert total == pytest.approx(P_O, abs=1e-6)
    assert (found.sharing, found.uplinks, found.both) == (pytest.approx(events[0], abs=1e-6),
                                                          pytest.approx(events[1], rel=2e-3),
                                                          pytest.approx(events[2], abs=1e-6))
    assert found.total == pytest.approx(P_O, abs=1e-12)
    rng = np.random.default_rng(4)
    complete = (rng.random((100_000, 10, 7)) < 0.9).all(axis=2)
    arrived = complete & (rng.random((100_000, 10)) < uplinks)
    assert (arrived.sum(axis=1) < 3).mean() == pytest.approx(P_O, abs=0.005)


def test_numbers_read_as_outages_never_succeed():
    assert outage.outage_probability([0.1**7] * 10, [0.3] * 10, 7) == pytest.approx(1.0, abs=1e-6)


def test_outage_by_s():
    for uplinks, values in ((SYMMETRIC, [.9323, .8802, .8107, .7184, .5993, .4547, .2957, .1473, .0423]),
                            (ASYMMETRIC, [.9644, .9268, .8703, .7882, .6741, .5260, .3531, .1821, .0543])):
        assert [outage.outage_probability([0.9**s] * 10, uplinks, s) for s in range(1, 10)] == pytest.approx(
            values, abs=6e-5)


def test_seccogc_check_11_gradient_coding():
    assert outage.outage_probability([1.0] * 10, SYMMETRIC, 7) == pytest.approx(0.001590, abs=1e-6)
    assert outage.outage_probability([1.0] * 10, ASYMMETRIC, 7) == pytest.approx(0.004005, abs=1e-6)


@given(st.integers(0, 2**32), st.sampled_from([cyclic_mds(4, 1), cyclic_mds(4, 3), fractional(4, 1)]))
@settings(max_examples=10, deadline=None)
def test_seccogc_check_11_heterogeneous_links_by_enumeration(seed, G):
    rng = np.random.default_rng(seed)
    s = int(np.count_nonzero(G[0])) - 1
    connected = np.where(np.eye(4) > 0, 1.0, rng.random((4, 4)))
    uplinks = rng.random(4)
    pi = outage.complete(G, connected)
    events = np.zeros(3)
    # relays use different links, so a relay is one of: incomplete, complete but lost, complete and arrived
    law = [(1 - pi[k], pi[k] * (1 - uplinks[k]), pi[k] * uplinks[k]) for k in range(4)]
    for states in product(range(3), repeat=4):
        if states.count(2) >= 4 - s:
            continue
        V = states.count(0)
        events[0 if s + 1 <= V else 1 if V == 0 else 2] += prod(law[k][state] for k, state in enumerate(states))
    found = outage.failure_events(pi.tolist(), uplinks.tolist(), s)
    assert (found.sharing, found.uplinks, found.both) == pytest.approx(tuple(events), abs=1e-12)
    assert outage.outage_probability(pi.tolist(), uplinks.tolist(), s) == pytest.approx(events.sum(), abs=1e-12)


def test_a_relay_is_complete_with_the_product_of_its_own_links_by_enumeration():
    rng, G = np.random.default_rng(2), cyclic_mds(4, 1)
    connected = np.where(np.eye(4) > 0, 1.0, rng.random((4, 4)))
    assert outage.complete(G, connected) == pytest.approx([connected[k, (k + 1) % 4] for k in range(4)])


def test_cyclic_s_2_of_4_by_brute_force_over_all_links():
    """K = 4, s = 2 with a random code: every state of 8 sharing links and 4 uplinks."""
    rng = np.random.default_rng(3)
    G = np.array([[float((m - k) % 4 <= 2) for m in range(4)] for k in range(4)])
    sharing = [(k, m) for k in range(4) for m in range(4) if G[k, m] and k != m]
    c, up = {link: rng.random() for link in sharing}, rng.random(4)
    states = np.array(list(product([0, 1], repeat=len(sharing) + 4)))
    chances = np.array([*c.values(), *up])
    weights = np.prod(np.where(states == 1, chances, 1 - chances), axis=1)
    complete = np.stack([states[:, [i for i, (relay, _) in enumerate(sharing) if relay == k]].all(axis=1)
                         for k in range(4)], axis=1)
    failed = weights[(complete & (states[:, len(sharing):] == 1)).sum(axis=1) < 2].sum()
    connected = np.eye(4)
    for link, value in c.items():
        connected[link] = value
    pi = outage.complete(G, connected).tolist()
    assert outage.outage_probability(pi, up.tolist(), 2) == pytest.approx(failed, abs=1e-12)


def test_gaps_between_successes():
    assert outage.gaps(0.295701) == pytest.approx((1.420, 2.612), abs=5e-4)
    assert outage.gaps(0.353137) == pytest.approx((1.546, 3.234), abs=5e-4)
    assert outage.gaps(1.0) == (float("inf"), float("inf"))


def test_transmissions_of_the_papers_setting():
    P_O = outage.outage_probability(PI, SYMMETRIC, 7)
    found = outage.cost(cyclic_mds(10, 7), PI, P_O, send_incomplete=False)
    assert (found.sharing, found.broadcast) == (70, 10)
    assert (found.uplink, found.downlink) == pytest.approx((4.78, 7.04), abs=0.005)
    assert found.per_success(P_O) + 10 == pytest.approx(116.2, abs=0.05)
    assert (found.broadcast + found.uplink) / (1 - P_O) + 10 == pytest.approx(31.0, abs=0.05)
    assert outage.cost(cyclic_mds(10, 7), PI, P_O, send_incomplete=True).uplink == 10
    for s, expected in enumerate([281, 235, 197, 165, 140, 120, 106, 99, 98], 1):
        G = np.array([[float((m - k) % 10 <= s) for m in range(10)] for k in range(10)])
        by_s = outage.outage_probability([0.9**s] * 10, SYMMETRIC, s)
        assert outage.cost(G, [0.9**s] * 10, by_s, False).per_success(by_s) == pytest.approx(expected, abs=0.5)


def test_the_convergence_bound_falls_with_rounds_and_grows_with_outages():
    a, b = outage.convergence(10, 10_000, 5, 0.2957)
    assert (a, b) == pytest.approx((2 / (5 * 0.7043 * np.sqrt(1e5)), 5 * 1.2957 / 0.7043**2 * np.sqrt(1e-3)), rel=1e-9)
    assert outage.convergence(10, 100_000, 5, 0.2957) < (a, b)
    assert all(x > y for x, y in zip(outage.convergence(10, 10_000, 5, 0.5), (a, b), strict=True))
    assert outage.convergence(10, 100, 5, 1.0) == (float("inf"), float("inf"))


@given(st.lists(st.floats(0, 1), max_size=8))
def test_a_poisson_binomial_law_is_a_law_with_the_right_mean(q):
    law = outage.poisson_binomial(q)
    assert law.sum() == pytest.approx(1.0)
    assert law @ np.arange(len(q) + 1) == pytest.approx(sum(q), abs=1e-9)
