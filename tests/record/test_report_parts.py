"""Parts of the report by themselves: curves as steps, phases, sequences, grids, matrices, sizes of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_runs import make_run
from typer.testing import CliRunner

from emul.base import rows as R
from emul.record.report import build, curves, data, figures, files, grid, phases, sequence, study, topology
from emul.record.report.study import Member, Study, Target


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> data.Run:
    """The run of conftest.py."""
    return data.open_run(make_run(tmp_path_factory.mktemp("parts")))


# --- learning curves ------------------------------------------------------------------------------------------------

@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.floats(0, 1)), min_size=3, max_size=40),
       st.floats(0, 40))
def test_no_seed_is_ever_outside_the_band_not_even_between_two_points(points: list[tuple[int, int, float]],
                                                                      at: float) -> None:
    frame = pd.DataFrame(points, columns=["seed", "x", "y"]).drop_duplicates(["seed", "x"]).sort_values(["seed", "x"])
    found = curves.spread_of(frame.assign(series="s"), "x", "y")
    if len(found) and found["x"].iloc[0] <= at <= found["x"].iloc[-1]:
        band = found[found["x"] <= at].iloc[-1]
        for _, seed in frame.groupby("seed"):
            value = seed[seed["x"] <= at]["y"].iloc[-1]
            assert band["low"] <= value <= band["high"]


def curve(series: str, seed: int, last: float) -> pd.DataFrame:
    return pd.DataFrame({"series": series, "seed": seed, "round": [1, 2], "virtual_s": [1.0, 2.0 + seed],
                         "mb": [0.1, 0.2], "accuracy": [0.5, last]})


def test_every_line_and_band_is_drawn_as_steps() -> None:
    seeds = pd.concat([curve("a", seed, 0.9 - seed / 10) for seed in range(3)])
    for frame in (seeds, curve("a", 0, 0.9)):
        for figure in curves.learning(frame):
            marks = [layer["mark"] for layer in figure.spec()["layer"]]
            drawn = [mark for mark in marks if mark["type"] in ("line", "area")]
            assert drawn
            assert {mark["interpolate"] for mark in drawn} == {"step-after"}


def test_the_target_is_a_line_and_what_it_took_a_diamond_a_scheme() -> None:
    frame = pd.concat([curve("a", 0, 0.9), curve("b", 0, 0.6)])
    reached = pd.DataFrame({"series": ["a", "b"], "seeds": [1, 0], "of": [1, 1], "virtual_s": [2.0, np.nan],
                            "mb": [0.2, np.nan]})
    by_time, by_mb, by_round = curves.learning(frame, target=Target(0.8, reached))
    assert by_time.frames["target"]["target"].tolist() == [0.8]
    assert by_time.frames["reached"][["series", "x", "target"]].to_records(index=False).tolist() == [("a", 2.0, 0.8)]
    assert by_mb.frames["reached"]["x"].tolist() == [0.2]
    assert "reached" not in by_round.frames                     # nobody says in which round
    assert "the target, 0.8; diamonds" in by_time.text
    assert by_round.text.endswith("the target, 0.8.")


def test_a_study_says_its_target_and_who_reached_it(tmp_path: Path) -> None:
    make_run(tmp_path, scheme="one", seed=1)
    rows = [(m, "one", seed, value) for m, values in (("time_to_target", (3.0, 5.0, None)), (
        "bytes_to_target", (1.0, 2.0, None))) for seed, value in enumerate(values)]
    pd.DataFrame(rows, columns=["metric", "scheme", "seed", "value"]).to_parquet(tmp_path / "metrics.parquet")
    (tmp_path / "study.json").write_text(json.dumps({
        "emul_study": 1, "kind": "compare", "scenario": "x", "target": 0.75,
        "runs": [{"directory": "run-one-1-1", "scheme": "one", "seed": 1}]}))
    target = study.open_study(tmp_path).target
    assert target is not None
    assert target.accuracy == 0.75
    assert target.reached.to_dict("records") == [{"series": "one", "seeds": 2, "of": 3, "virtual_s": 4.0, "mb": 1.5}]


# --- phases ---------------------------------------------------------------------------------------------------------

def test_bytes_by_phase_add_up_and_come_in_the_order_of_the_protocol(run: data.Run) -> None:
    found = phases.phases(run)
    traffic = data.traffic(run)
    for kind, name in phases.NAMES.items():
        assert found[name].sum() * 1e6 == pytest.approx(traffic.loc[traffic["kind"] == kind, "bytes"].sum())
    assert found["total"].sum() * 1e6 == pytest.approx(run.messages.wire_bytes.sum())
    assert list(dict.fromkeys(found["phase"])) == ["Model", "Update", "outside rounds: Hello"]
    assert set(found.loc[found["phase"] == "Model", "link class"]) == {"server→relay", "relay→client"}
    assert found.loc[found["again"] > 0, ["link class", "phase"]].to_records(index=False).tolist() == [
        ("server→relay", "Model")]


def test_phases_stand_side_by_side_scheme_by_scheme_for_all_links_or_one_class(run: data.Run) -> None:
    both = phases.side_by_side({"one": phases.phases(run), "two": phases.phases(run)})
    assert both.columns.tolist() == ["scheme", "link class", "phase", "direction", "first", "again", "wasted", "lost",
                                     "total"]
    figure = phases.bytes_by_phase(both)
    assert figure.frames["bytes"]["row"].iloc[0] == "one: Model, server → client"
    bound, = figure.spec()["params"]
    assert bound["bind"]["options"] == ["all", *dict.fromkeys(both["link class"])]


# --- sequences ------------------------------------------------------------------------------------------------------

def test_a_sequence_has_a_row_a_step_with_what_became_of_it(run: data.Run) -> None:
    one, two = sequence.sequences(run, [1, 2])
    first = one.steps.iloc[0]
    assert (first["what"], first["label"], first["source"], first["target"], first["count"], first["nodes"]) == (
        "message", "Model", "server", "client", 2, 1)
    assert one.lifelines == {"server": "server", "client": "2 × client"}
    assert one.steps["from_s"].is_monotonic_increasing
    assert one.steps.loc[one.steps["label"] == "train", ["count", "nodes"]].to_numpy().tolist() == [[2, 2]]
    assert two.steps["lost"].sum() == 1
    assert "1 lost" in two.frames()["arrows"]["wrong"].iloc[0]
    assert one.text.startswith("Round 1: Model, server to client; ")


def test_a_round_in_which_nothing_was_sent_has_an_empty_sequence(run: data.Run) -> None:
    nothing, = sequence.sequences(run, [99])
    assert nothing.lifelines == {}
    assert nothing.text == "Round 99: no message was sent."
    files.vega_lite(sequence.message_sequence(nothing))


def test_messages_inside_a_role_are_loops_and_ten_thousand_nodes_make_one_arrow(tmp_path: Path) -> None:
    n = 40
    journal: list[Any] = [*((R.START, 0, i, 0) for i in range(n)), *((R.ENTER, 0, i, 1) for i in range(n))]
    journal += [(R.SEND, 0, i, 0, (i + 1) % n, "Model", 10, 26, 1, i, (i + 1) % n) for i in range(n)]
    journal += [(R.DELIVER, 9, i, 0, 0) for i in range(n)] + [(R.FINISH, 9, i, "") for i in range(n)]
    names = [f"p{i}" for i in range(n)]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["peer"] * n, "vertices": list(range(n)),
              "deciders": [0], "network": names}
    found, = sequence.sequences(data.open_run(make_run(tmp_path, journal, header, 9)), [1])
    frames = found.frames()
    assert len(frames["arrows"]) == 0
    assert frames["loops"]["said"].tolist() == ["Model × 40, 10 B each"]
    assert found.lifelines == {"peer": "40 × peer"}


def test_the_page_picks_a_round_for_both_figures(run: data.Run) -> None:
    part = next(p for p in build._run_parts(run) if p.key == "rounds")
    assert part.choice is not None
    assert [f.key for f in part.figures] == ["space-time", "sequence"]
    assert [len(shown) for shown in part.choice.shown] == [len(part.choice.labels)] * 2
    assert [one.text.partition(":")[0] for one in part.choice.shown[1]] == part.choice.labels


# --- sweeps ---------------------------------------------------------------------------------------------------------

def a_sweep(tmp_path: Path, seeds: int = 3) -> Study:
    """Two values of p, on some seeds each, for one scheme; another that does not depend on it."""
    scenario = "emul: 1\nname: s\nlinks: [{match: '*'}, {match: 'client*->server'}]\n"
    members = []
    for scheme, values in (("one", ({"links[1].outage.p": 0.1}, {"links[1].outage.p": 0.3})), ("two", ({},))):
        for value in values:
            for seed in range(seeds):
                path = make_run(tmp_path, scheme=scheme, seed=seed, scenario=scenario, observations=[
                    (0, 1, {"accuracy": 0.4 + seed / 10 + sum(value.values())}), (0, 2, {"accuracy": 0.8})])
                members.append(Member(path, scheme, seed, value, study.summary_of(path)))
    return Study(tmp_path, "sweep", "s", members)


def test_an_axis_of_a_sweep_says_what_a_path_means_and_keeps_its_key(tmp_path: Path) -> None:
    figure = grid.sweep_figures(a_sweep(tmp_path))[0]
    assert figure.key == "sweep-links_1_outage_p-accuracy"
    assert figure.title == "Final accuracy against outage.p of client*->server"
    assert figure.spec()["layer"][0]["encoding"]["x"]["title"] == "outage.p of client*->server"
    assert figure.spec()["layer"][0]["encoding"]["x"]["axis"]["values"] == [0.1, 0.3]


@pytest.mark.parametrize(("seeds", "known"), [(3, True), (2, False)])
def test_a_point_of_a_sweep_has_an_interval_from_three_seeds_on(tmp_path: Path, seeds: int, known: bool) -> None:
    found = a_sweep(tmp_path, seeds)
    for i, member in enumerate(found.members):
        member.summary["accuracy"] = [0.7, 0.8, 0.9][i % seeds]
    figure = grid.sweep_figures(found)[0]
    low = figure.table["t_low"].tolist()
    if known:                                                   # 0.8 - 4.303 * 0.1 / sqrt(3)
        assert low == pytest.approx([0.8 - 4.3027 * 0.1 / 3**0.5] * 2, abs=1e-4)
        assert "Student's t" in figure.text
    else:
        assert np.isnan(low).all()
        assert "it takes 3 seeds" in figure.text


def test_a_sweep_has_curves_by_value_of_each_scheme(tmp_path: Path) -> None:
    drawn, text = grid.curves_by_value(a_sweep(tmp_path))
    assert [f.key for f in drawn] == ["one-accuracy-time", "one-accuracy-round", "two-accuracy-time",
                                      "two-accuracy-round"]
    spread = drawn[1].frames["spread"]
    assert list(dict.fromkeys(spread["series"])) == ["outage.p = 0.1", "outage.p = 0.3"]
    first = spread[spread["round"] == 1].set_index("series")["mean"]
    assert first.tolist() == pytest.approx([0.6, 0.8])
    assert text == ""


def test_of_many_combinations_some_are_drawn_and_it_is_said(tmp_path: Path) -> None:
    path = make_run(tmp_path)
    members = [Member(path, "one", 0, {"a": i, "b": -i}, study.summary_of(path)) for i in range(20)]
    found = Study(tmp_path, "sweep", "s", members)
    drawn, text = grid.curves_by_value(found)
    assert drawn[0].frames["lines"]["series"].nunique() == grid.LINES
    assert text == "12 of one's combinations of values are left out, evenly chosen."
    assert "and the values of b" in grid.sweep_figures(found)[0].text       # not a line for each of them


# --- the map --------------------------------------------------------------------------------------------------------

def test_a_full_mesh_has_a_matrix_and_a_star_has_not(tmp_path: Path, run: data.Run) -> None:
    n = 11
    pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
    seq = {pair: k for i in range(n) for k, pair in enumerate(p for p in pairs if p[0] == i)}
    journal: list[Any] = [*((R.START, 0, i, 0) for i in range(n)), *(
        (R.SEND, 0, i, seq[i, j], j, "Model", 10, 26, 1, i, j) for i, j in pairs)]
    journal += [(R.DELIVER, 9, i, seq[i, j], 0) for i, j in pairs] + [(R.FINISH, 9, i, "") for i in range(n)]
    names = [f"p{i}" for i in range(n)]
    header = {"scheme": "x", "seed": 1, "names": names, "roles": ["peer"] * n, "vertices": list(range(n)),
              "deciders": [0], "network": names}
    mesh = topology.network_map(data.open_run(make_run(tmp_path, journal, header, 9)))
    assert topology.crowded(mesh)
    assert len(figures.matrix(mesh).frames["links"]) == n * (n - 1)
    assert not topology.crowded(topology.network_map(run))


# --- files ----------------------------------------------------------------------------------------------------------

def test_figures_for_a_column_are_as_wide_as_one_and_have_its_text(run: data.Run, tmp_path: Path) -> None:
    figure = curves.learning(data.curve(run).assign(series="x", seed=1), single=True)[0]
    files.write_figures(tmp_path, [figure], "column", "Times")
    svg = (tmp_path / "accuracy-time.svg").read_text()
    assert svg.startswith("<svg")
    assert 'width="336"' in svg
    assert 'font-size="10.67px"' in svg                         # 8 pt
    assert 'font-family="Times"' in svg
    assert (tmp_path / "accuracy-time.pdf").read_bytes()[:4] == b"%PDF"
    with pytest.raises(ValueError, match=r"^size = poster: expected one of page, column$"):
        files.write_figures(tmp_path, [], "poster")


def test_the_command_takes_the_sizes_that_there_are(tmp_path: Path) -> None:
    from emul.cli.options import app
    from emul.cli.report import Size

    assert {one.value for one in Size} == set(files.SIZES)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--size", "poster"])
    assert done.exit_code == 2
