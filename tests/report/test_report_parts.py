"""Parts of the report by themselves: curves as steps, phases, sequences, grids, matrices, sizes of files."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import vl_convert
from hypothesis import given
from hypothesis import strategies as st
from report_runs import make_run
from typer.testing import CliRunner

from emul.base import rows as R
from emul.report import (
    build,
    curves,
    data,
    figures,
    files,
    grid,
    palette,
    phases,
    sequence,
    spacetime,
    study,
    topology,
    tradeoffs,
)
from emul.report.study import StudyMember, StudyRuns, Target


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> data.RunData:
    """The run of written_run.py."""
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


@pytest.mark.parametrize("seeds", [2, 3])
def test_the_band_is_the_interval_of_the_mean_from_three_seeds_on(seeds: int) -> None:
    figure = next(one for one in curves.learning(pd.concat([curve("a", seed, 0.9 - seed / 10)
                                                            for seed in range(seeds)])) if one.key == "accuracy-round")
    last = figure.frames["spread"].iloc[-1]
    if seeds == 2:
        assert (last["from"], last["to"]) == pytest.approx((0.8, 0.9))
        assert "no interval" in figure.text
    else:                                                       # of 0.9, 0.8 and 0.7
        half = 4.3027 * 0.1 / 3**0.5
        assert (last["from"], last["to"]) == pytest.approx((0.8 - half, 0.8 + half), abs=1e-4)
        assert "95% interval of the mean" in figure.text


def test_a_band_of_accuracies_is_drawn_within_0_and_1_with_ticks_at_whole_rounds() -> None:
    seeds = pd.concat([curve("a", seed, 1 - seed / 5) for seed in range(3)])
    figure = next(one for one in curves.learning(seeds) if one.key == "accuracy-round")
    assert figure.frames["spread"]["to"].max() > 1                      # the data are not cut
    layers = figure.spec()["layer"]
    scales = [layer["encoding"]["y"]["scale"] for layer in layers if "scale" in layer["encoding"].get("y", {})]
    assert scales
    assert all(scale["domainMax"] == 1 and scale["clamp"] for scale in scales)
    assert {layer["encoding"]["x"]["axis"]["tickCount"] for layer in layers
            if layer["encoding"].get("x", {}).get("axis")} == {2}


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
    reached = pd.DataFrame({"series": ["a", "b"], "target": 0.8, "seeds": [1, 0], "of": [1, 1],
                            "virtual_s": [2.0, np.nan], "mb": [0.2, np.nan]})
    by_time, by_mb, by_round = curves.learning(frame, target=Target(reached))
    assert by_time.frames["target"]["target"].tolist() == [0.8]
    assert by_time.frames["reached"][["series", "x", "target"]].to_records(index=False).tolist() == [("a", 2.0, 0.8)]
    assert by_mb.frames["reached"]["x"].tolist() == [0.2]
    assert "reached" not in by_round.frames                     # nobody says in which round
    assert "the target, 0.8; a diamond" in by_time.text
    assert by_round.text.endswith("the target, 0.8.")


def test_a_study_says_its_target_and_who_reached_it(tmp_path: Path) -> None:
    make_run(tmp_path, scheme="one", seed=1)
    rows = [(m, "one", seed, value) for m, values in (("time_to_target", (3.0, 5.0, None)), (
        "bytes_to_target", (1.0, 2.0, None))) for seed, value in enumerate(values)]
    pd.DataFrame(rows, columns=["metric", "scheme", "seed", "value"]).to_parquet(tmp_path / "metrics.parquet")
    (tmp_path / "study.json").write_text(json.dumps({
        "emul_study": 1, "kind": "compare", "scenario": "x", "targets": {"one": 0.75},
        "runs": [{"directory": "run-one-1-1", "scheme": "one", "seed": 1}]}))
    target = study.open_study(tmp_path).target
    assert target is not None
    assert target.accuracies == [0.75]
    assert target.reached.to_dict("records") == [{
        "series": "one", "target": 0.75, "seeds": 2, "of": 3, "virtual_s": 4.0, "virtual_s_low": 3.0,
        "virtual_s_high": 5.0, "mb": 1.5, "mb_low": 1.0, "mb_high": 2.0}]
    row = build.by_scheme(study.open_study(tmp_path)).iloc[0]
    assert [row[name].replace("\N{NO-BREAK SPACE}", " ") for name in (
        "reached 0.75", "time to 0.75, s", "MB to 0.75")] == ["2 of 3", "4 (3 to 5)", "1.5 (1 to 2)"]


def test_runs_with_two_kinds_of_accuracy_say_in_their_names_which_they_have_and_share_no_front(tmp_path: Path) -> None:
    for scheme in ("one", "two", "three"):
        make_run(tmp_path, scheme=scheme, seed=1)
    found = study.of_runs(study.runs_in(tmp_path))
    for member in found.members:
        member.summary["accuracy_of"] = "personal" if member.series == "two" else "global"
    marked = study.marked(found)
    assert [m.series for m in marked.members] == ["one (global)", "three (global)", "two (personal)"]
    assert build.by_scheme(marked)["accuracy of"].tolist() == ["global", "global", "personal"]
    part = tradeoffs.trade_offs(marked)
    assert part is not None
    assert {f.key.partition("-")[0] for f in part.figures} == {"global"}
    assert {name for f in part.figures for name in f.table["series"]} == {"one (global)", "three (global)"}
    found.members[-1].summary["accuracy_of"] = found.members[0].summary["accuracy_of"] = "global"
    assert [m.series for m in study.marked(found).members] == ["one", "three", "two"]


def test_a_constant_accuracy_has_ticks_around_it_and_says_what_it_is_of() -> None:
    flat, = (f for f in curves.learning(curve("a", 0, 0.25).assign(accuracy=0.25), single=True, of="personal")
             if f.key == "accuracy-time")
    y = flat.spec()["layer"][0]["encoding"]["y"]
    assert (y["title"], y["scale"]["domain"]) == ("personal accuracy", [0.225, 0.275])


# --- phases ---------------------------------------------------------------------------------------------------------

def test_bytes_by_phase_add_up_and_come_in_the_order_of_the_protocol(run: data.RunData) -> None:
    found = phases.phases(run)
    traffic = data.traffic(run)
    for kind, name in phases.NAMES.items():
        assert found[name].sum() * 1e6 == pytest.approx(traffic.loc[traffic["kind"] == kind, "bytes"].sum())
    assert found["total"].sum() * 1e6 == pytest.approx(run.messages.wire_bytes.sum())
    assert list(dict.fromkeys(found["phase"])) == ["Model", "Update", "outside rounds: Hello"]
    assert set(found.loc[found["phase"] == "Model", "link class"]) == {"server→relay", "relay→client"}
    assert found.loc[found["again"] > 0, ["link class", "phase"]].to_records(index=False).tolist() == [
        ("server→relay", "Model")]


def test_phases_stand_side_by_side_scheme_by_scheme_for_all_links_or_one_class(run: data.RunData) -> None:
    both = phases.side_by_side({"one": phases.phases(run), "two": phases.phases(run)})
    assert both.columns.tolist() == ["scheme", "link class", "phase", "direction", "first", "again", "wasted", "lost",
                                     "total"]
    figure = phases.bytes_by_phase(both)
    assert figure.frames["bytes"]["row"].iloc[0] == "one: Model, server → client"
    bound, = figure.spec()["params"]
    assert bound["bind"]["options"] == ["all", *dict.fromkeys(both["link class"])]


# --- sequences ------------------------------------------------------------------------------------------------------

def test_a_sequence_has_a_row_a_step_with_what_became_of_it(run: data.RunData) -> None:
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


def test_a_round_in_which_nothing_was_sent_has_an_empty_sequence(run: data.RunData) -> None:
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


def test_the_page_picks_a_round_for_both_figures(run: data.RunData) -> None:
    part = next(p for p in build._run_parts(run) if p.key == "rounds")
    assert part.choice is not None
    assert [f.key for f in part.figures] == ["space-time", "sequence"]
    assert [len(shown) for shown in part.choice.shown] == [len(part.choice.labels)] * 2
    assert [one.text.partition(":")[0] for one in part.choice.shown[1]] == part.choice.labels


# --- sweeps ---------------------------------------------------------------------------------------------------------

def a_sweep(tmp_path: Path, seeds: int = 3) -> StudyRuns:
    """Two values of p, on some seeds each, for one scheme; another that does not depend on it."""
    scenario = "emul: 1\nname: s\nlinks: [{match: '*'}, {match: 'client*->server'}]\n"
    members = []
    for scheme, values in (("one", ({"links[1].outage.p": 0.1}, {"links[1].outage.p": 0.3})), ("two", ({},))):
        for value in values:
            for seed in range(seeds):
                path = make_run(tmp_path, scheme=scheme, seed=seed, scenario=scenario, observations=[
                    (0, 1, {"accuracy": 0.4 + seed / 10 + sum(value.values())}), (0, 2, {"accuracy": 0.8})])
                members.append(StudyMember(path, scheme, seed, value, study.summary_of(path)))
    return StudyRuns(tmp_path, "sweep", "s", members)


def test_an_axis_of_a_sweep_says_what_a_path_means_and_keeps_its_key(tmp_path: Path) -> None:
    figure = grid.sweep_figures(a_sweep(tmp_path))[0]
    assert figure.key == "sweep-links_1_outage_p-accuracy"
    assert figure.title == "Final accuracy against outage.p of client*→server"
    assert figure.spec()["layer"][0]["encoding"]["x"]["title"] == "outage.p of client*→server"
    assert figure.spec()["layer"][0]["encoding"]["x"]["axis"]["values"] == [0.1, 0.3]


def test_a_page_of_a_sweep_names_its_points_and_columns_by_what_a_path_means(tmp_path: Path) -> None:
    parts = {part.key: part for part in build._study_parts(a_sweep(tmp_path))}
    caption, table = parts["overview"].tables[0]
    assert table.columns[:3].tolist() == ["scheme", "outage.p of client*→server", "seeds"]
    assert caption.startswith("Means over the seeds; in brackets")
    points = parts["tradeoffs"].figures[0].table["series"]
    assert set(points) == {"one, outage.p = 0.1", "one, outage.p = 0.3", "two"}
    assert [part.title for part in parts["runs"].group] == ["one, seed 0, outage.p = 0.1", "two, seed 0"]


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
    members = [StudyMember(path, "one", 0, {"a": i, "b": -i}, study.summary_of(path)) for i in range(20)]
    found = StudyRuns(tmp_path, "sweep", "s", members)
    drawn, text = grid.curves_by_value(found)
    assert drawn[0].frames["lines"]["series"].nunique() == grid.LINES
    assert text == "12 of one's combinations of values are left out, evenly chosen."
    assert "and the values of b" in grid.sweep_figures(found)[0].text       # not a line for each of them


# --- the map --------------------------------------------------------------------------------------------------------

def test_a_full_mesh_has_a_matrix_and_a_star_has_not(tmp_path: Path, run: data.RunData) -> None:
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

def test_figures_for_a_column_are_as_wide_as_one_and_have_its_text(run: data.RunData, tmp_path: Path) -> None:
    figure = curves.learning(data.curve(run).assign(series="x", seed=1), single=True)[0]
    files.write_figures(tmp_path, [figure], "column")
    svg = (tmp_path / "accuracy-time.svg").read_text()
    assert svg.startswith("<svg")
    assert 'width="336"' in svg
    assert 'font-size="10.67px"' in svg                         # 8 pt
    assert (tmp_path / "accuracy-time.pdf").read_bytes()[:4] == b"%PDF"
    with pytest.raises(ValueError, match=r"^size = poster: expected one of page, column$"):
        files.write_figures(tmp_path, [], "poster")


def a_comparison(tmp_path: Path) -> StudyRuns:
    """Of six schemes with long names, over two seeds."""
    path = make_run(tmp_path)
    names = ["fedavg of everything", "fair_seccogc", "lightsecagg", "scaffold", "fednova", "hybrid_alpha_alone"]
    members = [StudyMember(path, name, seed, {}, study.summary_of(path) | {
        "accuracy": 0.5 + i / 20, "virtual_seconds": 1.0 + i + seed, "bytes_total": 10**6 * (1 + i)})
        for i, name in enumerate(names) for seed in (0, 1)]
    pairs = [(a, b) for k, a in enumerate(names) for b in names[:k]]
    differences = pd.DataFrame([{"metric": "accuracy", "unit": None, "scheme": a, "baseline": b, "n_seeds": 2,
                                 "mean": 0.1, "low": 0.0, "high": 0.2, "note": ""} for a, b in pairs])
    return StudyRuns(tmp_path, "compare", "six", members, seeds=[0, 1], differences=differences)


def points_of(pdf: Path) -> tuple[float, float]:
    """Width and height of the one page of a PDF, as it says itself (72 to the inch)."""
    boxes = re.findall(rb"/MediaBox\s*\[\s*0\s+0\s+([\d.]+)\s+([\d.]+)\s*\]", pdf.read_bytes())
    assert len(boxes) == 1
    return float(boxes[0][0]), float(boxes[0][1])


def outside(svg: str, width: float) -> Any:
    """What is drawn left or right of a figure of this width, None if nothing is: it would be cut."""
    import io

    import vl_convert
    from PIL import Image

    wide = re.sub(r'viewBox="0 0 [\d.]+ ([\d.]+)"', rf'viewBox="-{width} 0 {3 * width} \1"', svg, count=1)
    wide = re.sub(r'width="[\d.]+"', f'width="{3 * width}"', wide, count=1)
    assert wide != svg
    drawn = Image.open(io.BytesIO(vl_convert.svg_to_png(wide))).convert("RGBA").getchannel("A")
    assert drawn.size[0] == round(3 * width)
    left = drawn.crop((0, 0, round(width) - 2, drawn.size[1])).getbbox()
    return left or drawn.crop((round(2 * width) + 2, 0, drawn.size[0], drawn.size[1])).getbbox()


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Every figure of the comparison of six schemes."""
    found = a_comparison(tmp_path_factory.mktemp("six"))
    return [figure for part in build._study_parts(found) for figure in part.figures]


@pytest.mark.slow
@pytest.mark.parametrize(("size", "points"), [("column", 252.0), ("page", 570.0)])
def test_every_pdf_is_as_wide_as_it_says_and_nothing_of_it_is_cut(size: str, points: float, drawn: list[Any],
                                                                  tmp_path: Path) -> None:
    """A column of two is 3.5 inches: 252 points; they were 336, and legends went out at the right."""
    assert {"bytes-by-phase", "difference-1", "front-mb-accuracy"} <= {figure.key for figure in drawn}
    files.write_figures(tmp_path, drawn, size)
    for figure in drawn:
        width, _ = points_of(tmp_path / f"{figure.key}.pdf")
        svg = (tmp_path / f"{figure.key}.svg").read_text()
        if size == "column":
            assert width == pytest.approx(points, abs=0.5), figure.key
            assert outside(svg, 336.0) is None, figure.key
        else:                           # the plot, with what stands beside it
            assert width == pytest.approx(0.75 * float(re.search(r'width="([\d.]+)"', svg)[1]), abs=0.5)


def test_legends_of_a_column_stand_below_each_other(run: data.RunData, tmp_path: Path) -> None:
    figure = build._rounds(run, spacetime.space_time(run, data.waits(run), 1000)).figures[0]
    files.write_figures(tmp_path, [figure], "column")
    svg = (tmp_path / "space-time.svg").read_text()
    assert svg.count("role-legend-title") >= 3
    assert outside(svg, 336.0) is None


@pytest.mark.slow
def test_long_names_of_rows_go_on_in_a_second_line_of_a_column(drawn: list[Any]) -> None:
    figure = next(f for f in drawn if f.key == "bytes-by-phase")
    rows = list(dict.fromkeys(figure.frames["bytes"]["row"]))
    assert max(map(len, rows)) > 40
    spec = files.vega_lite(figure, files.SIZES["column"])
    svg = vl_convert.vegalite_to_svg(spec)
    for row in rows:
        lines = re.findall(r"<tspan[^>]*>([^<]+)</tspan>", svg)
        assert row in lines or any(f"{a} {b}" == row for a, b in itertools.pairwise(lines)) or f">{row}<" in svg, row
    assert spec["height"] >= 20 * len(rows)                         # room for both lines
    assert "labelExpr" not in str(files.vega_lite(figure))          # a page has room for one


@pytest.mark.slow
def test_names_of_a_front_stand_beside_its_line_and_run_towards_the_middle(drawn: list[Any]) -> None:
    figure = next(f for f in drawn if f.key == "front-virtual-s-accuracy")
    names = figure.frames["names"]
    wide = names[names["to"] == names["to"].max()].sort_values("virtual_s")
    assert [(dx > 0, dy > 0) for dx, dy in wide[["dx", "dy"]].to_numpy()] == [
        (True, True)] * 3 + [(False, False)] * 3                    # the line goes right, then up
    assert len(names) == 18
    assert not names["led"].any()
    marks = [layer["mark"] for layer in figure.spec()["layer"] if layer.get("mark", {}).get("type") == "text"]
    assert [mark["dx"] for mark in marks] == [{"expr": "datum.dx"}]


def test_names_of_points_that_are_close_are_drawn_where_they_were_placed(tmp_path: Path) -> None:
    """Of the SVG that Vega draws, in a column and on a page."""
    table = pd.DataFrame([{"series": f"scheme_{k}", "seeds": 3, "virtual_s": 10 + 1.5 * k, "mb": 40 - 1.2 * k,
                           "front": True} for k in range(8)] + [
        {"series": "far", "seeds": 3, "virtual_s": 70.0, "mb": 1.0, "front": True}])
    table = table.assign(**{f"{name}_{end}": table[name] for name in ("virtual_s", "mb") for end in ("low", "high")})
    figure = tradeoffs.front_figure(table, "virtual_s", "mb", table["series"].tolist())
    for size, width in zip(files.SIZES.values(), (760, 285), strict=True):
        beside = figure.frames["names"]
        placed = beside[(beside["from"] <= width) & (width < beside["to"])]
        assert placed["led"].sum() >= 3
        svg = vl_convert.vegalite_to_svg(files.vega_lite(figure, size))
        marks = svg.partition("mark-text role-mark")[2].partition("</g>")[0]
        names = {text: (float(x), float(y)) for x, y, text in re.findall(
            r'<text[^>]*transform="translate\(([-\d.]+),([-\d.]+)\)"[^>]*>(scheme_\d|far)</text>', marks)}
        assert names.keys() == set(placed["label"])
        ends = [(float(x) + float(x2), float(y) + float(y2)) for x, y, x2, y2 in re.findall(
            rf'<line [^>]*translate\(([-\d.]+),([-\d.]+)\)" x2="([-\d.]+)" y2="([-\d.]+)" stroke="'
            rf'{palette.LIGHT["muted"]}"', svg)]
        assert len(ends) == placed["led"].sum()
        for x, y in ends:                                           # 3 px before a name, at the height of its middle
            assert any(abs(abs(x - at) - 3) < 0.1 and abs(y - base) < 8 for at, base in names.values())


@pytest.mark.skipif(shutil.which("pdffonts") is None or shutil.which("pdfinfo") is None,
                    reason="pdffonts and pdfinfo are not installed (Debian: poppler-utils)")
def test_another_program_reads_the_pdf_of_a_column_as_252_points_with_its_fonts_embedded(run: data.RunData,
                                                                                         tmp_path: Path) -> None:
    figure = curves.learning(data.curve(run).assign(series="x", seed=1), single=True)[0]
    files.write_figures(tmp_path, [figure], "column")

    def said(program: str) -> list[str]:
        file = str(tmp_path / "accuracy-time.pdf")
        return subprocess.run([program, file], capture_output=True, text=True, check=True).stdout.splitlines()

    size = next(line for line in said("pdfinfo") if line.startswith("Page size:"))
    assert size.split()[2:4] == ["252", "x"]
    fonts = said("pdffonts")[2:]
    assert fonts                                                    # text is text, and no curves
    embedded = [line.split()[-5] for line in fonts]                 # emb sub uni object ID
    assert set(embedded) == {"yes"}


def test_the_height_of_a_column_follows_the_rows(tmp_path: Path) -> None:
    found = a_comparison(tmp_path)
    assert found.differences is not None
    figure, = figures.differences(found.differences)
    few, = figures.differences(found.differences.head(3))
    assert files.vega_lite(figure)["height"] == 15 * 30
    assert files.vega_lite(figure, files.SIZES["column"])["height"] == 15 * 21
    assert files.vega_lite(few, files.SIZES["column"])["height"] == 3 * 21


def test_letters_of_a_column_have_its_size_wherever_they_stand(run: data.RunData) -> None:
    def sizes(value: Any) -> set[float]:
        if isinstance(value, list):
            return {one for item in value for one in sizes(item)}
        if not isinstance(value, dict):
            return set()
        return {one for key, item in value.items() for one in ({item} if key == "fontSize" else sizes(item))}

    order = sequence.message_sequence(sequence.sequences(run, [1])[0])
    assert sizes(files.vega_lite(order, files.SIZES["column"])) <= {9.33, 12}       # 12: of titles, if there are any


def test_a_font_that_is_not_there_is_an_error_that_lists_those_there_are(tmp_path: Path) -> None:
    """The renderer draws no letter then, and says nothing."""
    there = [name for name in files.font_families() if files.font_is_drawn(name)]
    with pytest.raises(ValueError, match=r"^font = No Such Font: there is no such font; ") as wrong:
        files.write_figures(tmp_path / "none", [], "page", "No Such Font")
    assert all(name in str(wrong.value) for name in there[:40])
    assert not (tmp_path / "none").exists()
    from emul.cli.options import app

    asked = CliRunner().invoke(app, ["report", str(tmp_path), "--figures", str(tmp_path / "none"), "--font", "No Font"])
    assert asked.exit_code == 2
    assert "No Font" in asked.output


def test_figures_are_written_in_a_font_that_is_there(run: data.RunData, tmp_path: Path) -> None:
    there = [name for name in files.font_families() if files.font_is_drawn(name)]
    if not there:
        pytest.skip("no font is installed here")
    figure = curves.learning(data.curve(run).assign(series="x", seed=1), single=True)[0]
    files.write_figures(tmp_path, [figure], "column", there[0])
    assert f'font-family="{there[0]}"' in (tmp_path / "accuracy-time.svg").read_text()
    if shutil.which("pdffonts") is None:
        pytest.skip("poppler's pdffonts is not here to look into the PDF")
    said = subprocess.run(["pdffonts", str(tmp_path / "accuracy-time.pdf")], capture_output=True, text=True, check=True)
    assert re.sub(r"\W", "", there[0]) in re.sub(r"[^A-Za-z]", "", said.stdout)


def test_names_are_read_from_fonts_and_nothing_from_what_is_none() -> None:
    no_font = b"no font at all, but long enough to be taken for one"
    assert files.font_names_in(b"") == files.font_names_in(no_font) == set()


def test_the_command_takes_the_sizes_that_there_are(tmp_path: Path) -> None:
    from emul.cli.options import app
    from emul.cli.report import FigureWidth

    assert {one.value for one in FigureWidth} == set(files.SIZES)
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--size", "poster"])
    assert done.exit_code == 2
