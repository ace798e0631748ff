"""What an attack did to a scheme: accuracies, impact rates as printed and as they should be, whose updates counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import document, ebs_cfl, secure_costs
from benchmarks.common import read_rows
from benchmarks.impact import Impact, evened, impacts, until

REPRODUCTIONS = Path(__file__).resolve().parents[1] / "docs" / "reproductions"
FLIP = [{"nodes": {"fraction": 0.4}, "data": "label_flip"}]


def row(scheme: str, attacks: list[Any], accuracy: float, best: float, seed: int = 0, alpha: float = 0.5,
        **means: float) -> dict[str, str]:
    return {"scenario": "s", "scheme": scheme, "seed": str(seed), "accuracy": str(accuracy),
            "best_accuracy": str(best), "attack_success": "", "means": json.dumps(means),
            "rounds": "40", "rounds_failed": "0", "curve": f"20:{best} 40:{accuracy}",
            "values": json.dumps({"task.partition.dirichlet": alpha, "attacks": json.dumps(attacks)})}


def test_the_rates_are_those_of_the_paper():
    found = Impact(na=0.8, fa=0.5, ma=0.7, asr=1, honest=1)
    assert found.air == pytest.approx((1.6 - 0.5 - 0.7) / 1.6)
    assert found.drop == pytest.approx(0.2)
    # Table 3, FedAvg, alpha 0.1: the drop gives nearly one NA for both attacks, the printed rate does not
    flipped, sine = (38.82, 39.53, 15.29), (12.78, 40.22, 26.52)
    by_drop = [(fa + ma) / 2 + air for fa, ma, air in (flipped, sine)]
    by_rate = [(fa + ma) / 2 / (1 - air / 100) for fa, ma, air in (flipped, sine)]
    assert abs(by_drop[0] - by_drop[1]) < 2 < 5 < abs(by_rate[0] - by_rate[1])


def test_a_run_is_held_against_that_without_an_attack_of_the_same_scheme_seed_and_values():
    rows = [row("a", [], 0.9, 0.91), row("a", FLIP, 0.6, 0.7, judged=20, kept=9, attackers_judged=8, attackers_kept=2),
            row("b", [], 0.5, 0.5), row("a", FLIP, 0.1, 0.1, alpha=0.1), row("a", FLIP, 0.1, 0.1, seed=1)]
    found = impacts(rows)
    assert [(r["scheme"], i.na, i.fa) for r, i in found] == [("a", 0.9, 0.9), ("a", 0.9, 0.6), ("b", 0.5, 0.5)]
    attacked = found[1][1]
    assert (attacked.asr, attacked.honest) == (0.25, pytest.approx(7 / 12))
    assert found[0][1].asr == 1.0                       # nobody to judge


def test_runs_of_different_length_are_cut_at_one_round_and_counted_once():
    long = row("a", FLIP, 0.3, 0.8) | {"curve": "10:0.5 20:0.8 30:0.7 40:0.3"}
    short = row("a", FLIP, 0.7, 0.8) | {"curve": "10:0.5 20:0.8 30:0.6", "rounds": "30"}
    other = row("a", [], 0.9, 0.9) | {"curve": "5:0.9"}
    found = until([long, short, other], 30)
    assert [(r["accuracy"], r["best_accuracy"], r["curve"]) for r in found] == [
        ("0.6", "0.8", "10:0.5 20:0.8 30:0.6"), ("0.9", "0.9", "5:0.9")]
    assert until([long], 5) == []


def test_all_cells_of_a_table_end_with_the_shortest():
    long = row("a", FLIP, 0.3, 0.8) | {"curve": "10:0.5 20:0.8 30:0.7 40:0.3", "rounds": "40"}
    again = row("a", FLIP, 0.5, 0.5) | {"curve": "10:0.5", "rounds": "10"}
    other = row("b", FLIP, 0.7, 0.8) | {"curve": "10:0.4 20:0.6", "rounds": "15", "rounds_failed": "15"}
    found, rounds = evened([again, long, other])
    assert rounds == 30
    assert [(r["scheme"], r["accuracy"]) for r in found] == [("b", "0.6"), ("a", "0.7")]
    assert evened([]) == ([], 0)


def test_the_tables_have_a_row_a_scheme_and_a_column_an_attack():
    rows = [row(s, a, 0.8 - 0.2 * len(a) - 0.1 * seed, 0.85, seed)
            for s in "ab" for a in ([], FLIP) for seed in (0, 1)]
    text = ebs_cfl.tables(rows)["s"]
    assert text.startswith("s, dirichlet 0.5, 40 rounds\n")
    assert "| scheme | no attack | label_flip |" in text
    assert "| `b` | 75.0 ± 5.0 / 85.0 (2) | 55.0 ± 5.0 / 85.0 / 100.0 / 6.5 / 5.0 (2) |" in text


def test_the_page_says_what_the_files_of_runs_and_costs_say():
    page = document.read(REPRODUCTIONS / "ebs_cfl.md")
    rows = ebs_cfl.read(REPRODUCTIONS / "data" / "ebs_cfl_runs.csv")
    made = ebs_cfl.written(page, rows, ebs_cfl.read(ebs_cfl.TABLE_OF_MASKS))
    assert made == page, "run python -m benchmarks.ebs_cfl with --into"
    costs = read_rows(REPRODUCTIONS / "data" / "ebs_cfl_costs.csv", secure_costs.TEXTS)
    assert secure_costs.written(page, costs) == page, "run python -m benchmarks.secure_costs with --read and --into"


def test_falls_of_rates_are_told_in_rounds_and_in_steps_of_full_length() -> None:
    def row(scheme: str, curve: str) -> dict[str, str]:
        return {"scenario": "ebs-cfl-attacks-mnist", "scheme": scheme, "seed": "0", "curve": curve,
                "values": '{"attacks": [{"update": "trim_attack"}]}', "rounds": str(10 * len(curve.split())),
                "rounds_failed": "0"}

    rows = [row("rfca", "10:0.8 20:0.9 30:0.6"), row("rfca_quarter", "10:0.8 20:0.5"),
            row("rfca_quarter", "10:0.8 20:0.9 30:0.8 40:0.9"), row("rfca_decay", "10:0.1 20:0.29 30:0.15")]
    assert ebs_cfl.falls(rows).splitlines()[2:] == [
        "| i.i.d., trim_attack, seed 0 | rounds 21 to 30: 20 to 30 full steps | not by round 40: 10 "
        "| has not learnt: 29 % at best |"]
