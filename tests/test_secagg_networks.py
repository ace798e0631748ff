"""Figures of secure aggregation on three networks: the committed table is complete, right, and what is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import document, secagg_networks
from benchmarks.common import read_rows
from benchmarks.secagg_networks import GRID, KEYS, NETWORKS, SCHEMES, TEXTS, along, cells, draw, played, written

TABLE = Path(__file__).parents[1] / "docs" / "reproductions" / "data" / "secagg_networks.csv"


def test_the_committed_table_has_every_cell_once() -> None:
    rows = read_rows(TABLE, TEXTS)
    page = document.read(TABLE.parents[2] / "schemes" / "coded_sums.md")
    assert written(page, rows) == page, "make it anew: see the head of benchmarks/secagg_networks.py"
    found = [tuple(row[key] for key in KEYS) for row in rows]
    assert len(found) == len(set(found))
    assert set(found) == {tuple(cell[key] for key in KEYS) for cell in cells()}
    for what, values in GRID.items():
        assert len(along(rows, what)) == len(NETWORKS) * len(SCHEMES) * len(values)


@pytest.mark.parametrize("scheme", ["fedavg", "lightsecagg"])
def test_a_cell_that_is_run_again_has_the_values_of_its_row(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(secagg_networks.FOLDER))
    cell = {"network": "mobile", "scheme": scheme, "n": 10.0, "d": 10_000.0, "loss": 0.0}
    row, = [row for row in read_rows(TABLE, TEXTS) if all(row[key] == value for key, value in cell.items())]
    again = played(cell, TABLE)
    assert {name: again[name] for name in ("time_s", "mb", "summed")} == pytest.approx(
        {name: row[name] for name in ("time_s", "mb", "summed")}, rel=1e-5)
    assert {name: again[name] for name in ("key", "file", "sets", "plugins")} == {
        name: row[name] for name in ("key", "file", "sets", "plugins")}


def test_every_figure_is_drawn_with_every_scheme_in_it(tmp_path: Path) -> None:
    draw(read_rows(TABLE, TEXTS), tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["secagg-d.svg", "secagg-loss.svg", "secagg-n.svg"]
    for file in tmp_path.iterdir():
        drawn = file.read_text()
        assert drawn.startswith("<svg")
        assert all(f">{name}<" in drawn for name in SCHEMES)
