"""The command that holds what a round of secure aggregation costs against formulas."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import document, secagg_table
from benchmarks.common import read_rows
from benchmarks.secagg_table import FORMULAS, KINDS, SCHEMES, TEXTS, expected, run, table, written

TABLE = Path(__file__).parents[1] / "docs" / "reproductions" / "data" / "secagg_costs.csv"
PAGE = Path(__file__).parents[1] / "docs" / "schemes" / "secure_aggregation.md"


def test_bytes_of_a_run_are_those_of_the_formulas_but_for_headers(tmp_path: Path) -> None:
    rows = run(["fedavg", "secagg", "lightsecagg"], [5], [1000], tmp_path / "costs.csv")
    assert [row["trips"] for row in rows] == [2, 8, 8]
    for row in rows:
        assert row["client_bytes_formula"] < row["client_bytes"] < 1.05 * row["client_bytes_formula"]
        assert row["all_bytes_formula"] < row["all_bytes"] < 1.05 * row["all_bytes_formula"]
    assert [row["client_s"] > 0 for row in rows] == [False, True, True]
    again = run(["fedavg"], [5], [1000], tmp_path / "costs.csv")        # from the file
    assert again == rows
    assert "| `secagg` | 5 | " in table(again, *KINDS["client_kb"])


def test_the_committed_table_has_every_scheme_and_its_formulas() -> None:
    rows = read_rows(TABLE, TEXTS)
    page = document.read(PAGE)
    assert written(page, rows) == page, "make it anew: see the head of benchmarks/secagg_table.py"
    assert {row["scheme"] for row in rows} == set(SCHEMES)
    assert {(row["n"], row["l"]) for row in rows} >= {(n, d) for n in (10, 30, 100, 300) for d in (1e3, 1e4, 1e5)}
    for row in rows:
        found = expected(row["scheme"], int(row["n"]), int(row["l"]))
        assert (row["client_bytes_formula"], row["all_bytes_formula"]) == pytest.approx(found[:2], rel=1e-5)
        if row["trips"] and row["scheme"] != "swiftagg_plus":          # whose formula is of groups without a rest
            assert row["client_bytes"] == pytest.approx(row["client_bytes_formula"], rel=0.05)
            assert row["all_bytes"] == pytest.approx(row["all_bytes_formula"], rel=0.05)


def test_what_did_not_run_has_its_formulas_alone() -> None:
    row = {"scheme": "pefl", "n": 300, "l": 1000} | dict.fromkeys(secagg_table.MEASURED, 0.0) | dict.fromkeys(FORMULAS,
                                                                                                              1e6)
    assert "| `pefl` | 300 | - / 1,000 |" in table(
        [row | {"trips": 0.0}, row | {"n": 10, "trips": 8.0}], *KINDS["client_kb"])


def test_what_would_need_too_much_room_is_not_run(tmp_path: Path) -> None:
    row, = run(["secagg"], [5], [1000], tmp_path / "costs.csv", room=1000)
    assert (row["trips"], row["all_bytes"]) == (0, 0)
    assert row["all_bytes_formula"] == pytest.approx(expected("secagg", 5, 1000)[1], rel=1e-5)
