"""Measured matrices as networks: every form of file, round trips and rates as measured, and no forwarding."""

from __future__ import annotations

import random
import re
from itertools import permutations
from pathlib import Path

import pytest

from emul.base.errors import NetworkError
from emul.network import Access, LinkRule, Measured, RoleRule, TopologyError, TopologySpec, build
from emul.network.terrain import Terrain, chart

MS = 10**6
SITES = ["Riga", "Oulu", "Kiel", "Bern", "Faro", "Bari", "Cork", "Gent"]


def network(tmp_path, text, rates=None, rules=(), values=None, unit=None, **spec):
    (file := tmp_path / "rtt.csv").write_text(text)
    if rates is not None:
        (tmp_path / "rates.csv").write_text(rates)
        spec["rates"] = Measured(tmp_path / "rates.csv")
    return build(TopologySpec(matrix=Measured(file, unit, values), **spec), list(rules), 7)


def refusal(tmp_path, text, **more):
    with pytest.raises(TopologyError) as caught:
        network(tmp_path, text, **more)
    return [(p.line, p.place, p.found, p.expected) for p in caught.value.problems]


def measured():
    """One-way delays in us of eight sites, asymmetric, many of them longer than a way over a third site."""
    draw = random.Random(3)
    return {pair: draw.randint(2_000, 150_000) for pair in permutations(SITES, 2)}


def square(cell, corner="", sites=SITES, separator=","):
    rows = [[corner, *sites], *([a, *("" if a == b else cell(a, b) for b in sites)] for a in sites)]
    return "".join(separator.join(row) + "\n" for row in rows)


def rtt_ns(net, a, b):
    u, v = net.names.index(a), net.names.index(b)
    return net.latency_ns(u, v) + net.latency_ns(v, u)


@pytest.mark.parametrize("form", ["round_trip", "one_way", "long", "upper", "commas"])
def test_round_trips_come_out_as_measured_also_where_a_third_site_is_nearer(tmp_path, form):
    late = measured()
    both = {(a, b): late[a, b] + late[b, a] for a, b in late}
    text = {
        "round_trip": lambda: square(lambda a, b: f"{both[a, b] / 1000}"),
        "one_way": lambda: square(lambda a, b: f"{late[a, b]} us", "one_way"),
        "long": lambda: "from,to,rtt_ms\n" + "".join(f"{a},{b},{both[a, b] / 1000}\n" for a, b in both if a < b),
        "upper": lambda: square(lambda a, b: f"{both[a, b]}" if SITES.index(a) < SITES.index(b) else "-", "rtt_us"),
        "commas": lambda: square(lambda a, b: f"{both[a, b] / 1000}".replace(".", ","), separator=";")}[form]()
    net = network(tmp_path, text)
    assert set(net.names) == set(SITES)
    assert net.roles == {"peer": list(range(8))}
    over_a_third = 0
    for a, b in both:
        assert rtt_ns(net, a, b) == both[a, b] * 1000
        u, v = net.names.index(a), net.names.index(b)
        assert net.route(u, v) == (u, v)
        over_a_third += any(both[a, c] + both[c, b] < both[a, b] for c in SITES if c not in (a, b))
        if form == "one_way":
            assert net.latency_ns(u, v) == late[a, b] * 1000
    assert over_a_third > 10
    assert [said for said in net.warnings() if "infinitely fast" not in said] == []


def test_the_same_file_with_forwarding_takes_ways_over_third_sites_and_says_so(tmp_path):
    late = measured()
    net = network(tmp_path, square(lambda a, b: f"{late[a, b]} us", "one_way"), forward=True)
    third = sum(any(late[a, c] + late[c, b] < late[a, b] for c in SITES if c not in (a, b)) for a, b in late)
    assert f": {third} of 56 edges are longer than a way over a third site, such as" in net.warnings()[-1]
    assert sum(len(net.route(u, v)) > 2 for u, v in permutations(range(8), 2)) >= third      # also over two others


FORMS = {
    "names on both sides": "from \\ to,Riga,Oulu,Kiel\nRiga,,14,31\nOulu,14,,40\nKiel,31,40,\n",
    "no names": "0 14 31\n14 0 40\n31 40 0\n",
    "names above": "Riga,Oulu,Kiel\n0,14,31\n14,0,40\n31,40,0\n",
    "names beside": "Riga,0,14,31\nOulu,14,0,40\nKiel,31,40,0\n",
    "as R writes it": "Riga Oulu Kiel\nRiga 0 14 31\nOulu 14 0 40\nKiel 31 40 0\n",
    "as pandas writes numbers": ",0,1,2\n0,0.0,14.0,31.0\n1,14.0,0.0,40.0\n2,31.0,40.0,0.0\n",
    "another order of lines": "rtt_ms;Riga;Oulu;Kiel\nKiel;31,0;40;nan\nRiga;-;14;31\nOulu;14;;40\n",
    "a triangle": ",Riga,Oulu,Kiel\nRiga\nOulu,14\nKiel,31,40\n",
    "a triangle without the last line": ",Riga,Oulu,Kiel\nRiga,,14,31\nOulu,,,40\n",
    "with units": ",Riga,Oulu,Kiel\nRiga,0,14 ms,0.031 s\nOulu,,0,40000 us\nKiel,,,0\n",
    "separators at the ends": "Riga,Oulu,Kiel,\n0,14,31,\n14,0,40,\n31,40,0,\n",
    "an upper triangle moved to the left": ",Riga,Oulu,Kiel\nRiga,0,14,31\nOulu,0,40\nKiel,0\n",
    "and without its diagonal": ",Riga,Oulu,Kiel\nRiga,14,31\nOulu,40\nKiel\n",
    "numpy.triu": "Riga,Oulu,Kiel\n0,14,31\n0,0,40\n0,0,0\n",
    "numpy.tril": ",Riga,Oulu,Kiel\nRiga,0,0,0\nOulu,14,0,0\nKiel,31,40,0\n",
    "R's dist": "     Riga Oulu\nOulu 14\nKiel 31 40\n",
    "an upper triangle of the sites that it needs": ",Oulu,Kiel\nRiga,14,31\nOulu,,40\n",
    "anything on the diagonal": ",Riga,Oulu,Kiel\nRiga,self,14,31\nOulu,14,nan,40\nKiel,31,40,-1\n",
    "bars": "|Riga|Oulu|Kiel\nRiga|0|14|31\nOulu|14|0|40\nKiel|31|40|0\n",
    "lines of two regions": "sending_region,receiving_region,median_ms,p90_ms\nRiga,Oulu,14,15\nRiga,Kiel,31,32\n"
                            "Kiel,Oulu,40,44\n",
    "lines of a tool": '"source","destination","timestamp","min","avg","max","mdev"\n'
                       '"Riga","Oulu","2026-05-01",13,14,16,1\n'
                       '"Riga","Kiel","2026-05-01",30,31,33,1\n"Kiel","Oulu","2026-05-01",39,40,44,1\n',
    "lines of three averages": "node1,node2,rtt_min_ms,rtt_avg_ms,rtt_max_ms\nRiga,Oulu,13,14,15\nRiga,Kiel,30,31,32\n"
                               "Kiel,Oulu,39,40,44\n",
    "lines of a site with itself": "from,to,rtt_ms\nRiga,Riga,self\nRiga,Oulu,14\nRiga,Kiel,31\nKiel,Oulu,40\n"
                                   "Kiel,Kiel,0\n",
    "lines": "from,to,rtt_ms\nRiga,Oulu,14\nRiga,Kiel,31\nKiel,Oulu,40\n",
    "lines with more columns": "src,dst,sent,rtt_ms,loss_%\nRiga,Oulu,9,14,0\nRiga,Kiel,9,31,1\nKiel,Oulu,9,40,0\n",
    "lines under other names": "site_1,site_2,ms\nRiga,Oulu,14\nRiga,Kiel,31\nKiel,Oulu,40\n",
    "lines without a header": "Riga,Oulu,14\nRiga,Kiel,31\nKiel,Oulu,40\n",
    "one way": "source,target,one_way_ms\nRiga,Oulu,5\nOulu,Riga,9\nRiga,Kiel,15.5\nKiel,Oulu,10\nOulu,Kiel,30\n"}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(tmp_path, form):
    net = network(tmp_path, FORMS[form])
    at = dict(zip(("Riga", "Oulu", "Kiel"), ["0", "1", "2"] if "pandas" in form else ["site1", "site2", "site3"]
                  if form == "no names" else ["Riga", "Oulu", "Kiel"], strict=True))
    assert sorted(net.names) == sorted(at.values())
    for a, b, ms in (("Riga", "Oulu", 14), ("Kiel", "Riga", 31), ("Oulu", "Kiel", 40)):
        assert rtt_ns(net, at[a], at[b]) == ms * MS


@pytest.mark.parametrize("names", [("101", "102", "103"), ("10.0.0.1", "10.0.0.2", "192.168.7.9"),
                                   ("3com", "1a", "2b")])
@pytest.mark.parametrize("corner", ["", "site", "rtt_ms"])
def test_names_that_are_numbers_or_begin_with_them_stand_on_both_sides(tmp_path, names, corner):
    a, b, c = names
    net = network(tmp_path, f"{corner},{a},{b},{c}\n{a},,14,31\n{b},14,,40\n{c},31,40,\n")
    assert sorted(net.names) == sorted(names)
    assert (rtt_ns(net, a, b), rtt_ns(net, a, c), rtt_ns(net, b, c)) == (14 * MS, 31 * MS, 40 * MS)


def test_a_symmetric_matrix_without_names_has_no_line_of_names(tmp_path):
    net = network(tmp_path, "-,14,31\n14,-,40\n31,40,-\n")
    assert net.names == ["site1", "site2", "site3"]
    assert rtt_ns(net, "site2", "site3") == 40 * MS


def test_sites_may_be_called_as_ends_are(tmp_path):
    for a, b in (("a", "b"), ("u", "v"), ("site1", "site2")):
        net = network(tmp_path, f"rtt_us,{a},{b},x\n{a},,14,31\n{b},14,,40\nx,31,40,\n")
        assert sorted(net.names) == sorted([a, b, "x"])
        assert rtt_ns(net, a, "x") == 31_000


def test_rates_of_a_triangle_of_zeros_hold_in_both_directions_and_other_zeros_are_told(tmp_path):
    late = ",a,b,c\na,0,14,31\nb,14,0,40\nc,31,40,0\n"
    net = network(tmp_path, late, rates=",a,b,c\na,0,90,80\nb,0,0,60\nc,0,0,0\n")
    assert [net.parameters(u, v).bandwidth_bps for u, v in ((0, 1), (1, 0), (2, 1))] == [90_000_000] * 2 + [60_000_000]
    assert net.parameters(1, 2).bandwidth_bps == 60_000_000
    net = network(tmp_path, late, rates="from,to,MB/s\na,a,0\na,b,9\na,c,8\nb,c,6\n")
    assert net.parameters(1, 0).bandwidth_bps == 72_000_000
    with pytest.raises(TopologyError) as caught:
        network(tmp_path, late, rates=",a,b,c\na,0,90,0\nb,70,0,60\nc,50,40,0\n")
    assert [(p.line, p.place, p.found) for p in caught.value.problems] == [(2, "a->c", "0")]


def test_a_key_says_what_a_file_does_not(tmp_path):
    text = ",a,b\na,,20\nb,30,\n"
    assert rtt_ns(network(tmp_path, text), "a", "b") == 25 * MS
    assert rtt_ns(network(tmp_path, text, values="one_way"), "a", "b") == 50 * MS
    assert rtt_ns(network(tmp_path, text, values="one_way", unit="us"), "a", "b") == 50_000
    assert "two round trips of 1 pairs differ by more than 10 %, most of all a-b: their mean" in network(
        tmp_path, text).warnings()[0]


def test_two_measurements_of_an_odd_number_of_nanoseconds_keep_their_sum(tmp_path):
    assert rtt_ns(network(tmp_path, ",a,b\na,,0.000015\nb,,\n"), "a", "b") == 15


def test_clients_and_regions_are_a_matrix_of_two_kinds_of_sites(tmp_path):
    net = network(tmp_path, "ms,north,south\nc1,5,50\nc2,60,6\n", roles={
        "server": RoleRule("nodes", nodes=("north",)), "client": RoleRule("nodes", nodes=("c1", "c2"))})
    assert net.names == ["c1", "c2", "north", "south"]
    assert rtt_ns(net, "c1", "north") == 5 * MS
    with pytest.raises(NetworkError, match=r"c2 cannot be reached from c1: .*\(topology.forward: false\)$"):
        net.route(0, 1)
    assert "nothing was measured between c1-c2, north-south: no link is there" in net.warnings()[0]


@pytest.mark.parametrize("rates", [",Riga,Oulu,Kiel\nRiga,,90,80\nOulu,70,,60\nKiel,50,40,\n",
                                   "90 90 80\n70 0.1 60\n50 40 7\n",
                                   "from,to,rate\nRiga,Oulu,90 Mbit/s\nRiga,Kiel,1e7 B/s\nOulu,Riga,70\nOulu,Kiel,60\n"
                                   "Kiel,Riga,50\nKiel,Oulu,40\n",
                                   "bit/s;Riga;Oulu;Kiel\nRiga;;90e6;80e6\nOulu;7e7;;6e7\nKiel;5e7;4e7;\n"])
def test_rates_are_those_of_each_direction(tmp_path, rates):
    net = network(tmp_path, FORMS["no names" if rates[0] == "9" else "lines"], rates)
    kiel = net.names.index("Kiel") if "Kiel" in net.names else 2
    assert net.parameters(0, 1).bandwidth_bps == 90_000_000
    assert net.parameters(1, 0).bandwidth_bps == 70_000_000
    assert net.parameters(0, kiel).bandwidth_bps == 80_000_000
    assert net.parameters(kiel, 1).bandwidth_bps == 40_000_000
    assert net.warnings() == []


@pytest.mark.parametrize(("text", "more", "line", "said"), [
    (",a,b\na,,-5\nb,5,\n", {}, 2, "expected a duration of 0 or more, or - where none was measured"),
    (",a,b\na,,5 Mbit/s\nb,5,\n", {}, 2, "expected a duration such as 20 ms or 20"),
    (",a,b\na,,5\nc,5,\n", {}, 1, "expected the same 2 sites in lines and columns"),
    (",a,a\na,,5\na,5,\n", {}, 1, "expected every site once"),
    ("from,to,x,y\na,b,1,2\n", {}, 1, "expected a column such as rtt_ms or one_way_ms"),
    ("from,to,rtt_ms\na,b,1\na,b,2\n", {}, 3, "topology.repeated: mean, median or first"),
    ("", {}, None, "expected a matrix, or lines such as from,to,rtt_ms"),
    ("a,b\n", {}, 1, "expected a line for each site"),
    (FORMS["lines"], {"rates": "from,to,rate\nRiga,Oulo,5\n"}, None, 'unknown site of rtt.csv; did you mean "Oulu"?'),
    (FORMS["lines"], {"rates": "from,to,rate\nRiga,Oulu,0\n"}, 2, "expected a rate above 0"),
    (FORMS["lines"], {"unit": "m"}, 2, "expected a duration such as 20 ms")])
def test_what_is_wrong_is_told_with_its_line(tmp_path, text, more, line, said):
    found = refusal(tmp_path, text, **more)
    assert found[0][0] == line
    assert said in found[0][3]


@pytest.mark.parametrize(("rule", "ms"), [("mean", 5), ("median", 2), ("first", 12)])
def test_repeated_measurements_are_one_by_the_rule(tmp_path, rule, ms):
    text = "from,to,rtt_ms\na,b,12\na,b,1\na,b,2\n"
    assert rtt_ns(network(tmp_path, text, repeated=rule), "a", "b") == ms * MS


def test_hosts_of_a_site_reach_those_of_others_over_the_one_link(tmp_path):
    roles = {"server": RoleRule("nodes", nodes=("Riga",)),
             "client": RoleRule("nodes", nodes=("Oulu", "Kiel"), count=4, access=Access(1 * MS, 10**7))}
    net = network(tmp_path, FORMS["lines"], roles=roles, rules=[LinkRule("*", bandwidth_bps=10**9)])
    server, clients = net.roles["server"][0], net.roles["client"]
    for client, place, ms in ((clients[0], "Oulu", 14), (clients[3], "Kiel", 31)):
        assert net.route(client, server) == (client, net.names.index(place), server)
        assert net.latency_ns(client, server) + net.latency_ns(server, client) == (ms + 2) * MS
    assert net.route(clients[0], clients[1]) == (clients[0], 1, 2, clients[1])
    terrain = Terrain(chart(net, [server, *clients]))
    assert terrain.neighbours(0) == [1, 2, 3, 4]
    assert terrain.nearest(0, [1, 2, 3, 4]) == 1
    assert terrain.latency_ns(2, 3) == net.latency_ns(clients[1], clients[2])
    assert terrain.arrivals(0, [1, 2], 5, 100) == {1: 5 + 8 * MS, 2: 5 + 16_500_000}


def test_a_file_without_forwarding_has_only_its_links(tmp_path):
    (file := tmp_path / "n.csv").write_text("source,target,latency_ms,bw\na,b,1,9\nb,c,1,9\n")
    net = build(TopologySpec(file=file, roles={"peer": RoleRule("all")}, forward=False), [], 7)
    assert net.route(0, 1) == (0, 1)
    terrain = Terrain(chart(net, range(3)))
    assert [terrain.neighbours(i) for i in range(3)] == [[1], [0, 2], [1]]
    assert terrain.nearest(0, [1, 2]) == 1
    for ask in (lambda: net.latency_ns(0, 2), lambda: terrain.latency_ns(0, 2), lambda: terrain.nearest(0, [2])):
        with pytest.raises(NetworkError):
            ask()
    star = build(TopologySpec(generator="star", clients=2, forward=False), [], 7)
    assert star.route(1, 0) == (1, 0)
    with pytest.raises(NetworkError, match=r"^client2 cannot be reached"):
        star.route(1, 2)


def test_the_tables_of_the_page_are_one_network(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "measured-networks.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    tables = [block for language, block in blocks if not language]
    assert len(tables) == 2
    for text in tables:
        net = network(tmp_path, text)
        assert [rtt_ns(net, *pair) for pair in (("Riga", "Oulu"), ("Riga", "Kiel"), ("Kiel", "Oulu"))] == [
            14_200_000, 31_000_000, 40_000_000]
