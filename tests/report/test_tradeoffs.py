"""Pareto fronts of a report: who is on them, whose costs are compared, what is said of those left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emul.report import tradeoffs
from emul.report.study import StudyMember, StudyRuns


def member(folder: Path, series: str, seed: int, accuracy: float | None, seconds: float, mb: float,
           joules: float | None, stop: str = "{rounds: 3, accuracy: 0.9}") -> StudyMember:
    path = folder / f"{series}-{seed}"
    path.mkdir()
    (path / "scenario.resolved.yaml").write_text(f"name: x\nstop: {stop}\n")
    energy = None if joules is None else {"joules": joules + 7, "idle_j": 7}
    summary: dict[str, Any] = {"accuracy": accuracy, "virtual_seconds": seconds, "bytes_total": mb * 1e6,
                               "energy": energy}
    return StudyMember(path, series, seed, {}, summary)


@pytest.fixture
def study(tmp_path: Path) -> StudyRuns:
    """quick and thrifty reach 0.9 on both seeds, idle_talk costs more than quick everywhere, weak fails on a seed."""
    rows = [("quick", 0.91, 10, 8, 50), ("thrifty", 0.92, 40, 2, 20), ("idle_talk", 0.90, 20, 9, 60),
            ("weak", 0.8, 1, 1, 1)]
    members = [member(tmp_path, name, seed, accuracy + seed / 100, seconds + seed, mb, joules)
               for seed in (0, 1) for name, accuracy, seconds, mb, joules in rows]
    return StudyRuns(tmp_path, "sweep", "x", members)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_a_row_is_on_the_front_if_no_other_one_beats_it(rows: list[tuple[int, int, int]]) -> None:
    def beats(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return all(x <= y for x, y in zip(a, b, strict=True)) and a != b

    expected = [not any(beats(other, row) for other in rows) for row in rows]
    assert tradeoffs.on_front(np.array(rows)).tolist() == expected


def test_runs_are_summarised_by_scheme_with_joules_without_idling(study: StudyRuns) -> None:
    found = tradeoffs.summarised(tradeoffs.measured(study)).set_index("series")
    assert found.loc["quick", ["seeds", "reached", "virtual_s", "virtual_s_low", "virtual_s_high"]].tolist() == [
        2, 2, 10.5, 10, 11]
    assert found["joules"].to_dict() == {"quick": 50, "thrifty": 20, "idle_talk": 60, "weak": 1}
    assert found["reached"].to_dict() == {"quick": 2, "thrifty": 2, "idle_talk": 2, "weak": 0}


def test_accuracy_is_set_against_every_cost_and_costs_against_each_other_where_runs_end_at_an_accuracy(
        study: StudyRuns) -> None:
    part = tradeoffs.trade_offs(study)
    assert part is not None
    assert [figure.key for figure in part.figures] == [
        "front-virtual-s-accuracy", "front-mb-accuracy", "front-joules-accuracy", "front-virtual-s-mb",
        "front-virtual-s-joules", "front-mb-joules"]
    fronts = {figure.key: figure.table.loc[figure.table["front"], "series"].tolist() for figure in part.figures}
    assert fronts["front-virtual-s-accuracy"] == ["weak", "quick"]      # thrifty's 0.92 for 0.90 is no merit
    assert fronts["front-virtual-s-mb"] == ["quick", "thrifty"]         # weak has not got there
    assert fronts["front-mb-joules"] == ["thrifty"]
    assert "weak did not reach it on every seed, so costs alone cannot be compared." in part.text
    table = part.tables[0][1].set_index("scheme")
    assert table["on the front"].to_dict() == {"weak": True, "quick": True, "idle_talk": False, "thrifty": True}


def test_without_devices_there_are_no_joules_and_without_a_target_no_costs_alone(tmp_path: Path) -> None:
    members = [member(tmp_path, name, 0, 0.5, 3, 2, None, stop="{rounds: 3}") for name in ("a", "b")]
    part = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", members))
    assert part is not None
    assert [figure.key for figure in part.figures] == ["front-virtual-s-accuracy", "front-mb-accuracy"]
    assert "oules" not in part.text


def test_devices_that_draw_nothing_make_no_figures_of_joules(tmp_path: Path) -> None:
    """A table of devices for links alone: every scheme stood at 0."""
    members = [member(tmp_path, name, 0, 0.5 + i / 10, 3 + i, 2 + i, 0, stop="{rounds: 3}")
               for i, name in enumerate(("a", "b"))]
    part = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", members))
    assert part is not None
    assert [figure.key for figure in part.figures] == ["front-virtual-s-accuracy", "front-mb-accuracy"]
    assert "oules" not in part.text
    assert "joules" not in part.tables[0][1]


def test_where_all_runs_stop_at_an_accuracy_and_reach_it_no_front_spans_what_they_overshoot(study: StudyRuns) -> None:
    members = [m for m in study.members if m.series != "weak"]
    part = tradeoffs.trade_offs(StudyRuns(study.path, "sweep", "x", members))
    assert part is not None
    assert [figure.key for figure in part.figures] == ["front-virtual-s-mb", "front-virtual-s-joules",
                                                       "front-mb-joules"]
    table = part.tables[0][1].set_index("scheme")
    assert table["accuracy"].to_dict() == {"quick": 0.915, "idle_talk": 0.905, "thrifty": 0.925}
    assert table["on the front"].to_dict() == {"quick": True, "idle_talk": False, "thrifty": True}


def test_titles_have_megabytes(study: StudyRuns) -> None:
    part = tradeoffs.trade_offs(study)
    assert part is not None
    assert [figure.title for figure in part.figures] == [
        "Accuracy against virtual seconds", "Accuracy against MB", "Accuracy against joules",
        "MB against virtual seconds", "Joules against virtual seconds", "Joules against MB"]


def test_schemes_at_one_place_are_rings_around_each_other_with_one_label(tmp_path: Path) -> None:
    rows = [("a", 0.9, 10.0, 2.0), ("b", 0.9, 10.0, 2.0), ("c", 0.9, 10.05, 2.0), ("d", 0.5, 30.0, 4.0)]
    members = [member(tmp_path, name, 0, accuracy, seconds, mb, None, stop="{rounds: 3}")
               for name, accuracy, seconds, mb in rows]
    part = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", members))
    assert part is not None
    by_time, by_mb = part.figures
    drawn = by_time.frames["schemes"]
    assert drawn["series"].tolist() == ["a", "b", "c", "d"]             # the largest first, the others upon it
    assert drawn["size"].is_monotonic_decreasing
    assert drawn["size"].nunique() == 3
    assert by_time.frames["front"].set_index("series")["label"].to_dict() == {"a": "a, b", "b": ""}
    assert by_mb.frames["front"].set_index("series")["label"].to_dict() == {"a": "a, b, c", "b": "", "c": ""}
    assert "Rings around a point are schemes at the same place." in by_time.text
    apart = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", [members[0], members[3]]))
    assert apart is not None
    assert "Rings" not in apart.figures[0].text


def test_names_of_points_in_a_heap_have_room_of_their_own_or_stand_in_the_text(tmp_path: Path) -> None:
    rows = [(f"a_scheme_with_a_name_{k}", 0.90 + k / 4000, 10.0 + k / 8, 2.0 + k / 40) for k in range(25)]
    members = [member(tmp_path, name, 0, accuracy, seconds, mb, None, stop="{rounds: 3}")
               for name, accuracy, seconds, mb in [*rows, ("far", 0.99, 60.0, 9.0)]]
    part = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", members))
    assert part is not None
    figure = part.figures[0]
    front, names = figure.frames["front"], figure.frames["names"]
    assert len(front) == 26
    said = figure.text.partition("on the front are also ")[2].rstrip(".").split(", ")
    assert set(said) < set(front["series"])
    assert names["led"].any()
    for row in front.itertuples():          # beside its point in figures of all widths, or said
        beside = names[names["label"] == row.label]
        assert (row.series in said) == (row.label != "" and len(beside) < 3) or row.label == ""


def test_a_label_of_many_names_has_the_first_and_the_text_has_all(tmp_path: Path) -> None:
    rows = [(f"scheme_{k}", 0.9, 10.0, 2.0) for k in range(5)] + [("far", 0.95, 60.0, 9.0)]
    members = [member(tmp_path, name, 0, accuracy, seconds, mb, None, stop="{rounds: 3}")
               for name, accuracy, seconds, mb in rows]
    part = tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", members))
    assert part is not None
    figure = part.figures[0]
    assert set(figure.frames["names"]["label"]) == {"scheme_0 and 4 more", "far"}
    assert "on the front are also scheme_0, scheme_1, scheme_2, scheme_3, scheme_4." in figure.text


def test_one_scheme_or_no_accuracy_is_no_trade_off(tmp_path: Path) -> None:
    assert tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", [member(tmp_path, "a", 0, 0.5, 3, 2, None)])) is None
    none = [member(tmp_path, name, 0, None, 3, 2, None) for name in ("b", "c")]
    assert tradeoffs.trade_offs(StudyRuns(tmp_path, "runs", "x", none)) is None


def test_every_figure_stands_alone_as_vega_lite(study: StudyRuns) -> None:
    part = tradeoffs.trade_offs(study)
    assert part is not None
    for figure in part.figures:
        named = {name for name in str(figure.spec()).split("'") if name in figure.frames}
        assert named == set(figure.frames)
