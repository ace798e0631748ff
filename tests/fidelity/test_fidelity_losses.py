"""Fidelity of losses and retransmissions: the laws of the models by standard score, with their known variances."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from laws import BYTE_A_NS, MS, count_z, mean_z, through

from emul.network import Link, OutageSpec
from emul.network.links.full_link import FullLink
from emul.network.links.transport import Arq
from emul.network.models.outages import GilbertSpec, outage

N = 100_000


def fates_of(spec, n, name="a"):
    """(n,) bool: which of n messages of round 0 are lost."""
    model = outage(spec, 7, name, "b")
    return np.fromiter((model.lost(0, 0, 0, k, 1) for k in range(n)), bool, n)


def bursts_of(lost):
    """Lengths of the runs of losses that both begin and end inside."""
    edges = np.flatnonzero(np.diff(lost.astype(int)))
    edges = edges[1:] if lost[0] else edges
    begins, ends = edges[0::2], edges[1::2]
    return ends - begins[:len(ends)]


# --- F14 ------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("p", [0.01, 0.2, 0.7])
def test_f14_bernoulli_losses_on_a_link(p):
    """np, with standard deviation sqrt(np(1 - p)); bursts are geometric with mean 1 / (1 - p)."""
    n = 50_000
    _, lost = through(Link(0, 1, MS, BYTE_A_NS, outage(OutageSpec(p), 7, "a", "b")), range(n), [100] * n)
    assert abs(count_z(len(lost), n, p)) < 4
    bursts = bursts_of(np.isin(np.arange(n), list(lost)))
    assert abs(mean_z(bursts, 1 / (1 - p), p / (1 - p) ** 2)) < 4


@pytest.mark.parametrize("packets", [1, 7, 100])
def test_f14_a_message_is_lost_with_one_of_its_packets(packets):
    """1 - (1 - p)^M."""
    p, n = 0.01, 50_000
    link = Link(0, 1, 0, None, outage(OutageSpec(p, "packet"), 7, "a", "b"), mtu=1000)
    _, lost = through(link, range(n), [1000 * packets] * n)
    assert abs(count_z(len(lost), n, 1 - (1 - p) ** packets)) < 4


# --- F15, F16 -------------------------------------------------------------------------------------------------------

def share_z(lost, p, r, bad, good):
    """Standard score of the share lost of a Gilbert-Elliott chain.

    Var(count) / n tends to e(1 - e) + 2 (l_B - l_G)^2 pi_G pi_B lambda / (1 - lambda), lambda = 1 - p - r.
    """
    in_bad = p / (p + r)
    e = in_bad * bad + (1 - in_bad) * good
    decay = 1 - p - r
    variance = e * (1 - e) + 2 * (bad - good) ** 2 * in_bad * (1 - in_bad) * decay / (1 - decay)
    return (lost.mean() - e) / sqrt(variance / len(lost)), e, sqrt(variance / len(lost))


def test_f15_gilbert_elliott():
    """p = .02, r = .2, losses .8 and .01: e = .081818, standard error 9.4e-4 at half a million."""
    lost = fates_of(GilbertSpec(0.02, 0.2, 0.8, 0.01), 500_000)
    z, e, error = share_z(lost, 0.02, 0.2, 0.8, 0.01)
    assert (round(e, 6), round(error, 5)) == (0.081818, 0.00094)
    assert abs(z) < 4


def test_f16_gilbert():
    """p = .05, r = .25: a sixth is lost (standard error .0028), in bursts of mean 4 (.054)."""
    lost = fates_of(GilbertSpec(0.05, 0.25), N)
    z, e, error = share_z(lost, 0.05, 0.25, 1, 0)
    assert (round(e, 6), round(error, 4)) == (0.166667, 0.0028)
    assert abs(z) < 4
    bursts = bursts_of(lost)
    assert abs(mean_z(bursts, 4, 0.75 / 0.25**2)) < 4
    assert abs(mean_z(np.where(bursts == 1, 1, 0), 0.25, 0.25 * 0.75)) < 4      # geometric, not only in the mean


# --- F17, F18 -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("p", [0.1, 0.5])
def test_f17_stop_and_wait_attempts_are_geometric(p):
    """Mean 1 / (1 - p), variance p / (1 - p)^2, and the histogram by chi squared."""
    n, size = 20_000, 1000
    link = FullLink(0, 1, 10, BYTE_A_NS, outage(OutageSpec(p), 7, "a", "b"),
                    transport=Arq("stop_and_wait", retries=None), key=3)
    attempts = []
    for i in range(n):
        now = i * MS
        assert link.offer(now, i, size, 0)
        ((item, delivered, _, resent),) = link.advance(link.next_change())
        assert (item, delivered) == (i, True)
        attempts.append(1 + resent // size)
    attempts = np.array(attempts)
    variance = p / (1 - p) ** 2
    assert abs(mean_z(attempts, 1 / (1 - p), variance)) < 4
    squares = (attempts - 1 / (1 - p)) ** 2
    assert abs(mean_z(squares, variance)) < 4
    cells = 5                                               # 1, 2, 3, 4, more
    seen = np.bincount(np.minimum(attempts, cells), minlength=cells + 1)[1:]
    expected = np.array([*((1 - p) * p**k for k in range(cells - 1)), p ** (cells - 1)]) * n
    chi2 = ((seen - expected) ** 2 / expected).sum()
    assert abs((chi2 - (cells - 1)) / sqrt(2 * (cells - 1))) < 4


def test_f17_stop_and_wait_takes_the_time_of_its_formula():
    """E[T] = T_d + latency + p / (1 - p) (T_d + RTO)."""
    n, p, size, latency, rto = 20_000, 0.3, 1000, 500, 5000
    link = FullLink(0, 1, latency, BYTE_A_NS, outage(OutageSpec(p), 7, "a", "b"),
                    transport=Arq("stop_and_wait", rto_ns=rto, retries=None), key=3)
    left = through(link, [i * MS for i in range(n)], [size] * n)[0]
    times = [left[i] - i * MS for i in range(n)]
    assert abs(mean_z(times, size + latency + p / (1 - p) * (size + rto), p / (1 - p) ** 2 * (size + rto) ** 2)) < 4


@pytest.mark.parametrize("retries", [0, 2])
def test_f17_after_m_retries_a_share_of_p_to_the_m_plus_1_is_lost(retries):
    """And E[attempts] = (1 - p^(m + 1)) / (1 - p)."""
    n, p, size = 20_000, 0.4, 1000
    link = FullLink(0, 1, 10, BYTE_A_NS, outage(OutageSpec(p), 7, "a", "b"),
                    transport=Arq("stop_and_wait", retries=retries), key=3)
    lost, attempts = 0, []
    for i in range(n):
        link.offer(i * MS, i, size, 0)
        ((_, delivered, _, resent),) = link.advance(link.next_change())
        lost += not delivered
        attempts.append(1 + resent // size)
    assert abs(count_z(lost, n, p ** (retries + 1))) < 4
    if retries:
        assert abs(mean_z(attempts, (1 - p ** (retries + 1)) / (1 - p))) < 4


@pytest.mark.parametrize(("packets", "p", "n", "expected"), [(100, 0.1, 4000, 2.7402), (1000, 0.3, 800, 6.7175)])
def test_f18_selective_repeat_needs_so_many_rounds(packets, p, n, expected):
    """E = sum over k >= 0 of 1 - (1 - p^k)^N. No bandwidth is used here, so that a round is a timeout exactly."""
    exact = sum(1 - (1 - p**k) ** packets for k in range(200))
    assert exact == pytest.approx(expected, abs=5e-5)
    link = FullLink(0, 1, 0, None, outage(OutageSpec(p, "packet"), 7, "a", "b"), mtu=1000,
                    transport=Arq("selective_repeat", rto_ns=MS, retries=None, mtu=1000), key=3)
    left = through(link, [i * 1000 * MS for i in range(n)], [1000 * packets] * n)[0]
    rounds = np.array([1 + (left[i] - i * 1000 * MS) / MS for i in range(n)])
    assert set(rounds % 1) == {0}
    assert abs(mean_z(rounds, exact)) < 4


def test_f18_selective_repeat_transmits_n_over_1_minus_p_packets():
    """Variance N p / (1 - p)^2."""
    packets, p, n = 100, 0.1, 3000
    link = FullLink(0, 1, 0, BYTE_A_NS, outage(OutageSpec(p, "packet"), 7, "a", "b"), mtu=1000,
                    transport=Arq("selective_repeat", retries=None, mtu=1000), key=3)
    sent = []
    for i in range(n):
        link.offer(i * 1000 * MS, i, 1000 * packets, 0)
        ((_, _, _, resent),) = link.advance(link.next_change())
        sent.append(packets + resent // 1000)
    assert abs(mean_z(sent, packets / (1 - p), packets * p / (1 - p) ** 2)) < 4
