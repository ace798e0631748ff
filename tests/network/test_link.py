"""The link against closed forms, exactly, and its invariants under random operations."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.network import HERE, Link, OutageSpec
from emul.network.models.outages import outage

MS = 10**6
FOREVER = 10**18

sizes = st.integers(0, 10**6)
gaps = st.integers(0, 3 * MS)
arrivals = st.lists(st.tuples(gaps, sizes), min_size=1, max_size=30)
rates = st.one_of(st.integers(1, 10**10), st.floats(1.0, 1e10))


def outage_of(p, per="message", slot_ns=None, seed=7):
    return outage(OutageSpec(p, per, slot_ns), seed, "a", "b")


def fates(left):
    """What `advance` said, of whole messages sent once."""
    assert all((tail, resent) == (HERE, 0) for _, _, tail, resent in left)
    return [(item, ok) for item, ok, _, _ in left]


def departures(link, offers):
    """When each of the (time, size) offered leaves, [(time, delivered)] in the order offered: the obvious calendar."""
    left = []

    def run_until(now):
        while (due := link.next_change()) is not None and due <= now:
            left.extend((due, item, ok) for item, ok in fates(link.advance(due)))

    for i, (now, size) in enumerate(offers):
        run_until(now)
        link.offer(now, i, size, 1)
    run_until(FOREVER)
    assert [item for _, item, _ in left] == list(range(len(offers)))
    return [(due, ok) for due, _, ok in left]


def absolute(pairs):
    now, offers = 0, []
    for gap, size in pairs:
        now += gap
        offers.append((now, size))
    return offers


# --- closed forms ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("size", "rate", "latency", "expected"), [
    (1_000_000, 20_000_000, 20 * MS, 420 * MS),         # F1: d + S/C = 20 ms + 400 ms
    (1, 3, 0, 2_666_666_667),                           # 8/3 s, rounded up to whole ns
    (0, 1, 5, 5),
    (10**6, None, 7, 7),
    (10**15, 1, 0, 8 * 10**24),                         # beyond 64 bits
    (1, 0.5, 0, 16 * 10**9),
])
def test_a_single_message_takes_latency_plus_size_over_bandwidth(size, rate, latency, expected):
    link = Link(0, 1, latency, rate)
    assert link.offer(1000, "m", size, 1) is True
    assert link.next_change() == 1000 + expected
    assert fates(link.advance(999 + expected)) == []
    assert link.in_flight() == ["m"]
    assert fates(link.advance(1000 + expected)) == [("m", True)]
    assert (link.next_change(), link.in_flight()) == (None, [])


@given(arrivals, rates, st.integers(0, 50 * MS))
def test_waiting_times_follow_lindley_exactly(pairs, rate, latency):
    """F3: W' = max(0, W + S - A), per message, in integer ns."""
    offers = absolute(pairs)
    service = [ceil(Fraction(size * 8 * 10**9) / Fraction(rate)) for _, size in offers]
    wait, expected = 0, []
    for i, (now, _) in enumerate(offers):
        if i:
            wait = max(0, wait + service[i - 1] - (now - offers[i - 1][0]))
        expected.append((now + wait + service[i] + latency, True))
    assert departures(Link(0, 1, latency, rate), offers) == expected


def test_ten_packets_over_three_hops_take_what_the_formula_says():
    """F2: sum(L/C_i + d_i) + (n - 1) L / min C = 37.8344 ms."""
    offers = [(0, 1502)] * 10
    for rate, latency in ((10**7, 2 * MS), (5 * 10**6, 4 * MS), (2 * 10**7, 6 * MS)):
        offers = [(due, 1502) for due, _ in departures(Link(0, 1, latency, rate), offers)]
    assert offers[-1][0] == 37_834_400


@given(arrivals, st.integers(1, 1000), st.integers(0, MS))
def test_scaling_sizes_and_bandwidth_changes_nothing_and_scaling_times_scales_all(pairs, k, latency):
    offers = absolute(pairs)
    rate = 8 * 10**9                                    # one byte a ns: no rounding hides an error
    base = departures(Link(0, 1, latency, rate), offers)
    assert departures(Link(0, 1, latency, rate * k), [(now, size * k) for now, size in offers]) == base
    slow = departures(Link(0, 1, latency * k, rate), [(now * k, size * k) for now, size in offers])
    assert slow == [(due * k, ok) for due, ok in base]


@pytest.mark.parametrize(("size", "mtu", "expected"), [
    (0, 1448, 0), (1, 1448, 67), (1448, 1448, 1448 + 66), (1449, 1448, 1449 + 132), (5000, None, 5066)])
def test_overhead_is_counted_and_carried_per_packet(size, mtu, expected):
    link = Link(0, 1, 0, 8 * 10**9, overhead_bytes=66, mtu=mtu)
    assert link.wire_bytes(size) == expected
    link.offer(0, "m", size, 1)
    assert link.next_change() == expected               # one byte a ns


def test_without_overhead_the_wire_carries_the_message():
    assert Link(0, 1, mtu=1448).wire_bytes(5000) == 5000


# --- loss -----------------------------------------------------------------------------------------------------------

@given(arrivals)
def test_a_lost_message_occupies_the_link_and_is_known_when_it_would_have_arrived(pairs):
    offers = absolute(pairs)
    sound = departures(Link(0, 1, MS, 10**8), offers)
    assert departures(Link(0, 1, MS, 10**8, outage_of(1)), offers) == [(due, False) for due, _ in sound]
    assert departures(Link(0, 1, MS, 10**8, outage_of(0)), offers) == sound


def test_offer_says_the_fate_that_advance_reports():
    link = Link(0, 1, 10, 10**9, outage_of(0.5))
    said = [link.offer(i, i, 100, 1 + i // 50) for i in range(200)]
    assert fates(link.advance(FOREVER)) == list(enumerate(said))
    assert 0 < sum(said) < 200


def test_fates_per_slot_follow_the_start_of_the_transmission_not_the_offer():
    model = OutageSpec(0.5, "slot", 1000)
    link = Link(0, 1, 0, 8 * 10**9, outage(model, 7, "a", "b"))
    said = [link.offer(0, k, 1000, 1) for k in range(50)]       # message k starts at k * 1000, in slot k
    reference = outage(model, 7, "a", "b")
    assert said == [not reference.lost(k * 1000, k * 1000, 1, 0, 1) for k in range(50)]
    assert 0 < sum(said) < 50


@given(st.lists(st.tuples(st.integers(0, 3), sizes), max_size=60))
def test_fates_of_a_round_do_not_depend_on_other_rounds_or_sizes(traffic):
    busy = Link(0, 1, 0, 10**6, outage_of(0.5))
    fates = {}
    for now, (round, size) in enumerate(traffic):
        fates.setdefault(round, []).append(busy.offer(now, None, size, round))
    for round, said in fates.items():
        alone = Link(0, 1, 0, None, outage_of(0.5))
        assert [alone.offer(0, None, 1, round) for _ in said] == said


def test_a_fault_does_not_shift_the_fates_after_it():
    quiet, faulty = (Link(0, 1, 0, None, outage_of(0.5)) for _ in range(2))
    expected = [quiet.offer(t, t, 1, 1) for t in range(60)]
    said = []
    for t in range(60):
        if t in (20, 30):
            faulty.change(t, down=t == 20)
        said.append(faulty.offer(t, t, 1, 1))
    assert said[:20] + said[30:] == expected[:20] + expected[30:]
    assert said[20:30] == [False] * 10


# --- changes --------------------------------------------------------------------------------------------------------

def test_a_link_going_down_drops_what_is_in_flight_at_its_original_time():
    link = Link(0, 1, 100, 8 * 10**9)
    for item in "abc":
        link.offer(0, item, 1000, 1)                    # leave at 1100, 2100, 3100
    assert fates(link.advance(1100)) == [("a", True)]
    link.change(1500, down=True)
    assert link.down
    assert link.offer(1600, "d", 1000, 1) is False
    link.change(1700, down=False)
    assert link.offer(1700, "e", 1000, 1) is True
    assert [(fates(link.advance(t)), t) for t in (2100, 3100, 4100, 5100)] == [
        ([("b", False)], 2100), ([("c", False)], 3100), ([("d", False)], 4100), ([("e", True)], 5100)]


def test_a_link_going_down_can_deliver_what_is_in_flight():
    link = Link(0, 1, 100)
    link.offer(0, "a", 1, 1)
    link.change(50, down=True, inflight="deliver")
    link.offer(60, "b", 1, 1)
    link.change(70, down=True)                          # down already: drops nothing anew
    assert fates(link.advance(FOREVER)) == [("a", True), ("b", False)]


def test_what_was_due_by_the_time_of_the_fault_has_left():
    link = Link(0, 1, 100)
    link.offer(0, "a", 1, 1)
    link.offer(1, "b", 1, 1)
    link.change(100, down=True)
    assert fates(link.advance(FOREVER)) == [("a", True), ("b", False)]


def test_no_replanning_revives_a_dropped_message():
    link = Link(0, 1, 0, 8 * 10**9, outage_of(1e-9, "slot", 10))
    for item in range(5):
        link.offer(0, item, 1000, 1)
    link.change(10, down=True)
    link.offer(15, 5, 1000, 1)                          # nor one that was offered while the link was down
    link.change(20, down=False, bandwidth_bps=8 * 10**8)
    assert fates(link.advance(FOREVER)) == [(i, False) for i in range(6)]


def test_a_waiting_message_draws_the_fate_of_the_slot_in_which_it_now_starts():
    model = OutageSpec(0.5, "slot", 1000)
    link = Link(0, 1, 0, 8 * 10**9, outage(model, 7, "a", "b"))
    for k in range(40):
        link.offer(0, k, 1000, 1)
    link.change(500, bandwidth_bps=4 * 10**9)           # message k > 0 now starts at 1500 + 2000 (k - 1)
    reference = outage(model, 7, "a", "b")
    expected = [not reference.lost(1500 + 2000 * (k - 1) if k else 0, 0, 1, 0, 1) for k in range(40)]
    assert fates(link.advance(FOREVER)) == list(enumerate(expected))


def fluid_ends(offers, plan):
    """Ends of transmission under a piecewise constant rate, [(from, rate)]: integrate each message, then round up."""
    busy, ends = 0, []
    for offered, size in offers:
        t, rest = Fraction(max(offered, busy)), Fraction(size * 8 * 10**9)
        for i, (_, rate) in enumerate(plan):
            until = plan[i + 1][0] if i + 1 < len(plan) else None
            if until is not None and until <= t:
                continue
            if rate is None:
                break
            if until is None or t + rest / Fraction(rate) <= until:
                t += rest / Fraction(rate)
                break
            rest -= (until - t) * Fraction(rate)
            t = Fraction(until)
        busy = ceil(t)
        ends.append(busy)
    return ends


@settings(max_examples=80)
@given(arrivals, st.lists(st.tuples(st.integers(1, 20 * MS), st.one_of(st.just("infinite"), rates)), max_size=5))
def test_a_change_of_bandwidth_equals_the_integral_of_the_rate(pairs, changes):
    offers = absolute(pairs)
    plan = [(0, 10**8)]
    for gap, rate in changes:
        plan.append((plan[-1][0] + gap, rate))
    link = Link(0, 1, 3, 10**8)
    events = sorted([(now, 1, i, size) for i, (now, size) in enumerate(offers)]
                    + [(now, 0, i, rate) for i, (now, rate) in enumerate(plan[1:])], key=lambda e: e[:3])
    left = {}

    def run_until(now):
        while (due := link.next_change()) is not None and due <= now:
            left.update({item: due for item, _ in fates(link.advance(due))})

    for now, offered, i, value in events:
        run_until(now)
        if offered:
            link.offer(now, i, value, 1)
        else:
            link.change(now, bandwidth_bps=value)
    run_until(10**30)
    ends = fluid_ends(offers, [(now, None if rate == "infinite" else rate) for now, rate in plan])
    assert [left[i] - 3 for i in range(len(offers))] == ends


def test_a_lower_latency_lets_no_message_overtake():
    link = Link(0, 1, 1000, 8 * 10**9)
    link.offer(0, "on its way", 10, 1)                  # ends at 10, leaves at 1010
    link.offer(0, "waiting", 90, 1)                     # ends at 100
    link.change(50, latency_ns=5)
    link.offer(200, "later", 10, 1)
    assert link.latency_ns == 5
    assert link.next_change() == 1010
    assert [item for item, _ in fates(link.advance(1010))] == ["on its way", "waiting", "later"]
    link.offer(2000, "after", 10, 1)
    assert link.next_change() == 2015


def test_what_queues_behind_a_slower_message_is_in_flight_until_that_leaves():
    link = Link(0, 1, 1000, 8 * 10**9)
    link.offer(0, "slow", 10, 1)
    link.offer(0, "waiting", 90, 1)
    link.change(50, latency_ns=5)                       # waiting would leave at 105, before slow at 1010
    link.offer(200, "later", 10, 1)
    link.change(500, down=True)
    assert fates(link.advance(1010)) == [("slow", False), ("waiting", False), ("later", False)]


def test_a_higher_latency_holds_for_what_has_not_been_transmitted():
    link = Link(0, 1, 0, 8 * 10**9)
    link.offer(0, "a", 100, 1)
    link.change(50, latency_ns=1000)
    assert link.next_change() == 1100


@pytest.mark.parametrize(("change", "text"), [
    ({"bandwidth_bps": 0}, 'link 3 -> 4: bandwidth 0: expected a positive number of bit/s or "infinite"'),
    ({"bandwidth_bps": float("nan")}, 'link 3 -> 4: bandwidth nan: expected a positive number of bit/s or "infinite"'),
    ({"latency_ns": -1}, "link 3 -> 4: latency -1: expected a whole number of ns, 0 or more"),
    ({"latency_ns": 1.5}, "link 3 -> 4: latency 1.5: expected a whole number of ns, 0 or more"),
    ({"down": True, "inflight": "stay"}, "link 3 -> 4: inflight 'stay': expected one of drop, pause, deliver"),
])
def test_a_change_that_no_link_can_have_is_refused_and_changes_nothing(change, text):
    link = Link(3, 4, 1, 10)
    with pytest.raises(NetworkError) as caught:
        link.change(0, **change)
    assert str(caught.value) == text
    assert (link.latency_ns, link.bandwidth_bps, link.down) == (1, 10, False)


# --- invariants -----------------------------------------------------------------------------------------------------

operations = st.lists(st.one_of(
    st.tuples(st.just("offer"), sizes, st.integers(0, 3)),
    st.tuples(st.just("advance"), st.just(0), st.just(0)),
    st.tuples(st.just("down"), st.booleans(), st.sampled_from(["drop", "pause", "deliver"])),
    st.tuples(st.just("bandwidth"), st.one_of(st.just("infinite"), st.integers(10**3, 10**9)), st.just(0)),
    st.tuples(st.just("latency"), st.integers(0, 10 * MS), st.just(0)),
), max_size=40)
outages = st.sampled_from([None, ("message", None), ("round", None), ("slot", MS)])


@settings(max_examples=80)
@given(st.lists(gaps, min_size=40, max_size=40), operations, outages)
def test_every_message_leaves_once_in_order_or_is_in_flight(waits, todo, model):
    """F25: sent = delivered + lost + in flight, at every instant and whatever happens to the link."""
    link = Link(0, 1, MS, 10**8, outage_of(0.5, *model) if model else None)
    now, sent, left = 0, 0, []
    for wait, (what, value, extra) in zip(waits, todo, strict=False):
        now += wait
        left += fates(link.advance(now))
        if what == "offer":
            link.offer(now, sent, value, extra)
            sent += 1
        elif what == "down":
            link.change(now, down=value, inflight=extra)
        elif what == "bandwidth":
            link.change(now, bandwidth_bps=value)
        elif what == "latency":
            link.change(now, latency_ns=value)
        due = link.next_change()
        assert due is None or due >= now
        assert [item for item, _ in left] + link.in_flight() == list(range(sent))
    link.change(now, down=False)
    last = now
    while (due := link.next_change()) is not None:
        assert due >= last
        last = due
        left += fates(link.advance(due))
    assert [item for item, _ in left] == list(range(sent))


def test_a_link_that_stays_down_ends():
    """F26: nothing waits for ever."""
    link = Link(0, 1, 10, 10**6)
    link.change(0, down=True)
    assert departures(link, [(0, 100), (5, 100)]) == [(800_010, False), (1_600_010, False)]


# --- a link that nothing changes ------------------------------------------------------------------------------------

@given(arrivals, rates, st.sampled_from([None, "message", "round", "packet", "slot"]), st.integers(0, 60),
       st.one_of(st.none(), st.integers(50, 2_000)))
def test_what_is_carried_leaves_as_what_is_offered(pairs, rate, per, overhead, mtu):
    """`carry` says at the offer what `advance` says when the message has left, and counts the same draws."""
    def link():
        lost = None if per is None else outage_of(0.4, per, MS if per == "slot" else None)
        return Link(0, 1, 5 * MS, rate, lost, overhead, mtu)

    offers = absolute(pairs)
    told, asked = link(), link()
    assert [told.carry(now, size, 1) for now, size in offers] == departures(asked, offers)
    assert told.offered() == asked.offered()
    assert told.in_flight() == []
