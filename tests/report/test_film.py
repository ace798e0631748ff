"""The film of a run: what is on its way, who computes and who is away, by the rows of a journal written by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from report_runs import filmed, make_run, rows_of

from emul.base import rows as R
from emul.report import write


def test_a_film_has_every_hop_computation_absence_and_link_that_is_down(tmp_path: Path) -> None:
    found = filmed(make_run(tmp_path))
    frames = found.frames
    assert found.unit == "ns"
    assert frames["vertices"]["name"].tolist() == ["server", "router", "client1", "client2"]
    assert rows_of(frames["links"]) == [(0, 1), (1, 2), (1, 3)]
    assert rows_of(frames["hops"]) == sorted([
        (0, 1, "message", 0, 11), (1, 2, "message", 11, 22), (0, 1, "message", 0, 12), (1, 3, "message", 12, 23),
        (2, 1, "message", 122, 134), (1, 0, "message", 134, 146),
        (0, 1, "message", 146, 157), (1, 2, "lost", 157, 168),              # lost on the second link alone
        (0, 1, "of no use", 146, 158), (1, 3, "of no use", 158, 169),       # to a node that had ended
        (3, 1, "of no use", 170, 181), (1, 0, "of no use", 181, 192),       # never read
        (0, 1, "message", 200, 210)])                                       # in flight when the run ended
    assert rows_of(frames["work"]) == [(2, 22, 122), (3, 23, 50)]
    assert rows_of(frames["away"]) == [(3, 50, 170)]
    assert rows_of(frames["down"]) == [(1, 2, 175, 210)]
    assert rows_of(frames["rounds"]) == [(1, 0, 146), (2, 146, 200), (3, 200, 210)]
    assert rows_of(frames["windows"]) == [(0, 210)]
    assert (frames["vertices"][["x", "y"]].min().min(), frames["vertices"][["x", "y"]].max().max()) == (0, 1)
    assert "left out" not in found.text


def test_where_rows_are_too_many_rounds_are_left_out_with_the_time_between_them(tmp_path: Path) -> None:
    found = filmed(make_run(tmp_path), 12)
    assert rows_of(found.frames["windows"]) == [(0, 146), (200, 210)]
    assert found.frames["rounds"]["number"].tolist() == [1, 3]
    assert len(found.frames["hops"]) == 7
    assert "2 of 3 rounds, evenly chosen; the time between them is left out" in found.text
    assert len(filmed(make_run(tmp_path), 3).frames["hops"]) == 3
    assert "an even sample" in filmed(make_run(tmp_path), 3).text


def star(clients: int) -> tuple[list[Any], dict[str, Any]]:
    """A round in which a server sends to every client, and each answers after it has computed."""
    names = ["server", *(f"client{k}" for k in range(1, clients + 1))]
    header = {"scheme": "fedavg", "seed": 7, "names": names, "roles": ["server", *["client"] * clients],
              "vertices": list(range(clients + 1)), "deciders": [0], "network": names}
    every = range(1, clients + 1)
    return [*((R.START, 0, node, 0) for node in range(clients + 1)), (R.ENTER, 0, 0, 1),
            *((R.SEND, 0, 0, k - 1, k, "Model", 84, 100, 1, 0, k) for k in every),
            *((R.DELIVER, 10, 0, k - 1, R.INBOX) for k in every), *((R.ENTER, 10, k, 1) for k in every),
            *((R.RESUME, 10, k, 0, 1) for k in every), *((R.COMPUTE, 10, k, "train", 20, 1.0, 1) for k in every),
            *((R.COMPUTED, 30, k) for k in every),
            *((R.SEND, 30, k, 0, 0, "Update", 84, 100, 1, k, 0) for k in every),
            *((R.DELIVER, 45, k, 0, R.INBOX) for k in every), (R.RESUME, 45, 0, 1, clients), (R.LEAVE, 45, 0, 1, ""),
            (R.ENTER, 45, 0, 0), (R.FINISH, 45, 0, "")], header


def test_of_a_large_network_a_sample_is_shown_with_the_messages_between_its_nodes(tmp_path: Path) -> None:
    rows, header = star(300)
    found = filmed(make_run(tmp_path, rows, header, 45, observations=[]))
    names = found.frames["vertices"]["name"].tolist()
    assert len(names) == 100
    assert {"server", "client1", "client300"} <= set(names)
    server = names.index("server")
    hops = found.frames["hops"]
    assert len(hops) == 2 * 99
    assert ((hops["u"] == server) ^ (hops["v"] == server)).all()
    assert set(zip(hops["from"], hops["to"], strict=True)) == {(0, 10), (30, 45)}
    assert len(found.frames["work"]) == 99
    assert "100 of 301 vertices" in found.text


@pytest.mark.slow
def test_the_page_has_one_film_with_its_player_and_a_run_without_a_round_has_none(tmp_path: Path) -> None:
    page = write(make_run(tmp_path)).read_text(encoding="utf-8")
    packed = json.loads(re.search(r'<script type="application/json" id="film-film">(.*)</script>', page)[1])    # type: ignore[index]
    assert packed["frames"]["hops"]["n"] == 13
    assert page.count('<canvas role="img" aria-label="Film of 4 vertices over 3 rounds') == 1
    assert "// The film of a run" in page
    header = {"scheme": "x", "seed": 1, "names": ["a"], "roles": ["peer"], "vertices": [0], "deciders": [0],
              "network": ["a"]}
    empty = make_run(tmp_path, [(R.START, 0, 0, 0), (R.FINISH, 9, 0, "")], header, 9, observations=[])
    still = write(empty).read_text(encoding="utf-8")
    assert "The film of a run" not in still
    assert 'class="film"' not in still
    both = write([make_run(tmp_path, seed=8), make_run(tmp_path, seed=9)], tmp_path / "both.html").read_text()
    names = re.findall(r'class="film" data-key="([^"]+)"', both)
    assert len(names) == len(set(names)) >= 1
    assert all(f'id="film-{name}"' in both for name in names)


def test_a_network_of_one_place_stands_in_the_middle() -> None:
    from emul.report.film import _scaled

    found = _scaled(pd.DataFrame({"name": ["a"], "role": ["peer"], "x": [3.0], "y": [4.0]}))
    assert found[["x", "y"]].to_numpy().tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("word", ["fetch(", "XMLHttpRequest", "http"])
def test_the_player_asks_for_nothing(word: str) -> None:
    from emul.report.page import report_asset

    assert word not in report_asset("film.js")
