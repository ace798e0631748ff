"""The command that holds measured costs of secure aggregation against formulas."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import secure_costs


def test_the_fit_finds_the_exponents_of_a_power_law():
    rows = [{"scheme": "x", "n": n, "m": m, "l": d, "cost": 3.0 * n**2 * m * d**0.5}
            for n in (10, 20, 50) for m in (1, 2) for d in (100, 1000)]
    found = secure_costs.fitted(rows, lambda row: row["cost"])
    assert found == pytest.approx({"n": 2.0, "m": 1.0, "l": 0.5})
    assert secure_costs.fitted(rows[:1], lambda row: row["cost"]) == {}


def test_fedavg_sends_a_model_down_and_an_update_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    chosen = argparse.Namespace(schemes=["fedavg", "nobody"], clients=[4, 8], clusters=[1], sizes=[1000, 3000],
                                out=tmp_path / "costs.csv")
    rows = secure_costs.run(chosen)
    assert [(row["n"], row["l"]) for row in rows] == [(4, 1000), (8, 1000), (4, 3000), (8, 3000)]
    for row in rows:
        assert 8 * row["l"] < row["client_bytes"] < 8 * row["l"] + 200
        assert row["server_bytes"] == pytest.approx(row["n"] * row["client_bytes"])
        assert row["dealer_bytes"] == row["client_s"] == 0
    again = secure_costs.run(chosen)                # from the file
    assert {tuple(row[k] for k in secure_costs.KEYS) for row in again} == {
        tuple(row[k] for k in secure_costs.KEYS) for row in rows}
    text = secure_costs.tables(again)
    assert "| `fedavg` | server_bytes | n^1.00 l^1.0" in text or "| `fedavg` | server_bytes | n^1.00 l^0.99" in text


def test_an_exponent_of_nothing_has_no_sign_whatever_its_last_bit_is(monkeypatch: pytest.MonkeyPatch):
    row = {"scheme": "x", "n": 10, "m": 1, "l": 100, **dict.fromkeys(secure_costs.COSTS, 1.0)}
    for rest in (0.0, -0.0, 1e-17, -1e-17, -0.004):
        monkeypatch.setattr(secure_costs, "fitted", lambda rows, cost, rest=rest: {"n": rest, "l": 1.0})
        assert "| `x` | server_bytes | n^0.00 l^1.00 |" in secure_costs.tables([row]), rest


def test_the_formulas_are_those_of_the_table():
    n, m, d = 50.0, 2.0, 1000.0
    values = {cost: formula(n, m, d) for cost, (_, formula) in secure_costs.FORMULAS["ebs_cfl"].items()}
    assert values["server_bytes"] == n * m * d + n
    assert values["client_bytes"] == m * d + m * m
    assert values["client_s"] == m * m * d
    assert all(set(rows) == set(secure_costs.COSTS[:4]) for rows in secure_costs.FORMULAS.values())
