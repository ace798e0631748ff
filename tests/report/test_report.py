"""The report: its numbers against the tables and by hand, its figures, its page, and what it says of wrong input."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import make_run

from emul.base import rows as R
from emul.record.journal import RecordError
from emul.record.load import load_run
from emul.report import (
    build,
    curves,
    data,
    drawing,
    figures,
    files,
    page,
    palette,
    spacetime,
    study,
    topology,
    write,
)


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of written_run.py, written as a run directory."""
    return make_run(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def run(run_path: Path) -> data.RunData:
    return data.open_run(run_path)


# --- numbers --------------------------------------------------------------------------------------------------------

def test_traffic_adds_up_to_the_bytes_of_the_table_kind_by_kind(run: data.RunData, run_path: Path) -> None:
    table = load_run(run_path).messages
    found = data.traffic(run)
    by_kind = found.groupby("kind")["bytes"].sum().to_dict()
    wasted = table.fate.isin(["late", "to_ended"]) | table.unread
    once = table.wire_bytes - table.retransmitted_bytes
    assert by_kind == {
        "first": once[(table.fate != "lost") & ~wasted].sum(),
        "wasted": once[wasted].sum(),
        "lost": once[table.fate == "lost"].sum(),
        "retransmitted": table.retransmitted_bytes.sum()}
    assert by_kind["retransmitted"] == 70


def test_traffic_says_link_type_and_direction(run: data.RunData) -> None:
    found = data.traffic(run)
    lost = found[found.kind == "lost"]
    assert lost[["from", "to", "type", "direction", "bytes"]].to_records(index=False).tolist() == [
        ("server", "router", "Model", "server → client", 100), ("router", "client1", "Model", "server → client", 110)]
    assert not (found["type"] == "Note").any()                      # sent to itself: on no link


def test_links_carry_what_was_offered_and_lose_what_was_lost(run: data.RunData) -> None:
    found = data.links(run).set_index(["vertex", "next"])
    assert found.loc[(0, 1)].to_dict() == {"bytes": 570, "copies": 5, "lost": 0}     # 5 Models, and 70 B again
    assert found.loc[(1, 2)].to_dict() == {"bytes": 220, "copies": 2, "lost": 1}


def test_losses_are_by_link_and_round(run: data.RunData) -> None:
    assert data.losses(run).to_dict("list") == {"link": ["router→client1"] * 2, "round": [1, 2], "copies": [1, 1],
                                                "lost": [0, 1]}


def test_the_curve_has_time_and_bytes_at_the_end_of_each_round(run: data.RunData) -> None:
    found = data.curve(run)
    assert found["round"].tolist() == [1, 2]
    assert found["virtual_s"].tolist() == [146e-9, 200e-9]
    # two rounds of two Models, over two hops each, the Update and 70 B sent again; then the Hello, and the Model sent
    # at 200
    assert found["mb"].tolist() == [pytest.approx(1310e-6), pytest.approx(1510e-6)]
    assert found["accuracy"].tolist() == [0.5, 0.75]


def test_the_curve_reads_tables_and_no_rows(run_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = data.curve(data.open_run(run_path))
    monkeypatch.setattr(data.RunData, "rows", None)
    pd.testing.assert_frame_equal(data.curve(data.open_run(run_path)), expected)


def test_every_node_is_somewhere_at_every_time(run: data.RunData) -> None:
    seconds = data.states(run, data.waits(run)).pivot(index="name", columns="state", values="seconds") * 1e9
    assert seconds.loc["client2"].round().to_dict() == {
        "computing": 27, "between rounds": 23, "down": 120, "waiting": 40}      # crashed at 50, back at 170, to the end
    assert seconds.loc["client1"].round().to_dict() == {
        "computing": 100, "between rounds": 22, "down": 0, "waiting": 88}
    assert seconds.loc["server"].sum() == pytest.approx(210)


def test_a_wait_is_ended_by_the_message_that_came_last(run: data.RunData) -> None:
    found = data.delays(run, data.waits(run)).set_index("round")
    assert found.loc[1, ["cause", "how"]].tolist() == ["client1", "arrival"]
    assert found.loc[1, "waited_s"] == pytest.approx(146e-9)


def test_a_deadline_names_everybody_who_was_not_there(tmp_path: Path) -> None:
    """Round 1: a arrives at 10, b at 40, c is lost; the deadline is at 30."""
    sent = [(R.SEND, 5, node, 0, 0, "Update", 10, 26, 1, node, 0) for node in (1, 2, 3)]
    journal = [*((R.START, 0, n, 0) for n in range(4)), (R.ENTER, 0, 0, 1), *((R.ENTER, 5, n, 1) for n in (1, 2, 3)),
               *sent, (R.DELIVER, 10, 1, 0, 0), (R.RESUME, 30, 0, 2, 1), (R.LEAVE, 30, 0, 1, ""),
               (R.ENTER, 30, 0, 2), (R.LOST, 35, 3, 0, 3, 0), (R.DELIVER, 40, 2, 0, 1), (R.FINISH, 40, 0, "")]
    names = ["server", "a", "b", "c"]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["server", *["client"] * 3], "vertices": [0, 1, 2, 3],
              "deciders": [0], "network": names}
    found = data.open_run(make_run(tmp_path, journal, header, 40))
    delays = data.delays(found, data.waits(found))
    assert delays[["round", "cause", "how"]].to_records(index=False).tolist() == [(1, "b", "deadline"),
                                                                                  (1, "c", "deadline")]


def test_computing_counts_what_was_used_of_a_computation_that_was_cut(run: data.RunData) -> None:
    found = data.computing(run).set_index(["role", "label"])
    assert found.loc[("client", "train"), "virtual_s"] == pytest.approx((100 + 27) * 1e-9)
    assert found.loc[("client", "train"), ["count", "real_cpu_s"]].tolist() == [2, 3.0]


def test_a_node_that_was_away_is_away_between_its_rows(tmp_path: Path) -> None:
    journal = [(R.START, 0, 0, 0), (R.AWAY, 10, 0), (R.BACK, 15, 0), (R.AWAY, 30, 0), (R.FINISH, 40, 0, "")]
    header = {"scheme": "x", "seed": 1, "names": ["a"], "roles": ["peer"], "vertices": [0], "deciders": [0],
              "network": ["a"]}
    found = data.absences(data.open_run(make_run(tmp_path, journal, header, 40)))
    assert list(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)) == [(10, 15), (30, 40)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.floats(0, 1)), min_size=1, max_size=40))
def test_the_spread_lies_between_least_and_largest_and_only_where_all_seeds_are(
        points: list[tuple[int, int, float]]) -> None:
    frame = pd.DataFrame(points, columns=["seed", "x", "y"]).drop_duplicates(["seed", "x"]).sort_values(["seed", "x"])
    found = curves.spread_of(frame.assign(series="s"), "x", "y")
    ends = frame.groupby("seed")["x"].agg(["min", "max"])
    if len(ends) < 2 or ends["min"].max() > ends["max"].min():
        assert len(found) == 0
    else:
        assert (found["low"] <= found["mean"] + 1e-12).all()
        assert (found["mean"] <= found["high"] + 1e-12).all()
        assert found["x"].min() == ends["min"].max()
        assert found["x"].max() == pytest.approx(ends["max"].min())


# --- space and time -------------------------------------------------------------------------------------------------

def test_a_round_shows_its_nodes_messages_and_fates(run: data.RunData) -> None:
    found = spacetime.space_time(run, data.waits(run), 10_000)
    assert [r.label for r in found.rounds] == ["Round 1", "Round 2", "Round 3"]
    one, two, _ = found.rounds
    assert one.tokens["lanes"] == ["server", "client1", "client2"]
    assert one.tokens["unit"] == "ns"
    assert one.messages["fate"].tolist() == ["delivered"] * 3                   # the Note to itself is no line
    assert one.computations.to_dict("list") == {"lane": [1, 2], "x": [22, 23], "x2": [122, 50],
                                                "label": ["train", "train"]}
    assert "2 nodes computed" not in one.text                                   # the server, too
    assert sorted(two.messages["fate"]) == ["lost", "never read", "receiver ended"]
    assert "It failed: TimedOut: nobody answered." in two.text
    lost = two.messages[two.messages["fate"] == "lost"].iloc[0]
    assert (lost["x"], lost["x2"]) == (0, pytest.approx(0.8 * 22, abs=0.01))
    assert lost["y2"] == pytest.approx(0.8)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three Updates one is refused where it arrives, one by its receiver, and one is never read."""
    sent = [(R.SEND, 5, node, 0, 0, "Update", 10, 26, 1, node, 0) for node in (1, 2, 3)]
    journal = [*((R.START, 0, n, 0) for n in range(4)), (R.ENTER, 0, 0, 1), *((R.ENTER, 5, n, 1) for n in (1, 2, 3)),
               *sent, (R.REJECT, 10, 1, 0, "delta: not finite"), (R.DELIVER, 15, 2, 0, R.INBOX),
               (R.RESUME, 15, 0, 1, 1), (R.REJECT, 15, 2, 0, "delta: <4,> of 5"),
               (R.DELIVER, 20, 3, 0, R.INBOX), (R.RESUME, 30, 0, 2, 0),
               (R.LEAVE, 30, 0, 1, ""), (R.FINISH, 30, 0, ""), (R.UNREAD, 30, 3, 0)]
    names = ["server", "a", "b", "c"]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["server", *["client"] * 3], "vertices": [0, 1, 2, 3],
              "deciders": [0], "network": names}
    return make_run(tmp_path_factory.mktemp("refusing"), journal, header, 30, observations=[])


def test_what_was_rejected_is_drawn_apart_from_what_was_never_read(refusing: Path) -> None:
    run = data.open_run(refusing)
    one = spacetime.space_time(run, data.waits(run), 10_000).rounds[0]
    assert one.messages["fate"].tolist() == ["rejected", "rejected", "never read"]
    assert one.messages["x2"].tolist() == [10, 15, 20]          # it came, and then was refused
    assert "3 messages were sent: 1 never read, 2 rejected." in one.text
    nodes = one.nodes.set_index("node")
    assert nodes["rejected"].to_dict() == {"server": 0, "a": 1, "b": 1, "c": 0}
    assert nodes.loc["server", "received"] == 1
    figure = figures.space_time(spacetime.space_time(run, data.waits(run), 10_000))
    spec = json.dumps(files.vega_lite(figure))
    assert spec.count(palette.LIGHT["rejected"]) >= 1


def test_the_report_says_what_was_rejected_of_whom_and_why(refusing: Path) -> None:
    parts = {part.key: part for part in build._run_parts(data.open_run(refusing))}
    (_, table), = parts["rejected"].tables
    assert table.to_dict("list") == {
        "sender": ["a", "b"], "type": ["Update"] * 2, "reason": ["delta: not finite", "delta: <4,> of 5"],
        "rejected by": ["server"] * 2, "count": [1, 1]}
    assert parts["rejected"].text.startswith("2 of 3 messages were not what")
    assert ("rejected", "2") in parts["overview"].cards
    html = write(refusing).read_text(encoding="utf-8")
    assert '<section id="rejected"' in html
    assert "delta: &lt;4,&gt; of 5" in html


def test_a_table_of_rejections_that_is_cut_says_so_and_a_run_without_any_has_none(run_path: Path) -> None:
    one = {"role": "server", "type": "Update", "sender": "a", "reason": "late", "count": 40}
    part = build.rejected({"violations": [one], "messages_rejected": 50, "messages_sent": 1000})
    assert part.text.endswith("The table has the most frequent, 40 of them.")
    parts = {part.key: part for part in build._run_parts(data.open_run(run_path))}
    assert "rejected" not in parts
    assert "rejected" not in dict(parts["overview"].cards)


def test_the_table_of_a_round_counts_messages_that_are_not_drawn(run: data.RunData) -> None:
    nodes = spacetime.space_time(run, data.waits(run), 10_000).rounds[0].nodes.set_index("node")
    assert nodes.loc["server", ["sent", "received"]].tolist() == [3, 2]         # the Note is sent and received
    assert nodes.loc["client2", "computed_s"] == pytest.approx(0, abs=1e-6)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 2000))
def test_chosen_rounds_fit_the_budget_and_keep_the_first(rows: list[int], budget: int) -> None:
    numbers = list(range(1, len(rows) + 1))
    chosen = spacetime.evenly(numbers, rows, budget)
    assert chosen == sorted(set(chosen))
    assert chosen[0] == 1
    assert len(chosen) == 1 or sum(rows[n - 1] for n in chosen) <= budget
    if sum(rows) <= budget:
        assert chosen == numbers
    elif len(chosen) > 1:
        assert chosen[-1] == numbers[-1]


def test_of_many_nodes_and_messages_some_are_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    """60 clients that send 30 messages each in one round; those of one client are lost."""
    n, each = 60, 30
    journal: list[Any] = [*((R.START, 0, i, 0) for i in range(n + 1)), (R.ENTER, 0, 0, 1)]
    for client in range(1, n + 1):
        journal += [(R.SEND, 0, client, k, 0, "Update", 10, 26, 1, client, 0) for k in range(each)]
    for client in range(1, n + 1):
        journal += [(R.LOST, 9, client, k, client, 0) if client == 7 else (R.DELIVER, 9, client, k, 0)
                    for k in range(each)]
    journal += [(R.RESUME, 9, 0, 1, (n - 1) * each), (R.LEAVE, 9, 0, 1, ""), (R.FINISH, 9, 0, "")]
    names = ["server", *(f"c{i}" for i in range(1, n + 1))]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["server", *["client"] * n],
              "vertices": list(range(n + 1)), "deciders": [0], "network": names}
    found = data.open_run(make_run(tmp_path, journal, header, 9))
    one, = spacetime.space_time(found, data.waits(found), 10_000).rounds
    assert len(one.tokens["lanes"]) == spacetime.LANES
    assert one.tokens["lanes"][0] == "server"
    assert len(one.messages) <= spacetime.MESSAGES
    assert "32 of the 61 nodes that took part are drawn" in one.text
    assert "1,800 messages were sent: 1,770 delivered, 30 lost." in one.text


# --- the map --------------------------------------------------------------------------------------------------------

def test_a_star_has_its_server_in_the_middle_and_lines_of_both_directions(run: data.RunData) -> None:
    found = topology.network_map(run)
    places = found.vertices.set_index("name")
    assert places.loc["router", "role"] == topology.RELAY
    assert len(found.edges) == len(data.links(run))
    assert found.edges.set_index(["from", "to"]).loc[("router", "client1"), "loss"] == 0.5
    assert np.isfinite(found.vertices[["x", "y"]].to_numpy()).all()


def test_a_map_has_the_places_of_the_topology_file(tmp_path: Path) -> None:
    graph = ['<graphml xmlns="http://graphml.graphdrawing.org/xmlns">',
             '<key id="lat" for="node" attr.name="Latitude" attr.type="double"/>',
             '<key id="lon" for="node" attr.name="Longitude" attr.type="double"/>', '<graph edgedefault="undirected">']
    places = {"server": (50, 0), "router": (50, 10), "client1": (60, 10), "client2": (40, 10)}
    graph += [f'<node id="{n}"><data key="lat">{lat}</data><data key="lon">{lon}</data></node>'
              for n, (lat, lon) in places.items()]
    graph += [f'<edge source="{u}" target="{v}"/>' for u, v in (
        ("server", "router"), ("router", "client1"), ("router", "client2"), ("client1", "client2"))]
    file = tmp_path / "g.graphml"
    file.write_text("\n".join([*graph, "</graph></graphml>"]))
    scenario = f"emul: 1\nname: geo\ntopology: {{file: {file}}}\n"
    found = topology.network_map(data.open_run(make_run(tmp_path, scenario=scenario)))
    v = found.vertices.set_index("name")
    assert v.loc["client1", "y"] - v.loc["client2", "y"] == pytest.approx(20)
    assert v.loc["router", "x"] - v.loc["server", "x"] == pytest.approx(10 * np.cos(np.radians(50)))
    assert "Vertices stand where the topology says. 1 links carried nothing." in found.text


def test_a_large_network_is_drawn_by_hubs_and_groups_and_loses_no_bytes(tmp_path: Path) -> None:
    n = 300
    journal: list[Any] = [*((R.START, 0, i, 0) for i in range(n + 1))]
    journal += [(R.SEND, 0, 0, k, k, "Model", 10, 26, 0, 0, k) for k in range(1, n + 1)]
    journal += [(R.DELIVER, 9, 0, k, 0) for k in range(1, n + 1)] + [(R.FINISH, 9, 0, "")]
    names = ["server", *(f"c{i}" for i in range(1, n + 1))]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["server", *["client"] * n],
              "vertices": list(range(n + 1)), "deciders": [0], "network": names}
    found = topology.network_map(data.open_run(make_run(tmp_path, journal, header, 9)))
    assert len(found.vertices) == topology.HUBS + 1
    assert found.vertices["size"].sum() == n + 1
    assert found.vertices["label"].iloc[-1] == f"{n + 1 - topology.HUBS} × client"
    assert found.edges["bytes"].sum() == 26 * n


# --- figures and colours --------------------------------------------------------------------------------------------

def every_figure(parts: list[page.Part]) -> list[drawing.Figure]:
    return [f for part in parts for f in [*part.figures, *every_figure(part.group)]]


def test_no_token_is_left_in_a_figure_and_all_its_data_is_there(run_path: Path) -> None:
    drawn = every_figure(build._run_parts(data.open_run(run_path)))
    assert {f.key for f in drawn} == {
        "accuracy-time", "accuracy-mb", "accuracy-round", "loss-time", "bytes-by-type", "bytes-by-link", "topology",
        "outages", "space-time", "sequence", "waiting", "delays", "waited-for", "work-wasted", "computing"}
    for figure in drawn:
        spec = files.vega_lite(figure)
        assert re.findall(r'"\$\w+"', json.dumps(spec)) == []
        named = set(re.findall(r'"data": \{"name": "(\w+)"\}', json.dumps(spec)))
        assert named == set(spec["datasets"])
        assert figure.words
        assert len(figure.table)


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    return float(np.dot([p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts],
                        [0.2126, 0.7152, 0.0722]))


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


GRAPHICS = [*(f"s{i}" for i in range(1, palette.SERIES + 1)), "delivered", "late", "lost", "ended", "rejected",
            "flight", "wait", "down"]


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_colours_can_be_told_from_their_ground(theme: dict[str, str]) -> None:
    """WCAG 2.1: 4.5 for text, 3 for graphics."""
    for ground in ("page", "card"):
        assert {n: contrast(theme[n], theme[ground]) for n in ("text", "muted", "accent")
                if contrast(theme[n], theme[ground]) < 4.5} == {}
        assert {n: contrast(theme[n], theme[ground]) for n in GRAPHICS
                if contrast(theme[n], theme[ground]) < 3} == {}


def test_figures_are_written_as_files(run_path: Path, tmp_path: Path) -> None:
    drawn = [f for f in every_figure(build._run_parts(data.open_run(run_path))) if f.key in ("delays", "space-time")]
    files.write_figures(tmp_path / "figures", drawn)
    names = {p.name for p in (tmp_path / "figures").iterdir()}
    endings = ("png", "svg", "pdf", "csv")
    assert names == {f"{key}.{ending}" for key in ("delays", "space-time") for ending in endings} | {
        f"space-time-{name}.csv" for name in ("computations", "waits", "messages")}
    assert (tmp_path / "figures" / "delays.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    svg = (tmp_path / "figures" / "space-time.svg").read_text()
    assert "client2" in svg
    assert palette.LIGHT["lost"] in svg
    table = pd.read_csv(tmp_path / "figures" / "space-time-messages.csv")
    assert {"x", "x2", "y", "y2", "fate", "type", "bytes"} <= set(table)


# --- the page -------------------------------------------------------------------------------------------------------

class Outline(HTMLParser):
    """Headings, ids, labels and addresses of a page; text of scripts is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.headings: list[int] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.open: list[str] = []
        self.unlabelled = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if found.get("id"):
            self.ids.append(found["id"] or "")
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "poster")]
        if tag == "select" and "label" not in self.open:
            self.unlabelled += 1
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass


@pytest.fixture(scope="module")
def html(run_path: Path) -> str:
    return write(run_path).read_text(encoding="utf-8")


def test_the_page_names_nothing_outside_itself(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.addresses
    assert all(address.startswith("#") for address in outline.addresses)
    assert {a[1:] for a in outline.addresses} <= set(outline.ids)
    own = html.replace(page.bundle(), "")
    assert re.findall(r"https?://", own) == []
    assert "@import" not in own
    assert "url(" not in own
    assert 'content="default-src \'none\';' in own
    libraries = set(re.findall(r"https?://[\w./-]+", page.bundle()))          # names of formats, fetched by nobody
    assert libraries <= {"http://www.w3.org/2000/xmlns/", "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink",
                         "https://vega.github.io/schema/vega/v6.json", "https://vega.github.io/editor/",
                         "https://github.com/vega/vega-lite/issues/2415"}


def test_headings_go_down_one_level_at_a_time_and_ids_are_unique(html: str) -> None:
    outline = Outline()
    outline.feed(html)
    assert outline.headings[0] == 1
    assert all(b <= a + 1 for a, b in zip(outline.headings, outline.headings[1:], strict=False))
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.unlabelled == 0


def test_a_page_says_scheme_seed_digests_versions_and_the_scenario(html: str, run_path: Path) -> None:
    summary = json.loads((run_path / "summary.json").read_text())
    for wanted in (summary["digest"], summary["digest_journal"], summary["versions"]["torch"], "holds everything",
                   "name: by hand", "invariants"):
        assert wanted in html


def test_text_of_a_scenario_cannot_become_part_of_the_page(tmp_path: Path) -> None:
    path = make_run(tmp_path, scenario="emul: 1\nname: '</script><script>alert(1)</script>'\n")
    html = write(path).read_text(encoding="utf-8")
    assert "<script>alert(1)" not in html
    assert "&lt;script&gt;alert(1)" in html


def test_names_of_nodes_cannot_end_the_data(tmp_path: Path) -> None:
    header = {"scheme": "x", "seed": 1, "names": ["</script><b>"], "roles": ["peer"], "vertices": [0], "deciders": [0],
              "network": ["</script><b>"]}
    html = write(make_run(tmp_path, [(R.START, 0, 0, 0), (R.FINISH, 9, 0, "")], header, 9)).read_text(encoding="utf-8")
    assert "</script><b>" not in html


def test_an_empty_run_has_a_report(tmp_path: Path) -> None:
    header = {"scheme": "x", "seed": 1, "names": ["a"], "roles": ["peer"], "vertices": [0], "deciders": [0],
              "network": ["a"]}
    path = make_run(tmp_path, [(R.START, 0, 0, 0), (R.FINISH, 0, 0, "")], header, 0, observations=[])
    assert "No accuracy and no loss were observed" in write(path).read_text(encoding="utf-8")


def test_packing_loses_nothing() -> None:
    frame = pd.DataFrame({"n": [1, 2], "x": [0.5, float("nan")], "s": ["a", None], "b": [True, False]})
    packed = json.loads(json.dumps(page.packed(frame)))

    def cell(column: Any, i: int) -> Any:
        if isinstance(column, list):
            return column[i]
        return None if column["at"][i] < 0 else column["of"][column["at"][i]]

    rows = [{name: cell(column, i) for name, column in packed["columns"].items()} for i in range(packed["n"])]
    assert rows == [{"n": 1, "x": 0.5, "s": "a", "b": 1}, {"n": 2, "x": None, "s": None, "b": 0}]


def test_theory_stands_beside_what_was_measured() -> None:
    table = build.theory_table({"p": {"theory": 0.5, "measured": 0.4},
                                "by s": {"theory": {"1": 3}, "measured": {"1": 4}}, "alone": 7,
                                "group": {"q": {"theory": 1}}})
    assert table["quantity"].tolist() == ["p", "by s, 1", "alone", "group, q"]
    assert table["theory"].tolist() == [0.5, 3, 7, 1]
    assert table["measured - theory"].tolist()[:2] == [pytest.approx(-0.1), 1]
    assert len(build.theory_table(None)) == 0


# --- several runs ---------------------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two schemes with two seeds each."""
    folder = tmp_path_factory.mktemp("several")
    for scheme in ("one", "two"):
        for seed in (1, 2):
            make_run(folder, scheme=scheme, seed=seed)
    return folder


def test_a_directory_of_runs_is_a_comparison_with_a_spread_over_seeds(several: Path) -> None:
    found = study.of_runs(study.runs_in(several))
    assert [m.series for m in found.members] == ["one", "one", "two", "two"]
    parts = build._study_parts(found)
    assert [p.key for p in parts] == ["overview", "learning", "tradeoffs", "cost", "runs", "all"]
    accuracy = parts[1].figures[0]
    assert set(accuracy.frames) == {"lines", "spread"}
    assert set(accuracy.frames["spread"]["series"]) == {"one", "two"}
    assert [p.title for p in parts[-2].group] == ["one, seed 1", "two, seed 1"]
    keys = [f.key for f in every_figure(parts)]
    assert len(keys) == len(set(keys))


def test_the_overview_has_results_before_parameters_and_no_column_of_nothing(several: Path) -> None:
    found = study.of_runs(study.runs_in(several))
    for member in found.members[:2]:                            # both of scheme one
        member.summary.update(parameters={"threshold": 3, "rule": {"krum": 1}, "left": 0, "lost": 7},
                              parameters_given=["threshold", "rule", "lost"])
    table = build.overview(found)
    assert table.columns.tolist() == [
        "scheme", "seed", "rounds", "failed rounds", "accuracy", "virtual time, s", "MB sent",
        "messages lost", "messages sent", "real time, s", "threshold", "rule", "parameters.lost", "digest"]
    assert table["messages lost"].tolist() == [m.summary["messages_lost"] for m in found.members]
    assert table["threshold"].fillna(-1).tolist() == [3, 3, -1, -1]
    assert table["rule"].tolist()[0] == "krum 1"
    found.members[0].summary.update(messages_rejected=4, oracle_waits={"server@a.py:1": 2})
    table = build.overview(found)
    assert table["messages rejected"].tolist() == [4, 0, 0, 0]
    assert table["waits that know fates"].tolist() == [2, 0, 0, 0]


def test_the_first_table_has_a_row_a_scheme_with_units_and_the_spread_over_seeds(several: Path) -> None:
    found = study.of_runs(study.runs_in(several))
    for member, accuracy, joules in zip(found.members, (0.8, 0.9, 0.75, 0.75), (None, None, 120.0, 130.0), strict=True):
        member.summary.update(accuracy=accuracy, virtual_seconds=4321.6, bytes_total=2_345_678,
                              messages_lost=5, messages_sent=40, rounds_failed=0, energy={"joules": joules})
    table = build.by_scheme(found).map(lambda cell: str(cell).replace("\N{NO-BREAK SPACE}", " "))
    assert table["scheme"].tolist() == ["one", "two"]
    assert table["last accuracy"].tolist() == ["0.850 (0.800 to 0.900)", "0.750"]
    assert table["virtual time, s"].tolist() == ["4,322"] * 2
    assert table["MB sent"].tolist() == ["2.35"] * 2
    assert table["messages lost"].tolist() == ["12.5 %"] * 2
    assert table["joules"].tolist() == ["", "125 (120 to 130)"]
    assert "failed rounds" not in table                              # nothing failed in any


def test_a_sweep_has_a_row_for_each_value(several: Path, tmp_path: Path) -> None:
    table = build.by_scheme(study.open_study(a_study(several, "sweep", tmp_path / "s")))
    assert table[["scheme", "links.0.loss", "seeds"]].to_records(index=False).tolist() == [
        (scheme, value, 1) for scheme in ("one", "two") for value in (0.1, 0.2)]


def test_the_same_scheme_and_seed_twice_go_by_their_directories(several: Path) -> None:
    same, other = (make_run(several / "again", scheme="one", seed=1) for _ in range(2))
    found = study.of_runs([several / "run-two-1-1", other, same])
    assert [m.series for m in found.members] == ["run-two-1-1", "run-one-1-2", "run-one-1-1"]
    found = study.of_runs([several / "run-one-1-1", same])
    assert [m.series for m in found.members] == [f"{several.name}/run-one-1-1", "again/run-one-1-1"]


def test_several_runs_make_one_page_beside_them(several: Path, tmp_path: Path) -> None:
    out = write([several / "run-one-1-1", several / "run-two-1-1"], tmp_path / "new" / "pair.html")
    assert out == tmp_path / "new" / "pair.html"
    assert "Runs in detail" in out.read_text(encoding="utf-8")


def a_study(several: Path, kind: str, folder: Path) -> Path:
    runs = [{"directory": f"cells/run-{scheme}-{seed}-1", "scheme": scheme, "seed": seed,
             "values": {"links.0.loss": 0.1 * seed} if kind == "sweep" else {}}
            for scheme in ("one", "two") for seed in (1, 2)]
    folder.mkdir()
    (folder / "cells").symlink_to(several)
    (folder / "study.json").write_text(json.dumps({
        "emul_study": 1, "kind": kind, "scenario": "by hand", "grid": {"links.0.loss": [0.1, 0.2]}, "seeds": [1, 2],
        "runs": runs, "failed": [{"scheme": "three", "seed": 1, "error": "WorkerDied: gone"}]}))
    return folder


def test_a_sweep_has_a_figure_for_each_parameter_and_metric_and_names_what_failed(several: Path,
                                                                                  tmp_path: Path) -> None:
    parts = {p.key: p for p in build._study_parts(study.open_study(a_study(several, "sweep", tmp_path / "s")))}
    assert [f.key for f in parts["grid"].figures] == [
        f"sweep-links_0_loss-{metric}" for metric in ("accuracy", "virtual_s", "mb", "rounds_failed")]
    assert {f.spec()["layer"][0]["encoding"]["x"]["axis"]["format"] for f in parts["grid"].figures} == {".12~g"}
    assert parts["grid"].figures[0].table[["series", "value"]].to_records(index=False).tolist() == [
        ("one", 0.1), ("two", 0.1), ("one", 0.2), ("two", 0.2)]
    assert parts["overview"].tables[1][1]["error"].tolist() == ["WorkerDied: gone"]


@pytest.mark.slow
def test_a_comparison_shows_differences_and_keeps_their_notes(several: Path, tmp_path: Path) -> None:
    folder = a_study(several, "compare", tmp_path / "c")
    seen = pd.concat([data.curve(data.open_run(several / f"run-{s}-{n}-1")).assign(scheme=s, seed=n)
                        for s in ("one", "two") for n in (1, 2)])
    seen.to_parquet(folder / "curves.parquet")
    pd.DataFrame({"metric": ["time to target", "bytes to target"], "scheme": ["two"] * 2, "baseline": ["one"] * 2,
                  "n_seeds": [2, 0], "mean": [1.5, np.nan], "low": [np.nan] * 2, "high": [np.nan] * 2,
                  "unit": ["s", "MB"], "note": ["2 seeds: no interval", "no seed reached it"]}
                 ).to_parquet(folder / "differences.parquet")
    found = study.open_study(folder)
    parts = {p.key: p for p in build._study_parts(found)}
    assert [f.title for f in parts["differences"].figures] == ["Time to target"]
    assert "two − one: 1.5 s" in parts["differences"].figures[0].words
    (folder / "study.json").write_text(json.dumps({
        **json.loads((folder / "study.json").read_text()), "answer": ["one needs the least time to accuracy 0.5."]}))
    html = write(folder).read_text(encoding="utf-8")
    assert "no seed reached it" in html
    main = html[html.index("<main"):]
    answer, first, last = (main.index(text) for text in ("one needs the least time", "<table", "All differences"))
    assert answer < first                                           # the page opens with the answer
    assert main[:last].endswith('<details class="folded"><summary>')
    assert main.index('id="all-title"') > main.index('id="runs-title"')
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)


# --- wrong input ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("spoil", "said"), [
    (lambda p: (p / "summary.json").unlink(), r"neither a run, nor a study, nor a directory of runs, such as "),
    (lambda p: (p / "journal").unlink(), r"journal missing: no directory of a run that ended$"),
    (lambda p: (p / "journal").write_bytes((p / "journal").read_bytes()[:-40]),
     r"damaged or changed since the run: journal; "),
    (lambda p: (p / "rounds.parquet").unlink(), r"rounds\.parquet missing: no directory of a run that ended$"),
])
def test_what_is_no_run_is_refused_with_its_name(tmp_path: Path, spoil: Any, said: str) -> None:
    path = make_run(tmp_path)
    spoil(path)
    with pytest.raises(RecordError, match=said):
        write(path)
    assert not (path / "report.html").exists()


def test_a_study_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text('{"emul_study": 1, "kind": "sweep", "runs": []}')
    with pytest.raises(RecordError, match=r"no run of this study has ended$"):
        write(tmp_path)
    (tmp_path / "study.json").write_text('{"emul_study": 2}')
    with pytest.raises(RecordError, match=r"study\.json: expected emul_study 1$"):
        write(tmp_path)


def test_the_command_writes_the_report_and_names_it(run_path: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from emul.cli.options import app

    done = CliRunner().invoke(app, ["report", str(run_path), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.output
    assert done.stdout == f"written: {tmp_path / 'r.html'}\n"
    assert (tmp_path / "r.html").stat().st_size > 500_000


def test_commands_start_without_the_plotting_library() -> None:
    code = ("import sys, emul.cli, emul.engine, emul.report\n"
            "sys.exit(' '.join(m for m in ('altair', 'vl_convert', 'pandas', 'networkx') if m in sys.modules) or 0)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"imported: {done.stderr}"
