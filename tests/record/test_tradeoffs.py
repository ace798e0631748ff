"""Pareto fronts of a report: who is on them, whose costs are compared, what is said of those left out."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.record.report import tradeoffs
from emul.record.report.study import Member, Study


def member(folder: Path, series: str, seed: int, accuracy: float | None, seconds: float, mb: float,
           joules: float | None, stop: str = "{rounds: 3, accuracy: 0.9}") -> Member:
    path = folder / f"{series}-{seed}"
    path.mkdir()
    (path / "scenario.resolved.yaml").write_text(f"name: x\nstop: {stop}\n")
    energy = None if joules is None else {"joules": joules + 7, "idle_j": 7}
    summary: dict[str, Any] = {"accuracy": accuracy, "virtual_seconds": seconds, "bytes_total": mb * 1e6,
                               "energy": energy}
    return Member(path, series, seed, {}, summary)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """quick and thrifty reach 0.9 on both seeds, idle_talk costs more than quick everywhere, weak fails on a seed."""
    rows = [("quick", 0.91, 10, 8, 50), ("thrifty", 0.92, 40, 2, 20), ("idle_talk", 0.90, 20, 9, 60),
            ("weak", 0.8, 1, 1, 1)]
    members = [member(tmp_path, name, seed, accuracy + seed / 100, seconds + seed, mb, joules)
               for seed in (0, 1) for name, accuracy, seconds, mb, joules in rows]
    return Study(tmp_path, "sweep", "x", members)


def test_the_examples_in_the_docstrings_are_true() -> None:
    assert doctest.testmod(tradeoffs).failed == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_a_row_is_on_the_front_if_no_other_one_beats_it(rows: list[tuple[int, int, int]]) -> None:
    def beats(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

    expected = [not any(beats(other, row) for other in rows) for row in rows]
    assert tradeoffs.on_front(np.array(rows)).tolist() == expected


def test_runs_are_summarised_by_scheme_with_joules_without_idling(study: Study) -> None:
    found = tradeoffs.summarised(tradeoffs.measured(study)).set_index("series")
    assert found.loc["quick", ["seeds", "reached", "virtual_s", "virtual_s_low", "virtual_s_high"]].tolist() == [
        2, 2, 10.5, 10, 11]
    assert found["joules"].to_dict() == {"quick": 50, "thrifty": 20, "idle_talk": 60, "weak": 1}
    assert found["reached"].to_dict() == {"quick": 2, "thrifty": 2, "idle_talk": 2, "weak": 0}


def test_accuracy_is_set_against_every_cost_and_costs_against_each_other_where_runs_end_at_an_accuracy(
        study: Study) -> None:
    part = tradeoffs.trade_offs(study)
    assert part is not None
    assert [figure.key for figure in part.figures] == [
        "front-virtual-s-accuracy", "front-mb-accuracy", "front-joules-accuracy", "front-virtual-s-mb",
        "front-virtual-s-joules", "front-mb-joules"]
    fronts = {figure.key: figure.table.loc[figure.table["front"], "series"].tolist() for figure in part.figures}
    assert fronts["front-virtual-s-accuracy"] == ["weak", "quick", "thrifty"]
    assert fronts["front-virtual-s-mb"] == ["quick", "thrifty"]         # weak has not got there
    assert fronts["front-mb-joules"] == ["thrifty"]
    assert "weak did not on every seed: costs alone cannot be compared." in part.text
    table = part.tables[0][1].set_index("scheme")
    assert table["on the front"].to_dict() == {"weak": True, "quick": True, "idle_talk": False, "thrifty": True}


def test_without_devices_there_are_no_joules_and_without_a_target_no_costs_alone(tmp_path: Path) -> None:
    members = [member(tmp_path, name, 0, 0.5, 3, 2, None, stop="{rounds: 3}") for name in ("a", "b")]
    part = tradeoffs.trade_offs(Study(tmp_path, "runs", "x", members))
    assert part is not None
    assert [figure.key for figure in part.figures] == ["front-virtual-s-accuracy", "front-mb-accuracy"]
    assert "oules" not in part.text


def test_one_scheme_or_no_accuracy_is_no_trade_off(tmp_path: Path) -> None:
    assert tradeoffs.trade_offs(Study(tmp_path, "runs", "x", [member(tmp_path, "a", 0, 0.5, 3, 2, None)])) is None
    none = [member(tmp_path, name, 0, None, 3, 2, None) for name in ("b", "c")]
    assert tradeoffs.trade_offs(Study(tmp_path, "runs", "x", none)) is None


def test_every_figure_stands_alone_as_vega_lite(study: Study) -> None:
    part = tradeoffs.trade_offs(study)
    assert part is not None
    for figure in part.figures:
        named = {name for name in str(figure.spec()).split("'") if name in figure.frames}
        assert named == set(figure.frames)
