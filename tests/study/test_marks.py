"""Schemes whose waits know fates are marked wherever they stand beside others: tables, verdicts, reports."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from small_scenario import SMALL

from emul import engine, report, scenario
from emul.base.errors import ScenarioError
from emul.record import progress
from emul.record.marks import NOTE
from emul.study import text
from emul.study.compare import compare
from emul.study.comparison import Comparison, document
from emul.study.engines import in_turn
from emul.study.runs import Where

BOTH = "schemes=[{name: fedavg, deadline: 1 s}, {name: fedavg, label: seer, fraction: 0.9}]"


@pytest.fixture(scope="module")
def compared(tmp_path_factory) -> Comparison:
    folder = tmp_path_factory.mktemp("marks")
    (folder / "small.yaml").write_text(SMALL)
    return compare(folder / "small.yaml", Where(in_turn, 0), seeds=[0, 1, 2], sets=[BOTH, "stop.rounds=4"], target=0.1,
                   out=folder / "out")


def test_the_table_of_a_run_marks_them_and_says_what_the_mark_means(small: Path, tmp_path: Path) -> None:
    runs = engine.run(scenario.load(small, [BOTH, "stop.rounds=4"]), workers=0, out=tmp_path)
    lines = progress.table([r.summary for r in runs]).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["scheme", "fedavg", "seer*"]
    assert lines[3] == NOTE
    assert NOTE not in progress.table([runs[0].summary])


def test_a_comparison_marks_them_in_table_verdicts_and_tables_of_differences(compared: Comparison) -> None:
    assert compared.knowing == {"seer"}
    said = text.comparison(compared)
    assert said.splitlines()[-1] == NOTE
    marked = [line for line in said.splitlines()[:-1] if "seer" in line]
    assert len(marked) == 5                         # two answers, the table and two verdicts
    assert all("seer*" in line for line in marked)
    notes = pd.read_csv(compared.study.path / "differences.csv")["note"]
    assert notes.str.contains("the waits of seer know fates").all()
    results = pd.read_csv(compared.study.path / "results.csv")
    assert (results["oracle_waits"] > 0).tolist() == (results["scheme"] == "seer").tolist()
    assert json.loads(json.dumps(document(compared)))["knowing_fates"] == ["seer"]


@pytest.mark.slow
def test_a_report_marks_them_in_every_figure_and_says_so(compared: Comparison, tmp_path: Path) -> None:
    page = report.write(compared.study.path, tmp_path / "report.html", tmp_path / "figures").read_text()
    assert page.count(NOTE) >= 4                    # overview, learning, differences, costs
    assert "seer*" in page
    for name in ("accuracy-time", "bytes-by-run"):
        table = pd.read_csv(tmp_path / "figures" / f"{name}.csv")
        assert set(table[table.columns[0] if "series" not in table else "series"]) == {"fedavg", "seer*"}
    assert "seer* − fedavg" in page
    run = next(c for c in compared.study.runs if c.scheme == "seer")
    alone = report.write(compared.study.path / "cells" / run.key, tmp_path / "one.html").read_text()
    assert NOTE in alone


@pytest.mark.slow
def test_parameters_stand_in_the_reports_overview(compared: Comparison, tmp_path: Path) -> None:
    page = report.write(compared.study.path, tmp_path / "report.html").read_text()
    assert '<th scope="col" class="n">deadline_s</th><th scope="col" class="n">fraction</th>' in page


def test_a_threshold_of_half_the_clients_or_less_is_warned_of(small: Path) -> None:
    def warned(t: int, more: str = "", clients: int = 4) -> list[str]:
        return scenario.load(small, [f"schemes=[{{name: secagg, threshold: {t}{more}}}]",
                                     f"topology.clients={clients}"]).warnings
    assert warned(2) == ["secagg: threshold = 2: at most half of the 4 clients of a round; a server that tells two "
                         "parts of them different survivors unmasks single updates; against a server alone sound "
                         "from 3 on"]
    assert warned(3) == []
    assert warned(5, ", adversary: active", 9) == [
        "secagg: threshold = 5: with a single one of the 9 clients of a round a deviating server unmasks single "
        "updates; sound against c of them from 5 + c/2 on"]
    assert warned(6, ", adversary: active", 9) == []
    with pytest.raises(ScenarioError, match="threshold"):
        warned(5)
