"""A link with features: each against a closed form or an obvious computation; none is touched by re-planning."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import NetworkError
from emul.base.streams import key64, uniform_at
from emul.network import HERE, Arq, FullLink, Link, OutageSpec, Queue, Switching, Tail
from emul.network.models.outages import OnOffSpec, outage
from emul.network.models.profiles import PiecewiseConstant

MS = 10**6
BYTE_A_NS = 8 * 10**9
FOREVER = 10**17

gaps = st.integers(0, 400)
sizes = st.integers(0, 600)
arrivals = st.lists(st.tuples(gaps, sizes), min_size=1, max_size=20)


class Jitter:
    """A latency of `least_ns` and up to `spread` more, drawn by (round, k)."""

    def __init__(self, least_ns, spread, reorder=False):
        self.least_ns, self.typical_ns, self.reorder = least_ns, least_ns + spread // 2, reorder
        self._spread = spread

    def draw(self, round, k):
        return self.least_ns + int(uniform_at(key64(7, "jitter"), round << 32 | k) * self._spread)


def absolute(pairs):
    now, offers = 0, []
    for gap, size in pairs:
        now += gap
        offers.append((now, size))
    return offers


def play(link, offers, changes=(), last=True, until=FOREVER):
    """Offer (time, size) or (time, size, tail), change at (time, {...}); {item: (due, delivered, tail, resent)}."""
    events = sorted([(offer[0], 1, i, offer) for i, offer in enumerate(offers)]
                    + [(now, 0, i, change) for i, (now, change) in enumerate(changes)], key=lambda e: e[:3])
    left = {}

    def run_until(now):
        while (due := link.next_change()) is not None and due <= now:
            gone = link.advance(due)
            assert gone
            assert all(item not in left for item, *_ in gone)
            left.update({item: (due, *rest) for item, *rest in gone})

    for now, is_offer, i, what in events:
        run_until(now)
        if is_offer:
            link.offer(now, i, what[1], 1 + i % 3, last, *what[2:])
        else:
            link.change(now, **what)
    run_until(until)
    return left


def dues(left):
    return [left[item][0] for item in sorted(left)]


# --- the plain link is a special case -------------------------------------------------------------------------------

changes_of_a_link = st.one_of(
    st.tuples(st.just("down"), st.sampled_from(["drop", "pause", "deliver"])).map(
        lambda x: {"down": True, "inflight": x[1]}),
    st.just({"down": False}),
    st.one_of(st.just("infinite"), st.integers(10**8, 10**11)).map(lambda rate: {"bandwidth_bps": rate}),
    st.integers(0, 2000).map(lambda ns: {"latency_ns": ns}))
plans = st.lists(st.tuples(st.integers(0, 4000), changes_of_a_link), max_size=8)
outages = st.sampled_from([None, OutageSpec(0.5), OutageSpec(0.01, "packet"), OutageSpec(0.5, "round"),
                           OutageSpec(0.5, "slot", 700), OutageSpec(0.5, "slot", 700, span="any_slot")])


@settings(max_examples=80)
@given(arrivals, plans, outages, st.sampled_from([None, BYTE_A_NS, 7.3e9]), st.integers(0, 1000))
def test_without_features_it_does_what_the_plain_link_does(pairs, plan, model, rate, latency):
    plain, full = (cls(0, 1, latency, rate, outage(model, 7, "a", "b"), 10, 100) for cls in (Link, FullLink))
    assert play(plain, absolute(pairs), plan) == play(full, absolute(pairs), plan)
    assert plain.in_flight() == full.in_flight()
    assert plain.next_change() == full.next_change()


# --- nothing depends on how often it is planned anew ----------------------------------------------------------------

PROFILE = PiecewiseConstant([0, 500, 900], [8 * 10**9, 10**9, 3 * 10**9], 1300)
FEATURES = {
    "plain": {},
    "profile": {"profile": PROFILE},
    "pause": {"outage": outage(OnOffSpec(700, 300, span="pause"), 7, "a", "b")},
    "drawn latencies": {"latency": Jitter(50, 900)},
    "reorder": {"latency": Jitter(50, 900, reorder=True)},
    "queue": {"queue": Queue(900)},
    "cut-through": {"switching": Switching("cut_through")},
    "packetized": {"switching": Switching("packetized")},
    "stop and wait": {"transport": Arq("stop_and_wait", 400, 5, 0.2), "outage": outage(OutageSpec(0.4), 7, "a", "b")},
    "selective repeat": {"transport": Arq(rto_ns=300, retries=3),
                         "outage": outage(OutageSpec(0.3, "packet"), 7, "a", "b")},
    "selective repeat in slots": {"transport": Arq(rto_ns=300, retries=4, ack_loss=0.1),
                                  "outage": outage(OutageSpec(0.3, "slot", 250), 7, "a", "b"), "profile": PROFILE},
}


def featured(name):
    return FullLink(0, 1, **{"latency": 120, "bandwidth_bps": BYTE_A_NS, "overhead_bytes": 10, "mtu": 100,
                             "key": key64(7, "transport"), **FEATURES[name]})


@pytest.mark.parametrize("name", FEATURES)
@settings(max_examples=25)
@given(arrivals, st.lists(st.integers(0, 6000), max_size=12), st.booleans(), plans, st.sampled_from([0, 50, 100, 200]))
def test_a_change_that_changes_nothing_changes_nothing(name, pairs, times, last, plan, packet):
    """Whatever is planned anew, and whenever, the plan is the one of a fresh computation."""
    plan = [(now, change) for now, change in plan if "bandwidth_bps" not in change and "latency_ns" not in change]
    # a tail that follows while the rate varies is planned by bounds, which are tighter the later it is looked at
    late = 0 if name in ("profile", "pause") else 2
    offers = [(now, size, Tail(now + late * max(0, size - 2 * packet), now + late * size, packet))
              for now, size in absolute(pairs)]
    expected = play(featured(name), offers, plan, last, 10**7)
    assert play(featured(name), offers, plan + [(now, {}) for now in times], last, 10**7) == expected


@pytest.mark.parametrize("name", FEATURES)
@settings(max_examples=25)
@given(arrivals, plans)
def test_every_message_leaves_once_or_is_in_flight(name, pairs, plan):
    """F25, with every feature and whatever happens to the link; and in order where nothing says otherwise."""
    link = featured(name)
    left = play(link, absolute(pairs), plan, until=10**5)
    assert sorted([*left, *link.in_flight()]) == list(range(len(pairs)))
    if name not in ("reorder", "queue"):
        assert dues(left) == sorted(dues(left))
    link.change(10**5, down=False)
    while (due := link.next_change()) is not None:
        left |= {item: (due, *rest) for item, *rest in link.advance(due)}
    assert sorted(left) == list(range(len(pairs)))


# --- rates, pauses --------------------------------------------------------------------------------------------------

def integral_ends(offers, rate_at, horizon):
    """Ends of transmission in ns at a rate of bytes a ns that is constant in each ns, by adding up every ns."""
    busy, ends = 0, []
    for offered, size in offers:
        t, left = max(busy, offered), Fraction(size)
        while left > 0 and t < horizon:
            left -= rate_at(t)
            t += 1
        ends.append(t)
        busy = t
    return ends


@settings(max_examples=60)
@given(arrivals)
def test_a_rate_that_varies_is_integrated(pairs):
    offers = [(now, size) for now, size in absolute(pairs)]
    ends = integral_ends(offers, lambda t: Fraction(PROFILE.rate_at(t)) / BYTE_A_NS, 10**6)
    assert dues(play(FullLink(0, 1, 0, profile=PROFILE), offers)) == ends


@pytest.mark.parametrize("cls", [Link, FullLink])
@settings(max_examples=50)
@given(arrivals, st.lists(st.tuples(st.integers(1, 1500), st.integers(1, 1500)), max_size=5))
def test_a_pause_equals_a_rate_of_zero(cls, pairs, spans):
    """`inflight: pause`: what is offered meanwhile queues, what is half sent goes on, what is sent arrives."""
    offers, plan, downs, now = absolute(pairs), [], [], 0
    for up, down in spans:
        downs.append((now + up, now + up + down))
        plan += [(now + up, {"down": True, "inflight": "pause"}), (now + up + down, {"down": False})]
        now += up + down
    offers = [(now, max(1, size)) for now, size in offers]
    ends = integral_ends(offers, lambda t: not any(a <= t < b for a, b in downs), 10**6)
    left = play(cls(0, 1, 70, BYTE_A_NS), offers, plan)
    assert left == {i: (end + 70, True, HERE, 0) for i, end in enumerate(ends)}


@settings(max_examples=60)
@given(arrivals)
def test_an_outage_that_pauses_equals_a_rate_of_zero_while_it_is_down(pairs):
    model = outage(OnOffSpec(700, 300, span="pause"), 7, "a", "b")
    offers = [(now, max(1, size)) for now, size in absolute(pairs)]
    ends = integral_ends(offers, model.timeline.up_at, 10**6)
    assert dues(play(FullLink(0, 1, 0, BYTE_A_NS, model), offers)) == ends


@pytest.mark.parametrize("cls", [Link, FullLink])
def test_what_is_paused_for_ever_stays_in_flight(cls):
    link = cls(0, 1, 10, BYTE_A_NS)
    link.offer(0, "sent", 100, 1)
    link.offer(0, "half", 100, 1)
    link.change(105, down=True, inflight="pause")
    assert link.down
    assert link.offer(106, "offered", 0, 1) is True
    assert link.next_change() == 110
    assert [item for item, *_ in link.advance(110)] == ["sent"]
    assert link.next_change() is None
    assert link.in_flight() == ["half", "offered"]
    link.change(500, bandwidth_bps=BYTE_A_NS // 2)          # while paused: holds from when it goes on
    assert link.next_change() is None
    link.change(1000, down=False)
    assert link.next_change() == 1000 + 2 * 95 + 10
    assert link.advance(5000) == [("half", True, HERE, 0), ("offered", True, HERE, 0)]


@pytest.mark.parametrize("cls", [Link, FullLink])
def test_another_outage_holds_for_what_has_not_begun(cls):
    link = cls(0, 1, 0, BYTE_A_NS)
    for item in "abc":
        link.offer(0, item, 100, 1)
    link.change(50, outage=outage(OutageSpec(1), 7, "a", "b"))
    assert link.offer(60, "d", 100, 1) is False
    assert [ok for _, ok, *_ in link.advance(250)] == [True, False]
    link.change(250, outage="none")
    assert [ok for _, ok, *_ in link.advance(1000)] == [False, True]


def test_what_waits_for_a_new_outage_has_fates_of_its_own():
    link, model = Link(0, 1, 0, BYTE_A_NS), outage(OutageSpec(0.5), 7, "a", "b")
    for item in range(40):
        link.offer(0, item, 100, 1)
    link.change(0, outage=model)
    assert [ok for _, ok, *_ in link.advance(10**6)] == [True] + [not model.lost(0, 0, 1, k, 1) for k in range(1, 40)]


def test_a_plain_link_refuses_an_outage_that_pauses():
    with pytest.raises(NetworkError, match="from the start"):
        Link(0, 1).change(0, outage=outage(OnOffSpec(10, 10, span="pause"), 7, "a", "b"))


# --- latencies ------------------------------------------------------------------------------------------------------

@given(arrivals)
def test_drawn_latencies_keep_the_order_unless_told_otherwise(pairs):
    offers = absolute(pairs)
    ends = dues(play(FullLink(0, 1, 0, BYTE_A_NS), offers))
    counts, drawn = {}, []
    for i in range(len(offers)):
        k = counts[i % 3] = counts.get(i % 3, -1) + 1
        drawn.append(ends[i] + Jitter(50, 900).draw(1 + i % 3, k))
    assert dues(play(FullLink(0, 1, Jitter(50, 900, reorder=True), BYTE_A_NS), offers)) == drawn
    kept = [max(drawn[:i + 1]) for i in range(len(drawn))]
    assert dues(play(FullLink(0, 1, Jitter(50, 900), BYTE_A_NS), offers)) == kept


def test_the_latency_of_a_distribution_is_its_least_and_can_be_changed():
    link = FullLink(0, 1, Jitter(50, 900, reorder=True))
    assert (link.latency_ns, link.cut) == (50, True)
    link.change(0, latency_ns=7)
    link.offer(0, "m", 1, 1)
    assert (link.latency_ns, link.next_change()) == (7, 7)


def test_a_link_that_kept_the_order_goes_on_to():
    link = FullLink(0, 1, 1000)
    link.offer(0, "slow", 1, 1)
    link.change(0, latency_ns=Jitter(50, 1, reorder=True))
    link.offer(1, "later", 1, 1)
    assert (link.cut, link.next_change()) == (False, 1000)


# --- drop-tail ------------------------------------------------------------------------------------------------------

@settings(max_examples=80)
@given(arrivals, st.integers(0, 1500), st.sampled_from(["bytes", "packets"]))
def test_drop_tail_takes_what_fits_behind_what_waits(pairs, limit, unit):
    limit = limit if unit == "bytes" else limit // 200
    offers = absolute(pairs)
    link = FullLink(0, 1, 30, BYTE_A_NS, overhead_bytes=10, mtu=100, queue=Queue(limit, unit))
    begins, busy, expected = [], 0, []          # (start, amount) of those taken
    for now, size in offers:
        wire, packets = link.wire_bytes(size), max(1, ceil(size / 100))
        start = max(now, busy)
        waiting = sum(amount for begin, amount in begins if begin > now)
        amount = wire if unit == "bytes" else packets
        taken = start == now or waiting + amount <= limit
        if taken:
            begins.append((start, amount))
            busy = start + wire
        expected.append((start + wire + 30, taken, HERE, 0))
    assert play(link, offers) == dict(enumerate(expected))


def test_a_queue_without_room_is_a_link_that_takes_what_finds_it_idle():
    """M/M/1/K with K = 1: only the one in service."""
    left = play(FullLink(0, 1, 0, BYTE_A_NS, queue=Queue(0, "packets")), [(0, 100), (50, 100), (100, 100), (199, 1)])
    assert [left[i][1] for i in range(4)] == [True, False, True, False]


# --- handing on heads -----------------------------------------------------------------------------------------------

def over(links, size, start=0):
    """When the whole of a message has crossed `links`, one after the other."""
    now, tail = start, HERE
    for i, link in enumerate(links):
        link.offer(now, "m", size, 1, i == len(links) - 1, tail)
        due = link.next_change()
        assert due is not None
        (_, delivered, tail, _), = link.advance(due)
        assert delivered
        now = due
    return now


hops = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 300)), min_size=1, max_size=5)     # ns a byte, latency


@given(hops, st.integers(1, 12), st.integers(1, 100))
def test_packets_over_several_links_take_what_the_formula_says(route, n, length):
    """Sum of L / C_i + d_i, and (n - 1) L / min C. With cut-through the same with packets of no length."""
    def links(switching):
        return [FullLink(0, 1, d, Fraction(BYTE_A_NS, pace), switching=switching) for pace, d in route]

    latency, slowest = sum(d for _, d in route), max(pace for pace, _ in route)
    packets = over(links(Switching("packetized", length)), n * length)
    assert packets == sum(length * pace for pace, _ in route) + latency + (n - 1) * length * slowest
    assert over(links(Switching("cut_through")), n * length) == latency + n * length * slowest
    assert over(links(None), n * length) == latency + sum(n * length * pace for pace, _ in route)


def test_ten_packets_over_three_hops():
    """F2, as one message: 37.8344 ms."""
    links = [FullLink(0, 1, d * MS, rate, switching=Switching("packetized", 1502))
             for rate, d in ((10**7, 2), (5 * 10**6, 4), (2 * 10**7, 6))]
    assert over(links, 15_020) == 37_834_400


@settings(max_examples=50)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=30), st.lists(st.integers(1, 200), min_size=1, max_size=4))
def test_the_waits_in_a_tandem_are_those_at_its_slowest_server(waits, paces):
    """F7, per packet and exactly: messages of one packet, links of fixed service."""
    offers = absolute((gap, 1) for gap in waits)
    through = offers
    for pace in paces:
        link = FullLink(0, 1, 0, Fraction(BYTE_A_NS, pace), switching=Switching("packetized", 1))
        through = [(due, 1) for due in dues(play(link, through, last=False))]
    alone = dues(play(Link(0, 1, 0, Fraction(BYTE_A_NS, max(paces))), offers))
    assert [due for due, _ in through] == [due + sum(paces) - max(paces) for due in alone]


def test_a_message_behind_another_starts_when_the_tail_of_that_has_left():
    link = FullLink(0, 1, 5, BYTE_A_NS, switching=Switching("cut_through"))
    link.offer(0, "slow to come", 100, 1, False, Tail(end_ns=1000))      # its tail is here at 1000
    link.offer(10, "next", 100, 1, False)
    assert link.next_change() == 5
    assert link.advance(5) == [("slow to come", True, Tail(1005, 1005), 0)]
    assert link.next_change() == 1005                       # the head of the next follows the tail
    assert link.advance(1005) == [("next", True, Tail(1105, 1105), 0)]


def test_a_message_whose_head_has_left_is_settled():
    link = FullLink(0, 1, 5, BYTE_A_NS, switching=Switching("packetized", 100))
    link.offer(0, "gone", 1000, 1, False)
    link.offer(0, "behind", 1000, 1, False)
    assert link.advance(105) == [("gone", True, Tail(905, 1005, 100), 0)]
    link.change(200, down=True)
    link.change(300, down=False, bandwidth_bps=BYTE_A_NS // 2)
    assert link.offer(300, "later", 100, 1) is True
    assert link.advance(FOREVER) == [("behind", False, HERE, 0), ("later", True, HERE, 0)]


def test_what_is_lost_is_lost_whole():
    link = FullLink(0, 1, 5, BYTE_A_NS, outage(OutageSpec(1), 7, "a", "b"), switching=Switching("cut_through"))
    assert link.offer(0, "m", 1000, 1, False) is False
    assert link.next_change() == 1005
    assert link.advance(1005) == [("m", False, HERE, 0)]


def test_a_lower_rate_finds_what_has_not_come_unsent():
    """At 50 of 100 ns half of it is here and sent; the rest goes at a tenth of a byte a ns from when it comes."""
    link = FullLink(0, 1, 0, 10 * BYTE_A_NS, switching=Switching("cut_through"))
    link.offer(0, "m", 100, 1, True, Tail(end_ns=100))
    link.change(50, bandwidth_bps=BYTE_A_NS // 10)
    assert link.next_change() == 50 + 500


@given(arrivals)
def test_one_link_alone_is_the_same_however_it_would_switch(pairs):
    offers = absolute(pairs)
    plain = play(FullLink(0, 1, 9, BYTE_A_NS), offers)
    assert all(play(FullLink(0, 1, 9, BYTE_A_NS, switching=Switching(mode)), offers) == plain
               for mode in ("cut_through", "packetized"))


@given(arrivals)
def test_tails_leave_in_order_and_no_head_before_the_tail_ahead(pairs):
    left = play(FullLink(0, 1, 9, BYTE_A_NS, switching=Switching("packetized", 50)), absolute(pairs), last=False)
    found = [left[i] for i in sorted(left)]
    assert all(b[0] >= max(a[0], a[2].end_ns) for a, b in pairwise(found))
