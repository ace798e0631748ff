"""Routes over contact plans: the cases of closed form, a search by hand over all ways, ties, and least times."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise
from math import ceil
from pathlib import Path

import networkx as nx
import pytest

from emul.base.errors import NetworkError
from emul.network import LinkRule, Network, RoleRule, TopologySpec, build
from emul.network.graph.earliest import Crossing, EarliestRoutes, carried
from emul.network.graph.routing import ShortestPaths
from emul.network.links.features import Switching
from emul.network.links.full_link import FullLink
from emul.network.models.contacts import Contacts, ContactSpec, Gap
from emul.network.models.profiles import NEVER
from emul.preview.outlook import Outlook

S, MS, MBIT, MB = 10**9, 10**6, 10**6, 10**6
HEADER = "start_s,end_s,source,destination,rate_mbps,latency_ms\n"
Rows = list[tuple[int, int, int, int]]          # start, end, bit/s, latency; ns
Plans = dict[tuple[int, int], Rows]


def network(tmp_path: Path, edges: str, *rows: str, gap: Gap = "hold", **rule: object) -> Network:
    """Of edges as "ab bc", and the rows of a plan."""
    (tmp_path / "plan.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    graph = nx.Graph([tuple(edge) for edge in edges.split()])
    given = {"latency_ns": 20 * MS, **rule}
    return build(TopologySpec(graph=graph, roles={"peer": RoleRule("all")}), [LinkRule("*", **given)],      # type: ignore[arg-type]
                 1, contacts=ContactSpec(tmp_path / "plan.csv", gap, routes="earliest"))


def way(net: Network, ends: str, size: int, at: float = 0) -> str | None:
    assert net.earliest is not None
    u, v = (net.names.index(name) for name in ends)
    found = net.earliest.way(u, v, round(at * S), size)
    return None if found is None else "".join(net.names[vertex] for vertex in found)


# --- cases of closed form ---------------------------------------------------------------------------------------------

def test_a_message_waits_at_each_vertex_for_the_next_contact(tmp_path):
    net = network(tmp_path, "ab bc", "0,100,a,b,1,20", "300,400,b,c,1,20")
    assert way(net, "ac", 5 * MB) == "abc"
    assert Outlook(net, [], 1, 5 * MB).route(*(net.names.index(name) for name in "ac")).time_ns == 340_020 * MS
    assert way(net, "bc", 5 * MB, 40.02) == "bc"
    assert way(net, "bc", 5 * MB, 360) == "bc"
    assert way(net, "bc", 5 * MB, 360.1) is None
    assert way(net, "ca", 1) == "cba"               # no row names these two: they transmit at all times


def test_a_relay_is_sooner_than_a_link_that_comes_later(tmp_path):
    rows = "500,600,a,z,1,5", "0,10,a,m,1,5", "20,30,m,z,1,5"
    net = network(tmp_path, "az am mz", *rows)
    size = 2 * MBIT // 8
    assert way(net, "az", size) == "amz"
    assert Outlook(net, [], 1, size).route(*(net.names.index(name) for name in "az")).time_ns == 22_005 * MS
    assert way(net, "az", size, 8.5) == "az"        # 1.5 s are left of the contact with m; the rest would wait for ever
    assert way(net, "az", size, 599) is None
    assert Outlook(net, [], 1, 10 * MB).route(*(net.names.index(name) for name in "az")).time_ns == 580_005 * MS


@pytest.mark.parametrize(("gap", "expected"), [("hold", "ab"), ("again", "acb"), ("drop", None)])
def test_the_fate_of_what_a_contact_cuts_is_part_of_the_search(tmp_path, gap, expected):
    """2 MB, 8 Mbit/s: 1 s of a contact is no whole message."""
    rows = "0,1,a,b,8,5", "3,4,a,b,8,5", "10,20,a,c,8,5", "10,30,c,b,8,5"
    net = network(tmp_path, "ab ac cb", *rows, gap=gap)
    assert way(net, "ab", 2 * MB) == expected
    if gap == "drop":
        assert way(net, "ab", 2 * MB, 10) == "acb"


def test_the_size_on_the_wire_counts(tmp_path):
    """1 MB on the wire is 1 s at 8 Mbit/s. The rest of more waits until 5 s; over c it takes 4 s."""
    rows = "0,1,a,b,8,5", "5,6,a,b,8,5"
    net = network(tmp_path, "ab ac cb", *rows, overhead_bytes=100, mtu=1000, bandwidth_bps=4 * MBIT)
    assert [way(net, "ab", size) for size in (909_000, 910_000)] == ["ab", "acb"]


# --- all ways by hand -------------------------------------------------------------------------------------------------

def plans(draw: random.Random, vertices: int, *, latencies: tuple[int, ...] = (3,)) -> Plans:
    """Some links between so many vertices, each with some contacts, of which some touch."""
    found = {}
    for u in range(vertices):
        for v in range(vertices):
            if u == v or draw.random() < 0.4:
                continue
            rows, at = [], draw.randrange(6)
            for _ in range(draw.randrange(2, 6)):
                length = draw.randrange(1, 9)
                rows.append((at, at + length, draw.choice([8 * S, 4 * S, 3 * S]), draw.choice(latencies)))
                at += length + draw.choice([0, 1, 5])
            found[u, v] = rows
    return found


def contacts(rows: Rows, gap: Gap = "hold") -> Contacts:
    return Contacts(*(array("q", column) for column in zip(*rows, strict=True)), gap=gap)


def routes(chosen: Plans, vertices: int, gap: Gap = "hold") -> EarliestRoutes:
    there = {ends: contacts(rows, gap) for ends, rows in chosen.items()}
    return EarliestRoutes(vertices, lambda u: [v for v in range(vertices) if (u, v) in there],
                          lambda u, v: Crossing(there[u, v], None, 0, there[u, v].least_ns))


def comes(rows: Rows, at: int, size: int, gap: Gap) -> int | None:
    """When a message that is offered to a link alone comes over it: the work of each span is handed out by hand."""
    spans: list[Rows] = []
    for row in rows:
        if spans and gap != "hold" and row[0] == spans[-1][-1][1]:
            spans[-1].append(row)
        else:
            spans.append([row])
    left = Fraction(8 * S * size)
    for span in spans:
        if gap == "again":
            left = Fraction(8 * S * size)
        elif gap == "drop" and not span[0][0] <= at < span[-1][1]:
            continue
        now = Fraction(at)
        for begin, end, rate, latency in span:
            now = max(now, Fraction(begin))
            work = max(Fraction(0), (end - now) * rate)
            if work >= left:
                return ceil(now + left / rate) + latency
            left -= work
            now = max(now, Fraction(end))
    return None


def along(chosen: Plans, path: tuple[int, ...], at: int, size: int, gap: Gap = "hold") -> int | None:
    now: int | None = at
    for ends in pairwise(path):
        if now is not None:
            now = comes(chosen[ends], now, size, gap)
    return now


def simple_ways(chosen: Plans, path: tuple[int, ...], target: int) -> Iterator[tuple[int, ...]]:
    if path[-1] == target:
        yield path
        return
    for u, v in chosen:
        if u == path[-1] and v not in path:
            yield from simple_ways(chosen, (*path, v), target)


@pytest.mark.parametrize("gap", ["hold", "again"])
def test_no_way_of_a_thousand_small_plans_is_sooner(gap):
    draw = random.Random(7)
    delivered = 0
    for _ in range(500):
        vertices = draw.randrange(3, 6)
        chosen = plans(draw, vertices)
        found = routes(chosen, vertices, gap)
        at, size, last = draw.randrange(8), draw.randrange(1, 12), 0
        for begin in (at, at + 1, at + 4):
            answer = found.way(0, 1, begin, size)
            times = [(soon, len(one)) for one in simple_ways(chosen, (0,), 1)
                     if (soon := along(chosen, one, begin, size, gap)) is not None]
            if answer is None:
                assert not times
                break
            soonest = along(chosen, answer, begin, size, gap)
            assert soonest == min(times)[0]
            assert soonest >= last                  # a later start never arrives earlier
            last = soonest
            delivered += 1
    assert delivered > 400


@pytest.mark.parametrize("gap", ["hold", "again", "drop"])
def test_one_link_is_crossed_as_the_link_itself_does_it(gap):
    draw = random.Random(3)
    for _ in range(300):
        rows = next(iter(plans(draw, 3, latencies=(0, 2, 5)).values()), [(0, 4, 8 * S, 1)])
        at, size = draw.randrange(20), draw.randrange(1, 12)
        plan = contacts(rows, gap)
        one = FullLink(0, 1, plan, profile=plan)
        one.offer(at, "m", size, 0)
        due = one.next_change()
        assert due is not None
        (_, arrives, _, _), = one.advance(due)
        end = carried(plan, at, size)
        assert (end < NEVER) is arrives
        assert routes({(0, 1): rows}, 2, gap).way(0, 1, at, size) == ((0, 1) if arrives else None)
        if arrives:
            assert due == end + plan.latency_at(end)
            if gap != "drop":
                assert comes(rows, at, size, gap) == due


# --- ties, purity, least times ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("gap", ["hold", "again", "drop"])
def test_a_search_that_is_led_finds_what_one_search_for_all_finds(gap):
    """With latencies that vary, and so few values of everything that many ways arrive at one time."""
    draw = random.Random(11)
    found = 0
    for _ in range(150):
        vertices = draw.randrange(4, 10)
        chosen = plans(draw, vertices, latencies=(1, 2, 4))
        led, tree = routes(chosen, vertices, gap), routes(chosen, vertices, gap)
        at, size = draw.randrange(10), draw.randrange(1, 6)
        tree.way(0, 1, at, size)
        for target in range(1, vertices):
            one = led.way(0, target, at, size)
            assert one == tree.way(0, target, at, size)     # the second question of a kind searches for all
            led.way(0, target, at + 1, size)
            found += one is not None
    assert found > 200


def test_links_that_transmit_at_all_times_without_limits_have_the_routes_of_latencies():
    draw = random.Random(5)
    for _ in range(60):
        vertices = draw.randrange(4, 12)
        late = {(u, v): draw.choice([0, 1, 1, 2]) for u in range(vertices) for v in range(vertices)
                if u != v and draw.random() < 0.5}

        def neighbours(u: int, late: dict[tuple[int, int], int] = late, vertices: int = vertices) -> list[int]:
            return [v for v in range(vertices) if (u, v) in late]

        def crossing(u: int, v: int, late: dict[tuple[int, int], int] = late) -> Crossing:
            return Crossing(None, None, late[u, v], late[u, v])

        plain = ShortestPaths(vertices, neighbours, lambda u, v, late=late: late[u, v])     # type: ignore[misc]
        timed = EarliestRoutes(vertices, neighbours, crossing)
        for u in range(vertices):
            for v in range(vertices):
                assert timed.way(u, v, 17, 1000) == plain.route(u, v)
                if plain.route(u, v) is not None:
                    assert timed.least_ns(u, v) == plain.latency_ns(u, v)
                else:
                    assert timed.least_ns(u, v) == NEVER


def test_ties_go_to_fewer_links_and_then_to_lower_numbers():
    """All ways to 4 wait for its contacts, which begin at 100."""
    rows = [(0, 10, 8 * S, 1)]
    late = [(100, 110, 8 * S, 1)]
    chosen = {(0, 3): rows, (0, 2): rows, (0, 1): rows, (1, 3): rows, (1, 4): late, (2, 4): late, (3, 4): late}
    assert routes(chosen, 5).way(0, 4, 0, 1) == (0, 1, 4)
    del chosen[0, 1]
    assert routes(chosen, 5).way(0, 4, 0, 1) == (0, 2, 4)
    chosen[0, 4] = [(101, 110, 8 * S, 1)]
    assert routes(chosen, 5).way(0, 4, 0, 1) == (0, 2, 4)           # at 102; the link itself: at 103
    chosen[0, 4] = late
    assert routes(chosen, 5).way(0, 4, 0, 1) == (0, 4)


def test_an_answer_does_not_depend_on_what_was_asked_before():
    draw = random.Random(2)
    chosen = plans(draw, 8, latencies=(1, 5))
    questions = [(draw.randrange(8), draw.randrange(8), draw.randrange(15), draw.randrange(1, 9)) for _ in range(200)]
    asked = routes(chosen, 8)
    first = [asked.way(*question) for question in questions]
    assert first == [routes(chosen, 8).way(*question) for question in questions]
    assert first[::-1] == [asked.way(*question) for question in questions[::-1]]


@pytest.mark.parametrize("gap", ["hold", "again", "drop"])
def test_many_questions_of_one_window_have_the_answers_of_a_search_without_it(gap):
    """A unit of the plans is 3 s, so that a window of 69 s ends before most of the contacts."""
    draw = random.Random(4)
    within = beyond = nowhere = 0
    for _ in range(8):
        chosen = {ends: [(3 * S * begin, 3 * S * end, rate // 10**6, late) for begin, end, rate, late in rows]
                  for ends, rows in plans(draw, 8, latencies=(S, 5 * S)).items()}
        chosen |= {(u, 8): [(3 * S * draw.randrange(40), 200 * S, 8000, S)] for u in range(3)}
        asked = routes(chosen, 9, gap)
        for _ in range(150):
            question = (draw.randrange(8), 8 if draw.random() < 0.5 else draw.randrange(8),
                        3 * S * draw.randrange(15) + draw.randrange(S), draw.randrange(1, 9) * 1000)
            fresh = routes(chosen, 9, gap)
            answer = asked.way(*question)
            assert answer == fresh.way(*question)
            nowhere += answer is None
        within += sum(one.found for one in asked._windows.values())
        beyond += sum(one.failed for one in asked._windows.values())
    assert within > 100
    assert beyond > 20
    assert nowhere > 20


def test_a_way_has_64_links_at_most():
    rows = [(0, 1000, 8 * S, 1)]
    chosen = {(u, u + 1): rows for u in range(69)}
    assert len(routes(chosen, 70).way(0, 64, 0, 1) or ()) == 65
    assert routes(chosen, 70).way(0, 65, 0, 1) is None


def test_least_times_of_a_network_are_those_of_any_way(tmp_path):
    rows = "0,1,a,z,1,50", "0,1,a,m,1,5", "7,8,a,m,1,9", "20,30,m,z,1,6"
    net = network(tmp_path, "az am mz zy", *rows)
    a, y, z = (net.names.index(name) for name in "ayz")
    assert (net.latency_ns(a, z), net.latency_ns(a, y), net.latency_ns(a, a)) == (11 * MS, 31 * MS, 0)
    assert net.out_latency_ns(a) == 5 * MS
    assert net.unordered() == []
    net.link(a, z)
    assert net.unordered() == [(a, z)]


def test_links_over_which_a_message_is_not_whole_are_refused(tmp_path):
    rule = LinkRule("1->2", switching=Switching("cut_through"))
    (tmp_path / "plan.csv").write_text(HEADER + "0,1,0,1,1,50\n")
    spec = ContactSpec(tmp_path / "plan.csv", routes="earliest")
    with pytest.raises(NetworkError, match="switching cut_through  contacts with routes: earliest are for"):
        build(TopologySpec(graph=nx.path_graph(3), roles={"peer": RoleRule("all")}),
              [LinkRule("*", latency_ns=MS), rule], 1, contacts=spec)
