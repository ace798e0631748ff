"""Transports against the closed forms of ARQ and TCP. Seeds are fixed; statistics within four standard errors."""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import mean, variance

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.streams import key64
from emul.network import HERE, Arq, FullLink, OutageSpec, Switching, Tail
from emul.network.linkrecord import LinkRecord
from emul.network.links.transport import UNLIMITED_RETRIES
from emul.network.models.outages import FadingSpec, GilbertSpec, OnOffSpec, outage
from emul.network.recorded import Realisation

BYTE_A_NS = 8 * 10**9
KEY = key64(7, "transport", "a", "b")


def arq_link(spec, arq, latency=100, rate=BYTE_A_NS, **more):
    return FullLink(0, 1, latency, rate, outage(spec, 7, "a", "b"), transport=arq, key=KEY, **more)


def send(link, sizes, gap=10**7, round=1):
    """Messages far apart: (time it took, delivered, resent bytes) of each."""
    found = []
    for i, size in enumerate(sizes):
        now = i * gap
        link.offer(now, i, size, round)
        due = link.next_change()
        (item, delivered, tail, resent), = link.advance(due)
        assert (item, tail) == (i, HERE)
        found.append((due - now, delivered, resent))
    return found


def close(found, expected, deviation):
    """|z| < 4 of a mean of `found`, whose members have this standard deviation."""
    return abs(mean(found) - expected) < 4 * deviation / sqrt(len(found))


# --- stop and wait --------------------------------------------------------------------------------------------------

def test_each_lost_attempt_costs_its_time_and_the_timeout():
    """T = T_d + latency + (attempts - 1) (T_d + rto), exactly; attempts are geometric (F17)."""
    p, size, rto, n = 0.3, 50, 700, 4000
    found = send(arq_link(OutageSpec(p), Arq("stop_and_wait", rto, None)), [size] * n)
    repeats = [resent // size for _, _, resent in found]
    assert found == [(size + 100 + r * (size + rto), True, r * size) for r in repeats]
    assert close(repeats, p / (1 - p), sqrt(p) / (1 - p))
    assert abs(variance(repeats) / (p / (1 - p)**2) - 1) < 0.15
    # chi squared on the histogram, 5 degrees of freedom: 99.99 % lie below 25.7
    cells = [sum(r == k for r in repeats) for k in range(5)] + [sum(r >= 5 for r in repeats)]
    expected = [n * (1 - p) * p**k for k in range(5)] + [n * p**5]
    assert sum((c - e)**2 / e for c, e in zip(cells, expected, strict=True)) < 25.7
    took = [t for t, _, _ in found]
    assert close(took, size + 100 + p / (1 - p) * (size + rto), sqrt(p) / (1 - p) * (size + rto))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_message_is_lost_when_its_last_attempt_is(retries):
    """P(fail) = p^(m+1), E[attempts] = (1 - p^(m+1)) / (1 - p); known when the last attempt would have arrived."""
    p, n = 0.5, 3000
    found = send(arq_link(OutageSpec(p), Arq("stop_and_wait", 700, retries)), [50] * n)
    fail = p**(retries + 1)
    assert close([not ok for _, ok, _ in found], fail, sqrt(fail * (1 - fail)))
    attempts = [1 + resent // 50 for _, _, resent in found]
    assert close(attempts, (1 - fail) / (1 - p), sqrt(p) / (1 - p))
    assert all(a == retries + 1 and took == 50 + 100 + retries * 750
               for (took, ok, _), a in zip(found, attempts, strict=True) if not ok)


def test_without_retries_it_loses_what_a_datagram_does():
    for spec in (OutageSpec(0.5), OutageSpec(0.05, "packet"), OutageSpec(0.5, "round"), OutageSpec(0.5, "slot", 10**7),
                 GilbertSpec(0.3, 0.4), GilbertSpec(0.02, 0.2, per="packet")):
        plain = FullLink(0, 1, 100, BYTE_A_NS, outage(spec, 7, "a", "b"), mtu=10)
        single = arq_link(spec, Arq("stop_and_wait", retries=0), mtu=10)
        sizes = [50 + i for i in range(100)]
        found = send(plain, sizes)
        assert send(single, sizes) == found
        assert 0 < sum(ok for _, ok, _ in found) < 100 or (isinstance(spec, OutageSpec) and spec.per == "round")


def test_lost_acknowledgements_repeat_what_has_arrived():
    """Attempts are geometric with (1 - p)(1 - q), the fate with p alone, and the message is there at the first."""
    p, q = 0.3, 0.4
    both = send(arq_link(OutageSpec(p), Arq("stop_and_wait", 700, None, q)), [50] * 3000)
    alone = send(arq_link(OutageSpec(p), Arq("stop_and_wait", 700, None)), [50] * 3000)
    assert [(t, ok) for t, ok, _ in both] == [(t, ok) for t, ok, _ in alone]
    fail = 1 - (1 - p) * (1 - q)
    assert close([resent / 50 for *_, resent in both], fail / (1 - fail), sqrt(fail) / (1 - fail))


def test_the_next_message_waits_for_the_acknowledgement():
    """A lossless link is used T_d of T_d + 2 latency: efficiency 1 / (1 + 2a)."""
    link = arq_link(None, Arq("stop_and_wait"), latency=200)
    for item in range(10):
        link.offer(0, item, 100, 1)
    dues = []
    while (due := link.next_change()) is not None:
        dues += [due] * len(link.advance(due))
    assert dues == [300 + 500 * i for i in range(10)]


# --- selective repeat -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("n", "p", "rounds"), [(100, 0.1, 2.7402), (1000, 0.3, 6.7175)])
def test_rounds_and_transmissions_of_selective_repeat(n, p, rounds):
    """F18. With a timeout far above all else each round but the last takes one timeout."""
    runs, rto = 200, 10**9
    found = send(arq_link(OutageSpec(p, "packet"), Arq(rto_ns=rto, retries=None, mtu=1), latency=1), [n] * runs, 10**12)
    assert all(ok for _, ok, _ in found)
    used = [1 + took // rto for took, _, _ in found]
    law = [(1 - p**k)**n for k in range(60)]                # P(rounds <= k)
    moment = sum(k * k * (law[k] - law[k - 1]) for k in range(1, 60))
    assert rounds == pytest.approx(sum(1 - x for x in law), abs=5e-5)
    assert close(used, rounds, sqrt(moment - rounds**2))
    assert close([n + resent for *_, resent in found], n / (1 - p), sqrt(n * p) / (1 - p))


def test_a_long_message_keeps_the_link_busy():
    """Efficiency 1 - p: no time is lost but that of the packets sent again, while more than a timeout is to be sent."""
    size, p = 100_000, 0.1
    link = arq_link(OutageSpec(p, "packet"), Arq(rto_ns=1000, retries=None, mtu=100), latency=10)
    (took, ok, resent), = send(link, [size])
    assert ok
    idle = took - 10 - size - resent
    assert 0 <= idle <= 3 * 1100                            # the last few rounds
    assert resent / size == pytest.approx(p / (1 - p), abs=4 * sqrt(p / 1000) / (1 - p))


def test_a_lossless_message_takes_what_a_datagram_does_to_the_nanosecond():
    for size in (0, 1, 999, 12_345):
        took = [send(FullLink(0, 1, 100, 7.3e9, overhead_bytes=66, mtu=1448, transport=arq), [size])
                for arq in (None, Arq(), Arq("stop_and_wait"))]
        assert took[0] == took[1] == took[2]


def test_packets_are_sent_again_in_their_order_and_not_before_the_timeout():
    """By hand: packets 0 to 3 of 10 ns, packets 1 and 3 lost at first, 3 twice."""
    class Scripted:
        timeline = None
        per_round = True            # asked for each transmission

        def lost(self, start, end, round, k, packets):
            return (start, end) in {(10, 20), (30, 40), (80, 90)}

        def mean_loss(self, packets=1):
            raise AssertionError("its times decide")

    link = FullLink(0, 1, 5, BYTE_A_NS, Scripted(), transport=Arq(rto_ns=40, retries=2, mtu=10))
    link.offer(0, "m", 40, 1)
    link.offer(0, "n", 10, 1)
    # 1 again at 20 + 40 = 60 .. 70, 3 at 80 .. 90, lost, and at 130 .. 140; then the next message
    assert link.next_change() == 145
    assert link.advance(145) == [("m", True, HERE, 30)]
    assert link.advance(155) == [("n", True, HERE, 0)]


def test_given_up_by_one_packet_the_message_is_lost():
    found = send(arq_link(OutageSpec(0.5, "packet"), Arq(rto_ns=100, retries=2, mtu=10)), [100] * 300)
    fail = 1 - (1 - 0.5**3)**10
    assert close([not ok for _, ok, _ in found], fail, sqrt(fail * (1 - fail)))


def test_unlimited_retries_come_to_an_end():
    (took, ok, resent), = send(arq_link(OutageSpec(1), Arq("stop_and_wait", 1000, None)), [10])
    assert (took, ok, resent) == (10 + 100 + UNLIMITED_RETRIES * 1010, False, UNLIMITED_RETRIES * 10)


def test_the_timeout_is_never_below_the_round_trip():
    short, auto, same = (send(arq_link(OutageSpec(0.5), Arq("stop_and_wait", rto), 4000), [50] * 50)
                         for rto in (1, None, 8000))
    assert short == auto == same


# --- which loss -----------------------------------------------------------------------------------------------------

def test_repeating_does_not_help_where_the_round_is_lost():
    model = outage(OutageSpec(0.5, "round"), 7, "a", "b")
    for round in range(1, 30):
        (_, ok, _), = send(arq_link(OutageSpec(0.5, "round"), Arq()), [5000], round=round)
        assert ok == (not model.lost(0, 0, round, 0, 1))


@pytest.mark.parametrize("spec", [OutageSpec(0.4, "slot", 1000), OnOffSpec(2000, 1000), FadingSpec(700, 1.0, 1.0)])
def test_the_time_of_an_attempt_decides_where_the_state_does(spec):
    """Stop-and-wait by hand, on the model itself."""
    model = outage(spec, 7, "a", "b")
    link = arq_link(spec, Arq("stop_and_wait", 300, 6))
    for start in range(0, 10**6, 10**4):
        link.offer(start, "m", 50, 1)
        (_, ok, _, resent), = link.advance(link.next_change())
        tries = [not model.lost(start + 350 * a, start + 350 * a + 50, 1, 0, 1) for a in range(7)]
        assert (ok, resent) == (any(tries), 50 * (tries.index(True) if any(tries) else 6))


def test_packets_of_a_chain_are_lost_in_bursts_at_first():
    """The first attempt has the chain's losses: the share p / (p + r), however long the bursts."""
    spec = GilbertSpec(0.02, 0.1, per="packet", start="stationary")
    found = send(arq_link(spec, Arq(rto_ns=10**6, mtu=10)), [1000] * 300, 10**9)
    first = [resent / 10 * (1 - 1 / 6) for *_, resent in found]      # resent = first losses / (1 - p), on average
    n, e, lam = 100, 1 / 6, 1 - 0.12
    assert close(first, n * e, sqrt(n * (e * (1 - e) * (1 + 2 * lam / (1 - lam)))))


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=8), st.integers(0, 5000),
       st.sampled_from(["message", "packet"]))
def test_fates_depend_on_neither_times_nor_other_rounds(sizes, shift, per):
    """Common random numbers: the repetitions of message k of a round are the same whenever it is sent."""
    def resent(before, gap):
        link = arq_link(OutageSpec(0.3, per), Arq(mtu=100))
        send(link, before, round=2)
        return [(ok, again) for _, ok, again in send_late(link, sizes, 10**9, gap)]

    def send_late(link, sizes, start, gap):
        found = []
        for i, size in enumerate(sizes):
            link.offer(start + i * gap, i, size, 1)
            found += [(0, ok, again) for _, ok, _, again in link.advance(10**12)]
        return found

    assert resent([], 10**7) == resent([700, 20], 10**6 + shift)


# --- changes --------------------------------------------------------------------------------------------------------

def test_a_link_that_comes_up_in_time_loses_nothing():
    link = arq_link(None, Arq(rto_ns=1000, retries=5, mtu=100))
    link.offer(0, "m", 1000, 1)
    link.change(450, down=True)
    assert link.offer(500, "n", 100, 1) is False            # as things stand
    link.change(3000, down=False)
    left = link.advance(10**6)
    # what was on the way at 450 and all after it was lost once, and sent again until the link was up
    assert [(item, ok) for item, ok, *_ in left] == [("m", True), ("n", True)]
    assert left[0][3] >= 600


def test_a_link_that_stays_down_uses_up_the_retries():
    link = arq_link(None, Arq("stop_and_wait", 1000, 3))
    link.change(0, down=True)
    assert link.offer(0, "m", 100, 1) is False
    assert link.next_change() == 3 * 1100 + 100 + 100
    assert link.advance(10**6) == [("m", False, HERE, 300)]


def test_deliver_lets_what_was_offered_before_have_its_fate():
    plain, faulty = (arq_link(OutageSpec(0.3, "packet"), Arq(mtu=100)) for _ in range(2))
    for link in (plain, faulty):
        link.offer(0, "m", 5000, 1)
    faulty.change(100, down=True, inflight="deliver")
    assert faulty.next_change() == plain.next_change()


@settings(max_examples=50)
@given(st.integers(0, 3000), st.integers(1, 3000))
def test_a_pause_shifts_what_is_not_sent(start, length):
    """Where no timeout runs through the pause, all later times move by its length."""
    def link():
        return arq_link(OutageSpec(0.4), Arq("stop_and_wait", 200), latency=0)

    plain, paused = link(), link()
    for one in (plain, paused):
        one.offer(0, "m", 1000, 1)
    if start < (due := plain.next_change()):
        paused.change(start, down=True, inflight="pause")
        assert paused.next_change() is None
        paused.change(start + length, down=False)
        at = start % 1200
        assert paused.next_change() == due + (length if at < 1000 else max(0, length - (1200 - at)))


def test_an_arq_hands_on_whole_messages():
    link = arq_link(None, Arq(), switching=Switching("cut_through"))
    link.offer(0, "m", 1000, 1, False, Tail(end_ns=500))                 # nor does it begin before all of it is here
    assert link.next_change() == 1600
    assert link.advance(1600) == [("m", True, HERE, 0)]


# --- recorded networks ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("spec", [
    OutageSpec(0.3), OutageSpec(0.05, "packet"), OutageSpec(0.5, "round"), GilbertSpec(0.3, 0.4),
    GilbertSpec(0.02, 0.2, per="packet"), GilbertSpec(0.3, 0.4, per="round")])
@pytest.mark.parametrize("arq", [Arq("stop_and_wait", retries=3), Arq(retries=3, mtu=10)])
def test_a_recorded_outage_gives_the_same_repetitions(spec, arq):
    """The record holds first attempts; what follows is drawn as it was."""
    def played(outage_of_link):
        link = FullLink(0, 1, 100, BYTE_A_NS, outage_of_link, mtu=10, transport=arq, key=KEY)
        found = []
        for number in range(40):
            link.offer(number * 10**7, number, 300, 1 + number // 2)
            found += link.advance(10**7 * (number + 1))
        return found

    model = outage(spec, 7, "a", "b")
    places = [(round, k) for round in range(1, 21) for k in range(2)]
    if spec.per == "packet":
        record = LinkRecord("a -> b", packets={at: model.first_lost(*at, 1 << 20) for at in places})
    elif spec.per == "round":
        record = LinkRecord("a -> b", fates={(round, None): model.lost(0, 0, round, 0, 1) for round, _ in places})
    else:
        record = LinkRecord("a -> b", fates={at: model.lost(0, 0, *at, 1) for at in places})
    found = Realisation(Path("run"), {("a", "b"): record}, {}, "error").models("a", "b", model, 100)[0]
    assert type(found) is not type(model)
    assert played(found) == played(model)
    assert len({item[1:] for item in played(model)}) > 1
