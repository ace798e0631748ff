"""Fidelity of one link and of links in a row: closed forms by ==, queueing theory by standard score."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, e

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import BYTE_A_NS, FOREVER, MS, S, batch_z, fluid_ends, poisson_ns, sizes_of, through

from emul.network import HERE, Fluid, Link, OutageSpec
from emul.network.links.features import Queue, Switching
from emul.network.links.full_link import FullLink
from emul.network.models.outages import outage

# --- sample paths: exact --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "bandwidth", "latency", "expected"), [
    (5_000_000, 20_000_000, 21 * MS, 2_021 * MS), (5_000_000, 5_000_000, 61 * MS, 8_061 * MS),   # SimGrid, CM02
    (1, 3, 0, 2_666_666_667), (0, 10**6, 7, 7), (10**9, None, 5, 5)])
def test_f01_one_message_takes_latency_plus_size_over_bandwidth(size, bandwidth, latency, expected):
    for link in (Link(0, 1, latency, bandwidth), FullLink(0, 1, latency, bandwidth)):
        assert through(link, [0], [size])[0] == {0: expected}
    fluid = Fluid()
    number = fluid.add_link(bandwidth)
    fluid.start(latency, 0, size, [number])                 # the caller pays latency first
    assert fluid.next_change() == expected


HOPS = ((10**7, 2 * MS), (5 * 10**6, 4 * MS), (2 * 10**7, 6 * MS))


def test_f02_ten_packets_over_three_hops_take_37_8344_ms():
    """sum(L / C_i + d_i) + (n - 1) L / min C; ns-3 says 37.834400 ms. Packets are messages here."""
    now, size = [0] * 10, 1502
    for bandwidth, latency in HOPS:
        left = through(Link(0, 1, latency, bandwidth), now, [size] * 10)[0]
        now = [left[i] for i in range(10)]
    assert now[-1] == 37_834_400


def test_f02_a_packetized_message_takes_over_three_hops_what_its_packets_would():
    """The same, as one message of 15,020 bytes that links hand on packet by packet."""
    links = [FullLink(i, i + 1, latency, bandwidth, switching=Switching("packetized", 1502))
             for i, (bandwidth, latency) in enumerate(HOPS)]
    now, tail = 0, HERE
    for i, link in enumerate(links):
        link.offer(now, "m", 15_020, 0, i == len(links) - 1, tail)
        due = link.next_change()
        ((item, delivered, tail, _),) = link.advance(due)
        assert (item, delivered) == ("m", True)
        now = due
    assert now == 37_834_400


@given(st.lists(st.tuples(st.integers(0, 3 * MS), st.integers(0, 10**6)), min_size=1, max_size=60),
       st.one_of(st.integers(10**3, 10**10), st.floats(1e3, 1e10)), st.integers(0, 50 * MS))
def test_f03_waits_follow_lindley(offers, bandwidth, latency):
    """W' = max(0, W + S - A) for every message: exactly, in whole ns."""
    arrivals = np.cumsum([gap for gap, _ in offers]).tolist()
    sizes = [size for _, size in offers]
    service = [ceil(Fraction(8 * S * size) / Fraction(bandwidth)) for size in sizes]
    wait, expected = 0, {}
    for i, now in enumerate(arrivals):
        if i:
            wait = max(0, wait + service[i - 1] - (now - arrivals[i - 1]))
        expected[i] = now + wait + service[i] + latency
    for link in (Link(0, 1, latency, bandwidth), FullLink(0, 1, latency, bandwidth)):
        assert through(link, arrivals, sizes)[0] == expected


# --- one queue: |z| < 4 by 20 batches -------------------------------------------------------------------------------

def waits_ms(law, rho, n):
    """Waiting times of n messages of mean service 1 ms at load rho, in ms, after a start."""
    arrivals, sizes = poisson_ns(n, MS / rho, law, n), sizes_of(law, n, MS, n)
    left = through(Link(0, 1, 0, BYTE_A_NS), arrivals, sizes)[0]
    return np.array([left[i] - arrivals[i] - sizes[i] for i in range(n)])[n // 20:] / MS


@pytest.mark.parametrize(("rho", "expected"), [(0.5, 0.5), (0.8, 2.0)])
def test_f04_md1(rho, expected):
    """Wq = rho / (1 - rho) / 2 * D."""
    assert abs(batch_z(waits_ms("constant", rho, 200_000), expected)) < 4


@pytest.mark.parametrize(("rho", "expected"), [(0.5, 1.0), (0.8, 4.0)])
def test_f05_mm1(rho, expected):
    assert abs(batch_z(waits_ms("exponential", rho, 200_000), expected)) < 4


@pytest.mark.parametrize(("rho", "expected"), [(0.5, 1.3591), (0.8, 5.4366)])
def test_f06_mg1_pollaczek_khinchine(rho, expected):
    """rho / (1 - rho) (1 + cs^2) / 2 * D with cs^2 = e - 1."""
    assert rho / (1 - rho) * e / 2 == pytest.approx(expected, abs=5e-5)
    assert abs(batch_z(waits_ms("lognormal", rho, 300_000), rho / (1 - rho) * e / 2)) < 4


def test_f07_links_of_fixed_service_in_a_row_wait_as_the_slowest_alone():
    """The sum of a packet's waits over all hops is its wait at one server with the largest service: exactly, each."""
    services = [400_000, MS, 600_000]
    arrivals = poisson_ns(40_000, MS / 0.7, "tandem")
    now = arrivals
    for service in services:
        left = through(Link(0, 1, 0, BYTE_A_NS), now, [service] * len(now))[0]
        now = [left[i] for i in range(len(now))]
    alone = through(Link(0, 1, 0, BYTE_A_NS), arrivals, [max(services)] * len(arrivals))[0]
    assert [t - a - sum(services) for t, a in zip(now, arrivals, strict=True)] == [
        alone[i] - a - max(services) for i, a in enumerate(arrivals)]
    sojourns = np.subtract(now, arrivals)[2000:] / MS
    assert abs(batch_z(sojourns, 2 + 0.7 / 0.3 / 2)) < 4                # 3.1667 ms


def test_f08_mm1k_loses_what_its_formula_says():
    """K = 10, rho = .9: (1 - rho) rho^K / (1 - rho^(K + 1)) = 0.05081. One in service, nine waiting."""
    n, rho, k = 150_000, 0.9, 10
    expected = (1 - rho) * rho**k / (1 - rho ** (k + 1))
    assert expected == pytest.approx(0.05081, abs=5e-6)
    arrivals, sizes = poisson_ns(n, MS / rho, "mm1k"), sizes_of("exponential", n, MS, "mm1k")
    delivered, lost = through(FullLink(0, 1, 0, BYTE_A_NS, queue=Queue(k - 1, "packets")), arrivals, sizes)
    assert len(delivered) + len(lost) == n
    assert abs(batch_z([i in lost for i in range(n // 20, n)], expected)) < 4


@pytest.mark.parametrize("n", [2, 7, 50])
def test_f11_first_in_first_out_and_sharing_have_one_makespan_and_other_means(n):
    """n equal messages at once: both are done at n S / C; on average at (n + 1) S / 2C one after the other, and all
    at n S / C shared. Exactly."""
    size = 1000
    fifo = through(Link(0, 1, 0, BYTE_A_NS), [0] * n, [size] * n)[0]
    fluid = Fluid()
    link = fluid.add_link(BYTE_A_NS)
    shared = fluid_ends(fluid, [(0, i, size, [link]) for i in range(n)])
    assert max(fifo.values()) == max(shared.values()) == n * size
    assert Fraction(sum(fifo.values()), n) == Fraction((n + 1) * size, 2)
    assert set(shared.values()) == {n * size}


# --- what must hold of every link -----------------------------------------------------------------------------------

kinds = st.sampled_from(["plain", "full", "queue", "lossy"])


def link_of(kind):
    lossy = outage(OutageSpec(0.3), 7, "a", "b")
    return {"plain": lambda: Link(0, 1, 10, BYTE_A_NS), "full": lambda: FullLink(0, 1, 10, BYTE_A_NS),
            "queue": lambda: FullLink(0, 1, 10, BYTE_A_NS, queue=Queue(5000)),
            "lossy": lambda: Link(0, 1, 10, BYTE_A_NS, lossy)}[kind]()


@given(kinds, st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=60))
def test_f25_what_is_sent_is_delivered_lost_or_in_flight(kind, offers):
    """In messages and in bytes, at every offer."""
    link, now, sent, gone = link_of(kind), 0, {}, {}
    for i, (gap, size) in enumerate(offers):
        now += gap
        gone |= {item: sent[item] for item, *_ in link.advance(now)}
        link.offer(now, i, size, 1)
        sent[i] = size
        flight = link.in_flight()
        assert len(set(flight)) == len(flight)
        assert set(gone) | set(flight) == set(sent)
        assert not set(gone) & set(flight)
        assert sum(gone.values()) + sum(sent[item] for item in flight) == sum(sent.values())


@pytest.mark.parametrize("kind", [Link, FullLink])
@pytest.mark.parametrize("p", [0, 1])
def test_f26_losses_of_probability_0_and_1_are_certain(kind, p):
    delivered, lost = through(kind(0, 1, 5, BYTE_A_NS, outage(OutageSpec(p), 7, "a", "b")), [0] * 100, [10] * 100)
    assert (len(delivered), len(lost)) == ((100, 0) if p == 0 else (0, 100))
    assert (delivered or lost)[99] == 1005                  # a lost one occupies the link, too


@pytest.mark.parametrize("kind", [Link, FullLink])
def test_f26_no_size_no_latency_no_limit_of_bandwidth_takes_no_time(kind):
    assert through(kind(0, 1, 0, None), [3, 3, 9], [0, 10**12, 0])[0] == {0: 3, 1: 3, 2: 9}


@pytest.mark.parametrize("kind", [Link, FullLink])
def test_f26_a_link_down_for_ever_loses_all_and_comes_to_an_end(kind):
    link = kind(0, 1, 10, BYTE_A_NS)
    link.change(0, down=True)
    assert through(link, [0, 5], [100, 100]) == ({}, {0: 110, 1: 210})


@pytest.mark.parametrize("kind", [Link, FullLink])
@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 5000)), min_size=1, max_size=40),
       st.integers(1, 1000))
def test_f27_scaled_times_scale_the_log_and_scaled_sizes_with_bandwidth_leave_it(kind, offers, k):
    arrivals = np.cumsum([gap for gap, _ in offers]).tolist()
    sizes = [size for _, size in offers]
    base = through(kind(0, 1, 7, BYTE_A_NS), arrivals, sizes)[0]
    assert through(kind(0, 1, 7, BYTE_A_NS * k), arrivals, [size * k for size in sizes])[0] == base
    slow = through(kind(0, 1, 7 * k, BYTE_A_NS), [t * k for t in arrivals], [size * k for size in sizes])[0]
    assert slow == {i: due * k for i, due in base.items()}


def test_f26_a_paused_link_that_never_goes_on_has_no_next_change():
    link = FullLink(0, 1, 0, BYTE_A_NS)
    link.change(0, down=True, inflight="pause")
    link.offer(5, "m", 10, 1)
    assert link.next_change() is None
    assert link.advance(FOREVER // 2) == []
    assert link.in_flight() == ["m"]
