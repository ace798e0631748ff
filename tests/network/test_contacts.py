"""Contact plans: the cases of closed form, an oracle written apart, lookahead, mistakes, and many rows."""

from __future__ import annotations

import dataclasses
from array import array
from fractions import Fraction
from math import ceil
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emul.base.errors import ScenarioError
from emul.network import GIVEN_BACK, Arq, FullLink, Link, LinkRule, Network, RoleRule, TopologySpec, build
from emul.network.contactplan import ContactsError
from emul.network.links.features import Queue, Switching
from emul.network.links.flows import FlowLink, Flows, FlowSharing
from emul.network.links.link import Tail
from emul.network.models.contacts import Contacts, ContactSpec, read_plan
from emul.network.models.profiles import NEVER
from emul.network.models.residual import LinkLoad, LoadEntry, Residual
from emul.preview.outlook import Outlook

S, MS, MBIT, MB = 10**9, 10**6, 10**6, 10**6
HEADER = "start_s,end_s,source,destination,rate_mbps,latency_ms\n"


def contacts(*rows: tuple[float, float, float, float]) -> Contacts:
    """Of rows (start s, end s, Mbit/s, ms)."""
    units = (S, S, MBIT, MS)
    return Contacts(*(array("q", [round(row[i] * units[i]) for row in rows]) for i in range(4)))


def exact(rows: list[tuple[int, int, int, int]]) -> Contacts:
    return Contacts(*(array("q", column) for column in zip(*rows, strict=True)))


def link(plan: Contacts, **features: object) -> FullLink:
    return FullLink(0, 1, plan, profile=plan, **features)       # type: ignore[arg-type]


def leaves(one: FullLink) -> list[tuple[object, int, bool]]:
    """(item, when, delivered) of all that leaves."""
    found = []
    while (due := one.next_change()) is not None:
        found += [(item, due, delivered) for item, delivered, _, _ in one.advance(due)]
    return found


# --- a link ---------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("at_s", "size_mb", "expected"), [(0, 100, 620.01), (30, 100, 650.01), (0, 160, None)])
def test_a_message_goes_on_in_the_next_contact(at_s, size_mb, expected):
    one = link(contacts((0, 60, 10, 10), (600, 660, 10, 10)))
    assert one.offer(at_s * S, "m", size_mb * MB, 0) is (expected is not None)
    (item, due, delivered), = leaves(one)
    assert (item, delivered) == ("m", expected is not None)
    if expected is not None:
        assert due == round(expected * 100) * S // 100


def test_a_message_that_no_contact_carries_takes_no_time_of_the_others():
    one = link(contacts((0, 60, 10, 10), (600, 660, 10, 10)))
    one.offer(0, "first", 10 * MB, 0)
    one.offer(0, "too large", 160 * MB, 0)
    one.offer(0, "last", 10 * MB, 0)
    assert leaves(one) == [("first", 8 * S + 10 * MS, True), ("too large", 8 * S + 10 * MS, False),
                           ("last", 16 * S + 10 * MS, True)]


def test_the_latency_is_that_of_the_end_and_nothing_overtakes():
    one = link(contacts((0, 1, 8, 900), (1, 2, 8, 1), (5, 6, 8, 3)))
    for item in "abc":
        one.offer(0, item, MB if item == "a" else MB // 2, 0)
    # a ends with the first row and has its latency; b and c would be there at 1.501 s and 2.001 s
    assert leaves(one) == [("a", 1900 * MS, True), ("b", 1900 * MS, True), ("c", 2001 * MS, True)]


def test_a_contact_and_not_down():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5))
    one = link(plan)
    one.offer(0, "m", 12 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    one.change(25 * S, down=False)
    one.offer(25 * S, "too late", MB, 0)
    assert leaves(one) == [("m", 25 * S + 5 * MS, False), ("too late", 26 * S + 5 * MS, True)]
    one = link(plan)
    one.offer(0, "m", 7 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    one.change(8 * S, down=False)
    assert leaves(one) == [("m", 21 * S + 5 * MS, True)]


def test_what_a_fault_sets_holds_within_contacts_alone():
    one = link(contacts((0, 10, 8, 5), (20, 30, 8, 5)))
    one.offer(0, "m", 5_500_000, 0)
    one.offer(0, "no more", 7 * MB, 0)
    one.change(4 * S, bandwidth_bps=MBIT, latency_ns=7 * MS)        # 4 MB are through, 0.75 MB more until 10 s
    assert one.next_change() == 26 * S + 7 * MS
    one.change(24 * S, bandwidth_bps="profile", latency_ns=one._contacts)       # 0.5 MB more until 24 s
    one.offer(24 * S, "over", 6 * MB, 0)
    assert leaves(one) == [("m", 24_250 * MS + 5 * MS, True), ("no more", 24_250 * MS + 5 * MS, False),
                           ("over", 24_250 * MS + 5 * MS, False)]


def test_a_message_that_waits_for_a_contact_fills_the_queue():
    one = link(contacts((10, 20, 8, 0)), queue=Queue(1, "packets"))
    assert [one.offer(0, item, MB, 0) for item in "ab"] == [True, False]
    other = link(contacts((0, 20, 8, 0)), queue=Queue(1, "packets"))
    assert [other.offer(0, item, MB, 0) for item in "abc"] == [True, True, False]


def test_with_drop_what_a_contact_cuts_is_lost_and_what_comes_outside_of_one():
    one = link(contacts((0, 10, 8, 5), (10, 20, 8, 7), (30, 40, 8, 5)).with_gap("drop"))
    one.offer(0, "over rows that touch", 15 * MB, 0)
    one.offer(1 * S, "cut", 6 * MB, 0)
    one.offer(2 * S, "behind it", MB, 0)
    assert one.next_change() == 15 * S + 7 * MS
    found = [(item, 15 * S + 7 * MS, delivered) for item, delivered, _, _ in one.advance(15 * S + 7 * MS)]
    one.offer(16 * S, "waits for the end", MB, 0)
    found += leaves(one)
    one.offer(25 * S, "in the gap", MB, 0)
    found += leaves(one)
    one.offer(31 * S, "in time", 9 * MB, 0)
    one.offer(41 * S, "after the last", MB, 0)
    assert found + leaves(one) == [
        ("over rows that touch", 15 * S + 7 * MS, True), ("cut", 20 * S + 7 * MS, False),
        ("behind it", 20 * S + 7 * MS, False), ("waits for the end", 20 * S + 7 * MS, False),
        ("in the gap", 25 * S + 5 * MS, False), ("in time", 40 * S + 5 * MS, True),
        ("after the last", 41 * S + 5 * MS, False)]


def test_with_drop_a_fault_that_slows_a_link_may_have_it_cut():
    one = link(contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("drop"))
    one.offer(0, "m", 9 * MB, 0)
    one.change(4 * S, bandwidth_bps=MBIT)
    assert leaves(one) == [("m", 10 * S + 5 * MS, False)]
    one = link(contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("drop"))
    one.offer(0, "m", 9 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    one.change(12 * S, down=False)
    assert leaves(one) == [("m", 12 * S + 5 * MS, False)]


def told(one: FullLink) -> list[tuple[object, int, bool, int]]:
    """(item, when, delivered, bytes sent again) of all that leaves."""
    found = []
    while (due := one.next_change()) is not None:
        found += [(item, due, delivered, again) for item, delivered, _, again in one.advance(due)]
    return found


def test_with_again_a_message_is_sent_from_its_start_in_the_next_contact():
    one = link(contacts((0, 10, 8, 5), (20, 25, 8, 7), (25, 40, 8, 9)).with_gap("again"))
    one.offer(2 * S, "cut", 9 * MB, 0)              # 8 MB until 10 s, from 20 s on over rows that touch
    one.offer(3 * S, "behind it", MB, 0)
    one.offer(4 * S, "too large", 21 * MB, 0)       # than the longest contact
    one.offer(35 * S, "in no contact to come", 6 * MB, 0)
    one.offer(35 * S, "in time", 5 * MB, 0)
    assert told(one) == [
        ("cut", 29 * S + 9 * MS, True, 8 * MB), ("behind it", 30 * S + 9 * MS, True, 0),
        ("too large", 30 * S + 9 * MS, False, 0), ("in no contact to come", 35 * S + 5 * MS, False, 0),
        ("in time", 40 * S + 9 * MS, True, 0)]


def test_with_again_a_fault_that_holds_a_message_over_a_gap_has_it_begin_anew():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("again")
    one = link(plan)
    one.offer(0, "m", 7 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    one.change(6 * S, down=False)
    assert told(one) == [("m", 9 * S + 5 * MS, True, 0)]            # the same contact: it goes on
    one = link(plan)
    one.offer(0, "m", 7 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    one.change(5 * S, latency_ns=plan)
    one.change(12 * S, down=False)
    assert told(one) == [("m", 27 * S + 5 * MS, True, 4 * MB)]
    one = link(plan)
    one.offer(3 * S, "m", 7 * MB, 0)
    one.change(4 * S, bandwidth_bps=6 * MBIT)                       # 1 MB until now, 4.5 MB more until 10 s
    one.change(22 * S, bandwidth_bps="profile", latency_ns=plan)    # 1.5 MB of the second time
    assert told(one) == [("m", 27_500 * MS + 5 * MS, True, 5_500_000)]


def test_with_return_what_a_contact_cuts_is_given_back_and_what_waits_behind_it():
    one = link(contacts((0, 10, 8, 5), (20, 25, 8, 7), (25, 30, 8, 9)).with_gap("return"))
    one.offer(2 * S, "in time", MB, 0)
    one.offer(2 * S, "cut", 9 * MB, 0)
    one.offer(3 * S, "behind it", MB, 0)
    found = [(item, 3 * S + 5 * MS, delivered, tail is GIVEN_BACK)
             for item, delivered, tail, _ in one.advance(3 * S + 5 * MS)]
    assert one.next_change() == 10 * S
    found += [(item, 10 * S, delivered, tail is GIVEN_BACK) for item, delivered, tail, _ in one.advance(10 * S)]
    one.offer(12 * S, "in the gap", 6 * MB, 0)
    one.offer(12 * S, "too large for the rest", 5 * MB, 0)
    one.offer(31 * S, "after the last", MB, 0)
    assert found + handed(one) == [("in time", 3 * S + 5 * MS, True, False), ("cut", 10 * S, False, True),
                     ("behind it", 10 * S, False, True), ("in the gap", 26 * S + 9 * MS, True, False),
                     ("too large for the rest", 30 * S, False, True), ("after the last", 31 * S + 5 * MS, False, False)]


def test_with_return_a_fault_decides_anew_what_is_given_back():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("return")
    one = link(plan)
    one.offer(0, "m", 9 * MB, 0)
    one.offer(0, "n", 2 * MB, 0)
    one.change(4 * S, bandwidth_bps=16 * MBIT)
    assert [told[:2] for told in handed(one)] == [("m", 6_500 * MS + 5 * MS), ("n", 7_500 * MS + 5 * MS)]
    one = link(plan)
    one.offer(0, "held", 5 * MB, 0)
    one.change(4 * S, down=True, inflight="pause")
    assert one.next_change() is None
    one.change(12 * S, down=False)
    assert handed(one) == [("held", 12 * S, False, True)]
    one = link(plan)
    one.offer(0, "lost", 5 * MB, 0)
    one.offer(0, "lost behind it", 8 * MB, 0)
    one.change(4 * S, down=True)
    one.change(5 * S, down=False)
    assert handed(one) == [("lost", 5 * S + 5 * MS, False, False), ("lost behind it", 10 * S, False, False)]


def handed(one: FullLink) -> list[tuple[object, int, bool, bool]]:
    """(item, when, delivered, given back) of all that leaves."""
    found = []
    while (due := one.next_change()) is not None:
        found += [(item, due, delivered, tail is GIVEN_BACK) for item, delivered, tail, _ in one.advance(due)]
    return found


def test_with_again_a_message_whose_head_comes_first_is_begun_when_the_whole_is_here():
    one = link(contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("again"))
    one.offer(8 * S, "m", 1 * MB, 0, True, Tail(9500 * MS, 9500 * MS, 0))
    assert told(one) == [("m", 21 * S + 5 * MS, True, 500_000)]


@pytest.mark.parametrize("gap", ["hold", "again", "drop"])
def test_a_message_waits_at_each_vertex_for_the_contacts_of_the_next_link(tmp_path, gap):
    """a-b in [0, 100] s, b-c in [300, 400] s; 1 Mbit/s, 20 ms; 5 MB are at b at 40.02 s, at c at 340.02 s."""
    spec = plan_file(tmp_path, "0,100,a,b,1,20", "300,400,b,c,1,20")
    graph = nx.relabel_nodes(nx.path_graph(3), dict(enumerate("abc")))
    net = build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), [LinkRule("*", latency_ns=20 * MS)], 1,
                contacts=dataclasses.replace(spec, gap=gap))
    first, second = net.link(0, 1), net.link(1, 2)
    first.offer(0, "m", 5 * MB, 0, False)
    assert leaves(first) == [("m", 40_020 * MS, True)]
    second.offer(40_020 * MS, "m", 5 * MB, 0)
    assert leaves(second) == [("m", 40_040 * MS, False) if gap == "drop" else ("m", 340_020 * MS, True)]
    assert Outlook(net, [], 1, 5 * MB).route(0, 2).time_ns == (None if gap == "drop" else 340_020 * MS)


# --- links that share -----------------------------------------------------------------------------------------------

def through(plan: Contacts, *starts: tuple[float, str, float], sharing: FlowSharing = "maxmin",
            ) -> list[tuple[object, float, bool]]:
    """(item, s, delivered) of all that ends, of messages (s, item, MB) on one link."""
    flows = Flows(sharing)
    one = FlowLink(flows, flows.link(None, plan), 0, 1, plan, "profile", contacts=plan)
    found: list[tuple[object, float, bool]] = []

    def run(until: float) -> None:
        while (due := flows.next_change()) is not None and due <= until:
            found.extend((item, round(due / S, 6), delivered) for item, delivered, _, _ in flows.advance(due))

    for at, item, size in starts:
        run(at * S)
        flows.start(round(at * S), item, round(size * MB), True, [one], 0, (0, 1))
    run(float("inf"))
    return found


def test_flows_stand_still_in_gaps_and_are_lost_behind_the_last_contact():
    plan = contacts((0, 60, 10, 10), (600, 660, 10, 10))
    assert through(plan, (0, "m", 100)) == [("m", 620, True)]
    assert through(plan, (30, "m", 100)) == [("m", 650, True)]
    assert through(plan, (0, "m", 160)) == [("m", 660, False)]
    assert through(plan, (0, "a", 40), (0, "b", 40)) == [("a", 604, True), ("b", 604, True)]
    assert through(plan, (100, "in the gap", 10), (700, "too late", 10)) == [
        ("in the gap", 608, True), ("too late", 700, False)]
    assert through(plan, (0, "a", 40), (0, "b", 40), sharing="connections") == [("a", 32, True), ("b", 604, True)]
    assert through(plan, (0, "a", 160), (0, "b", 1), sharing="connections") == [("a", 660, False), ("b", 660, False)]


def test_with_drop_flows_that_a_gap_meets_are_lost():
    plan = contacts((0, 60, 10, 10), (60, 70, 20, 10), (600, 660, 10, 10)).with_gap("drop")
    assert through(plan, (0, "over rows that touch", 80), (65, "cut", 20), (100, "in the gap", 1), (600, "m", 10)) == [
        ("over rows that touch", 62, True), ("cut", 70, False), ("in the gap", 100, False), ("m", 608, True)]
    assert through(plan, (0, "a", 160), (0, "b", 1), sharing="connections") == [("a", 70, False), ("b", 70, False)]


def sharing_oracle(rows: list[tuple[int, int, int, int]], starts: list[tuple[int, int]]) -> list[tuple[Fraction, bool]]:
    """(when it ends, delivered) of (time, bytes) on one link that shares, with `again`: an exact calendar of its own.

    Rows are (start, end, bit/s, latency) and do not touch.
    """
    joins = [(Fraction(at), i, Fraction(size * 8 * S)) for i, (at, size) in enumerate(starts)]
    on: dict[int, Fraction] = {}
    found: dict[int, tuple[Fraction, bool]] = {}
    now = Fraction(0)
    while joins or on:
        row = next((row for row in rows if row[0] <= now < row[1]), None)
        rate = Fraction(row[2], len(on)) if row is not None and on else Fraction(0)
        ahead = [at for at, _, _ in joins] + [Fraction(edge) for row in rows for edge in row[:2] if edge > now]
        ahead += [now + left / rate for left in on.values()] if rate else []
        if not ahead:
            break
        then = min(ahead)
        on = {i: left - rate * (then - now) for i, left in on.items()}
        now = then
        for i in [i for i, left in on.items() if not left]:
            found[i] = now, True
            del on[i]
        ended = next((row for row in rows if row[1] == now), None)
        if ended is not None and now == rows[-1][1]:
            found |= dict.fromkeys(on, (now, False))
            on = {}
        elif ended is not None:
            joins += [(now + ended[3], i, left) for i, left in on.items()]
            on = {}
        for one in [one for one in joins if one[0] == now]:
            joins.remove(one)
            if now >= rows[-1][1]:
                found[one[1]] = now, False
            else:
                on[one[1]] = one[2]
    return [found[i] for i in range(len(starts))]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.sampled_from([3, 8, 17]), st.integers(0, 30)),
                min_size=1, max_size=5),
       st.lists(st.tuples(st.integers(0, 40), st.integers(1, 7_000_000)), min_size=1, max_size=5))
def test_with_again_flows_begin_anew_as_an_exact_calendar_says(chosen, starts):
    rows = [(start * S, end * S, rate * MBIT, late * 100 * MS) for start, end, rate, late in rows_of(chosen)]
    starts = sorted((at * S // 2, size) for at, size in starts)
    plan = Contacts(*(array("q", column) for column in zip(*rows, strict=True)), gap="again")
    expected = sharing_oracle(rows, starts)
    found = {item: (at, delivered) for item, at, delivered in through(
        plan, *((at / S, str(i), size / MB) for i, (at, size) in enumerate(starts)))}
    for i, (at, delivered) in enumerate(expected):
        assert found[str(i)] == (pytest.approx(float(at) / S, abs=2e-6), delivered)


def test_with_again_a_fault_drops_what_begins_anew():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("again")
    flows = Flows("maxmin")
    one = FlowLink(flows, flows.link(None, plan), 0, 1, plan, "profile", contacts=plan)
    flows.start(0, "m", 12 * MB, True, [one], 0)
    assert flows.next_change() == 10 * S
    assert flows.advance(10 * S) == []
    one.change(10 * S + MS, down=True)
    one.change(10 * S + 2 * MS, down=False)
    assert flows.next_change() == 10 * S + 5 * MS
    left: list[tuple[object, bool, Tail, int]] = []
    while not left:
        due = flows.next_change()
        assert due is not None
        left = flows.advance(due)
    assert [told[:2] for told in left] == [("m", False)]


def test_with_return_a_flow_is_given_back_with_its_rest():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5)).with_gap("return")
    flows = Flows("maxmin")
    first = FlowLink(flows, flows.link(24 * MBIT), 0, 1, 0, 24 * MBIT)
    second = FlowLink(flows, flows.link(None, plan), 1, 2, plan, "profile", contacts=plan)
    flows.start(0, "m", 15 * MB, True, [first, second], 0)
    flows.start(0, "lost", 15 * MB, False, [second], 0)
    assert flows.next_change() == 10 * S
    assert [(item, delivered, tail is GIVEN_BACK) for item, delivered, tail, _ in flows.advance(10 * S)] == [
        ("m", False, True), ("lost", False, False)]
    assert flows.rest_of("m") == (pytest.approx(10 * MB), 15 * MB, 2)
    assert flows.next_change() is None


def test_a_link_that_shares_has_the_latency_of_the_contact_at_which_a_message_comes(tmp_path):
    net = network(plan_file(tmp_path, "0,60,client1,server,10,10", "600,660,client1,server,10,30"),
                  LinkRule("*", sharing="maxmin"))
    server, first = net.names.index("server"), net.names.index("client1")
    one = net.link(first, server)
    assert isinstance(one, FlowLink)
    assert [one.enter(at * S, 1, 0) for at in (0, 60, 61, 601, 700)] == [
        (True, late * MS) for late in (10, 10, 30, 30, 30)]
    assert net.out_latency_ns(first) == 10 * MS
    times = [Outlook(net, [], 1, size * MB).route(first, server).time_ns for size in (1, 100, 160)]
    assert times == [810 * MS, 620_010 * MS, None]


def test_what_a_fault_sets_on_a_link_that_shares_holds_within_contacts_alone():
    plan = contacts((0, 10, 8, 5), (20, 30, 8, 5))
    flows = Flows("maxmin")
    one = FlowLink(flows, flows.link(None, plan), 0, 1, plan, "profile", contacts=plan)
    flows.start(0, "m", 5_500_000, True, [one], 0)
    one.change(4 * S, bandwidth_bps=MBIT)                   # 4 MB are through, 0.75 MB more until 10 s
    assert flows.next_change() == 10 * S
    assert flows.advance(10 * S) == []
    one.change(24 * S, bandwidth_bps="profile")             # 0.5 MB more until 24 s
    while not (ended := flows.advance(due := flows.next_change() or 0)):
        pass
    assert ([(item, delivered) for item, delivered, _, _ in ended], due) == ([("m", True)], 24_250 * MS)


spans = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.sampled_from([8, 24, 7 * 10**9, 8 * 10**9]),
                           st.integers(0, 9)), min_size=1, max_size=6)


def rows_of(chosen: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Contacts out of (gap before, length, rate, latency)."""
    rows, at = [], 0
    for gap, length, rate, late in chosen:
        rows.append((at + gap, at + gap + length, rate, late))
        at += gap + length
    return rows


def oracle(rows: list[tuple[int, int, int, int]], offers: list[tuple[int, int]]) -> list[tuple[int, bool]]:
    """(when it leaves, delivered) of (time, bytes): each nanosecond's work is handed out, one after the other."""
    found, used, last = [], Fraction(0), 0      # `used`: the time until which the transmitter is taken, in ns
    for at, size in offers:
        begin = max(Fraction(at), used)
        left, now, late = Fraction(size * 8 * S), begin, 0
        for start, end, rate, latency in rows:
            lo, hi = max(Fraction(start), now), Fraction(end)
            if hi <= lo or not left:
                continue
            take = min(left, (hi - lo) * rate)
            left, now, late = left - take, lo + take / rate, latency
        least = min(row[3] for row in rows)
        if left:                                # no contact carries it: lost when its turn comes
            turn = next((max(Fraction(start), begin) for start, end, *_ in rows if end > begin), begin)
            found.append((max(last, ceil(turn) + least), False))
            continue
        used = Fraction(ceil(now))
        last = max(last, ceil(now) + late)
        found.append((last, True))
    return found


@settings(max_examples=100)
@given(spans, st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=6))
def test_a_link_does_what_windows_of_time_say(chosen, gaps):
    rows, at, offers = rows_of(chosen), 0, []
    for gap, size in gaps:
        at += gap
        offers.append((at, size))
    one = link(exact(rows))
    got: dict[object, tuple[int, bool]] = {}
    for number, (now, size) in enumerate(offers):
        while (due := one.next_change()) is not None and due <= now:
            got |= {item: (due, delivered) for item, delivered, _, _ in one.advance(due)}
        one.offer(now, number, size, 0)
    got |= {item: (due, delivered) for item, due, delivered in leaves(one)}
    assert [got[i] for i in range(len(offers))] == oracle(rows, offers)


def oracle_again(rows: list[tuple[int, int, int, int]], offers: list[tuple[int, int]],
                 ) -> list[tuple[int, bool, int]]:
    """(when it leaves, delivered, bytes sent again): a transmission in each span without a gap, until one is whole."""
    spans = [[rows[0]]]
    for row in rows[1:]:
        spans[-1:] = [[*spans[-1], row]] if row[0] == spans[-1][-1][1] else [spans[-1], [row]]
    found, used, last = [], 0, 0
    least = min(row[3] for row in rows)
    for at, size in offers:
        begin, again, turn = max(at, used), 0, None
        for span in spans:
            if span[-1][1] <= begin:
                continue
            now, left = Fraction(max(span[0][0], begin)), Fraction(size * 8 * S)
            turn = ceil(now) if turn is None else turn
            for start, end, rate, latency in span:
                if left and end > now:
                    take = min(left, (end - max(now, start)) * rate)
                    left, now, late = left - take, max(now, start) + take / rate, latency
            if not left:
                used = ceil(now)
                last = max(last, used + late)
                found.append((last, True, again))
                break
            again += int(size - left / 8 / S)
        else:                                   # no span carries it: lost when its turn comes
            last = max(last, (begin if turn is None else turn) + least)
            found.append((last, False, 0))
    return found


@settings(max_examples=100)
@given(spans, st.lists(st.tuples(st.integers(0, 4), st.integers(1, 6)), min_size=1, max_size=6))
def test_with_again_a_link_does_what_transmissions_one_by_one_say(chosen, gaps):
    rows, at, offers = rows_of(chosen), 0, []
    for gap, size in gaps:
        at += gap
        offers.append((at, size))
    one = link(exact(rows).with_gap("again"))
    got: dict[object, tuple[int, bool, int]] = {}
    for number, (now, size) in enumerate(offers):
        while (due := one.next_change()) is not None and due <= now:
            got |= {item: (due, delivered, again) for item, delivered, _, again in one.advance(due)}
        one.offer(now, number, size, 0)
    got |= {item: (due, delivered, again) for item, due, delivered, again in told(one)}
    assert [got[i] for i in range(len(offers))] == oracle_again(rows, offers)


@settings(max_examples=80)
@given(spans, st.integers(0, 20), st.integers(1, 9))
def test_with_drop_a_message_arrives_if_no_gap_is_in_its_way(chosen, at, size):
    rows = rows_of(chosen)
    one = link(exact(rows).with_gap("drop"))
    one.offer(at, "m", size, 0)
    (_, _, arrives), = leaves(one)
    end = exact(rows).finish(at, size)
    assert arrives is (end < NEVER and all(
        any(begin <= t < until for begin, until, *_ in rows) for t in range(at, end)))


@settings(max_examples=80)
@given(spans, st.lists(st.integers(0, 30), max_size=4), st.sampled_from(["hold", "again", "drop"]))
def test_changes_that_change_nothing_move_no_message(chosen, times, gap):
    plan = exact(rows_of(chosen)).with_gap(gap)
    plain, changed = link(plan), link(plan)
    for one in (plain, changed):
        for number in range(3):
            one.offer(0, number, 2, 0)
    left = []
    for now in sorted(times):
        while (due := changed.next_change()) is not None and due <= now:
            left += [(item, due, delivered, again) for item, delivered, _, again in changed.advance(due)]
        changed.change(now, latency_ns=changed._contacts)
    assert left + told(changed) == told(plain)


@settings(max_examples=50)
@given(spans, st.integers(0, 40), st.integers(0, 40))
def test_a_profile_is_the_sum_over_single_nanoseconds(chosen, start, length):
    rows = rows_of(chosen)
    plan = exact(rows)
    rates = [next((rate for begin, end, rate, _ in rows if begin <= t < end), 0) for t in range(100)]
    assert [plan.rate_at(t) for t in range(100)] == rates
    assert plan.sent_bytes(start, start + length) == Fraction(sum(rates[start:start + length]), 8 * S)
    change = plan.next_change(start)
    assert change == next((t for t in range(start + 1, 100) if rates[t] != rates[start]), None)
    assert plan.opens(start) == next((t for t in range(start, 100) if rates[t]), NEVER)
    rest = Residual(plan, LinkLoad([LoadEntry("none", _Nothing())], plan))
    for size in (1, 3, 9):
        assert rest.finish(start, size) == plan.finish(start, size)


class _Nothing:
    def rate_at(self, t_ns: int) -> int:
        return 0

    def next_change(self, t_ns: int) -> int | None:
        return None


# --- a file ---------------------------------------------------------------------------------------------------------

def plan_file(tmp_path: Path, *rows: str) -> ContactSpec:
    file = tmp_path / "plan.csv"
    file.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return ContactSpec(file)


def test_a_file_is_read_exactly(tmp_path):
    plan = read_plan(plan_file(tmp_path, "# a remark", "0.1,60.123456789,a,b,10,10", "",
                               " 1e2 , inf,a , b,0.000001,0.25", "5,,b,a,2.5,1.0000004"))
    one, other = plan["a", "b"], plan["b", "a"]
    assert (list(one.begins), list(one.ends)) == ([S // 10, 100 * S], [60_123_456_789, NEVER])
    assert (list(one.rates_bps), list(one.latencies_ns)) == ([10 * MBIT, 1], [10 * MS, MS // 4])
    assert (list(other.ends), list(other.rates_bps), list(other.latencies_ns)) == ([NEVER], [2_500_000], [MS])
    assert (one.line, other.line, one.least_ns, one.typical_ns) == (3, 6, MS // 4, MS // 4)


def test_rows_that_are_read_fast_are_those_that_are_read_slowly(tmp_path):
    """The fast way knows the columns in their own order alone."""
    cells = [
        ("", "", "a", 1, 2), (".5", ".25", "a", 1, 2), (".123456789", ".9999999996", "a", 1, 2), ("", "", " a", 1, 2),
        (".1", ".2", " a ", "1.0", 2), (" ", ".2 ", "a", 1, "2e0"), ("", "e0", "a", 1, 0), ("", "", "a", 1, 0)]
    rows = [f"{30 * i}{begin},{30 * i + 20}{end},{name},b,{rate},{late}"
            for i, (begin, end, name, rate, late) in enumerate(cells)]
    fast = read_plan(plan_file(tmp_path, *rows))
    turned = ["latency_ms,start_s,end_s,source,destination,rate_mbps", *(
        ",".join([row.rpartition(",")[2], row.rpartition(",")[0]]) for row in rows)]
    (tmp_path / "turned.csv").write_text("\n".join(turned))
    slow = read_plan(ContactSpec(tmp_path / "turned.csv"))
    assert list(fast) == list(slow) == [("a", "b")]
    for name in ("begins", "ends", "rates_bps", "latencies_ns"):
        assert getattr(fast["a", "b"], name) == getattr(slow["a", "b"], name)
    assert len(fast["a", "b"]) == len(rows)


def test_every_mistake_of_a_file_is_told_with_its_line(tmp_path):
    spec = plan_file(tmp_path, "0,60,a,b,10,10", "59,70,a,b,10,10", "5,5,b,a,1,1", "-1,5,b,c,1,1", "0,1,b,c,0,1",
                     "0,1,b,c,1,-2", "0,1,,c,1,1", "0,1,b,c,1", "0,x,b,c,1,1", "60,61,a,b,1,1", "0,1,b,c,one,nan",
                     "70,71,a,b,10,10", "69,72,a,b,10,10", "72,72,a,b,10,10", "73,74,a,b,0,10")
    with pytest.raises(ScenarioError) as error:
        read_plan(spec)
    told = [(one.line, one.place, one.found, one.expected) for one in error.value.problems]
    number = "expected a number, 0 or more"
    assert told == [
        (3, "start_s", "59", "expected rows of a -> b in the order of time, without an overlap: the row before is of "
                             "[0, 60]"),
        (4, "end_s", "5", "expected more than start_s, 5"),
        (5, "start_s", '"-1"', number),
        (6, "rate_mbps", "0", "expected a rate of at least 1 bit/s"),
        (7, "latency_ms", '"-2"', number),
        (8, "source", "nothing", "expected the name of a vertex"),
        (9, "", "5 values", "expected 6, as the header has"),
        (10, "end_s", '"x"', number),
        (12, "rate_mbps", '"one"', number),
        (12, "latency_ms", '"nan"', number),
        (14, "start_s", "69", "expected rows of a -> b in the order of time, without an overlap: the row before is of "
                              "[70, 71]"),
        (15, "end_s", "72", "expected more than start_s, 72"),
        (16, "rate_mbps", "0", "expected a rate of at least 1 bit/s")]


def test_a_file_that_is_no_plan(tmp_path):
    for text, found in (("", "no rows"), (HEADER, "no rows"), ("a,b\n1,2\n", "a,b")):
        (tmp_path / "plan.csv").write_text(text)
        with pytest.raises(ScenarioError, match=f"plan.csv.*\n.*{found}"):
            read_plan(ContactSpec(tmp_path / "plan.csv"))
    with pytest.raises(ScenarioError, match="No such file"):
        read_plan(ContactSpec(tmp_path / "none.csv"))


def test_many_contacts_are_kept_in_numbers_alone(tmp_path):
    spec = plan_file(tmp_path, *(f"{2 * i},{2 * i + 1},a,b,8,5" for i in range(20_000)))
    plan = read_plan(spec)["a", "b"]
    columns = (plan.begins, plan.ends, plan.rates_bps, plan.latencies_ns)
    assert [(type(one), len(one), one.itemsize) for one in columns] == [(array, 20_000, 8)] * 4
    one = link(plan)
    one.offer(0, "m", 15_000 * MB, 0)
    assert len(one._heap) == len(one._flight) == 1          # a message over 15,000 contacts is one departure
    assert leaves(one) == [("m", (2 * 14_999 + 1) * S + 5 * MS, True)]


# --- a network ------------------------------------------------------------------------------------------------------

def network(spec: ContactSpec | None, *rules: LinkRule, clients: int = 3) -> Network:
    return build(TopologySpec(generator="star", clients=clients), rules, 1, contacts=spec)


def test_the_kernel_looks_ahead_over_the_least_of_all_contacts(tmp_path):
    rule = LinkRule("*", latency_ns=50 * MS, bandwidth_bps=MBIT)
    spec = plan_file(tmp_path, "0,1,client1,server,8,70", "2,3,client1,server,8,60", "0,1,server,client2,8,9")
    net = network(spec, rule)
    server, first, second, third = (net.names.index(name) for name in ("server", "client1", "client2", "client3"))
    assert [net.out_latency_ns(v) for v in (server, first, second, third)] == [9 * MS, 60 * MS, 50 * MS, 50 * MS]
    assert (net.latency_ns(first, server), net.latency_ns(server, first)) == (60 * MS, 50 * MS)
    assert net.latency_ns(first, second) == 69 * MS
    one = net.link(first, server)
    assert isinstance(one, FullLink)
    assert one.latency_ns == 60 * MS
    assert type(net.link(server, first)) is type(net.link(third, server)) is Link
    assert net.latencies()[first, server] == 60 * MS


def test_links_that_cannot_have_contacts_are_told_with_their_lines(tmp_path):
    spec = plan_file(tmp_path, "0,1,client1,server,8,1", "0,1,client9,server,8,1", "0,1,client1,client2,8,1",
                     "0,1,client2,server,8,1", "0,1,client3,server,8,1")
    with pytest.raises(ContactsError) as error:
        network(dataclasses.replace(spec, gap="again"), LinkRule("client2->server", switching=Switching("cut_through")),
                LinkRule("client3<->server", transport=Arq()), clients=3)
    assert [(one.line, one.found, one.expected.partition(":")[0]) for one in error.value.problems] == [
        (3, '"client9"', "unknown vertex"), (4, "client1 -> client2", "expected a link of the topology"),
        (5, "client2 -> server", "has switching"), (6, "client3 -> server", "has a transport")]


def test_the_outlook_tells_the_time_through_gaps(tmp_path):
    net = network(plan_file(tmp_path, "0,60,client1,server,10,10", "600,660,client1,server,10,10"))
    server, first = net.names.index("server"), net.names.index("client1")
    times = [Outlook(net, [], 1, size * MB).route(first, server).time_ns for size in (1, 100, 160)]
    assert times == [810 * MS, 620 * S + 10 * MS, None]


@pytest.mark.parametrize("text", [
    HEADER + "0,60,a,b,10,8\n60,inf,a,b,0.5,8\n", "\ufeff" + HEADER + "0,60,a,b,10,8,\r\n60,,a,b,5e-1,8,\r\n",
    HEADER.replace(",", ";") + "0;60;a;b;10,0;8\n60;inf;a;b;0,5;8,0\n",
    "start_ms,end_ms,source,destination,rate_kbps,latency_us,probability\n0,60000,a,b,10000,8000,1\n"
    "60000,inf,a,b,500,8000,1\n0,1,a,a,1,1,1\n",
    "Latency,Rate [MB/s],destination,source,end_min,start\n8 ms,1.25,b,a,1,0\n0.008 s,0.0625,b,a,inf,60 s\n"])
def test_a_plan_is_read_in_every_dialect_and_unit_and_a_vertex_with_itself_is_passed_over(tmp_path, text):
    (tmp_path / "plan.csv").write_bytes(text.encode())
    plan = read_plan(ContactSpec(tmp_path / "plan.csv"))
    assert {ends: list(zip(one.begins, one.ends, one.rates_bps, one.latencies_ns, strict=True))
            for ends, one in plan.items()} == {
        ("a", "b"): [(0, 60 * S, 10 * MBIT, 8 * MS), (60 * S, NEVER, MBIT // 2, 8 * MS)]}


def test_a_link_whose_rate_the_plan_has_is_not_told_to_be_infinitely_fast(tmp_path):
    (tmp_path / "net.csv").write_text("source,target,latency\na,b,1 ms\nb,c,1 ms\n")
    (tmp_path / "plan.csv").write_text(HEADER + "0,9,a,b,1,1\n0,9,b,a,1,1\n")
    spec = TopologySpec(file=tmp_path / "net.csv", roles={"peer": RoleRule("all")})
    found = build(spec, [], 7, contacts=ContactSpec(tmp_path / "plan.csv")).warnings()
    assert [one.partition(": ")[2][:26] for one in found] == ["1 edges, such as b<->c, ha"]
