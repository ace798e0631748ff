"""Fidelity of things that change: transfers over a link that fails, availability of nodes."""

from __future__ import annotations

from itertools import islice
from math import exp

import numpy as np
import pytest
from laws import BYTE_A_NS, S, count_z, mean_z

from emul.network import Fluid
from emul.network.links.full_link import FullLink
from emul.network.models.churn import alternating
from emul.network.models.laws import Exponential, LogNormal, Weibull

RATE, SIZE_S, DOWN_S = 0.2, 5, 3        # failures a second, seconds of a transfer, mean seconds down
N = 8000


def failures(i, until_ns=10**13):
    """[(time, down?)] of a link that is up first, for exponential times with means 1 / RATE and DOWN_S."""
    up, down = Exponential(round(S / RATE)), Exponential(DOWN_S * S)
    for begin, end in alternating(up, down, 5, f"link{i}", stationary=False):
        yield begin, True
        yield end, False
        if begin > until_ns:
            return


def transfer_s(i, restart):
    """Seconds of one transfer of SIZE_S through a link in `Fluid`; a failure stops it, or makes it begin anew."""
    fluid = Fluid()
    link = fluid.add_link(BYTE_A_NS)
    fluid.start(0, "m", SIZE_S * S, [link])
    for now, down in failures(i):
        due = fluid.next_change()
        if due is not None and due <= now:
            (done,) = fluid.completions(due)
            return done.exact_ns / S
        if restart and down:
            assert fluid.remove(now, link=link) == ["m"]
        elif restart:
            fluid.start(now, "m", SIZE_S * S, [link])
        else:
            fluid.change(now, link, 0 if down else BYTE_A_NS)
    raise AssertionError("a transfer that takes hours")


def test_f19_a_transfer_that_begins_anew_at_every_failure():
    """(1 / lambda + D)(e^(lambda s) - 1) = 13.746 s."""
    expected = (1 / RATE + DOWN_S) * (exp(RATE * SIZE_S) - 1)
    assert expected == pytest.approx(13.746, abs=5e-4)
    assert abs(mean_z([transfer_s(i, restart=True) for i in range(N)], expected)) < 4


def test_f20_a_transfer_that_goes_on_after_every_failure():
    """s (1 + lambda D) = 8 s; the number of failures is Poisson, so the variance is s lambda 2 D^2."""
    expected = SIZE_S * (1 + RATE * DOWN_S)
    assert expected == 8
    times = [transfer_s(i, restart=False) for i in range(N)]
    assert abs(mean_z(times, expected, SIZE_S * RATE * 2 * DOWN_S**2)) < 4


def test_f20_a_link_that_pauses_agrees_with_the_flow_to_the_ns():
    for i in range(300):
        link = FullLink(0, 1, 0, BYTE_A_NS)
        link.offer(0, "m", SIZE_S * S, 0)
        for now, down in failures(i):
            due = link.next_change()
            if due is not None and due <= now:
                break
            link.change(now, down=down, inflight="pause")
        assert due == pytest.approx(S * transfer_s(i, restart=False), abs=1)


# --- F23 ------------------------------------------------------------------------------------------------------------

LAWS = {"exponential": (Exponential(40 * S), Exponential(10 * S)),
        "weibull": (Weibull(0.5, 30 * S), Exponential(20 * S)),
        "lognormal": (LogNormal(60 * S, 1.0), LogNormal(20 * S, 0.5))}


def up_at(absences, t):
    for begin, end in absences:
        if begin > t:
            return True
        if end is None or end > t:
            return False
    return True


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("t", [0, 100 * S])
def test_f23_a_node_is_there_with_the_probability_of_the_means_at_any_time(law, t):
    """mu_on / (mu_on + mu_off), from the first instant on: the process is stationary."""
    up, down = LAWS[law]
    share = up.mean / (up.mean + down.mean)
    there = sum(up_at(alternating(up, down, 5, f"node{i}"), t) for i in range(3000))
    assert abs(count_z(there, 3000, share)) < 4


@pytest.mark.parametrize("law", LAWS)
def test_f23_sojourns_and_the_period_have_their_means(law):
    up, down = LAWS[law]
    absences = list(islice(alternating(up, down, 5, "one", stationary=False), 20_000))
    begins = np.array([begin for begin, _ in absences])
    ends = np.array([end for _, end in absences])
    assert abs(mean_z(ends - begins, down.mean)) < 4
    assert abs(mean_z(begins[1:] - ends[:-1], up.mean)) < 4
    assert abs(mean_z(np.diff(begins), up.mean + down.mean)) < 4
    share = down.mean / (up.mean + down.mean)
    # the share of time away by renewal reward: absence less its share of the period has mean 0
    assert abs(mean_z((ends - begins)[:-1] - share * np.diff(begins), 0)) < 4
