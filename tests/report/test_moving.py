"""Networks that move in the record and in the report: contacts, places over time, rates on one time axis."""

from __future__ import annotations

from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_runs import filmed, make_run, rows_of

from emul.network.models.contacts import Contacts
from emul.network.models.profiles import NEVER
from emul.record.journal import RecordError
from emul.record.load import load_run
from emul.record.rundir import SEAL
from emul.record.side_tables import CONTACT_COLUMNS, write_contacts, write_positions
from emul.report import data
from emul.report.timeline import _rates, contact_plan, shared_links
from emul.report.topology import contacts_of, places_of


def contacts(*spans: tuple[int, int]) -> Contacts:
    return Contacts(array("q", [a for a, _ in spans]), array("q", [b for _, b in spans]),
                    array("q", [10**6 + i for i in range(len(spans))]), array("q", [5] * len(spans)))


# of the run of written_run.py, which ends at 210 ns
PLAN = {("server", "router"): contacts((0, 20), (140, 170), (205, 300), (400, NEVER)),
        ("router", "server"): contacts((0, 20), (130, 160)), ("router", "client2"): contacts((150, NEVER))}


def unsealed_run(folder: Path) -> Path:
    """The run of written_run.py, to which a test can add tables."""
    run = make_run(folder)
    (run / SEAL).unlink()
    return run


@pytest.fixture
def moving(tmp_path: Path) -> Path:
    run = unsealed_run(tmp_path)
    write_contacts(run, PLAN, 210)
    return run


def test_the_contacts_that_began_in_the_run_are_read_back(moving: Path) -> None:
    table = load_run(moving).contacts
    assert tuple(table) == CONTACT_COLUMNS
    assert [tuple(None if v is pd.NA else v for v in row) for row in table.itertuples(index=False, name=None)] == [
        ("router", "client2", 150, None, 10**6, 5),
        ("router", "server", 0, 20, 10**6, 5), ("router", "server", 130, 160, 10**6 + 1, 5),
        ("server", "router", 0, 20, 10**6, 5), ("server", "router", 140, 170, 10**6 + 1, 5),
        ("server", "router", 205, 300, 10**6 + 2, 5)]
    found = contacts_of(data.open_run(moving))
    assert found is not None
    assert rows_of(found) == [(0, 1, 0, 20), (0, 1, 140, 170), (0, 1, 205, 210), (1, 0, 0, 20), (1, 0, 130, 160),
                              (1, 3, 150, 210)]


def test_without_contacts_or_positions_there_is_no_table(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    write_contacts(run, {}, 210)
    write_contacts(run, {("server", "router"): contacts((300, 400))}, 210)
    write_positions(run, [])
    assert not list(run.glob("contacts*")) + list(run.glob("positions*"))
    assert contacts_of(data.open_run(run)) is None
    assert places_of(data.open_run(run)) is None
    with pytest.raises(RecordError, match=r"contacts\.parquet"):
        _ = load_run(run).contacts


def test_a_link_with_contacts_is_in_the_film_only_within_them(moving: Path) -> None:
    found = filmed(moving)
    assert rows_of(found.frames["links"]) == [(1, 2)]
    # both directions as one, but for contacts that differ
    assert rows_of(found.frames["met"]) == [(0, 1, 0, 20), (0, 1, 130, 160), (0, 1, 140, 170), (0, 1, 205, 210),
                                            (1, 3, 150, 210)]
    assert "only within them" in found.text
    assert len(found.frames["moves"]) == 0
    few = filmed(moving, 2)                         # of round 1 alone
    assert len(few.frames["met"]) == 2
    assert "contacts are drawn, evenly chosen" in few.text


def test_contacts_and_transfers_are_bars_of_each_link(moving: Path) -> None:
    run = data.open_run(moving)
    found = contacts_of(run)
    assert found is not None
    figure = contact_plan(run, found)
    assert rows_of(figure.frames["contacts"][["link", "from", "to"]]) == [
        ("router→client2", 150, 210), ("router→server", 0, 20), ("router→server", 130, 160),
        ("server→router", 0, 20), ("server→router", 140, 170), ("server→router", 205, 210)]
    moved = figure.frames["transfers"]
    assert set(moved["link"]) == {"router→client2", "router→server", "server→router"}
    assert rows_of(moved[moved["link"] == "router→client2"]) == [
        ("router→client2", "message", 12, 23, 110), ("router→client2", "of no use", 158, 169, 110)]
    assert len(figure.table) == 6 + len(moved)
    assert "6 contacts" in figure.words
    assert "layer" in figure.spec()


def test_vertices_move_in_a_plane(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    write_positions(run, [(0, "client1", -100, 0), (100e-9, "client1", 100, 50), (400e-9, "client1", 100, 100),
                          (900e-9, "client1", 0, 100), (0, "server", 0, 50)])
    assert tuple(load_run(run).positions) == ("t_s", "vertex", "x", "y")
    found = filmed(run)
    # the last row is behind the end of the run; the place of a vertex that stands is in `vertices`
    assert rows_of(found.frames["moves"]) == [(2, 0, 0, 1), (2, 100, 1, 0.5), (2, 400, 1, 0)]
    places = found.frames["vertices"]
    assert rows_of(places[["name", "x", "y"]]) == [("client1", 0, 1), ("client2", 0.75, 1), ("router", 0.25, 1),
                                                   ("server", 0.5, 0.5)]
    assert found.aspect == 0.5
    assert not found.globe
    assert "Vertices move" in found.text


def test_vertices_move_over_a_globe(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    write_positions(run, [(0, "client1", 0, 179), (50e-9, "client1", 45, -179), (0, "server", 90, -180)], globe=True)
    found = filmed(run)
    assert found.globe
    assert rows_of(found.frames["moves"]) == [(2, 0, 0.9972, 0.5), (2, 50, 0.0028, 0.25)]
    assert rows_of(found.frames["vertices"][["name", "x", "y"]])[-1] == ("server", 0, 0)


def test_ways_of_many_rows_are_thinned_evenly(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    write_positions(run, [(k * 1e-9, "client1", k, 0) for k in range(200)])
    moves = filmed(run, 8).frames["moves"]
    assert len(moves) == 5 * 8 // 4                 # shared among four vertices
    assert (moves["t"].iloc[0], moves["t"].iloc[-1]) == (0, 146)        # the film has round 1 alone


@pytest.mark.parametrize(("rows", "said"), [
    ([(0, "client1", 0, 0), (0, "client1", 1, 1)], "positions of client1: 0 s comes after 0 s"),
    ([(2, "a", 0, 0), (2, "b", 0, 0), (1, "a", 1, 1)], "positions of a: 1 s comes after 2 s")])
def test_positions_that_do_not_ascend_are_refused(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        write_positions(tmp_path, rows)


def test_positions_of_strange_vertices_and_without_their_columns_are_errors_that_name_the_file(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    write_positions(run, [(0, "clent1", 0, 0)])
    with pytest.raises(RecordError, match=r"positions\.parquet: the run has no vertex clent1"):
        places_of(data.open_run(run))
    pd.DataFrame({"t_s": [0.0], "vertex": ["client1"], "x": [1.0]}).to_parquet(run / "positions.parquet")
    with pytest.raises(RecordError, match=r"expected the columns t_s, vertex, and x, y or lat, lon"):
        places_of(data.open_run(run))


def test_rates_by_bins_are_those_of_a_slow_sum() -> None:
    rng = np.random.default_rng(3)
    begin = rng.integers(0, 900, 200).astype(float)
    until, size = begin + rng.integers(1, 300, 200), rng.integers(1, 10**6, 200).astype(float)
    edges = np.linspace(0, 1000, 13)
    spans = list(zip(begin, until, size, strict=True))
    expected = [sum(s * max(0.0, min(b, high) - max(a, low)) / (b - a) for a, b, s in spans)
                * 8e9 / (high - low) for low, high in pairwise(edges.tolist())]
    assert _rates(begin, until, size, edges) == pytest.approx(expected)


def test_background_and_scheme_share_an_axis(tmp_path: Path) -> None:
    run = unsealed_run(tmp_path)
    table = pd.read_parquet(run / "network.parquet")
    rows = [("server", "router", "background_bps", None, 0, 105, 8e9),
            ("server", "router", "background_bps", None, 105, None, 0.0),
            ("client1", "router", "arrival_bytes", 0, 50, None, 70.0),
            ("client1", "router", "arrival_bytes", 1, 900, None, 1e3),
            ("client9", "router", "background_bps", None, 0, None, 5e9)]
    added = pd.DataFrame([(*ends, what, None, k, begin, end, value, None, None)
                          for *ends, what, k, begin, end, value in rows], columns=table.columns)
    whole = dict.fromkeys(("round", "k", "start_ns", "end_ns"), "Int64")
    pd.concat([table.astype(whole), added.astype(whole)]).to_parquet(run / "network.parquet")
    figure = shared_links(data.open_run(run))
    assert figure is not None
    found = figure.table
    lasts = found["to_ns"] - found["from_ns"]
    mb = (found.assign(bytes=found["mbps"] * 1e6 / 8 * lasts / 1e9).groupby(["link", "kind"])["bytes"].sum().round(3)
          .to_dict())
    assert mb == {("client1→router", "background"): 70, ("client1→router", "scheme"): 200,
                  ("server→router", "background"): 105, ("server→router", "scheme"): 500}
    assert shared_links(data.open_run(make_run(tmp_path, seed=9))) is None
